"""The negative binomial distribution."""
from ..autograd.modes import no_grad
from . import constraints
from .distribution import Distribution
from .functions import logsigmoid, poisson
from .gamma import Gamma
from .utils import ProbsOrLogits, broadcast_all, lazy_property

__all__ = ["NegativeBinomial"]


class NegativeBinomial(ProbsOrLogits, Distribution):
    """How many trials of probability `probs` (or log-odds `logits`) succeed before `total_count` of them fail."""

    arg_constraints = {"total_count": constraints.greater_than_eq(0),
                       "probs": constraints.half_open_interval(0.0, 1.0), "logits": constraints.real}
    support = constraints.nonnegative_integer
    _expands, _keeps = ("total_count", "probs", "logits"), ("_param_name",)

    def __init__(self, total_count, probs=None, logits=None, validate_args=None):
        name, given = self._given(probs, logits)
        self.total_count, self.__dict__[name] = broadcast_all(total_count, given)
        self.total_count = self.total_count.type_as(self._param)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def mean(self): return self.total_count * self.logits.exp()

    @property
    def mode(self): return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0)

    @property
    def variance(self): return self.mean / (-self.logits).sigmoid()

    @lazy_property
    def _gamma(self):
        """The distribution of the rates of which the counts are Poisson."""
        return Gamma(concentration=self.total_count, rate=(-self.logits).exp(), validate_args=False)

    def sample(self, sample_shape=()):
        with no_grad():
            return poisson(self._gamma.sample(sample_shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        n = self.total_count
        ways = (n + value).lgamma() - (1 + value).lgamma() - n.lgamma()
        ways = ways.masked_fill(n + value == 0, 0.0)       # infinity minus infinity, and the probability is 1
        return n * logsigmoid(-self.logits) + value * logsigmoid(self.logits) + ways
