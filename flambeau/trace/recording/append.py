"""Append an instruction to a trace: what every call that is recorded comes to.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""
from ...base import observers, settings
from ...base.core import COMPILED
from . import new

HELD_INPUT_WEIGHT = 8             # weight of an input byte that only the trace keeps alive: results may never be
limits = vars(settings)
tell_recorded = None              # a copy of `observers.recorded`: saves one attribute lookup per recorded call


class TraceBase:
    """The part of a Trace (record.py) that is written at every call."""

    __slots__ = ("code", "values", "last", "slots", "bytes", "held", "busy", "sealed", "site", "special", "own_append",
                 "tape")

    def append(self, entry, inputs, params, site):
        """Record one instruction of line `site` over the tensors `inputs`; gives the pending Value of its result, or
        several."""
        if self.busy:
            return self._append_beside(entry, inputs, params, site)
        try:
            self.busy = True                      # see Note [Whose turn]
            if self.sealed:
                return self._append_later(entry, inputs, params, site)
            code = self.code
            values = self.values
            last = self.last
            ready = self.slots
            index = len(code)
            offsets = entry.zeros                 # most views start at their storage's beginning
            slots = None
            if len(inputs) == 2:                  # what `_read` does, without its loop, for inputs that are known here
                one, two = inputs
                if COMPILED and not self.own_append:
                    slot = TraceBase._slot(self, one._storage.value)
                    more = TraceBase._slot(self, two._storage.value)
                else:                             # interpreted, to call `_slot` takes as long as all of this
                    value = one._storage.value
                    slot = value.slot if value.trace is self else ready.get(value, -1)
                    value = two._storage.value
                    more = value.slot if value.trace is self else ready.get(value, -1)
                if slot >= 0 and more >= 0:
                    last[slot] = last[more] = index
                    slots = (slot, more)
                    if one._offset or two._offset:
                        offsets = (one._offset, two._offset)
            if slots is None:
                slots, offsets = self._read(inputs, index, offsets)
            if slots is not None:
                first = len(values)
                instruction = new.instruction()   # first of all: no interrupt comes between the lists
                instruction.entry = entry
                instruction.slots = slots
                instruction.offsets = offsets
                instruction.params = params
                instruction.first = first
                instruction.site = site
                if not entry.many:
                    made = new.value()
                    made.trace = self
                    made.slot = first
                    made.spec = entry.outs[0]
                    values.append(made)
                    last.append(index)
                    outs = made
                else:
                    outs = []
                    for spec in entry.outs:
                        made = new.value()
                        made.trace = self
                        made.slot = len(values)
                        made.spec = spec
                        values.append(made)
                        last.append(index)
                        outs.append(made)
                code.append(instruction)
                self.bytes = total = self.bytes + entry.weight
                if total < limits["trace_bytes"] and index < limits["trace_instructions"] and tell_recorded is None:
                    return outs
        except BaseException:
            self._mend()
            raise
        finally:
            self.busy = False
        if slots is None:
            for tensor in inputs:                 # pending in another thread's trace: run that first
                value = tensor._storage.value
                while (other := value.trace) is not None and other is not self:
                    other.run(value)              # not `ready`, which is a look
            return self.append(entry, inputs, params, site)
        if (tell := tell_recorded) is not None:
            tell(instruction)
        if total >= limits["trace_bytes"] or index >= limits["trace_instructions"]:
            self.run()
        return outs

    def _read(self, inputs, index, offsets):
        """The slots that instruction `index` reads (None if one is pending elsewhere), and the offsets of inputs."""
        slots = []
        for tensor in inputs:
            value = tensor._storage.value
            slot = value.slot if value.trace is self else self._slot(value)
            if slot < 0:
                return None, offsets
            self.last[slot] = index
            slots.append(slot)
            if tensor._offset:
                offsets = tuple([t._offset for t in inputs])
        return tuple(slots), offsets

    def _slot(self, value):
        """The slot of a Value, a new one of one that is ready; -1 if it is pending elsewhere, and must be run there
        first."""
        if value.trace is self:
            return value.slot
        slot = self.slots.get(value)
        if slot is None:
            if value.trace is not None:
                return -1
            slot = self.slots[value] = len(self.values)
            self.values.append(value)
            self.last.append(0)
            self.held += value.spec.weight
            if 2 * HELD_INPUT_WEIGHT * self.held >= limits["trace_bytes"]:
                self._weigh()
        return slot


def _observe():
    global tell_recorded
    tell_recorded = observers.recorded


observers.on_change.append(_observe)
