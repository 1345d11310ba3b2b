"""The key by which the plan of a trace is found: its instructions, without their numbers, and who holds what.

Note [Moving offsets]: a loop that takes a minibatch as `x[row:row + 64]`, or masks `x[:, start:start + 8]`, reads and
writes at another place in every step. So the place is no part of the key: it is a number of the run, as the learning
rate is. In the key stands whether it is the beginning, and which operands begin at the same place, by a negative number
for each place. Who plans takes such an offset as anywhere (MovingOffset in planning/moving.py), and every run fills in
where it is (bound.py). On other devices that holds for inputs that stay as they are, since tasks there may be joined by
where their memory lies.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""
from ...base.counting import counts
from ...base.ownership import INPUT, RESULT
from ...base.spec import CPU
from ..exclusive import owns_memory
from ..recording.update import update


def key_of(trace):
    """(the key, slots that are still held outside, inputs that nothing else holds)."""
    code, values = trace.code, trace.values
    wanted, parts, shifted, holders = [], [], [], counts(values)
    for instruction in code:
        entry, first, offsets = instruction.entry, instruction.first, instruction.offsets
        if offsets is not entry.zeros:
            shifted.append(len(parts))
        parts.append((entry, instruction.slots, offsets))
        if not entry.many:
            if holders[first] > RESULT:
                wanted.append(first)
        else:
            for slot in range(first, first + len(entry.outs)):
                if holders[slot] > RESULT:
                    wanted.append(slot)
    free, specs = [], []
    for value, slot in trace.slots.items():
        specs.append(value.spec)
        if holders[slot] <= INPUT and owns_memory(value):
            free.append(slot)
    if shifted:
        set_moving(parts, shifted, set(trace.slots.values()).difference(free))
    outside, alone = tuple(wanted), tuple(free)
    return (tuple(parts), tuple(specs), outside, alone), outside, alone


def set_moving(parts, shifted, unchanged):
    """Bring the offsets in some of the `parts` of a key, those at `shifted`, to the form of Note [Moving offsets].
    `unchanged`: the slots of inputs that stay as they are."""
    places = {}
    for at in shifted:
        entry, slots, offsets = parts[at]
        parts[at] = (entry, slots, moving_offsets(entry, slots, offsets, unchanged, places))


def moving_offsets(entry, slots, offsets, unchanged, places):
    """The `offsets` of an instruction as they stand in a key. `places`: {(slot, offset, spec): number} so far."""
    if entry.op is update and slots[0] == slots[1]:           # whether they overlap decides how it is done
        return offsets
    found, at, specs = [], 0, entry.input_specs
    for offset in offsets:
        slot = slots[at]
        if offset and (specs[at].device is CPU or (at or entry.op is not update)
                       and (unchanged is None or slot in unchanged) and specs[at].device.backend.adds_to_addresses):
            place = (slot, offset, specs[at])
            number = places.get(place)
            if number is None:
                number = places[place] = -1 - len(places)
            found.append(number)
        else:
            found.append(offset)
        at += 1
    return tuple(found)
