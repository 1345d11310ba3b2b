"""What the scalar functions share: the two types, polynomials, rounding to an integer, numbers in two parts."""
import functools
import math
from fractions import Fraction

F32, F64 = "f32", "f64"
INF, NAN = math.inf, math.nan
MANTISSA_BITS = {F32: 23, F64: 52}                        # bits stored
EXPONENT_BIAS = {F32: 127, F64: 1023}                     # of the exponent
LEAST_NORMAL_OF_TYPE = {F32: 2.0**-126, F64: 2.0**-1022}  # the least normal number
# Adding this rounds to an integer k and leaves k in the lowest bits.
ROUNDING_OFFSET = {F32: 1.5 * 2**23, F64: 1.5 * 2**52}


def numbers(text):
    """Floats from their hexadecimal spelling."""
    return tuple(map(float.fromhex, text.split()))


def poly(e, x, coefficients):
    """Horner's rule."""
    *rest, out = coefficients
    for c in reversed(rest):
        out = e.fma(out, x, c)
    return out


def at_most(e, x, high):
    """`x`, or `high` where it is more; NaN stays."""
    high = e.const(high, x.type)
    return e.minimum(x, high) if e.target.maximum else e.where(high < x, high, x)


def clamp(e, x, low, high):
    low = e.const(low, x.type)
    return at_most(e, e.maximum(x, low) if e.target.maximum else e.where(low > x, low, x), high)


def round_to_int(e, x, scale, offset=0):
    """k, the integer nearest to `x * scale`, and a float with k + offset in its lowest bits."""
    t = e.fma(x, scale, ROUNDING_OFFSET[x.type] + offset)
    return t - (ROUNDING_OFFSET[x.type] + offset), t


def power_of_two(e, t):
    """2^k from a float with k + bias in its lowest bits."""
    return e.from_bits(e.bits(t) << MANTISSA_BITS[t.type], t.type)


def times_power_of_two(e, y, t):
    """y 2^k from a float with k + 2 bias in its lowest bits. In two steps, since 2^k may overflow or be denormal."""
    bits = MANTISSA_BITS[t.type]
    both = e.bits(t)
    first = (both << bits - 1) & ((2 * EXPONENT_BIAS[t.type] + 1) << bits)
    return y * e.from_bits(first, t.type) * e.from_bits((both << bits) - first, t.type)


def fast_two_sum(a, b):
    """The sum of two numbers, |a| >= |b|, and what its rounding left out."""
    total = a + b
    return total, b - (total - a)


def residue(e, c, a, b):
    """c - a b, exactly, where the product is near to c."""
    if e.target.fma:
        return e.fma(-a, b, c)
    product = a * b
    return (c - product) - e.product_error(a, b, product)


def minus_multiple(e, x, k, parts, digits):
    """x - k c for an integer k of at most so many binary `digits`, c in parts; good to the last bit even near 0."""
    if e.target.fma:
        for part in parts:
            x = e.fma(k, -part, x)
        return x
    if x.type == F32:                              # c, to the bits of float64, in two parts with an exact first product
        first, second = pieces(parts, 53 - digits, 2)
        k = e.cast(k, F64)
        return e.cast((e.cast(x, F64) - k * first) - k * second, F32)
    for piece in pieces(parts, 53 - digits, -(-120 // (53 - digits))):
        x = x - k * piece
    return x


@functools.cache
def pieces(parts, digits, count):
    """The sum of `parts` in so many pieces of at most so many binary digits each; the last is rounded, not cut."""
    left, out = sum(map(Fraction, parts)), []
    for i in range(count):
        scale = Fraction(2) ** (digits - math.frexp(float(left))[1])
        out.append(float(left if i == count - 1 else Fraction(math.floor(left * scale)) / scale))
        left -= Fraction(out[-1])
    return tuple(out)


def wide(function):
    """The function for float32 too, by way of float64."""
    @functools.wraps(function)
    def either(e, *args):
        if args[0].type == F64:
            return function(e, *args)
        return e.cast(function(e, *(e.cast(a, F64) for a in args)), F32)
    return either
