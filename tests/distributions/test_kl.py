"""Divergences against integrals of p (log p - log q), and what dispatch does."""
import warnings

import numpy as np
import pytest

import flambeau as torch
from flambeau import distributions as D
from flambeau.distributions.kl import _KL_REGISTRY

T = torch.tensor


def double(*values):
    return [T(v, dtype=torch.float64) for v in values]


# Where the density of each lies, with two members for the case that p and q are of one family.
LINE = {
    "Beta": ((1e-9, 1 - 1e-9), lambda: D.Beta(*double(2.5, 3.0)), lambda: D.Beta(*double(1.5, 4.0))),
    "Cauchy": ((-1e5, 1e5), lambda: D.Cauchy(*double(0.5, 2.0)), lambda: D.Cauchy(*double(-0.5, 1.0))),
    "ContinuousBernoulli": ((1e-9, 1 - 1e-9), lambda: D.ContinuousBernoulli(*double(0.3)),
                            lambda: D.ContinuousBernoulli(*double(0.8))),
    "Exponential": ((1e-9, 60.0), lambda: D.Exponential(*double(1.5)), lambda: D.Exponential(*double(0.7))),
    "Gamma": ((1e-9, 60.0), lambda: D.Gamma(*double(2.5, 1.5)), lambda: D.Gamma(*double(1.5, 0.7))),
    "Gumbel": ((-20.0, 60.0), lambda: D.Gumbel(*double(0.5, 1.5)), lambda: D.Gumbel(*double(-0.5, 2.0))),
    "HalfNormal": ((1e-9, 40.0), lambda: D.HalfNormal(*double(1.5)), lambda: D.HalfNormal(*double(0.7))),
    "Laplace": ((-60.0, 60.0), lambda: D.Laplace(*double(0.5, 1.5)), lambda: D.Laplace(*double(-0.5, 1.0))),
    "Normal": ((-20.0, 20.0), lambda: D.Normal(*double(0.5, 1.5)), lambda: D.Normal(*double(-0.5, 1.0))),
    "Pareto": ((0.5, 3000.0), lambda: D.Pareto(*double(0.5, 5.5)), lambda: D.Pareto(*double(0.3, 2.5))),
    "Uniform": ((0.2, 0.9 - 1e-9), lambda: D.Uniform(*double(0.2, 0.9)), lambda: D.Uniform(*double(-0.5, 1.5))),
}
COUNTS = {
    "Bernoulli": (lambda: D.Bernoulli(*double(0.3)), lambda: D.Bernoulli(*double(0.8))),
    "Binomial": (lambda: D.Binomial(9, *double(0.3)), lambda: D.Binomial(9, *double(0.8))),
    "Categorical": (lambda: D.Categorical(*double([0.2, 0.3, 0.5])), lambda: D.Categorical(*double([0.5, 0.4, 0.1]))),
    "Geometric": (lambda: D.Geometric(*double(0.3)), lambda: D.Geometric(*double(0.6))),
    "Poisson": (lambda: D.Poisson(*double(2.5)), lambda: D.Poisson(*double(4.0))),
}
PAIRS = sorted((p.__name__, q.__name__) for p, q in _KL_REGISTRY)


def integral(p, q, x):
    own = p.log_prob(x)
    mass = own.exp().numpy()
    inside = q.support.check(x).numpy()
    if (mass[~inside] > 1e-12).any():
        return np.inf
    other = q.log_prob(torch.where(T(inside), x, x[int(np.argmax(inside))]))
    values = np.where(inside, mass * (own - other).numpy(), 0)
    return np.trapezoid(values, x.numpy())


@pytest.mark.parametrize("first, second", [pair for pair in PAIRS if pair[0] in LINE and pair[1] in LINE])
def test_of_densities(first, second):
    (low, high), make, _ = LINE[first]
    p, q = make(), LINE[second][2]()
    if low > 0 and high > 10:
        x = np.geomspace(low, high, 40_001)
    elif high > 1000:
        x = np.sinh(np.linspace(-np.arcsinh(-low), np.arcsinh(high), 40_001))
    else:
        x = np.linspace(low, high, 40_001)
    found, expected = D.kl_divergence(p, q).item(), integral(p, q, T(x))
    assert found == pytest.approx(expected, rel=2e-3, abs=2e-4)


@pytest.mark.parametrize("first, second", [pair for pair in PAIRS if pair[0] in COUNTS and pair[1] in COUNTS])
def test_of_counts(first, second):
    p, q = COUNTS[first][0](), COUNTS[second][1]()
    values = p.enumerate_support() if p.has_enumerate_support else torch.arange(200.0, dtype=torch.float64)
    own = p.log_prob(values)
    outside = ~q.support.check(values)
    if outside.any():
        expected = np.inf
    else:
        expected = (own.exp() * (own - q.log_prob(values))).sum().item()
    assert D.kl_divergence(p, q).item() == pytest.approx(expected, rel=1e-9)


def test_of_vectors():
    """By the formula of the textbook, with the whole matrices."""
    r = np.random.RandomState(0)
    w1, w2, d1, d2 = r.normal(size=(3, 2)), r.normal(size=(3, 1)), r.uniform(0.5, 2, 3), r.uniform(0.5, 2, 3)
    m1, m2 = r.normal(size=3), r.normal(size=3)
    s1, s2 = w1 @ w1.T + np.diag(d1), w2 @ w2.T + np.diag(d2)
    off = m2 - m1
    expected = 0.5 * (np.trace(np.linalg.solve(s2, s1)) + off @ np.linalg.solve(s2, off) - 3
                      + np.linalg.slogdet(s2)[1] - np.linalg.slogdet(s1)[1])
    ps = D.MultivariateNormal(T(m1), T(s1)), D.LowRankMultivariateNormal(T(m1), T(w1), T(d1))
    qs = D.MultivariateNormal(T(m2), T(s2)), D.LowRankMultivariateNormal(T(m2), T(w2), T(d2))
    for p in ps:
        for q in qs:
            assert D.kl_divergence(p, q).item() == pytest.approx(expected, rel=1e-9)
            assert D.kl_divergence(p.expand((2, 3)), q.expand((3,))).shape == (2, 3)


def test_of_dirichlets_by_samples():
    torch.manual_seed(0)
    p, q = D.Dirichlet(*double([1.5, 2.0, 3.0])), D.Dirichlet(*double([2.5, 1.0, 1.5]))
    x = p.sample((5_000,))
    off = (p.log_prob(x) - q.log_prob(x)).numpy()
    assert D.kl_divergence(p, q).item() == pytest.approx(off.mean(), abs=5 * off.std() / np.sqrt(len(off)))


def test_nothing_between_equals():
    for p in [make() for _, make, _ in LINE.values()] + [make() for make, _ in COUNTS.values()]:
        if (type(p).__name__, type(p).__name__) in PAIRS and not isinstance(p, D.Uniform):
            assert D.kl_divergence(p, p).item() == pytest.approx(0, abs=1e-9)


def test_made_of_others():
    p, q = D.Normal(torch.zeros(2, 3), 1.0), D.Normal(torch.ones(2, 3), 2.0)
    each = D.kl_divergence(p, q)
    np.testing.assert_allclose(D.kl_divergence(D.Independent(p, 1), D.Independent(q, 1)).numpy(), each.sum(-1).numpy())
    through = D.kl_divergence(D.LogNormal(torch.zeros(2, 3), 1.0), D.LogNormal(torch.ones(2, 3), 2.0))
    np.testing.assert_allclose(through.numpy(), each.numpy())
    with pytest.raises(NotImplementedError):
        D.kl_divergence(D.Independent(p, 1), D.Independent(q, 2))
    with pytest.raises(NotImplementedError):
        D.kl_divergence(D.LogNormal(0.0, 1.0), D.TransformedDistribution(D.Normal(0.0, 1.0), [D.TanhTransform()]))


def test_exponential_families():
    """The rule for any exponential family agrees with the formulas of its members."""
    from flambeau.distributions.kl import _kl_expfamily_expfamily
    for p, q in ((D.Normal(*double(0.5, 1.5)), D.Normal(*double(-0.5, 1.0))),
                 (D.Gamma(*double(0.5, 1.5)), D.Gamma(*double(2.5, 1.0))),
                 (D.Beta(*double(0.5, 1.5)), D.Beta(*double(2.5, 1.0))),
                 (D.Poisson(*double(0.5)), D.Poisson(*double(2.0))),
                 (D.Exponential(*double(0.5)), D.Exponential(*double(2.0))),
                 (D.Dirichlet(*double([0.5, 2.0])), D.Dirichlet(*double([1.5, 1.0]))),
                 (D.Bernoulli(*double(0.5)), D.Bernoulli(*double(0.2)))):
        assert _kl_expfamily_expfamily(p, q).item() == pytest.approx(D.kl_divergence(p, q).item(), rel=1e-9)
        if not isinstance(p, (D.Poisson, D.Beta, D.Dirichlet)):
            assert D.ExponentialFamily.entropy(p).item() == pytest.approx(p.entropy().item(), rel=1e-9)


def test_dispatch():
    class A(D.Normal): pass
    class B(D.Normal): pass
    with pytest.raises(NotImplementedError, match="No KL"):
        D.kl_divergence(D.StudentT(3.0), D.Normal(0.0, 1.0))
    D.register_kl(int, D.Normal)                          # any class, as in PyTorch; nobody asks for this one
    D.register_kl(A, D.Normal)(lambda p, q: 1)
    D.register_kl(D.Normal, B)(lambda p, q: 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert D.kl_divergence(A(0.0, 1.0), B(0.0, 1.0)) == 1
    assert "Ambiguous" in str(caught[0].message) and caught[0].category is RuntimeWarning
    D.register_kl(A, B)(lambda p, q: 3)
    assert D.kl_divergence(A(0.0, 1.0), B(0.0, 1.0)) == 3
