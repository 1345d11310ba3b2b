"""Things to go through as long as they live."""
import itertools
import weakref

SPARE_REFERENCES = 64         # so many more than lived last time may be kept before the dead ones are dropped


class WeakBag:
    """Holds things weakly, as a `weakref.WeakSet` does, but runs no Python code when one of them ends.

    An interrupt that comes inside such code is swallowed; see Note [Finalisers] in backends/memory.py.

    Note [A copy to go through]: a dictionary that somebody's finaliser may add to is copied first. `list(d.items())` is
    no copy: it makes a tuple for each item, the collector may come with any of them, and finalisers with the collector.
    `d.copy()`, `list(d)` and `list(d.values())` make nothing on the way.
    """

    def __init__(self):
        self._held: dict = {}                       # number → weak reference; a number never means another thing
        self._numbers, self._most = itertools.count(), SPARE_REFERENCES

    def add(self, thing):
        self._held[next(self._numbers)] = weakref.ref(thing)
        if len(self._held) > self._most:
            for number, held in self._held.copy().items():      # see Note [A copy to go through]
                if held() is None:
                    self._held.pop(number, None)
            self._most = 2 * len(self._held) + SPARE_REFERENCES

    def __iter__(self):
        return iter(self.all())

    def all(self):
        """A list of those that live."""
        return [thing for held in list(self._held.values()) if (thing := held()) is not None]
