"""From what a TimeRecorder has noted to a Profile: which span lies in which, and whose work each step did.

Everything is found by time. The spans of a thread are gone through in the order of their starts, with a stack of those
that are open; the moments at which instructions were recorded and nodes made go along, and find the stack as it was.
"""
from bisect import bisect_right

from ..base.errors import line_of
from ..base.spec import CPU
from ..compat._library.called import operator_name
from ..trace.planning.steps import TransferStep
from .data import Profile
from .model import MemoryChange, Share, Span, StepTime
from .work import bytes_of, flops_of, weight_of

WORDS_IN_NAME = 8


def built(recorder, end):
    """The Profile of what `recorder` has noted until `end`."""
    spans = _spans(recorder, end)
    nodes = [(time, thread, order) for order, (time, thread) in recorder.node_times.items()]
    moments = [(time, thread, index) for index, (_, time, thread) in enumerate(recorder.instructions)]
    freed = [(time, thread, at) for at, (time, _, way, thread) in enumerate(recorder.memory)]
    found = _nested(spans, {"node": nodes, "instruction": moments, "memory": freed})
    profile = Profile(recorder.began, end, recorder.thread, spans, threads=dict(recorder.threads))
    contexts = _Contexts(spans, {order: inside for (_, _, order), inside in zip(nodes, found["node"], strict=True)})
    makers = {id(one): _Maker(one, inside) for (one, _, _), inside in
              zip(recorder.instructions, found["instruction"], strict=True)}
    runs = _Runs(spans)
    profile.steps = [_step(run, thread, makers, contexts, runs.at(thread, run.start))
                     for run, thread in recorder.ran_steps if run.start >= recorder.began]
    _put_inside(profile)
    for index, span in enumerate(spans):
        module, node = contexts.of(index)
        span.module, span.backward = module, span.backward or node is not None
        if node is not None and span is not node and node.line is not None:
            span.line = node.line
    for span in spans:
        if span.backward and span.line is not None:
            span.line = f"{span.line} (backward)"
    _account_memory(recorder, profile, makers, found["memory"])
    return profile


def _spans(recorder, end):
    """All spans, from when the profile began, in the order of their starts by thread."""
    found = list(recorder.spans)
    for name, start, stop, thread, site, shapes, stack, flops in recorder.calls:
        shapes_and_dtypes = shapes or ((), ())
        found.append(Span("operation", name, start, stop, thread, line=line_of(site), shapes=list(shapes_and_dtypes[0]),
                          dtypes=list(shapes_and_dtypes[1]), stack=stack, flops=flops))
    for thread, open_spans in recorder.open.items():         # what goes on when the profile ends
        found += [Span(category, name, start, end, thread, line=line_of(site), module=module)
                  for category, name, start, module, site in open_spans]
    for span in found:
        span.start = max(span.start, recorder.began)
    found = [span for span in found if span.end >= span.start and span.end > recorder.began]
    # Of two with the same times, the one that was told first is the outer one: nodes are told so.
    order = sorted(range(len(found)), key=lambda i: (found[i].thread, found[i].start, -found[i].end, i))
    return [found[i] for i in order]


def _nested(spans, moments):
    """Set the parents of spans, and leave out those that only repeat their parent; {category: [span that was innermost
    at each moment, or None]}."""
    found = {category: [None] * len(times) for category, times in moments.items()}
    events = [(span.thread, span.start, 0, -span.end, index, "") for index, span in enumerate(spans)]
    events += [(thread, time, 1, 0, index, category) for category, times in moments.items()
               for index, (time, thread, _) in enumerate(times)]
    events.sort(key=lambda event: event[:3])
    stack: list = []
    last, dropped = None, {}
    for thread, time, is_moment, _, index, category in events:
        if thread != last:
            stack, last = [], thread
        until = time if is_moment else spans[index].end
        while stack and (spans[stack[-1]].end < until or not is_moment and spans[stack[-1]].end <= time):
            stack.pop()
        around = stack[-1] if stack else None
        if is_moment:
            found[category][index] = around
        elif around is not None and spans[index].kind == spans[around].kind == "operation" and \
                spans[index].name == spans[around].name:
            dropped[index] = around                          # `sum` calls `_sum`: one operation in two parts
        else:
            spans[index].parent = around
            stack.append(index)
    _drop(spans, found, dropped)
    return found


def _drop(spans, found, dropped):
    """Take the spans `dropped` (index → the one that stands for it) out of the list, and number the others anew."""
    if not dropped:
        return
    new_index, kept = {None: None}, []
    for index, span in enumerate(spans):
        if index not in dropped:
            new_index[index] = len(kept)
            kept.append(span)
        else:
            spans[dropped[index]].flops = max(spans[dropped[index]].flops, span.flops)
    for index, span in enumerate(kept):
        kept[index].parent = new_index[span.parent]
    spans[:] = kept
    for category, around in found.items():
        found[category] = [new_index[one] for one in around]


class _Contexts:
    """For a span: in which module it was, in which node of a backward, and for which line."""

    def __init__(self, spans, made_in):
        self.spans, self.made_in, self._known = spans, made_in, {None: (None, None)}

    def of(self, index):
        """(module, the span of a node or None) around a span."""
        way = []
        while index not in self._known:
            way.append(index)
            index = self.spans[index].parent
        module, node = self._known[index]
        for one in reversed(way):
            span = self.spans[one]
            if span.kind == "module":
                module = span.module
            elif span.kind == "node":
                node = span
                inside = self.made_in.get(span.order)        # the module of the forward
                module = self.of(inside)[0] if inside is not None and inside != one else module
            self._known[one] = module, node
        return module, node


class _Maker:
    """The span that recorded an instruction, and the run that computed it; others are replays of a compiled function,
    whose calls were not seen."""

    __slots__ = ("instruction", "inside", "run")

    def __init__(self, instruction, inside):
        self.instruction, self.inside, self.run = instruction, inside, None


class _Runs:
    """Which run a moment was in."""

    def __init__(self, spans):
        self.starts: dict = {}
        for span in spans:
            if span.kind == "run":
                self.starts.setdefault(span.thread, []).append(span.start)

    def at(self, thread, time):
        """A number for the run that a thread was in."""
        return thread, bisect_right(self.starts.get(thread, ()), time)


def _step(run, thread, makers, contexts, number):
    """A step that was run in the run `number`, with the shares of its operations."""
    step, shares = run.step, []
    weights = [weight_of(one.entry) for one in run.instructions]
    total = sum(weights) or 1
    for instruction, weight in zip(run.instructions, weights, strict=True):
        maker, inside = makers.get(id(instruction)), None
        if maker is not None and maker.instruction is instruction:
            maker.run, inside = maker.run or number, maker.inside
        module, node = contexts.of(inside)
        span = contexts.spans[inside] if inside is not None else None
        name = span.name if span is not None and span.kind == "operation" else \
            operator_name(instruction.entry.op.__name__)
        line = line_of(instruction.site) if node is None or node.line is None else f"{node.line} (backward)"
        seen = inside if inside is not None and maker.run == number else None
        shares.append(Share(name, line, weight / total, module, seen, node is not None))
    if step is None:
        entry = run.instructions[0].entry
        outs = entry.outs or ()
        return StepTime("instruction", entry.op.__name__, run.start, run.end, thread, str(entry.device),
                        bytes_of(entry), flops_of(entry), tuple(outs[0].shape) if outs else (), shares,
                        failed=run.failed)
    words = ", ".join(step.words[:WORDS_IN_NAME])
    more = f" and {len(step.words) - WORDS_IN_NAME} more" if len(step.words) > WORDS_IN_NAME else ""
    device = step.device if not isinstance(step, TransferStep) or step.device is not CPU else step.origin
    return StepTime(step.kind, words + more, run.start, run.end, thread, str(device), step.nbytes, step.flops,
                    tuple(step.sizes), shares, failed=run.failed)


def _put_inside(profile):
    """Find the spans that steps were run in, and what is left of each span's own time."""
    spans = profile.spans
    events = [(span.thread, span.start, 0, index) for index, span in enumerate(spans)]
    events += [(step.thread, step.start, 1, index) for index, step in enumerate(profile.steps)]
    events.sort(key=lambda event: event[:3])
    for span in spans:
        span.own = span.end - span.start
    for span in spans:
        if span.parent is not None:
            spans[span.parent].own -= span.end - span.start
    stack: list = []
    last = None
    for thread, time, is_step, index in events:
        if thread != last:
            stack, last = [], thread
        while stack and spans[stack[-1]].end <= time:
            stack.pop()
        if not is_step:
            stack.append(index)
            continue
        step = profile.steps[index]
        step.parent = stack[-1] if stack else None
        if stack:
            spans[stack[-1]].own -= step.nanoseconds
        for share in step.shares:
            if share.span is not None:
                span, part = spans[share.span], round(step.nanoseconds * share.part)
                if step.device == "cpu":
                    span.running += part
                else:
                    span.device_running += part
                    span.device = step.device
                span.nbytes += round(step.nbytes * share.part)


def _account_memory(recorder, profile, makers, found):
    """Note allocations, and put them to the operations that they were for."""
    spans = profile.spans
    for (time, allocation, way, _), inside in zip(recorder.memory, found, strict=True):
        if way > 0 and len(allocation.instructions) == 1:
            maker = makers.get(id(allocation.instructions[0]))
            inside = maker.inside if maker is not None else inside
        if inside is not None:
            if allocation.device is CPU:
                spans[inside].allocated += way * allocation.nbytes
            else:
                spans[inside].device_allocated += way * allocation.nbytes
        role = recorder.roles.get(id(allocation), "other")
        profile.memory.append(MemoryChange(time, str(allocation.device), way * allocation.nbytes,
                                           ", ".join(allocation.lines[:3]), inside, role))
