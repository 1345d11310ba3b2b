"""Norms of vectors and matrices, condition numbers."""
import math

from ..base import dtypes, shapes
from ..base.errors import need
from ..base.op import Composite, Op
from ..base.spec import spec
from .extremes import shared
from .matmul import only_tensors
from .reduce import axes, lift, total
from .solve import _inv, check, check_float
from .spectral import _svdvals
from .view import ints


class _vector_norm(Op):
    """The `ord`-norm of the elements over `dim`: (Σ|x|^ord)^(1/ord), or a largest or smallest size, or a count."""

    names = "linalg.vector_norm"
    forms = "function out"
    node = "LinalgVectorNormBackward0"
    strict_out = True

    def meta(input, ord=2, dim=None, keepdim=False, *, dtype=None):
        name = "linalg.vector_norm"
        only_tensors(input=input)
        need(isinstance(ord, (int, float)), f"argument 'ord' must be Number, not {type(ord).__name__}", TypeError)
        check_float(input, name, half=True)
        out = input.dtype
        if dtype is not None:
            need(dtype.category >= 2, f"{name}: dtype should be floating point or complex, but got {dtype.cname}")
            category = "complex" if out.is_complex else "real"
            need(dtype.is_complex == out.is_complex, f"{name}: dtype should be {category} for {category} inputs, but "
                 f"got {dtype.cname}")
            need(dtypes.promote_types(out, dtype) is dtype, f"{name}: the dtype of the input ({out.cname}) should be "
                 f"convertible without narrowing to the specified dtype ({dtype.cname})")
            out = dtype
        over = axes(dim, input.ndim)
        if ord < 0 or ord == math.inf:
            size = shapes.numel([input.shape[d] for d in over])
            need(size or not input.numel == 0 or _no_output(input, over), f"{name} cannot compute the {ord} norm on an "
                 "empty tensor because the operation does not have an identity" if dim is None or dim == () else
                 f"{name} cannot compute the {ord} norm on the dimension {[d for d in over if not input.shape[d]][:1]} "
                 "because this dimension is empty and the operation does not have an identity")
        return spec(out.to_real(), shapes.reduced(input.shape, over, keepdim), None, input.device)

    def ref(xp, input, ord=2, dim=None, keepdim=False, *, dtype=None):
        over = axes(dim, input.ndim)
        x = input if dtype is None else input.astype(dtype.compute)
        if ord == 0:
            return (x != 0).sum(axis=over, keepdims=keepdim).astype(x.real.dtype)
        size = xp.abs(x)
        if math.isinf(ord):
            return (xp.max if ord > 0 else xp.min)(size, axis=over, keepdims=keepdim)
        if ord == 1:
            return total(xp, size, over, keepdim)
        if ord == 2:
            return xp.sqrt(total(xp, size * size, over, keepdim))
        return total(xp, size ** ord, over, keepdim) ** (1 / ord)

    def d_input(g, input, out, ord, dim, keepdim):
        if ord == 0:
            return None
        if not input.ndim:
            return d_norm(g, input, out, ord)
        g, out = lift(g, input, dim, keepdim), lift(out, input, dim, keepdim)
        return d_norm(g, input.to(out.dtype) if not input.is_complex() else input, out, ord, axes(dim, input.ndim))

    def body(k, input, ord=2, dim=None, keepdim=False, *, dtype=None):
        x = input if dtype is None else k.cast(input, dtypes.from_numpy(dtype.compute))
        return norm_body(k, x, ord, axes(dim, input.ndim))


def norm_body(k, x, ord, over):
    """For a body: the `ord`-norm of `x` over axes."""
    if ord == 0:
        return k.sum(k.cast(x != 0, x.dtype), over)
    if ord == 2:
        return k.sqrt(k.sum(x * x, over))
    size = k.abs(x)
    if math.isinf(ord):
        return (k.max if ord > 0 else k.min)(size, over)
    return k.sum(size, over) if ord == 1 else k.pow(k.sum(k.pow(size, ord), over), 1 / ord)


def _no_output(input, over):
    return 0 in [n for d, n in enumerate(input.shape) if d not in over]


class _norm_of_rows(_vector_norm):
    """`linalg.vector_norm` as `Tensor.norm` leaves it in the graph."""

    names = ""
    node = "NormBackward1"


class _matrix_norm(Composite):
    """A norm of each matrix: "fro", "nuc" (sum of singular values), ±2 (extreme ones), ±1, ±inf (of columns, rows)."""

    names = "linalg.matrix_norm"
    forms = "function out"
    strict_out = True

    def of(input, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None):
        name = "linalg.matrix_norm"
        only_tensors(input=input)
        dim = ints((dim,), "dim") if isinstance(dim, (tuple, list)) else (dim,)
        need(len(dim) == 2, f"{name}: dim must be a 2-tuple. Got {' '.join(map(str, dim))}")
        check(input, name, False) if ord not in ("fro", 1, -1, math.inf, -math.inf) else check_matrix(input, name)
        a, b = (shapes.wrap_dim(d, input.ndim) for d in dim)
        need(a != b, f"{name}: dims must be different. Got ({dim[0]}, {dim[1]})")
        known = ("fro", "nuc") if isinstance(ord, str) else (1, -1, 2, -2, math.inf, -math.inf)
        need(ord in known, f"{name}: Order {ord} not supported. It is one of {known}.")
        if ord == "fro":
            return _vector_norm(input, 2, (a, b), keepdim, dtype=dtype)
        if ord == "nuc" or abs(ord) == 2:
            if dtype is not None:
                input = input.to(dtype)
            values = _svdvals(input.movedim((a, b), (-2, -1)))
            out = values.sum(-1) if ord == "nuc" else extreme(values, -1, False, ord > 0)
            return out.unsqueeze(min(a, b)).unsqueeze(max(a, b)) if keepdim else out
        if abs(ord) == math.inf:
            a, b = b, a
        sums = _vector_norm(input, 1, a, keepdim, dtype=dtype)
        return extreme(sums, b - 1 if not keepdim and a < b else b, keepdim, ord > 0)


def check_matrix(A, name):
    need(A.ndim >= 2, f"{name}: The input tensor A must have at least 2 dimensions, it has {A.ndim}.")
    check_float(A, name, half=True)


def extreme(x, dim, keepdim, largest):
    """The largest or smallest of `x` along `dim`; the largest of nothing is zero."""
    if largest and x.shape[dim] == 0:
        return x.sum(dim, keepdim)
    return x.amax(dim, keepdim) if largest else x.amin(dim, keepdim)


class _linalg_norm(Composite):
    """A matrix norm over two dimensions (or of a matrix with `ord` given), else a vector norm."""

    names = "linalg.norm"
    forms = "function out"
    strict_out = True

    def of(input, ord=None, dim=None, keepdim=False, *, dtype=None):
        only_tensors(input=input)
        dim = None if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
        if dim is not None:
            need(len(dim) in (1, 2), f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dim)}")
        elif ord is not None and not isinstance(ord, str):
            need(input.ndim in (1, 2), "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. "
                 f"Got {input.ndim}D.")
        of_matrix = ord is not None and (len(dim) == 2 if dim is not None else input.ndim == 2)
        if of_matrix or isinstance(ord, str):
            return _matrix_norm(input, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
        return _vector_norm(input, 2.0 if ord is None else ord, dim, keepdim, dtype=dtype)


class norm(Composite):
    """The `p`-norm of the elements over `dim`, or with p="fro" and p="nuc" a matrix norm."""

    forms = "function method out"
    strict_out = True

    def of(input, p="fro", dim=None, keepdim=False, dtype=None):
        dims = (dim,) if isinstance(dim, int) else dim
        if p is None or not isinstance(p, str):
            return _vector_norm(input, 2.0 if p is None else p, dims, keepdim, dtype=dtype)
        if p == "fro" and (dims is None or len(dims) <= 2):
            return _vector_norm(input, 2, dims, keepdim, dtype=dtype)
        return _matrix_norm(input, p, tuple(range(input.ndim)) if dims is None else dims, keepdim, dtype=dtype)


class dist(Composite):
    """The `p`-norm of `input` minus `other`."""

    def of(input, other, p=2):                return norm(input - other, p)
    def d_input(g, input, other, out, p):     return d_norm(g, input - other, out, p)
    def d_other(g, input, other, out, p):     return d_norm(g, other - input, out, p)


class renorm(Composite):
    """`input` with each slice along `dim` scaled down so that its `p`-norm is at most `maxnorm`."""

    forms = "function method inplace out"
    strict_out = True

    def of(input, p, dim, maxnorm):
        need(p > 0, f"renorm: non-positive-norm not supported, p is {p}")
        need(maxnorm >= 0, f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
        need(input.ndim > 1, f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions")
        length = norm(input, p, rest(input, dim), True)
        return (input * (maxnorm / (length + 1e-7)).masked_fill((length > maxnorm).logical_not(), 1)).contiguous()

    def d_input(g, input, p, dim, maxnorm):
        over = rest(input, dim)
        length = norm(input, p, over, True)
        inverse = 1 / (length + 1e-7)
        along = (g * input.conj()).sum(over, True)
        along = along.real if along.is_complex() else along
        scaled = maxnorm * inverse * (g - inverse * d_norm(along, input, length, p, over))
        return scaled.where(length > maxnorm, g)


def rest(input, dim):
    """All dimensions of `input` but `dim`."""
    dim = shapes.wrap_dim(dim, input.ndim)
    return tuple(d for d in range(input.ndim) if d != dim)


def d_norm(g, x, out, p, dim=None):
    """The gradient of the `p`-norm `out` of `x` over `dim` (kept): where there are several, the one that is zero."""
    p = 2.0 if p in (None, "fro") else float(p)
    if p == 0:
        return None                                   # a count: PyTorch leaves the gradient out
    if p == 1:
        return g * x.sgn()
    if p == 2:
        return g * (x / out.masked_fill(out == 0, math.inf))
    size = x.abs()
    if math.isinf(p):
        mask = (size == out) | size.isnan()
        return x.sgn() * shared(g, mask, dim, dim is not None)
    if p < 1:
        return x.sgn() * size.masked_fill(x == 0, math.inf).pow(p - 1) * g * out.pow(1 - p)
    scale = g / out.masked_fill(out == 0, math.inf).pow(p - 1)
    return (x.sgn() * size.pow(p - 1) if p < 2 else x * size.pow(p - 2)) * scale


class _cond(Composite):
    """The condition number: the norm `p` of the matrix times that of its inverse (without p: by singular values)."""

    names = "linalg.cond"
    forms = "function out"

    def of(input, p=None):
        check(input, "linalg.cond", square=False)
        known = (None, 2, -2, 1, -1, math.inf, -math.inf, "fro", "nuc")
        need(p in known, f"linalg.cond got an invalid norm type: {p}")
        if p in (None, 2, -2):
            if input.numel() == 0:
                return input.new_zeros(input.shape[:-2], dtype=input.dtype.to_real())
            S = _svdvals(input)
            first, last = S[..., :1], S[..., -1:]
            return (last / first if p == -2 else first / last).squeeze(-1)
        m, n = input.shape[-2:]
        need(m == n, f"linalg.cond(ord={p}): A must be batches of square matrices, but they are {m} by {n} matrices")
        if input.numel() == 0:
            return input.new_zeros(input.shape[:-2], dtype=input.dtype.to_real())
        inverse, info = _inv(input, None)
        inverse = inverse.masked_fill((info != 0)[..., None, None], math.inf)
        if p == "nuc" and bool(info.any()):
            return _matrix_norm(input, p) * _vector_norm(inverse, math.inf, (-2, -1))
        return (_matrix_norm(input, p) * _matrix_norm(inverse, p)).nan_to_num(math.inf, math.inf, math.inf)
