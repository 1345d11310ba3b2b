"""Threads that come to something for the first time together: Note [First use] in flambeau/base/once.py.

`python -m tests.first_uses` does the same many times.
"""
import contextlib
import io
import sys
import threading

import numpy as np
import pytest

import flambeau as torch
from flambeau.base import once, op as declarations
from flambeau.base.op import Pointwise, known
from flambeau.base.spec import spec
from flambeau.trace.recording import update
from tests import first_uses
from tests.patience import PATIENCE
from tests.thorough import THOROUGH

pytestmark = pytest.mark.pinned


@pytest.mark.parametrize("seed", range(60 if THOROUGH else 10))
def test_first_uses_in_a_fresh_interpreter(seed):
    assert first_uses.fresh(seed) == ""


def together(function, threads=8):
    """What `function` gives to threads that call it at the same time."""
    ready, given = threading.Barrier(threads), []

    def call():
        ready.wait(PATIENCE)
        given.append(function())
    running = [threading.Thread(target=call) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert len(given) == threads
    return given


def test_threads_are_given_one_object():
    inside = threading.Barrier(8)

    @once.cache
    def made(name):
        inside.wait(PATIENCE)                             # all of them are at it
        return [name]
    found = together(lambda: made("x"))
    assert all(one is found[0] for one in found) and made("x") is found[0]
    made.cache_clear()
    assert len({id(one) for one in together(lambda: made("x"))}) == 1 and made("x") is not found[0]


def test_an_operation_that_is_prepared_is_known(monkeypatch):
    """Threads met one that said it was prepared, and was not among the known."""
    class doubled_once(Pointwise):
        """Twice `input`."""
        def ref(xp, input): return input * 2
    facts = declarations.Facts

    def made(op):
        assert not op.prepared and op not in known
        return facts(op)
    monkeypatch.setattr(declarations, "Facts", made)
    doubled_once.prepare()
    first = known[doubled_once]
    assert doubled_once.prepared
    doubled_once.prepare()                                # of a thread that looked before
    assert known[doubled_once] is first
    del known[doubled_once]


def test_an_entry_is_found_whole(monkeypatch):
    class Watched(dict):
        def __setitem__(self, key, entry):
            raise AssertionError("not by setdefault: another thread may have been first")

        def setdefault(self, key, entry):
            assert entry.outs and entry.compiles is not None
            return super().setdefault(key, entry)
    monkeypatch.setattr(update, "update_entries", Watched())
    kinds = tuple(spec(torch.float32, (size,)) for size in (6, 3, 3))
    found = update.infer_update(kinds)
    assert update.infer_update(kinds) is found


# --- one object of the program's, which its threads share ---

SWITCH_SECONDS = 1e-6              # how long a thread runs before Python hands over to another
SHARED = []


@contextlib.contextmanager
def eager_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def shared(function):
    """A function of a folder that gives a thing to share, and what each of eight threads does: (thing, number)."""
    SHARED.append(function)
    return function


@shared
def storage_of_a_file(folder):
    (folder / "bytes").write_bytes(bytes(range(256)) * 16)

    def read(storage, number):
        for at in range(64):
            start = (at * 64 + number % 2 * 8) % 4096
            part = storage[start:min(start + 64, 4096)]
            found = torch.tensor([], dtype=torch.uint8).set_(part)
            assert found.tolist() == (np.arange(start, min(start + 64, 4096)) % 256).tolist()
    return torch.UntypedStorage.from_file(str(folder / "bytes"), shared=False, nbytes=4096), read


@shared
def checkpoint_in_a_file(folder):
    saved = {f"w{i}": torch.full((8, 8), float(i)) for i in range(16)}
    torch.save(saved, folder / "saved.pt")

    def load(file, number):
        for name, tensor in torch.load(file, mmap=number % 2 == 0).items():
            assert tensor.half().sum().item() == 64 * int(name[1:])
    return folder / "saved.pt", load


@shared
def views_of_a_tensor(folder):
    def write(x, number):
        row = x[number]
        for _ in range(20):
            row += 1
            assert (x.t()[:, number] == row).all() and x.view(-1)[number * 32].item() == row[0].item()
        row.zero_()
    return torch.zeros(8, 32), write


@shared
def rows_by_index(folder):
    def write(x, number):
        at = torch.tensor([number, number + 8])
        for step in range(20):
            x[at] = float(step)
            x.index_add_(0, at, torch.ones(2, 4))
            x.index_fill_(0, at, step + 0.5).index_copy_(0, at, torch.full((2, 4), step + 1.0))
            assert x[at].tolist() == [[step + 1.0] * 4] * 2
    return torch.zeros(16, 4), write


@shared
def a_recorded_tensor(folder):
    def look(x, number):
        y = (x * 2 + 1).exp()
        z = y / (1 + y)
        assert abs(z.sum().item() - 1000 * 0.7310585786) < 1e-2 and y.numpy().shape == (1000,)
    return torch.zeros(1000), look


@shared
def parameters(folder):
    def differentiate(net, number):
        x = torch.ones(4, 8)
        given = torch.autograd.grad(net(x).sum(), list(net.parameters()))
        assert given[-1].tolist() == [4.0] * 3 and set(net.state_dict()) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)), differentiate


@shared
def gradients_that_add_up(folder):
    def add(x, number):
        for _ in range(10):
            (x * 2).sum().backward()
    return torch.ones(3, requires_grad=True), add


@shared
def a_compiled_function(folder):
    @torch.compile
    def f(x, k):
        return (x * k).cos() + x.shape[0]

    def call(f, number):
        for size in (2, 3, 5):
            for k in (0, 0.0, number * 0):
                assert f(torch.ones(size), k).tolist() == [1.0 + size] * size
    return f, call


@shared
def a_generator(folder):
    def draw(generator, number):
        for _ in range(20):
            assert 0 <= torch.rand(5, generator=generator).min().item() < 1
            assert sorted(torch.randperm(6, generator=generator).tolist()) == list(range(6))
    return torch.Generator().manual_seed(1), draw


@shared
def a_dataset(folder):
    def go_through(loader, number):
        assert sum(batch[0].sum().item() for batch in loader) == 190
    data = torch.utils.data.TensorDataset(torch.arange(20.0))
    return torch.utils.data.DataLoader(data, batch_size=3, shuffle=True), go_through


@shared
def an_optimizer_and_hooks(folder):
    net = torch.nn.Linear(3, 3)

    def go_on(net, number):
        handle = net.register_forward_hook(lambda module, args, result: result * 1)
        assert net(torch.ones(2, 3)).shape == (2, 3)
        handle.remove()
        held = io.BytesIO()
        torch.save(net.state_dict(), held)
        net.load_state_dict(torch.load(io.BytesIO(held.getvalue())))
    return net, go_on


@pytest.mark.parametrize("made", SHARED, ids=lambda made: made.__name__)
def test_an_object_shared_by_threads(made, tmp_path):
    thing, use = made(tmp_path)
    numbers, errors, rounds = iter(range(8)), [], 10 if THOROUGH else 3

    def go():
        number = next(numbers)
        try:
            for _ in range(rounds):
                use(thing, number)
        except Exception as error:
            errors.append(error)
    with eager_switches():
        together(go)
    if errors:
        raise errors[0]
    if made is gradients_that_add_up:
        assert thing.grad.tolist() == [2.0 * 8 * rounds * 10] * 3
