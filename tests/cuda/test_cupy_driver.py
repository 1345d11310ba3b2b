"""CuPyDriver over a runtime that only notes what it is asked: which calls it makes, in which order, on which device.

CuPy itself is not needed. Where it is installed, its functions are held to be there under the names that are called.
"""
import ctypes
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from flambeau.backends.cpu import host
from flambeau.backends.cuda import cupy_driver, cupy_streams, driver_interface, libcuda

pytestmark = pytest.mark.pinned
ILLEGAL_ADDRESS = 700


class CUDARuntimeError(RuntimeError):
    def __init__(self, status):
        self.status = status
        super().__init__({ILLEGAL_ADDRESS: "cudaErrorIllegalAddress: an illegal memory access was encountered"}
                         .get(status, f"cudaError{status}: error {status}"))


class CUDADriverError(RuntimeError):
    pass


class Runtime:
    """CUDA's runtime: copies are made at once, everything else is noted in `log`."""

    CUDARuntimeError = CUDARuntimeError
    memcpyHostToDevice, memcpyDeviceToHost, memcpyDeviceToDevice = 1, 2, 3
    streamCaptureModeGlobal, streamCaptureModeThreadLocal, streamCaptureModeRelaxed = 0, 1, 2

    def __init__(self):
        self.log, self.device, self.fails, self.asked = [], 0, {}, set()

    def __getattr__(self, name):
        def call(*args):
            self.asked.add(name)
            self.log.append((name, self.device, *args))
            if name in self.fails:
                raise CUDARuntimeError(self.fails[name])
            return ANSWERS.get(name, lambda *args: None)(*args)
        return call

    def getDevice(self):
        return self.device

    def setDevice(self, index):
        self.device = index

    def names(self, *wanted):
        """(name, device) of the calls that were made, of those `wanted`, in order."""
        return [(call[0], call[1]) for call in self.log if call[0] in wanted]


ANSWERS = {
    "getDeviceCount": lambda: 2, "driverGetVersion": lambda: 13000, "runtimeGetVersion": lambda: 12060,
    "memGetInfo": lambda: (3, 5), "deviceCanAccessPeer": lambda index, peer: 1, "eventQuery": lambda event: 600,
    "streamQuery": lambda stream: 0, "streamIsCapturing": lambda stream: False, "eventElapsedTime": lambda *events: 2.5,
    "memcpyAsync": lambda target, source, nbytes, kind, stream: ctypes.memmove(target, source, nbytes),
    "memcpyPeerAsync": lambda target, _, source, __, nbytes, stream: ctypes.memmove(target, source, nbytes),
    "streamEndCapture": lambda stream: 5, "graphInstantiate": lambda graph: 6,
    "deviceGetPCIBusId": lambda index: "0000:3b:00.0",
    "getDeviceProperties": lambda index: {
        "name": b"NVIDIA H200", "major": 9, "minor": 0, "totalGlobalMem": 7, "multiProcessorCount": 132,
        "maxThreadsPerMultiProcessor": 2048, "maxThreadsPerBlock": 1024, "sharedMemPerBlockOptin": 232448,
        "sharedMemPerMultiprocessor": 233472, "regsPerMultiprocessor": 65536, "l2CacheSize": 9, "warpSize": 32,
        "clockRate": 1, "memoryClockRate": 2, "memoryBusWidth": 3, "integrated": 0, "isMultiGpuBoard": 0},
}


class Library:
    """libcuda: every function succeeds."""

    def __getattr__(self, name):
        return lambda *args: 0


@pytest.fixture
def made(monkeypatch):
    runtime, current = Runtime(), {}

    class Stream:
        def __init__(self, non_blocking=False, priority=0):
            self.ptr, self.priority = 100 + runtime.device, priority

        def use(self):
            current[runtime.device] = self

    class Event:
        def __init__(self, block, disable_timing, interprocess):
            self.ptr = 1000 + runtime.device

    Stream.null = Stream.__new__(Stream)
    Stream.null.ptr = 0
    cupy, cupyx, backends, cuda, api = (ModuleType(name) for name in (
        "cupy", "cupyx", "cupy_backends", "cupy_backends.cuda", "cupy_backends.cuda.api"))
    api.runtime, api.driver = runtime, SimpleNamespace(CUDADriverError=CUDADriverError)
    cupyx.errstate = lambda **named: SimpleNamespace(__enter__=lambda: None)
    pool = SimpleNamespace(malloc=lambda nbytes: SimpleNamespace(ptr=64, device_id=runtime.device, nbytes=nbytes))
    cupy.__version__, cupy.get_default_memory_pool = "14.2.0", lambda: pool
    cupy.cuda = SimpleNamespace(
        get_allocator=lambda: pool.malloc, set_allocator=lambda function: setattr(cupy, "allocator", function),
        Stream=Stream, Event=Event, get_current_stream=lambda index=-1: current.get(index, Stream.null),
        compiler=SimpleNamespace(CompileException=type("CompileException", (Exception,), {})))
    for module in (cupy, cupyx, backends, cuda, api):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(libcuda, "library", Library)
    made = cupy_driver.CuPyDriver()
    monkeypatch.setattr(made, "pinned", lambda nbytes: np.empty(nbytes, np.uint8))
    made.runtime = runtime
    return made


def arrays(n=10):
    return np.arange(n, dtype=np.float32), np.zeros(n, np.float32)


def test_what_is_known(made):
    known = made.properties(0)
    assert (known.name, known.architecture, known.multi_processor_count, known.total_memory, known.pci_bus_id) \
        == ("NVIDIA H200", "sm_90", 132, 7, "0000:3b:00.0")
    assert made.device_count() == 2 and made.memory_info(0) == (3, 5) and made.can_access_peer(0, 1) is True


def test_the_current_device_comes_back(made):
    with made.on(1):
        assert made.current_device() == 1
        with made.on(0):
            assert made.current_device() == 0
        assert made.current_device() == 1
    assert made.current_device() == 0
    with pytest.raises(ZeroDivisionError), made.on(1):
        raise ZeroDivisionError
    assert made.current_device() == 0
    made.set_device(1)
    assert made.current_device() == 1


def test_allocations_are_counted_whoever_makes_them(made):
    told = []
    made.on_allocation = lambda index, nbytes: told.append((index, nbytes))
    memory = made.allocate(1, 100)
    sys.modules["cupy"].allocator(7)                         # what CuPy's own arrays call
    assert (memory.address, memory.nbytes) == (64, 100) and told == [(1, 100), (0, 7)]


def test_copies(made):
    source, target = arrays()
    made.upload(0, host.address(target), host.address(source), 40)
    assert (target == source).all()
    assert not made.runtime.names("streamSynchronize")       # few bytes go through page-locked memory, unwaited for
    large, other = arrays(1 << 15)
    made.upload(1, host.address(other), host.address(large), large.nbytes)
    assert (other == large).all() and made.runtime.names("streamSynchronize") == [("streamSynchronize", 1)]
    other[:] = 0
    made.download(0, host.address(large), host.address(other), large.nbytes)
    assert (other == large).all() and len(made.runtime.names("streamSynchronize")) == 2
    made.download(0, host.address(large), host.address(other), 4, blocking=False)
    made.upload(0, host.address(other), host.address(large), 4, blocking=False)
    assert len(made.runtime.names("streamSynchronize")) == 2


def test_page_locked_memory_is_waited_for_when_it_is_full(made):
    source = np.zeros(cupy_driver.STAGED_BYTES, np.uint8)
    target = source.copy()
    fits = cupy_driver.STAGING_BYTES // cupy_driver.STAGED_BYTES
    for number in range(fits + 1):
        assert bool(made.runtime.names("streamSynchronize")) is False, number
        source[:] = number
        made.upload(number % 2, host.address(target), host.address(source), source.size)
        assert (target == number).all()
    assert made.runtime.names("streamSynchronize") == [("streamSynchronize", 0), ("streamSynchronize", 1)]


def test_nothing_is_staged_while_a_stream_is_captured(made, monkeypatch):
    """The graph would read from there whenever it is launched."""
    source, target = arrays()
    monkeypatch.setitem(ANSWERS, "streamIsCapturing", lambda stream: True)
    made.upload(0, host.address(target), host.address(source), 40, blocking=False)
    copied, = (call for call in made.runtime.log if call[0] == "memcpyAsync")
    assert copied[3] == host.address(source)


def test_copies_between_devices(made):
    """The target's stream waits for what was written, and the source's until it was read; events are each device's."""
    source, target = arrays()
    made.copy(1, host.address(target), 0, host.address(source), 40)
    assert (target == source).all() and made.current_device() == 0
    calls = [call for call in made.runtime.log if call[0] in ("eventRecord", "streamWaitEvent", "memcpyPeerAsync")]
    assert [call[:2] for call in calls] == [("eventRecord", 0), ("streamWaitEvent", 1), ("memcpyPeerAsync", 1),
                                            ("eventRecord", 1), ("streamWaitEvent", 0)]
    assert calls[0][2] == calls[1][3] == 1000 and calls[3][2] == calls[4][3] == 1001


def test_streams_and_events(made):
    stream = made.stream(1, priority=-1)
    assert (stream.handle, stream.index, stream.priority, stream.query()) == (101, 1, -1, True)
    assert made.current_stream(1) == made.default_stream(1) != stream
    made.use_stream(1, stream)
    assert made.current_stream(1) == stream and made.current_stream(0).handle == 0 and made.current_device() == 0
    event = made.event(timing=True)
    event.synchronize()
    assert event.query()                                     # of nothing: nobody recorded it
    event.record(stream)
    stream.wait(event)
    assert event.handle == 1001 and not event.query() and event.elapsed(event) == 2.5


def test_graphs(made):
    stream = made.stream(0)
    made.begin_capture(stream)
    graph = made.end_capture(stream)
    graph.launch(stream)
    assert graph.handle == 6 and made.runtime.log[-1] == ("graphLaunch", 0, 6, 100)
    assert graph.nodes() == []
    graph.update_parameters(3, b"12345678")


@pytest.mark.parametrize("name, function", [
    ("deviceSynchronize", lambda d: d.synchronize(0)), ("streamSynchronize", lambda d: d.stream(0).synchronize()),
    ("memcpyAsync", lambda d: d.download(0, 0, 0, 0)),
    ("graphLaunch", lambda d: cupy_streams.CuPyGraph(d, 1, 2).launch(d.stream(0))),
    ("streamBeginCapture", lambda d: d.begin_capture(d.stream(0))),
    ("eventElapsedTime", lambda d: d.event().elapsed(d.event()))])
def test_errors_are_told(made, name, function):
    made.runtime.fails[name] = ILLEGAL_ADDRESS
    words = r"CUDA error: an illegal memory access was encountered \(cudaErrorIllegalAddress, 700\).*can use no GPU any"
    with pytest.raises(driver_interface.DeviceError, match=words) as caught:
        function(made)
    assert caught.value.code == ILLEGAL_ADDRESS and made.current_device() == 0
    made.runtime.fails.clear()


def test_a_question_that_fails_is_no_answer(made, monkeypatch):
    monkeypatch.setitem(ANSWERS, "streamQuery", lambda stream: ILLEGAL_ADDRESS)
    with pytest.raises(driver_interface.DeviceError, match="illegal memory access"):
        made.stream(0).query()


def test_every_function_of_the_protocol_is_there():
    for name, function in vars(driver_interface.Driver).items():
        if callable(function) and not name.startswith("_") and name not in ("compile", "raising"):
            assert name in vars(cupy_driver.CuPyDriver), f"CuPyDriver has no {name}()"


def test_cupy_has_what_is_called(made, monkeypatch):
    asked = [*ANSWERS, "deviceSynchronize", "streamSynchronize", "streamWaitEvent", "eventRecord", "eventSynchronize",
             "graphLaunch", "graphDestroy", "graphExecDestroy", "streamBeginCapture", "pointerGetAttributes"]
    assert made.runtime.asked <= {*asked}
    monkeypatch.undo()
    try:
        from cupy_backends.cuda.api import driver as functions, runtime
    except Exception as error:
        pytest.skip(f"CuPy cannot be imported here: {error}")
    for name in (*asked, "getDevice", "setDevice", "memcpyHostToDevice", "streamCaptureModeRelaxed",
                 "CUDARuntimeError"):
        assert hasattr(runtime, name), name
    for name in ("moduleLoadData", "moduleGetFunction", "funcSetAttribute", "CUDADriverError"):
        assert hasattr(functions, name), name
