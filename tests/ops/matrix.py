"""Products of vectors, matrices and batches."""
import numpy as np

import flambeau as torch

from .rows import numbers, row

F = torch.nn.functional
A, B, V, W = numbers((2, 3)), numbers((3, 4), seed=1), numbers((3,), seed=2), numbers((2,), seed=3)
BA, BB, C = numbers((2, 2, 3), seed=4), numbers((2, 3, 2), seed=5), numbers((2, 4), seed=6)
M = numbers((2, 2), seed=7)

row("mm", lambda a, b: a.mm(b), np.matmul, A, B)
row("bmm", lambda a, b: a.bmm(b), np.matmul, BA, BB)
row("mv", lambda a, v: a.mv(v), np.matmul, A, V)
row("dot", lambda v, w: v.dot(w), np.dot, V, V[::-1] * 2)
row("vdot", lambda v, w: v.vdot(w), np.vdot, V, V[::-1] * 2)
row("outer", lambda v, w: v.outer(w), np.outer, V, W)
row("addmm", lambda c, a, b: torch.addmm(c, a, b, beta=2, alpha=0.5), lambda c, a, b: 2 * c + 0.5 * a @ b, C, A, B)
row("addmm broadcast", lambda c, a, b: torch.addmm(c[0], a, b), lambda c, a, b: c[0] + a @ b, C, A, B)
row("addmv", lambda w, a, v: torch.addmv(w, a, v, beta=3), lambda w, a, v: 3 * w + a @ v, W, A, V)
row("baddbmm", lambda m, a, b: torch.baddbmm(m, a, b, alpha=2), lambda m, a, b: m + 2 * a @ b, numbers((2, 2, 2), seed=8), BA, BB)
row("addbmm", lambda m, a, b: torch.addbmm(m, a, b), lambda m, a, b: m + (a @ b).sum(0), M, BA, BB)
row("addr", lambda c, v, w: torch.addr(c, v, w, alpha=2), lambda c, v, w: c + 2 * np.outer(v, w), numbers((3, 2), seed=9), V, W)
row("matmul", lambda a, b: a @ b, np.matmul, A, B)
row("matmul vectors", lambda v, w: v @ w, np.matmul, V, V[::-1] * 2)
row("matmul matrix vector", lambda a, v: a @ v, np.matmul, A, V)
row("matmul vector matrix", lambda v, b: v @ b, np.matmul, V, B)
row("matmul batches", lambda a, b: a @ b, np.matmul, BA, BB)
row("matmul broadcast", lambda a, b: a[:, None] @ b, lambda a, b: a[:, None] @ b, BA, BB, grad="first")
row("matmul batch vector", lambda a, v: a @ v, np.matmul, BA, V)
row("matmul of integers", lambda a, b: a @ b, np.matmul, np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2), grad=False)
row("linear", lambda a, w: F.linear(a, w), lambda a, w: a @ w.T, A, numbers((4, 3), seed=10))
row("linear bias", lambda a, w, b: F.linear(a, w, b), lambda a, w, b: a @ w.T + b, BA, numbers((4, 3), seed=10), numbers((4,), seed=11))
row("inner", lambda a, b: torch.inner(a, b), np.inner, A, BA)
row("tensordot", lambda a, b: torch.tensordot(a, b, 1), lambda a, b: np.tensordot(a, b, 1), A, B)
row("tensordot dims", lambda a, b: torch.tensordot(a, b, ([1, 2], [0, 1])), lambda a, b: np.einsum("iab,abj->ij", a, b), BB, numbers((3, 2, 2), seed=12))
row("kron", lambda a, b: torch.kron(a, b), np.kron, A, M)
row("multi_dot", lambda a, b, c: torch.linalg.multi_dot([a, b, c]), lambda a, b, c: a @ b @ c, A, B, numbers((4, 2), seed=13))
row("chain_matmul", lambda a, b: torch.chain_matmul(a, b), np.matmul, A, B)
for _equation, _arrays in {"ij,jk->ik": (A, B), "ij->j": (A,), "ii->i": (M,), "ii": (M,), "ij,ij->": (A, A * 2), "bij,bjk->bik": (BA, BB),
                           "bij,kj->bki": (BA, A), "i,j->ij": (V, W), "...ij,...jk": (BA, BB), "ij,jk,kl->il": (A, B, numbers((4, 2), seed=13)),
                           "ij->ji": (A,), "bij->b": (BA,)}.items():
    row(f"einsum {_equation}", lambda *a, eq=_equation: torch.einsum(eq, *a), lambda *a, eq=_equation: np.einsum(eq, *a), *_arrays)
row("bilinear", lambda x, y, w, b: F.bilinear(x, y, w, b), lambda x, y, w, b: np.einsum("ni,oij,nj->no", x, w, y) + b,
    A, C, numbers((2, 3, 4), seed=14), W, grad="first")
row("cdist", lambda a, b: torch.cdist(a, b), lambda a, b: np.sqrt(((a[:, None] - b) ** 2).sum(-1)), A, numbers((4, 3), seed=15))
row("cdist p", lambda a, b: torch.cdist(a, b, p=1.5), lambda a, b: (np.abs(a[:, None] - b) ** 1.5).sum(-1) ** (2 / 3),
    A, numbers((4, 3), seed=15), grad="first")
row("pdist", lambda a: torch.pdist(a), lambda a: np.array([np.sqrt(((a[i] - a[j]) ** 2).sum()) for i in range(len(a)) for j in range(i + 1, len(a))]), A)
for power in (1.0, 3.0):
    row(f"pdist {power}", lambda a, p=power: torch.pdist(a, p),
        lambda a, p=power: np.array([(abs(a[i] - a[j]) ** p).sum() ** (1 / p) for i in range(len(a)) for j in range(i + 1, len(a))]), A)
row("cdist of many", lambda a, b: torch.cdist(a, b), lambda a, b: np.sqrt(((a[:, None] - b) ** 2).sum(-1)), numbers((27, 2), seed=16),
    numbers((2, 2), 3, 5, seed=17), grad="first", tol=1e-7)
row("pairwise_distance", lambda a, b: F.pairwise_distance(a, b), lambda a, b: np.sqrt(((a - b + 1e-6) ** 2).sum(-1)), A, A[::-1] * 2)
row("cosine_similarity", lambda a, b: F.cosine_similarity(a, b),
    lambda a, b: (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1)), A, A[::-1] * 2)


OFFS = np.array([2, 3, 6], np.int32)
TOKENS, EXPERTS = numbers((7, 4), seed=21), numbers((3, 4, 5), seed=22)


def grouped(a, b, offs):
    """By groups of rows; those behind the last are zero."""
    parts = [a[start:end] @ b[i] for i, (start, end) in enumerate(zip([0, *offs[:-1]], offs))]
    return np.concatenate([*parts, np.zeros((len(a) - offs[-1], b.shape[-1]))])


def single(ours):
    """Half as precise as the numbers are: there is no double form."""
    return lambda *given: ours(*[t.float() if t.is_floating_point() else t for t in given])


row("grouped_mm", single(lambda a, b, o: torch.nn.functional.grouped_mm(a, b, offs=o)), grouped, TOKENS, EXPERTS, OFFS,
    grad=False, meta=False, tol=1e-4)
row("_grouped_mm summed over groups", single(lambda a, b, o: torch._grouped_mm(a.T, b, o)),
    lambda a, b, o: np.stack([a[s:e].T @ b[s:e] for s, e in zip([0, *o[:-1]], o)]), TOKENS, numbers((7, 3), seed=23), OFFS,
    grad=False, meta=False, tol=1e-4)
row("grouped_mm batches", single(lambda a, b: torch.nn.functional.grouped_mm(a, b)), np.matmul, numbers((3, 2, 4), seed=24),
    EXPERTS, grad=False, tol=1e-4)

EIGHT_BITS = np.random.default_rng(5)
BYTES, MORE_BYTES = EIGHT_BITS.integers(-128, 128, (5, 70), np.int8), EIGHT_BITS.integers(-128, 128, (70, 6), np.int8)


def whole(a, b):
    return a.astype(np.int64) @ b.astype(np.int64)


row("_int_mm", lambda a, b: torch._int_mm(a, b), whole, BYTES, MORE_BYTES, grad=False)
row("_int_mm across", lambda a, b: torch._int_mm(b.T, a.T), lambda a, b: whole(b.T, a.T), BYTES, MORE_BYTES, grad=False)
row("_int_mm of uint8", lambda a, b: torch._int_mm(a, b), whole, BYTES.view(np.uint8), MORE_BYTES, grad=False)
row("_int_mm long", lambda a, b: torch._int_mm(a, b), whole, np.tile(BYTES, 9), np.tile(MORE_BYTES, (9, 1)), grad=False)
row("_weight_int8pack_mm", single(lambda x, w, s: torch._weight_int8pack_mm(x.contiguous(), w.contiguous(), s)),
    lambda x, w, s: x @ w.T.astype(np.float64) * s, numbers((4, 5), seed=25), BYTES.T.copy()[:, :5], numbers((70,), seed=26),
    grad=False, tol=1e-5)
