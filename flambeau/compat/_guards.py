"""`torch._guards`: what PyTorch's compiler is doing. Nothing: none is at work. tensordict asks."""
from .missing import rest_of

__getattr__ = rest_of("torch._guards")


def active_fake_mode():
    """The mode in which tensors have shapes alone: none; the device "meta" does that here."""


def detect_fake_mode(inputs=None):
    """The mode that `inputs` came from: none."""
