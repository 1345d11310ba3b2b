"""Segments: the parts of a trace that have come before, where the trace as a whole has not.

A program often records almost what it has recorded before: a decoder whose cache grows by a position at every step, a
loss over another number of boxes. Such a trace has no plan, and to plan it anew at every step, or to run it instruction
by instruction, takes several times what its work takes. So it is cut where its calls are new, and what lies between
runs by plans of its own, which are found and kept as those of whole traces are. Layers that are alike share one.

Which calls are new is counted: an Entry knows in how many traces without a plan it has come. It is settled when it has
come in other traces at least as often as this trace has come itself, so that what changes with the step, and comes back
when another sequence of the same length does, is not mistaken for what every step has.
"""
from ...base.ownership import INPUT, RESULT
from ..exclusive import owns_memory
from ..recording.instructions import Instruction
from ..running.key import set_moving

MIN_INSTRUCTIONS = 4          # of a segment: fewer are run one by one in less time than it takes to find a plan
FREE_BYTES = 1 << 16          # of an input that nothing else holds, for its memory to be written over


def segments_of(trace, sightings):
    """(start, end) of the segments of `trace`, which was run without a plan `sightings` times before."""
    settled, number, least = bytearray(len(trace.code)), trace.emptied, 2 * (sightings + 1)
    for index, instruction in enumerate(trace.code):
        entry = instruction.entry
        if entry.latest != number:
            entry.latest = number
            entry.traces += 1
        settled[index] = entry.traces >= least and not entry.op.effect
    return _runs(settled)


def _runs(settled):
    """(start, end) of the runs of true values that are long enough; none where all are: it would be the trace."""
    found, start = [], -1
    if all(settled):
        return found
    for index, is_settled in enumerate((*settled, False)):
        if is_settled and start < 0:
            start = index
        elif not is_settled:
            if 0 <= start <= index - MIN_INSTRUCTIONS:
                found.append((start, index))
            start = -1
    return found


class Segment:
    """The instructions from `start` to `end` of a trace that runs, as a trace of their own: what plan.py's `attempt`
    asks for. `code` has slots of its own, `recorded` are the same instructions as they were recorded.

    `needed`: for each instruction, whether its results are needed; `holders`: the `counts` of the trace's values; both
    from when its run began. Nothing has failed so far.
    """

    __slots__ = ("trace", "end", "code", "recorded", "values", "over", "bytes", "trains", "ran", "found")

    def __init__(self, trace, start, end, needed, holders):
        self.trace, self.end, self.trains, self.ran, self.bytes = trace, end, trace.trains, None, 0
        self.code, self.recorded, self.values, self.over = [], [], [], set()
        values, last, mine, position_of = trace.values, trace.last, self.values, {}
        parts, specs, shifted, inputs, wanted, free = [], [], [], set(), [], []
        for index in range(start, end):
            instruction = trace.code[index]
            slots, results = instruction.slots, instruction.results()
            self.over.update([slot for slot in (*slots, *results) if last[slot] < end])
            if not needed[index]:
                continue
            for slot in slots:
                if slot not in position_of:
                    value, position_of[slot] = values[slot], len(mine)
                    if last[slot] < end and value.spec.nbytes >= FREE_BYTES \
                            and holders[slot] <= (INPUT if value in trace.slots else RESULT) and owns_memory(value):
                        free.append(len(mine))
                    inputs.add(len(mine))
                    specs.append(value.spec)
                    mine.append(value)
            reads, made = tuple([position_of[slot] for slot in slots]), len(mine)
            for slot in results:
                if last[slot] >= end or holders[slot] > RESULT:
                    wanted.append(len(mine))
                position_of[slot] = len(mine)
                mine.append(values[slot])
            entry, offsets = instruction.entry, instruction.offsets
            self.recorded.append(instruction)
            self.code.append(Instruction.of(entry, reads, offsets, instruction.params, made, instruction.site))
            if offsets is not entry.zeros:
                shifted.append(len(parts))
            parts.append((entry, reads, offsets))
            self.bytes += entry.weight
        if shifted:
            set_moving(parts, shifted, inputs.difference(free))
        outside, alone = tuple(wanted), tuple(free)
        self.found = (tuple(parts), tuple(specs), outside, alone), outside, alone        # as `key_of` says it

    def clear(self):
        """It has run: note in the trace how far that has come, and drop what is no longer read."""
        trace = self.trace
        trace.unsettled = ([], self.end)
        for slot in self.over:
            trace.values[slot] = None
