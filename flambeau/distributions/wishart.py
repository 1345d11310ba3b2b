"""The Wishart distribution."""
import math
from numbers import Number

from ..base.errors import warn
from ..base.spec import Size
from . import constraints
from .chi2 import Chi2
from .distribution import holds
from .exp_family import ExponentialFamily
from .functions import arange, broadcast_shapes, cholesky_solve, mvlgamma, randn, slogdet, tensor, where
from .multivariate_normal import CovarianceForms, given_matrix, log_diagonal
from .utils import vec_to_tril_matrix

__all__ = ["Wishart"]


def mvdigamma(x, p):
    """The derivative of the multivariate log-gamma function."""
    return (x.unsqueeze(-1) - 0.5 * arange(p, dtype=x.dtype, device=x.device)).digamma().sum(-1)


class Wishart(CovarianceForms, ExponentialFamily):
    """Positive definite matrices: the sum of `df` outer products of normal vectors with themselves.

    The scale matrix is given as a covariance, by its inverse, or by its Cholesky factor.
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0
    _expands = ("df", "covariance_matrix", "precision_matrix", "scale_tril")
    _keeps = ("_unbroadcasted_scale_tril",)

    def __init__(self, df, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        name, matrix = given_matrix(covariance_matrix=covariance_matrix, precision_matrix=precision_matrix,
                                    scale_tril=scale_tril)
        if isinstance(df, Number):
            df = tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch_shape, event_shape = broadcast_shapes(matrix.shape[:-2], df.shape), matrix.shape[-2:]
        self.df = df.expand(batch_shape)
        self.__dict__[name] = matrix.expand(batch_shape + event_shape)
        n = event_shape[-1]
        if not holds([(df, constraints.greater_than(n - 1))]):
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {n - 1}.")
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        if self._validate_args and bool((self.df <= n).any()):
            warn("Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.")
        self._unbroadcasted_scale_tril = self._factor(name, matrix)
        steps = arange(n, dtype=self.df.dtype, device=self.df.device)
        self._dist_chi2 = Chi2(self.df.unsqueeze(-1) - steps, validate_args=False)

    @property
    def arg_constraints(self):
        return {"covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
                "scale_tril": constraints.lower_cholesky, "df": constraints.greater_than(self._event_shape[-1] - 1)}

    def _expand_rest(self, new):
        new._dist_chi2 = self._dist_chi2.expand(new._batch_shape + self._event_shape[-1:])     # one for each row

    @property
    def _column(self):
        """The degrees of freedom, to multiply a matrix with."""
        return self.df.unsqueeze(-1).unsqueeze(-1)

    @property
    def mean(self): return self._column * self.covariance_matrix

    @property
    def mode(self):
        factor = self._column - self._event_shape[-1] - 1
        return where(factor > 0, factor, math.nan) * self.covariance_matrix

    @property
    def variance(self):
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self._column * (v.square() + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def rsample(self, sample_shape=(), max_try_correction=None):
        """Samples by Bartlett's decomposition. `max_try_correction` is PyTorch's and changes nothing here."""
        # PyTorch takes its first sample for a singular one and draws again; so do we, for the numbers of a seed.
        self._bartlett_sampling(sample_shape)
        return self._bartlett_sampling(sample_shape)

    def _bartlett_sampling(self, sample_shape):
        """Roots of chi-squared variables on the diagonal, normal ones below it; a matrix times its transpose."""
        n, sample_shape = self._event_shape[-1], Size(sample_shape)
        noise = self._dist_chi2.rsample(sample_shape).sqrt().diag_embed(dim1=-2, dim2=-1)
        shape = sample_shape + self._batch_shape + (n * (n - 1) // 2,)
        below = randn(shape, dtype=noise.dtype, device=noise.device)
        if n > 1:
            noise = noise + vec_to_tril_matrix(below, diag=-1)
        factor = self._unbroadcasted_scale_tril @ noise
        return factor @ factor.mT

    def _log_half_scale(self):
        """Half the logarithm of the determinant of twice the scale matrix."""
        return self._event_shape[-1] * math.log(2) / 2 + log_diagonal(self._unbroadcasted_scale_tril)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        nu, p = self.df, self._event_shape[-1]
        trace = cholesky_solve(value, self._unbroadcasted_scale_tril).diagonal(dim1=-2, dim2=-1).sum(-1)
        return (-nu * self._log_half_scale() - mvlgamma(nu / 2, p) + (nu - p - 1) / 2 * slogdet(value).logabsdet
                - trace / 2)

    def entropy(self):
        nu, p = self.df, self._event_shape[-1]
        return ((p + 1) * self._log_half_scale() + mvlgamma(nu / 2, p) - (nu - p - 1) / 2 * mvdigamma(nu / 2, p)
                + nu * p / 2)

    @property
    def _natural_params(self):
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x, y):
        p = self._event_shape[-1]
        half = y + (p + 1) / 2
        return half * (p * math.log(2) - slogdet(-2 * x).logabsdet) + mvlgamma(half, p)
