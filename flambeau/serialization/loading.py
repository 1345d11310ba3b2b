"""`load`: what PyTorch or Flambeau has saved, in the zip format or the older one, without running anything in it."""
import contextlib
import os

from . import legacy_reader
from .archive import Source, is_archive
from .errors import FileError, naming
from .locations import restorer
from .refused_globals import refused_in
from .zip_reader import ZipLoader


def load(f, map_location=None, pickle_module=None, *, weights_only=None, mmap=None, verify=None, **pickle_load_args):
    """Read what `save`, or PyTorch's, has written to the file called `f`, or to a file object.

    No code in the file is ever run: tensors and plain containers are made, classes that were given to
    `add_safe_globals`, and nothing else, with `weights_only=False` too. `map_location` says on which device tensors
    go: a device or its name, a dict from names to names, or a function of (storage, name). With `mmap=True` the
    tensors look at the file, and a page of it is read when it is needed; writing to them does not change the file.

    Checksums are compared as the contents are read. A mapped file is not read, so it is checked only with
    `verify=True`; `verify=False` never checks.

    A file that is damaged, or names what is not allowed, raises `torch.serialization.FileError`, which is a
    RuntimeError and a `pickle.UnpicklingError`.
    """
    encoding = check_arguments(f, pickle_module, weights_only, mmap, pickle_load_args)
    with contextlib.ExitStack() as stack:
        if isinstance(f, (str, os.PathLike)):
            file, name = stack.enter_context(open(f, "rb", buffering=0)), os.fspath(f)
        else:
            file, name = f, None
        source = Source(file, name)
        with naming(source):
            if is_archive(source):
                loader = ZipLoader(source, map_location, mmap, verify, encoding)
                return loader.load(weights_only)
            if mmap:
                raise FileError("mmap can only be used with files saved with "
                                "`torch.save(_use_new_zipfile_serialization=True)`, please torch.save your checkpoint "
                                "with this option in order to use mmap.")
            return legacy_reader.load(source, restorer(map_location), encoding, weights_only)


def check_arguments(f, pickle_module, weights_only, mmap, pickle_load_args):
    """Refuse what PyTorch refuses; the encoding of strings that Python 2 has pickled."""
    if pickle_module is not None:
        if weights_only:
            raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
        if getattr(pickle_module, "__name__", None) != "pickle":
            raise NotImplementedError("Flambeau reads pickles itself and runs no code in them; leave pickle_module out")
    encoding = pickle_load_args.pop("encoding", "utf-8")
    if pickle_load_args:
        raise TypeError(f"load() got an unexpected keyword argument {next(iter(pickle_load_args))!r}")
    if isinstance(f, (str, os.PathLike)):
        return encoding
    if mmap:
        raise ValueError("f must be a file path in order to use the mmap argument")
    try:
        if not isinstance(f.read(0), bytes):
            raise TypeError("load() takes a file that was opened in binary mode, as by open(path, 'rb')")
        f.seek(f.tell())
    except (OSError, AttributeError) as error:
        raise type(error)(f"{error}. You can only torch.load from a file that is seekable. Please pre-load the data "
                          "into a buffer like io.BytesIO and try to load from it instead.") from error
    return encoding


def get_unsafe_globals_in_checkpoint(f):
    """The globals that the file called `f` names and `load` would refuse."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(f, "rb", buffering=0)) if isinstance(f, (str, os.PathLike)) else f
        source = Source(file)
        with naming(source):
            if not is_archive(source):
                raise ValueError("Expected input to be a checkpoint returned by torch.save")
            loader = ZipLoader(source, None, None, None, "utf-8")
            loader.check_kind()
            return refused_in(loader.contents("data.pkl"))
