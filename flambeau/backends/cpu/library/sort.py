"""Rows in order as native steps: sorted, the largest or smallest of each, and the one of a given rank.

    ranks     short rows: each element is compared with all of its row, by vectors; as many are smaller, so far back it
              goes, and equal ones go there one after the other
    digits    long rows: keys with their indices are dealt out by a few bits at a time, the lowest first, as often as
              the elements of the row differ in those bits
    leaders   the few best of a row: vectors are compared with the last of the best so far, and what is better goes in
              among them, which happens seldom
    best      more of them: of the highest bits it is counted how often each value comes, those that may be among the
              best by these are put aside, and they are ranked, or sorted by digits
    select    one rank: the same, but those are put aside that have the value in question, and so on with
              the next bits until few are left, which are ranked

What the results hold are the elements themselves: those of keys that stand for several are read again. A tile is a
number of rows, which have its part of the working memory by turns.
"""
from math import ceil, log
from typing import NamedTuple

from ..memory.allocator import CACHE_LINE_BYTES
from ..threads import get_num_threads
from .blocking import up
from .gemm import HASTY_CYCLES, PIECE_CYCLES, PIECES_A_THREAD, LibraryCall
from .gemm_kernels import compiled_kernels
from .sort_kernels import (
    AT_FIRST,
    AT_MEDIAN,
    AT_NANMEDIAN,
    BEST_AT,
    BEST_RANKS,
    LONG_DIGIT,
    RANKED_VECTORS,
    SHORT_DIGIT,
    OrderKernels,
)
from .sort_keys import ORDERED_TYPES, Keys

MAX_LEADERS = 64
SAMPLED_ROW = 2048            # elements of a row of which some are looked at first, where a few are wanted
MAX_ORDER_ROOM_BYTES = 32 << 20        # of working memory, unless the threads need more
LONG_DIGIT_ROW = 3000         # elements of a row that is worth as many counts as a longer digit has values,
LONG_COUNTED_ROW = 384        # where it is sorted, and where one digit is counted


class Way(NamedTuple):
    """How rows are put in order: the function and what it is written for, cycles by estimate, bytes of working memory,
    and what goes into the field `first` if it has a meaning of its own there."""
    how: tuple
    cycles: float
    room_bytes: int
    first: int = 0


def sort(dtype, shape, descending):
    """A LibraryCall for the rows of a contiguous array in order, and where each element was; or None. The buffers are
    x, the values and the indices."""
    return _call(dtype, shape, [_ranks, _digits], 0, shape[-1] if shape else 0, AT_FIRST, descending)


def topk(dtype, shape, count, largest):
    """A LibraryCall for the `count` largest or smallest elements of each row, the best first; or None."""
    return _call(dtype, shape, [_ranks, _leaders, _best, _digits], 0, count, AT_FIRST, largest)


def pick(dtype, shape, which, rank):
    """A LibraryCall for one element of each row: the one at `rank` of the order ("kthvalue"), the middle one, or NaN
    if there is any ("median"), or the middle one of the others ("nanmedian"); or None."""
    asked = {"kthvalue": AT_FIRST, "median": AT_MEDIAN, "nanmedian": AT_NANMEDIAN}[which]
    return _call(dtype, shape, [_ranks, _select], rank, 1, asked, False)


def _call(dtype, shape, ways, first, count, asked, descending):
    dtype = getattr(dtype, "name", dtype)
    if dtype not in ORDERED_TYPES or not shape or 0 in shape or not count or shape[-1] >= 1 << 32:
        return None
    n, rows = shape[-1], 1
    for size in shape[:-1]:
        rows *= size
    machine = compiled_kernels("float32", OrderKernels)
    keys = Keys(dtype, machine.kernels.target)
    found = [way(dtype, keys, n, count, descending) for way in ways]
    way = min([one for one in found if one is not None], key=lambda one: one.cycles)
    threads, room = get_num_threads(), up(way.room_bytes, CACHE_LINE_BYTES)
    most = PIECES_A_THREAD * threads if threads > 1 else 1           # tiles, each of which has its working memory
    most = min(most, max(threads, MAX_ORDER_ROOM_BYTES // room))
    each = -(-rows // max(1, min(rows, most, int(rows * way.cycles // PIECE_CYCLES))))
    tiles = -(-rows // each)
    ints = [rows, each, n, way.first or first, count, asked, -1 if descending else 0, room]
    fn = machine.function(*way.how, hasty=rows * way.cycles < HASTY_CYCLES)
    return LibraryCall(fn, tiles, 1, ints, tiles * room)


def _ranks(dtype, keys, n, count, descending):
    step = RANKED_VECTORS * keys.lanes
    return Way(("ranks", dtype), -(-n // step) * n * 5 + 8 * n + 30, 4 * up(n, step) * keys.key_bytes)


def _digit_bits(keys, n, long_row):
    return LONG_DIGIT if n >= long_row and keys.bits > 16 else SHORT_DIGIT


def _digits(dtype, keys, n, count, descending):
    bits = _digit_bits(keys, n, LONG_DIGIT_ROW)
    passes = ceil(keys.bits / bits)
    return Way(("digits", dtype, bits), passes * (2.5 * (1 << bits) + 7 * n) + 6 * n,
               n * keys.pair_bytes * (1 if keys.paired and count == n else 2))


def _best(dtype, keys, n, count, descending):
    """None where most are asked for. A few more than are asked for are expected to be candidates."""
    kept = count + count // 4
    if kept > n:
        return None
    bits = _digit_bits(keys, n, LONG_COUNTED_ROW)
    way = _ranks(dtype, keys, kept, count, descending) if kept <= BEST_RANKS else \
        _digits(dtype, keys, kept, count, descending)
    return Way(("best", dtype, bits), 0.8 * (1 << bits) + 9 * n + 200 + way.cycles,
               _candidate_bytes(keys, n) + 2 * n * keys.pair_bytes)


def _candidate_bytes(keys, n):
    """Of working memory, for as many Candidates."""
    return up(up(up(n, RANKED_VECTORS * keys.lanes) * keys.key_bytes, CACHE_LINE_BYTES) + 8 * n, CACHE_LINE_BYTES)


def _leaders(dtype, keys, n, count, largest):
    """None if there are too many: those that are better are expected count * log(n / count) times, and each moves half
    of the best; the others of its vectors are looked at too."""
    if count > MAX_LEADERS:
        return None
    step = RANKED_VECTORS * keys.lanes
    times = count * (log(n / count) + 1)
    # as many that are looked at beforehand as go in later, if they were in order
    apart = int((n / count) ** 0.5) if n >= SAMPLED_ROW else 0
    cycles = times * (30 + 1.5 * count) + min(times, n / step) * step * 4 + n / step * 14
    return Way(("leaders", dtype, int(largest)), cycles,
               BEST_AT + up(count * keys.key_bytes, CACHE_LINE_BYTES) + 8 * count, apart * step)


def _select(dtype, keys, n, count, descending):
    bits = _digit_bits(keys, n, LONG_COUNTED_ROW)
    return Way(("select", dtype, bits), 0.8 * (1 << bits) + 10 * n + 200, _candidate_bytes(keys, n))
