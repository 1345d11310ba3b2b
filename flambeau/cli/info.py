"""What `flambeau info` says: what is installed, on what machine, and how it is set."""
import importlib.metadata
import os
import platform
import sys

import flambeau

from ..backends import cpu
from ..backends.cuda import chain
from ..backends.memory_limits import available, limit
from ..base import settings


def report():
    """The facts that a report of a mistake needs, one a line."""
    lines = [("flambeau", f"{flambeau.__version__}, in {os.path.dirname(flambeau.__file__)}"),
             ("speaks", f"PyTorch {flambeau.version.__version__.partition('+')[0]}"),
             ("Python", f"{platform.python_version()} ({platform.python_implementation()}), {sys.executable}")]
    lines += [(name, _version(name)) for name in ("numpy", "ml_dtypes", "llvmlite", "scipy", "torch")]
    lines += [("system", platform.platform()), ("processor", _processor()), *_compiled_for(),
              ("threads", f"{flambeau.get_num_threads()} of {os.cpu_count()} processors"),
              ("memory", f"{available() / 2**30:.1f} of {limit() / 2**30:.1f} GiB can be had"),
              ("executor", settings.executor), ("cache directory", settings.object_dir or "none"),
              *((f"CUDA {link}", text) for link, text in chain.links())]
    return "\n".join(f"{name:<17}{text}" for name, text in lines)


def _version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed" if name not in ("scipy", "torch") else "not installed (not needed)"


def _compiled_for():
    """What kernels are compiled for, as LLVM calls it."""
    try:
        goal = cpu.processor()
    except cpu.NoCompiler as error:
        return [("compiles for", str(error))]
    target = goal.target
    own = [word for has, word in ((target.fma, "fma"), (target.half, "float16"), (target.rounding, "rounding")) if has]
    return [("compiles for", f"{goal.cpu} (cpu = {settings.cpu!r}), {goal.triple}, LLVM {cpu.llvm_version()}"),
            ("vectors", f"{target.vector_bytes} bytes; instructions for {', '.join(own) or 'neither fma nor float16'}"),
            ("features", " ".join(sorted(goal.on)) or "none")]


def _processor():
    """The processor's name as the system gives it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = file.readlines()
    except OSError:                                           # another system
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
