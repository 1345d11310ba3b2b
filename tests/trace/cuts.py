"""Traces cut into segments anywhere, so that what rarely happens happens at every run."""
from contextlib import contextmanager
from itertools import count

import pytest

from flambeau.trace.planning import plan, segments
from flambeau.trace.recording.record import current


@contextmanager
def cut_everywhere(lengths=(1, 3, 2, 5)):
    """While it lasts, no trace has a plan, and segments of these lengths in turn have one at once; memory that nobody
    else holds is written over, however little it is. Gives a list of the segments that have run."""
    ran = []

    def cut(trace, sightings):
        found, start, end = [], 0, len(trace.code)
        for turn in count():
            stop = min(start + lengths[turn % len(lengths)], end)
            if stop > start and (start, stop) != (0, end) \
                    and not any(instruction.entry.op.effect for instruction in trace.code[start:stop]):
                found.append((start, stop))
            start = stop
            if start == end:
                return found

    class Seen(segments.Segment):
        def clear(self):
            ran.append(len(self.code))
            super().clear()

    def is_segment(trace, seen, sightings):
        return isinstance(trace, Seen)

    current().run()
    plan._plans.clear()
    plan._sightings.clear()
    patch = pytest.MonkeyPatch()
    for module, name, value in ((plan, "segments_of", cut), (plan, "worth_a_plan", is_segment), (plan, "Segment", Seen),
                                (segments, "FREE_BYTES", 0)):
        assert hasattr(module, name)
        patch.setattr(module, name, value)
    try:
        yield ran
        current().run()
    finally:
        patch.undo()
        plan._plans.clear()
        plan._sightings.clear()
