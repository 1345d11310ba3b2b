"""Functions of the colours of images: each pixel for itself, or with the whole image around it.

A factor is a number, or for a batch one for each sample; see dispatch.py.
"""
import numpy as np

from ....base import dtypes
from ....tensor.create import from_array
from ....tensor.functions import cat, where
from ..colour_kernels import (
    LUMA,
    added_product,
    blended,
    computed_in,
    equalizing_tables,
    hue_turned,
    looked_up,
    max_value,
)
from .convert import to_dtype, value_bits
from .dispatch import is_number, numbers_of, of_images, per_sample, samples_of


def need_channels(image, message="Input image tensor permitted channel values are 1 or 3, but found {}"):
    """The number of channels, which has to be 1 or 3."""
    channels = image.shape[-3]
    if channels not in (1, 3):
        raise TypeError(message.format(channels))
    return channels


def factors(value, image, name, least=0.0, most=np.inf):
    """`value`, a number or one for each sample of `image`, as an array [n]; all of them from `least` to `most`."""
    found = numbers_of(value, samples_of(image), name)
    wrong = found[~((found >= least) & (found <= most))]
    if wrong.size:
        raise ValueError(f"{name} ({value if is_number(value) else wrong[0]}) is not "
                         f"{'non-negative' if most == np.inf else f'in [{least}, {most}]'}.")
    return found


def grey_of(image):
    """`image` [..., 3, H, W] in grey, in the dtype it is computed in, with one channel."""
    red, green, blue = (image.narrow(-3, i, 1) for i in range(3))
    return (red * LUMA[0]).add(green, alpha=LUMA[1]).add(blue, alpha=LUMA[2])


def grey_levels(image):
    """`grey_of`, in whole levels where `image` has them."""
    made = grey_of(image)
    return made if image.dtype.is_floating_point else made.floor()


def mixed(image, other, ratio):
    """`ratio` [n] of `image`, and the rest of `other`."""
    return blended(image, other, per_sample(ratio, image), per_sample(1.0 - ratio, image))


@of_images
def rgb_to_grayscale(inpt, num_output_channels=1):
    """`inpt` in grey, with one channel or three equal ones."""
    if num_output_channels not in (1, 3):
        raise ValueError(f"num_output_channels must be 1 or 3, got {num_output_channels}.")
    if inpt.shape[-3] == 1:
        return inpt.clone() if num_output_channels == 1 else cat([inpt] * 3, -3)
    made = grey_of(inpt).to(inpt.dtype)
    return made if num_output_channels == 1 else made.expand(inpt.shape)


to_grayscale = rgb_to_grayscale


@of_images
def grayscale_to_rgb(inpt):
    """`inpt` with three channels, if it has one."""
    return inpt if inpt.shape[-3] >= 3 else cat([inpt] * 3, -3)


@of_images
def adjust_brightness(inpt, brightness_factor):
    """`inpt` times `brightness_factor`: 0 is black, 1 changes nothing."""
    factor = factors(brightness_factor, inpt, "brightness_factor")
    need_channels(inpt)
    made = (inpt * per_sample(factor, inpt)).clamp(0, max_value(inpt.dtype))
    return made.to(inpt.dtype)


@of_images
def adjust_contrast(inpt, contrast_factor):
    """`inpt` moved away from its mean grey, or towards it: 0 is grey, 1 changes nothing."""
    factor = factors(contrast_factor, inpt, "contrast_factor")
    grey = grey_levels(inpt) if need_channels(inpt) == 3 else inpt.to(computed_in(inpt.dtype))
    return mixed(inpt, grey.mean((-3, -2, -1), keepdim=True), factor)


@of_images
def adjust_saturation(inpt, saturation_factor):
    """`inpt` with its colours moved away from grey, or towards it: 0 is grey, 1 changes nothing."""
    factor = factors(saturation_factor, inpt, "saturation_factor")
    if need_channels(inpt) == 1:
        return inpt
    return mixed(inpt, grey_levels(inpt), factor)


@of_images
def adjust_hue(inpt, hue_factor):
    """`inpt` with its hues turned by `hue_factor` of the whole circle, from -0.5 to 0.5."""
    factor = factors(hue_factor, inpt, "hue_factor", -0.5, 0.5)
    if need_channels(inpt) == 1 or not inpt.numel():
        return inpt
    image = inpt if inpt.dtype in (dtypes.uint8, dtypes.float32) else to_dtype(inpt, dtypes.float32, scale=True)
    made = hue_turned(*[image.narrow(-3, i, 1) for i in range(3)], per_sample(factor, image))
    return to_dtype(cat(made, -3), inpt.dtype, scale=True)


@of_images
def adjust_gamma(inpt, gamma, gain=1):
    """`gain` times `inpt` to the power of `gamma`."""
    power = numbers_of(gamma, samples_of(inpt), "gamma")
    if (power < 0).any():
        raise ValueError("Gamma should be a non-negative real number")
    image = to_dtype(inpt, computed_in(inpt.dtype), scale=True)
    made = image.pow(gamma if is_number(gamma) else per_sample(power, image))
    if gain != 1:
        made = (made * gain).clamp(0.0, 1.0)
    return to_dtype(made, inpt.dtype, scale=True)


@of_images
def adjust_sharpness(inpt, sharpness_factor):
    """`inpt` moved away from its blurred self, or towards it: 0 is blurred, 1 changes nothing."""
    need_channels(inpt, "Input image tensor can have 1 or 3 channels, but found {}")
    factor = factors(sharpness_factor, inpt, "sharpness_factor")
    height, width = inpt.shape[-2:]
    if not inpt.numel() or height <= 2 or width <= 2:
        return inpt
    image = inpt.to(computed_in(inpt.dtype))
    inner = image[..., 1:-1, 1:-1]
    around = None                       # the nine pixels around each: views, and one pass over them all
    for down in range(3):
        for right in range(3):
            one = image[..., down:height - 2 + down, right:width - 2 + right]
            around = one if around is None else around + one
    blurred = (around + inner * 4.0) * (1.0 / 13.0)
    if not inpt.dtype.is_floating_point:
        blurred = blurred.round()
    rest = per_sample(1.0 - factor, image)
    made = image.clone()
    made[..., 1:-1, 1:-1] = added_product(inner, blurred - inner, rest)
    return made.clamp(0, max_value(inpt.dtype)).to(inpt.dtype)


@of_images
def posterize(inpt, bits):
    """`inpt` with only its highest `bits` left, from 0 to 8."""
    if is_number(bits) and not isinstance(bits, int):
        raise TypeError(f"bits must be a positive integer in the range [0, 8], got {bits} instead.")
    left = numbers_of(bits, samples_of(inpt), "bits", np.int64)
    if ((left < 0) | (left > 8)).any():
        raise TypeError(f"bits must be a positive integer in the range [0, 8], got {bits} instead.")
    if inpt.dtype.is_floating_point:
        levels = 2.0 ** left
        last, share = per_sample(levels - 1, inpt), per_sample(1.0 / levels, inpt)
        return (inpt * per_sample(levels, inpt)).floor().clamp(min=0).minimum(last) * share
    size = value_bits(inpt.dtype)
    if (left >= size).all():
        return inpt
    masks = np.where(left >= size, (1 << size) - 1, ((1 << left) - 1) << (size - left).clip(0))
    if inpt.ndim <= 3:
        return inpt & int(masks[0])
    mask_dtype = {8: np.uint8, 7: np.int8, 15: np.int16, 16: np.uint16, 31: np.int32, 63: np.int64}[size]
    return inpt & from_array(masks.astype(mask_dtype).reshape(-1, *[1] * (inpt.ndim - 1)), where=inpt.device)


@of_images
def solarize(inpt, threshold):
    """`inpt`, inverted where it is at least `threshold`."""
    bounds = numbers_of(threshold, samples_of(inpt), "threshold")
    if (bounds > max_value(inpt.dtype)).any():
        raise TypeError("Threshold should be less or equal the maximum value of the dtype, but got "
                        f"{threshold if is_number(threshold) else bounds.max()}")
    bright = inpt >= (threshold if is_number(threshold) else per_sample(bounds, inpt))
    return where(bright, invert.of_tensor(inpt), inpt)


@of_images
def autocontrast(inpt):
    """`inpt` with each channel stretched from its least and its largest value to all there are."""
    need_channels(inpt)
    if not inpt.numel():
        return inpt
    bound, image = max_value(inpt.dtype), inpt.to(computed_in(inpt.dtype))
    low, high = image.amin((-2, -1), keepdim=True), image.amax((-2, -1), keepdim=True)
    flat = high == low
    scale = where(flat, 1.0, (high - low) * (1.0 / bound))
    return ((image - where(flat, 0.0, low)) / scale).clamp(0, bound).to(inpt.dtype)


@of_images
def equalize(inpt):
    """`inpt` with the values of each channel spread evenly."""
    if not inpt.numel():
        return inpt
    image = to_dtype(inpt, dtypes.uint8, scale=True)
    flat = image.reshape(1, -1, image.shape[-2] * image.shape[-1])
    table = equalizing_tables(image).reshape(1, -1, 256)
    return to_dtype(looked_up(flat, table).reshape(image.shape), inpt.dtype, scale=True)


@of_images
def invert(inpt):
    """What is missing to full brightness."""
    if inpt.dtype.is_floating_point:
        return 1.0 - inpt
    if inpt.dtype is dtypes.uint8:
        return inpt.bitwise_not()
    return inpt.bitwise_xor((1 << value_bits(inpt.dtype)) - 1)


@of_images
def permute_channels(inpt, permutation):
    """`inpt` with its channels in the order of `permutation`; for a batch, also one order for each sample."""
    order = np.asarray(permutation.detach().cpu().numpy() if hasattr(permutation, "detach") else permutation, np.int64)
    channels = inpt.shape[-3]
    if order.shape[-1] != channels:
        raise ValueError(f"Length of permutation does not match number of channels: {order.shape[-1]} != {channels}")
    if not inpt.numel():
        return inpt
    if order.ndim == 1:
        return inpt.index_select(inpt.ndim - 3, from_array(order.copy(), where=inpt.device))
    index = from_array(order.reshape(len(order), *[1] * (inpt.ndim - 4), channels, 1, 1).copy(), where=inpt.device)
    return inpt.gather(inpt.ndim - 3, index.expand(inpt.shape))
