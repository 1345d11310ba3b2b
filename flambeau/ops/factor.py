"""Factorisations: QR and LU.

Batches, failures and derivatives as in `solve.py`.
"""
from ..base import dtypes, shapes
from ..base.errors import need
from ..base.op import Composite, Op
from ..base.spec import spec
from .create import _eye
from .matmul import adjoint, matmul
from .pieces import cat
from .solve import _solve_triangular, blame, check, check_equation, in_columns, like

# --- QR and LU --------------------------------------------------------------------------------------------------------


class _qr(Op):
    """Q with orthonormal columns and upper triangular R with A = Q R."""

    names = "linalg.qr"
    forms = "function out"
    node = "LinalgQrBackward0"
    returns = "linalg_qr Q R"
    strict_out = True

    def meta(A, mode="reduced"):
        check(A, "linalg.qr", square=False)
        need(mode in ("reduced", "r", "complete"), f"qr received unrecognized mode '{mode}' but expected one of "
             "'reduced' (default), 'r', or 'complete'")
        m, n = A.shape[-2:]
        k = m if mode == "complete" else min(m, n)
        return A.like(shape=(0,)) if mode == "r" else in_columns(A, m, k), in_columns(A, k, n)

    def ref(xp, A, mode="reduced"):
        if mode == "r":
            return xp.empty(0, A.dtype), xp.linalg.qr(A, "r")
        return tuple(xp.linalg.qr(A, mode))

    def direct(la, A, mode="reduced"):
        made = la.qr(A, mode)
        return made if made is None or mode != "r" else (la.zeros(0, A.dtype), made)

    def d_A(g, out, mode):
        Q, R = out
        need(mode != "r", "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use "
             "linalg.qr(A, mode='reduced') if you are going to require its derivatives.")
        m, n = Q.shape[-2], R.shape[-1]
        need(mode == "reduced" or m <= n, "The QR decomposition is not differentiable when mode='complete' and nrows > "
             f"ncols ({m} > {n}); use mode='reduced'.")
        gQ, gR = g
        if m >= n:
            return d_qr(gQ, gR, Q, R)
        # Wide: the first m columns are factored, the others only multiplied by Q^H.
        if gR is None:
            return cat([d_qr(gQ, None, Q, R[..., :m]), Q.new_zeros((*Q.shape[:-1], n - m))], -1)
        rest = gR[..., m:]
        back = matmul(matmul(Q, R[..., m:]), adjoint(rest))
        first = d_qr(back if gQ is None else gQ + back, gR[..., :m], Q, R[..., :m])
        return cat([first, matmul(Q, rest)], -1)


def d_qr(gQ, gR, Q, R):
    """The gradient of A = Q R where A has at least as many rows as columns."""
    inner = 0
    if gR is not None:
        inner = matmul(gR, adjoint(R))
    if gQ is not None:
        inner = inner - matmul(adjoint(Q), gQ)
    inner = inner.triu()
    on_diagonal = inner.diagonal(0, -2, -1)
    on_diagonal = (on_diagonal.real.to(inner.dtype) if inner.is_complex() else on_diagonal).diag_embed()
    upper = inner.triu(1)
    out = matmul(Q, upper + adjoint(upper) + on_diagonal)
    out = out if gQ is None else out + gQ
    return _solve_triangular(adjoint(R), out, upper=False, left=False)


class qr(Composite):
    """The older form of `linalg.qr`."""

    forms = "function method out"
    returns = "qr Q R"
    strict_out = True

    def of(input, some=True): return tuple(_qr(input, "reduced" if some else "complete"))


def eliminated(xp, A):
    """(L and U in one matrix, row exchanges from 0, which pivot is zero from 1, or 0), column by column, as LAPACK's
    getrf gives them, for all matrices at once."""
    LU, infos = A.copy(), xp.zeros(A.shape[:-2], xp.int32)
    m, n = A.shape[-2:]
    pivots = xp.zeros((*A.shape[:-2], min(m, n)), xp.int32)
    rows = xp.arange(m).reshape(m, 1)
    for k in range(min(m, n)):
        column = LU[..., k:, k]
        size = xp.abs(column.real) + xp.abs(column.imag) if A.dtype.kind == "c" else xp.abs(column)
        best = k + xp.argmax(size, -1)[..., None, None]
        pivots[..., k] = best[..., 0, 0]
        order = xp.where(rows == k, best, xp.where(rows == best, k, rows))
        LU = xp.take_along_axis(LU, order, -2)
        pivot = LU[..., k:k + 1, k]
        infos = xp.where((infos == 0) & (pivot[..., 0] == 0), k + 1, infos)
        LU[..., k + 1:, k] /= xp.where(pivot == 0, 1, pivot)
        LU[..., k + 1:, k + 1:] -= LU[..., k + 1:, k:k + 1] * LU[..., k:k + 1, k + 1:]
    return LU, pivots, infos


class _lu(Op):
    """L and U in one matrix, the row exchanges (from 1), and for each matrix which pivot is zero (or 0)."""

    node = "LinalgLuFactorExBackward0"
    returns = "linalg_lu_factor_ex LU pivots info"
    eager = True

    def meta(A, caller):
        check(A, caller or "linalg.lu_factor_ex", square=False)
        return (in_columns(A, *A.shape[-2:]), like(A, min(A.shape[-2:]), dtype=dtypes.int32),
                like(A, dtype=dtypes.int32))

    def ref(xp, A, caller):
        k = min(A.shape[-2:])
        if not A.size:
            return A.copy(), xp.zeros((*A.shape[:-2], k), xp.int32), xp.zeros(A.shape[:-2], xp.int32)
        LU, pivots, infos = eliminated(xp, A)
        refuse_zero_pivot(infos, caller)
        return LU, pivots + 1, infos

    def direct(la, A, caller):
        made = la.lu(A)
        if made is not None:
            refuse_zero_pivot(made[2], caller)
        return made

    def d_A(g, out0, out1):
        k = min(out0.shape[-2:])
        L, U = unit_lower(out0, k), out0[..., :k, :].triu()
        gL, gU = g[0][..., :k].tril(-1), g[0][..., :k, :].triu()
        return _exchange_rows(d_lu(gL, gU, L, U), out1, True)


def refuse_zero_pivot(infos, caller):
    """Refuse a matrix whose U cannot be inverted, in the name of `caller` if there is one."""
    blame(infos, caller, lambda k: f"U[{k},{k}] is zero and using it on lu_solve would result in a division by "
                                   "zero. If you still want to perform the factorization, consider calling "
                                   "linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)")


def unit_lower(LU, k):
    """L of a packed factorisation."""
    lower = LU[..., :k].tril(-1)
    m = LU.shape[-2]
    return lower + _eye(m, k, LU.dtype, LU.device)


def d_lu(gL, gU, L, U):
    """The gradient for L U, from those for L (unit lower) and U (upper); one of them may be taller or wider."""
    k, m, n = L.shape[-1], L.shape[-2], U.shape[-1]
    L1, U1, gL1, gU1 = L[..., :k, :], U[..., :k], gL[..., :k, :], gU[..., :k]
    rest = None
    if n > k:
        rest = _solve_triangular(adjoint(L1), gU[..., k:], upper=True, unitriangular=True)
        gL1 = gL1 - matmul(rest, adjoint(U[..., k:]))
    elif m > k:
        rest = _solve_triangular(adjoint(U1), gL[..., k:, :], upper=False, left=False)
        gU1 = gU1 - matmul(adjoint(L[..., k:, :]), rest)
    inner = matmul(adjoint(L1), gL1).tril(-1) + matmul(gU1, adjoint(U1)).triu()
    inner = _solve_triangular(adjoint(L1), inner, upper=True, unitriangular=True)
    out = _solve_triangular(adjoint(U1), inner, upper=False, left=False)
    return out if rest is None else cat([out, rest], -1 if n > k else -2)


def row_order(xp, pivots, m):
    """Which of `m` rows comes where, when they are exchanged as LAPACK says, one pivot after the other."""
    order = xp.broadcast_to(xp.arange(m), (*pivots.shape[:-1], m)).copy()
    few = pivots.size < pivots.shape[-1] ** 2
    for at in xp.ndindex(*pivots.shape[:-1]) if few else ():
        rows = list(range(m))
        for i, j in enumerate(pivots[at].tolist()):
            rows[i], rows[j - 1] = rows[j - 1], rows[i]
        order[at] = xp.asarray(rows)
    for i in range(0 if few else pivots.shape[-1]):                   # all matrices at once
        other = pivots[..., i, None].astype(xp.int64) - 1
        moved = xp.take_along_axis(order, other, -1)
        xp.put_along_axis(order, other, order[..., i, None], -1)
        order[..., i] = moved[..., 0]
    return order


class _permutation(Op):
    """The permutation matrix P of LAPACK's row exchanges, with A = P L U."""

    def meta(pivots, m): return spec(dtypes.bool, (*pivots.shape[:-1], m, m), None, pivots.device)

    def ref(xp, pivots, m): return xp.arange(m)[:, None] == row_order(xp, pivots, m)[..., None, :]


class _exchange_rows(Op):
    """P^T `input`, or P `input` where they go `back`, with the permutation matrix P of LAPACK's row exchanges."""

    def meta(input, pivots, back):
        shape = (*shapes.broadcast(input.shape[:-2], pivots.shape[:-1]), *input.shape[-2:])
        return spec(input.dtype, shape, shapes.columns_first_strides(shape), input.device)

    def ref(xp, input, pivots, back):
        order = row_order(xp, pivots, input.shape[-2])
        order = xp.argsort(order, -1) if back else order
        batch = xp.broadcast_shapes(input.shape[:-2], order.shape[:-1])
        if not batch:
            return input[order]
        return xp.take_along_axis(xp.broadcast_to(input, (*batch, *input.shape[-2:])),
                                  xp.broadcast_to(order, (*batch, order.shape[-1]))[..., None], -2)

    def d_input(g, pivots, back): return _exchange_rows(g, pivots, not back)


def need_pivoting(pivot, name):
    need(pivot, f"{name}: LU without pivoting is not implemented on the CPU")


class _lu_factor_ex(Composite):
    """L and U in one matrix, the row exchanges, and an info per matrix (0: U can be inverted)."""

    names = "linalg.lu_factor_ex"
    forms = "function out"
    returns = "linalg_lu_factor_ex LU pivots info"
    strict_out = True

    def of(A, *, pivot=True, check_errors=False):
        need_pivoting(pivot, "linalg.lu_factor")
        return _lu(A, "linalg.lu_factor_ex" if check_errors else None)


class _lu_factor(Composite):
    """L and U in one matrix, and the row exchanges."""

    names = "linalg.lu_factor"
    forms = "function out"
    returns = "linalg_lu_factor LU pivots"
    strict_out = True

    def of(A, *, pivot=True):
        need_pivoting(pivot, "linalg.lu_factor")
        return tuple(_lu(A, "torch.linalg.lu_factor")[:2])


class _linalg_lu(Composite):
    """P, L and U with A = P L U: a permutation, a unit lower and an upper triangular matrix."""

    names = "linalg.lu"
    forms = "function out"
    returns = "linalg_lu P L U"
    strict_out = True

    def of(A, *, pivot=True):
        need_pivoting(pivot, "linalg.lu_factor")
        LU, pivots, _ = _lu(A, None)
        return tuple(lu_unpack(LU, pivots))


class lu_unpack(Composite):
    """P, L and U from what `linalg.lu_factor` gives."""

    forms = "function out"
    returns = "lu_unpack P L U"

    def of(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True):
        m, n = LU_data.shape[-2:]
        k, none = min(m, n), LU_data.new_zeros((0,))
        P = _permutation(LU_pivots, m).to(LU_data.dtype) if unpack_pivots else none
        L, U = (unit_lower(LU_data, k), LU_data[..., :k, :].triu()) if unpack_data else (none, none)
        return (P, L, U)


class _lu_solve(Composite):
    """The X with A X = B (or X A = B, or with A^H), from what `linalg.lu_factor` gives for A."""

    names = "linalg.lu_solve"
    forms = "function out"
    strict_out = True

    def of(LU, pivots, B, *, left=True, adjoint=False):
        check(LU, "linalg.lu_solve", argument="LU")
        check_equation(LU, B, left, "linalg.lu_solve")
        need(pivots.dtype is dtypes.int32, "linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32, got "
                                           f"{pivots.dtype}")
        need(pivots.shape == LU.shape[:-1], "linalg.lu_solve: Number of pivots per batch should be same as the "
             f"dimension of the matrix: {list(LU.shape[:-1])}, got {list(pivots.shape)}")
        if not left:                                   # X A = B is A^H X^H = B^H
            return turn(_lu_solve(LU, pivots, turn(B), adjoint=not adjoint))
        if adjoint:
            half = _solve_triangular(turn(LU), B, upper=False)
            return _exchange_rows(_solve_triangular(turn(LU), half, upper=True, unitriangular=True), pivots, True)
        half = _solve_triangular(LU, _exchange_rows(B, pivots, False), upper=False, unitriangular=True)
        return _solve_triangular(LU, half, upper=True)


turn = adjoint                                         # where an argument is called adjoint


class lu_solve(Composite):
    """The older form of `linalg.lu_solve`: the right-hand side `input` comes first."""

    forms = "function method out"
    strict_out = True

    def of(input, LU_data, LU_pivots): return _lu_solve(LU_data, LU_pivots, input)
