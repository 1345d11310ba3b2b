"""Simulated quantisation: numbers rounded to those that few bits can say, and gradients as if they were not.

An element becomes the whole number `rint(input / scale) + zero_point`, kept between `quant_min` and `quant_max`, and
then a number again. Its gradient passes where it was between them (the straight-through estimator), and is zero
elsewhere. Scales are of single precision, as in PyTorch; so are results that no zero point with a fraction is in.
"""
import math

import numpy as np

from ..base import dtypes, shapes
from ..base.errors import need
from ..base.op import Composite, Op, door
from .pool import need_dtype
from .view import ints

EXACT_QUANTUM = 2 ** 24            # whole numbers up to this one are exact in single precision


def need_range(input, quant_min, quant_max, name):
    """Refuse what cannot be quantised."""
    need_dtype(input.dtype, input.dtype.category == 2, name)
    need(quant_min <= quant_max, f"`quant_min` should be less than or equal to `quant_max`, but got {quant_min} and "
                                 f"{quant_max}.")


def need_fixed(**parameters):
    """Refuse parameters that want gradients: those are what learns, not how it is rounded."""
    for name, t in parameters.items():
        need(not t.requires_grad, f"it is not differentiable with respect to argument '{name}'. This input cannot have "
                                  "requires_grad True.")


def single(input):
    """`input` in single precision at least."""
    return input.to(dtypes.float64 if input.dtype is dtypes.float64 else dtypes.float32)


def limits_exact(q, quant_min, quant_max):
    """Whole numbers `q` in a precision that the limits of the range are exact in."""
    return q if max(abs(quant_min), abs(quant_max)) <= EXACT_QUANTUM else q.to(dtypes.float64)


def reciprocal(scale):
    """One over a number of single precision, in single precision."""
    with np.errstate(divide="ignore", over="ignore"):
        return float(np.float32(1) / np.float32(scale))


def limited(q, quant_min, quant_max):
    """`q` kept in the range; NaN becomes its beginning."""
    return q.where(q >= quant_min, quant_min).clamp_max(quant_max)


def passed(g, q, quant_min, quant_max):
    """The gradient where `q` was in the range."""
    return g * ((q >= quant_min) & (q <= quant_max))


class fake_quantize_per_tensor_affine(Composite):
    """`input` rounded to multiples of `scale` between `quant_min` and `quant_max` less `zero_point` of them.

    >>> torch.fake_quantize_per_tensor_affine(torch.tensor([-0.3, 0.12, 0.26, 9.0]), 0.1, 0, 0, 15)
    tensor([0.0000, 0.1000, 0.3000, 1.5000])
    """

    forms = "function"
    by_specs = False                    # whether parameters want gradients is no spec's matter

    def of(input, scale, zero_point, quant_min, quant_max):
        quant_min, quant_max = ints((quant_min,), "quant_min")[0], ints((quant_max,), "quant_max")[0]
        both = [isinstance(x, door.tensor) for x in (scale, zero_point)]
        if all(both):
            need_fixed(scale=scale, zero_point=zero_point)
            return _fake_quantized_by_tensors(input, scale, zero_point, quant_min, quant_max)
        if any(both):                                     # a tensor beside a number stands for the number in it
            scale, zero_point = [x.item() if is_tensor else x
                                 for x, is_tensor in zip((scale, zero_point), both, strict=True)]
        need(isinstance(scale, (int, float)) and isinstance(zero_point, int), "scale must be a number and zero_point "
             f"an int, or both tensors, but got {scale!r} and {zero_point!r}", TypeError)
        return _fake_quantized(input, scale, zero_point, quant_min, quant_max)


class _fake_quantized(Composite):
    """`fake_quantize_per_tensor_affine` by numbers."""

    node = "FakeQuantizePerTensorAffineCachemaskBackward0"
    called = "fake_quantize_per_tensor_affine"

    def of(input, scale, zero_point, quant_min, quant_max):
        need_range(input, quant_min, quant_max, "fake_quantize_tensor_cachemask_kernel_type_handling")
        need(quant_min <= zero_point <= quant_max, "`zero_point` must be between `quant_min` and `quant_max`, but got "
             f"{zero_point}.")
        q = whole_by_number(input, scale, zero_point, quant_min, quant_max)
        whole = limited(q, quant_min, quant_max) - zero_point
        return (whole.to(dtypes.float32) * float(np.float32(scale))).to(input.dtype)

    def grads(g, needs, input, scale, zero_point, quant_min, quant_max):
        return passed(g, whole_by_number(input, scale, zero_point, quant_min, quant_max), quant_min, quant_max),


def whole_by_number(input, scale, zero_point, quant_min, quant_max):
    """The whole numbers that `input` is rounded to."""
    return limits_exact((single(input) * reciprocal(scale)).round() + zero_point, quant_min, quant_max)


class _fake_quantized_by_tensors(Composite):
    """`fake_quantize_per_tensor_affine` by tensors of one element."""

    node = "FakeQuantizePerTensorAffineCachemaskTensorQparamsBackward0"
    called = "fake_quantize_per_tensor_affine"

    def of(input, scale, zero_point, quant_min, quant_max):
        need_range(input, quant_min, quant_max, "fake_quantize_tensor_cachemask_kernel_type_handling")
        for x in (scale, zero_point):
            need(x.numel() == 1, f"a Tensor with {x.numel()} elements cannot be converted to Scalar")
        q, zero = whole_by_tensors(input, scale, zero_point, quant_min, quant_max)
        whole = limited(q, quant_min, quant_max) - zero
        return (whole.to(dtypes.float32) * scale.reshape(()).to(dtypes.float32)).to(input.dtype)

    def grads(g, needs, input, scale, zero_point, quant_min, quant_max):
        return passed(g, whole_by_tensors(input, scale, zero_point, quant_min, quant_max)[0], quant_min,
                      quant_max), None, None


def whole_by_tensors(input, scale, zero_point, quant_min, quant_max):
    """(the whole numbers that `input` is rounded to, the zero point in a floating dtype)"""
    x = single(input)
    inverse = scale.detach().reshape(()).to(dtypes.float32).reciprocal().to(x.dtype)
    zero = zero_point.detach().reshape(()).to(dtypes.int64).to(x.dtype)
    return limits_exact((x * inverse).round() + zero, quant_min, quant_max), zero


class fake_quantize_per_channel_affine(Composite):
    """`fake_quantize_per_tensor_affine` with a `scale` and a `zero_point` for each index along `axis` of `input`.

    `quant_min` and `quant_max` are the limits of the whole numbers.

    >>> scale, zero = torch.tensor([0.1, 1.0]), torch.zeros(2, dtype=torch.int32)
    >>> torch.fake_quantize_per_channel_affine(torch.tensor([[0.26, 9.0], [0.26, 9.0]]), scale, zero, 0, 0, 15)
    tensor([[0.3000, 1.5000],
            [0.0000, 9.0000]])
    """

    forms = "function"
    by_specs = False                    # whether parameters want gradients is no spec's matter

    def of(input, scale, zero_point, axis, quant_min, quant_max):
        quant_min, quant_max = ints((quant_min,), "quant_min")[0], ints((quant_max,), "quant_max")[0]
        need_channels(input, scale, zero_point, axis, quant_min, quant_max)
        need_fixed(scale=scale, zero_point=zero_point)
        if not zero_point.dtype.is_floating_point:
            zero_point = _zero_points_within(zero_point, quant_min, quant_max)
        return _fake_quantized_by_channels(input, scale, zero_point, axis, quant_min, quant_max)


class _zero_points_within(Op):
    """Whole zero points, each of which is in the range."""

    called = "fake_quantize_per_channel_affine"

    def meta(zero_point, quant_min, quant_max): return zero_point

    def verify(zero_point, quant_min, quant_max):
        bad = zero_point[(zero_point < quant_min) | (zero_point > quant_max)]
        need(not bad.size, "`zero_point` must be between `quant_min` and `quant_max`, but got "
             f"{bad[0] if bad.size else None}.")

    def holds(zero_point, quant_min, quant_max): return ((zero_point >= quant_min) & (zero_point <= quant_max)).all()

    def ref(xp, zero_point, quant_min, quant_max):  return zero_point
    def body(k, zero_point, quant_min, quant_max):  return zero_point


class _fake_quantized_by_channels(Composite):
    """`fake_quantize_per_channel_affine`, after its arguments were looked at."""

    node = "FakeQuantizePerChannelAffineCachemaskBackward0"
    called = "fake_quantize_per_channel_affine"

    def of(input, scale, zero_point, axis, quant_min, quant_max):
        q, zero = whole_by_channels(input, scale, zero_point, axis, quant_min, quant_max)
        whole = limited(q, quant_min, quant_max)
        if zero_point.dtype.is_floating_point:                  # what has a fraction is exact in double precision
            whole, zero = whole.to(dtypes.float64), zero.to(dtypes.float64)
        whole = whole - zero
        return (whole * along_axis(scale, input, axis).to(whole.dtype)).to(input.dtype)

    def grads(g, needs, input, scale, zero_point, axis, quant_min, quant_max):
        return passed(g, whole_by_channels(input, scale, zero_point, axis, quant_min, quant_max)[0], quant_min,
                      quant_max), None, None


def need_channels(input, scale, zero_point, axis, quant_min, quant_max):
    """Refuse what `fake_quantize_per_channel_affine` does."""
    for name, x in (("scale", scale), ("zero_point", zero_point)):
        need(isinstance(x, door.tensor), f"{name} must be Tensor, not {type(x).__name__}", TypeError)
    for name, x, words, fits in (("Scale", scale, "Float or BFloat16", (dtypes.float32, dtypes.bfloat16)),
                                 ("Zero-point", zero_point, "Int32, Float or Half", (dtypes.int32, dtypes.float32,
                                                                                     dtypes.float16))):
        need(x.dtype in fits, f"{name} must be {words}, found {x.dtype.cname}")
    need(scale.dim() == 1, "scale should be a 1-D tensor")
    need(zero_point.dim() == 1, "zero point should be a 1-D tensor")
    need(scale.numel() == zero_point.numel(), "scale and zero-point need to have the same dimensions, but got "
         f"{scale.numel()} and {zero_point.numel()}")
    d = shapes.wrap_dim(axis, input.dim(), scalar_ok=False)
    need(axis >= 0, f"`axis` must be between 0 and number of dimensions of input, but got {axis}")
    need(scale.numel() == input.shape[d], "dimensions of scale and zero-point are not consistent with input tensor: "
         f"{scale.numel()} for {input.shape[d]}")
    need_range(input, quant_min, quant_max, "fake_quantize_channel_cachemask_cpu_type_handling")


def along_axis(x, input, axis):
    """A vector as it goes along `axis` of `input`."""
    d = shapes.wrap_dim(axis, input.dim())
    return x.detach().reshape([-1 if k == d else 1 for k in range(input.dim())])


def whole_by_channels(input, scale, zero_point, axis, quant_min, quant_max):
    """(the whole numbers that `input` is rounded to, the zero points in a floating dtype)

    Zero points with a fraction count before the rounding. What no int64 can hold becomes the least of them, as it does
    in PyTorch on x86.
    """
    x = single(input)
    inverse = along_axis(scale, input, axis).to(dtypes.float32).reciprocal().to(x.dtype)
    zero = along_axis(zero_point, input, axis).to(x.dtype)
    fraction = zero_point.dtype.is_floating_point
    q = (zero + x * inverse).round() if fraction else (x * inverse).round() + zero
    return limits_exact(q.where(q < 2.0 ** 63, -math.inf), quant_min, quant_max), zero
