"""Which devices there are: what opens each, what runs an operation that touches several, which one a number means.

A Backend (backend.py) is what one device does. Here they are found: `register` has `torch.device(device_type)` name the
devices of a kind, and a Backend is made when a tensor is first asked for on its device.
"""
from ..base import spec as specs
from ..base.locks import new_lock
from ..base.spec import CPU
from .cpu.backend import CPUBackend


def execute(entry, arrays, params, own=False):
    """The result arrays of one instruction, by the reference of its device.

    Operands that stand elsewhere (a single number on the CPU may join any device) are brought there, and results to
    where their specs say. In a plan, these copies are steps of their own.
    """
    here, kinds, outs = entry.device, entry.kinds, entry.outs
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


_opening = new_lock()         # one Backend for each device, whose memory it counts


def register(device_type, make, current=None):
    """Let `torch.device(device_type)` name the devices that `make(index)` gives a Backend for; it raises for one
    that is not there. `current` gives the index of the one that is meant where none is named; else the first is."""
    def opened(device):
        if device.index is None:
            device = specs.device(device_type, 0 if current is None else current())
        if device.backend is None:
            with _opening:
                if device.backend is None:
                    backend = make(device.index)
                    backend.device = device
                    device.backend = backend
        return device
    specs.openers[device_type] = opened


def _open_cuda(index):
    from .cuda import open_device  # and with it CuPy, which programs on the CPU never need
    return open_device(index)


def _current_cuda():
    from .cuda import current_index
    return current_index()


def has_cuda():
    """Whether there is a GPU that can be used. Starts nothing."""
    from .cuda import absence
    return absence() is None


def _accelerator(number):
    """The type of the device that a bare number means."""
    from .cuda import absence
    found = absence()
    if found is not None:
        raise RuntimeError(f"Cannot access accelerator device when none is available: device({number}) means one. "
                           f"{found}")
    return "cuda"


CPU.backend = CPUBackend()
CPU.backend.device = CPU
register("cuda", _open_cuda, _current_cuda)
specs.accelerator = _accelerator
