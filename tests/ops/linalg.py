"""Factorisations, solutions, norms. Where a factorisation is unique up to signs or phases, what defines it is checked."""
import numpy as np

import flambeau as torch

from .rows import numbers, row

L = torch.linalg
A, B, V = numbers((3, 3)) + 3 * np.eye(3), numbers((3, 2), seed=1), numbers((3,), seed=2)
BATCH = np.stack([A, A.T + np.diag([1.0, 2.0, 0.5])])
SPD = A @ A.T
SYM = (A + A.T) / 2
TALL, WIDE = numbers((4, 3), seed=3), numbers((3, 4), seed=4)
LOWER, UPPER = np.tril(A), np.triu(A)


def spd(a):
    """A symmetric positive definite matrix that is a smooth function of any."""
    return a @ a.mT + 0.1 * torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)


def lu(a):
    """(permuted rows, L, U) by Gaussian elimination with row pivots."""
    u, l, order = a.copy(), np.eye(len(a)), np.arange(len(a))
    for k in range(len(a)):
        p = k + np.argmax(np.abs(u[k:, k]))
        for m in (u, order):
            m[[k, p]] = m[[p, k]]
        l[[k, p], :k] = l[[p, k], :k]
        l[k + 1:, k] = u[k + 1:, k] / u[k, k]
        u[k + 1:] -= np.outer(l[k + 1:, k], u[k])
    return order, l, u


def factors(check):
    """Check a factorisation by what it must be."""
    def holds(result, *arrays):
        parts = [p.detach().numpy() for p in result]
        for left, right in check(*parts, *arrays):
            np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9)
    return holds


row("cholesky", lambda a: L.cholesky(spd(a)), lambda a: np.linalg.cholesky(a @ a.T + 0.1 * np.eye(3)), A, meta=False)
row("cholesky upper", lambda a: torch.cholesky(spd(a), upper=True), lambda a: np.linalg.cholesky(a @ a.T + 0.1 * np.eye(3)).T, A, meta=False)
row("cholesky_ex", lambda a: L.cholesky_ex(a), lambda a: (np.linalg.cholesky(a), np.array(0)), SPD, grad=False, meta=False)
row("cholesky_solve", lambda b, l: torch.cholesky_solve(b, l.tril()), lambda b, l: np.linalg.solve(l @ l.T, b), B, LOWER)
row("cholesky_inverse", lambda l: torch.cholesky_inverse(l.tril()), lambda l: np.linalg.inv(l @ l.T), LOWER)
row("solve", lambda a, b: L.solve(a, b), np.linalg.solve, A, B, meta=False)
row("solve vector", lambda a, v: L.solve(a, v), np.linalg.solve, A, V, meta=False)
row("solve batch", lambda a, b: L.solve(a, b), lambda a, b: np.linalg.solve(a, b[None]), BATCH, B, grad="first", meta=False)
row("solve right", lambda a, b: L.solve(a, b.mT, left=False), lambda a, b: b.T @ np.linalg.inv(a), A, B, meta=False)
row("solve_ex", lambda a, b: L.solve_ex(a, b), lambda a, b: (np.linalg.solve(a, b), np.array(0)), A, B, grad=False, meta=False)
row("inverse", lambda a: torch.inverse(a), np.linalg.inv, A, meta=False)
row("inv batch", lambda a: L.inv(a), np.linalg.inv, BATCH, grad="first", meta=False)
row("inv_ex", lambda a: L.inv_ex(a), lambda a: (np.linalg.inv(a), np.array(0)), A, grad=False, meta=False)
row("solve_triangular", lambda a, b: L.solve_triangular(a.triu(), b, upper=True), lambda a, b: np.linalg.solve(np.triu(a), b), A, B)
row("triangular_solve", lambda b, a: torch.triangular_solve(b, a.tril(), upper=False),
    lambda b, a: (np.linalg.solve(np.tril(a), b), np.tril(a)), B, A, grad="first")

row("eigh", lambda a: L.eigh((a + a.mT) / 2), None, A, grad=False, meta=False,
    holds=factors(lambda w, q, a: [((q * w) @ q.T, (a + a.T) / 2), (q.T @ q, np.eye(3)), (w, np.linalg.eigvalsh((a + a.T) / 2))]))
row("eigh squared vectors", lambda a: (lambda r: (r.eigenvalues, r.eigenvectors ** 2))(L.eigh((a + a.mT) / 2)),
    lambda a: (lambda w, q: (w, q ** 2))(*np.linalg.eigh((a + a.T) / 2)), A, meta=False, tol=1e-9)
row("eigvalsh", lambda a: L.eigvalsh((a + a.mT) / 2), lambda a: np.linalg.eigvalsh((a + a.T) / 2), A, meta=False)
row("eig", lambda a: L.eig(a), None, A, grad=False, meta=False,
    holds=factors(lambda w, v, a: [(a @ v, v * w), (np.linalg.norm(v, axis=0), np.ones(3))]))
row("eigvals", lambda a: torch.sort(L.eigvals(spd(a)).real).values, lambda a: np.linalg.eigvalsh(a @ a.T + 0.1 * np.eye(3)), A, meta=False, tol=1e-9)
row("svd", lambda a: L.svd(a, full_matrices=False), None, TALL, grad=False, meta=False,
    holds=factors(lambda u, s, v, a: [((u * s) @ v, a), (u.T @ u, np.eye(3)), (v @ v.T, np.eye(3)), (s, np.linalg.svd(a)[1])]))
row("svd full", lambda a: L.svd(a), None, WIDE, grad=False, meta=False,
    holds=factors(lambda u, s, v, a: [((u * s) @ v[:3], a), (v @ v.T, np.eye(4))]))
row("svd products", lambda a: (lambda r: (r.S, (r.U * r.S) @ r.Vh))(L.svd(a, full_matrices=False)),
    lambda a: (np.linalg.svd(a)[1], a), TALL, meta=False)
row("svd old", lambda a: torch.svd(a), None, TALL, grad=False, meta=False, holds=factors(lambda u, s, v, a: [((u * s) @ v.T, a)]))
row("svdvals", lambda a: L.svdvals(a), lambda a: np.linalg.svd(a)[1], TALL, meta=False)
row("matrix_rank", lambda a: L.matrix_rank(a[:, :2] @ a[:2]), lambda a: np.array(2), A, grad=False, meta=False)
row("pinv", lambda a: L.pinv(a), np.linalg.pinv, TALL, grad="first", meta=False)
row("pinverse", lambda a: torch.pinverse(a), np.linalg.pinv, WIDE, grad="first", meta=False)
row("qr", lambda a: L.qr(a), None, TALL, grad="first",
    holds=factors(lambda q, r, a: [(q @ r, a), (q.T @ q, np.eye(3)), (np.tril(r, -1), np.zeros((3, 3)))]))
row("qr complete", lambda a: L.qr(a, "complete"), None, TALL, grad=False,
    holds=factors(lambda q, r, a: [(q @ r, a), (q.T @ q, np.eye(4))]))
row("qr old", lambda a: torch.qr(a), None, TALL, grad=False, holds=factors(lambda q, r, a: [(q @ r, a)]))
row("lu_factor", lambda a: L.lu_factor(a)[0], lambda a: np.tril(lu(a)[1], -1) + lu(a)[2], A, grad="first", meta=False)
row("lu_factor_ex", lambda a: L.lu_factor_ex(a)[2], lambda a: np.array(0), A, grad=False, meta=False)
row("lu", lambda a: L.lu(a), lambda a: (np.eye(3)[lu(a)[0]].T, *lu(a)[1:]), A, grad="first", meta=False)
row("lu_unpack", lambda a: torch.lu_unpack(*L.lu_factor(a)), lambda a: (np.eye(3)[lu(a)[0]].T, *lu(a)[1:]), A, grad="first", meta=False)
row("lu_solve", lambda a, b: L.lu_solve(*L.lu_factor(a), b), np.linalg.solve, A, B, grad="first", meta=False)
row("lu_solve old", lambda b, a: torch.lu_solve(b, *L.lu_factor(a)), lambda b, a: np.linalg.solve(a, b), B, A, grad="first", meta=False)
row("lstsq", lambda a, b: L.lstsq(a, b).solution, lambda a, b: np.linalg.lstsq(a, b)[0], TALL, numbers((4, 2), seed=6), grad="first", meta=False)

row("det", lambda a: torch.det(a), np.linalg.det, A)
row("det batch", lambda a: L.det(a), np.linalg.det, BATCH, grad="first")
row("slogdet", lambda a: L.slogdet(a), np.linalg.slogdet, A)
row("slogdet old", lambda a: torch.slogdet(a).logabsdet, lambda a: np.linalg.slogdet(a)[1], A)
row("logdet", lambda a: torch.logdet(spd(a)), lambda a: np.linalg.slogdet(a @ a.T + 0.1 * np.eye(3))[1], A)
row("trace", lambda a: a.trace(), np.trace, TALL)
row("matrix_power", lambda a: a.matrix_power(5), lambda a: np.linalg.matrix_power(a, 5), A)
row("matrix_power zero", lambda a: torch.matrix_power(a, 0), lambda a: np.eye(3), A, grad="first")
row("matrix_power inverse", lambda a: L.matrix_power(a, -2), lambda a: np.linalg.matrix_power(a, -2), A, meta=False)
row("matrix_exp", lambda a: torch.matrix_exp(a / 4), lambda a: sum(np.linalg.matrix_power(a / 4, k) / np.prod(np.arange(1.0, k + 1)) for k in range(40)), A, grad="first")
for _ord in (2, 1, 3, 0.5, np.inf, -np.inf):
    row(f"vector_norm {_ord}", lambda v, p=_ord: L.vector_norm(v, p), lambda v, p=_ord: np.linalg.norm(v, p), V)
row("vector_norm dim", lambda a: L.vector_norm(a, 3, dim=1, keepdim=True), lambda a: np.linalg.norm(a, 3, 1, keepdims=True), TALL)
for _ord in ("fro", "nuc", 1, -1, np.inf, 2, -2):
    row(f"matrix_norm {_ord}", lambda a, p=_ord: L.matrix_norm(a, p), lambda a, p=_ord: np.linalg.norm(a, p), TALL, meta=_ord not in ("nuc", 2, -2),
        grad="first" if _ord in ("nuc", 2, -2) else True)
row("norm linalg", lambda a: L.norm(a, 1, dim=1), lambda a: np.linalg.norm(a, 1, 1), TALL)
row("cond", lambda a: L.cond(a), np.linalg.cond, A, grad="first", meta=False)
row("cond p", lambda a: L.cond(a, 1), lambda a: np.linalg.cond(a, 1), A, grad="first", meta=False)
row("cross", lambda a, b: L.cross(a, b), lambda a, b: np.cross(a, b), A, A[::-1] * 2)
row("cross dim", lambda a, b: torch.cross(a, b, dim=0), lambda a, b: np.cross(a, b, axis=0), TALL[:3], A)
row("vecdot", lambda a, b: L.vecdot(a, b), lambda a, b: (a * b).sum(-1), A, SPD)
row("diagonal linalg", lambda a: L.diagonal(a), lambda a: np.diagonal(a, 0, -2, -1), BATCH)
row("vander", lambda v: L.vander(v), lambda v: np.vander(v, increasing=True), V)
row("tensorinv", lambda a: L.tensorinv(a.reshape(3, 1, 3), ind=1), lambda a: np.linalg.tensorinv(a.reshape(3, 1, 3), 1), A, meta=False)
row("tensorsolve", lambda a, v: L.tensorsolve(a.reshape(3, 1, 3), v[:, None]), lambda a, v: np.linalg.tensorsolve(a.reshape(3, 1, 3), v[:, None]), A, V, meta=False)
