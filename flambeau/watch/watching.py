"""Watching: what `flambeau.watch()` gives, and which observers are in force during a watch."""
import atexit
import contextlib

from ..base import settings
from ..base.locks import new_lock
from ..base.observers import observing
from ..tensor.infer import notice_all_larger
from .data import SharedMemory, tell_starved
from .devices import DeviceObserver
from .finding import check_names, in_force
from .graphs import UnusedGraphs
from .swallowed import tell_swallowed
from .training import TrainingObserver

OBSERVERS = (TrainingObserver, UnusedGraphs, SharedMemory, DeviceObserver)    # one of each, during a watch
AT_THE_END = (tell_swallowed, tell_starved)       # functions that find what only the end of a program shows
_lock = new_lock()
_undo: list = []              # an ExitStack during a watch


def _observe_all(undo):
    """Have every observer told; `undo` ends it."""
    for cls in OBSERVERS:
        undo.enter_context(observing(observer := cls()))
        if hasattr(observer, "close"):
            undo.callback(observer.close)


class Watching(contextlib.ContextDecorator):
    """Inside of the `with`, everything is watched, in all threads. `strict`: findings are errors. `ignore`: names."""

    def __init__(self, *, strict=False, ignore=()):
        self.strict, self.ignore = bool(strict), check_names(ignore)

    def __enter__(self):
        with _lock:
            if not _undo:
                with contextlib.ExitStack() as undo:
                    notice_all_larger(True)
                    undo.callback(notice_all_larger, False)
                    _observe_all(undo)
                    _undo.append(undo.pop_all())
            in_force.append(self)
        return self

    def __exit__(self, *exc):
        with _lock:
            try:
                if in_force == [self]:
                    strict, self.strict = self.strict, self.strict and not any(exc)     # one error is enough
                    try:
                        _undo.pop().close()           # some look for the last time
                    finally:
                        self.strict = strict
            finally:
                in_force.remove(self)

    def _recreate_cm(self):
        return Watching(strict=self.strict, ignore=self.ignore)


_started: list = []           # the Watching that `start` began


def start(*, strict=False, ignore=()):
    """Watch everything from here on, as `FLAMBEAU_WATCH=1` does from the beginning; `stop` ends it."""
    begun = Watching(strict=strict, ignore=ignore)
    stop()
    atexit.unregister(stop)
    atexit.register(stop)                 # while what the observers need is still there
    _started.append(begun.__enter__())
    settings.watch = "strict" if strict else "full"


def stop():
    """End what `start` began; what costs nothing stays on."""
    settings.watch = "free"
    while _started:
        _started.pop().__exit__()


def switch(to):
    """`config.watch = to`."""
    stop()
    if to in ("full", "strict"):
        start(strict=to == "strict")
    settings.watch = to


def settle():
    """Find now what is found only at the end of a program, or of a loop."""
    for function in AT_THE_END:
        function()
