"""What a profile holds: spans of time, the steps that ran, and rows of tables made of them. PlainData objects.

A Span is something that a thread did from `start` to `end`; spans of one thread lie inside of each other or apart, and
`parent` is the one around it. A StepTime is a step of a plan, or an instruction without one, that a device ran: its
`shares` say for which. So a recorded operation has two times, which are far from each other: that of its call, when it
was recorded, and its share of the steps that computed it.

Times are nanoseconds on `base.observers.clock`. Everything has `to_dict()`, in words and numbers that JSON has.
"""
from dataclasses import dataclass, field

from ..base.plain import PlainData

# What a moment of the profiled thread was spent on; see `Profile.parts` in data.py.
PARTS = {
    "python": "the program's own Python, and everything else",
    "recording": "calls of operations, autograd and optimizers, up to the record of what to compute",
    "planning": "making plans: fusing, laying out memory",
    "compiling": "waiting for the compiler, or for code that it keeps on disk",
    "launching": "what a run needs besides its steps: memory, addresses, keys of plans",
    "running": "steps: kernels, library functions, operations of the reference executor",
    "copying": "steps that bring memory from one device to another, and what the CPU reads of another device",
    "waiting": "waiting for a device, or for data from a loader's workers",
    "observing": "the profiler itself, as far as it can see that",
}
# kind of a span → the part that its own time belongs to
PART_OF_KIND = {"operation": "recording", "node": "recording", "backward": "recording", "optimizer": "recording",
                "scope": "python", "module": "python", "step": "python", "run": "launching", "planning": "planning",
                "compiling": "compiling", "copying": "copying", "waiting": "waiting", "observing": "observing"}


@dataclass(slots=True)
class Span(PlainData):
    """Something that thread `thread` did from `start` to `end`: a call of an operation, a module, a run, ….

    `kind` is a key of PART_OF_KIND; `name` is PyTorch's where it has one (`aten::mul`). `own` is what is left of its
    time after the spans and steps inside of it. `order` is the sequence number of autograd's node.
    """

    kind: str
    name: str
    start: int
    end: int
    thread: int = 0
    parent: int | None = None
    own: int = 0
    line: str | None = None
    module: str | None = None
    backward: bool = False
    order: int = -1
    shapes: list = field(default_factory=list)
    dtypes: list = field(default_factory=list)
    stack: tuple = ()
    nbytes: int = 0
    flops: int = 0
    running: int = 0                  # nanoseconds of the CPU's steps that computed what it recorded
    device_running: int = 0           # the same of other devices' steps
    allocated: int = 0                # bytes that its steps were given, less those that came back
    device_allocated: int = 0
    device: str = "cpu"

    @property
    def nanoseconds(self):
        """From its start to its end."""
        return self.end - self.start


@dataclass(slots=True)
class Share(PlainData):
    """The `part`, from 0 to 1, of a step that an operation has: by the numbers that it reads or makes."""

    operation: str
    line: str
    part: float
    module: str | None = None
    span: int | None = None           # the call that recorded it, where that was seen
    backward: bool = False


@dataclass(slots=True)
class StepTime(PlainData):
    """A step that `device` ran. `nbytes` and `flops` estimate its work, each byte of memory counted once."""

    kind: str                         # kernel, library, reference, callback, transfer; instruction: without a plan
    name: str
    start: int
    end: int
    thread: int
    device: str
    nbytes: int
    flops: int
    sizes: tuple
    shares: list
    parent: int | None = None         # the run that it was a part of
    failed: bool = False

    @property
    def nanoseconds(self):
        """How long it took."""
        return self.end - self.start

    @property
    def lines(self):
        """The lines that it computes."""
        return list(dict.fromkeys(share.line for share in self.shares))


@dataclass(slots=True)
class MachineLimit(PlainData):
    """What a device can do at most: bytes of memory it moves in a second, and operations of float32."""

    device: str
    bytes_per_second: float
    flops_per_second: float

    def least_seconds(self, nbytes, flops):
        """The time that so much work takes at least."""
        return max(nbytes / self.bytes_per_second, flops / self.flops_per_second)


@dataclass(slots=True)
class ProfileRow(PlainData):
    """A row of a table: what a line, an operation, a kernel or a module took, in nanoseconds, bytes and operations.

    `limit_share` is the part of the machine's limit that its steps have reached; None where that is not known.
    """

    name: str
    count: int = 0
    recording: int = 0
    preparing: int = 0                # planning, compiling and launching, during a look at a result
    running: int = 0
    copying: int = 0
    waiting: int = 0
    nbytes: int = 0
    flops: int = 0
    limit_share: float | None = None
    device: str = ""

    @property
    def total(self):
        """All of its time."""
        return self.recording + self.preparing + self.running + self.copying + self.waiting


@dataclass(slots=True)
class MemoryChange(PlainData):
    """`nbytes` of a device that were given out at `time` for a line, or with `nbytes` below zero came back.

    `span` is what they were for, or in which they came back; None outside of any.
    """

    time: int
    device: str
    nbytes: int
    line: str
    span: int | None = None
    role: str = "other"          # as in tensor/out_of_memory.py; "other" also of what was gone when the profile ended
