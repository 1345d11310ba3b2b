"""Pictures of random numbers, for trying a program without data."""
import numpy as np

from ...base.errors import need
from ...tensor.create import from_array
from ...tensor.generators import Generator
from ...tensor.random import randint, randn
from ...tensor.reading import array_of
from ..transforms import functional
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
        """The bytes of a picture [H, W, C], and its class, a tensor."""
        need(index < len(self), f"{type(self).__name__} index out of range", IndexError)
        own = Generator()
        own.manual_seed(index + self.random_offset)
        numbers = array_of(randn(*self.image_size, generator=own))
        # Half of them are no bytes, and NumPy decides what those become, by how they lie: as torchvision has them here.
        with np.errstate(invalid="ignore"):
            picture = (numbers.transpose(1, 2, 0) * 255).astype(np.uint8)
        return picture, randint(0, self.num_classes, (1,), generator=own)[0]

    def _sample(self, index):
        picture, target = self._drawn(index)
        return functional.to_pil_image(picture), target

    def _batch(self, indices):
        pictures, targets = zip(*[self._drawn(index) for index in indices])
        return from_array(np.ascontiguousarray(np.stack(pictures).transpose(0, 3, 1, 2))), targets

    def _transformed(self, target):
        return super()._transformed(target).item()

    def __len__(self):
        return self.size
