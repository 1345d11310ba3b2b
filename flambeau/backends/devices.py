"""Which devices there are: what opens each, what runs an operation that touches several, which one a number means.

A Backend (backend.py) is what one device does. Here they are found: `register` has `torch.device(kind)` name the
devices of a kind, and a Backend is made when a tensor is first asked for on its device. What is asked about a kind of
devices as a whole (`available`, `accelerator`, `kinds[kind].count()`) is asked here, and starts none of them.
"""
import threading

from ..base import spec as specs
from ..base.locks import new_lock
from ..base.spec import CPU
from .backend import Backend
from .cpu.backend import CPUBackend


def execute(entry, arrays, params, own=False):
    """The result arrays of one instruction, by the reference of its device.

    Operands that stand elsewhere (a single number on the CPU may join any device) are brought there, and results to
    where their specs say. In a plan, these copies are steps of their own.
    """
    here, kinds, outs = entry.device, entry.input_specs, entry.outs
    if any(kind.device is not here for kind in kinds):
        arrays = [a if kind.device is here else _moved(a, kind, here) for a, kind in zip(arrays, kinds, strict=True)]
    made = here.backend.execute(entry, arrays, params, own)
    if outs is None or all(spec.device is here for spec in outs):
        return made
    return [a if spec.device is here else _moved(a, spec.on(here), spec.device)
            for a, spec in zip(made, outs, strict=True)]


def _moved(array, spec, device):
    """`array`, laid out as `spec` on its device, on another `device`."""
    return device.backend.copy_from(spec.device.backend, array, spec.on(device))


class DeviceKind:
    """The devices of one kind: what they can do, how many there are, and which of them a thread means by the kind."""

    def __init__(self, make, backend=None, count=None, current=None, choose=None, absence=None):
        self.backend = backend or (lambda: make if isinstance(make, type) else Backend)
        self.count = count or (lambda: 1)
        self.current, self.choose = current or self._chosen, choose or self._choose
        self.absence = absence or (lambda: None)
        self._of_thread = threading.local()

    def _chosen(self):
        return getattr(self._of_thread, "index", 0)

    def _choose(self, index):
        self._of_thread.index = index


DEVICE_NUMBERS, PRIVATE_USE = {"cpu": 0, "cuda": 1}, 20     # PyTorch's numbers for kinds, and for all that others add
kinds: dict = {"cpu": DeviceKind(CPUBackend)}
accelerators: list = []       # the types, the one that was registered last first
_opening = new_lock()         # one Backend for each device, whose memory it counts


def register(kind, make, **says):
    """Let `torch.device(kind)` name the devices that `make(index)` gives a Backend for; it raises for one that is not
    there.

    What a kind says for itself, each a function: `backend()` gives the class of its Backends, which is asked what they
    can do before there is one, where `make` is another function than that class; `count()` says how many devices there
    are, else one; `current()` gives the index of the device that is meant where none is numbered, and `choose(index)`
    makes it another, else each thread begins with the first; and `absence()` gives the error that says why none can be
    used, or None. Only `current` and `choose` may start a device.
    """
    found = kinds[kind] = DeviceKind(make, **says)

    def opened(device):
        if device.index is None:
            device = specs.device(kind, found.current())
        if device.backend is None:
            with _opening:
                if device.backend is None:
                    backend = make(device.index)
                    backend.device = device
                    device.backend = backend
        return device
    specs.openers[kind] = opened
    accelerators[:] = [kind, *(other for other in accelerators if other != kind)]


def number_of(kind):
    """PyTorch's number for a kind of devices; it has one for all that others add."""
    return DEVICE_NUMBERS.get(kind, PRIVATE_USE)


def absence(kind):
    """None where devices of a kind can be used, else the error that says why not. Starts nothing."""
    return kinds[kind].absence() if kind in kinds else RuntimeError(f"there is no device of type {kind} here")


def available(kind):
    """Whether there is a device of a kind that can be used. Starts nothing."""
    return absence(kind) is None


def accelerator():
    """The type of the devices besides the CPU, None without one. Of several, it is that which was registered last, as
    in PyTorch, where a device that a package adds goes before those that it comes with. Starts nothing."""
    return next((kind for kind in accelerators if available(kind)), None)


def need_accelerator(what=""):
    """The type of the devices besides the CPU; refused, and said why, where there is none."""
    found = accelerator()
    if found is None:
        raise RuntimeError(f"Cannot access accelerator device when none is available{what}. "
                           f"{absence(accelerators[-1])}")
    return found


def in_use(*of_kinds):
    """The devices that were asked for, of these kinds, or of all besides the CPU."""
    named = [specs.device(kind, index) for kind in of_kinds or accelerators if available(kind)
             for index in range(kinds[kind].count())]
    return [device for device in named if device.backend is not None]


# --- NVIDIA's GPUs: loaded when one is asked for, and with them CuPy, which programs on the CPU never need


def _cuda():
    from . import cuda
    return cuda


CPU.backend = CPUBackend()
CPU.backend.device = CPU
register("cuda", lambda index: _cuda().open_device(index), backend=lambda: _cuda().backend_class(),
         count=lambda: _cuda().driver.device_count(), current=lambda: _cuda().driver.current().current_device(),
         choose=lambda index: _cuda().driver.current().set_device(index), absence=lambda: _cuda().driver.absence())
specs.accelerator = lambda number: need_accelerator(f": device({number}) means one")
