"""The geometric distribution."""
from ..autograd.modes import no_grad
from ..base import dtypes
from . import constraints
from .distribution import Distribution, holds
from .functions import binary_cross_entropy_with_logits, where
from .utils import ProbsOrLogits, broadcast_all

__all__ = ["Geometric"]


class Geometric(ProbsOrLogits, Distribution):
    """How many trials fail before the first success, of probability `probs` (or log-odds `logits`)."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer
    _expands, _keeps = ("probs", "logits"), ("_param_name",)

    def __init__(self, probs=None, logits=None, validate_args=None):
        name, given = self._given(probs, logits)
        self.__dict__[name], = broadcast_all(given)
        super().__init__(self._param.shape, validate_args=validate_args)
        if self._validate_args and probs is not None and not holds([(self.probs, constraints.positive)]):
            raise ValueError(f"Expected parameter probs (Tensor of shape {tuple(self.probs.shape)}) of distribution "
                             f"{self!r} to be positive but found invalid values:\n{self.probs[self.probs <= 0]}")

    @property
    def mean(self): return self.probs.reciprocal() - 1

    @property
    def mode(self): return self.probs.new_zeros(self.probs.shape)

    @property
    def variance(self): return (self.probs.reciprocal() - 1) / self.probs

    def sample(self, sample_shape=()):
        with no_grad():
            u = self.probs.new_empty(self._extended_shape(sample_shape)).uniform_()
            return (u.clamp(min=dtypes.finfo(u.dtype).tiny).log() / (-self.probs).log1p()).floor()

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        sure = (probs == 1) & (value == 0)                 # no failure where there can be none: 0 times -infinity
        return value * (-where(sure, 0.0, probs)).log1p() + self.probs.log()

    def entropy(self):
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs
