"""Everything that a compiled function reads is read anew or guarded, in whatever way it is spelled.

Each case is the text of a module and some calls, run plain and compiled and compared after every call (functions.py). And
while a call is recorded, nothing of the user's is another object than before: not for another thread, not for who
catches an exception, not for who looks afterwards.
"""
import gc
import itertools
import math
import os
import shutil
import subprocess
import sys
import threading
import types
import warnings
import weakref
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import pytest

import flambeau as torch
from flambeau.base import settings
from flambeau.nn import functional as F
from tests.patience import PATIENCE

from ..thorough import sample, share
from .compare import Walk, parts
from .functions import Call, Program, check
from .tables import PRELUDE

pytestmark = pytest.mark.pinned


@pytest.fixture(autouse=True, params=["reference", "native"])
def executor(request, monkeypatch):
    monkeypatch.setattr(settings, "executor", request.param)
    return request.param


def mostly_reference(*tables):
    """Every combination on the reference executor, and one in seven on the native one."""
    every = list(itertools.product(*tables))
    return [(*items, "reference") for items in every] + [(*items, "native") for items in every[::7]]


def agree(source, calls, executor, target="entry", backward=False, replayed=0):
    """Run a program plain and compiled; `calls` are arguments, or (what happens before, arguments)."""
    calls = [("", call) if isinstance(call, str) else call for call in calls]
    program = Program(PRELUDE + source, target, [Call(before, arguments, backward, True) for before, arguments in calls],
                      executor=executor)
    assert len(calls) >= 6
    outcome = check(program)
    assert not outcome.raised, outcome.raised
    assert outcome.replayed >= replayed, outcome.reasons


# --- whole numbers that become offsets, sizes and strides --------------------------------------------------------------

READS = """
    d[i]    d[-i]    d[i - 8]    d[i:]    d[:i]    d[-i - 1:]    d[i:i + 2]    d[::i + 1]    d[i::2]    d[slice(i, None)]
    x[i % 4]    x[:, i % 3]    x[i % 4, 1]    x[1, i % 3]    x[i % 4, i % 3]    x[..., i % 3]    x[-(i % 4)]    x[None, i % 4]
    x[i % 4, ...]    x[i % 4:, i % 3]    x[:, -1 - i % 3]    x[i % 2::2, ::2]    x[(i % 4, slice(None))]    x[[i % 4]]
    x[[i % 4, 0]]    x[torch.tensor(i % 4)]    x[torch.tensor([i % 4, 1])]    x[i % 4][i % 3]    [*x][i % 4]    x.unbind()[i % 4]
    d.narrow(0, i, 2)    d.select(0, i)    x.select(i % 2, 1)    d.index_select(0, torch.tensor([i]))    d.take(torch.tensor([i]))
    d.as_strided((2, 2), (1, 2), i % 3)    d.as_strided((i % 3 + 1,), (1,))    d.as_strided((2,), (i,))    d.unfold(0, 2, i + 1)
    d.roll(i)    d.split(i + 1)[-1]    d.chunk(i + 1)[0]    d.reshape(2, 4)[:, i % 4]    d.view(4, 2)[i % 4]    d.repeat(i + 1)
    d.expand(i + 1, 8)    d.tile((i + 1,))    d[:i + 1].view(i + 1, 1)    d.diagonal_scatter(d, 0) if i < 0 else d[i]
    x.transpose(0, i % 2)    x.permute(i % 2, 1 - i % 2)    x.flip(i % 2)    x.sum(i % 2)    x.cumsum(i % 2)    x.softmax(-(i % 2) - 1)
    x.unsqueeze(i % 3)    x.diagonal(i % 3 - 1)    x.tril(i - 2)    x.topk(i % 3 + 1)[0]    x.sort(i % 2)[0]    x.rot90(i)
    torch.zeros(i, 2)    torch.ones(i)    torch.arange(i)    torch.arange(i, 9)    torch.arange(0, 8, i + 1)    torch.eye(i)    torch.full((2,), i)
    torch.full((i,), 2.0)    torch.linspace(0, 1, i)    torch.tensor(i)    torch.tensor([i, 1])    torch.tensor([[i * 0.5]])    x.new_zeros(i)
    x + i    x * i    x ** i    i - x    x.pow(i)    torch.add(x, x, alpha=i)    x.clamp(max=i)    x.masked_fill(x > 0, i)    x.eq(i)    x // (i + 1)
    F.pad(d, (i, 0))    F.one_hot(torch.tensor([1]), i + 2)    F.avg_pool1d(d[None], i % 3 + 1)    F.max_pool1d(d[None], 2, i % 2 + 1)
    F.embedding(torch.tensor([i % 4]), x)    torch.cat([d] * (i + 1))    torch.stack([d, d])[i % 2]    sum(x[j] for j in range(i % 4 + 1))
    x[range(4)[i % 4]]    x[min(i, 3)]    x[max(i - 2, 0)]    x[divmod(i, 4)[1]]    x[i & 3]    x[i >> 1]    x[round(i / 2)]    x[int(i * 0.5)]
    x[len(range(i % 4))]    x[{0: 0, 1: 2}.get(i, 1)]    x[(0, 1, 2, 3, 0, 1, 2, 3)[i]]    x[i // 2]    x[abs(-i) % 4]    x[int(str(i)) % 4]
    x[math.isqrt(i)]    x[bool(i > 2)]    x[0 if i < 3 else 1]    x[(i or 1) % 4]    x[sum(range(i % 4)) % 4]    x[i.bit_length()]    x[~i]
    x[pow(i, 3, 7) % 4]    x[i.__add__(1) % 4]    x[1 if i.__eq__(2) is True else 0]    x[divmod(i, 3)[0]]
    d[i].item()    d[i:].tolist()    x[i % 4].shape    d[i:].shape[0]    d[i:].storage_offset()    d[i].expand(2)    d[i:].stride()    len(d[i:])
"""
READS = [spelling.strip() for line in READS.split("\n") for spelling in line.split("    ") if spelling.strip()]
ORDER = (1, 2, 3, 1, 2, 0, 3, 1)       # so that most are met again


@pytest.mark.parametrize("spelling, executor", mostly_reference(sample(READS, 4)))
def test_a_number_of_the_call(spelling, executor):
    source = f"d, x = torch.arange(8.0), fresh(1, 4, 3)\ndef entry(i):\n    return {spelling}\n"
    if spelling == "x[~i]":
        source = source.replace("~i", "~i % 4")
    agree(source, [str(i) for i in ORDER], executor)


@pytest.mark.parametrize("raises", ["1 / (i // 2)", "i % (i // 2)", "math.sqrt(i - 2)", "math.log(i - 1)", "{1: 1, 3: 2}[i]", "[1, 2][i]", "(0.0) ** (i - 2)", "int('12x'[i % 4])", "1 << (i - 2)"])
def test_that_a_number_raises_is_an_answer(raises, executor):
    """Where a line raises for one number and not for the next, another line runs."""
    source = f"d = fresh(1, 3)\ndef entry(i):\n    try: k = {raises}\n    except Exception as error: return d - 1, type(error).__name__\n    return d * k\n"
    agree(source, [str(i) for i in (0, 1, 0, 2, 3, 1, 4, 0, 5)], executor)


COUNTERS = {
    "an attribute": ("state = types.SimpleNamespace(at=0)", "state.at", "state.at = (state.at + 1) % 4"),
    "a dictionary": ("state = {'at': 0}", "state['at']", "state['at'] = (state['at'] + 1) % 4"),
    "a list": ("state = [0]", "state[0]", "state[0] = (state[0] + 1) % 4"),
    "a global": ("at = 0", "at", "at = (at + 1) % 4"),
    "a class": ("class State: at = 0", "State.at", "State.at = (State.at + 1) % 4"),
    "a buffer's attribute": ("", "memory.n", "memory.n = (memory.n + 1) % 4"),
    "a count that only grows": ("state = types.SimpleNamespace(at=0)", "state.at % 4", "state.at += 1"),
}
WRITES = [
    "memory[{at}] = v", "memory[{at}] += v", "memory[{at}].add_(v)", "memory[{at}].copy_(v)", "memory[{at}, 1] = 5.0",
    "memory[:, {at} % 2] = 5.0", "memory[..., {at} % 2] *= 2", "memory[-{at}] = v", "memory[{at}:{at} + 1] = v",
    "memory.narrow(0, {at}, 1).fill_(3)", "memory.select(0, {at}).zero_()", "memory[{at}].mul_({at})",
    "memory.view(-1)[{at}] = 7", "memory.t()[:, {at}] = v", "memory[torch.tensor([{at}])] = v",
    "memory.index_fill_(0, torch.tensor([{at}]), 2)", "memory[[{at}]] += v",
    "memory.index_copy_(0, torch.tensor([{at}]), v[None])", "memory.data[{at}] = v",
    "torch.add(v, 1, out=memory[{at}])", "memory[memory > {at}] = 1.0", "memory.masked_fill_(memory > 1, {at})",
    "memory.fill_({at})", "memory.roll({at}, 0)",
]


@pytest.mark.parametrize("where, write, executor", mostly_reference(sample(COUNTERS, 3), sample(WRITES, 4)))
def test_a_ring_buffer(where, write, executor):
    setup, at, step = COUNTERS[where]
    source = f"""
memory = torch.arange(8.0).reshape(4, 2)
memory.n = 0
{setup}
def entry(v):
    {"global at" if where == "a global" else ""}
    {write.format(at=f"({at})")}
    {step}
    return memory.sum()
"""
    agree(source, [f"fresh({k}, 2)" for k in range(8)], executor)


def test_counters_are_replayed(executor):
    """What is read anew rather than guarded: nine calls with nine counts."""
    source = "s = types.SimpleNamespace(t=0)\ndef entry(x):\n    s.t += 1\n    return x / (1 - 0.9 ** s.t)\n"
    agree(source, ["fresh(1, 3)"] * 9, executor, replayed=5)


# --- writes to arguments that are part of a graph ----------------------------------------------------------------------

IN_PLACE = [
    "x.mul_(3)", "x.relu_()", "F.relu(x, inplace=True)", "nn.ReLU(inplace=True)(x)", "x.mul_(x)", "x += 1", "x *= w",
    "x[0] = 1.0", "x[:2].mul_(3)", "x[i] = 2.0", "x[i].mul_(w[0])", "x.copy_(w)", "x.add_(w, alpha=r)", "x.zero_()",
    "x.masked_fill_(x > 0, 2.0)", "x.t().mul_(2)", "x.tanh_()", "x[1:].add_(x[:1])", "x.data.mul_(2)",
    "x.detach().mul_(2)", "x.clamp_(-r, r)", "F.dropout(x, 0.5, inplace=True)", "x.view(-1)[i] = r", "x.fill_(r)",
    "x.sigmoid_()", "nn.Sequential(nn.ReLU(inplace=True), nn.Dropout(0.5, inplace=True))(x)",
    "x.index_fill_(0, torch.tensor([i]), r)", "torch.mul(x, 2, out=x)",
]
GIVEN = {"a result": "w * 2", "a view of a result": "(whole := w * 2)[:]", "part of a result": "(whole := torch.cat([w, w]))[1:5]",
         "a result seen otherwise": "(w * 2).view(2, 2, 3).view(4, 3)", "a transposed result": "(w * 2).t().contiguous().t()",
         "data": "fresh(2, 4, 3)", "part of data": "v[1:5]", "a leaf": "w", "a view of a leaf": "w[:]"}


@pytest.mark.parametrize("given, write, executor", mostly_reference(GIVEN, sample(IN_PLACE, 9)))
def test_an_argument_is_written(write, given, executor):
    """Gradients go through the argument, through what it is a part of, and through the result; a refusal is the same."""
    number = list(GIVEN).index(given) + IN_PLACE.index(write)
    for result in share(("return x * 2", "return x", "pass"), number, 3):
        source = f"""
w, v = fresh(1, 4, 3).requires_grad_(), fresh(4, 6, 3)
def entry(x, i, r):
    {write}
    {result}
"""
        calls = [Call("w.data.add_(0.125)", f"{GIVEN[given]}, {i}, {r}", True, True)
                 for i, r in zip((1, 2, 1, 3, 1, 2, 1), (0.5, 0.25, 1.5) * 3)]
        check(Program(PRELUDE + source, "entry", calls, executor=executor))


@pytest.mark.parametrize("given", ["x, x", "x, x[:]", "x[:3], x[1:]", "x[1:], x[:3]", "x[:3], x[:3].clone()", "x.view(-1)[:3], x[0]", "x[0], x[0].expand(3)"])
def test_arguments_that_share_memory(given, executor):
    source = "x = fresh(1, 4, 3)\ndef entry(a, b, n):\n    a.mul_(2)\n    b = b + n\n    a[0] += 1\n    return a, b, a[:1]\n"
    calls = [f"{given}, {n}" for n in (1, 1, 2, 1)] + ["fresh(1, 3), fresh(2, 3), 1", f"{given}, 1", "fresh(1, 3), fresh(2, 3), 2", f"{given}, 2"]
    agree(source, calls, executor)


def test_an_argument_that_is_part_of_more(executor):
    """A recording of arguments that are all of their memory does not fit one that is not."""
    source = "large = fresh(1, 6, 3)\ndef entry(x):\n    x.tanh_()\n    return x[0]\n"
    agree(source, ["fresh(1, 4, 3)", "fresh(2, 4, 3)", "large[:4]", "fresh(3, 4, 3)", "large[2:]", "large[:4]", "large.t()[:, 1:5].t()"], executor)


# --- state ---------------------------------------------------------------------------------------------------------------

# What is set up, the function's body, and what happens between calls.
STATE = {
    "the order of keyword arguments": ("", "def entry(x, **k):\n    for v in k.values(): x = x * 2 + v\n    return x, list(k)",
        [("", "fresh(1, 3), a=1.0, b=2.0"), ("", "fresh(1, 3), b=2.0, a=1.0")] * 4),
    "positions and names": ("", "def entry(x, *more, a=1, **k):\n    return x * a + len(more) + sum(k.values()) * 2",
        [("", "fresh(1, 3), 1.0"), ("", "fresh(1, 3), a=1.0"), ("", "fresh(1, 3), b=1.0"), ("", "fresh(1, 3), 1.0, a=2.0")] * 2),
    "an attribute of an argument": ("", "def entry(x): return x * getattr(x, 'n', 1.0)",
        [(f"x = fresh(1, 3)\nx.n = {n}", "x") for n in ("2.0", "3.0", "4.0", "None or 2", "2.0", "3.0")] + [("", "fresh(1, 3)")]),
    "an attribute of a tensor of the state": ("w = fresh(1, 3)\nw.n = 2.0", "def entry(x): return x * w.n", ["w.n = 3.0", "w.n = 4", "w.n = 2.0"]),
    "a class through a classmethod": ("class C:\n    k = 2.0\n    @classmethod\n    def scale(cls, x): return x * cls.k\nclass D(C): pass",
        "def entry(x): return C.scale(x) + D.scale(x)", ["C.k = 3.0", "D.k = 5.0", "C.k = 7.0", "del D.k"]),
    "a class through an instance": ("class C:\n    k = 2.0\nc = C()", "def entry(x): return x * c.k", ["C.k = 3.0", "c.k = 4.0", "C.k = 5.0", "del c.k"]),
    "forward replaced on the class": ("class M(nn.Module):\n    def forward(self, x): return x * 2\nm = M()", "def entry(x): return m(x)",
        ["M.forward = lambda self, x: x * 3", "m.forward = lambda x: x * 4", "del m.forward", "M.forward = lambda self, x: x * 5"]),
    "__call__ replaced on the class": ("class C:\n    def __call__(self, x): return x * 2\nc = C()", "def entry(x): return c(x)",
        ["C.__call__ = lambda self, x: x * 3", "C.__call__ = lambda self, x: x * 4"]),
    "a method replaced": ("class C:\n    def f(self, x): return x * 2\nc = C()", "def entry(x): return c.f(x)",
        ["C.f = lambda self, x: x * 3", "c.f = lambda x: x * 4", "del c.f", "C.f = staticmethod(lambda x: x * 6)"]),
    "an operator replaced": ("class C:\n    def __add__(self, x): return x * 2\nc = C()", "def entry(x): return c + x",
        ["C.__add__ = lambda self, x: x * 3", "C.__add__ = lambda self, x: x * 4"]),
    "the class of an object": ("class C:\n    k = 2.0\n    def f(self, x): return x * self.k\nclass D(C): k = 3.0\nclass E(C):\n    def f(self, x): return x - 1\nc = C()",
        "def entry(x): return c.f(x)", ["c.__class__ = D", "c.__class__ = E", "c.__class__ = C"]),
    "the bases of a class": ("class A: k = 2.0\nclass B: k = 3.0\nclass C(A): pass\nc = C()", "def entry(x): return x * c.k", ["C.__bases__ = (B,)", "C.__bases__ = (A,)"]),
    "from a module, inside": ("m = types.ModuleType('random_m')\nm.k = 2.0\nsys.modules['random_m'] = m",
        "def entry(x):\n    from random_m import k\n    return x * k", ["m.k = 3.0", "m.k = 4", "m = types.ModuleType('random_m')\nm.k = 5.0\nsys.modules['random_m'] = m"]),
    "import inside": ("m = types.ModuleType('random_m')\nm.k = 2.0\nsys.modules['random_m'] = m",
        "def entry(x):\n    import random_m\n    return x * random_m.k", ["m.k = 3.0", "m = types.ModuleType('random_m')\nm.k = 5.0\nsys.modules['random_m'] = m"]),
    "a module in a variable": ("m = types.ModuleType('random_m')\nm.k = 2.0\nm.f = lambda x: x + 1\nholder = [m]", "def entry(x):\n    l = m\n    return m.f(x) * holder[0].k * l.k",
        ["m.k = 3.0", "m.f = lambda x: x + 2", "m = types.SimpleNamespace(k=4.0, f=lambda x: x)", "holder[0] = m"]),
    "sys.modules": ("m = types.ModuleType('random_m')\nm.k = 2.0\nsys.modules['random_m'] = m", "def entry(x): return x * sys.modules['random_m'].k", ["m.k = 3.0", "m.k = 4.0"]),
    "os.environ": ("os.environ['RANDOM_K'] = '2'", "def entry(x): return x * float(os.environ['RANDOM_K'])", ["os.environ['RANDOM_K'] = '3'", "os.environ['RANDOM_K'] = '4'"]),
    "os.getenv": ("os.environ['RANDOM_K'] = '2'", "def entry(x): return x * int(os.getenv('RANDOM_K', '5'))", ["os.environ['RANDOM_K'] = '3'", "os.environ.pop('RANDOM_K', None)"]),
    "os.environ.get": ("", "def entry(x): return x * (2 if os.environ.get('RANDOM_K') else 3)", ["os.environ['RANDOM_K'] = '3'", "os.environ.pop('RANDOM_K', None)"]),
    "in os.environ": ("", "def entry(x): return x * (2 if 'RANDOM_K' in os.environ else 3)", ["os.environ['RANDOM_K'] = '3'", "os.environ.pop('RANDOM_K', None)"]),
    "through a weakref": ("class C: pass\nc = C()\nc.k = 2.0\nref = weakref.ref(c)", "def entry(x): return x * ref().k", ["c.k = 3.0", "c.k = 4", "c = C()\nc.k = 5.0\nref = weakref.ref(c)"]),
    "a dead weakref": ("class C: pass\nc = C()\nref = weakref.ref(c)", "def entry(x): return x * (2 if ref() is None else 3)", ["c = None", "c = C()\nref = weakref.ref(c)"]),
    "through a proxy": ("class C: pass\nc = C()\nc.k = 2.0\nproxy = weakref.proxy(c)", "def entry(x): return x * proxy.k", ["c.k = 3.0", "c.k = 4.0"]),
    "a WeakKeyDictionary": ("class C: pass\nc = C()\nd = weakref.WeakKeyDictionary({c: 2.0})", "def entry(x): return x * d[c] + len(d)", ["d[c] = 3.0", "d[c] = 4.0"]),
    "an lru_cache that was cleared": ("k = [2.0]\n@functools.lru_cache\ndef scale(): return k[0]", "def entry(x): return x * scale()",
        ["k[0] = 3.0", "scale.cache_clear()", "k[0] = 4.0\nscale.cache_clear()"]),
    "an lru_cache with arguments": ("k = {'a': 2.0}\n@functools.lru_cache(maxsize=None)\ndef scale(name, times=1): return k[name] * times", "def entry(x): return x * scale('a') + scale('a', times=2)",
        ["k['a'] = 3.0", "scale.cache_clear()"]),
    "a cached_property": ("class C:\n    s = 2.0\n    @functools.cached_property\n    def k(self): return self.s\nc = C()", "def entry(x): return x * c.k", ["C.s = 3.0", "del c.k", "c = C()"]),
    "a property": ("class C:\n    s = 2.0\n    @property\n    def k(self): return self.s\nc = C()", "def entry(x): return x * c.k", ["c.s = 3.0", "C.k = property(lambda self: 4.0)"]),
    "__getattr__": ("table = {'k': 2.0}\nclass C:\n    def __getattr__(self, name): return table[name]\nc = C()", "def entry(x): return x * c.k", ["table['k'] = 3.0", "c.k = 4.0", "C.k = 5.0"]),
    "slots": ("class C:\n    __slots__ = ('k', 'm')\nc = C()\nc.k = 2.0", "def entry(x): return x * c.k * (2 if hasattr(c, 'm') else 3)", ["c.k = 3.0", "c.m = 1", "c = C()\nc.k = 5.0"]),
    "defaults of a function": ("def f(x, k=2.0, *, m=1.0): return x * k + m", "def entry(x): return f(x)", ["f.__defaults__ = (3.0,)", "f.__kwdefaults__ = {'m': 2.0}", "f.__code__ = (lambda x, k, *, m: x - m).__code__"]),
    "a closure's cell": ("def make(k):\n    def f(x): return x * k\n    return f\nf = make(2.0)", "def entry(x): return f(x)", ["f.__closure__[0].cell_contents = 3.0", "f = make(4.0)"]),
    "an attribute of a function": ("def f(x): return x * f.k\nf.k = 2.0", "def entry(x): return f(x)", ["f.k = 3.0", "f.k = 4"]),
    "a partial": ("f = functools.partial(torch.mul, torch.ones(3))\np = functools.partial(lambda x, k: x * k, k=2.0)", "def entry(x): return f(x) + p(x)",
        ["p = functools.partial(lambda x, k: x * k, k=3.0)", "p.keywords['k'] = 4.0"]),
    "the type of a number": ("s = types.SimpleNamespace(k=2.0)", "def entry(x): return x.long() * s.k, type(s.k).__name__", ["s.k = 2", "s.k = True", "s.k = 3.0"]),
    "None and a number": ("s = types.SimpleNamespace(k=None)", "def entry(x): return x if s.k is None else x * s.k", ["s.k = 2.0", "s.k = None", "s.k = 3"]),
    "a string": ("s = types.SimpleNamespace(mode='a')", "def entry(x): return {'a': x, 'b': x * 2}.get(s.mode, x * 3)", ["s.mode = 'b'", "s.mode = 'c'", "s.mode = 'a'"]),
    "the keys of a dictionary": ("d = {'a': 2.0}", "def entry(x):\n    for k, v in d.items(): x = x * v\n    return x, list(d)", ["d['b'] = 3.0", "del d['a']", "d['a'] = 2.0", "d = dict(reversed(d.items()))"]),
    "the length of a list": ("l = [1.0]", "def entry(x):\n    for v in l: x = x + v\n    return x * len(l)", ["l.append(2.0)", "l.pop(0)", "l[:] = [1.0, 2.0, 3.0]"]),
    "a set": ("s = {1, 2}", "def entry(x): return x * (2 if 3 in s else 5) + len(s)", ["s.add(3)", "s.discard(1)"]),
    "a deque": ("q = collections.deque([2.0, 3.0])", "def entry(x): return x * q[0] + len(q)", ["q.rotate()", "q.append(4.0)", "q[0] = 7.0"]),
    "a NumPy array": ("import numpy\na = numpy.array([2.0, 3.0])", "def entry(x): return x * float(a[0])", ["a[0] = 3.0", "a[0] = 4.0"]),
    "an enumeration": ("import enum\nclass Mode(enum.Enum):\n    A = 2.0\n    B = 3.0\nmode = Mode.A", "def entry(x): return x * mode.value * (2 if mode is Mode.A else 3)", ["mode = Mode.B", "mode = Mode.A"]),
    "a tensor of the state": ("w = fresh(1, 3)\ns = [w]", "def entry(x): return x * w + s[0]", ["w = fresh(2, 3)", "w.mul_(2)", "s[0] = w", "s[0] = w[:]", "w.requires_grad_()"]),
    "which tensors are one": ("s = types.SimpleNamespace(a=fresh(1, 3), b=fresh(2, 3))", "def entry(x):\n    s.a.add_(1)\n    return x + s.b, s.a is s.b", ["s.b = s.a", "s.b = s.a[:]", "s.b = fresh(2, 3)"]),
    "training": ("m = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))\nwith torch.no_grad(): m[0].weight.copy_(fresh(1, 3, 3)); m[0].bias.zero_()", "def entry(x): return m(x)", ["m.eval()", "m.train()", "m[1].p = 0.25", "m[1] = nn.Tanh()"]),
    "hooks of a module": ("m = nn.Tanh()", "def entry(x): return m(x)", ["m.register_forward_hook(lambda m, a, out: out * 2)", "m._forward_hooks.clear()"]),
    "grad mode": ("w = fresh(1, 3).requires_grad_()", "def entry(x): return x * w", ["torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)"]),
    "the default dtype": ("", "def entry(x): return x + torch.ones(3), torch.tensor(0.5)", ["torch.set_default_dtype(torch.float64)", "torch.set_default_dtype(torch.float32)"]),
    "a global of a function called": ("k = 2.0\ndef f(x): return g(x)\ndef g(x): return x * k", "def entry(x): return f(x)", ["k = 3.0", "def g(x): return x - k", "k = 5"]),
    "a builtin that is hidden": ("", "def entry(x): return x * max(2, 3)", ["def max(a, b): return a", "del max"]),
    "a name that comes and goes": ("", "def entry(x):\n    try: return x * k\n    except NameError: return x", ["k = 2.0", "del k"]),
    "hasattr": ("s = types.SimpleNamespace()", "def entry(x): return x * (2 if hasattr(s, 'k') else 3) + getattr(s, 'm', 1.0)", ["s.k = 1", "s.m = 2.0", "del s.k"]),
    "an annotation or a docstring": ("def f(x):\n    '2.0'\n    return x * float(f.__doc__)", "def entry(x): return f(x)", ["f.__doc__ = '3.0'"]),
    "isinstance": ("class A: pass\nclass B(A): pass\no = A()", "def entry(x): return x * (2 if isinstance(o, B) else 3)", ["o = B()", "o = A()", "o.__class__ = B"]),
    "a metaclass": ("class Meta(type):\n    k = 2.0\n    def f(cls, x): return x * cls.k\nclass C(metaclass=Meta): pass", "def entry(x): return C.f(x)", ["Meta.k = 3.0", "C.k = 4.0", "Meta.f = lambda cls, x: x"]),
    "a descriptor": ("class D:\n    k = 2.0\n    def __get__(self, o, c): return self.k\nd = D()\nclass C: k = d\nc = C()", "def entry(x): return x * c.k", ["d.k = 3.0", "C.k = 4.0"]),
    "a descriptor read from its class": ("class D:\n    k = 2.0\n    def __get__(self, o, c): return self.k if o is None else 1.0\nd = D()\nclass C: k = d", "def entry(x): return x * C.k", ["d.k = 3.0", "C.k = 4.0"]),
    "a kind of property": ("class P(property): pass\nclass C:\n    n = 2.0\n    k = P(lambda self: self.n)\nc = C()", "def entry(x): return x * c.k", ["c.n = 3.0", "C.k = P(lambda self: 5.0)"]),
    "the bounds of a constraint": ("r = torch.distributions.constraints.interval(0.0, 50.0)\nclass N(torch.distributions.Normal): support = property(lambda self: r)",
        "def entry(x):\n    try: return N(0.0, 2.0).log_prob(x.abs())\n    except ValueError: return x", ["r.upper_bound = 0.25", "r.upper_bound = 60.0"]),
    "threading.local": ("l = threading.local()\nl.k = 2.0", "def entry(x): return x * l.k", ["l.k = 3.0", "l.k = 4"]),
    "a ContextVar": ("v = contextvars.ContextVar('v', default=2.0)", "def entry(x): return x * v.get()", ["v.set(3.0)", "v.set(4.0)"]),
    "globals()": ("k = 2.0", "def entry(x): return x * globals()['k']", ["k = 3.0", "k = 4.0"]),
    "vars and __dict__": ("s = types.SimpleNamespace(k=2.0)", "def entry(x): return x * vars(s)['k'] + s.__dict__['k']", ["s.k = 3.0", "s.__dict__ = {'k': 4.0}"]),
    "operator.attrgetter": ("s = types.SimpleNamespace(k=2.0)\nget = operator.attrgetter('k')", "def entry(x): return x * get(s)", ["s.k = 3.0", "get = operator.attrgetter('m')\ns.m = 4.0"]),
    "eval": ("k = 2.0", "def entry(x): return x * eval('k')", ["k = 3.0", "k = 4.0"]),
    "sorted with a key": ("k = {'a': 1, 'b': 2}", "def entry(x):\n    for name in sorted(k, key=lambda n: k[n]): x = x * 2 + ord(name)\n    return x", ["k['a'] = 3", "k['b'] = 4"]),
    "a generator": ("s = [1.0, 2.0]\ndef g():\n    for v in s: yield v", "def entry(x):\n    for v in g(): x = x * v\n    return x", ["s[0] = 3.0", "s.append(4.0)"]),
    "an iterator": ("it = iter(range(100))", "def entry(x): return x * next(it)", ["next(it)"]),
    "__enter__ replaced": ("class M:\n    n = 2.0\n    def __enter__(self): return self.n\n    def __exit__(self, *error): pass\nm = M()",
        "def entry(x):\n    with m as k: return x * k", ["M.__enter__ = lambda self: 3.0", "m.n = 5.0"]),
    "a class that answers before __getattr__": ("table = {'k': 2.0}\nclass C:\n    def __getattr__(self, name): return table[name]\nc = C()",
        "def entry(x): return x * c.k", ["C.k = 5.0", "table['k'] = 7.0", "del C.k"]),
    "an exception that does not come": ("s = [0]", "def entry(x):\n    with contextlib.suppress(ZeroDivisionError):\n        x = x * (1 / s[0])\n        x = x + 1\n    return x", ["s[0] = 2", "s[0] = 0", "s[0] = 4"]),
    "a key that is there now": ("s = types.SimpleNamespace(n=0)", "def entry(x):\n    try: return x * {1: 2.0, 2: 3.0}[s.n]\n    except KeyError: return x", ["s.n = 1", "s.n = 2", "s.n = 3"]),
    "a number written and read again": ("table = {'n': 0.5, 'm': 0.0}\nclass S: __slots__ = ('n',)\ns = S()\ns.n = 0.5",
        "def entry(x):\n    k = (lambda m, n: n)(**table)\n    table.update(n=k + 1)\n    s.n += 0.25\n    return x * table['n'] + math.floor(math.fsum([table['n'], s.n]))", ["table['n'] = 2.0", "s.n = 0.0"]),
    "a context manager": ("s = types.SimpleNamespace(k=2.0)\n@contextlib.contextmanager\ndef scaled():\n    yield s.k", "def entry(x):\n    with scaled() as k: return x * k", ["s.k = 3.0", "s.k = 4"]),
    "a decorator's closure": ("def by(k):\n    def wrap(f):\n        @functools.wraps(f)\n        def form(x): return f(x) * k[0]\n        return form\n    return wrap\nk = [2.0]\n@by(k)\ndef g(x): return x + 1",
        "def entry(x): return g(x)", ["k[0] = 3.0", "k[0] = 4"]),
    "recursion": ("s = types.SimpleNamespace(depth=2)\ndef f(x, n): return x if n == 0 else f(x * 2, n - 1)", "def entry(x): return f(x, s.depth)", ["s.depth = 3", "s.depth = 1", "s.depth = 2"]),
    "super": ("class A:\n    def f(self, x): return x * 2\nclass B(A):\n    def f(self, x): return super().f(x) + 1\nb = B()", "def entry(x): return b.f(x)", ["A.f = lambda self, x: x * 3", "B.f = lambda self, x: x"]),
    "an optimizer's rate": ("w = fresh(1, 3).requires_grad_()\noptimizer = torch.optim.SGD([w], lr=0.1)", "def entry(x):\n    optimizer.zero_grad()\n    (w * x).sum().backward()\n    optimizer.step()\n    return w.detach().clone()",
        ["optimizer.param_groups[0]['lr'] = 0.05", "optimizer.param_groups[0]['weight_decay'] = 0.1", "optimizer.param_groups[0]['momentum'] = 0.5"]),
}


@pytest.mark.parametrize("what, executor", mostly_reference(sample(STATE, 4)))
def test_state(what, executor):
    """Three calls, then one event after the other, each with two calls."""
    setup, function, events = STATE[what]
    if isinstance(events[0], str):
        calls = ["fresh(1, 3)"] * 3 + [part for event in events for part in ((event, "fresh(1, 3)"), "fresh(2, 3)")] + ["fresh(1, 3)"] * 2
    else:
        calls = events
    try:
        agree(f"{setup}\n{function}\n", calls, executor)
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)


# --- numbers are the user's own ------------------------------------------------------------------------------------------

LEAKS = {
    "a dataclass": "return Box(k, [n])", "a nested dataclass": "return Box(Box(k * 2, 1), n + 1)", "an attribute": "s.last = k * 2", "a dictionary": "return {'k': k, n: k / 2}",
    "a dictionary of the state": "d['k'] = k * 0.5", "a list of the state": "l[0] = k + 1", "a tuple": "return k, (n, (k,))", "a set": "return {n, k}", "an object of the user's": "o = Plain()\n    o.k = k * 2\n    return o",
    "a namedtuple": "return Pair(k, n)", "a closure": "return (lambda: k)", "a default": "return (lambda v=k * 2: v)", "a partial": "return functools.partial(max, k * 2)", "a slot": "slotted.k = k * 2",
    "a class": "Plain.k = k * 2", "a tensor": "x.n = k * 2", "a module": "config.k = k * 2", "a global": "global g\n    g = k * 2", "a string": "return f'{k}', str(n), repr(k)", "a function's attribute": "entry.k = k * 2",
    "a deque": "q.append(k * 2)", "an exception": "return ValueError(k * 2, n)", "a type": "return type(k), type(n), type(k * n)", "a slice": "return slice(n, k)", "math": "return math.sqrt, math.sqrt(abs(k)), math.floor(k)",
    "a generator's value": "return [v * k for v in (1.0, 2.0)]", "max": "return max(k, 0.5), min(n, 7), sum([k, n]), abs(k), round(k), round(k, 1), divmod(n, 2)", "json": "import json\n    return json.dumps([k, n])",
    "isinstance": "return isinstance(k, float), isinstance(n, int), type(k) is float, type(n) is int, k.__class__ is float", "hash": "return hash(k), {k: 1}, n in {n}", "copy": "import copy\n    return copy.copy(k), copy.deepcopy([k, n])",
    "pickle": "import pickle\n    return pickle.loads(pickle.dumps([k, n]))", "struct": "import struct\n    return struct.pack('dq', k, n)", "NumPy": "import numpy\n    return numpy.float64(k), numpy.array([k, n]).tolist()",
    "identity": "return k is s.k, s.k is s.k", "a SimpleNamespace": "return types.SimpleNamespace(k=k)", "an array": "return array.array('d', [k])", "a weak dictionary": "w[x] = k", "a shape": "return torch.Size([n]), x[:n].shape",
    "complex": "return complex(k, n)", "format": "return '%.2f %d' % (k, n), '{:.1f}'.format(k)", "a Fraction": "import fractions\n    return fractions.Fraction(k)", "vars": "return dict(vars(s))", "locals": "return dict(locals())['k']",
}


@pytest.mark.parametrize("where, executor", mostly_reference(sample(LEAKS, 2)))
def test_numbers_stay_plain(where, executor):
    source = f"""
@dataclasses.dataclass
class Box:
    a: object
    b: object
class Plain: pass
class Slotted: __slots__ = ("k",)
class Pair(typing.NamedTuple):
    a: object
    b: object
s, d, l, slotted, config, q, w = (types.SimpleNamespace(k=0.5, n=2, last=0.0), {{"k": 1.0}}, [1.0], Slotted(), types.ModuleType("random_config"),
                                  collections.deque([1.0], 2), weakref.WeakKeyDictionary())
def entry(x, k, n):
    {LEAKS[where]}
entry.k = 1.0
"""
    calls = ["fresh(1, 3), 0.5, 2", "fresh(1, 3), 0.75, 3", "fresh(1, 3), 0.5, 4", "fresh(1, 3), 1.5, 1", "fresh(1, 3), 0.25, 2", "fresh(1, 3), 0.5, 2"]
    agree(source, calls, executor)
    from_state = source.replace("def entry(x, k, n):", "def entry(x):\n    k, n = s.k, s.n")
    agree(from_state, [("s.k, s.n = " + call.partition(", 3), ")[2], "fresh(1, 3)") for call in calls], executor)


# --- while a call is recorded ---------------------------------------------------------------------------------------------


class Point:
    def __init__(self):
        self.rate, self.count, self.pair, self.table, self.items = 0.5, 3, (0.25, 2), {"k": 1.5}, [2.5]


def snapshot(point):
    """Everything that somebody beside the call could see of the user's state, and of Python's."""
    return [(type(v), v) for v in (point.rate, point.count, *point.pair, point.table["k"], point.items[0])] + \
        [vars(math)["sqrt"], math.floor, sorted(vars(point)), type(point), list(vars(Point)), sys.getprofile(), len, float, isinstance]


def test_another_thread_sees_the_users_objects():
    """A thread that looks during the call, at every line that is recorded, sees what was there before."""
    point, seen = Point(), []
    before = snapshot(point)
    ask, answered = threading.Semaphore(0), threading.Semaphore(0)
    over = []

    def watch():
        while True:
            ask.acquire()
            if over:
                return
            seen.append(snapshot(point))
            answered.release()

    def look():
        ask.release()
        assert answered.acquire(timeout=PATIENCE)

    def step(x):
        y = x * point.rate
        look()
        y = y + math.sqrt(point.table["k"]) * point.count
        look()
        return y * point.pair[0] + point.items[0]
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        compiled = torch.compile(step)
        for _ in range(6):
            x = torch.arange(3.0)
            given = compiled(x)
            assert torch.equal(given, (x * 0.5 + math.sqrt(1.5) * 3) * 0.25 + 2.5)
    finally:
        over.append(True)
        ask.release()
        thread.join()
    assert len(seen) >= 2 and all(state == before for state in seen)


def test_a_callback_sees_the_users_objects():
    """So does code that runs inside of the call, through a finaliser of what the call lets go."""
    point, seen = Point(), []
    before = snapshot(point)

    class Falls:
        def __del__(self):
            seen.append(snapshot(point))

    def step(x):
        y = x * point.rate + point.count
        Falls()
        return y * math.sqrt(point.table["k"])
    compiled = torch.compile(step)
    for _ in range(6):
        compiled(torch.arange(3.0))
    assert len(seen) == 6 and all(state[:-4] == before[:-4] and state[-3:] == before[-3:] for state in seen)


@pytest.mark.parametrize("calls", [1, 2, 4])
def test_an_exception_leaves_everything_as_it_was(calls, executor):
    """Half-way, at a call that is recorded, and at one that would be replayed."""
    def run(wrap):
        point, w = Point(), torch.ones(3, requires_grad=True)

        def step(x, stop):
            point.rate *= 0.5
            point.count += 1
            y = (x * point.rate * w).tanh()
            x.add_(point.count)
            if stop:
                point.table["k"] = point.rate * 2
                raise KeyError(point.rate, point.count)
            point.items[0] = point.rate
            return y
        f, given = wrap(step), []
        for number in range(calls + 4):
            x = torch.arange(3.0)
            try:
                given.append((x, f(x, number == calls)))
            except KeyError as error:
                given.append((x, error.args, [type(a) for a in error.args], error.__traceback__.tb_next is not None))
            given.append((x._version, snapshot(point)))
        return given, vars(point)
    Walk(200 if executor == "native" else 0).compare(run(lambda f: f), run(torch.compile), "")


def test_an_interrupt_leaves_everything_as_it_was():
    point = Point()
    before = snapshot(point)

    def step(x, stop):
        y = x * point.rate + math.exp(point.table["k"])
        if stop:
            raise KeyboardInterrupt
        return y
    compiled = torch.compile(step)
    for stop in (False, True, False, False, True, False):
        try:
            compiled(torch.ones(2), stop)
        except KeyboardInterrupt:
            pass
        assert snapshot(point) == before


def test_nothing_of_the_recorder_is_reachable_from_the_users_state():
    """Whatever can be reached from what the function could see is made of the user's own types."""
    @dataclass
    class Out:
        a: object
        b: object
    point, kept = Point(), []
    module = torch.nn.Linear(3, 3)

    def step(x, k):
        point.rate = point.rate * 0.5 + k
        point.table["k"] = point.rate
        point.items[0] = Out(point.rate, [k / 2])
        x.note = k * 2
        kept[:] = [k]
        return Out(module(x) * point.rate, (point.count * k, lambda: k))
    compiled = torch.compile(step)
    for k in (0.5, 1.5, 2.5, 3.5, 4.5, 5.5):
        x = torch.ones(2, 3)
        out = compiled(x, k)
        stack, seen = [(x.note, point, kept, out.b, step.__closure__, vars(math))], set()
        while stack:
            item = stack.pop()
            if id(item) in seen or isinstance(item, torch.Tensor):
                continue
            seen.add(id(item))
            assert not type(item).__module__.startswith("flambeau.compiler"), item
            assert isinstance(item, float) is (type(item) is float)
            stack += [part for _, part in parts(item)]
            if isinstance(item, types.CellType):
                stack.append(item.cell_contents)


def test_the_collector_finds_no_stand_in(executor):
    """After calls of many kinds, no number that the recorder made is alive outside of what it keeps itself."""
    def numbers():
        return [o for o in gc.get_objects() if str(type(o).__module__).startswith("flambeau.compiler")
                and isinstance(getattr(type(o), "__float__", None), types.FunctionType)]
    gc.collect()
    before = len(numbers())                 # of a call in another test that pytest remembers

    def step(x, k):
        s.k = k * s.k
        return x * s.k, [s.k]
    s = types.SimpleNamespace(k=0.5)
    compiled = torch.compile(step)
    for k in (0.5, 1.5, 2.0, 3.0, 1.0, 0.25):
        compiled(torch.ones(2), k)
    torch.compiler.reset()
    del compiled
    gc.collect()
    assert len(numbers()) <= before


def test_code_and_names_of_the_function_are_left_alone():
    """The function, its globals, its closure, its class: what is there before and after a recording are the same objects."""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(3, 3)

        def forward(self, x): return F.relu(self.inner(x)) * scale
    scale, net = 0.5, Net()
    step = net.forward.__func__
    before = [id(v) for v in (step.__code__, step.__globals__, step.__closure__, *[c.cell_contents for c in step.__closure__], Net.forward, Net.__dict__["forward"])]
    names = {name: id(value) for name, value in globals().items()}
    compiled = torch.compile(net)
    for _ in range(6):
        compiled(torch.ones(2, 3))
    assert before == [id(v) for v in (step.__code__, step.__globals__, step.__closure__, *[c.cell_contents for c in step.__closure__], Net.forward, Net.__dict__["forward"])]
    assert names == {name: id(value) for name, value in globals().items()} and "forward" not in vars(net)


def test_two_threads_record_at_once():
    """Each sees its own numbers, and the plain one beside them too."""
    point = Point()
    functions = [torch.compile(lambda x, by=by: x * point.rate * by + math.sqrt(by)) for by in (1.0, 4.0, 9.0)]
    wrong = []

    def work(f, by):
        for number in range(40):
            x = torch.full((3,), float(number))
            if not torch.allclose(f(x), x * 0.5 * by + math.sqrt(by)) or type(point.rate) is not float:
                wrong.append((by, number))
    threads = [threading.Thread(target=work, args=(f, by)) for f, by in zip(functions, (1.0, 4.0, 9.0))]
    threads.append(threading.Thread(target=work, args=(lambda x: x * point.rate * 16.0 + 4.0, 16.0)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_recording_holds_no_argument(executor):
    """What the caller lets go of goes."""
    compiled = torch.compile(lambda x, s: x * s.k)
    gone = []
    for number in range(6):
        x, s = torch.full((3,), float(number)), types.SimpleNamespace(k=2.0)
        compiled(x, s)
        gone.append(weakref.ref(x))
        del x, s
    gc.collect()
    assert all(ref() is None for ref in gone)


LIMITS = """import sys
import flambeau as torch
import ml_dtypes
assert ml_dtypes.__file__.startswith(sys.argv[1])
compiled = torch.compile(lambda x: x + torch.finfo(torch.float32).eps)
for _ in range(3):
    compiled(torch.ones(3))
print(compiled.explain())
"""


def test_libraries_are_known_wherever_they_lie(tmp_path):
    shutil.copytree(Path(ml_dtypes.__file__).parent, tmp_path / "ml_dtypes")
    root = Path(__file__).parents[2]
    (tmp_path / "program.py").write_text(LIMITS)          # what is compiled needs a source
    done = subprocess.run([sys.executable, tmp_path / "program.py", tmp_path], capture_output=True, text=True, cwd=root,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)])})
    assert done.returncode == 0 and "1 recording" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("rounds, replays", [(4, True), (60, False)])
def test_checks_of_what_much_of_the_call_computes(rounds, replays):
    """Where a replay would compute nearly all of it twice, for the check, it is no gain."""
    def function(x):
        x = x + torch.rand(8, 3) * 0
        at = torch.zeros(8, dtype=torch.long)
        for _ in range(rounds):
            at = ((x[torch.arange(8), at].unsqueeze(1) - x).abs().amax(1) / 3).long()
        return x[torch.arange(8), at]
    compiled = torch.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for turn in range(5):
            x = torch.arange(24.0).reshape(8, 3) * (turn + 1) % 7
            assert compiled(x).tolist() == function(x).tolist()
    assert any(r.hits for r in compiled.recordings) is replays
    assert replays or "compute twice" in compiled.gave_up
