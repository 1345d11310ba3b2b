"""Exponential families: entropy from the gradient of the log-normaliser."""
from ..autograd.engine import grad
from .distribution import Distribution
from .utils import _sum_rightmost

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """Densities exp(<t(x), theta> - F(theta) + k(x)).

    `_natural_params` are theta, `_log_normalizer(*theta)` is F, and `_mean_carrier_measure` is the mean of k.
    """

    @property
    def _natural_params(self):
        raise NotImplementedError(f"{type(self).__name__} has no _natural_params")

    def _log_normalizer(self, *natural_params):
        raise NotImplementedError(f"{type(self).__name__} has no _log_normalizer")

    @property
    def _mean_carrier_measure(self):
        raise NotImplementedError(f"{type(self).__name__} has no _mean_carrier_measure")

    def entropy(self):
        """The entropy as a Bregman divergence: F(theta) - <theta, F'(theta)> - the mean of k."""
        theta = [p.detach().requires_grad_() for p in self._natural_params]
        normaliser = self._log_normalizer(*theta)
        total = normaliser - self._mean_carrier_measure
        for p, slope in zip(theta, grad(normaliser.sum(), theta, create_graph=True), strict=True):
            total = total - _sum_rightmost(p * slope, p.dim() - len(self.batch_shape))
        return total
