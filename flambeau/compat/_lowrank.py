"""Singular values and principal components of a matrix that a few directions nearly span, by random projection.

N. Halko, P. G. Martinsson, J. A. Tropp: Finding structure with randomness, 2009, algorithms 4.4 and 5.1.
"""
from ..tensor.forms import namespace
from ..tensor.overrides import handle_torch_function, has_torch_function
from ..tensor.random import randn

__all__ = ["pca_lowrank", "svd_lowrank"]

svd, qr = namespace["linalg"]["svd"], namespace["linalg"]["qr"]


def get_approximate_basis(A, q, niter=2, M=None):
    """`q` orthonormal columns that span nearly what `A - M` does, after `niter` rounds."""
    B = A if M is None else A - M
    dtype = B.dtype if B.is_floating_point() or B.is_complex() else None
    Q = qr(B @ randn(B.shape[-1], q, dtype=dtype, device=B.device)).Q
    for _ in range(niter):
        Q = qr(B.mH @ Q).Q
        Q = qr(B @ Q).Q
    return Q


def svd_lowrank(A, q=6, niter=2, M=None):
    """(U, S, V) with `A - M` nearly `U @ diag(S) @ V.mH`, of rank `q`: drawn at random, the better the more `niter`.

    >>> A = torch.ones(5, 4)
    >>> U, S, V = torch.svd_lowrank(A, q=2)
    >>> torch.allclose(U @ S.diag() @ V.T, A, atol=1e-5)
    True
    """
    given = (A,) if M is None else (A, M)
    if has_torch_function(given):
        return handle_torch_function(svd_lowrank, given, A, q=q, niter=niter, M=M)
    q = 6 if q is None else q
    B = A if M is None else A - M.broadcast_to(A.shape)
    wide = B.shape[-2] < B.shape[-1]
    if wide:
        B = B.mH
    Q = get_approximate_basis(B, q, niter)
    U, S, Vh = svd(Q.mH @ B, full_matrices=False)
    U, V = Q @ U, Vh.mH
    return (V, S, U) if wide else (U, S, V)


def pca_lowrank(A, q=None, center=True, niter=2):
    """(U, S, V) of the rows of `A`, less their mean with `center`: the columns of V are the principal directions.

    >>> U, S, V = torch.pca_lowrank(torch.eye(4), q=2)
    >>> V.shape
    torch.Size([4, 2])
    """
    if has_torch_function((A,)):
        return handle_torch_function(pca_lowrank, (A,), A, q=q, center=center, niter=niter)
    m, n = A.shape[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)
