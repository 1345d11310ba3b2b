"""`torch.cuda.Stream` and `Event`: queues of a CUDA device, and marks in them.

A device works through what is handed to one stream in order, beside the CPU and beside its other streams. What a
program records (docs/design.md) is handed over when somebody looks; so whatever concerns a stream hands over first what
this thread has recorded so far, to the streams that were current for it.
"""
from ..backends.cuda import chain, driver
from ..base.spec import device as device_type
from ..trace import record
from ._utils import _get_device_index, there

__all__ = ["Event", "ExternalStream", "Stream"]

CUDA_TYPE = 1                   # PyTorch's number for devices of this kind


def hand_over():
    """Hand what this thread has recorded to the devices."""
    record.current().run()


def need_cuda(name):
    """Refuse to make an object of `torch.cuda.name` where there is no device."""
    if not driver.is_made():
        found = chain.broken()
        if found is not None:
            raise RuntimeError(f"torch.cuda.{name} requires CUDA support. {found}")


class Stream:
    """A stream of a CUDA device: the current one's, or `device`'s. One of a lower `priority` number goes first.

    As a context it is the current stream, as in `torch.cuda.stream(s)`.
    """

    device_type = CUDA_TYPE

    def __new__(cls, device=None, priority=0, *, stream_id=None, device_index=None, device_type=None, stream_ptr=None):
        need_cuda(cls._name())
        software, index = there(device_index if device_index is not None else device if device != -1 else None)
        if stream_ptr is not None:
            held = software.external_stream(index, stream_ptr)
        elif stream_id is not None:
            held = _known.get((index, stream_id)) or software.default_stream(index)
        else:
            held = software.stream(index, priority)
        return cls._of(held, priority)

    @classmethod
    def _name(cls):
        return next(kind.__name__ for kind in cls.__mro__ if kind.__module__.startswith(__package__))

    @classmethod
    def _of(cls, held, priority=0):
        """The Stream that stands for one of the driver's."""
        made = object.__new__(cls)
        made._held, made._priority = held, priority
        if made.stream_id:
            _known[made.device_index, made.stream_id] = held
        return made

    @property
    def device_index(self):
        """The index of its device."""
        return self._held.index

    @property
    def device(self):
        """Its device."""
        return device_type("cuda", self._held.index)

    @property
    def cuda_stream(self):
        """CUDA's handle of it, a number."""
        return self._held.handle

    @property
    def stream_id(self):
        """The number by which it can be found again; 0 of the default stream."""
        return self._held.handle

    @property
    def priority(self):
        """What it was made with."""
        return self._priority

    @staticmethod
    def priority_range():
        """(the lowest priority, the highest): smaller numbers go first."""
        return 0, -5

    def wait_event(self, event):
        """What is handed to this stream from now on waits for `event`; the CPU does not."""
        event.wait(self)

    def wait_stream(self, stream):
        """What is handed to this stream from now on waits for all that was handed to `stream`; the CPU does not."""
        self.wait_event(stream.record_event())

    def record_event(self, event=None):
        """Mark this place in the stream with `event`, or a new one, and give that."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self):
        """Whether all that was handed to it is done."""
        hand_over()
        return self._held.query()

    def synchronize(self):
        """Wait until all that was handed to it is done."""
        hand_over()
        self._held.synchronize()

    def __enter__(self):
        software = driver.current()
        before = software.current_device(), software.current_stream(self.device_index)
        self._outer = [*getattr(self, "_outer", ()), before]
        use(self._held)
        return self

    def __exit__(self, *exc):
        index, held = self._outer.pop()
        use(held)
        driver.current().set_device(index)
        return False

    def __eq__(self, other):
        return isinstance(other, Stream) and (self._held.handle, self._held.index) == (other._held.handle,
                                                                                       other._held.index)

    def __hash__(self):
        return hash((self.cuda_stream, self.device))

    def __cuda_stream__(self):
        """(version, handle), by which other libraries take a stream."""
        return 0, self.cuda_stream

    def __repr__(self):
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


_known: dict = {}               # (device, number) → the driver's stream: one that is used by its number stays


class ExternalStream(Stream):
    """A stream of a CUDA device that another library has made, by its handle."""

    def __new__(cls, stream_ptr, device=None, **kwargs):
        return Stream.__new__(cls, device, stream_ptr=stream_ptr, **kwargs)


class Event:
    """A mark in a stream of a CUDA device; with `enable_timing`, two of them say how long it was between them."""

    def __new__(cls, enable_timing=False, blocking=False, interprocess=False, external=False):
        need_cuda("Event")
        if interprocess:
            raise NotImplementedError("torch.cuda.Event(interprocess=True): Flambeau does not share events between "
                                      "processes; synchronize() before the other process is told")
        made = object.__new__(cls)
        made._timed, made._blocking = bool(enable_timing), bool(blocking)
        made._held = made._index = None
        return made

    @property
    def device(self):
        """The device on which it was recorded first; None before."""
        return None if self._index is None else device_type("cuda", self._index)

    @property
    def cuda_event(self):
        """CUDA's handle of it, a number; 0 before it was recorded."""
        return 0 if self._held is None else self._held.handle

    event_id = cuda_event

    def record(self, stream=None):
        """Mark this place in `stream`, or in the current one."""
        hand_over()
        software = driver.current()
        stream = _held(stream) or software.current_stream(software.current_device())
        if self._index not in (None, stream.index):
            raise RuntimeError(f"Event device {self._index} does not match recording stream's device {stream.index}.")
        if self._held is None:
            with software.on(stream.index):
                self._held = software.event(self._timed, self._blocking)
            self._index = stream.index
        self._held.record(stream)

    def wait(self, stream=None):
        """What is handed to `stream`, or to the current one, from now on waits for the mark."""
        hand_over()
        if self._held is not None:
            software = driver.current()
            (_held(stream) or software.current_stream(software.current_device())).wait(self._held)

    def query(self):
        """Whether all that was handed over before the mark is done."""
        return self._held is None or self._held.query()

    def synchronize(self):
        """Wait until all that was handed over before the mark is done."""
        if self._held is not None:
            self._held.synchronize()

    def elapsed_time(self, end_event):
        """The milliseconds from this mark to `end_event`."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
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
        raise NotImplementedError("torch.cuda.Event.ipc_handle: Flambeau does not share events between processes")

    def __repr__(self):
        return f"<torch.cuda.Event {self.cuda_event:#x}>" if self._held else "<torch.cuda.Event uninitialized>"


def _held(stream):
    """The driver's stream of a Stream of ours, torch.cuda's or torch's."""
    return None if stream is None else stream._held


def use(held):
    """Make one of the driver's streams the current one, and its device too."""
    hand_over()
    software = driver.current()
    software.set_device(held.index)
    software.use_stream(held.index, held)


class StreamContext:
    """A context in which a stream is the current one, and its device too; nothing for None."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *exc):
        if self.stream is not None:
            self.stream.__exit__()
        return False


def stream(stream):
    """A context in which `stream` is the current one; nothing for None."""
    return StreamContext(stream)


def set_stream(stream):
    """Make `stream` the current one, and its device too; nothing for None."""
    if stream is not None:
        use(stream._held)


def current_stream(device=None):
    """The stream that this thread's work for a device goes to."""
    software, index = there(device)
    return Stream._of(software.current_stream(index))


def default_stream(device=None):
    """The stream that is current where nobody has chosen another."""
    software, index = there(device)
    return Stream._of(software.default_stream(index))


def get_stream_from_external(data_ptr, device=None):
    """A stream that another library has made, by its handle."""
    return ExternalStream(data_ptr, device=_get_device_index(device, optional=True))
