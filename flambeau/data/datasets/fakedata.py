"""Pictures of random numbers, for trying a program without data."""
from ...base.errors import need
from ...tensor.random import Generator, randint, randn
from .vision import PicturesOfOneSize

__all__ = ["FakeData"]


class FakeData(PicturesOfOneSize):
    """`size` pictures whose numbers, and class, are drawn from a seed of their own: `random_offset` plus the index."""

    def __init__(self, size=1000, image_size=(3, 224, 224), num_classes=10, transform=None, target_transform=None,
                 random_offset=0):
        super().__init__(transform=transform, target_transform=target_transform)
        self.size = size
        self.num_classes = num_classes
        self.image_size = image_size
        self.random_offset = random_offset

    def _drawn(self, index):
        """The bytes of a picture, and its class, a tensor."""
        need(index < len(self), f"{type(self).__name__} index out of range", IndexError)
        own = Generator()
        own.manual_seed(index + self.random_offset)
        numbers = randn(*self.image_size, generator=own)
        return numbers.mul(255).byte(), randint(0, self.num_classes, (1,), generator=own)[0]

    def __getitem__(self, index):
        from ..transforms.functional import to_pil_image
        picture, target = self._drawn(index)
        picture = to_pil_image(picture)
        if self.transform is not None:
            picture = self.transform(picture)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return picture, target.item()

    def __len__(self):
        return self.size
