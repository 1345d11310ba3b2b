"""Where values may lie: the supports of distributions and what their parameters have to fulfil.

A constraint's `check(value)` gives a tensor of booleans, one for each event. `event_dim` says how many of the last
dimensions make one event.

>>> from flambeau.distributions import constraints
>>> constraints.unit_interval.check(torch.tensor([0.5, 1.5]))
tensor([ True, False])
"""
from numbers import Number

from ..base import dtypes
from ..base.regions import inside
from .functions import cat as join, cholesky_ex, eigvalsh, full, stack as pile

__all__ = ["Constraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than",
           "greater_than_eq", "independent", "integer_interval", "interval", "half_open_interval", "is_dependent",
           "less_than", "lower_cholesky", "lower_triangular", "MixtureSameFamilyConstraint", "multinomial",
           "nonnegative", "nonnegative_integer", "one_hot", "positive", "positive_semidefinite", "positive_definite",
           "positive_integer", "real", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval"]


class Constraint:
    """A region of values. `is_discrete`: whether it is a set of separate points."""

    is_discrete = False
    event_dim = 0
    shown = ()                # names of the attributes that its repr says
    region = None             # its name in base/regions.py, if it is one of those; `shown` are its bounds then

    def check(self, value):
        """Whether each event of `value` lies in the region."""
        if self.region is None:
            raise NotImplementedError(f"{type(self).__name__} does not say how to check a value")
        return inside(self.region, value, self.bounds())

    def bounds(self):
        """The bounds of its `region`."""
        return [getattr(self, name) for name in self.shown]

    def on_arrays(self):
        """Whether it is a `region` with numbers for bounds: arrays can be checked, which saves recording it."""
        return self.region is not None and type(self).check is Constraint.check \
            and all(isinstance(bound, Number) for bound in self.bounds())

    def __repr__(self):
        shown = ", ".join(f"{name}={getattr(self, name)}" for name in self.shown)
        return f"{type(self).__name__.removeprefix('_')}({shown})"


# --- regions that depend on something -----------------------------------------------------------------------------


class _Dependent(Constraint):
    """A region that only an instance, with its parameters, can tell."""

    def __init__(self, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self):
        return self._known("is_discrete")

    @property
    def event_dim(self):
        return self._known("event_dim")

    def _known(self, name):
        value = self.__dict__["_" + name]
        if value is NotImplemented:
            raise NotImplementedError(f".{name} cannot be determined statically")
        return value

    def __call__(self, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        """The same with some of it known: `dependent(event_dim=1)`."""
        return _Dependent(is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
                          event_dim=self._event_dim if event_dim is NotImplemented else event_dim)

    def check(self, x):
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint):
    """Whether only an instance can tell the region."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """A property that gives a constraint; read from the class it is a dependent constraint itself."""

    def __init__(self, fn=None, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        property.__init__(self, fn)
        _Dependent.__init__(self, is_discrete=is_discrete, event_dim=event_dim)

    def __call__(self, fn):
        """As a decorator with arguments: `@dependent_property(event_dim=1)`."""
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _IndependentConstraint(Constraint):
    """The base constraint over the last `reinterpreted_batch_ndims` dimensions together."""

    def __init__(self, base_constraint, reinterpreted_batch_ndims):
        if not isinstance(base_constraint, Constraint):
            raise AssertionError(f"base_constraint must be a Constraint, got {type(base_constraint).__name__}")
        if not isinstance(reinterpreted_batch_ndims, int) or reinterpreted_batch_ndims < 0:
            raise AssertionError(f"reinterpreted_batch_ndims must be an int >= 0, got {reinterpreted_batch_ndims!r}")
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims

    @property
    def is_discrete(self):
        return self.base_constraint.is_discrete

    @property
    def event_dim(self):
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    @property                             # where all are to lie inside, it does not matter what makes one event
    def region(self):
        return self.base_constraint.region

    def bounds(self):
        return self.base_constraint.bounds()

    def on_arrays(self):
        return type(self).check is _IndependentConstraint.check and self.base_constraint.on_arrays()

    def check(self, value):
        good = self.base_constraint.check(value)
        if good.ndim < self.reinterpreted_batch_ndims:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.ndim}")
        for _ in range(self.reinterpreted_batch_ndims):
            good = good.all(-1)
        return good

    def __repr__(self):
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """The support of a mixture: where a value lies in the support of every component."""

    def __init__(self, base_constraint):
        if not isinstance(base_constraint, Constraint):
            raise AssertionError(f"base_constraint must be a Constraint, got {type(base_constraint).__name__}")
        self.base_constraint = base_constraint

    @property
    def is_discrete(self):
        return self.base_constraint.is_discrete

    @property
    def event_dim(self):
        return self.base_constraint.event_dim

    def check(self, value):
        if value.dim() < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        good = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        return good.all(-1)

    def __repr__(self):
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"


# --- numbers ------------------------------------------------------------------------------------------------------


class _Real(Constraint):
    region = "real"


class _True(Constraint):
    region = "true"


class _Boolean(Constraint):
    is_discrete = True
    region = "boolean"


class _Below(Constraint):
    """With an upper bound only."""

    shown = ("upper_bound",)

    def __init__(self, upper_bound):
        self.upper_bound = upper_bound


class _Above(Constraint):
    """With a lower bound only."""

    shown = ("lower_bound",)

    def __init__(self, lower_bound):
        self.lower_bound = lower_bound


class _Between(Constraint):
    """With both bounds."""

    shown = ("lower_bound", "upper_bound")

    def __init__(self, lower_bound, upper_bound):
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class _GreaterThan(_Above):
    region = "greater_than"


class _GreaterThanEq(_Above):
    region = "greater_than_eq"


class _LessThan(_Below):
    region = "less_than"


class _Interval(_Between):
    region = "interval"


class _HalfOpenInterval(_Between):
    region = "half_open_interval"


class _IntegerInterval(_Between):
    is_discrete = True
    region = "integer_interval"


class _IntegerLessThan(_Below):
    is_discrete = True
    region = "integer_less_than"


class _IntegerGreaterThan(_Above):
    is_discrete = True
    region = "integer_greater_than"


# --- vectors ------------------------------------------------------------------------------------------------------


class _Simplex(Constraint):
    event_dim = 1
    region = "simplex"


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1
    region = "one_hot"


class _Multinomial(_Below):
    is_discrete = True
    event_dim = 1
    region = "multinomial"
    def check(self, x): return inside(self.region, x, self.bounds())          # PyTorch's name for the value
    def __repr__(self): return "Multinomial()"


# --- matrices -----------------------------------------------------------------------------------------------------


class _Square(Constraint):
    event_dim = 2

    def check(self, value):
        return full(value.shape[:-2], value.shape[-2] == value.shape[-1], dtype=dtypes.bool, device=value.device)


class _Symmetric(_Square):
    def check(self, value):
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return value.isclose(value.mT, atol=1e-6).all(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value):
        symmetric = super().check(value)
        return symmetric & (eigvalsh(value) >= 0).all(-1) if value.shape[-2] == value.shape[-1] else symmetric


class _PositiveDefinite(_Symmetric):
    def check(self, value):
        symmetric = super().check(value)
        return symmetric & (cholesky_ex(value).info == 0) if value.shape[-2] == value.shape[-1] else symmetric


class _LowerTriangular(Constraint):
    event_dim = 2
    def check(self, value): return (value.tril() == value).all(-1).all(-1)


class _LowerCholesky(_LowerTriangular):
    def check(self, value): return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    def check(self, value):
        tolerance = dtypes.finfo(value.dtype).eps * value.shape[-1] * 10
        rows = (value.detach().square().sum(-1).sqrt() - 1).abs() <= tolerance
        return rows.all(-1) & super().check(value)


# --- several at once ----------------------------------------------------------------------------------------------


class _Several(Constraint):
    """One constraint for each part of a value along `dim`."""

    def __init__(self, cseq, dim):
        self.cseq, self.dim = list(cseq), dim
        if not all(isinstance(c, Constraint) for c in self.cseq):
            raise AssertionError("all elements of cseq must be Constraint instances")

    @property
    def is_discrete(self):
        return any(c.is_discrete for c in self.cseq)

    def _dim(self, value):
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} out of range for value with {value.dim()} dimensions")
        return self.dim


class _Cat(_Several):
    """Constraints on stretches of the given lengths, one after the other."""

    def __init__(self, cseq, dim=0, lengths=None):
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(f"lengths ({len(self.lengths)}) and cseq ({len(self.cseq)}) must have the same length")

    @property
    def event_dim(self):
        return max(c.event_dim for c in self.cseq)

    def check(self, value):
        parts = value.split(self.lengths, self._dim(value))
        return join([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim)


class _Stack(_Several):
    """Constraints on slices."""

    def __init__(self, cseq, dim=0):
        super().__init__(cseq, dim)

    @property
    def event_dim(self):
        deepest = max(c.event_dim for c in self.cseq)
        return deepest + 1 if self.dim + deepest < 0 else deepest

    def check(self, value):
        slices = value.unbind(self._dim(value))
        return pile([c.check(part) for c, part in zip(self.cseq, slices, strict=True)], self.dim)


true = _True()                # of what was checked already
dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
