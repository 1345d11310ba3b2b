"""Saving and loading: PyTorch's files both ways; see docs/saving.md."""
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

MAP_LOCATION: TypeAlias = Callable[[UntypedStorage, str], UntypedStorage] | device | str | dict[str, str] | None
