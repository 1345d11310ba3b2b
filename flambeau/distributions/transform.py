"""What a transform is, its inverse, and transforms made of others; all are names of `transforms`."""
import weakref

from . import constraints
from .utils import _sum_rightmost, lazy_property


class Transform:
    """A map from `domain` to `codomain`. A subclass says `_call`, `_inverse` and `log_abs_det_jacobian`.

    With `cache_size=1` the last pair of input and output is kept, so that the inverse of the last output is the last
    input itself: exact, and without computing. `bijective`: whether `t.inv(t(x)) == x` and `t(t.inv(y)) == y`.

    >>> t = torch.distributions.ExpTransform()
    >>> t.inv(t(torch.tensor(3.0)))
    tensor(3.)
    """

    bijective = False
    domain: constraints.Constraint
    codomain: constraints.Constraint

    def __init__(self, cache_size=0):
        if cache_size not in (0, 1):
            raise ValueError(f"cache_size must be 0 or 1, got {cache_size}")
        self._cache_size, self._inv, self._cached_x_y = cache_size, None, (None, None)

    def __getstate__(self):
        return {**self.__dict__, "_inv": None}             # a weak reference, made anew when asked for

    @property
    def event_dim(self):
        """How many dimensions one event has, where input and output have the same number."""
        if self.domain.event_dim != self.codomain.event_dim:
            raise ValueError(f"Please use either .domain.event_dim ({self.domain.event_dim}) or .codomain.event_dim "
                             f"({self.codomain.event_dim})")
        return self.domain.event_dim

    @property
    def inv(self):
        """The inverse transform; the inverse of that is this object."""
        inverse = None if self._inv is None else self._inv()
        if inverse is None:
            inverse = _InverseTransform(self)
            self._inv = weakref.ref(inverse)
        return inverse

    @property
    def sign(self):
        """1 where outputs grow with inputs, -1 where they fall."""
        raise NotImplementedError(f"{type(self).__name__} has no sign: it is not monotone, or not of single numbers")

    def with_cache(self, cache_size=1):
        """The same transform with another size of cache."""
        if self._cache_size == cache_size:
            return self
        if type(self).__init__ is Transform.__init__:
            return type(self)(cache_size=cache_size)
        raise NotImplementedError(f"{type(self)}.with_cache is not implemented")

    def __eq__(self, other):
        return self is other

    __hash__ = None           # type: ignore[assignment]

    def __call__(self, x):
        if self._cache_size == 0:
            return self._call(x)
        x_old, y_old = self._cached_x_y
        if x is x_old:
            return y_old
        y = self._call(x)
        self._cached_x_y = x, y
        return y

    def _inv_call(self, y):
        if self._cache_size == 0:
            return self._inverse(y)
        x_old, y_old = self._cached_x_y
        if y is y_old:
            return x_old
        x = self._inverse(y)
        self._cached_x_y = x, y
        return x

    def _call(self, x):
        raise NotImplementedError(f"{type(self).__name__} has no _call")

    def _inverse(self, y):
        raise NotImplementedError(f"{type(self).__name__} has no inverse")

    def log_abs_det_jacobian(self, x, y):
        """The logarithm of how much volume grows at `x`, which goes to `y`."""
        raise NotImplementedError(f"{type(self).__name__} has no log_abs_det_jacobian")

    def forward_shape(self, shape):
        """The shape that inputs of this shape go to."""
        return shape

    def inverse_shape(self, shape):
        """The shape that outputs of this shape come from."""
        return shape

    def __repr__(self):
        return type(self).__name__ + "()"


class _InverseTransform(Transform):
    """A transform the other way round."""

    def __init__(self, transform):
        super().__init__(cache_size=transform._cache_size)
        self._inv = transform

    def __getstate__(self):
        return self.__dict__

    @constraints.dependent_property(is_discrete=False)
    def domain(self): return self._inv.codomain

    @constraints.dependent_property(is_discrete=False)
    def codomain(self): return self._inv.domain

    @property
    def bijective(self): return self._inv.bijective

    @property
    def sign(self): return self._inv.sign

    @property
    def inv(self): return self._inv

    def with_cache(self, cache_size=1): return self.inv.with_cache(cache_size).inv
    def __eq__(self, other):            return isinstance(other, _InverseTransform) and self._inv == other._inv
    def __repr__(self):                 return f"{type(self).__name__}({self._inv!r})"
    def __call__(self, x):              return self._inv._inv_call(x)
    def log_abs_det_jacobian(self, x, y): return -self._inv.log_abs_det_jacobian(y, x)
    def forward_shape(self, shape):     return self._inv.inverse_shape(shape)
    def inverse_shape(self, shape):     return self._inv.forward_shape(shape)


class ComposeTransform(Transform):
    """The transforms `parts` one after the other."""

    def __init__(self, parts, cache_size=0):
        super().__init__(cache_size=cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else parts

    def __eq__(self, other):
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    @constraints.dependent_property(is_discrete=False)
    def domain(self):
        if not self.parts:
            return constraints.real
        deep = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):                  # how deep an event is, seen from the end
            deep = max(deep + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim)
        return deepened(self.parts[0].domain, deep)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self):
        if not self.parts:
            return constraints.real
        deep = self.parts[0].domain.event_dim
        for part in self.parts:
            deep = max(deep + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim)
        return deepened(self.parts[-1].codomain, deep)

    @lazy_property
    def bijective(self): return all(part.bijective for part in self.parts)

    @lazy_property
    def sign(self):
        sign = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    @property
    def inv(self):
        inverse = None if self._inv is None else self._inv()
        if inverse is None:
            inverse = ComposeTransform([part.inv for part in reversed(self.parts)])
            self._inv, inverse._inv = weakref.ref(inverse), weakref.ref(self)
        return inverse

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else ComposeTransform(self.parts, cache_size=cache_size)

    def __call__(self, x):
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x, y):
        if not self.parts:
            return x.new_zeros(x.shape)
        xs = [x]
        for part in self.parts[:-1]:
            xs.append(part(xs[-1]))
        xs.append(y)
        total, deep = 0, self.domain.event_dim
        for part, x, y in zip(self.parts, xs[:-1], xs[1:], strict=True):
            total = total + _sum_rightmost(part.log_abs_det_jacobian(x, y), deep - part.domain.event_dim)
            deep += part.codomain.event_dim - part.domain.event_dim
        return total

    def forward_shape(self, shape):
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape):
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self):
        inner = ",\n    ".join(repr(part) for part in self.parts)
        return f"{type(self).__name__}(\n    {inner}\n)"


def deepened(constraint, event_dim):
    """`constraint` over events of `event_dim` dimensions."""
    more = event_dim - constraint.event_dim
    return constraints.independent(constraint, more) if more else constraint


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """The base transform with the last `reinterpreted_batch_ndims` dimensions as part of one event."""

    def __init__(self, base_transform, reinterpreted_batch_ndims, cache_size=0):
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else \
            IndependentTransform(self.base_transform, self.reinterpreted_batch_ndims, cache_size=cache_size)

    @constraints.dependent_property(is_discrete=False)
    def domain(self): return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self): return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self): return self.base_transform.bijective

    @property
    def sign(self): return self.base_transform.sign

    def _call(self, x):
        if x.dim() < self.domain.event_dim:
            raise ValueError(f"Too few dimensions on input: {x.dim()}, an event has {self.domain.event_dim}")
        return self.base_transform(x)

    def _inverse(self, y):
        if y.dim() < self.codomain.event_dim:
            raise ValueError(f"Too few dimensions on input: {y.dim()}, an event has {self.codomain.event_dim}")
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x, y):
        return _sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def __repr__(self): return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"
    def forward_shape(self, shape): return self.base_transform.forward_shape(shape)
    def inverse_shape(self, shape): return self.base_transform.inverse_shape(shape)


class Plain(Transform):
    """A transform without parameters: all of one class are equal."""

    def __eq__(self, other):
        return type(self) is type(other)
