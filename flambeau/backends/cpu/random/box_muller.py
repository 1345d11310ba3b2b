"""Normal samples by Box and Muller's formula, with the bits of PyTorch's: radius times cosine and sine of an angle.

Sixteen units, numbers in [0, 1), give as many samples: eight radii, eight angles; eight cosines, eight sines.

Note [Whose functions]: for float64, and on most processors for float32, PyTorch asks the system for logarithms, cosines
and sines, one by one. On x86-64 with AVX2 it takes eight float32 at a time, with the functions of the Cephes library
(S. Moshier), whose polynomials its compiler evaluates with fused multiply-adds. Which of the two it is, the machine
decides, and not what kernels are compiled for. Either way the last step, times the deviation plus the mean, rounds
once.
"""
import functools
import math
import platform

import numpy as np

from ....loops.spelling import literal
from ..llvm_writer import LLVMWriter
from .fma import FLOAT32, multiply_add, multiply_add32

MANTISSA, HALF_BITS = 2**23 - 1, 0x3f000000              # of a float32; the bits of 0.5

# Cephes, single precision. A polynomial starts at the highest power.
CEPHES_SQRT_HALF = 0.707106781186547524
CEPHES_LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
              2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)
LN2_LOW, LN2_HIGH = -2.12194440e-4, 0.693359375
FOUR_OVER_PI = 1.27323954473516
MINUS_QUARTER_PI = (-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8)      # in parts
CEPHES_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
CEPHES_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)


@functools.cache
def has_vectors():
    """Whether PyTorch has its own functions for float32 on this machine: see Note [Whose functions]."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    from numpy._core._multiarray_umath import __cpu_features__ as features
    return features["AVX2"] and features["FMA3"]


# --- in NumPy ---------------------------------------------------------------------------------------------------------


def from_units(units, mean, std, system):
    """The samples for `units`, an array of float32 or float64 of a multiple of sixteen elements.

    `system(name, array)` gives what a function of the system's gives for each element.
    """
    real = units.dtype.type
    u1, u2 = np.ascontiguousarray(units.reshape(-1, 2, 8).swapaxes(0, 1))
    if units.dtype == FLOAT32 and has_vectors():
        log = logarithm(real(1) - u1)
        sine, cosine = sine_and_cosine(real(2 * math.pi) * u2)
    else:
        suffix = "f" if units.dtype == FLOAT32 else ""
        log = system("log" + suffix, real(1) - u1)
        angle = (2 * math.pi * u2.astype(np.float64)).astype(units.dtype)
        sine, cosine = system("sin" + suffix, angle), system("cos" + suffix, angle)
    radius = np.sqrt(real(-2) * log)
    out = np.empty((len(u1), 2, 8), units.dtype)
    np.multiply(radius, cosine, out=out[:, 0])
    np.multiply(radius, sine, out=out[:, 1])
    return multiply_add(out.reshape(-1), float(real(std)), float(real(mean)))


def logarithm(x):
    """Of float32 in (0, 1]: x = 2**e m with m between sqrt(1/2) and sqrt(2), and log m is a polynomial in m - 1."""
    bits = x.view(np.int32)
    m = ((bits & MANTISSA) | HALF_BITS).view(FLOAT32)
    small = m < FLOAT32.type(CEPHES_SQRT_HALF)
    e = ((bits >> 23) - 126 - small).astype(FLOAT32)
    m = m - FLOAT32.type(1) + np.where(small, m, FLOAT32.type(0))
    z, y = m * m, FLOAT32.type(CEPHES_LOG[0])
    for c in CEPHES_LOG[1:]:
        y = multiply_add32(y, m, FLOAT32.type(c))
    y = multiply_add32(y * m, z, e * FLOAT32.type(LN2_LOW))
    y = multiply_add32(z, FLOAT32.type(-0.5), y)
    return multiply_add32(e, FLOAT32.type(LN2_HIGH), m + y)


def sine_and_cosine(x):
    """Of float32 in [0, 2 pi]: x is j quarters of pi, j even, and a rest, of which there are two polynomials."""
    j = (x * FLOAT32.type(FOUR_OVER_PI)).astype(np.int32) + 1 & -2
    quarters = j.astype(FLOAT32)
    for part in MINUS_QUARTER_PI:
        x = multiply_add32(quarters, FLOAT32.type(part), x)
    z = x * x
    sine, cosine = FLOAT32.type(CEPHES_SIN[0]), FLOAT32.type(CEPHES_COS[0])
    for s, c in zip(CEPHES_SIN[1:], CEPHES_COS[1:], strict=True):
        sine, cosine = multiply_add32(sine, z, FLOAT32.type(s)), multiply_add32(cosine, z, FLOAT32.type(c))
    sine = multiply_add32(sine * z, x, x)
    cosine = multiply_add32(cosine * z, z, z * FLOAT32.type(-0.5)) + FLOAT32.type(1)
    crossed = j & 2 != 0
    sine, cosine = np.where(crossed, cosine, sine), np.where(crossed, sine, cosine)
    return np.where(j & 4 != 0, -sine, sine), np.where(j + 2 & 4 != 0, -cosine, cosine)


# --- compiled ---------------------------------------------------------------------------------------------------------


def text(target):
    """`normals`: the same of float32, from words of the twister to `out`, in blocks of sixteen; with these functions.

    Two blocks at a time fill a vector of AVX-512, or two of AVX2.
    """
    if not target.fma:
        return ""
    w = LLVMWriter("define void @normals(ptr %words, ptr %out, i64 %blocks, float %mean, float %std)")
    pairs = w.down("%blocks", 2)
    for first, last, at_once in ((0, pairs, 2), (pairs, "%blocks", 1)):
        with w.loop(first, last, at_once) as k:
            _blocks(w, *[w.at("i32", base, w.mul(k.i, 16)) for base in ("%words", "%out")], at_once)
    return "\n".join([f"declare {v} @llvm.{name}.v{lanes}f32({', '.join([v] * count)})"
                      for lanes, v in ((8, "<8 x float>"), (16, "<16 x float>"))
                      for name, count in (("fma", 3), ("sqrt", 1))] + [w.text()])


class FloatWords:
    """Words on vectors of `lanes` floats, `v`, and on whole numbers of as many bits, `i`, for an LLVMWriter."""

    def __init__(self, w, lanes):
        self.w, self.lanes, self.v, self.i = w, lanes, f"<{lanes} x float>", f"<{lanes} x i32>"

    def c(self, value):          return literal(value, "f32", self.lanes)
    def n(self, value):          return literal(value, "i32", self.lanes)
    def mul(self, a, b):         return self.w(f"fmul {self.v} {a}, {b}")
    def add(self, a, b):         return self.w(f"fadd {self.v} {a}, {b}")
    def sub(self, a, b):         return self.w(f"fsub {self.v} {a}, {b}")
    def fma(self, a, b, more):
        return self.w(f"call {self.v} @llvm.fma.v{self.lanes}f32({self.v} {a}, {self.v} {b}, {self.v} {more})")
    def pick(self, which, a, b): return self.w(f"select <{self.lanes} x i1> {which}, {self.v} {a}, {self.v} {b}")
    def bits(self, a):           return self.w(f"bitcast {self.v} {a} to {self.i}")
    def number(self, a):         return self.w(f"bitcast {self.i} {a} to {self.v}")
    def some(self, a, mask):     return self.w(f"and {self.i} {a}, {self.n(mask)}")


def _blocks(w, words, out, at_once):
    """Write for one or two blocks what `from_units` computes."""
    lanes = 8 * at_once
    k = FloatWords(w, lanes)

    def unit(start):
        """One in [0, 1) from the low 24 bits of each word: eight of each block, from the block's word `start` on."""
        found = [w.load("<8 x i32>", w.at("i32", words, start + 16 * block), 4) for block in range(at_once)]
        if at_once == 2:
            found = [w(f"shufflevector <8 x i32> {found[0]}, <8 x i32> {found[1]}, <16 x i32> {_counted(0, 16)}")]
        return k.mul(w(f"sitofp {k.i} {k.some(found[0], 2**24 - 1)} to {k.v}"), k.c(2.0**-24))

    log = _logarithm(k, k.sub(k.c(1), unit(0)))
    radius = w(f"call {k.v} @llvm.sqrt.v{lanes}f32({k.v} {k.mul(k.c(-2), log)})")
    for value, start in zip(_cosine_and_sine(k, k.mul(k.c(2 * math.pi), unit(8))), (0, 8), strict=True):
        value = k.fma(k.mul(radius, value), _spread(w, "%std", lanes), _spread(w, "%mean", lanes))
        for block in range(at_once):
            part = value if at_once == 1 else w(f"shufflevector {k.v} {value}, {k.v} poison, <8 x i32> "
                                                f"{_counted(8 * block, 8)}")
            w.store("<8 x float>", part, w.at("float", out, start + 16 * block), 4)


def _logarithm(k, x):
    w, v, i = k.w, k.v, k.i
    x = k.bits(x)
    m = k.number(w(f"or {i} {k.some(x, MANTISSA)}, {k.n(HALF_BITS)}"))
    small = w(f"fcmp olt {v} {m}, {k.c(CEPHES_SQRT_HALF)}")
    e = w(f"sub {i} {w(f'lshr {i} {x}, {k.n(23)}')}, {k.n(126)}")
    e = w(f"sitofp {i} {w(f'add {i} {e}, ' + w(f'sext <{k.lanes} x i1> {small} to {i}'))} to {v}")
    m = k.add(k.sub(m, k.c(1)), k.pick(small, m, k.c(0)))
    z, y = k.mul(m, m), k.c(CEPHES_LOG[0])
    for coefficient in CEPHES_LOG[1:]:
        y = k.fma(y, m, k.c(coefficient))
    y = k.fma(k.mul(y, m), z, k.mul(e, k.c(LN2_LOW)))
    y = k.fma(z, k.c(-0.5), y)
    return k.fma(e, k.c(LN2_HIGH), k.add(m, y))


def _cosine_and_sine(k, x):
    """One after the other, so that the numbers of the first are free when the second is made."""
    w, v, i = k.w, k.v, k.i
    j = w(f"fptosi {v} {k.mul(x, k.c(FOUR_OVER_PI))} to {i}")
    j = k.some(w(f"add {i} {j}, {k.n(1)}"), -2)
    quarters = w(f"sitofp {i} {j} to {v}")
    for part in MINUS_QUARTER_PI:
        x = k.fma(quarters, k.c(part), x)
    z, sine, cosine = k.mul(x, x), k.c(CEPHES_SIN[0]), k.c(CEPHES_COS[0])
    for of_sine, of_cosine in zip(CEPHES_SIN[1:], CEPHES_COS[1:], strict=True):
        sine, cosine = k.fma(sine, z, k.c(of_sine)), k.fma(cosine, z, k.c(of_cosine))
    sine = k.fma(k.mul(sine, z), x, x)
    cosine = k.add(k.fma(k.mul(cosine, z), z, k.mul(z, k.c(-0.5))), k.c(1))
    crossed = w(f"icmp ne {i} {k.some(j, 2)}, {k.n(0)}")
    for value, other, turned in ((cosine, sine, w(f"add {i} {j}, {k.n(2)}")), (sine, cosine, j)):
        sign = w(f"shl {i} {k.some(turned, 4)}, {k.n(29)}")
        yield k.number(w(f"xor {i} {k.bits(k.pick(crossed, other, value))}, {sign}"))


def _counted(first, count):
    """So many lanes from the first on, as a shuffle lists them."""
    return f"<{', '.join(f'i32 {lane}' for lane in range(first, first + count))}>"


def _spread(w, number, lanes):
    """A number in every lane."""
    v = f"<{lanes} x float>"
    return w(f"shufflevector {v} {w(f'insertelement {v} poison, float {number}, i64 0')}, {v} poison, "
             f"<{lanes} x i32> zeroinitializer")
