"""Mixtures of distributions of one family."""
from ..autograd.modes import no_grad
from ..base.spec import Size
from . import constraints
from .categorical import Categorical
from .constraints import MixtureSameFamilyConstraint
from .distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A component picked by `mixture_distribution` out of the last dimension of the batch of `component_distribution`.

    >>> D = torch.distributions
    >>> m = D.MixtureSameFamily(D.Categorical(torch.tensor([0.5, 0.5])), D.Normal(torch.tensor([-1.0, 1.0]), 1.0))
    >>> m.mean, m.variance
    (tensor(0.), tensor(2.))
    """

    arg_constraints: dict = {}
    has_rsample = False
    _expands, _keeps = (), ("_num_component", "_event_ndims")

    def __init__(self, mixture_distribution, component_distribution, validate_args=None):
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError("The Mixture distribution needs to be an instance of torch.distributions.Categorical, got "
                             f"{type(mixture_distribution).__name__}")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution needs to be an instance of torch.distributions.Distribution, "
                             f"got {type(component_distribution).__name__}")
        batch = component_distribution.batch_shape[:-1]
        own = mixture_distribution.batch_shape
        for size, other in zip(reversed(own), reversed(batch), strict=False):
            if size != 1 and other != 1 and size != other:
                raise ValueError(f"`mixture_distribution.batch_shape` ({own}) is not compatible with "
                                 f"`component_distribution.batch_shape`({batch})")
        n, there = mixture_distribution.logits.shape[-1], component_distribution.batch_shape[-1]
        if n != there:
            raise ValueError(f"`mixture_distribution component` ({n}) does not equal "
                             f"`component_distribution.batch_shape[-1]` ({there})")
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        self._num_component, self._event_ndims = n, len(component_distribution.event_shape)
        super().__init__(batch, component_distribution.event_shape, validate_args=validate_args)

    def _expand_rest(self, new):
        new._component_distribution = self._component_distribution.expand(new._batch_shape + (self._num_component,))
        new._mixture_distribution = self._mixture_distribution.expand(new._batch_shape)

    @constraints.dependent_property
    def support(self): return MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self): return self._mixture_distribution

    @property
    def component_distribution(self): return self._component_distribution

    def _weighted(self, values):
        """The mean over the components of `values`, one for each."""
        probs = self._mixture_distribution.probs
        probs = probs.reshape(probs.shape + (1,) * self._event_ndims)
        return (probs * values).sum(-1 - self._event_ndims)

    @property
    def mean(self): return self._weighted(self._component_distribution.mean)

    @property
    def variance(self):
        within = self._weighted(self._component_distribution.variance)
        return within + self._weighted((self._component_distribution.mean - self._pad(self.mean)).square())

    def cdf(self, x):
        return (self._component_distribution.cdf(self._pad(x)) * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, x):
        if self._validate_args:
            self._validate_sample(x)
        each = self._component_distribution.log_prob(self._pad(x))
        return (each + self._mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def sample(self, sample_shape=()):
        sample_shape = Size(sample_shape)
        with no_grad():
            picked = self._mixture_distribution.sample(sample_shape)
            drawn = self._component_distribution.sample(sample_shape)
            dim = len(sample_shape) + len(self._batch_shape)
            picked = picked.reshape(picked.shape + (1,) * (1 + self._event_ndims))
            picked = picked.expand(drawn.shape[:dim] + (1,) + self._event_shape)
            return drawn.gather(dim, picked).squeeze(dim)

    def _pad(self, value):
        """A place for the components before the event."""
        return value.unsqueeze(-1 - self._event_ndims)

    def __repr__(self):
        return f"MixtureSameFamily(\n  {self._mixture_distribution},\n  {self._component_distribution})"
