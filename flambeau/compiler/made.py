"""What a replay reads and makes, Value by Value, storage by storage, tensor by tensor.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""
from ..base.ownership import may_recycle_grad
from ..tensor.tensor import Tensor
from ..trace import new
from ..trace.value import Value


def put_addresses(values, places, table):
    """Have `values` ready, and put their addresses into `table`, by the (number of the value, index) in `places`."""
    for value in values:
        if value.trace is not None:
            value.ready()
    for at, index in places:
        value = values[at]
        try:
            address = value._address
        except AttributeError:                    # interpreted, one that was not set
            address = None
        table[index] = value.address() if address is None else address


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
    kind, made._spec, made._offset, made._site, made._cut, made._requires_grad, view_of = facts
    made._storage = storage
    made._node = made._base = None
    if kind is not Tensor:
        made.__class__ = kind
    if view_of is not None:
        made._view_of = view_of
    return made


def in_memory_of(old, spec):
    """The Value of spec `spec` that stands in the memory of `old`, whose contents nobody needs any more."""
    if old.spec is spec:
        old.on_host = None
        return old
    return Value.of(old.look(spec, 0), spec)


def recycled(tensor):
    """The contents of a tensor's gradient that is about to be replaced, if nobody else can see them; else None."""
    if tensor._grad._storage.value.trace is not None or not may_recycle_grad(tensor):
        return None
    grad = tensor._grad
    value, storage = grad._storage.value, grad._storage
    if value.spec is not grad._spec or value._memory is not None or storage.exported or storage.readonly:
        return None
    value.address()
    return value
