"""Instructions, and questions about lists of them: what makes a slot, and what it comes from.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""


class Instruction:
    """A recorded call that waits to run.

    `entry` is what is called. It reads the `slots` of its trace, each from the element on that `offsets` says, and the
    plain parameters `params`. Its results have the slots from `first` on, and `site` is the line that recorded it.
    An instruction is never changed, another one takes its place; and it equals none but itself.
    """

    __slots__ = ("entry", "slots", "offsets", "params", "first", "site")

    # No __init__, as with a Value: the recorder makes one at every call.

    @staticmethod
    def of(entry, slots, offsets, params, first, site):
        """An instruction of these; the recorder fills in an empty one itself."""
        self = Instruction()
        self.entry = entry
        self.slots = slots
        self.offsets = offsets
        self.params = params
        self.first = first
        self.site = site
        return self

    def results(self):
        """The slots of its results."""
        return range(self.first, self.first + len(self.entry.outs))


def slots_made(code):
    """{slot: index of the instruction that makes it}."""
    return {slot: index for index, instruction in enumerate(code) for slot in instruction.results()}


def needed_for(wanted, code):
    """(indices of the instructions that the wanted slots come from, in order; these slots, and all that are read)."""
    live, needed = set(wanted), []
    for index in range(len(code) - 1, -1, -1):
        instruction = code[index]
        if instruction.first in live or instruction.entry.many and any(s in live for s in instruction.results()):
            needed.append(index)
            live.update(instruction.slots)
    return needed[::-1], live
