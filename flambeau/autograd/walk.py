"""The walk of a backward: from node to node, and in each the rules of its operation; and what is held of it afterwards.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""
import heapq
import itertools
from operator import attrgetter
from weakref import ref

from ..base import observers
from ..base.op import door
from ..trace.recording.backward_recording import HeldRecording
from ..trace.value import Storage
from .accumulate import accumulate, add, match_spec
from .base_node import AccumulateGrad
from .node import LIST, NUMBER, OUT, SPEC, TENSOR, Kept, OpNode, second_error


def count_readers(roots):
    """How many readers each node has among those that a backward from `roots` comes to."""
    readers = dict.fromkeys(roots, 0)
    stack = list(readers)
    while stack:
        node = stack.pop()
        for edge in node.edges:
            if edge is not None:
                parent = edge[0]
                if parent in readers:
                    readers[parent] += 1
                else:
                    readers[parent] = 1
                    stack.append(parent)
    return readers


_seq_of = attrgetter("seq")


def on_the_way(readers, targets, run_targets):
    """Of the nodes in `readers` those that must run for a gradient of the `targets` to come about, and how many readers
    each node has among them. With `run_targets` these run too."""
    useful = set(targets) if run_targets else set()
    # A node is useful when any of its edges leads to a target or a useful node; parents were made before. Readers that
    # will not run must not be waited for.
    left = {}
    for node in sorted(readers, key=_seq_of):          # leaves come last, and have no edges
        runs = node in useful
        for edge in node.edges:
            if edge is not None and (edge[0] in targets or edge[0] in useful):
                useful.add(node)
                runs = True
                break
        if runs:
            for edge in node.edges:
                if edge is not None:
                    left[edge[0]] = left.get(edge[0], 0) + 1
    return useful, left


def run_nodes(ready, readers, buffers, reached, targets, careful, retain_graph, create_graph, site, run_with_hooks,
              emptied, older):
    """Run the nodes in the heap `ready`, and those that become so: a node is when all its `readers` have run.

    Only nodes in `reached` are come to, all if it is None, and `targets` are those among them whose gradients the
    caller asked for. These, nodes with hooks, and all nodes where one has to be `careful`, are run by the engine's
    function `run_with_hooks`. What nodes had kept that were made before the number `emptied` goes to the list `older`.
    """
    node = gs = None
    while node is not None or ready:
        if node is None:
            node = heapq.heappop(ready)[2]
            gs = buffers.pop(node, None) or [None] * node.n_outputs
        edges = node.edges
        if type(node) is OpNode and not careful and not node.hooked and gs[0] is not None \
                and (reached is None or node not in targets):
            recipe = node.recipe
            made, specs = gradients_of(node, gs), recipe.input_specs
            if not retain_graph and recipe.saves:
                if node.seq < emptied:
                    older.append((node, node.kept))
                node.kept, node.released = None, site
            if len(edges) == 1 and edges[0] is not None:
                target, g = edges[0][0], made[0]
                if readers[target] == 1 and target not in buffers and target.n_outputs == 1 \
                        and (not ready or -target.seq < ready[0][0]) and type(target) is not AccumulateGrad:
                    if g is not None and g._spec is not specs[0]:
                        g = match_spec(g, specs[0])
                    node, gs = target, [g]           # a chain: straight on, nothing else is due before it
                    continue
        else:
            start = observers.clock() if observers.node_ran is not None else 0
            made = run_with_hooks(node, gs)
            if start and (tell := observers.node_ran) is not None:
                tell(node, start, observers.clock())
            if made is None:
                node = None
                continue
            if not retain_graph:
                if node.seq < emptied and isinstance(node, OpNode):
                    older.append((node, node.kept))
                node.release(site)
            specs = node.input_specs or itertools.repeat(None)
        node = None
        for edge, g, spec in zip(edges, made, specs, strict=False):
            if edge is None:
                continue
            target, nr = edge
            if reached is not None and target not in reached:
                continue
            if g is not None and spec is not None and g._spec is not spec:
                g = match_spec(g, spec)
            readers[target] = left = readers[target] - 1
            if left == 0 and type(target) is AccumulateGrad and g is not None and target not in buffers \
                    and not careful and not target.hooked and (reached is None or target not in targets):
                accumulate(target, g, create_graph)         # a leaf's turn is as soon as it is ready
                continue
            if g is not None:
                add(buffers, target, nr, g)
            if left == 0:
                heapq.heappush(ready, (-target.seq, id(target), target))


def gradients_of(node, grads):
    """The gradient of each input that wants one, in the order of `edges`."""
    if node.kept is None:
        raise second_error(node)
    if node.recipe.follows:
        return door.gradients(node, grads)
    return by_rules(node, grads, None)


def by_rules(node, grads, fetched):
    """The same, by the rules of its operation. `fetched`: what they want, if that was fetched before."""
    g = grads[0] if node.n_outputs == 1 else grads
    recipe = node.recipe
    if recipe.single_rule is not None:
        rule, how, what = recipe.single_rule
        return [rule(g) if how is None else rule(g, wanted_by(node, how, what, fetched))]
    if recipe.op.joint is not None:
        _, rule, wanted = recipe.steps[0]
        out = rule(g, recipe.live, *[wanted_by(node, how, what, fetched) for how, what in wanted])
        out = out if isinstance(out, (tuple, list)) else (out,)
        return [out[i] for i in recipe.inputs]
    out = [None] * len(recipe.inputs)
    for index, rule, wanted in recipe.steps:
        if not wanted:
            made = rule(g)
        elif len(wanted) == 1:
            how, what = wanted[0]
            made = rule(g, wanted_by(node, how, what, fetched))
        else:
            made = rule(g, *[wanted_by(node, how, what, fetched) for how, what in wanted])
        if index.__class__ is int:
            out[index] = made
        else:
            for p, part in zip(index, made, strict=True):
                if p is not None:
                    out[p] = part
    return out


def wanted_by(node, how, what, fetched):
    """One argument that a rule asks for, which may have been fetched before."""
    return fetch(node, how, what) if fetched is None or how == SPEC else fetched[how, what]


def fetch(node, how, what):
    """One argument that a rule asks for."""
    if how == TENSOR:
        kept = node.kept if what is None else node.kept[what]
        if type(kept) is Kept:
            return kept.unpack(node)
        tensor, storage, version, maker = kept                        # see Note [What is kept] in node.py
        if storage.version == version and storage.fingerprint is None and tensor._node is maker:
            return tensor
        if storage.version == version and maker is not None and tensor._node is None:
            raise RuntimeError("Trying to use a saved tensor that has been detached in-place, i.e. with "
                               ".detach_(). This is not supported, please use out-of-place `.detach()` instead")
        return Kept.of_input(*kept).unpack(node)
    if how == SPEC:
        return what
    if how == LIST:
        return tuple([h if h is None else h.unpack(node) for h in node.kept[what]])
    if how == NUMBER:
        return node.kept[what]
    if how == OUT and node.n_outputs == 1:
        kept = node.kept[-1]
        if type(kept) is not Kept:
            storage, version, spec, offset = kept                     # see Note [What is kept] in node.py
            if storage.version == version and storage.fingerprint is None:
                tensor = door.wrap(storage, spec, offset)
                if spec.dtype.category >= 2:
                    tensor._node, tensor._nr = node, 0
                return tensor
    return node.result(what)


class _Methods:
    """The same as methods of a node."""

    def backward(self, grads):
        return gradients_of(self, list(grads))

    def fetch(self, how, what):
        return fetch(self, how, what)


OpNode.backward, OpNode.fetch = _Methods.backward, _Methods.fetch


def hold(trace, root, site, older, max_bytes):
    """Hold what was recorded, forward and backward, until a step was taken with it and all was well.

    Until then the parameters are there twice. Where they and the data are more than `max_bytes`, the recording is run
    before the step is recorded, and the step writes where they stand; it is let go before anything else runs, so that
    who takes no step does not keep a batch in memory beside the next one. `older` are the nodes of what had run before,
    and what they kept.
    """
    value = root._storage.value
    pending = value.trace is trace
    large = trace.held + trace.weighed > max_bytes
    if not pending and large:
        return
    recording = HeldRecording.__new__(HeldRecording)
    recording.code, recording.count, recording.inputs = trace.code, len(trace.code), trace.slots.copy()
    recording.root, recording.slot, recording.site = ref(root), value.slot if pending else None, site
    recording.large, recording.older = large, ()
    if older:                                # whose tensors the backward has read, and the recording holds anyway
        recording.older = older, values_now(older)
    if large:
        trace.run()
    trace.backward = recording


def values_now(older):
    """{storage: its Value} of the tensors that nodes had kept: a step will give some of the storages another."""
    found = {}
    for node, kept in older:
        for one in (kept,) if node.recipe.only_kept is not None or kept is None else kept:
            if one.__class__ is tuple and len(one) == 4:                  # see Note [What is kept] in node.py
                storage = one[0] if one[0].__class__ is Storage else one[1]
            else:
                storage = one.storage if one.__class__ is Kept else None
            if storage.__class__ is Storage and storage.value.trace is None:
                found[storage] = storage.value
    return found
