"""Functions that blur, add noise, erase, normalise and compress."""
import math

import numpy as np

from ....base import dtypes
from ....tensor.create import as_tensor, from_array
from ....tensor.functions import arange, stack, where
from ....tensor.tensor import Tensor
from ....vision import images
from ..base import streams
from ..colour_kernels import added_product, computed_in
from ..noise_kernels import noise_keys, normal_noise
from .dispatch import is_number, numbers_of, of_images, samples_of
from .geometry import bordered, in_batch, on_device


@of_images
def normalize(inpt, mean, std, inplace=False):
    """`inpt` less `mean`, over `std`: numbers, or one for each channel."""
    if not inpt.dtype.is_floating_point:
        raise TypeError(f"Input tensor should be a float tensor. Got {inpt.dtype}.")
    if inpt.ndim < 3:
        raise ValueError(f"Expected tensor to be a tensor image of size (..., C, H, W). Got {inpt.shape}.")
    if not all(std) if isinstance(std, (tuple, list)) else is_number(std) and std == 0:
        raise ValueError("std evaluated to zero, leading to division by zero.")
    mean, std = (as_tensor(given, dtype=inpt.dtype, device=inpt.device) for given in (mean, std))
    mean, std = (given.view(-1, 1, 1) if given.ndim == 1 else given for given in (mean, std))
    return inpt.sub_(mean).div_(std) if inplace else (inpt - mean) / std


def gaussian_weights(size, sigma):
    """The weights [n, size] of a normal distribution around the middle, for each `sigma` [n]."""
    reach = (size - 1) / (2.0 * math.sqrt(2.0))
    scaled = np.linspace(-reach, reach, size) / sigma[:, None]
    weight = np.exp(-scaled**2)
    return weight / weight.sum(1, keepdims=True)


def sigmas_of(sigma, kernel_size, n):
    """[n, 2]: sigma along x and along y for each sample."""
    if sigma is None:
        sigma = [size * 0.15 + 0.35 for size in kernel_size]
    elif isinstance(sigma, (list, tuple)):
        if len(sigma) not in (1, 2):
            raise ValueError(f"If sigma is a sequence, its length should be 2. Got {len(sigma)}")
        sigma = list(sigma) * (3 - len(sigma))
    elif is_number(sigma):
        sigma = [float(sigma)] * 2
    elif not isinstance(sigma, (np.ndarray, Tensor)):
        raise TypeError(f"sigma should be either float or sequence of floats. Got {type(sigma)}")
    else:
        sigma = [sigma, sigma]
    found = np.stack([numbers_of(one, n, "sigma") for one in sigma], 1)
    if (found <= 0.0).any():
        raise ValueError(f"sigma should have positive values. Got {sigma}")
    return found


@of_images
def gaussian_blur(inpt, kernel_size, sigma=None):
    """`inpt` with each pixel a weighted mean of those around it; `sigma` is a number, one for x and for y, or an array
    with one for each sample."""
    kernel_size = [kernel_size] * 2 if isinstance(kernel_size, int) else kernel_size
    if len(kernel_size) != 2:
        raise ValueError(f"If kernel_size is a sequence its length should be 2. Got {len(kernel_size)}")
    for size in kernel_size:
        if size % 2 == 0 or size < 0:
            raise ValueError(f"kernel_size should have odd and positive integers. Got {kernel_size}")
    found = sigmas_of(sigma, kernel_size, samples_of(inpt))
    if not inpt.numel():
        return inpt
    batch, parts = in_batch(inpt)
    wide = batch.to(computed_in(batch.dtype))
    (wide_x, wide_y), found = kernel_size, np.repeat(found, parts, 0)
    wide = bordered(wide, [wide_x // 2, wide_x // 2, wide_y // 2, wide_y // 2], "reflect")
    for dim, size, sigmas in ((3, wide_x, found[:, 0]), (2, wide_y, found[:, 1])):
        wide = weighted_neighbours(wide, gaussian_weights(size, sigmas), dim)
    if not inpt.dtype.is_floating_point:
        wide = wide.round()
    return wide.to(inpt.dtype).reshape(inpt.shape)


def weighted_neighbours(batch, weights, dim):
    """Of every run of neighbours along `dim`, the sum with `weights` [N, run]: views of the batch, in one pass."""
    count, run = batch.shape[dim] - weights.shape[1] + 1, weights.shape[1]
    dtype = np.float64 if batch.dtype is dtypes.float64 else np.float32
    if (weights == weights[0]).all():
        table = weights[:1]
    else:
        table = weights
    table = on_device(table.astype(dtype)[:, :, None, None], batch)
    made = None
    for tap in range(run):
        part, weight = batch.narrow(dim, tap, count), table.narrow(1, tap, 1)
        made = part * weight if made is None else added_product(made, part, weight)
    return made


@of_images
def gaussian_noise(inpt, mean=0.0, sigma=0.1, clip=True, noise=None):
    """`inpt` with normal `noise` added, of `mean` and `sigma`; without any given, each sample draws its own."""
    if sigma < 0:
        raise ValueError(f"sigma shouldn't be negative. Got {sigma}")
    if not inpt.dtype.is_floating_point and inpt.dtype is not dtypes.uint8:
        raise ValueError(f"Input tensor is expected to be in uint8 or float dtype, got dtype={inpt.dtype}")
    if noise is None:
        noise = noise_like(inpt, streams(samples_of(inpt)))
    if inpt.dtype.is_floating_point:
        made = inpt + (noise.to(inpt.dtype) * sigma + mean)
        return made.clamp(0, 1) if clip else made
    made = inpt + (noise * (sigma * 255) + mean * 255).to(dtypes.int16)
    return (made.clamp(0, 255) if clip else made).to(dtypes.uint8)


def noise_like(image, random):
    """Normal numbers in the shape of `image`, from the streams of its samples."""
    keys = on_device(noise_keys(random), image)
    shape = tuple(image.shape[1:]) if image.ndim > 3 else tuple(image.shape)
    return normal_noise(keys, shape).reshape(image.shape)


@of_images
def erase(inpt, i, j, h, w, v, inplace=False):
    """`inpt` with the box at (`i`, `j`) of `h` and `w` replaced by `v`; for a batch, also a box for each sample.

    With boxes of their own, `v` has the shape of a sample, or ones.
    """
    if all(isinstance(value, int) for value in (i, j, h, w)):
        made = inpt if inplace else inpt.clone()
        made[..., i:i + h, j:j + w] = v
        return made
    n = samples_of(inpt)
    bounds = [on_device(numbers_of(value, n, name, np.int64).reshape(-1, *[1] * (inpt.ndim - 1)), inpt)
              for value, name in ((i, "i"), (j, "j"), (np.add(i, h), "h"), (np.add(j, w), "w"))]
    rows = arange(inpt.shape[-2], device=inpt.device).reshape(-1, 1)
    columns = arange(inpt.shape[-1], device=inpt.device)
    inside = (rows >= bounds[0]) & (rows < bounds[2]) & (columns >= bounds[1]) & (columns < bounds[3])
    value = v.to(inpt.dtype) if isinstance(v, Tensor) else from_array(np.asarray(v, np.float64)).to(inpt.dtype)
    made = where(inside, value.to(inpt.device), inpt)
    return inpt.copy_(made) if inplace else made


@of_images
def jpeg(inpt, quality):
    """What is left of `inpt`, bytes, after JPEG at a `quality` from 1 to 100; a batch may have one for each sample."""
    if not inpt.numel():
        return inpt.clone()
    samples = inpt.reshape(-1, *inpt.shape[-3:])
    qualities = numbers_of(quality, samples_of(inpt), "quality", np.int64)
    made = [images.decode_jpeg(images.encode_jpeg(image, one), images.UNCHANGED)
            for image, one in zip(samples, np.repeat(qualities, len(samples) // len(qualities)).tolist(), strict=True)]
    return stack(made).reshape(inpt.shape)
