"""The von Mises distribution, normal on the circle."""
import math

from ..autograd.modes import no_grad
from ..base import dtypes
from ..base.spec import Size
from . import constraints
from .distribution import Distribution
from .functions import i0e, i1e, rand, where, zeros
from .utils import broadcast_all, lazy_property

__all__ = ["VonMises"]


class VonMises(Distribution):
    """Angles around `loc`, the closer the larger `concentration` is; samples lie in [-pi, pi)."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False
    _expands = ("loc", "concentration")

    def __init__(self, loc, concentration, validate_args=None):
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self): return self.loc

    @property
    def mode(self): return self.loc

    @lazy_property
    def variance(self):
        """The circular variance, between 0 and 1."""
        return 1 - i1e(self.concentration) / i0e(self.concentration)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        # I0 with its exponential growth taken out, and into the cosine
        return (self.concentration * ((value - self.loc).cos() - 1) - math.log(2 * math.pi)
                - i0e(self.concentration).log())

    @lazy_property
    def _proposal_r(self):
        """The parameter of the wrapped Cauchy distribution that samples are proposed from, in float64."""
        kappa = self.concentration.double()
        tau = 1 + (1 + 4 * kappa.square()).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * kappa)
        return where(kappa < 1e-5, kappa.reciprocal() + kappa, (1 + rho.square()) / (2 * rho))

    def sample(self, sample_shape=()):
        """Rejection from a wrapped Cauchy distribution (Best and Fisher, 1979), until all positions have a sample."""
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return self._accepted(shape)

    def _accepted(self, shape):
        """Samples of that shape."""
        loc, kappa, r = (t.double().expand(shape) for t in (self.loc, self.concentration, self._proposal_r))
        x = zeros(shape, dtype=dtypes.float64, device=loc.device)
        done = zeros(shape, dtype=dtypes.bool, device=loc.device)
        while not done.all():
            u1, u2, u3 = rand(Size((3,)) + shape, dtype=dtypes.float64, device=loc.device).unbind()
            z = (math.pi * u1).cos()
            f = (1 + r * z) / (r + z)
            c = kappa * (r - f)
            accept = (c * (2 - c) - u2 > 0) | ((c / u2).log() + 1 - c >= 0)
            x = where(accept, (u3 - 0.5).sign() * f.acos(), x)
            done = done | accept
        return ((x + math.pi + loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)
