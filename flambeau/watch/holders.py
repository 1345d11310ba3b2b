"""Who keeps a graph alive: the variables of the program's frames from which its nodes can be reached."""
import re
import sys
from linecache import getline

from ..base.errors import PACKAGE
from ..tensor.tensor import Tensor
from .finding import found

CONTAINERS = (list, tuple, set, dict)
ITEMS_LOOKED_AT = 10_000      # of a list or a dictionary


class Holder:
    """A variable that keeps graphs alive: its `name`, the frame it is in, and the tensors it holds."""

    def __init__(self, name, frame, tensors, container):
        self.name, self.frame, self.tensors, self.container = name, frame, tensors, container


def nodes_behind(tensors):
    """The nodes that the tensors came through."""
    seen = {t._node for t in tensors if t._node is not None}
    stack = list(seen)
    while stack:
        for edge in stack.pop().edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                stack.append(edge[0])
    return seen


def kept_bytes(nodes):
    """The bytes of what the nodes keep for a backward."""
    storages = {}
    for node in nodes:
        kept = getattr(node, "kept", None)
        for one in (kept,) if kept.__class__ is tuple and kept and isinstance(kept[0], Tensor) else kept or ():
            storage = getattr(one, "storage", None)
            if one.__class__ is tuple and len(one) == 4:
                storage = one[1] if isinstance(one[0], Tensor) else one[0]
            if storage is not None:
                storages[id(storage)] = storage.nbytes
    return sum(storages.values())


def tensors_in(value):
    """The tensors with a history that a value is, or that a container or an object holds; and whether it is one."""
    if isinstance(value, Tensor):
        return ([value] if value._node is not None else []), False
    if hasattr(value, "__len__") and not isinstance(value, (str, bytes)) and isinstance(value, CONTAINERS) \
            or value.__class__.__name__ == "deque":
        items = value.values() if isinstance(value, dict) else value
        found = []
        for at, item in enumerate(list(items)):
            if at >= ITEMS_LOOKED_AT:
                break
            for one in item if isinstance(item, (tuple, list)) else (item,):
                if isinstance(one, Tensor) and one._node is not None:
                    found.append(one)
        return found, True
    return [], False


def variables():
    """(name, frame, value) of the variables in the program's frames, innermost first; of objects their attributes."""
    frame, globals_seen = sys._getframe(1), set()
    while frame is not None:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            scopes = [frame.f_locals]
            if id(frame.f_globals) not in globals_seen:
                globals_seen.add(id(frame.f_globals))
                scopes.append(frame.f_globals)
            for scope in scopes:
                for name, value in list(scope.items()):
                    if name.startswith("__"):
                        continue
                    yield name, frame, value
                    inside = getattr(value, "__dict__", None)
                    if inside.__class__ is dict and not isinstance(value, (type, type(sys), Tensor)):
                        for attribute, inner in list(inside.items()):
                            yield f"{name}.{attribute}", frame, inner
        frame = frame.f_back


def find_holder(node):
    """The variable from which `node` can be reached, a single tensor before a container; None if there is none."""
    best = None
    for name, frame, value in variables():
        tensors, container = tensors_in(value)
        if not tensors or best is not None and container:
            continue
        if node in nodes_behind(tensors):
            if not container:
                return Holder(name, frame, tensors, False)
            best = Holder(name, frame, tensors, True)
    return best


def line_that_fills(holder):
    """(code, offset) of the line that puts tensors into a container: the first of its frame that appends to it."""
    code, name = holder.frame.f_code, re.escape(holder.name.rpartition(".")[2])
    fills = re.compile(rf"\b{name}\b\s*(\.append|\.add|\.extend|\.insert|\.update|\[[^\]]*\]\s*=[^=]|\+=)")
    for start, _, number in code.co_lines():
        if number and fills.search(getline(code.co_filename, number)):
            return code, start
    return None


def tell_old_graphs(old, steps):
    """Say that the graphs of these roots, (node, site of their backward), outlived their step."""
    holder = find_holder(old[0][0])
    backward = old[0][1]
    if holder is None:
        behind, site, words, fix = {node for node, _ in old}, backward, "something that is not a variable of the " \
            "running functions holds it", "keep loss.item(), or loss.detach(), in place of the loss"
    else:
        behind = nodes_behind(holder.tensors)
        if holder.container:
            site = line_that_fills(holder) or holder.tensors[-1]._site
            words = f"`{holder.name}` holds {len(holder.tensors)} tensors with their graphs"
            fix = f"put loss.item(), or loss.detach(), into `{holder.name}`"
        else:
            site = holder.tensors[0]._node.site
            words = f"`{holder.name}` was computed from the results of earlier steps, and holds their graphs"
            fix = f"add loss.item(), or loss.detach(), to `{holder.name}`"
    nbytes = kept_bytes(behind)
    found("old-graph", f"{len(old)} of the latest backward passes, each at least two steps old, still have their "
          f"graph: {words}", site, [("backward() was called at", backward)],
          f"{len(behind):,} nodes" + (f" and {nbytes:,} bytes that they keep" if nbytes else "") +
          f" after {steps} steps, more with every step", fix)
