"""Training steps with real optimizers and schedulers, compiled: they are replayed, with the same numbers."""
import copy

import numpy as np
import pytest

import flambeau as torch
from flambeau.optim import lr_scheduler as L

from .every import EVERY, ORDINARY

F = torch.nn.functional
STEPS = 14


def trainer(make_optimizer, make_scheduler=None, seed=0):
    """(`step(x, y)`, its parameters, its optimizer)."""
    rng = np.random.default_rng(seed)
    params = [torch.nn.Parameter(torch.tensor(rng.standard_normal(shape), dtype=torch.float32))
              for shape in ((5, 4), (5,), (3, 5), (3,))]
    optimizer = make_optimizer(params)
    scheduler = make_scheduler(optimizer) if make_scheduler is not None else None

    def step(x, y):
        optimizer.zero_grad()
        hidden = torch.tanh(F.linear(x, params[0], params[1]))
        loss = F.cross_entropy(F.linear(hidden, params[2], params[3]), y)
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        return loss
    return step, params, optimizer


def batches(count=STEPS):
    rng = np.random.default_rng(1)
    for _ in range(count):
        yield torch.tensor(rng.standard_normal((6, 4)), dtype=torch.float32), torch.tensor(rng.integers(0, 3, 6))


def held_against(plain, compiled, p, q):
    """Both trained on the same batches end at the same place."""
    for x, y in batches():
        assert plain(x, y).item() == pytest.approx(compiled(x, y).item(), rel=1e-4, abs=1e-6)
    for a, b in zip(p, q):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), 1e-3, 1e-5)


def hits(compiled):
    return sum(recording.hits for recording in compiled.recordings)


OPTIMIZERS = {name: EVERY[name] for name in ORDINARY} | {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1), "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01), "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, momentum=0.5, centered=True),
    "tensor rate": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
    "groups": lambda p: torch.optim.Adam([{"params": p[:1], "lr": 0.1}, {"params": p[1:]}], lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    (plain, p, _), (step, q, optimizer) = trainer(OPTIMIZERS[name]), trainer(OPTIMIZERS[name])
    compiled = torch.compile(step)
    held_against(plain, compiled, p, q)
    expected = STEPS - 4 if name == "RAdam" else STEPS - 3       # it divides from its sixth step on
    assert hits(compiled) >= expected, compiled.explain()
    if "step" in optimizer.state[q[0]]:
        assert [optimizer.state[w]["step"].item() for w in q] == [STEPS] * 4


SCHEDULERS = {
    "LambdaLR": lambda o: L.LambdaLR(o, lambda e: 0.9 ** e), "StepLR": lambda o: L.StepLR(o, 5),
    "MultiStepLR": lambda o: L.MultiStepLR(o, [8]), "LinearLR": lambda o: L.LinearLR(o, total_iters=30),
    "ExponentialLR": lambda o: L.ExponentialLR(o, 0.9), "PolynomialLR": lambda o: L.PolynomialLR(o, 30),
    "CosineAnnealingLR": lambda o: L.CosineAnnealingLR(o, 30), "OneCycleLR": lambda o: L.OneCycleLR(o, 0.1, 60),
    "CosineAnnealingWarmRestarts": lambda o: L.CosineAnnealingWarmRestarts(o, 20),
    "CyclicLR": lambda o: L.CyclicLR(o, 0.01, 0.1, 20), "ConstantLR": L.ConstantLR,
    "SequentialLR": lambda o: L.SequentialLR(o, [L.LinearLR(o, total_iters=30), L.ExponentialLR(o, 0.9)], [30]),
    "ChainedScheduler": lambda o: L.ChainedScheduler([L.ExponentialLR(o, 0.9), L.CosineAnnealingLR(o, 40)]),
    "SWALR": lambda o: torch.optim.swa_utils.SWALR(o, 0.01, 20)}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_inside(name):
    """The rate of every step is the one that the scheduler has set, replayed or not."""
    def make(p): return torch.optim.Adam(p, lr=0.02)
    (plain, p, one), (step, q, two) = trainer(make, SCHEDULERS[name]), trainer(make, SCHEDULERS[name])
    compiled = torch.compile(step)
    held_against(plain, compiled, p, q)
    assert one.param_groups[0]["lr"] == pytest.approx(two.param_groups[0]["lr"], rel=1e-12)
    assert one.param_groups[0]["betas"] == pytest.approx(two.param_groups[0]["betas"], rel=1e-12)
    assert type(two.param_groups[0]["lr"]) is float and type(two.param_groups[0]["betas"][0]) is float
    assert hits(compiled) >= STEPS - 6, compiled.explain()


def test_a_scheduler_outside():
    """Rates and decay rates that change between the calls are read at every replay."""
    def make(p): return torch.optim.Adam(p, lr=0.02)
    (plain, p, one), (step, q, two) = trainer(make), trainer(make)
    compiled = torch.compile(step)
    schedulers = [L.OneCycleLR(o, 0.1, 60) for o in (one, two)]
    for x, y in batches():
        plain(x, y), compiled(x, y)
        for scheduler in schedulers:
            scheduler.step()
    for a, b in zip(p, q):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), 1e-3, 1e-5)
    assert hits(compiled) >= STEPS - 4 and len(compiled.recordings) == 1, compiled.explain()
    assert "optimizer.param_groups[0]['betas'][0]" in compiled.recordings[0].moving


def test_the_step_alone():
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([p], lr=0.1)
    update = torch.compile(optimizer.step)
    for t in range(10):
        p.grad = torch.full((3,), 2.0)
        update()
        assert p[0].item() == pytest.approx(1 - 0.1 * (t + 1), abs=1e-5)        # equal gradients: steps of length lr
    assert hits(update) >= 7 and optimizer.state[p]["step"].item() == 10


def test_a_count_that_somebody_wrote_is_noticed():
    step, params, optimizer = trainer(lambda p: torch.optim.Adam(p, lr=0.01))
    compiled = torch.compile(step)
    (x, y), = batches(1)
    for _ in range(6):
        compiled(x, y)
    optimizer.state[params[0]]["step"].fill_(100.0)
    for _ in range(6):
        compiled(x, y)
    assert [optimizer.state[p]["step"].item() for p in params] == [106, 12, 12, 12]
    before = hits(compiled)
    compiled(x, y)
    assert hits(compiled) == before + 1


def test_a_checkpoint_that_is_loaded_is_noticed():
    def make(p): return torch.optim.Adam(p, lr=0.01)
    (plain, p, one), (step, q, two) = trainer(make), trainer(make)
    compiled = torch.compile(step)
    for number, (x, y) in enumerate(batches()):
        plain(x, y), compiled(x, y)
        if number == 6:
            for optimizer in (one, two):
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
                optimizer.param_groups[0]["lr"] = 0.1
    for a, b in zip(p, q):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), 1e-3, 1e-5)
    assert hits(compiled) >= STEPS - 7


def test_hooks_and_closures():
    seen = torch.zeros(())
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([p], lr=0.1)

    def note(optimizer, args, kwargs):
        seen.add_(1)
    optimizer.register_step_post_hook(note)

    @torch.compile
    def step(x):
        def closure():
            optimizer.zero_grad()
            loss = ((p - x) ** 2).sum()
            loss.backward()
            return loss
        return optimizer.step(closure)
    for _ in range(8):
        step(torch.zeros(2))
    assert hits(step) >= 5 and seen.item() == 8 and p[0].item() == pytest.approx(0.8 ** 8, rel=1e-5)
    handle = optimizer.register_step_post_hook(note)
    step(torch.zeros(2))
    assert seen.item() == 10                              # a hook that was registered later is called
    handle.remove()
    with torch.optim.optimizer.register_optimizer_step_pre_hook(note):
        step(torch.zeros(2))
    assert seen.item() == 12


def test_averages_inside():
    model = torch.nn.Linear(2, 1, bias=False)
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weights = []

    def step(x):
        optimizer.zero_grad()
        (model(x) ** 2).sum().backward()
        optimizer.step()
        average.update_parameters(model)
    compiled = torch.compile(step)
    for _ in range(8):
        compiled(torch.ones(1, 2))
        weights.append(model.weight.detach().numpy().copy())
    np.testing.assert_allclose(average.module.weight.detach().numpy(), np.mean(weights, 0), 1e-5)
    assert hits(compiled) >= 5 and average.n_averaged.item() == 8


def test_a_function_that_asks_for_types():
    """Floats are guarded there, but the count of steps goes on."""
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([p], lr=0.1)

    @torch.compile
    def step():
        if type(p) is torch.nn.Parameter:
            optimizer.zero_grad()
            p.sum().backward()
            optimizer.step()
    for _ in range(8):
        step()
    assert hits(step) >= 5 and optimizer.state[p]["step"].item() == 8
    assert p[0].item() == pytest.approx(0.2, abs=1e-5)
    optimizer.param_groups[0]["lr"] = 0.2
    step()
    assert p[0].item() == pytest.approx(0.0, abs=1e-5)


# --- what compile learned for this -----------------------------------------------------------------------------------


def test_versions_are_read_at_every_replay():
    x = torch.zeros(2)

    @torch.compile
    def f():
        before = x._version
        x.add_(1)
        return before, x._version
    for i in range(5):
        assert f() == (i, i + 1)
    assert hits(f) == 4


def test_dictionaries_whose_keys_are_tensors():
    a, b = torch.ones(2), torch.ones(3)
    table = {a: {"sum": torch.zeros(2)}, b: {"sum": torch.zeros(3)}}

    @torch.compile
    def f(x):
        for key, held in table.items():
            held["sum"].add_(key * x)
    for _ in range(4):
        f(2.0)
    assert hits(f) == 3 and table[a]["sum"].tolist() == [8.0, 8.0]
    table[torch.ones(1)] = {"sum": torch.zeros(1)}
    f(2.0)
    assert table[a]["sum"].tolist() == [10.0, 10.0]


def test_numbers_in_tuples_are_read_at_every_replay():
    class Box:
        pair = (0.5, 2)
    box = Box()
    box.pair = (0.5, 2)

    @torch.compile
    def f(x):
        scale, count = box.pair
        box.pair = (scale * 2, count)
        return x * scale + count, box.pair
    for i in range(4):
        out, pair = f(torch.ones(1))
        assert out.item() == 0.5 * 2 ** i + 2 and pair == (0.5 * 2 ** (i + 1), 2) == box.pair
        assert type(box.pair[0]) is float
    assert hits(f) == 3
    box.pair = (1.0, 3)                                   # a whole number is guarded
    assert f(torch.ones(1))[0].item() == 4.0 and len(f.recordings) == 2
    box.pair = (1.0, 3, 4)
    with pytest.raises(ValueError):
        f(torch.ones(1))


def test_tuples_of_numbers_as_arguments():
    @torch.compile
    def f(x, pair):
        return x * pair[0] + pair[1]
    assert [f(torch.ones(1), (a, 2)).item() for a in (0.5, 1.5, 2.5)] == [2.5, 3.5, 4.5]
    assert hits(f) == 2
    assert f(torch.ones(1), (0.5, 3)).item() == 3.5 and len(f.recordings) == 2
    assert f(torch.ones(1), [0.5, 4]).item() == 4.5


def test_what_is_computed_twice_is_computed_once_at_replay():
    state = {"rate": 0.5}

    @torch.compile
    def f(x):
        return [x * (state["rate"] ** 2) for _ in range(3)]
    f(torch.ones(1)), f(torch.ones(1))
    assert f.recordings[0].source.count("**") == 1
