"""Convolutions with fewer multiplications (library/winograd.py) give what PyTorch's give, forwards and backwards."""
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("llvmlite")

import flambeau
from flambeau.backends.cpu.library import winograd


@pytest.fixture(autouse=True, scope="module")
def always():
    """Every convolution that can go this way does, however small, on the native executor."""
    patch = pytest.MonkeyPatch()
    for pays in ("pays", "pays_for_weight"):
        patch.setattr(winograd, pays, lambda *_: True)
    with flambeau.config.using(executor="native", convolutions="direct"):
        flambeau.config.convolutions = "auto"                # nothing planned before is used
        yield
    patch.undo()


def results(lib, x, weight, bias, g, padding, last):
    """The convolution of `x`, and the gradients of all three."""
    x, weight, bias, g = [lib.tensor(a) for a in (x, weight, bias, g)]
    if last:
        x = x.contiguous(memory_format=lib.channels_last)
    args = [t.requires_grad_() for t in (x, weight, bias)]
    y = lib.nn.functional.conv2d(*args, padding=padding)
    y.backward(g)
    return [y.detach(), *[t.grad for t in args]]


@pytest.mark.parametrize("count", [1, 2])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.tuples(st.integers(1, 5), st.integers(1, 33), st.integers(1, 33)), st.tuples(st.integers(3, 21),
       st.integers(3, 40)), st.tuples(st.integers(0, 2), st.integers(0, 2)), st.booleans(), st.integers(0, 2 ** 31))
def test_convolutions_and_gradients(count, channels, size, padding, last, seed):
    n, c, o = channels
    rng = np.random.default_rng(seed)
    out = [s + 2 * p - 2 for s, p in zip(size, padding, strict=True)]
    arrays = [rng.standard_normal(s).astype("float32") for s in ((n, c, *size), (o, c, 3, 3), (o,), (n, o, *out))]
    with flambeau.config.using(num_threads=count):
        ours = results(flambeau, *arrays, padding, last)
        ours_arrays = [t.numpy() for t in ours]
    exact = results(torch, *[a.astype("float64") for a in arrays], padding, last)
    theirs = results(torch, *arrays, padding, last)
    for mine, array, their, want in zip(ours, ours_arrays, theirs, exact, strict=True):
        assert mine.stride() == their.stride()
        scale = max(want.abs().max().item(), 1e-3)
        assert np.abs(array - want.numpy()).max() <= 2e-6 * scale * max(1, (n * size[0] * size[1]) ** 0.5 / 8)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), 1e38, 3e38])
@pytest.mark.parametrize("where", ["input", "weight"])
def test_what_is_not_finite(value, where):
    """It shows in the outputs that read it, and in no others."""
    rng = np.random.default_rng(0)
    x, weight = [rng.standard_normal(s).astype("float32") for s in ((2, 9, 8, 11), (6, 9, 3, 3))]
    if where == "input":
        x[1, 4, 3, 5:7] = value
    else:
        weight[2, 4, 0, 1] = value
    got = flambeau.nn.functional.conv2d(flambeau.tensor(x), flambeau.tensor(weight), padding=1).numpy()
    want = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(weight), padding=1).numpy()
    if where == "weight":                             # whether it meets the zeros of the padding, processors say
        got, want = got[:, :, 1:-1, 1:-1], want[:, :, 1:-1, 1:-1]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isposinf(got), np.isposinf(want))
    np.testing.assert_array_equal(np.isneginf(got), np.isneginf(want))
    there = np.isfinite(want)
    largest = np.abs(want[there]).max()
    np.testing.assert_allclose(got[there], want[there], rtol=1e-4, atol=2e-6 * float(largest))


def test_second_derivatives():
    """Differentiated twice, as gradcheck would have it if float32 were enough for it: beside PyTorch's float64."""
    rng = np.random.default_rng(1)
    x, weight = [rng.standard_normal(s) for s in ((2, 5, 7, 8), (4, 5, 3, 3))]

    def program(lib, dtype):
        a, b = [lib.tensor(z.astype(dtype), requires_grad=True) for z in (x, weight)]
        y = lib.nn.functional.conv2d(a, b, padding=1).tanh().sum()
        grads = lib.autograd.grad(y, (a, b), create_graph=True)
        sum(g.square().sum() for g in grads).backward()
        return a.grad.numpy(), b.grad.numpy()

    for mine, want in zip(program(flambeau, "float32"), program(torch, "float64"), strict=True):
        np.testing.assert_allclose(mine, want, rtol=1e-3, atol=1e-5 * np.abs(want).max())
