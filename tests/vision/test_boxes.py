"""nms against the greedy rule, box by box; the overlap of turned boxes against polygons that are clipped."""
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

import flambeau as torch
from flambeau.vision.boxes import BOXES_PER_BLOCK, box_iou_rotated, nms
from tests.thorough import sample


def overlap(a, b):
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = np.maximum(wide, 0) * np.maximum(high, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared))


def greedy(boxes, scores, threshold):
    kept = []
    for i in np.argsort(-scores, kind="stable"):
        if not any(overlap(boxes[k], boxes[i]) > threshold for k in kept):
            kept.append(i)
    return kept


@pytest.mark.parametrize("threshold, count, dtype", sample(itertools.product(
    [0.0, 0.3, 0.7, 1.0, -0.5], [0, 1, 7, BOXES_PER_BLOCK, BOXES_PER_BLOCK + 1, 3 * BOXES_PER_BLOCK + 5],
    ["float32", "float64"]), 7))
def test_nms(rng, dtype, count, threshold):
    corner, size = rng.uniform(0, 60, (count, 2)), rng.uniform(0, 15, (count, 2))
    boxes = np.concatenate([corner, corner + size], 1).astype(dtype)
    scores = rng.integers(0, 40, count).astype(dtype)                      # many are equal: the order is kept
    found = nms(torch.tensor(boxes), torch.tensor(scores), threshold)
    assert found.dtype is torch.int64 and found.tolist() == greedy(boxes, scores, threshold)


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 4), max_size=12), st.sampled_from([0.0, 0.25, 1 / 3, 0.5]))
def test_nms_of_small_boxes(corners, threshold):
    """Whole numbers make ties: equal boxes, boxes without area, overlaps that are the threshold itself."""
    boxes = np.array(corners, np.float32).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    scores = np.arange(len(boxes), dtype=np.float32) % 3
    assert nms(torch.tensor(boxes), torch.tensor(scores), threshold).tolist() == greedy(boxes, scores, threshold)


def test_nms_refuses():
    boxes = torch.rand(3, 4)
    with pytest.raises(RuntimeError, match="boxes should be a 2d tensor, got 1D"):
        nms(boxes[0], torch.rand(4), 0.5)
    with pytest.raises(RuntimeError, match="4 elements in dimension 1, got 3"):
        nms(boxes[:, :3], torch.rand(3), 0.5)
    with pytest.raises(RuntimeError, match="got 3 and 2"):
        nms(boxes, torch.rand(2), 0.5)
    with pytest.raises(NotImplementedError, match="not implemented for 'Half'"):
        nms(boxes.half(), torch.rand(3).half(), 0.5)


# --- turned boxes ---


def polygon(box):
    x, y, wide, high, degrees = box
    angle = -math.radians(degrees)
    along, across = complex(math.cos(angle), math.sin(angle)), complex(-math.sin(angle), math.cos(angle))
    return [complex(x, y) + i * wide / 2 * along + j * high / 2 * across for i, j in ((-1, -1), (1, -1), (1, 1), (-1,
                                                                                                                  1))]


def cross(a, b):
    return (a.conjugate() * b).imag


def clipped_area(one, other):
    """The area of what is left of a polygon when it is cut along each side of a convex one."""
    for start, end in zip(other, [*other[1:], other[0]]):
        left = []
        for a, b in zip(one, [*one[1:], *one[:1]]):
            side_a, side_b = cross(end - start, a - start), cross(end - start, b - start)
            if side_a >= 0:
                left.append(a)
            if side_a * side_b < 0:
                left.append(a + (b - a) * side_a / (side_a - side_b))
        one = left
    return abs(sum(cross(a, b) for a, b in zip(one, [*one[1:], *one[:1]]))) / 2


def test_turned_boxes(rng):
    boxes = np.concatenate([rng.uniform(0, 10, (30, 2)), rng.uniform(1, 8, (30, 2)), rng.uniform(-200, 200, (30, 1))],
                           1)
    found = box_iou_rotated(torch.tensor(boxes), torch.tensor(boxes[:20]))
    want = np.zeros((30, 20))
    for i, a in enumerate(boxes):
        for j, b in enumerate(boxes[:20]):
            shared = clipped_area(polygon(a), polygon(b))
            want[i, j] = shared / (a[2] * a[3] + b[2] * b[3] - shared)
    assert found.dtype is torch.float32
    np.testing.assert_allclose(found.numpy(), want, atol=1e-5)
    assert (want > 0.1).sum() > 50


def test_turned_boxes_that_fit_or_touch():
    square = [0.0, 0, 2, 2, 0]
    others = [square, [0, 0, 2, 2, 90], [0, 0, 1, 1, 30], [2, 0, 2, 2, 0], [0, 0, 2, 2, 45], [5, 5, 1, 1, 0], [0, 0, 0,
                                                                                                               3, 0]]
    octagon = 8 * (math.sqrt(2) - 1)                                       # of a square and the same one turned by 45°
    want = [1, 1, 1 / 4, 0, octagon / (8 - octagon), 0, 0]
    found = box_iou_rotated(torch.tensor([square]), torch.tensor(others))[0]
    np.testing.assert_allclose(found.numpy(), want, atol=1e-5)
