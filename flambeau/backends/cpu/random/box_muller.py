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

from ....loops.emit import literal
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
        kind = "f" if units.dtype == FLOAT32 else ""
        log = system("log" + kind, real(1) - u1)
        angle = (2 * math.pi * u2.astype(np.float64)).astype(units.dtype)
        sine, cosine = system("sin" + kind, angle), system("cos" + kind, angle)
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
            _blocks(w, *[w.at("i32", place, w.mul(k.i, 16)) for place in ("%words", "%out")], at_once)
    return "\n".join([f"declare {v} @llvm.{name}.v{lanes}f32({', '.join([v] * count)})"
                      for lanes, v in ((8, "<8 x float>"), (16, "<16 x float>"))
                      for name, count in (("fma", 3), ("sqrt", 1))] + [w.text()])


def _blocks(w, words, out, at_once):
    """Write for one or two blocks what `from_units` computes."""
    lanes = 8 * at_once
    v, i = f"<{lanes} x float>", f"<{lanes} x i32>"

    def c(value):            return literal(value, "f32", lanes)
    def n(value):            return literal(value, "i32", lanes)
    def mul(a, b):           return w(f"fmul {v} {a}, {b}")
    def add(a, b):           return w(f"fadd {v} {a}, {b}")
    def sub(a, b):           return w(f"fsub {v} {a}, {b}")
    def fma(a, b, more):     return w(f"call {v} @llvm.fma.v{lanes}f32({v} {a}, {v} {b}, {v} {more})")
    def pick(which, a, b):   return w(f"select <{lanes} x i1> {which}, {v} {a}, {v} {b}")
    def bits(a):             return w(f"bitcast {v} {a} to {i}")
    def number(a):           return w(f"bitcast {i} {a} to {v}")
    def some(a, mask):       return w(f"and {i} {a}, {n(mask)}")
    def spread(a):           return _spread(w, a, lanes)

    def unit(start):
        """One in [0, 1) from the low 24 bits of each word: eight of each block, from the block's place `start` on."""
        found = [w.load("<8 x i32>", w.at("i32", words, start + 16 * block), 4) for block in range(at_once)]
        if at_once == 2:
            found = [w(f"shufflevector <8 x i32> {found[0]}, <8 x i32> {found[1]}, <16 x i32> {_counted(0, 16)}")]
        return mul(w(f"sitofp {i} {some(found[0], 2**24 - 1)} to {v}"), c(2.0**-24))

    # the logarithm
    x = bits(sub(c(1), unit(0)))
    m = number(w(f"or {i} {some(x, MANTISSA)}, {n(HALF_BITS)}"))
    small = w(f"fcmp olt {v} {m}, {c(CEPHES_SQRT_HALF)}")
    e = w(f"sub {i} {w(f'lshr {i} {x}, {n(23)}')}, {n(126)}")
    e = w(f"sitofp {i} {w(f'add {i} {e}, ' + w(f'sext <{lanes} x i1> {small} to {i}'))} to {v}")
    m = add(sub(m, c(1)), pick(small, m, c(0)))
    z, y = mul(m, m), c(CEPHES_LOG[0])
    for coefficient in CEPHES_LOG[1:]:
        y = fma(y, m, c(coefficient))
    y = fma(mul(y, m), z, mul(e, c(LN2_LOW)))
    y = fma(z, c(-0.5), y)
    log = fma(e, c(LN2_HIGH), add(m, y))
    radius = w(f"call {v} @llvm.sqrt.v{lanes}f32({v} {mul(c(-2), log)})")

    # the sine and the cosine
    x = mul(c(2 * math.pi), unit(8))
    j = w(f"fptosi {v} {mul(x, c(FOUR_OVER_PI))} to {i}")
    j = some(w(f"add {i} {j}, {n(1)}"), -2)
    quarters = w(f"sitofp {i} {j} to {v}")
    for part in MINUS_QUARTER_PI:
        x = fma(quarters, c(part), x)
    z, sine, cosine = mul(x, x), c(CEPHES_SIN[0]), c(CEPHES_COS[0])
    for of_sine, of_cosine in zip(CEPHES_SIN[1:], CEPHES_COS[1:], strict=True):
        sine, cosine = fma(sine, z, c(of_sine)), fma(cosine, z, c(of_cosine))
    sine = fma(mul(sine, z), x, x)
    cosine = add(fma(mul(cosine, z), z, mul(z, c(-0.5))), c(1))
    crossed = w(f"icmp ne {i} {some(j, 2)}, {n(0)}")
    for value, other, turned, start in ((cosine, sine, w(f"add {i} {j}, {n(2)}"), 0), (sine, cosine, j, 8)):
        sign = w(f"shl {i} {some(turned, 4)}, {n(29)}")
        value = number(w(f"xor {i} {bits(pick(crossed, other, value))}, {sign}"))
        value = fma(mul(radius, value), spread("%std"), spread("%mean"))
        for block in range(at_once):
            part = value if at_once == 1 else w(f"shufflevector {v} {value}, {v} poison, <8 x i32> "
                                                f"{_counted(8 * block, 8)}")
            w.store("<8 x float>", part, w.at("float", out, start + 16 * block), 4)


def _counted(first, count):
    """So many lanes from the first on, as a shuffle lists them."""
    return f"<{', '.join(f'i32 {lane}' for lane in range(first, first + count))}>"


def _spread(w, number, lanes):
    """A number in every lane."""
    v = f"<{lanes} x float>"
    return w(f"shufflevector {v} {w(f'insertelement {v} poison, float {number}, i64 0')}, {v} poison, "
             f"<{lanes} x i32> zeroinitializer")
