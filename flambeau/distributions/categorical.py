"""The categorical distribution."""
import math

from ..base import dtypes
from ..base.spec import Size
from . import constraints
from .distribution import Distribution
from .functions import arange, broadcast_tensors, index_of, multinomial
from .utils import ProbsOrLogits, normalised_logits

__all__ = ["Categorical"]


class Categorical(ProbsOrLogits, Distribution):
    """An index, in proportion to the last dimension of `probs`, or by unnormalised log-probabilities `logits`.

    >>> m = torch.distributions.Categorical(torch.tensor([1.0, 1.0, 2.0]))
    >>> m.probs
    tensor([0.2500, 0.2500, 0.5000])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    is_binary = False
    _expands, _keeps = ("probs", "logits"), ("_param_name", "_num_events")

    def __init__(self, probs=None, logits=None, validate_args=None):
        name, given = self._given(probs, logits)
        if given.dim() < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        self.__dict__[name] = given / given.sum(-1, keepdim=True) if name == "probs" else normalised_logits(given)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self): return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self): return self._param.new_full(self._extended_shape(), math.nan)

    @property
    def mode(self): return self.probs.argmax(-1)

    @property
    def variance(self): return self._param.new_full(self._extended_shape(), math.nan)

    def sample(self, sample_shape=()):
        probs = self.probs
        if not sample_shape and not self._batch_shape and (drawn := index_of(probs)) is not None:
            return drawn                                     # one number, as an agent wants it at every step
        sample_shape = Size(sample_shape)
        rows = probs.reshape(-1, self._num_events).detach()
        return multinomial(rows, sample_shape.numel(), True).T.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        value, logits = value.long().unsqueeze(-1), self.logits
        if value.shape[:-1] != logits.shape[:-1]:
            value, logits = broadcast_tensors(value, logits)
            value = value[..., :1]
        return logits.gather(-1, value).squeeze(-1)

    def entropy(self):
        # a logit of -infinity has probability 0, and 0 times -infinity should count nothing
        logits = self.logits.clamp(min=dtypes.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand=True):
        values = arange(self._num_events, dtype=dtypes.int64, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1,) + self._batch_shape) if expand else values
