"""gradcheck finds wrong derivatives, and only those."""
import numpy as np
import pytest

import flambeau as torch
from flambeau.autograd import Function, GradcheckError, gradcheck, gradgradcheck


def leaf(array):
    return torch.tensor(array, requires_grad=True)


X = np.random.default_rng(3).standard_normal((2, 3))


def function(forward, backward):
    return type("Made", (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)}).apply


def saves(ctx, x):
    ctx.save_for_backward(x)
    return x * x


def test_right_derivatives_pass():
    right = function(saves, lambda ctx, g: g * 2 * ctx.saved_tensors[0])
    assert gradcheck(right, leaf(X)) and gradgradcheck(right, leaf(X))
    assert gradcheck(lambda a, b: a @ b.t(), (leaf(X), leaf(X + 1)))
    assert gradcheck(lambda x, k: x * k, (leaf(X), 3.0))
    assert gradcheck(lambda x: (x * 2, x.sum()), leaf(X))


@pytest.mark.parametrize("backward", [
    lambda ctx, g: g, lambda ctx, g: g * 2.01 * ctx.saved_tensors[0], lambda ctx, g: g * 0,
    lambda ctx, g: -g * 2 * ctx.saved_tensors[0], lambda ctx, g: None], ids="one off zero sign none".split())
def test_wrong_derivatives_are_found(backward):
    wrong = function(saves, backward)
    with pytest.raises(GradcheckError, match="mismatch for output 0 with respect to input 0"):
        gradcheck(wrong, leaf(X))
    assert not gradcheck(wrong, leaf(X), raise_exception=False)


def test_a_second_derivative_that_is_wrong_is_found():
    @torch.no_grad()
    def detached(ctx, g):
        return g * 2 * ctx.saved_tensors[0]
    first_only = function(saves, detached)
    assert gradcheck(first_only, leaf(X))
    with pytest.raises((GradcheckError, RuntimeError)):
        gradgradcheck(first_only, leaf(X))


def test_a_backward_that_changes_its_mind_is_found():
    calls = []

    def moody(ctx, g):
        calls.append(1)
        return g * 2 * ctx.saved_tensors[0] + 1e-7 * len(calls)
    with pytest.raises(GradcheckError, match="not reentrant"):
        gradcheck(function(saves, moody), leaf(X))


def test_complex_derivatives():
    z = torch.tensor([0.3 + 1j, 1 - 2j], dtype=torch.complex128, requires_grad=True)
    assert gradcheck(lambda a: a * a.conj(), z) and gradcheck(lambda a: a.abs(), z) and gradcheck(torch.exp, z)
    assert gradgradcheck(lambda a: a * a * a, z)
    wrong = function(saves, lambda ctx, g: g * 2 * ctx.saved_tensors[0])           # not conjugated
    assert not gradcheck(wrong, z, raise_exception=False)


def test_inputs_are_checked():
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(torch.exp, torch.ones(2))
    with pytest.warns(UserWarning, match="not a double precision"):
        gradcheck(torch.sin, torch.ones(2, requires_grad=True), eps=1e-2, atol=1e-2)
    with pytest.raises(RuntimeError, match="stride 0"):
        gradcheck(torch.exp, torch.ones(1, dtype=torch.float64).expand(3).requires_grad_())


def test_inputs_are_left_as_they_were():
    x = leaf(X)
    gradcheck(torch.exp, x)
    np.testing.assert_array_equal(x.detach().numpy(), X)
    assert x.grad is None


def test_an_input_is_nudged_wherever_the_function_has_it_from():
    """In a dictionary, in a closure, as a part of a larger tensor; and what was recorded before goes on."""
    whole = torch.arange(6.0, dtype=torch.float64).reshape(2, 3) + 1
    x = whole[:, 1].requires_grad_()
    held = {"x": x}
    before = (x ** 3).sum()
    assert gradcheck(lambda _: held["x"] ** 2, x) and gradcheck(lambda _: x.exp(), x)
    assert not gradcheck(lambda _: held["x"].detach() * x, x, raise_exception=False)
    before.backward()
    assert x.grad.tolist() == [12.0, 75.0] and x._version == 0
    assert whole.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def test_an_input_that_comes_out():
    x = leaf(X)
    assert gradcheck(lambda a: (a, a * a), x) and gradcheck(lambda a: (a, a.exp()), x)
