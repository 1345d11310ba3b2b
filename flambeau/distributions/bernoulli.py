"""The Bernoulli distribution."""
import math

from ..autograd.modes import no_grad
from . import constraints
from .exp_family import ExponentialFamily
from .functions import arange, bernoulli, binary_cross_entropy_with_logits, where
from .utils import ProbsOrLogits, broadcast_all

__all__ = ["Bernoulli"]


class Bernoulli(ProbsOrLogits, ExponentialFamily):
    """1 with probability `probs`, else 0; or given by the log-odds `logits`.

    >>> torch.distributions.Bernoulli(torch.tensor([0.25])).variance
    tensor([0.1875])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0
    _expands, _keeps = ("probs", "logits"), ("_param_name",)

    def __init__(self, probs=None, logits=None, validate_args=None):
        name, given = self._given(probs, logits)
        self.__dict__[name], = broadcast_all(given)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def mean(self): return self.probs

    @property
    def mode(self):
        return where(self.probs == 0.5, math.nan, (self.probs >= 0.5).to(self.probs.dtype))

    @property
    def variance(self): return self.probs * (1 - self.probs)

    def sample(self, sample_shape=()):
        with no_grad():
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self):
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand=True):
        values = arange(2, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1,) + self._batch_shape) if expand else values

    @property
    def _natural_params(self):
        return (self.probs.logit(),)

    def _log_normalizer(self, x):
        return x.exp().log1p()
