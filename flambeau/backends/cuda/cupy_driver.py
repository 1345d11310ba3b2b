"""NVIDIA's software by way of CuPy, which is imported when the first device is asked for, and by this module alone."""
import contextlib
import ctypes
import functools
import threading

import numpy as np

from ...base.locks import new_lock
from ..cpu import host
from . import libcuda, nvrtc
from .configuration import configuration
from .cupy_streams import CuPyEvent, CuPyGraph, CuPyStream
from .driver_interface import FLOAT8, LATE_ERRORS, DeviceError, Driver, PoolStatistics, Properties

STATIC_SHARED_BYTES = 48 << 10                   # beyond these a function has to be told that it may have more
STAGED_BYTES, STAGING_BYTES = 64 << 10, 1 << 20  # copies to a device of up to so many go through page-locked memory
MAX_DYNAMIC_SHARED_SIZE = 8                      # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class CuPyDriver(Driver):
    """What a Driver does, with CuPy and, where CuPy does not show it, with libcuda."""

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
        uuid = libcuda.uuid(index)
        return Properties(
            known["name"].decode(), known["major"], known["minor"], known["totalGlobalMem"],
            known["multiProcessorCount"], known["maxThreadsPerMultiProcessor"], known["maxThreadsPerBlock"],
            known["sharedMemPerBlockOptin"], known["sharedMemPerMultiprocessor"], known["regsPerMultiprocessor"],
            known["l2CacheSize"], known["warpSize"], known["clockRate"], known["memoryClockRate"],
            known["memoryBusWidth"], "-".join((uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:])),
            self._runtime.deviceGetPCIBusId(index), bool(known["integrated"]), bool(known["isMultiGpuBoard"]))

    def versions(self):
        known = {"driver": self._runtime.driverGetVersion(), "runtime": self._runtime.runtimeGetVersion()}
        return {**{name: f"{number // 1000}.{number % 1000 // 10}" for name, number in known.items()},
                "nvrtc": "{}.{}".format(*nvrtc.version()), "cupy": self.cupy.__version__,
                "cudnn": libcuda.cudnn_version()}

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
        """The allocator of CuPy's own arrays, too, so that an observer sees what a reference takes on the way."""
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
        return ctypes.cast(libcuda.library().cuLaunchKernel, ctypes.c_void_p).value

    def check(self, code, what=""):
        if code:
            name, text = ctypes.c_char_p(), ctypes.c_char_p()
            libcuda.library().cuGetErrorName(code, ctypes.byref(name))
            libcuda.library().cuGetErrorString(code, ctypes.byref(text))
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
        if hasattr(libcuda.library(), "cuStreamGetCaptureInfo_v3"):       # which tells of edges between nodes, too
            code = libcuda.library().cuStreamGetCaptureInfo_v3(*given, None, ctypes.byref(count))
        else:
            code = libcuda.library().cuStreamGetCaptureInfo_v2(*given, ctypes.byref(count))
        self.check(code, "asking what a stream captured last")
        return nodes[count.value - 1] if count.value else None

    def graph_updater(self):
        return ctypes.cast(libcuda.library().cuGraphExecKernelNodeSetParams_v2, ctypes.c_void_p).value

    def graph_launcher(self):
        return ctypes.cast(libcuda.library().cuGraphLaunch, ctypes.c_void_p).value

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
    """Memory of CuPy's pool, which goes back there when nothing holds `pointer` any more."""

    __slots__ = ("pointer", "nbytes", "address")

    def __init__(self, pointer, nbytes):
        self.pointer, self.nbytes, self.address = pointer, nbytes, pointer.ptr


class Staging:
    """Page-locked memory through which few bytes go to a device without waiting.

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


def _takes_bfloat16(cupy):
    """Whether CuPy has arrays of ml_dtypes' bfloat16: from version 14 on, with a NumPy that has loops for it."""
    def numbers(version):
        return [int(part) for part in version.split(".")[:2]]
    return numbers(cupy.__version__) >= [14, 0] and numbers(np.__version__) >= [2, 2]


def _device_error(code, said, what=""):
    """The DeviceError for CUDA's number of an error, with what CUDA says of it and what helps."""
    name, _, text = said.partition(": ")
    while_ = f" while {what}" if what else ""
    words = f"CUDA error: {text or said} ({name}, {code}){while_}."
    if code in LATE_ERRORS:
        words += (" A kernel that was launched earlier did this, and this process can use no GPU any more: start "
                  "it again, with CUDA_LAUNCH_BLOCKING=1 to be told at the line that launches it.")
    return DeviceError(words, code, name)
