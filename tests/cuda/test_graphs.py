"""Graphs in plain code and under `compile`, on simulated devices."""
import numpy as np
import pytest

import flambeau as torch
from flambeau.backends.backend import DeviceFailed
from flambeau.backends.cuda import graphs
from flambeau.base.observers import Observer, observing
from flambeau.trace.planning import plan

from .simulated import SimulatedDriver, compiler, simulating

pytestmark = [pytest.mark.pinned, pytest.mark.filterwarnings("error:.*mistake in Flambeau"),
              pytest.mark.skipif(not compiler.is_there(), reason="kernels are simulated with g++, on Linux")]


@pytest.fixture
def driver(monkeypatch):
    """A simulated driver that counts: `captures`, and graphs `launched`."""
    captures, launched = [], []
    begin, bound = SimulatedDriver.begin_capture, graphs.Captured.bound
    monkeypatch.setattr(SimulatedDriver, "begin_capture", lambda *given: (captures.append(1), begin(*given))[1])
    monkeypatch.setattr(graphs.Captured, "bound", lambda *given: (launched.append(1), bound(*given))[1])
    with simulating(devices=1) as made, torch.config.using(executor="native"):
        made.captures, made.launched = captures, launched
        yield made


def training(device, steps, compiled, rate):
    """The losses of a net, and what is learnt."""
    torch.manual_seed(0)
    x, y = torch.randn(16, 8).to(device), torch.randn(16, 4).to(device)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run, losses = torch.compile(step) if compiled else step, []
    for at in range(steps):
        optimizer.param_groups[0]["lr"] = rate(at)
        losses.append(run(x, y).item())
    return losses, [p.detach().cpu().numpy() for p in model.parameters()]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("rate", [lambda at: 0.01, lambda at: 0.01 / (1 + at)])
def test_training_becomes_a_graph(driver, compiled, rate):
    """A step of a training is launched as one graph, whose numbers (the step count, a learning rate) are its own."""
    losses, parameters = training("cuda", 30, compiled, rate)
    expected, theirs = training("cpu", 30, False, rate)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for mine, other in zip(parameters, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)
    assert len(driver.captures) <= 2 and len(driver.launched) >= 20, (len(driver.captures), len(driver.launched))


def test_times_of_kernels_come_from_waiting(driver):
    class Kernels(Observer):
        def __init__(self):
            self.seen = []

        def ran(self, run):
            self.seen.append((run.start, run.end, run.lines))

    x = torch.ones(64, 64).to("cuda")
    torch.cuda.synchronize()
    with observing(Kernels()) as kernels:
        y = (x * 2).sum(0)
        y.cpu().numpy()
    assert kernels.seen and all(start <= end for start, end, _ in kernels.seen)
    assert any("test_graphs.py" in line for _, _, lines in kernels.seen for line in lines)


def test_a_refused_launch_says_the_line(driver, monkeypatch):
    from flambeau.backends.cuda.schedule import GridSchedule
    monkeypatch.setattr(GridSchedule, "grid", lambda self, launch: (1, 1 << 20, 1))         # more than there can be
    y = torch.ones(64, 64).to("cuda").exp()
    for _ in range(2):                            # now, and every time
        told = None
        try:
            y.cpu().numpy()
        except DeviceFailed as error:             # not by pytest.raises, which would keep the tensor alive
            told = str(error), *error.__notes__
        assert "launching a kernel" in told[0] and "exp" in told[1] and "test_graphs.py" in told[1]
    del y
    torch.cuda.synchronize()


def test_an_error_of_a_kernel_tells_the_lines_at_the_next_wait(driver, monkeypatch):
    from flambeau.backends.cuda.schedule import GridSchedule
    plain = GridSchedule.ints

    def too_many(self, launch):
        count, *rest = plain(self, launch)
        return [count * 100, *rest]
    x = torch.ones(64, 64).to("cuda")
    torch.cuda.synchronize()
    monkeypatch.setattr(GridSchedule, "ints", too_many)
    monkeypatch.setattr(GridSchedule, "grid", lambda self, launch: (100, 1, 1))
    y = x.tanh()
    told = None
    try:
        y.cpu().numpy()
    except RuntimeError as error:
        told = str(error), *getattr(error, "__notes__", ())
    assert "illegal memory access" in told[0] and "test_graphs.py" in told[1], told
    del y


def test_reads_that_begin_elsewhere(driver):
    """One plan reads rows from wherever they begin, aligned or not: Note [Moving offsets] in trace/running/key.py."""
    array = np.arange(40 * 6, dtype=np.float32).reshape(40, 6)
    x = torch.tensor(array).to("cuda")
    torch.cuda.synchronize()
    plan.forget()
    for row, column in ((1, 1), (3, 2), (2, 1), (8, 2), (8, 1), (31, 2)):
        y = (x[row:row + 8, column:column + 4] * x[row + 1, column:column + 4]).sum(1) + x[row, :1]
        part = array[row:row + 8, column:column + 4] * array[row + 1, column:column + 4]
        np.testing.assert_allclose(y.cpu().numpy(), part.sum(1) + array[row, :1], rtol=1e-6)
    assert len(plan._plans) == 1
