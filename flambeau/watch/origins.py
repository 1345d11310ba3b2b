"""Where a number stopped being one, when the graph is gone: found in what the latest backward ran, by running it again.

A thread holds the recording of its latest backward, with the values that it read, until a step was taken with it and
all was well (`hold` in autograd/walk.py, `trace/running/rerun.py`, `find_nonfinite` in step_hooks.py). If it was not,
the recording is run again, one instruction at a time, and the way is gone back from what is not finite, through what is
not finite either, to what was made so from finite numbers. Where the way ends at something that had run before, because
the program, or a check of indices, looked in the middle of the forward, it is gone on through the nodes that were made
of that.
"""
import numpy as np

from ..autograd.node import OpNode, kept_places
from ..base.errors import name_of
from ..tensor.messages import called_as
from ..tensor.reading import array_of
from ..tensor.tensor import Tensor, wrap
from ..trace.finite import is_finite
from ..trace.recording.instructions import slots_made
from ..trace.running.rerun import UNWRITTEN, instructions_of, rerun
from ..trace.value import Storage
from .finding import listens
from .nonfinite import NumberRange, computed_again, edge_at, fix_for, is_mask, origin, told_origin


class RerunSearch:
    """The instruction of a HeldRecording that made what is not finite at `slot`, or at any result of its backward.

    `culprit` is it, with the ranges of its inputs, `inputs`, and of what it gave, `made`; `entered` is (Value, range,
    instruction that reads it) of what came in so from outside.
    """

    def __init__(self, recording, slot):
        self.recording, self.culprit, self.entered = recording, None, None
        self.bad = self._not_finite()
        self.maker = slots_made(instructions_of(recording))
        index = self._first_behind(self._ends(slot))
        if index is not None:
            self._look_at(index)

    def _not_finite(self):
        """The slots of what is not finite."""
        bad = {slot for value, slot in self.recording.inputs.items() if not is_finite(value)}
        for _, instruction, values in rerun(self.recording):
            if instruction.entry.op.__name__ not in UNWRITTEN:
                bad.update(slot for slot in instruction.results() if not is_finite(values[slot]))
        return bad

    def _ends(self, slot):
        """Where to begin: at the slot that was seen, or, where it was not computed here, at all that backward made."""
        if slot in self.bad:
            return [slot]
        code, site = instructions_of(self.recording), self.recording.site
        return [slot for slot in self.bad if slot in self.maker and code[self.maker[slot]].site == site]

    def _first_behind(self, ends):
        """The index of the first instruction on the way that made such values from finite ones.

        An infinity that was put there on purpose (a mask) is no origin, but what first made something else of it is.
        """
        code, seen, stack = instructions_of(self.recording), set(ends), list(ends)
        while stack:
            index = self.maker.get(stack.pop())
            for read in code[index].slots if index is not None else ():
                if read in self.bad and read not in seen:
                    seen.add(read)
                    stack.append(read)
        outside = [slot for slot in seen if slot not in self.maker]
        if outside:
            self._enters(min(outside, key=lambda slot: self._reader(slot)[0]))
            return None
        makers = sorted({self.maker[slot] for slot in seen})
        return next((index for index in makers if not self._masks(index) and
                     all(slot not in self.bad or self._masks(self.maker[slot]) for slot in code[index].slots)), None)

    def _masks(self, index):
        return is_mask(instructions_of(self.recording)[index].entry.op)

    def _reader(self, slot):
        return next((index, one) for index, one in enumerate(instructions_of(self.recording)) if slot in one.slots)

    def _enters(self, slot):
        value = next(value for value, at in self.recording.inputs.items() if at == slot)
        self.entered = value, NumberRange(value.array), self._reader(slot)[1]

    def _look_at(self, index):
        *_, (_, self.culprit, values) = rerun(self.recording, until=index)
        culprit = self.culprit
        names = _input_names(culprit.entry)
        self.inputs = [(names[at] if at < len(names) else f"input {at}", NumberRange(values[slot].look(spec, offset)))
                       for at, (slot, spec, offset) in enumerate(zip(culprit.slots, culprit.entry.input_specs,
                                                                     culprit.offsets, strict=False))]
        made = next(slot for slot in culprit.results() if slot in self.bad)
        self.made = NumberRange(values[made].array)

    def forward_of(self):
        """Of a culprit in the backward, (operation, line) of the forward whose result it read, or None.

        It is that of the fewest steps away: the gradient that came in has come by more of them. What had run before has
        no instruction here, but a node that kept it.
        """
        code, site, slots, seen = instructions_of(self.recording), self.recording.site, set(self.culprit.slots), set()
        values = {slot: value for value, slot in self.recording.inputs.items()}
        keepers = {id(value): node for node, _, tensors in older_nodes(self.recording) for _, value, _, _ in tensors}
        while slots:
            makers = {self.maker[slot] for slot in slots if slot in self.maker}
            forward = [index for index in makers if code[index].site != site]
            if forward:
                made = code[max(forward)]
                return made.entry.op, made.site
            kept = [keepers[id(values[slot])] for slot in slots if id(values.get(slot)) in keepers]
            if kept:
                node = max(kept, key=lambda node: node.seq)
                return node.op, node.site
            seen |= slots
            slots = {slot for index in makers for slot in code[index].slots} - seen
        return None


def older_nodes(recording):
    """(node, what it had kept, [(position, Value, spec, offset) of the tensors in that]) of what a HeldRecording has as
    `older`."""
    nodes, values = recording.older or ((), {})
    return [(node, kept, [(at, values[storage], spec, offset) for at, _, storage, spec, offset
                          in kept_places(node, kept, written=True) if storage in values])
            for node, kept in nodes if kept is not None]


class OlderSearch:
    """The node that made what is not finite of the Value `entered`, among those whose operations had run before.

    The backward has freed their graph. What they had kept is looked at, and what they had not is computed again. From
    the node whose result `entered` is, the way back goes through what is not finite either. `culprit` is where it ends,
    with the ranges `inputs` and `made`; None where that is not known.
    """

    def __init__(self, older, entered):
        self.culprit, self.results = None, {}
        self.kept = {node: kept for node, kept, _ in older}
        self.tensors = {node: [(at, wrap(Storage.of(value, value.spec.nbytes, value.spec.device), spec, offset))
                               for at, value, spec, offset in values] for node, _, values in older}
        nodes = self._nodes()
        for node, tensors in self.tensors.items():
            for at, tensor in tensors:
                edge = (node, 0) if at is None else edge_at(node, at)
                if edge is not None:
                    self.results.setdefault(edge, tensor)
        for node in nodes:
            self._known(node)
        self.bad = {edge: facts for edge, tensor in self.results.items()
                    if not (facts := NumberRange(tensor)).finite}
        maker = next((node for node in reversed(nodes) if (node, 0) in self.bad
                      and _same(self.results[node, 0], entered)), None)
        if maker is not None:
            self._go_back(maker)

    def _nodes(self):
        """The nodes that had kept something, and all that they read from, in the order in which they were made."""
        seen, stack = dict.fromkeys(self.kept), list(self.kept)
        while stack:
            for edge in stack.pop().edges:
                if edge is not None and edge[0] not in seen and isinstance(edge[0], OpNode):
                    seen[edge[0]] = None
                    stack.append(edge[0])
        return sorted(seen, key=lambda node: node.seq)

    def _given(self, node):
        """{position: tensor} of what is known of its arguments."""
        given = {at: tensor for at, tensor in self.tensors.get(node, ()) if at is not None}
        for at, slot in enumerate(node.recipe.template):
            if slot.__class__ is int and at not in given and (edge := edge_at(node, at)) in self.results:
                given[at] = self.results[edge]
        return given

    def _known(self, node):
        if (node, 0) not in self.results:
            kept = self.kept.get(node, node.kept)         # what holds no tensor is not freed
            result = computed_again(node, self._given(node), kept)
            if result is not None:
                self.results[node, 0] = result

    def _go_back(self, node):
        """From `node`, whose result is not finite, to the first that made one, by way of what is not known."""
        seen, stack = {node}, [node]
        while stack:
            for edge in stack.pop().edges:
                if edge is not None and isinstance(edge[0], OpNode) and edge[0] not in seen \
                        and (edge in self.bad or edge not in self.results):
                    seen.add(edge[0])
                    stack.append(edge[0])
        for node in sorted(seen, key=lambda node: node.seq):
            given = self._given(node)
            if (node, 0) in self.bad and not is_mask(node.op) \
                    and all(NumberRange(tensor).finite or self._from_mask(node, at) for at, tensor in given.items()):
                self.culprit, self.made = node, self.bad[node, 0]
                self.inputs = [(node.op.arg_names[at], NumberRange(tensor)) for at, tensor in sorted(given.items())]
                self.unknown = [one for one in seen if (one, 0) not in self.results and one.seq < node.seq]
                return

    @staticmethod
    def _from_mask(node, at):
        edge = edge_at(node, at)
        return edge is not None and isinstance(edge[0], OpNode) and is_mask(edge[0].op)


def _same(tensor, value):
    """Whether a tensor has the contents of a Value."""
    return np.array_equal(array_of(tensor.detach()), value.array, equal_nan=value.array.dtype.kind in "fc")


def _input_names(entry):
    return [name for name, slot in zip(entry.op.arg_names, entry.template, strict=False) if slot.__class__ is int] \
        if hasattr(entry.op, "arg_names") else []


def tell_recorded(recording, seen, at, raises=True):
    """Say which instruction made the first value behind the tensor `seen` that is not finite; the finding, or None."""
    if not listens("non-finite"):
        return None
    value, root = seen._storage.value, recording.root()
    is_loss = seen is root
    slot = recording.slot if is_loss else getattr(value, "slot", None)
    search = RerunSearch(recording, slot)
    name = (name_of(seen) or "the loss") if is_loss else "a gradient"
    shown = [(f"{name} was seen to be {NumberRange(value.array).words} at", at)]
    if search.entered is not None:
        return told_origin() or _tell_older(search, name, shown, raises) or _tell_entered(search, name, shown, raises)
    if search.culprit is None:
        return None
    entry, site = search.culprit.entry, search.culprit.site
    ranges = "; ".join(f"{name} {facts}" for name, facts in search.inputs)
    operation = called_as(entry.op)
    if site == recording.site and (forward := search.forward_of()) is not None:
        op, line = forward
        return origin("non-finite", f"the derivative of {called_as(op)} made the first gradient that is not "
                      f"finite: {operation} gave {search.made}, from {ranges}", line,
                      [("backward() was called at", recording.site), *shown],
                      "the step has written it into the parameters", fix_for(op), raises=raises)
    return origin("non-finite", f"{operation} made the first values that are not finite, {search.made}, from finite "
                  f"inputs: {ranges}", site, shown, f"{name} is not finite, and the step has written that into the "
                  "parameters", fix_for(entry.op), raises=raises)


def _tell_older(search, name, shown, raises):
    value, _, reader = search.entered
    older = OlderSearch(older_nodes(search.recording), value)
    if older.culprit is None:
        return None
    op, ranges = older.culprit.op, "; ".join(f"{name} {facts}" for name, facts in older.inputs)
    between = [(f"it was computed before backward(), and {called_as(reader.entry.op)} read what came of it at",
                reader.site),
               *(("or, of which nothing is kept,", one.site) for one in older.unknown[:3])]
    return origin("non-finite", f"{called_as(op)} made the first values that are not finite, {older.made}, from "
                  f"{f'finite inputs: {ranges}' if ranges else 'inputs that are not kept'}", older.culprit.site,
                  [*between, *shown], f"{name} is not finite, and the step has written that into the parameters",
                  fix_for(op), raises=raises)


def _tell_entered(search, name, shown, raises):
    value, facts, reader = search.entered
    entry, site = reader.entry, reader.site
    holders: list = []

    def is_it(one):
        if isinstance(one, Tensor) and one._storage is not None and one._storage.value is value:
            holders.append(one)
        return bool(holders)
    holder_name = name_of(None, same=is_it)
    read = [(f"{called_as(entry.op)} read it at", site)]
    site, read = (holders[0]._site, read) if holders and holders[0]._site is not None else (site, [])
    return origin("non-finite", f"{holder_name or f'what {called_as(entry.op)} reads here'} already held values that "
                  f"are not finite, {facts}", site, [*read, *shown],
                  f"{name} is computed from them, and the step has written that into the parameters",
                  "check the data and the initial parameters with isfinite(); of what was computed and looked at "
                  "before, flambeau.watch() around the loop names the operation", raises=raises)
