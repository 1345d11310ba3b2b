"""`torch.profiler.itt`: names for stretches of a program, for Intel's VTune.

They are handed to Intel's package `ittapi` where it is installed (`pip install ittapi`). Without it the names could not
be seen, and they do nothing; `is_available()` says which.
"""
import functools
from contextlib import contextmanager

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]

_open: list = []


@functools.cache
def _domain():
    try:
        import ittapi
    except ImportError:
        return None
    return ittapi.domain("flambeau")


def is_available():
    """Whether the names can be seen: Intel's package is there."""
    return _domain() is not None


def range_push(msg):
    """Begin a stretch inside those that have begun."""
    if (domain := _domain()) is not None:
        import ittapi
        task = ittapi.task(msg, domain=domain)
        task.begin()
        _open.append(task)


def range_pop():
    """End the stretch that began last."""
    if _open:
        _open.pop().end()


def mark(msg):
    """Name this moment."""
    if (domain := _domain()) is not None:
        import ittapi
        ittapi.event(msg, domain=domain).begin()


@contextmanager
def range(msg, *args, **kwargs):
    """A stretch from the beginning of a `with` block to its end; `msg` is formatted with the other arguments."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
