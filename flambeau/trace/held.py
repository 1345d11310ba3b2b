"""What is held of a backward until its step was taken, and the look at its loss and a gradient then; held.pyx has these
names in C.

This is done in every step of a training, from cold caches, where to call NumPy takes as long as to record an operation.
See Note [One source, two speeds] in base/core.py.
"""
import numpy as np

from ..base.spec import CPU

FEW_NUMBERS = 1 << 7          # are added up by Python


class HeldBase:
    """The fields of a HeldRecording (rerun.py)."""

    __slots__ = ("code", "count", "inputs", "root", "slot", "site", "large", "older")


def check_held(trace, groups, most):
    """Look at the loss of the backward that a trace holds, and at the first gradient of `most` elements at most of the
    parameters in `groups`; (recording, tensor that is not finite), or None where all is well, or not computed yet.

    What was looked at is held no longer. What is not a number in the middle of a backward is so in all that comes
    behind it, in the first layers too.
    """
    recording = trace.backward
    root = recording.root()
    if root is not None:
        value = root._storage.value
        if value.trace is not None:
            return None
        if root._spec.numel == 1 and not is_finite(value):
            trace.backward = None
            return recording, root
    g = _small_gradient(groups, most)
    if g is not None:
        value = g._storage.value
        if value.trace is not None:
            return None
        if not is_finite(value):
            trace.backward = None
            return recording, g
    trace.backward = None
    return None


def _small_gradient(groups, most):
    for group in groups:
        for p in group["params"]:
            if (g := p._grad) is not None and (spec := g._spec).numel <= most and spec.device is CPU:
                return g if g._storage is not None else None
    return None


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
