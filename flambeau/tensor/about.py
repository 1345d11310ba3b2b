"""Questions about tensors and dtypes, as functions: `is_tensor`, `numel`, `result_type`, `typename`, …"""
import numpy as np

from ..base import dtypes
from ..base.errors import argument_error
from ..base.op import Op
from ..base.spec import default_device
from .create import type_name
from .forms import function_name
from .overrides import handle_torch_function, has_torch_function
from .storage import UntypedStorage
from .tensor import Tensor
from .typed_storage import TypedStorage

PUBLIC = ("is_tensor", "is_storage", "is_floating_point", "is_complex", "is_nonzero", "is_same_size", "is_inference",
          "is_signed", "is_conj", "is_neg", "numel", "result_type", "typename", "get_default_device",
          "set_default_tensor_type", "get_device")


def is_tensor(obj):
    """Whether `obj` is a tensor.

    >>> torch.is_tensor(torch.ones(2))
    True
    """
    return isinstance(obj, Tensor)


def is_storage(obj):
    """Whether `obj` is a storage object."""
    return isinstance(obj, (UntypedStorage, TypedStorage))


def elsewhere(function, *args):
    """What `function` gives where not all arguments are tensors: one may take the call over (a Proxy of torch.fx)."""
    if has_torch_function(args):
        return handle_torch_function(function, args, *args)
    position, wrong = next((i, a) for i, a in enumerate(args, 1) if not isinstance(a, Tensor))
    raise argument_error(f"argument '{('input', 'other')[position - 1]}' (position {position}) must be Tensor, not "
                         f"{type(wrong).__name__}")


def is_floating_point(input):
    """Whether the dtype is a floating one.

    >>> torch.is_floating_point(torch.ones(2))
    True
    """
    return input.is_floating_point() if isinstance(input, Tensor) else elsewhere(is_floating_point, input)


def is_complex(input):
    """Whether the dtype is complex.

    >>> torch.is_complex(torch.ones(2))
    False
    """
    return input.is_complex() if isinstance(input, Tensor) else elsewhere(is_complex, input)


def is_signed(input):
    """Whether the dtype can hold negative numbers.

    >>> torch.is_signed(torch.tensor([3]))
    True
    """
    return input.is_signed() if isinstance(input, Tensor) else elsewhere(is_signed, input)


def is_conj(input):
    """Whether conjugation is pending: never, it is computed like any operation."""
    return False if isinstance(input, Tensor) else elsewhere(is_conj, input)


def is_neg(input):
    """Whether a sign change is pending: never, it is computed like any operation."""
    return False if isinstance(input, Tensor) else elsewhere(is_neg, input)


def is_inference(input):
    """Whether the tensor was made in inference mode."""
    return input.is_inference() if isinstance(input, Tensor) else elsewhere(is_inference, input)


def is_nonzero(input):
    """Whether the only element is not zero.

    >>> torch.is_nonzero(torch.tensor([3.0]))
    True
    """
    return input.is_nonzero() if isinstance(input, Tensor) else elsewhere(is_nonzero, input)


def is_same_size(input, other):
    """Whether both tensors have the same shape.

    >>> torch.is_same_size(torch.ones(2), torch.zeros(2))
    True
    """
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        return elsewhere(is_same_size, input, other)
    return input._spec.shape == other._spec.shape


def numel(input):
    """The number of elements.

    >>> torch.numel(torch.ones(2, 3))
    6
    """
    return input.numel() if isinstance(input, Tensor) else elsewhere(numel, input)


def get_device(input):
    """The index of the device; -1 on the CPU."""
    return input.get_device() if isinstance(input, Tensor) else elsewhere(get_device, input)


def result_type(tensor, other):
    """The dtype that an arithmetic operation on the two (tensors or numbers) has.

    >>> torch.result_type(torch.tensor([1, 2]), 1.5)
    torch.float32
    """
    operands = []
    for given in (tensor, other):
        if isinstance(given, np.generic):
            given = given.item()
        if isinstance(given, Tensor):
            operands.append((given._spec.dtype, 2 if given._spec.ndim else 1))
        elif isinstance(given, (bool, int, float, complex)):
            operands.append((dtypes.of_number(type(given)), 0))
        elif has_torch_function((given,)):
            return handle_torch_function(result_type, (tensor, other), tensor, other)
        else:
            raise argument_error(f"argument must be Tensor or Number, not {type(given).__name__}")
    return dtypes.result_of(operands)


def typename(obj):
    """The name of a tensor's legacy type, of a function, or of the type of anything else.

    >>> torch.typename(torch.ones(2))
    'torch.FloatTensor'
    """
    if isinstance(obj, Tensor):
        return type_name(obj.dtype)
    if isinstance(obj, Op):
        return function_name(obj)
    if is_storage(obj):
        return f"torch.storage.{type(obj).__name__}"
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(named, "__module__", "") or ""
    return named.__qualname__ if module in ("", "builtins") else f"{module}.{named.__qualname__}"


def get_default_device():
    """The device of new tensors when none is named."""
    return default_device()


def set_default_tensor_type(t):
    """Make the dtype of a legacy type (`DoubleTensor`) the default. Deprecated in PyTorch: use `set_default_dtype`."""
    name = t if isinstance(t, str) else type_name(t.dtype) if hasattr(t, "dtype") else repr(t)
    for d in dtypes.ALL:
        if type_name(d) == name:
            return dtypes.set_default_dtype(d)
    raise TypeError(f"invalid type object: {t!r}; use set_default_dtype and set_default_device")


def is_same_size_method(self, other):
    """Whether both tensors have the same shape."""
    return is_same_size(self, other)


Tensor.is_same_size = is_same_size_method
Tensor.is_conj, Tensor.is_neg = is_conj, is_neg
