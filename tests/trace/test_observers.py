"""Observers: what they are told, in which order, from which line, and that nothing else changes while they look."""
import ctypes
import gc
import random
import signal
import threading
import time
from array import array
from collections import Counter, defaultdict
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings as tuned

import flambeau as torch
from flambeau.backends.cpu import threads
from flambeau.backends.cpu.memory import allocator
from flambeau.base import observers, settings
from flambeau.base.errors import line_of
from flambeau.base.observers import KINDS, Observer, observing
from flambeau.tensor.forms import declared
from flambeau.trace.planning import plan
from flambeau.trace.recording import record
from flambeau.trace.recording.record import current

from ..backends import toy  # noqa: F401  (registers the device)
from ..thorough import THOROUGH, sample
from .programs import leaves, run, steps
from .test_effects import Broken as Failed, note
from .test_record_under_pressure import Stop, alarms, everything

pytestmark = pytest.mark.pinned
EXECUTORS = ("reference", "auto", "native")


class Log(Observer):
    """Notes all that it is told, as (kind, *event)."""

    def __init__(self):
        self.events = []

    def of(self, kind):
        return [event[0] for told, *event in self.events if told == kind]

    def kinds(self, *only):
        return [kind for kind, *_ in self.events if not only or kind in only]


def _noting(kind):
    if kind == "called":                          # what is kept of arguments and results would be wanted
        return lambda self, name, args, kwargs, made, start, end: self.events.append((kind, name, start, end))
    if kind == "calling":
        return lambda self, name, args, kwargs: self.events.append((kind, name))
    return lambda self, *event: self.events.append((kind, *event))


for _kind in KINDS:
    setattr(Log, _kind, _noting(_kind))


class Broken(Exception):
    pass


@pytest.fixture(autouse=True)
def nothing_before():
    """Nothing waits, nothing was seen, and nobody is left observing afterwards."""
    gc.collect()                                  # an error holds its frames, and they hold what waits
    current().run()
    plan._plans.clear()
    plan._sightings.clear()
    yield
    assert not observers._observers and not observers.during_runs
    assert all(getattr(observers, kind) is None for kind in KINDS)
    assert not allocator._told and all(one.take is one.plain_take for one in allocator._size_classes.values())


@pytest.fixture(params=EXECUTORS)
def executor(request, monkeypatch):
    monkeypatch.setattr(settings, "executor", request.param)
    return request.param


def lines_of(function, *numbers):
    """The lines so far below the `def` of a function, as observers give them."""
    code = function.__code__
    return [f"test_observers.py:{code.co_firstlineno + n}" for n in numbers]


def names(instructions):
    return [instruction.entry.op.__name__ for instruction in instructions]


# --- what is told, in which order ---


def expression(x):
    y = x.exp()
    z = y * 2
    z[0] = 5
    return z.sum()


@pytest.mark.parametrize("device", ["cpu", "toy"])
def test_every_instruction_is_told_when_it_is_recorded_and_when_it_runs(executor, device):
    x = torch.arange(6.0).to(device)
    torch.cpu.synchronize()
    with observing(Log()) as log:
        total = expression(x)
        recorded = log.of("recorded")
        assert recorded == current().code and not log.of("ran")
        value = total.item()
    assert value == pytest.approx(2 * sum(2.718281828459045 ** n for n in range(1, 6)) + 5)
    first = [line_of(instruction.site) for instruction in recorded]
    assert list(dict.fromkeys(first)) == lines_of(expression, 1, 2, 3, 4)
    runs = log.of("ran")
    assert {id(i) for r in runs for i in r.instructions} == {id(i) for i in recorded}
    assert {line for r in runs for line in r.lines} == set(first)
    planned = executor == "native" and device == "cpu"       # a write into memory elsewhere is left to the reference
    assert all((r.step is not None) is planned and not r.failed for r in runs)
    if planned:
        assert [r.step for r in runs] == log.of("planned")[0].plan.steps
        assert log.of("planned")[0].instructions == tuple(recorded)
    else:
        assert [i for r in runs for i in r.instructions] == recorded
    kinds = log.kinds("recorded", "looked", "ran")
    assert kinds == ["recorded"] * len(recorded) + ["looked"] + ["ran"] * len(runs)


@pytest.mark.usefixtures("sort_without_kernel")
def test_times_follow_one_another(executor):
    x = torch.rand(64, 64)
    torch.cpu.synchronize()
    begin = observers.clock()
    with observing(Log()) as log:
        ((x @ x).exp().sort().values + 1).sum().item()
    end = observers.clock()
    runs = log.of("ran")
    if executor == "native":
        assert {r.step.kind for r in runs} == {"library", "kernel", "reference"}
    times = [begin, *[t for r in runs for t in (r.start, r.end)], end]
    assert times == sorted(times) and sum(r.nanoseconds for r in runs) > 0


def test_what_nobody_wants_does_not_run(executor):
    x = torch.ones(3)
    with observing(Log()) as log:
        x.exp()
        y = x + 1
        y.tolist()
    assert "exp" in names(log.of("recorded"))
    assert "exp" not in names(i for r in log.of("ran") for i in r.instructions)


def test_an_operation_that_runs_at_the_call_is_told(executor):
    x = torch.tensor([0.0, 2.0, 0.0])
    with observing(Log()) as log:
        x.nonzero()
    ran, = [r for r in log.of("ran") if "_nonzero" in names(r.instructions)]
    assert list(ran.lines) == lines_of(test_an_operation_that_runs_at_the_call_is_told, 3)
    with observing(Log()) as log, pytest.raises(torch.linalg.LinAlgError):
        torch.linalg.inv(torch.zeros(2, 2))
    assert [r.failed for r in log.of("ran")].count(True) == 1


def test_contents_that_are_made_drawn_looked_at_and_replaced():
    with observing(Log()) as log:
        x = torch.tensor([1.0])
        y = torch.rand(2)
        x.add_(1)
        x.tolist()
    assert log.kinds("made", "drew", "wrote", "looked") == ["made", "made", "drew", "wrote", "looked"]
    assert log.of("drew")[0](3).shape == (3,) and log.of("wrote") == [x._storage]
    assert log.of("looked") == [x._storage.value] and y._storage.value in log.of("made")


def test_a_long_trace_that_runs_in_between_is_told_after_it_was_recorded(monkeypatch):
    monkeypatch.setattr(settings, "trace_instructions", 3)
    x = torch.ones(3)
    with observing(Log()) as log:
        for _ in range(7):
            x = x + 1
        assert x.tolist() == [8, 8, 8]
    assert log.kinds("recorded") == ["recorded"] * 7
    kinds = log.kinds("recorded", "ran")
    assert kinds.index("ran") < 5                 # not all of them at the end
    seen = set()
    for kind, *event in log.events:
        if kind == "recorded":
            seen.add(id(event[0]))
        elif kind == "ran":
            assert all(id(i) in seen or names([i]) == ["_full"] for i in event[0].instructions)


def test_autograd():
    x = torch.ones(3, requires_grad=True)
    with observing(Log()) as log:
        loss = (x.exp() * 2).sum()
        loss.backward()
    made = [node.name() for node in log.of("node_made")]
    assert made == ["ExpBackward0", "MulBackward0", "SumBackward0"]
    assert [node.name() for node in log.of("node_ran")] == [*reversed(made), "torch::autograd::AccumulateGrad"]
    assert log.kinds("backward_began", "node_ran", "backward_ended") == \
        ["backward_began", *["node_ran"] * 4, "backward_ended"]
    assert log.of("backward_began") == log.of("backward_ended")
    assert set(log.of("node_made")) <= set(log.of("backward_began")[0].reached)
    assert all(start <= end for kind, *event in log.events if kind == "node_ran" for _, start, end in [event])
    backward = [i for i in log.of("recorded") if line_of(i.site) == lines_of(test_autograd, 4)[0]]
    assert backward and torch.equal(x.grad, 2 * x.detach().exp())


def test_every_kind_of_node_is_told_when_it_is_complete():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    compiled = torch.compile(lambda x: (x * 2).exp())
    leaf = torch.ones(3, requires_grad=True)
    for _ in range(3):
        compiled(leaf)
    with observing(Log()) as log:
        x = leaf * 1
        x[0] = x[1]
        y = Double.apply(x) + compiled(leaf)
        torch.autograd.grad(y.sum(), leaf)
    made = [node.name() for node in log.of("node_made")]
    assert {"torch::autograd::CopySlices", "DoubleBackward", "CompiledBackward"} <= set(made)
    assert all(node.edges and node.site is not None for node in log.of("node_made"))
    assert set(log.of("node_ran")) <= set(log.of("node_made")) | set(log.of("backward_began")[0].reached)


def test_a_backward_that_fails_has_ended():
    x = torch.ones(3, requires_grad=True)

    def broken(g):
        raise Broken
    y = x * 2
    y.register_hook(broken)
    with observing(Log()) as log, pytest.raises(Broken):
        y.sum().backward()
    assert log.kinds("backward_began", "backward_ended") == ["backward_began", "backward_ended"]


def test_what_fails_is_told_and_what_reads_it_did_not_run(executor, monkeypatch, sort_without_kernel):
    def broken(*args, **kwargs):
        raise Broken
    x = torch.ones(3)
    x.sort().values.tolist()
    monkeypatch.setattr(declared["sort"], "ref", broken)
    with observing(Log()) as log:
        bad = x.sort().values
        worse = bad + 1
        good = x + 2
        with pytest.raises(Broken):
            worse.tolist()
        assert good.tolist() == [3, 3, 3]
    failed = [r for r in log.of("ran") if r.failed]
    assert failed and {line for r in failed for line in r.lines} == \
        set(lines_of(test_what_fails_is_told_and_what_reads_it_did_not_run, 7))
    whole = [i for r in log.of("ran") if not r.failed for i in r.instructions]
    assert names(whole) == ["add"] and list(map(line_of, [whole[0].site])) == \
        lines_of(test_what_fails_is_told_and_what_reads_it_did_not_run, 9)


def test_an_effect_is_told_once(executor):
    """Whether it happens or fails, and whoever reads its result."""
    x = torch.ones(3)
    torch.cpu.synchronize()
    with observing(Log()) as log:
        note(x * 2, "a")
        with pytest.raises(Failed):
            note(x + 1, "bad")
            torch.cpu.synchronize()
        torch.cpu.synchronize()
    told = [r for r in log.of("ran") if "note" in names(r.instructions)]
    assert [r.failed for r in told] == [False, True]
    assert [line for r in told for line in r.lines] == lines_of(test_an_effect_is_told_once, 5, 7)
    assert {id(i) for r in told for i in r.instructions} <= {id(i) for i in log.of("recorded")}


# --- lines ---


def test_a_plan_is_found_from_another_line_and_tells_that_line(monkeypatch):
    monkeypatch.setattr(settings, "executor", "native")
    x = torch.ones(4)
    torch.cpu.synchronize()

    def one(): return (x * 3).exp()

    def other(): return (x * 3).exp()

    one().tolist()
    with observing(Log()) as log:
        other().tolist()
    assert not log.of("planned")                  # sites are no part of a plan's key
    assert {line for r in log.of("ran") for line in r.lines} == set(lines_of(other, 0))


def test_a_kernel_knows_all_its_lines(monkeypatch):
    monkeypatch.setattr(settings, "executor", "native")
    x = torch.ones(4)
    torch.cpu.synchronize()
    with observing(Log()) as log:
        y = x * 3
        z = y + 1
        z.exp().tolist()
    ran, = log.of("ran")
    assert list(ran.lines) == lines_of(test_a_kernel_knows_all_its_lines, 5, 6, 7)
    assert repr(ran).startswith(", ".join(ran.lines)) and ran.step.kind in repr(ran)


def test_the_line_of_want_of_room_is_that_of_the_instruction():
    """Two lines make the same kind of result; the message names the one that could not."""
    x = torch.ones(10**6)
    small = x[:1, None] * x[:1]
    here = lines_of(test_the_line_of_want_of_room_is_that_of_the_instruction, 5, 6)
    one = x[:, None] * x
    two = x[:, None] * (x + 1)
    del one
    with pytest.raises(torch.OutOfMemoryError) as got:
        two[0, 0].item()
    assert f"recorded at {here[1]}." in str(got.value) and here[0] not in str(got.value) and small.numel() == 1


def test_what_was_set_aside_keeps_its_line(monkeypatch):
    monkeypatch.setattr(settings, "executor", "reference")

    def broken(*args):
        raise Broken
    torch.tanh(torch.ones(1)).tolist()
    monkeypatch.setattr(declared["tanh"], "ref", broken)
    bad = torch.ones(3).tanh()
    torch.cpu.synchronize()
    assert bad._storage.value.trace is not current()
    for _ in range(2):
        with pytest.raises(Broken) as got:
            bad.tolist()
    line, = lines_of(test_what_was_set_aside_keeps_its_line, 7)
    assert got.value.__notes__[-1] == f"in tanh() giving float32[3], recorded at {line}"


# --- time and bytes by line, of a step of training ---


class ByLine(Observer):
    """Nanoseconds and bytes for each line: those of a step, or of a block, count for its first line."""

    def __init__(self):
        self.time, self.bytes, self.steps, self.left = Counter(), Counter(), defaultdict(list), 0

    def ran(self, run):
        self.time[run.lines[0]] += run.nanoseconds
        self.steps[run.lines[0]].append(run)

    def allocated(self, allocation):
        self.bytes[allocation.lines[0]] += allocation.nbytes
        self.left += allocation.nbytes

    def freed(self, allocation):
        self.left -= allocation.nbytes

    def table(self):
        return "\n".join(f"{line:30} {nanoseconds / 1000:10.1f} µs {self.bytes[line]:10} bytes"
                         for line, nanoseconds in self.time.most_common())


def training_step(model, optimizer, x, y):
    optimizer.zero_grad()
    hidden = model[0](x).relu()
    loss = (model[1](hidden) - y).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def network():
    torch.manual_seed(0)
    model = torch.nn.ModuleList([torch.nn.Linear(32, 64), torch.nn.Linear(64, 4)])
    return model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(512, 32), torch.randn(512, 4)


def test_time_and_bytes_by_line(executor):
    training_step(*network())
    torch.cpu.synchronize()
    gc.collect()
    before = allocator.stats()
    with observing(ByLine()) as memory_found:
        given = network()
        torch.cpu.synchronize()
        start = time.perf_counter_ns()
        with observing(ByLine()) as found, observing(Log()) as log:
            for _ in range(3):
                training_step(*given)
        wall = time.perf_counter_ns() - start
        after = allocator.stats()
    assert 0 < sum(found.time.values()) <= wall
    told = {line for runs in found.steps.values() for r in runs for line in r.lines}
    assert told == {line_of(i.site) for i in log.of("recorded")} == set(lines_of(training_step, 2, 3, 4, 5))
    given_out = after["allocated_bytes.all.allocated"] - before["allocated_bytes.all.allocated"]
    assert sum(memory_found.bytes.values()) == given_out
    assert memory_found.left == after["allocated_bytes.all.current"] - before["allocated_bytes.all.current"]
    if executor == "native":                      # for the others NumPy allocates most
        assert sum(found.bytes.values()) > 3 * 512 * 64 * 4 and set(found.bytes) <= told
    assert len(found.table().splitlines()) == len(found.time)


def test_bytes_that_come_back_are_told_once(monkeypatch):
    monkeypatch.setattr(settings, "executor", "native")
    x = torch.ones(1000, 1000)
    torch.cpu.synchronize()
    before = allocator.stats()["allocated_bytes.all.current"]
    with observing(Log()) as log:
        held = []
        for _ in range(4):
            held = [x * 2, x + 1]
            torch.cpu.synchronize()
        held.clear()
        allocator.empty_cache()
    assert all(log.of("freed").count(one) == 1 for one in log.of("allocated"))
    assert sum(a.nbytes for a in log.of("allocated")) == sum(a.nbytes for a in log.of("freed")) >= 8 * 4_000_000
    assert allocator.stats()["allocated_bytes.all.current"] == before
    line, = lines_of(test_bytes_that_come_back_are_told_once, 8)
    assert all(a.lines == (line,) and a.device == torch.device("cpu") for a in log.of("allocated"))
    order = {id(one): (log.events.index(("allocated", one)), log.events.index(("freed", one)))
             for one in log.of("allocated")}
    assert all(came < went for came, went in order.values())


def test_memory_that_is_asked_for_at_the_call_belongs_to_the_line_that_calls():
    with observing(Log()) as log:
        array_, _ = allocator.blank(torch.empty(300, 400)._spec)
    assert [a.lines for a in log.of("allocated")] == \
        [tuple(lines_of(test_memory_that_is_asked_for_at_the_call_belongs_to_the_line_that_calls, 2))]
    assert log.of("allocated")[0].nbytes >= array_.nbytes


# --- compile, threads, several of them ---


def test_a_replay_tells_what_ran_and_records_nothing(executor):
    def function(x):
        y = x.exp()
        return y * 2 + 1

    compiled = torch.compile(function)
    x = torch.rand(8, 8)
    for _ in range(3):
        expected = compiled(x).tolist()
    with observing(Log()) as log:
        assert compiled(x).tolist() == expected
    assert not log.of("recorded")
    assert {line for r in log.of("ran") for line in r.lines} == set(lines_of(function, 1, 2))


def test_a_function_is_compiled_inside_of_another_observation(executor):
    def function(x):
        noise = torch.rand(3)
        x.add_(1)
        return x * 2 + noise * 0

    x, twin = torch.ones(3), torch.ones(3)
    with observing(Log()) as outer:
        compiled = torch.compile(function)
        with observing(Log()) as inner:
            for _ in range(3):
                assert compiled(x).tolist() == function(twin).tolist()
    assert outer.kinds() == inner.kinds() and {"looked", "wrote", "drew", "ran"} <= set(inner.kinds())
    assert compiled.recordings and not any("observers" in reason for reason in compiled.reasons)
    assert torch.equal(x, twin)


def test_a_look_inside_a_compiled_function_is_still_seen():
    def function(x):
        return x * 2 if x.sum() > 0 else x

    compiled = torch.compile(function)
    with observing(Log()), observing(Log()):
        assert compiled(torch.ones(3)).tolist() == [2, 2, 2]
    assert "bool() at test_observers.py" in compiled.reasons[0]


def test_all_threads_are_observed_or_one():
    x = torch.ones(3)

    def work():
        (x + 1).tolist()
    with observing(Log()) as everywhere, observing(Log(), only_this_thread=True) as here:
        for _ in range(2):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        (x * 2).tolist()
    assert names(everywhere.of("recorded")) == ["add", "add", "mul"]
    assert names(here.of("recorded")) == ["mul"]
    assert names(i for r in here.of("ran") for i in r.instructions) == ["mul"]


def test_a_thread_that_runs_another_ones_trace_tells_it():
    x = torch.ones(3)
    told = []

    class Who(Observer):
        def ran(self, run):
            told.append((threading.current_thread(), *run.lines))

    torch.cpu.synchronize()
    y = x + 1
    with observing(Who()):
        thread = threading.Thread(target=y.tolist)
        thread.start()
        thread.join()
    assert told == [(thread, *lines_of(test_a_thread_that_runs_another_ones_trace_tells_it, 9))]


def test_many_threads_at_once(executor):
    x = torch.rand(40, 40)
    torch.cpu.synchronize()
    expected = ((x @ x) * 2).sum().item()

    def work():
        for _ in range(10):
            results.append(((x @ x) * 2).sum().item())
    results = []
    with observing(Log()) as log:
        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert results == [expected] * 40
    ran = [id(i) for r in log.of("ran") for i in r.instructions]
    assert set(ran) == {id(i) for i in log.of("recorded")}


def test_they_are_told_in_the_order_in_which_they_came():
    order = []

    class Named(Observer):
        def __init__(self, name):
            self.name = name

        def recorded(self, instruction):
            order.append(self.name)

        def ran(self, run):
            order.append(self.name.upper())

    x = torch.ones(3)
    torch.cpu.synchronize()
    a, b, c = map(Named, "abc")
    with observing(a), observing(b):
        with observing(c):
            (x + 1).tolist()
        (x + 1).tolist()
    assert "".join(order) == "abcABC" + "abAB"


def test_one_may_observe_twice():
    x = torch.ones(3)
    log = Log()
    with observing(log):
        with observing(log):
            x + 1
        x + 1
    assert len(log.of("recorded")) == 3


# --- what an observer may do ---


NATIVE_ONLY = ("planned", "allocated", "freed")
# for these it takes another device, code that is new, a module
ELSEWHERE = ("copied", "waited", "compiled", "module_began", "module_ended")


@pytest.mark.parametrize("executor, kind", sample([(e, k) for e in EXECUTORS for k in KINDS
                                                   if k not in ELSEWHERE and (e == "native" or k not in NATIVE_ONLY)],
                                                  3))
def test_an_error_of_an_observer_goes_to_the_user_and_nothing_is_lost(monkeypatch, executor, kind):
    """Every kind of event, in a program that has them all; whatever was computed is right, and everybody was told."""
    def program():
        torch.manual_seed(1)
        x = torch.rand(200, 200, requires_grad=True)
        y = (x @ x).exp()
        y.sum().backward()
        x.grad.add_(1)
        torch.optim.SGD([x], lr=0.1).step()
        x.detach().to("meta")
        torch.from_numpy(np.ones(3))
        return torch.cat([x.grad.reshape(-1), x.detach().reshape(-1).sort().values])

    class Raises(Observer):
        raised = 0

    def fail(self, *event):
        Raises.raised += 1
        raise Broken(kind)
    setattr(Raises, kind, fail)

    monkeypatch.setattr(settings, "executor", executor)
    expected = program().tolist()
    plan._plans.clear()
    kept = []
    # memory that came back in the end is told when they go
    with suppress(Broken), observing(Log()) as before, observing(Raises()) as raises, observing(Log()) as after:
        for _ in range(200):                                 # an error ends the program: on with the next one
            try:
                kept.append(program())
                kept[-1].tolist()
            except Broken as error:
                assert str(error) == kind
            if Raises.raised > 3:
                break
            plan._plans.clear()
    assert Raises.raised > 3 and raises is not before
    count = [len(log.of(kind)) for log in (before, after)]
    assert count[0] == count[1] == Raises.raised
    current().run()
    assert all(one.tolist() == expected for one in kept) and program().tolist() == expected


def test_an_error_after_a_run_leaves_its_results_there(executor):
    class Raises(Observer):
        def ran(self, run):
            raise Broken

    y = torch.ones(3) + 1
    with observing(Raises()), pytest.raises(Broken):
        y.tolist()
    assert y._storage.value.trace is None and y.tolist() == [2, 2, 2]


def test_an_error_comes_beside_that_of_the_operation(monkeypatch):
    monkeypatch.setattr(settings, "executor", "reference")

    def broken(*args):
        raise ZeroDivisionError
    torch.tanh(torch.ones(1)).tolist()
    monkeypatch.setattr(declared["tanh"], "ref", broken)

    class Raises(Observer):
        def ran(self, run):
            raise Broken

    bad = torch.ones(3).tanh()
    with observing(Raises()), pytest.raises(Broken) as got:
        bad.tolist()
    assert isinstance(got.value.__context__, ZeroDivisionError)


def test_observers_may_use_tensors(executor):
    """They record and run themselves, amid what they are told of, and are told of that too."""
    class Computes(Observer):
        def __init__(self):
            self.sums, self.inside = [], False

        def _compute(self, *event):
            if not self.inside:
                self.inside = True
                self.sums.append((torch.ones(3) * 2).sum().item())
                self.inside = False

        recorded = ran = looked = allocated = freed = planned = backward_began = node_made = node_ran = _compute

    x = torch.ones(50, 50, requires_grad=True)
    with observing(Computes()) as found:
        y = (x @ x).sum()
        y.backward()
        assert x.grad.tolist() == [[100.0] * 50] * 50 and y.item() == 125_000
    assert len(found.sums) > 5 and set(found.sums) == {6}


def test_an_observer_that_comes_amid_a_run_of_another_thread_hears_of_the_next(monkeypatch):
    monkeypatch.setattr(settings, "executor", "reference")
    inside, go, execute = threading.Event(), threading.Event(), record.execute

    def slow(entry, *args):
        inside.set()
        assert go.wait(30)
        return execute(entry, *args)
    x = torch.ones(3)
    y, z = [], []

    def work():
        y.append((x + 1).tolist())
        z.append((x * 3).tolist())
    torch.cpu.synchronize()
    monkeypatch.setattr(record, "execute", slow)
    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(30)
    with observing(Log()) as log:
        go.set()
        thread.join()
    assert y == [[2, 2, 2]] and z == [[3, 3, 3]]
    assert names(i for r in log.of("ran") for i in r.instructions) == ["mul"]


@tuned(max_examples=40 if THOROUGH else 12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(leaves, steps)
def test_random_programs_are_the_same_when_observed(leaf_args, program):
    """Results, errors, and what is told: nothing runs that was not recorded, and no step twice."""
    for name in ("reference", "native"):
        with torch.config.using(executor=name):
            story, expected = run(torch, leaf_args, program)
            with observing(Log()) as log:
                told_story, given = run(torch, leaf_args, program)
                torch.cpu.synchronize()
        assert told_story == story
        for one, other in zip(given, expected, strict=True):
            assert (one is None) is (other is None)
            if one is not None:
                assert one[0][0] == other[0][0]
                np.testing.assert_array_equal(one[0][1], other[0][1])
        recorded = {id(i) for i in log.of("recorded")}
        ran = [i for r in log.of("ran") for i in r.instructions if i.slots]
        assert all(id(i) in recorded for i in ran)
        assert all(line_of(i.site) != "an unknown line" for i in ran)
        times = [t for r in log.of("ran") for t in (r.start, r.end)]
        assert times == sorted(times)


@alarms
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")       # an interrupt inside a finaliser
@pytest.mark.parametrize("executor", ["reference", "native"])
def test_interrupted_anywhere_while_observed(executor, monkeypatch):
    """The trace stays whole, every tensor can be read, and afterwards everybody is told as before."""
    monkeypatch.setattr(settings, "executor", executor)
    right, interrupts = everything([]), 0

    def handler(number, frame):
        raise Stop

    old = signal.signal(signal.SIGALRM, handler)
    try:
        wanted, end, draw = 60 if THOROUGH else 21, time.time() + 60, random.Random(1)
        with observing(Log()) as log:
            while interrupts < wanted and time.time() < end:
                held = []
                log.events.clear()
                try:
                    signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.00005, 0.02))
                    everything(held)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except Stop:
                    interrupts += 1
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except Stop:
                    pass
                for tensor in held:
                    tensor.tolist()
                assert not current().busy and not current().sealed and current().site is None
                assert everything([]) == right
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert interrupts >= wanted and observers._thread.waiting is None
    with observing(Log()) as log:
        assert everything([]) == right
    assert {id(i) for r in log.of("ran") for i in r.instructions if i.slots} <= {id(i) for i in log.of("recorded")}
    assert log.of("ran")


# --- the clock ---


def test_the_clock_that_python_gives_native_code():
    """For systems that have no other. The same words are run by either clock, and both say when."""
    threads.start()
    with torch.config.using(executor="native"):
        x = torch.ones(8)
        torch.cpu.synchronize()
        plans = torch.plans.of(x + 1)
    native, = plans.program.stretches
    given, result = array("f", [1.0] * 8), array("f", [0.0] * 8)
    assert len(native.steps) == 1
    for clock in (threads._clock, threads.python_clock()):
        table = plans.bound.new_table()
        (_, at), = plans.program.inputs
        (_, _, to), = plans.program.outputs
        table.addresses[at], table.addresses[to] = given.buffer_info()[0], result.buffer_info()[0]
        table.numbers[:] = array("q", array("d", [1.0] * len(table.numbers)).tobytes())
        times, before = native.times(), observers.clock()
        threads._clocked(times.buffer_info()[0], clock, native.program.words.buffer_info()[0], 1,
                         table.addresses.buffer_info()[0], table.numbers.buffer_info()[0])
        assert before <= times[0] <= times[1] <= observers.clock() and list(result) == [2.0] * 8
    assert isinstance(threads.python_clock(), ctypes._CFuncPtr)
