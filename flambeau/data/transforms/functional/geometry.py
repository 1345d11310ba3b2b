"""Functions that move pixels: flips, crops, padding, resizing.

What torchvision takes one of (an angle, a box), a batch may be given one of for each sample; see dispatch.py.
"""
import numbers

import numpy as np

from ....nn import functional as F
from ....tensor.create import from_array
from ....tensor.functions import linspace
from ....tensor.tensor import Tensor
from ..geometry_kernels import cropped, flipped, mirrored_rows, picked
from ..modes import InterpolationMode, interpolation_mode
from ..tables import resize_all, resize_boxes
from .dispatch import numbers_of, of_images, samples_of


@of_images
def get_dimensions(inpt):
    """[channels, height, width]"""
    if inpt.ndim < 2:
        raise TypeError(f"Input tensor should have at least two dimensions, but got {inpt.ndim}")
    return [1, *inpt.shape] if inpt.ndim == 2 else list(inpt.shape[-3:])


@of_images
def get_num_channels(inpt):
    """The number of channels."""
    return get_dimensions.of_tensor(inpt)[0]


get_image_num_channels = get_num_channels


@of_images
def get_size(inpt):
    """[height, width]"""
    return get_dimensions.of_tensor(inpt)[1:]


def get_image_size(img):
    """[width, height], the other way round than `get_size`."""
    return get_size(img)[::-1]


def get_num_frames(inpt):
    """How many frames a video [..., T, C, H, W] has."""
    if not isinstance(inpt, Tensor) or inpt.ndim < 4:
        raise TypeError("a video is a tensor [..., T, C, H, W], but got "
                        f"{f'one of shape {list(inpt.shape)}' if isinstance(inpt, Tensor) else type(inpt)}")
    return inpt.shape[-4]


def uniform_temporal_subsample(inpt, num_samples):
    """`num_samples` frames of a video [..., T, C, H, W], as far from each other as can be."""
    at = linspace(0, get_num_frames(inpt) - 1, num_samples, device=inpt.device).long()
    return inpt.index_select(inpt.ndim - 4, at)


def in_batch(image):
    """`image` [..., C, H, W] as a batch [N, C, H, W]; how many of that each of its samples is."""
    batch = image.reshape(-1, *image.shape[-3:])
    return batch, batch.shape[0] // max(samples_of(image), 1)


def on_device(array, image):
    return from_array(np.ascontiguousarray(array).copy(), where=image.device)


# --- flips ------------------------------------------------------------------------------------------------------------


def flip_some(image, chosen, dim):
    """`image` with those of its samples mirrored along `dim` that the mask `chosen` [n] says."""
    if not chosen.any():
        return image
    if dim == -2 and chosen.all():
        return image.flip(dim)
    if dim == -1:
        rows = image.reshape(len(chosen), -1, image.shape[-1])
        return mirrored_rows(rows, on_device(chosen.astype(np.uint8), image)).reshape(image.shape)
    mask = on_device(chosen.reshape(-1, *[1] * (image.ndim - 1)), image)
    return flipped(image, mask, dim % image.ndim)


@of_images
def horizontal_flip(inpt):
    """`inpt`, left and right exchanged."""
    if inpt.requires_grad or inpt.ndim < 2 or not inpt.numel():
        return inpt.flip(-1)
    return flip_some(inpt, np.ones(1, bool), -1)


@of_images
def vertical_flip(inpt):
    """`inpt`, top and bottom exchanged."""
    return inpt.flip(-2)


hflip, vflip = horizontal_flip, vertical_flip


# --- crops and padding ------------------------------------------------------------------------------------------------


def box_numbers(values, n):
    """Four parts of boxes, each a number or one for each of `n` samples, as an array [n, 4] of integers."""
    return np.stack([numbers_of(value, n, name, np.int64) for value, name in
                     zip(values, ("top", "left", "height", "width"), strict=True)], 1)


@of_images
def crop(inpt, top, left, height, width):
    """The box of `height` and `width` at (`top`, `left`); where it reaches beyond the image it is zero."""
    old_height, old_width = inpt.shape[-2:]
    if not all(isinstance(value, int) for value in (top, left)):
        boxes = box_numbers((top, left, height, width), samples_of(inpt))
        top, left = (boxes[0, i].item() if (boxes[:, i] == boxes[0, i]).all() else None for i in (0, 1))
        if top is None or left is None:
            return crop_each(inpt, boxes)
    right, bottom = left + width, top + height
    if left >= 0 and top >= 0 and right <= old_width and bottom <= old_height:
        return inpt[..., top:bottom, left:right]
    part = inpt[..., max(top, 0):max(bottom, 0), max(left, 0):max(right, 0)]
    around = [max(min(right, 0) - left, 0), max(right - max(old_width, left), 0),
              max(min(bottom, 0) - top, 0), max(bottom - max(old_height, top), 0)]
    return F.pad(part, around)


def crop_each(image, boxes):
    """Boxes [n, (top, left, height, width)] of one size, each from its sample."""
    size = tuple(boxes[0, 2:].tolist())
    if (boxes[:, 2:] != size).any():
        raise ValueError("the boxes of a batch have one size, but these have several: "
                         f"{np.unique(boxes[:, 2:], axis=0).tolist()}. Give resized_crop a size, or crop single "
                         "images.")
    batch, parts = in_batch(image)
    boxes = np.repeat(boxes, parts, 0)
    beyond = (boxes[:, :2] < 0).any() or (boxes[:, :2] + boxes[:, 2:] > batch.shape[2:]).any()
    made = cropped(batch.contiguous(), on_device(boxes[:, :2, None, None], image), size, bool(beyond))
    return made.reshape(*image.shape[:-2], *size)


def two_sizes(size):
    """A size as (height, width)."""
    if isinstance(size, numbers.Number):
        return int(size), int(size)
    return (size[0], size[0]) if len(size) == 1 else tuple(size)


def centre_padding(height, width, old_height, old_width):
    """What has to be around an image (left, top, right, bottom) for a crop of its centre that is larger."""
    wide, high = max(width - old_width, 0), max(height - old_height, 0)
    return [wide // 2, high // 2, (wide + 1) // 2, (high + 1) // 2]


def central_box(height, width, old_height, old_width):
    """(top, left, height, width) of the centre of an image."""
    return round((old_height - height) / 2), round((old_width - width) / 2), height, width


@of_images
def center_crop(inpt, output_size):
    """The centre of `inpt`; with zeros around it where it is smaller."""
    height, width = two_sizes(output_size)
    if not inpt.numel():
        return inpt.reshape(*inpt.shape[:-2], height, width)
    around = centre_padding(height, width, *inpt.shape[-2:])
    if any(around):
        inpt = F.pad(inpt, padding_of(around))
    return crop.of_tensor(inpt, *central_box(height, width, *inpt.shape[-2:]))


def padding_of(padding):
    """[left, right, top, bottom] of what callers give: one number, (sides, ends), or (left, top, right, bottom)."""
    if isinstance(padding, int):
        return [padding] * 4
    if not isinstance(padding, (tuple, list)):
        raise TypeError(f"`padding` should be an integer or tuple or list of integers, but got {padding}")
    if len(padding) == 1:
        return [padding[0]] * 4
    if len(padding) == 2:
        return [padding[0], padding[0], padding[1], padding[1]]
    if len(padding) == 4:
        return [padding[0], padding[2], padding[1], padding[3]]
    raise ValueError(f"Padding must be an int or a 1, 2, or 4 element tuple or list. Found {len(padding)}")


@of_images
def pad(inpt, padding, fill=None, padding_mode="constant"):
    """`inpt` with a border: of `fill`, of its edge repeated, or of itself mirrored, with the edge or without."""
    sides = padding_of(padding)
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError("`padding_mode` should be either `'constant'`, `'edge'`, `'reflect'` or `'symmetric'`, but "
                         f"got `'{padding_mode}'`.")
    fill = 0 if fill is None else fill
    fill = fill if isinstance(fill, (int, float)) else fill[0] if len(fill) == 1 else list(fill)
    if isinstance(fill, list) and padding_mode != "constant":
        raise ValueError(f"Padding mode '{padding_mode}' is not supported if fill is not scalar")
    batch, _ = in_batch(inpt)
    if padding_mode != "constant":
        made = bordered(batch, sides, padding_mode)
    elif isinstance(fill, list):
        made = padded_by_channel(batch, sides, fill)
    else:
        made = F.pad(batch, sides, value=float(fill))
    return made.reshape(*inpt.shape[:-2], *made.shape[-2:])


def bordered(batch, sides, padding_mode):
    """`batch` [N, C, H, W] with a border that is made of itself; what is negative cuts."""
    left, right, top, bottom = sides
    for dim, before, after in ((2, top, bottom), (3, left, right)):
        if before or after:
            index = border_index(batch.shape, dim, before, after, padding_mode)
            batch = picked(batch, on_device(index.reshape(1, 1, *((-1, 1) if dim == 2 else (1, -1))), batch), dim)
    return batch


def border_index(shape, dim, before, after, padding_mode):
    """Which elements of a dimension stand in it after padding by `before` and `after`."""
    size = shape[dim]
    index = np.arange(-before, size + after)
    if padding_mode == "edge":
        return np.clip(index, max(-before, 0), size - 1 + min(after, 0)).astype(np.int64)
    # mirrored: what is cut is gone before the rest is mirrored
    low, high = max(-before, 0), size - max(-after, 0)
    once = padding_mode == "reflect"
    if max(before, after) > high - low - once:
        raise RuntimeError(f"Padding size should be less than the corresponding input dimension, but got: padding "
                           f"({before}, {after}) at dimension {dim} of input {list(shape)}")
    index = np.where(index < low, 2 * low - 1 + once - index, index)
    return np.where(index >= high, 2 * high - 1 - once - index, index).astype(np.int64)


def padded_by_channel(batch, sides, fill):
    """`batch` with a border that has a value for each channel."""
    made = F.pad(batch, sides)
    left, right, top, bottom = sides
    border = from_array(np.asarray(fill, np.float64)).to(batch.dtype).to(batch.device).reshape(-1, 1, 1)
    for there, part in ((top, made[..., :max(top, 0), :]), (left, made[..., :, :max(left, 0)]),
                        (bottom, made[..., made.shape[-2] - max(bottom, 0):, :]),
                        (right, made[..., :, made.shape[-1] - max(right, 0):])):
        if there > 0:
            part[...] = border
    return made


def corner_crops(image, size, crop, center_crop, old_size):
    """The four corners of `image`, top left, top right, bottom left, bottom right, and its centre."""
    height, width = two_sizes(size)
    if isinstance(size, (tuple, list)) and len(size) > 2:
        raise ValueError("Please provide only two dimensions (h, w) for size.")
    down, right = old_size[0] - height, old_size[1] - width
    if down < 0 or right < 0:
        raise ValueError(f"Requested crop size {size} is bigger than input size {tuple(old_size)}")
    corners = [crop(image, top, left, height, width) for top in (0, down) for left in (0, right)]
    return (*corners, center_crop(image, [height, width]))


@of_images
def five_crop(inpt, size):
    """The four corners of `inpt` and its centre."""
    return corner_crops(inpt, size, crop.of_tensor, center_crop.of_tensor, inpt.shape[-2:])


@of_images
def ten_crop(inpt, size, vertical_flip=False):
    """`five_crop` of `inpt`, and of `inpt` mirrored."""
    return five_crop.of_tensor(inpt, size) + five_crop.of_tensor(inpt.flip(-2 if vertical_flip else -1), size)


# --- resizing ---------------------------------------------------------------------------------------------------------


def resized_size(old, size, max_size=None):
    """(height, width) of an image of size `old` when it is resized: a single `size` is that of its shorter edge."""
    size = [size] if isinstance(size, int) else size
    if max_size is not None and size is not None and len(size) != 1:
        raise ValueError("max_size should only be passed if size is None or specifies the length of the smaller edge, "
                         "i.e. size should be an int or a sequence of length 1 in torchscript mode.")
    if size is not None and len(size) == 2:
        return tuple(size)
    short, long = min(old), max(old)
    if size is None:
        if not isinstance(max_size, int):
            raise ValueError(f"max_size must be an integer when size is None, but got {max_size} instead.")
        short, long = int(max_size * short / long), max_size
    else:
        short, long = size[0], int(size[0] * long / short)
        if max_size is not None:
            if max_size <= short:
                raise ValueError(f"max_size = {max_size} must be strictly greater than the requested size for the "
                                 f"smaller edge size = {size}")
            if long > max_size:
                short, long = int(max_size * short / long), max_size
    return (long, short) if old[1] <= old[0] else (short, long)


def resize_mode(interpolation, antialias):
    """(the mode, whether shrinking averages) of a resize of tensors."""
    mode = interpolation_mode(interpolation)
    smooth = mode in (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC, InterpolationMode.LANCZOS)
    if mode is InterpolationMode.LANCZOS and not antialias:
        raise ValueError("InterpolationMode.LANCZOS requires antialias=True")
    if mode in (InterpolationMode.BOX, InterpolationMode.HAMMING):
        raise NotImplementedError("resize of a tensor: the interpolation is one of bilinear, bicubic and lanczos, or "
                                  f"nearest; got {mode.value}, which images of Pillow's have.")
    return mode, bool(antialias) and smooth


@of_images
def resize(inpt, size, interpolation=InterpolationMode.BILINEAR, max_size=None, antialias=True):
    """`inpt` in another size. Shrinking averages over what is left out, unless `antialias` is False."""
    mode, smooth = resize_mode(interpolation, antialias)
    new = resized_size(tuple(inpt.shape[-2:]), size, max_size)
    if new == tuple(inpt.shape[-2:]):
        return inpt
    if not inpt.numel():
        return inpt.reshape(*inpt.shape[:-2], *new)
    batch, _ = in_batch(inpt)
    if inpt.requires_grad:                    # the tables are quicker, and have no derivative
        aligned = None if mode in (InterpolationMode.NEAREST, InterpolationMode.NEAREST_EXACT) else False
        made = F.interpolate(batch, new, mode=mode.value, align_corners=aligned, antialias=smooth)
    else:
        made = resize_all(batch, new, mode.value, smooth)
    return made.reshape(*inpt.shape[:-2], *new)


@of_images
def resized_crop(inpt, top, left, height, width, size, interpolation=InterpolationMode.BILINEAR, antialias=True):
    """The box at (`top`, `left`) of `height` and `width`, resized to `size`; for a batch, also one for each sample."""
    if all(isinstance(value, int) for value in (top, left, height, width)):
        return resize.of_tensor(crop.of_tensor(inpt, top, left, height, width), size, interpolation,
                                antialias=antialias)
    return resize_each(inpt, box_numbers((top, left, height, width), samples_of(inpt)), size, interpolation, antialias)


def resize_each(image, boxes, size, interpolation=InterpolationMode.BILINEAR, antialias=True):
    """Boxes [n, (top, left, height, width)] inside of the samples of `image`, all resized to `size`."""
    mode, smooth = resize_mode(interpolation, antialias)
    if isinstance(size, int) or len(size) != 2:
        raise ValueError(f"boxes of several shapes become one size (height, width), and got {size}")
    batch, parts = in_batch(image)
    start, length = boxes[:, :2], boxes[:, 2:]
    wrong = ((start < 0) | (length < 1) | (start + length > batch.shape[2:])).any(1)
    if wrong.any():
        raise ValueError(f"the box (top, left, height, width) {tuple(boxes[wrong][0].tolist())} is not inside of "
                         f"images of {tuple(batch.shape[2:])}")
    made = resize_boxes(batch, np.repeat(boxes, parts, 0), tuple(size), mode.value, smooth)
    return made.reshape(*image.shape[:-2], *size)
