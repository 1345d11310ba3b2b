"""Without room to compile, or to hold what a body holds at once: the reference does the work, and it is said once."""
import tracemalloc
import warnings

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import flambeau as torch
from flambeau.backends import reference
from flambeau.backends.cpu import machine_code
from flambeau.backends.cpu.memory import allocator
from flambeau.backends.kernel_store.store import KernelStore
from flambeau.base import settings
from flambeau.tensor.forms import declared
from flambeau.trace.planning import plan
from flambeau.trace.running import interpret, runner

pytestmark = pytest.mark.pinned


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """As in a new process without kernels of the package: nothing is compiled, nothing was said."""
    monkeypatch.setattr(machine_code.host(), "store", KernelStore(machine_code.host()))
    monkeypatch.setattr(interpret, "_tight", [])
    plan.forget()
    with torch.config.using(executor="auto", object_dir=""):
        yield
    plan.forget()


@pytest.fixture
def no_room(monkeypatch):
    """LLVM is told that there is none."""
    machine_code.target()                                                  # it is loaded
    monkeypatch.setattr(machine_code, "has_room", lambda nbytes: False)


def functions():
    """The functions of elementwise operations that native code has a body for."""
    for name, op in sorted(declared.items()):
        if op.pointwise and hasattr(op, "body"):
            for module in (torch, torch.special, torch.nn.functional):
                if hasattr(module, name):
                    yield name, getattr(module, name)
                    break


def results(function, executor):
    """What `function` gives for a few numbers; None where it wants other arguments."""
    x = torch.linspace(0.1, 0.9, 50)
    with torch.config.using(executor=executor):
        try:
            made = function(x)
        except (TypeError, RuntimeError):
            return None
        return (made if isinstance(made, torch.Tensor) else made[0]).numpy().copy()


def test_every_operation_does_without_the_compiler(no_room):
    tried = 0
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for name, function in functions():
            expected = results(function, "reference")
            if expected is None:
                continue
            found = results(function, "auto")
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=name)
            tried += 1
    assert tried > 45
    assert len([w for w in said if "no memory to compile with" in str(w.message)]) == 1


@pytest.mark.parametrize("executor", ["auto", "native"])
def test_products_and_sums_of_functions_too(no_room, executor):
    a = torch.arange(12.0).reshape(3, 4)
    with pytest.warns(UserWarning, match="no memory to compile with: LLVM"), torch.config.using(executor=executor):
        assert ((a @ a.mT) / 100).exp().log().sum().item() == pytest.approx((a.numpy() @ a.numpy().T).sum() / 100)


def test_with_room_again_it_is_native_code_again(monkeypatch):
    machine_code.target()
    x = torch.linspace(-1, 1, 40)
    with monkeypatch.context() as patch, pytest.warns(UserWarning, match="no memory to compile with"):
        patch.setattr(machine_code, "has_room", lambda nbytes: False)
        x.tanh().tolist()
    before = machine_code.compiled
    x.tanh().tolist()
    assert machine_code.compiled > before


def test_who_asked_for_the_same_digits_is_refused_instead(no_room):
    torch.use_deterministic_algorithms(True)
    try:
        y = torch.linspace(-1, 1, 40).tanh()
        with pytest.raises(MemoryError, match="LLVM needs up to"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y.tolist()
    finally:
        torch.use_deterministic_algorithms(False)
    with pytest.warns(UserWarning, match="no memory to compile with"):
        assert y[-1].item() == pytest.approx(np.tanh(1))


def test_idle_memory_is_given_back_before_the_reference_is_asked(monkeypatch):
    x = torch.linspace(-1, 1, 40)
    expected = x.tanh().numpy().copy()
    real, left = interpret.BodyProgram.run, [1]

    def run(self, arrays, params):
        if left[0]:
            left[0] -= 1
            raise MemoryError
        return real(self, arrays, params)
    monkeypatch.setattr(interpret.BodyProgram, "run", run)
    monkeypatch.setattr(plan, "_plans", {})
    monkeypatch.setattr(runner, "_by_plan", lambda trace: False)
    monkeypatch.setattr(reference, "execute", lambda entry, *args: pytest.fail("the reference"))
    allocator.block(5 << 20)                                         # idle at once
    assert (x.tanh().numpy() == expected).all()


def test_more_than_there_could_ever_be_is_not_asked_of_numpy(monkeypatch):
    """A system that promises any amount of memory would end the process when it is touched."""
    one = torch.ones(1)
    torch.cpu.synchronize()
    with monkeypatch.context() as patch:
        patch.setattr(interpret.BodyProgram, "run", lambda *args: pytest.fail("begun"))
        patch.setattr(settings, "trace_bytes", 1 << 60)
        y = one.expand(1 << 40) + 1
        with pytest.raises(MemoryError, match="allocate 4398046511104 bytes"):
            y.data_ptr()
        del y
        torch.cpu.synchronize()


@pytest.mark.parametrize("name", ["tanh", "gelu", "softmax", "log_softmax", "silu", "cos", "mish", "sinc", "hardswish"])
def test_a_body_holds_what_is_said(name):
    """And lets go of the rest: of a long body, a few arrays at a time."""
    x = torch.linspace(-1, 1, 1 << 16).reshape(256, 256)
    torch.cpu.synchronize()
    function = getattr(torch.nn.functional, name, None) or getattr(torch, name)
    y = function(x, 1) if "softmax" in name else function(x)
    made = y._storage.value.trace.code[-1]
    entry, params = made.entry, made.params
    array = x.numpy()
    arrays = [array if i == 0 else None for i in range(len(made.slots))]
    interpret.execute(entry, arrays, params)                      # compiled, where need be
    program = interpret._programs[entry]
    tracemalloc.start()
    try:
        program.run(arrays, params)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    one = x.nbytes
    assert one <= program.nbytes <= 6 * one
    assert peak <= program.nbytes + 2 * one                       # NumPy's own, within a step
