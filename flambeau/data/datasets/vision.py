"""The base class of datasets of pictures, and of those whose pictures are all of one size.

Note [Whole batches]: a loader asks a dataset for many samples at once (`__getitems__`). Where the transform is made of
steps that give a picture of Pillow's and a tensor of its bytes the same numbers, the whole batch goes through them as
one tensor. The steps are listed, since most others (resizing, turning) differ between the two in a last digit. What
they draw is the same as well: every sample of a batch draws from its own stream.
"""
import os
from contextlib import nullcontext

from ...base import dtypes
from ...utils.data import Dataset, dataset
from .. import transforms as T

__all__ = ["StandardTransform", "VisionDataset"]


class VisionDataset(Dataset):
    """Samples with an image and a target, and the transforms that they go through."""

    randomness = "sample"     # what a sample draws in a loader is its own, in any worker and after any others
    _repr_indent = 4

    def __init__(self, root=None, transforms=None, transform=None, target_transform=None):
        self.root = os.path.expanduser(root) if isinstance(root, str) else root
        separate = transform is not None or target_transform is not None
        if transforms is not None and separate:
            raise ValueError("Only transforms or transform/target_transform can be passed as argument")
        self.transform = transform
        self.target_transform = target_transform
        self.transforms = StandardTransform(transform, target_transform) if separate else transforms

    def __getitem__(self, index):
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__: a subclass of VisionDataset needs one")

    def __len__(self):
        raise NotImplementedError(f"{type(self).__name__} has no __len__: a subclass of VisionDataset needs one")

    def __repr__(self):
        body = [f"Number of datapoints: {len(self)}"]
        if self.root is not None:
            body.append(f"Root location: {self.root}")
        body += self.extra_repr().splitlines()
        if getattr(self, "transforms", None) is not None:
            body.append(repr(self.transforms))
        return "\n".join([f"Dataset {type(self).__name__}", *[" " * self._repr_indent + line for line in body]])

    def extra_repr(self):
        """Lines of a subclass for its repr."""
        return ""


class PicturesOfOneSize(VisionDataset):
    """Pictures that have one size, with a number for each: `data` and `targets`.

    A sample is a picture of Pillow's and its target, each transformed. A batch is taken whole where it can be, see Note
    [Whole batches]. With `train=False` it is evaluation data, for which random transforms are refused.
    """

    train = True

    def __init__(self, root=None, train=True, transform=None, target_transform=None):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        if not train:
            T.check_evaluation(self.transforms, self)

    def _sample(self, index):
        """A picture as Pillow has them, and its target."""
        raise NotImplementedError(f"{type(self).__name__} has no _sample")

    def _batch(self, indices):
        """Several pictures, a tensor of bytes [N, C, H, W], and a list of their targets."""
        raise NotImplementedError(f"{type(self).__name__} has no _batch")

    def _transformed(self, target):
        return target if self.target_transform is None else self.target_transform(target)

    def __getitem__(self, index):
        picture, target = self._sample(index)
        with nullcontext() if self.train else T.evaluating(self):
            if self.transform is not None:
                picture = self.transform(picture)
            return picture, self._transformed(target)

    def __getitems__(self, indices):
        # A subclass with samples of its own (an index beside the label) is asked for each of them.
        steps = tensor_steps(self.transform) if type(self).__getitem__ is PicturesOfOneSize.__getitem__ else None
        if steps is None:
            return dataset.single_samples(self, indices)
        batch, targets = self._batch(indices)
        with nullcontext() if self.train else T.evaluating(self):
            for step in steps:
                batch = step(batch)
            return list(zip(batch.unbind(), [self._transformed(target) for target in targets]))

    def __len__(self):
        return len(self.data)


# Steps that do to the bytes of a picture what they do to the picture, and to a batch what they do to each of it.
SAME_FOR_PICTURES = (T.CenterCrop, T.Pad, T.RandomCrop, T.RandomHorizontalFlip, T.RandomVerticalFlip)
SAME_FOR_BATCHES = (*SAME_FOR_PICTURES, T.ConvertImageDtype, T.Normalize, T.ToDtype)
# Steps by which a picture becomes a tensor, and what they do to its bytes.
TO_TENSOR = {T.ToTensor: lambda batch: batch.to(dtypes.float32).div(255), T.ToImage: lambda batch: batch,
             T.PILToTensor: lambda batch: batch}


def tensor_steps(transform):
    """What to do with a batch of bytes [N, C, H, W] in place of `transform` with each picture; None if that is not
    the same, see Note [Whole batches]."""
    steps = transform.transforms if type(transform) is T.Compose else [transform]
    at = next((i for i, step in enumerate(steps) if type(step) in TO_TENSOR), None)
    if at is None or not all(type(step) in SAME_FOR_PICTURES for step in steps[:at]) \
            or not all(type(step) in SAME_FOR_BATCHES for step in steps[at + 1:]):
        return None
    return [*steps[:at], TO_TENSOR[type(steps[at])], *steps[at + 1:]]


class StandardTransform:
    """One transform for the image and one for the target."""

    def __init__(self, transform=None, target_transform=None):
        self.transform = transform
        self.target_transform = target_transform

    def __call__(self, input, target):
        if self.transform is not None:
            input = self.transform(input)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return input, target

    def __repr__(self):
        lines = [type(self).__name__]
        for head, transform in (("Transform: ", self.transform), ("Target transform: ", self.target_transform)):
            if transform is not None:
                first, *more = repr(transform).splitlines()
                lines += [head + first, *[" " * len(head) + line for line in more]]
        return "\n".join(lines)
