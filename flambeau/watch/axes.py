"""A reshape that mixes axes in front of a norm over channels, and labels of axes that refuse it.

`reshape` and `view` keep the order of the elements. Where their result has the sizes of the original in another order,
as [N, H, W, C] and [N, C, H, W], a permute was meant: a "channel" of the result is a stretch of pixels of all channels.
A norm over such channels computes without complaint, and means nothing.
"""
import math

from ..base.errors import here, line_of, name_of
from .finding import found


def label(tensor, names):
    """`tensor`, with a name for each axis: `label(images, "N H W C")`. A norm over channels then wants its C at axis 1.

    The names are those of the tensor and of its views, through permute, transpose and the like. A norm of a view whose
    axes were mixed, or that has another axis where channels have to be, is refused. What is computed from the tensor is
    a new one, without names.

    >>> images = torch.watch.label(torch.zeros(2, 4, 5, 3), "N H W C")
    >>> norm = torch.nn.BatchNorm2d(3)
    >>> norm(images.permute(0, 3, 1, 2)).shape
    torch.Size([2, 3, 4, 5])
    """
    labels = tuple(names.split() if isinstance(names, str) else names)
    if len(labels) != tensor.dim():
        raise ValueError(f"label(): {len(labels)} names, {' '.join(labels)}, for the {tensor.dim()} axes of "
                         f"{list(tensor.shape)}: give one for each")
    if len(set(labels)) < len(labels):
        raise ValueError(f"label(): the names {' '.join(labels)} are not all different")
    tensor._labels = labels, here()
    return tensor


def labels_of(view, base):
    """The names of a view's axes by those of its base; None at an axis that is none of the base's."""
    axes = list(zip(base._spec.shape, base._spec.strides, base._labels[0], strict=True))

    def name(size, stride):
        """The axis whose elements these are, all or every so many of them."""
        return next((label for whole, step, label in axes if step and stride % step == 0
                     and (size - 1) * stride <= (whole - 1) * step and size > 1), None)
    return tuple([name(size, stride) for size, stride in zip(view._spec.shape, view._spec.strides, strict=True)])


def _mixes(shape, before):
    """Whether a reshape to `shape` makes channels of something else: what was the last axis, or another one, is axis 1.

    The elements of the last axis lie side by side, so an axis 1 with others behind it cannot be that one.
    """
    if len(shape) < 3 or math.prod(shape[2:]) == 1 or shape == before or math.prod(shape) != math.prod(before):
        return False
    permuted = sorted(shape) == sorted(before) and shape[1] != before[1]
    return permuted or len(before) > 1 and shape[1] == before[-1] != shape[-1] and shape[1] > 1


def norm_of_view(view, norm):
    """A norm over channels is about to be computed of a view, or of a tensor with labels."""
    base = view if view._labels is not None else view._base
    shape, before = view._spec.shape, base._spec.shape
    if base._labels is not None:
        (labels, site), seen = base._labels, labels_of(view, base)
        if "C" in labels and len(seen) > 1 and seen[1] != "C":
            name = name_of(base) or "a tensor"
            raise ValueError(f"{norm} takes its channels at axis 1, and of {name}, which was labelled "
                             f"{' '.join(labels)} at {line_of(site)}, that is {seen[1] or 'a mixture of axes'}. A "
                             f"reshape to {list(shape)} keeps the order of the elements; permute() moves the axis C")
        return
    if _mixes(shape, before) and view._spec.contiguous and base._spec.contiguous and view._offset == base._offset:
        name = name_of(base) or "its input"
        found("scrambled-channels", f"{norm} of {list(shape)}, which is a reshape of {list(before)}: the order of the "
              "elements stayed, so a channel is no channel but a stretch of all of them", view._site,
              [("the norm was called at", here()), (f"{name} was made at", base._site)],
              "the statistics of each channel are over a mixture, and nothing complains",
              f"permute() the axes of {name} in place of reshaping it; watch.label() gives axes names that are held")
