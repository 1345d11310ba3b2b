"""Counting: histograms, how often each number comes, what is distinct."""
import numpy as np

from ..base import dtypes, shapes
from ..base.errors import need
from ..base.op import Composite, Op, door
from ..base.spec import spec
from .convert import cast
from .index_along import sent_along
from .reduce import not_for, only

# --- counting -------------------------------------------------------------------------------------------------------


class histc(Op):
    """How many elements fall into each of `bins` equal parts from `min` to `max` (of the data, if both are equal)."""

    forms = "function method out"
    eager = True                                      # the range is refused if the data makes it infinite
    strict_out = True

    def meta(input, bins=100, min=0, max=0):
        need(bins > 0, f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
        on_cpu = input.device.type == "cpu"
        not_for(input.dtype, "bool int complex" if on_cpu else "bool complex", "histogram_cpu" if on_cpu else "histc")
        need(max >= min, f"torch.histc: max must be larger than min, but they are {max} and {min}")
        return spec(input.dtype, (bins,), None, input.device)

    def ref(xp, input, bins=100, min=0, max=0):
        low, high = outer_edges(xp, input, min, max, 1, "torch.histc")
        x = input[(input >= low) & (input <= high)]
        whole = input.dtype.kind in "iu"                  # on a GPU alone, whose bins are those of whole numbers
        at = (x - low) * bins // (high - low) if whole else ((x - low) * bins / (high - low)).astype(np.int64)
        return xp.bincount(xp.minimum(at, bins - 1).astype(np.int64), minlength=bins)


class histogram(Op):
    """How many elements (or how much `weight`) fall into each bin, and the bins' edges.

    `bins` is a number of equal parts of `range` (of the data without one), or the edges themselves.
    """

    forms = "function method out"
    returns = "histogram hist bin_edges"
    strict_out = True
    eager = True

    def meta(input, bins, *, range=None, weight=None, density=False):
        need(input.dtype in (dtypes.float32, dtypes.float64),
             f"\"histogramdd\" not implemented for '{input.dtype.cname}'", NotImplementedError)
        if isinstance(bins, int):
            need(bins > 0, f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
            size = bins
        else:
            need(bins.ndim == 1, f"torch.histogramdd: bins tensor should have one dimension, but got {bins.ndim} "
                                 "dimensions in the bins tensor for dimension 0")
            need(bins.dtype is input.dtype, "torch.histogramdd: input tensor and bins tensors should have the same "
                                            f"dtype, but got input with dtype {input.dtype.name} and bins for "
                                            f"dimension 0 with dtype {bins.dtype.name}")
            size = bins.shape[0] - 1
            need(size >= 0, "torch.histogramdd: bins tensor should have at least one edge, but got 0 for dimension 0")
        if weight is not None:
            need(weight.shape == input.shape, "torch.histogramdd: if weight tensor is provided it should have the same "
                                              "shape as the input tensor, but got input with shape "
                                              f"{list(input.shape)} and weight with shape {list(weight.shape)}")
            need(weight.dtype is input.dtype, "torch.histogramdd: if weight tensor is provided, input tensor and "
                 f"weight tensor should have the same dtype, but got {input.dtype.name} and {weight.dtype.name}")
        return spec(input.dtype, (size,), None, input.device), spec(input.dtype, (size + 1,), None, input.device)

    def ref(xp, input, bins, *, range=None, weight=None, density=False):
        x = input.reshape(-1)
        if isinstance(bins, int):
            low, high = outer_edges(xp, x, *(range or (0, 0)), 0.5, "torch.histogramdd", given=range is not None)
            edges = line(xp, low, high, bins + 1, input.dtype)
        else:
            edges = bins
        size = len(edges) - 1
        inside = (x >= edges[0]) & (x <= edges[-1]) if size else xp.zeros(x.shape, bool)
        at = xp.minimum(xp.searchsorted(edges, x[inside], side="right") - 1, size - 1)
        weights = None if weight is None else weight.reshape(-1)[inside]
        hist = xp.bincount(at, weights, minlength=size)[:size].astype(input.dtype)
        return hist / (hist.sum() * xp.diff(edges)) if density else hist, edges

    def d_input(g):  raise NotImplementedError("derivative for aten::histogram is not implemented")
    def d_bins(g):   raise NotImplementedError("derivative for aten::histogram is not implemented")
    def d_weight(g): raise NotImplementedError("derivative for aten::histogram is not implemented")


def outer_edges(xp, x, low, high, widen, name, given=False):
    """The range of a histogram: as given, of the data if it is empty, widened if that is a single point."""
    low, high = x.dtype.type(low), x.dtype.type(high)
    if low == high and not given:
        low, high = (x.min(), x.max()) if x.size else (low, high + 1)
    need(xp.isfinite(low) and xp.isfinite(high), f"{name}: range of [{low}, {high}] is not finite")
    need(low <= high, f"{name}: max must be larger than min, but they are {high} and {low}")
    return (low, high) if low != high else (low - x.dtype.type(widen), high + x.dtype.type(widen))


def line(xp, low, high, n, dtype):
    """`n` numbers from `low` to `high`, each counted from the nearer end, as `linspace` has them."""
    step = (high - low) / dtype.type(n - 1)
    i = xp.arange(n)
    return xp.where(i < n // 2, low + step * i, high - step * (n - 1 - i)).astype(dtype)


class bincount(Composite):
    """How often each of 0, 1, 2… is in `input`, or the sum of the `weights` that stand beside it."""

    by_specs = False          # but by what is known of the contents

    def of(input, weights=None, minlength=0):
        known = input._pending_bounds() if isinstance(minlength, int) and isinstance(input, door.tensor) else None
        if known is not None and 0 <= known[0] and known[1] < minlength:          # so that is how many there are
            return _counts_below(input, weights, minlength)
        return _bincount(input, weights, minlength)


class _bincount(Op):
    """`bincount`, whose length is in the data."""

    called = "bincount"
    eager = exact = True

    def meta(input, weights=None, minlength=0): counted(input, weights, minlength)

    def ref(xp, input, weights=None, minlength=0):
        low = input.min() if input.size else 0
        need(low >= 0, f"bincount only supports 1-d non-negative integral inputs, the smallest here is {low}.")
        return counts(xp, input, weights, minlength)

    def d_weights(g): raise NotImplementedError("the derivative for 'bincount' is not implemented.")


class _counts_below(_bincount):
    """`bincount` of numbers that are all known to be below `count`."""

    eager = False

    def meta(input, weights, count): return spec(counted(input, weights, count), (count,), None, input.device)
    def ref(xp, input, weights, count): return counts(xp, input, weights, count)
    def bounds(weights, input_spec): return (0, input_spec.numel) if weights is None else None

    def body(k, input, weights, count):
        if weights is not None and weights.dtype is dtypes.float32:              # added up in float64
            return NotImplemented
        beside = k.const(1, dtypes.int64) if weights is None else k.cast(weights, dtypes.float64)
        return sent_along(k, "sum", k.expand(beside, (input.numel,)), input, (count,), 0)


def counted(input, weights, minlength):
    """Check what `bincount` is given; the dtype of its result."""
    need(minlength >= 0, f"minlength should be >= 0, but it is {minlength}")
    not_for(input.dtype, "bool float complex", "bincount_cpu")
    need(input.ndim == 1, f"bincount only supports 1-d non-negative integral inputs, this one has {input.ndim} "
                          "dimensions.")
    need(weights is None or weights.shape == input.shape, "weights should be 1-d and have the same length as "
         f"input, which is {list(input.shape)}")
    return dtypes.int64 if weights is None or not input.numel else \
        dtypes.float32 if weights.dtype is dtypes.float32 else dtypes.float64


def counts(xp, input, weights, minlength):
    """`bincount` by NumPy."""
    input = input.astype(np.int64, copy=False)
    if weights is None or not input.size:
        return xp.bincount(input, minlength=minlength).astype(np.int64, copy=False)
    summed = xp.bincount(input, cast(xp, weights, dtypes.float64), minlength)
    return summed.astype(np.float32 if weights.dtype == np.float32 else np.float64)


# --- distinct elements ----------------------------------------------------------------------------------------------


class unique(Composite):
    """The distinct elements of `input` (slices along `dim`, if given), in order.

    With `return_inverse` also where each element went, with `return_counts` also how many there were of each.

    >>> torch.tensor([3, 1, 3]).unique(return_counts=True)
    (tensor([1, 3]), tensor([1, 2]))
    """

    def of(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
        found = (_unique2 if dim is None else _unique_dim)(input, dim, bool(return_inverse), bool(return_counts))
        return asked(found, return_inverse, return_counts)


class unique_consecutive(Composite):
    """`input` (slices along `dim`, if given) with repetitions of the element before left out."""

    def of(input, return_inverse=False, return_counts=False, dim=None):
        found = _unique_consecutive(input, dim, bool(return_inverse), bool(return_counts))
        return asked(found, return_inverse, return_counts)


def asked(found, inverse, counts):
    """The results of `unique` that were asked for."""
    results = [t for t, wanted in zip(found, (True, inverse, counts), strict=True) if wanted]
    return tuple(results) if len(results) > 1 else results[0]


class _unique2(Op):
    """(distinct elements, where each element went, how many there were); empty is what is not asked for."""

    called = "unique"
    eager = exact = True

    def meta(input, dim, inverse, counts):
        distinct_spec(input, dim)
        return None, None, None

    def ref(xp, input, dim, inverse, counts):  return distinct(xp, input, dim, True, inverse, counts)
    def d_input(g): raise NotImplementedError("the derivative for '_unique2' is not implemented.")


class _unique_dim(_unique2):
    """(distinct slices along `dim`, where each slice went, how many there were)."""

    def d_input(g): raise NotImplementedError("the derivative for 'unique_dim' is not implemented.")


class _unique_consecutive(_unique2):
    """(elements without repetitions of the one before, where each went, how many there were)."""

    called = "unique_consecutive"

    def ref(xp, input, dim, inverse, counts):  return distinct(xp, input, dim, False, inverse, counts)
    def d_input(g): raise NotImplementedError("the derivative for 'unique_consecutive' is not implemented.")


def distinct_spec(input, dim):
    """Refuse what has no distinct slices."""
    not_for(input.dtype, "complex", "unique" if dim is None else "unique_dim")
    if dim is not None:
        d = shapes.wrap_dim(only(dim), input.ndim, scalar_ok=False)
        empty = [k for k, n in enumerate(input.shape) if n == 0]
        need(not empty or empty == [d], "There are 0 sized dimensions, and they aren't selected, so unique cannot be "
             "applied")


def distinct_elements(xp, input, ordered, inverse, counts):
    """(distinct, inverse, counts) of all elements; sorted first if `ordered`. Of equals the first is taken."""
    flat, n, none, order = input.reshape(-1), input.size, xp.zeros(0, xp.int64), None
    if ordered:
        order = xp.argsort(flat, kind="stable") if inverse or input.dtype.kind == "f" else None
        flat = xp.sort(flat) if order is None else flat[order]
    starts = xp.ones(n, bool)
    starts[1:] = flat[1:] != flat[:-1]
    group = none
    if inverse:
        group = xp.cumsum(starts) - 1
        if order is not None:
            placed = xp.empty(n, xp.int64)
            placed[order] = group
            group = placed
        group = group.reshape(input.shape)
    return flat[starts], group, xp.diff(xp.append(xp.flatnonzero(starts), n)) if counts else none


def distinct(xp, input, dim, ordered, with_inverse=True, with_counts=True):
    """(distinct, inverse, counts) of elements or of slices along `dim`; sorted first if `ordered`."""
    if dim is None and (input.dtype.itemsize != 2 or input.dtype.kind in "iu"):
        return distinct_elements(xp, input, ordered, with_inverse, with_counts)
    slices = input.reshape(-1) if dim is None else xp.moveaxis(input, dim, 0)
    n = len(slices)
    keys = slices.reshape(n, -1) if n else slices.reshape(0, 1)
    keys = keys.astype(np.float32) if keys.dtype.itemsize == 2 and keys.dtype.kind not in "iu" else keys
    order = xp.lexsort(keys.T[::-1]) if ordered else xp.arange(n)
    keys = keys[order]
    starts = xp.ones(n, bool)
    starts[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    group = xp.cumsum(starts) - 1
    inverse = xp.empty(n, np.int64)
    inverse[order] = group
    values = slices[order[starts]]
    counts = xp.bincount(group, minlength=0).astype(np.int64)
    if dim is None:
        return values, inverse.reshape(input.shape), counts
    return xp.moveaxis(values, 0, dim), inverse, counts
