"""Transforms that move pixels: flips, crops, resizing, padding, rotation, affine maps, perspective, elastic."""
import warnings
from collections.abc import Sequence

import numpy as np

from ...tensor.create import from_array
from ...tensor.functions import cat
from ...tensor.tensor import Tensor
from . import functional as F
from .arguments import (
    angle_range,
    fill_for,
    fill_table,
    need_length,
    need_padding,
    need_padding_mode,
    number_pair,
    query_size,
    size_pair,
)
from .base import RandomApplyTransform, Transform, each
from .functional.geometry import flip_some, padding_of
from .functional.warps import perspective_coefficients
from .modes import as_shown

TRIES = 10                    # how often a box is drawn anew that does not fit into the image


def rounded(x):
    """Numbers rounded to int64, halves to even."""
    return np.rint(x).astype(np.int64)


class RandomHorizontalFlip(RandomApplyTransform):
    """Left and right exchanged, with probability `p`."""

    def transform(self, inpt, params): return F.horizontal_flip(inpt)

    def transform_some(self, inpt, params, applied):
        return flip_some(inpt, applied, -1) if isinstance(inpt, Tensor) else F.horizontal_flip(inpt)


class RandomVerticalFlip(RandomApplyTransform):
    """Top and bottom exchanged, with probability `p`."""

    def transform(self, inpt, params): return F.vertical_flip(inpt)

    def transform_some(self, inpt, params, applied):
        return flip_some(inpt, applied, -2) if isinstance(inpt, Tensor) else F.vertical_flip(inpt)


class Resize(Transform):
    """The image in another `size`: (height, width), or a number for its shorter edge, the longer up to `max_size`."""

    def __init__(self, size, interpolation="bilinear", max_size=None, antialias=True):
        super().__init__()
        if isinstance(size, int):
            size = [size]
        elif isinstance(size, Sequence) and len(size) in (1, 2):
            size = list(size)
        elif size is not None:
            raise ValueError("size can be an integer, a sequence of one or two integers, or None, but got "
                             f"{size} instead.")
        elif not isinstance(max_size, int):
            raise ValueError(f"max_size must be an integer when size is None, but got {max_size} instead.")
        self.size = size
        self.interpolation = as_shown(interpolation)
        self.max_size = max_size
        self.antialias = antialias

    def transform(self, inpt, params):
        return F.resize(inpt, self.size, self.interpolation, self.max_size, self.antialias)


class CenterCrop(Transform):
    """The centre of the image, with zeros around it where it is smaller than `size`."""

    def __init__(self, size):
        super().__init__()
        self.size = size_pair(size)

    def transform(self, inpt, params): return F.center_crop(inpt, output_size=self.size)


class FiveCrop(Transform):
    """A tuple of the four corners and the centre."""

    def __init__(self, size):
        super().__init__()
        self.size = size_pair(size)

    def transform(self, inpt, params): return F.five_crop(inpt, self.size)


class TenCrop(Transform):
    """A tuple of the four corners and the centre, and of those of the image mirrored."""

    def __init__(self, size, vertical_flip=False):
        super().__init__()
        self.size = size_pair(size)
        self.vertical_flip = vertical_flip

    def transform(self, inpt, params): return F.ten_crop(inpt, self.size, vertical_flip=self.vertical_flip)


class Pad(Transform):
    """The image with a border: of `fill`, of its edge repeated, or of itself mirrored, with the edge or without."""

    def __init__(self, padding, fill=0, padding_mode="constant"):
        super().__init__()
        need_padding(padding)
        need_padding_mode(padding_mode)
        self.padding = padding if isinstance(padding, int) else list(padding)
        self.fill = fill
        self._fill = fill_table(fill)
        self.padding_mode = padding_mode

    def transform(self, inpt, params): return F.pad(inpt, self.padding, fill_for(self._fill, inpt), self.padding_mode)


class RandomZoomOut(RandomApplyTransform):
    """The image somewhere on a larger one of `fill`, with probability `p`; the sides grow by as much as is drawn."""

    def __init__(self, fill=0, side_range=(1.0, 4.0), p=0.5):
        super().__init__(p=p)
        self.fill = fill
        self._fill = fill_table(fill)
        need_length(side_range, "side_range", (2,))
        self.side_range = side_range
        if side_range[0] < 1.0 or side_range[0] > side_range[1]:
            raise ValueError(f"Invalid side range provided {side_range}.")

    def draw(self, n, inputs, random):
        height, width = query_size(inputs)
        grown = random.uniform(1, float(self.side_range[0]), float(self.side_range[1]))
        room = (grown * (width, height)).astype(np.int64) - (width, height)         # to the right, and down
        before = (random.uniform(2) * room).astype(np.int64)
        return {"padding": np.concatenate([before, room - before], 1)}

    def transform(self, inpt, params):
        return F.pad(inpt, params["padding"][0].tolist(), fill_for(self._fill, inpt))

    def transform_some(self, inpt, params, applied):
        if not isinstance(inpt, Tensor) or inpt.ndim <= 3:
            return self.transform(inpt, params)
        around = np.where(applied[:, None], params["padding"], 0)
        across, down = one_size(self, around[:, :2] + around[:, 2:])
        inpt = F.pad(inpt, [across, down, across, down], fill_for(self._fill, inpt))
        return F.crop(inpt, down - around[:, 1], across - around[:, 0], inpt.shape[-2] - down, inpt.shape[-1] - across)


def one_size(transform, sizes):
    """The size that was drawn for all samples of a batch, [n, …], which has to be one: a batch has one shape."""
    told = np.unique(sizes, axis=0)
    if len(told) > 1:
        raise ValueError(f"{transform}: the samples of a batch keep one shape, and these have drawn {len(told)} "
                         "different ones. Transform single images, before they are collated.")
    return told[0].tolist()


class _ResizeByChance(Transform):
    """What resizes to a size that is drawn."""

    def transform(self, inpt, params):
        return F.resize(inpt, one_size(self, params["size"]), self.interpolation, antialias=self.antialias)


class ScaleJitter(_ResizeByChance):
    """The image resized to fit into `target_size`, times a factor from `scale_range`."""

    def __init__(self, target_size, scale_range=(0.1, 2.0), interpolation="bilinear", antialias=True):
        super().__init__()
        self.target_size = target_size
        self.scale_range = scale_range
        self.interpolation = as_shown(interpolation)
        self.antialias = antialias

    def draw(self, n, inputs, random):
        height, width = query_size(inputs)
        scale = random.uniform(1, float(self.scale_range[0]), float(self.scale_range[1]))
        # torchvision's order of the two: its target is (width, height)
        fits = min(self.target_size[1] / height, self.target_size[0] / width)
        return {"size": (fits * scale * (height, width)).astype(np.int64)}


class RandomShortestSize(_ResizeByChance):
    """The image with a shorter edge that is one of `min_size`, the longer up to `max_size`."""

    def __init__(self, min_size, max_size=None, interpolation="bilinear", antialias=True):
        super().__init__()
        self.min_size = [min_size] if isinstance(min_size, int) else list(min_size)
        self.max_size = max_size
        self.interpolation = as_shown(interpolation)
        self.antialias = antialias

    def draw(self, n, inputs, random):
        height, width = query_size(inputs)
        ratio = np.array(self.min_size)[random.integers(0, len(self.min_size))] / min(height, width)
        if self.max_size is not None:
            ratio = np.minimum(ratio, self.max_size / max(height, width))
        return {"size": (ratio * (height, width)).astype(np.int64)}


class RandomResize(_ResizeByChance):
    """The image with a shorter edge of `min_size` up to, but not, `max_size`."""

    def __init__(self, min_size, max_size, interpolation="bilinear", antialias=True):
        super().__init__()
        self.min_size = min_size
        self.max_size = max_size
        self.interpolation = as_shown(interpolation)
        self.antialias = antialias

    def draw(self, n, inputs, random): return {"size": random.integers(self.min_size, self.max_size)}


class RandomCrop(Transform):
    """A box of `size` anywhere in the image, which may be padded first."""

    def __init__(self, size, padding=None, pad_if_needed=False, fill=0, padding_mode="constant"):
        super().__init__()
        self.size = size_pair(size)
        if padding is not None:
            need_padding(padding)
        if pad_if_needed or padding is not None:
            need_padding_mode(padding_mode)
        self.padding = padding_of(padding) if padding else None
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self._fill = fill_table(fill)
        self.padding_mode = padding_mode

    def draw(self, n, inputs, random):
        left, right, top, bottom = self.padding or [0] * 4
        size, wanted = np.add(query_size(inputs), (top + bottom, left + right)), np.array(self.size)
        if self.pad_if_needed:
            more = np.maximum(wanted - size, 0).tolist()
            left, right, top, bottom = left + more[1], right + more[1], top + more[0], bottom + more[0]
            size = size + 2 * np.array(more)
        if (size < wanted).any():
            raise ValueError(f"Required crop size {tuple(self.size)} is larger than "
                             f"{'padded ' if self.padding is not None else ''}input image size {tuple(size.tolist())}.")
        corners = random.uniform(2) * (size - wanted + 1)
        top_left = np.minimum(corners.astype(np.int64), size - wanted)
        around = [left, top, right, bottom]
        return {"top": top_left[:, 0], "left": top_left[:, 1], "height": np.full(n, self.size[0]),
                "width": np.full(n, self.size[1]), "padding": np.tile(around, (n, 1))}

    def transform(self, inpt, params):
        around = params["padding"][0].tolist()
        if any(around):
            inpt = F.pad(inpt, around, fill_for(self._fill, inpt), self.padding_mode)
        return F.crop(inpt, each(params["top"], inpt), each(params["left"], inpt), *map(int, self.size))


def drawn_boxes(n, size, scale, ratio, random, wide_first, strictly):
    """Boxes with a share of an image's area from `scale` and a proportion from `ratio`, if `TRIES` tries find one.

    (heights, widths, positions in [0, 1) down and to the right, which were found), for `n` images of `size`.
    """
    area, log_ratio = size[0] * size[1], np.log(np.asarray(ratio, np.float32)).astype(np.float64)
    # every try of every sample at once: what a sample draws is the same however many tries it needs
    numbers = random.uniform(4 * TRIES).reshape(n, TRIES, 4)
    target = area * (scale[0] + numbers[..., 0] * (scale[1] - scale[0]))
    proportion = np.exp(log_ratio[0] + numbers[..., 1] * (log_ratio[1] - log_ratio[0]))
    along, across = rounded(np.sqrt(target * proportion)), rounded(np.sqrt(target / proportion))
    height, width = (across, along) if wide_first else (along, across)
    if strictly:
        fits = (height < size[0]) & (width < size[1])
    else:
        fits = (height > 0) & (height <= size[0]) & (width > 0) & (width <= size[1])
    chosen = (np.arange(n), fits.argmax(1))
    return height[chosen], width[chosen], numbers[..., 2][chosen], numbers[..., 3][chosen], fits.any(1)


def placed(room, share):
    """Integers from 0 to `room`, by numbers in [0, 1)."""
    return np.minimum((share * (room + 1)).astype(np.int64), room)


class RandomResizedCrop(Transform):
    """A box of a share of the area from `scale` and of a proportion from `ratio`, resized to `size`."""

    def __init__(self, size, scale=(0.08, 1.0), ratio=(3.0 / 4.0, 4.0 / 3.0), interpolation="bilinear",
                 antialias=True):
        super().__init__()
        self.size = size_pair(size)
        if not isinstance(scale, Sequence) or len(scale) != 2:
            raise TypeError("Scale should be a sequence of two floats.")
        if not isinstance(ratio, Sequence) or len(ratio) != 2:
            raise TypeError("Ratio should be a sequence of two floats.")
        if scale[0] > scale[1] or ratio[0] > ratio[1]:
            warnings.warn("Scale and ratio should be of kind (min, max)", stacklevel=2)
        self.scale = scale
        self.ratio = ratio
        self.interpolation = as_shown(interpolation)
        self.antialias = antialias

    def draw(self, n, inputs, random):
        size = query_size(inputs)
        height, width, down, right, found = drawn_boxes(n, size, self.scale, self.ratio, random, True, False)
        top, left = placed(size[0] - height, down), placed(size[1] - width, right)
        if not found.all():
            box = self.central(*size)
            top, left, height, width = (np.where(found, drawn, part)
                                        for drawn, part in zip((top, left, height, width), box, strict=True))
        return {"top": top, "left": left, "height": height, "width": width}

    def central(self, height, width):
        """(top, left, height, width) of the largest box in the middle whose proportion is allowed."""
        low, high = min(self.ratio), max(self.ratio)
        if width / height < low:
            new = round(width / low), width
        elif width / height > high:
            new = height, round(height * high)
        else:
            new = height, width
        return (height - new[0]) // 2, (width - new[1]) // 2, *new

    def transform(self, inpt, params):
        box = [params[name] for name in ("top", "left", "height", "width")]
        if not isinstance(inpt, Tensor):
            box = [part[0].item() for part in box]
        # a tensor's box is data, not a shape, also for one image: boxes of all sizes go by the same compiled code
        return F.resized_crop(inpt, *box, self.size, self.interpolation, self.antialias)


class RandomRotation(Transform):
    """The image turned by an angle from `degrees` (low, high), or as far to both sides as one number says."""

    def __init__(self, degrees, interpolation="nearest", expand=False, center=None, fill=0):
        super().__init__()
        self.degrees = angle_range(degrees, "degrees")
        self.interpolation = as_shown(interpolation)
        self.expand = expand
        self.fill = 0 if fill is None else fill
        self._fill = fill_table(fill)
        if center is not None:
            need_length(center, "center", (2,))
        self.center = center

    def draw(self, n, inputs, random): return {"angle": random.uniform(1, *self.degrees)[:, 0]}

    def transform(self, inpt, params):
        return F.rotate(inpt, each(params["angle"], inpt), self.interpolation, self.expand, self.center,
                        fill_for(self._fill, inpt))


class RandomAffine(Transform):
    """The image turned, moved by up to a share `translate` of its size, scaled and sheared, each as drawn."""

    def __init__(self, degrees, translate=None, scale=None, shear=None, interpolation="nearest", fill=0, center=None):
        super().__init__()
        self.degrees = angle_range(degrees, "degrees")
        if translate is not None:
            need_length(translate, "translate", (2,))
            if not all(0.0 <= share <= 1.0 for share in translate):
                raise ValueError("translation values should be between 0 and 1")
        self.translate = translate
        if scale is not None:
            need_length(scale, "scale", (2,))
            if not all(factor > 0 for factor in scale):
                raise ValueError("scale values should be positive")
        self.scale = scale
        self.shear = None if shear is None else angle_range(shear, "shear", (2, 4))
        self.interpolation = as_shown(interpolation)
        self.fill = 0 if fill is None else fill
        self._fill = fill_table(fill)
        if center is not None:
            need_length(center, "center", (2,))
        self.center = center

    def draw(self, n, inputs, random):
        height, width = query_size(inputs)
        angle = random.uniform(1, *self.degrees)[:, 0]
        moved, shear, scale = np.zeros((n, 2), np.int64), np.zeros((n, 2)), np.ones(n)
        if self.translate is not None:
            most = np.array([self.translate[0] * width, self.translate[1] * height])
            moved = rounded((random.uniform(2) * 2 - 1) * most)
        if self.scale is not None:
            scale = random.uniform(1, float(self.scale[0]), float(self.scale[1]))[:, 0]
        if self.shear is not None:
            shear[:, 0] = random.uniform(1, *self.shear[:2])[:, 0]
            if len(self.shear) == 4:
                shear[:, 1] = random.uniform(1, *self.shear[2:])[:, 0]
        return {"angle": angle, "translate": moved, "scale": scale, "shear": shear}

    def transform(self, inpt, params):
        one = not isinstance(inpt, Tensor) or inpt.ndim <= 3
        angle, scale = each(params["angle"], inpt), each(params["scale"], inpt)
        moved, shear = ((params[name][0].tolist() if one else params[name]) for name in ("translate", "shear"))
        return F.affine(inpt, angle, moved, scale, shear, self.interpolation, fill_for(self._fill, inpt), self.center)


class RandomPerspective(RandomApplyTransform):
    """The image seen from elsewhere, with probability `p`: its corners move inwards by up to `distortion_scale`."""

    def __init__(self, distortion_scale=0.5, p=0.5, interpolation="bilinear", fill=0):
        super().__init__(p=p)
        if not 0 <= distortion_scale <= 1:
            raise ValueError("Argument distortion_scale value should be between 0 and 1")
        self.distortion_scale = distortion_scale
        self.interpolation = as_shown(interpolation)
        self.fill = 0 if fill is None else fill
        self._fill = fill_table(fill)

    def draw(self, n, inputs, random):
        height, width = query_size(inputs)
        most = np.array([int(self.distortion_scale * (width // 2)) + 1, int(self.distortion_scale * (height // 2)) + 1])
        inwards = np.minimum((random.uniform(8).reshape(n, 4, 2) * most).astype(np.int64), most - 1)
        corners = np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]])
        at_end = np.array([[False, False], [True, False], [True, True], [False, True]])
        ends = np.where(at_end, np.array([width, height]) - most + inwards, inwards)
        return {"coefficients": perspective_coefficients(corners, ends)}

    def transform(self, inpt, params):
        return F.perspective(inpt, None, None, self.interpolation, fill_for(self._fill, inpt), params["coefficients"])


class ElasticTransform(Transform):
    """Every pixel moved a little, by random directions that are smoothed by `sigma` and made as large as `alpha`."""

    def __init__(self, alpha=50.0, sigma=5.0, interpolation="bilinear", fill=0):
        super().__init__()
        self.alpha = number_pair(alpha, "alpha")
        self.sigma = number_pair(sigma, "sigma")
        self.interpolation = as_shown(interpolation)
        self.fill = fill
        self._fill = fill_table(fill)

    def draw(self, n, inputs, random):
        height, width = query_size(inputs)
        moved = []
        for alpha, sigma, size in zip(self.alpha, self.sigma, (width, height), strict=True):
            one = from_array(random.uniform(height * width, -1.0, 1.0).astype(np.float32))
            one = one.reshape(n, 1, height, width)
            if sigma > 0.0:
                run = int(8 * sigma + 1) | 1
                one = F.gaussian_blur(one, [run, run], list(self.sigma))
            moved.append(one * (alpha / size))
        return {"displacement": cat(moved, 1).permute(0, 2, 3, 1)}

    def transform(self, inpt, params):
        displacement = params["displacement"]
        if isinstance(inpt, Tensor):
            displacement = displacement.to(inpt.device)
        return F.elastic(inpt, displacement, self.interpolation, fill_for(self._fill, inpt))
