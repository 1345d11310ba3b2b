"""The words of the loop language in C++: an expression for each, and the helpers that these call.

    words.expression("max", "f32", ("a", "b"), "f32") → ("a != a || a > b ? a : b", ())

What a word means is said by emit.py, down to NaN and the sign of a zero. 16-bit floats are their bits, and are only
converted.
"""
import math
from collections.abc import Sequence

from ..ir import BYTES_OF_TYPE, FLOAT_TYPES
from ..llvm import LEAST_OF_TYPE, MOST_OF_TYPE
from ..spelling import half_bits, rounded
from .helpers import SPELLED_OUT, spelled

HALF_TYPES = ("f16", "bf16")
WIDE_FLOATS = ("f32", "f64")                                  # which are computed with
SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
         "ne": "!=", "and": "&", "or": "|", "xor": "^"}
WRITTEN_BY = {**dict.fromkeys(SIGNS, "_sign"), **dict.fromkeys(("shl", "shr", "not", "idiv", "irem"), "_of_integers"),
              **dict.fromkeys(("neg", "fma", "fma_exact", "abs"), "_arithmetic"),
              **dict.fromkeys(("min", "max", "fmin", "fmax"), "_extreme"),
              **dict.fromkeys(("where", "isnan", "bits", "from_bits"), "_plain"),
              **dict.fromkeys(("re", "im", "pair"), "_complex")}


class Unrenderable(Exception):
    """A kernel that cannot be written in a GPU's language."""


class KernelWords:
    """Expressions, in C++ but for what a dialect says."""

    types: dict                       # of the loop language, "u32" and "u64", as the language calls them
    bit_casts: dict                   # "f32_as_i32", "i32_as_f32", "f64_as_i64", "i64_as_f64"
    functions: tuple                  # the words that the language has a function of the same name for

    def convert(self, type_name: str, text: object) -> str:
        """A value as one of another type."""
        return f"({type_name}){text}"

    def select(self, condition: str, a: str, b: str) -> str:
        """The one value or the other."""
        return f"{condition} ? {a} : {b}"

    def function(self, name: str, type: str, *args: str) -> str:
        """A call of a mathematical function."""
        return f"{name}{'f' if type == 'f32' else ''}({', '.join(args)})"

    def memory_type(self, type: str) -> str:
        """What elements of a type are in memory."""
        return self.types["u8" if type == "b1" else type]

    def literal(self, value: float, type: str) -> str:
        """A constant."""
        if type in HALF_TYPES:
            return self.convert(self.types[type], half_bits(value, type))
        if type in WIDE_FLOATS:
            return self._float_literal(value, type)
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
        return self.convert(self.types[type], value)

    def _float_literal(self, value: float, type: str) -> str:
        single = type == "f32"
        value = rounded(value) if single else float(value)
        if not math.isfinite(value):
            cast = self.bit_casts["i32_as_f32" if single else "i64_as_f64"]
            bits = ("0x7fc00000", "0x7ff8000000000000ll") if math.isnan(value) else ("0x7f800000",
                                                                                     "0x7ff0000000000000ll")
            return f"{'-' if value < 0 else ''}{cast}({bits[not single]})"
        text = f"{value:.9g}" if single else repr(value)
        return (text if "." in text or "e" in text else text + ".0") + ("f" if single else "")

    # --- operations

    def expression(self, op: str, type: str, args: Sequence[str], arg_type: str) -> tuple[str, tuple]:
        """(an operation on `args`, which are names or literals, and the helpers that it calls)."""
        if op == "cast":
            return self.cast(args[0], arg_type, type)
        if HALF_TYPES[0] in (type, arg_type) or HALF_TYPES[1] in (type, arg_type):
            if op != "where":
                raise Unrenderable(f"{op}.{type} of {arg_type}")
        if op in WRITTEN_BY:
            return getattr(self, WRITTEN_BY[op])(op, type, args, arg_type), ()
        if type in WIDE_FLOATS:
            return self._mathematics(op, type, args)
        raise Unrenderable(f"{op}.{type}")

    def _sign(self, op: str, type: str, args: Sequence[str], _: str) -> str:
        a, b = args
        if op in ("add", "sub", "mul") and type not in WIDE_FLOATS:
            return self._wrapping(type, SIGNS[op], a, b)
        if op in ("and", "or", "xor"):
            return f"{a} {({'and': '&&', 'or': '||', 'xor': '!='})[op]} {b}" if type == "b1" else \
                self._integer(type, f"{a} {SIGNS[op]} {b}")
        return f"{a} {SIGNS[op]} {b}"

    def _integer(self, type: str, text: str) -> str:
        """What integers give, in their own width: C++ computes the short ones as int."""
        return text if type in ("i32", "i64") else self.convert(self.types[type], f"({text})")

    def _wrapping(self, type: str, sign: str, a: str, b: str) -> str:
        """Arithmetic of integers that wraps around; C++ leaves it open for signed ones."""
        if type == "b1":                                      # whole numbers of one bit
            return f"{a} && {b}" if sign == "*" else f"{a} != {b}"
        if type in ("i32", "i64"):
            wide = self.types["u" + type[1:]]
            a, b = self.convert(wide, a), self.convert(wide, b)
        return self.convert(self.types[type], f"({a} {sign} {b})")

    def _of_integers(self, op: str, type: str, args: Sequence[str], _: str) -> str:
        if op == "not":
            return f"!{args[0]}" if type == "b1" else self._integer(type, f"~{args[0]}")
        a, b = args
        if op == "shl":
            wide = self.types["u64" if type == "i64" else "u32"]
            return self.convert(self.types[type], f"({self.convert(wide, a)} << {b})")
        return self._integer(type, f"{a} {({'shr': '>>', 'idiv': '/', 'irem': '%'})[op]} {b}")

    def _arithmetic(self, op: str, type: str, args: Sequence[str], _: str) -> str:
        a, is_float = args[0], type in WIDE_FLOATS
        if op == "neg":
            return f"-({a})" if is_float else a if type == "b1" else self._negative(type, a)
        if op == "abs":
            return self.function("fabs", type, a) if is_float else a if type in ("u8", "b1") else \
                self.select(f"{a} < 0", self._negative(type, a), a)
        _, b, c = args
        return self.function("fma", type, a, b, c) if is_float else \
            self._wrapping(type, "+", f"({self._wrapping(type, '*', a, b)})", c)

    def _negative(self, type: str, a: str) -> str:
        return self._wrapping(type, "-", self.literal(0, type), a)

    def _extreme(self, op: str, type: str, args: Sequence[str], _: str) -> str:
        """Which of two zeros is taken, and what becomes of NaN: as in emit.py."""
        a, b = args
        nan = f"{b} != {b} || " if op in ("min", "fmax") else f"{a} != {a} || "
        if type not in WIDE_FLOATS:
            nan = ""
        return self.select(f"{nan}{b} < {a}", b, a) if op.endswith("min") else self.select(f"{nan}{a} > {b}", a, b)

    def _plain(self, op: str, type: str, args: Sequence[str], arg_type: str) -> str:
        a = args[0]
        if op == "where":
            return self.select(*args)
        if op == "isnan":
            return f"{a} != {a}" if arg_type in WIDE_FLOATS else "false"
        if op == "bits":
            return f"{self.bit_casts['f32_as_i32' if arg_type == 'f32' else 'f64_as_i64']}({a})"
        return f"{self.bit_casts['i32_as_f32' if type == 'f32' else 'i64_as_f64']}({a})"

    def _complex(self, op: str, type: str, args: Sequence[str], _: str) -> str:
        return f"{self.types[type]}{{{', '.join(args)}}}" if op == "pair" else f"{args[0]}.{'x' if op == 're' else 'y'}"

    def _mathematics(self, op: str, type: str, args: Sequence[str]) -> tuple[str, tuple]:
        if op in self.functions:
            return self.function(op, type, *args), ()
        a = args[0]
        if op == "sigmoid" and type == "f32":
            return f"reciprocal(1.0f + {self.function('exp', type, f'-({a})')})", ("reciprocal",)
        if op == "sigmoid":
            return f"1.0 / (1.0 + {self.function('exp', type, f'-({a})')})", ()
        if op == "rsqrt":
            return f"{self.literal(1, type)} / {self.function('sqrt', type, a)}", ()
        if op in SPELLED_OUT:
            wide = [self.convert(self.types["f64"], a) for a in args]
            return self.convert(self.types[type], f"{spelled(op)}({', '.join(wide)})"), (op,)
        raise Unrenderable(f"{op}.{type}")

    def cast(self, a: str, source: str, target: str) -> tuple[str, tuple]:
        """(a value of one type as one of another, and the helpers that this calls)."""
        if source == target:
            return a, ()
        if source in HALF_TYPES:
            inner = f"from_{source}({a})"
            text, more = self.cast(inner, "f32", target)
            return text, (f"from_{source}", *more)
        if target in HALF_TYPES:
            if target == "f16" and source == "f64":
                return f"to_f16(to_odd_float({a}))", ("to_f16", "to_odd_float")
            return f"to_{target}({self.convert(self.types['f32'], a)})", (f"to_{target}",)
        if target == "b1":
            return f"{a} != {self.literal(0, source)}", ()
        if source in WIDE_FLOATS and target not in FLOAT_TYPES:
            wide = "to_i64" if target in ("i64", "u8") else "to_i32"
            text = f"{wide}({a})"
            return (text if target in ("i32", "i64") else self.convert(self.types[target], text)), (wide,)
        return self.convert(self.types[target], a), ()

    # --- accumulators

    def joined(self, reduction: str, type: str, a: str, b: str) -> str:
        """Two accumulated values made one; both are names."""
        if reduction in ("sum", "any") and type == "b1" or reduction == "any":
            return f"{a} | {b}" if type != "b1" else f"{a} || {b}"
        if reduction in ("prod", "all") and type == "b1" or reduction == "all":
            return f"{a} && {b}"
        if reduction == "top":
            return self.select(f"{b} > {a}", b, a)
        return self.expression({"sum": "add", "prod": "mul"}.get(reduction, reduction), type, (a, b), type)[0]

    def better(self, reduction: str, type: str, a: tuple, b: tuple) -> str:
        """Whether the extreme `b` with its index goes before `a`; both are pairs of names."""
        sign = ">" if reduction == "argmax" else "<"
        take, same = f"{b[0]} {sign} {a[0]}", f"{b[0]} == {a[0]}"
        if type in WIDE_FLOATS:
            take = f"({take} || {b[0]} != {b[0]} && {a[0]} == {a[0]})"
            same = f"({same} || {b[0]} != {b[0]} && {a[0]} != {a[0]})"
        return f"{take} || {same} && {b[1]} < {a[1]}"

    def neutral(self, reduction: str, type: str) -> str:
        """What an accumulator begins with."""
        if reduction in ("sum", "any"):
            return self.literal(0, type)
        if reduction in ("prod", "all"):
            return self.literal(1, type)
        if type in WIDE_FLOATS:
            return self.literal(math.inf if reduction in ("min", "argmin") else -math.inf, type)
        return self.literal((MOST_OF_TYPE if reduction in ("min", "argmin") else LEAST_OF_TYPE)[type], type)
