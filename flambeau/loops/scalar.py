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


# exp(r), |r| <= ln 2 / 2. float32: 2^-28.2, float64: 2^-60.1
EXP_HALF = {
    F32: numbers("1 1 1.fffffcp-2 1.55549p-3 1.5558d2p-5 1.123b36p-7 1.6a232ep-10"),
    F64: numbers("1 1 1p-1 1.555555555555bp-3 1.5555555555502p-5 1.111111110ec19p-7 1.6c16c16c307a4p-10 "
                 "1.a01a01b39922cp-13 1.a01a0135f394bp-16 1.71ddefdc4eff2p-19 1.27e5b5030860ap-22 1.af6c6151ce392p-26 "
                 "1.1e3cc251f5515p-29")}


def sigmoid(e, x):
    """1 / (1 + e^-x) = c / (c + y s), s = c 2^k, with a small c for which neither overflows, and denormals come out."""
    drop, low, high = {F32: (24, -104.0, 18.0), F64: (64, -746.0, 38.0)}[x.type]
    ln2, rest = (part / 2 for part in TWO_LN2[x.type])
    x = clamp(e, x, low, high)
    t = e.fma(x, LOG2E, ROUND[x.type] + drop)
    k = t - (ROUND[x.type] + drop)
    r = e.fma(k, -rest, e.fma(k, -ln2, x))
    y = e.fma(r * r, poly(e, r, EXP_HALF[x.type][2:]), r)
    s = power_of_two(e, t)
    y = e.fma(y, s, s)
    return y / (y + 2.0**drop)


# ((e^2r - 1) / 2 - r) / r^2, |r| <= ln 2 / 4. float32: 2^-26.1, float64: 2^-59.7
TANH = {
    F32: numbers("-1.55554ep-2 1.1105b6p-3 -1.afec3cp-5"),
    F64: numbers("-1.5555555555555p-2 1.1111111110d0ep-3 -1.ba1ba1b8fb8d2p-5 1.664f47501c762p-6 -1.226d86a2d520dp-7 "
                 "1.d6662b30e68ccp-9 -1.6bb9147b4164ap-10")}


def tanh(e, x):
    """H / (H + 1) with H = (e^2x - 1) / 2 = s p + (s - 1) / 2, s = 2^k, whose relative error is small around 0 too."""
    end = {F32: 9.25, F64: 20.0}[x.type]                        # 1 from there on
    x = clamp(e, x, -end, end)
    t = e.fma(x, 2 * LOG2E, ROUND[x.type])
    r = e.fma(t - ROUND[x.type], -math.log(2) / 2, x)
    s = power_of_two(e, t)
    z = r * r
    u = e.fma(r * z, poly(e, z, TANH[x.type]), r)
    less, more = 1.0 - s, s + 1.0
    return e.fma(more, u, -less) / e.fma(-less, u, more)


# --- the error function -----------------------------------------------------------------------------------------------

# 4 (1 - erfc(x)^(1/4)) = c x + x^2 P(x), 0 <= x <= 3.93; c = 2 / sqrt(pi) in two parts, then P. float32: 2^-26.0
ERF = {F32: numbers("1.20dd76p+0 -1.f7ac92p-25 1.e8ecc0p-2 -1.fac2d0p-5 -1.30f524p-4 1.395e6ep-8 1.021e4p-7 "
                    "-1.cc07e2p-11 -1.13a7a2p-11 1.31ab7p-13 -1.774256p-17")}


def erf(e, x):
    """1 - (1 - v/4)^4 by two squarings: 1 - (1 - v/2n)^2 = (v - v^2/4n) / n."""
    a = e.abs(x)
    a = e.where(e.const(3.93, x.type) < a, 3.93, a)
    slope, *rest = ERF[x.type]
    bend = a * poly(e, a, rest)
    v = e.fma(a, slope, bend)
    v = e.fma(a, slope, e.fma(v * -0.125, v, bend))
    v = e.fma(v * -0.25, v, v)
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
