"""`torch.Stream` and `torch.Event`: the order in which a device does what it is told, and marks in it.

The CPU has one stream, in which everything runs in the order of the program, and no events, as in PyTorch. A GPU works
through what is handed to one of its streams in order, beside the CPU and beside its other streams. What a program
records (docs/design.md) is handed over when contents are looked at; so whatever concerns a stream hands over first what
this thread has recorded so far, to the streams that were current for it.
"""
from .backends.cuda import driver
from .base.observers import timed
from .base.spec import CPU, device as make_device
from .trace.recording.record import current, run_all

__all__ = ["Event", "Stream"]

CPU_TYPE, CUDA_TYPE = 0, 1                # PyTorch's numbers for kinds of devices


def hand_over():
    """Hand what this thread has recorded to the devices."""
    current().run()


def need_cuda(name):
    """Refuse to make a `torch.cuda.name` where CUDA cannot be used."""
    found = driver.absence()
    if found is not None:
        raise RuntimeError(f"torch.cuda.{name} requires CUDA support. {found}")


def index_of(device, what):
    """The index of the GPU that `device` names, None for the CPU; for None, of the current one if there are any."""
    if device is None:
        return None if driver.absence() is not None else driver.current().current_device()
    found = make_device(device)
    if found.type == "cpu":
        return None
    if found.type != "cuda":
        raise RuntimeError(f"torch.{what} of {found}: Flambeau is not linked with support for {found.type} devices; "
                           "use the CPU, or leave it out where torch.accelerator.is_available() is False")
    software = driver.current()
    index = software.current_device() if found.index is None else found.index
    if index >= software.device_count():
        raise RuntimeError(f"CUDA error: invalid device ordinal: torch.{what} of {found}; there are "
                           f"{software.device_count()} devices")
    return index


def _no_events():
    """Refuse: the CPU's stream cannot be marked."""
    raise RuntimeError("cpu backend doesn't support events. What is called runs in the program's order; for times, "
                       "read time.perf_counter() after torch.cpu.synchronize()")


class Stream:
    """A stream of a device: a new one of a GPU, or the one of the CPU. Of GPU streams, a lower `priority` goes first.

    As a context it is the current stream of its device, and that the current device.
    """

    _held = None                          # the driver's stream; None of the CPU
    _priority = 0

    def __new__(cls, device=None, *, priority=0, stream_id=None, device_index=None, device_type=None):
        if stream_id is not None:         # one that is there, by its numbers
            return cls._of(None if device_type == CPU_TYPE else _by_number(device_index, stream_id))
        index = index_of(device, "Stream")
        return cls._of(None if index is None else driver.current().stream(index, priority), priority)

    @classmethod
    def _of(cls, held, priority=0):
        """The Stream that stands for one of the driver's, or for the CPU's."""
        made = object.__new__(cls)
        made._held, made._priority, made._outer = held, priority, []
        if held is not None and held.handle:
            _known[held.index, held.handle] = held
        return made

    @property
    def device(self):
        """Its device."""
        return CPU if self._held is None else make_device("cuda", self._held.index)

    @property
    def device_index(self):
        """The index of its device; -1 of the CPU."""
        return -1 if self._held is None else self._held.index

    @property
    def device_type(self):
        """PyTorch's number for the kind of its device."""
        return CPU_TYPE if self._held is None else CUDA_TYPE

    @property
    def stream_id(self):
        """The number by which it can be found again; 0 of a device's default stream."""
        return 0 if self._held is None else self._held.handle

    @property
    def native_handle(self):
        """CUDA's handle of it."""
        return self.stream_id

    def query(self):
        """Whether all that was called has run, as far as can be seen."""
        if self._held is None:
            return True
        hand_over()
        return self._held.query()

    def synchronize(self):
        """Run what is recorded, and wait until all that was handed to the stream is done."""
        if self._held is None:
            run_all()
        else:
            hand_over()
            with timed("waited", str(self.device)):
                self._held.synchronize()

    def wait_event(self, event):
        """What is handed to this stream from now on waits for `event`; the CPU does not."""
        event.wait(self)

    def wait_stream(self, stream):
        """What is handed to this stream from now on waits for all that was handed to `stream`; the CPU does not."""
        self.wait_event(stream.record_event())

    def record_event(self, event=None):
        """Mark this place in the stream with `event`, or a new one, and give that."""
        if self._held is None:
            _no_events()
        event = self._new_event() if event is None else event
        event.record(self)
        return event

    def _new_event(self):
        return Event(self.device)

    def __enter__(self):
        if self._held is not None:
            self._outer.append(enter(self._held))
        return self

    def __exit__(self, *exc):
        if self._held is not None:
            leave(*self._outer.pop())
        return False

    def __eq__(self, other):
        return isinstance(other, Stream) and (self.device, self.stream_id) == (other.device, other.stream_id)

    def __hash__(self):
        return hash((self.stream_id, self.device))

    def __repr__(self):
        return (f"torch.Stream device_type={self.device.type}, device_index={self.device_index}, "
                f"stream_id={self.stream_id}")


_known: dict = {}               # (device, number) → the driver's stream: what is used by its number has to stay


def _by_number(index, number):
    """The driver's stream with a number that a Stream has shown."""
    software = driver.current()
    return _known.get((index, number)) or software.default_stream(index)


def use(held):
    """Make one of the driver's streams the current one, and its device the current device."""
    hand_over()
    software = driver.current()
    software.set_device(held.index)
    software.use_stream(held.index, held)
    backend = make_device("cuda", held.index).backend
    if backend is not None:
        backend.join_copies(held)


def enter(held):
    """`use(held)`; what `leave` takes to have it as it was."""
    software = driver.current()
    before = software.current_device(), software.current_stream(held.index)
    use(held)
    return before


def leave(index, held):
    """Make a stream the current one of its device again, and the device with `index` the current device."""
    use(held)
    driver.current().set_device(index)


class Event:
    """A mark in the stream of a device; with `enable_timing`, two of them say how long it was between them.

    One of the CPU can be made, and records nothing.
    """

    _held = _index = None                 # the driver's event, made when it is first recorded, and of which device
    _on_cpu = False

    def __init__(self, device=None, *, enable_timing=False, blocking=False, interprocess=False):
        index = index_of(device, "Event")
        self._prepare(enable_timing, blocking, interprocess)
        self._on_cpu, self._index = index is None, index

    def _prepare(self, timed, blocking, interprocess, name="torch.Event"):
        if interprocess:
            raise NotImplementedError(f"{name}(interprocess=True): Flambeau does not share events between processes; "
                                      "synchronize() before the other process is told")
        self._timed, self._blocking = bool(timed), bool(blocking)

    @property
    def device(self):
        """Its device; None of one that was not recorded yet and may be of any."""
        return CPU if self._on_cpu else None if self._index is None else make_device("cuda", self._index)

    @property
    def event_id(self):
        """CUDA's handle of it, a number; 0 before it was recorded."""
        return 0 if self._held is None else self._held.handle

    def record(self, stream=None):
        """Mark this place in `stream`, or in the current one."""
        if self._on_cpu:
            _no_events()
        hand_over()
        software = driver.current()
        into = software.current_stream(_or_current(self._index, software)) if stream is None else stream._held
        if self._index not in (None, into.index):
            raise RuntimeError(f"Event device {self._index} does not match recording stream's device {into.index}.")
        if self._held is None:
            with software.on(into.index):
                self._held = software.event(self._timed, self._blocking)
            self._index = into.index
        self._held.record(into)

    def wait(self, stream=None):
        """What is handed to `stream`, or to the current one, from now on waits for the mark; the CPU does not."""
        if self._held is not None:
            hand_over()
            software = driver.current()
            held = software.current_stream(software.current_device()) if stream is None else stream._held
            held.wait(self._held)

    def query(self):
        """Whether what was called before the mark is done, as far as can be seen."""
        return self._held is None or self._held.query()

    def synchronize(self):
        """Wait until what was called before the mark is done."""
        if self._on_cpu:
            run_all()
        elif self._held is not None:
            with timed("waited", str(self.device)):
                self._held.synchronize()

    def elapsed_time(self, end_event):
        """The milliseconds from this mark to `end_event`."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._on_cpu:
            _no_events()
        for event, name in ((self, "start"), (end_event, "end")):
            if event._held is None:
                raise ValueError("Both events must be recorded before calculating elapsed time: the "
                                 f"{name} event was not; call its record()")
            if not event._held.query():
                raise RuntimeError(f"Both events must be completed before calculating elapsed time: the {name} event "
                                   "is not; call its synchronize(), or torch.cuda.synchronize()")
        return self._held.elapsed(end_event._held)

    def ipc_handle(self):
        """Refused: events are not shared between processes."""
        raise NotImplementedError("Event.ipc_handle(): Flambeau does not share events between processes")

    def __repr__(self):
        kind, index = ("cpu", -1) if self._on_cpu else ("cuda", -1 if self._index is None else self._index)
        return f"torch.Event device_type={kind}, device_index={index}, event_flag=0, event_id={self.event_id}"


def _or_current(index, software):
    return software.current_device() if index is None else index
