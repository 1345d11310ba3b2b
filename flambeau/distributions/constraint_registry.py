"""From a constraint to a transform of unconstrained numbers into its region.

`biject_to(constraint)` is bijective, so that densities can be carried over. `transform_to(constraint)` need not be: it
may be simpler, or better to optimise through.

>>> from flambeau.distributions import constraints, transform_to
>>> transform_to(constraints.positive)(torch.tensor([-1.0, 0.0]))
tensor([0.3679, 1.0000])
"""
from numbers import Number

from . import constraints, transforms

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Functions from constraints to transforms, by the constraint's class."""

    def __init__(self):
        self._registry = {}

    def register(self, constraint, factory=None):
        """Let `factory(constraint)` make the transform for a class of constraints; also a decorator."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        if isinstance(constraint, constraints.Constraint):
            constraint = type(constraint)
        if not isinstance(constraint, type) or not issubclass(constraint, constraints.Constraint):
            raise TypeError("Expected constraint to be either a Constraint subclass or instance, but got "
                            f"{constraint}")
        self._registry[constraint] = factory
        return factory

    def __call__(self, constraint):
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints; register a factory "
                                      "for them")
        return factory(constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()
_IDENTITY = transforms.identity_transform


def _both(*classes):
    """A decorator: the factory serves both registries, for these constraints."""
    def register(factory):
        for cls in classes:
            biject_to.register(cls, factory)
            transform_to.register(cls, factory)
        return factory
    return register


@_both(constraints.real)
def _to_real(constraint):
    return _IDENTITY


@_both(constraints.greater_than, constraints.greater_than_eq)
def _to_greater_than(constraint):
    shift = transforms.AffineTransform(constraint.lower_bound, 1)
    return transforms.ComposeTransform([transforms.ExpTransform(), shift])


@_both(constraints.less_than)
def _to_less_than(constraint):
    shift = transforms.AffineTransform(constraint.upper_bound, -1)
    return transforms.ComposeTransform([transforms.ExpTransform(), shift])


@_both(constraints.interval, constraints.half_open_interval)
def _to_interval(constraint):
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, Number) and low == 0 and isinstance(high, Number) and high == 1:
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform([transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)])


@_both(constraints.corr_cholesky)
def _to_corr_cholesky(constraint):
    return transforms.CorrCholeskyTransform()


biject_to.register(constraints.simplex, lambda constraint: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda constraint: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda constraint: transforms.LowerCholeskyTransform())
transform_to.register(constraints.positive_definite, lambda constraint: transforms.PositiveDefiniteTransform())
transform_to.register(constraints.positive_semidefinite, lambda constraint: transforms.PositiveDefiniteTransform())


def _made_of_others(registry):
    """Register the constraints that hold others, whose transforms come from the same registry."""
    registry.register(constraints.independent, lambda constraint: transforms.IndependentTransform(
        registry(constraint.base_constraint), constraint.reinterpreted_batch_ndims))
    registry.register(constraints.cat, lambda constraint: transforms.CatTransform(
        [registry(c) for c in constraint.cseq], constraint.dim, constraint.lengths))
    registry.register(constraints.stack, lambda constraint: transforms.StackTransform(
        [registry(c) for c in constraint.cseq], constraint.dim))


_made_of_others(biject_to)
_made_of_others(transform_to)
