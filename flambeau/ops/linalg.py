"""Linear algebra beside the factorisations and solvers: determinants, least squares, products and powers.

Batches, failures and derivatives as in `solve.py`.
"""
import math

from ..base import dtypes, shapes
from ..base.errors import need
from ..base.op import Composite, Op
from ..base.spec import spec
from .arith import conj
from .linalg_norm import check_matrix
from .matmul import adjoint, matmul, only_tensors, refuse_dtype, vdot
from .pieces import cat
from .slices import _diagonal_backward, diagonal
from .solve import _linalg_solve, _solve, blame, check, check_float, eye_like, inverse, like
from .spectral import _linalg_pinv, _pinv, _svd

# --- determinants -----------------------------------------------------------------------------------------------------


class det(Op):
    """The determinant of each matrix.

    >>> torch.linalg.det(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).round()
    tensor(-2.)
    """

    names = "linalg.det"
    forms = "function method out"
    node = "LinalgDetBackward0"
    strict_out = True

    def meta(input):
        check(input, "linalg.det")
        return like(input)

    def ref(xp, input): return xp.linalg.det(input)
    def direct(la, input): return la.det(input)

    def d_input(g, input, out):
        # conj(det) A^-H where A can be inverted, and what that tends to (the cofactors) where it cannot.
        singular = (out.abs() < 100 * dtypes.finfo(input.dtype).eps)[..., None, None]
        eye = eye_like(input)
        scaled = (g * conj(out))[..., None, None] * eye
        if not bool(singular.any()):
            return _solve(adjoint(input), scaled, True, False, None)[0]
        by_solving = _solve(adjoint(eye.where(singular, input)), scaled, True, False, None)[0]
        spread = input.new_ones(input.shape[-1]).cumsum(0).diag()       # any matrix with distinct singular values
        return (g[..., None, None] * cofactors(input.where(singular, spread))).where(singular, by_solving)


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
    forms = "function out"
    node = "LinalgSlogdetBackward0"
    returns = "linalg_slogdet sign logabsdet"
    strict_out = True

    def meta(A):
        check(A, "linalg.slogdet")
        return like(A), like(A, dtype=A.dtype.to_real())

    def ref(xp, A): return tuple(xp.linalg.slogdet(A))
    def direct(la, A): return la.slogdet(A)

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

    forms = "function method out"
    returns = "slogdet sign logabsdet"
    strict_out = True

    def of(input): return tuple(_slogdet(input))


class logdet(Composite):
    """The logarithm of the determinant; nan where that is negative."""

    def of(input):
        sign, logabsdet = _slogdet(input)
        if input.is_complex():
            return sign.log() + logabsdet
        return logabsdet.where(sign != -1, math.nan)


# --- least squares ----------------------------------------------------------------------------------------------------

LSTSQ_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


class _lstsq(Op):
    """The X that makes ||A X - B|| smallest, with residuals, rank and singular values as the driver gives them."""

    node = "LinalgLstsqBackward0"
    returns = "linalg_lstsq solution residuals rank singular_values"
    nondiff = (3,)
    eager = True

    def meta(input, b, vector, rcond, driver):
        name = "torch.linalg.lstsq"
        only_tensors(input=input, b=b)
        need(input.dtype.category >= 2 and input.dtype.itemsize > 2, "This function doesn't handle types other than "
             f"float and double, got {input.dtype.cname}")
        need(b.ndim >= 1, f"{name}: other must have at least 1 dimension.")
        need(input.dtype is b.dtype, f"{name}: Expected input and other to have the same dtype, but got input's dtype "
             f"{input.dtype.cname} and other's dtype {b.dtype.cname}")
        need(driver in LSTSQ_DRIVERS, f"{name}: parameter `driver` should be one of ({', '.join(LSTSQ_DRIVERS)}), got "
             f"{driver!r}")
        wide = b.shape if not vector else (*b.shape, 1)
        at = -1 if vector else -2
        need(len(wide) >= 2 and input.shape[-2] == wide[-2], f"{name}: input.size(-2) should match other.size({at}), "
             f"got {input.shape[-2]} and {b.shape[at] if b.ndim >= -at else 'no such dimension'}")
        shapes.broadcast(input.shape[:-2], wide[:-2])
        return None, None, None, None                   # whether there are residuals depends on the rank

    def ref(xp, input, b, vector, rcond, driver):
        A, B = both_batched(xp, input, b, vector)
        (*batch, m, n), k = A.shape, B.shape[-1]
        X, rank = xp.zeros((*batch, n, k), A.dtype), xp.zeros(batch, xp.int64)
        S = xp.zeros((*batch, min(m, n)), xp.abs(A[:0]).dtype)
        for at in xp.ndindex(*batch):
            if A[at].size:
                X[at], _, rank[at], S[at] = xp.linalg.lstsq(A[at], B[at], rcond)
        if driver == "gels":                            # takes full rank for granted
            blame(xp.where(rank < min(m, n), rank + 1, 0), "torch.linalg.lstsq", lambda k: "The least squares solution "
                  f"could not be computed because the input matrix does not have full rank (error code: {k}).")
        return least_squares(xp, A, B, X, rank, S, vector, driver)

    def direct(la, input, b, vector, rcond, driver):
        A, B = both_batched(la.xp, input, b, vector)
        made = la.lstsq(A, B, rcond, driver)
        return made and least_squares(la.xp, A, B, *made, vector, driver)

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


def both_batched(xp, input, b, vector):
    """Both sides of the equation with the batch dimensions of both."""
    B = b[..., None] if vector else b
    batch = xp.broadcast_shapes(input.shape[:-2], B.shape[:-2])
    return [xp.broadcast_to(one, (*batch, *one.shape[-2:])) for one in (input, B)]


def least_squares(xp, A, B, X, rank, S, vector, driver):
    """What `linalg.lstsq` gives: the residuals, rank and singular values are empty where the driver has none."""
    m, n = A.shape[-2:]
    residuals = none = xp.zeros(0, S.dtype)
    if m > n and driver != "gelsy" and (driver == "gels" or (rank == n).all()):
        residuals = (xp.abs(xp.matmul(A, X) - B) ** 2).sum(-2)
    return (X[..., 0] if vector else X, residuals, rank if driver != "gels" else xp.zeros(0, xp.int64),
            S if driver in ("gelsd", "gelss") else none)


class _linalg_lstsq(Composite):
    """The X that makes ||`input` X - `b`|| smallest; residuals, rank and singular values as the driver gives them."""

    names = "linalg.lstsq"
    forms = "function out"
    returns = "linalg_lstsq solution residuals rank singular_values"

    def of(input, b, rcond=None, *, driver=None):
        only_tensors(input=input, b=b)
        need(input.ndim >= 2, f"torch.linalg.lstsq: input must have at least 2 dimensions, it has {input.ndim}.")
        need(0 <= input.ndim - b.ndim <= 1, "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() "
             f"and (input.dim() - other.dim()) <= 1, got {input.ndim} and {b.ndim}")
        return _lstsq(input, b, input.ndim - b.ndim == 1, rcond, "gelsy" if driver is None else driver)


# --- products and powers ----------------------------------------------------------------------------------------------


class _cross(Op):
    """The vector product along `dim`, which has size 3."""

    names = "linalg.cross"
    forms = "function out"
    node = "LinalgCrossBackward0"
    strict_out = True
    out_no_overlap = True

    def meta(input, other, *, dim=-1):
        only_tensors(input=input, other=other)
        need(input.ndim == other.ndim, "linalg.cross: inputs must have the same number of dimensions, got "
             f"{input.ndim} and {other.ndim}.")
        d = shapes.wrap_dim(dim, input.ndim)
        need(input.ndim and input.shape[d] == other.shape[d] == 3, f"linalg.cross: inputs dimension {dim} must have "
             f"length 3. Got {input.shape[d] if input.ndim else 'none'} and {other.shape[d] if other.ndim else 'none'}")
        need(input.dtype is other.dtype, f"expected scalar type {input.dtype.cname} but found {other.dtype.cname}")
        refuse_dtype(input.dtype, "cross")
        return spec(input.dtype, shapes.broadcast(input.shape, other.shape), None, input.device)

    def ref(xp, input, other, *, dim=-1):  return xp.cross(input, other, axis=dim)
    def d_input(g, other, dim):            return _cross(conj(other), g, dim=dim)
    def d_other(g, input, dim):            return _cross(g, conj(input), dim=dim)

    def body(k, input, other, *, dim):
        d = shapes.wrap_dim(dim, len(input.shape))
        place = k.index(d, [3 if i == d else 1 for i in range(len(input.shape))])
        if math.prod(input.shape[d + 1:]) > 1:                 # rows of memory, any of which is read as a whole
            after, last = k.irem(place + 1, 3), k.irem(place + 2, 3)
            left, right = (k.gather(input, d, one) * k.gather(other, d, two)
                           for one, two in ((after, last), (last, after)))
            return left - right

        def parts(x):
            return [k.gather(x, d, k.reshape(k.const(i, dtypes.int64), (1,) * len(x.shape))) for i in range(3)]

        (a, b, c), (x, y, z) = parts(input), parts(other)
        return k.where(place == 0, b * z - c * y, k.where(place == 1, c * x - a * z, a * y - b * x))


class cross(Composite):
    """The vector product along `dim`, or along the first dimension of size 3."""

    forms = "function method out"
    strict_out = True
    out_no_overlap = True

    def of(input, other, dim=None):
        only_tensors(input=input, other=other)
        if dim is None:
            dim = next((d for d, n in enumerate(input.shape) if n == 3), None)
            need(dim is not None, f"no dimension of size 3 in input, whose size is {list(input.shape)}")
        return _cross(input, other, dim=dim)


class _vecdot(Composite):
    """The sum of the products of `x` (conjugated) and `y` along `dim`."""

    names = "linalg.vecdot"
    forms = "function out"
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
    forms = "function method out"

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
        eye, b = xp.eye(A.shape[-1]), [x / PADE_COEFFICIENTS[0] for x in PADE_COEFFICIENTS]
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


PADE_COEFFICIENTS = (64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000,
                     10559470521600, 670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1)


def check_square(A, name):
    only_tensors(A=A)
    check_matrix(A, name)
    m, n = A.shape[-2:]
    need(m == n, f"{name}: A must be batches of square matrices, but they are {m} by {n} matrices")


class trace(Op):
    """The sum of the diagonal of a matrix."""

    def meta(input):
        need(input.ndim == 2, f"trace: expected a matrix, but got tensor with dim {input.ndim}")
        if input.device.type == "cpu":
            refuse_dtype(input.dtype, "trace")
        return spec(dtypes.int64 if input.dtype.category <= 1 else input.dtype, (), None, input.device)

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
    forms = "function out"

    def of(input, ind=2):
        need(ind > 0, f"Expected a strictly positive integer for 'ind', but got {ind}")
        shape = input._spec.shape
        rows, columns = shape[:ind], shape[ind:]
        n, m = shapes.numel(columns), shapes.numel(rows)
        need(n == m, "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but "
             f"got {n} != {m}")
        return inverse(input.reshape(m, n)).reshape(*columns, *rows)


class _tensorsolve(Composite):
    """The X with tensordot(`input`, X) = `other`; `dims` of `input` are moved to the end first."""

    names = "linalg.tensorsolve"
    forms = "function out"

    def of(input, other, dims=None):
        if dims is not None:
            input = input.movedim(tuple(dims), tuple(range(input.ndim - len(dims), input.ndim)))
        shape = input._spec.shape
        out = shape[other.ndim:]
        n, m = shapes.numel(out), shapes.numel(shape[:other.ndim])
        need(n == m, "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
             f"prod(self.shape[:other.ndim]), but got {n} != {m}")
        return _linalg_solve(input.reshape(m, n), other.reshape(m)).reshape(out)
