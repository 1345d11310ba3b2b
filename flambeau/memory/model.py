"""What is known of memory: who holds it now, how that came about, and what more samples would need. PlainData objects.

Bytes are those of the allocators' blocks, so sums are what `cpu.memory_allocated()` and `cuda.memory_allocated()` say;
what a tensor itself has of its block is `used`. Everything has `to_dict()`, in words and numbers that JSON has.
"""
from dataclasses import dataclass, field

from ..backends.cpu.memory.allocator import bytes_in_words
from ..base.plain import PlainData
from ..tensor.out_of_memory import ROLES
from .words import record_in_words, snapshot_in_words

ALL_ROLES = (*ROLES, "no tensor")     # memory that no tensor holds: programs' own, what is about to come back, rounding


@dataclass(slots=True)
class Holding(PlainData):
    """A buffer that is there: for what role, which line made it, and what it is called.

    `keepers` say what keeps it alive, the nearest first: `loss in train.py:12 (main)`, `model.fc.weight`,
    `MulBackward0 made at train.py:7`.
    """

    device: str
    nbytes: int
    used: int
    role: str
    line: str
    kind: str                         # dtype and shape, as `float32[64, 784]`
    name: str | None = None
    module: str | None = None
    address: int = 0
    outside: bool = False             # in memory that is not the allocator's: NumPy's
    keepers: list = field(default_factory=list)


@dataclass(slots=True)
class Tally(PlainData):
    """The bytes of a line, a module or a role, and in how many buffers."""

    name: str
    nbytes: int
    count: int = 0
    largest: str = ""


@dataclass(slots=True)
class MemoryOfDevice(PlainData):
    """The memory of one device: the allocator's numbers, and all that holds some of it."""

    device: str
    allocated: int
    reserved: int
    peak: int
    limit: int
    outside: int                      # bytes of tensors in memory that is not the allocator's
    holdings: list

    def by_role(self):
        """{role: bytes}, of all in ALL_ROLES; together `allocated` and `outside`."""
        found = dict.fromkeys(ALL_ROLES, 0)
        for one in self.holdings:
            found[one.role] += one.nbytes
        found["no tensor"] = self.allocated + self.outside - sum(found.values())
        return found

    def by_line(self):
        """Tallies of lines, the largest first."""
        return tallied(self.holdings, lambda one: one.line)

    def by_module(self):
        """Tallies of modules that hold parameters and buffers, the largest first."""
        return tallied([one for one in self.holdings if one.module], lambda one: one.module)


@dataclass(slots=True)
class MemorySnapshot(PlainData):
    """Who holds what now, device by device."""

    devices: list

    def __getitem__(self, device):
        return next(one for one in self.devices if one.device == str(device))

    def __str__(self):
        return snapshot_in_words(self)


@dataclass(slots=True)
class MemoryEvent(PlainData):
    """`nbytes` were given out at `time` for a line, or with `nbytes` below zero came back."""

    time: int
    device: str
    nbytes: int
    line: str
    module: str | None = None
    role: str = "other"
    operation: str = ""


@dataclass(slots=True)
class Peak(PlainData):
    """The moment at which most was in use of a device: how much, and for which role. Roles are those of `outside`,
    too."""

    device: str
    nbytes: int
    time: int = 0
    before: int = 0                   # bytes that were there before observation began
    outside: int = 0                  # bytes of tensors in NumPy's own memory, which are not among `nbytes`
    lines: list = field(default_factory=list)         # Tallies
    modules: list = field(default_factory=list)
    roles: dict = field(default_factory=dict)


@dataclass(slots=True)
class MemoryRecord(PlainData):
    """What happened to memory between two moments: the peak of each device, and the events that led there."""

    start: int
    end: int
    peaks: dict                       # device → Peak
    events: list
    dropped: int = 0                  # how many of the oldest events were let go

    def __str__(self):
        return record_in_words(self)


@dataclass(slots=True)
class BatchEstimate(PlainData):
    """What a batch of any size would need: `fixed` bytes, and `per_sample` for each sample.

    `measured` has the peaks that were seen: {samples: bytes}. `limit` is what there is.
    """

    device: str
    measured: dict
    fixed: float
    per_sample: float
    limit: int
    roles: dict = field(default_factory=dict)         # role → (fixed, per sample)

    def needed(self, samples):
        """Bytes that a batch of so many samples would have in use at most."""
        return int(self.fixed + self.per_sample * samples)

    def largest(self):
        """How many samples fit at most; None if any number does."""
        return int((self.limit - self.fixed) // self.per_sample) if self.per_sample > 0 else None

    def __str__(self):
        seen = ", ".join(f"{bytes_in_words(nbytes)} with {samples}" for samples, nbytes in self.measured.items())
        most = self.largest()
        fits = "any number of samples fits" if most is None else \
            f"{max(most, 0)} samples fit into the {bytes_in_words(self.limit)} of {self.device}"
        return (f"{bytes_in_words(round(self.fixed))} and {bytes_in_words(round(self.per_sample))} for each sample; "
                f"{fits}.\nMeasured: {seen}.")


def tallied(things, name):
    """Tallies of `things` that have `nbytes` and perhaps a `kind`, by what `name` says of each; the largest first."""
    found: dict = {}
    largest: dict = {}
    for one in things:
        key = name(one)
        tally = found.get(key)
        if tally is None:
            tally = found[key] = Tally(key, 0)
        tally.nbytes += one.nbytes
        tally.count += 1
        if one.nbytes > largest.get(key, -1):
            largest[key], tally.largest = one.nbytes, getattr(one, "kind", "")
    return sorted(found.values(), key=lambda tally: (-tally.nbytes, tally.name))
