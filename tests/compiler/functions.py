"""Random Python functions, compiled and plain, and what becomes of everything around them.

A program is the text of a small module with a function in it, and a list of calls; between calls something happens to
what the function reads: a number changes, a tensor is swapped, a method is replaced. The text is run twice, in two
namespaces of their own: plain, and with `torch.compile` around the function. After every call the two worlds have to be
alike (compare.py).

The text is composed from the tables below, in which

    $0     is the number of this place or statement, to make its names its own
    $k     is a literal of the place's kind; $T that kind's type
    $i $f  are expressions for a whole number and for a float, $b $s for a truth value and a string
    $t $u  are tensors of 4 × 3 and of 8 elements; $g is a function of a tensor

A program is drawn from a seed, and a failing one is made smaller by cutting its text: statements, calls, parts of
expressions, as long as it fails in the same way. More of them than the suite tries, each failure with the smallest
program that shows it:

    python -m tests.compiler.functions --examples 5000 --seed 1
"""
import argparse
import ast
import collections
import itertools
import linecache
import os
import random
import re
import sys
import traceback
import warnings
from dataclasses import dataclass, field, replace

import flambeau as torch
from flambeau.base import settings

from .compare import Different, Walk, tensors_in

UNITS = 200                   # in the last place: how far apart native code may round when it is fused otherwise

PRELUDE = """\
import array, collections, contextlib, contextvars, dataclasses, functools, importlib, itertools, math, operator, os
import sys, threading, types, typing, weakref
import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F

def fresh(k, *shape):
    return ((torch.arange(math.prod(shape)) * 7 + k * 5) % 17).reshape(shape) / 8 - 1

base = fresh(1, 6, 3)
held = fresh(2, 4, 3)
leaf = fresh(3, 4, 3).requires_grad_()
"""


@dataclass
class Place:
    """Somewhere a value can be kept: how it gets there, how it is read and written, and what may happen to it."""

    setup: str
    reads: tuple                     # expressions; (statement, expression) where something comes before
    writes: tuple = ()               # statements of the function, $k stands for what is written
    events: tuple = ()               # what happens between calls
    kinds: str = "int float bool str maybe tensor buffer function"
    declares: str = ""               # a name that the function has to call global where it writes
    rare: bool = False               # what compile need not see through: it would end most replays


CLASSES = """\
class Base_$0:
    n = $k
    def __init__(self):
        self.own = $k
    @classmethod
    def of_class(cls):
        return cls.n
    @property
    def property(self):
        return self.own
    @property.setter
    def property(self, value):
        self.own = value
    def method(self):
        return self.own
    def __call__(self):
        return self.n
    def __getitem__(self, key):
        return getattr(self, key)
class Derived_$0(Base_$0):
    def method(self):
        return super().method()
class Other_$0(Base_$0):
    n = $k
    def method(self):
        return self.n
thing_$0 = Derived_$0()"""

PLACES = [
    Place("value_$0 = $k", ("value_$0", 'globals()["value_$0"]'), ("value_$0 = $k",), declares="value_$0"),
    Place("state_$0 = types.SimpleNamespace(n=$k)",
          ("state_$0.n", 'getattr(state_$0, "n")', 'vars(state_$0)["n"]', 'operator.attrgetter("n")(state_$0)',
           "(lambda: state_$0.n)()"),
          ("state_$0.n = $k", 'setattr(state_$0, "n", $k)', 'vars(state_$0)["n"] = $k'),
          ("state_$0 = types.SimpleNamespace(n=$k)", 'state_$0.__dict__ = {"n": $k}', "state_$0.m = 1")),
    Place('table_$0 = {"n": $k, "m": $k}',
          ('table_$0["n"]', 'table_$0.get("n")', "next(iter(table_$0.values()))", "list(table_$0.values())[-1]",
           '{**table_$0}["n"]', "(lambda m, n, **more: n)(**table_$0)", '[v for k, v in table_$0.items() if k == "n"][0]'),
          ('table_$0["n"] = $k', "table_$0.update(n=$k)"),
          ('table_$0 = {"n": $k, "m": $k}', 'table_$0["n"] = table_$0.pop("n")', 'table_$0["more"] = $k')),
    Place("list_$0 = [$k, $k]",
          ("list_$0[0]", "list_$0[-1]", "[*list_$0][0]", "list_$0[:1][0]", "[v for v in list_$0][0]",
           "next(v for v in list_$0)", "(lambda first, *more: first)(*list_$0)"),
          ("list_$0[0] = $k", "list_$0[:1] = [$k]"),
          ("list_$0.reverse()", "list_$0.insert(0, $k)", "list_$0 = [$k, $k]", "list_$0[:] = [$k]")),
    Place("pair_$0 = ($k, $k)", ("pair_$0[0]", "(lambda a, b: b)(*pair_$0)"), ("pair_$0 = ($k, $k)",),
          declares="pair_$0"),
    Place("class Class_$0:\n    n = $k\nobject_$0 = Class_$0()",
          ("object_$0.n", "Class_$0.n", "type(object_$0).n", "object_$0.__class__.n", 'Class_$0.__dict__["n"]'),
          ("Class_$0.n = $k",),
          ("object_$0.n = $k", "vars(object_$0).pop('n', None)", "class Class_$0:\n    n = $k")),
    Place(CLASSES,
          ("thing_$0.own", "thing_$0.of_class()", "Derived_$0.of_class()", "thing_$0.property", "thing_$0.method()",
           "thing_$0()", 'thing_$0["own"]', "Base_$0.method(thing_$0)"),
          ("thing_$0.own = $k", "thing_$0.property = $k", "Base_$0.n = $k"),
          ("Derived_$0.n = $k", "thing_$0.__class__ = Other_$0", "Base_$0.method = lambda self: $k",
           "thing_$0.method = lambda: $k", "Base_$0.__call__ = lambda self: $k",
           "Base_$0.property = property(lambda self: $k)", "thing_$0 = Derived_$0()",
           "Derived_$0.__bases__ = (Other_$0,)", "Base_$0.of_class = classmethod(lambda cls: $k)",
           "Base_$0.__getitem__ = lambda self, key: $k", "Derived_$0.__getattribute__ = lambda self, name: $k")),
    Place("class Slots_$0:\n    __slots__ = ('n',)\nslots_$0 = Slots_$0()\nslots_$0.n = $k", ("slots_$0.n",),
          ("slots_$0.n = $k",), ("slots_$0 = Slots_$0()\nslots_$0.n = $k",)),
    Place("@dataclasses.dataclass\nclass Data_$0:\n    n: object\n    m: object = 1\ndata_$0 = Data_$0($k)",
          ("data_$0.n", "dataclasses.replace(data_$0, m=2).n", "dataclasses.astuple(data_$0)[0]"), ("data_$0.n = $k",),
          ("data_$0 = Data_$0($k)",), kinds="int float bool str maybe"),
    Place("Tuple_$0 = collections.namedtuple('Tuple_$0', 'n m')\nnamed_$0 = Tuple_$0($k, $k)",
          ("named_$0.n", "named_$0[1]", "named_$0._replace(m=1).n"), (), ("named_$0 = Tuple_$0($k, $k)",)),
    Place("def counter_$0():\n    n = $k\n    def step(*new):\n        nonlocal n\n        for n in new: pass\n"
          "        return n\n    return step\nstep_$0 = counter_$0()",
          ("step_$0()",), ("step_$0($k)",),
          ("step_$0 = counter_$0()", "step_$0.__closure__[0].cell_contents = $k")),
    Place("def default_$0(n=$k, *, m=$k):\n    return n if n is not None else m", ("default_$0()",), (),
          ("default_$0.__defaults__ = ($k,)", "default_$0.__kwdefaults__ = {'m': $k}",
           "default_$0 = lambda: $k", "default_$0.__code__ = (lambda n, *, m: m).__code__")),
    Place("def marked_$0():\n    return marked_$0.n\nmarked_$0.n = $k", ("marked_$0()", "marked_$0.n"),
          ("marked_$0.n = $k",)),
    Place("tagged_$0 = fresh(0, 2)\ntagged_$0.n = $k", ("tagged_$0.n", 'getattr(tagged_$0, "n")'), ("tagged_$0.n = $k",),
          ("tagged_$0 = fresh(0, 2)\ntagged_$0.n = $k",)),
    Place("class Target_$0: pass\ntarget_$0 = Target_$0()\ntarget_$0.n = $k\nref_$0 = weakref.ref(target_$0)",
          ("ref_$0().n", "weakref.proxy(target_$0).n"), ("ref_$0().n = $k",),
          ("target_$0 = Target_$0()\ntarget_$0.n = $k\nref_$0 = weakref.ref(target_$0)",)),
    Place('config_$0 = types.ModuleType("random_config_$0")\nconfig_$0.n = $k\n'
          'sys.modules["random_config_$0"] = config_$0',
          ("config_$0.n", 'sys.modules["random_config_$0"].n', '__import__("random_config_$0").n',
           'importlib.import_module("random_config_$0").n',
           ("from random_config_$0 import n as local_$0", "local_$0"), ("import random_config_$0", "random_config_$0.n")),
          ("config_$0.n = $k",),
          ('config_$0 = types.ModuleType("random_config_$0")\nconfig_$0.n = $k\n'
           'sys.modules["random_config_$0"] = config_$0',)),
    Place('os.environ["RANDOM_$0"] = str($T($k))',
          ('$T(os.environ["RANDOM_$0"])', '$T(os.getenv("RANDOM_$0", "1"))', '$T(os.environ.get("RANDOM_$0"))'), (),
          ('os.environ["RANDOM_$0"] = str($T($k))',), kinds="int float str"),
    Place("hidden_$0 = [$k]\n@functools.lru_cache\ndef cached_$0(k=0):\n    return hidden_$0[0]",
          ("cached_$0()", "cached_$0(k=1)"), (),
          ("cached_$0.cache_clear()", "hidden_$0[0] = $k\ncached_$0.cache_clear()")),
    Place("class Lazy_$0:\n    source = $k\n    @functools.cached_property\n    def n(self):\n        return self.source\n"
          "lazy_$0 = Lazy_$0()", ("lazy_$0.n",), (),
          ("Lazy_$0.source = $k\nvars(lazy_$0).pop('n', None)", "lazy_$0 = Lazy_$0()")),
    Place("bound_$0 = functools.partial(lambda a: a, $k)", ("bound_$0()",), (),
          ("bound_$0 = functools.partial(lambda a: a, $k)",)),
    Place('outer_$0 = {"a": [types.SimpleNamespace(n=$k)]}\ninner_$0 = outer_$0["a"][0]',
          ('outer_$0["a"][0].n', "inner_$0.n", 'outer_$0.get("a")[-1].n'), ('outer_$0["a"][0].n = $k', "inner_$0.n = $k"),
          ('outer_$0["a"][0] = types.SimpleNamespace(n=$k)', 'outer_$0["a"] = [types.SimpleNamespace(n=$k)]',
           'outer_$0["a"].insert(0, types.SimpleNamespace(n=$k))')),
    Place("class Net_$0(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.n = $k\n"
          "        self.inner = nn.Module()\n        self.inner.n = $k\n    def forward(self):\n        return self.n\n"
          "net_$0 = Net_$0()",
          ("net_$0.n", "net_$0()", "net_$0.inner.n", "[m for m in net_$0.modules()][-1].n"),
          ("net_$0.n = $k", "net_$0.inner.n = $k"),
          ("Net_$0.forward = lambda self: $k", "net_$0.forward = lambda: $k", "net_$0 = Net_$0()",
           "net_$0.inner = nn.Module()\nnet_$0.inner.n = $k")),
    Place("class Fallback_$0:\n    def __getattr__(self, name):\n        return fallback_$0[name]\n"
          'fallback_$0 = {"n": $k}\nasked_$0 = Fallback_$0()', ("asked_$0.n",), ('fallback_$0["n"] = $k',),
          ("asked_$0.n = $k", "Fallback_$0.n = $k")),
    Place("class Descriptor_$0:\n    def __init__(self): self.n = $k\n    def __get__(self, obj, kind): return self.n\n"
          "class Described_$0:\n    n = Descriptor_$0()\ndescribed_$0 = Described_$0()",
          ("described_$0.n", "Described_$0.n"), ("vars(Described_$0)['n'].n = $k",), ("described_$0.n = $k",)),
    Place("local_$0 = threading.local()\nlocal_$0.n = $k", ("local_$0.n",), ("local_$0.n = $k",)),
    Place("context_$0 = contextvars.ContextVar('context_$0')\ncontext_$0.set($k)", ("context_$0.get()",),
          ("context_$0.set($k)",), rare=True),
    Place("deque_$0 = collections.deque([$k, $k], 2)", ("deque_$0[0]", "deque_$0[-1]"), ("deque_$0[0] = $k",),
          ("deque_$0.append($k)", "deque_$0.rotate()")),
    Place("ordered_$0 = collections.OrderedDict(n=$k, m=$k)", ('ordered_$0["n"]', "list(ordered_$0.values())[0]"),
          ('ordered_$0["n"] = $k',), ('ordered_$0.move_to_end("n")',)),
    Place("missing_$0 = collections.defaultdict(lambda: $k)", ('missing_$0["n"]',), ('missing_$0["n"] = $k',),
          ("missing_$0.clear()",)),
    Place("chain_$0 = collections.ChainMap({}, {'n': $k})", ('chain_$0["n"]',), (), ("chain_$0['n'] = $k",
                                                                                   "chain_$0.maps[1]['n'] = $k")),
    Place("array_$0 = array.array('d' if $T is float else 'q', [$k, 1])", ("array_$0[0]",), ("array_$0[0] = $k",),
          kinds="int float", rare=True),
    Place("class Manager_$0:\n    def __enter__(self): return self.n\n    def __exit__(self, *error): return None\n"
          "manager_$0 = Manager_$0()\nmanager_$0.n = $k",
          (("with manager_$0 as entered_$0: pass", "entered_$0"),), ("manager_$0.n = $k",),
          ("Manager_$0.__enter__ = lambda self: $k",)),
    Place("class Steps_$0:\n    def __iter__(self):\n        yield self.n\n        yield 1\n"
          "steps_$0 = Steps_$0()\nsteps_$0.n = $k",
          ("[*steps_$0][0]", "next(iter(steps_$0))", "[s for s in steps_$0][0]"), ("steps_$0.n = $k",),
          ("Steps_$0.__iter__ = lambda self: iter([$k, 1])",)),
]

# Places inside of the function's own surroundings: its object, its closure, its arguments.
OF_METHOD = Place("machine.n_$0 = $k", ("self.n_$0", "vars(self)['n_$0']"), ("self.n_$0 = $k",),
                  ("type(machine).n_$0 = $k", "machine.n_$0 = $k"))

LITERALS = {
    "int": ["1", "2", "0", "3", "5", "6", "True"], "float": ["0.5", "1.5", "0.25", "-0.75", "2.0", "0.0"],
    "bool": ["True", "False"], "str": ['"a"', '"b"', '"c"'], "maybe": ["None", "0.5", "1.5"],
    "tensor": ["fresh(4, 4, 3)", "fresh(5, 4, 3)", "fresh(6, 4, 3).requires_grad_()", "base[1:5]", "base[2:]",
               "fresh(7, 3, 4).t()", "nn.Parameter(fresh(8, 4, 3))"],
    "buffer": ["fresh(4, 8)", "fresh(5, 8)", "fresh(6, 16)[::2]", "fresh(7, 2, 8)[1]"],
    "function": ["torch.tanh", "torch.relu", "(lambda t: t * 2)", "(lambda t: t + 1)", "F.softplus", "nn.Tanh()",
                 "(lambda t, by=0.5: t * by)", "nn.Dropout(0.5)"],
}
TYPES = {"int": "int", "float": "float", "str": "str"}

# What is made of numbers.
INTS = [
    "$i + $i", "$i % 3", "$i // 2", "$i * 2", "-$i", "abs($i)", "min($i, $i)", "max($i, 2)", "divmod($i, 3)[0]",
    "round($f)", "int($f * 4)", "math.floor($f * 3)", "math.ceil($f)", "math.isqrt(abs($i))", "math.gcd($i, 6)",
    "($i << 1)", "($i & 3)", "($i ^ $i)", "($i | 4)", "($i >> 1)", "~$i", "pow($i, 2)", "pow($i, 3, 7)",
    "($i if $b else $i)", "($i or 2)", "($i and 3)", "len(range($i))", "sum(range($i % 5))", "(lambda v: int(f'{v}'))($i)",
    "{0: 1, 1: 3, 2: 2}.get($i, 5)", "[3, 1, 2][$i % 3]", "($i, $i)[$b]", "$i.bit_length()", "operator.add($i, 1)",
    "int(str($i))", "hash($i) % 7", "len($s * 2)", "int($b)", "len([j for j in range(5) if j < $i])",
    "sum(j * $i for j in range(3))", "max([$i, $i], key=lambda j: -j)", "sorted([$i, 2, $i])[1]",
    "functools.reduce(lambda p, q: p + q, [$i, 1, $i])", "(lambda a: a + 1)($i)", "(lambda a=$i: a)()",
    "x.shape[0] - $i % 3", "x.dim()", "len(x)", "x.stride()[0]", "x.storage_offset()", "(x.numel() + $i)", "x._version",
    "next(j for j in range(9) if j >= $i % 9)", "list(map(lambda a: a + 1, [$i]))[0]", "dict(a=$i)['a']",
    "sum(1 for a, b in zip(range($i % 4), 'abc'))", "[i for i, c in enumerate('abc') if c == $s][0]", "ord($s) - 96",
    "type($i)(3)", "isinstance($i, bool) + 1", "int.from_bytes(bytes([$i % 9]), 'big')", "operator.index($i)",
    "int(math.fmod($f, 2))", "len({$i, $i})", "len(str($f))", "sum($i > j for j in range(4))",
    "int(type($f).__name__ == 'float')", "int('%d' % $i)", "round($f * 10) % 4", "math.comb($i % 4 + 2, 2)",
]
FLOATS = [
    "$f * 0.5", "$f + $f", "$f - 1", "$f * $f", "-$f", "abs($f)", "$i / 4", "float($i)", "$f / 2", "1 / (2 + abs($f))",
    "$f ** 2", "$f // 0.5", "$f % 0.75", "divmod($f, 0.5)[1]", "min($f, $f)", "max($f, 0.25)", "round($f, 1)",
    "math.sqrt(abs($f))", "math.exp(-abs($f))", "math.log1p(abs($f))", "math.sin($f)", "math.tanh($f)",
    "math.hypot($f, 1.0)", "math.copysign(1.0, $f)", "math.fsum([$f, $f])", "sum([$f, $f])", "math.pow(abs($f), 0.5)",
    "($f if $b else $f)", "($f or 0.5)", "(lambda v: float(f'{v:.2f}'))($f)", "float(str($f))", "float.fromhex($f.hex())",
    "complex($f, 1).real", "{1: 0.5, 2: 0.25}.get($i, 1.5)", "[0.5, 0.25, 1.5][$i % 3]", "($f, $f)[$b]",
    "functools.reduce(operator.mul, [$f, 0.5])", "(lambda a: a * 0.5)($f)", "max([$f, $f], key=abs)",
    "sorted([$f, 0.5, $f])[0]", "0.9 ** $i", "1 - 0.9 ** ($i % 5 + 1)", "math.pi * $f", "{'a': $f}['a']",
    "sum(j * $f for j in range(3))", "$f.as_integer_ratio()[0] / 8", "float($f.is_integer())", "math.ldexp($f, 1)",
    "{'a': 0.5, 'b': 1.5}.get($s, 0.25)", "math.frexp($f)[0]", "math.dist([$f], [0.5])",
    "next(iter([$f]))", "[*map(float, [$f])][0]", "math.cos(math.radians($f))", "float(bool($f)) * 0.5",
    "getattr(math, ['sin', 'cos'][$i % 2])($f)", "1.5 if math.isclose($f, 0.5) else $f", "operator.truediv($f, 2)",
    "{$f: 0.5}.get(0.5, 1.5)", "float('%.1f' % $f)", "float(0.5 < $f <= 1.5)", "(0.25 if $n is None else $n * 0.5)",
]
BOOLS = [
    "$i > 2", "$f > 0.5", "$i % 2 == 0", "$s == 'a'", "not $b", "$b and $b", "$b or $b", "0 < $i < 4", "$i in (1, 2)",
    "$f in {0.5, 1.5}", "$n is None", "bool($i)", "bool($f)", "isinstance($f, float)", "isinstance($i, int)",
    "$f == $f", "$i == $i", "$i != 3", "$f >= $i", "any([$b, $b])", "all(j < $i for j in range(2))", "type($f) is float",
    "type($i) is int", "$s in 'ab'", "x.requires_grad", "x.is_leaf", "x is y", "torch.is_grad_enabled()",
    "math.isclose($f, 0.5)", "callable($g)", "(lambda v: '1' in f'{v}')($i)", "$i.__eq__(2) is True", "hasattr(x, 'n')",
    "x.is_contiguous()", "x.grad is None", "$i is $i",
]
STRINGS = ["'abc'[$i % 3]", "(lambda v: f'{v}')($s)", "($s if $b else 'b')", "{1: 'a', 2: 'b'}.get($i, 'c')", "'abc'[bool($f)]",
           "min($s, $s)"]

# Tensors of 4 × 3, with numbers in all the places where an operation takes one.
TENSORS = [
    "h * $f", "h + $i", "$t + $t", "$t * $f", "$g($t)", "x[$i % 4] + h", "x[:, $i % 3, None] + h", "x[..., $i % 3, None] * h",
    "x[-($i % 4) - 1] + h", "x[$i % 4, $i % 3] + h", "$u[$i % 8] + h", "$u[$i % 4:$i % 4 + 4, None] * h" ,
    "$u[-($i % 8) - 1] * h", "$u[::$i % 2 + 1][:4, None] + h", "x[:$i % 4 + 1].sum(0) + h", "x[$i % 4:].sum(0) + h",
    "x[-($i % 4) - 1:].sum(0) + h", "x[$i % 2::2].sum(0) + h", "x[slice($i % 2, None, $i % 2 + 1)].sum(0) + h",
    "x[..., -1 - $i % 3:].sum() + h", "x[None, $i % 4] + h", "x[[$i % 4, 0]].sum(0) + h", "x[torch.tensor([$i % 4])] + h",
    "x[torch.tensor($i % 4)] + h", "x[$i % 4:$i % 4 + 1, $i % 3:] .sum() + h", "$t[$i % 4][$i % 3] + h",
    "x.narrow(0, $i % 3, 2).sum(0) + h", "x.select(1, $i % 3)[:, None] + h", "x.select($i % 2, 1).sum() + h",
    "$u.as_strided((4, 3), (1, 1), $i % 2) + h", "$u.as_strided((4, 3), ($i % 2, 1)) + h", "x.roll($i, 0) + h",
    "x.flip($i % 2) + h", "x.t()[$i % 3][:, None] + h", "x.repeat($i % 2 + 1, 1)[-4:] + h",
    "x.expand($i % 3 + 1, 4, 3).sum(0) + h", "x.reshape($i % 2 + 1, -1)[0, :3] + h", "x.reshape(-1)[$i % 12] + h",
    "x.unfold(0, $i % 3 + 1, 1).sum() + h", "x.diagonal($i % 3 - 1).sum() + h", "x.chunk(2)[$i % 2].sum(0) + h",
    "x.split($i % 3 + 1)[0].sum(0) + h", "x.unbind($i % 2)[$i % 3].sum() + h", "[*x][$i % 4] + h",
    "torch.zeros($i % 3 + 1, 3).sum(0) + h", "torch.arange($i % 4 + 1.0).sum() + h", "torch.arange(0, $i % 4 + 1).sum() + h",
    "torch.full((4, 3), $f) + h", "torch.full((4, 3), $i) + h", "torch.tensor($f) * h", "torch.tensor([$f, 1.0, $f]) + h",
    "torch.tensor([[$i], [1], [2], [3]]) + h", "torch.linspace(0, $f, 3) + h", "torch.eye(4, 3) * $f + h",
    "torch.ones($i % 4 + 1, 4, 3).mean(0) * h", "h.new_full((3,), $f) + h", "torch.scalar_tensor($f) + h",
    "h.tril($i % 3 - 1) + x", "h.clamp(min=$f)", "h.clamp(-abs($f), abs($f))", "h.clamp_min($f)", "h ** ($i % 3)", "h.abs() ** $f",
    "torch.lerp(h, x, $f)", "torch.add(h, x, alpha=$f)", "torch.sub(h, y, alpha=$i)", "h - $f", "$f - h", "$i * h",
    "h / (abs($f) + 1)", "$f / (h.abs() + 1)", "h.sum($i % 2, keepdim=True) + x", "h.mean(-($i % 2) - 1, keepdim=True) + x",
    "h.softmax($i % 2)", "h.cumsum($i % 2)", "F.leaky_relu(h, $f)", "F.elu(h, abs($f))", "F.softplus(h, beta=abs($f) + 1)",
    "F.hardtanh(h, -abs($f), abs($f) + 1)", "F.dropout(h, 0.5)", "F.dropout(h, 0.5, training=$b)", "F.dropout(h, abs(math.sin($f)))",
    "torch.rand_like(h) + h", "torch.randn(4, 3) * $f + h", "torch.randn($i % 3 + 1, 3).sum(0) + h", "torch.bernoulli(h.sigmoid()) + h",
    "torch.where(h > $f, h, x)", "h.masked_fill(h > $f, $i)", "h.masked_fill(h > 0, $f)", "torch.where($u[:4, None] > 0, h, $f)",
    "h.index_select(0, torch.tensor([$i % 4, 0, 1, 2]))", "h.gather(1, torch.full((4, 3), $i % 3))", "h.sort($i % 2, descending=$b)[0]",
    "h.topk($i % 3 + 1)[0].sum(1, keepdim=True) + x", "torch.cat([h, x][:$i % 2 + 1])[-4:]", "torch.stack([h, x])[$i % 2]",
    "torch.cat([h, x], $i % 2).sum() + h", "sum([h, x, y][:$i % 3 + 1])", "sum(x[j] for j in range($i % 4)) + h",
    "h.to(torch.float64 if $b else torch.float32).float()", "h.std(0, correction=$i % 2) + x", "h.norm(p=$i % 2 + 1) + x",
    "(h @ x.t() @ y) * 0.125", "torch.addmm(h, h @ x.t(), y, alpha=$f, beta=$f) * 0.125", "F.linear(h, x[:3]) + h",
    "F.layer_norm(h, (3,), eps=abs($f) + 0.1)", "F.pad(h[:, :1], ($i % 3, 2 - $i % 3))", "F.pad(h[1:], (0, 0, 1, 0), value=$f)",
    "F.one_hot(torch.tensor([$i % 3]), 3) + h", "F.embedding(torch.tensor([$i % 4]), h) + x", "h.detach() + x", "h.clone()",
    "h.relu_()", "h.mul_($f)", "h.t().contiguous().t()", "h.transpose(0, 1).transpose($i % 2, 1 - $i % 2) .sum() + x",
    "h.permute($i % 2, 1 - $i % 2).sum(0).sum() + x", "h.unsqueeze($i % 3).sum($i % 3)", "h.view(3, 4)[$i % 3].sum() + x",
    "h.view(-1, 3)", "h.addcmul(x, y, value=$f)", "h.logsumexp($i % 2, True) + x", "h.repeat_interleave($i % 2 + 1, 0)[:4]",
    "torch.outer($u[:4], $u[$i % 5:$i % 5 + 3]) + h", "torch.einsum('ij,kj->ij', h, x)", "h.round(decimals=$i % 3)",
    "torch.movedim(h, $i % 2, 0).sum() + h", "(h > $f).float() + h", "h.eq($i).float() + h", "h.remainder(abs($f) + 1)",
    "h.float() + x.double().float()", "h[$u[:4] > $f].sum() + h",
]

# Statements. What writes to a buffer or an argument comes in every spelling.
STATEMENTS = [
    "h = $t", "h = $t", "h = $t", "h = $t", "h = h + $t", "h = h + $t", "h += $f", "h = h.tanh()",
    "$u[$i % 8] = $f", "$u[$i % 8] += $f", "$u[$i % 8].add_($f)", "$u[$i % 8] = h.detach()[0, 0]", "$u[-($i % 8) - 1] = $i",
    "$u[$i % 4:$i % 4 + 3] = $f", "$u[$i % 8:] *= $f", "$u[::$i % 2 + 1] = $f", "$u.narrow(0, $i % 7, 2).mul_($f)",
    "$u.select(0, $i % 8).fill_($f)", "$u.fill_($f)", "$u.mul_($f)", "$u[None][0, $i % 8] = $f", "$u[..., $i % 8] = $f",
    "$u[torch.tensor([$i % 8])] = $f", "$u[[$i % 8]] += $f", "$u.index_fill_(0, torch.tensor([$i % 8]), $f)", "$u.zero_()",
    "$u.copy_($u)", "$u[1:] = $u[:-1].clone()", "$u.scatter_(0, torch.tensor([$i % 8]), $f)", "$u.clamp_(max=$f)",
    "$u.add_($u, alpha=$f)", "$u.lerp_($u, 0.5)", "torch.add($u, $f, out=$u)", "$u.uniform_()", "$u.data[$i % 8] = $f",
    "$u.view(2, 4)[$i % 2].zero_()", "$u.unfold(0, 2, 2)[$i % 4] = $f", "$u[$u > $f] = $f", "$u.masked_fill_($u > $f, $f)",
    "x.mul_($f)", "x[$i % 4].add_($f)", "x[:, $i % 3] = $f", "x[$i % 4] = $f", "x += $f", "y.copy_(x)", "F.relu(x, inplace=True)",
    "x.relu_()", "x[:2].mul_($f)", "x.data.mul_($f)", "y[1:] = x[:-1]", "nn.ReLU(inplace=True)(y)", "x.tanh_()", "x.t()[$i % 3].mul_(2)",
    "with torch.no_grad(): x.add_($f)", "with torch.no_grad(): x[$i % 4] = $f", "with torch.no_grad(): $t.mul_($f)",
    "with torch.no_grad(): x.zero_()", "x = x * $f", "x, y = y, x", "y = x[:]", "x = x.detach()", "y = y.clone()", "h = x",
    "out.append($f)", "out.append($i)", "v = $f\nout.append(f'{v:.3f} {n}')", "out.append($s)", "out.append(($b, $n))", "out.append(h[$i % 4])",
    "out.append($t)", "out.append({'k': $i, $s: $f})", "out.append($u)", "out.append(x)", "out.append([$i, [$f]])", "out.append($u[$i % 8])",
    "out.append(x.n if hasattr(x, 'n') else None)", "x.n = $i", "out.append(h.requires_grad)", "out.append(str(h.shape))",
    "out.append(torch.Size([$i % 3, 2]))", "out.append(math.sqrt)", "out.append(sorted({$s: 1, 'b': 2}))", "out.append(type($f))",
    "if (v := $i) % 5 == 4: raise ValueError(f'stopped at {v}')", "assert $f != 1.5, $f", "if $b: return h", "if $b: return out, $i",
    "out.append((m := $i) + m)", "if (m := $f) > 0.5: h = h * m", "out.append(torch.is_grad_enabled())", "out.append(h.mean().item() > $f)" ,
]

# Blocks, with $body for statements inside, $else for others.
BLOCKS = [
    "if $b:\n$body", "if $b:\n$body\nelse:\n$else", "for j_$0 in range($i % 3 + 1):\n$body", "with torch.no_grad():\n$body",
    "for j_$0 in range($i % 4, 4):\n$body\n    if $b: break", "j_$0 = 0\nwhile j_$0 < $i % 4:\n$body\n    j_$0 += 1",
    "with torch.enable_grad():\n$body", "for j_$0, v_$0 in enumerate([$f, $f]):\n    h = h * v_$0\n$body",
    "try:\n$body\n    if $b: raise KeyError($i)\n    h = h + 1\nexcept KeyError as error:\n    out.append(str(error))\n$else",
    "try:\n$body\nfinally:\n$else", "try:\n    x[$i]\n$body\nexcept IndexError:\n$else",
    "try:\n    {1: 1, 2: 2}[$i]\n$body\nexcept KeyError:\n$else\nelse:\n    h = h * 0.5",
    "match $i:\n    case 1:\n$case\n    case 2 | 3:\n        h = h * $f\n    case _:\n        h = h + 1",
    "def inner_$0(n, r=$f):\n    nonlocal h, x, y\n$body\ninner_$0($i)",
    "for name, value in {$s: $f, 'b': 0.5}.items():\n    h = h * value\n$body",
    "with contextlib.suppress(ZeroDivisionError):\n    h = h * (1 / $i)\n$body",
    "for j_$0, row_$0 in enumerate(x):\n    h = h + row_$0 * $f\n$body", "if $b: pass\nelif $i > 3:\n$body\nelse:\n$else",
]

# Functions beside it, of a tensor and numbers; $body is their own.
HELPERS = [
    ("def helper_$0(h, x, y, n, r, out):\n$body\n    return h", "h = helper_$0(h, x, y, $i, $f, out)"),
    ("def helper_$0(h, x, y, out, *, r, n):\n$body\n    return h", "h = helper_$0(h, x, y, out, n=$i, r=$f)"),
    ("def helper_$0(h, n):\n    return h if n <= 0 else helper_$0(h * 0.5 + n, n - 1)", "h = helper_$0(h, $i % 4)"),
    ("def helper_$0(h, n):\n    for i in range(n):\n        yield h[i % 4] * n", "for v_$0 in helper_$0(h, $i % 4): h = h + v_$0"),
    ("def helper_$0(*rest, **named):\n    out = rest[0]\n    for name, value in named.items():\n        out = out * 0.5 + value\n"
     "    return out", "h = helper_$0(h, **{$s: $f, 'b': $f})"),
    ("class Helper_$0:\n    def __init__(self, n): self.n, self.calls = n, 0\n    def __call__(self, h, r):\n        self.calls += 1\n"
     "        return h * r + self.n\nhelper_$0 = Helper_$0($i0)", "h = helper_$0(h, $f)"),
    ("@contextlib.contextmanager\ndef helper_$0(n):\n    yield n + 1", "with helper_$0($i) as n: h = h + n"),
    ("def helper_$0(function):\n    @functools.wraps(function)\n    def form(*args):\n        return function(*args) * 0.5\n    return form\n"
     "@helper_$0\ndef decorated_$0(h, r): return h + r", "h = decorated_$0(h, $f)"),
    ("ring_$0 = types.SimpleNamespace(at=0, memory=torch.zeros(3, 4, 3))",
     "ring_$0.memory[ring_$0.at] = h.detach()\nring_$0.at = (ring_$0.at + 1) % 3\nh = h + ring_$0.memory.sum(0) * 0.125"),
    ("ring_$0 = types.SimpleNamespace(count=0, memory=torch.zeros(5))",
     "ring_$0.memory[ring_$0.count % 5] = h.detach().sum()\nring_$0.count += 1\n"
     "h = h + ring_$0.memory[:min(ring_$0.count, 5)].mean()"),
    ("swap_$0 = types.SimpleNamespace(a=fresh(1, 4, 3), b=fresh(2, 4, 3))",
     "swap_$0.a, swap_$0.b = swap_$0.b, swap_$0.a\nh = h + swap_$0.a"),
    ("last_$0 = types.SimpleNamespace(h=fresh(1, 4, 3))", "h = h + last_$0.h * 0.5\nlast_$0.h = h.detach()"),
    ("average_$0 = {'mean': 0.0, 'count': 0}", "average_$0['count'] += 1\naverage_$0['mean'] += ($f - average_$0['mean']) / "
     "average_$0['count']\nh = h * average_$0['mean']"),
    ("layer_$0 = nn.Linear(3, 3)\nwith torch.no_grad(): layer_$0.weight.copy_(fresh(3, 3, 3)); layer_$0.bias.zero_()",
     "h = layer_$0(h)"),
    ("norm_$0 = nn.BatchNorm1d(3)", "h = norm_$0(h)"),
    ("drop_$0 = nn.Sequential(nn.Dropout(0.5), nn.ReLU(inplace=True))", "h = drop_$0(h)"),
    ("weight_$0 = fresh(2, 3).requires_grad_()\noptimizer_$0 = torch.optim.SGD([weight_$0], lr=0.1, momentum=0.5)",
     "optimizer_$0.zero_grad()\n(x.detach() * weight_$0 * $f).sum().backward()\noptimizer_$0.step()\nh = h + weight_$0.detach()"),
    ("weight_$0 = fresh(2, 3).requires_grad_()\noptimizer_$0 = torch.optim.Adam([weight_$0], lr=0.1)",
     "optimizer_$0.zero_grad()\n(x.detach() * weight_$0).tanh().sum().backward()\noptimizer_$0.step()\nh = h + weight_$0.detach()"),
    ("weight_$0 = fresh(2, 3).requires_grad_()",
     "(h.detach() * weight_$0 * $f).sum().backward()\nh = h + weight_$0.grad"),
    ("weight_$0 = fresh(2, 3).requires_grad_()",
     "h = h + torch.autograd.grad((h.detach() * weight_$0 ** 2 * $f).sum(), weight_$0)[0]"),
]
HELPER_EVENTS = {
    "Helper_$0": ("helper_$0.n = $i", "Helper_$0.__call__ = lambda self, h, r: h", "helper_$0 = Helper_$0(1)"),
    "def helper_$0(h, x": ("def helper_$0(h, *rest, **more):\n    return h + 1",), "layer_$0": ("layer_$0.weight.requires_grad_(False)",
        "layer_$0.bias = None", "layer_$0 = nn.Linear(3, 3, bias=False)", "layer_$0.weight.grad = None",
        "layer_$0.register_forward_hook(lambda *a: a[-1] + 1)", "nn.Module.zero_grad(layer_$0)"),
    "norm_$0": ("norm_$0.eval()", "norm_$0.train()", "norm_$0.momentum = 0.5", "norm_$0.eps = 0.1"),
    "drop_$0": ("drop_$0.eval()", "drop_$0.train()", "drop_$0[0].p = 0.25", "drop_$0[1] = nn.Tanh()", "drop_$0.append(nn.Tanh())"),
    "optimizer_$0": ("optimizer_$0.param_groups[0]['lr'] = 0.05", "optimizer_$0.param_groups[0]['weight_decay'] = 0.1",
                     "weight_$0.grad = None", "optimizer_$0.state.clear()"),
    "weight_$0": ("weight_$0.grad = None", "weight_$0 = fresh(4, 3).requires_grad_()", "weight_$0.grad = torch.ones(3)"),
    "ring_$0": ("ring_$0.memory = torch.ones_like(ring_$0.memory)",), "swap_$0": ("swap_$0.a = swap_$0.b",),
    "last_$0": ("last_$0.h = held",), "average_$0": ("average_$0['count'] = 0",),
}

RETURNS = ["h", "h, out", "h, $i", "h, $f", "{'h': h, 'out': out, 'n': $i}", "Result(h, $f)", "[h, x]", "h[$i % 4:]", "h[:, $i % 3]",
           "x", "out", "$f", "$i", "None", "Point(h, $i)", "h, h", "h, h.view(-1)", "h.detach()", "$u", "$t, $u", "'%.2f' % $f",
           "Result([h, {'x': $i}], (x, $s))", "h.sum()", "h if $b else None", "x.t()", "$u[$i % 4:$i % 4 + 2]", "Result(Result(h, $i), $n)"]

FORMS = {
    "entry": "def entry(x, y, n, r$extra):\n$body",
    "machine.step": "class Machine:\n    rate = 0.5\n    def step(self, x, y, n, r$extra):\n$method\nmachine = Machine()",
    "machine": "class Machine:\n    rate = 0.5\n    def __call__(self, x, y, n, r$extra):\n$method\nmachine = Machine()",
    "made": "def make(n_outside, r_outside):\n    def entry(x, y, n, r$extra):\n        nonlocal n_outside, r_outside\n$method\n"
            "    return entry\nmade = make(2, 0.5)",
    "module": "class Machine(nn.Module):\n    def forward(self, x, y, n, r$extra):\n$method\nmachine = module = Machine()",
    "partial": "def entry(x, y, n, r$extra):\n$body\npartial = functools.partial(entry)",
}

RESULTS = {"Result(": "@dataclasses.dataclass\nclass Result:\n    a: object\n    b: object\n",
           "Point(": "class Point(typing.NamedTuple):\n    a: object\n    b: object\n"}

# More arguments: how the function takes them, what it does with them, what it is given.
EXTRAS = [
    ("", "", ("",)),
    (", *rest", "for v in rest: h = h * 0.5 + v", ("", ", $k", ", $k, 2", ", 1")),
    (", **named", "for v in named.values(): h = h * 0.5 + v", ("", ", a=$k, b=1", ", b=1, a=$k", ", c=held, a=2.0")),
    (", flag=True", "if flag: h = h * 2", ("", ", False", ", flag=True", ", flag=None", ", flag=$k")),
    (", box=None", "if box is not None: h = h + box.n", (", types.SimpleNamespace(n=$k)", ", box=types.SimpleNamespace(n=held)", "",
                                                         ", box=types.SimpleNamespace(n=2)")),
    (", options={}", "h = h + options.get('n', 1)", (", {'n': $k}", ", options={'n': $k, 'm': 1}", ", {'n': held}", "")),
    (", numbers=(1, 2.0)", "h = h + numbers[0] * numbers[-1]", ("", ", [$k, 2]", ", ($k, 1)", ", numbers=[held, $k, $k]")),
    (", numbers=(1, 2.0)", "numbers = [*numbers, 1]\nnumbers[0] = 0.5\nh = h + sum(numbers)", ("", ", [$k, 2]", ", ($k, 1)")),
    (", box=None", "if box is not None: box.n = box.n * 0.5; h = h + box.n", (", types.SimpleNamespace(n=$k)", "")),
]
OUTSIDE_EVENTS = [f"made.__closure__[made.__code__.co_freevars.index('{name}')].cell_contents = {value}"
                  for name, value in (("n_outside", 3), ("n_outside", 0), ("r_outside", 1.5), ("r_outside", -0.5))]

X_FORMS = ["fresh($k, 4, 3)", "fresh($k, 4, 3)", "held", "base[:4]", "base[1:5]", "leaf * 2", "fresh($k, 4, 3).requires_grad_()", "leaf",
           "fresh($k, 3, 4).t()", "(leaf * 2)[:]", "fresh($k, 3).expand(4, 3)", "fresh($k, 4, 3).double()", "leaf.view(4, 3)",
           "(leaf * 0.5).view(2, 2, 3).view(4, 3)", "(whole := leaf * 2)[:]", "(whole := torch.cat([leaf, leaf]))[2:6]"]
Y_FORMS = ["fresh($k, 4, 3)", "fresh($k, 4, 3)", "a", "a[:]", "base[1:5]", "held", "a.detach()", "leaf", "leaf * 3", "base[2:]"]
N_FORMS = ["$k", "$k", "$c", "$c", "2"]
EVENTS = ["base.mul_(0.5)", "held = fresh($k, 4, 3)", "leaf.grad = None", "leaf = fresh($k, 4, 3).requires_grad_()", "held.n = $k",
          "held[0] = 1.0", "leaf.data.mul_(0.5)", "held.requires_grad_(not held.requires_grad)", "base.n = $k"]


# --- composing a program ---------------------------------------------------------------------------------------------


@dataclass
class Call:
    before: str               # what happens first, in the module's namespace
    arguments: str
    backward: bool            # through results and arguments, afterwards
    look: bool                # at all contents, afterwards


@dataclass
class Program:
    """The text of a module, which of its names is called, and the calls."""

    source: str
    target: str
    calls: list = field(default_factory=list)
    keeps: bool = False       # whether the results of earlier calls are held
    executor: str = "reference"

    def __str__(self):
        lines = [self.source, f"# called: {self.target}, executor {self.executor}" + ", results are kept" * self.keeps]
        for call in self.calls:
            lines += ["", call.before] if call.before else []
            lines.append(f"{self.target}({call.arguments})" + "   # then backward" * call.backward
                         + "   # unseen" * (not call.look))
        return "\n".join(lines)

    __repr__ = __str__


class Writer:
    """Draws a program."""

    def __init__(self, seed, without=None):
        self.pick, self.without = random.Random(seed).randrange, without
        self.setup, self.events, self.known = [], list(EVENTS), []
        self.ids = itertools.count(1)
        self.ints, self.depth = [], 0
        self.declared = [set()]
        self.before = []              # statements that an expression wants in front of its own
        self.form, self.beside = "entry", False          # whether a function beside the called one is being written

    def one(self, table):
        if self.without:
            table = [x for x in table if not re.search(self.without, str(x))]
        return table[self.pick(len(table))]

    def chance(self, of):
        """True once in `of`."""
        return self.pick(of) == 0

    def fill(self, template, number=0, kind=None):
        """The template with something drawn for each of its marks."""
        def mark(found):
            name = found[1]
            if name == "k":
                return self.one(LITERALS[kind])
            if name == "T":
                return TYPES.get(kind, "type")
            return self.expression(KIND_OF_MARK[name])
        return re.sub(r"\$([kTifbstugn])(?!\w)", mark, template.replace("$0", str(number)))

    def expression(self, kind):
        """An expression of a kind, in parentheses where it needs them."""
        self.depth += 1
        try:
            deep = self.depth > 3
            choice = self.pick(10)
            if kind in TABLES and choice >= (7 if kind in ("int", "float") else 3) and not deep:
                return f"({self.fill(self.one(TABLES[kind]))})"
            if kind == "tensor" and deep:
                return self.one(["x", "y", "h"])
            if kind == "tensor" and choice < 2:
                return self.one(["x", "y"])
            if kind in NAMES and (choice < 3 or deep):
                outside = [NAMES[kind][0] + "_outside"] if self.form == "made" and not self.beside else []
                return self.one([*NAMES[kind], *outside, *(self.ints if kind == "int" else ())])
            if deep and kind not in ("buffer",):
                return f"({self.one(LITERALS[kind])})"
            return self.read(self.place(kind))
        finally:
            self.depth -= 1

    def place(self, kind):
        """A place of this kind: one that is there, or a new one."""
        there = [(place, number) for place, number, its in self.known if its == kind]
        if there and self.chance(2) or len(self.known) > 6 and there:
            return self.one(there)
        fitting = [p for p in PLACES[:6] * 2 + PLACES if kind in p.kinds.split() and (not p.rare or self.chance(6))]
        if self.form in ("machine", "machine.step", "module"):
            fitting.insert(1, OF_METHOD)
        place, number = self.one(fitting), next(self.ids)
        if place is OF_METHOD:
            self.late.append(self.fill(place.setup, number, kind))
        else:
            self.setup.append(self.fill(place.setup, number, kind))
        self.known.append((place, number, kind))
        events = [e for e in place.events] + [w for w in place.writes if "self" not in w]
        self.events += [(e, number, kind) for e in events] * 3
        if place.writes and kind in ("int", "float", "str", "maybe", "bool") and self.chance(3) or \
                place.writes and kind in ("int", "float") and self.chance(2):
            self.wrote.append((place, number, kind))
        return place, number

    def read(self, found):
        place, number = found
        read = self.one(place.reads) if self.chance(2) else place.reads[0]
        if isinstance(read, tuple):
            self.before.append(self.fill(read[0], number))
            read = read[1]
        kind = next(k for p, n, k in self.known if p is place and n == number)
        return self.fill(read, number, kind)

    def write(self, place, number, kind):
        """A statement that puts another value into a place."""
        statement = self.one(place.writes)
        if place.declares:
            self.declared[-1].add(place.declares.replace("$0", str(number)))
        if kind in ("int", "float") and statement == f"{place.reads[0]} = $k" and not self.chance(3):
            return f"{place.reads[0].replace('$0', str(number))} += {self.one(['1'] if kind == 'int' else ['0.5', '-0.25'])}"
        value = self.expression(kind)
        return re.sub(r"\$k(?!\w)", lambda _: value, statement.replace("$0", str(number)))

    def statement(self):
        if self.wrote and self.chance(2):
            return self.flush(self.write(*self.wrote.pop()))
        if self.form == "made" and len(self.declared) == 1 and self.chance(3):
            return self.one(["n_outside += 1", "r_outside *= 0.5", "n_outside = n"])
        choice = self.pick(10)
        if choice >= 8 and len(self.declared) < 3 and self.blocks < 3:
            self.blocks += 1
            return self.flush(self.block(self.one(BLOCKS), next(self.ids)))
        if choice >= 6 and self.helpers < 2 and len(self.declared) == 1:
            self.helpers += 1
            return self.flush(self.helper())
        return self.flush(self.fill(self.one(STATEMENTS)))

    def flush(self, text):
        """A statement with what has to stand in front of it."""
        text = "\n".join([*self.before, text])
        self.before = []
        return text

    def statements(self, most, indent="    "):
        lines = [self.statement() for _ in range(1 + self.pick(most))]
        return "\n".join(indent + line for text in lines for line in text.split("\n"))

    def block(self, template, number):
        names = [f"j_{number}"] if "j_$0" in template else []
        head = re.sub(r"\$(body|else|case)", "", template)
        parts, own = re.split(r"(\$body|\$else|\$case)", template.replace("$0", str(number))), "def " in head
        made = []
        kept, self.before = self.before, []
        if own:
            self.declared.append(set())
        for part in parts:
            if part in ("$body", "$else", "$case"):
                self.ints += names
                text = self.statements(2, "        " if part == "$case" else "    ")
                del self.ints[len(self.ints) - len(names):]
                made.append(re.sub(r"\breturn\b.*", "out.append(1)", text) if own else text)
            else:
                made.append(part)
        if own:
            made = ["".join(made)]
            declared = self.declared.pop()
            if declared:
                made[0] = made[0].replace("nonlocal h, x, y\n", f"nonlocal h, x, y\n    global {', '.join(sorted(declared))}\n", 1)
        self.before = kept + self.before
        text = "".join(made)
        return self.fill(text)

    def helper(self):
        setup, use = self.one(HELPERS)
        number = next(self.ids)
        use = self.fill(use, number)
        if "$body" in setup:
            self.declared.append(set())
            kept, ints, self.before, self.ints, self.beside = self.before, self.ints, [], [], True
            text = re.sub(r"\breturn\b(?! h$).*", "pass", self.statements(2)).replace("self.", "machine.")
            self.before, self.ints, self.beside = kept, ints, False
            declared = self.declared.pop()
            if declared:
                text = f"    global {', '.join(sorted(declared))}\n{text}"
            made = setup.replace("$0", str(number)).replace("$body", text)
        else:
            made = setup.replace("$0", str(number)).replace("$i0", self.one(LITERALS["int"]))
        self.setup.append(made)
        for key, events in HELPER_EVENTS.items():
            if key in setup:
                self.events += [(e, number, "int") for e in events] * 2
                break
        return use

    def program(self):
        self.form = self.one(["entry", "entry", *FORMS])
        if self.form == "made":
            self.events += OUTSIDE_EVENTS
        self.blocks = self.helpers = 0
        self.late, self.wrote = [], []
        extra, use, given = self.one(EXTRAS) if self.chance(3) else EXTRAS[0]
        body = self.statements(5, "")
        while self.wrote:
            body += "\n" + self.flush(self.write(*self.wrote.pop()))
        returned = self.flush(f"return {self.fill(self.one(RETURNS))}")
        body = "\n".join(["h = x + 0.0" if self.chance(2) else "h = y * 1.0", *[use] * bool(use), body, returned])
        if re.search(r"\bout\b", body):
            body = f"out = []\n{body}"
        if self.declared[0]:
            body = f"global {', '.join(sorted(self.declared[0]))}\n{body}"
        text = FORMS[self.form].replace("$extra", extra)
        for mark, indent in (("$body", "    "), ("$method", "        ")):
            text = text.replace(mark, "\n".join(indent + line for line in body.split("\n")))
        source = "\n".join([PRELUDE, *[made for name, made in RESULTS.items() if name in body], *self.setup, text, *self.late, ""])
        return Program(source, self.form, self.calls(given, body), self.chance(2),
                       "native" if self.chance(8) else "reference")

    def calls(self, given, body):
        made = []
        x_forms, y_forms = ([f for f in forms if not WRITTEN.search(body) or self.chance(6) or not re.fullmatch(REFUSES_WRITES, f)]
                            for forms in (X_FORMS, Y_FORMS))
        x_form, y_form, given_form, n_form = self.one(x_forms), self.one(y_forms), self.one(given), self.one(N_FORMS)
        ints, floats = ([self.one(LITERALS[kind]) for _ in range(3)] for kind in ("int", "float"))
        backward = self.chance(2)
        for count in range(8 + self.pick(7)):
            event = self.event() if count > 2 and self.chance(4) else ""
            x = self.one(x_forms) if self.chance(12) else x_form
            y = self.one(y_forms) if self.chance(12) else y_form
            n = str(count) if n_form == "$c" else self.one(ints) if n_form == "$k" else n_form
            extra = self.fill_literals(self.one(given) if self.chance(6) else given_form, 0, "float")
            arguments = f"(a := {x.replace('$k', str(count))}), {y.replace('$k', str(count + 3))}, {n}, {self.one(floats)}{extra}"
            made.append(Call(event, arguments, backward != self.chance(12), not self.chance(4)))
        return made

    def event(self):
        found = self.one(self.events[::-1])
        text, number, kind = found if isinstance(found, tuple) else (found, 0, "int")
        return re.sub(r"\$i(?!\w)", lambda _: self.one(LITERALS["int"]), self.fill_literals(text, number, kind))

    def fill_literals(self, text, number, kind):
        text = re.sub(r"\$k(?!\w)", lambda _: self.one(LITERALS[kind]), text.replace("$0", str(number)))
        return text.replace("$T", TYPES.get(kind, "type"))


# In-place writes to an argument, and arguments to which they are not allowed.
WRITTEN = re.compile(r"\b[xyh](\[.*?\])?(\.\w+\(\w*\))?(\[.*?\])?\.\w+_\(|\b[xy]\[.*\] =|\b[xyh] \+=|inplace")
REFUSES_WRITES = r"leaf|.*requires_grad.*|.*expand.*|leaf.view.*|base.*"
KIND_OF_MARK = {"i": "int", "f": "float", "b": "bool", "s": "str", "t": "tensor", "u": "buffer", "g": "function", "n": "maybe"}
TABLES = {"int": INTS, "float": FLOATS, "bool": BOOLS, "str": STRINGS, "tensor": TENSORS}
NAMES = {"int": ["n"], "float": ["r"]}


# --- running one -----------------------------------------------------------------------------------------------------


_numbers = itertools.count(1)


@dataclass
class Outcome:
    """How much of a program's calls was replayed."""

    calls: int = 0
    replayed: int = 0
    recordings: int = 0
    raised: list = field(default_factory=list)
    reasons: list = field(default_factory=list)


def sourced(text, file):
    """The code of a text whose source can be found."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = compile(text, file, "exec")
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    return code


def own_modules():
    return {name: module for name, module in sys.modules.items() if name.startswith("random_")}


class World:
    """A namespace in which a program's text was run, and what its calls gave."""

    def __init__(self, program, code, wrap):
        self.names = {"__name__": "random_program", "__file__": code.co_filename}
        self.file = code.co_filename
        exec(code, self.names)
        self.modules = own_modules()
        self.function = wrap(eval(program.target, self.names))
        self.keeps, self.kept = program.keeps, []

    def call(self, before, call):
        """Everything that a call gives or leaves behind."""
        sys.modules.update(self.modules)
        event = self.tried(lambda: exec(before, self.names))
        self.modules = own_modules()
        self.names.pop("whole", None)                    # what an argument is a part of
        args, kwargs = eval(f"(lambda *args, **kwargs: (args, kwargs))({call.arguments})", self.names)
        result = self.tried(lambda: self.function(*args, **kwargs))
        through = args, kwargs, result, self.names.get("whole")
        backward = self.tried(lambda: self.backward(through)) if call.backward and "gave" in result else None
        if self.keeps:
            self.kept.append(result)
        return {"the event's end": event, "argument": args, "keyword": kwargs, "result": result, "backward": backward,
                "earlier results": self.kept, "name": self.names}

    def backward(self, through):
        ready = [t for t in tensors_in(through) if t.requires_grad and t.grad_fn is not None]
        if ready:
            sum((k + 1) * t.sum() for k, t in enumerate(ready)).backward()

    def tried(self, what):
        """What it gave, or what was raised, with the lines of the program it came through."""
        try:
            return {"gave": what()}
        except Exception as error:
            lines = [(frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)
                     if frame.filename == self.file]
            return {"raised": type(error).__name__, "saying": re.sub("0x[0-9a-f]+", "0x", str(error)), "lines": lines}


def check(program):
    """Run a program plain and compiled; Different where they differ, an Outcome otherwise."""
    files = set(linecache.cache)
    code = sourced(program.source, f"<random function {next(_numbers)}>")
    executor, settings.executor = settings.executor, program.executor
    variables, modules = set(os.environ), set(sys.modules)
    torch.manual_seed(0)
    outcome = Outcome()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain, compiled = World(program, code, lambda f: f), World(program, code, torch.compile)
            for number, call in enumerate(program.calls):
                before = sourced(call.before, f"{code.co_filename[:-1]}, before call {number}>")
                state = torch.get_rng_state()
                left = plain.call(before, call)
                after = torch.get_rng_state()
                torch.set_rng_state(state)
                right = compiled.call(before, call)
                outcome.calls += 1
                outcome.raised += [": ".join(list(left["result"].values())[:2])] if "raised" in left["result"] else []
                where = f"call {number}"
                if not torch.equal(after, torch.get_rng_state()):
                    raise Different(f"{where}: other random numbers were drawn")
                if call.look or number == len(program.calls) - 1:
                    Walk(UNITS if program.executor == "native" else 0).compare(left, right, where + ": ")
    finally:
        settings.executor = executor
        for name in set(os.environ) - variables:
            del os.environ[name]
        for name in set(sys.modules) - modules:
            if name.startswith("random_"):
                del sys.modules[name]
        for name in set(linecache.cache) - files:
            if name.startswith("<random"):
                del linecache.cache[name]
    function = compiled.function
    outcome.replayed = sum(r.hits for r in function.recordings)
    outcome.recordings = len(function.recordings)
    outcome.reasons = list(function.reasons)
    return outcome


# --- the smallest that fails ------------------------------------------------------------------------------------------


def failure(program):
    """What goes wrong with a program, in words; None where nothing does, or where it is no program."""
    try:
        check(program)
    except Different as error:
        return str(error)
    except Exception as error:               # in a program that was cut to pieces; or in compile itself, outside of a call
        return None if isinstance(error, (SyntaxError, NameError)) else f"{type(error).__name__}: {error}"
    return None


def kind_of(words):
    """What stays the same of a failure while its program gets smaller."""
    return re.sub(r"\[.*?\]|\d+", "", words).partition(" plain ")[0][:40].split(":")[-1].split()[:2] if words else None


def minimised(program, tries=2000):
    """The smallest program found that fails in the same way."""
    kind = kind_of(failure(program))
    if kind is None:
        return program
    while True:
        for smaller in reductions(program):
            tries -= 1
            if tries > 0 and kind_of(failure(smaller)) == kind:
                program = smaller
                break
        else:
            return program


def reductions(program):
    """Programs with a little less in them, the largest cuts first."""
    calls = program.calls
    for i in reversed(range(len(calls))):
        yield replace(program, calls=calls[:i] + calls[i + 1:])
    for change in ({"keeps": False}, {"executor": "reference"}):
        if any(getattr(program, name) != value for name, value in change.items()):
            yield replace(program, **change)
    tree = ast.parse(program.source)
    kept = {id(part) for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "fresh" for part in ast.walk(node)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in kept:
            continue
        for name in ("body", "orelse", "finalbody", "handlers", "decorator_list", "keywords"):
            for i in reversed(range(len(found) if isinstance(found := getattr(node, name, None), list) else 0)):
                if not isinstance(found[i], (ast.Pass, ast.Return)):
                    yield replace(program, source=cut(program.source, number, name, i))
    for i, call in enumerate(calls):
        for change in ({"before": ""}, {"backward": False}, {"look": True}):
            if any(getattr(call, name) != value for name, value in change.items()):
                yield replace(program, calls=[*calls[:i], replace(call, **change), *calls[i + 1:]])
        for simple in ("fresh(0, 4, 3)", "fresh(1, 4, 3)", "1", "0.5"):
            given = ast.parse(f"f({call.arguments})", mode="eval").body.args
            for j, old in enumerate(given[:4]):
                new = ast.parse(simple, mode="eval").body
                fits = {0: simple == "fresh(0, 4, 3)", 1: simple == "fresh(1, 4, 3)", 2: simple == "1", 3: simple == "0.5"}[j]
                if fits and ast.unparse(old) != simple and not isinstance(old, ast.Constant):
                    text = ", ".join(ast.unparse(new if k == j else x) for k, x in enumerate(given))
                    text += "".join(f", {ast.unparse(k)}" for k in ast.parse(f"f({call.arguments})", mode="eval").body.keywords)
                    yield replace(program, calls=[*calls[:i], replace(call, arguments=text), *calls[i + 1:]])
    for number, node in enumerate(ast.walk(tree)):
        if isinstance(node, ast.expr) and id(node) not in kept:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield replace(program, source=cut(program.source, number, None, -1))
            for i, part in enumerate(ast.iter_child_nodes(node)):
                if isinstance(part, ast.expr) and not isinstance(part, ast.Starred):
                    yield replace(program, source=cut(program.source, number, None, i))


def cut(source, number, name, i):
    """The text without item `i` of a node's list; without a name, with the node's i-th part in the node's place
    (-1: with the object whose method it calls)."""
    tree = ast.parse(source)
    node = next(itertools.islice(ast.walk(tree), number, None))
    if name is not None:
        del getattr(node, name)[i]
        if name == "body" and not node.body and not isinstance(node, ast.Module):
            node.body.append(ast.Pass())
    else:
        part = node.func.value if i < 0 else list(ast.iter_child_nodes(node))[i]

        class Put(ast.NodeTransformer):
            def visit(self, found):
                return part if found is node else super().generic_visit(found)
        tree = Put().visit(tree)
    try:
        return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    except Exception:                        # not a program any more
        return "("


# --- many of them ----------------------------------------------------------------------------------------------------


def main():
    ask = argparse.ArgumentParser(description="Random Python functions, compiled against plain.")
    ask.add_argument("--examples", type=int, default=1000)
    ask.add_argument("--seed", type=int, default=0, help="of the first program; the next have the next ones")
    ask.add_argument("--without", help="leave out of the tables what this pattern finds")
    ask.add_argument("--failures", type=int, default=1, help="stop after so many")
    ask.add_argument("--tries", type=int, default=2000, help="programs that are tried to make a failing one smaller")
    asked = ask.parse_args()
    outcomes, failures = [], 0
    for seed in range(asked.seed, asked.seed + asked.examples):
        program = Writer(seed, asked.without).program()
        try:
            outcomes.append(check(program))
        except Exception as error:
            failures += 1
            program = minimised(program, asked.tries)
            words = failure(program) or f"{type(error).__name__}: {error}"
            print(f"\n=== failure {failures}, seed {seed} ===\n{program}\n\n{words}", flush=True)
            if failures >= asked.failures:
                break
    calls, replayed = sum(o.calls for o in outcomes), sum(o.replayed for o in outcomes)
    print(f"\n{len(outcomes)} programs agree, {failures} do not: {calls} calls, {replayed} replayed ({replayed / max(calls, 1):.0%}), "
          f"{sum(o.recordings for o in outcomes)} recordings, "
          f"{sum(len(o.raised) for o in outcomes)} raised; {sum(o.replayed > 0 for o in outcomes)} programs were replayed at all")
    for title, words in (("not replayed because", [x for o in outcomes for x in o.reasons]),
                         ("raised", [x for o in outcomes for x in o.raised])):
        print(f"{title}:")
        for reason, times in collections.Counter(re.sub(r"at <random.*?>:\d+|\d+", "", x) for x in words).most_common(20):
            print(f"{times:6d}  {reason.splitlines()[0][:150]}")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
