"""Saving and loading: PyTorch's files both ways, without ever running what is in them; see docs/saving.md."""
from collections.abc import Callable
from typing import TypeAlias

from ..base.spec import device
from ..tensor.storage import UntypedStorage
from .allowed_globals import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from .errors import EmptyFile, FileError, NotSupported, SourceChangeWarning
from .loading import get_unsafe_globals_in_checkpoint, load
from .locations import default_restore_location, location_tag, register_package
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

__all__ = ["LoadEndianness", "SourceChangeWarning", "add_safe_globals", "clear_safe_globals",
           "default_restore_location", "get_crc32_options", "get_default_load_endianness", "get_default_mmap_options",
           "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load", "location_tag", "register_package",
           "safe_globals", "save", "set_crc32_options", "set_default_load_endianness", "set_default_mmap_options",
           "skip_data"]

MAP_LOCATION: TypeAlias = Callable[[UntypedStorage, str], UntypedStorage] | device | str | dict[str, str] | None
