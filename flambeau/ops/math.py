"""Functions of one number, element by element: roots, exponentials, logarithms, angles."""
import math

from ..base.errors import need
from ..base.op import Pointwise
from ..base.special_functions import sinc as real_sinc
from .arith import conj


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
