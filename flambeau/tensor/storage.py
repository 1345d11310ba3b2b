"""Storages as objects: what `untyped_storage()` returns.

The cell itself (trace.value.Storage) is what tensors hold, as their attribute `_storage`; these are handles on it,
equal where the cell is the same.
"""
import numpy as np

from ..base import dtypes
from ..base.spec import CPU, META, spec
from ..trace.value import Storage, Value
from .dispatch import wrap
from .tensor import Tensor
from .write import before_write

PUBLIC = ("UntypedStorage",)


class UntypedStorage:
    """The bytes behind one or more tensors."""

    def __init__(self, size=0, *, storage=None):
        if storage is None:
            size = int(size)
            storage = Storage.of(Value.of(np.empty(size, np.uint8), spec(dtypes.uint8, (size,))), size, CPU)
        self._storage = storage

    @property
    def device(self):
        return self._storage.device

    def nbytes(self):
        """How many bytes there are."""
        return self._storage.nbytes

    size = __len__ = nbytes

    def element_size(self):
        """Bytes per element: one."""
        return 1

    def data_ptr(self):
        """The address of the first byte."""
        return self._tensor().data_ptr()

    def _tensor(self):
        return wrap(self._storage, spec(dtypes.uint8, (self._storage.nbytes,), None, self._storage.device))

    def tolist(self):
        """The bytes as numbers."""
        return self._tensor().tolist()

    def __getitem__(self, index):
        found = self._tensor()[index]
        return found.item() if isinstance(index, int) else UntypedStorage(storage=found.clone()._storage)

    def __setitem__(self, index, value):
        self._tensor()[index] = value

    def __iter__(self):
        return iter(self.tolist())

    def __eq__(self, other):
        return isinstance(other, UntypedStorage) and other._storage is self._storage

    def __hash__(self):
        return id(self._storage)

    def copy_(self, source, non_blocking=None):
        """Overwrite the bytes by those of `source`."""
        self._tensor().copy_(source._tensor())
        return self

    def fill_(self, value):
        """Set every byte to `value`."""
        self._tensor().fill_(value)
        return self

    def clone(self):
        """A copy."""
        return UntypedStorage(storage=self._tensor().clone()._storage)

    def resize_(self, size):
        """Make it `size` bytes long; bytes beyond the old end are not initialised."""
        resize(self._storage, int(size))
        return self

    def untyped(self):
        return self

    def cpu(self):
        return self

    is_cuda = is_sparse = False

    def is_shared(self):
        """Whether other processes see this memory: never here."""
        return False

    def share_memory_(self):
        """Accepted for PyTorch's sake: memory is not shared between processes here."""
        return self

    def is_pinned(self, device=None):
        return False

    def __copy__(self):
        return UntypedStorage(storage=self._storage)

    def __deepcopy__(self, memo):
        from copy import deepcopy
        return UntypedStorage(storage=deepcopy(self._tensor(), memo)._storage)

    def __reduce__(self):
        return untyped, (self._storage,)

    def __repr__(self):
        rows = "" if self._storage.device is META else "".join(f" {n}\n" for n in shortened(self))
        return f"{rows}[torch.storage.UntypedStorage(device={self.device}) of size {len(self)}]"

    __str__ = __repr__


def untyped(cell):
    return UntypedStorage(storage=cell)


def shortened(storage):
    """The elements to print: all of them up to a thousand."""
    found = storage.tolist() if len(storage) <= 1000 else [*storage._tensor()[:10].tolist(), "...",
                                                           *storage._tensor()[-10:].tolist()]
    return found


def resize(cell, nbytes):
    """Give a storage another length, keeping the bytes that fit."""
    if nbytes == cell.nbytes:
        return
    whole = wrap(cell, spec(dtypes.uint8, (cell.nbytes,), None, cell.device))
    before_write(whole, "resize_")
    if cell.device is not META:
        if cell.exported and cell.still_exported():
            raise RuntimeError("cannot resize a storage whose memory NumPy (or another library) holds, or whose "
                               "address was asked for; clone() the tensor first")
        old = cell.value.ready().memory
        fresh = cell.device.backend.xp.zeros(nbytes, np.uint8)
        fresh[:min(nbytes, old.size)] = old[:nbytes]
        cell.value = Value.of_bytes(fresh, cell.device)
    cell.nbytes = nbytes
    cell.version += 1


def untyped_storage(self):
    """The storage behind the tensor, as bytes."""
    return UntypedStorage(storage=self._storage)


def is_shared(self):
    """Whether other processes see this memory: never here."""
    return False


def share_memory_(self):
    """Accepted for PyTorch's sake: memory is not shared between processes here."""
    return self


def is_pinned(self, device=None):
    """Whether the memory is page-locked: never without an accelerator."""
    return False


def pin_memory(self, device=None):
    """Refused: there is no accelerator that page-locked memory would serve."""
    raise RuntimeError("Cannot access accelerator device when none is available: pinned memory speeds up copies to "
                       "one, and there is none here")


def is_set_to(self, tensor):
    """Whether both tensors look at the same memory in the same way."""
    return self._storage is tensor._storage and self.offset == tensor.offset and self.spec.shape == tensor.spec.shape \
        and self.spec.strides == tensor.spec.strides


def no_typed_storage(self):
    raise NotImplementedError("tensor._storage() is deprecated in PyTorch and not in Flambeau; use "
                              "tensor.untyped_storage()")


Storage.__call__ = no_typed_storage
for form in (untyped_storage, is_shared, share_memory_, is_pinned, pin_memory, is_set_to):
    setattr(Tensor, form.__name__, form)
del form
