"""Transforms: the inverse brings back what went in, and the volume grows as their Jacobian says."""
import math

import numpy as np
import pytest

import flambeau as torch
from flambeau import distributions as D
from flambeau.distributions import constraints as C

T = torch.tensor
X = [-1.5, 0.2, 0.9]
SCALAR = {
    "exp": (lambda: D.ExpTransform(), X),
    "sigmoid": (lambda: D.SigmoidTransform(), X),
    "tanh": (lambda: D.TanhTransform(), X),
    "softplus": (lambda: D.SoftplusTransform(), X),
    "affine": (lambda: D.AffineTransform(1.0, -2.5), X),
    "affine by tensors": (lambda: D.AffineTransform(T([1.0, 2.0, 3.0]), T([0.5, -1.0, 3.0])), X),
    "power": (lambda: D.PowerTransform(T(-1.5)), [0.3, 1.0, 2.0]),
    "log": (lambda: D.ExpTransform().inv, [0.3, 1.0, 2.0]),
    "composed": (lambda: D.ComposeTransform([D.TanhTransform(), D.AffineTransform(2.0, 3.0), D.ExpTransform()]), X),
    "nothing": (lambda: D.ComposeTransform([]), X),
    "cdf": (lambda: D.CumulativeDistributionTransform(D.Gumbel(T(0.5).double(), T(1.5).double())), X),
    "in parts": (lambda: D.CatTransform([D.ExpTransform(), D.TanhTransform()], -1, [1, 2]), X),
    "in slices": (lambda: D.StackTransform([D.ExpTransform(), D.TanhTransform(), D.AffineTransform(1, 2)], -1), X),
}


def double(values):
    return T(values, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("name", SCALAR)
def test_of_numbers(name):
    make, values = SCALAR[name]
    t, x = make(), double(values)
    y = t(x)
    np.testing.assert_allclose(t.inv(y).detach().numpy(), values, rtol=1e-6)
    slope, = torch.autograd.grad(y.sum(), x)
    np.testing.assert_allclose(t.log_abs_det_jacobian(x, y).detach().numpy(), np.log(np.abs(slope.numpy())), rtol=1e-6,
                               atol=1e-9)
    np.testing.assert_allclose(t.inv.log_abs_det_jacobian(y, x).detach().numpy(), -np.log(np.abs(slope.numpy())),
                               rtol=1e-6, atol=1e-9)
    assert t.domain.check(x.detach()).all() and t.codomain.check(y.detach()).all()
    assert t.inv.inv is t and t == t.with_cache(0) and t.bijective
    assert t.forward_shape((3,)) == (3,) and t.inverse_shape((3,)) == (3,)


@pytest.mark.parametrize("t, size, kept", [
    (D.StickBreakingTransform(), 3, slice(0, 3)),
    (D.AffineTransform(1.0, T([2.0, 3.0, -1.0]), event_dim=1), 3, slice(0, 3)),
    (D.IndependentTransform(D.ExpTransform(), 1), 3, slice(0, 3)),
    (D.ReshapeTransform((4,), (2, 2)), 4, None),
])
def test_of_vectors(t, size, kept):
    x = double(np.random.RandomState(0).normal(size=size))

    def flat(x):
        y = t(x).reshape(-1)
        return y if kept is None else y[kept]

    jacobian = torch.autograd.functional.jacobian(flat, x)
    expected = np.linalg.slogdet(jacobian.numpy())[1]
    y = t(x)
    assert t.log_abs_det_jacobian(x, y).item() == pytest.approx(expected, rel=1e-6, abs=1e-9)
    np.testing.assert_allclose(t.inv(y).detach().numpy(), x.detach().numpy(), rtol=1e-6)
    assert y.shape == tuple(t.forward_shape(x.shape)) and tuple(t.inverse_shape(y.shape)) == tuple(x.shape)


def test_correlations():
    t, x = D.CorrCholeskyTransform(), double([0.3, -0.8, 0.5])
    y = t(x)
    assert C.corr_cholesky.check(y.detach())
    np.testing.assert_allclose((y @ y.mT).diagonal().detach().numpy(), np.ones(3), rtol=1e-12)
    np.testing.assert_allclose(t.inv(y).detach().numpy(), x.detach().numpy(), rtol=1e-9)
    below = torch.autograd.functional.jacobian(lambda x: t(x)[[1, 2, 2], [0, 0, 1]], x)
    assert t.log_abs_det_jacobian(x, y).item() == pytest.approx(np.linalg.slogdet(below.numpy())[1], rel=1e-9)
    assert t.forward_shape((5, 6)) == (5, 4, 4) and t.inverse_shape((5, 4, 4)) == (5, 6)


def test_matrices():
    x = double([[1.0, 7.0], [0.5, -1.0]])
    factor = D.LowerCholeskyTransform()(x)
    np.testing.assert_allclose(factor.detach().numpy(), [[math.e, 0], [0.5, math.exp(-1)]])
    whole = D.PositiveDefiniteTransform()(x)
    np.testing.assert_allclose(whole.detach().numpy(), (factor @ factor.mT).detach().numpy())
    back = D.PositiveDefiniteTransform().inv(whole)
    np.testing.assert_allclose(back.detach().numpy(), [[1.0, 0.0], [0.5, -1.0]], atol=1e-9)


def test_softmax_and_abs():
    y = D.SoftmaxTransform()(T([0.0, 1.0, 2.0]))
    np.testing.assert_allclose(D.SoftmaxTransform()(D.SoftmaxTransform().inv(y)).numpy(), y.numpy(), rtol=1e-6)
    assert D.AbsTransform()(T(-2.0)) == 2 and D.AbsTransform().inv(T(2.0)) == 2
    assert not D.AbsTransform().bijective and not D.SoftmaxTransform().bijective
    with pytest.raises(NotImplementedError):
        D.AbsTransform().log_abs_det_jacobian(T(1.0), T(1.0))


def test_cache():
    t = D.ExpTransform(cache_size=1)
    x = T([1.0])
    y = t(x)
    assert t.inv(y) is x and t(x) is y and t.inv(y.clone()) is not x
    assert D.ExpTransform().inv(D.ExpTransform()(x)) is not x
    both = D.ComposeTransform([D.ExpTransform(), D.AffineTransform(0.0, 2.0)], cache_size=1)
    assert both.inv(both(x)) is x
    with pytest.raises(ValueError, match="cache_size"):
        D.ExpTransform(cache_size=3)


def test_signs_turn_probabilities_round():
    base = D.Normal(0.0, 1.0)
    p = D.TransformedDistribution(base, [D.AffineTransform(0.0, -1.0)])
    assert p.cdf(T(0.7)).item() == pytest.approx(base.cdf(T(0.7)).item(), rel=1e-5)          # symmetric
    q = D.TransformedDistribution(base, [D.AffineTransform(1.0, -2.0), D.ExpTransform()])
    assert q.cdf(q.icdf(T(0.3))).item() == pytest.approx(0.3, rel=1e-5)
    assert D.ComposeTransform(q.transforms).sign == -1


REGIONS = [C.real, C.positive, C.nonnegative, C.greater_than(2.0), C.greater_than_eq(-1.0), C.less_than(3.0),
           C.interval(-1.0, 4.0), C.unit_interval, C.half_open_interval(0.0, 2.0), C.simplex, C.corr_cholesky,
           C.independent(C.positive, 1), C.real_vector, C.cat([C.positive, C.real], -1, [1, 2]),
           C.stack([C.positive, C.real, C.unit_interval], -1)]


@pytest.mark.parametrize("region", REGIONS, ids=repr)
def test_registry(region):
    x = T(np.random.RandomState(0).normal(size=(4, 3)))
    for registry in (D.biject_to, D.transform_to):
        t = registry(region)
        y = t(x)
        assert region.check(y).all()
        assert t.codomain.check(y).all()
        if t.bijective:
            np.testing.assert_allclose(t.inv(y).numpy(), x.numpy(), rtol=1e-6, atol=1e-9)
    assert D.biject_to(region).bijective


def test_registry_of_matrices_and_refusals():
    x = T(np.random.RandomState(0).normal(size=(4, 3, 3)))
    for region in (C.lower_cholesky, C.positive_definite, C.positive_semidefinite):
        assert region.check(D.transform_to(region)(x)).all()
        with pytest.raises(NotImplementedError, match="Cannot transform"):
            D.biject_to(region)
    with pytest.raises(NotImplementedError, match="_Boolean"):
        D.transform_to(C.boolean)
    with pytest.raises(TypeError, match="Constraint subclass or instance"):
        D.transform_to.register(3, lambda c: c)

    class Even(C.Constraint):
        is_discrete = True

    @D.transform_to.register(Even)
    def even(constraint):
        return D.AffineTransform(0.0, 2.0)

    assert D.transform_to(Even())(T(3.0)) == 6


def test_dependent_constraints():
    assert C.is_dependent(D.Uniform.support) and not C.is_dependent(D.Uniform(0.0, 1.0).support)
    assert D.Uniform.support.event_dim == 0
    assert C.dependent(event_dim=2).event_dim == 2
    with pytest.raises(NotImplementedError, match="event_dim"):
        _ = C.dependent.event_dim
    with pytest.raises(ValueError, match="dependent"):
        C.dependent.check(T(1.0))


@pytest.mark.parametrize("region, good, bad", [
    (C.simplex, [0.25, 0.75], [0.3, 0.3]), (C.one_hot, [0.0, 1.0], [0.0, 2.0]),
    (C.multinomial(3), [1.0, 2.0], [2.0, 2.0]),
    (C.nonnegative_integer, 0.0, 0.5), (C.positive_integer, 1.0, 0.0), (C.boolean, 1.0, 0.5),
    (C.integer_interval(1, 3), 2.0, 4.0), (C.lower_triangular, [[1.0, 0.0], [1.0, 0.0]], [[1.0, 1.0], [0.0, 1.0]]),
    (C.lower_cholesky, [[1.0, 0.0], [1.0, 0.5]], [[1.0, 0.0], [1.0, 0.0]]),
    (C.positive_definite, [[1.0, 0.5], [0.5, 1.0]], [[1.0, 2.0], [2.0, 1.0]]),
    (C.positive_semidefinite, [[1.0, 1.0], [1.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]]),
    (C.symmetric, [[1.0, 2.0], [2.0, 1.0]], [[1.0, 2.0], [0.0, 1.0]]),
    (C.corr_cholesky, [[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [0.6, 0.6]]),
    (C.real, 0.0, math.nan), (C.less_than(1.0), 0.0, 1.0), (C.half_open_interval(0.0, 1.0), 0.0, 1.0),
], ids=repr)
def test_constraints(region, good, bad):
    assert region.check(T(good)) and not region.check(T(bad))
    assert region.check(torch.stack([T(good), T(bad)])).tolist() == [True, False]
    if region.on_arrays():
        assert region.check(np.array([good, bad])).tolist() == [True, False]
