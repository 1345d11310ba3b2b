"""The distribution of transformed samples."""
from ..autograd.modes import no_grad
from . import constraints
from .distribution import Distribution
from .independent import Independent
from .transforms import ComposeTransform, Transform, deepened
from .utils import _sum_rightmost

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """Samples of `base_distribution` sent through `transforms`, one after the other.

    >>> base = torch.distributions.Normal(0.0, 1.0)
    >>> m = torch.distributions.TransformedDistribution(base, [torch.distributions.ExpTransform()])
    >>> m.log_prob(torch.tensor(1.0))
    tensor(-0.9189)
    """

    arg_constraints: dict = {}
    _expands = ()

    def __init__(self, base_distribution, transforms, validate_args=None):
        if isinstance(transforms, Transform):
            self.transforms = [transforms]
        elif isinstance(transforms, list):
            if not all(isinstance(t, Transform) for t in transforms):
                raise ValueError("transforms must be a Transform or a list of Transforms")
            self.transforms = transforms
        else:
            raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
        shape = base_distribution.batch_shape + base_distribution.event_shape
        whole = ComposeTransform(self.transforms)
        if len(shape) < whole.domain.event_dim:
            raise ValueError(f"base_distribution needs to have shape with size at least {whole.domain.event_dim}, but "
                             f"got {shape}.")
        # Parameters of a transform may have a larger batch than the base, or an event more dimensions.
        out_shape = whole.forward_shape(shape)
        in_shape = whole.inverse_shape(out_shape)
        if shape != in_shape:
            base_distribution = base_distribution.expand(in_shape[:len(in_shape) - len(base_distribution.event_shape)])
        more = whole.domain.event_dim - len(base_distribution.event_shape)
        self.base_dist = Independent(base_distribution, more) if more > 0 else base_distribution
        cut = len(out_shape) - whole.codomain.event_dim - max(-more, 0)
        super().__init__(out_shape[:cut], out_shape[cut:], validate_args=validate_args)

    def _expand_rest(self, new):
        shape = ComposeTransform(self.transforms).inverse_shape(new._batch_shape + self._event_shape)
        new.base_dist = self.base_dist.expand(shape[:len(shape) - len(self.base_dist.event_shape)])
        new.transforms = self.transforms

    @constraints.dependent_property(is_discrete=False)
    def support(self):
        if not self.transforms:
            return self.base_dist.support
        return deepened(self.transforms[-1].codomain, len(self._event_shape))

    @property
    def has_rsample(self): return self.base_dist.has_rsample

    def sample(self, sample_shape=()):
        with no_grad():
            return self._through(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape=()):
        return self._through(self.base_dist.rsample(sample_shape))

    def _through(self, x):
        for transform in self.transforms:
            x = transform(x)
        return x

    def log_prob(self, value):
        """The log-probability of what `value` came from, less the growth of volume on the way."""
        if self._validate_args:
            self._validate_sample(value)
        deep, total, y = len(self._event_shape), 0.0, value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            deep += transform.domain.event_dim - transform.codomain.event_dim
            total = total - _sum_rightmost(transform.log_abs_det_jacobian(x, y), deep - transform.domain.event_dim)
            y = x
        return total + _sum_rightmost(self.base_dist.log_prob(y), deep - len(self.base_dist.event_shape))

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._in_order(self.base_dist.cdf(value))

    def icdf(self, value):
        return self._through(self.base_dist.icdf(self._in_order(value)))

    def _in_order(self, probability):
        """A probability up to a point, seen through transforms that may turn the order round."""
        sign = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, int) and sign == 1:
            return probability
        return sign * (probability - 0.5) + 0.5
