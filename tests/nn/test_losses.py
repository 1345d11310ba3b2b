"""Every loss against its formula in NumPy, its reductions against each other, its derivative against differences."""
import itertools
import math

import numpy as np
import pytest
from scipy import special, stats

import flambeau as torch
from flambeau import nn
from flambeau.autograd import gradcheck

random = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def same_numbers():
    """Each test draws the same ones, whichever ran before."""
    global random
    random = np.random.default_rng(0)
    torch.manual_seed(0)


def close(got, want, tolerance=1e-9):
    got = got.detach().numpy() if isinstance(got, torch.Tensor) else got
    want = want.detach().numpy() if isinstance(want, torch.Tensor) else want
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def x(*shape): return random.normal(size=shape)
def p(*shape): return random.uniform(0.1, 0.9, size=shape)
def sign(*shape): return random.integers(0, 2, size=shape) * 2.0 - 1
def classes(n, *shape): return random.integers(0, n, size=shape)
def pick(logs, t): return np.take_along_axis(logs, t[:, None], 1).squeeze(1)
def far(a, b, order=2, eps=1e-6): return (np.abs(a - b + eps) ** order).sum(-1) ** (1 / order)
def cosine(a, b): return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
def entropy(q, t): return -(t * np.log(q) + (1 - t) * np.log(1 - q))


def margin_to_others(a, t, power, margin):
    out = np.zeros(len(a))
    for row, (scores, own) in enumerate(zip(a, t)):
        out[row] = sum(max(0, margin - scores[own] + scores[c]) ** power for c in range(len(scores)) if c != own)
    return out / a.shape[1]


def margin_of_labels(a, t):
    out = np.zeros(len(a))
    for row, (scores, labels) in enumerate(zip(a, t)):
        listed = list(itertools.takewhile(lambda label: label >= 0, labels))
        out[row] = sum(max(0, 1 - scores[own] + scores[c]) for own in listed
                       for c in range(len(scores)) if c not in listed)
    return out / a.shape[1]


# name, arguments, inputs, the loss of each element
LOSSES = [
    ("L1Loss", {}, lambda: (x(3, 4), x(3, 4)), lambda a, t: np.abs(a - t)),
    ("MSELoss", {}, lambda: (x(3, 4), x(3, 4)), lambda a, t: (a - t) ** 2),
    ("SmoothL1Loss", {"beta": 0.7}, lambda: (x(3, 4), x(3, 4)),
     lambda a, t: np.where(abs(a - t) < 0.7, (a - t) ** 2 / 1.4, abs(a - t) - 0.35)),
    ("HuberLoss", {"delta": 0.7}, lambda: (x(3, 4), x(3, 4)), lambda a, t: special.huber(0.7, a - t)),
    ("PoissonNLLLoss", {}, lambda: (x(3, 4), classes(5, 3, 4) * 1.0),
     lambda a, t: -stats.poisson.logpmf(t, np.exp(a)) - special.gammaln(t + 1)),
    ("PoissonNLLLoss", {"log_input": False, "eps": 0.1}, lambda: (p(3, 4), classes(5, 3, 4) * 1.0),
     lambda a, t: a - t * np.log(a + 0.1)),
    ("GaussianNLLLoss", {"full": True}, lambda: (x(3, 4), x(3, 4), p(3, 4)),
     lambda a, t, v: -stats.norm.logpdf(t, a, np.sqrt(v))),
    ("GaussianNLLLoss", {"eps": 0.5}, lambda: (x(3, 4), x(3, 4), p(3)),
     lambda a, t, v: (np.log(np.maximum(v, 0.5))[:, None] + (a - t) ** 2 / np.maximum(v, 0.5)[:, None]) / 2),
    ("KLDivLoss", {}, lambda: (np.log(p(3, 4)), p(3, 4)), lambda a, t: special.kl_div(t, np.exp(a)) + t - np.exp(a)),
    ("KLDivLoss", {"log_target": True}, lambda: (x(3, 4), x(3, 4)), lambda a, t: np.exp(t) * (t - a)),
    ("BCELoss", {}, lambda: (p(3, 4), p(3, 4)), entropy),
    ("BCEWithLogitsLoss", {}, lambda: (x(3, 4), p(3, 4)), lambda a, t: entropy(special.expit(a), t)),
    ("BCEWithLogitsLoss", {"pos_weight": torch.tensor([2.0], dtype=torch.float64)}, lambda: (x(3, 4), p(3, 4)),
     lambda a, t: -2 * t * special.log_expit(a) - (1 - t) * special.log_expit(-a)),
    ("SoftMarginLoss", {}, lambda: (x(3, 4), sign(3, 4)), lambda a, t: np.log1p(np.exp(-t * a))),
    ("MultiLabelSoftMarginLoss", {}, lambda: (x(3, 4), p(3, 4)), lambda a, t: entropy(special.expit(a), t).mean(1)),
    ("HingeEmbeddingLoss", {"margin": 0.5}, lambda: (x(3, 4), sign(3, 4)),
     lambda a, t: np.where(t == 1, a, np.maximum(0, 0.5 - a))),
    ("CosineEmbeddingLoss", {"margin": 0.2}, lambda: (x(6, 4), x(6, 4), sign(6)),
     lambda a, b, t: np.where(t == 1, 1 - cosine(a, b), np.maximum(0, cosine(a, b) - 0.2))),
    ("MarginRankingLoss", {"margin": 0.3}, lambda: (x(6), x(6), sign(6)),
     lambda a, b, t: np.maximum(0, -t * (a - b) + 0.3)),
    ("MultiMarginLoss", {}, lambda: (x(3, 4), classes(4, 3)), lambda a, t: margin_to_others(a, t, 1, 1)),
    ("MultiMarginLoss", {"p": 2, "margin": 0.5}, lambda: (x(3, 4), classes(4, 3)),
     lambda a, t: margin_to_others(a, t, 2, 0.5)),
    ("MultiLabelMarginLoss", {}, lambda: (x(3, 4), np.array([[3, 0, -1, 1], [2, -1, -1, -1], [-1, 1, 0, 3]])),
     margin_of_labels),
    ("TripletMarginLoss", {}, lambda: (x(5, 4), x(5, 4), x(5, 4)),
     lambda a, b, c: np.maximum(0, 1 + far(a, b) - far(a, c))),
    ("TripletMarginLoss", {"p": 3, "swap": True, "margin": 2.0}, lambda: (x(5, 4), x(5, 4), x(5, 4)),
     lambda a, b, c: np.maximum(0, 2 + far(a, b, 3) - np.minimum(far(a, c, 3), far(b, c, 3)))),
    ("TripletMarginWithDistanceLoss", {"distance_function": lambda a, b: (a - b).abs().amax(-1)},
     lambda: (x(5, 4), x(5, 4), x(5, 4)),
     lambda a, b, c: np.maximum(0, 1 + abs(a - b).max(-1) - abs(a - c).max(-1))),
    ("NLLLoss", {}, lambda: (x(5, 4), classes(4, 5)), lambda a, t: -pick(a, t)),
    ("CrossEntropyLoss", {}, lambda: (x(5, 4), classes(4, 5)), lambda a, t: -pick(special.log_softmax(a, 1), t)),
    ("CrossEntropyLoss", {}, lambda: (x(5, 4), p(5, 4)), lambda a, t: -(special.log_softmax(a, 1) * t).sum(1)),
    ("CrossEntropyLoss", {"label_smoothing": 0.2}, lambda: (x(5, 4), classes(4, 5)),
     lambda a, t: -0.8 * pick(special.log_softmax(a, 1), t) - 0.2 * special.log_softmax(a, 1).mean(1)),
]


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name, how, inputs, formula", LOSSES, ids=["-".join([name, *how]) for name, how, *_ in LOSSES])
def test_formula_and_derivative(name, how, inputs, formula):
    kind, given = getattr(nn, name), inputs()
    args = [torch.tensor(a) for a in given]
    want = formula(*given)
    close(kind(reduction="none", **how)(*args), want)
    close(kind(reduction="sum", **how)(*args), want.sum())
    close(kind(**how)(*args), want.mean())
    leaf = args[0].requires_grad_()
    assert gradcheck(lambda first: kind(**how)(first, *args[1:]), (leaf,))


# --- classes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [nn.NLLLoss, nn.CrossEntropyLoss])
def test_weights_and_ignored_classes(kind):
    """The mean is over the weights of the targets; an ignored one has none."""
    a, t, w = x(8, 3, 2), classes(3, 8, 2), p(3)
    t[0] = 7
    logs = a if kind is nn.NLLLoss else special.log_softmax(a, 1)
    weight = np.where(t == 7, 0, w[t % 7 % 3])
    each = -np.take_along_axis(logs, np.where(t == 7, 0, t)[:, None], 1).squeeze(1) * weight
    how = {"weight": torch.tensor(w), "ignore_index": 7}
    args = torch.tensor(a), torch.tensor(t)
    close(kind(reduction="none", **how)(*args), each)
    close(kind(**how)(*args), each.sum() / weight.sum())
    close(kind(reduction="sum", **how)(*args), each.sum())
    assert list(kind(**how).state_dict()) == ["weight"]


def test_indices_are_probabilities_of_one():
    a, t = torch.tensor(x(6, 4)), torch.tensor(classes(4, 6))
    hot = nn.functional.one_hot(t, 4).double()
    for smoothing in (0.0, 0.3):
        loss = nn.CrossEntropyLoss(label_smoothing=smoothing)
        close(loss(a, t), loss(a, hot))


def test_cross_entropy_is_steady():
    a = torch.tensor([[1000.0, 0.0], [-1000.0, 0.0]], requires_grad=True)
    loss = nn.CrossEntropyLoss(reduction="none")(a, torch.tensor([0, 0]))
    close(loss, [0, 1000])
    loss.sum().backward()
    close(a.grad, [[0, 0], [-1, 1]])


def test_batchmean():
    a, t = x(3, 4), p(3, 4)
    close(nn.KLDivLoss(reduction="batchmean")(torch.tensor(a), torch.tensor(t)), (t * (np.log(t) - a)).sum() / 3)


def test_one_half_of_a_coin():
    """Published constant: the entropy of a fair coin is log 2, whatever the label."""
    half = torch.tensor([0.5, 0.5])
    close(nn.BCELoss()(half, torch.tensor([0.0, 1.0])), math.log(2), 1e-6)
    close(nn.BCEWithLogitsLoss()(torch.zeros(2), torch.tensor([0.0, 1.0])), math.log(2), 1e-6)
    close(nn.CrossEntropyLoss()(torch.zeros(1, 10), torch.tensor([3])), math.log(10), 1e-6)


# --- sequences --------------------------------------------------------------------------------------------------------


def collapsed(path, blank):
    """The labels of an alignment: repeats merged, then blanks dropped."""
    return tuple([label for label, _ in itertools.groupby(path) if label != blank])


@pytest.mark.parametrize("blank", [0, 2])
def test_ctc_sums_over_alignments(blank):
    steps, count = 4, 3
    logs = special.log_softmax(x(steps, 3, count), -1)
    rest = [c for c in range(count) if c != blank]
    targets = [(rest[0], rest[1]), (rest[0], rest[0]), (rest[1],)]
    padded = torch.tensor([list(t) + [rest[0]] * (2 - len(t)) for t in targets])
    want = []
    for b, target in enumerate(targets):
        total = sum(np.exp(sum(logs[s, b, c] for s, c in enumerate(path)))
                    for path in itertools.product(range(count), repeat=steps) if collapsed(path, blank) == target)
        want.append(-np.log(total))
    given = torch.tensor(logs), padded, (steps,) * 3, (2, 2, 1)
    close(nn.CTCLoss(blank, "none")(*given), want)
    close(nn.CTCLoss(blank, "sum")(*given), sum(want))
    close(nn.CTCLoss(blank)(*given), np.mean(np.array(want) / (2, 2, 1)))
    joined = torch.tensor([c for target in targets for c in target])
    close(nn.CTCLoss(blank, "none")(given[0], joined, *given[2:]), want)


def test_ctc_without_an_alignment():
    logs = torch.tensor(special.log_softmax(x(2, 1, 3), -1), requires_grad=True)
    given = torch.tensor([[1, 1]]), (2,), (2,)                  # two equal labels need a blank between them
    assert nn.CTCLoss()(logs, *given).item() == math.inf
    loss = nn.CTCLoss(zero_infinity=True)(logs, *given)
    loss.backward()
    assert loss.item() == 0 and not logs.grad.any()


def test_ctc_derivative_for_logits():
    scores = torch.tensor(x(4, 2, 3), requires_grad=True)
    loss = nn.CTCLoss()
    assert gradcheck(lambda s: loss(s.log_softmax(-1), torch.tensor([[1, 2], [2, 2]]), (4, 4), (2, 1)), (scores,))


# --- many classes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cutoffs", [[4], [4, 10], [1, 2, 19]])
def test_adaptive_softmax(cutoffs):
    layer = nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs, div_value=1.5, head_bias=True, dtype=torch.float64)
    rows, targets = torch.tensor(x(30, 8)) * 3, torch.tensor(classes(20, 30))
    logs = layer.log_prob(rows)
    assert logs.shape == (30, 20)
    close(logs.exp().sum(1), np.ones(30))
    output, loss = layer(rows, targets)
    close(output, logs.gather(1, targets[:, None]).squeeze(1))
    close(loss, -output.mean())
    assert torch.equal(layer.predict(rows), logs.argmax(1))
    alone = layer(rows[0], targets[0])
    close(alone.output, output[0])
    assert alone.output.shape == () and layer.predict(rows[:0]).shape == (0,)
    widths = [int(8 // 1.5 ** (i + 1)) for i in range(len(cutoffs))]
    assert [cluster[0].out_features for cluster in layer.tail] == widths


def test_adaptive_softmax_derivative():
    layer = nn.AdaptiveLogSoftmaxWithLoss(4, 9, [2, 5], div_value=2, dtype=torch.float64)
    rows = torch.tensor(x(5, 4), requires_grad=True)
    assert gradcheck(lambda r: layer(r, torch.tensor([0, 3, 8, 4, 1])).loss, (rows,))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 5, 100])
def test_linear_cross_entropy_in_parts(reduction, bias, weighted, rows):
    """The same loss and gradients as of all samples at once, and as of a Linear and a CrossEntropyLoss."""
    how = {"weight": torch.tensor(p(6)) if weighted else None, "ignore_index": 2, "reduction": reduction}
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=rows)
    made = nn.LinearCrossEntropyLoss(4, 6, bias=bias, dtype=torch.float64, options=options, **how)
    entropy, targets, grads = nn.CrossEntropyLoss(**how), torch.tensor(classes(6, 5)), []
    inputs = x(5, 4)
    for run in (made, lambda a, t: entropy(made.linear(a), t)):
        a = torch.tensor(inputs, requires_grad=True)
        made.zero_grad()
        loss = run(a, targets)
        (loss * torch.arange(1.0, loss.numel() + 1, dtype=torch.float64).reshape(loss.shape)).sum().backward()
        grads.append([loss, a.grad, *[q.grad for q in made.parameters()]])
    assert len(grads[0]) == 3 + bias
    for got, want in zip(*grads, strict=True):
        close(got, want)


def test_parts_keep_an_aspect():
    """By an aspect ratio r, the logits of a part are about r times as large as the inputs of the batch."""
    from flambeau.ops.linear_loss import rows_of
    rows = rows_of(nn.LinearCrossEntropyOptions(chunking_method="aspect_ratio:3"), 1000, 64, 50_000)
    assert 3 * 1000 * 64 <= rows * 50_000 < 3 * 1000 * 64 + 50_000
    assert rows_of(nn.LinearCrossEntropyOptions(chunking_method=None), 1000, 64, 50_000) == 1000
    assert rows_of(nn.LinearCrossEntropyOptions(), 1000, 64, 10) == 1000


def test_second_derivative_in_parts():
    a, w = torch.tensor(x(3, 2), requires_grad=True), torch.tensor(x(4, 2), requires_grad=True)
    targets, options = torch.tensor([0, 3, 1]), nn.LinearCrossEntropyOptions(batch_chunk_size=2)
    assert torch.autograd.gradgradcheck(
        lambda a, w: nn.functional.linear_cross_entropy(a, w, targets, options=options), (a, w))


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call, kind, words", [
    (lambda: nn.L1Loss(reduction="total")(torch.ones(2), torch.ones(2)), ValueError, "total is not a valid"),
    (lambda: nn.BCELoss()(torch.tensor([1.5]), torch.ones(1)), RuntimeError, "between 0 and 1, found .1.5"),
    (lambda: nn.BCELoss()(torch.ones(1), torch.tensor([-0.5])), RuntimeError, "target should be between 0 and 1"),
    (lambda: nn.GaussianNLLLoss()(torch.ones(2), torch.ones(2), torch.tensor([1.0, -2.0])), ValueError, "negative.*-2"),
    (lambda: nn.NLLLoss()(torch.ones(2, 3), torch.tensor([0, 3])), IndexError, "Target 3 is out of bounds"),
    (lambda: nn.MultiMarginLoss()(torch.ones(2, 3), torch.tensor([0, -1])), RuntimeError, "out of range.*-1"),
    (lambda: nn.MultiLabelMarginLoss()(torch.ones(1, 3), torch.tensor([[0, 3, -1]])), RuntimeError, "out of range.*3"),
    (lambda: nn.TripletMarginLoss(margin=-1.0), ValueError, "greater than 0, got -1.0"),
    (lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 9, [2])(torch.ones(2, 4), torch.tensor([0, 9])), RuntimeError,
     r"\[0, 8\].*\[0, 9\]"),
    (lambda: nn.CTCLoss()(torch.zeros(2, 1, 3), torch.tensor([[1]]), (3,), (1,)), RuntimeError, "at most 2"),
])
def test_refusals(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_old_flags():
    for flags, meant in (({"size_average": False}, "sum"), ({"reduce": False}, "none"), ({"reduce": True}, "mean")):
        with pytest.warns(UserWarning, match=f"use reduction='{meant}'"):
            assert nn.MSELoss(**flags).reduction == meant
