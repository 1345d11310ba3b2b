"""Along a dimension: running sums, products and extremes, differences, integrals."""
import numpy as np

from ..base import dtypes, shapes
from ..base.bounds import positions, summed
from ..base.errors import need
from ..base.op import Composite, Op, door
from ..base.spec import spec
from .extremes import _put_along
from .math import complex_log1p
from .pieces import cat
from .reduce import after, integral_sum, lag, not_for, only, settled

# --- running sums, products and extremes ----------------------------------------------------------------------------


def scan_spec(input, dim, dtype=None):
    """The spec of a running result along `dim`."""
    shapes.wrap_dim(only(dim), input.ndim)
    return spec(dtype or input.dtype, input.shape, None, input.device)


def double(x):
    """The dtype that a running sum of `x` adds in, so that the error does not grow with its length."""
    return np.complex128 if x.dtype.kind == "c" else np.float64 if x.dtype.kind == "f" else np.int64


def scanned(input, dtype, kernel):
    """The dtype of running sums or products; there are none of bools."""
    made = integral_sum(input, dtype)
    if input.numel:
        not_for(made, "bool", kernel)
    return made


class cumsum(Op):
    """The sum of the elements so far along `dim`."""

    forms = "function method inplace out"
    creates = True                                    # `out` says the dtype, if no argument does
    no_overlap = True

    def meta(input, dim, *, dtype=None): return scan_spec(input, dim, scanned(input, dtype, "cumsum_out_cpu"))

    def ref(xp, input, dim, *, dtype=None):
        x = settled(xp, input, dtypes.given(dtype))
        return xp.cumsum(x, axis=dim, dtype=double(x)) if x.ndim else x

    def bounds(input, input_spec): return summed(input, 1, max(input_spec.numel, 1))

    def body(k, input, dim, *, dtype=None):
        dtype = dtypes.given(dtype) or (input.dtype if input.dtype.is_floating_point else dtypes.int64)
        if not input.ndim or dtype not in (dtypes.float32, dtypes.float64, dtypes.int64):
            return NotImplemented
        x = k.cast(input, dtype)
        made = k.library("scan", (x,), [(x.dtype, x.shape)], (dim % x.ndim,))
        return NotImplemented if made is None else made[0]

    def d_input(g, dim): return g.flip(dim).cumsum(dim).flip(dim) if g.ndim else g


class cumprod(Op):
    """The product of the elements so far along `dim`; its gradient is exact where some are zero."""

    forms = "function method inplace out"
    creates = True                                    # `out` says the dtype, if no argument does
    no_overlap = True

    def meta(input, dim, *, dtype=None): return scan_spec(input, dim, scanned(input, dtype, "cumprod_out_cpu"))

    def ref(xp, input, dim, *, dtype=None):
        x = settled(xp, input, dtypes.given(dtype))
        return xp.cumprod(x, axis=dim, dtype=double(x)) if x.ndim else x

    def body(k, input, dim, *, dtype=None):
        dtype = dtypes.given(dtype) or (input.dtype if input.dtype.is_floating_point else dtypes.int64)
        if not input.ndim or dtype not in (dtypes.float32, dtypes.float64, dtypes.int64):
            return NotImplemented
        return run_along(k, "prod", (k.cast(input, dtype),), dim)[0]

    def d_input(g, input, out, dim):
        if not input.numel() or not input.ndim:
            return g
        # With out[k] = input[k] out[k-1], what reaches out[k] in all is a recurrence too, running backwards.
        return recur_back(g, input.to(g.dtype), dim) * lag(out, dim, 1).conj()


class _recur(Op):
    """Each element of `input` plus `factor` times the result before it along `dim`: first-order recurrences."""

    def meta(input, factor, dim): return spec(input.dtype, input.shape, None, input.device)

    def ref(xp, input, factor, dim):
        rows, factors = xp.moveaxis(input, dim, 0), xp.moveaxis(factor, dim, 0)
        out = rows.copy()
        for i in range(1, len(out)):
            out[i] += factors[i] * out[i - 1]
        return xp.moveaxis(out, 0, dim)

    def body(k, input, factor, dim):
        return run_along(k, "recur", (input, factor), dim)[0] if input.shape == factor.shape else NotImplemented

    def d_input(g, factor, dim):        return recur_back(g, factor, dim)
    def d_factor(g, factor, out, dim):  return recur_back(g, factor, dim) * lag(out, dim, 0).conj()


def run_along(k, operation, args, dim, with_indices=False):
    """For a body: what a library makes of running results along `dim`, with `with_indices` also where they were;
    without a library, NotImplemented for each."""
    shape, outs = args[0].shape, 1 + with_indices
    results = [(args[0].dtype, shape), (dtypes.int64, shape)][:outs]
    made = k.library("running", args, results, (operation, dim % len(shape))) if shape else None
    return (NotImplemented,) * outs if made is None else made


def recur_back(g, factor, dim):
    """The gradient of a recurrence: each element of `g` plus the next `factor` times the next result."""
    return _recur(g.flip(dim), lag(factor.conj().flip(dim), dim, 0), dim).flip(dim)


class cummax(Op):
    """The largest element so far along `dim`, and where it was last."""

    forms = "function method out"
    returns = "cummax values indices"
    strict_out = True

    def meta(input, dim):
        if input.numel:
            not_for(input.dtype, "complex", "cummax_cpu")
        return scan_spec(input, dim), scan_spec(input, dim, dtypes.int64)

    def ref(xp, input, dim):          return running(xp, xp.maximum, input, dim)
    def bounds(input, input_spec, dim): return [input, positions(input_spec, dim)]

    def body(k, input, dim):
        made = run_along(k, "max", (input,), dim, with_indices=True)
        return NotImplemented if made[0] is NotImplemented else made

    def d_input(g, out1, input_spec, dim): return d_running(g[0], out1, input_spec, dim)


class cummin(Op):
    """The smallest element so far along `dim`, and where it was last."""

    forms = "function method out"
    returns = "cummin values indices"
    strict_out = True

    def meta(input, dim):
        if input.numel:
            not_for(input.dtype, "complex", "cummin_cpu")
        return scan_spec(input, dim), scan_spec(input, dim, dtypes.int64)

    def ref(xp, input, dim):          return running(xp, xp.minimum, input, dim)
    def bounds(input, input_spec, dim): return [input, positions(input_spec, dim)]

    def body(k, input, dim):
        made = run_along(k, "min", (input,), dim, with_indices=True)
        return NotImplemented if made[0] is NotImplemented else made

    def d_input(g, out1, input_spec, dim): return d_running(g[0], out1, input_spec, dim)


def running(xp, extreme, x, dim):
    """(values, indices) of a running extreme; a NaN stays until the next."""
    if not x.ndim:
        return x, xp.zeros((), np.int64)
    values = extreme.accumulate(x, axis=dim)
    shape = [1] * x.ndim
    shape[dim] = -1
    at = xp.where((x == values) | (x != x), xp.arange(x.shape[dim]).reshape(shape), 0)
    return values, xp.maximum.accumulate(at, axis=dim)


def d_running(g, index, input, dim):
    """The gradient of a running extreme: an element collects from every place where it was the result."""
    return _put_along(g, index, shapes.wrap_dim(dim, input.ndim), input.shape, True) if input.ndim else g


class logcumsumexp(Op):
    """The logarithm of the summed exponentials of the elements so far along `dim`."""

    forms = "function method out"
    strict_out = True
    no_overlap = True

    def meta(input, dim):
        not_for(input.dtype, "bool int", "logcumsumexp_out_cpu")
        return scan_spec(input, dim)

    def ref(xp, input, dim):
        if not input.ndim:
            return input
        if input.dtype.kind != "c":
            return xp.logaddexp.accumulate(input, axis=dim)
        out = xp.moveaxis(input.copy(), dim, 0)
        total = xp.full_like(out[0], -xp.inf) if len(out) else out
        for i, new in enumerate(out):
            low, high = xp.where(new.real < total.real, new, total), xp.where(new.real < total.real, total, new)
            ends = xp.isinf(low.real) & (low.real == high.real)       # two infinities have no difference
            sums = xp.where(low.real < 0, low, xp.log(xp.exp(low) + xp.exp(high)))
            sums = xp.where(ends, sums, high + complex_log1p(xp, xp.exp(low - high)))
            out[i] = total = xp.where(xp.isnan(new) | xp.isnan(total), complex(xp.nan, xp.nan), sums)
        return xp.moveaxis(out, 0, dim)

    def body(k, input, dim): return run_along(k, "logaddexp", (input,), dim)[0]

    def d_input(g, input, out, dim):
        if not input.numel() or not input.ndim:
            return g
        # The sum over later places k of g[k] exp(input - out[k]), where exp(out[k] - out[k+1]) <= 1 cannot overflow.
        n = out.shape[dim]
        now, next = out.narrow(dim, 0, n - 1), out.narrow(dim, 1, n - 1)
        ratio = (now - next).masked_fill(now.isinf() & (now == next), 0).exp()
        return recur_back(g, after(ratio, dim, 0), dim) * (input - out).exp().conj()


# --- differences and integrals --------------------------------------------------------------------------------------


class diff(Composite):
    """The `n`-th differences of neighbours along `dim`.

    >>> torch.tensor([1, 4, 9]).diff()
    tensor([3, 5])
    """

    forms = "function method out"
    no_overlap = True

    def strict_out(input, n=1, *rest): return n == 0          # which is a copy

    def of(input, n=1, dim=-1, prepend=None, append=None):
        need(input.ndim > 0, "diff expects input to be at least one-dimensional")
        need(n >= 0, f"order must be non-negative but got {n}")
        d = shapes.wrap_dim(only(dim), input.ndim)
        if n == 0:
            return input.clone()
        parts = [p for p in (prepend, input, append) if p is not None]
        for part in parts:
            need(part.ndim == input.ndim, "diff expects prepend or append to be the same dimension as input: "
                 f"{part.ndim} and {input.ndim}")
            for k in range(input.ndim):
                need(k == d or part.shape[k] == input.shape[k], "diff expects the shape of tensor to prepend or append "
                     "to match that of input except along the differencing dimension; "
                     f"input.size({k}) = {input.shape[k]}, but got tensor.size({k}) = {part.shape[k]}")
        out = cat(parts, d) if len(parts) > 1 else input
        for _ in range(min(n, out.shape[d])):
            left, right = neighbours(out, d)
            out = right.logical_xor(left) if out.dtype is dtypes.bool else right - left
        return out


def neighbours(x, dim):
    """`x` without its last, and `x` without its first element along `dim`."""
    n = max(x.shape[dim] - 1, 0)
    return x.narrow(dim, 0, n), x.narrow(dim, min(1, x.shape[dim]), n)


class trapezoid(Composite):
    """The integral of samples `y` along `dim` by trapezoids: at the points `x`, or `dx` apart."""

    names = "trapz"
    forms = "function"

    def of(y, x=None, *, dx=None, dim=-1):
        dx = distance(x, dx)
        d = shapes.wrap_dim(dim, y.ndim, scalar_ok=False)
        if not y.shape[d]:
            return y.new_zeros(shapes.reduced(y.shape, (d,), False))
        left, right = neighbours(y, d)
        if x is not None:
            return ((left + right) * steps(x, y, d, "trapezoid")).sum(d) / 2
        refuse_bool("trapezoid", y=y)
        return (y.sum(d) - (y.select(d, 0) + y.select(d, -1)) * 0.5) * dx


class cumulative_trapezoid(Composite):
    """The integral so far, at each sample after the first, of samples `y` along `dim` by trapezoids."""

    forms = "function"

    def of(y, x=None, *, dx=None, dim=-1):
        dx = distance(x, dx)
        d = shapes.wrap_dim(dim, y.ndim, scalar_ok=False)
        left, right = neighbours(y, d)
        if x is not None:
            return ((left + right) * steps(x, y, d, "cumulative_trapezoid")).cumsum(d) / 2
        refuse_bool("cumulative_trapezoid", y=y)
        return (dx / 2 * (left + right)).cumsum(d)


def distance(x, dx):
    """How far apart the samples of an integral are, where no points `x` say it."""
    need(x is None or isinstance(x, door.tensor), f"argument 'x' (position 2) must be Tensor, not {type(x).__name__}",
         TypeError)
    need(x is None or dx is None, "received an invalid combination of arguments: give the points `x` or their distance "
                                  "`dx`, not both", TypeError)
    need(not isinstance(dx, (bool, complex)), f"Currently, we only support dx as a real number, got {dx!r}")
    return 1 if dx is None else dx


def refuse_bool(name, **given):
    """Refuse bool arguments of an integral."""
    for argument, t in given.items():
        need(t.dtype is not dtypes.bool, f"{name}: received a bool input for `{argument}`, but bool is not supported")


def steps(x, y, dim, name):
    """The distances of the points `x`, shaped to go with `y`: a vector runs along `dim`."""
    refuse_bool(name, x=x, y=y)
    if x.ndim == 1:
        need(x.shape[0] == y.shape[dim], f"{name}: There must be one `x` value for each sample point, but there are "
             f"{x.shape[0]} for {y.shape[dim]}")
        x = x.view([-1 if k == dim else 1 for k in range(y.ndim)])
    elif x.ndim < y.ndim:
        x = x.view((1,) * (y.ndim - x.ndim) + tuple(x.shape))
    left, right = neighbours(x, dim)
    return right - left
