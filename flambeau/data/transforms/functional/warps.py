"""Functions that read an image where a map of the plane says: affine maps, rotation, perspective, elastic.

What torchvision takes one of (an angle, a box), a batch may be given one of for each sample; see dispatch.py.
"""
import numbers

import numpy as np

from ....base import dtypes
from ....tensor.functions import rot90
from ....tensor.tensor import Tensor
from ..colour_kernels import computed_in
from ..geometry_kernels import sampled, warped
from ..modes import InterpolationMode, interpolation_mode
from .dispatch import is_number, numbers_of, of_images, samples_of
from .geometry import in_batch, on_device


def affine_arguments(angle, translate, scale, shear, center, n):
    """What affine maps are made of, for `n` samples: angles [n], translations [n, 2], scales [n], shears [n, 2], and
    the centre."""
    if isinstance(angle, (str, list, tuple)) or angle is None:
        raise TypeError("Argument angle should be int or float")
    if not isinstance(translate, (list, tuple, np.ndarray, Tensor)):
        raise TypeError("Argument translate should be a sequence")
    if len(translate) != 2 and not hasattr(translate, "shape"):
        raise ValueError("Argument translate should be a sequence of length 2")
    scales = numbers_of(scale, n, "scale")
    if (scales <= 0.0).any():
        raise ValueError("Argument scale should be positive")
    if not isinstance(shear, (numbers.Number, list, tuple, np.ndarray, Tensor)):
        raise TypeError("Shear should be either a single value or a sequence of two values")
    if isinstance(shear, numbers.Number):
        shear = [shear, 0.0]
    elif len(shear) == 1 and not hasattr(shear, "shape"):
        shear = [shear[0], shear[0]]
    if not hasattr(shear, "shape") and len(shear) != 2:
        raise ValueError(f"Shear should be a sequence containing two values. Got {shear}")
    if center is not None:
        if not isinstance(center, (list, tuple)):
            raise TypeError("Argument center should be a sequence")
        center = [float(c) for c in center]
    moved, shears = pairs_of(translate, n, "translate"), pairs_of(shear, n, "shear")
    return numbers_of(angle, n, "angle"), moved, scales, shears, center


def pairs_of(value, n, name):
    """`value`, two numbers or two for each of `n` samples, as an array [n, 2]."""
    given = np.asarray(value.detach().cpu().numpy() if isinstance(value, Tensor) else value, np.float64)
    if given.shape not in ((2,), (n, 2)):
        raise ValueError(f"{name} should be two numbers, or two for each of the {n} samples, but its shape is "
                         f"{list(given.shape)}")
    return np.broadcast_to(given, (n, 2))


def inverse_affine_matrix(center, angle, translate, scale, shear):
    """[n, 6]: where places of the result come from; rotation and shear in degrees around `center`, then translation."""
    turn, (lean_x, lean_y) = np.radians(angle), np.radians(shear).T
    (cx, cy), (tx, ty) = center, translate.T
    a = np.cos(turn - lean_y) / np.cos(lean_y)
    b = -(a * np.tan(lean_x) + np.sin(turn))
    c = np.sin(turn - lean_y) / np.cos(lean_y)
    d = np.cos(turn) - c * np.tan(lean_x)
    xx, xy, yx, yy = d / scale, -b / scale, -c / scale, a / scale
    return np.stack([xx, xy, cx - xx * (cx + tx) - xy * (cy + ty), yx, yy, cy - yx * (cx + tx) - yy * (cy + ty)], 1)


def need_warp(image, mode, fill):
    """Refuse what tensors cannot be warped by."""
    if isinstance(fill, (tuple, list)) and len(fill) > 1 and len(fill) != image.shape[-3]:
        raise ValueError("The number of elements in 'fill' cannot broadcast to match the number of channels of the "
                         f"image ({len(fill)} != {image.shape[-3]})")
    if fill is not None and not isinstance(fill, (int, float, tuple, list)):
        raise ValueError("Argument fill should be either int, float, tuple or list")
    if mode not in (InterpolationMode.NEAREST, InterpolationMode.BILINEAR):
        raise ValueError(f"Interpolation mode '{mode.value}' is unsupported with Tensor input")


def flat_pixels(batch):
    """[N, C, 1, H * W]: one dimension that any pixel can be found in."""
    return batch.reshape(*batch.shape[:2], 1, -1)


def fill_tensor(fill, image, wide):
    """`fill` as a tensor [1, C or 1, 1, 1], None for none."""
    if fill is None:
        return None
    given = np.asarray(list(fill) if isinstance(fill, (tuple, list)) else [float(fill)], wide)
    return on_device(given.reshape(1, -1, 1, 1), image)


def warp(image, tables, mode, fill, out=None):
    """`image` through the maps `tables` [n or 1, 6 or 8], to the size `out`."""
    need_warp(image, mode, fill)
    out = tuple(image.shape[-2:]) if out is None else out
    shape = (*image.shape[:-2], *out)
    if not image.numel():
        return image.reshape(shape)
    batch, parts = in_batch(image)
    work = computed_in(image.dtype)
    # 16-bit floats are widened and rounded at the end
    wide = np.float64 if work is dtypes.float64 else np.float32
    tables = np.repeat(tables, parts if len(tables) > 1 else batch.shape[0], 0)
    if work.itemsize == 2:
        return warp(image.to(dtypes.float32), tables[::parts], mode, fill, out).to(image.dtype)
    made = warped(flat_pixels(batch), on_device(tables.astype(wide)[:, :, None, None], image),
                  fill_tensor(fill, image, wide), tuple(image.shape[-2:]), out, mode is InterpolationMode.NEAREST)
    return made.reshape(shape)


def affine_tables(matrix, size, dtype):
    """Matrices [n, 6] on pixels around the centre, as maps to places from -1 to 1, in the precision of `dtype`."""
    wide = np.float64 if dtype is dtypes.float64 else np.float32
    halves = np.repeat(np.array([0.5 * size[1], 0.5 * size[0]], wide), 3)
    return matrix.astype(wide) / halves


def shifted_centre(center, size):
    """`center` as it is seen from the middle of an image of `size`."""
    return [0.0, 0.0] if center is None else [center[0] - size[1] * 0.5, center[1] - size[0] * 0.5]


@of_images
def affine(inpt, angle, translate, scale, shear, interpolation=InterpolationMode.NEAREST, fill=None, center=None):
    """`inpt` turned by `angle` (degrees, clockwise), scaled, sheared (degrees along x and y) and moved (pixels)."""
    mode = interpolation_mode(interpolation)
    angles, moved, scales, shears, center = affine_arguments(angle, translate, scale, shear, center, samples_of(inpt))
    size = inpt.shape[-2:]
    matrix = inverse_affine_matrix(shifted_centre(center, size), angles, moved, scales, shears)
    return warp(inpt, affine_tables(matrix, size, inpt.dtype), mode, fill)


def expanded_size(matrix, size):
    """(height, width) of what holds the whole of an image of `size` after the inverse of `matrix` [6]."""
    half = np.array([size[1], size[0]], np.float32) * np.float32(0.5)
    corners = np.array([[-1, -1], [-1, 1], [1, 1], [1, -1]], np.float32) * half
    theta = matrix.astype(np.float32).reshape(2, 3)
    moved = corners @ theta[:, :2].T + theta[:, 2] + half
    # a corner that is off by rounding alone needs no pixel of its own
    low, high = (np.trunc(np.float32(1 / 1e-4) * bound) * np.float32(1e-4) for bound in (moved.min(0), moved.max(0)))
    width, height = (np.ceil(high) - np.floor(low)).astype(int).tolist()
    return height, width


@of_images
def rotate(inpt, angle, interpolation=InterpolationMode.NEAREST, expand=False, center=None, fill=None):
    """`inpt` turned by `angle` degrees, counter-clockwise; with `expand`, in an image that holds all of it."""
    mode = interpolation_mode(interpolation)
    size = tuple(inpt.shape[-2:])
    angles = numbers_of(angle, 1 if is_number(angle) else samples_of(inpt), "angle") % 360
    if len(angles) == 1:
        quarters = angles[0] / 90
        if center is None and quarters in (0, 2):
            return rot90(inpt, 2, (-2, -1)) if quarters else inpt.clone()
        if center is None and quarters in (1, 3) and (expand or size[0] == size[1]):
            return rot90(inpt, int(quarters), (-2, -1))
    nothing = np.zeros((len(angles), 2))
    matrix = inverse_affine_matrix(shifted_centre(center, size), -angles, nothing, np.ones(len(angles)), nothing)
    out = size
    if expand and len(matrix):
        sizes = {expanded_size(one, size) for one in matrix}
        if len(sizes) > 1:
            raise ValueError(f"expand=True: the samples of a batch keep one shape, and these angles need {len(sizes)} "
                             "different ones. Rotate single images, or without expand.")
        out = sizes.pop()
    return warp(inpt, affine_tables(matrix, size, inpt.dtype), mode, fill, out)


def perspective_coefficients(startpoints, endpoints):
    """[n, 8]: the maps that bring `endpoints` [n, 4, 2] to `startpoints`, corner by corner."""
    start, end = (np.asarray(points, np.float64) for points in (startpoints, endpoints))
    start, end = (points.reshape(-1, *points.shape[-2:]) for points in (start, end))
    if start.shape[1:] != (4, 2) or end.shape[1:] != (4, 2):
        raise ValueError(f"Please provide exactly four corners, got {start.shape[1]} startpoints and {end.shape[1]} "
                         "endpoints.")
    start = np.broadcast_to(start, end.shape)
    zero, one = np.zeros(end.shape[:2]), np.ones(end.shape[:2])
    (x, y), (u, v) = (end[..., 0], end[..., 1]), (start[..., 0], start[..., 1])
    rows = np.stack([np.stack([x, y, one, zero, zero, zero, -u * x, -u * y], -1),
                     np.stack([zero, zero, zero, x, y, one, -v * x, -v * y], -1)], 2)
    found = np.linalg.solve(rows.reshape(-1, 8, 8), start.reshape(-1, 8, 1))[..., 0]
    return found.astype(np.float32).astype(np.float64)


def perspective_arguments(startpoints, endpoints, coefficients, n):
    """The coefficients [n or 1, 8] that callers give, or corners that say them."""
    if coefficients is None:
        if startpoints is None or endpoints is None:
            raise ValueError("Either the startpoints/endpoints or the coefficients must have non `None` values.")
        return perspective_coefficients(startpoints, endpoints)
    if startpoints is not None and endpoints is not None:
        raise ValueError("The startpoints/endpoints and the coefficients shouldn't be defined concurrently.")
    found = np.asarray(coefficients, np.float64)
    if found.shape not in ((8,), (1, 8), (n, 8)):
        raise ValueError("Argument coefficients should have 8 float values")
    return found.reshape(-1, 8)


@of_images
def perspective(inpt, startpoints, endpoints, interpolation=InterpolationMode.BILINEAR, fill=None, coefficients=None):
    """`inpt` seen so that its `startpoints` (four corners) come to be at the `endpoints`."""
    found = perspective_arguments(startpoints, endpoints, coefficients, samples_of(inpt))
    mode = interpolation_mode(interpolation)
    height, width = inpt.shape[-2:]
    wide = np.float64 if inpt.dtype is dtypes.float64 else np.float32
    found = found.astype(wide)
    halves = np.repeat(np.array([0.5 * width, 0.5 * height], wide), 3)
    return warp(inpt, np.concatenate([found[:, :6] / halves, found[:, 6:]], 1), mode, fill)


@of_images
def elastic(inpt, displacement, interpolation=InterpolationMode.BILINEAR, fill=None):
    """`inpt` with every pixel moved by `displacement` [1 or N, H, W, 2], in halves of its width and height."""
    if not isinstance(displacement, Tensor):
        raise TypeError("Argument displacement should be a Tensor")
    mode = interpolation_mode(interpolation)
    need_warp(inpt, mode, fill)
    height, width = inpt.shape[-2:]
    n = samples_of(inpt)
    if tuple(displacement.shape) not in ((1, height, width, 2), (n, height, width, 2)):
        raise ValueError(f"Argument displacement shape should be {(1, height, width, 2)}, but given "
                         f"{displacement.shape}")
    if not inpt.numel():
        return inpt
    if inpt.dtype.is_floating_point and inpt.dtype.itemsize == 2:
        return elastic.of_tensor(inpt.to(dtypes.float32), displacement, mode, fill).to(inpt.dtype)
    batch, parts = in_batch(inpt)
    work = computed_in(inpt.dtype)
    wide = np.float64 if work is dtypes.float64 else np.float32
    moved = displacement.to(work)
    if parts > 1 and len(moved) > 1:
        moved = moved.repeat_interleave(parts, 0)
    x = moved.select(-1, 0) + on_device(centres(width, wide)[None, None, :], inpt)
    y = moved.select(-1, 1) + on_device(centres(height, wide)[None, :, None], inpt)
    made = sampled(flat_pixels(batch), x.unsqueeze(1), y.unsqueeze(1), fill_tensor(fill, inpt, wide), (height, width),
                   mode is InterpolationMode.NEAREST)
    return made.reshape(inpt.shape)


elastic_transform = elastic


def centres(size, dtype):
    """The centres of `size` pixels, from -1 to 1."""
    return np.linspace((1 - size) / size, (size - 1) / size, size).astype(dtype)
