"""`torch.Stream` and `torch.Event`: the order in which a device does what it is told, and marks in it.

The CPU has one stream, in which everything runs in the order of the program, and no events, as in PyTorch. A stream
or an event of a device that is not there is refused.
"""
from .base.spec import CPU, device as device_type
from .trace.record import run_all

__all__ = ["Event", "Stream"]


def _of_cpu(device, what):
    """The device, which has to be the CPU."""
    found = CPU if device is None else device_type(device)
    if found.type != "cpu":
        raise RuntimeError(f"torch.{what} of {found}: Flambeau is not linked with support for {found.type} devices; "
                           "use the CPU, or leave it out where torch.accelerator.is_available() is False")
    return CPU


def _no_events(self, *args, **kwargs):
    """Refused: the CPU's stream cannot be marked."""
    raise RuntimeError("cpu backend doesn't support events. What is called runs in the program's order; for times, "
                       "read time.perf_counter() after torch.cpu.synchronize()")


class Stream:
    """The stream of the CPU: whatever is called runs in the program's own order."""

    stream_id = 0
    device_index = -1
    device_type = 0

    def __init__(self, device=None, *, priority=0):
        self.device = _of_cpu(device, "Stream")

    def query(self):
        """Whether all that was called has run, as far as anybody can see."""
        return True

    def synchronize(self):
        """Run what is recorded and has not run yet."""
        run_all()

    def wait_event(self, event):
        """Wait for a mark; there is nothing to wait for."""

    record_event = wait_stream = _no_events

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False

    def __eq__(self, other):
        return isinstance(other, Stream) and other.device is self.device

    def __hash__(self):
        return hash((self.stream_id, self.device))

    def __repr__(self):
        return f"torch.Stream device_type={self.device.type}, device_index=-1, stream_id=0"


class Event:
    """A mark in the stream of a device. One of the CPU can be made, and records nothing."""

    event_id = 0

    def __init__(self, device=None, *, enable_timing=False, blocking=False, interprocess=False):
        self.device = _of_cpu(device, "Event")
        self._timed = enable_timing

    def query(self):
        """Whether what was called before the mark has run, as far as anybody can see."""
        return True

    def synchronize(self):
        """Run what is recorded and has not run yet."""
        run_all()

    def wait(self, stream=None):
        """Let a stream wait for the mark; there is nothing to wait for."""

    def elapsed_time(self, end_event):
        """Refused: an event of the CPU has no time."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        _no_events(self)

    record = _no_events

    def __repr__(self):
        return f"torch.Event device_type={self.device.type}, device_index=-1, event_flag=0, event_id=0"
