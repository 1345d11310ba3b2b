"""Kernels that were compiled beforehand, for machines without a compiler: a folder of shared libraries and an index.

    index.json          what they were compiled for and by, and {key of a text: the library that has it}
    <key>.so            an object of the kernel cache, linked by the system's linker

`link` makes such a folder of a kernel cache; `flambeau precompile` fills a cache by running a program, and calls it.
`PrecompiledHost` stands where LLVM would: it finds the text of a kernel by the same key, and loads the library with the
system's loader. What is not there it cannot compile, and the reference executor runs it (see `NotPrecompiled`).
"""
import ctypes
import json
import os
import subprocess

from ..backend import NoCompiler, NotPrecompiled
from ..cpu.processor import PROCESSOR_LEVELS, Processor
from .files import distrusted
from .object_cache import ObjectCache
from .store import OBJECT_KEY, CacheTier, KernelStore, referred, refers

INDEX, INDEX_FORMAT = "index.json", 1
SYSTEM_OWNERS = (0,)               # beside this user
# LLVM's words for features of the levels of processors → those of /proc/cpuinfo, where they differ
CPUINFO_WORDS = {"64bit": "lm", "sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "crc32": "sse4_2",
                 "sahf": "lahf_lm", "lzcnt": "abm", "bmi": "bmi1", "neon": "asimd", "fp-armv8": "fp"}


class PrecompiledHost(CacheTier):
    """What `cpu.HostLLVM` is, over a folder that `link` made. It is the only tier of its store."""

    failure = NotPrecompiled

    def __init__(self, folder):
        self.folder = folder
        known = self._index()
        self.libraries, self.toolchain, self.version = known["libraries"], known["kind"], known["llvm"]
        missing = sorted(set(known["needs"]) - cpuinfo_words())
        if missing:
            raise NoCompiler(f"the kernels in {folder} were compiled for {known['cpu']}, with {', '.join(missing)}, "
                             "which this processor lacks; run flambeau precompile with --cpu x86-64-v2 or generic")
        self.processor = Processor(known["triple"], known["cpu"], frozenset(known["features"]), known["flags"])
        self.target = self.processor.target
        self.store = KernelStore(self, self)

    def _index(self):
        """What the index says; NoCompiler where it cannot be used."""
        path = os.path.join(self.folder, INDEX)
        try:
            for each in (self.folder, path):
                why = distrusted(os.stat(each), SYSTEM_OWNERS)
                if why:
                    raise NoCompiler(f"kernels compiled beforehand cannot be used: {each} {why}")
            with open(path, encoding="utf-8") as file:
                known = json.load(file)
        except (OSError, ValueError) as error:
            raise NoCompiler(f"FLAMBEAU_PRECOMPILED={self.folder} is no folder that flambeau precompile made: {error}"
                             ) from error
        if known.get("format") != INDEX_FORMAT:
            raise NoCompiler(f"{path} is of format {known.get('format')}, and this Flambeau reads {INDEX_FORMAT}: run "
                             "flambeau precompile again")
        return known

    def llvm_version(self):
        """Which LLVM has compiled them."""
        return f"{self.version} beforehand"

    def chosen(self, text):
        """The Processor that they were compiled for, whatever is asked: there is no other."""
        return self.processor

    def aim(self, text):
        """There is nothing else to compile for."""

    def read(self, key, text=None):
        """The path of the library that has `key`, or None; `load` takes it."""
        name = self.libraries.get(key)
        return name and os.path.join(self.folder, name).encode()

    def compile(self, texts):
        """There is no compiler."""
        raise RuntimeError(f"it is not among the {len(self.libraries)} texts that were compiled beforehand, in "
                           f"{self.folder}")

    def load(self, path, symbols):
        """Load the library at `path`, which is never closed: a thread may be running it."""
        path = path.decode()
        why = distrusted(os.stat(path), SYSTEM_OWNERS)
        if why:
            raise OSError(f"{path} {why}")
        return ctypes.CDLL(path)

    def address(self, library, name):
        """Where `name` of a library is."""
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        except AttributeError as error:
            raise RuntimeError(str(error)) from None


def cpuinfo_words():
    """What the system says this processor can do."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = file.readlines()
    except OSError as error:
        raise NoCompiler(f"kernels compiled beforehand are for Linux, which says what its processor can do: {error}"
                         ) from error
    return {word for line in lines if line.partition(":")[0].strip() in ("flags", "Features")
            for word in line.partition(":")[2].split()}


def needed_words(goal):
    """What a processor has to say of itself to run code for `goal`: the features of a level, or all that this has."""
    architecture = "aarch64" if goal.triple.startswith(("aarch64", "arm64")) else goal.triple.partition("-")[0]
    if goal.cpu in PROCESSOR_LEVELS.get(architecture, {}):
        return sorted({CPUINFO_WORDS.get(word, word) for word in goal.on})
    return sorted(cpuinfo_words())


def link(cache_folder, folder, host, linker="ld"):
    """Make `folder` of the objects in `cache_folder` that `host`, an LLVM, has compiled; how many libraries it has."""
    cache, libraries, references = ObjectCache(cache_folder, 1 << 60), {}, {}
    os.makedirs(folder, mode=0o755, exist_ok=True)
    for key in sorted(name for name in os.listdir(cache_folder) if OBJECT_KEY.fullmatch(name)):
        code = cache.read(key)
        if code is None:
            continue
        if refers(code):
            references[key] = referred(code)
            continue
        path = os.path.join(folder, key)
        with open(f"{path}.o", "wb") as file:
            file.write(code)
        done = subprocess.run([linker, "-shared", "-z", "noexecstack", "-s", "-o", f"{path}.so", f"{path}.o"],
                              capture_output=True, text=True)
        os.remove(f"{path}.o")
        if done.returncode:
            raise RuntimeError(f"{linker} cannot link the object {key}: {done.stderr.strip()}")
        os.chmod(f"{path}.so", 0o644)
        libraries[key] = f"{key}.so"
    libraries |= {key: libraries[whole] for key, whole in references.items() if whole in libraries}
    goal = host.processor
    with open(os.path.join(folder, INDEX), "w", encoding="utf-8") as file:
        json.dump({"format": INDEX_FORMAT, "kind": host.toolchain, "llvm": host.llvm_version(), "triple": goal.triple,
                   "cpu": goal.cpu, "features": sorted(goal.on), "flags": goal.flags, "needs": needed_words(goal),
                   "libraries": libraries}, file)
    return len({*libraries.values()})
