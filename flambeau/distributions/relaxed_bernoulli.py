"""The relaxed Bernoulli distribution."""
from . import constraints
from .distribution import Distribution
from .functions import rand
from .transformed_distribution import TransformedDistribution
from .transforms import SigmoidTransform
from .utils import ProbsOrLogits, broadcast_all, clamp_probs

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


class LogitRelaxedBernoulli(ProbsOrLogits, Distribution):
    """The log-odds of a relaxed Bernoulli variable (Maddison, Mnih and Teh, 2016)."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    _expands, _keeps = ("probs", "logits"), ("_param_name", "temperature")

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self.temperature = temperature
        name, given = self._given(probs, logits)
        self.__dict__[name], = broadcast_all(given)
        super().__init__(self._param.shape, validate_args=validate_args)

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        uniforms = clamp_probs(rand(shape, dtype=probs.dtype, device=probs.device))
        return (uniforms.log() - (-uniforms).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        off = logits - value * self.temperature
        return self.temperature.log() + off - 2 * off.exp().log1p()


class Tempered(TransformedDistribution):
    """What a relaxed distribution takes from the one on log-odds or logarithms that it transforms."""

    @property
    def temperature(self): return self.base_dist.temperature

    @property
    def logits(self): return self.base_dist.logits

    @property
    def probs(self): return self.base_dist.probs


class RelaxedBernoulli(Tempered):
    """Numbers in (0, 1) that come close to Bernoulli samples for a small `temperature` and carry the gradient."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _expands = ()

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        base = LogitRelaxedBernoulli(temperature, probs, logits, validate_args=False)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)


