"""Images from one form to another: dtypes, arrays, tensors, Pillow's images."""
import sys

import numpy as np

from ....base import dtypes
from ....base.dtypes import get_default_dtype
from ....tensor.create import from_array
from ....tensor.functions import from_numpy
from ....tensor.tensor import Tensor
from ..colour_kernels import max_value
from .dispatch import is_pillow, of_images

# How many bits of an integer say a value: without the sign.
VALUE_BITS = {dtypes.uint8: 8, dtypes.int8: 7, dtypes.int16: 15, dtypes.uint16: 16, dtypes.int32: 31, dtypes.int64: 63}
INT16_MODE = "I;16" if sys.byteorder == "little" else "I;16B"


def value_bits(dtype):
    if dtype not in VALUE_BITS:
        raise TypeError(f"Number of value bits is only defined for integer dtypes, but got {dtype}.")
    return VALUE_BITS[dtype]


@of_images
def to_dtype(inpt, dtype=dtypes.float32, scale=False):
    """`inpt` in `dtype`; with `scale`, full brightness stays full brightness."""
    if inpt.dtype is dtype:
        return inpt
    if not scale:
        return inpt.to(dtype)
    if inpt.dtype.is_floating_point:
        if dtype.is_floating_point:
            return inpt.to(dtype)
        if inpt.dtype is dtypes.float32 and dtype in (dtypes.int32, dtypes.int64) \
                or inpt.dtype is dtypes.float64 and dtype is dtypes.int64:
            raise RuntimeError(f"The conversion from {inpt.dtype} to {dtype} cannot be performed safely.")
        # cut off, and 1.0 is the largest value: nearly one more value has the same share of [0, 1] for each
        return (inpt * (float(max_value(dtype)) + 1.0 - 0.001)).to(dtype)
    if dtype.is_floating_point:
        share = 1.0 / max_value(inpt.dtype)
        return inpt * share if dtype is get_default_dtype() else inpt.to(dtype) * share     # to which integers are cast
    had, wanted = value_bits(inpt.dtype), value_bits(dtype)
    if had > wanted:
        if inpt.dtype is dtypes.uint16:                     # PyTorch shifts no uint16
            return (inpt / 2 ** (had - wanted)).to(dtype)
        return (inpt >> (had - wanted)).to(dtype)
    if dtype is dtypes.uint16:
        return inpt.to(dtype) * 2 ** (wanted - had)
    return inpt.to(dtype) << (wanted - had)


def convert_image_dtype(image, dtype=dtypes.float32):
    """`image` in `dtype`, full brightness as it is."""
    return to_dtype.of_tensor(image, dtype, scale=True)


def is_pure_tensor(inpt):
    """Whether `inpt` is a tensor: there are none of other kinds here."""
    return isinstance(inpt, Tensor)


def channels_of(image):
    """How many channels an image of Pillow's has."""
    return len(image.getbands())


def pil_to_tensor(pic):
    """An image of Pillow's as a tensor [C, H, W] of the same numbers."""
    if not is_pillow(pic):
        raise TypeError(f"pic should be PIL Image. Got {type(pic)}")
    array = np.array(pic, copy=True)
    return from_array(array.reshape(pic.size[1], pic.size[0], channels_of(pic))).permute(2, 0, 1)


def to_image(inpt):
    """A tensor, an array [H, W, C] or an image of Pillow's as a tensor [C, H, W] of the same numbers."""
    if isinstance(inpt, np.ndarray):
        return from_numpy(np.atleast_3d(inpt)).permute(2, 0, 1).contiguous()
    if is_pillow(inpt):
        return pil_to_tensor(inpt)
    if isinstance(inpt, Tensor):
        return inpt
    raise TypeError("Input can either be a pure Tensor, a numpy array, or a PIL image, but got "
                    f"{type(inpt)} instead.")


def to_tensor(pic):
    """An image of Pillow's or an array [H, W, C] as a tensor [C, H, W]; bytes become floats from 0 to 1."""
    if isinstance(pic, np.ndarray):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        array = pic[:, :, None] if pic.ndim == 2 else pic
    elif is_pillow(pic):
        dtype = {"I": np.int32, INT16_MODE: np.int16, "F": np.float32}.get(pic.mode, np.uint8)
        array = np.array(pic, dtype, copy=True)
        if pic.mode == "1":
            array *= 255
        array = array.reshape(pic.size[1], pic.size[0], channels_of(pic))
    else:
        raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
    made = from_array(np.ascontiguousarray(array.transpose(2, 0, 1)).copy())
    return made.to(get_default_dtype()).div(255) if made.dtype is dtypes.uint8 else made


# channels → the modes of Pillow's that have so many, the usual one first
MODES_OF_CHANNELS = {2: ["LA"], 3: ["RGB", "YCbCr", "HSV"], 4: ["RGBA", "CMYK", "RGBX"]}
ONE_CHANNEL_MODES = {np.dtype(np.uint8): "L", np.dtype(np.int16): INT16_MODE, np.dtype(np.int32): "I",
                     np.dtype(np.float32): "F"}


def to_pil_image(pic, mode=None):
    """A tensor [C, H, W] or an array [H, W, C] as an image of Pillow's; floats mean 0 to 1, unless `mode` is "F"."""
    if isinstance(pic, Tensor):
        array = (pic.permute(1, 2, 0) if pic.ndim == 3 else pic).numpy(force=True)
    elif isinstance(pic, np.ndarray):
        array = pic
    else:
        raise TypeError(f"pic should be Tensor or ndarray. Got {type(pic)}.")
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3:
        raise ValueError(f"pic should be 2/3 dimensional. Got {array.ndim} dimensions.")
    channels = array.shape[-1]
    if channels > 4:
        raise ValueError(f"pic should not have > 4 channels. Got {channels} channels.")
    if array.dtype.kind == "f" and mode != "F":
        array = (array * 255).astype(np.uint8)
    if channels == 1:
        array, right = array[:, :, 0], ONE_CHANNEL_MODES.get(array.dtype)
        if mode is not None and mode != right:
            raise ValueError(f"Incorrect mode ({mode}) supplied for input type {array.dtype}. Should be {right}")
        mode = right
    else:
        right = MODES_OF_CHANNELS[channels]
        if mode is not None and mode not in right:
            raise ValueError(f"Only modes {right} are supported for {channels}D inputs")
        if mode is None and array.dtype == np.uint8:
            mode = right[0]
    if mode is None:
        raise TypeError(f"Input type {array.dtype} is not supported")
    return pillow_from(array, mode)


def pillow_from(array, mode):
    """An array [H, W] or [H, W, C] as an image of Pillow's in `mode`, which has elements of that size."""
    from PIL import Image
    height, width = array.shape[:2]
    return Image.frombytes(mode, (width, height), np.ascontiguousarray(array).tobytes())
