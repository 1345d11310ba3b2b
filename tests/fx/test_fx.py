"""`torch.fx` by itself: copies, pickles, wrapped functions; tests/torch/test_fx.py holds its graphs to PyTorch's."""
import copy
import pickle

import pytest

import flambeau as torch
from flambeau import fx, nn


def helper(x, n):
    return x * n if float(x.sum()) > 0 else -x


fx.wrap("helper")


@fx.wrap
def decorated(x):
    return x if x.shape[0] else x + 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.ones(2))
        self.unused = nn.Linear(5, 5)
        self.constant = torch.tensor([2.0, 3.0])

    def forward(self, x, flag=False):
        out = decorated(helper(self.layer(x) * self.scale, 2)) + self.constant
        return out * 3 if flag else out


def traced(module):
    return fx.symbolic_trace(module, concrete_args={"flag": False})


def test_wrapped_functions_are_single_nodes():
    net = traced(Net())
    assert [n.target.__name__ for n in net.graph.nodes if n.op == "call_function"][-4:] == \
        ["mul", "helper", "decorated", "add"]
    assert helper(torch.ones(1), 2).item() == 2          # and they are themselves again


def test_it_gives_what_the_module_gives_and_has_what_it_needs():
    module = Net()
    net, x = traced(module), torch.randn(4, 3)
    assert torch.equal(net(x), module(x))
    assert [name for name, _ in net.named_parameters()] == ["scale", "layer.weight", "layer.bias"]
    assert net.layer is module.layer
    net(x).sum().backward()
    assert module.scale.grad is not None


@pytest.mark.parametrize("again", [copy.deepcopy, copy.copy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_and_pickles(again):
    net, x = traced(Net()), torch.randn(4, 3)
    other = again(net)
    assert torch.equal(other(x), net(x)) and other.code == net.code
    assert type(other).__name__ == "Net"


def test_a_graph_that_is_changed_is_written_again():
    net = fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    node = next(iter(net.graph.find_nodes(op="call_function", target=torch.relu)))
    node.target = torch.neg
    assert net(torch.ones(1)).item() == 2
    net.recompile()
    assert net(torch.ones(1)).item() == 0


def test_an_error_inside_shows_the_line_of_the_source():
    net = fx.symbolic_trace(lambda x: torch.relu(x) @ x)
    with pytest.raises(RuntimeError) as caught:
        net(torch.ones(2, 3))
    import traceback
    assert "matmul = relu @ x" in "".join(traceback.format_exception(caught.value))


def test_modules_can_be_put_and_taken():
    net = traced(Net())
    assert net.add_submodule("a.b.c", nn.ReLU()) and net.get_submodule("a.b.c")
    net.delete_all_unused_submodules()
    assert not hasattr(net, "a") and hasattr(net, "layer")
    assert not net.delete_submodule("nothing.here")


def test_a_name_that_is_used_before_it_is_made_is_refused():
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.relu, (x,))
    graph.output(y)
    x.prepend(y)
    with pytest.raises(RuntimeError, match="used before it has been defined"):
        graph.lint()


def test_what_is_missing_says_so():
    from flambeau.fx import experimental
    with pytest.raises(NotImplementedError, match="make_fx .*symbolic_trace"):
        experimental.proxy_tensor.make_fx(lambda x: x)
    with pytest.raises(NotImplementedError, match="state_dict"):
        traced(Net()).to_folder("x")
    with pytest.raises(NotImplementedError, match="concrete_args: x is a list"):
        fx.symbolic_trace(lambda x: x[0], concrete_args={"x": [1]})
