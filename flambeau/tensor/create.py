"""Tensors from Python data and NumPy arrays: `tensor`, `as_tensor`, `from_numpy`, and the calls of the Tensor class."""
import numpy as np

from ..base import dtypes
from ..base.spec import META, of_array, place, spec
from ..base.errors import here
from ..trace.value import Storage, Value
from .dispatch import array_of, wrap
from .tensor import Tensor

PUBLIC = ("tensor", "from_numpy")


def from_array(array, requires_grad=False):
    """A tensor that takes over a contiguous array nobody else holds."""
    kind = of_array(array)
    out = wrap(Storage(Value(array, kind), kind.nbytes, kind.device), kind)
    out.site = here()
    out._requires_grad = requires_grad
    return out


def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """A new tensor that copies `data`."""
    if isinstance(data, Tensor):
        array = array_of(data)
    else:
        array = np.array(data)
        if array.dtype == np.float64 and not isinstance(data, (np.ndarray, np.generic)):
            array = array.astype(dtypes.default.np)
        if array.dtype == np.complex128 and not isinstance(data, (np.ndarray, np.generic)):
            array = array.astype(dtypes.default.to_complex().np)
    if dtype is not None:
        array = array.astype(dtype.np)
    return from_array(np.array(array, order="C", copy=True), requires_grad)


def from_numpy(array):
    """A tensor over the memory of `array`: both see each other's writes."""
    kind = of_array(array)
    if array.flags.c_contiguous:
        storage = Storage(Value(array, kind), kind.nbytes, kind.device)
        storage.adopt(array)
        out = wrap(storage, kind)
        out.site = here()
        return out
    raise NotImplementedError


def numpy(self, *, force=False):
    """The tensor as a NumPy array over the same memory."""
    from ..trace.record import run_all
    run_all()
    return self.storage.export(self.spec, self.offset)


def item(self):
    """The only element as a Python number."""
    return array_of(self).item()


def tolist(self):
    return array_of(self).tolist()


Tensor.numpy, Tensor.item, Tensor.tolist = numpy, item, tolist
Tensor.__repr__ = lambda self: f"tensor({array_of(self)!r})"
