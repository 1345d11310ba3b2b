"""What a device does for the layers above it: hold memory, show it as arrays, run operations, compile kernels.

A Backend is found by a Spec's device: `spec.device.backend`. Above this folder no code asks what kind of array a Value
holds, or which module computes with it. To add a device, write a subclass and register it:

    register("toy", ToyBackend)

`torch.device("toy")` then names it, `ToyBackend(index)` is made when a tensor is first asked for there, and every
operation runs on it through the reference executor, with the array module that the Backend names.

A device that `compiles` is given kernels of the loop language (loops/ir.py), which say what is computed. It decides how
(`schedule`), makes code of them (`compile`), may have a library of functions of its own (`library`), and makes programs
of both (`program`), which run over a table of addresses. What an address is, is its own affair.
"""
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ..base import dtypes, spec as specs
from ..base.entry import Entry
from ..base.spec import Spec
from ..loops.ir import Launch
from . import reference
from .cpu import host
from .cpu.memory import allocator, limits

if TYPE_CHECKING:
    from .cpu.random.random_stream import RandomStream

Array: TypeAlias = Any                # of the array module of a device
Layouts: TypeAlias = Sequence[tuple[tuple, tuple]]      # (shape, strides) of each operand


class NoCompiler(ImportError):
    """There is nothing here that could compile for the device."""


class NotCompiled(RuntimeError):
    """Some code could not be compiled, or linked; `failed` is {its name: what the compiler says}.

    `launches` are those that cannot run for it; without any, none can.
    """

    launches = ()

    def __init__(self, failed: dict[str, str]) -> None:
        self.failed = failed
        super().__init__("\n".join(dict.fromkeys(failed.values())))


class NotPrecompiled(NotCompiled):
    """Some code was not compiled beforehand, and there is no compiler here (kernel_store/precompiled.py)."""


class DeviceFailed(RuntimeError):
    """A device refused a step of a program, or fails since an earlier one: nothing that the program would have made can
    be had. `task` is the number of the step among the program's, None where that is not known."""

    def __init__(self, said: str, task: int | None = None) -> None:
        super().__init__(said)
        self.task = task


class Unschedulable(Exception):
    """A kernel that the device has no code for, raised by `Backend.schedule`; its operations go to the reference."""


class Reductions(NamedTuple):
    """What a device wants of the order of its reductions (Note [One order] in trace/planning/reduction_order.py).

    It follows from the operation alone, so these are numbers, the same for all devices of a type.
    """

    max_short: int = 32                # a reduction no longer than this goes down columns where there are many of them
    many_columns: int = 64
    whole_vectors: int = 16            # but for rows of a multiple of so many elements, which fill vectors
    lane_multiple: int = 64            # a whole number of rounds of the lanes, on any device of the type
    column_multiple: int = 64          # of positions that a block of a reduction down columns has
    min_row_elements: int = 512        # of a row at the end of which the lanes may as well begin anew
    block_elements: int = 1 << 16      # of a block of a reduction that is cut, about
    max_row_blocks: int = 256          # along rows
    max_cut_rows: int = 15             # with more results than this there is work for all without cutting
    max_column_blocks: int = 64        # down columns
    max_cut_columns: int = 1024
    max_column_parts: int = 1 << 16    # of all columns together
    block_multiple: int = 1            # that the number of blocks is brought to, where there are as many
    min_columns_by_block: int = 0      # what blocks of so many columns give lies block by block; 0: column by column


on_late_failure: list = []    # functions that say what devices were handed last, for errors that are told later


class Task(NamedTuple):
    """A step of a device's program: a Launch, or a call that its `library` gave.

    `slots` are (index of the program's table, bytes behind that) of its accesses, or of its operands and results, in
    order; `numbers` are the indices of its numbers among the program's.
    """

    work: object
    slots: list
    numbers: list | tuple = ()


class Backend:
    """A device whose memory is that of an array module with NumPy's functions: `xp`.

    `compiles` says that plans make kernels for it; otherwise its operations are steps of the reference executor. The
    methods under "kernels" are then needed, and `address`. `vector_bytes` is part of the order of a reduction along
    rows: its lanes fill a number of vectors of so many bytes (see Note [One order] in
    trace/planning/reduction_order.py), and `reductions` are the numbers that decide the rest of it. `interprets` says
    that bodies can be run over its arrays with NumPy and give the same bits (trace/running/interpret.py); otherwise
    traces are planned when they are first seen, and their kernels waited for. `attends` says that its library has
    attention whose weights never stand in memory, which is asked for at the call. `recurs` says that a step of a
    sequence is planned once and repeated by the device (trace/planning/recurrence.py). `carries_columns` says that a
    kernel along rows may add up columns of what it has at hand, where `schedule` takes it (trace/planning/carry.py).
    `adds_to_addresses` says that so many bytes behind an address are at that number plus the bytes, so that a plan may
    read an input from elsewhere at every run (Note [Moving offsets] in trace/running/key.py).
    `rounds_late` says that its library may leave products of 16-bit matrices in float32, to be rounded when more was
    computed with them.
    """

    trace_weight = 1.0            # what a byte of results on it counts in `config.trace_bytes`, at which a trace runs
    xp: Any = np
    compiles = interprets = attends = recurs = carries_columns = adds_to_addresses = rounds_late = False
    runs_ahead = False        # whether programs return before they are done, so that errors are told later
    copies_ahead = False      # whether it has `page_locked`, `send` and `fetch`
    streams = False           # whether it has streams, and events to mark them; else it does everything in order
    autocast_dtypes = dtypes.float16, dtypes.bfloat16     # what regions may compute in; the first unless one says
    least_speed = 0.0         # the share of NumPy's speed on this processor below which its own is not plausible
    vector_bytes = 16
    reductions = Reductions()
    recomputed_operations = 12    # what takes no more of an element is computed again rather than kept in memory
    function_operations = 13      # that a function such as exp counts as
    product_row_bytes = 0         # rows of matrices that are multiplied had best begin at multiples of this; 0: any
    masked_row_bytes = 0          # shorter rows end in a store that loads of the next row wait for
    zeros_by_sign = False         # whether the lesser of two zeros is the negative one, and not one of the two by place

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self.device: Any = None       # set when it is registered
        self.random_stream: RandomStream | None = None        # by default, once it drew: random.stream_of

    # --- memory -----------------------------------------------------------------------------------------------------

    def allocate(self, spec: Spec) -> Array:
        """An array laid out as `spec`, which must be dense, with any contents."""
        return reference.blank(spec, self.xp)

    def blank(self, spec: Spec) -> tuple[Array, int]:
        """The same as `allocate`, and its address."""
        made = self.allocate(spec)
        return made, self.address(made)

    def blanks(self, specs: Iterable[Spec]) -> list[tuple[Array, int]]:
        """What `blank` gives for each of `specs`, in a list."""
        return [self.blank(spec) for spec in specs]

    def block(self, nbytes: int) -> Any:
        """Memory of `nbytes` for the time of a run: anything with an `address`; `bytes_of` shows it as an array."""
        raise NotImplementedError(f"{type(self).__name__} has no working memory")

    def look(self, memory: Array, spec: Spec, offset: int) -> Array:
        """What a tensor of `spec`, starting `offset` elements in, sees of `memory`, an array of bytes."""
        if spec.numel == 0:
            return self.xp.empty(spec.shape, spec.dtype.np)
        return self.xp.ndarray(spec.shape, spec.dtype.np, memory, offset * spec.dtype.itemsize, spec.np_strides)

    def spec_of(self, array: Array) -> Spec:
        """What an array without holes is, that an operation gave whose result's shape depends on the data."""
        return specs.of_array(array, True, self.device)

    def relaid(self, array: Array, spec: Spec) -> Array:
        """The memory of a dense array, laid out as the dense `spec` instead."""
        return self.look(self.bytes_of(array), spec, 0)

    def bytes_of(self, array: Array) -> Array:
        """The bytes behind a dense array, in memory order."""
        if not array.flags.c_contiguous:
            order = sorted(range(array.ndim), key=lambda d: -array.strides[d])
            array = array.transpose(order)
        return array.reshape(-1).view(np.uint8)

    def address(self, array: Array) -> int:
        """Where the array starts in memory."""
        raise NotImplementedError(f"{type(self).__name__} does not say where its memory is")

    def active(self) -> AbstractContextManager:
        """A context in which its arrays can be computed with; the methods here enter it by themselves."""
        return nullcontext()

    def copied(self, array: Array) -> Array:
        """The same contents, laid out alike, in memory of their own."""
        return array.copy(order="K")

    def put(self, target: Array, source: Array | complex) -> None:
        """Write the contents of the array `source`, or a number, into `target`, both of this device."""
        target[...] = source

    def put_changed(self, target: Array, source: Array) -> None:
        """Write to elements of `target` that share memory: only what differs, since an unchanged element written later
        would undo a changed one in the same cell."""
        changed = ~((target == source) | ((target != target) & (source != source)))
        target[changed] = source[changed]

    def may_write(self, array: Array) -> bool:
        """Whether the memory of `array` may be written to at all."""
        return True

    def overlap(self, one: Array, other: Array) -> bool:
        """Whether two arrays have a cell in common; said to be so, too, where it is hard to tell."""
        return self.xp.may_share_memory(one, other)

    # --- movement ---------------------------------------------------------------------------------------------------

    def to_host(self, array: Array) -> np.ndarray:
        """The contents as a NumPy array, to be read; what the device's arrays have no dtype for, as bytes."""
        raise NotImplementedError(f"{type(self).__name__} does not bring its memory to the CPU")

    def from_host(self, array: np.ndarray, spec: Spec) -> Array:
        """A NumPy array's contents in memory of this device, laid out as `spec`."""
        raise NotImplementedError(f"{type(self).__name__} does not take memory from the CPU")

    def copy_from(self, origin: "Backend", array: Array, spec: Spec) -> Array:
        """The contents of an array of another Backend, in memory of this one laid out as `spec`: by way of the CPU."""
        return self.from_host(host.as_dtype(origin.to_host(array), spec.dtype.np), spec)

    def interface(self, memory: Array, spec: Spec, offset: int) -> dict:
        """`__cuda_array_interface__` of a tensor of `spec`, `offset` elements into an array of bytes that stays."""
        raise AttributeError(f"memory of {self.device} is not a CUDA device's")

    def dlpack(self, owner: Any, spec: Spec, offset: int, stream: Any, max_version: tuple[int, int] | None) -> Any:
        """A DLPack capsule of a tensor of `spec`, `offset` elements into the array of bytes `owner.memory`; it keeps
        `owner` alive."""
        raise BufferError(f"{type(self).__name__} does not share its memory by DLPack")

    def dlpack_device(self) -> tuple[int, int]:
        """(type, index) of the device as DLPack counts."""
        raise ValueError(f"Unknown device type {self.device.type} for Dlpack")

    def page_locked(self, nbytes: int) -> np.ndarray:
        """Memory of the CPU that copies to and from this device may read and write while the program goes on, as an
        array of bytes."""
        raise NotImplementedError(f"{type(self).__name__} has no page-locked memory")

    def send(self, array: np.ndarray, spec: Spec) -> tuple[Array, Any]:
        """Begin to copy an array in page-locked memory, laid out as `spec`, to this device: (the array here, what to
        wait for). See Note [Copies ahead] in cuda/movement.py."""
        raise NotImplementedError(f"{type(self).__name__} copies while the caller waits")

    def fetch(self, array: Array, spec: Spec) -> tuple[np.ndarray, Any]:
        """Begin to copy a dense array of this device, laid out as `spec`, to page-locked memory: (the array there, what
        to wait for)."""
        raise NotImplementedError(f"{type(self).__name__} copies while the caller waits")

    # --- work -------------------------------------------------------------------------------------------------------

    def execute(self, entry: Entry, arrays: list[Array], params: tuple, own: bool = False) -> list[Array]:
        """The result arrays of one instruction over arrays of this device, by the reference. `own`: the first array may
        be overwritten."""
        return reference.execute(entry, arrays, params, own, self.xp)

    # --- kernels ----------------------------------------------------------------------------------------------------

    def schedule(self, launch: Launch) -> Any:
        """How a Launch is run: anything with `words(printer)`, what decides its code, and `turned`.

        `turned` is {access: dimensions}, for operands that should be copied first so that they lie along those. Raises
        Unschedulable where there is no code for such a kernel.
        """
        raise NotImplementedError(f"{type(self).__name__} does not compile")

    def compile(self, launches: list[Launch], calls: Iterable = ()) -> Any:
        """Code for launches, and for calls that `library` gave, to be made: `prepare(spare)` has that done in the
        background, where it takes longer than so many nanoseconds, and says whether it will be;
        `is_ready()` whether it is; and `finish()` waits for it, and raises NotCompiled where there is none."""
        raise NotImplementedError(f"{type(self).__name__} does not compile")

    def program(self, tasks: list[Task]) -> Any:
        """Tasks in a row, compiled before: something with `run(table, cells, times)`, arrays of addresses and of
        numbers of eight bytes, and `bound(table, cells, times)`, over arrays that outlive it: a function of no
        arguments that does the same, and that no interrupt can stop in the middle; or one that has `resume`, to be
        called when it was interrupted, which does the rest. It does so whenever it is called, if the program `lasts`;
        else it is for one call, and over what stands in the arrays when it is made. `times` is None, or an array for
        what `observers.clock` says at the beginning and after each task. DeviceFailed where the device refuses."""
        raise NotImplementedError(f"{type(self).__name__} does not compile")

    def code(self, work: Any) -> list[str]:
        """The texts that the compiler was given for a Launch or a library's call, to be shown."""
        return []

    def assembly(self, text: str) -> str:
        """What the device runs for one of these texts, to be shown."""
        raise NotImplementedError(f"{type(self).__name__} does not compile")

    def library(self, name: str, dtype: str, args: Layouts, outs: Layouts, params: tuple) -> list | None:
        """The calls by which a library function makes `outs` of `args`, all (shape, strides); None where it has none.

        They go into a program one after the other; see backends/cpu/library/__init__.py for the functions.
        """
        return None

    def has(self, name: str, dtype: str, args: Layouts, outs: Layouts, params: tuple) -> bool:
        """Whether `library` would have an answer: a body asks before it is known how its operands will lie."""
        return self.library(name, dtype, args, outs, params) is not None

    @property
    def solvers(self) -> Any:
        """A library of linear algebra for the `direct` of operations, whose functions are those of
        cpu/library/solvers.py; None where there is none."""
        return None

    def processor(self) -> str:
        """What computes, and what code is compiled for, in words."""
        return self.name

    def expect_work(self) -> None:
        """A model is being built: what nearly all of them need may be made ready, without keeping the caller
        waiting."""

    def forget(self) -> None:
        """Compile everything anew, if it is asked for again."""

    # --- the device -------------------------------------------------------------------------------------------------

    capability: str | None = None         # of a GPU: "9.0"

    @staticmethod
    def remedy(missing: bool = False) -> str:
        """What may help where a device computes wrongly or not at all; `missing`: where it is not even there."""
        return "look at what its software says" if missing else "report it with what `flambeau doctor --json` prints"

    @property
    def name(self) -> str:
        """What people call the device."""
        return str(self.device)

    def new_stream(self, priority: int = 0) -> Any:
        """A stream: work that the device does in order, beside that of other streams. It has a `handle`, a number,
        and can `wait(event)`, `synchronize()` and `query()`. Of those with a lower priority, what is there goes first.
        """
        raise NotImplementedError(f"{type(self).__name__} has no streams")

    def current_stream(self) -> Any:
        """The stream that this thread's work goes to; the default one unless `use_stream` has said another."""
        raise NotImplementedError(f"{type(self).__name__} has no streams")

    def default_stream(self) -> Any:
        """The stream that work goes to where no other was chosen."""
        raise NotImplementedError(f"{type(self).__name__} has no streams")

    def use_stream(self, stream: Any) -> None:
        """Have this thread's work go to a stream."""
        raise NotImplementedError(f"{type(self).__name__} has no streams")

    def event(self, timed: bool = False, blocking: bool = False) -> Any:
        """A mark for streams: `record(stream)`, `synchronize()`, `query()`, `handle`, and where it is `timed`,
        `elapsed(other)`, milliseconds. `blocking`: who waits for it leaves the processor to others."""
        raise NotImplementedError(f"{type(self).__name__} has no events")

    def new_random_stream(self) -> "RandomStream | None":
        """A RandomStream (cpu/random/random_stream.py) that draws in memory of this device; None: the CPU's numbers."""
        return None

    def synchronize(self) -> None:
        """Wait until everything that was handed to the device is done."""

    def statistics(self) -> dict[str, int]:
        """What is known of its memory, by name."""
        return {}

    def reset_peaks(self) -> None:
        """Have `statistics` count the peaks from now on."""

    def reset_sums(self) -> None:
        """Have `statistics` count what is given out from now on."""

    def memory_info(self) -> tuple[int, int] | None:
        """(bytes free, bytes in all) of its memory, of all processes; None where that is not known."""
        return None

    def block_of(self, array: Array) -> tuple[int, int] | None:
        """(address, bytes) of the block of the allocator's that `array` stands in; None where that is not its own."""
        return None

    def adopt(self, address: int, allocation: Any) -> Any:
        """Have observers told `allocation` when the block at `address` comes back, given out before they came;
        gives what they will be told, which is another one where they know of it already."""
        return allocation

    def memory_limit(self) -> int:
        """How many bytes this process may have there."""
        return limits.limit()

    def empty_cache(self) -> int:
        """Give back to the system, or to the device, what lies idle of its memory; how many bytes that were."""
        return allocator.empty_cache()

    def keep_until(self, array: Array, stream: Any) -> None:
        """Hold `array` until a stream has done what it was handed so far. Here everything is done in order anyway."""

    def no_room(self, nbytes: int, spec: Spec | None = None, said: str = "") -> Exception:
        """The OutOfMemoryError that says there is no room for `nbytes`, or what an array module has `said` of it."""
        return allocator.failure(nbytes, spec, said)
