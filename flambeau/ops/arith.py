"""Arithmetic: sums, products, quotients and remainders, element by element."""
import math

import numpy as np

from ..base import dtypes
from ..base.bounds import added, among, divided, multiplied, scaled
from ..base.errors import need
from ..base.op import NUMBER_CLASSES, Composite, Pointwise, door, must_be_tensor, wrapped
from ..base.spec import Spec


def conj(x):
    """The conjugate of a number or tensor; itself where it is real."""
    if not isinstance(x, door.tensor):
        return x.conjugate()
    return x.conj() if x._spec.dtype.is_complex else x


def conjugate(k, input):
    """For a body: the conjugate of an expression."""
    return k.complex(k.real(input), -k.imag(input)) if input.dtype.is_complex else input


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
    return k.fma(factor, b, a) if a.dtype.category > 1 else a + factor * b


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
    def bounds(input, other, alpha): return added(input, scaled(other, alpha))
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
    def bounds(input, other, alpha): return added(input, scaled(other, -alpha))
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
    def bounds(input, other, alpha): return added(other, scaled(input, -alpha))
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
    def bounds(input): return scaled(input, -1)
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
    def bounds(input, other):  return multiplied(input, other)
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
    by_bounds = "other"

    def check(dtype, input, other, part):
        kernel = f"div_{part}" if part in ROUNDED_QUOTIENTS else part
        need(dtype is not dtypes.bool, f"\"{kernel}_cpu\" not implemented for 'Bool'", NotImplementedError)

    def verify(input_spec, other):
        if input_spec is not None and not input_spec.numel:
            return
        if other.__class__ is int and input_spec is not None and input_spec.dtype.category == 1:
            other = wrapped(other, input_spec.dtype.np)              # 256 is no byte but 0
        need(not among(0, other), "ZeroDivisionError: an integer divided by zero")

    def ref(xp, input, other, part): return INTEGER_QUOTIENTS[part](xp, input, other)

    def bounds(input, other, part): return divided(input, other, part)

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
