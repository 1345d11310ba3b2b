"""The first operation that made infinity or not-a-number from finite numbers, found after the fact in the saved graph.

A graph keeps, for its derivatives, many of the inputs and results of its operations. They are gone through in the order
in which they were made: what is kept is looked at, and what is not is computed again from its inputs, where these are
known. The first result that is not finite while all known inputs are, is the one. What was not kept and cannot be
computed (an operand that needs no gradient, the dimension of a sum) is left out, and the text says so where it matters.
"""
import contextlib
import math

import numpy as np

from ..autograd.base_node import AccumulateGrad
from ..autograd.edges import requires
from ..autograd.modes import no_grad
from ..autograd.node import TENSOR, OpNode, kept_places
from ..base.errors import here, name_of
from ..base.op import REQUIRED, door
from ..tensor.messages import called_as
from ..tensor.reading import array_of
from ..tensor.tensor import Tensor, wrap
from ..trace.recording.record import current
from .finding import findings, found, in_force, listens, strict

MASKS = ("masked_fill", "where", "full", "masked_scatter", "index_fill")      # they bring in what they were given


class NumberRange:
    """What is known of one tensor, or array: its range, and how many elements are not numbers or infinite."""

    def __init__(self, values):
        array = np.asarray(values if isinstance(values, np.ndarray) else array_of(values))
        array = array.astype(np.float32) if array.dtype.isbuiltin == 2 else array        # bfloat16 and smaller
        array = np.abs(array) if array.dtype.kind == "c" else array
        floats = array.dtype.kind == "f"
        self.shape, self.total = list(array.shape), array.size
        with np.errstate(all="ignore"):
            self.nans = int(np.isnan(array).sum()) if floats else 0
            self.infs = int(np.isinf(array).sum()) if floats else 0
            numbers = array[np.isfinite(array)] if floats and (self.nans or self.infs) else array
        self.only = f"{array.item():.6g}" if array.size == 1 else None
        self.low, self.high = (numbers.min().item(), numbers.max().item()) if numbers.size else (None, None)

    @property
    def finite(self):
        return not self.nans and not self.infs

    @property
    def words(self):
        """The numbers without the shape."""
        if self.total == 1:
            return self.only
        words = "empty" if not self.total else "no finite number" if self.low is None else \
            f"{self.low:.6g} to {self.high:.6g}"
        bad = [f"{count} of {self.total} {what}" for count, what in ((self.nans, "nan"), (self.infs, "inf")) if count]
        return ", ".join([words, *bad])

    def __str__(self):
        return f"{self.shape}: {self.words}" if self.shape else self.words


def graph_of(tensor):
    """The nodes behind a tensor in the order in which they were made, leaves first."""
    seen = {tensor._node: None} if tensor._node is not None else {}
    stack = list(seen)
    while stack:
        for edge in stack.pop().edges:
            if edge is not None and edge[0] not in seen:
                seen[edge[0]] = None
                stack.append(edge[0])
    return sorted(seen, key=lambda node: -1 if isinstance(node, AccumulateGrad) else node.seq)


def kept_tensors(node):
    """(position of the argument, or None for the result; tensor) of what a node keeps and is as it was."""
    if node.kept is not None:
        for at, tensor, storage, spec, offset in kept_places(node, node.kept):
            yield at, tensor if tensor is not None else wrap(storage, spec, offset)


def computed_again(node, given, kept):
    """The result of a node from the arguments that are known, {position: tensor}, and what it has kept; None if they do
    not suffice."""
    op, recipe, args = node.op, node.recipe, []
    if op.effect or op.eager or node.n_outputs != 1 or op.__name__ in ("dropout",):
        return None
    numbers = {at: one for (at, how), one in zip(recipe.asked, kept or (), strict=False) if how != TENSOR} \
        if recipe.only_kept is None else {}
    for at, slot in enumerate(recipe.template):
        if at in given:
            args.append(given[at].detach())
        elif slot is not None or at not in numbers and op.defaults[at] is REQUIRED:
            return None
        else:
            args.append(numbers.get(at, op.defaults[at]))
    with no_grad(), contextlib.suppress(Exception):      # one that we cannot repeat is one of which nothing is known
        made = op(*args)
        if isinstance(made, Tensor) and made._spec.shape == node.outs[0].shape:
            return made
    return None


def edge_at(node, at):
    """(node, output number) that argument `at` of a node came from, None if it needs no gradient."""
    slot = node.recipe.template[at]
    return node.edges[node.recipe.inputs.index(slot)] if node.recipe.live[slot] else None


def is_mask(op):
    """Whether an operation brings in what it was given, infinities too."""
    return op.__name__.strip("_") in MASKS


class NonFiniteSearch:
    """Going through the graph of a tensor: `culprit` is the node, and `inputs` the facts of its inputs by name."""

    def __init__(self, tensor):
        self.results = {}     # (node, number) → a tensor with that result
        self.facts = {}       # id of a tensor → (it, NumberRange)
        self.culprit = self.leaf = self.made = None
        self.late = None      # a node whose result is not finite, of whose inputs nothing is known
        self.unknown = []     # nodes of which neither the result nor all inputs are known, since the last known one
        self.released = None
        nodes = graph_of(tensor)
        for node in nodes:
            if isinstance(node, OpNode):
                for at, kept in kept_tensors(node):
                    edge = (node, 0) if at is None else edge_at(node, at)
                    if edge is not None:
                        self.results.setdefault(edge, kept)
                if node.kept is None:
                    self.released = node.released
        if tensor._node is not None:
            self.results[tensor._node, tensor._nr] = tensor
        self.look(nodes)

    def of(self, tensor):
        if id(tensor) not in self.facts:
            self.facts[id(tensor)] = tensor, NumberRange(tensor)
        return self.facts[id(tensor)][1]

    def look(self, nodes):
        for node in nodes:
            if isinstance(node, AccumulateGrad):
                self.results[node, 0] = node.variable
                if not self.of(node.variable).finite:
                    self.leaf, self.made = node.variable, self.of(node.variable)
                    return
            elif isinstance(node, OpNode) and self.blames(node):
                return

    def blames(self, node):
        """Whether the first result that is not finite is this node's."""
        given = {at: tensor for at, tensor in kept_tensors(node) if at is not None}
        for at, slot in enumerate(node.recipe.template):
            if slot.__class__ is int and at not in given:
                edge = edge_at(node, at)
                if edge in self.results:
                    given[at] = self.results[edge]
        for at, tensor in given.items():
            if not self.of(tensor).finite and edge_at(node, at) is None:
                self.leaf, self.made = tensor, self.of(tensor)         # data, which came so
                return True
        result = self.results.get((node, 0))
        if result is None:
            result = computed_again(node, given, node.kept)
            if result is None:
                self.unknown.append(node)
                return False
            self.results[node, 0] = result
        if not given and not self.of(result).finite:
            self.late = node                                           # of what it was made nothing is known
            return False
        if self.of(result).finite or is_mask(node.op):
            if self.of(result).finite:
                self.unknown.clear()
            return False
        if any(not self.of(tensor).finite for tensor in given.values()):
            return False                                               # an infinity that was put there on purpose
        self.culprit, self.made = node, self.of(result)
        self.inputs = {node.op.arg_names[at]: self.of(tensor) for at, tensor in sorted(given.items())}
        self.missing = [node.op.arg_names[at] for at, slot in enumerate(node.recipe.template)
                        if slot is not None and at not in given]
        return True


CAUSES = {
    "log": "clamp its input from below, or use log1p or log_softmax",
    "sqrt": "add a small number under the root: its derivative at zero is infinite",
    "true_divide": "keep the divisor away from zero: clamp it, or add a small number",
    "div": "keep the divisor away from zero: clamp it, or add a small number",
    "reciprocal": "keep the divisor away from zero: clamp it, or add a small number",
    "exp": "subtract the maximum first, as softmax and logsumexp do, or clamp the exponent",
    "pow": "clamp the base: a negative one has no such power, and zero none below zero",
}
GENERAL_FIX = "look at the ranges above: a smaller learning rate, a norm, clip_grad_norm_, or a wider dtype"


def fix_for(op):
    """What to do where the operation `op` made a value that is not finite."""
    return CAUSES.get(op.__name__.strip("_"), GENERAL_FIX)


_origin: list = []            # the latest finding that named an operation


def origin(*facts, **more):
    """`found`, of an operation that made the first value that is not finite: what is seen later comes from it."""
    _origin[:] = [found(*facts, **more)]
    return _origin[0]


def told_origin():
    """The finding of an operation that was named before, if parameters that are not finite may come from it."""
    return next((one for one in _origin if one in findings() and not strict()), None)


def tell(tensor, at, raises=True):
    """Say which operation made the first value behind `tensor` that is not finite; the finding, or None."""
    if not listens("non-finite"):
        return None
    recording = current().backward
    if recording is not None and recording.root() is tensor and not in_force:
        return door.noticed("tell_recorded", recording, tensor, at, raises)
    search = NonFiniteSearch(tensor)
    name = name_of(tensor) or "the tensor"
    shown = [(f"{name} was seen to be {_seen(tensor)} at", at)]
    if search.leaf is not None:
        leaf_name = name_of(search.leaf) or ("a parameter" if search.leaf._requires_grad else "an input")
        writer = search.leaf._storage.writer
        site, how = (writer[0], f"was written last by {writer[1]} at") if writer is not None else \
            (search.leaf._site, "was made at")
        return told_origin() or found(
            "non-finite", f"{leaf_name} already held values that are not finite, {search.made}: {leaf_name} {how} this "
            "line", site, shown, f"{name} is computed from them, and no step can bring it back",
            "find what made them there: check the data with isfinite(), or watch the step that wrote them",
            raises=raises)
    if search.culprit is not None:
        node = search.culprit
        ranges = "; ".join(f"{name} {facts}" for name, facts in search.inputs.items())
        ranges += f"; {', '.join(search.missing)} not kept" if search.missing else ""
        between = [("or, of which nothing is kept,", one.site) for one in search.unknown[:3]]
        return origin("non-finite", f"{called_as(node.op)} made the first values that are not finite, {search.made}, "
                     f"from finite inputs: {ranges}", node.site, [*shown, *between],
                     f"{name} is {_seen(tensor)}, and with it every gradient",
                     fix_for(node.op), raises=raises)
    if search.released is not None:
        return told_origin() or found(
            "non-finite", f"{name} is {_seen(tensor)}", at, [("its graph was freed by backward() at", search.released)],
            "the step that followed has written it into the parameters", "look before backward(): "
            "flambeau.watch.non_finite(loss), or flambeau.watch() around the loop, which names the operation",
            raises=raises)
    if search.late is not None:
        return found("non-finite", f"{name} is {_seen(tensor)}: it became so in one of these lines, of whose operands "
                     "the graph keeps nothing", search.late.site, [*shown, *[("or", one.site) for one in
                     search.unknown[:3]]], f"{name} is {_seen(tensor)}, and with it every gradient",
                     "look at the operands of these lines", raises=raises)
    return None


def _seen(tensor):
    return str(tensor.detach().item()) if tensor.numel() == 1 else "not finite"


def non_finite(tensor):
    """The finding about the first operation behind `tensor` that made infinity or not-a-number from finite numbers.

    None if there is none in what its graph has kept. Nothing has to be switched on before; the graph must not have been
    freed by a backward.

    >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
    >>> loss = (x.log() * x).sum()
    >>> torch.watch.non_finite(loss).text
    'log made the first values that are not finite, [2]: 0 to 0, 1 of 2 inf, from finite inputs: input [2]: 0 to 1'
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"non_finite() takes a tensor, not {type(tensor).__name__}")
    return tell(tensor, here(), raises=False)


def seen(tensor, number):
    """A number that is not finite was taken out of a tensor with a graph: `door.noticed("non_finite_seen", …)`."""
    if requires(tensor) and number != -math.inf:
        tell(tensor, here())
