"""CUDA C++ compiled for the processor by g++, into libraries that runtime.cpp runs kernels of.

The text is C++ with a few words more, which device.h defines. Three things are rewritten before: `extern __shared__`
becomes a pointer, a line of PTX a call, and every kernel gets a function that takes its parameters as bytes.
"""
import ctypes
import functools
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from flambeau.backends.backend import NotCompiled

FOLDER = pathlib.Path(__file__).parent
RUNTIME_OPTIONS = ("-O2", "-std=c++17", "-shared", "-fPIC", "-w", "-U_FORTIFY_SOURCE")
# Fused products and sums would be other numbers; the sanitizers' hooks are runtime.cpp's own.
KERNEL_OPTIONS = ("-O1", "-std=c++17", "-shared", "-fPIC", "-w", "-pipe", "-nostdlib", "-ffp-contract=off",
                  "-fno-exceptions", "-fno-rtti", "-fno-strict-aliasing", "-fwrapv", "-fsanitize=kernel-address",
                  "-fsanitize=alignment", "--param", "asan-stack=0", "--param", "asan-globals=0", "--param",
                  "asan-instrumentation-with-call-threshold=0",
                  "-Wl,-z,max-page-size=4096")

KERNEL = re.compile(r'(?:extern\s+"C"\s+)?__global__\s+(?:void\s+)?(?:__launch_bounds__\s*\(([^)]*)\)\s*)?(?:void\s+)?'
                    r"(\w+)\s*\(([^)]*)\)\s*(?=\{)")
DYNAMIC_SHARED = re.compile(r"extern\s+__shared__\s+(?:__align__\s*\([^)]*\)\s*|alignas\s*\([^)]*\)\s*)?([\w\s]+?)\s*"
                            r"(\w+)\s*\[\s*\]\s*;")
PTX = re.compile(r'asm\s*(?:volatile\s*)?\(\s*"([\w.]+)\s+%0((?:\s*,\s*%\w+)*)\s*;"\s*:\s*"=\w"\s*\(([^()]*)\)\s*'
                 r'(?::\s*((?:"\w+"\s*\([^()]*\)\s*,?\s*)*))?\)')


def is_there():
    """Whether there is a g++."""
    return shutil.which("g++") is not None


@functools.cache
def runtime():
    """The library of runtime.cpp, whose functions kernels call."""
    source = FOLDER / "runtime.cpp"
    folder = os.environ.get("FLAMBEAU_CACHE_DIR") or f"{tempfile.gettempdir()}/flambeau-simulated-{os.getuid()}"
    path = pathlib.Path(folder) / f"simulated-{fingerprint(source.read_text(), *RUNTIME_OPTIONS)}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(f".{os.getpid()}.new")
        run(["g++", *RUNTIME_OPTIONS, str(source), "-o", str(made), "-lm", "-ldl"], "runtime.cpp")
        made.replace(path)                                   # another process may have been at it too
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    word, number, text, size = ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t
    for name, (result, *arguments) in {
            "refusal": (text,), "take_error": (number, number), "has_error": (number, number),
            "allocate": (word, number, size), "free": (None, number, word, word), "pin": (None, word, size, number),
            "owner": (number, word), "function": (word, word, size, text, number, size, word, word, number),
            "call": (None, word, word, number, word), "stream": (word, number, number),
            "copy": (number, number, word, number, word, size, number, word, number),
            "close_stream": (None, word), "finish_stream": (number, number, word),
            "stream_is_done": (number, number, word), "finish_device": (number, number), "event": (word,),
            "record": (None, word, number, word), "event_is_done": (number, word), "finish_event": (None, word),
            "event_time": (ctypes.c_double, word), "event_device": (number, word), "wait": (None, number, word, word),
            "begin_capture": (number, number, word), "end_capture": (word, number, word),
            "is_capturing": (number, number, word), "launch_graph": (number, word, word),
            "captured": (number, number, word),
            "graph_size": (number, word), "graph_kind": (number, word, number),
            "copies_from_host": (number, word),
            "update": (number, word, number, text, size), "close_graph": (None, word),
            "mode": (None, number, word, number), "launches": (word,), "reset": (number, number)}.items():
        function = getattr(library, f"simulated_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def fingerprint(*texts):
    """A short name for texts, this processor and this compiler."""
    return hashlib.sha256("\0".join((*texts, version())).encode()).hexdigest()[:16]


@functools.cache
def version():
    """The compiler's version, and what it compiles for."""
    return "".join(subprocess.run(["g++", what], capture_output=True, text=True, check=True).stdout
                   for what in ("-dumpfullversion", "-dumpmachine"))


@functools.cache
def header():
    return (FOLDER / "device.h").read_text()


@functools.lru_cache(1000)
def image(source, options=()):
    """The bytes of a library with the kernels of `source`; NotCompiled, with the compiler's words, if it is refused."""
    defines = [option for option in options if option.startswith(("-D", "-std", "--std"))]
    if "template" not in source:                             # whose variables cannot stand in a section
        defines.append("-DSHARED_IN_SECTION")
    with tempfile.TemporaryDirectory() as folder:
        made = os.path.join(folder, "image.so")
        run(["g++", *KERNEL_OPTIONS, *defines, "-include", str(FOLDER / "device.h"), "-x", "c++", "-", "-o", made],
            "CUDA C++", rewritten(source))
        return pathlib.Path(made).read_bytes()


def run(command, what, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotCompiled({what: done.stderr.strip()})


def rewritten(source):
    """The text as g++ can take it; lines keep their numbers."""
    source = DYNAMIC_SHARED.sub(r"\1 *const \2 = (\1 *)simulated_shared;", source)
    source = PTX.sub(_call, source)
    return '#line 1 "kernel.cu"\n' + KERNEL.sub(_entered, source) + SHARED_RANGE.replace("\n", " ")


SHARED_RANGE = """
extern "C" { extern char __start_shared_memory[] __attribute__((weak, visibility("hidden")));
extern char __stop_shared_memory[] __attribute__((weak, visibility("hidden")));
void simulated_shared_range(char **range) { range[0] = __start_shared_memory; range[1] = __stop_shared_memory; } }
"""


def _call(found):
    word, _, result, operands = found.groups()
    values = re.findall(r'"\w+"\s*\(([^()]*)\)', operands or "")
    return f"({result} = ptx_{word.replace('.', '_')}({', '.join(values)}))"


def _entered(found):
    """A kernel, and before it what calls it with parameters that lie in a row, as CUDA lays them out."""
    bounds, name, given = found.groups()
    fields = [one.strip() for one in given.split(",") if one.strip()]
    names = [re.search(r"(\w+)\s*$", one).group(1) for one in fields]
    threads = (bounds or "1024").split(",")[0]
    own = f"simulated_parameters_{name}"
    size = f"sizeof({own})" if fields else "0"
    return (f'extern "C" void {name}({given}); struct {own} {{ {" ".join(f"{one};" for one in fields)} }}; '
            f'extern "C" void simulated_enter_{name}(const void *given) {{ {name}('
            f'{", ".join(f"((const {own} *)given)->{one}" for one in names)}); }} '
            f'extern "C" size_t simulated_nbytes_{name}() {{ return {size}; }} '
            f'extern "C" int simulated_threads_{name}() {{ return {threads}; }} ' + found.group(0))


def load(image):
    """The library of an image, loaded; each time another one, with variables of its own."""
    runtime()
    handle, path = tempfile.mkstemp(suffix=".so")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(image)
        return ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise RuntimeError(f"the image cannot be loaded: {error}") from None
    finally:
        os.unlink(path)


if sys.platform != "linux":
    is_there = lambda: False
