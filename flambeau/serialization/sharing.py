"""Which tensors share memory, by the names of `safetensors.torch`: packages ask there before they save.

The original compares addresses. Here a storage is told by its cell, and a tensor by its offset: an address that
the program has asked for would keep every later operation on the tensor from being fused. Where the library is
installed, cli/facade.py runs its own module with these in the place of its functions of the same names.
"""
import sys

import numpy as np

from ..base import dtypes
from ..base.shapes import extent
from ..base.spec import META
from ..tensor.interop import exported, frombuffer
from ..tensor.tensor import Tensor
from .safetensors import DTYPE_OF_CODE

_SIZE = {dtype: dtype.itemsize for dtype in (*dtypes.ALL, dtypes.named("float4_e2m1fn_x2"))}
_TYPES = dict(DTYPE_OF_CODE)


def _getdtype(dtype_str):
    """The dtype that a code of the format stands for."""
    return _TYPES[dtype_str]


def storage_ptr(tensor):
    """A number that tensors over the same memory have in common, and others do not; 0 without memory."""
    cell = tensor._storage
    return 0 if cell.device is META or not cell.nbytes else id(cell)


def storage_size(tensor):
    """How many bytes the storage behind a tensor has."""
    return tensor._storage.nbytes


def _area(tensor):
    """(first byte, byte behind the last) of a tensor in its storage."""
    spec = tensor._spec
    start = tensor._offset * spec.dtype.itemsize
    return start, start + (extent(spec.shape, spec.strides) * spec.dtype.itemsize if spec.numel else 0)


def _end_ptr(tensor):
    """The address behind the last element."""
    start, stop = _area(tensor)
    return tensor.data_ptr() + stop - start


def _filter_shared_not_shared(tensors, state_dict):
    """Sets of names of tensors over one storage, divided where their elements do not overlap."""
    divided = []
    for shared in tensors:
        areas = sorted((*_area(state_dict[name]), name) for name in shared)
        last = None
        for start, stop, name in areas:
            if last is None or start >= last:
                divided.append({name})
            else:
                divided[-1].add(name)
            last = stop
    return divided


def _find_shared_tensors(state_dict):
    """Sets of names, one for each piece of memory; tensors that share elements are in one."""
    found: dict = {}
    for name, tensor in state_dict.items():
        if storage_ptr(tensor) != 0:
            found.setdefault(tensor._storage, set()).add(name)
    return _filter_shared_not_shared(found.values(), state_dict)


def _is_complete(tensor):
    """Whether a tensor takes up all of its storage."""
    return tensor._offset == 0 and tensor.nbytes == storage_size(tensor)


def _remove_duplicate_names(state_dict, *, preferred_names=None, discard_names=None):
    """{name to keep: names of tensors that are in its memory}; a name to keep has the whole storage."""
    preferred_names, discard_names = set(preferred_names or ()), set(discard_names or ())
    removed: dict = {}
    for shared in _find_shared_tensors(state_dict):
        complete = {name for name in shared if _is_complete(state_dict[name])}
        if not complete:
            raise RuntimeError("Error while trying to find names to remove to save state dict, but found no suitable "
                               f"name to keep for saving amongst: {shared}. None is covering the entire storage. "
                               "clone() these tensors, so that each has memory of its own.")
        keep = min(preferred_names & complete or complete - discard_names or complete)
        for name in sorted(shared - {keep}):
            removed.setdefault(keep, []).append(name)
    return removed


def _to_ndarray(tensor):
    """The bytes of a contiguous tensor as an array over its memory, and who keeps that."""
    if not tensor.numel():
        return np.empty(0), 0
    array = exported(tensor.detach().cpu())
    return (array if sys.byteorder == "little" else array.byteswap()).reshape(-1).view(np.uint8), tensor


# names of `safetensors.torch` whose originals ask for addresses
IN_THE_LIBRARY = (storage_ptr, storage_size, _end_ptr, _filter_shared_not_shared, _find_shared_tensors, _is_complete,
                  _to_ndarray)


def _tobytes(tensor, name):
    """The bytes of a tensor's elements, as they stand in a file."""
    if not isinstance(tensor, Tensor) or not tensor.is_contiguous():
        raise ValueError(f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. Call "
                         ".contiguous() on it to pack it before saving.")
    array = np.array(tensor.detach().numpy())
    return (array if sys.byteorder == "little" else array.byteswap()).tobytes()


def _view2torch(safeview):
    """{name: tensor} of what `safetensors.deserialize` gives."""
    made = {}
    for name, entry in safeview:
        dtype = _getdtype(entry["dtype"])
        if entry["data"]:
            made[name] = frombuffer(entry["data"], dtype=dtype).reshape(entry["shape"])
        else:
            made[name] = frombuffer(bytearray(dtype.itemsize), dtype=dtype)[:0].reshape(entry["shape"]).clone()
    return made
