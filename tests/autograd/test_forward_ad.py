"""Forward mode: tangents against finite differences and against what reverse mode says."""
import numpy as np
import pytest

import flambeau as torch
from flambeau.autograd import forward_ad as fw, gradcheck

rng = np.random.default_rng(1)


def tangent(fn, x, v):
    """The directional derivative of `fn` at `x` along `v`, by forward mode."""
    with fw.dual_level():
        return fw.unpack_dual(fn(fw.make_dual(torch.tensor(x), torch.tensor(v)))).tangent.numpy().copy()


def slope(fn, x, v, h=1e-6):
    """The same by central differences."""
    up, down = fn(torch.tensor(x + h * v)).numpy(), fn(torch.tensor(x - h * v)).numpy()
    return (up - down) / (2 * h)


FUNCTIONS = {
    "product": lambda x: x * x * 3,
    "chain": lambda x: (x.sin() * x.exp()).tanh(),
    "matmul": lambda x: x @ x.t(),
    "views": lambda x: x.t()[1:].reshape(-1) * 2,
    "reduction": lambda x: x.softmax(0).var(1),
    "order": lambda x: x.sort(1).values.cumsum(1),
    "index": lambda x: x[[1, 0, 1]] + x[x > -9].view(3, 4),
    "several": lambda x: torch.cat([a * k for k, a in enumerate(x.unbind(1))]),
    "linalg": lambda x: torch.linalg.inv(x @ x.t() + torch.eye(3, dtype=torch.float64)),
    "norm": lambda x: torch.nn.functional.layer_norm(x, (4,)),
    "in place": lambda x: (x * 1).mul_(2).add_(x),
    "where": lambda x: torch.where(x > 0, x * x, x.exp()),
    "constant": lambda x: x * 0 + torch.ones(3, 4, dtype=torch.float64),
}


@pytest.mark.parametrize("fn", FUNCTIONS.values(), ids=FUNCTIONS)
def test_tangents_are_slopes(fn):
    x, v = rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    np.testing.assert_allclose(tangent(fn, x, v), slope(fn, x, v), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("fn", FUNCTIONS.values(), ids=FUNCTIONS)
def test_forward_and_reverse_agree(fn):
    """⟨u, J v⟩ = ⟨Jᵀ u, v⟩."""
    x, v = rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    forward = tangent(fn, x, v)
    u = rng.standard_normal(forward.shape)
    leaf = torch.tensor(x, requires_grad=True)
    back, = torch.autograd.grad(fn(leaf), leaf, torch.tensor(u))
    assert (forward * u).sum() == pytest.approx((back.numpy() * v).sum(), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("fn", FUNCTIONS.values(), ids=FUNCTIONS)
def test_tangents_at_inference_tensors(fn):
    """Forward mode keeps nothing for later, so an inference tensor is as good as another, and so is its tangent."""
    x, v = rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    with torch.inference_mode():
        marked_x, marked_v = torch.tensor(x), torch.tensor(v)
    for at, along in ((marked_x, torch.tensor(v)), (torch.tensor(x), marked_v)):
        with fw.dual_level():
            made = fw.unpack_dual(fn(fw.make_dual(at, along))).tangent.numpy().copy()
        np.testing.assert_array_equal(made, tangent(fn, x, v))


def test_inference_mode_takes_no_part():
    """What is made there has no tangent, rather than one of zeros."""
    with fw.dual_level():
        dual = fw.make_dual(torch.ones(2), torch.ones(2))
        with torch.inference_mode():
            assert fw.unpack_dual(dual).tangent is None
            product, view, inner = dual * 2, dual[:1], fw.make_dual(torch.ones(2), torch.ones(2))
            assert not inner._is_view() and "tangent" not in repr(dual)
            dual.mul_(5)
        assert fw.unpack_dual(product).tangent is None and fw.unpack_dual(inner).tangent is None
        assert fw.unpack_dual(view).tangent.tolist() == [1] and fw.unpack_dual(dual).tangent.tolist() == [1, 1]


WITH_OUT = {
    "read": lambda dual, plain: torch.add(dual, plain, out=torch.empty(2)),
    "written": lambda dual, plain: torch.add(plain, plain, out=dual),
    "factory": lambda dual, plain: torch.zeros(2, out=dual),
    "drawn": lambda dual, plain: torch.rand(2, out=dual),
    "drawn around": lambda dual, plain: torch.normal(dual, plain, out=torch.empty(2)),
    "list": lambda dual, plain: torch.stack([plain, dual], out=torch.empty(2, 2)),
    "several": lambda dual, plain: torch.sort(dual, out=(torch.empty(2), torch.empty(2, dtype=torch.int64))),
    "no gradient": lambda dual, plain: torch.eq(dual, plain, out=torch.empty(2, dtype=torch.bool)),
    "composite": lambda dual, plain: torch.linalg.norm(dual, out=torch.empty(())),
}


@pytest.mark.parametrize("call", WITH_OUT.values(), ids=WITH_OUT)
def test_out_is_refused(call):
    """A call with `out=` would lose the tangent, so it is refused, whatever the grad mode."""
    with fw.dual_level():
        dual, plain = fw.make_dual(torch.ones(2), torch.ones(2)), torch.ones(2)
        with pytest.raises(NotImplementedError, match="it is an out= function"):
            call(dual, plain)
        with torch.no_grad(), pytest.raises(NotImplementedError, match="it is an out= function"):
            call(dual, plain)
        call(dual.detach(), plain)
        assert fw.unpack_dual(dual).tangent.tolist() == [1, 1]


def test_a_level_has_one_tangent():
    with fw.dual_level():
        dual = fw.make_dual(torch.ones(2), torch.ones(2))
        with pytest.raises(RuntimeError, match="already has a forward gradient at the same level"):
            fw.make_dual(dual, torch.ones(2))
        with pytest.raises(RuntimeError, match="itself has a forward gradient at the same level"):
            fw.make_dual(torch.ones(2), dual)
        copy = dual.clone().detach_()
        assert fw.unpack_dual(copy * 2).tangent is None and fw.unpack_dual(dual * 2).tangent.tolist() == [2, 2]


def test_complex_tangents():
    z, v = np.array([1 + 2j, -0.5 + 1j]), np.array([0.3 - 1j, 1 + 1j])
    for fn in (lambda t: t * t, lambda t: t.exp() * 2j, lambda t: t * t.conj()):
        np.testing.assert_allclose(tangent(fn, z, v), slope(fn, z, v), rtol=1e-5)


def test_levels():
    x, v = torch.ones(2), torch.ones(2)
    assert fw._current_level == -1
    with pytest.raises(RuntimeError, match="no level exists"):
        fw.make_dual(x, v)
    with fw.dual_level() as level:
        assert fw._current_level == level == 0
        dual = fw.make_dual(x, v)
        y = dual * 3
        with pytest.raises(RuntimeError, match="[Nn]ested"), fw.dual_level():
            pass
    assert fw.unpack_dual(y).tangent is None                    # forgotten with its level
    with fw.dual_level():
        assert fw.unpack_dual(dual * 2).tangent is None


def test_unpack():
    with fw.dual_level():
        plain = torch.ones(2)
        assert fw.unpack_dual(plain).tangent is None and fw.unpack_dual(plain).primal is plain
        dual = fw.make_dual(plain, torch.full((2,), 5.0))
        primal, t = fw.unpack_dual(dual)
        assert primal.tolist() == [1, 1] and t.tolist() == [5, 5]
        assert fw.unpack_dual(dual * torch.tensor([2.0, 3.0])).tangent.tolist() == [10, 15]


@pytest.mark.parametrize("x, v, kind, words", [
    (torch.ones(2), torch.ones(3), RuntimeError, "different size"),
    (torch.ones(2), torch.ones(2, dtype=torch.float64), RuntimeError, "different dtype"),
    (torch.ones(2, dtype=torch.int64), torch.ones(2), ValueError, "Expected primal to be floating point"),
])
def test_refusals(x, v, kind, words):
    with fw.dual_level(), pytest.raises(kind, match=words):
        fw.make_dual(x, v)


@pytest.mark.parametrize("fn, second", [
    (lambda x: x ** 4, lambda x: 12 * x ** 2), (torch.exp, np.exp), (torch.sin, lambda x: -np.sin(x)),
    (torch.tanh, lambda x: -2 * np.tanh(x) * (1 - np.tanh(x) ** 2)), (lambda x: (x * 1).mul_(x), lambda x: 2 + 0 * x)],
    ids="power exp sin tanh in-place".split())
def test_forward_over_reverse_is_a_hessian_vector_product(fn, second):
    x0, v = rng.standard_normal(4), rng.standard_normal(4)
    with fw.dual_level():
        x = fw.make_dual(torch.tensor(x0, requires_grad=True), torch.tensor(v))
        g, = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        hv = fw.unpack_dual(g).tangent.detach().numpy().copy()
    np.testing.assert_allclose(hv, second(x0) * v, rtol=1e-10)


def test_gradcheck_takes_both_modes():
    x = torch.tensor(rng.standard_normal((2, 3)), requires_grad=True)
    assert gradcheck(lambda a: (a @ a.t()).tanh(), x, check_forward_ad=True)
    assert gradcheck(lambda a: a.exp(), x, check_forward_ad=True, check_backward_ad=False)
