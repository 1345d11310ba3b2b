"""`torch._prims_common`: rules that PyTorch's operations share. torchvision and transformers call these."""
from .missing import rest_of

__getattr__ = rest_of("torch._prims_common")


def alert_not_deterministic(caller):
    """Refuse, or warn, where deterministic algorithms are asked for. Here results do not depend on timing anyway."""


def is_contiguous_or_false(a):
    """Whether the elements of a tensor lie in row-major order without gaps."""
    return a.is_contiguous()
