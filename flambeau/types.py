"""`torch.types`: names for what functions take, for annotations."""
from collections.abc import Sequence
from os import PathLike
from typing import IO, TypeAlias

from .base.dtypes import dtype
from .base.layout import layout
from .base.spec import Size, device
from .tensor.storage import UntypedStorage as Storage
from .tensor.tensor import Tensor

__all__ = ["Device", "FileLike", "Number", "Storage"]

Number: TypeAlias = int | float | bool
Device: TypeAlias = str | int | device | None
FileLike: TypeAlias = str | PathLike | IO[bytes]
IntLikeType: TypeAlias = int
FloatLikeType: TypeAlias = float
BoolLikeType: TypeAlias = bool

# The names of PyTorch's own stubs, which annotations of programs borrow.
_int, _float, _bool, _str = int, float, bool, str
_dtype, _device, _layout = dtype, device, layout
_size: TypeAlias = Size | Sequence[int]
_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
