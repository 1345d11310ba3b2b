"""Results that take the place of all that storages hold: the common way of in-place calls, and of optimizers.

Nothing is copied: the storage gets another Value, and the old one is there for as long as it is held. What is
written in any other way stands in write.py.

Note [Threads that write to one storage]: each may write cells of its own, as threads that fill the rows of a batch do,
but here a write makes new contents for the whole storage of what it held before. So a writer first shows its tuple
(site, name of the operation) as `storage.writer`, then reads, and gives the storage its result only while that very
tuple stands there: another one means that another thread began to write after the reading, perhaps of the same
contents, and what the other one wrote would be lost. Who finds that out begins again. No lock is taken, since what is
recorded may run another thread's trace; between the comparison and the store there is no call, so that no other thread
comes between them.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""
from ..autograd.modes import modes
from ..base import observers
from ..base.entry import ONE_RESULT
from ..base.op import known
from ..base.spec import META
from ..trace.recording.record import _local
from ..trace.running import quick
from . import overrides
from .find import find, plain_types
from .infer import check_fits, prepared


def written_whole(op, facts, self, args, kwargs):
    """Write the result of a call into the tensor `self` if it takes the place of all that its storage holds, and
    nothing wants a gradient.

    Whether that was the case; if not, nothing has been done.
    """
    _, entry, full, inputs = find(op, facts, args, kwargs)
    if entry is None or entry.way != ONE_RESULT or entry.outs[0] is not self._spec or \
            overrides.calls_observed and overrides.function_modes.told is not facts:
        return False
    if entry.fits is not None and (kwargs or not facts.fits_by_name):
        check_fits(entry, full)
    storage, trace = self._storage, _local.trace
    if storage.nbytes != entry.nbytes or self._offset or storage.readonly or storage.inference or trace.special:
        return False
    grad = modes.grad
    for t in inputs:
        if grad and (t._node is not None or t._requires_grad or t._base is not None or t._cut is not None) \
                or t._storage.exported or t._storage is storage and t is not self:
            return False
    if (tell := observers.wrote) is not None:
        tell(storage)
    if modes.levels:
        modes.levels[-1].wrote(storage)
    site = trace.site or quick.here()
    params = entry.pick(full) if entry.pick is not None else ()
    writer = (site, facts.in_place)
    while True:                                       # see Note [Threads that write to one storage]
        storage.writer = writer
        value = trace.append(entry, inputs, params, site)
        if storage.writer is writer:
            storage.value = value
            break
    storage.version += 1
    if self._data_version is not None:
        hide_write(self)
    return True


def updated_whole(op, tensors, numbers):
    """Put the results of `op`, an operation without gradients, into those of its `tensors` that it `writes`, if they
    fill their storages and nothing else looks at those now: one instruction.

    Whether that was the case; if not, nothing has been done. The tensors have to be of one dtype, and what is no tensor
    a plain number; any of them may be None.
    """
    for n in numbers:
        if type(n) not in plain_types:
            return False
    first = tensors[0]
    dtype = first._spec.dtype
    for t in tensors:
        if t is not None and t._spec.dtype is not dtype:
            return False
    _, entry, full, inputs = find(op, known.get(op) or prepared(op), tensors + numbers, None,
                                  bool(overrides.modes_active))
    trace = _local.trace
    if entry is None or entry.device is META or modes.grad or trace.special:
        return False
    written = []
    for at in op.writes:
        t = tensors[at]
        if t is not None:
            out = entry.outs[len(written)]
            storage = t._storage
            if t._spec is not out or storage.nbytes != out.nbytes or t._offset or storage.readonly \
                    or storage.inference:
                return False
            for other in written:
                if other._storage is storage:
                    return False
            written.append(t)
    for t in inputs:
        storage = t._storage
        if storage.exported:
            return False
        for other in written:
            if other._storage is storage and other is not t:
                return False
    if (tell := observers.wrote) is not None:
        for t in written:
            tell(t._storage)
    site = trace.site or quick.here()
    made, writer = trace.append(entry, inputs, entry.pick(full), site), (site, op.__name__)
    for at, t in enumerate(written):
        storage_gets(t, made[at], writer)
    return True


def storage_gets(tensor, value, writer):
    """Give the storage of `tensor` other contents, written by (site, name of the operation)."""
    storage = tensor._storage
    storage.version += 1
    if modes.levels:
        modes.levels[-1].wrote(storage)
    if tensor._data_version is not None:
        hide_write(tensor)
    storage.writer = writer
    storage.value = value


def hide_write(self):
    """The write that was just counted came through `.data`; see Note [Writes through .data] in value.py."""
    self._data_version.count += 1
    self._storage.hide_write(self._spec, self._offset)
