"""Images sampled at free positions: the library's steps mean what the reference means, for all thread counts."""
import numpy as np
import pytest

import flambeau as torch
from flambeau.ops.corners import _sampled, _sampled_drop, _sampled_slopes

CASES = [((2, 5), (7, 9), 23), ((1, 1), (1, 5), 3), ((3, 4), (4, 5, 6), 40),
         ((1, 9), (20, 30), 300), ((2, 3), (1, 1, 1), 16)]


def around(sizes, number, count, seed=0):
    """Positions in and around an image, some of them on pixels, some nowhere."""
    rng = np.random.default_rng(seed)
    at = np.stack([rng.uniform(-1.5, size + 0.5, (number, count)) for size in sizes], 1)
    at[:, :, ::3] = np.rint(at[:, :, ::3])
    at[:, 0, 1] = np.nan
    at[:, -1, 2] = np.inf
    return at


def calls(lead, sizes, count, dtype):
    rng = np.random.default_rng(1)
    image, weights = [torch.tensor(rng.normal(size=(*lead, n)), dtype=dtype) for n in (int(np.prod(sizes)), count)]
    at = torch.tensor(around(sizes, lead[0], count), dtype=dtype)
    return [lambda: _sampled(image, at, sizes), lambda: _sampled_drop(weights, at, sizes),
            lambda: _sampled_slopes(weights, image, at, sizes),
            lambda: _sampled(image.flip(1), at.flip(2), sizes),
            lambda: _sampled(image.mT.contiguous().mT, at[:1].expand_as(at), sizes)]


@pytest.mark.pinned
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lead, sizes, count", CASES)
def test_steps_mean_what_the_reference_means(lead, sizes, count, dtype):
    for call in calls(lead, sizes, count, dtype):
        made = []
        for switches in ({"executor": "reference"}, {"executor": "native", "num_threads": 1},
                         {"executor": "native", "num_threads": 3}):
            with torch.config.using(**switches):
                made.append(call().numpy())
        tol = 1e-5 if dtype is torch.float32 else 1e-12
        np.testing.assert_allclose(made[1], made[0], rtol=tol, atol=tol * 10)
        assert made[1].tobytes() == made[2].tobytes()


@pytest.mark.pinned
def test_sampling_is_one_step_of_the_library():
    x, at = torch.randn(2, 3, 20), torch.rand(2, 2, 7)
    with torch.config.using(executor="native"):
        assert "sample" in str(torch.plans.of(_sampled(x, at, (4, 5))))


@pytest.mark.parametrize("sizes", [(4, 5), (3, 4, 2)])
def test_gradients_twice(sizes):
    rng = np.random.default_rng(2)
    x = torch.tensor(rng.normal(size=(2, 2, int(np.prod(sizes)))), requires_grad=True)
    at = np.stack([rng.integers(0, n, (2, 3)) + rng.uniform(-0.8, -0.2, (2, 3)) for n in sizes], 1)
    at = torch.tensor(at, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, at: _sampled(x, at, sizes), (x, at))
    assert torch.autograd.gradgradcheck(lambda x, at: _sampled(x, at, sizes), (x, at))
