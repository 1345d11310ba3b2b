"""The system's mathematical functions over arrays: PyTorch passes random numbers through them, and its last places are
theirs.

NumPy has functions of its own on some processors, with other last places. Compiled code calls the system's by their
addresses, element by element; where there is none, Python does, whose `math` is the system's too.
"""
import ctypes
import functools
import math
import os

import numpy as np

from ..llvm_writer import LLVMWriter

LARGEST_EXPONENT = 709.782712893384     # that exp takes: beyond, Python raises


def mapped(name, values, run=None):
    """What the system's function `name` (`log1p`, of float32 `logf`) gives for each element of the array `values`.

    `run` is the compiled function of `text` for the dtype, where there is one.
    """
    values = np.ascontiguousarray(values)
    found = function(name)
    if run is None or found is None:
        one = _python_function(name) if found is None or values.dtype == np.float64 else found
        return np.fromiter(map(one, values.reshape(-1).tolist()), values.dtype, values.size).reshape(values.shape)
    out = np.empty_like(values)
    run(ctypes.cast(found, ctypes.c_void_p), values.ctypes.data, out.ctypes.data, values.size)
    return out


@functools.cache
def function(name):
    """The system's function, as ctypes calls it; None where the process has none of that name."""
    real = ctypes.c_float if name.endswith("f") else ctypes.c_double
    found = getattr(ctypes.CDLL(None if os.name == "posix" else "ucrtbase"), name, None)
    if found is not None:
        found.restype, found.argtypes = real, (real,)
    return found


def _python_function(name):
    """The same in Python, for float64 and, but for some last places, float32."""
    if name == "log":
        return lambda x: math.log(x) if x else -math.inf
    if name == "exp":
        return lambda x: math.exp(x) if x <= LARGEST_EXPONENT else math.inf
    return getattr(math, name.removesuffix("f"))


def text(target):
    """`map64` and `map32`, which write to `out` what a function gives each of `count` elements; and `scale64`, where
    the processor has an instruction for it: `count` elements times a number plus another, in their place."""
    parts = [_map(name, type) for name, type in (("map64", "double"), ("map32", "float"))]
    return "\n".join(parts + [_scale()] * target.fma)


def _map(name, type):
    w = LLVMWriter(f"define void @{name}(ptr %function, ptr %from, ptr %out, i64 %count)")
    with w.loop(0, "%count") as k:
        value = w.load(type, w.at(type, "%from", k.i))
        w.store(type, w(f"call {type} %function({type} {value})"), w.at(type, "%out", k.i))
    return w.text()


def _scale():
    w = LLVMWriter("define void @scale64(ptr %values, i64 %count, double %scale, double %low)")
    with w.loop(0, "%count") as k:
        pointer = w.at("double", "%values", k.i)
        scaled = w(f"call double @llvm.fma.f64(double {w.load('double', pointer)}, double %scale, double %low)")
        w.store("double", scaled, pointer)
    return "declare double @llvm.fma.f64(double, double, double)\n" + w.text()
