"""vmap: slices in, stacked results out; and what it refuses."""

import numpy as np
import pytest

import flambeau as torch
from flambeau.func import grad, jacrev, vmap


def numbers(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


batch, other = numbers(4, 3), numbers(4, 3, seed=1)


def close(a, b):
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_slices_are_mapped_and_stacked():
    close(vmap(torch.dot)(batch, other), (batch * other).sum(1))
    close(vmap(torch.dot, in_dims=(0, None))(batch, other[0]), batch @ other[0])
    close(vmap(torch.sum, in_dims=1)(batch), batch.sum(0))
    close(vmap(torch.sum, in_dims=-1)(batch), batch.sum(0))
    close(vmap(lambda t: t * 2, out_dims=1)(batch), 2 * batch.t())
    close(vmap(lambda t: t * 2, out_dims=-1)(batch), 2 * batch.t())
    close(vmap(vmap(lambda a, b: a * b), in_dims=(0, 0))(batch, other), batch * other)
    outer = vmap(vmap(torch.mul, in_dims=(None, 0)), in_dims=(0, None))
    close(outer(batch[0], other[0]), torch.outer(batch[0], other[0]))
    close(torch.vmap(torch.sum, chunk_size=3)(batch), batch.sum(1))


def test_nested_arguments_and_results():
    made = vmap(lambda d, n: {"sum": d["a"] + d["b"], "both": (d["a"].sum(), d["a"] * n)},
                in_dims=({"a": 0, "b": None}, None))({"a": batch, "b": other[0]}, 3)
    close(made["sum"], batch + other[0]), close(made["both"][0], batch.sum(1)), close(made["both"][1], 3 * batch)
    first, second = vmap(lambda t: (t, t.sum()), out_dims=(1, 0))(batch)
    close(first, batch.t()), close(second, batch.sum(1))
    close(vmap(lambda t, extra=None: t + extra)(batch, extra=other[0]), batch + other[0])       # by name: not mapped
    mapped, same = vmap(lambda t, u: (t, u), in_dims=(0, None), out_dims=(0, None))(batch, other)
    assert same is other and mapped.shape == batch.shape
    close(vmap(lambda t: torch.ones(2))(batch), torch.ones(4, 2))


def test_nothing_to_map_over_has_the_right_shape():
    assert vmap(lambda t: t.sum(0, keepdim=True))(torch.ones(0, 3)).shape == (0, 1)
    assert vmap(lambda t: t, out_dims=1)(torch.ones(0, 3)).shape == (3, 0)


def test_gradients_pass_through():
    leaf = batch.clone().requires_grad_()
    vmap(lambda t: (t ** 2).sum())(leaf).sum().backward()
    close(leaf.grad, 2 * batch)
    each = vmap(grad(lambda w, t: torch.dot(w, t) ** 2), in_dims=(None, 0))(other[0], batch)
    close(each, 2 * (batch @ other[0])[:, None] * batch)
    close(vmap(jacrev(torch.sin))(batch), torch.diag_embed(batch.cos()))


def test_writing_in_place():
    held = batch.clone()
    vmap(lambda t: t.add_(1))(held)                            # slices are views of what is mapped over
    close(held, batch + 1)
    with pytest.raises(RuntimeError, match="not mapped over"):
        vmap(lambda t, u: u.add_(t), in_dims=(0, None))(batch, torch.zeros(3))


def test_randomness():
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(lambda t: t + torch.rand(3))(batch)
    torch.manual_seed(0)
    different = vmap(lambda t: torch.rand(3), randomness="different")(batch)
    assert len({tuple(row) for row in different.tolist()}) == 4
    same = vmap(lambda t: torch.rand(3), randomness="same")(batch)
    assert len({tuple(row) for row in same.tolist()}) == 1
    assert not torch.equal(same[0], vmap(lambda t: torch.rand(3), randomness="same")(batch)[0])


def test_misuse_is_said():
    for call, kind, words in (
            (lambda: vmap(torch.add, in_dims=None)(batch, batch), ValueError, "expected `in_dims` to be int or a"),
            (lambda: vmap(torch.add, in_dims=[0, 0])(batch, batch), ValueError, "expected `in_dims` to be int or a"),
            (lambda: vmap(torch.add, in_dims=(None, None))(batch, batch), ValueError, "at least one Tensor to vmap"),
            (lambda: vmap(lambda: 3)(), ValueError, "got no inputs"),
            (lambda: vmap(torch.add)(batch, torch.ones(3, 3)), ValueError, "same size in the mapped dimension"),
            (lambda: vmap(torch.add, in_dims=(0,))(batch, batch), ValueError, "structure of `inputs`"),
            (lambda: vmap(torch.add, in_dims=(0.5, 0))(batch, batch), ValueError, "Got in_dim=0.5"),
            (lambda: vmap(torch.add)(batch, 3), ValueError, "cannot vmap over non-Tensor arguments"),
            (lambda: vmap(torch.sum, in_dims=2)(batch), ValueError, "-2 <= in_dim < 2"),
            (lambda: vmap(torch.sum)(torch.tensor(1.0)), ValueError, "dimensionality 0"),
            (lambda: vmap(lambda t: 3)(batch), ValueError, "must only return Tensors, got type <class 'int'>"),
            (lambda: vmap(lambda t: None)(batch), ValueError, "must only return Tensors"),
            (lambda: vmap(lambda t: (t, t), out_dims=(0,))(batch), ValueError, "structure of `outputs`"),
            (lambda: vmap(lambda t: t, out_dims="a")(batch), ValueError, "`out_dims` must be an int, None"),
            (lambda: vmap(lambda t: t, out_dims=None)(batch), ValueError, "BatchedTensor when out_dim is None"),
            (lambda: vmap(lambda t: t, out_dims=3)(batch), IndexError, "Dimension out of range"),
            (lambda: vmap(torch.sum, chunk_size=0)(batch), ValueError, "chunk_size should be None or greater"),
            (lambda: vmap(torch.sum, randomness="some")(batch), RuntimeError, "Only allowed values for randomness")):
        with pytest.raises(kind, match=words):
            call()


def test_a_graph_is_kept_for_all_slices():
    """torchjd goes back through one graph for each row of a Jacobian, inside of vmap; afterwards the graph is gone."""
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x ** 2

    def back(g):
        return torch.autograd.grad(y, x, g)[0]

    assert torch.equal(vmap(back)(torch.eye(3)), torch.diag(2 * x.detach()))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        back(torch.ones(3))
