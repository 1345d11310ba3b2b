"""A step of a sequence that is planned once and repeated: the same as one instruction for each step, in every executor,
layout, direction and length, with the same bits by a plan and without."""
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flambeau as torch
from flambeau.base.observers import Observer, observing
from flambeau.ops import recurrence
from flambeau.trace.planning import plan as plans
from flambeau.trace.recording.record import current

pytestmark = pytest.mark.pinned

KINDS = ("LSTM", "GRU", "RNN", "RNN relu")
LAYOUTS = {"": lambda t: t, "turned": lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2),
           "stepped": lambda t: torch.stack((t, t), -1)[..., 0],
           "expanded": lambda t: t[:, :1].expand(t.shape)}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def network(kind, features, hidden, dtype, **given):
    word, *relu = kind.split()
    given.update(nonlinearity="relu") if relu else None
    return getattr(torch.nn, word)(features, hidden, dtype=dtype, **given)


def trained(net, x, states, weights):
    """What a network gives, and all gradients of a combination of it."""
    inputs = [x, *states]
    for t in inputs:
        t.requires_grad_()
    out, last = net(x, tuple(states) if len(states) > 1 else states[0])
    made = [out, *(last if isinstance(last, tuple) else (last,))]
    total = sum((t * w).sum() for t, w in zip(made, weights, strict=False) if w is not None)
    gradients = torch.autograd.grad(total, [*inputs, *net.parameters()], allow_unused=True)
    return [t.detach().numpy().copy() for t in (*made, *gradients) if t is not None]


CASES = st.fixed_dictionaries({
    "kind": st.sampled_from(KINDS), "steps": st.integers(1, 6), "samples": st.integers(1, 5),
    "features": st.integers(1, 4), "hidden": st.integers(1, 9), "layers": st.integers(1, 2),
    "both": st.booleans(), "bias": st.booleans(),
    "dtype": st.sampled_from(("float32", "float64")), "layout": st.sampled_from(sorted(LAYOUTS)),
    "wanted": st.sampled_from(((1, None, None), (1, 1, 1), (None, 1, None), (None, 1, 1)))})


@given(CASES)
@settings(deadline=None, max_examples=25, derandomize=True)
def test_repeated_is_step_by_step(case):
    """Random networks: repeated by each executor, and step by step; values and gradients."""
    dtype = getattr(torch, case["dtype"])
    rng = np.random.default_rng(0)
    draw = lambda *shape: torch.tensor(rng.standard_normal(shape), dtype=dtype)
    net = network(case["kind"], case["features"], case["hidden"], dtype, num_layers=case["layers"],
                  bidirectional=case["both"], bias=case["bias"])
    ways = 2 if case["both"] else 1
    x = LAYOUTS[case["layout"]](draw(case["steps"], case["samples"], case["features"]))
    states = [LAYOUTS[case["layout"]](draw(case["layers"] * ways, case["samples"], case["hidden"]))
              for _ in range(2 if case["kind"] == "LSTM" else 1)]
    weights = [w and rng.standard_normal() for w in case["wanted"]]
    run = lambda: trained(net, x.detach(), [s.detach() for s in states], weights)
    whole = recurrence.is_repeated
    recurrence.is_repeated = lambda x, sizes: False
    try:
        with torch.config.using(executor="reference"):
            expected = run()
    finally:
        recurrence.is_repeated = whole
    tol = 2e-5 if dtype is torch.float32 else 1e-12
    for executor in ("reference", "native"):
        with torch.config.using(executor=executor):
            for mine, other in zip(run(), expected, strict=True):
                np.testing.assert_allclose(mine, other, rtol=tol, atol=tol)


@pytest.mark.parametrize("kind", KINDS)
def test_same_bits_with_a_plan_and_without(kind):
    """The first time a trace runs without a plan."""
    net, x = network(kind, 5, 8, torch.float32), torch.randn(7, 3, 5)
    states = [torch.randn(1, 3, 8) for _ in range(2 if kind == "LSTM" else 1)]
    run = lambda: trained(net, x.detach(), [s.detach() for s in states], (1.5, 0.5, 2.5))
    with torch.config.using(executor="auto"):
        plans.forget()
        first = run()
    with torch.config.using(executor="native"):
        planned = run()
    for one, other in zip(first, planned, strict=True):
        assert one.tobytes() == other.tobytes()


def test_the_plan_of_a_layer():
    """However long the sequence: one step in the plan."""
    net = torch.nn.LSTM(4, 8)
    with torch.no_grad(), torch.config.using(executor="native"):
        torch.cpu.synchronize()
        for steps in (3, 30):
            out, _ = net(torch.ones(steps, 2, 4))
            lines = [line for line in str(torch.plans.of(out)).splitlines() if "_lstm_step" in line]
            assert len(lines) == 1 and f"over [{steps} × 2 × 8]  _lstm_step" in lines[0]
            assert lines[0].startswith("recurrence ")
            step = next(step for step in torch.plans.of(out).steps if step.kind == "recurrence")
            assert step.flops >= steps * 2 * 2 * 32 * 8            # the products of the state with its weight
            assert "define void" in step.llvm


def test_another_length_compiles_nothing(monkeypatch):
    net = torch.nn.GRU(4, 8)
    compiled = []
    from flambeau.backends.cpu import machine_code
    functions = machine_code.functions
    monkeypatch.setattr(machine_code, "functions",
                        lambda texts, *rest, **how: compiled.append(len(texts)) or functions(texts, *rest, **how))

    def run(steps):
        del compiled[:]
        out, _ = net(torch.ones(steps, 2, 4))
        return out[-1].tolist()
    with torch.no_grad(), torch.config.using(executor="native"):
        run(5), run(6)
        run(41)
        assert not sum(compiled)


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_is_one_instruction(kind):
    """Recorded: as many instructions for a long sequence as for a short one, also in a backward."""
    def recorded(steps):
        net, x = network(kind, 4, 8, torch.float32), torch.randn(steps, 2, 4, requires_grad=True)
        torch.cpu.synchronize()
        current().run()
        net(x)[0].sum().backward()
        return len(current().code)
    assert recorded(4) == recorded(40)


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives(kind):
    """A backward that is itself differentiated goes step by step."""
    net = network(kind, 2, 3, torch.float64)
    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    with torch.config.using(executor="reference"):
        assert torch.autograd.gradgradcheck(lambda x: net(x)[0], (x,))


def test_steps_are_observed():
    """Whoever observes is told of every task, with times, by the lines of the layer."""
    class Runs(Observer):
        def __init__(self):
            self.found = []

        def ran(self, run):
            if run.step is not None and run.step.kind == "recurrence":
                self.found.append(run)

    net, x = torch.nn.LSTM(4, 8), torch.randn(6, 2, 4)
    with torch.no_grad(), torch.config.using(executor="native"):
        torch.cpu.synchronize()
        with observing(Runs()) as runs:
            net(x)[0].tolist()
    assert len(runs.found) == 6 * len(runs.found[0].step.works) and all(run.nanoseconds >= 0 for run in runs.found)


def test_empty_and_odd_sequences():
    net = torch.nn.LSTM(3, 4)
    out, (h, c) = net(torch.ones(2, 0, 3))
    assert out.shape == (2, 0, 4) and h.shape == c.shape == (1, 0, 4)
    with pytest.raises(RuntimeError, match="sequence length to be larger than 0"):
        net(torch.ones(0, 2, 3))
    for value in (float("nan"), float("inf")):
        state = torch.full((1, 1, 4), value), torch.zeros(1, 1, 4)
        out, _ = net(torch.ones(2, 1, 3), state)
        out.sum().backward()
        assert all(p.grad is not None for p in net.parameters())
