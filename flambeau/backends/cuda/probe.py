"""Ask NVIDIA's driver whether it works and how many devices it sees: as a script, in a process of its own.

cuInit cannot be undone, and a process that forks after it has no CUDA in its children. A question such as
`torch.cuda.is_available()` should not have that price; so chain.py has it asked here, with nothing but ctypes.
"""
import ctypes
import sys

DRIVER_NAMES = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")


def load():
    """The driver's library, not started; OSError where there is none."""
    for at, name in enumerate(DRIVER_NAMES):
        try:
            return ctypes.CDLL(name)
        except OSError:
            if at + 1 == len(DRIVER_NAMES):
                raise


def version(library):
    """The newest CUDA that the driver knows, as 13000 for 13.0; it can be asked without starting it."""
    number = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(number))
    return number.value


def start(library):
    """(what cuInit says, how many devices there are)."""
    count = ctypes.c_int()
    code = library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count))
    return code, count.value


if __name__ == "__main__":
    print(*start(load()))
