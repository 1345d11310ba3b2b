"""A history of allocations in the form of PyTorch's memory snapshots, which pytorch.org/memory_viz shows.

Behind `torch.cuda.memory._record_memory_history()`, `_snapshot()` and `_dump_snapshot()`, for every device: what
happened is noted with its lines, and the blocks that are in use are those of the tensors.
"""
import pickle
from collections import deque

from ..base.observers import Observer, observing, settle
from .looking import adopted, snapshot

WAYS = ("state", "all", None)
MICROSECOND = 1000                # nanoseconds


class AllocationHistory(Observer):
    """Notes what was given out and came back, the latest `max_entries` of them."""

    def __init__(self, max_entries):
        self.entries: deque = deque(maxlen=max_entries)

    def allocated(self, allocation):
        self._note("alloc", allocation, allocation.time)

    def freed(self, allocation):
        self._note("free_requested", allocation, allocation.end)
        self._note("free_completed", allocation, allocation.end)

    def _note(self, action, allocation, time):
        self.entries.append((str(allocation.device), action, allocation.address, allocation.nbytes, time,
                             allocation.sites))


_history = None                   # the AllocationHistory that is kept
_observing = None


def record_history(enabled="all", context="all", stacks="all", max_entries=None, device=None, clear_history=False,
                   compile_context=False, global_record_annotations=False, skip_actions=None):
    """Begin to note allocations, of all devices; None ends it, and keeps what was noted."""
    global _history, _observing
    if isinstance(enabled, bool):                 # PyTorch's older form
        enabled = "all" if enabled else None
    if enabled not in WAYS:
        raise RuntimeError(f"expected state to be 'state' or 'all' or None, but got {enabled!r}")
    if max_entries is not None and (not isinstance(max_entries, int) or max_entries < 0):
        raise RuntimeError(f"max_entries is {max_entries!r}: give the number of events to keep")
    if _observing is not None:
        _observing.__exit__(None, None, None)
        _observing = None
    if enabled is None:
        return
    if _history is None or clear_history or max_entries is not None:
        _history = AllocationHistory(max_entries if enabled == "all" else 0)
    _observing = observing(_history)
    _observing.__enter__()
    for one in snapshot().devices:                # so that it is seen when they go
        for holding in one.holdings:
            if not holding.outside:
                adopted(holding)


def snapshot_for_pytorch(device_type):
    """{"segments": …, "device_traces": …} of the devices of a kind, as PyTorch's `_snapshot()` gives them."""
    settle()
    devices = [one for one in snapshot().devices if one.device.partition(":")[0] == device_type]
    history = list(_history.entries) if _history is not None else []
    traces = [[{"action": action, "addr": address, "size": nbytes, "stream": 0, "time_us": time // MICROSECOND,
                "compile_context": "N/A", "user_metadata": "", "frames": [_frame(site) for site in sites if site]}
               for name, action, address, nbytes, time, sites in history if name == one.device] for one in devices]
    return {"segments": [segment for number, one in enumerate(devices) for segment in _segments(number, one)],
            "device_traces": traces, "external_annotations": [],
            "allocator_settings": {"expandable_segments": False, "garbage_collection_threshold": 0.0}}


def dump(filename, device_type):
    """Write the snapshot to a file that pytorch.org/memory_viz opens."""
    found = snapshot_for_pytorch(device_type)
    with open(filename, "wb") as file:
        pickle.dump(found, file)


def _frame(site):
    code, offset = site
    line = next((number for start, end, number in code.co_lines() if number is not None and start <= offset < end),
                code.co_firstlineno)
    return {"filename": code.co_filename, "line": line, "name": code.co_name}


def _segments(number, one):
    """What is in use of a device as segments of one block each, one for what no tensor holds, and one for what lies
    idle: together what is reserved."""
    for holding in one.holdings:
        if not holding.outside:
            file, _, line = holding.line.partition(":")
            number_of_line = int(line.split()[0]) if line[:1].isdigit() else 0
            frames = [{"filename": file, "line": number_of_line, "name": holding.kind}]
            yield _segment(number, holding.nbytes, "active_allocated", holding.address, holding.used, frames)
    rest = one.allocated - sum(holding.nbytes for holding in one.holdings if not holding.outside)
    if rest > 0:
        yield _segment(number, rest, "active_allocated")
    if one.reserved > one.allocated:
        yield _segment(number, one.reserved - one.allocated, "inactive")


def _segment(number, nbytes, state, address=0, used=None, frames=()):
    active = nbytes if state == "active_allocated" else 0
    block = {"address": address, "size": nbytes, "requested_size": nbytes if used is None else used, "state": state,
             "frames": list(frames)}
    return {"device": number, "address": address, "total_size": nbytes, "allocated_size": active,
            "active_size": active, "requested_size": block["requested_size"] if active else 0, "stream": 0,
            "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
            "blocks": [block]}
