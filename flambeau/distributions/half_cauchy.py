"""The half-Cauchy distribution."""
import math

from .cauchy import Cauchy
from .half_normal import Half

__all__ = ["HalfCauchy"]


class HalfCauchy(Half):
    """The size of a Cauchy variable around 0 with half width `scale`."""

    _expands = ()

    def __init__(self, scale, validate_args=None):
        super().__init__(Cauchy(0, scale, validate_args=False), validate_args)

    @property
    def mean(self): return self.scale.new_full(self._extended_shape(), math.inf)

    @property
    def variance(self): return self.base_dist.variance
