"""Locks in a forked child: all of them are free there, and none is made where the child would not find it."""

import ast
import gc
import os
import pathlib
import signal
import subprocess
import sys
import threading
import weakref

import pytest

import flambeau as torch
from flambeau.autograd import accumulate
from flambeau.backends.cpu import compile_thread, threads
from flambeau.backends.cpu.memory import allocator
from flambeau.backends.cpu.random import draws
from flambeau.base import locks
from flambeau.base.weakbag import WeakBag, WeakTable, at_end
from flambeau.tensor import overrides
from flambeau.trace.recording import record
from tests.patience import PATIENCE

PACKAGE = pathlib.Path(torch.__file__).parent
MAKERS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier", "allocate_lock",
          "register_at_fork"}
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def test_locks_are_made_in_one_place():
    """A lock that is made elsewhere is not renewed in a child."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path == PACKAGE / "base" / "locks.py":
            continue
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if any(name in text for name in MAKERS) else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else \
                [node.attr] if isinstance(node, ast.Attribute) else []
            if isinstance(node, ast.ImportFrom) and node.module not in ("threading", "_thread", "os"):
                continue
            if isinstance(node, ast.Attribute) and getattr(node.value, "attr", "") == "cuda":    # an event of a GPU's
                continue
            found += [f"{path.relative_to(PACKAGE)}:{node.lineno}: {name}" for name in names if name in MAKERS]
    assert not found, "make it with flambeau.base.locks:\n" + "\n".join(found)


def in_a_child(check):
    """What a forked child says of `check()`: its exit status, 0 for True. It is ended after 30 seconds."""
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.alarm(30)
            code = 0 if check() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@needs_fork
def test_every_lock_is_free_in_a_child(monkeypatch):
    """Another thread holds every lock there is at the moment of the fork."""
    monkeypatch.setattr(locks, "SECONDS_FOR_ALL_LOCKS", 0.5)
    w = torch.ones(3, requires_grad=True)
    (w * 2).sum().backward()
    compiled, future = torch.compile(lambda x: x * 2 + 1), torch.futures.Future()
    assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]
    known = [accumulate._accumulate_lock, overrides._counting, allocator._lock, threads._lock, record._registry,
             record.current().lock, torch.default_generator._stream._lock, future._lock._lock,
             draws.MersenneTwister()._lock]
    assert {*map(id, known[:-1])} <= {*map(id, locks._locks)}
    held, done = threading.Event(), threading.Event()
    every = [lock for lock in locks._locks if lock is not compile_thread.lock]   # held over a fork, whoever wants it

    def hold():
        for lock in every:
            lock.acquire()
        held.set()
        done.wait(60)
        for lock in every:
            lock.release()

    def check():
        (w * 2).sum().backward()
        future.set_result(1)
        with torch.autocast("cpu"):
            right = (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.bfloat16
        return right and future.wait() == 1 and w.grad.tolist() == [4.0] * 3 and torch.randn(4).shape == (4,) \
            and compiled(torch.ones(2)).tolist() == [3.0, 3.0] and (torch.randn(700, 700).tanh() + 1).isfinite().all() \
            and torch.compile(lambda x: x - 1)(torch.ones(2)).tolist() == [0.0, 0.0]

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    try:
        assert in_a_child(check) == 0
    finally:
        done.set()
        thread.join()


@needs_fork
def test_what_the_forking_thread_holds_stays_its_own():
    lock, order = locks.new_lock(), []
    with lock:
        def check():
            order.append(lock._is_owned())
            lock.release()
            lock.acquire()
            return order == [True]
        assert in_a_child(check) == 0
    lock.acquire()
    lock.release()


@needs_fork
def test_nobody_forks_while_llvm_works():
    """The child could not finish it; and it has a thread for LLVM of its own."""
    begun, ended = threading.Event(), []

    def work():
        begun.set()
        threading.Event().wait(0.2)
        ended.append(True)
    thread = threading.Thread(target=compile_thread.undisturbed, args=(work,))
    thread.start()
    assert begun.wait(60)
    assert in_a_child(lambda: ended == [True]
                      and compile_thread.undisturbed(threading.get_ident) != threading.get_ident()
                      and compile_thread.undisturbed(lambda a: a + 1, 2) == 3) == 0
    thread.join()


def test_a_table_forgets_the_dead():
    class Thing:
        pass
    table, kept = WeakTable(), [Thing() for _ in range(5)]
    for n, thing in enumerate(kept):
        table[n] = thing
    for n in range(5, 1000):
        table[n] = Thing()
    assert [table.get(n) for n in range(6)] == [*kept, None] and table.get("other") is None
    assert table.all() == kept and len(table._held) < 200
    table[3] = kept[0]
    assert table.get(3) is kept[0]


def test_what_an_end_was_given_is_let_go():
    class Thing:
        pass

    for _ in range(3):
        thing, given = Thing(), Thing()
        held = weakref.ref(given)
        at_end(thing, setattr, given, "ended", True)
        del thing
        assert given.ended
        del given
        assert held() is None


ENDS = """
import contextlib, signal, sys
from flambeau.base.weakbag import at_end

class Thing:
    pass

class Stop(BaseException):
    pass

def stop(number, frame):
    raise Stop

def act(seconds):
    '''In a function: what comes as a loop jumps back is in no `try` of the same one.'''
    signal.setitimer(signal.ITIMER_REAL, seconds)
    while not swallowed:
        thing = Thing()
        at_end(thing, ended.append, 1)
        begun.append(1)
        del thing

ended, begun, swallowed = [], [], []
sys.unraisablehook = lambda error: swallowed.append((error.exc_type, error.object))
signal.signal(signal.SIGALRM, stop)
for n in range(300):
    with contextlib.suppress(Stop):
        act(1e-5 * (1 + n % 30))
signal.setitimer(signal.ITIMER_REAL, 0)
assert len(ended) >= len(begun) > 300 and not swallowed, (len(ended), len(begun), swallowed)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signals")
def test_an_interrupt_does_not_keep_a_thing_from_its_end():
    """Whichever moment it comes in: nothing at the end of a thing is Python's to interrupt. In a process of its own: in
    this one it may come amid the end of something that an earlier test has left."""
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr


def test_a_bag_forgets_the_dead():
    class Thing:
        pass
    bag, kept = WeakBag(), [Thing() for _ in range(5)]
    for thing in kept:
        bag.add(thing)
    for _ in range(1000):
        bag.add(Thing())
    assert list(bag) == kept and len(bag._table._held) < 200
    kept.clear()
    del thing
    assert list(bag) == []


class Restless:
    """A cycle; where the collector finds it, something is done."""

    def __init__(self, does):
        self.me, self.does = self, does

    def __del__(self):
        self.does()


def disturbed(work, does):
    """Do `work` again and again, the collector coming a little later every time, with finalisers that do something."""
    before = gc.get_threshold()
    try:
        gc.collect()
        for later in range(0, 300, 4):
            gc.disable()
            gc.collect(0)
            for _ in range(3):
                Restless(does)
            gc.set_threshold(gc.get_count()[0] + later, *before[1:])
            gc.enable()
            work()
    finally:
        gc.enable()
        gc.set_threshold(*before)
        gc.collect()                               # those left do it now, and not in the middle of another test


def test_a_bag_may_grow_while_it_is_gone_through():
    class Thing:
        pass
    kept = []

    def more(bag):
        thing = Thing()
        kept.append(thing)
        bag.add(thing)

    def work():
        nonlocal bag
        bag = WeakBag()
        kept.clear()
        for _ in range(200):
            more(bag)
        assert len(list(bag)) == len(kept) and set(bag) == set(kept)
    bag = WeakBag()
    disturbed(work, lambda: more(bag))


def test_memory_may_be_mapped_while_it_is_gone_through():
    held = [allocator.block(3 << 20) for _ in range(60)]                       # each a mapping of its own
    disturbed(allocator.segments, lambda: held.append(allocator.block(3 << 20)))
    assert {block.address for block in held} <= {one["address"] for one in allocator.segments()}


@needs_fork
def test_a_signal_during_a_fork_comes_after_it(monkeypatch):
    """Whichever hook it comes in, the handler runs once, in the frame that forked; and the handlers are as before."""
    came, parent = [], os.getpid()

    class Stop(BaseException):
        pass

    def handler(number, frame):
        came.append(frame.f_code.co_name)
        raise Stop

    def send():
        os.kill(parent, signal.SIGUSR1)

    old = signal.signal(signal.SIGUSR1, handler)
    try:
        for hooks in ("_long_before_fork", "_before_fork"):
            with monkeypatch.context() as patch:
                patch.setattr(locks, hooks, [*getattr(locks, hooks), send])
                with pytest.raises(Stop):
                    if not os.fork():
                        right = signal.getsignal(signal.SIGUSR1) is handler and came == ["send"]
                        os._exit(0 if right else 1)
            if os.getpid() != parent:
                os._exit(3)
            assert signal.getsignal(signal.SIGUSR1) is handler and not locks._deferral._handlers
            assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        assert came == ["send", "test_a_signal_during_a_fork_comes_after_it"]
        assert all(lock.acquire(blocking=False) and lock.release() is None for lock in locks._finish)
    finally:
        signal.signal(signal.SIGUSR1, old)


@needs_fork
def test_a_signal_waits_for_what_python_does_after_the_hooks():
    """As from Python 3.12 on the warning of forks beside threads, whose code runs before `fork` returns."""
    program = """
import os, signal, sys, threading, time, warnings
from flambeau.base import locks
class Stop(BaseException):
    pass
def handler(number, frame):
    raise Stop
signal.signal(signal.SIGUSR1, handler)
threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
locks._long_before_fork.append(lambda: os.kill(os.getpid(), signal.SIGUSR1))
for _ in range(3):
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        try:
            if not os.fork():
                os._exit(0)
            x = 1
            where = "late"
        except Stop:
            where = "at once"
    os.wait()
    print(where)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.split("\n") == ["at once"] * 3 + [""], done.stderr


@needs_fork
def test_threads_fork_side_by_side():
    """What one of them has taken for its fork, another one does not give back."""
    failed = []

    def forks():
        for _ in range(20):
            child = os.fork()
            if not child:
                os._exit(0)
            if os.waitpid(child, 0)[1]:
                failed.append(child)
    monkey = sys.unraisablehook
    sys.unraisablehook = failed.append
    try:
        threads = [threading.Thread(target=forks) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.unraisablehook = monkey
    assert not failed and not any(thread.is_alive() for thread in threads)
