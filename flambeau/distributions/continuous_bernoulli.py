"""The continuous Bernoulli distribution."""
import math

from ..autograd.modes import no_grad
from . import constraints
from .distribution import holds
from .exp_family import ExponentialFamily
from .functions import binary_cross_entropy_with_logits, rand, where
from .utils import ProbsOrLogits, broadcast_all, clamp_probs, lazy_property, logits_to_probs

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(ProbsOrLogits, ExponentialFamily):
    """Numbers in [0, 1] of density proportional to probs**x * (1 - probs)**(1 - x) (Loaiza-Ganem and Cunningham, 2019).

    At probs of a half the formulas divide zero by zero; between the two `lims` Taylor's series stand for them.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0
    _expands, _keeps = ("probs", "logits"), ("_param_name", "_lims")

    def __init__(self, probs=None, logits=None, lims=(0.499, 0.501), validate_args=None):
        name, given = self._given(probs, logits)
        given, = broadcast_all(given)
        self._lims = lims
        if name == "probs":
            # They are moved inside, where nothing is wrong with them; PyTorch looks before that only if it is told to.
            if validate_args and not holds([(given, constraints.unit_interval)]):
                raise ValueError(f"The parameter probs has invalid values: they must lie in [0, 1], got\n{given}")
            given = clamp_probs(given)
        self.__dict__[name] = given
        super().__init__(given.shape, validate_args=validate_args)

    @lazy_property
    def probs(self):
        """The probabilities, moved away from 0 and 1 like those that are given: there the formulas have no numbers."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _piecewise(self, formula, series):
        """`formula(probs)`, and between the limits `series(probs - 1/2)` in its place."""
        outside = (self.probs <= self._lims[0]) | (self.probs > self._lims[1])
        return where(outside, formula(where(outside, self.probs, self._lims[0])), series(self.probs - 0.5))

    def _log_norm(self):
        def formula(p):
            return ((-p).log1p() - p.log()).abs().log() - where(p <= 0.5, (-2 * where(p <= 0.5, p, 0.0)).log1p(),
                                                                (2 * where(p >= 0.5, p, 1.0) - 1).log())

        def series(off):
            square = off.square()
            return math.log(2) + (4 / 3 + 104 / 45 * square) * square
        return self._piecewise(formula, series)

    @property
    def mean(self):
        return self._piecewise(lambda p: p / (2 * p - 1) + ((-p).log1p() - p.log()).reciprocal(),
                               lambda off: 0.5 + (1 / 3 + 16 / 45 * off.square()) * off)

    @property
    def stddev(self): return self.variance.sqrt()

    @property
    def variance(self):
        return self._piecewise(lambda p: p * (p - 1) / (1 - 2 * p).square() + ((-p).log1p() - p.log()).pow(-2),
                               lambda off: 1 / 12 - (1 / 15 - 128 / 945 * off.square()) * off.square())

    def sample(self, sample_shape=()):
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=()):
        return self.icdf(rand(self._extended_shape(sample_shape), dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none") + self._log_norm()

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        inside = self._piecewise(lambda p: (p.pow(value) * (1 - p).pow(1 - value) + p - 1) / (2 * p - 1),
                                 lambda off: value)
        return where(value <= 0, 0.0, where(value >= 1, 1.0, inside))

    def icdf(self, value):
        return self._piecewise(lambda p: ((-p + value * (2 * p - 1)).log1p() - (-p).log1p()) / (p.log() - (-p).log1p()),
                               lambda off: value)

    def entropy(self):
        zero, one = (-self.probs).log1p(), self.probs.log()
        return self.mean * (zero - one) - self._log_norm() - zero

    @property
    def _natural_params(self):
        return (self.probs.logit(),)

    def _log_normalizer(self, x):
        """log((e^x - 1) / x)."""
        outside = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        far = where(outside, x, self._lims[0] - 0.5)
        square = x.square()
        return where(outside, (far.exp() - 1).abs().log() - far.abs().log(),
                     0.5 * x + square / 24 - square.square() / 2880)
