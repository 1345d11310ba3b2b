"""The functions of images that transforms are made of: tensors [..., C, H, W] and Pillow's images, torchvision's names.

    colour           brightness, contrast, saturation, hue, sharpness, posterize, solarize, equalize, …
    geometry         flips, crops, resizing, padding, affine maps, rotation, perspective
    smooth           blur, noise, erasing, normalising
    convert          dtypes, arrays, Pillow's images
    dispatch         which form of a function an image gets
    pillow           their forms for Pillow's images

torchvision has a name for each form too. `resize_image` is `resize` for tensors, and so is `resize_video`: a video
[..., T, C, H, W] is many images. What is for boxes, masks and key points is refused by name.
"""
from ..elsewhere import FUNCTIONS_ELSEWHERE, not_here
from ..modes import PILLOW_NUMBERS as pil_modes_mapping, InterpolationMode
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
from .convert import convert_image_dtype, is_pure_tensor, pil_to_tensor, to_dtype, to_image, to_pil_image, to_tensor
from .geometry import (
    center_crop,
    crop,
    five_crop,
    get_dimensions,
    get_image_num_channels,
    get_image_size,
    get_num_channels,
    get_num_frames,
    get_size,
    hflip,
    horizontal_flip,
    pad,
    resize,
    resized_crop,
    ten_crop,
    uniform_temporal_subsample,
    vertical_flip,
    vflip,
)
from .smooth import erase, gaussian_blur, gaussian_noise, jpeg, normalize
from .warps import affine, elastic, elastic_transform, perspective, rotate

# The functions made under `@of_images`, each by its own name.
IMAGE_FORMS = {made.__name__: made for made in [*globals().values()] if hasattr(made, "of_tensor")}
globals().update({f"{name}_image": form.of_tensor for name, form in IMAGE_FORMS.items()},
                 **{f"{name}_video": form.of_tensor for name, form in IMAGE_FORMS.items()
                    if name not in ("grayscale_to_rgb", "rgb_to_grayscale")},
                 get_num_frames_video=get_num_frames, uniform_temporal_subsample_video=uniform_temporal_subsample)


def __getattr__(name):
    raise not_here(__name__, name, FUNCTIONS_ELSEWHERE, globals())
