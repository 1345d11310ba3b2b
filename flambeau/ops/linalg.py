"""Linear algebra: factorisations, solvers, determinants, eigenvalues and norms, through NumPy's LAPACK.

All of it works on batches: the last two dimensions are the matrices. What can fail on its data (a singular matrix, one
that is not positive-definite) runs at the call and raises LinAlgError there. The derivatives are written with the
public operations, so that they can be differentiated again; `adjoint(A)` is the conjugate transpose, A^H below.
"""
import math

from ..base import dtypes, shapes
from ..base.errors import LinAlgError, need
from ..base.op import Composite, Op, door
from ..base.spec import Spec, spec
from .arith import conj
from .create import _eye
from .matmul import adjoint, matmul, only_tensors, refuse_dtype, vdot
from .reduce import axes, d_norm, lift, total
from .shape import _diagonal_backward, cat, diagonal, ints

# --- what they share --------------------------------------------------------------------------------------------------


def check(A, name, square=True, argument="A"):
    """Refuse what is not a batch of floating or complex (square) matrices."""
    only_tensors(**{argument: A})
    need(A.ndim >= 2, f"{name}: The input tensor {argument} must have at least 2 dimensions, it has {A.ndim}.")
    m, n = A.shape[-2:]
    need(m == n or not square, f"{name}: {argument} must be batches of square matrices, but they are {m} by {n} matrices")
    check_float(A, name)


def check_float(A, name, half=False):
    """Refuse integers, and half precision where the library has none."""
    need(A.dtype.category >= 2, f"{name}: Expected a floating point or complex tensor as input. Got {A.dtype.cname}")
    need(half or A.dtype.itemsize > 2, f"{name}: Low precision dtypes not supported. Got {A.dtype.cname}")


def like(A, *shape, dtype=None):
    """The Spec of a result beside `A`: its batch dimensions, then `shape`."""
    return spec(dtype or A.dtype, (*A.shape[:-2], *shape), None, A.device)


def turned(xp, A):
    """The conjugate transpose of an array of matrices."""
    return xp.conj(xp.swapaxes(A, -1, -2))


def eye_like(A, n=None):
    """The identity of `A`'s size and dtype (without its batch)."""
    n = A.shape[-1] if n is None else n
    return _eye(n, n, A.dtype, A.device)


def one_by_one(xp, f, A, *more):
    """`f` of each matrix of a batch in turn, where the library refused the batch as a whole: results and failures.

    `f` gives a result and an info, 0 where all went well.
    """
    made = [f(*parts) for parts in zip(*[x.reshape(-1, *x.shape[-2:]) for x in (A, *more)], strict=True)]
    batch = A.shape[:-2]
    out = xp.stack([out for out, _ in made])
    return out.reshape(*batch, *out.shape[1:]), xp.array([info for _, info in made], xp.int32).reshape(batch)


def blame(infos, caller, words):
    """Refuse in the name of `caller` (if there is one) for the first matrix whose info is not zero."""
    if caller is not None and infos.any():
        at = int(infos.reshape(-1).nonzero()[0][0])
        which = f"(Batch element {at}): " if infos.ndim else ""
        need(False, f"{caller}: {which}{words(int(infos.reshape(-1)[at]))}", LinAlgError)


def no_convergence(xp, A, name, what):
    """Refuse for an iteration of LAPACK's that did not end."""
    why = "contained non-finite values." if not xp.isfinite(A).all() else \
        f"is ill-conditioned or has too many repeated {what}."
    need(False, f"{name}: The algorithm failed to converge because the input matrix {why}", LinAlgError)


def zero_pivot(xp, A):
    """Which diagonal element of the LU factorisation is zero (from 1): the first column that depends on those before."""
    for k in range(1, A.shape[-1] + 1):
        if xp.linalg.matrix_rank(A[:, :k]) < k:
            return k
    return A.shape[-1]


# --- Cholesky ---------------------------------------------------------------------------------------------------------


class _cholesky(Op):
    """The Cholesky factor of each matrix, and for each the order of the first minor that is not positive (or 0)."""

    node = "LinalgCholeskyExBackward0"
    returns = "linalg_cholesky_ex L info"
    eager = True

    def meta(input, upper=False, caller="linalg.cholesky"):
        check(input, caller or "linalg.cholesky_ex")
        return input.like(shape=input.shape), like(input, dtype=dtypes.int32)

    def ref(xp, input, upper=False, caller="linalg.cholesky"):
        A = turned(xp, input) if upper else input
        infos = xp.zeros(A.shape[:-2], xp.int32)
        try:
            L = xp.linalg.cholesky(A)
        except xp.linalg.LinAlgError:
            L, infos = one_by_one(xp, lambda a: leading_factor(xp, a), A)
            blame(infos, caller, lambda k: "The factorization could not be completed because the input is not "
                  f"positive-definite (the leading minor of order {k} is not positive-definite).")
        return turned(xp, L) if upper else L, infos

    def d_input(g, upper, out0):
        L, gL = (adjoint(out0), adjoint(g[0])) if upper else (out0, g[0])
        inner = matmul(adjoint(L), gL).tril()
        inner = (inner + adjoint(inner.tril(-1))) * 0.5
        inner = solve_triangular(adjoint(L), inner, upper=True)
        return solve_triangular(L, inner, upper=False, left=False)


def leading_factor(xp, A):
    """The Cholesky factor of `A`, or of its largest leading block that has one, and the order at which it failed."""
    n = A.shape[-1]
    L = xp.zeros_like(A)
    for k in range(1, n + 1):
        try:
            L[:k, :k] = xp.linalg.cholesky(A[:k, :k])
        except xp.linalg.LinAlgError:
            return L, k
    return L, 0


class _linalg_cholesky(Composite):
    """The lower (or `upper`) triangular L with `input` = L L^H, for a Hermitian positive-definite matrix.

    >>> torch.linalg.cholesky(torch.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    """

    names = "linalg.cholesky"
    forms = "function"
    strict_out = True

    def of(input, *, upper=False): return _cholesky(input, upper)[0]


class _cholesky_ex(Composite):
    """Like `linalg.cholesky`, with the order of the first failing minor (0: none) instead of an error."""

    names = "linalg.cholesky_ex"
    forms = "function"
    returns = "linalg_cholesky_ex L info"
    strict_out = True

    def of(input, *, upper=False, check_errors=False):
        return _cholesky(input, upper, "linalg.cholesky_ex" if check_errors else None)


class cholesky(Composite):
    """The older name of `linalg.cholesky`."""

    def of(input, upper=False): return _cholesky_old(input, upper, "cholesky")[0]


class _cholesky_old(_cholesky):
    """`_cholesky` under the older name."""

    node = "CholeskyBackward0"


class cholesky_solve(Composite):
    """The X with A X = `input`, from the Cholesky factor `L` of A."""

    def of(input, L, upper=False):
        check(input, "cholesky_solve", False, "b")
        check(L, "cholesky_solve")
        need(L.dtype is input.dtype, "cholesky_solve: Expected b and A to have the same dtype, but found b of type "
             f"{input.dtype.cname} and A of type {L.dtype.cname} instead")
        (n, _), (m, k) = L.shape[-2:], input.shape[-2:]
        need(n == m, f"Incompatible matrix sizes for cholesky_solve: each A matrix is {n} by {n} but each b matrix is {m} by {k}")
        lower = adjoint(L) if upper else L
        half = solve_triangular(lower, input, upper=False)
        return solve_triangular(adjoint(lower), half, upper=True)

    def grads(g, needs, input, L, upper, out):
        gB = cholesky_solve(g, L, upper)
        both = matmul(gB, adjoint(out))
        both = both + adjoint(both)
        return gB, -(matmul(L, both) if upper else matmul(both, L)) if needs[1] else None


class cholesky_inverse(Composite):
    """The inverse of A from its Cholesky factor `L`."""

    def of(L, upper=False):
        check(L, "cholesky_inverse")
        return cholesky_solve(eye_like(L).expand(L.shape), L, upper)

    def d_L(g, L, upper, out):
        both = matmul(out, matmul(g + adjoint(g), out))
        return -(matmul(L, both) if upper else matmul(both, L))


# --- solving ----------------------------------------------------------------------------------------------------------


def is_vector(A, B):
    """Whether the right-hand side is a vector, or a batch of vectors that fits the batch of `A` exactly."""
    return B.ndim == 1 or (A.ndim - 1 == B.ndim and A.shape[:-1] == B.shape)


def check_equation(A, B, left, name):
    """The common batch shape of A X = B (or X A = B), or a refusal."""
    check(B, name, False, "B")
    need(A.dtype is B.dtype, f"{name}: Expected A and B to have the same dtype, but found A of type {A.dtype.cname} and B of "
         f"type {B.dtype.cname} instead")
    (n, _), (r, c) = A.shape[-2:], B.shape[-2:]
    need(n == (r if left else c), f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
         f"({n}x{n} and {r}x{c})")
    return shapes.broadcast(A.shape[:-2], B.shape[:-2])


class _solve(Op):
    """The X with A X = B (or X A = B), and for each A which diagonal element of its LU factorisation is zero (or 0)."""

    node = "LinalgSolveExBackward0"
    returns = "linalg_solve_ex result info"
    eager = True

    def meta(A, B, left=True, vector=False, caller="torch.linalg.solve"):
        name = "linalg.solve"
        check(A, name)
        need(B.ndim or not vector, f"{name}: The input tensor B must have at least 2 dimensions.")
        wide = B.like(shape=(*B.shape, 1)) if vector else B
        batch = check_equation(A, wide, left, name)
        shape = (*batch, *wide.shape[-2:])
        return (spec(A.dtype, shape[:-1] if vector else shape, None, A.device),
                like(A, dtype=dtypes.int32))

    def ref(xp, A, B, left=True, vector=False, caller="torch.linalg.solve"):
        B = B[..., None] if vector else B
        if not left:
            A, B = xp.swapaxes(A, -1, -2), xp.swapaxes(B, -1, -2)
        infos = xp.zeros(A.shape[:-2], xp.int32)
        try:
            X = xp.linalg.solve(A, B)
        except xp.linalg.LinAlgError:
            _, infos = one_by_one(xp, lambda a: (a, singular_at(xp, a)), A)
            blame(infos, caller, lambda k: "The solver failed because the input matrix is singular.")
            good = xp.where((infos == 0)[..., None, None], A, xp.eye(A.shape[-1], dtype=A.dtype))
            X = xp.linalg.solve(good, B) + xp.where(infos == 0, 0, xp.nan)[..., None, None].astype(A.dtype)
        X = X if left else xp.swapaxes(X, -1, -2)
        return X[..., 0] if vector else X, infos

    def grads(g, needs, A, left, vector, out0):
        G, X = (g[0].unsqueeze(-1), out0.unsqueeze(-1)) if vector else (g[0], out0)
        gB = _solve(adjoint(A), G, left, False, None)[0]
        gA = None
        if needs[0]:
            gA = -(matmul(gB, adjoint(X)) if left else matmul(adjoint(X), gB))
        return gA, gB.squeeze(-1) if vector else gB


def singular_at(xp, A):
    """Which pivot of one matrix is zero (from 1), or 0 if it can be inverted."""
    try:
        xp.linalg.inv(A)
    except xp.linalg.LinAlgError:
        return zero_pivot(xp, A)
    return 0


class _linalg_solve(Composite):
    """The X with A X = B, or with `left=False` X A = B.

    >>> torch.linalg.solve(torch.tensor([[2.0, 0.0], [0.0, 4.0]]), torch.tensor([1.0, 1.0]))
    tensor([0.5000, 0.2500])
    """

    names = "linalg.solve"
    forms = "function"
    strict_out = True

    def of(A, B, *, left=True):
        only_tensors(A=A, B=B)
        return _solve(A, B, left, is_vector(A, B))[0]


class _solve_ex(Composite):
    """Like `linalg.solve`, with an info per matrix (0: solved) instead of an error."""

    names = "linalg.solve_ex"
    forms = "function"
    returns = "linalg_solve_ex result info"
    strict_out = True

    def of(A, B, *, left=True, check_errors=False):
        only_tensors(A=A, B=B)
        return _solve(A, B, left, is_vector(A, B), "torch.linalg.solve_ex" if check_errors else None)


class _inv(Op):
    """The inverse of each matrix, and for each which diagonal element of its LU factorisation is zero (or 0)."""

    node = "LinalgInvExBackward0"
    returns = "linalg_inv_ex inverse info"
    eager = True

    def meta(A, caller="linalg.inv"):
        check(A, caller or "linalg.inv_ex")
        return A.like(shape=A.shape), like(A, dtype=dtypes.int32)

    def ref(xp, A, caller="linalg.inv"):
        infos = xp.zeros(A.shape[:-2], xp.int32)
        try:
            return xp.linalg.inv(A), infos
        except xp.linalg.LinAlgError:
            out, infos = one_by_one(xp, lambda a: inverse_of(xp, a), A)
        blame(infos, caller, lambda k: f"The diagonal element {k} is zero, the inversion could not be completed because the "
              "input matrix is singular.")
        return out, infos

    def d_A(g, out0):
        P = adjoint(out0)
        return -matmul(P, matmul(g[0], P))


def inverse_of(xp, A):
    """The inverse of one matrix (nan if it has none), and which pivot was zero."""
    at = singular_at(xp, A)
    return (xp.linalg.inv(A), 0) if not at else (xp.full_like(A, xp.nan), at)


class inverse(Composite):
    """The inverse of each matrix; LinAlgError if one is singular."""

    names = "linalg.inv"
    strict_out = True

    def of(A): return _inv(A)[0]


class _inv_ex(Composite):
    """Like `linalg.inv`, with an info per matrix (0: inverted) instead of an error."""

    names = "linalg.inv_ex"
    forms = "function"
    returns = "linalg_inv_ex inverse info"
    strict_out = True

    def of(A, *, check_errors=False): return _inv(A, "linalg.inv_ex" if check_errors else None)


class _solve_triangular(Op):
    """The X with A X = B, or with `left=False` X A = B, for triangular A; its other triangle is not read."""

    names = "linalg.solve_triangular"
    forms = "function"
    node = "LinalgSolveTriangularBackward0"
    strict_out = True

    def meta(input, B, *, upper, left=True, unitriangular=False):
        check(input, "linalg.solve_triangular")
        batch = check_equation(input, B, left, "linalg.solve_triangular")
        return spec(B.dtype, (*batch, *B.shape[-2:]), None, B.device)

    def ref(xp, input, B, *, upper, left=True, unitriangular=False):
        if not left:
            X = _solve_triangular.ref(xp, xp.swapaxes(input, -1, -2), xp.swapaxes(B, -1, -2), upper=not upper,
                                      unitriangular=unitriangular)
            return xp.swapaxes(X, -1, -2)
        batch = xp.broadcast_shapes(input.shape[:-2], B.shape[:-2])
        return substituted(xp, input, xp.broadcast_to(B, (*batch, *B.shape[-2:])), upper, unitriangular)

    def grads(g, needs, input, out, upper, left, unitriangular):
        gB = _solve_triangular(adjoint(input), g, upper=not upper, left=left, unitriangular=unitriangular)
        gA = None
        if needs[0]:
            gA = -(matmul(gB, adjoint(out)) if left else matmul(adjoint(out), gB))
            gA = gA.triu(int(unitriangular)) if upper else gA.tril(-int(unitriangular))
        return gA, gB


def substituted(xp, A, B, upper, unit):
    """Solve A X = B for triangular A by substitution: halves first, so that most of the work is matrix products."""
    n = A.shape[-1]
    if n > 32:
        top, bottom = slice(0, n // 2), slice(n // 2, n)
        now, then = (bottom, top) if upper else (top, bottom)
        X = xp.empty_like(B)
        X[..., now, :] = substituted(xp, A[..., now, now], B[..., now, :], upper, unit)
        rest = B[..., then, :] - xp.matmul(A[..., then, now], X[..., now, :])
        X[..., then, :] = substituted(xp, A[..., then, then], rest, upper, unit)
        return X
    X = B.copy()
    for i in range(n - 1, -1, -1) if upper else range(n):
        if not unit:
            X[..., i, :] /= A[..., i, i, None]
        rest = slice(0, i) if upper else slice(i + 1, n)
        X[..., rest, :] -= A[..., rest, i, None] * X[..., i, None, :]
    return X


class triangular_solve(Composite):
    """The older form of `linalg.solve_triangular`: the X with `A` X = `input`, and `A`."""

    strict_out = True
    returns = "triangular_solve solution cloned_coefficient"

    def of(input, A, upper=True, transpose=False, unitriangular=False):
        solution = _solve_triangular(A.mT if transpose else A, input, upper=upper != transpose, unitriangular=unitriangular)
        return (solution, A.clone())


# --- determinants -----------------------------------------------------------------------------------------------------


class det(Op):
    """The determinant of each matrix.

    >>> torch.linalg.det(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).round()
    tensor(-2.)
    """

    names = "linalg.det"
    node = "LinalgDetBackward0"
    strict_out = True

    def meta(A):
        check(A, "linalg.det")
        return like(A)

    def ref(xp, A): return xp.linalg.det(A)

    def d_A(g, A, out):
        # det(A) conj A^-H where A can be inverted, and what that tends to (the cofactors) where it cannot.
        singular = (out.abs() < 100 * dtypes.finfo(A.dtype).eps)[..., None, None]
        eye = eye_like(A)
        if not bool(singular.any()):
            return _solve(adjoint(A), (g * conj(out))[..., None, None] * eye, True, False, None)[0]
        good = eye.where(singular, A)
        by_solving = _solve(adjoint(good), (g * conj(out))[..., None, None] * eye, True, False, None)[0]
        spread = A.new_ones(A.shape[-1]).cumsum(0).diag()           # any matrix with distinct singular values
        return (g[..., None, None] * cofactors(A.where(singular, spread))).where(singular, by_solving)


def cofactors(A):
    """The conjugated matrix of cofactors, from the singular values: each is a product of all the others."""
    U, S, Vh = _svd(A, False)
    n = S.shape[-1]
    one = eye_like(A).to(S.dtype) != 0
    others = S.unsqueeze(-2).expand(*S.shape, n).masked_fill(one, 1).prod(-1)
    return conj(det(U) * det(Vh))[..., None, None] * matmul(U * others.unsqueeze(-2), Vh)


class _slogdet(Op):
    """The sign of the determinant and the logarithm of its absolute value."""

    names = "linalg.slogdet"
    forms = "function"
    node = "LinalgSlogdetBackward0"
    returns = "linalg_slogdet sign logabsdet"
    strict_out = True

    def meta(A):
        check(A, "linalg.slogdet")
        return like(A), like(A, dtype=A.dtype.to_real())

    def ref(xp, A): return tuple(xp.linalg.slogdet(A))

    def d_A(g, A, out0):
        g_sign, g_log = g
        if g_log is None:
            g_log = out0.real * 0 if A.is_complex() else out0 * 0
        if A.is_complex():
            turn = 0 if g_sign is None else (conj(g_sign) * out0).imag
            g_log = g_log - 1j * turn
        return _solve(adjoint(A), g_log[..., None, None] * eye_like(A), True, False, None)[0]


class slogdet(Composite):
    """The sign of the determinant and the logarithm of its absolute value."""

    returns = "slogdet sign logabsdet"
    strict_out = True

    def of(A): return tuple(_slogdet(A))


class logdet(Composite):
    """The logarithm of the determinant; nan where that is negative."""

    def of(input):
        sign, logabsdet = _slogdet(input)
        if input.is_complex():
            return sign.log() + logabsdet
        return logabsdet.where(sign != -1, math.nan)


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
    forms = "function"
    node = "LinalgEighBackward0"
    returns = "linalg_eigh eigenvalues eigenvectors"
    eager = True
    strict_out = True

    def meta(A, UPLO="L"):
        check(A, "linalg.eigh")
        need(UPLO.upper() in ("L", "U"), f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
        return like(A, A.shape[-1], dtype=A.dtype.to_real()), A.like(shape=A.shape)

    def ref(xp, A, UPLO="L"):
        try:
            return tuple(xp.linalg.eigh(A, UPLO.upper()))
        except xp.linalg.LinAlgError:
            no_convergence(xp, A, "linalg.eigh", "eigenvalues")

    def d_A(g, out0, out1): return d_eigen(g[0], g[1], out0, out1, True)


class _eigvalsh(Composite):
    """The eigenvalues of Hermitian matrices in rising order."""

    names = "linalg.eigvalsh"
    forms = "function"
    strict_out = True

    def of(A, UPLO="L"):
        only_tensors(A=A)
        return _eigh(A, UPLO)[0] if A.requires_grad else _only_eigvalsh(A, UPLO)


class _only_eigvalsh(Op):
    """The eigenvalues of Hermitian matrices, without their vectors."""

    eager = True

    def meta(A, UPLO): return _eigh.meta(A, UPLO)[0]

    def ref(xp, A, UPLO):
        try:
            return xp.linalg.eigvalsh(A, UPLO.upper())
        except xp.linalg.LinAlgError:
            no_convergence(xp, A, "linalg.eigh", "eigenvalues")


class _eig(Op):
    """The (complex) eigenvalues of square matrices, and their eigenvectors as columns."""

    names = "linalg.eig"
    forms = "function"
    node = "LinalgEigBackward0"
    returns = "linalg_eig eigenvalues eigenvectors"
    eager = True

    def meta(input):
        check(input, "linalg.eig", argument="input")
        dtype = input.dtype.to_complex()
        return like(input, input.shape[-1], dtype=dtype), like(input, *input.shape[-2:], dtype=dtype)

    def ref(xp, input):
        finite(xp, input)
        try:
            return tuple(xp.linalg.eig(input))
        except xp.linalg.LinAlgError:
            no_convergence(xp, input, "linalg.eig", "eigenvalues")

    def d_input(g, out0, out1): return d_eigen(g[0], g[1], out0, out1, False)


def finite(xp, A):
    need(bool(xp.isfinite(A).all()), "torch.linalg.eig: input tensor should not contain infs or NaNs.")


class _eigvals(Composite):
    """The (complex) eigenvalues of square matrices."""

    names = "linalg.eigvals"
    forms = "function"

    def of(input):
        only_tensors(input=input)
        return _eig(input)[0] if input.requires_grad else _only_eigvals(input)


class _only_eigvals(Op):
    """The eigenvalues of square matrices, without their vectors."""

    eager = True

    def meta(input): return _eig.meta(input)[0]

    def ref(xp, input):
        finite(xp, input)
        try:
            return xp.linalg.eigvals(input)
        except xp.linalg.LinAlgError:
            no_convergence(xp, input, "linalg.eigvals", "eigenvalues")


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
        return (like(A, m, m if full_matrices else k), like(A, k, dtype=A.dtype.to_real()),
                like(A, n if full_matrices else k, n))

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
    need(driver is None, f"torch.{name}: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend; it is "
         f"{driver!r}.")


class _linalg_svd(Composite):
    """U, S and V^H with A = U diag(S) V^H, the singular values S in falling order."""

    names = "linalg.svd"
    forms = "function"
    returns = "linalg_svd U S Vh"
    strict_out = True

    def of(A, full_matrices=True, *, driver=None):
        check_driver(driver, "linalg.svd")
        return _svd(A, full_matrices)


class svd(Composite):
    """The older form of `linalg.svd`: U, S and V (not its conjugate transpose)."""

    returns = "svd U S V"
    strict_out = True

    def of(input, some=True, compute_uv=True):
        if not compute_uv:
            check(input, "linalg.svd", square=False)
            S = _svdvals(input)
            *batch, m, n = input.spec.shape
            U, V = input.new_zeros([*batch, m, m]), input.new_zeros([*batch, n, n])
            return (U, S, V)
        U, S, Vh = _svd(input, not some)
        return (U, S, adjoint(Vh))


class _svdvals(Composite):
    """The singular values of each matrix, in falling order."""

    names = "linalg.svdvals"
    forms = "function"
    strict_out = True

    def of(A, *, driver=None):
        only_tensors(A=A)
        check_driver(driver, "linalg.svdvals")
        return _svd(A, False)[1] if A.requires_grad else _only_svdvals(A)


class _only_svdvals(Op):
    """The singular values of each matrix, without their vectors."""

    eager = True

    def meta(A): return _svd.meta(A, False)[1]

    def ref(xp, A):
        try:
            return xp.linalg.svd(A, compute_uv=False)
        except xp.linalg.LinAlgError:
            no_convergence(xp, A, "linalg.svd", "singular values")


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
    forms = "function"

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
    forms = "function"

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
             f"linalg.pinv({input.dtype.cname}{{{list(input.shape)}}}): expected a tensor with 2 or more dimensions of float, "
             "double, cfloat or cdouble types")
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
    forms = "function"
    node = "LinalgQrBackward0"
    returns = "linalg_qr Q R"
    strict_out = True

    def meta(A, mode="reduced"):
        check(A, "linalg.qr", square=False)
        need(mode in ("reduced", "r", "complete"), f"qr received unrecognized mode '{mode}' but expected one of 'reduced' "
             "(default), 'r', or 'complete'")
        m, n = A.shape[-2:]
        k = m if mode == "complete" else min(m, n)
        return A.like(shape=(0,)) if mode == "r" else like(A, m, k), like(A, k, n)

    def ref(xp, A, mode="reduced"):
        if mode == "r":
            return xp.empty(0, A.dtype), xp.linalg.qr(A, "r")
        return tuple(xp.linalg.qr(A, mode))

    def d_A(g, out, mode):
        Q, R = out
        need(mode != "r", "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use "
             "linalg.qr(A, mode='reduced') if you are going to require its derivatives.")
        m, n = Q.shape[-2], R.shape[-1]
        need(mode == "reduced" or m <= n, "The QR decomposition is not differentiable when mode='complete' and nrows > ncols "
             f"({m} > {n}); use mode='reduced'.")
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

    returns = "qr Q R"
    strict_out = True

    def of(input, some=True): return tuple(_qr(input, "reduced" if some else "complete"))


def scipy_lapack():
    """scipy.linalg, which has the LU factorisation that NumPy lacks."""
    try:
        import scipy.linalg
    except ImportError:
        raise NotImplementedError("the LU factorisation is not in NumPy: install SciPy (pip install scipy) to use it, or use "
                                  "linalg.solve, linalg.inv or linalg.det, which need none") from None
    return scipy.linalg


class _lu(Op):
    """L and U in one matrix, the row exchanges (from 1), and for each matrix which pivot is zero (or 0)."""

    node = "LinalgLuFactorExBackward0"
    returns = "linalg_lu_factor_ex LU pivots info"
    eager = True

    def meta(A, caller):
        check(A, caller or "linalg.lu_factor_ex", square=False)
        return A.like(shape=A.shape), like(A, min(A.shape[-2:]), dtype=dtypes.int32), like(A, dtype=dtypes.int32)

    def ref(xp, A, caller):
        m, n = A.shape[-2:]
        k = min(m, n)
        LU, pivots = xp.zeros_like(A), xp.zeros((*A.shape[:-2], k), xp.int32)
        infos = xp.zeros(A.shape[:-2], xp.int32)
        if not A.size:
            return LU, pivots, infos
        factor = scipy_lapack().get_lapack_funcs(("getrf",), (A,))[0]
        for at in xp.ndindex(*A.shape[:-2]):
            LU[at], pivots[at], infos[at] = factor(A[at])
        blame(infos, caller, lambda k: f"U[{k},{k}] is zero and using it on lu_solve would result in a division by zero. If you "
              "still want to perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)")
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
            for i, j in enumerate(pivots[at]):
                order[i], order[j - 1] = order[j - 1], order[i]
            P[at][order, list(range(m))] = True
        return P


def need_pivoting(pivot, name):
    need(pivot, f"{name}: LU without pivoting is not implemented on the CPU")


class _lu_factor_ex(Composite):
    """L and U in one matrix, the row exchanges, and an info per matrix (0: U can be inverted)."""

    names = "linalg.lu_factor_ex"
    forms = "function"
    returns = "linalg_lu_factor_ex LU pivots info"
    strict_out = True

    def of(A, *, pivot=True, check_errors=False):
        need_pivoting(pivot, "linalg.lu_factor")
        return _lu(A, "linalg.lu_factor_ex" if check_errors else None)


class _lu_factor(Composite):
    """L and U in one matrix, and the row exchanges."""

    names = "linalg.lu_factor"
    forms = "function"
    returns = "linalg_lu_factor LU pivots"
    strict_out = True

    def of(A, *, pivot=True):
        need_pivoting(pivot, "linalg.lu_factor")
        return tuple(_lu(A, "torch.linalg.lu_factor")[:2])


class _linalg_lu(Composite):
    """P, L and U with A = P L U: a permutation, a unit lower and an upper triangular matrix."""

    names = "linalg.lu"
    forms = "function"
    returns = "linalg_lu P L U"
    strict_out = True

    def of(A, *, pivot=True):
        need_pivoting(pivot, "linalg.lu_factor")
        LU, pivots, _ = _lu(A, None)
        return tuple(lu_unpack(LU, pivots))


class lu_unpack(Composite):
    """P, L and U from what `linalg.lu_factor` gives."""

    forms = "function"
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
    forms = "function"
    strict_out = True

    def of(LU, pivots, B, *, left=True, adjoint=False):
        check(LU, "linalg.lu_solve", argument="LU")
        check_equation(LU, B, left, "linalg.lu_solve")
        P = _permutation(pivots, LU.shape[-1]).to(LU.dtype)
        if not left:                                   # X A = B is A^H X^H = B^H
            return turn(_lu_solve(LU, pivots, turn(B), adjoint=not adjoint))
        if adjoint:
            half = _solve_triangular(turn(LU), B, upper=False)
            return matmul(P, _solve_triangular(turn(LU), half, upper=True, unitriangular=True))
        half = _solve_triangular(LU, matmul(P.mT, B), upper=False, unitriangular=True)
        return _solve_triangular(LU, half, upper=True)


turn = adjoint                                         # where an argument is called adjoint


class lu_solve(Composite):
    """The older form of `linalg.lu_solve`."""

    strict_out = True

    def of(b, LU_data, LU_pivots): return _lu_solve(LU_data, LU_pivots, b)


# --- least squares ----------------------------------------------------------------------------------------------------

DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


class _lstsq(Op):
    """The X that makes ||A X - B|| smallest, with residuals, rank and singular values as the driver gives them."""

    node = "LinalgLstsqBackward0"
    returns = "linalg_lstsq solution residuals rank singular_values"
    nondiff = (3,)
    eager = True

    def meta(input, b, vector, rcond, driver):
        name = "torch.linalg.lstsq"
        only_tensors(input=input, b=b)
        need(input.dtype.category >= 2 and input.dtype.itemsize > 2, "This function doesn't handle types other than float and "
             f"double, got {input.dtype.cname}")
        need(input.ndim >= 2, f"{name}: input must have at least 2 dimensions.")
        need(b.ndim >= 1, f"{name}: other must have at least 1 dimension.")
        need(input.dtype is b.dtype, f"{name}: Expected input and other to have the same dtype, but got input's dtype "
             f"{input.dtype.cname} and other's dtype {b.dtype.cname}")
        need(driver in DRIVERS, f"{name}: parameter `driver` should be one of ({', '.join(DRIVERS)}), got {driver!r}")
        wide = b.shape if not vector else (*b.shape, 1)
        at = -1 if vector else -2
        need(len(wide) >= 2 and input.shape[-2] == wide[-2], f"{name}: input.size(-2) should match other.size({at}), got "
             f"{input.shape[-2]} and {b.shape[at] if b.ndim >= -at else 'no such dimension'}")
        shapes.broadcast(input.shape[:-2], wide[:-2])
        return None, None, None, None                   # whether there are residuals depends on the rank

    def ref(xp, input, b, vector, rcond, driver):
        B = b[..., None] if vector else b
        (m, n), k = input.shape[-2:], B.shape[-1]
        batch = xp.broadcast_shapes(input.shape[:-2], B.shape[:-2])
        A, B = xp.broadcast_to(input, (*batch, m, n)), xp.broadcast_to(B, (*batch, m, k))
        real = xp.abs(A[:0]).dtype
        X, rank = xp.zeros((*batch, n, k), A.dtype), xp.zeros(batch, xp.int64)
        S = xp.zeros((*batch, min(m, n)), real)
        for at in xp.ndindex(*batch):
            if A[at].size:
                X[at], _, rank[at], S[at] = xp.linalg.lstsq(A[at], B[at], rcond)
        residuals = xp.zeros(0, real)
        if m > n and driver != "gelsy" and (driver == "gels" or (rank == n).all()):
            residuals = (xp.abs(xp.matmul(A, X) - B) ** 2).sum(-2)
        none = xp.zeros(0, real)
        return (X[..., 0] if vector else X, residuals, rank if driver != "gels" else xp.zeros(0, xp.int64),
                S if driver in ("gelsd", "gelss") else none)

    def grads(g, needs, input, b, vector, out0):
        A, (gX, gR) = input, g[:2]
        X, B = (out0.unsqueeze(-1), b.unsqueeze(-1)) if vector else (out0, b)
        gA = gB = None
        if gX is not None:                              # X = A^+ B
            G, P = gX.unsqueeze(-1) if vector else gX, _linalg_pinv(A)
            gB = matmul(adjoint(P), G)
            gA = _pinv.d_input(matmul(G, adjoint(B)), A, P) if needs[0] else None
        if gR is not None and gR.numel():               # the sum of squares of A X - B, whose derivative by X is zero
            off = 2 * (matmul(A, X) - B) * gR.unsqueeze(-2)
            gB = -off if gB is None else gB - off
            if needs[0]:
                more = matmul(off, adjoint(X))
                gA = more if gA is None else gA + more
        return gA, gB.squeeze(-1) if vector and gB is not None else gB


class _linalg_lstsq(Composite):
    """The X that makes ||`input` X - `b`|| smallest, with residuals, rank and singular values as the driver gives them."""

    names = "linalg.lstsq"
    forms = "function"
    returns = "linalg_lstsq solution residuals rank singular_values"

    def of(input, b, rcond=None, *, driver=None):
        only_tensors(input=input, b=b)
        return _lstsq(input, b, is_vector(input, b), rcond, "gelsy" if driver is None else driver)


# --- norms ------------------------------------------------------------------------------------------------------------


class _vector_norm(Op):
    """The `ord`-norm of the elements over `dim` (all without one): (Σ|x|^ord)^(1/ord), or a maximum, minimum or count."""

    names = "linalg.vector_norm"
    forms = "function"
    node = "LinalgVectorNormBackward0"
    strict_out = True

    def meta(input, ord=2, dim=None, keepdim=False, *, dtype=None):
        name = "linalg.vector_norm"
        only_tensors(input=input)
        need(isinstance(ord, (int, float)), f"argument 'ord' must be Number, not {type(ord).__name__}", TypeError)
        check_float(input, name, half=True)
        out = input.dtype
        if dtype is not None:
            need(dtype.category >= 2, f"{name}: dtype should be floating point or complex, but got {dtype.cname}")
            need(dtype.is_complex == out.is_complex, f"{name}: dtype should be {'complex' if out.is_complex else 'real'} for "
                 f"{'complex' if out.is_complex else 'real'} inputs, but got {dtype.cname}")
            need(dtypes.promote_types(out, dtype) is dtype, f"{name}: the dtype of the input ({out.cname}) should be convertible "
                 f"without narrowing to the specified dtype ({dtype.cname})")
            out = dtype
        over = axes(dim, input.ndim)
        if ord < 0 or ord == math.inf:
            size = shapes.numel([input.shape[d] for d in over])
            need(size or not input.numel == 0 or _no_output(input, over), f"{name} cannot compute the {ord} norm on an empty tensor "
                 "because the operation does not have an identity" if dim is None or dim == () else
                 f"{name} cannot compute the {ord} norm on the dimension {[d for d in over if not input.shape[d]][:1]} because "
                 "this dimension is empty and the operation does not have an identity")
        return spec(out.to_real(), shapes.reduced(input.shape, over, keepdim), None, input.device)

    def ref(xp, input, ord=2, dim=None, keepdim=False, *, dtype=None):
        over = axes(dim, input.ndim)
        x = input if dtype is None else input.astype(dtype.compute)
        if ord == 0:
            return (x != 0).sum(axis=over, keepdims=keepdim).astype(x.real.dtype)
        size = xp.abs(x)
        if math.isinf(ord):
            return (xp.max if ord > 0 else xp.min)(size, axis=over, keepdims=keepdim)
        if ord == 1:
            return total(xp, size, over, keepdim)
        if ord == 2:
            return xp.sqrt(total(xp, size * size, over, keepdim))
        return total(xp, size ** ord, over, keepdim) ** (1 / ord)

    def d_input(g, input, out, ord, dim, keepdim):
        if ord == 0:
            return None
        if not input.ndim:
            return d_norm(g, input, out, ord)
        g, out = lift(g, input, dim, keepdim), lift(out, input, dim, keepdim)
        return d_norm(g, input.to(out.dtype) if not input.is_complex() else input, out, ord, axes(dim, input.ndim))


def _no_output(input, over):
    return 0 in [n for d, n in enumerate(input.shape) if d not in over]


class _norm_of_rows(_vector_norm):
    """`linalg.vector_norm` as `Tensor.norm` leaves it in the graph."""

    names = ""
    node = "NormBackward1"


class _matrix_norm(Composite):
    """A norm of each matrix: "fro", "nuc" (sum of singular values), ±2 (extreme ones), ±1, ±inf (of columns, rows)."""

    names = "linalg.matrix_norm"
    forms = "function"
    strict_out = True

    def of(input, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None):
        name = "linalg.matrix_norm"
        only_tensors(input=input)
        dim = ints((dim,), "dim") if isinstance(dim, (tuple, list)) else (dim,)
        need(len(dim) == 2, f"{name}: dim must be a 2-tuple. Got {' '.join(map(str, dim))}")
        check(input, name, False) if ord not in ("fro", 1, -1, math.inf, -math.inf) else check_matrix(input, name)
        a, b = (shapes.wrap_dim(d, input.ndim) for d in dim)
        need(a != b, f"{name}: dims must be different. Got ({dim[0]}, {dim[1]})")
        known = ("fro", "nuc") if isinstance(ord, str) else (1, -1, 2, -2, math.inf, -math.inf)
        need(ord in known, f"{name}: Order {ord} not supported. It is one of {known}.")
        if ord == "fro":
            return _vector_norm(input, 2, (a, b), keepdim, dtype=dtype)
        if ord == "nuc" or abs(ord) == 2:
            if dtype is not None:
                input = input.to(dtype)
            values = _svdvals(input.movedim((a, b), (-2, -1)))
            out = values.sum(-1) if ord == "nuc" else extreme(values, -1, False, ord > 0)
            return out.unsqueeze(min(a, b)).unsqueeze(max(a, b)) if keepdim else out
        if abs(ord) == math.inf:
            a, b = b, a
        sums = _vector_norm(input, 1, a, keepdim, dtype=dtype)
        return extreme(sums, b - 1 if not keepdim and a < b else b, keepdim, ord > 0)


def check_matrix(A, name):
    need(A.ndim >= 2, f"{name}: The input tensor A must have at least 2 dimensions, it has {A.ndim}.")
    check_float(A, name, half=True)


def extreme(x, dim, keepdim, largest):
    """The largest or smallest of `x` along `dim`; the largest of nothing is zero."""
    if largest and x.shape[dim] == 0:
        return x.sum(dim, keepdim)
    return x.amax(dim, keepdim) if largest else x.amin(dim, keepdim)


class _linalg_norm(Composite):
    """A matrix norm over two dimensions (or of a matrix with `ord` given), else a vector norm."""

    names = "linalg.norm"
    forms = "function"
    strict_out = True

    def of(input, ord=None, dim=None, keepdim=False, *, dtype=None):
        only_tensors(input=input)
        dim = None if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
        if dim is not None:
            need(len(dim) in (1, 2), f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dim)}")
        elif ord is not None and not isinstance(ord, str):
            need(input.ndim in (1, 2), "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
                 f"{input.ndim}D.")
        of_matrix = ord is not None and (len(dim) == 2 if dim is not None else input.ndim == 2)
        if of_matrix or isinstance(ord, str):
            return _matrix_norm(input, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
        return _vector_norm(input, 2.0 if ord is None else ord, dim, keepdim, dtype=dtype)


matrix_norm, vector_norm, solve_triangular = _matrix_norm, _vector_norm, _solve_triangular


class _cond(Composite):
    """The condition number: the norm `p` of the matrix times that of its inverse (without p: by singular values)."""

    names = "linalg.cond"
    forms = "function"

    def of(input, p=None):
        check(input, "linalg.cond", square=False)
        known = (None, 2, -2, 1, -1, math.inf, -math.inf, "fro", "nuc")
        need(p in known, f"linalg.cond got an invalid norm type: {p}")
        if p in (None, 2, -2):
            if input.numel() == 0:
                return input.new_zeros(input.shape[:-2], dtype=input.dtype.to_real())
            S = _svdvals(input)
            first, last = S[..., :1], S[..., -1:]
            return (last / first if p == -2 else first / last).squeeze(-1)
        m, n = input.shape[-2:]
        need(m == n, f"linalg.cond(ord={p}): A must be batches of square matrices, but they are {m} by {n} matrices")
        if input.numel() == 0:
            return input.new_zeros(input.shape[:-2], dtype=input.dtype.to_real())
        inverse, info = _inv(input, None)
        inverse = inverse.masked_fill((info != 0)[..., None, None], math.inf)
        if p == "nuc" and bool(info.any()):
            return _matrix_norm(input, p) * _vector_norm(inverse, math.inf, (-2, -1))
        return (_matrix_norm(input, p) * _matrix_norm(inverse, p)).nan_to_num(math.inf, math.inf, math.inf)


# --- products and powers ----------------------------------------------------------------------------------------------


class _cross(Op):
    """The vector product along `dim`, which has size 3."""

    names = "linalg.cross"
    forms = "function"
    node = "LinalgCrossBackward0"
    strict_out = True

    def meta(input, other, *, dim=-1):
        only_tensors(input=input, other=other)
        need(input.ndim == other.ndim, "linalg.cross: inputs must have the same number of dimensions, got "
             f"{input.ndim} and {other.ndim}.")
        d = shapes.wrap_dim(dim, input.ndim)
        need(input.ndim and input.shape[d] == other.shape[d] == 3, f"linalg.cross: inputs dimension {dim} must have length 3. Got "
             f"{input.shape[d] if input.ndim else 'none'} and {other.shape[d] if other.ndim else 'none'}")
        need(input.dtype is other.dtype, f"expected scalar type {input.dtype.cname} but found {other.dtype.cname}")
        refuse_dtype(input.dtype, "cross")
        return spec(input.dtype, shapes.broadcast(input.shape, other.shape), None, input.device)

    def ref(xp, input, other, *, dim=-1):  return xp.cross(input, other, axis=dim)
    def d_input(g, other, dim):            return _cross(conj(other), g, dim=dim)
    def d_other(g, input, dim):            return _cross(g, conj(input), dim=dim)


class cross(Composite):
    """The vector product along `dim`, or along the first dimension of size 3."""

    strict_out = True

    def of(input, other, dim=None):
        only_tensors(input=input, other=other)
        if dim is None:
            dim = next((d for d, n in enumerate(input.shape) if n == 3), None)
            need(dim is not None, f"no dimension of size 3 in input, whose size is {list(input.shape)}")
        return _cross(input, other, dim=dim)


class _vecdot(Composite):
    """The sum of the products of `x` (conjugated) and `y` along `dim`."""

    names = "linalg.vecdot"
    forms = "function"
    strict_out = True

    def of(x, y, *, dim=-1):
        only_tensors(x=x, y=y)
        check_float(x, "linalg.vecdot", half=True)
        need(x.dtype is y.dtype, "linalg.vecdot: Expected x and y to have the same dtype, but found x of type "
             f"{x.dtype.cname} and y of type {y.dtype.cname} instead")
        if x.ndim == 1 and y.ndim == 1:
            return vdot(x, y)
        return (conj(x) * y).sum(dim)


class matrix_power(Composite):
    """Each matrix multiplied by itself `n` times; its inverse where `n` is negative."""

    names = "linalg.matrix_power"

    def strict_out(input, n=2): return n not in (0, 1)

    def of(input, n):
        only_tensors(input=input)
        if not isinstance(n, int) or isinstance(n, bool):
            raise TypeError(f"linalg_matrix_power(): argument 'n' (position 2) must be int, not {type(n).__name__}")
        need(input.ndim >= 2, "linalg.matrix_power: The input tensor A must have at least 2 dimensions.")
        a, b = input.shape[-2:]
        need(a == b, f"linalg.matrix_power: A must be batches of square matrices, but they are {a} by {b} matrices")
        if n == 0:
            return _power_of_zero(input)
        if n == 1:
            return input.clone()
        base, n = (inverse(input), -n) if n < 0 else (input, n)
        if n <= 3:
            return base if n == 1 else matmul(base, base) if n == 2 else matmul(matmul(base, base), base)
        out = None
        while n:                                       # by repeated squaring
            n, odd = divmod(n, 2)
            if odd:
                out = base if out is None else matmul(out, base)
            base = matmul(base, base) if n else base
        return out


class _power_of_zero(Composite):
    """The identity in the place of each matrix."""

    def of(input):    return eye_like(input).expand(input.shape).contiguous()
    def d_input(g):   return g * 0


class matrix_exp(Op):
    """The exponential of each matrix, the sum of A^k / k!."""

    names = "linalg.matrix_exp"
    node = "LinalgMatrixExpBackward0"

    def meta(input):
        check_square(input, "linalg.matrix_exp")
        return spec(input.dtype, input.shape, None, input.device)

    def ref(xp, input):
        # Scaled down until the Padé approximant of order 13 is exact to rounding, then squared back up (Higham 2005);
        # in double, as each squaring doubles the error.
        if not input.size:
            return input
        A = input.astype(xp.complex128 if input.dtype.kind == "c" else xp.float64)
        length, bound = xp.abs(A).sum(-2).max(-1), 5.371920351148152
        halvings = xp.ceil(xp.log2(xp.where((length > bound) & xp.isfinite(length), length, bound) / bound)).astype(int)
        A = A / 2.0 ** halvings[..., None, None]
        eye, b = xp.eye(A.shape[-1]), [x / PADE[0] for x in PADE]
        A2 = xp.matmul(A, A)
        A4 = xp.matmul(A2, A2)
        A6 = xp.matmul(A4, A2)
        odd = xp.matmul(A6, b[13] * A6 + b[11] * A4 + b[9] * A2) + b[7] * A6 + b[5] * A4 + b[3] * A2 + b[1] * eye
        even = xp.matmul(A6, b[12] * A6 + b[10] * A4 + b[8] * A2) + b[6] * A6 + b[4] * A4 + b[2] * A2 + b[0] * eye
        odd = xp.matmul(A, odd)
        out = xp.linalg.solve(even - odd, even + odd)
        for step in range(int(halvings.max())):
            out = xp.where((halvings > step)[..., None, None], xp.matmul(out, out), out)
        return out

    def d_input(g, input):
        # The exponential of [[A^H, g], [0, A^H]] has the derivative in its upper right corner.
        Ah, n = adjoint(input), input.shape[-1]
        zero = g.new_zeros(g.shape)
        block = cat([cat([Ah, g], -1), cat([zero, Ah], -1)], -2)
        return matrix_exp(block)[..., :n, n:]


PADE = (64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
        670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1)


def check_square(A, name):
    only_tensors(A=A)
    check_matrix(A, name)
    m, n = A.shape[-2:]
    need(m == n, f"{name}: A must be batches of square matrices, but they are {m} by {n} matrices")


class trace(Op):
    """The sum of the diagonal of a matrix."""

    def meta(input):
        need(input.ndim == 2, f"trace: expected a matrix, but got tensor with dim {input.ndim}")
        refuse_dtype(input.dtype, "trace")
        return spec(dtypes.int64 if input.dtype.category == 1 else input.dtype, (), None, input.device)

    def ref(xp, input):          return xp.trace(input)
    def d_input(g, input_spec):  return _diagonal_backward(g.expand(min(input_spec.shape)), input_spec.shape, 0, 0, 1)


class _linalg_diagonal(Composite):
    """The diagonal `offset` above the main one of each matrix."""

    names = "linalg.diagonal"
    forms = "function"

    def of(A, *, offset=0, dim1=-2, dim2=-1): return diagonal(A, offset, dim1, dim2)


class _linalg_vander(Composite):
    """The powers 0 to N-1 of each element of `x`, along a new last dimension."""

    names = "linalg.vander"
    forms = "function"

    def of(x, *, N=None):
        only_tensors(x=x)
        x = x.reshape(1) if not x.ndim else x
        N = x.shape[-1] if N is None else N
        need(N > 1, f"N must be greater than 1, got {N}.")
        powers = x.unsqueeze(-1).expand(*x.shape, N - 1).cumprod(-1)
        return cat([powers.new_ones((*x.shape, 1)), powers], -1)


class _tensorinv(Composite):
    """The tensor that undoes tensordot with `input`, whose first `ind` dimensions are the rows of a square matrix."""

    names = "linalg.tensorinv"
    forms = "function"

    def of(input, ind=2):
        need(ind > 0, f"Expected a strictly positive integer for 'ind', but got {ind}")
        shape = input.spec.shape
        rows, columns = shape[:ind], shape[ind:]
        n, m = shapes.numel(columns), shapes.numel(rows)
        need(n == m, "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
             f"{n} != {m}")
        return inverse(input.reshape(m, n)).reshape(*columns, *rows)


class _tensorsolve(Composite):
    """The X with tensordot(`input`, X) = `other`; `dims` of `input` are moved to the end first."""

    names = "linalg.tensorsolve"
    forms = "function"

    def of(input, other, dims=None):
        if dims is not None:
            input = input.movedim(tuple(dims), tuple(range(input.ndim - len(dims), input.ndim)))
        shape = input.spec.shape
        out = shape[other.ndim:]
        n, m = shapes.numel(out), shapes.numel(shape[:other.ndim])
        need(n == m, "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), "
             f"but got {n} != {m}")
        return _linalg_solve(input.reshape(m, n), other.reshape(m)).reshape(out)
