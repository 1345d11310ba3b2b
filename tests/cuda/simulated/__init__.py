"""SimulatedDriver: devices like NVIDIA's GPUs on a machine without one, so that everything above the driver is tested.

Memory is the processor's, out of bounds of which every access of a kernel is refused, and of which there is as much as
`limit` says. Kernels are CUDA C++ compiled by g++ (compiler.py), whose threads are run in turns (runtime.cpp). Arrays
are like CuPy's (arrays.py). What is checked beside: that barriers are met by all threads, that addresses are aligned,
that no device's memory is taken for another's or for the CPU's.

    SimulatedDriver(devices=2)            two of them
    SimulatedDriver(limit=1 << 20)        with a megabyte each
    SimulatedDriver(delayed=True)         work waits on its stream until somebody waits for it: what should have waited
                                          reads what was there before
    SimulatedDriver(order=1)              threads and blocks backwards; from 2 on, threads in an order that is drawn
    SimulatedDriver(races=True)           each kernel is run forwards and backwards, which has to give the same bytes
"""
import atexit
import contextlib
import ctypes
import gc
import hashlib
import threading
import weakref
from math import prod

import numpy as np

from flambeau.backends.cuda import driver, library, vendor
from flambeau.backends.cuda.driver_interface import DeviceError, Driver, PoolStatistics, Properties
from flambeau.base import spec as specs
from flambeau.trace.planning import plan
from flambeau.trace.recording import record

from ..fake_blas import FakeBLAS, FakeLt
from . import compiler
from .arrays import Module, ndarray

TOTAL_BYTES = 1 << 30              # of a device's memory, where nobody says otherwise
BLOCK_BYTES = 512                  # what allocations are rounded up to
HANDLE = 0xB1A5                    # that FakeBLAS gives out
ERROR_NAMES = {1: "invalid argument", 2: "out of memory", 400: "invalid resource handle", 401: "illegal state",
               600: "device not ready", 700: "an illegal memory access was encountered",
               701: "too many resources requested for launch", 716: "misaligned address",
               719: "unspecified launch failure", 900: "operation not permitted when stream is capturing",
               901: "operation failed due to a previous error during capture"}


class SimulatedDriver(Driver):
    """Some devices; see the top of this file."""

    simulated = True
    errors = (DeviceError,)
    refusals = (TypeError, NotImplementedError, AttributeError)

    def __init__(self, devices=2, limit=TOTAL_BYTES, delayed=False, order=0, races=False):
        self.runtime = compiler.runtime()
        self.devices, self.limit = devices, limit
        self.runtime.simulated_mode(delayed, order, races)
        self.delayed = delayed
        self.cupy = Module(self)
        self._here = threading.local()
        self._lock = threading.RLock()
        self._used = [0] * devices
        self._idle: list = [{} for _ in range(devices)]      # (bytes, stream) → how many blocks lie idle in the pool
        self._defaults = [Stream(self, index, 0) for index in range(devices)]
        self._modules: list = []
        self._calls: dict = {}                               # ticket → what stands for a call of NVIDIA's libraries
        self._call_back = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(self._called)
        self._failed: list = []

    @property
    def xp(self):
        return self.cupy

    def told(self, error, what=""):
        return error

    # --- devices

    def device_count(self):
        return self.devices

    def properties(self, index):
        self._check_index(index)
        return Properties(
            name=f"Simulated GPU {index}", major=9, minor=0, total_memory=self.limit, multi_processor_count=4,
            max_threads_per_multi_processor=2048, max_threads_per_block=1024, max_shared_memory_per_block=232448,
            shared_memory_per_multiprocessor=233472, registers_per_multiprocessor=65536, l2_cache_size=1 << 20,
            warp_size=32, clock_rate=1_000_000, memory_clock_rate=1_000_000, memory_bus_width=256,
            uuid=f"00000000-0000-0000-0000-{index:012d}", pci_bus_id=f"0000:{index + 1:02x}:00.0")

    def versions(self):
        made = hashlib.sha256((compiler.header() + compiler.version() + repr(compiler.KERNEL_OPTIONS)).encode())
        nvrtc = f"13.0.simulated.{made.hexdigest()[:12]}"    # whose images are no other's
        return {"driver": "13.0", "runtime": "13.0", "nvrtc": nvrtc, "cupy": "14.2.0",
                "cudnn": None}

    def current_device(self):
        return getattr(self._here, "index", 0)

    def set_device(self, index):
        self._check_index(index)
        self._here.index = index

    @contextlib.contextmanager
    def on(self, index):
        before = self.current_device()
        self.set_device(index)
        try:
            yield
        finally:
            self._here.index = before

    def can_access_peer(self, index, peer):
        return False

    def synchronize(self, index):
        self._check_index(index)
        self.check(self.runtime.simulated_finish_device(index), "synchronize")
        self.raise_errors(index)

    def raise_errors(self, index):
        """Tell what a device's kernels did wrong, once, and what the tests' own code did."""
        if self._failed:
            raise self._failed.pop()
        self.check(self.runtime.simulated_take_error(index), f"cuda:{index}")

    def settle(self, index):
        """Do what the current stream was handed."""
        stream = self.current_stream(index)
        if stream.is_capturing():
            self.check(900, "a function of the array module, which the simulation cannot capture")
        stream.synchronize(checks=False)

    def _check_index(self, index):
        if not 0 <= index < self.devices:
            raise DeviceError(f"CUDA error: invalid device ordinal: {index} of {self.devices}", 101)

    # --- memory

    def allocate(self, index, nbytes, stream=None):
        self._check_index(index)
        handle = (stream or self.current_stream(index)).handle
        size = max(-(-nbytes // BLOCK_BYTES), 1) * BLOCK_BYTES
        with self._lock:
            idle = self._idle[index]
            if idle.get((size, handle)):
                idle[size, handle] -= 1
            elif self.pool(index).reserved_bytes + size > self.limit:
                self.trim(index)
                if self.pool(index).reserved_bytes + size > self.limit:
                    raise MemoryError(f"Out of memory allocating {size:,} bytes (allocated so far: "
                                      f"{self._used[index]:,} bytes, limit set to: {self.limit:,} bytes).")
            self._used[index] += size
        made = Memory(self, index, nbytes, self.runtime.simulated_allocate(index, nbytes), size, handle)
        if self.on_allocation is not None:
            self.on_allocation(index, nbytes)
        return made

    def give_back(self, index, address, size, handle):
        """Memory that nobody holds any more, to the pool."""
        with self._lock:
            self._used[index] -= size
            idle = self._idle[index]
            idle[size, handle] = idle.get((size, handle), 0) + 1
        self.runtime.simulated_free(index, address, handle)

    def array(self, memory, shape, dtype, strides=None, offset=0):
        dtype = np.dtype(dtype)
        self.cupy.check_dtype(dtype)
        if isinstance(memory, ndarray):
            offset += memory.data.ptr - memory.memory.address
            memory = memory.memory
        return self.cupy.over(memory.host_array(tuple(shape), dtype, strides, offset), memory)

    def array_at(self, index, address, nbytes, shape, dtype, strides=None, owner=None):
        if self.runtime.simulated_owner(address) != index:
            raise DeviceError(f"CUDA error: invalid argument: {address:#x} is no memory of cuda:{index}", 1)
        return self.array(Borrowed(index, address, nbytes, owner), shape, dtype, strides)

    def address(self, array):
        return array.data.ptr

    def device_of(self, address):
        found = self.runtime.simulated_owner(address)
        if found < 0:
            raise DeviceError(f"CUDA error: invalid argument: {address:#x} is no memory of a device", 1)
        return found

    def pool(self, index):
        with self._lock:
            lying = sum(size * count for (size, _), count in self._idle[index].items())
            return PoolStatistics(self._used[index], self._used[index] + lying)

    def trim(self, index):
        with self._lock:
            self._idle[index].clear()

    def memory_info(self, index):
        return self.limit - self.pool(index).reserved_bytes, self.limit

    def pinned(self, nbytes):
        made = np.full(max(nbytes, 1), 0xA5, np.uint8)
        address = made.ctypes.data
        self.runtime.simulated_pin(address, made.nbytes, 1)
        weakref.finalize(made, self.runtime.simulated_pin, address, made.nbytes, 0)
        return made[:nbytes]

    # --- copies

    def copy(self, target_index, target_address, source_index, source_address, nbytes, stream=None):
        stream, source = stream or self.current_stream(target_index), self.current_stream(source_index)
        written, read = self.event(), self.event()
        if source_index != target_index:                     # as CuPyDriver has it
            written.record(source)
            stream.wait(written)
        self.check(self.runtime.simulated_copy(target_index, target_address, source_index, source_address, nbytes,
                                               stream.index, stream.handle, 0), "copy")
        if source_index != target_index:
            read.record(stream)
            source.wait(read)

    def upload(self, index, address, host_address, nbytes, stream=None, blocking=True):
        self._copy(index, stream, blocking, index, address, -1, host_address, nbytes)

    def download(self, index, address, host_address, nbytes, stream=None, blocking=True):
        self._copy(index, stream, blocking, -1, host_address, index, address, nbytes)

    def _copy(self, index, stream, blocking, *what):
        stream = stream or self.current_stream(index)
        self.check(self.runtime.simulated_copy(*what, index, stream.handle, blocking), "copy")
        if blocking:
            self.raise_errors(index)

    # --- code

    def compile(self, source, architecture, options=()):
        return compiler.image(source, tuple(options))

    def load(self, index, image):
        self._check_index(index)
        made = compiler.load(image)
        made.index = index
        self._modules.append(made)
        return made

    def function(self, module, name, shared_bytes=0):
        try:
            enter = getattr(module, f"simulated_enter_{name}")
        except AttributeError:
            raise DeviceError(f"CUDA error: named symbol not found: {name}", 500) from None
        size = getattr(module, f"simulated_nbytes_{name}")
        size.restype = ctypes.c_size_t
        shared = (ctypes.c_uint64 * 2)()
        module.simulated_shared_range(shared)
        static = shared[1] - shared[0]
        if shared_bytes > 232448:
            raise DeviceError(f"CUDA error: invalid argument: {name} with {shared_bytes:,} bytes of shared "
                              f"memory, {static:,} beside", 1)
        return self.runtime.simulated_function(ctypes.cast(enter, ctypes.c_void_p).value, size(), name.encode(),
                                               module.index, shared_bytes, *shared,
                                               getattr(module, f"simulated_threads_{name}")())

    def launcher(self):
        return ctypes.cast(self.runtime.simulated_launch, ctypes.c_void_p).value

    def check(self, code, what):
        if code:
            said = self.runtime.simulated_refusal().decode(errors="replace")
            name = ERROR_NAMES.get(code, f"error {code}")
            raise DeviceError(f"CUDA error: {name}: {what}: {said}", code, name)

    def _called(self, ticket):
        try:
            self._calls[ticket]()
        except BaseException as error:                       # which ctypes would only print
            self._failed.append(error)

    def enqueue(self, index, handle, function):
        """Have a function called when a stream comes to it, once for every time: a graph may hold it."""
        ticket = len(self._calls) + 1
        self._calls[ticket] = function
        self.runtime.simulated_call(ctypes.cast(self._call_back, ctypes.c_void_p).value, ticket, index, handle)

    # --- streams, events and graphs

    def stream(self, index, priority=0, non_blocking=True):
        self._check_index(index)
        return Stream(self, index, self.runtime.simulated_stream(index, non_blocking), priority)

    def external_stream(self, index, handle):
        return Stream(self, index, handle, owned=False)

    def default_stream(self, index):
        return self._defaults[index]

    def current_stream(self, index):
        self._check_index(index)
        return self._streams().get(index) or self._defaults[index]

    def use_stream(self, index, stream):
        self._streams()[index] = stream

    def _streams(self):
        if not hasattr(self._here, "streams"):
            self._here.streams = {}
        return self._here.streams

    def event(self, timing=False, blocking=False, interprocess=False):
        return Event(self, timing)

    def begin_capture(self, stream, mode="relaxed"):
        self.check(self.runtime.simulated_begin_capture(stream.index, stream.handle), "begin_capture")

    def captured_node(self, stream):
        node = self.runtime.simulated_captured(stream.index, stream.handle)
        return None if node < 0 else node

    def graph_updater(self):
        return ctypes.cast(self.runtime.simulated_node_update, ctypes.c_void_p).value

    def graph_launcher(self):
        return ctypes.cast(self.runtime.simulated_launch_graph, ctypes.c_void_p).value

    def end_capture(self, stream):
        handle = self.runtime.simulated_end_capture(stream.index, stream.handle)
        if not handle:
            self.check(401, "end_capture of a stream that is not being captured")
        return Graph(self, handle)

    # --- for tests

    def close(self):
        """Free all memory; what went wrong last, and told nobody, is raised."""
        errors = [self.runtime.simulated_take_error(index) and self.runtime.simulated_refusal().decode()
                  for index in range(self.devices)]
        for index in range(self.devices):
            self.runtime.simulated_finish_device(index)
        self.runtime.simulated_mode(0, 0, 0)
        if any(errors):
            raise AssertionError("; ".join(filter(None, errors)))


# Who gives memory back is a capsule, and its destructor: a method __del__ would also be called by the garbage
# collector, when it finds the memory in a cycle with somebody who then saves it from there, as recycle.py does.
_owners: dict = {}                 # address → (driver, index of the device, bytes, stream), and where the capsule is
# Functions of our own: what is set on those in `ctypes.pythonapi`, everybody has (backends/dlpack.py too).
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi))
_address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
_set_destructor = ctypes.pythonapi.PyCapsule_SetDestructor
_set_destructor.restype, _set_destructor.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_void_p)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _gone(capsule):
    address = _address_of(capsule, None)
    driver, index, size, handle, _ = _owners.pop(address)
    driver.give_back(index, address, size, handle)


@atexit.register
def _keep_all():
    """Python ends: nobody answers destructors any more."""
    for *_, capsule in _owners.values():
        _set_destructor(capsule, None)


class Memory:
    """Memory of a device, which goes back to the pool when nobody holds it."""

    __slots__ = ("index", "nbytes", "address", "held", "__weakref__")

    def __init__(self, driver, index, nbytes, address, size, handle):
        self.index, self.nbytes, self.address = index, nbytes, address
        self.held = _new_capsule(address, None, ctypes.cast(_gone, ctypes.c_void_p))
        _owners[address] = driver, index, size, handle, id(self.held)

    def host_array(self, shape, dtype, strides=None, offset=0):
        return _array_over(self, shape, np.dtype(dtype), strides, offset)


class Borrowed:
    """Memory that somebody else frees."""

    def __init__(self, index, address, nbytes, owner):
        self.index, self.address, self.nbytes, self.owner = index, address, nbytes, owner

    def host_array(self, shape, dtype, strides=None, offset=0):
        return _array_over(self, shape, np.dtype(dtype), strides, offset)


def _array_over(memory, shape, dtype, strides, offset):
    """A NumPy array over a device's memory, which must hold all of it."""
    if 0 in shape:
        return np.ndarray(shape, dtype)
    if strides is None:
        strides = [prod(shape[d + 1:]) * dtype.itemsize for d in range(len(shape))]
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    first, last = offset + sum(r for r in reach if r < 0), offset + sum(r for r in reach if r > 0) + dtype.itemsize
    if first < 0 or last > memory.nbytes:
        raise ValueError(f"bytes {first} to {last} of {memory.nbytes}: {dtype}{list(shape)} by {list(strides)}")
    raw = (ctypes.c_char * memory.nbytes).from_address(memory.address)
    return np.ndarray(shape, dtype, raw, offset, strides)


class Stream:
    """Work in a row."""

    def __init__(self, driver, index, handle, priority=0, owned=True):
        self.driver, self.index, self.handle, self.priority = driver, index, handle, priority
        if owned and handle:
            weakref.finalize(self, driver.runtime.simulated_close_stream, handle)

    def wait(self, event):
        self.driver.runtime.simulated_wait(self.index, self.handle, event.handle)

    def synchronize(self, checks=True):
        self.driver.check(self.driver.runtime.simulated_finish_stream(self.index, self.handle), "synchronize")
        if checks:
            self.driver.raise_errors(self.index)

    def query(self):
        return bool(self.driver.runtime.simulated_stream_is_done(self.index, self.handle))

    def is_capturing(self):
        return bool(self.driver.runtime.simulated_is_capturing(self.index, self.handle))


class Event:
    """A point in a stream's work."""

    def __init__(self, driver, timing):
        self.driver, self.timing = driver, timing
        self.handle = driver.runtime.simulated_event()

    def record(self, stream=None):
        stream = stream or self.driver.current_stream(self.driver.current_device())
        self.driver.runtime.simulated_record(self.handle, stream.index, stream.handle)

    def query(self):
        return bool(self.driver.runtime.simulated_event_is_done(self.handle))

    def synchronize(self):
        self.driver.runtime.simulated_finish_event(self.handle)
        index = self.driver.runtime.simulated_event_device(self.handle)
        if index >= 0:
            self.driver.raise_errors(index)

    def elapsed(self, other):
        if not (self.timing and other.timing):
            raise DeviceError("CUDA error: invalid resource handle: an event without timing", 400)
        if not (self.query() and other.query()):
            raise DeviceError("CUDA error: device not ready: an event that is not reached", 600)
        time = self.driver.runtime.simulated_event_time
        return time(other.handle) - time(self.handle)


class Graph:
    """What was captured."""

    def __init__(self, driver, handle):
        self.driver, self.handle = driver, handle
        weakref.finalize(self, driver.runtime.simulated_close_graph, handle)

    def launch(self, stream=None):
        stream = stream or self.driver.current_stream(self.driver.current_device())
        self.driver.runtime.simulated_launch_graph(self.handle, stream.handle)

    def nodes(self):
        count = self.driver.runtime.simulated_graph_size(self.handle)
        return [node for node in range(count) if self.driver.runtime.simulated_graph_kind(self.handle, node) == 0]

    def copies_from_host(self):
        return bool(self.driver.runtime.simulated_copies_from_host(self.handle))

    def update_parameters(self, node, buffer):
        buffer = bytes(buffer)
        self.driver.check(self.driver.runtime.simulated_update(self.handle, node, buffer, len(buffer)),
                          "update_parameters")


class SimulatedBLAS(FakeBLAS):
    """cuBLAS, whose products come when the stream of their handle does."""

    def __init__(self, driver):
        super().__init__()
        self.driver, self.streams = driver, {}

    def cublasCreate_v2(self, handle):
        made = ctypes.c_void_p.from_address(handle).value = 0xB1A50000 + len(self.streams)
        self.streams[made] = None
        return 0

    def cublasSetStream_v2(self, handle, stream):
        self.streams[handle] = self.driver.current_device(), stream or 0
        return super().cublasSetStream_v2(HANDLE, stream)

    def cublasSetWorkspace_v2(self, handle, address, nbytes):
        return super().cublasSetWorkspace_v2(HANDLE, address, nbytes)

    def cublasGemmStridedBatchedEx_64(self, handle, *given):
        product = super().cublasGemmStridedBatchedEx_64
        self.driver.enqueue(*self.streams[handle], lambda: product(HANDLE, *given))
        return 0


class SimulatedLt(FakeLt):
    """cuBLASLt, whose products come when their stream does."""

    def __init__(self, driver):
        super().__init__()
        self.driver = driver

    def when(self, stream, work):
        self.driver.enqueue(self.driver.current_device(), stream or 0, work)
        return 0


@contextlib.contextmanager
def simulating(kind=SimulatedDriver, **options):
    """Have "cuda" mean simulated devices, with the options of SimulatedDriver or a `kind` of it; gives the driver."""
    made = kind(**options)
    if driver.is_made():                                     # what nobody needs of another driver goes back to that
        gc.collect()
    opened = _begin_anew()
    before = driver.use(made)
    try:
        with vendor.substitute("cublas", SimulatedBLAS(made)), vendor.substitute("cublasLt", SimulatedLt(made)):
            yield made
    finally:
        gc.collect()                                         # tensors of a test that failed, in its traceback
        _begin_anew()
        driver.use(before)
        for known, backend in opened.items():                # somebody may hold tensors there
            known.backend = backend
        made.close()


def _begin_anew():
    """Forget what belongs to the devices of a driver, before another takes its place; gives those that were opened,
    with their backends.

    What was recorded there, and nobody has looked at, runs first: with the next driver these devices have other
    backends, or none as yet, and a trace that still says them fails wherever it happens to be run.
    """
    for trace in record._traces.all():
        try:
            trace.run()
        except Exception:                                    # of a test that broke something: nobody asks again
            trace.clear()
    plan.forget()
    library.forget()
    known_devices = set(specs.device._known.values())
    opened = {known: known.backend for known in known_devices if known.type == "cuda" and known.backend is not None}
    for known in opened:
        known.backend = None
    return opened
