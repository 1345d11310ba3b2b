"""Values and storages: immutable contents, and the mutable cells that hold them.

An in-place write makes a new Value and puts it in the cell; whoever read the old Value still holds it, so the
recording needs no analysis of aliases. Two storages may hold one Value: copying is free until somebody writes.

Note [Exported storages]: once NumPy (or DLPack) holds the memory, Values of that storage are no longer immutable.
Every operation that reads or writes it runs at the call and writes in place, so that both sides see the same
bytes at the same moment. It ends when the last outside array is gone.
"""
import ctypes
import weakref
import zlib

import numpy as np

from ..base import dtypes
from ..base.ownership import outside_holds_keeper, shares_value
from ..base.spec import spec as make_spec

watching = None               # told who looks at contents and who changes them, while a call is recorded to be replayed


class Value:
    """Contents: ready (an array laid out as `spec`) or pending (slot `slot` of `trace`)."""

    __slots__ = ("trace", "slot", "array", "spec", "_memory", "_address")

    # No __init__: the recorder makes one for every result, and an empty object filled in costs a quarter of a call.

    @staticmethod
    def of(array, spec):
        """A ready Value."""
        self = Value()
        self.trace = None
        self.array = array
        self.spec = spec
        self._memory = None
        return self

    def ready(self):
        """Run what is pending, so that `array` is there."""
        if watching is not None:
            watching.looked(self)
        while (trace := self.trace) is not None:
            trace.run(self)
        return self

    def address(self):
        """Where the array starts in memory."""
        try:
            return self._address
        except AttributeError:
            self._address = found = self.array.__array_interface__["data"][0]
            return found

    @property
    def memory(self):
        """The bytes behind the array, in memory order."""
        if self._memory is None:
            array = self.array
            if not array.flags.c_contiguous:
                order = sorted(range(array.ndim), key=lambda d: -array.strides[d])
                array = array.transpose(order)
            self._memory = array.reshape(-1).view(np.uint8)
        return self._memory

    def look(self, spec, offset):
        """The array that a tensor of `spec` starting `offset` elements in sees."""
        if spec is self.spec and offset == 0:
            return self.array
        if spec.numel == 0:
            return np.empty(spec.shape, spec.dtype.np)
        return np.ndarray(spec.shape, spec.dtype.np, self.memory, offset * spec.dtype.itemsize, spec.np_strides)


class Storage:
    """A mutable cell: the current Value, and a version that every in-place write raises and all views share."""

    version = 0
    writer = None             # (site, name of the operation) of the last in-place write
    readonly = False
    exported = False          # outside arrays may look at this memory; see Note [Exported storages]
    inference = False
    saved_at = -1             # the version that autograd last kept for a backward
    print_at = None           # (version, checksum) of exported memory when autograd kept it
    _keeper = None            # the outside array whose memory this is
    _export = None            # weak reference to what our own exports stand on
    _pinned = False           # somebody knows the address

    @staticmethod
    def of(value, nbytes, device):
        """A new cell that holds `value`; the recorder fills in an empty one itself, as with a Value."""
        self = Storage()
        self.value = value
        self.nbytes = nbytes
        self.device = device
        self.version = 0
        self.exported = self.inference = False
        self.print_at = None
        return self

    def pin(self):
        """Keep the memory where it is from now on: its address was asked for."""
        self._own_memory()
        self.exported = self._pinned = True

    def adopt(self, array):
        """Mark the memory as belonging to `array`, which others may hold too."""
        self._keeper = array
        self.exported = True
        self.readonly = not array.flags.writeable

    def export(self, spec, offset):
        """An array over this storage's memory for the outside, and mark the storage exported.

        The array stands on an object of its own, so that we can see when the last outside array is gone.
        """
        memory = self._own_memory()
        if self.saved_at == self.version and not self.has_outside_arrays():
            self.print_at = (self.version, zlib.crc32(memory))       # a backward waits for these bytes as they are now
        base = self._export() if self._export is not None else None
        if base is None and memory.size and memory.flags.writeable and not self.readonly:
            base = (ctypes.c_char * memory.size).from_buffer(memory)
            self._export = weakref.ref(base)
        self.exported = True
        if spec.numel == 0 or base is None:
            out = self.value.look(spec, offset).view()
            out.flags.writeable = not self.readonly
            return out
        flat = np.frombuffer(base, np.uint8)
        return np.ndarray(spec.shape, spec.dtype.np, flat, offset * spec.dtype.itemsize, spec.np_strides)

    def _own_memory(self):
        """The bytes of this storage, parted from other storages that may hold the same Value."""
        self.value.ready()
        if not self.exported and shares_value(self):
            memory = self.value.memory.copy()
            self.value = Value.of(memory, make_spec(dtypes.uint8, (memory.size,)))
        return self.value.memory

    def still_exported(self):
        """Whether somebody outside still holds the memory; forgets it when not."""
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
            return True                   # one that looks at somebody else's memory does not say who else looks at it
        del keeper
        return outside_holds_keeper(self)
