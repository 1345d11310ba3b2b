// What CUDA C++ has and C++ has not, for kernels that are compiled for the processor; runtime.cpp holds the functions.
// Nothing is included: a header of the system costs more time than most kernels.
#pragma once
typedef __SIZE_TYPE__ size_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __grid_constant__
#ifdef SHARED_IN_SECTION                             // so that it can be filled with nonsense before every block
#define __shared__ static __attribute__((section("shared_memory")))
#else
#define __shared__ static
#endif

struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x, y, z; };
#define VECTORS(T, N) \
    struct N##1 { T x; }; \
    struct __attribute__((aligned(2 * sizeof(T)))) N##2 { T x, y; }; \
    struct N##3 { T x, y, z; }; \
    struct __attribute__((aligned(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)))) N##4 { T x, y, z, w; }; \
    inline N##2 make_##N##2(T x, T y) { return {x, y}; } \
    inline N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; } \
    inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
#define uint3 uint3_                                 // which is there already
VECTORS(unsigned, uint)
#undef uint3
VECTORS(char, char) VECTORS(unsigned char, uchar) VECTORS(short, short) VECTORS(unsigned short, ushort) VECTORS(int, int)
VECTORS(long long, longlong) VECTORS(unsigned long long, ulonglong) VECTORS(float, float) VECTORS(double, double)
VECTORS(long, long) VECTORS(unsigned long, ulong)

extern "C" {
extern struct simulated_indices { uint3 thread, block, threads, blocks; } simulated_at;
extern char simulated_shared[];
int simulated_barrier(int line, int says);
unsigned long long simulated_exchange(int line, int kind, unsigned mask, unsigned long long given, int from);
int simulated_lane();
void simulated_trap(int line, const char *said);
unsigned short simulated_half(float);
float simulated_half_to_float(unsigned short);
int printf(const char *, ...);
void *memcpy(void *, const void *, size_t);
void *memset(void *, int, size_t);
}
#define threadIdx simulated_at.thread
#define blockIdx simulated_at.block
#define blockDim simulated_at.threads
#define gridDim simulated_at.blocks
#define warpSize 32

// --- threads that meet

#define __syncthreads() ((void)simulated_barrier(__LINE__, 0))
#define __syncthreads_count(says) simulated_barrier(__LINE__, says)
#define __syncthreads_or(says) (simulated_barrier(__LINE__, says) != 0)
#define __syncthreads_and(says) (simulated_barrier(__LINE__, !(says)) == 0)
#define __syncwarp(...) ((void)simulated_exchange(__LINE__, 4, simulated_mask(__VA_ARGS__), 0, 0))
#define __ballot_sync(mask, says) ((unsigned)simulated_exchange(__LINE__, 1, mask, (says) != 0, 0))
#define __any_sync(mask, says) ((int)simulated_exchange(__LINE__, 2, mask, (says) != 0, 0))
#define __all_sync(mask, says) ((int)simulated_exchange(__LINE__, 3, mask, (says) != 0, 0))
#define __match_any_sync(mask, value) ((unsigned)simulated_exchange(__LINE__, 5, mask, simulated_bits(value), 0))
#define __shfl_sync(...) simulated_shuffle(__LINE__, 0, __VA_ARGS__)
#define __shfl_up_sync(...) simulated_shuffle(__LINE__, 1, __VA_ARGS__)
#define __shfl_down_sync(...) simulated_shuffle(__LINE__, 2, __VA_ARGS__)
#define __shfl_xor_sync(...) simulated_shuffle(__LINE__, 3, __VA_ARGS__)
#define __reduce_add_sync(mask, value) simulated_reduce(__LINE__, mask, value, [](auto a, auto b) { return a + b; })
#define __reduce_min_sync(mask, value) simulated_reduce(__LINE__, mask, value, [](auto a, auto b) { return b < a ? b : a; })
#define __reduce_max_sync(mask, value) simulated_reduce(__LINE__, mask, value, [](auto a, auto b) { return a < b ? b : a; })
#define __reduce_or_sync(mask, value) simulated_reduce(__LINE__, mask, value, [](auto a, auto b) { return a | b; })
#define __reduce_and_sync(mask, value) simulated_reduce(__LINE__, mask, value, [](auto a, auto b) { return a & b; })
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)
#define __threadfence_system() ((void)0)
#define __nanosleep(ns) ((void)0)
#define __trap() simulated_trap(__LINE__, "__trap()")
#define assert(says) ((says) ? (void)0 : simulated_trap(__LINE__, "assertion " #says))
#define __assume(says) ((void)0)
#define __builtin_assume(says) ((void)0)

inline unsigned simulated_mask(unsigned mask = 0xffffffffu) { return mask; }

template <class T> inline unsigned long long simulated_bits(T value) {
    static_assert(sizeof(T) <= 8, "a warp exchanges up to eight bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    return bits;
}

template <class T> inline T simulated_value(unsigned long long bits) {
    T value;
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}

template <class T> inline T simulated_shuffle(int line, int how, unsigned mask, T value, int by, int width = 32) {
    int lane = simulated_lane(), first = lane & ~(width - 1), last = first + width - 1, from;
    if (how == 0) from = first + (by & (width - 1));
    else if (how == 1) from = lane - by < first ? lane : lane - by;
    else if (how == 2) from = lane + by > last ? lane : lane + by;
    else from = (lane ^ by) > last ? lane : lane ^ by;
    return simulated_value<T>(simulated_exchange(line, 0, mask, simulated_bits(value), from));
}

template <class T, class F> inline T simulated_reduce(int line, unsigned mask, T value, F fold) {
    T made = value;
    bool first = true;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) {
            T one = simulated_value<T>(simulated_exchange(line, 0, mask, simulated_bits(value), i));
            made = first ? one : fold(made, one);
            first = false;
        }
    return made;
}

// --- atomics: one thread runs at a time

template <class T> struct simulated_same { typedef T type; };
#define ATOMIC(name, now) \
    template <class T> inline T name(T *at, typename simulated_same<T>::type value) { T old = *at; *at = now; return old; } \
    template <class T> inline T name##_block(T *at, typename simulated_same<T>::type value) { return name(at, value); }
ATOMIC(atomicAdd, old + value) ATOMIC(atomicSub, old - value) ATOMIC(atomicExch, value)
ATOMIC(atomicMin, value < old ? value : old) ATOMIC(atomicMax, old < value ? value : old)
ATOMIC(atomicAnd, old & value) ATOMIC(atomicOr, old | value) ATOMIC(atomicXor, old ^ value)
ATOMIC(atomicInc, old >= value ? 0 : old + 1) ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
template <class T> inline T atomicCAS(T *at, typename simulated_same<T>::type if_it_is, typename simulated_same<T>::type value) {
    T old = *at;
    if (old == if_it_is) *at = value;
    return old;
}

// --- loads and stores that say how they use caches

#define LOADS(name) template <class T> inline T name(const T *at) { return *at; }
LOADS(__ldg) LOADS(__ldcs) LOADS(__ldcg) LOADS(__ldca) LOADS(__ldlu) LOADS(__ldcv)
#define STORES(name) template <class T> inline void name(T *at, typename simulated_same<T>::type value) { *at = value; }
STORES(__stcs) STORES(__stcg) STORES(__stwb) STORES(__stwt)

// --- bits

inline int __float_as_int(float x) { return simulated_value<int>(simulated_bits(x)); }
inline unsigned __float_as_uint(float x) { return simulated_value<unsigned>(simulated_bits(x)); }
inline float __int_as_float(int x) { return simulated_value<float>(simulated_bits(x)); }
inline float __uint_as_float(unsigned x) { return simulated_value<float>(simulated_bits(x)); }
inline long long __double_as_longlong(double x) { return simulated_value<long long>(simulated_bits(x)); }
inline double __longlong_as_double(long long x) { return simulated_value<double>(simulated_bits(x)); }
inline int __double2hiint(double x) { return __double_as_longlong(x) >> 32; }
inline int __double2loint(double x) { return (int)__double_as_longlong(x); }
inline double __hiloint2double(int hi, int lo) { return __longlong_as_double((long long)((unsigned long long)(unsigned)hi << 32 | (unsigned)lo)); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    unsigned made = 0;
    for (int i = 0; i < 32; i++) made |= (x >> i & 1) << (31 - i);
    return made;
}
inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return (unsigned)((((unsigned long long)high << 32 | low) << (by & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (by & 31));
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned how) {
    unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned made = 0;
    for (int i = 0; i < 4; i++) made |= (unsigned)(both >> 8 * (how >> 4 * i & 7) & 255) << 8 * i;
    return made;
}
inline long long clock64() { return 0; }
inline int clock() { return 0; }

// --- mathematics

#define NAN_VALUE __builtin_nanf("")
extern "C" {
#define ONE(name) double name(double); float name##f(float);
#define TWO(name) double name(double, double); float name##f(float, float);
ONE(exp) ONE(exp2) ONE(exp10) ONE(expm1) ONE(log) ONE(log2) ONE(log10) ONE(log1p) ONE(logb) ONE(sin) ONE(cos) ONE(tan) ONE(asin)
ONE(acos) ONE(atan) ONE(sinh) ONE(cosh) ONE(tanh) ONE(asinh) ONE(acosh) ONE(atanh) ONE(erf) ONE(erfc) ONE(lgamma)
ONE(tgamma) ONE(sqrt) ONE(cbrt) ONE(floor) ONE(ceil) ONE(trunc) ONE(rint) ONE(nearbyint) ONE(round) ONE(fabs) ONE(j0) ONE(j1)
ONE(y0) ONE(y1)
TWO(pow) TWO(atan2) TWO(fmod) TWO(remainder) TWO(hypot) TWO(copysign) TWO(nextafter) TWO(fmin) TWO(fmax) TWO(fdim)
double fma(double, double, double); float fmaf(float, float, float);
double ldexp(double, int); float ldexpf(float, int); double scalbn(double, int); float scalbnf(float, int);
double frexp(double, int *); float frexpf(float, int *); double modf(double, double *); float modff(float, float *);
int ilogb(double); int ilogbf(float); long long llrint(double); long long llrintf(float);
long lrint(double); long lrintf(float); long long llround(double); long long llroundf(float);
int abs(int); long labs(long); long long llabs(long long);
void sincos(double, double *, double *); void sincosf(float, float *, float *);
#undef ONE
#undef TWO
}
#define ONE(name) inline float name(float x) { return name##f(x); }
#define TWO(name) inline float name(float x, float y) { return name##f(x, y); }
ONE(exp) ONE(exp2) ONE(expm1) ONE(log) ONE(log2) ONE(log10) ONE(log1p) ONE(sin) ONE(cos) ONE(tan) ONE(asin) ONE(acos) ONE(atan)
ONE(sinh) ONE(cosh) ONE(tanh) ONE(asinh) ONE(acosh) ONE(atanh) ONE(erf) ONE(erfc) ONE(lgamma) ONE(tgamma) ONE(sqrt) ONE(cbrt)
ONE(floor) ONE(ceil) ONE(trunc) ONE(rint) ONE(nearbyint) ONE(round) ONE(fabs)
TWO(pow) TWO(atan2) TWO(fmod) TWO(remainder) TWO(hypot) TWO(copysign) TWO(nextafter) TWO(fmin) TWO(fmax)
#undef ONE
#undef TWO
inline float fma(float x, float y, float z) { return fmaf(x, y, z); }
inline float ldexp(float x, int n) { return ldexpf(x, n); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float rsqrtf(float x) { return (float)(1 / sqrt((double)x)); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline double rcbrt(double x) { return 1 / cbrt(x); }
inline float rcbrtf(float x) { return (float)(1 / cbrt((double)x)); }
inline double sinpi(double x) { return sin(3.141592653589793 * fmod(x, 2.0)); }
inline double cospi(double x) { return cos(3.141592653589793 * fmod(x, 2.0)); }
inline float sinpif(float x) { return (float)sinpi(x); }
inline float cospif(float x) { return (float)cospi(x); }
inline void sincospif(float x, float *s, float *c) { *s = sinpif(x); *c = cospif(x); }
inline void sincospi(double x, double *s, double *c) { *s = sinpi(x); *c = cospi(x); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
inline double normcdf(double x) { return erfc(-x * 0.7071067811865476) / 2; }
inline float normcdff(float x) { return (float)normcdf(x); }
extern "C" double simulated_erfinv(double);
inline double erfinv(double x) { return simulated_erfinv(x); }
inline float erfinvf(float x) { return (float)simulated_erfinv(x); }
#define abs(x) simulated_abs(x)
template <class T> inline T simulated_abs(T x) { return x < 0 ? -x : x; }
template <> inline float simulated_abs(float x) { return fabsf(x); }
template <> inline double simulated_abs(double x) { return fabs(x); }
inline bool isnan(float x) { return x != x; }
inline bool isnan(double x) { return x != x; }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isinf(double x) { return __builtin_isinf(x); }
inline bool isfinite(float x) { return __builtin_isfinite(x); }
inline bool isfinite(double x) { return __builtin_isfinite(x); }
inline bool signbit(float x) { return __builtin_signbit(x); }
inline bool signbit(double x) { return __builtin_signbit(x); }

#define EXTREMES(T) \
    inline T min(T a, T b) { return b < a ? b : a; } \
    inline T max(T a, T b) { return a < b ? b : a; }
EXTREMES(int) EXTREMES(unsigned) EXTREMES(long) EXTREMES(unsigned long) EXTREMES(long long) EXTREMES(unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

#define __fadd_rn(x, y) ((float)(x) + (float)(y))
#define __fsub_rn(x, y) ((float)(x) - (float)(y))
#define __fmul_rn(x, y) ((float)(x) * (float)(y))
#define __fdiv_rn(x, y) ((float)(x) / (float)(y))
#define __fsqrt_rn(x) sqrtf(x)
#define __frcp_rn(x) (1.0f / (float)(x))
#define __frsqrt_rn(x) rsqrtf(x)
#define __fmaf_rn(x, y, z) fmaf(x, y, z)
#define __dadd_rn(x, y) ((double)(x) + (double)(y))
#define __dsub_rn(x, y) ((double)(x) - (double)(y))
#define __dmul_rn(x, y) ((double)(x) * (double)(y))
#define __ddiv_rn(x, y) ((double)(x) / (double)(y))
#define __dsqrt_rn(x) sqrt((double)(x))
#define __drcp_rn(x) (1.0 / (double)(x))
#define __fma_rn(x, y, z) fma((double)(x), (double)(y), (double)(z))
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __sincosf(x, s, c) sincosf(x, s, c)
#define __powf(x, y) powf(x, y)
#define __fdividef(x, y) ((float)(x) / (float)(y))

// A GPU's conversions to integers end at their ends, and a NaN becomes 0 (or, to 64 bits, the least number).
template <class T, class F> inline T simulated_rounded(F x, T low, T high, T nan) {
    return x != x ? nan : x <= (F)low ? low : x >= (F)high ? high : (T)x;
}
#define TO_INTEGER(how, round) \
    inline int __float2int_##how(float x) { return simulated_rounded<int, double>(round((double)x), -2147483647 - 1, 2147483647, 0); } \
    inline int __double2int_##how(double x) { return simulated_rounded<int, double>(round(x), -2147483647 - 1, 2147483647, -2147483647 - 1); } \
    inline unsigned __float2uint_##how(float x) { return simulated_rounded<unsigned, double>(round((double)x), 0, 4294967295u, 0); } \
    inline unsigned __double2uint_##how(double x) { return simulated_rounded<unsigned, double>(round(x), 0, 4294967295u, 2147483648u); } \
    inline long long __float2ll_##how(float x) { return simulated_rounded<long long, double>(round((double)x), -9223372036854775807ll - 1, 9223372036854775807ll, -9223372036854775807ll - 1); } \
    inline long long __double2ll_##how(double x) { return simulated_rounded<long long, double>(round(x), -9223372036854775807ll - 1, 9223372036854775807ll, -9223372036854775807ll - 1); }
TO_INTEGER(rn, rint) TO_INTEGER(rz, trunc) TO_INTEGER(ru, ceil) TO_INTEGER(rd, floor)
#define __int2float_rn(x) ((float)(int)(x))
#define __uint2float_rn(x) ((float)(unsigned)(x))
#define __ll2float_rn(x) ((float)(long long)(x))
#define __ull2float_rn(x) ((float)(unsigned long long)(x))
#define __int2double_rn(x) ((double)(int)(x))
#define __ll2double_rn(x) ((double)(long long)(x))
#define __ull2double_rn(x) ((double)(unsigned long long)(x))
#define __double2float_rn(x) ((float)(double)(x))

// --- PTX, as far as kernels say it: `asm("cvt.rn.f16.f32 %0, %1;" : "=h"(a) : "f"(b))` was made `a = ptx_cvt_rn_f16_f32(b)`

inline unsigned short ptx_cvt_rn_f16_f32(float x) { return simulated_half(x); }
inline float ptx_cvt_f32_f16(unsigned short x) { return simulated_half_to_float(x); }
inline unsigned short ptx_cvt_rn_bf16_f32(float x) {
    unsigned bits = __float_as_uint(x);
    return x != x ? 0x7fff : (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float ptx_cvt_f32_bf16(unsigned short x) { return __uint_as_float((unsigned)x << 16); }
inline unsigned ptx_mov_u32_laneid() { return simulated_lane(); }
