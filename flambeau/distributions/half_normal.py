"""The half-normal distribution, and what it shares with the half-Cauchy one."""
import math

from . import constraints
from .functions import as_tensor, where
from .normal import Normal
from .transformed_distribution import TransformedDistribution
from .transforms import AbsTransform

__all__ = ["HalfNormal"]


class Half(TransformedDistribution):
    """The size of a variable that is symmetric around 0: twice its density on one side."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, base, validate_args):
        super().__init__(base, AbsTransform(), validate_args=validate_args)

    @property
    def scale(self): return self.base_dist.scale

    @property
    def mode(self): return self.scale.new_zeros(self.scale.shape)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        value = as_tensor(value, dtype=self.scale.dtype, device=self.scale.device)
        return where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, prob):
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self):
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(Half):
    """The size of a normal variable of mean 0 and standard deviation `scale`."""

    _expands = ()

    def __init__(self, scale, validate_args=None):
        super().__init__(Normal(0, scale, validate_args=False), validate_args)

    @property
    def mean(self): return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self): return self.scale.square() * (1 - 2 / math.pi)
