"""Whether the numbers of a Value are finite; finite.pyx has this name in C.

It is asked of a loss and a gradient in every step of a training, from cold caches, where to call NumPy takes as long as
to record an operation. See Note [One source, two speeds] in base/core.py.
"""
import numpy as np

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
