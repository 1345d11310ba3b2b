"""Shapes, checks of parameters and values, and what a subclass has to say."""
import math
import pickle
import warnings

import numpy as np
import pytest

import flambeau as torch
from flambeau import distributions as D

T = torch.tensor


def test_shapes_of_a_batch():
    p = D.Normal(torch.zeros(3, 1), torch.ones(4))
    assert p.batch_shape == (3, 4) and p.event_shape == ()
    assert p.sample((2,)).shape == (2, 3, 4) and p.log_prob(torch.zeros(4)).shape == (3, 4)
    q = D.Independent(p, 1)
    assert q.batch_shape == (3,) and q.event_shape == (4,)
    assert q.log_prob(torch.zeros(5, 3, 4)).shape == (5, 3) and q.entropy().shape == (3,)
    assert q.expand((2, 3)).sample().shape == (2, 3, 4)


def test_expanded_parameters_share_memory():
    p = D.Normal(torch.zeros(3), 1.0).expand((1000, 3))
    assert p.loc.stride() == (0, 1) and p.loc.shape == (1000, 3)


def test_dtypes():
    assert D.Normal(0, 1).loc.dtype is torch.float32
    assert D.Normal(T(0.0, dtype=torch.float64), 1).scale.dtype is torch.float64
    assert D.Bernoulli(T([0.5], dtype=torch.float64)).sample().dtype is torch.float64
    assert D.OneHotCategorical(T([0.5, 0.5], dtype=torch.float64)).sample().dtype is torch.float64


@pytest.mark.parametrize("make, words", [
    (lambda: D.Normal(0.0, -1.0), "Expected parameter scale .* of distribution Normal.* GreaterThan"),
    (lambda: D.Normal(T([math.nan]), 1.0), "Expected parameter loc .*Real"),
    (lambda: D.Normal("a", 1.0), "must all be instances of Number"),
    (lambda: D.Categorical(T([0.5, -0.5])), "parameter probs .*Simplex"),
    (lambda: D.Categorical(T(0.5)), "at least one-dimensional"),
    (lambda: D.Bernoulli(), "Either `probs` or `logits`"),
    (lambda: D.Uniform(2.0, 1.0), "parameter low .*LessThan"),
    (lambda: D.MultivariateNormal(torch.zeros(2), -torch.eye(2)), "covariance_matrix .*PositiveDefinite"),
    (lambda: D.Normal(0.0, 1.0).log_prob(T(math.nan)), "to be within the support"),
    (lambda: D.Gamma(1.0, 1.0).log_prob(T(-1.0)), "to be within the support"),
    (lambda: D.Normal(torch.zeros(2), 1.0).log_prob(torch.zeros(3)), "not broadcastable"),
    (lambda: D.Dirichlet(torch.ones(2)).log_prob(torch.ones(3) / 3), "right-most size of value"),
    (lambda: D.Independent(D.Normal(0.0, 1.0), 1), "reinterpreted_batch_ndims"),
    (lambda: D.MixtureSameFamily(D.Categorical(torch.ones(2)), D.Normal(torch.zeros(3), 1.0)), "does not equal"),
])
def test_refusals(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_without_checks():
    p = D.Normal(0.0, -1.0, validate_args=False)
    assert p.log_prob(T(1.0)).isnan() and not p.expand((2,))._validate_args
    try:
        D.Distribution.set_default_validate_args(False)
        D.Gamma(-1.0, 1.0)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError):
        D.Distribution.set_default_validate_args("yes")


def test_checks_record_nothing():
    """A look at the parameters runs what they are made of and leaves nothing else to run."""
    from flambeau.trace.recording.record import current
    loc, scale = torch.zeros(3), torch.ones(3)
    current().run()
    D.Normal(loc, scale)
    assert str(current()) == ""
    D.Normal(loc + 1, scale, validate_args=False).log_prob(loc)
    assert "add" in str(current())


def test_a_compiled_function_checks_again():
    @torch.compile
    def score(loc, scale, x):
        return D.Normal(loc, scale).log_prob(x).sum()

    loc, x = torch.zeros(3), T([0.0, 1.0, 2.0])
    expected = -0.5 * 5 - 3 * 0.5 * math.log(2 * math.pi)
    for _ in range(4):
        assert score(loc, torch.ones(3), x).item() == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="Expected parameter scale"):
        score(loc, -torch.ones(3), x)
    assert score(loc, torch.ones(3), x).item() == pytest.approx(expected, rel=1e-5)


def test_probabilities_and_logits():
    p = D.Bernoulli(logits=T([0.0, 2.0]))
    np.testing.assert_allclose(p.probs.numpy(), 1 / (1 + np.exp([0.0, -2.0])), rtol=1e-6)
    q = D.Categorical(T([2.0, 6.0]))
    np.testing.assert_allclose(q.logits.exp().numpy(), [0.25, 0.75], rtol=1e-6)
    assert q.param_shape == (2,) and q._new((3,)).dtype is torch.float32
    assert isinstance(D.Bernoulli.logits, property)          # to documentation tools


def test_repr():
    assert repr(D.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"
    assert repr(D.Normal(torch.zeros(3), 1.0)) == "Normal(loc: torch.Size([3]), scale: torch.Size([3]))"
    assert repr(D.Independent(D.Poisson(torch.ones(2)), 1)) == "Independent(Poisson(rate: torch.Size([2])), 1)"


def test_pickle():
    p = D.TransformedDistribution(D.Normal(T([0.5]), 2.0), [D.ExpTransform(), D.AffineTransform(1.0, 2.0).inv])
    assert p.transforms[0].inv is not None
    q = pickle.loads(pickle.dumps(p))
    x = T([0.3])
    assert q.log_prob(x).item() == pytest.approx(p.log_prob(x).item(), rel=1e-6)


def test_subclasses():
    class Own(D.Normal):
        def __init__(self, validate_args=None):
            super().__init__(0.0, 1.0, validate_args)

    class Plain(D.Normal):
        pass

    assert type(Plain(0.0, 1.0).expand((2,))) is Plain
    with pytest.raises(NotImplementedError, match="Subclass Own of Normal"):
        Own().expand((2,))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bare = D.Distribution()
    assert "arg_constraints" in str(caught[0].message)
    for name in ("mean", "mode", "variance", "support", "stddev"):
        with pytest.raises(NotImplementedError, match="Distribution has no"):
            getattr(bare, name)


def test_mixture_over_vectors():
    parts = D.Independent(D.Normal(T([[0.0, 0.0], [4.0, 8.0]]), 1.0), 1)
    p = D.MixtureSameFamily(D.Categorical(T([0.25, 0.75])), parts)
    assert p.event_shape == (2,) and p.batch_shape == ()
    np.testing.assert_allclose(p.mean.numpy(), [3.0, 6.0])
    np.testing.assert_allclose(p.variance.numpy(), [1 + 3.0, 1 + 12.0])
    x = T([1.0, 2.0])
    each = parts.log_prob(x).exp() * T([0.25, 0.75])
    assert p.log_prob(x).item() == pytest.approx(math.log(each.sum().item()), rel=1e-5)
    assert p.sample((7,)).shape == (7, 2)


@pytest.mark.parametrize("make", [
    lambda: D.Independent(D.Normal(torch.zeros(2, 3), 1.0), 1),
    lambda: D.LKJCholesky(3, torch.ones(2)),
    lambda: D.LogNormal(torch.zeros(2), 1.0),
    lambda: D.MixtureSameFamily(D.Categorical(torch.ones(2, 3)), D.Normal(torch.zeros(2, 3), 1.0)),
    lambda: D.Wishart(torch.full((2,), 4.0), torch.eye(3)),
], ids=["independent", "lkj", "transformed", "mixture", "wishart"])
def test_whether_to_validate_is_set_when_all_else_is_there(make):
    """pyro's Independent hands the setting on to the distribution inside, which has to be there by then."""
    held = make()
    kind = type(held)
    complete = set(vars(held.expand((5, 2)))) - {"_validate_args"}

    class Watching(kind):
        @property
        def _validate_args(self):
            return False

        @_validate_args.setter
        def _validate_args(self, value):
            assert set(vars(self)) >= complete

    held.expand((5, 2), _instance=Watching.__new__(Watching))
