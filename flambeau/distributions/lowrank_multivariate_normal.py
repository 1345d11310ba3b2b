"""The multivariate normal distribution whose covariance is a diagonal and few directions more."""
import math

from . import constraints
from .distribution import Distribution
from .functions import broadcast_shapes, cholesky, eye, solve_triangular
from .multivariate_normal import _batch_mahalanobis, _batch_mv, log_diagonal
from .utils import _standard_normal, lazy_property

__all__ = ["LowRankMultivariateNormal"]


def _batch_capacitance_tril(factor, diagonal):
    """The Cholesky factor of I + W.mT D^-1 W, the small matrix in the formulas of Woodbury and Sylvester."""
    small = factor.mT @ (factor / diagonal.unsqueeze(-1))
    return cholesky(small + eye(small.shape[-1], dtype=small.dtype, device=small.device))


def _batch_lowrank_logdet(factor, diagonal, capacitance):
    """The logarithm of the determinant of W W.mT + D."""
    return 2 * log_diagonal(capacitance) + diagonal.log().sum(-1)


def _batch_lowrank_mahalanobis(factor, diagonal, off, capacitance):
    """The squared length of the vectors `off` in the metric of W W.mT + D."""
    scaled = _batch_mv(factor.mT, off / diagonal)
    return (off.square() / diagonal).sum(-1) - _batch_mahalanobis(capacitance, scaled)


class LowRankMultivariateNormal(Distribution):
    """Normal vectors around `loc` with covariance `cov_factor @ cov_factor.mT + diag(cov_diag)`."""

    arg_constraints = {"loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2),
                       "cov_diag": constraints.independent(constraints.positive, 1)}
    support = constraints.real_vector
    has_rsample = True
    _expands = ("loc", "cov_factor", "cov_diag")
    _keeps = ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril")

    def __init__(self, loc, cov_factor, cov_diag, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event_shape = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event_shape:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event_shape[0]} x m, got "
                             f"{tuple(cov_factor.shape)}")
        if cov_diag.shape[-1:] != event_shape:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event_shape}, got "
                             f"{tuple(cov_diag.shape)}")
        try:
            batch_shape = broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except RuntimeError as error:
            raise ValueError(f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag "
                             f"{cov_diag.shape}") from error
        self.loc = loc.expand(batch_shape + event_shape)
        self.cov_factor = cov_factor.expand(batch_shape + cov_factor.shape[-2:])
        self.cov_diag = cov_diag.expand(batch_shape + event_shape)
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        self._capacitance_tril = _batch_capacitance_tril(cov_factor, cov_diag)

    @property
    def mean(self): return self.loc

    @property
    def mode(self): return self.loc

    @lazy_property
    def variance(self):
        return (self._unbroadcasted_cov_factor.square().sum(-1) + self._unbroadcasted_cov_diag).expand(
            self._batch_shape + self._event_shape)

    def _whole(self, matrix):
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def scale_tril(self):
        # of the matrix scaled to D = I, whose eigenvalues are at least 1
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / root
        inner = scaled @ scaled.mT
        return self._whole(root * cholesky(inner + eye(inner.shape[-1], dtype=inner.dtype, device=inner.device)))

    @lazy_property
    def covariance_matrix(self):
        w = self._unbroadcasted_cov_factor
        return self._whole(w @ w.mT + self._unbroadcasted_cov_diag.diag_embed())

    @lazy_property
    def precision_matrix(self):
        scaled = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        a = solve_triangular(self._capacitance_tril, scaled, upper=False)
        return self._whole(self._unbroadcasted_cov_diag.reciprocal().diag_embed() - a.mT @ a)

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        along = _standard_normal(shape[:-1] + self.cov_factor.shape[-1:], self.loc.dtype, self.loc.device)
        each = _standard_normal(shape, self.loc.dtype, self.loc.device)
        return self.loc + _batch_mv(self._unbroadcasted_cov_factor, along) + self._unbroadcasted_cov_diag.sqrt() * each

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        parts = self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag
        square = _batch_lowrank_mahalanobis(*parts, value - self.loc, self._capacitance_tril)
        log_det = _batch_lowrank_logdet(*parts, self._capacitance_tril)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + log_det + square)

    def entropy(self):
        log_det = _batch_lowrank_logdet(self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag,
                                        self._capacitance_tril)
        return (0.5 * (self._event_shape[0] * (1 + math.log(2 * math.pi)) + log_det)).expand(self._batch_shape)
