"""Conversions of 16-bit floats, fma and rounding in plain arithmetic, against NumPy and exact fractions.

Each as the processor at hand has it, and as one has it that lacks the instructions: both give the same bits.
"""
import ctypes
import math
from fractions import Fraction
from itertools import count

import ml_dtypes
import numpy as np
import pytest

from flambeau.backends.cpu import machine_code
from flambeau.loops.emit import Emit
from flambeau.loops.spelling import half_bits, literal, shape
from flambeau.loops.target import Target

pytestmark = pytest.mark.pinned

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "i64": np.int64,
          "i32": np.int32}
NAMES = {np.float32: "f32", np.float64: "f64"}
LANES = 8


@pytest.fixture(params=["native", "plain"])
def target(request):
    return machine_code.target() if request.param == "native" else Target()


def run(target, write, to, *arrays):
    """`write(emit, *terms)`, of type `to`, of the elements of `arrays`."""
    names = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
    lines, declared, defined = [], set(), {}
    e, terms = Emit(lines, count(), declared, defined, "body", target), []
    for i, array in enumerate(arrays):
        kind = names[array.dtype]
        lines.append(f"  %p{i} = getelementptr {shape(kind, 1)}, ptr %in{i}, i64 %i")
        terms.append(e.put(kind, LANES, f"load {shape(kind, LANES)}, ptr %p{i}, align {array.itemsize}"))
    out = write(e, *terms)
    text = "\n".join([
        "define void @f(ptr %in0, ptr %in1, ptr %in2, ptr %out, i64 %n) {", "entry:", "  br label %body", "body:",
        f"  %i = phi i64 [ 0, %entry ], [ %next, %{e.label} ]", *lines,
        f"  %p = getelementptr {shape(to, 1)}, ptr %out, i64 %i",
        f"  store {shape(to, LANES)} {out.text}, ptr %p, align 2",
        f"  %next = add i64 %i, {LANES}", "  %more = icmp slt i64 %next, %n", "  br i1 %more, label %body, label %end",
        "end:", "  ret void", "}", *defined.values(), *sorted(declared), ""])
    size = arrays[0].size
    padded = [np.concatenate([a, np.zeros(-size % LANES, a.dtype)]) for a in arrays]
    made = np.empty(padded[0].size, DTYPES[to])
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)(machine_code.function("f", text))
    call(*(padded[min(i, len(padded) - 1)].ctypes.data for i in range(3)), made.ctypes.data, made.size)
    return made[:size]


def convert(target, array, to):
    return run(target, lambda e, x: e.cast(x, to), to, array)


def same(got, want):
    """The same bits; any NaN for a NaN."""
    kind = {2: np.uint16, 4: np.uint32, 8: np.uint64}[got.itemsize]
    differ = (got.view(kind) != want.view(kind)) & ~(np.isnan(got) & np.isnan(want))
    assert not differ.any(), f"{differ.sum()} differ, first {got[differ][0]!r}, which is not {want[differ][0]!r}"


HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
BRAINS = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)


def around(points, steps=2):
    """The points and their next few neighbours on both sides, of either sign."""
    out = [points]
    for way in (np.inf, -np.inf):
        near = points
        for _ in range(steps):
            near = np.nextafter(near, points.dtype.type(way))
            out.append(near)
    out = np.concatenate(out)
    return np.concatenate([out, -out])


def midpoints(dtype):
    """Every half, and what lies exactly between two: where rounding is decided."""
    halves = HALVES[:0x7C01].astype(np.float64)
    halves[-1] = 65536.0                              # what would come after the greatest
    return np.concatenate([halves, (halves[1:] + halves[:-1]) / 2]).astype(dtype)


@pytest.mark.parametrize("to", ["f32", "f64"])
def test_every_half_is_widened(target, to):
    with np.errstate(invalid="ignore"):
        same(convert(target, HALVES, to), HALVES.astype(DTYPES[to]))


@pytest.mark.parametrize("to", ["f32", "f64"])
def test_every_bfloat16_is_widened(target, to):
    with np.errstate(invalid="ignore"):
        same(convert(target, BRAINS, to), BRAINS.astype(np.float32).astype(DTYPES[to]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_halves_are_rounded_once(target, dtype):
    """The midpoints and their neighbours: by way of float32, a float64 just beside a midpoint would become it."""
    x = around(midpoints(dtype))
    with np.errstate(all="ignore"):
        same(convert(target, x, "f16"), x.astype(np.float16))


def test_halves_of_all_exponents(target):
    rng = np.random.default_rng(5)
    single = rng.integers(0, 1 << 32, 400_000, dtype=np.uint32).view(np.float32)
    double = rng.integers(0, 1 << 64, 400_000, dtype=np.uint64).view(np.float64)
    usual = np.ldexp(rng.uniform(-1, 1, 200_000), rng.integers(-30, 20, 200_000))
    with np.errstate(all="ignore"):
        for x in (single, double, usual, usual.astype(np.float32)):
            same(convert(target, x, "f16"), x.astype(np.float16))


def test_bfloat16_of_all_exponents(target):
    rng = np.random.default_rng(5)
    x = rng.integers(0, 1 << 32, 400_000, dtype=np.uint32).view(np.float32)
    exact = BRAINS[:0x7F81].astype(np.float32)
    with np.errstate(all="ignore"):
        for points in (x, around((exact[1:] + exact[:-1]) / 2)):
            same(convert(target, points, "bf16"), points.astype(ml_dtypes.bfloat16))


def test_integers_become_halves(target):
    x = np.arange(-70_000, 70_000)
    with np.errstate(all="ignore"):
        same(convert(target, x, "f16"), x.astype(np.float16))


@pytest.mark.parametrize("type", ["f16", "bf16"])
@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, 1.5, -2.5, 1e-7, 65519.999, 65520.0, 1e6, -1e6, 3e38, 1e300,
                                   math.inf, -math.inf, math.nan, 7])
def test_constants(type, value):
    with np.errstate(all="ignore"):
        want = np.array([value], np.float64).astype(np.float32 if type == "bf16" else np.float16).astype(DTYPES[type])
    same(np.array([half_bits(value, type)], np.uint16).view(DTYPES[type]), want)
    assert int(literal(value, type)) & 0xFFFF == half_bits(value, type)


# --- fma --------------------------------------------------------------------------------------------------------------

def nearest(exact, dtype):
    """A fraction as the nearest float, half to even."""
    info = np.finfo(dtype)
    size = max(exact.numerator.bit_length() - exact.denominator.bit_length() - 1, int(info.minexp))
    if abs(exact) >= Fraction(2) ** (size + 1):
        size += 1
    step = Fraction(2) ** (size - info.nmant)
    rounded = round(exact / step) * step
    if abs(rounded) > Fraction(float(info.max)):
        return dtype(math.inf if rounded > 0 else -math.inf)
    return dtype(float(rounded))


@pytest.mark.parametrize("dtype, spread", [(np.float32, 20), (np.float32, 60), (np.float64, 40), (np.float64, 300),
                                           (np.float64, 500)])
def test_fma_exact_rounds_once(target, dtype, spread):
    rng = np.random.default_rng(3)
    n = 4000
    a, b = (np.ldexp(rng.uniform(0.5, 1, n), rng.integers(-spread, spread, n)).astype(dtype) for _ in range(2))
    c = np.ldexp(rng.uniform(-1, 1, n), rng.integers(-2 * spread, 2 * spread, n)).astype(dtype)
    with np.errstate(all="ignore"):
        near = rng.choice([1, 1 - 2.0**-20, 1 + 2.0**-12, 2.0**20, 2.0**-24], n // 2).astype(dtype)
        c[:n // 2] = -(a * b)[:n // 2] * near
        short = (rng.integers(1, 1 << 12, n) / 4).astype(dtype)
        a[::3], b[::3], c[::3] = short[::3], short[::-1][::3], np.ldexp(c[::3] // 1e-3 % 97, rng.integers(-60, 60))
    usable = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    a, b, c = a[usable], b[usable], c[usable]
    got = run(target, lambda e, *args: e.fma_exact(*args), NAMES[dtype], a, b, c)
    want = [nearest(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)), dtype)
            for x, y, z in zip(a, b, c, strict=True)]
    np.testing.assert_array_equal(got, np.array(want, dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fma_exact_at_the_ends(target, dtype):
    info = np.finfo(dtype)
    some = [0.0, -0.0, 1.0, -1.0, info.max, -info.max, info.tiny, info.smallest_subnormal, np.inf, -np.inf, np.nan, 3.0]
    a, b, c = (x.reshape(-1) for x in np.meshgrid(*[np.array(some, dtype)] * 3))
    got = run(target, lambda e, *args: e.fma_exact(*args), NAMES[dtype], a, b, c)
    with np.errstate(all="ignore"):
        wide = (a.astype(np.longdouble) * b + c).astype(dtype)
    plain = np.isnan(wide) | np.isinf(a) | np.isinf(b) | np.isinf(c) | (a == 0) | (b == 0)      # no rounding at all
    same(got[plain], wide[plain])
    finite = np.flatnonzero(~plain)
    want = [nearest(Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i])), dtype) for i in finite]
    np.testing.assert_array_equal(got[finite], np.array(want, dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_a_product_leaves_out(target, dtype):
    rng = np.random.default_rng(3)
    a, b = (np.ldexp(rng.uniform(-1, 1, 4000), rng.integers(-40, 40, 4000)).astype(dtype) for _ in range(2))
    got = run(target, lambda e, x, y: e.product_error(x, y, x * y), NAMES[dtype], a, b)
    want = [Fraction(float(x)) * Fraction(float(y)) - Fraction(float(x * y)) for x, y in zip(a, b, strict=True)]
    assert [Fraction(float(x)) for x in got] == want


# --- rounding ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "rint"])
def test_rounding(target, name, dtype):
    rng = np.random.default_rng(3)
    whole = 2.0**np.arange(0, 60)
    drawn = np.ldexp(rng.uniform(-1, 1, 20_000), rng.integers(-5, 70, 20_000))
    x = [np.arange(-40, 40) / 4, drawn, whole, whole - 0.5, whole + 0.5, [0.0, 1e-40, 1e300, np.inf, np.nan]]
    with np.errstate(all="ignore"):
        x = np.concatenate(x).astype(dtype)
    x = np.concatenate([x, -x])
    same(run(target, lambda e, a: getattr(e, name)(a), NAMES[dtype], x), getattr(np, name)(x))
