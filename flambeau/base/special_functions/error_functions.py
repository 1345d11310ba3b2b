"""The error function and its relatives, and the normal distribution's."""
import math

from .tools import SQRT_2, SQRT_HALF, elementwise, fill, ratio

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


def erf_centre(xp, x):
    return x * ratio(x * x, ERF_P, ERF_Q)


def _erfcx_middle(xp, y):
    return ratio(y, ERFCX_P, ERFCX_Q)


def _erfcx_far(xp, y):
    z = 1 / (y * y)
    return (1 / math.sqrt(math.pi) - z * ratio(z, ERFCX_FAR_P, ERFCX_FAR_Q)) / y


def erfcx_tail(xp, y):
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
    return _gauss(xp, y, -1.0) * erfcx_tail(xp, y)


@elementwise
def erf(xp, x):
    """Two over the root of pi times the integral of exp(-t^2) from 0 to `x`."""
    out = xp.empty_like(x)
    size = xp.abs(x)
    centre, far = size <= ERF_CENTRE, size > 6             # from 6 on the result is 1
    fill(xp, out, centre, erf_centre, x)
    fill(xp, out, ~(centre | far), lambda xp, x, y: xp.copysign(1 - _erfc_tail(xp, y), x), x, size)
    fill(xp, out, far, lambda xp, x: xp.copysign(1.0, x), x)
    return out


@elementwise
def erfc(xp, x):
    """One minus `erf`, precise where that is small."""
    out = xp.empty_like(x)
    size = xp.abs(x)
    centre = size <= ERF_CENTRE
    fill(xp, out, centre, lambda xp, x: 1 - erf_centre(xp, x), x)
    fill(xp, out, ~centre & (x < 0), lambda xp, y: 2 - _erfc_tail(xp, y), size)
    fill(xp, out, ~centre & ~(x < 0), _erfc_tail, size)
    return out


@elementwise
def erfcx(xp, x):
    """exp(x^2) times `erfc`, which neither underflows nor overflows for positive `x`."""
    out = xp.empty_like(x)
    size = xp.abs(x)
    centre = size <= ERF_CENTRE
    fill(xp, out, centre, lambda xp, x: xp.exp(x * x) * (1 - erf_centre(xp, x)), x)
    fill(xp, out, ~centre & (x < 0), lambda xp, y: 2 * _gauss(xp, y, 1.0) - erfcx_tail(xp, y), size)
    fill(xp, out, ~centre & ~(x < 0), erfcx_tail, size)
    return out


def _normal_tail(xp, y):
    """The probability that a standard normal variable exceeds y, for y / sqrt(2) from ERF_CENTRE on."""
    return 0.5 * _gauss(xp, y, -0.5) * erfcx_tail(xp, y * SQRT_HALF)


@elementwise
def ndtr(xp, x):
    """The probability that a standard normal variable is below `x`."""
    out = xp.empty_like(x)
    size = xp.abs(x)
    centre = size <= ERF_CENTRE * SQRT_2
    fill(xp, out, centre, lambda xp, x: 0.5 + 0.5 * erf_centre(xp, x * SQRT_HALF), x)
    fill(xp, out, ~centre & (x < 0), _normal_tail, size)
    fill(xp, out, ~centre & ~(x < 0), lambda xp, y: 1 - _normal_tail(xp, y), size)
    return out


@elementwise
def log_ndtr(xp, x):
    """The logarithm of `ndtr`, precise in both tails."""
    out = xp.empty_like(x)
    size = xp.abs(x)
    centre = size <= ERF_CENTRE * SQRT_2
    fill(xp, out, centre, lambda xp, x: xp.log1p(erf_centre(xp, x * SQRT_HALF)) - math.log(2), x)
    fill(xp, out, ~centre & (x < 0),
         lambda xp, y: xp.log(0.5 * erfcx_tail(xp, y * SQRT_HALF)) - 0.5 * (y * y), size)
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
