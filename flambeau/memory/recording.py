"""Record what happens to memory: the peak of each device by line, by module and by role, and the events that led there.

    with flambeau.memory.record() as seen:
        train()
    print(seen)

What is in use when it begins is looked through, so that the peak is all of the memory that was in use. Roles are looked
up whenever a run ends at a higher peak than before: what has not been looked up by then was in use for a moment only.

Meanwhile everything runs by plans (the executor "native"): instructions that run one by one have NumPy's memory, which
no allocator knows of. So what is recorded is what a program uses once its steps repeat.
"""
import gc
import threading
from collections import deque

from ..backends.devices import accelerator
from ..base import settings
from ..base.errors import line_of
from ..base.observers import Observer, clock, observing, settle
from ..base.spec import CPU, as_device
from ..compat._library.called import operator_name
from ..profiler import modules
from ..tensor import out_of_memory
from ..trace.recording.record import run_all
from .looking import adopted, snapshot
from .model import ALL_ROLES, BatchEstimate, MemoryEvent, MemoryRecord, Peak, tallied
from .words import snapshot_in_words

MAX_EVENTS = 100_000
OUTSIDE = "NumPy's own memory"
GROWTH_WORTH_A_LOOK = 1.02    # by which a peak is higher than that at which roles were looked up last


class _Live:
    """A block in use, and whose it is."""

    __slots__ = ("nbytes", "device", "line", "module", "role", "operation", "address")

    def __init__(self, nbytes, device, line, module, role, operation, address):
        self.nbytes, self.device, self.line, self.module = nbytes, device, line, module
        self.role, self.operation, self.address = role, operation, address


class _Device:
    """What is in use of one device, and the most that was."""

    def __init__(self, name, allocated):
        self.name, self.now, self.before = name, allocated, allocated
        self.live: dict = {}          # id of an Allocation → (the Allocation, its _Live)
        self.unknown = 0              # bytes that were there before, and are no tensor's
        self.peak, self.peak_time, self.at_peak, self.looked_at = allocated, clock(), None, 0
        self.outside: list = []       # what stands in other memory


class record(Observer):
    """As a context, records memory; then `peaks` and `events`, and `result`, a MemoryRecord, say what was seen.

    At most `max_events` of the latest events are kept.
    """

    def __init__(self, max_events=MAX_EVENTS):
        if not isinstance(max_events, int) or max_events < 0:
            raise ValueError(f"max_events is {max_events!r}: give the number of events to keep, or 0")
        self.max_events = max_events
        self._events: deque = deque(maxlen=max_events)
        self._told = 0
        self._of: dict = {}           # id of a recorded instruction → the module that recorded it
        self._paths, self._stacks = modules.ModulePaths(), threading.local()
        self._devices: dict = {}
        self.result = None

    def __enter__(self):
        self.start, self._executor = clock(), settings.executor
        self._observing = observing(self)
        run_all()
        self._observing.__enter__()                          # only now does an allocator note what comes back
        for one in snapshot().devices:
            self._adopt(one)
        if settings.executor == "auto":
            settings.executor = "native"
        return self

    def __exit__(self, *exc):
        try:
            run_all()
            settle()
        finally:
            settings.executor = self._executor
            self._observing.__exit__(None, None, None)
            self.result = self._made(clock())
            self._of.clear()

    def _adopt(self, one):
        found = self._devices[one.device] = _Device(one.device, one.allocated)
        for holding in one.holdings:
            if holding.outside:
                found.outside.append(_Live(holding.nbytes, one.device, holding.line, holding.module, holding.role,
                                           holding.kind, 0))
                continue
            allocation = adopted(holding)
            found.live[id(allocation)] = allocation, _Live(holding.nbytes, one.device, holding.line, holding.module,
                                                           holding.role, holding.kind, holding.address)
        found.unknown = one.allocated - sum(live.nbytes for _, live in found.live.values())
        found.at_peak = self._standing(found)

    # --- what happens -----------------------------------------------------------------------------------------------

    def module_began(self, module):
        self._stack().append(self._paths.of(module)[0])

    def module_ended(self, module):
        stack = self._stack()
        if stack:
            stack.pop()

    def _stack(self):
        try:
            return self._stacks.stack
        except AttributeError:
            self._stacks.stack = []
            return self._stacks.stack

    def recorded(self, instruction):
        stack = self._stack()
        self._of[id(instruction)] = stack[-1] if stack else None

    def allocated(self, allocation):
        name = str(allocation.device)
        found = self._devices.get(name)
        if found is None:
            found = self._devices[name] = _Device(name, 0)
        first = allocation.instructions[0] if allocation.instructions else None
        several = len(allocation.instructions) > 1
        line = line_of(first.site if first is not None else allocation.site)
        live = _Live(allocation.nbytes, name, f"{line} and others (working memory)" if several else line,
                     self._of.get(id(first)) if first is not None and not several else None, "other",
                     operator_name(first.entry.op.__name__) if first is not None else "", allocation.address)
        found.live[id(allocation)] = allocation, live
        found.now += allocation.nbytes
        self._note(allocation.time, live, 1)
        if found.now > found.peak:
            found.peak, found.peak_time, found.at_peak = found.now, allocation.time, None

    def freed(self, allocation):
        found = self._devices.get(str(allocation.device))
        entry = found.live.get(id(allocation)) if found is not None else None
        if entry is None:
            return
        if found.at_peak is None:                            # the last moment at which the peak stands
            found.at_peak = self._standing(found)
        del found.live[id(allocation)]
        found.now -= allocation.nbytes
        self._note(allocation.end, entry[1], -1)

    def run_ended(self, start, end):
        for found in self._devices.values():
            if found.at_peak is None or found.peak > found.looked_at * GROWTH_WORTH_A_LOOK:
                self._look_up_roles(found)

    def _note(self, time, live, way):
        self._told += 1
        self._events.append((time, live, way))

    @staticmethod
    def _standing(found):
        """The blocks in use."""
        return [live for _, live in found.live.values()]

    def _look_up_roles(self, found):
        device, blocks = as_device(found.name), {}
        found.looked_at = found.peak
        found.outside = []
        for value, role in out_of_memory.roles(device):
            block = device.backend.block_of(value.array)
            if block is not None:
                blocks.setdefault(block[0], role)
            else:
                found.outside.append(_Live(value.array.nbytes, found.name, OUTSIDE, None, role, "", 0))
        for _, live in found.live.values():
            live.role = blocks.get(live.address, live.role)

    # --- afterwards -------------------------------------------------------------------------------------------------

    def _made(self, end):
        peaks = {}
        for found in self._devices.values():
            if found.peak > found.looked_at:
                self._look_up_roles(found)
            standing = found.at_peak if found.at_peak is not None else self._standing(found)
            roles = dict.fromkeys(ALL_ROLES, 0)
            outside = sum(live.nbytes for live in found.outside)
            for live in (*standing, *found.outside):
                roles[live.role] += live.nbytes
            roles["no tensor"] += found.peak + outside - sum(roles.values())
            peaks[found.name] = Peak(found.name, found.peak, found.peak_time, found.before, outside,
                                     tallied([*standing, *found.outside], lambda live: live.line),
                                     tallied([live for live in standing if live.module], lambda live: live.module),
                                     roles)
        events = [MemoryEvent(time, live.device, way * live.nbytes, live.line, live.module, live.role, live.operation)
                  for time, live, way in self._events]
        return MemoryRecord(self.start, end, peaks, events, max(0, self._told - len(events)))

    @property
    def peaks(self):
        """{device: Peak}, of what has been seen so far."""
        return self.result.peaks if self.result is not None else self._made(clock()).peaks

    @property
    def events(self):
        """The latest MemoryEvents."""
        return self.result.events if self.result is not None else self._made(clock()).events

    def to_dict(self):
        """What was seen, as JSON has it."""
        return (self.result or self._made(clock())).to_dict()

    def __str__(self):
        return str(self.result or self._made(clock()))


def estimate(step, samples=(4, 8), device=None, warm=1):
    """What a batch of any size would need: `step(n)` is called with each of two numbers of samples, and measured.

    A step should be all that a training step is, on data of `n` samples. It is run `warm` times before, so that what is
    made once (gradients, the optimizer's state) is there; that is part of what is fixed. Gives a BatchEstimate.
    """
    numbers = isinstance(samples, (tuple, list)) and all(isinstance(n, int) and n > 0 for n in samples)
    sizes = sorted(set(samples)) if numbers else ()
    if len(sizes) < 2:
        raise ValueError(f"samples is {samples!r}: give two different numbers of samples to measure with, as (4, 8)")
    name = str(as_device(device if device is not None else accelerator() or CPU))
    measured, roles = {}, {}
    for n in sizes:
        with record(max_events=0):            # by plans, too
            for _ in range(warm):
                step(n)
                run_all()
        gc.collect()                          # what only waits to be collected is not needed, now or later
        with record(max_events=0) as seen:
            step(n)
            run_all()
        peak = seen.peaks[name]
        measured[n], roles[n] = peak.nbytes, peak.roles
    low, high = sizes[0], sizes[-1]

    def line(at_low, at_high):
        slope = (at_high - at_low) / (high - low)
        return at_low - slope * low, slope
    fixed, slope = line(measured[low], measured[high])
    return BatchEstimate(name, measured, fixed, slope, as_device(name).backend.memory_limit(),
                         {role: line(roles[low][role], roles[high][role]) for role in ALL_ROLES})


def summary(device=None, lines=10):
    """Who holds which memory now, in words."""
    return snapshot_in_words(snapshot(device, keepers=lines), lines)
