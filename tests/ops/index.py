"""Picking and putting by index or mask, searching, tables."""
import numpy as np

import flambeau as torch

from .rows import numbers, row

F = torch.nn.functional
X, Y, S = numbers((3, 4)), numbers((2, 3, 2), seed=1), numbers((2, 4), seed=2)
I, J, PAIR = np.array([2, 0]), np.array([[1, 3, 0], [2, 2, 1], [0, 1, 3]]), np.array([0, 2, 2, 1])
K = np.array([[1, 3], [2, 0]])
MASK = X > 0.3
WORDS = np.array([[1, 0, 4], [4, 2, 1]])
TABLE = numbers((5, 3), seed=3)


def put(x, at, values, accumulate=False):
    out = x.copy()
    if accumulate:
        np.add.at(out, at, values)
    else:
        out[at] = values
    return out


def along(index, axis):
    """The index tuple that reaches `index` along `axis`."""
    return tuple(index if d == axis else np.arange(n).reshape([-1 if k == d else 1 for k in range(index.ndim)])
                 for d, n in enumerate(index.shape))


def reduced(x, dim, index, src, combine):
    out = x.copy()
    for at in np.ndindex(index.shape):
        to = tuple(index[at] if d == dim else k for d, k in enumerate(at))
        out[to] = combine(out[to], src[at])
    return out


def bags(rows, offsets, how):
    ends = [*offsets[1:], len(rows)]
    return np.stack([how(rows[a:b]) for a, b in zip(offsets, ends)])


row("index", lambda x, i: x[i], lambda x, i: x[i], X, I)
row("index two", lambda x, i, j: x[i, j], lambda x, i, j: x[i, j], X, I, np.array([3, 1]))
row("index between slices", lambda y, i: y[:, i, None], lambda y, i: y[:, i][:, :, None], Y, I)
row("index apart", lambda y, i: y[[0, 1], :, i * 0 + 1], lambda y, i: y[[0, 1], :, i * 0 + 1], Y, I, meta=False)
row("index mask", lambda x, m: x[m], lambda x, m: x[m], X, MASK, meta=False)
row("index slice", lambda x: x[1:, ::2], lambda x: x[1:, ::2], X)
row("index_put", lambda x, i, v: x.index_put((i,), v), lambda x, i, v: put(x, i, v), X, I, S)
row("index_put adds", lambda x, i, v: x.index_put((i,), v[0], accumulate=True), lambda x, i, v: put(x, i, v[0], True), X, PAIR, S)
row("index_select", lambda x, i: x.index_select(1, i), lambda x, i: x[:, i], X, PAIR)
row("index_add", lambda x, i, s: x.index_add(0, i, s, alpha=3), lambda x, i, s: put(x, i, 3 * s, True), X, I * 0 + 1, S)
row("index_add", lambda x, i, s: x.index_add(0, i, s, alpha=torch.tensor(3.0)), lambda x, i, s: put(x, i, 3 * s, True), X, I, S)
row("index_copy", lambda x, i, s: x.index_copy(0, i, s), lambda x, i, s: put(x, i, s), X, I, S)
row("index_fill", lambda x, i: x.index_fill(0, i, 9.0), lambda x, i: put(x, i, 9.0), X, I)
row("index_fill tensor", lambda x, i, v: x.index_fill(0, i, v[0, 0]), lambda x, i, v: put(x, i, v[0, 0]), X, I, S)
row("index_reduce", lambda x, i, s: x.index_reduce(0, i, s, "amax"), lambda x, i, s: put(x, i, np.maximum(x[i], s)), X, I, S, grad="first")
row("take", lambda x, i: x.take(i), lambda x, i: np.take(x, i), X, J)
row("put", lambda x, i, s: x.put(i, s), lambda x, i, s: put(x.ravel(), i, s.ravel()[:2]).reshape(3, 4), X, I, S[0, :2])
row("put adds", lambda x, i, s: x.put(i, s, accumulate=True), lambda x, i, s: put(x.ravel(), i, s, True).reshape(3, 4), X, PAIR, S[0])
row("take_along_dim", lambda x, i: x.take_along_dim(i, 1), lambda x, i: np.take_along_axis(x, i, 1), X, J)
row("masked_fill", lambda x, m: x.masked_fill(m, 9.0), lambda x, m: put(x, m, 9.0), X, MASK)
row("masked_fill tensor", lambda x, m, v: x.masked_fill(m, v[0, 0]), lambda x, m, v: put(x, m, v[0, 0]), X, MASK, S)
row("masked_scatter", lambda x, m, s: x.masked_scatter(m, s), lambda x, m, s: put(x, m, s.ravel()[:m.sum()]), X, MASK, S)
row("masked_select", lambda x, m: x.masked_select(m), lambda x, m: x[m], X, MASK, meta=False)
row("gather", lambda x, i: x.gather(1, i), lambda x, i: np.take_along_axis(x, i, 1), X, J)
row("gather fewer", lambda x, i: x.gather(0, i), lambda x, i: x[i, np.arange(3)], X, J[:1] % 3)
row("scatter", lambda x, i, s: x.scatter(1, i, s), lambda x, i, s: put(x, along(i, 1), s[:, :2]), X, K, S)
row("scatter value", lambda x, i: x.scatter(1, i, 9.0), lambda x, i: put(x, along(i, 1), 9.0), X, J)
row("scatter_add", lambda x, i, s: x.scatter_add(1, i, s), lambda x, i, s: put(x, along(i, 1), s[:, :3], True), X, J[:2], S)
for _name, _how in (("sum", np.add), ("prod", np.multiply), ("amax", np.maximum), ("amin", np.minimum)):
    row(f"scatter_reduce {_name}", lambda x, i, s, name=_name: x.scatter_reduce(1, i, s, name),
        lambda x, i, s, how=_how: reduced(x, 1, i, s, how), X, J[:2], S, grad="first" if _name == "prod" else True)
row("scatter_reduce mean alone", lambda x, i, s: x.scatter_reduce(1, i, s, "mean", include_self=False),
    lambda x, i, s: put(x, along(i, 1), s[:, :2]), X, K, S)
row("nonzero", lambda m: m.nonzero(), np.argwhere, MASK, grad=False, meta=False)
row("nonzero tuple", lambda m: m.nonzero(as_tuple=True), np.nonzero, MASK, grad=False, meta=False)
row("nonzero_static", lambda m: torch.nonzero_static(m, size=2), lambda m: np.argwhere(m)[:2], MASK, grad=False)
row("argwhere", lambda m: torch.argwhere(m), np.argwhere, MASK, grad=False, meta=False)
row("isin", lambda a, b: torch.isin(a, b), np.isin, J, I, grad=False)
row("isin not", lambda a, b: torch.isin(a, b, invert=True), lambda a, b: np.isin(a, b, invert=True), J, I, grad=False)
row("searchsorted", lambda v, x: torch.searchsorted(v, x), np.searchsorted, np.sort(X.ravel()), S, grad=False)
row("searchsorted right", lambda v, x: torch.searchsorted(v, x, right=True),
    lambda v, x: np.searchsorted(v, x, "right"), np.array([0, 1, 1, 3]), J, grad=False)
row("bucketize", lambda x, v: torch.bucketize(x, v), lambda x, v: np.searchsorted(v, x), S, np.array([-1.0, 0.0, 1.0]), grad=False)
row("unravel_index", lambda i: torch.unravel_index(i, (3, 4)), lambda i: np.unravel_index(i, (3, 4)), np.array([5, 11, 0]), grad=False)
row("one_hot", lambda i: F.one_hot(i, 5), lambda i: np.eye(5, dtype=np.int64)[i], J, grad=False)
row("embedding", lambda i, w: F.embedding(i, w), lambda i, w: w[i], WORDS, TABLE)
row("embedding top", lambda w, i: torch.embedding(w, i), lambda w, i: w[i], TABLE, WORDS)
row("embedding_bag", lambda i, w: F.embedding_bag(i, w), lambda i, w: w[i].mean(1), WORDS, TABLE, grad="first")
row("embedding_bag sum", lambda i, w, o: F.embedding_bag(i, w, o, mode="sum"),
    lambda i, w, o: bags(w[i], o, lambda b: b.sum(0)), WORDS.ravel(), TABLE, np.array([0, 2, 3]), grad="first")
row("embedding_bag max", lambda i, w, o: F.embedding_bag(i, w, o, mode="max"),
    lambda i, w, o: bags(w[i], o, lambda b: b.max(0)), WORDS.ravel(), TABLE, np.array([0, 2, 3]), grad="first")
row("where", lambda m, x, y: torch.where(m, x, y), np.where, MASK, X, X * 2)
row("where places", lambda m: torch.where(m), np.nonzero, MASK, grad=False, meta=False)
row("embedding_bag weighted", lambda i, w, p: F.embedding_bag(i, w, mode="sum", per_sample_weights=p),
    lambda i, w, p: (w[i] * p[..., None]).sum(1), WORDS, TABLE, numbers((2, 3), seed=8), grad="first")
