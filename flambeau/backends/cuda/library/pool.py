"""Pooling by the largest, and elements added where an index says: a thread for each window, a block for each row.

Of equals the first is taken, of nans the last, as in PyTorch. `drop` adds in the order of the elements: a block takes
some at a time; of those that have the same index the first adds, then the next. Sums are in shared memory where a row
fits there, in float32 for 16-bit floats.
"""
from math import prod

from ..calls import LaunchCall
from . import elements

POOL_THREADS = 256
DROP_THREADS = 256
SLOTS = 2048                       # in which the elements of a block claim their indices
MAX_SHARED_SUM_BYTES = 96 << 10    # of sums in shared memory


def max_pool(dtype, x, y, indices, maps):
    """A LaunchCall for the largest element of each window and its index in the flattened spatial dimensions; None where
    there is none. `x`, `y` and `indices` are (shape, strides); `maps` are windows (base/axis_maps.py), one to three."""
    n = len(maps)
    if not elements.is_known(dtype) or dtype.name == "bool" or n > 3 or any(m[0] != "window" for m in maps) \
            or 0 in x[0] or 0 in y[0] or len(x[0]) - n > 2:
        return None
    lead = 2 - (len(x[0]) - n)
    sizes, strides = [], []
    for laid in (x, y, indices):
        shape, by = laid
        shape, by = (1,) * lead + tuple(shape), (0,) * lead + tuple(by)
        sizes.append(shape[:2] + (1,) * (3 - n) + shape[2:])
        strides.append(by[:2] + (0,) * (3 - n) + by[2:])
    windows = [(1, 1, 1, 1, 0, 1)] * (3 - n) + [tuple(m[1:7]) for m in maps]
    # of each spatial dimension: size, results, kernel, stride, padding, dilation
    ints = (sizes[0][1], *[value for window in windows for value in window], *[s for by in strides for s in by],
            prod(sizes[1]))
    blocks = -(-prod(sizes[1]) // POOL_THREADS)
    return LaunchCall(_pool_source(dtype), "max_pool", (blocks, 1, 1), (POOL_THREADS, 1, 1), 0, ints)


def _pool_source(dtype):
    dims = [f"{what}_{d}" for d in "dhw" for what in ("size", "out", "kernel", "stride", "pad", "dilation")]
    steps = [f"{name}_{d}" for name in ("x", "y", "p") for d in "ncdhw"]
    return elements.opening(dtype) + elements.params(["x", "y", "places"], ["channels", *dims, *steps, "count"]) \
        + _MAX_POOL.replace("THREADS", str(POOL_THREADS))


_MAX_POOL = """
extern "C" __global__ void __launch_bounds__(THREADS) max_pool(const Params p) {
    long long at = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (at >= p.count) return;
    int w = (int)(at % p.out_w); at /= p.out_w;
    int h = (int)(at % p.out_h); at /= p.out_h;
    int d = (int)(at % p.out_d); at /= p.out_d;
    int c = (int)(at % p.channels), n = (int)(at / p.channels);
    const E *x = (const E *)p.x + n * p.x_n + c * p.x_c;
    E best = (E)0;
    long long place = -1;
    for (int i = 0; i < (int)p.kernel_d; i++) {
        int z = d * (int)p.stride_d - (int)p.pad_d + i * (int)p.dilation_d;
        if (z < 0 || z >= p.size_d) continue;
        for (int j = 0; j < (int)p.kernel_h; j++) {
            int y = h * (int)p.stride_h - (int)p.pad_h + j * (int)p.dilation_h;
            if (y < 0 || y >= p.size_h) continue;
            for (int k = 0; k < (int)p.kernel_w; k++) {
                int v = w * (int)p.stride_w - (int)p.pad_w + k * (int)p.dilation_w;
                if (v < 0 || v >= p.size_w) continue;
                E value = x[z * p.x_d + y * p.x_h + v * p.x_w];
                if (place < 0 || widen(value) > widen(best) || is_nan(value)) {
                    best = value;
                    place = (z * p.size_h + y) * p.size_w + v;
                }
            }
        }
    }
    ((E *)p.y)[n * p.y_n + c * p.y_c + d * p.y_d + h * p.y_h + w * p.y_w] = best;
    ((long long *)p.places)[n * p.p_n + c * p.p_c + d * p.p_d + h * p.p_h + w * p.p_w] = place;
}
"""


def drop(dtype, rows, count, size, shared):
    """A LaunchCall that adds the elements of g [rows, count] at index [rows, count] of zeros [rows, size]; None where
    there is none. All are contiguous and every index is in range; a `shared` index has one row. The addresses are
    those of g, index and out."""
    if not elements.is_known(dtype) or dtype.name == "bool" or not rows or not count or not size or rows >= 2**31:
        return None
    nbytes = size * max(4, dtype.itemsize)
    in_shared = nbytes <= MAX_SHARED_SUM_BYTES
    text = elements.opening(dtype) + elements.params(["g", "index", "out"], ["count", "size", "index_row"]) \
        + f"typedef {'W' if dtype.itemsize >= 4 or elements.is_float(dtype) else 'int'} S;\n" \
        + _DROP.replace("THREADS", str(DROP_THREADS)).replace("SLOTS", str(SLOTS)).replace("HELD", str(int(in_shared)))
    return LaunchCall(text, "drop", (rows, 1, 1), (DROP_THREADS, 1, 1), nbytes if in_shared else 0,
                      (count, size, 0 if shared else count))


_DROP = """
extern "C" __global__ void __launch_bounds__(THREADS) drop(const Params p) {
    extern __shared__ double room[];
    __shared__ int owners[SLOTS];
    S *sums = (S *)room;
    E *out = (E *)p.out + blockIdx.x * p.size;
    const E *g = (const E *)p.g + blockIdx.x * p.count;
    const long long *index = (const long long *)p.index + blockIdx.x * p.index_row;
    for (long long i = threadIdx.x; i < p.size; i += THREADS)
        if (HELD) sums[i] = 0; else out[i] = narrow((W)0);
    for (int i = threadIdx.x; i < SLOTS; i += THREADS) owners[i] = THREADS;
    __syncthreads();
    for (long long start = 0; start < p.count; start += THREADS) {
        long long at = start + threadIdx.x;
        bool waits = at < p.count;
        long long place = waits ? index[at] : 0;
        S value = waits ? (S)widen(g[at]) : (S)0;
        int slot = (int)(place % SLOTS);
        while (__syncthreads_or(waits)) {
            if (waits) atomicMin(&owners[slot], (int)threadIdx.x);
            __syncthreads();
            if (waits && owners[slot] == (int)threadIdx.x) {        // the first of those that want this place
                if (HELD) sums[place] += value;
                else out[place] = narrow((W)((S)widen(out[place]) + value));
                waits = false;
                value = 0;
                __threadfence_block();
                slot = -1 - slot;
            }
            __syncthreads();
            if (slot < 0) {
                owners[-1 - slot] = THREADS;
                slot = 0;
            }
        }
    }
    __syncthreads();
    if (HELD)
        for (long long i = threadIdx.x; i < p.size; i += THREADS) out[i] = narrow((W)sums[i]);
}
"""
