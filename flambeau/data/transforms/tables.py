"""Resizing by tables: for each output of a dimension, where it begins to read and with what weights.

A table is made for every sample at once, [N, out] and [N, out, taps] in NumPy, since each may have a box of its own;
for a whole image it is the one row that all share. It is carried out first along the rows, then down the columns, as
PyTorch does. Bytes go by whole numbers, and are bytes again in between.
"""
import numpy as np

from ...base import dtypes
from ...base.axis_maps import ANTIALIAS_FILTERS, cubic_weights
from ...tensor.create import from_array
from .geometry_kernels import boxes_resized, picked, resampled

FILTERS = {"bilinear": "linear", "bicubic": "cubic", "lanczos": "lanczos"}
SCALED_DTYPES = (dtypes.float32, dtypes.float64, dtypes.uint8)        # others are computed in float32


def resize_all(batch, size, mode, smooth):
    """`batch` [N, C, H, W] in another size."""
    return resize_boxes(batch, np.array([[0, 0, *batch.shape[2:]]]), size, mode, smooth)


def resize_boxes(batch, boxes, size, mode, smooth):
    """The boxes [N or 1, (top, left, height, width)] of `batch` [N, C, H, W], each brought to `size`."""
    if batch.dtype not in SCALED_DTYPES:
        made = resize_boxes(batch.to(dtypes.float32), boxes, size, mode, smooth)
        return made.to(batch.dtype) if batch.dtype.is_floating_point else made.round().to(batch.dtype)
    # PyTorch leaves a dimension alone whose size stays
    whole = (boxes[:, :2] == 0).all(0) & (boxes[:, 2:] == batch.shape[2:]).all(0)
    made = {dim: None if whole[dim - 2] and batch.shape[dim] == size[dim - 2] else
            table(mode, smooth, boxes[:, dim], size[dim - 2], batch.shape[dim], boxes[:, dim - 2]) for dim in (3, 2)}
    if batch.device.type == "cpu" and batch.dtype is not dtypes.float64 and FILTERS.get(mode):
        return in_one_step(batch, *[made[dim] or unchanged(batch.shape[dim]) for dim in (3, 2)])
    for dim, one in made.items():
        batch = batch if one is None else along(batch, *one, dim)
    return batch


def unchanged(size):
    """The table of a dimension that stays."""
    return np.arange(size)[None], np.ones((1, size, 1))


def in_one_step(batch, across, down):
    """`batch` by the tables of its two dimensions, each (first, weight)."""
    n = max(len(first) for first, _ in (across, down))
    operands = []
    for first, weight in (across, down):
        bits = np.zeros(1, np.int32)
        if batch.dtype is dtypes.uint8:
            weight, bits = whole_weights(weight)
        for one, dtype in ((first, np.int32), (weight, weight.dtype if weight.dtype == np.int32 else np.float32),
                          (bits, np.int32)):
            one = one if len(one) == n else np.repeat(one, n, 0)
            operands.append(from_array(np.ascontiguousarray(one, dtype)))
    return boxes_resized(batch, *operands)


def along(batch, first, weight, dim):
    """`resampled` by a table `first` [N, out], `weight` [N, out, taps]; weights of None take one element each."""
    side = (first.shape[1], 1) if dim == 2 else (1, first.shape[1])

    def tensor(array): return from_array(np.ascontiguousarray(array), where=batch.device)

    index = tensor(first.reshape(len(first), 1, *side).astype(np.int64))
    if weight is None:
        return picked(batch, index, dim)
    bits = None
    if batch.dtype is dtypes.uint8:
        weight, bits = whole_weights(weight)
        bits = tensor(bits.reshape(-1, 1, 1, 1))
    else:
        weight = weight.astype(np.float64 if batch.dtype is dtypes.float64 else np.float32)
    weight = tensor(weight.transpose(2, 0, 1).reshape(weight.shape[2], len(weight), 1, *side))
    return resampled(batch, index, weight, bits, dim)


def whole_weights(weight):
    """Weights [N, out, taps] as whole numbers of 16 bits, and how many bits of each sample's are behind the point."""
    top = np.maximum(weight.max((1, 2), initial=0.0), 0)
    # as many bits as leave the largest below 2 ** 15, and at most 22
    tried = 0.5 + top[:, None] * (2.0 ** np.arange(1, 23))
    bits = (tried.astype(np.int64) < 1 << 15).cumprod(1).sum(1).astype(np.int32)
    scaled = weight * (2.0 ** bits)[:, None, None]
    return np.where(scaled < 0, scaled - 0.5, scaled + 0.5).astype(np.int32), bits


def table(mode, smooth, length, out, whole, start):
    """(first [N, out], weight [N, out, taps] or None) for boxes that are `length` [N] long and begin at `start` [N].

    Positions are those of the `whole` dimension; of taps that a box does not have, the weight is zero.
    """
    position, step = np.arange(out), (length / out)[:, None]
    length, start = length[:, None], start[:, None]
    if mode in ("nearest", "nearest-exact"):
        scale = length.astype(np.float32) / np.float32(out)           # PyTorch's precision: it chooses the element
        source = scale * (position.astype(np.float32) + np.float32(0.5 if mode == "nearest-exact" else 0))
        return start + np.minimum(np.floor(source).astype(np.int64), length - 1), None
    centre = step * (position + 0.5)
    if smooth:
        width, weigh = ANTIALIAS_FILTERS[FILTERS[mode]]
        stretch = np.maximum(step, 1.0)
        support = width * 0.5 * stretch
        low = np.maximum((centre - support + 0.5).astype(np.int64), 0)
        high = np.minimum((centre + support + 0.5).astype(np.int64), length)
        first, index = taps_from(start, low, int((high - low).max()), whole)
        weight = np.where((index >= low[..., None]) & (index < high[..., None]),
                          weigh((index - centre[..., None] + 0.5) / stretch[..., None]), 0)
        total = weight.sum(2, keepdims=True)
        return first, weight / np.where(total == 0, 1, total)
    source = centre - 0.5
    if mode == "bilinear":
        source = np.maximum(source, 0)
    before = np.minimum(np.floor(source).astype(np.int64), length - 1)
    share = np.clip(source - before, 0, 1)
    shares, back = ([1 - share, share], 0) if mode == "bilinear" else (cubic_weights(share), 1)
    # what lies beyond the box is its edge: a tap there adds to the edge's
    low = np.clip(before - back, 0, None)
    first, index = taps_from(start, low, len(shares), whole)
    weight = np.zeros(index.shape)
    for tap, part in enumerate(shares):
        read = np.clip(before - back + tap, 0, length - 1)
        weight += np.where(index == read[..., None], part[..., None], 0)
    same = (length == out)[..., None]
    return first, np.where(same, index == position[:, None], weight)


def taps_from(start, low, taps, whole):
    """(where taps begin in the whole dimension, [N, out]; their positions in the box, [N, out, taps])"""
    taps = min(taps, whole)
    first = np.clip(start + low, 0, whole - taps)
    return first, (first - start)[..., None] + np.arange(taps)
