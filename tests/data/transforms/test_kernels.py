"""The operations behind the transforms: native code beside their references, at odd sizes and none at all."""
import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flambeau as torch
from flambeau.data.transforms import functional as F, tables
from flambeau.data.transforms.colour import jitter_batch
from flambeau.data.transforms.functional.geometry import flip_some, resize_each

from .test_draws import BYTES, FLOATS

pytestmark = pytest.mark.pinned
SIZES = [(1, 1), (1, 9), (7, 1), (2, 3), (5, 17), (33, 8), (16, 16)]
rng = np.random.default_rng(1)


def both(run):
    """What native code and the reference make of it."""
    made = []
    for executor in ("native", "reference"):
        with torch.config.using(executor=executor):
            made.append(run().numpy())
    return made


def close(run, levels=0):
    native, reference = both(run)
    assert native.shape == reference.shape and native.dtype == reference.dtype
    if native.dtype == np.uint8:
        apart = np.abs(native.astype(int) - reference.astype(int))
        assert apart.max(initial=0) <= levels, apart.max()
    else:
        np.testing.assert_allclose(native, reference, rtol=2e-5, atol=2e-6)


def image(shape, kind, n=3):
    given = rng.integers(0, 256, (n, 3, *shape)).astype(np.uint8)
    return torch.tensor(given if kind == "bytes" else (given / 255).astype(np.float32))


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("kind", ["bytes", "floats"])
def test_jitter_in_every_order(shape, kind):
    given = image(shape, kind, 24)
    order = np.array(list(itertools.permutations(range(4))))
    factors = [rng.uniform(0.3, 1.7, 24) for _ in range(3)] + [rng.uniform(-0.5, 0.5, 24)]
    close(lambda: jitter_batch(given, order, factors), levels=1)
    close(lambda: jitter_batch(given, order, [None, *factors[1:3], None]), levels=1)


@pytest.mark.parametrize("kind", ["bytes", "floats"])
@pytest.mark.parametrize("number", range(4))
def test_jitter_is_its_functions_one_after_the_other(kind, number):
    given = image((13, 11), kind, 6)
    order = np.stack([rng.permutation(4) for _ in range(6)])
    factors = [rng.uniform(0.3, 1.7, 6) for _ in range(3)] + [rng.uniform(-0.5, 0.5, 6)]
    steps = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
    one_by_one = []
    for i, picture in enumerate(given):
        for step in order[i]:
            picture = steps[step](picture, float(factors[step][i]))
        one_by_one.append(picture)
    made, wanted = jitter_batch(given, order, factors).numpy(), torch.stack(one_by_one).numpy()
    if kind == "bytes":
        np.testing.assert_array_equal(made, wanted)
    else:
        np.testing.assert_allclose(made, wanted, atol=3e-6)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 30), st.integers(1, 30), st.sampled_from(
    ["bilinear", "bicubic", "nearest"]), st.booleans(), st.sampled_from(["bytes", "floats"]), st.data())
def test_boxes_are_resized_as_crops_are(height, width, out_h, out_w, mode, antialias, kind, data):
    """A box of its own for each sample gives what cropping and resizing that sample gives."""
    given = image((height, width), kind, 2)
    boxes = []
    for _ in range(2):
        h, w = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
        boxes.append((data.draw(st.integers(0, height - h)), data.draw(st.integers(0, width - w)), h, w))
    made = resize_each(given, np.array(boxes), (out_h, out_w), mode, antialias)
    for i, (top, left, h, w) in enumerate(boxes):
        alone = F.resize(F.crop(given[i], top, left, h, w), [out_h, out_w], mode, antialias=antialias)
        if kind == "bytes":
            assert torch.equal(made[i], alone)
        else:
            torch.testing.assert_close(made[i], alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("kind", ["bytes", "floats"])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_resizing(shape, kind, mode):
    given = image(shape, kind)
    for size in ([4, 9], [40, 3], list(shape)):
        close(lambda: F.resize(given, size, mode), levels=0)


def test_wide_filters_and_long_rows():
    """Taps that are not written out, and rings of rows that are too large for a frame."""
    tall = torch.tensor(rng.integers(0, 256, (1, 2, 700, 900)).astype(np.uint8))
    for size in ([7, 9], [10, 880]):
        close(lambda: F.resize(tall, size))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "float32", "float64", "int64"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2, 16), (4, 17), (3, 40)])
def test_mirrors(dtype, shape):
    given = torch.tensor(rng.integers(0, 100, (5, 3, *shape))).to(getattr(torch, dtype))
    chosen = np.array([True, False, True, True, False])
    for dim in (-1, -2):
        close(lambda: flip_some(given, chosen, dim).to(torch.float32))
        made = flip_some(given, chosen, dim)
        assert torch.equal(made[0], given[0].flip(dim)) and torch.equal(made[1], given[1])


@pytest.mark.parametrize("kind", ["bytes", "floats"])
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("fill", [None, 0, [0.1, 0.2, 0.3]])
def test_warps(kind, mode, fill):
    given = torch.tensor(BYTES if kind == "bytes" else FLOATS)
    angles, moved = rng.uniform(-180, 180, 6), rng.integers(-9, 9, (6, 2))
    close(lambda: F.affine(given, angles, moved, rng.uniform(0.5, 2, 6) * 0 + 1.1, np.zeros((6, 2)), mode, fill), 1)
    corners = np.array([[0, 0], [40, 0], [40, 36], [0, 36]])
    ends = corners + rng.integers(-4, 5, (6, 4, 2))
    close(lambda: F.perspective(given, corners, ends, mode, fill), 1)


def test_samples_are_warped_as_single_images_are():
    given, angles = torch.tensor(BYTES), rng.uniform(-180, 180, 6)
    made = F.rotate(given, angles, "bilinear")
    for i in range(6):
        assert torch.equal(made[i], F.rotate(given[i], float(angles[i]), "bilinear"))


def test_whole_weights():
    """Bytes are resized with weights that add up to one, up to the last bit of each."""
    _, weight = tables.table("bilinear", True, np.array([41, 7]), 13, 50, np.array([3, 40]))
    np.testing.assert_allclose(weight.sum(2), 1)
    whole, bits = tables.whole_weights(weight)
    assert whole.max() < 1 << 15
    np.testing.assert_allclose(whole.sum(2) / 2.0 ** bits[:, None], 1, atol=weight.shape[2] * 2.0**-14)


def test_noise_is_normal():
    noise = F.gaussian_noise(torch.zeros(4, 3, 64, 64), sigma=1.0, clip=False).numpy().ravel()
    assert abs(noise.mean()) < 0.02 and abs(noise.std() - 1) < 0.02
    assert abs((np.abs(noise) < 1).mean() - 0.6827) < 0.01 and np.abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 0.02


@pytest.mark.parametrize("call", [
    lambda x: F.resize(x, [4, 5]), lambda x: F.rotate(x, 30), lambda x: F.adjust_hue(x, 0.1), F.equalize,
    lambda x: F.gaussian_blur(x, 3), F.autocontrast, F.horizontal_flip, lambda x: F.adjust_sharpness(x, 2.0)])
def test_no_images_at_all(call):
    assert call(torch.zeros(0, 3, 8, 9, dtype=torch.uint8)).shape[0] == 0


def test_a_number_for_each_sample_has_to_be_one_for_each():
    with pytest.raises(ValueError, match="one for each of the 6 samples, but its shape is .5"):
        F.adjust_brightness(torch.tensor(BYTES), np.ones(5))
    with pytest.raises(ValueError, match="not inside of images of .37, 41"):
        F.resized_crop(torch.tensor(BYTES), np.full(6, 30), 0, 10, 10, [5, 5])
    with pytest.raises(TypeError, match="Functional F.resize supports inputs of type"):
        F.resize("picture.png", [3, 3])
