"""Recording and running: what waits, what runs when, in whose memory, and what is left after a failure."""
import threading
import tracemalloc
import weakref

import numpy as np
import pytest

import flambeau as torch
from flambeau.base import settings
from flambeau.tensor.forms import declared
from flambeau.trace.planning import plan
from flambeau.trace.recording import record
from flambeau.trace.recording.record import current
from flambeau.trace.running import interpret, runner
from tests.patience import PATIENCE

pytestmark = pytest.mark.pinned


@pytest.fixture(autouse=True)
def empty_trace(monkeypatch):
    """The executor that goes one instruction at a time; what is planned is another file's, test_native.py."""
    monkeypatch.setattr(settings, "executor", "reference")
    for name in ("tanh", "sinh", "sort"):         # signatures are read at the first call: before a test breaks one
        getattr(torch, name)(torch.ones(1))
    current().run()


@pytest.fixture(params=["reference", "native"])
def either(request, monkeypatch):
    """Each executor in turn."""
    monkeypatch.setattr(settings, "executor", request.param)
    return request.param


@pytest.fixture
def ran(monkeypatch):
    """The names of the operations that the executor has run."""
    names, execute = [], record.execute

    def counted(entry, *args, **kwargs):
        made = execute(entry, *args, **kwargs)
        names.append(entry.op.__name__)
        return made
    monkeypatch.setattr(record, "execute", counted)
    return names


def address(tensor):
    """Where a tensor's memory begins. (data_ptr() would pin it there, which is not what is asked.)"""
    return tensor._storage.value.ready().memory.ctypes.data + tensor._offset * tensor.element_size()


# --- nothing runs until somebody looks ------------------------------------------------------------------------------


def test_recording_runs_nothing(ran):
    x = torch.ones(2, 3)
    y = (x * 2 + 1).t()
    y[0] = 5
    y.sum(0), y.shape, y.stride(), y.dtype, y.is_contiguous(), len(y), y.numel(), y[1:].requires_grad
    assert ran == [] and len(current().code) == 6
    assert y.tolist() == [[5, 5], [3, 3], [3, 3]]
    assert ran == ["_full", "mul", "add", "_full"] and not current().code           # the sum had nobody to see it


@pytest.mark.parametrize("look", [
    lambda t: t.tolist(), lambda t: t[0].item(), repr, lambda t: t.numpy(), lambda t: bool(t[0]), lambda t: float(t[0]),
    lambda t: t.data_ptr(), np.asarray, lambda t: t.nonzero(), lambda t: f"{t[0]:.2f}", lambda t: 1.0 in t,
    lambda t: torch.equal(t, t), lambda t: t[t > 0], lambda t: t.untyped_storage().tolist()],
    ids="tolist item repr numpy bool float data_ptr asarray nonzero format in equal mask bytes".split())
def test_looking_runs(ran, look):
    x = torch.ones(3) * 2
    assert "mul" not in ran
    look(x)
    assert "mul" in ran


def test_errors_come_at_the_call_all_the_same(ran):
    x = torch.ones(3) * 2
    with pytest.raises(RuntimeError, match="must match the size"):
        x + torch.ones(2)
    assert ran == []
    with pytest.raises(IndexError, match="index 5 is out of bounds"):
        x[torch.tensor([5])]


def test_trace_prints_as_lines(either):
    x = torch.ones(2, 3)
    y = (x * 2 + 1).t()
    s = y.sum(0)
    y[0, 1] = 5
    order = torch.sort(y)
    c = torch.cat([x, x[1:]])
    assert str(current()) == """\
%0: float32[2, 3] = _full((2, 3), 1, torch.float32, device(type='cpu'), None)
%1: float32[2, 3] = mul(%0, 2)
%2: float32[2, 3] = add(%1, 1, 1)
%3: float32[2] = _sum_dim(%2, 0, False, None)
%4: float32[] = _full((), 5.0, torch.float32, device(type='cpu'), None)
%5: uint8[24] = update(%2+3, %4)
%6: float32[3, 2] strides [1, 3], %7: int64[3, 2] strides [1, 3] = sort(%5, -1, False, False)
%8: float32[3, 3] = cat(%0, %0+3, 0)"""
    assert (s.tolist(), y[0].tolist(), order.values[0].tolist(), c.sum().item()) == ([9, 9], [3, 5], [3, 5], 9)
    assert str(current()) == ""


def test_what_nobody_can_see_is_not_computed(ran):
    x = torch.ones(3)
    dead = x.exp().sin()
    alive = x.tanh() + 1
    old = x
    x = x + 1                                  # the first x lives on under another name
    del dead
    assert alive.shape == (3,) and x.tolist() == [2, 2, 2]
    assert ran == ["_full", "tanh", "add", "add"] and old.tolist() == [1, 1, 1]


def test_a_result_that_only_autograd_can_see_is_computed(ran):
    x = torch.ones(3, requires_grad=True)
    loss = x.exp().sum()                       # the exponential is kept for backward and nowhere else
    loss.backward()
    assert loss.item() == pytest.approx(3 * np.e) and ran.count("exp") == 1
    assert x.grad.tolist() == pytest.approx([np.e] * 3)


def test_intermediate_results_are_freed_on_the_way():
    n = 1 << 17                                # float64: one megabyte
    x = torch.ones(n, dtype=torch.float64)
    x.tolist()[0]
    tracemalloc.start()
    try:
        y = x
        for _ in range(40):
            y = y * 1.5
        value = y[0].item()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert value == 1.5 ** 40 and peak < 5 * n * 8


# --- bounds ---------------------------------------------------------------------------------------------------------


def test_a_long_trace_runs_by_itself(ran, monkeypatch):
    monkeypatch.setattr(settings, "trace_instructions", 10)
    x = torch.zeros(2)
    for _ in range(25):
        x = x + 1
        assert len(current().code) <= 11
    assert 15 <= len(ran) < 26 and x.tolist() == [25, 25]


def test_a_large_trace_runs_by_itself(ran, monkeypatch):
    monkeypatch.setattr(settings, "trace_bytes", 10_000)
    x = torch.zeros(250)                       # 1000 bytes each
    for _ in range(25):
        x = x + 1
        assert current().bytes <= 10_000
    assert 15 <= len(ran) < 26 and x[0].item() == 25


def test_one_instruction_may_read_thousands_of_tensors(either):
    parts = [torch.full((1,), float(i)) for i in range(5000)]
    assert torch.cat(parts).sum().item() == 5000 * 4999 / 2
    assert torch.stack(parts)[4999].item() == 4999


# --- in whose memory ------------------------------------------------------------------------------------------------


WRITES = {
    "item": lambda x: x.__setitem__(1, 7.0),
    "slice": lambda x: x[2:5].fill_(7.0),
    "strided": lambda x: x[::2].mul_(2.0),
    "view": lambda x: x.view(2, 5)[0].copy_(torch.full((5,), 7.0)),
    "index_put_": lambda x: x.index_put_((torch.tensor([1, 3]),), torch.tensor(7.0)),
    "scatter_": lambda x: x.scatter_(0, torch.tensor([1, 3]), 7.0),
    "from itself": lambda x: x[5:].copy_(x[:5]),
}


def numbers():
    x = torch.arange(10.0)
    x.tolist()
    return x


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_stays_in_the_buffer_that_nobody_else_needs(write, either):
    x = numbers()
    at = address(x)
    write(x)
    assert address(x) == at, "written elsewhere"
    write(x)
    write(x)
    # a plan can be done all over again after an interrupt, so of its reference steps only the last writes in place
    if either == "reference" or write not in (WRITES["index_put_"], WRITES["scatter_"]):
        assert address(x) == at, "written elsewhere, in one trace with other writes"


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_leaves_what_somebody_needs(write, either):
    expected = numbers()
    write(expected)
    expected = expected.tolist()
    for keeping in (lambda x: x.clone(), lambda x: x + 0, lambda x: x[2:8] * 1, lambda x: torch.zeros(10).copy_(x)):
        x = numbers()
        before = keeping(x)
        kept = before.tolist()
        write(x)
        assert before.tolist() == kept and x.tolist() == expected
        x = numbers()
        before = keeping(x)                    # still pending when the write is recorded
        write(x)
        after = keeping(x)
        write(x)
        assert before.tolist() == kept
        assert after.tolist() == (expected if len(kept) == 10 else expected[2:8])


def test_writes_to_a_tensor_still_pending_copy_nothing():
    n = 1 << 17
    tracemalloc.start()
    try:
        x = torch.zeros(n, dtype=torch.float64)
        for i in range(20):
            x[i:i + 3] = float(i)
        first = x[:5].tolist()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert first == [0, 1, 2, 3, 4] and peak < 1.5 * n * 8


def test_a_source_that_overlaps_its_target_is_read_before_it_is_written(either):
    x = torch.arange(6.0).view(2, 3)
    x[:, :2] = x[:, 1:]
    assert x.tolist() == [[1, 2, 2], [4, 5, 5]]
    y = torch.arange(9.0).view(3, 3)
    y[1:, 1:] = y[:2, :2]
    assert y.tolist() == [[0, 1, 2], [3, 0, 1], [6, 3, 4]]


# --- failures -------------------------------------------------------------------------------------------------------


class Broken(Exception):
    pass


def broken(*args):
    raise Broken


def test_a_failure_loses_nothing(monkeypatch):
    a = torch.ones(3) + 1
    monkeypatch.setattr(declared["tanh"], "ref", broken)
    b = torch.tanh(a)
    c = a * 10
    d = b + c
    a[0] = 50
    assert c.tolist() == [20, 20, 20]                             # does not need what fails
    for tensor in (b, d, b):
        with pytest.raises(Broken):
            tensor.tolist()
    assert a.tolist() == [50, 2, 2]
    monkeypatch.undo()
    assert b.tolist() == pytest.approx(np.tanh([2.0] * 3))        # of `a` as it was
    assert d.tolist() == pytest.approx(20 + np.tanh([2.0] * 3))


def test_what_failed_can_be_dropped(monkeypatch):
    others = current().asides              # of other tests, whose errors and their frames may still hold each other
    monkeypatch.setattr(declared["tanh"], "ref", broken)
    a = torch.ones(3) + 1
    b = torch.tanh(a)
    with pytest.raises(Broken):
        b.tolist()
    assert not {*current().asides} <= {*others}
    read = weakref.ref(a._storage.value.array)
    del a
    assert read() is not None                                     # looking again could still succeed
    del b
    assert torch.ones(2).tolist() == [1, 1]
    assert read() is None and {*current().asides} <= {*others}


@pytest.mark.usefixtures("sort_without_kernel")
def test_what_failed_is_tried_again_only_for_who_needs_it(monkeypatch):
    """Not at every look at something else, which it would keep from its plan besides."""
    monkeypatch.setattr(settings, "executor", "native")
    monkeypatch.setattr(interpret, "_program", lambda entry, params: None)
    monkeypatch.setattr(interpret, "_programs", {})
    calls = []

    def failing(*args, **kwargs):
        calls.append(args)
        raise Broken
    monkeypatch.setattr(declared["sort"], "ref", failing)
    a = torch.arange(4.0)
    b = a.sort()[0] + 1
    with pytest.raises(Broken):
        b.tolist()
    tried = len(calls)
    for n in range(3):
        assert ((a + n) * 2).sum().item() == 12 + 8 * n
        assert torch.plans.last() is not None
    assert len(calls) == tried
    with pytest.raises(Broken):
        a + b                                                     # said where it is used
    assert len(calls) > tried


def test_each_reader_is_told_of_what_failed_for_it(monkeypatch):
    def says(word):
        def fail(*args):
            raise Broken(word)
        return fail
    x = torch.ones(3)
    monkeypatch.setattr(declared["tanh"], "ref", says("tanh"))
    monkeypatch.setattr(declared["sinh"], "ref", says("sinh"))
    one, two, both = x.tanh(), x.sinh() * 2, x.sinh() + x.tanh()
    for tensor, word in ((two, "sinh"), (one, "tanh"), (both, "sinh"), (two, "sinh")):
        with pytest.raises(Broken, match=word):
            tensor.tolist()


def test_a_failure_says_which_line(monkeypatch):
    monkeypatch.setattr(declared["tanh"], "ref", broken)
    a = torch.ones(3)
    b = torch.tanh(a)
    c = b + 1
    line = test_a_failure_says_which_line.__code__.co_firstlineno + 3
    with pytest.raises(Broken) as got:
        b.tolist()
    assert got.value.__notes__ == [f"in tanh() giving float32[3], recorded at test_record.py:{line}"]
    with pytest.raises(Broken) as got:
        c.tolist()
    assert got.value.__notes__ == [f"in tanh() giving float32[3], recorded at test_record.py:{line}, needed for "
                                   f"float32[3], recorded at test_record.py:{line + 1}"]


@pytest.mark.parametrize("executor", ["reference", "auto"])
def test_only_what_needs_an_instruction_fails_with_it(monkeypatch, executor):
    """Let the k-th instruction fail, for every k, again and again: who does not read of it sees no difference."""
    monkeypatch.setattr(settings, "executor", executor)
    monkeypatch.setattr(plan, "_plans", {})
    monkeypatch.setattr(runner, "_by_plan", lambda trace: False)  # instruction by instruction, in either case

    def program():
        x = torch.arange(6.0)
        y = x * 2
        x[1:3] = y[3:5]
        z = x.clone()
        x.index_add_(0, torch.tensor([0, 5]), torch.tensor([100.0, 200.0]))
        y.mul_(x)
        z[0] = y.sum()
        values, order = y.sort(descending=True)
        return x, y, z, values, order, torch.cat([x[:2], z[:2]]), x.neg().exp()

    expected = [t.tolist() for t in program()]
    execute, update, failed = record.execute, record.Trace._update, 0
    for k in range(30):
        tensors = program()
        code = current().code
        if k >= len(code):
            break
        bad = {id(code[k].entry)}
        needing = set(code[k].results())
        for one in code:
            if needing & set(one.slots) or id(one.entry) in bad:
                needing |= set(one.results())
        fails = [t._storage.value.trace is not None and t._storage.value.slot in needing for t in tensors]

        def stop(do, at, bad=bad):
            def checked(*args, **kwargs):
                if id(getattr(args[at], "entry", args[at])) in bad:          # an entry, or an instruction
                    raise Broken
                return do(*args, **kwargs)
            return checked
        monkeypatch.setattr(record, "execute", stop(execute, 0))
        monkeypatch.setattr(record.Trace, "_update", stop(update, 1))
        for _ in range(2):
            for tensor, fail, right in zip(tensors, fails, expected, strict=True):
                if fail:
                    failed += 1
                    with pytest.raises(Broken):
                        tensor.tolist()
                else:
                    assert tensor.tolist() == right, k
        monkeypatch.setattr(record, "execute", execute)
        monkeypatch.setattr(record.Trace, "_update", update)
        assert [t.tolist() for t in tensors] == expected, k
    assert k > 8 and failed > 30


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError, Broken])
def test_interrupted_anywhere_then_run_again(monkeypatch, kind):
    """Stop at the k-th instruction, for every k: afterwards every tensor has the value it would have had."""
    def program():
        x = torch.arange(6.0)
        y = x * 2
        x[1:3] = y[3:5]
        z = x.clone()
        x.index_add_(0, torch.tensor([0, 5]), torch.tensor([100.0, 200.0]))
        y.mul_(x)
        z[0] = y.sum()
        values, order = y.sort(descending=True)
        return x, y, z, values, order, torch.cat([x[:2], z[:2]])

    expected = [[100, 6, 8, 3, 4, 205], [0, 12, 32, 18, 32, 2050], [2144, 6, 8, 3, 4, 5], [2050, 32, 32, 18, 12, 0],
                [5, 2, 4, 3, 1, 0], [100, 6, 2144, 6]]
    assert [t.tolist() for t in program()] == expected
    execute, update = record.execute, record.Trace._update
    for k in range(20):
        for late in (False, True):               # before the k-th instruction does its work, or after it has
            left = [k]

            def stop(do):
                def counted(*args, **kwargs):
                    left[0] -= 1
                    made = do(*args, **kwargs) if late or left[0] else None
                    if not left[0]:
                        raise kind
                    return made
                return counted
            tensors = program()
            monkeypatch.setattr(record, "execute", stop(execute))
            monkeypatch.setattr(record.Trace, "_update", stop(update))
            try:
                current().run()
            except kind:
                pass
            monkeypatch.undo()
            assert [t.tolist() for t in tensors] == expected, (k, late)


def test_recording_goes_on_after_a_failure(monkeypatch):
    monkeypatch.setattr(declared["tanh"], "ref", broken)
    a = torch.ones(3)
    b = torch.tanh(a)
    with pytest.raises(Broken):
        b.tolist()
    a[0] = 5
    with pytest.raises(Broken):
        a + b
    monkeypatch.undo()
    assert a.tolist() == [5, 1, 1] and (a + b)[0].item() == pytest.approx(5 + np.tanh(1))


def test_looking_from_inside_a_run(monkeypatch):
    """A signal handler or a finaliser may use tensors while a trace runs: it records beside it."""
    seen, ref = [], declared["tanh"].ref

    def nosy(xp, input):
        seen.append((torch.ones(2) + 1).tolist())
        return ref(xp, input)
    monkeypatch.setattr(declared["tanh"], "ref", nosy)
    x = torch.zeros(3)
    y = torch.tanh(x) + 1
    assert y.tolist() == [1, 1, 1] and seen == [[2, 2]]


# --- threads --------------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient():
    """Let threads take turns as often as the interpreter can."""
    import sys
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*jobs):
    """Run the jobs in threads; raise what any of them raised."""
    failures = []

    def guarded(job):
        try:
            job()
        except BaseException as error:
            failures.append(error)
    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for t in threads:
        t.start()
    for t in threads:
        t.join(PATIENCE)
    assert not any(t.is_alive() for t in threads), "a thread hangs"
    if failures:
        raise failures[0]


def test_each_thread_records_its_own_trace(ran):
    traces = []
    together(*[lambda: traces.append(current())] * 3)
    assert len({id(t) for t in [*traces, current()]}) == 4


def test_a_tensor_recorded_elsewhere_runs_there_first():
    made = []
    together(lambda: made.append(torch.arange(4.0) * 2))
    assert made[0]._storage.value.trace is not None              # its thread is gone, its trace is not
    made[0][1] = 50
    assert (made[0] + 1).tolist() == [1, 51, 5, 7]


def test_threads_exchange_pending_tensors(impatient):
    """A ring: each thread adds its number to what its neighbour made, and hands it on unread."""
    import queue
    n, rounds = 4, 60
    boxes = [queue.Queue() for _ in range(n)]
    totals = []

    def work(me):
        for _ in range(rounds):
            x = boxes[me].get()
            y = x * 1 + me
            y[0] += 1
            boxes[(me + 1) % n].put(y)
    boxes[0].put(torch.zeros(3))
    together(*[lambda me=me: work(me) for me in range(n)])
    totals = boxes[0].get().tolist()
    assert totals == [rounds * (0 + 1 + 2 + 3) + n * rounds] + [rounds * 6] * 2


def test_threads_read_what_one_thread_is_recording(impatient):
    """The owner goes on recording while others run its trace."""
    made, stop, wrong = [], threading.Event(), []

    def owner():
        x = torch.zeros(4)
        for i in range(400):
            x = x + 1
            made.append((i + 1, x))
        stop.set()

    def reader():
        while not stop.is_set():
            for expected, tensor in made[-3:]:
                if tensor.tolist() != [expected] * 4:
                    wrong.append((expected, tensor.tolist()))
    together(owner, reader, reader, reader)
    assert not wrong


def test_threads_write_apart_into_one_tensor(impatient):
    shared = torch.zeros(4, 50)

    def work(row):
        mine = shared[row].clone()
        for i in range(50):
            mine[i] = row * 100 + i
        made[row] = mine
    made = {}
    together(*[lambda row=row: work(row) for row in range(4)])
    for row, mine in made.items():
        assert mine.tolist() == [row * 100 + i for i in range(50)]
    assert shared.sum().item() == 0
