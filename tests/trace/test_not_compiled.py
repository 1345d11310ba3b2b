"""A kernel that LLVM cannot compile or link: its part runs on the reference, all else natively, and it is said once.

The kernel is broken on purpose, by a renderer that calls a function that nobody has.
"""
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import flambeau as torch
from flambeau.backends.cpu import machine_code, program
from flambeau.backends.cpu.library import gemm
from flambeau.trace.planning import plan
from flambeau.trace.running import interpret, runner
from tests.patience import PATIENCE

pytestmark = pytest.mark.pinned

CALL = "  call void @nobody_has_this()\n  ret void"


def breaks(kernel, op):
    return f" {op}." in str(kernel).replace("= ", " ")


@pytest.fixture
def breaking(monkeypatch):
    """`breaking(op)`: kernels with the word `op` in them cannot be linked."""
    plan.forget()
    monkeypatch.setattr(interpret, "_said", [])
    real = program.render

    def begin(op):
        def render(kernel, schedule, name, target):
            text = real(kernel, schedule, name, target)
            if not breaks(kernel, op):
                return text
            return text.replace("  ret void", CALL, 1) + "declare void @nobody_has_this()\n"
        monkeypatch.setattr(program, "render", render)
    with torch.config.using(executor="native"):
        yield begin
    plan.forget()


def test_the_rest_runs_natively(breaking):
    breaking("sinh")
    x = torch.linspace(-2, 2, 1000)
    torch.cpu.synchronize()
    with pytest.warns(UserWarning, match="sinh") as said:
        y = (x * 2).exp().sum()
        z = (x + 1).sinh() * 3
        w = z.cos()
        np.testing.assert_allclose(z.numpy(), np.sinh(x.numpy() + 1) * 3, rtol=1e-6)
    assert len(said) == 1 and "flambeau info" in str(said[0].message)
    kinds = [(step.kind, step.words) for step in torch.plans.last().steps]
    assert ("kernel", ("mul", "exp", "sum")) in kinds
    assert any(kind == "reference" and "sinh" in words for kind, words in kinds)
    np.testing.assert_allclose(w.numpy(), np.cos(z.numpy()), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(y.item(), np.exp(x.numpy() * 2).sum(), rtol=1e-5)
    with warnings.catch_warnings(action="error"):                 # said once
        assert torch.linspace(0, 1, 50).sinh().add(1).sum().isfinite()


def test_no_other_trace_is_hurt(breaking):
    breaking("sinh")
    x = torch.ones(100)
    with pytest.warns(UserWarning, match="reference"):
        (x + 2).sinh().tolist()
    with warnings.catch_warnings(action="error"):
        assert (x + 2).cosh().tolist() == [pytest.approx(np.cosh(3.0))] * 100
        assert torch.plans.last().kernels
        assert (x + 2).sinh().tolist() == [pytest.approx(np.sinh(3.0))] * 100


def test_a_write_that_cannot_be_compiled_leaves_the_trace_to_the_reference(breaking):
    breaking("add")
    x = torch.zeros(10, dtype=torch.int64)
    with pytest.warns(UserWarning):
        x[2:4] += 1
        assert x.tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 0, 0]


def test_a_product_that_cannot_be_compiled(breaking, monkeypatch):
    def refusing(*args):
        raise machine_code.NotCompiled({"gemm": "nobody_has_this either"})
    monkeypatch.setattr(gemm, "gemm", refusing)
    a = torch.arange(12.0).reshape(3, 4)
    with pytest.warns(UserWarning, match="nobody_has_this either"):
        assert (a @ a.mT + 1).tolist() == (a.numpy() @ a.numpy().T + 1).tolist()


def test_a_mistake_in_planning_is_no_error_of_the_program(monkeypatch):
    """Nor of what is read next to it."""
    plan.forget()
    monkeypatch.setattr(interpret, "_said", [])
    real = plan.Nest

    def nest(group):
        if any(node.op == "sinh" for node in group.nodes):
            raise KeyError("sinh")
        return real(group)
    monkeypatch.setattr(plan, "Nest", nest)
    x = torch.linspace(-2, 2, 100)
    torch.cpu.synchronize()
    with torch.config.using(executor="native"):
        y, z = (x * 2).exp(), x.sinh() + 1
        with pytest.warns(UserWarning, match="KeyError: 'sinh'.*(?s:.*)Traceback.*") as said:
            np.testing.assert_allclose(z.numpy(), np.sinh(x.numpy()) + 1, rtol=1e-5)
        assert len(said) == 1
        np.testing.assert_allclose(y.numpy(), np.exp(x.numpy() * 2), rtol=1e-6)
        assert (x * 3).sum().item() == pytest.approx(0, abs=1e-4) and torch.plans.last() is not None
    plan.forget()


def test_a_mistake_in_a_body_is_none_either(monkeypatch):
    interpret.forget_programs()
    monkeypatch.setattr(interpret, "_said", [])

    def broken(node, backend):
        raise KeyError(node.op)
    monkeypatch.setattr(interpret, "_step", broken)
    monkeypatch.setattr(plan, "_plans", {})
    monkeypatch.setattr(runner, "_by_plan", lambda trace: False)
    with torch.config.using(executor="auto"), pytest.warns(UserWarning, match="This is a mistake in Flambeau"):
        x = torch.linspace(-2, 2, 100)
        np.testing.assert_allclose(x.sinh().numpy(), np.sinh(np.linspace(-2, 2, 100)), rtol=1e-5)
    interpret.forget_programs()


PROGRAM = """
import warnings
import flambeau as torch
from flambeau.backends.cpu import machine_code, program
real = program.render
def render(kernel, schedule, name, target):
    text = real(kernel, schedule, name, target)
    if BREAK and "sinh." in str(kernel):
        text = text.replace("  ret void", "  call void @nobody_has_this()\\n  ret void", 1)
        text += "declare void @nobody_has_this()\\n"
    return text
program.render = render
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    x = torch.ones(100)
    y, z = (x * 2).exp(), (x + 2).sinh()
    print(round(y.sum().item(), 2), round(z.sum().item(), 2), len(said), machine_code.compiled, machine_code.loaded)
"""


def test_later_processes_are_not_hurt(tmp_path):
    def run(broken):
        env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path / "objects"), "FLAMBEAU_EXECUTOR": "native"}
        done = subprocess.run([sys.executable, "-c", f"BREAK = {broken}\n{PROGRAM}"], env=env, capture_output=True,
                              text=True, check=True, timeout=PATIENCE)
        return done.stdout.split()

    first = run(True)
    assert first[:3] == ["738.91", "1001.79", "1"]
    assert run(True)[:3] == first[:3]
    whole = run(False)
    assert whole[:4] == ["738.91", "1001.79", "0", "1"]           # sinh alone is compiled; all else is found
    assert run(False) == ["738.91", "1001.79", "0", "0", str(1 + int(whole[4]))]
