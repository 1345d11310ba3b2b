"""`torch.cuda.Stream` and its kin: classes for annotations and `isinstance`. To make one needs CUDA."""

__all__ = ["Event", "ExternalStream", "Stream"]


class NeedsCuda:
    """A class of PyTorch's whose objects need a CUDA device: making one is refused."""

    def __new__(cls, *args, **kwargs):
        name = next(kind.__name__ for kind in cls.__mro__ if kind.__module__.startswith(__package__))
        raise RuntimeError(f"torch.cuda.{name} requires CUDA support, and this Flambeau has no CUDA device. Ask "
                           "torch.cuda.is_available() first, or use the CPU.")


class Stream(NeedsCuda):
    """A stream of a CUDA device."""


class ExternalStream(Stream):
    """A stream of a CUDA device that another library has made."""


class Event(NeedsCuda):
    """A mark in a stream of a CUDA device."""
