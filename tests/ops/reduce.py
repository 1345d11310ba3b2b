"""Reductions."""
import numpy as np

import flambeau as torch

from .rows import numbers, row

F = torch.nn.functional
X, Y, P = numbers((3, 4)), numbers((2, 3, 2), seed=1), numbers((3, 4), 0.3, 2)
HOLES = np.where(np.arange(12).reshape(3, 4) % 5 == 1, np.nan, X)
INTS, MASK = np.arange(12).reshape(3, 4) % 5, X > 0.4


def lse(x, axis, keepdims=False):
    return np.log(np.exp(x).sum(axis=axis, keepdims=keepdims))


def softmax(x, axis):
    return np.exp(x) / np.exp(x).sum(axis=axis, keepdims=True)


row("sum", lambda x: x.sum(), lambda x: x.sum(), X)
row("sum dim", lambda x: x.sum(1), lambda x: x.sum(1), X)
row("sum dims keepdim", lambda x: torch.sum(x, (0, -1), keepdim=True), lambda x: x.sum((0, 2), keepdims=True), Y)
row("sum of integers", lambda x: x.sum(0), lambda x: x.sum(0), INTS.astype(np.int16), grad=False)
row("sum of booleans", lambda x: x.sum(), lambda x: x.sum(), MASK, grad=False)
row("sum dtype", lambda x: x.sum(dtype=torch.float64), lambda x: x.sum(dtype=np.float64), INTS, grad=False)
row("nansum", lambda x: x.nansum(1), lambda x: np.nansum(x, 1), HOLES, grad=False)
row("nansum whole", lambda x: x.nansum(1), lambda x: np.nansum(x, 1), X)
row("mean", lambda x: x.mean(), lambda x: x.mean(), X)
row("mean dims", lambda x: x.mean((0, 2)), lambda x: x.mean((0, 2)), Y)
row("nanmean", lambda x: x.nanmean(1), lambda x: np.nanmean(x, 1), HOLES, grad=False)
row("prod", lambda x: x.prod(), lambda x: x.prod(), X)
row("prod dim", lambda x: x.prod(1, keepdim=True), lambda x: x.prod(1, keepdims=True), X)
row("prod with a zero", lambda x: (x - x[0, 0]).prod(1), lambda x: (x - x[0, 0]).prod(1), X)
row("amax", lambda x: x.amax((0, 2)), lambda x: x.max((0, 2)), Y)
row("amin", lambda x: x.amin(1, keepdim=True), lambda x: x.min(1, keepdims=True), X)
row("amax with ties", lambda x: torch.amax(x.floor() * 0 + x.sum() * 0 + 1, 1), lambda x: np.ones(3), X)
row("aminmax", lambda x: x.aminmax(dim=1), lambda x: (x.min(1), x.max(1)), X)
row("max", lambda x: x.max(), lambda x: x.max(), X)
row("max dim", lambda x: x.max(1), lambda x: (x.max(1), x.argmax(1)), X)
row("max of two", lambda x, y: torch.max(x, y), np.maximum, X, X[::-1] * 1.1)
row("min", lambda x: x.min(), lambda x: x.min(), X)
row("min dim", lambda x: x.min(0, keepdim=True), lambda x: (x.min(0, keepdims=True), x.argmin(0, keepdims=True)), X)
row("argmax", lambda x: (x.argmax(), x.argmax(1)), lambda x: (x.argmax(), x.argmax(1)), X, grad=False)
row("argmin", lambda x: (x.argmin(), x.argmin(0)), lambda x: (x.argmin(), x.argmin(0)), X, grad=False)
row("all", lambda m: (m.all(), m.all(1)), lambda m: (m.all(), m.all(1)), MASK, grad=False)
row("any", lambda m: (m.any(), m.any(0, keepdim=True)), lambda m: (m.any(), m.any(0, keepdims=True)), MASK, grad=False)
row("count_nonzero", lambda x: (x.count_nonzero(), x.count_nonzero(1)),
    lambda x: (np.count_nonzero(x), np.count_nonzero(x, 1)), INTS, grad=False)
row("var", lambda x: x.var(), lambda x: x.var(ddof=1), X)
row("var dim correction", lambda x: x.var((0, 2), correction=0), lambda x: x.var((0, 2)), Y)
row("std", lambda x: x.std(1, keepdim=True), lambda x: x.std(1, ddof=1, keepdims=True), X)
row("std_mean", lambda x: torch.std_mean(x, 1), lambda x: (x.std(1, ddof=1), x.mean(1)), X)
row("var_mean", lambda x: torch.var_mean(x, 0), lambda x: (x.var(0, ddof=1), x.mean(0)), X)
row("logsumexp", lambda x: x.logsumexp(1), lambda x: lse(x, 1), X)
row("logsumexp dims", lambda x: x.logsumexp((0, 1), keepdim=True), lambda x: lse(x, (0, 1), True), X)
row("softmax", lambda x: x.softmax(1), lambda x: softmax(x, 1), X)
row("softmax functional", lambda x: F.softmax(x, 0), lambda x: softmax(x, 0), X)
row("log_softmax", lambda x: x.log_softmax(-1), lambda x: np.log(softmax(x, -1)), X)
row("softmin", lambda x: F.softmin(x, 1), lambda x: softmax(-x, 1), X)
row("norm", lambda x: x.norm(), lambda x: np.sqrt((x * x).sum()), X)
row("norm p dim", lambda x: x.norm(3, 1), lambda x: (np.abs(x) ** 3).sum(1) ** (1 / 3), X)
row("dist", lambda x, y: torch.dist(x, y, 3), lambda x, y: (np.abs(x - y) ** 3).sum() ** (1 / 3), X, X[::-1] * 1.1)
row("renorm", lambda x: x.renorm(2, 0, 1.5),
    lambda x: x * np.minimum(1, 1.5 / (np.sqrt((x * x).sum(1, keepdims=True)) + 1e-7)), X, tol=1e-6)
row("cov", lambda x: x.cov(), np.cov, X)
row("cov weighted", lambda x, w: x.cov(correction=0, fweights=w), lambda x, w: np.cov(x, ddof=0, fweights=w), X,
    np.array([1, 3, 2, 1]), meta=False)
row("corrcoef", lambda x: x.corrcoef(), np.corrcoef, X)
