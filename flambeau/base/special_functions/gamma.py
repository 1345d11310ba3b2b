"""The gamma function's logarithm, its derivatives, and Hurwitz's zeta function."""
import math

from .tools import elementwise, fill, poly, quiet, ratio

# W. J. Cody and K. E. Hillstrom, "Chebyshev approximations for the natural logarithm of the gamma function",
# Math. Comp. 21 (1967), digits of SPECFUN: about 1 on [1/2, 3/2], about 2 on [3/2, 4], about 4 on [4, 12].
LGAMMA_1 = -5.772156649015328605195174e-1
LGAMMA_1_P = (4.945235359296727046734888e0, 2.018112620856775083915565e2, 2.290838373831346393026739e3,
              1.131967205903380828685045e4, 2.855724635671635335736389e4, 3.848496228443793359990269e4,
              2.637748787624195437963534e4, 7.225813979700288197698961e3)
LGAMMA_1_Q = (1.0, 6.748212550303777196073036e1, 1.113332393857199323513008e3, 7.738757056935398733233834e3,
              2.763987074403340708898585e4, 5.499310206226157329794414e4, 6.161122180066002127833352e4,
              3.635127591501940507276287e4, 8.785536302431013170870835e3)
LGAMMA_2 = 4.227843350984671393993777e-1
LGAMMA_2_P = (4.974607845568932035012064e0, 5.424138599891070494101986e2, 1.550693864978364947665077e4,
              1.847932904445632425417223e5, 1.088204769468828767498470e6, 3.338152967987029735917223e6,
              5.106661678927352456275255e6, 3.074109054850539556250927e6)
LGAMMA_2_Q = (1.0, 1.830328399370592604055942e2, 7.765049321445005871323047e3, 1.331903827966074194402448e5,
              1.136705821321969608938755e6, 5.267964117437946917577538e6, 1.346701454311101692290052e7,
              1.782736530353274213975932e7, 9.533095591844353613395747e6)
LGAMMA_4 = 1.791759469228055000094023e0
LGAMMA_4_P = (1.474502166059939948905062e4, 2.426813369486704502836312e6, 1.214755574045093227939592e8,
              2.663432449630976949898078e9, 2.940378956634553899906876e10, 1.702665737765398868392998e11,
              4.926125793377430887588120e11, 5.606251856223951465078242e11)
LGAMMA_4_Q = (-1.0, 2.690530175870899333379843e3, 6.393885654300092398984238e5, 4.135599930241388052042842e7,
              1.120872109616147941376570e9, 1.488613728678813811542398e10, 1.016803586272438228077304e11,
              3.417476345507377132798597e11, 4.463158187419713286462081e11)

# Bernoulli's numbers B2, B4, ... B20 (DLMF table 24.2.1), from which the asymptotic series below are made.
BERNOULLI_NUMBERS = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
                     -174611 / 330)
STIRLING_COEFFICIENTS = [b / ((2 * k + 2) * (2 * k + 1)) for k, b in enumerate(BERNOULLI_NUMBERS[:8])][::-1]


def stirling(xp, x):
    """What Stirling's formula leaves out of lgamma for x from 12 on: DLMF 5.11.1."""
    y = 1 / x
    return y * poly(y * y, STIRLING_COEFFICIENTS)


def _lgamma_from_1(xp, d):
    """lgamma(1 + d) for d within half of 0, keeping every digit of a small d."""
    return d * (LGAMMA_1 + d * ratio(d, LGAMMA_1_P, LGAMMA_1_Q))


def _lgamma_from_2(xp, d):
    """lgamma(2 + d) for d from -1/2 to 2."""
    return d * (LGAMMA_2 + d * ratio(d, LGAMMA_2_P, LGAMMA_2_Q))


def _lgamma_from_4(xp, d):
    """lgamma(4 + d) for d from 0 to 8."""
    return LGAMMA_4 + d * ratio(d, LGAMMA_4_P, LGAMMA_4_Q)


def _lgamma_far(xp, x):
    return (x - 0.5) * (xp.log(x) - 1) + (0.5 * math.log(2 * math.pi) - 0.5 + stirling(xp, x))


def _lgamma_positive(xp, x):
    """lgamma for x from 1/2 on."""
    out = xp.empty_like(x)
    fill(xp, out, x <= 0.68, lambda xp, x: _lgamma_from_2(xp, x - 1) - xp.log(x), x)  # steadier than from 1
    fill(xp, out, (x > 0.68) & (x <= 1.5), lambda xp, x: _lgamma_from_1(xp, x - 1) + 0.0, x)    # 0, not -0, at 1
    fill(xp, out, (x > 1.5) & (x <= 4), lambda xp, x: _lgamma_from_2(xp, x - 2), x)
    fill(xp, out, (x > 4) & (x <= 12), lambda xp, x: _lgamma_from_4(xp, x - 4), x)
    fill(xp, out, ~(x <= 12), _lgamma_far, x)
    return out


def lgamma_1p(xp, a):
    """lgamma(1 + a) for positive a."""
    out = xp.empty_like(a)
    fill(xp, out, a <= 0.5, _lgamma_from_1, a)
    fill(xp, out, a > 0.5, lambda xp, a: _lgamma_positive(xp, 1 + a), a)
    return out


def _turn(xp, x):
    """x minus the nearest integer, exactly: sines of pi x have to be taken of this, or large x lose them."""
    return x - xp.rint(x)


def _lgamma_negative(xp, x):
    """Reflection: gamma(x) gamma(-x) = -pi / (x sin(pi x))."""
    size = -x
    sine = xp.sin(math.pi * xp.abs(_turn(xp, x)))
    out = -xp.log(size * sine / math.pi) - _lgamma_positive(xp, size)
    return xp.where(x == xp.floor(x), math.inf, out)       # poles; -inf counts as one


@elementwise
def lgamma(xp, x):
    """The logarithm of the absolute value of the gamma function at `x`."""
    out = xp.empty_like(x)
    fill(xp, out, xp.abs(x) <= 0.5, lambda xp, x: _lgamma_from_1(xp, x) - xp.log(xp.abs(x)), x)
    fill(xp, out, ~(xp.abs(x) <= 0.5) & ~(x < 0), _lgamma_positive, x)
    fill(xp, out, x < -0.5, _lgamma_negative, x)
    return out


# ---- Its derivatives
# W. J. Cody, A. J. Strecok and H. C. Thacher, "Chebyshev approximations for the psi function", Math. Comp. 27
# (1973), digits of SPECFUN: psi(x) / (x - root) on [1/2, 3]; beyond, what log(x) - 1/(2x) lacks, in 1/x^2.
PSI_ROOT = (187 / 128, 3128402820671 / 2**52, 9.5499954299656977152e-17)   # a sum: x less the first two is exact
PSI_P = (4.5104681245762934160e-3, 5.4932855833000385356e0, 3.7646693175929276856e2, 7.9525490849151998065e3,
         7.1451595818951933210e4, 3.0655976301987365674e5, 6.3606997788964458797e5, 5.8041312783537569993e5,
         1.6585695029761022321e5)
PSI_Q = (1.0, 9.6141654774222358525e1, 2.6287715790581193330e3, 2.9862497022250277920e4,
         1.6206566091533671639e5, 4.3487880712768329037e5, 5.4256384537269993733e5, 2.4242185002017985252e5,
         6.4155223783576225996e-8)
PSI_FAR_P = (-2.7103228277757834192e0, -1.5166271776896121383e1, -1.9784554148719218667e1,
             -8.8100958828312219821e0, -1.4479614616899842986e0, -7.3689600332394549911e-2,
             -6.5135387732718171306e-21)
PSI_FAR_Q = (1.0, 4.4992760373789365846e1, 2.0240955312679931159e2, 2.4736979003315290057e2,
             1.0742543875702278326e2, 1.7463965060678569906e1, 8.8427520398873480342e-1)


def _digamma_near(xp, x):
    return (((x - PSI_ROOT[0]) - PSI_ROOT[1]) - PSI_ROOT[2]) * ratio(x, PSI_P, PSI_Q)


def _digamma_far(xp, x):
    y = 1 / x
    return xp.log(x) - 0.5 * y + ratio(y * y, PSI_FAR_P, PSI_FAR_Q)


def _digamma_positive(xp, x):
    out = xp.empty_like(x)
    fill(xp, out, x <= 3, _digamma_near, x)
    fill(xp, out, ~(x <= 3), _digamma_far, x)
    return out


def _digamma_negative(xp, x):
    """Reflection: psi(x) = psi(1 - x) - pi / tan(pi x)."""
    out = _digamma_positive(xp, 1 - x) - math.pi / xp.tan(math.pi * _turn(xp, x))
    return xp.where(x == xp.floor(x), math.nan, out)       # poles have no one sign; -inf counts as one


@elementwise
def digamma(xp, x):
    """The derivative of `lgamma`."""
    out = xp.empty_like(x)
    small = xp.abs(x) <= 0.5
    fill(xp, out, small, lambda xp, x: _digamma_near(xp, 1 + x) - 1 / x, x)
    fill(xp, out, ~small & ~(x < 0), _digamma_positive, x)
    fill(xp, out, x < -0.5, _digamma_negative, x)
    return out


def _trigamma_positive(xp, x):
    """Ten terms of the sum of 1/(x + k)^2, then the asymptotic series, DLMF 5.15.8."""
    out = xp.zeros_like(x)
    for k in range(10):
        y = x + k
        out += 1 / (y * y)
    y = 1 / (x + 10)
    return out + y * (1 + y * (0.5 + y * poly(y * y, BERNOULLI_NUMBERS[7::-1])))


def _trigamma_negative(xp, x):
    """Reflection: psi'(x) + psi'(1 - x) = (pi / sin(pi x))^2."""
    wave = math.pi / xp.sin(math.pi * _turn(xp, x))
    return wave * wave - _trigamma_positive(xp, 1 - x)


@elementwise
def trigamma(xp, x):
    """The derivative of `digamma`."""
    out = xp.empty_like(x)
    fill(xp, out, ~(x < 0), _trigamma_positive, x)
    fill(xp, out, x < 0, _trigamma_negative, x)
    return out


EULER_MACLAURIN_COEFFICIENTS = [b / math.factorial(2 * k + 2) for k, b in enumerate(BERNOULLI_NUMBERS)]


def _zeta_positive(xp, s, q):
    """Ten terms of the sum of (q + k)^-s, then Euler and Maclaurin's formula, DLMF 2.10.1. q is positive."""
    out = xp.zeros_like(q)
    for k in range(10):
        out += xp.power(q + k, -s)
    s = xp.minimum(s, 400.0)                           # from 330 on the rest is 0; its factors must be finite
    z = q + 10
    rest = xp.power(z, 1 - s)
    out += rest * (1 / (s - 1) + 0.5 / z)
    factor = s / (z * z)
    for k, c in enumerate(EULER_MACLAURIN_COEFFICIENTS):
        out += c * factor * rest
        factor *= (s + (2 * k + 1)) * (s + (2 * k + 2)) / (z * z)
    return out


def _zeta_negative(xp, s, q):
    """For an integer s the sum of (q + k)^-s makes sense at negative q too. Its terms with q + k below 0 are,
    up to the sign (-1)^s, the difference of two such sums at positive arguments."""
    sign = xp.where(s == 2 * xp.floor(0.5 * s), 1.0, -1.0)
    below = _zeta_positive(xp, s, xp.ceil(q) - q) - _zeta_positive(xp, s, 1 - q)
    return _zeta_positive(xp, s, q - xp.floor(q)) + sign * below


@elementwise
def zeta(xp, s, q):
    """Hurwitz's zeta function, the sum of (q + k)^-s over k = 0, 1, ..."""
    out = xp.full_like(s, math.nan)
    pole = (q <= 0) & (q == xp.floor(q))
    fill(xp, out, (s > 1) & (q > 0), _zeta_positive, s, q)
    fill(xp, out, (s > 1) & (q < 0) & ~pole & (s == xp.floor(s)), _zeta_negative, s, q)
    out[(q == math.inf) | ((s == math.inf) & (q > 1))] = math.nan
    out[(s == math.inf) & (q < 0)] = math.inf
    out[pole & ~(s < 1)] = math.inf
    out[s == 1] = math.inf
    return out


def polygamma(xp, n, x):
    """The derivative of order `n`, a Python integer, of `digamma`."""
    if n == 0:
        return digamma(xp, x)
    if n == 1:
        return trigamma(xp, x)
    scale = math.factorial(n) if n <= 170 else math.inf
    with quiet(xp):
        out = float(scale if n % 2 else -scale) * zeta(xp, xp.float64(n + 1), x.astype(xp.float64))
        return out.astype(x.dtype)
