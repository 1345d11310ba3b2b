"""The one door to NVIDIA's software: devices, memory, copies, modules, streams, events and graphs.

`Driver` says what the CUDA backend asks of it. `CuPyDriver` does it with CuPy, which no other module imports, and which
is imported here when the first device is asked for. The tests have another one, over NumPy, which simulates devices;
`use()` puts it in CuPy's place.

Note [Streams]: CUDA does what it was handed on one stream in order, and later than the call. Everything of ours goes to
the device's current stream, so nothing there has to wait for anything else. Memory that is given back may be given out
again at once on the stream that it was allocated on: who reads or writes it there comes later. Who uses memory on
another stream keeps it alive until that stream is through (`torch.Tensor.record_stream`).
"""
import contextlib
import ctypes
import functools
import os
import threading
import weakref
from typing import Any, NamedTuple

import numpy as np

from ...base import dtypes
from ...base.locks import in_child, new_lock
from ..backend import DeviceFailed, on_late_failure
from ..cpu import host
from . import chain
from .configuration import configuration

STATIC_SHARED_BYTES = 48 << 10                   # beyond these a function has to be told that it may have more
STAGED_BYTES, STAGING_BYTES = 64 << 10, 1 << 20  # copies to a device of up to so many go through page-locked memory
MAX_DYNAMIC_SHARED_SIZE = 8                      # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
KERNEL_NODE, COPY_NODE = 0, 1                                        # CUgraphNodeType
HOST_MEMORY, DEVICE_MEMORY, UNIFIED_MEMORY = 1, 2, 4                 # CUmemorytype
MEMORY_TYPE_OF_POINTER = 2                                           # CUpointer_attribute
NOT_READY = 600                                  # cudaErrorNotReady
LASTING_ERRORS = frozenset((700, 702, 710, 714, 715, 716, 717, 718, 719))    # after which a process can do no more


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
        from . import nvrtc
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


_driver: Any = None
_making = new_lock()


def current():
    """The process's driver, made at first use; raises chain.Broken, which says what is missing, where there is none."""
    global _driver
    if _driver is None:
        with _making:
            if _driver is None:
                chain.check()
                try:
                    made = CuPyDriver()
                except Exception as error:       # CuPy cannot be imported, or a device does not start
                    raise chain.failed(error) from error
                _driver = made
    return _driver


def absence():
    """None where CUDA can be used, else the chain.Broken that says why not. Starts nothing."""
    return None if _driver is not None else chain.broken()


def device_count():
    """How many devices there are; starts nothing."""
    return _driver.device_count() if is_made() else chain.device_count()


def is_made():
    """Whether there is a driver already, that can be used: a device was asked for, in this process."""
    return _driver is not None and not is_forked()


def is_forked():
    """Whether this process was forked from one that had a driver, so that CUDA cannot be used in it."""
    return isinstance(_driver, Forked)


class Forked(Driver):
    """What a driver is in a forked child: CUDA does not go on there, and a caller that needs it is told."""

    def __getattribute__(self, name):
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise DeviceFailed("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must "
                           "use the 'spawn' start method: torch.multiprocessing.set_start_method('spawn'); or use CUDA "
                           "in the processes alone, and not before they are forked")


@in_child
def _after_fork():
    if _driver is not None:
        _driver.__class__ = Forked               # for all who hold it: backends, programs, streams


def use(driver):
    """Make `driver` the process's; gives the one before, or None. For tests that simulate devices."""
    global _driver
    before, _driver = _driver, driver
    return before


# --- by way of CuPy ---------------------------------------------------------------------------------------------------


class CuPyDriver(Driver):
    """NVIDIA's software by way of CuPy, and of libcuda through ctypes for the little that CuPy does not show."""

    def __init__(self):
        import cupy
        import cupyx
        from cupy_backends.cuda.api import driver as functions, runtime

        self.xp = self.cupy = cupy
        self._runtime, self._functions = runtime, functions
        self.errors = runtime.CUDARuntimeError, functions.CUDADriverError        # those that `told` tells in words
        self.refusals = (TypeError, NotImplementedError, AttributeError, cupy.cuda.compiler.CompileException)
        self.raising = functools.partial(cupyx.errstate, linalg="raise")
        if not _takes_bfloat16(cupy):
            self.lacks = (*FLOAT8, "bfloat16")
        self._count = runtime.getDeviceCount()
        self._local = threading.local()
        self._staging = Staging(self)
        self._pool = default = cupy.get_default_memory_pool()
        if configuration().expandable_segments:               # CUDA's own pool, which maps pages as it grows
            self._pool = cupy.cuda.MemoryAsyncPool()
        self._give = self._pool.malloc
        if cupy.cuda.get_allocator() == default.malloc:       # else the program chose another, before us
            cupy.cuda.set_allocator(self._malloc)
        else:
            self._give = cupy.cuda.get_allocator()

    def told(self, error, what=""):
        return _device_error(error.status, str(error), what)

    # --- devices

    def device_count(self):
        return self._count

    def properties(self, index):
        known = self._runtime.getDeviceProperties(index)
        uuid = _uuid(index)
        return Properties(
            known["name"].decode(), known["major"], known["minor"], known["totalGlobalMem"],
            known["multiProcessorCount"], known["maxThreadsPerMultiProcessor"], known["maxThreadsPerBlock"],
            known["sharedMemPerBlockOptin"], known["sharedMemPerMultiprocessor"], known["regsPerMultiprocessor"],
            known["l2CacheSize"], known["warpSize"], known["clockRate"], known["memoryClockRate"],
            known["memoryBusWidth"], "-".join((uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:])),
            self._runtime.deviceGetPCIBusId(index), bool(known["integrated"]), bool(known["isMultiGpuBoard"]))

    def versions(self):
        from . import nvrtc
        known = {"driver": self._runtime.driverGetVersion(), "runtime": self._runtime.runtimeGetVersion()}
        return {**{name: f"{number // 1000}.{number % 1000 // 10}" for name, number in known.items()},
                "nvrtc": "{}.{}".format(*nvrtc.version()), "cupy": self.cupy.__version__, "cudnn": _cudnn_version()}

    def current_device(self):
        return self._runtime.getDevice()

    def set_device(self, index):
        self._runtime.setDevice(index)
        self._local.has_context = True

    def on(self, index):
        if self._count == 1 and getattr(self._local, "has_context", False):
            return STAY
        before = self._runtime.getDevice()
        if before == index and getattr(self._local, "has_context", False):
            return STAY
        self._local.has_context = True
        self._runtime.setDevice(index)           # even if it is current: libcuda wants its context in this thread
        return STAY if before == index else GoBack(self._runtime, before)

    def can_access_peer(self, index, peer):
        return bool(self._runtime.deviceCanAccessPeer(index, peer))

    def synchronize(self, index):
        try:
            with self.on(index):
                self._runtime.deviceSynchronize()
        except self.errors as error:
            raise self.told(error) from None

    # --- memory

    def _malloc(self, nbytes):
        """The allocator of CuPy's own arrays, too, so that observers of memory see what a reference takes on the
        way."""
        made = self._give(nbytes)
        if self.on_allocation is not None:
            self.on_allocation(made.device_id, nbytes)
        return made

    def allocate(self, index, nbytes, stream=None):
        try:
            with self.on(index):
                if stream is None:
                    return DeviceMemory(self._malloc(nbytes), nbytes)
                with self._current(index, stream):
                    return DeviceMemory(self._malloc(nbytes), nbytes)
        except self.errors as error:
            raise self.told(error, f"allocating {nbytes} bytes") from None

    def array(self, memory, shape, dtype, strides=None, offset=0):
        pointer = memory.pointer if memory.__class__ is DeviceMemory else memory.data
        return self.cupy.ndarray(shape, dtype, pointer + offset if offset else pointer, strides)

    def array_at(self, index, address, nbytes, shape, dtype, strides=None, owner=None):
        memory = self.cupy.cuda.UnownedMemory(address, nbytes, owner, index)
        return self.cupy.ndarray(shape, dtype, self.cupy.cuda.MemoryPointer(memory, 0), strides)

    def address(self, array):
        return array.data.ptr

    def device_of(self, address):
        try:
            return self._runtime.pointerGetAttributes(address).device
        except self.errors as error:
            raise self.told(error, f"looking for the device of {address:#x}") from None

    def pool(self, index):
        with self.on(index):
            return PoolStatistics(self._pool.used_bytes(), self._pool.total_bytes())

    def trim(self, index):
        with self.on(index):
            self._pool.free_all_blocks()

    def memory_info(self, index):
        with self.on(index):
            return self._runtime.memGetInfo()

    def pinned(self, nbytes):
        if not nbytes:
            return np.empty(0, np.uint8)
        return np.frombuffer(self.cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)

    # --- copies

    def copy(self, target_index, target_address, source_index, source_address, nbytes, stream=None):
        stream = stream or self.current_stream(target_index)
        try:
            if target_index == source_index:
                self._runtime.memcpyAsync(target_address, source_address, nbytes, self._runtime.memcpyDeviceToDevice,
                                          stream.handle)
                return
            source_stream, written, read = self.current_stream(source_index), self.event(), self.event()
            with self.on(source_index):
                written.record(source_stream)
            with self.on(target_index):
                stream.wait(written)
                self._runtime.memcpyPeerAsync(target_address, target_index, source_address, source_index, nbytes,
                                              stream.handle)
                read.record(stream)
            with self.on(source_index):
                source_stream.wait(read)         # else its memory might be given out again and written to before
        except self.errors as error:
            raise self.told(error, f"copying from cuda:{source_index} to cuda:{target_index}") from None

    def upload(self, index, address, host_address, nbytes, stream=None, blocking=True):
        stream = stream or self.current_stream(index)
        try:
            with self.on(index):
                if blocking and nbytes <= STAGED_BYTES and not stream.is_capturing():
                    self._staging.upload(address, host_address, nbytes, stream)
                    return
                self._runtime.memcpyAsync(address, host_address, nbytes, self._runtime.memcpyHostToDevice,
                                          stream.handle)
                if blocking:
                    self._runtime.streamSynchronize(stream.handle)
        except self.errors as error:
            raise self.told(error, f"copying to cuda:{index}") from None

    def download(self, index, address, host_address, nbytes, stream=None, blocking=True):
        stream = stream or self.current_stream(index)
        try:
            with self.on(index):
                self._runtime.memcpyAsync(host_address, address, nbytes, self._runtime.memcpyDeviceToHost,
                                          stream.handle)
                if blocking:
                    self._runtime.streamSynchronize(stream.handle)
        except self.errors as error:
            raise self.told(error, f"copying from cuda:{index}") from None

    # --- code

    def load(self, index, image):
        try:
            with self.on(index):
                return self._functions.moduleLoadData(image)
        except self.errors as error:
            raise self.told(error, "loading a kernel") from None

    def function(self, module, name, shared_bytes=0):
        try:
            found = self._functions.moduleGetFunction(module, name)
            if shared_bytes > STATIC_SHARED_BYTES:
                self._functions.funcSetAttribute(found, MAX_DYNAMIC_SHARED_SIZE, shared_bytes)
        except self.errors as error:
            raise self.told(error, f"looking for the kernel {name}, with {shared_bytes} bytes of shared memory") \
                from None
        return found

    def launcher(self):
        return ctypes.cast(_libcuda().cuLaunchKernel, ctypes.c_void_p).value

    def check(self, code, what=""):
        if code:
            name, text = ctypes.c_char_p(), ctypes.c_char_p()
            _libcuda().cuGetErrorName(code, ctypes.byref(name))
            _libcuda().cuGetErrorString(code, ctypes.byref(text))
            said = ": ".join((found.value or b"unknown").decode() for found in (name, text))
            raise _device_error(code, said, what)

    # --- streams and events

    def stream(self, index, priority=0, non_blocking=True):
        with self.on(index):
            return CuPyStream(self, index, self.cupy.cuda.Stream(non_blocking=non_blocking, priority=priority))

    def external_stream(self, index, handle):
        return CuPyStream(self, index, self.cupy.cuda.ExternalStream(handle, index))

    def default_stream(self, index):
        return CuPyStream(self, index, self.cupy.cuda.Stream.null)

    def current_stream(self, index):
        native = self.cupy.cuda.get_current_stream(index)
        streams = self._local.__dict__.setdefault("streams", {})
        found = streams.get(index)
        if found is None or found.native is not native:
            found = streams[index] = CuPyStream(self, index, native)
        return found

    def use_stream(self, index, stream):
        with self.on(index):
            stream.native.use()

    @contextlib.contextmanager
    def _current(self, index, stream):
        before = self.cupy.cuda.get_current_stream(index)
        stream.native.use()
        try:
            yield
        finally:
            before.use()

    def event(self, timing=False, blocking=False, interprocess=False):
        return CuPyEvent(self, blocking, timing, interprocess)

    # --- graphs

    def begin_capture(self, stream, mode="relaxed"):
        modes = {"relaxed": self._runtime.streamCaptureModeRelaxed, "global": self._runtime.streamCaptureModeGlobal,
                 "thread_local": self._runtime.streamCaptureModeThreadLocal}
        try:
            self._runtime.streamBeginCapture(stream.handle, modes[mode])
        except self.errors as error:
            raise self.told(error, "beginning to capture a stream") from None

    def captured_node(self, stream):
        status, nodes, count = ctypes.c_int(), ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_size_t()
        given = ctypes.c_void_p(stream.handle), ctypes.byref(status), None, None, ctypes.byref(nodes)
        if hasattr(_libcuda(), "cuStreamGetCaptureInfo_v3"):       # which tells of edges between nodes, too
            code = _libcuda().cuStreamGetCaptureInfo_v3(*given, None, ctypes.byref(count))
        else:
            code = _libcuda().cuStreamGetCaptureInfo_v2(*given, ctypes.byref(count))
        self.check(code, "asking what a stream captured last")
        return nodes[count.value - 1] if count.value else None

    def graph_updater(self):
        return ctypes.cast(_libcuda().cuGraphExecKernelNodeSetParams_v2, ctypes.c_void_p).value

    def graph_launcher(self):
        return ctypes.cast(_libcuda().cuGraphLaunch, ctypes.c_void_p).value

    def end_capture(self, stream):
        try:
            graph = self._runtime.streamEndCapture(stream.handle)
            return CuPyGraph(self, graph, self._runtime.graphInstantiate(graph))
        except self.errors as error:
            raise self.told(error, "making a graph of what a stream captured") from None


class GoBack:
    """A context that makes another device current again when it ends."""

    __slots__ = ("runtime", "index")

    def __init__(self, runtime, index):
        self.runtime, self.index = runtime, index

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.runtime.setDevice(self.index)


STAY = contextlib.nullcontext()


class DeviceMemory:
    """Memory of CuPy's pool, which goes back there when `pointer` is no longer held."""

    __slots__ = ("pointer", "nbytes", "address")

    def __init__(self, pointer, nbytes):
        self.pointer, self.nbytes, self.address = pointer, nbytes, pointer.ptr


class Staging:
    """Page-locked memory through which few bytes go to a device without a wait.

    It is filled from front to back. When it is full, the streams that read from it are waited for.
    """

    def __init__(self, driver):
        self.driver, self.memory, self.end, self.streams, self.lock = driver, None, 0, {}, new_lock()

    def upload(self, address, host_address, nbytes, stream):
        """Copy bytes of the CPU to the current device; they have been read when it returns."""
        if not nbytes:
            return
        runtime = self.driver._runtime
        with self.lock:
            if self.memory is None:
                self.memory = self.driver.pinned(STAGING_BYTES)
                self.start = host.address(self.memory)
            if self.end + nbytes > STAGING_BYTES:
                for one in self.streams.values():
                    one.synchronize()
                self.end, self.streams = 0, {}
            ctypes.memmove(self.start + self.end, host_address, nbytes)
            runtime.memcpyAsync(address, self.start + self.end, nbytes, runtime.memcpyHostToDevice, stream.handle)
            self.streams[stream.index, stream.handle] = stream
            self.end += -(-nbytes // 16) * 16


class CuPyStream:
    """See Driver.stream."""

    __slots__ = ("driver", "index", "native", "handle")

    def __init__(self, driver, index, native):
        self.driver, self.index, self.native, self.handle = driver, index, native, native.ptr

    def __eq__(self, other):
        return isinstance(other, CuPyStream) and (self.index, self.handle) == (other.index, other.handle)

    def __hash__(self):
        return hash((self.index, self.handle))

    def wait(self, event):
        self.driver._runtime.streamWaitEvent(self.handle, event.handle)

    def synchronize(self):
        try:
            with self.driver.on(self.index):
                self.driver._runtime.streamSynchronize(self.handle)
        except self.driver.errors as error:
            raise self.driver.told(error) from None

    def query(self):
        with self.driver.on(self.index):
            return _is_done(self.driver, self.driver._runtime.streamQuery(self.handle))

    def is_capturing(self):
        try:
            return self.driver._runtime.streamIsCapturing(self.handle)
        except (*self.driver.errors, RuntimeError):      # the default stream, while another one is: it must not be used
            return True

    @property
    def priority(self):
        return self.native.priority


class CuPyEvent:
    """See Driver.event. An event is one device's, so it is made when it is first recorded, or asked for its handle."""

    __slots__ = ("driver", "flags", "native")

    def __init__(self, driver, blocking, timing, interprocess):
        self.driver, self.flags, self.native = driver, (blocking, not timing, interprocess), None

    @property
    def handle(self):
        if self.native is None:
            self.native = self.driver.cupy.cuda.Event(*self.flags)
        return self.native.ptr

    def record(self, stream):
        with self.driver.on(stream.index):
            self.driver._runtime.eventRecord(self.handle, stream.handle)

    def query(self):
        return self.native is None or _is_done(self.driver, self.driver._runtime.eventQuery(self.handle))

    def synchronize(self):
        if self.native is None:
            return
        try:
            self.driver._runtime.eventSynchronize(self.handle)
        except self.driver.errors as error:
            raise self.driver.told(error) from None

    def elapsed(self, other):
        try:
            return self.driver._runtime.eventElapsedTime(self.handle, other.handle)
        except self.driver.errors as error:
            raise self.driver.told(error, "asking for the time between two events") from None


class CuPyGraph:
    """See Driver.end_capture."""

    def __init__(self, driver, graph, executable):
        self.driver, self.graph, self.handle = driver, graph, executable
        self._nodes = None
        weakref.finalize(self, _destroy, driver._runtime, graph, executable).atexit = False

    def launch(self, stream=None):
        try:
            self.driver._runtime.graphLaunch(self.handle, stream.handle)
        except self.driver.errors as error:
            raise self.driver.told(error, "launching a graph") from None

    def nodes(self):
        if self._nodes is None:
            self._nodes = [node for node in self._all_nodes() if self._kind(node) == KERNEL_NODE]
        return self._nodes

    def _all_nodes(self):
        count = ctypes.c_size_t()
        self._call("cuGraphGetNodes", ctypes.c_void_p(self.graph), None, ctypes.byref(count))
        found = (ctypes.c_void_p * count.value)()
        self._call("cuGraphGetNodes", ctypes.c_void_p(self.graph), found, ctypes.byref(count))
        return found

    def _kind(self, node):
        kind = ctypes.c_int()
        self._call("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
        return kind.value

    def copies_from_host(self):
        found = False
        for node in self._all_nodes():
            if self._kind(node) == COPY_NODE:
                known = CopyNodeParameters()
                self._call("cuGraphMemcpyNodeGetParams", ctypes.c_void_p(node), ctypes.byref(known))
                found |= known.srcMemoryType == HOST_MEMORY or \
                    known.srcMemoryType == UNIFIED_MEMORY and not _is_of_device(known.srcDevice)
        return found

    def update_parameters(self, node, buffer):
        known = KernelNodeParameters()
        self._call("cuGraphKernelNodeGetParams_v2", ctypes.c_void_p(node), ctypes.byref(known))
        held = ctypes.create_string_buffer(bytes(buffer), len(buffer))
        known.kernelParams, known.extra = (ctypes.c_void_p * 1)(ctypes.addressof(held)), None
        self._call("cuGraphExecKernelNodeSetParams_v2", ctypes.c_void_p(self.handle), ctypes.c_void_p(node),
                   ctypes.byref(known))

    def _call(self, name, *args):
        self.driver.check(getattr(_libcuda(), name)(*args), f"calling {name}")


def _destroy(runtime, graph, executable):
    runtime.graphExecDestroy(executable)
    runtime.graphDestroy(graph)


class KernelNodeParameters(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2"""

    _fields_ = [("func", ctypes.c_void_p), *((f"{what}Dim{axis}", ctypes.c_uint) for what in ("grid", "block")
                                              for axis in "XYZ"),
                ("sharedMemBytes", ctypes.c_uint), ("kernelParams", ctypes.POINTER(ctypes.c_void_p)),
                ("extra", ctypes.POINTER(ctypes.c_void_p)), ("kern", ctypes.c_void_p), ("ctx", ctypes.c_void_p)]


class CopyNodeParameters(ctypes.Structure):
    """CUDA_MEMCPY3D_v2"""

    _fields_ = [*((f"{side}{name}", kind) for side in ("src", "dst") for name, kind in (
        ("XInBytes", ctypes.c_size_t), ("Y", ctypes.c_size_t), ("Z", ctypes.c_size_t), ("LOD", ctypes.c_size_t),
        ("MemoryType", ctypes.c_int), ("Host", ctypes.c_void_p), ("Device", ctypes.c_void_p),
        ("Array", ctypes.c_void_p), ("reserved", ctypes.c_void_p), ("Pitch", ctypes.c_size_t),
        ("Height", ctypes.c_size_t))),
        *((name, ctypes.c_size_t) for name in ("WidthInBytes", "Height", "Depth"))]


def _is_of_device(address):
    """Whether an address is one of a device; what CUDA does not know is of the CPU."""
    kind = ctypes.c_uint()
    code = _libcuda().cuPointerGetAttribute(ctypes.byref(kind), MEMORY_TYPE_OF_POINTER, ctypes.c_void_p(address))
    return code == 0 and kind.value == DEVICE_MEMORY


@functools.cache
def _libcuda():
    return ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")


def _takes_bfloat16(cupy):
    """Whether CuPy has arrays of ml_dtypes' bfloat16: from version 14 on, with a NumPy that has loops for it."""
    def numbers(version):
        return [int(part) for part in version.split(".")[:2]]
    return numbers(cupy.__version__) >= [14, 0] and numbers(np.__version__) >= [2, 2]


def _uuid(index):
    """The 16 bytes that name a device, in hexadecimal."""
    device, found = ctypes.c_int(), ctypes.create_string_buffer(16)
    _libcuda().cuDeviceGet(ctypes.byref(device), index)
    _libcuda().cuDeviceGetUuid_v2(found, device)
    return found.raw.hex()


def _cudnn_version():
    """The version of cuDNN's library, "9.14", where one can be loaded."""
    for name in ("libcudnn.so.9", "cudnn64_9.dll"):
        with contextlib.suppress(OSError):
            found = ctypes.CDLL(name).cudnnGetVersion()
            return f"{found // 10000}.{found % 10000 // 100}"
    return None


def _is_done(driver, status):
    if status in (0, NOT_READY):
        return status == 0
    raise driver.told(driver.errors[0](status))


def _device_error(code, said, what=""):
    """The DeviceError for CUDA's number of an error, with what CUDA says of it and what helps."""
    name, _, text = said.partition(": ")
    while_ = f" while {what}" if what else ""
    words = f"CUDA error: {text or said} ({name}, {code}){while_}."
    if code in LASTING_ERRORS:
        words += (" A kernel that was launched earlier did this, and this process can use no GPU any more: start "
                  "it again, with CUDA_LAUNCH_BLOCKING=1 to be told at the line that launches it.")
    return DeviceError(words, code, name)
