"""`torch.storage`: the memory behind tensors as objects, with and without a dtype."""
from .compat.missing import rest_of
from .tensor import typed_storage as _typed
from .tensor.storage import StorageBase, UntypedStorage
from .tensor.typed_storage import TypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
_StorageBase = StorageBase                                             # for isinstance
_LegacyStorage = _typed._LegacyStorage
_warn_typed_storage_removal = _typed._warn_typed_storage_removal
_reset_warn_typed_storage_removal = _typed._reset_warn_typed_storage_removal

__path__: list = []
__getattr__ = rest_of("torch.storage")


def _load_from_bytes(b):
    """The storage in a pickle of a PyTorch tensor, which holds it as a file of its own."""
    import io

    from .serialization import load
    return load(io.BytesIO(b), weights_only=True)
