"""What reparametrised weights are made of: lengths apart from directions, and products of reflections."""

from ..base.errors import need
from ..base.op import Composite, Op, refuse
from ..base.spec import spec
from .matmul import adjoint
from .ranges import eye
from .solve import _solve_triangular, in_columns, laid_in_columns


class norm_except_dim(Composite):
    """The norm of order `pow` over all dimensions but `dim`; over all of them where that is -1."""

    forms = "function"

    def of(v, pow=2, dim=0):
        if dim == -1:
            return v.norm(pow)
        need(0 <= dim < v.dim(), f"dim {dim} is not one of the {v.dim()} dimensions, nor -1 for all of them")
        rest = [d for d in range(v.dim()) if d != dim]
        return v.norm(pow, rest, keepdim=True) if rest else v.abs()


class _weight_norm(Composite):
    """`v` brought to the length `g`, one length for each slice along `dim`."""

    names = "_weight_norm"
    forms = "function"

    def of(v, g, dim=0): return v * (g / norm_except_dim(v, 2, dim))


class geqrf(Op):
    """The QR decomposition as LAPACK leaves it: R above the diagonal, reflections below it, and their factors."""

    forms = "function method out"
    returns = "geqrf a tau"

    def meta(input):
        need(input.ndim >= 2, f"torch.geqrf: input must have at least 2 dimensions, but got {input.ndim} dimensions")
        refuse(geqrf, input.dtype, "bool int half")
        k = min(input.shape[-2:])
        return in_columns(input, *input.shape[-2:]), spec(input.dtype, (*input.shape[:-2], k), None, input.device)

    def ref(xp, input):
        *lead, m, n = input.shape
        a, tau = xp.empty((*lead, m, n), input.dtype), xp.empty((*lead, min(m, n)), input.dtype)
        for at in xp.ndindex(*lead):
            h, factors = xp.linalg.qr(input[at], mode="raw")
            a[at], tau[at] = h.T, factors
        return a, tau


class _householder_product(Composite):
    """The first columns of the product of the reflections I - tau v vᴴ, as `geqrf` leaves them below the diagonal.

    Schreiber and Van Loan's form: I - V (I + D U)⁻¹ D Vᴴ, with D = diag(tau) and U the upper part of VᴴV, is the same
    product in a few operations on whole matrices.
    """

    names = "linalg.householder_product orgqr"
    forms = "function method out"

    def of(input, tau):
        need(input.dim() >= 2, "torch.linalg.householder_product: input must have at least 2 dimensions.")
        *lead, m, n = input.shape
        k = tau.shape[-1]
        need(m >= n, "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to "
                     f"input.shape[-1], got {m} and {n}")
        need(n >= k, "torch.linalg.householder_product: input.shape[-1] must be greater than or equal to "
                     f"tau.shape[-1], got {n} and {k}")
        need(input.dtype is tau.dtype, f"torch.linalg.householder_product: tau dtype {tau.dtype} does not match input "
                                       f"dtype {input.dtype}")
        same = lambda columns: eye(m, columns, dtype=input.dtype, device=input.device).expand(*lead, m, columns)
        v, d = input[..., :k].tril(-1) + same(k), tau.unsqueeze(-1)
        upper = d * (adjoint(v) @ v).triu(1) + same(k)[..., :k, :]
        inner = _solve_triangular(upper, d * adjoint(v[..., :n, :]), upper=True, unitriangular=True)
        return laid_in_columns(same(n) - v @ inner)
