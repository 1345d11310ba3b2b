"""The scalar mathematics of kernels: exp, log, sin and the rest, written in the arithmetic of `emit`.

    exp(e, x) → the Term of e to the x, where x is a Term of float32 or float64 with any number of lanes

There are no branches: every lane takes the same steps, and what differs is selected. Results are within 2 units in the
last place (ulp) of the true ones over the whole range, denormal numbers, infinities and NaN included, unless said.

Where the polynomials come from: they are our own minimax fits (Remez exchange in 40 digits, the coefficients then
rounded to the type, for float32 with a search among their neighbours). Beside each stands what is fitted, where, and
the greatest relative error that it adds to the result. Coefficients start at the lowest power.
"""
import math

F32, F64 = "f32", "f64"
INF, NAN = math.inf, math.nan
MANTISSA = {F32: 23, F64: 52}                # stored bits
BIAS = {F32: 127, F64: 1023}
# Adding this rounds a number to an integer k and leaves k + bias in the lowest bits, where a shift makes 2^k of it.
ROUND = {F32: 1.5 * 2**23 + 127, F64: 1.5 * 2**52 + 1023}


def numbers(text):
    """Floats from their hexadecimal spelling."""
    return tuple(map(float.fromhex, text.split()))


# --- tools ------------------------------------------------------------------------------------------------------------

def poly(e, x, coefficients):
    """Horner's rule."""
    *rest, out = coefficients
    for c in reversed(rest):
        out = e.fma(out, x, c)
    return out


def clamp(e, x, low, high):
    """`x` between two numbers; NaN stays."""
    low, high = e.const(low, x.type), e.const(high, x.type)
    x = e.where(low > x, low, x)
    return e.where(high < x, high, x)


def power_of_two(e, t):
    """2^k from k + ROUND."""
    return e.from_bits(e.bits(t) << MANTISSA[t.type], t.type)


# --- exponentials -----------------------------------------------------------------------------------------------------

LOG2E = 1 / math.log(2)
TWO_LN2 = {F32: numbers("1.62e43p+0 -1.05c610p-28"), F64: numbers("1.62e42fefa39efp+0 1.abc9e3b39803fp-55")}
# exp(r), |r| <= ln 2. float32: 2^-26.0, float64: 2^-55.4
EXP = {F32: numbers("1.0 1.0 1.00000cp-1 1.55551p-3 1.5549f4p-5 1.11282ap-7 1.71be46p-10 1.9b473p-13"),
       F64: numbers("1.0 1.0 1.ffffffffffff3p-2 1.55555555555b7p-3 1.5555555556941p-5 1.1111111108263p-7 1.6c16c169c115cp-10 1.a01a01b2364b2p-13 1.a01a0580cbdb9p-16 1.71de2a0145dc4p-19 1.27e1ca9807e1bp-22 1.ae7132cf3d9b3p-26 1.217a66270be87p-29 1.5e6d61f34f440p-33")}
EXP_ENDS = {F32: (-104.0, 89.0), F64: (-746.0, 710.0)}          # 0 below, infinity above


def exp_parts(e, x, sign=1):
    """e^(sign x) = y s s, as y and s = 2^k: in halves, because s s itself may overflow or be denormal."""
    high, low = TWO_LN2[x.type]
    t = e.fma(x, sign * LOG2E / 2, ROUND[x.type])
    k = t - ROUND[x.type]
    r = e.fma(k, -sign * low, e.fma(k, -sign * high, x))
    return poly(e, r, [c * sign**i for i, c in enumerate(EXP[x.type])]), power_of_two(e, t)


def exp(e, x):
    y, s = exp_parts(e, clamp(e, x, *EXP_ENDS[x.type]))
    return y * s * s


def sigmoid(e, x):
    """1 / (1 + e^-x) = (1/s) / (1/s + y s), which neither overflows nor loses a denormal result."""
    low, high = EXP_ENDS[x.type]
    y, s = exp_parts(e, clamp(e, x, low, -low), sign=-1)
    one_over_s = e.from_bits(e.const(2 * BIAS[x.type] << MANTISSA[x.type], e.bits(s).type) - e.bits(s), x.type)
    return one_over_s / e.fma(y, s, one_over_s)


# (e^2r - 1) / r, |r| <= ln 2 / 4. float32: 2^-26.1, float64: 2^-55.2
EXPM1_TWICE = {
    F32: numbers("2.0 1.fffffep+0 1.5554bp+0 1.5556cp-1 1.1228ap-2 1.6bec08p-4"),
    F64: numbers("2.0 2.0 1.555555555553ep+0 1.5555555553b11p-1 1.1111111118d36p-2 1.6c16c179fd6bbp-4 1.a01a01719e963p-6 1.a019b3a18c771p-8 1.71de979600efdp-10 1.289760b0ff971p-12 1.ae48d018a6d8ap-15")}


def tanh(e, x):
    """E / (E + 2) with E = e^2x - 1 = s q + (s - 1), s = 2^k, whose relative error is small around 0 too."""
    end = {F32: 9.25, F64: 20.0}[x.type]                        # 1 from there on
    x = clamp(e, x, -end, end)
    t = e.fma(x, 2 * LOG2E, ROUND[x.type])
    r = e.fma(t - ROUND[x.type], -math.log(2) / 2, x)
    s = power_of_two(e, t)
    q = r * poly(e, r, EXPM1_TWICE[x.type])
    big = e.fma(s, q, -(1.0 - s))                               # not s - 1.0, which would make 0 of -0
    return big / (big + 2.0)


# --- the error function -----------------------------------------------------------------------------------------------

# 8 (1 - erfc(x)^(1/8)) / x, 0 <= x <= 3.93. float32: 2^-24.2 (most of it from rounding the first coefficient)
ERF = {F32: numbers("1.20dd74p+0 1.1d34bcp-1 1.11d09cp-6 -1.afd57ep-5 -1.871ddep-10 1.0ce034p-8 -1.74c32p-11 1.4227fep-15")}


def erf(e, x):
    """1 - (1 - v/8)^8, three squarings: where v is the whole, 1 - (1 - v/2n)^2 = (v - v²/4n) / n."""
    a = e.abs(x)
    a = e.where(e.const(3.93, x.type) < a, 3.93, a)
    v = a * poly(e, a, ERF[x.type])
    for part in (1 / 16, 1 / 8, 1 / 4):
        v = e.fma(v * -part, v, v)
    return e.copysign(v, x)


# --- logarithms -------------------------------------------------------------------------------------------------------

# (log(1 + f) - f) / f^2, sqrt(1/2) <= 1 + f < sqrt(2). float32: 2^-27.8
LOG = {F32: numbers("-1.fffff8p-2 1.55555p-2 -1.000428p-2 1.99a3fap-3 -1.54278p-3 1.2271b2p-3 -1.0f377cp-3 1.0848dcp-3 -1.38303ep-4")}


def log(e, x):
    tiny = x < 2.0**-126
    big = e.where(tiny, x * 2.0**23, x)
    i = e.bits(big)
    over = (i - 0x3F3504F3)
    k = e.cast(over >> 23, x.type)
    k = e.where(tiny, k - 23.0, k)
    f = e.from_bits(i - (over & -0x800000), x.type) - 1.0
    y = e.fma(f * f, poly(e, f, LOG[x.type]), f)
    y = e.fma(k, math.log(2), y)
    y = e.where(x < INF, y, x)
    y = e.where(x == 0.0, -INF, y)
    return e.where(x < 0.0, NAN, y)


FUNCTIONS = {"exp": exp, "sigmoid": sigmoid, "tanh": tanh, "erf": erf, "log": log}
