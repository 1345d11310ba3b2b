"""Arguments that begin elsewhere in their memory at every call: Note [Moving arguments] in compiler/moving.py.

The oracle is the same function without `compile`, over the same numbers in memory of its own.
"""
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flambeau as torch

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
