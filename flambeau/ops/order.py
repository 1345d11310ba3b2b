"""Order and counting: sorted elements, quantiles, running sums and extremes, differences, histograms, what is distinct.

NaN ranks above everything, as in PyTorch, and equal elements keep their order wherever that can be had.
"""
import math

import numpy as np

from ..base import dtypes, shapes
from ..base.errors import need
from ..base.op import Composite, Op, door
from ..base.spec import spec
from .convert import cast
from .math import complex_log1p
from .reduce import (
    _put_along,
    _take_along,
    after,
    integral_sum,
    lag,
    nonempty,
    not_for,
    only,
    picked,
    reduced,
    selected,
    settled,
    to_equals,
)
from .shape import cat

# --- sorting --------------------------------------------------------------------------------------------------------


def ranked(xp, x, axis, descending=False):
    """The positions along `axis` that put `x` in order."""
    if not descending:
        return xp.argsort(x, axis=axis, kind="stable")
    last = x.shape[axis] - 1                  # sorted backwards and read backwards, so that equal ones keep their order
    return last - xp.flip(xp.argsort(xp.flip(x, axis), axis=axis, kind="stable"), axis)


def in_rows(k, name, input, dim, count, params):
    """For a body: (values, places) that a library makes of the rows along `dim`, `count` of each if that is given;
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


def one_of_rows(k, input, dim, keepdim, which, place=0):
    """For a body: (values, places) of one element of each row along `dim`, by its place in their order; NotImplemented
    without a library. See `pick` in backends/cpu/library/sort.py."""
    if not input.ndim or 0 in input.shape:
        return NotImplemented
    d = dim % input.ndim
    x = along_last(k, input, d)
    shape = x.shape[:-1]
    made = k.library("pick", (x,), [(x.dtype, shape), (dtypes.int64, shape)], (which, place))
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
        held = xp.count_nonzero(input == input, axis=dim, keepdims=True)
        at = xp.take_along_axis(ranked(xp, input, dim), xp.maximum(held - 1, 0) // 2, dim)
        return picked(xp, input, at, dim, keepdim)

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
        place = xp.broadcast_to(xp.arange(rows.shape[-1]), rows.shape)
        starts = xp.concatenate([xp.ones_like(rows[..., :1], bool), rows[..., 1:] != rows[..., :-1]], -1)
        length = place - xp.maximum.accumulate(xp.where(starts, place, 0), axis=-1)     # of the run so far
        at = xp.take_along_axis(order, length.argmax(axis=-1, keepdims=True), -1)
        return picked(xp, input, xp.moveaxis(at, -1, dim), dim, keepdim)

    def d_input(g, out1, input_spec, dim, keepdim): return selected(g[0], out1, input_spec, dim, keepdim)


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


# --- running sums, products and extremes ----------------------------------------------------------------------------


def scan_spec(input, dim, dtype=None):
    """The spec of a running result along `dim`."""
    shapes.wrap_dim(only(dim), input.ndim)
    return spec(dtype or input.dtype, input.shape, None, input.device)


def double(x):
    """The dtype that a running sum of `x` adds in, so that the error does not grow with its length."""
    return np.complex128 if x.dtype.kind == "c" else np.float64 if x.dtype.kind == "f" else np.int64


def scanned(input, dtype, kernel):
    """The dtype of running sums or products; there are none of bools."""
    made = integral_sum(input, dtype)
    if input.numel:
        not_for(made, "bool", kernel)
    return made


class cumsum(Op):
    """The sum of the elements so far along `dim`."""

    forms = "function method inplace out"
    creates = True                                    # `out` says the dtype, if no argument does
    no_overlap = True

    def meta(input, dim, *, dtype=None): return scan_spec(input, dim, scanned(input, dtype, "cumsum_out_cpu"))

    def ref(xp, input, dim, *, dtype=None):
        x = settled(xp, input, dtypes.given(dtype))
        return xp.cumsum(x, axis=dim, dtype=double(x)) if x.ndim else x

    def body(k, input, dim, *, dtype=None):
        dtype = dtypes.given(dtype) or (input.dtype if input.dtype.is_floating_point else dtypes.int64)
        if not input.ndim or dtype not in (dtypes.float32, dtypes.float64, dtypes.int64):
            return NotImplemented
        x = k.cast(input, dtype)
        made = k.library("scan", (x,), [(x.dtype, x.shape)], (dim % x.ndim,))
        return NotImplemented if made is None else made[0]

    def d_input(g, dim): return g.flip(dim).cumsum(dim).flip(dim) if g.ndim else g


class cumprod(Op):
    """The product of the elements so far along `dim`; its gradient is exact where some are zero."""

    forms = "function method inplace out"
    creates = True                                    # `out` says the dtype, if no argument does
    no_overlap = True

    def meta(input, dim, *, dtype=None): return scan_spec(input, dim, scanned(input, dtype, "cumprod_out_cpu"))

    def ref(xp, input, dim, *, dtype=None):
        x = settled(xp, input, dtypes.given(dtype))
        return xp.cumprod(x, axis=dim, dtype=double(x)) if x.ndim else x

    def body(k, input, dim, *, dtype=None):
        dtype = dtypes.given(dtype) or (input.dtype if input.dtype.is_floating_point else dtypes.int64)
        if not input.ndim or dtype not in (dtypes.float32, dtypes.float64, dtypes.int64):
            return NotImplemented
        return run_along(k, "prod", (k.cast(input, dtype),), dim)[0]

    def d_input(g, input, out, dim):
        if not input.numel() or not input.ndim:
            return g
        # With out[k] = input[k] out[k-1], what reaches out[k] in all is a recurrence too, running backwards.
        return recur_back(g, input.to(g.dtype), dim) * lag(out, dim, 1).conj()


class _recur(Op):
    """Each element of `input` plus `factor` times the result before it along `dim`: first-order recurrences."""

    def meta(input, factor, dim): return spec(input.dtype, input.shape, None, input.device)

    def ref(xp, input, factor, dim):
        rows, factors = xp.moveaxis(input, dim, 0), xp.moveaxis(factor, dim, 0)
        out = rows.copy()
        for i in range(1, len(out)):
            out[i] += factors[i] * out[i - 1]
        return xp.moveaxis(out, 0, dim)

    def body(k, input, factor, dim):
        return run_along(k, "recur", (input, factor), dim)[0] if input.shape == factor.shape else NotImplemented

    def d_input(g, factor, dim):        return recur_back(g, factor, dim)
    def d_factor(g, factor, out, dim):  return recur_back(g, factor, dim) * lag(out, dim, 0).conj()


def run_along(k, kind, args, dim, places=False):
    """For a body: what a library makes of running results along `dim`, with `places` also where they were; without a
    library, NotImplemented for each."""
    shape, outs = args[0].shape, 1 + places
    results = [(args[0].dtype, shape), (dtypes.int64, shape)][:outs]
    made = k.library("running", args, results, (kind, dim % len(shape))) if shape else None
    return (NotImplemented,) * outs if made is None else made


def recur_back(g, factor, dim):
    """The gradient of a recurrence: each element of `g` plus the next `factor` times the next result."""
    return _recur(g.flip(dim), lag(factor.conj().flip(dim), dim, 0), dim).flip(dim)


class cummax(Op):
    """The largest element so far along `dim`, and where it was last."""

    forms = "function method out"
    returns = "cummax values indices"
    strict_out = True

    def meta(input, dim):
        if input.numel:
            not_for(input.dtype, "complex", "cummax_cpu")
        return scan_spec(input, dim), scan_spec(input, dim, dtypes.int64)

    def ref(xp, input, dim):          return running(xp, xp.maximum, input, dim)

    def body(k, input, dim):
        made = run_along(k, "max", (input,), dim, places=True)
        return NotImplemented if made[0] is NotImplemented else made

    def d_input(g, out1, input_spec, dim): return d_running(g[0], out1, input_spec, dim)


class cummin(Op):
    """The smallest element so far along `dim`, and where it was last."""

    forms = "function method out"
    returns = "cummin values indices"
    strict_out = True

    def meta(input, dim):
        if input.numel:
            not_for(input.dtype, "complex", "cummin_cpu")
        return scan_spec(input, dim), scan_spec(input, dim, dtypes.int64)

    def ref(xp, input, dim):          return running(xp, xp.minimum, input, dim)

    def body(k, input, dim):
        made = run_along(k, "min", (input,), dim, places=True)
        return NotImplemented if made[0] is NotImplemented else made

    def d_input(g, out1, input_spec, dim): return d_running(g[0], out1, input_spec, dim)


def running(xp, extreme, x, dim):
    """(values, indices) of a running extreme; a NaN stays until the next."""
    if not x.ndim:
        return x, xp.zeros((), np.int64)
    values = extreme.accumulate(x, axis=dim)
    shape = [1] * x.ndim
    shape[dim] = -1
    at = xp.where((x == values) | (x != x), xp.arange(x.shape[dim]).reshape(shape), 0)
    return values, xp.maximum.accumulate(at, axis=dim)


def d_running(g, index, input, dim):
    """The gradient of a running extreme: an element collects from every place where it was the result."""
    return _put_along(g, index, shapes.wrap_dim(dim, input.ndim), input.shape, True) if input.ndim else g


class logcumsumexp(Op):
    """The logarithm of the summed exponentials of the elements so far along `dim`."""

    forms = "function method out"
    strict_out = True
    no_overlap = True

    def meta(input, dim):
        not_for(input.dtype, "bool int", "logcumsumexp_out_cpu")
        return scan_spec(input, dim)

    def ref(xp, input, dim):
        if not input.ndim:
            return input
        if input.dtype.kind != "c":
            return xp.logaddexp.accumulate(input, axis=dim)
        out = xp.moveaxis(input.copy(), dim, 0)
        total = xp.full_like(out[0], -xp.inf) if len(out) else out
        for i, new in enumerate(out):
            low, high = xp.where(new.real < total.real, new, total), xp.where(new.real < total.real, total, new)
            ends = xp.isinf(low.real) & (low.real == high.real)       # two infinities have no difference
            sums = xp.where(low.real < 0, low, xp.log(xp.exp(low) + xp.exp(high)))
            sums = xp.where(ends, sums, high + complex_log1p(xp, xp.exp(low - high)))
            out[i] = total = xp.where(xp.isnan(new) | xp.isnan(total), complex(xp.nan, xp.nan), sums)
        return xp.moveaxis(out, 0, dim)

    def body(k, input, dim): return run_along(k, "logaddexp", (input,), dim)[0]

    def d_input(g, input, out, dim):
        if not input.numel() or not input.ndim:
            return g
        # The sum over later places k of g[k] exp(input - out[k]), where exp(out[k] - out[k+1]) <= 1 cannot overflow.
        n = out.shape[dim]
        now, next = out.narrow(dim, 0, n - 1), out.narrow(dim, 1, n - 1)
        ratio = (now - next).masked_fill(now.isinf() & (now == next), 0).exp()
        return recur_back(g, after(ratio, dim, 0), dim) * (input - out).exp().conj()


# --- differences and integrals --------------------------------------------------------------------------------------


class diff(Composite):
    """The `n`-th differences of neighbours along `dim`.

    >>> torch.tensor([1, 4, 9]).diff()
    tensor([3, 5])
    """

    forms = "function method out"
    no_overlap = True

    def strict_out(input, n=1, *rest): return n == 0          # which is a copy

    def of(input, n=1, dim=-1, prepend=None, append=None):
        need(input.ndim > 0, "diff expects input to be at least one-dimensional")
        need(n >= 0, f"order must be non-negative but got {n}")
        d = shapes.wrap_dim(only(dim), input.ndim)
        if n == 0:
            return input.clone()
        parts = [p for p in (prepend, input, append) if p is not None]
        for part in parts:
            need(part.ndim == input.ndim, "diff expects prepend or append to be the same dimension as input: "
                 f"{part.ndim} and {input.ndim}")
            for k in range(input.ndim):
                need(k == d or part.shape[k] == input.shape[k], "diff expects the shape of tensor to prepend or append "
                     "to match that of input except along the differencing dimension; "
                     f"input.size({k}) = {input.shape[k]}, but got tensor.size({k}) = {part.shape[k]}")
        out = cat(parts, d) if len(parts) > 1 else input
        for _ in range(min(n, out.shape[d])):
            left, right = neighbours(out, d)
            out = right.logical_xor(left) if out.dtype is dtypes.bool else right - left
        return out


def neighbours(x, dim):
    """`x` without its last, and `x` without its first element along `dim`."""
    n = max(x.shape[dim] - 1, 0)
    return x.narrow(dim, 0, n), x.narrow(dim, min(1, x.shape[dim]), n)


class trapezoid(Composite):
    """The integral of samples `y` along `dim` by trapezoids: at the points `x`, or `dx` apart."""

    names = "trapz"
    forms = "function"

    def of(y, x=None, *, dx=None, dim=-1):
        dx = distance(x, dx)
        d = shapes.wrap_dim(dim, y.ndim, scalar_ok=False)
        if not y.shape[d]:
            return y.new_zeros(shapes.reduced(y.shape, (d,), False))
        left, right = neighbours(y, d)
        if x is not None:
            return ((left + right) * steps(x, y, d, "trapezoid")).sum(d) / 2
        refuse_bool("trapezoid", y=y)
        return (y.sum(d) - (y.select(d, 0) + y.select(d, -1)) * 0.5) * dx


class cumulative_trapezoid(Composite):
    """The integral so far, at each sample after the first, of samples `y` along `dim` by trapezoids."""

    forms = "function"

    def of(y, x=None, *, dx=None, dim=-1):
        dx = distance(x, dx)
        d = shapes.wrap_dim(dim, y.ndim, scalar_ok=False)
        left, right = neighbours(y, d)
        if x is not None:
            return ((left + right) * steps(x, y, d, "cumulative_trapezoid")).cumsum(d) / 2
        refuse_bool("cumulative_trapezoid", y=y)
        return (dx / 2 * (left + right)).cumsum(d)


def distance(x, dx):
    """How far apart the samples of an integral are, where no points `x` say it."""
    need(x is None or isinstance(x, door.tensor), f"argument 'x' (position 2) must be Tensor, not {type(x).__name__}",
         TypeError)
    need(x is None or dx is None, "received an invalid combination of arguments: give the points `x` or their distance "
                                  "`dx`, not both", TypeError)
    need(not isinstance(dx, (bool, complex)), f"Currently, we only support dx as a real number, got {dx!r}")
    return 1 if dx is None else dx


def refuse_bool(name, **given):
    """Refuse bool arguments of an integral."""
    for argument, t in given.items():
        need(t.dtype is not dtypes.bool, f"{name}: received a bool input for `{argument}`, but bool is not supported")


def steps(x, y, dim, name):
    """The distances of the points `x`, shaped to go with `y`: a vector runs along `dim`."""
    refuse_bool(name, x=x, y=y)
    if x.ndim == 1:
        need(x.shape[0] == y.shape[dim], f"{name}: There must be one `x` value for each sample point, but there are "
             f"{x.shape[0]} for {y.shape[dim]}")
        x = x.view([-1 if k == dim else 1 for k in range(y.ndim)])
    elif x.ndim < y.ndim:
        x = x.view((1,) * (y.ndim - x.ndim) + tuple(x.shape))
    left, right = neighbours(x, dim)
    return right - left


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


class bincount(Op):
    """How often each of 0, 1, 2… is in `input`, or the sum of the `weights` that stand beside it."""

    eager = exact = True

    def meta(input, weights=None, minlength=0):
        need(minlength >= 0, f"minlength should be >= 0, but it is {minlength}")
        not_for(input.dtype, "bool float complex", "bincount_cpu")
        need(input.ndim == 1, f"bincount only supports 1-d non-negative integral inputs, this one has {input.ndim} "
                              "dimensions.")
        need(weights is None or weights.shape == input.shape, "weights should be 1-d and have the same length as "
             f"input, which is {list(input.shape)}")

    def ref(xp, input, weights=None, minlength=0):
        low = input.min() if input.size else 0
        need(low >= 0, f"bincount only supports 1-d non-negative integral inputs, the smallest here is {low}.")
        if weights is None or not input.size:
            return xp.bincount(input.astype(np.int64), minlength=minlength).astype(np.int64)
        summed = xp.bincount(input.astype(np.int64), cast(xp, weights, dtypes.float64), minlength)
        return summed.astype(np.float32 if weights.dtype == np.float32 else np.float64)

    def d_weights(g): raise NotImplementedError("the derivative for 'bincount' is not implemented.")


# --- distinct elements ----------------------------------------------------------------------------------------------


class unique(Composite):
    """The distinct elements of `input` (slices along `dim`, if given), in order.

    With `return_inverse` also where each element went, with `return_counts` also how many there were of each.

    >>> torch.tensor([3, 1, 3]).unique(return_counts=True)
    (tensor([1, 3]), tensor([1, 2]))
    """

    def of(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
        return asked(_unique2(input, dim) if dim is None else _unique_dim(input, dim), return_inverse, return_counts)


class unique_consecutive(Composite):
    """`input` (slices along `dim`, if given) with repetitions of the element before left out."""

    def of(input, return_inverse=False, return_counts=False, dim=None):
        return asked(_unique_consecutive(input, dim), return_inverse, return_counts)


def asked(found, inverse, counts):
    """The results of `unique` that were asked for."""
    results = [t for t, wanted in zip(found, (True, inverse, counts), strict=True) if wanted]
    return tuple(results) if len(results) > 1 else results[0]


class _unique2(Op):
    """(distinct elements, where each element went, how many there were)."""

    called = "unique"
    eager = exact = True

    def meta(input, dim):
        distinct_spec(input, dim)
        return None, None, None

    def ref(xp, input, dim):  return distinct(xp, input, dim, True)
    def d_input(g):           raise NotImplementedError("the derivative for '_unique2' is not implemented.")


class _unique_dim(_unique2):
    """(distinct slices along `dim`, where each slice went, how many there were)."""

    def d_input(g): raise NotImplementedError("the derivative for 'unique_dim' is not implemented.")


class _unique_consecutive(_unique2):
    """(elements without repetitions of the one before, where each went, how many there were)."""

    called = "unique_consecutive"

    def ref(xp, input, dim):  return distinct(xp, input, dim, False)
    def d_input(g):           raise NotImplementedError("the derivative for 'unique_consecutive' is not implemented.")


def distinct_spec(input, dim):
    """Refuse what has no distinct slices."""
    not_for(input.dtype, "complex", "unique" if dim is None else "unique_dim")
    if dim is not None:
        d = shapes.wrap_dim(only(dim), input.ndim, scalar_ok=False)
        empty = [k for k, n in enumerate(input.shape) if n == 0]
        need(not empty or empty == [d], "There are 0 sized dimensions, and they aren't selected, so unique cannot be "
             "applied")


def distinct(xp, input, dim, ordered):
    """(distinct, inverse, counts) of elements or of slices along `dim`; sorted first if `ordered`."""
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
