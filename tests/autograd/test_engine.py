"""The engine: what reaches which leaf, in which order, how often, and what is freed when."""
import gc
import sys
import threading
import weakref

import numpy as np
import pytest

import flambeau as torch
from tests.patience import PATIENCE


def leaf(*data, dtype=torch.float64):
    return torch.tensor(data if len(data) != 1 else data[0], dtype=dtype, requires_grad=True)


# --- accumulation ---------------------------------------------------------------------------------------------------


def test_gradients_add_up_over_uses_and_over_backwards():
    x = leaf(2.0)
    (x * x + 3 * x).backward()                        # 2x + 3
    assert x.grad.item() == 7
    (x * 10).backward()
    assert x.grad.item() == 17
    x.grad = None
    torch.autograd.backward([x * 2, x * x])           # 2 + 2x
    assert x.grad.item() == 6


def test_accumulation_is_in_place_and_the_first_gradient_is_the_leafs_own():
    x = leaf(1.0, 2.0)
    (x * 2).sum().backward()
    first = x.grad
    (x * 2).sum().backward()
    assert x.grad is first and first.tolist() == [4, 4]
    g = torch.ones(2, dtype=torch.float64)
    y = leaf(1.0, 2.0)
    y.backward(g)
    y.grad.add_(1)
    assert g.tolist() == [1, 1] and y.grad.tolist() == [2, 2]


def test_nobody_shares_a_leafs_gradient():
    """What flows in is handed to several leaves and hooks; writing to one's copy is no business of the others'."""
    weights = torch.tensor([3.0, 4.0], dtype=torch.float64)
    a, b, seen = leaf(1.0, 2.0), leaf(1.0, 2.0), []
    y = a + b
    y.retain_grad()
    y.register_hook(lambda g: seen.append(g))
    a.register_hook(lambda g: seen.append(g))
    y.grad_fn.register_prehook(lambda gs: seen.append(gs[0]))
    (y * weights).sum().backward()
    for written in (a.grad, b.grad, y.grad):
        written.zero_()
        for other in (a.grad, b.grad, y.grad):
            assert other is written or other.tolist() == [3, 4]
        written.copy_(weights)
    (a * weights).sum().backward()                    # adds in place
    assert a.grad.tolist() == [6, 8] and [g.tolist() for g in seen[:3]] == [[3, 4]] * 3

    class Constant(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return weights
    c = leaf(1.0, 2.0)
    Constant.apply(c).sum().backward()
    c.grad.zero_()
    assert weights.tolist() == [3, 4]


def test_a_gradient_is_laid_out_like_its_leaf():
    for make in (lambda: torch.ones(2, 3), lambda: torch.ones(3, 2).t(), lambda: torch.ones(2, 3, 4).permute(2, 0, 1)):
        for use in (lambda x: x.sum(), lambda x: (x * x).sum(), lambda x: (x * torch.ones(x.shape)).sum()):
            x = make().requires_grad_()
            use(x).backward()
            assert x.grad.stride() == x.stride()


def test_grad_returns_and_leaves_the_leaves_alone():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    gx, gw = torch.autograd.grad((x * w).sum(), (x, w))
    assert gx.tolist() == [3, 4] and gw.tolist() == [1, 2] and x.grad is None and w.grad is None
    assert not gx.requires_grad


def test_grad_for_something_in_the_middle():
    x = leaf(1.0, 2.0)
    y = x * 3
    z = (y ** 2).sum()
    gy, = torch.autograd.grad(z, y, retain_graph=True)
    assert gy.tolist() == [6, 12]
    gz, = torch.autograd.grad(z, z, retain_graph=True)
    assert gz.item() == 1
    both = torch.autograd.grad(z, (x, y))
    assert both[0].tolist() == [18, 36] and both[1].tolist() == [6, 12]


def test_backward_into_chosen_inputs():
    x, w = leaf(2.0), leaf(5.0)
    h = x * w
    (h * h).backward(inputs=[w])                      # 2 x² w
    assert x.grad is None and w.grad.item() == 40


def test_unused_inputs():
    x, z = leaf(1.0), leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="appears to not have been used"):
        torch.autograd.grad(x * 2, (x, z))
    assert torch.autograd.grad(x * 2, (x, z), allow_unused=True)[1] is None
    assert torch.autograd.grad(x * 2, (x, z), materialize_grads=True)[1].tolist() == [0, 0]


def test_gradients_of_several_results_weighted():
    x = leaf(1.0, 2.0, 3.0)
    y, z = x ** 2, x ** 3
    weights = (torch.tensor([1.0, 0, 0], dtype=torch.float64), torch.tensor([0, 0, 2.0], dtype=torch.float64))
    g, = torch.autograd.grad((y, z), x, weights)
    assert g.tolist() == [2, 0, 54]


def test_batched_gradients_are_one_backward_per_row():
    x = leaf(1.0, 2.0, 3.0)
    y = x ** 2
    rows = torch.tensor(np.arange(12.0).reshape(4, 3))
    g, = torch.autograd.grad(y, x, rows, is_grads_batched=True)
    np.testing.assert_array_equal(g.numpy(), np.arange(12.0).reshape(4, 3) * [2, 4, 6])


# --- shapes and dtypes come back as they went in --------------------------------------------------------------------


def test_broadcasting_is_undone():
    x, y = torch.ones(3, 1, requires_grad=True), torch.ones(4, requires_grad=True)
    s = torch.tensor(2.0, requires_grad=True)
    ((x + y) * s).sum().backward()
    assert x.grad.tolist() == [[8], [8], [8]] and y.grad.tolist() == [6] * 4 and s.grad.item() == 24


def test_promotion_is_undone():
    x, w = torch.ones(2, requires_grad=True), torch.full((2,), 3.0, dtype=torch.float64, requires_grad=True)
    h = torch.full((2,), 2.0, dtype=torch.bfloat16, requires_grad=True)
    (x * w * h).sum().backward()
    assert (x.grad.dtype, w.grad.dtype, h.grad.dtype) == (torch.float32, torch.float64, torch.bfloat16)
    assert x.grad.tolist() == [6, 6] and w.grad.tolist() == [2, 2] and h.grad.tolist() == [3, 3]


def test_a_real_leaf_gets_a_real_gradient():
    x = leaf(1.0, 2.0)
    z = x * torch.tensor([1j, 2 + 1j])
    (z * z.conj()).real.sum().backward()              # |z|² = x² (1, 5)
    assert x.grad.dtype is torch.float64 and x.grad.tolist() == [2, 20]


def test_complex_gradients_point_uphill():
    """The gradient of a real L is dL/dx + i dL/dy."""
    z = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    (z.abs() ** 2).sum().backward()                   # x² + y²
    assert z.grad.tolist() == pytest.approx([2 + 4j, 6 - 2j])


# --- second and higher derivatives ----------------------------------------------------------------------------------


def test_derivatives_of_every_order():
    x = leaf(2.0)
    y, expected = x ** 5, [80, 160, 240, 240, 120]    # of x⁵ at 2
    for order in expected:
        y, = torch.autograd.grad(y, x, create_graph=True)
        assert y.item() == order
    y, = torch.autograd.grad(y, x, create_graph=True)
    assert y.item() == 0


def test_hessian_of_a_quadratic_form():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((4, 4))
    x = torch.tensor(rng.standard_normal(4), requires_grad=True)
    slope, = torch.autograd.grad(x @ torch.tensor(A) @ x, x, create_graph=True)
    rows = [torch.autograd.grad(s, x, retain_graph=True)[0] for s in slope]
    np.testing.assert_allclose(torch.stack(rows).numpy(), A + A.T, rtol=1e-12)


def test_gradient_penalty():
    """d/dw of (d/dx of w x²)² = 8 w x²."""
    x, w = leaf(3.0), leaf(5.0)
    gx, = torch.autograd.grad(w * x * x, x, create_graph=True)
    (gx ** 2).backward()
    assert w.grad.item() == 8 * 5 * 9 and x.grad.item() == 8 * 25 * 3


def test_create_graph_gives_leaves_gradients_with_history():
    x = leaf(2.0)
    (x ** 3).backward(create_graph=True)
    assert x.grad.requires_grad and x.grad.item() == 12
    first = x.grad
    x.grad = None
    first.backward()
    assert x.grad.item() == 12                        # 6x


# --- order ----------------------------------------------------------------------------------------------------------


def test_each_node_runs_once_after_everything_that_reads_it():
    """A diamond ladder: 2^40 paths, 80 nodes."""
    x = leaf(1.0)
    y = x
    for _ in range(40):
        y = y * 0.5 + y * 0.5
    y.backward()
    assert x.grad.item() == 1


def test_nodes_run_latest_first():
    x, order = leaf(1.0), []
    parts = [x * k for k in (1, 2, 3)]
    for k, part in enumerate(parts):
        part.grad_fn.register_hook(lambda gi, go, k=k: order.append(k))
    (parts[0] + (parts[2] + parts[1])).backward()
    assert order == [2, 1, 0]


def test_a_result_without_a_gradient_does_not_hold_up_the_others():
    x = leaf([3.0, 1.0, 2.0])
    values, _ = x.sort()
    top, _ = x.topk(1)
    (values[0] * 5 + top.sum()).backward()
    assert x.grad.tolist() == [1, 5, 0]


# --- depth ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [True, False], ids=["history kept", "history dropped"])
def test_a_chain_of_100_000_nodes(keep):
    """Backward and deletion walk with a list: the interpreter's stack is not in the way."""
    n = 100_000
    x = torch.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(n):
        y = y + 1 if keep else -y
    assert y.item() == (n + 1 if keep else 1)
    if keep:
        y.backward()
        assert x.grad.item() == 1
    node = weakref.ref(y.grad_fn)
    del y
    assert node() is None                             # all of it, at once, without the collector


def test_a_wide_sum_of_10_000_terms():
    x = torch.tensor(1.0, requires_grad=True, dtype=torch.float64)
    total = sum(x * k for k in range(10_000))
    total.backward()
    assert x.grad.item() == 9999 * 10_000 / 2


def test_the_stack_stays_flat():
    before = sys.getrecursionlimit()
    x = torch.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(3000):
        y = y * 1.0
    sys.setrecursionlimit(300)
    try:
        torch.autograd.grad(y, x, create_graph=True)[0].item()
    finally:
        sys.setrecursionlimit(before)


# --- threads --------------------------------------------------------------------------------------------------------


def test_backward_from_several_threads_adds_exactly():
    w = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    before, failures = sys.getswitchinterval(), []
    sys.setswitchinterval(1e-6)

    def work(k):
        try:
            for i in range(25):
                (w * (k * 100 + i)).sum().backward()
        except BaseException as error:
            failures.append(error)
    try:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(PATIENCE)
    finally:
        sys.setswitchinterval(before)
    assert not failures and not any(t.is_alive() for t in threads)
    assert w.grad.tolist() == [sum(k * 100 + i for k in range(4) for i in range(25))] * 5


def test_one_graph_walked_by_several_threads():
    x = leaf(2.0)
    y = (x * x).exp()
    got = []
    threads = [threading.Thread(target=lambda: got.append(torch.autograd.grad(y, x, retain_graph=True)[0].item()))
               for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(PATIENCE)
    assert got == pytest.approx([4 * np.exp(4)] * 4)


def test_grad_mode_belongs_to_the_thread():
    seen = []
    with torch.no_grad():
        t = threading.Thread(target=lambda: seen.append(torch.is_grad_enabled()))
        t.start()
        t.join()
    assert seen == [True]


# --- what is kept, and until when -----------------------------------------------------------------------------------


def kept_storage(graph):
    """A weak reference to a storage that only the graph holds, and the graph."""
    x = torch.ones(1000, requires_grad=True)
    y = x.exp()                                       # its own derivative: the node keeps the result
    out = graph(y)
    return weakref.ref(y._storage), out


def test_backward_frees_what_was_kept():
    ref, loss = kept_storage(lambda y: y.sum())
    assert ref() is not None
    loss.backward()
    assert ref() is None


def test_retain_graph_keeps_it():
    ref, loss = kept_storage(lambda y: y.sum())
    loss.backward(retain_graph=True)
    assert ref() is not None
    loss.backward()
    assert ref() is None


def test_dropping_the_result_frees_what_was_kept():
    ref, loss = kept_storage(lambda y: y.sum())
    del loss
    assert ref() is None


def test_only_what_a_derivative_asks_for_is_kept():
    x = torch.ones(1000, requires_grad=True)
    y = x * 2                                         # the derivative of + needs neither operand
    ref = weakref.ref(y._storage)
    z = y + 1
    del y
    assert ref() is None and z.grad_fn is not None


def test_an_operand_is_kept_only_for_the_other_ones_gradient():
    x, w = torch.ones(1000), torch.ones(1000, requires_grad=True)
    y = x * 2
    ref = weakref.ref(y._storage)
    a = y * w                                         # w needs y
    del y
    assert ref() is not None
    frozen = torch.ones(1000)
    z = w * 2
    ref = weakref.ref(frozen._storage), weakref.ref(z._storage)
    b = z * frozen                                    # z needs frozen; nobody needs z
    del frozen, z
    assert ref[0]() is not None and ref[1]() is None
    assert a.shape == b.shape


def test_graphs_hold_no_cycles():
    gc.collect()
    gc.disable()
    try:
        x = torch.ones(3, requires_grad=True)
        y = x.exp().tanh() * 3
        y.retain_grad()
        view = y[:2]
        view.mul_(2)
        loss = y.sum()
        loss.backward()
        refs = [weakref.ref(t) for t in (x, y, view, loss)] + [weakref.ref(loss.grad_fn)]
        del x, y, view, loss
        assert [r() for r in refs] == [None] * 5
    finally:
        gc.enable()


def test_a_second_backward_is_refused_only_where_something_was_freed():
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()
    z = (x + 1).sum()                                 # keeps nothing
    z.backward()
    z.backward()
    assert x.grad.tolist() == [4, 6]
