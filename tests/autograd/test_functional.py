"""jacobian, hessian and the vector products against closed forms."""
import numpy as np
import pytest

import flambeau as torch
from flambeau.autograd import functional as F

rng = np.random.default_rng(2)
A = rng.standard_normal((3, 3))
X, V = rng.standard_normal(3), rng.standard_normal(3)


def t(array):
    return torch.tensor(array)


def near(ours, expected):
    np.testing.assert_allclose(ours.detach().numpy(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("how", [{}, {"vectorize": True}, {"strategy": "forward-mode", "vectorize": True}],
                         ids=["rows", "vectorized", "forward"])
def test_jacobian_of_a_linear_map_is_its_matrix(how):
    near(F.jacobian(lambda x: t(A) @ x, t(X), **how), A)


def test_jacobian_of_several_inputs_and_results():
    def fn(a, b):
        return a * b, (a * a).sum()
    (daa, dab), (dsa, dsb) = F.jacobian(fn, (t(X), t(V)))
    near(daa, np.diag(V))
    near(dab, np.diag(X))
    near(dsa, 2 * X)
    near(dsb, np.zeros(3))


def test_jacobian_has_the_shape_of_result_then_input():
    x = t(rng.standard_normal((2, 3)))
    assert F.jacobian(lambda a: a.sum(1), x).shape == (2, 2, 3)
    near(F.jacobian(lambda a: a.sum(), x), np.ones((2, 3)))


def test_hessian_of_a_quadratic_form():
    near(F.hessian(lambda x: x @ t(A) @ x, t(X)), A + A.T)
    blocks = F.hessian(lambda x, y: x @ t(A) @ y, (t(X), t(V)))
    near(blocks[0][0], np.zeros((3, 3)))
    near(blocks[0][1], A)
    near(blocks[1][0], A.T)


def test_products():
    fn = lambda x: t(A) @ (x ** 2)
    jacobian = A * (2 * X)
    out, g = F.vjp(fn, t(X), t(V))
    near(out, A @ X ** 2)
    near(g, V @ jacobian)
    out, j = F.jvp(fn, t(X), t(V))
    near(j, jacobian @ V)
    cubes = lambda x: (x ** 3).sum()
    near(F.vhp(cubes, t(X), t(V))[1], 6 * X * V)
    near(F.hvp(cubes, t(X), t(V))[1], 6 * X * V)


def test_results_can_be_differentiated_again():
    x = torch.tensor(X, requires_grad=True)
    j = F.jacobian(lambda a: a ** 3, x, create_graph=True)
    j.sum().backward()
    near(x.grad, 6 * X)
    assert not F.jacobian(lambda a: a ** 3, x).requires_grad


def test_strict_refuses_what_does_not_depend_on_the_input():
    constant = lambda x: torch.ones(2, dtype=torch.float64)
    near(F.jacobian(constant, t(X)), np.zeros((2, 3)))
    with pytest.raises(RuntimeError, match="independent of the input|does not require|cannot compute"):
        F.jacobian(constant, t(X), strict=True)


def test_inputs_are_checked():
    with pytest.raises(TypeError):
        F.jacobian(lambda x: x, 3.0)
    with pytest.raises(RuntimeError, match="single|scalar|one element|Tensor"):
        F.hessian(lambda x: x * 2, t(X))
    with pytest.raises(RuntimeError):
        F.vjp(lambda x: x * 2, t(X), torch.ones(2, dtype=torch.float64))
