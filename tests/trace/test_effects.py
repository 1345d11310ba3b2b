"""Operations with effects: each happens once for each call, in order, whatever fails or is dropped around it."""
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

import flambeau as torch
from flambeau.backends.cpu.memory import allocator
from flambeau.base import settings
from flambeau.base.op import Op
from flambeau.base.spec import spec
from flambeau.tensor.forms import declared
from flambeau.trace.recording import record
from flambeau.trace.recording.record import current
from flambeau.trace.running import effects, program
from tests.backends import toy  # noqa: F401 (it registers the device)
from tests.patience import PATIENCE
from tests.thorough import THOROUGH

LOG: list = []                # (tag, sum of what was seen) of each effect that happened


class Broken(Exception):
    pass


class Stop(BaseException):
    """Stands for KeyboardInterrupt."""


def broken(*args, **kwargs):
    raise Broken


class note(Op):
    """`input` as it is, and a line in the log; the tags "bad" and "stop" raise."""

    effect = True

    def meta(input, tag): return input

    def ref(xp, input, tag):
        LOG.append((tag, float(input.sum())))
        if tag == "bad":
            raise Broken(tag)
        if tag == "stop":
            raise Stop(tag)
        return input

    def d_input(g, tag): return note(g, f"d_{tag}")


class note_now(Op):
    """As `note`, at the call."""

    effect = eager = True

    def meta(input, tag): return input

    def ref(xp, input, tag):
        LOG.append((tag, float(input.sum())))
        if tag == "bad":
            raise Broken(tag)
        return input


class halves(Op):
    """The two halves of `input`, and a line in the log: an effect with several results."""

    effect = True

    def meta(input, tag): return (input, input)

    def ref(xp, input, tag):
        LOG.append((tag, float(input.sum())))
        return input / 2, input / 2


class stamp(Op):
    """The number of lines in the log before it: an effect that reads nothing."""

    effect = True

    def meta(tag): return spec(torch.float32, ())

    def ref(xp, tag):
        LOG.append((tag, 0.0))
        return xp.asarray(len(LOG) - 1.0, xp.float32)


@pytest.fixture(autouse=True)
def log():
    current().run()
    LOG.clear()
    yield LOG
    current().run()
    assert not effects.pending


@pytest.fixture(params=["reference", "auto", "native"])
def executor(request):
    if request.param != "reference":
        pytest.importorskip("llvmlite")
    with torch.config.using(executor=request.param):
        yield request.param


def tags():
    return [tag for tag, _ in LOG]


# --- exactly once, in order -------------------------------------------------------------------------------------------


@pytest.mark.pinned
def test_what_nobody_reads_happens_too_and_in_order(executor):
    for _ in range(3):                           # not planned, planned, planned before
        x = torch.arange(4.0)
        note(x * 2, "a")
        y = note(x + 1, "b")
        z = (y * 2).exp()
        note(y, "c")
        del y
        assert LOG == []
        assert z.sum().item() == pytest.approx(np.exp([2.0, 4, 6, 8]).sum(), rel=1e-6)
        assert LOG == [("a", 12), ("b", 10), ("c", 10)]
        torch.cpu.synchronize()
        assert len(LOG) == 3
        LOG.clear()


@pytest.mark.pinned
def test_it_sees_what_was_there_at_the_call(executor):
    for _ in range(3):
        x = torch.ones(6)
        note(x, "before")
        x[2:4] = 5
        note(x[1:3], "part")
        x.mul_(10)
        note(x.view(2, 3).t(), "after")
        x.zero_()
        assert x.tolist() == [0] * 6
        assert LOG == [("before", 6), ("part", 6), ("after", 140)]
        LOG.clear()


@pytest.mark.pinned
def test_several_results_and_none_that_it_reads(executor):
    for _ in range(3):
        a, b = halves(torch.full((4,), 6.0), "h")
        del a
        first, second = stamp("s"), stamp("t")
        assert (b + 1).tolist() == [4] * 4
        assert tags() == ["h", "s", "t"] and (first.item(), second.item()) == (1, 2)
        LOG.clear()


def test_equal_calls_each_happen():
    x = torch.ones(3)
    made = [note(x, "same") for _ in range(3)]
    assert all(m.tolist() == [1] * 3 for m in made) and LOG == [("same", 3)] * 3


def test_a_step_of_its_own_in_a_plan():
    pytest.importorskip("llvmlite")
    x = torch.ones(1000)
    torch.cpu.synchronize()
    y = note(x * 2 + 1, "a") * 3
    note(x, "b")
    plan = torch.plans.of(y)
    assert str(plan) == """\
kernel 0  over [1000]  mul, fma  reads %0  keeps %2
callback 1  note  reads %2  gives %3
kernel 2  over [1000]  mul  reads %3  gives %4
callback 3  note  reads %0  gives %5"""
    assert [step.instructions for step in plan.steps] == [(0, 1), (2,), (3,), (4,)]
    assert plan.steps[1].nbytes == 8000 and LOG == []


@pytest.mark.pinned
def test_at_a_bound_at_a_milestone_and_before_memory_is_shared(executor, monkeypatch):
    x = torch.ones(3)
    note(x, "milestone")
    parameters = [torch.nn.Parameter(torch.ones(3)) for _ in range(9)]
    for p in parameters:
        p.grad = torch.ones(3)
    torch.optim.SGD(parameters).step()
    assert tags() == ["milestone"]
    note(x, "shared")
    torch.ones(3).data_ptr()
    assert tags() == ["milestone", "shared"]
    monkeypatch.setattr(settings, "trace_instructions", 10)
    for i in range(25):
        note(x, i)
    assert tags()[2:] == list(range(20))


@pytest.mark.pinned
def test_at_the_call_where_it_is_eager(executor):
    x = torch.ones(3)
    note(x, "recorded")
    y = note_now(x * 2, "now")
    assert LOG == [("recorded", 3), ("now", 6)] and y.tolist() == [2] * 3
    with pytest.raises(Broken):
        note_now(x, "bad")
    assert tags() == ["recorded", "now", "bad"]


def test_on_memory_that_the_outside_sees_it_is_at_the_call():
    array = np.ones(3, np.float32)
    x = torch.from_numpy(array)
    note(x, "a")
    assert LOG == [("a", 3)]
    array[:] = 2
    note(x, "b")
    assert LOG == [("a", 3), ("b", 6)]


def test_on_another_device():
    x = torch.ones(3).to("toy")
    note(x * 2, "a")
    y = note(x, "b") + 1
    note(torch.ones(2), "cpu")
    assert y.tolist() == [2] * 3 and LOG == [("a", 6), ("b", 3), ("cpu", 2)]


@pytest.mark.pinned
def test_across_devices(executor):
    class fetch(Op):
        """`input` on the CPU, times `factor`, which may be there already."""
        effect = pointwise = True
        def infer(args): return args[0].on(args[1].device), None, None
        def ref(xp, input, factor):
            LOG.append(("fetch", float(input.sum())))
            return input * factor
    for _ in range(3):
        x, factor = torch.ones(3).to("toy"), torch.tensor(2.0) * 1.5
        y = fetch(x * 2, factor)
        note(x, "after")
        assert str(y.device) == "cpu" and (y + 1).tolist() == [7] * 3
        assert LOG == [("fetch", 6), ("after", 3)]
        LOG.clear()


def test_nothing_happens_on_the_meta_device():
    assert note(torch.ones(3, device="meta"), "a").shape == (3,)
    torch.cpu.synchronize()
    assert LOG == []


def test_an_effect_is_that_of_its_reference_and_gives_something():
    class silent(Op):
        effect = True
        def meta(input): return ()
        def ref(xp, input): return ()
    with pytest.raises(TypeError, match=r"silent\(\) has an effect and no result"):
        silent(torch.ones(3))

    class bodied(Op):
        effect = True
        def meta(input): return input
        def ref(xp, input): return input
        def body(k, input): return input
    with pytest.raises(TypeError, match="bodied has an effect, which is that of running its `ref`"):
        bodied(torch.ones(3))


def test_memory_is_let_go_of():
    x = torch.ones(3)
    note(x, "a")
    value = next(iter(effects.pending))
    torch.cpu.synchronize()
    assert len(gc.get_referrers(value)) <= 1 and not effects.pending


# --- with failures around it ------------------------------------------------------------------------------------------


def mixed():
    """Pure operations, some of them steps of the reference, writes in place, and effects; what it gives and says."""
    x = torch.arange(6.0)
    y = note(x * 2, "a")
    x[1:3] = y[3:5]
    z = x.clone()
    note(x, "b")
    x.index_add_(0, torch.tensor([0, 5]), torch.tensor([100.0, 200.0]))
    y.mul_(x)
    first, second = halves(y, "c")
    z[0] = y.sum()
    values, order = (first + second).sort(descending=True)
    last = note(values, "d")
    note(z, "e")
    return x, y, z, values, order, torch.cat([last[:2], z[:2]])


RESULTS = [[100, 6, 8, 3, 4, 205], [0, 12, 32, 18, 32, 2050], [2144, 6, 8, 3, 4, 5], [2050, 32, 32, 18, 12, 0],
           [5, 2, 4, 3, 1, 0], [2050, 32, 2144, 6]]
SAID = [("a", 30), ("b", 26), ("c", 2144), ("d", 2144), ("e", 2170)]


@pytest.mark.pinned
def test_without_failures(executor):
    for _ in range(3):
        assert [t.tolist() for t in mixed()] == RESULTS and LOG == SAID
        LOG.clear()


@pytest.mark.pinned
@pytest.mark.parametrize("kind", [Stop, MemoryError, Broken])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.usefixtures("sort_without_kernel")
def test_stopped_at_any_operation_then_run_again(executor, monkeypatch, kind, late):
    """Stop before or after the k-th thing is done that is no effect, for every k: each effect has happened once."""
    execute, update, native = record.execute, record.Trace._update, program.Program.run_stretch
    by_reference = program.execute
    assert [t.tolist() for t in mixed()] == RESULTS
    for k in range(1, 40):
        LOG.clear()
        left = [k]

        def stop(do, left=left):
            def counted(*args, **kwargs):
                left[0] -= 1
                made = do(*args, **kwargs) if late or left[0] else None
                if not left[0]:
                    raise kind
                return made
            return counted

        tensors = mixed()
        with monkeypatch.context() as patch:
            patch.setattr(record, "execute", stop(execute))
            patch.setattr(program, "execute", stop(by_reference))
            patch.setattr(record.Trace, "_update", stop(update))
            if kind is not Broken:               # which native code cannot raise
                patch.setattr(program.Program, "run_stretch", staticmethod(stop(native)))
            for _ in range(3):
                for tensor in tensors:
                    try:
                        tensor.tolist()
                    except kind:
                        pass
                    except RuntimeError as error:
                        assert "not run a second time" in str(error) and kind is Broken
        lost = [tag for tag, _ in SAID if tag not in tags()]
        assert LOG == [line for line in SAID if line[0] not in lost], k
        if kind is not Broken:                   # of a mistake, whoever reads it is told; nothing else is ever lost
            assert not lost and [t.tolist() for t in tensors] == RESULTS, k
        if left[0] > 0:
            break
    assert k > 2


@pytest.mark.pinned
def test_no_memory_at_any_moment(executor, monkeypatch):
    """The k-th time that memory is asked for there is none, for every k."""
    blank, block = allocator.blank, allocator.block
    assert [t.tolist() for t in mixed()] == RESULTS
    for k in range(1, 40):
        LOG.clear()
        left = [k]

        def stop(do, left=left):
            def counted(*args, **kwargs):
                left[0] -= 1
                if not left[0]:
                    raise allocator.failure(100)
                return do(*args, **kwargs)
            return counted

        tensors = mixed()
        with monkeypatch.context() as patch:
            patch.setattr(allocator, "blank", stop(blank))
            patch.setattr(allocator, "block", stop(block))
            for tensor in tensors:
                try:
                    tensor.tolist()
                except MemoryError:
                    pass
        assert [t.tolist() for t in tensors] == RESULTS and LOG == SAID, k
        if left[0] > 0:
            break


@pytest.mark.pinned
@pytest.mark.usefixtures("sort_without_kernel")
def test_an_operation_that_fails_for_others_only(executor, monkeypatch):
    monkeypatch.setattr(declared["sort"], "ref", broken)
    for _ in range(3):
        x = torch.arange(4.0)
        note(x, "a")
        bad = x.sort()[0]
        note(x + 1, "b")
        good = x * 2
        assert good.tolist() == [0, 2, 4, 6]
        for _ in range(2):
            with pytest.raises(Broken):
                bad.tolist()
        assert LOG == [("a", 6), ("b", 10)]
        LOG.clear()


@pytest.mark.pinned
@pytest.mark.usefixtures("sort_without_kernel")
def test_one_that_reads_what_failed_does_not_happen_and_that_is_said(executor, monkeypatch):
    monkeypatch.setattr(declared["sort"], "ref", broken)
    for _ in range(3):
        x = torch.arange(4.0)
        y = note(x.sort()[0], "never")
        note(x, "after")
        good = x * 2
        with pytest.raises(Broken):
            good.tolist()                        # whoever comes first
        assert LOG == []
        assert good.tolist() == [0, 2, 4, 6] and LOG == [("after", 6)]
        with pytest.raises((Broken, RuntimeError)):
            y.tolist()
        LOG.clear()
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match=r"note\(\) has an effect and is not run a second time: it could not be run, "
                                           r"since sort\(\) raised Broken"):
        y.tolist()


@pytest.mark.pinned
@pytest.mark.usefixtures("sort_without_kernel")
def test_one_for_whose_input_there_was_no_memory_happens_later(executor, monkeypatch):
    def full(*args, **kwargs):
        raise allocator.failure(1 << 40)
    x = torch.arange(4.0)
    y = note(x.sort(descending=True)[0], "a")
    note(x, "b")
    with monkeypatch.context() as patch:
        patch.setattr(declared["sort"], "ref", full)
        for _ in range(2):
            with pytest.raises(MemoryError):
                torch.cpu.synchronize()
        assert LOG == []
    assert y.tolist() == [3, 2, 1, 0] and tags() == ["a", "b"]


# --- that fails itself ------------------------------------------------------------------------------------------------


@pytest.mark.pinned
def test_an_error_goes_to_whoever_runs_it_and_the_rest_goes_on(executor):
    for _ in range(3):
        x = torch.arange(4.0)
        note(x, "a")
        note(x, "bad")
        note(x, "b")
        y = x * 3
        with pytest.raises(Broken) as got:
            y.tolist()
        line = test_an_error_goes_to_whoever_runs_it_and_the_rest_goes_on.__code__.co_firstlineno + 5
        assert got.value.__notes__ == [f"in note() giving float32[4], recorded at test_effects.py:{line}"]
        assert tags() == ["a", "bad"]
        assert y.tolist() == [0, 3, 6, 9] and tags() == ["a", "bad", "b"]
        LOG.clear()


@pytest.mark.parametrize("shared", [False, True])
def test_a_call_that_raises_for_another_has_not_taken_place(monkeypatch, shared):
    """The trace is at its bound, or the input is read at the call, and an effect before it fails."""
    array = np.ones(3, np.float32)
    x, y = torch.from_numpy(array) if shared else torch.ones(3), torch.ones(3)
    note(y, "bad")
    note(y, "a")
    if not shared:
        monkeypatch.setattr(settings, "trace_instructions", len(current().code))
    with pytest.raises(Broken) as got:
        note(x, "b")
    torch.cpu.synchronize()
    assert tags() == ["bad", "a"]
    note(x, "b")
    torch.cpu.synchronize()
    assert tags() == ["bad", "a", "b"] and got


@pytest.mark.pinned
def test_whoever_needs_it_is_told_every_time(executor):
    others = current().asides                    # of other tests
    for _ in range(3):
        x = torch.arange(4.0)
        bad = note(x, "bad")
        read = bad + 1
        never = note(read, "never")
        fine = note(x, "fine")
        with pytest.raises(Broken):
            torch.cpu.synchronize()
        for _ in range(2):
            for tensor in (bad, read, never):
                with pytest.raises(RuntimeError, match=r"has an effect and is not run a second time") as got:
                    tensor.tolist()
        with pytest.raises(RuntimeError, match="second time: it raised Broken: bad"):
            bad + 1                              # said where it is used
        assert any("in note() giving float32[4], recorded at test_effects.py" in line for line in got.value.__notes__)
        assert fine.tolist() == [0, 1, 2, 3]
        assert tags() == ["bad", "fine"]
        LOG.clear()
        del bad, read, never, fine, tensor, got
    gc.collect()                                 # errors and their frames hold each other, and the tensors in them
    torch.ones(2).tolist()
    assert {*current().asides} <= {*others}


@pytest.mark.pinned
def test_interrupted_it_is_not_run_again(executor):
    for _ in range(3):
        x = torch.arange(4.0)
        note(x, "a")
        stopped = note(x, "stop")
        note(x, "b")
        y = x * 3
        with pytest.raises(Stop):
            y.tolist()
        assert tags() == ["a", "stop"]
        assert y.tolist() == [0, 3, 6, 9] and tags() == ["a", "stop", "b"]
        with pytest.raises(RuntimeError, match="it was interrupted"):
            stopped.tolist()
        LOG.clear()


@pytest.mark.pinned
def test_without_memory_inside_it_is_not_tried_again(executor, monkeypatch):
    def full(xp, input, tag):
        LOG.append((tag, 0))
        raise MemoryError
    monkeypatch.setattr(allocator, "empty_cache", lambda: True)
    monkeypatch.setattr(note, "ref", full)
    y = note(torch.ones(3), "a")
    with pytest.raises(MemoryError):
        torch.cpu.synchronize()
    with pytest.raises(RuntimeError, match="not run a second time"):
        y.tolist()
    assert tags() == ["a"]


def test_one_may_compute_and_have_effects_itself():
    class calls(Op):
        effect = True
        def meta(input): return input

        def ref(xp, input):
            LOG.append(("outer", 0))
            note(torch.ones(2) * 2, "inner")
            assert (torch.ones(3) + 1).tolist() == [2] * 3
            return input
    x = torch.ones(3)
    calls(x)
    note(x, "after")
    torch.cpu.synchronize()
    torch.cpu.synchronize()
    assert sorted(tags()) == ["after", "inner", "outer"] and tags()[0] == "outer"


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signals")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")       # an interrupt inside a finaliser
@pytest.mark.pinned
def test_interrupted_anywhere_none_happens_twice(executor):
    """An exception out of nowhere, again and again: what happens is a part of the program, in its order, once each."""
    def handler(number, frame):
        raise Stop

    def step(i, x):
        y = note(x * 2, (i, 0))
        x = (x + y).tanh()
        note(x, (i, 1))
        return note(x.sort()[0], (i, 2)) + 1

    step(-1, torch.ones(5)).tolist()
    step(-1, torch.ones(5)).tolist()
    LOG.clear()
    old = signal.signal(signal.SIGALRM, handler)
    stopped = i = 0
    try:
        end = time.time() + (3 if THOROUGH else 1)
        while time.time() < end:
            i += 1
            wait = 0.0001 + i % 50 * 0.00005
            try:
                signal.setitimer(signal.ITIMER_REAL, wait)
                made = step(i, torch.ones(5))
                made.tolist()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Stop:
                stopped += 1
            except RuntimeError as error:
                assert "it was interrupted" in str(error) or "it reads what another" in str(error), error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    for _ in range(3):
        try:
            torch.cpu.synchronize()
        except RuntimeError as error:
            assert "it was interrupted" in str(error), error
    assert tags() == sorted(set(tags())) and stopped > 10
    assert LOG


# --- threads and processes --------------------------------------------------------------------------------------------


def test_of_a_thread_that_has_ended():
    def work():
        note(torch.ones(3), "there")
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    gc.collect()
    assert LOG == []
    torch.cpu.synchronize()
    assert tags() == ["there"]


def test_each_thread_keeps_its_order_whoever_runs_it():
    made, ready, done = {}, threading.Barrier(4), threading.Event()

    def work(name):
        x = torch.ones(3)
        ready.wait()
        for i in range(60):
            x = note(x * 1.0, (name, i))
            if i % 7 == 0:
                made[name] = x
        made[name] = x
        done.wait()
    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    ready.wait()
    for _ in range(200):
        for x in list(made.values()):
            assert x.tolist() == [1] * 3
    done.set()
    for thread in threads:
        thread.join()
    torch.cpu.synchronize()
    for name in "abc":
        assert [i for (owner, i), _ in LOG if owner == name] == list(range(60))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_repeats_nothing():
    recorded, go = threading.Event(), threading.Event()
    theirs = []

    def work():
        theirs.append(note(torch.ones(3), "theirs"))
        recorded.set()
        go.wait()
    thread = threading.Thread(target=work)
    thread.start()
    recorded.wait()
    mine = note(torch.ones(2), "mine")
    read, write = os.pipe()
    child = os.fork()
    if not child:
        said = []
        try:
            torch.cpu.synchronize()
            said += [str(tags()), str(mine.tolist())]
            try:
                theirs[0].tolist()
            except RuntimeError as error:
                said.append(str(error))
        finally:
            os.write(write, "\n".join(said).encode())
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as out:
        lines = out.read().split("\n")
    assert lines[:2] == ["['mine']", "[1.0, 1.0]"]
    assert lines[2].endswith("it was recorded before this process was forked, and happens in the parent")
    go.set()
    thread.join()
    torch.cpu.synchronize()
    assert tags() == ["mine", "theirs"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_at_the_end_of_a_worker():
    out = run_program("""
        import multiprocessing
        def work(n):
            say(torch.ones(n), "worker")
            say(torch.ones(n), "bad")
            say(torch.ones(n), "last")
        if __name__ == "__main__":
            say(torch.ones(1), "first")
            for n in (2, 3):
                p = multiprocessing.get_context("fork").Process(target=work, args=(n,))
                p.start()
                p.join()
            say(torch.ones(4), "end")
        """)[1]
    assert out == "first 1.0 worker 2.0 last 2.0 worker 3.0 last 3.0 end 4.0".split()


def run_program(text):
    text = """\
import threading
import flambeau as torch
from flambeau.base.op import Op

class say(Op):
    effect = True
    def meta(input, word): return input
    def ref(xp, input, word):
        if word == "bad":
            raise ValueError(word)
        print(word, input.sum(), flush=True)
        return input

""" + textwrap.dedent(text)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=PATIENCE)
    return done.returncode, done.stdout.split(), done.stderr


def test_at_the_end_of_the_process():
    assert run_program("""
        x = torch.ones(3)
        say(x * 2, "first")
        thread = threading.Thread(target=lambda: say(torch.ones(5), "other"))
        thread.start()
        thread.join()
        say(x, "bad")
        say(x, "last")
        """)[1] in (["first", "6.0", "other", "5.0", "last", "3.0"], ["first", "6.0", "last", "3.0", "other", "5.0"])


def test_at_the_end_of_a_process_nobody_waits_for_a_daemon():
    code, out, _ = run_program("""
        import time
        class hang(Op):
            effect = True
            def meta(input): return input
            def ref(xp, input):
                begun.set()
                time.sleep(1000)
        def work():
            x = hang(torch.ones(3))
            say(torch.ones(3), "theirs")
            x.tolist()
        begun = threading.Event()
        threading.Thread(target=work, daemon=True).start()
        begun.wait()
        say(torch.ones(3), "mine")
        """)
    assert code == 0 and out == ["mine", "3.0"]


def test_at_the_end_of_a_process_that_fails():
    code, out, err = run_program("""
        say(torch.ones(3), "bad")
        say(torch.ones(3), "last")
        raise SystemError("mine")
        """)
    assert code == 1 and out == ["last", "3.0"]
    assert "SystemError: mine" in err and "ValueError: bad" in err


# --- autograd and compile ---------------------------------------------------------------------------------------------


@pytest.mark.pinned
def test_the_gradient_goes_through_and_has_its_own(executor):
    for _ in range(3):
        x = torch.arange(3.0, requires_grad=True)
        note(x * 2, "b").sum().backward()
        assert x.grad.tolist() == [2, 2, 2] and LOG == [("b", 6), ("d_b", 3)]
        LOG.clear()


def test_forward_mode_has_those_of_the_tangent_alone():
    """It asks the derivative with zeros first; nothing happens for that."""
    x, t = torch.ones(3), torch.full((3,), 5.0)
    out, tangent = torch.func.jvp(lambda x: note(x * 2, "j"), (x,), (t,))
    assert out.tolist() == [2] * 3 and tangent.tolist() == [10] * 3
    torch.cpu.synchronize()
    assert LOG == [("j", 6), ("d_d_j", 30)]
    LOG.clear()
    with torch.autograd.forward_ad.dual_level():
        out = note(torch.autograd.forward_ad.make_dual(x, t), "j")
        assert torch.autograd.forward_ad.unpack_dual(out).tangent.tolist() == [5] * 3
    torch.cpu.synchronize()
    assert LOG == [("j", 3), ("d_d_j", 15)]

    class once(Op):
        def meta(input): return input
        def ref(xp, input): return input
        def d_input(g): return note_now(g, "now")
    with pytest.raises(NotImplementedError, match=r"note_now\(\) has an effect that happens at the call"):
        torch.func.jvp(once, (torch.ones(3),), (torch.ones(3),))
    assert tags() == ["j", "d_d_j"]


def test_under_vmap_it_happens_for_every_slice():
    made = torch.vmap(lambda x: note(x * 2, "v"))(torch.arange(6.0).view(3, 2))
    assert made.tolist() == [[0, 2], [4, 6], [8, 10]] and LOG == [("v", 2), ("v", 10), ("v", 18)]


@pytest.mark.pinned
def test_observers_see_the_step_and_its_failure(executor):
    from flambeau.base.observers import Observer, observing
    seen = []

    class Watcher(Observer):
        def ran(self, run):
            seen.extend((run.step.kind if run.step else "alone", run.failed) for one in run.instructions
                        if one.entry.op is note)
    x = torch.ones(3)
    with observing(Watcher()):
        for word in ("a", "bad"):
            note(x, word)
            try:
                torch.cpu.synchronize()
            except Broken:
                pass
    assert [failed for _, failed in seen] == [False, True] and tags() == ["a", "bad"]
    assert {kind for kind, _ in seen} <= {"alone", "callback"} and (executor != "native" or seen[0][0] == "callback")


def test_a_checkpoint_repeats_it_with_the_rest():
    x = torch.arange(3.0, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda x: note(x * 2, "a") ** 2, x, use_reentrant=False)
    y.sum().backward()
    assert x.grad.tolist() == [0, 8, 16] and tags() == ["a", "a", "d_a"]


@pytest.mark.pinned
def test_a_compiled_function_repeats_them(executor):
    def f(x, n):
        note(x * n, "a")
        y = note(x + 1, "b")
        return y * 2

    g, x = torch.compile(f), torch.arange(3.0)
    f(x, 2.0).tolist()
    LOG.clear()
    for i in range(6):
        note(x, "before")
        assert g(x + i, 2.0 + i).tolist() == [2 + 2 * i, 4 + 2 * i, 6 + 2 * i]
        assert LOG == [("before", 3), ("a", (3 + 3 * i) * (2 + i)), ("b", 6 + 3 * i)]
        LOG.clear()
    assert sum(r.hits for r in g.recordings) >= 4
    if executor != "reference":
        assert "2 with an effect" in str(g.explain())


@pytest.mark.pinned
@pytest.mark.usefixtures("sort_without_kernel")
def test_a_replay_that_fails_half_way_repeats_none(executor, monkeypatch):
    def f(x):
        y = note(x * 2, "a")
        z = y.sort(descending=True)[0]
        w = note(z, "b")
        x.mul_(2)
        return w + 1
    g = torch.compile(f)
    for _ in range(3):
        x = torch.arange(3.0)
        g(x)
    assert sum(r.hits for r in g.recordings) >= 1
    x = torch.arange(3.0)
    x.tolist()
    for kind in (Broken, MemoryError, Stop):
        def fail(*args, kind=kind, **kwargs):
            raise kind
        LOG.clear()
        with monkeypatch.context() as patch:
            patch.setattr(declared["sort"], "ref", fail)
            with pytest.raises(kind):
                g(x).tolist()
        assert LOG == [("a", 6)]
        torch.cpu.synchronize()
        assert LOG == [("a", 6)]                 # a call that raised has not gone on
        assert x.tolist() == [0, 1, 2]
    LOG.clear()
    assert g(x).tolist() == [5, 3, 1] and LOG == [("a", 6), ("b", 6)] and x.tolist() == [0, 2, 4]


@pytest.mark.pinned
@pytest.mark.usefixtures("sort_without_kernel")
def test_a_replay_goes_on_without_those_that_have_happened(monkeypatch):
    """The plan of a replay fails behind an effect, and the instructions run one by one."""
    pytest.importorskip("llvmlite")
    monkeypatch.setattr(settings, "executor", "auto")

    def f(x):
        y = note(x * 2, "a")
        z = y.sort(descending=True)[0]
        x.mul_(2)
        return note(z, "b") + y
    g, failed = torch.compile(f), []

    def no_room(*args, **kwargs):
        failed.append(args)
        raise MemoryError
    for i in range(5):
        x = torch.tensor([0.0, 1.0, 2.0])
        LOG.clear()
        with monkeypatch.context() as patch:
            if i > 2:
                patch.setattr(program, "execute", no_room)
            assert g(x).tolist() == [4, 4, 4] and x.tolist() == [0, 2, 4]
        assert LOG == [("a", 6), ("b", 6)]
    assert len(failed) >= 2


@pytest.mark.pinned
def test_a_compiled_function_whose_effect_raises(executor):
    def f(x, word):
        y = note(x, word)
        x.add_(1)
        note(x, "after")
        return y
    g, x = torch.compile(f), torch.zeros(3)
    for _ in range(3):
        g(x, "fine")
    assert tags() == ["fine", "after"] * 3
    for _ in range(4):
        LOG.clear()
        with pytest.raises(Broken):
            g(torch.zeros(3), "bad")
        torch.cpu.synchronize()
        assert tags() == ["bad"]                 # the call ends there

    def h(x, n):
        note(x, "a")
        note(x * n, "b")
        return note(x, "c")
    ref, hits = note.ref, 0
    g, x = torch.compile(h), torch.ones(3)
    for n in (1.0, 2.0, 3.0, 4.0, 5.0):
        LOG.clear()
        if n > 3:
            def fail(xp, input, tag):
                if tag == "b":
                    raise Broken
                return ref(xp, input, tag)
            with pytest.MonkeyPatch.context() as patch, pytest.raises(Broken):
                patch.setattr(note, "ref", fail)
                g(x, n)
            torch.cpu.synchronize()
            assert tags() == ["a"]
        else:
            g(x, n)
            assert LOG == [("a", 3), ("b", 3 * n), ("c", 3)]
            hits = sum(r.hits for r in g.recordings)
    assert hits >= 1


@pytest.mark.pinned
def test_the_backward_of_a_compiled_function_has_its_effects(executor):
    def f(x, w):
        return note(x * w, "f").sum()
    g, w = torch.compile(f), torch.ones(3, requires_grad=True)
    f(torch.ones(3), w).backward()
    w.grad.tolist()
    for i in range(5):
        LOG.clear()
        w.grad = None
        loss = g(torch.arange(3.0) + i, w)
        torch.cpu.synchronize()
        assert LOG == [("f", 3 + 3 * i)]
        (loss * 2).backward()
        assert w.grad.tolist() == [2 * i, 2 + 2 * i, 4 + 2 * i] and LOG == [("f", 3 + 3 * i), ("d_f", 6)]
    assert sum(r.hits for r in g.recordings) >= 2


@pytest.mark.pinned
def test_a_whole_step_of_training_compiled(executor):
    w = torch.nn.Parameter(torch.ones(3))
    opt = torch.optim.SGD([w], lr=0.5)

    def step(x):
        opt.zero_grad()
        loss = note(x * w, "forward").sum()
        loss.backward()
        note(w.grad, "grad")
        opt.step()
        return loss.detach()
    g = torch.compile(step)
    for i in range(6):
        LOG.clear()
        g(torch.full((3,), float(i))).item()
        assert tags() == ["forward", "d_forward", "grad"] and LOG[2][1] == 3 * i
    assert sum(r.hits for r in g.recordings) >= 2


@pytest.mark.pinned
def test_what_is_checked_of_its_results_is_not_computed_on_the_side(executor):
    def f(x, table):
        index = note(x, "a").long()
        return table[index]
    g, table = torch.compile(f), torch.arange(10.0)
    for i in range(4):
        assert g(torch.tensor([1.0, 2.0]) + i, table).tolist() == [1 + i, 2 + i]
        assert len(LOG) == i + 1


@pytest.mark.pinned
def test_a_compiled_function_with_one_that_is_eager(executor):
    def f(x):
        note(x, "a")
        y = note_now(x * 2, "now")
        note(y, "b")
        return y
    g = torch.compile(f)
    for i in range(4):
        LOG.clear()
        assert g(torch.ones(2) + i).tolist() == [2 + 2 * i] * 2
        torch.cpu.synchronize()
        assert tags() == ["a", "now", "b"]


def test_a_call_that_raises_while_it_is_recorded_has_had_its_effects():
    def f(x):
        note(x, "a")
        raise Broken
    g = torch.compile(f)
    x = torch.ones(3)
    for _ in range(3):
        with pytest.raises(Broken):
            g(x)
        note(x, "after")
    torch.cpu.synchronize()
    assert tags() == ["a", "after"] * 3


# --- random programs --------------------------------------------------------------------------------------------------


KINDS = "note note drop halves now pure reference write look forget bad broken full run".split()


@pytest.mark.pinned
@hypothesis_settings(max_examples=150 if THOROUGH else 50)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 5), st.integers(0, 5)), max_size=40),
       st.sampled_from(["reference", "auto", "native"]))
def test_random_programs(steps, which):
    """What happens is what an ordinary program would do that calls NumPy at once: the same lines, the same sums."""
    if which == "native":
        pytest.importorskip("llvmlite")
    LOG.clear()
    expected, errors = [], (Broken, RuntimeError, MemoryError)
    with torch.config.using(executor=which):
        tensors = [torch.arange(4.0), torch.ones(4)]
        arrays = [np.arange(4.0), np.ones(4)]            # None: cannot be computed
        for number, (kind, a, b) in enumerate(steps):
            i, j = a % len(tensors), b % len(tensors)
            x, y = tensors[i], tensors[j]
            p, q = arrays[i], arrays[j]
            try:
                if kind in ("note", "drop", "now", "halves", "bad"):
                    tag = "bad" if kind == "bad" else number
                    op = note_now if kind == "now" else halves if kind == "halves" else note
                    made = op(x, tag)
                    if p is not None:
                        expected.append((tag, p.sum()))
                    if kind == "halves":
                        made, p = made[0], None if p is None else p / 2
                    if kind != "drop":
                        tensors.append(made)
                        arrays.append(None if kind == "bad" else p)
                    del made
                elif kind == "pure":
                    both = p is not None and q is not None
                    tensors.append((x + y) * 0.5)
                    arrays.append((p + q) * 0.5 if both else None)
                elif kind == "reference":
                    made = x.sort(descending=True)[0]
                    tensors.append(made)
                    arrays.append(None if p is None else -np.sort(-p))
                elif kind == "write":
                    x[1:3] = y[:2]
                    if p is not None and q is not None:
                        arrays[i] = p.copy()
                        arrays[i][1:3] = q[:2]
                    else:
                        arrays[i] = None
                elif kind == "broken":
                    tensors.append(_fails(x))
                    arrays.append(None)
                elif kind == "full":
                    tensors.append(_has_no_room_at_first(x, number))
                    FAILURES_LEFT[number] = b % 3
                    arrays.append(p)
                elif kind == "look":
                    x.tolist()
                elif kind == "run":
                    torch.cpu.synchronize()
                elif len(tensors) > 2:
                    del tensors[i], arrays[i]
            except errors:
                pass
            x = y = made = None
        for _ in range(3 * len(steps) + 1):
            try:
                torch.cpu.synchronize()
                break
            except errors:
                pass
        seen = [(tag, pytest.approx(total)) for tag, total in expected]
        assert LOG == seen
        for tensor, array in zip(tensors, arrays, strict=True):
            if array is None:
                with pytest.raises(errors):
                    tensor.tolist()
            else:
                assert looked(tensor) == pytest.approx(array.tolist())
    LOG.clear()


@pytest.mark.pinned
@hypothesis_settings(max_examples=40 if THOROUGH else 15)
@given(st.lists(st.tuples(st.sampled_from("note drop halves pure reference write".split()), st.integers(0, 5),
                          st.integers(0, 5)), max_size=12),
       st.booleans(), st.sampled_from(["reference", "auto", "native"]))
def test_random_functions_compiled(steps, grad, which):
    """A compiled function does what the function does, in every call, and so does its backward."""
    if which == "native":
        pytest.importorskip("llvmlite")

    def f(x, w):
        tensors = [x * 2, w * x]
        for number, (kind, a, b) in enumerate(steps):
            t, u = tensors[a % len(tensors)], tensors[b % len(tensors)]
            if kind == "note":
                tensors.append(note(t, number))
            elif kind == "drop":
                note(t + u, number)
            elif kind == "halves":
                tensors.append(halves(t.detach(), number)[0] + t)
            elif kind == "pure":
                tensors.append(t * 0.5 + u)
            elif kind == "reference":
                tensors.append(t.sort(descending=True)[0])
            else:
                tensors.append(u.clone())
                tensors[-1][1:3] = t[:2]
        return tensors[-1].sum() + tensors[len(tensors) // 2].sum()

    def said(function, i):
        LOG.clear()
        w = torch.arange(4.0, requires_grad=grad)
        out = function(torch.ones(4) * i, w)
        numbers = [out.item()]
        if grad:
            out.backward()
            numbers += w.grad.tolist()
        torch.cpu.synchronize()
        return numbers, list(LOG)

    with torch.config.using(executor=which):
        compiled = torch.compile(f)
        for i in range(4):
            numbers, lines = said(f, i)
            assert said(compiled, i) == (pytest.approx(numbers), [(tag, pytest.approx(n)) for tag, n in lines])
        assert sum(r.hits for r in compiled.recordings) >= 2
    LOG.clear()


def looked(tensor):
    """The numbers in a tensor, as soon as there is room."""
    for _ in range(100):
        try:
            return tensor.tolist()
        except MemoryError:
            pass
    raise AssertionError("there never was room")


class _fails(Op):
    """An operation with a mistake in it."""

    def meta(input): return input
    def ref(xp, input): raise Broken


FAILURES_LEFT: dict = {}      # number of an instruction → how often it finds no memory before it does


class _has_no_room_at_first(Op):
    """`input`, after some failures."""

    def meta(input, number): return input

    def ref(xp, input, number):
        FAILURES_LEFT[number] -= 1
        if FAILURES_LEFT[number] >= 0:
            raise allocator.failure(1 << 40)
        return input + 0
