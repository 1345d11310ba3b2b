"""`torch.accelerator`: the device besides the CPU, whichever it is: CUDA, where it can be used, or none."""
from .backends.cuda import driver
from .base import dtypes
from .base.errors import warn
from .base.observers import timed
from .base.spec import device as make_device
from .cuda import (
    device_count,
    empty_cache,
    is_available,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info as get_memory_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
from .cuda._utils import there
from .missing import rest_of
from .streams import Stream, use
from .trace.recording.record import run_all

__all__ = ["current_accelerator", "current_device_idx", "current_device_index", "current_stream", "device_count",
           "device_index", "empty_cache", "empty_host_cache", "get_device_capability", "get_memory_info",
           "is_available", "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved",
           "memory_stats", "reset_accumulated_memory_stats", "reset_peak_memory_stats", "set_device_idx",
           "set_device_index", "set_stream", "synchronize"]
__path__: list = []
__getattr__ = rest_of("torch.accelerator", Graph="torch.compile replays a recorded step as one CUDA graph")


def current_accelerator(check_available=False):
    """The device besides the CPU, without an index; None where there is none."""
    return make_device("cuda") if is_available() else None


def _there(device, optional=True):
    """(the driver, the index that `device` means); refused where there is none, in PyTorch's words first."""
    found = driver.absence()
    if found is not None:
        raise RuntimeError(f"Cannot access accelerator device when none is available. {found}")
    if not isinstance(device, int) and device is not None:
        device = make_device(device)
        if device.type != "cuda":
            raise ValueError(f"{device.type} doesn't match the current accelerator cuda.")
    if not optional and getattr(device, "index", device) is None:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
    return there(device, "CUDA error: invalid device ordinal", RuntimeError)


def current_device_index():
    """The index of the current device."""
    return _there(None)[1]


def set_device_index(device, /):
    """Make a device the current one, of this thread; nothing for a negative index."""
    if isinstance(device, int) and device < 0:
        return
    software, index = _there(device, optional=False)
    software.set_device(index)


def current_device_idx():
    """`current_device_index` by its older name."""
    warn("Use `current_device_index` instead.", FutureWarning)
    return current_device_index()


def set_device_idx(device, /):
    """`set_device_index` by its older name."""
    warn("Use `set_device_index` instead.", FutureWarning)
    set_device_index(device)


class device_index:
    """A context in which the device with an index is the current one; nothing for None."""

    def __init__(self, device, /):
        self.idx, self.prev_idx = device, -1

    def __enter__(self):
        if self.idx is not None:
            self.prev_idx = current_device_index()
            set_device_index(self.idx)

    def __exit__(self, *exc):
        if self.idx is not None:
            set_device_index(self.prev_idx)


def get_device_capability(device=None, /):
    """{"supported_dtypes": the dtypes of which tensors can be there}."""
    _there(device)
    return {"supported_dtypes": {d for d in dtypes.ALL if d.np is not None}}


def current_stream(device=None, /):
    """The stream that this thread's work for a device goes to."""
    software, index = _there(device)
    return Stream._of(software.current_stream(index))


def set_stream(stream):
    """Make `stream` the current one, and its device the current device."""
    _there(None)
    use(stream._held)


def synchronize(device=None, /):
    """Run everything that is recorded, and wait until the device has done all that it was handed."""
    software, index = _there(device)
    run_all()
    with timed("waited", f"cuda:{index}"):
        software.synchronize(index)


def empty_host_cache():
    """Give idle page-locked memory back; none is kept."""


class AcceleratorError(RuntimeError):
    """What PyTorch raises where a device has failed. Programs catch it; here such errors are RuntimeErrors."""
