"""The scalar mathematics, compiled and held against NumPy in wider precision: units in the last place, and the ends.

Twice: as the processor at hand has it, and as one that lacks fma and rounding has it, in plain arithmetic.
"""
import ctypes
from itertools import count

import numpy as np
import pytest

from flambeau.backends.cpu import machine_code
from flambeau.base import special_functions
from flambeau.loops.emit import Emit, Term
from flambeau.loops.ir import TWO_ARGUMENT_WORDS
from flambeau.loops.scalar import SPECIAL_FUNCTIONS, WORD_FUNCTIONS
from flambeau.loops.spelling import shape
from flambeau.loops.target import Target

pytestmark = pytest.mark.pinned

DTYPES = {"f32": np.float32, "f64": np.float64}
LANES = {"f32": 16, "f64": 8}
TWO = sorted(TWO_ARGUMENT_WORDS)
ONE = sorted(set(WORD_FUNCTIONS) - set(TWO))
RNG = np.random.default_rng(7)


TARGET = None                 # what the functions are written for; the next fixture sets it


@pytest.fixture(autouse=True, params=["native", "plain"])
def written_for(request):
    global TARGET
    TARGET = machine_code.target() if request.param == "native" else Target()


@pytest.fixture(autouse=True)
def same_numbers():
    """Each test draws the same numbers, whichever ran before it."""
    global RNG
    RNG = np.random.default_rng(7)


# --- the harness ------------------------------------------------------------------------------------------------------

def loop(name, type, lanes, whole=(0, 1)):
    """`out[i] = name(in[i], ...)` as LLVM text; an argument that is not in `whole` stays at its first element."""
    lines, declared, defined = [], set(), {}
    e = Emit(lines, count(), declared, defined, "body", TARGET)
    kind, one, args = shape(type, lanes), shape(type, 1), []
    for a in range(1 + (name in TWO)):
        at, n = ("%i", lanes) if a in whole else ("0", 1)
        lines.append(f"  %p{a} = getelementptr {one}, ptr %in{a}, i64 {at}")
        args.append(e.put(type, n, f"load {shape(type, n)}, ptr %p{a}, align {DTYPES[type]().itemsize}"))
    out = WORD_FUNCTIONS[name](e, *(Term(e, type, a.lanes, a.text) for a in args))
    return "\n".join([
        "define void @f(ptr %in0, ptr %in1, ptr %out, i64 %n) nounwind \"prefer-vector-width\"=\"512\" {",
        "entry:", "  br label %body", "body:", f"  %i = phi i64 [ 0, %entry ], [ %next, %{e.label} ]", *lines,
        f"  %p = getelementptr {one}, ptr %out, i64 %i",
        f"  store {kind} {out.text}, ptr %p, align {DTYPES[type]().itemsize}", f"  %next = add i64 %i, {lanes}",
        "  %more = icmp slt i64 %next, %n", "  br i1 %more, label %body, label %end", "end:", "  ret void", "}",
        *defined.values(), *sorted(declared), ""])


def run(name, type, *args, lanes=None, whole=(0, 1)):
    lanes = lanes or LANES[type]
    text = loop(name, type, lanes, whole)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(machine_code.function("f", text))
    n = args[0].size
    padded = [np.concatenate([a, np.ones(-n % lanes, a.dtype)]) for a in args]
    out = np.empty_like(padded[0])
    call(padded[0].ctypes.data, padded[-1].ctypes.data, out.ctypes.data, out.size)
    return out[:n]


# --- what is true -----------------------------------------------------------------------------------------------------

NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "asinh": "arcsinh",
         "acosh": "arccosh", "atanh": "arctanh", "pow": "power"}
SPECIAL = ("erf", "erfc", "erfinv", "lgamma", "digamma", *SPECIAL_FUNCTIONS)


def truth(name, *args):
    """The result in the arguments' precision, which is wider than that of the function under test."""
    with np.errstate(all="ignore"):
        if name in SPECIAL:
            return getattr(special_functions, name)(np, *args)
        if name == "sigmoid":
            return np.where(args[0] < 0, np.exp(args[0]) / (1 + np.exp(args[0])), 1 / (1 + np.exp(-args[0])))
        if name == "rsqrt":
            return 1 / np.sqrt(args[0])
        return getattr(np, NUMPY.get(name, name))(*args)


def distance(got, want):
    """How many floats `got` is away from the correctly rounded `want`; NaN and signs of zeros have to agree."""
    with np.errstate(all="ignore"):
        want = want.astype(got.dtype)
    wrong = (np.isnan(got) != np.isnan(want)) | ((want == 0) & (got == 0) & (np.signbit(got) != np.signbit(want)))
    kind = {4: np.int32, 8: np.int64}[got.itemsize]

    def ordered(x):
        i = x.view(kind)
        return np.where(i < 0, np.iinfo(kind).min - i, i).astype(np.float64 if kind is np.int32 else np.longdouble)

    return np.where(wrong, np.inf, np.where(np.isnan(want), 0, np.abs(ordered(got) - ordered(want))))


def worst(name, got, want, *args):
    """The greatest distance, and a sentence that tells where."""
    far = distance(got, want)
    i = int(np.argmax(far))
    return far[i], f"{name}({', '.join(repr(a[i]) for a in args)}) = {got[i]!r}, not {want[i]!r}"


ENDS = [0.0, 1.0, 0.5, 2.0, 3.0, 1e-30, 1e30, np.inf]


def ends(dtype):
    info = np.finfo(dtype)
    some = np.array([*ENDS, info.tiny, info.smallest_subnormal, info.max, 1 - info.epsneg, 1 + info.eps], dtype)
    return np.concatenate([some, -some, [dtype(np.nan)]])


def every_exponent(dtype, each):
    """Floats of every sign and exponent, denormal numbers and the ends of the mantissa included."""
    bits, top = {np.float32: (23, 9), np.float64: (52, 12)}[dtype]
    unsigned = {4: np.uint32, 8: np.uint64}[dtype().itemsize]
    mantissa = np.concatenate([[0, 1, (1 << bits) - 1], RNG.integers(0, 1 << bits, each - 3)]).astype(unsigned)
    x = (np.arange(1 << top, dtype=unsigned)[:, None] << unsigned(bits) | mantissa).reshape(-1).view(dtype)
    return np.where(np.isnan(x), dtype(np.nan), x)               # no signalling ones, which warn


def inputs(name, dtype, each, dense):
    usual = [RNG.uniform(-1, 1, dense), RNG.uniform(-12, 12, dense), RNG.uniform(-120, 120, dense),
             1 + RNG.uniform(-0.01, 0.01, dense)]
    return np.concatenate([ends(dtype), every_exponent(dtype, each), np.concatenate(usual).astype(dtype)])


# --- the tests --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ONE)
def test_float32(name):
    x = inputs(name, np.float32, 600, 40_000)
    far, where = worst(name, run(name, "f32", x), truth(name, x.astype(np.float64)), x)
    assert far <= 2, where


wide = pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long double is no wider than double here")
LOOSE = {"erf": 3, "erfc": 8, "erfinv": 8, "lgamma": 6, "digamma": 6, "erfcx": 8, "ndtri": 14, "i0": 8, "i0e": 8,
         "i1": 8, "i1e": 8}                         # against an oracle that errs as much itself


@wide
@pytest.mark.parametrize("name", ONE)
def test_float64(name):
    x = inputs(name, np.float64, 8, 4000)
    if name in ("lgamma", "digamma"):
        x = x[~(x < 0)]
    exact = x if name in SPECIAL else x.astype(np.longdouble)
    far, where = worst(name, run(name, "f64", x), truth(name, exact), x)
    assert far <= LOOSE.get(name, 2), where


@wide
@pytest.mark.parametrize("name, a, b", [
    ("pow", (-3.0, 3.0), None), ("pow", (0.3, 3.0), (-600, 600)), ("pow", (1 - 1e-5, 1 + 1e-5), (-7e6, 7e6)),
    ("pow", (-9.0, 9.0), range(-9, 9)), ("atan2", (-3.0, 3.0), (-3.0, 3.0)), ("atan2", None, None)])
@pytest.mark.parametrize("type", ["f32", "f64"])
def test_two_arguments(name, a, b, type):
    dtype, n = DTYPES[type], 40_000 if type == "f32" else 4000

    def draw(span):
        if span is None:
            x = every_exponent(dtype, 40 if type == "f32" else 3)
            return RNG.choice(x[np.isfinite(x)], n)
        return (RNG.choice(span, n) if isinstance(span, range) else RNG.uniform(*span, n)).astype(dtype)

    x, y = draw(a), draw(b)
    far, where = worst(name, run(name, type, x, y), truth(name, x.astype(np.longdouble), y.astype(np.longdouble)), x, y)
    assert far <= 2, where


@pytest.mark.parametrize("name", TWO)
@pytest.mark.parametrize("type", ["f32", "f64"])
def test_two_arguments_at_the_ends(name, type):
    """C's rules: pow(1, nan), pow(-1, inf), pow(-0, -3), atan2(-0, -0) and all the others."""
    dtype = DTYPES[type]
    some = np.concatenate([ends(dtype), np.array([2.0**24, 2.0**24 + 2, 2.0**53, 1e-5, -2.5, -7], dtype)])
    x, y = (a.reshape(-1) for a in np.meshgrid(some, some))
    want = truth(name, x.astype(np.float64), y.astype(np.float64))
    far, where = worst(name, run(name, type, x, y), want, x, y)
    assert far <= 2, where


@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize("name", sorted(WORD_FUNCTIONS))
def test_lanes_do_not_matter(name, type):
    """One element at a time, and vectors of any length, give the same bits."""
    x = np.concatenate([ends(DTYPES[type]), every_exponent(DTYPES[type], 4)[:4096]])
    x = RNG.permutation(x)
    args = (x, RNG.permutation(x)) if name in TWO else (x,)
    kind = {"f32": np.int32, "f64": np.int64}[type]
    first = run(name, type, *args)
    for lanes in (1, 2 * LANES[type]):
        other = run(name, type, *args, lanes=lanes)
        same = (first.view(kind) == other.view(kind)) | (np.isnan(first) & np.isnan(other))
        assert same.all(), f"{name}: {lanes} lanes differ at {[a[~same][0] for a in args]}"


def test_one_argument_for_all_lanes():
    x, y = RNG.uniform(0.1, 3, 64).astype(np.float32), np.full(64, 1.7, np.float32)
    for name in TWO:
        assert (run(name, "f32", x, y, whole=(0,)) == run(name, "f32", x, y)).all()
        assert (run(name, "f32", y, x, whole=(1,)) == run(name, "f32", y, x)).all()


def test_powers_of_two_are_exact():
    for type, low, high in (("f32", -149, 128), ("f64", -1074, 1024)):
        k = np.arange(low, high).astype(DTYPES[type])
        power = np.ldexp(DTYPES[type](1), k.astype(np.int32))
        assert (run("exp2", type, k) == power).all()
        assert (run("log2", type, power) == k).all()
        assert (run("pow", type, np.full_like(k, 2), k) == power).all()


def test_the_hardest_angle():
    """The float64 that is closest to a multiple of pi/2 in proportion; its cosine from the literature."""
    x = np.array([6381956970095103 * 2.0**797])
    assert run("cos", "f64", x)[0] == pytest.approx(-4.68716592425462761112e-19, rel=3e-16)
    assert run("sin", "f64", x)[0] == 1.0
    assert run("tan", "f64", x)[0] == pytest.approx(1 / -4.68716592425462761112e-19, rel=4e-16)


@pytest.mark.parametrize("name, span, bound", [
    ("erf", (-6.5, 6.5), 2), ("erf", (-0.6, 0.6), 2), ("erfc", (-6.0, 27.3), 2), ("erfc", (0.3, 3.0), 2),
    ("erfinv", (-1.0, 1.0), 4), ("erfinv", (0.99, 1.0), 5), ("lgamma", (0.0, 4.0), 4), ("lgamma", (4.0, 200.0), 3),
    ("digamma", (0.0, 4.0), 4), ("digamma", (4.0, 200.0), 3)])
def test_special_functions_against_mpmath(name, span, bound):
    mp = pytest.importorskip("mpmath")
    x = RNG.uniform(*span, 150)
    true = {"lgamma": "loggamma"}.get(name, name)
    with mp.workdps(40):
        want = np.array([float(getattr(mp, true)(mp.mpf(v))) for v in x])
    far, where = worst(name, run(name, "f64", x), want, x)
    assert far <= bound, where


@wide
@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_gamma_functions_of_negative_numbers(name):
    """Here terms cancel near the zeros: the error is measured beside the terms of the reflection."""
    x = RNG.uniform(-30, 0, 4000)
    x = x[np.abs(x - np.rint(x)) > 1e-3]
    pi = np.longdouble("3.14159265358979323846264338327950288")
    r = (x - np.rint(x)) * pi
    if name == "lgamma":
        terms = [np.log(pi), -np.log(np.abs(x * np.sin(r))), -truth("lgamma", -x)]
    else:
        terms = [truth("digamma", 1 - x), -pi / np.tan(r)]
    got = run(name, "f64", x)
    assert np.max(np.abs(got - sum(terms)) / sum(map(np.abs, terms))) < 8 * 2.0**-53


@pytest.mark.parametrize("type", DTYPES)
def test_limits_are_reached_exactly(type):
    """erf far out is 1, not a float below it: what is left of 1 - erf would not be small beside gelu's operand."""
    far = np.array([6, -6, 10, -10, 30, -30, 1e5, 1e30, np.inf, -np.inf], DTYPES[type])
    np.testing.assert_array_equal(run("erf", type, far), np.sign(far))
    np.testing.assert_array_equal(run("tanh", type, far[4:]), np.sign(far[4:]))
    assert run("sigmoid", type, np.array([np.inf, -np.inf], DTYPES[type])).tolist() == [1, 0]


def test_lgamma_left_of_zero_goes_up_to_it():
    near = -np.array([1e-3, 1e-19, 1e-21, 1e-160, 1e-300, 5e-324])
    np.testing.assert_allclose(run("lgamma", "f64", near), special_functions.lgamma(np, near), rtol=1e-15)
