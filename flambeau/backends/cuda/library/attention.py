"""Attention whose weights never stand in memory: scores are made tile by tile, with a running maximum and sum.

Forward, a block owns some queries and goes over the keys; it keeps the largest score so far and the sum of the weights
relative to that, and scales what it has when a larger one comes. It leaves behind the logarithm of each query's sum.
Backward makes the weights again from that. One kernel owns keys and goes over queries, for the gradients of keys and
values; another owns queries and goes over keys; so no two write to one address, and results are always the same.

16-bit floats go through cuDNN where NVIDIA's frontend is installed (cudnn_graph.py), or are multiplied by tensor cores
(tensor_attention.py, sm_80 and later), with sums in float32. Others, and sizes that those do not take, are multiplied
one by one, here.
"""
import struct

from ... import library_switches
from ..calls import LaunchCall
from . import cudnn_graph, elements, tensor_attention

TILE = 32                     # queries and keys of a tile
TILE_THREADS = 256            # eight for each query
MAX_FEATURES = 256


def attention(dtype, args, outs, params, properties, index=0):
    """A LaunchCall for (average, logarithms of sums) of query, key and value [samples, heads, steps, features], and a
    mask if there is one, all (shape, strides); None where there is none. The addresses are those of query, key, value,
    mask, average and logarithms."""
    scale, causal, groups, mask = params
    names = ("q", "k", "v", "out")
    laid = dict(zip(names, (*args[:3], outs[0]), strict=True))
    if not _takes(dtype, laid):
        return None
    found = cudnn_graph.forward(dtype, laid, causal, scale, index) if allowed()[1] and mask is None else None
    if found is not None:
        return [found]
    (samples, heads, queries, size), width = laid["q"][0], laid["v"][0][3]
    ints = (heads, groups, queries, laid["k"][0][2], *_steps(laid, names), *_mask_steps(mask, args), _bits(scale))
    fast = tensor_attention.forward(dtype, laid, causal, mask, properties, ints)
    if fast is not None:
        return [fast]
    text = _source("forward", dtype, size, width, causal, mask, names)
    blocks = samples * heads * -(-queries // TILE)
    return [LaunchCall(text, "attention_forward", (blocks, 1, 1), (TILE_THREADS, 1, 1), _shared("forward", dtype, size,
                                                                                               width), ints)]


def attention_backward(dtype, args, outs, params, properties, index=0):
    """LaunchCalls for the gradients of query, key and value; None where there are none. The addresses are those of the
    average's gradient, query, key, value, average, logarithms, a mask if there is one, and of the three gradients."""
    scale, causal, groups, mask = params
    names = ("grad", "q", "k", "v", "out", "dq", "dk", "dv")
    laid = dict(zip(names, (*args[:5], *outs), strict=True))
    if not _takes(dtype, laid):
        return None
    found = cudnn_graph.backward(dtype, laid, causal, scale, index) if allowed()[1] and mask is None else None
    if found is not None:
        return [found]
    (samples, heads, queries, size), (_, shared, keys, width) = laid["q"][0], laid["v"][0]
    ints = (heads, groups, queries, keys, *_steps(laid, names), *_mask_steps(mask, args), _bits(scale))
    scratch = samples * heads * queries * (8 if dtype.name == "float64" else 4)
    fast = tensor_attention.backward(dtype, laid, causal, mask, properties, ints, scratch)
    rows = -(-samples * heads * queries // (TILE_THREADS // 32))
    first = LaunchCall(_source("delta", dtype, size, width, causal, mask, names), "attention_delta", (rows, 1, 1),
                       (TILE_THREADS, 1, 1), 0, ints + (samples,), scratch)
    if fast is not None:
        return [first, *fast]
    calls = [first]
    for part, blocks in (("keys", samples * shared * -(-keys // TILE)), ("queries", samples * heads
                                                                       * -(-queries // TILE))):
        calls.append(LaunchCall(_source(part, dtype, size, width, causal, mask, names), f"attention_{part}",
                                (blocks, 1, 1), (TILE_THREADS, 1, 1), _shared(part, dtype, size, width), ints, scratch))
    return calls


def allowed():
    """(whether our kernels may be used, whether cuDNN may): PyTorch's switches, of which ours has two names."""
    cuda = library_switches.cuda
    return cuda.flash_sdp_enabled() or cuda.mem_efficient_sdp_enabled(), \
        cuda.cudnn_sdp_enabled() and library_switches.cudnn.enabled


def takes(dtype, args):
    """Whether there are kernels for operands (shape, strides), whichever they will be."""
    return _takes(dtype, dict(zip(("q", "k", "v"), args[:3] if len(args) <= 4 else args[1:4], strict=True)))


def _takes(dtype, laid):
    """Whether all operands have their features in a row, and not too many."""
    return elements.is_float(dtype) and laid["q"][0][3] <= MAX_FEATURES and laid["v"][0][3] <= MAX_FEATURES \
        and all(len(shape) == 4 and (shape[3] == 1 or strides[3] == 1) and 0 not in shape
                for shape, strides in laid.values())


def _steps(laid, names):
    """The strides along samples, heads and steps of every operand."""
    return tuple(s if n > 1 else 0 for name in names for n, s in zip(laid[name][0][:3], laid[name][1][:3], strict=True))


def _mask_steps(mask, args):
    """The strides of a mask along samples, heads, queries and keys, 0 where it is the same for all."""
    return () if mask is None else tuple(s if n > 1 else 0 for n, s in zip(*args[-1], strict=True))


def _bits(number):
    """A number as the integer of its bits, which a kernel is given."""
    return struct.unpack("q", struct.pack("d", float(number)))[0]


def _source(part, dtype, size, width, causal, mask, names):
    text = {"forward": _FORWARD, "delta": _DELTA, "keys": _KEYS, "queries": _QUERIES}[part]
    extra = ("samples",) if part == "delta" else ()
    exp, log = ("exp", "log") if dtype.name == "float64" else ("expf", "logf")
    text = (_COMMON + text).replace("EXP", exp).replace("LOG", log).replace("SIZE", str(size)) \
        .replace("WIDTH", str(width)).replace("CAUSAL", str(int(causal))).replace("TILE", str(TILE)) \
        .replace("THREADS", str(TILE_THREADS))
    return tensor_attention.opening(dtype, names, mask, extra) + text


def _shared(part, dtype, size, width):
    """Bytes of shared memory that a kernel needs."""
    word = 8 if dtype.name == "float64" else 4
    row = {"forward": 2 * (size + 1) + width + 1, "keys": 2 * (size + 1) + 2 * (width + 1) + 2,
           "queries": 2 * (size + 1) + 2 * (width + 1) + 2}[part]
    tiles = {"forward": 1, "keys": 2, "queries": 1}[part]
    return word * TILE * (row + tiles * (TILE + 1))


# A thread computes for the query (or the key) number tid / 8 of its tile: scores with every eighth key from tid % 8 on,
# and every eighth feature of results. Rows in shared memory are one element longer, so that columns lie in all banks.
_COMMON = """
#define LANES (THREADS / TILE)
#define EACH (TILE / LANES)
#define OWN(n) (((n) + LANES - 1) / LANES)

__device__ __forceinline__ void fetch(W *to, const E *from, long long first, long long step, long long rows, int cols) {
    for (int at = threadIdx.x; at < TILE * cols; at += THREADS) {
        int r = at / cols, c = at % cols;
        to[r * (cols + 1) + c] = r < rows ? widen(from[first + r * step + c]) : (W)0;
    }
}

__device__ __forceinline__ W folded_max(W x) {              // of the threads of one row
    for (int by = 1; by < LANES; by *= 2) { W y = __shfl_xor_sync(0xffffffffu, x, by); x = x < y ? y : x; }
    return x;
}

__device__ __forceinline__ W folded_sum(W x) {
    for (int by = 1; by < LANES; by *= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
    return x;
}

__device__ __forceinline__ W dot(const W *a, const W *b, int n) {
    W sum = 0;
    for (int i = 0; i < n; i++) sum = fma(a[i], b[i], sum);
    return sum;
}
"""

_FORWARD = """
extern "C" __global__ void __launch_bounds__(THREADS) attention_forward(const Params p) {
    extern __shared__ double held[];
    W *q = (W *)held, *k = q + TILE * (SIZE + 1), *v = k + TILE * (SIZE + 1), *weights = v + TILE * (WIDTH + 1);
    long long tiles = (p.queries + TILE - 1) / TILE, start = blockIdx.x % tiles * TILE;
    long long h = blockIdx.x / tiles % p.heads, b = blockIdx.x / tiles / p.heads;
    int row = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    long long query = start + row;
    W scale = (W)scale_of(p), top = LEAST, sum = 0, made[OWN(WIDTH)];
    for (int i = 0; i < OWN(WIDTH); i++) made[i] = 0;
    fetch(q, (const E *)p.q, q_row(p, b, h, start), p.q_t, p.queries - start, SIZE);
    long long end = CAUSAL && start + TILE < p.keys ? start + TILE : p.keys;
    for (long long first = 0; first < end; first += TILE) {
        __syncthreads();
        fetch(k, (const E *)p.k, k_row(p, b, h / p.groups, first), p.k_t, p.keys - first, SIZE);
        fetch(v, (const E *)p.v, v_row(p, b, h / p.groups, first), p.v_t, p.keys - first, WIDTH);
        __syncthreads();
        W score[EACH], most = LEAST;
        for (int j = 0; j < EACH; j++) {
            long long key = first + lane + j * LANES;
            bool counts = key < p.keys && (!CAUSAL || key <= query);
            score[j] = LEAST;
            if (counts && query < p.queries) {
                score[j] = dot(q + row * (SIZE + 1), k + (lane + j * LANES) * (SIZE + 1), SIZE) * scale;
                score[j] = masked(p, score[j], 1, b, h, query, key);
            }
            if (most < score[j]) most = score[j];
        }
        most = folded_max(most);
        W now = top < most ? most : top, back = now == LEAST ? (W)1 : EXP(top - now), more = 0;
        for (int j = 0; j < EACH; j++) {
            W weight = score[j] == LEAST ? (W)0 : EXP(score[j] - now);
            if (score[j] != score[j]) weight = score[j];
            weights[row * (TILE + 1) + lane + j * LANES] = weight;
            more += weight;
        }
        sum = sum * back + folded_sum(more);
        top = now;
        __syncwarp();
        for (int i = 0; i < OWN(WIDTH); i++) {
            int c = lane + i * LANES;
            if (c >= WIDTH) continue;
            W average = made[i] * back;
            for (int n = 0; n < TILE; n++)
                average = fma(weights[row * (TILE + 1) + n], v[n * (WIDTH + 1) + c], average);
            made[i] = average;
        }
    }
    if (query >= p.queries) return;
    for (int i = 0; i < OWN(WIDTH); i++)
        if (lane + i * LANES < WIDTH)
            ((E *)p.out)[out_row(p, b, h, query) + lane + i * LANES] = narrow(sum == 0 ? (W)0 : made[i] / sum);
    if (lane == 0) ((W *)p.rest)[(b * p.heads + h) * p.queries + query] = sum == 0 ? MOST : top + LOG(sum);
}
"""

_DELTA = """
// How far each average points along its gradient; a warp for each.
extern "C" __global__ void __launch_bounds__(THREADS) attention_delta(const Params p) {
    long long at = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (at >= p.samples * p.heads * p.queries) return;
    long long t = at % p.queries, h = at / p.queries % p.heads, b = at / p.queries / p.heads;
    const E *g = (const E *)p.grad + grad_row(p, b, h, t), *o = (const E *)p.out + out_row(p, b, h, t);
    W sum = 0;
    for (int c = threadIdx.x & 31; c < WIDTH; c += 32) sum = fma(widen(g[c]), widen(o[c]), sum);
    for (int by = 16; by; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
    if ((threadIdx.x & 31) == 0) ((W *)p.scratch)[at] = sum;
}
"""

# The weights of a tile, and what flows back into their scores: for query `row` and every eighth key from `lane` on.
_AGAIN = """
__device__ __forceinline__ void again(const Params &p, const W *q, const W *k, const W *g, const W *v, W rest, W delta,
                                      long long b, long long h, long long query, long long first, W *weight, W *back) {
    int row = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    W scale = (W)scale_of(p);
    for (int j = 0; j < EACH; j++) {
        int n = lane + j * LANES;
        bool counts = query < p.queries && first + n < p.keys && (!CAUSAL || first + n <= query);
        weight[j] = 0;
        if (counts)
            weight[j] = EXP(masked(p, dot(q + row * (SIZE + 1), k + n * (SIZE + 1), SIZE) * scale, 1, b, h, query,
                                   first + n) - rest);
        back[j] = counts ? weight[j] * (dot(g + row * (WIDTH + 1), v + n * (WIDTH + 1), WIDTH) - delta) * scale : (W)0;
    }
}
"""

_KEYS = _AGAIN + """
extern "C" __global__ void __launch_bounds__(THREADS) attention_keys(const Params p) {
    extern __shared__ double held[];
    W *q = (W *)held, *k = q + TILE * (SIZE + 1), *v = k + TILE * (SIZE + 1), *g = v + TILE * (WIDTH + 1);
    W *weights = g + TILE * (WIDTH + 1), *backs = weights + TILE * (TILE + 1);
    long long tiles = (p.keys + TILE - 1) / TILE, first = blockIdx.x % tiles * TILE, shared = p.heads / p.groups;
    long long kv = blockIdx.x / tiles % shared, b = blockIdx.x / tiles / shared;
    int row = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    W dk[OWN(SIZE)], dv[OWN(WIDTH)];
    for (int i = 0; i < OWN(SIZE); i++) dk[i] = 0;
    for (int i = 0; i < OWN(WIDTH); i++) dv[i] = 0;
    fetch(k, (const E *)p.k, k_row(p, b, kv, first), p.k_t, p.keys - first, SIZE);
    fetch(v, (const E *)p.v, v_row(p, b, kv, first), p.v_t, p.keys - first, WIDTH);
    for (long long h = kv * p.groups; h < (kv + 1) * p.groups; h++)
        for (long long start = CAUSAL ? first : 0; start < p.queries; start += TILE) {
            __syncthreads();
            fetch(q, (const E *)p.q, q_row(p, b, h, start), p.q_t, p.queries - start, SIZE);
            fetch(g, (const E *)p.grad, grad_row(p, b, h, start), p.grad_t, p.queries - start, WIDTH);
            __syncthreads();
            long long query = start + row, at = (b * p.heads + h) * p.queries + query;
            bool inside = query < p.queries;
            W weight[EACH], back[EACH];
            again(p, q, k, g, v, inside ? ((const W *)p.rest)[at] : (W)0, inside ? ((const W *)p.scratch)[at] : (W)0,
                  b, h, query, first, weight, back);
            for (int j = 0; j < EACH; j++) {
                weights[row * (TILE + 1) + lane + j * LANES] = weight[j];
                backs[row * (TILE + 1) + lane + j * LANES] = back[j];
            }
            __syncthreads();
            for (int i = 0; i < OWN(WIDTH); i++)
                for (int m = 0; m < TILE && lane + i * LANES < WIDTH; m++)
                    dv[i] = fma(weights[m * (TILE + 1) + row], g[m * (WIDTH + 1) + lane + i * LANES], dv[i]);
            for (int i = 0; i < OWN(SIZE); i++)
                for (int m = 0; m < TILE && lane + i * LANES < SIZE; m++)
                    dk[i] = fma(backs[m * (TILE + 1) + row], q[m * (SIZE + 1) + lane + i * LANES], dk[i]);
        }
    if (first + row >= p.keys) return;
    for (int i = 0; i < OWN(SIZE); i++)
        if (lane + i * LANES < SIZE) ((E *)p.dk)[dk_row(p, b, kv, first + row) + lane + i * LANES] = narrow(dk[i]);
    for (int i = 0; i < OWN(WIDTH); i++)
        if (lane + i * LANES < WIDTH) ((E *)p.dv)[dv_row(p, b, kv, first + row) + lane + i * LANES] = narrow(dv[i]);
}
"""

_QUERIES = _AGAIN + """
extern "C" __global__ void __launch_bounds__(THREADS) attention_queries(const Params p) {
    extern __shared__ double held[];
    W *q = (W *)held, *k = q + TILE * (SIZE + 1), *v = k + TILE * (SIZE + 1), *g = v + TILE * (WIDTH + 1);
    W *backs = g + TILE * (WIDTH + 1);
    long long tiles = (p.queries + TILE - 1) / TILE, start = blockIdx.x % tiles * TILE;
    long long h = blockIdx.x / tiles % p.heads, b = blockIdx.x / tiles / p.heads;
    int row = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    long long query = start + row, at = (b * p.heads + h) * p.queries + query;
    bool inside = query < p.queries;
    W dq[OWN(SIZE)], rest = inside ? ((const W *)p.rest)[at] : (W)0, delta = inside ? ((const W *)p.scratch)[at] : (W)0;
    for (int i = 0; i < OWN(SIZE); i++) dq[i] = 0;
    fetch(q, (const E *)p.q, q_row(p, b, h, start), p.q_t, p.queries - start, SIZE);
    fetch(g, (const E *)p.grad, grad_row(p, b, h, start), p.grad_t, p.queries - start, WIDTH);
    long long end = CAUSAL && start + TILE < p.keys ? start + TILE : p.keys;
    for (long long first = 0; first < end; first += TILE) {
        __syncthreads();
        fetch(k, (const E *)p.k, k_row(p, b, h / p.groups, first), p.k_t, p.keys - first, SIZE);
        fetch(v, (const E *)p.v, v_row(p, b, h / p.groups, first), p.v_t, p.keys - first, WIDTH);
        __syncthreads();
        W weight[EACH], back[EACH];
        again(p, q, k, g, v, rest, delta, b, h, query, first, weight, back);
        for (int j = 0; j < EACH; j++) backs[row * (TILE + 1) + lane + j * LANES] = back[j];
        __syncwarp();
        for (int i = 0; i < OWN(SIZE); i++)
            for (int n = 0; n < TILE && lane + i * LANES < SIZE; n++)
                dq[i] = fma(backs[row * (TILE + 1) + n], k[n * (SIZE + 1) + lane + i * LANES], dq[i]);
    }
    if (!inside) return;
    for (int i = 0; i < OWN(SIZE); i++)
        if (lane + i * LANES < SIZE) ((E *)p.dq)[dq_row(p, b, h, query) + lane + i * LANES] = narrow(dq[i]);
}
"""
