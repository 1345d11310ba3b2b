"""PyTorch's format from before 1.6, read only: pickles one after the other, then the bytes of the storages.

    magic number · version of the format · what machine wrote it · the structure · keys of the storages · storages
"""
import io
import mmap
import sys

from ..backends.cpu.memory.allocator import blank
from ..base import dtypes
from ..base.spec import CPU, META, spec
from ..tensor.storage import UntypedStorage
from ..trace.value import Storage, Value
from .allowed_globals import GlobalNames, UnknownGlobal, loaded_storage
from .errors import FileError, NotSupported, shown
from .refused_globals import explain
from .storage_records import check_pid, plain_text, swap
from .trusted import TrustedReader
from .unpickler import Unpickler

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001
LINE_BYTES = 1000               # that are looked through for the end of a name at a time
HEADER_PICKLES = (                                  # (what it is, what it has to be, what is said if it is not)
    ("the magic number", MAGIC, "Invalid magic number; corrupt file? torch.save has not written the pickle that it "
                                "starts with"),
    ("the version", VERSION, "Invalid protocol version"), ("what machine wrote it", None, ""))
OTHER_FORMATS = (                                   # (where, what is there, what that is)
    (0, b"\x89HDF", "an HDF5 file"),
    (0, b"\x1f\x8b", "compressed by gzip: open it with gzip.open and give that to load"),
    (0, b"\x93NUMPY", "a NumPy array: use numpy.load"),
    (257, b"ustar", "a tar archive, PyTorch's format of 2016 if it is one of its: load and save it with a PyTorch"),
    (8, b'{"', "a safetensors file: use flambeau.safetensors.load_file"))


def load(source, restore, encoding, trusted=None):
    """What the file holds, read by `trusted` if that is a TrustedReader; the file object then stands behind it, where
    the next one may begin."""
    data = buffer(source)
    if data[0] != 0x80:
        what = [what for at, start, what in OTHER_FORMATS if data[at:at + len(start)] == start]
        raise FileError(f"this is {what[0] if what else 'not a file that torch.save has written'} (invalid load key, "
                        f"{data[0]:#x})")
    names, position, head = GlobalNames(), 0, []
    for record, wanted, words in HEADER_PICKLES:
        unpickler = Unpickler(data, names, None, position, encoding, record)
        head.append(unpickler.run())
        position = unpickler.position
        if wanted is not None and (type(head[-1]) is not int or head[-1] != wanted):
            raise FileError(f"{words}: {shown(head[-1])}")
    if type(head[2]) is not dict:
        raise FileError("it does not say what machine has written it")
    little = head[2].get("little_endian", True) is True
    return PickleStream(data, position, restore, names, encoding, little).load(source, trusted)


def buffer(source):
    """All bytes from where the file stands: mapped, where the file is our own."""
    if isinstance(source.file, io.FileIO):
        return memoryview(mmap.mmap(source.file.fileno(), 0, access=mmap.ACCESS_READ))[source.base:]
    return memoryview(source.read(0, source.size))


class PickleStream:
    """The structure and the storages behind it."""

    def __init__(self, data, position, restore, names, encoding, little):
        self.data, self.restore, self.names = data, restore, names
        self.swapped = little != (sys.byteorder == "little")
        self.unpickler = Unpickler(data, names, self.stored, position, encoding, "the structure")
        self.unpickler.late = True
        self.storages: dict = {}                    # key → (storage, its number of elements)
        self.announced = 0                          # bytes of all storages so far, which must be in the file

    def load(self, source, trusted):
        made, position = self.structure(trusted)
        unpickler = Unpickler(self.data, self.names, None, position, record="the list of storages")
        keys = unpickler.run()
        keys = [plain_text(key) for key in keys] if type(keys) is list else [None]
        if not all(type(key) is str for key in keys) or sorted(keys) != sorted(self.storages):
            raise FileError("the storages that the structure mentions are not those that the file lists")
        end = self.fill(keys, unpickler.position)
        source.file.seek(source.base + end)
        return made

    def structure(self, trusted):
        """What the pickle describes, and where it ends."""
        start = self.unpickler.position
        if trusted is not None:
            file = BytesFile(self.data, start)
            return trusted.load(file, self.stored, "the structure", late=True), file.position
        try:
            return self.unpickler.run(), self.unpickler.position
        except UnknownGlobal as error:
            explain(error, self.data[start:])
            raise

    def stored(self, unpickler, pid):
        if type(pid) is tuple and len(pid) == 4 and type(pid[0]) is str and isinstance(pid[1], type) \
                and (id(pid[1]) in self.names.ids or isinstance(unpickler, TrustedReader)):
            return pid[1]                           # a class with its source, which is not looked at
        storage_class, key, location, count = check_pid(unpickler, pid)
        if len(pid) > 5 and pid[5] is not None:
            raise NotSupported("it holds views of storages, as PyTorch wrote them before 0.4; load and save it with a "
                               "newer PyTorch")
        if key in self.storages:
            return self.storages[key][0]
        if storage_class.dtype is None and self.swapped:
            raise NotSupported(f"storage {shown(key)} is of the other byte order, and it is not said what it holds")
        size = count * (1 if storage_class.dtype is None else storage_class.dtype.itemsize)
        self.announced += size
        if self.announced > len(self.data):
            raise unpickler.broken(f"it announces {self.announced} bytes of storages and has {len(self.data)} in all")
        memory, _ = blank(spec(dtypes.uint8, (size,)))
        cell = Storage.of(Value.of_bytes(memory), size, CPU)
        found = loaded_storage(self.restore(UntypedStorage(storage=cell), location)._storage, storage_class.dtype)
        self.storages[key] = found, count
        return found

    def fill(self, keys, position):
        """Read the storages, in the order of `keys`; returns where they end."""
        for key in keys:
            storage, count = self.storages[key]
            size = count * (1 if storage.dtype is None else storage.dtype.itemsize)
            found = int.from_bytes(self.data[position:position + 8], "big" if self.swapped else sys.byteorder)
            if found != count:
                raise FileError(f"storage {shown(key)} should hold {count} elements and has {found}, or the file is "
                                "truncated")
            position += 8
            if size > len(self.data) - position:
                raise FileError(f"the file is truncated: storage {shown(key)} takes {size} bytes, and "
                                f"{len(self.data) - position} are left")
            cell = storage._storage
            if cell.device is not META:
                memory = cell.value.ready().memory
                memory.data[:size] = self.data[position:position + size]
                if self.swapped:
                    swap(memory, storage.dtype)
            position += size
        return position


class BytesFile:
    """What an unpickler reads from: bytes, of which it takes as many as the pickle has."""

    def __init__(self, data, position):
        self.data, self.position = data, position

    def read(self, count):
        start = self.position
        self.position = min(start + count, len(self.data))
        return bytes(self.data[start:self.position])

    def readline(self):
        line = b""
        while not line.endswith(b"\n") and self.position < len(self.data):
            piece = bytes(self.data[self.position:self.position + LINE_BYTES])
            end = piece.find(b"\n") + 1 or len(piece)
            line += piece[:end]
            self.position += end
        return line
