"""Products of matrices as native steps, for float32 and float64 (the step's form: see cpu/threads.py).

`gemm` plans steps, most often one, that compute C = A @ B for every matrix of a batch. A and B may have any strides, C
must be contiguous along its rows or along its columns.

The product is cut the way BLIS does it. A tile is a block of rows and columns of one result; it goes through k in
blocks, through the rows a strip of a few at a time, and along each strip through the columns in panels of a few
vectors. The innermost kernel holds such a small block of C in registers while it runs along k: one vector of B times
one number of A, spread, added to it. The strip of A stays in the first cache; the panels of B, copied first (turned, if
B is a transposed matrix) unless they lie well, to the thread's room, stay in the second. Blocks of A are copied too
where they lie badly, and strips of it whose rows would meet in the same lines of the first cache.

Each element adds its products in the order of k, in blocks that shapes, strides and the width of vectors decide on;
nothing else about the cutting shows in the result. So results do not depend on the number of threads, nor on how the
tiles were chosen.

A matrix B that is read once, because there are few rows, comes fastest as it lies: row by row. Threads that each took
some of its columns would read little pieces, far apart; so k is cut into parts, as the same decide, whose
sums stand in working memory until a second step has added them. So are long sums of small results, of which each thread
would pack a lot for a small tile.

Note [Threads are not alike]: of the processors that a virtual machine has, some are halves of one core, and the host
takes some away for a while. Sixteen threads that had a sixteenth of a product each took 1.9 milliseconds, though most
were through after one. So a large product is not dealt out: a thread packs a block of columns of B, for a block of
k, and takes tiles of its rows one by one, from a count that it shares with others at the same block (`share_out`,
`gemm_shared`). When there are no more it helps elsewhere. The next block of k adds to a tile when the one before has.
Other steps are cut into more pieces than there are threads, the more of them the more threads there are.

Where there are few rows, and both operands are contiguous along k, another way is faster: vectors along k, and their
lanes added up at the end ("dots"). Batches of matrices with a few numbers each are multiplied number by number
("tiny"): what goes before the innermost kernel takes longer than that.

What a first product has to wait for is LLVM, so a step is made of functions that are compiled when a plan first needs
them: the step itself, the innermost kernels (which convolutions call too), and the ways of packing.
"""
import math
from collections import namedtuple
from heapq import heapreplace

from ....base.shapes import merged_dims
from ..caches import first_cache, second_cache
from ..memory.allocator import CACHE_LINE_BYTES
from ..threads import get_num_threads
from .blocking import up
from .gemm_kernels import APART_BYTES, DOT_COLUMNS, LLVM_ELEMENT, MAX_TINY, STEP_FIELDS, compiled_kernels
from .gemm_micro import SHORT_STRIPS
from .gemm_packing import COPY, DIRECT, GATHER, TURN

# `scratch`: bytes of working memory, the buffer behind the results. `share`: what it does of the arithmetic that the
# operation is defined by, where it is one of several steps, or has another way; 0 where it only makes ready. `buffers`:
# which of the operands, results and working memory, and how many bytes in, are its own buffers; None: all in order.
# `over`: the number of an operand in whose memory the result may lie, both whole and laid out alike; -1: of none.
LibraryCall = namedtuple("LibraryCall", "fn tiles grain ints scratch share buffers over", defaults=(0, 1.0, None, -1))

MAX_BLOCK_K = 384             # k of one block at most: a strip of A stays in the first cache; more is a sum of sums
FEW_ROWS = 12                 # for which B is read as it lies, if its rows are contiguous: a few of them side by side
# How many rows of A are a strip then, at most, and how many of B a block, where one strip is all, and else; more of
# them if they are short. Where a vector is a line of the cache, kernels ask for what they read next (B_AHEAD_ROWS);
# other processors have to see it coming, and see but a few rows at a time. So there `more_rows` do as well, if B is
# neither so small that it is read as it lies anyway, nor larger than MAX_CACHED_B_BYTES.
FewRows = namedtuple("FewRows", "strip blocks more_rows")
FEW_ROWS_WAYS = {False: FewRows(4, (4, 8), FEW_ROWS), True: FewRows(8, (32, 64), 32)}
MAX_CACHED_B_BYTES = 4 << 20
FEW_ROWS_PARTS = 32           # of B, by k and by columns together, that are enough for all threads;
FEW_ROWS_PART_BYTES = 64 << 10  # each of so many bytes at least,
FEW_ROWS_PIECE_BYTES = 4096   # and so many of each row that it has a piece of;
FEW_ROWS_PART_K = 64          # of so much of k at least,
FEW_ROWS_PART_K_A_ROW = 8     # and for every row of A: sums of parts are written, and read again
LONG_K_PARTS = 8              # of k at most, a power of two, where there are more rows: threads would pack a lot for
LONG_K_ROOM_BYTES = 4 << 20   # small tiles, if the result has few elements; so many bytes are room for the sums,
LONG_K_PART = 512             # each of so much of k at least,
LONG_K_PRODUCTS = 1 << 22     # and so many products of numbers are worth it
PART_STEP_K = 32              # that parts of k are multiples of
NEAR_BYTES = 32 << 10         # of B that stay in the first cache as they are;
SHORT_B_BYTES = 64 << 10      # that come from the second in time, if k is short and a vector is a line of the cache
MAX_PACKED_BYTES = 1792 << 10  # of both operands; the rest of a thread's room is for what stands between rows of A, a
                               # sixth of it at most (blocks of k are 200 or more, unless there are but few rows)
MAX_PACKED_A_BYTES = 1 << 20  # that are packed together
MAX_PACKED_B_BYTES = 1280 << 10
PACKED_B_SHARE = 5 / 8        # of the second cache, in which what is packed of B stays
REST_SHARE = 1 / 50           # of a matrix: if a last strip that is not whole lacks more rows it has kernels of its own
HASTY_CYCLES = 64_000         # of work that are sooner done by code that is made quickly
WIDTH = 3                     # vectors of C across that are held in registers, where there are as many columns
WIDE_LANES = 16               # of a vector that is a line of the cache, of float32;
FOURS = 4, 8, 12, 16          # such vectors that are cut into panels of four, where there are not many;
FOURS_ROWS = 32               # more of them than four only if there are more rows: strips are not as high then
PIECE_CYCLES = 16_000         # of work, by estimate, that are worth handing to another thread
PIECES_A_THREAD = 8           # that are enough, so that none is late by much; each costs some 300 nanoseconds
LATE_SHARE_A_THREAD = 1 / 32  # of a piece's time that all wait for the last one; see Note [Threads are not alike]
MAX_LATE_SHARE = 0.5


def late_share(threads):
    """How long, of the time that a piece takes, all wait for the last of them."""
    return min(MAX_LATE_SHARE, LATE_SHARE_A_THREAD * threads) if threads > 1 else 0.0


def packed_b():
    """How many bytes of B are packed together at most."""
    return min(MAX_PACKED_B_BYTES, int(PACKED_B_SHARE * second_cache()))


def packed_a():
    """How many bytes of A are packed together at most."""
    return min(MAX_PACKED_A_BYTES, MAX_PACKED_BYTES - packed_b())


def block_of(K, most):
    """How much of k is added up at a time."""
    return most if K <= most else up(-(-K // -(-K // most)), min(most, 16))


def few_rows_block(usual, stride):
    """The same for few rows, where rows of B lie `stride` bytes apart."""
    near = NEAR_BYTES // max(stride, 1) // 16 * 16
    return max(usual, min(near, MAX_BLOCK_K))


def gemm(M, N, K, dtype, a, b, c, batch=()):
    """LibraryCalls (fn, tiles, grain, ints) for C = A @ B of [*batch] matrices; None where there are none.

    `a`, `b` and `c` are strides in elements: (row, column, *batch), 0 where a batch is shared. The buffers are A, B, C.
    """
    dtype = getattr(dtype, "name", dtype)
    if dtype not in LLVM_ELEMENT:
        return None
    merged = merge(batch, [a[2:], b[2:], c[2:]])
    if merged is None or not M or not N or 0 in batch:
        return None
    batch, (a_batch, b_batch, c_batch) = merged
    machine = compiled_kernels(dtype)
    # strides along a dimension of one are free: let them say what suits
    a, b, c = tidy(a[:2], M, K), tidy(b[:2], K, N), tidy(c[:2], M, N)
    if few(M, N, K) and a[1] == 1 and b[0] == 1:
        turn = M > N
    else:
        turn = c[1] != 1 or c[0] == 1 and M > N
    if turn:
        M, N, a, b, c = N, M, b[::-1], a[::-1], c[::-1]
        a_batch, b_batch = b_batch, a_batch
    f = dict.fromkeys(STEP_FIELDS, 0)
    f.update(M=M, N=N, K=K, a_row=a[0], a_col=a[1], b_row=b[0], b_col=b[1], c_row=c[0], c_col=c[1], turned=int(turn),
             size1=batch[1], size2=batch[2])
    for name, strides in (("a", a_batch), ("b", b_batch), ("c", c_batch)):
        f.update({f"{name}{d}": s for d, s in enumerate(strides)})
    f.update(parts=1, whole_k=K)
    count = math.prod(batch)
    if count > 1 and max(M, N, K) <= MAX_TINY:
        f.update(tile_m=M, tile_n=N, tiles_m=1, tiles_n=1)
        return [product(machine, machine.function("tiny", N), f, count)]
    if few(M, N, K) and a[1] == 1 and b[0] == 1:
        return [product(machine, plan_dots(machine, f, count), f, count)]
    return plan_gemm(machine, f, count) if c[1] == 1 else None


def product(machine, fn, f, count, scratch=0):
    """The LibraryCall of the step `fn` that computes the tiles which `f` tells of."""
    tiles = count * f["tiles_m"] * f["tiles_n"]
    each = cycles(machine, min(f["M"], f["tile_m"]), min(f["N"], f["tile_n"]), f["K"])
    grain = max(1, PIECE_CYCLES // each, tiles // (PIECES_A_THREAD * get_num_threads()))
    return LibraryCall(fn, tiles, min(tiles, grain), ints_of(machine, f), scratch)


def ints_of(machine, f):
    return [f[field] for field in machine.kernels.fields]


def merge(batch, strides):
    """The batch's sizes as three, with the strides of the operands along them; None where it takes more."""
    kept = merged_dims(batch, strides)
    if len(kept) > 3:
        return None
    kept = [(1, *[0] * len(strides))] * (3 - len(kept)) + kept
    sizes, *by = zip(*kept, strict=True)
    return sizes, by


def tidy(strides, rows, cols):
    """The strides, with those along a dimension of one as if it were contiguous."""
    row, col = strides
    if cols == 1:
        col = 1 if row != 1 or rows == 1 else rows
    if rows == 1:
        row = max(cols, 1) if col == 1 else 1
    return row, col


def evenly(size, step):
    """The stride with which dimensions are gone through one after the other, if it is the same everywhere."""
    dims = [(n, t) for n, t in zip(size, step, strict=True) if n > 1] or [(1, 1)]
    even = all(outer == n * inner for (_, outer), (n, inner) in zip(dims, dims[1:], strict=False))
    return dims[-1][1] if even else None


def few(M, N, K):
    """Whether there are so few rows (or columns) that dot products are the better way."""
    return min(M, N) <= 4 and K >= 32 or min(M, N) <= 8 and K >= 256


def cycles(machine, M, N, K):
    """About how long a product takes a processor: what it computes, or what it reads."""
    computed = up(M, 4) * up(N, machine.lanes) * K / machine.kernels.products_a_cycle
    return max(1, int(max(computed, (M * K + K * N + M * N) * machine.size / 16)) + 200)


def plan_dots(machine, f, count):
    M, N, K = f["M"], f["N"], f["K"]
    rows = next(r for r in DOT_COLUMNS if M <= r or r == max(DOT_COLUMNS))
    cols = DOT_COLUMNS[rows]
    work = cycles(machine, M, N, K) * count
    pieces = -(-min(PIECES_A_THREAD * get_num_threads(), max(1, work // PIECE_CYCLES)) // count)
    f["tile_m"], f["tile_n"] = M, up(-(-N // pieces), cols)
    f["tiles_m"], f["tiles_n"] = 1, -(-N // f["tile_n"])
    return machine.function("dots", rows, cols, hasty=work < HASTY_CYCLES)


def make_ready():
    """Have compiled beforehand what nearly all products of float32 need."""
    machine = compiled_kernels("float32")
    machine.make_ready([("gemm",), ("pack_b", TURN)], blocks_of(machine.rows(WIDTH), WIDTH))


def width_of(machine, M, N):
    """How many vectors of C across are held in registers at most."""
    vectors = -(-N // machine.lanes)
    if vectors <= 1:
        return 1
    # the columns of 64 x 64 and of most attention are four vectors of AVX-512, or twice that: no narrow panels then
    fours = FOURS if M > FOURS_ROWS else FOURS[:1]
    return 4 if machine.lanes == WIDE_LANES and vectors in fours else WIDTH


def blocks_of(rows, width):
    """(rows, vectors across) of the innermost kernels for panels of `width` vectors."""
    return [(rows, n) for n in (range(2, width + 1) if width > 1 else (1,))]


def crowd(rows, stride, again):
    """Whether so many rows, `stride` bytes apart, take too many of the lines that there are for them in the first
    cache: more than half where they are read `again`, since the panels of B that go by need some, and so may another
    thread on the same core; and else nearly all."""
    ways, way_bytes = first_cache()
    apart = min(way_bytes // math.gcd(stride, way_bytes), way_bytes // CACHE_LINE_BYTES)
    return stride > 0 and -(-rows // apart) > (ways // 2 if again else ways - 2)


def plan_gemm(machine, f, count):
    M, N, K, size = f["M"], f["N"], f["K"], machine.size
    # The shape of the innermost kernels follows from the columns alone, but for few rows and for the last ones of not
    # many, and all of a kind are made together, so that another number of rows (a new batch size) compiles hardly ever.
    width = width_of(machine, M, N)
    rows, across = machine.rows(width), width * machine.lanes
    way = FEW_ROWS_WAYS[machine.kernels.whole_lines]
    skinny = f["b_col"] == 1 and (
        M <= FEW_ROWS or M <= way.more_rows and NEAR_BYTES < K * N * size <= MAX_CACHED_B_BYTES)
    most = MAX_BLOCK_K
    if skinny:
        rows = min(rows, -(-M // -(-M // way.strip)))                    # strips of about the same height
        most = few_rows_block(way.blocks[M > rows], f["b_row"] * size)
    f["rows"], f["width"] = rows, width
    if count == 1:
        count = cut_k(machine, f, skinny)
        K = f["K"]
    f["block"] = block = block_of(K, most)
    depth = min(block, max(K, 1))
    again = -(-N // across)
    b_pack = choose_packing(machine, f, rows, depth, again, skinny)
    f["ahead"] = int(b_pack == COPY)
    shared = count == 1 and K > 0 and not skinny and b_pack != DIRECT and share_out(machine, f, b_pack, depth)
    if not shared:
        cut(machine, f, count, b_pack, 1 if skinny else PIECES_A_THREAD)     # long rows of B, if there are few of A
    m, n = min(M, f["tile_m"]), min(N, f["tile_n"])
    panels = -(-n // across)
    # what a thread has packed lasts for all tiles that it takes
    groups = 1 if shared else -(-panels // max(1, packed_b() // (depth * across * size)))
    f["group"] = -(-panels // groups)                                # all of about the same size
    # a tile that is narrower than a vector has a copy of B all the same
    f["b_room"] = depth * (min(f["group"] * across, up(n, machine.lanes)) if b_pack else machine.lanes)
    f["a_room"] = a_room(machine, f, m, depth)
    steps = [("gemm_shared",), ("clear_counts",)] if shared else [("gemm",), *[("add_parts",)] * (f["parts"] > 1)]
    packs = {"pack_a": f["a_pack"], "pack_b": b_pack}
    wanted = {name: (name, how) for name, how in packs.items() if how}
    micro = micro_kernel_of(machine, f, count, skinny, b_pack)
    rest = M % rows or rows
    f["rest_rows"] = rest = rest if rows - rest > REST_SHARE * M else rows
    blocks = [block for height in dict.fromkeys((rows, rest)) for block in blocks_of(height, width)]
    fn, *found, f["kernels"] = machine.functions([*steps, *wanted.values()], blocks, micro=micro)
    f.update(zip(wanted, found[len(steps) - 1:], strict=True))
    return calls_of(machine, f, count, fn, found[:len(steps) - 1], shared)


def choose_packing(machine, f, rows, depth, again, skinny):
    """Say how A is packed, whose rows are read `again` times, in strips of so many; gives how B is."""
    size, straight = machine.size, f["b_col"] == 1
    # A is read once for every panel of columns, B once for every strip of rows: is a better order worth a copy?
    if f["a_col"] == 1:
        f["a_pack"] = COPY if crowd(rows, f["a_row"] * size, again > 1) else DIRECT
    elif f["a_row"] == 1:
        far = f["a_col"] * size
        f["a_pack"] = TURN if crowd(depth // 2, far, True) or again > 1 and far > 1024 else DIRECT
    else:
        f["a_pack"] = GATHER if again > 2 else DIRECT
    most_direct = SHORT_B_BYTES if machine.kernels.whole_lines and f["K"] <= SHORT_STRIPS[True] else NEAR_BYTES
    if f["N"] >= machine.lanes and (skinny or straight and depth * f["b_row"] * size <= most_direct):
        return DIRECT
    return COPY if straight else TURN if f["b_row"] == 1 else GATHER


def calls_of(machine, f, count, fn, others, shared):
    """The LibraryCalls of a product whose step is `fn`, with those that go with it."""
    if shared:
        scratch = f["tiles_n"] * (-(-f["K"] // f["block"]) + f["tiles_m"]) * CACHE_LINE_BYTES
        return [LibraryCall(others[0], 1, 1, ints_of(machine, f), scratch, 0),
                LibraryCall(fn, f["shares"], 1, ints_of(machine, f), scratch)]
    if f["parts"] > 1:
        scratch = f["parts"] * f["c2"] * machine.size + APART_BYTES
        added = LibraryCall(others[0], f["M"] * f["tiles_n"], max(1, PIECE_CYCLES // (f["tile_n"] * f["parts"])),
                            ints_of(machine, f | {"c_row": f["whole_c_row"]}), scratch, 0)
        return [product(machine, fn, f, count, scratch), added]
    return [product(machine, fn, f, count)]


def micro_kernel_of(machine, f, count, skinny, b_pack):
    """Which of the innermost kernels: see MICRO_KERNELS."""
    if not machine.kernels.whole_lines:
        return "micro"
    if skinny:
        return "micro_ahead"
    # small matrices that are read as they lie, one after the other: whatever sees memory coming starts anew with each
    small = f["tiles_m"] * f["tiles_n"] == 1 and f["K"] <= SHORT_STRIPS[True] and f["a_pack"] == b_pack == DIRECT
    dense = (f["a_row"], f["a_col"]) in ((f["K"], 1), (1, f["M"])) and f["b_row"] == f["N"]
    return "micro_next" if count > 1 and small and dense else "micro"


def cut_k(machine, f, skinny):
    """Cut k into parts, whose sums will be added up: how many. Each is one of a batch, whose results stand in working
    memory; its last may be shorter."""
    M, N, K, size = f["M"], f["N"], f["K"], machine.size
    if M <= FEW_ROWS and skinny:
        pieces = min(FEW_ROWS_PARTS, K * N * size // FEW_ROWS_PART_BYTES) // -(-N * size // FEW_ROWS_PIECE_BYTES)
        wanted = min(pieces, K // max(FEW_ROWS_PART_K, FEW_ROWS_PART_K_A_ROW * M))
    elif M * N * K < LONG_K_PRODUCTS:
        wanted = 1
    elif skinny:                                           # pieces of cached rows may be short, but no line or two
        wanted = min(FEW_ROWS_PARTS, FEW_ROWS_PIECE_BYTES // (N * size), K // (FEW_ROWS_PART_K_A_ROW * M))
    else:
        wanted = min(LONG_K_PARTS, K // LONG_K_PART, LONG_K_ROOM_BYTES // (M * N * size))
        wanted = 1 << max(wanted, 1).bit_length() - 1
    if wanted < 2:
        return 1
    f["K"] = part = up(-(-K // wanted), PART_STEP_K)
    f["parts"] = f["size2"] = parts = -(-K // part)
    if parts == 1:
        return 1
    # rows of the sums are no power of two apart, where they would meet in the cache
    f["c_row"], f["whole_c_row"] = up(N, machine.lanes) + 4 * CACHE_LINE_BYTES // size, f["c_row"]
    f.update(a2=part * f["a_col"], b2=part * f["b_row"], c2=f["M"] * f["c_row"])
    return parts


def a_room(machine, f, m, depth):
    """How many elements of `m` rows of A and so much of k are packed together: see `pack_a` in gemm_packing.py."""
    if f["a_pack"] == TURN:                                       # strips, each with a vector behind it
        return m * depth + -(-m // f["rows"]) * machine.lanes
    far = up(depth, 2 * machine.lanes) + machine.lanes
    return {DIRECT: 0, COPY: f["rows"]}.get(f["a_pack"], m) * far


PACK_A_CYCLES = {DIRECT: 0.3, COPY: 0.4, TURN: 1.7, GATHER: 3.0}        # cycles to pack an element, or fetch it, about
PACK_B_CYCLES = {DIRECT: 0.3, COPY: 0.4, TURN: 0.4, GATHER: 3.0}
SHARED_CYCLES = 400_000       # of work for each thread from which on they take tiles from each other
MAX_COLUMN_BLOCKS = 256       # of which each is packed by those that share it
TILES_A_HELPER = 16           # of a block of k, for each of the threads that share a block of columns
MAX_SHARED_ROWS = 128         # of such a tile,
SHARED_TILE_CYCLES = 32_000   # which takes so long at least, by estimate


def cut(machine, f, count, b_pack, pieces):
    """Cut a matrix into tiles: enough for the threads, `pieces` for each at most, where the least is packed twice."""
    M, N, K, rows, threads = f["M"], f["N"], f["K"], f["rows"], get_num_threads()
    work = cycles(machine, M, N, K)
    most = max(1, min(pieces * threads, work * count // PIECE_CYCLES) // count)  # tiles of a matrix
    pack_a, pack_b = [lines * machine.kernels.pack_share * cycles
                      for lines, cycles in ((M, PACK_A_CYCLES[f["a_pack"]]), (N, PACK_B_CYCLES[b_pack]))]
    best, tried = None, set()
    for down in range(1, most + 1):
        for right in range(1, most // down + 1):
            tile = tile_m, tile_n = up(-(-M // down), rows), up(-(-N // right), machine.lanes)
            if tile in tried:
                continue
            tried.add(tile)
            heights, widths = parts(M, tile_m), parts(N, tile_n)
            if widths[-1] <= machine.lanes < N:            # no kernel of one vector for a rest that others can take
                continue
            late = late_share(threads) / -(-len(heights) * len(widths) * count // threads)
            packed = len(widths) * pack_a + len(heights) * pack_b
            fits = f["a_pack"] in (DIRECT, COPY) or tile_m * f["block"] * machine.size <= packed_a()
            least = work + packed * K if fits else math.inf
            if best is None or least * (1 + late) < best[0]:        # else it would not be the best if nothing were idle
                cost = least * (idle(heights, widths, count, threads) + late)
                best = min(best or (math.inf, *tile), (cost, *tile), key=lambda way: way[0])
    cost, f["tile_m"], f["tile_n"] = best
    if cost == math.inf:
        f["tile_m"] = max(rows, packed_a() // (f["block"] * machine.size) // rows * rows)
    f["tiles_m"], f["tiles_n"] = -(-M // f["tile_m"]), -(-N // f["tile_n"])


def share_out(machine, f, b_pack, depth):
    """Cut a matrix into tiles that threads take while they are at it; False where it is too little for that. As many
    threads share a block of columns, which each of them packs, as make for the least packing."""
    M, N, K, rows, threads = f["M"], f["N"], f["K"], f["rows"], get_num_threads()
    if threads == 1 or cycles(machine, M, N, K) < SHARED_CYCLES * threads:
        return False
    best, divisors = None, [n for n in range(1, threads) if threads % n == 0]
    for blocks in (*divisors, *range(threads, MAX_COLUMN_BLOCKS, threads)):
        tile_n = up(-(-N // blocks), machine.lanes)
        last = N - (-(-N // tile_n) - 1) * tile_n
        if depth * tile_n * machine.size > packed_b() or last <= machine.lanes < N:
            continue
        own, helpers = -(-blocks // threads), max(1, threads // blocks)
        least = SHARED_TILE_CYCLES * 2 * machine.lanes // (tile_n * depth)
        tile_m = up(min(MAX_SHARED_ROWS, max(2 * rows, least, -(-M // (helpers * TILES_A_HELPER)))), rows)
        cost = own * tile_n * PACK_B_CYCLES[b_pack] + M * blocks / threads * PACK_A_CYCLES[f["a_pack"]]
        if -(-M // tile_m) >= 2 * helpers and (best is None or cost < best[0]):
            best = cost, tile_m, tile_n
    if best is None:
        return False
    _, f["tile_m"], f["tile_n"] = best
    f["tiles_m"], f["tiles_n"], f["shares"] = -(-M // f["tile_m"]), -(-N // f["tile_n"]), threads
    return True


def parts(n, size):
    """`n` in parts of `size` and what is left."""
    return [size] * (n // size) + [n % size] * (n % size > 0)


def idle(heights, widths, count, threads):
    """How much longer it takes than if the work were spread evenly, when threads take tiles one by one."""
    if count >= 4 * threads:
        return 1.0
    loads = [0] * threads
    for m in heights * count:
        for n in widths:
            heapreplace(loads, loads[0] + m * n)
    return max(loads) * threads / (sum(heights) * sum(widths) * count)
