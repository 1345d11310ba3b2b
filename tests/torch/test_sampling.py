"""`grid_sample` against PyTorch where the image, the positions or the gradients are not finite.

What lies outside counts for nothing: it is not a zero that is multiplied by its weight.
"""
import itertools

import numpy as np
import pytest
import torch

import flambeau

FINITE = [(0, 0), (-1, -1), (-2, -2), (-1.1, 0), (1.2, 1.2), (1, 1), (0.99, 0.99), (0.3, -0.7), (-1, 2.2), (0.1, 0.2)]
# PyTorch's own clamping of these may read outside of the image, so they are only for "zeros"
ENDLESS = [(np.nan, 0), (0, np.nan), (np.inf, 0), (-np.inf, 0), (1e20, 0)]
HOW = list(itertools.product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True)))


def sampled(m, image, places, g, mode, padding_mode, align_corners):
    image, places = [m.tensor(one.tolist(), dtype=m.float32, requires_grad=True) for one in (image, places)]
    out = m.nn.functional.grid_sample(image, places, mode, padding_mode, align_corners)
    out.backward(m.tensor(g.tolist(), dtype=m.float32))
    return [one.detach().numpy() for one in (out, image.grad, places.grad)]


@pytest.mark.pinned
@pytest.mark.parametrize("executor", ["native", "reference"])
@pytest.mark.parametrize("mode, padding_mode, align_corners", HOW)
def test_what_is_not_finite(executor, mode, padding_mode, align_corners):
    places = FINITE + ENDLESS * (padding_mode == "zeros")
    image, g = np.arange(1.0, 33).reshape(1, 2, 4, 4), np.ones((1, 2, 1, len(places)))
    holed, broken = image.copy(), g.copy()
    holed[..., 0, 0], holed[..., 3, 3], broken[..., 2::5] = np.nan, np.inf, np.nan
    places = np.array(places).reshape(1, 1, -1, 2)
    for given in itertools.product((image, holed), [places], (g, broken)):
        want = sampled(torch, *given, mode, padding_mode, align_corners)
        with flambeau.config.using(executor=executor):
            made = sampled(flambeau, *given, mode, padding_mode, align_corners)
        for one, other in zip(made, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)


@pytest.mark.pinned
@pytest.mark.parametrize("executor", ["native", "reference"])
@pytest.mark.parametrize("shape, places", [((2, 5, 6, 7), (2, 9, 4, 2)), ((2, 3, 4, 5, 6), (2, 3, 5, 2, 3))], ids=str)
@pytest.mark.parametrize("mode, padding_mode, align_corners", HOW)
def test_many_places(executor, shape, places, mode, padding_mode, align_corners):
    """Channels that are no multiple of those that are added up together; and three dimensions."""
    if mode == "bicubic" and len(shape) == 5:
        return
    rng = np.random.default_rng(3)
    given = rng.standard_normal(shape), rng.uniform(-1.5, 1.5, places)
    g = rng.standard_normal((*shape[:2], *places[1:-1]))
    want = sampled(torch, *given, g, mode, padding_mode, align_corners)
    with flambeau.config.using(executor=executor):
        made = sampled(flambeau, *given, g, mode, padding_mode, align_corners)
    for one, other in zip(made, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.pinned
@pytest.mark.parametrize("executor", ["native", "reference"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_second_derivatives(executor, mode):
    """PyTorch has none; here they are those of differences."""
    rng = np.random.default_rng(5)
    with flambeau.config.using(executor=executor):
        image = flambeau.tensor(rng.standard_normal((1, 2, 4, 3)), requires_grad=True)
        places = flambeau.tensor(rng.uniform(-1.2, 1.2, (1, 2, 3, 2)), requires_grad=mode != "nearest")
        assert flambeau.autograd.gradgradcheck(
            lambda x, p: flambeau.nn.functional.grid_sample(x, p, mode, align_corners=False), (image, places))
