"""Which module answers for a device: `torch.get_device_module`, and how `torch._utils` asks for it."""
from importlib import import_module

from ..accelerator import current_accelerator
from ..base.spec import CPU, device as device_type

__all__ = ["get_device_module"]


def get_device_module(device=None):
    """The module for a device (`torch.cpu` for the CPU); for None, that of the device besides the CPU, or the CPU."""
    kind = (current_accelerator() or CPU).type if device is None else device_type(device).type
    if kind not in ("cpu", "cuda", "mps", "xpu"):
        raise RuntimeError(f"Device '{kind}' does not have a corresponding module registered as 'torch.{kind}'.")
    return import_module(f"..{kind}", __package__)
