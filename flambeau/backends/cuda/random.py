"""Draw PyTorch's own random numbers on a GPU: Philox 4x32-10, as cuRAND and PyTorch's CUDA kernels go through it.

A stream is a seed and an offset, which is how many words every thread has drawn so far. Philox gives four words of 32
bits for a key (the seed) and a counter: offset / 4 in its lower half, the number of the thread in its upper half. There
is no state on the device, so a draw is one launch, and what it gives follows from seed, offset and count alone.

Note [Threads]: which thread draws which element is part of PyTorch's numbers, and depends on the GPU. It takes blocks
of 256 threads, as many as there are elements for, but no more than the GPU can hold at once (multiprocessors times
the blocks that fit on one): `threads` in all. Thread t draws four words at a time (or two numbers of 64 bits) and
puts them down at t, t + threads, t + 2 threads and t + 3 threads, and goes on 4 threads further; the offset moves on
by 4 for each such turn. So our kernels are launched over the same grid.

What a word becomes, see `RULES`. Where PyTorch uses the approximate functions of the hardware (`__logf`), so do we; it
is compiled with a multiplication and an addition as one operation where they meet, ours are not, so these are spelt
out.

Equal to PyTorch's bit for bit: uniform, normal, integers, bernoulli, exponential, cauchy, log_normal, geometric, gamma,
Dirichlet and binomial numbers, Poisson numbers of rates below 64, dropout's mask, permutations, and multinomial without
replacement or of one sample. Poisson numbers of larger rates follow their distribution, with others than PyTorch's; and
multinomial with replacement is PyTorch's but where a sum that is rounded otherwise moves a boundary.
"""
import math
import struct
from functools import cache, lru_cache

import numpy as np

from ...base import dtypes
from ...base.locks import new_lock
from ...base.spec import spec
from ..cpu.random.draws import REAL_DTYPE, SIGNIFICAND_BITS, RandomStream, largest, need, representable, rounded
from .calls import LaunchCall
from .single_launch import launch

BLOCK_THREADS = 256
PHILOX_STATE_BYTES = 16                  # the seed and the offset, as torch.cuda.get_rng_state() has them
LARGEST_32_BIT_OFFSET = 2**31 - 1        # in bytes: PyTorch draws what is larger in parts
PROBABILITY_OFFSET = 10                  # what a draw with a tensor of probabilities moves the offset on by, in PyTorch
POISSON_OFFSET, GAMMA_OFFSET, BINOMIAL_OFFSET = 20, 10, 42
SAMPLE_THREADS = 128                     # of a block that draws with replacement
BINOMIAL_THREADS = 128                   # of a block that draws binomial numbers
FLOATS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
C_TYPE = {"f16": "unsigned short", "bf16": "unsigned short", "f32": "float", "f64": "double", "bool": "unsigned char",
          "uint8": "unsigned char", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
          "uint16": "unsigned short", "uint32": "unsigned int", "uint64": "unsigned long long"}


# --- the text of kernels ----------------------------------------------------------------------------------------------

PHILOX = """\
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct Words { u32 x[4]; };

// Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (2011), ten rounds.
__device__ static inline Words philox(u64 seed, u64 thread, u64 turn) {
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
    u32 c0 = (u32)turn, c1 = (u32)(turn >> 32), c2 = (u32)thread, c3 = (u32)(thread >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
        c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
        c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
        c1 = (u32)p1;
        c3 = (u32)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    Words w;
    w.x[0] = c0; w.x[1] = c1; w.x[2] = c2; w.x[3] = c3;
    return w;
}

// Uniform over (0, 1]: the middles of 2**32 and 2**53 equal parts.
__device__ static inline float unit32(u32 x) { return __fmaf_rn((float)x, 0x1p-32f, 0x1p-33f); }
__device__ static inline double unit64(u32 x, u32 y) {
    return __fma_rn((double)((u64)x ^ ((u64)y << 21)), 0x1p-53, 0x1p-54);
}

// Box and Muller: two normal numbers; the angle's sine comes first.
__device__ static inline void normal32(u32 x, u32 y, float *out) {
    const float radius = sqrtf(-2.0f * logf(unit32(x)));
    const float angle = __fmaf_rn((float)y, 0x1.921fb6p-30f, 0x1.921fb6p-31f);
    float s, c;
    __sincosf(angle, &s, &c);
    out[0] = s * radius;
    out[1] = c * radius;
}
__device__ static inline void normal64(u32 x0, u32 x1, u32 y0, u32 y1, double *out) {
    const double radius = sqrt(-2.0 * log(unit64(x0, x1)));
    const double angle = __fma_rn((double)((u64)y0 ^ ((u64)y1 << 21)), 0x1p-52, 0x1p-53);
    double s, c;
    sincospi(angle, &s, &c);
    out[0] = s * radius;
    out[1] = c * radius;
}

// 16-bit floats as words, rounded to nearest, ties to even.
__device__ static inline unsigned short to_bf16(float x) {
    const u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
__device__ static inline float from_bf16(unsigned short x) { return __uint_as_float((u32)x << 16); }
__device__ static inline unsigned short to_f16(float x) {
    const u32 bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u;
    u32 size = bits & 0x7fffffffu;
    if (size >= 0x47800000u) return (unsigned short)(sign | (size > 0x7f800000u ? 0x7fffu : 0x7c00u));
    if (size < 0x38800000u) return (unsigned short)(sign | (u32)rintf(__uint_as_float(size) * 0x1p24f));
    size += 0xfffu + (size >> 13 & 1u);
    return (unsigned short)(sign | ((size - 0x38000000u) >> 13));
}
__device__ static inline float from_f16(unsigned short x) {
    const u32 size = x & 0x7fffu, sign = (u32)(x & 0x8000u) << 16;
    if (size < 0x400u) return __uint_as_float(sign | __float_as_uint((float)size * 0x1p-24f));
    return __uint_as_float(sign | ((size << 13) + (size >= 0x7c00u ? 0x70000000u : 0x38000000u)));
}
"""

# One kernel for each rule and dtype; see Note [Threads]. PER is how many numbers a turn gives.
FILL = """\
struct Params {{ u64 out; i64 n; u64 seed, offset; {fields} }};

extern "C" __global__ void draw(const Params p) {{
    const u64 threads = (u64)gridDim.x * blockDim.x, thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    {stored} *out = ({stored} *)p.out;
{before}
    u64 turn = p.offset / 4;
    for (u64 at = thread; at < (u64)p.n; at += threads * {per}, turn++) {{
        const Words w = philox(p.seed, thread, turn);
        {real} v[{per}];
        {words}
#pragma unroll
        for (int j = 0; j < {per}; j++) {{
            const {real} x = v[j];
            if (at + j * threads < (u64)p.n) {rule}
        }}
    }}
}}
"""

# What four words become: (the C type, how many, the text).
WORDS = {
    "word": ("u32", 4, "for (int j = 0; j < 4; j++) v[j] = w.x[j];"),
    "word64": ("u64", 2, "for (int j = 0; j < 2; j++) v[j] = (u64)w.x[2 * j] << 32 | w.x[2 * j + 1];"),
    "unit32": ("float", 4, "for (int j = 0; j < 4; j++) v[j] = unit32(w.x[j]);"),
    "unit64": ("double", 2, "for (int j = 0; j < 2; j++) v[j] = unit64(w.x[2 * j], w.x[2 * j + 1]);"),
    "normal32": ("float", 4, "normal32(w.x[0], w.x[1], v); normal32(w.x[2], w.x[3], v + 2);"),
    "normal64": ("double", 2, "normal64(w.x[0], w.x[1], w.x[2], w.x[3], v);"),
}

# A rule for x, one of these numbers: (what it is drawn from, fields of Params, text before the loop, its value). R is
# float or double, FMA, LOG and the like are those of R; `put(value)` stores a number of R rounded to the dtype, and
# `near(value)` rounds it and gives it back.
RULES = {
    "uniform": ("unit", "double low, high, range;", "    const R low = (R)p.low, high = (R)p.high, range = (R)p.range;",
                "{ const R value = near(FMA(x, range, low)); put(value == high ? low : value); }"),
    "normal": ("normal", "double mean, std;", "    const R mean = (R)p.mean, std = (R)p.std;",
               "put(FMA(x, std, mean));"),
    "log_normal": ("normal", "double mean, std;", "    const R mean = (R)p.mean, std = (R)p.std;",
                   "put(EXP(FMA(x, std, mean)));"),
    "bernoulli": ("unit", "double p;", "    const R chance = (R)p.p;", "put(x < chance ? (R)1 : (R)0);"),
    # a unit of 1, or nearly, would give 0, which is not in the range
    "exponential": ("unit", "double lambd;", "    const R scale = (R)-1 / (R)p.lambd;",
                    "put(scale * (x >= (R)1 - EPSILON / 2 ? -EPSILON / 2 : LOG(x)));"),
    "geometric": ("unit", "double p;", "    const R scale = LOG1P(-(R)p.p);", "put(CEIL(LOG(x) / scale));"),
    "cauchy": ("unit", "double median, sigma;", "    const R median = (R)p.median, sigma = (R)p.sigma;",
               "put(FMA(sigma, TAN(PI * (CLIPPED(x) - (R)0.5)), median));"),
}
INTEGER_RULES = {
    "word": ("u32", "u64 span; i64 base;", "(i64)(x % (u32)p.span + (u64)p.base)"),
    "word64": ("u64", "u64 span; i64 base;", "(i64)(x % p.span + (u64)p.base)"),
    "whole": ("u64", "", "(i64)x"),
    "bit": ("u32", "", "(i64)(x & 1u)"),
}
REAL_FUNCTIONS = {
    "float": """\
#define R float
#define EPSILON 0x1p-23f
#define PI 0x1.921fb6p+1f
#define FMA __fmaf_rn
#define LOG __logf
#define LOG1P(x) __logf(1.0f + (x))
#define EXP __expf
#define TAN __tanf
#define CEIL ceilf
#define CLIPPED(x) fminf(fmaxf(x, EPSILON), 1.0f - EPSILON)
""",
    "double": """\
#define R double
#define EPSILON 0x1p-52
#define PI 0x1.921fb54442d18p+1
#define FMA __fma_rn
#define LOG log
#define LOG1P log1p
#define EXP exp
#define TAN tan
#define CEIL ceil
#define CLIPPED(x) (x)
"""}
INTEGER_PUT = {"f16": "out[at + j * threads] = to_f16((float)({}));", "f64": "out[at + j * threads] = (double)({});",
               "bf16": "out[at + j * threads] = to_bf16((float)({}));"}


@cache
def name_of(dtype):
    """The kernels' name of a NumPy dtype."""
    return FLOATS.get(dtype.name, dtype.name)


@cache
def real_part(dtype):
    """The dtype of the parts of a complex one; None of any other."""
    return REAL_DTYPE.get(dtype.name)


@cache
def real_source(rule, type):
    """The text of the kernel that draws numbers of a rule into memory of a type, "f32" or "int64" for example."""
    source, fields, before, value = RULES[rule]
    real = "double" if type == "f64" else "float"
    words = source + ("64" if type == "f64" else "32")
    put, near = f"out[at + j * threads] = ({C_TYPE[type]})(value)", "(value)"
    if type in ("f16", "bf16"):
        put, near = f"out[at + j * threads] = to_{type}(value)", f"from_{type}(to_{type}(value))"
    macros = f"#define put(value) {put}\n#define near(value) {near}\n"
    _, per, made = WORDS[words]
    kernel = FILL.format(fields=fields, stored=C_TYPE[type], before=before, per=per, real=real, words=made, rule=value)
    return PHILOX + REAL_FUNCTIONS[real] + macros + kernel


@cache
def integer_source(rule, type):
    """The text of the kernel that draws integers."""
    real, fields, value = INTEGER_RULES[rule]
    _, per, made = WORDS["word64" if real == "u64" else "word"]
    put = INTEGER_PUT.get(type, f"out[at + j * threads] = ({C_TYPE[type]})({{}});").format(value)
    return PHILOX + FILL.format(fields=fields, stored=C_TYPE[type], before="", per=per, real=real, words=made, rule=put)


# Coins with a chance of their own each: thread t throws elements 4 t to 4 t + 3. PyTorch draws floats for doubles too,
# and here, and nowhere else, a number that is equal to the chance counts.
COINS = """\
struct Params {{ u64 chances, out; i64 n; u64 seed, offset; }};

extern "C" __global__ void draw(const Params p) {{
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const {chance} *chances = (const {chance} *)p.chances;
    {stored} *out = ({stored} *)p.out;
    const Words w = philox(p.seed, thread, p.offset / 4);
    for (int j = 0; j < 4; j++) {{
        const u64 at = thread * 4 + j;
        if (at < (u64)p.n) out[at] = unit32(w.x[j]) <= chances[at] ? ({stored}){one} : ({stored})0;
    }}
}}
"""
ONE = {"f16": "0x3c00", "bf16": "0x3f80"}


@cache
def coins_source(type):
    chance = "double" if type == "f64" else "float"
    return PHILOX + COINS.format(stored=C_TYPE[type], one=ONE.get(type, "1"), chance=chance)


# Dropout's mask: one where an element is kept. PyTorch's kernel reads `width` neighbours at a time where it can, and
# then they are of one thread, as many words as they need in a turn; with a width of 1 it goes as in Note [Threads].
KEEP = """\
struct Params {{ u64 out; i64 n; u64 seed, offset; double keep; }};

extern "C" __global__ void draw(const Params p) {{
    const u64 threads = (u64)gridDim.x * blockDim.x, thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned char *out = (unsigned char *)p.out;
    const {real} keep = ({real})p.keep;
    u64 turn = p.offset / 4;
{loop}
}}
"""
KEEP_LOOP = {1: """\
    for (u64 at = thread; at < (u64)p.n; at += threads * 4, turn++) {{
        const Words w = philox(p.seed, thread, turn);
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (at + j * threads < (u64)p.n) out[at + j * threads] = unit32(w.x[j]) < keep;
    }}""", 2: """\
    for (u64 at = thread * {width}; at < (u64)p.n; at += threads * {width}) {{
#pragma unroll
        for (int part = 0; part < {width}; part += 4, turn++) {{
            const Words w = philox(p.seed, thread, turn);
#pragma unroll
            for (int j = 0; j < {most}; j++) out[at + part + j] = unit32(w.x[j]) < keep;
        }}
    }}"""}


@cache
def keep_source(real, width):
    loop = KEEP_LOOP[min(width, 2)].format(width=width, most=min(width, 4))
    return PHILOX + KEEP.format(real=real, loop=loop)


# Numbers with equal sort keys stand in a row, in order: the first thread of a row shuffles it (Fisher and Yates).
SHUFFLE_EQUALS = PHILOX + """\
struct Params { u64 keys, order; i64 n; u64 seed, offset; };

extern "C" __global__ void draw(const Params p) {
    const i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 *keys = (const i64 *)p.keys;
    if (at >= p.n - 1 || keys[at] != keys[at + 1] || (at && keys[at] == keys[at - 1])) return;
    i64 count = 1;
    while (at + count < p.n && keys[at + count] == keys[at]) count++;
    i64 *order = (i64 *)p.order + at;
    u64 turn = p.offset / 4;
    Words w;
    int used = 4;
    for (i64 i = count - 1; i > 0; i--) {
        if (used == 4) { w = philox(p.seed, (u64)at, turn++); used = 0; }
        const i64 r = w.x[used++] % (u32)(i + 1);
        const i64 other = order[i];
        order[i] = order[r];
        order[r] = other;
    }
}
"""

# One unit for each sample of each row of weights: a row has so many threads, whole blocks, of its own.
SAMPLE_UNITS = PHILOX + """\
struct Params { u64 out; i64 samples, rows, row_threads, grid_rows; u64 seed, offset; };

extern "C" __global__ void draw(const Params p) {
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (u64)(p.samples * p.rows)) return;
    const u64 row = at / p.samples, sample = at % p.samples;
    const u64 thread = row % p.grid_rows * p.row_threads + sample;
    ((float *)p.out)[at] = unit32(philox(p.seed, thread, p.offset / 4 + row / p.grid_rows).x[0]);
}
"""

# Samplers that cannot say how many words they need: every element has a stream of its own, that of its thread.
STREAMS = """\
struct Stream { u64 seed, thread, turn; Words w; int used; float spare; bool has_spare; };

__device__ static inline Stream started(u64 seed, u64 thread, u64 offset) {
    Stream s;
    s.seed = seed; s.thread = thread; s.turn = offset / 4; s.used = 4; s.has_spare = false;
    return s;
}
__device__ static inline u32 word(Stream &s) {
    if (s.used == 4) { s.w = philox(s.seed, s.thread, s.turn++); s.used = 0; }
    return s.w.x[s.used++];
}
__device__ static inline real unit(Stream &s) { return unit32(word(s)); }
__device__ static inline real unit24(Stream &s) { return (word(s) & 0xffffffu) * 0x1p-24f; }       // over [0, 1)
__device__ static inline real normal(Stream &s) {
    if (s.has_spare) { s.has_spare = false; return s.spare; }
    float two[2];
    const u32 x = word(s), y = word(s);
    normal32(x, y, two);
    s.spare = two[1];
    s.has_spare = true;
    return two[0];
}

__device__ static double poisson(double rate, Stream &s) {
    if (!(rate > 0)) return rate == 0 ? 0.0 : rate - rate + __longlong_as_double(0x7ff8000000000000LL);
    if (rate < 64) {                             // Knuth: count the units whose product stays above e**-rate
        float product = expf((float)rate);
        double count = -1;
        do { count += 1; product *= unit32(word(s)); } while (product > 1.0f);
        return count;
    }
    const double b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b;         // Hoermann's PTRS (1993)
    const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), v_sure = 0.9277 - 3.6224 / (b - 2);
    for (;;) {
        const double u = unit(s) - 0.5, v = unit(s), edge = 0.5 - fabs(u);
        const double k = edge > 0 ? floor((2 * a / edge + b) * u + rate + 0.43) : -1.0;
        if (edge >= 0.07 && v <= v_sure) return k;
        if (k < 0 || (edge < 0.013 && v > edge)) continue;
        if (log(v) + log(inverse_alpha) - log(a / (edge * edge) + b) <= k * log(rate) - rate - lgamma(k + 1)) return k;
    }
}

// Marsaglia and Tsang (2000). Its constants are floats for doubles too, as in PyTorch.
__device__ static real gamma_(real alpha, Stream &s) {
    if (!(alpha > 0)) return alpha == 0 ? (real)0 : (real)__longlong_as_double(0x7ff8000000000000LL);
    real scale = 1;
    if (alpha < 1) {
        scale = pow((real)1 - unit(s), (real)1 / alpha);
        alpha += 1;
    }
    const real d = alpha - (real)(1.0f / 3.0f), c = (real)1 / sqrt((real)9 * d);
    for (;;) {
        const real x = normal(s), y = FMA(c, x, (real)1);
        if (y <= 0) continue;
        const real v = y * y * y, u = (real)1 - unit(s), xx = x * x;
        if (u < FMA(-((real)0.0331f * xx), xx, (real)1)) return scale * d * v;
        if (log(u) < FMA(d, (real)1 - v + log(v), (real)0.5 * xx)) return scale * d * v;
    }
}

__device__ static real stirling_rest(real k) {         // of log(k!), what Stirling's formula leaves out
    return lgamma((double)k + 1) - ((k + 0.5) * log((double)k + 1) - (k + 1.0) + 0.91893853320467274178);
}
__device__ static real binomial(real n, real chance, Stream &s) {                 // Hoermann's BTRS (1993), or gaps
    if (n <= 0 || chance <= 0) return 0;
    if (!(chance < 1)) return chance != chance ? chance : n;
    const real p = chance <= (real)0.5 ? chance : (real)(1.0 - chance);
    real found = 0;
    if (n * p < (real)10) {
        const real scale = log1p(-p);
        real reached = 0;
        for (;;) {
            reached += ceil(log(unit24(s)) / scale);
            if (reached > n) break;
            found += 1;
        }
    } else {
        const real spread = sqrt(n * p * (1 - p)), b = 1.15 + 2.53 * spread, a = -0.0873 + 0.0248 * b + 0.01 * p;
        const real c = n * p + 0.5, v_r = 0.92 - 4.2 / b, r = p / (1 - p), alpha = (2.83 + 5.1 / b) * spread;
        const real m = floor((n + 1) * p);
        for (;;) {
            const real u = unit24(s) - 0.5;
            real v = unit24(s);
            const real us = 0.5 - fabs(u), k = floor((2 * a / us + b) * u + c);
            if (!(k >= 0 && k <= n)) continue;
            if (us >= 0.07 && v <= v_r) { found = k; break; }
            v = log(v * alpha / (a / (us * us) + b));
            const real bound = (m + 0.5) * log((m + 1) / (r * (n - m + 1))) + (n + 1) * log((n - m + 1) / (n - k + 1))
                + (k + 0.5) * log(r * (n - k + 1) / (k + 1)) + stirling_rest(m) + stirling_rest(n - m)
                - stirling_rest(k) - stirling_rest(n - k);
            if (v <= bound) { found = k; break; }
        }
    }
    return chance <= (real)0.5 ? found : n - found;
}
"""
# A thread draws for `each` elements, which lie `stride` apart in groups of both multiplied, one after the other.
EACH = """\
struct Params {{ u64 {operands}, out; i64 n; u64 seed, offset; }};

extern "C" __global__ void draw(const Params p) {{
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    Stream s = started(p.seed, thread, p.offset);
    for (int i = 0; i < {each}; i++) {{
        const u64 at = thread / {stride} * ({each} * {stride}) + i * {stride} + thread % {stride};
        if (at < (u64)p.n) ((real *)p.out)[at] = {call};
    }}
}}
"""


@cache
def each_source(sampler, operands, real, each=1, stride=1):
    """The text of the kernel that draws a number of `real` for each element of so many operands of it."""
    names = [f"x{i}" for i in range(operands)]
    call = f"{sampler}({', '.join(f'((const real *)p.{x})[at]' for x in names)}, s)"
    head = f"typedef {real} real;\n#define FMA {'__fmaf_rn' if real == 'float' else '__fma_rn'}\n"
    return PHILOX + head + STREAMS + EACH.format(operands=", ".join(names), call=call, each=each, stride=stride)


# --- the stream -------------------------------------------------------------------------------------------------------


class Position:
    """Where a stream stands; generators of several devices may share one."""

    def __init__(self, seed=0, offset=0):
        self.seed, self.offset, self.lock = seed, offset, new_lock()

    def advance(self, count):
        """The (seed, offset) to draw from, and the offset moves on by `count` words, whole groups of four."""
        with self.lock:
            found = self.seed, self.offset
            self.offset += -(-count // 4) * 4
        return found


class Philox(RandomStream):
    """The stream of a GPU; a seed gives the same numbers as torch.Generator(device="cuda") on a GPU of its kind."""

    def __init__(self, backend, where=None):
        self.backend, self.where = backend, where or Position()
        self.threads_at_once = _threads_at_once(backend.properties)

    @property
    def device(self):
        return self.backend.device

    def new(self):
        return Philox(self.backend)

    def on(self, device):
        return self if device is self.backend.device else Philox(device.backend, self.where)

    # --- seed and state

    def _start(self, seed):
        with self.where.lock:
            self.where.seed, self.where.offset = seed, 0

    def initial_seed(self):
        return self.where.seed

    def position(self):
        return self.where.seed, self.where.offset

    def get_offset(self):
        return self.where.offset

    def set_offset(self, offset):
        need(offset % 4 == 0 and offset >= 0, f"offset must be a multiple of 4, got {offset}")
        self.where.offset = offset

    def _state(self):
        with self.where.lock:
            return np.frombuffer(struct.pack("<QQ", *self.position()), np.uint8).copy()

    def _continue(self, state):
        need(state.size in (PHILOX_STATE_BYTES, PHILOX_STATE_BYTES // 2),
             f"RNG state is wrong size: {state.size} bytes, and a CUDA generator's are {PHILOX_STATE_BYTES}")
        seed, offset = struct.unpack("<QQ", state.tobytes().ljust(PHILOX_STATE_BYTES, b"\0"))
        with self.where.lock:
            self.set_offset(offset)
            self.where.seed = seed

    def __getstate__(self):
        raise TypeError("the stream of a GPU cannot be pickled: keep get_state(), and give it to set_state()")

    # --- launches

    def _blank(self, n, dtype):
        """Memory for n elements, as the backend keeps it: `_seen` makes an array of it."""
        return self.backend.blank(spec(dtypes.from_numpy(dtype), (n,), None, self.backend.device))[0]

    def _seen(self, blank):
        return self.backend.seen(blank)

    def _fill(self, source, n, dtype, per_turn, numbers=()):
        """`n` new numbers of a kernel of the form `FILL`, of which a turn gives `per_turn`."""
        out = self._blank(n, dtype)
        if n:
            address = self.backend.address(out)
            for start, count in self._parts(n, dtype.itemsize, per_turn):
                threads, turns = self._threads(count, per_turn)
                seed, offset = self.where.advance(4 * turns)
                self._launch(source, threads, (address + start * dtype.itemsize,), (count, seed, offset, *numbers))
        return out

    def _threads(self, n, per_turn):
        """(the threads that draw n numbers, the turns they take); see Note [Threads]."""
        threads = min(self.threads_at_once, -(-n // BLOCK_THREADS) * BLOCK_THREADS)
        return threads, (n - 1) // (threads * per_turn) + 1

    def _parts(self, n, itemsize, per_turn):
        """The (start, count) that PyTorch draws by themselves: halves of what it cannot address with 32 bits, for which
        it has moved the offset on before it found that out."""
        if n <= LARGEST_32_BIT_OFFSET and 1 + (n - 1) * itemsize <= LARGEST_32_BIT_OFFSET:
            return [(0, n)]
        self.where.advance(4 * self._threads(n, per_turn)[1])
        done, todo = [], [(0, n)]
        while todo:
            start, count = todo.pop()
            if 1 + (count - 1) * itemsize <= LARGEST_32_BIT_OFFSET:
                done.append((start, count))
            else:
                half = count // 2
                todo += [(start + half, count - half), (start, half)]
        return done

    def _launch(self, source, threads, addresses, ints):
        grid = -(-threads // BLOCK_THREADS)
        call = LaunchCall(source, "draw", (grid, 1, 1), (BLOCK_THREADS, 1, 1), 0, tuple(map(_as_word, ints)))
        launch(self.backend, call, addresses)

    def _real(self, rule, n, dtype, *numbers):
        type = name_of(dtype)
        return self._fill(real_source(rule, type), n, dtype, 2 if type == "f64" else 4, numbers)

    # --- distributions; the words are those of backends/cpu/random/draws.py

    def uniform(self, n, dtype, low=0.0, high=1.0):
        """Uniform over [low, high)."""
        dtype = np.dtype(dtype)
        if (real := real_part(dtype)) is not None:
            return self.uniform(2 * n, real, low, high)
        low, high = rounded(np.array([low, high], np.float64), dtype)         # in the dtype, and so is their difference
        return self._real("uniform", n, dtype, float(low), float(high), float(high - low))

    def normal(self, n, dtype, mean=0.0, std=1.0, contiguous=True):
        """Normal around `mean`."""
        dtype = np.dtype(dtype)
        if (real := real_part(dtype)) is not None:
            return self.normal(2 * n, real, mean, std / math.sqrt(2))
        return self._real("normal", n, dtype, float(mean), float(std))

    def log_normal(self, n, dtype, mean=1.0, std=2.0):
        return self._real("log_normal", n, np.dtype(dtype), float(mean), float(std))

    def exponential(self, n, dtype, lambd=1.0):
        return self._real("exponential", n, np.dtype(dtype), float(lambd))

    def geometric(self, n, dtype, p):
        return self._real("geometric", n, np.dtype(dtype), float(p))

    def cauchy(self, n, dtype, median=0.0, sigma=1.0):
        return self._real("cauchy", n, np.dtype(dtype), float(median), float(sigma))

    def bernoulli(self, p, n, dtype):
        """One with probability `p`, a number or an array of n of this device's; else zero."""
        dtype = np.dtype(dtype)
        type = name_of(dtype)
        if not hasattr(p, "shape"):
            return self._real("bernoulli", n, dtype, float(p))
        chance = np.dtype(np.float64 if type == "f64" else np.float32)
        chances, out = p.astype(chance), self._blank(n, dtype)
        seed, offset = self.where.advance(PROBABILITY_OFFSET)
        if n:
            addresses = self.backend.address(chances), self.backend.address(out)
            self._launch(coins_source(type), -(-n // 4), addresses, (n, seed, offset))
        return out

    def dropout_width(self, spec, offset):
        """How many neighbours PyTorch's dropout reads at a time of a tensor of `spec` that starts `offset` elements
        into its memory: up to 16 bytes, where it is dense and they are aligned and go into it. With 1 the mask is drawn
        in the order of positions, else in that of memory."""
        width = 16 // spec.dtype.itemsize if spec.dense else 1
        while spec.numel % width or offset % width:
            width //= 2
        return width

    def keep(self, n, p, dtype, width):
        """Dropout's mask: True where an element is kept, with probability 1 - `p`, of a tensor of n elements of `dtype`
        that PyTorch reads `width` at a time."""
        out = self._blank(n, np.dtype(np.bool_))
        if n:
            threads, turns = self._threads(n, 4)
            seed, offset = self.where.advance(4 * turns)
            source = keep_source("double" if np.dtype(dtype) == np.float64 else "float", width)
            self._launch(source, threads, (self.backend.address(out),), (n, seed, offset, 1.0 - p))
        return out

    # --- integers

    def integers(self, low, high, n, dtype):
        """Integers in [low, high); `high` None means up to the largest that `dtype` holds exactly."""
        dtype = np.dtype(dtype)
        type = name_of(dtype)
        if high is None and low == -2**63:
            return self._fill(integer_source("whole", type), n, dtype, 2)
        if high is None:
            high = largest(dtype) + 1
        if dtype.name in SIGNIFICAND_BITS:
            low, high = representable(low, high, dtype)
        need(low < high, f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
        span = high - low
        rule = "word" if span < 2**28 else "word64"
        return self._fill(integer_source(rule, type), n, dtype, 4 if rule == "word" else 2, (span, low))

    def random_(self, n, dtype):
        """Integers from 0 to the largest that `dtype` holds exactly."""
        dtype = np.dtype(dtype)
        type = name_of(dtype)
        if type == "bool":
            return self._fill(integer_source("bit", type), n, dtype, 4)
        rule = "word64" if type in ("f64", "int64") else "word"
        return self._fill(integer_source(rule, type), n, dtype, 2 if rule == "word64" else 4, (largest(dtype) + 1, 0))

    def permutation(self, n, dtype=np.int64):
        """The numbers 0 to n - 1 in random order: sorted by random keys of as many bits as make equal ones rare."""
        xp, dtype = self.backend.xp, np.dtype(dtype)
        if n == 0:
            return self._blank(0, dtype)
        bits = min(64, math.ceil(math.log2(n - (6.0 * n * n + 1) / (12 * math.log(0.9)))))
        size = 32 if bits <= 32 else 64
        keys = self.integers(-2**(size - 1), 2**(size - 1) - 1, n, np.int32 if size == 32 else np.int64)
        keys = self._seen(keys).astype(np.int64)
        if bits < size:                                     # all of them: they are compared as signed
            keys &= (1 << bits) - 1
        with self.backend.driver.on(self.backend.index):
            order = xp.argsort(keys, kind="stable").astype(np.int64)
            keys = xp.ascontiguousarray(keys[order])
        seed, offset = self.where.advance(n)
        self._launch(SHUFFLE_EQUALS, n, (self.backend.address(keys), self.backend.address(order)), (n, seed, offset))
        return order.astype(dtype)

    # --- one sample from many

    def poisson(self, rate):
        """A Poisson count for each rate, in the dtype of `rate`."""
        return self._each("poisson", POISSON_OFFSET, rate.astype(np.float64)).astype(rate.dtype)

    def standard_gamma(self, alpha):
        """A gamma sample of unit scale for each shape parameter."""
        return self.backend.xp.maximum(self._each("gamma_", GAMMA_OFFSET, alpha), np.finfo(alpha.dtype).tiny)

    def dirichlet(self, alpha, size):
        """A point of the simplex for each `size` concentrations in a row."""
        xp = self.backend.xp
        gammas = self.standard_gamma(alpha).reshape(-1, size)
        parts = gammas / gammas.sum(-1, keepdims=True)
        info = np.finfo(alpha.dtype)
        return xp.clip(parts, info.tiny, 1 - info.eps).reshape(-1)

    def binomial(self, count, prob):
        """A number of successes for each pair of a number of trials and a probability."""
        return self._each("binomial", BINOMIAL_OFFSET, count, prob, each=8, stride=BINOMIAL_THREADS)

    def _each(self, sampler, offset_step, *operands, each=1, stride=1):
        """A draw for each element of `operands`, float32 or float64, `each` by one thread, `stride` apart."""
        operands = [self.backend.xp.ascontiguousarray(x.reshape(-1)) for x in operands]
        n, dtype = operands[0].size, operands[0].dtype
        out = self._blank(n, dtype)
        seed, offset = self.where.advance(offset_step)
        if n:
            addresses = [self.backend.address(x) for x in (*operands, out)]
            source = each_source(sampler, len(operands), "float" if dtype.itemsize == 4 else "double", each, stride)
            threads = -(-n // (each * stride)) * stride
            self._launch(source, threads, addresses, (n, seed, offset))
        return self._seen(out)

    def multinomial(self, weights, num_samples, replacement=False):
        """`num_samples` indices for each row of `weights`, drawn in proportion to the weights."""
        xp = self.backend.xp
        exact = weights if weights.dtype.itemsize > 2 else weights.astype(np.float32)
        need(bool((xp.isfinite(exact) & (exact >= 0)).all()),
             "probability tensor contains either `inf`, `nan` or element < 0")
        need(bool((exact.sum(-1) > 0).all()), "invalid multinomial distribution (sum of probabilities <= 0)")
        if replacement and num_samples > 1:
            return self._with_replacement(exact, num_samples)
        # A race of clocks that tick at these rates: who is first, who is second, and so on.
        waits = self._seen(self.exponential(weights.size, weights.dtype)).reshape(weights.shape).astype(exact.dtype)
        race = (exact / waits).astype(weights.dtype).astype(exact.dtype)
        if num_samples == 1:
            return race.argmax(-1)[..., None]
        return xp.argsort(-race, axis=-1, kind="stable")[..., :num_samples]

    def _with_replacement(self, weights, num_samples):
        xp = self.backend.xp
        shape, weights = weights.shape, weights.reshape(-1, weights.shape[-1])
        rows = len(weights)
        steps = xp.cumsum(weights / weights.sum(-1, keepdims=True), axis=-1)
        grid_rows = min(rows, 65535)
        seed, offset = self.where.advance(((rows - 1) // grid_rows + 1) * 4)
        units = self._blank(rows * num_samples, np.dtype(np.float32))
        row_threads = -(-num_samples // SAMPLE_THREADS) * SAMPLE_THREADS
        self._launch(SAMPLE_UNITS, rows * num_samples, (self.backend.address(units),),
                     (num_samples, rows, row_threads, grid_rows, seed, offset))
        base = xp.arange(rows, dtype=np.float64)[:, None] * 2            # all rows in a row, each behind the one before
        steps, units = steps.astype(np.float64) + base, self._seen(units).reshape(rows, num_samples)
        units = units.astype(np.float64) + base
        picked = xp.searchsorted(steps.reshape(-1), units.reshape(-1)).reshape(rows, num_samples)
        picked = picked - xp.arange(rows)[:, None] * weights.shape[-1]
        last = weights.shape[-1] - 1 - (weights[:, ::-1] > 0).argmax(-1)      # rounding may leave the sum below 1
        return xp.minimum(picked, last[:, None]).reshape(*shape[:-1], num_samples).astype(np.int64)


@lru_cache
def _threads_at_once(properties):
    blocks = properties.max_threads_per_multi_processor // BLOCK_THREADS
    return properties.multi_processor_count * blocks * BLOCK_THREADS


def _as_word(number):
    """The 8-byte word of Params for a number: a float's own bits, an integer's as an int64."""
    if isinstance(number, float):
        return struct.unpack("<q", struct.pack("<d", number))[0]
    number %= 2**64
    return number - 2**64 if number >= 2**63 else number
