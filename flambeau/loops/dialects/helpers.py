"""Functions in C++ that the text of a kernel has where it calls them. A dialect fills in its words after each `$`."""
from functools import cache
from itertools import count
from string import Template

from ..emit import Term
from ..ir import TWO_ARGUMENT_WORDS
from ..scalar import SPECIAL_FUNCTIONS, WORD_FUNCTIONS
from ..target import Target

SPELLED_OUT = {"digamma", *SPECIAL_FUNCTIONS}      # words whose helper is their arithmetic
# Name → (head, body).
HELPERS = {
    "Pack": ("template <class T, $i32 N> struct alignas(sizeof(T) * N) Pack", "T x[N];"),
    "take": ("template <class T, $i32 N> $inline Pack<T, N> take(const T *p, $b1 aligned)", """\
if (aligned) return *(const Pack<T, N> *)p;
Pack<T, N> out;
for ($i32 i = 0; i < N; ++i) out.x[i] = p[i];
return out;"""),
    "give": ("template <class T, $i32 N> $inline void give(T *p, const Pack<T, N> &x, $b1 aligned)", """\
if (aligned) *(Pack<T, N> *)p = x;
else for ($i32 i = 0; i < N; ++i) p[i] = x.x[i];"""),
    "over": ("$inline $u32 over($u32 n, $u32 multiplier, $i32 shift)", "return ($u32)(($u64)n * multiplier >> shift);"),
    # of numbers from 1 on, which a quotient rounded correctly takes eight instructions more for; good to one unit
    "reciprocal": ("$inline $f32 reciprocal($f32 x)", "return 1.0f / x;"),
    "from_bf16": ("$inline $f32 from_bf16($bf16 x)", "return $i32_as_f32(($i32)(($u32)x << 16));"),
    "to_bf16": ("$inline $bf16 to_bf16($f32 x)", """\
const $u32 raw = ($u32)$f32_as_i32(x);
return x != x ? ($bf16)(raw >> 16 | 0x40) : ($bf16)((raw + (raw >> 16 & 1) + 0x7fff) >> 16);"""),
    "from_f16": ("$inline $f32 from_f16($f16 x)", """\
const $i32 size = x & 0x7fff;
$i32 wide = (size << 13) + (112 << 23);
if (size < 0x400) wide = $f32_as_i32($i32_as_f32(size + 0x3f000000) - 0.5f);
else if (size >= 0x7c00) wide += 112 << 23;
return $i32_as_f32(($i32)(($u32)wide | (x & 0x8000u) << 16));"""),
    "to_f16": ("$inline $f16 to_f16($f32 x)", """\
const $i32 raw = $f32_as_i32(x), size = raw & 0x7fffffff;
$i32 near = ((size + (size >> 13 & 1) + 0xfff) >> 13) - (112 << 10);
if (size > 0x7f800000) near = (size >> 13 & 0x3ff) | 0x7e00;
else if (size >= 0x47800000) near = 0x7c00;
else if (size < 0x38800000) near = $f32_as_i32($i32_as_f32(size) + 0.5f) - 0x3f000000;
return ($f16)(near | (($u32)raw >> 16 & 0x8000));"""),
    "to_odd_float": ("$inline $f32 to_odd_float($f64 x)", """\
const $i64 raw = $f64_as_i64(x), cut = (1ll << 29) - 1;
return ($f32)$i64_as_f64((raw & ~cut) | ((raw & cut) == 0 ? 0 : 1ll << 29));"""),
    "to_i32": ("template <class T> $inline $i32 to_i32(T x)",
               "return x >= (T)-2147483648.0 && x < (T)2147483648.0 ? ($i32)x : -2147483647 - 1;"),
    "to_i64": ("template <class T> $inline $i64 to_i64(T x)", "return x >= (T)-9223372036854775808.0 && "
               "x < (T)9223372036854775808.0 ? ($i64)x : -9223372036854775807ll - 1;"),
}
HELPERS_CALLED = {"take": ("Pack",), "give": ("Pack",)}


@cache
def helper(dialect, name):
    """A helper in the words of a dialect: by its instruction, where it has one and the compiler is for the device."""
    head, body = (Template(text).substitute(dialect.types, inline=dialect.inline, **dialect.bit_casts)
                  for text in HELPERS[name])
    if name == "Pack":
        return f"{head} {{ {body} }};"
    lines = _indented(body)
    if name in dialect.instructions:
        lines = [f"#ifdef {dialect.device_macro}", *_indented(dialect.instructions[name]), "#else", *lines, "#endif"]
    return "\n".join([f"{head} {{", *lines, "}"])


def _indented(text):
    return ["  " + line for line in text.splitlines()]


@cache
def spelled_out(dialect, name):
    """A function of numbers, from the arithmetic of loops/scalar, in double precision."""
    e = _Emit(dialect)
    double = dialect.types["f64"]
    names = "xy"[:1 + (name in TWO_ARGUMENT_WORDS)]
    out = WORD_FUNCTIONS[name](e, *(Term(e, "f64", 1, x) for x in names))
    given = ", ".join(f"{double} {x}" for x in names)
    head = f"{dialect.outlined} {double} {spelled(name)}({given})"
    return "\n".join([f"{head} {{", *e.lines, f"  return {out.text};", "}"])


def spelled(name):
    """What such a function is called: not as one that the language may have."""
    return f"spelled_{name}"


class _Emit:
    """Writes what loops/scalar says, a constant for each step: as much of `emit.Emit` as its functions ask for."""

    def __init__(self, dialect):
        self.dialect, self.lines, self.names, self.target = dialect, [], count(), Target(fma=True)

    def const(self, value, type, lanes=1):
        return Term(self, type, 1, self.dialect.literal(value, type), value)

    def _named(self, type, text):
        name = f"t{next(self.names)}"
        self.lines.append(f"  {self.dialect.constant(self.dialect.types[type], name, text)}")
        return Term(self, type, 1, name)

    def _put(self, op, type, *args):
        like = next(a for a in args if isinstance(a, Term) and (op != "where" or a is not args[0]))
        args = [a if isinstance(a, Term) else self.const(a, like.type) for a in args]
        text, helpers = self.dialect.expression(op, type or like.type, [a.text for a in args], args[0].type)
        assert not helpers, f"{op} in a helper"
        return self._named(type or like.type, text)

    def arith(self, op, a, b):      return self._put(op, None, a, b)
    def compare(self, op, a, b):    return self._put(op, "b1", a, b)
    def neg(self, a):               return self._put("neg", None, a)
    def where(self, c, a, b):       return self._put("where", None, c, a, b)
    def fma(self, a, b, c):         return self._put("fma", None, a, b, c)
    def abs(self, a):               return self._put("abs", None, a)
    def sqrt(self, a):              return self._put("sqrt", None, a)
    def isnan(self, a):             return self._put("isnan", "b1", a)
    def product_error(self, a, b, product):  return self.fma(a, b, -product)
    def rint(self, a):              return self._put("rint", None, a)
    def copysign(self, a, b):       return self._put("copysign", None, a, b)
    def bits(self, a):              return self._put("bits", {"f32": "i32", "f64": "i64"}[a.type], a)
    def from_bits(self, a, type):   return self._put("from_bits", type, a)
    def cast(self, a, type):        return a if a.type == type else self._put("cast", type, a)

    def logical_shr(self, a, by):
        type_name, wide = self.dialect.types[a.type], self.dialect.types["u" + a.type[1:]]
        return self._named(a.type, f"({type_name})(({wide}){a.text} >> {by})")
