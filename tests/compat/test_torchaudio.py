"""torchaudio's operators are there once it has asked for its libraries, and compute what their formulas say."""
import itertools
import math

import pytest

import flambeau as torch
from flambeau import _ops
from flambeau.compat.torchaudio import LIBRARIES


@pytest.fixture(autouse=True)
def loaded(tmp_path):
    """torchaudio's libraries, loaded as torchaudio does; the operators go away afterwards."""
    paths = [str(tmp_path / "torchaudio" / "lib" / f"{name}.abi3.so") for name in LIBRARIES]
    for path in paths:
        torch.ops.load_library(path)
    yield
    for library in LIBRARIES.values():
        for schema, _ in library:
            _ops.undefine(_ops.lookup(schema.partition("(")[0]))
    for path in paths:
        torch.ops.loaded_libraries.discard(path)


def test_what_torchaudio_asks_when_it_is_imported():
    assert torch.ops._torchaudio.cuda_version() is None
    assert torch.ops._torchaudio.is_align_available() is True
    with pytest.raises(OSError, match="Could not load this library"):
        torch.ops.load_library("/nowhere/torchaudio/lib/torchaudio_prefixctc.abi3.so")


def test_filters_weigh_their_own_results():
    x, weights = torch.randn(2, 3, 20), torch.tensor([[0.3, -0.2, 1.0], [0.0, 0.9, 1.0], [-0.5, 0.1, 1.0]])
    out = torch.zeros(2, 3, 22)
    torch.ops.torchaudio._lfilter_core_loop(x, weights, out)
    for batch, channel in itertools.product(range(2), range(3)):
        older, old, _ = weights[channel].tolist()
        made = [0.0, 0.0]
        for sample in x[batch, channel].tolist():
            made.append(sample - older * made[-2] - old * made[-1])
        assert out[batch, channel].tolist() == pytest.approx(made, rel=1e-4, abs=1e-5)


def test_overdrive_forgets_what_stays():
    x, temp = torch.randn(2, 10), torch.randn(2, 10)
    out = torch.zeros(2, 10)
    torch.ops.torchaudio._overdrive_core_loop(x, temp, torch.zeros(2), torch.zeros(2), out)
    for row in range(2):
        before, kept = 0.0, 0.0
        for at in range(10):
            kept = temp[row, at].item() - before + 0.995 * kept
            before = temp[row, at].item()
            assert out[row, at].item() == pytest.approx(x[row, at].item() / 2 + kept * 0.75, rel=1e-4, abs=1e-5)


def without_repeats(path):
    return [label for label, _ in itertools.groupby(path) if label]


@pytest.mark.parametrize("targets", [[1, 2], [2, 2], [1, 2, 1], [2]])
def test_alignment_is_the_best_of_all(targets):
    scores = torch.randn(1, 6, 3, dtype=torch.float64).log_softmax(-1)
    ways = [way for way in itertools.product(range(3), repeat=6) if without_repeats(way) == targets]
    best = max(ways, key=lambda way: sum(scores[0, at, label].item() for at, label in enumerate(way)))
    length = torch.tensor([len(targets)])
    path, same = torch.ops.torchaudio.forced_align(scores, torch.tensor([targets]), torch.tensor([6]), length, 0)
    assert path.tolist() == [list(best)] and torch.equal(same, scores)


def test_alignment_that_cannot_be_is_refused():
    with pytest.raises(RuntimeError, match="targets length is too long for CTC. Found log_probs length: 2"):
        torch.ops.torchaudio.forced_align(torch.zeros(1, 2, 3), torch.tensor([[1, 1]]), torch.tensor([2]),
                                          torch.tensor([2]), 0)


def transduced(logits, targets, blank):
    """The transducer's loss as the sum over all orders of frames and labels, the last of which is a silent frame."""
    scores, frames, labels = logits.log_softmax(-1), len(logits), len(targets)
    total = []
    for spoken in itertools.combinations(range(frames + labels - 1), labels):
        t, u, way = 0, 0, 0.0
        for at in range(frames + labels):
            if at in spoken:
                way, u = way + scores[t, u, targets[u]], u + 1
            else:
                way, t = way + scores[t, u, blank], t + 1
        total.append(way)
    return -torch.stack(total).logsumexp(0)


@pytest.mark.parametrize("blank", [0, -1])
def test_transducer_sums_over_all_ways(blank):
    logits = torch.randn(2, 4, 3, 5, dtype=torch.float64, requires_grad=True)
    targets, frames, labels = torch.tensor([[1, 2], [3, 0]], dtype=torch.int32), [4, 3], [2, 1]
    lengths = torch.tensor(frames, dtype=torch.int32), torch.tensor(labels, dtype=torch.int32)
    losses, grad = torch.ops.torchaudio.rnnt_loss_forward(logits, targets, *lengths, blank, -1.0)
    right = [transduced(logits[n, :frames[n], :labels[n] + 1], targets[n, :labels[n]].tolist(), blank) for n in (0, 1)]
    torch.testing.assert_close(losses, torch.stack(right).detach())
    torch.testing.assert_close(grad, torch.autograd.grad(sum(right), logits)[0])
    _, clamped = torch.ops.torchaudio.rnnt_loss_forward(logits, targets, *lengths, blank, 0.1)
    torch.testing.assert_close(clamped, grad.clamp(-0.1, 0.1))


def test_transducer_of_scores_that_are_normalized():
    scores = torch.randn(1, 3, 2, 4, dtype=torch.float64).log_softmax(-1)
    given = torch.tensor([[2]], dtype=torch.int32), torch.tensor([3]), torch.tensor([1]), 0, -1.0
    one, grad = torch.ops.torchaudio.rnnt_loss_forward(scores, *given, False)
    two, _ = torch.ops.torchaudio.rnnt_loss_forward(scores, *given, True)
    torch.testing.assert_close(one, two)
    assert grad.sum().item() == pytest.approx(-4)          # a way has three frames and a label, each with its own score
    assert math.isfinite(one.item())
