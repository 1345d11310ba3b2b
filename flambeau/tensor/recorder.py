"""Record a call of the common kind: the way of nearly all calls, and written to be short.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""
from ..autograd.edges import requires
from ..autograd.modes import modes
from ..base.entry import NotedCall
from ..trace.recording import new
from ..trace.recording.append import TraceBase
from ..trace.recording.record import current
from ..trace.running import quick
from .history import add_history, make_node
from .tensor import Tensor

MAX_COPIED_EXPORT_BYTES = 1 << 12      # of memory that the outside holds: to copy more costs more than to run the trace


def record_one(entry, args, inputs, params):
    """The common case, short: one result, on a device, nothing to verify. The same as `record`."""
    trace = quick.this_trace()
    site = trace.site or quick.here()
    if trace.own_append:
        value = trace.append(entry, inputs, params, site)
    else:                                         # compiled, a function is called in less time than a method
        value = TraceBase.append(trace, entry, inputs, params, site)
    spec = value.spec
    storage = new.storage()
    storage.value = value
    storage.nbytes = entry.nbytes
    storage.device = spec.device
    storage.version = 0
    storage.exported = storage.inference = False
    storage.fingerprint = None
    tensor = new.tensor(Tensor)
    tensor._storage = storage
    tensor._spec = spec
    tensor._offset = 0
    tensor._node = tensor._base = tensor._cut = None
    tensor._requires_grad = False
    tensor._site = site
    wanted, bit, cut = 0, 1, None
    for t in inputs:
        if t._node is not None or t._requires_grad or t._base is not None and requires(t):
            wanted |= bit
        elif t._cut is not None:
            cut = t._cut
        if t._storage.exported:
            read_exported(inputs)
        bit += bit
    if trace.special:
        add_history(entry.op, entry, args, inputs, (tensor,), site)
    elif wanted:
        if not modes.grad:
            tensor._cut = ("torch.no_grad()", site)
        else:
            make_node(entry, args, inputs, (tensor,), site, wanted, False)
    elif cut is not None:
        tensor._cut = cut
    if trace.tape is not None:
        trace.tape.append(NotedCall(entry, args, inputs, params, -1, tensor))
    return tensor


def record_several(entry, args, inputs, params):
    """`record_one` of an operation with several results: the list of them. Written out here and there, since
    interpreted a call for each tensor would take as long as all of this."""
    trace = quick.this_trace()
    site = trace.site or quick.here()
    outs, exported = [], False
    for value in trace.append(entry, inputs, params, site):
        spec = value.spec
        storage = new.storage()
        storage.value = value
        storage.nbytes = spec.nbytes
        storage.device = spec.device
        storage.version = 0
        storage.exported = storage.inference = False
        storage.fingerprint = None
        tensor = new.tensor(Tensor)
        tensor._storage = storage
        tensor._spec = spec
        tensor._offset = 0
        tensor._node = tensor._base = tensor._cut = None
        tensor._requires_grad = False
        tensor._site = site
        outs.append(tensor)
    for t in inputs:
        exported = exported or t._storage.exported
    if exported:
        read_exported(inputs)
    add_history(entry.op, entry, args, inputs, outs, site)
    if trace.tape is not None:
        trace.tape.append(NotedCall(entry, args, inputs, params, -1, outs))
    return outs


def read_exported(inputs, has_effect=False):
    """Have what was recorded last read now what the outside can write; see Note [Exported storages] in value.py.
    `has_effect`: it does something besides, at this moment."""
    trace = current()
    for t in inputs:
        storage = t._storage
        if storage.exported and storage.still_exported() \
                and (has_effect or storage.nbytes > MAX_COPIED_EXPORT_BYTES or not trace.read_copy(storage.value)):
            trace.run()
            return
