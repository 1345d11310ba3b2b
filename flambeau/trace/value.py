"""Values and storages: immutable contents, and the mutable cells that hold them.

An in-place write makes a new Value and puts it in the cell; what read the old Value still holds it, so the
recording needs no analysis of aliases. Two storages may hold one Value: copying is free until one is written.

Note [Exported storages]: once NumPy (or DLPack) holds the memory, Values of that storage are no longer immutable.
Every operation that reads or writes it runs at the call and writes in place, so that both sides see the same
bytes at the same moment. (What reads little of it is recorded with a copy instead, so that the trace is not cut: the
state of a small world at every step of an agent.) It ends when the last outside array is gone.

Note [Writes through .data]: `x.data` looks at the memory of `x` and counts its own writes, so that `x._version` stays,
as in PyTorch; programs write parameters that way on purpose. A gradient must not be computed with what was overwritten,
all the same. So `version` counts every write, and what autograd keeps it keeps with that count; a storage notes which
of the writes came through `.data`, and which cells they touched. Where only such writes were made since, and none of
them to the cells that were kept, backward goes on. `_version` is `version` without them.
"""
import weakref
import zlib

import numpy as np

from ..backends.cpu import host
from ..backends.cpu.memory.array_pool import keep_spare
from ..base import dtypes, observers
from ..base.core import give_defaults
from ..base.counting import count_in
from ..base.ownership import RESULT, outside_holds_keeper, shares_value
from ..base.shapes import extent
from ..base.spec import CPU, spec as make_spec
from ..base.weakbag import at_end

events = vars(observers)          # the module's dict: saves one attribute lookup per call
_looks = 0                        # how often contents were looked at, or waited for


def looks():
    """A number that grows whenever contents are looked at: two that are equal say that there was no look between."""
    return _looks


class Value:
    """Contents: ready (an array laid out as `spec`) or pending (slot `slot` of `trace`)."""

    # `on_host` is what the CPU knows of contents elsewhere: see on_host.py; `bounds` is (a dtype, what is known of the
    # contents in it as a pair): see bounds.py.
    __slots__ = ("trace", "slot", "array", "spec", "_memory", "_address", "on_host", "bounds")

    # No __init__: the recorder makes one for every result, and an empty object filled in costs a quarter of a call.

    def __dealloc__(self):        # compiled, which alone has the field `whole_block`; interpreted, the array just goes
        if self.whole_block and self._memory is None and self.array is not None and not events["during_runs"]:
            items = [self.array]
            self.array = None
            if count_in(items, 0) == RESULT:            # see Note [Spare arrays] in backends/cpu/memory/array_pool.py
                keep_spare(self.spec, (items[0], self._address))

    @staticmethod
    def of(array, spec):
        """A ready Value."""
        self = Value()
        self.trace = None
        self.array = array
        self.spec = spec
        self._memory = None
        return self

    @staticmethod
    def of_bytes(memory, device=CPU):
        """A ready Value over an array of bytes of `device`, of no dtype as yet."""
        return Value.of(memory, make_spec(dtypes.uint8, (memory.nbytes,), None, device))

    def ready(self):
        """Run what is pending, so that `array` is there."""
        global _looks
        _looks += 1
        if (tell := events["looked"]) is not None:
            tell(self)
        while (trace := self.trace) is not None:
            trace.run(self)
        return self

    def address(self):
        """Where the array starts in memory."""
        found = getattr(self, "_address", None)
        if found is None:
            self._address = found = self.spec.device.backend.address(self.array)
        return found

    @property
    def memory(self):
        """The bytes behind the array, in memory order."""
        if self._memory is None:
            self._memory = self.spec.device.backend.bytes_of(self.array)
        return self._memory

    def bytes_on_host(self):
        """The bytes behind the array where NumPy can read them: its own memory, or a copy from another device."""
        return self._on_host(self.memory)

    def copy_of_bytes(self):
        """A ready Value over a copy of the bytes behind the array."""
        device = self.spec.device
        return Value.of_bytes(device.backend.copied(self.memory), device)

    def with_length(self, nbytes, zeros=False):
        """A ready Value over a copy of `nbytes` of the bytes behind the array; where there are fewer, zeros follow, or
        whatever is there."""
        device, kept = self.spec.device, min(nbytes, self.memory.size)
        made = Value.of_bytes(device.backend.allocate(make_spec(dtypes.uint8, (nbytes,), None, device)), device)
        first, rest = (make_spec(dtypes.uint8, (n,), None, device) for n in (kept, nbytes - kept))
        if kept:
            device.backend.put(made.look(first, 0), Value.of_bytes(self.memory, device).look(first, 0))
        if zeros and rest.numel:
            device.backend.put(made.look(rest, kept), 0)
        return made

    def may_be_written(self):
        """Whether the memory may be written to at all."""
        return self.spec.device.backend.may_write(self.array)

    def look(self, spec, offset):
        """The array that a tensor of `spec` starting `offset` elements in sees."""
        if spec is self.spec and offset == 0:
            return self.array
        return self.spec.device.backend.look(self.memory, spec, offset)

    def read(self, spec, offset):
        """What that tensor sees as a NumPy array to read: a look, or a copy from another device."""
        found, device = self.look(spec, offset), self.spec.device
        if device is CPU:
            return found
        return host.as_dtype(self._on_host(found), spec.dtype.np)

    def _on_host(self, array):
        """What NumPy can read of `array`, a look at this Value's memory."""
        device = self.spec.device
        if observers.copied is None or device is CPU:
            return device.backend.to_host(array)
        with observers.timed("copied", device, CPU, array.nbytes):
            return device.backend.to_host(array)


class TensorBase:
    """The fields of a tensor that recording reads and writes: a look at a storage (_spec, _offset), and its history.

    They begin with an underscore, as all fields of ours do: other names are the program's to use.
    """

    def __hash__(self):           # optimizers find their state by it, some times a step
        return id(self)


give_defaults(
    TensorBase,
    _site=None,               # the line that made it
    _requires_grad=False,     # a leaf's own wish
    _node=None,               # the autograd node it came from
    _nr=0,                    # which of the node's results it is
    _grad=None,
    _base=None,               # the tensor it is a view of
    _seen=0,                  # a view's version of the storage when its history was last taken from the base
    _view_of=None,            # why writing in place to this view is restricted
    _cut=None,                # (what, site) where the graph to it was cut
    _accumulator=None,        # weak reference to its AccumulateGrad node
    _leaf_hooks=None,         # {number: function}, of a leaf: what its gradient goes through,
    _post_hooks=None,         # and what is called when it has arrived
    _data_version=None)       # of `.data` and its views: their own count; see Note [Writes through .data]


class HiddenWrites:
    """Writes through `.data` in a row: numbers `start` to `end` of a storage's writes, and the cells they touched."""

    __slots__ = ("start", "end", "cells")

    def __init__(self, start, cells):
        self.start, self.end, self.cells = start, start + 1, {cells}


class DataVersion:
    """The count of writes that a `.data` tensor shares with its views."""

    count = 0


def overlap(nbytes, a, b):
    """Whether two looks, each (spec, offset), at a storage of `nbytes` have a cell in common."""
    spans = []
    for spec, offset in (a, b):
        if not spec.numel:
            return False
        start = offset * spec.dtype.itemsize
        spans.append((start, start + extent(spec.shape, spec.strides) * spec.dtype.itemsize))
    if spans[0][0] >= spans[1][1] or spans[1][0] >= spans[0][1]:
        return False
    if a[0].dense and b[0].dense:
        return True
    memory = np.empty(nbytes, np.uint8)                      # asked for its addresses only
    looks = [host.laid_out(memory, spec.shape, spec.dtype.np, spec.np_strides, offset * spec.dtype.itemsize)
             for spec, offset in (a, b)]
    return host.overlap(*looks, OVERLAP_WORK)


NEVER_SAVED = -1              # a `saved_at`
OVERLAP_WORK = 1_000_000      # steps that are spent on finding a common cell before one is supposed
HIDDEN_STRETCHES = 1000       # how many a storage remembers; what was kept before them counts as overwritten


class Held:
    """Memory of a storage that is seen from outside, as long as this object lives."""

    __slots__ = ("memory", "__weakref__")

    def __init__(self, memory):
        self.memory = memory


class Storage:
    """A mutable cell: the current Value, and a version that every in-place write raises and all views share."""

    def __cinit__(self):          # compiled; interpreted, it stands with the other defaults, below
        self.saved_at = NEVER_SAVED

    @staticmethod
    def of(value, nbytes, device):
        """A new cell that holds `value`; the recorder fills in an empty one itself, as with a Value."""
        self = Storage()
        self.value = value
        self.nbytes = nbytes
        self.device = device
        self.version = 0
        self.exported = self.inference = False
        self.fingerprint = None
        return self

    def hide_write(self, spec, offset):
        """The write that was counted last came through `.data`, to the cells of that look."""
        self.hidden += 1
        if self.hidden_writes is None:
            self.hidden_writes = []
        before, log = self.version - 1, self.hidden_writes
        if log and log[-1].end == before and self.saved_at < before:         # and nothing was kept in between
            log[-1].end = self.version
            log[-1].cells.add((spec, offset))
            return
        log.append(HiddenWrites(before, (spec, offset)))
        if len(log) > HIDDEN_STRETCHES:
            del log[:HIDDEN_STRETCHES // 2]

    def only_hidden(self, since, look=None):
        """Whether all writes after number `since` came through `.data`, and none touched `look`, a (spec, offset)."""
        count = 0
        for writes in reversed(self.hidden_writes or ()):
            if writes.end <= since:
                break
            count += writes.end - max(writes.start, since)
            if look is not None and any(overlap(self.nbytes, look, cells) for cells in writes.cells):
                return False
        return count == self.version - since

    def pin(self):
        """Keep the memory where it is from now on: its address was asked for."""
        self._own_memory()
        self.exported = self._pinned = True

    def held(self):
        """What keeps the memory where it is as long as it lives, on any device, and mark the storage exported."""
        memory = self._own_memory()
        base = self._export() if self._export is not None else None
        if base is None:
            base = Held(memory)
            self._export = weakref.ref(base)
        self.exported = True
        return base

    def adopt_foreign(self, readonly=False):
        """Mark the memory as another library's, of another device, which does not say who else looks at it."""
        self.exported = self._pinned = True
        self.readonly = readonly

    def settle(self):
        """Wait until nothing copies its contents any more: they are about to be written."""
        self.in_flight.wait()
        self.in_flight = None

    def adopt(self, array):
        """Mark the memory as belonging to `array`, which others may hold too."""
        self._keeper = array
        self.exported = True
        self.readonly = not host.is_writeable(array)
        if (tell := observers.shared) is not None:
            tell(self)

    def lend(self, array):
        """Make the array that this memory belongs to read-only, until this storage is gone."""
        array.flags.writeable = False
        at_end(self, setattr, array.flags, "writeable", True)

    def export(self, spec, offset):
        """An array over this storage's memory for the outside, and mark the storage exported.

        The array stands on an object of its own, so that we can see when the last outside array is gone.
        """
        if self.in_flight is not None:
            self.settle()
        memory = self._own_memory()
        if self.saved_at == self.version and self.shared is None and not self.has_outside_arrays():
            self.fingerprint = (self.version, zlib.crc32(memory))    # a backward waits for these bytes as they are now
        base = self._export() if self._export is not None else None
        if base is None and memory.size and host.is_writeable(memory) and not self.readonly:
            base = host.lent(memory)
            self._export = weakref.ref(base)
        self.exported = True
        if spec.numel == 0 or base is None:
            out = self.value.look(spec, offset).view()
            out.flags.writeable = not self.readonly
            return out
        flat = host.array_over(base)
        return host.laid_out(flat, spec.shape, spec.dtype.np, spec.np_strides, offset * spec.dtype.itemsize)

    def _own_memory(self):
        """The bytes of this storage, parted from other storages that may hold the same Value."""
        self.value.ready()
        if not self.exported and shares_value(self):
            self.value = self.value.copy_of_bytes()
        self.value.bounds = None
        return self.value.memory

    def still_exported(self):
        """Whether something outside still holds the memory; forgets it when not."""
        if self._pinned or self.has_outside_arrays():
            return True
        self.exported, self._keeper, self._export = False, None, None
        return False

    def has_outside_arrays(self):
        """Whether an array outside looks at the memory; a mere address does not count."""
        if self._export is not None and self._export() is not None:
            return True
        keeper = self._keeper
        if keeper is None:
            return False
        if keeper.base is not None or weakref.getweakrefcount(keeper):
            return True                   # one that looks at another owner's memory does not say what else looks at it
        del keeper
        return outside_holds_keeper(self)


give_defaults(
    Storage,
    version=0,
    writer=None,              # (site, name of the operation) of the last in-place write
    readonly=False,
    exported=False,           # outside arrays may look at this memory; see Note [Exported storages]
    inference=False,
    saved_at=NEVER_SAVED,     # the version that autograd last kept for a backward
    fingerprint=None,         # (version, checksum) of exported memory when autograd kept it
    hidden=0,                 # how many of the writes came through `.data`; see Note [Writes through .data]
    hidden_writes=None,       # where they were: a list of HiddenWrites
    _keeper=None,             # the outside array whose memory this is
    _export=None,             # weak reference to what our own exports stand on
    _pinned=False,            # the address was given out
    shared=None,              # (block, offset) where other processes see it: see Note [Shared storages]
    page_locked=False,        # it lies where a device copies from and to by itself, and stays there
    in_flight=None)           # what has to be waited for before it is written to: a copy of its contents is under way
