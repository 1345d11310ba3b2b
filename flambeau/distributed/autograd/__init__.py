"""`torch.distributed.autograd`: gradients across processes, which are not here."""
from ...compat.missing import rest_of

__all__ = ["is_available"]
__getattr__ = rest_of("torch.distributed.autograd")


def is_available():
    """Whether gradients can be found across processes: they cannot."""
    return False
