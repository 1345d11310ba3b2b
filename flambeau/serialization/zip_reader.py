"""A zip archive on its way into memory: the structure, then the storages it mentions, checked as they are read."""
import io
import json
import mmap as mapping
import operator
import sys
import zlib

from ..backends.cpu import host
from ..backends.cpu.memory.allocator import blank
from ..base import dtypes
from ..base.spec import CPU, META, spec
from ..tensor.storage import UntypedStorage
from ..trace.value import Storage, Value
from . import options
from .allowed_globals import GlobalNames, UnknownGlobal, loaded_storage
from .archive import ALIGNMENT_BYTES, STORED, Archive
from .errors import FileError, NotSupported, bare, shown
from .locations import needs_no_contents, restorer
from .refused_globals import explain
from .saving import CHECKSUMS
from .storage_records import check_pid, swap, ways_to
from .unpickler import Unpickler

FORMAT_VERSIONS = range(1, 11)                      # of the format, as PyTorch 2.13 reads them
MAXIMUM_SHOWN = 5                                   # damaged tensors that a message names


class ZipLoader:
    """One archive on its way into memory."""

    def __init__(self, source, map_location, mmap, verify, encoding):
        self.source, self.encoding = source, encoding
        self.unchecked, self.check_mapped = verify is False, bool(verify)
        self.map_location, self.restore = map_location, restorer(map_location)
        self.archive = Archive(source)
        self.folder = next(iter(self.archive.records), "").partition("/")[0]
        self.storages: dict = {}                    # key → storage
        self.damaged: list = []                     # records whose contents are not what was written
        self.sums: dict = {}
        self.ways: dict = {}                        # record → the ways to its tensors, as the writer has noted them
        self.map = None
        if mmap:
            self.map = host.array_over(mapping.mmap(source.file.fileno(), 0, access=mapping.ACCESS_COPY))

    def load(self, trusted=None):
        """What was saved, read by `trusted` if that is a TrustedReader."""
        self.check_contents()
        self.check_version()
        self.read_checksums()
        pickled = self.contents("data.pkl")
        self.swapped = self.other_byte_order()
        try:
            if trusted is not None:
                made = trusted.load(io.BytesIO(pickled), self.stored)
            else:
                made = Unpickler(pickled, GlobalNames(), self.stored, encoding=self.encoding).run()
        except UnknownGlobal as error:
            explain(error, pickled)
            raise
        if self.damaged:
            raise FileError(self.damage(made), self.damaged[0])
        return made

    # --- what kind of archive it is --------------------------------------------------

    def record(self, name):
        return self.archive.records.get(f"{self.folder}/{name}")

    def check_contents(self):
        if self.record("constants.pkl") is not None:
            raise NotSupported("this is a TorchScript archive (torch.jit.save), a program and not a checkpoint; in "
                               "PyTorch, torch.save(torch.jit.load(path).state_dict(), …) makes a file to load here")
        if self.record("archive_format") is not None:
            raise NotSupported("this is an exported program (torch.export), not a checkpoint; save its state_dict")
        if self.record(".data/extern_modules") is not None:
            raise NotSupported("this is a package of code (torch.package), not a checkpoint; save a state_dict")
        if self.record("data.pkl") is None:
            raise FileError("this is a zip archive, but not one that torch.save has written: file not found: "
                            f"{shown(self.folder)[1:-1]}/data.pkl")

    def check_version(self):
        name = next((name for name in ("version", ".data/version") if self.record(name) is not None), None)
        text = b"1" if name is None else self.contents(name, 64).strip()
        if not text.isdigit() or int(text) not in FORMAT_VERSIONS:
            raise NotSupported(f"Attempted to read a PyTorch file with version {shown(text)}, but the maximum "
                               f"supported version for reading is {FORMAT_VERSIONS[-1]}")

    def other_byte_order(self):
        """Whether numbers lie in the other byte order than this machine's."""
        if self.record("byteorder") is None:
            return options.foreign_endianness()
        found = self.contents("byteorder", 64)
        if found not in (b"little", b"big"):
            raise FileError(f"Unknown endianness type: {shown(found)}")
        return found.decode() != sys.byteorder

    # --- contents, and whether they are what was written --------------------------------------------------

    def read_checksums(self):
        if self.record(CHECKSUMS) is None or self.unchecked:
            return
        try:
            found = json.loads(self.contents(CHECKSUMS))
            self.sums = {name: operator.index(crc) for name, crc in found["crc32"].items()}
            for way, name in found["tensors"].items():
                self.ways.setdefault(str(name), []).append(way)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FileError("its list of checksums is damaged", CHECKSUMS) from error

    def agrees(self, name, record, crc):
        """Whether a record's bytes have the checksum that was written, in zip's directory and in ours."""
        written = {record.crc} if self.archive.has_crcs else set()
        written |= {self.sums[name]} if name in self.sums else set()
        return self.unchecked or not written - {crc}

    def contents(self, name, most=None):
        """The bytes of a record that is not a storage, of `most` bytes at the most."""
        record = self.record(name)
        if most is not None and record.size > most:
            raise FileError(f"its record {name!r} is {record.size} bytes long", name)
        data, crc = self.archive.read(record)
        if not self.agrees(name, record, crc):
            what = "the structure of what was saved (data.pkl)" if name == "data.pkl" else f"its record {name!r}"
            raise FileError(f"{what} is damaged: its checksum is not the one that was written", name)
        return bytes(data)

    def damage(self, made):
        """Which tensors the damaged records belong to, in a sentence."""
        cells = {name: self.storages[name.removeprefix("data/")]._storage for name in self.damaged}
        walked = ways_to(made, [cell for name, cell in cells.items() if name not in self.ways])
        ways = [way for name, cell in cells.items() for way in self.ways.get(name) or walked[cell]]
        named = [f"tensor '{bare(way)}'" if way else "the saved tensor" for way in ways] or self.damaged
        more = max(len(ways), len(cells)) - MAXIMUM_SHOWN
        named, more = named[:MAXIMUM_SHOWN], f" and {more} more" if more > 0 else ""
        return (f"{', '.join(named)}{more} is damaged: the checksum of its contents is not the one that was "
                "written. Take the file from where it came once more; load(…, verify=False) reads it as it is.")

    # --- storages --------------------------------------------------

    def stored(self, unpickler, pid):
        """The storage that a persistent id of the pickle means."""
        storage_class, key, location, count = check_pid(unpickler, pid)
        name = f"data/{key}"
        record = self.record(name)
        if record is None:
            raise unpickler.broken(f"it mentions the storage {shown(key)}, which the file does not have")
        if record.size // (1 if storage_class.dtype is None else storage_class.dtype.itemsize) != count:
            raise unpickler.broken(f"storage {shown(key)} should hold {count} of {storage_class!r} and has "
                                   f"{record.size} bytes")
        found = self.storages.get(key)
        if found is not None:
            if self.swapped and found.dtype is not storage_class.dtype:
                raise NotSupported(f"storage {shown(key)} is of the other byte order, and of two dtypes")
            return found if found.dtype is storage_class.dtype else loaded_storage(found._storage, storage_class.dtype)
        if needs_no_contents(self.map_location, location):
            cell = Storage.of(None, record.size, META)
        else:
            cell = self.cell(name, record, storage_class)
            cell = self.restore(UntypedStorage(storage=cell), location)._storage
        found = self.storages[key] = loaded_storage(cell, storage_class.dtype)
        return found

    def cell(self, name, record, storage_class):
        """A storage with the contents of a record, mapped where that was asked for and can be."""
        size, intact = record.size, True
        width = ALIGNMENT_BYTES if storage_class.dtype is None else storage_class.dtype.itemsize
        if self.map is not None and record.method == STORED and record.offset % width == 0:
            start = self.source.base + record.offset
            memory = self.map[start:start + size]
            if self.check_mapped:
                intact = self.agrees(name, record, zlib.crc32(memory))
        else:
            memory, _ = blank(spec(dtypes.uint8, (size,)))
            crc = self.archive.read_into(record, memoryview(memory), not self.unchecked)
            intact = self.agrees(name, record, crc)
        if not intact:
            self.damaged.append(name)               # the way to its tensors is known when the structure is
        if self.swapped:
            if storage_class.dtype is None and size:
                raise NotSupported(f"storage {name} is of the other byte order, and it is not said what it holds")
            swap(memory, storage_class.dtype)
        return Storage.of(Value.of_bytes(memory), size, CPU)
