"""The caching allocator of the CPU: blocks of memory that come back to a pool when they are no longer looked at.

Fresh pages are most of what a large buffer costs, so memory is asked from the system once and kept. A size is rounded
up to its class; each class has a list of idle addresses, used last in, first out, so that what comes back is still in
the processor's cache. Small classes are carved out of slabs; each large block is a mapping of its own, which is given
back when too much lies idle, when the system has no more to give, and by `empty_cache()`.

Note [Finalisers]: a Block's memory comes back in `__del__`, which may run at any moment: in the middle of an allocation
on the same thread, on another one, or when an interrupt is about to be raised. Python swallows what is raised in a
finaliser, and what was still to be done there is not done. So no Python code runs in it: `__del__` is `append` of the
class's list, which keeps the dead Block, whose finaliser is spent. And a Block is taken by one chain of C functions, so
that there is no moment at which memory is neither idle nor a Block's. No lock is needed, and what is in use is counted
by those who allocate. The lock below is for those who make and give back mappings, and a thread that holds it may come
again.

Note [Lined up]: a vector of 64 bytes that lies across two cache lines takes twice as long to read. Blocks begin at a
line; what NumPy allocates begins anywhere. So arrays of more than a few lines that may become a parameter, which
kernels read for the rest of the program, are made here, or moved here (`lined_up`): results of the reference executor,
random numbers, and what `torch.tensor` copies.
"""
import contextlib
import ctypes
import functools
import itertools
import math
import mmap
from bisect import bisect_right
from collections import Counter
from itertools import repeat, starmap

import numpy as np

from ....base import observers, settings
from ....base.locks import new_lock
from ....base.spec import CPU
from ....loops.target import CACHE_LINE_BYTES
from . import array_pool as spare_arrays
from .address import address
from .array_pool import class_size, exceeds_peak
from .limits import available, limit, resident_bytes

PAGE_BYTES = mmap.PAGESIZE
MAX_SMALL_BYTES = 256 << 10     # up to here blocks are carved out of slabs
MIN_SLAB_BYTES = 64 << 10       # of the smallest slab
HUGE_PAGE_BYTES = 2 << 20       # the most of a slab too
LINED_UP_BYTES = 1 << 10        # of an array from which on it begins at a cache line; see Note [Lined up]
SURPLUS_PERCENT = 25            # how much larger an idle block may be than the class that was asked for
HUGE_PAGE_ADVICE = getattr(mmap, "MADV_HUGEPAGE", None)
MADV_POPULATE_WRITE = 23        # Linux's, which Python does not name yet

_addressof = ctypes.addressof
_array = np.ndarray
_lock = new_lock()
_clock = itertools.count()


class OutOfMemoryError(MemoryError, RuntimeError):
    """There is no room for what was asked, and nothing has changed. PyTorch raises a RuntimeError for it."""

    nbytes = None               # how much was asked
    spec = None                 # for an array of this
    entry = None                # by an instruction of this kind
    site = None                 # that this line recorded
    device = None               # where there is no room, if that is not the CPU
    complete = False            # whether the layers above have had their say


class Block:
    """Memory of one size class, given back when the last array over it is gone. Made by `block`; a buffer of bytes."""

    __slots__ = ()
    nbytes = 0                  # the size of the class, not less than what was asked for

    @property
    def address(self):
        """Where it starts."""
        return _addressof(self)


_method = ctypes.pythonapi.PyInstanceMethod_New      # a function of C as a method: of those in Python, it has `self`
_method.restype, _method.argtypes = ctypes.py_object, (ctypes.py_object,)


class SizeClass:
    """A size class: what lies idle, the longest idle first, and `take`, which makes a Block of the last of it."""

    __slots__ = ("size", "raw", "free", "take", "plain_take", "blocks", "idle", "since", "calls", "calls_then",
                 "misses", "noticed")

    def __init__(self, size):
        self.size = size
        self.raw = ctypes.c_char * size     # memory that no Block has had yet
        self.free = []                      # such, and dead Blocks; see Note [Finalisers]
        self.blocks = self.idle = 0         # how many there are, and how many were idle when it was last counted
        self.calls = self.misses = 0
        self.calls_then = self.since = 0    # how many calls `_trim` has seen, and when it last saw more
        cls = type("Block", (Block, self.raw), {"__slots__": (), "nbytes": size, "__del__": _method(self.free.append)})
        self.plain_take = map(cls.from_address, map(_addressof, starmap(self.free.pop, repeat(())))).__next__
        self.noticed = 0                    # of how many that lie idle it was told that they came back
        self.choose_take()

    def choose_take(self):
        """Have `take` tell the observers of memory, if there are any."""
        observed = observers.allocated is not None or observers.freed is not None
        self.take = functools.partial(_take_and_tell, self) if observed else self.plain_take


# `allocated` is never too little: what came back meanwhile to other classes is seen when it is about to be a peak. Of
# small spare arrays that are in use again it does not know. See Note [Spare arrays] in array_pool.py.
_counts, spares, large_spares = spare_arrays.state()
_size_classes: dict = {}        # size → SizeClass
_fast_paths: dict = {}          # bytes asked for → SizeClass
_slabs: dict = {}               # where it starts → (mapping, SizeClass, how many blocks)
_regions: dict = {}             # address of a large block → (mapping, SizeClass)
on_failure: list = []           # functions of (error, what was looked at) that give words for the message


# --- a block, or an array over one -----------------------------------------------------------------------------------


def block(nbytes):
    """A Block of at least `nbytes` bytes, not initialised, that starts at a multiple of 64."""
    try:
        size_class = _fast_paths[nbytes]
        made = size_class.take()
    except LookupError:
        return _allocate(nbytes)
    size_class.calls += 1
    if len(size_class.free) != size_class.idle:
        _update_counts(size_class)
    return made


def lined_up(array, spec):
    """`array`, or a copy of it that begins at a cache line where it does not; see Note [Lined up]."""
    if address(array) % CACHE_LINE_BYTES == 0:
        return array
    laid, _ = blank(spec)
    laid[...] = array
    return laid


def blank(spec):
    """An uninitialised array laid out as `spec`, which must be dense, and its address."""
    try:                                              # `block` again: a call is a tenth of what this costs
        size_class = _fast_paths[spec.nbytes]
        made = size_class.take()
    except LookupError:
        made = _allocate(spec.nbytes, spec)
    else:
        size_class.calls += 1
        if len(size_class.free) != size_class.idle:
            _update_counts(size_class)
    if spec.contiguous:
        return _array(spec.shape, spec.dtype.np, made), _addressof(made)
    return _array(spec.shape, spec.dtype.np, made, 0, spec.np_strides), _addressof(made)


def _update_counts(size_class):
    """See whether more is in use than ever, and whether too much lies idle: something has changed in this class."""
    idle = len(size_class.free)
    _counts.allocated += (size_class.idle - idle) * size_class.size
    size_class.idle = idle
    if exceeds_peak():
        notice_peak()
    _settle()


def notice_peak():
    """Count what is in use: it may be more than ever was."""
    _recount()
    _counts.peak = max(_counts.peak, _counts.allocated - _counts.spare)


def _recount():
    total, spare = 0, _blocks_under(_small_spares())
    for size_class in list(_size_classes.values()):
        size_class.idle = len(size_class.free)
        total += (size_class.blocks - size_class.idle - spare.get(size_class.size, 0)) * size_class.size
    _counts.allocated = total
    _counts.spare = sum(block_of(array)[1] for array, _ in list(large_spares.values()))


def _small_spares():
    return [one for arrays in list(spares.values()) for one in list(arrays)]


def _spare_arrays():
    """(array, address) of all spare arrays."""
    return [*_small_spares(), *list(large_spares.values())]


def _blocks_under(arrays):
    """How many blocks of each size class are under (array, address), each of which has one."""
    return Counter(block_of(array)[1] for array, _ in arrays)


def _drop_spares():
    spares.clear()
    large_spares.clear()
    _recount()


def class_of(spec):
    """The SizeClass of a spec's arrays: code that gives a spare one out again counts that there."""
    return _size_class(class_size(spec.nbytes))


# --- when nothing idle fits ------------------------------------------------------------------------------------------


def _allocate(nbytes, spec=None):
    """A block whose size was not asked for before, or of whose class nothing is idle."""
    size = class_size(nbytes)
    with _lock:
        try:
            size_class, made = _large(size) if size > MAX_SMALL_BYTES else _small(size)
        except MemoryError:
            raise failure(nbytes, spec) from None
        if len(_fast_paths) > 10_000:                 # a program with ever new sizes
            _fast_paths.clear()
        _fast_paths[nbytes] = _size_class(size)
    size_class.calls += 1
    _update_counts(size_class)
    return made


def _size_class(size):
    # a finaliser may have made it in between
    return _size_classes.get(size) or _size_classes.setdefault(size, SizeClass(size))


def _large(size):
    """(class, Block) of an idle block of this class or little more, or of a fresh one."""
    near = size
    while near <= size * (100 + SURPLUS_PERCENT) // 100:
        size_class = _size_classes.get(near)
        if size_class is not None:
            with contextlib.suppress(IndexError):
                return size_class, size_class.take()
        near = class_size(near + 1)
    size_class = _size_class(size)
    while True:
        mapping, address = _map_fresh(size, own_mapping=True)
        size_class.misses += 1
        _regions[address] = (mapping, size_class)
        size_class.blocks += 1
        size_class.idle += 1
        size_class.free.append(size_class.raw.from_address(address))
        with contextlib.suppress(IndexError):         # another thread was quicker
            return size_class, size_class.take()


def _small(size):
    """(class, Block) of an idle block, or of the first one of a fresh slab."""
    size_class = _size_class(size)
    while True:
        with contextlib.suppress(IndexError):
            return size_class, size_class.take()
        count = max(MIN_SLAB_BYTES, min(16 * size, HUGE_PAGE_BYTES)) // size
        mapping, start = _map_fresh(count * size, own_mapping=False)
        size_class.misses += 1
        _slabs[start] = (mapping, size_class, count)
        size_class.blocks += count
        size_class.idle += count
        # the next in memory is the next to be given
        size_class.free.extend(map(size_class.raw.from_address, range(start + (count - 1) * size, start - 1, -size)))


def _map_fresh(size, own_mapping):
    """Memory from the system: the mapping, and where it starts. Gives back what is idle if it must."""
    if size > _counts.room:                           # a look costs the reading of files, so it is taken now and then
        if not make_room(size):
            raise MemoryError
        _counts.room = available() // 4
    try:
        mapping, start = _map_aligned(size)
    except (OSError, MemoryError):
        empty_cache()
        _counts.retries += 1
        try:
            mapping, start = _map_aligned(size)
        except OSError:
            raise MemoryError from None
    _advise(mapping, size, own_mapping)
    _counts.room -= size
    _counts.reserved = reserved = _counts.reserved + size
    if reserved > _counts.reserved_peak:
        _counts.reserved_peak = reserved
    return mapping, start


def make_room(nbytes):
    """Give back what is idle if `nbytes` would not fit beside it; False if they could never be there.

    The system would promise them all the same, and end the process when they are touched.
    """
    if nbytes > available():
        empty_cache()
    return nbytes <= limit() - max(resident_bytes(), allocated())


def has_room(nbytes):
    """Whether `nbytes` could be had now, by a caller that ends the process if not; gives back what is idle."""
    if not make_room(nbytes):
        return False
    for last in (False, True):
        try:
            _map(nbytes).close()
            return True
        except (OSError, MemoryError):
            if not last:
                empty_cache()
    return False


def _map_aligned(size):
    """(mapping, where its memory starts): from a huge page on, at a multiple of its size, where huge pages lie."""
    if size < HUGE_PAGE_BYTES or size % HUGE_PAGE_BYTES == 0:
        mapping = _map(size)
        start = _addressof(ctypes.c_char.from_buffer(mapping))
        if size < HUGE_PAGE_BYTES or start % HUGE_PAGE_BYTES == 0:
            return mapping, start
        mapping.close()                               # Linux lays such mappings so since 6.7
    mapping = _map(size + HUGE_PAGE_BYTES)            # the room to move is never touched, so it is no memory
    start = _addressof(ctypes.c_char.from_buffer(mapping))
    return mapping, -(-start // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES


def _map(size):
    """An anonymous mapping of our own."""
    size = -(-size // PAGE_BYTES) * PAGE_BYTES
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _advise(mapping, size, own_mapping):
    """Make the first touch cheap: huge pages, or for a mapping of its own all pages at once, not a fault for each."""
    if HUGE_PAGE_ADVICE is not None and (size >= HUGE_PAGE_BYTES or own_mapping):
        with contextlib.suppress(OSError):            # a kernel that does not know it: it was but a wish
            mapping.madvise(HUGE_PAGE_ADVICE if size >= HUGE_PAGE_BYTES else MADV_POPULATE_WRITE)


# --- giving memory back to the system --------------------------------------------------------------------------------


def empty_cache():
    """Give back to the system what lies idle: large blocks, and slabs none of whose blocks is in use. Says how much."""
    with _lock:
        before = reserved()
        _drop_spares()
        _trim(0)
        for size_class in filter(lambda one: one.size <= MAX_SMALL_BYTES, list(_size_classes.values())):
            _drop_slabs(size_class)
        return before - reserved()


def _settle():
    """Give back large blocks if more lie idle than may."""
    if _counts.reserved > _cap():                     # else it cannot be
        with _lock:
            _trim(_cap())


def _trim(most):
    """Unmap large blocks, first of the classes not used for longest, until not more than `most` bytes lie idle."""
    if _told:
        with observers.gathered(is_run=False):                 # what is unmapped cannot be noticed any more
            _notice_freed()
    large = [size_class for size_class in list(_size_classes.values()) if size_class.size > MAX_SMALL_BYTES]
    for size_class in large:
        if size_class.calls != size_class.calls_then:
            size_class.calls_then, size_class.since = size_class.calls, next(_clock)
    large.sort(key=lambda size_class: size_class.since)
    idle = sum(size_class.size * len(size_class.free) for size_class in large)
    for size_class in large:
        while idle > most and size_class.free:
            gone = None
            with contextlib.suppress(IndexError):     # another thread took it in between
                # in one step: from the idle ones, and with it the mapping, which nothing else holds
                gone = next(map(_regions.pop, map(_addressof, starmap(size_class.free.pop, ((0,),)))))
            if gone is not None:
                size_class.blocks -= 1
                size_class.idle -= 1
                size_class.noticed = 0
                idle -= size_class.size
                _counts.reserved -= size_class.size


def _drop_slabs(size_class):
    """Unmap the slabs of a small class all of whose blocks are idle."""
    if _told:
        with observers.gathered(is_run=False):                 # what is unmapped cannot be noticed any more
            _notice_freed()
    idle: list = []
    try:
        with contextlib.suppress(IndexError):         # until there are no more
            idle.extend(starmap(size_class.free.pop, repeat(())))
        _unmap_whole(size_class, idle)
    finally:                                          # an interrupt, or not
        size_class.noticed = 0
        size_class.free.extend(idle)


def _unmap_whole(size_class, idle):
    """Unmap the slabs all of whose blocks are in `idle`, and take these out of it."""
    idle.reverse()
    starts = sorted(start for start, slab in _slabs.copy().items() if slab[1] is size_class)
    slab_of = [starts[bisect_right(starts, _addressof(dead)) - 1] for dead in idle]
    found = Counter(slab_of)
    whole = {start for start in starts if found[start] == _slabs[start][2]}
    idle[:] = [dead for dead, start in zip(idle, slab_of, strict=True) if start not in whole]
    for start in whole:
        size_class.blocks -= _slabs[start][2]
        size_class.idle -= _slabs[start][2]
        _counts.reserved -= size_class.size * _slabs[start][2]
        del _slabs[start]


def _cap():
    """How many bytes of large blocks may lie idle."""
    return settings.cache_bytes if settings.cache_bytes >= 0 else _quarter()


@functools.cache
def _quarter():
    return limit() // 4


# --- who observes it -------------------------------------------------------------------------------------------------
#
# A finaliser tells no observer; see Note [Finalisers]. That a block came back is seen when it is taken again, or when
# what lies idle is looked through: dead Blocks come to the end of their list and are taken from there, so those up
# to `noticed` need not be looked at again.

_told: dict = {}                # address of a block in use → its Allocation, of which observers were told


def block_of(array):
    """(address, bytes) of the Block that a NumPy array stands in; None where it stands in other memory."""
    while array is not None and not isinstance(array, Block):
        array = getattr(array, "base", None)
    return None if array is None else (array.address, array.nbytes)


def adopt(address, allocation):
    """Tell observers `allocation` when the block at `address` comes back, or what they know of it already."""
    return _told.setdefault(address, allocation)


def _take_and_tell(size_class):
    _notice_freed()                                   # so that what is in use is never told to be more than it is
    made = size_class.plain_take()
    size_class.noticed = min(size_class.noticed, len(size_class.free))
    address = _addressof(made)
    _tell_freed(_told.pop(address, None))
    _told[address] = allocation = observers.Allocation(size_class.size, CPU, address)
    if (tell := observers.allocated) is not None:
        tell(allocation)
    return made


def _tell_freed(allocation):
    if allocation is not None:
        observers.tell_freed(allocation)


def _notice_freed():
    """Tell observers of the blocks that came back since it was last looked."""
    if not _told:
        return
    for size_class in list(_size_classes.values()):
        idle = size_class.free[size_class.noticed:]
        size_class.noticed += len(idle)
        for dead in idle:
            _tell_freed(_told.pop(_addressof(dead), None))


def _observe():
    """The first observer of memory came, or the last has gone."""
    _drop_spares()
    for size_class in list(_size_classes.values()):
        size_class.noticed = 0                        # while there was no observer, blocks were taken and came back
        size_class.choose_take()
    if observers.allocated is None and observers.freed is None:
        _told.clear()


observers.on_change.append(_observe)
observers.catch_up.append(_notice_freed)


# --- what there is to know -------------------------------------------------------------------------------------------


def allocated():
    """The bytes of all blocks in use."""
    return stats()["allocated_bytes.all.current"]


def reserved():
    """The bytes that the system gave and that were not given back."""
    return stats()["reserved_bytes.all.current"]


def stats():
    """All numbers, under the names of `torch.cuda.memory_stats()`; of peaks, those of all pools together."""
    _settle()
    blocks = Counter(size_class for _, size_class in list(_regions.values()))
    slabs = Counter()
    for _, size_class, count in list(_slabs.values()):
        slabs[size_class] += 1
        blocks[size_class] += count
    out = dict.fromkeys((f"{what}.{pool}.{number}"
                         for what in ("allocation", "allocated_bytes", "reserved_bytes", "segment")
                         for pool in ("all", "large_pool", "small_pool")
                         for number in ("current", "allocated", "freed")[:3 if what[:5] == "alloc" else 1]), 0)
    misses, spare = 0, _blocks_under(_spare_arrays())
    for size_class in list(_size_classes.values()):
        pool = "large_pool" if size_class.size > MAX_SMALL_BYTES else "small_pool"
        misses += size_class.misses
        live, calls = blocks[size_class] - len(size_class.free) - spare[size_class.size], size_class.calls
        for where in ("all", pool):
            for what, unit in (("allocation", 1), ("allocated_bytes", size_class.size)):
                out[f"{what}.{where}.current"] += live * unit
                out[f"{what}.{where}.allocated"] += calls * unit
                out[f"{what}.{where}.freed"] += (calls - live) * unit
            out[f"reserved_bytes.{where}.current"] += blocks[size_class] * size_class.size
            out[f"segment.{where}.current"] += slabs[size_class] or blocks[size_class]
    out["allocated_bytes.all.peak"] = max(_counts.peak, out["allocated_bytes.all.current"])
    out["reserved_bytes.all.peak"] = max(_counts.reserved_peak, out["reserved_bytes.all.current"])
    out["num_cache_hits"] = out["allocation.all.allocated"] - misses
    out["num_alloc_retries"] = _counts.retries
    out["num_ooms"] = _counts.failures
    return out


def reset_peaks():
    """Count the peaks from now on."""
    now = stats()
    _recount()
    _counts.peak = _counts.allocated - _counts.spare
    _counts.reserved_peak = _counts.reserved = now["reserved_bytes.all.current"]


def segments():
    """Each mapping as a dictionary with the names of `torch.cuda.memory_snapshot()`, in the order of memory."""
    idle = {_addressof(dead) for size_class in list(_size_classes.values()) for dead in list(size_class.free)}
    idle.update(address for _, address in _spare_arrays())
    # see Note [A copy to go through] in base/weakbag.py
    found = [(start, size_class, 1) for start, (_, size_class) in _regions.copy().items()]
    found += [(start, size_class, count) for start, (_, size_class, count) in _slabs.copy().items()]
    out = []
    for start, size_class, count in sorted(found, key=lambda segment: segment[0]):
        blocks = [{"address": at, "size": size_class.size, "state": "inactive" if at in idle else "active_allocated"}
                  for at in range(start, start + count * size_class.size, size_class.size)]
        used = size_class.size * sum(b["state"] == "active_allocated" for b in blocks)
        out.append({"device": 0, "address": start, "total_size": count * size_class.size, "allocated_size": used,
                    "active_size": used, "blocks": blocks,
                    "segment_type": "large" if size_class.size > MAX_SMALL_BYTES else "small"})
    return out


# --- no room ---------------------------------------------------------------------------------------------------------


def explained(error, asked=None):
    """`error`, a MemoryError of ours or of NumPy's, with what the layers above know about who holds the memory.

    `asked` is the Value that was looked at.
    """
    if getattr(error, "complete", False):
        return error
    if not isinstance(error, OutOfMemoryError):                             # the array module's: NumPy's, CuPy's
        shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
        nbytes = None if dtype is None else math.prod(shape) * dtype.itemsize
        spec, entry = getattr(error, "spec", None), getattr(error, "entry", None)
        device = spec.device if spec is not None else entry.device if entry is not None else CPU
        known, error = error, device.backend.no_room(nbytes, spec, str(error))
        error.entry, error.site = entry, getattr(known, "site", None)
    whole = OutOfMemoryError("".join([error.args[0], *(explain(error, asked) for explain in on_failure)]))
    whole.nbytes, whole.spec, whole.device, whole.complete = error.nbytes, error.spec, error.device, True
    return whole


def failure(nbytes, spec=None, said=""):
    """The error that says there is no room for `nbytes` bytes."""
    _counts.failures += 1
    what = said if nbytes is None else f"you tried to allocate {nbytes} bytes ({bytes_in_words(nbytes)})"
    now = stats()
    error = OutOfMemoryError(
        f"can't allocate memory: {what or 'there is none left'}. "
        f"This process holds {bytes_in_words(resident_bytes())} of the {bytes_in_words(limit())} that it may have; "
        f"{bytes_in_words(now['allocated_bytes.all.current'])} are "
        f"allocated and {bytes_in_words(now['reserved_bytes.all.current'])} reserved in the CPU's cache.")
    error.nbytes, error.spec = nbytes, spec
    return error


def bytes_in_words(nbytes):
    """A number of bytes as a person reads it."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.4g} TiB"
