"""How large this processor's caches are: what is cut to fit into one asks here. No result depends on it."""
import functools
import glob
import os

from .memory_limits import text_of

SECOND_CACHE_BYTES = 1 << 20      # where the system does not say
CACHE_UNITS = {"K": 1 << 10, "M": 1 << 20}


@functools.cache
def second_cache(root="/"):
    """Bytes of a processor's second cache; of the smallest, where processors differ."""
    found = []
    for folder in glob.glob(f"{root}sys/devices/system/cpu/cpu[0-9]*/cache/index[0-9]*"):
        level, kind, size = (text_of(os.path.join(folder, name)).strip() for name in ("level", "type", "size"))
        if level == "2" and kind != "Instruction" and size[:-1].isdigit() and size[-1] in CACHE_UNITS:
            found.append(int(size[:-1]) * CACHE_UNITS[size[-1]])
    return min(found, default=SECOND_CACHE_BYTES)
