"""Modified Bessel functions of the first kind."""
import math

from .tools import elementwise, fill, poly


# To 20 the power series, DLMF 10.25.2, all terms positive; beyond, the asymptotic one, DLMF 10.40.1.
def _bessel_coefficients(order):
    power = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(42)]
    far = [1.0]
    for k in range(1, 28):
        far.append(far[-1] * -(4 * order - (2 * k - 1) ** 2) / (8 * k))
    return power[::-1], far[::-1]


BESSEL_COEFFICIENTS = [_bessel_coefficients(0), _bessel_coefficients(1)]


def _bessel(xp, order, x, scaled):
    """The Bessel function of order 0 or 1, times exp(-|x|) if `scaled`."""
    power, far = BESSEL_COEFFICIENTS[order]

    def below(xp, y):
        out = poly(0.25 * y * y, power)
        if order:
            out *= 0.5 * y
        return out * xp.exp(-y) if scaled else out

    def above(xp, y):
        out = poly(1 / y, far) / xp.sqrt(y) / math.sqrt(2 * math.pi)
        if scaled:
            return out
        half = xp.exp(0.5 * y)                             # exp(y) overflows before the result does
        return out * half * half

    size = xp.abs(x)
    out = xp.empty_like(x)
    fill(xp, out, size <= 20, below, size)
    fill(xp, out, ~(size <= 20), above, size)
    return xp.where(x < 0, -out, out) if order else out


@elementwise
def i0(xp, x):
    """The modified Bessel function of the first kind of order 0."""
    return _bessel(xp, 0, x, scaled=False)


@elementwise
def i0e(xp, x):
    """`i0` times exp(-|x|)."""
    return _bessel(xp, 0, x, scaled=True)


@elementwise
def i1(xp, x):
    """The modified Bessel function of the first kind of order 1."""
    return _bessel(xp, 1, x, scaled=False)


@elementwise
def i1e(xp, x):
    """`i1` times exp(-|x|)."""
    return _bessel(xp, 1, x, scaled=True)
