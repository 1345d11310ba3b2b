"""Transforms of vectors, of matrices, and of parts of a tensor; all are names of `transforms`."""
import math

from ..base import dtypes
from . import constraints
from .functions import cat, cholesky, eye, logsigmoid, pad, softplus, stack, tensor
from .transform import Plain, Transform
from .utils import _clipped_sigmoid, _sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix


class SoftmaxTransform(Plain):
    """Real vectors to the simplex by the softmax, and back by the logarithm: a right inverse only."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x):    return x.softmax(-1)
    def _inverse(self, y): return y.log()
    def forward_shape(self, shape): return at_least(shape, 1)
    def inverse_shape(self, shape): return at_least(shape, 1)


class StickBreakingTransform(Plain):
    """Real vectors to the simplex with one more component: each breaks its part off what the ones before it left.

    The parts are sigmoids, shifted such that the vector of zeros goes to equal components.
    """

    domain, codomain, bijective = constraints.real_vector, constraints.simplex, True

    def _call(self, x):
        part = _clipped_sigmoid(x - left_log(x))
        left = (1 - part).cumprod(-1)
        return pad(part, [0, 1], value=1) * pad(left, [1, 0], value=1)

    def _inverse(self, y):
        part = y[..., :-1]
        left = (1 - part.cumsum(-1)).clamp(min=dtypes.finfo(y.dtype).tiny)
        return part.log() - left.log() + left_log(part)

    def log_abs_det_jacobian(self, x, y):
        x = x - left_log(x)
        return (-x + logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape):
        at_least(shape, 1)
        return shape[:-1] + (shape[-1] + 1,)

    def inverse_shape(self, shape):
        at_least(shape, 1)
        return shape[:-1] + (shape[-1] - 1,)


def left_log(x):
    """For each component the logarithm of how many come after it, among which the rest would be shared evenly."""
    n = x.shape[-1]
    return tensor([math.log(n - i) for i in range(n)], dtype=x.dtype, device=x.device)


def at_least(shape, ndim):
    if len(shape) < ndim:
        raise ValueError(f"Too few dimensions on input: {tuple(shape)}, an event has {ndim}")
    return shape


class LowerCholeskyTransform(Plain):
    """Any matrices to lower triangular ones with a positive diagonal, by its exponentials."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def _call(self, x):    return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()
    def _inverse(self, y): return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(Plain):
    """Any matrices to positive definite ones, by way of their Cholesky factors."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def _call(self, x):
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y):
        return LowerCholeskyTransform().inv(cholesky(y))


class CorrCholeskyTransform(Transform):
    """Real vectors of length d (d - 1) / 2 to the Cholesky factors of d by d correlation matrices.

    The tangents below the diagonal say, row by row, how much of the row's remaining length goes into each element, so
    that every row has length 1 (Lewandowski, Kurowicka and Joe, 2009).
    """

    domain, codomain, bijective = constraints.real_vector, constraints.corr_cholesky, True

    def _call(self, x):
        eps = dtypes.finfo(x.dtype).eps
        r = vec_to_tril_matrix(x.tanh().clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = (1 - r.square()).sqrt().cumprod(-1)
        r = r + eye(r.shape[-1], dtype=r.dtype, device=r.device)
        return r * pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y):
        left = pad((1 - y.square().cumsum(-1))[..., :-1], [1, 0], value=1)
        return (tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()).atanh()

    def log_abs_det_jacobian(self, x, y, intermediates=None):
        left = tril_matrix_to_vec(1 - y.square().cumsum(-1), diag=-2)
        return 0.5 * left.log().sum(-1) - 2 * (x + softplus(-2 * x) - math.log(2)).sum(-1)

    def forward_shape(self, shape):
        at_least(shape, 1)
        length = shape[-1]
        d = round((0.25 + 2 * length) ** 0.5 + 0.5)
        if d * (d - 1) // 2 != length:
            raise ValueError(f"Input is not a flattened lower-diagonal number: {length} is not d (d - 1) / 2")
        return shape[:-1] + (d, d)

    def inverse_shape(self, shape):
        at_least(shape, 2)
        if shape[-2] != shape[-1]:
            raise ValueError(f"Input is not square: {tuple(shape[-2:])}")
        return shape[:-2] + (shape[-1] * (shape[-1] - 1) // 2,)


# --- parts --------------------------------------------------------------------------------------------------------


class PartsTransform(Transform):
    """One transform for each part of a tensor along `dim`."""

    def __init__(self, tseq, dim, cache_size):
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("all elements of tseq must be Transform instances")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def bijective(self): return all(t.bijective for t in self.transforms)

    def _call(self, x):
        return self._joined([t(part) for t, part in zip(self.transforms, self._parts(x), strict=True)])

    def _inverse(self, y):
        return self._joined([t.inv(part) for t, part in zip(self.transforms, self._parts(y), strict=True)])

    def _check_dim(self, x):
        if not -x.dim() <= self.dim < x.dim():
            raise AssertionError(f"dim {self.dim} out of range for a tensor of {x.dim()} dimensions")


class CatTransform(PartsTransform):
    """Transforms of stretches of the given `lengths` (1 each), one after the other along `dim`."""

    def __init__(self, tseq, dim=0, lengths=None, cache_size=0):
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"lengths ({len(self.lengths)}) must have the same length as transforms "
                                 f"({len(self.transforms)})")

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else \
            CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    @property
    def event_dim(self): return max(t.event_dim for t in self.transforms)

    @property
    def length(self): return sum(self.lengths)

    def _parts(self, x):
        self._check_dim(x)
        if x.shape[self.dim] != self.length:
            raise AssertionError(f"x.size({self.dim}) = {x.shape[self.dim]} must equal length {self.length}")
        return x.split(self.lengths, self.dim)

    def _joined(self, parts): return cat(parts, self.dim)

    def log_abs_det_jacobian(self, x, y):
        logs = []
        for t, x_part, y_part in zip(self.transforms, self._parts(x), self._parts(y), strict=True):
            logs.append(_sum_rightmost(t.log_abs_det_jacobian(x_part, y_part), self.event_dim - t.event_dim))
        dim = self.dim - x.dim() if self.dim >= 0 else self.dim
        dim += self.event_dim
        if dim < 0:
            return cat(logs, dim)
        total = logs[0]               # the stretches lie within one event
        for more in logs[1:]:
            total = total + more
        return total

    @constraints.dependent_property
    def domain(self): return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self): return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(PartsTransform):
    """Transforms of the slices along `dim`."""

    def __init__(self, tseq, dim=0, cache_size=0):
        super().__init__(tseq, dim, cache_size)

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else StackTransform(self.transforms, self.dim, cache_size)

    def _parts(self, x):
        self._check_dim(x)
        if x.shape[self.dim] != len(self.transforms):
            raise AssertionError(f"x.size({self.dim}) = {x.shape[self.dim]} must equal len(transforms) "
                                 f"{len(self.transforms)}")
        return x.unbind(self.dim)

    def _joined(self, parts): return stack(parts, self.dim)

    def log_abs_det_jacobian(self, x, y):
        parts = zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        return stack([t.log_abs_det_jacobian(x_part, y_part) for t, x_part, y_part in parts], self.dim)

    @constraints.dependent_property
    def domain(self): return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self): return constraints.stack([t.codomain for t in self.transforms], self.dim)
