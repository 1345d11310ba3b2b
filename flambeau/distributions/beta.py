"""The beta distribution."""
from . import constraints
from .dirichlet import Dirichlet
from .exp_family import ExponentialFamily
from .functions import stack
from .utils import broadcast_all

__all__ = ["Beta"]


class Beta(ExponentialFamily):
    """Numbers in [0, 1] with a density that goes like x**(concentration1 - 1) * (1 - x)**(concentration0 - 1).

    It is the first component of a Dirichlet distribution of two.
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True
    _expands = ("_dirichlet",)

    def __init__(self, concentration1, concentration0, validate_args=None):
        both = stack(broadcast_all(concentration1, concentration0), -1)
        self._dirichlet = Dirichlet(both, validate_args=False)
        super().__init__(self._dirichlet.batch_shape, validate_args=validate_args)

    @property
    def concentration1(self): return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self): return self._dirichlet.concentration[..., 1]

    @property
    def mean(self): return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self): return self._dirichlet.mode[..., 0]

    @property
    def variance(self):
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def rsample(self, sample_shape=()):
        return self._dirichlet.rsample(sample_shape).select(-1, 0)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return self._dirichlet.log_prob(stack([value, 1 - value], -1))

    def entropy(self):
        return self._dirichlet.entropy()

    @property
    def _natural_params(self):
        return self.concentration1, self.concentration0

    def _log_normalizer(self, x, y):
        return x.lgamma() + y.lgamma() - (x + y).lgamma()
