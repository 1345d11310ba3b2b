"""The first step of an optimizer is recorded like those after it; see Note [First steps] in optim/optimizer.py."""
import numpy as np
import pytest

import flambeau as torch
from flambeau.base.observers import Observer, observing
from flambeau.overrides import TorchFunctionMode
from flambeau.trace.recording.record import current
from flambeau.trace.running.key import key_of

from .every import EVERY, ORDINARY

OPTIMIZERS = {name: EVERY[name] for name in ORDINARY} | {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, momentum=0.5, centered=True),
}
# what their state is made from is held by something else in the first step: a trace, and a plan, more
WITH_A_FIRST_TRACE = {"ASGD", "Adafactor", "NAdam", "Rprop"}


def drawn(*shape):
    return torch.tensor(np.random.default_rng(0).standard_normal(shape), dtype=torch.float32)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_all_steps_are_one_trace(name):
    weight, bias, x = torch.nn.Parameter(drawn(5, 4)), torch.nn.Parameter(drawn(5)), drawn(3, 4)
    optimizer = OPTIMIZERS[name]([weight, bias])
    torch.cpu.synchronize()
    seen = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = torch.tanh(torch.nn.functional.linear(x, weight, bias)).square().sum()
        loss.backward()
        optimizer.step()
        seen.append(key_of(current())[0])         # the instructions without their numbers, and who holds what
        loss.item()
    assert len(set(seen[name in WITH_A_FIRST_TRACE:])) == 1


def test_what_was_recorded_before_runs_when_an_optimizer_is_made(monkeypatch):
    monkeypatch.setattr("flambeau.optim.optimizer.INSTRUCTIONS_WORTH_A_RUN", 4)
    torch.cpu.synchronize()
    net = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(4)))
    assert len(current().code) >= 4
    torch.optim.SGD(net.parameters(), 0.1)
    assert not current().code


@pytest.mark.parametrize("executor", ["auto", "native", "reference"])
def test_the_first_speed_is_the_gradient_to_the_last_bit(executor):
    with torch.config.using(executor=executor):
        w = torch.nn.Parameter(torch.zeros(6))
        optimizer = torch.optim.SGD([w], lr=0.5, momentum=0.9)
        g = torch.tensor([0.0, -0.0, 1e-45, -3.0, float("inf"), float("nan")])
        w.grad = g.clone()
        optimizer.step()
        speed = optimizer.state[w]["momentum_buffer"]
        assert speed._version == 0                                 # PyTorch's is a clone of the gradient
        assert speed.numpy().tobytes() == g.numpy().tobytes()
        assert w.tolist()[3:5] == [1.5, float("-inf")] and w.isnan().tolist()[5]


def test_dampening_leaves_the_first_gradient_whole():
    w = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([w], lr=1.0, momentum=0.9, dampening=0.5)
    for expected in (2.0, 0.9 * 2 + 0.5 * 2):                 # v = g, then v = 0.9 v + 0.5 g
        w.grad = torch.full((2,), 2.0)
        optimizer.step()
        np.testing.assert_allclose(optimizer.state[w]["momentum_buffer"].numpy(), expected, 1e-6)


def test_states_have_the_layout_and_the_line_of_their_parameters():
    w = torch.nn.Parameter(torch.ones(4, 3, 2, 2).to(memory_format=torch.channels_last))
    optimizer = torch.optim.Adam([w])
    w.grad = torch.ones_like(w)
    optimizer.step()
    state = optimizer.state[w]
    assert state["exp_avg"].stride() == w.stride() and state["exp_avg"]._site is not None
    assert not state["exp_avg"].requires_grad and state["step"].item() == 1


class Seen(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


def test_who_is_told_of_calls_sees_zeros_made():
    w = torch.nn.Parameter(torch.ones(3))
    w.grad = torch.ones(3)
    with Seen() as seen:
        torch.optim.Adam([w]).step()
    assert seen.names.count("zeros_like") == 2


def test_who_is_told_of_contents_sees_them_recorded():
    class Made(Observer):
        count = 0

        def made(self, value):
            Made.count += 1

    w = torch.nn.Parameter(torch.ones(3))
    w.grad = torch.ones(3)
    optimizer = torch.optim.Adam([w])
    with observing(Made()):
        optimizer.step()
        assert Made.count == 0
    assert optimizer.state[w]["exp_avg"].tolist() == pytest.approx([0.1] * 3)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("foreach", [False, True])
def test_steps_without_data(name, foreach):
    """The first one infers what is computed, the others know it."""
    layer = torch.nn.Linear(3, 2, device="meta")
    optimizer = OPTIMIZERS[name](layer.parameters())
    if "foreach" in optimizer.defaults:
        optimizer.param_groups[0]["foreach"] = foreach
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.ones(4, 3, device="meta")).square().mean().backward()
        optimizer.step()
    assert {t.device.type for p in layer.parameters() for t in (p, p.grad)} == {"meta"}
    assert all(t.device.type == "meta" for state in optimizer.state.values() for t in state.values()
               if isinstance(t, torch.Tensor) and t.ndim)
