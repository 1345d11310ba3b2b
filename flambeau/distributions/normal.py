"""The normal distribution."""
import math

from ..autograd.modes import no_grad
from . import constraints
from .exp_family import ExponentialFamily
from .functions import normal
from .utils import _standard_normal, broadcast_all

__all__ = ["Normal"]


class Normal(ExponentialFamily):
    """The normal distribution around `loc` with standard deviation `scale`.

    >>> m = torch.distributions.Normal(0.0, 2.0)
    >>> m.log_prob(torch.tensor([0.0, 2.0]))
    tensor([-1.6121, -2.1121])
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _mean_carrier_measure = 0
    _expands = ("loc", "scale")

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self): return self.loc

    @property
    def mode(self): return self.loc

    @property
    def stddev(self): return self.scale

    @property
    def variance(self): return self.scale.square()

    def sample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return normal(self.loc.expand(shape), self.scale.expand(shape))

    def rsample(self, sample_shape=()):
        return self.loc + self.scale * _standard_normal(self._extended_shape(sample_shape), self.loc.dtype,
                                                        self.loc.device)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return -0.5 * ((value - self.loc) / self.scale).square() - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return 0.5 * (1 + ((value - self.loc) / (self.scale * math.sqrt(2))).erf())

    def icdf(self, value):
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self):
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()

    @property
    def _natural_params(self):
        return self.loc / self.scale.square(), -0.5 * self.scale.square().reciprocal()

    def _log_normalizer(self, x, y):
        return -0.25 * x.square() / y + 0.5 * (-math.pi / y).log()
