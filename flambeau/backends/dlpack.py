"""DLPack capsules: how libraries hand each other memory, read and written below NumPy.

NumPy makes and reads the capsules. Two things it does not do are done here: bfloat16 and the 8-bit floats, which it
does not know, travel as uint16 and uint8 with the type code in the capsule changed; and a capsule of the old,
unversioned form, which NumPy takes for read-only, is made writeable again, since the form could not have said so.
"""
import ctypes

import numpy as np

from ..base import dtypes
from .cpu.host import address

CPU_DEVICE = (1, 0)           # kDLCPU
CUDA_DEVICE = 2               # kDLCUDA, of each GPU with its index
UINT_TYPE_CODE = 1            # type codes
TYPE_CODES = {dtypes.bfloat16: 4, dtypes.float8_e4m3fn: 10, dtypes.float8_e4m3fnuz: 11, dtypes.float8_e5m2: 12,
              dtypes.float8_e5m2fnuz: 13, dtypes.float8_e8m0fnu: 14}
DTYPE_OF_TYPE = {(code, 8 * dtype.itemsize): dtype for dtype, code in TYPE_CODES.items()}


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


CAPSULE_STRUCTURES = {b"dltensor": DLManagedTensor, b"dltensor_versioned": DLManagedTensorVersioned}
_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_in.restype, _pointer_in.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def opened(capsule):
    """The DLTensor inside a capsule, to read or change."""
    name = _name_of(capsule)
    if name not in CAPSULE_STRUCTURES:
        raise RuntimeError(f"from_dlpack received an invalid capsule '{(name or b'').decode()}'. Note that DLTensor "
                           "capsules can be consumed only once, so you might have already constructed a tensor from it "
                           "once.")
    return CAPSULE_STRUCTURES[name].from_address(_pointer_in(capsule, name)).tensor


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
        self.__array_interface__ = {**array.__array_interface__, "data": (address(array), False),
                                    "strides": array.strides}


def packed(array, dtype, max_version):
    """A capsule over the memory of `array`, which holds elements of `dtype`."""
    if dtype not in TYPE_CODES:
        return array.__dlpack__(max_version=max_version)
    capsule = array.view(f"u{dtype.itemsize}").__dlpack__(max_version=max_version)
    opened(capsule).code = TYPE_CODES[dtype]
    return capsule


def unpacked(capsule):
    """The array that shows the memory in a capsule, which is consumed."""
    versioned = _name_of(capsule) == b"dltensor_versioned"
    inside = opened(capsule)
    foreign = DTYPE_OF_TYPE.get((inside.code, inside.bits))
    if foreign is not None:
        inside.code = UINT_TYPE_CODE
    array = np.from_dlpack(Carrier(capsule))
    if not versioned:
        array = np.asarray(Writeable(array))
    return array if foreign is None else array.view(foreign.np)
