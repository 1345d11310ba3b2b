"""`torch.xpu`, Intel's GPU, answered honestly: there is none."""
from .base.questions import Question as _Question
from .compat.missing import rest_of

__all__ = ["device_count", "empty_cache", "is_available", "is_bf16_supported", "is_initialized", "manual_seed",
           "manual_seed_all"]

__path__: list = []
__getattr__ = rest_of("torch.xpu")


@_Question
def is_available():
    """Whether an Intel GPU can be used."""
    return False


def device_count():
    """How many Intel GPUs there are."""
    return 0


@_Question
def is_initialized():
    """Whether the device has been started."""
    return False


@_Question
def is_bf16_supported(including_emulation=True):
    """Whether the device computes in bfloat16."""
    return False


def manual_seed(seed):
    """Seed the generator of the device; there is none, so nothing happens."""


def manual_seed_all(seed):
    """Seed the generators of all devices; there are none."""


def empty_cache():
    """Give cached device memory back; there is none."""
