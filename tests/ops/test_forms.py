"""In-place and `out=` forms of what is not pointwise: the same numbers, in the memory that was there."""
import numpy as np
import pytest

import flambeau as torch
from flambeau.tensor.forms import declared

from .rows import numbers

F = torch.nn.functional
X, V, I = numbers((3, 4)), numbers((4,), seed=1), np.array([2, 0])
SRC, MASK, J = numbers((2, 4), seed=2), X > 0.2, np.array([[1, 3], [2, 0], [0, 1]])
A, B, BATCH = numbers((3, 2), seed=3), numbers((2, 4), seed=4), numbers((2, 3, 4), seed=5)
t = torch.tensor

IN_PLACE = {
    "copy": (SRC[0],), "fill": (3.0,), "zero": (), "div": (2.0,), "floor_divide": (2.0,), "remainder": (0.7,), "fmod": (0.7,),
    "pow": (2,), "square": (), "round": (), "conj_physical": (), "clamp": (-0.5, 0.5), "renorm": (2, 0, 1.0), "cumsum": (1,),
    "cumprod": (0,), "tril": (), "triu": (1,), "fill_diagonal": (9.0,), "index_put": ((I,), SRC), "index_add": (0, I, SRC),
    "index_copy": (0, I, SRC), "index_fill": (0, I, 9.0), "put": (I, SRC[0, :2]), "masked_fill": (MASK, 9.0), "masked_scatter": (MASK, BATCH),
    "scatter": (1, J, 9.0), "scatter_add": (1, J, A), "scatter_reduce": (1, J, A, "amax"), "index_reduce": (0, I, SRC, "prod"),
    "addmm": (A, B), "addr": (A[:, 0], V), "mvlgamma": (2,),
}
FUNCTIONAL = "relu hardtanh leaky_relu hardsigmoid hardswish elu selu celu silu mish rrelu threshold".split()
OTHER_SHAPES = {"addmv", "baddbmm", "addbmm"}
TENSOR_SECOND = {"polygamma"}


def given(arg):
    if isinstance(arg, tuple):
        return tuple(given(a) for a in arg)
    return t(arg) if isinstance(arg, np.ndarray) else arg


def test_every_in_place_form_is_here():
    there = {(op.names.split() or [name])[0].rpartition(".")[2].removesuffix("_") if name.startswith("_") else name.removesuffix("_")
             for name, op in declared.items() if "inplace" in op.forms.split() and not op.pointwise}
    assert there == set(IN_PLACE) | set(FUNCTIONAL) | OTHER_SHAPES | TENSOR_SECOND


def test_in_place_where_the_tensor_is_the_second_argument():
    x = t(np.abs(X) + 0.3)
    expected = torch.polygamma(1, x).tolist()
    assert x.polygamma_(1) is x and x.tolist() == expected


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name):
    args = [given(a) for a in IN_PLACE[name]]
    expected = expected_of(name, args)
    for x in (t(X), t(X.T.copy()).t(), torch.zeros(6, 8, dtype=torch.float64)[::2, ::2].copy_(t(X))):
        storage, version = x._storage, x._version
        result = getattr(x, name + "_")(*args)
        assert result is x and x._storage is storage and x._version == version + 1
        np.testing.assert_allclose(x.numpy(), expected, rtol=1e-13)


def expected_of(name, args):
    if name in ("copy", "fill", "zero", "fill_diagonal"):
        y = X.copy()
        if name == "fill_diagonal":
            np.fill_diagonal(y, 9.0)
        else:
            y[...] = {"copy": SRC[0], "fill": 3.0, "zero": 0.0}[name]
        return y
    return getattr(torch, name)(t(X), *args).numpy()              # whose values the tables hold


@pytest.mark.parametrize("name, x, args", [("addmv", V[:3], (A, V[:2])), ("baddbmm", BATCH[:, :, :3], (BATCH, BATCH.swapaxes(1, 2))),
                                           ("addbmm", X[:, :3], (BATCH, BATCH.swapaxes(1, 2)))])
def test_in_place_of_other_shapes(name, x, args):
    y = t(x)
    args = [t(a) for a in args]
    expected = getattr(torch, name)(y, *args).numpy().copy()
    assert getattr(y, name + "_")(*args) is y
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-13)


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_in_place_activations(name):
    args = (0.1, 5.0) if name == "threshold" else ()
    x = t(X)
    expected = getattr(F, name)(t(X), *args).numpy()
    assert getattr(F, name)(x, *args, inplace=True) is x
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-13)


def test_in_place_forms_carry_gradients():
    for name, args in IN_PLACE.items():
        if name in ("round", "floor_divide", "fill_diagonal"):
            continue
        x = t(X).requires_grad_()
        expected = None
        if name not in ("copy", "fill", "zero"):
            expected, = torch.autograd.grad(getattr(torch, name)(x * 1, *[given(a) for a in args]).sum(), x)
        y = x * 1
        getattr(y, name + "_")(*[given(a) for a in args])
        ours, = torch.autograd.grad(y.sum(), x)
        np.testing.assert_allclose(ours.numpy(), np.zeros((3, 4)) if expected is None else expected.numpy(), rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("name, args", [
    ("uniform_", ()), ("normal_", ()), ("random_", (5,)), ("bernoulli_", ()), ("exponential_", ()), ("geometric_", (0.5,)), ("cauchy_", ()),
    ("log_normal_", ())])
def test_random_writes_cut_the_gradient(name, args):
    x = t(X).requires_grad_()
    y = x * 1
    assert getattr(y, name)(*args) is y and y.requires_grad and y._version == 1
    y.sum().backward()
    assert x.grad.tolist() == np.zeros((3, 4)).tolist()


def test_drawn_numbers_have_no_gradient_for_their_parameters():
    mean, std = t(X).requires_grad_(), t(np.abs(X)).requires_grad_()
    torch.normal(mean, std).sum().backward()
    assert not mean.grad.any() and not std.grad.any()


OUT = {
    "sum": lambda **k: torch.sum(t(X), 1, **k), "mean": lambda **k: torch.mean(t(X), 1, **k), "amax": lambda **k: torch.amax(t(X), 1, **k),
    "max": lambda **k: torch.max(t(X), 1, **k), "argmax": lambda **k: torch.argmax(t(X), 1, **k), "var": lambda **k: torch.var(t(X), 1, **k),
    "softmax": lambda **k: torch.softmax(t(X), 1, **k), "logsumexp": lambda **k: torch.logsumexp(t(X), 1, **k),
    "sort": lambda **k: torch.sort(t(X), 1, **k), "topk": lambda **k: torch.topk(t(X), 2, **k), "cumsum": lambda **k: torch.cumsum(t(X), 1, **k),
    "cat": lambda **k: torch.cat([t(X), t(X)], **k), "stack": lambda **k: torch.stack([t(X), t(X)], **k),
    "gather": lambda **k: torch.gather(t(X), 1, t(J), **k), "index_select": lambda **k: torch.index_select(t(X), 0, t(I), **k),
    "matmul": lambda **k: torch.matmul(t(A), t(B), **k), "mm": lambda **k: torch.mm(t(A), t(B), **k),
    "addmm": lambda **k: torch.addmm(t(X), t(A), t(B), **k), "inv": lambda **k: torch.linalg.inv(t(A.T @ A), **k),
    "svd": lambda **k: torch.linalg.svd(t(A), **k), "tril": lambda **k: torch.tril(t(X), **k), "where": lambda **k: torch.where(t(MASK), t(X), 0.0, **k),
    "div": lambda **k: torch.div(t(X), 2.0, **k), "clamp": lambda **k: torch.clamp(t(X), 0, 1, **k), "arange": lambda **k: torch.arange(5, **k),
}


@pytest.mark.parametrize("name", OUT)
def test_out(name):
    call = OUT[name]
    expected = call()
    several = isinstance(expected, tuple)
    parts = expected if several else (expected,)
    empty = tuple(torch.empty(0, dtype=p.dtype) for p in parts)
    result = call(out=empty if several else empty[0])
    for out, got, want in zip(empty, result if several else (result,), parts, strict=True):
        assert got is out and out.shape == want.shape
        np.testing.assert_array_equal(out.numpy(), want.numpy())
    ready = tuple(torch.zeros(p.shape, dtype=p.dtype) for p in parts)
    memory = [r._storage for r in ready]
    call(out=ready if several else ready[0])
    for out, storage, want in zip(ready, memory, parts, strict=True):
        assert out._storage is storage and out._version == 1
        np.testing.assert_array_equal(out.numpy(), want.numpy())


def test_out_of_the_wrong_shape_is_resized_with_a_warning():
    out = torch.zeros(7, dtype=torch.float64)
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        torch.sum(t(X), 1, out=out)
    np.testing.assert_allclose(out.numpy(), X.sum(1))


def test_out_refuses_what_it_cannot_hold():
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(t(X), 1.5, out=torch.zeros(3, 4, dtype=torch.int64))
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        torch.add(t(X).requires_grad_(), 1, out=torch.zeros(3, 4, dtype=torch.float64))
    with pytest.raises(TypeError, match="must be Tensor"):
        torch.add(t(X), 1, out=3)


def test_out_may_be_an_operand():
    x = t(X)
    torch.mul(x, x, out=x)
    np.testing.assert_allclose(x.numpy(), X * X)
