"""CuPy as the array module of the reference executor: its functions where they mean what NumPy's do, ours elsewhere.

An operation's `ref` is written against NumPy's names (`xp`). CuPy has most of them. What it lacks, or does otherwise,
and a `ref` uses, stands here; a test walks all of them and finds the next one (tests/cuda/test_arrays.py).

Note [Folds over elements]: CuPy folds sums and products only, and adds at positions with atomic additions, whose order
is another one in every run. Here every fold goes by halves (neighbours first, then pairs of those), so that its order
follows from the shape alone. It reads the array once for each doubling; the library's kernels (library/scans.py,
library/rows.py) are what programs run.
"""
import contextlib
import functools

import numpy as np

from ...base import dtypes


class ArrayModule:
    """The functions of `module`, CuPy or what stands for it, with NumPy's meaning.

    `address` says where an array starts, and `raising` gives a context in which linear algebra raises.
    """

    errstate = staticmethod(np.errstate)              # nothing warns on a GPU

    def __init__(self, module, address, raising=contextlib.nullcontext):
        self._module, self._address = module, address
        self.linalg = LinearAlgebra(module, raising)
        for name in ("maximum", "minimum", "add", "multiply", "logaddexp"):
            setattr(self, name, PairwiseFold(self, getattr(module, name)))

    def __getattr__(self, name):
        found = getattr(self._module, name)
        setattr(self, name, found)                    # asked once
        return found

    def may_share_memory(self, a, b):
        """By addresses: CuPy's says that two looks at one memory have nothing in common if one came from outside."""
        if not a.size or not b.size:
            return False
        (start, end), (other_start, other_end) = self._bounds(a), self._bounds(b)
        return start < other_end and other_start < end

    def _bounds(self, array):
        """The first address of an array's memory, and the one behind its last."""
        start = self._address(array)
        reach = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
        return start + sum(r for r in reach if r < 0), start + sum(r for r in reach if r > 0) + array.itemsize

    def where(self, condition, x, y):
        """CuPy's takes no Python bool for a condition."""
        return self._module.where(self._module.asarray(condition), x, y)

    def logical_not(self, x):
        """Of complex numbers too, which CuPy leaves out here and in the others."""
        return x == 0 if x.dtype.kind == "c" else self._module.logical_not(x)

    def logical_and(self, x, y):
        return self._logical(self._module.logical_and, x, y)

    def logical_or(self, x, y):
        return self._logical(self._module.logical_or, x, y)

    def logical_xor(self, x, y):
        return self._logical(self._module.logical_xor, x, y)

    @staticmethod
    def _logical(function, x, y):
        return function(*(a != 0 if np.iscomplexobj(a) else a for a in (x, y)))

    def max(self, a, axis=None, out=None, keepdims=False, initial=None):
        return self._extreme(self._module.max, self._module.maximum, a, axis, keepdims, initial)

    def min(self, a, axis=None, out=None, keepdims=False, initial=None):
        return self._extreme(self._module.min, self._module.minimum, a, axis, keepdims, initial)

    def _extreme(self, reduce, pair, a, axis, keepdims, initial):
        if initial is None:
            return reduce(a, axis=axis, keepdims=keepdims)
        if a.size:
            return pair(reduce(a, axis=axis, keepdims=keepdims), initial)
        return self._module.full(np.empty(a.shape, np.bool_).any(axis=axis, keepdims=keepdims).shape, initial, a.dtype)

    def count_nonzero(self, a, axis=None, keepdims=False):
        return (a != 0).sum(axis=axis, keepdims=keepdims)

    def indices(self, dimensions, dtype=int, sparse=False):
        if not sparse:
            return self._module.indices(dimensions, dtype)
        return tuple(self._module.arange(n, dtype=dtype).reshape([-1 if d == e else 1 for e in range(len(dimensions))])
                     for d, n in enumerate(dimensions))

    def lexsort(self, keys):
        """By the last key first; each by a stable sort, so that keys may be of any dtype and any number."""
        order = self._module.arange(keys.shape[1])
        for key in keys:
            order = order[self._module.argsort(key[order], kind="stable")]
        return order

    def sort(self, a, axis=-1, kind=None):
        return self._module.sort(a, axis=axis) if _can_be_sorted(a) else a.copy()

    def argsort(self, a, axis=-1, kind=None):
        """Stable, as CuPy's are, whatever is asked for."""
        xp = self._module
        return xp.argsort(a, axis=axis, kind="stable") if _can_be_sorted(a) else xp.zeros(a.shape, np.int64)

    def partition(self, a, kth, axis=-1):
        return self.sort(a, axis)                     # as CuPy does it: a whole sort

    def argpartition(self, a, kth, axis=-1):
        return self.argsort(a, axis)

    def from_bits(self, bits, dtype):
        """The numbers that whole numbers are the bits of in bfloat16, or in a float8 dtype, in float32."""
        if dtype is dtypes.bfloat16:
            wide = self._module.ascontiguousarray(bits).astype(np.uint32) << np.uint32(16)
            return wide.view(np.float32).reshape(bits.shape)
        return self._module.asarray(decoded(dtype))[bits]

    def to_bits(self, x, dtype):
        """The bits of bfloat16, or of a float8 dtype, that float32 numbers are rounded to."""
        xp = self._module
        if dtype is dtypes.bfloat16:
            bits = xp.ascontiguousarray(x).view(np.uint32).reshape(x.shape)
            even = (bits + np.uint32(0x7fff) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
            return xp.where(x != x, (bits >> np.uint32(16)) & np.uint32(0x8000) | np.uint32(0x7fc0), even) \
                .astype(np.uint16)
        starts, bytes_ = encoded(dtype)
        bits = xp.ascontiguousarray(x).view(np.int32).astype(np.int64)
        at = xp.searchsorted(xp.asarray(starts), xp.where(bits < 0, -2**31 - bits - 1, bits), side="right") - 1
        return xp.asarray(bytes_)[at].reshape(x.shape)


def _can_be_sorted(a):
    """CuPy sorts no arrays without elements or dimensions."""
    return a.ndim > 0 and a.size > 0


class Checked:
    """The functions of a part of CuPy, such as linalg, which raise LinAlgError where NumPy's do.

    CuPy leaves that out unless it is asked (`raising` is a context in which it is), since to see an error is to wait.
    """

    def __init__(self, part, raising):
        self._part, self._raising = part, raising

    def __getattr__(self, name):
        found = getattr(self._part, name)
        if callable(found) and not isinstance(found, type):
            found = functools.partial(self._call, found)
        setattr(self, name, found)
        return found

    def _call(self, function, *args, **named):
        with self._raising():
            return function(*args, **named)


class LinearAlgebra(Checked):
    """The functions of CuPy's linalg; `solve` lets batches meet, as NumPy's does."""

    def __init__(self, module, raising):
        super().__init__(module.linalg, raising)
        self._module = module

    def solve(self, a, b):
        if b.ndim > 1:
            batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
            a, b = (self._module.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
        return self._call(self._part.solve, a, b)


class PairwiseFold:
    """An associative function of two arrays, with NumPy's methods; see Note [Folds over elements]."""

    def __init__(self, xp, function):
        self.xp, self.function = xp, function

    def __call__(self, *args, **named):
        return self.function(*args, **named)

    def accumulate(self, array, axis=0):
        """What comes of the elements up to each, along `axis`."""
        out, n, reach = self.xp.moveaxis(array, axis, 0).copy(), array.shape[axis], 1
        while reach < n:
            out[reach:] = self.function(out[:-reach], out[reach:]).copy()
            reach *= 2
        return self.xp.moveaxis(out, 0, axis)

    def reduce(self, array, axis=0, keepdims=False):
        """What comes of all elements along `axis`, which are some."""
        out = self.xp.moveaxis(array, axis, 0)
        while len(out) > 1:
            half = len(out) // 2
            rest = out[2 * half:]
            out = self.function(out[:2 * half:2], out[1:2 * half:2])
            out = self.xp.concatenate([out, rest]) if len(rest) else out
        out = self.xp.moveaxis(out, 0, axis)
        return out if keepdims else out.squeeze(axis)

    def at(self, array, where, values):
        """PairwiseFold `values` into the elements of `array` at positions `where`, of which some may be the same."""
        xp, where = self.xp, where if isinstance(where, tuple) else (where,)
        where = xp.broadcast_arrays(*where)
        values = xp.broadcast_to(values, where[0].shape + array.shape[len(where):])
        flat, rows = array.reshape(-1, *array.shape[len(where):]), 0
        for index, n in zip(where, array.shape, strict=False):
            rows = rows * n + xp.where(index < 0, index + n, index)
        rows = rows.reshape(-1)
        if not rows.size:
            return
        order = xp.argsort(rows)
        rows, values = rows[order], values.reshape(-1, *values.shape[len(where[0].shape):])[order]
        first, values = self._within(rows, values)
        at = rows[first]
        flat[at] = self.function(flat[at], values[first].astype(array.dtype, copy=False))
        if not xp.may_share_memory(flat, array):                   # reshape had to copy
            array[...] = flat.reshape(array.shape)

    def _within(self, rows, values):
        """(where in the sorted `rows` a new one begins, `values` with all of a row folded into its first)"""
        xp, reach, n = self.xp, 1, len(rows)
        first = xp.ones(n, np.bool_)
        first[1:] = rows[1:] != rows[:-1]
        wide = (-1, *[1] * (values.ndim - 1))
        values = values.copy()
        position = xp.arange(n) - self.xp.maximum.accumulate(xp.where(first, xp.arange(n), 0))   # of a value in its row
        longest = int(position.max()) + 1
        while reach < longest:
            same = ((rows[:-reach] == rows[reach:]) & (position[:-reach] % (2 * reach) == 0)).reshape(wide)
            values[:-reach] = xp.where(same, self.function(values[:-reach], values[reach:]), values[:-reach])
            reach *= 2
        return first, values


# --- 8-bit floats ----------------------------------------------------------------------------------------------------


@functools.cache
def decoded(dtype):
    """What the 256 bytes mean in a float8 dtype: float32 numbers."""
    return np.arange(256, dtype=np.uint8).view(dtype.np).astype(np.float32)


@functools.cache
def encoded(dtype):
    """(the ordered bits where steps begin, ascending; the byte of the float32 numbers from each of them on) of a float8
    dtype.

    To round is to go up steps, so their beginnings are all that there is to know. Between two numbers of the dtype
    there is one step, which is found by halving, in the order of float32's bits.
    """
    def byte(ordered):
        return dtypes.as_dtype(_ordered(ordered).astype(np.int32).view(np.float32), dtype).view(np.uint8)

    values = decoded(dtype)
    values = np.concatenate([values[np.isfinite(values)], np.array([0, np.inf], np.float32)])
    bits = np.concatenate([values, -values]).view(np.int32).astype(np.int64)
    anchors = np.unique(np.concatenate([_ordered(bits), [-2**31, 2**31 - 1]]))
    low, high, start = anchors[:-1], anchors[1:], byte(anchors[:-1])
    while (high - low > 1).any():
        middle = (low + high) // 2
        same = byte(middle) == start
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    starts = np.concatenate([anchors[:1], high[byte(high) != start]])
    return starts, byte(starts)


def _ordered(bits):
    """Whole numbers that sort as the floats do whose bits, as int32, these are; and back again."""
    return np.where(bits < 0, -2**31 - bits - 1, bits)
