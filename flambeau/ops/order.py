"""Order: sorted elements, and those at a rank of the order, as medians and quantiles.

NaN ranks above everything, as in PyTorch, and equal elements keep their order wherever that can be had.
"""
import math

import numpy as np

from ..base import dtypes, shapes
from ..base.bounds import positions
from ..base.errors import need
from ..base.op import Composite, Op, door
from ..base.spec import spec
from .extremes import _take_along, picked, selected, to_equals
from .reduce import nonempty, not_for, only, reduced

# --- sorting --------------------------------------------------------------------------------------------------------


def ranked(xp, x, axis, descending=False):
    """The positions along `axis` that put `x` in order."""
    if not descending:
        return xp.argsort(x, axis=axis, kind="stable")
    last = x.shape[axis] - 1                  # sorted backwards and read backwards, so that equal ones keep their order
    return last - xp.flip(xp.argsort(xp.flip(x, axis), axis=axis, kind="stable"), axis)


def in_rows(k, name, input, dim, count, params):
    """For a body: (values, indices) that a library makes of the rows along `dim`, `count` of each if that is given;
    NotImplemented without a library."""
    if not input.ndim or 0 in input.shape or count == 0:
        return NotImplemented
    d, last = dim % input.ndim, input.ndim - 1
    x = along_last(k, input, d)
    shape = x.shape if count is None else (*x.shape[:-1], count)
    made = k.library(name, (x,), [(x.dtype, shape), (dtypes.int64, shape)], params)
    if made is None or d == last:
        return NotImplemented if made is None else made
    return tuple([k.permute(part, [*range(d), last, *range(d, last)]) for part in made])


def along_last(k, input, d):
    """For a body: `input` with dimension `d` as its last."""
    last = input.ndim - 1
    return input if d == last else k.permute(input, [*range(d), *range(d + 1, last + 1), d])


def one_of_rows(k, input, dim, keepdim, which, rank=0):
    """For a body: (values, indices) of one element of each row along `dim`, by its rank in their order; NotImplemented
    without a library. See `pick` in backends/cpu/library/sort.py."""
    if not input.ndim or 0 in input.shape:
        return NotImplemented
    d = dim % input.ndim
    x = along_last(k, input, d)
    shape = x.shape[:-1]
    made = k.library("pick", (x,), [(x.dtype, shape), (dtypes.int64, shape)], (which, rank))
    if made is None or not keepdim:
        return NotImplemented if made is None else made
    return tuple([k.reshape(part, (*shape[:d], 1, *shape[d:])) for part in made])


def one_of_all(k, input, which):
    """For a body: the value alone, of all elements."""
    made = one_of_rows(k, k.reshape(input, (input.numel,)), 0, False, which)
    return made if made is NotImplemented else made[0]


class sort(Op):
    """`input` in order along `dim`, and where each element was.

    >>> torch.tensor([3, 1, 2]).sort(descending=True)
    torch.return_types.sort(
    values=tensor([3, 2, 1]),
    indices=tensor([0, 2, 1]))
    """

    forms = "function method out"
    returns = "sort values indices"
    strict_out = True

    def meta(input, dim=-1, descending=False, *, stable=False):
        shapes.wrap_dim(only(dim), input.ndim)
        need(not input.dtype.is_complex, "Sort does not support complex dtypes on CPU")
        laid = shapes.preserved_strides(input.shape, input.strides)
        return input.like(strides=laid), input.like(dtypes.int64, strides=laid)

    def ref(xp, input, dim=-1, descending=False, *, stable=False):
        if not input.ndim:
            return input, xp.zeros((), np.int64)
        at = ranked(xp, input, dim, descending)
        return xp.take_along_axis(input, at, dim), at

    def bounds(input, input_spec, dim): return [input, positions(input_spec, dim)]

    def body(k, input, dim=-1, descending=False, *, stable=False):
        return in_rows(k, "sort", input, dim, None, (bool(descending),))

    def d_input(g, out1, input_spec, dim): return selected(g[0], out1, input_spec, dim, True)


class argsort(Composite):
    """The positions along `dim` that put `input` in order."""

    forms = "function method out"
    strict_out = True

    def of(input, dim=-1, descending=False, *, stable=False): return sort(input, dim, descending, stable=stable).indices


class msort(Composite):
    """`input` in order along its first dimension."""

    forms = "function method out"
    strict_out = True

    def of(input): return sort(input, 0).values


class topk(Op):
    """The `k` largest elements along `dim` (or the smallest, if not `largest`), and where they were."""

    forms = "function method out"
    returns = "topk values indices"
    strict_out = True

    def meta(input, k, dim=-1, largest=True, sorted=True):
        d = shapes.wrap_dim(only(dim), input.ndim)
        for refused in ("complex", "bool"):
            need(not input.dtype.name.startswith(refused), f"topk does not support {refused} dtypes on CPU")
        n = input.shape[d] if input.ndim else 1
        need(0 <= k <= n, f"selected index k out of range: k is {k}, dimension {d} has {n} elements")
        shape = (*input.shape[:d], k, *input.shape[d + 1:]) if input.ndim else ()
        return spec(input.dtype, shape, None, input.device), spec(dtypes.int64, shape, None, input.device)

    def ref(xp, input, k, dim=-1, largest=True, sorted=True):
        if not input.ndim:
            return input, xp.zeros((), np.int64)
        n = input.shape[dim]
        if 0 < k < n // 4:                                         # few of many: part them off, then put those in order
            parts = xp.argpartition(input, n - k if largest else k - 1, axis=dim)
            at = xp.sort(xp.take(parts, xp.arange(n - k, n) if largest else xp.arange(k), axis=dim), axis=dim)
            few = xp.take_along_axis(input, at, dim)
            at = xp.take_along_axis(at, ranked(xp, few, dim, largest), dim)
        else:
            at = xp.take(ranked(xp, input, dim, largest), xp.arange(k), axis=dim)
        return xp.take_along_axis(input, at, dim), at

    def bounds(input, input_spec, dim): return [input, positions(input_spec, dim)]

    def body(words, input, k, dim=-1, largest=True, sorted=True):
        return in_rows(words, "topk", input, dim, k, (k, bool(largest)))

    def d_input(g, out1, input_spec, dim): return selected(g[0], out1, input_spec, dim, True)


class kthvalue(Op):
    """The `k`-th smallest element along `dim` (counted from 1), and where it was."""

    forms = "function method out"
    returns = "kthvalue values indices"
    strict_out = True
    out_no_overlap = True

    def meta(input, k, dim=-1, keepdim=False):
        d = shapes.wrap_dim(only(dim), input.ndim)
        nonempty(input, dim, "kthvalue")
        n = input.shape[d] if input.ndim else 1
        need(1 <= k <= n, f"kthvalue(): selected number k out of range for dimension {d}: k is {k}, of {n} elements")
        not_for(input.dtype, "bool complex", "kthvalue_cpu")
        return reduced(input, dim, keepdim), reduced(input, dim, keepdim, dtypes.int64)

    def ref(xp, input, k, dim=-1, keepdim=False):
        if not input.ndim:
            return input, xp.zeros((), np.int64)
        return picked(xp, input, xp.take(xp.argpartition(input, k - 1, axis=dim), [k - 1], axis=dim), dim, keepdim)

    def bounds(input, input_spec, dim): return [input, positions(input_spec, dim)]

    def body(words, input, k, dim=-1, keepdim=False):
        return one_of_rows(words, input, dim, keepdim, "kthvalue", k - 1)

    def d_input(g, out1, input_spec, dim, keepdim): return selected(g[0], out1, input_spec, dim, keepdim)


# --- medians, modes, quantiles --------------------------------------------------------------------------------------


class median(Composite):
    """The middle element (the lower of two) of all, or with `dim` (values, indices) along it; NaN if any is.

    >>> torch.tensor([3., 1., 2., 9.]).median()
    tensor(2.)
    """

    forms = "function method out"
    returns = "median values indices"
    strict_out = "several"
    out_no_overlap = True

    def of(input, dim=None, keepdim=False):
        return _median(input) if dim is None else _median_dim(input, only(dim), keepdim)


class nanmedian(Composite):
    """The middle element of those that are not NaN, of all, or with `dim` (values, indices) along it."""

    forms = "function method out"
    returns = "nanmedian values indices"
    strict_out = "several"
    out_no_overlap = True

    def of(input, dim=None, keepdim=False):
        return _nanmedian(input) if dim is None else _nanmedian_dim(input, only(dim), keepdim)


class _median(Op):
    """The lower middle of all elements."""

    def meta(input):
        not_for(input.dtype, "bool complex", "median_cpu")
        return reduced(input, None, False)

    def ref(xp, input):
        flat = input.reshape(-1)
        if not flat.size:
            return xp.full((), math.nan).astype(input.dtype)
        if flat.dtype.kind == "f" and xp.isnan(flat).any():
            return xp.full((), math.nan)
        return middle(xp, flat)

    def bounds(input): return input

    def body(k, input):      return one_of_all(k, input, "median")
    def d_input(g, input, out): return to_equals(g, input, out)


class _nanmedian(Op):
    """The lower middle of all elements that are not NaN."""

    def meta(input):
        not_for(input.dtype, "bool complex", "median_cpu")
        return reduced(input, None, False)

    def ref(xp, input):
        flat = input.reshape(-1)
        flat = flat[~xp.isnan(flat)] if flat.dtype.kind == "f" else flat
        return middle(xp, flat) if flat.size else xp.full((), math.nan).astype(input.dtype)

    def bounds(input): return input

    def body(k, input):      return one_of_all(k, input, "nanmedian")
    def d_input(g, input, out): return to_equals(g, input, out)


def middle(xp, flat):
    """The lower middle of a flat array."""
    mid = (flat.size - 1) // 2
    return xp.partition(flat, mid)[mid]


class _median_dim(Op):
    """The lower middle element along `dim`, and where it was."""

    called = "median"
    node = "MedianBackward1"
    returns = "median values indices"

    def meta(input, dim, keepdim=False):
        nonempty(input, dim, "median")
        not_for(input.dtype, "bool complex", "median_out")
        return reduced(input, dim, keepdim), reduced(input, dim, keepdim, dtypes.int64)

    def ref(xp, input, dim, keepdim=False):
        if not input.ndim:
            return input, xp.zeros((), np.int64)
        mid = (input.shape[dim] - 1) // 2
        value = xp.take(xp.partition(input, mid, axis=dim), [mid], axis=dim)
        # Of equal elements it is the one that a stable sort puts in the middle.
        nth = mid + 1 - xp.count_nonzero(input < value, axis=dim, keepdims=True)
        same = input == value
        at = (same & (xp.cumsum(same, axis=dim) == nth)).argmax(axis=dim, keepdims=True)
        if input.dtype.kind == "f":
            bad = xp.isnan(input)
            at = xp.where(bad.any(axis=dim, keepdims=True), bad.argmax(axis=dim, keepdims=True), at)
        return picked(xp, input, at, dim, keepdim)

    def bounds(input, input_spec, dim): return [input, positions(input_spec, dim)]

    def body(k, input, dim, keepdim=False): return one_of_rows(k, input, dim, keepdim, "median")

    def d_input(g, out1, input_spec, dim, keepdim): return selected(g[0], out1, input_spec, dim, keepdim)


class _nanmedian_dim(Op):
    """The lower middle element along `dim` of those that are not NaN, and where it was."""

    called = "nanmedian"
    node = "NanmedianBackward1"
    returns = "nanmedian values indices"

    def meta(input, dim, keepdim=False):
        nonempty(input, dim, "nanmedian")
        not_for(input.dtype, "bool complex", "median_out")
        return reduced(input, dim, keepdim), reduced(input, dim, keepdim, dtypes.int64)

    def ref(xp, input, dim, keepdim=False):
        if not input.ndim:
            return input, xp.zeros((), np.int64)
        numbers = xp.count_nonzero(input == input, axis=dim, keepdims=True)
        at = xp.take_along_axis(ranked(xp, input, dim), xp.maximum(numbers - 1, 0) // 2, dim)
        return picked(xp, input, at, dim, keepdim)

    def bounds(input, input_spec, dim): return [input, positions(input_spec, dim)]

    def body(k, input, dim, keepdim=False): return one_of_rows(k, input, dim, keepdim, "nanmedian")

    def d_input(g, out1, input_spec, dim, keepdim): return selected(g[0], out1, input_spec, dim, keepdim)


class mode(Op):
    """The most frequent element along `dim`, the smallest of several, and where it is last."""

    forms = "function method out"
    returns = "mode values indices"
    strict_out = True
    out_no_overlap = True

    def meta(input, dim=-1, keepdim=False):
        shapes.wrap_dim(only(dim), input.ndim)
        nonempty(input, dim, "mode")
        not_for(input.dtype, "complex", "mode_cpu")
        return reduced(input, dim, keepdim), reduced(input, dim, keepdim, dtypes.int64)

    def ref(xp, input, dim=-1, keepdim=False):
        if not input.ndim:
            return input, xp.zeros((), np.int64)
        order = xp.moveaxis(ranked(xp, input, dim), dim, -1)
        rows = xp.take_along_axis(xp.moveaxis(input, dim, -1), order, -1)
        position = xp.broadcast_to(xp.arange(rows.shape[-1]), rows.shape)
        starts = xp.concatenate([xp.ones_like(rows[..., :1], bool), rows[..., 1:] != rows[..., :-1]], -1)
        length = position - xp.maximum.accumulate(xp.where(starts, position, 0), axis=-1)   # of the run so far
        at = xp.take_along_axis(order, length.argmax(axis=-1, keepdims=True), -1)
        return picked(xp, input, xp.moveaxis(at, -1, dim), dim, keepdim)

    def d_input(g, out1, input_spec, dim, keepdim): return selected(g[0], out1, input_spec, dim, keepdim)
    def bounds(input, input_spec, dim): return [input, positions(input_spec, dim)]


class quantile(Composite):
    """The `q`-quantiles of all elements or along `dim`, between two by `interpolation`; NaN if any element is.

    >>> torch.tensor([0., 1., 2., 3.]).quantile(0.5)
    tensor(1.5000)
    """

    forms = "function method out"
    strict_out = True

    def of(input, q, dim=None, keepdim=False, *, interpolation="linear"):
        return quantiles(input, q, dim, keepdim, interpolation, False)


class nanquantile(Composite):
    """The `q`-quantiles of the elements that are not NaN, of all or along `dim`."""

    forms = "function method out"
    strict_out = True

    def of(input, q, dim=None, keepdim=False, *, interpolation="linear"):
        return quantiles(input, q, dim, keepdim, interpolation, True)


def quantiles(input, q, dim, keepdim, interpolation, skip_nan):
    """The elements at the ranks that `q` asks for, in sorted rows."""
    number = not isinstance(q, door.tensor)
    if number:
        need(0 <= q <= 1, f"quantile() q must be in the range [0, 1] but got {q}")
        q = input.new_full((), q)
    need(input.numel(), "quantile() input tensor must be non-empty")
    need(q.ndim < 2, f"quantile() q must be a scalar or 1D tensor, but it has {q.ndim} dimensions")
    need(input.dtype in (dtypes.float32, dtypes.float64), "quantile() input tensor must be either float or double "
         f"dtype, not {input.dtype.name}")
    need(q.dtype is input.dtype, f"quantile() q tensor must be same dtype as the input tensor: {q.dtype.name} and "
         f"{input.dtype.name}")
    need(interpolation in ("linear", "lower", "higher", "midpoint", "nearest"), "quantile() interpolation must be one "
         f"of linear, lower, higher, midpoint or nearest, but got {interpolation}")
    d = None if dim is None else shapes.wrap_dim(only(dim), input.ndim)
    need(number or q.device.type == "meta" or bool(((q >= 0) & (q <= 1)).all()), "quantile() q values must be in the "
                                                                                 "range [0, 1]")
    rows = input.reshape(-1) if d is None or not input.ndim else input.movedim(d, -1)
    n = rows.shape[-1]
    need(n <= 1 << 24, f"quantile() input tensor is too large: {n} elements in a row")
    rows = sort(rows).values
    if skip_nan:
        ranks = q * (rows.isnan().logical_not().sum(-1, True) - 1)
        ranks = ranks.masked_fill(ranks < 0, 0)
    else:
        bad = rows.isnan().any(-1, True)
        ranks = (q * (n - 1)).expand(*bad.shape[:-1], q.numel()).masked_fill(bad, n - 1)    # the last one is NaN then
    ranks = {"lower": ranks.floor, "higher": ranks.ceil, "nearest": ranks.round}.get(interpolation, lambda: ranks)()
    below = ranks.detach().long()
    out = _take_along(rows, below, rows.ndim - 1)
    if interpolation in ("linear", "midpoint"):
        weight = ranks - below if interpolation == "linear" else ranks.detach() * 0 + 0.5
        out = out.lerp(_take_along(rows, ranks.detach().ceil().long(), rows.ndim - 1), weight)
    if keepdim:
        out = out.view((1,) * input.ndim + (-1,)) if d is None or not input.ndim else out.unsqueeze(d)
    return out.movedim(-1, 0) if q.ndim else out.squeeze(-1)
