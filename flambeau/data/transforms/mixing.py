"""Batches whose samples are mixed with each other, pictures and labels: MixUp, CutMix.

Every sample is mixed with the one before it in the batch, the first with the last. How much of it stays is each
sample's own draw.
"""
from collections.abc import Mapping

import numpy as np

from ...base.errors import need
from ...base.pytree import tree_flatten, tree_unflatten
from ...nn import functional
from ...tensor.create import from_array
from ...tensor.functions import where
from ...tensor.tensor import Tensor
from . import functional as F
from .auto import of_samples
from .base import Transform, refuse_evaluation
from .functional.dispatch import is_pillow
from .gamma import beta

__all__ = ["CutMix", "MixUp"]


def default_labels(inputs):
    """The labels in what a transform is called with: its second argument, or what a dictionary there has as labels."""
    if isinstance(inputs, tuple | list):
        inputs = inputs[1]
    if isinstance(inputs, Tensor):
        return inputs
    need(isinstance(inputs, Mapping), "When using the default labels_getter, the input passed to forward must be a "
                                      "dictionary or a two-tuple whose second item is a dictionary or a tensor, but "
                                      f"got {inputs} instead.", ValueError)
    names = [name for name in inputs if name.lower() == "labels"] \
        or [name for name in inputs if "label" in name.lower()]
    need(names, "Could not infer where the labels are in the sample. Try passing a callable as the labels_getter "
                "parameter?If there are no labels in the sample by design, pass labels_getter=None.", ValueError)
    return inputs[names[0]]


class _Mixing(Transform):
    """What MixUp and CutMix have in common: which are the labels, and what becomes of them."""

    is_random = True

    def __init__(self, *, alpha=1.0, num_classes=None, labels_getter="default"):
        super().__init__()
        need(alpha > 0, f"alpha is the parameter of a beta distribution and has to be above 0, but got {alpha}",
             ValueError)
        need(labels_getter == "default" or labels_getter is None or callable(labels_getter),
             f"labels_getter should either be 'default', a callable, or None, but got {labels_getter}.", ValueError)
        self.alpha = float(alpha)
        self.num_classes = num_classes
        self._labels_getter = {"default": default_labels, None: lambda inputs: None}.get(labels_getter, labels_getter)

    def forward(self, *inputs):
        refuse_evaluation(self)
        inputs = inputs if len(inputs) > 1 else inputs[0]
        flat, structure = tree_flatten(inputs)
        need(not any(map(is_pillow, flat)), f"{type(self).__name__}() does not support PIL images, bounding boxes, "
                                            "keypoints and masks.", ValueError)
        labels = self._checked_labels(self._labels_getter(inputs))
        taken = [yes and one is not labels for one, yes in zip(flat, self._needs_transform_list(flat))]
        images = [one for one, yes in zip(flat, taken) if yes]
        for image in images:
            need(image.ndim == 4, f"Expected a batched input with 4 dims, but got {image.ndim} dimensions instead.",
                 ValueError)
            need(len(image) == len(labels), "The batch size of the image or video does not match the batch size of the "
                                            f"labels: {len(image)} != {len(labels)}.", ValueError)
        params = self.make_params(images)
        made = [self.transform(one, params) if yes else self._mixed_labels(one, params["kept"]) if one is labels
                else one for one, yes in zip(flat, taken)]
        return tree_unflatten(made, structure)

    def _checked_labels(self, labels):
        need(isinstance(labels, Tensor), f"The labels must be a tensor, but got {type(labels)} instead.", ValueError)
        need(labels.ndim in (1, 2), "labels should be index based with shape (batch_size,) or probability based with "
                                    "shape (batch_size, num_classes), but got a tensor of shape "
                                    f"{labels.shape} instead.", ValueError)
        need(labels.ndim == 1 or self.num_classes in (None, labels.shape[-1]),
             "When passing 2D labels, the number of elements in last dimension must match num_classes: "
             f"{labels.shape[-1]} != {self.num_classes}. You can Leave num_classes to None.", ValueError)
        need(labels.ndim == 2 or self.num_classes is not None,
             "num_classes must be passed if the labels are index-based (1D)", ValueError)
        return labels

    def _mixed_labels(self, labels, kept):
        """`kept` of each label, one-hot where it was a number, and the rest of the label before it."""
        if labels.ndim == 1:
            labels = functional.one_hot(labels, num_classes=self.num_classes)
        return blend(labels if labels.dtype.is_floating_point else labels.float(), kept)


def blend(batch, kept):
    """`kept` [n] of each sample, and the rest of the one before it."""
    kept = of_samples(kept, batch)
    return batch.roll(1, 0).mul_(1.0 - kept).add_(batch * kept)


class MixUp(_Mixing):
    """Each picture and label blended with the one before it in the batch (Zhang and others 2018).

    How much stays is drawn for each sample from the beta distribution with the parameters `alpha`. Labels are numbers
    of classes, of which there are `num_classes`, or already one share for each class.

    >>> from flambeau.data import transforms
    >>> images, labels = transforms.MixUp(num_classes=10)(torch.rand(4, 3, 8, 8), torch.arange(4))
    >>> labels.shape, bool((labels.sum(1) - 1).abs().max() < 1e-6)
    (torch.Size([4, 10]), True)
    """

    def draw(self, n, inputs, random):
        return {"kept": beta(random, self.alpha)}

    def transform(self, inpt, params):
        return blend(inpt, params["kept"])


class CutMix(_Mixing):
    """A rectangle of each picture replaced by that of the one before it in the batch (Yun and others 2019).

    The label is mixed as the areas are. The size is drawn for each sample from the beta distribution with the
    parameters `alpha`, the place evenly.
    """

    def draw(self, n, inputs, random):
        height, width = F.get_size(inputs[0])
        half = 0.5 * np.sqrt(1.0 - beta(random, self.alpha))
        x, y = random.integers(0, width)[:, 0], random.integers(0, height)[:, 0]
        half_width, half_height = (half * width).astype(np.int64), (half * height).astype(np.int64)
        box = np.stack([(x - half_width).clip(0), (y - half_height).clip(0), (x + half_width).clip(max=width),
                        (y + half_height).clip(max=height)], 1)
        return {"box": box, "kept": 1.0 - (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1]) / (width * height)}

    def transform(self, inpt, params):
        left, top, right, bottom = params["box"].T[..., None]
        height, width = inpt.shape[-2:]
        columns = (np.arange(width) >= left) & (np.arange(width) < right)
        rows = (np.arange(height) >= top) & (np.arange(height) < bottom)
        inside = from_array(rows[:, None, :, None].copy(), where=inpt.device) \
            & from_array(columns[:, None, None, :].copy(), where=inpt.device)
        return where(inside, inpt.roll(1, 0), inpt)
