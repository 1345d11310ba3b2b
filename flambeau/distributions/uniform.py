"""The uniform distribution over an interval."""
import math

from . import constraints
from .distribution import Distribution
from .functions import rand
from .utils import broadcast_all

__all__ = ["Uniform"]


class Uniform(Distribution):
    """Every number of [low, high) alike.

    >>> torch.distributions.Uniform(0.0, 4.0).entropy()
    tensor(1.3863)
    """

    has_rsample = True
    _expands = ("low", "high")

    def __init__(self, low, high, validate_args=None):
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)

    @property
    def arg_constraints(self):
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self): return constraints.interval(self.low, self.high)

    @property
    def mean(self): return (self.high + self.low) / 2

    @property
    def mode(self): return math.nan * self.high

    @property
    def stddev(self): return (self.high - self.low) / 12**0.5

    @property
    def variance(self): return (self.high - self.low).square() / 12

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        return self.low + rand(shape, dtype=self.low.dtype, device=self.low.device) * (self.high - self.low)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        inside = (self.low <= value) & (self.high > value)
        return inside.type_as(self.low).log() - (self.high - self.low).log()

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value):
        return value * (self.high - self.low) + self.low

    def entropy(self):
        return (self.high - self.low).log()
