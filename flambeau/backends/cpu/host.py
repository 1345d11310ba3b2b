"""The memory of the CPU as NumPy's arrays show it: addresses, looks at bytes, and what is lent to the outside.

The layers above hold arrays and hand them on. Where memory itself is meant, so that an array of another device would
not do, they come here; a test holds that no other module above this folder reads an address or lays out a buffer.
"""
import ctypes

import numpy as np

from .memory.address import address  # noqa: F401 - for others, with the rest of what is asked about memory


def laid_out(memory, shape, dtype, strides, offset=0):
    """`memory`, anything with a buffer, as an array of that shape; strides and the offset of its start are in bytes."""
    return np.ndarray(shape, dtype, memory, offset, strides)


def array_over(buffer, dtype=np.uint8, count=-1, offset=0):
    """A one-dimensional array over an object with the buffer protocol, `offset` bytes in; read-only if that is."""
    return np.frombuffer(buffer, dtype, count, offset)


def as_dtype(array, dtype):
    """`array`, whose elements may have come as bits from a device that does not know their dtype, as that."""
    return array.view(dtype) if array.dtype.kind == "u" and dtype.isbuiltin == 2 else array


def span(array):
    """The one-dimensional array from the first element of `array` to its last, gaps included; no step is negative."""
    reach = 1 + sum((n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)) // array.itemsize
    return np.lib.stride_tricks.as_strided(array, (reach if array.size else 0,), (array.itemsize,),
                                           writeable=array.flags.writeable)


def windows(flat, shape, strides):
    """Every look of that shape into the one-dimensional array `flat`, by where it starts; strides are in bytes."""
    reach = sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) // flat.itemsize
    return np.lib.stride_tricks.as_strided(flat, (flat.size - reach, *shape), (flat.itemsize, *strides))


def overlap(one, other, work):
    """Whether two arrays have a cell in common; said to be so, too, where `work` steps do not tell."""
    try:
        return np.shares_memory(one, other, max_work=work)
    except np.exceptions.TooHardError:
        return True


def is_writeable(array):
    """Whether the memory of `array` may be written to."""
    return array.flags.writeable


def lent(memory):
    """An object for outside arrays to stand on, over an array of bytes: when it is gone, so are they."""
    return (ctypes.c_char * memory.size).from_buffer(memory)


def load_library(path):
    """Load a compiled library into the process."""
    ctypes.CDLL(path)
