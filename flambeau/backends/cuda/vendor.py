"""NVIDIA's own libraries as shared libraries: found where CuPy finds them, opened when they are first asked for.

`load("cublas")` gives something with the library's C functions, or None where there is none. A driver of simulated
devices (of the tests) has none of them, unless a test gives a `substitute`: a class with their functions.
"""
import ctypes
import ctypes.util
import glob
import importlib.util
import os
import sys
from contextlib import contextmanager

from ...base.locks import new_lock
from . import driver
from .cupy_driver import CuPyDriver

# The names that dlopen knows, newest first.
SONAMES = {"cublas": ("libcublas.so.13", "libcublas.so.12"), "cublasLt": ("libcublasLt.so.13", "libcublasLt.so.12"),
           "cudnn": ("libcudnn.so.9",)}
_opened: dict = {}          # name → the library, or None
_substitutes: dict = {}
_opening = new_lock()


class VendorError(RuntimeError):
    """A call of one of NVIDIA's libraries failed: its name, and the status that it gave."""


def load(name):
    """The library `name`; None where it cannot be opened."""
    if name in _substitutes:
        return _substitutes[name]
    if not has_gpu():
        return None
    with _opening:
        if name not in _opened:
            _opened[name] = _open(name)
    return _opened[name]


def has_gpu():
    """Whether the process's driver is one of real devices."""
    return isinstance(driver.current(), CuPyDriver)


def workspace(index, nbytes):
    """Memory of a device for a library to work in: something with an `address`, there as long as it is held."""
    return driver.current().allocate(index, nbytes)


def on(index):
    """A context in which a device is this thread's current one."""
    return driver.current().on(index)


@contextmanager
def substitute(name, library):
    """Have `load(name)` give `library`, for the duration of a `with` block."""
    before = dict(_substitutes)
    _substitutes[name] = library
    try:
        yield library
    finally:
        _substitutes.clear()
        _substitutes.update(before)


def _open(name):
    for attempt in (_by_pathfinder, _by_name, _in_packages):
        found = attempt(name)
        if found is not None:
            return found
    return None


def _by_pathfinder(name):
    """Where NVIDIA's own package says that it is, which is how CuPy finds it."""
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.pathfinder") is None:
        return None
    from cuda import pathfinder
    try:
        path = pathfinder.load_nvidia_dynamic_lib(name).abs_path
        return ctypes.CDLL(path) if path else None
    except (pathfinder.DynamicLibNotFoundError, OSError):
        return None


def _by_name(name):
    for soname in SONAMES[name]:
        try:
            return ctypes.CDLL(soname)
        except OSError:
            continue
    return None


def _in_packages(name):
    """In the wheels that NVIDIA publishes, which others (PyTorch among them) install."""
    for folder in sys.path:
        for soname in SONAMES[name]:
            for path in sorted(glob.glob(os.path.join(folder or ".", "nvidia", "*", "lib", soname))):
                try:
                    return ctypes.CDLL(path)
                except OSError:
                    continue
    return None


def declare(library, signatures):
    """Tell ctypes what the functions of a library take: {name: types of its arguments}; all give a status."""
    for name, types in signatures.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types, ctypes.c_int
    return library
