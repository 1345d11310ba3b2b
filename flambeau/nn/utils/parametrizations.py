"""Parametrizations that are ready to use: orthogonal, of norm one, with length and direction apart."""
from ...autograd.modes import no_grad
from ...base import dtypes
from ...tensor.forms import namespace
from ...tensor.functions import _weight_norm, cat, eye, geqrf, matrix_exp, norm_except_dim, randn, vdot
from ...tensor.tensor import Tensor
from .. import functional as F
from ..modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module
from . import parametrize

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

ORTHOGONAL_MAPS = ("matrix_exp", "cayley", "householder")
householder_product, solve = namespace["linalg"]["householder_product"], namespace["linalg"]["solve"]


# --- orthogonal -------------------------------------------------------------------------------------------------------


def _is_orthogonal(Q, eps=None):
    n, k = Q.shape[-2:]
    eps = 10.0 * n * dtypes.finfo(Q.dtype).eps if eps is None else eps
    return (Q.mH @ Q).allclose(eye(k, dtype=Q.dtype, device=Q.device), atol=eps)


def _make_orthogonal(A):
    """The orthogonal factor of the QR decomposition in which R has a positive diagonal."""
    reflections, tau = geqrf(A)
    return householder_product(reflections, tau) * diagonal(reflections).sgn().unsqueeze(-2)


def diagonal(matrix):
    return matrix.diagonal(dim1=-2, dim2=-1)


class _Orthogonal(Module):
    """A matrix with orthonormal columns (or rows, of a wide one) from a free one, by one of three maps.

    With `use_trivialization` the map is taken around `base`, the orthogonal matrix that was assigned last, so that any
    one can be assigned.
    """

    def __init__(self, weight, orthogonal_map, *, use_trivialization=True):
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X):
        wide = X.size(-2) < X.size(-1)
        X = X.mT if wide else X
        Q = self._reflected(X) if self.orthogonal_map == "householder" else self._rotated(X)
        Q = self.base @ Q if hasattr(self, "base") else Q
        return Q.mT if wide else Q

    def _rotated(self, X):
        """The exponential, or Cayley's map, of the skew matrix whose lower part is that of X."""
        n, k = X.shape[-2:]
        X = X.tril()
        if n != k:
            X = cat([X, X.new_zeros((*X.shape[:-1], n - k))], -1)
        A = X - X.mH
        if self.orthogonal_map == "matrix_exp":
            Q = matrix_exp(A)
        else:
            one = eye(n, dtype=A.dtype, device=A.device)
            Q = solve(one - 0.5 * A, one + 0.5 * A)
        return Q[..., :k]

    def _reflected(self, X):
        """The product of the reflections below the diagonal of X, its columns with the signs on the diagonal."""
        A = X.tril(-1)
        Q = householder_product(A, 2 / (1 + (A * A).sum(-2)))
        return Q * diagonal(X).detach().trunc().unsqueeze(-2)

    def right_inverse(self, Q):
        if Q.shape != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape "
                             f"{Q.shape}.")
        with no_grad():
            wide = Q.size(-2) < Q.size(-1)
            tall = Q.mT if wide else Q
            if hasattr(self, "base"):
                self.base = self._completed(tall)
                start = Q.new_zeros(Q.shape)
                diagonal(start).fill_(-1.0)                # what each of the maps takes to the identity
                return start
            if self.orthogonal_map != "householder":
                raise NotImplementedError("It is not possible to assign to the matrix exponential or the Cayley "
                                          "parametrizations when use_trivialization=False.")
            A, tau = geqrf(tall)
            signs = diagonal(A).sign()
            diagonal(A).copy_(signs.where(tau != 0, -signs))   # LAPACK leaves zero where it reflects nothing
            return A.mT if wide else A

    @staticmethod
    def _completed(Q):
        """A square orthogonal matrix that begins with the columns of Q."""
        n, k = Q.shape[-2:]
        if n == k:
            return Q.clone() if _is_orthogonal(Q) else _make_orthogonal(Q)
        more = randn((*Q.shape[:-2], n, n - k), dtype=Q.dtype, device=Q.device)
        return _make_orthogonal(cat([Q, more], -1))


def tensor_of(module, name):
    found = getattr(module, name, None)
    if not isinstance(found, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return found


def orthogonal(module, name="weight", orthogonal_map=None, *, use_trivialization=True):
    """Keep a matrix of `module` orthogonal while it is trained; gives `module` back.

    `orthogonal_map` is "matrix_exp", "cayley" or "householder"; by default the first for square matrices and the last
    for others.

    >>> layer = torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(20, 40))
    >>> bool(torch.dist(layer.weight.T @ layer.weight, torch.eye(20)) < 1e-4)
    True
    """
    weight = tensor_of(module, name)
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        square = weight.size(-2) == weight.size(-1)
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in ORTHOGONAL_MAPS:
        raise ValueError('orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: '
                         f"{orthogonal_map}")
    made = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)


# --- length and direction ---------------------------------------------------------------------------------------------


class _WeightNorm(Module):
    """A weight from its length and its direction."""

    def __init__(self, dim=0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g, weight_v):
        return _weight_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight):
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module, name="weight", dim=0):
    """Train the length (`original0`) and the direction (`original1`) of a weight apart; gives `module` back.

    Checkpoints of the older `torch.nn.utils.weight_norm` can be loaded.

    >>> layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(20, 40))
    >>> layer.parametrizations.weight.original0.shape
    torch.Size([40, 1])
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def translate(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        old = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(key in state_dict for key in old):
            for number, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{name}.original{number}"] = state_dict.pop(key)
    module._register_load_state_dict_pre_hook(translate)
    return module


# --- spectral norm ----------------------------------------------------------------------------------------------------


class _SpectralNorm(Module):
    """A weight divided by its largest singular value, which power iteration follows during training."""

    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError("Expected n_power_iterations to be positive, but got "
                             f"n_power_iterations={n_power_iterations}")
        self.dim, self.eps, self.n_power_iterations = dim % ndim, eps, n_power_iterations
        if ndim > 1:
            with no_grad():
                matrix = self._reshape_weight_to_matrix(weight)
                for side, size in zip(("_u", "_v"), matrix.shape):
                    start = matrix.new_empty(size).normal_(0, 1)
                    self.register_buffer(side, F.normalize(start, dim=0, eps=eps))
            self._power_method(matrix, 15)

    def _reshape_weight_to_matrix(self, weight):
        return weight.movedim(self.dim, 0).flatten(1)

    def _power_method(self, weight_mat, n_power_iterations):
        with no_grad():
            u, v = self._u, self._v
            for _ in range(n_power_iterations):
                u = F.normalize(weight_mat.mv(v), dim=0, eps=self.eps)
                v = F.normalize(weight_mat.mH.mv(u), dim=0, eps=self.eps)
            self._u.copy_(u)
            self._v.copy_(v)

    def forward(self, weight):
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._reshape_weight_to_matrix(weight)
        if self.training:
            self._power_method(matrix.detach(), self.n_power_iterations)
        # copies, since the next iteration writes over these before this forward's gradient may be asked for
        return weight / vdot(self._u.clone(), matrix.mv(self._v.clone()))

    def right_inverse(self, value):
        return value


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Divide a weight of `module` by its largest singular value; gives `module` back.

    >>> layer = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(20, 40), n_power_iterations=20)
    >>> bool((torch.linalg.matrix_norm(layer.weight, 2) - 1).abs() < 1e-2)
    True
    """
    weight = tensor_of(module, name)
    if dim is None:
        dim = 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0
    return parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
