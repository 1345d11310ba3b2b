"""Transforms of functions inside of a compiled one: what the engine calls of them is no code of the program's."""
import pytest

import flambeau as torch

F = torch.nn.functional


def mapped(x, w):
    return torch.func.vmap(lambda row: torch.tanh(row @ w).sum() * row[0])(x)


def per_sample(x, w):
    return torch.func.vmap(torch.func.grad(lambda w, row: F.softplus(row @ w).sum()), in_dims=(None, 0))(w, x)


def derivative(x, w):
    return torch.func.grad(lambda w: (x @ w).sin().sum())(w)


def jacobian(x, w):
    return torch.func.jacrev(lambda row: torch.tanh(row @ w))(x[0])


def with_value(x, w):
    gradients, value = torch.func.grad_and_value(lambda held: (x @ held["w"] + held["b"]).square().mean())(
        {"w": w, "b": w[0] * 2})
    return gradients["w"] + gradients["b"] * value


@pytest.mark.parametrize("function", [mapped, per_sample, derivative, jacobian, with_value])
def test_transforms(function):
    torch.manual_seed(0)
    compiled = torch.compile(function)
    for turn in range(6):
        x, w = torch.randn(5, 3) * (turn + 1), torch.randn(3, 4)
        assert compiled(x, w).tolist() == function(x, w).tolist()
    assert compiled.recordings[0].hits >= 4                  # the first call may import something


def test_what_is_mapped_is_followed():
    """A number that the inner function reads is guarded, and so is a flag."""
    state = {"scale": 1.0, "deep": False}

    def function(x):
        return torch.func.vmap(lambda row: (row * state["scale"]).exp() if state["deep"] else row * state["scale"])(x)
    compiled = torch.compile(function)
    x = torch.arange(6.0).reshape(2, 3)
    for turn in range(8):
        state["scale"], state["deep"] = float(turn > 2), turn > 5
        assert compiled(x).tolist() == function(x).tolist()
    assert len(compiled.recordings) == 3
