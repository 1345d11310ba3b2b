"""Eigenvalues, singular values and the pseudoinverse.

Batches, failures and derivatives as in `solve.py`.
"""
from ..base import dtypes, shapes
from ..base.errors import need
from ..base.op import Composite, Op, door
from ..base.spec import Spec, spec
from .arith import conj
from .matmul import adjoint, matmul, only_tensors
from .solve import _solve, check, eye_like, in_columns, like, no_convergence, turned

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

    def direct(la, A, UPLO="L"): return la.eigh(A, UPLO.upper())

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

    def direct(la, A, UPLO="L"): return la.eigvalsh(A, UPLO.upper())

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

    def direct(la, input): return la.eig(input) if la.finite(input) else None

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

    def direct(la, input): return la.eigvals(input) if la.finite(input) else None

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

    def direct(la, A, full_matrices): return la.svd(A, full_matrices)

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

    def direct(la, A, *, driver=None): return la.svdvals(A)

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

    def direct(la, input, atol, rtol, hermitian):
        S = la.eigvalsh(input, "L") if hermitian else la.svdvals(input)
        return S if S is None else (abs(S) > tolerance(la.xp, input, abs(S), atol, rtol)).sum(-1)


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
            parts = xp.linalg.eigh(input) if hermitian else xp.linalg.svd(input, full_matrices=False)
        except xp.linalg.LinAlgError:
            no_convergence(xp, input, "linalg.pinv", "singular values")
        return pseudoinverse(xp, input, parts, atol, rtol)

    def direct(la, input, atol, rtol, hermitian):
        parts = la.eigh(input, "L") if hermitian else la.svd(input, False)
        return parts and pseudoinverse(la.xp, input, parts, atol, rtol)

    def d_input(g, input, out):
        P, Ph, Gh = out, adjoint(out), adjoint(g)
        first = matmul(Ph, matmul(g, Ph))
        outside = matmul(Gh, matmul(P, Ph))                  # the part of the gradient beside A's columns
        inside = matmul(matmul(Ph, P), Gh)                   # and beside its rows
        return outside - matmul(input, matmul(P, outside)) + inside - matmul(matmul(inside, P), input) - first


def pseudoinverse(xp, A, parts, atol, rtol):
    """The pseudoinverse of `A`, whose parts are singular values between vectors, or eigenvalues and vectors."""
    U, S, Vh = parts if len(parts) == 3 else (parts[1], parts[0], turned(xp, parts[1]))
    size = xp.abs(S)
    zero = size <= tolerance(xp, A, size, atol, rtol)
    inverse = xp.where(zero, 0, 1 / xp.where(zero, 1, S))
    return xp.matmul(turned(xp, Vh) * inverse[..., None, :], turned(xp, U))


class pinverse(Composite):
    """The older form of `linalg.pinv`."""

    def of(input, rcond=1e-15): return _linalg_pinv(input, rcond)
