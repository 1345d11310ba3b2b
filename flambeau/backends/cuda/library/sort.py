"""Sorting rows, and the largest of each row: by digits of keys that compare as elements do, NaN above all.

Short rows are sorted in shared memory, a block each, by exchanging pairs (a bitonic network) of keys with their
indices, so that equal elements keep their order. Longer ones are sorted by eight bits of the key at a time, the lowest
first: one kernel counts how often every value of every digit comes, and then one for each digit moves the elements, in
order. Indices of other rows are the highest digits. What travels is the elements themselves and their indices.

Note [Looking back]: where the elements of a tile go depends on how many with the same value stand in the tiles before.
A block takes its tile by counting up a ticket, so those before it have begun. For every value it writes down how many
its tile has, and then goes back from tile to tile, adding up what is written there, until it meets one that knows the
sum of all before it; now it knows its own, and writes that down. A word holds two bits that say which of both it is,
and the count, so that a reader sees both or neither. The words of the next digit are cleared on the way.

The largest k of a row are found from the top: of eleven bits at a time, which value the k-th largest has; then those
above and as many of its equals as are needed, the first of them, are collected and sorted.
"""
import re
from math import prod

from ..calls import LaunchCall
from . import elements

MAX_NETWORK = 2048            # elements of a row that is sorted in shared memory
DIGIT_BITS = 8
SORT_THREADS = 256            # as many as a digit has values
SORT_BLOCKS_RESIDENT = 4      # of a multiprocessor, which registers have to do for
COUNT_BLOCKS = 1056           # that count digits: several for each multiprocessor
COUNT_BITS = 30               # of a word that says how many elements there are
SELECT_THREADS = 1024
MAX_SELECTED = 1024


def sort(dtype, laid, descending):
    """LaunchCalls for the elements along the last dimension of an operand (shape, strides) in order, and where they
    were (int64); None where there are none. All are contiguous; the addresses are those of the operand and both
    results.
    """
    shape, _ = laid
    if not elements.is_known(dtype) or not shape or 0 in shape:
        return None
    n, rows = shape[-1], prod(shape[:-1])
    if n <= MAX_NETWORK and rows < 2**31:
        size = max(32, 1 << (n - 1).bit_length())
        threads = min(SORT_THREADS, size // 2)
        return [LaunchCall(_network(dtype, size, threads, descending), "sort_rows", (rows, 1, 1), (threads, 1, 1), 0,
                           (n,))]
    total = n * rows
    if total >= 1 << COUNT_BITS:
        return None
    return by_digits(dtype, n, rows, elements.bits(dtype), descending, ["x", "values", "places"])[0]


def by_digits(dtype, n, rows, bits, descending, addresses, keeps=False):
    """(LaunchCalls that sort rows of n elements by the lowest so many bits of their keys, where the elements stand in
    the scratch memory, and where their indices do). `addresses` names those of the calls: "x" is what is sorted,
    and the results are "values" and "places", unless it `keeps` them in the scratch memory alone."""
    total = n * rows
    each = SORT_THREADS * _items(dtype)
    tiles, passes = -(-total // each), -(-bits // DIGIT_BITS)
    more = -(-(rows - 1).bit_length() // DIGIT_BITS)
    digits = passes + more
    size = dtype.itemsize
    # scratch: elements and indices, twice; how often each value of a digit comes, and a ticket, for each digit; what is
    # written down for each value of each tile, twice
    spans = [total * size, total * 4] * 2 + [257 * digits * 4] + [256 * tiles * 4] * 2
    offsets, at = [], 0
    for span in spans:
        offsets.append(at)
        at += -(-span // 256) * 256
    calls = []

    def add(name, blocks, number):
        now, to = (number + 1) % 2, number % 2
        shift = DIGIT_BITS * (number - passes if number >= passes else number)
        ints = (total, n, shift, number, offsets[2 * now], offsets[2 * now + 1], offsets[2 * to], offsets[2 * to + 1],
                offsets[4], offsets[5 + to], offsets[5 + now], tiles)
        text = _digits(dtype, passes, more, number, number == digits - 1 and not keeps, descending, addresses)[name]
        calls.append(LaunchCall(text, name, (blocks, 1, 1), (SORT_THREADS, 1, 1), 0, ints, at))

    add("clear_counts", min(tiles + 1, COUNT_BLOCKS), 0)
    add("count_digits", min(tiles, COUNT_BLOCKS), 0)
    for number in range(digits):
        add("move_elements", tiles, number)
    last = (digits - 1) % 2
    return calls, offsets[2 * last], offsets[2 * last + 1]


def topk(dtype, laid, k, largest):
    """[LaunchCall] for the k largest (or smallest) along the last dimension of an operand (shape, strides) in order,
    and where they were (int64); None where there is none. All are contiguous; the addresses are those of the operand
    and both results."""
    shape, _ = laid
    if not elements.is_known(dtype) or dtype.name == "bool" or not shape or 0 in shape or not 0 < k <= MAX_SELECTED:
        return None
    n, rows = shape[-1], prod(shape[:-1])
    if n >= 2**31 or rows >= 2**31:
        return None
    size = max(32, 1 << (k - 1).bit_length())
    threads = next(t for t in (128, 256, 512, SELECT_THREADS) if t == SELECT_THREADS or t * 8 >= n)
    text = _opening(dtype, largest, ["x", "values", "places"], ["n", "k"]) + _SELECT.replace("WIDTH", str(size)) \
        .replace("THREADS", str(threads)).replace("BITS", str(elements.bits(dtype)))
    return [LaunchCall(text, "select_rows", (rows, 1, 1), (threads, 1, 1), 0, (n, k))]


def _items(dtype):
    """Elements of a thread that moves them: as many as fit into shared memory."""
    return 8 if elements.bits(dtype) == 64 else 16


def _opening(dtype, turned, addresses, ints):
    """The opening of a text, with `rank_of`, by which elements are put in rising order; `turned`: the largest first."""
    return elements.opening(dtype) + elements.params(addresses, ints) + f"""
__device__ __forceinline__ U rank_of(E x) {{ return {"(U)~ordered(x)" if turned else "ordered(x)"}; }}
"""


# --- short rows -------------------------------------------------------------------------------------------------------


def _network(dtype, size, threads, descending):
    return _opening(dtype, descending, ["x", "values", "places"], ["n"]) + (_EXCHANGE + _SORT_ROWS) \
        .replace("WIDTH", str(size)).replace("THREADS", str(threads))


# Sorts WIDTH keys and places in shared memory; places tell equal keys apart, so that there is one order.
_EXCHANGE = """
__device__ __forceinline__ void exchange(U *keys, int *at) {
    for (int span = 2; span <= WIDTH; span *= 2)
        for (int by = span / 2; by; by /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < WIDTH / 2; i += THREADS) {
                int low = 2 * i - (i & (by - 1)), high = low + by;
                bool rising = (low & span) == 0;
                bool larger = keys[low] > keys[high] || (keys[low] == keys[high] && at[low] > at[high]);
                if (larger == rising) {
                    U key = keys[low]; keys[low] = keys[high]; keys[high] = key;
                    int place = at[low]; at[low] = at[high]; at[high] = place;
                }
            }
        }
    __syncthreads();
}
"""

_SORT_ROWS = """
extern "C" __global__ void __launch_bounds__(THREADS) sort_rows(const Params p) {
    __shared__ U keys[WIDTH];
    __shared__ int at[WIDTH];
    long long row = (long long)blockIdx.x * p.n;
    const E *x = (const E *)p.x + row;
    for (int i = threadIdx.x; i < WIDTH; i += THREADS) {
        keys[i] = i < p.n ? rank_of(x[i]) : (U)~(U)0;
        at[i] = i;                                          // what is not there comes behind all that is
    }
    exchange(keys, at);
    for (int i = threadIdx.x; i < p.n; i += THREADS) {
        ((E *)p.values)[row + i] = x[at[i]];
        ((long long *)p.places)[row + i] = at[i];
    }
}
"""

# --- long rows --------------------------------------------------------------------------------------------------------


def _digits(dtype, passes, more, number, last, descending, addresses):
    """The texts of the kernels of the digit `number`, by their names: `passes` digits of keys, then `more` of rows."""
    ints = ["total", "n", "shift", "digit", "from_x", "from_at", "to_x", "to_at", "counts", "words", "next_words",
            "tiles"]
    known = {"THREADS": SORT_THREADS, "ITEMS": _items(dtype), "DIGITS": passes + more, "PASSES": passes,
             "FIRST": int(number == 0), "LAST": int(last), "BY_ROW": int(number >= passes), "COUNT_BITS": COUNT_BITS,
             "RESIDENT": SORT_BLOCKS_RESIDENT}
    opening = _opening(dtype, descending, [*addresses, "scratch"], ints)
    texts = {"clear_counts": _CLEAR_COUNTS, "count_digits": _COUNT, "move_elements": _MOVE}
    for name, text in texts.items():
        text = _DIGITS + text
        for word, value in known.items():
            text = re.sub(rf"\b{word}\b", str(value), text)
        texts[name] = opening + text
    return texts


_DIGITS = """
__device__ __forceinline__ E element(const Params &p, long long i) {
    return FIRST ? ((const E *)p.x)[i] : ((const E *)(p.scratch + p.from_x))[i];
}
__device__ __forceinline__ unsigned place(const Params &p, long long i) {
    return FIRST ? (unsigned)i : ((const unsigned *)(p.scratch + p.from_at))[i];
}
__device__ __forceinline__ unsigned before_in_block(unsigned x, unsigned *sums) {   // the sum of the threads before
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    unsigned upto = x;
    for (int by = 1; by < 32; by *= 2) {
        unsigned y = __shfl_up_sync(0xffffffffu, upto, by);
        if (lane >= by) upto += y;
    }
    if (lane == 31) sums[warp] = upto;
    __syncthreads();
    unsigned before = upto - x;
    for (int w = 0; w < warp; w++) before += sums[w];
    __syncthreads();
    return before;
}
"""

_CLEAR_COUNTS = """
extern "C" __global__ void __launch_bounds__(THREADS) clear_counts(const Params p) {
    unsigned *counts = (unsigned *)(p.scratch + p.counts), *words = (unsigned *)(p.scratch + p.words);
    long long at = (long long)blockIdx.x * THREADS + threadIdx.x, step = (long long)gridDim.x * THREADS;
    for (long long i = at; i < 257 * DIGITS; i += step) counts[i] = 0;
    for (long long i = at; i < 256 * p.tiles; i += step) words[i] = 0;
}
"""

_COUNT = """
extern "C" __global__ void __launch_bounds__(THREADS) count_digits(const Params p) {
    __shared__ unsigned found[DIGITS][256];
    for (int d = 0; d < DIGITS; d++) found[d][threadIdx.x] = 0;
    __syncthreads();
    long long step = (long long)gridDim.x * THREADS;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < p.total; i += step) {
        U key = rank_of(element(p, i));
        unsigned row = (unsigned)i / (unsigned)p.n;
        for (int d = 0; d < PASSES; d++) atomicAdd(&found[d][(int)(key >> 8 * d) & 255], 1u);
        for (int d = PASSES; d < DIGITS; d++) atomicAdd(&found[d][row >> 8 * (d - PASSES) & 255], 1u);
    }
    __syncthreads();
    for (int d = 0; d < DIGITS; d++) {
        unsigned count = found[d][threadIdx.x];
        if (count) atomicAdd((unsigned *)(p.scratch + p.counts) + 256 * d + threadIdx.x, count);
    }
}
"""

_MOVE = """
__device__ __forceinline__ unsigned digit_of(const Params &p, E x, unsigned at) {
    return BY_ROW ? (at / (unsigned)p.n) >> (int)p.shift & 255 : (unsigned)(rank_of(x) >> (int)p.shift) & 255;
}
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) move_elements(const Params p) {
    __shared__ unsigned found[THREADS / 32][256], starts[256], goals[256], sums[THREADS / 32], ticket;
    __shared__ E held[THREADS * ITEMS];
    __shared__ unsigned from[THREADS * ITEMS];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    unsigned *counts = (unsigned *)(p.scratch + p.counts);
    if (threadIdx.x == 0) ticket = atomicAdd(counts + 256 * DIGITS + p.digit, 1u);
    for (int w = 0; w < THREADS / 32; w++) found[w][threadIdx.x] = 0;
    __syncthreads();
    long long tile = ticket, start = tile * THREADS * ITEMS;
    int first = warp * ITEMS * 32 + lane, left = THREADS * ITEMS;
    if (p.total - start < left) left = (int)(p.total - start);
    E x[ITEMS];
    unsigned ranks[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; i++)                         // a warp has a row of elements: it counts them in order
        if (first + i * 32 < left) x[i] = element(p, start + first + i * 32);
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        bool here = first + i * 32 < left;
        unsigned same = __ballot_sync(0xffffffffu, here), before = 0;
        unsigned value = here ? digit_of(p, x[i], BY_ROW ? place(p, start + first + i * 32) : 0) : 0;
#pragma unroll
        for (int bit = 0; bit < 8; bit++) {                 // the lanes that have the same value
            bool set = value >> bit & 1;
            unsigned which = __ballot_sync(0xffffffffu, set);
            same &= set ? which : ~which;
        }
        if (here) before = found[warp][value];
        __syncwarp();
        if (here && (same & ((1u << lane) - 1)) == 0) found[warp][value] = before + __popc(same);
        __syncwarp();
        ranks[i] = before + __popc(same & ((1u << lane) - 1)) | value << 16;
    }
    __syncthreads();
    unsigned all = 0;                                       // thread by thread a value of the digit
    for (int w = 0; w < THREADS / 32; w++) {
        unsigned count = found[w][threadIdx.x];
        found[w][threadIdx.x] = all;
        all += count;
    }
    volatile unsigned *words = (volatile unsigned *)(p.scratch + p.words) + threadIdx.x;
    words[256 * tile] = (tile ? 1u : 2u) << COUNT_BITS | all;              // see Note [Looking back]
    ((unsigned *)(p.scratch + p.next_words))[256 * tile + threadIdx.x] = 0;
    starts[threadIdx.x] = before_in_block(all, sums);
    unsigned base = before_in_block(counts[256 * p.digit + threadIdx.x], sums);
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
        if (first + i * 32 < left) {
            unsigned value = ranks[i] >> 16, to = starts[value] + found[warp][value] + (ranks[i] & 0xffff);
            held[to] = x[i];
            from[to] = place(p, start + first + i * 32);
        }
    unsigned before = 0;
    for (long long look = tile - 1; look >= 0; look--) {
        unsigned word;
        do word = words[256 * look]; while (!(word >> COUNT_BITS));
        before += word & (1u << COUNT_BITS) - 1;
        if (word >> COUNT_BITS == 2) break;
    }
    if (tile) words[256 * tile] = 2u << COUNT_BITS | before + all;
    goals[threadIdx.x] = base + before - starts[threadIdx.x];
    __syncthreads();
    for (int i = threadIdx.x; i < left; i += THREADS) {
        E value = held[i];
        unsigned source = from[i], to = goals[digit_of(p, value, source)] + i;
        if (LAST) {
            ((E *)p.values)[to] = value;
            ((long long *)p.places)[to] = source % (unsigned)p.n;
        } else {
            ((E *)(p.scratch + p.to_x))[to] = value;
            ((unsigned *)(p.scratch + p.to_at))[to] = source;
        }
    }
}
"""

# --- the largest ------------------------------------------------------------------------------------------------------

_SELECT = _EXCHANGE + """
#undef DIGIT
#define DIGIT 11

extern "C" __global__ void __launch_bounds__(THREADS) select_rows(const Params p) {
    __shared__ unsigned found[1 << DIGIT];
    __shared__ U keys[WIDTH], chosen;
    __shared__ int at[WIDTH], above, needed, equals, taken[THREADS / 32];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, n = (int)p.n, k = (int)p.k;
    const E *x = (const E *)p.x + (long long)blockIdx.x * p.n;
    U prefix = 0, mask = 0;
    int left = k;
    for (int top = BITS; top > 0; top -= DIGIT) {           // which value the k-th has in these bits
        int wide = top < DIGIT ? top : DIGIT, shift = top - wide;
        for (int i = threadIdx.x; i < 1 << DIGIT; i += THREADS) found[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += THREADS) {
            U key = rank_of(x[i]);
            if ((key & mask) == prefix) atomicAdd(&found[(int)(key >> shift) & ((1 << wide) - 1)], 1u);
        }
        __syncthreads();
        if (warp == 0) {
            int passed = 0;
            for (int first = 0; first < 1 << wide; first += 32) {
                int count = first + lane < 1 << wide ? (int)found[first + lane] : 0, upto = count;
                for (int by = 1; by < 32; by *= 2) {
                    int y = __shfl_up_sync(0xffffffffu, upto, by);
                    if (lane >= by) upto += y;
                }
                bool here = passed + upto >= left && passed + upto - count < left;
                if (here) {
                    chosen = prefix | (U)((U)(first + lane) << shift);
                    needed = left - (passed + upto - count);
                    equals = count;
                }
                if (__any_sync(0xffffffffu, here)) break;
                passed += __shfl_sync(0xffffffffu, upto, 31);
            }
        }
        __syncthreads();
        prefix = chosen;
        left = needed;
        mask = (U)(mask | (U)((((U)1 << wide) - 1) << shift));
        __syncthreads();
    }
    for (int i = threadIdx.x; i < WIDTH; i += THREADS) {
        keys[i] = (U)~(U)0;
        at[i] = 0x7fffffff;
    }
    if (threadIdx.x == 0) above = 0;
    __syncthreads();
    bool all_equals = equals == left;
    int passed = 0;
    for (int start = 0; start < n; start += THREADS) {
        int i = start + threadIdx.x;
        U key = i < n ? rank_of(x[i]) : (U)~(U)0;
        bool equal = i < n && key == prefix;
        if (i < n && (key < prefix || (equal && all_equals))) {
            int to = atomicAdd(&above, 1);
            keys[to] = key;
            at[to] = i;
        }
        if (!all_equals && passed < left && __syncthreads_or(equal)) {        // the first of the equal ones
            unsigned which = __ballot_sync(0xffffffffu, equal);
            if (lane == 0) taken[warp] = __popc(which);
            __syncthreads();
            int before = passed;
            for (int w = 0; w < THREADS / 32; w++) {
                if (w < warp) before += taken[w];
                passed += taken[w];
            }
            before += __popc(which & ((1u << lane) - 1));
            if (equal && before < left) {
                keys[k - 1 - before] = key;
                at[k - 1 - before] = i;
            }
            __syncthreads();
        }
    }
    exchange(keys, at);
    long long row = (long long)blockIdx.x * p.k;
    for (int i = threadIdx.x; i < k; i += THREADS) {
        ((E *)p.values)[row + i] = x[at[i]];
        ((long long *)p.places)[row + i] = at[i];
    }
}
"""
