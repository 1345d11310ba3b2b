"""How a random sample moves with the parameters of its distribution, as array code for NumPy or CuPy.

A sample x is the quantile of some fixed probability, F(x; a) = u. So it moves by dx/da = -(dF/da) / p(x), where p is
the density (implicit reparameterisation: Figurnov, Mohamed and Mnih, 2018). For the gamma and the beta distribution

    dF/da  =  the integral of (d log p(t)/da) p(t) from the lower end to x
           =  minus the integral from x to the upper end

and of the two the one over the shorter tail is taken. A substitution t = t(s) makes it one over s from 0 to infinity of
(d log p/da) exp(-drop(s)), where the drop grows from 0; and where it is NEGLIGIBLE_EXPONENT nothing is left. From there
to 0 the scale of s is logarithmic, because small parameters stretch the tail over many orders of magnitude, and Gauss's
32 nodes give ten digits (fewer below parameters of 0.001). PyTorch has fitted polynomials here, of three or four
digits.
"""
import functools

import numpy as np

from .special_functions import digamma, elementwise

NEGLIGIBLE_EXPONENT = 36.0      # e**-36 is less than the last place
LEAST_NORMAL = np.finfo(np.float64).tiny


@functools.cache
def nodes():
    """Gauss's nodes and weights over [0, 1]."""
    at, weight = np.polynomial.legendre.leggauss(32)
    return [(float(t), float(w)) for t, w in zip((at + 1) / 2, weight / 2)]


def tail(xp, integrand, drop, slope, far, bend):
    """The integral of `integrand(s)` exp(-drop(s)) over positive s.

    `slope` is the derivative of `drop`, `far` a point beyond that where it reaches NEGLIGIBLE_EXPONENT, and `bend` the
    scale of s on which the integrand changes first.
    """
    for _ in range(10):         # Newton's steps back from there
        far = xp.maximum(far - (drop(far) - NEGLIGIBLE_EXPONENT) / slope(far), 0)
    length = xp.log1p(far / bend)
    total = xp.zeros_like(far)
    for t, weight in nodes():
        s = bend * xp.expm1(t * length)
        total += weight * (bend + s) * integrand(s) * xp.exp(-drop(s))
    return total * length


@elementwise
def gamma_slope(xp, alpha, x):
    """dx/dalpha of a sample `x` of the gamma distribution of shape `alpha` and scale 1; t = x exp(-s) or x exp(s)."""
    x = xp.maximum(x, LEAST_NORMAL)
    sign = xp.where(x <= alpha, -1.0, 1.0)
    gap, level = xp.abs(alpha - x), xp.log(x) - digamma(xp, alpha)

    def drop(s):  return gap * s + x * (xp.expm1(sign * s) - sign * s)
    def slope(s): return gap + x * sign * xp.expm1(sign * s)

    far = xp.minimum(NEGLIGIBLE_EXPONENT / xp.maximum(gap, LEAST_NORMAL),
                     xp.where(sign < 0, (NEGLIGIBLE_EXPONENT + x) / alpha, xp.sqrt(2 * NEGLIGIBLE_EXPONENT / x)))
    return sign * x * tail(xp, lambda s: level + sign * s, drop, slope, far, 1.0)


@elementwise
def dirichlet_slope(xp, x, alpha, total):
    """dx/dalpha / (1 - x) of one component of a Dirichlet sample, which by itself is beta(alpha, total - alpha).

    The other components shrink together when this one grows: component j moves by -x_j times this.
    """
    x = xp.minimum(xp.maximum(x, LEAST_NORMAL), 1 - 2.0**-53)
    beta = total - alpha
    below = x * total <= alpha
    # The nearer end lies `z` away; there the density goes like t**(p - 1), at the other end like t**(q - 1).
    z, p, q = xp.where(below, x, 1 - x), xp.where(below, alpha, beta), xp.where(below, beta, alpha)
    ratio = z / (1 - z)
    level = digamma(xp, total) - digamma(xp, alpha)

    def drop(s):  return p * s - (q - 1) * xp.log1p(-ratio * xp.expm1(-s))
    def slope(s): return p - (q - 1) * ratio * xp.exp(-s) / (1 - ratio * xp.expm1(-s))
    def rate(s):  return level + xp.where(below, xp.log(x) - s, xp.log1p(-z * xp.exp(-s)))

    far = (NEGLIGIBLE_EXPONENT + xp.maximum(q - 1, 0) * xp.log1p(ratio)) / p
    return xp.where(below, -ratio, 1.0) * tail(xp, rate, drop, slope, far, xp.minimum(1, 1 / ratio))
