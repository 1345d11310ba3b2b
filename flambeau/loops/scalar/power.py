"""Powers, by the logarithm and the exponential of a number."""
from .exponential import EXP_ENDS, LN2, LOG2E, exp_parts
from .logarithm import log_parts
from .tools import (
    EXPONENT_BIAS,
    F32,
    F64,
    INF,
    NAN,
    clamp,
    fast_two_sum,
    numbers,
    poly,
    power_of_two,
    residue,
    round_to_int,
    times_power_of_two,
)


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
