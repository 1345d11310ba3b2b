"""Learning rates that change over the epochs.

Most schedules change the rates by a factor from one epoch to the next (`change`), and have a closed form for an epoch
that is asked for by its number (`total_change`).
"""
import math
from bisect import bisect_right
from collections import Counter

from ..base.errors import warn
from ._cycles import CyclicLR, OneCycleLR
from ._scheduler import (
    EPOCH_DEPRECATION_WARNING,
    LRScheduler,
    _LRScheduler as _LRScheduler,
    _warn_get_lr_called_within_step,
    check_optimizer,
    put,
    whole,
)

__all__ = ["ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR",
           "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR",
           "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR"]


# --- rates by a factor -----------------------------------------------------------------------------------------------


class ByFactor(LRScheduler):
    """A schedule that changes all rates by one factor from epoch to epoch."""

    def change(self):
        """By how much the rates change at epoch `last_epoch`; None for not at all."""
        raise NotImplementedError

    def total_change(self):
        """By how much the rates of epoch `last_epoch` differ from those of the beginning."""
        raise NotImplementedError

    def get_lr(self):
        _warn_get_lr_called_within_step(self)
        factor = self.change()
        return [group["lr"] if factor is None else group["lr"] * factor for group in self.optimizer.param_groups]

    def _get_closed_form_lr(self):
        total = self.total_change()
        return [base * total for base in self.base_lrs]


class StepLR(ByFactor):
    """Multiplies the rates by `gamma` every `step_size` epochs.

    >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    >>> scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    >>> for epoch in range(4):
    ...     print(scheduler.get_last_lr())
    ...     optimizer.step()
    ...     scheduler.step()
    [0.1]
    [0.1]
    [0.05]
    [0.05]
    """

    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def change(self):
        return None if self.last_epoch == 0 or self.last_epoch % self.step_size != 0 else self.gamma

    def total_change(self):
        return self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(ByFactor):
    """Multiplies the rates by `gamma` at every epoch of `milestones`."""

    def __init__(self, optimizer, milestones, gamma=0.1, last_epoch=-1):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def change(self):
        for epoch, times in self.milestones.items():     # compared one by one: a look-up would fix the epoch's number
            if epoch == self.last_epoch:
                return self.gamma ** times
        return None

    def total_change(self):
        return self.gamma ** sum(times for epoch, times in self.milestones.items() if epoch <= self.last_epoch)


class ConstantLR(ByFactor):
    """Multiplies the rates by `factor` for the first `total_iters` epochs."""

    def __init__(self, optimizer, factor=1.0 / 3, total_iters=5, last_epoch=-1):
        if factor > 1.0 or factor < 0:
            raise ValueError(f"Constant multiplicative factor expected to be between 0 and 1. Got {factor}.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def change(self):
        if self.last_epoch == 0:
            return self.factor
        return 1.0 / self.factor if self.last_epoch == self.total_iters else None

    def total_change(self):
        return self.factor + (self.last_epoch >= self.total_iters) * (1 - self.factor)


class LinearLR(ByFactor):
    """Multiplies the rates by a factor that goes from `start_factor` to `end_factor` over `total_iters` epochs."""

    def __init__(self, optimizer, start_factor=1.0 / 3, end_factor=1.0, total_iters=5, last_epoch=-1):
        if start_factor > 1.0 or start_factor <= 0:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1. "
                             f"Got {start_factor}.")
        if end_factor > 1.0 or end_factor < 0:
            raise ValueError(f"Ending multiplicative factor expected to be between 0 and 1. Got {end_factor}.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def change(self):
        if self.last_epoch == 0:
            return self.start_factor
        if self._is_initial or self.last_epoch > self.total_iters:
            return None
        rise = self.end_factor - self.start_factor
        return 1.0 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise)

    def total_change(self):
        rise = self.end_factor - self.start_factor
        return self.start_factor + rise * min(self.total_iters, self.last_epoch) / self.total_iters


class ExponentialLR(ByFactor):
    """Multiplies the rates by `gamma` every epoch."""

    def __init__(self, optimizer, gamma, last_epoch=-1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def change(self):
        return None if self._is_initial else self.gamma

    def total_change(self):
        return self.gamma ** self.last_epoch


class PolynomialLR(ByFactor):
    """Takes the rates to zero over `total_iters` epochs, along a polynomial of degree `power`."""

    def __init__(self, optimizer, total_iters=5, power=1.0, last_epoch=-1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def change(self):
        if self._is_initial or self.last_epoch > self.total_iters:
            return None
        left, before = (1.0 - epoch / self.total_iters for epoch in (self.last_epoch, self.last_epoch - 1))
        return (left / before) ** self.power

    def total_change(self):
        return (1.0 - min(self.total_iters, self.last_epoch) / self.total_iters) ** self.power


# --- rates by a function ---------------------------------------------------------------------------------------------


class LambdaLR(LRScheduler):
    """Sets the rates to the first ones times `lr_lambda(epoch)`: one function, or one for each group."""

    _functions = ("lr_lambdas",)

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        check_optimizer(optimizer)
        count = len(optimizer.param_groups)
        if isinstance(lr_lambda, (list, tuple)):
            if len(lr_lambda) != count:
                raise ValueError(f"Expected {count} lr_lambdas, but got {len(lr_lambda)}: one for each group")
            self.lr_lambdas = list(lr_lambda)
        else:
            self.lr_lambdas = [lr_lambda] * count
        for f in self.lr_lambdas:
            if not callable(f):
                raise TypeError(f"lr_lambda should be a function, but got {type(f).__name__}: {f!r}")
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        _warn_get_lr_called_within_step(self)
        return [base * f(self.last_epoch) for f, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]


class MultiplicativeLR(LambdaLR):
    """Multiplies the rates by `lr_lambda(epoch)` at every epoch: one function, or one for each group."""

    def get_lr(self):
        _warn_get_lr_called_within_step(self)
        groups = self.optimizer.param_groups
        if self._is_initial:
            return [group["lr"] for group in groups]
        return [group["lr"] * f(self.last_epoch) for f, group in zip(self.lr_lambdas, groups, strict=True)]


# --- rates along a cosine --------------------------------------------------------------------------------------------


class CosineAnnealingLR(LRScheduler):
    """Takes the rates to `eta_min` over `T_max` epochs, along half a cosine, and back up after that."""

    def __init__(self, optimizer, T_max, eta_min=0.0, last_epoch=-1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        _warn_get_lr_called_within_step(self)
        groups, least, turn = self.optimizer.param_groups, self.eta_min, math.pi / self.T_max
        if self._is_initial:
            return [group["lr"] for group in groups]
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:       # the last rate was the least: no factor
            return [group["lr"] + (base - least) * (1 - math.cos(turn)) / 2
                    for base, group in zip(self.base_lrs, groups, strict=True)]
        now, before = (1 + math.cos(math.pi * epoch / self.T_max) for epoch in (self.last_epoch, self.last_epoch - 1))
        return [now / before * (group["lr"] - least) + least for group in groups]

    def _get_closed_form_lr(self):
        height = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        return [self.eta_min + (base - self.eta_min) * height / 2 for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines again and again: the first over `T_0` epochs, each next one `T_mult` times as long."""

    def __init__(self, optimizer, T_0, T_mult=1, eta_min=0.0, last_epoch=-1):
        if not whole(T_0):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if not whole(T_mult):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0, self.T_i, self.T_mult, self.eta_min, self.T_cur = T_0, T_0, T_mult, eta_min, last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        _warn_get_lr_called_within_step(self)
        height = 1 + math.cos(math.pi * self.T_cur / self.T_i)
        return [self.eta_min + (base - self.eta_min) * height / 2 for base in self.base_lrs]

    def step(self, epoch=None):
        """Go on to the next epoch, or to `epoch`, which may be a fraction: `epoch + batch / batches`."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            self.last_epoch = self.last_epoch + 1
            self.T_cur = self.T_cur + 1
            if self.T_cur >= self.T_i:
                self.T_cur = self.T_cur % self.T_i
                self.T_i = self.T_i * self.T_mult
        else:
            if epoch < 0:
                raise ValueError(f"Expected non-negative epoch, but got {epoch}")
            if epoch < self.T_0:
                self.T_i, self.T_cur = self.T_0, epoch
            elif self.T_mult == 1:
                self.T_i, self.T_cur = self.T_0, epoch % self.T_0
            else:
                past = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
                self.T_cur = epoch - self.T_0 * (self.T_mult ** past - 1) / (self.T_mult - 1)
                self.T_i = self.T_0 * self.T_mult ** past
            self.last_epoch = math.floor(epoch)
        self._get_lr_called_within_step = True
        try:
            rates = self.get_lr()
        finally:
            self._get_lr_called_within_step = False
        self._set_rates(rates)


# --- several schedulers ----------------------------------------------------------------------------------------------


def check_schedulers(who, schedulers, optimizer):
    """Refuse schedulers that cannot be taken together."""
    for i, scheduler in enumerate(schedulers):
        if not hasattr(scheduler, "optimizer"):
            raise TypeError(f"{who} at index {i} should have `optimizer` as its attribute.")
        if isinstance(scheduler, ReduceLROnPlateau):
            raise ValueError(f"{who} does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs "
                             f"to be specified when calling `step`, but got one at index {i} in the given schedulers "
                             "sequence.")
        if scheduler.optimizer is not optimizer:
            raise ValueError(f"{who} expects all schedulers to belong to the same optimizer, but got scheduler "
                             f"{type(scheduler).__name__} at index {i} has {scheduler.optimizer}, which is different "
                             f"from {type(optimizer).__name__}.")


class Several(LRScheduler):
    """What schedulers that are made of others share."""

    _unsaved = ("optimizer", "_schedulers")

    def state_dict(self):
        return super().state_dict() | {"_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict):
        state_dict = dict(state_dict)
        for scheduler, state in zip(self._schedulers, state_dict.pop("_schedulers"), strict=True):
            scheduler.load_state_dict(state)
        super().load_state_dict(state_dict)


class ChainedScheduler(Several):
    """Steps all of `schedulers` at every epoch, one after the other."""

    def __init__(self, schedulers, optimizer=None):
        if len(schedulers) < 1:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
        optimizer = schedulers[0].optimizer if optimizer is None else optimizer
        check_schedulers("ChainedScheduler", schedulers, optimizer)
        self._schedulers, self.optimizer = schedulers, optimizer
        self._note_rates()

    def step(self):
        """Step all schedulers."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._note_rates()


class SequentialLR(Several):
    """Steps one of `schedulers` after the other: the next one from each epoch of `milestones` on."""

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1):
        if len(schedulers) < 1:
            raise ValueError("SequentialLR expects at least one scheduler, but got no scheduler.")
        check_schedulers("SequentialLR", schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError("Sequential Schedulers expects number of schedulers provided to be one more than the "
                             f"number of milestone points, but got number of schedulers {len(schedulers)} and the "
                             f"number of milestones to be equal to {len(milestones)}")
        self._schedulers, self._milestones = schedulers, milestones
        self.last_epoch, self.optimizer = last_epoch + 1, optimizer
        for group in optimizer.param_groups:             # undo what making them did
            put(group, "lr", group["initial_lr"])
        stack = list(schedulers)
        while stack:
            scheduler = stack.pop()
            stack += getattr(scheduler, "_schedulers", ())
            if not hasattr(scheduler, "_schedulers"):
                scheduler.last_epoch -= 1
        self._schedulers[bisect_right(milestones, 0)]._initial_step()
        self._note_rates()

    def step(self):
        """Step the scheduler whose turn it is."""
        self.last_epoch = self.last_epoch + 1
        turn = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[turn]
        if turn > 0 and self._milestones[turn - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._note_rates()


# --- rates by what is measured ---------------------------------------------------------------------------------------


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rates by `factor` when a measure has not improved for `patience` epochs.

    `step(metrics)` looks at the value of `metrics`. After a reduction, `cooldown` epochs do not count.
    """

    def __init__(self, optimizer, mode="min", factor=0.1, patience=10, threshold=1e-4, threshold_mode="rel", cooldown=0,
                 min_lr=0, eps=1e-8):
        if factor >= 1.0:
            raise ValueError(f"Factor should be < 1.0. Got {factor}.")
        check_optimizer(optimizer)
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown! It is 'min' or 'max'.")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown! It is 'rel' or 'abs'.")
        self.factor, self.optimizer = factor, optimizer
        count = len(optimizer.param_groups)
        if isinstance(min_lr, (list, tuple)):
            if len(min_lr) != count:
                raise ValueError(f"expected {count} min_lrs, got {len(min_lr)}: one for each group")
            self.default_min_lr, self.min_lrs = None, list(min_lr)
        else:
            self.default_min_lr, self.min_lrs = min_lr, [min_lr] * count
        self.patience, self.cooldown, self.eps, self.last_epoch = patience, cooldown, eps, 0
        self._note_rates()
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self._reset()

    def _reset(self):
        """Forget what was measured."""
        self.best, self.cooldown_counter, self.num_bad_epochs = self.mode_worse, 0, 0

    def step(self, metrics, epoch=None):
        """Take in the measure of one epoch."""
        current = float(metrics)
        if epoch is not None:
            warn(EPOCH_DEPRECATION_WARNING)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(current, self.best):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs = self.num_bad_epochs + 1
        if self.in_cooldown:
            self.cooldown_counter = self.cooldown_counter - 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(epoch)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._note_rates()

    def _reduce_lr(self, epoch):
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(f"The number of param groups in the `optimizer` ({len(groups)}) differs from when "
                                   f"`ReduceLROnPlateau` was initialized ({len(self.min_lrs)}), usually due to a new "
                                   "param group being added to the optimizer. Please modify the `min_lrs` field to "
                                   "match the length of the `optimizer` param groups.")
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, least in zip(groups, self.min_lrs, strict=True):
            old = float(group["lr"])
            new = max(old * self.factor, least)
            if old - new > self.eps:
                put(group, "lr", new)

    @property
    def in_cooldown(self):
        """Whether epochs do not count now, because the rates were reduced a short while ago."""
        return self.cooldown_counter > 0

    def _is_better(self, a, best):
        sign = -1 if self.mode == "min" else 1
        bound = best * (1 + sign * self.threshold) if self.threshold_mode == "rel" else best + sign * self.threshold
        return sign * a > sign * bound
