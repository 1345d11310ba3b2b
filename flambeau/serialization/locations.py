"""Which device a storage in a file belongs to, and where it goes here: `map_location`, and devices that others add."""
import bisect

from ..backends.devices import available
from ..base.spec import META, as_device, device, openers
from ..tensor.storage import UntypedStorage
from ..trace.value import Storage, Value
from .errors import NotSupported, bare

_package_registry: list = []                                # (priority, tagger, deserializer), tried in this order


def register_package(priority, tagger, deserializer):
    """Teach `save` and `load` a device: `tagger(storage)` gives its tag in the file or None, `deserializer(storage,
    tag)` the storage on it or None. The lowest `priority` is asked first.
    """
    bisect.insort(_package_registry, (priority, tagger, deserializer), key=lambda entry: entry[0])


def location_tag(storage):
    """The tag that says in a file where `storage` was."""
    for _, tagger, _ in _package_registry:
        found = tagger(storage)
        if found:
            return found
    raise RuntimeError(f"don't know how to determine data location of {type(storage).__name__} on {storage.device}")


def default_restore_location(storage, location):
    """`storage`, read to the CPU, on the device that the tag `location` means."""
    for _, _, deserializer in _package_registry:
        found = deserializer(storage, location)
        if found is not None:
            return found
    raise NotSupported("don't know how to restore data location of torch.storage.UntypedStorage (tagged with "
                       f"{bare(location)}); map_location='cpu' brings it to the CPU")


def restorer(map_location):
    """The function (storage, tag) → storage that a `map_location` of any form means."""
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, dict):
        return lambda storage, tag: default_restore_location(storage, str(map_location.get(tag, tag)))
    if isinstance(map_location, (str, device)):
        where = str(map_location)
        return lambda storage, tag: default_restore_location(storage, where)
    if not callable(map_location):
        raise TypeError(f"map_location is None, a device or its name, a dict of names, or a function, and this "
                        f"{type(map_location).__name__!r} object is not callable")

    def called(storage, tag):
        found = map_location(storage, tag)
        return default_restore_location(storage, tag) if found is None else found
    return called


def needs_no_contents(map_location, tag):
    """Whether a storage with this tag goes to the meta device, so that its bytes need not be read."""
    if isinstance(map_location, dict):
        map_location = map_location.get(tag, tag)
    return isinstance(map_location, (str, device)) and str(map_location) == "meta"


def on_cpu(storage, location):
    return storage if location == "cpu" else None


def on_meta(storage, location):
    return UntypedStorage(storage=Storage.of(None, storage.nbytes(), META)) if location == "meta" else None


def needs_accelerator(name, question):
    """The error for a storage of a device that is not there."""
    return NotSupported(f"Attempting to deserialize object on a {name} device but {question} is False. If you are "
                        "running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to "
                        "map your storages to the CPU.")


def on_accelerator(device_type, name, question):
    def absent(storage, location):
        if location.partition(":")[0] == device_type:
            raise needs_accelerator(name, question)
    return absent


def on_registered(storage, location):
    """On a device that was registered (backends/backend.py)."""
    device_type = location.partition(":")[0]
    if device_type not in openers or not available(device_type):
        return None
    where, value = as_device(location), storage._storage.value
    spec = value.spec.on(where)
    moved = Value.of(where.backend.from_host(value.ready().array, spec), spec)
    return UntypedStorage(storage=Storage.of(moved, storage.nbytes(), where))


register_package(10, lambda storage: "cpu" if storage.device.type == "cpu" else None, on_cpu)
register_package(15, lambda storage: str(storage.device) if storage.device.type in openers else None, on_registered)
register_package(20, lambda storage: None, on_accelerator("cuda", "CUDA", "torch.cuda.is_available()"))
register_package(21, lambda storage: None, on_accelerator("mps", "MPS", "torch.backends.mps.is_available()"))
register_package(22, lambda storage: "meta" if storage.device is META else None, on_meta)
