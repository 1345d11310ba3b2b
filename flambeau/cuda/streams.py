"""`torch.cuda.Stream` and `Event`: those of flambeau/tensor/streams.py, with the names that PyTorch has there."""
from ..backends.cuda import driver
from ..base.spec import as_device, device as make_device
from ..tensor.streams import Event as AnyEvent, Stream as AnyStream, _by_number, enter, leave, use
from ._utils import _get_device_index, there

__all__ = ["Event", "ExternalStream", "Stream"]


def need_cuda(name):
    """Refuse to make a `torch.cuda.name` where CUDA cannot be used."""
    found = driver.absence()
    if found is not None:
        raise RuntimeError(f"torch.cuda.{name} requires CUDA support. {found}")


def _device(device=None, *words):
    """The device that an argument of these functions means; it has to be there."""
    return as_device(make_device("cuda", there(device, *words)[1]))


class Stream(AnyStream):
    """A stream of a CUDA device: of the current one, or of `device`. One of a lower `priority` number goes first."""

    def __new__(cls, device=None, priority=0, *, stream_id=None, device_index=None, device_type=None, stream_ptr=None):
        need_cuda("Stream" if stream_ptr is None else "ExternalStream")
        asked = device if device_index is None else device_index
        where = _device(None if asked == -1 else asked, "CUDA error: invalid device ordinal", RuntimeError)
        if stream_ptr is not None:
            return cls._of(where, driver.current().external_stream(where.index, stream_ptr))
        if stream_id is not None:
            return cls._of(*_by_number(where, stream_id))
        return cls._of(where, where.backend.new_stream(priority), priority)

    @property
    def cuda_stream(self):
        """CUDA's handle of it, a number."""
        return self._held.handle

    @property
    def priority(self):
        """What it was made with."""
        return self._priority

    @staticmethod
    def priority_range():
        """(the lowest priority, the highest): smaller numbers go first."""
        return 0, -5

    def _new_event(self):
        return Event()

    def __eq__(self, other):
        return isinstance(other, Stream) and super().__eq__(other)

    def __hash__(self):
        return hash((self.cuda_stream, self.device))

    def __cuda_stream__(self):
        """(version, handle), by which other libraries take a stream."""
        return 0, self.cuda_stream

    def __repr__(self):
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream of a CUDA device that another library has made, by its handle."""

    def __new__(cls, stream_ptr, device=None, **kwargs):
        return Stream.__new__(cls, device, stream_ptr=stream_ptr, **kwargs)


class Event(AnyEvent):
    """A mark in a stream of a CUDA device; with `enable_timing`, two of them say how long it was between them."""

    _type = "cuda"

    def __init__(self, enable_timing=False, blocking=False, interprocess=False, external=False):
        need_cuda("Event")
        self._prepare(enable_timing, blocking, interprocess, "torch.cuda.Event")

    @property
    def cuda_event(self):
        """CUDA's handle of it, a number; 0 before it was recorded."""
        return self.event_id

    def __repr__(self):
        return f"<torch.cuda.Event {self.cuda_event:#x}>" if self._held else "<torch.cuda.Event uninitialized>"


class StreamContext:
    """A context in which a stream is the current one, and its device the current device; nothing for None."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is not None:
            self.before = enter(self.stream)

    def __exit__(self, *exc):
        if self.stream is not None:
            leave(*self.before)
        return False


def stream(stream):
    """A context in which `stream` is the current one; nothing for None."""
    return StreamContext(stream)


def set_stream(stream):
    """Make `stream` the current one, and its device the current device; nothing for None."""
    if stream is not None:
        use(stream)


def current_stream(device=None):
    """The stream that this thread's work for a device goes to."""
    return Stream._current(_device(device))


def default_stream(device=None):
    """The stream that is current where no other was chosen."""
    where = _device(device)
    return Stream._of(where, where.backend.default_stream())


def get_stream_from_external(data_ptr, device=None):
    """A stream that another library has made, by its handle."""
    driver.current()
    return ExternalStream(data_ptr, device=_get_device_index(device, optional=True))
