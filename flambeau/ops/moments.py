"""Variances and standard deviations, and the covariance of rows."""
import math

from ..base import dtypes, shapes
from ..base.errors import need, warn
from ..base.op import Composite, Op
from .complex import complex_
from .reduce import axes, count, lift, mean_of, reduced, total

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
    """(dim, correction, keepdim) from PyTorch's overloads: a bool in second position is `unbiased`."""
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


def check_weights(weights, n, name, category):
    """Refuse weights that are not one non-negative number of the right dtype for each of `n` observations."""
    if weights is None:
        return
    need(weights.ndim <= 1, f"cov(): expected {name} to have one or fewer dimensions but got {name} with "
         f"{weights.ndim} dimensions")
    need(weights.dtype.is_integral if category == "integral" else weights.is_floating_point(),
         f"cov(): expected {name} to have {category} dtype but got {name} with {weights.dtype.cname} dtype")
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
