"""The largest and the smallest element, over all or along some dimensions, and where it stands."""
import numpy as np

from ..base import dtypes, shapes
from ..base.bounds import positions
from ..base.errors import need
from ..base.op import Composite, Op, door
from ..base.spec import spec
from .index import picked_along, scattered, sizes_around
from .reduce import axes, lift, nonempty, not_for, only, ordered, reduced

# --- one element out of each row: how extremes and ranks pass gradients ---------------------------------------------


class _put_along(Op):
    """Zeros of `size` with `input` added in at `index` along `dim`. The index comes from us and is in range."""

    exact = True

    def meta(input, index, dim, size, several=False):
        return spec(input.dtype, tuple(size), None, input.device)

    def ref(xp, input, index, dim, size, several=False):
        out = xp.zeros(size, input.dtype)
        if several:
            at = list(xp.indices(index.shape, sparse=True))
            at[dim] = index
            xp.add.at(out, tuple(at), input)
        else:
            xp.put_along_axis(out, index, input, dim)
        return out

    def d_input(g, index, dim): return _take_along(g, index, dim)

    def body(k, input, index, dim, size, several=False):
        in_rows = dim % len(size) == len(size) - 1 and tuple(index.shape[:-1]) == tuple(size[:-1])
        if several and in_rows and tuple(index.shape) == tuple(input.shape):
            made = k.library("drop", (input, index), [(input.dtype, size)], (size[dim],))
            return NotImplemented if made is None else made[0]
        if not several and index.shape[dim] == 1:
            return k.where(k.index(dim, size) == index, input, 0)
        d = dim % len(size)
        if index.shape != input.shape or (*index.shape[:d], *index.shape[d + 1:]) != (*size[:d], *size[d + 1:]):
            return NotImplemented
        sizes = sizes_around(size, d)
        rows = sizes[0], index.shape[d], sizes[2]
        return scattered(k, "sum" if several else "set", k.reshape(input, rows), k.reshape(index, rows), sizes, size)


class _take_along(Op):
    """The elements of `input` at `index` along `dim`. The index comes from us and is in range."""

    exact = True

    def meta(input, index, dim): return spec(input.dtype, index.shape, None, input.device)
    def ref(xp, input, index, dim): return xp.take_along_axis(input, index, dim)
    def d_input(g, index, dim, input_spec): return _put_along(g, index, dim, input_spec.shape, True)
    def body(k, input, index, dim): return picked_along(k, input, dim, index)


def selected(g, index, input, dim, keepdim):
    """The gradient of elements that were taken out of `input` at `index`, one position for each row or more."""
    if not input.ndim:
        return g
    dim = shapes.wrap_dim(dim, input.ndim)
    if not keepdim:
        g, index = g.unsqueeze(dim), index.unsqueeze(dim)
    return _put_along(g, index, dim, input.shape)


def picked(xp, input, at, axis, keepdim):
    """(values, indices) of one element for each row; `at` has kept its axis."""
    values = xp.take_along_axis(input, at, axis)
    return (values, at) if keepdim else (values.squeeze(axis), at.squeeze(axis))


def shared(g, mask, dim=None, keepdim=True):
    """`g` split evenly among the positions of `mask` along `dim`."""
    return g / mask.sum(dim, keepdim) * mask


# --- extremes -------------------------------------------------------------------------------------------------------


class amax(Op):
    """The largest element over `dim`; equal ones share the gradient evenly."""

    forms = "function method out"
    strict_out = True

    def meta(input, dim=(), keepdim=False):
        nonempty(input, dim, "amax")
        not_for(input.dtype, "complex", "max_values_cpu")
        return reduced(input, dim, keepdim)

    def ref(xp, input, dim=(), keepdim=False): return xp.max(input, axis=axes(dim, input.ndim), keepdims=keepdim)
    def d_input(g, input, out, dim, keepdim):  return to_extremes(g, input, out, dim, keepdim)
    def bounds(input): return input
    def body(k, input, dim=(), keepdim=False): return k.max(ordered(k, input), axes(dim, input.ndim))


class amin(Op):
    """The smallest element over `dim`; equal ones share the gradient evenly."""

    forms = "function method out"
    strict_out = True

    def meta(input, dim=(), keepdim=False):
        nonempty(input, dim, "amin")
        not_for(input.dtype, "complex", "min_values_cpu")
        return reduced(input, dim, keepdim)

    def ref(xp, input, dim=(), keepdim=False): return xp.min(input, axis=axes(dim, input.ndim), keepdims=keepdim)
    def d_input(g, input, out, dim, keepdim):  return to_extremes(g, input, out, dim, keepdim)
    def bounds(input): return input
    def body(k, input, dim=(), keepdim=False): return k.min(ordered(k, input), axes(dim, input.ndim))


def to_extremes(g, input, out, dim, keepdim):
    """`g` split evenly among the elements of `input` that equal `out`."""
    spec = input._spec
    return shared(lift(g, spec, dim, keepdim), input == lift(out, spec, dim, keepdim), dim)


class aminmax(Op):
    """The smallest and the largest element, of all or along `dim`."""

    forms = "function method out"
    returns = "aminmax min max"
    strict_out = True

    def meta(input, *, dim=None, keepdim=False):
        not_for(input.dtype, "complex", "aminmax_cpu")
        if dim is None:
            need(input.numel, "aminmax(): cannot compute aminmax over an empty dimension as the operation has no "
                 "identity.")
        else:
            nonempty(input, only(dim), "aminmax")
        out = reduced(input, dim, keepdim)
        return out, out

    def ref(xp, input, *, dim=None, keepdim=False):
        over = axes(dim, input.ndim)
        return xp.min(input, axis=over, keepdims=keepdim), xp.max(input, axis=over, keepdims=keepdim)

    def d_input(g, input, out, dim, keepdim):
        low, high = (None if part is None else to_extremes(part, input, end, dim, keepdim)
                     for part, end in zip(g, out, strict=True))
        return high if low is None else low if high is None else low + high

    def body(k, input, *, dim=None, keepdim=False):
        x, over = ordered(k, input), axes(dim, input.ndim)
        return k.min(x, over), k.max(x, over)


class max_(Composite):
    """The largest element; with `dim` (values, indices) along it; with `other` the larger ones, elementwise.

    >>> torch.tensor([[1, 5], [7, 2]]).max(1)
    torch.return_types.max(
    values=tensor([5, 7]),
    indices=tensor([1, 0]))
    """

    forms = "function method out"
    returns = "max values indices"
    strict_out = "several"
    no_overlap = True

    def of(input, dim=None, keepdim=False, *, other=None):
        return extreme(input, dim, keepdim, other, (_max, _max_dim, "maximum"))


class min_(Composite):
    """The smallest element; with `dim` (values, indices) along it; with `other` the smaller ones, elementwise."""

    forms = "function method out"
    returns = "min values indices"
    strict_out = "several"
    no_overlap = True

    def of(input, dim=None, keepdim=False, *, other=None):
        return extreme(input, dim, keepdim, other, (_min, _min_dim, "minimum"))


def extreme(input, dim, keepdim, other, forms):
    """One of the three forms of `max` and `min`, by what was given."""
    whole, along, pairwise = forms
    need(isinstance(input, door.tensor), f"argument 'input' must be Tensor, not {type(input).__name__}", TypeError)
    other = dim if isinstance(dim, door.tensor) else other
    if other is not None:
        return getattr(input, pairwise)(other)
    if dim is None:
        need(not keepdim, "keepdim was given without dim", TypeError)
        return whole(input)
    return along(input, only(dim), keepdim)


class _max(Op):
    """The largest of all elements."""

    node = "MaxBackward1"

    def meta(input):
        not_for(input.dtype, "complex", "max_all")
        nonempty(input, None, "max")
        return reduced(input, None, False)

    def ref(xp, input):          return xp.max(input)
    def d_input(g, input, out):  return to_equals(g, input, out)
    def bounds(input): return input
    def body(k, input):          return k.max(ordered(k, input), axes(None, input.ndim))


class _min(Op):
    """The smallest of all elements."""

    node = "MinBackward1"

    def meta(input):
        not_for(input.dtype, "complex", "min_all")
        nonempty(input, None, "min")
        return reduced(input, None, False)

    def ref(xp, input):          return xp.min(input)
    def d_input(g, input, out):  return to_equals(g, input, out)
    def bounds(input): return input
    def body(k, input):          return k.min(ordered(k, input), axes(None, input.ndim))


def to_equals(g, input, out):
    """`g` split evenly among the elements that equal the one result; NaN among the NaN."""
    return shared(g, (input == out) | (input.isnan() & out.isnan()), None, False)


class _max_dim(Op):
    """The largest element along `dim`, and where it first is."""

    called = "max"
    node = "MaxBackward0"
    returns = "max values indices"

    def meta(input, dim, keepdim=False):
        need(not input.dtype.is_complex, "max(): does not support complex input")
        nonempty(input, dim, "max")
        return reduced(input, dim, keepdim), reduced(input, dim, keepdim, dtypes.int64)

    def ref(xp, input, dim, keepdim=False):
        if not input.ndim:
            return input, xp.zeros((), np.int64)
        return picked(xp, input, xp.argmax(input, axis=dim, keepdims=True), dim, keepdim)

    def d_input(g, out1, input_spec, dim, keepdim): return selected(g[0], out1, input_spec, dim, keepdim)
    def bounds(input, input_spec, dim): return [input, positions(input_spec, dim)]

    def body(k, input, dim, keepdim=False):
        if not input.ndim:
            return input, k.const(0, dtypes.int64)
        x = ordered(k, input)
        return k.max(x, dim), k.argmax(x, dim)


class _min_dim(Op):
    """The smallest element along `dim`, and where it first is."""

    called = "min"
    node = "MinBackward0"
    returns = "min values indices"

    def meta(input, dim, keepdim=False):
        need(not input.dtype.is_complex, "min(): does not support complex input")
        nonempty(input, dim, "min")
        return reduced(input, dim, keepdim), reduced(input, dim, keepdim, dtypes.int64)

    def ref(xp, input, dim, keepdim=False):
        if not input.ndim:
            return input, xp.zeros((), np.int64)
        return picked(xp, input, xp.argmin(input, axis=dim, keepdims=True), dim, keepdim)

    def d_input(g, out1, input_spec, dim, keepdim): return selected(g[0], out1, input_spec, dim, keepdim)
    def bounds(input, input_spec, dim): return [input, positions(input_spec, dim)]

    def body(k, input, dim, keepdim=False):
        if not input.ndim:
            return input, k.const(0, dtypes.int64)
        x = ordered(k, input)
        return k.min(x, dim), k.argmin(x, dim)


class argmax(Op):
    """Where the largest element is, along `dim` or (without one) counted through all elements."""

    forms = "function method out"
    strict_out = True

    def meta(input, dim=None, keepdim=False):          return argmax_spec(input, dim, keepdim, "argmax")
    def ref(xp, input, dim=None, keepdim=False):       return argmax_by(xp.argmax, input, dim, keepdim)
    def bounds(input_spec, dim): return positions(input_spec, dim)
    def body(k, input, dim=None, keepdim=False):       return argmax_body(k, k.argmax, input, dim)


class argmin(Op):
    """Where the smallest element is, along `dim` or (without one) counted through all elements."""

    forms = "function method out"
    strict_out = True

    def meta(input, dim=None, keepdim=False):          return argmax_spec(input, dim, keepdim, "argmin")
    def ref(xp, input, dim=None, keepdim=False):       return argmax_by(xp.argmin, input, dim, keepdim)
    def bounds(input_spec, dim): return positions(input_spec, dim)
    def body(k, input, dim=None, keepdim=False):       return argmax_body(k, k.argmin, input, dim)


def argmax_spec(input, dim, keepdim, name):
    """The spec of an `argmax`."""
    for refused in ("complex", "bool"):
        need(not input.dtype.name.startswith(refused), f"{name}(): does not support {refused} input")
    nonempty(input, dim if dim is None else only(dim), name, IndexError)
    return reduced(input, dim, keepdim, dtypes.int64)


def argmax_by(search, input, dim, keepdim):
    """An `argmax` by NumPy's function for it."""
    return search(input, axis=dim, keepdims=keepdim) if input.ndim else np.zeros((), np.int64)


def argmax_body(k, search, input, dim):
    """The body of an `argmax`."""
    if not input.ndim:
        return k.const(0, dtypes.int64)
    return search(k.reshape(input, (input.numel,)), 0) if dim is None else search(input, dim)
