"""The generalized Pareto distribution."""
import math

from . import constraints
from .distribution import Distribution
from .functions import rand, where
from .utils import broadcast_all

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """What samples of a heavy (concentration > 0), exponential (0) or bounded (< 0) tail have in excess of `loc`."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True
    _expands = ("loc", "scale", "concentration")

    def __init__(self, loc, scale, concentration, validate_args=None):
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        upper = where(self.concentration < 0, self.loc - self.scale / self.concentration, math.inf)
        return constraints.interval(self.loc, upper)

    @property
    def mean(self):
        finite = self.concentration < 1
        return where(finite, self.loc + self.scale / (1 - where(finite, self.concentration, 0.0)), math.nan)

    @property
    def mode(self): return self.loc

    @property
    def variance(self):
        finite = self.concentration < 0.5
        c = where(finite, self.concentration, 0.0)                     # a gradient goes through both sides
        return where(finite, self.scale.square() / ((1 - c).square() * (1 - 2 * c)), math.nan)

    def _tail(self):
        """Where the concentration is as good as 0, and the concentration with 1 in its place there."""
        exponential = self.concentration.isclose(self.concentration.new_zeros(()))
        return exponential, where(exponential, 1.0, self.concentration)

    def _z(self, x): return (x - self.loc) / self.scale

    def rsample(self, sample_shape=()):
        return self.icdf(rand(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        z, (exponential, c) = self._z(value), self._tail()
        return where(exponential, -z, -(1 + c.reciprocal()) * (c * z).log1p()) - self.scale.log()

    def log_survival_function(self, value):
        """The logarithm of the probability of more than `value`."""
        if self._validate_args:
            self._validate_sample(value)
        z, (exponential, c) = self._z(value), self._tail()
        return where(exponential, -z, -(c * z).log1p() / c)

    def log_cdf(self, value):
        """The logarithm of `cdf`."""
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value):
        return self.log_cdf(value).exp()

    def icdf(self, value):
        exponential, c = self._tail()
        log_rest = (-value).log1p()
        return where(exponential, self.loc - self.scale * log_rest, self.loc + self.scale * (-c * log_rest).expm1() / c)

    def entropy(self):
        return self.scale.log() + self.concentration + 1
