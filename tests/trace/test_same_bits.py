"""The same expression gives the same bits: the first time, later, and in whatever trace it stands."""
import copy
import importlib
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings as tuned

import flambeau as torch
from flambeau.backends.cpu import machine_code
from flambeau.base import settings
from flambeau.trace.planning import plan
from flambeau.trace.recording.record import current
from flambeau.trace.running import interpret

from ..ops import rows as tables
from ..ops.test_bodies import WITH_BODY, calls, recorded
from ..ops.test_tables import TABLES
from ..thorough import THOROUGH, sample
from .cuts import cut_everywhere
from .programs import leaves, run, steps

pytestmark = pytest.mark.pinned

for _name in TABLES:
    importlib.import_module(f"tests.ops.{_name}")
F = torch.nn.functional


def bits(made):
    """The bits of all tensors in `made`; a NaN is a NaN."""
    out = []
    for one in made if isinstance(made, (list, tuple)) else (made,):
        if isinstance(one, (list, tuple)):
            out += bits(one)
        elif isinstance(one, torch.Tensor):
            one = one.detach()
            given = one.float() if one.dtype is torch.bfloat16 else one
            given = torch.view_as_real(given.resolve_conj()) if given.is_complex() else given
            array = np.array(given.clone().numpy())
            if array.dtype.kind == "f":
                array[np.isnan(array)] = np.nan
            out.append((one.dtype, tuple(one.shape), array.tobytes()))
    return out


def forget():
    """As if nothing had been seen before."""
    current().run()
    plan._plans.clear()
    plan._sightings.clear()


@pytest.fixture(autouse=True)
def automatic(monkeypatch):
    """The rule by which executors are chosen, also where the tests run with one of them pinned."""
    forget()
    monkeypatch.setattr(settings, "executor", "auto")
    yield
    forget()


def in_every_way(work):
    """What `work()` gives: as it comes, three times; cut into segments; by a plan of all of it, and by plans of one
    instruction each."""
    forget()
    found = {"first": bits(work())}
    found["second"], found["third"] = bits(work()), bits(work())
    with cut_everywhere():
        found["in segments"] = bits(work())
    with torch.config.using(executor="native"):
        found["fused"] = bits(work())
        with torch.config.using(trace_instructions=1):
            found["alone"] = bits(work())
    return found


def same(found, what=""):
    first, *others = found
    for name in others:
        for i, (a, b) in enumerate(zip(found[first], found[name], strict=True)):
            assert a == b, f"{what} result {i}: {name} differs from {first}"


@pytest.mark.parametrize("name", sample(WITH_BODY, 4))
def test_bodies_over_arrays_have_the_bits_of_compiled_ones(name):
    """Every elementwise operation, in every dtype, on numbers that are hard."""
    with torch.config.using(executor="native"):
        for args in calls(name):
            made, entry, arrays, params = recorded(WITH_BODY[name], args)
            with np.errstate(all="ignore"):
                mine = interpret.execute(entry, arrays, params)
            for one, array in zip(made if entry.many else (made,), mine, strict=True):
                native = one._storage.value.ready().look(one._spec, one._offset)
                assert equal(array, native), f"{name}{tuple(a.dtype for a in arrays)} {params}"


def equal(a, b):
    a, b = (np.asarray(x, np.float64) if x.dtype.kind not in "biufc" or x.dtype == np.float16 else x for x in (a, b))
    if a.dtype.kind == b.dtype.kind == "c":
        return equal(a.real, b.real) and equal(a.imag, b.imag)
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    return np.array_equal(a, b, equal_nan=True) and bool(np.all((np.signbit(a) == np.signbit(b)) | np.isnan(a)))


@pytest.mark.parametrize("row", sample(tables.ROWS, 5), ids=lambda row: row.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=lambda d: str(d)[6:])
def test_every_row_of_every_table(row, dtype):
    state = torch.get_rng_state()

    def work():
        torch.set_rng_state(state)
        return tables.results(row.ours(*row.tensors(dtype=dtype)))

    same(in_every_way(work), row.name)


@pytest.mark.parametrize("row", sample([row for row in tables.ROWS if row.grad], 5), ids=lambda row: row.name)
def test_every_derivative(row):
    state = torch.get_rng_state()

    def work():
        torch.set_rng_state(state)
        given = row.tensors(leaf=True, dtype=torch.float32)
        made = [r for r in tables.results(row.ours(*given)) if isinstance(r, torch.Tensor) and r.requires_grad]
        wanted = [t for t in given if isinstance(t, torch.Tensor) and t.requires_grad]
        total = sum((m.abs() if m.is_complex() else m).float().sum() for m in made)
        return [g for g in torch.autograd.grad(total, wanted, allow_unused=True) if g is not None]

    same(in_every_way(work), row.name)


SHAPES = [(5,), (7, 9), (37, 53), (3, 1000), (1000, 3), (100, 70), (64, 64), (2, 3, 50, 7), (8, 16, 14, 14), (150_000,),
          (300, 512)]
OPERANDS = {"as it is": lambda x, b: x.clone(), "with a row": lambda x, b: x * b, "costly": lambda x, b: x.exp(),
            "by way of doubles": lambda x, b: (x.double() * b).float(), "turned": lambda x, b: x.transpose(0, -1) * 2,
            "in half": lambda x, b: x.bfloat16() * 3}


@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("shape", sample(SHAPES, 3), ids=str)
def test_a_reduction_keeps_its_order_in_every_trace(shape, operand):
    """Alone, in the kernel that makes its operand, and beside another reduction and what walks everything again."""
    torch.manual_seed(3)
    x, b = torch.randn(shape), torch.randn(shape[-1:])
    make = lambda: OPERANDS[operand](x, b)
    all_dims = [c for r in range(1, len(shape) + 1) for c in itertools.combinations(range(len(shape)), r)]
    with torch.config.using(executor="native"):
        for name, dims in itertools.product(("sum", "var", "logsumexp"), all_dims):
            reduce = lambda y, name=name, dims=dims: getattr(y, name)(dims)
            y = make()
            torch.cpu.synchronize()
            alone = bits(reduce(y))
            assert bits(reduce(make())) == alone, (name, dims)
            z = make()
            beside, other, again = reduce(z), reduce(z.abs()), z - z.mean()
            assert bits([beside, other, again])[:1] == alone, (name, dims)
    with torch.config.using(executor="auto"):
        forget()
        assert bits(reduce(make())) == alone


@tuned(max_examples=60 if THOROUGH else 20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(leaves, steps)
def test_random_programs(leaf_args, program):
    """Every tensor of a program, and the gradients of its leaves."""
    same(in_every_way(lambda: [one and torch.tensor(one[0][1]) for one in run(torch, leaf_args, program)[1]]), program)


def network(kind):
    torch.manual_seed(1)
    nn = torch.nn
    if kind == "image":
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                             nn.Conv2d(8, 8, 3, groups=2), nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                             nn.Linear(32, 10), nn.Softmax(-1)), (4, 3, 12, 12)
    if kind == "text":
        return nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, activation="gelu", batch_first=True), (3, 7, 16)
    if kind == "sequence":
        return nn.GRU(6, 9, batch_first=True), (3, 11, 6)
    return nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.LayerNorm(20), nn.Linear(20, 3), nn.LogSoftmax(-1)), (5, 6)


@pytest.mark.parametrize("kind", ["image", "text", "sequence", "small"])
def test_a_model_gives_one_answer(kind):
    model, shape = network(kind)
    model.eval()
    x = torch.randn(shape)
    forget()
    with torch.no_grad():
        answers = [bits(model(x)) for _ in range(5)]
    assert all(answer == answers[0] for answer in answers)


@pytest.mark.parametrize("kind", ["image", "text", "sequence", "small"])
def test_training_again_from_the_same_seed(kind):
    """Also on another number of threads."""
    start, shape = network(kind)

    def trained():
        torch.manual_seed(5)
        model = copy.deepcopy(start)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(4):
            optimizer.zero_grad()
            made = model(torch.randn(shape))
            loss = (made[0] if isinstance(made, tuple) else made).square().mean()
            loss.backward()
            optimizer.step()
        return bits([loss, *model.parameters()])

    forget()
    first = trained()
    assert trained() == first
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            forget()
            assert trained() == first
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("kind", ["image", "text", "small"])
def test_a_compiled_model_gives_the_same_answer(kind):
    model, shape = network(kind)
    model.eval()
    x, compiled = torch.randn(shape), torch.compile(model)
    forget()
    with torch.no_grad():
        plain = bits(model(x))
        assert [bits(compiled(x)) == plain for _ in range(3)] == [True] * 3


def test_no_compiler_no_difference(monkeypatch):
    """Without LLVM everything runs on the reference executor, from the first operation that would need it."""
    def missing(*_):
        raise machine_code.NoCompiler("llvmlite is not there")
    monkeypatch.setattr(interpret, "_functions", {})
    monkeypatch.setattr(interpret, "_programs", {})
    monkeypatch.setattr(machine_code.host().store, "launches", {})
    monkeypatch.setattr(machine_code, "functions", missing)
    monkeypatch.setattr(machine_code, "packaged_functions", missing)
    x = torch.tensor([0.5, 1.0])
    with pytest.warns(UserWarning, match="llvmlite is not there. Everything runs on the reference executor"):
        assert x.exp().tolist() == np.exp(np.array([0.5, 1.0], np.float32)).tolist()
    assert settings.executor == "reference"


def test_what_is_handed_out_is_not_kept():
    """A program over arrays holds constants; a result that is one of them may be written to."""
    for make in (lambda: torch.arange(5.0), lambda: torch.arange(6), lambda: torch.zeros(3).new_full((2, 2), 7.0),
                 lambda: torch.ones(3).fill_(2), lambda: torch.eye(3), lambda: torch.linspace(0, 1, 4),
                 lambda: torch.zeros(4, 2), lambda: torch.ones(4).isnan().float(), lambda: torch.tensor([1, 2]).isnan(),
                 lambda: torch.ones(2, 3).tril(), lambda: torch.tensor(3).isnan()):
        forget()
        first = make().numpy().tobytes()
        for _ in range(2):
            forget()
            memory = make().numpy()
            assert memory.tobytes() == first
            memory[...] = 1


def test_convolutions_with_fewer_multiplications():
    """They need working memory, in a plan and by themselves."""
    x, weight = torch.randn(8, 48, 16, 16), torch.randn(48, 48, 3, 3)

    def work():
        a, b = x.clone().requires_grad_(), weight.clone().requires_grad_()
        y = F.conv2d(a, b, padding=1)
        y.square().sum().backward()
        return y, a.grad, b.grad

    with torch.config.using(executor="native"):
        y = F.conv2d(x, weight, padding=1)
        assert str(torch.plans.of(y)).count("convolve") > 1
    same(in_every_way(work))
