"""Every lock of the package is made here, so that a forked child can take it.

Note [Locks after a fork]: a child has the thread that forked and no other. A lock that another thread held at that
moment stays held there, and whoever wants it waits for ever. So the child first renews every lock, and then calls what
was given to `in_child`, in the order in which it was given. A lock that the forking thread itself holds (it forks in a
signal handler, say) is still its own, and will be released by it.

What some locks are held for cannot be mended afterwards: a compilation, or a run that writes into memory. Nobody forks
while another thread holds one of those (`new_lock(finish=True)`): the forking thread takes them all first. Their
holders may need one another's, so it gives them all back and tries again if one is not to be had; and goes on without
after a while, since somebody may hold one and wait for it.

All locks are reentrant: only of those it is known who holds them. `tests/base/test_locks.py` reads the package for
locks that are made elsewhere.
"""
import os
import threading
import time

from .weakbag import WeakBag

SECONDS_PER_LOCK = 0.05       # to wait for one lock before a fork,
SECONDS_FOR_ALL_LOCKS = 10.0  # and for all of them

_locks = WeakBag()
_finish = WeakBag()
_taken: list = []             # what was taken for the fork that goes on
_before_fork: list = []
_in_child: list = []


def new_lock(finish=False):
    """A reentrant lock that is free in a forked child; `finish`: nobody forks while another thread holds it."""
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
        """It has happened: whoever waits goes on."""
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


def _before():
    try:
        for function in _before_fork:
            function()
    finally:
        _take_all()


def _take_all():
    try:
        _try_to_take_all()
    except BaseException:                           # an interrupt
        _give_back()
        raise


def _try_to_take_all():
    until = time.monotonic() + SECONDS_FOR_ALL_LOCKS
    while not all(_take(held) for held in _finish):
        _give_back()
        if time.monotonic() > until:
            return
        time.sleep(SECONDS_PER_LOCK / 10)


def _take(held):
    if not held.acquire(timeout=SECONDS_PER_LOCK):
        return False
    _taken.append(held)
    return True


def _give_back():
    while _taken:
        _taken.pop().release()


def _renew():
    for held in _locks:
        if not held._is_owned():
            held._at_fork_reinit()
    _give_back()
    for function in _in_child:
        function()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_give_back, after_in_child=_renew)
