"""Special functions: erfcx, ndtri and Bessel's modified ones.

All arithmetic is float64. A float32 result has polynomials of its own, shorter ones (`Fit`), and is rounded once, at
the end. On GPUs they are the same arithmetic, written in C++ (loops/dialects/helpers.py).
"""
import math
from typing import NamedTuple

from .error_function import ERFC_F32
from .exponential import exp, exp_parts
from .logarithm import log
from .tools import EXPONENT_BIAS, F32, F64, at_most, numbers, poly, times_power_of_two


class Fit(NamedTuple):
    """Coefficients of a polynomial, or of the two of a quotient, for results of each type."""
    short: tuple
    long: tuple


def in_double(function):
    """The function of float64, and of float32 by way of it: `function(e, single, *args)`, where `single` says which."""
    def either(e, *args):
        single = args[0].type == F32
        out = function(e, single, *[e.cast(a, F64) for a in args])
        return e.cast(out, F32) if single else out
    either.__name__, either.__doc__ = function.__name__, function.__doc__
    return either


def fitted(e, single, x, fit):
    """The polynomial of a Fit."""
    return poly(e, x, fit[not single])


# (1 + 2 x) erfcx(x) in (x - 4) / (x + 4), x >= 0. float32: 2^-28.8, float64: 2^-57.0
ERFCX = Fit(ERFC_F32,
            numbers("1.3ba5916e9fd7fp+0 -1.1df1ad154a287p-3 1.f7f5df66fd63ap-7 1.16ecefcfa4d41p-4 "
                    "-1.9ddb23c3e86d2p-4 1.7fee004e1ea6p-4 -1.0fb06dfe56318p-4 1.3079edf51e971p-5 "
                    "-1.09623882f66aep-6 1.49c672e054bb3p-8 -1.8d4a9b7790abep-11 -1.a1df5de5e2c2p-13 "
                    "1.3be052dbbd3afp-13 -1.9953812eda04p-16 -1.78872c6d49be8p-17 1.7ef693c49d597p-18 "
                    "1.39b7a4b952c15p-22 -1.b8d0ebb20036ep-21 1.4bd187a8945bp-24 1.c8b03cb9506a5p-24 "
                    "-1.5ec2ccb0a2792p-26 -1.a8202801ab667p-27 1.abf785d9fa57bp-29 1.ff9900c3f02ffp-31 "
                    "-1.1a0c7664fd3f6p-32"))
# ndtri(1/2 + y) / y in 15 y^2 - 1, |y| <= 1/2 - e^-2, a quotient. float32: 2^-29.6, float64: 2^-64.8
NDTRI = Fit((numbers("1.5b470457768b9p+1 -1.509b589e44f36p+0 1.4142f32cd7086p-3 -1.72739ae3a36a5p-9"),
             numbers("1p+0 -1.266c8fa24c13cp-1 1.792e8e097f53ep-4 -1.cb6e7b5ec1d91p-9")),
            (numbers("1.5b47045e512d8p+1 -1.a9c257d91f84bp+1 1.999a40ae9c264p+0 -1.86692931f4ep-2 "
                     "1.7dedf53a41e56p-5 -1.646d1f53c287ap-9 1.f71b63e7f69c5p-15 -1.eb35b119703f7p-23"),
             numbers("1p+0 -1.50ffb3cae5a9dp+0 1.61ce5c29ee174p-1 -1.78d56a72b7e68p-3 1.ab948e7cf8bbdp-6 "
                     "-1.ee2b3d37741d4p-10 1.f0fff0c35ddd8p-15 -1.191d54209fe18p-21")))
# -ndtri(p) / r in 1 / r, r = sqrt(-2 log p), 2 <= r <= 39, a quotient. float32: 2^-29.7, float64: 2^-58.8
NDTRI_FAR = Fit((numbers("1.00019aecece36p+0 1.584d89b1595aap+5 1.5ba2e0d367c41p+8 1.f29ea1b4e4c1fp+8 "
                         "-1.1410735e12459p+9 -1.5acb111e10b7dp+9"),
                 numbers("1p+0 1.585fb678d6633p+5 1.615d693580288p+8 1.4ad78c2fe074p+9 1.09168302f2e1cp+8 "
                         "-1.33b53cb36f0f3p+3")),
                (numbers("1.0000137f925b1p+0 1.2dcee6af663c5p+8 1.93d7c99f84063p+14 1.a83a7b2d8c304p+19 "
                         "1.8f2634b7b1a44p+23 1.6bb16fc4be029p+26 1.575985c3267eep+28 1.48d36e1501a4dp+29 "
                         "1.020d481054c8ep+28 -1.e957aabcc30b3p+29 -1.f9cca626f49f6p+29 -1.8d7327e727ca8p+27"),
                 numbers("1p+0 1.2dcf56f47441bp+8 1.93f5d6946df69p+14 1.a919938d633d4p+19 1.92fe5e4fef123p+23 "
                         "1.790f36ba19f15p+26 1.80b745523ed28p+28 1.c5d368c2560a1p+29 1.0eb5c3d0f99dbp+30 "
                         "1.ff5bfaa647ddep+28 1.e8daf17735713p+25 -1.eaec2893c74ebp+18")))
# i0(x) in x^2, |x| <= 8. float32: 2^-31.7, float64: 2^-60.0
I0 = Fit(numbers("1.0000000142a3bp+0 1.ffffffb8717d4p-3 1.0000025a05692p-6 1.c71c39303af05p-12 1.c71efb482d069p-18 "
                 "1.233563994407cp-24 1.036068dca768fp-31 1.4dd60e0b1f2f8p-39 1.6ad837f7671bp-47 "
                 "1.6f1edef166163p-56 1.406ca82e30289p-63"),
         numbers("1p+0 1p-2 1.ffffffffffff3p-7 1.c71c71c71c85cp-12 1.c71c71c71a921p-18 1.23456789c5fap-24 "
                 "1.02e85c06c8089p-31 1.522a4421aa098p-39 1.522a41251d4b8p-47 1.0b3153f6a9eb2p-55 "
                 "1.55ff4ca9a7c93p-64 1.69e6279b781d3p-73 1.40a5a4cc7f9cfp-82 1.f2a4e2b414fbp-92 "
                 "1.10868b4157ba4p-101 1.1cb5559e23a85p-110"))
# i0(x) e^-x sqrt(x) in 16/x - 1, x >= 8. float32: 2^-29.6, float64: 2^-57.6
I0_FAR = Fit(numbers("1.9bd428ac58452p-2 1.b87988693614fp-9 1.1dab2933bba86p-13 1.74e1e26148108p-17 "
                     "1.8c1d9b5eaa92dp-20 1.84dea253628cep-22 1.d3d6fedf12f33p-24"),
             numbers("1.9bd428ad249a5p-2 1.b87969bb93b99p-9 1.1daa72b5e282cp-13 1.75e5ee7129275p-17 "
                     "1.8e513a77bd376p-20 1.3f49a943fd509p-22 1.7d0f0c24b96e7p-24 1.51cde1d481fcdp-25 "
                     "1.7234966f88767p-26 1.03a3671577b26p-27 -1.cfe12a53d62d8p-28 -1.ccfc33a55da6fp-27 "
                     "-1.72ac74f1a7ef7p-28 1.04342c9255739p-27 1.fcb1604a9f9dfp-28 -1.e6cd40c9f8a36p-29 "
                     "-1.95d326859150fp-28 1.ad3643b54bc86p-30 1.ec96e4f526679p-29 -1.4a9f531338f07p-31 "
                     "-1.b290e709cf889p-30 1.6adcdf959e82ap-33 1.e668d32d82437p-32 -1.8aa9b8b842e4fp-36 "
                     "-1.fe18251c332acp-35"))
# i1(x) / (x / 2) in x^2, |x| <= 8. float32: 2^-28.9, float64: 2^-56.6
I1 = Fit(numbers("1.ffffffed7b071p-1 1.00000168f34dp-3 1.555532d3e93dap-8 1.c71ed44ca7004p-14 1.6c027ecb83ba4p-20 "
                 "1.85196242e6bf7p-27 1.23def766c2d05p-34 1.6c5644f562d47p-42 1.93e28ab10fcd1p-51 "
                 "1.95f85a804c7abp-58"),
         numbers("1p+0 1.ffffffffffff9p-4 1.5555555555601p-8 1.c71c71c71ad8cp-14 1.6c16c16c35a5bp-20 "
                 "1.845c8a0a291dfp-27 1.27e4fb9f0b25ep-34 1.522a40f73b5e9p-42 1.2c97813cf891bp-50 "
                 "1.ab7ee99c2cc46p-59 1.f19f2e13df9f2p-68 1.e0e187113ca2fp-77 1.95a0c1ef59a8dp-86 "
                 "1.d9f74d0fc5109p-96 1.0ce829140576p-104"))
# i1(x) e^-x sqrt(x) in 16/x - 1, x >= 8. float32: 2^-29.4, float64: 2^-57.5
I1_FAR = Fit(numbers("1.8ebe783bdcb1ep-2 -1.3f796a3a5bbbp-7 -1.cbc6631cbd808p-13 -1.f778c14255b4cp-17 "
                     "-1.e9a7359dee50ep-20 -1.c3806cc8607d1p-22 -1.09b65c13bdd9bp-23"),
             numbers("1.8ebe783a8403p-2 -1.3f796198ee62fp-7 -1.cbc54df1e8fc8p-13 -1.f89c2305d675ap-17 "
                     "-1.ec8e10734674p-20 -1.7613804d1f81ep-22 -1.ad8d4cc46bfe9p-24 -1.7279bf8b8ec36p-25 "
                     "-1.9190d014b9f65p-26 -1.219c0548c67aap-27 1.cee76dea75191p-28 1.e25a3c1b8d81p-27 "
                     "1.9a1d1ea452e57p-28 -1.06f67d6a9182bp-27 -1.0e7a2dfc139c3p-27 1.d97e68da712b9p-29 "
                     "1.ab1bcad742e9p-28 -1.915e0f9651856p-30 -1.02b137c0f806dp-28 1.2b85cbad2126bp-31 "
                     "1.c9633380f36fap-30 -1.41baa547662afp-33 -1.010e9ea251913p-31 1.58e59255ffb8p-36 "
                     "1.0f08939190433p-34"))


# --- the error function and the normal distribution -------------------------------------------------------------------

@in_double
def erfcx(e, single, x):
    """For x < 0, 2 e^(x^2) less that of -x. float64: 6 ulp."""
    a = e.abs(x)
    q = 1.0 / (a + 4.0)
    positive = fitted(e, single, e.fma(q, -8.0, 1.0), ERFCX) * 0.5 / (a + 0.5)
    bounded = at_most(e, a, 26.7)                                # infinity after
    square = bounded * bounded
    w, t = exp_parts(e, square, EXPONENT_BIAS[F64] + 1, e.product_error(bounded, bounded, square))
    return e.where(x < 0.0, times_power_of_two(e, w + 1.0, t) - positive, positive)


@in_double
def ndtri(e, single, p):
    """By quotients around 1/2 and in the root of the logarithm. float64: 8 ulp."""
    above = p > 0.5
    y = e.where(above, 1.0 - p, p)
    near = y > math.exp(-2)
    c = p - 0.5
    r = e.sqrt(log(e, y) * -2.0)
    top, bottom = (e.where(near, poly(e, e.fma(c * c, 15.0, -1.0), n), poly(e, 1.0 / r, f))
                   for n, f in zip(NDTRI[not single], NDTRI_FAR[not single], strict=True))
    return e.where(near, c, e.where(above, r, -r)) * (top / bottom)


# --- modified Bessel functions ----------------------------------------------------------------------------------------

def bessel_i(e, single, x, near, far, scaled):
    """Even in |x| up to 8, by e^|x| over its root from there on; without e^|x| where it is `scaled`."""
    a = e.abs(x)
    inside = a < 8.0
    b = at_most(e, a, 8.0)
    middle = fitted(e, single, b * b, near)
    tail = fitted(e, single, e.fma(1.0 / a, 16.0, -1.0), far)
    if scaled:
        return a, e.where(inside, middle * exp(e, -b), tail / e.sqrt(a))
    tail = tail / e.sqrt(at_most(e, a, 1e3)) + (a - a)          # of infinity NaN, as in PyTorch
    w, t = exp_parts(e, at_most(e, a, 800.0), EXPONENT_BIAS[F64])      # infinity after; e^a is before the result
    return a, e.where(inside, middle, times_power_of_two(e, e.fma(tail, w, tail), t))


@in_double
def i0(e, single, x):   return bessel_i(e, single, x, I0, I0_FAR, False)[1]


@in_double
def i0e(e, single, x):  return bessel_i(e, single, x, I0, I0_FAR, True)[1]


@in_double
def i1(e, single, x):   return _odd(e, x, *bessel_i(e, single, x, I1, I1_FAR, False))


@in_double
def i1e(e, single, x):  return _odd(e, x, *bessel_i(e, single, x, I1, I1_FAR, True))


def _odd(e, x, a, y):
    """With the sign of x, and times |x| / 2 where that was left out."""
    y = e.where(a < 8.0, (y * 0.5) * a, y)
    return e.where(x < 0.0, -y, y)
