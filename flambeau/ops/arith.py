"""Arithmetic: sums, products, quotients, powers and remainders, element by element; and the bits of integers."""
import math

import numpy as np

from ..base import dtypes
from ..base.errors import need
from ..base.op import NUMBER_CLASSES, Composite, Pointwise, door, must_be_tensor, wrapped
from ..base.spec import Spec


def conj(x):
    """The conjugate of a number or tensor; itself where it is real."""
    if not isinstance(x, door.tensor):
        return x.conjugate()
    return x.conj() if x._spec.dtype.is_complex else x


def is_tensor(x):
    """Whether `x` is a tensor (and not a number)."""
    return isinstance(x, door.tensor)


def is_integral(*xs):
    """Whether each of `xs` is a tensor of integers or bools, or such a number."""
    return all(x.dtype.category <= 1 if is_tensor(x) else isinstance(x, (int, np.integer, np.bool_)) for x in xs)


def dtype_of(x):
    """The dtype that a Spec, or the type of a number, stands for."""
    return x.dtype if x.__class__ is Spec else dtypes.of_number(x)


def check_alpha(dtype, alpha):
    """Refuse a multiplier whose type the result cannot hold; `alpha` is its type."""
    given = "Tensor" if alpha.__class__ is Spec else alpha.__class__.__name__
    need(alpha in NUMBER_CLASSES, f"argument 'alpha' must be Number, not {given}", TypeError)
    need(alpha is not bool or dtype is dtypes.bool, "Boolean alpha only supported for Boolean results.")
    need(dtype.category > 1 or alpha in (bool, int),
         "For integral input tensors, argument alpha must not be a floating point number.")
    need(dtype.is_complex or alpha is not complex,
         "For non-complex input tensors, argument alpha must not be a complex number.")


def widened(k, x):
    """A half as float32, to compare or compute with: expressions of other floats do neither. Others as they are."""
    return k.cast(x, dtypes.float32) if x.dtype in (dtypes.float16, dtypes.bfloat16) else x


# ---- sums and differences


def plus(k, a, factor, b):
    """`a` plus `factor` times `b` in expressions: of floats one instruction, so that a factor of 1 costs nothing."""
    if a.dtype is dtypes.bool:
        return a | factor & b
    return k.fma(factor, b, a) if a.dtype.is_floating_point else a + factor * b


class add(Pointwise):
    """The sum of `input` and `alpha` times `other`, elementwise.

    >>> torch.add(torch.tensor([1, 2]), 10)
    tensor([11, 12])
    """

    alone = True
    deprecated = ("input alpha other",)
    must_fit = {"alpha": "dtype"}

    def check(dtype, input, other, alpha): check_alpha(dtype, alpha)
    def ref(xp, input, other, *, alpha=1): return xp.add(input, other if alpha == 1 else xp.multiply(alpha, other))
    def d_input(g):         return g
    def d_other(g, alpha):  return g if alpha == 1 else g * conj(alpha)
    def body(k, input, other, *, alpha): return plus(k, input, alpha, other)


def check_sub(dtype, input, other, alpha):
    """Refuse to subtract bools: which of xor and not is meant cannot be known."""
    bools = (dtype_of(input) is dtypes.bool) + (dtype_of(other) is dtypes.bool)
    need(bools < 2, "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
         "`logical_xor()` operator instead.")
    need(not bools, "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a "
         "mask, use the `~` or `logical_not()` operator instead.")
    check_alpha(dtype, alpha)


class sub(Pointwise):
    """`input` minus `alpha` times `other`, elementwise."""

    names = "subtract"
    check = check_sub
    alone = True
    deprecated = ("input alpha other",)
    must_fit = {"alpha": "dtype"}

    def ref(xp, input, other, *, alpha=1): return xp.subtract(input, other if alpha == 1 else xp.multiply(alpha, other))
    def d_input(g):         return g
    def d_other(g, alpha):  return -g if alpha == 1 else -g * conj(alpha)
    def body(k, input, other, *, alpha): return plus(k, input, -alpha, other)


class rsub(Pointwise):
    """`other` minus `alpha` times `input`, elementwise."""

    forms = "function"
    number_nodes = {"other": "RsubBackward1"}
    must_fit = {"alpha": "dtype"}

    @classmethod
    def infer(op, args):
        if args[0].__class__ is not Spec:
            must_be_tensor(op, "input", args[0])
        return super().infer((args[1], args[0], args[2]))       # laid out as `other` minus `input` would be

    def check(dtype, other, input, alpha): check_sub(dtype, input, other, alpha)

    def ref(xp, input, other, *, alpha=1): return xp.subtract(other, input if alpha == 1 else xp.multiply(alpha, input))
    def d_input(g, alpha):  return -g if alpha == 1 else -g * conj(alpha)
    def d_other(g):         return g
    def body(k, input, other, *, alpha): return plus(k, other, -alpha, input)


class neg(Pointwise):
    """Minus `input`, elementwise."""

    names = "negative"
    strict_out = True

    def check(dtype, input):
        need(dtype is not dtypes.bool, "Negation, the `-` operator, on a bool tensor is not supported. If you are "
             "trying to invert a mask, use the `~` or `logical_not()` operator instead.")

    def ref(xp, input): return xp.negative(input)
    def d_input(g):     return -g
    def body(k, input): return -input


class positive(Composite):
    """`input` itself."""

    def of(input):
        need(input.dtype is not dtypes.bool, "The `+` operator, on a bool tensor is not supported.")
        return input


# ---- products and quotients


class mul(Pointwise):
    """The product of `input` and `other`, elementwise."""

    names = "multiply"
    alone = True
    as_given = ("other",)

    def ref(xp, input, other): return xp.multiply(input, other)
    def d_input(g, other):     return g * conj(other)
    def d_other(g, input):     return g * conj(input)
    def body(k, input, other): return input & other if input.dtype is dtypes.bool else input * other


class true_divide(Pointwise):
    """`input` divided by `other`, elementwise; integers give floating results."""

    node = "DivBackward0"
    result = "float"
    alone = True
    as_given = ("other",)

    def ref(xp, input, other):         return xp.divide(input, other)
    def d_input(g, other):             return g / conj(other)
    def d_other(g, input, other):      return -g * conj(input / other / other)
    def body(k, input, other):         return input / other


class div(Composite):
    """`input` divided by `other`, elementwise; `rounding_mode` "floor" or "trunc" rounds, and keeps integers integers.

    >>> torch.div(torch.tensor([-7, 7]), 2, rounding_mode="trunc")
    tensor([-3,  3])
    """

    names = "divide"
    forms = "function method inplace out"
    no_overlap = True

    def of(input, other, *, rounding_mode=None):
        if rounding_mode is None:
            return true_divide(input, other)
        need(rounding_mode in ("floor", "trunc"), "div expected rounding_mode to be one of None, 'trunc', or 'floor' "
             f"but found '{rounding_mode}'")
        if is_integral(input, other):
            return _integer_division(input, other, rounding_mode)
        return _div_rounded(input, other, rounding_mode)


class floor_divide(Composite):
    """`input` divided by `other`, rounded down, elementwise. It has no gradient."""

    forms = "function method inplace out"
    no_overlap = True

    def of(input, other):
        if is_integral(input, other):
            return _integer_division(input, other, "floor")
        return _floor_divide(input, other)


class remainder(Composite):
    """What is left of `input` after whole multiples of `other`, elementwise, with the sign of `other`.

    >>> torch.remainder(torch.tensor([-7, 7]), 3)
    tensor([2, 1])
    """

    forms = "function method inplace out"
    no_overlap = True

    def of(input, other):
        if is_integral(input, other) and (is_tensor(input) or is_tensor(other)):
            return _integer_division(input, other, "remainder")
        return _remainder(input, other)


class fmod(Composite):
    """What is left of `input` after whole multiples of `other`, elementwise, with the sign of `input`."""

    forms = "function method inplace out"
    no_overlap = True

    def of(input, other):
        if is_integral(input, other) and is_tensor(input):
            return _integer_division(input, other, "fmod")
        return _fmod(input, other)


def floor_quotient(xp, a, b): return xp.floor_divide(a, b)
def trunc_quotient(xp, a, b): return xp.trunc(xp.divide(a, b))
def python_remainder(xp, a, b): return xp.remainder(a, b)
def c_remainder(xp, a, b): return xp.fmod(a, b)


def trunc_integers(xp, a, b):
    """Integer division rounded towards zero: the floor, one more where it rounded a negative quotient down."""
    down = xp.floor_divide(a, b)
    return down + ((down * b != a) & ((a < 0) != (b < 0)))


ROUNDED_QUOTIENTS = {"floor": floor_quotient, "trunc": trunc_quotient}
INTEGER_QUOTIENTS = {"floor": floor_quotient, "trunc": trunc_integers, "remainder": python_remainder,
                     "fmod": c_remainder}


def unlike(rest, divisor):
    """Where a remainder towards zero has the other sign than its divisor: the quotient was rounded up."""
    return (rest != 0) & ((rest < 0) != (divisor < 0))


def rest_of(k, a, b):
    """`fmod` in expressions, exact. Float32 only: the quotient of two float64 may have 2000 bits.

    A quotient in float64 is right to 53 bits, and what it leaves is exact. That of two float32 has up to 277 bits, so
    after six rounds nothing is left but the remainder, or, where the last quotient was rounded up, one divisor less.
    """
    if a.dtype is not dtypes.float32:
        return NotImplemented
    top, by = k.cast(a, dtypes.float64), k.cast(b, dtypes.float64)
    rest = top
    for _ in range(6):
        rest = k.fma_exact(-k.trunc(rest / by), by, rest)
    rest = k.where(rest * top < 0, rest + k.copysign(by, top), rest)
    rest = k.where((k.abs(by) == math.inf) & (k.abs(top) < math.inf), top, k.copysign(rest, top))
    return k.cast(rest, a.dtype)


def floor_of(k, a, b):
    """`floor_divide` of float32 in expressions: from the exact remainder, so that 1 // 0.1 is 9."""
    rest = rest_of(k, a, b)
    if rest is NotImplemented:
        return NotImplemented
    near = (a - rest) / b - k.cast(unlike(rest, b), a.dtype)
    whole = k.floor(near)
    whole = k.where(near - whole > 0.5, whole + 1, whole)
    return k.where(b == 0, a / b, k.where(near == 0, k.copysign(0, a / b), whole))


class _integer_division(Pointwise):
    """A quotient or remainder of integers; `part` says which. A zero divisor is refused at the call."""

    operands = "input other"
    alone = True

    def check(dtype, input, other, part):
        kernel = f"div_{part}" if part in ROUNDED_QUOTIENTS else part
        need(dtype is not dtypes.bool, f"\"{kernel}_cpu\" not implemented for 'Bool'", NotImplementedError)

    def verify(input_spec, other):
        if input_spec is not None and not input_spec.numel:
            return
        if other.__class__ is int and input_spec is not None and input_spec.dtype.category == 1:
            other = wrapped(other, input_spec.dtype.np)              # 256 is no byte but 0
        need(np.all(other != 0), "ZeroDivisionError: an integer divided by zero")

    def ref(xp, input, other, part): return INTEGER_QUOTIENTS[part](xp, input, other)

    def body(k, input, other, part):
        signed = input.dtype.is_signed
        # The processor traps at 0, which is refused at the call, and at the least number over -1, which wraps around.
        trap = (other == 0) | (other == -1) if signed else other == 0
        by = k.where(trap, 1, other)
        rest = k.irem(input, by)
        if part in ("remainder", "fmod"):
            return k.where(unlike(rest, other), rest + other, rest) if part == "remainder" else rest
        quotient = k.where(other == -1, -input, k.idiv(input, by)) if signed else k.idiv(input, by)
        return quotient - k.cast(unlike(rest, other), input.dtype) if part == "floor" else quotient


class _div_rounded(Pointwise):
    """The rounded quotient of floating operands: constant but for its steps."""

    node = "DivBackward2"
    operands = "input other"
    refuses = "bool complex"
    cname = "div"
    alone = True
    as_given = ("other",)

    def ref(xp, input, other, rounding_mode): return ROUNDED_QUOTIENTS[rounding_mode](xp, input, other)
    def d_input(g): return g.new_zeros(g.shape)
    def d_other(g): return g.new_zeros(g.shape)

    def body(k, input, other, rounding_mode):
        trunc = rounding_mode == "trunc" and input.dtype.is_floating_point
        return k.trunc(input / other) if trunc else floor_of(k, input, other)


class _floor_divide(Pointwise):
    """The quotient of floating operands, rounded down."""

    node = "torch::autograd::NotImplemented"
    refuses = "bool complex"
    cname = "div_floor"
    alone = True
    as_given = ("other",)

    def ref(xp, input, other): return xp.floor_divide(input, other)
    def d_input(g): no_derivative("floor_divide", "div(rounding_mode='floor'), whose gradient is zero")
    def d_other(g): no_derivative("floor_divide", "div(rounding_mode='floor'), whose gradient is zero")
    def body(k, input, other): return floor_of(k, input, other)


def no_derivative(name, instead):
    """Refuse at backward, as PyTorch does, and say what to use."""
    raise RuntimeError(f"derivative for aten::{name} is not implemented; use {instead}, or detach() first")


class _remainder(Pointwise):
    """The remainder of floating operands with the sign of the divisor."""

    node = "RemainderBackward1"
    number_nodes = {"other": "RemainderBackward0"}
    refuses = "bool complex"
    cname = "remainder"

    def ref(xp, input, other):                       # not remainder(), which gives a zero the sign of the divisor
        rest = xp.fmod(input, other)
        return xp.where((rest != 0) & ((rest < 0) != (other < 0)), rest + other, rest)

    def d_input(g):               return g
    def d_other(g, input, other): return -g * div(input, other, rounding_mode="floor")

    def body(k, input, other):
        rest = rest_of(k, input, other)
        return rest if rest is NotImplemented else k.where(unlike(rest, other), rest + other, rest)


class _fmod(Pointwise):
    """The remainder of floating operands with the sign of the dividend."""

    node = "FmodBackward1"
    number_nodes = {"other": "FmodBackward0"}
    numbers = "other"
    refuses = "bool complex"
    cname = "fmod"

    def ref(xp, input, other): return xp.fmod(input, other)
    def d_input(g):               return g
    def d_other(g, input, other): return -g * div(input, other, rounding_mode="trunc")
    def body(k, input, other): return rest_of(k, input, other)


class reciprocal(Pointwise):
    """One over `input`, elementwise."""

    result = "float"

    def ref(xp, input):   return xp.reciprocal(input)
    def d_input(g, out):  return -g * conj(out * out)
    def body(k, input):   return 1 / input


class _rdiv(Composite):
    """`other` divided by `input`."""

    names = "Tensor.__rdiv__"

    def of(input, other): return reciprocal(input) * other


class addcmul(Pointwise):
    """`input` plus `value` times `tensor1` times `tensor2`, elementwise."""

    numbers = ""
    refuses = "bool"
    cname = "addcmul"
    deprecated = ("input value tensor1 tensor2",)
    must_fit = {"value": "compute"}

    def ref(xp, input, tensor1, tensor2, *, value=1):
        value = value if input.dtype.kind in "fc" else int(value)          # integers take the whole part of it
        return input + value * tensor1 * tensor2

    def d_input(g):                                 return g
    def d_tensor1(g, tensor2, value):               return g * conj(tensor2 * value)
    def d_tensor2(g, tensor1, value):               return g * conj(tensor1 * value)
    def body(k, input, tensor1, tensor2, *, value): return input + value * tensor1 * tensor2


class addcdiv(Pointwise):
    """`input` plus `value` times `tensor1` over `tensor2`, elementwise."""

    numbers = ""
    deprecated = ("input value tensor1 tensor2",)
    must_fit = {"value": "compute"}

    def check(dtype, input, tensor1, tensor2, value):
        need(tensor1.dtype.category > 1 or tensor2.dtype.category > 1,
             "Integer division with addcdiv is no longer supported, and in a future release addcdiv will perform a "
             "true division of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + value "
             "* torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / "
             "tensor2) for float inputs.")

    def ref(xp, input, tensor1, tensor2, *, value=1): return input + value * tensor1 / tensor2

    def d_input(g):                                 return g
    def d_tensor1(g, tensor2, value):               return g * conj(value / tensor2)
    def d_tensor2(g, tensor1, tensor2, value):      return -g * conj(value * tensor1 / (tensor2 * tensor2))
    def body(k, input, tensor1, tensor2, *, value): return input + value * tensor1 / tensor2


class lerp(Pointwise):
    """The point `weight` of the way from `input` to `end`, elementwise."""

    node = "LerpBackward1"
    number_nodes = {"weight": "LerpBackward0"}
    operands, numbers = "input end", ""
    refuses, cname = "bool int", "lerp_kernel_scalar"
    must_fit = {"weight": "compute"}
    strict_out = "tensors"

    def check(dtype, input, end, weight):
        for name, given in (("end", end), ("weight", weight)):
            alike = given.__class__ is not Spec or given.dtype is input.dtype or (name == "weight" and not given.ndim)
            need(alike, f"expected dtype {input.dtype.cname.lower()} for `{name}` but got dtype "
                 f"{dtype_of(given).cname.lower()}")

    def ref(xp, input, end, weight):
        way = end - input                       # from the nearer end, so that weight 0 gives `input` and 1 gives `end`
        if isinstance(weight, NUMBER_CLASSES):
            return input + weight * way if abs(weight) < 0.5 else end - way * (1 - weight)
        return xp.where(abs(weight) < 0.5, input + weight * way, end - way * (1 - weight))

    def d_input(g, weight):       return g * conj(1 - weight)
    def d_end(g, weight):         return g * conj(weight)
    def d_weight(g, input, end):  return g * conj(end - input)

    def body(k, input, end, weight):
        way = end - input
        return k.where(k.abs(weight) < 0.5, input + weight * way, end - way * (1 - weight))


# ---- powers


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


# ---- integers


class gcd(Pointwise):
    """The greatest common divisor of `input` and `other`, elementwise."""

    numbers = ""
    refuses = "bool float complex"

    def ref(xp, input, other): return xp.gcd(input, other)


class lcm(Pointwise):
    """The least common multiple of `input` and `other`, elementwise."""

    numbers = ""
    refuses = "bool float complex"

    def ref(xp, input, other): return xp.lcm(input, other)


class bitwise_not(Pointwise):
    """The bits of `input` inverted; of a bool its negation."""

    refuses = "float complex"
    strict_out = True

    def ref(xp, input): return xp.invert(input)
    def body(k, input): return ~input


class bitwise_and(Pointwise):
    """The bits that `input` and `other` share."""

    refuses = "float complex"

    def ref(xp, input, other): return xp.bitwise_and(input, other)
    def body(k, input, other): return input & other


class bitwise_or(Pointwise):
    """The bits that `input` or `other` has."""

    refuses = "float complex"

    def ref(xp, input, other): return xp.bitwise_or(input, other)
    def body(k, input, other): return input | other


class bitwise_xor(Pointwise):
    """The bits in which `input` and `other` differ."""

    refuses = "float complex"

    def ref(xp, input, other): return xp.bitwise_xor(input, other)
    def body(k, input, other): return input ^ other


class bitwise_left_shift(Pointwise):
    """`input` with its bits moved up by `other`: 0 where that is negative or as wide as the number."""

    refuses = "bool float complex"
    cname = "lshift"

    def ref(xp, input, other):
        width = 8 * xp.result_type(input, other).itemsize
        out = (other < 0) | (other >= width)
        return xp.where(out, 0, xp.left_shift(input, xp.where(out, 0, other)))

    def body(k, input, other):
        out = (other < 0) | (other >= 8 * input.dtype.itemsize)
        return k.where(out, 0, input << k.where(out, 0, other))


class bitwise_right_shift(Pointwise):
    """`input` with its bits moved down by `other`, the sign drawn in; all of them where that is negative or too far."""

    refuses = "bool float complex"
    cname = "rshift"

    def ref(xp, input, other):
        kind = xp.result_type(input, other)
        last = 8 * kind.itemsize - (kind.kind == "i")
        far = (other < 0) | (other >= last)
        shifted = xp.right_shift(input, xp.where(far, 0, other))
        return xp.where(far, xp.where(input < 0, -1, 0) if kind.kind == "i" else 0, shifted)

    def body(k, input, other):
        last = 8 * input.dtype.itemsize - 1                         # by so many, nothing but signs is left
        far = (other < 0) | (other > last)
        shifted = input >> k.where(far, last, other)
        return shifted if input.dtype.is_signed else k.where(far, 0, shifted)
