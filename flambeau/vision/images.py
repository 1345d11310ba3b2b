"""Pictures in files: PNG, JPEG, WebP and GIF, read and written through Pillow.

Pillow is a package of its own (`pip install pillow`), and is imported when one of these is called. A picture is a
tensor of uint8, [channels, height, width].
"""
import contextlib
import importlib
import io
import os

import numpy as np

from ..backends.cpu import host
from ..base import dtypes
from ..base.errors import need
from ..tensor.create import from_array

UNCHANGED, GRAY, GRAY_ALPHA, RGB, RGBA = range(5)         # torchvision's numbers for what a picture is brought to
PILLOW = {GRAY: "L", GRAY_ALPHA: "LA", RGB: "RGB", RGBA: "RGBA"}


def pillow(part="Image"):
    """A module of Pillow."""
    try:
        return importlib.import_module(f"PIL.{part}")
    except ImportError as e:
        raise ImportError("pictures go through Pillow, which is not installed: pip install pillow") from e


# --- files ------------------------------------------------------------------------------------------------------------


def read_file(filename):
    """The bytes of a file, a vector of uint8."""
    try:
        with open(filename, "rb") as f:
            content = f.read()
    except OSError as e:
        raise RuntimeError(f"[Errno {e.errno}] {os.strerror(e.errno)}: '{filename}'") from e
    need(content, f"Expected a non empty file, got {filename!r}")
    return from_array(host.array_over(content).copy())


def write_file(filename, data):
    """Write a vector of uint8 as a file."""
    bytes_given(data)
    try:
        with open(filename, "wb") as f:
            f.write(data.contiguous().numpy().tobytes())
    except OSError as e:
        raise RuntimeError(f"Error opening output file: [Errno {e.errno}] {os.strerror(e.errno)}: '{filename}'") from e


def bytes_given(data):
    need(data.dtype is dtypes.uint8, f"Expected a torch.uint8 tensor, got {data.dtype}")
    need(data.dim() == 1 and data.numel(), f"Expected a non empty 1-dimensional tensor, got {list(data.shape)}")


# --- decoding ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def damaged_is(error_class, words):
    """What Pillow raises for a damaged picture, a dozen kinds that follow from where in the file it is damaged, is one
    `error_class`, whose message is `words` and Pillow's."""
    try:
        yield
    except (error_class, MemoryError):
        raise
    except OSError as error:
        if error.errno is not None:                       # the file itself could not be read
            raise
        raise error_class(f"{words}: {error}") from error
    except Exception as error:
        raise error_class(f"{words}: {str(error) or type(error).__name__}") from error


DECODING = RuntimeError, "the picture cannot be decoded"


def decode_image(data, mode, apply_exif_orientation=False):
    """The picture in the bytes `data`, of any of the formats."""
    bytes_given(data)
    head = data[:16].numpy().tobytes()
    if head[:3] == b"\xff\xd8\xff":
        return decode_jpeg(data, mode, apply_exif_orientation)
    if head[:4] == b"\x89PNG":
        return decode_png(data, mode, apply_exif_orientation)
    if head[:6] in (b"GIF87a", b"GIF89a"):
        return decode_gif(data)
    if head[:4] == b"RIFF" and head[8:15] == b"WEBPVP8":
        return decode_webp(data, mode)
    raise RuntimeError("Unsupported image file. Only jpeg, png, webp and gif are currently supported. For avif and "
                       "heic format, please rely on `decode_avif` and `decode_heic` directly.")


def opened(data, form):
    """The bytes `data` as a picture of Pillow's, which has the format `form`."""
    bytes_given(data)
    image = pillow()
    with damaged_is(*DECODING):
        try:
            return image.open(io.BytesIO(data.contiguous().numpy().tobytes()), formats=[form])
        except image.UnidentifiedImageError:
            raise RuntimeError(f"Content is not {form.lower()}!") from None


def pixels(image):
    """The pixels of a picture of Pillow's, [channels, height, width]."""
    with damaged_is(*DECODING):
        array = np.array(image)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def result(array):
    return from_array(np.ascontiguousarray(array))


def upright(image, apply):
    """The picture as its EXIF orientation says, if that is to be applied."""
    with damaged_is(*DECODING):
        return pillow("ImageOps").exif_transpose(image) if apply else image


def converted(image, mode):
    """The picture in a mode of Pillow's."""
    with damaged_is(*DECODING):
        return image if image.mode == mode else image.convert(mode)


def decode_png(data, mode, apply_exif_orientation=False):
    """The picture in the bytes of a PNG file, brought to a mode: unchanged, gray, gray with alpha, RGB, RGBA.

    A file with 16 bits for each channel gives uint16.
    """
    image = opened(data, "PNG")
    deep = image.mode.startswith("I") or image.info.get("bitdepth") == 16 or png_depth(data) == 16
    if deep:
        if not image.mode.startswith("I"):
            raise NotImplementedError("a PNG with 16 bits for each of several channels cannot be read: Pillow makes "
                                      "8 bits of them; save it in gray, or with 8 bits")
        need(mode in (UNCHANGED, GRAY), f"a gray PNG of 16 bits can be read unchanged or as GRAY, got mode {mode}",
             NotImplementedError)
        return result(pixels(upright(image, apply_exif_orientation)).astype(np.uint16))
    image = upright(image, apply_exif_orientation)
    if image.mode == "1":
        image = converted(image, "L")
    transparent = image.info.pop("transparency", None)    # a colour that stands for none counts in palettes only
    if image.mode == "P" and mode != UNCHANGED:           # unchanged, a palette's numbers are the picture
        if transparent is not None:
            image.info["transparency"] = transparent
        image = converted(image, "RGB" if transparent is None else "RGBA")
    if mode in (GRAY, GRAY_ALPHA) and image.mode in ("RGB", "RGBA"):
        array = pixels(image)
        alpha = array[3:] if len(array) == 4 else np.full((1, *array.shape[1:]), 255, np.uint8)
        return result(np.concatenate([gray(array), alpha][:mode]))
    return result(pixels(image if mode == UNCHANGED else converted(image, PILLOW[mode])))


def png_depth(data):
    """How many bits a channel of the PNG has, which its header says."""
    return int(data[24]) if data.numel() > 24 else 8


def gray(array):
    """The brightness of RGB pixels [3 or 4, height, width], in libpng's fixed point."""
    red, green = 9794, 19235                              # 0.2989 and 0.587 of 2 ** 15
    r, g, b = array[:3].astype(np.int64)
    mixed = (red * r + green * g + (32768 - red - green) * b) >> 15
    return np.where((r == g) & (g == b), r, mixed).astype(np.uint8)[None]


def decode_jpeg(data, mode, apply_exif_orientation=False):
    """The picture in the bytes of a JPEG file, brought to a mode: unchanged, gray, RGB."""
    need(mode in (UNCHANGED, GRAY, RGB), "The provided mode is not supported for JPEG files")
    image = opened(data, "JPEG")
    if mode == GRAY:
        image.draft("L", image.size)                      # the brightness as the file has it, before any colours
    wanted = image.mode if mode == UNCHANGED else PILLOW[mode]
    return result(pixels(upright(converted(image, wanted), apply_exif_orientation)))


def decode_webp(encoded_data, mode):
    """The picture in the bytes of a WebP file: unchanged, RGB, RGBA; other modes give what is in the file."""
    image = opened(encoded_data, "WEBP")
    wanted = PILLOW[mode] if mode in (RGB, RGBA) else image.mode
    return result(pixels(converted(image, wanted)))


def decode_gif(encoded_data):
    """The picture in the bytes of a GIF file in RGB, or [frames, 3, height, width] if it has several frames."""
    image = opened(encoded_data, "GIF")
    with damaged_is(*DECODING):
        frames = [pixels(frame.convert("RGB")) for frame in pillow("ImageSequence").Iterator(image)]
    return result(np.stack(frames) if len(frames) > 1 else frames[0])


# --- encoding ---------------------------------------------------------------------------------------------------------


def encoded(data, form, **options):
    """The bytes of a file of a picture of one or three channels."""
    need(data.dtype is dtypes.uint8, f"Input tensor dtype should be uint8, got {data.dtype}")
    need(data.dim() == 3, f"Input data should be a 3-dimensional tensor, got {list(data.shape)}")
    need(data.shape[0] in (1, 3), f"The number of channels should be 1 or 3, got: {data.shape[0]}")
    array = data.permute(1, 2, 0).contiguous().numpy()
    to = io.BytesIO()
    pillow().fromarray(array[:, :, 0] if array.shape[2] == 1 else array).save(to, form, **options)
    return from_array(host.array_over(to.getvalue()).copy())


def encode_png(data, compression_level):
    """The bytes of a PNG file of the picture `data`; the level goes from 0 (fast) to 9 (small)."""
    need(0 <= compression_level <= 9, f"Compression level should be between 0 and 9, got {compression_level}")
    return encoded(data, "PNG", compress_level=compression_level)


def encode_jpeg(data, quality):
    """The bytes of a JPEG file of the picture `data`; the quality goes from 1 to 100."""
    return encoded(data, "JPEG", quality=quality)
