"""The error function, its complement and its inverse."""
import math

from .exponential import EXP, LOG2E, exp_parts
from .logarithm import log, log_parts
from .power import POW_LOG_F32
from .tools import (
    EXPONENT_BIAS,
    F32,
    F64,
    INF,
    NAN,
    at_most,
    fast_two_sum,
    numbers,
    poly,
    power_of_two,
    residue,
    round_to_int,
    times_power_of_two,
)

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
