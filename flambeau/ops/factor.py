"""Factorisations: eigenvalues, singular values and the pseudoinverse, QR, LU.

Batches, failures and derivatives as in `solve.py`.
"""
import numpy as np

from ..base import dtypes, shapes
from ..base.errors import need
from ..base.op import Composite, Op, door
from ..base.spec import Spec, spec
from .arith import conj
from .create import _eye
from .matmul import adjoint, matmul, only_tensors
from .shape import cat
from .solve import (
    _solve,
    _solve_triangular,
    blame,
    check,
    check_equation,
    eye_like,
    in_columns,
    laid_in_columns,
    like,
    no_convergence,
    turned,
)

# --- eigenvalues ------------------------------------------------------------------------------------------------------


def d_eigen(gL, gV, L, V, hermitian):
    """The gradient of an eigendecomposition A V = V diag(L)."""
    Vh = adjoint(V)
    if gV is None:
        inner = gL.unsqueeze(-1) * Vh
    else:
        turn = matmul(Vh, gV)
        if hermitian:                       # V moves within the unitary matrices: only the skew part counts
            turn = (turn - adjoint(turn)) * 0.5
        else:                               # columns of V keep their length
            turn = turn - matmul(Vh, V * turn.diagonal(0, -2, -1).real.unsqueeze(-2))
        gaps = conj(L).unsqueeze(-2) - conj(L).unsqueeze(-1)
        diagonal_ = eye_like(V).real != 0 if V.is_complex() else eye_like(V) != 0
        middle = (turn / gaps.masked_fill(diagonal_, 1)).masked_fill(diagonal_, 0)
        if gL is not None:
            middle = middle + gL.to(middle.dtype).diag_embed()
        inner = matmul(middle, Vh)
    return matmul(V, inner) if hermitian else _solve(Vh, inner, True, False, None)[0]


class _eigh(Op):
    """The eigenvalues of Hermitian matrices in rising order, and their eigenvectors as columns.

    >>> torch.linalg.eigh(torch.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    tensor([1., 2.])
    """

    names = "linalg.eigh"
    forms = "function out"
    renamed = {"input": "A"}
    node = "LinalgEighBackward0"
    returns = "linalg_eigh eigenvalues eigenvectors"
    eager = True
    strict_out = True

    def meta(A, UPLO="L"):
        check(A, "linalg.eigh")
        need(UPLO.upper() in ("L", "U"), f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
        return like(A, A.shape[-1], dtype=A.dtype.to_real()), in_columns(A, *A.shape[-2:])

    def ref(xp, A, UPLO="L"):
        try:
            return tuple(xp.linalg.eigh(A, UPLO.upper()))
        except xp.linalg.LinAlgError:
            no_convergence(xp, A, "linalg.eigh", "eigenvalues")

    def d_A(g, out0, out1): return d_eigen(g[0], g[1], out0, out1, True)


class _eigvalsh(Op):
    """The eigenvalues of Hermitian matrices in rising order."""

    names = "linalg.eigvalsh"
    forms = "function out"
    renamed = {"input": "A"}
    node = "LinalgEighBackward0"
    eager = True
    strict_out = True

    def meta(A, UPLO="L"): return _eigh.meta(A, UPLO)[0]

    def ref(xp, A, UPLO="L"):
        try:
            return xp.linalg.eigvalsh(A, UPLO.upper())
        except xp.linalg.LinAlgError:
            no_convergence(xp, A, "linalg.eigh", "eigenvalues")

    def d_A(g, A, UPLO): return d_eigen(g, None, *_eigh(A, UPLO), True)


class _eig(Op):
    """The (complex) eigenvalues of square matrices, and their eigenvectors as columns."""

    names = "linalg.eig"
    forms = "function out"
    node = "LinalgEigBackward0"
    returns = "linalg_eig eigenvalues eigenvectors"
    eager = True

    def meta(input):
        check(input, "linalg.eig", argument="input")
        dtype = input.dtype.to_complex()
        return like(input, input.shape[-1], dtype=dtype), in_columns(input, *input.shape[-2:], dtype=dtype)

    def ref(xp, input):
        finite(xp, input)
        try:
            return tuple(xp.linalg.eig(input))
        except xp.linalg.LinAlgError:
            no_convergence(xp, input, "linalg.eig", "eigenvalues")

    def d_input(g, out0, out1): return d_eigen(g[0], g[1], out0, out1, False)


def finite(xp, A):
    need(bool(xp.isfinite(A).all()), "torch.linalg.eig: input tensor should not contain infs or NaNs.")


class _eigvals(Op):
    """The (complex) eigenvalues of square matrices."""

    names = "linalg.eigvals"
    forms = "function out"
    node = "LinalgEigBackward0"
    eager = True

    def meta(input):
        check(input, "linalg.eigvals")
        return _eig.meta(input)[0]

    def ref(xp, input):
        finite(xp, input)
        try:
            return xp.linalg.eigvals(input)
        except xp.linalg.LinAlgError:
            no_convergence(xp, input, "linalg.eigvals", "eigenvalues")

    def d_input(g, input): return d_eigen(g, None, *_eig(input), False)


# --- singular values --------------------------------------------------------------------------------------------------


class _svd(Op):
    """U, S and V^H with A = U diag(S) V^H, the singular values S in falling order."""

    node = "LinalgSvdBackward0"
    returns = "linalg_svd U S Vh"
    eager = True

    def meta(A, full_matrices):
        check(A, "linalg.svd", square=False)
        m, n = A.shape[-2:]
        k = min(m, n)
        return (in_columns(A, m, m if full_matrices else k), like(A, k, dtype=A.dtype.to_real()),
                in_columns(A, n if full_matrices else k, n))

    def ref(xp, A, full_matrices):
        try:
            return tuple(xp.linalg.svd(A, full_matrices=full_matrices))
        except xp.linalg.LinAlgError:
            no_convergence(xp, A, "linalg.svd", "singular values")

    def d_A(g, full_matrices, out):
        (gU, gS, gVh), (U, S, Vh) = g, out
        if full_matrices:                                   # the vectors that it adds have no gradient, as in PyTorch
            k = S.shape[-1]
            U, Vh = U[..., :k], Vh[..., :k, :]
            gU, gVh = gU if gU is None else gU[..., :k], gVh if gVh is None else gVh[..., :k, :]
        return d_svd(gU, gS, gVh, U, S, Vh)


def skew(X):
    return X - adjoint(X)


def d_svd(gU, gS, gVh, U, S, Vh):
    """The gradient of a singular value decomposition with k = len(S) vectors on each side."""
    m, n, k = U.shape[-2], Vh.shape[-1], S.shape[-1]
    if gU is None and gVh is None:
        return matmul(U, gS.unsqueeze(-1) * Vh) if m >= n else matmul(U * gS.unsqueeze(-2), Vh)
    rows, columns = S.unsqueeze(-1), S.unsqueeze(-2)
    on_diagonal = eye_like(U, k) != 0
    gaps = (columns * columns - rows * rows).masked_fill(on_diagonal, 1)
    left = None if gU is None else skew(matmul(adjoint(U), gU))
    right = None if gVh is None else skew(matmul(Vh, adjoint(gVh)))
    middle = 0
    if left is not None:
        middle = left * columns / gaps
    if right is not None:
        middle = middle + rows * right / gaps
    middle = middle.masked_fill(on_diagonal, 0)
    if gS is not None:
        middle = middle + gS.to(middle.dtype).diag_embed()
    if left is not None and right is not None and U.is_complex():
        middle = middle + (left.diagonal(0, -2, -1) / (2 * S)).diag_embed()
    if m > k and gU is not None:                       # what moves U out of its own span
        out = gU / columns
        return matmul(matmul(U, middle) + out - matmul(U, matmul(adjoint(U), out)), Vh)
    if n > k and gVh is not None:                      # what moves V out of its own span
        out = gVh / rows
        return matmul(U, matmul(middle, Vh) + out - matmul(matmul(out, adjoint(Vh)), Vh))
    return matmul(U, matmul(middle, Vh))


def check_driver(driver, name):
    need(driver is None, f"torch.{name}: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER "
         f"backend; it is {driver!r}.")


class _linalg_svd(Composite):
    """U, S and V^H with A = U diag(S) V^H, the singular values S in falling order."""

    names = "linalg.svd"
    forms = "function out"
    returns = "linalg_svd U S Vh"
    strict_out = True

    def of(A, full_matrices=True, *, driver=None):
        check_driver(driver, "linalg.svd")
        return _svd(A, full_matrices)


class svd(Composite):
    """The older form of `linalg.svd`: U, S and V (not its conjugate transpose)."""

    forms = "function method out"
    returns = "svd U S V"
    strict_out = True

    def of(input, some=True, compute_uv=True):
        if not compute_uv:
            check(input, "linalg.svd", square=False)
            S = _svdvals(input)
            *batch, m, n = input._spec.shape
            U, V = input.new_zeros([*batch, m, m]), input.new_zeros([*batch, n, n])
            return (U, S, V)
        U, S, Vh = _svd(input, not some)
        return (U, S, adjoint(Vh))


class _svdvals(Op):
    """The singular values of each matrix, in falling order."""

    names = "linalg.svdvals"
    forms = "function out"
    node = "LinalgSvdBackward0"
    eager = True
    strict_out = True

    def meta(A, *, driver=None):
        check_driver(driver, "linalg.svdvals")
        return _svd.meta(A, False)[1]

    def ref(xp, A, *, driver=None):
        try:
            return xp.linalg.svd(A, compute_uv=False)
        except xp.linalg.LinAlgError:
            no_convergence(xp, A, "linalg.svd", "singular values")

    def d_A(g, A):
        U, S, Vh = _svd(A, False)
        return d_svd(None, g, None, U, S, Vh)


def tolerance(xp, A, S, atol, rtol):
    """What counts as zero beside the largest of the singular values `S`: without arguments eps * max(m, n) times it."""
    atol = xp.asarray(0.0 if atol is None else atol)[..., None]
    if rtol is None:
        rtol = xp.where(atol > 0, 0, xp.finfo(S.dtype).eps * max(A.shape[-2:]))
    else:
        rtol = xp.asarray(rtol)[..., None]
    return xp.maximum(atol, rtol * S.max(-1, keepdims=True)).astype(S.dtype)


def plain(number):
    """A tolerance as `ref` takes it: a number, or a tensor without its history."""
    return number.detach() if isinstance(number, door.tensor) else number


def tolerances_shape(input, atol, rtol):
    """The batch shape of `input` and of those tolerances that are tensors."""
    batches = [t.shape for t in (atol, rtol) if isinstance(t, Spec)]
    return shapes.broadcast(input.shape[:-2], *batches)


class _linalg_matrix_rank(Composite):
    """How many singular values of each matrix are larger than the tolerance."""

    names = "linalg.matrix_rank"
    forms = "function out"

    def of(input, tol=None, hermitian=False, *, atol=None, rtol=None):
        if tol is not None:
            atol, rtol = tol, 0.0
        return _matrix_rank(input, plain(atol), plain(rtol), hermitian)


class _matrix_rank(Op):
    """How many singular values of each matrix are larger than the tolerance."""

    eager = True

    def meta(input, atol, rtol, hermitian):
        check(input, "torch.linalg.matrix_rank", hermitian and input.numel, "input")
        return spec(dtypes.int64, tolerances_shape(input, atol, rtol), None, input.device)

    def ref(xp, input, atol, rtol, hermitian):
        if 0 in input.shape[-2:]:
            return xp.zeros(input.shape[:-2], int)
        S = xp.abs(xp.linalg.eigvalsh(input)) if hermitian else xp.linalg.svd(input, compute_uv=False)
        return (S > tolerance(xp, input, S, atol, rtol)).sum(-1)


class _linalg_pinv(Composite):
    """The pseudoinverse: singular values up to the tolerance count as zero."""

    names = "linalg.pinv"
    forms = "function out"

    def of(input, rcond=None, hermitian=False, *, atol=None, rtol=None):
        if rcond is not None:
            atol, rtol = 0.0, rcond
        return _pinv(input, plain(atol), plain(rtol), hermitian)


class _pinv(Op):
    """The pseudoinverse: singular values up to the tolerance count as zero."""

    node = "LinalgPinvBackward0"
    eager = True

    def meta(input, atol, rtol, hermitian):
        only_tensors(input=input)
        need(input.ndim >= 2 and input.dtype.category >= 2 and input.dtype.itemsize > 2,
             f"linalg.pinv({input.dtype.cname}{{{list(input.shape)}}}): expected a tensor with 2 or more dimensions of "
             "float, double, cfloat or cdouble types")
        if hermitian and input.numel:
            check(input, "linalg.eigh")
        m, n = input.shape[-2:]
        return spec(input.dtype, (*tolerances_shape(input, atol, rtol), n, m), None, input.device)

    def ref(xp, input, atol, rtol, hermitian):
        if not input.size:
            return xp.swapaxes(input, -1, -2)
        try:
            if hermitian:
                S, U = xp.linalg.eigh(input)
                V, size = U, xp.abs(S)
            else:
                U, S, Vh = xp.linalg.svd(input, full_matrices=False)
                V, size = turned(xp, Vh), S
        except xp.linalg.LinAlgError:
            no_convergence(xp, input, "linalg.pinv", "singular values")
        zero = size <= tolerance(xp, input, size, atol, rtol)
        inverse = xp.where(zero, 0, 1 / xp.where(zero, 1, S))
        return xp.matmul(V * inverse[..., None, :], turned(xp, U))

    def d_input(g, input, out):
        P, Ph, Gh = out, adjoint(out), adjoint(g)
        first = matmul(Ph, matmul(g, Ph))
        outside = matmul(Gh, matmul(P, Ph))                  # the part of the gradient beside A's columns
        inside = matmul(matmul(Ph, P), Gh)                   # and beside its rows
        return outside - matmul(input, matmul(P, outside)) + inside - matmul(matmul(inside, P), input) - first


class pinverse(Composite):
    """The older form of `linalg.pinv`."""

    def of(input, rcond=1e-15): return _linalg_pinv(input, rcond)


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


def scipy_lapack():
    """scipy.linalg, which has the LU factorisation that NumPy lacks."""
    try:
        import scipy.linalg
    except ImportError:
        raise NotImplementedError("the LU factorisation is not in NumPy: install SciPy (pip install flambeau[lu]) to "
                                  "use it, or use linalg.solve, linalg.inv or linalg.det, which need none") from None
    return scipy.linalg


def eliminated(xp, A):
    """(L and U in one matrix, row exchanges from 0, which pivot is zero from 1, or 0), column by column, as LAPACK's
    getrf gives them: for all matrices at once, on devices where SciPy does not compute."""
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
        m, n = A.shape[-2:]
        k = min(m, n)
        LU, pivots = xp.zeros_like(A), xp.zeros((*A.shape[:-2], k), xp.int32)
        infos = xp.zeros(A.shape[:-2], xp.int32)
        if not A.size:
            return LU, pivots, infos
        if xp is np:
            factor = scipy_lapack().get_lapack_funcs(("getrf",), (A,))[0]
            for at in xp.ndindex(*A.shape[:-2]):
                LU[at], pivots[at], infos[at] = factor(A[at])
        else:
            LU, pivots, infos = eliminated(xp, A)
        blame(infos, caller, lambda k: f"U[{k},{k}] is zero and using it on lu_solve would result in a division by "
                                       "zero. If you still want to perform the factorization, consider calling "
                                       "linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)")
        return LU, pivots + 1, infos

    def d_A(g, out0, out1):
        k = min(out0.shape[-2:])
        L, U = unit_lower(out0, k), out0[..., :k, :].triu()
        gL, gU = g[0][..., :k].tril(-1), g[0][..., :k, :].triu()
        return matmul(_permutation(out1, out0.shape[-2]).to(out0.dtype), d_lu(gL, gU, L, U))


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


class _permutation(Op):
    """The permutation matrix P of LAPACK's row exchanges, with A = P L U."""

    def meta(pivots, m): return spec(dtypes.bool, (*pivots.shape[:-1], m, m), None, pivots.device)

    def ref(xp, pivots, m):
        P = xp.zeros((*pivots.shape[:-1], m, m), bool)
        for at in xp.ndindex(*pivots.shape[:-1]):
            order = list(range(m))
            for i, j in enumerate(pivots[at].tolist()):
                order[i], order[j - 1] = order[j - 1], order[i]
            P[at][order, list(range(m))] = True
        return P


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
        P = _permutation(pivots, LU.shape[-1]).to(LU.dtype)
        if not left:                                   # X A = B is A^H X^H = B^H
            return turn(_lu_solve(LU, pivots, turn(B), adjoint=not adjoint))
        if adjoint:
            half = _solve_triangular(turn(LU), B, upper=False)
            return laid_in_columns(matmul(P, _solve_triangular(turn(LU), half, upper=True, unitriangular=True)))
        half = _solve_triangular(LU, matmul(P.mT, B), upper=False, unitriangular=True)
        return _solve_triangular(LU, half, upper=True)


turn = adjoint                                         # where an argument is called adjoint


class lu_solve(Composite):
    """The older form of `linalg.lu_solve`: the right-hand side `input` comes first."""

    forms = "function method out"
    strict_out = True

    def of(input, LU_data, LU_pivots): return _lu_solve(LU_data, LU_pivots, input)
