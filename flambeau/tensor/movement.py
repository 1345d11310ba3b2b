"""Page-locked memory, and copies to and from devices that run beside the program: `pin_memory`, `non_blocking=True`.

A copy ahead happens at the call, where a device can (Note [Copies ahead] in backends/cuda/movement.py); all other
copies are recorded, as operations are. Page-locked memory stays where it is, so writes to it happen at the call too, as
with memory that NumPy looks at.
"""
import functools

from ..autograd.edges import requires
from ..autograd.modes import modes
from ..backends import devices
from ..backends.cpu import host
from ..base import observers
from ..base.errors import here, need
from ..base.spec import CPU, META, as_device, spec
from ..trace.recording.record import current
from ..trace.value import Storage, Value
from .reading import array_of
from .tensor import Tensor, wrap


def _moved_ahead(self, device):
    """`self` on `device`, by a copy that has begun; None where it has to be recorded instead."""
    spec, storage = self._spec, self._storage
    if device is META or spec.device is META or not spec.dense or not spec.numel or modes.grad and requires(self):
        return None
    if spec.device is CPU:
        if not storage.page_locked or not device.backend.copies_ahead or storage.has_outside_arrays():
            return None
        source = storage.value.ready().look(spec, self._offset)
        spec = spec.on(device)
        array, arrival = device.backend.send(source, spec)
        storage.in_flight = arrival
        return arriving(array, spec, arrival)
    if device is not CPU or not spec.device.backend.copies_ahead:
        return None
    source = storage.value.ready().look(spec, self._offset)
    array, arrival = spec.device.backend.fetch(source, spec.on(CPU))
    made = arriving(array, spec.on(CPU), arrival)
    locked(made._storage)
    return made


def arriving(array, spec, arrival):
    """A tensor of spec `spec` over an array whose contents are still on their way."""
    value = Value.of(array, spec)
    value.trace = arrival
    made = wrap(Storage.of(value, spec.nbytes, spec.device), spec)
    if (tell := observers.made) is not None:
        tell(value)
    made._site = here()
    made._storage.inference = modes.inference
    return made


def locked(storage):
    """Mark memory as page-locked: it stays where it is."""
    storage.page_locked = storage.exported = storage._pinned = True


def pinning(device=None):
    """The Backend of a device that copies from page-locked memory by itself; refused where there is none."""
    wanted = devices.accelerator() if device is None else device
    where = wanted and as_device(wanted)
    need(where and where.backend is not None and where.backend.copies_ahead,
         "Cannot access accelerator device when none is available: pinned memory speeds up copies to one, and there is "
         "none here" if where is None or where is CPU else
         f"pinned memory speeds up copies to a device, and {where} has none: its copies run while the caller waits")
    return where.backend


def pinnable(function):
    """Let a function that makes tensors take `pin_memory=True`, where there is a device that it serves."""
    @functools.wraps(function)
    def form(*args, pin_memory=False, **kwargs):
        if pin_memory and devices.accelerator() is not None:
            return new_pinned(function(*args, **kwargs))
        if pin_memory:
            kwargs["pin_memory"] = pin_memory
        return function(*args, **kwargs)
    return form


def new_pinned(made):
    """A tensor that was just made, in page-locked memory instead."""
    return made.pin_memory().requires_grad_(made.requires_grad)


def is_pinned(self, device=None):
    """Whether the memory is page-locked, so that `to(device, non_blocking=True)` runs beside the program."""
    return self._storage.page_locked


def pin_memory(self, device=None):
    """A copy of the tensor in page-locked memory; the tensor itself, if it is there."""
    need(self._spec.device is CPU, f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
    if self._storage.page_locked:
        return self
    own = self._spec
    strides = own.strides if own.dense else None
    own = spec(own.dtype, own.shape, strides)
    memory = pinning(device).page_locked(own.nbytes)
    array = host.laid_out(memory, own.shape, own.dtype.np, own.np_strides) if own.numel else array_of(self).copy()
    array[...] = array_of(self)
    made = wrap(Storage.of(Value.of(array, own), own.nbytes, CPU), own)
    made._site = here()
    locked(made._storage)
    return made


def record_stream(self, s):
    """Keep the memory until the stream `s` has done what it was handed so far, though the tensor is no longer held."""
    backend = self._spec.device.backend
    need(backend is not None and s.device == self._spec.device,
         f"record_stream(): the tensor is on {self.device} and the stream of {s.device}")
    current().run()
    backend.keep_until(self._storage.value.ready().array, s)


for form in (_moved_ahead, is_pinned, pin_memory, record_stream):
    setattr(Tensor, form.__name__, form)
del form
