"""Functions of one number, element by element: roots, exponentials, angles, rounding, signs; and complex numbers."""
import math

from ..base import dtypes
from ..base.errors import need
from ..base.op import Composite, Pointwise, View
from ..base.spec import spec
from ..base.special_functions import sinc as real_sinc
from .arith import conj, widened


def no_complex(dtype, *args):
    """Refuse complex operands in the words of the rounding functions."""
    need(not dtype.is_complex, "not supported for complex inputs", NotImplementedError)


def zeros(g):
    """A gradient of zero, of the shape and dtype of `g`."""
    return g.new_zeros(g.shape)


# ---- roots, exponentials, logarithms


class sqrt(Pointwise):
    """The square root of `input`, elementwise."""

    result = "float"

    def ref(xp, input):     return xp.sqrt(input)
    def d_input(g, out):    return g / (2 * conj(out))
    def body(k, input):     return k.sqrt(input)


class rsqrt(Pointwise):
    """One over the square root of `input`, elementwise."""

    result = "float"

    def ref(xp, input):     return 1 / xp.sqrt(input)
    def d_input(g, out):    return -0.5 * g * conj(out ** 3)
    def body(k, input):     return k.rsqrt(input)


class exp(Pointwise):
    """e to the power `input`, elementwise."""

    result = "float"

    def ref(xp, input):     return xp.exp(input)
    def d_input(g, out):    return g * conj(out)
    def body(k, input):     return k.exp(input)


class exp2(Pointwise):
    """Two to the power `input`, elementwise."""

    names = "special.exp2"
    result = "float"

    def ref(xp, input):
        if input.dtype.kind != "c":
            return xp.exp2(input)
        scaled = input.copy()                             # part by part: infinity times a complex number is NaN
        scaled.real *= math.log(2)
        scaled.imag *= math.log(2)
        return xp.exp(scaled)

    def d_input(g, out):    return g * conj(out * math.log(2))
    def body(k, input):     return k.exp2(input)


class expm1(Pointwise):
    """e to the power `input`, minus one, elementwise; exact near zero."""

    names = "special.expm1"
    result = "float"

    def ref(xp, input):     return xp.expm1(input)
    def d_input(g, out):    return g * conj(out + 1)
    def body(k, input):     return k.expm1(input)


class log(Pointwise):
    """The natural logarithm of `input`, elementwise."""

    result = "float"

    def ref(xp, input):     return xp.log(input)
    def d_input(g, input):  return g / conj(input)
    def body(k, input):     return k.log(input)


class log2(Pointwise):
    """The logarithm of `input` to base two, elementwise."""

    result = "float"

    def ref(xp, input):     return xp.log2(input)
    def d_input(g, input):  return g / conj(input * math.log(2))
    def body(k, input):     return k.log2(input)


class log10(Pointwise):
    """The logarithm of `input` to base ten, elementwise."""

    result = "float"

    def ref(xp, input):     return xp.log10(input)
    def d_input(g, input):  return g / conj(input * math.log(10))
    def body(k, input):     return k.log10(input)


class log1p(Pointwise):
    """The natural logarithm of one plus `input`, elementwise; exact near zero."""

    names = "special.log1p"
    node = "Log1PBackward0"
    result = "float"

    def ref(xp, input):     return complex_log1p(xp, input) if input.dtype.kind == "c" else xp.log1p(input)
    def d_input(g, input):  return g / conj(input + 1)
    def body(k, input):     return k.log1p(input)


def complex_log1p(xp, z):
    """The logarithm of one plus `z`, exact near zero, where NumPy's is not."""
    x, y = z.real, z.imag
    above = x * (2 + x) + y * y                            # by how much the square of |1 + z| is more than one
    near = xp.where(above == 0, x, xp.log1p(above) / 2)
    out = xp.empty(z.shape, z.dtype)
    out.real = xp.where(xp.abs(z) < 0.5, near, xp.log(xp.hypot(x + 1, y)))
    out.imag = xp.arctan2(y, x + 1)
    return out


class logaddexp(Pointwise):
    """The logarithm of e to the `input` plus e to the `other`, elementwise, without overflow on the way."""

    forms = "function method out"
    numbers = ""
    refuses = "bool int"

    def ref(xp, input, other):
        if input.dtype.kind == "c":
            larger = input.real >= other.real
            top, low = xp.where(larger, input, other), xp.where(larger, other, input)
            return xp.where((top == low) & ~xp.isfinite(top.real), top,
                            top + complex_log1p(xp, xp.exp(low - top)))
        return xp.logaddexp(input, other)

    def d_input(g, input, other): return g / conj(1 + (other - input).exp())
    def d_other(g, input, other): return g / conj(1 + (input - other).exp())

    def body(k, input, other):
        far = k.maximum(input, other) + k.log1p(k.exp(-k.abs(input - other)))
        return k.where(input == other, input + math.log(2), far)            # equal infinities have no difference


class logaddexp2(Pointwise):
    """The logarithm to base two of two to the `input` plus two to the `other`, elementwise."""

    forms = "function method out"
    numbers = ""
    refuses = "bool int complex"

    def ref(xp, input, other): return xp.logaddexp2(input, other)
    def d_input(g, input, other): return g / (1 + (other - input).exp2())
    def d_other(g, input, other): return g / (1 + (input - other).exp2())

    def body(k, input, other):
        far = k.maximum(input, other) + k.log1p(k.exp2(-k.abs(input - other))) * (1 / math.log(2))
        return k.where(input == other, input + 1, far)


class sigmoid(Pointwise):
    """One over one plus e to the minus `input`, elementwise."""

    names = "special.expit nn.functional.sigmoid"
    result = "float"

    def ref(xp, input):     return 1 / (1 + xp.exp(-input))
    def d_input(g, out):    return g * conj((1 - out) * out)
    def body(k, input):     return k.sigmoid(input)


class logit(Pointwise):
    """The logarithm of the odds of `input`, elementwise; with `eps`, of `input` kept between `eps` and 1 - `eps`."""

    names = "special.logit"
    result = "float"
    must_fit = {"eps": "dtype"}
    refuses = "complex"

    def ref(xp, input, eps=None):
        p = input if eps is None else xp.minimum(xp.maximum(input, eps), 1 - eps)
        return xp.log(p / (1 - p))

    def d_input(g, input, eps):
        lowest, outside = (0.0, math.nan) if eps is None else (eps, 0.0)
        return (g / (input * (1 - input))).where((input >= lowest) & (input <= 1 - lowest), outside)

    def body(k, input, eps):
        p = input if eps is None else k.minimum(k.maximum(input, eps), 1 - eps)
        return k.log(p / (1 - p))


# ---- angles


class sin(Pointwise):
    """The sine of `input`, elementwise."""

    result = "float"

    def ref(xp, input):     return xp.sin(input)
    def d_input(g, input):  return g * conj(input.cos())
    def body(k, input):     return k.sin(input)


class cos(Pointwise):
    """The cosine of `input`, elementwise."""

    result = "float"

    def ref(xp, input):     return xp.cos(input)
    def d_input(g, input):  return g * -conj(input.sin())
    def body(k, input):     return k.cos(input)


class tan(Pointwise):
    """The tangent of `input`, elementwise."""

    result = "float"

    def ref(xp, input):     return xp.tan(input)
    def d_input(g, out):    return g * conj(1 + out * out)
    def body(k, input):     return k.tan(input)


class asin(Pointwise):
    """The angle whose sine is `input`, elementwise."""

    names = "arcsin"
    result = "float"

    def ref(xp, input):     return xp.arcsin(input)
    def d_input(g, input):  return g * conj((1 - input * input).rsqrt())
    def body(k, input):     return k.asin(input)


class acos(Pointwise):
    """The angle whose cosine is `input`, elementwise."""

    names = "arccos"
    result = "float"

    def ref(xp, input):     return xp.arccos(input)
    def d_input(g, input):  return g * -conj((1 - input * input).rsqrt())
    def body(k, input):     return k.acos(input)


class atan(Pointwise):
    """The angle whose tangent is `input`, elementwise."""

    names = "arctan"
    result = "float"

    def ref(xp, input):     return xp.arctan(input)
    def d_input(g, input):  return g / conj(input * input + 1)
    def body(k, input):     return k.atan(input)


class atan2(Pointwise):
    """The angle of the point (`other`, `input`) from the first axis, elementwise, by quadrant."""

    names = "arctan2"
    result = "float"
    numbers = ""
    refuses = "complex"

    def ref(xp, input, other): return xp.arctan2(input, other)
    def d_input(g, input, other): return g * other * inverse_square(input, other)
    def d_other(g, input, other): return g * -input * inverse_square(input, other)
    def body(k, input, other): return k.atan2(input, other)


def inverse_square(a, b):
    """One over a² + b², and 0 at the origin, where no direction is the right one."""
    size = a * a + b * b
    return (1 / size).where(size != 0, 0)


class hypot(Pointwise):
    """The length of the hypotenuse with legs `input` and `other`, elementwise."""

    numbers = ""
    refuses = "bool int complex"

    def ref(xp, input, other): return xp.hypot(input, other)
    def d_input(g, input, out): return g * (input / out)
    def d_other(g, other, out): return g * (other / out)

    def body(k, input, other):
        a, b = k.abs(input), k.abs(other)
        long = k.maximum(a, b)
        slope = k.minimum(a, b) / long                                       # squares of the legs could overflow
        length = k.where(long == 0, long, long * k.sqrt(1 + slope * slope))
        return k.where(k.fmax(a, b) == math.inf, math.inf, length)


class sinh(Pointwise):
    """The hyperbolic sine of `input`, elementwise."""

    result = "float"

    def ref(xp, input):     return xp.sinh(input)
    def d_input(g, input):  return g * conj(input.cosh())
    def body(k, input):     return k.sinh(input)


class cosh(Pointwise):
    """The hyperbolic cosine of `input`, elementwise."""

    result = "float"

    def ref(xp, input):     return xp.cosh(input)
    def d_input(g, input):  return g * conj(input.sinh())
    def body(k, input):     return k.cosh(input)


class tanh(Pointwise):
    """The hyperbolic tangent of `input`, elementwise."""

    names = "nn.functional.tanh"
    result = "float"

    def ref(xp, input):     return xp.tanh(input)
    def d_input(g, out):    return g * conj(1 - out * out)
    def body(k, input):     return k.tanh(input)


class asinh(Pointwise):
    """The number whose hyperbolic sine is `input`, elementwise."""

    names = "arcsinh"
    result = "float"

    def ref(xp, input):     return xp.arcsinh(input)
    def d_input(g, input):  return g * conj((input * input + 1).rsqrt())
    def body(k, input):     return k.asinh(input)


class acosh(Pointwise):
    """The number from 0 on whose hyperbolic cosine is `input`, elementwise."""

    names = "arccosh"
    result = "float"

    def ref(xp, input): return xp.arccosh(input)

    def d_input(g, input):
        if input.is_complex():                # two roots, not the root of the product: that is another branch
            return g * conj((input + 1).rsqrt() * (input - 1).rsqrt())
        return g * (input * input - 1).rsqrt()

    def body(k, input): return k.acosh(input)


class atanh(Pointwise):
    """The number whose hyperbolic tangent is `input`, elementwise."""

    names = "arctanh"
    result = "float"

    def ref(xp, input):     return xp.arctanh(input)
    def d_input(g, input):  return g / conj(1 - input * input)
    def body(k, input):     return k.atanh(input)


class sinc(Pointwise):
    """The sine of pi times `input` over pi times `input`, elementwise, and 1 at 0."""

    names = "special.sinc"
    result = "float"

    def ref(xp, input):
        if input.dtype.kind == "f":
            return real_sinc(xp, input)
        turn = math.pi * input
        return xp.where(input == 0, 1, xp.sin(turn) / xp.where(input == 0, 1, turn))

    def d_input(g, input):
        turn = math.pi * input
        below = turn * input
        return (g * conj((turn * turn.cos() - turn.sin()) / below)).where(below != 0, 0)

    def body(k, input):
        whole = k.rint(input)
        sine = k.sin(math.pi * (input - whole))                              # exact, also of a large number
        sine = k.where(whole == 2 * k.floor(0.5 * whole), sine, -sine)
        return k.where(input == 0, 1, sine / (math.pi * input))


class deg2rad(Pointwise):
    """`input` degrees in radians, elementwise."""

    node = "Deg2RadBackward0"
    result = "float"

    def check(dtype, input): need(not dtype.is_complex, "deg2rad is not supported for complex tensors.")
    def ref(xp, input):      return input * (math.pi / 180)
    def d_input(g):          return g * (math.pi / 180)
    def body(k, input):      return input * (math.pi / 180)


class rad2deg(Pointwise):
    """`input` radians in degrees, elementwise."""

    node = "Rad2DegBackward0"
    result = "float"

    def check(dtype, input): need(not dtype.is_complex, "rad2deg is not supported for complex tensors.")
    def ref(xp, input):      return input * (180 / math.pi)
    def d_input(g):          return g * (180 / math.pi)
    def body(k, input):      return input * (180 / math.pi)


# ---- rounding


class floor(Pointwise):
    """The largest whole number not above `input`, elementwise."""

    refuses = "bool"
    cname = "floor_vml"
    check = no_complex
    strict_out = True

    def ref(xp, input): return xp.floor(input)
    def d_input(g):     return zeros(g)
    def body(k, input): return k.floor(input)


class ceil(Pointwise):
    """The smallest whole number not below `input`, elementwise."""

    refuses = "bool"
    cname = "ceil_vml"
    check = no_complex
    strict_out = True

    def ref(xp, input): return xp.ceil(input)
    def d_input(g):     return zeros(g)
    def body(k, input): return k.ceil(input)


class trunc(Pointwise):
    """`input` without its fraction, elementwise."""

    names = "fix"
    refuses = "bool"
    cname = "trunc_vml"
    check = no_complex
    strict_out = True

    def ref(xp, input): return xp.trunc(input)
    def d_input(g):     return zeros(g)
    def body(k, input): return k.trunc(input)


class frac(Pointwise):
    """The fraction of `input`, elementwise, with its sign."""

    refuses = "bool int complex"
    strict_out = True

    def ref(xp, input): return input - xp.trunc(input)
    def d_input(g):     return g
    def body(k, input): return input - k.trunc(input)


class round_(Composite):
    """The nearest whole number, or with `decimals` the nearest decimal number; halves go to the even one.

    >>> torch.round(torch.tensor([0.5, 1.5, 2.5]))
    tensor([0., 2., 2.])
    """

    names = "special.round"
    forms = "function method inplace out"
    strict_out = no_overlap = True

    def of(input, *, decimals=0): return _round_decimals(input, decimals) if decimals else _round(input)


class _round(Pointwise):
    """The nearest whole number."""

    refuses = "bool complex"
    cname = "round_vml"

    def ref(xp, input): return xp.rint(input) if input.dtype.kind == "f" else input
    def d_input(g):     return zeros(g)
    def body(k, input): return k.rint(input)


class _round_decimals(Pointwise):
    """The nearest number with so many decimals."""

    node = "RoundBackward1"
    operands = "input"
    refuses = "bool int complex"
    cname = "round"

    def ref(xp, input, decimals):
        scale = 10.0 ** abs(decimals)
        return xp.rint(input * scale) / scale if decimals > 0 else xp.rint(input / scale) * scale

    def d_input(g): return zeros(g)

    def body(k, input, decimals):
        scale = k.cast(power_of_ten(k, k.cast(k.abs(decimals), dtypes.int64)), input.dtype)
        return k.where(decimals > 0, k.rint(input * scale) / scale, k.rint(input / scale) * scale)


def power_of_ten(k, n):
    """Ten to the whole number `n` as a float64: exact as far as that can hold it, which `pow` need not be."""
    out = k.const(1.0, dtypes.float64)
    for i in range(9):
        out = out * k.where((n >> i) & 1 != 0, 10.0 ** 2 ** i, k.const(1.0, dtypes.float64))
    return out


class frexp(Pointwise):
    """`input` as a `mantissa` from 0.5 to 1 (with its sign) times two to the integer `exponent`, elementwise."""

    forms = "function method out"
    returns = "frexp mantissa exponent"
    strict_out = True

    @classmethod
    def infer(op, args):
        mantissa, casts, common = super().infer(args)
        return (mantissa, mantissa.like(dtype=dtypes.int32)), casts, common

    def check(dtype, input): need(dtype.is_floating_point, "torch.frexp() only supports floating-point dtypes")

    def ref(xp, input): return xp.frexp(input)
    def d_input(g, out1): return None if g[0] is None else g[0] / 2.0 ** out1.to(g[0].dtype)

    def body(k, input):
        width, mask, bias = (23, 0xff, 126) if input.dtype is dtypes.float32 else (52, 0x7ff, 1022)
        size = k.abs(input)
        small = size < 2.0 ** -bias
        raw = k.bits(k.where(small, input * 2.0 ** 54, input))                # a denormal number is made a normal one
        exponent = ((raw >> width) & mask) - bias - k.where(small, 54, k.const(0, raw.dtype))
        mantissa = k.from_bits(raw & ~(mask << width) | bias << width, input.dtype)
        as_is = (input == 0) | ~(size < math.inf)
        return k.where(as_is, input, mantissa), k.where(as_is, 0, exponent)


class nextafter(Pointwise):
    """The next floating number after `input` in the direction of `other`, elementwise."""

    exact = True                                    # the next one of its own dtype
    numbers = ""
    refuses = "bool int complex"

    def ref(xp, input, other): return xp.where(input == other, other, xp.nextafter(input, other))     # -0 of 0, too
    def d_input(g, input, other): return g.where(input != other, 0)
    def d_other(g): return zeros(g)

    def body(k, input, other):
        if input.dtype.itemsize == 2:
            return NotImplemented
        raw = k.bits(input)                                                   # the next number has the next bits
        least = k.where(other > 0, 1, k.const(1 - 2 ** (8 * input.dtype.itemsize - 1), raw.dtype))
        moved = k.where((input > 0) == (other > input), raw + 1, raw - 1)
        out = k.from_bits(k.where(input == 0, least, moved), input.dtype)
        return k.where(k.isnan(input) | k.isnan(other), input + other, k.where(input == other, other, out))


class nan_to_num(Pointwise):
    """`input` with nan replaced by `nan` and infinities by `posinf` and `neginf`, or by the largest numbers."""

    exact = True
    strict_out = True

    def ref(xp, input, nan=0.0, posinf=None, neginf=None):
        if input.dtype.kind in "biu":
            return input
        if input.dtype.kind == "c":
            out = xp.empty_like(input)
            out.real, out.imag = (replaced(xp, part, nan, posinf, neginf) for part in (input.real, input.imag))
            return out
        return replaced(xp, input, nan, posinf, neginf)

    def d_input(g, input): return g.where(input.isfinite(), 0)

    def body(k, input, nan, posinf, neginf):
        if not input.dtype.is_floating_point:
            return input
        largest = dtypes.finfo(input.dtype).max
        x = widened(k, input)
        out = k.where(k.isnan(x), 0 if nan is None else nan, x)
        out = k.where(x == math.inf, largest if posinf is None else posinf, out)
        return k.where(x == -math.inf, -largest if neginf is None else neginf, out)


def replaced(xp, input, nan, posinf, neginf):
    kind = input.dtype.type
    largest = dtypes.finfo(dtypes.from_numpy(input.dtype)).max
    posinf, neginf = largest if posinf is None else posinf, -largest if neginf is None else neginf
    out = xp.where(xp.isnan(input), kind(0 if nan is None else nan), input)
    return xp.where(input == kind(math.inf), kind(posinf), xp.where(input == kind(-math.inf), kind(neginf), out))


# ---- size and sign


class _abs_in_place(Pointwise):
    """The absolute value, where it can be written in its place."""

    names = "abs absolute"
    forms = "function inplace"         # its function is hidden by that of `abs`
    node = "AbsBackward0"
    refuses_on_cpu = "bool"
    cname = "abs"

    def check(dtype, input): need(not dtype.is_complex, "In-place abs is not supported for complex tensors.")
    def ref(xp, input):      return xp.abs(input)
    def d_input(g, input):   return g * input.sgn()
    def body(k, input):      return input if input.dtype is dtypes.bool else k.abs(input)


class abs_(Pointwise):
    """The absolute value of `input`, elementwise; of complex numbers their distance from 0."""

    names = "absolute"
    forms = "function method out"
    result = "real"
    refuses_on_cpu = "bool"
    cname = "abs"

    def strict_out(input):  return not input.dtype.is_complex
    def ref(xp, input):     return xp.abs(input)
    def d_input(g, input):  return g * input.sgn()
    def body(k, input):     return input if input.dtype is dtypes.bool else k.abs(input)


def sign_of(xp, input):
    """-1, 0 or 1 (0 for nan too); of bools themselves."""
    return input if input.dtype.kind == "b" else (input > 0).astype(input.dtype) - (input < 0).astype(input.dtype)


def sign_body(k, input):
    """`sign_of` in expressions."""
    return input if input.dtype is dtypes.bool else k.cast(input > 0, input.dtype) - k.cast(input < 0, input.dtype)


class sign(Pointwise):
    """-1, 0 or 1 by the sign of `input`, elementwise."""

    strict_out = True

    def check(dtype, input):
        need(not dtype.is_complex, "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use "
             "torch.sgn instead.", NotImplementedError)

    def ref(xp, input): return sign_of(xp, input)
    def d_input(g):     return zeros(g)
    def body(k, input): return sign_body(k, input)


class sgn(Pointwise):
    """`input` over its absolute value, elementwise, and 0 at 0: the sign, also of complex numbers."""

    strict_out = True

    def ref(xp, input):
        if input.dtype.kind != "c":
            return sign_of(xp, input)
        size = xp.abs(input)
        return xp.where(size == 0, 0, input / xp.where(size == 0, 1, size))

    def d_input(g, input, out):
        if not input.is_complex():
            return zeros(g)
        size = input.abs()
        return (g / size - (g / out).real * out / size).where(size != 0, 0)

    def body(k, input): return sign_body(k, input)


class signbit(Pointwise):
    """Whether the sign bit of `input` is set (so it is for -0.0), elementwise."""

    forms = "function method out"
    result = "bool"
    strict_out = True

    def check(dtype, input):
        need(not dtype.is_complex, "signbit is not implemented for complex tensors.", NotImplementedError)

    def ref(xp, input): return xp.signbit(input) if input.dtype.kind == "f" else input < 0
    def body(k, input): return k.bits(input) < 0 if input.dtype.is_floating_point else input < 0


class copysign(Pointwise):
    """The size of `input` with the sign of `other`, elementwise."""

    number_nodes = {"other": "CopysignBackward1"}
    result = "float"
    numbers = "other"
    refuses = "complex"

    def ref(xp, input, other):        return xp.copysign(input, other)
    def d_input(g, input, out):       return (g * (out / input)).where(input != 0, 0)
    def d_other(g):                   return zeros(g)
    def body(k, input, other):        return k.copysign(input, other)


# ---- complex numbers


class angle(Pointwise):
    """The angle of `input` in the complex plane, elementwise: 0 or pi for real numbers."""

    forms = "function method out"

    @classmethod
    def infer(op, args):
        out, casts, common = super().infer(args)
        wanted = dtypes.default if common.category < 2 else common.to_real()
        return spec(wanted, out.shape, None if common.is_complex else out.strides, out.device), casts, common

    def ref(xp, input):
        if input.dtype.kind == "c":
            return xp.angle(input)
        turned = xp.where(input < 0, math.pi, 0.0)
        return xp.where(xp.isnan(input), input, turned.astype(input.dtype)) if input.dtype.kind == "f" else turned

    def d_input(g, input):
        if not input.is_complex():
            return zeros(g)
        return (g * input / (input.abs() ** 2) * 1j).where(input != 0, 0)

    def body(k, input):
        kind = input.dtype if input.dtype.is_floating_point else dtypes.float64
        turned = k.where(input < 0, math.pi, k.const(0.0, kind))
        return k.where(k.isnan(input), input, turned) if input.dtype.is_floating_point else turned


class conj_(Composite):
    """The complex conjugate of `input`, elementwise: a copy for complex tensors, `input` itself for real ones."""

    def of(input): return _conj(input) if input.is_complex() else input


class _conj(Pointwise):
    """The conjugate of a complex tensor."""

    def ref(xp, input): return xp.conjugate(input)
    def d_input(g):     return conj(g)


class conj_physical(Composite):
    """The complex conjugate of `input`, elementwise: a copy for complex tensors, `input` itself for real ones."""

    forms = "function method inplace out"
    strict_out = True
    no_overlap = True

    def of(input): return _conj_physical(input) if input.is_complex() else input


class _conj_physical(Pointwise):
    """The conjugate of a complex tensor."""

    def ref(xp, input): return xp.conjugate(input)
    def d_input(g):     return conj(g)


class resolve_conj(Composite):
    """`input` itself: a conjugate is always in memory here."""

    def of(input): return input


class resolve_neg(Composite):
    """`input` itself: a negative is always in memory here."""

    def of(input): return input


class is_conj(Composite):
    """False: a conjugate is always in memory here."""

    def of(input): return False


class is_neg(Composite):
    """False: a negative is always in memory here."""

    def of(input): return False


class real(Composite):
    """A view of the real parts of `input`; a real `input` itself."""

    forms = "function property"

    def of(input): return _real(input) if input.is_complex() else input


class imag(Composite):
    """A view of the imaginary parts of `input`."""

    forms = "function property"

    def of(input):
        need(input.is_complex(), "imag is not implemented for tensors with non-complex dtypes.")
        return _imag(input)


class _real(View):
    """The real parts of a complex tensor."""

    node = "SelectBackward0"

    def view(input): return input.shape, [2 * s for s in input.strides], 0, input.dtype.to_real()
    def d_input(g):  return g


class _imag(View):
    """The imaginary parts of a complex tensor."""

    node = "SelectBackward0"

    def view(input): return input.shape, [2 * s for s in input.strides], 1, input.dtype.to_real()
    def d_input(g):  return g * 1j


class view_as_real(View):
    """A view of complex `input` as pairs of real and imaginary part, along a new last dimension."""

    def view(input):
        need(input.dtype.is_complex, "view_as_real is only supported for complex tensors")
        return (*input.shape, 2), (*[2 * s for s in input.strides], 1), 0, input.dtype.to_real()

    def d_input(g): return g.contiguous().view_as_complex()


class view_as_complex(Composite):
    """A view of `input`, whose last dimension holds pairs of real and imaginary part, as complex numbers."""

    by_specs = False          # but by where the tensor starts

    def of(input):
        need(input.storage_offset() % 2 == 0, "Tensor must have a storage_offset divisible by 2")
        return _view_as_complex(input)


class _view_as_complex(View):
    """Pairs of numbers seen as complex numbers."""

    node = "ViewAsComplexBackward0"

    def view(input):
        need(input.dtype in (dtypes.float32, dtypes.float64), "view_as_complex is only supported for half, float and "
             f"double tensors, but got a tensor of scalar type: {input.dtype.cname}")
        need(input.ndim, "Input tensor must have one or more dimensions")
        need(input.shape[-1] == 2, f"Tensor must have a last dimension of size 2, and it is {input.shape[-1]}")
        need(input.strides[-1] == 1, "Tensor must have a last dimension with stride 1")
        need(all(s % 2 == 0 for s in input.strides[:-1]),
             "Tensor must have a stride divisible by 2 for all but last dimension")
        return input.shape[:-1], [s // 2 for s in input.strides[:-1]], 0, input.dtype.to_complex()

    def d_input(g): return g.contiguous().view_as_real()


class _Parts(Pointwise):
    """What `complex` and `polar` share: two real tensors of one dtype give a complex one."""

    @classmethod
    def infer(op, args):
        out, casts, common = super().infer(args)
        return out.like(dtype=out.dtype.to_complex()), casts, common

    def check(dtype, first, second):
        for given in (first, second):
            need(given.dtype in (dtypes.float16, dtypes.float32, dtypes.float64), "Expected both inputs to be Half, "
                 f"Float or Double tensors but got {first.dtype.cname} and {second.dtype.cname}")
        need(first.dtype is second.dtype, f"Expected object of scalar type {first.dtype.cname} but got scalar type "
             f"{second.dtype.cname} for second argument")
        need(dtype is not dtypes.float16, "complex32 is not there: NumPy has no such dtype; convert both to float32",
             NotImplementedError)


def joined(xp, real, imag):
    """The complex array with these parts; not a sum, which would make nan of an infinite part."""
    out = xp.empty(xp.broadcast_shapes(real.shape, imag.shape), xp.result_type(real, xp.complex64))
    out.real[...], out.imag[...] = real, imag
    return out


class complex_(_Parts):
    """The complex numbers with parts `real` and `imag`, elementwise."""

    forms = "function out"
    numbers = ""
    strict_out = True

    def ref(xp, real, imag): return joined(xp, real, imag)
    def d_real(g): return g.real
    def d_imag(g): return g.imag


class polar(_Parts):
    """The complex numbers with absolute value `abs` and angle `angle`, elementwise."""

    forms = "function out"
    numbers = ""
    strict_out = True

    def ref(xp, abs, angle): return joined(xp, abs * xp.cos(angle), abs * xp.sin(angle))
    def d_abs(g, out): return (conj(g) * out.sgn()).real
    def d_angle(g, out): return (conj(g) * (out * 1j)).real
