"""roi_align and its kin against their definitions, one sample and one pixel at a time."""
import math

import numpy as np
import pytest

import flambeau as torch
from flambeau.vision import regions
from tests.thorough import sample

EXECUTORS = ("native", "reference")


def bilinear(plane, y, x):
    """The plane between its pixels; at its border for a pixel, then zero."""
    height, width = plane.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = math.floor(y), math.floor(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    upper = plane[top, left] * (1 - (x - left)) + plane[top, right] * (x - left)
    lower = plane[bottom, left] * (1 - (x - left)) + plane[bottom, right] * (x - left)
    return upper * (1 - (y - top)) + lower * (y - top)


def sampled(plane, box, bins, at, ratio):
    """The mean of the samples in the bin `at` of a box in the plane's own pixels."""
    x1, y1, x2, y2 = box
    tall, wide = (y2 - y1) / bins[0], (x2 - x1) / bins[1]
    rows, columns = (ratio, ratio) if ratio > 0 else (math.ceil(tall), math.ceil(wide))
    found = [bilinear(plane, y1 + (at[0] + (i + 0.5) / rows) * tall, x1 + (at[1] + (j + 0.5) / columns) * wide)
             for i in range(rows) for j in range(columns)]
    return sum(found) / len(found) if found else 0.0


def whole(box, scale):
    return [math.floor(abs(v * scale) + 0.5) * (1 if v >= 0 else -1) for v in box]


def covered(box, bins, at, height, width, inclusive, beyond):
    """The rows and columns of whole pixels in the bin `at`."""
    x1, y1, x2, y2 = box
    tall, wide = max(y2 - y1 + inclusive, 1) / bins[0], max(x2 - x1 + inclusive, 1) / bins[1]
    spans = []
    for start, size, n, limit in ((y1, tall, at[0], height), (x1, wide, at[1], width)):
        low, high = math.floor(n * size) + start, math.ceil((n + 1) * size) + start
        spans.append(range(min(max(low, 0), limit - beyond), min(max(high, 0), limit - beyond)))
    return spans


def pooled(x, rois, bins, value):
    """[K, C, *bins] of `value(channels of the image, box, bin)`, which gives one number a channel."""
    out = np.zeros((len(rois), len(value(x[0], rois[0, 1:], (0, 0))), *bins))
    for k, (image, *box) in enumerate(rois):
        for p in range(bins[0]):
            for q in range(bins[1]):
                out[k, :, p, q] = value(x[int(image)], box, (p, q))
    return out


@pytest.fixture
def x(rng):
    return rng.standard_normal((2, 12, 9, 11))


@pytest.fixture
def rois(rng):
    """Boxes inside, over the border, empty, turned inside out, and far away."""
    corner, size = rng.uniform(-4, 16, (12, 2)), rng.uniform(0, 14, (12, 2))
    boxes = np.concatenate([corner, corner + size], 1)
    boxes = np.concatenate([boxes, [[3, 3, 3, 3], [6, 6, 2, 2], [90, 90, 95, 99], [0, 0, 21, 17]]])
    return np.concatenate([(np.arange(len(boxes)) % 2)[:, None], boxes], 1)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("ratio", [1, 2, 0])
@pytest.mark.parametrize("aligned", [False, True])
def test_roi_align(x, rois, ratio, aligned, executor):
    x, scale, bins = x[:, :3], 0.6, (3, 2)

    def value(image, box, at):
        shifted = np.asarray(box) * scale - (0.5 if aligned else 0)
        if not aligned:
            shifted[2:] = np.maximum(shifted[2:], shifted[:2] + 1)
        return [sampled(plane, shifted, bins, at, ratio) for plane in image]

    with torch.config.using(executor=executor):
        out = regions.roi_align(torch.tensor(x), torch.tensor(rois), scale, *bins, ratio, aligned)
    np.testing.assert_allclose(out.numpy(), pooled(x, rois, bins, value), atol=1e-12)


@pytest.mark.parametrize("ratio", [2, 0])
def test_ps_roi_align(x, rois, ratio):
    scale, bins = 0.6, (3, 2)

    def value(image, box, at):
        own = image.reshape(2, *bins, *image.shape[1:])[:, at[0], at[1]]
        return [sampled(plane, np.asarray(box) * scale - 0.5, bins, at, ratio) for plane in own]

    out, channels = regions.ps_roi_align(torch.tensor(x), torch.tensor(rois), scale, *bins, ratio)
    np.testing.assert_allclose(out.numpy(), pooled(x, rois, bins, value), atol=1e-12)
    assert channels.dtype is torch.int32 and channels[3].tolist() == np.arange(12).reshape(2, *bins).tolist()


def test_roi_pool(x, rois):
    scale, bins = 0.6, (3, 2)

    def value(image, box, at):
        rows, columns = covered(whole(box, scale), bins, at, 9, 11, 1, 0)
        return [max((plane[i, j] for i in rows for j in columns), default=0.0) for plane in image]

    out, places = regions.roi_pool(torch.tensor(x), torch.tensor(rois), scale, *bins)
    np.testing.assert_allclose(out.numpy(), pooled(x, rois, bins, value), atol=0)
    flat = x[rois[:, 0].astype(int)].reshape(len(rois), 12, 99)
    held = np.take_along_axis(flat, np.maximum(places.numpy(), 0).reshape(len(rois), 12, 6), 2).reshape(out.shape)
    np.testing.assert_array_equal(np.where(places.numpy() >= 0, held, 0), out.numpy())


def test_of_equals_the_first_is_the_largest_and_nan_is_none():
    x = torch.tensor([[[[1.0, 2.0, 2.0], [float("nan"), 2.0, 0.0]]]])
    out, places = regions.roi_pool(x, torch.tensor([[0.0, 0, 0, 2, 1], [0, 0, 1, 0, 1]]), 1.0, 1, 1)
    assert out.flatten().tolist() == [2.0, np.finfo(np.float32).min] and places.flatten().tolist() == [1, -1]


def test_ps_roi_pool(x, rois):
    scale, bins = 0.6, (3, 2)

    def value(image, box, at):
        rows, columns = covered(whole(box, scale), bins, at, 9, 11, 0, 1)
        own = image.reshape(2, *bins, *image.shape[1:])[:, at[0], at[1]]
        return [np.mean([plane[i, j] for i in rows for j in columns]) if rows and columns else 0.0 for plane in own]

    out, _ = regions.ps_roi_pool(torch.tensor(x), torch.tensor(rois), scale, *bins)
    np.testing.assert_allclose(out.numpy(), pooled(x, rois, bins, value), atol=1e-12)


CALLS = {
    "align": (lambda x, r: regions.roi_align(x, r, 0.6, 3, 2, 2, True),
              lambda g, r, out, s: regions._roi_align_backward(g, r, 0.6, 3, 2, *s, 2, True)),
    "align by size": (lambda x, r: regions.roi_align(x, r, 0.6, 3, 2, 0, False),
                      lambda g, r, out, s: regions._roi_align_backward(g, r, 0.6, 3, 2, *s, 0, False)),
    "pool": (lambda x, r: regions.roi_pool(x, r, 0.6, 3, 2),
             lambda g, r, out, s: regions._roi_pool_backward(g, r, out[1], 0.6, 3, 2, *s)),
    "ps align": (lambda x, r: regions.ps_roi_align(x, r, 0.6, 3, 2, 2),
                 lambda g, r, out, s: regions._ps_roi_align_backward(g, r, out[1], 0.6, 3, 2, 2, *s)),
    "ps pool": (lambda x, r: regions.ps_roi_pool(x, r, 0.6, 3, 2),
                lambda g, r, out, s: regions._ps_roi_pool_backward(g, r, out[1], 0.6, 3, 2, *s)),
}


@pytest.mark.parametrize("name", sample(CALLS, 4))
def test_gradients(x, rois, name):
    call, backward = CALLS[name]
    x, rois = torch.tensor(x[:, :, :6, :5]).requires_grad_(), torch.tensor(rois[::3])

    def first(x):
        out = call(x, rois)
        return out[0] if isinstance(out, tuple) else out

    assert torch.autograd.gradcheck(first, x, fast_mode=True)
    out = call(x, rois)
    value = out[0] if isinstance(out, tuple) else out
    g = torch.rand_like(value)
    torch.testing.assert_close(backward(g, rois, out, x.shape), torch.autograd.grad(value, x, g)[0])


@pytest.mark.parametrize("name", CALLS)
def test_in_parts_it_is_the_same(x, rois, name, monkeypatch):
    call, _ = CALLS[name]
    x = torch.tensor(x).requires_grad_()
    whole = call(x, torch.tensor(rois))
    monkeypatch.setattr(regions, "TAPS_AT_ONCE", 200)
    parts = call(x, torch.tensor(rois))
    whole, parts = (out[0] if isinstance(out, tuple) else out for out in (whole, parts))
    g = torch.rand_like(whole)
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(torch.autograd.grad(parts, x, g), torch.autograd.grad(whole, x, g))


@pytest.mark.parametrize("name", CALLS)
def test_no_regions_at_all(x, name):
    x = torch.tensor(x).requires_grad_()
    out = CALLS[name][0](x, torch.zeros(0, 5, dtype=torch.float64))
    out = out[0] if isinstance(out, tuple) else out
    assert out.shape == (0, 2 if name.startswith("ps") else 12, 3, 2)
    out.sum().backward()
    assert x.grad.shape == x.shape and not x.grad.any()


def test_half_precision_is_computed_in_single(x, rois):
    x, rois = torch.tensor(x).half(), torch.tensor(rois).half()
    out = regions.roi_align(x, rois, 0.5, 2, 2, 2, True)
    assert out.dtype is torch.float16
    torch.testing.assert_close(out, regions.roi_align(x.float(), rois.float(), 0.5, 2, 2, 2, True).half())


def test_refusals(x, rois):
    x, rois = torch.tensor(x), torch.tensor(rois)
    with pytest.raises(RuntimeError, match=r"rois must have shape as Tensor\[K, 5\], got \[16, 4\]"):
        regions.roi_align(x, rois[:, 1:], 1.0, 2, 2, 2, False)
    with pytest.raises(RuntimeError, match="float64 does not equal torch.float32"):
        regions.roi_pool(x, rois.float(), 1.0, 2, 2)
    with pytest.raises(RuntimeError, match="12 channels for 5 x 1 bins"):
        regions.ps_roi_pool(x, rois, 1.0, 5, 1)
    rois[3, 0] = 2
    with pytest.raises(IndexError, match="names image 2.0, and input has 2"):
        regions.roi_align(x, rois, 1.0, 2, 2, 2, False)
