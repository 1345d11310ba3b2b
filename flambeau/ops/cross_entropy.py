"""Losses of probabilities: cross entropies of two and of many classes, and divergences."""
import math

from ..base import dtypes, shapes
from ..base.bounds import outside
from ..base.errors import need, warn
from ..base.op import Composite, Op
from ..base.spec import spec
from .index import rows_at
from .loss import Loss, as_floats, reduced, reduction_of, spread
from .norm import wide
from .reduce import not_for


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
    by_bounds = "target"

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
        if outside(target, 0, classes - 1) is None:
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
