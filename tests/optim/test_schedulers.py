"""Learning rates over the epochs: against formulas, and what holds for every scheduler."""
import math
import warnings

import numpy as np
import pytest

import flambeau as torch
from flambeau.optim import lr_scheduler as L, swa_utils

EPOCHS = 30
BASE = 0.4


def half_cosine(x):
    return (1 + math.cos(math.pi * x)) / 2


# (how it is made, the rate of epoch e as a formula)
FORMULAS = {
    "LambdaLR": (lambda o: L.LambdaLR(o, lambda e: 1 / (1 + e)), lambda e: BASE / (1 + e)),
    "MultiplicativeLR": (lambda o: L.MultiplicativeLR(o, lambda e: 0.9), lambda e: BASE * 0.9 ** e),
    "StepLR": (lambda o: L.StepLR(o, 4, 0.5), lambda e: BASE * 0.5 ** (e // 4)),
    "MultiStepLR": (lambda o: L.MultiStepLR(o, [3, 8, 8, 20], 0.5),
                    lambda e: BASE * 0.5 ** ((e >= 3) + 2 * (e >= 8) + (e >= 20))),
    "ConstantLR": (lambda o: L.ConstantLR(o, 0.25, 6), lambda e: BASE * (0.25 if e < 6 else 1)),
    "LinearLR": (lambda o: L.LinearLR(o, 0.2, 0.9, 10), lambda e: BASE * (0.2 + 0.7 * min(e, 10) / 10)),
    "ExponentialLR": (lambda o: L.ExponentialLR(o, 0.8), lambda e: BASE * 0.8 ** e),
    "PolynomialLR": (lambda o: L.PolynomialLR(o, 20, 2.0), lambda e: BASE * (1 - min(e, 20) / 20) ** 2),
    "CosineAnnealingLR": (lambda o: L.CosineAnnealingLR(o, 12, 0.1),
                          lambda e: 0.1 + (BASE - 0.1) * half_cosine(e / 12)),
    "CosineAnnealingWarmRestarts": (lambda o: L.CosineAnnealingWarmRestarts(o, 7),
                                    lambda e: BASE * half_cosine(e % 7 / 7)),
    "CyclicLR": (lambda o: L.CyclicLR(o, 0.1, 0.5, 5, cycle_momentum=False),
                 lambda e: 0.1 + 0.4 * (1 - abs(e % 10 - 5) / 5)),
    "OneCycleLR": (lambda o: L.OneCycleLR(o, 1.0, 41, pct_start=11 / 41, anneal_strategy="linear", cycle_momentum=False,
                                          div_factor=10, final_div_factor=10),
                   lambda e: 0.1 + 0.9 * e / 10 if e <= 10 else 1 - 0.99 * (e - 10) / 30),
    "SWALR": (lambda o: swa_utils.SWALR(o, 0.1, 8), lambda e: 0.1 + (BASE - 0.1) * half_cosine(min(e, 8) / 8)),
    "ChainedScheduler": (lambda o: L.ChainedScheduler([L.ExponentialLR(o, 0.8), L.ConstantLR(o, 0.5, 5)]),
                         lambda e: BASE * 0.8 ** e * (0.5 if e < 5 else 1)),
    "SequentialLR": (lambda o: L.SequentialLR(o, [L.ConstantLR(o, 0.1, 99), L.ExponentialLR(o, 0.5)], [4]),
                     lambda e: BASE * (0.1 if e < 4 else 0.5 ** (e - 4))),
}


def optimizer_of(rate=BASE, kind="SGD", **options):
    return getattr(torch.optim, kind)([torch.nn.Parameter(torch.ones(1))], lr=rate, **options)


def rates(scheduler, epochs=EPOCHS):
    found = []
    for _ in range(epochs):
        rate = scheduler.optimizer.param_groups[0]["lr"]
        assert scheduler.get_last_lr() == [rate]
        found.append(float(rate))
        scheduler.optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas(name):
    make, formula = FORMULAS[name]
    np.testing.assert_allclose(rates(make(optimizer_of())), [formula(e) for e in range(EPOCHS)], 1e-9, 1e-12)


@pytest.mark.parametrize("name", [n for n in FORMULAS if n not in ("MultiplicativeLR", "SWALR", "ChainedScheduler",
                                                                   "SequentialLR")])
def test_an_epoch_that_is_asked_for_by_number(name):
    make, formula = FORMULAS[name]
    scheduler = make(optimizer_of())
    for e in (0, 7, 3, 19, 20):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scheduler.step(e)
        assert scheduler.get_last_lr()[0] == pytest.approx(formula(e), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", FORMULAS)
def test_training_goes_on_from_what_was_saved(name):
    make, formula = FORMULAS[name]
    one, two = make(optimizer_of()), make(optimizer_of())
    rates(one, 9)
    two.load_state_dict(one.state_dict())
    two.optimizer.load_state_dict(one.optimizer.state_dict())
    np.testing.assert_allclose(rates(two, 12), [formula(e) for e in range(9, 21)], 1e-9, 1e-12)


@pytest.mark.parametrize("name", ["ExponentialLR", "StepLR", "LambdaLR", "LinearLR", "CosineAnnealingLR", "CyclicLR"])
def test_a_tensor_as_rate_stays_the_same_tensor(name):
    make, formula = FORMULAS[name]
    rate = torch.tensor(BASE, dtype=torch.float64)
    scheduler = make(optimizer_of(rate))
    for e in range(10):
        assert rate.item() == pytest.approx(formula(e), rel=1e-9)
        scheduler.optimizer.step()
        scheduler.step()
    assert scheduler.optimizer.param_groups[0]["lr"] is rate and scheduler.get_last_lr()[0] is not rate


def test_momentum_goes_against_the_rate():
    for kind, read in (("SGD", lambda g: g["momentum"]), ("Adam", lambda g: g["betas"][0])):
        options = {"momentum": 0.9} if kind == "SGD" else {}
        for make in (lambda o: L.CyclicLR(o, 0.1, 0.5, 5), lambda o: L.OneCycleLR(o, 0.5, 30)):
            scheduler = make(optimizer_of(kind=kind, **options))
            group, seen = scheduler.optimizer.param_groups[0], []
            for _ in range(20):
                seen.append((group["lr"], read(group)))
                scheduler.optimizer.step()
                scheduler.step()
            assert np.corrcoef(np.array(seen).T)[0, 1] < -0.99


def test_groups_have_rates_of_their_own():
    optimizer = torch.optim.SGD([{"params": torch.nn.Parameter(torch.ones(1)), "lr": r} for r in (0.1, 0.2)])
    scheduler = L.LambdaLR(optimizer, [lambda e: 0.5 ** e, lambda e: 1.0])
    optimizer.step(), scheduler.step()
    assert scheduler.get_last_lr() == [0.05, 0.2]


def test_restarts_at_fractions_of_epochs():
    scheduler = L.CosineAnnealingWarmRestarts(optimizer_of(), 4, 2)
    for e, x in ((0.5, 0.5 / 4), (3.75, 3.75 / 4), (4.5, 0.5 / 8), (12, 0.0), (14.5, 2.5 / 16)):
        scheduler.step(e)
        assert scheduler.get_last_lr()[0] == pytest.approx(BASE * half_cosine(x))


def test_plateaus():
    scheduler = L.ReduceLROnPlateau(optimizer_of(), factor=0.5, patience=1, cooldown=1, min_lr=0.15)
    group, seen = scheduler.optimizer.param_groups[0], []
    for measure in (1.0, torch.tensor(0.9), 0.95, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95):
        scheduler.step(measure)
        seen.append(group["lr"])
    assert seen == [0.4, 0.4, 0.4, 0.2, 0.2, 0.2, 0.15, 0.15, 0.15]


def test_the_order_of_calls_is_watched():
    scheduler = L.ExponentialLR(optimizer_of(), 0.5)
    with pytest.warns(UserWarning, match=r"`lr_scheduler.step\(\)` before `optimizer.step\(\)`"):
        scheduler.step()
    scheduler = L.ExponentialLR(optimizer_of(), 0.5)
    scheduler.optimizer.step = lambda: None
    with pytest.warns(UserWarning, match="has been overridden after learning rate scheduler initialization"):
        scheduler.step()
    scheduler = L.ExponentialLR(optimizer_of(), 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.optimizer.step(), scheduler.step(), scheduler.step()
    with pytest.warns(UserWarning, match="please use `get_last_lr"):
        scheduler.get_lr()


def test_a_scheduler_of_the_users_own():
    class Sawtooth(L.LRScheduler):
        def get_lr(self):
            return [base * (1 + self.last_epoch % 3) for base in self.base_lrs]
    assert rates(Sawtooth(optimizer_of(1.0)), 5) == [1, 2, 3, 1, 2]
    with pytest.raises(NotImplementedError, match=r"defines no get_lr\(\)"):
        L.LRScheduler(optimizer_of())


# --- averages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options, expected", [
    ({}, [1, 1.5, 2, 2.5]),
    ({"avg_fn": swa_utils.get_ema_avg_fn(0.75)}, [1, 1.25, 1.6875, 2.265625]),
    ({"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.75)}, [1, 1.25, 1.6875, 2.265625]),
    ({"multi_avg_fn": swa_utils.get_swa_multi_avg_fn()}, [1, 1.5, 2, 2.5]),
    ({"avg_fn": lambda averaged, current, n: averaged + current / n}, [1, 3, 4.5, 4.5 + 4 / 3])])
def test_averages_of_weights(options, expected):
    model = torch.nn.Linear(2, 1)
    average, found = swa_utils.AveragedModel(model, **options), []
    for value in (1.0, 2.0, 3.0, 4.0):
        torch.nn.init.constant_(model.weight, value)
        average.update_parameters(model)
        found.append(average.module.weight[0, 0].item())
    np.testing.assert_allclose(found, expected, 1e-6)
    assert average.n_averaged.item() == 4 and average.n_averaged.dtype is torch.int64


def test_an_average_goes_on_from_what_was_saved():
    model = torch.nn.Linear(1, 1)
    one, two = swa_utils.AveragedModel(model), swa_utils.AveragedModel(model)
    for value in (1.0, 3.0):
        torch.nn.init.constant_(model.weight, value)
        one.update_parameters(model)
    two.load_state_dict(one.state_dict())
    torch.nn.init.constant_(model.weight, 5.0)
    two.update_parameters(model)
    assert two.module.weight.item() == 3.0 and two.n_averaged.item() == 3


def test_buffers_are_copied_or_averaged():
    model = torch.nn.BatchNorm1d(1)
    copied, averaged = swa_utils.AveragedModel(model), swa_utils.AveragedModel(model, use_buffers=True)
    for value in (1.0, 3.0):
        model.running_mean.fill_(value)
        copied.update_parameters(model), averaged.update_parameters(model)
    assert copied.module.running_mean.item() == 3 and averaged.module.running_mean.item() == 2


def test_statistics_of_batch_norms_are_computed_anew():
    batches = [torch.randn(8, 3) * (i + 1) for i in range(4)]
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3, momentum=0.5)).eval()
    swa_utils.update_bn([(batch, 0) for batch in batches], model)
    norm = model[0]
    assert not model.training and norm.momentum == 0.5 and norm.num_batches_tracked.item() == 4
    np.testing.assert_allclose(norm.running_mean.numpy(), np.mean([b.mean(0).numpy() for b in batches], 0), 1e-5, 1e-6)
    np.testing.assert_allclose(norm.running_var.numpy(), np.mean([b.var(0).numpy() for b in batches], 0), 1e-5)
