"""`save`: PyTorch's zip format, with a checksum for every tensor.

An archive holds one folder: `data.pkl` (the structure), `data/0`, `data/1`… (one record for each storage), a few words
about the format, and `.flambeau/checksums`, which PyTorch does not look at.
"""
import json
import os
import pickle
import sys
import zlib

from ..base.errors import is_packaged, user_frame, warn
from .allowed_globals import ALLOWED, GlobalNames
from .archive import ArchiveWriter
from .atomic import replacing
from .errors import bare
from .module_pickler import ModulePickler
from .pickler import Pickler

CHECKSUMS = ".flambeau/checksums"


def save(obj, f, pickle_module=None, pickle_protocol=2, _use_new_zipfile_serialization=True,
         _disable_byteorder_record=False):
    """Write `obj`, tensors in any containers, to the file called `f` or to a file object, as PyTorch's `torch.save`.

    A file is replaced whole or not at all: whatever happens meanwhile, the old one stays until the new one is complete
    on the disk. (An object that was already opened cannot be treated so.) The pickle is of protocol 2,
    unless the `Pickler` of a `pickle_module` writes it, such as dill's, which writes functions that have no name too.

    >>> import io
    >>> file = io.BytesIO()
    >>> torch.save({"weight": torch.ones(2), "step": 7}, file)
    >>> _ = file.seek(0)
    >>> torch.load(file)
    {'weight': tensor([1., 1.]), 'step': 7}
    """
    if not _use_new_zipfile_serialization:
        raise NotImplementedError("PyTorch's format from before 1.6 is read here but not written: it has no room for "
                                  "checksums. PyTorch 1.6 and later read what save() writes.")
    if type(pickle_protocol) is not int or not 2 <= pickle_protocol <= 5:
        raise ValueError(f"pickle_protocol is a number from 2 to 5, got {pickle_protocol!r}")
    if not isinstance(f, (str, os.PathLike)) and not hasattr(f, "write"):
        raise AttributeError("expected 'f' to be string, path, or a file-like object with a 'write' attribute")
    writer = Pickler() if pickle_module in (None, pickle) else ModulePickler(pickle_module, pickle_protocol)
    pickled = writer.dump(obj)                      # what can be wrong with `obj` shows before a byte is written
    warn_of_refused(writer)
    if isinstance(f, (str, os.PathLike)):
        stem = os.path.splitext(os.path.basename(os.fspath(f)))[0]
        with replacing(f) as file:
            write_archive(file.write, stem if stem and stem.isascii() else "archive", pickled, writer,
                          not _disable_byteorder_record)
    else:
        write_archive(f.write, "archive", pickled, writer, not _disable_byteorder_record)
        if hasattr(f, "flush"):
            f.flush()


def warn_of_refused(writer):
    """Warn of classes in the pickle that `load` will refuse unless they are declared to be trusted.

    A package that saves is not the user's to change, and loads what it saved by itself.
    """
    frame = user_frame()
    if frame is not None and is_packaged(frame.f_code.co_filename):
        return
    names = GlobalNames()
    written = {f"{module}.{name}" for module, name in writer.names}
    inner = {f"{module}.{name}" for module, name in writer.names if "." in name}
    if inner:                                       # the classes that those are asked of, and by what
        written -= {"builtins.getattr", *(full[:at] for full in inner for at, c in enumerate(full) if c == ".")}
    refused = sorted(written - ALLOWED.keys() - names.user.keys())
    if refused:
        warn(f"what is saved holds more than tensors and plain containers: {', '.join(map(bare, refused[:5]))}"
             f"{', …' if len(refused) > 5 else ''}. load() refuses such a file unless these classes are given to "
             "torch.serialization.add_safe_globals, or it is told to trust the file (weights_only=False); of a module, "
             "save model.state_dict().")


def write_archive(write, folder, pickled, writer, byteorder):
    """The records, in PyTorch's order."""
    archive = ArchiveWriter(write, folder)
    sums = {"data.pkl": archive.record("data.pkl", pickled)}
    archive.record(".format_version", b"1")
    archive.record(".storage_alignment", b"64")
    if byteorder:
        archive.record("byteorder", sys.byteorder.encode())
    for n, (cell, value) in enumerate(writer.storages):
        sums[f"data/{n}"] = archive.record(f"data/{n}", value.bytes_on_host()[:cell.nbytes])
    archive.record(CHECKSUMS, json.dumps({"format": 1, "crc32": sums,
                                          "tensors": {way: f"data/{n}" for way, n in writer.tensors.items()}}).encode())
    archive.record("version", b"3\n")
    names = zlib.crc32(b"\n".join(name for name, *_ in archive.entries))
    contents = zlib.crc32(json.dumps(sums).encode())
    archive.record(".data/serialization_id", b"%020d%020d" % (names, contents))
    archive.close()
