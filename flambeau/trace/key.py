"""The key by which the plan of a trace is found: its instructions, without their numbers, and who holds what.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""
from ..base.counting import counts
from ..base.ownership import INPUT, RESULT
from .sole import owns_memory


def key_of(trace):
    """(the key, slots that somebody outside still holds, inputs that nobody else holds)."""
    code, values = trace.code, trace.values
    wanted, parts, held = [], [], counts(values)
    for entry, slots, offsets, _, first, _ in code:
        parts.append((entry, slots, offsets))
        if not entry.many:
            if held[first] > RESULT:
                wanted.append(first)
        else:
            for slot in range(first, first + len(entry.outs)):
                if held[slot] > RESULT:
                    wanted.append(slot)
    free, kinds = [], []
    for value, slot in trace.slots.items():
        kinds.append(value.spec)
        if held[slot] <= INPUT and owns_memory(value):
            free.append(slot)
    outside, alone = tuple(wanted), tuple(free)
    return (tuple(parts), tuple(kinds), outside, alone), outside, alone
