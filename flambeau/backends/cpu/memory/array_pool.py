"""Arrays of the CPU's that are no longer looked at, kept for the next result of their kind.

A part of the compiled core: see Note [One source, two speeds] in base/core.py. Interpreted, none are kept.

Note [Spare arrays]: a block of memory and the array over it take longer to make than a small kernel to run; and after a
megabyte of arithmetic, whatever of Python that takes has to come from memory again. So an array whose Value is gone,
and that nothing else holds, is kept, and the next result of its spec is made there; so is working memory, if it is
little. Of small arrays there are some for each spec; of larger ones, one for each of the last specs. Their blocks count
as idle (allocator.py). It happens only while memory is not observed.
"""
SMALL_SPARE_BYTES = 16 << 10      # of an array, up to which so many
SPARES_PER_SPEC = 4               # of each spec are kept,
MAX_SPARE_SPECS = 250             # and of so many specs: 16 MiB at most
LARGE_SPARE_BYTES = 2 << 20       # of a larger one, of which one of each spec is kept,
MAX_LARGE_SPARES_BYTES = 16 << 20  # and so many bytes of them in all
SPARE_ROOM_BYTES = 128 << 10      # of working memory that is taken from here


class MemoryCounts:
    """What the allocator counts as it goes: bytes, but for `retries` and `failures`.

    `allocated` has the large spare arrays in it, whose bytes are `spare`; what is in use is the one less the other. So
    only `spare` changes when one of them is taken or comes back.
    """

    __slots__ = ("allocated", "spare", "peak", "reserved", "reserved_peak", "room", "retries", "failures")

    def __init__(self):
        self.allocated = self.spare = self.peak = self.reserved = self.reserved_peak = self.room = 0
        self.retries = self.failures = 0


_counts = MemoryCounts()
_small: dict = {}                 # spec → a list of (array, address)
_large: dict = {}                 # spec → (array, address), the oldest first


def state():
    """The counts, and the dictionaries of small and of large spare arrays; there is one of each."""
    return _counts, _small, _large


def class_size(nbytes):
    """The size class of `nbytes`: steps of 64 up to 1024, then eight to a power of two, so that an eighth is waste."""
    if nbytes <= 1024:
        return max(nbytes + 63 & ~63, 64)
    shift = 7
    while nbytes - 1 >> shift > 15:
        shift += 1
    return ((nbytes - 1 >> shift) + 1) << shift


def keep_spare(spec, one):
    """Keep (array, address), which nothing else holds, for the next result of `spec`."""
    arrays = _small.get(spec)
    if arrays is not None:
        if len(arrays) < SPARES_PER_SPEC:
            arrays.append(one)
        return
    size = class_size(spec.nbytes)
    if size <= SMALL_SPARE_BYTES:
        if len(_small) > MAX_SPARE_SPECS:
            _small.clear()
        _small[spec] = [one]
        return
    if spec not in _large and _counts.spare + size > MAX_LARGE_SPARES_BYTES:
        _let_go_of_the_oldest(size)
    if spec not in _large:                    # asked again: another array may have come by in between
        _counts.spare += size
        _large[spec] = one


def _let_go_of_the_oldest(size):
    """Make room for a large array of `size` bytes."""
    while _large and _counts.spare + size > MAX_LARGE_SPARES_BYTES:
        oldest = next(iter(_large))
        _counts.spare -= class_size(oldest.nbytes)
        del _large[oldest]


def take_spare(spec):
    """(array, address) of a spare array of `spec`; None if there is none."""
    arrays = _small.get(spec)
    if arrays:
        return arrays.pop()
    if arrays is not None or not _large:
        return None
    one = _large.pop(spec, None)
    if one is not None:
        _counts.spare -= class_size(spec.nbytes)
    return one


def exceeds_peak():
    """Whether more may be in use now than ever was."""
    return _counts.allocated - _counts.spare > _counts.peak
