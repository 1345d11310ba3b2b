"""Programs of another structure at every step run by plans of single calls: Note [Single instructions] in single.py."""
import random

import numpy as np
import pytest

import flambeau as torch
from flambeau.base import settings
from flambeau.trace.planning import plan
from flambeau.trace.recording import record
from flambeau.trace.recording.record import current
from flambeau.trace.running import interpret, single
from flambeau.trace.running.program import Kernels

pytestmark = pytest.mark.pinned

WIDTH = 6


@pytest.fixture(autouse=True)
def automatic(monkeypatch):
    """The rule by which executors are chosen, with nothing seen before."""
    current().run()
    plan.forget()
    monkeypatch.setattr(settings, "executor", "auto")
    monkeypatch.setattr(record, "RUNS_ALONE", True)       # where the core is interpreted, it is not worth it
    monkeypatch.setattr(Kernels, "prepare", lambda self, spare: False)        # nothing is compiled in the background
    yield
    current().run()
    plan.forget()


@pytest.fixture
def interpreted(monkeypatch):
    """The names of the operations that are interpreted, as they come."""
    names = []

    def execute(entry, arrays, params, own=False):
        names.append(entry.op.__name__)
        return interpret.execute(entry, arrays, params, own)
    monkeypatch.setattr(record, "execute", execute)
    return names


def whole(k, rows):
    return torch.from_numpy(np.random.default_rng(k).standard_normal((rows, WIDTH)).astype(np.float32))


def program(seed, chosen, rows=4):
    """Calls in an order of their own over views of a few storages, with operands that are the same, several results,
    numbers, and writes; gives all that was made."""
    pick, pool = random.Random(seed), [whole(k, rows) for k in range(3)]
    ops = (lambda a, b: a + b, lambda a, b: a * a, lambda a, b: a.mul(b) - 0.5 * seed, lambda a, b: torch.tanh(a),
           lambda a, b: a @ b.t() @ b, lambda a, b: torch.cat((a, b))[1:1 + len(a)], lambda a, b: a.sort(0)[0],
           lambda a, b: torch.var_mean(a, 0, keepdim=True)[pick.randrange(2)].expand_as(a),
           lambda a, b: a.clone().relu_(),
           lambda a, b: torch.where(a > b, a, b), lambda a, b: a[:, [2, 0, 1, 5, 4, 3]],
           lambda a, b: a.flip(0).add_(b, alpha=seed), lambda a, b: a.clone().index_fill_(0, torch.tensor(1), seed))
    for _ in range(chosen):
        a, b = pick.choice(pool), pick.choice(pool)
        begin = pick.randrange(2)
        made = pick.choice(ops)(a[begin:begin + 3], b[:3] if pick.random() < 0.3 else b[begin:begin + 3])
        pool.append(torch.cat((made, made[:1])) if pick.random() < 0.7 else torch.stack((*made, made[0])))
    return pool


def numbers(pool):
    return [t.numpy().copy() for t in pool]


def test_programs_that_never_come_again_give_the_bits_of_plans(interpreted):
    for seed in range(60):
        begun = len(interpreted)
        ours = numbers(program(seed, 25))
        late = len(interpreted) - begun
        settings.executor = "native"
        theirs = numbers(program(seed, 25))
        settings.executor = "auto"
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
    assert 0 < late < 20                              # of some seventy instructions nearly all have plans of their own


def test_the_storage_that_a_view_lies_in_does_not_matter(interpreted):
    for rows in range(3, 70):
        begun = len(interpreted)
        x = torch.arange(float(rows * 4)).view(rows, 4)
        y = x[1:3] * 2 + x[rows - 2:]
        torch.tensor(rows).expand(rows).sum()         # of another shape each time, so that no trace comes again
        expected = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
        np.testing.assert_array_equal(y.numpy(), expected[1:3] * 2 + expected[-2:])
    assert not {"mul", "add"} & set(interpreted[begun:])


def test_a_call_is_told_apart_by_which_operands_lie_in_one_storage():
    for seed in range(3 * single.MIN_INTERPRETED):
        a, b = whole(seed, 4), whole(seed + 1, 4)
        x, y = a.numpy().copy(), b.numpy().copy()
        made = [(a + a, x + x), (a + b, x + y), (a[:2] + a[2:], x[:2] + x[2:]), (a[2:] + b[:2], x[2:] + y[:2]),
                (a[:2] + b[:2], x[:2] + y[:2]), (a[1:3] + a[1:3], 2 * x[1:3]), (a[:2] + a[:2], 2 * x[:2])]
        torch.zeros(seed + 1).sum()                   # with it, no trace comes again
        for ours, expected in made:
            np.testing.assert_array_equal(ours.numpy(), expected)


def test_what_is_written_over_is_seen_by_no_reader_of_what_was_there():
    for seed in range(3 * single.MIN_INTERPRETED):
        a = whole(seed, 4)
        before, y = a.numpy().copy(), a * 1
        a.index_fill_(0, torch.tensor([0]), 5.0)
        a[1:2].mul_(seed)
        torch.zeros(seed + 1).sum()
        expected = before.copy()
        expected[0], expected[1] = 5, before[1] * np.float32(seed)
        np.testing.assert_array_equal(a.numpy(), expected)
        np.testing.assert_array_equal(y.numpy(), before)


def test_a_call_without_room_is_left_to_the_interpreter(monkeypatch):
    class Bound:
        def run(self, *arguments):
            raise MemoryError("none")

    class Plan:
        bound = Bound()

    def looked_at(seed):
        made = torch.tanh(whole(seed, 4))
        runs = record.instruction_of(made._storage.value).entry.singles or {}
        torch.zeros(seed + 1).sum()
        return made, [run for some in runs.values() for run in some]

    for seed in range(3 * single.MIN_INTERPRETED):
        expected = looked_at(seed)[0].numpy().copy()
    made, runs = looked_at(seed)
    assert any(run.plan for run in runs)
    for run in runs:
        monkeypatch.setattr(run, "plan", Plan())
    np.testing.assert_array_equal(made.numpy(), expected)


# --- families: calls element by element, of any size ------------------------------------------------------------------

CALLS = {
    "mul": lambda a, b, row: a * b, "add row": lambda a, b, row: a + row, "tanh": lambda a, b, row: torch.tanh(a),
    "number": lambda a, b, row: a * 3 - 0.25, "whole number": lambda a, b, row: a + 7,
    "where": lambda a, b, row: torch.where(a > row, a, b), "twice": lambda a, b, row: a * a,
    "gelu": lambda a, b, row: torch.nn.functional.gelu(a), "half": lambda a, b, row: a.half() * 2,
    "halves": lambda a, b, row: a.to(torch.bfloat16) + b.to(torch.bfloat16), "double": lambda a, b, row: a.double() * b,
    "int": lambda a, b, row: a.int() // 2, "bool": lambda a, b, row: (a > 0) & (b > row),
    "column": lambda a, b, row: a * b[:, :1], "turned": lambda a, b, row: a.t() + b.t(),
    "one turned": lambda a, b, row: a.t() * b.t().contiguous(), "view": lambda a, b, row: a[1:] * b[:-1],
    "every other": lambda a, b, row: a[::2] - row, "expanded": lambda a, b, row: row.expand(len(a), -1) * a,
    "three": lambda a, b, row: torch.addcmul(a, b, b, value=0.5), "lerp": lambda a, b, row: a.lerp(b, 0.3),
    "clamp": lambda a, b, row: a.clamp(-0.5, 0.75), "power": lambda a, b, row: a.abs() ** 1.5,
    "four": lambda a, b, row: a.view(-1, 1, 3, WIDTH // 3) + row.view(3, -1),
    "middle": lambda a, b, row: a.view(-1, 2, WIDTH // 2) * b.view(-1, 2, WIDTH // 2)[:, :1],
}
NO_FAMILY = ("turned", "one turned")      # their rows lie further from each other every time


@pytest.mark.parametrize("name", CALLS)
def test_a_family_gives_the_bits_of_plans_at_every_size(name, interpreted):
    call, found = CALLS[name], {}
    for executor in ("auto", "native"):
        settings.executor = executor
        for rows in (2, 3, 5, 4, 7, 8, 1, 6, 33, 100, 1009, 64, 2018, 16, 17):
            a, b, row = whole(rows, rows), whole(rows + 1, rows), whole(9, 1)[0]
            for t in (a, b, row):
                t.numpy()
            begun = len(interpreted)
            made = call(a, b, row)
            torch.zeros(rows + 1).sum()                   # no trace comes again
            if executor == "native" or made.numel() == 0:
                np.testing.assert_array_equal(made.float().numpy(), found.get(rows, made.float().numpy()))
                continue
            found[rows] = made.float().numpy().copy()
            if rows >= 33 and name not in NO_FAMILY:
                assert set(interpreted[begun:]) <= {"_full", "_sum", "_to_copy", "clone"}


def test_a_family_is_of_calls_that_agree_in_their_numbers_classes_and_words():
    for rows in range(2, 40):
        a = whole(rows, rows)
        x = a.numpy().copy().astype(np.float64)
        made = [(a * 2, x * 2), (a * 2.5, x * 2.5), (a * rows, x * rows), (a.int() * 2, x.astype(int) * 2),
                (a.int() * 2.5, x.astype(int) * 2.5), (torch.nn.functional.gelu(a, approximate="tanh"),
                x / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))),
                (a.add(a, alpha=rows), x * (1 + rows)), (a.sub(a, alpha=0.5), x / 2)]
        torch.zeros(rows + 1).sum()
        for ours, expected in made:
            np.testing.assert_allclose(ours.numpy(), expected, rtol=2e-6, atol=1e-6)
