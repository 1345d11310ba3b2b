"""Parts of a tensor as views: one position, a range, a diagonal, windows."""
import math
from operator import index as as_int

from ..base import shapes
from ..base.errors import need
from ..base.op import Composite, Op, View, door


class select(View):
    """The part of `input` at `index` of dimension `dim`, without that dimension."""

    def view(input, dim, index):
        need(input.ndim, "select() cannot be applied to a 0-dim tensor.", IndexError)
        d = shapes.wrap_dim(dim, input.ndim)
        size = input.shape[d]
        need(-size <= index < size, f"select(): index {index} out of range for tensor of size {list(input.shape)} at "
                                    f"dimension {d}", IndexError)
        at = index + size if index < 0 else index
        return without(input.shape, d), without(input.strides, d), at * input.strides[d]

    def d_input(g, input_spec, dim, index): return _select_backward(g, input_spec.shape, dim, index)


def without(entries, d):
    """All but the `d`-th of `entries`."""
    return (*entries[:d], *entries[d + 1:])


class _select_backward(Op):
    """Zeros of `size` with `input` at `index` of dimension `dim`."""

    exact = True
    node = "SelectBackwardBackward0"

    def meta(input, size, dim, index):  return input.like(shape=size)
    def d_input(g, dim, index):         return select(g, dim, index)

    def ref(xp, input, size, dim, index):
        out = xp.zeros(size, input.dtype)
        out[(slice(None),) * (dim % len(size)) + (index,)] = input
        return out

    def body(k, input, size, dim, index): return at_select(k, input, size, dim, index, 0)


def at_select(k, part, size, dim, index, rest):
    """For a body: `part` at `index` of dimension `dim`, and `rest` in the other places of `size`."""
    d = dim % len(size)
    part = k.reshape(part, (*size[:d], 1, *size[d + 1:]))
    return k.where(k.index(d, size) == index % size[d], part, rest)


class _slice(View):
    """Every `step`-th element of dimension `dim` from `start` up to `end`, clamped to what is there."""

    def view(input, dim, start, end, step):
        need(input.ndim, "slice() cannot be applied to a 0-dim tensor.")
        d = shapes.wrap_dim(dim, input.ndim)
        need(step > 0, f"slice step must be positive, got {step}", ValueError)
        low, high = clamped(input.shape[d], start, end)
        size, strides = list(input.shape), list(input.strides)
        size[d] = (high - low + step - 1) // step
        strides[d] *= step
        return size, strides, low * input.strides[d]

    def d_input(g, input_spec, dim, start, end, step):
        return _slice_backward(g, input_spec.shape, dim, start, end, step)


def clamped(size, start, end):
    """`start` and `end` of a slice (None: all) as 0 <= start <= end <= size."""
    start, end = 0 if start is None else start, size if end is None else end
    low = min(max(start + size if start < 0 else start, 0), size)
    return low, min(max(end + size if end < 0 else end, low), size)


class _slice_backward(Op):
    """Zeros of `size` with `input` in the places of that slice."""

    exact = True
    node = "SliceBackwardBackward0"

    def meta(input, size, dim, start, end, step):  return input.like(shape=size)
    def d_input(g, dim, start, end, step):         return _slice(g, dim, start, end, step)

    def ref(xp, input, size, dim, start, end, step):
        out, d = xp.zeros(size, input.dtype), dim % len(size)
        low, high = clamped(size[d], start, end)
        out[(slice(None),) * d + (slice(low, high, step),)] = input
        return out

    def body(k, input, size, dim, start, end, step): return at_slice(k, input, size, dim, start, end, step, 0)


def at_slice(k, part, size, dim, start, end, step, rest):
    """For a body: `part` in the places of a slice of dimension `dim`, and `rest` in the others of `size`."""
    d = dim % len(size)
    low, high = clamped(size[d], start, end)
    at = k.index(d, size) - low
    inside = (at >= 0) & (at < high - low)
    nth = k.where(inside, at, 0)
    if step != 1:
        inside = inside & (k.irem(nth, step) == 0)
        nth = k.idiv(nth, step)
    return k.where(inside, k.gather(part, d, nth), rest)


class narrow(Composite):
    """`length` elements of dimension `dim`, from `start` on."""

    def of(input, dim, start, length):
        shape = input._spec.shape
        need(shape, "narrow() cannot be applied to a 0-dim tensor.")
        if length < 0:
            need(False, f"narrow(): length must be non-negative. Got {length}.")
        if isinstance(start, door.tensor):
            need(start.ndim == 0 and start.dtype.category == 1, "start must be an 0-dim integral Tensor.")
        d, start = shapes.wrap_dim(dim, len(shape)), as_int(start)
        size = shape[d]
        if not -size <= start <= size:
            need(False, f"start out of range (expected to be in range of [{-size}, {size}], but got {start})",
                 IndexError)
        start = start + size if start < 0 else start
        if start + length > size:
            need(False, f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
        return _slice(input, d, start, start + as_int(length), 1)


class diagonal(View):
    """The diagonal `offset` above the main one of dimensions `dim1` and `dim2`, as the last dimension."""

    def view(input, offset=0, dim1=0, dim2=1):
        a, b = shapes.wrap_dim(dim1, input.ndim), shapes.wrap_dim(dim2, input.ndim)
        need(a != b, f"diagonal dimensions cannot be identical {dim1}, {dim2}")
        rows, columns = input.shape[a], input.shape[b]
        n = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
        start = 0 if not n else offset * input.strides[b] if offset >= 0 else -offset * input.strides[a]
        rest = [d for d in range(input.ndim) if d not in (a, b)]
        return ([*[input.shape[d] for d in rest], n],
                [*[input.strides[d] for d in rest], input.strides[a] + input.strides[b]], start)

    def d_input(g, input_spec, offset, dim1, dim2):
        return _diagonal_backward(g, input_spec.shape, offset, dim1, dim2)


class _diagonal_backward(Op):
    """Zeros of `size` with `input` on that diagonal."""

    exact = True
    node = "DiagonalBackwardBackward0"

    def meta(input, size, offset, dim1, dim2):  return input.like(shape=size)
    def d_input(g, offset, dim1, dim2):         return diagonal(g, offset, dim1, dim2)

    def ref(xp, input, size, offset, dim1, dim2):
        out = xp.zeros(size, input.dtype)
        write_diagonal(xp, out, input, offset, dim1, dim2)
        return out

    def body(k, input, size, offset, dim1, dim2): return at_diagonal(k, input, size, offset, dim1, dim2, 0)


def at_diagonal(k, part, size, offset, dim1, dim2, rest):
    """For a body: `part` on a diagonal, and `rest` in the other places of `size`."""
    a, b, last = dim1 % len(size), dim2 % len(size), part.ndim - 1
    row, column = k.index(a, size), k.index(b, size)
    nth = k.index(last, (*part.shape[:-1], size[a])) - max(-offset, 0)         # which element stands in each row
    part = k.gather(part, last, k.where((nth >= 0) & (nth < part.shape[-1]), nth, 0))
    back = iter(range(last))
    order = [last if d == a else last + 1 if d == b else next(back) for d in range(len(size))]
    part = k.permute(k.reshape(part, (*part.shape, 1)), order)
    return k.where(column - row == offset, part, rest)


def write_diagonal(xp, out, input, offset, dim1, dim2):
    """Write `input` on a diagonal of `out`."""
    n = input.shape[-1]
    rows, columns = xp.arange(n) + max(-offset, 0), xp.arange(n) + max(offset, 0)
    xp.moveaxis(out, (dim1, dim2), (-2, -1))[..., rows, columns] = input


class unfold(View):
    """All windows of `size` elements of `dimension`, `step` apart; the window's own dimension comes last.

    >>> torch.arange(5).unfold(0, 3, 1)
    tensor([[0, 1, 2],
            [1, 2, 3],
            [2, 3, 4]])
    """

    forms = "method"

    def view(input, dimension, size, step):
        d = shapes.wrap_dim(dimension, input.ndim)
        have, stride = (input.shape[d], input.strides[d]) if input.ndim else (1, 1)
        need(size >= 0, f"size is {size} but must be >= 0")
        need(size <= have, f"maximum size for tensor at dimension {d} is {have} but size is {size}")
        need(step > 0, f"step is {step} but must be > 0")
        if not input.ndim:
            return (size,), (1,), 0
        shape, strides = list(input.shape), list(input.strides)
        shape[d], strides[d] = (have - size) // step + 1, step * stride
        return (*shape, size), (*strides, stride), 0

    def d_input(g, input_spec, dimension, size, step):
        return _unfold_backward(g, input_spec.shape, dimension, size, step)


class _unfold_backward(Op):
    """Zeros of `size` with every window of `input` added where it was taken from."""

    node = "UnfoldBackwardBackward0"

    def meta(input, size, dimension, window, step):  return input.like(shape=size)
    def d_input(g, dimension, window, step):         return unfold(g, dimension, window, step)

    def ref(xp, input, size, dimension, window, step):
        out = xp.zeros(size, input.dtype)
        if not size:
            return out + input.sum()
        d = dimension % len(size)
        for k in range(window):
            out[(slice(None),) * d + (slice(k, k + step * (input.shape[d] - 1) + 1, step),)] += input[..., k]
        return out

    def body(k, input, size, dimension, window, step):
        if not size:
            return NotImplemented
        d = dimension % len(size)
        lead, n, rest = math.prod(size[:d]), size[d], math.prod(size[d + 1:])
        count = input.shape[d]
        shape = lead, n, rest, -(-window // step)              # every `step`-th place of a window can reach an element
        place, nth = k.index(1, shape), k.index(3, shape)
        number = k.idiv(place, step) - nth
        place = place - number * step
        at = (number * rest + k.index(2, shape)) * window + place
        inside = (place < window) & (number >= 0) & (number < count)
        made = k.sum(taken(k, k.reshape(input, (lead, count * rest * window)), shape, at, inside), (3,), keepdim=False)
        return k.reshape(made, size)


def taken(k, x, shape, at, inside):
    """In a body: for a `shape` [planes, …], the elements of `x` [planes, count] at `at`, or 0 where it is not
    `inside`."""
    x = k.expand(k.reshape(x, (x.shape[0], *[1] * (len(shape) - 2), x.shape[1])), (*shape[:-1], x.shape[1]))
    if inside is None:
        return k.gather(x, len(shape) - 1, at)
    return k.where(inside, k.gather(x, len(shape) - 1, k.where(inside, at, 0)), 0)
