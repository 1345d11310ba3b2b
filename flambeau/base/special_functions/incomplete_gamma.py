"""The incomplete gamma functions, igamma and igammac."""
import functools
import math

from .error_functions import ERF_CENTRE, erf_centre, erfcx_tail
from .gamma import lgamma_1p, stirling
from .tools import elementwise, fill, poly

# P (lower) and Q = 1 - P (upper). A power series gives P for x below a, a continued fraction Q for x above,
# another series Q for small x, and N. M. Temme's uniform expansion (SIAM J. Math. Anal. 10, 1979) both, where
# a is large and x near it.
TEMME_DISTANCE = 0.3           # how near, |x - a| / a
TEMME_LEAST_A = 30.0           # how large
TEMME_ORDERS, TEMME_POWERS = 11, 18


@functools.cache
def _temme_table():
    """The coefficients of eta^n a^-k in the uniform expansion, by recurrence, DLMF 8.12.12 and 8.12.13."""
    from fractions import Fraction  # floats lose digits here; imported late, as few programs come this way
    count = TEMME_POWERS + 2 * TEMME_ORDERS + 2
    alpha = [Fraction(0), Fraction(1)]
    for n in range(2, count + 1):
        alpha.append((alpha[n - 1] - sum(j * alpha[j] * alpha[n - j + 1] for j in range(2, n))) / (n + 1))
    stirling = [Fraction(1)]                               # of gamma, DLMF 5.11.3: the odd alphas once more
    for k in range(1, TEMME_ORDERS):
        stirling.append(alpha[2 * k + 1] * math.prod(range(1, 2 * k + 2, 2)))
    first = [(n + 2) * alpha[n + 2] - (n == 0) for n in range(count - 1)]
    row, table = first, []
    for k in range(TEMME_ORDERS):
        if k:
            row = [(-1) ** k * stirling[k] * first[n] + (n + 2) * row[n + 2] for n in range(len(row) - 2)]
        table.append([float(c) for c in reversed(row[:TEMME_POWERS - k])])  # the smaller a^-k, the fewer matter
    return table


def _log1p_less(xp, m):
    """m - log1p(m) for m above -1, precise near 0 too: with v = m / (2 + m), log1p(m) is 2 atanh(v)."""
    out = m - xp.log1p(m)
    near = xp.abs(m) < 0.5

    def series(xp, m):
        v = m / (2 + m)
        w = v * v
        return v * (m - 2 * w * poly(w, [1 / n for n in range(37, 1, -2)]))
    fill(xp, out, near, series, m)
    return out


def _gamma_density(xp, a, x):
    """x^a e^-x / gamma(a + 1), which every method below starts from."""
    out = xp.empty_like(x)

    def small(xp, a, x):
        x = xp.minimum(x, 2000.0)                          # beyond, the result is 0
        half = xp.exp(-0.5 * x)                            # twice, lest exp(-x) underflow alone
        return half * xp.power(x, a) * half * xp.exp(-lgamma_1p(xp, a))

    def large(xp, a, x):                                   # C. Loader's saddle point (2000): nothing cancels
        m = (x - a) / a
        excess = xp.where(x < 0.5 * a, m - xp.log(x / a), _log1p_less(xp, xp.maximum(m, -0.5)))
        return xp.exp(-a * excess - stirling(xp, a)) / xp.sqrt(2 * math.pi * a)

    fill(xp, out, a <= 12, small, a, x)
    fill(xp, out, a > 12, large, a, x)
    return out


def _p_series(xp, a, x):
    """P as the density times the sum of x^k / ((a + 1) ... (a + k)), DLMF 8.11.4."""
    term = xp.ones_like(x)
    total = xp.ones_like(x)
    for k in range(1, 2000):
        term *= x / (a + k)
        total += term
        if k % 8 == 0 and not (term > 1e-17 * total).any():
            break
    return _gamma_density(xp, a, x) * total


def _q_fraction(xp, a, x):
    """Q as the density times a continued fraction, DLMF 8.9.2 contracted, by Steed's forward recurrence."""
    b = x + 1 - a
    d = 1 / b
    step = d
    total = d
    for k in range(1, 2000):
        numerator = k * (a - k)
        b = b + 2
        d = 1 / (b + numerator * d)
        step = step * (b * d - 1)
        total = total + step
        if k % 8 == 0 and not (xp.abs(step) > 1e-17 * xp.abs(total)).any():
            break
    return _gamma_density(xp, a, x) * a * total


def _q_small(xp, a, x):
    """Q for small x, where P may be near 1: the first term of DLMF 8.7.3 by expm1, then the others."""
    power = a * xp.log(x) - lgamma_1p(xp, a)
    term = xp.ones_like(x)
    rest = xp.zeros_like(x)
    for k in range(1, 22):
        term *= -x / k
        rest += term / (a + k)
    return -xp.expm1(power) - xp.exp(power) * a * rest


def _temme(xp, a, x, upper):
    """DLMF 8.12.3 and 4: half an error function plus a correction. The smaller of P and Q is computed so."""
    m = (x - a) / a
    excess = _log1p_less(xp, m)
    eta = xp.copysign(xp.sqrt(2 * excess), m)
    correction = xp.zeros_like(x)
    for row in reversed(_temme_table()):
        correction /= a
        correction += poly(eta, row)
    y = xp.sqrt(a * excess)
    scaled = xp.empty_like(y)                              # exp(y^2) erfc(y)
    centre = y <= ERF_CENTRE
    fill(xp, scaled, centre, lambda xp, y: xp.exp(y * y) * (1 - erf_centre(xp, y)), y)
    fill(xp, scaled, ~centre, erfcx_tail, y)
    correction /= xp.where(m > 0, 1.0, -1.0) * xp.sqrt(2 * math.pi * a)
    tail = xp.exp(-a * excess) * (0.5 * scaled + correction)
    return xp.where((m > 0) == upper, tail, 1 - tail)


def _incomplete_gamma(xp, a, x, upper):
    regular = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
    out = xp.full_like(x, math.nan)
    uniform = regular & (a >= TEMME_LEAST_A) & (xp.abs(x - a) < TEMME_DISTANCE * a)
    certain = regular & ~uniform & (a > 1e6)               # so far out that P is 0 or 1
    regular = regular & ~uniform & ~certain
    fraction = regular & (x > 1.1) & (x > a)
    series = regular & ~fraction
    fill(xp, out, uniform, lambda xp, a, x: _temme(xp, a, x, upper), a, x)
    if upper:
        small = series & (x <= 1.1) & xp.where(x <= 0.5, a * -xp.log(x) < 0.4, a < 1.1 * x)
        fill(xp, out, small, _q_small, a, x)
        fill(xp, out, series & ~small, lambda xp, a, x: 1 - _p_series(xp, a, x), a, x)
        fill(xp, out, fraction, _q_fraction, a, x)
    else:
        fill(xp, out, series, _p_series, a, x)
        fill(xp, out, fraction, lambda xp, a, x: 1 - _q_fraction(xp, a, x), a, x)
    none, whole = (1.0, 0.0) if upper else (0.0, 1.0)
    out[certain & (x < a)] = none
    out[certain & (x > a)] = whole
    out[(x == math.inf) & ~(a < 0)] = whole
    out[(a == math.inf) & ~(x < 0)] = none
    out[(x == 0) & ~(a < 0)] = none
    out[(a == 0) & (x > 0)] = whole
    out[((a == 0) & (x == 0)) | ((a == math.inf) & (x == math.inf))] = math.nan
    return out


@elementwise
def igamma(xp, a, x):
    """The regularised lower incomplete gamma function P(a, x), for `a` and `x` from 0 on."""
    return _incomplete_gamma(xp, a, x, upper=False)


@elementwise
def igammac(xp, a, x):
    """The regularised upper incomplete gamma function Q(a, x) = 1 - P(a, x)."""
    return _incomplete_gamma(xp, a, x, upper=True)
