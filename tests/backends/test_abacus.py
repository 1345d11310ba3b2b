"""A device that compiles by other means than the CPU: the same kernels, with a schedule, code and programs of its own.
"""
import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.trace.planning import plan
from flambeau.trace.running import interpret

from ..ops.rows import results
from ..ops.test_tables import floating, rows
from .test_toy import stays
from .toy import abacus

ABACUS = torch.device("abacus", 0)

# what fails on the way to its kernels would be left to the reference, and be said
pytestmark = [pytest.mark.pinned, pytest.mark.filterwarnings("error:.*mistake in Flambeau")]


@pytest.fixture
def log():
    torch.zeros(0, device=ABACUS)
    plan.forget()
    backend = ABACUS.backend
    backend.forget()
    backend.log.clear()
    with torch.config.using(executor="native"):
        yield backend.log
    backend.log.clear()


def close(a, b, tol=2e-5):
    a, b = a.detach().cpu(), b.detach()
    if a.dtype in (torch.float16, torch.bfloat16):
        a, b, tol = a.float(), b.float(), 1e-2
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=tol, atol=tol)


@rows(lambda row: row.op != "cpu", step=2)
def test_operations(row, monkeypatch):
    """Every row of every table: what the reference gives on the CPU, and derivatives too."""
    monkeypatch.setattr(interpret, "_said", [])
    ours, theirs = row.tensors(leaf=bool(row.grad)), row.tensors(leaf=bool(row.grad))
    with torch.config.using(executor="native"):
        ours = [t if stays(row, t) else t.detach().to(ABACUS).requires_grad_(t.requires_grad) for t in ours]
        torch.manual_seed(0)
        with ABACUS:
            mine = row.ours(*ours)
        torch.manual_seed(0)
        with torch.config.using(executor="reference"):
            other = row.ours(*theirs)
        for a, b in zip(results(mine), results(other), strict=True):
            if not isinstance(a, torch.Tensor):
                assert a == b
                continue
            assert a.device == (b.device if stays(row, a) else ABACUS) and a.dtype == b.dtype
            assert a.shape == b.shape and a.stride() == b.stride()
            close(a, b)
        if row.grad:
            for made in (mine, other):
                sum((f.abs() if f.is_complex() else f).sum() for f in floating(made)).backward()
            for a, b in zip(ours, theirs, strict=True):
                if b.grad is not None:
                    assert a.grad.device == ABACUS
                    close(a.grad, b.grad, 1e-4)


def test_a_kernel_with_another_schedule(log):
    x = torch.arange(12.0).reshape(3, 4).to(ABACUS)
    torch.cpu.synchronize()
    y = torch.softmax(x * 0.1, 1)
    kernel, = torch.plans.of(y).steps
    assert str(kernel) == "kernel 0 on abacus:0  over [3 × 4]  mul, top, sub, exp, sum, div, mul  reads %0  gives %2"
    theirs = torch.plans.of(torch.softmax(x.cpu() * 0.1, 1)).steps[-1]
    mine, cpus = str(kernel.loop).splitlines(), str(theirs.loop).splitlines()
    assert mine[:-1] == cpus[:-1]                             # what is computed
    assert mine[-1] == "  schedule all positions in one go" and cpus[-1].startswith("  schedule lanes along r1")
    assert kernel.llvm == kernel.assembly == str(kernel.loop)
    np.testing.assert_allclose(y.cpu().numpy(), torch.softmax(torch.arange(12.0).reshape(3, 4) * 0.1, 1).numpy(),
                               rtol=1e-6)
    assert "launch" in log and "softmax" not in log and "mul" not in log


def test_code_is_made_once(log):
    for n in (5, 6, 7):
        x = torch.arange(float(n)).to(ABACUS)
        assert (x * 2 + 1).tolist() == [2.0 * i + 1 for i in range(n)]
    assert log.count("compile") == 1 and log.count("launch") == 3


def test_a_library_of_its_own(log):
    a = torch.arange(6.0).reshape(2, 3).to(ABACUS)
    torch.cpu.synchronize()
    y = (a @ a.mT + 1).relu()
    assert [step.kind for step in torch.plans.of(y).steps] == ["library", "kernel"]
    assert y.tolist() == [[6, 15], [15, 51]] and log.count("library") == 1
    x = torch.arange(9.0).reshape(1, 1, 3, 3).to(ABACUS)      # which has no convolutions
    assert nn.functional.conv2d(x, torch.ones(1, 1, 2, 2, device=ABACUS)).tolist() == [[[[8, 12], [20, 24]]]]


def test_two_devices_that_compile_are_one_plan(log):
    x, y = torch.arange(100.0), torch.arange(100.0).to(ABACUS)
    torch.cpu.synchronize()
    log.clear()
    z = ((x * 2 + 1).to(ABACUS) * y + y.sum()).cpu().sqrt() - x
    assert [(step.kind, str(step.device)) for step in torch.plans.of(z).steps] == [
        ("kernel", "cpu"), ("transfer", "abacus:0"), ("kernel", "abacus:0"), ("transfer", "cpu"), ("kernel", "cpu")]
    n = np.arange(100.0)
    np.testing.assert_allclose(z.numpy(), np.sqrt((n * 2 + 1) * n + n.sum()) - n, rtol=1e-5)
    assert log.count("from_host") == log.count("to_host") == 1 and not {"mul", "add", "_sum"} & set(log)


def test_what_is_laid_down_for_a_reduction_stands_on_its_device(log):
    """Working memory that a reduction reads in an order of its own has a layout, and that is of this device too."""
    x = torch.arange(99.0).reshape(33, 3).half().to(ABACUS).t()
    torch.cpu.synchronize()
    y = x * 2
    made = y.amin(0), y.amax(1), y.max()
    torch.cpu.synchronize()
    assert {step.kind for step in torch.plans.last().steps} == {"kernel"}
    n = np.arange(99.0).reshape(33, 3).T * 2
    for a, b in zip(made, (n.min(0), n.max(1), n.max()), strict=True):
        np.testing.assert_array_equal(a.cpu().numpy(), b)


def test_one_answer():
    """The first time, by instructions, and the third, by a plan; the order of sums is this device's own."""
    plan.forget()
    rng = np.random.default_rng(3)
    with torch.config.using(executor="auto"):
        x = torch.tensor(rng.normal(size=(7, 1000)).astype(np.float32)).to(ABACUS)
        for work in (lambda: (x * 0.3).exp().sum(1), lambda: x.softmax(1).sum(0), lambda: x.var(1), lambda: x.mean(),
                     lambda: torch.nn.functional.layer_norm(x, (1000,)).sum()):
            made = [work().cpu().numpy() for _ in range(3)]
            assert torch.plans.last() is not None
            assert made[0].tobytes() == made[1].tobytes() == made[2].tobytes()
    assert x.sum(1).tolist() != x.cpu().sum(1).tolist()       # other lanes, other digits


def test_a_device_without_another_way_is_planned_at_once(monkeypatch, log):
    monkeypatch.setattr(abacus.AbacusBackend, "interprets", False)
    with torch.config.using(executor="auto"):
        x = torch.ones(3, device=ABACUS)
        log.clear()
        assert (x * 5 - 2).exp().sum().item() == pytest.approx(3 * np.exp(3.0))
        assert torch.plans.last().kernels and "launch" in log and "exp" not in log


def test_writes_in_place(log):
    made = []
    for device in ("cpu", ABACUS):
        x = torch.arange(12.0, device=device).reshape(3, 4)
        x[1] = 7
        x.t()[2].mul_(10)
        x[:, 1:3].copy_(x[:, :2].clone())
        x += x.sum(0)
        made.append(x.cpu().tolist())
    assert made[0] == made[1]


def test_training_and_compile(log):
    made = []
    for device in ("cpu", ABACUS):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2)).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        x, y = torch.randn(16, 4).to(device), (torch.arange(16) % 2).to(device)

        @torch.compile
        def step(x, y, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss
        for _ in range(5):
            loss = step(x, y)
        made.append([loss.item(), *[v for p in model.parameters() for v in p.detach().cpu().flatten().tolist()]])
        assert step.recordings[-1].hits >= 1
    np.testing.assert_allclose(made[1], made[0], rtol=2e-4, atol=2e-5)
