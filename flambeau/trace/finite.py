"""Whether numbers are finite, and how large they are; finite.pyx has these names in C.

It is asked in every step of a training, from cold caches, where to call NumPy takes as long as to record an operation.
See Note [One source, two speeds] in base/core.py.
"""
import numpy as np

from ..base import dtypes
from ..base.spec import CPU

FEW_NUMBERS = 1 << 7          # are added up by Python


def is_finite(value):
    """Whether all numbers of a Value, which is computed and on the CPU, are finite."""
    array = value.array
    if array.size <= FEW_NUMBERS:
        total = sum(array.ravel().tolist())
        if total - total == 0:
            return True
    return all_finite(array)                          # of large numbers the sum alone may be infinite


def all_finite(array):
    """The same of a NumPy array."""
    if array.dtype.isbuiltin == 2:                    # bfloat16 and smaller
        array = array.astype(np.float32)
    return array.dtype.kind not in "fc" or b"\0" not in np.isfinite(array).tobytes()     # a third of what all() takes


def largest(g):
    """The largest absolute value in a gradient; -1 where the caller has to look at it."""
    spec = g._spec
    if g._storage is None or g._offset or spec.device is not CPU or not spec.numel \
            or spec.dtype not in (dtypes.float32, dtypes.float64):
        return -1.0
    value = g._storage.value
    if value.trace is not None or value.spec is not spec:
        return -1.0
    return float(np.abs(value.array).max())
