"""Normalisation: layers that bring their input to zero mean and unit variance over some of its dimensions.

One derivation serves them all. With x̂ = (x - mean) · rstd over the normalised dimensions and h = g · weight, the
gradient of x is rstd · (h - mean(h) - x̂ · mean(h · x̂)). Mean and variance are results of the forward operation: kept
for the backward one, and differentiable like any other, so that second derivatives are exact.

A view (seen, over, lay) says where: the shape that the input is seen in, the dimensions that are normalised, and how
the weight lies beside it.
"""
from ..base import dtypes, shapes
from ..base.errors import need
from ..base.op import Composite, Op, door, refuse
from ..base.spec import spec
from .pieces import cat
from .reduce import mean_of


class LayerFunction(Composite):
    """A composite in `nn.functional`."""

    forms = "function"


def wide(t):
    """Half types are normalised in float32."""
    return t.float() if t is not None and t._spec.dtype.compute is not t._spec.dtype.np else t


def row_view(shape, n):
    """The last `n` dimensions, normalised together."""
    lead = len(shape) - n
    return shape, tuple(range(lead, len(shape))), (1,) * lead + shape[lead:]


def channel_view(shape):
    """Everything but the channels, for [N, C, ...]."""
    return shape, channel_dims(len(shape)), channel_shape(shape)


def group_view(shape, groups):
    """Each group of channels of each sample."""
    n, c, *rest = shape
    each = c // groups
    return (n, groups, each, *rest), tuple(range(2, len(shape) + 1)), (1, groups, each, *[1] * len(rest))


def channel_dims(ndim):
    """Every dimension but the channels'."""
    return (0, *range(2, ndim))


def channel_shape(shape):
    """How one number per channel broadcasts over [N, C, ...]."""
    return (1, shape[1], *[1] * (len(shape) - 2))


def standard_specs(input, view, strides=None):
    """The specs of a normalisation: the result, the mean and the variance."""
    kept = spec(wide_dtype(input), shapes.reduced(view[0], view[1], True), None, input.device)
    return spec(input.dtype, input.shape, strides, input.device), kept, kept


def wide_dtype(input):
    """The dtype that statistics of `input` are kept in."""
    return dtypes.from_numpy(input.dtype.compute)


def standard_ref(xp, input, weight, bias, eps, view):
    """(`input` normalised, scaled and shifted; mean; variance)"""
    seen, over, lay = view
    x = input.reshape(seen)
    mean = x.mean(axis=over, keepdims=True)
    var = ((x - mean) ** 2).mean(axis=over, keepdims=True)
    out = (x - mean) / xp.sqrt(var + eps)
    out = out if weight is None else out * weight.reshape(lay)
    out = out if bias is None else out + bias.reshape(lay)
    return out.reshape(input.shape), mean, var


def standard_body(k, input, weight, bias, eps, view):
    """`standard_ref` in expressions."""
    seen, over, lay = view
    x = k.reshape(input, seen)
    mean = mean_of(k, x, over)
    off = x - mean
    var = mean_of(k, off * off, over)
    return k.reshape(scaled(k, off * k.rsqrt(var + eps), weight, bias, lay), input.shape), mean, var


def hat_body(k, x, mean, var, eps):
    """For a body: x̂."""
    return (x - k.cast(mean, x.dtype)) * k.rsqrt(k.cast(var, x.dtype) + eps)


def scaled(k, x, weight, bias, lay):
    """`x` times `weight` plus `bias`, where they are given."""
    x = x if weight is None else x * k.cast(k.reshape(weight, lay), x.dtype)
    return x if bias is None else x + k.cast(k.reshape(bias, lay), x.dtype)


def standard_grads(g, needs, input, weight, bias, mean, var, eps, view, rest):
    """The gradients of a normalisation; `bias` is a spec, and g holds one for each result."""
    g, g_mean, g_var = g
    made = [None]
    if needs[0]:
        if g is not None:
            made[0] = _norm_backward(g, input, weight, mean, var, eps, view)
        made[0] = plus_statistics(made[0], g_mean, g_var, input, mean, view)
    if weight is not None:
        wanted = g is not None and needs[1]
        made.append(_norm_weight_backward(g, input, mean, var, eps, view, weight._spec.shape) if wanted else None)
    if bias is not None:
        made.append(bias_grad(g, bias, rest) if g is not None and needs[len(made)] else None)
    return tuple(made)


def bias_grad(g, bias, rest):
    """`g` summed over all but the dimensions of `bias`."""
    return g.sum(rest, dtype=bias.dtype) if rest else g


def plus_statistics(d, g_mean, g_var, input, mean, view):
    """`d` plus what came for the mean and the variance themselves, in a second derivative."""
    if g_mean is None and g_var is None:
        return d
    x = wide(input).reshape(view[0])
    share = 0 if g_mean is None else g_mean
    share = share if g_var is None else share + 2 * g_var * (x - mean)
    n = shapes.numel([view[0][i] for i in view[1]])
    more = (share / n).expand(view[0]).reshape(input._spec.shape)
    return more if d is None else d + more


class _norm_backward(Op):
    """The gradient of a normalisation's input."""

    def meta(g, input, weight, mean, var, eps, view):
        return spec(input.dtype, input.shape, kept_strides(input), input.device)

    def ref(xp, g, input, weight, mean, var, eps, view):
        seen, over, lay = view
        h, rstd = g.reshape(seen), 1 / xp.sqrt(var + eps)
        h = h if weight is None else h * weight.reshape(lay)
        hat = (input.reshape(seen) - mean) * rstd
        flat, along = h.mean(axis=over, keepdims=True), (h * hat).mean(axis=over, keepdims=True)
        return (rstd * (h - flat - hat * along)).reshape(input.shape)

    def grads(v, needs, g, input, weight, mean, var, eps, view):
        # with u = rstd · v, and the sums that reach the weight, mean and variance left to broadcasting
        seen, over, lay = view
        x, g, v = (wide(t).reshape(seen) for t in (input, g, v))
        w = None if weight is None else wide(weight).reshape(lay)
        rstd = (var + eps).rsqrt()
        hat, h, u = (x - mean) * rstd, g if w is None else g * w, v * rstd
        flat, along, u_along = h.mean(over, True), (h * hat).mean(over, True), (u * hat).mean(over, True)
        d_h = u - u.mean(over, True) - hat * u_along
        d_hat = -(u * along + h * u_along)
        d_x = d_hat * rstd
        d_rstd = v * (h - flat - hat * along) + d_hat * (x - mean)
        made = [(d_h if w is None else d_h * w).reshape(input._spec.shape), d_x.reshape(input._spec.shape)]
        if weight is not None:
            made.append(over_rest(d_h * g, lay).reshape(weight._spec.shape))
        return (*made, -d_x, d_rstd * rstd ** 3 * -0.5)

    def body(k, g, input, weight, mean, var, eps, view):
        seen, over, lay = view
        h, rstd = scaled(k, k.reshape(g, seen), weight, None, lay), k.rsqrt(var + eps)
        hat = (k.reshape(input, seen) - mean) * rstd
        return k.reshape((h - mean_of(k, h, over) - hat * mean_of(k, h * hat, over)) * rstd, input.shape)


class _norm_weight_backward(Op):
    """The gradient of a normalisation's weight, which has the shape `size`: g · x̂, summed."""

    def meta(g, input, mean, var, eps, view, size): return spec(wide_dtype(input), size, None, input.device)

    def ref(xp, g, input, mean, var, eps, view, size):
        seen, _, lay = view
        hat = (input.reshape(seen) - mean) / xp.sqrt(var + eps)
        return (g.reshape(seen) * hat).sum(axis=beside(lay)).reshape(size)

    def grads(v, needs, g, input, mean, var, eps, view):
        seen, _, lay = view
        rstd = (var + eps).rsqrt()
        hat, v = (wide(input).reshape(seen) - mean) * rstd, v.reshape(lay)
        u = v * wide(g).reshape(seen) * rstd
        shape = input._spec.shape
        return (v * hat).reshape(shape), u.reshape(shape), -u, u * hat * rstd * -0.5

    def body(k, g, input, mean, var, eps, view, size):
        seen, _, lay = view
        hat = hat_body(k, k.reshape(input, seen), mean, var, eps)
        return k.reshape(k.sum(k.reshape(g, seen) * hat, beside(lay)), size)


def beside(lay):
    """The dimensions over which a weight that lies like `lay` is repeated."""
    return tuple([d for d, n in enumerate(lay) if n == 1])


def over_rest(t, lay):
    """`t` summed over the dimensions beside `lay`."""
    return t.sum(beside(lay), True) if 1 in lay else t


def kept_strides(input):
    """Channels-last strides where `input` has them."""
    lasts = shapes.suggests_channels_last(input.shape, input.strides)
    return shapes.channels_last_strides(input.shape) if lasts else None


def real_only(input):
    refuse(_layer_norm, input.dtype, "bool int complex")


def same_dtypes(input, *parameters):
    """Refuse parameters of another dtype than the input's; those of a 16-bit input may all be float32."""
    dtype = input.dtype
    if all(p is None or p.dtype is dtype for p in parameters):
        return
    given = [p.dtype for p in parameters if p is not None]
    if given[0] is dtype:
        other = next(d for d in given if d is not dtype)
        need(False, f"expected scalar type {dtype.cname} but found {other.cname}")
    need(all(d is dtypes.float32 for d in given), "mixed dtype (CPU): expect parameter to have scalar type of Float")
    need(dtype.itemsize == 2 and dtype.is_floating_point, "mixed dtype (CPU): all inputs must share same datatype.")


# --- layer norm -------------------------------------------------------------------------------------------------------


class _layer_norm(Op):
    """`input` standardised over its last dimensions, then scaled and shifted."""

    node = "NativeLayerNormBackward0"
    cname = "LayerNormKernelImpl"

    def meta(input, normalized_shape, weight, bias, eps):
        n = len(normalized_shape)
        need(n >= 1, "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, "
                     f"but got normalized_shape = {list(normalized_shape)}")
        need(input.shape[input.ndim - n:] == tuple(normalized_shape) and input.ndim >= n,
             f"Given normalized_shape={list(normalized_shape)}, expected input with shape [*, "
             f"{', '.join(map(str, normalized_shape))}], but got input of size{list(input.shape)}")
        for what, t in (("weight", weight), ("bias", bias)):
            need(t is None or t.shape == tuple(normalized_shape), f"Expected {what} to be of same shape as "
                                                                  f"normalized_shape, but got {what} of shape "
                                                                  f"{list(t.shape) if t is not None else None} and "
                                                                  f"normalized_shape = {list(normalized_shape)}")
        same_dtypes(input, weight, bias)
        real_only(input)
        return standard_specs(input, row_view(input.shape, n))

    def ref(xp, input, normalized_shape, weight, bias, eps):
        return standard_ref(xp, input, weight, bias, eps, row_view(input.shape, len(normalized_shape)))

    def grads(g, needs, input, normalized_shape, weight, bias_spec, eps, out1, out2):
        view = row_view(input._spec.shape, len(normalized_shape))
        rest = tuple(range(view[1][0]))
        return standard_grads(g, needs, input, weight, bias_spec, out1, out2, eps, view, rest)

    def body(k, input, normalized_shape, weight, bias, eps):
        return standard_body(k, input, weight, bias, eps, row_view(input.shape, len(normalized_shape)))


class _layer_norm_front(LayerFunction):
    """`input` standardised over its last dimensions, then scaled by `weight` and shifted by `bias`."""

    names = "nn.functional.layer_norm layer_norm"

    def of(input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
        return _layer_norm(input, tuple(normalized_shape), weight, bias, eps)[0]


class _rms_norm(LayerFunction):
    """`input` divided by its root mean square over the last dimensions, then scaled by `weight`."""

    names = "nn.functional.rms_norm rms_norm"

    def of(input, normalized_shape, weight=None, eps=None):
        n = len(normalized_shape)
        need(n >= 1, "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, "
                     f"but got normalized_shape = {list(normalized_shape)}")
        need(input.dim() >= n and tuple(input.shape[input.dim() - n:]) == tuple(normalized_shape),
             f"Given normalized_shape={list(normalized_shape)}, expected input with shape [*, "
             f"{', '.join(map(str, normalized_shape))}], but got input of size{list(input.shape)}")
        need(weight is None or tuple(weight.shape) == tuple(normalized_shape), "Expected weight to be of same shape as "
             f"normalized_shape, but got weight of shape {list(weight.shape) if weight is not None else None} and "
             f"normalized_shape = {list(normalized_shape)}")
        real = dtypes.float32 if input.dtype.itemsize == 2 else input.dtype.to_real()
        eps = dtypes.finfo(real).eps if eps is None else eps
        x = wide(input)
        scale = ((x * x).mean(list(range(-n, 0)), keepdim=True) + eps).rsqrt()
        out = x * scale
        out = out if weight is None else out * weight
        return out.to(input.dtype)


# --- group norm and others --------------------------------------------------------------------------------------------


class _group_norm(Op):
    """`input` [N, C, ...] standardised per group of channels of each sample, then scaled and shifted per channel."""

    node = "NativeGroupNormBackward0"

    def meta(input, num_groups, weight, bias, eps):
        need(input.ndim >= 2, f"Expected at least 2 dimensions for input tensor but received {input.ndim}")
        channels = input.shape[1]
        need(num_groups > 0 and channels % num_groups == 0, "Expected number of channels in input to be divisible by "
                                                            f"num_groups, but got input of shape {list(input.shape)} "
                                                            f"and num_groups={num_groups}")
        for what, t in (("weight", weight), ("bias", bias)):
            need(t is None or (t.ndim == 1 and t.numel == channels), f"Expected {what} to be a vector of size equal to "
                                                                     f"the number of channels in input, but got {what} "
                                                                     f"of shape {list(t.shape) if t else None} and "
                                                                     f"input of shape {list(input.shape)}")
        refuse(_group_norm, input.dtype, "bool int complex")
        lasts = shapes.suggests_channels_last(input.shape, input.strides)
        strides = shapes.channels_last_strides(input.shape) if lasts else None
        return standard_specs(input, group_view(input.shape, num_groups), strides)

    def ref(xp, input, num_groups, weight, bias, eps):
        return standard_ref(xp, input, weight, bias, eps, group_view(input.shape, num_groups))

    def grads(g, needs, input, num_groups, weight, bias_spec, eps, out1, out2):
        view, rest = group_view(input._spec.shape, num_groups), channel_dims(input.dim())
        return standard_grads(g, needs, input, weight, bias_spec, out1, out2, eps, view, rest)

    def body(k, input, num_groups, weight, bias, eps):
        return standard_body(k, input, weight, bias, eps, group_view(input.shape, num_groups))


class _group_norm_front(LayerFunction):
    """`input` [N, C, ...] standardised per group of channels of each sample."""

    by_specs = False          # but `watch` is told of views
    names = "nn.functional.group_norm group_norm"

    def of(input, num_groups, weight=None, bias=None, eps=1e-5):
        if input._base is not None or input._labels is not None:
            door.noticed("norm_of_view", input, "group_norm")
        need(input.dim() >= 2, f"Expected at least 2 dimensions for input tensor but received {input.dim()}")
        if input.numel() == num_groups and input.shape[0] == 1:
            need(False, f"Expected more than 1 value per channel when training, got input size {list(input.shape)}",
                 ValueError)
        same_dtypes(input, weight, bias)
        return _group_norm(input, num_groups, weight, bias, eps)[0]


class _local_response_norm(LayerFunction):
    """`input` divided by a power of the mean square of its neighbouring channels."""

    names = "nn.functional.local_response_norm"

    def of(input, size, alpha=1e-4, beta=0.75, k=1.0):
        need(input.dim() >= 3, f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)", ValueError)
        if not input.numel():
            return input
        square = input * input
        blank = lambda n: square.new_zeros((square.shape[0], n, *square.shape[2:]))
        padded = cat((blank(size // 2), square, blank((size - 1) // 2)), 1)
        mean = sum(padded.narrow(1, i, square.shape[1]) for i in range(size)) / size
        return input / (mean * alpha + k) ** beta


class _normalize(LayerFunction):
    """`input` divided by its p-norm over `dim`, at least `eps`."""

    names = "nn.functional.normalize"
    forms = "function out"

    def of(input, p=2.0, dim=1, eps=1e-12, out=None):
        return input / input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)
