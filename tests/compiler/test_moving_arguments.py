"""Arguments that begin elsewhere in their memory at every call: Note [Moving arguments] in compiler/moving.py.

The oracle is the same function without `compile`, over the same numbers in memory of its own.
"""
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flambeau as torch

pytestmark = pytest.mark.filterwarnings("ignore:.*is compiled, but")
ROWS, COLUMNS, LENGTH = 60, 6, 5


def table(dtype=np.float32):
    return torch.from_numpy((np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS) * 7 % 31).astype(dtype)).clone()


def both(function):
    """The function, compiled and not."""
    return torch.compile(function), function


def same(found, wanted):
    """Whether two results are alike, also where they begin in their memory."""
    if isinstance(found, tuple):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return found.tolist() == wanted.tolist() and found.storage_offset() == wanted.storage_offset() \
        and found.stride() == wanted.stride()


def test_minibatches_have_two_recordings():
    torch.manual_seed(0)
    nets = [torch.nn.Linear(COLUMNS, 3) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    optimizers = [torch.optim.SGD(net.parameters(), 0.01) for net in nets]
    x, y = table(), torch.arange(ROWS) % 3
    x.sum().item()

    def step_of(net, optimizer):
        def step(a, b):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(a), b)
            loss.backward()
            optimizer.step()
            return loss
        return step
    compiled, plain = torch.compile(step_of(nets[0], optimizers[0])), step_of(nets[1], optimizers[1])
    for _ in range(3):
        for row in range(0, ROWS - LENGTH + 1, LENGTH):
            assert compiled(x[row:row + LENGTH], y[row:row + LENGTH]).item() \
                == plain(x[row:row + LENGTH], y[row:row + LENGTH]).item()
    assert len(compiled.recordings) == 2 and compiled.recordings[0].hits == 3 * (ROWS // LENGTH) - 2
    assert "x begins" not in str(compiled.explain()).split("recording 1")[0]
    with pytest.raises(IndexError):                          # as the ordinary call says it
        y[7] = 9
        compiled(x[5:5 + LENGTH], y[5:5 + LENGTH])


FUNCTIONS = {
    "arithmetic": lambda a, b: a * 2 + b,
    "part": lambda a, b: (a[1:, 1] * b[0, 0], a[-1]),
    "product": lambda a, b: a @ b.t(),
    "views": lambda a, b: (a[1:3], b.t(), a),
    "kept": lambda a, b: (a.detach(), b[2:].view(-1)),
    "copied": lambda a, b: (a.clone(), b.contiguous() + 1),
    "written": lambda a, b: a.add_(b.sum()),
    "written in part": lambda a, b: (a[1:2].mul_(3), a.sum()),
    "written beside": lambda a, b: (a.copy_(b + 1), b * 2),
    "both written": lambda a, b: (a.add_(1), b.sub_(2), a.sum() + b.sum()),
    "shifted": lambda a, b: a[1:].copy_(a[:-1].clone()),
    "through data": lambda a, b: a.data.mul_(2),
    "asks": lambda a, b: a * a.storage_offset(),
    "absolute": lambda a, b: a.as_strided((2, 2), (1, 2), 3) + b.sum(),
    "relative": lambda a, b: a.as_strided((2, 2), (1, 2)) + b.sum(),
    "looked up": lambda a, b: a[(b[:, 0] % 3).long()],
    "other dtype": lambda a, b: a.view(torch.int32) + b.int(),
    "sorted": lambda a, b: (torch.sort(a, 1).values, b.argmax()),
    "cumulative": lambda a, b: torch.cumsum(a, 0) + torch.softmax(b, 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_as_without_compile(name, data):
    compiled, plain = both(FUNCTIONS[name])
    shared = data.draw(st.booleans(), "both arguments look at one memory")
    worlds = []
    for _ in range(2):
        x = table()
        worlds.append((x, x if shared else table()))
    apart = data.draw(st.integers(0, 12), "how far they lie from each other")
    for _ in range(7):
        start = data.draw(st.integers(0, ROWS - LENGTH - 12))
        if not data.draw(st.integers(0, 5)):
            apart = data.draw(st.integers(0, 12))
        results = []
        for function, (x, y) in zip((compiled, plain), worlds, strict=True):
            results.append(function(x[start:start + LENGTH], y[start + apart:start + apart + LENGTH]))
        assert same(*results)
        for one, other in zip(*worlds, strict=True):
            assert one.tolist() == other.tolist()


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2), st.booleans()), min_size=4, max_size=8))
def test_gradients(calls):
    """Results that keep their graph, and arguments that want a gradient."""
    compiled, plain = both(lambda a, w: torch.tanh(a @ w) * a.sum())
    worlds = [(table(np.float64) / 10, torch.arange(12.0, dtype=torch.float64).reshape(6, 2) / 7) for _ in range(2)]
    for start, column, leaf in calls:
        found = []
        for function, (x, w) in zip((compiled, plain), worlds, strict=True):
            weight = w.clone().requires_grad_()
            a = x[start:start + LENGTH].detach()
            a.requires_grad_(leaf)
            out = function(a, weight)
            out[:, column % 2].sum().backward()
            found.append((weight.grad, a.grad if leaf else weight.grad, out.detach()))
        assert same(*found)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=4, max_size=8))
def test_elements_of_other_sizes(starts):
    """Views of one memory as other dtypes begin at multiples of the larger one alone."""
    compiled, plain = both(lambda a, b: a.sum() + b.sum())
    memory = torch.arange(64, dtype=torch.int16)
    for start in starts:
        if start % 2 == 0:
            wide = memory.view(torch.int32)[start // 2:start // 2 + 4]
            narrow = memory[start + 3:start + 9]
            assert compiled(wide, narrow).tolist() == plain(wide, narrow).tolist()
    windows = both(lambda a: a * 2)
    for start in starts:
        assert same(*[function(memory[start:start + 7]) for function in windows])


def test_memories_of_other_lengths_and_the_whole():
    compiled, plain = both(lambda a: a * 3 + 1)
    for rows, start in ((40, 3), (40, 8), (7, 2), (7, 0), (LENGTH, 0), (100, 90), (LENGTH, 0)):
        x = torch.arange(rows * 2.0).reshape(rows, 2)
        assert same(*[f(x[start:start + LENGTH]) for f in (compiled, plain)])
    assert len(compiled.recordings) == 1 and compiled.recordings[0].hits == 6


def test_one_that_is_passed_and_found_elsewhere():
    """What is known by identity stays where it is, and so does what shares memory with it."""
    x = table()

    def function(a):
        return a.sum() + x[2].sum()
    compiled = torch.compile(function)
    for start in (0, 6, 12, 6, 18, 0):
        assert compiled(x[start:start + LENGTH]).item() == function(x[start:start + LENGTH]).item()


def test_a_write_takes_all_of_the_memory():
    compiled, plain = both(lambda a: a.add_(1).sum())
    worlds = [table(), table()]
    held = [world[3:9] for world in worlds]                  # the same memory is seen by others
    for start in (0, 4, 9, 4, 55, 0):
        found = [f(world[start:start + LENGTH]).item() for f, world in zip((compiled, plain), worlds, strict=True)]
        assert found[0] == found[1] and worlds[0].tolist() == worlds[1].tolist()
        assert held[0].tolist() == held[1].tolist()
        assert worlds[0]._version == worlds[1]._version
    assert compiled.recordings[0].hits >= 3


def test_checks_look_where_the_argument_is():
    table_of = torch.arange(12.0).reshape(6, 2)
    compiled, plain = both(lambda i: torch.nn.functional.embedding(i, table_of))
    positions = torch.tensor([0, 1, 2, 3, 4, 5, 9, 1, 2, 3, 4, 0, 5, 5])
    for start in (0, 1, 2, 3, 8, 10, 7):
        assert same(compiled(positions[start:start + 3]), plain(positions[start:start + 3]))
    assert compiled.recordings[0].hits >= 4
    with pytest.raises(IndexError):
        compiled(positions[4:7])
    assert same(compiled(positions[9:12]), plain(positions[9:12]))


@pytest.mark.parametrize("executor", ["native", "reference"])
def test_executors(executor):
    with torch.config.using(executor=executor):
        compiled, plain = both(lambda a, b: (torch.sort(a @ b.t()).values, a.add_(1)[0]))
        worlds = [(table(), table()) for _ in range(2)]
        for start in (0, 5, 9, 30, 5, 0):
            assert same(*[f(x[start:start + LENGTH], y[start + 1:start + 1 + LENGTH])
                          for f, (x, y) in zip((compiled, plain), worlds, strict=True)])
            assert worlds[0][0].tolist() == worlds[1][0].tolist()
        assert compiled.recordings[0].hits >= 4


# --- slices that are cut inside: Note [Moving slices] -----------------------------------------------------------------

X, Y = table(), torch.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS).float() / 5
Z = torch.arange(ROWS) % 3
SLICED = {
    "one": lambda i, j: (X[i:i + LENGTH] * 2).sum(0),
    "two of one": lambda i, j: X[i:i + LENGTH] - X[i + 1:i + 1 + LENGTH],
    "two apart": lambda i, j: X[i:i + 3] - X[j:j + 3],
    "two memories": lambda i, j: X[i:i + LENGTH] @ Y[j:j + LENGTH].t(),
    "and all of it": lambda i, j: X[i:i + LENGTH] / X.sum(),
    "and a fixed part": lambda i, j: X[i:i + 5] + X[10:15] * X[i:i + 5],
    "columns": lambda i, j: X[:, j % 3:j % 3 + 2].sum() + Y[j:j + 2, 1:3].sum(),
    "both ways": lambda i, j: X[i:i + 4, j % 4:j % 4 + 2] * 3,
    "a row of it": lambda i, j: X[i:i + 3][1] + Y[0],
    "given back": lambda i, j: (X[i:i + LENGTH], X[i:i + LENGTH].t() * 2),
    "classes": lambda i, j: torch.nn.functional.cross_entropy(X[i:i + 4, :3], Z[i:i + 4]),
    "looked up": lambda i, j: Y[Z[j:j + 6]] + X[i:i + 6],
    "of other lengths": lambda i, j: X[i:i + j % 3 + 1].sum(),
    "from the end": lambda i, j: X[i - 8:i - 3].sum(),
    "a number": lambda i, j: X[i:i + 2].sum() * i,
    "written": lambda i, j: (Y[i:i + 3].add_(1), X[j:j + 3].clone())[1],
    "written after": lambda i, j: (X[i:i + 3] * 2, X.add_(1))[0] + X[i:i + 3],
    "kept in a list": lambda i, j: [X[k:k + 2].sum() for k in (i, i + 1)][1],
    "and another row": lambda i, j: X[i:i + 3] + X[j],
    "asks": lambda i, j: X[i:i + 3].sum() + X[i:i + 3].storage_offset(),
}


@pytest.mark.parametrize("name", SLICED)
@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, ROWS), st.integers(0, 30)), min_size=5, max_size=10), st.booleans())
def test_slices_as_without_compile(name, places, steadily):
    compiled, plain = both(SLICED[name])
    kept = X.clone(), Y.clone()
    if steadily:
        places = [(i * 3 % ROWS, i * 3 % 30) for i in range(len(places))] + places
    found = []
    for function in (compiled, plain):
        results = []
        for i, j in places:
            try:
                out = function(i, j)
                parts = out if isinstance(out, tuple) else (out,)
                results.append([(t.tolist(), t.storage_offset(), t._storage is X._storage) for t in parts])
            except (RuntimeError, IndexError) as error:      # parts of other lengths
                results.append(type(error))
        found.append((results, X.tolist(), Y.tolist()))
        X.copy_(kept[0])
        Y.copy_(kept[1])
    assert str(found[0]) == str(found[1])                    # nan is like nan


@pytest.mark.parametrize("name, hits", [("one", 5), ("two of one", 5), ("and a fixed part", 5), ("classes", 5),
                                        ("looked up", 5), ("given back", 0), ("written", 0)])
def test_slices_are_replayed(name, hits):
    compiled = torch.compile(SLICED[name])
    for i in range(0, 40, 4):
        compiled(i, i // 2)
    found = sum(r.hits for r in compiled.recordings)
    assert found >= hits if hits else not found


def test_a_row_that_went_along_for_a_while():
    """What was read elsewhere at another number is not taken for a part of the slice."""
    compiled, plain = both(lambda i, j: X[i:i + 3] + X[j])
    for i, j in ((0, 0), (4, 4), (8, 8), (12, 12), (16, 12), (20, 12), (24, 12), (28, 28), (32, 28), (36, 28), (40, 0)):
        assert compiled(i, j).tolist() == plain(i, j).tolist()


def test_a_row_that_the_step_counts():
    def trainer():
        torch.manual_seed(2)
        net, at = torch.nn.Linear(COLUMNS, 3), {"row": 0}
        optimizer = torch.optim.Adam(net.parameters(), 0.01)

        def step():
            if at["row"] + 7 > len(X):
                at["row"] = 0
            x, y = X[at["row"]:at["row"] + 7], Z[at["row"]:at["row"] + 7]
            at["row"] += 7
            loss = torch.nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss
        return step
    compiled, plain = torch.compile(trainer()), trainer()
    assert [compiled().item() for _ in range(40)] == [plain().item() for _ in range(40)]
    assert sum(r.hits for r in compiled.recordings) >= 25


def test_a_slice_that_is_handed_on_is_plain():
    class Keeps:
        def __getitem__(self, key):
            self.key = key
            return key
    keeps, state = Keeps(), {"i": 0}

    @torch.compile
    def function(x):
        state["i"] += 1
        return x + 1, keeps[state["i"]:5]
    for i in range(1, 6):
        key = function(torch.ones(2))[1]
        assert key == slice(i, 5) and type(key.start) is int and type(keeps.key.start) is int


@pytest.mark.parametrize("rows", [(12, 12, 0, 12, 10, 7), (10, 3, 10, 5, 10, 9, 0), (3, 10, 10, 8, 30)])
def test_a_slice_that_lies_just_where_a_fixed_one_does(rows):
    """What was recorded then does not say which of the two an operand is."""
    compiled, plain = both(SLICED["and a fixed part"])
    for i in rows:
        assert compiled(i, 0).tolist() == plain(i, 0).tolist()
