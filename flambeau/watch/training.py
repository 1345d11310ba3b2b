"""What a full watch looks at in a training loop: losses, gradients and parameters, at backward() and at step().

A loss is looked at before its graph is gone through, and gradients before a step uses them: so what is not finite is
found while everything it was made from is still there. That runs what was recorded, three times a step in place of
once; which is most of what a full watch costs.
"""
import math
import weakref

import numpy as np

from ..autograd.engine import match_spec
from ..autograd.modes import no_grad
from ..autograd.node import AccumulateGrad, OpNode, edge_of
from ..base.errors import here
from ..base.observers import Observer
from ..base.spec import CPU
from ..tensor.functions import ones_like
from ..tensor.tensor import Tensor
from ..trace.record import current
from .finding import found, listens
from .nonfinite import CAUSES, GENERAL_FIX, Facts, graph_of, kept_tensors, tell
from .steps import module_of, words_for

STEPS_UNTIL_NO_GRADIENT = 5   # a parameter without a gradient in all of the first so many steps never gets one
STEPS_BETWEEN_CHECKS = 8      # gradients of many elements are looked at so seldom
MANY_ELEMENTS = 1 << 20
DEAD_CHECKS = 4               # so many checks in a row with gradients that are zero throughout
GROWTH = 1e6                  # a largest gradient that is so many times its first
TINIEST_SHARE = 0.5           # of the elements of a float16 gradient that are zero where its float32 sum is not


def is_recording():
    """Whether `compile` records: then nothing may be looked at that the program does not look at."""
    return current().reader is not None


class Trained:
    """What is remembered of the parameters of one optimizer."""

    def __init__(self):
        self.steps, self.without, self.zero, self.first = 0, None, {}, {}


class Training(Observer):
    """Looks at losses, gradients and parameters."""

    def __init__(self):
        self.trained = weakref.WeakKeyDictionary()        # optimizer → Trained
        self.loss_told = False            # whether the loss of the latest backward was not finite
        self.graph = None     # (roots, [(node, what it kept)]) of the backward since the last step

    def backward_called(self, tensors):
        """Look at the loss, while its graph is there; and keep what the graph keeps until the step."""
        if is_recording() or not listens("non-finite"):
            return
        for tensor in tensors:
            if isinstance(tensor, Tensor) and tensor._node is not None and tensor._spec.dtype.is_floating_point:
                if not _is_finite(tensor):
                    self.graph = None
                    self.loss_told = True
                    tell(tensor, here())
                    return
        self.loss_told = False
        roots = [t for t in tensors if isinstance(t, Tensor) and t._node is not None]
        self.graph = (roots, [(node, node.kept) for root in roots for node in graph_of(root)
                              if node.__class__ is OpNode or isinstance(node, OpNode)])

    def step_began(self, optimizer):
        """Look at the gradients, before they are used."""
        if is_recording():
            return
        kept = self.trained.setdefault(optimizer, Trained())
        kept.steps += 1
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p._requires_grad]
        if kept.steps <= STEPS_UNTIL_NO_GRADIENT:
            self._without_gradient(optimizer, kept, parameters)
        graph, self.graph = self.graph, None
        live = [p for p in parameters if p._grad is not None and not p._grad._spec.dtype.is_complex]
        if sum(p._spec.numel for p in live) > MANY_ELEMENTS and kept.steps % STEPS_BETWEEN_CHECKS != 1:
            return
        for p in live:
            largest, zeros = _size_of(p._grad)
            if not math.isfinite(largest):
                if not self.loss_told:
                    self._not_finite(optimizer, p, graph)
                return
            self._dead_or_exploding(optimizer, kept, p, largest, zeros)

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

    def _dead_or_exploding(self, optimizer, kept, p, largest, zeros):
        if largest:
            first = kept.first.setdefault(id(p), largest)
            if largest > GROWTH * first and largest > 1:
                found("exploding-gradients", f"the largest gradient of {words_for([p], module_of(optimizer))} is "
                      f"{largest:.3g}, {largest / first:.2g} times what it was at first", here(),
                      [("the parameter was made at", p._site)], "the next steps overflow",
                      "lower the learning rate, or clip_grad_norm_() before step()")
        self._underflow(optimizer, p, largest, zeros)
        count = kept.zero[id(p)] = 0 if largest else kept.zero.get(id(p), 0) + 1
        if count == DEAD_CHECKS and any(other for other in kept.first if other != id(p)):
            found("dead-layer", f"the gradients of {words_for([p], module_of(optimizer))} were zero throughout in "
                  f"{DEAD_CHECKS} steps in a row, while others were not", p._site, [("step() was called at", here())],
                  f"{p.numel():,} numbers are not trained",
                  "a relu in front of it gives zero for every input, or its result is multiplied by zero: look at the "
                  "initial values, the learning rate, or use a leaky_relu")

    def _underflow(self, optimizer, p, largest, zeros):
        kind = p._grad._spec.dtype
        if kind.name != "float16" or zeros < TINIEST_SHARE * p._spec.numel or largest > 1e-5 or p._spec.numel < 2:
            return
        found("underflow", f"{zeros} of {p._spec.numel} gradients of {words_for([p], module_of(optimizer))} are zero "
              f"and none is above {largest:.2g}: what is below 6e-8 is zero in float16", here(),
              [("the parameter was made at", p._site)], "these numbers are not trained",
              "scale the loss with torch.amp.GradScaler, or compute in bfloat16")

    # --- gradients that are not finite -------------------------------------------------------------------------------

    def _not_finite(self, optimizer, p, graph):
        """Say which derivative made the first gradient that is not finite from finite ones."""
        name = words_for([p], module_of(optimizer))
        node, incoming, made = _first_backward(*graph) if graph is not None else (None, None, None)
        if node is None:
            found("non-finite", f"the gradient of {name} is not finite, {Facts(p._grad)}", here(),
                  [("the parameter was made at", p._site)], "the step writes it into the parameters",
                  "watch the backward that made it, with flambeau.watch() around the whole loop")
            return
        found("non-finite", f"the derivative of {node.op.__name__.strip('_')} made the first gradient that is not "
              f"finite, {made}, from finite ones, {incoming}; what was kept of it: {_kept_words(node)}", node.site,
              [("step() was called at", here())], f"the gradient of {name} is {Facts(p._grad)}",
              CAUSES.get(node.op.__name__.strip("_"), GENERAL_FIX))


def _is_finite(tensor):
    return tensor._spec.device is not CPU and bool(tensor.detach().isfinite().all()) \
        or tensor._spec.device is CPU and Facts(tensor).finite


def _size_of(g):
    """(The largest absolute value, how many elements are zero.)"""
    if g._spec.device is not CPU:
        return g.detach().abs().amax().item() if g.numel() else 0.0, 0
    array = g._storage.value.ready().look(g._spec, g._offset)
    if not array.size:
        return 0.0, 0
    if array.dtype not in (np.float16, np.float32, np.float64):
        array = array.astype(np.float32)
    high, low = float(array.max()), float(array.min())
    largest = max(high, -low) if high == high and low == low else math.nan
    return largest, int(array.size - np.count_nonzero(array)) if array.dtype == np.float16 else 0


def _kept_words(node):
    said = [f"{'result' if at is None else node.op.arg_names[at]} {Facts(held)}" for at, held in kept_tensors(node)]
    return "; ".join(said) or "nothing"


def _first_backward(roots, kept):
    """(node, facts of what came in, facts of what it made): the first derivative that was not finite from finite."""
    released = [(node, node.kept) for node, _ in kept]
    try:
        for node, held in kept:
            node.kept = held
        with no_grad():
            return _walk(roots)
    except RuntimeError:                                  # written since: what it kept is no longer what it was
        return None, None, None
    finally:
        for node, held in released:
            node.kept = held


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
        for edge, g, kind in zip(node.edges, made, node.kinds, strict=False):
            if edge is None or g is None:
                continue
            if not _is_finite(g):
                return node, Facts(next(one for one in incoming if one is not None)), Facts(g)
            g = match_spec(g, kind) if g._spec is not kind else g
            slot = grads.setdefault(edge[0], {})
            slot[edge[1]] = slot[edge[1]] + g if edge[1] in slot else g
    return None, None, None


def _order(node):
    return -1 if isinstance(node, AccumulateGrad) else node.seq
