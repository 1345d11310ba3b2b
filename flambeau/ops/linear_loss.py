"""The cross entropy of a linear layer's logits: at once, or a few samples at a time so that the logits stay small."""
from ..base import dtypes
from ..base.errors import need, warn
from ..base.op import Composite
from .cross_entropy import _class_entropy, _class_entropy_backward, _cross_entropy
from .loss import Loss, reduction_of
from .matmul import _linear
from .pieces import cat


class _linear_cross_entropy(Loss):
    """The cross entropy of the logits `input @ linear_weight.T + linear_bias` with `target`.

    >>> torch.nn.functional.linear_cross_entropy(torch.tensor([[1.]]), torch.tensor([[2.], [0.]]), torch.tensor([0]))
    tensor(0.1269)
    """

    names = "nn.functional.linear_cross_entropy"

    def of(input, linear_weight, target, *, linear_bias=None, weight=None, reduction="mean", ignore_index=None,
           label_smoothing=0.0, options=None):
        need(linear_weight.dim() >= 2, "expected linear_weight with dimensionality at least 2, got "
                                       f"{linear_weight.dim()}")
        need(input.dim() in (1, 2), f"expected input with dimensionality 1 or 2, got {input.dim()}")
        classes, *deep, features = linear_weight._spec.shape
        need(input.shape[-1] == features, "expected equal input and linear_weight last dimensions (in_features), got "
                                          f"{input.shape[-1]} and {features}, respectively")
        need(not deep or input.dim() == 2, "K-dimensional loss defined by linear_weight shape "
             f"{(classes, *deep, features)} requires batched input, (N, {features}), got unbatched input with shape "
             f"{tuple(input.shape)}")
        need(linear_bias is None or linear_bias._spec.shape == (classes, *deep), "expected linear_bias shape "
             f"{(classes, *deep)}, got {linear_bias is not None and tuple(linear_bias.shape)}")
        if target.is_floating_point():
            need(ignore_index is None, "ignore_index cannot be specified when target contains probabilities, got "
                                       f"ignore_index={ignore_index}")
        ignored = -100 if ignore_index is None else ignore_index
        reduction_of(reduction)
        if options is not None:
            if not label_smoothing and target.dtype is dtypes.int64 and not deep:
                rows = rows_of(options, 1 if input.dim() == 1 else input.shape[0], features, classes)
                return in_parts(input, linear_weight, linear_bias, weight, target, reduction, ignored, rows,
                                options.acc_dtype)
            warn("linear_cross_entropy: ``options`` ignored; the chunked path needs label_smoothing == 0, target.dtype "
                 f"== int64, out_features == (). Got label_smoothing={label_smoothing}, target.dtype={target.dtype}, "
                 f"out_features={tuple(deep)}.")
        if deep:
            linear_weight = linear_weight.flatten(0, -2)
            linear_bias = None if linear_bias is None else linear_bias.flatten()
        logits = _linear(input, linear_weight, linear_bias)
        logits = logits.unflatten(-1, (classes, *deep)) if deep else logits
        return _cross_entropy(logits, target, weight, None, ignored, None, reduction, label_smoothing)


def rows_of(options, batch, features, classes):
    """How many samples to take at a time. By an aspect ratio of r, their logits are r times as large as all inputs."""
    if options.batch_chunk_size is not None:
        return options.batch_chunk_size
    if options.chunking_method is None:
        return max(batch, 1)
    ratio = int(options.chunking_method.partition(":")[2] or 2)
    return max(1, min(batch, -(-batch * features * ratio // max(classes, 1))))


def in_parts(input, linear_weight, linear_bias, weight, target, reduction, ignored, rows, gather):
    """The loss of class indices, `rows` samples at a time."""
    single = input.dim() == 1
    if single:
        input = input.unsqueeze(0)
        target = target.reshape(1) if target.numel() == 1 else target
    need(target.dim() == 1, "0D or 1D target tensor expected, multi-target not supported: got "
                            f"{list(target.shape)}")
    need(target.shape[0] == input.shape[0], f"Expected input batch_size ({input.shape[0]}) to match target batch_size "
                                            f"({target.shape[0]}).", ValueError)
    made = _entropy_in_parts(input, linear_weight, linear_bias, weight, target, reduction, ignored, rows, gather)
    return made.squeeze(0) if single and reduction == "none" else made


class _entropy_in_parts(Composite):
    """The cross entropy of logits that are made part by part, in the forward and again in the backward pass."""

    def of(input, linear_weight, linear_bias, weight, target, reduction, ignored, rows, gather):
        losses = [entropy(x, linear_weight, linear_bias, weight, t, ignored)[1][0]
                  for x, t in parts(input, target, rows)]
        loss = cat(losses) if len(losses) > 1 else losses[0]
        if reduction == "none":
            return loss
        return loss.sum() / total_weight(target, weight, ignored, loss.dtype) if reduction == "mean" else loss.sum()

    def grads(g, needs, input, linear_weight, linear_bias, weight, target, reduction, ignored, rows, gather):
        if reduction == "mean":
            g = g / total_weight(target, weight, ignored, g.dtype)
        g = g.expand(target.shape)
        gather = gather or dtypes.from_numpy(linear_weight.dtype.compute)    # 16-bit gradients add up in float32
        d_input, d_weight, d_bias = [], None, None
        for (x, t), each in zip(parts(input, target, rows), g.split(rows), strict=True):
            logits, (_, _, top, rest) = entropy(x, linear_weight, linear_bias, weight, t, ignored)
            d = _class_entropy_backward(each, logits, top, rest, t, weight, None, ignored)
            if needs[0]:
                d_input.append(d @ linear_weight)
            if needs[1]:
                more = (d.mT @ x).to(gather)
                d_weight = more if d_weight is None else d_weight + more
            if linear_bias is not None and needs[2]:
                more = d.sum(0, dtype=gather)
                d_bias = more if d_bias is None else d_bias + more
        made = [cat(d_input) if d_input else None, d_weight]
        return (*made, *[d_bias] * (linear_bias is not None), *[None] * (1 + (weight is not None)))


def parts(input, target, rows):
    """`rows` samples of each at a time."""
    return list(zip(input.split(rows), target.split(rows), strict=True))


def entropy(x, linear_weight, linear_bias, weight, target, ignored):
    """(logits of some samples, the results of their `_class_entropy`)"""
    logits = _linear(x, linear_weight, linear_bias)
    return logits, _class_entropy(logits, target, weight, "none", ignored)


def total_weight(target, weight, ignored, dtype):
    """The sum of the class weights at `target`."""
    used = target != ignored
    return used.sum().to(dtype) if weight is None else (weight[target.masked_fill(~used, 0)] * used).sum()
