"""The head of a recording: what its checks of data look at, computed first, and whether they hold, in one native run.

A distribution wants to know that its logits are numbers, a gather that the positions found by an argmax exist. A replay
must know that before it draws a random number or writes over anything, since where a check refuses it has to leave all
as it was, for the ordinary call to say so. Computing the instructions up to there on the side would do them twice. So
they are cut off the recording and run by themselves; what the rest reads of them is handed on, and their last result
says whether all checks hold (`Op.holds`).

Where the answer is no, the checks are made as the call made them, and have the last word.
"""
from ..autograd.modes import modes
from ..base.spec import CPU
from ..tensor.tensor import Tensor
from ..trace.recording.instructions import Instruction, needed_for, slots_made
from ..trace.recording.record import Trace, current, set_current
from ..trace.value import Value
from .bound import HeadBase
from .rebuild import new_storage, new_tensor
from .recording import Noted, noted_in
from .replay import Runner
from .runtime import Checks

MAXIMUM_CHECKED_BYTES = 1 << 26           # of what checks look at: more is not put into a trace


class Head(HeadBase):
    """Instructions that run before the rest of a recording. Called with the Values of its inputs it gives those of what
    it `gives`, a list, or None where a check refuses. The caller puts that list back when done (`kept`), and if nothing
    else holds what is in it, the next call writes over it.

    `rest` are the instructions of the recording that are not in it, by their number; `reads` the slots of its inputs.
    """

    def __init__(self, diff, specs, checks, flag):
        trace = diff.trace
        made, inside = slots_made(trace.code), set(needed_for(slots_of(checks), trace.code)[0])
        code = [one for index, one in enumerate(trace.code) if index in inside]
        self.rest = [index for index in range(len(trace.code)) if index not in inside]
        read = {slot for index in self.rest for slot in trace.code[index].slots} | set(diff.needs)
        self.gives = [slot for slot in sorted(read) if made.get(slot) in inside]
        asked, given, answer = flag
        used = {slot for one in (*code, *asked) for slot in one.slots}
        self.reads = [slot for slot, _ in diff.read if slot in used]
        fixed = [(slot, value) for slot, value in diff.fixed if slot in used]
        self.fixed = tuple([value for _, value in fixed])
        self.runner = Runner(code + asked, specs + given, [*self.reads, *[slot for slot, _ in fixed]],
                             (*self.gives, answer), (), {})
        self.checks = Checks(checks, code, dict(fixed))
        self.kept, self.answers, self.positions = None, [], list(range(len(self.gives)))

    def holds(self, values):
        """Whether the checks hold after all, for the Values of what it `reads`."""
        return self.checks.hold(dict(zip(self.reads, values, strict=True)))


def head_of(diff, specs):
    """(the Head of a recording, or None; the checks that are left). There is one where a check that says how it `holds`
    looks at what the recording computes, on the CPU."""
    able = [(op, given) for op, given in diff.early if op.holds is not None]
    made = slots_made(diff.trace.code).keys()
    looked = slots_of(able)
    if made.isdisjoint(looked) or sum(specs[slot].nbytes for slot in looked) > MAXIMUM_CHECKED_BYTES \
            or any(one.entry.device is not CPU for one in diff.trace.code):
        return None, diff.early
    able, flag = recorded(able, specs)
    if made.isdisjoint(slots_of(able)):
        return None, diff.early
    return Head(diff, specs, able, flag), [one for one in diff.early if one not in able]


def recorded(checks, specs):
    """(Those of the checks that can be asked about in instructions, (instructions, specs of their results, slot of the
    one that says whether all hold).) New slots follow those of `specs`."""
    before, trace = current(), Trace()
    grad, modes.grad = modes.grad, False
    with trace.lock:                                         # another thread may run every trace there is
        set_current(trace)
        try:
            return _recorded(trace, checks, specs)           # its loops are not in the `try`: see test_interrupts.py
        finally:
            trace.clear()                                    # there is nothing to compute it from
            set_current(before)
            modes.grad = grad


def _recorded(trace, checks, specs):
    """The same, while `trace` is the current one."""
    cells, able, answer = {}, [], None

    def stand_in(seen):
        """A tensor that looks at a slot, without contents."""
        if seen.__class__ is not Noted:
            return seen
        if seen.slot not in cells:
            spec = specs[seen.slot]
            cells[seen.slot] = new_storage(Value.of(None, spec), (spec.nbytes, spec.device, 0, False))
        return new_tensor(cells[seen.slot], (Tensor, seen.spec, seen.offset, None, None, False, None))

    for op, given in checks:
        found = op.holds(*[[stand_in(n) for n in g] if g.__class__ is list else stand_in(g) for g in given])
        if found is not None:
            able.append((op, given))
            answer = found if answer is None else answer & found
    slots = {trace.slots[cell.value]: slot for slot, cell in cells.items() if cell.value in trace.slots}
    code, last = trace.code, None if answer is None else answer._storage.value.slot
    new = [value.spec for slot, value in enumerate(trace.values) if slot not in slots]
    fresh = iter(range(len(specs), len(specs) + len(new)))
    slots |= {slot: next(fresh) for slot in range(len(trace.values)) if slot not in slots}
    code = [Instruction.of(one.entry, tuple([slots[slot] for slot in one.slots]), one.offsets, one.params,
                           slots[one.first], one.site) for one in code]
    return able, (code, new, slots.get(last))


def slots_of(checks):
    """The slots that checks look at."""
    return {n.slot for _, given in checks for n in noted_in(given)}
