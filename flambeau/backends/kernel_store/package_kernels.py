"""Compile the kernels that come with the package, and make their file: see packaged.py.

Which texts the library has, it says itself (`every`). What else is to come along are launches that were seen;
their texts are written here, for the processor that the file is for. `flambeau/cli/package_kernels.py` calls this.
"""
import os
from functools import partial

from ..cpu import machine_code, program, threads
from ..cpu.compile_thread import side_by_side, undisturbed
from ..cpu.library.bags import BagKernels
from ..cpu.library.conv_kernels import TapKernels
from ..cpu.library.fft_kernels import FFTKernels
from ..cpu.library.gemm_kernels import GemmKernels, compiled_kernels
from ..cpu.library.pool import PoolKernels
from ..cpu.library.sample import SampleKernels
from ..cpu.library.scatter_kernels import ScatterKernels
from ..cpu.library.search import SearchKernels
from ..cpu.library.solver_kernels import SolverKernels
from ..cpu.library.sort import OrderKernels
from ..cpu.library.triangular_kernels import TriangularKernels
from ..cpu.library.winograd_kernels import WinogradKernels
from ..cpu.processor import PROCESSOR_LEVELS, choose
from ..cpu.random import mersenne_twister
from ..cpu.schedule import schedule, settle
from ..cpu_quota import processors
from . import packaged

WHEEL_LEVELS = {"x86_64": ("x86-64-v3", "x86-64-v4"), "aarch64": ("generic",)}     # which a wheel is for
PACKAGED_CLASSES = (GemmKernels,), (TapKernels, WinogradKernels), (PoolKernels,), (OrderKernels,), (FFTKernels,), \
    (ScatterKernels, BagKernels, SearchKernels, SampleKernels), (TriangularKernels, SolverKernels)    # an object each
PART_CHARACTERS = 1 << 18         # of texts of launches that become an object


def library_parts():
    """The library's own texts for the processor that code is compiled for: lists of those that are used together, and
    compiled alike; and their origins, as `packaged.write` takes them."""
    parts, origins = [[threads.text()], [mersenne_twister.text()]], []
    for classes in PACKAGED_CLASSES:
        parts.append([])
        for functions in [compiled_kernels("float32", cls) for cls in classes]:
            for name, text in functions.every().items():
                parts[-1].append(text)
                origins.append((machine_code.origin_of(functions.words(name)), name, text))
    return parts, origins


def launched_parts(launches):
    """The texts of `launches`, in lists, and their origins again: what the same nets asked for stays together."""
    parts, origins, room, seen = [], [], 0, set()
    for launch in launches:
        launch.schedule = schedule(launch)
        settle(launch)
        name, text = program.rendered(launch)
        origins.append((machine_code.origin_of(str(launch)), name, text))
        if name not in seen:
            seen.add(name)
            if room <= 0:
                parts.append([])
                room = PART_CHARACTERS
            parts[-1].append(text)
            room -= len(text)
    return parts, origins


def levels():
    """The processors that a wheel has kernels for, which is to go to other machines of this kind."""
    return WHEEL_LEVELS.get(_architecture(machine_code.processor().triple), ())


def _architecture(triple):
    name = triple.partition("-")[0]
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(name, name)


def processor_called(name):
    """The Processor of a name, be it one that this machine cannot stand for: it is compiled for, and not run."""
    host = machine_code.host()
    triple = host.llvm.get_default_triple()
    level = PROCESSOR_LEVELS.get(_architecture(triple), {}).get(name, "")
    return choose(name, triple, host.llvm.get_host_cpu_name(), {**host.features, **dict.fromkeys(level.split(), True)})


def make(folder, name, launches=()):
    """Make the file for the processor called `name` in `folder`; its path, and how many texts it has."""
    host, goal = machine_code.host(), processor_called(name)
    host.aim_at(goal)
    parts, origins = (own + seen for own, seen in zip(library_parts(), launched_parts(launches)))
    codes = undisturbed(side_by_side, [partial(host.compile, texts) for texts in parts], processors())
    path = os.path.join(folder, f"{packaged.PREFIX}{goal.cpu}{packaged.SUFFIX}")
    packaged.write(path, host.version, goal, list(zip(parts, codes, strict=True)), origins)
    return path, sum(map(len, parts))
