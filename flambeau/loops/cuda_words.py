"""The words of the loop language in CUDA C++: an expression for each, and the functions that these call.

    expression("max", "f32", ("a", "b"), "f32") → ("a != a || a > b ? a : b", ())

What a word means is said by emit.py, down to NaN and the sign of a zero; functions such as exp are CUDA's own, which
are good to two units in the last place. 16-bit floats are their bits, and are only converted.
"""
import math
from itertools import count

from .emit import Term, half_bits, rounded
from .ir import BYTES_OF_TYPE, FLOAT_TYPES
from .llvm import LEAST_OF_TYPE, MOST_OF_TYPE
from .target import Target

CPP_TYPE = {"f16": "unsigned short", "bf16": "unsigned short", "f32": "float", "f64": "double", "i8": "signed char",
            "u8": "unsigned char", "i16": "short", "i32": "int", "i64": "long long", "b1": "bool"}
UNSIGNED_TYPE = {"i32": "unsigned", "i64": "unsigned long long"}
HALF_TYPES = ("f16", "bf16")
SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
         "ne": "!=", "and": "&", "or": "|", "xor": "^"}
SAME_NAME = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
             "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "pow", "lgamma",
             "sqrt", "floor", "ceil", "trunc", "rint", "copysign")


class Unrenderable(Exception):
    """A kernel that there is no CUDA C++ for."""


def literal(value, type):
    """A constant in C++'s spelling."""
    if type in HALF_TYPES:
        return f"(unsigned short){half_bits(value, type)}"
    if type in ("f32", "f64"):
        value, suffix = (rounded(value), "f") if type == "f32" else (float(value), "")
        if math.isnan(value):
            return "__int_as_float(0x7fc00000)" if suffix else "__longlong_as_double(0x7ff8000000000000ll)"
        if math.isinf(value):
            sign = "-" if value < 0 else ""
            return sign + ("__int_as_float(0x7f800000)" if suffix else "__longlong_as_double(0x7ff0000000000000ll)")
        text = f"{value:.9g}" if suffix else repr(value)
        return (text if "." in text or "e" in text else text + ".0") + suffix
    if type == "b1":
        return "true" if value else "false"
    bits = 8 * BYTES_OF_TYPE[type]
    value = int(value) & ((1 << bits) - 1)
    if type != "u8" and value >> bits - 1:
        value -= 1 << bits
    if type == "i64":
        return f"{value}ll" if value != LEAST_OF_TYPE[type] else "(-9223372036854775807ll - 1)"
    if type == "i32":
        return str(value) if value != LEAST_OF_TYPE[type] else "(-2147483647 - 1)"
    return f"({CPP_TYPE[type]}){value}"


def _integer(type, text):
    """What integers give, in their own width: C++ computes the short ones as int."""
    return text if type in ("i32", "i64") else f"({CPP_TYPE[type]})({text})"


def _wrapping(type, sign, a, b):
    """Arithmetic of integers that wraps around; C++ leaves it open for signed ones."""
    if type == "b1":                                          # whole numbers of one bit
        return f"{a} && {b}" if sign == "*" else f"{a} != {b}"
    if type in UNSIGNED_TYPE:
        wide = UNSIGNED_TYPE[type]
        return f"({CPP_TYPE[type]})(({wide}){a} {sign} ({wide}){b})"
    return f"({CPP_TYPE[type]})({a} {sign} {b})"


def expression(op, type, args, arg_type):
    """(the C++ of an operation on `args`, which are names or literals, and the helpers that it calls)."""
    if op == "cast":
        return cast(args[0], arg_type, type)
    if HALF_TYPES[0] in (type, arg_type) or HALF_TYPES[1] in (type, arg_type):
        if op != "where":
            raise Unrenderable(f"{op}.{type} of {arg_type}")
    a, b, c = (*args, None, None, None)[:3]
    is_float, f = type in ("f32", "f64"), "f" if type == "f32" else ""
    if op in ("add", "sub", "mul") and not is_float:
        return _wrapping(type, SIGNS[op], a, b), ()
    if op in ("and", "or", "xor") and type == "b1":
        return f"{a} {({'and': '&&', 'or': '||', 'xor': '!='})[op]} {b}", ()
    if op in ("and", "or", "xor"):
        return _integer(type, f"{a} {SIGNS[op]} {b}"), ()
    if op in SIGNS:
        return f"{a} {SIGNS[op]} {b}", ()
    if op == "neg":
        return (f"-({a})" if is_float else a if type == "b1" else _wrapping(type, "-", literal(0, type), a)), ()
    if op in ("fma", "fma_exact"):
        if not is_float:
            return _wrapping(type, "+", f"({_wrapping(type, '*', a, b)})", c), ()
        return f"fma{f}({a}, {b}, {c})", ()
    if op == "abs":
        if is_float:
            return f"fabs{f}({a})", ()
        return (a if type in ("u8", "b1") else f"{a} < 0 ? {_wrapping(type, '-', literal(0, type), a)} : {a}"), ()
    if op in ("min", "max", "fmin", "fmax"):
        # which of two zeros is taken, and what becomes of NaN: as in emit.py
        nan = {"min": f"{b} != {b} || ", "max": f"{a} != {a} || ", "fmin": f"{a} != {a} || ",
               "fmax": f"{b} != {b} || "}[op] if is_float else ""
        return (f"{nan}{b} < {a} ? {b} : {a}" if op.endswith("min") else f"{nan}{a} > {b} ? {a} : {b}"), ()
    if op == "not":
        return (f"!{a}" if type == "b1" else _integer(type, f"~{a}")), ()
    if op == "shl":
        return f"({CPP_TYPE[type]})(({UNSIGNED_TYPE.get(type, 'unsigned')}){a} << {b})", ()
    if op == "shr":
        return _integer(type, f"{a} >> {b}"), ()
    if op in ("idiv", "irem"):
        return _integer(type, f"{a} {'/' if op == 'idiv' else '%'} {b}"), ()
    if op == "where":
        return f"{a} ? {b} : {c}", ()
    if op == "isnan":
        return (f"{a} != {a}" if arg_type in ("f32", "f64") else "false"), ()
    if op == "bits":
        return (f"__float_as_int({a})" if arg_type == "f32" else f"__double_as_longlong({a})"), ()
    if op == "from_bits":
        return (f"__int_as_float({a})" if type == "f32" else f"__longlong_as_double({a})"), ()
    if is_float and op in SAME_NAME:
        return f"{op}{f}({', '.join(args)})", ()
    if op == "sigmoid" and type == "f32":
        return f"reciprocal(1.0f + expf(-({a})))", ("reciprocal",)
    if op == "sigmoid" and type == "f64":
        return f"1.0 / (1.0 + exp(-({a})))", ()
    if is_float and op == "rsqrt":
        return f"{literal(1, type)} / sqrt{f}({a})", ()
    if is_float and op == "digamma":
        return f"({CPP_TYPE[type]})digamma({a})", ("digamma",)
    raise Unrenderable(f"{op}.{type}")


def cast(a, source, target):
    if source == target:
        return a, ()
    if source in HALF_TYPES:
        inner, target_cast = f"from_{source}({a})", ()
        if target == "f32":
            return inner, (f"from_{source}",)
        text, target_cast = cast(inner, "f32", target)
        return text, (f"from_{source}", *target_cast)
    if target in HALF_TYPES:
        if target == "f16" and source == "f64":
            return f"to_f16(to_odd_float({a}))", ("to_f16", "to_odd_float")
        return f"to_{target}((float){a})", (f"to_{target}",)
    if target == "b1":
        return f"{a} != {literal(0, source)}", ()
    if source in ("f32", "f64") and target not in FLOAT_TYPES:
        wide = "to_i64" if target in ("i64", "u8") else "to_i32"
        text = f"{wide}({a})"
        return (text if target in ("i32", "i64") else f"({CPP_TYPE[target]}){text}"), (wide,)
    return f"({CPP_TYPE[target]}){a}", ()


def joined(kind, type, a, b):
    """Two accumulated values made one, in C++; both are names."""
    if kind in ("sum", "any") and type == "b1" or kind == "any":
        return f"{a} | {b}" if type != "b1" else f"{a} || {b}"
    if kind in ("prod", "all") and type == "b1" or kind == "all":
        return f"{a} && {b}"
    if kind == "top":
        return f"{b} > {a} ? {b} : {a}"
    return expression({"sum": "add", "prod": "mul"}.get(kind, kind), type, (a, b), type)[0]


def better(kind, type, a, b):
    """Whether the extreme `b` with its place goes before `a`; both are pairs of names."""
    sign = ">" if kind == "argmax" else "<"
    take, same = f"{b[0]} {sign} {a[0]}", f"{b[0]} == {a[0]}"
    if type in ("f32", "f64"):
        take = f"({take} || {b[0]} != {b[0]} && {a[0]} == {a[0]})"
        same = f"({same} || {b[0]} != {b[0]} && {a[0]} != {a[0]})"
    return f"{take} || {same} && {b[1]} < {a[1]}"


def neutral(kind, type):
    """What an accumulator begins with."""
    if kind in ("sum", "any"):
        return literal(0, type)
    if kind in ("prod", "all"):
        return literal(1, type)
    if type in ("f32", "f64"):
        return literal(math.inf if kind in ("min", "argmin") else -math.inf, type)
    return literal((MOST_OF_TYPE if kind in ("min", "argmin") else LEAST_OF_TYPE)[type], type)


# --- helpers that a text has where it calls them ----------------------------------------------------------------------

HELPERS = {
    "Pack": """template <class T, int N> struct alignas(sizeof(T) * N) Pack { T x[N]; };""",
    "take": """template <class T, int N> __device__ __forceinline__ Pack<T, N> take(const T *p, bool aligned) {
  if (aligned) return *(const Pack<T, N> *)p;
  Pack<T, N> out;
  for (int i = 0; i < N; ++i) out.x[i] = p[i];
  return out;
}""",
    "give": """template <class T, int N> __device__ __forceinline__ void give(T *p, const Pack<T, N> &x, bool aligned) {
  if (aligned) *(Pack<T, N> *)p = x;
  else for (int i = 0; i < N; ++i) p[i] = x.x[i];
}""",
    "over": """__device__ __forceinline__ unsigned over(unsigned n, unsigned multiplier, int shift) {
  return (unsigned)((unsigned long long)n * multiplier >> shift);
}""",
    # of numbers from 1 on, which a quotient rounded correctly takes eight instructions more for; good to one unit
    "reciprocal": """__device__ __forceinline__ float reciprocal(float x) {
#ifdef __CUDA_ARCH__
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  return 1.0f / x;
#endif
}""",
    "from_bf16": """__device__ __forceinline__ float from_bf16(unsigned short x) {
  return __int_as_float((int)((unsigned)x << 16));
}""",
    "to_bf16": """__device__ __forceinline__ unsigned short to_bf16(float x) {
#ifdef __CUDA_ARCH__
  unsigned short out;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out) : "f"(x));
  return out;
#else
  const unsigned raw = (unsigned)__float_as_int(x);
  return x != x ? (unsigned short)(raw >> 16 | 0x40) : (unsigned short)((raw + (raw >> 16 & 1) + 0x7fff) >> 16);
#endif
}""",
    "from_f16": """__device__ __forceinline__ float from_f16(unsigned short x) {
#ifdef __CUDA_ARCH__
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(x));
  return out;
#else
  const int size = x & 0x7fff;
  int wide = (size << 13) + (112 << 23);
  if (size < 0x400) wide = __float_as_int(__int_as_float(size + 0x3f000000) - 0.5f);
  else if (size >= 0x7c00) wide += 112 << 23;
  return __int_as_float((int)((unsigned)wide | (x & 0x8000u) << 16));
#endif
}""",
    "to_f16": """__device__ __forceinline__ unsigned short to_f16(float x) {
#ifdef __CUDA_ARCH__
  unsigned short out;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(x));
  return out;
#else
  const int raw = __float_as_int(x), size = raw & 0x7fffffff;
  int near = ((size + (size >> 13 & 1) + 0xfff) >> 13) - (112 << 10);
  if (size > 0x7f800000) near = (size >> 13 & 0x3ff) | 0x7e00;
  else if (size >= 0x47800000) near = 0x7c00;
  else if (size < 0x38800000) near = __float_as_int(__int_as_float(size) + 0.5f) - 0x3f000000;
  return (unsigned short)(near | ((unsigned)raw >> 16 & 0x8000));
#endif
}""",
    "to_odd_float": """__device__ __forceinline__ float to_odd_float(double x) {
  const long long raw = __double_as_longlong(x), cut = (1ll << 29) - 1;
  return (float)__longlong_as_double((raw & ~cut) | ((raw & cut) == 0 ? 0 : 1ll << 29));
}""",
    "to_i32": """template <class T> __device__ __forceinline__ int to_i32(T x) {
  return x >= (T)-2147483648.0 && x < (T)2147483648.0 ? (int)x : -2147483647 - 1;
}""",
    "to_i64": """template <class T> __device__ __forceinline__ long long to_i64(T x) {
  return x >= (T)-9223372036854775808.0 && x < (T)9223372036854775808.0 ? (long long)x : -9223372036854775807ll - 1;
}""",
}
HELPERS_CALLED = {"take": ("Pack",), "give": ("Pack",)}


def digamma():
    """The C++ of digamma, from the arithmetic of scalar.py."""
    from . import scalar
    e = _CppEmit()
    out = scalar.digamma(e, Term(e, "f64", 1, "x"))
    return "\n".join(["__device__ __noinline__ double digamma(double x) {", *e.lines, f"  return {out.text};", "}"])


class _CppEmit:
    """Writes what scalar.py says as C++, a variable for each step: as much of `emit.Emit` as its functions ask for."""

    def __init__(self):
        self.lines, self.names, self.target = [], count(), Target(fma=True)

    def const(self, value, type, lanes=1):
        return Term(self, type, 1, literal(value, type), value)

    def _put(self, op, type, *args):
        like = next(a for a in args if isinstance(a, Term) and (op != "where" or a is not args[0]))
        args = [a if isinstance(a, Term) else self.const(a, like.type) for a in args]
        text, helpers = expression(op, type or like.type, [a.text for a in args], args[0].type)
        assert not helpers, f"{op} in a helper"
        name = f"t{next(self.names)}"
        self.lines.append(f"  const {CPP_TYPE[type or like.type]} {name} = {text};")
        return Term(self, type or like.type, 1, name)

    def arith(self, op, a, b):      return self._put(op, None, a, b)
    def compare(self, op, a, b):    return self._put(op, "b1", a, b)
    def neg(self, a):               return self._put("neg", None, a)
    def where(self, c, a, b):       return self._put("where", None, c, a, b)
    def fma(self, a, b, c):         return self._put("fma", None, a, b, c)
    def abs(self, a):               return self._put("abs", None, a)
    def rint(self, a):              return self._put("rint", None, a)
    def copysign(self, a, b):       return self._put("copysign", None, a, b)
    def bits(self, a):              return self._put("bits", {"f32": "i32", "f64": "i64"}[a.type], a)
    def from_bits(self, a, type):   return self._put("from_bits", type, a)
    def cast(self, a, type):        return a if a.type == type else self._put("cast", type, a)

    def logical_shr(self, a, by):
        name, wide = f"t{next(self.names)}", UNSIGNED_TYPE[a.type]
        self.lines.append(f"  const {CPP_TYPE[a.type]} {name} = ({CPP_TYPE[a.type]})(({wide}){a.text} >> {by});")
        return Term(self, a.type, 1, name)
