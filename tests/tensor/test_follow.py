"""Followed functions give what their own Python gives: see Note [Followed functions] in flambeau/tensor/follow.py.

Everything is computed twice: by a first call, which is taped, and by others like it over other numbers, which are
followed where the core is compiled. They are held against NumPy, or against the first way, with all tapes forgotten.
"""
import ast
import importlib
import inspect
import pkgutil
import sys
import textwrap
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flambeau as torch
from flambeau.autograd.modes import modes
from flambeau.base import errors
from flambeau.base.op import Composite, door
from flambeau.tensor.infer import prepared
from flambeau.watch import noticed

follow = sys.modules["flambeau.tensor.follow"]
tapes = follow.tapes
F = torch.nn.functional


@pytest.fixture(autouse=True)
def forgotten():
    follow.forget_tapes()
    yield
    follow.forget_tapes()


def drawn(*shape, seed=0, grad=False):
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape, np.float32), requires_grad=grad)


def followed_tapes():
    return [tape for tape in tapes.values() if tape is not False]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lead", [(), (5,), (2, 5)])
def test_linear(lead, bias):
    views = set()
    for seed in range(3):
        x, w, b = drawn(*lead, 4, seed=seed), drawn(3, 4, seed=seed + 10), drawn(3, seed=seed + 20)
        got = F.linear(x, w, b if bias else None)
        expected = x.numpy() @ w.numpy().T + (b.numpy() if bias else 0)
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-6)
        views.add(got._is_view())
    assert len(views) == 1                                    # a tensor of its own, or a view, as at first


def test_what_was_taped_is_followed():
    x, w, b = drawn(5, 4, grad=True), drawn(3, 4, grad=True), drawn(3, grad=True)
    for _ in range(2):
        F.linear(x, w, b).relu().sum().backward()
    assert len(followed_tapes()) >= 3 and all(tape is not False for tape in tapes.values())


def by_first_calls(program, *args):
    """What a program gives if nothing in it is like anything before."""
    follow.forget_tapes()
    made = program(*args)
    follow.forget_tapes()
    return made


def gradients(program, *seeds):
    """The gradients of a program over leaves of these seeds."""
    leaves = [drawn(3, 4, seed=seed, grad=True) for seed in seeds]
    program(*leaves).sum().backward()
    return [leaf.grad.tolist() for leaf in leaves]


PROGRAMS = {
    "a tensor twice": lambda a, b: a * a + b,
    "two tensors": lambda a, b: a * b,
    "a product": lambda a, b: a @ b.t() @ a,
    "views that start elsewhere": lambda a, b: a[1:] * b[:2] + a[:2],
    "numbers": lambda a, b: a * 3.0 + b / 2 + (a ** 2).clamp(-1, 1),
    "sums": lambda a, b: (a.mean(0) * b).softmax(1) + a.flatten().reshape(3, 4),
    "one of them turned": lambda a, b: (a.t().contiguous() @ b).view(2, 8).tanh(),
    "broadcast": lambda a, b: F.gelu(a[:, :1] * b) + a.expand(2, 3, 4).sum(0),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_of_other_numbers(name):
    program = PROGRAMS[name]
    expected = [by_first_calls(gradients, program, seed, seed + 7) for seed in range(4)]
    assert [gradients(program, seed, seed + 7) for seed in range(4)] == expected


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(sorted(PROGRAMS)), min_size=2, max_size=6), st.integers(0, 1000))
def test_tapes_of_one_program_serve_another(names, seed):
    """All of them have operations and specs in common."""
    expected = [by_first_calls(gradients, PROGRAMS[name], seed + i, seed + i + 1) for i, name in enumerate(names)]
    assert [gradients(PROGRAMS[name], seed + i, seed + i + 1) for i, name in enumerate(names)] == expected


def test_the_same_tensor_twice_after_two_and_the_other_way_round():
    a, b = drawn(3, grad=True), drawn(3, seed=1, grad=True)
    for x, y in ((a, a), (a, b), (b, a), (b, b)):
        a.grad = b.grad = None
        (x * y).sum().backward()
        if x is y:
            np.testing.assert_allclose(x.grad.numpy(), 2 * x.detach().numpy(), rtol=1e-6)
        else:
            assert x.grad.tolist() == y.tolist() and y.grad.tolist() == x.tolist()


def test_second_derivatives():
    """f = Σ over d/dx of Σ (x wᵀ)² is 2 (w s)·(w 1), s the sum of the rows of x; its gradient is known."""
    for seed in range(3):
        x, w = drawn(4, 3, seed=seed, grad=True), drawn(3, 3, seed=seed + 5, grad=True)
        g, = torch.autograd.grad((F.linear(x, w) ** 2).sum(), x, create_graph=True)
        g.sum().backward()
        rows, weight, ones = x.detach().numpy().sum(0), w.detach().numpy(), np.ones(3)
        expected = 2 * (np.outer(weight @ rows, ones) + np.outer(weight @ ones, rows))
        np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_with_and_without_gradient():
    """The same specs, first without history, then with, then under no_grad."""
    x, w = drawn(2, 3, 4), drawn(5, 4)
    assert not F.linear(x, w).requires_grad
    w.requires_grad_()
    F.linear(x, w).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), np.tile(x.numpy().sum((0, 1)), (5, 1)), rtol=1e-5)
    with torch.no_grad():
        assert not F.linear(x, w).requires_grad


def test_a_warning_is_given_every_time():
    x = drawn(2, 3)
    for _ in range(3):
        with warnings.catch_warnings(record=True) as given_ones:
            warnings.simplefilter("always")
            F.softmax(x)
        assert len(given_ones) == 1


def test_another_default_dtype():
    numbers = torch.tensor([1, 2, 3])
    assert numbers.view(3).true_divide(2).dtype is torch.float32 and torch.mean(numbers * 1.0).dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert numbers.view(3).true_divide(2).dtype is torch.float64
        assert torch.mean(numbers * 1.0).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_signed_zeros_are_not_the_same():
    x = torch.tensor([1.0, -1.0])
    mask = torch.tensor([False, False])
    assert np.signbit(torch.where(mask, x, 0.0).numpy()).tolist() == [False, False]
    assert np.signbit(torch.where(mask, x, -0.0).numpy()).tolist() == [True, True]


def test_true_is_not_one():
    x = torch.tensor([1.0, 2.0])
    assert x.mean(0, True).shape == (1,) and x.mean(0, 1 == 2).shape == ()
    assert torch.where(x > 0, 1, 0).dtype is torch.int64 and torch.where(x > 0, True, False).dtype is torch.bool


def test_by_name_and_by_place():
    x, w, b = drawn(2, 4), drawn(3, 4, seed=1), drawn(3, seed=2)
    expected = F.linear(x, w, b).tolist()
    for _ in range(2):
        assert F.linear(input=x, weight=w, bias=b).tolist() == expected
        assert F.linear(x, bias=b, weight=w).tolist() == expected
        assert F.linear(bias=b, weight=w, input=x).tolist() == expected


def test_modes_and_subclasses_are_asked():
    class Counting(torch.overrides.TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            Counting.calls += 1
            return func(*args, **(kwargs or {}))

    class Own(torch.Tensor):
        pass

    x, w = drawn(2, 4), drawn(3, 4, seed=1)
    for _ in range(2):
        F.linear(x, w)
    with Counting():
        F.linear(x, w)
    assert Counting.calls == 1
    assert type(F.linear(x.as_subclass(Own), w)) is Own
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert F.linear(x, w).dtype is torch.bfloat16
    assert F.linear(x, w).dtype is torch.float32


def test_out_is_written():
    x, w, out = drawn(2, 4), drawn(4, 3, seed=1), torch.empty(2, 3)
    for _ in range(2):
        out.zero_()
        assert torch.matmul(x, w, out=out) is out
        np.testing.assert_allclose(out.numpy(), x.numpy() @ w.numpy(), rtol=1e-5)


def test_what_hooks_give_back_may_lie_otherwise():
    """What was kept comes back in the other order, after calls in which it came as it was."""
    def columns_first(t):
        return t.t().contiguous().t() if t.dim() == 2 else t

    for hooked in (False, True, False, True):
        x, w = drawn(5, 4, grad=True), drawn(3, 4, seed=1, grad=True)
        if hooked:
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t, columns_first):
                made = F.linear(x, w, torch.zeros(3)) * drawn(5, 3, seed=2)
        else:
            made = F.linear(x, w, torch.zeros(3)) * drawn(5, 3, seed=2)
        made.sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), drawn(5, 3, seed=2).numpy() @ w.detach().numpy(), rtol=1e-5)
        np.testing.assert_allclose(w.grad.numpy(), drawn(5, 3, seed=2).numpy().T @ x.detach().numpy(), rtol=1e-5)


def test_mistakes_are_refused_every_time():
    x, w = drawn(2, 4), drawn(3, 5)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            F.linear(x, w)
    assert not followed_tapes()


def test_lines_are_those_of_the_call():
    x, w = drawn(2, 4, grad=True), drawn(3, 4, seed=1)

    def one():
        return F.linear(x, w)

    def other():
        return F.linear(x, w)

    assert one()._site[0] is one.__code__ and one()._site[0] is one.__code__ and other()._site[0] is other.__code__


def test_threads():
    expected = by_first_calls(gradients, PROGRAMS["sums"], 1, 2)
    found = []

    def work():
        found.extend(gradients(PROGRAMS["sums"], 1, 2) == expected for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80 and all(found)


def test_forward_mode_beside_it():
    x, w = drawn(2, 4), drawn(3, 4, seed=1)
    for _ in range(2):
        F.linear(x, w)
    _, tangent = torch.func.jvp(lambda t: F.linear(t, w), (x,), (torch.ones(2, 4),))
    np.testing.assert_allclose(tangent.numpy(), np.ones((2, 4)) @ w.numpy().T, rtol=1e-5)


def test_memory_of_the_outside():
    """What reads it runs at the call, in the middle of what is taped; that is followed all the same."""
    row, w, b = np.ones(4, np.float32), drawn(3, 4, seed=1), drawn(3, seed=2)
    for factor in range(4):
        row[:] = factor
        got = F.linear(torch.from_numpy(row), w, b)
        row[:] = 77
        np.testing.assert_allclose(got.numpy(), factor * w.numpy().sum(1) + b.numpy(), rtol=1e-5, atol=1e-6)
    assert followed_tapes() and False not in tapes.values()


@pytest.mark.parametrize("program", [
    lambda x, y: x ** 2, lambda x, y: 2.0 ** x, lambda x, y: x ** y.abs(), lambda x, y: x.clamp(-0.5, 0.5),
    lambda x, y: x.clamp(min=y), lambda x, y: torch.max(x, y), lambda x, y: torch.max(x),
    lambda x, y: torch.min(x, 0)[0], lambda x, y: x.std(), lambda x, y: x.var(0, correction=0), lambda x, y: x.sum(0),
    lambda x, y: x.where(y > 0, 0.0), lambda x, y: x.square().sum(-1, keepdim=True)], ids=range(13))
def test_other_composites(program):
    def both(seed):
        x, y = drawn(3, 4, seed=seed, grad=True), drawn(3, 4, seed=seed + 7)
        out = program(x.abs() + 0.1, y)
        out.sum().backward()
        return out.tolist(), x.grad.tolist()
    for seed in range(3):
        assert both(seed) == by_first_calls(both, seed)
        both(seed)
        assert both(seed) == by_first_calls(both, seed)


# --- what else a call may depend on, and do --------------------------------------------------------------------------


def three_times(call):
    """What a call gives that is taped, and then those that are followed, if they can be."""
    return [call() for _ in range(3)]


def test_where_new_tensors_go():
    for _ in range(2):
        assert torch.zeros(3).device.type == torch.ones_like(drawn(2)).device.type == "cpu"
        with torch.device("meta"):
            assert torch.zeros(3).device.type == "meta" and torch.arange(3).device.type == "meta"
        assert torch.zeros(3, device="meta").device.type == "meta" and torch.zeros(3, device="cpu").device.type == "cpu"


def test_the_default_dtype():
    for _ in range(2):
        assert [t.dtype for t in three_times(lambda: torch.zeros(3))] == [torch.float32] * 3
        torch.set_default_dtype(torch.float64)
        try:
            assert [t.dtype for t in three_times(lambda: torch.zeros(3))] == [torch.float64] * 3
        finally:
            torch.set_default_dtype(torch.float32)


def test_a_leaf_that_wants_a_gradient_is_one_every_time():
    made = three_times(lambda: torch.full((3,), 2.0, requires_grad=True))
    assert all(t.requires_grad and t.is_leaf for t in made) and len(set(map(id, made))) == 3
    assert not any(t.requires_grad for t in three_times(lambda: torch.full((3,), 2.0)))


def test_zeros_have_signs():
    for value in (0.0, -0.0, 0.0, -0.0, 0, False):
        made = torch.full((2,), value, dtype=torch.float32).numpy()
        assert np.copysign(1, made).tolist() == [np.copysign(1, value)] * 2


@pytest.mark.parametrize("first", [False, True], ids=["plain first", "with a graph first"])
@pytest.mark.parametrize("cell", ["GRUCell", "RNNCell", "LSTMCell"])
def test_a_second_derivative_after_a_first_one(cell, first):
    """A backward that need not be differentiated takes a way that cannot be."""
    torch.manual_seed(0)
    net, x = getattr(torch.nn, cell)(3, 4).double(), torch.rand(2, 3, dtype=torch.float64, requires_grad=True)

    def gradient(x, graph):
        made = net(x)[0] if cell == "LSTMCell" else net(x)
        return torch.autograd.grad(made.sum(), x, create_graph=graph)[0]

    for graph in (first, not first, first, not first):
        found = gradient(x, graph)
        assert found.requires_grad is graph
    assert torch.autograd.gradcheck(lambda x: gradient(x, True), x)
    gradient(x, True).square().sum().backward()
    assert all(p.grad is not None for p in net.parameters() if p.dim() > 1)


def test_composites_of_others_are_run():
    factor, calls = [0.0], []

    class scaled(Composite):
        def of(input): return input * factor[0]

    class nothing(Composite):
        def of(input): calls.append(1)

    for k in range(5):
        factor[0] = k
        assert scaled(torch.ones(2)).tolist() == [k, k] and nothing(torch.ones(2)) is None
    assert len(calls) == 5


def test_old_orders_of_arguments():
    table, one, two = torch.ones(2, 2), torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    for _ in range(3):
        with pytest.warns(UserWarning, match="deprecated"):
            assert torch.addr(2, table, 1, one, two).tolist() == [[5, 6], [8, 10]]
        assert torch.addr(table, one, two).tolist() == [[4, 5], [7, 9]]


def test_shapes_of_any_class():
    for shape in ((2, 3), [2, 3], torch.Size([2, 3]), [3, 2], (6,), [6]) * 2:
        x = drawn(6)
        assert torch.zeros(shape).shape == x.reshape(shape).shape == x.new_ones(shape).shape == torch.Size(shape)
    given = [2, 3]
    assert torch.ones(given).shape == torch.ones(given).shape == (2, 3)
    given[:] = [1, 4]                                         # a list is what it holds now
    assert torch.ones(given).shape == (1, 4)


def test_what_is_no_number_is_not_remembered():
    before = len(tapes)
    for _ in range(3):
        assert torch.full((2,), float("nan")).isnan().all()
    assert not any(value != value for key in list(tapes)[before:] for value in key if type(value) is float)


def test_numbers_are_drawn_every_time():
    x = torch.ones(200)
    first, second, third = three_times(lambda: F.dropout(x, 0.5))
    assert not torch.equal(first, second) and not torch.equal(second, third) and 0 < third.sum() < 400
    torch.manual_seed(3)
    expected = by_first_calls(lambda: F.dropout(x, 0.5).tolist())
    torch.manual_seed(3)
    assert F.dropout(x, 0.5).tolist() == expected and F.dropout(x, 0.5, training=False) is x


def test_writing_in_place_is_done_every_time():
    for _ in range(3):
        x = drawn(4)
        assert F.relu(x, True) is x and x.tolist() == [max(0.0, v) for v in drawn(4).tolist()]
        assert F.dropout(x, 1.0, inplace=True) is x and x.tolist() == [0] * 4


def test_the_same_specs_elsewhere_in_memory():
    row = torch.arange(12.0)
    for start in (0, 2, 4, 3):
        part = row[start:start + 4]
        assert torch.as_strided(part, (2,), (2,), 1).tolist() == [1, 3]
        assert torch.as_strided(part, (2,), (2,)).tolist() == [start, start + 2]
        assert part.reshape(2, 2).tolist() == [[start, start + 1], [start + 2, start + 3]]
    pairs = [row[start:start + 4].view(2, 2) for start in (0, 2, 1)]
    assert [torch.view_as_complex(pair)[0].item() for pair in pairs[:2]] == [0 + 1j, 2 + 3j]
    with pytest.raises(RuntimeError, match="storage_offset divisible by 2"):
        torch.view_as_complex(pairs[2])
    bytes_ = torch.arange(10, dtype=torch.int8)
    assert [bytes_[start:start + 2].view(torch.int16).item() for start in (0, 2)] == [256, 770]
    with pytest.raises(RuntimeError, match="must be divisible by 2"):
        bytes_[1:3].view(torch.int16)


def test_contents_are_verified_every_time():
    x, good, bad = drawn(3, 4), torch.tensor([0, 3, 1]), torch.tensor([0, 4, 1])
    calls = {"cross_entropy": F.cross_entropy, "nll_loss": F.nll_loss,
             "embedding": lambda x, i: F.embedding(i, x.t()), "one_hot": lambda x, i: F.one_hot(i, 4)}
    for name, call in calls.items():
        for _ in range(3):
            call(x, good)
        with pytest.raises((IndexError, RuntimeError), match=r"4(.|\n)*" + name):
            call(x, bad)
    for _ in range(3):
        assert x.gather(1, good[:, None]).tolist() == [[x[i, p].item()] for i, p in enumerate(good.tolist())]
    with pytest.raises(RuntimeError, match="index 4 is out of bounds for dimension 1 with size 4"):
        x.gather(1, bad[:, None])


def test_an_operation_with_a_rule_of_its_own_is_one_node():
    for _ in range(3):
        x, y = drawn(3, grad=True), drawn(3, seed=1)
        assert type(F.mse_loss(x, y).grad_fn).__name__ == "MseLossBackward0"


# composites with a rule of their own, alone and inside of others, with lists and with looks without history
WITH_RULES = {
    "renorm": lambda x, y: torch.renorm(x, 2, 0, 0.5) * y,
    "dist": lambda x, y: torch.dist(x, y, 3),
    "binary cross entropy": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction="none"),
    "with logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
    "huber": lambda x, y: F.huber_loss(x, y, delta=0.5) + F.smooth_l1_loss(x, y),
    "grid": lambda x, y: F.grid_sample(x[None, None], y.tanh().reshape(1, 2, 3, 2), align_corners=True),
    "margins": lambda x, y: F.multi_margin_loss(x, torch.tensor([0, 1, 3])),
    "solved": lambda x, y: torch.cholesky_solve(x, y[:, :3] @ y[:, :3].T + 9 * torch.eye(3)),
}


@pytest.mark.parametrize("name", WITH_RULES)
def test_rules_of_composites(name):
    program = WITH_RULES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")

        def both(seed):
            x, y = drawn(3, 4, seed=seed, grad=True), drawn(3, 4, seed=seed + 7, grad=True)
            out = program(x, y)
            out.sum().backward()
            with torch.no_grad():
                plain = program(x, y)
            assert plain.tolist() == out.tolist() and not plain.requires_grad
            return out.tolist(), x.grad.tolist(), y.grad is not None and y.grad.tolist(), type(out.grad_fn).__name__
        expected = [by_first_calls(both, seed) for seed in range(4)]
        assert [both(seed) for seed in range(4)] == expected


def test_a_followed_rule_is_one_node():
    for _ in range(4):
        x, y = drawn(3, grad=True), torch.rand(3)
        assert type(F.binary_cross_entropy(x.sigmoid(), y, reduction="none").grad_fn).__name__ == \
            "BinaryCrossEntropyBackward0"
        assert type(torch.dist(x, y).grad_fn).__name__ == "DistBackward0"
    assert followed_tapes()


def test_lists_of_tensors():
    for seed in range(4):
        for count in (2, 3, 2):
            rows = [drawn(4, seed=seed + at, grad=True) for at in range(count)]
            for given_ones in (rows, tuple(rows)):
                made = torch.hstack(given_ones)
                assert made.tolist() == np.concatenate([r.detach().numpy() for r in rows]).tolist()
            assert torch.column_stack(rows).tolist() == np.column_stack([r.detach().numpy() for r in rows]).tolist()
            made.sum().backward()
            assert all(r.grad.tolist() == [1, 1, 1, 1] for r in rows)
        with pytest.raises(TypeError):
            torch.hstack([rows[0], 1.0])
        with torch.no_grad():
            assert not torch.hstack(rows).requires_grad
    assert followed_tapes()


def test_an_index_of_several_parts():
    for seed in range(4):
        x, at = drawn(3, 4, seed=seed), torch.tensor([seed % 3, 1])
        expected = x.numpy().copy()
        expected[[seed % 3, 1]] = 7
        assert torch.index_put(x, (at,), torch.tensor(7.0)).tolist() == expected.tolist()
        assert torch.index_put(x, [at], torch.tensor(7.0)).tolist() == expected.tolist()


def test_several_views_are_views_every_time():
    for seed in range(4):
        x = drawn(4, 6, seed=seed)
        first, second = x.chunk(2, 1)
        second.zero_()
        assert x[:, 3:].abs().sum() == 0 and first.tolist() == drawn(4, 6, seed=seed)[:, :3].tolist()
        a, b, c = torch.split(x, [1, 2, 1])
        assert all(part._base is x for part in (first, a, b, c)) and b.shape == (2, 6)
        leaf = drawn(4, 6, seed=seed, grad=True)
        one, other = (leaf * 1).chunk(2)
        with pytest.raises(RuntimeError, match="output of a function that returns multiple views"):
            one.zero_()
        (one * 3 + other).sum().backward()
        assert leaf.grad.tolist() == [[3.0] * 6] * 2 + [[1.0] * 6] * 2


def test_what_runs_at_the_call_is_refused_every_time():
    good = drawn(3, 3) + 5 * torch.eye(3)
    for seed in range(4):
        right = drawn(3, seed=seed)
        found = torch.linalg.solve(good, right)
        np.testing.assert_allclose(found.numpy(), np.linalg.solve(good.numpy(), right.numpy()), rtol=1e-4)
        with pytest.raises(torch.linalg.LinAlgError, match="singular"):
            torch.linalg.solve(torch.zeros(3, 3), right)
    assert followed_tapes()
    row = np.ones(4, np.float32)
    shared = torch.from_numpy(row.reshape(2, 2))
    for factor in (1, 2, 4, 8):
        row[:] = factor * np.array([1, 0, 0, 1], np.float32)
        assert torch.linalg.inv(shared).tolist() == [[1 / factor, 0], [0, 1 / factor]]


def test_shapes_that_data_makes():
    """They are other ones every time; what goes on with them is done again."""
    class found(Composite):
        __module__ = "flambeau.ops.math"
        def of(input): return torch.argwhere(input) * 2

    for numbers in ([0, 1, 2, 2], [0, 0, 0, 0], [5, 5, 5, 5], [1, 2, 3, 0], [0, 1, 2, 2]):
        x, array = torch.tensor(numbers), np.array(numbers)
        assert torch.nonzero(x).tolist() == torch.argwhere(x).tolist() == np.argwhere(array).tolist()
        assert found(x).tolist() == (np.argwhere(array) * 2).tolist()
        assert torch.nonzero(x, as_tuple=True)[0].tolist() == array.nonzero()[0].tolist()
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
        expected = np.unique(array, return_inverse=True, return_counts=True)
        assert [values.tolist(), inverse.tolist(), counts.tolist()] == [part.tolist() for part in expected]
        changed = [n for n, before in zip(numbers, [None, *numbers]) if n != before]
        assert torch.unique_consecutive(x).tolist() == changed
    assert followed_tapes()


def test_conversions_on_the_cpu():
    for seed in range(4):
        x = drawn(2, 3, 2, 2, seed=seed)
        assert x.to(torch.float64).dtype is x.double().dtype is torch.float64 and x.to(torch.float32) is x
        assert x.to(memory_format=torch.channels_last).is_contiguous(memory_format=torch.channels_last)
        assert x.to("cpu") is x and x.to("meta").device.type == "meta" and x.float() is x
        assert torch.randn(2, device="meta").to(torch.float64).device.type == "meta"


def test_several_results():
    for seed in range(3):
        x = drawn(3, 4, seed=seed)
        found = x.max(1)
        assert type(found).__name__ == "max" and type(x.chunk(2, 1)) is type(torch.std_mean(x)) is tuple
        assert found.values.tolist() == x.numpy().max(1).tolist()
        assert found.indices.tolist() == x.numpy().argmax(1).tolist()
        assert x.chunk(2, 1)[1].tolist() == x.numpy()[:, 2:].tolist() and x.chunk(2, 1)[0]._base is x


def test_a_warning_comes_every_time():
    x, y = drawn(3), drawn(3, 3)
    for _ in range(3):
        with pytest.warns(UserWarning, match="Using a target size"):
            F.mse_loss(x, y)


# --- what every composite reads ---------------------------------------------------------------------------------------

# What may not be asked of a tensor, or of the process, by what is followed: no key of a tape says it.
NOT_IN_A_KEY = frozenset((
    "data_ptr storage_offset storage untyped_storage _offset _storage _version _base _view_of _is_view is_leaf grad_fn "
    "_node grad retains_grad is_inference is_pinned is_shared _site _cut names "               # of a tensor
    "bounds "                                                                                   # of what it will hold
    "deterministic benchmark executor environ perf_counter monotonic current_device getrefcount").split())


def functions_of(function, seen):
    """`function` and, through the names it reads, the plain functions of flambeau.ops that it calls."""
    function = inspect.unwrap(function)
    if function in seen or not function.__module__.startswith("flambeau.ops"):
        return
    seen.add(function)
    names = {name for code in codes_of(function.__code__) for name in code.co_names}
    for name in sorted(names):
        called = function.__globals__.get(name)
        if inspect.isfunction(called):
            functions_of(called, seen)


def codes_of(code):
    yield code
    for part in code.co_consts:
        if inspect.iscode(part):
            yield from codes_of(part)


def read_beside_the_key(function):
    """`line: what` for everything that `function` reads and that no key of a tape says."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    parameters = {arg.arg for node in ast.walk(tree) if isinstance(node, ast.arguments)
                  for arg in (*node.posonlyargs, *node.args, *node.kwonlyargs)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and ast.unparse(node) != "modes.grad":
            on = node.value.id if isinstance(node.value, ast.Name) else ""
            if node.attr in NOT_IN_A_KEY or on in ("modes", "settings") and on in function.__globals__:
                yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot):
            sides = [node.left, *node.comparators]
            if all(isinstance(side, ast.Name) and side.id in parameters for side in sides):
                yield f"{node.lineno}: {ast.unparse(node)}"                       # whether two are the same tensor
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("id", "globals", "open", "hash"):
            yield f"{node.lineno}: {ast.unparse(node)}"


def composites():
    """Every composite of ours, by name, called or not."""
    for _, name, _ in pkgutil.iter_modules([str(Path(torch.__file__).with_name("ops"))]):
        for op in vars(importlib.import_module(f"flambeau.ops.{name}")).values():
            if isinstance(op, Composite) and op.__module__ == f"flambeau.ops.{name}":
                yield op


def test_what_is_followed_goes_by_what_a_key_says():
    wrong, followed = [], 0
    for op in composites():
        if not prepared(op).follows:
            continue
        followed += 1
        functions: set = set()
        functions_of(op.of, functions)
        wrong += [f"{op.__module__}.{op.__name__} reads {what} in {function.__qualname__}"
                  for function in functions for what in read_beside_the_key(function)]
    assert followed > 300 and not wrong, "\n".join(sorted(wrong))


def by_memory(x):
    return x * 2 if x.storage_offset() else x + 1


def by_mode(x):
    return x * 2 if modes.level else x + (1 if modes.grad else 2)


def by_contents(x):
    return x * 2 if door.bounds(x) else x + 1


def by_identity(x, y):
    return x * 2 if x is y else x * y


def by_none(x, y):
    return x * 2 if y is None else x * y


@pytest.mark.parametrize("function, found", [(by_memory, "x.storage_offset"), (by_mode, "modes.level"),
                                             (by_contents, "door.bounds"),
                                             (by_identity, "x is y"), (by_none, None)])
def test_the_reading_itself(function, found):
    assert [what.partition(": ")[2] for what in read_beside_the_key(function)] == ([] if found is None else [found])


def test_nothing_is_followed_around_what_cannot_be():
    factor = [1]

    class by_more(Composite):
        __module__ = "flambeau.ops.math"
        by_specs = False
        def of(input): return input * factor[0]

    class around(Composite):
        __module__ = "flambeau.ops.math"
        def of(input): return by_more(input) + 1

    for factor[0] in range(5):
        assert around(torch.ones(2)).tolist() == [factor[0] + 1] * 2


@pytest.mark.parametrize("tell", [lambda: errors.warn("said"), lambda: door.noticed("loss_sizes", *drawn(2, 3))],
                         ids=["a warning", "watch"])
def test_what_tells_is_not_followed(tell, monkeypatch):
    """With the compiled core the calls after the second would say nothing."""
    said = []
    monkeypatch.setattr(warnings, "warn", lambda *args, **kwargs: said.append(args))
    monkeypatch.setattr(noticed, "loss_sizes", lambda *sizes: said.append(sizes))

    class doubled(Composite):
        __module__ = "flambeau.ops.math"

        def of(input):
            tell()
            return input * 2

    for _ in range(5):
        assert doubled(torch.ones(2)).tolist() == [2, 2]
    assert len(said) == 5
