"""What the CPU knows of contents that stand on another device, so that a check at the call need not wait for it.

Note [Checks without waiting]: positions are checked at the call, where the message can name the line. Those of a tensor
on a GPU would have to be brought back first, and a program that waits for a GPU in every step loses the time in which
the next step could have been recorded. But most positions come from the CPU (a batch of words, class numbers), or are
made of nothing (`arange`). So a Value of whole numbers that was copied from the CPU keeps what was copied; one that is
pending, there or on the CPU, is computed on the CPU too, where that is little work; and one that had to be brought back
keeps what was brought. A Value never changes, so neither does what is kept, and it goes with the Value; where a replay
makes a new Value of an old one, it forgets that. Nothing is kept of memory that may be written from outside (Note
[Exported storages] in value.py).
"""
import numpy as np

from ..backends import reference
from ..backends.cpu import host
from ..base.spec import CPU, META
from .recording.update import update
from .running import interpret

MAX_KEPT_BYTES = 32 << 20       # of contents that are kept
MAX_BROUGHT_BYTES = 1 << 20      # of all that a tensor sees only a part of: one element of it takes about as long
MAX_COMPUTED_ELEMENTS = 1 << 16  # of a pending Value that is computed on the CPU as well
MAX_COMPUTED_DEPTH = 8           # instructions that it comes from, one after the other
MAX_CHECKS_KEPT = 64             # that contents have passed
NUMBERS_AND_NOTHING = (int, float, bool, type(None))


def remember(value, array):
    """Keep of a Value of another device what `array` of the CPU holds, which it is a copy of, if that is whole numbers.

    They are copied: the memory may be another owner's, or be written over.
    """
    if _worth_keeping(value.spec):
        value.on_host = _bytes_of(array, value.spec)


def known(tensor):
    """The contents of a tensor on another device, where the CPU knows them without waiting; else None."""
    storage = tensor._storage
    if storage.device is CPU or storage.exported:
        return None
    memory = _found(storage.value, MAX_COMPUTED_DEPTH)
    return None if memory is None else _laid_out(memory, tensor._spec, tensor._offset)


def _laid_out(memory, spec, offset):
    made = host.laid_out(memory, spec.shape, spec.dtype.np, spec.np_strides, offset * spec.dtype.itemsize)
    made = made.view(KnownArray)
    made.extremes = memory.extremes.setdefault((spec, offset), {})
    return made


class KeptBytes(np.ndarray):
    """Bytes that are kept, and what is known of the looks at them: {(spec, offset): {"min": …, "max": …}}, and the
    checks that they have `passed`."""


class KnownArray(np.ndarray):
    """A look at what is kept. Most checks ask for the smallest and the largest of half a million positions at every
    call, and these are found once."""

    extremes = None

    def min(self, *args, **kwargs): return self._extreme("min", args, kwargs)
    def max(self, *args, **kwargs): return self._extreme("max", args, kwargs)

    def _extreme(self, which, args, kwargs):
        known = self.extremes
        if known is None or args or kwargs or not self.size:
            return getattr(np.asarray(self), which)(*args, **kwargs)
        if which not in known:
            known[which] = getattr(np.asarray(self), which)()
        return known[which]


def read(value, spec, offset, keeps=True):
    """The array that a tensor of `spec`, `offset` elements in, sees of a Value, for NumPy to read; run if pending.

    What is brought back is kept where `keeps`.
    """
    device = value.spec.device
    memory = _found(value, MAX_COMPUTED_DEPTH) if device is not CPU and keeps else None
    if memory is None and value.trace is not None:
        value.ready()                             # which observers would take for a look at what is there, too
    if device is CPU:
        return value.look(spec, offset)
    if memory is None:
        whole = value.spec
        if not keeps or not _worth_keeping(whole) or spec.numel < whole.numel and whole.nbytes > MAX_BROUGHT_BYTES:
            return value.read(spec, offset)
        value.on_host = memory = _bytes_of(value.read(whole, 0), whole)
    return _laid_out(memory, spec, offset)


def checks_passed(op, positions, args):
    """(The set of checks that the contents of a tensor have passed, the key of the one that `op` makes); None where it
    is not about one tensor of another device whose contents are kept. `positions`: see tensor/verify.py."""
    memory, key = None, [op]
    for at, is_spec in positions:
        a = args[at]
        if is_spec:
            key.append(getattr(a, "_spec", None))
        elif a.__class__ in NUMBERS_AND_NOTHING:
            key.append((a.__class__, a))
        else:
            storage = getattr(a, "_storage", None)
            if memory is not None or storage is None or storage.device is CPU or storage.device is META \
                    or storage.exported:
                return None
            memory = getattr(storage.value, "on_host", None)
            if memory is None:
                return None
            key += (a._spec, a._offset)
    if memory is None:
        return None
    if len(memory.passed) >= MAX_CHECKS_KEPT:
        memory.passed.clear()
    return memory.passed, tuple(key)


def execute(entry, arrays, params):
    """The results of an instruction over NumPy arrays, wherever its tensors stand."""
    leaves = entry.outs is not None and entry.outs[0].device is not CPU          # a copy from the CPU to a GPU
    return (interpret if entry.device is CPU and not leaves else reference).execute(entry, arrays, params)


def _worth_keeping(spec):
    return spec.dtype.category <= 1 and spec.nbytes <= MAX_KEPT_BYTES and spec.device is not META


def _bytes_of(array, spec):
    """The bytes of a NumPy array laid out as `spec`, in memory of their own."""
    memory = np.empty(spec.nbytes, np.uint8).view(KeptBytes)
    memory.extremes, memory.passed = {}, set()
    if spec.numel:
        _laid_out(memory, spec, 0)[...] = array
    return memory


def _found(value, depth):
    """The bytes of a Value that the CPU knows, or can compute; None where it cannot."""
    memory = getattr(value, "on_host", None)
    if memory is not None or value.trace is None or not depth:
        return memory
    trace, spec = value.trace, value.spec
    if spec.numel > MAX_COMPUTED_ELEMENTS or spec.device is not CPU and not _worth_keeping(spec):
        return None
    made = next((one for one in reversed(list(trace.code)) if one.first == value.slot), None)
    if made is None or made.entry.many or made.entry.op.effect or made.entry.op is update:
        return None
    arrays = []
    for slot, look, offset in zip(made.slots, made.entry.input_specs, made.offsets, strict=True):
        operand = trace.values[slot]
        if operand.spec.device is CPU and operand.trace is None:
            arrays.append(operand.look(look, offset))
            continue
        memory = _found(operand, depth - 1)
        if memory is None:
            return None
        arrays.append(_laid_out(memory, look, offset))
    value.on_host = memory = _bytes_of(execute(made.entry, arrays, made.params)[0], spec)
    return memory
