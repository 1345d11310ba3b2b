"""The words of bodies that loops/colour.py says, written as LLVM's instructions on vectors of floats."""
import struct


class Lane:
    """A vector of floats by its name in the text, with operators: an expression for loops/colour.py."""

    __slots__ = ("words", "name")
    dtype = None

    def __init__(self, words, name):
        self.words, self.name = words, name

    def _with(self, how, other):
        return self.words.call(how, self, other if isinstance(other, Lane) else self.words.const(other))

    def __add__(self, other):      return self._with("fadd", other)
    def __sub__(self, other):      return self._with("fsub", other)
    def __mul__(self, other):      return self._with("fmul", other)
    def __truediv__(self, other):  return self._with("fdiv", other)
    def __eq__(self, other):       return self._with("fcmp oeq", other)

    __hash__ = None


class LaneWords:
    """The words of bodies that loops/colour.py says, written as LLVM's instructions on vectors of `count` floats."""

    def __init__(self, w, count, target):
        self.w, self.count, self.has_fma, self.has_rounding = w, count, target.fma, target.rounding
        self.type, self.short = f"<{count} x float>", f"v{count}f32"

    def declarations(self):
        t = self.type
        return "\n".join([f"declare {t} @llvm.{name}.{self.short}({', '.join([t] * n)})"
                          for name, n in (("fma", 3), ("floor", 1), ("rint", 1), ("fabs", 1), ("copysign", 2),
                                          ("minnum", 2), ("maxnum", 2))]
                         + ["declare i64 @llvm.smin.i64(i64, i64)", "declare i64 @llvm.smax.i64(i64, i64)",
                            "declare i32 @llvm.smin.i32(i32, i32)", "declare i32 @llvm.smax.i32(i32, i32)",
                            "declare float @llvm.fma.f32(float, float, float)",
                            "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)", ""])

    def call(self, how, *args):
        return Lane(self, self.w(f"{how} {self.type} {', '.join(arg.name for arg in args)}"))

    def _intrinsic(self, name, *args):
        given = ", ".join(f"{self.type} {arg.name}" for arg in args)
        return Lane(self, self.w(f"call {self.type} @llvm.{name}.{self.short}({given})"))

    def const(self, value, dtype=None):
        return Lane(self, f"<{', '.join([f'float {float_text(value)}'] * self.count)}>")

    def spread(self, number):
        one = self.w(f"insertelement {self.type} poison, float {number}, i64 0")
        return Lane(self, self.w(f"shufflevector {self.type} {one}, {self.type} poison, "
                                 f"<{self.count} x i32> zeroinitializer"))

    def fma(self, a, b, c):     return self._intrinsic("fma", a, b, c) if self.has_fma else a * b + c
    def floor(self, x):
        if self.has_rounding:
            return self._intrinsic("floor", x)
        near = self.rint(x)
        return self.where(self.call("fcmp ogt", near, x), near - 1.0, near)

    def rint(self, x):
        """The nearest whole number, of two the even one. Where the processor cannot: what 2 ** 23 pushes out."""
        if self.has_rounding:
            return self._intrinsic("rint", x)
        far = self._intrinsic("copysign", self.const(float(1 << 23)), x)
        small = self.call("fcmp olt", self._intrinsic("fabs", x), self.const(float(1 << 23)))
        return self.where(small, x + far - far, x)

    def minimum(self, a, b):    return self._intrinsic("minnum", a, b)
    def maximum(self, a, b):    return self._intrinsic("maxnum", a, b)

    def where(self, c, a, b):
        return Lane(self, self.w(f"select <{self.count} x i1> {c.name}, {self.type} {a.name}, {self.type} {b.name}"))


def float_text(value):
    """A number of single precision as LLVM writes it: the bits of the double of the same value."""
    single = struct.unpack("f", struct.pack("f", value))[0]
    return f"0x{struct.unpack('Q', struct.pack('d', single))[0]:016X}"
