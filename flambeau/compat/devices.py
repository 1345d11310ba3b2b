"""Which module answers for a device: `torch.get_device_module`; and what code for several kinds of devices asks of
tensors."""
import sys
from importlib import import_module

from ..accelerator import current_accelerator
from ..base.spec import CPU, device as make_device
from ..tensor.create import tensor

__all__ = ["_has_compatible_shallow_copy_type", "_register_device_module", "_shape_as_tensor",
           "get_device_module"]


def get_device_module(device=None):
    """The module for a device (`torch.cpu` for the CPU); for None, that of the device besides the CPU, or the CPU."""
    kind = (current_accelerator() or CPU).type if device is None else make_device(device).type
    found = getattr(_package(), kind, None)
    if found is None:
        raise RuntimeError(f"Device '{kind}' does not have a corresponding module registered as 'torch.{kind}'.")
    return found


def _register_device_module(device_type, module):
    """Have `torch.<type>` be the module for a type of devices that was registered."""
    kind, package = make_device(device_type).type, _package()
    if hasattr(package, kind):
        raise RuntimeError(f"The runtime module of '{kind}' has already been registered with "
                           f"'{getattr(package, kind)}'")
    setattr(package, kind, module)
    sys.modules[f"{package.__name__}.{kind}"] = module


def _package():
    return import_module("..", __package__)


def _has_compatible_shallow_copy_type(input, from_):
    """Whether `input.data = from_` may be done: they are of one kind of device. torchao, unsloth, composer."""
    return input.device.type == from_.device.type


def _shape_as_tensor(input):
    """The shape as a tensor, which PyTorch's ONNX export needs it to be. torchvision, kornia."""
    return tensor(tuple(input.shape))
