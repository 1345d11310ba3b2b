"""`torch.cuda.memory`: what tensors use of a GPU's memory, what the pool holds, and how much of it there may be.

Allocated are the blocks that are in use, each rounded up as the pool does; reserved is what the pool has from the
device. Without a device the questions answer 0, as in PyTorch.
"""
from ..backends.cpu.memory.allocator import bytes_in_words
from ..backends.cuda import driver, memory as _memory
from ..backends.cuda.configuration import configuration
from ..base.errors import warn
from ..base.spec import device as device_type
from ..tensor import out_of_memory as _oom
from ..trace.recording import record as _record
from ._utils import _get_device_index, there

__all__ = ["caching_allocator_alloc", "caching_allocator_delete", "empty_cache", "get_allocator_backend",
           "get_per_process_memory_fraction", "host_memory_stats", "list_gpu_processes", "max_memory_allocated",
           "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_cached",
           "memory_reserved", "memory_snapshot", "memory_stats", "memory_stats_as_nested_dict", "memory_summary",
           "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
           "reset_peak_memory_stats", "set_per_process_memory_fraction"]


def _account(device):
    """The account of a device's memory."""
    return _memory.account(*there(device, "Invalid device argument", RuntimeError))


def memory_stats(device=None):
    """The pool's numbers as a dictionary, with PyTorch's keys; empty before the first use of a device."""
    return _account(device).stats() if driver.is_made() else {}


def memory_stats_as_nested_dict(device=None):
    """`memory_stats`, a dictionary for each part of a key."""
    nested: dict = {}
    for key, number in memory_stats(device).items():
        *parts, last = key.split(".")
        inner = nested
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = number
    return nested


def memory_allocated(device=None):
    """The bytes of the blocks that are in use now."""
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device=None):
    """The most bytes that were in use at one time since the start, or since `reset_peak_memory_stats()`."""
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device=None):
    """The bytes that the pool holds: in use, and idle in its cache."""
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device=None):
    """The most bytes that the pool held since the start, or since `reset_peak_memory_stats()`."""
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


def memory_cached(device=None):
    """`memory_reserved` by its older name."""
    warn("`torch.cuda.memory_cached` has been renamed to `torch.cuda.memory_reserved`", FutureWarning)
    return memory_reserved(device)


def max_memory_cached(device=None):
    """`max_memory_reserved` by its older name."""
    warn("`torch.cuda.max_memory_cached` has been renamed to `torch.cuda.max_memory_reserved`", FutureWarning)
    return max_memory_reserved(device)


def reset_peak_memory_stats(device=None):
    """Count the peaks from now on."""
    if driver.is_made():
        _account(device).reset_peaks()


def reset_accumulated_memory_stats(device=None):
    """Count what is given out from now on."""
    if driver.is_made():
        _account(device).reset_sums()


def reset_max_memory_allocated(device=None):
    """`reset_peak_memory_stats` by an older name."""
    warn("torch.cuda.reset_max_memory_allocated now calls torch.cuda.reset_peak_memory_stats, which resets /all/ peak "
         "memory stats.", FutureWarning)
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device=None):
    """`reset_peak_memory_stats` by an older name."""
    warn("torch.cuda.reset_max_memory_cached now calls torch.cuda.reset_peak_memory_stats, which resets /all/ peak "
         "memory stats.", FutureWarning)
    reset_peak_memory_stats(device)


def empty_cache():
    """Give the idle memory of all devices' pools back to them."""
    if driver.is_made():
        _record.run_all()                             # what is recorded and not handed over holds memory too
        software = driver.current()
        for index in range(software.device_count()):
            _memory.account(software, index).trim()


def mem_get_info(device=None):
    """(bytes free, bytes in all) of a device, of all processes."""
    software, index = there(device, "Invalid device argument", RuntimeError)
    return software.memory_info(index)


def set_per_process_memory_fraction(fraction, device=None):
    """Let this process have at most so much of a device's memory: more is an out-of-memory error."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    _account(device).fraction = fraction


def get_per_process_memory_fraction(device=None):
    """How much of a device's memory this process may have."""
    return _account(device).fraction


def get_allocator_backend():
    """Where memory comes from: "native", or "cudaMallocAsync" with expandable segments."""
    return "cudaMallocAsync" if configuration().expandable_segments else "native"


def memory_snapshot(mempool_id=None, include_traces=True):
    """The pools of all devices as segments, with PyTorch's keys: of each device the blocks that tensors hold, one for
    the rest of what is in use, and one for what lies idle. The pool does not say where others stand."""
    return _snapshot()["segments"] if driver.is_made() else []


def _history():
    from ..memory import history  # and with it what draws memory, for those who look
    return history


def _record_memory_history(enabled="all", context="all", stacks="all", max_entries=None, device=None,
                           clear_history=False, compile_context=False, global_record_annotations=False,
                           skip_actions=None):
    """Begin to note every allocation with the lines it is for, for `_snapshot()`; `enabled=None` ends it."""
    _history().record_history(enabled, context, stacks, max_entries, device, clear_history)


def _snapshot(device=None, augment_with_fx_traces=False):
    """The memory of all devices and what happened to it, as PyTorch's dictionary; flambeau.memory.snapshot() has more,
    and the CPU's."""
    return _history().snapshot_for_pytorch("cuda")


def _dump_snapshot(filename="dump_snapshot.pickle", augment_with_fx_traces=False):
    """Write `_snapshot()` to a file that pytorch.org/memory_viz shows."""
    _history().dump(filename, "cuda")


def memory_summary(device=None, abbreviated=False):
    """The pool's numbers as a table, what they are for, and the lines whose tensors hold most memory."""
    account = _account(device)
    stats, where = account.stats(), device_type("cuda", account.index)
    rule = "-" * 78
    lines = [f"{where} memory: {stats['num_ooms']} times refused, {stats['num_alloc_retries']} times retried, "
             f"{stats['allocation.all.allocated']} allocations", rule,
             f"{'':<22}{'now':>14}{'at most':>14}{'given ever':>14}{'come back':>14}"]
    for what, name in (("allocated_bytes", "allocated"), ("reserved_bytes", "reserved")):
        numbers = [stats.get(f"{what}.all.{column}") for column in ("current", "peak", "allocated", "freed")]
        shown = ["" if n is None else bytes_in_words(n) for n in numbers]
        lines.append((f"{name:<22}" + "".join(f"{text:>14}" for text in shown)).rstrip())
    if not abbreviated:
        lines += [rule, _oom.roles_in_words(where)]
    return "\n".join([*lines, rule, "lines whose tensors hold most:" + (_oom.by_line(device=where) or " none")])


def host_memory_stats():
    """The numbers of page-locked memory of the CPU's; it is not pooled, so there are none."""
    return {}


def list_gpu_processes(device=None):
    """The processes that use a device, as text; asked of NVIDIA's package nvidia-ml-py, where it is installed."""
    try:
        import pynvml
    except ImportError:
        return "pynvml module not found, please install nvidia-ml-py"
    index = _get_device_index(device, optional=True)
    pynvml.nvmlInit()
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(index))
    lines = [f"process {one.pid:>10d} uses {(one.usedGpuMemory or 0) / 2**20:>12.3f} MB GPU memory"
             for one in processes]
    return "\n".join([f"GPU:{index}", *(lines or ["no processes are running"])])


_handed_out: dict = {}          # address → the memory that `caching_allocator_alloc` gave


def caching_allocator_alloc(size, device=None, stream=None):
    """The address of `size` bytes of the pool, until `caching_allocator_delete`; for other libraries."""
    made = _account(device).allocate(size)
    _handed_out[made.address] = made
    return made.address


def caching_allocator_delete(mem_ptr):
    """Give memory back that `caching_allocator_alloc` gave."""
    if _handed_out.pop(mem_ptr, None) is None:
        raise RuntimeError(f"invalid device pointer: {mem_ptr:#x} was not given by caching_allocator_alloc()")
