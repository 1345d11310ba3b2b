"""A laid out graph as SVG: one text, nothing from outside, light or dark as the page is."""
from xml.sax.saxutils import escape

from .layout import CHARACTER

STYLE = """
.lens { --ink: #1d2733; --faint: #66758a; --node: #eef3fa; --leaf: #e9f5ec; --box: #f8fafc; --line: #b6c2d2;
        --mark: #c62828; --marked: #fde7e7; font-family: ui-monospace, Menlo, Consolas, monospace; }
@media (prefers-color-scheme: dark) { .lens { --ink: #e4eaf2; --faint: #94a3b8; --node: #223047; --leaf: #1f3a2b;
        --box: #161d29; --line: #44546b; --mark: #ff8a80; --marked: #4a1f22; } }
.lens rect { stroke: var(--line); stroke-width: 1; }
.lens .box > rect { fill: var(--box); stroke-dasharray: 4 3; }
.lens .node > rect { fill: var(--node); }
.lens .leaf > rect { fill: var(--leaf); rx: 18px; }
.lens .marked > rect { fill: var(--marked); stroke: var(--mark); stroke-width: 2.5; }
.lens path { fill: none; stroke: var(--faint); stroke-width: 1.2; }
.lens marker path { fill: var(--faint); stroke: none; }
.lens text { fill: var(--ink); font-size: 11px; text-anchor: middle; }
.lens text.small { fill: var(--faint); font-size: 9.5px; }
.lens .box text { fill: var(--faint); text-anchor: start; font-size: 10.5px; }
.lens text.edge { fill: var(--faint); font-size: 9px; text-anchor: start; paint-order: stroke; stroke: var(--box);
        stroke-width: 3px; }
"""


def drawn(picture, layout):
    """The SVG of a GraphPicture, laid out."""
    wide, high = layout.width + 20, layout.height + 20 + (18 if picture.left_out else 0)
    marked = [node for node in picture.nodes if node.marked]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" class="lens" viewBox="-10 -10 {wide:.0f} {high:.0f}" '
             f'width="{wide:.0f}" height="{high:.0f}" role="img" aria-label="{escape(_label(picture, marked))}">',
             f"<style>{STYLE}</style>",
             '<defs><marker id="lens-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
             'orient="auto"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>']
    for module in sorted(layout.boxes):
        left, top, right, bottom = layout.boxes[module]
        parts.append(f'<g class="box"><rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
                     f'height="{bottom - top:.1f}" rx="8"/><text x="{left + 6:.1f}" y="{top + 12:.1f}">'
                     f"{escape(module)}</text></g>")
    parts += [f'<path d="{_curve(points)}" marker-end="url(#lens-arrow)"/>' for points in layout.ways]
    parts += [f'<text class="edge" x="{at[0]:.1f}" y="{at[1]:.1f}">{escape(edge.text)}</text>'
              for edge, at in zip(picture.edges, layout.labels, strict=True) if at is not None]
    parts += [_node(node, layout.rectangles[node.number]) for node in picture.nodes]
    if picture.left_out:
        parts.append(f'<text class="small" x="{wide / 2 - 10:.0f}" y="{layout.height + 14:.0f}">and '
                     f"{picture.left_out} more nodes, further from the tensor</text>")
    return "\n".join([*parts, "</svg>"])


def _label(picture, marked):
    """What a screen reader says."""
    words = f"graph of {len(picture.nodes)} nodes"
    return words + "".join(f'; {node.name} at {node.line} {node.marked}' for node in marked).replace('"', "'")


def _node(node, rectangle):
    x, y, width, height = rectangle
    classes = ("leaf" if node.kind == "leaf" else "node") + (" marked" if node.marked else "")
    lines = [("", node.name), *(("small", line) for line in (node.text, node.line) if line)]
    step = 12.0
    first = y - step * (len(lines) - 1) / 2 + 3.5
    texts = "".join(f'<text class="{how}" x="{x:.1f}" y="{first + step * at:.1f}">{escape(_cut(words, width))}</text>'
                    for at, (how, words) in enumerate(lines))
    told = " · ".join(filter(None, (node.name, node.text, node.line, node.module, node.marked)))
    return (f'<g class="{classes}"><title>{escape(told)}</title><rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" '
            f'width="{width:.1f}" height="{height:.1f}" rx="6"/>{texts}</g>')


def _cut(words, width):
    room = int(width / CHARACTER)
    return words if len(words) <= room else words[:room - 1] + "…"


def _curve(points):
    (x, y), *rest = points
    text = f"M{x:.1f} {y:.1f}"
    whole = len(rest) // 3 * 3
    for at in range(0, whole, 3):
        text += " C" + " ".join(f"{px:.1f} {py:.1f}" for px, py in rest[at:at + 3])
    return text + "".join(f" L{px:.1f} {py:.1f}" for px, py in rest[whole:])

