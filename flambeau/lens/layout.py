"""Where the nodes of a graph go: by Graphviz's `dot` where it is installed, else in layers.

Either gives a GraphLayout, so there is one way to draw. Ours: a node lies one layer above the nearest that reads it, is
put in the middle of those it is connected with, some times up and down, and pushed aside where there is one already.
"""
import json
import shutil
import subprocess

CHARACTER, NODE_HEIGHT, NODE_MARGIN = 6.6, 40.0, 16.0        # pixels: of a letter, of a node, inside of a node
LAYER_GAP, NODE_GAP, BOX_MARGIN = 46.0, 22.0, 12.0
LABEL_CHARACTER, BOX_TITLE = 5.5, 10.0                  # pixels: of a letter on an edge, of the name of a box
SWEEPS = 8                         # up and down
POINTS_PER_INCH = 72.0


class GraphLayout:
    """`rectangles`: {number of a node: (x, y, width, height)}, of its middle; `ways`: for each edge its points, (x, y),
    and `labels` where its words begin, or None; `boxes`: {module: (left, top, right, bottom)}; size of the whole."""

    def __init__(self, rectangles, ways, labels, boxes, width, height):
        self.rectangles, self.ways, self.labels, self.boxes = rectangles, ways, labels, boxes
        self.width, self.height = width, height


def placed(picture, engine=None):
    """The GraphLayout of a GraphPicture."""
    if engine not in (None, "dot", "own"):
        raise ValueError(f"engine={engine!r}: 'dot' or 'own'")
    dot = shutil.which("dot")
    if engine == "dot" and dot is None:
        raise FileNotFoundError("engine='dot': Graphviz is not installed (apt install graphviz)")
    return by_dot(picture, dot) if dot is not None and engine != "own" else by_layers(picture)


def width_of(node):
    """How wide a node is drawn."""
    return max(len(node.name), len(node.line), len(node.text), 6) * CHARACTER + NODE_MARGIN


# --- Graphviz ---------------------------------------------------------------------------------------------------------


def by_dot(picture, dot):
    """Graphviz says where everything goes; drawing is ours."""
    done = subprocess.run([dot, "-Tjson"], input=dot_text(picture), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"dot cannot lay out the graph: {done.stderr.strip()}")
    known = json.loads(done.stdout)
    _, _, width, height = map(float, known["bb"].split(","))

    def point(text):
        x, y = map(float, text.split(","))
        return x, height - y

    rectangles, boxes, ways = {}, {}, []
    for one in known.get("objects", ()):
        if "pos" in one:
            rectangles[int(one["name"])] = (*point(one["pos"]), float(one["width"]) * POINTS_PER_INCH,
                                            float(one["height"]) * POINTS_PER_INCH)
        elif one.get("module"):
            left, low, right, high = map(float, one["bb"].split(","))
            boxes[one["module"]] = left, height - high, right, height - low
    for one in known.get("edges", ()):
        words = one["pos"].split()
        end = [point(words[0][2:])] if words[0].startswith("e,") else []
        at = int(one["number"])
        middle = point(one["lp"]) if "lp" in one else None
        label = middle and (middle[0] - len(picture.edges[at].text) * LABEL_CHARACTER / 2, middle[1] + 3)
        ways.append((at, [point(word) for word in words[len(end):]] + end, label))
    ways.sort(key=lambda way: way[0])
    return GraphLayout(rectangles, [way[1] for way in ways], [way[2] for way in ways], boxes, width, height)


def dot_text(picture):
    """The graph in Graphviz's language; the words in it are numbers, but for the names of modules, which are quoted."""
    lines = ["digraph {", "rankdir=TB; nodesep=0.2; ranksep=0.25; node [shape=box, fixedsize=true, label=\"\"];",
             "edge [fontname=Courier, fontsize=9];"]
    for number, module in enumerate(all_modules(picture)):
        lines += _cluster(picture, module, number) if module.count(".") == 0 else []
    inside = {node.number for node in picture.nodes if node.module}
    lines += [_dot_node(node) for node in picture.nodes if node.number not in inside]
    lines += [f"{edge.source} -> {edge.target} [number={at}, label={json.dumps(edge.text)}];"
              for at, edge in enumerate(picture.edges)]
    return "\n".join([*lines, "}"])


def _dot_node(node):
    return f"{node.number} [width={width_of(node) / POINTS_PER_INCH:.3f}, height={NODE_HEIGHT / POINTS_PER_INCH:.3f}];"


def _cluster(picture, module, number):
    """The lines of a module, and of those inside of it, to any depth."""
    modules, lines, stack = all_modules(picture), [], [(module, False)]
    while stack:
        name, closing = stack.pop()
        if closing:
            lines.append("}")
            continue
        lines += [f"subgraph cluster_{modules.index(name)} {{", f"module={json.dumps(name)}; label=\" \"; margin=14;"]
        lines += [_dot_node(node) for node in picture.nodes if node.module == name]
        stack.append((name, True))
        stack += [(one, False) for one in modules if one.startswith(name + ".") and "." not in one[len(name) + 1:]]
    return lines


def all_modules(picture):
    """The modules of the nodes and those around them, in order."""
    found: dict = {}
    for node in picture.nodes:
        parts = (node.module or "").split(".")
        for depth in range(1, len(parts) + 1):
            found[".".join(parts[:depth])] = None
    found.pop("", None)
    return sorted(found)


# --- layers -----------------------------------------------------------------------------------------------------------


def by_layers(picture):
    """Nodes in layers: leaves where they are read, the tensor at the bottom."""
    nodes, edges = picture.nodes, picture.edges
    reads, read_by = {n.number: [] for n in nodes}, {n.number: [] for n in nodes}
    for edge in edges:
        reads[edge.target].append(edge.source)
        read_by[edge.source].append(edge.target)
    depth: dict = {}
    for node in nodes:                            # each comes before those that it reads from
        depth[node.number] = max((depth[other] + 1 for other in read_by[node.number]), default=0)
    layers: dict = {}
    for node in nodes:
        layers.setdefault(depth[node.number], []).append(node.number)
    wide = {node.number: width_of(node) for node in nodes}
    x = _spread(layers, wide, reads, read_by)
    deepest = max(depth.values())
    left = min(x[one] - wide[one] / 2 for one in x) - 2 * BOX_MARGIN
    step, top = NODE_HEIGHT + LAYER_GAP, NODE_HEIGHT / 2 + 3 * BOX_MARGIN
    rectangles = {one: (x[one] - left, (deepest - depth[one]) * step + top, wide[one], NODE_HEIGHT) for one in x}
    ways, labels, said = [], [], set()
    for edge in edges:
        (x0, y0, w0, h0), (x1, y1, _, h1) = rectangles[edge.source], rectangles[edge.target]
        start, end = y0 + h0 / 2, y1 - h1 / 2
        far = depth[edge.source] - depth[edge.target] > 1
        aside = (w0 / 2 + NODE_GAP) * 1.4 if far else 0           # round what is between
        ways.append([(x0, start), (x0 - aside, start + LAYER_GAP / 2), (x1 - aside, end - LAYER_GAP / 2), (x1, end)])
        again = (edge.source, edge.text) in said                  # what goes to several is said once
        said.add((edge.source, edge.text))
        labels.append(None if again else (x0 + 4, start + 11))
    boxes = {}
    for module in all_modules(picture):
        inside = [rectangles[n.number] for n in nodes if n.module and (n.module + ".").startswith(module + ".")]
        margin = BOX_MARGIN / (1 + module.count("."))
        top = min(p[1] - p[3] / 2 for p in inside) - margin - BOX_TITLE
        boxes[module] = (min(p[0] - p[2] / 2 for p in inside) - margin, top,
                         max(p[0] + p[2] / 2 for p in inside) + margin, max(p[1] + p[3] / 2 for p in inside) + margin)
    width = max(p[0] + p[2] / 2 for p in rectangles.values()) + 2 * BOX_MARGIN
    return GraphLayout(rectangles, ways, labels, boxes, width, (deepest + 1) * step + 3 * BOX_MARGIN)


def _spread(layers, wide, reads, read_by):
    """{node: x}: in the middle of its neighbours, no two of a layer over each other."""
    x: dict = {}
    for layer in layers.values():
        _apart(layer, dict.fromkeys(layer, 0.0), wide, x)
    for sweep in range(SWEEPS):
        order = sorted(layers, reverse=sweep % 2 == 1)
        for number in order:
            wish = {one: _middle([x[other] for other in (read_by if sweep % 2 == 0 else reads)[one]], x[one])
                    for one in layers[number]}
            layers[number].sort(key=lambda one: wish[one])
            _apart(layers[number], wish, wide, x)
    return x


def _apart(layer, wish, wide, x):
    """Put a layer's nodes side by side, in their order and near their wishes."""
    at = None
    for one in layer:
        least = wish[one] if at is None else max(wish[one], at + wide[one] / 2)
        x[one] = least
        at = least + wide[one] / 2 + NODE_GAP
    shift = sum(x[one] - wish[one] for one in layer) / len(layer)     # pushed to the right: take it back by the half
    for one in layer:
        x[one] -= shift


def _middle(values, default):
    return sum(values) / len(values) if values else default
