"""Averages of a model's weights over its training, and the learning rate that goes with them."""
import math
from copy import deepcopy

from ..autograd.modes import no_grad
from ..base import dtypes
from ..base.spec import device as Device
from ..nn import Module
from ..nn.modules.batchnorm import _BatchNorm
from ..tensor.functions import full
from ._scheduler import LRScheduler, _warn_get_lr_called_within_step, per_group
from .step_count import Count, count_in

__all__ = ["AveragedModel", "SWALR", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn",
           "update_bn"]


# --- how to average --------------------------------------------------------------------------------------------------


def check_decay(decay):
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def over_lists(average):
    """The form over lists of `average(averaged, current, num_averaged)`, written into the first list."""
    @no_grad()
    def update(averaged_param_list, current_param_list, num_averaged):
        for averaged, current in zip(averaged_param_list, current_param_list, strict=True):
            averaged.copy_(average(averaged, current, num_averaged))
    return update


def get_ema_avg_fn(decay=0.999):
    """A function that gives `decay` of the average and the rest of the current weights."""
    check_decay(decay)

    @no_grad()
    def ema_update(ema_param, current_param, num_averaged):
        return decay * ema_param + (1 - decay) * current_param
    return ema_update


def get_swa_avg_fn():
    """A function that gives the plain average of all the weights it has seen."""
    @no_grad()
    def swa_update(averaged_param, current_param, num_averaged):
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)
    return swa_update


def get_ema_multi_avg_fn(decay=0.999):
    """`get_ema_avg_fn` over lists, in place."""
    return over_lists(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn():
    """`get_swa_avg_fn` over lists, in place."""
    return over_lists(get_swa_avg_fn())


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of the model's, as of each `update_parameters(model)`.

    `avg_fn(averaged, current, num_averaged)` says how to average, `multi_avg_fn` does it over lists in place; without
    them it is the plain average. Buffers are copied, or averaged too with `use_buffers`.

    >>> model = torch.nn.Linear(1, 1)
    >>> average = torch.optim.swa_utils.AveragedModel(model)
    >>> for weight in (1.0, 2.0, 6.0):
    ...     _ = torch.nn.init.constant_(model.weight, weight)
    ...     average.update_parameters(model)
    >>> average.module.weight.item(), average.n_averaged
    (3.0, tensor(3))
    """

    _count = None                        # what `n_averaged` is, known on the host too

    def __init__(self, model, device=None, avg_fn=None, multi_avg_fn=None, use_buffers=False):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", full((), 0, dtype=dtypes.int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers
        self._count = Count(self.n_averaged, 0)

    def __getstate__(self):
        return {name: value for name, value in super().__getstate__().items() if name != "_count"}

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def update_parameters(self, model):
        """Take the parameters of `model` into the average."""
        mine, theirs = ([*m.parameters(), *m.buffers()] if self.use_buffers else list(m.parameters())
                        for m in (self.module, model))
        pairs = [(a.detach(), b.detach().to(a.device)) for a, b in zip(mine, theirs)]
        number = self.n_averaged
        count = self._count                              # see Note [Step counts] in step_count.py
        if count is None or count.tensor is not number or not count.holds():
            self._count = Count(number, count_in(number))
        with no_grad():
            if self._count.count == 0:
                for averaged, current in pairs:
                    averaged.copy_(current)
            elif self.multi_avg_fn is not None:
                alike = {}
                for averaged, current in pairs:
                    alike.setdefault((averaged.device, averaged.dtype), []).append((averaged, current))
                for found in alike.values():
                    self.multi_avg_fn([a for a, _ in found], [b for _, b in found], number)
            else:
                average = self.avg_fn or get_swa_avg_fn()
                for averaged, current in pairs:
                    averaged.copy_(average(averaged, current, number))
            if not self.use_buffers:
                for averaged, current in zip(self.module.buffers(), model.buffers()):
                    averaged.detach().copy_(current.detach().to(averaged.device))
            self._count.tick()


@no_grad()
def update_bn(loader, model, device=None):
    """Compute the running statistics of all batch norms in `model` anew, in one pass over `loader`."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    momenta = [module.momentum for module in norms]
    was_training = model.training
    for module in norms:
        module.reset_running_stats()
        module.momentum = None                           # every batch counts the same
    model.train()
    for batch in loader:
        batch = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(batch.to(Device(device)) if device is not None else batch)
    for module, momentum in zip(norms, momenta, strict=True):
        module.momentum = momentum
    model.train(was_training)


# --- the learning rate -----------------------------------------------------------------------------------------------


class SWALR(LRScheduler):
    """Takes the rates to `swa_lr` over `anneal_epochs` epochs, along a cosine or a line, and keeps them there."""

    _unsaved = (*LRScheduler._unsaved, "anneal_func")

    def __init__(self, optimizer, swa_lr, anneal_epochs=10, anneal_strategy="cos", last_epoch=-1):
        for rate, group in zip(per_group("swa_lr", swa_lr, optimizer), optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        self.anneal_func = self._cosine_anneal if anneal_strategy == "cos" else self._linear_anneal
        super().__init__(optimizer, last_epoch)

    def _share(self, epoch):
        """How far the rates are on their way at an epoch."""
        return self.anneal_func(max(0, min(1, epoch / max(1, self.anneal_epochs))))

    @staticmethod
    def _linear_anneal(t):
        return t

    @staticmethod
    def _cosine_anneal(t):
        return (1 - math.cos(math.pi * t)) / 2

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        self.anneal_func = self._cosine_anneal if self._anneal_strategy == "cos" else self._linear_anneal

    def get_lr(self):
        _warn_get_lr_called_within_step(self)
        epoch = self._step_count - 1                     # of its own: it may start late in a training
        epoch = max(1, epoch) if self.anneal_epochs == 0 else epoch
        before, now = self._share(epoch - 1), self._share(epoch)
        rates = []
        for group in self.optimizer.param_groups:
            end = group["swa_lr"]
            start = end if before == 1 else (group["lr"] - before * end) / (1 - before)
            rates.append(end * now + start * (1 - now))
        return rates
