"""Losses: how far predictions are from targets, summed, averaged or left per element.

Those that PyTorch records as one node carry their closed-form derivative; the others are built from other operations.
"""
import math

import numpy as np

from ..base import dtypes, shapes
from ..base.arguments import as_scalar
from ..base.errors import need, warn
from ..base.op import Composite, Op, door
from ..base.spec import spec
from .activation import _logsigmoid
from .index import rows_at
from .norm import wide
from .reduce import not_for

LOSS_REDUCTIONS = ("none", "mean", "sum")


def reduction_of(reduction, size_average=None, reduce=None):
    """The reduction's name, the two deprecated flags understood."""
    if size_average is not None or reduce is not None:
        size_average = True if size_average is None else size_average
        reduce = True if reduce is None else reduce
        meant = "none" if not reduce else "mean" if size_average else "sum"
        warn(f"size_average and reduce args will be deprecated, please use reduction='{meant}' instead.")
        return meant
    need(reduction in LOSS_REDUCTIONS, f"{reduction} is not a valid value for reduction", ValueError)
    return reduction


def reduced(loss, reduction):
    """The loss as `reduction` asks."""
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def spread(g, like, reduction):
    """The gradient of each element, from the gradient of the reduced loss."""
    return g / max(like.numel, 1) if reduction == "mean" else g


def warn_sizes(input, target):
    """Say that two sizes differ and will be broadcast, which is rarely meant."""
    if tuple(input.shape) != tuple(target.shape):
        warn(f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). This "
             "will likely lead to incorrect results due to broadcasting. Please ensure they have the same "
             "size.")
        door.noticed("loss_sizes", input, target)


class Loss(Composite):
    """A composite in `nn.functional` only."""

    forms = "function"


# --- regression -------------------------------------------------------------------------------------------------------


def as_floats(kernel, input, target):
    """Both in their common dtype, refused as PyTorch's kernel does if that is no floating one."""
    dtype = dtypes.promote_types(input.dtype, target.dtype)
    need(dtype.is_floating_point, f"\"{kernel}\" not implemented for '{dtype.cname}'", NotImplementedError)
    return [t if t.dtype is dtype else t.to(dtype) for t in (input, target)]


class _mse(Composite):
    """Squared differences."""

    node = "MseLossBackward0"

    def of(input, target, reduction):
        d = input - target
        return reduced(d * d, reduction)

    def grads(g, needs, input, target, reduction):
        d = input - target
        made = spread(g, d._spec, reduction) * d * 2
        return made if needs[0] else None, -made if needs[1] else None


class _mse_loss(Loss):
    """The mean of the squared differences of `input` and `target`.

    >>> torch.nn.functional.mse_loss(torch.tensor([1., 2.]), torch.tensor([1., 4.]))
    tensor(2.)
    """

    names = "nn.functional.mse_loss"

    def of(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
        warn_sizes(input, target)
        reduction = reduction_of(reduction, size_average, reduce)
        input, target = as_floats("mse_cpu", input, target)
        if weight is not None:
            loss = weight * _mse(input, target, "none")
            return loss.sum() / weight.expand_as(loss).sum() if reduction == "mean" else reduced(loss, reduction)
        return _mse(input, target, reduction)


class _l1_loss(Loss):
    """The mean of the absolute differences of `input` and `target`."""

    names = "nn.functional.l1_loss"

    def of(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
        warn_sizes(input, target)
        reduction = reduction_of(reduction, size_average, reduce)
        loss = (input - target).abs()
        if weight is not None:
            loss = weight * loss
            return loss.sum() / weight.expand_as(loss).sum() if reduction == "mean" else reduced(loss, reduction)
        return reduced(loss, reduction)


class _smooth_l1(Composite):
    """Squared near zero, absolute beyond `beta`."""

    node = "SmoothL1LossBackward0"

    def of(input, target, reduction, beta):
        d = (input - target).abs()
        return reduced((0.5 * d * d / beta).where(d < beta, d - 0.5 * beta), reduction)

    def grads(g, needs, input, target, reduction, beta):
        d = input - target
        made = spread(g, d._spec, reduction) * (d / beta).where(d.abs() < beta, d.sign())
        return made if needs[0] else None, -made if needs[1] else None


class _smooth_l1_loss(Loss):
    """The mean of differences that are squared near zero and absolute beyond `beta`."""

    names = "nn.functional.smooth_l1_loss"

    def of(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
        warn_sizes(input, target)
        need(beta >= 0, f"smooth_l1_loss does not support negative values for beta, got {beta}.")
        if beta == 0.0:
            return _l1_loss(input, target, size_average, reduce, reduction)
        input, target = as_floats("smooth_l1_cpu", input, target)
        return _smooth_l1(input, target, reduction_of(reduction, size_average, reduce), beta)


class _huber(Composite):
    """Squared near zero, `delta` times absolute beyond it."""

    node = "HuberLossBackward0"

    def of(input, target, reduction, delta):
        d = (input - target).abs()
        delta = float(as_scalar(delta, d.dtype))             # of 16 bits, where the tensors are
        return reduced((0.5 * d * d).where(d <= delta, delta * (d - 0.5 * delta)), reduction)

    def grads(g, needs, input, target, reduction, delta):
        d = input - target
        made = spread(g, d._spec, reduction) * d.clamp(-delta, delta)
        return made if needs[0] else None, -made if needs[1] else None


class _huber_loss(Loss):
    """The mean of differences that are squared near zero and linear, with slope `delta`, beyond it."""

    names = "nn.functional.huber_loss"

    def of(input, target, reduction="mean", delta=1.0, weight=None):
        warn_sizes(input, target)
        need(delta > 0, f"huber_loss does not support non-positive values for delta, got {delta}.")
        given = input.dtype
        input, target = as_floats("huber_cpu", input, target)
        need(given.is_floating_point, f"result type {input.dtype.cname} can't be cast to the desired output type "
             f"{given.cname}: the input is {given.name}; use input.to(target.dtype)")
        reduction = reduction_of(reduction)
        if weight is not None:
            need(weight.shape == input.shape, "Weights and input must have the same size.", ValueError)
            return reduced(weight * _huber(input, target, "none", delta), reduction)
        made = _huber(input, target, reduction, delta)
        return made if made.dtype is given else made.to(given)


class _poisson_nll_loss(Loss):
    """The negative log likelihood of counts `target` under rates `input` (their logarithms, if `log_input`)."""

    names = "nn.functional.poisson_nll_loss"

    def of(input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"):
        reduction = reduction_of(reduction, size_average, reduce)
        loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
        if full:
            stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
            loss = loss + stirling.masked_fill(target <= 1, 0)
        return reduced(loss, reduction)


class _gaussian_nll_loss(Loss):
    """The negative log likelihood of `target` under normals with mean `input` and variance `var`."""

    names = "nn.functional.gaussian_nll_loss"

    def of(input, target, var, full=False, eps=1e-6, reduction="mean"):
        if not isinstance(var, door.tensor):
            need(isinstance(var, float), "var must be of type float or torch.Tensor", TypeError)
            need(var >= 0, "var has negative entry/entries", ValueError)
            var = var * input.new_ones(input.shape)
        if tuple(var.shape) != tuple(input.shape):
            if tuple(input.shape[:-1]) == tuple(var.shape):
                var = var.unsqueeze(-1)
            else:                             # one variance along one dimension
                differ = [n for n, m in zip(var.shape, input.shape) if n != m]
                need(var.dim() == input.dim() and differ == [1],
                     f"var is of incorrect size: {list(var.shape)} beside input {list(input.shape)}", ValueError)
        need(reduction in LOSS_REDUCTIONS, f"{reduction} is not valid", ValueError)
        if not var.is_meta:
            _not_negative(var.detach())
        held = var.clone()
        held.data.clamp_(min=eps)             # the variance is held up without a gradient, as PyTorch does it
        loss = 0.5 * (held.log() + (input - target) ** 2 / held)
        if full:
            loss = loss + 0.5 * math.log(2 * math.pi)
        return reduced(loss, reduction)


class _not_negative(Op):
    """`var`, refused where an element is below zero."""

    exact = True

    def meta(var): return var
    def ref(xp, var): return var

    def verify(var):
        below = var[var < 0]
        need(not below.size, f"var has negative entry/entries, found {below[:1].tolist()}", ValueError)

    def body(k, var): return var


# --- probabilities ----------------------------------------------------------------------------------------------------


class _bce(Composite):
    """Binary cross entropy of probabilities; logarithms are held at -100 or above."""

    node = "BinaryCrossEntropyBackward0"

    def of(input, target, weight, reduction):
        loss = (target - 1) * (-input).log1p().clamp(min=-100) - target * input.log().clamp(min=-100)
        return reduced(loss if weight is None else loss * weight, reduction)

    def d_input(g, input, target, weight, reduction):
        made = spread(g, input._spec, reduction) * (input - target) / ((1 - input) * input).clamp(min=1e-12)
        return made if weight is None else made * weight

    def d_target(g, input, target_spec, weight, reduction):
        made = spread(g, target_spec, reduction) * ((1 - input).log().clamp(min=-100) - input.log().clamp(min=-100))
        return made if weight is None else made * weight


class _inside_unit(Op):
    """`input`, refused unless every element lies between 0 and 1."""

    exact = True

    def meta(input, what): return input
    def ref(xp, input, what): return input

    def verify(input, what):
        outside = input[~((input >= 0) & (input <= 1))]
        need(not outside.size, f"all elements of {what} should be between 0 and 1, found {outside[:1].tolist()}")

    def body(k, input, what): return input


class _binary_cross_entropy(Loss):
    """The cross entropy of probabilities `input` and targets between 0 and 1."""

    names = "nn.functional.binary_cross_entropy"

    def of(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
        reduction = reduction_of(reduction, size_average, reduce)
        need(tuple(target.shape) == tuple(input.shape), f"Using a target size ({target.shape}) that is different to "
                                                        f"the input size ({input.shape}) is deprecated. Please ensure "
                                                        "they have the same size.", ValueError)
        need(target.dtype is input.dtype, f"Found dtype {target.dtype.cname} but expected {input.dtype.cname}")
        as_floats("binary_cross_entropy", input, target)
        if weight is not None:
            weight = weight.expand(shapes.broadcast(tuple(target.shape), tuple(weight.shape)))
        if not input.is_meta:
            _inside_unit(input.detach(), "input")
            _inside_unit(target.detach(), "target")
        return _bce(input, target, weight, reduction)


class _bce_logits(Composite):
    """Binary cross entropy of logits, steady for large ones."""

    node = "BinaryCrossEntropyWithLogitsBackward0"

    def of(input, target, weight, pos_weight, reduction):
        rest = (-input.abs()).exp().log1p() + (-input).clamp(min=0)           # -log sigmoid(input)
        if pos_weight is not None:
            loss = (1 - target) * input + ((pos_weight - 1) * target + 1) * rest
        else:
            loss = (1 - target) * input + rest
        return reduced(loss if weight is None else loss * weight, reduction)

    def d_input(g, input, target, weight, pos_weight, reduction):
        s = input.sigmoid()
        if pos_weight is None:
            made = s - target
        else:
            t = pos_weight * target
            made = (t + 1 - target) * s - t
        made = made * spread(g, made._spec, reduction)
        return made if weight is None else made * weight

    def d_target(g, input, target_spec, weight, pos_weight, reduction):
        made = -input
        if pos_weight is not None:
            n = (-input.abs()).exp().log1p() + (-input).clamp(min=0)
            made = (pos_weight - 1) * n - input
        made = made * spread(g, target_spec, reduction)
        return made if weight is None else made * weight


class _binary_cross_entropy_with_logits(Loss):
    """The cross entropy of the sigmoid of `input` and targets between 0 and 1, computed steadily from the logits."""

    names = "nn.functional.binary_cross_entropy_with_logits"

    def of(input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None):
        need(tuple(target.shape) == tuple(input.shape), f"Target size ({target.shape}) must be the same as input size "
             f"({input.shape})", ValueError)
        need(input.dtype.category >= 2, f"\"log_sigmoid_cpu\" not implemented for '{input.dtype.cname}'",
             NotImplementedError)
        need(target.dtype.category >= 2, f"result type {input.dtype.cname} can't be cast to the desired output type "
             f"{target.dtype.cname}: the target is {target.dtype.name}, and {input.dtype.name} is wanted; use "
             "target.to(input.dtype)")
        return _bce_logits(input, target, weight, pos_weight, reduction_of(reduction, size_average, reduce))


class _kl_div(Loss):
    """The Kullback-Leibler divergence of `target` from the log-probabilities `input`."""

    names = "nn.functional.kl_div"

    def of(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
        flagged = size_average is not None or reduce is not None
        if reduction == "mean" and not flagged:
            warn("reduction: 'mean' divides the total loss by both the batch size and the support size. 'batchmean' "
                 "divides only by the batch size, and aligns with the KL div math definition.")
        for t in (input, target):
            need(t.dtype.category > 1, f"kl_div: Integral inputs not supported. Got {t.dtype.name}; use .float()")
            need(not t.dtype.is_complex, f"kl_div: Complex inputs not supported. Got {t.dtype.name}")
        mean = reduction == "batchmean" and not flagged
        reduction = "sum" if mean else reduction_of(reduction, size_average, reduce)
        loss = target.exp() * (target - input) if log_target else target.xlogy(target) - target * input
        made = reduced(loss, reduction)
        return made / input.shape[0] if mean and input.dim() else made


class _nll(Op):
    """(the negative log likelihood of class indices, the total weight)."""

    node = "NllLossBackward0"
    nondiff = (1,)

    def meta(input, target, weight, reduction, ignore_index):
        classes = input.shape[class_dim(input)]
        total = spec(dtypes.from_numpy(input.dtype.compute), (), None, input.device)
        if weight is not None:
            need(weight.ndim == 1 and weight.shape[0] == classes, "weight tensor should be defined either for all "
                 f"{classes} classes or no classes but got weight tensor of shape: {list(weight.shape)}")
            need(weight.dtype is input.dtype, f"expected scalar type {input.dtype.cname} but found "
                                              f"{weight.dtype.cname}")
        need(target.dtype in (dtypes.int64, dtypes.uint8), "expected target dtype to be Long or Byte, but got "
                                                           f"{target.dtype.cname}; .long() converts class numbers")
        need(input.dtype.is_floating_point, f"\"nll_loss_out_frame\" not implemented for '{input.dtype.cname}'",
             NotImplementedError)
        return spec(input.dtype, target.shape if reduction == "none" else (), None, input.device), total

    def verify(target, input_spec, ignore_index):
        classes = input_spec.shape[class_dim(input_spec)]
        if target.size and target.view(f"u{target.itemsize}").max() < classes:       # a negative one is huge there
            return
        wrong = target[((target < 0) | (target >= classes)) & (target != ignore_index)]
        need(not wrong.size, f"Target {wrong.reshape(-1)[:1].tolist()[0] if wrong.size else ''} is out of bounds: it "
                             f"must lie in [0, {classes - 1}] or be ignore_index={ignore_index}.", IndexError)

    def ref(xp, input, target, weight, reduction, ignore_index):
        picked, factor = pick(xp, input, target, weight, ignore_index)
        return averaged(-picked * factor, factor, reduction)

    def d_input(g, input_spec, target, weight, reduction, ignore_index, out1):
        total = out1 if reduction == "mean" else None
        return _nll_backward(g[0], target, weight, total, input_spec.shape, ignore_index)

    def body(k, input, target, weight, reduction, ignore_index):
        classes, at, used, factor = class_body(k, input, target, weight, ignore_index)
        loss = k.where(used, -k.gather(input, classes, at) * factor, 0)
        return averaged_body(k, loss, factor, reduction)


class _nll2d(_nll):
    """`_nll` with further dimensions after the classes."""

    node = "NllLoss2DBackward0"


def class_dim(input):
    """Which dimension of `input` the classes are: [C] or [N, C, ...]."""
    return 1 if input.ndim > 1 else 0


def pick(xp, input, target, weight, ignore_index):
    """(the log probability of each target's class, its weight), zero where it is ignored."""
    classes = class_dim(input)
    target = target.astype(xp.int64)
    used = target != ignore_index
    safe = xp.where(used, target, 0)
    if input.shape[classes] == 0:
        return xp.zeros(target.shape, input.dtype), xp.zeros(target.shape, input.dtype)
    picked = xp.take_along_axis(input, xp.expand_dims(safe, classes), classes).squeeze(classes)
    factor = used.astype(input.dtype) if weight is None else xp.where(used, weight[safe], weight.dtype.type(0))
    return xp.where(used, picked, xp.zeros((), input.dtype)), factor


def class_body(k, input, target, weight, ignore_index):
    """For a body: (dimension of the classes, each target with a one there, whether it counts, its weight).

    A target that does not count is class 0.
    """
    classes = class_dim(input)
    at = k.reshape(k.cast(target, dtypes.int64), (*input.shape[:classes], 1, *input.shape[classes + 1:]))
    used = at != ignore_index
    at = k.where(used, at, 0)
    factor = k.cast(used, input.dtype) if weight is None else k.where(used, rows_at(k, weight, 0, at), 0)
    return classes, at, used, factor


def averaged(loss, factor, reduction):
    """(the loss as `reduction` asks, the total weight), from arrays."""
    total = factor.sum()
    if reduction == "none":
        return loss, total
    return (loss.sum() / total if reduction == "mean" else loss.sum()), total


def averaged_body(k, loss, factor, reduction):
    """`averaged` in expressions."""
    every = tuple(range(loss.ndim))
    total = k.sum(factor, every)
    if reduction == "none":
        return loss, total
    return (k.sum(loss, every) / total if reduction == "mean" else k.sum(loss, every)), total


class _nll_backward(Op):
    """Minus `grad` (over `total`, if given) times the class weight at each target's class, zero elsewhere."""

    def meta(grad, target, weight, total, shape, ignore_index):
        return spec(grad.dtype, tuple(shape), None, grad.device)

    def ref(xp, grad, target, weight, total, shape, ignore_index):
        out = xp.zeros(shape, grad.dtype)
        _, factor = pick(xp, out, target, weight, ignore_index)
        classes = class_dim(out)
        safe = xp.expand_dims(xp.where(target != ignore_index, target.astype(xp.int64), 0), classes)
        if out.size:
            made = -xp.broadcast_to(grad if total is None else grad / total, target.shape) * factor
            xp.put_along_axis(out, safe, xp.expand_dims(made, classes), classes)
        return out

    def grads(v, needs, grad, target, weight, total, ignore_index):
        made, _ = _nll(v, target, weight, "none", ignore_index)
        made = made if total is None else made / total
        return (made, *[None] * (len(needs) - 1))

    def body(k, grad, target, weight, total, shape, ignore_index):
        like = k.expand(k.const(0, grad.dtype), shape)
        classes, at, used, factor = class_body(k, like, target, weight, ignore_index)
        return k.where((k.index(classes, shape) == at) & used, -row_scale(k, grad, total, factor), 0)


def row_scale(k, grad, total, factor):
    """For a body: the gradient of each row's own loss, times its weight."""
    grad = grad if total is None else grad / total
    return (k.reshape(grad, factor.shape) if grad.ndim else grad) * factor


class _nll_loss(Loss):
    """The negative log likelihood of class indices `target` under log-probabilities `input` [N, C, ...]."""

    names = "nn.functional.nll_loss"

    def of(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
        return nll(input, target, weight, reduction_of(reduction, size_average, reduce), ignore_index)


def nll(input, target, weight, reduction, ignore_index, flat=_nll, deep=_nll2d):
    """`nll_loss` with its checks; `flat` and `deep` are the operations for [N, C] and [N, C, ...]."""
    if input._spec.ndim == 2 and target._spec.shape == input._spec.shape[:1]:
        return flat(input, target, weight, reduction, ignore_index)[0]
    need(input.dim() > 0, f"Expected 1 or more dimensions (got {input.dim()})", ValueError)
    if input.dim() == 1:
        need(target.dim() <= 1, "0D or 1D target tensor expected, multi-target not supported: got "
                                f"{list(target.shape)}")
        need(target.dim() == 0 or target.shape[0] == 1, "For 1D input, 1D target must have size 1, but got target "
                                                        f"size: {target.shape[0] if target.dim() else 1}", ValueError)
        if target.dim():
            target = target.squeeze(0)
        return flat(input, target, weight, reduction, ignore_index)[0]
    batch = target.shape[0] if target.dim() else 0
    need(target.dim() and batch == input.shape[0], f"Expected input batch_size ({input.shape[0]}) to match target "
                                                   f"batch_size ({batch}).", ValueError)
    if input.dim() == 2:
        need(target.dim() == 1, "0D or 1D target tensor expected, multi-target not supported: got "
             f"{list(target.shape)} beside input {list(input.shape)}")
        return flat(input, target, weight, reduction, ignore_index)[0]
    need(tuple(target.shape[1:]) == tuple(input.shape[2:]), "Expected target size "
                                                            f"{[input.shape[0], *input.shape[2:]]}, got "
         f"{list(target.shape)}")
    return deep(input, target, weight, reduction, ignore_index)[0]


class _class_entropy(_nll):
    """`_nll` of the log_softmax of `input`; two results more keep each row's maximum and its log of the summed rest.

    The maximum is only a shift, the same result for any, so it counts as a constant in derivatives.
    """

    nondiff = (1, 2)

    def meta(input, target, weight, reduction, ignore_index):
        classes = class_dim(input)
        not_for(input.dtype, "bool int complex", "log_softmax_lastdim_kernel_impl")
        loss, total = _nll.meta(input, target, weight, reduction, ignore_index)
        row = spec(total.dtype, (*input.shape[:classes], 1, *input.shape[classes + 1:]), None, input.device)
        return loss, total, row, row

    def ref(xp, input, target, weight, reduction, ignore_index):
        classes = class_dim(input)
        top = xp.max(input, axis=classes, keepdims=True, initial=-math.inf)
        rest = xp.log(xp.sum(xp.exp(input - top), axis=classes, keepdims=True))
        picked, factor = pick(xp, input - top - rest, target, weight, ignore_index)
        return *averaged(-picked * factor, factor, reduction), top, rest

    def d_input(g, input, target, weight, reduction, ignore_index, out1, out2, out3):
        made = None
        if g[0] is not None:
            total = out1 if reduction == "mean" else None
            made = _class_entropy_backward(g[0], input, out2, out3, target, weight, total, ignore_index)
        if g[3] is not None:
            more = g[3] * (wide(input) - out2 - out3).exp()
            made = more if made is None else made + more
        return made

    def body(k, input, target, weight, reduction, ignore_index):
        classes, at, used, factor = class_body(k, input, target, weight, ignore_index)
        top = k.top(input, classes)
        rest = k.log(k.sum(k.exp(input - top), classes))
        loss = k.where(used, (rest - (k.gather(input, classes, at) - top)) * factor, 0)
        return *averaged_body(k, loss, factor, reduction), top, rest


class _class_entropy2d(_class_entropy):
    """`_class_entropy` with further dimensions after the classes."""

    node = "NllLoss2DBackward0"


class _class_entropy_backward(Op):
    """The softmax of `input` less one at each target's class, times `grad` (over `total`, if given) and its weight."""

    def meta(grad, input, top, rest, target, weight, total, ignore_index):
        return spec(input.dtype, input.shape, None, input.device)

    def ref(xp, grad, input, top, rest, target, weight, total, ignore_index):
        classes = class_dim(input)
        _, factor = pick(xp, input, target, weight, ignore_index)
        hot = xp.arange(input.shape[classes]).reshape(-1, *[1] * (input.ndim - classes - 1))
        hot = hot == xp.expand_dims(target, classes)
        row = xp.expand_dims((grad if total is None else grad / total) * factor, classes)
        used = xp.expand_dims(target != ignore_index, classes)
        return xp.where(used, (xp.exp(input - top - rest) - hot) * row, input.dtype.type(0))

    def grads(v, needs, grad, input, top, rest, target, weight, total, ignore_index):
        classes = class_dim(input._spec)
        at = target.long().unsqueeze(classes)
        used = at != ignore_index
        at = at.masked_fill(~used, 0)
        factor = used if weight is None else weight[at] * used
        factor = factor if total is None else factor / total
        v = wide(v)
        vp = v * (wide(input) - top - rest).exp()
        d_grad = ((vp.sum(classes, True) - v.gather(classes, at)) * factor).squeeze(classes)
        d_input = vp * (grad if not grad.dim() else grad.unsqueeze(classes)) * factor
        return (d_grad, d_input, None, -d_input, *[None] * (len(needs) - 4))

    def body(k, grad, input, top, rest, target, weight, total, ignore_index):
        classes, at, used, factor = class_body(k, input, target, weight, ignore_index)
        hot = k.cast(k.index(classes, input.shape) == at, input.dtype)
        row = row_scale(k, grad, total, factor)
        return k.where(used, (k.exp(input - top - rest) - hot) * row, 0)


class _cross_entropy(Loss):
    """The cross entropy of logits `input` [N, C, ...] with class indices, or class probabilities, `target`.

    >>> torch.nn.functional.cross_entropy(torch.tensor([[2., 0.]]), torch.tensor([0]))
    tensor(0.1269)
    """

    names = "nn.functional.cross_entropy"

    def of(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
           label_smoothing=0.0):
        reduction = reduction_of(reduction, size_average, reduce)
        if not 0 <= label_smoothing <= 1:
            need(False, f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
        classes = 0 if input.dim() == 1 else 1
        if input._spec.shape == target._spec.shape:
            need(target.is_floating_point(), "Expected floating point type for target with class probabilities, got "
                                             f"{target.dtype}")
            need(ignore_index < 0, f"ignore_index is not supported for floating point target, got {ignore_index}")
            return _soft_targets(input, target, weight, reduction, label_smoothing, classes)
        if label_smoothing > 0 or not input.dim():             # log_softmax refuses a number, as it does in PyTorch
            logs = input.log_softmax(classes)
            return _smoothed(logs, target, weight, reduction, ignore_index, label_smoothing, classes)
        return nll(input, target, weight, reduction, ignore_index, _class_entropy, _class_entropy2d)


def _soft_targets(input, target, weight, reduction, smoothing, classes):
    n = input.shape[classes]
    if smoothing > 0:
        target = target * (1 - smoothing) + smoothing / n
    logs = input.log_softmax(classes)
    if weight is not None:
        shape = [1] * input.dim()
        shape[classes] = n
        logs = logs * weight.view(shape)
    loss = logs * target
    if reduction == "none":
        return -loss.sum(classes)
    if reduction == "sum":
        return -loss.sum()
    return -loss.sum() / (input.numel() // n if n else 0)


def _smoothed(logs, target, weight, reduction, ignore_index, smoothing, classes):
    hard = nll(logs, target, weight, reduction, ignore_index)
    n = logs.shape[classes]
    if weight is not None:
        shape = [1] * logs.dim()
        shape[classes] = n
        smooth = -(logs * weight.view(shape)).sum(classes)
    else:
        smooth = -logs.sum(classes)
    ignored = target == ignore_index
    smooth = smooth.masked_fill(ignored if ignored.dim() == smooth.dim() else ignored.squeeze(), 0)
    if reduction == "mean":
        if weight is not None:
            total = weight.gather(0, target.masked_fill(ignored, 0).flatten()).masked_fill(ignored.flatten(), 0).sum()
        else:
            total = ignored.logical_not().sum()
        smooth = smooth.sum() / total
    elif reduction == "sum":
        smooth = smooth.sum()
    return (1 - smoothing) * hard + smooth * (smoothing / n)


# --- margins ----------------------------------------------------------------------------------------------------------


class _soft_margin(Composite):
    """log(1 + exp(-target * input))."""

    node = "SoftMarginLossBackward0"

    def of(input, target, reduction): return reduced((target * -input).exp().log1p(), reduction)

    def d_input(g, input, target, reduction):
        z = (target * -input).exp()
        return target * -z / (1 + z) * spread(g, input._spec, reduction)


class _soft_margin_loss(Loss):
    """The mean of log(1 + exp(-target * input)), with targets 1 and -1."""

    names = "nn.functional.soft_margin_loss"

    def of(input, target, size_average=None, reduce=None, reduction="mean"):
        made = dtypes.promote_types(dtypes.promote_types(input.dtype, dtypes.default), target.dtype)
        need(input.dtype is dtypes.bool or dtypes.can_cast(made, input.dtype), f"result type {made.cname} can't be "
             f"cast to the desired output type {input.dtype.cname}; use input.to(torch.{made.name})")
        loss = _soft_margin(input, target, reduction_of(reduction, size_average, reduce))
        return loss if loss.dtype is input.dtype else loss.to(input.dtype)


class _hinge_embedding_loss(Loss):
    """`input` where the target is 1, and how far it is below `margin` where the target is -1."""

    names = "nn.functional.hinge_embedding_loss"

    def of(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
        below = (margin - input).clamp(min=0).where(target != 1, input.new_zeros(()))
        loss = below + input.where(target != -1, input.new_zeros(()))
        return reduced(loss, reduction_of(reduction, size_average, reduce))


class _margin_ranking_loss(Loss):
    """How far `input1` fails to rank above `input2` (target 1) or below it (target -1) by `margin`."""

    names = "nn.functional.margin_ranking_loss"

    def of(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
        need(input1.dim() == input2.dim() == target.dim(), "margin_ranking_loss : All input tensors should have same "
                                                           f"dimension but got sizes: input1: {input1.shape}, input2: "
                                                           f"{input2.shape}, target: {target.shape} ")
        loss = (-target * (input1 - input2) + float(margin)).clamp(min=0)
        return reduced(loss, reduction_of(reduction, size_average, reduce))


class _cosine_embedding_loss(Loss):
    """One minus the cosine of two vectors where the target is 1, its excess over `margin` where it is -1."""

    names = "nn.functional.cosine_embedding_loss"

    def of(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
        need(target.dim() in (0, 1), "0D or 1D target tensor expected, multi-target not supported: got "
                                     f"{list(target.shape)}")
        if target.dim() == 1:
            need(input1.dim() == 2 and input2.dim() == 2, "1D target tensor expects 2D input tensors, but found inputs "
                                                          f"with sizes {list(input1.shape)} and {list(input2.shape)}.")
        else:
            need(input1.dim() == 1 and input2.dim() == 1, "0D target tensor expects 1D input tensors, but found inputs "
                                                          f"with sizes {list(input1.shape)} and {list(input2.shape)}.")
        tiny = 1e-12
        product = (input1 * input2).sum(-1)
        size = ((input1 * input1).sum(-1) + tiny) * ((input2 * input2).sum(-1) + tiny)
        cosine = product / size.sqrt()
        zero = cosine.new_zeros(())
        loss = (1 - cosine).where(target == 1, zero) + (cosine - margin).clamp(min=0).where(target == -1, zero)
        return reduced(loss, reduction_of(reduction, size_average, reduce))


class _triplet_margin_loss(Loss):
    """How far `anchor` fails to be nearer to `positive` than to `negative` by `margin`."""

    names = "nn.functional.triplet_margin_loss"

    def of(anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, size_average=None, reduce=None,
           reduction="mean"):
        need(margin > 0, f"margin must be greater than 0, got {margin}", ValueError)
        same_dims(anchor, positive, negative)
        near, far = row_distance(anchor, positive, p, eps), row_distance(anchor, negative, p, eps)
        if swap:
            far = far.minimum(row_distance(positive, negative, p, eps))
        return reduced((margin + near - far).clamp(min=0), reduction_of(reduction, size_average, reduce))


def same_dims(anchor, positive, negative):
    need(anchor.dim() == positive.dim() == negative.dim(), "The anchor, positive, and negative tensors are expected to "
         f"have the same number of dimensions, but got: anchor {anchor.dim()}D, positive {positive.dim()}D, and "
         f"negative {negative.dim()}D inputs")


def row_distance(a, b, p, eps):
    """The p-norm distance of rows, `eps` added to each difference."""
    return (a - b + eps).norm(p, -1)


class _triplet_margin_with_distance_loss(Loss):
    """The triplet loss with a distance of the caller's."""

    names = "nn.functional.triplet_margin_with_distance_loss"

    def of(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"):
        need(margin > 0, f"margin must be greater than 0, got {margin}", ValueError)
        same_dims(anchor, positive, negative)
        measure = distance_function or (lambda a, b: row_distance(a, b, 2, 1e-6))
        near, far = measure(anchor, positive), measure(anchor, negative)
        if swap:
            far = far.minimum(measure(positive, negative))
        return reduced((margin + near - far).clamp(min=0), reduction_of(reduction))


class _multi_margin(Composite):
    """How far other classes come within `margin` of the target's, to the power `p`."""

    node = "MultiMarginLossBackward0"

    def of(input, target, p, margin, weight, reduction):
        target_dims = target.dim()
        rows, target = (input.reshape(1, -1), target.reshape(1)) if input.dim() < 2 else (input, target)
        own = rows.gather(1, target.unsqueeze(1))
        z = (margin - own + rows).clamp(min=0)
        z = z if p == 1 else z * z
        if weight is not None:
            z = z * weight[target].unsqueeze(1)
        loss = z.scatter(1, target.unsqueeze(1), 0).sum(1) / max(rows.shape[1], 1)
        if target_dims == 0:
            loss = loss.squeeze(0)
        return reduced(loss, reduction)

    def d_input(g, input, target, p, margin, weight, reduction):
        rows, target = (input.reshape(1, -1), target.reshape(1)) if input.dim() < 2 else (input, target)
        at = target.unsqueeze(1)
        z = margin - rows.gather(1, at) + rows
        slope = (z > 0).to(rows.dtype) if p == 1 else 2 * z.clamp(min=0)
        if weight is not None:
            slope = slope * weight[target].unsqueeze(1)
        slope = slope.scatter(1, at, 0) / max(rows.shape[1], 1)
        slope = slope.scatter(1, at, -slope.sum(1, keepdim=True))
        if reduction == "mean":
            slope = slope / max(rows.shape[0], 1)
        made = slope * (g.reshape(-1, 1) if reduction == "none" else g)
        return made.reshape(input.shape)


class _multi_margin_loss(Loss):
    """The mean, over classes, of how far each comes within `margin` of the target's class."""

    names = "nn.functional.multi_margin_loss"

    def of(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
        reduction = reduction_of(reduction, size_average, reduce)
        need(p in (1, 2), f"only p == 1 and p == 2 supported, got {p}", ValueError)
        classes = input.shape[-1] if input.dim() else 1
        need(input.dim() <= 2 and classes and (input.dim() < 2 or input.shape[1] != 0),
             f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(input.shape)}")
        rows = input.shape[0] if input.dim() == 2 else 1
        need(target.dim() <= 1 and target.numel() == rows, "target tensor should be 1-D with size equal to the number "
             f"of input samples (batch size). Expected target size [{rows}], but got {list(target.shape)}. Input has "
             f"shape {list(input.shape)}.")
        if weight is not None:
            need(weight.dim() == 1, f"weight must be one-dimensional, got {list(weight.shape)}", ValueError)
            need(weight.numel() == classes, f"inconsistent weight size, expected {classes} but got "
                 f"{list(weight.shape)}")
        need(target.dtype is dtypes.int64, f"expected scalar type Long but found {target.dtype.cname}")
        if not target.is_meta:
            _class_check(target, classes, 0)
        return _multi_margin(input, target, p, margin, weight, reduction)


class _class_check(Op):
    """`target`, refused unless every element is a class number, or not below `low`."""

    exact = True

    def meta(target, classes, low): return target
    def ref(xp, target, classes, low): return target

    def verify(target, classes, low):
        wrong = target[(target < low) | (target >= classes)]
        need(not wrong.size, f"argument #2 'target' is out of range: found {wrong.reshape(-1)[:1].tolist()}, there are "
             f"{classes} classes (target out of range)")

    def body(k, target, classes, low): return target


class _multilabel_soft_margin_loss(Loss):
    """The mean, over classes, of the binary cross entropy of logits."""

    names = "nn.functional.multilabel_soft_margin_loss"

    def of(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
        loss = -(target * _logsigmoid(input) + (1 - target) * _logsigmoid(-input))
        if weight is not None:
            loss = loss * weight
        return reduced(loss.sum(-1) / input.shape[-1], reduction_of(reduction, size_average, reduce))


class _multilabel_margin_loss(Loss):
    """The mean, over pairs of a target and another class, of how far the other comes within one of the target."""

    names = "nn.functional.multilabel_margin_loss"

    def of(input, target, size_average=None, reduce=None, reduction="mean"):
        reduction = reduction_of(reduction, size_average, reduce)
        need(tuple(input.shape) == tuple(target.shape), f"inconsistent target size: {list(target.shape)} for input of "
                                                        f"size: {list(input.shape)}")
        need(input.dim() <= 2 and 0 not in input.shape[-1:], "Expected non-empty vector or matrix with optional 0-dim "
                                                             f"batch size, but got: {list(input.shape)}")
        need(target.dtype is dtypes.int64, f"expected scalar type Long but found {target.dtype.cname}")
        if not target.is_meta:
            _class_check(target, input.shape[-1] if input.dim() else 1, -1)
        rows, t = (input, target) if input.dim() == 2 else (input.reshape(1, -1), target.reshape(1, -1))
        listed = (t >= 0).cumprod(1).bool()                        # targets end at the first -1
        safe = t.masked_fill(~listed, 0)
        is_target = rows.new_zeros(rows.shape).scatter_add(1, safe, listed.to(rows.dtype)) > 0
        own = rows.gather(1, safe)                                 # (N, C) score of each listed target
        z = (1 - own.unsqueeze(2) + rows.unsqueeze(1)).clamp(min=0)
        use = listed.unsqueeze(2) & ~is_target.unsqueeze(1)
        loss = z.masked_fill(~use, 0).sum((1, 2)) / max(rows.shape[1], 1)
        return reduced(loss if input.dim() == 2 else loss.squeeze(0), reduction)


# --- sequences --------------------------------------------------------------------------------------------------------


class _ctc(Op):
    """(the negative log likelihood of each target sequence summed over alignments, d loss / d log_probs)."""

    node = "CtcLossBackward0"
    nondiff = (1,)

    def meta(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
        dtype, where = log_probs.dtype, log_probs.device
        return spec(dtype, (log_probs.shape[1],), None, where), spec(dtype, log_probs.shape, None, where)

    def ref(xp, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
        steps, batch, _ = log_probs.shape
        loss, grad = xp.zeros(batch), xp.zeros(log_probs.shape)
        for b in range(batch):
            start = sum(target_lengths[:b]) if targets.ndim == 1 else 0
            row = targets if targets.ndim == 1 else targets[b]
            labels = [int(c) for c in row[start:start + target_lengths[b]]]
            t = input_lengths[b]
            loss[b], grad[:t, b] = alignments(xp, log_probs[:t, b].astype(np.float64), labels, blank)
            if zero_infinity and xp.isinf(loss[b]):
                loss[b], grad[:, b] = 0, 0
        return loss, grad

    def d_log_probs(g, out1): return g[0].unsqueeze(0).unsqueeze(2) * out1


def alignments(xp, log_probs, labels, blank):
    """(minus the log of the total probability of all alignments, its gradient for `log_probs`), forward-backward."""
    steps, _ = log_probs.shape
    path = [blank]
    for label in labels:
        path += [label, blank]
    path = xp.asarray(path)
    n = len(path)
    if steps == 0:
        return (0.0 if not labels else xp.inf), xp.zeros_like(log_probs)
    # from two before, unless that would skip over a blank between two equal labels
    skip = xp.zeros(n, bool)
    skip[2:] = (path[2:] != blank) & (path[2:] != path[:-2])
    emit = log_probs[:, path]                                       # (T, S)
    a = xp.full((steps, n), -xp.inf)
    a[0, :2] = emit[0, :2]
    for t in range(1, steps):
        best = a[t - 1].copy()
        best[1:] = xp.logaddexp(best[1:], a[t - 1, :-1])
        best[2:] = xp.where(skip[2:], xp.logaddexp(best[2:], a[t - 1, :-2]), best[2:])
        a[t] = best + emit[t]
    b = xp.full((steps, n), -xp.inf)
    b[-1, -2:] = emit[-1, -2:]
    for t in range(steps - 2, -1, -1):
        best = b[t + 1].copy()
        best[:-1] = xp.logaddexp(best[:-1], b[t + 1, 1:])
        best[:-2] = xp.where(skip[2:], xp.logaddexp(best[:-2], b[t + 1, 2:]), best[:-2])
        b[t] = best + emit[t]
    total = xp.logaddexp.reduce(a[-1, -2:])
    if not xp.isfinite(total):
        return -total, xp.full_like(log_probs, xp.nan)
    # PyTorch's gradient takes log_probs to be normalised: it is the one for the logits behind them.
    grad = xp.exp(log_probs)
    share = xp.exp(a + b - emit - total)                            # probability of being at s at time t
    xp.add.at(grad, (xp.arange(steps)[:, None], path[None]), -share)
    return -total, grad


class _ctc_loss(Loss):
    """The connectionist temporal classification loss of log-probabilities [T, N, C] and target sequences."""

    names = "nn.functional.ctc_loss"

    def of(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
        need(log_probs.dim() in (2, 3), f"log_probs must have 2 or 3 dimensions, got {list(log_probs.shape)}")
        single = log_probs.dim() == 2
        probs = log_probs.unsqueeze(1) if single else log_probs
        if single and targets.dim() == 1:
            targets = targets.unsqueeze(0)
        ins, outs = lengths(input_lengths, "input_lengths"), lengths(target_lengths, "target_lengths")
        steps, batch, classes = probs.shape
        need(probs.numel(), f"log_probs tensor must not be empty, got {list(log_probs.shape)}")
        need(0 <= blank < classes, f"blank must be in label range, got {blank} of {classes}")
        need(len(ins) == batch, f"input_lengths must be of size batch_size, got {len(ins)} for {batch}")
        need(len(outs) == batch, f"target_lengths must be of size batch_size, got {len(outs)} for {batch}")
        need(all(0 <= n <= steps for n in ins), f"Expected input_lengths to have value at most {steps}, but got "
                                                f"{list(ins)}")
        need(all(n >= 0 for n in outs), f"Expected target_lengths to have value at least 0, but got {list(outs)}")
        need(targets.dtype in (dtypes.int64, dtypes.int32), "ctc_loss targets must be int32 or int64, got "
                                                            f"{targets.dtype}")
        limit = targets.shape[1] if targets.dim() == 2 else targets.shape[0]
        need(all(n <= limit for n in outs) if targets.dim() == 2 else sum(outs) <= limit,
             f"Expected tensor to have size at least {max(outs, default=0)} at dimension 1, but got size {limit} for "
             "targets")
        loss = _ctc(probs, targets, ins, outs, blank, zero_infinity)[0]
        if reduction_of(reduction) == "mean":
            return (loss / loss.new_tensor([max(n, 1) for n in outs])).mean()
        if reduction == "sum":
            return loss.sum()
        return loss.squeeze(0) if single else loss


class ctc_loss(Composite):
    """The same as `nn.functional.ctc_loss`, with `reduction` as a number: 0 for "none", 1 for "mean", 2 for "sum"."""

    forms = "function"

    def of(log_probs, targets, input_lengths, target_lengths, blank=0, reduction=0, zero_infinity=False):
        need(reduction in (0, 1, 2), f"reduction must be 0, 1 or 2 here, got {reduction!r}", TypeError)
        return _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, ("none", "mean", "sum")[reduction],
                         zero_infinity)


def lengths(given, name):
    """Lengths as a tuple of ints, from a tensor or a sequence."""
    made = given.tolist() if isinstance(given, door.tensor) else given
    made = [made] if isinstance(made, int) else list(made)
    need(all(isinstance(n, int) for n in made), f"{name} must be integral, got {made}", TypeError)
    return tuple(made)
