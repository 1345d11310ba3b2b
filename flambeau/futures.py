"""`torch.futures`: a result that will be set later, and callbacks for when it is there."""
from typing import Generic, TypeVar

from .base.errors import warn
from .base.locks import new_condition, new_lock

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")


class Future(Generic[T]):
    """A result that is set once, by its producer, and waited for by its consumers.

    >>> from flambeau.futures import Future
    >>> future = Future()
    >>> larger = future.then(lambda done: done.value() + 1)
    >>> future.set_result(3)
    >>> larger.wait()
    4
    """

    def __init__(self, *, devices=None):
        self._lock = new_condition()
        self._done, self._result, self._error, self._callbacks = False, None, None, []

    def done(self):
        """Whether the result, or an exception, is there."""
        return self._done

    def wait(self):
        """The result, when it is there; an exception that was set is raised."""
        with self._lock:
            self._lock.wait_for(lambda: self._done)
        return self.value()

    def value(self):
        """The result, which has to be there."""
        if not self._done:
            raise RuntimeError("this Future is not completed: wait() for it, or ask done() first")
        if self._error is not None:
            raise self._error
        return self._result

    def set_result(self, result):
        """Set the result, and call what waits for it."""
        self._complete(result, None)

    def set_exception(self, result):
        """Set an exception, which `wait` and `value` will raise."""
        assert isinstance(result, Exception), f"{result} is of type {type(result)}, not an Exception."
        self._complete(None, result)

    def then(self, callback):
        """A Future of what `callback(self)` gives; it is called when the result is there."""
        made: Future = Future()

        def go(done):
            try:
                result = callback(done)
            except Exception as error:
                made.set_exception(RuntimeError("Got the following error when running the callback: "
                                                f"{type(error).__name__}: {error}"))
            else:
                made.set_result(result)
        self.add_done_callback(go)
        return made

    def add_done_callback(self, callback):
        """Call `callback(self)` when the result is there, at once if it is. An error of its own is only a warning."""
        with self._lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        self._call(callback)

    def _complete(self, result, error):
        with self._lock:
            if self._done:
                raise RuntimeError("Attempting to mark a completed Future as complete again. Note that a Future can "
                                   "only be marked completed once.")
            self._done, self._result, self._error = True, result, error
            waiting, self._callbacks = self._callbacks, []
            self._lock.notify_all()
        for callback in waiting:
            self._call(callback)

    def _call(self, callback):
        try:
            callback(self)
        except Exception as error:
            warn(f"Got the following error when running the callback: {type(error).__name__}: {error}")


def collect_all(futures):
    """A Future of the list `futures`, there when all of them are."""
    futures = list(futures)
    made: Future = Future()
    lock, left = new_lock(), len(futures)

    def one(done):
        nonlocal left
        with lock:
            left -= 1
            last = not left
        if last:
            made.set_result(futures)
    if not futures:
        made.set_result(futures)
    for future in futures:
        future.add_done_callback(one)
    return made


def wait_all(futures):
    """The results of all `futures`, when they are there; the first exception is raised."""
    return [future.wait() for future in collect_all(futures).wait()]
