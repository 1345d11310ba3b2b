"""`torch.cuda.nvtx`: names for stretches of a program, for NVIDIA's profilers.

They are handed to NVIDIA's package `nvtx` where it is installed (`pip install nvtx`). Without it they could not be
seen, and they do nothing; `is_available()` says which.
"""
import functools
from contextlib import contextmanager

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_depth = 0


@functools.cache
def _package():
    try:
        import nvtx
    except ImportError:
        return None
    return nvtx


def is_available():
    """Whether the names can be seen: NVIDIA's package is there."""
    return _package() is not None


def range_push(msg):
    """Begin a stretch inside those that have begun; the number of them, before this one."""
    global _depth
    if (package := _package()) is not None:
        package.push_range(msg)
    _depth += 1
    return _depth - 1


def range_pop():
    """End the stretch that began last; the number of those that go on, -1 where none had begun."""
    global _depth
    if not _depth:
        return -1
    if (package := _package()) is not None:
        package.pop_range()
    _depth -= 1
    return _depth


def range_start(msg):
    """Begin a stretch that may end in another thread; what `range_end` takes."""
    package = _package()
    return 0 if package is None else package.start_range(msg)


def range_end(range_id):
    """End a stretch that `range_start` began."""
    if (package := _package()) is not None:
        package.end_range(range_id)


def mark(msg):
    """Name this moment."""
    if (package := _package()) is not None:
        package.mark(msg)


@contextmanager
def range(msg, *args, **kwargs):
    """A stretch from the beginning of a `with` block to its end; `msg` is formatted with the other arguments."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
