"""A HeldRecording is run once more, one instruction at a time: to find out afterwards what went wrong.

Values are immutable, so a list of instructions and the Values that it reads from outside are all that is needed, and
to hold them is to take two references. A Value that is held is not written over: where a step replaces parameters
their old contents stay until the recording is dropped, in memory of their own.
"""
import numpy as np

from ..recording.record import execute
from ..recording.update import update, with_part
from ..value import Value
from . import effects

UNWRITTEN = ("_empty", "empty")       # their results have no contents


def instructions_of(recording):
    """The instructions of a HeldRecording."""
    return recording.code[:recording.count]


def rerun(recording, until=None):
    """(index, instruction, {slot: Value}) after each instruction, up to and with the one of index `until`.

    The table has what was read from outside, and the results that a later instruction reads. It ends before an
    instruction that cannot be repeated: one with an effect.
    """
    code = instructions_of(recording)[:until + 1 if until is not None else None]
    values, last = {slot: value for value, slot in recording.inputs.items()}, {}
    for index, instruction in enumerate(code):
        last.update(dict.fromkeys(instruction.slots, index))
    for index, instruction in enumerate(code):
        entry, slots, offsets = instruction.entry, instruction.slots, instruction.offsets
        if entry.op.effect or entry.__class__ is effects.Lost or any(slot not in values for slot in slots):
            return
        with np.errstate(all="ignore"):
            arrays = [values[slot].look(spec, offset)
                      for slot, spec, offset in zip(slots, entry.input_specs, offsets, strict=False)]
            if entry.op is update:
                backend = entry.device.backend
                made = [with_part(backend, backend.copied(values[slots[0]].memory), entry.input_specs[0], offsets[0],
                                  arrays[1])]
            else:
                made = execute(entry, arrays, instruction.params)
        values.update({slot: Value.of(array, spec)
                       for slot, array, spec in zip(instruction.results(), made, entry.outs, strict=True)})
        yield index, instruction, values
        for slot in slots:
            if last[slot] == index and until is None:
                del values[slot]
                last[slot] = None
