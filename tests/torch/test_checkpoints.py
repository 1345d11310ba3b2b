"""Training that is saved by one library goes on in the other, as if nothing had happened: through real files.

Each optimizer and each scheduler by itself, then the checkpoint that a program saves: model, optimizer, scheduler,
scaler, epoch and the state of the random numbers. PyTorch's side always loads with `weights_only=True`.
"""
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau
from tests.torch.test_optim import TABLE
from tests.torch.test_schedulers import LINES, Run as Schedule

WAYS = pytest.mark.parametrize("giver, taker", [(flambeau, torch), (torch, flambeau)], ids=["ours", "theirs"])


def sent(giver, taker, thing, tmp_path):
    """`thing` saved by one library and loaded by the other."""
    file = tmp_path / "checkpoint.pt"
    giver.save(thing, file)
    return taker.load(file, weights_only=True)


def numbers(t):
    return np.array(t.detach().double().tolist())


def agree(mine, theirs, rtol=1e-5, atol=1e-6, where="checkpoint"):
    """Nested states hold the same."""
    if isinstance(theirs, (torch.Tensor, flambeau.Tensor)):
        assert str(mine.dtype) == str(theirs.dtype) and mine.shape == theirs.shape, where
        np.testing.assert_allclose(numbers(mine), numbers(theirs), rtol, atol, err_msg=where)
    elif isinstance(theirs, dict):
        assert list(mine) == list(theirs), where
        for key in theirs:
            agree(mine[key], theirs[key], rtol, atol, f"{where}[{key!r}]")
    elif isinstance(theirs, (list, tuple)):
        assert type(mine) is type(theirs) and len(mine) == len(theirs), where
        for number, (a, b) in enumerate(zip(mine, theirs)):
            agree(a, b, rtol, atol, f"{where}[{number}]")
    elif isinstance(theirs, float):
        assert mine == pytest.approx(theirs, rel=rtol, abs=atol), where
    else:
        assert type(mine) is type(theirs) and mine == theirs, where


# --- optimizers -------------------------------------------------------------------------------------------------------

OPTIONS = {"SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True}, "RMSprop": {"momentum": 0.5, "centered": True},
           "Adam": {"amsgrad": True}, "AdamW": {"amsgrad": True}, "ASGD": {"t0": 2}, "LBFGS": {"max_iter": 3}}


class Descent:
    """Three parameters on their way down a bowl."""

    def __init__(self, lib, name):
        self.lib = lib
        rng = np.random.default_rng(1)
        shapes = ((4, 3), (2, 5)) if name == "Muon" else ((4, 3), (5,), ())
        self.params = [lib.nn.Parameter(lib.tensor(rng.normal(size=shape).astype("float32"))) for shape in shapes]
        self.optimizer = getattr(lib.optim, name)(self.params, **OPTIONS.get(name, {}))

    def step(self, count):
        def closure():
            self.optimizer.zero_grad()
            loss = sum(((p - 1) ** 4 / (number + 1)).sum() for number, p in enumerate(self.params))
            loss.backward()
            return loss
        for _ in range(count):
            self.optimizer.step(closure)


@WAYS
@pytest.mark.parametrize("name", [name for name in TABLE if name != "SparseAdam"])
def test_optimizers(name, giver, taker, tmp_path):
    near = {"rtol": 2e-2, "atol": 4e-3} if name == "Muon" else {}
    one, other = Descent(giver, name), Descent(taker, name)
    one.step(3)
    saved = sent(giver, taker, {"params": one.params, "optimizer": one.optimizer.state_dict()}, tmp_path)
    with taker.no_grad():
        for p, value in zip(other.params, saved["params"], strict=True):
            p.copy_(value)
    other.optimizer.load_state_dict(saved["optimizer"])
    agree(other.optimizer.state_dict(), one.optimizer.state_dict(), **near)
    one.step(4)
    other.step(4)
    agree(other.params, one.params, **near)
    agree(other.optimizer.state_dict(), one.optimizer.state_dict(), **near)


# --- schedulers -------------------------------------------------------------------------------------------------------

PLATEAU = "L.ReduceLROnPlateau(o, factor=0.5, patience=1, cooldown=1)"


@WAYS
@pytest.mark.parametrize("line", [*LINES, PLATEAU])
def test_schedulers(line, giver, taker, tmp_path):
    measured = [[0.5, 0.4, 0.45, 0.45, 0.45, 0.3, 0.4, 0.4, 0.4, 0.4][i:i + 1] if line is PLATEAU else []
                for i in range(10)]
    one, other = Schedule(giver, line), Schedule(taker, line)
    for numbers in measured[:5]:
        one.step(*numbers)
    saved = sent(giver, taker, {"scheduler": one.scheduler.state_dict(), "optimizer": one.optimizer.state_dict()},
                 tmp_path)
    other.optimizer.load_state_dict(saved["optimizer"])
    other.scheduler.load_state_dict(saved["scheduler"])
    for numbers in measured[5:]:
        one.step(*numbers)
        other.step(*numbers)
        agree(other.scheduler.get_last_lr(), one.scheduler.get_last_lr())
    agree(other.optimizer.state_dict(), one.optimizer.state_dict())


# --- all of it --------------------------------------------------------------------------------------------------------


class Training:
    """A small network with noise, weights of two precisions, a scheduler and a scaler, trained epoch by epoch."""

    def __init__(self, lib):
        self.lib, nn = lib, lib.nn
        lib.manual_seed(3)
        # without a bias before the norm, whose gradient is nothing but rounding, which Adam would enlarge
        self.model = nn.Sequential(nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.3),
                                   nn.Sequential(nn.Linear(16, 8), nn.LayerNorm(8)), nn.Linear(8, 3))
        self.optimizer = lib.optim.AdamW(
            [{"params": self.model[0].parameters(), "lr": 0.02}, {"params": self.model[1:].parameters()}], lr=0.01)
        self.scheduler = lib.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.05, total_steps=12)
        self.scaler = lib.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3)
        self.epoch = 0

    def run(self, epochs):
        """The losses of some epochs."""
        lib, losses = self.lib, []
        for _ in range(epochs):
            x, y = lib.randn(10, 6), lib.randint(0, 3, (10,))
            self.optimizer.zero_grad()
            loss = lib.nn.functional.cross_entropy(self.model(x), y)
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            lib.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.scheduler.step()
            self.epoch += 1
            losses.append(loss.item())
        return losses

    def checkpoint(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(), "scaler": self.scaler.state_dict(), "epoch": self.epoch,
                "rng_state": self.lib.get_rng_state()}

    def resume(self, saved):
        for name in ("model", "optimizer", "scheduler", "scaler"):
            getattr(self, name).load_state_dict(saved[name])
        self.epoch = saved["epoch"]
        self.lib.set_rng_state(saved["rng_state"])


@WAYS
def test_a_whole_checkpoint(giver, taker, tmp_path):
    one, other = Training(giver), Training(taker)
    one.run(5)
    saved = sent(giver, taker, one.checkpoint(), tmp_path)
    rest = one.run(5)
    other.resume(saved)
    assert other.run(5) == pytest.approx(rest, rel=1e-4)
    agree(other.checkpoint(), one.checkpoint(), rtol=1e-3, atol=1e-5)


def test_a_checkpoint_of_a_generator(tmp_path):
    """Generators of a program's own, as their states."""
    mine, theirs = flambeau.Generator().manual_seed(9), torch.Generator().manual_seed(9)
    flambeau.randn(5, generator=mine)
    theirs.set_state(sent(flambeau, torch, mine.get_state(), tmp_path))
    agree(flambeau.randn(40, generator=mine), torch.randn(40, generator=theirs))
    mine.set_state(sent(torch, flambeau, theirs.get_state(), tmp_path))
    agree(flambeau.rand(7, generator=mine), torch.rand(7, generator=theirs))
