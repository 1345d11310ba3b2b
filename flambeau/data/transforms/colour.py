"""Transforms of colours: jitter, grey, inverting, levels, sharpness."""
from collections.abc import Sequence

import numpy as np

from ...base import dtypes
from ...tensor.create import from_array
from ...tensor.functions import where
from ...tensor.tensor import Tensor
from . import functional as F
from .arguments import query_chw
from .base import RandomApplyTransform, Transform, each, mask_of
from .colour_kernels import jittered
from .functional.dispatch import samples_of


class Grayscale(Transform):
    """The image in grey, with one channel or three."""

    def __init__(self, num_output_channels=1):
        super().__init__()
        self.num_output_channels = num_output_channels

    def transform(self, inpt, params): return F.rgb_to_grayscale(inpt, num_output_channels=self.num_output_channels)


class RandomGrayscale(RandomApplyTransform):
    """The image in grey with probability `p`, with as many channels as it has."""

    def __init__(self, p=0.1):
        super().__init__(p=p)

    def transform(self, inpt, params):
        return F.rgb_to_grayscale(inpt, num_output_channels=F.get_num_channels(inpt))


class RGB(Transform):
    """An image of one channel with three."""

    def transform(self, inpt, params): return F.grayscale_to_rgb(inpt)


JITTER_FACTORS = ("brightness_factor", "contrast_factor", "saturation_factor", "hue_factor")
JITTER_FUNCTIONS = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)


class ColorJitter(Transform):
    """Brightness, contrast, saturation and hue changed by as much as is drawn, in an order that is drawn too.

    Each is a range (low, high), or a number: so far to both sides of no change.
    """

    def __init__(self, brightness=None, contrast=None, saturation=None, hue=None):
        super().__init__()
        self.brightness = self._check_input(brightness, "brightness")
        self.contrast = self._check_input(contrast, "contrast")
        self.saturation = self._check_input(saturation, "saturation")
        self.hue = self._check_input(hue, "hue", 0, (-0.5, 0.5), False)

    def _check_input(self, value, name, center=1.0, bound=(0, float("inf")), clip_first_on_zero=True):
        """(low, high) of a factor, None where it changes nothing."""
        if value is None:
            return None
        if isinstance(value, (int, float)):
            if value < 0:
                raise ValueError(f"If {name} is a single number, it must be non negative.")
            low = center - value
            value = [max(low, 0.0) if clip_first_on_zero else low, center + value]
        elif isinstance(value, Sequence) and len(value) == 2:
            value = [float(v) for v in value]
        else:
            raise TypeError(f"{name}={value} should be a single number or a sequence with length 2.")
        if not bound[0] <= value[0] <= value[1] <= bound[1]:
            raise ValueError(f"{name} values should be between {bound} and increasing, but got {value}.")
        return None if value[0] == value[1] == center else (float(value[0]), float(value[1]))

    def draw(self, n, inputs, random):
        drawn = {"fn_idx": random.permutation(4)}
        for name, span in zip(JITTER_FACTORS, (self.brightness, self.contrast, self.saturation, self.hue), strict=True):
            # one number each, used or not: a sample's numbers do not depend on what else is asked for
            number = random.uniform()[:, 0]
            drawn[name] = None if span is None else span[0] + number * (span[1] - span[0])
        return drawn

    def transform(self, inpt, params):
        values = [params[name] for name in JITTER_FACTORS]
        wanted = [number for number, value in enumerate(values) if value is not None]
        if len(wanted) == 1:                                # then there is no order
            return JITTER_FUNCTIONS[wanted[0]](inpt, each(values[wanted[0]], inpt))
        return jitter(inpt, params["fn_idx"], values) if wanted else inpt


def jitter(inpt, order, values):
    """`inpt` through brightness, contrast, saturation and hue by `values`, each sample in its own `order` [n, 4]: which
    of the four comes when, -1 for none of them."""
    if isinstance(inpt, Tensor) and inpt.shape[-3] == 3 and inpt.dtype in (dtypes.uint8, dtypes.float32) \
            and inpt.numel():
        return jitter_batch(inpt, order, values)
    for turn in range(4):
        inpt = jitter_turn(inpt, order[:, turn], values)
    return inpt


def jitter_turn(inpt, function, values):
    """What comes next for each sample: `function` [n] says which of the four."""
    for number, (run, value) in enumerate(zip(JITTER_FUNCTIONS, values, strict=True)):
        now = function == number
        if value is not None and now.any():
            neutral = 0.0 if number == 3 else 1.0
            made = run(inpt, each(np.where(now, value, neutral), inpt))
            inpt = made if now.all() else where(mask_of(now, inpt), made, inpt)
    return inpt


def jitter_batch(image, order, values):
    """Images of three channels through brightness, contrast, saturation and hue, each in its own `order` [n, 4]."""
    n = samples_of(image)
    factors = np.zeros((n, 8))
    for number, value in enumerate(values):
        if value is None:
            order = np.where(order == number, -1, order)
        else:
            factors[:, 2 * number], factors[:, 2 * number + 1] = value, 1.0 - value
    flat = image.reshape(-1, 3, image.shape[-2] * image.shape[-1])
    parts = flat.shape[0] // n
    order, factors = (from_array(np.repeat(table, parts, 0), where=image.device)
                      for table in (order.astype(np.int64), factors.astype(np.float32)))
    return jittered(flat, order, factors).reshape(image.shape)


class RandomChannelPermutation(Transform):
    """The channels in another order."""

    def draw(self, n, inputs, random): return {"permutation": random.permutation(query_chw(inputs)[0])}

    def transform(self, inpt, params):
        order = params["permutation"]
        return F.permute_channels(inpt, order if isinstance(inpt, Tensor) and inpt.ndim > 3 else order[0])


class RandomPhotometricDistort(Transform):
    """Brightness, contrast, saturation and hue by factors from these ranges and the channels in another order, each
    with probability `p`; contrast comes before the saturation or after the hue."""

    def __init__(self, brightness=(0.875, 1.125), contrast=(0.5, 1.5), saturation=(0.5, 1.5), hue=(-0.05, 0.05), p=0.5):
        super().__init__()
        self.brightness = brightness
        self.contrast = contrast
        self.hue = hue
        self.saturation = saturation
        self.p = p

    def draw(self, n, inputs, random):
        channels = query_chw(inputs)[0]
        chances = random.uniform(6)
        order = np.where(chances[:, 4:5] < 0.5, (0, 1, 2, 3), (0, 2, 3, 1))
        chosen = np.take_along_axis(chances[:, :4] < self.p, order, 1)
        drawn = {"fn_idx": np.where(chosen, order, -1)}
        for name, span in zip(JITTER_FACTORS, (self.brightness, self.contrast, self.saturation, self.hue), strict=True):
            drawn[name] = random.uniform(1, float(span[0]), float(span[1]))[:, 0]
        permuted = random.permutation(channels)
        drawn["permutation"] = np.where(chances[:, 5:] < self.p, permuted, np.arange(channels))
        return drawn

    def transform(self, inpt, params):
        made = jitter(inpt, params["fn_idx"], [params[name] for name in JITTER_FACTORS])
        order = params["permutation"]
        if (order == np.arange(order.shape[1])).all():
            return made
        return F.permute_channels(made, order if isinstance(made, Tensor) and made.ndim > 3 else order[0])


class RandomInvert(RandomApplyTransform):
    """What is missing to full brightness, with probability `p`."""

    def transform(self, inpt, params): return F.invert(inpt)


class RandomPosterize(RandomApplyTransform):
    """Only the highest `bits`, with probability `p`."""

    def __init__(self, bits, p=0.5):
        super().__init__(p=p)
        self.bits = bits

    def transform(self, inpt, params): return F.posterize(inpt, bits=self.bits)


class RandomSolarize(RandomApplyTransform):
    """Inverted from `threshold` on, with probability `p`."""

    def __init__(self, threshold, p=0.5):
        super().__init__(p=p)
        self.threshold = threshold

    def transform(self, inpt, params): return F.solarize(inpt, threshold=self.threshold)


class RandomAutocontrast(RandomApplyTransform):
    """Each channel stretched to all values there are, with probability `p`."""

    def transform(self, inpt, params): return F.autocontrast(inpt)


class RandomEqualize(RandomApplyTransform):
    """The values of each channel spread evenly, with probability `p`."""

    def transform(self, inpt, params): return F.equalize(inpt)


class RandomAdjustSharpness(RandomApplyTransform):
    """Sharper or blurred by `sharpness_factor`, with probability `p`."""

    def __init__(self, sharpness_factor, p=0.5):
        super().__init__(p=p)
        self.sharpness_factor = sharpness_factor

    def transform(self, inpt, params): return F.adjust_sharpness(inpt, sharpness_factor=self.sharpness_factor)
