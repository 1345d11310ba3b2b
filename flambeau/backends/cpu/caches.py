"""How large this processor's caches are: what is cut to fit into one asks here. No result depends on it."""
import functools
import glob
import os

from .memory.limits import text_of

FIRST_CACHE_WAYS = 8               # where the system does not say, here and below
FIRST_CACHE_WAY_BYTES = 4096
SECOND_CACHE_BYTES = 1 << 20
CACHE_UNITS = {"K": 1 << 10, "M": 1 << 20}


@functools.cache
def first_cache(root="/"):
    """(ways, bytes of a way) of a processor's first cache; of the worst, where processors differ. As many lines as
    there are ways fit in it that lie a multiple of the bytes of a way apart."""
    return min(((ways, size // ways) for ways, size in _caches("1", root) if ways),
               default=(FIRST_CACHE_WAYS, FIRST_CACHE_WAY_BYTES))


@functools.cache
def second_cache(root="/"):
    """Bytes of a processor's second cache; of the smallest, where processors differ."""
    return min((size for _, size in _caches("2", root)), default=SECOND_CACHE_BYTES)


def _caches(level, root):
    """(ways, bytes) of each processor's cache of a level that holds data. Ways are 0 where the system does not say."""
    for folder in glob.glob(f"{root}sys/devices/system/cpu/cpu[0-9]*/cache/index[0-9]*"):
        found, contents, size, ways = (text_of(os.path.join(folder, name)).strip()
                                       for name in ("level", "type", "size", "ways_of_associativity"))
        if found == level and contents != "Instruction" and size[:-1].isdigit() and size[-1] in CACHE_UNITS:
            yield int(ways) if ways.isdigit() else 0, int(size[:-1]) * CACHE_UNITS[size[-1]]
