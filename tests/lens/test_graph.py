"""`flambeau.lens.graph`: the right nodes in the right boxes, drawn so that they can be told apart."""
import shutil
import time
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings, strategies

import flambeau as torch
from flambeau import nn
from flambeau.lens.graph import GraphEdge, GraphNode, GraphPicture, in_words
from flambeau.lens.layout import placed

ENGINES = ["own", pytest.param("dot", marks=pytest.mark.skipif(shutil.which("dot") is None,
                                                              reason="Graphviz is not installed"))]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16))
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.body(x).tanh())


def by_name(picture):
    found: dict = {}
    for node in picture.nodes:
        found.setdefault(node.name, []).append(node)
    return found


def test_the_model_is_found_among_the_programs_variables():
    first, other, nets = Net(), Net(), torch.nn.ModuleList([Net()])
    nets.append(first)                                # has them too, and more
    loss = first(torch.ones(3, 8)).sum()
    assert str(torch.lens.graph(loss)) == str(torch.lens.graph(loss, first)) != str(torch.lens.graph(loss, other))
    x = torch.ones(2, requires_grad=True)
    assert not any(node.module for node in torch.lens.graph(x.sum()).nodes)


def test_every_node_of_the_graph_with_its_line_and_what_it_makes():
    x, w = torch.ones(2, 3, requires_grad=True), torch.ones(3, requires_grad=True)
    loss = (x * w).exp().sum()
    picture = torch.lens.graph(loss)
    assert [node.name for node in picture.nodes][:3] == ["SumBackward0", "ExpBackward0", "MulBackward0"]
    assert {node.name for node in picture.nodes if node.kind == "leaf"} == {"x", "w"}
    edges = {(picture.nodes[edge.source].name, picture.nodes[edge.target].name): edge for edge in picture.edges}
    assert edges["ExpBackward0", "SumBackward0"].text == "float32[2, 3] 24 B"
    assert edges["w", "MulBackward0"].nbytes == 12 and len(edges) == 4
    assert all(node.line.startswith("test_graph.py:") for node in picture.nodes if node.kind == "operation")
    assert not any(node.marked or node.module for node in picture.nodes)


def test_modules_are_known_exactly_where_they_were_named():
    net = Net()
    with torch.lens.naming(net):
        out = net(torch.ones(5, 8))
    loss = out.sum()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
    found = by_name(torch.lens.graph(loss, net))
    assert [node.module for node in found["AddmmBackward0"]] == ["Net.head", "Net.body.2", "Net.body.0"]
    assert found["ReluBackward0"][0].module == "Net.body.1" and found["TanhBackward0"][0].module == "Net"
    assert found["body.0.weight"][0].module == "Net.body.0" and found["SumBackward0"][0].module is None
    assert "Net.body.1" in str(torch.lens.graph(loss)) and "weight" in str(torch.lens.graph(loss, net))


def test_modules_are_told_from_parameters_otherwise():
    net = Net()
    found = by_name(torch.lens.graph(net(torch.ones(5, 8)).sum(), net))
    assert [node.module for node in found["AddmmBackward0"]] == ["Net.head", "Net.body.2", "Net.body.0"]
    assert found["ReluBackward0"][0].module == "Net.body" and found["TanhBackward0"][0].module == "Net"


def test_the_operation_that_made_the_first_nan_is_marked():
    x = torch.tensor([1.0, 0.0], requires_grad=True)
    picture = torch.lens.graph((x.log() * x).sum())
    (marked,) = [node for node in picture.nodes if node.marked]
    assert marked.name == "LogBackward0" and "not finite" in marked.marked and "!!" in str(picture)
    assert 'class="node marked"' in picture.svg("own") and "LogBackward0" in picture.svg("own").split("<style>")[0]
    bad = torch.tensor([float("nan")], requires_grad=True)
    assert [node.name for node in torch.lens.graph(bad * 2).nodes if node.marked] == ["bad"]


def test_the_node_of_an_error_is_marked():
    x = torch.linspace(-1, 1, 8, requires_grad=True)
    hidden = x.tanh()
    hidden.sub_(1)
    loss = hidden.square().sum()
    with pytest.raises(RuntimeError) as got:
        loss.backward()
    picture = torch.lens.graph(loss, error=got.value)
    assert [node.name for node in picture.nodes if node.marked] == ["TanhBackward0"]


def test_what_has_no_graph_is_refused_in_words():
    with pytest.raises(ValueError, match="plain has no graph(?s:.*)no_grad"):
        plain = torch.ones(2)
        torch.lens.graph(plain)
    with pytest.raises(TypeError, match="takes a tensor, not float"):
        torch.lens.graph(1.0)
    with pytest.raises(ValueError, match="at least 1"):
        torch.lens.graph(torch.ones(1, requires_grad=True) * 2, most=0)
    leaf = torch.ones(2, requires_grad=True)
    assert [node.name for node in torch.lens.graph(leaf).nodes] == ["leaf"]


def test_custom_functions_and_several_results():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = torch.ones(4, 4, requires_grad=True)
    a, b = Twice.apply(x).unbind()[:2]
    picture = torch.lens.graph((a * b).sum())
    assert {"TwiceBackward", "UnbindBackward0"} <= {node.name for node in picture.nodes}, str(picture)
    ElementTree.fromstring(picture.svg("own"))


def test_a_long_graph_is_drawn_in_part():
    x = torch.ones(1, requires_grad=True)
    y = x
    for _ in range(3000):
        y = y * 1.0
    start = time.process_time()
    picture = torch.lens.graph(y, most=50)
    assert len(picture.nodes) == 50 and picture.left_out == 2951 and "and 2951 more" in str(picture)
    assert "2951 more" in picture.svg("own") and time.process_time() - start < 20


@pytest.mark.parametrize("engine", ENGINES)
def test_a_picture_is_well_formed_and_says_everything(engine, tmp_path):
    net = Net()
    with torch.lens.naming(net, "<script>&"):
        loss = net(torch.ones(5, 8)).square().mean()
    picture = torch.lens.graph(loss, net)
    root = ElementTree.fromstring(picture.svg(engine))
    words = {"".join(part.itertext()) for part in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"body.0.weight", "AddmmBackward0", "float32[16, 8] 512 B", "<script>&.head"} <= words
    assert "script" not in {part.tag.rpartition("}")[2] for part in root.iter()}
    picture.save(tmp_path / "graph.svg", engine)
    assert (tmp_path / "graph.svg").read_text() == picture.svg(engine)
    with pytest.raises(ValueError, match="ends with .svg"):
        picture.save(tmp_path / "graph.png")
    with pytest.raises(ValueError, match="'dot' or 'own'"):
        picture.svg("neato")


@strategies.composite
def pictures(draw):
    """Any graph whose nodes come before those that they read from."""
    count = draw(strategies.integers(1, 25))
    modules = strategies.sampled_from([None, "a", "a.b", "a.b.c", "d"])
    nodes = [GraphNode(i, "x" * draw(strategies.integers(1, 20)), "", "t", "operation", draw(modules), None)
             for i in range(count)]
    edges = [GraphEdge(source, target, "float32[2]", 8) for target in range(count)
             for source in draw(strategies.lists(strategies.integers(target + 1, count), max_size=3, unique=True))
             if source < count]
    return GraphPicture(nodes, edges)


def check_places(picture, layout):
    """No two nodes lie over each other, and boxes hold their own."""
    places = [layout.rectangles[node.number] for node in picture.nodes]
    for i, (x, y, width, height) in enumerate(places):
        assert 0 <= x - width / 2 + 1 and x + width / 2 <= layout.width + 1
        for other_x, other_y, other_width, other_height in places[:i]:
            beside = abs(x - other_x) >= (width + other_width) / 2 - 1
            assert beside or abs(y - other_y) >= (height + other_height) / 2 - 1
    for node, (x, y, width, height) in zip(picture.nodes, places):
        if node.module:
            left, top, right, bottom = layout.boxes[node.module]
            assert left - 1 <= x - width / 2 and x + width / 2 <= right + 1 and top - 1 <= y - height / 2 <= bottom


@settings(max_examples=15, deadline=None)
@given(picture=pictures())
def test_any_graph_in_layers(picture):
    layout = placed(picture, "own")
    check_places(picture, layout)
    for edge in picture.edges:
        assert layout.rectangles[edge.source][1] < layout.rectangles[edge.target][1]  # inputs above
    ElementTree.fromstring(picture.svg("own"))


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
@settings(max_examples=4, deadline=None)
@given(picture=pictures())
def test_any_graph_by_graphviz(picture):
    check_places(picture, placed(picture, "dot"))
    ElementTree.fromstring(picture.svg("dot"))


@pytest.mark.parametrize("nbytes, words", [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (123456, "123 kB"),
                                           (2.5e9, "2.5 GB"), (5e12, "5000 GB")])
def test_bytes_in_words(nbytes, words):
    assert in_words(nbytes) == words
