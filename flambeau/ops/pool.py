"""Pooling: the mean, or the largest, of the elements in windows that move over the last dimensions.

All of it goes dimension by dimension (see base/taps.py): a mean is a sum of sums, and the largest of a block is the
largest of the largest of its rows, with the place of the first of them handed on.
"""
import math

from ..base import dtypes, shapes
from ..base.errors import need
from ..base.op import Composite, Op, door
from ..base.spec import spec
from ..base.taps import along, maximum, taps_of, weighted_sum
from .conv import int_or_ints

WORDS = {1: "one int", 2: "two ints", 3: "three ints"}
AXES = {1: "W", 2: "HW", 3: "THW"}


# --- arguments --------------------------------------------------------------------------------------------------------


def per_window(given, n, what, name, omitted=False):
    """`given`, one int or `n` of them, as a tuple of `n`."""
    made = int_or_ints(given, what)
    need(len(made) in (1, n), f"{name}: {what} must either be {'omitted, ' * omitted}a single int, or a tuple of {WORDS[n]}, "
         f"got {made}")
    return tuple(made) if len(made) == n else tuple(made) * n


def stride_or(stride, kernel, n, name):
    """The stride, by default the size of the window."""
    if stride is None or isinstance(stride, (tuple, list)) and not stride:
        return kernel
    return per_window(stride, n, "stride", name, True)


def one_int(given, what, name, kind="should contain one int"):
    """The int that a function of one dimension takes."""
    made = int_or_ints(given, what)
    need(len(made) == 1, f"{name}() argument '{what}' {kind} (got {len(made)})")
    return made[0]


def need_tensor(input):
    need(isinstance(input, door.tensor), f"argument 'input' (position 1) must be Tensor, not {type(input).__name__}", TypeError)


def sizes_by(sizes):
    """`3x4`, as PyTorch writes sizes."""
    return "x".join(map(str, sizes))


def output_size(size, kernel, stride, padding, dilation, ceil_mode):
    """How many windows there are along one dimension."""
    need(stride != 0, "stride should not be zero")
    need(padding >= 0, f"pad must be non-negative, but got pad: {padding}")
    need(padding <= int(((kernel - 1) * dilation + 1) / 2), f"pad should be at most half of effective kernel size, but got "
         f"pad={padding}, kernel_size={kernel} and dilation={dilation}")
    out = (size + 2 * padding - dilation * (kernel - 1) - 1 + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (out - 1) * stride >= size + padding:           # the last window must start inside or in the padding before
        out -= 1
    return out


def windows(input, kernel, stride, padding, dilation, ceil_mode, include_pad=True):
    """The maps (see base/taps.py) of windows over the last dimensions of `input`, refused where they do not fit."""
    n = len(kernel)
    need(input.ndim in (n + 1, n + 2), f"non-empty {n + 1}D or {n + 2}D (batch mode) tensor expected for input, but got: "
         f"{list(input.shape)}")
    size = input.shape[-n:]
    out = [output_size(*one, ceil_mode) for one in zip(size, kernel, stride, padding, dilation, strict=True)]
    for what, letter, given in (("kernel size", "k", kernel), ("stride", "d", stride), ("dilation", "dilation", dilation)):
        need(min(given) > 0, f"{what} should be greater than zero, but got "
             + " ".join(f"{letter}{axis}: {v}" for axis, v in zip(AXES[n], given, strict=True)))
    need(0 not in input.shape[-n - 1:], f"Expected {n + 1}D or {n + 2}D (batch mode) tensor with optional 0 dim batch size for "
         f"input, but got:{list(input.shape)}")
    need(min(out) > 0, f"Given input size: ({sizes_by(input.shape[-n - 1:])}). Calculated output size: "
         f"({sizes_by((input.shape[-n - 1], *out))}). Output size is too small")
    return tuple([("window", *one, include_pad) for one in zip(size, out, kernel, stride, padding, dilation, strict=True)])


def kept_layout(input, shape):
    """Channels-last strides for a result of `shape` where `input` has them, else None."""
    lasts = len(shape) == input.ndim and shapes.suggests_channels_last(input.shape, input.strides)
    return shapes.channels_last_strides(shape) if lasts else None


def mapped(input, maps, layout=True):
    """The spec after `maps` along the last dimensions."""
    shape = (*input.shape[:input.ndim - len(maps)], *[m[2] for m in maps])
    return spec(input.dtype, shape, kept_layout(input, shape) if layout else None, input.device)


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
    maps = windows(input.spec, kernel, stride, padding, (1,) * n, ceil_mode, bool(count_include_pad))
    dtype = input.dtype
    need_dtype(dtype, dtype is dtypes.int64 or dtype.category == 2 and (n == 2 or dtype.itemsize > 2), name)
    return op(input, maps, divisor_override)


class _avg_pool2d(Composite):
    """The mean over each window of `input` [N, C, H, W] (or [C, H, W]).

    >>> torch.nn.functional.avg_pool2d(torch.arange(4.).reshape(1, 2, 2), 2)
    tensor([[[1.5000]]])
    """

    names = "nn.functional.avg_pool2d"
    forms = "function"
    strict_out = True

    def of(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        need_tensor(input)
        need(input.dim() > 2, f"Dimension out of range (expected an input of 3 or 4 dimensions, but got {input.dim()})", IndexError)
        return avg_pool(_avg_pool2d_mean, 2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


class _avg_pool3d(Composite):
    """The mean over each window of `input` [N, C, D, H, W] (or [C, D, H, W])."""

    names = "nn.functional.avg_pool3d"
    forms = "function"
    strict_out = True

    def of(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        return avg_pool(_avg_pool3d_mean, 3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


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
    need(input.dim() in (2, 3), f"Expected 2 to 3 dimensions, but got {input.dim()}-dimensional tensor for argument #1 'self' "
         f"(while checking arguments for {name})")


def adaptive_maps(input, output_size, n, name):
    """The maps of adaptive windows; None in `output_size` keeps a dimension."""
    if isinstance(output_size, (tuple, list)):
        need(len(output_size) == n, f"{name}: output_size must be {n}, got {list(output_size)}")
        need(input.dim() > n, f"Input dimension should be at least {n + 1}, got {list(input.shape)}", ValueError)
        output_size = [input.shape[d - n] if o is None else o for d, o in enumerate(output_size)]
    sizes = int_or_ints(output_size, "output_size")
    sizes = sizes * n if len(sizes) == 1 and n > 1 else sizes
    need(min(sizes) >= 0, f"{name}: elements of output_size must be greater than or equal to 0 but received {sizes}")
    for d in range(-n, 0):
        need(input.dim() < n or input.shape[d], f"{name}(): Expected input to have non-zero size for non-batch dimensions, but "
             f"input has sizes {list(input.shape)} with dimension {input.dim() + d} being empty")
    return sizes


def adaptive_avg_pool(op, n, input, output_size):
    """adaptive_avg_pool2d or adaptive_avg_pool3d; over everything it is a mean, and recorded as one."""
    need_tensor(input)
    name = f"adaptive_avg_pool{n}d"
    sizes = adaptive_maps(input, output_size, n, name)
    if all(s == 1 for s in sizes) and input.dim() >= n:
        return input.mean(tuple(range(-1, -n - 1, -1)), keepdim=True)
    need(input.dim() in (n + 1, n + 2), f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got {list(input.shape)}")
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


# --- picking by index -------------------------------------------------------------------------------------------------


def flat_places(xp, index, lead, size):
    """Positions in the flat array [*lead, size] of `index` along its last dimension."""
    index = xp.broadcast_to(index, (*lead, index.shape[-1]))
    return index + (xp.arange(math.prod(lead)) * size).reshape(*lead, 1)


class _pick(Op):
    """The elements of `input` [*lead, size] at `index` [*lead, count], which must be in range; a lead of one is shared."""

    exact = True

    def meta(input, index): return spec(input.dtype, (*input.shape[:-1], index.shape[-1]), None, input.device)

    def ref(xp, input, index):
        return xp.take(input.reshape(-1), flat_places(xp, index, input.shape[:-1], input.shape[-1]))

    def d_input(g, index, input_spec): return _drop(g, index, input_spec.shape[-1])


class _drop(Op):
    """The sums of the elements of `input` [*lead, count] that `index` sends to each place of [*lead, size]."""

    def meta(input, index, size): return spec(input.dtype, (*input.shape[:-1], size), None, input.device)

    def ref(xp, input, index, size):
        lead = input.shape[:-1]
        flat = flat_places(xp, index, lead, size).reshape(-1)
        return xp.bincount(flat, input.reshape(-1), math.prod(lead) * size).reshape(*lead, size)

    def d_input(g, index): return _pick(g, index)


# --- the largest ------------------------------------------------------------------------------------------------------


class _max_pool(Op):
    """(the largest element of each window, its place in the flattened spatial dimensions)"""

    def meta(input, maps):
        values = mapped(input, maps, layout=len(maps) == 2 or maps[0][0] == "window")
        return values, values.like(dtype=dtypes.int64)

    def ref(xp, input, maps):
        n = len(maps)
        step = 1
        label = xp.arange(input.shape[-1])
        for axis in range(-1, -n - 1, -1):
            input, label = maximum(xp, input, label, axis, taps_of(maps[axis]))
            step *= maps[axis][1]
            if axis > -n:
                label += along(xp, xp.arange(maps[axis - 1][1]) * step, axis - 1, label.dtype)
        return input, label

    def d_input(g, out1, input_spec, maps):
        g, n = g[0], len(maps)
        places = _drop(g.flatten(-n), out1.flatten(-n), math.prod(input_spec.shape[-n:]))
        return places.reshape(input_spec.shape)


class _max_pool2d_largest(_max_pool):           node = "MaxPool2DWithIndicesBackward0"
class _adaptive_max_pool2d_largest(_max_pool):  node = "AdaptiveMaxPool2DBackward0"
class _max_pool3d_largest(_max_pool):           node = "MaxPool3DWithIndicesBackward0"
class _adaptive_max_pool3d_largest(_max_pool):  node = "AdaptiveMaxPool3DBackward0"


def max_pool(op, n, input, kernel_size, stride, padding, dilation, ceil_mode):
    """(values, indices) of max_pool2d or max_pool3d."""
    need_tensor(input)
    name = f"max_pool{n}d"
    kernel = per_window(kernel_size, n, "kernel_size", name)
    stride, padding = stride_or(stride, kernel, n, name), per_window(padding, n, "padding", name)
    maps = windows(input.spec, kernel, stride, padding, per_window(dilation, n, "dilation", name), ceil_mode)
    need_dtype(input.dtype, input.dtype.category in (1, 2), name)
    return op(input, maps)


def max_pool_row(input, kernel_size, stride, padding, dilation, ceil_mode):
    """(values, indices) of max_pool1d."""
    need_tensor(input)
    need(input.dim() in (2, 3) and 0 not in input.shape[-2:], "max_pool1d: Expected 2D or 3D (batch mode) tensor with optional "
         f"0 dim batch size for input, but got:{list(input.shape)}")
    kind = "must be an int, list of ints, or tuple of ints of size 1"
    kernel = one_int(kernel_size, "kernel_size", "max_pool1d", kind)
    stride = kernel if stride is None or stride in ((), []) else one_int(stride, "stride", "max_pool1d", kind)
    padding, dilation = one_int(padding, "padding", "max_pool1d", kind), one_int(dilation, "dilation", "max_pool1d", kind)
    for what, given in (("kernel_size", kernel), ("stride", stride), ("dilation", dilation)):
        need(given > 0, f"max_pool1d() {what} must be greater than zero, but got {given}")
    need_dtype(input.dtype, input.dtype.category == 2, "max_pool1d_impl")
    made = max_pool(_max_pool2d_largest, 2, input.unsqueeze(-2), (1, kernel), (1, stride), (0, padding), (1, dilation), ceil_mode)
    return made[0].squeeze(-2), made[1].squeeze(-2)


class max_pool1d(Composite):
    """The largest element of each window of `input` [N, C, L] (or [C, L])."""

    forms = "function"

    def of(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
        return max_pool_row(input, kernel_size, stride, padding, dilation, ceil_mode)[0]


class _max_pool1d_front(Composite):
    """The largest element of each window of `input` [N, C, L] (or [C, L]), and its index if `return_indices`."""

    names = "nn.functional.max_pool1d"
    forms = "function"

    def of(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        made = max_pool_row(input, kernel_size, stride, padding, dilation, ceil_mode)
        return made if return_indices else made[0]


class max_pool1d_with_indices(Composite):
    """(the largest element of each window of `input`, its index)"""

    names = "nn.functional.max_pool1d_with_indices"
    forms = "function"

    def of(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        return max_pool_row(input, kernel_size, stride, padding, dilation, ceil_mode)


class max_pool2d(Composite):
    """The largest element of each window of `input` [N, C, H, W] (or [C, H, W])."""

    forms = "function"

    def of(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
        return max_pool(_max_pool2d_largest, 2, input, kernel_size, stride, padding, dilation, ceil_mode)[0]


class _max_pool2d_front(Composite):
    """The largest element of each window of `input` [N, C, H, W] (or [C, H, W]), and its index if `return_indices`.

    >>> torch.nn.functional.max_pool2d(torch.arange(4.).reshape(1, 2, 2), 2, return_indices=True)
    (tensor([[[3.]]]), tensor([[[3]]]))
    """

    names = "nn.functional.max_pool2d"
    forms = "function"

    def of(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        made = max_pool(_max_pool2d_largest, 2, input, kernel_size, stride, padding, dilation, ceil_mode)
        return made if return_indices else made[0]


class _max_pool2d_with_indices(Composite):
    """(the largest element of each window of `input`, its index in the flattened spatial dimensions)"""

    names = "nn.functional.max_pool2d_with_indices"
    forms = "function"

    def of(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        return max_pool(_max_pool2d_largest, 2, input, kernel_size, stride, padding, dilation, ceil_mode)


class max_pool3d(Composite):
    """The largest element of each window of `input` [N, C, D, H, W] (or [C, D, H, W])."""

    forms = "function"

    def of(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
        return max_pool(_max_pool3d_largest, 3, input, kernel_size, stride, padding, dilation, ceil_mode)[0]


class _max_pool3d_front(Composite):
    """The largest element of each window of `input` [N, C, D, H, W] (or [C, D, H, W]), and its index if `return_indices`."""

    names = "nn.functional.max_pool3d"
    forms = "function"

    def of(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        made = max_pool(_max_pool3d_largest, 3, input, kernel_size, stride, padding, dilation, ceil_mode)
        return made if return_indices else made[0]


class _max_pool3d_with_indices(Composite):
    """(the largest element of each window of `input`, its index in the flattened spatial dimensions)"""

    names = "nn.functional.max_pool3d_with_indices"
    forms = "function"

    def of(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        return max_pool(_max_pool3d_largest, 3, input, kernel_size, stride, padding, dilation, ceil_mode)


def adaptive_max_pool(op, n, input, output_size):
    """(values, indices) of adaptive_max_pool2d or adaptive_max_pool3d."""
    need_tensor(input)
    name = f"adaptive_max_pool{n}d"
    sizes = adaptive_maps(input, output_size, n, name)
    need(input.dim() in (n + 1, n + 2), f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got {list(input.shape)}")
    need_dtype(input.dtype, input.dtype.category == 2, name)
    return op(input, tuple([("adaptive", s, o) for s, o in zip(input.shape[-n:], sizes, strict=True)]))


def adaptive_max_row(input, output_size):
    """(values, indices) of adaptive_max_pool1d."""
    need_tensor(input)
    need_rows(input, "adaptive_max_pool1d")
    size = one_int(output_size, "output_size", "adaptive_max_pool1d")
    made = adaptive_max_pool(_adaptive_max_pool2d_largest, 2, input.unsqueeze(-2), (1, size))
    return made[0].squeeze(-2), made[1].squeeze(-2)


class adaptive_max_pool1d(Composite):
    """(the largest elements of `output_size` windows that cover `input` [N, C, L] or [C, L], their indices)"""

    names = "nn.functional.adaptive_max_pool1d_with_indices"
    forms = "function"

    def of(input, output_size, return_indices=True): return adaptive_max_row(input, output_size)


class _adaptive_max_pool1d_front(Composite):
    """The largest elements of `output_size` windows that cover `input`, and their indices if `return_indices`."""

    names = "nn.functional.adaptive_max_pool1d"
    forms = "function"

    def of(input, output_size, return_indices=False):
        made = adaptive_max_row(input, output_size)
        return made if return_indices else made[0]


class _adaptive_max_pool2d_front(Composite):
    """The largest elements of `output_size` windows that cover `input` [N, C, H, W] (or [C, H, W])."""

    names = "nn.functional.adaptive_max_pool2d"
    forms = "function"

    def of(input, output_size, return_indices=False):
        made = adaptive_max_pool(_adaptive_max_pool2d_largest, 2, input, output_size)
        return made if return_indices else made[0]


class _adaptive_max_pool2d_with_indices(Composite):
    """(the largest elements of `output_size` windows that cover `input`, their indices)"""

    names = "nn.functional.adaptive_max_pool2d_with_indices"
    forms = "function"

    def of(input, output_size, return_indices=False):
        return adaptive_max_pool(_adaptive_max_pool2d_largest, 2, input, output_size)


class _adaptive_max_pool3d_front(Composite):
    """The largest elements of `output_size` windows that cover `input` [N, C, D, H, W] (or [C, D, H, W])."""

    names = "nn.functional.adaptive_max_pool3d"
    forms = "function"

    def of(input, output_size, return_indices=False):
        made = adaptive_max_pool(_adaptive_max_pool3d_largest, 3, input, output_size)
        return made if return_indices else made[0]


class _adaptive_max_pool3d_with_indices(Composite):
    """(the largest elements of `output_size` windows that cover `input`, their indices)"""

    names = "nn.functional.adaptive_max_pool3d_with_indices"
    forms = "function"

    def of(input, output_size, return_indices=False):
        return adaptive_max_pool(_adaptive_max_pool3d_largest, 3, input, output_size)


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


# --- the way back -----------------------------------------------------------------------------------------------------


class _max_unpool(Op):
    """Zeros of `size` over the last dimensions, with the elements of `input` at `indices` into them, flattened."""

    exact = True

    def meta(input, indices, size):
        need(indices.dtype is dtypes.int64, f"elements in indices should be type int64 but got: {indices.dtype.cname}")
        need(input.shape == indices.shape, "Expected shape of indices to be same as that of the input tensor "
             f"({list(input.shape)}) but got indices tensor with shape: {list(indices.shape)}")
        n = len(size)
        need(input.ndim in (n + 1, n + 2), f"Input to max_unpooling{n}d should be a {n + 1}d or {n + 2}d Tensor, but got a tensor "
             f"with {input.ndim} dimensions")
        need(0 not in input.shape[1:], "Expected input to have non-zero size for non-batch dimensions, but got "
             f"{list(input.shape)}")
        shape = (*input.shape[:-n], *size)
        return spec(input.dtype, shape, kept_layout(input, shape), input.device)

    def verify(indices, size):
        wrong = indices[(indices < 0) | (indices >= math.prod(size))]
        need(not wrong.size, f"Found an invalid max index: {wrong[0] if wrong.size else None} (output volumes are of size "
             f"{sizes_by(size)})")

    def ref(xp, input, indices, size):
        lead, count = input.shape[:-len(size)], math.prod(size)
        out = xp.zeros(math.prod(lead) * count, input.dtype)
        flat = (*lead, math.prod(input.shape[len(lead):]))
        out[flat_places(xp, indices.reshape(flat), lead, count)] = input.reshape(flat)
        return out.reshape(*lead, *size)

    def d_input(g, indices, size):
        n = len(size)
        return _pick(g.flatten(-n), indices.flatten(-n)).reshape(indices.shape)


class _max_unpool2d_places(_max_unpool):  node = "MaxUnpool2DBackward0"
class _max_unpool3d_places(_max_unpool):  node = "MaxUnpool3DBackward0"


def unpooled_size(input, kernel_size, stride, padding, output_size, n, name):
    """The size that pooling came from: the default one, or `output_size` where that is near enough."""
    kernel = per_window(kernel_size, n, "kernel_size", name)
    stride, padding = stride_or(stride, kernel, n, name), per_window(padding, n, "padding", name)
    default = [(s - 1) * t + k - 2 * p for s, t, k, p in zip(input.shape[-n:], stride, kernel, padding, strict=True)]
    if output_size is None:
        return tuple(default)
    sizes = list(output_size)[-n:] if len(output_size) == len(kernel) + 2 else list(output_size)
    need(len(sizes) == n, f"output_size should be a sequence containing {n} or {n + 2} elements, but it has a length of "
         f"'{len(output_size)}'", ValueError)
    for d, (size, plain, t) in enumerate(zip(sizes, default, stride, strict=True)):
        need(plain - t < size < plain + t, f'invalid output_size "{tuple(output_size)}" (dim {d} must be between {plain - t} and '
             f"{plain + t})", ValueError)
    return tuple(sizes)


class _max_unpool1d(Composite):
    """The inverse of max_pool1d as far as there is one: zeros, with the elements of `input` at `indices`."""

    names = "nn.functional.max_unpool1d"
    forms = "function"

    def of(input, indices, kernel_size, stride=None, padding=0, output_size=None):
        size = unpooled_size(input, kernel_size, stride, padding, output_size, 1, "max_unpool1d")
        return _max_unpool2d_places(input.unsqueeze(-1), indices.unsqueeze(-1), (*size, 1)).squeeze(-1)


class _max_unpool2d(Composite):
    """The inverse of max_pool2d as far as there is one: zeros, with the elements of `input` at `indices`."""

    names = "nn.functional.max_unpool2d"
    forms = "function"

    def of(input, indices, kernel_size, stride=None, padding=0, output_size=None):
        return _max_unpool2d_places(input, indices, unpooled_size(input, kernel_size, stride, padding, output_size, 2, "max_unpool2d"))


class _max_unpool3d(Composite):
    """The inverse of max_pool3d as far as there is one: zeros, with the elements of `input` at `indices`."""

    names = "nn.functional.max_unpool3d"
    forms = "function"

    def of(input, indices, kernel_size, stride=None, padding=0, output_size=None):
        return _max_unpool3d_places(input, indices, unpooled_size(input, kernel_size, stride, padding, output_size, 3, "max_unpool3d"))
