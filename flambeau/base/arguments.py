"""What the arguments of creating functions say: sizes, numbers, dtypes, devices, in all of PyTorch's ways."""
import math
import operator

import numpy as np

from . import dtypes, layout as layouts
from .errors import argument_error, need
from .op import door, wrapped
from .shapes import preserved_strides
from .spec import Spec, as_device, spec


def options(dtype, fallback, device, layout, pin_memory=False):
    """(dtype, device) of a new tensor from the arguments that every creating function takes."""
    if layout is not None and layout is not layouts.strided:
        if layout.__class__ is not layouts.layout:
            raise argument_error(f"argument 'layout' must be torch.layout, not {type(layout).__name__}")
        raise NotImplementedError(f"layout={layout!r}: Flambeau has dense tensors only, layout=torch.strided")
    need(not pin_memory, "pin_memory=True requires a CUDA or other accelerator backend; no pinned memory allocator is "
                         "available on this system.")
    return dtypes.given(dtype, fallback), as_device(device)


def whole(number, what, position=1, type_name="int"):
    """An int: Python's, NumPy's, or that of a zero-dimensional integer tensor."""
    if number.__class__ is int:
        return number
    usable = not isinstance(number, (bool, float)) and hasattr(number, "__index__")
    if usable and isinstance(number, door.tensor):
        usable = number._spec.ndim == 0 and number._spec.dtype.category == 1
    if not usable:
        raise argument_error(f"argument '{what}' (position {position}) must be {type_name}, not "
                             f"{type(number).__name__}")
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


# What an argument counts as that is an instance of a class derived from one of these, such as a member of an enum.
DERIVED_BASES = (int, float, complex, str, np.generic)
PLAIN_CLASSES = frozenset((bool, int, float, complex, str))


def underived(given):
    """The plain number or word that an instance of a derived class is; what is of another class is itself."""
    if given.__class__ in PLAIN_CLASSES or not isinstance(given, DERIVED_BASES):
        return given
    if isinstance(given, np.generic):
        return given.item()
    if isinstance(given, str):
        return str.__str__(given)                # and not what an enum shows of its member
    return int(given) if isinstance(given, int) else float(given) if isinstance(given, float) else complex(given)


def any_derived(group):
    """Whether something in `group` is not yet what it counts as: see `underived_all`."""
    return any(b.__class__ not in PLAIN_CLASSES and (isinstance(b, DERIVED_BASES) or hasattr(b.__class__, "__index__"))
               for b in group)


def underived_all(group):
    """A tuple of what is in `group`, plain; an object of a class of its own that stands for a whole number is that."""
    return tuple([b if b.__class__ in PLAIN_CLASSES else underived(b) if isinstance(b, DERIVED_BASES)
                  else operator.index(b) if hasattr(b.__class__, "__index__") else b for b in group])


def number(given, what):
    """A Python number: itself, a NumPy scalar's, or that of a zero-dimensional tensor."""
    if given.__class__ in (bool, int, float, complex):
        return given
    if isinstance(given, door.tensor) and given._spec.ndim == 0:
        return given.item()
    if isinstance(given, DERIVED_BASES) and not isinstance(given, str):
        return underived(given)
    raise argument_error(f"argument '{what}' must be Number, not {type(given).__name__}")


C_NAMES = {"uint8": "uint8_t", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t",
           "float16": "c10::Half", "bfloat16": "c10::BFloat16", "float32": "float", "float64": "double",
           "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
           **{d.name: f"{d.name}_t" if d.category == 1 else f"c10::{d.cname}" for d in dtypes.ALL if d.family}}


# Note [A number enters a dtype]: Python's numbers are wide, a tensor's elements are not. `fits` says which number may
# become an element. Where PyTorch reads an argument as a number of the tensor's dtype (`clamp`, `alpha`, `fill_`), what
# does not fit is refused: an operation names such arguments in its heading `must_fit`, and `tensor/infer.py` asks at
# every call; where there is no heading, `fitting` is called. Where PyTorch makes a tensor of the number first
# (`x + 300` of bytes), it wraps around as C's numbers do: `wrapped` and `as_scalar`. An int beyond 64 bits is refused
# everywhere.
# Operands of elementwise operations become numbers of the common dtype first, of 16-bit floats too, although these are
# computed in float32: `x - 0.3` is zero where a bfloat16 is as near to 0.3 as it can be. `rounded_places` says which
# operands of a call that concerns; what PyTorch's kernels take in float32 as it comes, an operation names in its
# heading `as_given`.

LEAST_INT, MOST_INT = -2**63, 2**64 - 1        # what PyTorch reads as an integer


def beyond_64_bits(number):
    """Refuse an int that no integer of the machine holds, as PyTorch does."""
    said = "int too big to convert" if number > 0 else "can't convert negative int to unsigned"
    raise OverflowError(f"{said}: {number} has more than 64 bits. Write a float, as in {float(number)!r}.")


def fits(number, dtype):
    """Whether `number` can become `dtype`: fractions may be cut, negative integers may wrap, nothing may overflow."""
    if dtype is dtypes.bool:
        return True
    if isinstance(number, complex):
        if dtype.is_complex:
            return fits(number.real, dtype.to_real()) and fits(number.imag, dtype.to_real())
        return number.imag == 0 and fits(number.real, dtype)
    if dtype.family == "float8":
        if not math.isfinite(number):
            return dtype is dtypes.float8_e5m2 or number != number
        limits = dtypes.finfo(dtype)
        if dtype is dtypes.float8_e8m0fnu and number.__class__ is not float:       # it drops the sign of whole numbers
            return abs(number) <= limits.max
        return limits.min <= number <= limits.max
    if dtype.category >= 2:
        return abs(number) <= 65504 or not math.isfinite(number) or abs(number) <= dtypes.finfo(dtype).max
    info = np.iinfo(dtype.np)
    if isinstance(number, float):
        return int(info.min) <= number <= int(info.max)    # and nan is not
    low = info.min if info.min else -info.max              # a negative integer wraps into an unsigned dtype
    return low <= number <= info.max


def fitting(number, dtype):
    """`number`, refused in PyTorch's words if `dtype` cannot hold it."""
    if number.__class__ is int and not LEAST_INT <= number <= MOST_INT:
        beyond_64_bits(number)
    if not fits(number, dtype):                  # only then is the number written: writing it would fix one that is
        need(False, f"value cannot be converted to type {C_NAMES.get(dtype.name)} without overflow: {number!r}")
    return number                                # recorded


# word in `must_fit` → the dtype that a number has to fit, from the dtype of the computation; None for any number
FITTED_DTYPES = {
    "dtype": lambda dtype: dtype,
    "compute": lambda dtype: dtypes.float32 if dtype.category == 2 and dtype.itemsize == 2 else dtype,
    "unless half": lambda dtype: None if dtype.category == 2 and dtype.itemsize == 2 else dtype,
    "unless wide": lambda dtype: None if dtype.category == 3 or dtype.category == 2 and dtype.itemsize > 2 else dtype,
}


def fitted_places(op, args, dtype):
    """(position, dtype) of each number among `args` (numbers by their types) that `op` wants to fit, or None."""
    found = []
    for name, word in op.must_fit.items():
        at = op.arg_names.index(name)
        fitted = FITTED_DTYPES[word](dtype)
        if args[at].__class__ is type and fitted is not None and fitted is not dtypes.bool:
            found.append((at, fitted))
    return tuple(found) or None


def rounded_places(op, args, template, common):
    """(dtype, slots of tensors, positions of numbers) to be rounded to the 16 bits of `common` first, or None.

    `args` are Specs and, for numbers, types; `template` says which slot a tensor is in.
    """
    if common is None or common.category != 2 or common.itemsize != 2 or op.exact:
        return None
    slots, numbers = [], []
    for at, (a, name) in enumerate(zip(args, op.arg_names, strict=True)):
        kept = name in op.as_given
        if not op.operand_at[at]:
            continue
        if a.__class__ is Spec and a.dtype is not common and not (kept and a.ndim == 0):
            slots.append(template[at])
        elif a.__class__ is type and not kept:
            numbers.append(at)
    return (common, tuple(slots), tuple(numbers)) if slots or numbers else None


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
        return dtypes.as_dtype(np.asarray(number), dtype)[()]


def asked(tensor, requires_grad):
    """`tensor`, asking for gradients if the caller does."""
    if requires_grad:
        need(tensor._spec.dtype.category >= 2, "Only Tensors of floating point and complex dtype can require gradients"
                                              f", and the dtype here is {tensor._spec.dtype!r}")
        tensor.requires_grad_()
    return tensor


def like(input, dtype, device, layout, memory_format, pin_memory=False) -> Spec:
    """The spec of a new tensor shaped (and, where nothing else is said, laid out) like `input`."""
    if not isinstance(input, door.tensor):
        raise argument_error(f"argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    own = input._spec
    dtype, where = options(dtype, own.dtype, own.device if device is None else device, layout, pin_memory)
    if memory_format is None or memory_format is layouts.preserve_format:
        strides = preserved_strides(own.shape, own.strides)
    else:
        strides = memory_format.strides(own.shape)
    return spec(dtype, own.shape, strides, where)
