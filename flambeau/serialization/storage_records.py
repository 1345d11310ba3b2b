"""Storages in files: what a persistent id says of one, its byte order, and the way to its tensors."""
from ..tensor.storage import UntypedStorage
from ..tensor.tensor import Tensor
from ..tensor.typed_storage import TypedStorage
from .allowed_globals import StorageClass
from .errors import shown
from .pickler import written


def swap(memory, dtype):
    """Turn the numbers of `dtype` in `memory` to the other byte order."""
    width = dtype.itemsize // (2 if dtype.is_complex else 1)
    if width > 1:
        memory.view(f"u{width}").byteswap(inplace=True)


def plain_text(part):
    """A string, of Python 2 too."""
    return part.decode("latin-1") if type(part) is bytes else part


def check_pid(unpickler, pid):
    """The parts of a persistent id: ("storage", class, key, location, number of elements)."""
    if type(pid) is not tuple or len(pid) < 5 or type(pid[0]) not in (str, bytes) or plain_text(pid[0]) != "storage":
        raise unpickler.broken(f"Only persistent_load of storage is allowed, but got {shown(pid)}")
    storage_class, count = pid[1], pid[4]
    key, location = map(plain_text, pid[2:4])
    if type(storage_class) is not StorageClass or type(key) is not str or type(location) is not str \
            or type(count) is not int or not 0 <= count < 1 << 63:
        raise unpickler.broken(f"a storage is described by {shown(pid)}")
    unpickler.burn_bytes(key, location)
    return storage_class, key, location, count


def ways_to(made, cells):
    """{cell: the ways through containers to the tensors over it}, for a message; one walk for all `cells`."""
    found: dict = {cell: [] for cell in cells}
    seen, stack = set(), [(made, ())]
    while stack:
        thing, path = stack.pop()
        if isinstance(thing, (Tensor, TypedStorage, UntypedStorage)):
            if thing._storage in found:
                found[thing._storage].append(written(path))
        elif isinstance(thing, (dict, list, tuple)) and id(thing) not in seen and len(path) < 100:
            seen.add(id(thing))
            parts = thing.items() if isinstance(thing, dict) else enumerate(thing)
            stack += [(part, (*path, key)) for key, part in parts]
    return {cell: ways[::-1] for cell, ways in found.items()}
