"""Copies and conversions: the same elements in other memory, another dtype, another layout."""
import numpy as np

from ..base import dtypes
from ..base.op import Op
from ..base.shapes import preserved_strides
from ..base.spec import Spec


class clone(Op):
    """A copy of `input` in memory of its own, that gradients flow through."""

    exact = True

    def meta(input, *, memory_format=None) -> Spec:
        return input.like(strides=format_strides(input, memory_format))

    def ref(xp, input, *, memory_format=None): return input
    def d_input(g): return g


class _to_copy(Op):
    """`input` with its elements converted to `dtype`."""

    exact = True
    node = "ToCopyBackward0"

    def meta(input, dtype, memory_format=None):
        return input.like(dtype=dtype, strides=format_strides(input, memory_format))

    def ref(xp, input, dtype, memory_format=None): return cast(xp, input, dtype)
    def d_input(g, input_spec): return g.to(input_spec.dtype)


class _copy(Op):
    """What `input` holds after `src` was copied into it."""

    exact = True
    node = "CopyBackwards"

    def meta(input, src): return input
    def ref(xp, input, src): return xp.broadcast_to(cast(xp, src, dtypes.from_numpy(input.dtype)), input.shape)
    def d_input(g): return g.new_zeros(g.shape)
    def d_src(g): return g


def format_strides(input, memory_format):
    """Strides of a copy of `input` under a memory format; None asks to preserve."""
    if memory_format is None or memory_format.name == "preserve_format":
        return preserved_strides(input.shape, input.strides)
    return memory_format.strides(input.shape)


def cast(xp, array, dtype):
    """Convert elements as C does: complex to real drops the imaginary part, floats wrap into integers, NaN is true."""
    if array.dtype == dtype.np:
        return array
    if array.dtype.kind == "c" and not dtype.is_complex:
        if dtype is dtypes.bool:
            return array != 0
        array = array.real
    if dtype.category == 1 and array.dtype.kind not in "biu":
        # C's float to narrow integer goes through a wide one, so that 300.0 becomes 44 in uint8
        return array.astype(np.int64 if array.dtype.kind == "f" else np.float32).astype(np.int64).astype(dtype.np)
    return array.astype(dtype.np)
