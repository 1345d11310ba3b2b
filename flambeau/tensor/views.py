"""Views: other looks at a tensor's storage. They record no instruction; their history says what they are views of.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""
from ..autograd.edges import requires
from ..autograd.forward_ad import propagate
from ..autograd.modes import modes
from ..base.entry import NotedCall
from ..trace.recording import new
from ..trace.recording.record import _local
from ..trace.running import quick
from .history import add_history, make_node
from .tensor import Tensor, wrap


def view_one(entry, args, source, moved):
    """The common case of `view_any`, short: one view, of the same dtype, of an operation with a gradient."""
    trace = quick.this_trace()
    storage = source._storage
    if trace.special or storage.inference:
        return view_any(entry, entry.op, args, source, moved)
    base = source._base
    tensor = new.tensor(Tensor)
    tensor._storage = storage
    tensor._spec = entry.outs[0]
    tensor._offset = source._offset + entry.deltas[0] + moved
    tensor._node = tensor._cut = None
    tensor._requires_grad = False
    tensor._seen = storage.version
    tensor._site = site = trace.site or quick.here()
    if source._data_version is not None:
        tensor._data_version = source._data_version
    if base is None:
        tensor._base = source
        why = None
        wanted = source._node is not None or source._requires_grad
    else:
        tensor._base = base
        why = source._view_of
        wanted = requires(source)
    grad = modes.grad
    if why is not None or not grad:
        tensor._view_of = why or "no_grad"
    if wanted:
        if grad:
            make_node(entry, args, (source,), (tensor,), site, 1, False)
        else:
            tensor._cut = ("torch.no_grad()", site)
    elif source._cut is not None:
        tensor._cut = source._cut
    if trace.tape is not None:
        trace.tape.append(NotedCall(entry, args, (source,), (), moved, tensor))
    return tensor


def view_any(entry, op, args, source, moved):
    """Views of `source`: same storage, no instruction. They start `moved` elements after where the entry says."""
    site = _local.trace.site or quick.here()
    storage = source._storage
    itemsize = source._spec.dtype.itemsize
    outs = []
    for spec, delta in zip(entry.outs, entry.deltas, strict=True):
        tensor = wrap(storage, spec)
        scale = spec.dtype.itemsize
        tensor._offset = (source._offset if scale == itemsize else source._offset * itemsize // scale) + delta + moved
        tensor._site = site
        if source._data_version is not None:
            tensor._data_version = source._data_version
        outs.append(tensor)
    if op.differentiable and not storage.inference:      # memory read as another dtype has no history, so no base
        base = source._base if source._base is not None else source
        version = storage.version
        why = "inference" if modes.inference else None if modes.grad else "no_grad"
        if entry.many:
            why = why or "several"
        elif source._view_of is not None:
            why = source._view_of
        for tensor in outs:
            tensor._base = base
            tensor._seen = version
            if why is not None:
                tensor._view_of = why
    if not storage.inference or modes.inference:         # outside, views of inference tensors have no history
        add_history(op, entry, args, (source,), outs, site)
    elif modes.level >= 0:                               # but the tangent that they look at
        propagate(op, entry, args, (source,), outs)
    made = tuple(outs) if entry.many else outs[0]
    if _local.trace.tape is not None and not storage.inference:
        _local.trace.tape.append(NotedCall(entry, args, (source,), (), moved, made))
    return made
