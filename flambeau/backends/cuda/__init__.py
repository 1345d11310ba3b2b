"""NVIDIA GPUs as one backend: memory, copies, streams and the reference executor by CuPy, kernels by NVRTC.

Nothing here is imported before the program asks for a device "cuda". `open_device` makes the Backend of one; it raises
chain.Broken, which says what is missing and how to get it, where there is none.

The folder has the name of `torch.backends.cuda`, the switches of PyTorch's CUDA libraries (library_switches.py), so it
answers for them too.
"""
from typing import Any

from . import driver


def open_device(index):
    """The Backend of the device "cuda:index"."""
    from .backend import CUDABackend
    count = driver.current().device_count()
    if index >= count:
        raise RuntimeError(f"CUDA error: invalid device ordinal: there is no cuda:{index}, {_those(count)}")
    return CUDABackend(index)


def _those(count):
    return "only cuda:0" if count == 1 else f"the {count} devices are cuda:0 to cuda:{count - 1}"


def absence():
    """None where a GPU can be used, else the chain.Broken that says why not. Starts nothing."""
    return driver.absence()


def current_index():
    """The index of the device that "cuda" means in this thread."""
    return driver.current().current_device()


def __getattr__(name) -> Any:
    from .. import library_switches
    return getattr(library_switches.cuda, name)
