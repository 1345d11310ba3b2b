"""Offsets that are others at every run, in the instructions that a plan is made of: Note [Moving offsets] in key.py."""
from ..recording.instructions import Instruction


class MovingOffset:
    """Stands for the offset of operand `operand` of instruction `index`, which a run tells. It equals none but itself,
    and has no value to compute with: what is decided by where memory is read or written takes it as anywhere."""

    __slots__ = ("index", "operand")

    def __init__(self, index, operand):
        self.index, self.operand = index, operand

    def now(self, code):
        """The offset in these instructions, those of a run."""
        return code[self.index].offsets[self.operand]


def with_moving_offsets(code, parts):
    """The instructions `code`, with MovingOffsets where their `parts` of a key have negative numbers."""
    found, made = {}, code
    for index, (entry, slots, offsets) in enumerate(parts):
        if not any(number < 0 for number in offsets):
            continue
        for operand, number in enumerate(offsets):
            if number < 0 and number not in found:
                found[number] = MovingOffset(index, operand)
        made, one = list(code) if made is code else made, code[index]
        made[index] = Instruction.of(entry, slots, tuple([found.get(number, number) for number in offsets]),
                                     one.params, one.first, one.site)
    return made
