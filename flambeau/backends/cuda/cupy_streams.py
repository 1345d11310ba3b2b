"""Streams, events and graphs of CuPy: see Driver.stream, Driver.event and Driver.end_capture in driver_interface.py."""
import ctypes
import weakref

from . import libcuda

NOT_READY = 600                                  # cudaErrorNotReady


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
            self._nodes = [node for node in self._all_nodes() if self._node_type(node) == libcuda.KERNEL_NODE]
        return self._nodes

    def _all_nodes(self):
        count = ctypes.c_size_t()
        self._call("cuGraphGetNodes", ctypes.c_void_p(self.graph), None, ctypes.byref(count))
        found = (ctypes.c_void_p * count.value)()
        self._call("cuGraphGetNodes", ctypes.c_void_p(self.graph), found, ctypes.byref(count))
        return found

    def _node_type(self, node):
        node_type = ctypes.c_int()
        self._call("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(node_type))
        return node_type.value

    def copies_from_host(self):
        found = False
        for node in self._all_nodes():
            if self._node_type(node) == libcuda.COPY_NODE:
                known = libcuda.CopyNodeParameters()
                self._call("cuGraphMemcpyNodeGetParams", ctypes.c_void_p(node), ctypes.byref(known))
                found |= known.srcMemoryType == libcuda.HOST_MEMORY or \
                    known.srcMemoryType == libcuda.UNIFIED_MEMORY and not libcuda.is_of_device(known.srcDevice)
        return found

    def update_parameters(self, node, buffer):
        known = libcuda.KernelNodeParameters()
        self._call("cuGraphKernelNodeGetParams_v2", ctypes.c_void_p(node), ctypes.byref(known))
        parameters = ctypes.create_string_buffer(bytes(buffer), len(buffer))
        known.kernelParams, known.extra = (ctypes.c_void_p * 1)(ctypes.addressof(parameters)), None
        self._call("cuGraphExecKernelNodeSetParams_v2", ctypes.c_void_p(self.handle), ctypes.c_void_p(node),
                   ctypes.byref(known))

    def _call(self, name, *args):
        self.driver.check(getattr(libcuda.library(), name)(*args), f"calling {name}")


def _destroy(runtime, graph, executable):
    runtime.graphExecDestroy(executable)
    runtime.graphDestroy(graph)


def _is_done(driver, status):
    if status in (0, NOT_READY):
        return status == 0
    raise driver.told(driver.errors[0](status))
