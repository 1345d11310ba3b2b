"""Derivatives of functions against formulas and differences: values, nesting, structure, and what has a history."""

import numpy as np
import pytest

import flambeau as torch
from flambeau.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp


def numbers(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


x, y = numbers(3), numbers(3, seed=1)


def differences(f, at, step=1e-6):
    """The Jacobian of `f` at the array `at`, by central differences."""
    columns = []
    for i in np.ndindex(at.shape):
        moved = [at.copy(), at.copy()]
        moved[0][i] += step
        moved[1][i] -= step
        up, down = (f(torch.from_numpy(m)).numpy() for m in moved)
        columns.append((up - down) / (2 * step))
    return np.stack(columns, -1).reshape(*columns[0].shape, *at.shape)


def tangled(t):
    return (t.sin() * t.flip(0)).cumsum(0).tanh()


def close(a, b, tol=1e-6):
    np.testing.assert_allclose(a.detach().numpy() if isinstance(a, torch.Tensor) else a,
                               b.detach().numpy() if isinstance(b, torch.Tensor) else b, rtol=tol, atol=tol)


@pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
def test_jacobians(jacobian):
    close(jacobian(tangled)(x), differences(tangled, x.numpy().copy()))
    matrix = numbers(2, 3)
    made = jacobian(lambda m: m @ m.t())(matrix)
    assert made.shape == (2, 2, 2, 3)
    close(made, differences(lambda m: m @ m.t(), matrix.numpy().copy()))


def test_hessians_and_higher():
    f = lambda t: t.sin().prod()
    wanted = differences(lambda t: grad(f)(t), x.numpy().copy())
    for made in (hessian(f), jacrev(jacrev(f)), jacfwd(jacfwd(f)), jacrev(jacfwd(f)), jacfwd(grad(f))):
        close(made(x), wanted)
    cubic = grad(grad(grad(lambda t: t ** 5)))
    assert cubic(torch.tensor(2.0, dtype=torch.float64)).item() == pytest.approx(60 * 4)


# of a function and where it is: each of flambeau/func/derivatives.py, by its name
TRANSFORMS = {
    "grad": lambda f, t: grad(lambda u: f(u).sum())(t),
    "grad_and_value": lambda f, t: grad_and_value(lambda u: f(u).sum())(t),
    "grad of grad": lambda f, t: grad(lambda u: grad(lambda w: f(w).sum())(u).sum())(t),
    "vjp": lambda f, t: vjp(f, t)[1](y)[0],
    "jvp": lambda f, t: jvp(f, (t,), (y,)),
    "linearize": lambda f, t: linearize(f, t)[1](y),
    "jacrev": lambda f, t: jacrev(f)(t),
    "jacfwd": lambda f, t: jacfwd(f)(t),
    "hessian": lambda f, t: hessian(lambda u: f(u).sum())(t),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_inference(transform):
    """A transform gives the same in inference mode, and at inference tensors, and at those it closes over."""
    with torch.inference_mode():
        marked, scale = x.clone(), y.clone()
    wanted = transform(lambda t: tangled(t * y), x)
    for mode in (True, False):
        for at in (x, marked):
            with torch.inference_mode(mode):
                made = transform(lambda t: tangled(t * scale), at)
            for a, b in zip(made, wanted, strict=True):
                assert not a.is_inference()
                close(a, b, 0)


def test_products():
    full = jacrev(tangled)(x)
    out, back = vjp(tangled, x)
    close(out, tangled(x))
    close(back(y)[0], y @ full)
    close(back(y)[0], y @ full)                                # as often as wanted
    out, tangent = jvp(tangled, (x,), (y,))
    close(out, tangled(x))
    close(tangent, full @ y)
    out, forward = linearize(tangled, x)
    close(forward(y), full @ y)
    close(forward(x), full @ x)
    second = jvp(lambda t: jvp(tangled, (t,), (y,))[1], (x,), (y,))[1]
    close(second, np.einsum("ijk,j,k->i", differences(jacrev(tangled), x.numpy().copy()), y.numpy(), y.numpy()), 1e-5)


def test_levels_are_not_confused():
    two = torch.tensor(2.0)
    assert grad(lambda a: a * grad(lambda b: a + b)(a))(two) == 1          # not 2
    assert grad(lambda a: a * grad(lambda b: a * b)(two))(two) == 4
    assert jvp(lambda a: a * jvp(lambda b: a + b, (two,), (two,))[1], (two,), (torch.tensor(1.0),))[1] == 2


def test_structure():
    f = lambda d, s: {"sum": (d["a"] + s[0]).sum(), "product": d["a"] * s[0]}
    args = {"a": x}, (y,)
    for jacobian in (jacrev, jacfwd):
        made = jacobian(f, argnums=(0, 1))(*args)
        assert made["sum"][0]["a"].tolist() == [1, 1, 1]
        close(made["product"][1][0], torch.diag(x))
        assert set(jacobian(f)(*args)["sum"]) == {"a"}
    grads = grad(lambda d, s: (d["a"] * s[0]).sum(), argnums=(0, 1))(*args)
    close(grads[0]["a"], y), close(grads[1][0], x)
    close(grad(lambda a, b: (a * b).sum(), argnums=-1)(x, y), x)
    assert grad(lambda a, b: a.sum(), argnums=1)(x, y).tolist() == [0, 0, 0]
    assert jacrev(lambda a: a * 2)(torch.ones(0)).shape == (0, 0)
    assert jacfwd(lambda a: a.sum())(torch.ones(0)).shape == (0,)
    close(grad(lambda a, *, k: (a * k).sum())(x, k=3), torch.full((3,), 3.0, dtype=torch.float64))


def test_what_comes_beside():
    grads, (value, aux) = grad_and_value(lambda t: ((t ** 2).sum(), {"t": t * 1}), has_aux=True)(x)
    close(grads, 2 * x), close(value, (x ** 2).sum()), close(aux["t"], x)
    assert not value.requires_grad and not aux["t"].requires_grad
    grads, aux = grad(lambda t: ((t ** 2).sum(), t), has_aux=True)(x)
    assert not aux.requires_grad
    _, back, aux = vjp(lambda t: (t * 2, t), x, has_aux=True)
    close(back(y)[0], 2 * y), close(aux, x)
    for made in (jacrev, jacfwd):
        full, aux = made(lambda t: (t * 2, t), has_aux=True)(x)
        close(full, 2 * torch.eye(3)), close(aux, x)
    assert jvp(lambda t: (t * 2, t), (x,), (y,), has_aux=True)[2].requires_grad is False


def test_history_goes_outside_only_where_there_is_one():
    weight = y.clone().requires_grad_()
    assert not grad(lambda t: (t ** 2).sum())(x).requires_grad
    out = grad(lambda t: (t ** 2 * weight).sum())(x)                        # d/dt = 2 t w
    out.sum().backward()
    close(weight.grad, 2 * x)
    leaf = x.clone().requires_grad_()
    grad(lambda t: (t ** 3).sum())(leaf).sum().backward()
    close(leaf.grad, 6 * x)
    leaf.grad = None
    jvp(lambda t: t ** 3, (leaf,), (y,))[1].sum().backward()
    close(leaf.grad, 6 * x * y)
    jacrev(lambda t: t ** 2)(leaf).sum().backward()
    assert vjp(lambda t: t * 2, x)[0].requires_grad is False
    with torch.no_grad():
        inside = grad(lambda t: (t ** 2 * weight).sum())(leaf)              # an outer no_grad is not felt inside
    close(inside, 2 * x * y)
    assert not inside.requires_grad
    with torch.no_grad():
        assert not jvp(lambda t: t * weight, (x,), (y,))[1].requires_grad

    def blocked(t):
        with torch.no_grad():
            held = (t ** 2).sum()
        return held + t.sum()
    assert grad(blocked)(x).tolist() == [1, 1, 1]
    assert leaf.grad is not None and x.grad is None                          # no .grad is touched by transforms


def test_misuse_is_said():
    for call, kind, words in (
            (lambda: grad(lambda t: t)(x), RuntimeError, "return a scalar Tensor, got tensor with 1 dims"),
            (lambda: grad(lambda t: 3.0)(x), RuntimeError, "to return a Tensor, got <class 'float'>"),
            (lambda: grad(lambda t: t.sum(), has_aux=True)(x), RuntimeError, r"should be a tuple: \(output, aux\)"),
            (lambda: grad(lambda t: t.sum(), argnums=1)(x), RuntimeError, "Got argnum=1, but only 1"),
            (lambda: grad(lambda t: t.sum(), argnums=())(x), RuntimeError, "argnums must be non-empty"),
            (lambda: grad(lambda t, u: t.sum(), argnums=(0, -2))(x, x), RuntimeError, "must be unique"),
            (lambda: grad(lambda t: t.sum(), argnums="a")(x), RuntimeError, "argnums must be int or Tuple"),
            (lambda: grad(lambda t: t)(3.0), ValueError, "must be Tensor, got <class 'float'>"),
            (lambda: grad(lambda t: t.sum())(torch.arange(3)), RuntimeError, "floating point dtype"),
            (lambda: vjp(lambda t: 3, x), RuntimeError, "to return only tensors, got unsupported type <class 'int'>"),
            (lambda: vjp(lambda t: t, x)[1](torch.ones(2)), RuntimeError, "Mismatch in shape"),
            (lambda: vjp(lambda t: (t, t), x)[1](x), RuntimeError, "pytree structure of cotangents"),
            (lambda: jvp(tangled, x, y), RuntimeError, "Expected primals to be a tuple"),
            (lambda: jvp(tangled, (x,), (y, y)), RuntimeError, "the same python structure"),
            (lambda: jvp(tangled, (x,), (torch.ones(2),)), RuntimeError, "has a different size"),
            (lambda: jvp(lambda: x, (), ()), RuntimeError, "at least one Tensor"),
            (lambda: jvp(lambda t: y, (x,), (y,), strict=True), RuntimeError, "independent of the inputs"),
            (lambda: linearize(tangled, x)[1](torch.ones(2)), RuntimeError, "doesn't match the shape"),
            (lambda: linearize(tangled, x)[1](x, x), RuntimeError, "the same argspec"),
            (lambda: jacrev(tangled, chunk_size=0)(x), ValueError, "greater than 0")):
        with pytest.raises(kind, match=words):
            call()
    assert jvp(lambda t: y * 1, (x,), (y,))[1].tolist() == [0, 0, 0]
