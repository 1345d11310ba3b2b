"""The scalar mathematics of kernels: exp, log, sin and the rest, written in the arithmetic of `emit`.

    exp(e, x) → the Term of e to the x, where x is a Term of float32 or float64 with any number of lanes

Every lane takes the same steps and what differs is selected; only huge arguments of sin, cos and tan have a block of
their own. Results are within 2 units in the last place (ulp) of the correctly rounded ones over the whole range,
denormal numbers, infinities, NaN and signed zeros included, unless said. Functions that few programs spend their time
in compute float32 in float64.

Where the polynomials come from: they are our own minimax fits (Remez exchange in 40 digits, the coefficients then
rounded to the type, for float32 with a search among their neighbours). Beside each stands what is fitted, where, and
the greatest relative error that it adds to the result. Coefficients start at the lowest power. Constants in several
parts are the number rounded, then what is left of it rounded.

Note [Without fma]: `e.fma` rounds twice on a processor that has no such instruction, which costs a polynomial a
fraction of a unit. Where a result hangs on the one rounding, the constant's first part is short enough that its product
is exact, or it is said which exact thing is meant: `e.product_error`, `residue`, `minus_multiple`, `e.fma_exact`.
"""
import functools
import math
import struct
from fractions import Fraction
from itertools import count

from .emit import Emit, Term, literal

F32, F64 = "f32", "f64"
INF, NAN = math.inf, math.nan
MANTISSA_BITS = {F32: 23, F64: 52}                        # bits stored
EXPONENT_BIAS = {F32: 127, F64: 1023}                     # of the exponent
LEAST_NORMAL_OF_TYPE = {F32: 2.0**-126, F64: 2.0**-1022}  # the least normal number
# Adding this rounds to an integer k and leaves k in the lowest bits.
ROUNDING_OFFSET = {F32: 1.5 * 2**23, F64: 1.5 * 2**52}


# --- tools ------------------------------------------------------------------------------------------------------------

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


# --- exponentials -----------------------------------------------------------------------------------------------------

LOG2E = 1 / math.log(2)
# in a first part short enough that its product with an exponent is exact, and the rest
LN2 = {F32: numbers("1.62e4p-1 1.7f7d1cp-20"), F64: numbers("1.62e42fefa38p-1 1.ef35793c7673p-45")}
# exp(r), |r| <= ln 2. float32: 2^-26.0, float64: 2^-55.4
EXP = {F32: numbers("1 1 1.00000cp-1 1.55551p-3 1.5549f4p-5 1.11282ap-7 1.71be46p-10 1.9b473p-13"),
       F64: numbers("1 1 1.ffffffffffff3p-2 1.55555555555b7p-3 1.5555555556941p-5 1.1111111108263p-7 "
                    "1.6c16c169c115cp-10 1.a01a01b2364b2p-13 1.a01a0580cbdb9p-16 1.71de2a0145dc4p-19 "
                    "1.27e1ca9807e1bp-22 1.ae7132cf3d9b3p-26 1.217a66270be87p-29 1.5e6d61f34f440p-33")}
# (exp(r) - 1 - r) / r^2, |r| <= ln 2 / 2. Of exp(r) - 1 float32: 2^-26.1, float64: 2^-59.7
EXPM1 = {F32: numbers("1.fffffep-2 1.5554bp-3 1.5556cp-5 1.1228ap-7 1.6bec08p-10"),
         F64: numbers("1p-1 1.5555555555559p-3 1.555555555553ep-5 1.111111110f6abp-7 1.6c16c16c1f155p-10 "
                      "1.a01a01afe93c7p-13 1.a01a017b97ffbp-16 1.71ddf842ff026p-19 1.27e5366018784p-22 "
                      "1.af5ee6a218ce4p-26 1.1ee881c633445p-29")}
EXP_ENDS = {F32: (-104.0, 89.0), F64: (-746.0, 710.0)}          # 0 before, infinity after


def exp(e, x):
    """y 4^k, the power in two steps because 4^k alone may overflow or be denormal."""
    high, low = LN2[x.type]
    nothing = x < EXP_ENDS[x.type][0]
    x = clamp(e, x, *EXP_ENDS[x.type])
    k, t = round_to_int(e, x, LOG2E / 2, EXPONENT_BIAS[x.type])
    r = e.fma(k, -2 * low, e.fma(k, -2 * high, x))
    s = power_of_two(e, t)
    # Masks are often written as minus infinity. A product that falls below the least number takes some processors 150
    # cycles, one with zero does not.
    return poly(e, r, EXP[x.type]) * s * e.where(nothing, 0.0, s)


def exp_parts(e, x, offset=0, more=None):
    """e^(x + more) = 2^k (1 + w), as w and a float with k + bias + offset in its lowest bits."""
    high, low = LN2[x.type]
    k, t = round_to_int(e, x, LOG2E, EXPONENT_BIAS[x.type] + offset)
    r = e.fma(k, -high, x)
    r = e.fma(k, -low, r) if more is None else r + e.fma(k, -low, more)
    return e.fma(r * r, poly(e, r, EXPM1[x.type]), r), t


def exp2(e, x):
    """Exact for integers."""
    x = clamp(e, x, *{F32: (-151.0, 129.0), F64: (-1076.0, 1025.0)}[x.type])
    k, t = round_to_int(e, x, 1.0, 2 * EXPONENT_BIAS[x.type])
    r = (x - k) * math.log(2)
    return times_power_of_two(e, e.fma(r * r, poly(e, r, EXPM1[x.type]), r) + 1.0, t)


def expm1(e, x):
    """2 (s w + (s - 1/2)) with s = 2^(k - 1), which is exact around 0 and does not overflow before its time."""
    end = {F32: -18.0, F64: -38.0}[x.type]                       # -1 before
    w, t = exp_parts(e, clamp(e, x, end, EXP_ENDS[x.type][1]), -1)
    s = power_of_two(e, t)
    y = e.fma(s, w, s - 0.5)
    return e.where(e.abs(x) < 2.0**-60, x, y + y)                # halves of denormal numbers are not exact


def sigmoid(e, x):
    """y / (y + c) with y = c e^x; the factor c keeps y out of the denormal numbers."""
    drop, high = {F32: (24, 18.0), F64: (64, 38.0)}[x.type]      # 1 after
    w, t = exp_parts(e, clamp(e, x, EXP_ENDS[x.type][0], high), drop)
    s = power_of_two(e, t)
    y = e.fma(w, s, s)
    return y / (y + 2.0**drop)


# (tanh(r) - r) / r^3 in r^2, |r| <= ln 2 / 4. float32: 2^-32.5, float64: 2^-60.9
TANH = {F32: numbers("-1.55554ep-2 1.1105b6p-3 -1.afec3cp-5"),
        F64: numbers("-1.5555555555555p-2 1.1111111110d0ep-3 -1.ba1ba1b8fb8d2p-5 1.664f47501c762p-6 "
                     "-1.226d86a2d520dp-7 1.d6662b30e68ccp-9 -1.6bb9147b4164ap-10")}


def tanh(e, x):
    """tanh(a + r) = (tanh a + u) / (1 + u tanh a) with u = tanh r and tanh a = (s - 1) / (s + 1), s = 2^k = e^2a."""
    end = {F32: 9.25, F64: 20.0}[x.type]                         # 1 after
    x = clamp(e, x, -end, end)
    k, t = round_to_int(e, x, 2 * LOG2E, EXPONENT_BIAS[x.type])
    high, low = (part / 2 for part in LN2[x.type])
    r = e.fma(k, -low, e.fma(k, -high, x))
    z = r * r
    u = r * e.fma(z, poly(e, z, TANH[x.type]), 1.0)
    s = power_of_two(e, t)
    less, more = 1.0 - s, s + 1.0                                # not s - 1, whose +0 would be added to u = -0
    return e.fma(more, u, -less) / e.fma(-less, u, more)


@wide
def cosh(e, x):
    y = _eighth_of_exp(e, e.abs(x))
    y = y + 2.0**-6 / y
    return y * 4.0


# (sinh(x) - x) / x^3 in x^2, |x| <= 1. 2^-56.8
SINH = numbers("1.5555555555555p-3 1.1111111111111p-7 1.a01a01a019fc1p-13 1.71de3a5573f79p-19 1.ae6456741b8b8p-26 "
               "1.61246afa3129cp-33 1.ae756e96908fdp-41 1.9a7941a1006a2p-49")


@wide
def sinh(e, x):
    a, z = e.abs(x), x * x
    y = _eighth_of_exp(e, a)
    y = (y - 2.0**-6 / y) * 4.0
    return e.copysign(e.where(a < 1.0, e.fma(a * z, poly(e, z, SINH), a), y), x)


def _eighth_of_exp(e, a):
    """e^a / 8 for a >= 0, so that what is finite does not overflow on the way."""
    w, t = exp_parts(e, at_most(e, a, 711.0), -3)
    s = power_of_two(e, t)
    return e.fma(s, w, s)


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


# --- the error function -----------------------------------------------------------------------------------------------

# 4 (1 - erfc(x)^(1/4)) = c x + x^2 P(x), 0 <= x <= 3.93; c = 2 / sqrt(pi) in two parts, then P. 2^-26.0
ERF_F32 = numbers("1.20dd76p+0 -1.f7ac92p-25 1.e8eccp-2 -1.fac2dp-5 -1.30f524p-4 1.395e6ep-8 1.021e4p-7 "
                  "-1.cc07e2p-11 -1.13a7a2p-11 1.31ab7p-13 -1.774256p-17")
# erf(x) / x in x^2, 0 <= x <= 1/2, the first coefficient in two parts. 2^-57.1
ERF_F64 = numbers("1.20dd750429b6dp+0 1.1ae3a914fed8p-56 -1.812746b0379e7p-2 1.ce2f21a042b46p-4 -1.b82ce31280592p-6 "
                  "1.565bcd0ae294ap-8 -1.c02db24fe995bp-11 1.f9a2a9e047064p-14 -1.f4bc02bef371ap-17 "
                  "1.b77c4fb1aa4f5p-20 -1.3a2306b662053p-23")
# (x + 4) e^(x^2) erfc(x) in t = (x - 4) / (x + 4), 0.45 <= x <= 27.5, the first coefficient in two parts. 2^-55.4
ERFC = numbers("1.18932bf08e154p+0 1.0981aa12747cep-54 -1.f3fe31ecb49bfp-1 1.8be202d26c705p-1 -1.14eacb1ad0348p-1 "
               "1.52cac23710173p-2 -1.645fd8a4bb928p-3 1.38dbd2c8e217fp-4 -1.b00c052c7df3dp-6 1.908f472376125p-8 "
               "-1.269b516cc1962p-12 -1.dd28443225ee2p-12 1.72cd9ecb7587bp-13 -1.e7ed9d6a1f8b5p-19 "
               "-1.3c6daef03f811p-16 1.3b147fd157ebbp-18 1.7e1e07bb7a4eap-20 -1.c71fa956df50ap-21 "
               "-1.3fc87b7a0b478p-24 1.0f979a62be3ebp-23 -1.6a57519eb4dc3p-34 -1.2c254e9400829p-26 "
               "1.14fc236ef3b91p-31 1.e05fdbe9b2fffp-30")


def erf(e, x):
    if x.type == F64:
        a = e.abs(x)
        return e.copysign(e.where(a < 0.5, _erf_near(e, a), 1.0 - _erfc_far(e, a)), x)
    # 1 - (1 - v/4)^4 by two squarings: 1 - (1 - v/2n)^2 = (v - v^2/4n) / n
    a = e.abs(x)
    slope, *rest = ERF_F32
    bend = a * poly(e, a, rest)
    v = e.fma(a, slope, bend)
    v = e.fma(a, slope, e.fma(v * -0.125, v, bend))              # v - v^2/8 without the rounding of v
    return e.copysign(e.where(a > 3.92, 1.0, e.fma(v * -0.25, v, v)), x)      # 1 after, exactly


# (1 + 2 x) erfcx(x) in (x - 4) / (x + 4), x >= 0. 2^-28.8
ERFC_F32 = numbers("1.3ba5916644a58p+0 -1.1df1a98ff2c5dp-3 1.f7f754cb46002p-7 1.16ec1a9a0434ep-4 -1.9dddd45423d85p-4 "
                   "1.7ff538736accap-4 -1.0fa164bb50471p-4 1.30438ba196fa3p-5 -1.0a040ff0ceeebp-6 1.4cff49f741852p-8 "
                   "-1.70fcb70393771p-11 -1.04119a5ba60fp-12 1.d776a09a4e3fcp-14")


def erfc(e, x):
    if x.type == F32:
        return e.cast(_erfc_short(e, e.cast(x, F64)), F32)
    a = e.abs(x)
    far = _erfc_far(e, a)
    return e.where(a < 0.5, 1.0 - _erf_near(e, x), e.where(x < 0.0, 2.0 - far, far))


def _erfc_short(e, x):
    """Of float32, whose square is exact: e^(-a^2) erfcx(a), with one division for the argument and the result."""
    a = at_most(e, e.abs(x), 11.0)                               # 0 after
    both = 0.5 / ((a + 4.0) * (a + 0.5))
    t = e.fma(both * (a + 0.5), -16.0, 1.0)
    square = -(a * a)
    k, bits = round_to_int(e, square, LOG2E, EXPONENT_BIAS[F64])
    y = poly(e, e.fma(k, -math.log(2), square), EXP[F32]) * power_of_two(e, bits)
    y = y * poly(e, t, ERFC_F32) * (both * (a + 4.0))
    return e.where(x < 0.0, 2.0 - y, y)


def _erf_near(e, x):
    slope, *rest = ERF_F64
    z = x * x
    return e.fma(x, slope, x * e.fma(z, poly(e, z, rest[1:]), rest[0]))


def _erfc_far(e, a):
    """e^(-a^2) P(t) / (a + 4); products and quotient in two parts, so that only the last sum is rounded."""
    a = at_most(e, a, 27.5)                                      # 0 after
    d = a + 4.0
    back = d - 4.0
    left = (a - back) + (4.0 - (d - back))
    q = 1.0 / d
    q_low = q * (residue(e, e.const(1.0, F64), q, d) - q * left)
    t = e.fma(q_low, -8.0, e.fma(q, -8.0, 1.0))
    first, *rest = ERFC
    p, p_low = fast_two_sum(e.const(first, F64, a.lanes), e.fma(t, poly(e, t, rest[1:]), rest[0]))
    g = p * q
    g_low = e.fma(p, q_low, e.fma(p_low, q, e.product_error(p, q, g)))
    square = a * a
    w, t = exp_parts(e, -square, EXPONENT_BIAS[F64], -e.product_error(a, a, square))
    return times_power_of_two(e, g + e.fma(g, w, e.fma(g_low, w, g_low)), t)


# erfinv(x) / x in w = -log(1 - x^2), 0 <= w <= 6, a quotient. 2^-54.1
ERFINV = (numbers("1.c5bf891b4ef6bp-1 1.368edf079de62p-2 1.3982a8e44b9b5p-4 1.bed7f0b54d514p-7 1.d0773aacc13dap-10 "
                  "1.66f76cd73d614p-13 1.8372b52c9f141p-17 1.d8528b332c005p-22 1.12f3504bdaba6p-31 "
                  "-1.40e466708eaebp-31"),
          numbers("1 1.4960fac273122p-4 1.ac4be0108eba5p-5 1.aecaab7e2a2b2p-9 1.aaae0bcb93e41p-11 "
                  "1.1d7b30fd89e15p-15 1.b008bbc8d44b6p-19 1.4d3ab8f96787ep-25 -1.442f3b83584e4p-29 "
                  "-1.7f911ff8ed831p-35"))
# erfinv(x) / sqrt(w) in sqrt(w) - 2.4, 5.9 <= w <= 36.8, a quotient. 2^-54.4
ERFINV_FAR = (numbers("1.dcb588db21533p-1 1.71c0ddb7a702p-1 1.7425095e27f05p-1 1.75a05e84b8db2p-2 1.925c55673a95bp-3 "
                      "1.2231543894fb6p-4 1.8c49e92951ae7p-6 1.8a29bda9dbd08p-8 1.4e6a2493d59a5p-10 "
                      "1.5f612728931e2p-13 1.79e97005dbaeep-17"),
              numbers("1 1.7fb501349dac9p-1 1.879c0f2c58d89p-1 1.81097a992c268p-2 1.a1f7a86c8bc2ap-3 "
                      "1.29615d57f408cp-4 1.96cc78b916ddap-6 1.9139b01a2a45cp-8 1.5308511c67b0ap-10 "
                      "1.5fdafb95f5675p-13 1.79d2a8d005829p-17"))


# The same of float32, which comes to w = 16 only; far in sqrt(w) - 3. 2^-36
ERFINV_F32 = (numbers("1.c5bf891b3abe5p-1 1.3958535d0a80ap-2 1.ee063305d5451p-5 1.06eeba7758e5p-7 1.6a7998fedfd1fp-11 "
                      "1.0428b94e59166p-15"),
              numbers("1 1.55f52ad6db8edp-4 1.0fa3bd87eba57p-5 1.f751f84d229dap-10 1.b80d662a35427p-13 "
                      "1.eaa0ab81e96d1p-20"))
ERFINV_FAR_F32 = (numbers("1.e37701db23cfp-1 1.fa5e00f7d2651p-1 1.19ed6098ce991p-1 1.281c0df260da1p-3 "
                          "1.1cf903d8c8201p-6"),
                  numbers("1 1.06d991eaa7298p+0 1.2202fc7b83e0ap-1 1.2a7dcede53336p-3 1.1c408078fdd7cp-6"))


def erfinv(e, x):
    """float64: 5 ulp."""
    if x.type == F32:
        return e.cast(_erfinv_of(e, e.cast(x, F64), _short_log, _short_root, ERFINV_F32, ERFINV_FAR_F32, 3.0), F32)
    return _erfinv_of(e, x, log, lambda e, w: e.sqrt(w), ERFINV, ERFINV_FAR, 2.4)


def _short_log(e, x):
    """A logarithm in float64 with the digits of float32 and some more: of numbers from 2^-1000 on."""
    k, f = log_parts(e, x, denormal=False)
    y = e.fma(k, math.log(2), e.fma(f * f, poly(e, f, POW_LOG_F32), f))
    return e.where(x == 0.0, -INF, e.where(x < 0.0, NAN, y))


def _short_root(e, x):
    return e.cast(e.sqrt(e.cast(x, F32)), F64)


def _erfinv_of(e, x, log, root, near_fit, far_fit, centre):
    a = e.abs(x)
    w = -log(e, (1.0 - a) * (1.0 + a))
    near = w < 6.0
    s = root(e, w)
    t = e.where(near, w, s - centre)
    top, bottom = (e.where(near, poly(e, t, p), poly(e, t, q)) for p, q in zip(near_fit, far_fit, strict=True))
    y = e.where(near, a, s) * (top / bottom)
    return e.copysign(e.where(a == 1.0, INF, y), x)


# --- trigonometry -----------------------------------------------------------------------------------------------------

# in parts cut off, not rounded: were one negative, 0 times it, added, would make 0 of -0
PI = {F32: numbers("1.921fb4p+1 1.4442dp-23 1.846988p-47"),
      F64: numbers("1.921fb54442d18p+1 1.1a62633145c06p-53 1.c1cd129024e08p-106")}
PI_REDUCTION_LIMIT = {F32: 2.0**17, F64: 2.0**30}                # how far reduction by PI in three parts is good
PI_MULTIPLE_BITS = {F32: 17, F64: 30}                            # of a multiple of pi so far, or of it and a half
# (sin(r) / r - 1) / r^2 in r^2, |r| <= pi/2 (float32 a hundredth more). float32: 2^-26.3, float64: 2^-57.8
SIN = {F32: numbers("-1.55554cp-3 1.110eb6p-7 -1.9f68eap-13 1.5d56b8p-19"),
       F64: numbers("-1.5555555555555p-3 1.11111111110c0p-7 -1.a01a01a0147abp-13 1.71de3a52803e3p-19 "
                    "-1.ae6454c7cdb57p-26 1.6123ca40198b1p-33 -1.ae42dfac1231ap-41 1.8822fc2223eecp-49")}


def sin(e, x):
    """(-1)^k sin(r), x = k pi + r."""
    k, t = round_to_int(e, x, 1 / math.pi)
    return _sin_of_rest(e, x, k, t, "sin")


def cos(e, x):
    """-(-1)^k sin(r), x = (k + 1/2) pi + r."""
    k, t = round_to_int(e, e.fma(x, 1 / math.pi, -0.5), 1.0, 1)
    return _sin_of_rest(e, x, k + 0.5, t, "cos")


def _sin_of_rest(e, x, k, t, name):
    r = minus_multiple(e, x, k, PI[x.type], PI_MULTIPLE_BITS[x.type])
    r = e.from_bits(e.bits(r) ^ e.bits(t) << {F32: 31, F64: 63}[x.type], x.type)
    r = e.rare(e.abs(x) > PI_REDUCTION_LIMIT[x.type], r, lambda: far_rest(e, name, x, r))
    z = r * r
    return r * e.fma(z, poly(e, z, SIN[x.type]), 1.0)


# of sin and cos, |r| <= pi/4: (sin(r) / r - 1) / r^2 and (cos(r) - 1 + r^2/2) / r^4 in r^2. 2^-57.1, 2^-59.5
SIN_QUARTER = numbers("-1.5555555555555p-3 1.111111111110bp-7 -1.a01a01a018a35p-13 1.71de3a532bf51p-19 "
                      "-1.ae6452876ddb1p-26 1.6120885c7016ap-33 -1.aaa04ea6b88ddp-41")
COS_QUARTER = numbers("1.5555555555555p-5 -1.6c16c16c16c0fp-10 1.a01a01a018c99p-16 -1.27e4fb75e8386p-22 "
                      "1.1eed8c8d0b3aap-29 -1.93931fdc060abp-37 1.aabb2b920e7ecp-45")


@wide
def tan(e, x):
    """sin(r) / cos(r), or -cos(r) / sin(r) for odd k, x = k pi/2 + r."""
    k, t = round_to_int(e, x, 2 / math.pi)
    high, middle, low = (part / 2 for part in PI[F64])
    exact = e.fma_exact(k, -high, x)
    r0 = e.fma_exact(k, -middle, exact)
    r = e.fma_exact(k, -low, r0)
    left = e.fma_exact(k, -middle, exact - r0) + e.fma_exact(k, -low, r0 - r)        # what the two roundings left out
    odd = e.cast(e.bits(t) & 1, F64)
    far = e.abs(x) > PI_REDUCTION_LIMIT[F64]
    r, left, odd = (e.rare(far, near, lambda near=near, name=name: far_rest(e, name, x, near))
                    for name, near in (("tan", r), ("tan_left", left), ("tan_odd", odd)))
    z = r * r
    half = z * 0.5
    most = 1.0 - half
    cosine = most + e.fma(z * z, poly(e, z, COS_QUARTER), e.fma(-r, left, (1.0 - most) - half))
    sine = r + e.fma(r * z, poly(e, z, SIN_QUARTER), left)
    flip = odd != 0.0
    y = e.where(flip, -cosine, sine) / e.where(flip, sine, cosine)
    return e.where(x == 0.0, x, y)                               # -0 is lost in the sum


# 1 / pi, the first 19 * 64 bits behind the point
ONE_OVER_PI = int("517cc1b727220a94fe13abe8fa9a6ee06db14acc9e21c820ff28b1d5ef5de2b0db92371d2126e9700324977504e8c90e"
                  "7f0ef58e5894d39f74411afa975da24274ce38135a2fbf209cc8eb1cc1a99cfa4e422fc5defc941d8ffc4bffef02cc07"
                  "f79788c5ad05368fb69b3f6793e584dba7a31fb34f2ff516ba93dd63f5f2f8bd9e839cfbc529497535fdafd88fc6ae84"
                  "2b0198237e3db5d5", 16)
# A huge |x| is m 2^q with a 53-bit integer m. Of the bits of 1/pi those that matter for x / pi modulo 2 are 256 from a
# word boundary on; their product with m, shifted, has the parity of x / pi in its highest bit and the fraction behind.
FAR_REDUCTION_TEXT = """define internal double @{name}(double %x, double %near) cold noinline nounwind {{
  %size = call double @llvm.fabs.f64(double %x)
  %far = fcmp ogt double %size, {limit}
  br i1 %far, label %reduce, label %back
back:
  ret double %near
reduce:
  %raw = bitcast double %size to i64
  %exponent = lshr i64 %raw, 52
  %finite = icmp ult i64 %exponent, 2047
  %held = select i1 %finite, i64 %exponent, i64 2046
  %fraction = and i64 %raw, 4503599627370495
  %m = or i64 %fraction, 4503599627370496
  %q = sub i64 %held, 1075
  %up = add i64 %q, 63
  %word = lshr i64 %up, 6
  %place = sub i64 16, %word
  %p = getelementptr i64, ptr @one_over_pi, i64 %place
  %bits = load i256, ptr %p, align 8
  %wide = zext i64 %m to i256
  %product = mul i256 %bits, %wide
  %start = shl i64 %word, 6
  %skipped = sub i64 %start, %q
  %room = sub i64 {room}, %skipped
  %shift = zext i64 %room to i256
  %aligned = shl i256 %product, %shift
  %turned = add i256 %aligned, {turn}
  %rest = shl i256 %turned, 1
  %both = xor i256 %turned, %rest
  %odd = icmp slt i256 %both, 0
  %high.wide = ashr i256 %rest, 192
  %high = trunc i256 %high.wide to i64
  %low.wide = lshr i256 %rest, 128
  %low = trunc i256 %low.wide to i64
  %most = and i64 %high, -2048
  %some = and i64 %high, 2047
  %a = sitofp i64 %most to double
  %b = sitofp i64 %some to double
  %c = uitofp i64 %low to double
  %bc = call double @{fma}(double %c, double {two_minus_64}, double %b)
  %t0 = fmul double %bc, {pi}
  %t1 = call double @{fma}(double %a, double {pi_low}, double %t0)
  %t2 = call double @{fma}(double %a, double {pi}, double %t1)
  %minus = fneg double %t2
{result}
  %out = select i1 %finite, double %r, double 0x7FF8000000000000
  ret double %out
}}"""
FAR_RESULT = {
    "sin": """  %r0 = select i1 %odd, double %minus, double %t2
  %r0.minus = fneg double %r0
  %negative = fcmp olt double %x, 0.0
  %r = select i1 %negative, double %r0.minus, double %r0""",
    "cos": "  %r = select i1 %odd, double %minus, double %t2",
    "tan": """  %negative = fcmp olt double %x, 0.0
  %r = select i1 %negative, double %minus, double %t2""",
    "tan_left": """  %t2.left = call double @{fma}(double %a, double {pi}, double %minus)
  %left = fadd double %t2.left, %t1
  %left.minus = fneg double %left
  %negative = fcmp olt double %x, 0.0
  %r = select i1 %negative, double %left.minus, double %left""",
    "tan_odd": "  %r = uitofp i1 %odd to double"}


def far_rest(e, name, x, near):
    """In the lanes where |x| is huge, what is left of it after whole multiples of pi; `near` in the others.

    For "sin" and "cos" the r whose sine is the result. For "tan" multiples of pi/2 are taken off; "tan_left" is what
    the rounding of that rest left out, and "tan_odd" the parity of the multiple.
    """
    padded = [0, *(ONE_OVER_PI >> 64 * (18 - i) & 2**64 - 1 for i in range(19))]
    words = ", ".join(f"i64 {literal(word, 'i64')}" for word in reversed(padded))
    e.defined["one_over_pi"] = f"@one_over_pi = internal constant [20 x i64] [{words}]"
    quarter = name.startswith("tan")
    pi, low, _ = (part * 2.0**(-65 if quarter else -64) for part in PI[F64])
    function = f"far_{name}_{x.type}"
    e.defined[function] = (FAR_REDUCTION_TEXT.replace("{result}", FAR_RESULT[name])).format(
        name=function, limit=literal(PI_REDUCTION_LIMIT[x.type], F64), room=64 if quarter else 63,
        turn=2**254 if name == "cos" else 0, fma=exact_fma(e), two_minus_64=literal(2.0**-64, F64), pi=literal(pi, F64),
        pi_low=literal(low, F64))
    e.declared.add("declare double @llvm.fabs.f64(double)")
    return e.by_lane(function, x, near)


def exact_fma(e):
    """The name of a function of three doubles that rounds a b + c once."""
    if e.target.fma:
        e.declared.add("declare double @llvm.fma.f64(double, double, double)")
        return "llvm.fma.f64"
    if "fma_exact" not in e.defined:
        inner = Emit([], count(), e.declared, e.defined, "entry", e.target)
        out = inner.fma_exact(*(Term(inner, F64, 1, name) for name in ("%a", "%b", "%c")))
        e.defined["fma_exact"] = "\n".join(["define internal double @fma_exact(double %a, double %b, double %c) {",
                                            "entry:", *inner.lines, f"  ret double {out.text}", "}"])
    return "fma_exact"


# --- inverse trigonometric functions ----------------------------------------------------------------------------------

# (asin(x) - x) / x^3 in x^2, |x| <= 1/2. 2^-58.3
ASIN = numbers("1.5555555555577p-3 1.333333332e08fp-4 1.6db6db7219d9p-5 1.f1c71a922690fp-6 1.6e8bdf3007048p-6 "
               "1.1c49eaac8bb9fp-6 1.ca201857e568dp-7 1.7581030094effp-7 1.61566bd2b53f6p-7 1.e466d10fc903fp-9 "
               "1.64181e3b88dd5p-6 -1.58afef70912c3p-6 1.0b7f9e12e76dbp-5")
# (atan(x) - x) / x^3 in x^2, |x| <= tan(pi/8). 2^-57.5
ATAN = numbers("-1.555555555553cp-2 1.9999999995737p-3 -1.24924922a6652p-3 1.c71c70e374926p-4 -1.745cf89398a89p-4 "
               "1.3b111424eaa33p-4 -1.10eb808bb5c01p-4 1.df0c2764cb912p-5 -1.9cc4ad0b88f3cp-5 1.37b20ea18732ep-5 "
               "-1.251c97982460ep-6")
TAN_PI_8 = math.sqrt(2) - 1


def _asin_parts(e, a):
    """asin(a) for a <= 1/2, and asin(sqrt((1 - a) / 2)) = (pi/2 - asin(a)) / 2 for the others."""
    near = a < 0.5
    z = e.where(near, a * a, (1.0 - a) * 0.5)
    s = e.where(near, a, e.sqrt(z))
    return near, e.fma(s * z, poly(e, z, ASIN), s)


@wide
def asin(e, x):
    near, y = _asin_parts(e, e.abs(x))
    half, low, _ = (part / 2 for part in PI[F64])
    return e.copysign(e.where(near, y, half - (y + y - low)), x)


@wide
def acos(e, x):
    near, y = _asin_parts(e, e.abs(x))
    half, low, _ = (part / 2 for part in PI[F64])
    y = e.where(near, e.copysign(y, x), y + y)
    middle = half - (y - low)
    return e.where(near, middle, e.where(x < 0.0, 2 * half - (y - 2 * low), y))


def _atan_of(e, num, den, octants, sign=None):
    """octants * pi/4 + sign * atan(num / den), |num / den| <= tan(pi/8)."""
    x = num / den
    z = x * x
    y = e.fma(x * z, poly(e, z, ATAN), x)
    y = y if sign is None else y * sign
    high, low, _ = (part / 4 for part in PI[F64])
    return e.fma(octants, high, e.fma(octants, low, y))


@wide
def atan(e, x):
    a = e.abs(x)
    middle, far = a > TAN_PI_8, a > 1 / TAN_PI_8
    num = e.where(far, -1.0, e.where(middle, a - 1.0, a))
    den = e.where(far, a, e.where(middle, a + 1.0, 1.0))
    return e.copysign(_atan_of(e, num, den, e.where(far, 2.0, e.where(middle, e.const(1.0, F64), 0.0))), x)


@wide
def atan2(e, y, x):
    """The lesser of |x| and |y| over the greater, as an angle within an octant that swaps and signs then unfold."""
    y_size, x_size = e.abs(y), e.abs(x)
    swap = y_size > x_size
    less, more = e.where(swap, x_size, y_size), e.where(swap, y_size, x_size)
    scale = e.where(more > 2.0**1000, e.const(2.0**-64, F64), e.where(more < 2.0**-1000, e.const(2.0**64, F64), 1.0))
    endless = more == INF
    less = e.where(endless, e.where(less == INF, 1.0, less * 0.0), less * scale)
    more = e.where(endless, 1.0, more * scale)
    steep = less > more * TAN_PI_8
    num, den = e.where(steep, less - more, less), e.where(steep, less + more, more)
    den = e.where(less + more == 0.0, 1.0, den)
    octants, sign = e.where(steep, e.const(1.0, F64), 0.0), e.const(1.0, F64)
    octants, sign = e.where(swap, 2.0 - octants, octants), e.where(swap, -sign, sign)
    back = e.bits(x) < 0
    octants, sign = e.where(back, 4.0 - octants, octants), e.where(back, -sign, sign)
    return e.copysign(_atan_of(e, num, den, octants, sign), y)


# --- powers -----------------------------------------------------------------------------------------------------------

def rsqrt(e, x):
    return 1.0 / e.sqrt(x)


# (log(1 + f) - f) / f^2, sqrt(1/2) <= 1 + f < sqrt(2), for float32 in float64. 2^-33.1
POW_LOG_F32 = numbers("-1.00000018681e6p-1 1.5555546d666c1p-2 -1.ffffacf3487f4p-3 1.999a1b0ba0352p-3 "
                      "-1.55688688b2176p-3 1.24923260470b6p-3 -1.fc6c0f4967ee5p-4 1.c36cbec1a4b7dp-4 "
                      "-1.bd41551fca906p-4 1.b75f653de10a6p-4 -1.eb073e7fe5702p-5")
# 2^r, |r| <= 1/2. 2^-28.9
POW_EXP_F32 = numbers("1 1.62e430af20a8bp-1 1.ebfbdc3c1fc59p-3 1.c6aee895b1523p-5 1.3b2d4d0433babp-7 "
                      "1.5f3e4f9f8ea72p-10 1.41fbabb62e43ep-13")
# ((2 atanh(s) / s - 2) / s^2 - 2/3) / s^2 in s^2 with s = f / (2 + f), the same f. 2^-66.4
POW_LOG_F64 = numbers("1.9999999999996p-2 1.249249249302ep-2 1.c71c71c5811ecp-3 1.745d183202541p-3 "
                      "1.3b1362c9e7863p-3 1.1120b2d966b03p-3 1.de33da5ee306fp-4 1.eb0de6c842766p-4")


def pow(e, x, y):
    """e^(y log |x|), then C's rules for signs, integers and infinities. float64: 2 ulp."""
    type = x.type
    bounded = clamp(e, y, -2.0**100, 2.0**100)                   # infinity times log(1) would be NaN
    size = _pow_f32(e, e.abs(x), bounded) if type == F32 else _pow_f64(e, e.abs(x), bounded)
    whole = e.rint(y) == y
    half = y * 0.5
    odd = whole & (e.rint(half) != half)
    size = e.copysign(size, e.where(odd, x, 1.0))
    size = e.where((x < 0.0) & (x > -INF) & ~whole, NAN, size)
    return e.where((x == 1.0) | (y == 0.0), 1.0, size)


def _pow_f32(e, x, y):
    """In float64, whose exponents are wide enough for everything between."""
    x, y = e.cast(x, F64), e.cast(y, F64)
    k, f = log_parts(e, x, denormal=False)
    log2 = e.fma(e.fma(f * f, poly(e, f, POW_LOG_F32), f), LOG2E, k)
    log2 = e.where(x == 0.0, -INF, e.where(x < INF, log2, x))
    p = clamp(e, y * log2, -200.0, 200.0)
    k, t = round_to_int(e, p, 1.0, EXPONENT_BIAS[F64])
    return e.cast(poly(e, p - k, POW_EXP_F32) * power_of_two(e, t), F32)


def _pow_f64(e, x, y):
    """The logarithm, and its product with y, in two parts."""
    k, f = log_parts(e, x)
    d, d_low = fast_two_sum(e.const(2.0, F64), f)
    q = 1.0 / d
    s = f * q
    s_low = q * e.fma(-s, d_low, residue(e, f, s, d))
    z = s * s
    z_low = e.fma(s + s, s_low, e.product_error(s, s, z))
    # log(1 + f) = s (2 + z (2/3 + z P))
    c, c_low = fast_two_sum(e.const(2 / 3, F64), z * poly(e, z, POW_LOG_F64))
    c_low = c_low + (2 / 3) * 2.0**-54
    w = z * c
    w_low = e.fma(z, c_low, e.fma(z_low, c, e.product_error(z, c, w)))
    u, u_low = fast_two_sum(e.const(2.0, F64), w)
    u_low = u_low + w_low
    high = s * u
    low = e.fma(s, u_low, e.fma(s_low, u, e.product_error(s, u, high)))
    ln2, rest = LN2[F64]
    high, left = fast_two_sum(k * ln2, high)
    low = e.fma(k, rest, left + low)
    high = e.where(x == 0.0, -INF, e.where(x < INF, high, x))
    low = e.where((x == 0.0) | ~(x < INF), 0.0, low)
    p = y * high
    p_low = e.fma(y, low, e.product_error(y, high, p))
    inside = e.abs(p) < 800.0
    p_low = e.where(inside, p_low, 0.0)
    w, t = exp_parts(e, clamp(e, p, *EXP_ENDS[F64]), EXPONENT_BIAS[F64], p_low)
    return times_power_of_two(e, w + 1.0, t)


# --- the gamma function -----------------------------------------------------------------------------------------------

# log(gamma(1 + y)) / (y (y - 1)) in y + 1/2, -1/2 <= y <= 2, a quotient. 2^-54.4
LGAMMA = (numbers("1.86bc06134d7a7p-1 1.3dc0e7d2d5a6dp+2 1.9b2d314ddd345p+3 1.0f27c0bdf2139p+4 1.84de5b3189abbp+3 "
                  "1.2c8d8d5ab6e43p+2 1.d4c131c910c15p-1 1.3ea487c50e909p-4 1.0e4d6906323eep-9 1.e68f3f89396b2p-19"),
          numbers("1 1.d14183eef734ep+2 1.5730bb83bc687p+4 1.09039d19e591bp+5 1.cdd19b6b0f3cdp+4 1.c9b9211bec215p+3 "
                  "1.f193d042aba42p+1 1.103879ce23084p-1 1.f99a32513b0b1p-6 1.0b978c462e0acp-11"))
# x (log(gamma(x)) - (x - 1/2) (log(x) - 1) - STIRLING_CONSTANT) in 1/x^2, x >= 3. Of the result 2^-56
LGAMMA_FAR = numbers("1.5555555555554p-4 -1.6c16c16bfc84dp-9 1.a01a0102732e6p-11 -1.3813242abd423p-11 "
                     "1.b93555c7b88ccp-11 -1.f40db66f3a0dfp-10 1.903b8b39b6409p-8 -1.7c3e93c24cc9p-6 "
                     "1.52e43dac8e293p-4 -1.b44451d024a43p-3 1.16f872c4d9dadp-2")
STIRLING_CONSTANT = numbers("1.acfe390c97d69p-2 1.3494bc9001442p-56")  # (log(2 pi) - 1) / 2
# digamma(1 + y) / (1 + y - root), 0 <= y <= 2, a quotient. 2^-55.3
DIGAMMA = (numbers("1.4018e9a62525ep+0 1.01e19b211fa5ep+1 1.2f179e3e1b3f5p+0 1.49236f7d90cb5p-2 1.5444bec2e82b3p-5 "
                   "1.30b3d5be9cd76p-9 1.5bbd72d63b1fcp-15 1.7f94f717bca48p-25"),
           numbers("1 1.25bc7d8b496d1p+1 1.e9e80d2a1da09p+0 1.82e0ca84af0a1p-1 1.352330845c864p-3 1.e5d012ec278dap-7 "
                   "1.4887bd7aea8d4p-11 1.07648f5812d15p-17"))
DIGAMMA_ROOT = numbers("1.762d86356be3fp+0 1.b86a722197829p-54")
# x^2 (log(x) - 1/(2 x) - digamma(x)) in 1/x^2, x >= 3. Of the result 2^-59
DIGAMMA_FAR = numbers("1.55555555554b3p-4 -1.1111111041fc7p-7 1.04103f9219106p-8 -1.111069ca5285dp-8 "
                      "1.f04f2260f6808p-8 -1.579cdd7b5228dp-6 1.46033ee445f76p-4 -1.6f5f6a006c422p-2 "
                      "1.9838623db6ea6p+0 -1.71be2dc84a20ep+2 1.bfdfe901e96c6p+3 -1.04ac5ef326375p+4")


@wide
def lgamma(e, x):
    """float64: 4 ulp for x > 0; for x < 0 the error is that small beside the terms whose sum may cancel."""
    a = e.abs(x)
    y = _lgamma_positive(e, a)
    r = a - e.rint(a)
    reflected = math.log(math.pi) - log(e, a * e.abs(_sin_pi(e, r))) - y
    pole = (a == INF) | ((x < 0.0) & (r == 0.0))
    return e.where(pole, INF, e.where(x < -1e-20, reflected, y))      # nearer to 0 both sides are one, -log(a)


def _sin_pi(e, r):
    """sin(pi r), |r| <= 1/2."""
    r = r * math.pi
    z = r * r
    return r * e.fma(z, poly(e, z, SIN[F64]), 1.0)


def _lgamma_positive(e, x):
    tiny, far = x < 0.5, x > 3.0
    k, f = log_parts(e, x)
    high, low = log1p_parts(e, f)
    ln2, rest = LN2[F64]
    high, left = fast_two_sum(k * ln2, high)
    low = e.fma(k, rest, low + left)
    y = e.where(tiny, x, x - 1.0)
    near = y * (y - 1.0) * (poly(e, y + 0.5, LGAMMA[0]) / poly(e, y + 0.5, LGAMMA[1]))
    near = e.where(tiny, near - log_ends(e, x, high + low), near + 0.0)      # lgamma(1) is 0, not -0
    q = 1.0 / x
    first, second = STIRLING_CONSTANT
    less = x - 0.5
    tail = e.fma(q, poly(e, q * q, LGAMMA_FAR), e.fma(less, low, second))
    return e.where(far, e.fma(less, high - 1.0, tail + first), near)


@wide
def digamma(e, x):
    """float64: 3 ulp for x > 0; for x < 0 the error is that small beside the terms whose sum may cancel."""
    back = x < 0.0
    a = e.where(back, 1.0 - x, x)
    tiny, far = a < 1.0, a > 3.0
    y = e.where(tiny, a, a - 1.0)
    root, rest = DIGAMMA_ROOT
    near = ((y - (root - 1.0)) - rest) * (poly(e, y, DIGAMMA[0]) / poly(e, y, DIGAMMA[1]))
    q = 1.0 / a
    near = e.where(tiny, near - q, near)
    z = q * q
    out = e.where(far, log(e, a) - e.fma(z, poly(e, z, DIGAMMA_FAR), 0.5 * q), near)
    # digamma(x) = digamma(1 - x) - pi / tan(pi x)
    r = x - e.rint(x)
    cosine = _sin_pi(e, 0.5 - e.abs(r))
    pole = math.pi * (e.copysign(cosine, r) / e.abs(_sin_pi(e, r)))
    out = e.where(back, out - pole, out)
    return e.where(back & (r == 0.0), NAN, e.where(x == 0.0, e.copysign(e.const(INF, F64), -x), out))


SCALAR_FUNCTIONS = {function.__name__: function for function in (
    exp, exp2, expm1, log, log2, log10, log1p, sin, cos, tan, asin, acos, atan, atan2, sinh, cosh, tanh, asinh, acosh,
    atanh, erf, erfc, erfinv, sigmoid, pow, rsqrt, lgamma, digamma)}
