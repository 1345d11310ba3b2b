"""`torch.Stream` and `torch.Event`: the order in which a device does what it is told, and marks in it.

The CPU has one stream, in which everything runs in the order of the program, and no events, as in PyTorch; so has a
device whose Backend says nothing else. A GPU works through what is handed to one of its streams in order, beside the
CPU and beside its other streams. What a program records (docs/design.md) is handed over when contents are looked at; so
whatever concerns a stream hands over first what this thread has recorded so far, to the streams that were current for
it.
"""
from ..backends import devices
from ..base.observers import timed
from ..base.spec import CPU, as_device, device as make_device
from ..trace.recording.record import current, run_all

__all__ = ["Event", "Stream"]


def hand_over():
    """Hand what this thread has recorded to the devices."""
    current().run()


def device_of(device, what):
    """The device that `device` names; for None, the current accelerator, or the CPU where there is none."""
    if device is None:
        return as_device(devices.accelerator() or CPU)
    found = make_device(device)
    if found.type not in devices.types:
        raise RuntimeError(f"torch.{what} of {found}: Flambeau is not linked with support for {found.type} devices; "
                           "use the CPU, or leave it out where torch.accelerator.is_available() is False")
    return as_device(found)


def _no_events(device):
    """Refuse: a stream in which all is done in the program's order cannot be marked."""
    raise RuntimeError(f"{device.type} backend doesn't support events. What is called runs in the program's order; for "
                       f"times, read time.perf_counter() after torch.{'cpu' if device is CPU else 'accelerator'}"
                       ".synchronize()")


class Stream:
    """A stream of a device: a new one of a GPU, or the one of the CPU. Of GPU streams, a lower `priority` goes first.

    As a context it is the current stream of its device, and that the current device. A device that has no streams
    (`Backend.streams`) has one, as the CPU.
    """

    def __new__(cls, device=None, *, priority=0, stream_id=None, device_index=None, device_type=None):
        if stream_id is not None:         # one that is there, by its numbers
            return cls._of(*_by_number(_by_type(device_type, device_index), stream_id))
        where = device_of(device, "Stream")
        return cls._of(where, where.backend.new_stream(priority) if where.backend.streams else None, priority)

    @classmethod
    def _of(cls, device, stream, priority=0):
        """The Stream that stands for one of a device's own, or for the one that a device has (None)."""
        made = object.__new__(cls)
        made.device, made._held, made._priority, made._outer = device, stream, priority, []
        if stream is not None and stream.handle:
            _known[device, stream.handle] = stream
        return made

    @classmethod
    def _current(cls, device):
        """The Stream that this thread's work for a device goes to."""
        return cls._of(device, device.backend.current_stream() if device.backend.streams else None)

    @property
    def device_index(self):
        """The index of its device; -1 of the CPU."""
        return -1 if self.device is CPU else self.device.index

    @property
    def device_type(self):
        """PyTorch's number for the kind of its device."""
        return devices.number_of(self.device.type)

    @property
    def stream_id(self):
        """The number by which it can be found again; 0 of a device's default stream."""
        return 0 if self._held is None else self._held.handle

    @property
    def native_handle(self):
        """The device's handle of it."""
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
            self.device.backend.synchronize()
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
            _no_events(self.device)
        event = self._new_event() if event is None else event
        event.record(self)
        return event

    def _new_event(self):
        return Event(self.device)

    def __enter__(self):
        if self.device is not CPU:
            self._outer.append(enter(self))
        return self

    def __exit__(self, *exc):
        if self.device is not CPU:
            leave(*self._outer.pop())
        return False

    def __eq__(self, other):
        return isinstance(other, Stream) and (self.device, self.stream_id) == (other.device, other.stream_id)

    def __hash__(self):
        return hash((self.stream_id, self.device))

    def __repr__(self):
        return (f"torch.Stream device_type={self.device.type}, device_index={self.device_index}, "
                f"stream_id={self.stream_id}")


_known: dict = {}               # (device, number) → the device's own stream: what is used by its number has to stay


def _by_type(number, index):
    """The device of PyTorch's number for a kind, and an index."""
    device_type = next((name for name, known in devices.DEVICE_NUMBERS.items() if known == number), None)
    return CPU if device_type == "cpu" else as_device(make_device(device_type or devices.need_accelerator(), index))


def _by_number(device, number):
    """(a device, its own stream with a number that a Stream has shown)."""
    return device, (_known.get((device, number)) or device.backend.default_stream()) if device.backend.streams else None


def use(stream):
    """Make a stream the current one, and its device the current device."""
    hand_over()
    device = stream.device
    devices.types[device.type].choose(device.index)
    if stream._held is not None:
        device.backend.use_stream(stream._held)


def enter(stream):
    """`use(stream)`; what `leave` takes to have it as it was."""
    device = stream.device
    before = devices.types[device.type].current(), Stream._current(device)
    use(stream)
    return before


def leave(index, stream):
    """Make a stream the current one of its device again, and the device with `index` the current device."""
    use(stream)
    devices.types[stream.device.type].choose(index)


class Event:
    """A mark in the stream of a device; with `enable_timing`, two of them say how long it was between them.

    One of a device that has no streams, as the CPU, can be made, and records nothing.
    """

    _held = device = None                 # the device's own event, made when it is first recorded; of which device
    _type: str                            # of its device, which one of torch.cuda does not have before it is recorded

    def __init__(self, device=None, *, enable_timing=False, blocking=False, interprocess=False):
        where = device_of(device, "Event")
        self._prepare(enable_timing, blocking, interprocess)
        self.device, self._type = where, where.type

    def _prepare(self, timed, blocking, interprocess, name="torch.Event"):
        if interprocess:
            raise NotImplementedError(f"{name}(interprocess=True): Flambeau does not share events between processes; "
                                      "synchronize() before the other process is told")
        self._timed, self._blocking = bool(timed), bool(blocking)

    @property
    def event_id(self):
        """The device's handle of it, a number; 0 before it was recorded."""
        return 0 if self._held is None else self._held.handle

    @property
    def _in_order(self):
        """Whether it is of a device that has no events."""
        return self.device is not None and not self.device.backend.streams

    def record(self, stream=None):
        """Mark this place in `stream`, or in the current one."""
        if self._in_order:
            _no_events(self.device)
        hand_over()
        into = Stream._current(self.device or as_device(self._type)) if stream is None else stream
        if self.device not in (None, into.device):
            raise RuntimeError(f"Event device {self.device.index} does not match recording stream's device "
                               f"{into.device.index}.")
        if self._held is None:
            self._held = into.device.backend.event(self._timed, self._blocking)
            self.device = into.device
        self._held.record(into._held)

    def wait(self, stream=None):
        """What is handed to `stream`, or to the current one, from now on waits for the mark; the CPU does not."""
        if self._held is not None:
            hand_over()
            (Stream._current(as_device(self._type)) if stream is None else stream)._held.wait(self._held)

    def query(self):
        """Whether what was called before the mark is done, as far as can be seen."""
        return self._held is None or self._held.query()

    def synchronize(self):
        """Wait until what was called before the mark is done."""
        if self._in_order:
            run_all()
        elif self._held is not None:
            with timed("waited", str(self.device)):
                self._held.synchronize()

    def elapsed_time(self, end_event):
        """The milliseconds from this mark to `end_event`."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._in_order:
            _no_events(self.device)
        for event, name in ((self, "start"), (end_event, "end")):
            if event._held is None:
                raise ValueError("Both events must be recorded before calculating elapsed time: the "
                                 f"{name} event was not; call its record()")
            if not event._held.query():
                raise RuntimeError(f"Both events must be completed before calculating elapsed time: the {name} event "
                                   "is not; call its synchronize(), or torch.accelerator.synchronize()")
        return self._held.elapsed(end_event._held)

    def ipc_handle(self):
        """Refused: events are not shared between processes."""
        raise NotImplementedError("Event.ipc_handle(): Flambeau does not share events between processes")

    def __repr__(self):
        index = -1 if self.device in (None, CPU) else self.device.index
        return f"torch.Event device_type={self._type}, device_index={index}, event_flag=0, event_id={self.event_id}"
