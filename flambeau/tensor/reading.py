"""The contents of a tensor, for who looks at them: as an array, as a number, as lists.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""
import numpy as np

from ..base.op import door
from ..base.spec import META
from .messages import said


def array_of(tensor):
    """The tensor's contents as a NumPy array to read, run if pending. Not to be written or handed out."""
    spec = tensor._spec
    if spec.device is META:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!" + said(tensor))
    value = tensor._storage.value
    value.ready()
    return value.read(spec, tensor._offset)


def number_of(tensor):
    """The only element as a Python number."""
    spec = tensor._spec
    if spec.numel != 1:
        raise RuntimeError(f"a Tensor with {spec.numel} elements cannot be converted to Scalar" + said(tensor)
                           + "\n  Use .tolist() for all of them, or reduce it first (.sum(), .mean(), .max()).")
    if spec.device is META:
        raise RuntimeError("Tensor.item() cannot be called on meta tensors" + said(tensor))
    value = tensor._storage.value             # as `array_of` does: a call is a tenth of what this costs
    value.ready()
    found = value.read(spec, tensor._offset).item()
    if spec.dtype.foreign:
        found = float(found)
    if tensor._node is not None and found - found != 0:      # infinite, or not a number
        door.noticed("non_finite_seen", tensor, found)
    return found


def lists_of(tensor):
    """The elements as nested lists of Python numbers; the number itself for a zero-dimensional tensor."""
    spec = tensor._spec
    if spec.device is META:
        return array_of(tensor)                   # which refuses it
    value = tensor._storage.value
    value.ready()
    array = value.read(spec, tensor._offset)
    return (array.astype(np.float32) if spec.dtype.foreign else array).tolist()
