"""Slots in shared memory that a worker process fills with one batch after the other.

A slot is a file in memory without a name, mapped by the worker and by the loader. The worker writes a batch into a free
one; the loader lends it out, and tells the worker with the next task when the last tensor over it is gone. So memory
that is warm is written again and again, instead of new memory for every batch. Where batches are kept, there are no
free slots, and each comes in a file of its own (`batch_transport.py`).
"""
import weakref
from collections import deque

from ....backends.cpu import host
from ....backends.cpu.memory.shared_blocks import SharedBlock
from ....base.locks import before_fork
from ....base.weakbag import WeakBag

SPARE_SLOTS = 3               # besides one for each batch made ahead: one in use, one about to be, one on its way back

_lenders = WeakBag()


class Slots:
    """The worker's side: which slots there are, and which are free."""

    def __init__(self, most):
        self.most = most
        self._blocks = {}                     # number → SharedBlock
        self._free = set()
        self._told = deque()                  # what the loader has said, which another thread hears
        self._dropped = []                    # those that were too small, of which the loader has to be told
        self._next = 0

    def told(self, freed, retired):
        """These may be written to again, and those not, since a process that was forked may look at them."""
        self._told.append((freed, retired))

    def take(self, nbytes):
        """(number, block, whether it is new) of a slot for so many bytes, which is in use now; None if none is free."""
        while self._told:
            freed, retired = self._told.popleft()
            self._free.update(freed)
            for number in retired:
                del self._blocks[number]
        fitting = [number for number in self._free if self._blocks[number].nbytes >= nbytes]
        if fitting:
            number = min(fitting, key=lambda each: self._blocks[each].nbytes)
            self._free.discard(number)
            return number, self._blocks[number], False
        if len(self._blocks) >= self.most:
            if not self._free:
                return None
            self._dropped.append(self._free.pop())            # too small
            del self._blocks[self._dropped[-1]]
        number, self._next = self._next, self._next + 1
        block = self._blocks[number] = SharedBlock.made(nbytes + nbytes // 8)     # the next batch may be a bit larger
        return number, block, True


    def dropped(self):
        """Those that are no more, since this was last asked."""
        found, self._dropped = self._dropped, []
        return found


class Lent(weakref.ref):
    """What the arrays of a slot stand on, while there are any."""

    __slots__ = ("number",)


class Lender:
    """The loader's side, of one worker: slots that are mapped, and those that are lent out."""

    def __init__(self):
        self._blocks = {}                     # number → SharedBlock
        self._lent = {}                       # number → weak reference to what its arrays stand on
        self._retired = set()                 # lent when this process was forked
        self._ended = deque()                 # those whose arrays are no longer looked at
        _lenders.add(self)

    def add(self, number, file, nbytes):
        """The worker has made a slot."""
        self._blocks[number] = SharedBlock.over(file, nbytes)

    def drop(self, numbers):
        """The worker has let go of slots."""
        for number in numbers:
            del self._blocks[number]

    def lend(self, number, nbytes):
        """The bytes of a slot as an array that the slot is lent for."""
        base = host.lent(self._blocks[number].bytes_at(0, nbytes))
        lent = self._lent[number] = Lent(base, self._ended.append)       # no Python code runs at its end
        lent.number = number
        return host.array_over(base)

    def ended(self):
        """(slots that are free again, slots that must not be written to), since this was last asked."""
        freed, retired = [], []
        while self._ended:
            number = self._ended.popleft().number
            del self._lent[number]
            if number in self._retired:
                self._retired.discard(number)
                del self._blocks[number]
                retired.append(number)
            else:
                freed.append(number)
        return freed, retired

    def retire(self):
        """What is lent now is never written to again."""
        self._retired.update(self._lent)


@before_fork
def _retire_all():
    """A child looks at what is lent now, for as long as it likes."""
    for lender in _lenders:
        lender.retire()
