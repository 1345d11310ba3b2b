"""Filling weights: the formulas of `nn.init`, what they keep, and what they refuse."""
import math

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import init


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def array(tensor):
    return tensor.detach().numpy()


def empty(*shape):
    return nn.Parameter(torch.empty(*shape))


GAINS = {"linear": 1, "conv1d": 1, "conv2d": 1, "conv3d": 1, "conv_transpose1d": 1, "conv_transpose2d": 1,
         "conv_transpose3d": 1, "sigmoid": 1, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75}


def test_gains():
    assert {name: init.calculate_gain(name) for name in GAINS} == GAINS
    assert init.calculate_gain("leaky_relu") == math.sqrt(2 / (1 + 0.01 ** 2))
    assert init.calculate_gain("leaky_relu", 2) == math.sqrt(2 / 5)
    for wrong in (True, "a", [1]):
        with pytest.raises(ValueError, match="not a valid number"):
            init.calculate_gain("leaky_relu", wrong)
    with pytest.raises(ValueError, match="Unsupported nonlinearity swish"):
        init.calculate_gain("swish")


@pytest.mark.parametrize("fill, low, high, mean, std", [
    (lambda w: init.uniform_(w, -3, 2), -3, 2, -0.5, 5 / math.sqrt(12)),
    (lambda w: init.normal_(w, 1, 0.5), -math.inf, math.inf, 1, 0.5),
    (lambda w: init.xavier_uniform_(w, 2), *(s * 2 * math.sqrt(6 / 500) for s in (-1, 1)), 0, 2 * math.sqrt(2 / 500)),
    (lambda w: init.xavier_normal_(w), -math.inf, math.inf, 0, math.sqrt(2 / 500)),
    (lambda w: init.kaiming_uniform_(w, nonlinearity="relu"), -math.sqrt(6 / 200), math.sqrt(6 / 200), 0, 0.1),
    (lambda w: init.kaiming_uniform_(w, math.sqrt(5), "fan_out"), -1 / math.sqrt(300), 1 / math.sqrt(300), 0, 1 / 30),
    (lambda w: init.kaiming_normal_(w, mode="fan_out", nonlinearity="tanh"), -math.inf, math.inf, 0,
     5 / 3 / math.sqrt(300)),
    # the standard deviation of a normal distribution cut at two: 1 - 4 phi(2) / (2 Phi(2) - 1)
    (lambda w: init.trunc_normal_(w), -2, 2, 0, 0.87963),
    (lambda w: init.trunc_normal_(w, 0.5, 0.1, 0.5, 9), 0.5, 9, 0.5 + 0.1 * math.sqrt(2 / math.pi),
     0.1 * math.sqrt(1 - 2 / math.pi)),
    (lambda w: init.trunc_normal_(w, 0, 1, 1.9, 1.9001), 1.9, 1.9001, 1.90005, 0.0001 / math.sqrt(12)),
])
def test_distributions(fill, low, high, mean, std):
    w = empty(300, 200)
    assert fill(w) is w and w.requires_grad and w.grad_fn is None
    got = array(w)
    assert low - 1e-6 <= got.min() and got.max() <= high + 1e-6
    assert got.mean() == pytest.approx(mean, abs=6 * std / math.sqrt(got.size))
    assert got.std() == pytest.approx(std, rel=0.02)


def test_fans_of_a_kernel():
    w = empty(64, 32, 3, 5)
    init.kaiming_normal_(w, nonlinearity="linear")
    assert array(w).std() == pytest.approx(1 / math.sqrt(32 * 15), rel=0.02)
    init.kaiming_normal_(w, mode="fan_out", nonlinearity="linear")
    assert array(w).std() == pytest.approx(1 / math.sqrt(64 * 15), rel=0.02)
    with pytest.raises(ValueError, match="Fan in and fan out can not be computed for tensor with fewer than 2 dim"):
        init.xavier_uniform_(empty(3))
    with pytest.raises(ValueError, match="Mode fan_all not supported"):
        init.kaiming_uniform_(w, mode="fan_all")


def test_constants():
    w = empty(2, 3)
    assert array(init.constant_(w, 0.25)).tolist() == [[0.25] * 3] * 2
    assert array(init.ones_(w)).tolist() == [[1.0] * 3] * 2 and array(init.zeros_(w)).tolist() == [[0.0] * 3] * 2
    assert array(init.eye_(w)).tolist() == np.eye(2, 3).tolist()
    assert w.requires_grad and w.grad_fn is None
    with pytest.raises(ValueError, match="Only tensors with 2 dimensions"):
        init.eye_(empty(3))


@pytest.mark.parametrize("shape, groups", [((4, 3, 5), 1), ((3, 4, 3, 4), 1), ((6, 2, 1, 2, 3), 3), ((4, 0, 3), 2)])
def test_dirac_hands_channels_on(shape, groups):
    w = array(init.dirac_(empty(*shape), groups))
    want = np.zeros(shape, np.float32)
    each = shape[0] // groups
    for group in range(groups):
        for channel in range(min(each, shape[1])):
            want[(group * each + channel, channel, *(size // 2 for size in shape[2:]))] = 1
    np.testing.assert_array_equal(w, want)


def test_dirac_keeps_an_image():
    conv = nn.functional.conv2d
    x = torch.randn(2, 4, 6, 6)
    np.testing.assert_allclose(array(conv(x, init.dirac_(empty(4, 4, 3, 3)), padding=1)), array(x), atol=1e-6)
    with pytest.raises(ValueError, match="Only tensors with 3, 4, or 5 dimensions"):
        init.dirac_(empty(2, 2))
    with pytest.raises(ValueError, match="dim 0 must be divisible by groups"):
        init.dirac_(empty(3, 2, 1), 2)


@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3), (4, 3, 2)])
def test_orthogonal(shape):
    w = empty(*shape)
    assert init.orthogonal_(w, gain=2) is w and w.grad_fn is None
    q = array(w).reshape(shape[0], -1) / 2
    gram = q @ q.T if q.shape[0] <= q.shape[1] else q.T @ q
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-5)
    with pytest.raises(ValueError, match="2 or more dimensions"):
        init.orthogonal_(empty(3))
    assert init.orthogonal_(empty(0, 3)).shape == (0, 3)


def test_sparse():
    w = array(init.sparse_(empty(50, 40), 0.33, std=2.0))
    assert ((w == 0).sum(axis=0) == math.ceil(0.33 * 50)).all()
    assert w[w != 0].std() == pytest.approx(2.0, rel=0.1)
    assert (w[:, 0] == 0).tolist() != (w[:, 1] == 0).tolist()
    assert (array(init.sparse_(empty(3, 2), 0.0)) != 0).all() and (array(init.sparse_(empty(3, 2), 1.0)) == 0).all()


DRAWS = [lambda w, g: init.uniform_(w, generator=g), lambda w, g: init.normal_(w, generator=g),
         lambda w, g: init.trunc_normal_(w, generator=g), lambda w, g: init.trunc_normal_(w, a=2, b=3, generator=g),
         lambda w, g: init.xavier_uniform_(w, generator=g), lambda w, g: init.xavier_normal_(w, generator=g),
         lambda w, g: init.kaiming_uniform_(w, generator=g), lambda w, g: init.kaiming_normal_(w, generator=g),
         lambda w, g: init.orthogonal_(w, generator=g)]


@pytest.mark.parametrize("draw", DRAWS)
def test_a_generator_of_ones_own(draw):
    before = torch.get_rng_state()
    a, b = (array(draw(empty(20, 10), torch.Generator().manual_seed(4))) for _ in range(2))
    c = array(draw(empty(20, 10), torch.Generator().manual_seed(5)))
    np.testing.assert_allclose(a, b, rtol=1e-6)
    assert abs(a - c).max() > 1e-3
    assert torch.equal(before, torch.get_rng_state())


def test_nothing_to_fill():
    for fill in (init.kaiming_uniform_, init.kaiming_normal_):
        w = empty(0, 3)
        with pytest.warns(UserWarning, match="Initializing zero-element tensors is a no-op"):
            assert fill(w) is w
    meta = torch.empty(3, 3, device="meta")
    for fill in (init.uniform_, init.trunc_normal_, init.orthogonal_, init.eye_, init.ones_, init.kaiming_uniform_):
        assert fill(meta) is meta
    assert init.sparse_(meta, 0.5) is meta


def test_a_mean_far_outside_is_told():
    with pytest.warns(UserWarning, match="mean is more than 2 std from"):
        init.trunc_normal_(empty(3), mean=5)


def test_half_precision_stays_inside():
    w = torch.empty(2000, dtype=torch.bfloat16)
    init.trunc_normal_(w, 0, 1, -0.1234, 0.1234)
    assert w.abs().max().item() <= torch.tensor(0.1234, dtype=torch.bfloat16).item()


def test_a_subclass_takes_the_call():
    class Watched(torch.Tensor):
        seen = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.seen.append((func, sorted(kwargs)))
            return kwargs["tensor"]
    w = torch.empty(2, 2).as_subclass(Watched)
    for fill, more in ((init.uniform_, (1,)), (init.normal_, ()), (init.constant_, (1,)), (init.kaiming_uniform_, ())):
        assert fill(w, *more) is w
    assert Watched.seen == [(init.uniform_, ["a", "b", "generator", "tensor"]),
                            (init.normal_, ["generator", "mean", "std", "tensor"]), (init.constant_, ["tensor", "val"]),
                            (init.kaiming_uniform_, ["a", "generator", "mode", "nonlinearity", "tensor"])]


def test_names_of_long_ago():
    for name in ("uniform", "normal", "eye", "orthogonal", "xavier_uniform", "xavier_normal", "kaiming_uniform",
                 "kaiming_normal"):
        with pytest.warns(FutureWarning, match=f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`"):
            getattr(init, name)(empty(3, 3))
