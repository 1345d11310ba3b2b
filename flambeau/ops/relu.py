"""relu and its kin: activation functions of straight pieces, and of pieces that are next to straight."""
import numpy as np

from ..base import dtypes
from ..base.arguments import fitting
from ..base.errors import need
from ..base.op import Composite, Pointwise, door, refuse
from .activation import Activation, number, run

# --- cut off ----------------------------------------------------------------------------------------------------------


class relu(Pointwise):
    """`input` where it is positive, else zero.

    >>> torch.relu(torch.tensor([-1., 2.]))
    tensor([0., 2.])
    """

    forms = "function method inplace"
    refuses = "complex"

    def check(dtype, input): need(dtype is not dtypes.bool, "Boolean inputs not supported for relu")
    def ref(xp, input):      return xp.maximum(input, 0)
    def d_input(g, out):     return _threshold_backward(g, out, 0)
    def body(k, input):      return k.maximum(input, 0)


class _relu(Composite):
    """`input` where it is positive, else zero."""

    names = "nn.functional.relu"
    forms = "function inplace"

    def of(input, inplace=False): return run(relu, inplace, input)


class _threshold_backward(Pointwise):
    """`grad` where `input` is above `threshold`, else zero."""

    operands = "grad input"

    def ref(xp, grad, input, threshold):  return xp.where(input <= threshold, xp.zeros((), grad.dtype), grad)
    def d_grad(g, input, threshold):      return _threshold_backward(g, input, threshold)
    def d_input(g, input_spec):           return g.new_zeros(input_spec.shape)

    def body(k, grad, input, threshold):
        return k.where(input <= threshold, 0, grad) if input.dtype.is_floating_point else NotImplemented


class _threshold(Activation):
    """`input` where it is above `threshold`, else `value`."""

    refuses = "bool complex"
    node = "ThresholdBackward0"
    must_fit = {"threshold": "compute", "value": "dtype"}

    def ref(xp, input, threshold, value): return xp.where(input <= threshold, number(xp, value, input), input)
    def d_input(g, input, threshold):     return _threshold_backward(g, input, threshold)

    def body(k, input, threshold, value):
        return k.where(input <= threshold, value, input) if input.dtype.is_floating_point else NotImplemented


class _threshold_front(Composite):
    """`input` where it is above `threshold`, else `value`."""

    names = "nn.functional.threshold threshold"
    forms = "function inplace out"

    def of(input, threshold, value, inplace=False): return run(_threshold, inplace, input, threshold, value)


class _hardtanh(Activation):
    """`input` held between `min_val` and `max_val`."""

    refuses = "complex"
    node = "HardtanhBackward0"
    must_fit = {"min_val": "dtype", "max_val": "dtype"}

    def check(dtype, *args):
        need(dtype is not dtypes.bool, "Bool inputs not supported for hardtanh")

    def ref(xp, input, min_val, max_val):
        return xp.clip(input, number(xp, min_val, input), number(xp, max_val, input))

    def d_input(g, input, min_val, max_val): return g.masked_fill((input <= min_val) | (input >= max_val), 0)
    def body(k, input, min_val, max_val):    return k.minimum(k.maximum(input, min_val), max_val)


class _hardtanh_front(Composite):
    """`input` held between `min_val` and `max_val`."""

    names = "nn.functional.hardtanh"
    forms = "function inplace"

    def of(input, min_val=-1.0, max_val=1.0, inplace=False):
        need(not min_val > max_val, f"min_val cannot be greater than max_val, got {min_val} and {max_val}", ValueError)
        need(input.dtype.is_signed or input.dtype is dtypes.bool or min_val >= 0,
             f"cannot do hardtanh on an unsigned type with negative limits, got {min_val}")
        return run(_hardtanh, inplace, input, min_val, max_val)


class _relu6(Composite):
    """`input` held between 0 and 6."""

    names = "nn.functional.relu6"

    def of(input, inplace=False): return run(_hardtanh, inplace, input, 0, 6)


class hardshrink(Composite):
    """`input` where it lies outside [-lambd, lambd], else zero."""

    names = "nn.functional.hardshrink"
    forms = "function method out"
    no_overlap = True
    strict_out = True

    def of(input, lambd=0.5):
        if isinstance(input, door.tensor) and input.dtype.is_floating_point and input.dtype.itemsize == 2:
            fitting(lambd, input.dtype)
            lambd = float(input.dtype.np.type(lambd))            # so that an element can be equal to it
        return _hardshrink(input, lambd)


class _hardshrink(Activation):
    """`hardshrink` at a number that the dtype has."""

    node = "HardshrinkBackward0"
    must_fit = {"lambd": "dtype"}

    def ref(xp, input, lambd):
        return xp.where((input >= -lambd) & (input <= lambd), xp.zeros((), input.dtype), input)

    def d_input(g, input, lambd):  return g.masked_fill((input >= -lambd) & (input <= lambd), 0)
    def body(k, input, lambd):     return k.where((input >= -lambd) & (input <= lambd), 0, input)


class _softshrink(Activation):
    """`input` moved towards zero by `lambd`, stopping there."""

    node = "SoftshrinkBackward0"

    def ref(xp, input, lambd):
        low = xp.where(input < -lambd, input + lambd, input * 0)             # which keeps the sign, and NaN
        return xp.where(input > lambd, input - lambd, low)

    def d_input(g, input, lambd): return g.masked_fill((input >= -lambd) & (input <= lambd), 0)

    def body(k, input, lambd):
        return k.where(input > lambd, input - lambd, k.where(input < -lambd, input + lambd, input * 0))


class _softshrink_front(Composite):
    """`input` moved towards zero by `lambd`, stopping there."""

    names = "nn.functional.softshrink"
    forms = "function method out"
    strict_out = True

    def of(input, lambd=0.5):
        refuse(_softshrink, input.dtype)
        top = dtypes.finfo(input.dtype).max
        need(0 <= fitting(lambd, dtypes.float64).real <= top, f"lambda must be in range [0, {top:g}] for input dtype "
             f"{input.dtype.cname}, but found {lambd}.")
        return _softshrink(input, lambd)


# --- piecewise linear -------------------------------------------------------------------------------------------------


class _leaky_relu(Activation):
    """`input` where it is positive, else `negative_slope` times it."""

    node = "LeakyReluBackward0"
    must_fit = {"negative_slope": "compute"}

    def ref(xp, input, negative_slope):    return xp.where(input > 0, input, input * negative_slope)
    def d_input(g, input, negative_slope): return g.where(input > 0, g * negative_slope)
    def body(k, input, negative_slope):    return k.where(input > 0, input, input * negative_slope)


class _leaky_relu_front(Composite):
    """`input` where it is positive, else `negative_slope` times it."""

    names = "nn.functional.leaky_relu"
    forms = "function inplace"

    def of(input, negative_slope=0.01, inplace=False): return run(_leaky_relu, inplace, input, negative_slope)


class _prelu_kernel(Pointwise):
    """`input` where it is positive, else `weight` times it."""

    refuses = "bool int complex"
    node = "PreluKernelBackward0"

    def ref(xp, input, weight):      return xp.where(input > 0, input, input * weight)
    def d_input(g, input, weight):   return g.where(input > 0, g * weight)
    def d_weight(g, input):          return (g * input).masked_fill(input > 0, 0)
    def body(k, input, weight):      return k.where(input > 0, input, input * weight)


class prelu(Composite):
    """`input` where it is positive, else the learnt slope `weight` (one, or one per channel) times it."""

    names = "nn.functional.prelu"

    def of(input, weight):
        need(input.dtype is weight.dtype, f"prelu: Type promoting not supported. Got {input.dtype} and {weight.dtype}")
        if weight.numel() != 1:
            need(input.dim() > 0, "Not allow zero-dim input tensor.")
            channels = input.shape[1] if input.dim() > 1 else 1
            need(weight.numel() == channels, "Mismatch of parameter numbers and input channel size. Found parameter "
                                             f"numbers = {weight.numel()} and channel size = {channels}.")
        need(weight.dim() <= 1, f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.dim()}")
        if input.dim() == 0:
            weight = weight.reshape(())
        else:
            shape = [1] * input.dim()
            if input.dim() > 1 or weight.numel() != 1:
                shape[1 if input.dim() > 1 else 0] = weight.numel()
            weight = weight.reshape(shape)
        return _prelu_kernel(input, weight)


class _hardsigmoid(Activation):
    """`input / 6 + 1/2`, held between 0 and 1."""

    node = "HardsigmoidBackward0"

    def ref(xp, input):      return xp.clip(input + 3, 0, 6) / 6
    def d_input(g, input):   return (g / 6).masked_fill((input <= -3) | (input >= 3), 0)
    def body(k, input):      return k.minimum(k.maximum(input + 3, 0), 6) / 6


class _hardsigmoid_front(Composite):
    """`input / 6 + 1/2`, held between 0 and 1."""

    names = "nn.functional.hardsigmoid"
    forms = "function inplace"

    def of(input, inplace=False): return run(_hardsigmoid, inplace, input)


class _hardswish(Activation):
    """`input` times its hard sigmoid."""

    node = "HardswishBackward0"

    def ref(xp, input): return input * xp.clip(input + 3, 0, 6) / 6

    def d_input(g, input):
        inside = g * (input / 3 + 0.5)
        return g.where(input >= 3, inside.masked_fill(input <= -3, 0))

    def body(k, input): return input * k.minimum(k.maximum(input + 3, 0), 6) / 6


class _hardswish_front(Composite):
    """`input` times its hard sigmoid."""

    names = "nn.functional.hardswish"
    forms = "function inplace"

    def of(input, inplace=False): return run(_hardswish, inplace, input)


# --- random -----------------------------------------------------------------------------------------------------------


class _rrelu_front(Composite):
    """A leaky relu whose slope is drawn between `lower` and `upper` in training, and is their mean otherwise."""

    names = "nn.functional.rrelu rrelu"
    forms = "function inplace"

    def of(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
        need(lower <= upper, f"lower bound must not be above upper, got {lower} and {upper}")
        if not inplace:
            input = input.contiguous()                    # its result is row-major in PyTorch
        if not training:
            return run(_leaky_relu, inplace, input, (lower + upper) / 2)
        sloped = input <= 0
        if input._is_drawn_there():                       # for every element, in the precision that it computes in
            if input.dtype is dtypes.float64:
                drawn = input.new_empty(input.shape).uniform_(lower, upper)
            else:
                unit = input.new_empty(input.shape, dtype=dtypes.float32).uniform_().to(input.dtype)
                drawn = (unit.double() * (upper - lower) + lower).to(input.dtype)
            return _sloped(input, drawn.where(sloped, 1), inplace)
        # PyTorch draws, in double precision, only for the elements that get a slope. So it has to be known how many.
        if input.dtype is not dtypes.float64:             # the bounds are first rounded to what it computes in
            lower, upper = float(np.float32(lower)), float(np.float32(upper))
        drawn = input.new_empty((int(sloped.sum()),), dtype=dtypes.float64).uniform_(lower, upper)
        slope = input.new_ones(input.shape).masked_scatter(sloped, drawn.to(input.dtype))
        return _sloped(input, slope, inplace)


def _sloped(input, slope, inplace):
    """`input` times the slopes drawn for it. In place that is a product, which keeps the slopes alone: what a prelu
    keeps, its input, is what is written over."""
    return input.mul_(slope) if inplace else _prelu_kernel(input, slope)
