"""`torch.accelerator`, answered honestly: there is none. Questions get an answer, requests a refusal."""
from .missing import rest_of

__path__: list = []
__getattr__ = rest_of("torch.accelerator")


def is_available():
    """Whether there is a device besides the CPU."""
    return False


def current_accelerator(check_available=False):
    """The device besides the CPU: none."""
    return None


def device_count():
    """How many devices besides the CPU there are."""
    return 0


def empty_cache():
    """Give cached device memory back; there is none."""


def _none(*args, **kwargs):
    """Refused, since there is no device besides the CPU."""
    raise RuntimeError("Cannot access accelerator device when none is available. Ask torch.accelerator.is_available() "
                       "first, or use the CPU.")


synchronize = current_device_index = current_device_idx = set_device_index = set_device_idx = _none
current_stream = set_stream = device_index = memory_allocated = max_memory_allocated = _none
