"""`flambeau.lens.graph(loss)`: the graph of autograd as a picture.

From the tensor backwards, every node that backward would go through: leaves at the top, the tensor at the bottom,
modules as boxes, shape and bytes on the edges. A node that made the first value which is not finite is marked, and so
is one that an error is about. `str()` of the picture is the same in lines.
"""
import re

from ..autograd.base_node import AccumulateGrad
from ..autograd.edges import edge_of
from ..base.errors import line_of, name_of
from ..tensor.tensor import Tensor
from ..watch.nonfinite import NonFiniteSearch
from .layout import placed
from .modules import model_behind, modules_of
from .svg import drawn

MOST_NODES = 300                   # that a reader can look at; of a larger graph, those nearest to the tensor


class GraphNode:
    """A node of the picture: `number`, `name`, `line`, `text` of what it makes, `module`, and why it is `marked`."""

    def __init__(self, number, name, line, text, kind, module, marked):
        self.number, self.name, self.line, self.text = number, name, line, text
        self.kind, self.module, self.marked = kind, module, marked


class GraphEdge:
    """From the node that made something to the one that reads it: `shape` and `nbytes` of it."""

    def __init__(self, source, target, shape, nbytes):
        self.source, self.target, self.shape, self.nbytes = source, target, shape, nbytes

    @property
    def text(self):
        return f"{self.shape} {in_words(self.nbytes)}" if self.shape is not None else ""


def graph(tensor, model=None, *, error=None, most=MOST_NODES):
    """The graph behind `tensor`, as a GraphPicture.

    `model` gives parameters their names and nodes their boxes; without, it is the module that has the parameters, where
    that is a variable of the program. Made inside of `lens.naming(model)`, nodes know theirs exactly. `error`, an
    exception, marks the nodes that its text is about. At most `most` are drawn.

    >>> x = torch.ones(2, 3, requires_grad=True)
    >>> print(torch.lens.graph((x * 2).sum()))
    SumBackward0 float32[] at ...:1  reads MulBackward0
    MulBackward0 float32[2, 3] at ...:1  reads x
    x float32[2, 3]
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"lens.graph() takes a tensor, not {type(tensor).__name__}")
    edge = edge_of(tensor)
    if edge is None:
        raise ValueError(f"lens.graph(): {name_of(tensor) or 'the tensor'} has no graph: it does not require a "
                         "gradient, or was made under no_grad() or detach()")
    if most < 1:
        raise ValueError(f"lens.graph(most={most}): at least 1")
    nodes, left = nodes_behind(edge[0], most)
    model = model if model is not None else model_behind(nodes)
    names = {id(one): path for path, one in model.named_parameters()} if model is not None else {}
    modules, marks = modules_of(nodes, model), marked(nodes, tensor, error)
    numbers = {node: number for number, node in enumerate(nodes)}
    shown = [_shown(node, numbers[node], names, modules, marks) for node in nodes]
    edges = [GraphEdge(numbers[edge[0]], numbers[node], *_carried(node, at, edge)) for node in nodes
             for at, edge in enumerate(node.edges) if edge is not None and edge[0] in numbers]
    return GraphPicture(shown, edges, left)


def nodes_behind(root, most):
    """(the nodes behind `root`, the nearest first and each before those that it reads from; how many were left out)."""
    found, seen = [root], {root}
    for node in found:                            # it grows while it is gone through
        for edge in node.edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                found.append(edge[0])
    kept, left = {*found[:most]}, max(len(found) - most, 0)
    readers = dict.fromkeys(kept, 0)
    for node in kept:
        for edge in node.edges:
            if edge is not None and edge[0] in readers:
                readers[edge[0]] += 1
    ready, order = [root], []
    while ready:
        node = ready.pop()
        order.append(node)
        for edge in node.edges:
            if edge is not None and edge[0] in readers:
                readers[edge[0]] -= 1
                if not readers[edge[0]]:
                    ready.append(edge[0])
    return order, left


def marked(nodes, tensor, error):
    """{node: why} of nodes that are to be seen: the first that was not finite, and those of an error."""
    found = {}
    search = NonFiniteSearch(tensor)
    if search.culprit is not None:
        found[search.culprit] = f"made the first values that are not finite: {search.made}"
    elif search.leaf is not None:
        found |= {node: f"already held values that are not finite: {search.made}" for node in nodes
                  if isinstance(node, AccumulateGrad) and node.variable is search.leaf}
    if error is not None:
        text = str(error)
        lines = {*re.findall(r"[\w.<>\-]+:\d+", text)}
        about = [node for node in nodes if line_of(node.site) in lines]
        named = [node for node in about if _name(node) in text]
        found |= dict.fromkeys(named or about, f"{type(error).__name__}: {text.splitlines()[0] if text else ''}")
    return found


def _name(node):
    return node.name().rpartition("::")[2]


def _specs(node):
    """The specs of what a node makes, as far as it knows."""
    return (node.variable._spec,) if isinstance(node, AccumulateGrad) else getattr(node, "outs", None) or ()


def _shown(node, number, names, modules, marks):
    specs = _specs(node)
    text = ", ".join(map(shape_shown, specs))
    leaf = isinstance(node, AccumulateGrad)
    name = names.get(id(node.variable)) or name_of(node.variable) or "a leaf" if leaf else _name(node)
    line = "" if leaf or node.site is None else line_of(node.site)
    return GraphNode(number, name, line, text, "leaf" if leaf else "operation", modules.get(node), marks.get(node))


def _carried(node, at, edge):
    """(shape in words, bytes) of what comes along an edge; None where neither end knows."""
    made, taken = _specs(edge[0]), node.input_specs or ()
    spec = made[edge[1]] if edge[1] < len(made) else taken[at] if at < len(taken) else None
    return (None, 0) if spec is None else (shape_shown(spec), spec.nbytes)


def shape_shown(spec):
    """`float32[2, 3]`."""
    return f"{spec.dtype.name}[{', '.join(map(str, spec.shape))}]"


def in_words(nbytes):
    """`1.5 MB`."""
    size = float(nbytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000


class GraphPicture:
    """A drawn graph: `nodes`, `edges`, `left_out` of a graph that is too large; `svg()`, `save(path)`, and lines by
    `str()`. In a notebook it shows itself."""

    def __init__(self, nodes, edges, left_out=0):
        self.nodes, self.edges, self.left_out = nodes, edges, left_out

    def __str__(self):
        reads: dict = {}
        for edge in self.edges:
            reads.setdefault(edge.target, []).append(self.nodes[edge.source].name)
        lines = []
        for node in self.nodes:
            line = f"{node.name} {node.text}".rstrip() + (f" at {node.line}" if node.line else "")
            line += f"  in {node.module}" if node.module else ""
            line += f"  reads {', '.join(reads[node.number])}" if node.number in reads else ""
            lines.append(line + (f"  !! {node.marked}" if node.marked else ""))
        return "\n".join([*lines, *([f"and {self.left_out} more"] if self.left_out else [])])

    def svg(self, engine=None):
        """The picture as SVG: laid out by Graphviz's `dot` where it is installed, else by a layout of our own.

        `engine` chooses: "dot", or "own".
        """
        return drawn(self, placed(self, engine))

    def _repr_svg_(self):
        return self.svg()

    def save(self, path, engine=None):
        """Write the picture to a file, which has to be an SVG."""
        if not str(path).endswith(".svg"):
            raise ValueError(f"save({str(path)!r}): the picture is an SVG, so the name ends with .svg")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg(engine))
