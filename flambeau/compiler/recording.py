"""A stretch of a program that is recorded to be run again: what calls that are compiled and CUDA graphs have in common.

A Recording is a trace: instructions over numbered inputs. It is not run before its end, and notes what a repetition has
to do besides: which storages its inputs came from, the checks of data that operations made at the call, and the random
numbers that were drawn. What else happens meanwhile, its observer is told; the two kinds of a Recording say what of
that forbids a repetition.
"""
import numpy as np

from ..base.observers import Observer
from ..base.spec import CPU
from ..tensor.tensor import Tensor
from ..trace import on_host
from ..trace.recording.instructions import needed_for
from ..trace.recording.record import Trace, _local
from ..trace.recording.update import update, with_part
from ..trace.value import Value
from .traced import plain


class Recording(Trace):
    """A trace that is not run before its end, and knows where everything in it came from."""

    __slots__ = ("read_from", "born", "draws", "checks", "reason")

    def __init__(self, like):
        super().__init__()
        self.special = like.special
        self.read_from = {}           # ready Value that was there before → the Storage that a repetition asks for it
        self.born = {}                # ready Value that was made meanwhile → True
        self.draws = []               # (draw, spec, Value)
        self.checks = []              # (operation, arguments of its check: Noted or lists of them, Specs, plain values)
        self.reason = None            # why it cannot be run again

    def is_current(self):
        """Whether this thread still records here, and it can still be run again."""
        return self.reason is None and _local.trace is self

    def run_others(self, value):
        """Run the traces of others that compute `value`. (Value.ready() would count as a look.)"""
        while (trace := value.trace) is not None and trace is not self:
            trace.run(value)

    def part_from_others(self, storage):
        """Give a Storage that shares its contents until one of the holders is written to contents of its own."""
        value = storage.value
        value = storage.value = Value.of(value.spec.device.backend.copied(value.array), value.spec)
        self.read_from[value] = storage

    # --- checks of data ----------------------------------------------------------------------------------------------

    def reader(self, op, names, args):
        """Note a check of data that `op` makes at the call; gives the function that reads its tensors."""
        if self.reason is None:
            given = []
            for name in names:
                a = args[op.arg_names.index(name.removesuffix("_spec"))]
                given.append(getattr(a, "_spec", None) if name.endswith("_spec") else
                             [self.noted(b) for b in a] if isinstance(a, (tuple, list)) else self.noted(a))
            self.checks.append((op, given))
        return self.peek

    def noted(self, a):
        """What a check was given: a tensor as it is at that moment."""
        return Noted(a) if isinstance(a, Tensor) else plain(a)

    def peek(self, tensor):
        """The contents of a tensor, computed on the side where it is pending here."""
        found = on_host.known(tensor)
        if found is not None:
            return found
        value = tensor._storage.value
        if value.trace is self and self.reason is None:
            value = evaluate(self.code, self.values, [value.slot])[value.slot]
        return on_host.read(value, tensor._spec, tensor._offset, not tensor._storage.exported)

    def number(self, seen):
        """Let a Noted tensor say the slot of its contents; gives a Value that nothing else in here reads."""
        value, seen.value = seen.value, None
        is_new = value.trace is not self and value not in self.slots
        seen.slot = value.slot if value.trace is self else self._slot(value)
        return value if is_new else None


class RecordingObserver(Observer):
    """Tells a Recording what its own thread does besides recording."""

    def __init__(self, recording):
        self.recording = recording

    def made(self, value):
        if _local.trace is self.recording:
            self.recording.born[value] = True

    def drew(self, draw, spec, value):
        if _local.trace is self.recording:
            self.recording.draws.append((draw, spec, value))


class Noted:
    """A tensor as a check saw it: contents at that moment, spec, offset; then the slot of the contents."""

    __slots__ = ("value", "spec", "offset", "slot")

    def __init__(self, tensor):
        self.value, self.spec, self.offset, self.slot = tensor._storage.value, tensor._spec, tensor._offset, None


def noted_in(given):
    """What is Noted of the arguments of a check."""
    return [n for g in given for n in (g if g.__class__ is list else (g,)) if n.__class__ is Noted]


def evaluate(code, inputs, wanted):
    """{slot: Value} of the wanted slots, computed on the side, by the CPU; `inputs` has those of the inputs by slot.

    Contents that stand elsewhere are mostly known here: see Note [Checks without waiting] in trace/on_host.py.
    """
    made = {}
    with np.errstate(all="ignore"):
        for instruction in map(code.__getitem__, needed_for(wanted, code)[0]):
            entry, offsets = instruction.entry, instruction.offsets
            sources = [made[s] if s in made else inputs[s] for s in instruction.slots]
            arrays = [on_host.read(v, spec, offset)
                      for v, spec, offset in zip(sources, entry.input_specs, offsets, strict=False)]
            if entry.op is update:
                arrays = [with_part(CPU.backend, sources[0].bytes_on_host().copy(), entry.input_specs[0], offsets[0],
                                    arrays[1])]
            else:
                arrays = on_host.execute(entry, arrays, instruction.params)
            made.update((slot, Value.of(array, spec.on(CPU)))
                        for slot, array, spec in zip(instruction.results(), arrays, entry.outs, strict=True))
    return {slot: made[slot] for slot in wanted}
