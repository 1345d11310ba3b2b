"""Transforms of tensors that know their inverse and how they stretch volume; `TransformedDistribution` is made of them.

Here are the ones that act on single numbers, or on shapes; the others are imported.
"""
import math
from numbers import Number

from ..base.spec import Size
from ..tensor.tensor import Tensor
from . import constraints
from .functions import broadcast_shapes, softplus
from .matrix_transforms import (
    CatTransform,
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SoftmaxTransform,
    StackTransform,
    StickBreakingTransform,
)
from .transform import (
    ComposeTransform,
    IndependentTransform,
    Plain,
    Transform,
    _InverseTransform as _InverseTransform,  # libraries look for it here
    deepened,
    identity_transform,
)
from .utils import _clipped_sigmoid, _sum_rightmost, clipped, lazy_property

__all__ = ["AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
           "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform", "LowerCholeskyTransform",
           "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftplusTransform",
           "TanhTransform", "SoftmaxTransform", "StackTransform", "StickBreakingTransform", "Transform",
           "identity_transform"]


class Increasing(Plain):
    """Real numbers to some others, in their order."""

    domain, bijective, sign = constraints.real, True, 1


class ExpTransform(Increasing):
    """y = exp(x)."""

    codomain = constraints.positive
    def _call(self, x):    return x.exp()
    def _inverse(self, y): return y.log()
    def log_abs_det_jacobian(self, x, y): return x


class SigmoidTransform(Increasing):
    """y = 1 / (1 + exp(-x)), kept inside (0, 1)."""

    codomain = constraints.unit_interval
    def _call(self, x):    return _clipped_sigmoid(x)
    def _inverse(self, y): return clipped(y).logit()
    def log_abs_det_jacobian(self, x, y): return -softplus(-x) - softplus(x)


class SoftplusTransform(Increasing):
    """y = log(1 + exp(x))."""

    codomain = constraints.positive
    def _call(self, x):    return softplus(x)
    def _inverse(self, y): return (-(-y).expm1()).log() + y
    def log_abs_det_jacobian(self, x, y): return -softplus(-x)


class TanhTransform(Increasing):
    """y = tanh(x)."""

    codomain = constraints.interval(-1.0, 1.0)
    def _call(self, x):    return x.tanh()
    def _inverse(self, y): return y.atanh()
    def log_abs_det_jacobian(self, x, y): return 2 * (math.log(2) - x - softplus(-2 * x))


class AbsTransform(Plain):
    """y = |x|, and back to the positive one."""

    domain, codomain = constraints.real, constraints.positive
    def _call(self, x):    return x.abs()
    def _inverse(self, y): return y


class PowerTransform(Transform):
    """y = x**exponent, of positive numbers."""

    domain, codomain, bijective = constraints.positive, constraints.positive, True

    def __init__(self, exponent, cache_size=0):
        super().__init__(cache_size=cache_size)
        self.exponent = exponent

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else PowerTransform(self.exponent, cache_size=cache_size)

    @lazy_property
    def sign(self):
        e = self.exponent
        return (e > 0) - (e < 0) if isinstance(e, Number) else e.sign()

    def __eq__(self, other): return isinstance(other, PowerTransform) and same(self.exponent, other.exponent)
    def _call(self, x):    return x.pow(self.exponent)
    def _inverse(self, y): return y.pow(1 / self.exponent)
    def log_abs_det_jacobian(self, x, y): return (self.exponent * y / x).abs().log()
    def forward_shape(self, shape): return broadcast_shapes(shape, getattr(self.exponent, "shape", ()))
    inverse_shape = forward_shape


def same(a, b):
    """Whether two parameters, numbers or tensors, are equal."""
    equal = a == b
    return bool(equal.all()) if isinstance(equal, Tensor) else equal


class AffineTransform(Transform):
    """y = loc + scale * x, over events of `event_dim` dimensions."""

    bijective = True

    def __init__(self, loc, scale, event_dim=0, cache_size=0):
        super().__init__(cache_size=cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self): return self._event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self): return deepened(constraints.real, self.event_dim)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self): return deepened(constraints.real, self.event_dim)

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else \
            AffineTransform(self.loc, self.scale, self.event_dim, cache_size=cache_size)

    def __eq__(self, other):
        return isinstance(other, AffineTransform) and same(self.loc, other.loc) and same(self.scale, other.scale)

    @property
    def sign(self):
        if isinstance(self.scale, Number):
            return (self.scale > 0) - (self.scale < 0)
        return self.scale.sign()

    def _call(self, x):    return self.loc + self.scale * x
    def _inverse(self, y): return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x, y):
        if isinstance(self.scale, Number):
            growth = x.new_full(x.shape, math.log(abs(self.scale)))
        else:
            growth = self.scale.abs().log().expand(x.shape)
        return _sum_rightmost(growth, self.event_dim)

    def forward_shape(self, shape):
        return broadcast_shapes(shape, getattr(self.loc, "shape", ()), getattr(self.scale, "shape", ()))

    inverse_shape = forward_shape


class CumulativeDistributionTransform(Transform):
    """The probability of a sample of `distribution` up to each number."""

    bijective, codomain, sign = True, constraints.unit_interval, 1

    def __init__(self, distribution, cache_size=0):
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self): return self.distribution.support

    def _call(self, x):    return self.distribution.cdf(x)
    def _inverse(self, y): return self.distribution.icdf(y)
    def log_abs_det_jacobian(self, x, y): return self.distribution.log_prob(x)

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else \
            CumulativeDistributionTransform(self.distribution, cache_size=cache_size)


class ReshapeTransform(Transform):
    """Events of shape `in_shape` to `out_shape`, with the same elements in the same order."""

    bijective = True

    def __init__(self, in_shape, out_shape, cache_size=0):
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError("in_shape, out_shape have different numbers of elements: "
                             f"{tuple(in_shape)} and {tuple(out_shape)}")
        super().__init__(cache_size=cache_size)

    @constraints.dependent_property(is_discrete=False)
    def domain(self): return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property(is_discrete=False)
    def codomain(self): return constraints.independent(constraints.real, len(self.out_shape))

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else \
            ReshapeTransform(self.in_shape, self.out_shape, cache_size=cache_size)

    def _call(self, x):    return x.reshape(self._batch(x, self.in_shape) + self.out_shape)
    def _inverse(self, y): return y.reshape(self._batch(y, self.out_shape) + self.in_shape)
    def log_abs_det_jacobian(self, x, y): return x.new_zeros(self._batch(x, self.in_shape))
    def forward_shape(self, shape): return swapped(shape, self.in_shape, self.out_shape)
    def inverse_shape(self, shape): return swapped(shape, self.out_shape, self.in_shape)

    @staticmethod
    def _batch(x, own):
        return x.shape[:x.dim() - len(own)]


def swapped(shape, end, other):
    """`shape` with its end, which has to be `end`, replaced by `other`."""
    cut = len(shape) - len(end)
    if cut < 0:
        raise ValueError(f"Too few dimensions on input: {tuple(shape)} for events of shape {tuple(end)}")
    if tuple(shape[cut:]) != tuple(end):
        raise ValueError(f"Shape mismatch: expected {tuple(end)} at the end but got {tuple(shape[cut:])}")
    return Size(shape[:cut]) + other
