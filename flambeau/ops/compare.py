"""Comparisons and choices, element by element: equal, larger, true, finite; the larger of two; one or the other."""
import math
import operator

import numpy as np

from ..base import dtypes
from ..base.bounds import highest, hull, lowest
from ..base.errors import need, warn
from ..base.op import NUMBER_CLASSES, Composite, Pointwise
from ..base.spec import Spec
from .arith import is_tensor, no_derivative, widened


def fitted(input, other):
    """`other` in the dtype of `input`, where it is a number: 0.1 equals the float16 that is nearest to it."""
    return input.dtype.type(other) if isinstance(other, NUMBER_CLASSES) else other


def compared(k, how, input, other):
    """A comparison in expressions, of halves as float32: a number becomes a half first, as in `fitted`."""
    return how(widened(k, input), widened(k, k.cast(other, input.dtype)))


# ---- equal, less, greater


class eq(Pointwise):
    """Whether `input` equals `other`, elementwise."""

    result, exact, numbers = "bool", True, "other"

    def ref(xp, input, other): return xp.equal(input, fitted(input, other))
    def body(k, input, other): return compared(k, operator.eq, input, other)


class ne(Pointwise):
    """Whether `input` differs from `other`, elementwise."""

    names = "not_equal"
    result, exact, numbers = "bool", True, "other"

    def ref(xp, input, other): return xp.not_equal(input, fitted(input, other))
    def body(k, input, other): return compared(k, operator.ne, input, other)


class lt(Pointwise):
    """Whether `input` is less than `other`, elementwise."""

    names = "less"
    result, exact, numbers = "bool", True, "other"
    refuses = "complex"

    def ref(xp, input, other): return xp.less(input, fitted(input, other))
    def body(k, input, other): return compared(k, operator.lt, input, other)


class le(Pointwise):
    """Whether `input` is at most `other`, elementwise."""

    names = "less_equal"
    result, exact, numbers = "bool", True, "other"
    refuses = "complex"

    def ref(xp, input, other): return xp.less_equal(input, fitted(input, other))
    def body(k, input, other): return compared(k, operator.le, input, other)


class gt(Pointwise):
    """Whether `input` is greater than `other`, elementwise."""

    names = "greater"
    result, exact, numbers = "bool", True, "other"
    refuses = "complex"

    def ref(xp, input, other): return xp.greater(input, fitted(input, other))
    def body(k, input, other): return compared(k, operator.gt, input, other)


class ge(Pointwise):
    """Whether `input` is at least `other`, elementwise."""

    names = "greater_equal"
    result, exact, numbers = "bool", True, "other"
    refuses = "complex"

    def ref(xp, input, other): return xp.greater_equal(input, fitted(input, other))
    def body(k, input, other): return compared(k, operator.ge, input, other)


class isclose(Composite):
    """Whether `input` is within `atol` + `rtol` times |`other`| of `other`, elementwise.

    >>> torch.isclose(torch.tensor([1.0, 2.0]), torch.tensor([1.0 + 1e-9, 2.1]))
    tensor([ True, False])
    """

    def of(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
        need(rtol >= 0, f"rtol must be greater than or equal to zero, but got {rtol}")
        need(atol >= 0, f"atol must be greater than or equal to zero, but got {atol}")
        return _isclose(input, other, rtol, atol, equal_nan)


class _isclose(Pointwise):
    """Whether two tensors of one dtype are near each other."""

    result, numbers = "bool", ""
    operands = "input other"

    def check(dtype, input, other, rtol, atol, equal_nan):
        need(input.dtype is other.dtype, f"{input.dtype.cname} did not match {other.dtype.cname}")

    def ref(xp, input, other, rtol, atol, equal_nan):
        close = xp.equal(input, other)
        if equal_nan:
            close = close | (xp.isnan(input) & xp.isnan(other))
        if input.dtype.kind in "biu":
            input, other = input.astype(xp.float64), other.astype(xp.float64)
        distance = xp.abs(input - other)
        return close | (xp.isfinite(distance) & (distance <= atol + xp.abs(rtol * other)))

    def body(k, input, other, rtol, atol, equal_nan):
        if not input.dtype.is_floating_point:
            return NotImplemented                                   # the tolerances come in the dtype of the operands
        both_nan = k.isnan(input) & k.isnan(other) & k.cast(equal_nan, dtypes.bool)
        distance = k.abs(input - other)
        return (input == other) | both_nan | ((distance < math.inf) & (distance <= atol + k.abs(rtol * other)))


class allclose(Composite):
    """Whether every element of `input` is near that of `other`, as a Python bool; see `isclose`."""

    def of(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
        return isclose(input, other, rtol, atol, equal_nan).all().item()


class equal(Composite):
    """Whether `input` and `other` have the same shape and the same elements, as a Python bool."""

    def of(input, other):
        if not is_tensor(other):
            raise TypeError(f"equal(): argument 'other' (position 2) must be Tensor, not {type(other).__name__}")
        return input.shape == other.shape and eq(input, other).all().item()


# ---- true and false


class logical_not(Pointwise):
    """Whether `input` is zero, elementwise."""

    result = "bool"

    def ref(xp, input): return xp.logical_not(input)
    def body(k, input): return ~k.cast(input, dtypes.bool)


class logical_and(Pointwise):
    """Whether `input` and `other` are both nonzero, elementwise."""

    result, numbers = "bool", ""

    def ref(xp, input, other): return xp.logical_and(input, other)
    def body(k, input, other): return k.cast(input, dtypes.bool) & k.cast(other, dtypes.bool)


class logical_or(Pointwise):
    """Whether `input` or `other` is nonzero, elementwise."""

    result, numbers = "bool", ""

    def ref(xp, input, other): return xp.logical_or(input, other)
    def body(k, input, other): return k.cast(input, dtypes.bool) | k.cast(other, dtypes.bool)


class logical_xor(Pointwise):
    """Whether one of `input` and `other` is nonzero and the other is not, elementwise."""

    result, numbers = "bool", ""

    def ref(xp, input, other): return xp.logical_xor(input, other)
    def body(k, input, other): return k.cast(input, dtypes.bool) ^ k.cast(other, dtypes.bool)


# ---- nan and infinity


def is_value(k, x, value):
    """Whether an expression equals `value`, infinite: integers never do."""
    return x == value if x.dtype.is_floating_point else k.const(False, dtypes.bool)


class isnan(Pointwise):
    """Whether `input` is nan, elementwise."""

    forms = "function method"
    result = "bool"

    def ref(xp, input): return xp.isnan(input)
    def body(k, input): return k.isnan(input)


class isinf(Pointwise):
    """Whether `input` is infinite, elementwise."""

    forms = "function method"
    result = "bool"

    def ref(xp, input): return xp.isinf(input)
    def body(k, input): return is_value(k, k.abs(input), math.inf)


class isfinite(Pointwise):
    """Whether `input` is neither infinite nor nan, elementwise."""

    forms = "function method"
    result = "bool"

    def ref(xp, input): return xp.isfinite(input)

    def body(k, input):
        if input.dtype.is_complex:
            return (k.abs(k.real(input)) < math.inf) & (k.abs(k.imag(input)) < math.inf)
        return k.abs(input) < math.inf if input.dtype.is_floating_point else k.const(True, dtypes.bool)


class isposinf(Pointwise):
    """Whether `input` is plus infinity, elementwise."""

    forms = "function method out"
    result = "bool"
    strict_out = True

    def check(dtype, input): need(not dtype.is_complex, "isposinf does not support complex inputs.")
    def ref(xp, input):      return input == xp.inf
    def body(k, input):      return is_value(k, input, math.inf)


class isneginf(Pointwise):
    """Whether `input` is minus infinity, elementwise."""

    forms = "function method out"
    result = "bool"
    strict_out = True

    def check(dtype, input): need(not dtype.is_complex, "isneginf does not support complex inputs.")
    def ref(xp, input):      return input == -xp.inf
    def body(k, input):      return is_value(k, input, -math.inf)


class isreal(Pointwise):
    """Whether the imaginary part of `input` is zero, elementwise."""

    forms = "function method"
    result = "bool"

    def ref(xp, input): return xp.isreal(input)
    def body(k, input): return k.imag(input) == 0 if input.dtype.is_complex else k.const(True, dtypes.bool)


# ---- the larger and the smaller


def ordered(name):
    """A check that refuses complex operands, which have no order, in the words of `name`."""
    def check(dtype, *args): need(not dtype.is_complex, f"{name} not implemented for complex tensors.")
    return check


def share(g, input, other, loses):
    """The gradient of the operand `input` of a maximum: half of it where both are equal, none where it loses."""
    return (g / 2).where(input == other, g).where(~loses, 0)


class maximum(Pointwise):
    """The larger of `input` and `other`, elementwise; nan if one of them is."""

    forms = "function method out"
    numbers = ""
    check = ordered("maximum")

    def ref(xp, input, other):    return xp.maximum(input, other)
    def d_input(g, input, other): return share(g, input, other, input < other)
    def d_other(g, input, other): return share(g, input, other, input > other)
    def bounds(input, other): return highest(input, other)
    def body(k, input, other):    return k.maximum(input, other)


class minimum(Pointwise):
    """The smaller of `input` and `other`, elementwise; nan if one of them is."""

    forms = "function method out"
    numbers = ""
    check = ordered("minimum")

    def ref(xp, input, other):    return xp.minimum(input, other)
    def d_input(g, input, other): return share(g, input, other, input > other)
    def d_other(g, input, other): return share(g, input, other, input < other)
    def bounds(input, other): return lowest(input, other)
    def body(k, input, other):    return k.minimum(input, other)


class fmax(Pointwise):
    """The larger of `input` and `other`, elementwise; where one is nan, the other."""

    forms = "function method out"
    numbers = ""
    check = ordered("fmax")

    def ref(xp, input, other):    return xp.fmax(input, other)
    def d_input(g, input, other): return g.where((input >= other) | other.isnan(), 0)
    def d_other(g, input, other): return g.where(~((input >= other) | other.isnan()), 0)
    def body(k, input, other):    return k.fmax(input, other)


class fmin(Pointwise):
    """The smaller of `input` and `other`, elementwise; where one is nan, the other."""

    forms = "function method out"
    numbers = ""
    check = ordered("fmin")

    def ref(xp, input, other):    return xp.fmin(input, other)
    def d_input(g, input, other): return g.where((input <= other) | other.isnan(), 0)
    def d_other(g, input, other): return g.where(~((input <= other) | other.isnan()), 0)
    def body(k, input, other):    return k.fmin(input, other)


class clamp(Composite):
    """`input` kept from falling below `min` or rising above `max`, elementwise; either may be None.

    >>> torch.clamp(torch.tensor([-1.0, 0.5, 2.0]), 0, 1)
    tensor([0.0000, 0.5000, 1.0000])
    """

    names = "clip"
    forms = "function method inplace out"
    no_overlap = True

    def of(input, min=None, max=None):
        given = [bound for bound in (min, max) if bound is not None]
        need(given, "torch.clamp: At least one of 'min' or 'max' must not be None")
        tensors = [is_tensor(bound) for bound in given]
        if tensors[0] is not tensors[-1]:
            need(False, f"min is a {type(min).__name__} and max a {type(max).__name__}; give numbers for both or "
                        "tensors for both", TypeError)
        return _clamp_tensor(input, min, max) if tensors[0] else _clamp(input, min, max)


def number_order(dtype, input, bound):
    """`no_order`, and a bool has no bound but a tensor."""
    no_order(dtype)
    need(dtype is not dtypes.bool or bound.__class__ is Spec, "\"clamp_scalar_cpu\" not implemented for 'Bool'",
         NotImplementedError)


def no_order(dtype, *args):
    need(not dtype.is_complex, "clamp is not supported for complex types", NotImplementedError)


def clamped(xp, input, low, high):
    """`high` wins where the bounds cross; nan in either comes through."""
    out = input if low is None else xp.maximum(input, low)
    return out if high is None else xp.minimum(out, high)


def inside(input, low, high):
    """Where `input` lies between the bounds, ends included."""
    if low is None or high is None:
        return input <= high if low is None else input >= low
    return (input >= low) & (input <= high)


class _clamp(Pointwise):
    """`clamp` with numbers."""

    node = "ClampBackward1"
    operands, numbers = "input min max", "min max"
    refuses, cname = "bool", "clamp_scalar"
    must_fit = {"min": "dtype", "max": "dtype"}
    check = no_order

    def ref(xp, input, min=None, max=None): return clamped(xp, input, min, max)
    def d_input(g, input, min, max):        return g.where(inside(input, min, max), 0)
    def bounds(input, min, max):
        out = input if min is None else highest(input, min)
        return out if max is None else lowest(out, max)

    def body(k, input, min, max):           return clamped(k, input, min, max)


class _clamp_tensor(Pointwise):
    """`clamp` with tensors."""

    node = "ClampBackward0"
    operands, numbers = "input min max", ""

    def check(dtype, input, min, max):
        no_order(dtype)
        need(dtype is not dtypes.bool or min is None or max is None, "\"clamp_cpu\" not implemented for 'Bool'",
             NotImplementedError)

    def ref(xp, input, min=None, max=None): return clamped(xp, input, min, max)
    def d_input(g, input, min, max): return g.where(inside(input, min, max), 0)
    def d_min(g, input, min, max):   return g.where(input < min if max is None else (input < min) & (min < max), 0)
    def d_max(g, input, min, max):   return g.where(input > max if min is None else (input > max) | (max < min), 0)
    def bounds(input, min, max):
        out = input if min is None else highest(input, min)
        return out if max is None else lowest(out, max)

    def body(k, input, min, max): return clamped(k, input, min, max)


class clamp_min(Pointwise):
    """`input` kept from falling below `min`, elementwise."""

    node = "ClampMinBackward1"
    number_nodes = {"min": "ClampMinBackward0"}
    numbers = "min"
    must_fit = {"min": "dtype"}
    check = number_order

    def ref(xp, input, min):     return xp.maximum(input, min)
    def d_input(g, input, min):  return g.where(input >= min, 0)
    def d_min(g, input, min):    return g.where(input < min, 0)
    def bounds(input, min): return highest(input, min)
    def body(k, input, min):     return k.maximum(input, min)


class clamp_max(Pointwise):
    """`input` kept from rising above `max`, elementwise."""

    node = "ClampMaxBackward1"
    number_nodes = {"max": "ClampMaxBackward0"}
    numbers = "max"
    must_fit = {"max": "dtype"}
    check = number_order

    def ref(xp, input, max):     return xp.minimum(input, max)
    def d_input(g, input, max):  return g.where(input <= max, 0)
    def d_max(g, input, max):    return g.where(input > max, 0)
    def bounds(input, max): return lowest(input, max)
    def body(k, input, max):     return k.minimum(input, max)


class heaviside(Pointwise):
    """0 where `input` is negative (or nan), 1 where it is positive, and `values` where it is 0, elementwise."""

    node = "torch::autograd::NotImplemented"
    numbers = ""
    strict_out = True

    def check(dtype, input, values):
        need(input.dtype is values.dtype, "heaviside is not yet implemented for tensors with different dtypes.")
        need(not dtype.is_complex, "heaviside is not yet implemented for complex tensors.")

    def ref(xp, input, values): return xp.where(input == 0, values, input > 0)
    def d_input(g):  no_derivative("heaviside", "where(input > 0, 1.0, 0.0)")
    def d_values(g): no_derivative("heaviside", "where(input == 0, values, 0.0)")
    def body(k, input, values): return k.where(input == 0, values, k.cast(input > 0, values.dtype))


# ---- one or the other


class where(Composite):
    """`input` where `condition` holds, `other` elsewhere; with `condition` alone, the indices where it holds.

    >>> torch.where(torch.tensor([True, False]), torch.tensor([1, 2]), 0)
    tensor([1, 0])
    """

    forms = "function out"
    strict_out = True
    no_overlap = True

    def of(condition, input=None, other=None):
        if not is_tensor(condition):
            name = type(condition).__name__
            raise TypeError(f"where(): argument 'condition' (position 1) must be Tensor, not {name}")
        if input is None and other is None:
            return condition.nonzero(as_tuple=True)
        if condition.dtype is dtypes.uint8:
            warn("where received a uint8 condition tensor. This behavior is deprecated and will be removed in "
                 "a future version of PyTorch. Use a boolean condition instead.")
        return _where(condition, input, other)


class _where_method(Composite):
    """This tensor where `condition` holds, `other` elsewhere.

    >>> torch.tensor([1, -2]).where(torch.tensor([True, False]), torch.tensor(0))
    tensor([1, 0])
    """

    names, forms = "where", "method"

    def of(input, condition, other): return where(condition, input, other)


class _where(Pointwise):
    """The choice between two operands; the condition takes no part in their promotion."""

    node = "WhereBackward0"
    operands = "input other"
    must_fit = {"input": "unless half", "other": "unless half"}
    exact = True

    @classmethod
    def infer(op, args):
        condition = args[0]
        need(condition.dtype in (dtypes.bool, dtypes.uint8), "where expected condition to be a boolean tensor, but got "
             f"a tensor with dtype {condition.dtype.cname}")
        out, casts, common = super().infer(args)
        return out, [np.dtype(bool), *casts[1:]], common

    def ref(xp, condition, input, other): return xp.where(condition, input, other)
    def d_input(g, condition): return _where(condition, g, 0)
    def d_other(g, condition): return _where(condition, 0, g)
    def bounds(input, other): return hull(input, other)
    def body(k, condition, input, other): return k.where(condition, input, k.cast(other, input.dtype))
