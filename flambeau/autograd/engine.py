"""The engine: walk the graph backwards once, each node after everything that reads from it.

Nodes run in the order of their making, latest first, as in PyTorch; nothing recurses, so a graph of any depth will
do. Broadcasting and dtype promotion are undone here, once, for every rule.
"""
import collections
import functools
import heapq
import itertools
import weakref
from collections.abc import Mapping

from ..base import observers, settings
from ..base.errors import here, line_of, name_of, user_frame, warn
from ..base.op import door
from ..base.spec import CPU, Size
from ..trace.recording.record import current, milestone
from ..trace.value import TensorBase
from .accumulate import accumulate, add, detached_copy, match_spec
from .base_node import AccumulateGrad
from .edges import edge_of, requires
from .graph import GradientEdge
from .modes import modes
from .node import OpNode
from .walk import count_readers, hold, on_the_way, run_nodes

_pass_numbers = itertools.count()
ROOTS_REMEMBERED = 16
HELD_BYTES = 8 << 20          # of what a backward read: so much may stay as it was while a step replaces it
recent_roots: collections.deque = collections.deque(maxlen=ROOTS_REMEMBERED)      # (weak reference, site), for watch


class BackwardPass:
    """One backward that is running: its number, the nodes that it will come to, and whether that is all of them."""

    __slots__ = ("number", "reached", "whole", "__weakref__")

    def __init__(self, reached, whole):
        self.number, self.reached, self.whole = next(_pass_numbers), reached, whole


def run_backward(roots, grads, retain_graph, create_graph, wanted=None, accumulate=True, site=None, older=None):
    """Push `grads` into the `roots` edges. `wanted`: edges whose gradient is returned (or fed, for backward(inputs)).

    Returns {edge: gradient} for the wanted edges. Leaves accumulate into `.grad` only when `accumulate` is true
    and, if `wanted` is given, only those among them. `site`: the line that asked, where that is known. `older`, a list,
    gets (node, what it had kept) of the nodes that were made of what has run before.
    """
    site = site or here()
    wanted = wanted if wanted is None else [edge for edge in wanted if edge is not None]
    readers = useful = reached = count_readers([node for node, _ in roots])
    capture: dict = {}                       # node → numbers of its outputs whose gradients are wanted
    for node, nr in wanted or ():
        capture.setdefault(node, set()).add(nr)
    targets = set(capture)
    if wanted is not None:
        useful, readers = on_the_way(readers, targets, accumulate)
        reached = useful | targets
    buffers: dict = {}
    for (node, nr), g in zip(roots, grads, strict=True):
        add(buffers, node, nr, g)
    captured: dict = {}
    if accumulate:
        recent_roots.append((weakref.ref(roots[0][0]), site))
    waiting = {node for node, _ in roots}
    ready = [(-node.seq, id(node), node) for node in waiting if node in reached and not readers.get(node)]
    heapq.heapify(ready)
    trace = current()
    emptied = trace.emptied if older is not None else -1
    before, around, outer, casting = modes.grad, modes.backward_pass, trace.site, modes.autocast
    this_pass = BackwardPass(reached, wanted is None and (around is None or around.whole))
    careful = modes.anomaly or observers.node_ran is not None      # nodes are looked at one by one
    try:
        modes.grad, modes.backward_pass, trace.site = create_graph, this_pass, outer or site
        trace.trains = True                              # also where it grows past its bound on the way
        modes.autocast = None                            # a gradient is of the dtype that its operation ran in
        if (tell := observers.backward_began) is not None:
            tell(this_pass)
        # Behind a call: see "Loops and interrupts" in CONTRIBUTING.md.
        run_nodes(ready, readers, buffers, None if wanted is None else reached, targets, careful, retain_graph,
                  create_graph, site, functools.partial(_run, capture, captured, useful, create_graph), emptied, older)
    finally:
        modes.grad, modes.backward_pass, modes.autocast = before, around, casting
        trace.site, trace.trains = outer, True
        if (tell := observers.backward_ended) is not None:
            tell(this_pass)
    return captured


def _run_tensor_hooks(node, gs):
    """What sees the gradient before anything else does: the tensors' own hooks, then retain_grad."""
    gs = list(gs)
    for nr, hooks in (node.tensor_hooks or {}).items():
        for hook in list(hooks.values()):
            if gs[nr] is None:
                break
            got = hook(gs[nr])
            if got is not None:
                gs[nr] = _given_by(hook, got, gs[nr])
    for nr, ref in (node.retained or {}).items():
        tensor = ref()
        # Written in place since, it has another node, and is retained there.
        if tensor is not None and gs[nr] is not None and tensor._node is node:
            g = gs[nr].clone() if modes.grad else detached_copy(gs[nr], gs[nr])
            tensor._grad = g if tensor._grad is None else tensor._grad + g
    return gs


def _run_node_hooks(hooks, gs, *more):
    """The gradients `gs` after the `hooks` of a node have seen them, and perhaps replaced them."""
    for hook in list(hooks.values()):
        got = hook(tuple(gs), *more)
        if got is not None:
            if not isinstance(got, tuple):
                raise TypeError(f"expected tuple, but hook returned '{type(got).__name__}'")
            if len(got) != len(gs):
                raise RuntimeError(f"hook '{getattr(hook, '__name__', hook)}' has returned an incorrect number of "
                                   f"values (got {len(got)}, but expected {len(gs)})")
            gs = [a if a is None else _given_by(hook, a, b) for a, b in zip(got, gs, strict=True)]
    return gs


def _given_by(hook, got, had):
    """What a hook gave in place of the gradient `had`, refused if it is of another kind."""
    name = getattr(hook, "__name__", hook)
    if not isinstance(got, door.tensor):
        raise TypeError(f"expected Variable, but hook returned '{type(got).__name__}' (hook '{name}')")
    if had is not None:
        if got._spec.dtype is not had._spec.dtype:
            raise RuntimeError(f"hook '{name}' has changed the type of value (was torch.{had._spec.dtype.cname}Tensor "
                               f"got torch.{got._spec.dtype.cname}Tensor)")
        if got._spec.shape != had._spec.shape:
            raise RuntimeError(f"hook '{name}' has changed the size of value: it was {list(had.shape)} and is "
                               f"{list(got.shape)}")
    return got


def _run(capture, captured, useful, create_graph, node, gs):
    """The gradients a node sends on, reduced to the shapes and dtypes of its inputs; None where none go on.

    Hooks are called here, and the gradients that were asked for taken out.
    """
    raw = gs
    if node.tensor_hooks or node.retained:
        gs = _run_tensor_hooks(node, gs)
    if node in capture:
        for nr in capture[node]:                 # as in PyTorch, hooks show in it only if the node does not run
            captured[node, nr] = (raw if node in useful else gs)[nr]
    if node not in useful:
        return None
    if node.pre_hooks:
        gs = _run_node_hooks(node.pre_hooks, gs)
    if node.__class__ is AccumulateGrad:
        if gs[0] is not None:
            accumulate(node, gs[0], create_graph)
        return None
    if not node.takes_none and (gs[0] is None if len(gs) == 1 else all(g is None for g in gs)):
        made = [None] * len(node.edges)
    else:
        try:
            made = node.backward(gs)
        except Exception as error:
            if modes.anomaly:
                _anomaly_note(node, error)
            raise
        if node.input_specs is not None:
            made = [g if g is None or edge is None or g._spec is spec else match_spec(g, spec)
                    for g, spec, edge in zip(made, node.input_specs, node.edges, strict=False)]
    if modes.anomaly and modes.check_nan:
        _check_nan(node, made)
    if not node.hooks:
        return made
    if isinstance(node, OpNode):                 # as in PyTorch, they are not shown what is not wanted
        made = [g if edge is None or edge[0] in useful or edge[0] in capture else None
                for g, edge in zip(made, node.edges, strict=True)]
    return _run_node_hooks(node.hooks, made, tuple(gs))


def _anomaly_note(node, error):
    error.add_note(f"The operation whose gradient failed is {node.name()}, made at {line_of(node.site)}.")


def _check_nan(node, made):
    for i, g in enumerate(made):
        if g is not None and g.dtype.category >= 2 and bool(g.isnan().any()):
            raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.\n  The operation "
                               f"was made at {line_of(node.site)}.")


# --- the public calls -------------------------------------------------------------------------------------------------


def _given_gradients(x, outputs):
    """The gradients that were given for so many outputs: one, None, or those of anything that can be gone through."""
    if x is None:
        return (None,) * outputs
    given = (x,) if isinstance(x, TensorBase) else tuple(x)
    for g in given:
        if g is not None and not isinstance(g, TensorBase):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
    if len(given) != outputs:
        raise RuntimeError(f"got {outputs} tensors and {len(given)} gradients")
    return given


class _EdgeAsTensor(TensorBase):
    """A gradient edge, looked at as the tensor that it stands for."""

    def __init__(self, edge):
        self._node, self._nr = edge.node, edge.output_nr
        self._spec = self._node.variable._spec if isinstance(self._node, AccumulateGrad) else self._node.outs[self._nr]
        self.shape, self.dtype = Size(self._spec.shape), self._spec.dtype

    def numel(self):
        return self._spec.numel

    def retain_grad(self):
        pass


def _as_tensors(x):
    """What is differentiated, or by what: tensors, or gradient edges instead of some."""
    if isinstance(x, TensorBase):
        return (x,)
    if isinstance(x, GradientEdge):
        return (_EdgeAsTensor(x),)
    return tuple([_EdgeAsTensor(end) if isinstance(end, GradientEdge) else end for end in x])


def _as_outputs(x):
    """What is differentiated."""
    outputs = _as_tensors(x)
    for out in outputs:
        if not isinstance(out, TensorBase):
            raise AssertionError(f"Expected output to be a torch.Tensor, but got {type(out).__name__}")
    return outputs


def _as_inputs(x, function):
    """What gradients are wanted of: tensors, gradient edges, any number of them, or a dictionary's values."""
    if isinstance(x, Mapping):
        if x.__class__ is not dict:
            raise TypeError(f"`inputs` argument to `{function}()` must be a dict, not {type(x).__name__}. Other "
                            "Mapping types are not supported.")
        x = x.values()
    inputs = _as_tensors(x)
    if not inputs:
        raise RuntimeError(f"`inputs` argument to `{function}()` cannot be empty.")
    for t in inputs:
        if not isinstance(t, TensorBase):
            raise RuntimeError(f"all inputs have to be Tensors or GradientEdges, but got {type(t).__name__}")
    return inputs


def _root_grads(outputs, grads, batched=False):
    """A gradient for each output: the given one checked, or ones for a scalar."""
    made = []
    for out, g in zip(outputs, grads, strict=True):
        if g is None:
            if requires(out):
                if out.numel() != 1:
                    raise RuntimeError("grad can be implicitly created only for scalar outputs" + _about(out) +
                                       "\n  Reduce it first (.sum(), .mean()), or give the gradient: "
                                       "backward(gradient=...).")
                if out.dtype.category < 2:
                    raise RuntimeError("grad can be implicitly created only for real scalar outputs but got "
                                       f"{out.dtype}")
                if out.dtype.is_complex:
                    raise RuntimeError("grad can be implicitly created only for real scalar outputs but got "
                                       f"{out.dtype}")
                g = door.operations["_full"](out._spec.shape, 1, out._spec.dtype, out._spec.device)
            made.append(g)
        else:
            shape = tuple(g.shape)[1:] if batched else tuple(g.shape)
            if shape != tuple(out.shape):
                raise RuntimeError(f"Mismatch in shape: grad_output[{len(made)}] has a shape of {g.shape} and "
                                   f"output[{len(made)}] has a shape of {out.shape}." + _about(out))
            if out.dtype.is_complex != g.dtype.is_complex:
                raise RuntimeError("For complex Tensors, both grad_output and output are required to have the same "
                                   f"dtype. Mismatch in dtype: grad_output[{len(made)}] has a dtype of {g.dtype} and "
                                   f"output[{len(made)}] has a dtype of {out.dtype}.")
            made.append(g if g.dtype is out.dtype else g.to(out.dtype))
    return made


def _about(tensor):
    name = name_of(tensor, user_frame()) or "the tensor"
    return f"\n  {name} is {tensor._spec}, made at {line_of(tensor._site)}."


def _roots(outputs):
    roots = []
    for i, out in enumerate(outputs):
        edge = edge_of(out)
        if edge is None:
            raise RuntimeError(f"element {i} of tensors does not require grad and does not have a "
                               "grad_fn" + _cut_words(out))
        roots.append(edge)
    return roots


def _cut_words(out):
    """Where the graph was cut, in words."""
    words = _about(out)
    if out._cut is not None:
        what, site = out._cut
        words += (f"\n  The graph was cut at {line_of(site)} by {what}.\n  Take that step out, or put something "
                  "differentiable in its place.")
    else:
        words += ("\n  Nothing that it was made from requires grad (what went through .item(), .tolist() or NumPy has "
                  "no history).\n  Set requires_grad=True on the tensors to differentiate, before the forward pass.")
    return words


def _wanted_edges(inputs):
    """The edge of each input; None where no gradient can come: a view that was made without history."""
    edges = []
    for t in inputs:
        edge = edge_of(t)
        if edge is None and not requires(t):
            raise RuntimeError("One of the differentiated Tensors does not require grad" + _about(t) +
                               "\n  Call requires_grad_() on it before the forward pass.")
        edges.append(edge)
    return edges


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None):
    """Add the gradients of `tensors` into the leaves' `.grad` (only the `inputs`, if given)."""
    if inputs is not None:
        inputs = _as_inputs(inputs, "backward")
    tensors = _as_outputs(tensors)
    given = _given_gradients(grad_tensors, len(tensors))
    if not tensors:
        return
    grads = _root_grads(tensors, given)
    roots = _roots(tensors)
    wanted = None
    if inputs is not None:
        wanted = _wanted_edges(inputs)
        for t in inputs:
            t.retain_grad()                                        # which gives a non-leaf its .grad
    if roots[0][0].__class__ is AccumulateGrad and tensors[0].__class__ is door.tensor:
        door.noticed("backward_at_leaf", tensors[0])
    if (tell := observers.backward_called) is not None:
        tell(tensors)
    retain = create_graph if retain_graph is None else retain_graph
    if create_graph:
        warn_of_cycle()
    site = here()
    older = [] if settings.watch != "off" else None
    run_backward(roots, grads, retain, create_graph, wanted, site=site, older=older)
    (trace := current()).backward = None
    if older is not None and trace.reader is None and (root := tensors[0]).__class__ is not _EdgeAsTensor \
            and root._spec.device is CPU:            # on other devices to look at a loss is to wait for it
        hold(trace, root, site, older, HELD_BYTES)
    milestone(settings.trace_instructions // 4)


@functools.cache                           # once in a process, as in PyTorch
def warn_of_cycle():
    """Say what `create_graph=True` does to the leaves' `.grad`."""
    warn("Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient "
         "which can cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this. If "
         "you have to use this function, make sure to reset the .grad fields of your parameters to None after use to "
         "break the cycle and avoid the leak.")


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True,
         allow_unused=None, is_grads_batched=False, materialize_grads=False):
    """The gradients of `outputs` for each of `inputs`, without touching any `.grad`; a dictionary of a dictionary."""
    names = list(inputs) if inputs.__class__ is dict else None
    outputs, inputs = _as_outputs(outputs), _as_inputs(inputs, "grad")
    given = _given_gradients(grad_outputs, len(outputs))
    options = {"retain_graph": (create_graph if retain_graph is None else retain_graph) or modes.other_slices,
               "create_graph": create_graph, "allow_unused": allow_unused, "materialize_grads": materialize_grads}
    made = door.batching.grad(outputs, inputs, given, is_grads_batched, options) if modes.levels else None
    if made is None:
        made = _grad_batched(outputs, inputs, given, options) if is_grads_batched else \
            grad_of_plain(outputs, inputs, given, **options)
    return made if names is None else dict(zip(names, made, strict=True))


def grad_of_plain(outputs, inputs, given, retain_graph, create_graph, allow_unused, materialize_grads):
    """`grad` with its arguments in order: a tuple."""
    if materialize_grads:
        if allow_unused is False:
            raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
                             "allow_unused=False.")
        allow_unused = True
    grads = _root_grads(outputs, given)
    roots = _roots(outputs)
    wanted = _wanted_edges(inputs)
    captured = run_backward(roots, grads, retain_graph, create_graph, wanted, accumulate=False)
    made = []
    for t, edge in zip(inputs, wanted, strict=True):
        g = captured.get(edge)
        if g is None:
            if materialize_grads:
                if isinstance(t, _EdgeAsTensor):
                    raise RuntimeError("materialize_grads cannot be used when the given input is a GradientEdge")
                g = door.operations["zeros_like"](t).requires_grad_()        # so that it can be differentiated again
            elif not allow_unused:
                raise RuntimeError(f"The differentiated Tensor at index {len(made)} appears to not have been used in "
                                   "the graph. Set allow_unused=True if this is the desired behavior." + _about(t))
        made.append(g if g is None or create_graph or not requires(g) else g.detach())
    return tuple(made)


def _grad_batched(outputs, inputs, given, options):
    """One backward per row of the batched gradients, stacked."""
    rows = len(given[0])
    _root_grads(outputs, given, batched=True)
    each = [grad_of_plain(outputs, inputs, tuple(None if g is None else g[i] for g in given),
                          **{**options, "retain_graph": options["retain_graph"] or i < rows - 1}) for i in range(rows)]
    return tuple(None if column[0] is None else door.operations["stack"](column) for column in zip(*each, strict=True))
