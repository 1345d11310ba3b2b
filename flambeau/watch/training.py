"""What a full watch looks at in a training loop: losses, gradients and parameters, at backward() and at step().

What a graph keeps is held from backward() to step(), and the loss and the gradients are looked at there: so what is
not finite is found while everything it was made from is still there. With many parameters they are looked at before
the step uses them, which runs what was recorded twice a step in place of once. With few that would cost more than the
step; the old values of the parameters are kept instead, and everything is looked at when the step has run.

Of few, where nothing has run between the last step and a backward, nothing is held here at all: the thread holds the
recording of that backward (`hold` in autograd/walk.py), which has all of it.
"""
import contextlib
import math

import numpy as np

from ..autograd import engine
from ..autograd.accumulate import match_spec
from ..autograd.base_node import AccumulateGrad
from ..autograd.edges import edge_of
from ..autograd.modes import no_grad
from ..autograd.node import Kept, OpNode
from ..autograd.walk import count_readers
from ..base.errors import here
from ..base.observers import Observer
from ..base.spec import CPU
from ..tensor.functions import ones_like
from ..tensor.reading import array_of
from ..tensor.tensor import Tensor
from ..trace.recording.record import current
from ..trace.value import Storage
from .finding import found, listens
from .nonfinite import CAUSES, NumberRange, fix_for, graph_of, kept_tensors, origin, tell
from .origins import tell_recorded
from .step_hooks import unusual_gradients
from .steps import is_recording, module_of, own_looks, words_for

STEPS_UNTIL_NO_GRADIENT = 5   # a parameter without a gradient in all of the first so many steps never gets one
STEPS_BETWEEN_CHECKS = 8      # gradients of many elements are looked at so seldom
MANY_ELEMENTS = 1 << 20
FEW_BYTES = 1 << 20           # of what a graph keeps: so much is held whole
MAKE_INFINITIES = frozenset(CAUSES)   # and these are worth it
IN_MEMORY = frozenset(("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "embedding"))       # and convolutions
DEAD_CHECKS = 4               # so many checks in a row with gradients that are zero throughout
GROWTH = 1e6                  # a gradient that is so many times as large as at first
TINIEST_SHARE = 0.5           # of the elements of a float16 gradient that are zero, where none of the others is large
LARGEST_UNDERFLOWN = 1e-5


class Trained:
    """What is remembered of the parameters of one optimizer."""

    def __init__(self):
        self.steps, self.without, self.many = 0, None, False
        self.zero = {}        # id of a parameter → how many checks in a row its gradient was zero
        self.bounds = {}      # id of a parameter → what its gradient may grow to


class TrainingObserver(Observer):
    """Looks at losses, gradients and parameters."""

    old_values = live = None  # of the step that is being taken: old values of its parameters, those with a gradient

    def __init__(self):
        self.trained = {}     # number of an optimizer → Trained
        self.graph = None     # (roots, [(node, what it kept)], site) of the backward since the last step
        self.recorded = False # whether the thread's own recording of it is to be looked at instead
        self.emptied = None   # when the trace was last emptied, as it was when the last step had ended

    def backward_called(self, tensors):
        """Keep what the graph keeps until the step."""
        if is_recording() or not listens("non-finite"):
            return
        self._look_at_loss()                              # of a backward that no step came after
        trace = current()
        self.graph, self.recorded = None, len(tensors) == 1 and self._all_recorded(trace, tensors[0])
        if self.recorded:
            return
        roots = [t for t in tensors if isinstance(t, Tensor) and t._node is not None
                 and t._spec.dtype.is_floating_point]
        nodes = [node for node in count_readers([root._node for root in roots]) if isinstance(node, OpNode)]
        nodes.sort(key=_order)
        few = trace.bytes <= FEW_BYTES and all(root._spec.device is CPU for root in roots)      # of all its results
        hold = _all_of if few or sum([_pending_bytes(node) for node in nodes]) <= FEW_BYTES else _part_of
        self.graph = (roots, [(node, hold(node)) for node in nodes], here())

    def _all_recorded(self, trace, root):
        """Whether the recording of a backward from `root` will have everything, and be held until the step."""
        return trace.emptied == self.emptied and root._node is not None and root._spec.device is CPU \
            and root._spec.dtype.is_floating_point and isinstance(root, Tensor) \
            and root._storage.value.trace is trace and 2 * (trace.held + trace.weighed) <= engine.HELD_BYTES

    def close(self):
        """Look at the loss of a backward that no step came after."""
        self._look_at_loss()
        self.graph, self.recorded = None, False

    def _look_at_loss(self):
        """Whether the loss of the latest backward is finite; if not, say why."""
        if self.recorded:
            return self._look_at_recording(current())
        if self.graph is None:
            return True
        roots, kept, site = self.graph
        for root in roots:
            if not _is_finite(root):
                self.graph, recording = None, current().backward
                if recording is None or recording.older or recording.root() is not root \
                        or tell_recorded(recording, root, site) is None:         # which knows more than the graph
                    with _as_it_was(kept):
                        tell(root, site)
                return False
        return True

    def _look_at_recording(self, trace):
        recording = trace.backward
        root = recording.root() if recording is not None else None
        if root is None or _is_finite(root):
            return True
        self.recorded, trace.backward = False, None
        if tell_recorded(recording, root, recording.site) is None:
            tell(root, recording.site)
        return False

    def step_began(self, optimizer):
        """Look at the gradients before they are used; of few elements, hold what they were computed from instead."""
        self.old_values = self.live = None
        if is_recording():
            return
        kept = self.trained.get(optimizer._watched)
        if kept is None:
            kept = self.trained[optimizer._watched] = Trained()
        kept.steps += 1
        if self.recorded and kept.steps > STEPS_UNTIL_NO_GRADIENT and not kept.many \
                and kept.steps % STEPS_BETWEEN_CHECKS:
            return                                        # what it nearly always is
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p._requires_grad]
        if kept.steps <= STEPS_UNTIL_NO_GRADIENT:
            self._without_gradient(optimizer, kept, parameters)
        self.live = [p for p in parameters if p._grad is not None and not p._grad._spec.dtype.is_complex]
        kept.many = sum([p._spec.numel for p in self.live]) > MANY_ELEMENTS
        if not kept.many:
            self.old_values = [(p._storage, p._storage.value, p._storage.version) for p in self.live] \
                if not self.recorded else None
        elif kept.steps % STEPS_BETWEEN_CHECKS == 1:
            self._check(optimizer, kept)
        else:
            self.graph, self.recorded = None, False

    def step_ended(self, optimizer):
        """Look at what the step used, which is computed by now."""
        old_values, self.old_values = self.old_values, None
        if self.recorded:
            self._check_recorded(optimizer, self.trained[optimizer._watched])
        elif old_values is not None and not self._is_usual(optimizer, kept := self.trained[optimizer._watched]):
            with _values_before(old_values):
                self._check(optimizer, kept)
        self.live = None
        if not is_recording():
            (trace := current()).backward = None
            self.emptied = trace.emptied

    def _is_usual(self, optimizer, kept):
        """Whether there is nothing to say of the loss and the gradients, as nearly always."""
        own_looks[0] += 1
        try:
            usual = all(map(_is_finite, self.graph[0] if self.graph is not None else ())) \
                and not unusual_gradients(optimizer.param_groups, kept.bounds, kept.zero)
        finally:
            own_looks[0] -= 1
        if usual:
            self.graph = None
        return usual

    def _check_recorded(self, optimizer, kept):
        trace = current()
        own_looks[0] += 1
        try:
            if self._look_at_recording(trace):
                for p in unusual_gradients(optimizer.param_groups, kept.bounds, kept.zero):
                    g = p._grad
                    if g._spec.dtype.is_complex:
                        continue
                    size = _size_of(g)
                    if not math.isfinite(size):
                        self._not_finite(optimizer, p, None, trace.backward)
                        break
                    self._dead_or_exploding(optimizer, kept, p, size)
        finally:
            own_looks[0] -= 1
            self.recorded = False

    def _check(self, optimizer, kept):
        """Look at the loss, and at the gradients."""
        own_looks[0] += 1
        try:
            self._look_at_all(optimizer, kept)
        finally:
            own_looks[0] -= 1

    def _look_at_all(self, optimizer, kept):
        finite = self._look_at_loss()
        graph, self.graph = self.graph, None
        recording = current().backward if self.recorded else None
        self.recorded = False
        if not finite:
            return
        bounds, dead = kept.bounds, kept.zero
        for p in self.live:
            g = p._grad
            size = _size_of(g)
            key = id(p)
            if 0 < size <= bounds.get(key, 0) and key not in dead and g._spec.dtype.itemsize > 2:
                continue                                  # what it nearly always is
            if not math.isfinite(size):
                self._not_finite(optimizer, p, graph, recording)
                return
            self._dead_or_exploding(optimizer, kept, p, size)

    # --- gradients that are not there --------------------------------------------------------------------------------

    def _without_gradient(self, optimizer, kept, parameters):
        without = {id(p) for p in parameters if p._grad is None}
        kept.without = without if kept.without is None else kept.without & without
        if kept.steps == STEPS_UNTIL_NO_GRADIENT and kept.without and len(kept.without) < len(parameters):
            lost = [p for p in parameters if id(p) in kept.without]
            found("no-gradient", f"{words_for(lost, module_of(optimizer))} had no gradient in the first {kept.steps} "
                  "steps, while others of the optimizer had", lost[0]._site, [("step() was called at", here())],
                  f"{sum(p.numel() for p in lost):,} numbers are never trained",
                  "use it in forward(), without detach() or no_grad() on the way; or take it out, or "
                  "requires_grad_(False)")

    # --- gradients that are zero, or grow ----------------------------------------------------------------------------

    def _dead_or_exploding(self, optimizer, kept, p, size):
        if size:
            kept.zero.pop(id(p), None)
            bound = kept.bounds.setdefault(id(p), GROWTH * size)
            if size > max(bound, 1):
                found("exploding-gradients", f"the gradient of {words_for([p], module_of(optimizer))} has come to "
                      f"{size:.3g}, {GROWTH * size / bound:.2g} times what it was at first", here(),
                      [("the parameter was made at", p._site)], "the next steps overflow",
                      "lower the learning rate, or clip_grad_norm_() before step()")
        if p._grad._spec.dtype.name == "float16":
            self._underflow(optimizer, p)
        count = kept.zero[id(p)] = kept.zero.get(id(p), 0) + 1 if not size else 0
        if not count:
            del kept.zero[id(p)]
        if count == DEAD_CHECKS and p._spec.ndim > 1 and any(other != id(p) for other in kept.bounds):
            found("dead-layer", f"the gradients of {words_for([p], module_of(optimizer))} were zero throughout in "
                  f"{DEAD_CHECKS} steps in a row, while others were not", p._site, [("step() was called at", here())],
                  f"{p.numel():,} numbers are not trained",
                  "a relu in front of it gives zero for every input, or its result is multiplied by zero: look at the "
                  "initial values, the learning rate, or use a leaky_relu")

    def _underflow(self, optimizer, p):
        array = np.asarray(array_of(p._grad.detach().cpu()))
        zeros, largest = int(array.size - np.count_nonzero(array)), float(np.abs(array).max(initial=0))
        if zeros < TINIEST_SHARE * array.size or not 0 < largest < LARGEST_UNDERFLOWN or array.size < 2:
            return
        found("underflow", f"{zeros} of {p._spec.numel} gradients of {words_for([p], module_of(optimizer))} are zero "
              f"and none is above {largest:.2g}: what is below 6e-8 is zero in float16", here(),
              [("the parameter was made at", p._site)], "these numbers are not trained",
              "scale the loss with torch.amp.GradScaler, or compute in bfloat16")

    # --- gradients that are not finite -------------------------------------------------------------------------------

    def _not_finite(self, optimizer, p, graph, recording):
        """Say which derivative made the first gradient that is not finite from finite ones."""
        if recording is not None and tell_recorded(recording, p._grad, here()) is not None:
            return
        name = words_for([p], module_of(optimizer))
        node, incoming, made = _first_backward(*graph[:2]) if graph is not None else (None, None, None)
        if node is None:
            found("non-finite", f"the gradient of {name} is not finite, {NumberRange(p._grad)}", here(),
                  [("the parameter was made at", p._site)], "the step writes it into the parameters",
                  "watch the backward that made it, with flambeau.watch() around the whole loop")
            return
        origin("non-finite", f"the derivative of {node.op.__name__.strip('_')} made the first gradient that is not "
              f"finite, {made}, from finite ones, {incoming}; what was kept of it: {_kept_words(node)}", node.site,
              [("step() was called at", here())], f"the gradient of {name} is {NumberRange(p._grad)}",
              fix_for(node.op))


def _is_finite(tensor):
    if tensor._spec.device is not CPU:
        return bool(tensor.detach().isfinite().all())
    array = _array(tensor)
    return math.isfinite(array.item()) if array.size == 1 else bool(np.isfinite(array).all())


def _array(tensor):
    """The contents of a tensor of the CPU. What is computed already is not a look."""
    value = tensor._storage.value
    if value.trace is not None:
        value.ready()
    whole = value.spec is tensor._spec and not tensor._offset
    array = value.array if whole else value.look(tensor._spec, tensor._offset)
    return array if array.dtype.kind == "f" and array.dtype.itemsize > 2 else array.astype(np.float32)


def _size_of(g):
    """The largest absolute value in a gradient: infinite, or not a number, where one of them is."""
    if g._spec.device is not CPU:
        return g.detach().abs().amax().item() if g._spec.numel else 0.0
    array = _array(g)
    return max(float(array.max()), -float(array.min())) if array.size else 0.0      # both are nan, where one is


def _kept_words(node):
    said = [f"{'result' if at is None else node.op.arg_names[at]} {NumberRange(tensor)}"
            for at, tensor in kept_tensors(node)]
    return "; ".join(said) or "nothing"


# --- holding what a graph keeps ---------------------------------------------------------------------------------------

# Held to the step, a result has to be in memory, where a step that is not watched fuses it away. Of large graphs only
# what is in memory anyway is held: data, parameters, and what products and convolutions read; and what operations read
# that easily make infinities. The rest is computed again from that, when it is looked for.


def _pending_bytes(node):
    """The bytes of what a node keeps and that is not computed yet."""
    return sum([storage.nbytes for storage in map(_storage_of, _each(node)) if _is_pending(storage)])


def _each(node):
    kept = node.kept
    return () if kept is None else (kept,) if node.recipe.only_kept is not None else kept


def _storage_of(one):
    if one.__class__ is Kept:
        return one.storage
    if one.__class__ is tuple and len(one) == 4:          # see Note [What is kept] in autograd/node.py
        return one[1] if isinstance(one[0], Tensor) else one[0]
    return None


def _is_pending(storage):
    return isinstance(storage, Storage) and storage.value is not None and storage.value.trace is not None


def _all_of(node):
    return node.kept


def _part_of(node):
    name = node.op.__name__
    if name in IN_MEMORY or "conv" in name or name in MAKE_INFINITIES:
        return node.kept
    kept = [None if _is_pending(_storage_of(one)) else one for one in _each(node)]
    return kept if node.recipe.only_kept is None or not kept else kept[0]


@contextlib.contextmanager
def _values_before(old_values):
    """Inside, the parameters are what they were before the step."""
    after = [(storage, storage.value, storage.version) for storage, _, _ in old_values]
    try:
        for storage, value, version in old_values:
            storage.value, storage.version = value, version
        yield
    finally:
        for storage, value, version in after:
            storage.value, storage.version = value, version


@contextlib.contextmanager
def _as_it_was(kept):
    """Inside, the nodes of a graph that a backward has freed have what they kept."""
    freed = [(node, node.kept) for node, _ in kept]
    try:
        for node, tensors in kept:
            node.kept = tensors
        yield
    finally:
        for node, tensors in freed:
            node.kept = tensors


def _first_backward(roots, kept):
    """(node, facts of what came in, facts of what it made): the first derivative that was not finite from finite."""
    try:
        with _as_it_was(kept), no_grad():
            return _walk(roots)
    except (RuntimeError, TypeError):                     # it was written since, or not all of it is held
        return None, None, None


def _walk(roots):
    grads: dict = {}
    for root in roots:
        node, nr = edge_of(root)
        grads.setdefault(node, {})[nr] = ones_like(root.detach())
    for node in sorted({n for root in roots for n in graph_of(root)}, key=_order, reverse=True):
        given = grads.pop(node, None)
        if given is None or not isinstance(node, OpNode):
            continue
        incoming = [given.get(nr) for nr in range(node.n_outputs)]
        made = node.backward(incoming)
        for edge, g, spec in zip(node.edges, made, node.input_specs, strict=False):
            if edge is None or g is None:
                continue
            if not _is_finite(g):
                return node, NumberRange(next(one for one in incoming if one is not None)), NumberRange(g)
            g = match_spec(g, spec) if g._spec is not spec else g
            slot = grads.setdefault(edge[0], {})
            slot[edge[1]] = slot[edge[1]] + g if edge[1] in slot else g
    return None, None, None


def _order(node):
    return -1 if isinstance(node, AccumulateGrad) else node.seq
