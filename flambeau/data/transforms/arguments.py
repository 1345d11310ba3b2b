"""What transforms are made with, looked at when they are made: sizes, angles, fills, ranges; in torchvision's words."""
import numbers
from collections.abc import Sequence

from ...tensor.tensor import Tensor
from .functional import get_dimensions
from .functional.dispatch import is_pillow

TWO_SIZES_WANTED = "Please provide only two dimensions (h, w) for size."


def size_pair(size, error_msg=TWO_SIZES_WANTED):
    """(height, width) of a number, of one number in a sequence, or of two."""
    if isinstance(size, numbers.Number):
        return int(size), int(size)
    if isinstance(size, Sequence) and len(size) == 1:
        return size[0], size[0]
    if len(size) != 2:
        raise ValueError(error_msg)
    return size


def need_length(x, name, lengths):
    """Refuse what is no sequence of one of these `lengths`."""
    told = " or ".join(map(str, lengths))
    if not isinstance(x, Sequence):
        raise TypeError(f"{name} should be a sequence of length {told}.")
    if len(x) not in lengths:
        raise ValueError(f"{name} should be a sequence of length {told}.")


def angle_range(x, name, lengths=(2,)):
    """[low, high] of degrees; a single number is as far to both sides."""
    if isinstance(x, numbers.Number):
        if x < 0:
            raise ValueError(f"If {name} is a single number, it must be positive.")
        x = [-x, x]
    else:
        need_length(x, name, lengths)
    return [float(d) for d in x]


def number_pair(given, name):
    """[low, high] of a number, of one number in a sequence, or of two."""
    if not isinstance(given, (int, float, Sequence)):
        raise TypeError(f"{name} should be a number or a sequence of numbers. Got {type(given)}")
    if isinstance(given, (int, float)):
        return [float(given), float(given)]
    if len(given) not in (1, 2):
        raise ValueError(f"If {name} is a sequence its length should be 1 or 2. Got {len(given)}")
    for element in given:
        if not isinstance(element, (int, float)):
            raise ValueError(f"{name} should be a sequence of numbers. Got {type(element)}")
    return [float(given[0]), float(given[-1])]


def fill_table(fill):
    """{class of the input, or "others": the fill for it}, from one fill or such a table."""
    if isinstance(fill, dict):
        if not fill:
            raise TypeError("Got inappropriate fill arg, an empty dict, which has a fill for nothing: give a number, "
                            "or {torch.Tensor: a number}")
        return {cls: one_fill(value) for cls, value in fill.items()}
    return {"others": one_fill(fill)}


def one_fill(fill):
    if fill is not None and not isinstance(fill, (numbers.Number, tuple, list)):
        raise TypeError("Got inappropriate fill arg, only Numbers, tuples, lists and dicts are allowed.")
    return fill if fill is None or isinstance(fill, (int, float)) else [float(value) for value in fill]


def fill_for(table, inpt):
    """The fill for an input, by its class."""
    return table[type(inpt)] if type(inpt) in table else table.get("others")


def need_padding(padding):
    """Refuse what is no padding: an integer, or one, two or four of them."""
    several = isinstance(padding, (tuple, list)) and len(padding) in (1, 2, 4) and all(
        isinstance(side, int) for side in padding)
    if not several and not isinstance(padding, int):
        raise ValueError(f"Padding must be an int or a 1, 2, or 4 element of tuple or list, got {padding}.")


def need_padding_mode(padding_mode):
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")


def query_chw(flat_inputs):
    """(channels, height, width) of the images among the inputs, which have to agree."""
    found = {tuple(get_dimensions(one)) for one in flat_inputs if isinstance(one, Tensor) or is_pillow(one)}
    if not found:
        raise TypeError("No image or video was found in the sample")
    if len(found) > 1:
        raise ValueError(f"Found multiple CxHxW dimensions in the sample: {', '.join(map(str, sorted(found)))}")
    return found.pop()


def query_size(flat_inputs):
    """(height, width) of the images among the inputs, which have to agree."""
    found = {tuple(get_dimensions(one)[1:]) for one in flat_inputs if isinstance(one, Tensor) or is_pillow(one)}
    if not found:
        raise TypeError("No image, video, mask, bounding box of keypoint was found in the sample")
    if len(found) > 1:
        raise ValueError(f"Found multiple HxW dimensions in the sample: {', '.join(map(str, sorted(found)))}")
    return found.pop()
