"""Pooling as native steps: the largest of each window with its index, and gradients sent back to such indices; sums by
taps (means over windows, interpolation, padding); rows added up where an index says; running results.

`max_pool` goes over the outputs of a row by vectors where they are a step of one or two apart and their windows lie
inside the input; over others one by one, by vectors along the rows of a broad window. Of equals the first is taken, of
nans the last, as in PyTorch. `drop_weighted` adds elements at several indices, with weights, which channels share.

`weigh` carries out maps by taps (base/axis_maps.py) along one or two dimensions. For each row of the result, the rows
that it reads are weighted and summed to the thread's room, by vectors, and from there along the columns: one by one, or
by vectors where channels are last. The tables of both maps are the step's ints; a tap of weight zero is not in them.
"""
import itertools
import math
from typing import NamedTuple

import numpy as np

from ....base.axis_maps import taps_of
from ....loops.step import in_room
from .blocking import even_part, up
from .gemm import PIECE_CYCLES, LibraryCall, evenly
from .gemm_kernels import LLVM_ELEMENT, compiled_kernels
from .pool_kernels import (
    CHANNELS_DROPPED_TOGETHER,
    RUNNING_OPERATIONS,
    WINDOW_FIELDS,
    PoolKernels,
)
from .weighed_rows import SCATTERED, SUMMED, WEIGH_FIELDS

MIN_RUN = 8                   # columns that are copied together
MAX_WEIGH_TABLE = 1 << 16     # words of the tables of a step,
MAX_WEIGH_WIDE = 1 << 15      # and elements of a row of its input
TILE_COLUMNS = 64             # where rows are added up


def max_pool(dtype, x, y, maps):
    """A LibraryCall for the largest element of each window and its index in the flattened spatial dimensions; or None.

    `x` and `y` are (shape, strides in elements), [*lead, (D,) H, W] to [*lead, (out_d,) out_h, out_w]; `maps` are two
    or three windows, or adaptive ones (see base/axis_maps.py). The buffers are x, the values and the indices, which are
    laid out alike.
    """
    dtype, dims, maps = getattr(dtype, "name", dtype), len(maps), [as_window(m) for m in maps]
    if dtype not in LLVM_ELEMENT or dims not in (2, 3) or any(m[0] not in ("window", "adaptive") for m in maps) \
            or 0 in x[0] or 0 in y[0] or not all(m[0] == "adaptive" or reaches(m) for m in maps):
        return None
    planes = evenly(x[0][:-dims], x[1][:-dims]), evenly(y[0][:-dims], y[1][:-dims])
    axes = [(1, 1, "d", *pooled_axis(("window", 1, 1, 1, 1, 0, 1, False)))] * (3 - dims) \
        + [(m[1], m[2], axis, *pooled_axis(m)) for m, axis in zip(maps, "dhw"[-dims:], strict=True)]
    if None in planes or any(reach + out * pace >= 1 << 62 for _, out, _, pace, reach, *_ in axes):
        return None
    machine = compiled_kernels(dtype, PoolKernels)
    # outputs from `first` to `last` have windows inside the columns, and are made by vectors
    first = last = 0
    size_w, out_w = maps[-1][1:3]
    step_w = k_w = 1
    if maps[-1][0] == "window" and x[1][-1] == 1 and y[1][-1] == 1 and maps[-1][4] <= 2:
        k_w, step_w, pad_w, dil_w = maps[-1][3:7]
        first = min(out_w, -(-pad_w // step_w))
        last = max(first, min(out_w, (size_w - 1 - dil_w * (k_w - 1) + pad_w) // step_w + 1))
        if not machine.kernels.v.masks:    # whole vectors; by steps of two they end with an element that is not needed
            end = min(last, (size_w - 1 - dil_w * (k_w - 1) + pad_w - (step_w - 1)) // step_w + 1)
            last = first + max(0, end - first) // machine.lanes * machine.lanes
    f = dict(x_p=planes[0], y_p=planes[1], x_d=0, y_d=0, first=first, last=last, step_w=step_w, k_w=k_w)
    for axis, x_step, y_step in zip("dhw"[-dims:], x[1][-dims:], y[1][-dims:], strict=True):
        f[f"x_{axis}"], f[f"y_{axis}"] = x_step, y_step
    for size, out, axis, *words in axes:
        f[f"size_{axis}"], f[f"out_{axis}"] = size, out
        f.update(zip([f"{what}_{axis}" for what in ("pace", "reach", "shift", "pad", "dil")], words, strict=True))
    count, taps = math.prod(x[0][:-dims]), [m[3] if m[0] == "window" else -(-m[1] // m[2]) for m in maps]
    singles = out_w - last + first
    vectors = -(-(last - first) // machine.lanes) * taps[-1] + singles * -(-taps[-1] // machine.lanes)
    each = math.prod(y[0][-dims:-1]) * (math.prod(taps[:-1]) * 4 * vectors + 60 * singles) + 100   # cycles, about
    dilated = int(any(f[f"dil_{axis}"] > 1 for axis in "dhw"))
    return LibraryCall(machine.function("max_pool", dilated), count, min(count, max(1, PIECE_CYCLES // each)),
                       [f[name] for name in WINDOW_FIELDS])


def as_window(m):
    """An adaptive map as a window where all that it reads are equally large, and side by side."""
    if m[0] != "adaptive" or not m[2] or m[1] % m[2]:
        return m
    _, size, out = m
    return "window", size, out, size // out, size // out, 0, 1, False


def pooled_axis(m):
    """(pace, reach, shift, padding, dilation) of a window or an adaptive map.

    Output o reads from `(o * pace >> shift) - padding` to before `(o * pace + reach >> shift) - padding`. An adaptive
    map has o * size // out and -(-(o + 1) * size // out) there. A number n is divided by `out` as n * times >> shift,
    where `times` is 2 ** shift / out rounded up: that is too much by less than n / 2 ** shift, which is not as much as
    the quotient lacks to the next whole number, at least 1 / out, as long as n * out < 2 ** shift.
    """
    if m[0] == "window":
        _, _, _, kernel, stride, padding, dilation, _ = m
        return stride, dilation * (kernel - 1) + 1, 0, padding, dilation
    _, size, out = m
    shift = ((out * size + out) * out).bit_length()
    times = -(-(1 << shift) // out)
    return size * times, (size + out - 1) * times, shift, 0, 1


def weigh(dtype, x, y, maps, back, mean):
    """A LibraryCall for the maps `maps`, one or two, along the last dimensions of x; or None.

    With `back` they are transposed. With `mean` each sum is divided by the sizes of its windows, or, transposed, each
    element beforehand. `x` and `y` are (shape, strides in elements), contiguous or with channels last.
    """
    dtype = getattr(dtype, "name", dtype)
    if dtype not in LLVM_ELEMENT or len(maps) > 2 or 0 in x[0] or 0 in y[0]:
        return None
    planes = whole_planes(x, len(maps)), whole_planes(y, len(maps))
    if None in planes or planes[0].inner != planes[1].inner:
        return None
    source, result = planes
    tables = [taps_of(m) for m in maps]
    counts = [table.counts if mean else np.ones(table.index.shape[1]) for table in tables]
    if back:
        tables, divided = [table.back for table in tables], counts if mean else [None] * len(maps)
        counts = [np.ones(table.index.shape[1]) for table in tables]
    else:
        divided = [None] * len(maps)
    lists = [listed(table, by) for table, by in zip(tables, divided, strict=True)]
    if len(maps) == 1:                              # one row
        lists, counts = [([0, 1], [0], [1.0]), *lists], [[1.0], *counts]
    machine = compiled_kernels(dtype, PoolKernels)
    (down, rows_read, down_weights), (across, cols_read, across_weights) = lists
    wide, out_h, out_w = source.width * source.inner, len(down) - 1, len(across) - 1
    runs = [(first, end, how if how < 0 else how * source.inner) for first, end, how in runs_of(*lists[1])]
    words = [*down, *rows_read, *across, *[at * source.inner for at in cols_read], *itertools.chain(*runs)]
    numbers = [*down_weights, *across_weights, *counts[0], *counts[1]]
    if len(words) + len(numbers) > MAX_WEIGH_TABLE or wide > MAX_WEIGH_WIDE \
            or not in_room(machine.size, wide + 2 * machine.lanes):
        return None
    column = 6 if source.inner == 1 else up(source.inner, machine.lanes) / machine.lanes         # cycles, about
    taps = sum(end - first for first, end, how in runs if how == SUMMED) * len(cols_read) / out_w
    each = len(rows_read) * wide / machine.lanes / out_h + taps * column + 2 * out_w + 20        # of a row
    rows = even_part(out_h, max(1, int(PIECE_CYCLES // each)))
    f = dict(x_p=source.step, x_h=source.row, y_p=result.step, y_h=result.row, wide=wide, inner=source.inner,
             out_h=out_h, out_w=out_w, rows=rows, row_blocks=-(-out_h // rows), mean=int(mean and not back),
             runs=len(runs))
    at = len(WEIGH_FIELDS)
    for field, size in (("down_at", len(down) + len(rows_read)), ("across_at", len(across) + len(cols_read)),
                        ("runs_at", 3 * len(runs)), ("down_weights", len(down_weights)),
                        ("across_weights", len(across_weights)), ("down_counts", out_h), ("across_counts", out_w)):
        f[field], at = at, at + size
    tiles = source.count * f["row_blocks"]
    ints = [*[f[name] for name in WEIGH_FIELDS], *map(int, words),
            *np.array(numbers, np.float64).view(np.int64).tolist()]
    return LibraryCall(machine.function("weigh"), tiles, min(tiles, max(1, int(PIECE_CYCLES // (each * rows)))), ints)


def runs_of(begins, read, weights):
    """Columns of the result in order, as (first, end, what the first reads) of those that are copied side by side, and
    (first, end, SCATTERED) and (first, end, SUMMED) of those between that are copied one by one, and of the others."""
    counts = np.diff(begins)
    alone = (counts == 1) & (np.array(weights + [0.0])[begins[:-1]] == 1)
    at = np.where(alone, np.array(read + [0])[begins[:-1]], -1)
    goes_on = (alone[1:] & alone[:-1] & (np.diff(at) == 1)) | ~(alone[1:] | alone[:-1])
    edges = [0, *(np.flatnonzero(~goes_on) + 1).tolist(), len(at)]
    runs: list = []
    for first, end in itertools.pairwise(edges):
        how = SUMMED if not alone[first] else int(at[first]) if end - first >= MIN_RUN else SCATTERED
        if how == SCATTERED and runs and runs[-1][2] == SCATTERED:
            first = runs.pop()[0]
        runs.append((first, end, how))
    return runs


class Planes(NamedTuple):
    """How an array of images, or of rows, lies: `count` planes, `step` apart, of rows that lie `row` apart and have
    `width` positions of `inner` elements side by side."""
    count: int
    step: int
    row: int
    width: int
    inner: int


def whole_planes(laid, dims):
    """The Planes of (shape, strides), of which the last `dims` dimensions are a plane; None if they lie otherwise."""
    shape, strides = laid
    width, row = shape[-1], strides[-2] if dims == 2 else 0
    if strides[-1] == 1 or width == 1 and dims == 1:
        step = evenly(shape[:-dims], strides[:-dims])
        return None if step is None else Planes(math.prod(shape[:-dims]), step, row, width, 1)
    channels = shape[1] if len(shape) == 4 else 0
    if dims == 2 and channels and strides[1] == 1 and strides[3] == channels:
        return Planes(shape[0], strides[0], row, width, channels)
    return None


def listed(table, divided=None):
    """A table of taps as lists: where those of each output begin, what they read, and their weights, each divided by
    what is read there where `divided` says so."""
    index, weight = table.index.T, table.weight.T
    used = weight != 0
    read, weights = index[used], weight[used]
    if divided is not None:
        weights = weights / np.asarray(divided, float)[read]
    return [0, *np.cumsum(used.sum(1)).tolist()], read.tolist(), weights.tolist()


def drop_weighted(dtype, samples, channels, taps, count, size):
    """A LibraryCall that adds the elements of g [samples, channels, count], each `taps` times, times weight [samples,
    taps, count], at index [samples, taps, count] of zeros [samples, channels, size]; or None.

    An index less than 0 is nowhere. All are contiguous. The buffers are g, index, weight, out.
    """
    dtype = getattr(dtype, "name", dtype)
    if dtype not in LLVM_ELEMENT or not samples * channels * size:
        return None
    machine = compiled_kernels(dtype, PoolKernels)
    blocks = -(-channels // CHANNELS_DROPPED_TOGETHER)
    each = min(channels, CHANNELS_DROPPED_TOGETHER) * (2 * taps * count + size // 8) + 20
    return LibraryCall(machine.function("drop_weighted"), samples * blocks,
                       min(samples * blocks, max(1, PIECE_CYCLES // each)), [channels, blocks, taps, count, size])


def add_weighted_rows(dtype, count, cols, size, taps):
    """A LibraryCall that adds each row of g [count, cols], times the `taps` numbers of its row of weight, at those of
    its row of index, to zeros [size, cols]; or None.

    All are contiguous and every index is in range. The buffers are g, index, weight, out.
    """
    dtype = getattr(dtype, "name", dtype)
    if dtype not in LLVM_ELEMENT or not count or not cols or not size or not taps:
        return None
    machine = compiled_kernels(dtype, PoolKernels)
    tiles = -(-cols // TILE_COLUMNS)
    each = (2 * count * taps + size) * min(cols, TILE_COLUMNS) // machine.lanes + 5 * count * taps
    return LibraryCall(machine.function("add_weighted_rows"), tiles, min(tiles, max(1, PIECE_CYCLES // each)),
                       [count, size, cols, TILE_COLUMNS, taps])


def sum_weighted_rows(dtype, count, cols, taps):
    """A LibraryCall for the sums [count, cols] of rows of a table: for each, those that its row of index says, each
    times a number of its row of weight [count, taps]; or None.

    All are contiguous and every index is in range. The buffers are table, index, weight, out.
    """
    dtype = getattr(dtype, "name", dtype)
    if dtype not in LLVM_ELEMENT or not count or not cols or not taps:
        return None
    machine = compiled_kernels(dtype, PoolKernels)
    each = taps * (-(-cols // machine.lanes) + 4) + 10
    return LibraryCall(machine.function("sum_weighted_rows"), count, min(count, max(1, PIECE_CYCLES // each)),
                       [cols, taps])


def scan(dtype, operation, shape, dim):
    """A LibraryCall for the running results of an `operation` along `dim` of a contiguous array; or None.

    The buffers are x and out; for "recur", where each result is x and a factor times the one before, the factors come
    between them, and for "max" and "min" the indices along `dim` come last.
    """
    dtype = getattr(dtype, "name", dtype)
    if dtype not in LLVM_ELEMENT or operation not in RUNNING_OPERATIONS or 0 in shape:
        return None
    machine = compiled_kernels(dtype, PoolKernels)
    outer, count, inner = math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1:])
    each = 4 * count * max(1, 2 * inner // machine.lanes) + 20
    least = max(1, PIECE_CYCLES // each)
    return LibraryCall(machine.function("scan", operation), outer, min(outer, least), [count, inner])


def reaches(window):
    """Whether every window has an element of the input."""
    _, size, out, kernel, stride, padding, dilation, _ = window
    starts = [o * stride - padding for o in range(out)]
    return all(any(0 <= start + k * dilation < size for k in range(kernel)) for start in starts)
