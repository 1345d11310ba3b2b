"""What the words of a body mean for complex expressions, in arithmetic on their real and imaginary parts.

Kernels compute with real numbers only (loops/ir.py). An operation on complex expressions is given them as pairs of real
ones, and gives such a pair, or a real expression. NaN and infinities come out as NumPy's formulas have them, which
PyTorch's scalar code shares: products are multiplied out, so that an infinity times a number without an imaginary part
has NaN in it, and quotients go by Smith's formula.
"""
import math

from ...base import dtypes

# exp(x) of a greater x overflows by itself, though not yet times a small cosine: so much of x is multiplied later
LATE_EXPONENT = {dtypes.float32: 80.0, dtypes.float64: 700.0}


class NotComplex(Exception):
    """A word that says nothing about complex numbers: the body leaves the case to the reference."""


def of_parts(op, k, args):
    """What `op` makes of its operands, given as pairs: a pair, or a real expression."""
    rule = COMPLEX_RULES.get(op)
    if rule is None:
        raise NotComplex(op)
    return rule(k, *args)


def _add(k, a, b):   return a[0] + b[0], a[1] + b[1]
def _sub(k, a, b):   return a[0] - b[0], a[1] - b[1]
def _neg(k, a):      return -a[0], -a[1]
def _eq(k, a, b):    return (a[0] == b[0]) & (a[1] == b[1])
def _ne(k, a, b):    return (a[0] != b[0]) | (a[1] != b[1])
def _isnan(k, a):    return k.isnan(a[0]) | k.isnan(a[1])


def _mul(k, a, b):
    (a, b), (c, d) = a, b
    return a * c - b * d, a * d + b * c


def _div(k, a, b):
    """By the greater part of the divisor (Robert Smith, Algorithm 116), which overflows late; a divisor of zero divides
    both parts."""
    (a, b), (c, d) = a, b
    turned, zero = ~(k.abs(c) >= k.abs(d)), (c == 0) & (d == 0)
    great, small = k.where(turned, d, c), k.where(turned, c, d)
    ratio = small / great
    scale = 1 / (great + small * ratio)
    re = k.where(turned, a * ratio + b, a + b * ratio) * scale
    im = k.where(turned, b * ratio - a, b - a * ratio) * scale
    size = k.abs(c)
    return k.where(zero, a / size, re), k.where(zero, b / size, im)


def _abs(k, a):
    x, y = k.abs(a[0]), k.abs(a[1])
    infinite = (x == math.inf) | (y == math.inf)              # also beside NaN
    if x.dtype is dtypes.float32:                             # whose squares are normal numbers of float64
        wide_x, wide_y = k.cast(x, dtypes.float64), k.cast(y, dtypes.float64)
        size = k.cast(k.sqrt(wide_x * wide_x + wide_y * wide_y), dtypes.float32)
        return k.where(infinite, math.inf, size)
    great, small = k.where(y > x, y, x), k.where(y > x, x, y)
    ratio = small / great
    size = great * k.sqrt(1 + ratio * ratio)
    return k.where(infinite, math.inf, k.where(great == 0, small, size))


def _exp(k, a):
    """As C's cexp has it: a real number stays one, and of an infinite one no angle makes NaN where the size is zero."""
    x, angle = a
    late = LATE_EXPONENT[x.dtype]
    far = x > late
    size, rest = k.exp(k.where(far, x - late, x)), k.where(far, math.exp(late), k.const(1.0, x.dtype))
    re, im = size * k.cos(angle) * rest, size * k.sin(angle) * rest
    re, im = k.where(angle == 0, size * rest, re), k.where(angle == 0, angle, im)
    none = (x == -math.inf) & ~(k.abs(angle) < math.inf)
    whole = (x == math.inf) & ~(k.abs(angle) < math.inf)
    return k.where(none, 0, k.where(whole, math.inf, re)), k.where(none, 0, k.where(whole, math.nan, im))


COMPLEX_RULES = {"add": _add, "sub": _sub, "mul": _mul, "div": _div, "neg": _neg, "eq": _eq, "ne": _ne, "abs": _abs,
                 "isnan": _isnan, "exp": _exp}
