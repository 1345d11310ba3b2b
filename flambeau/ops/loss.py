"""Losses: how far predictions are from targets, summed, averaged or left per element.

Those that PyTorch records as one node carry their closed-form derivative; the others are built from other operations.
"""
import math

from ..base import dtypes
from ..base.arguments import as_scalar
from ..base.bounds import outside
from ..base.errors import need, warn
from ..base.op import Composite, Op, door
from .activation import _logsigmoid

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
        floored = var.clone()
        floored.data.clamp_(min=eps)          # the variance is raised without a gradient, as PyTorch does it
        loss = 0.5 * (floored.log() + (input - target) ** 2 / floored)
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
    by_bounds = "target"

    def meta(target, classes, low): return target
    def ref(xp, target, classes, low): return target

    def verify(target, classes, low):
        wrong = outside(target, low, classes - 1)
        need(wrong is None, f"argument #2 'target' is out of range: found [{wrong}], there are {classes} "
             "classes (target out of range)")

    def bounds(classes, low): return low, max(classes - 1, low)

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
