"""The ten-second test: a little of everything, against answers worked out by hand or in PyTorch's documentation."""
import math

import numpy as np
import pytest

import flambeau as torch


def test_making_tensors():
    assert torch.zeros(2, 3).tolist() == [[0.0] * 3] * 2
    assert torch.ones(2, dtype=torch.int64).tolist() == [1, 1]
    assert torch.full((2,), 7).tolist() == [7, 7]
    assert torch.arange(2, 10, 3).tolist() == [2, 5, 8]
    assert torch.linspace(0, 1, 5).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert torch.eye(2).tolist() == [[1, 0], [0, 1]]
    assert torch.tensor([1, 2.5]).dtype is torch.float32 and torch.tensor([1, 2]).dtype is torch.int64


def test_arithmetic_promotes_and_broadcasts():
    x = torch.tensor([[1, 2], [3, 4]])
    assert (x + torch.tensor([10, 20])).tolist() == [[11, 22], [13, 24]]
    assert (x / 2).tolist() == [[0.5, 1], [1.5, 2]] and (x / 2).dtype is torch.float32
    assert (-7 // torch.tensor(2)).item() == -4 and (torch.tensor(-7) % 3).item() == 2
    assert (2 ** torch.tensor([0, 3])).tolist() == [1, 8]
    assert (x.double() * torch.tensor(1j)).dtype is torch.complex128
    assert (torch.tensor([250], dtype=torch.uint8) + 10).tolist() == [4]


def test_mathematics():
    x = torch.tensor([0.0, 1.0], dtype=torch.float64)
    assert torch.exp(x).tolist() == [1.0, math.e]
    assert torch.cos(math.pi * x).tolist() == [1.0, -1.0]
    assert torch.sigmoid(x)[0].item() == 0.5 and torch.erf(x)[1].item() == pytest.approx(math.erf(1))
    assert torch.clamp(torch.tensor([-2, 0, 5]), 0, 3).tolist() == [0, 0, 3]
    assert torch.where(x > 0, x, -1.0).tolist() == [-1.0, 1.0]


def test_reductions():
    x = torch.tensor([[3.0, 1.0], [2.0, 5.0]])
    assert x.sum().item() == 11 and x.mean(0).tolist() == [2.5, 3.0] and x.prod(1).tolist() == [3, 10]
    values, indices = x.max(dim=1)
    assert values.tolist() == [3, 5] and indices.tolist() == [0, 1]
    assert x.var().item() == pytest.approx(35 / 12) and x.argmin().item() == 1
    assert x.cumsum(1).tolist() == [[3, 4], [2, 7]]
    assert x.logsumexp(1)[0].item() == pytest.approx(math.log(math.exp(3) + math.e))


def test_order():
    x = torch.tensor([3, 1, 2])
    assert x.sort().values.tolist() == [1, 2, 3] and x.argsort().tolist() == [1, 2, 0]
    assert x.topk(2).values.tolist() == [3, 2] and x.median().item() == 2
    assert torch.tensor([2, 1, 2]).unique(return_counts=True)[1].tolist() == [1, 2]


def test_shapes_and_views():
    x = torch.arange(6)
    y = x.view(2, 3)
    y[1, 0] = 10
    assert x.tolist() == [0, 1, 2, 10, 4, 5]
    assert y.t().tolist() == [[0, 10], [1, 4], [2, 5]] and y.t().stride() == (1, 3)
    assert torch.cat([y, y], 1).shape == (2, 6) and torch.stack([y, y]).shape == (2, 2, 3)
    y.t()[0].zero_()
    assert x.tolist() == [0, 1, 2, 0, 4, 5] and x._version == 2


def test_indexing():
    x = torch.arange(12).reshape(3, 4)
    assert x[1:, ::2].tolist() == [[4, 6], [8, 10]] and x[..., -1].tolist() == [3, 7, 11]
    assert x[torch.tensor([2, 0]), torch.tensor([1, 1])].tolist() == [9, 1] and x[x > 9].tolist() == [10, 11]
    x[x % 2 == 0] = -1
    assert x[0].tolist() == [-1, 1, -1, 3]
    assert x.gather(1, torch.tensor([[1], [3], [1]])).tolist() == [[1], [7], [9]]
    assert torch.zeros(3).scatter_add(0, torch.tensor([0, 0, 2]), torch.ones(3)).tolist() == [2, 0, 1]


def test_matrices():
    a, b = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    assert (a @ b).tolist() == [[2, 1], [4, 3]] and torch.einsum("ij,ij->i", a, a).tolist() == [5, 25]
    assert torch.linalg.det(a).item() == pytest.approx(-2)
    assert torch.linalg.solve(a, torch.tensor([5.0, 11.0])).tolist() == pytest.approx([1, 2])


def test_neural_functions():
    F = torch.nn.functional
    x = torch.tensor([[-1.0, 0.0, 2.0]])
    assert F.relu(x).tolist() == [[0, 0, 2]] and F.softmax(x, 1).sum().item() == pytest.approx(1)
    loss = F.cross_entropy(x, torch.tensor([2]))
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-2) + math.exp(-3)))
    assert F.layer_norm(x, (3,)).mean().item() == pytest.approx(0, abs=1e-6)


def test_in_place():
    x = torch.tensor([1.0, 2.0])
    y = x.add_(1).mul_(2)
    assert y is x and x.tolist() == [4, 6] and x._version == 2
    x += x
    torch.sub(x, 1, out=x)
    assert x.tolist() == [7, 11]


def test_backward_of_an_mlp():
    """x → tanh(x W₁ + b₁) → W₂ → half the squared error, and the chain rule by hand in NumPy."""
    rng = np.random.default_rng(0)
    x, t = rng.standard_normal((5, 3)), rng.standard_normal((5, 2))
    w1, b1, w2 = rng.standard_normal((3, 4)), rng.standard_normal(4), rng.standard_normal((4, 2))

    h = np.tanh(x @ w1 + b1)
    e = h @ w2 - t
    by_hand = {"w2": h.T @ e, "w1": x.T @ (e @ w2.T * (1 - h * h)), "b1": (e @ w2.T * (1 - h * h)).sum(0)}

    p = {name: torch.tensor(value, requires_grad=True) for name, value in (("w1", w1), ("b1", b1), ("w2", w2))}
    out = torch.tanh(torch.tensor(x) @ p["w1"] + p["b1"]) @ p["w2"]
    loss = ((out - torch.tensor(t)) ** 2).sum() / 2
    loss.backward()
    assert loss.item() == pytest.approx((e * e).sum() / 2)
    for name, expected in by_hand.items():
        np.testing.assert_allclose(p[name].grad.numpy(), expected, rtol=1e-12)


def test_second_derivative():
    x = torch.tensor(2.0, requires_grad=True)
    slope, = torch.autograd.grad(x ** 4, x, create_graph=True)
    slope.backward()
    assert slope.item() == 32 and x.grad.item() == 48


def test_numpy_shares_memory():
    array = np.zeros(3)
    x = torch.from_numpy(array)
    x += 1
    array[0] = 7
    assert x.tolist() == [7, 1, 1] and array.tolist() == [7, 1, 1]
    assert np.shares_memory(x.numpy(), array) and not np.shares_memory(torch.tensor(array).numpy(), array)


def test_seeded_numbers_are_pytorchs():
    """Printed in "Introduction to PyTorch Tensors" on pytorch.org, which seeds with 1729."""
    torch.manual_seed(1729)
    first, second = torch.rand(2, 3), torch.rand(2, 3)
    assert str(first) == "tensor([[0.3126, 0.3791, 0.3087],\n        [0.0736, 0.4216, 0.0691]])"
    assert str(second) == "tensor([[0.2332, 0.4047, 0.2162],\n        [0.9927, 0.4128, 0.5938]])"
    torch.manual_seed(1729)
    assert torch.equal(torch.rand(2, 3), first)


def test_an_error_says_what_and_where():
    weight, batch = torch.zeros(4, 3), torch.zeros(2, 5)
    with pytest.raises(RuntimeError) as caught:
        batch @ weight
    text = str(caught.value)
    assert "mat1 and mat2 shapes cannot be multiplied (2x5 and 4x3)" in text
    assert "batch" in text and "weight" in text and "test_tiny.py:" in text
