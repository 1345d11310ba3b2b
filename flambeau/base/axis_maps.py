"""Maps along one dimension by taps: each output reads a few inputs, with weights.

Pooling, interpolation and mirrored padding are such maps, one per dimension. A map is named by a tuple
(kind, size of the input, size of the output, …), so that it can stand among an operation's parameters; `taps_of`
gives its table. Tap t of output o reads input `index[t, o]` times `weight[t, o]`; a weight of zero means that it reads
nothing. The transposed map, which gradients need, has a table of the same form.
"""
from functools import lru_cache

import numpy as np


class Taps:
    """The table of one map, and the steps that carry it out."""

    __slots__ = ("index", "weight", "size", "counts", "_steps", "_back")

    def __init__(self, index, weight, size, counts=None):
        self.index, self.weight, self.size = index, weight, size
        self.counts = counts                 # what a mean over the window divides by, per output
        self._steps = self._back = None

    @property
    def steps(self):
        """A list of (outputs, inputs, weights): slices where positions are evenly spaced, None for weights of one.

        Only what is read is in it: nothing times an infinity is not nothing.
        """
        if self._steps is None:
            self._steps = []
            for row, weight in zip(self.index, self.weight, strict=True):
                used = np.flatnonzero(weight)
                if used.size:
                    w = weight[used]
                    self._steps.append((evenly(used), evenly(row[used]), None if (w == 1).all() else w))
        return self._steps

    @property
    def back(self):
        """The transposed map."""
        if self._back is None:
            tap, out = np.nonzero(self.weight)
            source = self.index[tap, out]
            order = np.lexsort((out, source))
            tap, out, source = tap[order], out[order], source[order]
            first = np.searchsorted(source, source, side="left")
            nth = np.arange(source.size) - first             # how many readers of that input came before
            shape = (int(nth.max(initial=0)) + 1, self.size)
            index, weight = np.zeros(shape, np.intp), np.zeros(shape)
            index[nth, source], weight[nth, source] = out, self.weight[tap, out]
            self._back = Taps(index, weight, self.index.shape[1])
        return self._back


def evenly(row):
    """A slice for positions that rise evenly, else the positions themselves."""
    step = int(row[1] - row[0]) if row.size > 1 else 1
    if step > 0 and (row.size < 3 or (np.diff(row) == step).all()):
        return slice(int(row[0]), int(row[-1]) + 1, step)
    return row


# --- carrying out -----------------------------------------------------------------------------------------------------


def read(xp, x, axis, inputs):
    """`x` at `inputs` along `axis`: a view for a slice."""
    return x[at(axis, inputs)] if inputs.__class__ is slice else xp.take(x, xp.asarray(inputs), axis)


def at(axis, where):
    """An index that means `where` along the negative `axis`."""
    return (Ellipsis, where, *[slice(None)] * (-axis - 1))


def along(xp, row, axis, dtype):
    """A row of numbers as an array that broadcasts along the negative `axis`."""
    return xp.asarray(row, dtype).reshape(-1, *[1] * (-axis - 1))


def weighted_sum(xp, x, axis, taps):
    """The map carried out along the negative `axis`."""
    size = taps.index.shape[1]
    out = None
    for outputs, inputs, weight in taps.steps:
        part = read(xp, x, axis, inputs)
        if weight is not None:
            part = part * along(xp, weight, axis, x.dtype)
        if out is None and everything(outputs, size):
            out = part.copy() if part.base is not None else part
            continue
        if out is None:
            out = blank(xp, x, axis, size)
        out[at(axis, outputs)] += part
    return blank(xp, x, axis, size) if out is None else out


def everything(outputs, size):
    """Whether the outputs of a step are all there are."""
    return outputs.__class__ is slice and outputs == slice(0, size, 1)


def blank(xp, x, axis, size):
    """Zeros like `x`, but of `size` along `axis`."""
    shape = list(x.shape)
    shape[axis] = size
    return xp.zeros(shape, x.dtype)


def maximum(xp, x, label, axis, taps):
    """(the largest value that each output reads along the negative `axis`, its label)

    Of equals it is the first, of nans the last.
    `label` broadcasts to `x`'s shape and has that size along `axis`. Weights only say which taps are there.
    """
    size = taps.index.shape[1]
    first = taps.index[np.argmax(taps.weight != 0, 0), np.arange(size)]
    best = read(xp, x, axis, evenly(first)).copy()
    chosen = xp.broadcast_to(read(xp, label, axis, evenly(first)), best.shape).copy()
    nans = x.dtype.kind not in "iub" and bool(xp.isnan(xp.max(x, initial=0)))
    done = taps.steps[:1] if taps.steps and everything(taps.steps[0][0], size) else []      # what `best` started from
    for outputs, inputs, _ in taps.steps[len(done):]:
        part, where = read(xp, x, axis, inputs), at(axis, outputs)
        better = part > best[where]
        if nans:
            better |= part != part
        best[where] = xp.maximum(best[where], part)
        chosen[where] = xp.where(better, read(xp, label, axis, inputs), chosen[where])
    return best, chosen


# --- the maps ---------------------------------------------------------------------------------------------------------


@lru_cache(4096)
def taps_of(name):
    """The table of the map called `name`."""
    return MAP_KINDS[name[0]](*name[1:])


@lru_cache(4096)
def repeats(name):
    """How many outputs in a row read each input, where that is all that the map called `name` does; else None."""
    return repetition(taps_of(name))


@lru_cache(4096)
def adjoins(name):
    """How many inputs in a row make up each output, where windows lie side by side and cover everything; else None, as
    where a mean over them would count padding too."""
    table = taps_of(name)
    times = repetition(table.back)
    counts_others = times is not None and table.counts is not None and (table.counts != times).any()
    return None if counts_others else times


def repetition(table):
    """How many outputs in a row read each input, where that is all that the table says; else None."""
    count, out = table.index.shape
    times = out // max(table.size, 1)
    alone = count == 1 and times and table.size * times == out and (table.weight == 1).all()
    return times if alone and (table.index[0] == np.arange(out) // times).all() else None


def window(size, out, kernel, stride, padding, dilation, include_pad):
    """A pooling window that moves by `stride`; `counts` says how many elements it holds, padding counted or not."""
    start = np.arange(out) * stride - padding
    index = start + np.arange(kernel)[:, None] * dilation
    there = (index >= 0) & (index < size)
    if include_pad:
        counts = np.minimum(start + kernel, size + padding) - start
    else:
        counts = np.minimum(start + kernel, size) - np.maximum(start, 0)
    return Taps(np.clip(index, 0, max(size - 1, 0)), there.astype(float), size, counts)


def adaptive(size, out):
    """`out` windows that cover everything, as equal as they can be."""
    positions = np.arange(out)
    start = positions * size // out
    end = -(-(positions + 1) * size // out)
    index = start + np.arange((end - start).max(initial=0))[:, None]
    return Taps(np.minimum(index, end - 1), (index < end).astype(float), size, end - start)


def step_of(size, out, align_corners, scale):
    """How far the source moves per output."""
    if align_corners:
        return (size - 1) / (out - 1) if out > 1 else 0.0
    return 1.0 / scale if scale is not None and scale > 0 else size / out


def sources(size, out, align_corners, scale, below_zero):
    """Where each output's centre falls among the inputs."""
    step, positions = step_of(size, out, align_corners, scale), np.arange(out)
    if align_corners:
        return step * positions
    source = step * (positions + 0.5) - 0.5
    return source if below_zero else np.maximum(source, 0)


def nearest(size, out, scale, wide, exact):
    """The input under each output's corner, or under its centre if `exact`.

    It is computed in PyTorch's precision, since a rounding error chooses another input.
    """
    dtype = np.float64 if wide else np.float32
    step = dtype(1.0 / scale) if scale is not None and scale > 0 else dtype(size) / dtype(out)
    source = step * (np.arange(out, dtype=dtype) + dtype(0.5 if exact else 0))
    index = np.minimum(np.floor(source.astype(np.float32)), size - 1).astype(np.intp)
    return Taps(index[None], np.ones((1, out)), size)


def split(source, size):
    """(the input before each position, how far behind it the position is)"""
    before = np.minimum(np.floor(source).astype(np.intp), size - 1)
    return before, np.clip(source - before, 0, 1)


def same(size):
    """Each input as it is: what PyTorch does where the size stays, whatever the scale says."""
    return Taps(np.arange(size)[None], np.ones((1, size)), size)


def linear(size, out, align_corners, scale):
    """Between the two inputs around each position."""
    if size == out:
        return same(size)
    before, share = split(sources(size, out, align_corners, scale, False), size)
    index = np.stack([before, np.minimum(before + 1, size - 1)])
    return Taps(index, np.stack([1 - share, share]), size)


def cubic_weights(t, a=-0.75):
    """The weights of the inputs at -1, 0, 1, 2 for a position `t` between 0 and 1."""
    def near(x): return ((a + 2) * x - (a + 3)) * x * x + 1
    def far(x):  return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def cubic(size, out, align_corners, scale):
    """A cubic through the four inputs around each position."""
    before, share = split(sources(size, out, align_corners, scale, True), size)
    index = np.clip(before + np.arange(-1, 3)[:, None], 0, size - 1)
    return Taps(index, np.stack(cubic_weights(share)), size)


def triangle_filter(x):
    return np.maximum(1 - np.abs(x), 0)


def cubic_filter(x):
    x, a = np.abs(x), -0.5                                   # Pillow's, unlike the one above
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def lanczos_filter(x):
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


ANTIALIAS_FILTERS = {"linear": (2, triangle_filter), "cubic": (4, cubic_filter), "lanczos": (6, lanczos_filter)}


def smooth(size, out, align_corners, scale, filter_name):
    """A filter as wide as one output, so that shrinking averages over all it leaves out."""
    if size == out:
        return same(size)
    width, weigh = ANTIALIAS_FILTERS[filter_name]
    step = step_of(size, out, align_corners, scale)
    stretch = max(step, 1.0)
    support = width * 0.5 * stretch
    centre = step * (np.arange(out) + 0.5)
    low = np.maximum((centre - support + 0.5).astype(np.intp), 0)
    high = np.minimum((centre + support + 0.5).astype(np.intp), size)
    index = low + np.arange(int(np.ceil(support)) * 2 + 1)[:, None]
    weight = np.where(index < high, weigh((index - centre + 0.5) / stretch), 0)
    total = weight.sum(0)
    return Taps(np.minimum(index, size - 1), weight / np.where(total == 0, 1, total), size)


def reflect(size, out, before):
    """Mirrored at the first and the last input, which are not repeated."""
    position = np.abs(np.arange(out) - before)
    index = np.where(position >= size, 2 * (size - 1) - position, position)
    return Taps(index[None], np.ones((1, out)), size)


def replicate(size, out, before):
    """The first and the last input go on."""
    return Taps(np.clip(np.arange(out) - before, 0, size - 1)[None], np.ones((1, out)), size)


def circular(size, out, before, after):
    """After the last input comes the first; negative padding cuts first."""
    start, end = max(-before, 0), size - max(-after, 0)
    index = start + (np.arange(out) - max(before, 0)) % max(end - start, 1)
    return Taps(index[None], np.ones((1, out)), size)


MAP_KINDS = {"window": window, "adaptive": adaptive, "nearest": nearest, "linear": linear, "cubic": cubic,
             "smooth": smooth, "reflect": reflect, "replicate": replicate, "circular": circular}


# --- bytes ------------------------------------------------------------------------------------------------------------


def byte_sum(xp, x, axis, taps):
    """The map on bytes, in whole numbers as Pillow and PyTorch do it: weights of 16 bits, bytes again at the end."""
    weight, top = merged(taps)
    bits = 0
    while bits < 22 and int(0.5 + top * (1 << bits + 1)) < 1 << 15:
        bits += 1
    scaled = weight * (1 << bits)
    whole = np.where(scaled < 0, scaled - 0.5, scaled + 0.5).astype(np.int32)      # cut towards zero: to the nearest
    total = 1 << bits - 1
    for row, w in zip(taps.index, whole, strict=True):
        total = total + read(xp, x, axis, row).astype(np.int32) * along(xp, w, axis, np.int32)
    return xp.clip(total >> bits, 0, 255).astype(np.uint8)


def merged(taps):
    """(weights with taps of one input, neighbours at the border, added into the last; the largest met on the way)"""
    weight, top = taps.weight.copy(), 0.0
    for t in range(len(weight)):
        if t:
            same = taps.index[t] == taps.index[t - 1]
            weight[t] += np.where(same, weight[t - 1], 0)
            weight[t - 1][same] = 0
        top = max(top, weight[t].max(initial=0))
    return weight, top
