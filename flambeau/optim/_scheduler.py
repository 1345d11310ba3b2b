"""The base of learning-rate schedulers.

A scheduler counts epochs, and at each gives the optimizer's groups their new rates. What changes from step to step are
plain numbers, and whether they pass a bound is asked by comparing them; so a training step with a scheduler in it can
be replayed (docs/compile.md).
"""
import functools
import types
import weakref

from ..base.errors import warn
from ..tensor.tensor import Tensor
from .optimizer import Optimizer

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler. An epoch that is given is taken as it is, and the rate for it comes "
    "from the closed form where there is one.")
ORDER_WARNING = ("Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later it is "
                 "the other way round: call `optimizer.step()` first, or the first rate of the schedule is skipped.")
OVERRIDDEN_WARNING = ("Seems like `optimizer.step()` has been overridden after learning rate scheduler "
                      "initialization. It can no longer be seen whether it is called before `lr_scheduler.step()`, as "
                      "it should be.")


def copied(x):
    return x.clone() if isinstance(x, Tensor) else x


def values_of(optimizer, name):
    """An option of all groups; tensors are copied."""
    return [copied(group[name]) for group in optimizer.param_groups]


def put(group, name, x):
    """Set an option; one that is a tensor stays the same tensor, and is shared with nothing else."""
    option = group[name]
    if not isinstance(option, Tensor):
        group[name] = copied(x)
    elif x is not option:
        option.copy_(x) if isinstance(x, Tensor) else option.fill_(x)


def per_group(what, x, optimizer):
    """One `x` for each group: given as a list or tuple, or the same for all; tensors are copied."""
    count = len(optimizer.param_groups)
    if not isinstance(x, (list, tuple)):
        return [copied(x) for _ in range(count)]
    if len(x) != count:
        raise ValueError(f"{what} must have the same length as optimizer.param_groups. {what} has {len(x)} values, "
                         f"param_groups has {count}.")
    return [copied(value) for value in x]


def check_optimizer(optimizer):
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def whole(x):
    return isinstance(x, int) and x > 0


class LRScheduler:
    """The base of schedulers. A subclass defines `get_lr`: the rates of all groups for epoch `last_epoch`."""

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer, last_epoch=-1):
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                if "initial_lr" not in group:
                    group["initial_lr"] = copied(group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(f"param 'initial_lr' is not specified in param_groups[{number}] when resuming scheduler "
                               f"with last_epoch >= 0, here {last_epoch}: load the optimizer's state first, which has "
                               "it, or leave last_epoch out for a new run")
        self.base_lrs = values_of(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        note_steps(optimizer)
        self._initial_step()

    def _initial_step(self):
        """Set the rates of the first epoch."""
        self._step_count, self._is_initial = 0, True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_last_lr(self):
        """The rates that were set last."""
        return list(self._last_lr)

    def get_lr(self):
        """The rates of all groups for epoch `last_epoch`."""
        raise NotImplementedError(f"{type(self).__name__} defines no get_lr()")

    def step(self, epoch=None):
        """Go on to the next epoch, after the optimizer's steps of the last one."""
        if self._step_count == 1:
            if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
                warn(OVERRIDDEN_WARNING)
            elif not getattr(self.optimizer, "_opt_called", False):
                warn(ORDER_WARNING)
        self._step_count = self._step_count + 1
        if epoch is not None:
            warn(EPOCH_DEPRECATION_WARNING)
        self._update_lr(epoch)

    def _update_lr(self, epoch=None):
        self._get_lr_called_within_step = True
        try:
            if epoch is None:
                self.last_epoch = self.last_epoch + 1
                rates = self.get_lr()
            else:
                self.last_epoch = epoch
                closed = getattr(self, "_get_closed_form_lr", None)
                rates = self.get_lr() if closed is None else closed()
        finally:
            self._get_lr_called_within_step = False
        self._set_rates(rates)

    def _set_rates(self, rates):
        for group, rate in zip(self.optimizer.param_groups, rates):
            put(group, "lr", rate)
        self._note_rates()

    def _note_rates(self):
        """Keep what was set. The list stays the same one, for a replay to find it; `get_last_lr` gives copies."""
        rates = values_of(self.optimizer, "lr")
        if "_last_lr" in self.__dict__ and len(self._last_lr) == len(rates):
            self._last_lr[:] = rates
        else:
            self._last_lr = rates

    # What `state_dict` leaves out; the functions among these are saved too, if they are objects with attributes.
    _unsaved = ("optimizer",)
    _functions = ()

    def state_dict(self):
        """Everything but the optimizer. Functions are saved by their attributes, where they are objects."""
        out = {name: list(value) if name == "_last_lr" else value for name, value in self.__dict__.items()
               if name not in self._unsaved and name not in self._functions}
        for name in self._functions:
            value = self.__dict__[name]
            out[name] = [attributes_of(f) for f in value] if isinstance(value, list) else attributes_of(value)
        return out

    def load_state_dict(self, state_dict):
        """Go on where `state_dict` was taken."""
        state_dict = {name: list(value) if name == "_last_lr" else value for name, value in state_dict.items()}
        for name in self._functions:
            mine, theirs = self.__dict__[name], state_dict.pop(name, None)
            pairs = zip(mine, theirs or ()) if isinstance(mine, list) else [(mine, theirs)]
            for f, attributes in pairs:
                if attributes is not None:
                    f.__dict__.update(attributes)
        self.__dict__.update(state_dict)


class _LRScheduler(LRScheduler):
    """The older name, for classes that inherit from it."""


def attributes_of(f):
    """What is saved of a function: nothing, unless it is an object with a call."""
    return None if isinstance(f, types.FunctionType) or not hasattr(f, "__dict__") else dict(f.__dict__)


def note_steps(optimizer):
    """Let an optimizer remember that its step was called, so that a wrong order is noticed."""
    step = optimizer.step
    if hasattr(step, "_wrapped_by_lr_sched"):
        return
    bound, owner = hasattr(step, "__func__"), weakref.ref(optimizer)
    step = step.__func__ if bound else step              # a bound method would hold the optimizer, which holds this

    @functools.wraps(step)
    def wrapper(*args, **kwargs):
        optimizer = owner()
        optimizer._opt_called = True
        return step(optimizer, *args, **kwargs) if bound else step(*args, **kwargs)
    wrapper._wrapped_by_lr_sched = True
    optimizer.step = wrapper


def _warn_get_lr_called_within_step(scheduler):
    if not scheduler._get_lr_called_within_step:
        warn("To get the last learning rate computed by the scheduler, please use `get_last_lr()`.")
