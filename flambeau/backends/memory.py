"""The caching allocator of the CPU: blocks of memory that come back to a pool when nobody looks at them any more.

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

from ..base import settings
from ..base.locks import new_lock
from .machine import available, held, limit

PAGE = mmap.PAGESIZE
SMALL = 256 << 10               # up to here blocks are carved out of slabs
SLAB = 64 << 10                 # the least bytes of a slab
HUGE = 2 << 20                  # a huge page, and the most bytes of a slab
MORE = 25                       # how many percent larger an idle block may be than the class that was asked for
ADVICE = getattr(mmap, "MADV_HUGEPAGE", None)
POPULATE = 23                   # Linux's MADV_POPULATE_WRITE, which Python does not name yet

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


class Home:
    """A size class: what lies idle, the longest idle first, and `take`, which makes a Block of the last of it."""

    __slots__ = ("size", "raw", "free", "take", "blocks", "idle", "since", "calls", "calls_then", "misses")

    def __init__(self, size):
        self.size = size
        self.raw = ctypes.c_char * size     # memory that no Block has had yet
        self.free = []                      # such, and dead Blocks; see Note [Finalisers]
        self.blocks = self.idle = 0         # how many there are, and how many were idle when it was last counted
        self.calls = self.misses = 0
        self.calls_then = self.since = 0    # how many calls `_trim` has seen, and when it last saw more
        kind = type("Block", (Block, self.raw), {"__slots__": (), "nbytes": size, "__del__": _method(self.free.append)})
        self.take = map(kind.from_address, map(_addressof, starmap(self.free.pop, repeat(())))).__next__


class _Counts:
    """Running numbers, for peaks and decisions; what is allocated and reserved is counted afresh when asked.

    `allocated` is never too little: what came back meanwhile to other classes is seen when it is about to be a peak.
    """

    __slots__ = ("allocated", "peak", "reserved", "reserved_peak", "room", "retries", "failures")

    def __init__(self):
        for name in self.__slots__:
            setattr(self, name, 0)


_counts = _Counts()
_homes: dict = {}               # size → Home
_ways: dict = {}                # bytes asked for → Home
_slabs: dict = {}               # where it starts → (mapping, Home, how many blocks)
_regions: dict = {}             # address of a large block → (mapping, Home)
on_failure: list = []           # functions of (error, what was looked at) that give words for the message


# --- a block, or an array over one -----------------------------------------------------------------------------------


def block(nbytes):
    """A Block of at least `nbytes` bytes, not initialised, that starts at a multiple of 64."""
    try:
        home = _ways[nbytes]
        made = home.take()
    except LookupError:
        return _slowly(nbytes)
    home.calls += 1
    if len(home.free) != home.idle:
        _count(home)
    return made


def blank(spec):
    """An uninitialised array laid out as `spec`, which must be dense, and its address."""
    try:                                              # `block` again: a call is a tenth of what this costs
        home = _ways[spec.nbytes]
        made = home.take()
    except LookupError:
        made = _slowly(spec.nbytes, spec)
    else:
        home.calls += 1
        if len(home.free) != home.idle:
            _count(home)
    if spec.contiguous:
        return _array(spec.shape, spec.dtype.np, made), _addressof(made)
    return _array(spec.shape, spec.dtype.np, made, 0, spec.np_strides), _addressof(made)


def _count(home):
    """See whether more is in use than ever, and whether too much lies idle: something has changed in `home`."""
    idle = len(home.free)
    _counts.allocated += (home.idle - idle) * home.size
    home.idle = idle
    if _counts.allocated > _counts.peak:
        _recount()
        _counts.peak = max(_counts.peak, _counts.allocated)
    _settle()


def _recount():
    total = 0
    for home in list(_homes.values()):
        home.idle = len(home.free)
        total += (home.blocks - home.idle) * home.size
    _counts.allocated = total


def rounded(nbytes):
    """The size class of `nbytes`: steps of 64 up to 1024, then eight to a power of two, so that an eighth is waste."""
    if nbytes <= 1024:
        return max(nbytes + 63 & ~63, 64)
    shift = (nbytes - 1).bit_length() - 4
    return ((nbytes - 1 >> shift) + 1) << shift


# --- when nothing idle fits ------------------------------------------------------------------------------------------


def _slowly(nbytes, spec=None):
    """A block whose size was not asked for before, or of whose class nothing is idle."""
    size = rounded(nbytes)
    with _lock:
        try:
            home, made = _large(size) if size > SMALL else _small(size)
        except MemoryError:
            raise failure(nbytes, spec) from None
        if len(_ways) > 10_000:                       # a program with ever new sizes
            _ways.clear()
        _ways[nbytes] = _home(size)
    home.calls += 1
    _count(home)
    return made


def _home(size):
    return _homes.get(size) or _homes.setdefault(size, Home(size))      # a finaliser may have made it in between


def _large(size):
    """(class, Block) of an idle block of this class or little more, or of a fresh one."""
    near = size
    while near <= size * (100 + MORE) // 100:
        home = _homes.get(near)
        if home is not None:
            with contextlib.suppress(IndexError):
                return home, home.take()
        near = rounded(near + 1)
    home = _home(size)
    while True:
        mapping, address = _fresh(size, lone=True)
        home.misses += 1
        _regions[address] = (mapping, home)
        home.blocks += 1
        home.idle += 1
        home.free.append(home.raw.from_address(address))
        with contextlib.suppress(IndexError):         # another thread was quicker
            return home, home.take()


def _small(size):
    """(class, Block) of an idle block, or of the first one of a fresh slab."""
    home = _home(size)
    while True:
        with contextlib.suppress(IndexError):
            return home, home.take()
        count = max(SLAB, min(16 * size, HUGE)) // size
        mapping, start = _fresh(count * size, lone=False)
        home.misses += 1
        _slabs[start] = (mapping, home, count)
        home.blocks += count
        home.idle += count
        # the next in memory is the next to be given
        home.free.extend(map(home.raw.from_address, range(start + (count - 1) * size, start - 1, -size)))


def _fresh(size, lone):
    """Memory from the system: the mapping, and where it starts. Gives back what is idle if it must."""
    if size > _counts.room:                           # a look costs the reading of files, so it is taken now and then
        if not make_room(size):
            raise MemoryError
        _counts.room = available() // 4
    # Huge pages lie at multiples of their size. The room to move there is never touched, so it is no memory.
    spare = HUGE if size >= HUGE and size % HUGE else 0
    try:
        mapping = _map(size + spare)
    except (OSError, MemoryError):
        empty_cache()
        _counts.retries += 1
        try:
            mapping = _map(size + spare)
        except OSError:
            raise MemoryError from None
    _advise(mapping, size, lone)
    start = _addressof(ctypes.c_char.from_buffer(mapping))
    if spare:
        start = -(-start // HUGE) * HUGE
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
    return nbytes <= limit() - max(held(), allocated())


def has_room(nbytes):
    """Whether `nbytes` could be had now, by somebody who ends the process if they cannot; gives back what is idle."""
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


def _map(size):
    """An anonymous mapping of our own."""
    size = -(-size // PAGE) * PAGE
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _advise(mapping, size, lone):
    """Make the first touch cheap: huge pages, or for a lone block all pages at once instead of a fault for each."""
    if ADVICE is not None and (size >= HUGE or lone):
        with contextlib.suppress(OSError):            # a kernel that does not know it: it was but a wish
            mapping.madvise(ADVICE if size >= HUGE else POPULATE)


# --- giving memory back to the system --------------------------------------------------------------------------------


def empty_cache():
    """Give back to the system what lies idle: large blocks, and slabs none of whose blocks is in use. Says how much."""
    with _lock:
        before = reserved()
        _trim(0)
        for home in list(_homes.values()):
            if home.size <= SMALL:
                _drop_slabs(home)
        return before - reserved()


def _settle():
    """Give back large blocks if more lie idle than may."""
    if _counts.reserved > _cap():                     # else it cannot be
        with _lock:
            _trim(_cap())


def _trim(most):
    """Unmap large blocks, first of the classes not used for longest, until not more than `most` bytes lie idle."""
    large = [home for home in list(_homes.values()) if home.size > SMALL]
    for home in large:
        if home.calls != home.calls_then:
            home.calls_then, home.since = home.calls, next(_clock)
    large.sort(key=lambda home: home.since)
    idle = sum(home.size * len(home.free) for home in large)
    for home in large:
        while idle > most and home.free:
            gone = None
            with contextlib.suppress(IndexError):     # somebody took it in between
                # in one step: from the idle ones, and with it the mapping, which nobody else holds
                gone = next(map(_regions.pop, map(_addressof, starmap(home.free.pop, ((0,),)))))
            if gone is not None:
                home.blocks -= 1
                home.idle -= 1
                idle -= home.size
                _counts.reserved -= home.size


def _drop_slabs(home):
    """Unmap the slabs of a small class all of whose blocks are idle."""
    idle: list = []
    try:
        with contextlib.suppress(IndexError):         # until there are no more
            idle.extend(starmap(home.free.pop, repeat(())))
        idle.reverse()
        starts = sorted(start for start, slab in _slabs.copy().items() if slab[1] is home)
        slab_of = [starts[bisect_right(starts, _addressof(dead)) - 1] for dead in idle]
        found = Counter(slab_of)
        whole = {start for start in starts if found[start] == _slabs[start][2]}
        idle = [dead for dead, start in zip(idle, slab_of, strict=True) if start not in whole]
        for start in whole:
            home.blocks -= _slabs[start][2]
            home.idle -= _slabs[start][2]
            _counts.reserved -= home.size * _slabs[start][2]
            del _slabs[start]
    finally:                                          # an interrupt, or not
        home.free.extend(idle)


def _cap():
    """How many bytes of large blocks may lie idle."""
    return settings.cache_bytes if settings.cache_bytes >= 0 else _quarter()


@functools.cache
def _quarter():
    return limit() // 4


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
    blocks = Counter(home for _, home in list(_regions.values()))
    slabs = Counter()
    for _, home, count in list(_slabs.values()):
        slabs[home] += 1
        blocks[home] += count
    out = dict.fromkeys((f"{what}.{pool}.{number}"
                         for what in ("allocation", "allocated_bytes", "reserved_bytes", "segment")
                         for pool in ("all", "large_pool", "small_pool")
                         for number in ("current", "allocated", "freed")[:3 if what[:5] == "alloc" else 1]), 0)
    misses = 0
    for home in list(_homes.values()):
        pool = "large_pool" if home.size > SMALL else "small_pool"
        misses += home.misses
        live, calls = blocks[home] - len(home.free), home.calls
        for where in ("all", pool):
            for what, unit in (("allocation", 1), ("allocated_bytes", home.size)):
                out[f"{what}.{where}.current"] += live * unit
                out[f"{what}.{where}.allocated"] += calls * unit
                out[f"{what}.{where}.freed"] += (calls - live) * unit
            out[f"reserved_bytes.{where}.current"] += blocks[home] * home.size
            out[f"segment.{where}.current"] += slabs[home] or blocks[home]
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
    _counts.peak = _counts.allocated
    _counts.reserved_peak = _counts.reserved = now["reserved_bytes.all.current"]


def segments():
    """Each mapping as a dictionary with the names of `torch.cuda.memory_snapshot()`, in the order of memory."""
    idle = {_addressof(dead) for home in list(_homes.values()) for dead in list(home.free)}
    # see Note [A copy to go through] in base/weakbag.py
    found = [(start, home, 1) for start, (_, home) in _regions.copy().items()]
    found += [(start, home, count) for start, (_, home, count) in _slabs.copy().items()]
    out = []
    for start, home, count in sorted(found, key=lambda segment: segment[0]):
        blocks = [{"address": at, "size": home.size, "state": "inactive" if at in idle else "active_allocated"}
                  for at in range(start, start + count * home.size, home.size)]
        used = home.size * sum(b["state"] == "active_allocated" for b in blocks)
        out.append({"device": 0, "address": start, "total_size": count * home.size, "allocated_size": used,
                    "active_size": used, "segment_type": "large" if home.size > SMALL else "small", "blocks": blocks})
    return out


# --- no room ---------------------------------------------------------------------------------------------------------


def explained(error, asked=None):
    """`error`, a MemoryError of ours or of NumPy's, with what the layers above know about who holds the memory.

    `asked` is the Value that somebody looked at.
    """
    if getattr(error, "complete", False):
        return error
    if not isinstance(error, OutOfMemoryError):                             # NumPy's
        shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
        nbytes = None if dtype is None else math.prod(shape) * dtype.itemsize
        known, error = error, failure(nbytes, getattr(error, "spec", None), said=str(error))
        error.entry, error.site = getattr(known, "entry", None), getattr(known, "site", None)
    whole = OutOfMemoryError("".join([error.args[0], *(explain(error, asked) for explain in on_failure)]))
    whole.nbytes, whole.spec, whole.complete = error.nbytes, error.spec, True
    return whole


def failure(nbytes, spec=None, said=""):
    """The error that says there is no room for `nbytes` bytes."""
    _counts.failures += 1
    what = said if nbytes is None else f"you tried to allocate {nbytes} bytes ({words(nbytes)})"
    now = stats()
    error = OutOfMemoryError(
        f"can't allocate memory: {what or 'there is none left'}. This process holds {words(held())} of the "
        f"{words(limit())} that it may have; {words(now['allocated_bytes.all.current'])} are allocated and "
        f"{words(now['reserved_bytes.all.current'])} reserved in the CPU's cache.")
    error.nbytes, error.spec = nbytes, spec
    return error


def words(nbytes):
    """A number of bytes as a person reads it."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.4g} TiB"
