"""Special functions, element by element: those of the error integral, the gamma function and Bessel's."""
import math

from ..base import dtypes, special_functions
from ..base.errors import need
from ..base.op import Composite, Pointwise
from ..base.special_functions import EULER_MACLAURIN_COEFFICIENTS, SQRT_HALF
from .arith import no_derivative

# ---- the error function and the normal distribution


class erf(Pointwise):
    """The error function of `input`, elementwise."""

    names = "special.erf"
    result, refuses, cname = "float", "complex", "erf_vml"

    def ref(xp, input):     return special_functions.erf(xp, input)
    def d_input(g, input):  return g * (2 / math.sqrt(math.pi)) * (-(input * input)).exp()
    def body(k, input):     return k.erf(input)


class erfc(Pointwise):
    """One minus the error function of `input`, elementwise, exact where that is small."""

    names = "special.erfc"
    result, refuses, cname = "float", "complex", "erfc_vml"

    def ref(xp, input):     return special_functions.erfc(xp, input)
    def d_input(g, input):  return g * (-2 / math.sqrt(math.pi)) * (-(input * input)).exp()
    def body(k, input):     return k.erfc(input)


class _erfcx(Pointwise):
    """`erfc` times e to the square of `input`, elementwise."""

    names, forms, node = "special.erfcx", "function out", "SpecialErfcxBackward0"
    result, refuses, cname = "float", "complex half", "erfcx"

    def ref(xp, input):          return special_functions.erfcx(xp, input)
    def d_input(g, input, out):  return g * (2 * input * out - 2 / math.sqrt(math.pi))
    def body(k, input):          return k.erfcx(input)


class erfinv(Pointwise):
    """The number whose error function is `input`, elementwise."""

    names = "special.erfinv"
    result, refuses, cname = "float", "complex", "erfinv_vml"

    def ref(xp, input):     return special_functions.erfinv(xp, input)
    def d_input(g, out):    return g * (math.sqrt(math.pi) / 2) * (out * out).exp()
    def body(k, input):     return k.erfinv(input)


SQRT_HALF_REST = -4.833646656726457e-17        # what rounding took from SQRT_HALF


def normal_tail(k, y):
    """The area under the standard normal density from `y`, a float64 expression, on.

    What is lost by rounding the argument of erfc would come back multiplied by its square, so it is put back.
    """
    y = k.minimum(k.maximum(y, -40), 40)                          # beyond, the result is 0 or 1 anyway
    z = y * SQRT_HALF
    lost = k.fma_exact(y, SQRT_HALF, -z) + y * SQRT_HALF_REST
    return 0.5 * k.erfc(z) * (1 - 2 * k.maximum(z, 0) * lost)


class _ndtr(Pointwise):
    """The area under the standard normal density up to `input`, elementwise."""

    names, forms, node = "special.ndtr", "function out", "MulBackward1"
    result, refuses, cname = "float", "complex", "erf_vml"

    def ref(xp, input):     return special_functions.ndtr(xp, input)
    def d_input(g, input):  return g * (-(input * input) / 2).exp() / math.sqrt(2 * math.pi)
    def body(k, input):     return normal_tail(k, -k.cast(input, dtypes.float64))


class _ndtri(Pointwise):
    """The number up to which the area under the standard normal density is `input`, elementwise."""

    names, forms, node = "special.ndtri", "function out", "SpecialNdtriBackward0"
    result, refuses, cname = "float", "complex half", "ndtri"

    def ref(xp, input):     return special_functions.ndtri(xp, input)
    def d_input(g, out):    return g * math.sqrt(2 * math.pi) * (out * out / 2).exp()
    def body(k, input):     return k.ndtri(input)


class _log_ndtr(Pointwise):
    """The logarithm of the area under the standard normal density up to `input`, elementwise."""

    names, forms, node = "special.log_ndtr", "function out", "SpecialLogNdtrBackward0"
    result, refuses, cname = "float", "complex half", "log_ndtr"

    def ref(xp, input):     return special_functions.log_ndtr(xp, input)
    def d_input(g, input):  return g / _erfcx(input * -math.sqrt(0.5)) * math.sqrt(2 / math.pi)

    def body(k, input):
        x = k.cast(input, dtypes.float64)
        tail, s = normal_tail(k, k.abs(x)), 1 / (x * x)
        series = k.log1p(-s * (1 - 3 * s * (1 - 5 * s * (1 - 7 * s * (1 - 9 * s)))))         # DLMF 7.12.1
        far = -0.5 * (x * x) - k.log(-x) - 0.5 * math.log(2 * math.pi) + series
        return k.where(x < -30, far, k.where(x > 0, k.log1p(-tail), k.log(tail)))


# ---- the gamma function


class lgamma(Pointwise):
    """The logarithm of the absolute value of the gamma function of `input`, elementwise."""

    names = "special.gammaln"
    result, refuses, cname = "float", "complex", "lgamma_vml"

    def ref(xp, input):     return special_functions.lgamma(xp, input)
    def d_input(g, input):  return g * input.digamma()
    def body(k, input):     return k.lgamma(input)


class digamma(Pointwise):
    """The derivative of `lgamma` at `input`, elementwise."""

    names = "special.digamma special.psi"
    result, refuses = "float", "complex"

    def ref(xp, input):     return special_functions.digamma(xp, input)
    def d_input(g, input):  return g * _polygamma_of_order(input, (1,))
    def body(k, input):     return k.digamma(input)


class polygamma(Composite):
    """The derivative of order `n` of `digamma` at `input`, elementwise."""

    names, forms = "special.polygamma", "function out"
    no_overlap = True

    def of(n, input): return _polygamma(input, n)


class _polygamma(Composite):
    """The derivative of order `n` of `digamma` at this tensor, elementwise.

    >>> torch.tensor([1.0, 2.0]).polygamma(1)
    tensor([1.6449, 0.6449])
    """

    names, forms = "polygamma", "method inplace"
    no_overlap = True

    def of(input, n):
        need(n >= 0, f"polygamma(n, x) does not support negative n, and it is {n}.")
        return _polygamma_of_order(input, (n,))


class _polygamma_of_order(Pointwise):
    """The derivative of `digamma` of the order that `orders` holds, which decides what is computed."""

    node = "PolygammaBackward0"
    operands = "input"
    result, refuses, cname = "float", "complex", "polygamma"

    def ref(xp, input, orders):     return special_functions.polygamma(xp, orders[0], input)
    def d_input(g, input, orders):  return g * _polygamma_of_order(input, (orders[0] + 1,))

    def body(k, input, orders):
        n, = orders
        if n == 0:
            return k.digamma(input)
        if n > MAX_REFLECTED_ORDER:
            return NotImplemented
        x = k.cast(input, dtypes.float64)
        back, whole = x < 0, k.rint(x)
        out = polygamma_positive(k, n, k.where(back, 1 - x, x), *FEW_TERMS if input.dtype is dtypes.float32 else TERMS)
        # the n-th derivative of pi / tan(pi x) lies between a value at x and the one at 1 - x
        angle = (x - whole) * math.pi
        cotangent = k.cos(angle) / k.sin(angle)
        wave = math.pi ** (n + 1) * horner(k, cotangent, derivative_of_cotangent(n))
        out = k.where(back, (-1) ** n * out - wave, out)
        if n > 1:                                              # PyTorch has its zeta function here, with other ends
            out = k.where(x == math.inf, math.nan, out)
        pole = (x <= 0) & ((x == whole) if n > 1 else (x - whole == 0))
        return k.cast(k.where(pole, math.inf if n % 2 else -math.inf, out), input.dtype)


MAX_REFLECTED_ORDER = 16      # of polygamma: beyond, the powers of a cotangent overflow where their sum does not
TERMS, FEW_TERMS = (10, 12), (6, 7)        # of the sum and of the series behind it, for results of each type


def polygamma_positive(k, n, x, terms, corrections):
    """The order `n` of polygamma at x >= 0: so many terms of the sum of 1/(x + k)^(n + 1), then DLMF 2.10.1 of it."""
    total, power = None, n + 1
    for i in range(terms):
        term = power_of(1 / (x + i), power)
        total = term if total is None else total + term
    r = 1 / (x + terms)
    coefficients = [1 / n, 0.5]
    rising = power
    for i, c in enumerate(EULER_MACLAURIN_COEFFICIENTS[:corrections]):
        coefficients += [c * rising, 0.0]
        rising *= (power + 2 * i + 1) * (power + 2 * i + 2)
    even = horner(k, r * r, coefficients[2::2])
    total = total + power_of(r, n) * (1 / n + r * (0.5 + r * even))
    return (-1) ** (n + 1) * float(math.factorial(n)) * total


def power_of(x, n):
    """x to a positive integer, by squarings."""
    out = None
    while n:
        if n & 1:
            out = x if out is None else out * x
        n >>= 1
        x = x * x if n else x
    return out


def horner(k, x, coefficients):
    """The polynomial of these coefficients, the lowest power first."""
    *rest, out = coefficients
    out = k.const(out, x.dtype) if not rest else out
    for c in reversed(rest):
        out = k.fma(out, x, c)
    return out


def derivative_of_cotangent(n):
    """The `n`-th derivative of the cotangent as a polynomial in it, since the first is -1 - cot^2."""
    p = [0.0, 1.0]
    for _ in range(n):
        slope = [i * c for i, c in enumerate(p)][1:]
        p = [0.0] * (len(slope) + 2)
        for i, c in enumerate(slope):
            p[i] -= c
            p[i + 2] -= c
    return p


class mvlgamma(Composite):
    """The logarithm of the multivariate gamma function of dimension `p` of `input`, elementwise."""

    names, forms = "special.multigammaln", "function method inplace out"
    no_overlap = True

    def of(input, p):
        need(p >= 1, f"p has to be greater than or equal to 1, and it is {p}")
        return _mvlgamma_of_dimension(input, (p,))


class _mvlgamma_of_dimension(Pointwise):
    """`mvlgamma` of the dimension that `dimensions` holds, which decides how many terms there are."""

    node = "MvlgammaBackward0"
    operands = "input"
    result, refuses, cname = "float", "bool complex", "mvlgamma"

    @classmethod
    def infer(op, args):
        out, casts, common = super().infer(args)
        return out.like(shape=out.shape), casts, common    # PyTorch sums over a new dimension, so it is contiguous

    def ref(xp, input, dimensions):
        p, = dimensions
        return sum(special_functions.lgamma(xp, input - i / 2) for i in range(p)) + p * (p - 1) / 4 * math.log(math.pi)

    def body(k, input, dimensions):
        p, = dimensions
        x = k.cast(input, dtypes.float64)
        terms = [k.lgamma(x - i / 2 if i else x) for i in range(p)]
        return k.cast(sum(terms[1:], terms[0]) + p * (p - 1) / 4 * math.log(math.pi), input.dtype)

    def d_input(g, input, dimensions):
        slope = input.digamma()
        for i in range(1, dimensions[0]):
            slope = slope + (input - i / 2).digamma()
        return g * slope


class igamma(Pointwise):
    """The regularised lower incomplete gamma function of `input` up to `other`, elementwise."""

    names = "special.gammainc"
    numbers, refuses = "", "bool int complex"

    def ref(xp, input, other):    return special_functions.igamma(xp, input, other)
    def d_input(g):               no_derivative("igamma: input", "a gradient for `other` alone")
    def d_other(g, input, other): return g * gamma_density(input, other)


class igammac(Pointwise):
    """The regularised upper incomplete gamma function of `input` from `other` on, elementwise."""

    names = "special.gammaincc"
    numbers, refuses = "", "bool int complex"

    def ref(xp, input, other):    return special_functions.igammac(xp, input, other)
    def d_input(g):               no_derivative("igammac: input", "a gradient for `other` alone")
    def d_other(g, input, other): return -g * gamma_density(input, other)


def gamma_density(a, x):
    """The density at `x` of the gamma distribution of shape `a`."""
    return ((a - 1) * x.log() - x - a.lgamma()).exp()


class _zeta(Pointwise):
    """The Hurwitz zeta function: the sum of (k + `other`) to the minus `input` over k from 0 on, elementwise."""

    names, forms, node = "special.zeta", "function out", "SpecialZetaBackward0"
    number_nodes = {"input": "SpecialZetaBackward1", "other": "SpecialZetaBackward2"}
    result, refuses, cname = "float", "complex half", "zeta"

    def ref(xp, input, other):    return special_functions.zeta(xp, input, other)
    def d_input(g):               no_derivative("zeta", "a gradient for `other` alone")
    def d_other(g, input, other): return g * -input * _zeta(input + 1, other)


# ---- logarithms that a factor of zero silences


class xlogy(Pointwise):
    """`input` times the logarithm of `other`, elementwise, and 0 where `input` is 0 (unless `other` is nan)."""

    names = "special.xlogy"
    number_nodes = {"input": "XlogyBackward1", "other": "XlogyBackward2"}
    result, refuses = "float", "complex"

    def ref(xp, input, other):
        other = float(other) if isinstance(other, int) else other      # NumPy takes log(True) in half precision
        return xp.where((input == 0) & ~xp.isnan(other), 0.0, input * xp.log(other))

    def d_input(g, input, other): return xlogy(g, other).where(~((input == 0) & (other <= 0)), 0)
    def d_other(g, input, other): return g * input / other

    def body(k, input, other):
        return k.where((input == 0) & ~k.isnan(other), 0, input * k.log(other))


class _xlog1py(Pointwise):
    """`input` times the logarithm of one plus `other`, elementwise, and 0 where `input` is 0 and `other` is not nan."""

    names, forms, node = "special.xlog1py", "function out", "SpecialXlog1PyBackward0"
    number_nodes = {"input": "SpecialXlog1PyBackward1", "other": "SpecialXlog1PyBackward2"}
    result, refuses, cname = "float", "complex", "xlog1py"

    def ref(xp, input, other): return special_functions.xlog1py(xp, input, other)

    def d_input(g, input, other): return _xlog1py(g, other).where(~((input == 0) & (other <= -1)), 0)
    def d_other(g, input, other): return g * input / (other + 1)

    def body(k, input, other):
        return k.where((input == 0) & ~k.isnan(other), 0, input * k.log1p(other))


class _entr(Pointwise):
    """Minus `input` times its logarithm, elementwise: 0 at 0, minus infinity below."""

    names, forms, node = "special.entr", "function out", "SpecialEntrBackward0"
    result, refuses, cname = "float", "complex", "entr"

    def ref(xp, input):     return special_functions.entr(xp, input)
    def d_input(g, input):  return g * (-1 - input.log())

    def body(k, input):
        return k.where(input == 0, 0, k.where(input < 0, -math.inf, -input * k.log(input)))


# ---- modified Bessel functions


class i0(Pointwise):
    """The modified Bessel function of the first kind of order 0 of `input`, elementwise."""

    names = "special.i0"
    result, refuses, cname = "float", "complex", "i0_vml"

    def ref(xp, input):     return special_functions.i0(xp, input)
    def d_input(g, input):  return g * _i1(input)
    def body(k, input):     return k.i0(input)


class _i0e(Pointwise):
    """`i0` times e to the minus |`input`|, elementwise."""

    names, forms, node = "special.i0e", "function out", "SpecialI0EBackward0"
    result, refuses, cname = "float", "complex", "i0e"

    def ref(xp, input):          return special_functions.i0e(xp, input)
    def d_input(g, input, out):  return g * (_i1e(input) - input.sgn() * out)
    def body(k, input):          return k.i0e(input)


class _i1(Pointwise):
    """The modified Bessel function of the first kind of order 1 of `input`, elementwise."""

    names, forms, node = "special.i1", "function out", "SpecialI1Backward0"
    result, refuses, cname = "float", "complex", "i1"

    def ref(xp, input):          return special_functions.i1(xp, input)
    def d_input(g, input, out):  return g * near_zero(input, lambda x: x.i0() - out / x)
    def body(k, input):          return k.i1(input)


class _i1e(Pointwise):
    """`i1` times e to the minus |`input`|, elementwise."""

    names, forms, node = "special.i1e", "function out", "SpecialI1EBackward0"
    result, refuses, cname = "float", "complex", "i1e"

    def ref(xp, input):          return special_functions.i1e(xp, input)
    def d_input(g, input, out):  return g * near_zero(input, lambda x: _i0e(x) - out * (x.sgn() + 1 / x))
    def body(k, input):          return k.i1e(input)


class _modified_bessel_i0(Pointwise):
    """The same as `i0` of `input`, without a gradient; infinite as soon as the exponential of `input` is.

    >>> torch.special.modified_bessel_i0(torch.tensor([0.0, 1.0]))
    tensor([1.0000, 1.2661])
    """

    names, forms = "special.modified_bessel_i0", "function out"
    result, refuses, cname = "float", "complex half", "modified_bessel_i0"

    def ref(xp, input):     return xp.exp(xp.abs(input)) * special_functions.i0e(xp, input)
    def body(k, input):     return k.exp(k.abs(input)) * k.i0e(input)


class _modified_bessel_i1(Pointwise):
    """The same as `special.i1` of `input`, without a gradient; infinite as soon as the exponential of `input` is.

    >>> torch.special.modified_bessel_i1(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.5652])
    """

    names, forms = "special.modified_bessel_i1", "function out"
    result, refuses, cname = "float", "complex half", "modified_bessel_i1"

    def ref(xp, input):     return xp.exp(xp.abs(input)) * special_functions.i1e(xp, input)
    def body(k, input):     return k.exp(k.abs(input)) * k.i1e(input)


class _spherical_bessel_j0(Pointwise):
    """The sine of `input` over `input`, elementwise: the spherical Bessel function of the first kind of order 0.

    >>> torch.special.spherical_bessel_j0(torch.tensor([0.0, 1.0]))
    tensor([1.0000, 0.8415])
    """

    names, forms = "special.spherical_bessel_j0", "function out"
    result, refuses, cname = "float", "complex half", "spherical_bessel_j0"

    def ref(xp, input):     return special_functions.spherical_bessel_j0(xp, input)

    def body(k, input):
        zero = input == 0
        out = k.sin(input) / k.where(zero, 1, input)
        return k.where(zero, 1, k.where(k.abs(input) == math.inf, 0, out))


def near_zero(input, slope):
    """`slope(input)`, and its limit 0.5 where `input` is too small to divide by."""
    far = input.abs() > 1e-7
    return slope(input.where(far, 1.0)).where(far, 0.5)
