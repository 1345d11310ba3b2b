"""How pixels between pixels are found: `InterpolationMode`, by its name, by itself, or by Pillow's number."""
import enum


class InterpolationMode(enum.Enum):
    """What to read between the pixels of an image. Tensors know the first four and Lanczos, Pillow all of them."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


# Pillow's numbers of them; it has one nearest, which is the exact one.
PILLOW_NUMBERS = {InterpolationMode.NEAREST: 0, InterpolationMode.LANCZOS: 1, InterpolationMode.BILINEAR: 2,
                  InterpolationMode.BICUBIC: 3, InterpolationMode.BOX: 4, InterpolationMode.HAMMING: 5,
                  InterpolationMode.NEAREST_EXACT: 0}
_BY_NUMBER = {number: mode for mode, number in PILLOW_NUMBERS.items() if mode is not InterpolationMode.NEAREST_EXACT}
_BY_NAME = {mode.value: mode for mode in InterpolationMode}


def interpolation_mode(given):
    """The mode that a caller means by a mode, its name, or Pillow's number."""
    if isinstance(given, InterpolationMode):
        return given
    if isinstance(given, str):
        if given not in _BY_NAME:
            raise ValueError(f"Invalid interpolation mode: '{given}'. Supported string values are: {list(_BY_NAME)}.")
        return _BY_NAME[given]
    if isinstance(given, int) and given in _BY_NUMBER:
        return _BY_NUMBER[given]
    raise ValueError("Argument interpolation should be an `InterpolationMode` or a corresponding Pillow integer "
                     f"constant, but got {given}.")


def as_shown(given):
    """What a transform keeps of the interpolation that it is given: the same, but a mode for Pillow's number."""
    return interpolation_mode(given) if isinstance(given, int) else given
