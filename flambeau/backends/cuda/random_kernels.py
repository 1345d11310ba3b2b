"""The texts of the kernels that draw random numbers: Philox 4x32-10, and what its words become; see random.py."""
from functools import cache

C_TYPE = {"f16": "unsigned short", "bf16": "unsigned short", "f32": "float", "f64": "double", "bool": "unsigned char",
          "uint8": "unsigned char", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
          "uint16": "unsigned short", "uint32": "unsigned int", "uint64": "unsigned long long"}

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

# One kernel for each rule and dtype; see Note [Threads] in random.py. PER is how many numbers a turn gives.
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
# then they are of one thread, as many words as they need in a turn; with a width of 1 it goes as in Note [Threads] in
# random.py.
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
