"""The binomial distribution."""
from ..autograd.modes import no_grad
from . import constraints
from .distribution import Distribution
from .functions import arange, binomial, logsigmoid
from .utils import ProbsOrLogits, broadcast_all

__all__ = ["Binomial"]


class Binomial(ProbsOrLogits, Distribution):
    """How many of `total_count` independent trials succeed, each with probability `probs` (or log-odds `logits`)."""

    arg_constraints = {"total_count": constraints.nonnegative_integer, "probs": constraints.unit_interval,
                       "logits": constraints.real}
    has_enumerate_support = True
    _expands, _keeps = ("total_count", "probs", "logits"), ("_param_name",)

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        name, given = self._given(probs, logits)
        self.total_count, self.__dict__[name] = broadcast_all(total_count, given)
        self.total_count = self.total_count.type_as(self._param)
        super().__init__(self._param.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self): return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self): return self.total_count * self.probs

    @property
    def mode(self): return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self): return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        n = self.total_count
        ways = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return ways + value * self.logits + n * logsigmoid(-self.logits)

    def entropy(self):
        """The entropy, summed over all counts; they must be the same for the whole batch."""
        self._same_count("entropy")
        each = self.log_prob(self.enumerate_support(False))
        return -(each.exp() * each).sum(0)

    def enumerate_support(self, expand=True):
        n = self._same_count("enumerate_support")
        values = arange(1 + n, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1,) + self._batch_shape) if expand else values

    def _same_count(self, what):
        n = int(self.total_count.max())
        if n != self.total_count.min():
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{what}`.")
        return n
