"""Things as long as they live, and what is done at their end, with no Python code in it.

Python looks for signals where a function begins, `__del__` and the callback of a weak reference among them. What a
handler raises there is reported and forgotten: the Ctrl-C never reaches the program, and what the function was there
for is not done. See also Note [Finalisers] in backends/cpu/memory/allocator.py, and `when_gone` in deferred_signals.py
for what takes its time.
"""
import operator
import weakref
from itertools import count, repeat, starmap

SPARE_REFERENCES = 64         # so many more than lived last time may be kept before the dead ones are dropped


class WeakTable:
    """Values by keys, as long as they live, as a `weakref.WeakValueDictionary` holds them.

    Note [A copy to go through]: a dictionary that a finaliser may add to is copied first. `list(d.items())` is
    no copy: it makes a tuple for each item, the collector may come with any of them, and finalisers with the collector.
    `d.copy()`, `list(d)` and `list(d.values())` make nothing on the way.
    """

    def __init__(self):
        self._held: dict = {}                       # key → weak reference
        self._most = SPARE_REFERENCES

    def __setitem__(self, key, value):
        self.hold(key, weakref.ref(value))

    def hold(self, key, reference):
        """Keep this weak reference, until it is dead."""
        self._held[key] = reference
        if len(self._held) > self._most:
            for known, ref in self._held.copy().items():        # see Note [A copy to go through]
                if ref() is None and self._held.get(known) is ref:
                    self._held.pop(known, None)
            self._most = 2 * len(self._held) + SPARE_REFERENCES

    def get(self, key):
        """The value of `key`, or None."""
        ref = self._held.get(key)
        return None if ref is None else ref()

    def all(self):
        """A list of those that live."""
        return [thing for ref in list(self._held.values()) if (thing := ref()) is not None]


class WeakBag:
    """Things to go through, held weakly, as a `weakref.WeakSet` does."""

    def __init__(self):
        self._table, self._numbers = WeakTable(), count()     # a number never means another thing

    def add(self, thing):
        self._table[next(self._numbers)] = thing

    def __iter__(self):
        return iter(self.all())

    def all(self):
        """A list of those that live."""
        return self._table.all()


class _End(weakref.ref):
    """A reference whose end is an act."""

    __slots__ = ("act",)


_ends, _numbers, _act = WeakTable(), count(), operator.methodcaller("act")


def at_end(thing, function, *args):
    """Call `function(*args)`, a function of C's, when `thing` is no more; then nothing here holds `args`."""
    end = _End(thing, _act)
    end.act = starmap(function, starmap([args].pop, repeat(()))).__next__
    _ends.hold(next(_numbers), end)
