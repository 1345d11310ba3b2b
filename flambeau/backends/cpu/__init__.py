"""The processor: NumPy's arrays, kernels compiled by LLVM, and a library of kernels written by hand."""
from importlib import import_module

__all__ = ["get_cpu_capability"]


def __getattr__(name):
    if name != "get_cpu_capability":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(".machine_code", __name__).get_cpu_capability     # and with it LLVM, when it is asked for
