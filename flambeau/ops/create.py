"""New tensors from sizes and numbers.

Each public function says what it makes (`of`), after `options` has read the arguments that all of them share: dtype,
device, layout, pin_memory. The making itself is one recorded instruction (`_full`, `_arange`, …), so that nothing is
allocated before it is needed. With `out=`, the given tensor says dtype and device (`creates = True`).
"""
import math

import numpy as np

from ..base import dtypes
from ..base.arguments import as_scalar, asked, fitting, like, number, options, shape_of, whole
from ..base.errors import argument_error, need, warn
from ..base.op import Composite, Op, door
from ..base.shapes import contiguous_strides, extent, is_dense
from ..base.spec import spec

# --- the instructions --------------------------------------------------


class _full(Op):
    """A tensor of `size` filled with `fill_value`."""

    scalars = ("fill_value",)
    exact = True

    def meta(size, fill_value, dtype, device, strides=None): return spec(dtype, size, strides, device)

    def ref(xp, size, fill_value, dtype, device, strides=None):
        if fill_value.__class__ is int and fill_value == 0:
            return xp.zeros(size, dtype.np)                # fresh pages are zero already: nothing is written
        return xp.full(size, as_scalar(fill_value, dtype), dtype.np)

    def body(k, size, fill_value, dtype, device, strides): return k.expand(fill_value, size)


class _empty(Op):
    """A tensor of `size` whose elements are whatever the memory holds."""

    exact = True

    def meta(size, dtype, device, strides=None): return spec(dtype, size, strides, device)
    def ref(xp, size, dtype, device, strides=None): return xp.empty(size, dtype.np)


class _arange(Op):
    """`count` numbers from `start` by `step`: computed in int64 or a wider float, rounded once."""

    scalars = ("start", "step")
    exact = True

    def meta(count, start, step, dtype, device): return spec(dtype, (count,), None, device)

    def ref(xp, count, start, step, dtype, device):
        if dtype.category == 1:
            return xp.arange(count) * int(step) + int(start)
        wide = WIDER_FLOATS.get(dtype, np.float32)
        made = computing(xp, wide).arange(count).astype(wide) * wide(step) + wide(start)
        return xp.asarray(made.astype(dtype.np))

    def body(k, count, start, step, dtype, device):
        at = k.index(0, (count,))
        if dtype.category == 1:
            return at * k.cast(step, dtypes.int64) + k.cast(start, dtypes.int64)
        if start.dtype is not dtypes.float64:
            return NotImplemented                              # rounded to the dtype, the step adds up to another row
        return k.fma_exact(k.cast(at, dtypes.float64), step, start)


class _linspace(Op):
    """`steps` numbers from `start` to `end`, counted from the nearer end so that both are met exactly."""

    scalars = ("start", "end")
    exact = True

    def meta(start, end, steps, dtype, device): return spec(dtype, (steps,), None, device)

    def ref(xp, start, end, steps, dtype, device):
        low, high = as_scalar(start, dtype), as_scalar(end, dtype)
        if steps == 1:
            return xp.full(1, low)
        real = np.float64 if dtype.category == 1 else dtype.np.type
        step = real((real(high) - real(low)) / real(steps - 1))
        wide = WIDER_FLOATS.get(dtype, real)               # the processor's fma rounds once
        here = computing(xp, wide)
        count = here.arange(steps)
        up = wide(low) + wide(step) * count.astype(wide)
        down = wide(high) - wide(step) * count[::-1].astype(wide)
        return xp.asarray(here.where(count < steps // 2, up, down).astype(dtype.np))

    def body(k, start, end, steps, dtype, device):
        low, high = k.cast(start, dtype), k.cast(end, dtype)
        if steps == 1 or dtype.itemsize == 2 and dtype.category == 2:
            return low if steps == 1 else NotImplemented       # halves are spaced in their own precision
        real = dtypes.float64 if dtype.category == 1 else dtype
        step = (k.cast(high, real) - k.cast(low, real)) / (steps - 1)
        low, high, step = (k.cast(x, dtypes.float64) for x in (low, high, step))
        at, count = k.index(0, (steps,)), k.cast(k.index(0, (steps,)), dtypes.float64)
        back = (steps - 1) - count
        if dtype.category == 1:                                # cut off, not rounded: every bit counts
            return k.where(at < steps // 2, low + step * count, high - step * back)
        return k.where(at < steps // 2, k.fma_exact(step, count, low), k.fma_exact(-step, back, high))


WIDER_FLOATS = {dtypes.float32: np.float64, dtypes.float64: np.longdouble}


def computing(xp, dtype):
    """The array module for `dtype`: NumPy's for floats wider than double, which no device has; else `xp`."""
    return np if dtype is np.longdouble else xp


class _logspace(Op):
    """`base` to the power of `steps` numbers from `start` to `end`."""

    scalars = ("start", "end", "base")
    exact = True

    def meta(start, end, steps, base, dtype, device): return spec(dtype, (steps,), None, device)

    def ref(xp, start, end, steps, base, dtype, device):
        base = complex(base) if dtype.is_complex else float(base)       # the ends are of the dtype, the power of double
        if steps == 1:
            return xp.full(1, base ** start)
        low, high = as_scalar(start, dtype), as_scalar(end, dtype)
        real = np.float32 if dtype.category == 1 else dtype.np.type
        step = real((real(high) - real(low)) / real(steps - 1))
        count = xp.arange(steps)
        wide = np.complex128 if dtype.is_complex else np.float64
        up = wide(low) + wide(step) * count
        down = wide(high) - wide(step) * count[::-1]
        return xp.power(base, xp.where(count < steps // 2, up, down))


class _eye(Op):
    """Ones on the diagonal of an `n` by `m` matrix of zeros."""

    exact = True

    def meta(n, m, dtype, device): return spec(dtype, (n, m), None, device)
    def ref(xp, n, m, dtype, device): return xp.eye(n, m, dtype=dtype.np)
    def body(k, n, m, dtype, device): return k.index(0, (n, m)) == k.index(1, (n, m))


class _triangle(Op):
    """Row and column numbers of one triangle of a `row` by `col` matrix, the rows in order."""

    exact = True

    def meta(row, col, offset, upper, dtype, device):
        return spec(dtype, (2, triangle_size(row, col, offset, upper)), None, device)

    def ref(xp, row, col, offset, upper, dtype, device):
        find = xp.triu_indices if upper else xp.tril_indices
        return xp.stack(find(row, offset, col)) if row and col else xp.empty((2, 0))


def triangle_size(row, col, offset, upper):
    """How many elements of a `row` by `col` matrix lie on or below (above) the diagonal `offset`."""
    below = sum(min(col, max(0, r + 1 + offset - upper)) for r in range(row))
    return row * col - below if upper else below


# --- filled with one number --------------------------------------------------


class zeros(Composite):
    """A tensor of the given size filled with zeros.

    >>> torch.zeros(2, 3)
    tensor([[0., 0., 0.],
            [0., 0., 0.]])
    """

    forms = "function out"
    lists = creates = True
    out_resize = ""

    def of(*sizes, size=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
        shape = shape_of(sizes, size)
        dtype, where = options(dtype, dtypes.get_default_dtype(), device, layout, pin_memory)
        return asked(_full(shape, 0, dtype, where), requires_grad)


class ones(Composite):
    """A tensor of the given size filled with ones."""

    forms = "function out"
    lists = creates = True
    out_resize = ""

    def of(*sizes, size=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
        shape = shape_of(sizes, size)
        dtype, where = options(dtype, dtypes.get_default_dtype(), device, layout, pin_memory)
        return asked(_full(shape, 1, dtype, where), requires_grad)


class full(Composite):
    """A tensor of the given size filled with `fill_value`; its dtype, unless given, is that of the number.

    >>> torch.full((2,), 7)
    tensor([7, 7])
    """

    forms = "function out"
    lists = creates = True
    out_resize = ""

    def of(size, fill_value, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
        if not isinstance(size, (tuple, list)):
            raise argument_error(f"argument 'size' (position 1) must be tuple of ints, not {type(size).__name__}")
        value = number(fill_value, "fill_value")
        dtype, where = options(dtype, dtypes.of_number(type(value)), device, layout, pin_memory)
        return asked(_full(shape_of((size,)), fitting(value, dtype), dtype, where), requires_grad)


class empty(Composite):
    """A tensor of the given size whose elements are whatever the memory held before."""

    forms = "function out"
    lists = creates = True
    out_resize = ""

    def of(*sizes, size=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False,
           memory_format=None):
        shape = shape_of(sizes, size)
        dtype, where = options(dtype, dtypes.get_default_dtype(), device, layout, pin_memory)
        strides = None if memory_format is None else memory_format.strides(shape)
        return asked(_empty(shape, dtype, where, strides), requires_grad)


class empty_strided(Composite):
    """An uninitialised tensor with the given size and strides."""

    forms = "function"
    by_specs = False          # but a look at memory of its own, which no tape has

    def of(size, stride, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
        dtype, where = options(dtype, dtypes.get_default_dtype(), device, layout, pin_memory)
        return asked(laid_out(shape_of((size,)), stride, dtype, where), requires_grad)


class empty_permuted(Composite):
    """An uninitialised tensor whose dimensions lie in memory in the order `physical_layout`, outermost first."""

    forms = "function"

    def of(size, physical_layout, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
        shape, order = shape_of((size,)), tuple(physical_layout)
        dtype, where = options(dtype, dtypes.get_default_dtype(), device, layout, pin_memory)
        need(len(order) == len(shape), "Number of dimensions in size does not match the length of the physical_layout; "
                                       f"i.e. len(size) = {len(shape)} is not equal to len(physical_layout) = "
                                       f"{len(order)}")
        for d in order:
            need(0 <= d < len(shape), f"Dimension out of range (expected to be between 0 and {len(shape) - 1}, but got "
                                      f"{d} at index {order.index(d)}). NB: negative dims not currently supported; "
                                      "file an issue if you want it.")
            need(order.count(d) == 1, f"Duplicate dim not allowed: dimension {d} appears twice in {order}")
        packed = contiguous_strides(tuple(shape[d] for d in order))
        strides = tuple(packed[order.index(d)] for d in range(len(shape)))
        return asked(_empty(shape, dtype, where, strides), requires_grad)


def laid_out(shape, stride, dtype, where):
    """An uninitialised tensor with any strides; its storage is as long as they reach."""
    stride = tuple([whole(s, "stride", 2) for s in stride])
    need(len(stride) == len(shape), f"dimensionality of sizes ({len(shape)}) must match dimensionality of strides "
                                    f"({len(stride)})")
    need(all(s >= 0 for s in stride), f"Storage size calculation overflowed with sizes={list(shape)} and "
         f"strides={list(stride)}: strides must not be negative")
    if is_dense(shape, stride) and 0 not in shape:
        return _empty(shape, dtype, where, stride)
    memory = _empty((extent(shape, stride),), dtype, where)
    made = door.wrap(memory._storage, spec(dtype, shape, stride, where))
    made._site = memory._site
    return made


# --- like another tensor --------------------------------------------------


class zeros_like(Composite):
    """Zeros of the shape and dtype of `input`."""

    forms = "function"

    def of(input, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, memory_format=None):
        spec = like(input, dtype, device, layout, memory_format, pin_memory)
        return asked(_full(spec.shape, 0, spec.dtype, spec.device, spec.strides), requires_grad)


class ones_like(Composite):
    """Ones of the shape and dtype of `input`."""

    forms = "function"

    def of(input, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, memory_format=None):
        spec = like(input, dtype, device, layout, memory_format, pin_memory)
        return asked(_full(spec.shape, 1, spec.dtype, spec.device, spec.strides), requires_grad)


class full_like(Composite):
    """`fill_value` in the shape and dtype of `input`."""

    forms = "function"

    def of(input, fill_value, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False,
           memory_format=None):
        spec = like(input, dtype, device, layout, memory_format, pin_memory)
        value = fitting(number(fill_value, "fill_value"), spec.dtype)
        return asked(_full(spec.shape, value, spec.dtype, spec.device, spec.strides), requires_grad)


class empty_like(Composite):
    """An uninitialised tensor of the shape and dtype of `input`."""

    forms = "function"

    def of(input, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, memory_format=None):
        spec = like(input, dtype, device, layout, memory_format, pin_memory)
        return asked(_empty(spec.shape, spec.dtype, spec.device, spec.strides), requires_grad)


def options_of(input, dtype, device, layout, pin_memory):
    """(dtype, device) of a new tensor beside `input`, which says what the caller does not."""
    return options(dtype, input._spec.dtype, input._spec.device if device is None else device, layout, pin_memory)


class _new_zeros(Composite):
    """Zeros of another size, in the dtype and on the device of this tensor.

    >>> torch.ones(2, dtype=torch.int64).new_zeros(3)
    tensor([0, 0, 0])
    """

    names = "Tensor.new_zeros"

    def of(input, *sizes, size=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
        shape = shape_of(sizes, size)
        dtype, where = options_of(input, dtype, device, layout, pin_memory)
        return asked(_full(shape, 0, dtype, where), requires_grad)


class _new_ones(Composite):
    """Ones of another size, in the dtype and on the device of this tensor.

    >>> torch.zeros(2, dtype=torch.int64).new_ones(3)
    tensor([1, 1, 1])
    """

    names = "Tensor.new_ones"

    def of(input, *sizes, size=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
        shape = shape_of(sizes, size)
        dtype, where = options_of(input, dtype, device, layout, pin_memory)
        return asked(_full(shape, 1, dtype, where), requires_grad)


class _new_empty(Composite):
    """An uninitialised tensor of another size, in the dtype and on the device of this tensor.

    >>> torch.ones(2).new_empty((3, 4)).shape
    torch.Size([3, 4])
    """

    names = "Tensor.new_empty"

    def of(input, *sizes, size=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
        shape = shape_of(sizes, size)
        dtype, where = options_of(input, dtype, device, layout, pin_memory)
        return asked(_empty(shape, dtype, where), requires_grad)


class _new_full(Composite):
    """`fill_value` in another size, in the dtype and on the device of this tensor.

    >>> torch.ones(2).new_full((3,), 7)
    tensor([7., 7., 7.])
    """

    names = "Tensor.new_full"

    def of(input, size, fill_value, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
        dtype, where = options_of(input, dtype, device, layout, pin_memory)
        value = fitting(number(fill_value, "fill_value"), dtype)
        return asked(_full(shape_of((size,)), value, dtype, where), requires_grad)


class _new_empty_strided(Composite):
    """An uninitialised tensor of another size and strides, in the dtype and on the device of this tensor.

    >>> torch.ones(2).new_empty_strided((2, 3), (1, 2)).stride()
    (1, 2)
    """

    names = "Tensor.new_empty_strided"
    by_specs = False          # the same

    def of(input, size, stride, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
        dtype, where = options_of(input, dtype, device, layout, pin_memory)
        return asked(laid_out(shape_of((size,)), stride, dtype, where), requires_grad)


class scalar_tensor(Composite):
    """The number `s` as a zero-dimensional tensor of the default dtype (or `dtype`)."""

    forms = "function"

    def of(s, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
        dtype, where = options(dtype, dtypes.get_default_dtype(), device, layout, pin_memory)
        s = number(s, "s")
        half = dtype.category == 2 and dtype.itemsize == 2
        fitting(s, dtypes.float64 if half else dtype)         # what a half type cannot hold becomes infinite here
        return asked(_full((), s, dtype, where), requires_grad)


# --- rows of numbers --------------------------------------------------


class arange(Composite):
    """The numbers from `start` up to, not including, `end`, by `step`; integers give int64, floats the default dtype.

    >>> torch.arange(1, 4)
    tensor([1, 2, 3])
    """

    forms = "function out"
    creates = True
    out_resize = "count warn"

    def of(*bounds, start=0, end=None, step=None, dtype=None, layout=None, device=None, pin_memory=False,
           requires_grad=False):
        if len(bounds) > 3:
            raise TypeError(f"takes 1 to 3 positional arguments (start, end, step), got {len(bounds)}")
        if len(bounds) == 1 and end is None:
            if step is not None:
                raise TypeError("received an invalid combination of arguments: with a step, give start and end both")
            end, = bounds
        else:
            start, end, step = (*bounds, *(start, end, step)[len(bounds):])
        step = 1 if step is None else step
        if end is None:
            raise TypeError("received an invalid combination of arguments: missing 1 required positional arguments: "
                            '"end"')
        start, end, step = number(start, "start"), number(end, "end"), number(step, "step")
        floating = any(isinstance(n, (float, complex)) for n in (start, end, step))
        fallback = dtypes.get_default_dtype() if floating else dtypes.int64
        dtype, where = options(dtype, fallback, device, layout, pin_memory)
        check_row(start, end, step, dtype, "arange")
        if dtype is dtypes.int64:
            start, end, step = int(start), int(end), int(step)
            count = max(0, -((start - end) // step))
        else:
            count = math.ceil((end - start) / step)
        return asked(_arange(count, start, step, dtype, where), requires_grad)


class range_(Composite):
    """The numbers from `start` to `end`, both included, by `step`. Deprecated in PyTorch: use `arange`."""

    forms = "function out"
    creates = True
    out_resize = "count"

    def of(start=0, end=None, step=1, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
        if end is None:
            raise TypeError('missing 1 required positional arguments: "end"')
        warn("torch.range is deprecated and will be removed in a future release because its behavior is "
             "inconsistent with Python's range builtin. Instead, use torch.arange, which produces values in "
             "[start, end).")
        start, end, step = number(start, "start"), number(end, "end"), number(step, "step")
        dtype, where = options(dtype, dtypes.get_default_dtype(), device, layout, pin_memory)
        check_row(start, end, step, dtype, "range")
        return asked(_arange(math.floor((end - start) / step) + 1, start, step, dtype, where), requires_grad)


def check_row(start, end, step, dtype, what):
    """Refuse a row of numbers that has no end or no dtype to count in."""
    need(dtype.category in (1, 2), f"\"{what}_cpu\" not implemented for '{dtype.cname}'", NotImplementedError)
    for n in (start, end, step):
        need(not isinstance(n, complex), f"value cannot be converted to type double without overflow: {n!r} is "
                                         "complex, and a row of numbers is real")
    need(step != 0, "step must be nonzero")
    need(dtype.category == 2 or int(step) != 0, f"step must be nonzero: {step} is 0 in {dtype.name}", ValueError)
    need(math.isfinite(start) and math.isfinite(end), f"unsupported range: {start} -> {end}")
    need(end >= start if step > 0 else end <= start, "upper bound and lower bound inconsistent with step sign: from "
                                                     f"{start} to {end} by {step}")
    if dtype.category == 1:
        for n in (start, end, step):
            fitting(n, dtypes.int64)


class linspace(Composite):
    """`steps` evenly spaced numbers from `start` to `end`, both included.

    >>> torch.linspace(0, 1, 5)
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """

    forms = "function out"
    creates = True
    out_resize = "count"

    def of(start, end, steps, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
        start, end, steps, dtype, where = spaced(start, end, steps, dtype, layout, device, pin_memory, "linspace")
        return asked(_linspace(start, end, steps, dtype, where), requires_grad)


class logspace(Composite):
    """`base` raised to `steps` evenly spaced exponents from `start` to `end`, both included.

    >>> torch.logspace(0, 2, 3)
    tensor([  1.,  10., 100.])
    """

    forms = "function out"
    creates = True
    out_resize = "count"

    def of(start, end, steps, base=10.0, *, dtype=None, layout=None, device=None, pin_memory=False,
           requires_grad=False):
        start, end, steps, dtype, where = spaced(start, end, steps, dtype, layout, device, pin_memory, "logspace")
        return asked(_logspace(start, end, steps, number(base, "base"), dtype, where), requires_grad)


def spaced(start, end, steps, dtype, layout, device, pin_memory, what):
    """The arguments of `linspace` and `logspace`, read and checked."""
    ends = []
    for name, given in (("start", start), ("end", end)):
        if isinstance(given, door.tensor):
            need(given._spec.ndim == 0, f"{what} only supports 0-dimensional start and end tensors, but got {name} "
                                        f"with {given._spec.ndim} dimension(s).")
        ends.append(number(given, name))
    start, end = ends
    steps = whole(steps, "steps", 3)
    need(steps >= 0, f"number of steps must be non-negative, got {steps}")
    fallback = dtypes.get_default_dtype()
    if isinstance(start, complex) or isinstance(end, complex):
        fallback = fallback.to_complex()
        need(dtype is None or dtypes.given(dtype).is_complex, f"{what}(): inferred dtype {fallback!r} can't be safely "
                                                              f"cast to passed dtype {dtype!r}")
    dtype, where = options(dtype, fallback, device, layout, pin_memory)
    need(dtype is not dtypes.bool, f"\"{what}_cpu\" not implemented for 'Bool'", NotImplementedError)
    return fitting(start, dtype), fitting(end, dtype), steps, dtype, where


# --- matrices --------------------------------------------------


class eye(Composite):
    """The identity matrix with `n` rows and `m` columns (`n`, if not given).

    >>> torch.eye(2)
    tensor([[1., 0.],
            [0., 1.]])
    """

    forms = "function out"
    creates = True
    out_resize = ""

    def of(n, m=None, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
        n = whole(n, "n")
        m = n if m is None else whole(m, "m", 2)
        need(n >= 0, f"n must be greater or equal to 0, got {n}")
        need(m >= 0, f"m must be greater or equal to 0, got {m}")
        dtype, where = options(dtype, dtypes.get_default_dtype(), device, layout, pin_memory)
        return asked(_eye(n, m, dtype, where), requires_grad)


class tril_indices(Composite):
    """Row and column numbers of the lower triangle of a `row` by `col` matrix.

    >>> torch.tril_indices(2, 2)
    tensor([[0, 1, 1],
            [0, 0, 1]])
    """

    forms = "function"

    def of(row, col, offset=0, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
        return triangle(row, col, offset, False, dtype, layout, device, pin_memory)


class triu_indices(Composite):
    """Row and column numbers of the upper triangle of a `row` by `col` matrix."""

    forms = "function"

    def of(row, col, offset=0, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
        return triangle(row, col, offset, True, dtype, layout, device, pin_memory)


def triangle(row, col, offset, upper, dtype, layout, device, pin_memory):
    row, col, offset = whole(row, "row"), whole(col, "col", 2), whole(offset, "offset", 3)
    need(row >= 0, f"row must be non-negative, got {row}")
    need(col >= 0, f"col must be non-negative, got {col}")
    dtype, where = options(dtype, dtypes.int64, device, layout, pin_memory)
    need(dtype in (dtypes.int32, dtypes.int64), f"\"{'triu' if upper else 'tril'}_indices\" not implemented for "
                                                f"'{dtype.cname}'", NotImplementedError)
    return _triangle(row, col, offset, upper, dtype, where)


class vander(Composite):
    """The matrix whose columns are falling (or, with `increasing`, rising) powers of the vector `x`.

    >>> torch.vander(torch.tensor([1, 2, 3]), increasing=True)
    tensor([[1, 1, 1],
            [1, 2, 4],
            [1, 3, 9]])
    """

    forms = "function"

    def of(x, N=None, increasing=False):
        need(x.ndim == 1, f"x must be a one-dimensional tensor, got shape {list(x.shape)}")
        N = x._spec.numel if N is None else N
        need(N >= 0, f"N must be non-negative, got {N}")
        if not x.is_floating_point() and not x.is_complex():
            x = x.to(dtypes.int64)
        if N == 0:
            return x.new_empty((x._spec.numel, 0))
        powers = x.new_ones((x._spec.numel, N))
        if N > 1:
            powers[:, 1:] = x.unsqueeze(1)
            powers[:, 1:] = powers[:, 1:].cumprod(1)
        return powers if increasing else powers.flip(1)


# --- random numbers in the place of a tensor --------------------------------------------------


class _drawn(Op):
    """The random numbers `drawn` in the place of `input`. They do not depend on it, so its gradient is zero."""

    exact = True
    node = "RandomBackward0"

    def meta(input, drawn): return drawn
    def ref(xp, input, drawn): return drawn
    def d_input(g, input_spec): return g.new_zeros(input_spec.shape)
    def body(k, input, drawn): return drawn


class _uniform(_drawn):      node = "UniformBackward0"
class _normal(_drawn):       node = "NormalBackward0"
class _normal_mean(_drawn):  node = "NormalBackward1"
class _normal_std(_drawn):   node = "NormalBackward2"
class _random(_drawn):       node = "RandomBackward2"
class _bernoulli(_drawn):    node = "BernoulliBackward0"
class _bernoulli_at(_drawn): node = "BernoulliBackward1"
class _bernoulli_p(_drawn):  node = "BernoulliBackward2"
class _exponential(_drawn):  node = "ExponentialBackward0"
class _geometric(_drawn):    node = "GeometricBackward0"
class _cauchy(_drawn):       node = "CauchyBackward0"
class _log_normal(_drawn):   node = "LogNormalBackward0"
class _poisson(_drawn):      node = "PoissonBackward0"


class _normal_both(Op):
    """The random numbers `drawn` in the place of `mean` and `std`, as `_drawn` is for one tensor."""

    exact = True
    node = "NormalBackward3"

    def meta(mean, std, drawn): return drawn
    def ref(xp, mean, std, drawn): return drawn
    def d_mean(g, mean_spec): return g.new_zeros(mean_spec.shape)
    def d_std(g, std_spec): return g.new_zeros(std_spec.shape)
    def body(k, mean, std, drawn): return drawn
