"""Random containers, in every place where a compiled function can find one: see containers.py.

`FLAMBEAU_TEST_EXAMPLES=5000` tries more than the suite does; `python -m tests.compiler.containers` does as well, and
says how much was replayed.
"""
import collections
import copy
import os
import uuid

import pytest

import flambeau as torch

from ..thorough import THOROUGH
from .compare import Different
from .container_kinds import Pair, Point, Record, Shaped
from .containers import Draw, check, run

pytestmark = pytest.mark.pinned

EXAMPLES = int(os.environ.get("FLAMBEAU_TEST_EXAMPLES", 800 if THOROUGH else 60))
TOGETHER = 40


@pytest.mark.parametrize("first", range(0, EXAMPLES, TOGETHER))
@pytest.mark.filterwarnings("ignore:.*is compiled, but runs as ordinary code")
def test_compiled_as_plain(first):
    calls = replays = 0
    for seed in range(first, min(first + TOGETHER, EXAMPLES)):
        program = Draw(seed).program()
        try:
            made, again, _ = check(program)
        except Different as error:
            pytest.fail(f"seed {seed}: {error}\n{program}", pytrace=False)
        except (SyntaxError, TypeError, ValueError, AttributeError):      # its setup raises: it is no program
            continue
        calls, replays = calls + made, replays + again
    assert replays > 0.08 * calls                            # otherwise this would say little


class Forgetful:
    """A bad compile: it gives what the first call gave."""

    recordings = reasons = ()

    def __init__(self, function):
        self.function, self.first = function, []

    def __call__(self, *args, **kwargs):
        self.first = self.first or [self.function(*args, **kwargs)]
        return self.first[0]


def test_a_stale_result_is_noticed():
    noticed = 0
    for seed in range(40):
        try:
            run(Draw(seed).program(), Forgetful)
        except Different:
            noticed += 1
        except (SyntaxError, TypeError, ValueError, AttributeError):
            continue
    assert noticed > 20


def x_of(): return torch.arange(24.)


SHAPE_USES = {
    "reshape": lambda x, s: x.reshape(s), "view": lambda x, s: x.view(s),
    "zeros": lambda x, s: torch.zeros(s) + x.sum(),
    "full": lambda x, s: torch.full(s, 2.0) * x[0], "by name": lambda x, s: x.reshape(shape=s),
    "helper": lambda x, s: in_a_helper(x, s), "pad": lambda x, s: torch.nn.functional.pad(x, s),
    "permute": lambda x, s: x.reshape(2, 3, 4).expand(2, 3, 4).sum(s[0] % 3 if len(s) == 1 else (0, 1)),
    "equal": lambda x, s: x * (2 if s == (2, 12) else 3), "key": lambda x, s: x * {(2, 12): 5, (3, 8): 6}.get(s, 7),
    "tensor": lambda x, s: torch.tensor(s) + x[0], "hash": lambda x, s: x * (hash(s) % 7),
}


def in_a_helper(x, s): return x.reshape(s)


@pytest.mark.parametrize("use", SHAPE_USES)
@pytest.mark.parametrize("wrap", [lambda s: s, torch.Size, lambda s: Pair(*s)], ids=["tuple", "Size", "namedtuple"])
def test_a_tuple_that_is_used_whole(use, wrap):
    f = SHAPE_USES[use]
    compiled = torch.compile(f)
    for shape in [(2, 12), (2, 12), (3, 8), (4, 6), (3, 8), (2, 12)]:
        try:
            expected = f(x_of(), wrap(shape))
        except Exception as error:
            with pytest.raises(type(error)):
                compiled(x_of(), wrap(shape))
            continue
        made = compiled(x_of(), wrap(shape))
        assert made.shape == expected.shape and torch.equal(made, expected)


@pytest.mark.parametrize("cls", [Pair, Point, Record, Shaped])
def test_fields_of_an_argument(cls):
    if cls is Shaped:
        def f(x, p): return x * p.a + p[1]
    else:
        def f(x, p): return x * p.a * p.b
    compiled = torch.compile(f)
    for k in range(6):
        p = cls(2.0 + k // 3, 1.0 + k)
        assert torch.equal(compiled(x_of(), p), f(x_of(), p))
    assert sum(r.hits for r in compiled.recordings) >= 2


def test_defaults_by_name_that_change_where_they_stand():
    def helper(x, *, k=1.0, s=(2, 12)): return (x * k).reshape(s)

    def f(x): return helper(x)
    compiled = torch.compile(f)
    for k, s in [(1.0, (2, 12)), (1.0, (2, 12)), (3.0, (2, 12)), (3.0, (4, 6)), (5.0, (4, 6))]:
        helper.__kwdefaults__.update(k=k, s=s)
        made = compiled(x_of())
        assert made.shape == s and made[0, 1] == k


def test_what_python_can_do_a_copy_can():
    def f(x):
        return x * 2, list(reversed([1, 2])), list(reversed((1, 2))), list(reversed(collections.deque([1, 2]))), \
            uuid.UUID(int=5).int
    compiled = torch.compile(f)
    for _ in range(3):
        assert compiled(x_of())[1:] == ([2, 1], [2, 1], [2, 1], 5)


def test_tuples_of_tensors_are_told_apart_without_comparing_them():
    pair = (torch.ones(3), 1.5)

    def f(x, p, q): return x * 2, copy.deepcopy(p), p is q, p is pair
    compiled = torch.compile(f)
    for q in (pair, (torch.ones(3), 1.5), pair, pair):
        out = compiled(x_of(), pair, q)
        assert torch.equal(out[1][0], pair[0]) and out[1][0] is not pair[0] and out[2:] == (q is pair, True)


def test_results_that_hold_the_same_thing_twice():
    def f(x):
        shared = [x * 2]
        pair = (shared, 1)
        return shared, {"a": shared}, pair, [pair, pair]
    compiled = torch.compile(f)
    for _ in range(3):
        shared, named, pair, pairs = compiled(x_of())
        assert named["a"] is shared and pair[0] is shared and pairs[0] is pairs[1] is pair
    assert compiled.recordings[0].hits == 2

    def cyclic(x):
        out = [x * 2]
        out.append(out)
        return out
    compiled = torch.compile(cyclic)
    out = compiled(x_of())
    assert out[1] is out and "holds itself" in compiled.reasons[0]


def test_what_a_dictionary_is_updated_with_by_name_stays_what_it_is():
    def f(x):
        inner, pairs = {"k": 1}, [(1, 2)]
        out = {}
        out.update(pairs, inner=inner, pairs=pairs)
        return x * 2, out, inner, pairs
    compiled = torch.compile(f)
    for _ in range(3):
        _, out, inner, pairs = compiled(x_of())
        assert out["inner"] is inner and out["pairs"] is pairs and out[1] == 2


def test_asking_a_defaultdict_puts_nothing_into_it():
    state = collections.defaultdict(int, a=2)

    def f(x): return x * state["a"], list(state.items())
    compiled = torch.compile(f)
    compiled(x_of()), compiled(x_of())
    state.clear()
    for other in (compiled, f):
        state.clear()
        assert other(x_of())[1] == [("a", 0)]


# --- the backward of the program's own -------------------------------------------------------------------------------

log, weight, state = [], torch.ones(4), {"k": 1.0}


class OfState(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * state["k"]


class Logging(OfState):
    @staticmethod
    def backward(ctx, g):
        log.append(1)
        return g


class ReadsTensor(OfState):
    @staticmethod
    def backward(ctx, g):
        return g * weight


class Draws(OfState):
    @staticmethod
    def backward(ctx, g):
        return g * torch.rand(4)


class Looks(OfState):
    @staticmethod
    def backward(ctx, g):
        return g * (3 if g.sum().item() else 2)


class WritesSaved(OfState):
    @staticmethod
    def forward(ctx, x):
        ctx.saved = weight
        return x * 2

    @staticmethod
    def backward(ctx, g):
        ctx.saved.add_(1)
        return g


class Swallows(OfState):
    @staticmethod
    def backward(ctx, g):
        try:
            k = state["k"]
        except BaseException:
            k = 9
        return g * k


class Once(OfState):
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * torch.exp(g) * 3


@pytest.mark.parametrize("function", [OfState, Logging, ReadsTensor, Draws, Looks, WritesSaved, Swallows, Once])
def test_a_backward_of_the_programs_own_runs_when_the_backward_does(function):
    def f(x): return function.apply(x)

    def outcome(call):
        torch.manual_seed(0)
        log.clear(), weight.fill_(1), state.update(k=1.0)
        seen = []
        for _ in range(4):
            x = torch.arange(4.).requires_grad_()
            y = call(x)
            seen.append((len(log), weight.tolist(), torch.rand(1).item()))
            state["k"] += 1
            weight.mul_(2)
            y.sum().backward()
            seen.append((x.grad.tolist(), len(log), weight.tolist(), torch.rand(1).item()))
        return seen
    compiled = torch.compile(f)
    assert outcome(compiled) == outcome(f)
    assert sum(r.hits for r in compiled.recordings) == (3 if function is Once else 0)
    assert function is Once or "backward" in compiled.reasons[-1]


def test_a_function_that_is_exchanged_before_its_backward(monkeypatch):
    class Helped(OfState):
        @staticmethod
        def backward(ctx, g):
            return helped(g)
    compiled = torch.compile(lambda x: Helped.apply(x))
    for _ in range(2):
        x = torch.ones(3, requires_grad=True)
        compiled(x).sum().backward()
        assert x.grad.tolist() == [2, 2, 2]
    out = compiled(x).sum()
    monkeypatch.setitem(globals(), "helped", lambda g: g * 5)
    with pytest.raises(RuntimeError, match="helped is another one now than when the compiled function was recorded"):
        out.backward()


def helped(g): return g * 2
