"""`get_params` of torchvision's transforms: one draw, for programs that do the same to an image and to its mask.

They draw from the default generator, with PyTorch's numbers: `i, j, h, w = RandomCrop.get_params(image, (32, 32))`.
Transforms themselves draw from the streams of their samples, see base.py.
"""
import math
from typing import Any

from ...base.errors import need
from ...tensor.functions import cat, empty, rand, randint, randperm, tensor
from . import functional as F
from .auto import AutoAugment
from .colour import ColorJitter
from .geometry import (
    ElasticTransform,
    RandomAffine,
    RandomCrop,
    RandomPerspective,
    RandomResizedCrop,
    RandomRotation,
)
from .misc import GaussianBlur, RandomErasing

MAXIMUM_TRIES = 10            # for a rectangle that fits, before another one is taken


def uniform(low, high):
    return empty(1).uniform_(float(low), float(high)).item()


def integer(low, high):
    """At least `low`, and below `high`."""
    return int(randint(low, high, (1,)).item())


def random_crop(img, output_size):
    """(top, left, height, width) of a crop of `output_size`."""
    _, height, width = F.get_dimensions(img)
    wanted_height, wanted_width = output_size
    need(height >= wanted_height and width >= wanted_width,
         f"Required crop size {(wanted_height, wanted_width)} is larger than input image size {(height, width)}",
         ValueError)
    if (height, width) == (wanted_height, wanted_width):
        return 0, 0, height, width
    return integer(0, height - wanted_height + 1), integer(0, width - wanted_width + 1), wanted_height, wanted_width


def drawn_sides(area, scale, ratio):
    """Two sides, the first the longer for a large ratio: of a part of `area`, `scale` being the range of that part."""
    part = area * uniform(*scale)
    logs = tensor(ratio).log()
    aspect = empty(1).uniform_(logs[0].item(), logs[1].item()).exp().item()
    return int(round(math.sqrt(part * aspect))), int(round(math.sqrt(part / aspect)))


def random_resized_crop(img, scale, ratio):
    """(top, left, height, width) of a crop with such a part of the area, and such a ratio of width to height."""
    _, height, width = F.get_dimensions(img)
    for _ in range(MAXIMUM_TRIES):
        w, h = drawn_sides(height * width, scale, ratio)
        if 0 < w <= width and 0 < h <= height:
            return integer(0, height - h + 1), integer(0, width - w + 1), h, w
    h, w, image_ratio = height, width, width / height         # none fits: the largest in the middle that has a ratio
    if image_ratio < min(ratio):
        h = int(round(w / min(ratio)))
    elif image_ratio > max(ratio):
        w = int(round(h * max(ratio)))
    return (height - h) // 2, (width - w) // 2, h, w


def color_jitter(brightness, contrast, saturation, hue):
    """(the order of the four, the factor of each or None)."""
    order = randperm(4)
    return order, *[None if bounds is None else uniform(*bounds) for bounds in (brightness, contrast, saturation, hue)]


def random_rotation(degrees):
    """An angle."""
    return uniform(*degrees)


def random_affine(degrees, translate, scale_ranges, shears, img_size):
    """(angle, (x, y) of a translation in pixels, scale, (x, y) of shears in degrees); `img_size` is (width, height)."""
    angle = uniform(*degrees)
    moved = (0, 0)
    if translate is not None:
        most = [float(part * size) for part, size in zip(translate, img_size)]
        moved = tuple([int(round(uniform(-far, far))) for far in most])
    scale = 1.0 if scale_ranges is None else uniform(*scale_ranges)
    lean = [0.0, 0.0]
    if shears is not None:
        lean = [uniform(*shears[:2]), uniform(*shears[2:]) if len(shears) == 4 else 0.0]
    return angle, moved, scale, tuple(lean)


def random_perspective(width, height, distortion_scale):
    """(the four corners of an image, where they come to be)."""
    x, y = (int(distortion_scale * (size // 2)) for size in (width, height))
    left, right, top, bottom = (0, x + 1), (width - x - 1, width), (0, y + 1), (height - y - 1, height)
    ends = [[integer(*across), integer(*down)] for across, down in ((left, top), (right, top), (right, bottom),
                                                                    (left, bottom))]
    return [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], ends


def random_erasing(img, scale, ratio, value=None):
    """(top, left, height, width, what to put there) of a rectangle; the whole image and itself if none fits."""
    channels, height, width = img.shape[-3:]
    for _ in range(MAXIMUM_TRIES):
        h, w = drawn_sides(height * width, scale, ratio)
        if h < height and w < width:
            filling = empty([channels, h, w]).normal_() if value is None else tensor(value)[:, None, None]
            return integer(0, height - h + 1), integer(0, width - w + 1), h, w, filling
    return 0, 0, height, width, img


def gaussian_blur(sigma_min, sigma_max):
    """A standard deviation."""
    return uniform(sigma_min, sigma_max)


def elastic_transform(alpha, sigma, size):
    """Displacements [1, H, W, 2], noise that is blurred by `sigma` and as strong as `alpha`."""
    moved = []
    for strength, deviation, length in zip(alpha, sigma, reversed(size)):      # to the right, then down
        noise = rand([1, 1, *size]) * 2 - 1
        if deviation > 0:
            kernel = int(8 * deviation + 1) | 1               # odd
            noise = F.gaussian_blur(noise, [kernel, kernel], sigma)
        moved.append(noise * strength / length)
    return cat(moved, 1).permute(0, 2, 3, 1)


def auto_augment(transform_num):
    """(the number of a policy, two chances, two signs)."""
    return int(randint(transform_num, (1,)).item()), rand(2), randint(2, (2,))


SINGLE_DRAWS: list[tuple[Any, Any]] = [
    (AutoAugment, auto_augment), (ColorJitter, color_jitter), (ElasticTransform, elastic_transform),
    (GaussianBlur, gaussian_blur), (RandomAffine, random_affine), (RandomCrop, random_crop),
    (RandomErasing, random_erasing), (RandomPerspective, random_perspective),
    (RandomResizedCrop, random_resized_crop), (RandomRotation, random_rotation)]
for _transform, _draw in SINGLE_DRAWS:
    _transform.get_params = staticmethod(_draw)
