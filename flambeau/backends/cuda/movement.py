"""Copies that run beside the program: from page-locked memory of the CPU to a GPU and back, on a stream of their own.

Note [Copies ahead]: such a copy is handed to the device at the call, and it is not waited for before its result is
first used. The copy's result is a Value whose `trace` is an Arrival (trace/value.py), so that code that wants the
contents asks that first: to read on the GPU, the stream that will read waits for the copy, and the CPU goes on; to read
on the CPU, the CPU waits. So nothing that is read is ever older than the copy.

What arrives is what was there at the call. The source is kept until the copy is through; and who writes to it before
that, through a tensor, waits for it (`Storage.in_flight`). Memory that an array of NumPy's looks at as well could be
written without our knowing, and is copied while the caller waits.

A copy to the GPU must not wait for the computations that were handed over before it: to run beside them is what it is
for. But memory that the pool gives out may be in use by them. So what copies land in is kept apart, in `Landing`s. One
that is no longer looked at is used again behind an event of the computing stream, which is noted when that is found
out: at some copy, so that the next ones overlap with all computations that came since. On a stream that the program
chose itself, copies go to that one, and into memory that is that stream's, as PyTorch has it.
"""
import weakref
from collections import deque

from ..cpu import host

IDLE_COPIES = 8               # a landing that so many copies have passed over is given back


class Arrival:
    """Stands where the trace of a pending Value stands: what has to be waited for before it can be looked at."""

    code = ()                 # nothing recorded will compute it

    def __init__(self, event):
        self.event = event

    def wait(self):
        """Wait until the copy is through."""
        self.event.synchronize()


class ToDevice(Arrival):
    """The contents come to a GPU: streams wait, the CPU does not."""

    def __init__(self, event, driver, streams):
        super().__init__(event)
        self.driver, self.streams = driver, streams

    def run(self, asked):
        """Have the streams that may read it wait for it."""
        here = self.driver.current_stream(self.streams[0].index)
        for stream in dict.fromkeys((here, *self.streams)):
            if stream.is_capturing():                     # a graph cannot wait for what is outside of it
                self.wait()
            else:
                stream.wait(self.event)
        asked.trace = None


class ToHost(Arrival):
    """The contents come to the CPU: the reader waits."""

    def run(self, asked):
        self.wait()
        asked.trace = None


class Lease:
    """Held by every array over a landing; when it is gone, the memory is no longer looked at."""

    __slots__ = ("__weakref__",)


class Landing:
    """Memory of a GPU that copies land in, one after the other."""

    def __init__(self, memory, nbytes):
        self.memory, self.nbytes = memory, nbytes
        self.lease = None         # weak
        self.after = None         # event of the computing stream that all its uses came before
        self.passed_over = 0


class CopyQueue:
    """The copies of one GPU."""

    def __init__(self, backend):
        self.backend, self.driver, self.index = backend, backend.driver, backend.index
        self._stream = self._last_sent = None
        self._landings: list = []
        self._under_way: deque = deque()      # (event, what has to stay until it is done)
        backend.memory.idle_holders.append(self.give_back)

    def send(self, array, spec):
        """(an array of the GPU laid out as `spec`, its Arrival), of an array in page-locked memory laid out so too."""
        with self.backend.active():
            self.let_go()
            computing = self.driver.current_stream(self.index)
            stream = self._beside(computing)
            dtype = self.backend.array_dtypes[spec.dtype]
            if stream is computing:
                memory = self.backend.memory.allocate(spec.nbytes, spec, stream)
                made = self.backend.array_over(memory, spec.shape, dtype, spec.np_strides)
            else:
                memory, lease = self._landing(spec.nbytes, computing, stream)
                made = self.driver.array_at(self.index, memory.address, spec.nbytes, spec.shape, dtype, spec.np_strides,
                                            lease)
            self.driver.upload(self.index, memory.address, host.address(array), spec.nbytes, stream, blocking=False)
            event = self._noted(stream, array)
            if stream is not computing:
                self._last_sent = event
            return made, ToDevice(event, self.driver, [computing, self.driver.default_stream(self.index)])

    def fetch(self, array, spec):
        """(a NumPy array in page-locked memory, its Arrival) of a dense array of the GPU laid out as `spec`."""
        with self.backend.active():
            self.let_go()
            computing = self.driver.current_stream(self.index)
            stream = self._beside(computing)
            if stream is not computing:
                stream.wait(self._event(computing))
            memory = self.driver.pinned(spec.nbytes)
            self.driver.download(self.index, self.backend.address(array), host.address(memory), spec.nbytes, stream,
                                 blocking=False)
            made = host.laid_out(memory, spec.shape, spec.dtype.np, spec.np_strides)
            return made, ToHost(self._noted(stream, array, memory))

    def join(self, stream):
        """Let `stream` wait for what was sent: it may read what another stream has waited for already."""
        if self._last_sent is not None and not self._last_sent.query():
            stream.wait(self._last_sent)

    def _beside(self, computing):
        """The stream that copies go to: their own, but on a stream that the program chose itself, that one."""
        if computing != self.driver.default_stream(self.index):
            return computing
        if self._stream is None:
            self._stream = self.driver.stream(self.index)
        return self._stream

    def _landing(self, nbytes, computing, stream):
        """(memory for `stream` to write to, what arrays over it have to hold)"""
        now = None
        for one in self._landings:
            one.passed_over += 1
            if one.lease is not None and one.lease() is None:
                now = now or self._event(computing)
                one.lease, one.after = None, now
        free = [one for one in self._landings
                if one.lease is None and one.nbytes == nbytes and one.after is not now]
        if free:
            found = free[0]
            self._landings.remove(found)
        else:
            found = Landing(self.backend.memory.allocate(nbytes), nbytes)
            found.after = now or self._event(computing)   # the last owner of this memory
        stream.wait(found.after)
        lease = Lease()
        found.lease, found.passed_over = weakref.ref(lease), 0
        self._landings = [one for one in self._landings if one.lease is not None or one.passed_over < IDLE_COPIES]
        self._landings.append(found)
        return found.memory, lease

    def _event(self, stream):
        made = self.driver.event()
        made.record(stream)
        return made

    def _noted(self, stream, *things):
        event = self._event(stream)
        self._under_way.append((event, things))
        return event

    def let_go(self):
        """Forget what was kept for copies that are through."""
        while self._under_way and self._under_way[0][0].query():
            self._under_way.popleft()

    def give_back(self):
        """Give idle landings back to the pool."""
        self._landings = [one for one in self._landings if one.lease is not None and one.lease() is not None]

