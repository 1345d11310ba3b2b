"""Normalisation over a batch: batch norm, with statistics that run along, and instance norm."""
from ..base import shapes
from ..base.errors import Ended, need
from ..base.op import Op, door, refuse
from ..base.spec import spec
from .norm import (
    LayerFunction,
    _norm_weight_backward,
    bias_grad,
    channel_shape,
    channel_view,
    hat_body,
    kept_strides,
    same_dtypes,
    scaled,
    standard_body,
    standard_grads,
    standard_ref,
    standard_specs,
    wide,
)
from .view import _view


class _batch_norm(Op):
    """`input` [N, C, ...] standardised per channel over the batch, then scaled and shifted."""

    node = "NativeBatchNormBackward0"
    cname = "batch_norm"

    def meta(input, weight, bias, eps):
        check_channels(input, weight=weight, bias=bias)
        return standard_specs(input, channel_view(input.shape), kept_strides(input))

    def ref(xp, input, weight, bias, eps): return standard_ref(xp, input, weight, bias, eps, channel_view(input.shape))

    def grads(g, needs, input, weight, bias_spec, eps, out1, out2):
        view = channel_view(input._spec.shape)
        return standard_grads(g, needs, input, weight, bias_spec, out1, out2, eps, view, view[1])

    def body(k, input, weight, bias, eps): return standard_body(k, input, weight, bias, eps, channel_view(input.shape))


class _fixed_norm(Op):
    """`input` [N, C, ...] standardised per channel by given statistics, then scaled and shifted."""

    node = "NativeBatchNormBackward0"
    cname = "batch_norm"

    def meta(input, weight, bias, mean, var, eps):
        check_channels(input, weight=weight, bias=bias, running_mean=mean, running_var=var)
        return spec(input.dtype, input.shape, kept_strides(input), input.device)

    def ref(xp, input, weight, bias, mean, var, eps):
        lay = channel_shape(input.shape)
        out = (input - mean.reshape(lay)) / xp.sqrt(var.reshape(lay) + eps)
        out = out if weight is None else out * weight.reshape(lay)
        return out if bias is None else out + bias.reshape(lay)

    def grads(g, needs, input, weight, bias_spec, mean, var, eps):
        view = channel_view(input._spec.shape)
        mean, var = wide(mean).view(view[2]), wide(var).view(view[2])
        made = [None]
        if needs[0]:
            scale = (var + eps).rsqrt()
            made[0] = wide(g) * (scale if weight is None else scale * wide(weight).view(view[2]))
        if weight is not None:
            made.append(_norm_weight_backward(g, input, mean, var, eps, view, weight._spec.shape) if needs[1] else None)
        if bias_spec is not None:
            made.append(bias_grad(g, bias_spec, view[1]) if needs[len(made)] else None)
        return (*made, None, None)

    def body(k, input, weight, bias, mean, var, eps):
        lay = channel_shape(input.shape)
        hat = hat_body(k, input, k.reshape(mean, lay), k.reshape(var, lay), eps)
        return scaled(k, hat, weight, bias, lay)


def check_channels(input, **given):
    """Refuse what does not have one element for each channel of `input`."""
    channels = input.shape[1] if input.ndim > 1 else None
    for what, t in given.items():
        need(t is None or t.numel == channels, f"{what} should contain {channels} elements not "
                                               f"{t.numel if t else None}")
    refuse(_batch_norm, input.dtype, "bool int complex")


class _batch_norm_front(LayerFunction):
    """`input` [N, C, ...] standardised per channel; in training by the batch, updating the running statistics."""

    by_specs = False          # but `watch` is told of views
    names = "nn.functional.batch_norm"

    def of(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
        if not input.numel():               # nothing to normalise: PyTorch keeps the gradient's path and no more
            out = input.clone()
            out = out if weight is None else out * weight[0]
            return out if bias is None else out + bias[0]
        if input._base is not None or input._labels is not None:
            door.noticed("norm_of_view", input, "batch_norm")
        need(input.dim() >= 2, "Dimension out of range: batch_norm takes [N, C, ...], got "
                               f"{list(input.shape)}", IndexError)
        if training and input.numel() == input._spec.shape[1]:
            need(False, f"Expected more than 1 value per channel when training, got input size {input.shape}",
                 ValueError)
        channels = input._spec.shape[1]
        if running_mean is not None and running_mean._spec.numel != channels:
            need(False, f"running_mean should contain {channels} elements not {running_mean.numel()}")
        if running_var is not None and running_var._spec.numel != channels:
            need(False, f"running_var should contain {channels} elements not {running_var.numel()}")
        if input.is_floating_point():
            same_dtypes(input, weight, bias, running_mean, running_var)
        if not eps > 0:
            wanted = "positive during training" if training else "non-negative"
            need(eps == 0 and not training, f"batch_norm eps must be {wanted}, but got {eps}", ValueError)
        return normalised(input, weight, bias, running_mean, running_var, training, momentum, eps)


def normalised(input, weight, bias, mean, var, training, momentum, eps):
    """Batch norm, and the update of the running statistics beside it."""
    if not training:
        need(mean is not None and var is not None, "running_mean and running_var must be defined in evaluation mode")
        return _fixed_norm(input, weight, bias, mean, var, eps)
    try:
        out, batch_mean, batch_var = _batch_norm(input, weight, bias, eps)
    except Ended:
        update_running(mean, var, input, *_batch_norm(input.detach(), None, None, eps)[1:], momentum)
        raise
    update_running(mean, var, input, batch_mean, batch_var, momentum)
    return out


def update_running(mean, var, input, batch_mean, batch_var, momentum):
    """Move the running statistics, where there are any, toward those of the batch."""
    if mean is not None:
        toward(mean, batch_mean, momentum)
    if var is not None:
        count = input.numel() // max(input._spec.shape[1], 1)
        toward(var, batch_var.detach() * (count / max(count - 1, 1)), momentum)


def toward(running, batch, momentum):
    """Move a running statistic `momentum` of the way to that of the batch, in place."""
    running = running.detach() if running.requires_grad else running
    batch = _view(batch.detach(), running._spec.shape)
    running.lerp_(batch if batch.dtype is running.dtype else batch.to(running.dtype), momentum)


class _instance_norm(LayerFunction):
    """`input` [N, C, ...] standardised per channel of each sample."""

    by_specs = False          # but `watch` is told of views
    names = "nn.functional.instance_norm"

    def of(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1,
           eps=1e-5):
        if input._base is not None or input._labels is not None:
            door.noticed("norm_of_view", input, "instance_norm")
        need(input.dim() >= 2, f"Expected at least 2 dimensions, got {list(input.shape)}",
             ValueError if use_input_stats else RuntimeError)
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
        if input.is_floating_point():
            same_dtypes(input, weight, bias, running_mean, running_var)
        repeat = lambda t: None if t is None else t.repeat(n)
        mean, var = repeat(running_mean), repeat(running_var)
        rows = input.contiguous().view(1, n * c, *input.shape[2:])
        out = normalised(rows, repeat(weight), repeat(bias), mean, var, use_input_stats, momentum, eps)
        if use_input_stats:
            for given, made in ((running_mean, mean), (running_var, var)):
                if given is not None:
                    given.detach().copy_(made.view(n, c).mean(0))
        return out.view(input.shape)
