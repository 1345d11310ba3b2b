"""Which devices there are: what opens each, what runs an operation that touches several, which one a number means.

A Backend (backend.py) is what one device does. Here they are found: `register` has `torch.device(type)` name the
devices of a type, and a Backend is made when a tensor is first asked for on its device. What is asked about a type of
devices as a whole (`available`, `accelerator`, `types["cuda"].count()`) is asked here, and starts none of them.
"""
import threading
from collections.abc import Callable
from typing import Any

from ..base import spec as specs
from ..base.locks import new_lock
from ..base.spec import CPU, Spec
from .backend import Array, Backend
from .cpu.backend import CPUBackend


def execute(entry: Any, arrays: list[Array], params: tuple, own: bool = False) -> list[Array]:
    """The result arrays of one instruction, by the reference of its device.

    Operands that stand elsewhere (a single number on the CPU may join any device) are brought there, and results to
    where their specs say. In a plan, these copies are steps of their own.
    """
    here, ins, outs = entry.device, entry.input_specs, entry.outs
    if entry.compiles:                                    # nothing stands elsewhere
        return here.backend.execute(entry, arrays, params, own)
    if any(spec.device is not here for spec in ins):
        arrays = [a if spec.device is here else _moved(a, spec, here) for a, spec in zip(arrays, ins, strict=True)]
    made = here.backend.execute(entry, arrays, params, own)
    if outs is None or all(spec.device is here for spec in outs):
        return made
    return [a if spec.device is here else _moved(a, spec.on(here), spec.device)
            for a, spec in zip(made, outs, strict=True)]


def _moved(array: Array, spec: Spec, device: Any) -> Array:
    """`array`, laid out as `spec` on its device, on another `device`."""
    return device.backend.copy_from(spec.device.backend, array, spec.on(device))


class DeviceTypeInfo:
    """The devices of one type: what they can do, how many there are, and which of them a thread means by the type."""

    def __init__(self, make: Callable[[int], Backend], backend: Callable[[], type[Backend]] | None = None,
                 count: Callable[[], int] | None = None, current: Callable[[], int] | None = None,
                 choose: Callable[[int], None] | None = None,
                 absence: Callable[[], Exception | None] | None = None) -> None:
        self.backend = backend or (lambda: make if isinstance(make, type) else Backend)
        self.count = count or (lambda: 1)
        self.current, self.choose = current or self._chosen, choose or self._choose
        self.absence = absence or (lambda: None)
        self._of_thread = threading.local()

    def _chosen(self) -> int:
        return getattr(self._of_thread, "index", 0)

    def _choose(self, index: int) -> None:
        self._of_thread.index = index


DEVICE_NUMBERS, PRIVATE_USE = {"cpu": 0, "cuda": 1}, 20     # PyTorch's numbers for types, and for all that others add
types: dict = {"cpu": DeviceTypeInfo(CPUBackend)}
accelerators: list[str] = []       # the types, the one that was registered last first
_opening = new_lock()         # one Backend for each device, whose memory it counts


def register(device_type: str, make: Callable[[int], Backend], **says: Callable) -> None:
    """Let `torch.device(device_type)` name the devices that `make(index)` gives a Backend for; it raises for one that
    is not there.

    What a type says for itself, each a function: `backend()` gives the class of its Backends, which is asked what they
    can do before there is one, where `make` is another function than that class; `count()` says how many devices there
    are, else one; `current()` gives the index of the device that is meant where none is numbered, and `choose(index)`
    makes it another, else each thread begins with the first; and `absence()` gives the error that says why none can be
    used, or None. Only `current` and `choose` may start a device.
    """
    found = types[device_type] = DeviceTypeInfo(make, **says)

    def opened(device: Any) -> specs.device:
        if device.index is None:
            device = specs.device(device_type, found.current())
        if device.backend is None:
            with _opening:
                if device.backend is None:
                    backend = make(device.index)
                    backend.device = device
                    device.backend = backend
        return device
    specs.openers[device_type] = opened
    accelerators[:] = [device_type, *(other for other in accelerators if other != device_type)]


def number_of(device_type: str) -> int:
    """PyTorch's number for a type of devices; it has one for all that others add."""
    return DEVICE_NUMBERS.get(device_type, PRIVATE_USE)


def absence(device_type: str) -> Exception | None:
    """None where devices of a type can be used, else the error that says why not. Starts nothing."""
    if device_type not in types:
        return RuntimeError(f"there is no device of type {device_type} here")
    return types[device_type].absence()


def available(device_type: str) -> bool:
    """Whether there is a device of a type that can be used. Starts nothing."""
    return absence(device_type) is None


def accelerator() -> str | None:
    """The type of the devices besides the CPU, None without one. Of several, it is that which was registered last, as
    in PyTorch, where a device that a package adds goes before those that it comes with. Starts nothing."""
    return next((device_type for device_type in accelerators if available(device_type)), None)


def need_accelerator(what: str = "") -> str:
    """The type of the devices besides the CPU; refused, and said why, where there is none."""
    found = accelerator()
    if found is None:
        raise RuntimeError(f"Cannot access accelerator device when none is available{what}. "
                           f"{absence(accelerators[-1])}")
    return found


def in_use(*of_types: str) -> list[specs.device]:
    """The devices that were asked for, of these types, or of all besides the CPU."""
    named = [specs.device(device_type, index) for device_type in of_types or accelerators if available(device_type)
             for index in range(types[device_type].count())]
    return [device for device in named if device.backend is not None]


# --- NVIDIA's GPUs: loaded when one is asked for, and with them CuPy, which programs on the CPU never need


def _cuda() -> Any:
    from . import cuda
    return cuda


CPU.backend = CPUBackend()
CPU.backend.device = CPU
register("cuda", lambda index: _cuda().open_device(index), backend=lambda: _cuda().backend_class(),
         count=lambda: _cuda().driver.device_count(), current=lambda: _cuda().driver.current().current_device(),
         choose=lambda index: _cuda().driver.current().set_device(index), absence=lambda: _cuda().driver.absence())
specs.accelerator = lambda number: need_accelerator(f": device({number}) means one")
