"""Boxes: which to keep of many that overlap (`nms`), and how much turned ones overlap (`box_iou_rotated`)."""
import numpy as np

from ..base import dtypes
from ..base.errors import need
from ..base.op import Op
from ..base.spec import spec

BOXES_PER_BLOCK = 128         # boxes that are compared with all that are left, at a time
PAIRS_AT_ONCE = 1 << 15       # turned boxes, with 24 points each


def nms(dets, scores, iou_threshold):
    """The numbers of the boxes (x1, y1, x2, y2) to keep, best scores first: none overlaps a better one that is kept.

    Two boxes overlap if the area they share is more than `iou_threshold` of the area they cover together.
    """
    need(dets.dim() == 2, f"boxes should be a 2d tensor, got {dets.dim()}D")
    need(dets.shape[1] == 4, f"boxes should have 4 elements in dimension 1, got {dets.shape[1]}")
    need(scores.dim() == 1, f"scores should be a 1d tensor, got {scores.dim()}D")
    need(dets.shape[0] == scores.shape[0], "boxes and scores should have same number of elements in dimension 0, got "
                                           f"{dets.shape[0]} and {scores.shape[0]}")
    need(dets.dtype in (dtypes.float32, dtypes.float64), f"\"nms_kernel\" not implemented for '{dets.dtype.cname}'",
         NotImplementedError)
    need(dets.dtype is scores.dtype, f"dets should have the same type as scores, got {dets.dtype} and {scores.dtype}")
    return _kept(dets.detach(), scores.detach().argsort(stable=True, descending=True), float(iou_threshold))


class _kept(Op):
    """Those of the numbers `order` of `boxes` that do not overlap one that was kept before."""

    forms = ""
    exact = eager = True

    def meta(boxes, order, threshold): return None

    def ref(xp, boxes, order, threshold):
        left, kept = xp.ascontiguousarray(boxes[order].T), []        # the boxes in question, best first: x1 y1 x2 y2
        areas = (left[2] - left[0]) * (left[3] - left[1])
        while len(order):
            # a block is settled within itself first; what it keeps then meets all the others at once
            overlaps = overlapping(xp, left[:, :BOXES_PER_BLOCK], areas[:BOXES_PER_BLOCK], left[:, :BOXES_PER_BLOCK],
                                   areas[:BOXES_PER_BLOCK], threshold)
            alive = xp.ones(len(overlaps), bool)
            for i in xp.flatnonzero(xp.triu(overlaps, 1).any(1)):    # those that could strike another out
                if alive[i]:
                    alive[i + 1:] &= ~overlaps[i, i + 1:]
            kept.append(order[:BOXES_PER_BLOCK][alive])
            best, rest = left[:, :BOXES_PER_BLOCK][:, alive], left[:, BOXES_PER_BLOCK:]
            struck = overlapping(xp, best, areas[:BOXES_PER_BLOCK][alive], rest, areas[BOXES_PER_BLOCK:],
                                 threshold).any(0)
            left, areas, order = rest[:, ~struck], areas[BOXES_PER_BLOCK:][~struck], order[BOXES_PER_BLOCK:][~struck]
        return xp.concatenate(kept) if kept else order


def overlapping(xp, these, areas, others, other_areas, threshold):
    """Whether each of `these` boxes overlaps each of the `others` by more than `threshold`."""
    x1, y1, x2, y2 = these[:, :, None]
    with np.errstate(invalid="ignore", divide="ignore"):             # boxes without area: NaN is no overlap
        wide = xp.minimum(x2, others[2])
        wide -= xp.maximum(x1, others[0])
        high = xp.minimum(y2, others[3])
        high -= xp.maximum(y1, others[1])
        shared = xp.maximum(wide, 0, out=wide)
        shared *= xp.maximum(high, 0, out=high)
        together = areas[:, None] + other_areas
        together -= shared
        shared /= together
        return above(xp, shared, threshold)


def above(xp, values, threshold):
    """Whether `values` exceed a `threshold` in double precision, without widening them."""
    bound = values.dtype.type(threshold)
    return values >= bound if float(bound) > threshold else values > bound


def box_iou_rotated(boxes1, boxes2):
    """The shared part of the area of each two boxes (centre x, centre y, width, height, degrees), [N, M]."""
    for name, boxes in (("boxes1", boxes1), ("boxes2", boxes2)):
        need(boxes.dim() == 2 and boxes.shape[1] == 5, f"{name} should have shape (N, 5), got {list(boxes.shape)}")
        need(boxes.dtype in (dtypes.float32, dtypes.float64), f"\"box_iou_rotated_cpu\" not implemented for "
                                                              f"'{boxes.dtype.cname}'", NotImplementedError)
    need(boxes1.dtype is boxes2.dtype, "boxes1 and boxes2 must have the same dtype, got "
                                       f"{boxes1.dtype} and {boxes2.dtype}")
    return _turned_iou(boxes1.detach(), boxes2.detach())


class _turned_iou(Op):
    """How much turned boxes overlap, pair by pair."""

    forms = ""

    def meta(boxes1, boxes2):
        return spec(dtypes.float32, (boxes1.shape[0], boxes2.shape[0]), None, boxes1.device)

    def ref(xp, boxes1, boxes2):
        one, other = boxes1.astype(xp.float64), boxes2.astype(xp.float64)
        out = xp.zeros((len(one), len(other)), xp.float32)
        step = max(1, PAIRS_AT_ONCE // max(len(other), 1))
        for begin in range(0, len(one) if len(other) else 0, step):
            out[begin:begin + step] = pairwise(xp, one[begin:begin + step, None], other[None])
        return out


def pairwise(xp, one, other):
    """The shared part of the area of boxes that broadcast, [..., 5] each."""
    one, other = xp.broadcast_arrays(one, other)
    middle = (one[..., :2] + other[..., :2]) / 2
    a, b = corners(xp, one, middle), corners(xp, other, middle)
    areas = one[..., 2] * one[..., 3], other[..., 2] * other[..., 3]
    shared = common_area(xp, a, b)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = xp.clip(shared / (areas[0] + areas[1] - shared), 0, 1)
    return xp.where((areas[0] < 1e-14) | (areas[1] < 1e-14), 0, share)


def corners(xp, boxes, middle):
    """The corners [..., 4, 2] of turned boxes, seen from `middle`."""
    angle = xp.deg2rad(boxes[..., 4])
    cos, sin = xp.cos(angle)[..., None], xp.sin(angle)[..., None]
    x = boxes[..., 2:3] / 2 * xp.array([-1, 1, 1, -1])
    y = boxes[..., 3:4] / 2 * xp.array([-1, -1, 1, 1])
    turned = xp.stack([x * cos + y * sin, y * cos - x * sin], -1)          # y points down: degrees go against the clock
    return turned + (boxes[..., :2] - middle)[..., None, :]


def cross(a, b):
    """The area of the parallelogram of two vectors, with a sign."""
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def common_area(xp, a, b):
    """The area that convex four-cornered figures [..., 4, 2] share.

    Its corners are those of each that lie in the other and the points where sides cross. In order around their middle
    they bound the area; points that come twice enclose nothing.
    """
    side_a, side_b = xp.roll(a, -1, -2) - a, xp.roll(b, -1, -2) - b
    between = b[..., None, :, :] - a[..., :, None, :]
    slope = cross(side_a[..., :, None, :], side_b[..., None, :, :])
    with np.errstate(invalid="ignore", divide="ignore"):
        along_a = cross(between, side_b[..., None, :, :]) / slope
        along_b = cross(between, side_a[..., :, None, :]) / slope
        crossing = a[..., :, None, :] + along_a[..., None] * side_a[..., :, None, :]
    near = 1e-5
    crosses = xp.abs(slope) > 1e-14
    for along in (along_a, along_b):
        crosses = crosses & (along > -near) & (along < 1 + near)
    flat = (*a.shape[:-2], 16)
    points = xp.concatenate([crossing.reshape(*flat, 2), a, b], -2)
    counts = xp.concatenate([crosses.reshape(flat), inside(xp, a, b, near), inside(xp, b, a, near)], -1)
    first = xp.take_along_axis(points, counts.argmax(-1)[..., None, None], -2)
    points = xp.where(counts[..., None], points, first)                    # what does not count repeats one that does
    number = xp.maximum(counts.sum(-1), 1)[..., None]
    points = points - (xp.where(counts[..., None], points, 0).sum(-2) / number)[..., None, :]
    order = xp.arctan2(points[..., 1], points[..., 0]).argsort(-1)
    points = xp.take_along_axis(points, order[..., None], -2)
    area = xp.abs(cross(points, xp.roll(points, -1, -2)).sum(-1)) / 2
    return xp.where(counts.sum(-1) > 2, area, 0)


def inside(xp, points, figure, near):
    """Which of the points [..., 4, 2] lie in the rectangles [..., 4, 2], or within `near` of their sides."""
    to = points - figure[..., :1, :]
    counts = True
    for corner in (1, 3):
        side = figure[..., corner, :] - figure[..., 0, :]
        reach = (to * side[..., None, :]).sum(-1)
        counts = counts & (reach > -near) & (reach < (side * side).sum(-1)[..., None] + near)
    return counts
