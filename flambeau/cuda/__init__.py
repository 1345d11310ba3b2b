"""CUDA, answered honestly: there is none here yet. Questions get an answer, requests a refusal that says what to do."""
from importlib import import_module as _import_module

from ..backends.memory import OutOfMemoryError
from .graphs import CUDAGraph, graph, graph_pool_handle, is_current_stream_capturing, make_graphed_callables
from .streams import Event, ExternalStream, Stream

default_generators = ()


def is_available():
    """Whether a CUDA device can be used."""
    return False


def device_count():
    """How many CUDA devices there are."""
    return 0


def is_initialized():
    """Whether CUDA has been started."""
    return False


def is_bf16_supported(including_emulation=True):
    """Whether the current device computes in bfloat16."""
    return False


def is_tf32_supported():
    """Whether the current device computes in TF32."""
    return False


def manual_seed(seed):
    """Seed the generators of CUDA devices; there are none, so nothing happens, as in PyTorch without a GPU."""


def manual_seed_all(seed):
    """Seed the generators of all CUDA devices; there are none."""


def seed():
    """Seed the generator of the current CUDA device at random; there is none."""


def seed_all():
    """Seed the generators of all CUDA devices at random; there are none."""


def get_rng_state_all():
    """The states of the generators of all CUDA devices; there are none."""
    return []


def set_rng_state_all(new_states):
    """Set the states of the generators of all CUDA devices; of none, if there are none."""
    if len(new_states):
        _refuse("set_rng_state_all")()


def get_arch_list():
    """The CUDA architectures that the library was compiled for: none."""
    return []


def get_gencode_flags():
    """The flags that CUDA kernels were compiled with: none were."""
    return ""


def empty_cache():
    """Give cached device memory back; there is none."""


def memory_stats(device=None):
    """The numbers of the CUDA allocator; there is none."""
    return {}


def _no_bytes(what):
    def call(device=None):
        return 0
    call.__name__ = call.__qualname__ = what
    call.__doc__ = f"`torch.cuda.{what}`: 0 bytes, since there is no CUDA device."
    return call


memory_allocated = _no_bytes("memory_allocated")
max_memory_allocated = _no_bytes("max_memory_allocated")
memory_reserved = _no_bytes("memory_reserved")
max_memory_reserved = _no_bytes("max_memory_reserved")
memory_cached = _no_bytes("memory_cached")
max_memory_cached = _no_bytes("max_memory_cached")


def reset_peak_memory_stats(device=None):
    """Count the peaks of CUDA memory from now on; there is none."""


reset_max_memory_allocated = reset_accumulated_memory_stats = reset_peak_memory_stats


class StreamContext:
    """A context in which a stream is the current one; nothing for None, which is the only one that there is."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is not None:
            _refuse("stream")(self.stream)

    def __exit__(self, *exc):
        return False


def stream(stream):
    """A context in which `stream` is the current one; nothing for None."""
    return StreamContext(stream)


class device:
    """A context in which a CUDA device is the current one. It can be made; entering it needs the device."""

    def __init__(self, device):
        self.idx = device

    def __enter__(self):
        _refuse("device")()

    def __exit__(self, *exc):
        return False


def _refuse(what):
    def call(*args, **kwargs):
        raise AssertionError(f"Torch not compiled with CUDA enabled: torch.cuda.{what}() needs a CUDA device, and this "
                             "Flambeau has none. Ask torch.cuda.is_available() first, or use the CPU.")
    call.__name__ = what
    call.__doc__ = f"`torch.cuda.{what}`; refused, since there is no CUDA device."
    return call


_NEEDS_CUDA = frozenset("""
    current_device synchronize set_device get_device_name get_device_properties get_device_capability memory_summary
    memory_snapshot mem_get_info current_stream default_stream set_stream init ipc_collect initial_seed get_rng_state
    set_rng_state can_device_access_peer cudart set_per_process_memory_fraction utilization temperature power_draw
    clock_rate memory_usage device_memory_used list_gpu_processes device_of FloatTensor DoubleTensor HalfTensor
    BFloat16Tensor LongTensor IntTensor ShortTensor CharTensor ByteTensor BoolTensor
""".split())


def __getattr__(name):
    if name == "amp":
        return _import_module(".amp", __name__)
    if name in _NEEDS_CUDA:
        return _refuse(name)
    raise AttributeError(f"torch.cuda.{name} is not part of Flambeau yet")
