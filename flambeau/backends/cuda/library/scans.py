"""Running results along a dimension: sums, products, extremes with their indices, first-order recurrences.

A running result is a chain of states, each joined with the next element's, and joining is associative: a row is cut
into pieces that are joined beside each other, and what comes before a piece is joined to it afterwards. Rows (elements
one behind the other) are a block each: its threads hold a piece of some 4096 elements in registers, so memory is read
and written once. Few long rows are cut into parts, a block each, whose states are found in a launch before. Along
other dimensions a block goes down 32 columns at a time. The order of joins follows from the shape alone.

float32 is added up and multiplied in double precision, as on the CPU; 16-bit floats are in float32.
"""
from math import prod

from ....base.shapes import contiguous_strides
from ..calls import LaunchCall
from . import elements

GROUPS = 4                    # vectors of elements that a thread holds at once
ENOUGH_BLOCKS = 264           # rows, with which a GPU is busy: two for each of an H200's multiprocessors
STATE_BYTES = 16
COLUMNS, SEGMENTS, SEGMENT_ROWS = 32, 8, 8

# How a state is made, joined and written: what it holds, what it starts from, of an element, left and right joined.
# `S` is what is computed with.
_STATES = {
    "sum": ("S v;", "{0}", "{(S)widen(a)}", "return State{l.v + r.v};"),
    "prod": ("S v;", "{1}", "{(S)widen(a)}", "return State{l.v * r.v};"),
    "max": ("S v; long long i;", "{LEAST, 0}", "{widen(a), at}",
            "return r.v != r.v ? r : l.v != l.v ? l : r.v >= l.v ? r : l;"),
    "min": ("S v; long long i;", "{MOST, 0}", "{widen(a), at}",
            "return r.v != r.v ? r : l.v != l.v ? l : r.v <= l.v ? r : l;"),
    "logaddexp": ("S v;", "{LEAST}", "{(S)widen(a)}",
                  "if (l.v != l.v || r.v != r.v) return State{l.v + r.v};\n"
                  "    S low = l.v < r.v ? l.v : r.v, high = l.v < r.v ? r.v : l.v;\n"
                  "    if (low == high && low - low != 0) return l;          // two infinities have no difference\n"
                  "    return State{high + log1p(exp(low - high))};"),
    # state (f, v): a result y before it becomes f * y + v
    "recur": ("S v; S f;", "{0, 1}", "{(S)widen(a), at ? (S)widen(b) : 0}",
              "return State{r.f * l.v + r.v, l.f * r.f};"),
}
_SUMMED_WIDELY = {"sum", "prod", "logaddexp", "recur"}


def scan(operation, dtype, args, outs, dim):
    """Calls for a running `operation` along `dim`; None where the operands do not all lie alike, one behind the other.

    The addresses are those of the operands (for "recur" also the factors) and of the results (for extremes also their
    indices along `dim`, int64).
    """
    if not elements.is_known(dtype) or operation not in _STATES or dtype.name == "bool":
        return None
    if operation in ("logaddexp", "recur") and not elements.is_float(dtype):
        return None
    (shape, strides), rank = args[0], len(args[0][0])
    turn = sorted(range(rank), key=lambda d: (-strides[d], d))                 # dimensions as they lie in memory
    size = [shape[d] for d in turn]
    if 0 in size or not all(_lies(laid, turn) for laid in (*args, *outs)):
        return None
    at = turn.index(dim)
    outer, count, inner = prod(size[:at]), size[at], prod(size[at + 1:])
    if inner > 1:
        blocks = outer * -(-inner // COLUMNS)
        return [LaunchCall(source(operation, dtype), "scan_columns", (blocks, 1, 1), (COLUMNS, SEGMENTS, 1), 0,
                           (count, inner))]
    threads = next(t for t in (32, 64, 128, 256) if t == 256 or t * elements_per_thread(dtype) >= count)
    piece = threads * elements_per_thread(dtype)
    parts = 1
    if outer < ENOUGH_BLOCKS and count > 2 * piece:
        parts = min(threads, -(-count // piece), -(-4 * ENOUGH_BLOCKS // outer))
    each = -(-count // (parts * piece)) * piece
    parts = -(-count // each)
    text = source(operation, dtype, threads, parts > 1)
    launch = LaunchCall(text, "scan_rows", (outer * parts, 1, 1), (threads, 1, 1), 0,
                        (count, parts, each), STATE_BYTES * outer * parts if parts > 1 else 0)
    if parts == 1:
        return [launch]
    return [launch._replace(source=source(operation, dtype, threads, True, "fold_parts"), name="fold_parts"), launch]


def elements_per_thread(dtype):
    return GROUPS * max(1, 128 // elements.bits(dtype))


def _lies(laid, turn):
    """Whether an operand lies one element after the other, with its dimensions in the order `turn`."""
    shape, strides = ([one[d] for d in turn] for one in laid)
    return all(n == 1 or s == one for n, s, one in zip(shape, strides, contiguous_strides(shape), strict=True))


def source(operation, dtype, threads=0, parted=False, name="scan_rows"):
    """The text of a kernel: with `threads` of a block that goes along rows, which may be `parted`, or that folds such
    parts; without, of the one that goes down columns."""
    holds, start, made, join = _STATES[operation]
    wide = "double" if operation in _SUMMED_WIDELY and dtype.name == "float32" else "W"
    extreme = operation in ("max", "min")
    shuffled = [f"s.{field} = __shfl_up_sync(0xffffffffu, s.{field}, by);" for field in "vif" if f" {field};" in holds]
    addresses = ["x"] + ["factor"] * (operation == "recur") + ["out"] + ["place"] * extreme
    ints = ["count", "parts", "each"] if threads else ["count", "inner"]
    return elements.opening(dtype) + elements.params(addresses + ["scratch"] * parted, ints) + f"""
typedef {wide} S;
struct State {{ {holds} }};
__device__ __forceinline__ State nothing() {{ return State{start}; }}
__device__ __forceinline__ State of(E a, E b, long long at) {{ return State{made}; }}
__device__ __forceinline__ State join(State l, State r) {{
    {join}
}}
__device__ __forceinline__ State up(State s, int by) {{
    {" ".join(shuffled)}
    return s;
}}
__device__ __forceinline__ E factor_at(const Params &p, long long at) {{
    return {"((const E *)p.factor)[at]" if operation == "recur" else "0"};
}}
__device__ __forceinline__ void put(const Params &p, long long at, State s) {{
    ((E *)p.out)[at] = narrow((W)s.v);{" ((long long *)p.place)[at] = s.i;" * extreme}
}}
""" + _kernel(threads, name).replace("BEFORE", _BEFORE if parted else "").replace("THREADS", str(threads)) \
        .replace("GROUPS", str(GROUPS)).replace("ALIGNED", str(int(not extreme)))


def _kernel(threads, name):
    if threads:
        return _ALONG_ROWS + (_SCAN_ROWS if name == "scan_rows" else _FOLD_PARTS)
    return _DOWN_COLUMNS.replace("COLUMNS", str(COLUMNS)).replace("SEGMENTS", str(SEGMENTS)) \
        .replace("DEPTH", str(SEGMENT_ROWS))


_ALONG_ROWS = """
#undef WARPS
#undef PIECE
#define WARPS (THREADS / 32)
#define PIECE (THREADS * GROUPS * VECTOR)

__device__ __forceinline__ State along_warp(State s) {             // joined with those of the lanes before
    int lane = threadIdx.x & 31;
    for (int by = 1; by < 32; by *= 2) {
        State before = up(s, by);
        if (lane >= by) s = join(before, s);
    }
    return s;
}

// What comes before each thread's states in its block, of GROUPS that each lie thread by thread; `whole`: all joined.
__device__ __forceinline__ void along_block(State *states, State &whole, State *sums) {
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    for (int g = 0; g < GROUPS; g++) {
        State s = along_warp(states[g]);
        if (lane == 31) sums[g * WARPS + warp] = s;
        s = up(s, 1);
        states[g] = lane ? s : nothing();
    }
    __syncthreads();
    if (warp == 0) {
        State s = lane < GROUPS * WARPS ? sums[lane] : nothing();
        s = along_warp(s);
        if (lane == 31) sums[32] = s;
        s = up(s, 1);
        __syncwarp();
        if (lane < GROUPS * WARPS) sums[lane] = lane ? s : nothing();
    }
    __syncthreads();
    for (int g = 0; g < GROUPS; g++) states[g] = join(sums[g * WARPS + warp], states[g]);
    whole = sums[32];
    __syncthreads();
}

__device__ __forceinline__ void load(const Params &p, long long at, long long end, bool aligned, E *x) {
    if (aligned && at + VECTOR <= end) *(Vector *)x = *(const Vector *)((const E *)p.x + at);
    else
        for (int v = 0; v < VECTOR; v++) x[v] = at + v < end ? ((const E *)p.x)[at + v] : (E)0;
}

// The states of the elements from `start` of a row on, after `carry`; written where `writes`. Gives the last.
__device__ __forceinline__ State piece(const Params &p, long long row, long long start, long long end, State carry,
                                       bool aligned, bool writes, State *sums) {
    __align__(16) E x[GROUPS][VECTOR];
    State before[GROUPS], whole;
    for (int g = 0; g < GROUPS; g++)
        load(p, row + start + (g * THREADS + threadIdx.x) * VECTOR, row + end, aligned, x[g]);
    for (int g = 0; g < GROUPS; g++) {
        before[g] = nothing();
        long long at = start + (g * THREADS + threadIdx.x) * VECTOR;
        for (int v = 0; v < VECTOR; v++)
            if (at + v < end) before[g] = join(before[g], of(x[g][v], factor_at(p, row + at + v), at + v));
    }
    along_block(before, whole, sums);
    if (writes)
        for (int g = 0; g < GROUPS; g++) {
            long long at = start + (g * THREADS + threadIdx.x) * VECTOR;
            State s = join(carry, before[g]);
            __align__(16) E made[VECTOR];
            for (int v = 0; v < VECTOR; v++)
                if (at + v < end) {
                    s = join(s, of(x[g][v], factor_at(p, row + at + v), at + v));
                    if (aligned) made[v] = narrow((W)s.v);
                    else put(p, row + at + v, s);
                }
            if (aligned && at < end) *(Vector *)((E *)p.out + row + at) = *(Vector *)made;
        }
    return join(carry, whole);
}

"""

_SCAN_ROWS = """
extern "C" __global__ void __launch_bounds__(THREADS) scan_rows(const Params p) {
    __shared__ double held[2 * 33];
    State *sums = (State *)held;
    long long row = blockIdx.x / p.parts, part = blockIdx.x % p.parts;
    long long start = part * p.each, end = start + p.each < p.count ? start + p.each : p.count;
    bool aligned = ALIGNED && p.count % VECTOR == 0 && ((p.x | p.out) & 15) == 0;
    State carry = nothing();
    BEFORE
    for (; start < end; start += PIECE) carry = piece(p, row * p.count, start, end, carry, aligned, true, sums);
}
"""

# The states of the parts before a block's own are joined in its threads, of which there are as many as parts.
_BEFORE = """State states[GROUPS];
    for (int g = 0; g < GROUPS; g++) states[g] = nothing();
    if (threadIdx.x < part) states[0] = ((const State *)p.scratch)[row * p.parts + threadIdx.x];
    along_block(states, carry, sums);"""

_FOLD_PARTS = """
extern "C" __global__ void __launch_bounds__(THREADS) fold_parts(const Params p) {
    __shared__ double held[2 * 33];
    State *sums = (State *)held;
    long long row = blockIdx.x / p.parts, part = blockIdx.x % p.parts;
    long long start = part * p.each, end = start + p.each < p.count ? start + p.each : p.count;
    bool aligned = p.count % VECTOR == 0 && (p.x & 15) == 0;
    State carry = nothing();
    for (; start < end; start += PIECE) carry = piece(p, row * p.count, start, end, carry, aligned, false, sums);
    if (threadIdx.x == 0) ((State *)p.scratch)[row * p.parts + part] = carry;
}
"""

_DOWN_COLUMNS = """
extern "C" __global__ void __launch_bounds__(COLUMNS * SEGMENTS) scan_columns(const Params p) {
    __shared__ double held[2 * SEGMENTS * COLUMNS];
    State *sums = (State *)held;
    long long across = (p.inner + COLUMNS - 1) / COLUMNS;
    long long col = blockIdx.x % across * COLUMNS + threadIdx.x, first = blockIdx.x / across * p.count * p.inner + col;
    bool inside = col < p.inner;
    State carry = nothing();
    for (long long start = 0; start < p.count; start += SEGMENTS * DEPTH) {
        long long top = start + threadIdx.y * DEPTH;
        E x[DEPTH];
        State s = nothing();
        for (int r = 0; r < DEPTH; r++)
            if (inside && top + r < p.count) x[r] = ((const E *)p.x)[first + (top + r) * p.inner];
        for (int r = 0; r < DEPTH; r++)
            if (inside && top + r < p.count)
                s = join(s, of(x[r], factor_at(p, first + (top + r) * p.inner), top + r));
        sums[threadIdx.y * COLUMNS + threadIdx.x] = s;
        __syncthreads();
        for (int y = 0; y < SEGMENTS; y++) {
            if (y == threadIdx.y) s = carry;
            carry = join(carry, sums[y * COLUMNS + threadIdx.x]);
        }
        for (int r = 0; r < DEPTH; r++)
            if (inside && top + r < p.count) {
                long long at = first + (top + r) * p.inner;
                s = join(s, of(x[r], factor_at(p, at), top + r));
                put(p, at, s);
            }
        __syncthreads();
    }
}
"""
