"""Rows added up where an index says: gradients of embeddings, `index_add`; always in the same order.

Every block owns some rows of the result, reads the whole index, which stands in the second cache, and notes the
positions of those that are meant for its rows, in order. It then adds them up row by row, in registers, and writes each
row once, zeros where there is nothing. So no two blocks write to the same row, and every row is added in the order of
the index.

Where the index is long and the rows are many, the index is sorted first (sort.py), and each run of equals is added up
by a warp, or for narrow rows by a lane; a run of more than 32 single elements by the lanes of a warp. 16-bit floats are
added up in float32.
"""
from ....base import dtypes
from ..calls import LaunchCall
from . import elements, sort

ADDING_THREADS = 256
ROWS_OF_A_BLOCK = (32, 64, 128, 256)         # few where there are few rows, more where the index is long
HITS = 2048                                  # positions that a block notes before it adds them up
MAX_INDEX_READS = 64 << 20                   # elements of the index that blocks read in all before it is sorted


def add_rows(dtype, count, cols, size, skip):
    """LaunchCalls that add the rows of g [count, cols] at index [count] of zeros [size, cols]; None where there are
    none. What is sent to row `skip` is left out. All are contiguous and every index is in range; the addresses are
    those of g, index and out."""
    if not elements.is_known(dtype) or dtype.name == "bool" or not count or not cols or not size or count >= 2**31:
        return None
    rows = next((r for r in ROWS_OF_A_BLOCK if size <= 512 * r), ROWS_OF_A_BLOCK[-1])
    blocks = -(-size // rows)
    if blocks * count > MAX_INDEX_READS:
        return _by_sorting(dtype, count, cols, size, skip)
    vectors = -(-cols // max(1, 128 // elements.bits(dtype)))
    across = next(n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if n >= vectors or n == ADDING_THREADS)
    return [LaunchCall(source(dtype, rows, across), "add_rows", (blocks, 1, 1), (ADDING_THREADS, 1, 1), 0,
                       (count, cols, size, skip))]


def sum_weighted_rows(dtype, count, cols, taps):
    """A LaunchCall for the sums [count, cols] of rows of a table: for each, those that its row of index says, each
    times a number of its row of weight [count, taps]; None where there is none. All are contiguous and every index is
    in range; the addresses are those of table, index, weight and out."""
    if not elements.is_float(dtype) or not count or not cols or not taps:
        return None
    text = elements.opening(dtype) + elements.params(["table", "index", "weight", "out"], ["count", "cols", "taps"]) \
        + _SUM_WEIGHTED.replace("THREADS", str(ADDING_THREADS))
    return LaunchCall(text, "sum_weighted_rows", (-(-count * cols // ADDING_THREADS), 1, 1), (ADDING_THREADS, 1, 1), 0,
                      (count, cols, taps))


_SUM_WEIGHTED = """
extern "C" __global__ void __launch_bounds__(THREADS) sum_weighted_rows(const Params p) {
    long long at = (long long)blockIdx.x * THREADS + threadIdx.x, row = at / p.cols, col = at % p.cols;
    if (row >= p.count) return;
    const long long *index = (const long long *)p.index + row * p.taps;
    const E *weight = (const E *)p.weight + row * p.taps;
    W sum = 0;
    for (long long t = 0; t < p.taps; t++)
        sum = fma(widen(weight[t]), widen(((const E *)p.table)[index[t] * p.cols + col]), sum);
    ((E *)p.out)[at] = narrow(sum);
}
"""


def _by_sorting(dtype, count, cols, size, skip):
    bits = max(1, (size - 1).bit_length())
    # of int64, the sign is turned to sort: the lowest bits are as they were
    calls, keys, indices = sort.by_digits(dtypes.int64, count, 1, bits, False, ["values", "x", "places"], keeps=True)
    nbytes = size * cols * dtype.itemsize
    params = elements.params(["g", "index", "out", "scratch"], ["count", "cols", "skip", "keys", "places", "nbytes"])
    ints, scratch = (count, cols, skip, keys, indices, nbytes), calls[0].scratch
    opening = elements.opening(dtype) + params + f"typedef {'W' if elements.is_float(dtype) else 'E'} S;\n"
    clear = LaunchCall(opening + _CLEAR.replace("THREADS", str(ADDING_THREADS)), "clear",
                       (min(4096, -(-nbytes // (16 * ADDING_THREADS))) or 1, 1, 1), (ADDING_THREADS, 1, 1), 0, ints,
                       scratch)
    kernel = "add_wide_runs" if cols >= 32 else "add_narrow_runs"
    text = _WIDE_RUNS if cols >= 32 else _NARROW_RUNS
    add = LaunchCall(opening + text.replace("THREADS", str(ADDING_THREADS)), kernel,
                     (-(-count // ADDING_THREADS), 1, 1), (ADDING_THREADS, 1, 1), 0, ints, scratch)
    return [clear, *calls, add]


def source(dtype, rows, across):
    """The kernel's text: `rows` of a block, each added up by `across` threads."""
    sums = "W" if elements.is_float(dtype) else "E"
    return elements.opening(dtype) + elements.params(["g", "index", "out"], ["count", "cols", "size", "skip"]) + \
        f"typedef {sums} S;\n" + _ADD_ROWS.replace("THREADS", str(ADDING_THREADS)).replace("ROWS", str(rows)) \
        .replace("ACROSS", str(across)).replace("HITS", str(HITS))


_CLEAR = """
extern "C" __global__ void __launch_bounds__(THREADS) clear(const Params p) {
    long long wide = p.nbytes / 16, at = (long long)blockIdx.x * THREADS + threadIdx.x;
    if ((p.out & 15) == 0) {
        Vector none;
        for (int v = 0; v < VECTOR; v++) none.e[v] = narrow((W)0);
        for (long long i = at; i < wide; i += (long long)gridDim.x * THREADS) ((Vector *)p.out)[i] = none;
        for (long long i = wide * VECTOR + at; i < p.nbytes / (long long)sizeof(E); i += (long long)gridDim.x * THREADS)
            ((E *)p.out)[i] = narrow((W)0);
    } else
        for (long long i = at; i < p.nbytes / (long long)sizeof(E); i += (long long)gridDim.x * THREADS)
            ((E *)p.out)[i] = narrow((W)0);
}
"""

# A lane for each place in the sorted index: the first of a run adds it up, 32 of a long one, and the warp the rest.
_NARROW_RUNS = """
extern "C" __global__ void __launch_bounds__(THREADS) add_narrow_runs(const Params p) {
    const long long *keys = (const long long *)(p.scratch + p.keys);
    const unsigned *places = (const unsigned *)(p.scratch + p.places);
    const E *g = (const E *)p.g;
    long long at = (long long)blockIdx.x * THREADS + threadIdx.x;
    int lane = threadIdx.x & 31;
    long long key = at < p.count ? keys[at] : -1;
    bool first = at < p.count && key != p.skip && (at == 0 || keys[at - 1] != key);
    for (int c = 0; c < (int)p.cols; c++) {
        S sum = 0;
        bool more = false;
        if (first)
            for (int i = 0; i < 33; i++) {
                more = at + i < p.count && keys[at + i] == key;
                if (!more || i == 32) break;
                sum += (S)widen(g[places[at + i] * p.cols + c]);
            }
        unsigned longer = __ballot_sync(0xffffffffu, more);
        while (longer) {
            int who = __ffs(longer) - 1;
            longer &= longer - 1;
            long long own = __shfl_sync(0xffffffffu, key, who), i = __shfl_sync(0xffffffffu, at, who) + 32 + lane;
            S part = 0;
            for (; i < p.count && keys[i] == own; i += 32) part += (S)widen(g[places[i] * p.cols + c]);
            for (int by = 16; by; by /= 2) part += __shfl_xor_sync(0xffffffffu, part, by);
            if (lane == who) sum += part;
        }
        if (first) ((E *)p.out)[key * p.cols + c] = narrow((W)sum);
    }
}
"""

_WIDE_RUNS = """
extern "C" __global__ void __launch_bounds__(THREADS) add_wide_runs(const Params p) {
    const long long *keys = (const long long *)(p.scratch + p.keys);
    const unsigned *places = (const unsigned *)(p.scratch + p.places);
    const E *g = (const E *)p.g;
    long long at = (long long)blockIdx.x * THREADS + threadIdx.x;
    int lane = threadIdx.x & 31;
    long long key = at < p.count ? keys[at] : -1;
    bool first = at < p.count && key != p.skip && (at == 0 || keys[at - 1] != key);
    bool aligned = p.cols % VECTOR == 0 && ((p.g | p.out) & 15) == 0;
    unsigned which = __ballot_sync(0xffffffffu, first);
    while (which) {
        int who = __ffs(which) - 1;
        which &= which - 1;
        long long own = __shfl_sync(0xffffffffu, key, who), start = __shfl_sync(0xffffffffu, at, who);
        E *row = (E *)p.out + own * p.cols;
        if (aligned)
            for (long long c = lane * VECTOR; c < p.cols; c += 32 * VECTOR) {
                S sum[VECTOR];
                for (int v = 0; v < VECTOR; v++) sum[v] = 0;
                for (long long i = start; i < p.count && keys[i] == own; i++) {
                    Vector more = *(const Vector *)(g + places[i] * p.cols + c);
                    for (int v = 0; v < VECTOR; v++) sum[v] += (S)widen(more.e[v]);
                }
                Vector made;
                for (int v = 0; v < VECTOR; v++) made.e[v] = narrow((W)sum[v]);
                *(Vector *)(row + c) = made;
            }
        else
            for (long long c = lane; c < p.cols; c += 32) {
                S sum = 0;
                for (long long i = start; i < p.count && keys[i] == own; i++)
                    sum += (S)widen(g[places[i] * p.cols + c]);
                row[c] = narrow((W)sum);
            }
    }
}
"""

_ADD_ROWS = """
#undef WARPS
#define WARPS (THREADS / 32)

// Adds the rows of g that were noted to those of the result, in the order in which they were noted.
__device__ void add_noted(const Params &p, long long first, const int *places, const unsigned char *owners, int noted,
                          int *sorted, int *starts, bool fresh) {
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    for (int pass = 0; pass < 2; pass++) {                  // count them, then put them in the order of their rows
        for (int r = warp; r < ROWS; r += WARPS) {
            int to = pass ? starts[r] : 0;
            for (int at = 0; at < noted; at += 32) {
                bool mine = at + lane < noted && owners[at + lane] == r;
                unsigned which = __ballot_sync(0xffffffffu, mine);
                if (pass && mine) sorted[to + __popc(which & ((1u << lane) - 1))] = places[at + lane];
                to += __popc(which);
            }
            if (!pass && lane == 0) starts[r + 1] = to;
        }
        __syncthreads();
        if (!pass && threadIdx.x == 0) {
            starts[0] = 0;
            for (int r = 1; r <= ROWS; r++) starts[r] += starts[r - 1];
        }
        __syncthreads();
    }
    const E *g = (const E *)p.g;
    bool aligned = p.cols % VECTOR == 0 && ((p.g | p.out) & 15) == 0;
    for (int r = threadIdx.x / ACROSS; r < ROWS && first + r < p.size; r += THREADS / ACROSS) {
        int begin = starts[r], end = starts[r + 1];
        if (!fresh && begin == end) continue;
        E *row = (E *)p.out + (first + r) * p.cols;
        for (long long c = threadIdx.x % ACROSS * VECTOR; c < p.cols; c += ACROSS * VECTOR) {
            int wide = p.cols - c < VECTOR ? (int)(p.cols - c) : VECTOR;
            S sum[VECTOR];
            for (int v = 0; v < VECTOR; v++) sum[v] = fresh || v >= wide ? (S)0 : (S)widen(row[c + v]);
            if (aligned) {
#pragma unroll 4
                for (int h = begin; h < end; h++) {
                    Vector more = *(const Vector *)(g + sorted[h] * p.cols + c);
                    for (int v = 0; v < VECTOR; v++) sum[v] += (S)widen(more.e[v]);
                }
                Vector made;
                for (int v = 0; v < VECTOR; v++) made.e[v] = narrow((W)sum[v]);
                *(Vector *)(row + c) = made;
            } else {
                for (int h = begin; h < end; h++)
                    for (int v = 0; v < wide; v++) sum[v] += (S)widen(g[sorted[h] * p.cols + c + v]);
                for (int v = 0; v < wide; v++) row[c + v] = narrow((W)sum[v]);
            }
        }
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS) add_rows(const Params p) {
    __shared__ int places[HITS], sorted[HITS], starts[ROWS + 1], found[WARPS];
    __shared__ unsigned char owners[HITS];
    const long long *index = (const long long *)p.index;
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, noted = 0;
    long long first = (long long)blockIdx.x * ROWS;
    bool fresh = true;
    for (long long start = 0; start < p.count; start += THREADS) {
        long long at = start + threadIdx.x, row = at < p.count ? index[at] : -1;
        bool hit = row >= first && row < first + ROWS && row != p.skip;
        if (!__syncthreads_or(hit)) continue;
        unsigned which = __ballot_sync(0xffffffffu, hit);
        if (lane == 0) found[warp] = __popc(which);
        __syncthreads();
        int to = noted, all = 0;
        for (int w = 0; w < WARPS; w++) {
            if (w < warp) to += found[w];
            all += found[w];
        }
        if (hit) {
            to += __popc(which & ((1u << lane) - 1));
            places[to] = (int)at;
            owners[to] = (unsigned char)(row - first);
        }
        noted += all;
        __syncthreads();
        if (noted > HITS - THREADS) {
            add_noted(p, first, places, owners, noted, sorted, starts, fresh);
            fresh = false;
            noted = 0;
        }
    }
    if (fresh || noted) add_noted(p, first, places, owners, noted, sorted, starts, fresh);
}
"""
