"""Parameters and buffers: the tensors that a module registers, and those among them that wait for their shape."""
import numpy as np

from ..base import dtypes
from ..base.spec import device as device_type
from ..tensor.create import from_array
from ..tensor.functions import empty
from ..tensor.overrides import DisableTorchFunctionSubclass, has_override
from ..tensor.subclass import opted_out
from ..tensor.tensor import Tensor, TensorType

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "is_lazy",
           "UninitializedTensorMixin"]


class _ParameterMeta(TensorType):
    """`isinstance(x, Parameter)` also holds for a tensor of the user's own class that was made a parameter.

    A buffer is always such a tensor: it keeps the class it had, and is marked.
    """

    def __call__(cls, *args, **kwargs):
        return type.__call__(cls, *args, **kwargs)

    def __instancecheck__(cls, thing):
        marked = "_marked_by" in cls.__dict__ and isinstance(thing, Tensor) and getattr(thing, cls._marked_by, False)
        return marked or type.__instancecheck__(cls, thing)


def _nothing():
    return from_array(np.empty(0, dtypes.get_default_dtype().np))


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that a module registers as one of its parameters; it asks for gradients unless told not to.

    Operations on a parameter give plain tensors.

    >>> torch.nn.Parameter(torch.ones(2))
    Parameter containing:
    tensor([1., 1.], requires_grad=True)
    """

    _prints_as_parameter = True
    _marked_by = "_is_param"
    __torch_function__ = opted_out

    def __new__(cls, data=None, requires_grad=True):
        data = _nothing() if data is None else data
        if not isinstance(data, Tensor):
            raise TypeError(f"a Parameter is made from a tensor, got {type(data).__name__}: wrap it in "
                            "torch.tensor(...)")
        if requires_grad and data._spec.dtype.category < 2:
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients: for "
                               f"a Parameter of {data._spec.dtype!r} say requires_grad=False")
        if (backend := data._spec.device.backend) is not None:
            backend.expect_work()
        made = data.detach()
        if has_override(type(data)):              # keeps its own class, and is marked
            made._is_param = True
        else:
            made.__class__ = cls
        made._cut = None
        made._requires_grad = requires_grad
        return made

    def __deepcopy__(self, memo):
        """A parameter with memory of its own; the gradient stays behind, as in PyTorch."""
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.data.clone(), self.requires_grad)
        return memo[id(self)]


class Buffer(Tensor, metaclass=_ParameterMeta):
    """A tensor that a module registers as a buffer when it is assigned: state that is not trained.

    `persistent=False` keeps it out of the state dict.

    >>> net = torch.nn.Module()
    >>> net.mean = torch.nn.Buffer(torch.zeros(2))
    >>> dict(net.state_dict())
    {'mean': tensor([0., 0.])}
    """

    _marked_by = "_is_buffer"

    def __new__(cls, data=None, *, persistent=True):
        data = _nothing() if data is None else data
        if not isinstance(data, Tensor):
            raise TypeError(f"a Buffer is made from a tensor, got {type(data).__name__}: wrap it in torch.tensor(...)")
        made = data.detach().requires_grad_(data.requires_grad)
        made.persistent, made._is_buffer = persistent, True
        return made


class UninitializedTensorMixin:
    """A tensor of a lazy module whose shape is not known yet. Little can be done with it before `materialize`."""

    # What a module does with its tensors before it knows their shapes: it moves and converts them.
    _allowed = frozenset("size copy_ is_complex is_floating_point half float double char short int long bfloat16 cuda "
                         "cpu to get_device".split())

    def materialize(self, shape, device=None, dtype=None):
        """Give the tensor its shape and memory, without setting its elements; from now on it is like any other."""
        self.data = empty(shape, device=self.device if device is None else device,
                          dtype=self.dtype if dtype is None else dtype)
        self.__class__ = self.cls_to_become

    @property
    def data(self):
        with DisableTorchFunctionSubclass():
            return self.detach()

    @data.setter
    def data(self, other):
        Tensor.data.fset(self, other)

    @property
    def shape(self):
        raise RuntimeError("Can't access the shape of an uninitialized parameter or buffer. This error usually happens "
                           "in `load_state_dict` when trying to load an uninitialized parameter into an initialized "
                           "one. Call `forward` to initialize the parameters before accessing their attributes.")

    def share_memory_(self):
        raise RuntimeError("Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize "
                           "the parameters before calling `module.share_memory()`.")

    def __repr__(self):
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol):
        return type(self), (self.requires_grad,)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = _rebuild_uninitialized(type(self), self.requires_grad, self.device, self.dtype)
        return memo[id(self)]

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        attribute = func.__class__.__name__ == "method-wrapper"
        if not attribute and getattr(func, "__name__", "").strip("_") not in {name.strip("_") for name in cls._allowed}:
            raise _unusable(cls, func)
        with DisableTorchFunctionSubclass():
            made = func(*args, **(kwargs or {}))
        if cls.cls_to_become is Tensor and isinstance(made, Tensor) and not isinstance(made, cls):
            made.__class__ = cls                  # a converted buffer waits on; a parameter keeps its object anyway
            made.persistent, made._is_buffer = args[0].persistent, True
        return made


def _unusable(cls, func):
    return ValueError(f"Attempted to use an uninitialized parameter in {func}. This error happens when you are using a "
                      f"`LazyModule` or explicitly manipulating `torch.nn.parameter.{cls.__name__}` objects. When "
                      "using LazyModules Call `forward` with a dummy batch to initialize the parameters before calling "
                      "torch functions")


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[misc]
    """A parameter whose shape is not known yet."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad=True, device=None, dtype=None):
        return _uninitialized(cls, requires_grad, device, dtype)

    def __init__(self, requires_grad=True, device=None, dtype=None):
        pass


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose shape is not known yet."""

    cls_to_become = Tensor

    def __new__(cls, requires_grad=False, device=None, dtype=None, persistent=True):
        made = _uninitialized(cls, requires_grad, device, dtype)
        made.persistent, made._is_buffer = persistent, True
        return made

    def __init__(self, requires_grad=False, device=None, dtype=None, persistent=True):
        pass


def _uninitialized(cls, requires_grad, device, dtype):
    made = empty(0, device=device, dtype=dtype)
    made.__class__ = cls
    made._requires_grad = requires_grad
    return made


def _rebuild_uninitialized(cls, requires_grad, device, dtype):
    return cls(requires_grad=requires_grad, device=device_type(device), dtype=dtype)


def is_lazy(param):
    """Whether a parameter or buffer waits for its shape."""
    return isinstance(param, UninitializedTensorMixin)
