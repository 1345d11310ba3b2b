"""A trace that is new as a whole runs by segments: by plans of the parts that have come before."""
import gc

import numpy as np
import pytest

import flambeau as torch
from flambeau.base import observers, settings
from flambeau.trace.planning import plan, segments
from flambeau.trace.recording.record import current

from .cuts import cut_everywhere

pytestmark = pytest.mark.pinned

LAYERS, WIDTH, HEADS = 5, 32, 2


@pytest.fixture(autouse=True)
def automatic(monkeypatch):
    """The rule by which executors are chosen, with nothing seen before."""
    current().run()
    plan.forget()
    monkeypatch.setattr(settings, "executor", "auto")
    yield
    current().run()
    plan.forget()


class Planned(observers.Observer):
    """Keeps how many instructions each new plan is of."""

    def __init__(self):
        self.lengths = []

    def planned(self, planning):
        self.lengths.append(len(planning.instructions))


def weights(seed):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / WIDTH for _ in range(4 * LAYERS)]


def numpy_decoder(matrices, tokens):
    """What a small decoder gives for each of `tokens`, in float64: the definition."""
    matrices, keys, values, out = [m.astype(np.float64) for m in matrices], {}, {}, []
    for x in tokens.astype(np.float64):
        for layer in range(LAYERS):
            q, k, v, o = (x @ m for m in matrices[4 * layer:4 * layer + 3]), None, None, matrices[4 * layer + 3]
            q, k, v = q
            keys.setdefault(layer, []).append(k)
            values.setdefault(layer, []).append(v)
            K, V = np.stack(keys[layer]), np.stack(values[layer])
            scores = K @ q / WIDTH ** 0.5
            weight = np.exp(scores - scores.max())
            x = x + np.tanh(((weight / weight.sum()) @ V) @ o)
            x = x / np.sqrt((x * x).mean() + 1e-6)
        out.append(x)
    return np.stack(out)


def decoder(matrices, tokens):
    """The same with caches of tensors that grow by a row at every step; looked at after every step."""
    matrices, caches, out = [torch.tensor(m) for m in matrices], {}, []
    for x in torch.tensor(tokens).unbind():
        for layer in range(LAYERS):
            a, b, c, o = matrices[4 * layer:4 * layer + 4]
            x = x[None]
            q, k, v = x @ a, x @ b, x @ c
            if layer in caches:
                k, v = torch.cat([caches[layer][0], k]), torch.cat([caches[layer][1], v])
            caches[layer] = k, v
            seen = torch.softmax(q @ k.T / WIDTH ** 0.5, -1) @ v
            x = (x + torch.tanh(seen @ o))[0]
            x = x / ((x * x).mean() + 1e-6).sqrt()
        out.append(x.tolist())
    return np.array(out, np.float32)


def tokens(count, seed=1):
    return np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32)


def run(count, **others):
    """(the decoder's results, the lengths of the plans that were made meanwhile)."""
    given, seen = (weights(0), tokens(count, **others)), Planned()
    with observers.observing(seen):
        found = decoder(*given)
    np.testing.assert_allclose(found, numpy_decoder(*given), rtol=2e-4, atol=2e-4)
    return found, seen.lengths


def test_a_cache_that_grows_is_not_planned_anew_at_every_step():
    _, lengths = run(30)
    assert 0 < len(lengths) <= 4 * LAYERS              # in the first steps; the layers in the middle share theirs
    _, lengths = run(60, seed=2)                         # the first 30 lengths a second time, the others are new
    assert len(lengths) <= 4 * LAYERS


def test_what_a_segment_gives_has_the_bits_of_one_instruction_after_the_other():
    found, _ = run(12)
    plan.forget()
    with torch.config.using(trace_instructions=1):
        assert run(12)[0].tobytes() == found.tobytes()


def test_a_trace_that_keeps_coming_has_a_plan_of_its_own_in_the_end():
    counts = [len(run(6)[1]) for _ in range(12)]
    assert counts[-1] == 0
    assert any(len(key[0]) > 10 * LAYERS for key, made in plan._plans.items() if made)


def entry_of(x, size):
    y = (x + 1).exp()
    z = torch.ones(size).cumsum(0)
    return ((y * z.sum()).sin() + y).sqrt(), z


def test_only_what_came_in_other_traces_is_settled():
    x = torch.arange(1.0, 2.0, 0.017)                     # sizes that no other test has
    cuts = []
    for size in (10_007, 10_009, 10_037, 10_039, 10_039, 10_039):
        made = entry_of(x, size)
        trace = current()
        names = [one.entry.op.__name__ for one in trace.code]
        cuts.append([names[start:end] for start, end in segments.segments_of(trace, 0)])
        current().run()
        del made
    assert not cuts[0] and all(cuts[1:4]) and not any(cuts[4:])         # all of the last two was there before
    assert all("cumsum" not in names and "ones" not in names for cut in cuts[:4] for names in cut)


def test_a_trace_that_only_begins_elsewhere_is_cut_where_it_reads():
    rows, cuts = torch.arange(1.0, 40.0, 0.013), []           # a size that no other test has
    torch.cpu.synchronize()
    for start in range(1, 5):
        y = ((rows[start:start + 1013] * 2).exp() + 1).sqrt().log() - 3
        trace = current()
        names = [one.entry.op.__name__ for one in trace.code]
        cuts.append([names[start:end] for start, end in segments.segments_of(trace, 0)])
        current().run()
        del y
    assert not cuts[0] and cuts[1:] == [[["exp", "add", "sqrt", "log", "sub"]]] * 3


def test_an_instruction_that_fails_is_told_to_who_looks_and_the_others_run():
    x, i = torch.arange(6.), torch.tensor([0, 9])

    def program():
        a = x * 2
        b = a.exp() + 1
        c = b[i % 20]                                    # what it points at is checked when it runs
        return a, b, c + 1, b.sqrt()

    with cut_everywhere():
        for _ in range(3):
            a, b, c, d = (None,) * 4
            with pytest.raises(IndexError):
                a, b, c, d = program()
                c.tolist()
        assert (x * 2 + 1).tolist() == [1, 3, 5, 7, 9, 11]


def test_memory_of_dead_inputs_is_written_over_and_of_others_is_not():
    with cut_everywhere(lengths=(3,)) as ran:
        kept = torch.arange(1 << 12, dtype=torch.float32) + 0
        kept.sum().item()
        array = kept.numpy().copy()
        for _ in range(4):
            other = kept * 1
            other.sum().item()
            given = other
            del other
            given = ((given + 1) * 2 - 1).neg().abs() + 0.5
            given = (given * 3).floor() - 1
            np.testing.assert_array_equal(given.numpy(), np.floor((((array + 1) * 2 - 1) + 0.5) * 3) - 1)
            np.testing.assert_array_equal(kept.numpy(), array)
        gc.collect()
    assert sum(ran) > 10


@pytest.mark.parametrize("at", range(4))
def test_an_interrupt_loses_nothing(at, monkeypatch):
    """Wherever it comes while the results of segments are handed out, what was recorded is there afterwards."""
    class Stop(BaseException):
        pass

    clear, calls = segments.Segment.clear, []

    def interrupted(segment):
        calls.append(segment)
        if len(calls) == at + 1:
            raise Stop
        clear(segment)

    x = torch.arange(8.)
    with cut_everywhere(lengths=(2, 1)) as ran:
        y = x * 2
        z = y + 1
        w = z * z
        v = w - x
        u = x.clone()
        u.add_(1)
        monkeypatch.setattr(segments.Segment, "clear", interrupted)
        with pytest.raises(Stop):
            current().run()
        monkeypatch.setattr(segments.Segment, "clear", clear)
        assert v.tolist() == [(n * 2 + 1) ** 2 - n for n in range(8)] and u.tolist() == [n + 1 for n in range(8)]
        assert [one.tolist() for one in (y, z, w)] == [[2 * n for n in range(8)], [2 * n + 1 for n in range(8)],
                                                       [(2 * n + 1) ** 2 for n in range(8)]]
    assert len(ran) > 1
