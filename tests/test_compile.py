"""`flambeau.compile`: compiled, a function does what it does; and where it cannot be replayed, it says why.

Every test runs on the reference executor and on the native one, against the same function as it is.
"""
import contextvars
import gc
import linecache
import math
import textwrap
import threading
import time
import types
import warnings
import weakref
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

import flambeau as torch
from flambeau.base import settings
from flambeau.compiler import compiled as compiled_module
from flambeau.nn import functional as F
from tests.thorough import sample

pytestmark = pytest.mark.pinned


@pytest.fixture(autouse=True, params=["reference", "native"])
def executor(request, monkeypatch):
    monkeypatch.setattr(settings, "executor", request.param)
    torch.manual_seed(0)
    return request.param


def same(a, b):
    """Whether two results are equal, bit for bit."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype is b.dtype and a.shape == b.shape and \
            a.detach().clone().numpy().tobytes() == b.detach().clone().numpy().tobytes()
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


def near(a, b):
    """Whether nested tuples and lists of tensors are equal but for a few last digits."""
    if isinstance(a, torch.Tensor):
        return torch.allclose(a, b, rtol=1e-6, atol=1e-6)
    return len(a) == len(b) and all(map(near, a, b))


def replays(compiled):
    return sum(r.hits for r in compiled.recordings)


def agree(plain, compiled, *calls, tries=0):
    """Call both alike; all but the first calls must have been replayed, unless `tries` more are needed."""
    for args in calls:
        assert same(plain(*args), compiled(*args)), args
    assert replays(compiled) == len(calls) - 1 - tries, compiled.explain()


def x_of(*shape, dtype=None):
    return torch.randn(*shape, dtype=dtype)


# --- forms of the call ----------------------------------------------------------------------------------------------


def test_a_function_and_the_forms_of_the_decorator():
    def f(x, y=1.0):
        """Adds."""
        return (x * 2 + y).tanh()
    for compiled in (torch.compile(f), torch.compile()(f), torch.compile(fullgraph=True, mode="default")(f),
                     torch.compile(f, mode="reduce-overhead", dynamic=True), torch.compile(f, options={"a": 1})):
        x = x_of(5)
        agree(f, compiled, (x,), (x,), (x,))
        assert same(compiled(x, y=3.0), f(x, y=3.0)) and same(compiled(x, 4.0), f(x, 4.0))
        assert compiled.__name__ == "f" and compiled.__doc__ == "Adds."


def test_left_alone():
    def f(x): return x + 1
    assert torch.compile(f, disable=True) is f
    assert torch.compile(f, backend="eager") is f
    with pytest.raises(ValueError, match="unknown backend 'tvm': flambeau.compile knows 'inductor', 'eager'"):
        torch.compile(f, backend="tvm")
    with pytest.raises(ValueError, match="unknown mode 'fast'"):
        torch.compile(f, mode="fast")
    with pytest.raises(NotImplementedError, match="no FX graph"):
        torch.compile(f, backend=lambda graph, inputs: graph)
    with pytest.raises(TypeError, match="something that can be called"):
        torch.compile(3)


def test_an_object_and_a_method():
    class Scale:
        def __init__(self, factor):
            self.factor = factor
            self.weight = x_of(3)

        def __call__(self, x):
            return self.inner(x) + self.weight

        def inner(self, x):
            return x * self.factor

        @torch.compile
        def method(self, x):
            return self.inner(x) - self.weight

    scale = Scale(2.0)
    compiled = torch.compile(scale)
    x = x_of(3)
    agree(scale, compiled, (x,), (x,), (x,))
    assert compiled.factor == 2.0                       # attributes are the object's
    scale.factor = 5.0
    assert same(compiled(x), scale(x)) and len(compiled.recordings) == 1
    other = Scale(3.0)
    for s in (scale, other, scale, other):
        assert same(s.method(x), x * s.factor - s.weight)
    assert len(Scale.method.recordings) == 2 and replays(Scale.method) == 2
    del other, s
    gc.collect()
    assert len(Scale.method.recordings) == 1            # it went with its object


def test_a_compiled_function_inside_another():
    @torch.compile
    def inner(x): return x * 3

    def outer(x): return inner(x) + 1
    compiled = torch.compile(outer)
    x = x_of(4)
    agree(lambda x: x * 3 + 1, compiled, (x,), (x,), (x,))
    assert not inner.recordings
    inner(x), inner(x)
    assert replays(inner) == 1
    assert same(compiled(x), x * 3 + 1)


# --- what is read and what is written -------------------------------------------------------------------------------


def test_state_in_a_closure_is_read_at_every_replay():
    weight = x_of(3)

    def f(x): return x @ weight
    compiled = torch.compile(f)
    for _ in range(4):
        x = x_of(2, 3)
        assert same(compiled(x), f(x))
        with torch.no_grad():
            weight.mul_(1.5)
    assert replays(compiled) == 3


def test_in_place_state():
    def make():
        total, count = torch.zeros(3), torch.zeros((), dtype=torch.int64)

        def f(x):
            total.add_(x)
            count.add_(1)
            total[1:].mul_(0.5)
            return total / count
        return f, (total, count)
    (f, state), (g, other) = make(), make()
    compiled = torch.compile(g)
    calls = [x_of(3) for _ in range(5)]
    for x in calls:
        assert same(f(x), compiled(x)) and same(state, other)
        assert [t._version for t in state] == [t._version for t in other]
    assert replays(compiled) == 4


def test_arguments_are_written():
    def f(x, y):
        x.mul_(2).add_(y)
        y[0] = 7
    compiled = torch.compile(f)
    for _ in range(4):
        a, b = x_of(3), x_of(3)
        c, d = a.clone(), b.clone()
        assert f(a, b) is None and compiled(c, d) is None
        assert same((a, b), (c, d)) and c._version == a._version
    assert replays(compiled) == 3
    x, y = x_of(6), x_of(6)
    z = x.clone()
    f(z, z)                                             # one tensor in both places, where two were recorded
    compiled(x, x)
    assert same(x, z) and replays(compiled) == 3
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        compiled(x_of(7)[:6], y), compiled(y[:5], y[1:])


def test_memory_that_was_apart_and_is_not():
    state = torch.zeros(6)

    def f(x, y):
        x.fill_(2.0)
        state.add_(1)
        return y + 1
    compiled = torch.compile(f)
    for _ in range(3):
        x, y = x_of(3), x_of(3)
        assert same(compiled(x, y), y + 1) and x.tolist() == [2] * 3
    assert replays(compiled) == 2
    whole = x_of(4)
    assert compiled(whole[:3], whole[:3]).tolist() == [3] * 3
    assert compiled(whole[1:], whole[:3]).tolist() == [3] * 3           # other views of one memory
    assert compiled(x_of(3), state[:3]).tolist() == [state[0].item() + 1] * 3
    assert compiled(state[3:], x_of(3)) is not None and state.tolist() == [7, 7, 7, 3, 3, 3]
    assert compiled(state[:3], state[3:]).tolist() == [5] * 3


def test_results_that_share_memory_share_it_again():
    buffer = torch.zeros(4)

    def f(x):
        y = x * 2
        buffer.copy_(y)
        return y, y[1:], {"view": buffer[:2], "self": buffer, "arg": x.view(2, 2)}, x
    compiled = torch.compile(f)
    for _ in range(3):
        x = x_of(4)
        y, tail, views, back = compiled(x)
        assert back is x and views["self"] is buffer and views["view"]._storage is buffer._storage
        assert views["arg"]._storage is x._storage and views["arg"].shape == (2, 2)
        assert tail._storage is y._storage and tail.storage_offset() == 1 and tail._base is y
        tail.zero_()
        views["view"].fill_(3.0)
        assert y.tolist()[1:] == [0, 0, 0] and buffer.tolist()[:2] == [3, 3]
    assert replays(compiled) == 2


Pair = namedtuple("Pair", "left right")


@dataclass
class Batch:
    x: torch.Tensor
    scale: float = 1.0
    tags: tuple = ()


def test_structures_go_in_and_come_out():
    def f(batch, more, *, extra=None):
        x = batch.x * batch.scale + more["a"][0]
        if extra is not None:
            x = x + extra[1]
        return Pair(x, [x.sum(), None, "word", 3]), {"n": 2.5, "batch": Batch(x - 1, 2.0, ("t",))}, torch.Size([1, 2])
    compiled = torch.compile(f)
    for i in range(4):
        args = Batch(x_of(3), float(i)), {"a": [x_of(3), i]}
        for kwargs in ({}, {"extra": (1, x_of(3))}):
            a, b = f(*args, **kwargs), compiled(*args, **kwargs)
            assert type(b[0]) is Pair and isinstance(b[1]["batch"], Batch) and type(b[2]) is torch.Size
            assert same(list(a[0]), list(b[0])) and same(vars(a[1].pop("batch")), vars(b[1].pop("batch")))
            assert same(a[1:], b[1:])
    assert len(compiled.recordings) <= 4 and replays(compiled) >= 4


def test_a_tensor_put_in_another_place_at_every_call():
    class Cell:
        def __init__(self):
            self.hidden, self.slots = torch.zeros(3), {"last": torch.zeros(3)}

        def step(self, x):
            self.hidden = (self.hidden + x).tanh()
            self.slots["last"] = x * 2
            return self.hidden.sum()
    a, b = Cell(), Cell()
    compiled = torch.compile(b.step)
    kept = []
    for _ in range(5):
        x = x_of(3)
        assert same(a.step(x), compiled(x))
        assert same(a.hidden, b.hidden) and same(a.slots, b.slots)
        kept.append((b.hidden, b.hidden.clone()))
    assert replays(compiled) == 4
    assert all(same(now, then) for now, then in kept)   # the old ones are as they were


def test_constants_made_inside():
    def f(x):
        table = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        return x @ table + torch.arange(2) + torch.eye(2)[0], table, torch.ones(2)
    compiled = torch.compile(f)
    x = x_of(2, 2)
    agree(f, compiled, (x,), (x,), (x,))
    a = compiled(x)[1]
    a.zero_()                                           # a constant that is given out is the caller's own
    assert same(compiled(x), f(x))


def test_nothing_to_compute():
    def f(x): return x, 3
    compiled = torch.compile(f)
    x = x_of(2)
    assert compiled(x)[0] is x and compiled(x) == (x, 3) and replays(compiled) == 1


# --- numbers --------------------------------------------------------------------------------------------------------


def test_a_number_is_read_at_every_replay():
    class Rate:
        lr, decay = 0.1, 0.0

        def __init__(self):
            self.groups = [{"lr": 0.5, "betas": (0.9, 0.99)}]
    rate = Rate()
    cell = 1.0
    w = torch.ones(3)

    def f(x, k=2.0):
        g = rate.groups[0]
        if rate.decay:
            x = x * (1 - g["lr"] * rate.decay)
        step = -g["lr"] / (1 + k) ** 2 * math.sqrt(cell) + abs(-k) % 3
        w.add_(x, alpha=step)
        return w * rate.lr, g["lr"] * 2, x / k, x.clamp(max=k), k / (x * x + 1)
    v = w
    compiled = torch.compile(f)
    w = torch.ones(3)
    plain = types.FunctionType(f.__code__, f.__globals__, "plain", f.__defaults__,
                               tuple(types.CellType(v if c.cell_contents is w else c.cell_contents) if n == "w" else c
                                     for n, c in zip(f.__code__.co_freevars, f.__closure__)))
    x = x_of(3)
    for i in range(8):
        rate.groups[0]["lr"] = 0.5 / (i + 1)
        Rate.lr = 0.1 + i
        cell = 1.0 + i
        assert same(plain(x, 2.0 + i), compiled(x, 2.0 + i))
    assert len(compiled.recordings) == 1 and replays(compiled) == 7, compiled.explain()
    rate.decay = 0.5                                    # another branch
    assert same(plain(x), compiled(x))
    assert len(compiled.recordings) == 2
    rate.decay = 0.25
    assert same(plain(x), compiled(x))
    assert "rate.decay" in str(compiled.explain()).split("recording 1")[0]
    assert rate.groups[0]["lr"] == 0.0625 and type(rate.groups[0]["lr"]) is float and type(Rate.lr) is float


def test_what_looks_at_a_number_fixes_it():
    box = {"a": 1.5, "b": 2.0, "c": 3.0}

    def f(x):
        label = f"{box['a']:.1f}"
        table = {box["b"]: 10.0}
        return x * box["c"] + len(label) + table[2.0]
    compiled = torch.compile(f)
    x = x_of(3)
    agree(f, compiled, (x,), (x,))
    box["c"] = 4.0
    assert same(compiled(x), f(x)) and len(compiled.recordings) == 1
    box["a"] = 2.25
    assert same(compiled(x), f(x)) and len(compiled.recordings) == 2
    guards = compiled.recordings[0].guards
    assert "box['a'] == 2.25" in guards and "box['b'] == 2.0" in guards and "box['c'] == 4.0" not in guards


def test_asking_whether_a_number_is_none_does_not_fix_it():
    """What has another type is another object, whatever the number is; None instead of it is another recording."""
    box = {"a": 1.5, "b": (0.5, 2.5)}

    def f(x, k=2.0):
        rate = box["a"]
        computed = None if rate is None else rate * 2
        if computed is not None and box["b"] is not None and k is not True and k is not None and None is not k:
            x = x * computed + box["b"][1] * k
        return x if rate is ... or rate is None else x + rate
    compiled = torch.compile(f)
    x = x_of(3)
    for i in range(8):
        box["a"], box["b"] = 1.5 + i, (0.5 * i, 2.5 * i)
        assert same(f(x, 2.0 + i), compiled(x, 2.0 + i))
    assert len(compiled.recordings) == 1 and replays(compiled) == 7, compiled.explain()
    box["a"] = None
    assert same(f(x), compiled(x))
    box["a"], box["b"] = 1.0, None
    assert same(f(x), compiled(x)) and same(f(x, None), compiled(x, None))


def test_special_numbers():
    box = [0.0]

    def f(x): return x / box[0] if float(box[0]) == box[0] else x
    compiled = torch.compile(f)
    x = torch.tensor([1.0, -1.0])
    for number in (0.0, -0.0, 0.0, -0.0, math.nan, math.inf, math.nan, 0):
        box[0] = number
        assert same(f(x), compiled(x)), number


def test_a_counter_of_the_function_s_own():
    class Counter:
        def __init__(self):
            self.steps, self.rate, self.seen = 0, 1.0, [0]

        def step(self, x):
            self.steps += 1
            self.rate *= 0.5
            self.seen[0] = self.seen[0] + 2
            return x * (1 - 0.9 ** self.steps) / math.sqrt(1 - 0.99 ** self.steps) + self.rate, self.steps
    a, b = Counter(), Counter()
    compiled = torch.compile(b.step)
    x = x_of(3)
    for _ in range(8):
        assert same(a.step(x), compiled(x)) and vars(a) == vars(b)
    assert replays(compiled) == 6, compiled.explain()
    assert type(b.steps) is int and type(b.rate) is float


def test_sizes_are_fixed_and_another_one_is_another_recording():
    class Net:
        width, heads = 6, 2

        def __call__(self, x):
            return x.view(-1, self.heads, self.width // self.heads).sum(1)
    net = Net()
    compiled = torch.compile(net)
    x = x_of(4, 6)
    for heads in (2, 3, 2, 3, 1, 2):
        net.heads = heads
        assert same(net(x), compiled(x))
    assert len(compiled.recordings) == 3 and replays(compiled) == 3


# --- guards ---------------------------------------------------------------------------------------------------------


def test_another_shape_or_dtype_is_another_recording():
    def f(x): return (x * 2).sum(0)
    compiled = torch.compile(f)
    shapes = [x_of(n, 3) for n in (2, 3, 5)] + [x_of(3, 2).t(), x_of(2, 3, dtype=torch.float64), x_of(8)[2:], x_of(3)]
    for _ in range(3):
        for x in shapes:
            assert same(compiled(x), f(x))
    assert len(compiled.recordings) == len(shapes) and replays(compiled) == 2 * len(shapes)


# --- giving up ------------------------------------------------------------------------------------------------------


def recorded(compiled, monkeypatch):
    """A list that grows by one with every call of `compiled` that is recorded."""
    calls, record = [], compiled._record
    monkeypatch.setattr(type(compiled), "_record", lambda self, *given: calls.append(given) or record(*given))
    return calls


def test_what_fails_twice_for_the_same_lasting_reason_is_left_alone(monkeypatch):
    compiled = torch.compile(lambda x: x * 2 if x.sum() > 0 else x)
    calls = recorded(compiled, monkeypatch)
    with pytest.warns(UserWarning, match="runs as ordinary code: bool.. at .* looks at a value half-way") as said:
        for n in range(6):
            assert same(compiled(torch.ones(3) * n), torch.ones(3) * 2 * n)
    assert len(calls) == 2 and compiled.gave_up and len(said) == 1
    torch.compiler.reset()
    assert compiled.gave_up is None


def test_reasons_that_change_from_call_to_call_are_no_reason_to_give_up_at_once(monkeypatch):
    turns = []

    def f(x):
        turns.append(0)                                       # a list that grows
        if len(turns) % 2:
            x = x + float(x[0])                               # and every other time a look before it is known
        return x * 2

    compiled = torch.compile(f)
    calls = recorded(compiled, monkeypatch)
    with pytest.warns(UserWarning, match="runs as ordinary code"):
        for _ in range(12):
            compiled(x_of(3))
    assert len(calls) == 8 and compiled.gave_up


def test_long_recordings_have_to_be_earned(monkeypatch):
    def f(x):
        for _ in range(40 * len(x)):
            x = x * 0.5 + 1
        return x

    compiled, few = torch.compile(f), 4
    calls = recorded(compiled, monkeypatch)
    with pytest.warns(UserWarning, match="4 recordings, and none fits: the latest one needs that x is float32") as said:
        for n in range(2, 10):
            x = x_of(n)
            assert same(compiled(x), f(x))
    assert len(calls) == len(compiled.recordings) == few and len(said) == 1
    for n in (2, 3):
        x = x_of(n)
        assert same(compiled(x), f(x))                        # these are kept, and earn another
    for n in (8, 9):
        x = x_of(n)
        assert same(compiled(x), f(x))
    assert len(calls) == len(compiled.recordings) == few + 1 and replays(compiled) == 2


def test_guards_fail_where_something_changed():
    state = types.SimpleNamespace(flag=True, parts=[x_of(3)], name="a", table={"k": 1}, chosen={1, 2}, maker=torch.sin,
                                  none=None)

    def f(x):
        for part in state.parts:
            x = x + part
        x = x * state.table["k"]
        for test in (state.flag, state.name == "a", 2 in state.chosen, state.none is None):
            x = x * 2 if test else x + 1
        return state.maker(x)
    compiled = torch.compile(f)
    x = x_of(3)
    agree(f, compiled, (x,), (x,))

    def changes():
        state.flag = False
        yield "state.flag is True"
        state.flag = True
        state.parts.append(x_of(3))
        yield "state.parts holds 1"
        state.parts[1] = x_of(3)
        yield "state.parts[1] is float32[3], the same tensor"
        state.name = "b"
        yield "state.name == 'a'"
        state.table["k"] = 2
        yield "state.table['k'] == 1"
        state.chosen.discard(2)
        yield "state.chosen holds the same"
        state.maker = torch.cos
        yield "state.maker"
        state.none = 0
        yield "state.none is None"
    for words in changes():
        before = len(compiled.recordings)
        assert same(f(x), compiled(x)), words
        assert len(compiled.recordings) == before + 1, words
        olds = [r.guards[r.replay((x,), {}, []).guard] for r in compiled.recordings[1:]]
        assert any(words in old for old in olds), (words, olds)
        del compiled.recordings[2:]
        assert same(f(x), compiled(x))


def test_guards_on_gradients():
    w = torch.ones(3, requires_grad=True)

    def f(x): return (x * w).detach() if torch.is_grad_enabled() else x * 2
    compiled = torch.compile(f)
    x = x_of(3)
    agree(f, compiled, (x,), (x,))
    with torch.no_grad():
        assert same(compiled(x), f(x)) and same(compiled(x), f(x))
    assert same(compiled(x), f(x)) and len(compiled.recordings) == 2
    w.requires_grad_(False)
    assert same(compiled(x), f(x)) and len(compiled.recordings) == 3
    w.grad = torch.ones(3)                              # nobody asks for it
    assert same(compiled(x), f(x)) and len(compiled.recordings) == 3
    hits = replays(compiled)
    with torch.inference_mode():
        assert compiled(x).is_inference() and compiled(x).is_inference()
    assert len(compiled.recordings) == 4 and replays(compiled) == hits + 1


def test_too_many_recordings():
    def f(x): return x + 1
    compiled = torch.compile(f)
    with pytest.warns(UserWarning, match=r"f is compiled, but this call runs as ordinary code: 8 recordings, and none "
                                         r"fits: the latest one needs that x is float32\[8\]"):
        for n in range(1, 12):
            assert same(compiled(torch.ones(n)), f(torch.ones(n)))
    assert len(compiled.recordings) == 8
    for _ in range(40):
        compiled(torch.ones(8))
    compiled(torch.ones(20))                            # after so many replays an old recording makes room
    assert len(compiled.recordings) == 8 and "float32[20]" in str(compiled.explain())


helper = lambda x: x + 1


def test_a_global_function_that_is_replaced(monkeypatch):
    def f(x): return helper(x) * 2
    compiled = torch.compile(f)
    x = x_of(3)
    agree(f, compiled, (x,), (x,))
    monkeypatch.setitem(globals(), "helper", lambda x: x - 1)
    assert same(compiled(x), (x - 1) * 2)


# --- training -------------------------------------------------------------------------------------------------------


class Adam:
    def __init__(self, parameters, rate):
        self.parameters, self.rate = parameters, rate
        self.count = torch.zeros((), dtype=torch.float64)
        self.means = [torch.zeros_like(p) for p in parameters]
        self.squares = [torch.zeros_like(p) for p in parameters]

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self):
        self.count += 1
        for p, mean, square in zip(self.parameters, self.means, self.squares):
            mean.lerp_(p.grad, 0.1)
            square.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
            p -= self.rate / (1 - 0.9 ** self.count) * mean / ((square / (1 - 0.999 ** self.count)).sqrt() + 1e-8)


def training(dropout=0.0):
    rng = np.random.default_rng(0)
    p = {name: torch.tensor(rng.standard_normal(shape, np.float32) * 0.3, requires_grad=True)
         for name, shape in (("w1", (16, 8)), ("b1", (16,)), ("w2", (4, 16)), ("b2", (4,)))}
    optimizer = Adam(list(p.values()), 0.01)

    def step(x, y):
        optimizer.zero_grad()
        h = F.dropout(F.relu(F.linear(x, p["w1"], p["b1"])), dropout)
        loss = F.cross_entropy(F.linear(h, p["w2"], p["b2"]), y)
        loss.backward()
        optimizer.step()
        return loss
    return step, p, optimizer


def batch(n=8):
    return torch.randn(n, 8), torch.randint(0, 4, (n,))


def test_twenty_steps_of_training():
    step, p, adam = training()
    twin, q, other = training()
    compiled = torch.compile(twin, fullgraph=True)
    for i in range(20):
        adam.rate = other.rate = 0.01 * 0.9 ** i        # a schedule
        x, y = batch(8 if i % 5 else 3)
        a, b = step(x, y), compiled(x, y)
        assert same(a, b), i
        assert same(p, q) and same([t.grad for t in p.values()], [t.grad for t in q.values()])
        assert [t._version for t in p.values()] == [t._version for t in q.values()]
    assert len(compiled.recordings) <= 4 and replays(compiled) >= 16
    assert b.grad_fn is None and not b.requires_grad
    with pytest.raises(RuntimeError, match=r"The graph was cut at test_compile.py:\d+ by flambeau.compile"):
        b.backward()


def test_gradients_add_up():
    def make():
        w = torch.ones(3, requires_grad=True)

        def f(x):
            (w * x).sum().backward()
        return f, w
    (f, w), (g, v) = make(), make()
    compiled = torch.compile(g)
    for _ in range(4):
        x = x_of(3)
        f(x), compiled(x)
        assert same(w.grad, v.grad)
    assert len(compiled.recordings) == 2 and replays(compiled) == 2
    w.grad = v.grad = None
    f(x), compiled(x)
    assert same(w.grad, v.grad) and len(compiled.recordings) == 2


def test_gradients_that_somebody_keeps():
    step, p, _ = training()
    compiled = torch.compile(step)
    x, y = batch()
    kept = []
    for _ in range(5):
        compiled(x, y)
        kept += [(t.grad, t.grad.clone()) for t in p.values()]
    assert all(same(now, then) for now, then in kept)


def test_random_numbers_are_those_of_plain_code():
    step, p, _ = training(dropout=0.3)
    twin, q, _ = training(dropout=0.3)
    compiled = torch.compile(twin)
    x, y = batch()
    torch.manual_seed(7)
    plain = [step(x, y) for _ in range(6)]
    after = torch.rand(1)
    torch.manual_seed(7)
    replayed = [compiled(x, y) for _ in range(6)]
    assert same(plain, replayed) and same(p, q) and same(after, torch.rand(1))
    assert replays(compiled) == 4


def test_draws_of_every_kind():
    own = torch.Generator().manual_seed(3)

    def f(x):
        noise = torch.randn_like(x) + torch.rand(3, generator=own)
        order = torch.randperm(3)
        return x[order] + noise.normal_(0, 2), torch.empty(2, 2).uniform_(-1, 1), torch.randint(0, 9, (4,))
    compiled = torch.compile(f)
    x = x_of(3)
    states = torch.get_rng_state(), own.get_state()
    plain = [f(x) for _ in range(4)]
    torch.set_rng_state(states[0])
    own.set_state(states[1])
    assert same(plain, [compiled(x) for _ in range(4)]) and replays(compiled) == 3


def test_data_is_checked_again():
    table = x_of(5, 2)

    def f(index): return F.embedding(index, table).sum(1), F.embedding(index.to(torch.int64) + 1, table)
    compiled = torch.compile(f)
    index = torch.tensor([0, 3])
    agree(f, compiled, (index,), (index,), (torch.tensor([1, 2]),))
    with pytest.raises(IndexError, match="index 5 for a table of 5 rows"):
        compiled(torch.tensor([0, 4]))
    with pytest.raises(IndexError, match="index 9"):
        compiled(torch.tensor([0, 9]))
    index[1] = 7
    with pytest.raises(IndexError, match="index 7"):
        compiled(index)
    assert same(compiled(torch.tensor([1, 1])), f(torch.tensor([1, 1])))


def policy_step():
    """A step that checks logits which it computes, and drops some out after that; its parameters."""
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

    def step(x, actions):
        policy = torch.distributions.Categorical(logits=net(x))
        loss = -F.dropout(policy.log_prob(actions), 0.25).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, policy.logits
    return step, [*net.parameters()]


def test_checks_of_what_a_call_computes(executor):
    """They are made before anything is drawn or written; the rest goes on from what was computed for them."""
    (plain, expected), (step, parameters) = policy_step(), policy_step()
    compiled, results = torch.compile(step), []
    for seed in range(8):
        given = []
        for call in (plain, compiled):
            torch.manual_seed(seed)
            given.append(call(torch.randn(5, 4), torch.tensor([0, 2, 1, 0, seed % 3])))
        given = [[t.detach() for t in one] for one in given]
        results.append((*given, [t.clone() for t in given[0]]))
        assert same(parameters, expected)
    assert all(same(first, second) and same(first, kept) for first, second, kept in results)
    assert replays(compiled) >= 4 and (recording := compiled.recordings[0]).head is not None, compiled.explain()
    address = parameters[0]._storage.value.address()
    compiled(torch.randn(5, 4), torch.tensor([0, 2, 1, 0, 1]))
    assert executor == "reference" or parameters[0]._storage.value.address() == address
    before, drawn, hits = [p.detach().clone() for p in parameters], torch.get_rng_state(), recording.hits
    nan = torch.full((5, 4), math.nan)
    for x, actions, error in ((nan, [0, 2, 1, 0, 1], "logits"),
                              (torch.ones(5, 4), [0, 2, 1, 0, 3], "within the support")):
        with pytest.raises(ValueError, match=error):
            compiled(x, torch.tensor(actions))
        assert same([p.detach() for p in parameters], before) and same(torch.get_rng_state(), drawn)
    compiled(torch.randn(5, 4), torch.tensor([0, 2, 1, 0, 1]))
    assert recording.hits == hits + 1


def test_positions_that_a_call_computes():
    table, weight = x_of(6, 4), x_of(7, 3)

    def f(x, shift):
        best = (x @ weight[:4]).argmax(1, keepdim=True) + shift
        return table.gather(1, best), best, F.embedding(best, weight).sum(), table.index_select(0, best[:, 0])
    compiled = torch.compile(f)
    agree(f, compiled, *[(x_of(6, 4), torch.tensor(n % 2)) for n in range(5)])
    assert compiled.recordings[0].head is not None
    with pytest.raises(RuntimeError, match="index [4-6] is out of bounds for dimension 1 with size 4"):
        compiled(x_of(6, 4), torch.tensor(4))
    with pytest.raises(RuntimeError, match="index -[3-5] is out of bounds"):
        compiled(x_of(6, 4), torch.tensor(-5))


# --- donation -------------------------------------------------------------------------------------------------------


def test_who_holds_a_parameter_keeps_what_he_holds(executor):
    w = torch.ones(4)

    def f(x):
        w.add_(x)
    compiled = torch.compile(f)
    x = torch.ones(4)
    for _ in range(3):
        compiled(x)
    address = w._storage.value.address()
    compiled(x)
    assert executor == "reference" or w._storage.value.address() == address            # in place
    held = w.clone()
    look, part = w.detach(), w[1:]
    late = w * 10                                       # recorded, and not run before the replay
    compiled(x)
    assert held.tolist() == [5.0] * 4 and look.tolist() == [6.0] * 4 == w.tolist() and part.tolist() == [6.0] * 3
    assert late.tolist() == [50.0] * 4
    array = w.numpy()                                   # both sides see the same bytes
    compiled(x)
    assert array.tolist() == [7.0] * 4 == w.tolist()
    array[:] = 0
    compiled(x)
    assert array.tolist() == [1.0] * 4
    hits = replays(compiled)
    del array
    compiled(x)
    assert w.tolist() == [2.0] * 4 and replays(compiled) == hits + 1


def test_contents_that_are_passed_on():
    a, b = torch.zeros(3), torch.zeros(3)

    def f(x):
        b.copy_(a)                                      # the old contents
        a.copy_(x)
        return b.clone()
    compiled = torch.compile(f)
    for i in range(5):
        assert compiled(torch.full((3,), float(i))).tolist() == [max(i - 1.0, 0.0)] * 3
        assert a.tolist() == [i] * 3 and b.tolist() == [max(i - 1, 0)] * 3
    assert replays(compiled) == 4


def test_an_array_as_batch():
    w = torch.ones(3, requires_grad=True)

    def f(x):
        w.grad = None
        (x * x * w).sum().backward()
        return w.grad.clone()
    compiled = torch.compile(f)
    array = np.ones(3, np.float32)
    x = torch.from_numpy(array)
    for i in range(4):
        array[:] = i
        assert compiled(x).tolist() == [i * i] * 3
    assert replays(compiled) == 2                       # w.grad was None at first


# --- what cannot be replayed ----------------------------------------------------------------------------------------


def here(offset=0):
    import sys
    return f"test_compile.py:{sys._getframe(1).f_lineno + offset}"


def refuses(f, words, *args, calls=8):
    """`f` runs as always, is never replayed, and says why; with fullgraph=True it raises."""
    compiled = torch.compile(f)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(calls):
            compiled(*args)
    assert not replays(compiled) and any(words in reason for reason in compiled.reasons), compiled.reasons
    if calls == 8:
        assert len(said) == 1 and "runs as ordinary code" in str(said[0].message) and words in str(said[0].message)
    assert words in str(compiled.explain())
    with pytest.raises(RuntimeError) as caught:
        strict = torch.compile(f, fullgraph=True)
        for _ in range(8):
            strict(*args)
    assert "fullgraph=True" in str(caught.value) and words in str(caught.value)


def test_a_look_half_way():
    total = []

    def f(x):
        y = x * 2
        if y.sum().item() > 0: y = y + 1                # the line
        return y
    refuses(f, f".item() at {here(-2)} looks at a value", torch.ones(3))
    for look, words in ((lambda t: float(t.sum()), "float()"), (bool, "bool()"), (lambda t: t.tolist(), ".tolist()"),
                        (repr, "printing"), (lambda t: t.numpy(), ".numpy()"), (lambda t: t.nonzero(), "nonzero()"),
                        (lambda t: t[t > 0], "indexing"), (lambda t: torch.equal(t, t), "equal()"),
                        (lambda t: torch.bernoulli(t), "bernoulli()"), (lambda t: t.data_ptr(), "data_ptr()")):
        def g(x):
            total[:] = [look(x)]
            return x
        refuses(g, f"{words} at test_compile.py:", torch.ones(1))


def test_effects_outside_python(capsys):
    import random
    import time

    def prints(x):
        print("hello")
        return x + 1
    refuses(prints, f"print() at {here(-2)}", torch.ones(2))

    def waits(x):
        time.sleep(0)
        return x + time.time()
    refuses(waits, f"time.sleep() at {here(-2)}", torch.ones(2))

    def draws(x):
        return x + random.random()
    refuses(draws, "random", torch.ones(2))
    rng = np.random.default_rng(0)

    def numpy_draws(x):
        return x + float(rng.normal())
    refuses(numpy_draws, "rng draws random numbers from NumPy", torch.ones(2))

    def legacy(x):
        return x + float(np.random.rand())
    refuses(legacy, "draws random numbers from NumPy", torch.ones(2))
    numbers = iter(range(100))

    def takes(x):
        return (x + 1) * next(numbers)
    refuses(takes, "numbers is an iterator", torch.ones(2))
    array = np.zeros(5000)

    def reads(x):
        return x + float(array[0])
    refuses(reads, "array is a NumPy array", torch.ones(2))

    def seeds(x):
        torch.manual_seed(3)
        return x + torch.rand(2)
    refuses(seeds, "manual_seed", torch.ones(2))

    def computed(x):
        return x + eval("1")
    refuses(computed, "eval()", torch.ones(2))


def test_python_state_that_the_call_changes():
    class Log:
        def __init__(self):
            self.losses, self.best, self.table = [], "none", {}

        def grows(self, x):
            self.losses.append(1)
            return x + 1

        def renames(self, x):
            self.best = self.best + "!"
            return x + 1

        def keys(self, x):
            self.table[len(self.table)] = x * 2
            return x + 1

        def attribute(self, x):
            setattr(self, f"a{len(vars(self))}", 1)
            return x
    x = torch.ones(2)
    refuses(Log().grows, "the call changed self.losses: it held ", x)
    refuses(Log().renames, "the call changed self.best from 'none!!!", x)
    refuses(Log().keys, "the call changed self.table", x)
    refuses(Log().attribute, "the call changed self", x)


def test_tensors_that_cannot_be_found():
    hidden = contextvars.ContextVar("hidden")            # nobody sees what C code keeps
    hidden.set(torch.ones(2))

    def reads(x):
        return x + hidden.get()
    refuses(reads, "ContextVar.get() at test_compile.py", torch.ones(2))
    held = weakref.ref(hidden.get())

    def follows(x): return x + held()
    refuses(follows, "held() leads to an object that is held by nothing else", torch.ones(2))
    box = weakref.WeakKeyDictionary()

    class Key: pass
    key = Key()

    def keeps(x):
        box[key] = x * 2
        return x + 1
    compiled = torch.compile(keeps)
    for _ in range(4):
        compiled(torch.ones(2))
        assert box[key].tolist() == [2, 2]


def test_a_live_graph():
    w = torch.ones(3, requires_grad=True)

    def f(x): return (x * w).sum()
    compiled = torch.compile(f)
    x = x_of(3)
    for _ in range(3):
        w.grad = None
        compiled(x).backward()
        assert same(w.grad, x)


def test_disable_and_is_compiling():
    seen = []

    @torch.compiler.disable
    def outside(x):
        return x + 1

    def f(x): return outside(x) * 2
    refuses(f, "outside is marked with compiler.disable", torch.ones(2))
    assert torch.compile(outside) is outside
    g = torch.compile(lambda x: x * 3 if torch.compiler.is_compiling() else x * 2)
    assert not torch.compiler.is_compiling() and not seen
    assert g(torch.ones(1)).item() == 3
    h = torch.compile(lambda x: x + 1)
    h(torch.ones(1))
    assert h.recordings
    torch.compiler.reset()
    assert not h.recordings
    assert "inductor" in torch.compiler.list_backends()


# --- what happens to the rest ---------------------------------------------------------------------------------------


def test_an_exception_leaves_everything_as_it_was():
    box = {"lr": 0.5}
    w = torch.ones(2)

    def f(x):
        w.mul_(box["lr"])
        if x.shape[0] == 3:
            raise KeyError("no")
        return x + w
    compiled = torch.compile(f)
    with pytest.raises(KeyError, match="no"):
        compiled(torch.ones(3))
    assert type(box["lr"]) is float and w.tolist() == [0.5, 0.5] and math.sqrt is not None
    assert type(math.sqrt).__name__ == "builtin_function_or_method"
    late = w * 1
    array = w.numpy()                                   # what the failed call has recorded ran before
    array[:] = 0.5
    assert late.tolist() == [0.5, 0.5]
    del array
    assert compiled(torch.ones(2)).tolist() == [1.25, 1.25] and compiled(torch.ones(2)).tolist() == [1.125, 1.125]
    assert replays(compiled) == 1
    with pytest.raises(KeyError):
        compiled(torch.ones(3))
    with pytest.raises(RuntimeError, match="the size of tensor a|must match"):
        compiled(torch.ones(5))
    assert compiled(torch.ones(2)).tolist() == [1.015625, 1.015625] and replays(compiled) == 2


def test_nothing_is_kept_of_a_call():
    w = torch.ones(4)

    def f(x):
        w.add_(x)
        return x * 2, (x + 1).sum()
    compiled = torch.compile(f)
    refs = []
    for _ in range(4):
        x = x_of(4)
        outs = compiled(x)
        refs += [weakref.ref(t) for t in (x, *outs)] + [weakref.ref(t._storage) for t in (x, *outs)]
        del x, outs
    gc.collect()
    assert not [r for r in refs if r() is not None]


def test_the_compiled_function_goes_away():
    def make():
        w = torch.ones(4)

        def f(x): return x + w
        return torch.compile(f), weakref.ref(w._storage)
    compiled, held = make()
    compiled(x_of(4)), compiled(x_of(4))
    refs = weakref.ref(compiled), held
    del compiled
    gc.collect()
    assert [r() for r in refs] == [None, None]


def test_several_threads():
    w = torch.ones(64)

    def f(x, k): return (x * k + w).sin().sum(), x - k
    compiled = torch.compile(f)
    wrong = []

    def work(seed):
        for i in range(30):
            x = torch.full((64,), float(seed + i % 3))
            a, b = compiled(x, float(i)), f(x, float(i))
            if not same(a, b):
                wrong.append((seed, i))
    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert not wrong and replays(compiled) > 20         # at least those of the thread that records


def test_threads_that_write():
    w = torch.zeros(64)

    def f(x): w.add_(x)
    compiled = torch.compile(f)
    x = torch.ones(64)
    threads = [threading.Thread(target=lambda: [compiled(x) for _ in range(50)]) for _ in range(3)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert w.max().item() <= 150                        # their race, and nothing worse
    w.zero_()
    compiled(x)
    assert w.tolist() == [1.0] * 64


def test_a_thread_that_looks_while_a_recording_is_made(monkeypatch):
    """It waits until what was recorded has been read, instead of running it, and so emptying it, in between."""
    w, x, seen = torch.zeros(64), torch.ones(64), []
    real, thread = compiled_module.Replay, threading.Thread(target=lambda: seen.append(w.tolist()))

    def watched(*args):
        thread.start()
        thread.join(0.3)
        return real(*args)
    monkeypatch.setattr(compiled_module, "Replay", watched)

    def f(x): w.add_(x)
    compiled = torch.compile(f)
    compiled(x)
    thread.join()
    assert seen == [[1.0] * 64]
    compiled(x)
    assert w.tolist() == [2.0] * 64 and len(compiled.recordings) == 1


def test_explain(executor):
    rate = {"lr": 0.1}
    w = torch.ones(4, requires_grad=True)

    def step(x, y):
        w.grad = None
        loss = F.mse_loss(F.dropout(x, 0.5) * w, y)
        loss.backward()
        with torch.no_grad():
            w.sub_(w.grad, alpha=rate["lr"])
        return loss
    compiled = torch.compile(step)
    for _ in range(4):
        compiled(x_of(4), x_of(4))
    text = str(compiled.explain())
    for words in ("step: 2 recordings", "operations, replayed 2 times", "read at every replay:\n    rate['lr']",
                  "writes to w\n", "puts a tensor into w.grad", "x is float32[4]", "draws random numbers 1 times",
                  "w is float32[4], requires grad"):
        assert words in text, text
    assert ("kernel 0  over" in text) == (executor == "native")
    assert repr(compiled.explain()) == text and "def replay" in compiled.recordings[0].source


# --- results with a graph -------------------------------------------------------------------------------------------


def net():
    rng = np.random.default_rng(1)
    w = [torch.tensor(rng.standard_normal(shape, np.float32), requires_grad=True) for shape in ((4, 3), (4,), (2, 4))]
    return w, lambda x: F.linear(F.relu(F.linear(x, w[0], w[1])), w[2])


def test_a_backward_outside():
    (w, f), (v, g) = net(), net()
    compiled = torch.compile(g)
    for i in range(5):
        x = x_of(5, 3)
        for parameters, model in ((w, f), (v, compiled)):
            y = model(x)
            loss = (y ** 2).mean() if i % 2 else y.sum()        # the gradient of a sum is an expanded one
            for p in parameters:
                p.grad = None
            loss.backward()
            with torch.no_grad():
                for p in parameters:
                    p -= 0.1 * p.grad
        assert same(w, v) and same([p.grad for p in w], [p.grad for p in v])
    assert len(compiled.recordings) == 1 and replays(compiled) == 4
    assert type(y.grad_fn).__name__ == "CompiledBackward" and y.requires_grad and not y.is_leaf
    assert "keeps 3 tensors for a backward of" in str(compiled.explain())


def test_gradients_of_arguments_and_of_several_results():
    scale = {"k": 2.0}

    def f(x, y):
        h = (x * y).sin() * scale["k"]
        return h, h.sum(0), y.detach() * 2, x + 0, h > 0
    compiled = torch.compile(f)
    for k in (2.0, 3.0, 4.0):
        scale["k"] = k
        a, b = (x_of(3, 2).requires_grad_() for _ in range(2))
        inner = a * 1                                           # not a leaf
        grads = []
        for call in (f, compiled):
            h, s, plain, moved, mask = call(inner, b)
            assert not plain.requires_grad and mask.dtype is torch.bool
            grads.append([torch.autograd.grad(h.sum(), (a, b), retain_graph=True),
                          torch.autograd.grad(s.exp().sum() + moved.sum(), (a, b), retain_graph=True)])
            (h * 2).sum().backward(retain_graph=True)
            grads[-1].append([a.grad.clone(), b.grad.clone()])
            a.grad = b.grad = None
        assert near(*grads), k                                  # sums are fused, and so added, in another way
    assert len(compiled.recordings) == 1 and replays(compiled) == 2


def test_the_node_of_a_replay():
    w = torch.ones(3, requires_grad=True)

    def f(x): return (x * w * w).exp()
    compiled = torch.compile(f)
    x = x_of(3)
    compiled(x)
    y = compiled(x)
    seen = []
    w.register_hook(lambda g: seen.append(g) or g * 2)
    y = compiled(x)                                             # a hook on a leaf is not part of the graph
    y.sum().backward()
    assert len(seen) == 1 and torch.allclose(w.grad, f(x).detach() * x * 4)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.sum().backward()
    y = compiled(x)
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    y = compiled(x)
    with pytest.raises(RuntimeError, match="create_graph=True: the backward of a compiled function is a recording"):
        torch.autograd.grad(y.sum(), w, create_graph=True)
    y.register_hook(lambda g: g * 0)
    w.grad = None
    y.sum().backward()
    assert w.grad.tolist() == [0, 0, 0]
    with torch.no_grad():
        assert compiled(x).grad_fn is None and compiled(x).grad_fn is None


def test_what_a_graph_keeps_goes_with_it():
    w = torch.ones(1000, requires_grad=True)

    def f(x): return ((x * w).exp() + 1).log()
    compiled = torch.compile(f)
    compiled(x_of(1000)).sum().backward()
    y = compiled(x_of(1000))
    node = y.grad_fn
    y.sum().backward()
    assert node.kept is None
    y = compiled(x_of(1000))
    held = weakref.ref(y._storage)
    del y, node
    gc.collect()
    assert held() is None


def test_state_beside_a_graph():
    mean = torch.zeros(3)
    w = torch.ones(3, requires_grad=True)

    def f(x):
        with torch.no_grad():
            mean.lerp_(x.mean(0), 0.1)
        return F.dropout(x - mean, 0.5) * w
    compiled = torch.compile(f)
    x = x_of(4, 3)
    results = []
    for call in (f, compiled):
        torch.manual_seed(1)
        mean.zero_()
        for _ in range(4):
            w.grad = None
            call(x).sum().backward()
            results.append((w.grad.clone(), mean.clone()))
    assert same(results[:4], results[4:]) and replays(compiled) == 3


def test_a_function_of_the_users_own_and_hooks_inside():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return g * 3 * ctx.saved_tensors[0]
    w = torch.ones(3, requires_grad=True)

    def f(x): return Double.apply(x * w)
    compiled = torch.compile(f)
    for _ in range(4):
        x = x_of(3)
        w.grad = None
        compiled(x).sum().backward()
        assert same(w.grad, 3 * x * w.detach() * x)
    assert replays(compiled) >= 2

    def hooked(x):
        y = x * w
        y.register_hook(lambda g: g * 2)
        return y * 1
    compiled = torch.compile(hooked)
    for _ in range(3):
        w.grad = None
        compiled(x).sum().backward()
        assert same(w.grad, x * 2)
    assert not replays(compiled) and "there is a hook on MulBackward0" in compiled.reasons[-1]


def test_copies_and_attributes_of_a_compiled_object():
    import copy

    class Net:
        def __init__(self):
            self.w = torch.ones(3)
            self.training = True

        def __call__(self, x):
            return x * self.w if self.training else x
    compiled = torch.compile(Net())
    x = x_of(3)
    compiled(x), compiled(x)
    compiled.training = False
    assert same(compiled(x), x)
    twin = copy.deepcopy(compiled)
    twin.training = True
    twin.w.zero_()
    assert same(twin(x), x * 0) and same(twin(x), x * 0) and replays(twin) == 1
    assert same(compiled(x), x) and compiled.w.tolist() == [1, 1, 1]


def test_memory_that_numpy_holds_is_not_kept():
    def f(x, w): return x * w, x.detach()
    compiled = torch.compile(f)
    w = torch.ones(3, requires_grad=True)
    for _ in range(3):
        compiled(x_of(3), w)
    array = np.ones(3, np.float32)
    y, _ = compiled(torch.from_numpy(array), w)
    array[:] = 5
    with pytest.raises(RuntimeError, match="shares its memory with a NumPy array"):
        y.sum().backward()


@pytest.mark.parametrize("where", ["returned", "kept", "part of the result", "seen by a new view"])
def test_an_old_gradient_that_is_still_seen_is_not_written_over(where):
    weight, kept = torch.zeros(3, requires_grad=True), {"old": None}
    weight.grad = torch.full((3,), -1.0)

    def swap(x):
        old, weight.grad = weight.grad, None
        (weight * x).sum().backward()
        if where == "kept":
            kept["old"] = old
        return {"returned": old, "kept": None, "part of the result": {"old": [old]},
                "seen by a new view": old[:2]}[where]

    compiled, seen = torch.compile(swap), []
    for i in range(6):
        out = compiled(torch.full((3,), float(i)))
        seen.append(kept["old"] if where == "kept" else out["old"][0] if isinstance(out, dict) else out)
        assert weight.grad.tolist() == [float(i)] * 3
    assert [old[0].item() for old in seen] == [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0]


def test_under_a_profiler():
    import cProfile

    def f(x): return x + 1
    compiled = torch.compile(f)
    profile = cProfile.Profile()
    profile.enable()
    try:
        compiled(torch.ones(2))
    finally:
        profile.disable()
    assert not compiled.recordings
    compiled(torch.ones(2)), compiled(torch.ones(2))
    assert replays(compiled) == 1


# --- random programs ------------------------------------------------------------------------------------------------


def dim(t, a):
    return a % t.dim() if t.dim() else 0


# Each step gets two tensors of the pool and two small numbers; a new tensor that it returns joins the pool.
STEPS = {
    "view": lambda t, u, a, b: t.view(-1),
    "transpose": lambda t, u, a, b: t.transpose(dim(t, a), dim(t, b)),
    "select": lambda t, u, a, b: t.select(dim(t, a), 0),
    "slice": lambda t, u, a, b: t[abs(b) % 2::abs(a) % 2 + 1],
    "expand": lambda t, u, a, b: t.expand(2, *t.shape),
    "clone": lambda t, u, a, b: t.clone(),
    "detach": lambda t, u, a, b: t.detach(),
    "reshape": lambda t, u, a, b: t.reshape(-1),
    "add": lambda t, u, a, b: t + u,
    "mul": lambda t, u, a, b: t * a,
    "sin": lambda t, u, a, b: t.sin(),
    "sum": lambda t, u, a, b: t.sum(dim(t, a)),
    "sort": lambda t, u, a, b: t.sort(dim(t, a))[0],
    "cat": lambda t, u, a, b: torch.cat([t, t]),
    "index": lambda t, u, a, b: t[torch.tensor([0, 0])],
    "rand": lambda t, u, a, b: torch.rand_like(t),
    "add_": lambda t, u, a, b: t.add_(u, alpha=a) is None,
    "mul_": lambda t, u, a, b: t.mul_(u) is None,
    "copy_": lambda t, u, a, b: t.copy_(u) is None,
    "fill_": lambda t, u, a, b: t.fill_(a) is None,
    "zero_": lambda t, u, a, b: t.zero_() is None,
    "uniform_": lambda t, u, a, b: t.uniform_() is None,
    "clamp_": lambda t, u, a, b: t.clamp_(-1, a) is None,
    "set_item": lambda t, u, a, b: t.__setitem__(0, u),
    "set_slice": lambda t, u, a, b: t.__setitem__(slice(None, None, 2), a),
    "shift": lambda t, u, a, b: t.__setitem__(slice(1, None), t[:-1]),
    "out": lambda t, u, a, b: torch.add(t, t, out=u) is None if t.shape == u.shape else None,
}


class World:
    """Tensors, some of which share memory, numbers, and a program that reads and changes them."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        a, b = (torch.tensor(rng.standard_normal((3, 2)).astype(np.float32)) for _ in range(2))
        self.tensors = [a, b, a[1:], b.clone(), a.view(-1)]
        self.slots = {"one": torch.zeros(2), "two": b.t()}
        self.number, self.count = 0.5, 3
        names = list(STEPS)
        self.program = [(names[rng.integers(len(names))], int(rng.integers(9)), int(rng.integers(9)),
                         int(rng.integers(-2, 3)), int(rng.integers(4))) for _ in range(8)]
        self.keeps = [(k, int(rng.integers(9))) for k in self.slots if rng.integers(2)]
        self.gives = [int(rng.integers(9)) for _ in range(3)]
        self.counts = bool(rng.integers(2))

    def step(self, x):
        pool = [*self.tensors, *self.slots.values(), x]
        for name, i, j, a, b in self.program:
            t, u = pool[i % len(pool)], pool[j % len(pool)]
            try:
                made = STEPS[name](t, u, self.number if a == 1 else self.count if a == 2 else a, b)
            except (RuntimeError, IndexError, TypeError):
                continue
            if isinstance(made, torch.Tensor):
                pool.append(made)
        for key, i in self.keeps:
            self.slots[key] = pool[(i + 6) % len(pool)]
        if self.counts:
            self.number *= 0.5
            self.count += 1
        return [pool[i % len(pool)] for i in self.gives], self.number


def memory(world, x, outs):
    """Which tensors share memory, and how they look at it."""
    tensors = [*world.tensors, *world.slots.values(), x, *outs]
    cells = [t._storage for t in tensors]
    return [(cells.index(t._storage), t._offset, t._spec, t._version) for t in tensors]


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed):
    a, b = World(seed), World(seed)
    compiled = torch.compile(b.step)
    held = []
    for i in range(6):
        x = x_of(2, 3) if i < 4 else x_of(4)
        y = x.clone()
        state = torch.get_rng_state()
        left = a.step(x)
        after = torch.get_rng_state()
        torch.set_rng_state(state)
        right = compiled(y)
        assert same(after, torch.get_rng_state())
        assert same(left, right), (i, b.program)
        assert same(a.tensors, b.tensors) and same(a.slots, b.slots) and same(x, y), (i, b.program)
        assert memory(a, x, left[0]) == memory(b, y, right[0]), (i, b.program)
        assert (a.number, a.count) == (b.number, b.count)
        held.append((right[0][0], b.slots["one"], left[0][0], a.slots["one"]))
        assert all(same(p, r) and same(q, s) for p, q, r, s in held)     # what was given out before, too
        if i % 2:
            for world in (a, b):
                world.tensors[1].add_(1)
                world.number += 0.25


def test_a_compiled_module_is_a_module():
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    compiled = torch.compile(net)
    assert isinstance(compiled, torch.nn.Module) and compiled._orig_mod is net
    assert [name for name, _ in compiled.named_parameters()][0] == "_orig_mod.0.weight"
    assert all(a is b for a, b in zip(compiled.parameters(), net.parameters(), strict=True))
    x = torch.randn(4, 3)
    for _ in range(4):
        assert torch.allclose(compiled(x), net(x))
    assert compiled.recordings[0].hits == 3
    compiled.eval()
    assert not net.training and not compiled.training
    compiled.note = 3
    assert net.note == 3
    seen = []
    compiled.register_forward_hook(lambda module, args, out: seen.append(module))
    compiled(x)
    assert seen == [compiled]
    state = compiled.state_dict().items()
    net.load_state_dict({name.removeprefix("_orig_mod."): torch.zeros_like(t) for name, t in state})
    assert compiled(x).tolist() == [[0.0]] * 4


def test_a_whole_step_with_an_optimizer_is_replayed():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.1), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)

    @torch.compile
    def step(x):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        return loss

    x = torch.randn(32, 3)
    losses = []
    for _ in range(30):
        losses.append(step(x).item())
        schedule.step()
    assert losses[-1] < losses[0] / 2
    assert sum(r.hits for r in step.recordings) >= 25, step.reasons


def test_functions_of_one_code_are_told_apart():
    """A function found only when it runs is looked into; another with the same code, and another closure, is not."""
    class Trap:
        @property
        def scale(self):
            raise AssertionError("looked into")

    def make(scale, thing):
        class Layer:
            def forward(self, x):
                return x * scale * (thing.scale if thing is not None else 1)
        return Layer()
    layer, other = make(2.0, None), make(3.0, Trap())
    compiled = torch.compile(lambda x: getattr(layer, "for" + "ward")(x))
    for _ in range(4):
        assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
    assert replays(compiled) >= 1, compiled.explain()
    assert other is not None


def test_the_collector_does_not_disturb():
    """What runs when garbage is collected is not part of the call that is recorded."""
    class Cycle:
        def __init__(self): self.me = self
        def __del__(self): time.sleep(0)

    def count(phase, info): time.perf_counter()
    w = torch.ones(3)
    before = gc.get_threshold()
    gc.callbacks.append(count)
    gc.set_threshold(5, 1, 1)
    try:
        compiled = torch.compile(lambda x: [(x * i + w).sum() for i in range(20)])
        for _ in range(3):
            garbage = [Cycle() for _ in range(10)]
            del garbage
            compiled(torch.ones(3))
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(count)
    assert replays(compiled) == 2 and gc.isenabled(), compiled.reasons


def test_steps_of_usual_models_are_replayed():
    """What a training script does: modules in modules, norms of gradients clipped, running statistics, dropout."""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)])
            self.head, self.drop = torch.nn.LSTM(16, 5, batch_first=True), torch.nn.Dropout(0.2)

        def forward(self, x):
            for layer in self.layers:
                x = F.relu(layer(x), inplace=True)
            return self.head(self.drop(x.flatten(2)))[0].mean(1)

    def make():
        torch.manual_seed(1)
        net = Net()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
            return loss, norm
        return net, step
    (net, step), (twin, other) = make(), make()
    compiled = torch.compile(other)
    for i in range(8):
        x, y = torch.randn(6, 3, 6, 6), torch.randint(0, 5, (6,))
        torch.manual_seed(i)
        a = step(x, y)
        torch.manual_seed(i)
        assert near(a, compiled(x, y))
    assert replays(compiled) >= 5, compiled.explain()
    assert near(list(net.state_dict().values()), list(twin.state_dict().values()))


def test_functions_made_inside_live_on():
    """What a recorded call has made and given out works for ever after, on whatever thread, and notes nothing."""
    class Thing:
        count = 0

        def __enter__(self): return self
        def __exit__(self, *error): return False
        def __len__(self): return 2

    box, thing = {"n": 1.5, "list": [1, 2, 3]}, Thing()

    def make(x, k):
        y = x * k

        def later(a, *rest, scale=2.0, **more):
            nonlocal y
            (b, *c), d = (a, *rest), box["list"][0]
            thing.count += 1
            box["n"] += scale
            with thing as t:
                found = [i * 2 for i in range(len(t)) if i or not c] + [*box["list"]][1:]
            for i, (p, q) in enumerate(zip(box["list"], found)):
                d += i * p - q
            box["new"], more["z"] = d, -d
            del box["new"]
            text = f"{d:>4} {b!r}"
            y = y + 1 if a is not None and 0 < d + 9 < 99 or not rest else y
            return [text, {**more}, {1, 2} | {d}, (lambda n, m=3: n + m)(d), y.sum(), math.sqrt(abs(d) + 0.0)]
        return y, later
    compiled = torch.compile(make)
    _, plain = make(torch.ones(2), 2.0)
    _, copied = compiled(torch.ones(2), 2.0)
    for call in range(3):
        state = {**box}, thing.count
        expected = plain(call, 1, 2, w=3)
        box.update(state[0])
        thing.count = state[1]
        assert same([*expected], [*copied(call, 1, 2, w=3)])
    got = []
    thread = threading.Thread(target=lambda: got.append(copied(5)))
    thread.start()
    thread.join()
    assert got and type(box["n"]) is float


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_numbers_beside_sixteen_bits(dtype):
    """A number becomes one of 16 bits before it takes part, in a replay as in a plain call."""
    x = torch.tensor([0.3, -0.3, 0.1, 2.7, 100.1], dtype=dtype)

    def f(x, n):
        return (x - n) % n + x * n
    compiled = torch.compile(f)
    for n in (0.3, 0.1, 1 / 3, 2.7, -7.77, 100.1, 0.7):
        assert compiled(x, n).tolist() == f(x, n).tolist(), n


def test_what_classes_and_dictionaries_hold_is_seen_at_the_next_call():
    """However it was changed: through a base, by a loop of specialised code, or with another dictionary."""
    class Meta(type):
        level = 1.0

        @property
        def height(cls): return cls.level > 2

    class Base:
        kind = "a"

    class Thing(Base):
        def double(self, x, times=2): return x * times

    class Odd(metaclass=Meta):
        pass

    class Even:
        kind = "b"

        def double(self, x): return x * 4

    thing, table = Thing(), {"on": True}
    thing.flag = 0

    def f(x):
        if thing.kind == "a" and hasattr(thing, "flag"):
            x = x + 1
        if thing.flag or table["on"] or "off" in table:
            x = x * 3
        if Odd.height:
            x = x - 5
        return thing.double(x)
    x = torch.ones(2)

    def put_flag(value):
        for n in (value - 1, value) * 20:
            thing.flag = n

    def half(self, x, times=0.5): return x * times

    def by_eight(x): return x * 8
    for change in (lambda: setattr(Base, "kind", "c"), lambda: setattr(Thing, "kind", "a"),
                   lambda: put_flag(3), lambda: table.update(on=False), lambda: put_flag(0),
                   lambda: table.update(off=1), lambda: table.clear() or table.update(on=0),
                   lambda: setattr(Thing, "double", half), lambda: setattr(half, "__defaults__", (3,)),
                   lambda: setattr(Meta, "level", 3.0), lambda: setattr(thing, "double", by_eight),
                   lambda: setattr(thing, "__dict__", {"flag": 1}), lambda: delattr(Thing, "kind"),
                   lambda: setattr(Base, "kind", "a"), lambda: setattr(thing, "__class__", Even)):
        compiled = torch.compile(f)
        agree(f, compiled, (x,), (x,), (x,))
        change()
        assert same(compiled(x), f(x)), compiled.explain()
        agree(f, torch.compile(f), (x,), (x,))


def test_distributions_are_replayed():
    """Their checks of parameters and values are made again at every replay."""
    from flambeau.distributions import Bernoulli, Beta, Categorical, Gamma, Independent, Normal
    makers = {
        "Categorical": lambda x: Categorical(logits=x).log_prob(torch.tensor([0, 1, 1])).sum(),
        "Normal": lambda x: Normal(x.mean(), x.abs().mean() + 0.1).log_prob(x).sum(),
        "Independent": lambda x: Independent(Normal(x, torch.ones_like(x)), 1).log_prob(x * 2).sum(),
        "Bernoulli": lambda x: Bernoulli(logits=x[:, 0]).entropy().sum(),
        "Beta": lambda x: Beta(x.abs() + 1, x.abs() + 2).log_prob(torch.full_like(x, 0.25)).sum(),
        "Gamma": lambda x: Gamma(x.abs() + 1, 2.0).log_prob(x.abs() + 0.5).sum(),
    }
    for name, function in makers.items():
        compiled = torch.compile(function)
        for seed in range(5):
            torch.manual_seed(seed)
            x = torch.randn(3, 4)
            torch.testing.assert_close(compiled(x), function(x))
        assert compiled.recordings, (name, compiled.explain())
    compiled = torch.compile(lambda x: Normal(0.0, x).log_prob(torch.ones(2)))
    for _ in range(4):
        compiled(torch.ones(2))
    assert compiled.recordings
    with pytest.raises(ValueError, match="to satisfy the constraint GreaterThan"):
        compiled(torch.tensor([1.0, -1.0]))


# --- what a training step is asked for before every replay ------------------------------------------------------------


class Trained:
    """A perceptron with Adam, and a step of it, compiled or not."""

    def __init__(self, compile=None):
        nn = torch.nn
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
        self.optimizer = torch.optim.Adam(self.net.parameters(), 0.1)
        self.x, self.y, self.held = torch.randn(8, 6), torch.randint(0, 3, (8,)), []
        self.step = compile(self._step) if compile else self._step

    def _step(self):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.net(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        return loss

    def all(self):
        state = [held for p in self.net.parameters() for held in self.optimizer.state[p].values()]
        return [p.detach().clone() for p in self.net.parameters()], \
            [p.grad.clone() for p in self.net.parameters() if p.grad is not None], \
            [s.detach().clone() if isinstance(s, torch.Tensor) else s for s in state]


def _average(made):
    return made.optimizer.state[made.net[0].weight]["exp_avg"]


EVENTS = {
    "nothing": lambda made: None,
    "a gradient is held": lambda made: made.held.append(made.net[0].weight.grad),
    "a gradient's memory is held": lambda made: made.held.append(made.net[0].weight.grad.numpy()),
    "a parameter's memory is held": lambda made: made.held.append(made.net[2].bias.detach().numpy()),
    "an average is held": lambda made: made.held.append(_average(made).detach()),
    "a gradient is another": lambda made: setattr(made.net[0].bias, "grad", torch.ones(5)),
    "a gradient is none": lambda made: setattr(made.net[0].bias, "grad", None),
    "a gradient lies otherwise": lambda made: setattr(made.net[0].weight, "grad", torch.ones(6, 5).t()),
    "a gradient is part of another": lambda made: setattr(made.net[0].bias, "grad", torch.ones(10)[::2]),
    "a gradient requires grad": lambda made: setattr(made.net[0].bias, "grad", torch.ones(5, requires_grad=True)),
    "a hook": lambda made: made.net[0].weight.register_hook(lambda g: g * 2),
    "a hook that comes after": lambda made: made.net[2].weight.register_post_accumulate_grad_hook(
        lambda p: setattr(p, "grad", p.grad * 0.5)),
    "the state of a parameter is another": lambda made: made.optimizer.state.__setitem__(
        made.net[0].weight, dict(made.optimizer.state[made.net[0].weight], exp_avg=torch.ones(5, 6))),
    "an average is another": lambda made: made.optimizer.state[made.net[0].weight].__setitem__(
        "exp_avg", torch.ones(5, 6)),
    "an average is written to": lambda made: _average(made).mul_(0.5),
    "a rate": lambda made: made.optimizer.param_groups[0].__setitem__("lr", 0.01),
    "a weight is frozen": lambda made: made.net[0].weight.requires_grad_(False),
    "another default dtype": lambda made: torch.set_default_dtype(torch.float64),
    "other labels": lambda made: made.y.copy_((made.y + 1) % 3),
    "other data": lambda made: made.x.mul_(2),
}


@pytest.mark.parametrize("event", sample(EVENTS, 4))
def test_what_happens_between_steps(event):
    """A step that is replayed does what it does, whatever happened before it, bit for bit."""
    compiled, plain = Trained(torch.compile), Trained()
    try:
        for number in range(9):
            if number in (5, 7):
                for made in (compiled, plain):
                    EVENTS[event](made)
            assert same(compiled.step(), plain.step()) and same(compiled.all(), plain.all()), number
            assert number < 4 or sum(recording.hits for recording in compiled.step.recordings) > 1
            for held, other in zip(compiled.held, plain.held, strict=True):
                assert same(torch.as_tensor(held), torch.as_tensor(other)), number
    finally:
        torch.set_default_dtype(torch.float32)


def test_modes_between_steps():
    """Modes are a thread's own, and a replay asks for those of its thread."""
    net, x = torch.nn.Linear(4, 3), torch.randn(5, 4)
    compiled, found = torch.compile(lambda: net(x).sum()), []
    for _ in range(4):
        assert compiled().requires_grad

    def elsewhere():
        with torch.no_grad():
            found.extend(compiled().requires_grad for _ in range(4))
        found.append(compiled().requires_grad)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [False] * 4 + [True] and compiled().requires_grad
    with torch.no_grad():
        assert not compiled().requires_grad
    with torch.inference_mode():
        assert compiled().is_inference()
    with torch.device("meta"):
        assert compiled().device.type == "cpu"
    assert compiled().requires_grad


def test_what_is_asked_of_a_tensors_attributes():
    """Its `__dict__` is made anew at every look, and has none of our own fields in it."""
    w = torch.ones(3)

    @torch.compile
    def scaled(x):
        return x * (w.scale if hasattr(w, "scale") else 1) + ("_storage" in vars(w))
    assert [scaled(torch.ones(3)).tolist() for _ in range(5)] == [[1.0] * 3] * 5
    assert len(scaled.recordings) == 1 and scaled.recordings[0].hits >= 3
    w.scale = 3
    assert [scaled(torch.ones(3)).tolist() for _ in range(5)] == [[3.0] * 3] * 5
    assert scaled.recordings[0].hits >= 3
    del w.scale
    assert scaled(torch.ones(3)).tolist() == [1.0] * 3


def test_a_text_that_runs_again_is_followed_again():
    """As a cell of a notebook, or by %run: its functions have the same file, lines and code as before."""
    text = textwrap.dedent("""
        import flambeau as torch
        state = types.SimpleNamespace(scale=2.0, deep=False)
        def twice(x, again=False):
            def inner(y):
                z = y * 2
                if again:
                    z += 1
                return z
            return inner(x)
        @torch.compile
        def model(x):
            y = twice(x) * state.scale
            for i in range(2):
                if state.deep and i:
                    y = y + 1
            return y.sum(0)
        made = [model(torch.ones(4, 3)).tolist() for _ in range(4)]
    """)
    linecache.cache["a cell"] = len(text), None, text.splitlines(keepends=True), "a cell"
    for _ in range(3):
        names = {"__name__": "__main__", "types": types}
        exec(compile(text, "a cell", "exec"), names)
        assert names["made"] == [[16.0] * 3] * 4
        assert [recording.hits for recording in names["model"].recordings] == [3]
