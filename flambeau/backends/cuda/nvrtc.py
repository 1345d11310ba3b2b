"""NVRTC, NVIDIA's compiler of CUDA C++, called through ctypes: from source text to a cubin, or to PTX.

It is a library of its own and needs neither a GPU nor CuPy: the package `nvidia-cuda-nvrtc` is enough. CuPy's binding
would do the same, but cannot be had without CuPy. Calls leave the interpreter free, so that several threads compile at
once.
"""
import ctypes
import functools
import glob
import importlib.util
import os

from ..backend import NoCompiler, NotCompiled

NVRTC_FILES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "nvrtc64_130_0.dll", "nvrtc64_120_0.dll")
SUCCESS, COMPILATION_ERROR = 0, 6                # of nvrtcResult


def compile(source, architecture, options=()):
    """The cubin of `source` for `architecture` ("sm_90"), or the PTX of it for a virtual one ("compute_90").

    NotCompiled is raised with what the compiler says of the source.
    """
    library, program = _library(), ctypes.c_void_p()
    _check(library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"flambeau.cu", 0, None, None))
    try:
        given = [f"--gpu-architecture={architecture}".encode(), *(option.encode() for option in options)]
        status = library.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
        if status == COMPILATION_ERROR:
            raise NotCompiled({"CUDA C++": _text(program, "ProgramLog").decode(errors="replace").rstrip("\0\n")})
        _check(status)
        return _text(program, "PTX" if architecture.startswith("compute_") else "CUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def version():
    """(major, minor) of the library."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


def architectures():
    """The numbers of the architectures that it compiles for: 90 for sm_90."""
    count = ctypes.c_int()
    _check(_library().nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    found = (ctypes.c_int * count.value)()
    _check(_library().nvrtcGetSupportedArchs(found))
    return tuple(found)


def is_there():
    """Whether the library can be loaded."""
    try:
        _library()
    except NoCompiler:
        return False
    return True


@functools.cache
def _library():
    """The loaded library: of NVIDIA's Python packages, of a CUDA toolkit, or of the system."""
    said = []
    for path in (*_packaged(), *_in_toolkit(), *NVRTC_FILES):
        try:
            found = ctypes.CDLL(path)
        except OSError as error:
            said.append(str(error))
            continue
        found.nvrtcGetErrorString.restype = ctypes.c_char_p
        found.nvrtcCompileProgram.argtypes = ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p
        return found
    raise NoCompiler("NVRTC, which compiles kernels for NVIDIA GPUs, cannot be loaded: pip install nvidia-cuda-nvrtc "
                     f"({said[0]})")


def _packaged():
    """Where NVIDIA's packages put it: nvidia/cu13/lib, nvidia/cuda_nvrtc/lib; the newest first."""
    try:
        folders = importlib.util.find_spec("nvidia").submodule_search_locations
    except (ImportError, AttributeError, ValueError):
        return []
    found = [path for folder in folders for pattern in ("*/lib/libnvrtc.so.*", "*/bin/nvrtc64_*.dll",
                                                        "*/bin/x86_64/nvrtc64_*.dll")
             for path in glob.glob(os.path.join(folder, pattern)) if "builtins" not in path and ".alt." not in path]
    return sorted(found, key=os.path.basename, reverse=True)


def _in_toolkit():
    folders = [os.environ[name] for name in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(name)]
    return [path for folder in (*folders, "/usr/local/cuda") for path in
            sorted(glob.glob(os.path.join(folder, "lib64", "libnvrtc.so*")))
            + glob.glob(os.path.join(folder, "bin", "nvrtc64_*_0.dll"))]


def _text(program, what):
    library, size = _library(), ctypes.c_size_t()
    _check(getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    _check(getattr(library, f"nvrtcGet{what}")(program, text))
    return text.raw


def _check(status):
    if status != SUCCESS:
        raise RuntimeError(f"NVRTC: {_library().nvrtcGetErrorString(status).decode()}")
