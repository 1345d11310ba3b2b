"""NVIDIA's GPUs under PyTorch's names: devices, streams, memory, seeds, graphs.

Where CUDA cannot be used, questions have an answer (`is_available()` is False, `device_count()` 0), and requests are
refused in words that say which link of driver → runtime → library → visibility is broken and what mends it
(backends/cuda/chain.py). Nothing here starts CUDA before a device is needed.
"""
from typing import NamedTuple as _NamedTuple

from ..backends.cpu.memory.allocator import OutOfMemoryError
from ..backends.cuda import chain as _chain, driver as _driver, nvrtc as _nvrtc
from ..base import observers as _observers
from ..base.lazy import import_when_asked as _import_when_asked
from ..base.questions import Question as _Question
from ..base.spec import device as _device
from ..compat.missing import no_attribute as _no_attribute
from ..trace.recording import record as _record
from ._utils import _get_device_index, there as _there
from .graphs import CUDAGraph, graph, graph_pool_handle, is_current_stream_capturing, make_graphed_callables
from .memory import (
    caching_allocator_alloc,
    caching_allocator_delete,
    empty_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    host_memory_stats,
    list_gpu_processes,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from .random import (
    generators as _generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)

__all__ = ["BFloat16Tensor", "BoolTensor", "ByteTensor", "CUDAGraph", "CharTensor", "CudaError",
           "DeferredCudaCallError", "DoubleTensor", "Event", "ExternalStream", "FloatTensor", "HalfTensor",
           "IntTensor", "LongTensor", "ShortTensor", "Stream", "StreamContext", "amp", "caching_allocator_alloc",
           "caching_allocator_delete", "can_device_access_peer", "clock_rate", "cudart", "current_device",
           "current_stream", "default_generators", "default_stream", "device", "device_count", "device_memory_used",
           "device_of", "empty_cache", "get_allocator_backend", "get_arch_list", "get_device_capability",
           "get_device_name", "get_device_properties", "get_gencode_flags", "get_per_process_memory_fraction",
           "get_rng_state", "get_rng_state_all", "get_stream_from_external", "get_sync_debug_mode", "graph",
           "graph_pool_handle", "graphs", "has_half", "has_magma", "host_memory_stats", "init", "initial_seed",
           "ipc_collect", "is_available", "is_bf16_supported", "is_current_stream_capturing", "is_initialized",
           "is_tf32_supported", "list_gpu_processes", "make_graphed_callables", "manual_seed", "manual_seed_all",
           "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory",
           "memory_allocated", "memory_cached", "memory_reserved", "memory_snapshot", "memory_stats",
           "memory_stats_as_nested_dict", "memory_summary", "memory_usage", "nvtx", "power_draw", "random",
           "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
           "reset_peak_memory_stats", "seed", "seed_all", "set_device", "set_per_process_memory_fraction",
           "set_rng_state", "set_rng_state_all", "set_stream", "set_sync_debug_mode", "stream", "streams",
           "synchronize", "temperature", "utilization"]

has_half, has_magma = True, False


class CudaError(RuntimeError):
    """What CUDA refused, by its number."""

    def __init__(self, code):
        super().__init__(f"CUDA error {code}")


class DeferredCudaCallError(Exception):
    """PyTorch's, for calls that wait until CUDA is started. Nothing waits here."""


# --- is there one ----------------------------------------------------------------------------------------------------


@_Question
def is_available():
    """Whether a CUDA device can be used. CUDA is not started for it, so processes may be forked afterwards.

    On a machine with an NVIDIA GPU that cannot be used, a warning says so once, and what would mend it.
    """
    if _driver.absence() is None:
        return True
    _chain.tell_once()
    return False


def device_count():
    """How many CUDA devices there are."""
    return _driver.device_count()


@_Question
def is_initialized():
    """Whether CUDA has been started."""
    return _driver.is_made()


def init():
    """Start CUDA, which otherwise happens when a device is first needed."""
    _driver.current()


def _is_in_bad_fork():
    """Whether this process was forked from one that had started CUDA, so that it has none."""
    return _driver.is_forked()


def _lazy_init():
    _driver.current()


def _is_compiled():
    """Whether the library for CUDA is here."""
    return _chain.library() is not None


# --- devices ---------------------------------------------------------------------------------------------------------


def current_device():
    """The index of the current device."""
    return _driver.current().current_device()


def set_device(device):
    """Make a device the current one, of this thread; nothing for a negative index."""
    software = _driver.current()
    index = _get_device_index(device)
    if index >= 0:
        software, index = _there(index, "CUDA error: invalid device ordinal", RuntimeError)
        software.set_device(index)


class device:
    """A context in which a CUDA device is the current one; nothing for None and a negative index."""

    def __init__(self, device):
        self.idx = -1 if device is None else device if isinstance(device, int) else _given_index(device)
        self.prev_idx = -1

    def __enter__(self):
        self.prev_idx = _exchange_device(_get_device_index(self.idx, optional=True))

    def __exit__(self, *exc):
        if self.prev_idx >= 0:
            set_device(self.prev_idx)
        return False


def _given_index(device):
    """The index that a device has, or the device itself where it has none: that is the one current at entering."""
    found = _device(device) if isinstance(device, str) else device
    return found if getattr(found, "index", None) is None and not hasattr(found, "idx") else _get_device_index(found)


class device_of(device):
    """A context in which the device of a tensor or storage is the current one; nothing for those of the CPU."""

    def __init__(self, obj):
        super().__init__(obj.get_device() if obj.is_cuda else -1)


def _exchange_device(device):
    """Make a device the current one; the one before, -1 where nothing was done."""
    if device < 0:
        return -1
    before = current_device()
    set_device(device)
    return before


_maybe_exchange_device = _exchange_device


class _CudaDeviceProperties(_NamedTuple):
    """What is known of a device, with PyTorch's names."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    is_integrated: bool
    is_multi_gpu_board: bool
    max_threads_per_multi_processor: int
    max_threads_per_block: int
    warp_size: int
    regs_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int
    clock_rate: int
    memory_clock_rate: int
    memory_bus_width: int
    uuid: str
    pci_domain_id: int
    pci_bus_id: int
    pci_device_id: int

    def __repr__(self):
        return (f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
                f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count}, "
                f"uuid={self.uuid}, pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, "
                f"pci_domain_id={self.pci_domain_id}, L2_cache_size={self.L2_cache_size >> 20}MB)")


def get_device_properties(device=None):
    """What is known of a device: name, memory, how many multiprocessors, …"""
    software, index = _there(device)
    known = software.properties(index)
    domain, bus, slot = (int(part.partition(".")[0], 16) for part in known.pci_bus_id.split(":"))
    return _CudaDeviceProperties(
        known.name, known.major, known.minor, known.total_memory, known.multi_processor_count, known.is_integrated,
        known.is_multi_gpu_board, known.max_threads_per_multi_processor, known.max_threads_per_block, known.warp_size,
        known.registers_per_multiprocessor, min(known.max_shared_memory_per_block, 48 << 10),
        known.max_shared_memory_per_block, known.shared_memory_per_multiprocessor, known.l2_cache_size,
        known.clock_rate, known.memory_clock_rate, known.memory_bus_width, known.uuid, domain, bus, slot)


def get_device_name(device=None):
    """The name of a device."""
    return get_device_properties(device).name


def get_device_capability(device=None):
    """(major, minor) of what a device can do: (9, 0) of an H200."""
    known = get_device_properties(device)
    return known.major, known.minor


def can_device_access_peer(device, peer_device):
    """Whether a device reads another's memory directly."""
    software, index = _there(device)
    _, peer = _there(peer_device, "Invalid peer device id")
    return software.can_access_peer(index, peer)


def synchronize(device=None):
    """Run everything that is recorded, and wait until the device has done all that it was handed, on every stream."""
    software, index = _there(device, "CUDA error: invalid device ordinal", RuntimeError)
    _record.run_all()
    with _observers.timed("waited", f"cuda:{index}"):
        software.synchronize(index)


@_Question
def is_bf16_supported(including_emulation=True):
    """Whether the current device computes in bfloat16; `including_emulation`: be it by way of float32."""
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


@_Question
def is_tf32_supported():
    """Whether the current device computes in TF32."""
    return is_available() and get_device_capability()[0] >= 8


def get_arch_list():
    """The architectures that kernels can be compiled for: NVRTC's, where there is a device."""
    return [f"sm_{number}" for number in _nvrtc.architectures()] if _driver.absence() is None else []


def get_gencode_flags():
    """The flags that kernels are compiled with, for all architectures."""
    return " ".join(f"-gencode compute=compute_{name[3:]},code={name}" for name in get_arch_list())


def ipc_collect():
    """Give back memory that other processes have shared and let go; none is shared."""
    _driver.current()


_sync_debug_mode = 0
_SYNC_MODES = ("default", "warn", "error")


def set_sync_debug_mode(debug_mode):
    """Whether waiting for a device is told: only "default" (0), which says nothing."""
    global _sync_debug_mode
    if isinstance(debug_mode, str):
        if debug_mode not in _SYNC_MODES:
            raise RuntimeError(f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, got "
                               f"{debug_mode}")
        debug_mode = _SYNC_MODES.index(debug_mode)
    if debug_mode:
        raise NotImplementedError(f"torch.cuda.set_sync_debug_mode({_SYNC_MODES[debug_mode]!r}): Flambeau does not say "
                                  "when it waits for a device; an observer of `looked` does "
                                  "(flambeau/base/observers.py)")
    _sync_debug_mode = debug_mode


def get_sync_debug_mode():
    """0: waiting for a device is not told."""
    return _sync_debug_mode


# --- what is asked of NVIDIA's management library --------------------------------------------------------------------


def _handle(device):
    """The package that asks NVML, and its handle of a device."""
    software, index = _there(device)
    try:
        import pynvml
    except ImportError:
        raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed or it can't be imported: pip install "
                                  "nvidia-ml-py") from None
    pynvml.nvmlInit()
    return pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(software.properties(index).pci_bus_id.encode())


def utilization(device=None):
    """The percent of the last moments in which a device was at work."""
    library, handle = _handle(device)
    return library.nvmlDeviceGetUtilizationRates(handle).gpu


def memory_usage(device=None):
    """The percent of the last moments in which a device's memory was read or written."""
    library, handle = _handle(device)
    return library.nvmlDeviceGetUtilizationRates(handle).memory


def device_memory_used(device=None):
    """The bytes of a device's memory that are in use, of all processes."""
    free, total = mem_get_info(device)
    return total - free


def temperature(device=None):
    """How warm a device is, in degrees Celsius."""
    library, handle = _handle(device)
    return library.nvmlDeviceGetTemperature(handle, 0)


def power_draw(device=None):
    """What a device takes, in milliwatts."""
    library, handle = _handle(device)
    return library.nvmlDeviceGetPowerUsage(handle)


def clock_rate(device=None):
    """How fast a device's multiprocessors run, in MHz."""
    library, handle = _handle(device)
    return library.nvmlDeviceGetClockInfo(handle, 1)


# --- names that are loaded, or made, when they are asked for ---------------------------------------------------------


def cudart():
    """Refused: Flambeau goes through CuPy, which has the CUDA runtime as `cupy.cuda.runtime`."""
    _driver.current()
    raise NotImplementedError("torch.cuda.cudart(): Flambeau does not hand out CUDA's runtime; cupy.cuda.runtime has "
                              "its functions")


_TENSOR_TYPES = ("BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor",
                 "HalfTensor", "IntTensor", "LongTensor", "ShortTensor")
_rest = _import_when_asked(__name__, {"amp": "cuda.amp", "nvtx": "cuda.nvtx",
                                      **{name: f"cuda.tensor_types:{name}" for name in _TENSOR_TYPES}},
                           lambda name: _no_attribute("torch.cuda", name))


def __getattr__(name):
    if name == "default_generators":                   # there are none before CUDA is started
        return _generators()
    if name == "_initialized":                         # reformer_pytorch, revtorch and other reversible nets read it
        return is_initialized()
    return _rest(name)
