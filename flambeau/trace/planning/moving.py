"""Moving reads as inputs of their own: see Note [Moving reads] in running/key.py.

What reads an input from a place that may be another one next time gets a slot of its own here, in which it reads from
the beginning. So nothing that plans knows of it; only who fills in addresses asks where such a slot stands now.
"""
from typing import NamedTuple

from ..recording.instructions import Instruction


class MovingRead(NamedTuple):
    """Where a slot of its own comes from: slot `slot` of the trace, read from where operand `operand` of instruction
    `index` begins; an element of that has `itemsize` bytes."""

    slot: int
    index: int
    operand: int
    itemsize: int

    def offset(self, code):
        """The element of the slot's memory at which it begins now."""
        return code[self.index].offsets[self.operand]


def with_own_slots(code, specs, parts):
    """(instructions, specs of their slots, {own slot: MovingRead}) for `code`, whose `parts` of a key these are."""
    moving: dict = {}
    if not any(place < 0 for _, _, offsets in parts for place in offsets):
        return code, specs, moving
    code, specs, own = list(code), list(specs), {}
    for index, (entry, slots, offsets) in enumerate(parts):
        for operand, place in enumerate(offsets):
            if place < 0 and place not in own:
                own[place], itemsize = len(specs), entry.input_specs[operand].dtype.itemsize
                moving[len(specs)] = MovingRead(slots[operand], index, operand, itemsize)
                specs.append(specs[slots[operand]])
        if any(place < 0 for place in offsets):
            one = code[index]
            reads = tuple([own.get(place, slot) for slot, place in zip(slots, offsets, strict=True)])
            code[index] = Instruction.of(entry, reads, tuple([max(place, 0) for place in offsets]), one.params,
                                         one.first, one.site)
    return code, specs, moving
