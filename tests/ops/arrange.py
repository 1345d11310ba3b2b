"""Elements moved to other places: repeated, rolled, flipped, cut to triangles, put on diagonals."""
import itertools

import numpy as np

import flambeau as torch

from .rows import numbers, row

X, Y, V, W = numbers((3, 4)), numbers((2, 3, 2), seed=1), numbers((3,)), numbers((3,), seed=7)


def placed(x, y, at):
    out = x.copy()
    out[at] = y
    return out


def on_diagonal(x, y, offset=0):
    out = x.copy()
    rows = np.arange(len(y))
    out[rows, rows + offset] = y
    return out


row("hstack", lambda x, y: torch.hstack([x, y]), lambda x, y: np.hstack([x, y]), X, X * 2)
row("vstack", lambda v, w: torch.vstack([v, w]), lambda v, w: np.vstack([v, w]), V, W)
row("dstack", lambda x, y: torch.dstack([x, y]), lambda x, y: np.dstack([x, y]), X, X * 2)
row("column_stack", lambda v, x: torch.column_stack([v, x]), lambda v, x: np.column_stack([v, x]), V, X)
row("block_diag", lambda x, v: torch.block_diag(x, v), lambda x, v: np.block([[x, np.zeros((3, 3))], [np.zeros((1, 4)), v[None]]]), X, V)
row("meshgrid", lambda v, w: torch.meshgrid(v, w, indexing="ij"), lambda v, w: np.meshgrid(v, w, indexing="ij"), V, W)
row("meshgrid xy", lambda v, w: torch.meshgrid(v, w[:2], indexing="xy"), lambda v, w: np.meshgrid(v, w[:2]), V, W)
row("cartesian_prod", lambda v, w: torch.cartesian_prod(v, w), lambda v, w: np.array(list(itertools.product(v, w))), V, W)
row("combinations", lambda v: torch.combinations(v, 2), lambda v: np.array(list(itertools.combinations(v, 2))), V, meta=False)
row("combinations replaced", lambda v: torch.combinations(v, 2, True),
    lambda v: np.array(list(itertools.combinations_with_replacement(v, 2))), V, meta=False)
row("repeat", lambda x: x.repeat(2, 1, 3), lambda x: np.tile(x, (2, 1, 3)), X)
row("tile", lambda x: x.tile(2), lambda x: np.tile(x, 2), X)
row("repeat_interleave", lambda x: x.repeat_interleave(2, 0), lambda x: np.repeat(x, 2, 0), X)
row("repeat_interleave counts", lambda x, n: x.repeat_interleave(n, 0), lambda x, n: np.repeat(x, n, 0), X, np.array([2, 0, 3]), meta=False)
row("roll", lambda x: x.roll(1), lambda x: np.roll(x, 1), X)
row("roll dims", lambda x: x.roll((1, -2), (0, 1)), lambda x: np.roll(x, (1, -2), (0, 1)), X)
row("flip", lambda y: y.flip(0, 2), lambda y: np.flip(y, (0, 2)), Y)
row("fliplr", lambda x: x.fliplr(), np.fliplr, X)
row("flipud", lambda x: x.flipud(), np.flipud, X)
row("rot90", lambda x: x.rot90(), np.rot90, X)
row("rot90 back", lambda y: y.rot90(3, (1, 2)), lambda y: np.rot90(y, 3, (1, 2)), Y)
row("tril", lambda x: x.tril(1), lambda x: np.tril(x, 1), X)
row("triu", lambda y: y.triu(-1), lambda y: np.triu(y, -1), Y)
row("diag", lambda v: v.diag(1), lambda v: np.diag(v, 1), V)
row("diag of a matrix", lambda x: x.diag(-1), lambda x: np.diag(x, -1), X)
row("diag_embed", lambda x: x.diag_embed(), lambda x: np.stack([np.diag(r) for r in x]), X)
row("diagflat", lambda x: x.diagflat(1), lambda x: np.diagflat(x, 1), X[:2, :2])
row("select_scatter", lambda x, v: x.select_scatter(v, 1, 2), lambda x, v: placed(x, v, (slice(None), 2)), X, V)
row("slice_scatter", lambda x, y: x.slice_scatter(y, 1, 0, 4, 2), lambda x, y: placed(x, y, (slice(None), slice(0, 4, 2))), X, X[:, :2] * 3)
row("diagonal_scatter", lambda x, v: x.diagonal_scatter(v, 1), lambda x, v: on_diagonal(x, v, 1), X, V)
row("as_strided_scatter", lambda x, v: x.contiguous().as_strided_scatter(v, (3,), (5,)), lambda x, v: on_diagonal(x, v), X, V)
row("fill_diagonal", lambda x: (x * 1).fill_diagonal_(9.0), lambda x: on_diagonal(x, np.full(3, 9.0)), X, grad="first")
