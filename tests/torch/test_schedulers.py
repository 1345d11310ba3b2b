"""Learning rates, epoch by epoch, as PyTorch's schedulers set them; their states, refusals and warnings; SWA."""
import copy
import re
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau

LINES = """
L.LambdaLR(o, lambda e: 0.95 ** e, last_epoch=n)
L.LambdaLR(o, [lambda e: 0.95 ** e, lambda e: 1 / (e + 1)], last_epoch=n)
L.MultiplicativeLR(o, lambda e: 0.95, last_epoch=n)
L.MultiplicativeLR(o, (lambda e: 0.95, lambda e: 1 + 1 / (e + 1)), last_epoch=n)
L.StepLR(o, 3, last_epoch=n)
L.StepLR(o, 7, gamma=0.5, last_epoch=n)
L.MultiStepLR(o, [2, 4, 4, 20], last_epoch=n)
L.MultiStepLR(o, [30, 8], gamma=0.3, last_epoch=n)
L.ConstantLR(o, last_epoch=n)
L.ConstantLR(o, factor=0.5, total_iters=4, last_epoch=n)
L.LinearLR(o, last_epoch=n)
L.LinearLR(o, start_factor=0.9, end_factor=0.1, total_iters=9, last_epoch=n)
L.ExponentialLR(o, gamma=0.9, last_epoch=n)
L.PolynomialLR(o, last_epoch=n)
L.PolynomialLR(o, total_iters=25, power=2.5, last_epoch=n)
L.CosineAnnealingLR(o, T_max=5, last_epoch=n)
L.CosineAnnealingLR(o, T_max=17, eta_min=0.01, last_epoch=n)
L.CosineAnnealingWarmRestarts(o, T_0=4, last_epoch=n)
L.CosineAnnealingWarmRestarts(o, T_0=3, T_mult=2, eta_min=0.001, last_epoch=n)
L.CyclicLR(o, 0.01, 0.2, step_size_up=5, last_epoch=n)
L.CyclicLR(o, [0.01, 0.02], [0.2, 0.3], 4, 7, mode='triangular2', base_momentum=0.7, max_momentum=0.95, last_epoch=n)
L.CyclicLR(o, 0.01, 0.2, step_size_up=5, mode='exp_range', gamma=0.97, last_epoch=n)
L.CyclicLR(o, 0.01, 0.2, step_size_up=5, scale_fn=lambda x: 1 / x, cycle_momentum=False, last_epoch=n)
L.CyclicLR(o, 0.01, 0.2, step_size_up=5, scale_fn=lambda x: 0.9 ** x, scale_mode='iterations', last_epoch=n)
L.OneCycleLR(o, 0.5, total_steps=45, last_epoch=n)
L.OneCycleLR(o, [0.5, 0.6], epochs=5, steps_per_epoch=9, anneal_strategy='linear', pct_start=0.4, last_epoch=n)
L.OneCycleLR(o, 0.5, total_steps=50, three_phase=True, div_factor=10, final_div_factor=100, last_epoch=n)
L.OneCycleLR(o, 0.5, total_steps=45, cycle_momentum=False, last_epoch=n)
S.SWALR(o, 0.05, last_epoch=n)
S.SWALR(o, [0.05, 0.5], anneal_epochs=7, anneal_strategy='linear', last_epoch=n)
S.SWALR(o, 0.05, anneal_epochs=0, last_epoch=n)
L.ChainedScheduler([L.ConstantLR(o, 0.1, 4), L.ExponentialLR(o, 0.9)])
L.ChainedScheduler([L.LinearLR(o), L.StepLR(o, 5), L.CosineAnnealingLR(o, 9)], o)
L.SequentialLR(o, [L.ConstantLR(o, total_iters=2), L.ExponentialLR(o, 0.9)], [3])
L.SequentialLR(o, [L.LinearLR(o, 0.1, total_iters=4), L.CosineAnnealingLR(o, 10), L.StepLR(o, 3)], [4, 20])
L.SequentialLR(o, [L.ConstantLR(o), L.ChainedScheduler([L.LinearLR(o), L.ExponentialLR(o, 0.9)])], [50])
""".strip().split("\n")
RESUMED = [line for line in LINES if line.endswith("last_epoch=n)")]
DEEP = "ChainedScheduler", "SequentialLR"


class Run:
    """A scheduler on an optimizer of two groups, in one library."""

    def __init__(self, lib, line, kind="SGD", number=-1, more=None, rate=float):
        self.lib = lib
        self.params = [lib.nn.Parameter(lib.ones(2)) for _ in range(2)]
        groups = [{"params": [p], "lr": rate(0.1 * (i + 1))} for i, p in enumerate(self.params)]
        self.optimizer = getattr(lib.optim, kind)(groups, **{"lr": 0.1} | ({"momentum": 0.9} if kind == "SGD" else {}))
        for group in self.optimizer.param_groups:
            group.update(more or {})
        self.scheduler = eval(line, {"L": lib.optim.lr_scheduler, "S": lib.optim.swa_utils, "o": self.optimizer,
                                     "n": number, "lib": lib})

    def step(self, *epoch):
        self.optimizer.step()
        self.scheduler.step(*epoch)

    def seen(self):
        names = ("lr", "momentum", "betas", "initial_lr", "max_lr", "min_lr", "swa_lr")
        groups = [{name: group[name] for name in names if name in group} for group in self.optimizer.param_groups]
        return plain((groups, self.scheduler.get_last_lr(), self.scheduler.state_dict()))


def plain(x):
    if isinstance(x, (torch.Tensor, flambeau.Tensor)):
        return [x.tolist()]
    if isinstance(x, dict):
        return {key: plain(part) for key, part in x.items() if key != "_scale_fn_ref"}
    return [plain(part) for part in x] if isinstance(x, (list, tuple)) else x


def alike(a, b, rel=1e-12):
    """The same names, and numbers that differ by rounding at most."""
    if isinstance(b, dict):
        return isinstance(a, dict) and a.keys() == b.keys() and all(alike(a[k], b[k], rel) for k in b)
    if isinstance(b, list):
        return isinstance(a, list) and len(a) == len(b) and all(alike(x, y, rel) for x, y in zip(a, b))
    if isinstance(b, float):
        return a == pytest.approx(b, rel=rel, abs=1e-15)
    return type(a) is type(b) and a == b


def together(mine, theirs, epochs, *given, rel=1e-12):
    for epoch in range(epochs):
        assert alike(mine.seen(), theirs.seen(), rel), (epoch, mine.seen(), theirs.seen())
        for run in (mine, theirs):
            run.step(*given[epoch:epoch + 1])
    assert alike(mine.seen(), theirs.seen(), rel)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_forty_epochs(line, kind):
    together(Run(flambeau, line, kind), Run(torch, line, kind), 40)


@pytest.mark.parametrize("line", RESUMED)
def test_resuming_at_an_epoch(line):
    more = {"initial_lr": 0.3, "lr": 0.04, "max_lr": 0.7, "min_lr": 0.001, "max_momentum": 0.95, "base_momentum": 0.85}
    for number in (0, 1, 2, 3, 4, 8):
        together(*(Run(lib, line, number=number, more=more) for lib in (flambeau, torch)), 6)


@pytest.mark.parametrize("line", RESUMED)
def test_epochs_by_number(line):
    together(*(Run(lib, line) for lib in (flambeau, torch)), 7, 0, 3, 5, 2, 7, 21, 9)


def test_fractions_of_epochs():
    for line in LINES:
        if "WarmRestarts" in line:
            together(*(Run(lib, line) for lib in (flambeau, torch)), 6, 0, 1.5, 2.25, 3, 7.2, 9.9)


@pytest.mark.parametrize("line", LINES)
def test_states_go_over_and_come_back(line):
    """A scheduler goes on where that of the other library was."""
    for giver, taker in ((flambeau, torch), (torch, flambeau)):
        one, other = Run(giver, line), Run(taker, line)
        for _ in range(6):
            one.step()
        saved = copy.deepcopy(one.scheduler.state_dict())
        other.scheduler.load_state_dict(saved)
        for mine, theirs in zip(other.optimizer.param_groups, one.optimizer.param_groups):
            mine.update({key: held for key, held in theirs.items() if key != "params"})
        together(*((one, other) if giver is flambeau else (other, one)), 8)


# CosineAnnealingLR divides by a number near zero at the end, where single precision has no digits left
@pytest.mark.parametrize("line", [line for line in LINES if "Cosine" not in line and "Polynomial" not in line])
def test_rates_that_are_tensors(line):
    runs = [Run(lib, line, rate=lib.tensor) for lib in (flambeau, torch)]
    before = [[group["lr"] for group in run.optimizer.param_groups] for run in runs]
    together(*runs, 12, rel=2e-5)
    for run, rates in zip(runs, before):
        assert all(group["lr"] is rate for group, rate in zip(run.optimizer.param_groups, rates))
        assert all(isinstance(rate, run.lib.Tensor) for rate in run.scheduler.get_last_lr())


def test_what_was_returned_does_not_change():
    run = Run(flambeau, "L.ExponentialLR(o, 0.5)")
    before, saved = run.scheduler.get_last_lr(), run.scheduler.state_dict()
    run.step()
    assert before == [0.1, 0.2] == saved["_last_lr"] and run.scheduler.get_last_lr() == [0.05, 0.1]


MEASURES = [1, 0.9, 0.95, 0.96, 0.97, 0.98, 0.99, 1, 1.1, 0.2, 0.3, 0.4, 0.5, 0.6, float("nan"), float("nan"), 0.1, 0.1]


@pytest.mark.parametrize("options", [
    "patience=2", "patience=1, cooldown=2", "mode='max', patience=1", "factor=0.5, patience=0, min_lr=0.01",
    "patience=0, min_lr=[0.01, 0.05]", "patience=1, threshold=0.1, threshold_mode='abs'", "patience=0, eps=0.06",
    "mode='max', threshold=0.3, threshold_mode='abs', patience=0"])
def test_plateaus(options):
    line = f"L.ReduceLROnPlateau(o, {options})"
    together(*(Run(lib, line) for lib in (flambeau, torch)), len(MEASURES), *MEASURES)
    tensors = [Run(lib, line) for lib in (flambeau, torch)]
    for run in tensors:
        for measure in MEASURES:
            run.step(run.lib.tensor(float(measure)))
    assert alike(tensors[0].seen(), tensors[1].seen(), 1e-6)


def test_functions_that_are_objects_are_saved():
    def run(lib):
        class Curve:
            def __init__(self, power):
                self.power = power

            def __call__(self, epoch):
                return 1 / (epoch + 1) ** self.power
        space = {"Curve": Curve, "L": lib.optim.lr_scheduler}
        optimizer = lib.optim.SGD([lib.nn.Parameter(lib.ones(2))], lr=0.1, momentum=0.9)
        out = []
        for line in ("L.LambdaLR(o, Curve(2))", "L.MultiplicativeLR(o, Curve(3))",
                     "L.CyclicLR(o, 0.1, 1, scale_fn=Curve(1))"):
            one, two = (eval(line, space | {"o": optimizer}) for _ in range(2))
            saved = one.state_dict()
            for key in ("lr_lambdas", "_scale_fn_custom"):
                if key in saved:
                    saved[key] = [{"power": 7}] if isinstance(saved[key], list) else {"power": 7}
            two.load_state_dict(saved)
            out += [one.state_dict(), two.state_dict()]
        return out
    assert alike(plain(run(flambeau)), plain(run(torch)))


# --- refusals and warnings -------------------------------------------------------------------------------------------


MISTAKES = """
L.StepLR(3, 2)
L.StepLR(o, 2, last_epoch=3)
L.StepLR(o, 2, 0.1, -1, True)
L.LambdaLR(o, [lambda e: 1])
L.MultiplicativeLR(o, [lambda e: 1])
L.LambdaLR(o, 3)
L.ConstantLR(o, 2.0)
L.ConstantLR(o, -1.0)
L.LinearLR(o, 2.0)
L.LinearLR(o, 0.0)
L.LinearLR(o, 0.5, 2.0)
L.LinearLR(o, 0.5, -2.0)
L.SequentialLR(o, [], [])
L.SequentialLR(o, [L.StepLR(o, 2), L.StepLR(other, 2)], [3])
L.SequentialLR(o, [L.StepLR(o, 2), L.StepLR(o, 2)], [3, 4])
L.SequentialLR(o, [L.StepLR(o, 2), L.ReduceLROnPlateau(o)], [3])
L.SequentialLR(o, [L.StepLR(o, 2), 3], [3])
L.SequentialLR(o, [L.StepLR(o, 2)], []).step(3)
L.SequentialLR(o, [L.StepLR(o, 2)], []).get_lr()
L.ChainedScheduler([])
L.ChainedScheduler([L.StepLR(o, 2), L.StepLR(other, 2)])
L.ChainedScheduler([L.StepLR(o, 2), 3])
L.ChainedScheduler([L.StepLR(o, 2)], other)
L.ChainedScheduler([L.StepLR(o, 2)]).step(3)
L.CyclicLR(3, 0.1, 1)
L.CyclicLR(o, 0.1, 1, mode='x')
L.CyclicLR(adagrad, 0.1, 1)
L.CyclicLR(o, [0.1], [1])
L.OneCycleLR(3, 0.1, 10)
L.OneCycleLR(o, 0.1)
L.OneCycleLR(o, 0.1, total_steps=0)
L.OneCycleLR(o, 0.1, total_steps=1.5)
L.OneCycleLR(o, 0.1, epochs=0, steps_per_epoch=1)
L.OneCycleLR(o, 0.1, epochs=1, steps_per_epoch=-1)
L.OneCycleLR(o, 0.1, 10, pct_start=2)
L.OneCycleLR(o, 0.1, 10, anneal_strategy='x')
L.OneCycleLR(adagrad, 0.1, 10)
many(L.OneCycleLR(o, 0.1, 2), 3)
L.CosineAnnealingWarmRestarts(o, 0)
L.CosineAnnealingWarmRestarts(o, 2.5)
L.CosineAnnealingWarmRestarts(o, 2, 0)
L.CosineAnnealingWarmRestarts(o, 2, 1.5)
L.CosineAnnealingWarmRestarts(o, 2, eta_min='x')
L.CosineAnnealingWarmRestarts(o, 2).step(-1)
L.ReduceLROnPlateau(o, factor=1.0)
L.ReduceLROnPlateau(3)
L.ReduceLROnPlateau(o, min_lr=[1, 2, 3])
L.ReduceLROnPlateau(o, 'x')
L.ReduceLROnPlateau(o, threshold_mode='x')
L.ReduceLROnPlateau(o).step()
grown(L.ReduceLROnPlateau(o, patience=0, min_lr=[0.1, 0.1]))
L.LRScheduler(o)
S.SWALR(o, 0.1, anneal_strategy='x')
S.SWALR(o, 0.1, anneal_epochs=-1)
S.SWALR(o, 0.1, anneal_epochs=1.5)
S.SWALR(o, [0.1])
S.get_ema_avg_fn(2.0)
S.get_ema_multi_avg_fn(-1.0)
S.AveragedModel(torch.nn.Linear(1, 1), avg_fn=print, multi_avg_fn=print)
"""


@pytest.mark.parametrize("line", MISTAKES.strip().split("\n"))
def test_refusals(line):
    def refusal(lib):
        def optimizer(kind, **options):
            return getattr(lib.optim, kind)([{"params": [lib.nn.Parameter(lib.ones(1))]} for _ in range(2)], **options)

        def many(scheduler, count):
            for _ in range(count):
                scheduler.step()

        def grown(scheduler):
            scheduler.optimizer.add_param_group({"params": [lib.nn.Parameter(lib.ones(1))]})
            scheduler.step(1.0), scheduler.step(2.0)
        names = {"L": lib.optim.lr_scheduler, "S": lib.optim.swa_utils, "torch": lib, "many": many, "grown": grown,
                 "o": optimizer("SGD", lr=0.1, momentum=0.9), "other": optimizer("SGD", lr=0.1),
                 "adagrad": optimizer("Adagrad")}
        with pytest.raises(Exception) as caught:
            eval(line, names)
        return type(caught.value).__name__, str(caught.value)
    (mine, said), (theirs, words) = refusal(flambeau), refusal(torch)
    assert mine == theirs, (said, words)
    first = re.split(r"[.!]|, but got scheduler|\\n|, here", words)[0]
    if theirs not in ("TypeError", "AttributeError"):
        assert first in said, (said, words)


def test_the_order_of_calls_is_watched():
    def run(lib):
        def fresh():
            return lib.optim.SGD([lib.nn.Parameter(lib.ones(1))], lr=0.1)
        L, said = lib.optim.lr_scheduler, []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            early = L.StepLR(fresh(), 2)
            early.step(), early.step()
            said.append(len(caught))
            replaced = L.StepLR(fresh(), 2)
            replaced.optimizer.step = lambda *args: None
            replaced.step()
            said.append(len(caught))
            fine = L.StepLR(fresh(), 2)
            fine.optimizer.step(), fine.step()
            said.append(len(caught))
            fine.step(5)
            fine.get_lr()
            said.append(len(caught))
        return said, [(w.category.__name__, str(w.message)[:70]) for w in caught]
    assert run(flambeau) == run(torch)


def test_classes_and_signatures():
    import inspect
    L, T = flambeau.optim.lr_scheduler, torch.optim.lr_scheduler
    for mine, theirs in ((L, T), (flambeau.optim.swa_utils, torch.optim.swa_utils)):
        assert set(mine.__all__) == set(theirs.__all__)
    assert issubclass(L._LRScheduler, L.LRScheduler)
    pairs = [(getattr(L, name), getattr(T, name)) for name in T.__all__]
    pairs += [(getattr(flambeau.optim.swa_utils, name), getattr(torch.optim.swa_utils, name))
              for name in torch.optim.swa_utils.__all__]
    for mine, theirs in pairs:
        mine, theirs = ([(p.name, p.kind, p.default) for p in inspect.signature(f).parameters.values()]
                        for f in (mine, theirs))
        assert mine == theirs


def test_copies_leave_the_optimizer_alone():
    import pickle
    for lib in (torch, flambeau):
        optimizer = lib.optim.SGD([lib.nn.Parameter(lib.ones(1))], lr=0.1)
        scheduler = lib.optim.lr_scheduler.StepLR(optimizer, 2)
        for other in (copy.deepcopy(scheduler), pickle.loads(pickle.dumps(scheduler))):
            assert other.optimizer is not optimizer and "step" not in vars(other.optimizer)
            other.step()
            assert other.last_epoch == 1 and scheduler.last_epoch == 0


# --- averages of models ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["", "avg_fn=S.get_ema_avg_fn(0.9)", "multi_avg_fn=S.get_ema_multi_avg_fn(0.8)",
                                 "multi_avg_fn=S.get_swa_multi_avg_fn()", "avg_fn=S.get_swa_avg_fn()",
                                 "use_buffers=True", "avg_fn=lambda a, b, n: a * 0.5 + b / (n + 2)"])
def test_averaged_models(how):
    def run(lib):
        nn = lib.nn
        model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        rng = np.random.default_rng(0)
        average = eval(f"S.AveragedModel(model, {how})", {"S": lib.optim.swa_utils, "model": model})
        with lib.no_grad():
            for _ in range(4):
                for t in (*model.parameters(), *(b for b in model.buffers() if b.ndim)):
                    t.copy_(lib.tensor(rng.standard_normal(tuple(t.shape)).astype(np.float32)))
                average.update_parameters(model)
        out = average.eval()(lib.ones(2, 3))
        return {name: t.tolist() for name, t in average.state_dict().items()}, out.tolist(), repr(average)
    (mine, out, words), (theirs, expected, said) = run(flambeau), run(torch)
    assert alike(plain(mine), plain(theirs), 1e-5) and words == said
    np.testing.assert_allclose(out, expected, 1e-4, 1e-5)


def test_updating_batch_norms():
    def run(lib):
        nn = lib.nn
        model = nn.Sequential(nn.BatchNorm1d(3, momentum=0.3), nn.Flatten())
        rng = np.random.default_rng(0)
        loader = [(lib.tensor(rng.standard_normal((4, 3)).astype(np.float32)), 0) for _ in range(3)]
        model.eval()
        lib.optim.swa_utils.update_bn(loader, model)
        lib.optim.swa_utils.update_bn(loader, nn.Linear(3, 3))
        return [model[0].running_mean.tolist(), model[0].running_var.tolist()], model[0].momentum, model.training, \
            model[0].num_batches_tracked.item()
    mine, theirs = run(flambeau), run(torch)
    np.testing.assert_allclose(mine[0], theirs[0], 1e-5, 1e-6)
    assert mine[1:] == theirs[1:]


TENSORS = {
    "CyclicLR": lambda lib, o, t: lib.lr_scheduler.CyclicLR(o, 0.1, 0.2, base_momentum=t(0.8), max_momentum=t(0.9)),
    "OneCycleLR": lambda lib, o, t: lib.lr_scheduler.OneCycleLR(o, max_lr=t(0.2), total_steps=9, base_momentum=t(0.8),
                                                                max_momentum=t(0.9)),
    "SWALR": lambda lib, o, t: lib.swa_utils.SWALR(o, swa_lr=t(0.05)),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_that_a_scheduler_was_given_are_copied(name):
    """Whoever made the tensor may write to it: the schedule stays what it was."""
    def seen(lib):
        given = []

        def t(x):
            given.append(lib.tensor(x))
            return given[-1]
        o = lib.optim.SGD([lib.ones(2, requires_grad=True)], lr=0.1, momentum=0.9)
        s = TENSORS[name](lib.optim, o, t)
        rows = []
        for _ in range(4):
            for x in given:
                x.mul_(0.5)
            o.step()
            s.step()
            rows.append({k: round(float(v), 5) for k, v in o.param_groups[0].items()
                         if k in ("lr", "momentum", "max_momentum", "base_momentum", "swa_lr", "max_lr", "initial_lr")})
        return rows
    assert seen(flambeau) == seen(torch)


@pytest.mark.parametrize("milestones", [[0, 0, 1], [0, 2, 2], [1, 1, 1], [2, 3, 5]])
def test_one_after_the_other_from_the_first_step_on(milestones):
    def seen(lib):
        o = lib.optim.SGD([lib.ones(2, requires_grad=True)], lr=1.0)
        L = lib.optim.lr_scheduler
        parts = [L.LinearLR(o, start_factor=f, end_factor=f, total_iters=10) for f in (0.1, 0.2, 0.3, 0.4)]
        s = L.SequentialLR(o, parts, milestones)
        rates = []
        for _ in range(7):
            rates.append(round(o.param_groups[0]["lr"], 6))
            o.step()
            s.step()
        return rates
    assert seen(flambeau) == seen(torch)


@pytest.mark.parametrize("kind", ["LambdaLR", "MultiplicativeLR"])
def test_a_factor_that_is_no_function(kind):
    for lib in (flambeau, torch):
        o = lib.optim.SGD([lib.ones(2, requires_grad=True)], lr=1.0)
        with pytest.raises(TypeError):
            getattr(lib.optim.lr_scheduler, kind)(o, 0.95)
