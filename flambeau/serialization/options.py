"""Settings of `save` and `load` that PyTorch has as functions."""
import enum
import mmap
import sys


class LoadEndianness(enum.Enum):
    """The byte order of a file that does not say which it has."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


_endianness = None


def get_default_load_endianness():
    """The byte order that is assumed for a file that does not say; None is this machine's."""
    return _endianness


def set_default_load_endianness(endianness):
    """Assume this byte order (a `LoadEndianness`, or None) for files that do not say."""
    global _endianness
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness: a LoadEndianness or None is "
                        f"taken, got {endianness!r}")
    _endianness = endianness


def foreign_endianness():
    """Whether such files are read as of the other byte order than this machine's."""
    name = "little" if _endianness is LoadEndianness.LITTLE else "big" if _endianness is LoadEndianness.BIG else None
    return name is not None and name != sys.byteorder


def get_crc32_options():
    """Whether checksums are written: always."""
    return True


def set_crc32_options(compute_crc32):
    """Accepted for PyTorch's sake. Checksums are written whatever is said here: they are what `load` checks."""
    if not isinstance(compute_crc32, bool):
        raise TypeError(f"set_crc32_options takes True or False, got {compute_crc32!r}")


def get_default_mmap_options():
    """How `load(mmap=True)` maps a file: privately, so that writes to tensors stay in this process."""
    return mmap.MAP_PRIVATE


class set_default_mmap_options:
    """Accepted with `mmap.MAP_PRIVATE`, the default, as a call or a context; a shared mapping is refused."""

    def __init__(self, flags):
        if flags == mmap.MAP_SHARED:
            raise NotImplementedError("mmap.MAP_SHARED: a tensor's memory may move when it is written to, so writes "
                                      "would not reach the file; use torch.from_numpy(numpy.memmap(path, mode='r+'))")
        if flags != mmap.MAP_PRIVATE:
            raise ValueError("Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or "
                             f"mmap.MAP_SHARED, but got {flags}")

    def __enter__(self):
        return None

    def __exit__(self, *exc):
        return None


class skip_data:
    """Not here: PyTorch's context in which `save` leaves the contents of tensors out."""

    def __init__(self, materialize_fake_tensors=False):
        raise NotImplementedError("skip_data is not in Flambeau: every save is complete and has its checksums")
