"""DLPack both ways: tensors of other libraries as ours and ours as theirs, over the same memory.

NumPy makes and reads the capsules. Two things it does not do are done here: bfloat16 and the 8-bit floats, which it
does not know, travel as uint16 and uint8 with the type code in the capsule changed; and a capsule of the old,
unversioned form, which NumPy takes for read-only, is made writeable again, since the form could not have said so.
"""
import ctypes

import numpy as np

from ..autograd.node import requires
from ..base import dtypes
from ..base.spec import META, place
from .interop import check_array, exported, shared, who
from .tensor import Tensor

PUBLIC = ("from_dlpack",)

CPU_DEVICE = (1, 0)           # kDLCPU
UINT = 1                      # type codes
FOREIGN = {dtypes.bfloat16: 4, dtypes.float8_e4m3fn: 10, dtypes.float8_e4m3fnuz: 11, dtypes.float8_e5m2: 12,
           dtypes.float8_e5m2fnuz: 13, dtypes.float8_e8m0fnu: 14}
BY_CODE = {(code, 8 * dtype.itemsize): dtype for dtype, code in FOREIGN.items()}


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64)]


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


FORMS = {b"dltensor": DLManagedTensor, b"dltensor_versioned": DLManagedTensorVersioned}
_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_in.restype, _pointer_in.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def opened(capsule):
    """The DLTensor inside a capsule, to read or change."""
    name = _name_of(capsule)
    if name not in FORMS:
        raise RuntimeError(f"from_dlpack received an invalid capsule '{(name or b'').decode()}'. Note that DLTensor "
                           "capsules can be consumed only once, so you might have already constructed a tensor from it "
                           "once.")
    return FORMS[name].from_address(_pointer_in(capsule, name)).tensor


class Carrier:
    """A capsule as an object that `np.from_dlpack` takes."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **kwargs):
        return self.capsule

    def __dlpack_device__(self):
        return CPU_DEVICE


class Writeable:
    """The memory of a read-only array, shown through the array interface as writeable."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False),
                                    "strides": array.strides}


# --- out --------------------------------------------------


def dlpack(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    """A DLPack capsule over the tensor's memory (of a copy, with `copy=True`)."""
    if requires(self):
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()" + who(self))
    if self.spec.device is META:
        raise BufferError("Cannot pack tensors on meta" + who(self))
    if stream not in (None, -1):
        raise AssertionError(f"stream should be None on cpu, got {stream}")
    if dl_device is not None and tuple(map(int, dl_device)) != CPU_DEVICE:
        raise BufferError(f"the tensor is on the CPU, and there is no device {tuple(dl_device)} to copy it to")
    source = self.clone() if copy else self
    array = exported(source)
    dtype = source.spec.dtype
    if dtype in FOREIGN:
        array = array.view(f"u{dtype.itemsize}")
    capsule = array.__dlpack__(max_version=max_version)
    if dtype in FOREIGN:
        opened(capsule).code = FOREIGN[dtype]
    return capsule


def dlpack_device(self):
    """The device as DLPack counts: (1, 0), the CPU."""
    if self.spec.device is META:
        raise ValueError("Unknown device type meta for Dlpack")
    return CPU_DEVICE


def to_dlpack(tensor):
    """A DLPack capsule over the tensor's memory, in the old form that carries no version."""
    return dlpack(tensor)


# --- in --------------------------------------------------


def from_dlpack(ext_tensor, *, device=None, copy=None):
    """A tensor over the memory of another library's tensor (or of a DLPack capsule); read-only if that is.

    >>> import numpy as np
    >>> torch.from_dlpack(np.arange(3))
    tensor([0, 1, 2])
    """
    if isinstance(ext_tensor, Tensor):
        out = ext_tensor.detach()
    else:
        out = shared(array_over(ext_tensor))
    if device is not None and place(device) is not out.device:
        if copy is False:
            raise ValueError(f"cannot move a tensor from {out.device} to {device} without copying it")
        out = out.to(device=device)
    return out.clone() if copy else out


def array_over(thing):
    """The array that shows the memory of an object with `__dlpack__`, or of a capsule."""
    capsule = thing
    if hasattr(thing, "__dlpack__"):
        where = tuple(map(int, thing.__dlpack_device__()))
        if where[0] != CPU_DEVICE[0]:
            raise BufferError(f"the other tensor is on DLPack device {where}, and there is only the CPU here: copy it "
                              "to the CPU first")
        try:
            capsule = thing.__dlpack__(max_version=(1, 0))
        except TypeError:                                  # from before versions
            capsule = thing.__dlpack__()
    elif type(thing).__name__ != "PyCapsule":
        raise RuntimeError(f"from_dlpack received an invalid capsule: {type(thing).__name__} has no __dlpack__, and is "
                           "none")
    versioned = _name_of(capsule) == b"dltensor_versioned"
    inside = opened(capsule)
    foreign = BY_CODE.get((inside.code, inside.bits))
    if foreign is not None:
        inside.code = UINT
    array = np.from_dlpack(Carrier(capsule))
    if not versioned:
        array = np.asarray(Writeable(array))
    if foreign is not None:
        array = array.view(foreign.np)
    check_array(array)
    return array


Tensor.__dlpack__, Tensor.__dlpack_device__ = dlpack, dlpack_device
