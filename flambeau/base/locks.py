"""Every lock of the package is made here, so that a forked child can take it.

Note [Locks after a fork]: a child has the thread that forked and no other. A lock that another thread held at that
moment stays held there, and a thread that wants it waits for ever. So the child first renews every lock, and then calls
what was given to `in_child`, in the order in which it was given. A lock that the forking thread itself holds (it forks
in a signal handler, say) is still its own, and will be released by it.

What some locks are held for cannot be mended afterwards: a compilation, or a run that writes into memory. No thread
forks while another thread holds one of those (`new_lock(finish=True)`): the forking thread takes them all first. Their
holders may need one another's, so it gives them all back and tries again if one is not to be had; and goes on without
after a while, since a thread may hold one and wait for it. What a signal handler raises meanwhile comes after the fork:
Note [Signals during a fork] in deferred_signals.py.

All locks are reentrant: only of those it is known who holds them. `tests/base/test_locks.py` reads the package for
locks that are made elsewhere.
"""
import os
import sys
import threading
import time

from .deferred_signals import Deferral, Stepping, in_main_thread, stepper
from .weakbag import WeakBag

SECONDS_PER_LOCK = 0.05       # to wait for one lock before a fork,
SECONDS_FOR_ALL_LOCKS = 10.0  # and for all of them

_locks = WeakBag()
_finish = WeakBag()
_long_before_fork: list = []
_before_fork: list = []
_in_child: list = []


def new_lock(finish=False):
    """A reentrant lock that is free in a forked child; `finish`: no thread forks while another one holds it."""
    made = threading.RLock()
    _locks.add(made)
    if finish:
        _finish.add(made)
    return made


def new_condition():
    """A condition to wait for, over such a lock. Threads that waited for it did not come along to a child."""
    return threading.Condition(new_lock())


class Flag:
    """Something that has happened or not, for which threads may wait."""

    def __init__(self):
        self._condition, self._is_set = new_condition(), False

    def set(self):
        """It has happened: waiting threads go on."""
        with self._condition:
            self._is_set = True
            self._condition.notify_all()

    def is_set(self):
        """Whether it has happened."""
        return self._is_set

    def wait(self, seconds):
        """Wait until it happens, `seconds` at most; whether it has."""
        with self._condition:
            return self._condition.wait_for(self.is_set, seconds)


def in_child(function):
    """Call `function()` in every forked child, where all locks are free: other threads have left things half done."""
    _in_child.append(function)
    return function


def before_fork(function):
    """Call `function()` in a thread that is about to fork, before it waits for locks. What it raises is reported, and
    ends nothing."""
    _before_fork.append(function)
    return function


def long_before_fork(function):
    """The same, of a function that may take its time: a signal interrupts it, and the fork goes on without the rest."""
    _long_before_fork.append(function)
    return function


def _call_all(functions):
    for function in functions:
        try:
            function()
        except Exception:
            sys.excepthook(*sys.exc_info())


def _take_all():
    """Take all locks that no thread may hold during a fork; those that were taken, which is none if it took too
    long."""
    until = time.monotonic() + SECONDS_FOR_ALL_LOCKS
    while True:
        taken = []
        for lock in _finish:
            if not lock.acquire(timeout=SECONDS_PER_LOCK):
                break
            taken.append(lock)
        else:
            return taken
        _give_back(taken)
        if time.monotonic() > until:
            return []
        time.sleep(SECONDS_PER_LOCK / 10)


def _give_back(taken):
    while taken:
        taken.pop().release()


def _renew(taken):
    for lock in _locks:
        if not lock._is_owned():
            lock._at_fork_reinit()
    _give_back(taken)
    _call_all(_in_child)


def _around_fork():
    """What is done before a fork, and after it in both processes: each is the stretch from one `yield` to the next.

    See Note [Signals during a fork] in deferred_signals.py. Where a handler may still raise, no call stands outside of
    a `try`.
    """
    raised = late = None
    try:
        yield
        _call_all(_long_before_fork)
    except GeneratorExit:
        return
    except BaseException as error:
        raised = error
    try:
        _deferral.begin()
    except BaseException as error:
        raised = error
    try:
        _deferral.begin()
    except BaseException as error:                  # of another signal
        raised = error
    _deferral.begin()
    _call_all(_before_fork)
    taken, parent, main = _take_all(), os.getpid(), in_main_thread()
    arrived = _deferral.take() if main else []
    try:
        yield
    except BaseException as error:                  # another thread has forked, which is the child's main thread now
        late = error
    try:
        _deferral.begin()
    except BaseException as error:
        late = error
    _deferral.begin()
    _stepping.renew()
    if os.getpid() == parent:
        _give_back(taken)
        if main:
            _deferral.end(raised, arrived, sys._getframe(1))
    else:
        if not main:
            _deferral.take()                        # what came to the parent's main thread
        _renew(taken)
        _deferral.end(late, [], sys._getframe(1))
    yield


if hasattr(os, "register_at_fork"):
    _deferral = Deferral()
    _stepping = Stepping(_around_fork)
    _step = stepper(_stepping)
    os.register_at_fork(before=_step, after_in_parent=_step, after_in_child=_step)
    os.register_at_fork(after_in_parent=_deferral.deliver_soon, after_in_child=_deferral.deliver_soon)
