"""Regions of feature maps brought to one size: `roi_align`, `roi_pool`, and the position-sensitive forms of both.

A region is a row of `rois`: the number of an image and a box (x1, y1, x2, y2), which `spatial_scale` brings to the
pixels of the feature map. It is cut into `pooled_height` by `pooled_width` bins. Each bin's value is the mean of
bilinear samples in it (align), or the largest element or the mean of the pixels it covers (pool). The
position-sensitive forms have a set of channels for every bin, and each bin reads its own.

The samples of a bin are pixels with weights. These are the product of weights along y and along x, which are worked out
for one axis at a time; `weighted_rows` does the rest.
"""
import functools
import math

import numpy as np

from ..base import dtypes
from ..base.errors import need
from ..base.op import Op
from ..base.spec import spec
from ..tensor.create import from_array
from ..tensor.functions import arange, cat
from .rows import spread_rows, weighted_rows

TAPS_AT_ONCE = 1 << 23        # how many pixels are named at a time: 8 bytes of index and a weight each
LEAST_FLOAT32 = np.finfo(np.float32).min  # what an element must exceed to be the largest of its bin, in any dtype


# --- where the samples are --------------------------------------------------------------------------------------------


def samples(xp, start, length, bins, grid, most, size):
    """The (index, weight) [regions, bins, 2 * most] of the pixels along an axis of `size` that samples fall between.

    Regions begin at `start` and have this `length`; each bin has `grid` samples, evenly spread. A sample within a pixel
    outside of the map reads the pixel at its border, and one farther off counts as zero.
    """
    bin_size = (length / bins)[:, None, None]
    at, number = xp.arange(most), grid[:, None, None]
    position = start[:, None, None] + xp.arange(bins)[:, None] * bin_size
    position = position + (at + start.dtype.type(0.5)) * bin_size / xp.maximum(number, 1).astype(start.dtype)
    counts = (position >= -1) & (position <= size) & (at < number)
    position = xp.clip(xp.where(counts, position, 0), 0, size - 1)
    low = xp.floor(position)
    above = position - low
    share = counts / xp.maximum(number, 1).astype(start.dtype)
    index = xp.stack([low, xp.minimum(low + 1, size - 1)], -1).astype(xp.int64)
    weight = xp.stack([(1 - above) * share, above * share], -1)
    shape = (len(start), bins, 2 * most)
    return index.reshape(shape), weight.reshape(shape).astype(start.dtype)


def covered(xp, start, stop, most):
    """The (index, whether it counts) [regions, bins, most] of the pixels from `start` up to `stop` [regions, bins]."""
    index = start[..., None] + xp.arange(most)
    counts = index < stop[..., None]
    return xp.where(counts, index, 0), counts


def combined(xp, y, x, image, height, width):
    """The index [regions * bins_h * bins_w, taps_h * taps_w] of every pair of pixels of a row and of a column."""
    return in_rows((image[:, None, None] * height + y)[:, :, None, :, None] * width + x[:, None, :, None, :])


def products(y, x):
    """The products of weights along y and along x, in the order of `combined`."""
    return in_rows(y[:, :, None, :, None] * x[:, None, :, None, :])


def in_rows(paired):
    """[regions, bins_h, bins_w, taps_h, taps_w] with a row for each bin."""
    return paired.reshape(math.prod(paired.shape[:3]), math.prod(paired.shape[3:]))


def grid_of(xp, length, bins, ratio):
    """How many samples each bin of a region has along an axis: `ratio`; one for each pixel if that is not positive."""
    if ratio > 0:
        return xp.full(length.shape, ratio)
    return xp.maximum(xp.ceil(length / bins), 0).astype(xp.int64)


def aligned_box(xp, rois, scale, shift, least):
    """(start, length) along y and along x of the boxes in the pixels of the map, each at least `least` long."""
    low, high = rois[:, 1:3] * rois.dtype.type(scale) - shift, rois[:, 3:5] * rois.dtype.type(scale) - shift
    length = high - low if least is None else xp.maximum(high - low, least)
    return (low[:, 1], length[:, 1]), (low[:, 0], length[:, 0])


def whole_box(xp, rois, scale, inclusive):
    """(start, length) along y and along x of the boxes, rounded to whole pixels: the last one counts if `inclusive`."""
    scaled = rois[:, 1:5] * rois.dtype.type(scale)
    rounded = xp.copysign(xp.floor(xp.abs(scaled) + 0.5), scaled)         # halves away from zero, as C rounds
    box = xp.clip(xp.nan_to_num(rounded), -1 << 30, 1 << 30).astype(xp.int64)
    length = xp.maximum(box[:, 2:] - box[:, :2] + inclusive, 1)
    return (box[:, 1], length[:, 1]), (box[:, 0], length[:, 0])


def whole_bins(xp, start, length, bins, last, dtype):
    """(start, stop) [regions, bins] of whole pixels that bins cover, none beyond `last`."""
    bin_size = (length.astype(dtype) / dtype.type(bins))[:, None]
    at = xp.arange(bins).astype(dtype)
    first = xp.floor(at * bin_size).astype(xp.int64) + start[:, None]
    stop = xp.ceil((at + 1) * bin_size).astype(xp.int64) + start[:, None]
    return xp.clip(first, 0, last), xp.clip(stop, 0, last)


def images_within(rois, images):
    """Refuse regions of images that there are not."""
    bad = rois[~((rois[:, 0] >= 0) & (rois[:, 0] < images)), 0]
    need(not bad.size, f"rois[:, 0] names image {bad[0] if bad.size else 0}, and input has {images}", IndexError)


class _samples(Op):
    """(index, weight) [regions * bins, taps] of the pixels that the bilinear samples of each bin read."""

    forms = ""

    def meta(rois, images, height, width, scale, bins, ratio, most, shift, least):
        shape = (rois.shape[0] * bins[0] * bins[1], 4 * most[0] * most[1])
        return spec(dtypes.int64, shape, None, rois.device), spec(rois.dtype, shape, None, rois.device)

    def verify(rois, images): images_within(rois, images)

    def ref(xp, rois, images, height, width, scale, bins, ratio, most, shift, least):
        boxes = aligned_box(xp, rois, scale, shift, least)
        (y, weight_y), (x, weight_x) = (samples(xp, start, length, n, grid_of(xp, length, n, ratio), m, size)
                                        for (start, length), n, m, size in zip(boxes, bins, most, (height, width)))
        return combined(xp, y, x, rois[:, 0].astype(xp.int64), height, width), products(weight_y, weight_x)


class _covered(Op):
    """(index, weight) [regions * bins, taps] of the pixels that each bin covers, the weights those of their mean."""

    forms = ""

    def meta(rois, images, height, width, scale, bins, taps):
        shape = (rois.shape[0] * bins[0] * bins[1], taps[0] * taps[1])
        return spec(dtypes.int64, shape, None, rois.device), spec(rois.dtype, shape, None, rois.device)

    def verify(rois, images): images_within(rois, images)

    def ref(xp, rois, images, height, width, scale, bins, taps):
        (y, counts_y), (x, counts_x) = (covered(xp, start, stop, t) for (start, stop), t in zip(
            mean_bins(xp, rois, scale, bins, (height, width)), taps))
        counts = products(counts_y, counts_x)
        weight = counts / xp.maximum(counts.sum(1, keepdims=True), 1).astype(rois.dtype)
        return combined(xp, y, x, rois[:, 0].astype(xp.int64), height, width), weight


def mean_bins(xp, rois, scale, bins, sizes):
    """What bins of a mean cover along y and along x; the last row and the last column of the map never count."""
    return [whole_bins(xp, start, length, n, size - 1, rois.dtype)
            for (start, length), n, size in zip(whole_box(xp, rois, scale, 0), bins, sizes)]


# --- taking them ------------------------------------------------------------------------------------------------------


def parts_of(counts, each):
    """The numbers of regions (None: all, in order), in parts that name not too many pixels, and the most of each part.

    `counts` are what a bin of each region has along y and along x; each pair of them makes `each` pixels. Regions of
    like sizes go together.
    """
    tall, wide = (np.maximum(n, 1) for n in counts)
    most = int(tall.max(initial=1)), int(wide.max(initial=1))
    fit = max(1, TAPS_AT_ONCE // each)
    if len(tall) * most[0] * most[1] <= fit:
        return [(None, most)]
    order = np.lexsort((wide, tall))
    parts, begin = [], 0
    while begin < len(order):
        area = np.maximum.accumulate(tall[order[begin:]]) * np.maximum.accumulate(wide[order[begin:]])
        count = max(1, int(np.searchsorted(area * np.arange(1, len(area) + 1), fit, "right")))
        some = order[begin:begin + count]
        parts.append((from_array(some), (int(tall[some].max()), int(wide[some].max()))))
        begin += count
    return parts


def array_of(rois):
    """The regions as an array, to look at."""
    return rois.detach().cpu().numpy()


def sampled_parts(rois, shape, scale, bins, ratio, shift, least):
    """(numbers of regions, index, weight) of the samples of `roi_align`, part by part."""
    if ratio > 0:
        grid = [np.full(rois.shape[0], ratio)] * 2
    else:
        grid = [grid_of(np, length, n, ratio)
                for (_, length), n in zip(aligned_box(np, array_of(rois), scale, shift, least), bins)]
    for some, most in parts_of(grid, 4 * bins[0] * bins[1]):                # a sample lies between four pixels
        yield some, *_samples(rois if some is None else rois[some], shape[0], *shape[2:], scale, bins, ratio, most,
                              shift,
                              least)


def covered_parts(rois, shape, scale, bins):
    """(numbers of regions, index, weight) of the pixels of `ps_roi_pool`, part by part."""
    taps = [(stop - start).max(1, initial=0) for start, stop in mean_bins(np, array_of(rois), scale, bins, shape[2:])]
    for some, most in parts_of(taps, bins[0] * bins[1]):
        yield some, *_covered(rois if some is None else rois[some], shape[0], *shape[2:], scale, bins, most)


def of_own_bin(parts, bins):
    """The parts for a table that has, for every pixel, a row for each bin."""
    each = bins[0] * bins[1]
    for some, index, weight in parts:
        own = (index.reshape(-1, each, index.shape[1]) * each + arange(each).reshape(each, 1)).reshape(index.shape)
        yield some, own, weight


def gathered(table, parts, each):
    """The weighted rows of `table` [regions, each, columns] for all parts, the regions in order."""
    numbers, rows = [], []
    for some, index, weight in parts:
        made = weighted_rows(table, index, weight).reshape(-1, each, table.shape[1])
        if some is None:
            return made
        numbers.append(some)
        rows.append(made)
    return cat(rows).index_select(0, cat(numbers).argsort())


def spread(g, parts, rows):
    """The gradient of a table of `rows` rows from that of `gathered`."""
    total = 0
    for some, index, weight in parts:
        own = (g if some is None else g.index_select(0, some)).reshape(-1, g.shape[2])
        total = total + spread_rows(own.contiguous(), index, weight, rows)
    return total


def check(name, first, tensor, rois):
    """Refuse regions in another form than [K, 5], and two dtypes."""
    need(rois.dim() == 2 and rois.shape[1] == 5, f"rois must have shape as Tensor[K, 5], got {list(rois.shape)}")
    need(tensor.dtype is rois.dtype, f"Expected tensor for '{first}' to have the same type as tensor for 'rois'; but "
         f"type {tensor.dtype} does not equal {rois.dtype} (while checking arguments for {name})")
    need(tensor.dtype.is_floating_point, f"\"{name}\" not implemented for '{tensor.dtype.cname}'", NotImplementedError)


def widened(function):
    """`function`, in single precision where its tensors have 16-bit floats."""
    @functools.wraps(function)
    def run(first, rois, *args):
        check(function.__name__, first_name(function), first, rois)
        rois = rois.detach()
        if first.dtype.itemsize > 2:
            return function(first, rois, *args)
        made = function(first.float(), rois.float(), *args)
        return (made[0].to(first.dtype), *made[1:]) if isinstance(made, tuple) else made.to(first.dtype)
    return run


def first_name(function):
    return function.__code__.co_varnames[0]


# --- the operations ---------------------------------------------------------------------------------------------------


def box_rule(aligned):
    """What `roi_align` takes off a box's corners, and how long its sides are at least."""
    return (0.5, None) if aligned else (0.0, 1.0)


@widened
def roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    """The means of bilinear samples in the bins of each region, [K, C, pooled_height, pooled_width].

    Each bin has `sampling_ratio` samples along each axis, or if that is not positive one for each pixel. `aligned`
    shifts boxes by half a pixel, so that pixels have their centres at whole numbers; without, a box is at least a pixel
    large.
    """
    bins = pooled_height, pooled_width
    parts = sampled_parts(rois, input.shape, spatial_scale, bins, sampling_ratio, *box_rule(aligned))
    table = input.permute(0, 2, 3, 1).reshape(-1, input.shape[1]).contiguous()
    return as_maps(gathered(table, parts, pooled_height * pooled_width), bins)


@widened
def _roi_align_backward(grad, rois, spatial_scale, pooled_height, pooled_width, batch_size, channels, height, width,
                        sampling_ratio, aligned):
    """The gradient of the input of `roi_align`."""
    shape = batch_size, channels, height, width
    parts = sampled_parts(rois, shape, spatial_scale, (pooled_height, pooled_width), sampling_ratio, *box_rule(aligned))
    return table_as_maps(spread(as_rows(grad), parts, batch_size * height * width), shape)


def as_maps(rows, bins):
    """[K, bins, C] as [K, C, *bins]."""
    return rows.reshape(rows.shape[0], *bins, rows.shape[2]).permute(0, 3, 1, 2).contiguous()


def as_rows(maps):
    """[K, C, *bins] as [K, bins, C]."""
    return maps.flatten(2).transpose(1, 2)


def table_as_maps(table, shape):
    """The gradient of a table with a row for every pixel as one of maps."""
    return table.reshape(shape[0], *shape[2:], shape[1]).permute(0, 3, 1, 2).contiguous()


def channels_by_bin(input, bins):
    """A table with a row for every pixel and bin, of the channels that are this bin's; and the channels' numbers."""
    images, channels, height, width = input.shape
    each = bins[0] * bins[1]
    need(channels % each == 0, "input channels must be a multiple of pooling height * pooling width, got "
                               f"{channels} channels for {bins[0]} x {bins[1]} bins")
    by_bin = input.reshape(images, channels // each, each, height, width).permute(0, 3, 4, 2, 1)
    return by_bin.reshape(-1, channels // each).contiguous()


def position_sensitive(input, rois, parts, bins):
    """(means, the channel that each was read from) of the parts, where each bin reads its own channels."""
    table = channels_by_bin(input, bins)
    made = as_maps(gathered(table, of_own_bin(parts, bins), bins[0] * bins[1]), bins)
    mapping = arange(input.shape[1], dtype=dtypes.int32).reshape(1, -1, *bins)
    return made, mapping.expand(rois.shape[0], -1, -1, -1).contiguous()


def position_sensitive_backward(grad, parts, shape, bins):
    """The gradient of the input of `position_sensitive`."""
    images, channels, height, width = shape
    each = bins[0] * bins[1]
    table = spread(as_rows(grad), of_own_bin(parts, bins), images * height * width * each)
    by_bin = table.reshape(images, height, width, each, channels // each)
    return by_bin.permute(0, 4, 3, 1, 2).reshape(shape)


@widened
def ps_roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio):
    """(`roi_align` with channels of its own for each bin, the channels' numbers)"""
    bins = pooled_height, pooled_width
    parts = sampled_parts(rois, input.shape, spatial_scale, bins, sampling_ratio, 0.5, None)
    return position_sensitive(input, rois, parts, bins)


@widened
def _ps_roi_align_backward(grad, rois, channel_mapping, spatial_scale, pooled_height, pooled_width, sampling_ratio,
                           batch_size, channels, height, width):
    """The gradient of the input of `ps_roi_align`."""
    shape, bins = (batch_size, channels, height, width), (pooled_height, pooled_width)
    parts = sampled_parts(rois, shape, spatial_scale, bins, sampling_ratio, 0.5, None)
    return position_sensitive_backward(grad, parts, shape, bins)


@widened
def ps_roi_pool(input, rois, spatial_scale, pooled_height, pooled_width):
    """(the mean of the pixels that each bin covers, of channels of its own; the channels' numbers)"""
    bins = pooled_height, pooled_width
    return position_sensitive(input, rois, covered_parts(rois, input.shape, spatial_scale, bins), bins)


@widened
def _ps_roi_pool_backward(grad, rois, channel_mapping, spatial_scale, pooled_height, pooled_width, batch_size, channels,
                          height, width):
    """The gradient of the input of `ps_roi_pool`."""
    shape, bins = (batch_size, channels, height, width), (pooled_height, pooled_width)
    return position_sensitive_backward(grad, covered_parts(rois, shape, spatial_scale, bins), shape, bins)


class _largest(Op):
    """(the largest element of each bin, its place in its map or -1) of `input` [B, C, H, W]."""

    forms = ""

    def meta(input, rois, scale, bins):
        shape = (rois.shape[0], input.shape[1], *bins)
        return input.like(shape=shape), spec(dtypes.int32, shape, None, input.device)

    def verify(rois, input_spec): images_within(rois, input_spec.shape[0])

    def ref(xp, input, rois, scale, bins):
        _, channels, height, width = input.shape
        table = xp.moveaxis(input, 1, 3).reshape(-1, channels)
        axes = [whole_bins(xp, start, length, n, size, rois.dtype)
                for (start, length), n, size in zip(whole_box(xp, rois, scale, 1), bins, (height, width))]
        out = xp.zeros((len(rois), bins[0] * bins[1], channels), input.dtype)
        indices = xp.full(out.shape, -1, xp.int32)
        taps = [(stop - start).max(1, initial=0) for start, stop in axes]
        step = max(1, (1 << 22) // max(channels * bins[0] * bins[1], 1))
        for some, at in pieces(xp, taps, step):
            (y, counts_y), (x, counts_x) = (covered(xp, start[some], stop[some], most)
                                            for (start, stop), most in zip(axes, at))
            counts = products(counts_y, counts_x)
            pixel = combined(xp, y, x, xp.zeros(len(some), xp.int64), height, width)
            image = xp.repeat(rois[some, 0].astype(xp.int64) * (height * width), bins[0] * bins[1])
            rows = table[pixel + image[:, None]]
            rows = xp.where(counts[:, :, None] & (rows > LEAST_FLOAT32), rows, -xp.inf)
            best = rows.argmax(axis=1)
            top = xp.take_along_axis(rows, best[:, None], 1)[:, 0]
            found = top > LEAST_FLOAT32
            empty = ~counts.any(1)[:, None]
            value = xp.where(found, top, xp.where(empty, 0, LEAST_FLOAT32))
            out[some] = value.reshape(len(some), bins[0] * bins[1], channels)
            chosen = xp.where(found, xp.take_along_axis(pixel, best, 1), -1)
            indices[some] = chosen.reshape(len(some), bins[0] * bins[1], channels)
        shape = (len(rois), *bins, channels)
        return xp.moveaxis(out.reshape(shape), 3, 1), xp.moveaxis(indices.reshape(shape), 3, 1)

    def d_input(g, out1, rois, input_spec): return added_at(g[0], rois, out1, input_spec.shape)


def pieces(xp, taps, step):
    """(numbers of regions, their most taps along y and x), so that each piece has about `step` taps in all."""
    order = xp.lexsort((taps[1], taps[0]))
    begin = 0
    while begin < len(order):
        tall, wide = (xp.maximum.accumulate(xp.maximum(t[order[begin:]], 1)) for t in taps)
        count = max(1, int(xp.searchsorted(tall * wide * xp.arange(1, len(tall) + 1), step, "right")))
        yield order[begin:begin + count], (int(tall[count - 1]), int(wide[count - 1]))
        begin += count


def added_at(g, rois, indices, shape):
    """Maps of `shape` with the elements of `g` added where `indices` says; -1 is nowhere."""
    images, channels, height, width = shape
    image = rois[:, 0].long().reshape(-1, 1, 1, 1)
    maps = image * channels + arange(channels).reshape(1, -1, 1, 1)
    at = (maps * (height * width) + indices.long().clamp(min=0)).reshape(-1)
    flat = g.new_zeros(images * channels * height * width)
    return flat.index_add(0, at, (g * (indices >= 0)).reshape(-1)).reshape(shape)


@widened
def roi_pool(input, rois, spatial_scale, pooled_height, pooled_width):
    """(the largest element in each bin of the regions, its place in its map or -1)"""
    return _largest(input, rois, spatial_scale, (pooled_height, pooled_width))


@widened
def _roi_pool_backward(grad, rois, argmax, spatial_scale, pooled_height, pooled_width, batch_size, channels, height,
                       width):
    """The gradient of the input of `roi_pool`."""
    return added_at(grad, rois, argmax, (batch_size, channels, height, width))
