"""Where a formula has no number of its own: distributions at the ends of their parameters, second derivatives of
products with zeros and of ties, random fills of every layout, empty inputs that are refused, `view` as a dtype."""
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau as fb
from tests.torch.harness import Raised, attempt, to_fb_tensor, to_torch

LIBRARIES = (fb, torch)
INF = float("inf")


# ---- distributions ---------------------------------------------------------------------------------------------------

PARAMETERS = {
    "ContinuousBernoulli": [{"logits": n} for n in (20.0, -20.0, 100.0, 1000.0, 17.0, 1e-6)]
    + [{"probs": n} for n in (0.0, 1.0, 1e-30, 0.5)],
    "Bernoulli": [{"logits": n} for n in (100.0, -100.0, INF)] + [{"probs": n} for n in (0.0, 1.0)],
    "Geometric": [{"probs": n} for n in (1.0, 1e-10)],
    "Beta": [{"concentration1": a, "concentration0": b} for a in (1e-10, 1.0, 1e10) for b in (1e-10, 1.0)],
    "Gamma": [{"concentration": a, "rate": b} for a in (1e-10, 1.0) for b in (1e-10, 1e10)],
    "Gumbel": [{"loc": 0.0, "scale": s} for s in (1e-30, 1e30)],
    "Pareto": [{"scale": 1e-30, "alpha": a} for a in (1.0, 2.0, 1e10)],
    "StudentT": [{"df": n, "loc": 0.0, "scale": s} for n in (0.5, 1.0, 2.0, 3.0) for s in (1.0, 1e30)],
    "GeneralizedPareto": [{"loc": 0.0, "scale": 1.0, "concentration": n} for n in (-0.5, 0.0, 0.5, 2.0)],
    "Poisson": [{"rate": n} for n in (0.0, 1e-30, 1e8)],
}
QUESTIONS = {
    "mean": lambda m, d: d.mean, "variance": lambda m, d: d.variance, "entropy": lambda m, d: d.entropy(),
    "sample": lambda m, d: d.sample((5,)), "rsample": lambda m, d: d.rsample((5,)),
    "log_prob": lambda m, d: d.log_prob(m.tensor([0.0, 0.5, 1.0])), "cdf": lambda m, d: d.cdf(m.tensor([0.25, 0.9])),
    "icdf": lambda m, d: d.icdf(m.tensor([0.3, 0.9])),
}


def distribution(m, name, parameters, requires_grad=False):
    tensors = {key: m.tensor(n, requires_grad=requires_grad) for key, n in parameters.items()}
    return getattr(m.distributions, name)(**tensors, validate_args=False), tuple(tensors.values())


@pytest.mark.parametrize("name, parameters", [(name, each) for name in PARAMETERS for each in PARAMETERS[name]],
                         ids=str)
def test_distributions(name, parameters):
    for question, ask in QUESTIONS.items():
        found = []
        for m in LIBRARIES:
            d, _ = distribution(m, name, parameters)
            made = attempt(ask, m, d)
            found.append(type(made.error).__name__ if isinstance(made, Raised) else np.array(made.tolist()))
        if isinstance(found[1], str):
            assert found[0] == found[1], question
        else:
            np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-6, err_msg=question)


@pytest.mark.parametrize("name", ["StudentT", "GeneralizedPareto"])
def test_gradients_of_moments_that_are_not_there(name):
    for parameters in PARAMETERS[name]:
        found = []
        for m in LIBRARIES:
            d, tensors = distribution(m, name, parameters, requires_grad=True)
            grads = m.autograd.grad((d.mean + d.variance).sum(), tensors, allow_unused=True)
            found.append([0.0 if g is None else g.item() for g in grads])
        np.testing.assert_allclose(*found, rtol=1e-4, err_msg=str(parameters))


# ---- second derivatives ----------------------------------------------------------------------------------------------

AT = [0, 0, 1, 1, 2]
FOLDED = {
    "prod": lambda m, x: x.prod(), "prod of rows": lambda m, x: x.reshape(1, -1).prod(1), "cumprod": lambda m, x:
    x.cumprod(0), "cumsum": lambda m, x: (x * x).cumsum(0), "logcumsumexp": lambda m, x: x.logcumsumexp(0),
    "amax": lambda m, x: (x * x).amax(), "amin": lambda m, x: (x * x).amin(),
    "cummax": lambda m, x: (x * x).cummax(0)[0],
    "scatter prod": lambda m, x: m.full((3,), 2.0, dtype=m.float64).scatter_reduce(0, m.tensor(AT), x, "prod"),
    "scatter prod alone": lambda m, x: m.ones(3, dtype=m.float64).scatter_reduce(0, m.tensor(AT), x, "prod",
                                                                                 include_self=False),
    "scatter prod self": lambda m, x: x[:3].scatter_reduce(0, m.tensor(AT), x.flip(0), "prod"),
    "scatter mean": lambda m, x: m.zeros(3, dtype=m.float64).scatter_reduce(0, m.tensor(AT), x * x, "mean"),
    "index prod": lambda m, x: m.full((3,), 2.0, dtype=m.float64).index_reduce(0, m.tensor(AT), x, "prod"),
}
POINTS = {"no zero": [1.0, 2.0, 3.0, 4.0, 5.0], "one": [0.0, 2.0, 3.0, 4.0, 5.0],
          "two together": [0.0, 0.0, 3.0, 4.0, 5.0],
          "two apart": [0.0, 1.0, 0.0, 2.0, 3.0], "all": [0.0] * 5, "ties": [2.0] * 5}


def hessian(m, f, point):
    x = m.tensor(point, dtype=m.float64, requires_grad=True)
    made = f(m, x)
    weights = m.arange(1.0, made.numel() + 1, dtype=m.float64).reshape(made.shape)
    g, = m.autograd.grad((made * weights).sum(), x, create_graph=True)
    rows = [m.autograd.grad(each, x, retain_graph=True, allow_unused=True)[0] if g.requires_grad else None
            for each in g]
    return [[0.0] * 5 if row is None else row.tolist() for row in rows]


def differences(f, point, step=1e-3):
    def value(*moves):
        x = torch.tensor(point, dtype=torch.float64)
        for at, by in moves:
            x[at] += by
        made = f(torch, x)
        return float((made * torch.arange(1.0, made.numel() + 1, dtype=torch.float64).reshape(made.shape)).sum())
    return [[(value((i, step), (j, step)) - value((i, step), (j, -step)) - value((i, -step), (j, step))
              + value((i, -step), (j, -step))) / (4 * step * step) for j in range(5)] for i in range(5)]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("name", FOLDED)
def test_second_derivatives(name, point):
    """As differences have them where the function has one, and refused where PyTorch refuses them."""
    ours, theirs = (attempt(hessian, m, FOLDED[name], POINTS[point]) for m in LIBRARIES)
    if isinstance(theirs, Raised):
        assert isinstance(ours, Raised) and "Double backward" in str(ours) and "Double backward" in str(theirs)
    else:
        assert not isinstance(ours, Raised), ours
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
        if "prod" in name:
            np.testing.assert_allclose(ours, differences(FOLDED[name], POINTS[point]), rtol=1e-4, atol=1e-3)


# ---- random fills ----------------------------------------------------------------------------------------------------

LAYOUTS = {
    "transposed": lambda d: torch.zeros(3, 4, 5, dtype=d).transpose(0, 2),
    "permuted": lambda d: torch.zeros(4, 5, 3, dtype=d).permute(1, 0, 2),
    "channels last": lambda d: torch.zeros(8, 4, 3, 3, dtype=d).contiguous(memory_format=torch.channels_last),
    "channels last, one channel": lambda d: torch.zeros(8, 1, 3, 3, dtype=d).to(memory_format=torch.channels_last),
    "rows of a part": lambda d: torch.zeros(5, 7, dtype=d)[:, 1:5], "a transposed matrix": lambda d:
    torch.zeros(4, 6, dtype=d).t(), "steps": lambda d: torch.zeros(12, 6, dtype=d)[::2, ::2].t(),
    "no elements": lambda d: torch.zeros(0, 3, dtype=d),
}
FILLS = {
    "normal_": lambda m, x: x.normal_(), "uniform_": lambda m, x: x.uniform_(),
    "bernoulli_": lambda m, x: x.bernoulli_(0.3),
    "bernoulli_ at": lambda m, x: x.bernoulli_(m.full(tuple(x.shape), 0.4)), "random_": lambda m, x: x.random_(99),
    "exponential_": lambda m, x: x.exponential_(), "geometric_": lambda m, x: x.geometric_(0.3), "cauchy_": lambda m, x:
    x.cauchy_(), "log_normal_": lambda m, x: x.log_normal_(), "rand_like": lambda m, x: m.rand_like(x),
    "randn out": lambda m, x: m.randn(tuple(x.shape), out=x),
    "dropout": lambda m, x: m.nn.functional.dropout(x.fill_(1)),
    "dropout2d": lambda m, x: m.nn.functional.dropout2d(x.fill_(1)),
    "feature_alpha_dropout": lambda m, x: m.nn.functional.feature_alpha_dropout(x.fill_(1), training=True),
    "alpha_dropout": lambda m, x: m.nn.functional.alpha_dropout(x.fill_(1), training=True),
    "kaiming_normal_": lambda m, x: m.nn.init.kaiming_normal_(x),
    "trunc_normal_": lambda m, x: m.nn.init.trunc_normal_(x),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FILLS)
def test_random_fills(name, layout):
    """The same numbers at the same places, or the same refusal."""
    for dtype in (torch.float32, torch.float64, torch.int64):
        theirs = LAYOUTS[layout](dtype)
        ours = to_fb_tensor(theirs, {})
        want, got = (attempt(lambda m=m, x=x: (FILLS[name](m, x), m.rand(1).item())) for m, x in ((torch, theirs),
                                                                                                  (fb, ours)))
        assert isinstance(want, Raised) == isinstance(got, Raised), (dtype, str(got)[:200], str(want)[:200])
        if not isinstance(want, Raised):
            torch.testing.assert_close(to_torch(got[0]), want[0], rtol=1e-5, atol=1e-6, msg=f"{dtype}")
            assert got[1] == want[1]                       # and the generators go on alike


BOOLS = {"randint": lambda m: m.randint(True, (3,)), "low": lambda m: m.randint(False, 5, (3,)),
         "randint_like": lambda m: m.randint_like(m.ones(3), True), "random_": lambda m: m.ones(3).random_(True),
         "float": lambda m: m.ones(3).random_(3.0), "multinomial": lambda m: m.multinomial(m.ones(3), True)}


@pytest.mark.parametrize("name", BOOLS)
def test_a_bool_is_no_count(name):
    for m in LIBRARIES:
        with pytest.raises(TypeError):
            BOOLS[name](m)


# ---- refusals and views ----------------------------------------------------------------------------------------------

REFUSED = {
    "cross into input": lambda m, x: m.cross(x, x + 1, dim=1, out=x),
    "cross into other": lambda m, x: m.linalg.cross(x + 1, x, dim=1, out=x),
    "ctc without samples": lambda m, x: m.nn.functional.ctc_loss(m.zeros(5, 0, 3), m.ones(0, 2, dtype=m.long), (), ()),
    "ctc without steps": lambda m, x: m.nn.functional.ctc_loss(m.zeros(0, 1, 3), m.ones(1, 2, dtype=m.long), (0,),
                                                               (2,)),
    "transposed, no kernel": lambda m, x: m.nn.functional.conv_transpose2d(m.zeros(1, 3, 4, 4), m.zeros(3, 3, 0, 2)),
    "multilabel": lambda m, x: m.nn.functional.multilabel_margin_loss(m.zeros(3, 0), m.zeros(3, 0, dtype=m.long)),
    "pivots": lambda m, x: m.linalg.lu_solve(m.eye(3), m.ones(2, dtype=m.int32), x),
    "int64 pivots": lambda m, x: m.linalg.lu_solve(m.eye(3), m.ones(3, dtype=m.int64), x),
    **{f"adaptive_{name}": lambda m, x, name=name: getattr(m.nn.functional, f"adaptive_{name}")(
        m.zeros(2, 0, *[4] * int(name[-2])), 2) for name in ("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool3d")},
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    for m in LIBRARIES:
        with pytest.raises(RuntimeError):
            REFUSED[name](m, m.ones(3, 3))


@pytest.mark.parametrize("into", ["float32", "int32", "float64", "uint8", "complex64"])
@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize("requires_grad", [True, False])
def test_view_as_dtype(into, leaf, requires_grad):
    def facts(m):
        x = m.ones(4, 8, requires_grad=requires_grad)
        x = x if leaf else x.clone()
        y = x.view(getattr(m, into))
        with m.no_grad():
            x.zero_()
        return (y.requires_grad, y.is_leaf, y.grad_fn is None, y._base is x, y._base is None, tuple(y.shape),
                y._version, y.data_ptr() == x.data_ptr())
    assert facts(fb) == facts(torch)


@pytest.mark.parametrize("format", ["preserve_format", "contiguous_format", "channels_last"])
@pytest.mark.parametrize("size", [(0,), (2, 3, 4, 5)])
def test_resize_as(format, size):
    def strides(m):
        template = m.zeros(2, 3, 4, 5).contiguous(memory_format=m.channels_last)
        return tuple(m.zeros(size).resize_as_(template, memory_format=getattr(m, format)).stride())
    assert strides(fb) == strides(torch)


def test_no_reflections_still_have_a_gradient():
    for m in LIBRARIES:
        h, tau = m.rand(4, 3, requires_grad=True), m.rand(0, requires_grad=True)
        made = m.linalg.householder_product(h, tau)
        assert made.requires_grad and made.tolist() == m.eye(4, 3).tolist()
