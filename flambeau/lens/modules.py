"""Which module made a node of the graph: noted while the forward runs, or told afterwards from the parameters.

    with lens.naming(model):
        loss = criterion(model(x), y)
    lens.graph(loss)                      # every node in the box of its module

Without `naming`, the modules of the nodes that read a parameter are known from the model, which is given, or is a
variable of the program; the others lie in the module that those around them have in common.
"""
import contextlib

from ..autograd.base_node import AccumulateGrad
from ..base.observers import Observer, observing
from ..nn import Module
from ..watch.holders import variables

MODULE_KEY = "flambeau.lens.module"           # of a node's metadata


@contextlib.contextmanager
def naming(model, name=None):
    """Have the nodes that `model` makes inside know their module; `name` is what it is called, if not as its class."""
    noted = ModuleNotes()
    top = name or type(model).__name__
    with contextlib.ExitStack() as undo:
        for path, module in model.named_modules():
            whole = f"{top}.{path}" if path else top
            undo.callback(module.register_forward_pre_hook(
                lambda module, args, whole=whole: noted.stack.append(whole)).remove)
            undo.callback(module.register_forward_hook(lambda *_: noted.stack.pop() and None,
                                                       always_call=True).remove)
        undo.enter_context(observing(noted, only_this_thread=True))
        yield


class ModuleNotes(Observer):
    """Notes in each node that is made which module is being called."""

    def __init__(self):
        self.stack = []

    def node_made(self, node):
        if self.stack:
            node.metadata[MODULE_KEY] = self.stack[-1]


def model_behind(nodes):
    """The module, of those that are variables of the program, that has most of the leaves; None if none has any."""
    leaves = {id(node.variable) for node in nodes if isinstance(node, AccumulateGrad)}
    best, most = None, (0, 0)
    for _, _, value in variables():
        if isinstance(value, Module):
            own = [id(p) for p in value.parameters()]
            has = len(leaves.intersection(own)), -len(own)         # of two with as many, the smaller
            best, most = (value, has) if has > most and has[0] else (best, most)
    return best


def modules_of(nodes, model):
    """{node: module} of `nodes`, each before those that it reads from; what is not known is left out."""
    known = {node: node._metadata[MODULE_KEY] for node in nodes
             if node._metadata is not None and MODULE_KEY in node._metadata}
    if known or model is None:
        return known | _leaves(nodes, known)
    top = type(model).__name__
    owners = {id(one): f"{top}.{path.rpartition('.')[0]}".rstrip(".") for path, one in model.named_parameters()}
    for node in nodes:
        for edge in node.edges:
            if edge is not None and isinstance(edge[0], AccumulateGrad) and id(edge[0].variable) in owners:
                known[node] = owners[id(edge[0].variable)]
    for node in nodes:
        if isinstance(node, AccumulateGrad) and id(node.variable) in owners:
            known[node] = owners[id(node.variable)]
    return known | _between(nodes, known)


def _leaves(nodes, known):
    """{leaf: module} of leaves that nodes of one module alone read."""
    readers: dict = {}
    for node in nodes:
        for edge in node.edges:
            if edge is not None and isinstance(edge[0], AccumulateGrad):
                readers.setdefault(edge[0], set()).add(known.get(node))
    return {leaf: module for leaf, (module, *more) in readers.items() if module and not more}


def _between(nodes, known):
    """{node: module} of nodes that lie between others whose module is known."""
    behind, before = {}, {}                       # what is known next in either direction, as far as it agrees
    for node in reversed(nodes):                  # inputs first
        if not isinstance(node, AccumulateGrad):
            sources = [edge[0] for edge in node.edges if edge is not None and not isinstance(edge[0], AccumulateGrad)]
            behind[node] = _common([known.get(one) or behind.get(one) for one in sources])
    for node in nodes:
        before.setdefault(node, None)
        for edge in node.edges:
            if edge is not None:
                mine = known.get(node) or before[node]
                before[edge[0]] = _common([mine, before.get(edge[0])])
    return {node: both for node in nodes if node not in known and behind.get(node) and before.get(node)
            and (both := _common([behind[node], before[node]]))}


def _common(paths):
    """The module that all of these lie in; of what is None nothing is known."""
    paths = [path.split(".") for path in paths if path]
    if not paths:
        return None
    same = []
    for parts in zip(*paths):
        if len({*parts}) > 1:
            break
        same.append(parts[0])
    return ".".join(same) or None
