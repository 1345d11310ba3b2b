"""What the CUDA backend asks of NVIDIA's software: devices, memory, copies, modules, streams, events and graphs.

Note [Streams]: CUDA does what it was handed on one stream in order, and later than the call. Everything of ours goes to
the device's current stream, so nothing there has to wait for anything else. Memory that is given back may be given out
again at once on the stream that it was allocated on: who reads or writes it there comes later. Who uses memory on
another stream keeps it alive until that stream is through (`torch.Tensor.record_stream`).
"""
import contextlib
from typing import Any, NamedTuple

from ...base import dtypes
from ..backend import DeviceFailed, on_late_failure
from . import nvrtc

FLOAT8 = tuple(dtype.name for dtype in dtypes.ALL if dtype.family == "float8")


class Properties(NamedTuple):
    """What is known of a device."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    max_threads_per_multi_processor: int
    max_threads_per_block: int
    max_shared_memory_per_block: int             # that a function may ask for
    shared_memory_per_multiprocessor: int
    registers_per_multiprocessor: int
    l2_cache_size: int
    warp_size: int
    clock_rate: int                              # kHz
    memory_clock_rate: int                       # kHz
    memory_bus_width: int                        # bits
    uuid: str
    pci_bus_id: str                              # "0000:3b:00.0"
    is_integrated: bool = False
    is_multi_gpu_board: bool = False

    @property
    def architecture(self):
        """What NVRTC compiles for: "sm_90"."""
        return f"sm_{self.major}{self.minor}"


class PoolStatistics(NamedTuple):
    """Bytes of the memory that the pool gave out, and of all that it has from the device."""

    used_bytes: int
    reserved_bytes: int


# CUDA's numbers of what a kernel does wrong, which the next one who waits is told: an address that is not there or not
# aligned, an instruction that is none, an assertion, a time limit, and others.
LATE_ERRORS = frozenset((700, 702, 710, *range(714, 720)))


class DeviceError(DeviceFailed):
    """The device, or its driver, refused or failed. `code` is CUDA's number for it, `name` its name."""

    def __init__(self, said, code=None, name=None):
        super().__init__(said)
        self.code, self.name = code, name
        if code in LATE_ERRORS:
            for say in on_late_failure:
                self.add_note(say())


class Driver:
    """What a device's software can do. `index` is a device's number; `stream` a Stream, None for the current one.

    Nothing here waits, unless it says so. Errors are DeviceErrors; memory that cannot be had is a MemoryError.
    """

    xp: Any = None                # CuPy, or what stands for it: see arrays.py
    on_allocation: Any = None     # a function(index, nbytes) that is called after every allocation, those of xp too
    lacks: tuple = FLOAT8         # names of dtypes that xp has no arrays of; see Note [Bits for dtypes] in backend.py
    errors: tuple = ()            # exceptions of xp by which a device fails; `told` gives them as DeviceErrors
    refusals: tuple = ()          # exceptions of xp by which it says that it cannot do something

    def told(self, error, what=""):
        """The DeviceError for one of `errors`, raised while `what` was being done."""
        raise NotImplementedError

    def raising(self):
        """A context in which the linear algebra of xp raises LinAlgError where NumPy's does; it waits to see."""
        return contextlib.nullcontext()

    # --- devices

    def device_count(self) -> int:
        """How many devices there are."""
        raise NotImplementedError

    def properties(self, index) -> Properties:
        """What is known of a device."""
        raise NotImplementedError

    def versions(self) -> dict:
        """{"driver": "13.0", "runtime": "13.0", "nvrtc": "13.0", "cupy": "14.2.0", "cudnn": None or "9.14"}"""
        raise NotImplementedError

    def current_device(self) -> int:
        """The index of this thread's current device."""
        raise NotImplementedError

    def set_device(self, index):
        """Make a device this thread's current one."""
        raise NotImplementedError

    def on(self, index):
        """A context in which a device is this thread's current one; calls of xp, and launches, need that."""
        raise NotImplementedError

    def can_access_peer(self, index, peer) -> bool:
        """Whether a device reads another's memory directly."""
        raise NotImplementedError

    def synchronize(self, index):
        """Wait until all that the device was handed is done, on every stream."""
        raise NotImplementedError

    # --- memory

    def allocate(self, index, nbytes, stream=None):
        """Memory with an `address` and `nbytes`, which goes back to the pool when it is collected; see Note [Streams].
        MemoryError where there is none, also after the pool gave back what lay idle."""
        raise NotImplementedError

    def array(self, memory, shape, dtype, strides=None, offset=0):
        """An array of xp over `memory` (what `allocate` gave, or an array of xp), which it keeps alive; strides and the
        offset of its start are in bytes, and None is contiguous."""
        raise NotImplementedError

    def array_at(self, index, address, nbytes, shape, dtype, strides=None, owner=None):
        """An array of xp over memory of another library's, `owner`, which it keeps alive."""
        raise NotImplementedError

    def address(self, array) -> int:
        """Where an array of xp starts."""
        raise NotImplementedError

    def device_of(self, address) -> int:
        """The index of the device whose memory an address is in; DeviceError where it is none's."""
        raise NotImplementedError

    def pool(self, index) -> PoolStatistics:
        """What the pool holds of a device's memory."""
        raise NotImplementedError

    def trim(self, index):
        """Give back to the device what lies idle in the pool."""
        raise NotImplementedError

    def memory_info(self, index):
        """(bytes free, bytes in all) of the device, of all processes."""
        raise NotImplementedError

    def pinned(self, nbytes):
        """A NumPy array of bytes in page-locked memory."""
        raise NotImplementedError

    # --- copies

    def copy(self, target_index, target_address, source_index, source_address, nbytes, stream=None):
        """Copy bytes of one device to another, or to the same, on a stream of the target."""
        raise NotImplementedError

    def upload(self, index, address, host_address, nbytes, stream=None, blocking=True):
        """Copy bytes of the CPU to a device. `blocking`: they have been read when it returns; else that is so when the
        stream is through, and the copy runs beside the CPU where they lie in page-locked memory."""
        raise NotImplementedError

    def download(self, index, address, host_address, nbytes, stream=None, blocking=True):
        """Copy bytes of a device to the CPU. `blocking`: they are there when it returns, else when the stream is
        through."""
        raise NotImplementedError

    # --- code

    def compile(self, source, architecture, options=()) -> bytes:
        """The image of CUDA C++ for an architecture, "sm_90"; backend.NotCompiled where the compiler refuses it. Needs
        no device."""
        return nvrtc.compile(source, architecture, options)

    def load(self, index, image):
        """A module of an image, on a device; it stays there."""
        raise NotImplementedError

    def function(self, module, name, shared_bytes=0) -> int:
        """The handle of a module's kernel, which may be launched with so many bytes of shared memory."""
        raise NotImplementedError

    def launcher(self) -> int:
        """The address of a C function with the signature of cuLaunchKernel: (function, grid x, y, z, block x, y, z,
        shared bytes, stream, kernelParams, extra) → 0 or an error's number, which `check` tells in words."""
        raise NotImplementedError

    def check(self, code, what):
        """Raise the DeviceError of a number that the launcher gave, 0 for none; `what` was being done."""
        raise NotImplementedError

    # --- streams and events

    def stream(self, index, priority=0, non_blocking=True):
        """A new Stream of a device: `handle`, `index`, `wait(event)`, `synchronize()`, `query()` (whether it is
        through), `is_capturing()`."""
        raise NotImplementedError

    def external_stream(self, index, handle):
        """A Stream of another library's."""
        raise NotImplementedError

    def default_stream(self, index):
        """The Stream that is current where no other was chosen."""
        raise NotImplementedError

    def current_stream(self, index):
        """The Stream that this thread's work for a device goes to."""
        raise NotImplementedError

    def use_stream(self, index, stream):
        """Make a Stream the current one of its device, in this thread."""
        raise NotImplementedError

    def event(self, timing=False, blocking=False, interprocess=False):
        """A new Event: `record(stream)`, `query()` (whether it is done), `synchronize()`, `elapsed(other)` in
        milliseconds from this one to the other, `handle`."""
        raise NotImplementedError

    # --- graphs

    def begin_capture(self, stream, mode="relaxed"):
        """Note what is handed to the stream from now on, instead of doing it; the default stream cannot be captured."""
        raise NotImplementedError

    def captured_node(self, stream):
        """What was noted last on a stream that is being captured, for `update_parameters` of its Graph."""
        raise NotImplementedError

    def end_capture(self, stream):
        """The Graph of what was noted: `handle`, `launch(stream)`, `nodes()` (its kernels, in order),
        `update_parameters(node, buffer)` (the bytes of a kernel's Params for the next launch), `copies_from_host()`
        (whether it copies from memory of the CPU, as that will be when it is launched). DeviceError where
        something could not be noted; the stream is not captured any more, either way."""
        raise NotImplementedError

    def graph_updater(self) -> int:
        """The address of a C function with the signature of cuGraphExecKernelNodeSetParams_v2: (a Graph's handle, a
        node, a CUDA_KERNEL_NODE_PARAMS_v2 with kernelParams) → 0 or an error's number, which `check` tells in words."""
        raise NotImplementedError

    def graph_launcher(self) -> int:
        """The address of a C function with the signature of cuGraphLaunch: (a Graph's handle, a Stream's handle) → 0 or
        an error's number, which `check` tells in words."""
        raise NotImplementedError
