"""Every lock of the package is made here, so that a forked child can take it.

Note [Locks after a fork]: a child has the thread that forked and no other. A lock that another thread held at that
moment stays held there, and whoever wants it waits for ever. So the child first renews every lock, and then calls what
was given to `in_child`, in the order in which it was given. A lock that the forking thread itself holds (it forks in a
signal handler, say) is still its own, and will be released by it.

So all locks are reentrant: only of those it is known who holds them. `tests/base/test_locks.py` reads the package for
locks that are made elsewhere.
"""
import os
import threading
import weakref

_locks: weakref.WeakSet = weakref.WeakSet()
_in_child: list = []


def new_lock():
    """A reentrant lock that is free in a forked child."""
    made = threading.RLock()
    _locks.add(made)
    return made


def in_child(function):
    """Call `function()` in every forked child, where all locks are free: other threads have left things half done."""
    _in_child.append(function)
    return function


def before_fork(held):
    """Let nobody fork while another thread holds the lock `held`: a child could not finish what it is held for."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=held.acquire, after_in_parent=held.release, after_in_child=held.release)


def _renew():
    for held in list(_locks):
        if not held._is_owned():
            held._at_fork_reinit()
    for function in _in_child:
        function()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
