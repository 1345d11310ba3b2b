"""Orthogonal polynomials of a degree for each element, as array code for NumPy or CuPy.

Every function takes the array module `xp`, arrays x and n of one float dtype that broadcast, and computes in that
dtype, as PyTorch does. The degree is cut off to an int64; below zero, and where there is none, the result is 0. Degrees
are reached one after the other by the recurrence of three terms, DLMF 18.9, until nothing but NaN is left; in the
interval of orthogonality the Chebyshev polynomials of high degrees are cosines and sines, DLMF 18.5, and Hermite's are
NaN beyond a degree that is PyTorch's.
"""
from .special_functions import quiet

DEGREES_BETWEEN_CHECKS = 64        # of a recurrence, after which it is seen whether anything is left
MAX_HERMITE_DEGREE = {4: 128, 8: 512}      # by bytes of an element


def elementwise(body):
    """A function of flat arrays as one of any shape; degrees that no int64 can hold count as less than zero."""
    def call(xp, x, n):
        x, n = xp.broadcast_arrays(xp.asarray(x), xp.asarray(n))
        with quiet(xp):
            degrees = xp.where(xp.abs(n) < 2.0 ** 63, xp.trunc(n), -1)
            out = body(xp, x.reshape(-1), degrees.reshape(-1))
            return xp.where(degrees.reshape(-1) < 0, 0, out).astype(x.dtype).reshape(x.shape)
    call.__name__, call.__doc__ = body.__name__, body.__doc__
    return call


def recurrence(xp, x, n, first, step):
    """1 of degree 0, `first` of degree 1, and `step(k, degree k, degree k - 1)` of each degree k + 1."""
    before, now = xp.ones_like(x), first
    out = xp.where(n < 1, before, now)
    for k in range(1, int(n.max()) if n.size else 0):
        before, now = now, step(x.dtype.type(k), now, before)
        out = xp.where(n == k + 1, now, out)
        if k % DEGREES_BETWEEN_CHECKS == 0 and not ((n > k + 1) & (now == now)).any():
            return xp.where(n > k + 1, now, out)
    return out


def chebyshev(xp, x, n, first, from_degree, closed, right, left):
    """Those with the recurrence p(k + 1) = 2 x p(k) - p(k - 1): `closed` inside, from a degree on; `right` and `left`
    are what they are at 1 and at -1."""
    inside = (xp.abs(x) < 1) & (n > from_degree)
    out = recurrence(xp, x, xp.where(inside | (xp.abs(x) == 1), 0, n), first, lambda k, p, q: (x + x) * p - q)
    out = xp.where(inside, closed(xp.arccos(xp.where(inside, x, 0))), out)
    return xp.where(x == 1, right, xp.where(x == -1, left, out))


def signs(xp, n):
    """1 where the degree is even, -1 where it is odd."""
    return 1 - 2 * xp.mod(n, 2)


@elementwise
def chebyshev_polynomial_t(xp, x, n):
    """The first kind: cos(n a) at cos(a)."""
    return chebyshev(xp, x, n, x, 6, lambda a: xp.cos(n * a), 1, signs(xp, n))


@elementwise
def chebyshev_polynomial_u(xp, x, n):
    """The second kind: sin((n + 1) a) / sin(a)."""
    return chebyshev(xp, x, n, x + x, 8, lambda a: xp.sin((n + 1) * a) / xp.sin(a), n + 1, signs(xp, n) * (n + 1))


@elementwise
def chebyshev_polynomial_v(xp, x, n):
    """The third kind: cos((n + 1/2) a) / cos(a / 2)."""
    return chebyshev(xp, x, n, x + x - 1, 8, lambda a: xp.cos((n + 0.5) * a) / xp.cos(a / 2), 1,
                     signs(xp, n) * (n + n + 1))


@elementwise
def chebyshev_polynomial_w(xp, x, n):
    """The fourth kind: sin((n + 1/2) a) / sin(a / 2)."""
    return chebyshev(xp, x, n, x + x + 1, 8, lambda a: xp.sin((n + 0.5) * a) / xp.sin(a / 2), n + n + 1, signs(xp, n))


def shifted_chebyshev_polynomial_t(xp, x, n):    return chebyshev_polynomial_t(xp, shifted(xp, x), n)
def shifted_chebyshev_polynomial_u(xp, x, n):    return chebyshev_polynomial_u(xp, shifted(xp, x), n)
def shifted_chebyshev_polynomial_v(xp, x, n):    return chebyshev_polynomial_v(xp, shifted(xp, x), n)
def shifted_chebyshev_polynomial_w(xp, x, n):    return chebyshev_polynomial_w(xp, shifted(xp, x), n)


def shifted(xp, x):
    """From [0, 1] to [-1, 1]."""
    x = xp.asarray(x)
    return x + x - x.dtype.type(1)


def hermite(xp, x, n, first, step):
    """By the recurrence, as far as PyTorch goes."""
    beyond = n > MAX_HERMITE_DEGREE[x.dtype.itemsize]
    return xp.where(beyond, xp.nan, recurrence(xp, x, xp.where(beyond, 0, n), first, step))


@elementwise
def hermite_polynomial_h(xp, x, n):
    """The physicist's, orthogonal with the weight e^(-x^2)."""
    return hermite(xp, x, n, x + x, lambda k, p, q: (x + x) * p - (k + k) * q)


@elementwise
def hermite_polynomial_he(xp, x, n):
    """The probabilist's, orthogonal with the weight e^(-x^2 / 2)."""
    return hermite(xp, x, n, x, lambda k, p, q: x * p - k * q)


@elementwise
def laguerre_polynomial_l(xp, x, n):
    """Laguerre's, orthogonal on the positive numbers with the weight e^-x."""
    return recurrence(xp, x, n, 1 - x, lambda k, p, q: ((k + k + (1 - x)) * p - k * q) / (k + 1))


@elementwise
def legendre_polynomial_p(xp, x, n):
    """Legendre's, orthogonal on [-1, 1]."""
    out = recurrence(xp, x, xp.where(xp.abs(x) == 1, 0, n), x, lambda k, p, q: ((k + k + 1) * x * p - k * q) / (k + 1))
    return xp.where(x == -1, signs(xp, n), out)
