"""`torch.storage`: the bytes behind tensors. PyTorch's older storages, which have a dtype, are missing."""
from .missing import rest_of
from .tensor.storage import UntypedStorage

__all__ = ["UntypedStorage"]

_INSTEAD = "use untyped_storage(), or the tensor itself"
__path__: list = []
__getattr__ = rest_of("torch.storage", TypedStorage=_INSTEAD)


def _load_from_bytes(b):
    """The storage in a pickle of a PyTorch tensor, which holds it as a file of its own."""
    import io

    from .serialization import load
    return load(io.BytesIO(b), weights_only=True)
