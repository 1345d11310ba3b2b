"""Look through what is there: every buffer, whose it is and what it is for."""
from ..backends.devices import in_use
from ..base.observers import Allocation
from ..base.spec import CPU, as_device
from ..tensor import out_of_memory
from ..trace.recording.record import run_all
from .model import Holding, MemoryOfDevice, MemorySnapshot
from .names import keepers_of, module_names, storage_of, variables


def devices():
    """The CPU, and all other devices that are in use."""
    return [CPU, *in_use()]


def snapshot(device=None, keepers=0):
    """Who holds which memory now, of one device or of all: a MemorySnapshot.

    What is recorded is computed first. For the `keepers` largest buffers of each device it is looked for what keeps
    them alive, which takes some milliseconds for each.
    """
    run_all()
    known = variables()
    named = module_names(known)
    return MemorySnapshot([_of_device(one, known, named, keepers)
                           for one in (devices() if device is None else [as_device(device)])])


def adopted(holding):
    """An Allocation for the block of a Holding, which was given out before observation began: observers are told when
    it comes back."""
    device = as_device(holding.device)
    made = Allocation(holding.nbytes, device, holding.address)
    made.site = None
    return device.backend.adopt(holding.address, made)


def _of_device(device, known, named, keepers):
    backend = device.backend
    role_of = {id(value): role for value, role in out_of_memory.roles(device)}
    found, outside, blocks = [], 0, set()
    for value, line, spec, tensor in out_of_memory.holders(device):
        block = backend.block_of(value.array)
        address, nbytes = block or (0, value.array.nbytes)
        if block is None:
            outside += nbytes
        elif address in blocks:
            continue
        blocks.add(address)
        called = _name(tensor, known, named)
        found.append((Holding(str(device), nbytes, value.array.nbytes, role_of.get(id(value), "other"), line,
                              f"{spec.dtype.name}{list(spec.shape)}", *called, address, block is None), tensor, value))
    found.sort(key=lambda one: (-one[0].nbytes, one[0].line))
    for holding, tensor, value in found[:keepers]:
        holding.keepers = keepers_of(tensor if tensor is not None else value, known, named, (found, role_of))
    stats = backend.statistics()
    return MemoryOfDevice(str(device), stats.get("allocated_bytes.all.current", 0),
                          stats.get("reserved_bytes.all.current", 0), stats.get("allocated_bytes.all.peak", 0),
                          backend.memory_limit(), outside, [holding for holding, _, _ in found])


def _name(tensor, known, named):
    """(what a tensor is called, the path of its module), None where it has none."""
    if tensor is None:
        return None, None
    if id(tensor) in named:
        return named[id(tensor)]
    if id(tensor) in known and known[id(tensor)][2] is tensor:
        return known[id(tensor)][0], None
    return None, None


def tensors(device=None, limit=None):
    """Holdings of the buffers of a device, or all, the largest first, with names and what keeps them alive."""
    found = [one for found in snapshot(device, keepers=limit or 20).devices for one in found.holdings]
    return sorted(found, key=lambda one: -one.nbytes)[:limit]


def why_alive(tensor):
    """What keeps a tensor's memory alive, in words, besides the variable that it was given by."""
    known = variables()
    named = module_names(known)
    return list(dict.fromkeys([*keepers_of(tensor, known, named), *keepers_of(storage_of(tensor), known, named)]))
