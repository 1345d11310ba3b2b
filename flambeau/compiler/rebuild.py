# cython: boundscheck=False
"""What a replay reads and makes, Value by Value, storage by storage, tensor by tensor.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""
from ..tensor.tensor import Tensor
from ..trace.exclusive import is_sole_grad
from ..trace.recording import new


def new_storage(value, facts):
    """A cell that holds `value`, with the `facts` (bytes, device, version, whether of inference mode)."""
    storage = new.storage()
    storage.value = value
    storage.nbytes, storage.device, storage.version, storage.inference = facts
    storage.exported = False
    storage.fingerprint = None
    return storage


def new_tensor(storage, facts):
    """A tensor over `storage`, with the facts that `facts_of` (runtime.py) gave."""
    made = new.tensor(Tensor)
    cls, made._spec, made._offset, made._site, made._cut, made._requires_grad, view_of = facts
    made._storage = storage
    made._node = made._base = None
    if cls is not Tensor:
        made.__class__ = cls
    if view_of is not None:
        made._view_of = view_of
    return made


def values_of(storages):
    """The Values that are in these storages, a list of them."""
    return [storage.value for storage in storages]


def put_results(made, rows):
    """Give storages what was made for them: rows of (storage, place in `made`, by how much its version rises, who wrote
    it)."""
    for storage, at, rose, writer in rows:
        storage.value = made[at]
        if rose:
            storage.version += rose
            storage.writer = writer


# --- gradients that take the place of the last ones -------------------------------------------------------------------
#
# Rows of (tensor, place in `made`, facts of a storage, facts of a tensor).

def recycle(made, rows):
    """Put the contents of gradients that are not seen elsewhere into `made`, to be written over; gives what was put."""
    found = []
    for tensor, at, _, _ in rows:
        value = made[at] = recycled(tensor)
        found.append(value)
    return found


def renew(made, found, rows):
    """Give the tensors whose gradients were not written over new ones."""
    for number, (tensor, at, cell, facts) in enumerate(rows):
        value = made[at]
        if value is not found[number]:
            tensor._grad = new_tensor(new_storage(value, cell), facts)


def recycled(tensor):
    """The contents of a tensor's gradient that is about to be replaced, if they are not seen elsewhere; else None."""
    if not is_sole_grad(tensor):
        return None
    grad = tensor._grad
    storage = grad._storage
    value = storage.value
    if value.spec is not grad._spec or value._memory is not None or storage.exported or storage.readonly:
        return None
    value.address()
    return value
