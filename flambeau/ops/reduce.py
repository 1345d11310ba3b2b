"""Reductions: sums, products, extremes, moments and norms over some or all dimensions, and softmax.

`dim` is None or () for all dimensions, an int, or several ints. Half types arrive widened, so they add in float32.
"""
import math

import numpy as np

from ..base import dtypes, shapes
from ..base.errors import need, warn
from ..base.op import Composite, Op, door
from ..base.spec import spec
from .convert import cast, converted
from .index import picked_along
from .math import complex_
from .shape import cat

# --- what reductions share ------------------------------------------------------------------------------------------


def axes(dim, ndim):
    """The dimensions `dim` as NumPy's axes: a zero-dimensional array has none, whatever `dim` says."""
    return shapes.wrap_dims(dim, ndim)[:ndim]


def reduced(input, dim, keepdim, dtype=None):
    """The spec of `input` reduced over `dim`."""
    need(isinstance(keepdim, bool), f"argument 'keepdim' must be bool, not {type(keepdim).__name__}", TypeError)
    shape = shapes.reduced(input.shape, axes(dim, input.ndim), keepdim)
    return spec(dtype or input.dtype, shape, None, input.device)


def only(dim):
    """`dim`, which must be a single int."""
    need(isinstance(dim, int), f"argument 'dim' must be int, not {type(dim).__name__}", TypeError)
    return dim


def count(input, dim):
    """How many elements of a spec (or array) go into one result."""
    return shapes.numel([input.shape[d] for d in axes(dim, input.ndim)])


def lift(t, input, dim, keepdim):
    """A reduced tensor with the dimensions that `input` lost put back as ones, to broadcast against it."""
    if keepdim or not t.ndim:
        return t
    return t.view(shapes.reduced(input.shape, axes(dim, input.ndim), True))


def settled(xp, array, dtype):
    """`array` converted to `dtype` if one is given, in the type that is computed with."""
    return array if dtype is None else cast(xp, array, dtype).astype(dtype.compute, copy=False)


def addends(k, x, dtype):
    """For a body: `x` converted to `dtype` if one is given, in the type that is added in (`settled` and `total`)."""
    x = x if dtype is None else converted(k, x, dtypes.given(dtype))
    return k.cast(x, dtypes.int64 if x.dtype.is_integral else dtypes.from_numpy(x.dtype.compute))


def ordered(k, x):
    """For a body: `x` as something that has a largest element."""
    return k.cast(x, dtypes.uint8) if x.dtype is dtypes.bool else x


def mean_of(k, x, over):
    """For a body: the mean of `x` over axes, which are kept as ones."""
    return k.sum(x, over) / count(x, over)


def integral_sum(input, dtype):
    """The dtype of a sum or product: the one asked for; int64 for integers."""
    return dtypes.given(dtype, dtypes.int64 if input.dtype.is_integral else input.dtype)


def total(xp, x, over, keepdim=False):
    """The sum over axes. NumPy adds pairwise along memory only; other long sums are made in double."""
    if x.dtype.kind in "biu":
        return xp.sum(x, axis=over, keepdims=keepdim, dtype=np.int64)
    wide = None
    if x.dtype.itemsize == (8 if x.dtype.kind == "c" else 4):
        whole = len(over) == x.ndim and x.flags.c_contiguous
        rows = over == (x.ndim - 1,) and x.strides[-1] == x.itemsize
        if not whole and not rows and shapes.numel([x.shape[d] for d in over]) > 64:
            wide = np.complex128 if x.dtype.kind == "c" else np.float64
    return xp.sum(x, axis=over, keepdims=keepdim, dtype=wide)


def nonempty(input, dim, name, error_class=RuntimeError):
    """Refuse an extreme of nothing, in PyTorch's words."""
    if dim is None or dim == ():
        need(input.numel, f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
             "reduction dim with the 'dim' argument.", error_class)
    else:
        for d in axes(dim, input.ndim):
            need(input.shape[d], f"{name}(): Expected reduction dim {d} to have non-zero size.", IndexError)


def not_for(dtype, categories, kernel):
    """Refuse dtypes of the categories `categories` ("bool int float complex") as PyTorch's kernel does."""
    name = ("bool", "int", "float", "complex")[dtype.category]
    need(name not in categories.split(), f"\"{kernel}\" not implemented for '{dtype.cname}'", NotImplementedError)


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
        if several or index.shape[dim] != 1:
            return NotImplemented
        return k.where(k.index(dim, size) == index, input, 0)


class _take_along(Op):
    """The elements of `input` at `index` along `dim`. The index comes from us and is in range."""

    exact = True

    def meta(input, index, dim): return spec(input.dtype, index.shape, None, input.device)
    def ref(xp, input, index, dim): return xp.take_along_axis(input, index, dim)
    def d_input(g, index, dim, input_spec): return _put_along(g, index, dim, input_spec.shape, True)
    def body(k, input, index, dim): return picked_along(k, input, dim, index)


def selected(g, index, input, dim, keepdim):
    """The gradient of elements that were taken out of `input` at `index`, one place for each row or more."""
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
    """`g` split evenly among the places of `mask` along `dim`."""
    return g / mask.sum(dim, keepdim) * mask


# --- sums and products ----------------------------------------------------------------------------------------------


class sum_(Composite):
    """The sum of the elements of `input` over `dim` (all of them without one).

    >>> torch.tensor([[1, 2], [3, 4]]).sum(0)
    tensor([4, 6])
    """

    forms = "function method out"
    creates = True                                    # `out` says the dtype, if no argument does

    def of(input, dim=None, keepdim=False, *, dtype=None):
        return (_sum if dim is None and not keepdim else _sum_dim)(input, dim, keepdim, dtype)


class _sum(Op):
    """The sum over `dim`, made in `dtype`."""

    node = "SumBackward0"

    def meta(input, dim, keepdim, dtype):
        return reduced(input, dim, keepdim, integral_sum(input, dtype))

    def ref(xp, input, dim, keepdim, dtype):
        return total(xp, settled(xp, input, dtypes.given(dtype)), axes(dim, input.ndim), keepdim)

    def d_input(g, input_spec, dim, keepdim):
        return lift(g, input_spec, dim, keepdim).expand(input_spec.shape)

    def body(k, input, dim, keepdim, dtype): return k.sum(addends(k, input, dtype), axes(dim, input.ndim))


class _sum_dim(_sum):
    """The sum over `dim`, as the node that PyTorch has for it."""

    called = "sum"
    node = "SumBackward1"


class nansum(Op):
    """The sum over `dim` with NaN counted as zero."""

    forms = "function method out"
    creates = "floating"                              # `out` says the dtype, if no argument does

    def meta(input, dim=None, keepdim=False, *, dtype=None):
        on_cpu = input.device.type == "cpu"
        need(not on_cpu or not input.dtype.is_complex, "nansum on CPU does not support complex inputs")
        out = integral_sum(input, dtype)
        if on_cpu and not input.dtype.is_integral:
            not_for(out, "complex", "nansum_cpu")
        return reduced(input, dim, keepdim, out)

    def ref(xp, input, dim=None, keepdim=False, *, dtype=None):
        if input.dtype.kind in "fc":
            input = xp.where(xp.isnan(input), input.dtype.type(0), input)
        return total(xp, settled(xp, input, dtypes.given(dtype)), axes(dim, input.ndim), keepdim)

    def d_input(g, input, dim, keepdim):
        return lift(g, input._spec, dim, keepdim).expand(input.shape).masked_fill(input.isnan(), 0)

    def body(k, input, dim=None, keepdim=False, *, dtype=None):
        if input.dtype.is_floating_point:
            input = k.where(k.isnan(input), 0, input)
        x = addends(k, input, dtype)
        return k.sum(x, axes(dim, x.ndim))


class mean(Composite):
    """The mean of the elements of `input` over `dim` (all of them without one)."""

    forms = "function method out"

    def of(input, dim=None, keepdim=False, *, dtype=None):
        return (_mean if dim is None and not keepdim else _mean_dim)(input, dim, keepdim, dtype)


class _mean(Op):
    """The mean over `dim`, made in `dtype`."""

    node = "MeanBackward0"

    def meta(input, dim, keepdim, dtype):
        out = dtypes.given(dtype, input.dtype)
        whose = "Input" if dtype is None else "Optional"
        need(out.category >= 2, f"mean(): could not infer output dtype. {whose} dtype must be either a floating point "
             f"or complex dtype. Got: {out.cname}")
        return reduced(input, dim, keepdim, out)

    def ref(xp, input, dim, keepdim, dtype):
        x = settled(xp, input, dtypes.given(dtype))
        return xp.divide(total(xp, x, axes(dim, input.ndim), keepdim), x.dtype.type(count(input, dim)))

    def d_input(g, input_spec, dim, keepdim):
        return lift(g / count(input_spec, dim), input_spec, dim, keepdim).expand(input_spec.shape)

    def body(k, input, dim, keepdim, dtype): return mean_of(k, addends(k, input, dtype), axes(dim, input.ndim))


class _mean_dim(_mean):
    """The mean over `dim`, as the node that PyTorch has for it."""

    called = "mean"
    node = "MeanBackward1"


class nanmean(Composite):
    """The mean over `dim` of the elements that are not NaN."""

    forms = "function method out"
    creates = "floating"

    def of(input, dim=None, keepdim=False, *, dtype=None):
        need(input.dtype.category >= 2, "nanmean(): expected input to have floating point or complex dtype but got "
             f"{input.dtype.cname}")
        need(dtype is None or not dtypes.given(dtype).is_integral, "nanmean(): a mean is no whole number; expected "
             f"dtype to be floating point or complex, got {dtype}")
        held = input.detach().isnan().logical_not().sum(dim, keepdim)
        return nansum(input, dim, keepdim, dtype=dtype) / held


class prod(Composite):
    """The product of the elements of `input`, all of them or along `dim`; its gradient is exact where some are zero."""

    forms = "function method out"
    creates = True                                    # `out` says the dtype, if no argument does

    def of(input, dim=None, keepdim=False, *, dtype=None):
        if dim is None:
            return _prod(input, dtype)
        return _prod_dim(input, only(dim), keepdim, dtype)


class _prod(Op):
    """The product of all elements."""

    def meta(input, dtype):
        return reduced(input, None, False, integral_sum(input, dtype))

    def ref(xp, input, dtype):
        return xp.prod(settled(xp, input, integral_sum_of(input, dtype)))

    def d_input(g, input):
        flat = input.to(g.dtype).reshape(-1)
        return (g * others(flat, 0).conj()).reshape(input.shape)

    def body(k, input, dtype): return k.prod(addends(k, input, dtype), axes(None, input.ndim))


class _prod_dim(Op):
    """The product along `dim`."""

    called = "prod"
    node = "ProdBackward1"

    def meta(input, dim, keepdim, dtype):
        return reduced(input, dim, keepdim, integral_sum(input, dtype))

    def ref(xp, input, dim, keepdim, dtype):
        return xp.prod(settled(xp, input, integral_sum_of(input, dtype)), axis=axes(dim, input.ndim), keepdims=keepdim)

    def d_input(g, input, dim, keepdim):
        x = input.to(g.dtype)
        return lift(g, input._spec, dim, keepdim) * (others(x, dim).conj() if input.ndim else x.new_ones(()))

    def body(k, input, dim, keepdim, dtype): return k.prod(addends(k, input, dtype), axes(dim, input.ndim))


def integral_sum_of(array, dtype):
    """`integral_sum` for an array: int64 where integers would overflow in their own dtype, else what was asked for."""
    return dtypes.given(dtype, dtypes.int64 if array.dtype.kind in "biu" else None)


def others(x, dim):
    """For each element of `x` the product of all others along `dim`, without dividing."""
    if not x.shape[dim]:
        return x
    before = lag(x.cumprod(dim), dim, 1)
    after = lag(x.flip(dim).cumprod(dim), dim, 1).flip(dim)
    return before * after


def lag(x, dim, first):
    """`x` moved on by one place along `dim`, which then starts with the number `first`."""
    return after(x.narrow(dim, 0, x.shape[dim] - 1), dim, first)


def after(x, dim, first):
    """`x` with the number `first` put before it along `dim`."""
    size = list(x.shape)
    size[dim] = 1
    return cat([x.new_full(size, first), x], dim)


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

    def body(k, input, dim, keepdim=False):
        if not input.ndim:
            return input, k.const(0, dtypes.int64)
        x = ordered(k, input)
        return k.min(x, dim), k.argmin(x, dim)


class argmax(Op):
    """Where the largest element is, along `dim` or (without one) counted through all elements."""

    forms = "function method out"
    strict_out = True

    def meta(input, dim=None, keepdim=False):          return place_spec(input, dim, keepdim, "argmax")
    def ref(xp, input, dim=None, keepdim=False):       return place_of(xp.argmax, input, dim, keepdim)
    def body(k, input, dim=None, keepdim=False):       return place_body(k, k.argmax, input, dim)


class argmin(Op):
    """Where the smallest element is, along `dim` or (without one) counted through all elements."""

    forms = "function method out"
    strict_out = True

    def meta(input, dim=None, keepdim=False):          return place_spec(input, dim, keepdim, "argmin")
    def ref(xp, input, dim=None, keepdim=False):       return place_of(xp.argmin, input, dim, keepdim)
    def body(k, input, dim=None, keepdim=False):       return place_body(k, k.argmin, input, dim)


def place_spec(input, dim, keepdim, name):
    """The spec of an `argmax`."""
    for refused in ("complex", "bool"):
        need(not input.dtype.name.startswith(refused), f"{name}(): does not support {refused} input")
    nonempty(input, dim if dim is None else only(dim), name, IndexError)
    return reduced(input, dim, keepdim, dtypes.int64)


def place_of(search, input, dim, keepdim):
    """An `argmax` by NumPy's function for it."""
    return search(input, axis=dim, keepdims=keepdim) if input.ndim else np.zeros((), np.int64)


def place_body(k, search, input, dim):
    """The body of an `argmax`."""
    if not input.ndim:
        return k.const(0, dtypes.int64)
    return search(k.reshape(input, (input.numel,)), 0) if dim is None else search(input, dim)


# --- truth ----------------------------------------------------------------------------------------------------------


class all_(Op):
    """Whether all elements over `dim` are nonzero."""

    forms = "function method out"
    strict_out = "truth"

    def meta(input, dim=None, keepdim=False):     return truth(input, dim, keepdim)
    def ref(xp, input, dim=None, keepdim=False):  return xp.all(input, truth_axes(dim, input.ndim), keepdims=keepdim)
    def body(k, input, dim=None, keepdim=False):  return truth_body(k, k.all, input, dim)


class any_(Op):
    """Whether any element over `dim` is nonzero."""

    forms = "function method out"
    strict_out = "truth"

    def meta(input, dim=None, keepdim=False):     return truth(input, dim, keepdim)
    def ref(xp, input, dim=None, keepdim=False):  return xp.any(input, truth_axes(dim, input.ndim), keepdims=keepdim)
    def body(k, input, dim=None, keepdim=False):  return truth_body(k, k.any, input, dim)


def truth_axes(dim, ndim):
    """The axes that `all` and `any` reduce: unlike elsewhere, () is none of them."""
    return () if dim == () else axes(dim, ndim)


def truth(input, dim, keepdim):
    """The spec of `all` and `any`: bool, but uint8 of uint8."""
    out = dtypes.uint8 if input.dtype is dtypes.uint8 else dtypes.bool
    return spec(out, shapes.reduced(input.shape, truth_axes(dim, input.ndim), keepdim), None, input.device)


def truth_body(k, reduce, input, dim):
    """The body of `all` and `any`."""
    x, over = k.cast(input, dtypes.bool), truth_axes(dim, input.ndim)
    return reduce(x, over) if over else x


class count_nonzero(Op):
    """How many elements over `dim` are nonzero."""

    def meta(input, dim=None):     return reduced(input, dim, False, dtypes.int64)
    def ref(xp, input, dim=None):  return xp.sum(input != 0, axis=axes(dim, input.ndim))
    def body(k, input, dim=None):  return k.sum(addends(k, k.cast(input, dtypes.bool), None), axes(dim, input.ndim))


# --- moments --------------------------------------------------------------------------------------------------------


class var(Composite):
    """The mean squared distance from the mean over `dim`, their number lessened by `correction`.

    `correction` is 1 unless given; `unbiased=False`, the older way to say it, makes it 0.

    >>> torch.tensor([1., 3.]).var(), torch.tensor([1., 3.]).var(correction=0)
    (tensor(2.), tensor(1.))
    """

    forms = "function method out"

    def of(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
        return _var(input, *spread_arguments(input, dim, unbiased, keepdim, correction, "var"))


class std(Composite):
    """The standard deviation over `dim`: the square root of `var`."""

    forms = "function method out"

    def of(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
        return _std(input, *spread_arguments(input, dim, unbiased, keepdim, correction, "std"))


class var_mean(Composite):
    """The variance and the mean over `dim`."""

    forms = "function"

    def of(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
        return _var_mean(input, *spread_arguments(input, dim, unbiased, keepdim, correction, "var_mean"))


class std_mean(Composite):
    """The standard deviation and the mean over `dim`."""

    forms = "function"

    def of(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
        return _std_mean(input, *spread_arguments(input, dim, unbiased, keepdim, correction, "std_mean"))


def spread_arguments(input, dim, unbiased, keepdim, correction, name):
    """(dim, correction, keepdim) from PyTorch's overloads: a bool in second place is `unbiased`."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    need(unbiased is None or correction is None, "either unbiased or correction can be given, not both", TypeError)
    called = name if "mean" in name else "std and var"
    need(input.dtype.category >= 2, f"{called} only support floating point and complex dtypes")
    if unbiased is not None or correction is None:
        correction = int(unbiased is not False)
    if count(input._spec, dim) <= correction:
        warn(f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the reduction "
             "factor (input numel divided by output numel).")
    return dim, correction, keepdim


class _var(Op):
    """The variance over `dim`."""

    def meta(input, dim, correction, keepdim):     return reduced(input, dim, keepdim, input.dtype.to_real())
    def ref(xp, input, dim, correction, keepdim):  return variance(xp, input, dim, correction, keepdim)[0]
    def d_input(g, input, dim, correction, keepdim): return d_var(g, input, dim, correction, keepdim)
    def body(k, input, dim, correction, keepdim):  return variance_body(k, input, dim, correction)[0]


class _std(Op):
    """The standard deviation over `dim`."""

    def meta(input, dim, correction, keepdim):     return reduced(input, dim, keepdim, input.dtype.to_real())
    def ref(xp, input, dim, correction, keepdim):  return xp.sqrt(variance(xp, input, dim, correction, keepdim)[0])
    def d_input(g, input, out, dim, correction, keepdim): return d_var(d_sqrt(g, out), input, dim, correction, keepdim)
    def body(k, input, dim, correction, keepdim):  return k.sqrt(variance_body(k, input, dim, correction)[0])


class _var_mean(Op):
    """The variance and the mean over `dim`."""

    def meta(input, dim, correction, keepdim):
        return reduced(input, dim, keepdim, input.dtype.to_real()), reduced(input, dim, keepdim)

    def ref(xp, input, dim, correction, keepdim): return variance(xp, input, dim, correction, keepdim)

    def d_input(g, input, dim, correction, keepdim):
        spread = None if g[0] is None else d_var(g[0], input, dim, correction, keepdim)
        return plus_mean(spread, g[1], input, dim, keepdim)

    def body(k, input, dim, correction, keepdim): return variance_body(k, input, dim, correction)


class _std_mean(Op):
    """The standard deviation and the mean over `dim`."""

    def meta(input, dim, correction, keepdim):
        return reduced(input, dim, keepdim, input.dtype.to_real()), reduced(input, dim, keepdim)

    def ref(xp, input, dim, correction, keepdim):
        spread, middle = variance(xp, input, dim, correction, keepdim)
        return xp.sqrt(spread), middle

    def d_input(g, input, out0, dim, correction, keepdim):
        spread = None if g[0] is None else d_var(d_sqrt(g[0], out0), input, dim, correction, keepdim)
        return plus_mean(spread, g[1], input, dim, keepdim)

    def body(k, input, dim, correction, keepdim):
        spread, middle = variance_body(k, input, dim, correction)
        return k.sqrt(spread), middle


def variance(xp, x, dim, correction, keepdim):
    """(variance, mean) in two passes; the second takes out what rounding left in the first's mean."""
    over, n = axes(dim, x.ndim), count(x, dim)
    middle = xp.divide(total(xp, x, over, True), x.dtype.type(n)).astype(x.dtype)
    off = x - middle
    left = xp.abs(total(xp, off, over, True))
    squares = xp.square(off.real) + xp.square(off.imag) if off.dtype.kind == "c" else xp.square(off)
    real = squares.dtype.type
    around = total(xp, squares, over, True) - left * left / real(max(n, 1))
    out = xp.divide(around, real(max(n - correction, 0) if n else 0))
    shape = shapes.reduced(x.shape, over, keepdim)
    return out.reshape(shape), middle.reshape(shape)


def variance_body(k, x, dim, correction):
    """(variance, mean), the mean taken off first."""
    over = axes(dim, x.ndim)
    middle = mean_of(k, x, over)
    off = x - middle
    return k.sum(off * off, over) / max(count(x, dim) - correction, 0), middle


def d_var(g, input, dim, correction, keepdim):
    """The gradient of a variance: twice the distance from the mean."""
    free = count(input._spec, dim) - correction
    g = lift(g, input._spec, dim, keepdim) * (2 / free if free else math.inf)
    return g * (input - input.mean(dim, True))


def d_sqrt(g, out):
    """The gradient of a square root `out`; a deviation of zero passes none (dividing by infinity, not by zero)."""
    return g / (2 * out).masked_fill(out == 0, math.inf)


def plus_mean(spread, g, input, dim, keepdim):
    """`spread` plus the gradient that came for the mean, either of them perhaps None."""
    if g is None:
        return spread
    g = lift(g / count(input._spec, dim), input._spec, dim, keepdim).expand(input.shape)
    return g if spread is None else spread + g


# --- exponentials ---------------------------------------------------------------------------------------------------


class logsumexp(Op):
    """The logarithm of the summed exponentials of `input` over `dim`, without overflowing on the way."""

    names = "special.logsumexp"
    forms = "function method out"

    def meta(input, dim, keepdim=False):
        return reduced(input, dim, keepdim, dtypes.default if input.dtype.is_integral else input.dtype)

    def ref(xp, input, dim, keepdim=False):
        x = input.astype(dtypes.default.compute) if input.dtype.kind in "biu" else input
        over = axes(dim, x.ndim)
        top = xp.max(x.real, axis=over, keepdims=True, initial=-math.inf)
        top = xp.where(xp.isinf(top), 0, top).astype(top.dtype)     # shifting by an infinity would give inf - inf
        out = xp.log(total(xp, xp.exp(x - top), over, True)) + top
        return out.reshape(shapes.reduced(x.shape, over, keepdim))

    def d_input(g, input, out, dim, keepdim):
        spec = input._spec
        return lift(g, spec, dim, keepdim) * (input - lift(out, spec, dim, keepdim)).exp().conj()

    def body(k, input, dim, keepdim=False):
        x = k.cast(input, dtypes.default) if input.dtype.is_integral else input
        over = axes(dim, x.ndim)
        top = k.top(x, over)
        top = k.where(k.abs(top) == math.inf, 0, top)
        return k.log(k.sum(k.exp(x - top), over)) + top


class softmax(Composite):
    """The exponentials of `input` divided by their sum along `dim`.

    >>> torch.tensor([0., 0.]).softmax(0)
    tensor([0.5000, 0.5000])
    """

    names = "special.softmax"
    forms = "function method out"
    strict_out = True

    def of(input, dim, dtype=None): return _softmax(input if dtype is None else input.to(dtype), dim)


class log_softmax(Composite):
    """The logarithm of `softmax` along `dim`, without its rounding."""

    names = "special.log_softmax"
    forms = "function method out"
    strict_out = True

    def of(input, dim, dtype=None): return _log_softmax(input if dtype is None else input.to(dtype), dim)


class _functional_softmax(Composite):
    """The exponentials of `input` divided by their sum along `dim`."""

    names = "nn.functional.softmax"

    def of(input, dim=None, _stacklevel=3, dtype=None):
        return softmax(input, implicit_dim("softmax", input, dim, _stacklevel), dtype)


class _functional_log_softmax(Composite):
    """The logarithm of `softmax` along `dim`, without its rounding."""

    names = "nn.functional.log_softmax"

    def of(input, dim=None, _stacklevel=3, dtype=None):
        return log_softmax(input, implicit_dim("log_softmax", input, dim, _stacklevel), dtype)


class _softmin(Composite):
    """The `softmax` of minus `input`."""

    names = "nn.functional.softmin"

    def of(input, dim=None, _stacklevel=3, dtype=None):
        return softmax(-input, implicit_dim("softmin", input, dim, _stacklevel), dtype)


def implicit_dim(name, input, dim, stacklevel):
    """The dimension that the functional forms take if none is given: the channels'."""
    if dim is None:
        warn(f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as "
             "an argument.")
        dim = 0 if input.ndim in (0, 1, 3) else 1
    return dim


class _softmax(Op):
    """The exponentials of `input` divided by their sum along `dim`."""

    def meta(input, dim):
        shapes.wrap_dim(only(dim), input.ndim)
        if input.numel:
            not_for(input.dtype, "bool int complex", "softmax_lastdim_kernel_impl")
        return spec(input.dtype, input.shape, None, input.device)

    def ref(xp, input, dim):
        if not input.size:
            return input
        over = axes(dim, input.ndim)
        e = xp.asarray(input - xp.max(input, axis=over, keepdims=True, initial=-math.inf))
        xp.exp(e, out=e)                              # in its own memory: fresh pages cost more than the arithmetic
        e /= total(xp, e, over, True)
        return e

    def d_input(g, out, dim): return _softmax_backward(g, out, dim)

    def body(k, input, dim):
        over = axes(dim, input.ndim)
        e = k.exp(input - k.top(input, over))
        return e * (1 / k.sum(e, over))


class _safe_softmax(Op):
    """`softmax` along `dim`, where a row of nothing but minus infinity gives zeros instead of nan."""

    def meta(input, dim): return input.like(shape=input.shape)

    def ref(xp, input, dim):
        top = xp.max(input, axis=dim, keepdims=True, initial=-xp.inf)
        e = xp.exp(input - xp.where(top == -xp.inf, 0, top))
        return xp.where(top == -xp.inf, 0, e / xp.sum(e, axis=dim, keepdims=True))

    def d_input(g, out, dim): return _softmax_backward(g, out, dim)

    def body(k, input, dim):
        over = axes(dim, input.ndim)
        top = k.top(input, over)
        blind = top == -math.inf
        e = k.exp(input - k.where(blind, 0, top))
        return e * k.where(blind, 0, 1 / k.sum(e, over))


class _softmax_backward(Op):
    """The gradient of `softmax`, from that of its result `out`."""

    node = "SoftmaxBackwardDataBackward0"

    def meta(g, out, dim): return spec(out.dtype, out.shape, None, out.device)

    def ref(xp, g, out, dim):
        weighted = xp.asarray(g * out)
        return weighted - out * total(xp, weighted, axes(dim, out.ndim), True)

    def d_g(v, out, dim):      return _softmax_backward(v, out, dim)
    def d_out(v, g, out, dim): return v * (g - (g * out).sum(dim, True)) - g * (v * out).sum(dim, True)

    def body(k, g, out, dim): return out * (g - k.sum(g * out, axes(dim, out.ndim)))


class _log_softmax(Op):
    """The logarithm of `softmax` along `dim`."""

    def meta(input, dim):
        shapes.wrap_dim(only(dim), input.ndim)
        if input.numel:
            not_for(input.dtype, "bool int complex", "log_softmax_lastdim_kernel_impl")
        return spec(input.dtype, input.shape, None, input.device)

    def ref(xp, input, dim):
        if not input.size:
            return input
        over = axes(dim, input.ndim)
        x = xp.asarray(input - xp.max(input, axis=over, keepdims=True, initial=-math.inf))
        x -= xp.log(total(xp, xp.exp(x), over, True))
        return x

    def d_input(g, out, dim): return _log_softmax_backward(g, out, dim)

    def body(k, input, dim):
        over = axes(dim, input.ndim)
        x = input - k.top(input, over)
        return x - k.log(k.sum(k.exp(x), over))


class _log_softmax_backward(Op):
    """The gradient of `log_softmax`, from that of its result `out`."""

    node = "LogSoftmaxBackwardDataBackward0"

    def meta(g, out, dim):      return spec(out.dtype, out.shape, None, out.device)
    def ref(xp, g, out, dim):   return g - xp.exp(out) * total(xp, g, axes(dim, out.ndim), True)
    def d_g(v, out, dim):       return v - (v * out.exp()).sum(dim, True)
    def d_out(v, g, out, dim):  return -v * out.exp() * g.sum(dim, True)
    def body(k, g, out, dim):   return g - k.exp(out) * k.sum(g, axes(dim, out.ndim))


# --- covariance -----------------------------------------------------------------------------------------------------


class cov(Composite):
    """The covariance matrix of the variables that are the rows of `input`, the columns being observations."""

    def of(input, *, correction=1, fweights=None, aweights=None):
        need(input.ndim <= 2, "cov(): expected input to have two or fewer dimensions but got an input with "
             f"{input.ndim} dimensions")
        need(input.dtype is not dtypes.bool, "cov(): bool dtype is not supported for input")
        rows = input if input.ndim == 2 else input.view(1, -1)
        n = rows.shape[1]
        check_weights(fweights, n, "fweights", "integral")
        check_weights(aweights, n, "aweights", "floating point")
        w = aweights if fweights is None else fweights if aweights is None else fweights * aweights
        size = n if w is None else w.sum()
        need(w is None or bool(size != 0), "cov(): weights sum to zero, can't be normalized")
        weighted = rows if w is None else rows * w
        free = size - correction
        if aweights is not None and correction != 0:
            free = size - correction * (w * aweights).sum() / size
        if bool(free <= 0):
            warn("cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of "
                 "observations.")
            free = 0.0
        off = rows - (weighted.sum(1) / size).unsqueeze(1)
        products = off.mm((off if w is None else off * w).t().conj())
        return (products / free).squeeze()


def check_weights(weights, n, name, kind):
    """Refuse weights that are not one non-negative number of the right kind for each of `n` observations."""
    if weights is None:
        return
    need(weights.ndim <= 1, f"cov(): expected {name} to have one or fewer dimensions but got {name} with "
         f"{weights.ndim} dimensions")
    need(weights.dtype.is_integral if kind == "integral" else weights.is_floating_point(),
         f"cov(): expected {name} to have {kind} dtype but got {name} with {weights.dtype.cname} dtype")
    need(weights.numel() == n, f"cov(): expected {name} to have the same numel as there are observations in the input "
         f"but got {weights.numel()} != {n}")
    need(n == 0 or bool((weights >= 0).all()), f"cov(): {name} cannot be negative")


class corrcoef(Composite):
    """The correlation coefficients of the variables that are the rows of `input`."""

    def of(input):
        need(input.ndim <= 2, "corrcoef(): expected input to have two or fewer dimensions but got an input with "
             f"{input.ndim} dimensions")
        c = cov(input)
        if not c.ndim:
            return c / c                                           # 1, or NaN where there is no spread
        spread = c.diag()
        spread = (spread.real if spread.is_complex() else spread).sqrt()
        c = c / spread.view(-1, 1) / spread.view(1, -1)
        return complex_(c.real.clamp(-1, 1), c.imag.clamp(-1, 1)) if c.is_complex() else c.clamp(-1, 1)
