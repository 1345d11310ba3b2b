"""libcuda through ctypes, for the little that CuPy does not show."""
import contextlib
import ctypes
import functools
import os

KERNEL_NODE, COPY_NODE = 0, 1                                        # CUgraphNodeType
HOST_MEMORY, DEVICE_MEMORY, UNIFIED_MEMORY = 1, 2, 4                 # CUmemorytype
MEMORY_TYPE_OF_POINTER = 2                                           # CUpointer_attribute


@functools.cache
def library():
    """The driver's own library."""
    return ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")


class KernelNodeParameters(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2"""

    _fields_ = [("func", ctypes.c_void_p), *((f"{what}Dim{axis}", ctypes.c_uint) for what in ("grid", "block")
                                              for axis in "XYZ"),
                ("sharedMemBytes", ctypes.c_uint), ("kernelParams", ctypes.POINTER(ctypes.c_void_p)),
                ("extra", ctypes.POINTER(ctypes.c_void_p)), ("kern", ctypes.c_void_p), ("ctx", ctypes.c_void_p)]


class CopyNodeParameters(ctypes.Structure):
    """CUDA_MEMCPY3D_v2"""

    _fields_ = [*((f"{side}{name}", ctype) for side in ("src", "dst") for name, ctype in (
        ("XInBytes", ctypes.c_size_t), ("Y", ctypes.c_size_t), ("Z", ctypes.c_size_t), ("LOD", ctypes.c_size_t),
        ("MemoryType", ctypes.c_int), ("Host", ctypes.c_void_p), ("Device", ctypes.c_void_p),
        ("Array", ctypes.c_void_p), ("reserved", ctypes.c_void_p), ("Pitch", ctypes.c_size_t),
        ("Height", ctypes.c_size_t))),
        *((name, ctypes.c_size_t) for name in ("WidthInBytes", "Height", "Depth"))]


def is_of_device(address):
    """Whether an address is one of a device; what CUDA does not know is of the CPU."""
    memory_type = ctypes.c_uint()
    code = library().cuPointerGetAttribute(ctypes.byref(memory_type), MEMORY_TYPE_OF_POINTER, ctypes.c_void_p(address))
    return code == 0 and memory_type.value == DEVICE_MEMORY


def uuid(index):
    """The 16 bytes that name a device, in hexadecimal."""
    device, found = ctypes.c_int(), ctypes.create_string_buffer(16)
    library().cuDeviceGet(ctypes.byref(device), index)
    library().cuDeviceGetUuid_v2(found, device)
    return found.raw.hex()


def cudnn_version():
    """The version of cuDNN's library, "9.14", where one can be loaded."""
    for name in ("libcudnn.so.9", "cudnn64_9.dll"):
        with contextlib.suppress(OSError):
            found = ctypes.CDLL(name).cudnnGetVersion()
            return f"{found // 10000}.{found % 10000 // 100}"
    return None
