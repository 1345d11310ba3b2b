"""Samples: their moments, what a seed gives, and the gradients that they carry."""
import math

import numpy as np
import pytest

import flambeau as torch
from flambeau import distributions as D

T = torch.tensor
MADE = {
    "Normal": lambda: D.Normal(T([0.0, 3.0]), 2.0),
    "LogNormal": lambda: D.LogNormal(T([0.0, 0.5]), 0.4),
    "MultivariateNormal": lambda: D.MultivariateNormal(T([0.0, 1.0]), T([[2.0, 0.5], [0.5, 1.0]])),
    "Bernoulli": lambda: D.Bernoulli(T([0.2, 0.7])),
    "OneHotCategorical": lambda: D.OneHotCategorical(T([0.2, 0.3, 0.5])),
    "Beta": lambda: D.Beta(T([0.5, 3.0]), T([1.5, 2.0])),
    "Gamma": lambda: D.Gamma(T([0.5, 7.0]), T([1.5, 2.0])),
    "Dirichlet": lambda: D.Dirichlet(T([0.5, 1.5, 3.0])),
    "Exponential": lambda: D.Exponential(T([0.5, 2.0])),
    "Laplace": lambda: D.Laplace(T([0.5, 2.0]), 1.5),
    "Poisson": lambda: D.Poisson(T([0.5, 30.0])),
    "Binomial": lambda: D.Binomial(T([5.0, 100.0]), T([0.3, 0.6])),
    "Uniform": lambda: D.Uniform(T([-1.0, 2.0]), T([1.0, 5.0])),
    "StudentT": lambda: D.StudentT(T([9.0, 15.0]), 1.0, 2.0),
    "MixtureSameFamily": lambda: D.MixtureSameFamily(D.Categorical(T([0.3, 0.7])), D.Normal(T([-1.0, 2.0]), 0.5)),
    "Chi2": lambda: D.Chi2(T([2.0, 7.0])),
    "ContinuousBernoulli": lambda: D.ContinuousBernoulli(T([0.2, 0.5])),
    "FisherSnedecor": lambda: D.FisherSnedecor(T([5.0, 9.0]), T([20.0, 30.0])),
    "Geometric": lambda: D.Geometric(T([0.2, 0.7])),
    "Gumbel": lambda: D.Gumbel(T([0.2, 0.7]), 2.0),
    "HalfNormal": lambda: D.HalfNormal(T([0.2, 0.7])),
    "InverseGamma": lambda: D.InverseGamma(T([9.0, 12.0]), 2.0),
    "Kumaraswamy": lambda: D.Kumaraswamy(T([2.0, 0.5]), 1.5),
    "LowRankMultivariateNormal": lambda: D.LowRankMultivariateNormal(T([0.0, 1.0]), T([[1.0], [2.0]]), T([0.5, 1.0])),
    "Multinomial": lambda: D.Multinomial(9, T([0.2, 0.3, 0.5])),
    "NegativeBinomial": lambda: D.NegativeBinomial(T([3.0, 5.5]), T([0.3, 0.6])),
    "Pareto": lambda: D.Pareto(T([1.0, 2.0]), T([9.0, 12.0])),
    "Weibull": lambda: D.Weibull(T([1.0, 2.0]), T([1.5, 2.0])),
    "Wishart": lambda: D.Wishart(T(6.0), T([[2.0, 0.5], [0.5, 1.0]])),
    "GeneralizedPareto": lambda: D.GeneralizedPareto(T([0.0, 1.0]), 1.0, T([0.1, -0.5])),
}
COUNT = 4000


@pytest.mark.parametrize("name", MADE)
def test_moments(name):
    """Mean and variance of many samples, within five standard errors; and all lie in the support."""
    torch.manual_seed(0)
    p = MADE[name]()
    x = p.sample((COUNT,))
    assert not x.requires_grad and p.support.check(x).all()
    x = x.double().numpy()
    mean, variance = p.mean.numpy(), p.variance.numpy()
    np.testing.assert_array_less(np.abs(x.mean(0) - mean), 5 * np.sqrt(variance / COUNT) + 1e-5)
    error = np.sqrt(np.maximum(((x - mean) ** 4).mean(0) - variance**2, 0) / COUNT)
    np.testing.assert_array_less(np.abs(x.var(0) - variance), 6 * error + 1e-4)


def test_categorical_frequencies():
    torch.manual_seed(0)
    x = D.Categorical(logits=T([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]])).sample((COUNT,))
    assert x.dtype is torch.int64
    for row, logits in zip(x.T, ([0.0, 1.0, 2.0], [3.0, 0.0, 0.0])):
        share = np.bincount(row.numpy(), minlength=3) / COUNT
        expected = np.exp(logits) / np.exp(logits).sum()
        np.testing.assert_allclose(share, expected, atol=5 * 0.5 / math.sqrt(COUNT))


def test_directions():
    """Where the mean is no number to compare with: by the angle, and by the correlations."""
    torch.manual_seed(0)
    angle = D.VonMises(T(0.7), T(3.0)).sample((COUNT,)).numpy()
    assert angle.min() >= -math.pi and angle.max() < math.pi
    mean = np.exp(1j * angle).mean()
    assert np.angle(mean) == pytest.approx(0.7, abs=0.06)
    assert 1 - abs(mean) == pytest.approx(D.VonMises(T(0.7), T(3.0)).variance.item(), abs=0.03)
    factor = D.LKJCholesky(3, 2.0).sample((COUNT,))
    correlation = (factor @ factor.mT).numpy()
    np.testing.assert_allclose(correlation.mean(0), np.eye(3), atol=0.05)
    # every correlation by itself is beta distributed over (-1, 1), of variance 1 / (2 a + d - 1)
    assert correlation[:, 1, 0].var() == pytest.approx(1 / 6, abs=0.02)
    simplex = D.LogisticNormal(T([0.3, -0.2]), 0.5).sample((10,))
    assert simplex.shape == (10, 3) and D.constraints.simplex.check(simplex).all()


@pytest.mark.parametrize("name", MADE)
def test_a_seed_gives_the_same(name):
    p = MADE[name]()
    shape = tuple(p.batch_shape) + tuple(p.event_shape)
    draws = []
    for _ in range(2):
        torch.manual_seed(4)
        draws.append(p.sample((2, 3)))
    assert tuple(draws[0].shape) == (2, 3) + shape
    np.testing.assert_allclose(draws[0].numpy(), draws[1].numpy(), rtol=1e-5)
    assert tuple(p.expand((5,) + tuple(p.batch_shape)).sample((2,)).shape) == (2, 5) + shape


# --- gradients of samples ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Normal", "LogNormal", "Laplace", "Exponential", "Uniform", "Gumbel", "Weibull",
                                  "Pareto", "Kumaraswamy", "Cauchy", "GeneralizedPareto"])
def test_samples_move_with_their_parameters(name):
    """From one seed, the difference of samples for parameters that differ a little is the gradient."""
    kind = getattr(D, name)
    values = (0.7, 1.3, 0.2)[:3 if name == "GeneralizedPareto" else 1 if name == "Exponential" else 2]

    def draw(*params):
        torch.manual_seed(9)
        return kind(*params).rsample((5,))

    params = [T(v, dtype=torch.float64, requires_grad=True) for v in values]
    x = draw(*params)
    for i, param in enumerate(params):
        slope = torch.stack([torch.autograd.grad(x[k], param, retain_graph=True)[0] for k in range(5)])
        step = [T(v + 1e-6 * (k == i), dtype=torch.float64) for k, v in enumerate(values)]
        back = [T(v - 1e-6 * (k == i), dtype=torch.float64) for k, v in enumerate(values)]
        moved = (draw(*step) - draw(*back)) / 2e-6
        np.testing.assert_allclose(slope.numpy(), moved.detach().numpy(), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("alpha", [0.01, 0.3, 1.0, 4.0, 80.0, 3000.0])
def test_gamma_samples_keep_their_quantile(alpha):
    """dx/da = -(dF/da) / p(x), with dF/da as a difference of the incomplete gamma function."""
    torch.manual_seed(1)
    a = torch.full((40,), alpha, dtype=torch.float64, requires_grad=True)
    x = D.Gamma(a, torch.ones(40, dtype=torch.float64)).rsample()
    slope, = torch.autograd.grad(x.sum(), a)
    x, h = x.detach(), alpha * 1e-5
    F = torch.special.gammainc
    upper = torch.special.gammaincc               # the smaller of the two is the more precise
    below = (F(a + h, x) - F(a - h, x)).detach() / (2 * h)
    above = (upper(a - h, x) - upper(a + h, x)).detach() / (2 * h)
    moved = torch.where(x < alpha, below, above)
    density = D.Gamma(a, 1.0).log_prob(x).exp().detach()
    held = x > 1e-290                             # what was lifted to the least number is no quantile
    np.testing.assert_allclose(slope[held].numpy(), (-moved / density)[held].numpy(), rtol=2e-5)


def test_gamma_rate_scales():
    torch.manual_seed(1)
    rate = T([2.0, 5.0], dtype=torch.float64, requires_grad=True)
    x = D.Gamma(T([1.5, 2.5], dtype=torch.float64), rate).rsample((3,))
    slope, = torch.autograd.grad(x.sum(), rate)
    np.testing.assert_allclose(slope.numpy(), (-x.sum(0) / rate).detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("a, b", [(0.2, 0.3), (1.0, 1.0), (0.5, 6.0), (8.0, 2.5), (40.0, 30.0)])
def test_beta_samples_keep_their_quantile(a, b):
    special = pytest.importorskip("scipy.special")
    torch.manual_seed(2)
    first = torch.full((40,), a, dtype=torch.float64, requires_grad=True)
    second = torch.full((40,), b, dtype=torch.float64, requires_grad=True)
    x = D.Beta(first, second).rsample()
    slopes = torch.autograd.grad(x.sum(), (first, second))
    at = x.detach().numpy()
    held = (at > 1e-12) & (at < 1 - 1e-12)
    density = np.exp(D.Beta(first, second).log_prob(x).detach().numpy())[held]
    for slope, (da, db) in zip(slopes, ((a * 1e-5, 0), (0, b * 1e-5))):
        moved = special.betainc(a + da, b + db, at[held]) - special.betainc(a - da, b - db, at[held])
        np.testing.assert_allclose(slope.numpy()[held], -moved / (2 * (da + db)) / density, rtol=1e-4, atol=1e-6)


def test_dirichlet_gradient_of_the_mean():
    """Samples move such that their mean does: d E[x] / da by the samples and by the formula."""
    torch.manual_seed(3)
    a = T([0.8, 1.5, 3.0], dtype=torch.float64, requires_grad=True)
    x = D.Dirichlet(a).rsample((8_000,))
    for i in range(3):
        by_samples, = torch.autograd.grad(x[:, i].mean(), a, retain_graph=True)
        by_formula, = torch.autograd.grad(D.Dirichlet(a).mean[i], a)
        np.testing.assert_allclose(by_samples.numpy(), by_formula.numpy(), atol=6e-3)
    assert x.sum(-1).sub(1).abs().max() < 1e-12
    total, = torch.autograd.grad(x.sum(), a)                # the sum is 1 whatever they are
    np.testing.assert_allclose(total.numpy(), np.zeros(3), atol=1e-9)


def test_samples_differentiate_once():
    a = T([2.0], requires_grad=True)
    slope, = torch.autograd.grad(D.Gamma(a, 1.0).rsample().sum(), a, create_graph=True)
    with pytest.raises(NotImplementedError, match="_standard_gamma_grad"):
        slope.sum().backward()


def test_straight_through():
    probs = T([[0.2, 0.8], [0.5, 0.5]], requires_grad=True)
    p = D.OneHotCategoricalStraightThrough(probs)
    x = p.rsample()
    np.testing.assert_array_equal(np.sort(x.detach().numpy(), -1), [[0, 1], [0, 1]])
    weights = T([[1.0, 2.0], [3.0, 5.0]])
    through, = torch.autograd.grad((x * weights).sum(), probs)
    as_probs, = torch.autograd.grad((D.Categorical(probs).probs * weights).sum(), probs)
    np.testing.assert_allclose(through.numpy(), as_probs.numpy(), rtol=1e-6)


def test_samples_without_gradient():
    loc = T([0.0], requires_grad=True)
    for p in (D.Normal(loc, 1.0), D.LogNormal(loc, 1.0), D.Gamma(loc + 1, 1.0), D.Independent(D.Laplace(loc, 1.0), 1)):
        assert not p.sample().requires_grad and p.rsample().requires_grad
    for p in (D.Bernoulli(logits=loc), D.Poisson(loc + 1), D.Binomial(3, logits=loc), D.Categorical(logits=loc)):
        assert not p.sample().requires_grad
        with pytest.raises(NotImplementedError):
            p.rsample()
