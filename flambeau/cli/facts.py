"""What is installed, on what machine, and how it is set: looked up without starting CUDA and without computing."""
import contextlib
import importlib.metadata
import os
import platform
import sys

import numpy as np

import flambeau

from ..backends import devices
from ..backends.cpu import lapack, machine_code, threads
from ..backends.cpu.memory import limits
from ..backends.cuda import chain, driver
from ..backends.kernel_store.files import distrusted
from ..base import core, settings

SHARED_MEMORY = "/dev/shm"
NOT_NEEDED = ("scipy", "torch")
NO_LAPACK = "none that NumPy's library shows: factorisations run in NumPy"


def gather():
    """All of it: a dictionary of dictionaries that JSON can hold."""
    return {
        "flambeau": {"version": flambeau.__version__, "folder": os.path.dirname(flambeau.__file__),
                     "speaks": flambeau.version.__version__.partition("+")[0]},
        "python": {"version": platform.python_version(), "implementation": platform.python_implementation(),
                   "executable": sys.executable},
        "packages": {name: version(name) for name in ("numpy", "ml_dtypes", "llvmlite", *NOT_NEEDED)},
        "blas": blas(),
        "lapack": lapack.described(),
        "system": platform.platform(),
        "processor": {"name": processor(), "machine": platform.machine(), **compiled_for()},
        "threads": {"used": threads.get_num_threads(), "processors": os.cpu_count(), "allowed": threads.processors(),
                    "quota": threads.time_granted(), "asked": settings.num_threads or None},
        "memory": memory(),
        "core": core.described(),
        "executor": settings.executor,
        "caches": {"kernels": {**folder(settings.object_dir, trusted=True), "most": settings.object_bytes},
                   "hub": folder(flambeau.hub.get_dir())},
        "variables": {name: os.environ[name] for name in sorted(os.environ)
                      if name.startswith(("FLAMBEAU_", "CUDA_", "NVIDIA_", "PYTORCH_"))
                      or name.endswith("_NUM_THREADS")},
        "cuda": cuda(),
        "devices": {device_type: devices.types[device_type].count() for device_type in devices.accelerators
                    if devices.available(device_type)},
        "mps": {"available": False, "why": "there is no device for Apple's GPUs in Flambeau; it computes on the CPU"},
    }


def version(name):
    """Which version of a package is installed, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def blas():
    """NumPy's library for products of matrices: `name`, `version`."""
    known = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    return {"name": known.get("name"), "version": known.get("version")}


def processor():
    """The processor's name as the system gives it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = file.readlines()
    except OSError:                                           # another system
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def compiled_for():
    """What kernels are compiled for, as LLVM calls it; `no_compiler` says why where there is none."""
    try:
        goal = machine_code.processor()
    except machine_code.NoCompiler as error:
        return {"no_compiler": str(error)}
    target = goal.target
    own = [word for has, word in ((target.fma, "fma"), (target.half, "float16"), (target.rounding, "rounding")) if has]
    return {"compiles_for": goal.cpu, "asked": settings.cpu, "triple": goal.triple, "llvm": machine_code.llvm_version(),
            "vector_bytes": target.vector_bytes, "instructions": own, "features": sorted(goal.on),
            "packaged": machine_code.packaged_kernels()}


def memory():
    """Bytes: what the machine or the control group allows, what can still be had, and memory shared by processes."""
    try:
        found = os.statvfs(SHARED_MEMORY)
        shared = {"folder": SHARED_MEMORY, "total": found.f_blocks * found.f_frsize,
                  "free": found.f_bavail * found.f_frsize}
    except (OSError, AttributeError):                         # another system
        shared = None
    return {"limit": limits.limit(), "available": limits.available(), "held": limits.resident_bytes(),
            "shared": shared}


def folder(path, trusted=False):
    """A folder that things are kept in: whether it can be written, or why not, and what it holds.

    It is not made if it is not there: then the question is whether it could be. `trusted`: what lies there is run.
    """
    if not path:
        return {"folder": None, "writable": False, "why": "none is set", "files": 0, "bytes": 0}
    nearest = path
    while not os.path.exists(nearest) and os.path.dirname(nearest) != nearest:
        nearest = os.path.dirname(nearest)
    why = ""
    if not os.path.isdir(nearest):
        why = f"{nearest} is not a folder"
    elif not os.access(nearest, os.W_OK | os.X_OK):
        why = f"{nearest} cannot be written by this user"
    elif trusted and nearest == path:
        why = distrusted(os.stat(path))
    sizes = []
    for found in os.scandir(path) if os.path.isdir(path) and os.access(path, os.R_OK | os.X_OK) else ():
        with contextlib.suppress(FileNotFoundError):         # another process was done with it meanwhile
            if found.is_file():
                sizes.append(found.stat().st_size)
    return {"folder": path, "writable": not why, "why": why or None, "files": len(sizes), "bytes": sum(sizes)}


def cuda():
    """The links of CUDA's chain, in words, and which of them is broken."""
    broken = driver.absence()
    return {"links": dict(chain.links()), "gpu_seen": chain.gpu_found(), "devices": driver.device_count(),
            "broken": broken and {"link": broken.link, "fact": broken.fact, "mend": broken.mend}}
