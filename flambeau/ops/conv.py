"""Convolutions of any number of spatial dimensions.

Three maps, each bilinear, each the derivative of the other two: `convolution` (input, weight → output), its transpose
(output, weight → input), and `_convolution_weight` (input, output → weight). The reference lays the windows of a few
samples out as the columns of a matrix, so that the work is one matrix product per group of channels.
"""
import itertools
import math
from operator import index as as_int

from ..base import dtypes, shapes
from ..base.arguments import C_NAMES
from ..base.errors import need
from ..base.op import Composite, Op, door
from ..base.spec import spec
from .arith import conj
from .pad import constant_pad_nd
from .slices import _slice
from .view import ints

COLUMN_BLOCK_ELEMENTS = 1 << 20  # of the matrix of columns that are made at a time: they should stay in the cache


# --- arguments --------------------------------------------------------------------------------------------------------


def per_dim(given, n, what):
    """`given`, one int or `n` of them, as a tuple of `n`."""
    made = ints((given,), what)
    need(len(made) in (1, n), f"expected {what} to be a single integer value or a list of {n} values to match the "
         f"convolution dimensions, but got {what}={list(made)}")
    return made if len(made) == n else made * n


def need_tensors(input, weight, bias):
    """Refuse what stands where a tensor should."""
    for name, given in (("input", input), ("weight", weight), ("bias", bias)):
        need(isinstance(given, door.tensor) or name == "bias" and given is None, f"argument '{name}' must be Tensor, "
             f"not {type(given).__name__}", TypeError)


def batched(input, n, name):
    """(`input` with a batch dimension, whether that was added)"""
    need(input.dim() in (n + 1, n + 2), f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, but got "
         f"input of size: {list(input.shape)}")
    return (input, False) if input.dim() == n + 2 else (input.unsqueeze(0), True)


def by(sizes):
    """`3 x 4`, as PyTorch writes sizes."""
    return " x ".join(map(str, sizes))


# --- windows ----------------------------------------------------------------------------------------------------------


def padded(xp, x, padding):
    """`x` with that many zeros on both sides of each spatial dimension."""
    if not any(padding):
        return x
    out = xp.zeros((*x.shape[:2], *[s + 2 * p for s, p in zip(x.shape[2:], padding, strict=True)]), x.dtype)
    out[inside(x.shape[2:], padding)] = x
    return out


def inside(size, padding):
    """Where the elements without their padding are."""
    return (slice(None), slice(None), *[slice(p, p + s) for s, p in zip(size, padding, strict=True)])


def columns(xp, x, kernel, blocks, stride, padding, dilation, groups):
    """The windows of `x` [N, C, *size] as columns: [groups, C / groups * prod(kernel), N * prod(blocks)]."""
    n = len(kernel)
    x = padded(xp, x, padding)
    steps = x.strides[2:]
    seen = xp.lib.stride_tricks.as_strided(
        x, (x.shape[1], *kernel, x.shape[0], *blocks),
        (x.strides[1], *[t * d for t, d in zip(steps, dilation, strict=True)],
         x.strides[0], *[t * s for t, s in zip(steps, stride, strict=True)]))
    rows = x.shape[1] // groups * math.prod(kernel)
    return seen.reshape(groups, rows, math.prod(seen.shape[n + 1:]))


def add_up(xp, cols, size, stride, padding, dilation):
    """Columns [C, *kernel, N, *blocks] added up where they came from: [N, C, *size]."""
    n = len(size)
    kernel, blocks = cols.shape[1:n + 1], cols.shape[n + 2:]
    whole = [s + 2 * p for s, p in zip(size, padding, strict=True)]
    out = xp.zeros((cols.shape[n + 1], cols.shape[0], *whole), cols.dtype)
    for k in itertools.product(*map(range, kernel)):
        at = [slice(i * d, i * d + (b - 1) * s + 1, s) for i, d, b, s in zip(k, dilation, blocks, stride, strict=True)]
        out[(slice(None), slice(None), *at)] += cols[(slice(None), *k)].swapaxes(0, 1)
    return out[inside(size, padding)]


def samples(batch, each):
    """Slices of the batch, so many samples at a time that their columns (`each` elements a sample) fit in a block."""
    step = max(1, COLUMN_BLOCK_ELEMENTS // max(each, 1))
    return [slice(start, min(start + step, batch)) for start in range(0, batch, step)]


def convolve(xp, x, w, blocks, stride, padding, dilation, groups):
    """[N, C, *size] and [O, C / groups, *kernel] to [N, O, *blocks]."""
    kernel = w.shape[2:]
    out = xp.empty((x.shape[0], w.shape[0], *blocks), x.dtype)
    w = w.reshape(groups, w.shape[0] // groups, -1)
    for at in samples(x.shape[0], x.shape[1] * math.prod(kernel) * math.prod(blocks)):
        made = xp.matmul(w, columns(xp, x[at], kernel, blocks, stride, padding, dilation, groups))
        out[at] = made.reshape(out.shape[1], -1, *blocks).swapaxes(0, 1)
    return out


def convolve_back(xp, y, w, size, stride, padding, dilation, groups):
    """The transpose of `convolve`: [N, O, *blocks] and [O, C / groups, *kernel] to [N, C, *size]."""
    kernel, blocks = w.shape[2:], y.shape[2:]
    channels = w.shape[1] * groups
    out = xp.empty((y.shape[0], channels, *size), y.dtype)
    w = w.reshape(groups, w.shape[0] // groups, -1).swapaxes(1, 2)
    for at in samples(y.shape[0], channels * math.prod(kernel) * math.prod(blocks)):
        rows = y[at].swapaxes(0, 1).reshape(groups, w.shape[2], -1)
        cols = xp.matmul(w, rows) if w.shape[2] > 1 else w * rows        # NumPy's product of a column and a row is slow
        out[at] = add_up(xp, cols.reshape(channels, *kernel, -1, *blocks), size, stride, padding, dilation)
    return out


# --- the three maps ---------------------------------------------------------------------------------------------------


def need_sizes(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """Refuse what does not fit together, in PyTorch's words."""
    need(groups > 0, f"non-positive groups is not supported, got {groups}")
    need(min(stride) > 0, f"non-positive stride is not supported, got {list(stride)}")
    need(min(padding) >= 0, f"negative padding is not supported, got {list(padding)}")
    need(min(output_padding) >= 0, f"negative output_padding is not supported, got {list(output_padding)}")
    need(min(dilation) > 0, f"non-positive dilation is not supported, got {list(dilation)}")
    need(input.ndim == weight.ndim, f"Expected {weight.ndim}-dimensional input for {weight.ndim}-dimensional weight "
         f"{list(weight.shape)}, but got {input.ndim}-dimensional input of size {list(input.shape)} instead")
    need(weight.shape[0] >= groups, f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, "
         f"but got weight of size {list(weight.shape)} instead")
    need(weight.shape[0] % groups == 0, f"Given groups={groups}, expected weight to be divisible by {groups} at "
         f"dimension 0, but got weight of size {list(weight.shape)} instead")
    wanted = weight.shape[0] if transposed else weight.shape[1] * groups
    need(input.shape[1] == wanted, f"Given {'transposed=1' if transposed else f'groups={groups}'}, weight of size "
                                   f"{list(weight.shape)}, expected input{list(input.shape)} to have {wanted} "
                                   f"channels, but got {input.shape[1]} channels instead")
    made = weight.shape[1] * groups if transposed else weight.shape[0]
    need(bias is None or bias.shape == (made,), f"Given {'transposed=1, ' * transposed}weight of size "
         f"{list(weight.shape)}, expected bias to be 1-dimensional with {made} elements, but got bias of size "
         f"{list(bias.shape) if bias else ()} instead")
    for name, other in (("bias", bias), ("weight", weight)):
        need(other is None or other.dtype is input.dtype, f"Input type ({C_NAMES[input.dtype.name]}) and {name} type "
             f"({C_NAMES[other.dtype.name] if other else ''}) should be the same")


def spatial_size(input, weight, stride, padding, dilation, transposed, output_padding):
    """The spatial size of the result, refused where there is none."""
    size, kernel = input.shape[2:], weight.shape[2:]
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    if transposed:
        for o, s, d in zip(output_padding, stride, dilation, strict=True):
            need(o < s or o < d, "output padding must be smaller than either stride or dilation, but got "
                 f"output_padding: {list(output_padding)} stride: {list(stride)} dilation: {list(dilation)}")
        out = [(n - 1) * s - 2 * p + r + o
               for n, s, p, r, o in zip(size, stride, padding, reach, output_padding, strict=True)]
        need(min(out) > 0, f"Given input size per channel: ({by(size)}). Calculated output size per channel: "
             f"({by(out)}). Output size is too small")
    else:
        whole = [n + 2 * p for n, p in zip(size, padding, strict=True)]
        need(min(kernel) > 0 and all(w >= r for w, r in zip(whole, reach, strict=True)), "Calculated padded input "
             f"size per channel: ({by(whole)}). Kernel size: ({by(reach)}). Kernel size can't be greater than actual "
             "input size")
        out = [(w - r) // s + 1 for w, r, s in zip(whole, reach, stride, strict=True)]
    need(0 not in size, "Only zero batch or zero channel inputs are supported, but got input shape: "
         f"{list(input.shape)}")
    return tuple(out)


def result_strides(input, weight, shape):
    """Channels-last strides where the input or the weight suggests them, as PyTorch's CPU kernels have it; or None."""
    if len(shape) == 5 and input.dtype.compute.name != "float32" or 0 in shape:
        return None
    lasts = any(shapes.suggests_channels_last(k.shape, k.strides) for k in (input, weight))
    return shapes.channels_last_strides(shape) if lasts else None


class _convolution(Op):
    """The convolution (or transposed convolution) of a batch; every size given per dimension."""

    node = "ConvolutionBackward0"
    called = "convolution"

    def meta(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
        need_sizes(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
        size = spatial_size(input, weight, stride, padding, dilation, transposed, output_padding)
        dtype = input.dtype
        need(dtype.category and not (transposed and dtype.category == 1 and dtype is not dtypes.int64),
             f"\"slow_conv{'_transpose' * transposed}{len(size)}d_cpu\" not implemented for "
             f"'{dtype.cname}'", NotImplementedError)
        channels = weight.shape[1] * groups if transposed else weight.shape[0]
        if not input.shape[1]:                           # PyTorch: no channels in, none out
            channels = 0
        shape = (input.shape[0], channels, *size)
        return spec(dtype, shape, result_strides(input, weight, shape), input.device)

    def ref(xp, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
        size = spatial_size(input, weight, stride, padding, dilation, transposed, output_padding)
        if not input.size or not weight.size:
            channels = 0 if not input.shape[1] else weight.shape[1] * groups if transposed else weight.shape[0]
            return xp.zeros((input.shape[0], channels, *size), input.dtype)
        run = convolve_back if transposed else convolve
        out = run(xp, input, weight, size, stride, padding, dilation, groups)
        if bias is not None:
            out += bias.reshape(-1, *[1] * len(size))
        return out

    def d_input(g, input_spec, weight, stride, padding, dilation, transposed, output_padding, groups):
        if not input_spec.shape[1]:
            return g.new_zeros(input_spec.shape)
        if transposed:
            return forth(g, conj(weight), input_spec.shape[2:], stride, padding, dilation, groups)
        return back(g, conj(weight), input_spec.shape[2:], stride, padding, dilation, groups)

    def d_weight(g, input, weight_spec, stride, padding, dilation, transposed, groups):
        wide, narrow = (g, conj(input)) if transposed else (conj(input), g)
        return _convolution_weight(wide, narrow, weight_spec.shape, stride, padding, dilation, groups)

    def d_bias(g, bias_spec):
        return g.sum((0, *range(2, g.dim()))) if g.shape[1] == bias_spec.numel else g.new_zeros(bias_spec.shape)

    def body(k, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
        size = spatial_size(input, weight, stride, padding, dilation, transposed, output_padding)
        shape = (input.shape[0], weight.shape[1] * groups if transposed else weight.shape[0], *size)
        made = k.library("convolve", (input, weight), [(input.dtype, shape)],
                         (stride, padding, dilation, groups, transposed))
        if made is None:
            return NotImplemented
        return made[0] if bias is None else made[0] + k.reshape(bias, (bias.numel, *[1] * len(size)))


class _convolution_weight(Op):
    """The weight of shape `shape` whose every element sums the products that a convolution would multiply by it."""

    node = "ConvolutionBackwardBackward0"

    def meta(input, output, shape, stride, padding, dilation, groups):
        return spec(input.dtype, shape, None, input.device)

    def ref(xp, input, output, shape, stride, padding, dilation, groups):
        kernel, blocks = shape[2:], output.shape[2:]
        out = xp.zeros((groups, math.prod(shape[1:]), shape[0] // groups), input.dtype)
        if out.size and input.size:
            for at in samples(input.shape[0], input.shape[1] * math.prod(kernel) * math.prod(blocks)):
                cols = columns(xp, input[at], kernel, blocks, stride, padding, dilation, groups)
                rows = output[at].swapaxes(0, 1).reshape(groups, shape[0] // groups, -1)
                out += xp.matmul(cols, rows.swapaxes(1, 2))      # in this order it is the faster
        return out.swapaxes(1, 2).reshape(shape)

    def body(k, input, output, shape, stride, padding, dilation, groups):
        params = stride, padding, dilation, groups
        made = k.library("convolve_weight", (input, output), [(input.dtype, shape)], params)
        return NotImplemented if made is None else made[0]

    def d_input(g, input_spec, output, stride, padding, dilation, groups):
        return back(conj(output), g, input_spec.shape[2:], stride, padding, dilation, groups)

    def d_output(g, input, output_spec, stride, padding, dilation, groups):
        return forth(conj(input), g, output_spec.shape[2:], stride, padding, dilation, groups)


def forth(input, weight, size, stride, padding, dilation, groups):
    """The convolution, cut to `size`: a transposed one with much output padding reads fewer windows than there are."""
    made = _convolution(input, weight, None, stride, padding, dilation, False, (0,) * len(size), groups)
    for d, n in enumerate(size, 2):
        if made.shape[d] != n:
            made = _slice(made, d, 0, n, 1)
    return made


def back(output, weight, size, stride, padding, dilation, groups):
    """The transposed convolution that gives `size`: what windows left over at the end is its output padding."""
    rest = tuple([n - ((b - 1) * s - 2 * p + d * (k - 1) + 1) for n, b, s, p, d, k in zip(
        size, output.shape[2:], stride, padding, dilation, weight.shape[2:], strict=True)])
    return _convolution(output, weight, None, stride, padding, dilation, True, rest, groups)


# --- public names -----------------------------------------------------------------------------------------------------


class convolution(Composite):
    """The convolution of `input` [N, C, *size] with `weight` [O, C / groups, *kernel], or the transposed one."""

    forms = "function"

    def of(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
        need_tensors(input, weight, bias)
        n = weight.dim() - 2
        need(n > 0, f"weight should have at least three dimensions, got {list(weight.shape)}")
        need(not transposed or 0 not in weight.shape[2:], "kernel size should be greater than zero, but got weight of "
                                                          f"size {list(weight.shape)}")
        return _convolution(input, weight, bias, per_dim(stride, n, "stride"), per_dim(padding, n, "padding"),
                            per_dim(dilation, n, "dilation"), bool(transposed),
                            per_dim(output_padding, n, "output_padding"), as_int(groups))


class Convolution(Composite):
    """A function in `torch` and in `nn.functional`, no method."""

    forms = "function"


def run_plain(n, input, weight, bias, stride, padding, dilation, groups):
    """conv1d, conv2d or conv3d."""
    need_tensors(input, weight, bias)
    stride, dilation = per_dim(stride, n, "stride"), per_dim(dilation, n, "dilation")
    input, single = batched(input, n, f"conv{n}d")
    if isinstance(padding, str):
        input, padding = named_padding(padding, input, weight, n, stride, dilation)
    out = convolution(input, weight, bias, stride, per_dim(padding, n, "padding"), dilation, False, 0, groups)
    return out.squeeze(0) if single else out


def named_padding(padding, input, weight, n, stride, dilation):
    """(`input`, padding) for the words "valid" and "same"; an odd total is made even by padding the end of `input`."""
    need(padding in ("same", "valid"), f"Invalid padding string: '{padding}'")
    if padding == "valid":
        return input, 0
    need(all(s == 1 for s in stride), "padding='same' is not supported for strided convolutions, got "
         f"stride={list(stride)}")
    need(weight.dim() == n + 2, f"Expected {n + 2}-dimensional weight, but got weight of size {list(weight.shape)}")
    totals = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    if any(t % 2 for t in totals):
        input = constant_pad_nd(input, [side for t in reversed(totals) for side in (0, t % 2)])
    return input, tuple([t // 2 for t in totals])


def run_transposed(n, input, weight, bias, stride, padding, output_padding, groups, dilation):
    """conv_transpose1d, conv_transpose2d or conv_transpose3d."""
    need_tensors(input, weight, bias)
    input, single = batched(input, n, f"conv_transpose{n}d")
    out = convolution(input, weight, bias, per_dim(stride, n, "stride"), per_dim(padding, n, "padding"),
                      per_dim(dilation, n, "dilation"), True, per_dim(output_padding, n, "output_padding"), groups)
    return out.squeeze(0) if single else out


class conv1d(Convolution):
    """The convolution of `input` [N, C, L] (or [C, L]) with `weight` [O, C / groups, K].

    >>> torch.conv1d(torch.tensor([[1., 2., 3.]]), torch.ones(1, 1, 2))
    tensor([[3., 5.]])
    """

    names = "nn.functional.conv1d"

    def of(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        return run_plain(1, input, weight, bias, stride, padding, dilation, groups)


class conv2d(Convolution):
    """The convolution of `input` [N, C, H, W] (or [C, H, W]) with `weight` [O, C / groups, KH, KW]."""

    names = "nn.functional.conv2d"

    def of(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        return run_plain(2, input, weight, bias, stride, padding, dilation, groups)


class conv3d(Convolution):
    """The convolution of `input` [N, C, D, H, W] (or [C, D, H, W]) with `weight` [O, C / groups, KD, KH, KW]."""

    names = "nn.functional.conv3d"

    def of(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        return run_plain(3, input, weight, bias, stride, padding, dilation, groups)


class conv_transpose1d(Convolution):
    """The transposed convolution of `input` [N, C, L] (or [C, L]) with `weight` [C, O / groups, K]."""

    names = "nn.functional.conv_transpose1d"

    def of(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
        return run_transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


class conv_transpose2d(Convolution):
    """The transposed convolution of `input` [N, C, H, W] (or [C, H, W]) with `weight` [C, O / groups, KH, KW]."""

    names = "nn.functional.conv_transpose2d"

    def of(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
        return run_transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


class conv_transpose3d(Convolution):
    """The transposed convolution of `input` [N, C, D, H, W] (or no N) with `weight` [C, O / groups, KD, KH, KW]."""

    names = "nn.functional.conv_transpose3d"

    def of(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
        return run_transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation)
