"""The categorical distribution over one-hot vectors."""
from ..base.spec import Size
from . import constraints
from .categorical import Categorical
from .distribution import Distribution
from .functions import eye, one_hot

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]


class OverCategories(Distribution):
    """What a distribution over vectors takes from the categorical one it is made of."""

    @property
    def probs(self): return self._categorical.probs

    @property
    def logits(self): return self._categorical.logits

    @property
    def _param(self): return self._categorical._param

    @property
    def param_shape(self): return self._categorical.param_shape

    def _new(self, *args, **kwargs):
        return self._categorical._new(*args, **kwargs)


class OneHotCategorical(OverCategories):
    """Vectors with a 1 at the index that `Categorical(probs, logits)` draws."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.one_hot
    has_enumerate_support = True
    _expands = ("_categorical",)

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._categorical = Categorical(probs, logits, validate_args=False)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    @property
    def mean(self): return self.probs

    @property
    def mode(self): return self._hot(self.probs.argmax(-1))

    @property
    def variance(self): return self.probs * (1 - self.probs)

    def _hot(self, index):
        return one_hot(index, self._event_shape[0]).to(self._param.dtype)

    def sample(self, sample_shape=()):
        return self._hot(self._categorical.sample(Size(sample_shape)))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self):
        return self._categorical.entropy()

    def enumerate_support(self, expand=True):
        n = self._event_shape[0]
        values = eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.view((n,) + (1,) * len(self._batch_shape) + (n,))
        return values.expand((n,) + self._batch_shape + (n,)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot samples that carry the gradient of the probabilities, as if they were these (Bengio et al., 2013)."""

    has_rsample = True

    def rsample(self, sample_shape=()):
        return self.sample(sample_shape) + (self.probs - self.probs.detach())
