"""The Tensor: a look at a storage (shape, strides, offset, dtype), and its autograd face.

Most methods come from the declarations in `ops/` and are hung on the class by `forms`; here are those that are about
the object itself: what it is, its gradient, its history, its data. Others hang on theirs as well, so that nothing here
imports them: `create` what a call of the class makes, `subclass` how subclasses are asked, `protocol`, `attributes`,
`storage`, `indexing` and their like what they are about.
"""
import weakref

from ..autograd import engine
from ..autograd.base_node import Handle, refresh
from ..autograd.edges import edge_of, requires
from ..autograd.modes import modes
from ..base import observers, shapes
from ..base.entry import DETACHES, NotedCall
from ..base.errors import line_of, name_of, user_frame, warn
from ..base.names import words
from ..base.op import door
from ..base.spec import META
from ..trace import value as values
from ..trace.bounds import pending_bounds
from ..trace.recording import new
from ..trace.recording.record import _local, current, run_all
from ..trace.running.quick import here
from ..trace.value import TensorBase
from .user_attributes import OWN_FIELDS, USER_ATTRIBUTES, TensorFields, hides_attributes


class TensorType(type):
    """The class of the class: a call of it (create.py), names that it does not have, its signature."""

    def __new__(meta, name, bases, namespace, **kwargs):
        if hides_attributes(bases):
            namespace.setdefault("__dict__", USER_ATTRIBUTES)
        return super().__new__(meta, name, bases, namespace, **kwargs)

    def __getattr__(cls, name):
        near = words("torch.Tensor", name, lambda: dir(Tensor))
        raise AttributeError(f"type object '{cls.__name__}' has no attribute '{name}'{near}", name=name)

    @property
    def __signature__(cls):
        """For `inspect.signature`, which would take that of `__call__`."""
        from inspect import signature
        from types import MethodType
        return signature(MethodType(cls.__new__, cls))


class Tensor(TensorFields, metaclass=TensorType):
    """A multi-dimensional array of one dtype that can be differentiated."""

    __dict__ = USER_ATTRIBUTES                               # type: ignore[assignment]

    # What most tensors never set stays on the class. Fields that recording asks for stand in TensorBase.
    _retains = None           # the node that will put its gradient into `.grad`
    _tangent = None           # (level, tangent) in forward mode
    _dual_of = None           # the dual tensor that it is a view of
    _labels = None            # (names of its axes, site); see watch/axes.py
    _stepped = None           # of a gradient: its version when a step had used it; see watch/steps.py
    _stale = None             # of a gradient: (version, site) of a backward that added to it after that
    _passes = 1               # of a gradient: how many backward passes it is the sum of
    _pending_bounds = pending_bounds
    __array_priority__ = 1000

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        """Only where there is no such attribute: the error says which name is near, and whether PyTorch has it."""
        if any(name in cls.__dict__ for cls in type(self).__mro__):
            return object.__getattribute__(self, name)       # a property raised AttributeError: let it say so itself
        near = words("torch.Tensor", name, lambda: dir(Tensor))
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'{near}", name=name)

    # --- what it is ---

    @property
    def shape(self):
        """The size of each dimension, as a `torch.Size`."""
        return self._spec.size

    def size(self, dim=None):
        """The shape, or the size of one dimension."""
        if dim is None:
            return self._spec.size
        return self._spec.shape[shapes.wrap_dim(dim, self._spec.ndim, scalar_ok=False)]

    def stride(self, dim=None):
        """The strides in elements, or the stride of one dimension."""
        if dim is None:
            return self._spec.strides
        return self._spec.strides[shapes.wrap_dim(dim, self._spec.ndim, scalar_ok=False)]

    def storage_offset(self):
        """How many elements into its storage the tensor starts."""
        return self._offset

    @property
    def dtype(self):
        """The kind of number it holds."""
        return self._spec.dtype

    @property
    def device(self):
        """Where it lives."""
        return self._spec.device

    @property
    def ndim(self):
        """How many dimensions it has."""
        return self._spec.ndim

    def dim(self):
        """The number of dimensions."""
        return self._spec.ndim

    ndimension = dim

    def numel(self):
        """The number of elements."""
        return self._spec.numel

    nelement = numel

    @property
    def itemsize(self):
        """Bytes per element."""
        return self._spec.dtype.itemsize

    def element_size(self):
        """Bytes per element."""
        return self._spec.dtype.itemsize

    @property
    def nbytes(self):
        """Bytes that its elements take: how many there are times `itemsize`."""
        return self._spec.nbytes

    def is_contiguous(self, memory_format=None):
        """Whether the elements lie in row-major order (or that of `memory_format`) without gaps."""
        if memory_format is not None and memory_format.name.startswith("channels_last"):
            return self._spec.ndim == memory_format.ndim \
                and shapes.is_channels_last(self._spec.shape, self._spec.strides)
        return self._spec.contiguous

    def is_floating_point(self):
        """Whether the dtype is a floating one."""
        return self._spec.dtype.is_floating_point

    def is_complex(self):
        """Whether the dtype is complex."""
        return self._spec.dtype.is_complex

    def is_signed(self):
        """Whether the dtype can hold negative numbers."""
        return self._spec.dtype.is_signed

    @property
    def is_cpu(self):
        """Whether it lives on the CPU."""
        return self._spec.device.type == "cpu"

    @property
    def is_cuda(self):
        """Whether it lives on a CUDA device."""
        return self._spec.device.type == "cuda"

    @property
    def is_mps(self):
        """Whether it lives on an Apple GPU."""
        return self._spec.device.type == "mps"

    @property
    def is_meta(self):
        """Whether it has a shape and a dtype but no contents."""
        return self._spec.device is META

    is_sparse = is_quantized = is_nested = is_mkldnn = is_xla = is_xpu = is_ipu = is_vulkan = False
    names = property(lambda self: (None,) * self._spec.ndim)

    @property
    def _cdata(self):
        """An integer that no other living tensor has; pyro asks whether a parameter was replaced."""
        return id(self)

    def get_device(self):
        """The index of the device; -1 on the CPU."""
        return -1 if self._spec.device.index is None else self._spec.device.index

    @property
    def _version(self):
        if self._storage.inference:
            raise RuntimeError("Inference tensors do not track version counter.")
        if self._data_version is not None:
            return self._data_version.count
        version = current().version(self._storage)
        return version - self._storage.hidden if self._storage.hidden else version

    def _is_view(self):
        return self._base is not None

    def is_inference(self):
        """Whether the tensor was made in inference mode."""
        return self._storage.inference

    def data_ptr(self):
        """The address of the first element. The memory stays where it is while the storage lives."""
        if self._spec.device is META or self._spec.numel == 0:
            return 0
        storage = self._storage
        if not storage.exported:
            run_all()                    # code that has the address may write; what was recorded before must not see it
        storage.pin()
        return storage.device.backend.address(storage.value.memory) + self._offset * self._spec.dtype.itemsize

    def __len__(self):
        if self._spec.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self._spec.shape[0]

    __hash__ = TensorBase.__hash__        # a class that says what `==` is has to say this too

    # --- its gradient ---

    @property
    def requires_grad(self):
        """Whether gradients are wanted for it."""
        return requires(self)

    @requires_grad.setter
    def requires_grad(self, wanted):
        self.requires_grad_(wanted)

    def requires_grad_(self, requires_grad=True):
        """Ask for (or no longer ask for) gradients of this leaf."""
        if requires_grad:
            if self._spec.dtype.category < 2:
                raise RuntimeError("only Tensors of floating point dtype can require gradients (and of complex "
                                   "dtype)" + _who(self))
            if self._storage.inference and not modes.inference:
                raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not "
                                   "allowed.")
            if self._node is None:
                self._requires_grad = True               # where it was cut stays known: a backward may begin here
        elif self._node is not None:
            raise RuntimeError("you can only change requires_grad flags of leaf variables. If you want to use a "
                               "computed variable in a subgraph that doesn't require differentiation use var_no_grad = "
                               "var.detach()." + _who(self))
        else:
            if self._requires_grad:
                self._cut = ("requires_grad_(False)", here())
            self._requires_grad = False
        return self

    @property
    def is_leaf(self):
        """Whether it was made by the user and not by an operation with a gradient."""
        return not requires(self) or self.grad_fn is None

    @property
    def grad_fn(self):
        """The autograd node it came from; None for a leaf."""
        if self._base is not None and self._seen != self._storage.version:
            refresh(self)
        return self._node.shown() if self._node is not None else None

    @property
    def output_nr(self):
        """Which result of its node it is."""
        return self._nr

    @property
    def grad(self):
        """The gradient that `backward` has added up here; None before."""
        if self._grad is None and self._node is not None and not self._retains:
            warn("The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad "
                 "attribute won't be populated during autograd.backward(). If you indeed want the .grad field "
                 "to be populated for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. If you "
                 "access the non-leaf Tensor by mistake, make sure you access the leaf Tensor "
                 "instead." + _who(self))
        if (tell := observers.gradient_read) is not None:
            tell(self)
        return self._grad

    @grad.setter
    def grad(self, g):
        if g is not None:
            if not isinstance(g, Tensor):
                raise TypeError("assigned grad expected to be a Tensor or None but got grad of type "
                                f"{type(g).__name__}")
            if g is self:
                raise RuntimeError("can't assign Variable as its own grad")
            if g._spec.dtype is not self._spec.dtype:
                raise RuntimeError(f"attempting to assign a gradient with dtype '{g._spec.dtype.name}' to a tensor "
                                   f"with dtype '{self._spec.dtype.name}'. The gradient must match the tensor's "
                                   "dtype." + _who(self))
            if g._spec.device is not self._spec.device:
                raise RuntimeError(f"attempting to assign a gradient with device type '{g._spec.device.type}' to a "
                                   f"tensor with device type '{self._spec.device.type}'." + _who(self))
            if g._spec.shape != self._spec.shape:
                raise RuntimeError(f"attempting to assign a gradient of size '{list(g._spec.shape)}' to a tensor of "
                                   f"size '{list(self._spec.shape)}'. Please ensure that the gradient and the tensor "
                                   "are the same size" + _who(self))
        self._grad = g

    @grad.deleter
    def grad(self):
        self._grad = None

    def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
        """Add the gradients of this tensor into the leaves' `.grad`."""
        try:
            engine.backward(self, gradient, retain_graph, create_graph, inputs=inputs)
        except Exception as error:
            door.noticed("error_raised", error)
            raise

    def retain_grad(self):
        """Keep this non-leaf's gradient in `.grad` at backward."""
        if not requires(self):
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False" + _who(self))
        edge = edge_of(self)
        if self._node is None:
            return
        node, nr = edge
        if self._retains:                    # an in-place write has given the tensor another node: it moves there
            retained = self._retains.retained
            for old in [old for old, ref in retained.items() if ref() is self]:
                del retained[old]
        if node.retained is None:
            node.retained, node.hooked = {}, True
        node.retained[nr] = weakref.ref(self)
        self._retains = node

    @property
    def retains_grad(self):
        """Whether `retain_grad` was asked for."""
        return self._retains is not None

    def register_hook(self, hook):
        """Call `hook(grad)` when this tensor's gradient is complete; what it returns replaces the gradient."""
        if not requires(self):
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient" + _who(self))
        if self.grad_fn is None:
            if self._leaf_hooks is None:
                self._leaf_hooks = {}
                node = self._accumulator() if self._accumulator is not None else None
                if node is not None:
                    node.tensor_hooks, node.hooked = {0: self._leaf_hooks}, True
            return Handle(self._leaf_hooks, hook)
        return self._node.hook_output(self._nr, hook)

    def register_post_accumulate_grad_hook(self, hook):
        """Call `hook(tensor)` after this leaf's `.grad` has been added to."""
        if not requires(self):
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient" + _who(self))
        if self.grad_fn is not None:
            raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors" + _who(self))
        if self._post_hooks is None:
            self._post_hooks = {}
        return Handle(self._post_hooks, hook)

    # --- the same data without history ---

    def detach(self):
        """The same memory without history; writes through either are seen, and noticed at backward."""
        out = _look(self)
        if requires(self):
            out._cut = ("detach()", out._site)
        elif self._cut is not None:
            out._cut = self._cut
        if _local.trace.tape is not None:
            _local.trace.tape.append(NotedCall(DETACHES, (self,), (self,), (), 0, out))
        return out

    def detach_(self):
        """Forget this tensor's history."""
        if modes.inference:                  # autograd takes no part there, as in PyTorch: nothing is forgotten
            return self
        if self._base is not None:
            raise RuntimeError("Can't detach views in-place. Use detach() instead. If you are using "
                               "DistributedDataParallel (DDP) for training, and gradient_as_bucket_view is set as "
                               "True, gradients are views of DDP buckets, and hence detach_() cannot be called on "
                               "these gradients. To fix this error, please refer to the Optimizer.zero_grad() function "
                               "in torch/optim/optimizer.py as a solution."
                               if self._grad is not None else "Can't detach views in-place. Use detach() "
                                                              "instead." + _who(self))
        if requires(self):
            self._cut = ("detach_()", here())
        self._node, self._nr, self._requires_grad, self._tangent = None, 0, False, None
        return self

    @property
    def data(self):
        """The tensor without its history, over the same memory; `_version` does not count what is written to it."""
        out = self.detach()
        out._data_version = values.DataVersion()
        if requires(self):
            out._cut = (".data", out._site)
        return out

    @data.setter
    def data(self, other):
        if not isinstance(other, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(other).__name__}")
        if self._requires_grad and other._spec.dtype.category < 2:
            raise RuntimeError("data set to a tensor that requires gradients must be floating point or complex dtype, "
                               f"and this is {other._spec.dtype}")
        self._storage, self._spec, self._offset = other._storage, other._spec, other._offset
        self._seen = other._storage.version
        if self._data_version is not None:
            self._data_version = None

    @staticmethod
    def _make_subclass(cls, data, require_grad=False):
        """`data` without its history as an object of class `cls`, as a leaf; PyTorch's name, which programs use."""
        made = data.detach().as_subclass(cls)
        made._requires_grad = require_grad
        return made


OWN_FIELDS.update(("_storage", "_spec", "_offset"), (name for name in (*vars(TensorBase), *vars(Tensor))
                                                     if name.startswith("_") and not name.startswith("__")))


wrap = new.wrapper(Tensor)        # wrap(storage, spec, offset=0): a tensor that looks at `storage`


def _look(tensor):
    """A plain tensor over the same memory, without history."""
    out = _new(Tensor)
    out._storage, out._spec, out._offset = tensor._storage, tensor._spec, tensor._offset
    out._site = here()
    if tensor._data_version is not None:
        out._data_version = tensor._data_version
    return out


def _who(tensor):
    name = name_of(tensor, user_frame()) or "the tensor"
    return f"\n  {name} is {tensor._spec}, made at {line_of(tensor._site)}."


_new = TensorBase.__new__
door.tensor = Tensor
door.wrap = wrap
