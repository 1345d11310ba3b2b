"""The Kumaraswamy distribution."""
import math

from . import constraints
from .functions import where
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .uniform import Uniform
from .utils import broadcast_all, euler_constant

__all__ = ["Kumaraswamy"]


class Kumaraswamy(TransformedDistribution):
    """Numbers in [0, 1], much like a beta variable; the probability up to x is 1 - (1 - x**c1)**c0."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True
    _expands = ("concentration1", "concentration0")

    def __init__(self, concentration1, concentration0, validate_args=None):
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        zeros = self.concentration0.new_zeros(self.concentration0.shape)
        super().__init__(Uniform(zeros, zeros + 1, validate_args=False),
                         [PowerTransform(self.concentration0.reciprocal()), AffineTransform(1.0, -1.0),
                          PowerTransform(self.concentration1.reciprocal())], validate_args=validate_args)

    def _moment(self, n):
        """The mean of x**n."""
        a, b = 1 + n / self.concentration1, self.concentration0
        return b * (a.lgamma() + b.lgamma() - (a + b).lgamma()).exp()

    @property
    def mean(self): return self._moment(1)

    @property
    def mode(self):
        a, b = self.concentration1, self.concentration0
        return where((a < 1) | (b < 1), math.nan, ((a - 1) / (a * b - 1)).pow(a.reciprocal()))

    @property
    def variance(self): return self._moment(2) - self._moment(1).square()

    def entropy(self):
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1).digamma() + euler_constant
        return 1 - b.reciprocal() + (1 - a.reciprocal()) * harmonic - a.log() - b.log()
