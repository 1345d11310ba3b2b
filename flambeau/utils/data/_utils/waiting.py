"""How long a training loop waits for its batches."""
from time import perf_counter

from ....base import observers


class Waiting:
    """The time of one epoch, and how much of it went by in waiting for batches.

    `share` is that of the whole epoch so far, `last` that of the last whole step: from asking for a batch to asking for
    the next one. Near 0 the loader keeps up; near 1 it is what the program waits for.
    """

    __slots__ = ("steps", "seconds", "last", "_began", "_asked", "_got", "_ended")

    def __init__(self):
        self.steps, self.seconds, self.last = 0, 0.0, 0.0
        self._began = self._asked = self._got = self._ended = None

    def asks(self):
        """A batch is asked for."""
        now = perf_counter()
        if self._began is None:
            self._began = now
        elif self._got is not None:
            self.last = (self._got - self._asked) / max(now - self._asked, 1e-9)
        self._asked, self._got = now, None

    def gets(self):
        """And there it is."""
        self._got = perf_counter()
        if (tell := observers.waited) is not None:
            now = observers.clock()
            tell("a loader", now - round((self._got - self._asked) * 1e9), now)
        self.steps += 1
        self.seconds += self._got - self._asked

    def ends(self):
        """Or there are no more."""
        self._ended = perf_counter()
        self.seconds += self._ended - self._asked

    @property
    def share(self):
        """The share of the epoch's time, up to now or to its end, that was spent waiting."""
        if self._began is None:
            return 0.0
        return min(1.0, self.seconds / max((self._ended or perf_counter()) - self._began, 1e-9))

    def __repr__(self):
        return f"Waiting(share={self.share:.2f}, last={self.last:.2f}, seconds={self.seconds:.3f}, steps={self.steps})"
