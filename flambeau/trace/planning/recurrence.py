"""An operation repeated along sequences, with a state that is carried from one step to the next.

    state = first
    for rows in steps:                        # or from the last step to the first
        *state, *more = step(*(sequence[rows] for each sequence), *state, *fixed, *params)

In the graph that is one node, whatever the number of steps, and one step is planned by itself, once. The plan that
holds it runs the step's kernels again and again, over other addresses: no Python between two steps, nothing to put
together afterwards, and a sequence of another length takes nothing more to compile.
"""
from itertools import pairwise
from typing import Any, NamedTuple

from ...base.entry import Entry
from ...base.spec import spec as make_spec


class Recurrence(NamedTuple):
    """What is repeated. Its operands are the sequences, then the first states, then what is the same in every step."""

    step: Any                 # the operation; the new states come first in what it gives
    template: tuple           # for each of its arguments: the number of an operand, or None for none
    sequences: int            # how many operands are sequences,
    states: int               # and how many states
    params: tuple             # its last arguments, which are no tensors
    count: int                # of steps
    reverse: bool             # from the last to the first
    keeps: bool               # whether the states after all steps are results, or only those after the last one

    def steps(self):
        """(this step, the one before it or None), in the order in which they run."""
        order = range(self.count - 1, -1, -1) if self.reverse else range(self.count)
        return [(order[0], None), *[(now, before) for before, now in pairwise(order)]]

    def is_whole(self, result):
        """Whether a result, by its number, has rows for every step."""
        return self.keeps or result >= self.states

    def is_state(self, operand):
        """Whether an operand, by its number, is a state: it has to lie as the states lie that steps give, in order."""
        return self.sequences <= operand < self.sequences + self.states

    def entry(self, operands):
        """The Entry of one step, over operands of the whole as (dtype, shape, strides)."""
        rows = operands[self.sequences][1][0]
        specs = [make_spec(dtype, (rows, *shape[1:]) if number < self.sequences else shape,
                           None if self.is_state(number) else tuple(strides))
                 for number, (dtype, shape, strides) in enumerate(operands)]
        return step_entry(self.step, tuple(specs), self.template, self.params)


_entries: dict = {}           # (operation, kinds, template, params) → Entry


def step_entry(op, specs, template, params):
    """The Entry of a call of `op` over the specs `specs`."""
    key = op, specs, template, params
    entry = _entries.get(key)
    if entry is None:
        if len(_entries) > 10_000:
            _entries.clear()
        if not op.prepared:
            op.prepare()
        entry = Entry()
        entry.op, entry.input_specs, entry.zeros = op, specs, (0,) * len(specs)
        entry.template = (*template, *(None,) * len(params))
        entry.param_at = tuple(range(len(template), len(template) + len(params)))
        entry.casts = entry.rounded = entry.wrap = entry.compute = None
        made = op.meta(*[None if slot is None else specs[slot] for slot in template], *params)
        entry.many = made.__class__ is tuple
        entry.outs = made if entry.many else (made,)
        entry.nbytes = entry.weight = sum(spec.nbytes for spec in entry.outs)
        entry.simple, entry.device, entry.compiles = False, specs[0].device, True
        entry = _entries.setdefault(key, entry)           # as a whole: see Note [First use] in base/once.py
    return entry


class Repeated:
    """Where one step after the other finds its memory: `addresses` turns an address of the step's own table into one of
    the plan's. An address is (index of the table, offset in bytes).

    `bases` are those of the operands and the results, and `room` that of working memory. A state that is not kept
    stands by turns in one of two rooms behind the step's own working memory, and in the end where the result is.
    """

    def __init__(self, walk, draft, entry, operands):
        self.walk = walk
        seen = zip(entry.input_specs, operands, strict=True)
        self.strides = [spec.shape[0] * strides[0] * dtype.itemsize if number < walk.sequences else 0
                        for number, (spec, (dtype, _, strides)) in enumerate(seen)]
        self.nbytes = [out.nbytes for out in entry.outs]
        self.source = {}          # index of the step's table → its buffer; None: working memory
        for buffer in draft.buffers.all:
            self.source[buffer.index] = buffer if buffer.kind in ("input", "result") else None
        working = sum(nbytes for _, nbytes, _ in draft.buffers.blocks)
        self.rooms, self.room_bytes = [], _aligned(working)
        for nbytes in self.nbytes[:walk.states]:
            self.rooms.append(self.room_bytes)
            if not walk.keeps:
                self.room_bytes += 2 * _aligned(nbytes)
        self.operands = len(operands)

    def result_at(self, bases, room, result, turn, step):
        """The address of a result of one step, which is number `turn` in the order in which they run."""
        walk = self.walk
        index, offset = bases[self.operands + result]
        if walk.is_whole(result):
            return index, offset + step * self.nbytes[result]
        if turn == walk.count - 1:
            return index, offset
        index, offset = room
        return index, offset + self.rooms[result] + turn % 2 * _aligned(self.nbytes[result])

    def addresses(self, given, bases, room, turn, step, before):
        """The addresses `given`, of the step's own table, in the plan's table."""
        walk, found = self.walk, []
        for index, offset in given:
            buffer = self.source[index]
            if buffer is None:
                at = room
            elif buffer.kind == "result":
                at = self.result_at(bases, room, buffer.slot - self.operands, turn, step)
            elif before is not None and walk.is_state(buffer.slot):
                at = self.result_at(bases, room, buffer.slot - walk.sequences, turn - 1, before)
            else:
                at = bases[buffer.slot][0], bases[buffer.slot][1] + step * self.strides[buffer.slot]
            found.append((at[0], at[1] + offset))
        return found


def shape_of_result(walk, number, spec):
    """The shape of a result of the whole, of which one step gives `spec`."""
    return (walk.count * spec.shape[0], *spec.shape[1:]) if walk.is_whole(number) else spec.shape


def _aligned(nbytes):
    return nbytes + 63 & ~63

