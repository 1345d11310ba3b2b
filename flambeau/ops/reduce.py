"""Reductions over some or all dimensions: what they share, sums, products and truth.

`dim` is None or () for all dimensions, an int, or several ints. Half types arrive widened, so they add in float32.
"""

import numpy as np

from ..base import dtypes, shapes
from ..base.bounds import summed
from ..base.errors import need
from ..base.op import Composite, Op
from ..base.spec import spec
from .convert import cast, converted
from .pieces import cat

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

    def bounds(input, input_spec): return summed(input, 0, input_spec.numel)

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
        if input.dtype.category > 1:
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
        numbers = input.detach().isnan().logical_not().sum(dim, keepdim)
        return nansum(input, dim, keepdim, dtype=dtype) / numbers


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
    """`x` moved on by one position along `dim`, which then starts with the number `first`."""
    return after(x.narrow(dim, 0, x.shape[dim] - 1), dim, first)


def after(x, dim, first):
    """`x` with the number `first` put before it along `dim`."""
    size = list(x.shape)
    size[dim] = 1
    return cat([x.new_full(size, first), x], dim)


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
    def bounds(input_spec): return 0, input_spec.numel
    def body(k, input, dim=None):  return k.sum(addends(k, k.cast(input, dtypes.bool), None), axes(dim, input.ndim))
