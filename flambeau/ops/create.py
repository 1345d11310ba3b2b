"""New tensors of one number or like another, and the instructions that make tensors from nothing.

Each public function says what it makes (`of`), after `options` has read the arguments that all of them share: dtype,
device, layout, pin_memory. The making itself is one recorded instruction (`_full`, `_arange`, …), so that nothing is
allocated before it is needed. With `out=`, the given tensor says dtype and device (`creates = True`).
"""

import numpy as np

from ..base import dtypes
from ..base.arguments import as_scalar, asked, fitting, like, number, options, shape_of, whole
from ..base.bounds import hull, number as number_pair
from ..base.errors import argument_error, need
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

    def bounds(fill_value): return number_pair(fill_value)

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

    def bounds(count, start, step):
        ends = number_pair(start), number_pair(start + max(count - 1, 0) * step)
        return hull(*ends)

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


LONG_TRIANGLE_ROW = 128        # elements of a row, in the mean, that are soon copied by themselves


class _triangle(Op):
    """Row and column numbers of one triangle of a `row` by `col` matrix, the rows in order."""

    exact = True

    def meta(row, col, offset, upper, dtype, device):
        return spec(dtype, (2, triangle_size(row, col, offset, upper)), None, device)

    def ref(xp, row, col, offset, upper, dtype, device):
        count, at = triangle_size(row, col, offset, upper), 0
        if count < row * LONG_TRIANGLE_ROW:
            # of each row what lies below, or what does not: xp's own function looks through all numbers twice
            below = xp.arange(col) < xp.arange(1 + offset - upper, 1 + offset - upper + row)[:, None]
            return xp.stack(xp.nonzero(~below if upper else below)) if row and col else xp.empty((2, 0))
        out, columns = xp.empty((2, count), xp.int64), xp.arange(col)
        for r, end in enumerate(below_diagonal(row, col, offset, upper).tolist()):
            part = columns[end:] if upper else columns[:end]
            out[0, at:at + len(part)], out[1, at:at + len(part)] = r, part
            at += len(part)
        return out


def below_diagonal(row, col, offset, upper):
    """How many elements of each row of a `row` by `col` matrix lie on or below the diagonal `offset` (below it)."""
    return np.clip(np.arange(row) + (1 + offset - upper), 0, col)


def triangle_size(row, col, offset, upper):
    """How many elements of a `row` by `col` matrix lie on or below (above) the diagonal `offset`."""
    more = 1 + offset - upper                     # than its number each row has below, if that is from 0 to `col`
    first = max(0, min(row, -more))
    full = max(first, min(row, col - more))
    below = (full - first) * more + (full - first) * (first + full - 1) // 2 + (row - full) * col
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
    if len(stride) != len(shape) or min(stride, default=0) < 0:
        need(len(stride) == len(shape), f"dimensionality of sizes ({len(shape)}) must match dimensionality of strides "
                                        f"({len(stride)})")
        need(False, f"Storage size calculation overflowed with sizes={list(shape)} and strides={list(stride)}: strides "
                    "must not be negative")
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
