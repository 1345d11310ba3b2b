"""How a GPU goes through a kernel's positions: which threads share what, and how much each of them takes at once.

Nothing here shows in the results, since what is computed and in which order is the kernel's to say; see loops/ir.py.
The text for each of the three ways is written by loops/gpu.
"""
from math import prod

from ...loops.dialects.cuda import CUDA
from ...loops.dialects.words import Unrenderable
from ...loops.gpu.arguments import arguments
from ...loops.gpu.memory import VECTOR_BYTES
from ...loops.gpu.render import check
from ...loops.gpu.rows import MAX_ELEMENTS_AT_HAND
from ...loops.gpu.turned import TILE_ROWS, TILE_SIDE
from ...loops.ir import BYTES_OF_TYPE, FUNCTION_WORDS, dependencies, subexpressions
from ..backend import Reductions, Unschedulable

LANE_BYTES = 1024                 # `CUDABackend.vector_bytes`: up to four of these are the lanes of a row
# A GPU has some hundred thousand threads: few results over many elements are cut into many blocks, of columns too.
REDUCTIONS = Reductions(max_short=8, many_columns=64, lane_multiple=1024, column_multiple=1, min_row_elements=2048,
                        block_elements=1 << 14, max_row_blocks=1024, max_cut_rows=127, max_column_blocks=4096,
                        max_cut_columns=1 << 17, max_column_parts=1 << 20, block_multiple=4, min_columns_by_block=512)
MAP_THREADS = 256                 # of a block
COLUMN_THREADS = 128
SHORT_ROWS_THREADS = 128          # of a block that has several rows
MAX_GROUP = 512                   # threads that share a row that is kept at hand
ELEMENTS_OF_THREAD = 8            # of a light map: as many as two loads of 16 bytes have
LARGE_MAP = 1 << 18               # positions from which on a thread takes so many
COSTLY = 96                       # operations of an element, a function counted as ten, from which on one load will do
MANY_ACCESSES = 8
USED_OF_TILES = 0.9               # of the positions of tiles, so that tiles of single rows are worth it
MIN_COLUMN_THREADS = 1 << 15      # of a reduction down columns, before a thread takes several
MAX_WARP_ROW = 1024               # elements of a row that one warp may have to itself
MAX_CHUNKS = 32                   # that are written out
LOADS_UNDER_WAY = 8               # of a thread that walks several rows
ROW_THREADS_RESIDENT = 768        # of a multiprocessor, which registers have to do for
COLUMN_THREADS_RESIDENT = 1024
ABREAST_ELEMENTS = 16             # of a row that a thread has, where neighbours have other rows
MAX_ABREAST_GROUP = 32            # threads that share such a row
MIN_ABREAST = 8                   # such rows of a block: 32 bytes are read at least
ABREAST_BLOCKS = 128              # that there should be
# of kernels along rows that carry reductions down columns:
CARRYING_ELEMENTS = 16            # of a row that a thread has, where that many lanes share it
CARRYING_REGISTERS = 28           # beside those for what is at hand
MAX_CARRYING_REGISTERS = 128
MIN_CARRYING_ELEMENTS = 3584      # that a multiprocessor has under way at once
USED_OF_ROUNDS = 0.75             # of the blocks that can run at once, on average over the rounds
MANY_TOGETHER = 8                 # blocks of a multiprocessor, of which the last begin while others still run
MULTIPROCESSOR_REGISTERS = 1 << 16
REGISTER_BYTES = 4
MAX_BLOCKS_RESIDENT = 24
WARP = CUDA.warp
INT_LIMIT = (1 << 31) - 1


class GridSchedule:
    """How a kernel is gone through: a `way`, and what decides its text; see loops/gpu/__init__.py.

    `order` are the kept dimensions, outermost first, and `wide` says that positions do not fit into 32 bits. `block`
    are the threads of a block. Of `positions`, a thread takes `units` times `vector` neighbours, and `unroll` steps of
    a loop at once; `by_rows` says that a block stays within a row of the last dimension. Of `rows`, `group` threads
    share one, in at most `chunks` rounds, or in a loop where that is 0, and where rows lie `abreast`, neighbouring
    threads have neighbouring rows. Of what is `turned`, the accesses `across` go
    through shared memory. `resident` threads of a multiprocessor are enough, so that each may have more registers, and
    with them more loads under way; 0: as many as there can be.
    """

    __slots__ = ("way", "order", "wide", "block", "vector", "units", "unroll", "by_rows", "group", "chunks", "abreast",
                 "across", "resident")

    shared_bytes = 0              # beside what the text itself has
    lane_bytes = LANE_BYTES
    turned: dict = {}             # operands that lie otherwise go through shared memory

    def __init__(self, way, order, wide, block, vector=1, units=1, unroll=8, by_rows=False, group=1, chunks=0,
                 abreast=False, across=(), resident=0):
        self.way, self.order, self.wide, self.block = way, tuple(order), wide, block
        self.vector, self.units, self.unroll, self.by_rows = vector, units, unroll, by_rows
        self.group, self.chunks, self.abreast = group, chunks, abreast
        self.across, self.resident = tuple(across), resident

    @property
    def divided(self):
        """The kept dimensions that a count of positions is divided by."""
        return self.order[1:-2] if self.way == "turned" else self.order[1:-1] if self.by_rows else self.order[1:]

    @property
    def tiled(self):
        """The kept dimensions that are cut into tiles, each by itself."""
        return self.order[-2:] if self.way == "turned" else self.order[-1:] if self.by_rows else ()

    @property
    def tile(self):
        """How many positions of such a dimension, or of all, a block has."""
        return TILE_SIDE if self.way == "turned" else self.block[0] * self.units * self.vector

    @property
    def at_once(self):
        """How many rows a block has."""
        return self.block[0 if self.abreast else 1]

    @property
    def together(self):
        """How many blocks there should be room for on a multiprocessor."""
        return max(1, self.resident // prod(self.block))

    @property
    def bounds(self):
        """The threads of a block, and where it matters how many blocks are together on a multiprocessor."""
        threads = prod(self.block)
        return (threads, self.together) if self.resident else (threads,)

    def grid(self, launch):
        """The blocks of a launch along x, y and z."""
        if self.tiled:
            return prod(-(-launch.sizes[d] // self.tile) if d in self.tiled else launch.sizes[d]
                        for d in self.order), 1, 1
        count = prod(launch.sizes[d] for d in self.order)
        return -(-count // (self.at_once if self.way == "rows" else self.tile)), 1, 1

    def ints(self, launch):
        """The integers that the kernel is given, in order."""
        known = {"count": prod(launch.sizes[d] for d in self.order), "block cut": launch.block}
        for d, size in enumerate(launch.sizes):
            known[f"size {d}"] = size
            known[f"multiplier {d}"], known[f"shift {d}"] = reciprocal(size)
            tiles = known[f"tiles {d}"] = -(-size // self.tile)
            known[f"tiles multiplier {d}"], known[f"tiles shift {d}"] = reciprocal(tiles)
        for number, strides in enumerate(launch.strides):
            known.update({f"stride {number} {d}": stride for d, stride in enumerate(strides)})
            known[f"stride {number} at"] = launch.at_strides[number]
        return [known[name] for name in arguments(launch.kernel, self)]

    def words(self, printer):
        """The schedule in words that name what decides the code; `printer` has printed the kernel."""
        parts = [self.way]
        if self.order != tuple(range(len(self.order))):
            parts.append(f"over {' '.join(map(printer.dim, self.order))}")
        if self.way == "positions":
            parts.append(f"{self.block[0]} threads of {self.units} times {self.vector}"
                         + (" of one row" if self.by_rows else "") + f", unrolled by {self.unroll}")
        elif self.way == "rows":
            length = f"{self.chunks} times" if self.chunks else "in a loop"
            if not self.chunks or printer.kernel.reduced > 1:
                length += f", unrolled by {self.unroll}"
            parts.append(f"{self.at_once} {'abreast' if self.abreast else 'at once'} by {self.group} threads of "
                         f"{self.vector}, {length}")
        else:
            parts.append(f"p{', p'.join(map(str, self.across))} through shared memory")
        if self.wide:
            parts.append("64 bits")
        return ", ".join(parts)


def reciprocal(size):
    """(multiplier, shift) with n // size == n * multiplier >> shift for all n of 31 bits."""
    bits = max(size - 1, 0).bit_length()
    return -(-(1 << 31 + bits) // max(size, 1)), 31 + bits


def schedule(launch, properties=None):
    """The GridSchedule of a Launch; Unschedulable where there is no CUDA C++ for it."""
    kernel = launch.kernel
    try:
        check(kernel)
    except Unrenderable as why:
        raise Unschedulable(str(why)) from why
    if kernel.columns:
        made = _rows_with_columns(launch, properties)
    elif kernel.rows:
        made = _rows_abreast(launch) or _rows(launch)
    else:
        made = _across(launch) or _positions(launch)
    words = len(kernel.accesses) + len(arguments(kernel, made)) + len(kernel.numbers)
    if words > CUDA.max_given_words:
        raise Unschedulable(f"a kernel of {words} arguments")
    return made


def _wide(launch, dims):
    """Whether positions, or places in memory, need more than 32 bits."""
    if prod(launch.sizes[d] for d in dims) > INT_LIMIT // 2:
        return True
    return any(sum((size - 1) * stride for size, stride in zip(launch.sizes, strides, strict=True)) > INT_LIMIT
               for strides in launch.strides)


def _vector(launch, lane, length, alone):
    """How many neighbours along the dimension `lane` a thread takes at once: what 16 bytes have of the shortest type.

    Only where what lies side by side along it stays on boundaries: by its strides, and by the `length` of the lane's
    dimension; that may be any where the dimension is `alone`.
    """
    kernel, deps = launch.kernel, dependencies(launch.kernel)
    packed = [i for i, strides in enumerate(launch.strides) if strides[lane] == 1
              and (kernel.accesses[i].at is None or not deps[kernel.accesses[i].at] >> lane & 1)]
    full = [i for i, strides in enumerate(launch.strides) if not kernel.reduced or any(strides[kernel.kept:])]
    if not packed or any(launch.strides[i][lane] > 1 for i in full):
        return 1
    sizes = [BYTES_OF_TYPE[kernel.accesses[i].type] for i in packed]
    vector = min(VECTOR_BYTES // min(sizes), 16 if max(sizes) == 1 else 8)
    while vector > 1 and (not alone and length % vector or any(
            launch.strides[i][d] % vector for i in packed for d in range(len(launch.sizes)) if d != lane)
            or any(launch.at_strides[i] % vector for i in packed)):
        vector //= 2
    return vector


def _cost(kernel):
    """About how many instructions an element takes."""
    seen = subexpressions([e for one in kernel.passes for e in one.expressions()])
    return sum(10 if e.op in FUNCTION_WORDS else 1 for e in seen)


# --- maps, and reductions down columns --------------------------------------------------------------------------------

def _positions(launch):
    kernel, sizes = launch.kernel, launch.sizes
    order = _order(launch)
    wide, count = _wide(launch, order), prod(sizes[d] for d in order)
    lane = order[-1] if order else None
    vector = 1 if lane is None else _vector(launch, lane, sizes[lane], alone=len(order) == 1)
    cost = _cost(kernel)
    if kernel.reduced:
        while vector > 1 and (count // vector < MIN_COLUMN_THREADS or len(kernel.accesses) * vector > 32):
            vector //= 2
        return GridSchedule("positions", order, wide, (COLUMN_THREADS, 1, 1), vector, unroll=8 if cost <= 12 else 4,
                            resident=COLUMN_THREADS_RESIDENT)
    units = 1
    if cost <= COSTLY and len(kernel.accesses) <= MANY_ACCESSES and count >= LARGE_MAP:
        units = ELEMENTS_OF_THREAD if vector == 1 else 2 if vector * len(kernel.accesses) <= 32 else 1
    tile = MAP_THREADS * units * vector
    by_rows = len(order) > 1 and not wide and sizes[lane] >= USED_OF_TILES * tile * -(-sizes[lane] // tile)
    return GridSchedule("positions", order, wide, (MAP_THREADS, 1, 1), vector, units, by_rows=by_rows)


def _order(launch):
    """The kept dimensions, that one last which most of what is read lies along."""
    kernel = launch.kernel
    kept = [d for d in range(kernel.kept) if d != kernel.cut]
    if kernel.reduced and kept:
        launch.lay_last(kept)
    return kept if kernel.cut is None else [kernel.cut, *kept]


def _across(launch):
    """A schedule by squares through shared memory, where a map's operands lie along another dimension than its last."""
    kernel, sizes, strides = launch.kernel, launch.sizes, launch.strides
    if kernel.reduced or kernel.kept < 2:
        return None
    lane = kernel.kept - 1
    stored = {number for one in kernel.passes for number, _ in one.stores}
    if not all(strides[i][lane] == 1 for i in stored):
        return None
    across = [(d, i) for i, moves in enumerate(strides) if i not in stored and kernel.accesses[i].at is None
              and moves[lane] > 1 for d in range(lane) if moves[d] == 1 and sizes[d] >= TILE_SIDE // 2]
    if not across or sizes[lane] < TILE_SIDE // 2:
        return None
    first = across[0][0]
    chosen = [i for d, i in across if d == first]
    order = [*(d for d in range(lane) if d != first), first, lane]
    if _wide(launch, order) or sum(BYTES_OF_TYPE[kernel.accesses[i].type] for i in chosen) > 32:
        return None
    return GridSchedule("turned", order, False, (TILE_SIDE, TILE_ROWS, 1), across=chosen)


# --- reductions along rows --------------------------------------------------------------------------------------------

def _rows(launch):
    kernel, sizes = launch.kernel, launch.sizes
    order, last = list(range(kernel.kept)), kernel.kept + kernel.reduced - 1
    wide = _wide(launch, [d for d in range(len(sizes)) if d != kernel.cut])
    length = min(sizes[last], launch.block) if kernel.cut is not None and kernel.reduced == 1 else sizes[last]
    lanes = _lanes(kernel)
    vector = min(_vector(launch, last, sizes[last], alone=False), lanes)
    while kernel.cut is not None and kernel.reduced == 1 and launch.block % vector:
        vector //= 2
    if kernel.reduced > 1:
        return _rows_of_rows(launch, order, wide, vector, lanes)
    several, kept = len(kernel.passes) > 1, len(_kept_along_rows(kernel))
    for narrower in (vector >> n for n in range(vector.bit_length() if several else 1)):      # and more threads
        group, chunks = _shares(length, narrower, min(lanes // narrower, MAX_GROUP), several, kept)
        if chunks:
            vector = narrower
            break
    else:
        # as many threads as there are lanes: so few rows are under way that later passes find them in the cache
        group = min(lanes // vector, 1024, max(WARP, _power_of_two(-(-length // vector))))
    rows = max(1, SHORT_ROWS_THREADS // group) if group <= WARP else 1
    return GridSchedule("rows", order, wide, (group, rows, 1), vector, group=group, chunks=chunks,
                        unroll=4 if _cost(kernel) <= 24 else 2, resident=_resident(group))


def _rows_abreast(launch):
    """A schedule of sums along rows whose elements are far apart in memory, with those of the next row beside them:
    what the blocks of a reduction down columns gave, say. None for others."""
    kernel, last = launch.kernel, launch.kernel.kept
    if kernel.reduced > 1 or kernel.cut is not None or not kernel.kept or len(kernel.passes) > 1 \
            or kernel.passes[0].stores or any(reduction.startswith("arg") for reduction, _ in kernel.passes[0].accs):
        return None
    full = [strides for strides in launch.strides if strides[last]]
    beside = [d for d in range(kernel.kept) if launch.sizes[d] >= WARP and all(moves[d] == 1 for moves in full)]
    if not full or not beside or any(moves[last] == 1 for moves in full):
        return None
    order = [*(d for d in range(kernel.kept) if d != beside[-1]), beside[-1]]
    group = min(_power_of_two(-(-launch.sizes[last] // ABREAST_ELEMENTS)), MAX_ABREAST_GROUP)
    chunks, width = _rounded(-(-launch.sizes[last] // group)), WARP
    while width > MIN_ABREAST and width * group > COLUMN_THREADS and prod(launch.sizes[:last]) < width * ABREAST_BLOCKS:
        width //= 2
    return GridSchedule("rows", order, _wide(launch, range(last + 1)), (width, group, 1), group=group,
                        chunks=chunks if chunks <= MAX_CHUNKS else 0, unroll=4, abreast=True)


def _rows_with_columns(launch, properties):
    """A schedule of a kernel along rows that carries reductions down columns, one of whose blocks a block of threads
    goes through; Unschedulable where they are better left to a kernel of their own.

    That is where they would have to read more than the rows do; where a thread has too few registers for its part of a
    row and of the columns; and since a block waits for each of its rows, where too little memory would be under way at
    once, or only a few blocks in the end. Measured on an H200, microseconds of a layer norm's kernels, forward and
    backward, with the columns in one of their own and without: 16384x4096 401 and 301, 16384x1024 113 and 82, 8192x1024
    61 and 54; but 8192x768 49 and 57, and 16384x3072, of 340 blocks for 264 at once, 298 and 315. Of 32768x768, 1364
    blocks for 1188, it was 181 and 127 in float32, and 202 and 225 in bfloat16.
    """
    kernel, (blocks, _, length) = launch.kernel, launch.sizes
    beside = [e for one in kernel.passes for _, e in (*one.accs, *one.stores)]
    if _loads_along_rows(kernel, [e for _, _, e in kernel.columns]) - _loads_along_rows(kernel, beside):
        raise Unschedulable("columns that read what the rows do not")
    processors = properties.multi_processor_count if properties is not None else 1
    made = _carrying(launch, CARRYING_ELEMENTS)
    if 2 * blocks <= processors * made.together:              # there is room for more threads
        made = _carrying(launch, CARRYING_ELEMENTS // 2)
    at_once = processors * made.together
    if min(blocks, at_once) * length < processors * MIN_CARRYING_ELEMENTS:
        raise Unschedulable(f"{blocks} blocks of columns of {length} elements for {processors} multiprocessors")
    if at_once < blocks < USED_OF_ROUNDS * at_once * -(-blocks // at_once) \
            and (made.together < MANY_TOGETHER or _narrowest_along_rows(kernel) < 4):
        raise Unschedulable(f"{blocks} blocks of columns for {at_once} at once")
    return made


def _carrying(launch, each):
    """Such a schedule with `each` elements of a row for a thread, or as few as there are registers for."""
    kernel, length, lanes = launch.kernel, launch.sizes[-1], _lanes(launch.kernel)
    most = min(_vector(launch, kernel.kept, length, alone=False), lanes)
    at_hand = _bytes_at_hand(kernel) + sum(BYTES_OF_TYPE[e.type] for _, _, e in kernel.columns)
    while each:
        group = max(WARP, min(lanes, MAX_GROUP, _power_of_two(-(-length // each))))
        vector = min(most, lanes // group)
        chunks = _rounded(-(-length // (group * vector)))
        registers = -(-(chunks * vector * at_hand // REGISTER_BYTES + CARRYING_REGISTERS) // 8) * 8
        if registers <= MAX_CARRYING_REGISTERS and chunks <= MAX_CHUNKS:
            together = min(MULTIPROCESSOR_REGISTERS // (group * registers), MAX_BLOCKS_RESIDENT)
            return GridSchedule("rows", [kernel.cut], _wide(launch, [1, 2]), (group, 1, 1), vector, group=group,
                                chunks=chunks, resident=together * group)
        each //= 2
    raise Unschedulable(f"columns of {length} elements for at most {MAX_GROUP} threads")


def _lanes(kernel):
    """How many lanes the order of a reduction along rows has at least."""
    return min([LANE_BYTES * kernel.rows // BYTES_OF_TYPE[e.type] for one in kernel.passes for reduction, e in one.accs
                if e.type in ("f32", "f64") and not reduction.startswith("arg")], default=LANE_BYTES)


def _resident(group):
    """Threads of a multiprocessor that there have to be registers for: two blocks of the largest, or one would wait."""
    return max(ROW_THREADS_RESIDENT, 2 * group if group > MAX_GROUP else 0)


def _shares(length, vector, most, several, kept):
    """(threads that share a row, rounds that they make of it); no rounds where there are not enough registers.

    A row that one warp can have costs no meeting of several. Of a row that is gone through several times, what is
    `kept` at hand has to fit.
    """
    least = min(WARP, most, _power_of_two(-(-length // vector)))
    each = 2 * ELEMENTS_OF_THREAD if several and length > MAX_WARP_ROW else 4 * ELEMENTS_OF_THREAD
    while True:
        group = min(max(least, _power_of_two(-(-length // each))), most)
        chunks = _rounded(-(-length // (group * vector)))
        at_hand = chunks * vector * (max(1, kept) if several else 1)
        if at_hand <= MAX_ELEMENTS_AT_HAND // 2 or group == most or each == vector:
            return group, chunks if at_hand <= MAX_ELEMENTS_AT_HAND and chunks <= MAX_CHUNKS else 0
        each //= 2


def _rows_of_rows(launch, order, wide, vector, lanes):
    """Several dimensions are reduced, the last along rows: loads of several of these are under way at once."""
    length = launch.sizes[-1]
    group = min(lanes // vector, 1024, max(WARP, _power_of_two(-(-length // vector))))
    chunks = -(-length // (group * vector))
    several = chunks <= LOADS_UNDER_WAY
    unroll = LOADS_UNDER_WAY // chunks if several else 4
    rows = max(1, SHORT_ROWS_THREADS // group) if group <= WARP else 1
    return GridSchedule("rows", order, wide, (group, rows, 1), vector, group=group, chunks=chunks * several,
                        unroll=max(1, unroll if _cost(launch.kernel) <= 24 else unroll // 2),
                        resident=_resident(group))


def _kept_along_rows(kernel):
    """The accesses that are read along the row by several passes."""
    seen, again = set(), set()
    for one in kernel.passes:
        loads = _loads_along_rows(kernel, one.expressions())
        again |= loads & seen
        seen |= loads
    return again


def _bytes_at_hand(kernel):
    """How many bytes of an element of the row are at hand at once: what is kept, and what a pass reads for itself."""
    kept = _kept_along_rows(kernel)
    return max(sum(BYTES_OF_TYPE[kernel.accesses[i].type] for i in kept | _loads_along_rows(kernel, one.expressions()))
               for one in kernel.passes)


def _loads_along_rows(kernel, expressions):
    """The accesses that are read along the row for `expressions`."""
    last = kernel.kept + kernel.reduced - 1
    return {e.attr for e in subexpressions(expressions) if e.op == "load" and kernel.accesses[e.attr].steps[last]}


def _narrowest_along_rows(kernel):
    """Bytes of the smallest type that is read along the row."""
    read = _loads_along_rows(kernel, [e for one in kernel.passes for e in one.expressions()])
    return min(BYTES_OF_TYPE[kernel.accesses[i].type] for i in read)


def _rounded(chunks):
    """A number of rounds that not every length has a text of its own for."""
    return next((n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32) if n >= chunks), chunks)


def _power_of_two(n):
    return 1 << max(n - 1, 0).bit_length()
