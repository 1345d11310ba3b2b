"""Typed values in LLVM text: a `Term` is a number, or a vector of them, that some lines of text compute.

`Emit` writes the lines. The mathematics in `scalar` and the renderer in `llvm` are written in terms of these two, and
look like ordinary arithmetic: `x * y + 1.0`, `e.where(x < 0.0, a, b)`.
"""

from .ir import PART_OF_COMPLEX
from .spelling import BITS_OF_TYPE, literal, mangled, shape
from .target import Target

FLOAT_ARITHMETIC = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
INT_OF_SAME_SIZE = {"f32": "i32", "f64": "i64"}


class Term:
    """A value of `type` with so many `lanes`; `text` is how LLVM names it. A constant has its `value` too."""

    __slots__ = ("e", "type", "lanes", "text", "value")

    def __init__(self, e, type, lanes, text, value=None):
        self.e, self.type, self.lanes, self.text, self.value = e, type, lanes, text, value

    def __add__(self, other):      return self.e.arith("add", self, other)
    def __radd__(self, other):     return self.e.arith("add", other, self)
    def __sub__(self, other):      return self.e.arith("sub", self, other)
    def __rsub__(self, other):     return self.e.arith("sub", other, self)
    def __mul__(self, other):      return self.e.arith("mul", self, other)
    def __rmul__(self, other):     return self.e.arith("mul", other, self)
    def __truediv__(self, other):  return self.e.arith("div", self, other)
    def __rtruediv__(self, other): return self.e.arith("div", other, self)
    def __neg__(self):             return self.e.neg(self)
    def __lt__(self, other):       return self.e.compare("lt", self, other)
    def __le__(self, other):       return self.e.compare("le", self, other)
    def __gt__(self, other):       return self.e.compare("gt", self, other)
    def __ge__(self, other):       return self.e.compare("ge", self, other)
    def __eq__(self, other):       return self.e.compare("eq", self, other)
    def __ne__(self, other):       return self.e.compare("ne", self, other)
    def __and__(self, other):      return self.e.arith("and", self, other)
    def __or__(self, other):       return self.e.arith("or", self, other)
    def __xor__(self, other):      return self.e.arith("xor", self, other)
    def __invert__(self):          return self.e.arith("xor", self, -1)
    def __lshift__(self, other):   return self.e.arith("shl", self, other)
    def __rshift__(self, other):   return self.e.arith("shr", self, other)
    __hash__ = object.__hash__


class Emit:
    """Writes LLVM text line by line into `lines`; names are numbered by `names`, shared by a function's writers.

    `target` says what the processor can do, and so how an operation is written (loops/target.py).
    """

    def __init__(self, lines, names, declared, defined=None, label=None, target=Target()):  # noqa: B008
        self.lines, self.names, self.declared, self.target = lines, names, declared, target
        self.defined = {} if defined is None else defined     # name → text of a function that the lines call
        self.label = label                                    # of the block that the lines end in

    # --- names and types --------------------------------------------------------------------------------------------

    def new(self):
        return f"%t{next(self.names)}"

    def put(self, type, lanes, text):
        """One instruction `name = text`, as a Term."""
        name = f"%t{next(self.names)}"            # `new`, without the call
        self.lines.append(f"  {name} = {text}")
        return Term(self, type, lanes, name)

    def const(self, value, type, lanes=1):
        return Term(self, type, lanes, literal(value, type, lanes), value)

    def spread(self, x, lanes):
        """A single number in every lane."""
        if x.lanes == lanes:
            return x
        if x.value is not None:
            return self.const(x.value, x.type, lanes)
        one, many = shape(x.type, 1), shape(x.type, lanes)
        if x.type in PART_OF_COMPLEX:
            places = _lanes_list([0, 1] * lanes)
            return self.put(x.type, lanes, f"shufflevector {one} {x.text}, {one} poison, <{2 * lanes} x i32> {places}")
        first = self.put(x.type, lanes, f"insertelement {many} poison, {one} {x.text}, i64 0")
        return self.put(x.type, lanes, f"shufflevector {many} {first.text}, {many} poison, <{lanes} x i32> "
                                       "zeroinitializer")

    def pair(self, a, b):
        """Two operands with the same type and lanes; a Python number takes the other's."""
        if not isinstance(a, Term):
            a = self.const(a, b.type, b.lanes)
        elif not isinstance(b, Term):
            b = self.const(b, a.type, a.lanes)
        assert a.type == b.type, f"{a.type} with {b.type}"
        if a.lanes == b.lanes:
            return a, b
        lanes = max(a.lanes, b.lanes)
        return self.spread(a, lanes), self.spread(b, lanes)

    def call(self, name, type, *args, suffix=None, extra=""):
        """A call of an LLVM intrinsic, declared on the way."""
        lanes = max(a.lanes for a in args)
        args = [self.spread(a, lanes) for a in args]
        over = suffix or mangled(args[0].type, lanes)
        operand_types = ", ".join(shape(a.type, lanes) for a in args) + (", i1" if extra else "")
        self.declared.add(f"declare {shape(type, lanes)} @llvm.{name}.{over}({operand_types})")
        given = ", ".join(f"{shape(a.type, lanes)} {a.text}" for a in args) + extra
        return self.put(type, lanes, f"call {shape(type, lanes)} @llvm.{name}.{over}({given})")

    # --- arithmetic -------------------------------------------------------------------------------------------------

    def arith(self, op, a, b):
        a, b = self.pair(a, b)
        if a.type in ("f32", "f64"):
            word = FLOAT_ARITHMETIC[op]
        elif op == "shr":
            word = "lshr" if a.type in ("u8", "b1") else "ashr"
        else:
            word = op
        return self.put(a.type, a.lanes, f"{word} {shape(a.type, a.lanes)} {a.text}, {b.text}")

    def logical_shr(self, a, b):
        """`a` shifted right with zeros coming in."""
        a, b = self.pair(a, b)
        return self.put(a.type, a.lanes, f"lshr {shape(a.type, a.lanes)} {a.text}, {b.text}")

    def neg(self, a):
        if a.type in ("f32", "f64"):
            return self.put(a.type, a.lanes, f"fneg {shape(a.type, a.lanes)} {a.text}")
        return self.arith("sub", 0, a)

    def compare(self, op, a, b):
        a, b = self.pair(a, b)
        if a.type in ("f32", "f64"):
            word = "fcmp " + {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}[op]
        elif op in ("eq", "ne"):
            word = f"icmp {op}"
        else:
            word = f"icmp {'u' if a.type in ('u8', 'b1') else 's'}{op}"
        return self.put("b1", a.lanes, f"{word} {shape(a.type, a.lanes)} {a.text}, {b.text}")

    def isnan(self, a):
        return self.put("b1", a.lanes, f"fcmp uno {shape(a.type, a.lanes)} {a.text}, {a.text}")

    def where(self, c, a, b):
        a, b = self.pair(a, b)
        lanes = max(c.lanes, a.lanes)
        c, a, b = self.spread(c, lanes), self.spread(a, lanes), self.spread(b, lanes)
        type = shape(a.type, lanes)
        return self.put(a.type, lanes, f"select {shape('b1', lanes)} {c.text}, {type} {a.text}, {type} {b.text}")

    def fma(self, a, b, c):
        """`a * b + c`, rounded once where the processor does that, else twice. Any but one may be Python numbers."""
        a, b, c = self._three(a, b, c)
        return self.call("fma", c.type, a, b, c) if self.target.fma else a * b + c

    def fma_exact(self, a, b, c):
        """`a * b + c`, rounded once on every processor."""
        a, b, c = self._three(a, b, c)
        if self.target.fma:
            return self.call("fma", c.type, a, b, c)
        return self._fma_by_f64(a, b, c) if c.type == "f32" else self._fma_in_parts(a, b, c)

    def _three(self, *terms):
        like = next(t for t in terms if isinstance(t, Term))
        lanes = max(t.lanes for t in terms if isinstance(t, Term))
        return [self.spread(t, lanes) if isinstance(t, Term) else self.const(t, like.type, lanes) for t in terms]

    def _fma_by_f64(self, a, b, c):
        """Of float32: the product is exact in float64, and the sum, rounded to odd, does not mind another rounding."""
        a, b, c = (self.cast(t, "f64") for t in (a, b, c))
        total, left = self.two_sum(a * b, c)
        return self.cast(self._to_odd(total, left), "f32")

    def _fma_in_parts(self, a, b, c):
        """Of float64: the exact product and sum in three parts, whose lesser two are added rounding to odd.

        (Boldo and Melquiond, Emulation of FMA and correctly rounded sums.) Numbers whose parts would overflow or be
        denormal are left to the function `fma`, which every C library has.
        """
        product = a * b
        high, low = self.two_sum(c, self.product_error(a, b, product))
        total, left = self.two_sum(product, high)
        usual = total + self._to_odd(*self.two_sum(low, left))
        size, least = self.abs(product), 2.0**-900
        plain = (size < 2.0**990) & (self.abs(c) < 2.0**990) & (self.abs(a) < 2.0**990) & (self.abs(b) < 2.0**990) \
            & ((size > least) | (a == 0.0) | (b == 0.0))
        self.declared.add("declare double @fma(double, double, double)")
        return self.rare(~plain, usual, lambda: self.by_lane("fma", a, b, c))

    def two_sum(self, a, b):
        """The sum of two numbers, and what its rounding left out."""
        total = a + b
        back = total - a
        return total, (a - (total - back)) + (b - back)

    def product_error(self, a, b, product):
        """What rounding left out of `product`, which is `a * b`."""
        if self.target.fma:
            return self.fma(a, b, -product)
        if product.type == "f32":
            a, b, product = (self.cast(t, "f64") for t in (a, b, product))
            return self.cast(a * b - product, "f32")
        (a_high, a_low), (b_high, b_low) = self._halves(a), self._halves(b)
        return a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)

    def _halves(self, a):
        """A float64 as two of at most 26 bits (Veltkamp), whose products are exact."""
        scaled = a * (2.0**27 + 1)
        high = scaled - (scaled - a)
        return high, a - high

    def _to_odd(self, total, left):
        """A float64 sum rounded to odd: `total` is the nearest, `left` what its rounding left out."""
        raw = self.bits(total)
        up = (left > 0.0) == (total > 0.0)
        even = (raw & 1) == 0
        some = (left > 0.0) | (left < 0.0)                        # neither 0 nor NaN
        return self.from_bits(self.where(some & even, self.where(up, raw + 1, raw - 1), raw), "f64")

    def sqrt(self, a):        return self.call("sqrt", a.type, a)

    def floor(self, a):
        """The greatest integer that is not greater."""
        if self.target.rounding:
            return self.call("floor", a.type, a)
        near = self.rint(a)
        return self.copysign(self.where(near > a, near - 1.0, near), a)

    def ceil(self, a):
        """The least integer that is not less."""
        if self.target.rounding:
            return self.call("ceil", a.type, a)
        near = self.rint(a)
        return self.copysign(self.where(near < a, near + 1.0, near), a)

    def trunc(self, a):
        """The integer part."""
        if self.target.rounding:
            return self.call("trunc", a.type, a)
        return self.copysign(self.floor(self.abs(a)), a)

    def rint(self, a):
        """The nearest integer, half to even."""
        if self.target.rounding:
            return self.call("nearbyint", a.type, a)
        whole = {"f32": 2.0**23, "f64": 2.0**52}[a.type]          # from here on there are only integers
        size = self.abs(a)
        return self.copysign(self.where(size < whole, (size + whole) - whole, size), a)

    def copysign(self, a, b): return self.call("copysign", a.type, *self.pair(a, b))

    def abs(self, a):
        if a.type in ("f32", "f64"):
            return self.call("fabs", a.type, a)
        if a.type in ("u8", "b1"):
            return a
        return self.call("abs", a.type, a, extra=", i1 false")

    def minimum(self, a, b):
        """The lesser; NaN if either is NaN. Of two zeros the first, as LLVM has it where the second is a constant, and
        of two NaNs the second; where the processor has an instruction for it, the negative zero and the first NaN."""
        a, b = self.pair(a, b)
        if self.target.maximum and a.type in ("f32", "f64"):
            return self.call("minimum", a.type, a, b)
        least = self.where(b < a, b, a)
        return self.where(self.isnan(b), b, least) if a.type in ("f32", "f64") else least

    def maximum(self, a, b):
        """The greater; NaN if either is NaN. Of two zeros the second, or the positive one where the processor has an
        instruction for it."""
        a, b = self.pair(a, b)
        if self.target.maximum and a.type in ("f32", "f64"):
            return self.call("maximum", a.type, a, b)
        most = self.where(a > b, a, b)
        return self.where(self.isnan(a), a, most) if a.type in ("f32", "f64") else most

    def fmin(self, a, b):
        """The lesser; what is NaN does not count."""
        a, b = self.pair(a, b)
        least = self.where(b < a, b, a)
        return self.where(self.isnan(a), b, least) if a.type in ("f32", "f64") else least

    def fmax(self, a, b):
        """The greater; what is NaN does not count."""
        a, b = self.pair(a, b)
        most = self.where(a > b, a, b)
        return self.where(self.isnan(b), a, most) if a.type in ("f32", "f64") else most

    def idiv(self, a, b):
        a, b = self.pair(a, b)
        word = "udiv" if a.type == "u8" else "sdiv"
        return self.put(a.type, a.lanes, f"{word} {shape(a.type, a.lanes)} {a.text}, {b.text}")

    def irem(self, a, b):
        a, b = self.pair(a, b)
        word = "urem" if a.type == "u8" else "srem"
        return self.put(a.type, a.lanes, f"{word} {shape(a.type, a.lanes)} {a.text}, {b.text}")

    # --- complex numbers, which are a vector of their parts: each real one, and then its imaginary one ---------------

    def re(self, x):   return self._part(x, 0)
    def im(self, x):   return self._part(x, 1)

    def _part(self, x, which):
        type, vector = PART_OF_COMPLEX[x.type], shape(x.type, x.lanes)
        if x.lanes == 1:
            return self.put(type, 1, f"extractelement {vector} {x.text}, i64 {which}")
        places = _lanes_list(range(which, 2 * x.lanes, 2))
        return self.put(type, x.lanes, f"shufflevector {vector} {x.text}, {vector} poison, <{x.lanes} x i32> {places}")

    def complex(self, re, im, type):
        """The complex number, of a complex type, with these parts."""
        re, im = self.pair(re, im)
        lanes, whole, part = re.lanes, shape(type, re.lanes), shape(re.type, re.lanes)
        if lanes == 1:
            first = self.put(type, 1, f"insertelement {whole} poison, {part} {re.text}, i64 0")
            return self.put(type, 1, f"insertelement {whole} {first.text}, {part} {im.text}, i64 1")
        places = _lanes_list([place for i in range(lanes) for place in (i, lanes + i)])
        return self.put(type, lanes, f"shufflevector {part} {re.text}, {part} {im.text}, <{2 * lanes} x i32> {places}")

    # --- what seldom happens ----------------------------------------------------------------------------------------

    def rare(self, condition, usual, otherwise):
        """`usual`; but where `condition` holds in some lane, what `otherwise()` writes, in a block of its own."""
        mark = next(self.names)
        some = condition.text
        if condition.lanes > 1:
            name, llvm_type = f"@llvm.vector.reduce.or.v{condition.lanes}i1", shape("b1", condition.lanes)
            self.declared.add(f"declare i1 {name}({llvm_type})")
            some = self.put("b1", 1, f"call i1 {name}({llvm_type} {some})").text
        self.lines += [f"  br label %B{mark}", f"B{mark}:", f"  br i1 {some}, label %R{mark}, label %J{mark}",
                       f"R{mark}:"]
        self.label = f"R{mark}"
        other = otherwise()
        came = self.label
        self.lines += [f"  br label %J{mark}", f"J{mark}:"]
        self.label = f"J{mark}"
        type = shape(usual.type, usual.lanes)
        return self.put(usual.type, usual.lanes, f"phi {type} [ {usual.text}, %B{mark} ], [ {other.text}, %{came} ]")

    def lane(self, x, i):
        if x.lanes == 1:
            return x
        return self.put(x.type, 1, f"extractelement {shape(x.type, x.lanes)} {x.text}, i64 {i}")

    def by_lane(self, function, *args):
        """What the scalar `function` (one of `defined`, on doubles) gives for each lane of `args`."""
        first = args[0]
        out = Term(self, first.type, first.lanes, "poison")
        for i in range(first.lanes):
            given = ", ".join(f"double {self.cast(self.lane(a, i), 'f64').text}" for a in args)
            got = self.cast(self.put("f64", 1, f"call double @{function}({given})"), first.type)
            if first.lanes == 1:
                return got
            vector, single = shape(first.type, first.lanes), shape(first.type, 1)
            out = self.put(first.type, first.lanes, f"insertelement {vector} {out.text}, {single} {got.text}, i64 {i}")
        return out

    # --- conversions ------------------------------------------------------------------------------------------------

    def bits(self, x):
        """The bits of a float as an integer of its size."""
        type = INT_OF_SAME_SIZE[x.type]
        return self.put(type, x.lanes, f"bitcast {shape(x.type, x.lanes)} {x.text} to {shape(type, x.lanes)}")

    def from_bits(self, i, type):
        return self.put(type, i.lanes, f"bitcast {shape(i.type, i.lanes)} {i.text} to {shape(type, i.lanes)}")

    def cast(self, x, type):
        """`x` converted, as C does on x86."""
        if x.type == type:
            return x
        if x.value is not None and not (x.type in ("f32", "f64") and type not in ("f32", "f64")):
            return self.const(x.value, type, x.lanes)
        if x.type == "bf16":
            wide = self.put("i32", x.lanes, f"zext {shape('bf16', x.lanes)} {x.text} to {shape('i32', x.lanes)}")
            return self.cast(self.from_bits(wide << 16, "f32"), type)
        if type == "bf16":
            return self._to_bf16(self.cast(x, "f32"))
        if x.type == "f16":
            return self.cast(self._from_f16(x), type)
        if type == "f16":
            return self._to_f16(self._to_odd_f32(x) if x.type == "f64" else self.cast(x, "f32"))
        source, target = shape(x.type, x.lanes), shape(type, x.lanes)
        if type == "b1":
            return x != 0
        if x.type in ("f32", "f64") and type in ("f32", "f64"):
            word = "fpext" if BITS_OF_TYPE[x.type] < BITS_OF_TYPE[type] else "fptrunc"
        elif x.type in ("f32", "f64"):
            return self._to_int(x, type)
        elif type in ("f32", "f64"):
            word = "uitofp" if x.type in ("u8", "b1") else "sitofp"
        elif BITS_OF_TYPE[x.type] < BITS_OF_TYPE[type]:
            word = "zext" if x.type in ("u8", "b1") else "sext"
        elif BITS_OF_TYPE[x.type] > BITS_OF_TYPE[type]:
            word = "trunc"
        else:
            return Term(self, type, x.lanes, x.text)                 # i8 and u8 are the same bits
        return self.put(type, x.lanes, f"{word} {source} {x.text} to {target}")

    def _to_int(self, x, type):
        """Towards zero. What does not fit becomes the least integer, as x86 has it, and small types keep low bits."""
        wide = "i64" if type in ("i64", "u8") else "i32"
        bound = 2.0 ** (BITS_OF_TYPE[wide] - 1)
        inside = self.where((x >= -bound) & (x < bound), x, -bound)
        near = self.put(wide, x.lanes, f"fptosi {shape(x.type, x.lanes)} {inside.text} to {shape(wide, x.lanes)}")
        return self.cast(near, type)

    def _from_f16(self, x):
        """A half as a float32."""
        if self.target.half:
            half = self.new()
            self.lines.append(f"  {half} = bitcast {shape('f16', x.lanes)} {x.text} to {_halves_of(x.lanes)}")
            return self.put("f32", x.lanes, f"fpext {_halves_of(x.lanes)} {half} to {shape('f32', x.lanes)}")
        raw = self.put("i32", x.lanes, f"zext {shape('f16', x.lanes)} {x.text} to {shape('i32', x.lanes)}")
        size = raw & 0x7FFF
        # A denormal number is its bits times 2^-24, which are the last bits of 1/2. Others get another bias, and what
        # is infinite or NaN that of float32, by as much once more.
        tiny = self.bits(self.from_bits(size + 0x3F000000, "f32") - 0.5)
        wide = (size << 13) + (112 << 23)
        wide = self.where(size < 0x400, tiny, self.where(size >= 0x7C00, wide + (112 << 23), wide))
        return self.from_bits(wide | (raw & 0x8000) << 16, "f32")

    def _to_f16(self, x):
        """A float32 as a half: the nearest, half to even; NaN stays NaN."""
        if self.target.half:
            half = self.put("f16", x.lanes, f"fptrunc {shape('f32', x.lanes)} {x.text} to {_halves_of(x.lanes)}")
            return self.put("f16", x.lanes, f"bitcast {_halves_of(x.lanes)} {half.text} to {shape('f16', x.lanes)}")
        raw = self.bits(x)
        size = raw & 0x7FFFFFFF
        odd = (size >> 13) & 1
        near = ((size + (odd + 0xFFF)) >> 13) - (112 << 10)
        near = self.where(size >= 0x47800000, 0x7C00, near)                      # 2^16; half less rounds up to it
        tiny = self.bits(self.from_bits(size, "f32") + 0.5) - 0x3F000000         # below 2^-14: rounded by the addition
        near = self.where(size < 0x38800000, tiny, near)
        near = self.where(size > 0x7F800000, (size >> 13 & 0x3FF) | 0x7E00, near)
        near = near | (self.logical_shr(raw, 16) & 0x8000)
        return self.put("f16", x.lanes, f"trunc {shape('i32', x.lanes)} {near.text} to {shape('f16', x.lanes)}")

    def _to_odd_f32(self, x):
        """A float64 as a float32 that may be rounded once more: what is cut off stays as a last bit that is odd."""
        raw = self.bits(x)
        cut = (1 << 29) - 1
        kept = (raw & ~cut) | self.where((raw & cut) == 0, 0, self.const(1 << 29, "i64"))
        return self.cast(self.from_bits(kept, "f64"), "f32")

    def _to_bf16(self, x):
        """Round to the nearest, half to even; NaN stays NaN."""
        raw = self.bits(x)
        odd = self.logical_shr(raw, 16) & 1
        near = self.logical_shr(raw + (odd + 0x7FFF), 16)
        kept = self.where(self.isnan(x), self.logical_shr(raw, 16) | 0x40, near)
        return self.put("bf16", x.lanes, f"trunc {shape('i32', x.lanes)} {kept.text} to {shape('bf16', x.lanes)}")



def _halves_of(lanes):
    return "half" if lanes == 1 else f"<{lanes} x half>"



def _lanes_list(places):
    """Lanes, as a shuffle lists them."""
    return f"<{', '.join(f'i32 {i}' for i in places)}>"
