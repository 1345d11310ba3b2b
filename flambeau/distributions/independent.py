"""Dimensions of the batch as part of one event."""
from . import constraints
from .distribution import Distribution
from .utils import _sum_rightmost

__all__ = ["Independent"]


class Independent(Distribution):
    """The base distribution with the last `reinterpreted_batch_ndims` dimensions of its batch as part of the event.

    >>> m = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(3), 1.0), 1)
    >>> m.log_prob(torch.zeros(3))
    tensor(-2.7568)
    """

    arg_constraints: dict = {}
    _expands, _keeps = (), ("reinterpreted_batch_ndims",)

    def __init__(self, base_distribution, reinterpreted_batch_ndims, validate_args=None):
        shape = base_distribution.batch_shape + base_distribution.event_shape
        own = len(base_distribution.batch_shape)
        if reinterpreted_batch_ndims > own:
            raise ValueError("Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual "
                             f"{reinterpreted_batch_ndims} vs {own}")
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, reinterpreted_batch_ndims
        cut = own - reinterpreted_batch_ndims
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def _expand_rest(self, new):
        new.base_dist = self.base_dist.expand(new._batch_shape + self._event_shape[:self.reinterpreted_batch_ndims])

    @property
    def has_rsample(self): return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self):
        return False if self.reinterpreted_batch_ndims > 0 else self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self):
        inner, more = self.base_dist.support, self.reinterpreted_batch_ndims
        return constraints.independent(inner, more) if more else inner

    @property
    def mean(self): return self.base_dist.mean

    @property
    def mode(self): return self.base_dist.mode

    @property
    def variance(self): return self.base_dist.variance

    def sample(self, sample_shape=()):  return self.base_dist.sample(sample_shape)
    def rsample(self, sample_shape=()): return self.base_dist.rsample(sample_shape)

    def log_prob(self, value):
        return _sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self):
        return _sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand=True):
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError("Enumeration over cartesian product is not implemented: one dimension of a joint "
                                      f"support would need all combinations, got {self.reinterpreted_batch_ndims} "
                                      "reinterpreted dimensions")
        return self.base_dist.enumerate_support(expand=expand)

    def __repr__(self):
        return f"{type(self).__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"
