"""LAPACK as it is loaded already: the library behind NumPy's linalg, asked for its other functions too.

NumPy's wheels bring an OpenBLAS with the whole of LAPACK, under names and with integers that its build chose; another
build of NumPy has another library, or one that shows nothing. So names are tried, how wide integers are is tried too,
and what is not found is None: then operations run by their references, with the same results. `described` says in
words what was found.
"""
import ctypes
import functools
import glob
import os
import sys

import numpy as np
from numpy.linalg import _umath_linalg

from ...base.locks import in_child, new_lock

# How builds call a function of LAPACK's; the first with wide integers, as in NumPy's wheels, the last mostly without.
SPELLINGS = "scipy_{}_64_", "{}_64_", "{}$NEWLAPACK$ILP64", "{}$NEWLAPACK", "{}64_", "scipy_{}_", "{}_"
# How OpenBLAS calls a function of its own.
OWN_SPELLINGS = "scipy_openblas_{}64_", "openblas_{}64_", "scipy_openblas_{}", "openblas_{}"
LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}

_threads_lock = new_lock()
_callers = 0                  # how many compute now, with a number of threads that was set for them
_threads_now = 0              # what that number is,
_threads_before = 0           # and what it was before the first of them


@functools.cache
def libraries():
    """What to look for functions in: NumPy's own module, which stands for all that it is linked with where the system
    looks there too, and else the libraries that came with NumPy."""
    found = [ctypes.CDLL(_umath_linalg.__file__)]
    if sys.platform == "win32":
        folder = os.path.join(os.path.dirname(os.path.dirname(np.__file__)), "numpy.libs")
        found += [ctypes.CDLL(path) for path in sorted(glob.glob(os.path.join(folder, "*openblas*.dll")))]
    return found


def _find(spellings, name):
    """(the function, how it is spelt); (None, None) where there is none."""
    for spelling in spellings:
        for library in libraries():
            try:
                return library[spelling.format(name)], spelling
            except AttributeError:
                pass
    return None, None


@functools.cache
def integer_bytes():
    """How many bytes the library's integers have; 0 where there is no library."""
    factor, _ = _find(SPELLINGS, "dpotrf")
    if factor is None:
        return 0
    none, one, info = ctypes.c_int64(0), ctypes.c_int64(1), ctypes.c_int64(-1)
    factor(ctypes.c_char_p(b"L"), ctypes.byref(none), None, ctypes.byref(one), ctypes.byref(info))
    return 8 if info.value == 0 else 4           # what it did not write is as it was


@functools.cache
def address(name, dtype=None):
    """Where the function `name` lies ("potrf" of float64 is dpotrf); None where there is none."""
    if sys.byteorder != "little" or not integer_bytes():
        return None
    found, _ = _find(SPELLINGS, LETTERS[dtype] + name if dtype else name)
    return None if found is None else ctypes.cast(found, ctypes.c_void_p).value


@functools.cache
def thread_switch():
    """(the function that says on how many threads OpenBLAS computes, the one that sets it); None without OpenBLAS."""
    asked, _ = _find(OWN_SPELLINGS, "get_num_threads")
    told, _ = _find(OWN_SPELLINGS, "set_num_threads")
    return None if asked is None or told is None else (asked, told)


def compute_on(threads):
    """Have the library compute on so many threads of its own, or fewer where another caller wants that, until
    `computed` is called. What was set is put back when no caller computes any more."""
    global _callers, _threads_now, _threads_before
    asked, told = thread_switch()
    with _threads_lock:
        if not _callers:
            _threads_before = _threads_now = asked()
        if threads != _threads_now and (threads < _threads_now or not _callers):
            told(threads)
            _threads_now = threads
        _callers += 1


def computed():
    """What `compute_on` was called for is done."""
    global _callers
    with _threads_lock:
        _callers -= 1
        if not _callers and _threads_now != _threads_before:
            thread_switch()[1](_threads_before)


@in_child
def _after_fork():
    """The callers stayed with the parent."""
    global _callers
    if _callers and _threads_now != _threads_before:
        thread_switch()[1](_threads_before)
    _callers = 0


@functools.cache
def described():
    """The library in words, and how its integers are; None where there is none."""
    if not integer_bytes():
        return None
    config, _ = _find(OWN_SPELLINGS, "get_config")
    if config is not None:
        config.restype = ctypes.c_char_p
        name = " ".join(config().decode().split()[:2])
    else:
        known = np.show_config(mode="dicts").get("Build Dependencies", {}).get("lapack", {})
        name = " ".join(filter(None, (known.get("name"), known.get("version")))) or "unknown"
    return f"{name}, with {8 * integer_bytes()}-bit integers"
