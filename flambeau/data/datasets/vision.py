"""The base class of datasets of pictures, and of those whose pictures are of one size and lie in memory."""
import os

from ...utils.data.dataset import Dataset

__all__ = ["StandardTransform", "VisionDataset"]


class VisionDataset(Dataset):
    """Samples with an image and a target, and the transforms that they go through."""

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
    """Pictures of one size in one array, `data`, with a number for each in `targets`.

    A sample is a picture of Pillow's and its target, each transformed. A batch is taken whole where the transform is
    one that gives the same numbers for many pictures at once as for each by itself.
    """

    def _picture(self, index):
        """One picture as Pillow has them."""
        raise NotImplementedError

    def _pictures(self, indices):
        """Several pictures, a tensor of bytes [N, C, H, W]."""
        raise NotImplementedError

    def __getitem__(self, index):
        picture, target = self._picture(index), int(self.targets[index])
        if self.transform is not None:
            picture = self.transform(picture)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return picture, target

    def __len__(self):
        return len(self.data)


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
