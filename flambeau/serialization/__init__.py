"""Saving and loading: PyTorch's files both ways; see docs/saving.md."""
from collections.abc import Callable
from typing import TypeAlias

from ..base.spec import device
from ..tensor.storage import UntypedStorage
from ..tensor.typed_storage import TypedStorage
from .allowed_globals import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from .errors import EmptyFile, FileError, NotSupported, SourceChangeWarning
from .loading import get_unsafe_globals_in_checkpoint, load
from .locations import _package_registry, default_restore_location, location_tag, register_package
from .names import (
    DEFAULT_PROTOCOL,
    INT_SIZE,
    IS_WINDOWS,
    LONG_SIZE,
    MAGIC_NUMBER,
    PROTOCOL_VERSION,
    SHORT_SIZE,
    STORAGE_KEY_SEPARATOR,
    UNSAFE_MESSAGE,
    StorageType,
    _get_layout,
    _is_path,
    _is_zipfile,
    _maybe_decode_ascii,
    check_module_version_greater_or_equal,
    mkdtemp,
    normalize_storage_type,
    storage_to_tensor_type,
    validate_cuda_device,
    validate_hpu_device,
)
from .options import (
    LoadEndianness,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
)
from .saving import save

__all__ = ["LoadEndianness", "SourceChangeWarning", "StorageType", "add_safe_globals",
           "check_module_version_greater_or_equal", "clear_safe_globals", "default_restore_location",
           "get_crc32_options", "get_default_load_endianness", "get_default_mmap_options", "get_safe_globals",
           "get_unsafe_globals_in_checkpoint", "load", "location_tag", "mkdtemp", "normalize_storage_type",
           "register_package", "safe_globals", "save", "set_crc32_options", "set_default_load_endianness",
           "set_default_mmap_options", "skip_data", "storage_to_tensor_type", "validate_cuda_device",
           "validate_hpu_device"]

MAP_LOCATION: TypeAlias = Callable[[UntypedStorage, str], UntypedStorage] | device | str | dict[str, str] | None
STORAGE: TypeAlias = TypedStorage | UntypedStorage
