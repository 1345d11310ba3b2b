"""Samplers that draw as many numbers as they happen to need, compiled: gamma, Poisson and binomial ones, permutations,
and places among running sums.

    gammas(state, functions, alpha, power, d, out, count, spare)     as `MersenneTwister.standard_gamma` in draws.py
    poissons(state, functions, rates, out, count)                    as `poisson_one`
    binomials(state, functions, counts, probabilities, out, count)   as `binomial_one` in binomial.py
    permutation(state, out, count)                                   as `permutation`
    places(state, rows, out, count, size, samples)                   as `multinomial` with replacement

They take their words from NumPy's state, one after the other, so nothing has to be put back. All arithmetic is float64,
step by step that of the Python functions named, with the system's functions (libm.py): the same bits. What a Python
function raises for, it is asked for.
"""
import ctypes
import functools
import math
from itertools import count as counter

from ....loops.emit import Emit, Term
from ..llvm_writer import LLVMWriter
from . import libm
from .binomial import STIRLING_REST

SYSTEM_FUNCTIONS = ("exp", "log", "log1p", "pow", "sin", "cos", "lgamma")

WORD_TEXT = """define internal i32 @word(ptr %state) {{
entry:
  %position = getelementptr i8, ptr %state, i64 {position}
  %at = load i32, ptr %position
  %empty = icmp eq i32 %at, {words}
  br i1 %empty, label %none, label %some
none:
  call void @twist(ptr %state)
  br label %some
some:
  %i = phi i32 [ 0, %none ], [ %at, %entry ]
  %next = add i32 %i, 1
  store i32 %next, ptr %position
  %p = getelementptr i32, ptr %state, i32 %i
  %y = load i32, ptr %p
  %a = lshr i32 %y, 11
  %b = xor i32 %y, %a
  %c = shl i32 %b, 7
  %d = and i32 %c, {first}
  %e = xor i32 %b, %d
  %f = shl i32 %e, 15
  %g = and i32 %f, {second}
  %h = xor i32 %e, %g
  %j = lshr i32 %h, 18
  %out = xor i32 %h, %j
  ret i32 %out
}}
define internal double @unit(ptr %state) {{
entry:
  %high = call i32 @word(ptr %state)
  %low = call i32 @word(ptr %state)
  %a = zext i32 %high to i64
  %b = zext i32 %low to i64
  %c = shl i64 %a, 32
  %d = or i64 %c, %b
  %e = and i64 %d, {unit_bits}
  %f = sitofp i64 %e to double
  %out = fmul double %f, {unit_scale}
  ret double %out
}}
"""


@functools.cache
def system_functions():
    """The addresses of SYSTEM_FUNCTIONS in a row, as compiled code takes them; None where one is missing."""
    found = [libm.function(name) for name in SYSTEM_FUNCTIONS]
    if None in found:
        return None
    return (ctypes.c_void_p * len(found))(*[ctypes.cast(one, ctypes.c_void_p).value for one in found])


def signatures():
    """{name: what it is given} of the functions of `text`."""
    pointer, whole = ctypes.c_void_p, ctypes.c_int64
    return {"gammas": (*[pointer] * 6, whole, pointer), "poissons": (*[pointer] * 4, whole),
            "binomials": (*[pointer] * 5, whole), "permutation": (pointer, pointer, whole),
            "places": (*[pointer] * 3, *[whole] * 3)}


def text(target, words, position):
    """The functions in LLVM's language, for a state of so many `words` whose `position` stands at that byte."""
    declared: set = set()
    drawing = WORD_TEXT.format(words=words, position=position, first=0x9d2c5680 - 2**32, second=0xefc60000 - 2**32,
                               unit_bits=2**53 - 1, unit_scale="0x3CA0000000000000")
    parts = [write(target, declared) for write in (_gammas, _poissons, _binomials)]
    return "\n".join([*sorted(declared), drawing, *parts, _permutation(), _places()])


class _Sampler:
    """A function being written that gives each of `count` elements a sample."""

    def __init__(self, target, declared, name, given):
        self.w = LLVMWriter(f"define void @{name}(ptr %state, ptr %functions, {given})")
        self.e = Emit(self.w.lines, counter(), declared, {}, "entry", target)
        self.functions = {word: self.w.load("ptr", self.w.at("ptr", "%functions", i))
                          for i, word in enumerate(SYSTEM_FUNCTIONS)}

    def number(self, name):       return Term(self.e, "f64", 1, name)
    def const(self, value):       return self.e.const(float(value), "f64")
    def unit(self):               return self.number(self.w("call double @unit(ptr %state)"))
    def load(self, pointer):      return self.number(self.w.load("double", pointer))
    def store(self, x, pointer):  self.w.store("double", x.text, pointer)

    def of(self, word, *args):
        """One of the system's functions."""
        given = ", ".join(f"double {a.text}" for a in args)
        return self.number(self.w(f"call double {self.functions[word]}({given})"))

    def sqrt(self, x):            return self.e.sqrt(x)
    def floor(self, x):           return self.e.floor(x)


def _gammas(target, declared):
    s = _Sampler(target, declared, "gammas", "ptr %alpha, ptr %power, ptr %d, ptr %out, i64 %count, ptr %spare")
    w, has_spare = s.w, s.w.at("double", "%spare", 1)                   # beside the sample: whether it is there
    squeeze = ctypes.c_float(0.0331).value                              # of float32, as in PyTorch
    normal, boost, made = w.spare("double"), w.spare("double"), w.spare("double")

    def pair():
        """Two normal samples, of which one is kept."""
        angle = s.unit() * (2.0 * math.pi)
        radius = s.sqrt(s.of("log1p", -s.unit()) * -2.0)
        s.store(radius * s.of("sin", angle), "%spare")
        s.store(s.const(1), has_spare)
        s.store(radius * s.of("cos", angle), normal)

    def kept():
        s.store(s.load("%spare"), normal)
        s.store(s.const(0), has_spare)

    def sample(i):
        a, power, d = [s.load(w.at("double", base, i)) for base in ("%alpha", "%power", "%d")]
        s.store(s.const(1), boost)
        with w.when((a < 1.0).text):
            s.store(s.of("pow", 1.0 - s.unit(), power), boost)
        c = 1.0 / s.sqrt(d * 9.0)
        s.store(s.const(0), made)
        with w.again() as leave:
            w.either((s.load(has_spare) == 1.0).text, kept, pair)
            x = s.load(normal)
            y = c * x + 1.0
            with w.when((y > 0.0).text):
                v, u, xx = y * y * y, 1.0 - s.unit(), x * x
                sure = u < 1.0 - xx * squeeze * xx
                s.store(s.e.where(sure, v, 0.0), made)
                with w.when((~sure).text):
                    accepted = s.of("log", u) < 0.5 * xx + d * (1.0 - v + s.of("log", v))
                    s.store(s.e.where(accepted, v, 0.0), made)
            leave((s.load(made) > 0.0).text)
        s.store(s.load(boost) * d * s.load(made), w.at("double", "%out", i))

    with w.loop(0, "%count") as k:
        a = s.load(w.at("double", "%alpha", k.i))
        s.store(s.e.where(a == 0.0, 0.0, s.const(math.nan)), w.at("double", "%out", k.i))
        with w.when((a > 0.0).text):
            sample(k.i)
    return w.text()


def _poissons(target, declared):
    s = _Sampler(target, declared, "poissons", "ptr %rates, ptr %out, i64 %count")
    w = s.w
    found, product = w.spare("double"), w.spare("double")

    def few(rate):
        """How many units there are before their product falls below e**-rate."""
        least = s.of("exp", -rate)
        s.store(s.const(0), found)
        s.store(s.unit(), product)
        with w.again() as leave:
            leave((~(s.load(product) > least)).text)
            s.store(s.load(found) + 1.0, found)
            s.store(s.load(product) * s.unit(), product)

    def many(rate):
        """Hoermann's transformed rejection."""
        b = s.sqrt(rate) * 2.53 + 0.931
        a = b * 0.02483 + -0.059
        inverse_alpha = 1.1328 / (b - 3.4) + 1.1239
        v_sure = 0.9277 - 3.6224 / (b - 2.0)
        log_rate = s.of("log", rate)
        with w.again() as leave:
            u = s.unit() - 0.5
            v = s.unit()
            edge = 0.5 - s.e.abs(u)
            k = s.e.where(edge == 0.0, -1.0, s.floor((a * 2.0 / edge + b) * u + rate + 0.43))
            s.store(k, found)
            leave(((edge >= 0.07) & (v <= v_sure)).text)
            s.store(s.const(-1), product)                                # whether it is accepted after all
            with w.when((~((k < 0.0) | ((edge < 0.013) & (v > edge)))).text):
                left = s.of("log", v) + s.of("log", inverse_alpha) - s.of("log", a / (edge * edge) + b)
                right = k * log_rate - rate - s.of("lgamma", k + 1.0)
                s.store(s.e.where(left <= right, s.const(1), -1.0), product)
            leave((s.load(product) > 0.0).text)

    with w.loop(0, "%count") as i:
        rate = s.load(w.at("double", "%rates", i.i))
        s.store(s.const(0), found)
        with w.when((rate != 0.0).text):
            w.either((rate < 10.0).text, lambda: few(rate), lambda: many(rate))
        s.store(s.load(found), w.at("double", "%out", i.i))
    return w.text()


def _binomials(target, declared):
    s = _Sampler(target, declared, "binomials", "ptr %counts, ptr %probabilities, ptr %out, i64 %count")
    w = s.w
    found, reached, made = w.spare("double"), w.spare("double"), w.spare("double")
    table = f"[{len(STIRLING_REST)} x double]"
    values = ", ".join(f"double {s.const(value).text}" for value in STIRLING_REST)

    def gaps(n, p):
        scale = s.of("log1p", -p)
        s.store(s.const(0), reached)
        s.store(s.const(-1), found)
        with w.again() as leave:
            s.store(s.load(found) + 1.0, found)
            s.store(s.load(reached) + s.e.ceil(s.of("log", s.unit()) / scale), reached)
            leave((s.load(reached) > n).text)

    def rest(k):
        """What Stirling's formula leaves out of log(k!)."""
        square = (k + 1.0) * (k + 1.0)
        far = (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (k + 1.0)
        low = k < 10.0
        at = w(f"fptosi double {s.e.where(low, k, 0.0).text} to i64")
        return s.e.where(low, s.load(w.at("double", "@stirling_rest", at)), far)

    def rejected(n, p):
        deviation = s.sqrt(n * p * (1.0 - p))
        b = deviation * 2.53 + 1.15
        a = b * 0.0248 + -0.0873 + p * 0.01
        centre, v_sure, odds = n * p + 0.5, 0.92 - 4.2 / b, p / (1.0 - p)
        alpha, mode = (5.1 / b + 2.83) * deviation, s.floor((n + 1.0) * p)
        with w.again() as leave:
            u = s.unit() - 0.5
            v = s.unit()
            edge = 0.5 - s.e.abs(u)
            k = s.e.where(edge == 0.0, -1.0, s.floor((a * 2.0 / edge + b) * u + centre))
            s.store(k, found)
            leave(((edge >= 0.07) & (v <= v_sure)).text)
            s.store(s.const(-1), reached)
            with w.when(((k >= 0.0) & (k <= n)).text):
                scaled = v * (alpha / (a / (edge * edge) + b))
                bound = ((mode + 0.5) * s.of("log", (mode + 1.0) / (odds * (n - mode + 1.0)))
                         + (n + 1.0) * s.of("log", (n - mode + 1.0) / (n - k + 1.0))
                         + (k + 0.5) * s.of("log", odds * (n - k + 1.0) / (k + 1.0))
                         + rest(mode) + rest(n - mode) - rest(k) - rest(n - k))
                s.store(s.e.where(s.of("log", scaled) <= bound, s.const(1), -1.0), reached)
            leave((s.load(reached) > 0.0).text)

    def sample(n, p):
        small = s.e.where(1.0 - p < p, 1.0 - p, p)
        w.either((n * small >= 10.0).text, lambda: rejected(n, small), lambda: gaps(n, small))
        drawn = s.load(found)
        s.store(s.e.where(p <= 0.5, drawn, n - drawn), made)

    with w.loop(0, "%count") as i:
        n, p = [s.load(w.at("double", base, i.i)) for base in ("%counts", "%probabilities")]
        none = (n <= 0.0) | (p <= 0.0)
        s.store(s.e.where(none, 0.0, s.e.where(p >= 1.0, n, math.nan)), made)
        with w.when((~(none | (p >= 1.0) | (p != p))).text):
            sample(n, p)
        s.store(s.load(made), w.at("double", "%out", i.i))
    return f"@stirling_rest = internal constant {table} [{values}]\n" + w.text()


def _permutation():
    w = LLVMWriter("define void @permutation(ptr %state, ptr %out, i64 %count)")
    with w.loop(0, "%count") as k:
        w.store("i64", k.i, w.at("i64", "%out", k.i))
    with w.loop(0, w.sub("%count", 1)) as k:
        left = w(f"trunc i64 {w.sub('%count', k.i)} to i32")
        step = w(f"urem i32 {w('call i32 @word(ptr %state)')}, {left}")
        here, there = w.at("i64", "%out", k.i), w.at("i64", "%out", w.add(k.i, w(f"zext i32 {step} to i64")))
        a, b = w.load("i64", here), w.load("i64", there)
        w.store("i64", b, here)
        w.store("i64", a, there)
    return w.text()


def _places():
    """For each unit the first place of its row whose running sum is not below it."""
    w = LLVMWriter("define void @places(ptr %state, ptr %rows, ptr %out, i64 %count, i64 %size, i64 %samples)")
    low, high = w.spare("i64"), w.spare("i64")
    with w.loop(0, "%count") as row:
        sums = w.at("double", "%rows", w.mul(row.i, "%size"))
        out = w.at("i64", "%out", w.mul(row.i, "%samples"))
        with w.loop(0, "%samples") as k:
            unit = w("call double @unit(ptr %state)")
            w.store("i64", 0, low)
            w.store("i64", "%size", high)
            with w.again() as leave:
                start, end = w.load("i64", low), w.load("i64", high)
                leave(w.is_("sge", start, end))
                middle = w(f"ashr i64 {w.add(start, end)}, 1")
                below = w(f"fcmp olt double {w.load('double', w.at('double', sums, middle))}, {unit}")
                w.store("i64", w.pick(below, w.add(middle, 1), start), low)
                w.store("i64", w.pick(below, end, middle), high)
            w.store("i64", w.load("i64", low), w.at("i64", out, k.i))
    return w.text()
