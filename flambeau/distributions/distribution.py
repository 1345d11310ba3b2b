"""The base of all distributions: shapes, checks, and what follows from `rsample` and `variance`.

A sample has the shape `sample_shape + batch_shape + event_shape`: independent draws, then distributions that have
parameters of their own, then what makes one event together.

Note [One look]: the checks of `validate_args` look at the parameters' contents, which runs what was recorded so far.
So all parameters of a distribution are checked by one look, and a value passed to `log_prob` by another. Most regions
are checked on the arrays, where no operation has to be recorded. What was wrong is found out only after a check has
failed. With `validate_args=False` nothing is looked at.
"""
from ..autograd.modes import no_grad
from ..base.errors import warn
from ..base.spec import CPU, META, Size
from ..tensor.overrides import tensor_types
from ..tensor.tensor import Tensor
from ..tensor.verify import verify
from ..trace.finite import is_finite
from ..trace.recording.record import _local
from . import constraints
from .functions import must_hold
from .utils import lazy_property

__all__ = ["Distribution"]

NO_SHAPE = Size()
MAX_CHECKED_SINGLY = 4096     # elements


class Distribution:
    """A family of probability distributions, one for each position of `batch_shape`, over events of `event_shape`."""

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__
    _expands: tuple = ()      # names of the attributes that `expand` broadcasts: tensors or distributions
    _keeps: tuple = ()        # and of those that it takes over as they are

    @staticmethod
    def set_default_validate_args(value):
        """Turn the checks of parameters and values on or off, where a distribution does not say."""
        if value not in (True, False):
            raise ValueError(f"the default of validate_args is True or False, got {value!r}")
        Distribution._validate_args = value

    def __init__(self, batch_shape=NO_SHAPE, event_shape=NO_SHAPE, validate_args=None):
        self._batch_shape, self._event_shape = batch_shape, event_shape
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()

    # --- shapes ---------------------------------------------------------------------------------------------------

    @property
    def batch_shape(self):
        """The shape of the parameters, less what belongs to one event."""
        return self._batch_shape

    @property
    def event_shape(self):
        """The shape of one sample of one distribution."""
        return self._event_shape

    def expand(self, batch_shape, _instance=None):
        """The same distribution with its parameters broadcast to `batch_shape`; they share memory."""
        home = next((c for c in type(self).__mro__ if "_expands" in c.__dict__), Distribution)
        if home is Distribution:
            raise NotImplementedError(f"{type(self).__name__} does not say how to expand its parameters")
        new = self._get_checked_instance(home, _instance)
        batch_shape, own = Size(batch_shape), len(self._batch_shape)
        for name in self._expands:
            value = self.__dict__.get(name)
            if isinstance(value, Tensor):
                new.__dict__[name] = value.expand(batch_shape + value.shape[own:])
            elif value is not None:
                new.__dict__[name] = value.expand(batch_shape)
        for name in self._keeps:
            if name in self.__dict__:
                new.__dict__[name] = self.__dict__[name]
        new._batch_shape, new._event_shape = batch_shape, self._event_shape
        self._expand_rest(new)
        new._validate_args = self._validate_args        # last: pyro hands it on to the distribution inside
        return new

    def _expand_rest(self, new):
        """Give `new`, which has its shapes, what `_expands` and `_keeps` cannot name."""

    def _get_checked_instance(self, cls, _instance=None):
        """An empty object for `expand` to fill. A subclass with a constructor of its own has to expand itself."""
        if _instance is None and type(self).__init__ != cls.__init__:
            raise NotImplementedError(f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom "
                                      "__init__ method must also define a custom .expand() method.")
        return self.__new__(type(self)) if _instance is None else _instance

    def _extended_shape(self, sample_shape=()):
        """The shape of `sample_shape` samples."""
        return Size(sample_shape) + self._batch_shape + self._event_shape

    # --- what a distribution says about itself --------------------------------------------------------------------

    @property
    def arg_constraints(self):
        """What each parameter has to fulfil, by name."""
        raise _unsaid(self, "arg_constraints")

    @property
    def support(self):
        """The region in which samples lie."""
        raise _unsaid(self, "support")

    @property
    def mean(self):
        raise _unsaid(self, "mean")

    @property
    def mode(self):
        raise _unsaid(self, "mode")

    @property
    def variance(self):
        raise _unsaid(self, "variance")

    @property
    def stddev(self):
        return self.variance.sqrt()

    def rsample(self, sample_shape=()):
        """Samples that carry the gradient of the parameters."""
        raise _unsaid(self, "rsample")

    def log_prob(self, value):
        """The logarithm of the probability (density) of each event in `value`."""
        raise _unsaid(self, "log_prob")

    def cdf(self, value):
        """The probability of a sample up to `value`."""
        raise _unsaid(self, "cdf")

    def icdf(self, value):
        """The point up to which the probability is `value`."""
        raise _unsaid(self, "icdf")

    def enumerate_support(self, expand=True):
        """All values of a discrete distribution, along a new first dimension."""
        raise _unsaid(self, "enumerate_support")

    def entropy(self):
        raise _unsaid(self, "entropy")

    # --- what follows ---------------------------------------------------------------------------------------------

    def sample(self, sample_shape=()):
        """Samples without gradient: `sample_shape` of them for each distribution of the batch."""
        with no_grad():
            return self.rsample(sample_shape)

    def sample_n(self, n):
        """`n` samples; `sample((n,))` says the same."""
        warn("`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning)
        return self.sample(Size((n,)))

    def perplexity(self):
        """e to the entropy."""
        return self.entropy().exp()

    # --- checks; see Note [One look] ------------------------------------------------------------------------------

    def _check_parameters(self):
        try:
            asked = self.arg_constraints
        except NotImplementedError:
            warn(f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or initialize "
                 "the distribution with `validate_args=False` to turn off validation.")
            return
        checks = []
        for name, constraint in asked.items():
            if constraints.is_dependent(constraint) or name not in self.__dict__ \
                    and isinstance(getattr(type(self), name), lazy_property):
                continue                  # nothing to check, or not given but found from another parameter
            checks.append((getattr(self, name), constraint, name))
        if holds([check[:2] for check in checks]):
            return
        value, constraint, name = next(check for check in checks if not holds([check[:2]]))
        raise ValueError(f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of "
                         f"distribution {self!r} to satisfy the constraint {constraint!r}, but found invalid "
                         f"values:\n{value}")

    def _validate_sample(self, value):
        """Refuse a `value` whose shape or contents cannot be a sample."""
        if not isinstance(value, Tensor):
            raise ValueError(f"The value argument to log_prob must be a Tensor, got {type(value).__name__}")
        if value.shape[value.dim() - len(self._event_shape):] != self._event_shape:
            raise ValueError(f"The right-most size of value must match event_shape: {value.size()} vs "
                             f"{self._event_shape}.")
        expected = self._batch_shape + self._event_shape
        for i, j in zip(reversed(value.size()), reversed(expected), strict=False):
            if i != 1 and j != 1 and i != j:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {value.size()} vs "
                                 f"{expected}.")
        try:
            support = self.support
        except NotImplementedError:
            warn(f"{type(self)} does not define `support` to enable sample validation. Please initialize the "
                 "distribution with `validate_args=False` to turn off validation.")
            return
        if not holds([(value, support)]):
            raise ValueError(f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be "
                             f"within the support ({support!r}) of the distribution {self!r}, but found invalid "
                             f"values:\n{value}")

    def __repr__(self):
        parameters = [(name, self.__dict__[name]) for name in self.arg_constraints if name in self.__dict__]
        return f"{type(self).__name__}(" + ", ".join(
            f"{name}: {value if value.numel() == 1 else value.size()}" for name, value in parameters) + ")"


def holds(pairs):
    """Whether each value lies in its region, for pairs of the two, by one look at the contents."""
    if len(pairs) == 1 and _is_finite(*pairs[0]):
        return True
    values, regions, bounds = [], [], []
    for value, region in pairs:
        if not _on_arrays(region, value): # it computes with tensors, and what is looked at is the answer
            value, region = region.check(value), constraints.true
        if value._spec.device is not META:
            values.append(value)
            regions.append(region.region)
            bounds += region.bounds()
    try:
        verify(must_hold, (values, regions, bounds))
    except must_hold.refusal:             # the caller will say what was asked for
        return False
    return True


def _on_arrays(region, value):
    return region.on_arrays() and value.dim() >= region.event_dim         # else it has something to say about that


def _is_finite(value, region):
    """Whether `region` is all numbers, and `value` is small and surely holds nothing else. No operation of NumPy's is
    needed for that. Where checks are noted to be repeated (the `reader` of a trace), it is for `verify` to say."""
    if value.__class__ not in tensor_types or value._spec.device is not CPU or value._spec.numel > MAX_CHECKED_SINGLY \
            or _local.trace.reader is not None or region.region != "real" or not _on_arrays(region, value):
        return False
    contents = value._storage.value.ready()
    return contents.spec is value._spec and is_finite(contents)


def _unsaid(distribution, name):
    return NotImplementedError(f"{type(distribution).__name__} has no {name}")
