"""Run one program, here and now, and write its results: what both sides start in a process of its own.

    python -m tests.programs.process NAME FILE
"""
import importlib
import importlib.metadata
import inspect
import json
import math
import platform
import sys
import time
import traceback

import numpy as np

from . import LARGEST_WHOLE, seed


def parts_of(program):
    """The parts of a program, in the order of its file."""
    return [held for name, held in vars(program).items()
            if inspect.isfunction(held) and held.__module__ == program.__name__ and not name.startswith("_")]


def kept_form(value):
    """A result as it is kept: what JSON has, floating point numbers short, large arrays by some of their elements."""
    if isinstance(value, dict):
        return {str(key): kept_form(held) for key, held in value.items()}
    if hasattr(value, "detach"):
        value = value.detach()
        value = (value.float() if str(value.dtype) in ("torch.bfloat16", "torch.float16") else value).cpu().numpy()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        if value.size <= LARGEST_WHOLE:
            return {"array": list(value.shape), "is": [kept_form(held) for held in value.ravel().tolist()]}
        some = value.ravel()[np.linspace(0, value.size - 1, LARGEST_WHOLE).astype(int)].tolist()
        return {"array": list(value.shape), "some": [kept_form(held) for held in some],
                "root_mean_square": kept_form(float(np.sqrt(np.mean(np.abs(value.astype(np.complex128)) ** 2))))}
    if isinstance(value, list | tuple):
        return [kept_form(held) for held in value]
    if isinstance(value, complex):
        return [kept_form(value.real), kept_form(value.imag)]
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else repr(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(f"a result is a number, a text, a tensor, or a list or dict of them, not {type(value).__name__}")


def run(name):
    """Versions, and of each part its results or its error, and its seconds."""
    started = time.perf_counter()
    seconds, results, errors = {}, {}, {}
    try:
        import torch
        program = importlib.import_module(f"tests.programs.{name}")
    except Exception:
        return {"errors": {"import": traceback.format_exc()}, "parts": {}, "seconds": {}, "versions": {}}
    seconds["import"] = time.perf_counter() - started
    for part in parts_of(program):
        started = time.perf_counter()
        seed()
        try:
            results[part.__name__] = kept_form(part())
        except Exception:
            errors[part.__name__] = traceback.format_exc()
        seconds[part.__name__] = time.perf_counter() - started
    versions = {"torch": str(torch.__version__), "python": platform.python_version(), "machine": platform.machine()}
    versions |= {package: importlib.metadata.version(package) for package in program.PACKAGES}
    return {"versions": versions, "parts": results, "errors": errors, "seconds": seconds}


if __name__ == "__main__":
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(run(sys.argv[1]), file)
