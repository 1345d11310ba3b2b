"""Smaller names of torch.serialization that packages import."""
import contextlib
import os
import shutil
import sys
import tempfile
from importlib import import_module

from ..backends.cuda import driver
from ..base import layout
from ..base.errors import warn
from ..base.spec import as_device
from ..tensor.create import LEGACY_TENSOR_TYPES
from ..tensor.typed_storage import STORAGE_NAMES
from .archive import LOCAL
from .legacy_reader import MAGIC, VERSION
from .locations import needs_accelerator

DEFAULT_PROTOCOL = 2
LONG_SIZE, INT_SIZE, SHORT_SIZE = 4, 4, 2           # bytes of C's numbers in the older format
MAGIC_NUMBER, PROTOCOL_VERSION = MAGIC, VERSION
STORAGE_KEY_SEPARATOR = ","
IS_WINDOWS = sys.platform == "win32"
UNSAFE_MESSAGE = ("`weights_only` is True by default since PyTorch 2.6. Re-running `torch.load` with `weights_only` "
                  "set to `False` will likely succeed, but it can result in arbitrary code execution. Do it only if "
                  "you got the file from a trusted source.")


class StorageType:
    """What the name of a storage class in a file says: a dtype."""

    def __init__(self, name):
        self._dtype = {name: dtype for dtype, name in STORAGE_NAMES.items()}[name]

    @property
    def dtype(self):
        return self._dtype

    def __str__(self):
        return f"StorageType(dtype={self.dtype})"


def normalize_storage_type(storage_type):
    """The class `torch.FloatStorage` for one of that name, whichever device it is of."""
    return getattr(import_module(__name__.partition(".")[0]), storage_type.__name__)


def storage_to_tensor_type(storage):
    """The class of the tensors over a storage: `torch.FloatTensor` over a `torch.FloatStorage`."""
    return LEGACY_TENSOR_TYPES[type(storage).__name__.replace("Storage", "Tensor")]


@contextlib.contextmanager
def mkdtemp():
    """A folder that is there within a `with`."""
    path = tempfile.mkdtemp()
    try:
        yield path
    finally:
        shutil.rmtree(path)


def check_module_version_greater_or_equal(module, req_version_tuple, error_if_malformed=True):
    """Whether the version of a module is at least the one given, as a tuple of its first parts."""
    try:
        parts = module.__version__.split(".")
        return tuple(type(wanted)(parts[at]) for at, wanted in enumerate(req_version_tuple)) >= req_version_tuple
    except Exception as error:
        message = (f"'{module.__name__}' module version string is malformed '{module.__version__}' and cannot be "
                   f"compared with tuple {req_version_tuple}")
        if error_if_malformed:
            raise RuntimeError(message) from error
        warn(f"{message}, but continuing assuming that requirement is met")
        return True


def validate_cuda_device(location):
    """The index of the CUDA device that a tag in a file means; it has to be there."""
    if driver.absence() is not None:
        raise needs_accelerator("CUDA", "torch.cuda.is_available()")
    return as_device(location).index or 0


def validate_hpu_device(location):
    """Refuses: there is no such device here."""
    raise needs_accelerator("HPU", "torch.hpu.is_available()")


def _get_layout(name):
    """The layout of a name: "torch.strided"."""
    return {repr(found): found for found in layout.LAYOUTS_AND_FORMATS if isinstance(found, layout.layout)}[name]


def _is_path(name_or_buffer):
    return isinstance(name_or_buffer, (str, os.PathLike))


def _is_zipfile(f):
    """Whether a file object, from where it stands on, begins as a zip archive."""
    start = f.tell()
    found = f.read(len(LOCAL))
    f.seek(start)
    return found == LOCAL


def _maybe_decode_ascii(bytes_str):
    return bytes_str.decode("ascii") if isinstance(bytes_str, bytes) else bytes_str
