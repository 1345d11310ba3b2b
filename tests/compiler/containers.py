"""Random containers in every place that a compiled function can find one, used in every way, changed in every part.

A program is one function that gets at a value (an argument, part of one, a default, a closure, a global, an attribute)
and uses it in one to three ways; between calls the value is replaced by another one of the same shape with one part
changed, is changed where it stands, or is made anew without a change. The text is run plain and compiled
(functions.py), and after every call both worlds have to be alike. More of them than the suite tries:

    python -m tests.compiler.containers --examples 100000 --seed 1
"""
import argparse
import itertools
import linecache
import random
import re
import sys
import time
import warnings
from dataclasses import replace

import flambeau as torch

from .compare import Different, Walk
from .functions import Call, Program, World, sourced

PRELUDE = """
import collections, copy, dataclasses, decimal, fractions, functools, itertools, json, math, operator, types
import flambeau as torch
from flambeau.nn import functional as F
from tests.compiler.container_kinds import *
class Held:
    def __init__(self, a, b): self.a, self.b = a, b
def tagged(thing, tag):
    thing.tag = tag
    return thing
def x_of(k): return torch.arange(24.) + k
def first(p): return p[0]
def same(p): return p
def shown(p):
    if isinstance(p, torch.Tensor): return p
    if isinstance(p, (str, int, float, complex, bool, type(None), bytes)): return p
    if isinstance(p, (list, tuple)): return [shown(q) for q in p]
    return type(p).__name__
def kept_in(memo, p): return memo.setdefault(p, len(memo))
"""

INTS = ["0", "1", "2", "3", "4", "6", "-1", "True", "False", "Level.LOW", "Level.HIGH", "7"]
FLOATS = ["0.5", "1.5", "0.0", "-0.0", "2.0", "float('nan')", "float('inf')"]
OTHERS = ["'a'", "'ab'", "''", "None", "b'a'", "1j", "Color.RED", "Color.BLUE", "Mode.A", "Mode.A | Mode.B", "...",
          "torch.float32", "torch.float64", "torch.device('cpu')", "int", "str", "len", "range(2)", "range(0, 4, 2)",
          "slice(0, 2)", "slice(1, None)", "fractions.Fraction(1, 2)",
          "decimal.Decimal('1.5')", "Whole(2)", "Whole(3)", "Text('a')"]
SHAPES = ["(2, 12)", "(3, 8)", "(4, 6)", "(6, 4)", "(24,)", "(2, 3, 4)", "(1, 24)", "torch.Size((2, 12))",
          "torch.Size((4, 6))"]

# A value as a text with holes: $i an int, $f a float, $v any value (smaller), $s a shape, $h something hashable.
VALUES = """
($v, $v)    ($v,)    ()    ($i, $i)    ($f, $i)    ($f, $f)    ($v, ($v, $v))    [$v, $v]    [$v]    []
[$i, [$i, $f]]    {'a': $v, 'b': $v}    {'b': $v, 'a': $v}    {$h: $v}    {$h: $v, $h: $v}    {}    {1: $v}
{True: $v}    {1.0: $v}    {($i, $i): $v}    Pair($v, $v)    Point($v, $v)    Point($i)    Loose($v, $v)
tagged(Loose($v, $v), $v)    Shaped($v, $v)    torch.Size(($i, $i))    $s    Record($v, $v)    Frozen($v, $v)
Plain($v, $v)    Slotted($v, $v)    Held($v, $v)    types.SimpleNamespace(a=$v, b=$v)    frozenset(($h, $h))
{$h, $h}    set()    collections.deque([$v, $v])    collections.deque([$v], maxlen=3)
collections.OrderedDict(a=$v, b=$v)    collections.defaultdict(int, a=$v)    collections.Counter('aab')
Row([$v, $v])    Table(a=$v)    tagged(Row([$v]), $v)    range($i, 6)    slice($i, None)    slice(None, $i, 2)    $i
$f    $o    x_of($i)    (x_of(1), $v)    Pair(x_of(1), $v)    [x_of(2), $v]    {'a': x_of(1), 'b': $v}
types.MappingProxyType({'a': $v})    bytearray(b'ab')    {'a': $v}.keys()    ({'a': $v}, [$v])
Record(($v, $v), [$v])    Frozen(Pair($v, $v), $v)    (Record($v, $v), $v)    [Pair($v, $v), $v]
functools.partial(first, $v)    tagged(Whole(2), $v)    (Color.RED, $v)    ({$h}, $v)    (frozenset((1, $h)), $v)
((), $v)    collections.ChainMap({'a': $v})
""".split("    ")
VALUES = [text for line in VALUES for text in line.strip().split("\n") if text]

# A use: an expression of `p` (the value) and `x` (a tensor). What it raises is compared as well.
USES = """
p    [p]    {'r': p}    (p, 1)    shown(p)    len(p)    bool(p)    not p    (1 if p else 2)    (p and 1)    (p or 2)
p is None    p == (1, 2)    p == [1, 2]    p == 1    p != p    p == q    p is q    p is not q    p < q
p in (1, (1, 2), 'a')    1 in p    'a' in p    p in [1, 2]    p in {1: 2}    hash(p) == hash(q)
hash(p) == hash((1, 2))    str(p)    repr(p)    f'{p}'    f'{p!r:>9}'    '%s' % (p,)    '{}'.format(p)
type(p).__name__    isinstance(p, tuple)    isinstance(p, (int, str))    p[0]    p[1]    p[-1]    p[:1]    p[0:2]
p['a']    p.a    p.b    p.tag    p.a.b    getattr(p, 'a', 9)    hasattr(p, 'a')    vars(p)    p.__class__.__name__
p.start    p.stop    p.value    p.name    p.maxlen    p.numel()    p.total()    p.twice    p._fields    p._asdict()
p._replace(a=1)    p.real    p.numerator    sum(p)    sum(p, 0.5)    min(p)    max(p)    sorted(p)
sorted(p, key=str)    list(p)    tuple(p)    set(p)    frozenset(p)    dict(p)    dict.fromkeys(p, 1)    any(p)
all(p)    [*p]    (*p,)    {**p}    {*p}    [e for e in p]    {e: 1 for e in p}    {e for e in p}
[i for i, e in enumerate(p)]    list(zip(p, p))    list(map(str, p))    list(reversed(p))
list(itertools.chain(p, p))    functools.reduce(lambda a, b: b, p, 0)    next(iter(p))    math.prod(p)
math.fsum(p)    operator.itemgetter(0)(p)    operator.attrgetter('a')(p)    p + (1,)    (1,) + p    p + [1]    p * 2
p + 1    2 * p    -p    p | {'c': 1}    p & {1}    divmod(p, 2)    abs(p)    round(p)    int(p)    float(p)
p // 2    p % 2    p.count(1)    p.index(1)    p.copy()    list(p.keys())    list(p.values())    list(p.items())
p.get('a')    p.get('z', 5)    p.union({1})    p.most_common(1)    p.upper()    p.encode()    copy.copy(p)
copy.deepcopy(p)    dataclasses.astuple(p)    dataclasses.asdict(p)    dataclasses.replace(p, a=1)
[f.name for f in dataclasses.fields(p)]    json.dumps(p)    json.dumps(p, default=str)    memo.get(p)
memo.get(p, 3)    {p: 1}    {p}    {p: 1}.get(q)    {1: 2, p: 3}[p]    p in memo    [p, q].count(p)
[p, q].index(q)    sorted([p, q])    max(p, q)    [q, p].sort()    kept_in({}, p)    len({p, q})    dict([(p, 1)])
set([p])    'x'.join(p)    tuple(sorted([str(e) for e in p]))    p.__len__()    p.__getitem__(0)    p.__eq__((1, 2))
p.__hash__() == q.__hash__()    p.__contains__(1)    x.reshape(p)    x.view(p)    torch.zeros(p)    torch.ones(*p)
torch.full(p, 2.0)    torch.full((2,), p)    torch.tensor(p)    torch.as_tensor(p)    x.reshape(2, 12).sum(p)
x.reshape(2, 12).permute(p)    x.flip(p)    x.reshape(2, 3, 4).flip(dims=p)    F.pad(x, p)    x.expand(p)
x.repeat(p)    x.tile(p)    x[p]    x.reshape(2, 12)[p]    x.reshape(2, 12)[p, 1]    x.reshape(4, 6)[(p, p)]
x.split(p)    torch.rand(p)    x * p    x + p    p * x    x.clamp(p)    x.to(p)    x.roll(p)    x.new_zeros(p)
torch.empty(p).shape    torch.Size(p)    x.unflatten(0, p)    F.interpolate(x.reshape(1, 1, 24), size=p)
torch.arange(p)    torch.linspace(0, 1, p)    torch.stack([x * e for e in p])    x.masked_fill(x > p, 0.0)
torch.where(x > 1, x, p)    torch.cat(p)    torch.stack(p)    torch.einsum(p, x)    F.dropout(x, p, False)
x.reshape(2, -1).sum(dim=p)    x.transpose(0, p)    x.narrow(0, p, 1)    x.select(0, p)    torch.broadcast_to(x, p)
torch.meshgrid(p)    torch.normal(p, 1.0)    torch.isin(x, p)    torch.equal(x, p)    x == p    x.reshape(-1)[p:]
x.reshape(-1)[:p]    x.index_fill(0, torch.tensor([0]), p)
""".split("    ")
USES = [text.strip() for line in USES for text in line.split("\n") if text.strip()]
BLOCKS = """
for e in p: out.append(e)|for e in p:@    if e: out.append(1)|a, b = p; out.append((a, b))
a, *b = p; out.append((a, b))|(a, b), c = p; out.append((a, b, c))|[a] = p; out.append(a)
for a, b in p.items(): out.append((a, b))|for a in p: h = h * 1.5|while p and len(out) < 2: out.append(1)
assert p, 'no p'|out.extend(p)|out += p|out.append(p); out.sort()|d = {}; d[p] = 1; out.append(d)
d = {}; d.update(p); out.append(d)|d = dict(p); d['z'] = 1; out.append(d)|l = list(p); l.append(2); out.append(l)
p[0] = 5|p['z'] = 5|p.a = 5|p.append(3)|del p[0]|p.pop()|state.last = p|state.last = p[0]|state.n = len(p)
out.append(same(p))|out.append(first(p))|out.append((lambda q: q)(p))|out.append((lambda *q, **k: (q, k))(*p))
out.append((lambda *q, **k: (q, k))(**p))|match p:@    case (a, b): out.append((a, b))@    case _: out.append('no')
try:@    out.append(p[0])@except (TypeError, IndexError, KeyError): out.append('none')
s = state.seen; s[0] = len(out); out.append(p)|p += (1,); out.append(p)|p *= 2; out.append(p)|global g_p; g_p = p
nonlocal_p = [p]; out.append(nonlocal_p[0])|q[0] = 7; out.append(p[0])|q['a'] = 7; out.append(p['a'])
q.a = 7; out.append(p.a)|q.append(p)|h = h.reshape(p)|h = h + sum(p)|h = h * p.a|h = h * p[0] * p[1]
with torch.no_grad(): h = h * len(p)|yielded = [y for y in (lambda: (yield p))()]; out.append(yielded)
""".replace("\n", "|").split("|")
BLOCKS = [text for text in BLOCKS if text.strip()]

# How the function gets at the value: what stands before it, its signature, how p is had, the call's arguments, and how
# the value is put there before a call, or changed where it stands.
PLACES = [
    ("", "x, p, q=None", "", "x_of({k}), {p}", ""),
    ("", "x, p, q=None", "", "x_of({k}), p={p}, q={q}", ""),
    ("", "x, p, q=None", "", "x_of({k}), {p}, {q}", ""),
    ("", "x, p, q=None", "", "x_of({k}), (w := {p}), w", ""),
    ("", "x, *r, q=None", "p = r", "x_of({k}), *({p}, {q})", ""),
    ("", "x, *r, q=None", "p = r[0]", "x_of({k}), {p}, {q}", ""),
    ("", "x, q=None, **r", "p = r['p']", "x_of({k}), p={p}", ""),
    ("", "x, q=None, **r", "p = r", "x_of({k}), a={p}, b={q}", ""),
    ("", "x, w, q=None", "p = w[0]", "x_of({k}), [{p}, {q}]", ""),
    ("", "x, w, q=None", "p = w['p']", "x_of({k}), {{'p': {p}, 'o': {q}}}", ""),
    ("", "x, w, q=None", "p = w.a", "x_of({k}), types.SimpleNamespace(a={p})", ""),
    ("", "x, w, q=None", "p = w.a", "x_of({k}), Record({p}, {q})", ""),
    ("", "x, w, q=None", "p = w.a", "x_of({k}), Pair({p}, {q})", ""),
    ("", "x, w, q=None", "p = w", "x_of({k}), ({p}, {q})", ""),
    ("", "x, w, q=None", "p = w[1][0]", "x_of({k}), (1, ({p}, {q}))", ""),
    ("", "x, w, q=None", "p = getattr(w, 'tag', None)", "tagged(x_of({k}), 1), tagged(x_of({k}), {p})", ""),
    ("g_0 = {p}\ng_q = {q}\n", "x", "p, q = g_0, g_q", "x_of({k})", "g_0 = {p}"),
    ("g_0 = [{p}, {q}]\n", "x", "p, q = g_0", "x_of({k})", "g_0[0] = {p}"),
    ("g_0 = {{'a': {p}}}\n", "x, q=None", "p = g_0['a']", "x_of({k})", "g_0['a'] = {p}"),
    ("g_0 = {{'a': {p}}}\n", "x, q=None", "p = g_0", "x_of({k})", "g_0['a'] = {p}"),
    ("g_0 = [{p}]\n", "x, q=None", "p = g_0", "x_of({k})", "g_0[:] = [{p}]"),
    ("g_0 = Held({p}, 1)\n", "x, q=None", "p = g_0.a", "x_of({k})", "g_0.a = {p}"),
    ("g_0 = Held({p}, 1)\n", "x, q=None", "p = g_0.a", "x_of({k})", "vars(g_0)['a'] = {p}"),
    ("g_0 = Record({p}, 1)\n", "x, q=None", "p = g_0", "x_of({k})", "g_0.a = {p}"),
    ("g_0 = Slotted({p}, 1)\n", "x, q=None", "p = g_0", "x_of({k})", "g_0.a = {p}"),
    ("Held.kind = {p}\n", "x, q=None", "p = Held.kind", "x_of({k})", "Held.kind = {p}"),
    ("Held.kind = {p}\ng_0 = Held(1, 2)\n", "x, q=None", "p = g_0.kind", "x_of({k})", "Held.kind = {p}"),
    ("", "x, p={p}, q=None", "", "x_of({k})", "entry.__defaults__ = ({p}, None)"),
    ("", "x, *, p={p}, q=None", "", "x_of({k})", "entry.__kwdefaults__['p'] = {p}"),
    ("def helper(*, p={p}): return p\n", "x, q=None", "p = helper()", "x_of({k})", "helper.__kwdefaults__['p'] = {p}"),
    ("def helper(p={p}): return p\n", "x, q=None", "p = helper()", "x_of({k})", "helper.__defaults__ = ({p},)"),
    ("def make(v):\n    def get(): return v\n    def put(n):\n        nonlocal v\n        v = n\n    return get, put\n"
     "get, put = make({p})\n",
     "x, q=None", "p = get()", "x_of({k})", "put({p})"),
    ("g_0 = functools.partial(same, {p})\n", "x, q=None", "p = g_0()", "x_of({k})",
     "g_0 = functools.partial(same, {p})"),
    ("def helper(): return 1\nhelper.p = {p}\n", "x, q=None", "p = helper.p", "x_of({k})", "helper.p = {p}"),
    ("g_0 = {p}\n", "x, q=None", "p = g_0", "x_of({k})", "CHANGE"),
    ("g_0 = ({p}, {q})\n", "x", "p, q = g_0", "x_of({k})", "CHANGE0"),
]
# Changes in place of a mutable value that stands in `w`.
CHANGES = ["w[0] = {v}", "w.append({v})", "w['a'] = {v}", "w.a = {v}", "w.tag = {v}", "w.clear()", "w.add({h})",
           "w.pop()", "w.update(a={v})", "w.reverse()", "w[1][0] = {v}", "w.extend([{v}])", "w.discard(1)",
           "w['z'] = 1", "w.b = {v}",
           "w.popitem()", "w.insert(0, {v})"]


MEMO = "memo = {1: 5, (1, 2): 6, 'a': 7, (2, 12): 8, Color.RED: 9, frozenset((1, 2)): 4, Frozen(1, 2): 3}\n"
STATE = "g_p = None\nstate = types.SimpleNamespace(last=(), n=0, seen=[0])\n"
SCRATCH: dict = {}
exec(PRELUDE + MEMO + STATE, SCRATCH)
HOLES = {"i": [*INTS[:7], "7"], "f": FLOATS, "s": SHAPES, "o": OTHERS,
         "h": [*INTS, *FLOATS[:4], "'a'", "'b'", "(1, 2)", "Color.RED", "Frozen(1, 2)", "None"]}


class Draw:
    """Draws programs."""

    def __init__(self, seed):
        self.pick = random.Random(seed)

    def one(self, table):
        return table[self.pick.randrange(len(table))]

    def value(self, depth=0):
        """A template, as a tree: a text with holes, and what fills them."""
        if depth > 2 or depth and self.pick.random() < 0.75:
            return self.atom()
        return self.filled(self.one(VALUES), depth)

    def atom(self):
        roll = self.pick.random()
        return (self.one(INTS if roll < 0.5 else FLOATS if roll < 0.7 else OTHERS), ())

    def filled(self, text, depth):
        parts, at = [], 0
        while (at := text.find("$", at)) >= 0:
            mark = text[at + 1]
            parts.append(self.value(depth + 1) if mark == "v" else (self.one(HOLES[mark]), ()))
            at += 2
        return text, tuple(parts)

    def changed(self, tree):
        """The tree with one of its parts drawn anew; the outermost seldom."""
        text, parts = tree
        if not parts or self.pick.random() < 0.1:
            if text in INTS:
                return self.one(INTS), ()
            if text in FLOATS:
                return self.one(FLOATS), ()
            if text in SHAPES:
                return self.one(SHAPES), ()
            return self.value(1) if not parts and self.pick.random() < 0.7 else (text, parts) if parts else self.atom()
        at = self.pick.randrange(len(parts))
        return text, (*parts[:at], self.changed(parts[at]), *parts[at + 1:])

    def text(self, tree):
        text, parts = tree
        pieces, at = [], 0
        for part in parts:
            hole = text.index("$", at)
            pieces += [text[at:hole], self.text(part)]
            at = hole + 2
        return "".join(pieces) + text[at:]

    def use(self, p, q):
        """A use of the values, mostly one that does not raise."""
        names = dict(SCRATCH)
        for _ in range(8):
            use = self.one(USES)
            if self.pick.random() < 0.05:
                break
            try:
                names.update(p=eval(self.text(p), names), q=eval(self.text(q), names), x=names["x_of"](0))
                with torch.no_grad():
                    eval(use, names)
                break
            except Exception:
                continue
        return use

    def program(self):
        p, q = self.value(), self.value()
        if self.pick.random() < 0.4:
            q = self.changed(p)
        setup, signature, had, arguments, change = self.one(PLACES)
        lines = [had] if had else []
        for _ in range(self.pick.choice((1, 1, 1, 2, 3))):
            if self.pick.random() < 0.25:
                block = self.one(BLOCKS).replace("@", "\n").strip()
                lines += block.split("\n") if ":\n" in block else [block.strip()]
            else:
                use = self.use(p, q)
                lines.append(f"h = {use}" if "x" in use and self.pick.random() < 0.2 else f"out.append({use})")
        declared = [f"global {name}" for name in ("g_p",) if any(f"global {name}" in line for line in lines)]
        lines = [line.replace("global g_p; ", "") for line in lines]
        body = "\n    ".join([*declared, "out, h = [], x * 2", *lines, "return h, out"])
        body = body.replace("\n    case", "\n        case").replace("\n            case", "\n        case")
        spell = lambda text, k=0: text.format(p=self.text(p), q=self.text(q), k=k)
        source = f"{PRELUDE}{MEMO}{STATE}{spell(setup)}def entry({spell(signature)}):\n    {body}\n"
        calls = []
        for k in range(self.pick.choice((5, 6, 8))):
            before = ""
            if k >= 1 and self.pick.random() < 0.6:
                if change.startswith("CHANGE"):
                    w = "g_0[0]" if change == "CHANGE0" else "g_0"
                    done = "w = " + w + "\n" + self.one(CHANGES).format(
                        v=self.text(self.value(2)), h=self.one(["1", "5", "'c'", "(1, 2)"]))
                    before = "try:\n    " + done.replace("\n", "\n    ") + "\nexcept Exception: pass"
                else:
                    p = self.changed(p) if self.pick.random() < 0.8 else p
                    q = self.changed(q) if self.pick.random() < 0.2 else q
                    before = spell(change)
            if "g_" not in setup and self.pick.random() < 0.15:
                q = p
            calls.append(Call(before, spell(arguments, k % 2), self.pick.random() < 0.1, True))
        return Program(source, "entry", calls, self.pick.random() < 0.3)


def check(program):
    """Run a program plain and compiled, Different where they differ; gives (calls, replays, the reasons for none)."""
    try:
        return run(program, torch.compile)
    except Different:
        for _ in range(3):                                   # does it go by addresses: the order of a set, a hash?
            try:
                run(program, lambda f: f)
            except Different:
                return 0, 0, []
        if hashes_addresses(program):
            return 0, 0, []
        if "nan" in str(program) and re.search(r"set\(|\{[^:{}]*nan", str(program)):     # nan's hash is its address
            calls = [replace(c, before=without_nan(c.before), arguments=without_nan(c.arguments))
                     for c in program.calls]
            return check(replace(program, source=without_nan(program.source), calls=calls))
        raise


def hashes_addresses(program):
    """Whether there may be objects in sets whose hash is their address, so that two worlds have orders of their own."""
    text = program.source.split("def kept_in")[1] + "".join(call.before + call.arguments for call in program.calls)
    return re.search(r"set\(|\{[^:{}]*\}", text) and re.search(r"(Plain|Held|x_of)\(\S", text.replace("x_of({k})", ""))


def without_nan(text):
    return text.replace("float('nan')", "2.75")


def run(program, wrap):
    """Run a program plain and with `wrap` around its function: as `check`, which tells what goes by addresses apart."""
    file = f"<random container {next(_numbers)}>"
    code = sourced(program.source, file)
    draws = "rand" in program.source or "normal" in program.source
    try:
        worlds = World(program, code, lambda f: f), World(program, code, wrap)
        for number, call in enumerate(program.calls):
            left, right = (seen(world, call, draws) for world in worlds)
            Walk().compare(left, right, f"call {number}: ")
    finally:
        linecache.cache.pop(file, None)
    function = worlds[1].function
    recordings = getattr(function, "recordings", ())
    return len(program.calls), sum(r.hits for r in recordings), getattr(function, "reasons", ())


_numbers = itertools.count()


def seen(world, call, draws):
    """What a call gave, and left behind where a program looks."""
    if draws:
        torch.manual_seed(0)
    names = world.names
    exec(call.before, names)
    args, kwargs = eval(f"(lambda *args, **kwargs: (args, kwargs))({call.arguments})", names)
    result = world.tried(lambda: world.function(*args, **kwargs))
    world.kept.append(result) if world.keeps else None
    return {"result": result, "arguments": (args, kwargs), "earlier results": world.kept,
            "names": [names.get(name) for name in ("g_0", "g_q", "g_p", "state", "memo")],
            "class": vars(names["Held"]).get("kind")}


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--examples", type=int, default=2000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--seconds", type=float, default=float("inf"))
    options.add_argument("--most", type=int, default=10)
    given = options.parse_args()
    warnings.simplefilter("ignore")
    start, failed, replayed, calls, skipped = time.time(), 0, 0, 0, 0
    for seed in range(given.seed, given.seed + given.examples):
        program = Draw(seed).program()
        try:
            made, again, _ = check(program)
            replayed, calls = replayed + again, calls + made
        except Different as error:
            failed += 1
            print(f"--- seed {seed}: {error}\n" + str(program).split("def kept_in")[1].split("\n", 1)[1], flush=True)
        except SyntaxError as error:
            skipped += 1
            print(f"--- seed {seed}: no program, {error}\n" + str(program).split("def kept_in")[1], flush=True)
        except Exception:                                    # of the setup, which is no program then
            skipped += 1
        if failed >= given.most or time.time() - start > given.seconds:
            break
    print(f"{seed - given.seed + 1} programs in {time.time() - start:.0f} s, {calls} calls, {replayed} replayed, "
          f"{skipped} without a setup, {failed} different")
    return failed


if __name__ == "__main__":
    sys.exit(main())
