"""Normalisation: layers that bring their input to zero mean and unit variance over some of its dimensions.

One derivation serves them all. With x̂ = (x - mean) · rstd over the normalised dimensions, the gradient of x is
rstd · (g - mean(g) - x̂ · mean(g · x̂)). The backward rules compute x̂ again from the input instead of keeping it, in
differentiable operations, so that second derivatives are exact.
"""
from ..base import dtypes, shapes
from ..base.errors import need
from ..base.op import Composite, Op, refuse
from ..base.spec import spec


class Layer(Composite):
    """A composite in `nn.functional`."""

    forms = "function"


def wide(t):
    """Half types are normalised in float32."""
    return t.float() if t is not None and t.spec.dtype.compute is not t.spec.dtype.np else t


def standard(x, dims, eps):
    """(x̂, rstd) of `x` over `dims`."""
    d = x - x.mean(dims, keepdim=True)
    rstd = ((d * d).mean(dims, keepdim=True) + eps).rsqrt()
    return d * rstd, rstd


def standard_backward(g, hat, rstd, dims):
    """The gradient of x from that of x̂."""
    return rstd * (g - g.mean(dims, keepdim=True) - hat * (g * hat).mean(dims, keepdim=True))


def standard_ref(xp, x, dims, eps):
    """`standard` as arrays."""
    d = x - x.mean(axis=dims, keepdims=True)
    return d / xp.sqrt((d * d).mean(axis=dims, keepdims=True) + eps)


def over_rest(t, keep):
    """`t` summed over every dimension but those in `keep`."""
    dims = [d for d in range(t.dim()) if d not in keep]
    return t.sum(dims) if dims else t


def real_only(input):
    refuse(_layer_norm, input.dtype, "bool int complex")


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
            need(t is None or t.dtype is input.dtype or t.dtype is dtypes.float32,
                 f"expected scalar type {input.dtype.cname} but found {t.dtype.cname if t is not None else None}")
        real_only(input)
        return spec(input.dtype, input.shape, None, input.device)

    def ref(xp, input, normalized_shape, weight, bias, eps):
        out = standard_ref(xp, input, tuple(range(-len(normalized_shape), 0)), eps)
        out = out if weight is None else out * weight
        return out if bias is None else out + bias

    def grads(g, needs, input, normalized_shape, weight, bias_spec, eps):
        n = len(normalized_shape)
        lead = input.dim() - n
        dims, keep = list(range(-n, 0)), range(lead, input.dim())
        g = wide(g)
        hat, rstd = standard(wide(input), dims, eps)
        made = [standard_backward(g if weight is None else g * wide(weight), hat, rstd, dims) if needs[0] else None]
        if weight is not None:
            made.append(over_rest(g * hat, keep) if needs[1] else None)
        if bias_spec is not None:
            made.append(over_rest(g, keep) if needs[-1] else None)
        return tuple(made)


class _layer_norm_front(Layer):
    """`input` standardised over its last dimensions, then scaled by `weight` and shifted by `bias`."""

    names = "nn.functional.layer_norm layer_norm"

    def of(input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
        return _layer_norm(input, tuple(normalized_shape), weight, bias, eps)


class _rms_norm(Layer):
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


# --- batch and instance norm ------------------------------------------------------------------------------------------


class _batch_norm(Op):
    """`input` [N, C, ...] standardised per channel, by the batch's or given statistics, then scaled and shifted."""

    node = "NativeBatchNormBackward0"

    def meta(input, weight, bias, mean, var, training, eps):
        channels = input.shape[1] if input.ndim > 1 else None
        for what, t in (("weight", weight), ("bias", bias), ("running_mean", mean), ("running_var", var)):
            need(t is None or t.numel == channels, f"{what} should contain {channels} elements not "
                                                   f"{t.numel if t else None}")
        need(training or (mean is not None and var is not None), "running_mean and running_var must be defined in "
                                                                 "evaluation mode")
        refuse(_batch_norm, input.dtype, "bool int complex")
        strides = None
        if shapes.suggests_channels_last(input.shape, input.strides):
            strides = shapes.channels_last_strides(input.shape)
        return spec(input.dtype, input.shape, strides, input.device)

    def ref(xp, input, weight, bias, mean, var, training, eps):
        dims, lay = channel_dims(input.ndim), channel_shape(input.ndim)
        if training:
            out = standard_ref(xp, input, dims, eps)
        else:
            out = (input - mean.reshape(lay)) / xp.sqrt(var.reshape(lay) + eps)
        out = out if weight is None else out * weight.reshape(lay)
        return out if bias is None else out + bias.reshape(lay)

    def grads(g, needs, input, weight, bias_spec, mean, var, training, eps):
        dims, lay = list(channel_dims(input.dim())), channel_shape(input.dim())
        g, x = wide(g), wide(input)
        if training:
            hat, rstd = standard(x, dims, eps)
        else:
            rstd = (wide(var).reshape(lay) + eps).rsqrt()
            hat = (x - wide(mean).reshape(lay)) * rstd
        scaled = g if weight is None else g * wide(weight).reshape(lay)
        made = []
        if needs[0]:
            made.append(standard_backward(scaled, hat, rstd, dims) if training else scaled * rstd)
        else:
            made.append(None)
        if weight is not None:
            made.append(over_rest(g * hat, (1,)) if needs[1] else None)
        if bias_spec is not None:
            made.append(over_rest(g, (1,)) if needs[len(made)] else None)
        return (*made, *[None] * (len(needs) - len(made)))


def channel_dims(ndim):
    """Every dimension but the channels'."""
    return (0, *range(2, ndim))


def channel_shape(ndim):
    """How one number per channel broadcasts over [N, C, ...]."""
    return (1, -1, *[1] * (ndim - 2))


class _batch_norm_front(Layer):
    """`input` [N, C, ...] standardised per channel; in training by the batch, updating the running statistics."""

    names = "nn.functional.batch_norm"

    def of(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
        if not input.numel():               # nothing to normalise: PyTorch keeps the gradient's path and no more
            out = input.clone()
            out = out if weight is None else out * weight[0]
            return out if bias is None else out + bias[0]
        need(input.dim() >= 2, "Dimension out of range: batch_norm takes [N, C, ...], got "
                               f"{list(input.shape)}", IndexError)
        if training:
            count = input.numel() // input.shape[1]
            need(count != 1, "Expected more than 1 value per channel when training, got input size "
                             f"{input.shape}", ValueError)
        return normalised(input, weight, bias, running_mean, running_var, training, momentum, eps)


def normalised(input, weight, bias, mean, var, training, momentum, eps):
    """Batch norm, and the update of the running statistics beside it."""
    if training:
        out = _batch_norm(input, weight, bias, None, None, True, eps)
        if mean is not None or var is not None:
            x = wide(input.detach())
            dims = list(channel_dims(input.dim()))
            count = input.numel() // max(input.shape[1], 1)
            if mean is not None:
                mean.detach().mul_(1 - momentum).add_((momentum * x.mean(dims)).to(mean.dtype))
            if var is not None:
                unbiased = x.var(dims, unbiased=False) * (count / max(count - 1, 1))
                var.detach().mul_(1 - momentum).add_((momentum * unbiased).to(var.dtype))
        return out
    return _batch_norm(input, weight, bias, mean, var, False, eps)


class _instance_norm(Layer):
    """`input` [N, C, ...] standardised per channel of each sample."""

    names = "nn.functional.instance_norm"

    def of(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1,
           eps=1e-5):
        need(input.dim() >= 2, f"Expected at least 2 dimensions, got {list(input.shape)}")
        need(use_input_stats or (running_mean is not None and running_var is not None),
             "Expected running_mean and running_var to be defined when use_input_stats is false")
        if use_input_stats:
            spatial = shapes.numel(tuple(input.shape[2:]))
            need(spatial != 1, "Expected more than 1 spatial element when training, got input size "
                               f"{input.shape}", ValueError)
        n, c = input.shape[0], input.shape[1]
        for what, t in (("weight", weight), ("bias", bias)):
            need(t is None or t.numel() == c, f"{what} should contain {c} elements not "
                                              f"{t.numel() if t is not None else None}")
        repeat = lambda t: None if t is None else t.repeat(n)
        mean, var = repeat(running_mean), repeat(running_var)
        rows = input.contiguous().view(1, n * c, *input.shape[2:])
        out = normalised(rows, repeat(weight), repeat(bias), mean, var, use_input_stats, momentum, eps)
        if use_input_stats:
            for given, made in ((running_mean, mean), (running_var, var)):
                if given is not None:
                    given.detach().copy_(made.view(n, c).mean(0))
        return out.view(input.shape)


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
        return spec(input.dtype, input.shape, None, input.device)

    def ref(xp, input, num_groups, weight, bias, eps):
        n, lay = input.shape[0], channel_shape(input.ndim)
        inner = input.size // max(n * num_groups, 1)
        out = standard_ref(xp, input.reshape(n, num_groups, inner), (2,), eps).reshape(input.shape)
        out = out if weight is None else out * weight.reshape(lay)
        return out if bias is None else out + bias.reshape(lay)

    def grads(g, needs, input, num_groups, weight, bias_spec, eps):
        n, lay, shape = input.shape[0], channel_shape(input.dim()), input.shape
        inner = input.numel() // max(n * num_groups, 1)
        g = wide(g)
        hat, rstd = standard(wide(input).reshape(n, num_groups, inner), [2], eps)
        made = []
        if needs[0]:
            scaled = (g if weight is None else g * wide(weight).reshape(lay)).reshape(n, num_groups, inner)
            made.append(standard_backward(scaled, hat, rstd, [2]).reshape(shape))
        else:
            made.append(None)
        if weight is not None:
            made.append(over_rest(g * hat.reshape(shape), (1,)) if needs[1] else None)
        if bias_spec is not None:
            made.append(over_rest(g, (1,)) if needs[-1] else None)
        return tuple(made)


class _group_norm_front(Layer):
    """`input` [N, C, ...] standardised per group of channels of each sample."""

    names = "nn.functional.group_norm group_norm"

    def of(input, num_groups, weight=None, bias=None, eps=1e-5):
        need(input.dim() >= 2, f"Expected at least 2 dimensions for input tensor but received {input.dim()}")
        return _group_norm(input, num_groups, weight, bias, eps)


class _local_response_norm(Layer):
    """`input` divided by a power of the mean square of its neighbouring channels."""

    names = "nn.functional.local_response_norm"

    def of(input, size, alpha=1e-4, beta=0.75, k=1.0):
        need(input.dim() >= 3, f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)", ValueError)
        if not input.numel():
            return input
        from .shape import cat
        square = input * input
        blank = lambda n: square.new_zeros((square.shape[0], n, *square.shape[2:]))
        padded = cat((blank(size // 2), square, blank((size - 1) // 2)), 1)
        mean = sum(padded.narrow(1, i, square.shape[1]) for i in range(size)) / size
        return input / (mean * alpha + k) ** beta


class _normalize(Layer):
    """`input` divided by its p-norm over `dim`, at least `eps`."""

    names = "nn.functional.normalize"

    def of(input, p=2.0, dim=1, eps=1e-12, out=None):
        return input / input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)
