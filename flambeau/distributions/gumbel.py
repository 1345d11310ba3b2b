"""The Gumbel distribution."""
import math

from ..base import dtypes
from . import constraints
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, ExpTransform
from .uniform import Uniform
from .utils import broadcast_all, euler_constant

__all__ = ["Gumbel"]


class Gumbel(TransformedDistribution):
    """The largest of very many samples: minus the logarithm of an exponential variable, moved and stretched."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    _expands = ("loc", "scale")

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = broadcast_all(loc, scale)
        info = dtypes.finfo(self.loc.dtype)
        ends = [self.loc.new_full(self.loc.shape, end) for end in (info.tiny, 1 - info.eps)]
        turned = AffineTransform(0, -self.scale.new_ones(self.scale.shape))
        super().__init__(Uniform(*ends, validate_args=False),
                         [ExpTransform().inv, turned, ExpTransform().inv, AffineTransform(self.loc, -self.scale)],
                         validate_args=validate_args)

    @property
    def mean(self): return self.loc + self.scale * euler_constant

    @property
    def mode(self): return self.loc

    @property
    def stddev(self): return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self): return self.stddev.square()

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        y = (self.loc - value) / self.scale
        return y - y.exp() - self.scale.log()

    def entropy(self):
        return self.scale.log() + (1 + euler_constant)
