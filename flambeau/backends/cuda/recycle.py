"""Memory that came back, to be given out again: of those of a size, the one with the lowest address first.

A graph (graphs.py) holds for the addresses that it was captured with, and a loop that allocates and frees the same
sizes in every round should find them again in the next. So which of the idle blocks a result gets must follow from
which ones lie idle, not from the order in which they came back: given out last in, first out, as CuPy's pool does it,
blocks of one size change places with each other, and many rounds go by before all of them stand where they stood. It is
cheaper, too: CuPy's pool takes some microseconds.

Blocks belong to the stream that they were allocated on; see Note [Streams] in driver_interface.py. A block comes back
in a finaliser, in which no Python code runs; see Note [Finalisers] in backends/cpu/memory/allocator.py, which this
follows.
"""
import ctypes
from bisect import insort
from operator import attrgetter
from typing import Any

from ...base import observers

ROUNDED_TO_BYTES = 512            # sizes are multiples of it
IDLE_PART = 0.5                   # of a device's memory: so much may lie idle here, and no more

_rank = attrgetter("rank")
_method = ctypes.pythonapi.PyInstanceMethod_New      # a function of C as a method: of those in Python, it has `self`
_method.restype, _method.argtypes = ctypes.py_object, (ctypes.py_object,)


class RecycledMemory:
    """Memory of one size and stream, of a `shelf`; goes back there when it is no longer held. `memory` is the
    driver's."""

    __slots__ = ("address", "memory", "rank", "__weakref__")
    nbytes = 0
    shelf: Any = None

    def __init__(self, memory):
        self.memory, self.address = memory, memory.address
        self.rank = -memory.address


class Shelf:
    """The idle blocks of a size, the lowest address last."""

    __slots__ = ("size", "idle", "make", "last_used")

    def __init__(self, size, returned):
        self.size, self.idle, self.last_used = size, [], 0
        self.make = type("RecycledMemory", (RecycledMemory,), {
            "__slots__": (), "nbytes": size, "shelf": self, "__del__": _method(returned.append)})


class Recycler:
    """The memory of one device that programs get: `owned` bytes from the driver, of which `idle` lie idle here."""

    def __init__(self, driver, index):
        self.driver, self.index = driver, index
        self.most = int(IDLE_PART * driver.properties(index).total_memory)
        self.owned = self.idle = 0
        self._returned: list = []         # what came back, and was not put on its shelf yet
        self._shelves: dict = {}          # (bytes, handle of a stream) → Shelf
        self._fresh = 0                   # how often there was nothing idle
        self.told: dict = {}              # address of what is in use → its Allocation, of which observers were told

    def allocate(self, nbytes, stream=None):
        """(memory of at least `nbytes`, whether it is fresh from the driver)."""
        handle = (stream or self.driver.current_stream(self.index)).handle
        try:
            shelf = self._shelves[nbytes, handle]
        except KeyError:
            shelf = self._shelf(nbytes, handle)
        if self._returned:
            self._put_back()
        idle, size = shelf.idle, shelf.size
        try:
            made = shelf.make(idle.pop().memory)
        except IndexError:
            return self._from_driver(shelf, stream), True
        self.idle -= size
        return made, False

    def idle_ones(self, sizes):
        """(for each of `sizes` memory that lay idle, or None; how many bytes were asked for of what was found)."""
        handle, shelves, found, total = self.driver.current_stream(self.index).handle, self._shelves, [], 0
        if self._returned:
            self._put_back()
        for nbytes in sizes:
            shelf = shelves.get((nbytes, handle))
            if shelf is None or not shelf.idle:
                found.append(None)
                continue
            found.append(shelf.make(shelf.idle.pop().memory))
            self.idle -= shelf.size
            total += nbytes
        return found, total

    def _from_driver(self, shelf, stream):
        self._fresh += 1
        if self.idle > self.most:
            self._drop_oldest()
        shelf.last_used = self._fresh
        made = shelf.make(self.driver.allocate(self.index, shelf.size, stream))
        self.owned += shelf.size
        return made

    def _shelf(self, nbytes, handle):
        """The Shelf for a size, under the size itself and as it is rounded."""
        size = max(-(-nbytes // ROUNDED_TO_BYTES), 1) * ROUNDED_TO_BYTES
        found = self._shelves.get((size, handle)) or Shelf(size, self._returned)
        self._shelves[nbytes, handle] = self._shelves[size, handle] = found
        return found

    def _put_back(self):
        """Put what came back on its shelves."""
        returned = self._returned
        while returned:
            dead = returned.pop()
            insort(dead.shelf.idle, dead, key=_rank)
            self.idle += dead.nbytes
            if self.told and (allocation := self.told.pop(dead.address, None)) is not None:
                observers.tell_freed(allocation)

    def in_use(self):
        """How many bytes are in use."""
        if self._returned:
            self._put_back()
        return self.owned - self.idle

    def idle_bytes(self):
        """How many bytes lie idle."""
        self._put_back()
        return self.idle

    def _drop_oldest(self):
        """Give the driver what lies idle of the sizes that were not allocated anew for longest."""
        for shelf in sorted(self._shelves.values(), key=lambda shelf: shelf.last_used):
            if self.idle <= self.most // 2:
                break
            self._empty(shelf)

    def clear(self):
        """Give the driver all that lies idle."""
        self._put_back()
        for shelf in list(self._shelves.values()):
            self._empty(shelf)

    def _empty(self, shelf):
        """Their finalisers are spent: with them goes what they hold of the driver's."""
        gone = [shelf.idle.pop() for _ in range(len(shelf.idle))]
        self.owned -= shelf.size * len(gone)
        self.idle -= shelf.size * len(gone)
