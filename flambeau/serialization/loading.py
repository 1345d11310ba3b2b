"""`load`: what PyTorch or Flambeau has saved, in the zip format or the older one."""
import contextlib
import os
import pickle

from ..base.errors import warn
from . import legacy_reader
from .archive import Source, is_archive
from .errors import FileError, naming
from .locations import restorer
from .refused_globals import refused_in
from .trusted import TrustedReader
from .zip_reader import ZipLoader

TRUE_WORDS = ("1", "y", "yes", "true")              # what switches an environment variable on


def load(f, map_location=None, pickle_module=None, *, weights_only=None, mmap=None, verify=None, **pickle_load_args):
    """Read what `save`, or PyTorch's, has written to the file called `f`, or to a file object.

    Unless `weights_only=False` is said, no code in the file is run: tensors and plain containers are made, classes that
    were given to `add_safe_globals`, and nothing else. With `weights_only=False` everything is made that was saved,
    whole modules too, as by Python's `pickle`: whatever the file names is imported and called. Do that only with a file
    whose maker you would let run a program here. `pickle_module` says whose `Unpickler` does it, which is then given
    `pickle_load_args`.

    `map_location` says on which device tensors go: a device or its name, a dict from names to names, or a function of
    (storage, name). With `mmap=True` the tensors look at the file, and a page of it is read when it is needed; writing
    to them does not change the file.

    Checksums are compared as the contents are read. A mapped file is not read, so it is checked only with
    `verify=True`; `verify=False` never checks.

    A file that is damaged, or names what is not allowed, raises `torch.serialization.FileError`, which is a
    RuntimeError and a `pickle.UnpicklingError`.
    """
    trusted = trusted_reader(pickle_module, weights_only, pickle_load_args)
    encoding = check_arguments(f, mmap, {} if trusted else pickle_load_args)
    with contextlib.ExitStack() as stack:
        if isinstance(f, (str, os.PathLike)):
            file, name = stack.enter_context(open(f, "rb", buffering=0)), os.fspath(f)
        else:
            file, name = f, None
        source = Source(file, name)
        with naming(source):
            if is_archive(source):
                return ZipLoader(source, map_location, mmap, verify, encoding).load(trusted)
            if mmap:
                raise FileError("mmap can only be used with files saved with "
                                "`torch.save(_use_new_zipfile_serialization=True)`, please torch.save your checkpoint "
                                "with this option in order to use mmap.")
            return legacy_reader.load(source, restorer(map_location), encoding, trusted)


def trusted_reader(pickle_module, weights_only, options):
    """What reads the structure of a file that the caller trusts; None where nothing in the file may run.

    `TORCH_FORCE_WEIGHTS_ONLY_LOAD` stands above the argument, `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` above its default.
    """
    force, force_not = (os.environ.get(f"TORCH_FORCE_{name}WEIGHTS_ONLY_LOAD", "0").lower() in TRUE_WORDS
                        for name in ("", "NO_"))
    if force and force_not:
        raise RuntimeError("Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` should "
                           "be set, but both were set.")
    if force:
        weights_only = True
    elif weights_only is None and force_not:
        warn("Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the `weights_only` argument was "
             "not explicitly passed to `torch.load`, forcing weights_only=False.")
        weights_only = False
    elif weights_only is None:
        weights_only = pickle_module is None
    if not weights_only:
        return TrustedReader(pickle if pickle_module is None else pickle_module, {"encoding": "utf-8", **options})
    if pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    return None


def check_arguments(f, mmap, pickle_load_args):
    """Refuse what PyTorch refuses; the encoding of strings that Python 2 has pickled."""
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
            loader.check_contents()
            return refused_in(loader.contents("data.pkl"))
