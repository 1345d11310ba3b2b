"""Equations A X = B: Cholesky factors, general and triangular solvers, inverses.

All of it works on batches: the last two dimensions are the matrices. What can fail on its data (a singular matrix, one
that is not positive-definite) runs at the call and raises LinAlgError there. The derivatives are written with the
public operations, so that they can be differentiated again; `adjoint(A)` is the conjugate transpose, A^H.
"""
from ..base import dtypes, shapes
from ..base.errors import LinAlgError, need
from ..base.op import Composite, Op
from ..base.spec import spec
from .create import _eye
from .matmul import adjoint, matmul, only_tensors, refuse_dtype

# --- what they share --------------------------------------------------------------------------------------------------


def check(A, name, square=True, argument="A"):
    """Refuse what is not a batch of floating or complex (square) matrices."""
    only_tensors(**{argument: A})
    need(A.ndim >= 2, f"{name}: The input tensor {argument} must have at least 2 dimensions, it has {A.ndim}.")
    m, n = A.shape[-2:]
    need(m == n or not square, f"{name}: {argument} must be batches of square matrices, but they are {m} by {n} "
         "matrices")
    check_float(A, name)


# PyTorch's kernels, where it is they who refuse a dtype.
KERNEL_NAMES = {"linalg.cholesky": "cholesky_cpu", "linalg.det": "lu_cpu", "linalg.solve": "lu_cpu",
                "linalg.qr": "geqrf_cpu", "linalg.eigh": "linalg_eigh_cpu", "linalg.eig": "linalg_eig_out_cpu",
                "linalg.svd": "linalg_svd_cpu", "linalg.solve_triangular": "triangular_solve_cpu",
                "cholesky_inverse": "cholesky_inverse_out_cpu"}


def check_float(A, name, half=False):
    """Refuse integers, and half precision where the library has none."""
    if name in KERNEL_NAMES and A.dtype.itemsize <= 2 and A.dtype.category == 2:
        refuse_dtype(A.dtype, KERNEL_NAMES[name], (A.dtype,))
    if name in ("linalg.eigh", "linalg.solve_triangular", "cholesky_inverse") and A.dtype.category < 2:
        refuse_dtype(A.dtype, KERNEL_NAMES[name], (A.dtype,))
    need(A.dtype.category >= 2, f"{name}: Expected a floating point or complex tensor as input. Got {A.dtype.cname}")
    need(half or A.dtype.itemsize > 2, f"{name}: Low precision dtypes not supported. Got {A.dtype.cname}")


def like(A, *shape, dtype=None):
    """The Spec of a result beside `A`: its batch dimensions, then `shape`."""
    return spec(dtype or A.dtype, (*A.shape[:-2], *shape), None, A.device)


def in_columns(A, *shape, dtype=None):
    """The Spec of matrices beside `A` that lie column by column: PyTorch's results of LAPACK do, whatever `A` does."""
    shape = (*A.shape[:-2], *shape)
    return spec(dtype or A.dtype, shape, shapes.columns_first_strides(shape), A.device)


def laid_in_columns(t):
    """The matrices `t` column by column in memory."""
    return t.mT.contiguous().mT


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
    """Which diagonal element of the LU factorisation is zero, from 1: the first column that depends on those before."""
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
        return in_columns(input, *input.shape[-2:]), like(input, dtype=dtypes.int32)

    def ref(xp, input, upper=False, caller="linalg.cholesky"):
        A = turned(xp, input) if upper else input
        infos = xp.zeros(A.shape[:-2], xp.int32)
        try:
            L = xp.linalg.cholesky(A)
            failed = xp.isnan(xp.diagonal(L, 0, -2, -1)).any()          # LAPACK may let nan pass
        except xp.linalg.LinAlgError:
            failed = True
        if failed:
            L, infos = one_by_one(xp, lambda a: leading_factor(xp, a), A)
            blame(infos, caller, lambda k: "The factorization could not be completed because the input is not "
                  f"positive-definite (the leading minor of order {k} is not positive-definite).")
        return turned(xp, L) if upper else L, infos

    def direct(la, input, upper=False, caller="linalg.cholesky"):
        L = la.cholesky(input, upper)
        return L if L is None else (L, la.zeros(input.shape[:-2]))

    def d_input(g, upper, out0):
        L, gL = (adjoint(out0), adjoint(g[0])) if upper else (out0, g[0])
        inner = matmul(adjoint(L), gL).tril()
        inner = (inner + adjoint(inner.tril(-1))) * 0.5
        inner = _solve_triangular(adjoint(L), inner, upper=True)
        return _solve_triangular(L, inner, upper=False, left=False)


def leading_factor(xp, A):
    """The Cholesky factor of `A`, or of its largest leading block that has one, and the order at which it failed."""
    n = A.shape[-1]
    L = xp.zeros_like(A)
    for k in range(1, n + 1):
        try:
            block = xp.linalg.cholesky(A[:k, :k])
        except xp.linalg.LinAlgError:
            return L, k
        if xp.isnan(block[-1, -1]):
            return L, k
        L[:k, :k] = block
    return L, 0


class _linalg_cholesky(Composite):
    """The lower (or `upper`) triangular L with `input` = L L^H, for a Hermitian positive-definite matrix.

    >>> torch.linalg.cholesky(torch.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    """

    names = "linalg.cholesky"
    forms = "function out"
    strict_out = True

    def of(input, *, upper=False): return _cholesky(input, upper)[0]


class _cholesky_ex(Composite):
    """Like `linalg.cholesky`, with the order of the first failing minor (0: none) instead of an error."""

    names = "linalg.cholesky_ex"
    forms = "function out"
    returns = "linalg_cholesky_ex L info"
    strict_out = True

    def of(input, *, upper=False, check_errors=False):
        return _cholesky(input, upper, "linalg.cholesky_ex" if check_errors else None)


class cholesky(Composite):
    """The older name of `linalg.cholesky`."""

    forms = "function method out"

    def of(input, upper=False): return _cholesky_old(input, upper, "cholesky")[0]


class _cholesky_old(_cholesky):
    """`_cholesky` under the older name."""

    node = "CholeskyBackward0"


class cholesky_solve(Composite):
    """The X with A X = `input`, from the Cholesky factor `input2` of A."""

    forms = "function method out"

    def of(input, input2, upper=False):
        L = input2
        check(input, "cholesky_solve", False, "b")
        check(L, "cholesky_solve")
        need(L.dtype is input.dtype, "cholesky_solve: Expected b and A to have the same dtype, but found b of type "
             f"{input.dtype.cname} and A of type {L.dtype.cname} instead")
        (n, _), (m, k) = L.shape[-2:], input.shape[-2:]
        need(n == m, f"Incompatible matrix sizes for cholesky_solve: each A matrix is {n} by {n} but each b matrix is "
             f"{m} by {k}")
        lower = adjoint(L) if upper else L
        half = _solve_triangular(lower, input, upper=False)
        return _solve_triangular(adjoint(lower), half, upper=True)

    def grads(g, needs, input, input2, upper, out):
        L = input2
        gB = cholesky_solve(g, L, upper)
        both = matmul(gB, adjoint(out))
        both = both + adjoint(both)
        return gB, -(matmul(L, both) if upper else matmul(both, L)) if needs[1] else None


class cholesky_inverse(Composite):
    """The inverse of A from its Cholesky factor `input`."""

    forms = "function method out"

    def of(input, upper=False):
        check(input, "cholesky_inverse")
        return cholesky_solve(eye_like(input).expand(input.shape), input, upper)

    def d_input(g, input, upper, out):
        both = matmul(out, matmul(g + adjoint(g), out))
        return -(matmul(input, both) if upper else matmul(both, input))


# --- solving ----------------------------------------------------------------------------------------------------------


def is_vector(A, B):
    """Whether the right-hand side is a vector, or a batch of vectors that fits the batch of `A` exactly."""
    return B.ndim == 1 or (A.ndim - 1 == B.ndim and A.shape[:-1] == B.shape)


def check_equation(A, B, left, name):
    """The common batch shape of A X = B (or X A = B), or a refusal."""
    check(B, name, False, "B")
    need(A.dtype is B.dtype, f"{name}: Expected A and B to have the same dtype, but found A of type {A.dtype.cname} "
         f"and B of type {B.dtype.cname} instead")
    (n, _), (r, c) = A.shape[-2:], B.shape[-2:]
    equation = "AX = B" if left else "XA = B"
    need(n == (r if left else c), f"{name}: Incompatible shapes of A and B for the equation {equation} ({n}x{n} and "
                                  f"{r}x{c})")
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
        shape = shape[:-1] if vector else shape
        strides = shapes.columns_first_strides(shape) if left else None
        return spec(A.dtype, shape, strides, A.device), like(A, dtype=dtypes.int32)

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

    def direct(la, A, B, left=True, vector=False, caller="torch.linalg.solve"):
        B = B[..., None] if vector else B
        X = la.solve(A, B) if left else la.solve(A.swapaxes(-1, -2), B.swapaxes(-1, -2))
        if X is None:
            return None
        X = X if left else X.swapaxes(-1, -2)
        return X[..., 0] if vector else X, la.zeros(A.shape[:-2])

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
    forms = "function out"
    strict_out = True

    def of(A, B, *, left=True):
        only_tensors(A=A, B=B)
        return _solve(A, B, left, is_vector(A, B))[0]


class _solve_ex(Composite):
    """Like `linalg.solve`, with an info per matrix (0: solved) instead of an error."""

    names = "linalg.solve_ex"
    forms = "function out"
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
        return in_columns(A, *A.shape[-2:]), like(A, dtype=dtypes.int32)

    def ref(xp, A, caller="linalg.inv"):
        infos = xp.zeros(A.shape[:-2], xp.int32)
        try:
            return xp.linalg.inv(A), infos
        except xp.linalg.LinAlgError:
            out, infos = one_by_one(xp, lambda a: inverse_of(xp, a), A)
        blame(infos, caller, lambda k: f"The diagonal element {k} is zero, the inversion could not be completed "
              "because the input matrix is singular.")
        return out, infos

    def direct(la, A, caller="linalg.inv"):
        out = la.inverse(A)
        return out if out is None else (out, la.zeros(A.shape[:-2]))

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
    forms = "function method out"
    strict_out = True

    def of(input): return _inv(input)[0]


class _inv_ex(Composite):
    """Like `linalg.inv`, with an info per matrix (0: inverted) instead of an error."""

    names = "linalg.inv_ex"
    forms = "function out"
    returns = "linalg_inv_ex inverse info"
    strict_out = True

    def of(A, *, check_errors=False): return _inv(A, "linalg.inv_ex" if check_errors else None)


class _solve_triangular(Op):
    """The X with A X = B, or with `left=False` X A = B, for triangular A; its other triangle is not read."""

    names = "linalg.solve_triangular"
    forms = "function out"
    node = "LinalgSolveTriangularBackward0"
    strict_out = True

    def meta(input, B, *, upper, left=True, unitriangular=False):
        check(input, "linalg.solve_triangular")
        batch = check_equation(input, B, left, "linalg.solve_triangular")
        shape = (*batch, *B.shape[-2:])
        return spec(B.dtype, shape, shapes.columns_first_strides(shape), B.device)

    def ref(xp, input, B, *, upper, left=True, unitriangular=False):
        if not left:
            X = _solve_triangular.ref(xp, xp.swapaxes(input, -1, -2), xp.swapaxes(B, -1, -2), upper=not upper,
                                      unitriangular=unitriangular)
            return xp.swapaxes(X, -1, -2)
        batch = xp.broadcast_shapes(input.shape[:-2], B.shape[:-2])
        return substituted(xp, input, xp.broadcast_to(B, (*batch, *B.shape[-2:])), upper, unitriangular)

    def direct(la, input, B, *, upper, left=True, unitriangular=False):
        return la.solve_triangular(input, B, upper, left, unitriangular)

    def grads(g, needs, input, out, upper, left, unitriangular):
        gB = _solve_triangular(adjoint(input), g, upper=not upper, left=left, unitriangular=unitriangular)
        gA = None
        if needs[0]:
            gA = -(matmul(gB, adjoint(out)) if left else matmul(adjoint(out), gB))
            gA = gA.triu(int(unitriangular)) if upper else gA.tril(-int(unitriangular))
        return gA, gB

    def body(k, input, B, *, upper, left=True, unitriangular=False):
        if B.dtype not in (dtypes.float32, dtypes.float64) or 0 in input.shape or 0 in B.shape:
            return NotImplemented
        batch = shapes.broadcast(input.shape[:-2], B.shape[:-2])
        args = [k.expand(one, (*batch, *one.shape[-2:])) for one in (input, B)]
        made = k.library("solve_triangular", args, [(B.dtype, args[1].shape)], (upper, left, unitriangular))
        return NotImplemented if made is None else made[0]


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

    forms = "function method out"
    strict_out = True
    returns = "triangular_solve solution cloned_coefficient"

    def of(input, A, upper=True, transpose=False, unitriangular=False):
        A_ = A.mT if transpose else A
        solution = _solve_triangular(A_, input, upper=upper != transpose, unitriangular=unitriangular)
        return (solution, laid_in_columns(A).clone())
