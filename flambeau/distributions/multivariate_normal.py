"""The multivariate normal distribution."""
import math

from . import constraints
from .distribution import Distribution
from .functions import broadcast_shapes, cholesky, cholesky_inverse, eye, solve_triangular
from .utils import _standard_normal, lazy_property

__all__ = ["MultivariateNormal"]


def _batch_mv(matrix, vector):
    """The product of matrices and vectors, both in batches."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def log_diagonal(factor):
    """The summed logarithms of the diagonal of triangular matrices: of a Cholesky factor, half the log-determinant."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _batch_mahalanobis(factor, off):
    """The squared Mahalanobis length of vectors `off` in the metric of `factor @ factor.mT`.

    All vectors that belong to one matrix of the batch are solved for at once.
    """
    batch, n = factor.shape[:-2], factor.shape[-1]
    shape = broadcast_shapes(batch, off.shape[:-1])
    cut = len(shape) - len(batch)
    if shape[cut:] != batch:
        batch = shape[cut:]
        factor = factor.expand(batch + (n, n))
    columns = off.expand(shape + (n,)).reshape((-1,) + batch + (n,)).movedim(0, -1)
    return solve_triangular(factor, columns, upper=False).square().sum(-2).movedim(-1, 0).reshape(shape)


def _precision_to_scale_tril(precision):
    """The Cholesky factor of the inverse of positive definite matrices."""
    # Turned by half a turn, the factor of a matrix is an upper one of it, whose inverse is lower again.
    upper = cholesky(precision.flip((-2, -1))).flip((-2, -1)).mT
    identity = eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return solve_triangular(upper, identity, upper=False)


def given_matrix(**matrices):
    """The (name, value) of the one matrix that is not None."""
    given = [(name, value) for name, value in matrices.items() if value is not None]
    if len(given) != 1:
        raise ValueError(f"Exactly one of {' or '.join(matrices)} may be specified, got "
                         f"{', '.join(name for name, _ in given) or 'none'}.")
    name, value = given[0]
    if value.dim() < 2:
        raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
    return name, value


class CovarianceForms(Distribution):
    """A matrix parameter in any of three forms: the covariance, its inverse, or its Cholesky factor."""

    @staticmethod
    def _factor(name, matrix):
        """The Cholesky factor of the covariance, from the given form of the matrix."""
        if name == "scale_tril":
            return matrix
        return cholesky(matrix) if name == "covariance_matrix" else _precision_to_scale_tril(matrix)

    def _whole(self, matrix):
        return matrix.expand(self._batch_shape + matrix.shape[-2:])

    @lazy_property
    def scale_tril(self): return self._whole(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self):
        return self._whole(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self): return self._whole(cholesky_inverse(self._unbroadcasted_scale_tril))


class MultivariateNormal(CovarianceForms):
    """Normal vectors around `loc`. The covariance is given as such, by its inverse, or by its Cholesky factor.

    >>> m = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    >>> m.log_prob(torch.tensor([1.0, 1.0]))
    tensor(-2.8379)
    """

    arg_constraints = {"loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
                       "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky}
    support = constraints.real_vector
    has_rsample = True
    _expands = ("loc", "covariance_matrix", "precision_matrix", "scale_tril")
    _keeps = ("_unbroadcasted_scale_tril",)

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = given_matrix(covariance_matrix=covariance_matrix, precision_matrix=precision_matrix,
                                    scale_tril=scale_tril)
        batch_shape = broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.loc = loc.expand(batch_shape + loc.shape[-1:])
        self.__dict__[name] = matrix.expand(batch_shape + matrix.shape[-2:])
        super().__init__(batch_shape, loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = self._factor(name, matrix)

    @property
    def mean(self): return self.loc

    @property
    def mode(self): return self.loc

    @property
    def variance(self):
        return self._unbroadcasted_scale_tril.square().sum(-1).expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape=()):
        eps = _standard_normal(self._extended_shape(sample_shape), self.loc.dtype, self.loc.device)
        return self.loc + _batch_mv(self._unbroadcasted_scale_tril, eps)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        square = _batch_mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        constant = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + square) - log_diagonal(self._unbroadcasted_scale_tril)

    def entropy(self):
        constant = 0.5 * self._event_shape[0] * (1 + math.log(2 * math.pi))
        return (constant + log_diagonal(self._unbroadcasted_scale_tril)).expand(self._batch_shape)
