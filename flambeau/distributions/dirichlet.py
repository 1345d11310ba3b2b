"""The Dirichlet distribution."""
from . import constraints
from .exp_family import ExponentialFamily
from .functions import one_hot, sample_dirichlet, where, xlogy

__all__ = ["Dirichlet"]


class Dirichlet(ExponentialFamily):
    """Points of the simplex: probabilities whose sum is 1. Samples carry the gradient of `concentration`.

    >>> m = torch.distributions.Dirichlet(torch.tensor([1.0, 2.0, 1.0]))
    >>> m.mean
    tensor([0.2500, 0.5000, 0.2500])
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True
    _expands = ("concentration",)

    def __init__(self, concentration, validate_args=None):
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    @property
    def mean(self): return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self):
        above = (self.concentration - 1).clamp(min=0)
        mode = above / above.sum(-1, True)
        corner = one_hot(mode.argmax(-1), mode.shape[-1]).to(mode.dtype)        # where all are below 1
        return where((self.concentration < 1).all(-1, True), corner, mode)

    @property
    def variance(self):
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.square() * (total + 1))

    def rsample(self, sample_shape=()):
        return sample_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        a = self.concentration
        return xlogy(a - 1, value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self):
        a = self.concentration
        total = a.sum(-1)
        return (a.lgamma().sum(-1) - total.lgamma() - (a.shape[-1] - total) * total.digamma()
                - ((a - 1) * a.digamma()).sum(-1))

    @property
    def _natural_params(self):
        return (self.concentration,)

    def _log_normalizer(self, x):
        return x.lgamma().sum(-1) - x.sum(-1).lgamma()
