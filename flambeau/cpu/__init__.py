"""The CPU as a device: PyTorch's `torch.cpu`, and its memory under the names that `torch.cuda` has for its own.

Allocated are the blocks of the caching allocator that are in use, each with all bytes of its size class; reserved is
what the allocator has from the system. Arrays that NumPy made itself are not in these numbers, but `memory_summary()`
counts every tensor.
"""
from ..backends.cpu.memory import allocator as _memory, limits as _machine
from ..base.lazy import import_when_asked as _import_when_asked, names_there as _names_there
from ..base.names import attribute_error as _attribute_error
from ..base.spec import CPU as _CPU, as_device as _as_device
from ..tensor import out_of_memory as _oom
from ..trace.recording import record as _record

__all__ = ["current_device", "device_count", "is_available", "is_initialized", "set_device", "synchronize"]


def is_available():
    """Whether the CPU can be used: it can."""
    return True


def is_initialized():
    """Whether the device has been started: it has."""
    return True


def device_count():
    """How many CPU devices there are: one, however many cores it has."""
    return 1


def current_device():
    """The name of the current device."""
    return "cpu"


def set_device(device):
    """Choose the current device; there is only one."""
    _check(device)


def synchronize(device=None):
    """Run everything that is recorded and has not run yet."""
    if device is not None:
        _check(device)
    _record.run_all()


def memory_allocated(device=None):
    """The bytes of the blocks that are in use now."""
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device=None):
    """The most bytes that were in use at one time since the start, or since `reset_peak_memory_stats()`."""
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device=None):
    """The bytes that the allocator holds: in use, and idle in its cache."""
    return memory_stats(device)["reserved_bytes.all.current"]


def max_memory_reserved(device=None):
    """The most bytes that the allocator held since the start, or since `reset_peak_memory_stats()`."""
    return memory_stats(device)["reserved_bytes.all.peak"]


def reset_peak_memory_stats(device=None):
    """Count the peaks from now on."""
    _check(device)
    _memory.reset_peaks()


def empty_cache():
    """Give the idle memory of the allocator's cache back to the system."""
    _memory.empty_cache()


def mem_get_info(device=None):
    """(bytes that can still be had, all bytes that this process could have), by the machine and by its container."""
    _check(device)
    return _machine.available(), _machine.limit()


def memory_stats(device=None):
    """The allocator's numbers as a dictionary, with the keys of `torch.cuda.memory_stats()`."""
    _check(device)
    return dict(sorted(_memory.stats().items()))


def memory_snapshot(device=None):
    """The allocator's mappings and the blocks in them, as `torch.cuda.memory_snapshot()` lists them."""
    _check(device)
    return _memory.segments()


def memory_summary(device=None, abbreviated=False):
    """The allocator's numbers as a table, and the lines whose tensors hold most memory."""
    stats = memory_stats(device)
    rule = "-" * 78
    lines = [f"CPU memory: {stats['num_ooms']} times refused, {stats['num_alloc_retries']} times retried, "
             f"{stats['num_cache_hits']} of {stats['allocation.all.allocated']} allocations from the cache", rule,
             f"{'':<22}{'now':>14}{'at most':>14}{'given ever':>14}{'come back':>14}"]
    for what, name in (("allocated_bytes", "allocated"), ("reserved_bytes", "reserved"),
                       ("allocation", "blocks in use"), ("segment", "mappings")):
        lines.append(rule)
        for pool in ("all",) if abbreviated else ("all", "large_pool", "small_pool"):
            numbers = [stats.get(f"{what}.{pool}.{column}") for column in ("current", "peak", "allocated", "freed")]
            shown = ["" if n is None else _memory.bytes_in_words(n) if what.endswith("bytes") else str(n)
                     for n in numbers]
            title = name if pool == "all" else f"  {pool.replace('_', ' ')}"
            lines.append((f"{title:<22}" + "".join(f"{text:>14}" for text in shown)).rstrip())
    return "\n".join([*lines, rule, "lines whose tensors hold most:" + (_oom.by_line() or " none")])


__getattr__ = _import_when_asked(__name__, {"amp": "cpu.amp"},
                                 lambda name: _attribute_error("torch.cpu", name, lambda: _names_there(__name__)))


def _check(device):
    """Refuse a device that is not the CPU."""
    if device is not None and device != 0 and _as_device(device) is not _CPU:
        raise ValueError(f"Expected a cpu device, but got: {device}")
