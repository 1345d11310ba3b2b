"""Functions of the user's own."""
import numpy as np
import pytest

import flambeau as torch
from flambeau.autograd import Function, gradcheck, gradgradcheck, once_differentiable


def leaf(*data):
    return torch.tensor(data, dtype=torch.float64, requires_grad=True)


class Cube(Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x ** 3 * k

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * 3 * x * x * ctx.k, None


def test_forward_and_backward():
    x = leaf(1.0, 2.0)
    y = Cube.apply(x, 2.0)
    assert y.tolist() == [2, 16] and y.grad_fn.name() == "CubeBackward" and y.grad_fn.k == 2.0
    assert repr(y.grad_fn).startswith("<torch.autograd.function.CubeBackward object at 0x")
    y.sum().backward()
    assert x.grad.tolist() == [6, 24]


def test_second_derivatives_come_through_backward():
    x = leaf(0.5, 1.5)
    assert gradcheck(lambda x: Cube.apply(x, 2.0), x) and gradgradcheck(lambda x: Cube.apply(x, 2.0), x)


class Exp(Function):
    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        out, = ctx.saved_tensors
        return g * out


def test_setup_context_and_a_kept_result():
    x = leaf(0.0, 1.0)
    y = Exp.apply(x)
    g, = torch.autograd.grad(y.sum(), x, create_graph=True)
    gg, = torch.autograd.grad(g.sum(), x)
    np.testing.assert_allclose(gg.numpy(), np.exp([0.0, 1.0]))


def test_a_kept_result_that_is_written_is_noticed():
    y = Exp.apply(leaf(0.0, 1.0))
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_kept_tensors_are_freed_and_a_second_backward_is_refused():
    x = leaf(1.0)
    y = Cube.apply(x, 1.0)
    y.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward()


class Pair(Function):
    @staticmethod
    def forward(ctx, a, b):
        larger = (a > b).long()
        ctx.mark_non_differentiable(larger)
        ctx.seen = []
        return a * 2, b * 3, larger

    @staticmethod
    def backward(ctx, ga, gb, _):
        ctx.seen.append((ga, gb))
        return ga * 2, gb * 3


def test_several_results_and_gradients_that_did_not_come():
    a, b = leaf(1.0, 5.0), leaf(2.0, 3.0)
    x, y, larger = Pair.apply(a, b)
    assert larger.tolist() == [0, 1] and not larger.requires_grad and x.grad_fn is y.grad_fn
    x.sum().backward()
    assert a.grad.tolist() == [2, 2] and b.grad.tolist() == [0, 0]       # zeros came for y


def test_gradients_that_did_not_come_as_none():
    class Lazy(Pair):
        @staticmethod
        def forward(ctx, a, b):
            ctx.set_materialize_grads(False)
            return a * 2, b * 3

        @staticmethod
        def backward(ctx, ga, gb):
            assert gb is None
            return ga * 2, None
    a, b = leaf(1.0), leaf(2.0)
    Lazy.apply(a, b)[0].backward()
    assert a.grad.item() == 2 and b.grad is None


def test_needs_input_grad():
    seen = []

    class Look(Function):
        @staticmethod
        def forward(ctx, a, b, c):
            return a + b

        @staticmethod
        def backward(ctx, g):
            seen.append(ctx.needs_input_grad)
            return g, None, None
    Look.apply(leaf(1.0), torch.ones(1, dtype=torch.float64), 3).backward()
    assert seen == [(True, False, False)]


class Increment(Function):
    @staticmethod
    def forward(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 7                                       # visibly ours


def test_a_function_that_writes_in_place():
    x = leaf(1.0, 2.0)
    y = x * 1
    z = Increment.apply(y)
    assert z is y and y._version == 1 and y.tolist() == [2, 3]
    z.sum().backward()
    assert x.grad.tolist() == [7, 7]
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        Increment.apply(x)


def test_a_function_that_writes_a_view():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    Increment.apply(y[1:])
    y.sum().backward()
    assert y.tolist() == [1, 3, 4] and x.grad.tolist() == [1, 7, 7]


def test_an_input_handed_back_is_not_the_input():
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2
    x = leaf(1.0)
    y = Same.apply(x)
    y.backward()
    assert y is not x and x.grad.item() == 2
    y = Same.apply(x * 1)
    with pytest.raises(RuntimeError, match="custom Function"):
        y.add_(1)


@pytest.mark.parametrize("returned, kind, words", [
    (lambda g: g, RuntimeError, r"returned an incorrect number of gradients \(expected 2, got 1\)"),
    (lambda g: (g, g, g), RuntimeError, r"returned an incorrect number of gradients \(expected 2, got 3\)"),
    (lambda g: (g, 1.0), TypeError, "expected Variable or None"),
    (lambda g: (g, g, None), None, None),
])
def test_what_backward_returns_is_checked(returned, kind, words):
    class Careless(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, g):
            return returned(g)
    y = Careless.apply(leaf(1.0), leaf(2.0))
    if kind is None:
        y.backward()
    else:
        with pytest.raises(kind, match=words):
            y.backward()


def test_once_differentiable():
    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return g * 2 * ctx.saved_tensors[0]
    x = leaf(3.0)
    g, = torch.autograd.grad(Once.apply(x).sum() * x.sum(), x, create_graph=True)
    assert g.item() == 27
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


def test_forward_mode_rule():
    class Square(Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])
            ctx.save_for_forward(inputs[0])

        @staticmethod
        def backward(ctx, g):
            return g * 2 * ctx.saved_tensors[0]

        @staticmethod
        def jvp(ctx, t):
            return 2 * ctx.saved_tensors[0] * t
    assert gradcheck(Square.apply, leaf(1.0, 2.0), check_forward_ad=True)


def test_functions_are_not_instantiated():
    with pytest.raises(RuntimeError, match="should not be instantiated"):
        Cube()


def test_without_gradients_nothing_is_kept():
    with torch.no_grad():
        y = Cube.apply(leaf(2.0), 1.0)
    assert not y.requires_grad and y.grad_fn is None and Cube.apply(torch.ones(1), 1.0).grad_fn is None
