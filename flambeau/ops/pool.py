"""Pooling by means: the mean of the elements in windows that move over the last dimensions.

It goes dimension by dimension (see base/axis_maps.py), since a sum over a block is a sum of sums. What all pooling says
about its arguments is here too.
"""
import math
from functools import lru_cache

from ..base import dtypes, shapes
from ..base.axis_maps import adjoins, along, taps_of, weighted_sum
from ..base.errors import need
from ..base.op import Composite, Op, door
from ..base.spec import spec
from .view import ints

COUNT_WORDS = {1: "one int", 2: "two ints", 3: "three ints"}
SUMMED_DTYPES = dtypes.float32, dtypes.float64           # of windows that kernels add up; others are the reference's
POOLED_AXES = {1: "W", 2: "HW", 3: "THW"}


# --- arguments --------------------------------------------------------------------------------------------------------


def per_window(given, n, what, name, omitted=False):
    """`given`, one int or `n` of them, as a tuple of `n`."""
    made = ints((given,), what)
    need(len(made) in (1, n), f"{name}: {what} must either be {'omitted, ' * omitted}a single int, or a tuple of "
         f"{COUNT_WORDS[n]}, got {made}")
    return made if len(made) == n else made * n


def stride_or(stride, kernel, n, name):
    """The stride, by default the size of the window."""
    if stride is None or isinstance(stride, (tuple, list)) and not stride:
        return kernel
    return per_window(stride, n, "stride", name, True)


def one_int(given, what, name, expectation="should contain one int"):
    """The int that a function of one dimension takes."""
    made = ints((given,), what)
    need(len(made) == 1, f"{name}() argument '{what}' {expectation} (got {len(made)})")
    return made[0]


def need_tensor(input):
    need(isinstance(input, door.tensor), "argument 'input' (position 1) must be Tensor, not "
         f"{type(input).__name__}", TypeError)


def sizes_by(sizes):
    """`3x4`, as PyTorch writes sizes."""
    return "x".join(map(str, sizes))


def output_size(size, kernel, stride, padding, dilation, ceil_mode):
    """How many windows there are along one dimension."""
    need(stride != 0, "stride should not be zero")
    need(padding >= 0, f"pad must be non-negative, but got pad: {padding}")
    need(padding <= int(((kernel - 1) * dilation + 1) / 2), "pad should be at most half of effective kernel size, but "
         f"got pad={padding}, kernel_size={kernel} and dilation={dilation}")
    out = (size + 2 * padding - dilation * (kernel - 1) - 1 + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (out - 1) * stride >= size + padding:       # the last window must not start in the padding behind
        out -= 1
    return out


@lru_cache(1024)
def windows(input, kernel, stride, padding, dilation, ceil_mode, include_pad=True):
    """The maps (see base/axis_maps.py) of windows over last dimensions of `input`, refused where they do not fit."""
    n = len(kernel)
    need(input.ndim in (n + 1, n + 2), f"non-empty {n + 1}D or {n + 2}D (batch mode) tensor expected for input, but "
         f"got: {list(input.shape)}")
    size = input.shape[-n:]
    out = [output_size(*one, ceil_mode) for one in zip(size, kernel, stride, padding, dilation, strict=True)]
    for what, letter, given in (("kernel size", "k", kernel), ("stride", "d", stride),
                                ("dilation", "dilation", dilation)):
        need(min(given) > 0, f"{what} should be greater than zero, but got "
             + " ".join(f"{letter}{axis}: {v}" for axis, v in zip(POOLED_AXES[n], given, strict=True)))
    need(0 not in input.shape[-n - 1:], f"Expected {n + 1}D or {n + 2}D (batch mode) tensor with optional 0 dim batch "
         f"size for input, but got:{list(input.shape)}")
    need(min(out) > 0, f"Given input size: ({sizes_by(input.shape[-n - 1:])}). Calculated output size: "
         f"({sizes_by((input.shape[-n - 1], *out))}). Output size is too small")
    return tuple([("window", *one, include_pad)
                  for one in zip(size, out, kernel, stride, padding, dilation, strict=True)])


def kept_layout(input, shape):
    """Channels-last strides for a result of `shape` where `input` has them, else None."""
    lasts = len(shape) == input.ndim and shapes.suggests_channels_last(input.shape, input.strides)
    return shapes.channels_last_strides(shape) if lasts else None


def mapped(input, maps, layout=True):
    """The spec after `maps` along the last dimensions."""
    shape = (*input.shape[:input.ndim - len(maps)], *[m[2] for m in maps])
    return spec(input.dtype, shape, kept_layout(input, shape) if layout else None, input.device)


def repeated(k, x, times):
    """In a body: each element of the last dimensions so many times in a row, as `times` says of each dimension."""
    lead, size = x.shape[:x.ndim - len(times)], x.shape[x.ndim - len(times):]
    one = k.reshape(x, (*lead, *[n for each in size for n in (each, 1)]))
    many = k.expand(one, (*lead, *[n for pair in zip(size, times, strict=True) for n in pair]))
    return k.reshape(many, (*lead, *[n * t for n, t in zip(size, times, strict=True)]))


def added_up(k, x, times):
    """In a body: the sums of so many elements in a row, the transpose of `repeated`."""
    lead, size = x.shape[:x.ndim - len(times)], x.shape[x.ndim - len(times):]
    apart = k.reshape(x, (*lead, *[n for each, t in zip(size, times, strict=True) for n in (each // t, t)]))
    return k.sum(apart, tuple([len(lead) + 2 * i + 1 for i in range(len(times))]), keepdim=False)


def weighed(k, x, size, maps, back=False, mean=False):
    """In a body: what `maps` make of the last dimensions of `x`, which then have `size`, if the library does that: two
    dimensions at a time."""
    lead = x.shape[:x.ndim - len(maps)]
    if len(maps) == 3:
        x = weighed(k, x, size[1:], maps[1:], back, mean)
        if x is NotImplemented:
            return NotImplemented
        plane, counts = math.prod(size[1:]), taps_of(maps[0]).counts if mean else None
        flat, even = k.reshape(x, (*lead, x.shape[-3], plane)), counts is not None and (counts == counts[0]).all()
        as_it_is = "window", plane, plane, 1, 1, 0, 1, False
        made = weighed(k, flat, (size[0], plane), (maps[0], as_it_is), back, mean and not even)
        if made is NotImplemented:
            return NotImplemented
        return k.reshape(made / int(counts[0]) if even else made, (*lead, *size))
    shape = (*lead, *size)
    made = k.library("weigh", (x,), [(x.dtype, shape)], (maps, back, mean))
    return NotImplemented if made is None else made[0]


def need_dtype(dtype, fits, name):
    need(fits, f"\"{name}\" not implemented for '{dtype.cname}'", NotImplementedError)


# --- means ------------------------------------------------------------------------------------------------------------


def divisors(xp, maps, divisor, dtype):
    """What the sum over each window is divided by."""
    if divisor is not None:
        return xp.asarray(divisor, dtype)
    made = xp.ones((), dtype)
    for axis, m in enumerate(maps, -len(maps)):
        made = made * along(xp, taps_of(m).counts, axis, dtype)
    return made


class _mean_pool(Op):
    """The sum over each window, divided by `divisor` or by the size of the window."""

    def meta(input, maps, divisor): return mapped(input, maps, layout=len(maps) == 2)

    def ref(xp, input, maps, divisor):
        for axis, m in reversed(list(enumerate(maps, -len(maps)))):
            input = weighted_sum(xp, input, axis, taps_of(m))
        by = divisors(xp, maps, divisor, input.dtype)
        if input.dtype.kind == "i":                          # C's division: towards zero
            return xp.sign(input) * xp.sign(by) * (xp.abs(input) // xp.abs(by))
        return input / by

    def d_input(g, maps, divisor): return _mean_pool_back(g, maps, divisor)

    def body(k, input, maps, divisor):
        if input.dtype not in SUMMED_DTYPES:
            return NotImplemented
        times = [adjoins(m) for m in maps]
        if None in times:
            made = weighed(k, input, [m[2] for m in maps], maps, mean=divisor is None)
            return made if divisor is None or made is NotImplemented else made / divisor
        return added_up(k, input, times) / (math.prod(times) if divisor is None else divisor)


class _mean_pool_back(Op):
    """The transpose of `_mean_pool`."""

    def meta(grad, maps, divisor):
        shape = (*grad.shape[:grad.ndim - len(maps)], *[m[1] for m in maps])
        return spec(grad.dtype, shape, kept_layout(grad, shape), grad.device)

    def ref(xp, grad, maps, divisor):
        grad = grad / divisors(xp, maps, divisor, grad.dtype)
        for axis, m in enumerate(maps, -len(maps)):
            grad = weighted_sum(xp, grad, axis, taps_of(m).back)
        return grad

    def d_grad(g, maps, divisor): return _mean_pool(g, maps, divisor)

    def body(k, grad, maps, divisor):
        if grad.dtype not in SUMMED_DTYPES:
            return NotImplemented
        times = [adjoins(m) for m in maps]
        if None in times:
            grad = grad if divisor is None else grad / divisor
            return weighed(k, grad, [m[1] for m in maps], maps, back=True, mean=divisor is None)
        return repeated(k, grad / (math.prod(times) if divisor is None else divisor), times)


class _avg_pool2d_mean(_mean_pool):           node = "AvgPool2DBackward0"
class _adaptive_avg_pool2d_mean(_mean_pool):  node = "AdaptiveAvgPool2DBackward0"
class _avg_pool3d_mean(_mean_pool):           node = "AvgPool3DBackward0"
class _adaptive_avg_pool3d_mean(_mean_pool):  node = "AdaptiveAvgPool3DBackward0"


def avg_pool(op, n, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """avg_pool2d or avg_pool3d."""
    need_tensor(input)
    name = f"avg_pool{n}d"
    kernel = per_window(kernel_size, n, "kernel_size", name)
    stride, padding = stride_or(stride, kernel, n, name), per_window(padding, n, "padding", name)
    need(divisor_override is None or divisor_override != 0, "divisor must be not zero")
    maps = windows(input._spec, kernel, stride, padding, (1,) * n, ceil_mode, bool(count_include_pad))
    if n == 3:                                    # padding does not help there, as it does in two dimensions
        size = input._spec.shape[-3:]
        need(all(k <= s for k, s in zip(kernel, size, strict=True)),
             "input image (T: {} H: {} W: {}) smaller than ".format(*size) + "kernel size (kT: {} kH: {} kW: {})"
             .format(*kernel))
    dtype = input.dtype
    need_dtype(dtype, dtype is dtypes.int64 or dtype.category == 2 and (n == 2 or dtype.itemsize > 2), name)
    return op(input, maps, divisor_override)


class _avg_pool2d(Composite):
    """The mean over each window of `input` [N, C, H, W] (or [C, H, W]).

    >>> torch.nn.functional.avg_pool2d(torch.arange(4.).reshape(1, 2, 2), 2)
    tensor([[[1.5000]]])
    """

    names = "nn.functional.avg_pool2d"
    forms = "function out"
    strict_out = True

    def of(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        need_tensor(input)
        need(input.dim() > 2, "Dimension out of range (expected an input of 3 or 4 dimensions, but got "
             f"{input.dim()})", IndexError)
        return avg_pool(_avg_pool2d_mean, 2, input, kernel_size, stride, padding, ceil_mode, count_include_pad,
                        divisor_override)


class _avg_pool3d(Composite):
    """The mean over each window of `input` [N, C, D, H, W] (or [C, D, H, W])."""

    names = "nn.functional.avg_pool3d"
    forms = "function out"
    strict_out = True

    def of(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        return avg_pool(_avg_pool3d_mean, 3, input, kernel_size, stride, padding, ceil_mode, count_include_pad,
                        divisor_override)


class avg_pool1d(Composite):
    """The mean over each window of `input` [N, C, L] (or [C, L])."""

    names = "nn.functional.avg_pool1d"
    forms = "function"

    def of(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
        need_tensor(input)
        need_rows(input, "avg_pool1d")
        kernel = one_int(kernel_size, "kernel_size", "avg_pool1d")
        stride = kernel if stride is None or stride in ((), []) else one_int(stride, "stride", "avg_pool1d")
        padding = one_int(padding, "padding", "avg_pool1d")
        made = avg_pool(_avg_pool2d_mean, 2, input.unsqueeze(-2), (1, kernel), (1, stride), (0, padding), ceil_mode,
                        count_include_pad, None)
        return made.squeeze(-2)


def need_rows(input, name):
    need(input.dim() in (2, 3), f"Expected 2 to 3 dimensions, but got {input.dim()}-dimensional tensor for argument #1 "
         f"'self' (while checking arguments for {name})")


def adaptive_sizes(input, output_size, n, name):
    """The maps of adaptive windows; None in `output_size` keeps a dimension."""
    if isinstance(output_size, (tuple, list)):
        need(len(output_size) == n, f"{name}: output_size must be {n}, got {list(output_size)}")
        need(input.dim() > n, f"Input dimension should be at least {n + 1}, got {list(input.shape)}", ValueError)
        output_size = [input.shape[d - n] if o is None else o for d, o in enumerate(output_size)]
    sizes = ints((output_size,), "output_size")
    sizes = sizes * n if len(sizes) == 1 and n > 1 else sizes
    need(min(sizes) >= 0, f"{name}: elements of output_size must be greater than or equal to 0 but received {sizes}")
    nonempty(input, range(max(input.dim() - n, 0), input.dim()), name)
    return sizes


def nonempty(input, dims, name):
    """Refuse an input without elements along one of `dims`."""
    for d in dims:
        need(input.shape[d], f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has "
                             f"sizes {list(input.shape)} with dimension {d} being empty")


def adaptive_avg_pool(op, n, input, output_size):
    """adaptive_avg_pool2d or adaptive_avg_pool3d; over everything it is a mean, and recorded as one."""
    need_tensor(input)
    name = f"adaptive_avg_pool{n}d"
    sizes = adaptive_sizes(input, output_size, n, name)
    if all(s == 1 for s in sizes) and input.dim() >= n:
        return input.mean(tuple(range(-1, -n - 1, -1)), keepdim=True)
    need(input.dim() in (n + 1, n + 2), f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got {list(input.shape)}")
    if n == 3:                                            # PyTorch's others take images without channels
        nonempty(input, range(1, input.dim()), name)
    need_dtype(input.dtype, input.dtype.category == 2 or not input.numel(), name)
    return op(input, tuple([("adaptive", s, o) for s, o in zip(input.shape[-n:], sizes, strict=True)]), None)


class adaptive_avg_pool1d(Composite):
    """The means of `output_size` windows that cover `input` [N, C, L] (or [C, L])."""

    names = "nn.functional.adaptive_avg_pool1d"
    forms = "function"

    def of(input, output_size):
        need_tensor(input)
        need_rows(input, "adaptive_avg_pool1d")
        size = one_int(output_size, "output_size", "adaptive_avg_pool1d")
        return adaptive_avg_pool(_adaptive_avg_pool2d_mean, 2, input.unsqueeze(-2), (1, size)).squeeze(-2)


class _adaptive_avg_pool2d(Composite):
    """The means of `output_size` windows that cover `input` [N, C, H, W] (or [C, H, W])."""

    names = "nn.functional.adaptive_avg_pool2d"
    forms = "function"

    def of(input, output_size): return adaptive_avg_pool(_adaptive_avg_pool2d_mean, 2, input, output_size)


class _adaptive_avg_pool3d(Composite):
    """The means of `output_size` windows that cover `input` [N, C, D, H, W] (or [C, D, H, W])."""

    names = "nn.functional.adaptive_avg_pool3d"
    forms = "function"

    def of(input, output_size): return adaptive_avg_pool(_adaptive_avg_pool3d_mean, 3, input, output_size)


# --- power means ------------------------------------------------------------------------------------------------------


def lp_pool(n, pool, input, norm_type, kernel_size, stride, ceil_mode):
    """The p-th root of the sum of p-th powers over each window."""
    kernel = per_window(kernel_size, n, "kernel_size", f"lp_pool{n}d")
    out = pool(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    return (out.sign() * out.abs().relu()).mul(math.prod(kernel)).pow(1.0 / norm_type)


class _lp_pool1d(Composite):
    """The p-th root of the sum of p-th powers over each window of `input` [N, C, L] (or [C, L])."""

    names = "nn.functional.lp_pool1d"
    forms = "function"

    def of(input, norm_type, kernel_size, stride=None, ceil_mode=False):
        return lp_pool(1, avg_pool1d, input, norm_type, kernel_size, stride, ceil_mode)


class _lp_pool2d(Composite):
    """The p-th root of the sum of p-th powers over each window of `input` [N, C, H, W] (or [C, H, W])."""

    names = "nn.functional.lp_pool2d"
    forms = "function"

    def of(input, norm_type, kernel_size, stride=None, ceil_mode=False):
        return lp_pool(2, _avg_pool2d, input, norm_type, kernel_size, stride, ceil_mode)


class _lp_pool3d(Composite):
    """The p-th root of the sum of p-th powers over each window of `input` [N, C, D, H, W] (or [C, D, H, W])."""

    names = "nn.functional.lp_pool3d"
    forms = "function"

    def of(input, norm_type, kernel_size, stride=None, ceil_mode=False):
        return lp_pool(3, _avg_pool3d, input, norm_type, kernel_size, stride, ceil_mode)
