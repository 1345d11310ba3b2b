"""Transforms of values and of forms: normalising, blur, noise, erasing, dtypes, Pillow's images, functions of yours."""
import numbers
import warnings
from collections.abc import Sequence

import numpy as np

from ...base import dtypes
from ...tensor.create import from_array
from ...tensor.functions import mm
from ...tensor.tensor import Tensor
from . import functional as F
from .arguments import need_length, number_pair, query_chw, size_pair
from .base import RandomApplyTransform, Transform, each
from .functional.dispatch import is_pillow
from .functional.smooth import noise_like
from .geometry import drawn_boxes, placed


class Identity(Transform):
    """The image as it is."""

    def transform(self, inpt, params): return inpt


class Lambda(Transform):
    """A function of yours, of all parts of a sample that are of one of `types`."""

    _transformed_types = (object,)

    def __init__(self, lambd, *types):
        super().__init__()
        self.lambd = lambd
        self.types = types or self._transformed_types

    def _needs_transform_list(self, flat_inputs): return [isinstance(one, self.types) for one in flat_inputs]
    def transform(self, inpt, params): return self.lambd(inpt)

    def extra_repr(self):
        name = getattr(self.lambd, "__name__", None)
        types = f"types={[cls.__name__ for cls in self.types]}"
        return f"{name}, {types}" if name else types


def no_pillow(transform, flat_inputs):
    if any(is_pillow(one) for one in flat_inputs):
        raise TypeError(f"{type(transform).__name__}() does not support PIL images.")


class LinearTransformation(Transform):
    """Each image as one row, less `mean_vector`, times `transformation_matrix`: whitening, for one."""

    _transformed_types = (Tensor,)

    def __init__(self, transformation_matrix, mean_vector):
        super().__init__()
        if transformation_matrix.size(0) != transformation_matrix.size(1):
            raise ValueError("transformation_matrix should be square. Got "
                             f"{tuple(transformation_matrix.size())} rectangular matrix.")
        if mean_vector.size(0) != transformation_matrix.size(0):
            raise ValueError(f"mean_vector should have the same length {mean_vector.size(0)} as any one of the "
                             f"dimensions of the transformation_matrix [{tuple(transformation_matrix.size())}]")
        if transformation_matrix.device != mean_vector.device:
            raise ValueError("Input tensors should be on the same device. Got "
                             f"{transformation_matrix.device} and {mean_vector.device}")
        if transformation_matrix.dtype != mean_vector.dtype:
            raise ValueError("Input tensors should have the same dtype. Got "
                             f"{transformation_matrix.dtype} and {mean_vector.dtype}")
        self.transformation_matrix = transformation_matrix
        self.mean_vector = mean_vector

    def check_inputs(self, flat_inputs): no_pillow(self, flat_inputs)

    def transform(self, inpt, params):
        shape, n = inpt.shape, self.transformation_matrix.shape[0]
        if shape[-3] * shape[-2] * shape[-1] != n:
            raise ValueError("Input tensor and transformation matrix have incompatible shape."
                             f"[{shape[-3]} x {shape[-2]} x {shape[-1]}] != {n}")
        if inpt.device.type != self.mean_vector.device.type:
            raise ValueError("Input tensor should be on the same device as transformation matrix and mean vector. Got "
                             f"{inpt.device} vs {self.mean_vector.device}")
        rows = inpt.reshape(-1, n) - self.mean_vector
        return mm(rows, self.transformation_matrix.to(rows.dtype)).reshape(shape)


class Normalize(Transform):
    """The image less `mean`, over `std`, one of each for every channel."""

    def __init__(self, mean, std, inplace=False):
        super().__init__()
        self.mean = list(mean)
        self.std = list(std)
        self.inplace = inplace

    def check_inputs(self, flat_inputs): no_pillow(self, flat_inputs)
    def transform(self, inpt, params): return F.normalize(inpt, self.mean, self.std, self.inplace)


class GaussianBlur(Transform):
    """A blur over `kernel_size` pixels, as wide as a `sigma` that is drawn from a range."""

    def __init__(self, kernel_size, sigma=(0.1, 2.0)):
        super().__init__()
        self.kernel_size = size_pair(kernel_size, "Kernel size should be a tuple/list of two integers")
        for size in self.kernel_size:
            if size <= 0 or size % 2 == 0:
                raise ValueError("Kernel size value should be an odd and positive number.")
        self.sigma = number_pair(sigma, "sigma")
        if not 0.0 < self.sigma[0] <= self.sigma[1]:
            raise ValueError(f"sigma values should be positive and of the form (min, max). Got {self.sigma}")

    def draw(self, n, inputs, random):
        return {"sigma": np.repeat(random.uniform(1, *self.sigma), 2, 1)}

    def transform(self, inpt, params):
        return F.gaussian_blur(inpt, self.kernel_size, [each(params["sigma"][:, i], inpt) for i in (0, 1)])


class GaussianNoise(Transform):
    """Normal noise of `mean` and `sigma` added, its own for each sample."""

    is_random = True

    def __init__(self, mean=0.0, sigma=0.1, clip=True):
        super().__init__()
        self.mean = mean
        self.sigma = sigma
        self.clip = clip

    def transform(self, inpt, params):
        return F.gaussian_noise(inpt, mean=self.mean, sigma=self.sigma, clip=self.clip)


class JPEG(Transform):
    """What is left of the image after JPEG, at a quality from a range that includes both ends."""

    def __init__(self, quality):
        super().__init__()
        if isinstance(quality, int):
            if isinstance(quality, bool):
                raise TypeError("quality can't be bool")
            quality = [quality, quality]
        else:
            need_length(quality, "quality", (2,))
        if not (1 <= quality[0] <= quality[1] <= 100 and all(isinstance(bound, int) for bound in quality)):
            raise ValueError(f"quality must be an integer from 1 to 100, got {quality =}")
        self.quality = quality

    def draw(self, n, inputs, random):
        return {"quality": random.integers(self.quality[0], self.quality[1] + 1)[:, 0]}

    def transform(self, inpt, params): return F.jpeg(inpt, each(params["quality"], inpt))


class UniformTemporalSubsample(Transform):
    """`num_samples` frames of a video [..., T, C, H, W], as far from each other as can be."""

    _transformed_types = (Tensor,)

    def __init__(self, num_samples):
        super().__init__()
        self.num_samples = num_samples

    def transform(self, inpt, params): return F.uniform_temporal_subsample(inpt, self.num_samples)


class RandomErasing(RandomApplyTransform):
    """A box of a share of the area from `scale` erased with probability `p`: to `value`, or to noise ("random")."""

    def __init__(self, p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=0.0, inplace=False):
        super().__init__(p=p)
        if not isinstance(value, (numbers.Number, str, tuple, list)):
            raise TypeError("Argument value should be either a number or str or a sequence")
        if isinstance(value, str) and value != "random":
            raise ValueError("If value is str, it should be 'random'")
        if not isinstance(scale, Sequence):
            raise TypeError("Scale should be a sequence")
        if not isinstance(ratio, Sequence):
            raise TypeError("Ratio should be a sequence")
        if scale[0] > scale[1] or ratio[0] > ratio[1]:
            warnings.warn("Scale and ratio should be of kind (min, max)", stacklevel=2)
        if scale[0] < 0 or scale[1] > 1:
            raise ValueError("Scale should be between 0 and 1")
        self.scale = scale
        self.ratio = ratio
        self.value = None if isinstance(value, str) else [float(value)] if isinstance(value, numbers.Number) \
            else [float(one) for one in value]
        self.inplace = inplace

    def draw(self, n, inputs, random):
        channels, *size = query_chw(inputs)
        if self.value is not None and len(self.value) not in (1, channels):
            raise ValueError(f"If value is a sequence, it should have either a single value or {channels} (number of "
                             "inpt channels)")
        height, width, down, right, found = drawn_boxes(n, size, self.scale, self.ratio, random, False, True)
        drawn = {"i": placed(size[0] - height, down), "j": placed(size[1] - width, right),
                 "h": np.where(found, height, 0), "w": np.where(found, width, 0)}
        if self.value is None:
            drawn["v"] = noise_like(inputs[0] if isinstance(inputs[0], Tensor) else F.pil_to_tensor(inputs[0]), random)
        else:
            drawn["v"] = from_array(np.asarray(self.value, np.float32).reshape(-1, 1, 1))
        return drawn

    def transform_some(self, inpt, params, applied):
        box = [np.where(applied, params[name], 0) for name in "ijhw"]
        value = params["v"]
        if not isinstance(inpt, Tensor) or inpt.ndim <= 3:
            i, j, h, w = (part[0].item() for part in box)
            part = value[..., i:i + h, j:j + w] if self.value is None else value
            return F.erase(inpt, i, j, h, w, part, self.inplace) if h and w else inpt
        return F.erase(inpt, *box, value, self.inplace)


# --- forms ------------------------------------------------------------------------------------------------------------


class ToDtype(Transform):
    """The image in another dtype; with `scale`, full brightness stays full brightness."""

    _transformed_types = (Tensor,)

    def __init__(self, dtype, scale=False):
        super().__init__()
        if not isinstance(dtype, (dict, dtypes.dtype)):
            raise ValueError(f"dtype must be a dict or a torch.dtype, got {type(dtype)} instead")
        self.dtype = dtype
        self.scale = scale

    def transform(self, inpt, params):
        dtype = self.dtype
        if isinstance(dtype, dict):
            if type(inpt) not in dtype and "others" not in dtype:
                raise ValueError(f"No dtype was specified for type {type(inpt)}. If you only need to convert the dtype "
                                 "of images or videos, you can just pass e.g. dtype=torch.float32. If you're passing a "
                                 "dict as dtype, you can use \"others\" as a catch-all key e.g. dtype={torch.Tensor: "
                                 "torch.float32, \"others\": None} to pass-through the rest of the inputs.")
            dtype = dtype[type(inpt)] if type(inpt) in dtype else dtype["others"]
        if dtype is None:
            if self.scale:
                warnings.warn("scale was set to True but no dtype was specified for images or videos: no scaling will "
                              "be done.", stacklevel=2)
            return inpt
        return F.to_dtype(inpt, dtype=dtype, scale=self.scale)


class ConvertImageDtype(Transform):
    """The image in another dtype, full brightness as it is."""

    def __init__(self, dtype=dtypes.float32):
        super().__init__()
        self.dtype = dtype

    def transform(self, inpt, params): return F.to_dtype(inpt, dtype=self.dtype, scale=True)


class PILToTensor(Transform):
    """An image of Pillow's as a tensor [C, H, W] of the same numbers."""

    _transformed_types = (is_pillow,)

    def transform(self, inpt, params): return F.pil_to_tensor(inpt)


class ToImage(Transform):
    """A tensor, an array [H, W, C] or an image of Pillow's as a tensor [C, H, W] of the same numbers."""

    _transformed_types = (Tensor, is_pillow, np.ndarray)

    def transform(self, inpt, params): return F.to_image(inpt)


class ToPILImage(Transform):
    """A tensor [C, H, W] or an array [H, W, C] as an image of Pillow's, in `mode` or the usual one."""

    _transformed_types = (Tensor, np.ndarray)

    def __init__(self, mode=None):
        super().__init__()
        self.mode = mode

    def transform(self, inpt, params): return F.to_pil_image(inpt, mode=self.mode)


class ToPureTensor(Transform):
    """A tensor as it is: there are no tensors of other kinds here."""

    _transformed_types = (Tensor,)

    def transform(self, inpt, params): return inpt


class ToTensor(Transform):
    """An image of Pillow's or an array [H, W, C] as a tensor [C, H, W]; bytes become floats from 0 to 1."""

    _transformed_types = (is_pillow, np.ndarray)

    def transform(self, inpt, params): return F.to_tensor(inpt)
