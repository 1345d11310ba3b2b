"""Sums of exponentials: `logsumexp`, and softmax and its logarithm, along one dimension."""
import math

from ..base import dtypes, shapes
from ..base.errors import warn
from ..base.op import Composite, Op
from ..base.spec import spec
from .reduce import axes, lift, not_for, only, reduced, total


class logsumexp(Op):
    """The logarithm of the summed exponentials of `input` over `dim`, without overflowing on the way."""

    names = "special.logsumexp"
    forms = "function method out"

    def meta(input, dim, keepdim=False):
        return reduced(input, dim, keepdim, dtypes.default if input.dtype.is_integral else input.dtype)

    def ref(xp, input, dim, keepdim=False):
        x = input.astype(dtypes.default.compute) if input.dtype.kind in "biu" else input
        over = axes(dim, x.ndim)
        top = xp.max(x.real, axis=over, keepdims=True, initial=-math.inf)
        top = xp.where(xp.isinf(top), 0, top).astype(top.dtype)     # shifting by an infinity would give inf - inf
        out = xp.log(total(xp, xp.exp(x - top), over, True)) + top
        return out.reshape(shapes.reduced(x.shape, over, keepdim))

    def d_input(g, input, out, dim, keepdim):
        spec = input._spec
        return lift(g, spec, dim, keepdim) * (input - lift(out, spec, dim, keepdim)).exp().conj()

    def body(k, input, dim, keepdim=False):
        x = k.cast(input, dtypes.default) if input.dtype.is_integral else input
        over = axes(dim, x.ndim)
        top = k.top(x, over)
        top = k.where(k.abs(top) == math.inf, 0, top)
        return k.log(k.sum(k.exp(x - top), over)) + top


class softmax(Composite):
    """The exponentials of `input` divided by their sum along `dim`.

    >>> torch.tensor([0., 0.]).softmax(0)
    tensor([0.5000, 0.5000])
    """

    names = "special.softmax"
    forms = "function method out"
    strict_out = True

    def of(input, dim, dtype=None): return _softmax(input if dtype is None else input.to(dtype), dim)


class log_softmax(Composite):
    """The logarithm of `softmax` along `dim`, without its rounding."""

    names = "special.log_softmax"
    forms = "function method out"
    strict_out = True

    def of(input, dim, dtype=None): return _log_softmax(input if dtype is None else input.to(dtype), dim)


class _functional_softmax(Composite):
    """The exponentials of `input` divided by their sum along `dim`."""

    names = "nn.functional.softmax"

    def of(input, dim=None, _stacklevel=3, dtype=None):
        return softmax(input, implicit_dim("softmax", input, dim, _stacklevel), dtype)


class _functional_log_softmax(Composite):
    """The logarithm of `softmax` along `dim`, without its rounding."""

    names = "nn.functional.log_softmax"

    def of(input, dim=None, _stacklevel=3, dtype=None):
        return log_softmax(input, implicit_dim("log_softmax", input, dim, _stacklevel), dtype)


class _softmin(Composite):
    """The `softmax` of minus `input`."""

    names = "nn.functional.softmin"

    def of(input, dim=None, _stacklevel=3, dtype=None):
        return softmax(-input, implicit_dim("softmin", input, dim, _stacklevel), dtype)


def implicit_dim(name, input, dim, stacklevel):
    """The dimension that the functional forms take if none is given: the channels'."""
    if dim is None:
        warn(f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as "
             "an argument.")
        dim = 0 if input.ndim in (0, 1, 3) else 1
    return dim


class _softmax(Op):
    """The exponentials of `input` divided by their sum along `dim`."""

    def meta(input, dim):
        shapes.wrap_dim(only(dim), input.ndim)
        if input.numel:
            not_for(input.dtype, "bool int complex", "softmax_lastdim_kernel_impl")
        return spec(input.dtype, input.shape, None, input.device)

    def ref(xp, input, dim):
        if not input.size:
            return input
        over = axes(dim, input.ndim)
        e = xp.asarray(input - xp.max(input, axis=over, keepdims=True, initial=-math.inf))
        xp.exp(e, out=e)                              # in its own memory: fresh pages cost more than the arithmetic
        e /= total(xp, e, over, True)
        return e

    def d_input(g, out, dim): return _softmax_backward(g, out, dim)

    def body(k, input, dim):
        over = axes(dim, input.ndim)
        e = k.exp(input - k.top(input, over))
        return e * (1 / k.sum(e, over))


class _safe_softmax(Op):
    """`softmax` along `dim`, where a row of nothing but minus infinity gives zeros instead of nan."""

    def meta(input, dim): return input.like(shape=input.shape)

    def ref(xp, input, dim):
        top = xp.max(input, axis=dim, keepdims=True, initial=-xp.inf)
        e = xp.exp(input - xp.where(top == -xp.inf, 0, top))
        return xp.where(top == -xp.inf, 0, e / xp.sum(e, axis=dim, keepdims=True))

    def d_input(g, out, dim): return _softmax_backward(g, out, dim)

    def body(k, input, dim):
        over = axes(dim, input.ndim)
        top = k.top(input, over)
        blind = top == -math.inf
        e = k.exp(input - k.where(blind, 0, top))
        return e * k.where(blind, 0, 1 / k.sum(e, over))


class _softmax_backward(Op):
    """The gradient of `softmax`, from that of its result `out`."""

    node = "SoftmaxBackwardDataBackward0"

    def meta(g, out, dim): return spec(out.dtype, out.shape, None, out.device)

    def ref(xp, g, out, dim):
        weighted = xp.asarray(g * out)
        return weighted - out * total(xp, weighted, axes(dim, out.ndim), True)

    def d_g(v, out, dim):      return _softmax_backward(v, out, dim)
    def d_out(v, g, out, dim): return v * (g - (g * out).sum(dim, True)) - g * (v * out).sum(dim, True)

    def body(k, g, out, dim): return out * (g - k.sum(g * out, axes(dim, out.ndim)))


class _log_softmax(Op):
    """The logarithm of `softmax` along `dim`."""

    def meta(input, dim):
        shapes.wrap_dim(only(dim), input.ndim)
        if input.numel:
            not_for(input.dtype, "bool int complex", "log_softmax_lastdim_kernel_impl")
        return spec(input.dtype, input.shape, None, input.device)

    def ref(xp, input, dim):
        if not input.size:
            return input
        over = axes(dim, input.ndim)
        x = xp.asarray(input - xp.max(input, axis=over, keepdims=True, initial=-math.inf))
        x -= xp.log(total(xp, xp.exp(x), over, True))
        return x

    def d_input(g, out, dim): return _log_softmax_backward(g, out, dim)

    def body(k, input, dim):
        over = axes(dim, input.ndim)
        x = input - k.top(input, over)
        return x - k.log(k.sum(k.exp(x), over))


class _log_softmax_backward(Op):
    """The gradient of `log_softmax`, from that of its result `out`."""

    node = "LogSoftmaxBackwardDataBackward0"

    def meta(g, out, dim):      return spec(out.dtype, out.shape, None, out.device)
    def ref(xp, g, out, dim):   return g - xp.exp(out) * total(xp, g, axes(dim, out.ndim), True)
    def d_g(v, out, dim):       return v - (v * out.exp()).sum(dim, True)
    def d_out(v, g, out, dim):  return -v * out.exp() * g.sum(dim, True)
    def body(k, g, out, dim):   return g - k.exp(out) * k.sum(g, axes(dim, out.ndim))
