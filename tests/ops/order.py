"""Sorting, picking, scans, histograms."""
import numpy as np

import flambeau as torch

from .rows import numbers, row

X, Y = numbers((3, 4)), numbers((2, 3, 4), seed=1)
HOLES = np.where(np.arange(12).reshape(3, 4) % 5 == 1, np.nan, X)
COUNTS = np.array([3, 1, 1, 0, 3, 3, 1])


def top(x, k, axis, largest=True):
    order = np.argsort(-x if largest else x, axis, kind="stable")
    order = np.take(order, np.arange(k), axis)
    return np.take_along_axis(x, order, axis), order


def lower_median(x, axis):
    order = np.argsort(x, axis, kind="stable")
    at = np.take(order, [(x.shape[axis] - 1) // 2], axis)
    return np.take_along_axis(x, at, axis).squeeze(axis), at.squeeze(axis)


def running(x, better):
    """(running best, where it stood) along the last axis; a tie moves the place."""
    values, places = x.copy(), np.zeros(x.shape, np.int64)
    for index in np.ndindex(x.shape[:-1]):
        best = 0
        for j in range(x.shape[-1]):
            best = j if better(x[index][j], x[index][best]) else best
            values[index][j], places[index][j] = x[index][best], best
    return values, places


row("sort", lambda x: x.sort(1), lambda x: (np.sort(x, 1), np.argsort(x, 1)), X)
row("sort descending", lambda x: torch.sort(x, 0, True), lambda x: (-np.sort(-x, 0), np.argsort(-x, 0)), Y)
row("sort stable", lambda x: x.sort(stable=True), lambda x: (np.sort(x), np.argsort(x, kind="stable")), COUNTS, grad=False)
row("sort puts nan last", lambda x: x.sort(1).values, lambda x: np.sort(x, 1), HOLES, grad=False)
row("argsort", lambda x: x.argsort(1, descending=True), lambda x: np.argsort(-x, 1), X, grad=False)
row("msort", lambda x: torch.msort(x), lambda x: np.sort(x, 0), X)
row("topk", lambda x: x.topk(2), lambda x: top(x, 2, -1), X)
row("topk smallest", lambda x: x.topk(2, 1, largest=False), lambda x: top(x, 2, 1, False), Y)
row("kthvalue", lambda x: x.kthvalue(2, 1), lambda x: tuple(p[:, -1] for p in top(x, 2, 1, False)), X)
row("median", lambda x: x.median(), lambda x: np.sort(x.ravel())[5], X)
row("median dim", lambda x: x.median(1), lambda x: lower_median(x, 1), X)
row("nanmedian", lambda x: x.nanmedian(), lambda x: np.sort(x[~np.isnan(x)])[(np.sum(~np.isnan(x)) - 1) // 2], HOLES, grad=False)
row("nanmedian dim", lambda x: x.nanmedian(0), lambda x: lower_median(x, 0), X)
row("mode", lambda x: x.mode().values, lambda x: np.array(1), COUNTS, grad=False)
row("quantile", lambda x: x.quantile(0.3), lambda x: np.quantile(x, 0.3), X)
row("quantile several", lambda x, q: x.quantile(q, 1), lambda x, q: np.quantile(x, q, 1), X, np.array([0.1, 0.55]), grad=False)
row("quantile dim", lambda x: x.quantile(0.4, dim=1, keepdim=True), lambda x: np.quantile(x, 0.4, 1, keepdims=True), X)
for _how in ("lower", "higher", "nearest", "midpoint"):
    row(f"quantile {_how}", lambda x, how=_how: x.quantile(0.4, 1, interpolation=how),
        lambda x, how=_how: np.quantile(x, 0.4, 1, method=how), X)
row("nanquantile", lambda x: x.nanquantile(0.4, 1), lambda x: np.nanquantile(x, 0.4, 1), HOLES, grad=False)
row("cumsum", lambda x: x.cumsum(1), lambda x: np.cumsum(x, 1), X)
row("cumprod", lambda x: x.cumprod(0), lambda x: np.cumprod(x, 0), X)
row("cumprod with a zero", lambda x: (x - x[:, 1:2]).cumprod(1), lambda x: np.cumprod(x - x[:, 1:2], 1), X)
row("cummax", lambda x: x.cummax(-1), lambda x: running(x, np.greater_equal), Y)
row("cummin", lambda x: x.cummin(-1), lambda x: running(x, np.less_equal), Y)
row("logcumsumexp", lambda x: x.logcumsumexp(1), lambda x: np.log(np.cumsum(np.exp(x), 1)), X)
row("diff", lambda x: x.diff(), np.diff, X)
row("diff second", lambda x, p: x.diff(2, 0, prepend=p), lambda x, p: np.diff(x, 2, 0, prepend=p), X, numbers((1, 4), seed=3))
row("trapezoid", lambda y: torch.trapezoid(y, dx=0.5), lambda y: np.trapezoid(y, dx=0.5), X)
row("trapezoid points", lambda y, x: torch.trapezoid(y, x), lambda y, x: np.trapezoid(y, x), X, np.sort(numbers((4,), seed=5)))
row("cumulative_trapezoid", lambda y: torch.cumulative_trapezoid(y), lambda y: np.cumsum((y[:, 1:] + y[:, :-1]) / 2, 1), X)
row("histc", lambda x: x.histc(5, -2, 2), lambda x: np.histogram(x, 5, (-2, 2))[0].astype(float), X, grad=False, meta=False)
row("histogram", lambda x: x.histogram(5, range=(-2.0, 2.0)), lambda x: tuple(np.histogram(x, 5, (-2, 2))), X, grad=False, meta=False)
row("bincount", lambda n: n.bincount(minlength=6), lambda n: np.bincount(n, minlength=6), COUNTS, grad=False, meta=False)
row("bincount weights", lambda n, w: n.bincount(w), lambda n, w: np.bincount(n, w), COUNTS, numbers((7,)), grad=False, meta=False)
row("unique", lambda n: torch.unique(n, return_inverse=True, return_counts=True),
    lambda n: np.unique(n, return_inverse=True, return_counts=True), COUNTS, grad=False, meta=False)
row("unique dim", lambda n: torch.unique(n, dim=0), lambda n: np.unique(n, axis=0), COUNTS[:6].reshape(3, 2) // 3, grad=False, meta=False)
row("unique_consecutive", lambda n: torch.unique_consecutive(n, return_counts=True),
    lambda n: (np.array([3, 1, 0, 3, 1]), np.array([1, 2, 1, 2, 1])), COUNTS, grad=False, meta=False)
row("nanmedian whole", lambda x: x.nanmedian(), lambda x: np.sort(x.ravel())[5], X)
row("mode picks", lambda x: (x * 0 + x[0, 0]).mode(1).values, lambda x: np.full(3, x[0, 0]), X, grad="first")
