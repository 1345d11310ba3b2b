"""Hooks: on tensors, leaves, nodes, and on what is kept for backward; when each runs and what it may change."""
import pytest

import flambeau as torch


def leaf(*data):
    return torch.tensor(data, dtype=torch.float64, requires_grad=True)


def test_order_of_everything_at_one_node():
    """Tensor hooks as they came, then the node's prehooks, the node, its hooks, the leaf's hooks, its post hooks."""
    x, said = leaf(1.0, 2.0), []
    y = x * 2
    y.grad_fn.register_prehook(lambda go: said.append("prehook"))
    y.register_hook(lambda g: said.append("first"))
    y.register_hook(lambda g: said.append("second"))
    y.grad_fn.register_hook(lambda gi, go: said.append("hook"))
    x.register_hook(lambda g: said.append("leaf"))
    x.register_post_accumulate_grad_hook(lambda p: said.append(f"post {p.grad.tolist()}"))
    y.sum().backward()
    assert said == ["first", "second", "prehook", "hook", "leaf", "post [2.0, 2.0]"]


def test_a_tensor_hook_may_replace_the_gradient():
    x, seen = leaf(1.0, 2.0), []
    y = x * 3
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: seen.append(g.tolist()))          # sees what the one before it made
    x.register_hook(lambda g: g + 1)
    y.sum().backward()
    assert seen == [[10, 10]] and x.grad.tolist() == [31, 31]


def test_a_hook_sees_the_sum_over_all_uses():
    x, seen = leaf(1.0), []
    y = x * 1
    y.register_hook(lambda g: seen.append(g.item()))
    (y * 2 + y * 3).sum().backward()
    assert seen == [5]


def test_a_leaf_hook_runs_for_grad_too():
    x, seen = leaf(1.0), []
    x.register_hook(lambda g: seen.append(g.item()))
    g, = torch.autograd.grad((x * 4).sum(), x)
    assert seen == [4] and g.item() == 4


def test_removing_a_hook():
    x, seen = leaf(1.0), []
    handle = x.register_hook(lambda g: seen.append("a"))
    with x.register_hook(lambda g: seen.append("b")):
        (x * 1).sum().backward()
    (x * 1).sum().backward()
    handle.remove()
    handle.remove()
    (x * 1).sum().backward()
    assert seen == ["a", "b", "a"]


def test_a_hook_that_changes_shape_or_type_is_refused():
    x = leaf(1.0, 2.0)
    x.register_hook(lambda g: g.sum())
    with pytest.raises(RuntimeError, match="has changed the size of value"):
        (x * 1).sum().backward()
    y = leaf(1.0)
    y.register_hook(lambda g: 3)
    with pytest.raises(TypeError, match="expected Variable, but hook returned"):
        (y * 1).sum().backward()


def test_hooks_need_something_to_hang_on():
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        torch.ones(2).register_hook(print)
    with pytest.raises(RuntimeError, match="non-leaf"):
        (leaf(1.0) * 2).register_post_accumulate_grad_hook(print)


def test_an_optimizer_step_in_a_post_accumulate_hook():
    x = leaf(1.0, 2.0)

    def step(p):
        with torch.no_grad():
            p -= 0.5 * p.grad
        p.grad = None
    x.register_post_accumulate_grad_hook(step)
    (x * x).sum().backward()
    assert x.tolist() == [0, 0] and x.grad is None


def test_node_hooks_may_replace_gradients_on_both_sides():
    x = leaf(1.0, 2.0)
    y = x * 2
    y.grad_fn.register_prehook(lambda go: (go[0] * 5,))
    y.grad_fn.register_hook(lambda gi, go: (gi[0] + go[0],))     # 2·5 + 5
    y.sum().backward()
    assert x.grad.tolist() == [15, 15]


# --- retain_grad ----------------------------------------------------------------------------------------------------


def test_retain_grad():
    x = leaf(1.0, 2.0)
    y = x * 2
    assert not y.retains_grad
    y.retain_grad()
    y.retain_grad()                                              # twice is once
    z = (y * y).sum()
    z.backward(retain_graph=True)
    assert y.retains_grad and y.grad.tolist() == [4, 8] and not y.grad.requires_grad
    z.backward()
    assert y.grad.tolist() == [8, 16]


def test_retained_gradients_are_what_the_hooks_made_of_them():
    x = leaf(1.0)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    assert y.grad.item() == 10 and x.grad.item() == 20


def test_retain_grad_follows_an_in_place_write():
    x = leaf(1.0, 2.0)
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    y.sum().backward()
    assert y.grad.tolist() == [1, 1] and x.grad.tolist() == [6, 6]      # of y as it is now


def test_reading_the_gradient_of_a_non_leaf_warns():
    y = leaf(1.0) * 2
    with pytest.warns(UserWarning, match="not a leaf Tensor"):
        assert y.grad is None


# --- hooks on what is kept ------------------------------------------------------------------------------------------


def test_saved_tensors_hooks_see_what_is_kept_and_decide_what_comes_back():
    x, log = leaf(2.0, 3.0), []

    def pack(t):
        log.append(("pack", t.tolist()))
        return t.tolist()

    def unpack(numbers):
        log.append(("unpack", numbers))
        return torch.tensor(numbers, dtype=torch.float64) * 10
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = x.exp()
    z = y * 2                                                    # outside: kept as usual
    z.sum().backward()
    assert [kind for kind, _ in log] == ["pack", "unpack"] and log[0][1] == log[1][1] == y.tolist()
    assert x.grad.tolist() == pytest.approx([20 * v for v in y.tolist()])


def test_the_innermost_saved_tensors_hook_counts():
    x, who = leaf(2.0), []
    hooks = torch.autograd.graph.saved_tensors_hooks
    with hooks(lambda t: who.append("outer") or t, lambda t: t):
        with hooks(lambda t: who.append("inner") or t, lambda t: t):
            a = x * x
        b = a * a
    b.sum().backward()
    assert who == ["inner"] * 2 + ["outer"] * 2 and x.grad.tolist() == [32]


def test_saved_tensors_hooks_may_be_disabled():
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"), pytest.raises(RuntimeError, match="not here"):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            pass


def test_a_pack_hook_must_not_write():
    x = leaf(2.0)
    y = x * 1
    with pytest.raises(RuntimeError, match="pack hook is modifying its input"):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.add_(1), lambda t: t):
            y.exp()


def test_save_on_cpu():
    x = leaf(2.0)
    with torch.autograd.graph.save_on_cpu():
        y = x * x
    y.sum().backward()
    assert x.grad.tolist() == [4]


# --- several tensors, edges, anomalies ------------------------------------------------------------------------------


def test_multi_grad_hook():
    x, w, seen = leaf(1.0), leaf(2.0), []
    handle = torch.autograd.graph.register_multi_grad_hook((x, w), lambda gs: seen.append([g.item() for g in gs]))
    (x * w).sum().backward()
    handle.remove()
    (x * w).sum().backward()
    assert seen == [[2, 1]]


def test_gradient_edges():
    x = leaf(1.0)
    y = x * 2
    edge = torch.autograd.graph.get_gradient_edge(y)
    assert edge.node is y.grad_fn and edge.output_nr == 0
    assert torch.autograd.graph.get_gradient_edge(x).node.variable is x
    with pytest.raises(RuntimeError, match="does not require gradients"):
        torch.autograd.graph.get_gradient_edge(torch.ones(1))


def test_anomaly_mode_names_the_operation_and_its_line():
    x = leaf(-1.0)
    with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError) as caught:
        y = x.sqrt()
        y.sum().backward()
    assert "Function 'SqrtBackward0' returned nan values in its 0th output." in str(caught.value)
    assert "test_hooks.py:" in str(caught.value)
    x.sqrt().sum().backward()                                    # outside, nan is nan
    assert x.grad.isnan().all()


def test_the_graph_can_be_walked():
    x = leaf(1.0, 2.0)
    y = (x * 2).exp()
    assert y.grad_fn.name() == "ExpBackward0"
    mul, nr = y.grad_fn.next_functions[0]
    assert mul.name() == "MulBackward0" and nr == 0
    assert mul.next_functions[0][0].variable is x
    y.grad_fn.metadata["note"] = 1
    assert y.grad_fn.metadata == {"note": 1}
