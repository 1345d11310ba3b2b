"""The functions of images that transforms are made of: tensors [..., C, H, W] and Pillow's images, torchvision's names.

    colour           brightness, contrast, saturation, hue, sharpness, posterize, solarize, equalize, …
    geometry         flips, crops, resizing, padding, affine maps, rotation, perspective
    smooth           blur, noise, erasing, normalising
    convert          dtypes, arrays, Pillow's images
    dispatch         which form of a function an image gets
    pillow           their forms for Pillow's images
"""
from ..modes import InterpolationMode
from .colour import (
    adjust_brightness,
    adjust_contrast,
    adjust_gamma,
    adjust_hue,
    adjust_saturation,
    adjust_sharpness,
    autocontrast,
    equalize,
    grayscale_to_rgb,
    invert,
    permute_channels,
    posterize,
    rgb_to_grayscale,
    solarize,
    to_grayscale,
)
from .convert import convert_image_dtype, pil_to_tensor, to_dtype, to_image, to_pil_image, to_tensor
from .geometry import (
    affine,
    center_crop,
    crop,
    elastic,
    elastic_transform,
    five_crop,
    get_dimensions,
    get_image_num_channels,
    get_num_channels,
    get_size,
    hflip,
    horizontal_flip,
    pad,
    perspective,
    resize,
    resized_crop,
    rotate,
    ten_crop,
    vertical_flip,
    vflip,
)
from .smooth import erase, gaussian_blur, gaussian_noise, normalize
