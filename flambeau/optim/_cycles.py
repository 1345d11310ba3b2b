"""Learning rates that go up and down in cycles, and momentum that goes the other way."""
import math
from functools import partial

from ._scheduler import LRScheduler, _warn_get_lr_called_within_step, check_optimizer, copied, per_group, put, whole


class WithMomentum(LRScheduler):
    """A schedule that moves the momentum against the rate: `momentum`, or the first of `betas`."""

    def _check_momentum(self, optimizer):
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled: say "
                             f"cycle_momentum=False for {type(optimizer).__name__}")
        self.use_beta1 = "betas" in optimizer.defaults

    def _put_momentum(self, group, momentum):
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


class CyclicLR(WithMomentum):
    """Takes the rates from `base_lr` up to `max_lr` and down again, over and over.

    `mode` says how high later cycles go: as high ("triangular"), half as high ("triangular2"), or by `gamma` a step
    ("exp_range"); or `scale_fn` says it, of the cycle or of the step (`scale_mode` "cycle" or "iterations").
    """

    _functions = ("_scale_fn_custom",)
    _unsaved = (*LRScheduler._unsaved, "_scale_fn_ref")

    def __init__(self, optimizer, base_lr, max_lr, step_size_up=2000, step_size_down=None, mode="triangular", gamma=1.0,
                 scale_fn=None, scale_mode="cycle", cycle_momentum=True, base_momentum=0.8, max_momentum=0.9,
                 last_epoch=-1):
        check_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = per_group("base_lr", base_lr, optimizer)
        if last_epoch == -1:
            for rate, group in zip(base_lrs, optimizer.param_groups, strict=True):
                put(group, "lr", rate)
        self.max_lrs = per_group("max_lr", max_lr, optimizer)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise ValueError("mode is invalid and scale_fn is None: the modes are 'triangular', 'triangular2' and "
                             f"'exp_range', got {mode!r}")
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        if scale_fn is None:
            self._scale_fn_ref = self._own_scale_fn()
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._check_momentum(optimizer)
            self.base_momentums = per_group("base_momentum", base_momentum, optimizer)
            self.max_momentums = per_group("max_momentum", max_momentum, optimizer)
            if last_epoch == -1:
                for high, low, group in zip(self.max_momentums, self.base_momentums, optimizer.param_groups,
                                            strict=True):
                    self._put_momentum(group, high)
                    group["max_momentum"], group["base_momentum"] = copied(high), copied(low)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x):
        """How high cycle (or step) `x` goes, as a share of the first."""
        return self._scale_fn_ref(x) if self._scale_fn_custom is None else self._scale_fn_custom(int(x))

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        if self._scale_fn_custom is None:
            self._scale_fn_ref = self._own_scale_fn()

    def _own_scale_fn(self):
        """The function of the mode, by the name that PyTorch's pickles of a whole scheduler have for it."""
        if self.mode == "exp_range":
            return partial(self._exp_range_scale_fn, self.gamma)
        return self._triangular_scale_fn if self.mode == "triangular" else self._triangular2_scale_fn

    @staticmethod
    def _triangular_scale_fn(x):
        return 1.0

    @staticmethod
    def _triangular2_scale_fn(x):
        return 1 / 2.0 ** (x - 1)

    @staticmethod
    def _exp_range_scale_fn(gamma, x):
        return gamma ** x

    def get_lr(self):
        _warn_get_lr_called_within_step(self)
        cycle = 1 + self.last_epoch // self.total_size
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        share = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for low, high, group in zip(self.base_momentums, self.max_momentums, self.optimizer.param_groups):
                self._put_momentum(group, high - (high - low) * height * share)
        return [low + (high - low) * height * share for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]


class OneCycleLR(WithMomentum):
    """Takes the rates up to `max_lr` and then down to almost nothing, within `total_steps` steps (Smith, 2017)."""

    def __init__(self, optimizer, max_lr, total_steps=None, epochs=None, steps_per_epoch=None, pct_start=0.3,
                 anneal_strategy="cos", cycle_momentum=True, base_momentum=0.85, max_momentum=0.95, div_factor=25.0,
                 final_div_factor=1e4, three_phase=False, last_epoch=-1):
        check_optimizer(optimizer)
        self.optimizer = optimizer
        if total_steps is None and epochs is not None and steps_per_epoch is not None:
            for name, given in (("epochs", epochs), ("steps_per_epoch", steps_per_epoch)):
                if not whole(given):
                    raise ValueError(f"Expected positive integer {name}, but got {given}")
            total_steps = epochs * steps_per_epoch
        elif total_steps is None:
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        if not whole(total_steps):
            raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self.total_steps = total_steps
        top = float(pct_start * total_steps) - 1
        up, down = ("initial_lr", "max_lr", "max_momentum", "base_momentum"), ("max_lr", "initial_lr", "base_momentum",
                                                                               "max_momentum")
        phases = [(top, *up)]
        if three_phase:
            phases += [(float(2 * pct_start * total_steps) - 2, *down),
                       (total_steps - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum")]
        else:
            phases += [(total_steps - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")]
        names = ("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum")
        self._schedule_phases = [dict(zip(names, phase, strict=True)) for phase in phases]
        self._anneal_func_type = anneal_strategy
        if last_epoch == -1:
            for group, high in zip(optimizer.param_groups, per_group("max_lr", max_lr, optimizer), strict=True):
                group["initial_lr"], group["max_lr"] = high / div_factor, high
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._check_momentum(optimizer)
            if last_epoch == -1:
                for group, high, low in zip(optimizer.param_groups, per_group("max_momentum", max_momentum, optimizer),
                                            per_group("base_momentum", base_momentum, optimizer), strict=True):
                    self._put_momentum(group, high)
                    group["max_momentum"], group["base_momentum"] = copied(high), copied(low)
        super().__init__(optimizer, last_epoch)

    def _between(self, start, end, share):
        """`share` of the way from `start` to `end`."""
        if self._anneal_func_type == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)
        return (end - start) * share + start

    def get_lr(self):
        _warn_get_lr_called_within_step(self)
        step, begin, phases = self.last_epoch, 0.0, self._schedule_phases
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The specified number of total steps is {self.total_steps}")
        for phase in phases:
            if step <= phase["end_step"] or phase is phases[-1]:
                break
            begin = phase["end_step"]
        share = (step - begin) / (phase["end_step"] - begin)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[phase["start_lr"]], group[phase["end_lr"]], share))
            if self.cycle_momentum:
                self._put_momentum(group, self._between(group[phase["start_momentum"]], group[phase["end_momentum"]],
                                                        share))
        return rates
