"""Which form of a function an image gets: the one for tensors [..., C, H, W], or the one for Pillow's images.

A function is written once for tensors, under `@of_images`. Its form for Pillow has the same name in pillow.py, which is
imported with the first such image: Pillow is no dependency of ours.

Where torchvision takes one number for the whole input, a batch [N, ..., C, H, W] may be given N of them, as an array or
a tensor: one for each sample. `per_sample` brings them to the shape of the batch.
"""
import functools
import sys
from importlib import import_module

import numpy as np

from ....tensor.create import from_array
from ....tensor.tensor import Tensor


def is_pillow(x):
    """Whether `x` is an image of Pillow's; where Pillow is not imported, nothing is."""
    image = getattr(sys.modules.get("PIL.Image"), "Image", None)                # not while it is half imported
    return image is not None and isinstance(x, image)


def check_type(obj, types_or_checks):
    """Whether `obj` is of one of these classes, or one of these functions says yes to it."""
    return any(isinstance(obj, one) if isinstance(one, type) else one(obj) for one in types_or_checks)


def has_any(flat_inputs, *types_or_checks):
    """Whether an input is of one of these classes, or one of these functions says yes to it."""
    return any(check_type(one, types_or_checks) for one in flat_inputs)


def has_all(flat_inputs, *types_or_checks):
    """Whether there is an input for each of these classes and functions."""
    return all(has_any(flat_inputs, one) for one in types_or_checks)


def of_images(of_tensor):
    """A function of images, from its form for tensors; `.of_tensor` is that form alone."""
    name = of_tensor.__name__

    @functools.wraps(of_tensor)
    def run(inpt, *args, **kwargs):
        if isinstance(inpt, Tensor):
            return of_tensor(inpt, *args, **kwargs)
        if is_pillow(inpt):
            form = getattr(import_module(".pillow", __package__), name, None)
            if form is not None:
                return form(inpt, *args, **kwargs)
        raise TypeError(f"Functional F.{name} supports inputs of type torch.Tensor and PIL.Image.Image, but got "
                        f"{type(inpt)} instead.")

    run.of_tensor = of_tensor
    return run


def samples_of(image):
    """How many samples an input is: a batch [N, ..., C, H, W] has N, and everything else is one."""
    return image.shape[0] if isinstance(image, Tensor) and image.ndim > 3 else 1


def is_number(value):
    """Whether one number is meant for all samples."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def numbers_of(value, n, name, dtype=np.float64):
    """`value`, a number or one for each of `n` samples, as an array [n]."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    given = np.asarray(value, dtype)
    if given.ndim > 1 or given.ndim == 1 and given.shape[0] not in (1, n):
        raise ValueError(f"{name} should be a number, or one for each of the {n} samples, but its shape is "
                         f"{list(given.shape)}")
    return np.broadcast_to(given.reshape(-1), (n,))


def per_sample(values, image):
    """An array [n] as a tensor that meets the samples of the batch `image`, in `image`'s dtype, or float32."""
    dtype = np.float64 if str(image.dtype) == "torch.float64" else np.float32
    shape = (len(values), *[1] * (image.ndim - 1)) if image.ndim > 3 else [1] * image.ndim
    return from_array(np.ascontiguousarray(values, dtype).reshape(shape).copy(), where=image.device)
