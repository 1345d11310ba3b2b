"""Memory that came back, to be given out again: of those of a size, the one with the lowest address first.

A graph (graphs.py) holds for the addresses that it was captured with, and a loop that allocates and frees the same
sizes in every round should find them again in the next. So which of the idle blocks a result gets must follow from
which ones lie idle, not from the order in which they came back: given out last in, first out, as CuPy's pool does it,
blocks of one size change places with each other, and many rounds go by before all of them stand where they stood. It is
cheaper, too: CuPy's pool takes some microseconds.

Blocks belong to the stream that they were allocated on; see Note [Streams] in driver.py. A block comes back in a
finaliser, in which no Python code runs; see Note [Finalisers] in backends/memory.py, which this follows.
"""
import ctypes
from bisect import insort
from operator import attrgetter

ROUNDED_TO_BYTES = 512            # sizes are multiples of it
IDLE_PART = 0.5                   # of a device's memory: so much may lie idle here, and no more

_rank = attrgetter("rank")
_method = ctypes.pythonapi.PyInstanceMethod_New      # a function of C as a method: of those in Python, it has `self`
_method.restype, _method.argtypes = ctypes.py_object, (ctypes.py_object,)


class RecycledMemory:
    """Memory of one size and stream; goes back to its Shelf when nobody holds it. `held` is the driver's."""

    __slots__ = ("address", "held", "rank", "__weakref__")
    nbytes = 0

    def __init__(self, held):
        self.held, self.address = held, held.address
        self.rank = -held.address


class Shelf:
    """The idle blocks of a size: `idle`, the lowest address last, and those that came back since, `returned`."""

    __slots__ = ("size", "idle", "returned", "make", "last_used")

    def __init__(self, size):
        self.size, self.idle, self.returned, self.last_used = size, [], [], 0
        self.make = type("RecycledMemory", (RecycledMemory,), {
            "__slots__": (), "nbytes": size, "__del__": _method(self.returned.append)})

    def take(self):
        """A block; None where none lies idle."""
        returned, idle = self.returned, self.idle
        while returned:
            insort(idle, returned.pop(), key=_rank)
        if not idle:
            return None
        return self.make(idle.pop().held)

    def count(self):
        """How many blocks lie idle."""
        return len(self.idle) + len(self.returned)


class Recycler:
    """The idle memory of one device."""

    def __init__(self, driver, index):
        self.driver, self.index = driver, index
        self.most = int(IDLE_PART * driver.properties(index).total_memory)
        self._shelves: dict = {}          # (bytes, handle of a stream) → Shelf
        self._fresh = 0                   # how often there was nothing idle

    def allocate(self, nbytes, stream=None):
        """(memory of at least `nbytes`, whether it is fresh from the driver)."""
        handle = (stream or self.driver.current_stream(self.index)).handle
        try:
            shelf = self._shelves[nbytes, handle]
        except KeyError:
            shelf = self._shelf(nbytes, handle)
        made = shelf.take()
        if made is not None:
            return made, False
        self._fresh += 1
        if self.idle_bytes() > self.most:
            self._drop_oldest()
        shelf.last_used = self._fresh
        return shelf.make(self.driver.allocate(self.index, shelf.size, stream)), True

    def _shelf(self, nbytes, handle):
        """The Shelf for a size, under the size itself and as it is rounded."""
        size = max(-(-nbytes // ROUNDED_TO_BYTES), 1) * ROUNDED_TO_BYTES
        found = self._shelves.setdefault((size, handle), Shelf(size))
        self._shelves[nbytes, handle] = found
        return found

    def _all(self):
        return list({id(shelf): shelf for shelf in list(self._shelves.values())}.values())

    def idle_bytes(self):
        """How many bytes lie idle."""
        return sum(shelf.size * shelf.count() for shelf in self._all())

    def _drop_oldest(self):
        """Give the driver what lies idle of the sizes that were not allocated anew for longest."""
        idle = self.idle_bytes()
        for shelf in sorted(self._all(), key=lambda shelf: shelf.last_used):
            if idle <= self.most // 2:
                break
            idle -= shelf.size * shelf.count()
            self._empty(shelf)

    def clear(self):
        """Give the driver all that lies idle."""
        for shelf in self._all():
            self._empty(shelf)

    @staticmethod
    def _empty(shelf):
        shelf.idle.clear()
        shelf.returned.clear()            # their finalisers are spent: the driver's memory goes with them
