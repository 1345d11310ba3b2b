"""The graph of a run's calls, for packages that count in it."""
import importlib

import pytest

import flambeau as torch
from flambeau.compat import _C
from flambeau.jit import _get_trace_graph, is_tracing

from .ops import rows as tables
from .ops.test_tables import TABLES
from .thorough import sample

for _name in TABLES:
    importlib.import_module(f"tests.ops.{_name}")
nn, F = torch.nn, torch.nn.functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 4, 3, stride=2), nn.Linear(4, 2)

    def forward(self, x):
        return self.last(F.relu(self.conv(x)).mean((2, 3)) * 2)


def calls(graph):
    return [node for node in graph.nodes() if node.kind().startswith("aten::")]


def shapes(values):
    return [value.type().sizes() for value in values if value.isCompleteTensor()]


def test_calls_with_their_shapes():
    net, x = Net(), torch.ones(2, 3, 9, 9)
    graph, made = _get_trace_graph(net, x)
    assert torch.equal(made, net(x))
    conv, relu, mean, mul, linear = calls(graph)
    assert [node.kind() for node in (conv, relu, mean, mul, linear)] == [
        "aten::_convolution", "aten::relu", "aten::mean", "aten::mul", "aten::linear"]
    assert shapes(conv.inputs()) == [[2, 3, 9, 9], [4, 3, 3, 3], [4]] and shapes(conv.outputs()) == [[2, 4, 4, 4]]
    assert shapes(linear.inputs()) == [[2, 4], [2, 4], [2]] and shapes(linear.outputs()) == [[2, 2]]
    assert shapes(mul.inputs()) == [[2, 4], []]
    stride = list(conv.inputs())[3]
    assert stride.node().kind() == "prim::ListConstruct" and str(stride.type()) == "int[]"
    assert [one.toIValue() for one in stride.node().inputs()] == [2, 2]
    assert [list(conv.inputs())[n].toIValue() for n in (6, 8)] == [False, 1]
    assert next(relu.inputs()) is conv.output() and conv.output().node() is conv
    assert shapes(graph.inputs()) == [[2, 3, 9, 9], [4, 3, 3, 3], [4], [2, 4], [2]]
    assert next(graph.outputs()) is linear.output()
    assert "= aten::_convolution(%0, %1, %2, " in str(graph) and "prim::Constant[value=2]()" in str(graph)


def test_what_is_no_operator_of_pytorchs_is_the_calls_it_makes():
    graph, _ = _get_trace_graph(lambda x: F.normalize(F.interpolate(x, scale_factor=2, mode="bilinear")),
                                torch.ones(1, 2, 4, 4))
    kinds = [node.kind() for node in calls(graph)]
    assert kinds[0] == "aten::upsample_bilinear2d" and kinds[-1] == "aten::div" and "aten::norm" in kinds


def test_lists_of_results():
    graph, _ = _get_trace_graph(lambda x: torch.einsum("ij,jk->ik", *x.chunk(2)), torch.ones(4, 2))
    chunk, einsum = calls(graph)
    unpacked = next(einsum.inputs()).node(), list(einsum.inputs())[1].node()
    assert [node.kind() for node in unpacked] == ["prim::Constant", "prim::ListConstruct"]
    first = next(unpacked[1].inputs()).node()
    assert first.kind() == "prim::ListUnpack" and next(first.inputs()) is chunk.output()


def test_scopes_are_those_that_hooks_push():
    net, seen = Net(), []

    def push(module, args):
        seen.append(is_tracing())
        _C._get_tracing_state().push_scope("conv")

    net.conv.register_forward_pre_hook(push)
    net.conv.register_forward_hook(lambda *_: _C._get_tracing_state().pop_scope())
    graph, _ = _get_trace_graph(net, (torch.ones(1, 3, 5, 5),))
    assert [node.scopeName() for node in calls(graph)] == ["conv", "", "", "", ""]
    assert seen == [True] and not is_tracing() and _C._get_tracing_state() is None


@pytest.mark.parametrize("row", sample(tables.ROWS, 5), ids=lambda row: row.name)
def test_every_operation(row):
    """What is listed computes what it would, and every call takes what was there before it."""
    state = torch.get_rng_state()
    expected = tables.results(row.ours(*row.tensors(dtype=torch.float64)))
    torch.set_rng_state(state)
    graph, made = _get_trace_graph(row.ours, tuple(row.tensors(dtype=torch.float64)))
    torch.testing.assert_close(tables.results(made), expected, rtol=0, atol=0, equal_nan=True)
    known = set(graph.inputs())
    for node in graph.nodes():
        assert known >= set(node.inputs()), node
        known |= set(node.outputs())
    assert known >= set(graph.outputs()) and str(graph)


def test_an_error_leaves_nothing_behind():
    with pytest.raises(ZeroDivisionError):
        _get_trace_graph(lambda x: 1 / 0, torch.ones(1))
    assert not is_tracing() and torch.ones(1).add(1).item() == 2
