"""Pooling by the largest: the largest element of each window, and where it was.

The largest of a block is the largest of the largest of its rows, so this too goes dimension by dimension, with the
index of the first of them handed on (see base/axis_maps.py).
"""
import math

import numpy as np

from ..base import dtypes
from ..base.axis_maps import along, at, maximum, taps_of
from ..base.bounds import outside
from ..base.errors import need
from ..base.op import Composite, Op
from ..base.spec import spec
from .index import scattered
from .pieces import cat
from .pool import (
    adaptive_sizes,
    kept_layout,
    mapped,
    need_dtype,
    need_rows,
    need_tensor,
    nonempty,
    one_int,
    per_window,
    sizes_by,
    stride_or,
    windows,
)

NOWHERE = -1                     # the index of the largest of no elements, and of what lies outside
WINDOW_BLOCK_ELEMENTS = 1 << 16  # elements that are looked at together, so that they stay in the cache


# --- picking by index -------------------------------------------------------------------------------------------------


def flat_positions(xp, index, lead, size):
    """Positions in the flat array [*lead, size] of `index` along its last dimension."""
    index = xp.broadcast_to(index, (*lead, index.shape[-1]))
    return index + (xp.arange(math.prod(lead)) * size).reshape(*lead, 1)


class _pick(Op):
    """The elements of `input` [*lead, size] at `index` [*lead, count], all in range; a lead of one is shared."""

    exact = True

    def meta(input, index): return spec(input.dtype, (*input.shape[:-1], index.shape[-1]), None, input.device)

    def ref(xp, input, index):
        return xp.take(input.reshape(-1), flat_positions(xp, index, input.shape[:-1], input.shape[-1]))

    def d_input(g, index, input_spec): return _drop(g, index, input_spec.shape[-1])

    def body(k, input, index): return k.gather(input, -1, index)


class _drop(Op):
    """The sums of the elements of `input` [*lead, count] that `index` sends to each position of [*lead, size]."""

    def meta(input, index, size): return spec(input.dtype, (*input.shape[:-1], size), None, input.device)

    def ref(xp, input, index, size):
        lead = input.shape[:-1]
        flat = flat_positions(xp, index, lead, size).reshape(-1)
        return xp.bincount(flat, input.reshape(-1), math.prod(lead) * size).reshape(*lead, size)

    def d_input(g, index): return _pick(g, index)

    def body(k, input, index, size):
        made = k.library("drop", (input, index), [(input.dtype, (*input.shape[:-1], size))], (size,))
        return NotImplemented if made is None else made[0]


class _drop_weighted(Op):
    """The sums of what `index` [N, K, count] sends to each position of [N, C, size] of the elements of `input`
    [N, C, count], each K times, times `weight` [N, K, count]; what it sends to NOWHERE is left out."""

    def meta(input, index, weight, size): return spec(input.dtype, (*input.shape[:-1], size), None, input.device)

    def ref(xp, input, index, weight, size):
        samples, channels, count = input.shape
        total = xp.zeros((samples, channels, size))
        for k in range(index.shape[1]):
            position = xp.where(index[:, k:k + 1] < 0, size, index[:, k:k + 1])    # one more, for what is left out
            flat = flat_positions(xp, position, (samples, channels), size + 1).reshape(-1)
            part = (input * weight[:, k:k + 1]).reshape(-1)
            total += xp.bincount(flat, part, samples * channels * (size + 1)).reshape(*total.shape[:2], -1)[..., :size]
        return total

    def d_input(g, index, weight):
        return sum([pick_inside(g, index[:, k:k + 1]) * weight[:, k:k + 1] for k in range(index.shape[1])])

    def d_weight(g, input, index):
        return cat([(pick_inside(g, index[:, k:k + 1]) * input).sum(1, keepdim=True) for k in range(index.shape[1])], 1)

    def body(k, input, index, weight, size):
        made = k.library("drop_weighted", (input, index, weight), [(input.dtype, (*input.shape[:-1], size))], (size,))
        return NotImplemented if made is None else made[0]


def pick_inside(input, index):
    """`_pick` with zeros where the index is NOWHERE."""
    return _pick(input, index.clamp(min=0)).masked_fill(index < 0, 0)


# --- the largest ------------------------------------------------------------------------------------------------------


def largest(xp, x, maps):
    """The largest element of each window, and its index in the flattened spatial dimensions."""
    label, step = xp.arange(x.shape[-1], dtype=np.int32 if math.prod(x.shape[1:]) < 2**31 else np.int64), 1
    for axis in range(-1, -len(maps) - 1, -1):
        x, label = maximum(xp, x, label, axis, taps_of(maps[axis]))
        step *= maps[axis][1]
        if axis > -len(maps):
            label += along(xp, xp.arange(maps[axis - 1][1]) * step, axis - 1, label.dtype)
    for axis, m in enumerate(maps, -len(maps)):
        holds = taps_of(m).weight.any(0)
        if not holds.all():                                  # a window that dilation spreads over padding only
            x[at(axis, ~holds)] = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
            label[at(axis, ~holds)] = NOWHERE
    return x, label


def has_empty(maps):
    """Whether some window holds padding only."""
    return not all(taps_of(m).weight.any(0).all() for m in maps)


class _max_pool(Op):
    """The largest element of each window, and its index in the flattened spatial dimensions."""

    def meta(input, maps):
        values = mapped(input, maps, layout=len(maps) == 2 or maps[0][0] == "window")
        return values, values.like(dtype=dtypes.int64)

    def ref(xp, input, maps):
        n = len(maps)
        lead, size, out = input.shape[:-n], input.shape[-n:], [m[2] for m in maps]
        rows = input.reshape(math.prod(lead), *size)
        values, indices = xp.empty((len(rows), *out), input.dtype), xp.empty((len(rows), *out), np.int64)
        each = max(1, WINDOW_BLOCK_ELEMENTS // max(math.prod(size), 1))  # so many at a time that they stay in the cache
        for start in range(0, len(rows), each):
            part = slice(start, start + each)
            values[part], indices[part] = largest(xp, rows[part], maps)
        return values.reshape(*lead, *out), indices.reshape(*lead, *out)

    def d_input(g, out1, input_spec, maps):
        g, n = g[0], len(maps)
        if has_empty(maps):
            g, out1 = g.masked_fill(out1 < 0, 0), out1.clamp(min=0)
        sums = _drop(g.flatten(-n), out1.flatten(-n), math.prod(input_spec.shape[-n:]))
        return sums.reshape(input_spec.shape)

    def body(k, input, maps):
        if has_empty(maps):
            return NotImplemented
        shape = (*input.shape[:-len(maps)], *[m[2] for m in maps])
        made = k.library("max_pool", (input,), [(input.dtype, shape), (dtypes.int64, shape)], (maps,))
        return NotImplemented if made is None else made


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
    maps = windows(input._spec, kernel, stride, padding, per_window(dilation, n, "dilation", name), ceil_mode)
    need(all(p <= k // 2 for p, k in zip(padding, kernel, strict=True)), "pad should be smaller than or equal to half "
         f"of kernel size, but got padding={padding} and kernel_size={kernel}")
    need_dtype(input.dtype, input.dtype.category in (1, 2), name)
    return op(input, maps)


def max_pool_row(input, kernel_size, stride, padding, dilation, ceil_mode, indices=False):
    """(values, indices) of max_pool1d; `indices` says whether they are asked for."""
    need_tensor(input)
    need(input.dim() in (2, 3) and 0 not in input.shape[-2:], "max_pool1d: Expected 2D or 3D (batch mode) tensor with "
         f"optional 0 dim batch size for input, but got:{list(input.shape)}")
    expectation = "must be an int, list of ints, or tuple of ints of size 1"
    kernel = one_int(kernel_size, "kernel_size", "max_pool1d", expectation)
    stride = kernel if stride is None or stride in ((), []) else one_int(stride, "stride", "max_pool1d", expectation)
    padding = one_int(padding, "padding", "max_pool1d", expectation)
    dilation = one_int(dilation, "dilation", "max_pool1d", expectation)
    for what, given in (("kernel_size", kernel), ("stride", stride), ("dilation", dilation)):
        need(given > 0, f"max_pool1d() {what} must be greater than zero, but got {given}")
    made = max_pool(_max_pool2d_largest, 2, input.unsqueeze(-2), (1, kernel), (1, stride), (0, padding), (1, dilation),
                    ceil_mode)
    need_dtype(input.dtype, input.dtype.category == 2 or indices, "max_pool1d_impl")
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
        made = max_pool_row(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
        return made if return_indices else made[0]


class max_pool1d_with_indices(Composite):
    """The largest element of each window of `input`, and its index."""

    names = "nn.functional.max_pool1d_with_indices"
    forms = "function"

    def of(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        return max_pool_row(input, kernel_size, stride, padding, dilation, ceil_mode, True)


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
    """The largest element of each window of `input`, and its index in the flattened spatial dimensions."""

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
    """The largest element of each window of `input` [N, C, D, H, W] (or no N), and its index if `return_indices`."""

    names = "nn.functional.max_pool3d"
    forms = "function"

    def of(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        made = max_pool(_max_pool3d_largest, 3, input, kernel_size, stride, padding, dilation, ceil_mode)
        return made if return_indices else made[0]


class _max_pool3d_with_indices(Composite):
    """The largest element of each window of `input`, and its index in the flattened spatial dimensions."""

    names = "nn.functional.max_pool3d_with_indices"
    forms = "function"

    def of(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        return max_pool(_max_pool3d_largest, 3, input, kernel_size, stride, padding, dilation, ceil_mode)


def adaptive_max_pool(op, n, input, output_size):
    """(values, indices) of adaptive_max_pool2d or adaptive_max_pool3d."""
    need_tensor(input)
    name = f"adaptive_max_pool{n}d"
    sizes = adaptive_sizes(input, output_size, n, name)
    need(input.dim() in (n + 1, n + 2), f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got {list(input.shape)}")
    nonempty(input, range(1, input.dim()), name)
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
    """The largest elements of `output_size` windows that cover `input` [N, C, L] or [C, L], and their indices."""

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
    """The largest elements of `output_size` windows that cover `input`, and their indices."""

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
    """The largest elements of `output_size` windows that cover `input`, and their indices."""

    names = "nn.functional.adaptive_max_pool3d_with_indices"
    forms = "function"

    def of(input, output_size, return_indices=False):
        return adaptive_max_pool(_adaptive_max_pool3d_largest, 3, input, output_size)


# --- the way back -----------------------------------------------------------------------------------------------------


class _max_unpool(Op):
    """Zeros of `size` over the last dimensions, with the elements of `input` at `indices` into them, flattened."""

    exact = True
    by_bounds = "indices"

    def meta(input, indices, size):
        need(indices.dtype is dtypes.int64, f"elements in indices should be type int64 but got: {indices.dtype.cname}")
        need(input.shape == indices.shape, "Expected shape of indices to be same as that of the input tensor "
             f"({list(input.shape)}) but got indices tensor with shape: {list(indices.shape)}")
        n = len(size)
        need(input.ndim in (n + 1, n + 2), f"Input to max_unpooling{n}d should be a {n + 1}d or {n + 2}d Tensor, but "
             f"got a tensor with {input.ndim} dimensions")
        need(0 not in input.shape[1:], "Expected input to have non-zero size for non-batch dimensions, but got "
             f"{list(input.shape)}")
        shape = (*input.shape[:-n], *size)
        return spec(input.dtype, shape, kept_layout(input, shape), input.device)

    def verify(indices, size):
        wrong = outside(indices, 0, math.prod(size) - 1)
        need(wrong is None, f"Found an invalid max index: {wrong} (output volumes are of size {sizes_by(size)})")

    def ref(xp, input, indices, size):
        lead, count = input.shape[:-len(size)], math.prod(size)
        out = xp.zeros(math.prod(lead) * count, input.dtype)
        flat = (*lead, math.prod(input.shape[len(lead):]))
        out[flat_positions(xp, indices.reshape(flat), lead, count)] = input.reshape(flat)
        return out.reshape(*lead, *size)

    def body(k, input, indices, size):
        lead, count = input.shape[:-len(size)], math.prod(input.shape[-len(size):])
        rows = (math.prod(lead), count, 1)
        return scattered(k, "set", k.reshape(input, rows), k.reshape(indices, rows), (rows[0], math.prod(size), 1),
                         (*lead, *size))

    def d_input(g, indices, size):
        n = len(size)
        return _pick(g.flatten(-n), indices.flatten(-n)).reshape(indices.shape)


class _max_unpool2d_by_index(_max_unpool):  node = "MaxUnpool2DBackward0"
class _max_unpool3d_by_index(_max_unpool):  node = "MaxUnpool3DBackward0"


def unpooled_size(input, kernel_size, stride, padding, output_size, n, name):
    """The size that pooling came from: the default one, or `output_size` where that is near enough."""
    kernel = per_window(kernel_size, n, "kernel_size", name)
    stride, padding = stride_or(stride, kernel, n, name), per_window(padding, n, "padding", name)
    default = [(s - 1) * t + k - 2 * p for s, t, k, p in zip(input.shape[-n:], stride, kernel, padding, strict=True)]
    if output_size is None:
        return tuple(default)
    sizes = list(output_size)[-n:] if len(output_size) == len(kernel) + 2 else list(output_size)
    need(len(sizes) == n, f"output_size should be a sequence containing {n} or {n + 2} elements, but it has a length "
         f"of '{len(output_size)}'", ValueError)
    for d, (size, plain, t) in enumerate(zip(sizes, default, stride, strict=True)):
        need(plain - t < size < plain + t, f"invalid output_size \"{tuple(output_size)}\" (dim {d} must be between "
             f"{plain - t} and {plain + t})", ValueError)
    return tuple(sizes)


class _max_unpool1d(Composite):
    """The inverse of max_pool1d as far as there is one: zeros, with the elements of `input` at `indices`."""

    names = "nn.functional.max_unpool1d"
    forms = "function"

    def of(input, indices, kernel_size, stride=None, padding=0, output_size=None):
        size = unpooled_size(input, kernel_size, stride, padding, output_size, 1, "max_unpool1d")
        return _max_unpool2d_by_index(input.unsqueeze(-1), indices.unsqueeze(-1), (*size, 1)).squeeze(-1)


class _max_unpool2d(Composite):
    """The inverse of max_pool2d as far as there is one: zeros, with the elements of `input` at `indices`."""

    names = "nn.functional.max_unpool2d"
    forms = "function"

    def of(input, indices, kernel_size, stride=None, padding=0, output_size=None):
        size = unpooled_size(input, kernel_size, stride, padding, output_size, 2, "max_unpool2d")
        return _max_unpool2d_by_index(input, indices, size)


class _max_unpool3d(Composite):
    """The inverse of max_pool3d as far as there is one: zeros, with the elements of `input` at `indices`."""

    names = "nn.functional.max_unpool3d"
    forms = "function"

    def of(input, indices, kernel_size, stride=None, padding=0, output_size=None):
        size = unpooled_size(input, kernel_size, stride, padding, output_size, 3, "max_unpool3d")
        return _max_unpool3d_by_index(input, indices, size)
