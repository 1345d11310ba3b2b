"""How kernels that are written by hand read and write elements: the text that opens each of them, by dtype.

`E` is an element as it stands in memory, `W` what is computed with: float for 16-bit floats, itself for the others.
`widen` and `narrow` go between them, and `ordered` gives an unsigned number that compares as elements do, with NaN
above all (for sorting and selecting).
"""
# dtype → (element, what is computed with, unsigned of its size, bits)
_C_TYPES = {"float16": ("unsigned short", "float", "unsigned short", 16),
          "bfloat16": ("unsigned short", "float", "unsigned short", 16),
          "float32": ("float", "float", "unsigned", 32), "float64": ("double", "double", "unsigned long long", 64),
          "bool": ("unsigned char", "unsigned char", "unsigned char", 8),
          "uint8": ("unsigned char", "unsigned char", "unsigned char", 8),
          "int8": ("signed char", "signed char", "unsigned char", 8),
          "int16": ("short", "short", "unsigned short", 16), "int32": ("int", "int", "unsigned", 32),
          "int64": ("long long", "long long", "unsigned long long", 64)}

_WIDEN = {"float16": 'float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y;',
          "bfloat16": "return __uint_as_float((unsigned)x << 16);"}
_NARROW = {"float16": 'unsigned short y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y;',
           "bfloat16": 'unsigned short y; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y;'}
_BITS = {"float32": "__float_as_uint(x)", "float64": "(U)__double_as_longlong(x)"}
_FROM_BITS = {"float32": "__uint_as_float(b)", "float64": "__longlong_as_double((long long)b)"}
_LEAST = {"float32": "-__int_as_float(0x7f800000)", "float64": "-__longlong_as_double(0x7ff0000000000000ll)",
          "bool": "0", "uint8": "0", "int8": "-128", "int16": "-32768", "int32": "-2147483647 - 1",
          "int64": "-9223372036854775807ll - 1"}
_MOST = {"float32": "__int_as_float(0x7f800000)", "float64": "__longlong_as_double(0x7ff0000000000000ll)",
         "bool": "1", "uint8": "255", "int8": "127", "int16": "32767", "int32": "2147483647",
         "int64": "9223372036854775807ll"}
_EXPONENT = {"float16": "0x7c00", "bfloat16": "0x7f80", "float32": "0x7f800000u", "float64": "0x7ff0000000000000ull"}


def is_known(dtype):
    """Whether there is a text for `dtype`."""
    return dtype.name in _C_TYPES


def is_float(dtype):
    return dtype.name in _EXPONENT


def bits(dtype):
    """How many bits an element has."""
    return _C_TYPES[dtype.name][3]


def opening(dtype):
    """The text that says what an element is."""
    name = dtype.name
    element, wide, unsigned, size = _C_TYPES[name]
    half = size == 16 and is_float(dtype)
    base = "float32" if half else name
    lines = [f"typedef {element} E;", f"typedef {wide} W;", f"typedef {unsigned} U;",
             f"__device__ __forceinline__ W widen(E x) {{ {_WIDEN.get(name, 'return x;')} }}",
             f"__device__ __forceinline__ E narrow(W x) {{ {_NARROW.get(name, 'return (E)x;')} }}",
             "#undef LEAST\n#undef MOST\n#undef VECTOR",       # texts may stand in one module
             f"#define LEAST ((W)({_LEAST[base]}))", f"#define MOST ((W)({_MOST[base]}))",
             f"#define VECTOR {max(1, 128 // size)}"]
    if is_float(dtype):
        top = f"((U)1 << {size - 1})"
        lines += [f"__device__ __forceinline__ U bits_of(E x) {{ return {_BITS.get(name, 'x')}; }}",
                  f"__device__ __forceinline__ E from_bits(U b) {{ return {_FROM_BITS.get(name, 'b')}; }}",
                  "__device__ __forceinline__ bool is_nan(E x) {",
                  f"    return (U)(bits_of(x) & (U)~{top}) > (U){_EXPONENT[name]};",
                  "}",
                  "__device__ __forceinline__ U ordered(E x) {",
                  "    if (is_nan(x)) return (U)~(U)0;",
                  "    U b = bits_of(x);",
                  f"    if (b == {top}) b = 0;                         // -0 and 0 are equal",
                  f"    return b & {top} ? (U)~b : (U)(b | {top});",
                  "}"]
    else:
        turn = f"((U)1 << {size - 1})" if element.startswith(("signed", "short", "int", "long")) else "(U)0"
        lines += ["__device__ __forceinline__ bool is_nan(E x) { return false; }",
                  f"__device__ __forceinline__ U ordered(E x) {{ return (U)x ^ {turn}; }}"]
    lines.append("struct __align__(16) Vector { E e[VECTOR]; };")
    return "\n".join(lines) + "\n"


def params(addresses, ints):
    """The struct that a kernel takes: its addresses and integers by name, in order."""
    return f"struct Params {{ unsigned long long {', '.join(addresses)}; long long {', '.join(ints)}; }};\n"
