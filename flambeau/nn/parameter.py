"""Parameters: leaves that a module registers and an optimizer updates."""
import numpy as np

from ..base import dtypes
from ..tensor.create import from_array
from ..tensor.dispatch import _overrides
from ..tensor.subclass import opted_out
from ..tensor.tensor import Tensor, TensorType


class ParameterType(TensorType):
    """`isinstance(x, Parameter)` also holds for a tensor of the user's own class that was made a parameter."""

    def __call__(cls, *args, **kwargs):
        return type.__call__(cls, *args, **kwargs)

    def __instancecheck__(cls, thing):
        marked = "_marked_by" in cls.__dict__ and isinstance(thing, Tensor) and getattr(thing, cls._marked_by, False)
        return marked or type.__instancecheck__(cls, thing)


class Parameter(Tensor, metaclass=ParameterType):
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
        data = from_array(np.empty(0, dtypes.get_default_dtype().np)) if data is None else data
        if not isinstance(data, Tensor):
            raise TypeError(f"a Parameter is made from a tensor, got {type(data).__name__}: wrap it in "
                            "torch.tensor(...)")
        if requires_grad and data.spec.dtype.category < 2:
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients: for "
                               f"a Parameter of {data.spec.dtype!r} say requires_grad=False")
        made = data.detach()
        if _overrides(type(data)):              # keeps its own class, and is marked
            made._is_param = True
        else:
            made.__class__ = cls
        made._cut = None
        made._requires_grad = requires_grad
        return made

    def __init__(self, data=None, requires_grad=True):
        pass
