"""The loss of labelling a sequence without knowing where each label stands."""
import numpy as np

from ..base import dtypes
from ..base.errors import need
from ..base.op import Composite, Op, door
from ..base.spec import spec
from .loss import Loss, reduction_of


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

    def body(k, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
        dtype, shape = log_probs.dtype, log_probs.shape
        made = k.library("ctc", (log_probs, k.cast(targets, dtypes.int64)), [(dtype, shape[1:2]), (dtype, shape)],
                         (input_lengths, target_lengths, blank, zero_infinity))
        return NotImplemented if made is None else made

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


class _ctc_labels(Op):
    """`targets`, refused unless every label within its row's length is a class number."""

    exact = True

    def meta(targets, target_lengths, classes): return targets
    def ref(xp, targets, target_lengths, classes): return targets

    def verify(targets, target_lengths, classes):
        used = targets[:sum(target_lengths)] if targets.ndim == 1 else \
            targets[np.arange(targets.shape[1]) < np.asarray(target_lengths)[:, None]]
        wrong = used[(used < 0) | (used >= classes)]
        need(not wrong.size, f"ctc_loss: target {wrong[:1].tolist()} is out of range, there are {classes} classes")

    def body(k, targets, target_lengths, classes): return targets


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
        if not targets.is_meta and targets.numel():
            targets = _ctc_labels(targets, outs, classes)
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
