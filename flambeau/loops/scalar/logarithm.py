"""Logarithms, and the inverse hyperbolic functions, which are made of them."""
import math
import struct

from .exponential import LN2
from .tools import (
    EXPONENT_BIAS,
    F32,
    F64,
    INF,
    LEAST_NORMAL_OF_TYPE,
    MANTISSA_BITS,
    NAN,
    ROUNDING_OFFSET,
    fast_two_sum,
    numbers,
    poly,
    power_of_two,
    wide,
)

# --- logarithms -------------------------------------------------------------------------------------------------------

# (log(1 + f) - f) / f^2, sqrt(1/2) <= 1 + f < sqrt(2). 2^-27.8
LOG_F32 = numbers("-1.fffff8p-2 1.55555p-2 -1.000428p-2 1.99a3fap-3 -1.54278p-3 1.2271b2p-3 -1.0f377cp-3 1.0848dcp-3 "
                  "-1.38303ep-4")
# (2 atanh(s) / s - 2) / s^2 in s^2 with s = f / (2 + f), the same f. 2^-61.5
LOG_F64 = numbers("1.5555555555555p-1 1.9999999999dfcp-2 1.249249242b801p-2 1.c71c7258b9222p-3 1.745cde499640dp-3 "
                  "1.3b20a85e1ac3ap-3 1.0f5d0cbbe9883p-3 1.0f60cc8620d34p-3")
LOG10_2 = {F32: numbers("1.3442p-2 -1.95ec1p-19"), F64: numbers("1.34413509f78p-2 1.fef311f12b358p-46")}
LOG2_E = {F32: numbers("1.715476p+0 1.4ae0cp-26"), F64: numbers("1.71547652b82fep+0 1.777d0ffda0d24p-56")}
LOG10_E = {F32: numbers("1.bcb7b2p-2 -1.5b235ep-27"), F64: numbers("1.bcb7b1526e50ep-2 1.95355baaafad3p-57")}
SQRT_HALF_BITS = {F32: 0x3F3504F3, F64: 0x3FE6A09E667F3BCD}      # the bits of sqrt(1/2)


def log_parts(e, x, denormal=True):
    """x = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), as k (a float) and f, for x a positive number."""
    type, bits = x.type, MANTISSA_BITS[x.type]
    if denormal:
        tiny = x < LEAST_NORMAL_OF_TYPE[type]
        x = e.where(tiny, x * 2.0**bits, x)
    if type == F32:
        over, bias = e.bits(x) - SQRT_HALF_BITS[type], 0.0
        k = e.cast(over >> bits, type)
    else:                                                        # few machines convert 64 bits: build a float with them
        over, bias = e.bits(x) + ((EXPONENT_BIAS[type] << bits) - SQRT_HALF_BITS[type]), 2.0**52 + EXPONENT_BIAS[type]
        k = e.from_bits(e.logical_shr(over, bits) | struct.unpack("q", struct.pack("d", 2.0**52))[0], type)
    k = e.where(tiny, k - (bias + bits), k - bias) if denormal else k - bias
    return k, e.from_bits((over & ((1 << bits) - 1)) + SQRT_HALF_BITS[type], type) - 1.0


def log1p_parts(e, f):
    """log(1 + f) in two parts for float64; sqrt(1/2) <= 1 + f < sqrt(2)."""
    s, half = f / (f + 2.0), 0.5 * f * f
    z = s * s
    high = f - half
    return high, e.fma(s, e.fma(z, poly(e, z, LOG_F64), half), (f - high) - half)


def log_ends(e, x, y):
    """The logarithm of `x`, which is `y` where x is a positive number."""
    y = e.where(x < INF, y, x)
    y = e.where(x == 0.0, -INF, y)
    return e.where(x < 0.0, NAN, y)


def log_of(e, k, f):
    """log(2^k (1 + f)), f as `log_parts` has it."""
    if f.type == F32:
        return e.fma(k, math.log(2), e.fma(f * f, poly(e, f, LOG_F32), f))
    high, low = log1p_parts(e, f)
    ln2, rest = LN2[F64]
    return e.fma(k, ln2, high) + e.fma(k, rest, low)


def log(e, x):
    return log_ends(e, x, log_of(e, *log_parts(e, x)))


def log1p(e, x):
    """log(u) with u = 1 + x, and what the rounding of u left out put back into f."""
    u = x + 1.0
    back = u - 1.0
    left = (x - back) + (1.0 - (u - back))
    k, f = log_parts(e, u, denormal=False)
    f = e.where(x < 2.0**60, f + left * exp2_of_int(e, -k), f)
    return e.copysign(log_ends(e, u, log_of(e, k, f)), x)        # the sign is lost with -0


def exp2_of_int(e, k):
    """2^k for integers between the least and the greatest exponent."""
    return power_of_two(e, k + (ROUNDING_OFFSET[k.type] + EXPONENT_BIAS[k.type]))


def log2(e, x):
    k, f = log_parts(e, x)
    return log_ends(e, x, _log_in_base(e, k, 0.0, f, LOG2_E[x.type]))


def log10(e, x):
    k, f = log_parts(e, x)
    high, low = LOG10_2[x.type]
    return log_ends(e, x, _log_in_base(e, k * high, k * low, f, LOG10_E[x.type]))


def _log_in_base(e, high, low, f, factor):
    """high + low + factor * log(1 + f); the factor is in two parts."""
    first, second = factor
    if f.type == F32:
        return high + e.fma(f, first, e.fma(f, second, e.fma(f * f, poly(e, f, [c * first for c in LOG_F32]), low)))
    a, b = log1p_parts(e, f)
    product = a * first
    rest = e.product_error(a, e.const(first, F64), product)
    rest = e.fma(b, first, e.fma(a, second, rest)) + low
    total, left = fast_two_sum(high, product)
    return total + (left + rest)


# --- inverse hyperbolic functions -------------------------------------------------------------------------------------

@wide
def asinh(e, x):
    """log1p(a + a^2 / (1 + sqrt(1 + a^2))) for a = |x|; log(2 a) where that is the same."""
    a = e.abs(x)
    far = a > 2.0**28
    y = log1p(e, e.where(far, a - 1.0, a + a * a / (e.sqrt(e.fma(a, a, 1.0)) + 1.0)))
    return e.copysign(e.where(far, y + math.log(2), y), x)


@wide
def acosh(e, x):
    """log1p(t + sqrt(2 t + t^2)) for t = x - 1; log(2 x) where that is the same."""
    t = x - 1.0
    far = x > 2.0**28
    y = log1p(e, e.where(far, t, t + e.sqrt(e.fma(t, t, t + t))))
    return e.where(x < 1.0, NAN, e.where(far, y + math.log(2), y))


@wide
def atanh(e, x):
    """log1p(2 a / (1 - a)) / 2 for a = |x|; below 1/2, where 1 - a is rounded, as 2 a + 2 a^2 / (1 - a)."""
    a = e.abs(x)
    twice = a + a
    near = a < 0.5
    q = e.where(near, twice * a, twice) / (1.0 - a)
    return e.copysign(0.5 * log1p(e, e.where(near, twice + q, q)), x)
