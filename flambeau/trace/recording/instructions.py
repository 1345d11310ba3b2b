"""Questions about lists of instructions: what makes a slot, and what it comes from."""


def slots_made(code):
    """{slot: index of the instruction that makes it}."""
    return {slot: index for index, (entry, _, _, _, first, _) in enumerate(code)
            for slot in range(first, first + len(entry.outs))}


def needed_for(wanted, code):
    """(indices of the instructions that the wanted slots come from, in order; these slots, and all that are read)."""
    live, needed = set(wanted), []
    for index in range(len(code) - 1, -1, -1):
        entry, slots, _, _, first, _ = code[index]
        if first in live or entry.many and any(s in live for s in range(first, first + len(entry.outs))):
            needed.append(index)
            live.update(slots)
    return needed[::-1], live
