"""The functions of images, for Pillow's: Pillow does the work. Names, arguments and refusals are those of the tensors.

What Pillow lacks (elastic maps, blur over a number of pixels, erasing, other orders of channels) goes through tensors.
"""
import io
import warnings

import numpy as np
from PIL import Image

from ..modes import PILLOW_NUMBERS, interpolation_mode
from .colour import permute_channels as of_images
from .convert import channels_of, pil_to_tensor, pillow_from, to_pil_image
from .geometry import central_box, centre_padding, corner_crops, padding_of, resized_size, two_sizes
from .warps import affine_arguments, inverse_affine_matrix, perspective_arguments


def through_tensor(name):
    """The form for tensors, on an image of Pillow's."""
    def run(image, *args, **kwargs):
        from . import __dict__ as functions
        return to_pil_image(functions[name].of_tensor(pil_to_tensor(image), *args, **kwargs), mode=image.mode)
    run.__name__ = name
    return run


erase = through_tensor("erase")
elastic = through_tensor("elastic")
gaussian_blur = through_tensor("gaussian_blur")


def permute_channels(image, permutation):
    return to_pil_image(of_images.of_tensor(pil_to_tensor(image), permutation))


def jpeg(image, quality):
    file = io.BytesIO()
    image.save(file, format="JPEG", quality=quality)
    return Image.open(file).copy()             # an image, not a file that is read when it is looked at


def gaussian_noise(image, mean=0.0, sigma=0.1, clip=True, noise=None):
    raise ValueError("Gaussian Noise is not implemented for PIL images.")


# --- what there is ----------------------------------------------------------------------------------------------------


def get_dimensions(image): return [channels_of(image), image.height, image.width]
def get_num_channels(image): return channels_of(image)
def get_size(image): return [image.height, image.width]


# --- colour -----------------------------------------------------------------------------------------------------------


def rgb_to_grayscale(image, num_output_channels=1):
    if num_output_channels not in (1, 3):
        raise ValueError(f"num_output_channels must be 1 or 3, got {num_output_channels}.")
    grey = image.convert("L")
    return grey if num_output_channels == 1 else Image.merge("RGB", (grey, grey, grey))


def grayscale_to_rgb(image): return image.convert(mode="RGB")
def enhanced(name):
    """One of Pillow's enhancers. Its module, like that of the operations below, is loaded when it is asked for: every
    worker of a loader would load what a crop does not need."""
    def run(image, factor):
        from PIL import ImageEnhance
        return getattr(ImageEnhance, name)(image).enhance(factor)
    return run


def operation(name):
    """One of Pillow's ready operations."""
    def run(image, *args):
        from PIL import ImageOps
        return getattr(ImageOps, name)(image, *args)
    return run


def adjust_brightness(image, brightness_factor): return enhanced("Brightness")(image, brightness_factor)
def adjust_contrast(image, contrast_factor): return enhanced("Contrast")(image, contrast_factor)
def adjust_saturation(image, saturation_factor): return enhanced("Color")(image, saturation_factor)
def adjust_sharpness(image, sharpness_factor): return enhanced("Sharpness")(image, sharpness_factor)
def posterize(image, bits): return operation("posterize")(image, bits)
def solarize(image, threshold): return operation("solarize")(image, threshold)
def autocontrast(image): return operation("autocontrast")(image)
def equalize(image): return operation("equalize")(image)
def invert(image): return operation("invert")(image)


def adjust_hue(image, hue_factor):
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    if image.mode in ("L", "1", "I", "F"):
        return image
    hue, saturation, value = image.convert("HSV").split()
    turned = np.array(hue, np.uint8) + np.int32(hue_factor * 255).astype(np.uint8)        # a circle of 256
    return Image.merge("HSV", (pillow_from(turned, "L"), saturation, value)).convert(image.mode)


def adjust_gamma(image, gamma, gain=1):
    if gamma < 0:
        raise ValueError("Gamma should be a non-negative real number")
    table = [int((255 + 1 - 0.001) * gain * pow(level / 255.0, gamma)) for level in range(256)]
    return image.convert("RGB").point(table * 3).convert(image.mode)


# --- geometry ---------------------------------------------------------------------------------------------------------


def fill_of(fill, image):
    """`fill` as Pillow wants it: whole numbers, and one for each channel."""
    channels = channels_of(image)
    fill = 0 if fill is None else fill
    if isinstance(fill, (int, float)) and channels > 1:
        fill = (fill,) * channels
    if isinstance(fill, (list, tuple)):
        fill = tuple(fill) * channels if len(fill) == 1 else tuple(fill)
        if len(fill) != channels:
            raise ValueError("The number of elements in 'fill' does not match the number of channels of the image "
                             f"({len(fill)} != {channels})")
    if image.mode == "F":
        return fill
    return tuple(int(x) for x in fill) if isinstance(fill, tuple) else int(fill)


def horizontal_flip(image): return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
def vertical_flip(image): return image.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
def crop(image, top, left, height, width): return image.crop((left, top, left + width, top + height))


def warn_antialias(antialias):
    if antialias is False:
        warnings.warn("Anti-alias option is always applied for PIL Image input. Argument antialias is ignored.",
                      stacklevel=4)


def resize(image, size, interpolation="bilinear", max_size=None, antialias=True):
    warn_antialias(antialias)
    height, width = resized_size((image.height, image.width), size, max_size)
    number = PILLOW_NUMBERS[interpolation_mode(interpolation)]
    return image if (height, width) == (image.height, image.width) else image.resize((width, height), number)


def resized_crop(image, top, left, height, width, size, interpolation="bilinear", antialias=True):
    return resize(crop(image, top, left, height, width), size, interpolation, antialias=antialias)


def pad(image, padding, fill=None, padding_mode="constant"):
    left, right, top, bottom = padding_of(padding)
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    if padding_mode == "constant":
        made = operation("expand")(image, (left, top, right, bottom), fill_of(fill, image))
    else:
        kept = [max(-side, 0) for side in (left, top, right, bottom)]
        cut = image.crop((kept[0], kept[1], image.width - kept[2], image.height - kept[3])) if any(kept) else image
        array = np.asarray(cut)
        around = [(max(top, 0), max(bottom, 0)), (max(left, 0), max(right, 0)), (0, 0)][:array.ndim]
        made = Image.fromarray(np.pad(array, around, padding_mode))
    if image.mode == "P":
        made.putpalette(image.getpalette())
    return made


def center_crop(image, output_size):
    height, width = two_sizes(output_size)
    around = centre_padding(height, width, image.height, image.width)
    if any(around):
        image = pad(image, around, fill=0)
    return crop(image, *central_box(height, width, image.height, image.width))


def affine(image, angle, translate, scale, shear, interpolation="nearest", fill=None, center=None):
    number = PILLOW_NUMBERS[interpolation_mode(interpolation)]
    angle, translate, scale, shear, center = affine_arguments(angle, translate, scale, shear, center, 1)
    centre = [image.width * 0.5, image.height * 0.5] if center is None else center
    matrix = inverse_affine_matrix(centre, angle, translate, scale, shear)[0].tolist()
    return image.transform(image.size, Image.Transform.AFFINE, matrix, number, fillcolor=fill_of(fill, image))


def rotate(image, angle, interpolation="nearest", expand=False, center=None, fill=None):
    number = PILLOW_NUMBERS[interpolation_mode(interpolation)]
    return image.rotate(angle, number, expand, center, fillcolor=fill_of(fill, image))


def perspective(image, startpoints, endpoints, interpolation="bilinear", fill=None, coefficients=None):
    found = perspective_arguments(startpoints, endpoints, coefficients, 1)[0].tolist()
    number = PILLOW_NUMBERS[interpolation_mode(interpolation)]
    return image.transform(image.size, Image.Transform.PERSPECTIVE, found, number, fillcolor=fill_of(fill, image))


def five_crop(image, size):
    return corner_crops(image, size, crop, center_crop, (image.height, image.width))


def ten_crop(image, size, vertical_flip=False):
    flipped = image.transpose(Image.Transpose.FLIP_TOP_BOTTOM if vertical_flip else Image.Transpose.FLIP_LEFT_RIGHT)
    return five_crop(image, size) + five_crop(flipped, size)
