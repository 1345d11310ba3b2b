"""sinc, the spherical Bessel function, xlog1py and entr: a line or two each."""
import math

from .tools import elementwise


@elementwise
def sinc(xp, x):
    """sin(pi x) / (pi x), and 1 at 0."""
    whole = xp.rint(x)
    sine = xp.sin(math.pi * (x - whole))
    sine = xp.where(whole == 2 * xp.floor(0.5 * whole), sine, -sine)
    return xp.where(x == 0, 1.0, sine / (math.pi * x))


@elementwise
def spherical_bessel_j0(xp, x):
    """sin(x) / x, 1 at 0 and 0 at the infinities."""
    return xp.where(x == 0, 1.0, xp.where(xp.isinf(x), 0.0, xp.sin(x) / x))


@elementwise
def xlog1py(xp, x, y):
    """`x` times log1p(`y`), and 0 where `x` is 0 unless `y` is nan."""
    return xp.where((x == 0) & ~xp.isnan(y), 0.0, x * xp.log1p(y))


@elementwise
def entr(xp, x):
    """-`x` log(`x`), 0 at 0 and -inf below."""
    return xp.where(x == 0, 0.0, xp.where(x < 0, -math.inf, -x * xp.log(x)))
