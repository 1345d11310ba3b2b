"""Augmentations that choose their operations by themselves: AutoAugment, RandAugment, TrivialAugmentWide, AugMix.

Each sample of a batch draws its own operations and how strongly they act. The samples that have drawn the same one are
brought together, done in one call with a strength for each, and put back in their places.
"""
import enum

import numpy as np

from ...base.errors import need
from ...tensor.create import from_array
from ...tensor.functions import cat, linspace
from ...tensor.tensor import Tensor
from . import functional as F
from .arguments import fill_for, fill_table
from .base import Transform
from .colour_kernels import max_value
from .functional.dispatch import is_pillow, samples_of
from .functional.warps import affine_tables, inverse_affine_matrix, warp
from .gamma import dirichlet
from .modes import as_shown, interpolation_mode

__all__ = ["AugMix", "AutoAugment", "AutoAugmentPolicy", "RandAugment", "TrivialAugmentWide"]


class AutoAugmentPolicy(enum.Enum):
    """The sets of policies that AutoAugment has learned, named after what they were learned on."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


# --- operations -----------------------------------------------------------------------------------------------------

# An operation takes images, the magnitude (a number, or for a batch an array with one for each sample), and how pixels
# are found between pixels and outside of the image.


def shear(horizontal):
    """Move pixels by `magnitude` for each row (or column) from the top left corner on."""
    def run(images, magnitude, interpolation, fill):
        angle, none = np.degrees(np.arctan(magnitude)), 0.0 * magnitude
        return F.affine(images, angle=0.0, translate=[0, 0], scale=1.0, shear=pair(angle, none, horizontal),
                        interpolation=interpolation, fill=fill, center=[0, 0])
    return run


def translate(horizontal):
    """Move by so many whole pixels."""
    def run(images, magnitude, interpolation, fill):
        pixels = np.trunc(magnitude).astype(np.int64) if isinstance(magnitude, np.ndarray) else int(magnitude)
        return F.affine(images, angle=0.0, translate=pair(pixels, 0 * pixels, horizontal), scale=1.0, shear=[0.0, 0.0],
                        interpolation=interpolation, fill=fill)
    return run


def pair(along, across, horizontal):
    """[x, y], for a batch [n, 2]."""
    both = (along, across) if horizontal else (across, along)
    return np.stack(both, 1) if isinstance(along, np.ndarray) else [part.item() if hasattr(part, "item") else part
                                                                    for part in both]


def rotate(images, magnitude, interpolation, fill):
    return F.rotate(images, angle=magnitude, interpolation=interpolation, fill=fill)


def solarize(images, magnitude, interpolation, fill):
    bound = 255.0 if is_pillow(images) else float(max_value(images.dtype))
    return F.solarize(images, threshold=bound * magnitude)


def posterize(images, magnitude, interpolation, fill):
    return F.posterize(images, bits=magnitude.astype(np.int64) if isinstance(magnitude, np.ndarray) else int(magnitude))


OPERATIONS = {
    "ShearX": shear(True),
    "ShearY": shear(False),
    "TranslateX": translate(True),
    "TranslateY": translate(False),
    "Rotate": rotate,
    "Brightness": lambda images, magnitude, *_: F.adjust_brightness(images, 1.0 + magnitude),
    "Color": lambda images, magnitude, *_: F.adjust_saturation(images, 1.0 + magnitude),
    "Contrast": lambda images, magnitude, *_: F.adjust_contrast(images, 1.0 + magnitude),
    "Sharpness": lambda images, magnitude, *_: F.adjust_sharpness(images, 1.0 + magnitude),
    "Posterize": posterize,
    "Solarize": solarize,
    "AutoContrast": lambda images, *_: F.autocontrast(images),
    "Equalize": lambda images, *_: F.equalize(images),
    "Invert": lambda images, *_: F.invert(images),
}
NUMBERED_OPERATIONS = list(OPERATIONS.values())
NUMBERS = {"Identity": -1, **{name: number for number, name in enumerate(OPERATIONS)}}
LAST_MOVE = NUMBERS["Rotate"]                                 # up to it they move pixels, the others change colours


# --- how strongly they act ------------------------------------------------------------------------------------------


class Range:
    """Magnitudes in equal steps from `first` to `last`, which may depend on the image's height and width."""

    def __init__(self, last, first=0.0, signed=True):
        self.first, self.last, self.signed = first, last, signed

    def magnitudes(self, bins, height, width):
        """All of them, float64 of the float32 numbers that they are in torchvision."""
        last = self.last(height, width) if callable(self.last) else self.last
        return np.array(linspace(self.first, last, bins).tolist())


class Bits:
    """Numbers of bits, from `first` to `fewer` less than that."""

    signed = False

    def __init__(self, first, fewer):
        self.first, self.fewer = first, fewer

    def magnitudes(self, bins, height, width):
        steps = np.arange(bins, dtype=np.float32) / np.float32((bins - 1) / self.fewer)
        return np.round(np.float32(self.first) - steps).astype(np.float64)


INVERTED_SHARE = Range(0.0, first=1.0, signed=False)          # of full brightness, from which on Solarize inverts
ENHANCEMENTS = ("Brightness", "Color", "Contrast", "Sharpness")

AUTO_SPACE = {
    "ShearX": Range(0.3), "ShearY": Range(0.3),
    "TranslateX": Range(lambda height, width: 150.0 / 331.0 * width),
    "TranslateY": Range(lambda height, width: 150.0 / 331.0 * height),
    "Rotate": Range(30.0), **dict.fromkeys(ENHANCEMENTS, Range(0.9)),
    "Posterize": Bits(8, 4), "Solarize": INVERTED_SHARE, "AutoContrast": None, "Equalize": None, "Invert": None,
}
RAND_SPACE = {"Identity": None, **{name: strength for name, strength in AUTO_SPACE.items() if name != "Invert"}}
TRIVIAL_SPACE = {
    "Identity": None, "ShearX": Range(0.99), "ShearY": Range(0.99), "TranslateX": Range(32.0),
    "TranslateY": Range(32.0), "Rotate": Range(135.0), **dict.fromkeys(ENHANCEMENTS, Range(0.99)),
    "Posterize": Bits(8, 6), "Solarize": INVERTED_SHARE, "AutoContrast": None, "Equalize": None,
}
MIX_SPACE = {
    "ShearX": Range(0.3), "ShearY": Range(0.3), "TranslateX": Range(lambda height, width: width / 3.0),
    "TranslateY": Range(lambda height, width: height / 3.0), "Rotate": Range(30.0), "Posterize": Bits(4, 4),
    "Solarize": INVERTED_SHARE, "AutoContrast": None, "Equalize": None,
}
ALL_MIX_SPACE = {**MIX_SPACE, **dict.fromkeys(ENHANCEMENTS, Range(0.9))}

# Pairs of operations: the name, with which probability it is applied, and its magnitude, of ten.
POLICIES = {
    AutoAugmentPolicy.IMAGENET: """
        Posterize 0.4 8 Rotate 0.6 9; Solarize 0.6 5 AutoContrast 0.6 -; Equalize 0.8 - Equalize 0.6 -;
        Posterize 0.6 7 Posterize 0.6 6; Equalize 0.4 - Solarize 0.2 4; Equalize 0.4 - Rotate 0.8 8;
        Solarize 0.6 3 Equalize 0.6 -; Posterize 0.8 5 Equalize 1 -; Rotate 0.2 3 Solarize 0.6 8;
        Equalize 0.6 - Posterize 0.4 6; Rotate 0.8 8 Color 0.4 0; Rotate 0.4 9 Equalize 0.6 -;
        Equalize 0 - Equalize 0.8 -; Invert 0.6 - Equalize 1 -; Color 0.6 4 Contrast 1 8; Rotate 0.8 8 Color 1 2;
        Color 0.8 8 Solarize 0.8 7; Sharpness 0.4 7 Invert 0.6 -; ShearX 0.6 5 Equalize 1 -;
        Color 0.4 0 Equalize 0.6 -; Equalize 0.4 - Solarize 0.2 4; Solarize 0.6 5 AutoContrast 0.6 -;
        Invert 0.6 - Equalize 1 -; Color 0.6 4 Contrast 1 8; Equalize 0.8 - Equalize 0.6 -""",
    AutoAugmentPolicy.CIFAR10: """
        Invert 0.1 - Contrast 0.2 6; Rotate 0.7 2 TranslateX 0.3 9; Sharpness 0.8 1 Sharpness 0.9 3;
        ShearY 0.5 8 TranslateY 0.7 9; AutoContrast 0.5 - Equalize 0.9 -; ShearY 0.2 7 Posterize 0.3 7;
        Color 0.4 3 Brightness 0.6 7; Sharpness 0.3 9 Brightness 0.7 9; Equalize 0.6 - Equalize 0.5 -;
        Contrast 0.6 7 Sharpness 0.6 5; Color 0.7 7 TranslateX 0.5 8; Equalize 0.3 - AutoContrast 0.4 -;
        TranslateY 0.4 3 Sharpness 0.2 6; Brightness 0.9 6 Color 0.2 8; Solarize 0.5 2 Invert 0 -;
        Equalize 0.2 - AutoContrast 0.6 -; Equalize 0.2 - Equalize 0.6 -; Color 0.9 9 Equalize 0.6 -;
        AutoContrast 0.8 - Solarize 0.2 8; Brightness 0.1 3 Color 0.7 0; Solarize 0.4 5 AutoContrast 0.9 -;
        TranslateY 0.9 9 TranslateY 0.7 9; AutoContrast 0.9 - Solarize 0.8 3; Equalize 0.8 - Invert 0.1 -;
        TranslateY 0.7 9 AutoContrast 0.9 -""",
    AutoAugmentPolicy.SVHN: """
        ShearX 0.9 4 Invert 0.2 -; ShearY 0.9 8 Invert 0.7 -; Equalize 0.6 - Solarize 0.6 6;
        Invert 0.9 - Equalize 0.6 -; Equalize 0.6 - Rotate 0.9 3; ShearX 0.9 4 AutoContrast 0.8 -;
        ShearY 0.9 8 Invert 0.4 -; ShearY 0.9 5 Solarize 0.2 6; Invert 0.9 - AutoContrast 0.8 -;
        Equalize 0.6 - Rotate 0.9 3; ShearX 0.9 4 Solarize 0.3 3; ShearY 0.8 8 Invert 0.7 -;
        Equalize 0.9 - TranslateY 0.6 6; Invert 0.9 - Equalize 0.6 -; Contrast 0.3 3 Rotate 0.8 4;
        Invert 0.8 - TranslateY 0 2; ShearY 0.7 6 Solarize 0.4 8; Invert 0.6 - Rotate 0.8 4;
        ShearY 0.3 7 TranslateX 0.9 3; ShearX 0.1 6 Invert 0.6 -; Solarize 0.7 2 TranslateY 0.6 7;
        ShearY 0.8 4 Invert 0.8 -; ShearX 0.7 9 TranslateY 0.8 3; ShearY 0.8 5 AutoContrast 0.7 -;
        ShearX 0.7 2 Invert 0.1 -""",
}
AUTO_BINS = 10


def policies_of(policy):
    """[((name, probability, magnitude or None), the same for the second operation)] of a policy."""
    need(policy in POLICIES, f"The provided policy {policy} is not recognized.", ValueError)
    found = []
    for line in POLICIES[policy].split(";"):
        words = line.split()
        found.append(tuple((name, float(p), None if number == "-" else int(number))
                           for name, p, number in (words[:3], words[3:])))
    return found


class Space:
    """A table of operations for drawing: their numbers, the magnitudes of each, and which of them have a sign."""

    def __init__(self, space, bins, image):
        height, width = F.get_size(image)
        self.numbers = np.array([NUMBERS[name] for name in space])
        self.signed = np.array([strength is not None and strength.signed for strength in space.values()])
        self.magnitudes = np.stack([np.zeros(bins) if strength is None else strength.magnitudes(bins, height, width)
                                    for strength in space.values()])
        self.at = {name: i for i, name in enumerate(space)}

    def chosen(self, which, bins, negative):
        """The operations `which` of the table and their magnitudes, number `bins`, turned round where `negative`."""
        sign = np.where(self.signed[which] & negative, -1.0, 1.0)
        return {"operation": self.numbers[which], "magnitude": self.magnitudes[which, bins] * sign}


# --- the transforms -------------------------------------------------------------------------------------------------


class _AutomaticAugmentation(Transform):
    """What augmentations that choose their operations have in common: one image, and steps of operations."""

    is_random = True

    def __init__(self, *, interpolation="nearest", fill=None):
        super().__init__()
        self.interpolation = as_shown(interpolation)
        self.fill = fill
        self._fill = fill_table(fill)

    def make_params(self, flat_inputs):
        need(flat_inputs, "Found no image in the sample.", TypeError)
        need(len(flat_inputs) == 1, "Auto augment transformations are only properly defined for a single image or "
                                    f"video, but found {len(flat_inputs)}.", TypeError)
        return super().make_params(flat_inputs)

    def transform(self, inpt, params):
        """The steps that were drawn: params["operation"] and params["magnitude"] are [n, steps]."""
        return in_steps(inpt, params["operation"], params["magnitude"], self.interpolation,
                        fill_for(self._fill, inpt))


def in_steps(images, operations, magnitudes, interpolation, fill):
    """`images` after the operations that each sample has drawn, in the order of the columns."""
    if len(operations) == 0:
        return images
    if samples_of(images) == 1 and not (isinstance(images, Tensor) and images.ndim > 3):
        for number, magnitude in zip(operations[0].tolist(), magnitudes[0].tolist()):
            images = operated(number, images, magnitude, interpolation, fill)
        return images
    sample_at = np.arange(len(operations))                    # which sample stands where
    for step in range(operations.shape[1]):
        order = np.argsort(operations[sample_at, step], kind="stable")
        images, sample_at = rows_of(images, order), sample_at[order]
        images = by_operation(images, operations[sample_at, step], magnitudes[sample_at, step], interpolation, fill)
    return rows_of(images, np.argsort(sample_at))


def rows_of(images, order):
    """The samples in this order."""
    if (order == np.arange(len(order))).all():
        return images
    return images.index_select(0, from_array(order.astype(np.int64), where=images.device))


def by_operation(images, numbers, magnitudes, interpolation, fill):
    """Each operation of `numbers`, which are sorted, on the samples that have drawn it. What moves pixels is one."""
    starts = np.flatnonzero(np.diff(np.where(numbers < 0, numbers, numbers.clip(LAST_MOVE)), prepend=-2))
    ends, made = [*starts[1:], len(numbers)], []
    for start, end in zip(starts, ends):
        number, part = int(numbers[start]), images[start:end]
        if 0 <= number <= LAST_MOVE:
            made.append(moved(part, numbers[start:end], magnitudes[start:end], interpolation, fill))
        else:
            made.append(operated(number, part, magnitudes[start:end], interpolation, fill))
    return made[0] if len(made) == 1 else cat(made)


def moved(images, numbers, magnitudes, interpolation, fill):
    """A batch whose samples are sheared, moved or turned, each as it has drawn: one map for each, in one pass."""
    height, width = images.shape[-2:]
    lean, pixels = np.zeros((len(numbers), 2)), np.zeros((len(numbers), 2))
    for axis, names in enumerate((("ShearX", "TranslateX"), ("ShearY", "TranslateY"))):
        sheared, translated = (numbers == NUMBERS[name] for name in names)
        lean[sheared, axis] = np.degrees(np.arctan(magnitudes[sheared]))
        pixels[translated, axis] = np.trunc(magnitudes[translated])
    angle = np.where(numbers == NUMBERS["Rotate"], -(magnitudes % 360), 0.0)
    # Shears start from the top left corner; all else is seen from the middle.
    corner = (numbers == NUMBERS["ShearX"]) | (numbers == NUMBERS["ShearY"])
    centre = [np.where(corner, -0.5 * width, 0.0), np.where(corner, -0.5 * height, 0.0)]
    matrix = inverse_affine_matrix(centre, angle, pixels, np.ones(len(numbers)), lean)
    return warp(images, affine_tables(matrix, (height, width), images.dtype), interpolation_mode(interpolation), fill)


def operated(number, images, magnitude, interpolation, fill):
    """One operation on images; -1 is none."""
    return images if number < 0 else NUMBERED_OPERATIONS[number](images, magnitude, interpolation, fill)


class AutoAugment(_AutomaticAugmentation):
    """Two operations of a pair that was learned for a dataset (Cubuk and others 2019), each with its probability."""

    def __init__(self, policy=AutoAugmentPolicy.IMAGENET, interpolation="nearest", fill=None):
        super().__init__(interpolation=interpolation, fill=fill)
        self.policy = policy
        self._policies = policies_of(policy)

    def draw(self, n, inputs, random):
        space = Space(AUTO_SPACE, AUTO_BINS, inputs[0])
        policy = random.integers(0, len(self._policies))[:, 0]
        chance, negative = random.uniform(2), random.uniform(2) <= 0.5
        which = np.array([[space.at[name] for name, _, _ in pair] for pair in self._policies])[policy]
        probability = np.array([[p for _, p, _ in pair] for pair in self._policies])[policy]
        bins = np.array([[number or 0 for _, _, number in pair] for pair in self._policies])[policy]
        drawn = space.chosen(which, bins, negative)
        drawn["operation"] = np.where(chance <= probability, drawn["operation"], NUMBERS["Identity"])
        return drawn


class RandAugment(_AutomaticAugmentation):
    """`num_ops` operations one after the other (Cubuk and others 2020), all with magnitude number `magnitude`.

    >>> from flambeau.data import transforms
    >>> transforms.RandAugment()(torch.zeros(4, 3, 8, 8, dtype=torch.uint8)).shape
    torch.Size([4, 3, 8, 8])
    """

    def __init__(self, num_ops=2, magnitude=9, num_magnitude_bins=31, interpolation="nearest", fill=None):
        super().__init__(interpolation=interpolation, fill=fill)
        need(isinstance(num_ops, int) and num_ops >= 0,
             f"num_ops should be a non-negative integer, but got {num_ops} instead.", ValueError)
        self.num_ops = num_ops
        self.magnitude = magnitude
        self.num_magnitude_bins = num_magnitude_bins

    def draw(self, n, inputs, random):
        space = Space(RAND_SPACE, self.num_magnitude_bins, inputs[0])
        which = random.integers(0, len(RAND_SPACE), self.num_ops)
        return space.chosen(which, self.magnitude, random.uniform(self.num_ops) <= 0.5)


class TrivialAugmentWide(_AutomaticAugmentation):
    """One operation, with one of `num_magnitude_bins` magnitudes (Müller and Hutter 2021)."""

    def __init__(self, num_magnitude_bins=31, interpolation="nearest", fill=None):
        super().__init__(interpolation=interpolation, fill=fill)
        self.num_magnitude_bins = num_magnitude_bins

    def draw(self, n, inputs, random):
        space = Space(TRIVIAL_SPACE, self.num_magnitude_bins, inputs[0])
        which = random.integers(0, len(TRIVIAL_SPACE))
        return space.chosen(which, random.integers(0, self.num_magnitude_bins), random.uniform() <= 0.5)


class AugMix(_AutomaticAugmentation):
    """The image mixed with `mixture_width` of its own augmentations, each of 1 to 3 operations, or of `chain_depth`
    (Hendrycks and others 2020)."""

    MOST_SEVERE = 10
    LONGEST_CHAIN = 3

    def __init__(self, severity=3, mixture_width=3, chain_depth=-1, alpha=1.0, all_ops=True, interpolation="bilinear",
                 fill=None):
        super().__init__(interpolation=interpolation, fill=fill)
        need(1 <= severity <= self.MOST_SEVERE,
             f"The severity must be between [1, {self.MOST_SEVERE}]. Got {severity} instead.", ValueError)
        self.severity = severity
        self.mixture_width = mixture_width
        self.chain_depth = chain_depth
        self.alpha = alpha
        self.all_ops = all_ops

    def draw(self, n, inputs, random):
        table = ALL_MIX_SPACE if self.all_ops else MIX_SPACE
        space = Space(table, self.MOST_SEVERE, inputs[0])
        width, depth = self.mixture_width, self.chain_depth if self.chain_depth > 0 else self.LONGEST_CHAIN
        own = dirichlet(random, self.alpha, 2)                # of the image itself, and of all augmentations
        weights = dirichlet(random, self.alpha, width) * own[:, 1:]
        steps = random.integers(1, depth + 1, width) if self.chain_depth <= 0 else np.full((n, width), depth)
        which = random.integers(0, len(table), width * depth)
        drawn = space.chosen(which, random.integers(0, self.severity, width * depth),
                             random.uniform(width * depth) <= 0.5)
        drawn = {name: column.reshape(n, width, depth) for name, column in drawn.items()}
        unused = np.arange(depth) >= steps[:, :, None]
        drawn["operation"] = np.where(unused, NUMBERS["Identity"], drawn["operation"])
        return {**drawn, "own": own[:, 0], "weights": weights}

    def transform(self, inpt, params):
        image = F.pil_to_tensor(inpt) if is_pillow(inpt) else inpt
        batch = image if image.ndim > 3 else image.unsqueeze(0)
        mixed = of_samples(params["own"], batch) * batch
        for chain in range(self.mixture_width):
            made = in_steps(batch, params["operation"][:, chain], params["magnitude"][:, chain], self.interpolation,
                            fill_for(self._fill, inpt))
            mixed = mixed + of_samples(params["weights"][:, chain], batch) * made
        mixed = mixed.reshape(image.shape).to(image.dtype)
        return F.to_pil_image(mixed) if is_pillow(inpt) else mixed


def of_samples(numbers, batch):
    """One number for each sample, a float32 tensor that meets the batch."""
    return from_array(numbers.astype(np.float32).reshape(-1, *[1] * (batch.ndim - 1)), where=batch.device)
