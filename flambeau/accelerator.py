"""`torch.accelerator`: the devices besides the CPU, of whichever type: a registered one, CUDA where it can be used, or
none (backends/devices.py).

Each function asks the registry or the device's Backend. Questions about memory have an answer where no device was used
yet: nothing.
"""
from .backends import devices
from .base import dtypes
from .base.errors import warn
from .base.observers import timed
from .base.questions import Question as _Question
from .base.spec import as_device, device as make_device
from .compat.missing import rest_of
from .tensor.streams import Stream, use
from .trace.recording.record import run_all

__all__ = ["current_accelerator", "current_device_idx", "current_device_index", "current_stream", "device_count",
           "device_index", "empty_cache", "empty_host_cache", "get_device_capability", "get_memory_info",
           "is_available", "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved",
           "memory_stats", "reset_accumulated_memory_stats", "reset_peak_memory_stats", "set_device_idx",
           "set_device_index", "set_stream", "synchronize"]
__path__: list = []
__getattr__ = rest_of("torch.accelerator", Graph="torch.compile replays a recorded step as one CUDA graph")


@_Question
def is_available():
    """Whether there is a device besides the CPU. Starts nothing."""
    return devices.accelerator() is not None


def device_count():
    """How many devices there are besides the CPU; starts none."""
    device_type = devices.accelerator()
    return 0 if device_type is None else devices.types[device_type].count()


def current_accelerator(check_available=False):
    """The device besides the CPU, without an index; None where there is none."""
    device_type = devices.accelerator()
    return None if device_type is None else make_device(device_type)


def _there(device, optional=True):
    """The device that `device` means, opened; refused where there is none."""
    device_type = devices.need_accelerator()
    if not isinstance(device, int) and device is not None:
        device = make_device(device)
        if device.type != device_type:
            raise ValueError(f"{device.type} doesn't match the current accelerator {device_type}.")
        device = device.index if device.index is not None else device
    if not optional and not isinstance(device, int):
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
    return as_device(make_device(device_type, device if isinstance(device, int) else None))


def _used(device):
    """The Backend of a device, None where none was used yet."""
    device_type = devices.accelerator()
    return _there(device).backend if device_type is not None and devices.in_use(device_type) else None


def current_device_index():
    """The index of the current device."""
    return _there(None).index


def set_device_index(device, /):
    """Make a device the current one, of this thread; nothing for a negative index."""
    if not isinstance(device, int) or device >= 0:
        found = _there(device, optional=False)
        devices.types[found.type].choose(found.index)


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
    return Stream._current(_there(device))


def set_stream(stream):
    """Make `stream` the current one, and its device the current device."""
    _there(stream.device)
    use(stream)


def synchronize(device=None, /):
    """Run everything that is recorded, and wait until the device has done all that it was handed."""
    found = _there(device)
    run_all()
    with timed("waited", str(found)):
        found.backend.synchronize()


# --- memory -----------------------------------------------------------------------------------------------------------


def memory_stats(device_index=None, /):
    """What is known of a device's memory, with PyTorch's keys; empty before its first use."""
    backend = _used(device_index)
    return {} if backend is None else backend.statistics()


def memory_allocated(device_index=None, /):
    """The bytes of the blocks that are in use now."""
    return memory_stats(device_index).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device_index=None, /):
    """The most bytes that were in use at one time since the start, or since `reset_peak_memory_stats()`."""
    return memory_stats(device_index).get("allocated_bytes.all.peak", 0)


def memory_reserved(device_index=None, /):
    """The bytes that are held of the device: in use, and idle in the allocator's cache."""
    return memory_stats(device_index).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device_index=None, /):
    """The most bytes that were held since the start, or since `reset_peak_memory_stats()`."""
    return memory_stats(device_index).get("reserved_bytes.all.peak", 0)


def reset_peak_memory_stats(device_index=None, /):
    """Count the peaks from now on."""
    if (backend := _used(device_index)) is not None:
        backend.reset_peaks()


def reset_accumulated_memory_stats(device_index=None, /):
    """Count what is given out from now on."""
    if (backend := _used(device_index)) is not None:
        backend.reset_sums()


def get_memory_info(device_index=None, /):
    """(bytes free, bytes in all) of a device, of all processes."""
    where = _there(device_index)
    found = where.backend.memory_info()
    if found is None:
        raise RuntimeError(f"{where} does not say how much memory it has")
    return found


def empty_cache():
    """Give the idle memory of all devices back to them."""
    device_type = devices.accelerator()
    if device_type is not None:
        run_all()                             # what is recorded and not handed over holds memory too
        for device in devices.in_use(device_type):
            device.backend.empty_cache()


def empty_host_cache():
    """Give idle page-locked memory back; none is kept."""


class AcceleratorError(RuntimeError):
    """What PyTorch raises where a device has failed. Programs catch it; here such errors are RuntimeErrors."""
