"""What a function takes from an iterator before it does anything else: Note [Taken first] in compiler/taking.py.

The oracle is the same function without `compile`, over an iterator of its own that gives the same.
"""
import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flambeau as torch

pytestmark = pytest.mark.filterwarnings("ignore:.*is compiled, but")


def shuffled(seed, rows=20, size=4, log=None):
    """Endless shuffled batches, as programs write them: of an epoch the last one is smaller."""
    x, order = torch.arange(rows * 3.0).reshape(rows, 3), np.random.default_rng(seed)
    while True:
        chosen = torch.from_numpy(order.permutation(rows))
        for start in range(0, rows, size):
            if log is not None:
                log.append(start)
            yield x[chosen[start:start + size]], chosen[start:start + size] % 2


def steps(make, items):
    """(a compiled step, the same without): `make` is given an iterator of its own from `items()`."""
    return torch.compile(make(items())), make(items())


def trainer(data):
    torch.manual_seed(1)
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)

    def step():
        x, y = next(data)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss
    return step


@pytest.mark.parametrize("size", [4, 6, 20])
def test_training(size):
    compiled, plain = steps(trainer, lambda: shuffled(3, size=size))
    for _ in range(30):
        assert compiled().item() == plain().item()
    # the first rounds of all, the common size and the last batch of an epoch
    assert sum(r.hits for r in compiled.recordings) >= 24


def test_it_ends_where_the_ordinary_one_ends():
    def make(data):
        def step():
            return next(data) * 2
        return step
    compiled, plain = steps(make, lambda: (torch.full((2,), float(i)) for i in range(7)))
    found = [[], []]
    for results, step in zip(found, (compiled, plain), strict=True):
        for _ in range(7):
            results.append(step().tolist())
        for _ in range(2):
            with pytest.raises(StopIteration):
                step()
    assert found[0] == found[1] and compiled.recordings[0].hits >= 5


def test_an_end_that_the_function_meets():
    """It begins again: nothing of that is lost or taken twice."""
    def make(data):
        at = {"data": iter(data)}

        def step():
            try:
                x = next(at["data"])
            except StopIteration:
                at["data"] = iter(data)
                x = next(at["data"])
            return x + 1
        return step
    compiled, plain = steps(make, lambda: [torch.full((2,), float(i)) for i in range(3)])
    for _ in range(20):
        assert compiled().tolist() == plain().tolist()


def test_an_error_of_the_iterator():
    def items():
        yield torch.ones(2)
        yield torch.ones(2) * 2
        yield torch.ones(2) * 3
        raise KeyError("no more data")

    def make(data):
        return lambda: next(data) * 2
    compiled, plain = steps(make, items)
    for _ in range(3):
        assert compiled().tolist() == plain().tolist()
    for step in (compiled, plain):
        with pytest.raises(KeyError, match="no more data"):
            step()


def test_each_item_is_taken_once():
    """Whichever recording fits, and where none does, nothing is taken twice and nothing is left out."""
    shapes = [(2,), (3,), (2, 2), (2,), (4,), (1, 5), (3,), (2,), (6,), (7,), (8,), (2,), (9,), (3,), (2,)]

    def make(data):
        return lambda: next(data).sum()
    compiled, plain = steps(make, lambda: (torch.full(shape, 1.0 + i) for i, shape in enumerate(shapes * 6)))
    for _ in range(len(shapes) * 6):
        assert compiled().item() == plain().item()


def test_always_another_shape_is_left_alone():
    data = (torch.ones(3 + i) for i in range(200))

    @torch.compile
    def step():
        x = next(data)
        for _ in range(100):
            x = x + 1
        return x.sum()
    for i in range(200):
        assert step().item() == 101 * (3 + i)
    assert step.gave_up is not None


def test_what_the_iterator_changes():
    """The function reads what the iterator has just changed."""
    def make(log):
        state = {"epoch": 0, "rate": 1.0}

        def items():
            for i in itertools.count():
                state["rate"] = 1.0 + i
                state["epoch"] = i // 5
                yield torch.full((2,), float(i))
        data = items()

        def step():
            x = next(data)
            return x * state["rate"] + (state["epoch"] if state["epoch"] > 1 else 0)
        return step
    compiled, plain = steps(make, list)
    for _ in range(30):
        assert compiled().tolist() == plain().tolist()


def test_what_is_asked_before():
    """Only where the function would take something, something is taken."""
    def make(data):
        state = {"takes": True, "limit": 3.0}

        def step():
            x = next(data) if state["takes"] and state["limit"] > 1 else torch.zeros(2)
            return x + state["limit"]
        return step, state
    made = [make(torch.full((2,), float(i)) for i in itertools.count()) for _ in range(2)]
    steps_ = [torch.compile(made[0][0]), made[1][0]]
    for turn in range(40):
        for _, state in made:
            state["takes"], state["limit"] = turn % 5 != 4, 3.0 - turn % 7 * 0.5
        assert steps_[0]().tolist() == steps_[1]().tolist()
    assert sum(r.hits for r in steps_[0].recordings) > 20


def test_after_something_was_done():
    """An iterator may look at what the function has computed, so it is asked first or not replayed."""
    weight = torch.ones(2)

    def items():
        while True:
            yield weight * 2
    data = items()

    @torch.compile
    def step():
        weight.add_(1)
        return next(data) + weight
    for i in range(5):
        assert step().tolist() == [3.0 * (i + 2)] * 2
    assert not step.recordings


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(["tensor", "tensor", "longer", "float", "int", "pair", "dict", "view", "none", "text",
                                 "array", "same"]), min_size=6, max_size=30))
def test_items_of_many_kinds(kinds):
    def items():
        kept = torch.arange(6.0)
        for i, kind in enumerate(kinds):
            x = torch.full((2,), float(i))
            yield {"tensor": x, "longer": torch.ones(3) * i, "float": i / 2, "int": i, "pair": (x, [x + 1, i]),
                   "dict": {"x": x, "scale": 2.0 * i}, "view": kept[i % 3:i % 3 + 2], "none": None, "text": "abc",
                   "array": np.ones(2, np.float32), "same": kept}[kind]

    def make(data):
        def step():
            found = next(data)
            if isinstance(found, tuple):
                return found[0] + found[1][0] * found[1][1]
            if isinstance(found, dict):
                return found["x"] * found["scale"]
            if found is None or isinstance(found, str):
                return torch.zeros(1)
            if isinstance(found, np.ndarray):
                return torch.from_numpy(found) + 1
            return torch.ones(2) * found if isinstance(found, (int, float)) else found.sum() * 2
        return step
    compiled, plain = steps(make, items)
    for _ in kinds:
        assert compiled().tolist() == plain().tolist()


def test_random_numbers_of_both():
    """The iterator draws, from NumPy and from us, and so does the function."""
    def make(_):
        torch.manual_seed(3)
        np.random.seed(3)

        def items():
            while True:
                yield torch.rand(2) + float(np.random.rand())
        data = items()
        return lambda: next(data) + torch.rand(2)
    found = []
    for compiles in (torch.compile, lambda f: f):
        step = compiles(make(None))
        found.append([step().tolist() for _ in range(12)])
    assert found[0] == found[1]


@torch.no_grad()
def test_modes_of_the_iterator():
    """It runs in the modes of the line that asks it."""
    def items():
        while True:
            yield torch.tensor(float(torch.is_grad_enabled()))
    data = items()

    @torch.compile
    def step():
        with torch.enable_grad():
            x = next(data)
        return x * 2
    assert [step().item() for _ in range(4)] == [2.0] * 4
