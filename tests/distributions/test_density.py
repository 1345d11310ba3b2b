"""Densities, probabilities and moments against SciPy, and, where it has no such distribution, against integrals."""
import numpy as np
import pytest

import flambeau as torch
from flambeau import distributions as D

stats = pytest.importorskip("scipy.stats")

T = torch.tensor
GRID = np.linspace(0.05, 0.95, 7)
# distribution, the same of SciPy's, whether it is continuous
SCALAR = {
    "Normal": (lambda: D.Normal(T(0.5).double(), 2.0), stats.norm(0.5, 2)),
    "LogNormal": (lambda: D.LogNormal(T(0.5).double(), 0.7), stats.lognorm(0.7, scale=np.exp(0.5))),
    "Laplace": (lambda: D.Laplace(T(0.5).double(), 2.0), stats.laplace(0.5, 2)),
    "Cauchy": (lambda: D.Cauchy(T(0.5).double(), 2.0), stats.cauchy(0.5, 2)),
    "Exponential": (lambda: D.Exponential(T(2.5).double()), stats.expon(scale=0.4)),
    "Gamma": (lambda: D.Gamma(T(2.5).double(), 4.0), stats.gamma(2.5, scale=0.25)),
    "Chi2": (lambda: D.Chi2(T(3.5).double()), stats.chi2(3.5)),
    "Beta": (lambda: D.Beta(T(2.5).double(), 0.7), stats.beta(2.5, 0.7)),
    "StudentT": (lambda: D.StudentT(T(4.5).double(), 1.0, 2.0), stats.t(4.5, 1, 2)),
    "FisherSnedecor": (lambda: D.FisherSnedecor(T(3.5).double(), 6.0), stats.f(3.5, 6)),
    "Uniform": (lambda: D.Uniform(T(-1.0).double(), 3.0), stats.uniform(-1, 4)),
    "Pareto": (lambda: D.Pareto(T(1.5).double(), 3.5), stats.pareto(3.5, scale=1.5)),
    "Weibull": (lambda: D.Weibull(T(1.5).double(), 2.5), stats.weibull_min(2.5, scale=1.5)),
    "Gumbel": (lambda: D.Gumbel(T(0.5).double(), 2.0), stats.gumbel_r(0.5, 2)),
    "HalfNormal": (lambda: D.HalfNormal(T(2.0).double()), stats.halfnorm(scale=2)),
    "HalfCauchy": (lambda: D.HalfCauchy(T(2.0).double()), stats.halfcauchy(scale=2)),
    "InverseGamma": (lambda: D.InverseGamma(T(3.5).double(), 2.0), stats.invgamma(3.5, scale=2)),
    "VonMises": (lambda: D.VonMises(T(0.5).double(), 2.0), stats.vonmises(2.0, loc=0.5)),
    "GeneralizedPareto": (lambda: D.GeneralizedPareto(T(0.5).double(), 2.0, 0.2), stats.genpareto(0.2, 0.5, 2)),
    "Bernoulli": (lambda: D.Bernoulli(T(0.3).double()), stats.bernoulli(0.3)),
    "Binomial": (lambda: D.Binomial(12, T(0.3).double()), stats.binom(12, 0.3)),
    "NegativeBinomial": (lambda: D.NegativeBinomial(T(4.0).double(), T(0.3).double()), stats.nbinom(4, 0.7)),
    "Geometric": (lambda: D.Geometric(T(0.3).double()), stats.geom(0.3, loc=-1)),
    "Poisson": (lambda: D.Poisson(T(3.5).double()), stats.poisson(3.5)),
}


def close(ours, expected, rtol=1e-7):
    np.testing.assert_allclose(ours.numpy() if isinstance(ours, torch.Tensor) else ours, expected, rtol=rtol, atol=1e-9)


def asked(function, *args):
    """What a method gives, or None where the distribution has it not."""
    try:
        return function(*args)
    except NotImplementedError:
        return None


@pytest.mark.parametrize("name", SCALAR)
def test_against_scipy(name):
    make, scipy = SCALAR[name]
    p = make()
    discrete = hasattr(scipy, "pmf")
    x = scipy.ppf(GRID)
    close(p.log_prob(T(x)), scipy.logpmf(x) if discrete else scipy.logpdf(x))
    compared = 1
    if not discrete:
        for ours, expected in ((asked(p.cdf, T(x)), GRID), (asked(p.icdf, T(GRID)), x)):
            if ours is not None:
                close(ours, expected)
                compared += 1
    if name not in ("Cauchy", "HalfCauchy", "VonMises"):   # no moments, or others
        mean, variance = scipy.stats("mv")
        close(p.mean, mean)
        close(p.variance, variance)
        close(p.stddev, np.sqrt(variance))
        compared += 3
    entropy = asked(p.entropy)
    if entropy is not None:
        close(entropy, scipy.entropy(), 1e-6)
        close(p.perplexity(), np.exp(scipy.entropy()), 1e-6)
        compared += 1
    assert compared >= 2 or name == "VonMises"


@pytest.mark.parametrize("name", [name for name, (make, scipy) in SCALAR.items() if not hasattr(scipy, "pmf")])
def test_mode_is_the_highest_place(name):
    p = SCALAR[name][0]()
    mode = p.mode
    if mode.isnan():
        assert name == "Uniform"
        return
    there = p.log_prob(mode)
    for off in (-1e-3, 1e-3):
        near = mode + off
        if p.support.check(near):
            assert p.log_prob(near) <= there + 1e-9 or there.isinf()


def test_vectors():
    loc, covariance = np.array([0.5, -1.0, 2.0]), np.array([[2.0, 0.5, 0.1], [0.5, 1.0, -0.3], [0.1, -0.3, 0.7]])
    x = np.random.RandomState(0).normal(size=(5, 3))
    expected = stats.multivariate_normal(loc, covariance)
    factor = np.linalg.cholesky(covariance)
    for p in (D.MultivariateNormal(T(loc), T(covariance)), D.MultivariateNormal(T(loc), scale_tril=T(factor)),
              D.MultivariateNormal(T(loc), precision_matrix=T(np.linalg.inv(covariance)))):
        close(p.log_prob(T(x)), expected.logpdf(x))
        close(p.entropy(), expected.entropy())
        close(p.covariance_matrix, covariance)
        close(p.precision_matrix, np.linalg.inv(covariance))
        close(p.scale_tril, factor)
        close(p.variance, np.diagonal(covariance))

    w, d = np.array([[1.0, 0.2], [0.3, -1.0], [0.0, 0.5]]), np.array([0.5, 1.0, 2.0])
    low, full = D.LowRankMultivariateNormal(T(loc), T(w), T(d)), w @ w.T + np.diag(d)
    expected = stats.multivariate_normal(loc, full)
    close(low.log_prob(T(x)), expected.logpdf(x))
    close(low.entropy(), expected.entropy())
    close(low.covariance_matrix, full)
    close(low.precision_matrix, np.linalg.inv(full))
    close(low.scale_tril, np.linalg.cholesky(full))
    close(low.variance, np.diagonal(full))

    a = np.array([0.5, 2.0, 4.0])
    p, expected = D.Dirichlet(T(a)), stats.dirichlet(a)
    y = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    close(p.log_prob(T(y)), expected.logpdf(y.T))
    close(p.entropy(), expected.entropy())
    close(p.mean, expected.mean())
    close(p.variance, expected.var())

    probs, counts = np.array([0.2, 0.3, 0.5]), np.array([[1, 2, 4], [0, 0, 7]])
    p, expected = D.Multinomial(7, T(probs)), stats.multinomial(7, probs)
    close(p.log_prob(T(counts).double()), expected.logpmf(counts))
    close(p.entropy(), expected.entropy())

    scale, matrix = covariance[:2, :2], np.array([[3.0, 0.5], [0.5, 4.0]])
    p, expected = D.Wishart(T(4.5).double(), T(scale)), stats.wishart(4.5, scale)
    close(p.log_prob(T(matrix)), expected.logpdf(matrix))
    close(p.entropy(), expected.entropy())
    close(p.mean, expected.mean())
    close(p.variance, expected.var())


# --- densities that SciPy lacks: they have to integrate to one, and their moments follow ------------------------------

UNIT, LINE = (1e-7, 1 - 1e-7), (-40.0, 40.0)
DENSITIES = {
    "Kumaraswamy": (lambda: D.Kumaraswamy(T(2.5).double(), 1.7), UNIT),
    "ContinuousBernoulli": (lambda: D.ContinuousBernoulli(T(0.2).double()), UNIT),
    "ContinuousBernoulli near a half": (lambda: D.ContinuousBernoulli(T(0.5004).double()), UNIT),
    "RelaxedBernoulli": (lambda: D.RelaxedBernoulli(T(2.5).double(), T(0.3).double()), UNIT),
    "MixtureSameFamily": (lambda: D.MixtureSameFamily(
        D.Categorical(T([0.3, 0.7]).double()), D.Normal(T([-2.0, 1.0]).double(), T([0.5, 1.5]).double())), LINE),
    "TransformedDistribution": (lambda: D.TransformedDistribution(
        D.Normal(T(0.3).double(), 0.8), [D.AffineTransform(1.0, -2.0), D.SigmoidTransform()]), UNIT),
    "TransformedDistribution by tanh": (lambda: D.TransformedDistribution(
        D.Normal(T(0.3).double(), 0.8), D.TanhTransform()), (-1 + 1e-9, 1 - 1e-9)),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_density_integrates_to_one(name):
    make, (low, high) = DENSITIES[name]
    p = make()
    x = np.linspace(low, high, 20_001)
    density = p.log_prob(T(x)).exp().numpy()
    assert np.trapezoid(density, x) == pytest.approx(1, abs=1e-4)
    mean = np.trapezoid(density * x, x)
    if asked(getattr, p, "mean") is not None:
        assert p.mean.item() == pytest.approx(mean, abs=1e-4)
        assert p.variance.item() == pytest.approx(np.trapezoid(density * (x - mean) ** 2, x), abs=1e-4)
    if asked(p.entropy) is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = -np.trapezoid(np.nan_to_num(density * np.log(density)), x)
        assert p.entropy().item() == pytest.approx(expected, abs=1e-3)
    below = asked(p.cdf, T(x[::2_000]))
    if below is not None:
        running = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(x))])
        np.testing.assert_allclose(below.numpy(), running[::2_000], atol=5e-4)
    if asked(p.icdf, T(0.5).double()) is not None:
        np.testing.assert_allclose(p.cdf(p.icdf(T(GRID))).numpy(), GRID, atol=1e-9)


def test_kumaraswamy_mode():
    p = D.Kumaraswamy(T([2.0, 3.0]).double(), T([2.0, 1.5]).double())
    x = torch.linspace(0.001, 0.999, 999).double().unsqueeze(-1)
    best = x[p.log_prob(x).argmax(0), 0]
    np.testing.assert_allclose(p.mode.numpy(), best.numpy(), atol=1e-3)


def test_discrete_probabilities_add_up():
    for p in (D.Bernoulli(T([0.3, 0.9])), D.Binomial(9, T([0.3, 0.9])), D.Categorical(T([[0.2, 0.3, 0.5]])),
              D.OneHotCategorical(logits=T([0.2, -0.3, 0.5]))):
        values = p.enumerate_support()
        probs = p.log_prob(values).exp()
        assert p.support.check(values).all()
        np.testing.assert_allclose(probs.sum(0).numpy(), np.ones(tuple(p.batch_shape)), rtol=1e-5)
        np.testing.assert_allclose(-(probs * probs.log()).sum(0).numpy(), p.entropy().numpy(), rtol=1e-4)


def test_lkj_is_uniform_in_two_dimensions():
    """With concentration 1 every correlation in (-1, 1) is alike: a half, times how fast the factor moves with it."""
    r = np.array([-0.9, 0.0, 0.5])
    factors = np.stack([[[1, 0], [a, np.sqrt(1 - a * a)]] for a in r])
    p = D.LKJCholesky(2, T(1.0).double())
    np.testing.assert_allclose(p.log_prob(T(factors)).numpy(), np.full(3, np.log(0.5)), rtol=1e-7)


def test_relaxed_one_hot_integrates_to_one():
    p = D.RelaxedOneHotCategorical(T(2.0).double(), T([0.2, 0.8]).double())
    x = np.linspace(1e-6, 1 - 1e-6, 20_001)
    density = p.log_prob(T(np.stack([x, 1 - x], -1))).exp().numpy()
    assert np.trapezoid(density, x) == pytest.approx(1, abs=1e-3)
