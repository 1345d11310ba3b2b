"""Record calls as instructions, and run them.

Each thread writes its own trace. An instruction names its inputs by slot; the trace's list of values is the only
thing that holds them, so what nobody else holds is known when the trace runs and need not be computed.
"""
import sys
import threading
import weakref

import numpy as np

from ..backends.backend import execute
from ..base import settings
from .value import Value

_refs = sys.getrefcount
_new = object.__new__
_traces = weakref.WeakSet()


class Trace:
    """A straight line of instructions waiting to run: (entry, input slots, offsets, parameters, first result slot)."""

    __slots__ = ("code", "values", "last", "slots", "bytes", "lock", "__weakref__")

    def __init__(self):
        self.lock = threading.RLock()
        self.clear()
        _traces.add(self)

    def clear(self):
        self.code = []        # instructions
        self.values = []      # slot → Value
        self.last = []        # slot → index of the last instruction that reads it
        self.slots = {}       # ready Value → slot
        self.bytes = 0        # what the results would allocate

    def append(self, entry, inputs, params):
        """Record one instruction over the tensors `inputs`; gives the pending result Values."""
        foreign = None
        with self.lock:
            code, values, last = self.code, self.values, self.last
            index = len(code)
            slots, offsets, outs = [], [], []
            for tensor in inputs:
                value = tensor.storage.value
                trace = value.trace
                if trace is self:
                    slot = value.slot
                elif trace is None:
                    slot = self.slots.get(value)
                    if slot is None:
                        slot = self.slots[value] = len(values)
                        values.append(value)
                        last.append(index)
                else:
                    foreign = value               # pending in another thread's trace: run that first, unlocked
                    break
                last[slot] = index
                slots.append(slot)
                offsets.append(tensor.offset)
            else:
                first = len(values)
                for spec in entry.outs:
                    made = _new(Value)
                    made.trace = self
                    made.slot = len(values)
                    made.spec = spec
                    values.append(made)
                    last.append(index)
                    outs.append(made)
                code.append((entry, slots, offsets, params, first))
                self.bytes += entry.nbytes
                if index < settings.trace_instructions and self.bytes < settings.trace_bytes:
                    return outs
        if foreign is not None:
            foreign.ready()
            return self.append(entry, inputs, params)
        self.run()
        return outs

    def wanted(self):
        """For each instruction, whether anybody outside, or a wanted later one, reads its results."""
        values, live = self.values, bytearray(len(self.values))
        wanted = [True] * len(self.code)
        for i in range(len(self.code) - 1, -1, -1):
            entry, slots, _, _, first = self.code[i]
            for slot in range(first, first + len(entry.outs)):
                if live[slot] or _refs(values[slot]) > 2:            # the list and the argument of getrefcount
                    for s in slots:
                        live[s] = 1
                    break
            else:
                wanted[i] = False
        return wanted

    def run(self):
        """Run all instructions in order and empty the trace. If one fails, those before it have run and stay run."""
        with self.lock:
            if not self.code:
                return
            code, values, last = self.code, self.values, self.last
            wanted = self.wanted()
            done = 0
            try:
                with np.errstate(all="ignore"):
                    for entry, slots, offsets, params, first in code:
                        if wanted[done]:
                            if entry.op is update:
                                outs = [self._update(entry, slots, offsets, done)]
                            else:
                                arrays = [values[s].look(k, o) for s, k, o in
                                          zip(slots, entry.kinds, offsets, strict=True)]
                                own = entry.op.overwrites and entry.kinds[0] is values[slots[0]].spec and not offsets[0] \
                                    and self._free(slots, done)
                                outs = execute(entry, arrays, params, own)
                                del arrays
                            for slot, array in enumerate(outs, first):
                                value = values[slot]
                                value.array = array
                                value._memory = None
                                value.trace = None
                            del outs
                        # From here on the instruction counts as run, even if an interrupt comes before the next.
                        index, done = done, done + 1
                        for slot in slots:
                            if last[slot] == index:
                                values[slot] = None
                        for slot in range(first, first + len(entry.outs)):
                            if last[slot] == index:
                                values[slot] = None
            except BaseException:
                self._keep_from(done)
                raise
            self.clear()

    def _keep_from(self, done):
        """After a failure: leave the instructions that have not run in the trace, so that nothing is lost."""
        self.code = self.code[done:]
        self.last = [at - done if at >= done else -1 for at in self.last]
        self.slots = {v: s for v, s in self.slots.items() if self.values[s] is not None}
        self.bytes = sum(entry.nbytes for entry, *_ in self.code)

    def _free(self, slots, index):
        """Whether nobody but instruction `index` reads its first input, now or later: its buffer may be written."""
        value = self.values[slots[0]]
        reads = 3 + (value in self.slots)              # the list, the local name, the argument; the slot table
        return self.last[slots[0]] == index and _refs(value) <= reads and slots[0] not in slots[1:] \
            and value.array.flags.writeable

    def _update(self, entry, slots, offsets, index):
        """Write a source into a view of the old value: in its own buffer when nobody needs the old one any more."""
        old, source = self.values[slots[0]], self.values[slots[1]]
        view, kind = entry.kinds
        incoming = source.look(kind, offsets[1])
        reads = 3 + (old in self.slots)                # the list, the local name, the argument; the slot table
        if self.last[slots[0]] == index and _refs(old) <= reads and old.array.flags.writeable:
            memory = old.memory
            if np.may_share_memory(memory, incoming):
                incoming = incoming.copy()
        else:
            memory = old.memory.copy()
        if view.numel:
            target = np.ndarray(view.shape, view.dtype.np, memory, offsets[0] * view.dtype.itemsize, view.np_strides)
            target[...] = incoming
        return memory

    def __str__(self):
        """The trace as lines a person can check by eye."""
        lines = []
        for entry, slots, offsets, params, first in self.code:
            reads = ", ".join(f"%{s}" + (f"+{o}" if o else "") for s, o in zip(slots, offsets, strict=True))
            gives = ", ".join(f"%{first + i}: {s}" for i, s in enumerate(entry.outs))
            extra = "".join(f", {p!r}" for p in params)
            lines.append(f"{gives} = {entry.op.__name__}({reads}{extra})")
        return "\n".join(lines)


class update:
    """The instruction of an in-place write into part of a storage; made by `write`, never called."""


class _UpdateEntry:
    op, casts, many, template, simple, param_at, wrap = update, None, False, (0, 1), True, (), None
    __slots__ = ("outs", "kinds", "nbytes")


class _Local(threading.local):
    def __init__(self):
        self.trace = Trace()


_local = _Local()


def current():
    """This thread's trace."""
    return _local.trace


def write_part(tensor, whole, source):
    """The Value of `tensor`'s storage (of spec `whole`) after the tensor `source` is written into its view."""
    entry = _UpdateEntry()
    entry.outs = (whole,)
    entry.kinds = (tensor.spec, source.spec)
    entry.nbytes = 0
    return current().append(entry, (tensor, source), ())[0]


def run_all():
    """Run every thread's trace: before memory is shared with the outside."""
    for trace in list(_traces):
        trace.run()
