"""What random functions are made of: places for values, expressions, statements, blocks, and what happens between calls.

In these texts,

    $0     is the number of this place or statement, to make its names its own
    $k     is a literal of the place's kind; $T that kind's type
    $i $f  are expressions for a whole number and for a float, $b $s for a truth value and a string, $n for None or a float
    $t $u  are tensors of 4 × 3 and of 8 elements; $g is a function of a tensor
"""
import re
from dataclasses import dataclass

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
    Place("value_$0 = $k", ("value_$0",), ("value_$0 = $k",), declares="value_$0"),
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
    Place("dynamic_$0 = $k", ('globals()["dynamic_$0"]', "eval('dynamic_$0')"), ("dynamic_$0 = $k",), declares="dynamic_$0",
          rare=True),
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
    "($i if $b else $i)", "($i or 2)", "($i and 3)", "len(range($i))", "sum(range($i % 5))",
    "(lambda v: int(f'{v}'))($i)", "{0: 1, 1: 3, 2: 2}.get($i, 5)", "[3, 1, 2][$i % 3]", "($i, $i)[$b]",
    "$i.bit_length()", "operator.add($i, 1)", "int(str($i))", "hash($i) % 7", "len($s * 2)", "int($b)",
    "len([j for j in range(5) if j < $i])", "sum(j * $i for j in range(3))", "max([$i, $i], key=lambda j: -j)",
    "sorted([$i, 2, $i])[1]", "functools.reduce(lambda p, q: p + q, [$i, 1, $i])", "(lambda a: a + 1)($i)",
    "(lambda a=$i: a)()", "x.shape[0] - $i % 3", "x.dim()", "len(x)", "x.stride()[0]", "x.storage_offset()",
    "(x.numel() + $i)", "x._version", "next(j for j in range(9) if j >= $i % 9)",
    "list(map(lambda a: a + 1, [$i]))[0]", "dict(a=$i)['a']", "sum(1 for a, b in zip(range($i % 4), 'abc'))",
    "[i for i, c in enumerate('abc') if c == $s][0]", "ord($s) - 96", "type($i)(3)", "isinstance($i, bool) + 1",
    "int.from_bytes(bytes([$i % 9]), 'big')", "operator.index($i)", "int(math.fmod($f, 2))", "len({$i, $i})",
    "len(str($f))", "sum($i > j for j in range(4))", "int(type($f).__name__ == 'float')", "int('%d' % $i)",
    "round($f * 10) % 4", "math.comb($i % 4 + 2, 2)",
]
FLOATS = [
    "$f * 0.5", "$f + $f", "$f - 1", "$f * $f", "-$f", "abs($f)", "$i / 4", "float($i)", "$f / 2",
    "1 / (2 + abs($f))", "$f ** 2", "$f // 0.5", "$f % 0.75", "divmod($f, 0.5)[1]", "min($f, $f)", "max($f, 0.25)",
    "round($f, 1)", "math.sqrt(abs($f))", "math.exp(-abs($f))", "math.log1p(abs($f))", "math.sin($f)",
    "math.tanh($f)", "math.hypot($f, 1.0)", "math.copysign(1.0, $f)", "math.fsum([$f, $f])", "sum([$f, $f])",
    "math.pow(abs($f), 0.5)", "($f if $b else $f)", "($f or 0.5)", "(lambda v: float(f'{v:.2f}'))($f)",
    "float(str($f))", "float.fromhex($f.hex())", "complex($f, 1).real", "{1: 0.5, 2: 0.25}.get($i, 1.5)",
    "[0.5, 0.25, 1.5][$i % 3]", "($f, $f)[$b]", "functools.reduce(operator.mul, [$f, 0.5])",
    "(lambda a: a * 0.5)($f)", "max([$f, $f], key=abs)", "sorted([$f, 0.5, $f])[0]", "0.9 ** $i",
    "1 - 0.9 ** ($i % 5 + 1)", "math.pi * $f", "{'a': $f}['a']", "sum(j * $f for j in range(3))",
    "$f.as_integer_ratio()[0] / 8", "float($f.is_integer())", "math.ldexp($f, 1)",
    "{'a': 0.5, 'b': 1.5}.get($s, 0.25)", "math.frexp($f)[0]", "math.dist([$f], [0.5])", "next(iter([$f]))",
    "[*map(float, [$f])][0]", "math.cos(math.radians($f))", "float(bool($f)) * 0.5",
    "getattr(math, ['sin', 'cos'][$i % 2])($f)", "1.5 if math.isclose($f, 0.5) else $f", "operator.truediv($f, 2)",
    "{$f: 0.5}.get(0.5, 1.5)", "float('%.1f' % $f)", "float(0.5 < $f <= 1.5)", "(0.25 if $n is None else $n * 0.5)",
]
BOOLS = [
    "$i > 2", "$f > 0.5", "$i % 2 == 0", "$s == 'a'", "not $b", "$b and $b", "$b or $b", "0 < $i < 4", "$i in (1, 2)",
    "$f in {0.5, 1.5}", "$n is None", "bool($i)", "bool($f)", "isinstance($f, float)", "isinstance($i, int)",
    "$f == $f", "$i == $i", "$i != 3", "$f >= $i", "any([$b, $b])", "all(j < $i for j in range(2))",
    "type($f) is float", "type($i) is int", "$s in 'ab'", "x.requires_grad", "x.is_leaf", "x is y",
    "torch.is_grad_enabled()", "math.isclose($f, 0.5)", "callable($g)", "(lambda v: '1' in f'{v}')($i)",
    "$i.__eq__(2) is True", "hasattr(x, 'n')", "x.is_contiguous()", "x.grad is None", "$i is $i",
]
STRINGS = [
    "'abc'[$i % 3]", "(lambda v: f'{v}')($s)", "($s if $b else 'b')", "{1: 'a', 2: 'b'}.get($i, 'c')",
    "'abc'[bool($f)]", "min($s, $s)",
]

# Tensors of 4 × 3, with numbers in all the places where an operation takes one.
TENSORS = [
    "h * $f", "h + $i", "$t + $t", "$t * $f", "$g($t)", "x[$i % 4] + h", "x[:, $i % 3, None] + h",
    "x[..., $i % 3, None] * h", "x[-($i % 4) - 1] + h", "x[$i % 4, $i % 3] + h", "$u[$i % 8] + h",
    "$u[$i % 4:$i % 4 + 4, None] * h", "$u[-($i % 8) - 1] * h", "$u[::$i % 2 + 1][:4, None] + h",
    "x[:$i % 4 + 1].sum(0) + h", "x[$i % 4:].sum(0) + h", "x[-($i % 4) - 1:].sum(0) + h", "x[$i % 2::2].sum(0) + h",
    "x[slice($i % 2, None, $i % 2 + 1)].sum(0) + h", "x[..., -1 - $i % 3:].sum() + h", "x[None, $i % 4] + h",
    "x[[$i % 4, 0]].sum(0) + h", "x[torch.tensor([$i % 4])] + h", "x[torch.tensor($i % 4)] + h",
    "x[$i % 4:$i % 4 + 1, $i % 3:] .sum() + h", "$t[$i % 4][$i % 3] + h", "x.narrow(0, $i % 3, 2).sum(0) + h",
    "x.select(1, $i % 3)[:, None] + h", "x.select($i % 2, 1).sum() + h", "$u.as_strided((4, 3), (1, 1), $i % 2) + h",
    "$u.as_strided((4, 3), ($i % 2, 1)) + h", "x.roll($i, 0) + h", "x.flip($i % 2) + h", "x.t()[$i % 3][:, None] + h",
    "x.repeat($i % 2 + 1, 1)[-4:] + h", "x.expand($i % 3 + 1, 4, 3).sum(0) + h",
    "x.reshape($i % 2 + 1, -1)[0, :3] + h", "x.reshape(-1)[$i % 12] + h", "x.unfold(0, $i % 3 + 1, 1).sum() + h",
    "x.diagonal($i % 3 - 1).sum() + h", "x.chunk(2)[$i % 2].sum(0) + h", "x.split($i % 3 + 1)[0].sum(0) + h",
    "x.unbind($i % 2)[$i % 3].sum() + h", "[*x][$i % 4] + h", "torch.zeros($i % 3 + 1, 3).sum(0) + h",
    "torch.arange($i % 4 + 1.0).sum() + h", "torch.arange(0, $i % 4 + 1).sum() + h", "torch.full((4, 3), $f) + h",
    "torch.full((4, 3), $i) + h", "torch.tensor($f) * h", "torch.tensor([$f, 1.0, $f]) + h",
    "torch.tensor([[$i], [1], [2], [3]]) + h", "torch.linspace(0, $f, 3) + h", "torch.eye(4, 3) * $f + h",
    "torch.ones($i % 4 + 1, 4, 3).mean(0) * h", "h.new_full((3,), $f) + h", "torch.scalar_tensor($f) + h",
    "h.tril($i % 3 - 1) + x", "h.clamp(min=$f)", "h.clamp(-abs($f), abs($f))", "h.clamp_min($f)", "h ** ($i % 3)",
    "h.abs() ** $f", "torch.lerp(h, x, $f)", "torch.add(h, x, alpha=$f)", "torch.sub(h, y, alpha=$i)", "h - $f",
    "$f - h", "$i * h", "h / (abs($f) + 1)", "$f / (h.abs() + 1)", "h.sum($i % 2, keepdim=True) + x",
    "h.mean(-($i % 2) - 1, keepdim=True) + x", "h.softmax($i % 2)", "h.cumsum($i % 2)", "F.leaky_relu(h, $f)",
    "F.elu(h, abs($f))", "F.softplus(h, beta=abs($f) + 1)", "F.hardtanh(h, -abs($f), abs($f) + 1)",
    "F.dropout(h, 0.5)", "F.dropout(h, 0.5, training=$b)", "F.dropout(h, abs(math.sin($f)))",
    "torch.rand_like(h) + h", "torch.randn(4, 3) * $f + h", "torch.randn($i % 3 + 1, 3).sum(0) + h",
    "torch.bernoulli(h.sigmoid()) + h", "torch.where(h > $f, h, x)", "h.masked_fill(h > $f, $i)",
    "h.masked_fill(h > 0, $f)", "torch.where($u[:4, None] > 0, h, $f)",
    "h.index_select(0, torch.tensor([$i % 4, 0, 1, 2]))", "h.gather(1, torch.full((4, 3), $i % 3))",
    "h.sort($i % 2, descending=$b)[0]", "h.topk($i % 3 + 1)[0].sum(1, keepdim=True) + x",
    "torch.cat([h, x][:$i % 2 + 1])[-4:]", "torch.stack([h, x])[$i % 2]", "torch.cat([h, x], $i % 2).sum() + h",
    "sum([h, x, y][:$i % 3 + 1])", "sum(x[j] for j in range($i % 4)) + h",
    "h.to(torch.float64 if $b else torch.float32).float()", "h.std(0, correction=$i % 2) + x",
    "h.norm(p=$i % 2 + 1) + x", "(h @ x.t() @ y) * 0.125", "torch.addmm(h, h @ x.t(), y, alpha=$f, beta=$f) * 0.125",
    "F.linear(h, x[:3]) + h", "F.layer_norm(h, (3,), eps=abs($f) + 0.1)", "F.pad(h[:, :1], ($i % 3, 2 - $i % 3))",
    "F.pad(h[1:], (0, 0, 1, 0), value=$f)", "F.one_hot(torch.tensor([$i % 3]), 3) + h",
    "F.embedding(torch.tensor([$i % 4]), h) + x", "h.detach() + x", "h.clone()", "h.relu_()", "h.mul_($f)",
    "h.t().contiguous().t()", "h.transpose(0, 1).transpose($i % 2, 1 - $i % 2) .sum() + x",
    "h.permute($i % 2, 1 - $i % 2).sum(0).sum() + x", "h.unsqueeze($i % 3).sum($i % 3)",
    "h.view(3, 4)[$i % 3].sum() + x", "h.view(-1, 3)", "h.addcmul(x, y, value=$f)", "h.logsumexp($i % 2, True) + x",
    "h.repeat_interleave($i % 2 + 1, 0)[:4]", "torch.outer($u[:4], $u[$i % 5:$i % 5 + 3]) + h",
    "torch.einsum('ij,kj->ij', h, x)", "h.round(decimals=$i % 3)", "torch.movedim(h, $i % 2, 0).sum() + h",
    "(h > $f).float() + h", "h.eq($i).float() + h", "h.remainder(abs($f) + 1)", "h.float() + x.double().float()",
    "h[$u[:4] > $f].sum() + h",
]

# Statements. What writes to a buffer or an argument comes in every spelling.
STATEMENTS = [
    "h = $t", "h = $t", "h = $t", "h = $t", "h = h + $t", "h = h + $t", "h += $f", "h = h.tanh()", "$u[$i % 8] = $f",
    "$u[$i % 8] += $f", "$u[$i % 8].add_($f)", "$u[$i % 8] = h.detach()[0, 0]", "$u[-($i % 8) - 1] = $i",
    "$u[$i % 4:$i % 4 + 3] = $f", "$u[$i % 8:] *= $f", "$u[::$i % 2 + 1] = $f", "$u.narrow(0, $i % 7, 2).mul_($f)",
    "$u.select(0, $i % 8).fill_($f)", "$u.fill_($f)", "$u.mul_($f)", "$u[None][0, $i % 8] = $f",
    "$u[..., $i % 8] = $f", "$u[torch.tensor([$i % 8])] = $f", "$u[[$i % 8]] += $f",
    "$u.index_fill_(0, torch.tensor([$i % 8]), $f)", "$u.zero_()", "$u.copy_($u)", "$u[1:] = $u[:-1].clone()",
    "$u.scatter_(0, torch.tensor([$i % 8]), $f)", "$u.clamp_(max=$f)", "$u.add_($u, alpha=$f)", "$u.lerp_($u, 0.5)",
    "torch.add($u, $f, out=$u)", "$u.uniform_()", "$u.data[$i % 8] = $f", "$u.view(2, 4)[$i % 2].zero_()",
    "$u.unfold(0, 2, 2)[$i % 4] = $f", "$u[$u > $f] = $f", "$u.masked_fill_($u > $f, $f)", "x.mul_($f)",
    "x[$i % 4].add_($f)", "x[:, $i % 3] = $f", "x[$i % 4] = $f", "x += $f", "y.copy_(x)", "F.relu(x, inplace=True)",
    "x.relu_()", "x[:2].mul_($f)", "x.data.mul_($f)", "y[1:] = x[:-1]", "nn.ReLU(inplace=True)(y)", "x.tanh_()",
    "x.t()[$i % 3].mul_(2)", "with torch.no_grad(): x.add_($f)", "with torch.no_grad(): x[$i % 4] = $f",
    "with torch.no_grad(): $t.mul_($f)", "with torch.no_grad(): x.zero_()", "x = x * $f", "x, y = y, x", "y = x[:]",
    "x = x.detach()", "y = y.clone()", "h = x", "out.append($f)", "out.append($i)",
    "v = $f\nout.append(f'{v:.3f} {n}')", "out.append($s)", "out.append(($b, $n))", "out.append(h[$i % 4])",
    "out.append($t)", "out.append({'k': $i, $s: $f})", "out.append($u)", "out.append(x)", "out.append([$i, [$f]])",
    "out.append($u[$i % 8])", "out.append(x.n if hasattr(x, 'n') else None)", "x.n = $i",
    "out.append(h.requires_grad)", "out.append(str(h.shape))", "out.append(torch.Size([$i % 3, 2]))",
    "out.append(math.sqrt)", "out.append(sorted({$s: 1, 'b': 2}))", "out.append(type($f))",
    "if (v := $i) % 5 == 4: raise ValueError(f'stopped at {v}')", "assert $f != 1.5, $f", "if $b: return h",
    "if $b: return out, $i", "out.append((m := $i) + m)", "if (m := $f) > 0.5: h = h * m",
    "out.append(torch.is_grad_enabled())", "out.append(h.mean().item() > $f)",
]

# Blocks, with $body for statements inside, $else for others.
BLOCKS = [
    "if $b:\n$body", "if $b:\n$body\nelse:\n$else", "for j_$0 in range($i % 3 + 1):\n$body",
    "with torch.no_grad():\n$body", "for j_$0 in range($i % 4, 4):\n$body\n    if $b: break",
    "j_$0 = 0\nwhile j_$0 < $i % 4:\n$body\n    j_$0 += 1", "with torch.enable_grad():\n$body",
    "for j_$0, v_$0 in enumerate([$f, $f]):\n    h = h * v_$0\n$body",
    "try:\n$body\n    if $b: raise KeyError($i)\n    h = h + 1\nexcept KeyError as error:\n    out.append(str(error))\n$else",
    "try:\n$body\nfinally:\n$else", "try:\n    x[$i]\n$body\nexcept IndexError:\n$else",
    "try:\n    {1: 1, 2: 2}[$i]\n$body\nexcept KeyError:\n$else\nelse:\n    h = h * 0.5",
    "match $i:\n    case 1:\n$case\n    case 2 | 3:\n        h = h * $f\n    case _:\n        h = h + 1",
    "def inner_$0(n, r=$f):\n    nonlocal h, x, y\n$body\ninner_$0($i)",
    "for name, value in {$s: $f, 'b': 0.5}.items():\n    h = h * value\n$body",
    "with contextlib.suppress(ZeroDivisionError):\n    h = h * (1 / $i)\n$body",
    "for j_$0, row_$0 in enumerate(x):\n    h = h + row_$0 * $f\n$body",
    "if $b: pass\nelif $i > 3:\n$body\nelse:\n$else",
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

RETURNS = [
    "h", "h, out", "h, $i", "h, $f", "{'h': h, 'out': out, 'n': $i}", "Result(h, $f)", "[h, x]", "h[$i % 4:]",
    "h[:, $i % 3]", "x", "out", "$f", "$i", "None", "Point(h, $i)", "h, h", "h, h.view(-1)", "h.detach()", "$u",
    "$t, $u", "'{:.2f}'.format($f)", "Result([h, {'x': $i}], (x, $s))", "h.sum()", "h if $b else None", "x.t()",
    "$u[$i % 4:$i % 4 + 2]", "Result(Result(h, $i), $n)",
]

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

X_FORMS = [
    "fresh($k, 4, 3)", "fresh($k, 4, 3)", "held", "base[:4]", "base[1:5]", "leaf * 2",
    "fresh($k, 4, 3).requires_grad_()", "leaf", "fresh($k, 3, 4).t()", "(leaf * 2)[:]", "fresh($k, 3).expand(4, 3)",
    "fresh($k, 4, 3).double()", "leaf.view(4, 3)", "(leaf * 0.5).view(2, 2, 3).view(4, 3)", "(whole := leaf * 2)[:]",
    "(whole := torch.cat([leaf, leaf]))[2:6]",
]
Y_FORMS = [
    "fresh($k, 4, 3)", "fresh($k, 4, 3)", "a", "a[:]", "base[1:5]", "held", "a.detach()", "leaf", "leaf * 3",
    "base[2:]",
]
N_FORMS = ["$k", "$k", "$c", "$c", "2"]
EVENTS = [
    "base.mul_(0.5)", "held = fresh($k, 4, 3)", "leaf.grad = None", "leaf = fresh($k, 4, 3).requires_grad_()",
    "held.n = $k", "held[0] = 1.0", "leaf.data.mul_(0.5)", "held.requires_grad_(not held.requires_grad)",
    "base.n = $k",
]

# In-place writes to an argument, and arguments to which they are not allowed.
WRITTEN = re.compile(r"\b[xyh](\[.*?\])?(\.\w+\(\w*\))?(\[.*?\])?\.\w+_\(|\b[xy]\[.*\] =|\b[xyh] \+=|inplace")
REFUSES_WRITES = r"leaf|.*requires_grad.*|.*expand.*|leaf.view.*|base.*"
KIND_OF_MARK = {"i": "int", "f": "float", "b": "bool", "s": "str", "t": "tensor", "u": "buffer", "g": "function", "n": "maybe"}
TABLES = {"int": INTS, "float": FLOATS, "bool": BOOLS, "str": STRINGS, "tensor": TENSORS}
NAMES = {"int": ["n"], "float": ["r"]}
