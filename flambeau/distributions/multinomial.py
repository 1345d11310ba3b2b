"""The multinomial distribution."""
import math

from ..base.spec import Size
from . import constraints
from .binomial import Binomial
from .categorical import Categorical
from .functions import where
from .one_hot_categorical import OverCategories
from .utils import broadcast_all

__all__ = ["Multinomial"]


class Multinomial(OverCategories):
    """How often each category comes in `total_count` draws of `Categorical(probs, logits)`."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    _expands, _keeps = ("_categorical",), ("total_count",)

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported: it is one int for the whole batch, "
                                      f"got {type(total_count).__name__}")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits, validate_args=False)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self): return constraints.multinomial(self.total_count)

    @property
    def mean(self): return self.probs * self.total_count

    @property
    def variance(self): return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape=()):
        drawn = self._categorical.sample(Size((self.total_count,)) + Size(sample_shape)).movedim(0, -1)
        counts = self._param.new_zeros(self._extended_shape(sample_shape))
        return counts.scatter_add_(-1, drawn, counts.new_ones(drawn.shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        logits = where((value == 0) & (logits == -math.inf), 0.0, logits)
        return (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1) + (logits * value).sum(-1)

    def entropy(self):
        n = self.total_count
        each = Binomial(n, probs=self.probs, validate_args=False)
        counts = each.enumerate_support(False)[1:]
        rest = (each.log_prob(counts).exp() * (counts + 1).lgamma()).sum((0, -1))
        return n * self._categorical.entropy() - math.lgamma(n + 1) + rest
