"""Powers, element by element."""
import math

import numpy as np

from ..base import dtypes
from ..base.errors import need
from ..base.op import NUMBER_CLASSES, Composite, Pointwise
from .arith import conj, is_integral, is_tensor


class pow_(Composite):
    """`input` to the power `exponent`, elementwise; either may be a number.

    >>> torch.pow(2, torch.tensor([1, 2, 3]))
    tensor([2, 4, 8])
    """

    forms = "function method inplace out"
    no_overlap = True

    def of(input, exponent):
        if is_tensor(exponent):
            return _pow(input, exponent) if is_tensor(input) else _pow_of_number(input, exponent)
        if is_tensor(input) and input.dtype is dtypes.bool and exponent.__class__ is bool:
            return input.clone() if exponent else input.new_ones(input.shape)
        need(not is_integral(input, exponent) or exponent >= 0, "Integers to negative integer powers are not allowed.")
        if is_tensor(input) and exponent.__class__ in NUMBER_CLASSES and exponent in POWERS_AS_PRODUCTS \
                and input.dtype.category >= dtypes.of_number(exponent.__class__).category:
            return POWERS_AS_PRODUCTS[exponent](input)      # the number does not change the dtype
        return _pow_number(input, exponent)


class square(Composite):
    """`input` times itself, elementwise."""

    forms = "function method inplace out"
    no_overlap = True

    def of(input): return pow_(input, 2)


class float_power(Composite):
    """`input` to the power `exponent` in double precision, elementwise."""

    forms = "function method out"
    strict_out = True
    no_overlap = True

    def of(input, exponent):
        base, power = widest(input, exponent)
        return pow_(base, power)


class _float_power_in_place(Composite):
    """In-place form of `float_power`, for tensors that can hold its double precision."""

    names = "Tensor.float_power_"

    def of(input, exponent):
        wanted = widest(input, exponent)[0].dtype
        need(input.dtype is wanted, f"the base given to float_power_ has dtype {input.dtype.cname} but the operation's "
             f"result requires dtype {wanted.cname}")
        return input.pow_(exponent)


def widest(*xs):
    """`xs` in double precision, complex if one of them is."""
    is_complex = any(x.is_complex() if is_tensor(x) else isinstance(x, complex) for x in xs)
    dtype, number = (dtypes.complex128, complex) if is_complex else (dtypes.float64, float)
    return [x.to(dtype) if is_tensor(x) else number(x) for x in xs]


def integer_power(xp, base, exponent):
    """Integers to integer powers: a negative power is 0, except of 1 and -1."""
    if not xp.any(exponent < 0):
        return xp.power(base, exponent)
    sign = xp.where(exponent % 2 == 0, 1, base)                # for the bases 1 and -1, whose inverse they are
    return xp.where(exponent < 0, sign * (abs(base) == 1), xp.power(base, xp.maximum(exponent, 0)))


def log_of_base(base, power):
    """The logarithm of `base`, complex where the power is."""
    if is_tensor(base):
        return (base.to(power.dtype) if power.is_complex() else base).log()
    if isinstance(base, complex) or power.is_complex():
        base = complex(base)
        return complex(np.log(base)) if base else -math.inf
    return math.log(base) if base > 0 else -math.inf if base == 0 else math.nan


def d_exponent(g, base, exponent, power):
    """The gradient for an exponent: 0 where 0 is raised to a power that is not negative, though its log is -inf."""
    slope = conj(power * log_of_base(base, power))
    if is_tensor(base) or base == 0:
        rising = (exponent.real >= 0) & (exponent.imag == 0) if exponent.is_complex() else exponent >= 0
        slope = slope.where(~((base == 0) & rising), 0)
    return g * slope


class _pow(Pointwise):
    """A tensor to the power of a tensor."""

    node = "PowBackward1"
    refuses = "bool"
    cname = "pow"

    def ref(xp, input, exponent):
        if input.dtype.kind in "iu":
            return integer_power(xp, input, exponent)
        # an exponent for every element: of a single 0.5 NumPy makes a root, which is another number at -0.0 and -inf
        return xp.power(input, exponent + xp.zeros_like(input))

    def d_input(g, input, exponent):
        return (g * conj(exponent * input ** (exponent - 1))).where(exponent != 0, 0)

    def d_exponent(g, input, exponent, out): return d_exponent(g, input, exponent, out)

    def body(k, input, exponent):
        return k.pow(input, exponent) if input.dtype.is_floating_point else NotImplemented


class _pow_number(Pointwise):
    """A tensor to the power of a number."""

    node = "PowBackward0"
    numbers = "exponent"
    must_fit = {"exponent": "unless wide"}
    refuses = "bool"
    cname = "pow"

    def ref(xp, input, exponent):
        # as PyTorch does: the roots are nan at -inf, where power() is infinite or 0
        if exponent in (0.5, -0.5) and input.dtype.kind == "f":
            return xp.sqrt(input) if exponent > 0 else 1 / xp.sqrt(input)
        return xp.multiply(input, input) if exponent == 2 else xp.power(input, exponent)

    def d_input(g, input, exponent):
        if exponent == 0:
            return g.new_zeros(g.shape)
        return g * conj(exponent * input ** (exponent - 1))

    def body(k, input, exponent):
        if not input.dtype.is_floating_point:
            return NotImplemented
        root = k.sqrt(input)
        return k.where(k.abs(exponent) == 0.5, k.where(exponent > 0, root, 1 / root), k.pow(input, exponent))


class _first_power(Pointwise):
    """A tensor to the power 1. Its derivative, 1, still depends on it, so that derivatives of every order exist."""

    node = "PowBackward0"
    refuses = "bool"
    cname = "pow"

    def ref(xp, input):     return input
    def d_input(g, input):  return g * conj(input ** 0)
    def body(k, input):     return input


class _square(Pointwise):
    """A tensor times itself."""

    node = "PowBackward0"
    refuses = "bool"
    cname = "pow"

    def ref(xp, input):     return xp.multiply(input, input)
    def d_input(g, input):  return g * conj(2 * input ** 1)
    def body(k, input):     return input * input


class _cube(Pointwise):
    """A tensor times its square."""

    node = "PowBackward0"
    refuses = "bool"
    cname = "pow"

    def ref(xp, input):     return input * input * input
    def d_input(g, input):  return g * conj(3 * input ** 2)
    def body(k, input):     return input * input * input


POWERS_AS_PRODUCTS = {1: _first_power, 2: _square, 3: _cube}  # powers that are cheaper to write out


class _pow_of_number(Pointwise):
    """A number to the power of a tensor."""

    node = "PowBackward2"
    refuses = "bool"
    cname = "pow"

    def ref(xp, input, exponent):
        return integer_power(xp, input, exponent) if exponent.dtype.kind in "iu" else xp.power(input, exponent)

    def d_exponent(g, input, exponent, out): return d_exponent(g, input, exponent, out)

    def body(k, input, exponent):
        return k.pow(input, exponent) if exponent.dtype.is_floating_point else NotImplemented


class ldexp(Pointwise):
    """`input` times two to the power `other`, elementwise; rounded once, also where that power is no number."""

    result = "float"
    numbers = ""

    @classmethod
    def infer(op, args):
        input, other = args
        out, casts, common = Pointwise.infer(op, args)
        if input.dtype.is_floating_point and other.dtype.category < 2:
            need(other.dtype is not dtypes.bool and other.dtype.name not in ("uint16", "uint32", "uint64"),
                 f"\"ldexp_cpu_exp\" not implemented for '{other.dtype.cname}'", NotImplementedError)
            if common.itemsize == 2:                 # which would round the exponent
                common = dtypes.float32
        return out, casts, common

    def ref(xp, input, other):
        if input.dtype.kind == "c":
            return input * xp.power(2, other)
        finite = xp.isfinite(other)
        whole = xp.where(finite, xp.clip(xp.floor(other), -4000, 4000), 0)
        left = xp.where(finite, other - xp.floor(other), other)
        mantissa, exponent = xp.frexp(input)
        return xp.ldexp(mantissa * xp.exp2(left), exponent + whole.astype(xp.int32))

    def d_input(g, other): return g * conj(2.0 ** other) if g.is_complex() or other.is_complex() else ldexp(g, other)
    def d_other(g, out):   return g * conj(out * math.log(2))

    def body(k, input, other):
        wide = k.cast(other, dtypes.float64)
        finite = k.abs(wide) < math.inf
        if input.dtype is not dtypes.float64:        # all of float32's products are normal numbers of float64
            power = k.exp2(k.where(finite, k.minimum(k.maximum(wide, -400.0), 400.0), wide))
            return k.cast(k.cast(input, dtypes.float64) * power, input.dtype)
        whole = k.where(finite, k.floor(k.minimum(k.maximum(wide, -4000.0), 4000.0)), 0.0)
        # In three steps, since the power may be no number. One that ends in denormal numbers stays well above them
        # until its last: what is rounded earlier comes to nothing.
        first = k.where(whole < -1022.0, -969.0, k.minimum(whole, 1023.0))
        second = k.minimum(k.maximum(whole - first, -969.0), 1023.0)
        third = k.minimum(k.maximum(whole - first - second, -1022.0), 1023.0)
        left = k.exp2(k.where(finite, wide - k.floor(wide), wide))
        return input * k.exp2(first) * k.exp2(second) * k.exp2(third) * left
