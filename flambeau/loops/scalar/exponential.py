"""Exponentials, and what is made of them: the logistic and the hyperbolic functions."""
import math

from .tools import (
    EXPONENT_BIAS,
    F32,
    F64,
    at_most,
    clamp,
    numbers,
    poly,
    power_of_two,
    round_to_int,
    times_power_of_two,
    wide,
)

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
