"""The backward of a replayed call whose result still has its graph.

While a call is recorded, the backward of such results is recorded after it, from gradients that stand for those to
come. A replay computes what that backward reads besides the results, and gives them one node; when a gradient comes to
it, the node replays the backward.
"""
import sys
from contextlib import contextmanager, nullcontext

import numpy as np

from ..autograd import engine
from ..autograd.base_node import AccumulateGrad, Node
from ..autograd.edges import edge_of, requires
from ..autograd.function import FunctionCtx
from ..autograd.modes import modes
from ..autograd.node import Kept, flat, second_error, written_error
from ..backends.cpu.random.default_streams import Positions
from ..base.errors import line_of
from ..base.layout import contiguous_format
from ..base.spec import spec as make_spec
from ..tensor.create import from_array
from ..tensor.tensor import Tensor, wrap
from ..trace.recording.instructions import needed_for, slots_made
from ..trace.running.effects import standing_in
from ..trace.running.runner import numbering
from ..trace.value import Storage
from .journal import TooEarly
from .replay import Runner

FOLLOWED_BACKWARD = "followed"    # `own_backward` of a Function whose backward tells a Follower what it does


def graph_of(tensors, bounds=()):
    """The nodes that `tensors` came through, up to leaves and the nodes `bounds`."""
    stack, found = [t.grad_fn for t in tensors if t.grad_fn is not None], {}
    while stack:
        node = stack.pop()
        if node in found or node in bounds or isinstance(node, AccumulateGrad):
            continue
        found[node] = None
        stack += [edge[0] for edge in node.edges if edge is not None]
    return list(found)


def runs_own_code(node):
    """Why the backward of a node may not be recorded ahead of its time, in words; None where it may be tried.

    Code of the program's that is not followed is to run when the backward does, and to see things as they are then.
    """
    if isinstance(node, FunctionCtx) and node.function.own_backward is True:
        return f"{node.name()}, made at {line_of(node.site)}, is to run when its backward does: call backward inside " \
               "of the compiled function"
    if any(isinstance(kept, Kept) and kept.packed is not None for kept in flat(getattr(node, "kept", None) or ())):
        return f"{node.name()}, made at {line_of(node.site)}, has what it keeps unpacked by a hook, or computed " \
               "again by a checkpoint, when its backward runs: call backward inside of the compiled function"
    return None


def is_live(tensor):
    """Whether a backward from `tensor` could still run."""
    used = False
    for node in graph_of([tensor]):
        if node.released is not None:
            used = True
        elif getattr(node, "recipe", None) is None or node.recipe.saves:
            return True
    return not used


@contextmanager
def undrawn(recording):
    """What is drawn at random inside will be drawn again by the next run."""
    drawn, watching = len(recording.draws), sys.getprofile()
    sys.setprofile(None)                          # no part of the call: see watch.py
    streams, of_numpy = Positions(), np.random.get_state(legacy=False) if "numpy.random" in sys.modules else None
    sys.setprofile(watching)
    try:
        yield
    finally:
        sys.setprofile(None)
        if len(recording.draws) != drawn:
            streams.restore()
        if of_numpy is not None:
            np.random.set_state(of_numpy)
        sys.setprofile(watching)


class Differentiated:
    """The backward that was recorded after a call: from `incoming` gradients of `live` results to those of `bounds`."""

    def __init__(self, live, journal, recording):
        self.live, self.reason, known = live, None, journal.tensors.values()
        self.code = []                            # Edges of functions, classes and modules that it has read
        self.split = recording.mark()              # where the backward begins
        self.first = len(recording.values)
        self.bounds = [t for t, _ in known if requires(t) and edge_of(t) is not None]
        before = len(recording.draws)
        bounds = {edge_of(t)[0] for t in self.bounds}
        self._leave_those_behind_others(bounds)
        nodes = graph_of(live, bounds)
        hooked = next((node for node in nodes if node.hooked), None)
        self.reason = self.reason or next(filter(None, map(runs_own_code, nodes)), None)
        if self.reason is not None:
            return
        if hooked is not None:
            self.reason = f"there is a hook on {hooked.name()}, made at {line_of(hooked.site)}"
            return
        given = [from_array(np.zeros(t._spec.shape, t._spec.dtype.np), where=t._spec.device) for t in live]
        self.incoming = {g._storage.value: i for i, g in enumerate(given)}
        checks = len(recording.checks)
        hooks = [(node, node.tensor_hooks, node.retained) for node in bounds]
        own_rules = any(isinstance(node, FunctionCtx) for node in nodes)
        try:
            for node in bounds:                   # these hooks see the gradient after the backward of a replay
                node.tensor_hooks = node.retained = None
            journal.ahead = self.code if own_rules else None
            with standing_in(), undrawn(recording) if journal.ahead is not None else nullcontext():
                self.grads = engine.grad(live, self.bounds, given, retain_graph=True, allow_unused=True)
        except (Exception, TooEarly) as error:    # it will be raised again by the backward of an ordinary call
            self.reason = f"its backward raises {type(error).__name__}: {error}"
        finally:
            journal.ahead = None
            for node, hooked, retained in hooks:
                node.tensor_hooks, node.retained = hooked, retained
        if journal.too_early is not None:         # though the program may have caught it
            names = ", ".join(dict.fromkeys(node.name() for node in nodes if isinstance(node, FunctionCtx)))
            self.reason = f"{journal.too_early} in its backward ({names}), which has to happen when the backward " \
                          "runs: call backward inside of the compiled function"
        if self.reason is not None:
            return
        del recording.checks[checks:]              # of positions that the call itself has checked
        if len(recording.draws) != before:
            self.reason = "its backward draws random numbers"

    def _leave_those_behind_others(self, bounds):
        """Keep the bounds that the results reach by themselves; one that only others reach gets its gradient by them.

        A gradient that came to one bound through another would be counted again by the history of that other one.
        """
        reached = {edge for node in graph_of(self.live, bounds) for edge in node.edges if edge is not None}
        reached |= {edge_of(t) for t in self.live}
        self.bounds = [t for t in self.bounds if edge_of(t) in reached]
        edges = {edge_of(t) for t in self.bounds}
        for t in self.bounds:
            behind = {edge for node in graph_of([t]) for edge in node.edges} & edges
            if behind - {edge_of(t)}:
                self.reason = "it is computed from two tensors of which one was computed from the other"

    def held(self, trace):
        """The slots of results that the graph itself holds."""
        found = set()
        for node in graph_of(self.live):
            kept = getattr(node, "kept", None)
            for thing in (*flat(kept or ()), kept, *vars(node).values()):
                storage = thing.storage if isinstance(thing, Kept) else getattr(thing, "_storage", thing)
                if isinstance(storage, Storage) and storage.value is not None and storage.value.trace is trace:
                    found.add(storage.value.slot)
        return found


def effect_slots(code):
    """The slots of what operations with effects give: they are wanted, whether or not they are read."""
    return [slot for one in code if one.entry.op.effect for slot in one.results()]


class Gradient:
    """How a replayed call is differentiated: what its node keeps, and the instructions of its backward.

    A gradient is told by a slot: of what the backward makes, of what the call made or read, or of what comes in.
    """

    def __init__(self, diff):
        trace, done = diff.trace, diff.capture.differentiated
        code = trace.code[done.split:]
        pairs = [(t, g) for t, g in zip(done.bounds, done.grads, strict=True) if g is not None]
        self.live, self.bounds = done.live, [t for t, _ in pairs]
        # A tensor gets a gradient only if one comes for a result that it is part of.
        parts = [{edge for node in graph_of([t]) for edge in node.edges} | {edge_of(t)} for t in done.live]
        self.part_of = [[i for i, edges in enumerate(parts) if edge_of(t) in edges] for t in self.bounds]
        self.gives = [(self._slot(g._storage.value, trace), g._spec, g._offset) for _, g in pairs]
        made = slots_made(code).keys()
        wanted = {slot for slot, *_ in self.gives} | set(effect_slots(code))
        _, live = needed_for(wanted, code)
        ready = {slot: value for value, slot in trace.slots.items()}
        self.takes, self.coming, fixed = [], [], []          # (slot, source), (slot, which result's), (slot, Value)
        for slot in sorted(live - made):
            origin, what = diff.origin(ready[slot], "a gradient") if slot in ready else ("made", slot)
            (self.coming if origin == "incoming" else fixed if origin == "constant" else self.takes).append(
                (slot, (origin, what) if origin not in ("incoming", "constant") else what))
            if origin == "made":
                diff.needs[slot] = None
        self.fixed = tuple(value for _, value in fixed)
        order = {name: i for i, name in enumerate(dict.fromkeys(trace.numbers.values()))}
        self.runner = Runner(code, [v.spec for v in trace.values], [s for s, _ in (*self.takes, *self.coming, *fixed)],
                             tuple(sorted(wanted & made)), (),
                             {(index - done.split, n): order[name] for (index, n), name in trace.numbers.items()
                              if index >= done.split})
        self.code = [(edge, edge.child) for edge in done.code]
        self.input_specs = tuple(t._spec for t in self.bounds)
        self.incoming = tuple(make_spec(t._spec.dtype, t._spec.shape) for t in done.live)
        self.site = done.live[0]._site

    @staticmethod
    def _slot(value, trace):
        return value.slot if value.trace is trace else trace._slot(value)

    def attach(self, outs, kept, bounds, watched, numbers):
        """Give `outs` the node of this replay."""
        node = CompiledBackward()
        node.gradient, node.kept, node.numbers = self, kept, numbers
        node.watched = [(storage, storage.version) for storage in watched]
        node.edges, node.input_specs = [edge_of(t) for t in bounds], self.input_specs
        node.n_outputs, node.site = len(outs), self.site
        for nr, out in enumerate(outs):
            out._node, out._nr = node, nr
        node._tell_made()

    def run(self, node, grads):
        """The gradients of the bounds, from those of the results."""
        runner = self.runner
        given = [arranged(g, spec) for g, spec in zip(grads, self.incoming, strict=True)]
        values = (*node.kept, *[given[i] for _, i in self.coming], *self.fixed)
        made = [None] * (len(runner.wanted) + 1)
        if runner.wanted:
            runner.run(values, node.numbers, made)
        found = dict(zip(runner.inputs, values, strict=True)) | dict(zip(runner.wanted, made))
        out = []
        for (slot, spec, offset), results in zip(self.gives, self.part_of, strict=True):
            if all(grads[i] is None for i in results):
                out.append(None)
                continue
            value = found[slot]
            out.append(wrap(Storage.of(value, value.spec.nbytes, value.spec.device), spec, offset))
            out[-1]._site = node.site
        return out


def arranged(g, spec):
    """The Value of a gradient, laid out as the recorded backward reads it; zeros where none came."""
    if g is None:
        return from_array(np.zeros(spec.shape, spec.dtype.np), where=spec.device)._storage.value
    value = g._storage.value
    if g._spec is not spec or g._offset or value.spec is not spec:
        g = g.detach().clone(memory_format=contiguous_format)
        value = g._storage.value
    return value.ready()


class CompiledBackward(Node):
    """The node of a replayed call: one for all of its results."""

    takes_none = True

    def backward(self, grads):
        if self.kept is None:
            raise second_error(self)
        if modes.grad:
            raise RuntimeError("create_graph=True: the backward of a compiled function is a recording, and has no "
                               f"graph of its own. The result was made at {line_of(self.site)}; call the function "
                               "without compile to differentiate twice.")
        for storage, version in self.watched:
            if storage.version != version:
                kept = Kept()
                kept.storage, kept.version, kept.spec, kept.offset = storage, version, storage.value.spec, 0
                raise written_error(kept, self)
        for edge, child in self.gradient.code:
            if edge.read() is not child:
                raise RuntimeError(f"{edge.path} is another one now than when the compiled function was recorded, "
                                   f"whose result was made at {line_of(self.site)}: its backward would still call the "
                                   "old one; call backward inside of the compiled function, or compile it again")
        if all(g is None for g in grads):
            return [None] * len(self.edges)
        return self.gradient.run(self, grads)

    def differentiable_out(self, nr):
        return True

    def release(self, site):
        self.kept, self.released = None, site

    def __init__(self):
        self.seq = next(numbering)


def tensors_in(out):
    """The tensors in a result, however it holds them."""
    stack, found, seen = [out], {}, set()
    while stack:
        thing = stack.pop()
        if isinstance(thing, Tensor):
            found[id(thing)] = thing
        elif id(thing) not in seen:
            seen.add(id(thing))
            if isinstance(thing, (list, tuple, set)):
                stack.extend(thing)
            elif isinstance(thing, dict):
                stack.extend(thing.values())
            elif hasattr(type(thing), "__dataclass_fields__"):
                stack.extend(vars(thing).values() if hasattr(thing, "__dict__") else ())
    return list(found.values())
