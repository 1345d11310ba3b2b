"""Modules as functions of their parameters, and trees of containers."""

from collections import OrderedDict, defaultdict, deque, namedtuple

import numpy as np
import pytest

import flambeau as torch
from flambeau.func import (
    functional_call,
    functionalize,
    grad,
    replace_all_batch_norm_modules_,
    stack_module_state,
    vmap,
)
from flambeau.utils import _pytree as tree

nn = torch.nn


def close(a, b):
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_functional_call():
    net, data = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), torch.randn(4, 3)
    weights = {"0.weight": torch.ones(2, 3), "0.bias": torch.zeros(2)}
    made = functional_call(net[0], {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}, data)
    close(made, data.sum(1)[:, None].expand(4, 2))
    before = net[0].weight.clone()
    functional_call(net, (weights, {"1.running_mean": torch.zeros(2)}), (data,))
    close(net[0].weight, before)
    with pytest.raises(ValueError, match="appeared in multiple dictionaries"):
        functional_call(net, (weights, weights), data)
    with pytest.raises(ValueError, match="to be a dict"):
        functional_call(net, 3, data)
    with pytest.raises(ValueError, match="to be dictionaries"):
        functional_call(net, [3], data)


def test_gradients_per_sample():
    """The gradient of a sum of losses is the sum of the gradients that vmap gives one by one."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    data, target = torch.randn(5, 3), torch.randint(0, 2, (5,))
    weights = {name: p.detach() for name, p in net.named_parameters()}

    def loss(weights, x, y):
        return nn.functional.cross_entropy(functional_call(net, weights, (x[None],)), y[None])
    each = vmap(grad(loss), in_dims=(None, 0, 0))(weights, data, target)
    nn.functional.cross_entropy(net(data), target, reduction="sum").backward()
    for name, p in net.named_parameters():
        assert each[name].shape == (5, *p.shape)
        close(each[name].sum(0), p.grad)


def test_many_models_as_one():
    torch.manual_seed(0)
    models, data = [nn.Linear(3, 2) for _ in range(4)], torch.randn(5, 3)
    params, buffers = stack_module_state(models)
    assert params["weight"].shape == (4, 2, 3) and params["weight"].is_leaf and params["weight"].requires_grad
    made = vmap(lambda p, b, x: functional_call(models[0], (p, b), (x,)), in_dims=(0, 0, None))(params, buffers, data)
    close(made, torch.stack([model(data) for model in models]))
    for wrong, words in (([], "at least one model"), ([nn.Linear(1, 1), nn.Conv1d(1, 1, 1)], "same class"),
                         ([nn.Linear(1, 1), nn.Linear(1, 1).eval()], "same training/eval mode")):
        with pytest.raises(RuntimeError, match=words):
            stack_module_state(wrong)


def test_the_rest():
    net = replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(2), nn.Sequential(nn.BatchNorm2d(2))))
    assert net[0].running_mean is net[1][0].running_var is None and not net[0].track_running_stats
    held = torch.zeros(2)
    assert functionalize(lambda t: t.add_(1) * 2)(held).tolist() == [2, 2] and held.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="invalid argument for remove=views"):
        functionalize(lambda t: t, remove="views")(held)


# --- trees ----------------------------------------------------------------------------------------------------------

Point = namedtuple("Point", "a b")


def test_trees_come_apart_and_together():
    nested = {"b": [1, (2, None)], "a": Point(3, {4}), "c": OrderedDict(z=5), "d": deque([6], 3),
              "e": defaultdict(list, k=7)}
    leaves, spec = tree.tree_flatten(nested)
    assert leaves == [1, 2, None, 3, {4}, 5, 6, 7]
    back = tree.tree_unflatten(leaves, spec)
    assert back == nested and isinstance(back["a"], Point)
    assert back["d"].maxlen == 3 and back["e"].default_factory is list
    assert spec.num_leaves == 8 and spec == tree.tree_structure(nested) and spec != tree.tree_structure([1])
    assert str(tree.tree_structure({"x": [1, 2]})) == "TreeSpec(dict, ['x'], [TreeSpec(list, None, [*,\n    *])])"
    assert tree.tree_map(lambda a, b: a + b, [1, {"k": 2}], [10, {"k": 20}]) == [11, {"k": 22}]
    assert tree.tree_map_only(int, lambda n: -n, [1, "a"]) == [-1, "a"]
    assert tree.tree_any(lambda n: n > 1, [1, 2]) and not tree.tree_all(lambda n: n > 1, [1, 2])
    assert tree.tree_leaves([[1], 2], is_leaf=lambda it: it == [1]) == [[1], 2]
    with pytest.raises(ValueError, match="holds 2 items"):
        tree.tree_unflatten([1], tree.tree_structure([1, 2]))
    with pytest.raises(ValueError, match="mismatch"):
        tree.tree_map(lambda a, b: a, [1, 2], [1])


def test_containers_can_be_registered():
    class Pair:
        def __init__(self, left, right):
            self.left, self.right = left, right
    tree.register_pytree_node(Pair, lambda p: ([p.left, p.right], None), lambda parts, _: Pair(*parts))
    made = vmap(lambda p: Pair(p.left + p.right, p.left))(Pair(torch.ones(2), torch.ones(2)))
    assert isinstance(made, Pair) and made.left.tolist() == [2, 2]
    with pytest.raises(ValueError, match="already registered"):
        tree.register_pytree_node(Pair, None, None)
