"""Losses, as their formulas stand in the documentation."""
import itertools

import numpy as np

import flambeau as torch

from .rows import numbers, row

F = torch.nn.functional
X, Y = numbers((3, 4)), numbers((3, 4), seed=1)
POSITIVE, CHANCE, BITS = numbers((3, 4), 0.3, 2, seed=2), numbers((3, 4), 0.1, 0.9), (Y > 0).astype(float)
SIGNS, LABELS, W = np.where(Y > 0, 1.0, -1.0), np.array([2, 0, 3]), numbers((4,), 0.5, 2, seed=3)
SIGN = np.array([1.0, -1.0, 1.0])


def log_softmax(x):
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def cross_entropy(x, labels):
    return -np.take_along_axis(log_softmax(x), labels[:, None], 1)[:, 0]


def huber(d, delta):
    return np.where(np.abs(d) < delta, d * d / 2, delta * (np.abs(d) - delta / 2))


def ctc(log_probs, targets):
    """-log of the summed probability of every alignment that collapses to `targets` (0 is the blank)."""
    steps, classes = log_probs.shape
    total = 0.0
    for path in itertools.product(range(classes), repeat=steps):
        if [c for c, _ in itertools.groupby(path) if c] == list(targets):
            total += np.exp(sum(log_probs[t, c] for t, c in enumerate(path)))
    return -np.log(total)


for _how, _reduce in (("mean", np.mean), ("sum", np.sum), ("none", lambda x: x)):
    row(f"mse_loss {_how}", lambda x, y, r=_how: F.mse_loss(x, y, reduction=r), lambda x, y, r=_reduce: r((x - y) ** 2), X, Y)
    row(f"l1_loss {_how}", lambda x, y, r=_how: F.l1_loss(x, y, reduction=r), lambda x, y, r=_reduce: r(np.abs(x - y)), X, Y)
    row(f"cross_entropy {_how}", lambda x, t, r=_how: F.cross_entropy(x, t, reduction=r), lambda x, t, r=_reduce: r(cross_entropy(x, t)), X, LABELS)
row("smooth_l1_loss", lambda x, y: F.smooth_l1_loss(x, y, beta=0.7), lambda x, y: (huber(x - y, 0.7) / 0.7).mean(), X, Y)
row("huber_loss", lambda x, y: F.huber_loss(x, y, delta=0.7), lambda x, y: huber(x - y, 0.7).mean(), X, Y)
row("huber_loss weighted", lambda x, y, w: F.huber_loss(x, y, weight=w), lambda x, y, w: (w * huber(x - y, 1.0)).mean(), X, Y,
    X + 3)
row("poisson_nll_loss", lambda x, y: F.poisson_nll_loss(x, y), lambda x, y: (np.exp(x) - y * x).mean(), X, POSITIVE)
row("gaussian_nll_loss", lambda x, y, v: F.gaussian_nll_loss(x, y, v), lambda x, y, v: (np.log(v) / 2 + (x - y) ** 2 / (2 * v)).mean(), X, Y, POSITIVE,
    meta=False)
row("binary_cross_entropy", F.binary_cross_entropy, lambda p, t: -(t * np.log(p) + (1 - t) * np.log(1 - p)).mean(), CHANCE, BITS, still=(1,))
row("binary_cross_entropy_with_logits", F.binary_cross_entropy_with_logits,
    lambda x, t: (np.log1p(np.exp(x)) - t * x).mean(), X, BITS, still=(1,))
row("binary_cross_entropy of targets", F.binary_cross_entropy, lambda p, t: -(t * np.log(p) + (1 - t) * np.log(1 - p)).mean(), CHANCE, CHANCE[::-1] * 1)
row("binary_cross_entropy_with_logits of targets", F.binary_cross_entropy_with_logits,
    lambda x, t: (np.log1p(np.exp(x)) - t * x).mean(), X, CHANCE)
row("kl_div", lambda x, t: F.kl_div(x, t, reduction="batchmean"), lambda x, t: (t * (np.log(t) - x)).sum() / 3, X, POSITIVE)
row("nll_loss", lambda x, t: F.nll_loss(x, t), lambda x, t: -x[np.arange(3), t].mean(), X, LABELS)
row("nll_loss weighted", lambda x, t, w: F.nll_loss(x, t, w), lambda x, t, w: -(w[t] * x[np.arange(3), t]).sum() / w[t].sum(),
    X, LABELS, W, still=(2,))
row("nll_loss images", lambda x, t: F.nll_loss(x, t), lambda x, t: -np.take_along_axis(x, t[:, None], 1).mean(),
    numbers((2, 3, 2), seed=4), np.array([[0, 2], [1, 1]]))
row("cross_entropy ignored", lambda x, t: F.cross_entropy(x, t, ignore_index=0), lambda x, t: cross_entropy(x, t)[t != 0].mean(), X, LABELS)
row("cross_entropy chances", lambda x, p: F.cross_entropy(x, p), lambda x, p: -(p * log_softmax(x)).sum(1).mean(), X, CHANCE)
row("cross_entropy smooth", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.2),
    lambda x, t: (0.8 * cross_entropy(x, t) - 0.2 * log_softmax(x).mean(1)).mean(), X, LABELS)
row("soft_margin_loss", F.soft_margin_loss, lambda x, t: np.log1p(np.exp(-t * x)).mean(), X, SIGNS, still=(1,))
row("hinge_embedding_loss", F.hinge_embedding_loss, lambda x, t: np.where(t > 0, x, np.maximum(0, 1 - x)).mean(), X, SIGNS, still=(1,))
row("margin_ranking_loss", lambda x, y, t: F.margin_ranking_loss(x, y, t, 0.3), lambda x, y, t: np.maximum(0, -t * (x - y) + 0.3).mean(),
    X, Y, SIGNS, still=(2,))
row("cosine_embedding_loss", lambda x, y, t: F.cosine_embedding_loss(x, y, t),
    lambda x, y, t: (lambda c: np.where(t > 0, 1 - c, np.maximum(0, c)).mean())((x * y).sum(1) / np.sqrt((x * x).sum(1) * (y * y).sum(1))),
    X, Y, SIGN, tol=1e-9, still=(2,))
_distance = lambda a, b: np.sqrt(((a - b + 1e-6) ** 2).sum(1))
row("triplet_margin_loss", lambda a, p, n: F.triplet_margin_loss(a, p, n, margin=2.0),
    lambda a, p, n: np.maximum(_distance(a, p) - _distance(a, n) + 2, 0).mean(), X, Y, POSITIVE, grad="first")
row("triplet_margin_with_distance_loss", lambda a, p, n: F.triplet_margin_with_distance_loss(a, p, n, margin=2.0),
    lambda a, p, n: np.maximum(_distance(a, p) - _distance(a, n) + 2, 0).mean(), X, Y, POSITIVE, grad="first")


def multi_margin(x, t):
    rows = np.arange(len(x))
    loss = np.maximum(0, 1 - x[rows, t][:, None] + x)
    loss[rows, t] = 0
    return (loss.sum(1) / x.shape[1]).mean()


def multilabel_margin(x, t):
    total = 0.0
    for scores, labels in zip(x, t):
        wanted = labels[:np.argmin(labels)] if (labels < 0).any() else labels
        others = [j for j in range(len(scores)) if j not in wanted]
        total += sum(max(0, 1 - (scores[i] - scores[j])) for i in wanted for j in others) / len(scores)
    return total / len(x)


row("multi_margin_loss", lambda x, t: F.multi_margin_loss(x, t), multi_margin, X, LABELS)
row("multilabel_soft_margin_loss", F.multilabel_soft_margin_loss,
    lambda x, t: -(t * np.log(1 / (1 + np.exp(-x))) + (1 - t) * np.log(1 / (1 + np.exp(x)))).mean(1).mean(), X, BITS, still=(1,))
row("multilabel_margin_loss", lambda x, t: F.multilabel_margin_loss(x, t), multilabel_margin, X,
    np.array([[3, 0, -1, 1], [1, -1, 0, 0], [2, 1, 0, -1]]))
row("ctc_loss", lambda x: F.ctc_loss(x.log_softmax(2), torch.tensor([[1, 2], [2, 2]], device=x.device), (4, 4), (2, 2), reduction="none"),
    lambda x: np.array([ctc(np.log(np.exp(x[:, n]) / np.exp(x[:, n]).sum(1, keepdims=True)), t) for n, t in enumerate([[1, 2], [2, 2]])]),
    numbers((4, 2, 3), seed=5), grad="first", meta=False)
LABELLED = {(5, 3): [1, 2, 1], (5, 2): [2, 2], (3, 0): [], (4, 1): [2]}             # (steps, labels): the labels
row("ctc_loss of several lengths",
    lambda x: F.ctc_loss(x.log_softmax(2), torch.tensor([t + [-1] * (3 - len(t)) for t in LABELLED.values()], device=x.device),
                         *zip(*LABELLED, strict=True), reduction="none"),
    lambda x: np.array([ctc(np.log(np.exp(x[:n, b]) / np.exp(x[:n, b]).sum(1, keepdims=True)), t)
                        for b, ((n, _), t) in enumerate(LABELLED.items())]),
    numbers((5, 4, 3), seed=6), grad="first", meta=False)
