"""`torch.profiler`: there is none here. The names that a program gives to stretches of itself do nothing."""
import contextlib

from .missing import rest_of

_INSTEAD = "use cProfile for the Python side; flambeau.plans shows what runs natively"
__path__: list = []
__getattr__ = rest_of("torch.profiler", profile=_INSTEAD, ProfilerActivity=_INSTEAD, schedule=_INSTEAD)


class record_function(contextlib.ContextDecorator):
    """A name for a stretch of the program in a profiler's table; without one, a context that does nothing."""

    def __init__(self, name, args=None):
        self.name, self.args = name, args

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False
