"""Which device an argument of `torch.cuda`'s functions means, and the driver that knows it."""
from ..backends.cuda import driver
from ..base.spec import device as device_type


def _get_device_index(device, optional=False, allow_cpu=False):
    """The index of a device that is given as an index, a name or a `torch.device`; -1 of the CPU, where it may be that.

    Where `optional`, None and a device without an index mean the current one.
    """
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    if isinstance(device, str):
        device = device_type(device)
    if isinstance(device, device_type):
        if device.type == "cpu" and allow_cpu:
            return -1
        if device.type != "cuda":
            raise ValueError(f"Expected a cuda device, but got: {device}")
        if device.index is not None:
            return device.index
    elif device is not None and hasattr(device, "idx"):            # a torch.cuda.device
        return device.idx
    if not optional:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
    return driver.current().current_device()


def there(device=None, says="Invalid device id", error_class=AssertionError):
    """(the driver, the index of a device) where that device is; else an `error_class` with PyTorch's words first."""
    software = driver.current()
    index = _get_device_index(device, optional=True)
    count = software.device_count()
    if not 0 <= index < count:
        known = "there is only cuda:0" if count == 1 else f"there are cuda:0 to cuda:{count - 1}"
        raise error_class(f"{says}: {index}; {known}")
    return software, index
