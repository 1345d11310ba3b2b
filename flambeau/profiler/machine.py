"""What a device can do at most: measured once, by a copy and a product of matrices, and kept in the cache.

The bounds are what this library's own kernels reach on large data with nothing else running, so a step can come near
them, and with data that fits a processor's cache go beyond the first.
"""
import json
import os
import time

from ..backends.cpu import threads
from ..base import settings
from ..base.spec import CPU, as_device
from ..tensor.forms import namespace
from ..trace.recording.record import current
from .model import MachineLimit

COPIED_BYTES = 64 << 20           # more than caches hold
MATRIX_SIZE = 1024
MEASURED_ROUNDS = 8
FLOPS_WORTH_A_CLOCK = 10 ** 7     # of a step: with fewer the clock says too little
_known: dict = {}                 # device → MachineLimit


def limit_of(device="cpu", measure=True):
    """The MachineLimit of a device: known, or kept on the disk, or measured now (a fifth of a second); else None."""
    device = as_device(device)
    if device not in _known:
        found = _read(device)
        if found is None and measure:
            found = _measured(device)
            _write(device, found)
        if found is None:
            return None
        _known[device] = found
    return _known[device]


def raised(limit, steps):
    """`limit`, or more operations where one of the `steps` has done more: the machine was busy when it was measured."""
    reached = [step.flops * 1e9 / step.nanoseconds for step in steps if step.device == limit.device
               and step.flops >= FLOPS_WORTH_A_CLOCK and step.nanoseconds]
    return MachineLimit(limit.device, limit.bytes_per_second, max([limit.flops_per_second, *reached]))


def _measured(device):
    full, mm = namespace[""]["full"], namespace[""]["mm"]
    source = full((COPIED_BYTES // 4,), 1.0, device=device)
    square = full((MATRIX_SIZE, MATRIX_SIZE), 1.0, device=device)
    copy = _best(lambda: source * 2.0, device)
    product = _best(lambda: mm(square, square), device)
    return MachineLimit(str(device), 2 * COPIED_BYTES / copy, 2 * MATRIX_SIZE ** 3 / product)


def _best(work, device):
    """The least seconds that `work` has taken."""
    best = float("inf")
    for _ in range(MEASURED_ROUNDS):
        device.backend.synchronize()
        start = time.perf_counter()
        made = work()
        current().run()
        device.backend.synchronize()
        best = min(best, time.perf_counter() - start)
        del made
    return best


def _path(device):
    folder = settings.object_dir
    return os.path.join(folder, "machine_limits.json") if folder else None


def _key(device):
    """What the limit depends on besides the machine."""
    processor = device.backend.processor()
    return f"{device} {processor} {threads.get_num_threads() if device is CPU else ''}".strip()


def _read(device):
    path = _path(device)
    if path is None or not os.path.exists(path):
        return None
    try:
        with open(path, encoding="utf-8") as file:
            kept = json.load(file).get(_key(device))
        return None if kept is None else MachineLimit(str(device), *map(float, kept))
    except (OSError, ValueError, TypeError, AttributeError):       # half written by another process: measure again
        return None


def _write(device, limit):
    path = _path(device)
    if path is None:
        return
    try:
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
    except (OSError, ValueError):
        kept = {}
    kept[_key(device)] = [limit.bytes_per_second, limit.flops_per_second]
    own = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(own, "w", encoding="utf-8") as file:
            json.dump(kept, file)
        os.replace(own, path)
    except OSError:                       # a folder that cannot be written to: it is measured in every process
        if os.path.exists(own):
            os.remove(own)
