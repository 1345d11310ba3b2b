"""Sine, cosine and tangent, of huge arguments too, and their inverses."""
import math
from itertools import count

from ..emit import Emit, Term
from ..spelling import literal
from .tools import F32, F64, INF, minus_multiple, numbers, poly, round_to_int, wide

# --- trigonometry -----------------------------------------------------------------------------------------------------

# in parts cut off, not rounded: were one negative, 0 times it, added, would make 0 of -0
PI = {F32: numbers("1.921fb4p+1 1.4442dp-23 1.846988p-47"),
      F64: numbers("1.921fb54442d18p+1 1.1a62633145c06p-53 1.c1cd129024e08p-106")}
PI_REDUCTION_LIMIT = {F32: 2.0**17, F64: 2.0**30}                # how far reduction by PI in three parts is good
PI_MULTIPLE_BITS = {F32: 17, F64: 30}                            # of a multiple of pi so far, or of it and a half
# (sin(r) / r - 1) / r^2 in r^2, |r| <= pi/2 (float32 a hundredth more). float32: 2^-26.3, float64: 2^-57.8
SIN = {F32: numbers("-1.55554cp-3 1.110eb6p-7 -1.9f68eap-13 1.5d56b8p-19"),
       F64: numbers("-1.5555555555555p-3 1.11111111110c0p-7 -1.a01a01a0147abp-13 1.71de3a52803e3p-19 "
                    "-1.ae6454c7cdb57p-26 1.6123ca40198b1p-33 -1.ae42dfac1231ap-41 1.8822fc2223eecp-49")}


def sin(e, x):
    """(-1)^k sin(r), x = k pi + r."""
    k, t = round_to_int(e, x, 1 / math.pi)
    return _sin_of_rest(e, x, k, t, "sin")


def cos(e, x):
    """-(-1)^k sin(r), x = (k + 1/2) pi + r."""
    k, t = round_to_int(e, e.fma(x, 1 / math.pi, -0.5), 1.0, 1)
    return _sin_of_rest(e, x, k + 0.5, t, "cos")


def _sin_of_rest(e, x, k, t, name):
    r = minus_multiple(e, x, k, PI[x.type], PI_MULTIPLE_BITS[x.type])
    r = e.from_bits(e.bits(r) ^ e.bits(t) << {F32: 31, F64: 63}[x.type], x.type)
    r = e.rare(e.abs(x) > PI_REDUCTION_LIMIT[x.type], r, lambda: far_rest(e, name, x, r))
    z = r * r
    return r * e.fma(z, poly(e, z, SIN[x.type]), 1.0)


# of sin and cos, |r| <= pi/4: (sin(r) / r - 1) / r^2 and (cos(r) - 1 + r^2/2) / r^4 in r^2. 2^-57.1, 2^-59.5
SIN_QUARTER = numbers("-1.5555555555555p-3 1.111111111110bp-7 -1.a01a01a018a35p-13 1.71de3a532bf51p-19 "
                      "-1.ae6452876ddb1p-26 1.6120885c7016ap-33 -1.aaa04ea6b88ddp-41")
COS_QUARTER = numbers("1.5555555555555p-5 -1.6c16c16c16c0fp-10 1.a01a01a018c99p-16 -1.27e4fb75e8386p-22 "
                      "1.1eed8c8d0b3aap-29 -1.93931fdc060abp-37 1.aabb2b920e7ecp-45")


@wide
def tan(e, x):
    """sin(r) / cos(r), or -cos(r) / sin(r) for odd k, x = k pi/2 + r."""
    k, t = round_to_int(e, x, 2 / math.pi)
    high, middle, low = (part / 2 for part in PI[F64])
    exact = e.fma_exact(k, -high, x)
    r0 = e.fma_exact(k, -middle, exact)
    r = e.fma_exact(k, -low, r0)
    left = e.fma_exact(k, -middle, exact - r0) + e.fma_exact(k, -low, r0 - r)        # what the two roundings left out
    odd = e.cast(e.bits(t) & 1, F64)
    far = e.abs(x) > PI_REDUCTION_LIMIT[F64]
    r, left, odd = (e.rare(far, near, lambda near=near, name=name: far_rest(e, name, x, near))
                    for name, near in (("tan", r), ("tan_left", left), ("tan_odd", odd)))
    z = r * r
    half = z * 0.5
    most = 1.0 - half
    cosine = most + e.fma(z * z, poly(e, z, COS_QUARTER), e.fma(-r, left, (1.0 - most) - half))
    sine = r + e.fma(r * z, poly(e, z, SIN_QUARTER), left)
    flip = odd != 0.0
    y = e.where(flip, -cosine, sine) / e.where(flip, sine, cosine)
    return e.where(x == 0.0, x, y)                               # -0 is lost in the sum


# 1 / pi, the first 19 * 64 bits behind the point
ONE_OVER_PI = int("517cc1b727220a94fe13abe8fa9a6ee06db14acc9e21c820ff28b1d5ef5de2b0db92371d2126e9700324977504e8c90e"
                  "7f0ef58e5894d39f74411afa975da24274ce38135a2fbf209cc8eb1cc1a99cfa4e422fc5defc941d8ffc4bffef02cc07"
                  "f79788c5ad05368fb69b3f6793e584dba7a31fb34f2ff516ba93dd63f5f2f8bd9e839cfbc529497535fdafd88fc6ae84"
                  "2b0198237e3db5d5", 16)
# A huge |x| is m 2^q with a 53-bit integer m. Of the bits of 1/pi those that matter for x / pi modulo 2 are 256 from a
# word boundary on; their product with m, shifted, has the parity of x / pi in its highest bit and the fraction behind.
FAR_REDUCTION_TEXT = """define internal double @{name}(double %x, double %near) cold noinline nounwind {{
  %size = call double @llvm.fabs.f64(double %x)
  %far = fcmp ogt double %size, {limit}
  br i1 %far, label %reduce, label %back
back:
  ret double %near
reduce:
  %raw = bitcast double %size to i64
  %exponent = lshr i64 %raw, 52
  %finite = icmp ult i64 %exponent, 2047
  %held = select i1 %finite, i64 %exponent, i64 2046
  %fraction = and i64 %raw, 4503599627370495
  %m = or i64 %fraction, 4503599627370496
  %q = sub i64 %held, 1075
  %up = add i64 %q, 63
  %word = lshr i64 %up, 6
  %place = sub i64 16, %word
  %p = getelementptr i64, ptr @one_over_pi, i64 %place
  %bits = load i256, ptr %p, align 8
  %wide = zext i64 %m to i256
  %product = mul i256 %bits, %wide
  %start = shl i64 %word, 6
  %skipped = sub i64 %start, %q
  %room = sub i64 {room}, %skipped
  %shift = zext i64 %room to i256
  %aligned = shl i256 %product, %shift
  %turned = add i256 %aligned, {turn}
  %rest = shl i256 %turned, 1
  %both = xor i256 %turned, %rest
  %odd = icmp slt i256 %both, 0
  %high.wide = ashr i256 %rest, 192
  %high = trunc i256 %high.wide to i64
  %low.wide = lshr i256 %rest, 128
  %low = trunc i256 %low.wide to i64
  %most = and i64 %high, -2048
  %some = and i64 %high, 2047
  %a = sitofp i64 %most to double
  %b = sitofp i64 %some to double
  %c = uitofp i64 %low to double
  %bc = call double @{fma}(double %c, double {two_minus_64}, double %b)
  %t0 = fmul double %bc, {pi}
  %t1 = call double @{fma}(double %a, double {pi_low}, double %t0)
  %t2 = call double @{fma}(double %a, double {pi}, double %t1)
  %minus = fneg double %t2
{result}
  %out = select i1 %finite, double %r, double 0x7FF8000000000000
  ret double %out
}}"""
FAR_RESULT = {
    "sin": """  %r0 = select i1 %odd, double %minus, double %t2
  %r0.minus = fneg double %r0
  %negative = fcmp olt double %x, 0.0
  %r = select i1 %negative, double %r0.minus, double %r0""",
    "cos": "  %r = select i1 %odd, double %minus, double %t2",
    "tan": """  %negative = fcmp olt double %x, 0.0
  %r = select i1 %negative, double %minus, double %t2""",
    "tan_left": """  %t2.left = call double @{fma}(double %a, double {pi}, double %minus)
  %left = fadd double %t2.left, %t1
  %left.minus = fneg double %left
  %negative = fcmp olt double %x, 0.0
  %r = select i1 %negative, double %left.minus, double %left""",
    "tan_odd": "  %r = uitofp i1 %odd to double"}


def far_rest(e, name, x, near):
    """In the lanes where |x| is huge, what is left of it after whole multiples of pi; `near` in the others.

    For "sin" and "cos" the r whose sine is the result. For "tan" multiples of pi/2 are taken off; "tan_left" is what
    the rounding of that rest left out, and "tan_odd" the parity of the multiple.
    """
    padded = [0, *(ONE_OVER_PI >> 64 * (18 - i) & 2**64 - 1 for i in range(19))]
    words = ", ".join(f"i64 {literal(word, 'i64')}" for word in reversed(padded))
    e.defined["one_over_pi"] = f"@one_over_pi = internal constant [20 x i64] [{words}]"
    quarter = name.startswith("tan")
    pi, low, _ = (part * 2.0**(-65 if quarter else -64) for part in PI[F64])
    function = f"far_{name}_{x.type}"
    e.defined[function] = (FAR_REDUCTION_TEXT.replace("{result}", FAR_RESULT[name])).format(
        name=function, limit=literal(PI_REDUCTION_LIMIT[x.type], F64), room=64 if quarter else 63,
        turn=2**254 if name == "cos" else 0, fma=exact_fma(e), two_minus_64=literal(2.0**-64, F64), pi=literal(pi, F64),
        pi_low=literal(low, F64))
    e.declared.add("declare double @llvm.fabs.f64(double)")
    return e.by_lane(function, x, near)


def exact_fma(e):
    """The name of a function of three doubles that rounds a b + c once."""
    if e.target.fma:
        e.declared.add("declare double @llvm.fma.f64(double, double, double)")
        return "llvm.fma.f64"
    if "fma_exact" not in e.defined:
        inner = Emit([], count(), e.declared, e.defined, "entry", e.target)
        out = inner.fma_exact(*(Term(inner, F64, 1, name) for name in ("%a", "%b", "%c")))
        e.defined["fma_exact"] = "\n".join(["define internal double @fma_exact(double %a, double %b, double %c) {",
                                            "entry:", *inner.lines, f"  ret double {out.text}", "}"])
    return "fma_exact"


# --- inverse trigonometric functions ----------------------------------------------------------------------------------

# (asin(x) - x) / x^3 in x^2, |x| <= 1/2. 2^-58.3
ASIN = numbers("1.5555555555577p-3 1.333333332e08fp-4 1.6db6db7219d9p-5 1.f1c71a922690fp-6 1.6e8bdf3007048p-6 "
               "1.1c49eaac8bb9fp-6 1.ca201857e568dp-7 1.7581030094effp-7 1.61566bd2b53f6p-7 1.e466d10fc903fp-9 "
               "1.64181e3b88dd5p-6 -1.58afef70912c3p-6 1.0b7f9e12e76dbp-5")
# (atan(x) - x) / x^3 in x^2, |x| <= tan(pi/8). 2^-57.5
ATAN = numbers("-1.555555555553cp-2 1.9999999995737p-3 -1.24924922a6652p-3 1.c71c70e374926p-4 -1.745cf89398a89p-4 "
               "1.3b111424eaa33p-4 -1.10eb808bb5c01p-4 1.df0c2764cb912p-5 -1.9cc4ad0b88f3cp-5 1.37b20ea18732ep-5 "
               "-1.251c97982460ep-6")
TAN_PI_8 = math.sqrt(2) - 1


def _asin_parts(e, a):
    """asin(a) for a <= 1/2, and asin(sqrt((1 - a) / 2)) = (pi/2 - asin(a)) / 2 for the others."""
    near = a < 0.5
    z = e.where(near, a * a, (1.0 - a) * 0.5)
    s = e.where(near, a, e.sqrt(z))
    return near, e.fma(s * z, poly(e, z, ASIN), s)


@wide
def asin(e, x):
    near, y = _asin_parts(e, e.abs(x))
    half, low, _ = (part / 2 for part in PI[F64])
    return e.copysign(e.where(near, y, half - (y + y - low)), x)


@wide
def acos(e, x):
    near, y = _asin_parts(e, e.abs(x))
    half, low, _ = (part / 2 for part in PI[F64])
    y = e.where(near, e.copysign(y, x), y + y)
    middle = half - (y - low)
    return e.where(near, middle, e.where(x < 0.0, 2 * half - (y - 2 * low), y))


def _atan_of(e, num, den, octants, sign=None):
    """octants * pi/4 + sign * atan(num / den), |num / den| <= tan(pi/8)."""
    x = num / den
    z = x * x
    y = e.fma(x * z, poly(e, z, ATAN), x)
    y = y if sign is None else y * sign
    high, low, _ = (part / 4 for part in PI[F64])
    return e.fma(octants, high, e.fma(octants, low, y))


@wide
def atan(e, x):
    a = e.abs(x)
    middle, far = a > TAN_PI_8, a > 1 / TAN_PI_8
    num = e.where(far, -1.0, e.where(middle, a - 1.0, a))
    den = e.where(far, a, e.where(middle, a + 1.0, 1.0))
    return e.copysign(_atan_of(e, num, den, e.where(far, 2.0, e.where(middle, e.const(1.0, F64), 0.0))), x)


@wide
def atan2(e, y, x):
    """The lesser of |x| and |y| over the greater, as an angle within an octant that swaps and signs then unfold."""
    y_size, x_size = e.abs(y), e.abs(x)
    swap = y_size > x_size
    less, more = e.where(swap, x_size, y_size), e.where(swap, y_size, x_size)
    scale = e.where(more > 2.0**1000, e.const(2.0**-64, F64), e.where(more < 2.0**-1000, e.const(2.0**64, F64), 1.0))
    endless = more == INF
    less = e.where(endless, e.where(less == INF, 1.0, less * 0.0), less * scale)
    more = e.where(endless, 1.0, more * scale)
    steep = less > more * TAN_PI_8
    num, den = e.where(steep, less - more, less), e.where(steep, less + more, more)
    den = e.where(less + more == 0.0, 1.0, den)
    octants, sign = e.where(steep, e.const(1.0, F64), 0.0), e.const(1.0, F64)
    octants, sign = e.where(swap, 2.0 - octants, octants), e.where(swap, -sign, sign)
    back = e.bits(x) < 0
    octants, sign = e.where(back, 4.0 - octants, octants), e.where(back, -sign, sign)
    return e.copysign(_atan_of(e, num, den, octants, sign), y)
