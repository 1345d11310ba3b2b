"""Kernels that are compiled in the background: the trace runs meanwhile, with the same bits, and then by its plan.

See Note [Compiled beforehand] in trace/planning/plan.py. The least text that is worth it is taken down to nothing here.
"""
import os
import re
import subprocess
import sys
import threading
import time
from array import array

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import flambeau as torch
from flambeau.backends.backend import Task
from flambeau.backends.cpu import compile_thread, machine_code, program
from flambeau.backends.kernel_store.store import KernelStore
from flambeau.base.spec import CPU
from flambeau.loops.ir import FUNCTION_WORDS, TWO_ARGUMENT_WORDS
from flambeau.trace.planning import plan
from flambeau.trace.running import interpret
from tests.patience import NEVER, PATIENCE
from tests.thorough import sample

pytestmark = pytest.mark.pinned


@pytest.fixture(autouse=True)
def background(monkeypatch):
    plan.forget()
    plan._sightings.clear()
    monkeypatch.setattr(program, "LONG_TEXT_CHARACTERS", 0)
    monkeypatch.setattr(program, "CHARACTER_NANOSECONDS", 1 << 60)
    monkeypatch.setattr(machine_code.host().store, "tiers", [])
    with torch.config.using(executor="auto", object_dir=""):
        yield
    plan.forget()


@pytest.fixture
def held(monkeypatch):
    """`held()` has done what was to be done in the background, which otherwise nobody does."""
    tasks = []
    monkeypatch.setattr(machine_code, "beforehand", lambda work, *args: tasks.append((work, args)))
    monkeypatch.setattr(machine_code, "is_through", lambda: not tasks)

    def release():
        for work, args in tasks:
            compile_thread.undisturbed(work, *args)
        tasks.clear()

    return release


def ended():
    until = time.monotonic() + PATIENCE
    while not compile_thread.is_through():
        assert time.monotonic() < until
        time.sleep(0.01)


def by_a_plan():
    return bool(torch.plans.last() and torch.plans.last().kernels)


def expression(x, sines):
    """An expression that every test has a kernel of its own for."""
    out = (x * 0.37).sigmoid() - x.mean(1, keepdim=True)
    for _ in range(sines):
        out = out.sin()
    return out.exp().sum(0)


def test_a_trace_runs_while_it_is_compiled_and_by_its_plan_afterwards():
    x = torch.randn(200, 77)
    torch.cpu.synchronize()
    first = expression(x, 1).tolist()
    for _ in range(50):
        assert expression(x, 1).tolist() == first
        if by_a_plan():
            break
        ended()
    assert by_a_plan()
    with torch.config.using(executor="native"):
        assert expression(x, 1).tolist() == first


def test_nobody_waits_for_it(held):
    x = torch.randn(60, 31)
    torch.cpu.synchronize()
    first = expression(x, 2).tolist()
    before = machine_code.compiled
    for _ in range(4):                                        # it is planned, and its kernels are not there
        assert expression(x, 2).tolist() == first
    assert not by_a_plan() and machine_code.compiled == before
    held()
    assert expression(x, 2).tolist() == first
    assert by_a_plan()


def test_whoever_asks_for_a_plan_waits(held):
    x = torch.randn(50, 33)
    torch.cpu.synchronize()
    for _ in range(3):
        expression(x, 3).tolist()
    assert torch.plans.of(expression(x, 3)).kernels
    for _ in range(2):
        with torch.config.using(executor="native"):
            y = expression(x, 3)
            y.tolist()
            assert by_a_plan()


def test_what_is_on_the_disk_is_not_compiled_in_the_background(tmp_path, monkeypatch, held):
    x = torch.randn(44, 32)
    torch.cpu.synchronize()

    def begin():
        plan.forget()
        host = machine_code.host()
        monkeypatch.setattr(host, "store", KernelStore(host, *host.store.tiers))       # as in another process

    with torch.config.using(object_dir=str(tmp_path)):
        begin()
        with torch.config.using(executor="native"):
            first = expression(x, 9).tolist()
        begin()
        assert expression(x, 9).tolist() == first             # one instruction after the other
        before = machine_code.compiled
        assert expression(x, 9).tolist() == first
        assert by_a_plan() and machine_code.compiled == before


def test_a_compiled_function_waits():
    x = torch.randn(45, 34)
    torch.cpu.synchronize()
    first = expression(x, 4).tolist()
    compiled = torch.compile(expression)
    assert [compiled(x, 4).tolist() for _ in range(4)] == [first] * 4
    assert sum(recording.hits for recording in compiled.recordings) == 3


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_does_without_the_thread():
    x = torch.randn(40, 35)
    torch.cpu.synchronize()
    compile_thread.undisturbed(int)                           # the thread is there
    for _ in range(50 * NEVER):
        compile_thread.beforehand(time.sleep, 0.02)
    first = [expression(x, 5).tolist() for _ in range(3)]
    assert not compile_thread.is_through() and not by_a_plan()
    child = os.fork()
    if not child:
        status = 1
        try:
            again = [expression(x, 5).tolist() for _ in range(3)]
            status = 0 if [*first, *again] == [first[0]] * 6 and by_a_plan() else 2
        finally:
            os._exit(status)
    compile_thread._later.clear()
    assert os.waitpid(child, 0)[1] == 0


def test_what_cannot_be_compiled_is_said_by_whoever_needs_it(monkeypatch):
    monkeypatch.setattr(interpret, "_said", [])
    real = program.render

    def broken(kernel, schedule, name, target):
        text = real(kernel, schedule, name, target)
        if not {"sigmoid", "mul"} <= set(re.findall(r" = (\w+)\.", str(kernel))):
            return text                                       # what interprets the word is a kernel of its own
        return text.replace("  ret void", "  call void @nobody_has_this()\n  ret void", 1) \
            + "declare void @nobody_has_this()\n"

    x = torch.randn(30, 37)
    torch.cpu.synchronize()
    expected = expression(x, 6).tolist()
    monkeypatch.setattr(program, "render", broken)
    with pytest.warns(UserWarning, match="sigmoid"):
        for _ in range(6):
            assert expression(x, 6).tolist() == expected
            ended()
    assert by_a_plan()                                        # all but the broken part


def test_a_look_for_what_is_there_does_not_wait_for_it():
    begun, may_end = threading.Event(), threading.Event()
    compile_thread.beforehand(lambda: (begun.set(), may_end.wait(PATIENCE)))
    try:
        assert begun.wait(PATIENCE)
        assert compile_thread.undisturbed(int, "3") == 3 and not may_end.is_set()
        x = torch.ones(4, 3)
        torch.cpu.synchronize()
        assert (x @ x.t()).sum().item() == 48                 # code that came with the package, or is compiled now
        assert not compile_thread.is_through()
    finally:
        may_end.set()
    ended()


def test_code_that_is_being_compiled_is_not_compiled_once_more(monkeypatch):
    begun, may_go, real = threading.Event(), threading.Event(), machine_code._compile

    def held_up(parts, symbols, asked):
        begun.set()
        assert may_go.wait(PATIENCE)
        return real(parts, symbols, asked)

    text = {"adds_41": "define i64 @adds_41(i64 %x) {\n  %y = add i64 %x, 41\n  ret i64 %y\n}\n"}
    before = machine_code.compiled
    monkeypatch.setattr(machine_code, "_compile", held_up)
    machine_code.prepare(text)
    assert begun.wait(PATIENCE)
    monkeypatch.setattr(machine_code, "wait_for_piece", lambda: (may_go.set(), compile_thread.wait_for_piece()))
    assert machine_code.functions(text)["adds_41"] and machine_code.compiled == before + 1


def test_what_a_plan_needs_is_compiled_together(monkeypatch):
    pieces = []
    monkeypatch.setattr(machine_code, "beforehand", lambda work, texts: pieces.append(texts))
    monkeypatch.setattr(machine_code, "BACKGROUND_CHARACTERS", 100)
    texts = {f"f{n}": "x" * length for n, length in enumerate((30, 30, 30, 30, 200, 10))}
    machine_code.prepare(texts)
    assert [[*piece] for piece in pieces] == [["f0", "f1", "f2"], ["f3"], ["f4"], ["f5"]]


def test_python_ends_without_waiting_for_it():
    program = """
import time, flambeau as torch
from flambeau.backends.cpu import compile_thread
compile_thread.undisturbed(int)
for _ in range(30_000):
    compile_thread.beforehand(time.sleep, 0.1)
x = torch.ones(3) + 1
print(x.tolist())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode == 0 and ran.stdout == "[2.0, 2.0, 2.0]\n", ran.stderr


def test_kernels_that_differ_in_words_alone_are_one():
    """How many vectors are worth taking at once may not show in the code."""
    torch.cpu.synchronize()
    with torch.config.using(executor="native"):
        texts = set()
        for rows in (20, 400):
            x = torch.ones(3, rows, 50)
            made = torch.plans.of((((x * 2 + 1).exp() * x).sigmoid() * x).sum((0, 1)))
            texts |= {program.rendered(step.launch) for step in made.kernels}
            assert all(name in text for name, text in texts)
        assert len(texts) == len({text for _, text in texts}) == len({name for name, _ in texts})
        np.testing.assert_array_equal(torch.ones(5).mul(2).numpy(), [2.0] * 5)


# --- quickly, then well -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", sample(sorted(FUNCTION_WORDS), 3))
@pytest.mark.parametrize("type, dtype", [("f32", np.float32), ("f64", np.float64)])
def test_code_that_was_made_quickly_gives_the_same_bits(word, type, dtype, monkeypatch):
    count, backend, host, found = 2 if word in TWO_ARGUMENT_WORDS else 1, CPU.backend, machine_code.host(), {}
    draw = np.random.default_rng(5)
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 88.8, -104.0]
    given = [np.concatenate([draw.standard_normal(300) * 3, np.resize(special, 60 + n)]).astype(dtype)[:360]
             for n in range(count)]
    monkeypatch.setattr(machine_code, "when_idle", lambda *work: None)
    for size in (1, interpret.HASTY_NUMEL):
        monkeypatch.setattr(host, "store", KernelStore(host))
        launch = interpret._function(word, type, count, backend, size).over(360)
        out = np.empty(360, dtype)
        tasks = [Task(launch, [(i, 0) for i in range(count + 1)])]
        backend.program(tasks).run([*map(backend.address, given), backend.address(out)], array("q"))
        found[size] = host.store.launches[launch.text], out.tobytes()
    (quick, one), (well, other) = found.values()
    assert quick != well and one == other
