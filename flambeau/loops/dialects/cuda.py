"""CUDA C++: what it does not share with other C++ of GPUs."""
from .dialect import KernelDialect


class CUDADialect(KernelDialect):
    """The C++ that NVRTC compiles. Functions such as exp are CUDA's own, good to two units in the last place."""

    types = {"f16": "unsigned short", "bf16": "unsigned short", "f32": "float", "f64": "double", "i8": "signed char",
             "u8": "unsigned char", "i16": "short", "i32": "int", "i64": "long long", "b1": "bool",
             "u32": "unsigned", "u64": "unsigned long long", "c64": "float2", "c128": "double2"}
    functions = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
                 "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "pow", "lgamma",
                 "sqrt", "floor", "ceil", "trunc", "rint", "copysign")
    bit_casts = {"f32_as_i32": "__float_as_int", "i32_as_f32": "__int_as_float",
                 "f64_as_i64": "__double_as_longlong", "i64_as_f64": "__longlong_as_double"}
    block, thread = "blockIdx.x", ("threadIdx.x", "threadIdx.y")
    inline, outlined = "__device__ __forceinline__", "__device__ __noinline__"
    kernel = 'extern "C" __global__ void __launch_bounds__({bounds}) {name}(const Given given)'
    shared, byte = "__shared__", "char"
    barrier, warp_barrier = "__syncthreads();", "__syncwarp();"
    shuffles = {how: f"__shfl_{word}sync(0xffffffffu, {{value}}, {{by}}, {{width}})"
                for how, word in (("from", ""), ("down", "down_"), ("across", "xor_"))}
    max_given_words = 512             # 4096 bytes of arguments
    device_macro = "__CUDA_ARCH__"    # the simulated GPUs of the tests have no instructions of their own
    instructions = {
        "reciprocal": 'float out;\nasm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));\nreturn out;',
        "to_bf16": 'unsigned short out;\nasm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out) : "f"(x));\nreturn out;',
        "from_f16": 'float out;\nasm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(x));\nreturn out;',
        "to_f16": 'unsigned short out;\nasm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(x));\nreturn out;',
    }


CUDA = CUDADialect()
