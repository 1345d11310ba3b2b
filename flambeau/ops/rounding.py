"""Rounding, size and sign, element by element."""
import math

from ..base import dtypes
from ..base.errors import need
from ..base.op import Composite, Pointwise
from .arith import widened
from .math import no_complex, zeros

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
        if input.dtype.is_complex:
            return NotImplemented
        if not input.dtype.is_floating_point:
            return input
        largest = dtypes.finfo(input.dtype).max
        x = widened(k, input)
        out = k.where(k.isnan(x), 0 if nan is None else nan, x)
        out = k.where(x == math.inf, largest if posinf is None else posinf, out)
        return k.where(x == -math.inf, -largest if neginf is None else neginf, out)


def replaced(xp, input, nan, posinf, neginf):
    cls = input.dtype.type
    largest = dtypes.finfo(dtypes.from_numpy(input.dtype)).max
    posinf, neginf = largest if posinf is None else posinf, -largest if neginf is None else neginf
    out = xp.where(xp.isnan(input), cls(0 if nan is None else nan), input)
    return xp.where(input == cls(math.inf), cls(posinf), xp.where(input == cls(-math.inf), cls(neginf), out))


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
    def bounds(input): return input and (max(-1, min(input[0], 0)), min(1, max(input[1], 0)))
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

    def body(k, input):
        if not input.dtype.is_complex:
            return sign_body(k, input)
        size = k.abs(input)
        by = k.where(size == 0, 1, size)
        return k.where(size == 0, 0, k.complex(k.real(input) / by, k.imag(input) / by))


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
