"""Student's t distribution."""
import math

from . import constraints
from .chi2 import Chi2
from .distribution import Distribution
from .functions import where
from .utils import _standard_normal, broadcast_all

__all__ = ["StudentT"]


class StudentT(Distribution):
    """A normal variable over the root of a chi-squared one, with `df` degrees of freedom, moved and stretched."""

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _expands = ("df", "loc", "scale", "_chi2")

    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None):
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df, validate_args=False)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self): return where(self.df <= 1, math.nan, self.loc)

    @property
    def mode(self): return self.loc

    @property
    def variance(self):
        finite = self.df > 2
        # A gradient goes through both sides of where: the one that is not taken has to be finite.
        df, scale = where(finite, self.df, 3.0), where(finite, self.scale, 1.0)
        return where(finite, scale.square() * df / (df - 2), where(self.df > 1, self.df.new_tensor(math.inf), math.nan))

    def rsample(self, sample_shape=()):
        x = _standard_normal(self._extended_shape(sample_shape), self.df.dtype, self.df.device)
        return self.loc + self.scale * (x * (self._chi2.rsample(sample_shape) / self.df).rsqrt())

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        more = 0.5 * (self.df + 1)
        log_norm = (self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi) + (0.5 * self.df).lgamma()
                    - more.lgamma())
        return -more * (((value - self.loc) / self.scale).square() / self.df).log1p() - log_norm

    def entropy(self):
        half, more = 0.5 * self.df, 0.5 * (self.df + 1)
        log_beta = half.lgamma() + math.lgamma(0.5) - more.lgamma()
        return self.scale.log() + more * (more.digamma() - half.digamma()) + 0.5 * self.df.log() + log_beta
