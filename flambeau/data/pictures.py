"""Pictures to look at: a grid of many, a file, boxes and masks and points drawn on one; torchvision.utils' functions.

A picture is a tensor [C, H, W] of bytes, or of floating point numbers from 0 to 1. Drawing and files go through Pillow.
"""
import math

import numpy as np

from ..autograd.modes import no_grad
from ..base import dtypes
from ..base.errors import need, warn
from ..tensor.create import from_array, tensor as tensor_of
from ..tensor.forms import namespace
from ..tensor.reading import array_of
from ..tensor.tensor import Tensor
from ..vision import images

__all__ = ["draw_bounding_boxes", "draw_keypoints", "draw_segmentation_masks", "flow_to_image", "make_grid",
           "save_image"]

SMALLEST_RANGE = 1e-5         # what a picture of one colour is divided by
FILLED_OPACITY = 100          # of 255, of the inside of a box that is filled
DASH_LENGTH = 5               # pixels of a dash, and of the gap after it
PALETTE_STEPS = (2**25 - 1, 2**15 - 1, 2**21 - 1)             # of red, green and blue from one object to the next
# Middlebury's colours of directions: how many steps lead from red to yellow, to green, cyan, blue, magenta and back.
WHEEL_STEPS = (15, 6, 4, 11, 13, 6)
WHEEL_CORNERS = ((255, 0, 0), (255, 255, 0), (0, 255, 0), (0, 255, 255), (0, 0, 255), (255, 0, 255))


# --- many pictures, files ---


@no_grad()
def make_grid(tensor, nrow=8, padding=2, normalize=False, value_range=None, scale_each=False, pad_value=0.0):
    """One picture [C, H, W] of many [N, C, H, W], `nrow` of them beside each other, with `padding` pixels between.

    `normalize` brings the numbers to 0..1, from `value_range` or from the smallest and the largest there are; of each
    picture by itself with `scale_each`.

    >>> from flambeau.data.pictures import make_grid
    >>> make_grid(torch.zeros(3, 1, 4, 5), nrow=2).shape
    torch.Size([3, 14, 16])
    """
    pictures = _batch_of(tensor)
    if normalize is True:
        need(value_range is None or isinstance(value_range, tuple),
             "value_range has to be a tuple (min, max) if specified. min and max are numbers", TypeError)
        pictures = _normalized(pictures, value_range, scale_each is True)
    count, channels, height, width = pictures.shape
    if count == 1:
        return pictures.squeeze(0)
    columns = min(nrow, count)
    rows = math.ceil(count / columns)
    # Every picture gets the padding at its left and top, the whole gets that at its right and bottom: one copy in all.
    cells = pictures.new_full((rows * columns, channels, height + padding, width + padding), pad_value)
    cells[:count, :, padding:, padding:] = pictures
    grid = pictures.new_full((channels, rows * (height + padding) + padding, columns * (width + padding) + padding),
                             pad_value)
    cells = cells.view(rows, columns, channels, height + padding, width + padding).permute(2, 0, 3, 1, 4)
    grid[:, :rows * (height + padding), :columns * (width + padding)] = cells.reshape(
        channels, rows * (height + padding), columns * (width + padding))
    return grid


def _batch_of(tensor):
    """Pictures [N, C, H, W] of what `make_grid` takes, grey ones with three channels."""
    if isinstance(tensor, list):
        for picture in tensor:
            need(isinstance(picture, Tensor),
                 f"tensor or list of tensors expected, got a list containing {type(picture)}", TypeError)
        tensor = namespace[""]["stack"](tensor)
    need(isinstance(tensor, Tensor), f"tensor or list of tensors expected, got {type(tensor)}", TypeError)
    if tensor.dim() == 2:
        tensor = tensor.unsqueeze(0)
    if tensor.dim() == 3:
        tensor = tensor.unsqueeze(0)
    need(tensor.dim() == 4, "pictures are [N, C, H, W], [C, H, W] or [H, W], and this tensor is "
                            f"{list(tensor.shape)}", ValueError)
    return tensor.expand(-1, 3, -1, -1) if tensor.size(1) == 1 else tensor


def _normalized(pictures, value_range, each):
    """The numbers brought to 0..1, in their own dtype."""
    if value_range is not None:
        low, high = value_range
        size = max(high - low, SMALLEST_RANGE)
    elif each:
        low, high = pictures.amin((1, 2, 3), keepdim=True), pictures.amax((1, 2, 3), keepdim=True)
        size = (high.double() - low.double()).clamp(min=SMALLEST_RANGE)
    else:
        low, high = float(pictures.min()), float(pictures.max())
        size = max(high - low, SMALLEST_RANGE)
    return pictures.clone().clamp_(low, high).sub_(low).div_(size)


@no_grad()
def save_image(tensor, fp, format=None, **kwargs):
    """Save a picture, or many as a grid (`make_grid(tensor, **kwargs)`), as the file `fp`.

    The format follows from the name, or is `format` where `fp` is an open file.
    """
    grid = make_grid(tensor, **kwargs)
    rounded = grid.mul(255).add_(0.5).clamp_(0, 255).permute(1, 2, 0).to("cpu", dtypes.uint8)
    images.pillow().fromarray(np.ascontiguousarray(array_of(rounded))).save(fp, format=format)


# --- drawing ---


@no_grad()
def draw_bounding_boxes(image, boxes, labels=None, colors=None, fill=False, width=1, font=None, font_size=None,
                        label_colors=None, label_background_colors=None, fill_labels=False):
    """`image` with boxes on it: (xmin, ymin, xmax, ymax) in each row of `boxes`, or eight numbers, four corners.

    `colors` are names or (r, g, b), one or one for each box. `labels` are written inside the top left corner, in the
    TrueType font in the file `font`.
    """
    need(isinstance(image, Tensor), f"Tensor expected, got {type(image)}", TypeError)
    _need_picture(image, (1, 3), "Only grayscale and RGB images are supported")
    need(boxes.shape[-1] != 4 or not ((boxes[:, 0] > boxes[:, 2]) | (boxes[:, 1] > boxes[:, 3])).any(),
         "Boxes need to be in (xmin, ymin, xmax, ymax) format. Use torchvision.ops.box_convert to convert them",
         ValueError)
    count = boxes.shape[0]
    if count == 0:
        warn("boxes doesn't contain any box. No box was drawn")
        return image
    labels = [None] * count if labels is None else labels
    need(len(labels) == count, f"Number of boxes ({count}) and labels ({len(labels)}) mismatch. Please specify labels "
                               "for each box.", ValueError)
    colors = _colors(colors, count)
    label_colors = _colors(label_colors or "black", count) if label_colors or fill_labels else colors
    behind = _colors(label_background_colors, count) if fill_labels and label_background_colors else colors
    if font is None and font_size is not None:
        warn("Argument 'font_size' will be ignored since 'font' is not set.")
    fonts = images.pillow("ImageFont")
    font = fonts.load_default() if font is None else fonts.truetype(font=font, size=font_size or 10)

    picture = _to_pillow(image)
    draw = images.pillow("ImageDraw").Draw(picture, "RGBA" if fill else None)
    for i, box in enumerate(boxes.to(dtypes.int64).tolist()):
        inside = (*colors[i], FILLED_OPACITY) if fill else None
        if len(box) == 4:
            draw.rectangle(box, width=width, outline=colors[i], fill=inside)
        else:
            _draw_turned(draw, box, inside, colors[i], width)
        if labels[i] is not None:
            at = box[0] + width + 1, box[1] + width + 1
            if fill_labels:
                left, top, right, bottom = draw.textbbox(at, labels[i], font=font)
                draw.rectangle((left - 1, top - 1, right + 1, bottom + 1), fill=behind[i])
            draw.text(at, labels[i], fill=label_colors[i], font=font)
    return _from_pillow(picture, image.dtype)


def _draw_turned(draw, corners, inside, outline, width):
    """A box by its four corners; the first edge is dashed, so that one sees how it is turned."""
    points = list(zip(corners[::2], corners[1::2]))
    (x, y), (to_x, to_y) = points[:2]
    length = math.hypot(to_x - x, to_y - y)
    for start in range(0, math.ceil(length), 2 * DASH_LENGTH):
        ends = [(x + (to_x - x) * far / length, y + (to_y - y) * far / length)
                for far in (start, min(start + DASH_LENGTH, length))]
        draw.line(ends, fill=outline, width=width)
    for edge in zip(points[1:], points[2:] + points[:1]):
        draw.line(edge, fill=outline, width=width)
    draw.polygon(corners, fill=inside, outline=None, width=0)


@no_grad()
def draw_segmentation_masks(image, masks, alpha=0.8, colors=None):
    """`image` with every mask of `masks` [N, H, W] or [H, W], bool, in a colour, of which `alpha` covers the image.

    Where masks overlap it is black.
    """
    need(isinstance(image, Tensor), f"The image must be a tensor, got {type(image)}", TypeError)
    _need_picture(image, (3,), "Pass an RGB image. Other Image formats are not supported")
    masks = masks[None] if masks.ndim == 2 else masks
    need(masks.ndim == 3, "masks must be of shape (H, W) or (batch_size, H, W)", ValueError)
    need(masks.dtype is dtypes.bool, f"The masks must be of dtype bool. Got {masks.dtype}", ValueError)
    need(masks.shape[-2:] == image.shape[-2:], "The image and the masks must have the same height and width",
         ValueError)
    if masks.shape[0] == 0:
        warn("masks doesn't contain any mask. No mask was drawn")
        return image
    colors = tensor_of(_colors(colors, masks.shape[0], image.dtype), dtype=image.dtype, device=image.device)
    drawn = image.detach()
    for mask, color in zip(masks, colors):
        drawn = namespace[""]["where"](mask, color[:, None, None], drawn)
    drawn = drawn.masked_fill(masks.sum(0) > 1, 0)
    return (image * (1 - alpha) + drawn * alpha).to(image.dtype)


@no_grad()
def draw_keypoints(image, keypoints, connectivity=None, colors=None, radius=2, width=3, visibility=None):
    """`image` with the points `keypoints` [instances, K, 2], (x, y), those of an instance connected by lines.

    `connectivity` lists pairs of points; `visibility` [instances, K] leaves some out, with their lines.
    """
    need(isinstance(image, Tensor), f"The image must be a tensor, got {type(image)}", TypeError)
    _need_picture(image, (3,), "Pass an RGB image. Other Image formats are not supported")
    need(keypoints.ndim == 3, "keypoints must be of shape (num_instances, K, 2)", ValueError)
    if visibility is None:
        visibility = keypoints.new_ones(keypoints.shape[:-1], dtype=dtypes.bool)
    visibility = visibility.squeeze(-1) if visibility.ndim == 3 else visibility
    need(visibility.ndim == 2, f"visibility must be of shape (num_instances, K). Got ndim={visibility.ndim}",
         ValueError)
    need(visibility.shape == keypoints.shape[:-1],
         "keypoints and visibility must have the same dimensionality for num_instances and K. Got "
         f"visibility.shape={visibility.shape} and keypoints.shape={keypoints.shape}", ValueError)
    picture = _to_pillow(image)
    draw = images.pillow("ImageDraw").Draw(picture)
    for points, seen in zip(keypoints.to(dtypes.int64).tolist(), visibility.bool().tolist()):
        for (x, y), there in zip(points, seen):
            if there:
                draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=colors, outline=None, width=0)
        for one, other in connectivity or ():
            if seen[one] and seen[other]:
                draw.line((tuple(points[one]), tuple(points[other])), width=width)
    return _from_pillow(picture, image.dtype)


def _need_picture(image, channels, otherwise):
    need(image.dtype is dtypes.uint8 or image.is_floating_point(),
         f"The image dtype must be uint8 or float, got {image.dtype}", ValueError)
    need(image.dim() == 3, "Pass individual images, not batches", ValueError)
    need(image.size(0) in channels, otherwise, ValueError)


def _transforms():
    from .transforms import functional
    return functional


def _to_pillow(image):
    """A picture of Pillow's with the bytes of `image`, in colours."""
    array = array_of(_transforms().to_dtype(image, dtypes.uint8, scale=True).expand(3, -1, -1).permute(1, 2, 0).cpu())
    return images.pillow().fromarray(np.ascontiguousarray(array))


def _from_pillow(picture, dtype):
    return _transforms().to_dtype(from_array(np.array(picture)).permute(2, 0, 1), dtype, scale=True)


def _colors(colors, count, dtype=dtypes.uint8):
    """`count` colours (r, g, b) of one, of a list, or of none; from 0 to 1 for a floating point `dtype`."""
    if colors is None:
        colors = [tuple(i * step % 255 for step in PALETTE_STEPS) for i in range(count)]
    elif isinstance(colors, list):
        need(len(colors) >= count, "Number of colors must be equal or larger than the number of objects, but got "
                                   f"{len(colors)} < {count}.", ValueError)
    else:
        need(isinstance(colors, tuple | str), "colors must be a tuple or a string, or a list thereof, but got "
                                              f"{colors}.", ValueError)
        need(isinstance(colors, str) or len(colors) == 3, "If passed as tuple, colors should be an RGB triplet, but "
                                                          f"got {colors}.", ValueError)
        colors = [colors] * count
    rgb = images.pillow("ImageColor").getrgb
    colors = [rgb(color) if isinstance(color, str) else color for color in colors[:count]]
    return [tuple(part / 255 for part in color) for color in colors] if dtype.is_floating_point else colors


# --- flows ---


@no_grad()
def flow_to_image(flow):
    """Bytes [N, 3, H, W] of a flow [N, 2, H, W] of float32: the colour is the direction, its strength the speed."""
    need(flow.dtype is dtypes.float32, f"Flow should be of dtype torch.float, got {flow.dtype}.", ValueError)
    given, flow = flow.shape, flow[None] if flow.ndim == 3 else flow
    need(flow.ndim == 4 and flow.shape[1] == 2,
         f"Input flow should have shape (2, H, W) or (N, 2, H, W), got {given}.", ValueError)
    flow = flow / (flow.pow(2).sum(1).sqrt().max() + float(np.finfo(np.float32).eps))
    wheel = tensor_of(_wheel(), device=flow.device)
    speed = flow.pow(2).sum(1).sqrt()
    angle = namespace[""]["atan2"](-flow[:, 1], -flow[:, 0]) / math.pi
    at = (angle + 1) / 2 * (len(wheel) - 1)
    below = at.floor().long()
    part = (at - below).unsqueeze(-1)
    color = (1 - part) * (wheel[below] / 255.0) + part * (wheel[(below + 1) % len(wheel)] / 255.0)
    color = 1 - speed.unsqueeze(-1) * (1 - color)
    image = (255 * color).floor().to(dtypes.uint8).permute(0, 3, 1, 2).contiguous()
    return image[0] if len(given) == 3 else image


def _wheel():
    """The colours of the directions all round, [55, 3]."""
    colors = []
    for i, steps in enumerate(WHEEL_STEPS):
        start, end = np.array(WHEEL_CORNERS[i]), np.array(WHEEL_CORNERS[(i + 1) % len(WHEEL_CORNERS)])
        far = np.floor(255 * np.arange(steps, dtype=np.float32)[:, None] / steps)
        colors.append(start + np.sign(end - start) * far)
    return np.concatenate(colors).astype(np.float32)
