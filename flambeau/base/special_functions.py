"""The special functions that NumPy lacks, as array code for NumPy or CuPy.

Every function takes the array module `xp` first, then arrays of float32 or float64 that broadcast, and
gives an array of their common dtype. All arithmetic is float64; a float32 result is rounded once, at the end.
Infinities, nan, signed zeros, poles and domain errors come out as PyTorch has them. Only where its kernels
overflow early or return rounding noise (`i0(712)`, `trigamma(-1)`, `zeta(1e30, 2)`), the true value does.

Float64 results are good to a few units in the last place, with two exceptions. Next to a zero at negative x
(`lgamma`, `digamma`, `polygamma`) the error is small beside the terms that cancel, not beside the result.
And an incomplete gamma function that is as small as e^-E is good to about 20 + 3 E units.

The tables are the published ones, named where they stand; polynomials list the highest power first.
"""
import functools
import math
from contextlib import nullcontext

import numpy as np

BLOCK_ELEMENTS = 1 << 14       # elements: a few float64 temporaries of this length stay in the cache
SQRT_2 = math.sqrt(2)
SQRT_HALF = math.sqrt(0.5)


def quiet(xp):
    """A context in which invalid values and overflow give no warning. CuPy never does, and has no switch."""
    return xp.errstate(all="ignore") if hasattr(xp, "errstate") else nullcontext()


def elementwise(body):
    """Turn a function of flat float64 arrays into one of any shape and float dtype, run block by block."""
    @functools.wraps(body)
    def call(xp, *args):
        dtype = xp.result_type(*args)
        args = xp.broadcast_arrays(*map(xp.asarray, args))
        out = xp.empty(args[0].shape, dtype)
        flat, target = [a.reshape(-1) for a in args], out.reshape(-1)
        step = BLOCK_ELEMENTS if xp is np else max(target.size, 1)  # a GPU wants everything at once
        with quiet(xp):
            for i in range(0, target.size, step):
                target[i:i + step] = body(xp, *(a[i:i + step].astype(xp.float64) for a in flat))
        return out
    return call


def fill(xp, out, mask, body, *args):
    """Set `out` where `mask` holds to `body(xp, *args)`, evaluated there and nowhere else."""
    at = xp.flatnonzero(mask)
    if at.size == out.size:
        out[...] = body(xp, *args)
    elif at.size:
        out[at] = body(xp, *(a[at] for a in args))


def poly(x, coefficients):
    """Horner's rule, highest power first."""
    out = x * coefficients[0]
    out += coefficients[1]
    for c in coefficients[2:]:
        out *= x
        out += c
    return out


def ratio(x, above, below):
    out = poly(x, above)
    out /= poly(x, below)
    return out


# ---- The error function and its relatives
# W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969), digits of his
# SPECFUN: erf near 0; exp(x^2) erfc(x) up to 4; the same beyond 4, in 1/x^2.
ERF_CENTRE = 0.46875
ERF_P = (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2,
         3.20937758913846947e3)
ERF_Q = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
ERFCX_P = (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
           2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
           1.23033935479799725e3)
ERFCX_Q = (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
           3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3)
ERFCX_FAR_P = (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
               1.60837851487422766e-2, 6.58749161529837803e-4)
ERFCX_FAR_Q = (1.0, 2.56852019228982242e0, 1.87295284992346725e0, 5.27905102951428412e-1,
               6.05183413124413191e-2, 2.33520497626869185e-3)


def _erf_centre(xp, x):
    return x * ratio(x * x, ERF_P, ERF_Q)


def _erfcx_middle(xp, y):
    return ratio(y, ERFCX_P, ERFCX_Q)


def _erfcx_far(xp, y):
    z = 1 / (y * y)
    return (1 / math.sqrt(math.pi) - z * ratio(z, ERFCX_FAR_P, ERFCX_FAR_Q)) / y


def _erfcx_tail(xp, y):
    """exp(y^2) erfc(y) for y from ERF_CENTRE on."""
    out = xp.empty_like(y)
    far = y > 4
    fill(xp, out, ~far, _erfcx_middle, y)
    fill(xp, out, far, _erfcx_far, y)
    return out


def _gauss(xp, x, scale):
    """exp(scale x^2). What rounding x^2 loses would grow by up to 700, so it is computed and put back."""
    x = xp.minimum(xp.abs(x), 40.0)                        # beyond, the result is 0 or inf anyway
    square = x * x
    head = x.astype(xp.float32).astype(xp.float64)         # 24 bits, whose square is exact
    tail = x - head
    lost = ((head * head - square) + 2 * head * tail) + tail * tail
    return xp.exp(scale * square) * (1 + scale * lost)


def _erfc_tail(xp, y):
    return _gauss(xp, y, -1.0) * _erfcx_tail(xp, y)


@elementwise
def erf(xp, x):
    """Two over the root of pi times the integral of exp(-t^2) from 0 to `x`."""
    out = xp.empty_like(x)
    size = xp.abs(x)
    centre, far = size <= ERF_CENTRE, size > 6             # from 6 on the result is 1
    fill(xp, out, centre, _erf_centre, x)
    fill(xp, out, ~(centre | far), lambda xp, x, y: xp.copysign(1 - _erfc_tail(xp, y), x), x, size)
    fill(xp, out, far, lambda xp, x: xp.copysign(1.0, x), x)
    return out


@elementwise
def erfc(xp, x):
    """One minus `erf`, precise where that is small."""
    out = xp.empty_like(x)
    size = xp.abs(x)
    centre = size <= ERF_CENTRE
    fill(xp, out, centre, lambda xp, x: 1 - _erf_centre(xp, x), x)
    fill(xp, out, ~centre & (x < 0), lambda xp, y: 2 - _erfc_tail(xp, y), size)
    fill(xp, out, ~centre & ~(x < 0), _erfc_tail, size)
    return out


@elementwise
def erfcx(xp, x):
    """exp(x^2) times `erfc`, which neither underflows nor overflows for positive `x`."""
    out = xp.empty_like(x)
    size = xp.abs(x)
    centre = size <= ERF_CENTRE
    fill(xp, out, centre, lambda xp, x: xp.exp(x * x) * (1 - _erf_centre(xp, x)), x)
    fill(xp, out, ~centre & (x < 0), lambda xp, y: 2 * _gauss(xp, y, 1.0) - _erfcx_tail(xp, y), size)
    fill(xp, out, ~centre & ~(x < 0), _erfcx_tail, size)
    return out


def _normal_tail(xp, y):
    """The probability that a standard normal variable exceeds y, for y / sqrt(2) from ERF_CENTRE on."""
    return 0.5 * _gauss(xp, y, -0.5) * _erfcx_tail(xp, y * SQRT_HALF)


@elementwise
def ndtr(xp, x):
    """The probability that a standard normal variable is below `x`."""
    out = xp.empty_like(x)
    size = xp.abs(x)
    centre = size <= ERF_CENTRE * SQRT_2
    fill(xp, out, centre, lambda xp, x: 0.5 + 0.5 * _erf_centre(xp, x * SQRT_HALF), x)
    fill(xp, out, ~centre & (x < 0), _normal_tail, size)
    fill(xp, out, ~centre & ~(x < 0), lambda xp, y: 1 - _normal_tail(xp, y), size)
    return out


@elementwise
def log_ndtr(xp, x):
    """The logarithm of `ndtr`, precise in both tails."""
    out = xp.empty_like(x)
    size = xp.abs(x)
    centre = size <= ERF_CENTRE * SQRT_2
    fill(xp, out, centre, lambda xp, x: xp.log1p(_erf_centre(xp, x * SQRT_HALF)) - math.log(2), x)
    fill(xp, out, ~centre & (x < 0),
         lambda xp, y: xp.log(0.5 * _erfcx_tail(xp, y * SQRT_HALF)) - 0.5 * (y * y), size)
    fill(xp, out, ~centre & ~(x < 0), lambda xp, y: xp.log1p(-_normal_tail(xp, y)), size)
    return out


# M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Appl. Stat. 37 (1988),
# PPND16: in q = p - 1/2 within 0.425 of 0; outside in r = sqrt(-log(tail probability)), to 5 and beyond.
PPND_P = (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
          1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0)
PPND_Q = (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
          5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0)
PPND_NEAR_P = (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
               1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0,
               4.63033784615654529590e0, 1.42343711074968357734e0)
PPND_NEAR_Q = (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
               1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0,
               2.05319162663775882187e0, 1.0)
PPND_FAR_P = (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
              2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
              5.46378491116411436990e0, 6.65790464350110377720e0)
PPND_FAR_Q = (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
              7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
              5.99832206555887937690e-1, 1.0)


def _quantile_centre(xp, q):
    """The normal quantile of 1/2 + q, divided by q."""
    return ratio(0.180625 - q * q, PPND_P, PPND_Q)


def _quantile_tail(xp, p):
    """The y that a standard normal variable exceeds with probability p, for p below 0.075; inf for 0."""
    r = xp.sqrt(-xp.log(p))
    out = xp.empty_like(r)
    fill(xp, out, r <= 5, lambda xp, r: ratio(r - 1.6, PPND_NEAR_P, PPND_NEAR_Q), r)
    fill(xp, out, r > 5, lambda xp, r: ratio(r - 5.0, PPND_FAR_P, PPND_FAR_Q), r)
    out[r == math.inf] = math.inf
    return out


@elementwise
def ndtri(xp, p):
    """The inverse of `ndtr`; nan outside [0, 1]."""
    out = xp.full_like(p, math.nan)
    q = p - 0.5
    fill(xp, out, xp.abs(q) <= 0.425, lambda xp, q: q * _quantile_centre(xp, q), q)
    fill(xp, out, (p >= 0) & (q < -0.425), lambda xp, p: -_quantile_tail(xp, p), p)
    fill(xp, out, (p <= 1) & (q > 0.425), lambda xp, p: _quantile_tail(xp, 1 - p), p)
    return out


@elementwise
def erfinv(xp, x):
    """The inverse of `erf`; nan outside [-1, 1]."""
    out = xp.full_like(x, math.nan)
    size = xp.abs(x)
    fill(xp, out, size <= 0.85, lambda xp, x: x * (_quantile_centre(xp, 0.5 * x) * (0.5 * SQRT_HALF)), x)
    fill(xp, out, (size > 0.85) & (size <= 1),
         lambda xp, x, y: xp.copysign(_quantile_tail(xp, 0.5 * (1 - y)) * SQRT_HALF, x), x, size)
    return out


# ---- The gamma function's logarithm
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


def _stirling(xp, x):
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
    return (x - 0.5) * (xp.log(x) - 1) + (0.5 * math.log(2 * math.pi) - 0.5 + _stirling(xp, x))


def _lgamma_positive(xp, x):
    """lgamma for x from 1/2 on."""
    out = xp.empty_like(x)
    fill(xp, out, x <= 0.68, lambda xp, x: _lgamma_from_2(xp, x - 1) - xp.log(x), x)  # steadier than from 1
    fill(xp, out, (x > 0.68) & (x <= 1.5), lambda xp, x: _lgamma_from_1(xp, x - 1) + 0.0, x)    # 0, not -0, at 1
    fill(xp, out, (x > 1.5) & (x <= 4), lambda xp, x: _lgamma_from_2(xp, x - 2), x)
    fill(xp, out, (x > 4) & (x <= 12), lambda xp, x: _lgamma_from_4(xp, x - 4), x)
    fill(xp, out, ~(x <= 12), _lgamma_far, x)
    return out


def _lgamma_1p(xp, a):
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


# ---- The incomplete gamma functions
# P (lower) and Q = 1 - P (upper). A power series gives P for x below a, a continued fraction Q for x above,
# another series Q for small x, and N. M. Temme's uniform expansion (SIAM J. Math. Anal. 10, 1979) both, where
# a is large and x near it.
TEMME_DISTANCE = 0.3           # how near, |x - a| / a
TEMME_LEAST_A = 30.0           # how large
TEMME_ORDERS, TEMME_POWERS = 11, 18


@functools.cache
def _temme_table():
    """The coefficients of eta^n a^-k in the uniform expansion, by recurrence, DLMF 8.12.12 and 8.12.13."""
    from fractions import Fraction  # floats lose digits here; imported late, as few programs come this way
    count = TEMME_POWERS + 2 * TEMME_ORDERS + 2
    alpha = [Fraction(0), Fraction(1)]
    for n in range(2, count + 1):
        alpha.append((alpha[n - 1] - sum(j * alpha[j] * alpha[n - j + 1] for j in range(2, n))) / (n + 1))
    stirling = [Fraction(1)]                               # of gamma, DLMF 5.11.3: the odd alphas once more
    for k in range(1, TEMME_ORDERS):
        stirling.append(alpha[2 * k + 1] * math.prod(range(1, 2 * k + 2, 2)))
    first = [(n + 2) * alpha[n + 2] - (n == 0) for n in range(count - 1)]
    row, table = first, []
    for k in range(TEMME_ORDERS):
        if k:
            row = [(-1) ** k * stirling[k] * first[n] + (n + 2) * row[n + 2] for n in range(len(row) - 2)]
        table.append([float(c) for c in reversed(row[:TEMME_POWERS - k])])  # the smaller a^-k, the fewer matter
    return table


def _log1p_less(xp, m):
    """m - log1p(m) for m above -1, precise near 0 too: with v = m / (2 + m), log1p(m) is 2 atanh(v)."""
    out = m - xp.log1p(m)
    near = xp.abs(m) < 0.5

    def series(xp, m):
        v = m / (2 + m)
        w = v * v
        return v * (m - 2 * w * poly(w, [1 / n for n in range(37, 1, -2)]))
    fill(xp, out, near, series, m)
    return out


def _gamma_density(xp, a, x):
    """x^a e^-x / gamma(a + 1), which every method below starts from."""
    out = xp.empty_like(x)

    def small(xp, a, x):
        x = xp.minimum(x, 2000.0)                          # beyond, the result is 0
        half = xp.exp(-0.5 * x)                            # twice, lest exp(-x) underflow alone
        return half * xp.power(x, a) * half * xp.exp(-_lgamma_1p(xp, a))

    def large(xp, a, x):                                   # C. Loader's saddle point (2000): nothing cancels
        m = (x - a) / a
        excess = xp.where(x < 0.5 * a, m - xp.log(x / a), _log1p_less(xp, xp.maximum(m, -0.5)))
        return xp.exp(-a * excess - _stirling(xp, a)) / xp.sqrt(2 * math.pi * a)

    fill(xp, out, a <= 12, small, a, x)
    fill(xp, out, a > 12, large, a, x)
    return out


def _p_series(xp, a, x):
    """P as the density times the sum of x^k / ((a + 1) ... (a + k)), DLMF 8.11.4."""
    term = xp.ones_like(x)
    total = xp.ones_like(x)
    for k in range(1, 2000):
        term *= x / (a + k)
        total += term
        if k % 8 == 0 and not (term > 1e-17 * total).any():
            break
    return _gamma_density(xp, a, x) * total


def _q_fraction(xp, a, x):
    """Q as the density times a continued fraction, DLMF 8.9.2 contracted, by Steed's forward recurrence."""
    b = x + 1 - a
    d = 1 / b
    step = d
    total = d
    for k in range(1, 2000):
        numerator = k * (a - k)
        b = b + 2
        d = 1 / (b + numerator * d)
        step = step * (b * d - 1)
        total = total + step
        if k % 8 == 0 and not (xp.abs(step) > 1e-17 * xp.abs(total)).any():
            break
    return _gamma_density(xp, a, x) * a * total


def _q_small(xp, a, x):
    """Q for small x, where P may be near 1: the first term of DLMF 8.7.3 by expm1, then the others."""
    power = a * xp.log(x) - _lgamma_1p(xp, a)
    term = xp.ones_like(x)
    rest = xp.zeros_like(x)
    for k in range(1, 22):
        term *= -x / k
        rest += term / (a + k)
    return -xp.expm1(power) - xp.exp(power) * a * rest


def _temme(xp, a, x, upper):
    """DLMF 8.12.3 and 4: half an error function plus a correction. The smaller of P and Q is computed so."""
    m = (x - a) / a
    excess = _log1p_less(xp, m)
    eta = xp.copysign(xp.sqrt(2 * excess), m)
    correction = xp.zeros_like(x)
    for row in reversed(_temme_table()):
        correction /= a
        correction += poly(eta, row)
    y = xp.sqrt(a * excess)
    scaled = xp.empty_like(y)                              # exp(y^2) erfc(y)
    centre = y <= ERF_CENTRE
    fill(xp, scaled, centre, lambda xp, y: xp.exp(y * y) * (1 - _erf_centre(xp, y)), y)
    fill(xp, scaled, ~centre, _erfcx_tail, y)
    correction /= xp.where(m > 0, 1.0, -1.0) * xp.sqrt(2 * math.pi * a)
    tail = xp.exp(-a * excess) * (0.5 * scaled + correction)
    return xp.where((m > 0) == upper, tail, 1 - tail)


def _incomplete_gamma(xp, a, x, upper):
    regular = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
    out = xp.full_like(x, math.nan)
    uniform = regular & (a >= TEMME_LEAST_A) & (xp.abs(x - a) < TEMME_DISTANCE * a)
    certain = regular & ~uniform & (a > 1e6)               # so far out that P is 0 or 1
    regular = regular & ~uniform & ~certain
    fraction = regular & (x > 1.1) & (x > a)
    series = regular & ~fraction
    fill(xp, out, uniform, lambda xp, a, x: _temme(xp, a, x, upper), a, x)
    if upper:
        small = series & (x <= 1.1) & xp.where(x <= 0.5, a * -xp.log(x) < 0.4, a < 1.1 * x)
        fill(xp, out, small, _q_small, a, x)
        fill(xp, out, series & ~small, lambda xp, a, x: 1 - _p_series(xp, a, x), a, x)
        fill(xp, out, fraction, _q_fraction, a, x)
    else:
        fill(xp, out, series, _p_series, a, x)
        fill(xp, out, fraction, lambda xp, a, x: 1 - _q_fraction(xp, a, x), a, x)
    none, whole = (1.0, 0.0) if upper else (0.0, 1.0)
    out[certain & (x < a)] = none
    out[certain & (x > a)] = whole
    out[(x == math.inf) & ~(a < 0)] = whole
    out[(a == math.inf) & ~(x < 0)] = none
    out[(x == 0) & ~(a < 0)] = none
    out[(a == 0) & (x > 0)] = whole
    out[((a == 0) & (x == 0)) | ((a == math.inf) & (x == math.inf))] = math.nan
    return out


@elementwise
def igamma(xp, a, x):
    """The regularised lower incomplete gamma function P(a, x), for `a` and `x` from 0 on."""
    return _incomplete_gamma(xp, a, x, upper=False)


@elementwise
def igammac(xp, a, x):
    """The regularised upper incomplete gamma function Q(a, x) = 1 - P(a, x)."""
    return _incomplete_gamma(xp, a, x, upper=True)


# ---- Modified Bessel functions of the first kind
# To 20 the power series, DLMF 10.25.2, all terms positive; beyond, the asymptotic one, DLMF 10.40.1.
def _bessel_coefficients(order):
    power = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(42)]
    far = [1.0]
    for k in range(1, 28):
        far.append(far[-1] * -(4 * order - (2 * k - 1) ** 2) / (8 * k))
    return power[::-1], far[::-1]


BESSEL_COEFFICIENTS = [_bessel_coefficients(0), _bessel_coefficients(1)]


def _bessel(xp, order, x, scaled):
    """The Bessel function of order 0 or 1, times exp(-|x|) if `scaled`."""
    power, far = BESSEL_COEFFICIENTS[order]

    def below(xp, y):
        out = poly(0.25 * y * y, power)
        if order:
            out *= 0.5 * y
        return out * xp.exp(-y) if scaled else out

    def above(xp, y):
        out = poly(1 / y, far) / xp.sqrt(y) / math.sqrt(2 * math.pi)
        if scaled:
            return out
        half = xp.exp(0.5 * y)                             # exp(y) overflows before the result does
        return out * half * half

    size = xp.abs(x)
    out = xp.empty_like(x)
    fill(xp, out, size <= 20, below, size)
    fill(xp, out, ~(size <= 20), above, size)
    return xp.where(x < 0, -out, out) if order else out


@elementwise
def i0(xp, x):
    """The modified Bessel function of the first kind of order 0."""
    return _bessel(xp, 0, x, scaled=False)


@elementwise
def i0e(xp, x):
    """`i0` times exp(-|x|)."""
    return _bessel(xp, 0, x, scaled=True)


@elementwise
def i1(xp, x):
    """The modified Bessel function of the first kind of order 1."""
    return _bessel(xp, 1, x, scaled=False)


@elementwise
def i1e(xp, x):
    """`i1` times exp(-|x|)."""
    return _bessel(xp, 1, x, scaled=True)


# ---- Short ones
@elementwise
def sinc(xp, x):
    """sin(pi x) / (pi x), and 1 at 0."""
    whole = xp.rint(x)
    sine = xp.sin(math.pi * (x - whole))
    sine = xp.where(whole == 2 * xp.floor(0.5 * whole), sine, -sine)
    return xp.where(x == 0, 1.0, sine / (math.pi * x))


@elementwise
def spherical_bessel_j0(xp, x):
    """sin(x) / x, 1 at 0 and 0 at the infinities."""
    return xp.where(x == 0, 1.0, xp.where(xp.isinf(x), 0.0, xp.sin(x) / x))


@elementwise
def xlog1py(xp, x, y):
    """`x` times log1p(`y`), and 0 where `x` is 0 unless `y` is nan."""
    return xp.where((x == 0) & ~xp.isnan(y), 0.0, x * xp.log1p(y))


@elementwise
def entr(xp, x):
    """-`x` log(`x`), 0 at 0 and -inf below."""
    return xp.where(x == 0, 0.0, xp.where(x < 0, -math.inf, -x * xp.log(x)))
