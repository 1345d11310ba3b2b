"""Factorisations, solvers and decompositions by LAPACK: what the operations' `direct` asks for.

Each function here says how a matrix is gone about, as a SolverProgram (solver_program.py), which is made for all
matrices of a batch and kept by shapes and strides. What one gives are arrays laid out as PyTorch's results are, column
by column; None where there is no such function, where there is nothing to do, or where LAPACK found fault: then the
reference does it again, and knows the words.
"""
import numpy as np

from ....base import dtypes
from .. import lapack
from ..threads import get_num_threads
from . import triangular
from .solver_program import (
    INFO,
    REAL_WORK,
    REAL_WORK_SIZE,
    WHOLE_WORK,
    WHOLE_WORK_SIZE,
    WORK,
    WORK_SIZE,
    NoSuchFunction,
    SolverProgram,
)

xp = np                       # the array module of what is given
MAX_PROGRAMS = 4096
MAX_SMALL_ROWS = 16                   # of matrices whose determinants are left to NumPy
NANOSECONDS_PER_PRODUCT = 0.1         # of numbers in a factorisation, about
SOLVED_DTYPES = {np.dtype(name): getattr(dtypes, name) for name in lapack.LETTERS}
REAL_OF = {dtypes.float32: dtypes.float32, dtypes.float64: dtypes.float64, dtypes.complex64: dtypes.float32,
        dtypes.complex128: dtypes.float64}
_programs: dict = {}          # (what, its arguments, threads, operands' dtypes, shapes and strides) → program, or None


def even(A):
    """`A`, copied where its matrices do not follow each other evenly, or are not as NumPy has them."""
    size = A.itemsize
    batch = [(n, step) for n, step in zip(A.shape[:-2], A.strides[:-2], strict=True) if n > 1]
    follows = all(outer == inner * n for (_, outer), (n, inner) in zip(batch, batch[1:], strict=False))
    return A if follows and A.flags.aligned and not any(step % size for step in A.strides) else np.array(A, order="C")


def program(make, what, *arrays):
    """(the program of `make` with the arguments `what` over such arrays, the arrays), or None."""
    key = make, what, get_num_threads(), *[part for A in arrays for part in (A.dtype, A.shape, A.strides)]
    try:
        return _programs[key], arrays
    except KeyError:
        pass
    evened = [even(A) for A in arrays]
    if any(one is not A for one, A in zip(evened, arrays, strict=True)):
        return program(make, what, *evened)
    if len(_programs) >= MAX_PROGRAMS:
        _programs.clear()
    found, dtype = None, arrays[0].dtype
    if dtype in SOLVED_DTYPES and lapack.integer_bytes() and all(A.size for A in arrays):
        operands = [(A.shape, tuple([step // A.itemsize for step in A.strides])) for A in arrays]
        try:
            found = make(SOLVED_DTYPES[dtype], operands, *what)
        except NoSuchFunction:
            pass
    _programs[key] = found
    return found, arrays


def forget():
    """Make programs anew: another processor was chosen."""
    _programs.clear()


def solved(make, what, *arrays):
    """The results of a program; None where there is none, or LAPACK found fault."""
    found, arrays = program(make, what, *arrays)
    if found is None:
        return None
    outs, _, infos = found.run(*arrays)
    return None if found.faults(infos) else outs


def cubic(m, n, times=1.0):
    """About how many nanoseconds something takes that goes through a matrix as a product does."""
    return 200 + times * NANOSECONDS_PER_PRODUCT * m * n * min(m, n)


def zeros(shape, dtype=np.int32):
    """An array of zeros: what says that nothing went wrong."""
    return np.zeros(shape, dtype)


def finite(A):
    """Whether all elements are finite."""
    return bool(np.isfinite(A).all())


# --- Cholesky, LU and what is solved with them ------------------------------------------------------------------------


def _cholesky(dtype, operands, upper):
    (shape, _), = operands
    n = shape[-1]
    made = SolverProgram(dtype.np, operands, [(dtype, shape, 2)], cubic(n, n, 0.4))
    A, L = made.operands[0], made.out(0)
    made.lay(A, L)
    made.call("potrf", b"U" if upper else b"L", n, L, n, INFO)
    made.clear(L, upper=not upper)
    return made.finish()


def cholesky(A, upper):
    """The Cholesky factors of Hermitian matrices, of which one triangle is read."""
    made = solved(_cholesky, (upper,), A)
    if made is None:
        return None
    L, = made
    last = L[..., -1, -1]                         # it may let NaN pass, which comes there from everywhere
    return L if (last == last if L.ndim == 2 else (last == last).all()) else None


def _lu(dtype, operands):
    (shape, _), = operands
    m, n = shape[-2:]
    made = SolverProgram(dtype.np, operands, [(dtype, shape, 2)], cubic(m, n))
    LU, made.pivots = made.out(0), made.whole_numbers(min(m, n))
    made.lay(made.operands[0], LU)
    made.call("getrf", m, n, LU, m, made.pivots, INFO)
    return made.finish()


def lu(A):
    """(L and U in one matrix, row exchanges from 1, which pivot is zero or 0)."""
    found, arrays = program(_lu, (), A)
    if found is None:
        return None
    (LU,), room, infos = found.run(*arrays)
    pivots = found.read(room, found.pivots, min(A.shape[-2:]), f"i{lapack.integer_bytes()}")
    return LU, pivots.astype(np.int32), np.array(infos, np.int32).reshape(A.shape[:-2])


def _divided(made, A, X, lower, unit):
    """Solve with a triangle of A in place: by our own kernel where the numbers are real."""
    n, cols = X.rows, X.cols
    calls = None if made.complex else \
        triangular.steps(made.dtype.name, n, cols, made.count, A[4:], X[4:], X[4:], lower, unit)
    if calls is None:
        made.call("trsm", b"L", b"L" if lower else b"U", b"N", b"U" if unit else b"N", n, cols, made.one,
                  A, A.col, X, X.col)
        return
    room = made.shared(max(call.scratch for call in calls))
    slots = [A[:2], X[:2], X[:2], room[:2]]
    for one in calls:
        places = [(slots[number][0], slots[number][1] + more) for number, more in one.buffers]
        made.step(one.fn, one.tiles, places, one.ints, one.grain)


def _solve_triangular(dtype, operands, lower, unit):
    (left, _), (right, _) = operands
    made = SolverProgram(dtype.np, operands, [(dtype, right, 2)], cubic(*right[-2:]))
    A, X = made.operands[0], made.out(0)
    if A.row != 1 or A.col < max(1, A.rows):
        A = made.matrices(*left[-2:])
        made.lay(made.operands[0], A)
    made.lay(made.operands[1], X)
    _divided(made, A, X, lower, unit)
    return made.finish()


def solve_triangular(A, B, upper, left, unit):
    """The X with A X = B, or X A = B unless `left`, for triangular matrices. Of real ones plans know more."""
    if not left:
        X = solve_triangular(A.swapaxes(-1, -2), B.swapaxes(-1, -2), not upper, True, unit)
        return X if X is None else X.swapaxes(-1, -2)
    batch = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    made = solved(_solve_triangular, (not upper, unit),
                  *[np.broadcast_to(one, (*batch, *one.shape[-2:])) for one in (A, B)])
    return made and made[0]


def _exchanged(made, X, pivots):
    """Exchange rows as the factorisation did."""
    n = X.rows
    made.call("laswp", X.cols, X, n, 1, n, pivots, 1)


def _solve(dtype, operands):
    (_, (shape, _)) = operands
    n, cols = shape[-2:]
    made = SolverProgram(dtype.np, operands, [(dtype, shape, 2)], cubic(n, n) + cubic(n, cols, 2.0))
    LU, X, pivots = made.matrices(n, n), made.out(0), made.whole_numbers(n)
    made.lay(made.operands[0], LU)
    made.lay(made.operands[1], X)
    made.call("getrf", n, n, LU, n, pivots, INFO)
    _exchanged(made, X, pivots)
    _divided(made, LU, X, lower=True, unit=True)
    _divided(made, LU, X, lower=False, unit=False)
    return made.finish()


def solve(A, B):
    """The X with A X = B, in batches that broadcast."""
    batch = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    made = solved(_solve, (), *[np.broadcast_to(one, (*batch, *one.shape[-2:])) for one in (A, B)])
    return made and made[0]


def _inverse(dtype, operands):
    (shape, _), = operands
    n = shape[-1]
    made = SolverProgram(dtype.np, operands, [(dtype, shape, 2)], cubic(n, n, 3.0))
    X, pivots = made.out(0), made.whole_numbers(n)
    made.lay(made.operands[0], X)
    made.call("getrf", n, n, X, n, pivots, INFO)
    made.call("getri", n, X, n, pivots, WORK, WORK_SIZE, INFO)
    return made.finish()


def inverse(A):
    """The inverses of matrices."""
    n = A.shape[-1]
    if A.dtype.kind == "f" and n > 8:                      # getri is slower than two triangles of our own
        return solve(A, np.broadcast_to(np.eye(n, dtype=A.dtype), A.shape))
    made = solved(_inverse, (), A)
    return made and made[0]


def diagonal(A):
    """(the diagonal of U in A = P L U, the sign of P); None for small matrices, too: NumPy is as quick there."""
    made = lu(A) if A.shape[-1] > MAX_SMALL_ROWS else None
    if made is None:
        return None
    LU, pivots, _ = made
    exchanges = (pivots != np.arange(1, A.shape[-1] + 1, dtype=np.int32)).sum(-1)
    return np.diagonal(LU, 0, -2, -1), 1 - 2 * (exchanges % 2)


def det(A):
    """The determinants of matrices."""
    made = diagonal(A)
    return made and (made[0].prod(-1) * made[1]).astype(A.dtype)


def slogdet(A):
    """(the sign of each determinant, the logarithm of its absolute value)."""
    made = diagonal(A)
    if made is None:
        return None
    U, sign = made
    size = np.abs(U)
    turn = np.divide(U, size, out=np.zeros_like(U), where=size != 0)
    return (turn.prod(-1) * sign).astype(A.dtype), np.log(size).sum(-1)


# --- QR and least squares ---------------------------------------------------------------------------------------------


def _qr(dtype, operands, mode):
    (shape, _), = operands
    *batch, m, n = shape
    k, height = min(m, n), m if mode == "complete" else min(m, n)
    outs = [(dtype, (*batch, height, n), 2)]
    if mode != "r":
        outs.append((dtype, (*batch, m, height), 2))
    made = SolverProgram(dtype.np, operands, outs, cubic(m, n, 3.0))
    A, R, rows = made.operands[0], made.out(0), made.row(k)
    Q = made.out(1) if mode != "r" else None
    factored = R if height == m else Q if mode != "r" else made.matrices(m, n)     # where there is room for m x n
    made.lay(A, factored)
    made.call("geqrf", m, n, factored, m, rows, WORK, WORK_SIZE, INFO)
    if factored is not R:
        made.lay(factored, R)
    elif Q is not None:
        made.lay(R, Q)
    if Q is not None:
        made.call("ungqr" if made.complex else "orgqr", m, height, k, Q, m, rows, WORK, WORK_SIZE, INFO)
    made.clear(R, upper=False)
    return made.finish()


def qr(A, mode):
    """(Q, R), or R alone if `mode` is "r"."""
    made = solved(_qr, (mode,), A)
    return made and (made[0] if mode == "r" else (made[1], made[0]))


def _lstsq(dtype, operands, driver, rcond):
    (left, _), (right, _) = operands
    (*batch, m, n), k = left, right[-1]
    made = SolverProgram(dtype.np, operands, [(REAL_OF[dtype], (*batch, min(m, n)), 1)], cubic(m, n, 4.0))
    A, X = made.matrices(m, n), made.matrices(max(m, n), k)
    made.rank, made.X = made.whole_numbers(1), X
    made.lay(made.operands[0], A)
    made.lay(made.operands[1], X, m, k)
    whole = lapack.integer_bytes()
    if driver == "gels":
        made.call("gels", b"N", m, n, k, A, m, X, max(m, n), WORK, WORK_SIZE, INFO)
    elif driver == "gelsy":
        rest = [made.tile_room(2 * n, made.real.itemsize)] if made.complex else []
        order = made.zeros(n, whole)                      # columns may all be exchanged
        made.call("gelsy", m, n, k, A, m, X, max(m, n), order, float(rcond), made.rank, WORK, WORK_SIZE,
                  *rest, INFO)
    else:
        rest = [REAL_WORK] if made.complex else []
        made.call("gelsd", m, n, k, A, m, X, max(m, n), made.out_rows(0), float(rcond), made.rank, WORK, WORK_SIZE,
                  *rest, WHOLE_WORK, INFO)
    return made.finish()


def lstsq(A, B, rcond, driver):
    """(X, rank, singular values) with the smallest ||A X - B|| as a driver gives them: "gelsd" alone has the last."""
    m, n = A.shape[-2:]
    if not finite(A) or not finite(B) or driver == "gels" and not A.any((-2, -1)).all():
        return None                       # gels takes a matrix of zeros for one of full rank
    rcond = np.finfo(A.dtype).eps * max(m, n) if rcond is None else rcond
    found, arrays = program(_lstsq, ("gelsd" if driver == "gelss" else driver, rcond), A, B)
    if found is None:
        return None
    (S,), room, infos = found.run(*arrays)
    if found.faults(infos):
        return None
    X = found.read_matrices(room, found.X)[..., :n, :]
    rank = found.read(room, found.rank, 1, f"i{lapack.integer_bytes()}")[..., 0] if driver != "gels" else \
        np.full(found.batch, min(m, n))
    return X.copy(), rank.astype(np.int64), S


# --- eigenvalues and singular values ----------------------------------------------------------------------------------


def _eigh(dtype, operands, uplo, vectors):
    (shape, _), = operands
    n = shape[-1]
    outs = [(REAL_OF[dtype], shape[:-1], 1), *[(dtype, shape, 2)] * vectors]
    made = SolverProgram(dtype.np, operands, outs, cubic(n, n, 10.0))
    V = made.out(1) if vectors else made.matrices(n, n)
    made.lay(made.operands[0], V)
    room = (WORK, WORK_SIZE, *((REAL_WORK, REAL_WORK_SIZE) if made.complex else ()), WHOLE_WORK, WHOLE_WORK_SIZE)
    made.call("heevd" if made.complex else "syevd", b"V" if vectors else b"N", uplo.encode(), n, V, n,
              made.out_rows(0), *room, INFO)
    return made.finish()


def eigh(A, uplo):
    """(eigenvalues, eigenvectors) of Hermitian matrices, of which one triangle is read."""
    made = solved(_eigh, (uplo, True), A)
    return made and tuple(made)


def eigvalsh(A, uplo):
    """The eigenvalues of Hermitian matrices."""
    made = solved(_eigh, (uplo, False), A)
    return made and made[0]


def _svd(dtype, operands, full, vectors):
    (shape, _), = operands
    *batch, m, n = shape
    k = min(m, n)
    wide, high = (m, n) if full else (k, k)
    outs = [(REAL_OF[dtype], (*batch, k), 1)]
    if vectors:
        outs += [(dtype, (*batch, m, wide), 2), (dtype, (*batch, high, n), 2)]
    made = SolverProgram(dtype.np, operands, outs, cubic(m, n, 20.0))
    A = made.matrices(m, n)
    U, Vh = (made.out(1), made.out(2)) if vectors else (A, A)               # the last are not read
    made.lay(made.operands[0], A)
    room = [made.tile_room(8 * k, lapack.integer_bytes())]
    if made.complex:
        real = max(5 * k * k + 7 * k, 2 * max(m, n) * k + 2 * k * k + k)
        room.insert(0, made.tile_room(real if vectors else 7 * k, made.real.itemsize))
    letter = b"N" if not vectors else b"A" if full else b"S"
    made.call("gesdd", letter, m, n, A, m, made.out_rows(0), U, m, Vh, max(high, 1), WORK, WORK_SIZE, *room, INFO)
    return made.finish()


def svd(A, full):
    """(U, S, V^H), with all vectors that there are where `full`."""
    made = solved(_svd, (full, True), A)
    return made and (made[1], made[0], made[2])


def svdvals(A):
    """The singular values of matrices."""
    made = solved(_svd, (False, False), A)
    return made and made[0]


def _eig(dtype, operands, vectors):
    (shape, _), = operands
    n = shape[-1]
    if dtype.is_complex:
        outs = [(dtype, shape[:-1], 1), *[(dtype, shape, 2)] * vectors]
    else:
        outs = [(dtype, shape[:-1], 1), (dtype, shape[:-1], 1), *[(dtype, shape, 2)] * vectors]
    made = SolverProgram(dtype.np, operands, outs, cubic(n, n, 40.0))
    A = made.matrices(n, n)
    made.lay(made.operands[0], A)
    V = made.out(len(outs) - 1) if vectors else A
    values = [made.out_rows(i) for i in range(1 if made.complex else 2)]
    rest = [made.tile_room(2 * n, made.real.itemsize)] if made.complex else []
    made.call("geev", b"N", b"V" if vectors else b"N", n, A, n, *values, A, n, V, n, WORK, WORK_SIZE, *rest, INFO)
    return made.finish()


def eig(A):
    """(eigenvalues, eigenvectors) of finite matrices, complex."""
    made = solved(_eig, (True,), A)
    if made is None or A.dtype.kind == "c":
        return made and tuple(made)
    real, imaginary, V = made
    values = real + 1j * imaginary
    vectors = V.astype(values.dtype)
    pairs = imaginary > 0                          # such a column is the real part, and the next one the imaginary part
    if pairs.any():
        after = np.zeros_like(pairs)
        after[..., 1:] = pairs[..., :-1]
        first, second = [np.moveaxis(V, -1, -2)[which] for which in (pairs, after)]
        turned = np.moveaxis(vectors, -1, -2)
        turned[pairs], turned[after] = first + 1j * second, first - 1j * second
    return values, vectors


def eigvals(A):
    """The eigenvalues of finite matrices, complex."""
    made = solved(_eig, (False,), A)
    if made is None or A.dtype.kind == "c":
        return made and made[0]
    return made[0] + 1j * made[1]
