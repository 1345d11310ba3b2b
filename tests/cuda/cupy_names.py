"""Print what CuPy has of NumPy's names: functions and methods of arrays, with the names of their arguments.

    python -m tests.cuda.cupy_names > tests/cuda/cupy_names.txt

It needs CuPy, but no GPU. `test_arrays.py` holds what operations use against the list.
"""
import inspect
import re

import numpy as np

MODULES = ("", "linalg.", "fft.", "lib.stride_tricks.")


def lines(cupy):
    """`name(arguments)` for every function, `name` for what is none, `ndarray.name(arguments)` for methods."""
    yield f"CuPy {cupy.__version__}"
    for prefix in MODULES:
        theirs, ours = found(np, prefix), found(cupy, prefix)
        for name in sorted(set(dir(theirs)) & set(dir(ours))):
            if not name.startswith("_") and not inspect.ismodule(getattr(ours, name)):
                yield described(prefix + name, getattr(ours, name), cupy.ufunc)
    for name in sorted(set(dir(np.ndarray)) & set(dir(cupy.ndarray))):
        if not name.startswith("_"):
            yield described(f"ndarray.{name}", getattr(cupy.ndarray, name), cupy.ufunc)


def found(module, prefix):
    for name in filter(None, prefix.split(".")):
        module = getattr(module, name)
    return module


def described(name, thing, ufunc):
    if isinstance(thing, ufunc):
        return f"{name}({', '.join(f'x{i}' for i in range(thing.nin))}, out, dtype, casting)"
    if isinstance(thing, type) or not callable(thing):
        return name
    try:
        names = list(inspect.signature(thing).parameters)
    except (TypeError, ValueError):                          # Cython's: the first line of its documentation says it
        said = re.match(r"[\w.]+\((.*?)\)", (thing.__doc__ or "").split("\n")[0])
        names = [] if said is None else [re.split(r"[=:]", part)[0].split()[-1] for part in said[1].split(",") if part]
    return f"{name}({', '.join(n for n in names if n not in ('self', '*', '/'))})"


if __name__ == "__main__":
    import cupy
    print("\n".join(lines(cupy)))
