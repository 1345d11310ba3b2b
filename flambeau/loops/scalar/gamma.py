"""The logarithm of the gamma function and its derivative."""
import math

from .exponential import LN2
from .logarithm import log, log1p_parts, log_ends, log_parts
from .tools import F64, INF, NAN, fast_two_sum, numbers, poly, wide
from .trigonometry import SIN

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
