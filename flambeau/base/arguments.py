"""What the arguments of creating functions say: sizes, numbers, dtypes, devices, in all of PyTorch's ways."""
import math
import operator

import numpy as np

from . import dtypes, layout as layouts
from .errors import argument_error, need
from .op import door, wrapped
from .shapes import preserved_strides
from .spec import Spec, place, spec


def options(dtype, fallback, device, layout, pin_memory=False):
    """(dtype, device) of a new tensor from the arguments that every creating function takes."""
    if layout is not None and layout is not layouts.strided:
        if layout.__class__ is not layouts.layout:
            raise argument_error(f"argument 'layout' must be torch.layout, not {type(layout).__name__}")
        raise NotImplementedError(f"layout={layout!r}: Flambeau has dense tensors only, layout=torch.strided")
    need(not pin_memory, "pin_memory=True requires a CUDA or other accelerator backend; no pinned memory allocator is "
                         "available on this system.")
    return dtypes.given(dtype, fallback), place(device)


def whole(number, what, position=1, kind="int"):
    """An int: Python's, NumPy's, or that of a zero-dimensional integer tensor."""
    if number.__class__ is int:
        return number
    usable = not isinstance(number, (bool, float)) and hasattr(number, "__index__")
    if usable and isinstance(number, door.tensor):
        usable = number.spec.ndim == 0 and number.spec.dtype.category == 1
    if not usable:
        raise argument_error(f"argument '{what}' (position {position}) must be {kind}, not {type(number).__name__}")
    return operator.index(number)


def shape_of(given, size=None):
    """The shape that `(2, 3)`, `((2, 3),)` or `size=(2, 3)` says."""
    if size is not None:
        if given:
            raise TypeError("got multiple values for argument 'size'")
        given = (size,)
    elif not given:
        raise TypeError('missing 1 required positional arguments: "size"')
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        given = given[0]
    shape = tuple([whole(n, "size", at, "tuple of ints") for at, n in enumerate(given, 1)])
    for n in shape:
        need(n >= 0, f"Trying to create tensor with negative dimension {n}: {list(shape)}. Dimension size must be "
                     "non-negative.")
    return shape


def number(given, what):
    """A Python number: itself, a NumPy scalar's, or that of a zero-dimensional tensor."""
    if given.__class__ in (bool, int, float, complex):
        return given
    if isinstance(given, np.generic) or (isinstance(given, door.tensor) and given.spec.ndim == 0):
        return given.item()
    if isinstance(given, (int, float, complex)):
        return given
    raise argument_error(f"argument '{what}' must be Number, not {type(given).__name__}")


C_NAMES = {"uint8": "uint8_t", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t",
           "float16": "c10::Half", "bfloat16": "c10::BFloat16", "float32": "float", "float64": "double",
           "complex64": "c10::complex<float>", "complex128": "c10::complex<double>"}


def fits(number, dtype):
    """Whether `number` can become `dtype`: fractions may be cut and negatives may wrap, but nothing may overflow."""
    if dtype is dtypes.bool:
        return True
    if isinstance(number, complex):
        if dtype.is_complex:
            return fits(number.real, dtype.to_real()) and fits(number.imag, dtype.to_real())
        return number.imag == 0 and fits(number.real, dtype)
    if dtype.category >= 2:
        return abs(number) <= 65504 or not math.isfinite(number) or abs(number) <= dtypes.finfo(dtype).max
    if isinstance(number, float) and not math.isfinite(number):
        return False
    info = np.iinfo(dtype.np)
    low = info.min if info.min else -info.max             # a negative wraps into an unsigned dtype
    return low <= int(number) <= info.max


def fitting(number, dtype):
    """`number`, refused in PyTorch's words if `dtype` cannot hold it."""
    need(fits(number, dtype), f"value cannot be converted to type {C_NAMES.get(dtype.name)} without overflow: "
                              f"{number!r}")
    return number


def as_scalar(number, dtype):
    """`number` as a NumPy scalar of `dtype`, converted as C converts."""
    if dtype is dtypes.bool:
        return np.bool_(number != 0)
    if dtype.category == 1:
        return dtype.np.type(wrapped(int(number.real), dtype.np))
    if dtype.category == 2 and isinstance(number, complex):
        number = number.real
    if isinstance(number, int) and not -2**63 <= number < 2**63:
        number = float(number)
    with np.errstate(over="ignore"):
        return np.asarray(number).astype(dtype.np)[()]


def asked(tensor, requires_grad):
    """`tensor`, asking for gradients if the caller does."""
    if requires_grad:
        need(tensor.spec.dtype.category >= 2, "Only Tensors of floating point and complex dtype can require gradients, "
                                              f"and the dtype here is {tensor.spec.dtype!r}")
        tensor.requires_grad_()
    return tensor


def like(input, dtype, device, layout, memory_format, pin_memory=False) -> Spec:
    """The spec of a new tensor shaped (and, where nothing else is said, laid out) like `input`."""
    if not isinstance(input, door.tensor):
        raise argument_error(f"argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    kind = input.spec
    dtype, where = options(dtype, kind.dtype, kind.device if device is None else device, layout, pin_memory)
    if memory_format is None or memory_format is layouts.preserve_format:
        strides = preserved_strides(kind.shape, kind.strides)
    else:
        strides = memory_format.strides(kind.shape)
    return spec(dtype, kind.shape, strides, where)
