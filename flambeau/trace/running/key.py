"""The key by which the plan of a trace is found: its instructions, without their numbers, and who holds what.

The plan of a single instruction is found by its Entry, where it is like the last one (`cached_plan`).

Note [Moving offsets]: a loop that takes a minibatch as `x[row:row + 64]`, or masks `x[:, start:start + 8]`, reads and
writes at another place in every step. So the place is no part of the key: it is a number of the run, as the learning
rate is. In the key stands whether it is the beginning, and which operands begin at the same place, by a negative number
for each place. Who plans takes such an offset as anywhere (MovingOffset in planning/moving.py), and every run fills in
where it is (bound.py). On other devices that holds for inputs that stay as they are, since tasks there may be joined by
where their memory lies.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""
from ...base.counting import count_in, counts
from ...base.ownership import INPUT, RESULT
from ...base.spec import CPU
from ..exclusive import owns_memory
from ..recording.update import update

MAX_SINGLE_RUNS = 4096            # that are remembered
_remembered: list = []            # the `singles` of entries
body_programs: dict = {}          # Entry → what runs its body alone, None where it has none: see interpret.py


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


class SingleRun:
    """How a trace of one instruction ran: the offsets of what it read, as they stand in a key, the specs of its inputs,
    the plan. Others held all inputs, and the result. The Entry has it by the input slots (`x * x` reads one, `x * y`
    two)."""

    __slots__ = ("offsets", "input_specs", "plan")


def cached_plan(trace):
    """The plan of a trace of one instruction, if it is like the one that its entry remembers; else None."""
    instruction = trace.code[0]
    entry, slots, first = instruction.entry, instruction.slots, instruction.first
    single = entry.singles.get(slots) if entry.singles is not None else None
    values = trace.values
    if single is None or len(single.input_specs) != first or len(trace.slots) != first or len(values) != first + 1 \
            or count_in(values, first) <= RESULT:
        return None
    offsets = instruction.offsets
    if offsets is not entry.zeros:
        offsets = moving_offsets(entry, slots, offsets, None, {})
    if offsets != single.offsets:
        return None
    for slot in range(first):
        if count_in(values, slot) <= INPUT:       # asked before a variable holds it
            return None
        value = values[slot]
        if value.spec is not single.input_specs[slot]:
            return None
    return single.plan


def remember(trace, plan, found):
    """Have `cached_plan` find `plan`, if the trace is of the kind that it knows; `found`: what `key_of` says of it."""
    instruction = trace.code[0]
    entry, first = instruction.entry, instruction.first
    key, wanted, free = found
    if entry.many or free or wanted != (first,) or list(trace.slots.values()) != list(range(first)):
        return
    if entry.singles is None:
        entry.singles = {}
    if not entry.singles:
        if len(_remembered) >= MAX_SINGLE_RUNS:
            forget_single_runs()
        _remembered.append(entry.singles)
    single = SingleRun()
    single.offsets, single.input_specs, single.plan = key[0][0][2], key[1], plan
    entry.singles[instruction.slots] = single     # as a whole: see Note [First use] in base/once.py


def forget_single_runs():
    """Forget how single instructions ran: their plans are no longer to be used."""
    for singles in _remembered:
        singles.clear()
    _remembered.clear()
