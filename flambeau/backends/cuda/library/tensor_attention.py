"""Attention of 16-bit floats by tensor cores: products of 16 × 16 by 16 × 8 tiles, `mma.sync`, on sm_80 and later.

A block has four warps, each of which owns 16 rows: of queries, or of keys in the kernel for their gradients. What they
go over comes into shared memory by asynchronous copies, the next tile while one is computed with. Scores stay in the
registers where the tensor cores leave them, which is where the next product wants them as its left factor. Weights are
rounded to 16 bits for that; sums are in float32.

NVRTC sees the instructions; the C++ of the tests sees what they mean, lane by lane (under `#else`).
"""
from ..calls import LaunchCall
from . import elements

ROWS_OF_A_WARP, TENSOR_WARPS = 16, 4
OWNED = ROWS_OF_A_WARP * TENSOR_WARPS        # rows that a block owns
TENSOR_THREADS = 32 * TENSOR_WARPS
FORWARD_STEP, BACKWARD_STEP = 64, 32         # rows that it goes over at a time
MAX_TENSOR_FEATURES = 128
PAD = 8                                      # elements behind a row in shared memory, so that rows start in other banks


def forward(dtype, laid, causal, mask, properties, ints):
    """A LaunchCall; None where tensor cores do not take it."""
    if not _fits(dtype, laid, properties):
        return None
    samples, heads, queries, size = laid["q"][0]
    blocks = samples * heads * -(-queries // OWNED)
    shared = _row_bytes(size) * (OWNED + 4 * FORWARD_STEP)
    return LaunchCall(_source(_FORWARD_TEXT, dtype, size, causal, mask, ("q", "k", "v", "out"), FORWARD_STEP),
                      "attention_forward", (blocks, 1, 1), (TENSOR_THREADS, 1, 1), shared, ints)


def backward(dtype, laid, causal, mask, properties, ints, scratch):
    """LaunchCalls for the gradients of keys and values, and of queries; None where tensor cores do not take them."""
    if not _fits(dtype, laid, properties):
        return None
    (samples, heads, queries, size), (_, shared, keys, _) = laid["q"][0], laid["k"][0]
    names = ("grad", "q", "k", "v", "out", "dq", "dk", "dv")
    nbytes = _row_bytes(size) * (2 * OWNED + 4 * BACKWARD_STEP) + 16 * BACKWARD_STEP
    return [LaunchCall(_source(text, dtype, size, causal, mask, names, BACKWARD_STEP), f"attention_{part}",
                       (blocks, 1, 1), (TENSOR_THREADS, 1, 1), nbytes, ints, scratch)
            for text, part, blocks in ((_KEYS_TEXT, "keys", samples * shared * -(-keys // OWNED)),
                                       (_QUERIES_TEXT, "queries", samples * heads * -(-queries // OWNED)))]


def _fits(dtype, laid, properties):
    size, width = laid["q"][0][3], laid["v"][0][3]
    return dtype.name in ("float16", "bfloat16") and size == width and 8 <= size <= MAX_TENSOR_FEATURES \
        and properties.major >= 8


def _row_bytes(size):
    """Of a row in shared memory: a whole number of 16 features, and the pad."""
    return 2 * (-(-size // 16) * 16 + PAD)


def opening(dtype, names, mask, extra=()):
    """What all kernels of attention begin with: elements, Params, where a row of an operand starts, and a score with
    what the mask says of it (times `factor`, if it is a number)."""
    room = [] if mask is None else ["mask"]
    addresses = ["q", "k", "v", *room, "out", "rest"] if "grad" not in names else \
        ["grad", "q", "k", "v", "out", "rest", *room, "dq", "dk", "dv", "scratch"]
    ints = ["heads", "groups", "queries", "keys", *[f"{name}_{by}" for name in names for by in ("b", "h", "t")],
            *[f"mask_{by}" for by in "bhqk" if room], "scale", *extra]
    element = "unsigned char" if mask == "bool" else "E"
    value = f"((const {element} *)p.mask)[b * p.mask_b + h * p.mask_h + query * p.mask_q + key * p.mask_k]"
    says = {None: "score", "bool": f"{value} ? score : LEAST", "float": f"score + widen({value}) * factor"}[mask]
    lines = [f"__device__ __forceinline__ long long {name}_row(const Params &p, long long b, long long h, long long t) "
             f"{{ return b * p.{name}_b + h * p.{name}_h + t * p.{name}_t; }}" for name in names]
    return elements.opening(dtype) + elements.params(addresses, ints) + "\n".join(lines) + f"""
#undef MASKED
#define MASKED {int(mask is not None)}
__device__ __forceinline__ double scale_of(const Params &p) {{ return __longlong_as_double(p.scale); }}
__device__ __forceinline__ W masked(const Params &p, W score, W factor, long long b, long long h, long long query,
                                    long long key) {{
    return {says};
}}
"""


def _source(text, dtype, size, causal, mask, names, step):
    element = "bf16" if dtype.name == "bfloat16" else "f16"
    aligned = " && ".join([f"((p.{name} & 15) | ((p.{name}_b | p.{name}_h | p.{name}_t) & 7)) == 0"
                           for name in names if name in ("q", "k", "v", "grad")])
    return opening(dtype, names, mask) + (_TENSOR_COMMON + text).replace("KIND", element).replace("SIZE", str(size)) \
        .replace("PADDED", str(-(-size // 16) * 16)).replace("PAD", str(PAD)).replace("CAUSAL", str(int(causal))) \
        .replace("STEP", str(step)).replace("OWNED", str(OWNED)).replace("THREADS", str(TENSOR_THREADS)) \
        .replace("ALIGNED", f"SIZE % 8 == 0 && {aligned}".replace("SIZE", str(size)))


_TENSOR_COMMON = """
#undef LD
#undef FEATURES
#define LD (PADDED + PAD)
#define FEATURES (PADDED / 16)
typedef unsigned R;                                         // two elements

__device__ __forceinline__ R pair(float low, float high) {
#ifdef __CUDACC_RTC__
    R made;
    asm("cvt.rn.KINDx2.f32 %0, %1, %2;" : "=r"(made) : "f"(high), "f"(low));
    return made;
#else
    return (R)narrow(low) | (R)narrow(high) << 16;
#endif
}

// d += a b: 16 x 16 by 16 x 8. Of lane 4 g + t, d holds (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
__device__ __forceinline__ void multiply(float *d, const R *a, R b0, R b1) {
#ifdef __CUDACC_RTC__
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.KIND.KIND.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    int g = (threadIdx.x & 31) / 4, t = threadIdx.x & 3;
    for (int s = 0; s < 4; s++)
        for (int half = 0; half < 2; half++) {
            R upper = __shfl_sync(0xffffffffu, a[2 * half], 4 * g + s);
            R lower = __shfl_sync(0xffffffffu, a[2 * half + 1], 4 * g + s);
            R left = __shfl_sync(0xffffffffu, half ? b1 : b0, 8 * t + s);
            R right = __shfl_sync(0xffffffffu, half ? b1 : b0, 8 * t + 4 + s);
            for (int e = 0; e < 32; e += 16) {
                d[0] += widen((E)(upper >> e)) * widen((E)(left >> e));
                d[1] += widen((E)(upper >> e)) * widen((E)(right >> e));
                d[2] += widen((E)(lower >> e)) * widen((E)(left >> e));
                d[3] += widen((E)(lower >> e)) * widen((E)(right >> e));
            }
        }
#endif
}

__device__ __forceinline__ R both(const E *first, const E *second) { return (R)*first | (R)*second << 16; }

// Four 8 x 8 matrices: the left factor of 16 rows from `at` on.
__device__ __forceinline__ void left_factor(R *a, const E *at) {
    int lane = threadIdx.x & 31;
#ifdef __CUDACC_RTC__
    unsigned from = (unsigned)__cvta_generic_to_shared(at + (lane & 15) * LD + (lane >> 4) * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(from));
#else
    const E *e = at + lane / 4 * LD + (lane & 3) * 2;
    a[0] = both(e, e + 1), a[1] = both(e + 8 * LD, e + 8 * LD + 1);
    a[2] = both(e + 8, e + 9), a[3] = both(e + 8 * LD + 8, e + 8 * LD + 9);
#endif
}

// The right factors of two products, 16 x 8 each, of 16 rows in shared memory that are its columns ...
__device__ __forceinline__ void right_factors(R *b, const E *at) {
    int lane = threadIdx.x & 31;
#ifdef __CUDACC_RTC__
    unsigned from = (unsigned)__cvta_generic_to_shared(at + ((lane & 7) + (lane >> 4) * 8) * LD + (lane >> 3 & 1) * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3]) : "r"(from));
#else
    const E *e = at + lane / 4 * LD + (lane & 3) * 2;
    b[0] = both(e, e + 1), b[1] = both(e + 8, e + 9);
    b[2] = both(e + 8 * LD, e + 8 * LD + 1), b[3] = both(e + 8 * LD + 8, e + 8 * LD + 9);
#endif
}

// ... or that are its rows.
__device__ __forceinline__ void right_factors_turned(R *b, const E *at) {
    int lane = threadIdx.x & 31;
#ifdef __CUDACC_RTC__
    unsigned from = (unsigned)__cvta_generic_to_shared(at + (lane & 15) * LD + (lane >> 4) * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3]) : "r"(from));
#else
    const E *e = at + (lane & 3) * 2 * LD + lane / 4;
    b[0] = both(e, e + LD), b[1] = both(e + 8 * LD, e + 9 * LD);
    b[2] = both(e + 8, e + LD + 8), b[3] = both(e + 8 * LD + 8, e + 9 * LD + 8);
#endif
}

__device__ __forceinline__ void copied_so_far() {           // ends a group of copies
#ifdef __CUDACC_RTC__
    asm volatile("cp.async.commit_group;");
#endif
}

__device__ __forceinline__ void wait_for_all_but_the_last() {
#ifdef __CUDACC_RTC__
    asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_all() {
#ifdef __CUDACC_RTC__
    asm volatile("cp.async.wait_group 0;" ::: "memory");
#endif
}

// Copies `count` rows, of which `rows` are there, into shared memory; zeros for the rest.
__device__ __forceinline__ void fetch(E *to, const E *from, long long step, long long rows, int count, bool aligned) {
    for (int at = threadIdx.x; at < count * (PADDED / 8); at += THREADS) {
        int r = at / (PADDED / 8), c = at % (PADDED / 8) * 8;
        bool there = r < rows && c < SIZE;
        E *place = to + r * LD + c;
        const E *source = from + (there ? r * step + c : 0);
        if (aligned) {
#ifdef __CUDACC_RTC__
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                         :: "r"((unsigned)__cvta_generic_to_shared(place)), "l"(source), "r"(there ? 16 : 0)
                         : "memory");
#else
            for (int e = 0; e < 8; e++) place[e] = there ? source[e] : (E)0;
#endif
        } else
            for (int e = 0; e < 8; e++) place[e] = there && c + e < SIZE ? source[e] : (E)0;
    }
}

__device__ __forceinline__ float over_quad_max(float x) {   // of the four lanes that hold a row
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ __forceinline__ float over_quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

__device__ __forceinline__ float power_of_two(float x) {
#ifdef __CUDACC_RTC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

// Products of 16 rows, in registers or at `left`, with STEP rows at `right`.
__device__ __forceinline__ void scores_of(float (*made)[4], R (*held)[4], const E *left, const E *right) {
#pragma unroll
    for (int n = 0; n < STEP / 8; n++) made[n][0] = made[n][1] = made[n][2] = made[n][3] = 0;
#pragma unroll
    for (int k = 0; k < FEATURES; k++) {
        R own[4], b[4], *a = held ? held[k] : own;
        if (!held) left_factor(own, left + k * 16);
#pragma unroll
        for (int n = 0; n < STEP / 16; n++) {
            right_factors(b, right + n * 16 * LD + k * 16);
            multiply(made[2 * n], a, b[0], b[1]);
            multiply(made[2 * n + 1], a, b[2], b[3]);
        }
    }
}

__device__ __forceinline__ void hold(R (*held)[4], const E *left) {       // 16 rows, in registers
#pragma unroll
    for (int k = 0; k < FEATURES; k++) left_factor(held[k], left + k * 16);
}

// sums += weights (16 x STEP, in registers as scores_of left them) times STEP rows at `right`.
__device__ __forceinline__ void add_weighted(float (*sums)[4], float (*weights)[4], const E *right) {
#pragma unroll
    for (int k = 0; k < STEP / 16; k++) {
        const float *one = weights[2 * k], *two = weights[2 * k + 1];
        R a[4] = {pair(one[0], one[1]), pair(one[2], one[3]), pair(two[0], two[1]), pair(two[2], two[3])};
#pragma unroll
        for (int n = 0; n < FEATURES; n++) {
            R b[4];
            right_factors_turned(b, right + k * 16 * LD + n * 16);
            multiply(sums[2 * n], a, b[0], b[1]);
            multiply(sums[2 * n + 1], a, b[2], b[3]);
        }
    }
}

// Writes the features of a row that this lane holds: `half` 0 for row g, 1 for row g + 8.
__device__ __forceinline__ void write_row(E *row, float (*sums)[4], int half, float factor) {
    int t = threadIdx.x & 3;
#pragma unroll
    for (int n = 0; n < 2 * FEATURES; n++)
        for (int e = 0; e < 2; e++)
            if (n * 8 + 2 * t + e < SIZE) row[n * 8 + 2 * t + e] = narrow(sums[n][2 * half + e] * factor);
}
"""

_FORWARD_TEXT = """
extern "C" __global__ void __launch_bounds__(THREADS) attention_forward(const Params p) {
    extern __shared__ __align__(16) unsigned short held[];
    E *q = held, *k = q + OWNED * LD, *v = k + 2 * STEP * LD;
    long long tiles = (p.queries + OWNED - 1) / OWNED, start = (tiles - 1 - blockIdx.x % tiles) * OWNED;
    long long h = blockIdx.x / tiles % p.heads, b = blockIdx.x / tiles / p.heads, kv = h / p.groups;
    bool aligned = ALIGNED;
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane / 4, t = lane & 3;
    long long end = CAUSAL && start + OWNED < p.keys ? start + OWNED : p.keys;
    int steps = (int)((end + STEP - 1) / STEP);
    float scale = (float)(scale_of(p) * 1.4426950408889634);             // powers of two instead of e
    float made[2 * FEATURES][4], top[2] = {LEAST, LEAST}, sum[2] = {0, 0};
    R own[FEATURES][4];
    for (int n = 0; n < 2 * FEATURES; n++) made[n][0] = made[n][1] = made[n][2] = made[n][3] = 0;
    fetch(q, (const E *)p.q + q_row(p, b, h, start), p.q_t, p.queries - start, OWNED, aligned);
    fetch(k, (const E *)p.k + k_row(p, b, kv, 0), p.k_t, p.keys, STEP, aligned);
    fetch(v, (const E *)p.v + v_row(p, b, kv, 0), p.v_t, p.keys, STEP, aligned);
    copied_so_far();
    for (int step = 0; step < steps; step++) {
        long long first = (long long)step * STEP, next = first + STEP;
        int now = step & 1;
        if (step + 1 < steps) {
            int to = (1 - now) * STEP * LD;
            fetch(k + to, (const E *)p.k + k_row(p, b, kv, next), p.k_t, p.keys - next, STEP, aligned);
            fetch(v + to, (const E *)p.v + v_row(p, b, kv, next), p.v_t, p.keys - next, STEP, aligned);
            copied_so_far();
            wait_for_all_but_the_last();
        } else wait_for_all();
        __syncthreads();
        if (step == 0) hold(own, q + warp * 16 * LD);
        float scores[STEP / 8][4];
        scores_of(scores, own, 0, k + now * STEP * LD);
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
            for (int e = 0; e < 4; e++) scores[n][e] *= scale;
        if (MASKED || next > p.keys || (CAUSAL && next > start + warp * 16 + 1)) {
            int keys = (int)(p.keys - first), ahead = (int)(start - first) + warp * 16 + g;
#pragma unroll
            for (int n = 0; n < STEP / 8; n++)
                for (int e = 0; e < 4; e++) {
                    int key = n * 8 + 2 * t + (e & 1);
                    long long query = start + warp * 16 + g + (e >> 1) * 8;
                    if (key >= keys || (CAUSAL && key > ahead + (e >> 1) * 8)) scores[n][e] = LEAST;
                    else if (MASKED && query < p.queries)
                        scores[n][e] = masked(p, scores[n][e], 1.4426950408889634f, b, h, query, first + key);
                }
        }
        float most[2] = {top[0], top[1]};
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
            for (int e = 0; e < 4; e++) most[e >> 1] = fmaxf(most[e >> 1], scores[n][e]);
        for (int r = 0; r < 2; r++) {
            most[r] = over_quad_max(most[r]);
            float base = most[r] == LEAST ? 0 : most[r], back = power_of_two(top[r] - base);
            sum[r] *= back;
            top[r] = most[r];
#pragma unroll
            for (int n = 0; n < 2 * FEATURES; n++) made[n][2 * r] *= back, made[n][2 * r + 1] *= back;
#pragma unroll
            for (int n = 0; n < STEP / 8; n++)
                for (int e = 2 * r; e < 2 * r + 2; e++) {
                    scores[n][e] = power_of_two(scores[n][e] - base);
                    sum[r] += scores[n][e];
                }
        }
        add_weighted(made, scores, v + now * STEP * LD);
        __syncthreads();
    }
    for (int r = 0; r < 2; r++) {
        long long query = start + warp * 16 + g + r * 8;
        float whole = over_quad_sum(sum[r]);
        if (query >= p.queries) continue;
        write_row((E *)p.out + out_row(p, b, h, query), made, r, whole == 0 ? 0 : 1 / whole);
        if (t == 0)
            ((float *)p.rest)[(b * p.heads + h) * p.queries + query] =
                whole == 0 ? MOST : (top[r] + log2f(whole)) * 0.6931471805599453f;
    }
}
"""

_KEYS_TEXT = """
extern "C" __global__ void __launch_bounds__(THREADS) attention_keys(const Params p) {
    extern __shared__ __align__(16) unsigned short held[];
    E *k = held, *v = k + OWNED * LD, *q = v + OWNED * LD, *grad = q + 2 * STEP * LD;
    float *rests = (float *)(grad + 2 * STEP * LD), *deltas = rests + 2 * STEP;
    long long tiles = (p.keys + OWNED - 1) / OWNED, first = blockIdx.x % tiles * OWNED, shared = p.heads / p.groups;
    long long kv = blockIdx.x / tiles % shared, b = blockIdx.x / tiles / shared;
    bool aligned = ALIGNED;
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane / 4, t = lane & 3;
    long long begin = CAUSAL ? first / STEP : 0, each = (p.queries + STEP - 1) / STEP - begin;
    long long steps = each > 0 ? each * p.groups : 0;
    float plain = (float)scale_of(p), scale = (float)(scale_of(p) * 1.4426950408889634);
    float dk[2 * FEATURES][4], dv[2 * FEATURES][4];
    for (int n = 0; n < 2 * FEATURES; n++)
        for (int e = 0; e < 4; e++) dk[n][e] = dv[n][e] = 0;
    fetch(k, (const E *)p.k + k_row(p, b, kv, first), p.k_t, p.keys - first, OWNED, aligned);
    fetch(v, (const E *)p.v + v_row(p, b, kv, first), p.v_t, p.keys - first, OWNED, aligned);
    copied_so_far();
    for (long long step = -1; step < steps; step++) {
        if (step + 1 < steps) {                             // what comes next is on its way while this is computed
            int to = (step + 1) & 1;
            long long h = kv * p.groups + (step + 1) / each, start = (begin + (step + 1) % each) * STEP;
            long long rows = p.queries - start;
            fetch(q + to * STEP * LD, (const E *)p.q + q_row(p, b, h, start), p.q_t, rows, STEP, aligned);
            fetch(grad + to * STEP * LD, (const E *)p.grad + grad_row(p, b, h, start), p.grad_t, rows, STEP, aligned);
            for (int at = threadIdx.x; at < STEP; at += THREADS) {
                long long place = (b * p.heads + h) * p.queries + start + at;
                bool there = start + at < p.queries;
                rests[to * STEP + at] = there ? ((const float *)p.rest)[place] * 1.4426950408889634f : 0;
                deltas[to * STEP + at] = there ? ((const float *)p.scratch)[place] : 0;
            }
            copied_so_far();
        }
        if (step < 0) continue;
        if (step + 1 < steps) wait_for_all_but_the_last(); else wait_for_all();
        __syncthreads();
        int now = step & 1;
        long long start = (begin + step % each) * STEP;
        float weights[STEP / 8][4], backs[STEP / 8][4];
        scores_of(weights, 0, k + warp * 16 * LD, q + now * STEP * LD);
        scores_of(backs, 0, v + warp * 16 * LD, grad + now * STEP * LD);
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
            for (int e = 0; e < 4; e++) {
                int at = n * 8 + 2 * t + (e & 1);
                float score = weights[n][e] * scale;
                if (MASKED) {
                    long long query = start + at, key = first + warp * 16 + g + (e >> 1) * 8;
                    if (query < p.queries && key < p.keys)
                        score = masked(p, score, 1.4426950408889634f, b, kv * p.groups + step / each, query, key);
                }
                weights[n][e] = power_of_two(score - rests[now * STEP + at]);
            }
        if (start + STEP > p.queries || first + OWNED > p.keys || (CAUSAL && first + warp * 16 + 15 > start)) {
            int queries = (int)(p.queries - start), keys = (int)(p.keys - first), behind = (int)(first - start);
#pragma unroll
            for (int n = 0; n < STEP / 8; n++)
                for (int e = 0; e < 4; e++) {
                    int query = n * 8 + 2 * t + (e & 1), key = warp * 16 + g + (e >> 1) * 8;
                    if (query >= queries || key >= keys || (CAUSAL && key + behind > query)) weights[n][e] = 0;
                }
        }
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
            for (int e = 0; e < 4; e++)
                backs[n][e] = weights[n][e] * (backs[n][e] - deltas[now * STEP + n * 8 + 2 * t + (e & 1)]) * plain;
        add_weighted(dv, weights, grad + now * STEP * LD);
        add_weighted(dk, backs, q + now * STEP * LD);
        __syncthreads();
    }
    for (int r = 0; r < 2; r++) {
        long long key = first + warp * 16 + g + r * 8;
        if (key >= p.keys) continue;
        write_row((E *)p.dk + dk_row(p, b, kv, key), dk, r, 1);
        write_row((E *)p.dv + dv_row(p, b, kv, key), dv, r, 1);
    }
}
"""

_QUERIES_TEXT = """
extern "C" __global__ void __launch_bounds__(THREADS) attention_queries(const Params p) {
    extern __shared__ __align__(16) unsigned short held[];
    E *q = held, *grad = q + OWNED * LD, *k = grad + OWNED * LD, *v = k + 2 * STEP * LD;
    long long tiles = (p.queries + OWNED - 1) / OWNED, start = (tiles - 1 - blockIdx.x % tiles) * OWNED;
    long long h = blockIdx.x / tiles % p.heads, b = blockIdx.x / tiles / p.heads, kv = h / p.groups;
    bool aligned = ALIGNED;
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane / 4, t = lane & 3;
    long long end = CAUSAL && start + OWNED < p.keys ? start + OWNED : p.keys;
    int steps = (int)((end + STEP - 1) / STEP);
    float plain = (float)scale_of(p), scale = (float)(scale_of(p) * 1.4426950408889634), rest[2], delta[2];
    float dq[2 * FEATURES][4];
    R own[FEATURES][4], slopes[FEATURES][4];
    for (int n = 0; n < 2 * FEATURES; n++) dq[n][0] = dq[n][1] = dq[n][2] = dq[n][3] = 0;
    for (int r = 0; r < 2; r++) {
        long long query = start + warp * 16 + g + r * 8, place = (b * p.heads + h) * p.queries + query;
        rest[r] = query < p.queries ? ((const float *)p.rest)[place] * 1.4426950408889634f : 0;
        delta[r] = query < p.queries ? ((const float *)p.scratch)[place] : 0;
    }
    fetch(q, (const E *)p.q + q_row(p, b, h, start), p.q_t, p.queries - start, OWNED, aligned);
    fetch(grad, (const E *)p.grad + grad_row(p, b, h, start), p.grad_t, p.queries - start, OWNED, aligned);
    fetch(k, (const E *)p.k + k_row(p, b, kv, 0), p.k_t, p.keys, STEP, aligned);
    fetch(v, (const E *)p.v + v_row(p, b, kv, 0), p.v_t, p.keys, STEP, aligned);
    copied_so_far();
    for (int step = 0; step < steps; step++) {
        long long first = (long long)step * STEP, next = first + STEP;
        int now = step & 1;
        if (step + 1 < steps) {
            int to = (1 - now) * STEP * LD;
            fetch(k + to, (const E *)p.k + k_row(p, b, kv, next), p.k_t, p.keys - next, STEP, aligned);
            fetch(v + to, (const E *)p.v + v_row(p, b, kv, next), p.v_t, p.keys - next, STEP, aligned);
            copied_so_far();
            wait_for_all_but_the_last();
        } else wait_for_all();
        __syncthreads();
        if (step == 0) {
            hold(own, q + warp * 16 * LD);
            hold(slopes, grad + warp * 16 * LD);
        }
        float weights[STEP / 8][4], backs[STEP / 8][4];
        scores_of(weights, own, 0, k + now * STEP * LD);
        scores_of(backs, slopes, 0, v + now * STEP * LD);
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
            for (int e = 0; e < 4; e++) {
                float score = weights[n][e] * scale;
                if (MASKED) {
                    long long key = first + n * 8 + 2 * t + (e & 1), query = start + warp * 16 + g + (e >> 1) * 8;
                    if (query < p.queries && key < p.keys)
                        score = masked(p, score, 1.4426950408889634f, b, h, query, key);
                }
                weights[n][e] = power_of_two(score - rest[e >> 1]);
            }
        if (next > p.keys || start + OWNED > p.queries || (CAUSAL && next > start + warp * 16 + 1)) {
            int keys = (int)(p.keys - first), queries = (int)(p.queries - start), behind = (int)(start - first);
#pragma unroll
            for (int n = 0; n < STEP / 8; n++)
                for (int e = 0; e < 4; e++) {
                    int key = n * 8 + 2 * t + (e & 1), query = warp * 16 + g + (e >> 1) * 8;
                    if (key >= keys || query >= queries || (CAUSAL && key > query + behind)) weights[n][e] = 0;
                }
        }
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
            for (int e = 0; e < 4; e++) backs[n][e] = weights[n][e] * (backs[n][e] - delta[e >> 1]) * plain;
        add_weighted(dq, backs, k + now * STEP * LD);
        __syncthreads();
    }
    for (int r = 0; r < 2; r++) {
        long long query = start + warp * 16 + g + r * 8;
        if (query < p.queries) write_row((E *)p.dq + dq_row(p, b, h, query), dq, r, 1);
    }
}
"""
