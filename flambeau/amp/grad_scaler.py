"""`GradScaler`: multiply the loss so that small gradients survive in float16, and divide them again before the step.

The factor grows while gradients stay finite. A step whose gradients are not is left out, and the factor shrinks.
Nothing here looks at a value, except `step`, which has to know whether to step: one look for each.
"""
from collections import defaultdict
from enum import Enum

from ..autograd.modes import no_grad
from ..backends import devices
from ..base import dtypes
from ..base.errors import warn
from ..tensor.create import tensor as make_tensor
from ..tensor.tensor import Tensor

__all__ = ["GradScaler", "OptState"]


class OptState(Enum):
    """What has been done with an optimizer since the last `update`."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _refresh_per_optimizer_state():
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler:
    """Scales losses, and steps optimizers on the unscaled gradients where all of them are finite.

    >>> weight = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.SGD([weight], lr=0.5)
    >>> scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    >>> scaler.scale(weight.sum()).backward()
    >>> weight.grad
    tensor([4., 4.])
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> weight
    tensor([0.5000, 0.5000], requires_grad=True)
    """

    def __init__(self, device="cuda", init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000,
                 enabled=True):
        self._device = device
        self._enabled = enabled
        if enabled and device in devices.types and not devices.available(device):
            warn(f"torch.{device}.amp.GradScaler is enabled, but {device.upper()} is not available.  Disabling.")
            self._enabled = False
        if not self._enabled:
            return
        if not growth_factor > 1:
            raise AssertionError(f"The growth factor must be > 1.0. It is {growth_factor}.")
        if not backoff_factor < 1:
            raise AssertionError(f"The backoff factor must be < 1.0. It is {backoff_factor}.")
        self._init_scale = init_scale
        self._scale = None                # made by the first `scale`, on the device of what is scaled
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._init_growth_tracker = 0
        self._growth_tracker = None       # how many steps in a row were finite
        self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)

    # --- the three calls of a training step ---------------------------------------------------------------------------

    def scale(self, outputs):
        """`outputs`, a tensor or nested lists and tuples of tensors, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if self._scale is None:
                self._start(outputs.device)
            return outputs * self._scale.to(outputs.device)
        if isinstance(outputs, (list, tuple)):
            parts = [self.scale(part) for part in outputs]
            return type(outputs)._make(parts) if hasattr(outputs, "_fields") else type(outputs)(parts)
        if hasattr(outputs, "__iter__"):
            return map(self.scale, outputs)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer):
        """Divide the gradients of the optimizer's parameters by the scale, now, for code that looks at them."""
        if not self._enabled:
            return
        self._check_started("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        factor = self._scale.double().reciprocal().float()
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, factor, False)
        state["stage"] = OptState.UNSCALED

    def step(self, optimizer, *args, **kwargs):
        """Call `optimizer.step(*args, **kwargs)` unless a gradient is infinite or nan; what it returns."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._check_started("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            return self._hand_over(optimizer, state, args, kwargs)
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        self._check_seen(state)
        made = None
        if not any(found.item() for found in state["found_inf_per_device"].values()):
            made = optimizer.step(*args, **kwargs)
        state["stage"] = OptState.STEPPED
        return made

    def update(self, new_scale=None):
        """Let the scale grow or shrink by what the steps since the last update have found; or set it."""
        if not self._enabled:
            return
        self._check_started("update")
        if new_scale is not None:
            self._set_scale(new_scale)
        else:
            found = [seen.to(self._scale.device) for state in self._per_optimizer_states.values()
                     for seen in state["found_inf_per_device"].values()]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update. Call step() or unscale_() first.")
            with no_grad():
                self._follow(sum(found[1:], found[0]) > 0)
        self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)

    # --- their parts --------------------------------------------------------------------------------------------------

    def _start(self, device):
        self._scale = make_tensor(float(self._init_scale), dtype=dtypes.float32, device=device)
        self._growth_tracker = make_tensor(self._init_growth_tracker, dtype=dtypes.int32, device=device)

    def _check_started(self, what):
        if self._scale is None:
            raise AssertionError(f"Attempted {what} but _scale is None.  This may indicate your script did not use "
                                 "scaler.scale(loss or outputs) earlier in the iteration.")

    def _check_seen(self, state):
        if not state["found_inf_per_device"]:
            raise AssertionError("No inf checks were recorded for this optimizer: none of its parameters has a "
                                 "gradient. Call scaler.scale(loss).backward() first.")

    def _unscale_grads_(self, optimizer, factor, allow_fp16):
        """Multiply the gradients by `factor`, if any; {device: 1.0 if one of them was not finite, else 0.0}."""
        with no_grad():
            return {device: _any_false(fine) for device, fine in _unscaled(optimizer, factor, allow_fp16).items()}

    def _check_inf_per_device(self, optimizer):
        """Look for gradients that are not finite, and leave them as they are."""
        self._check_started("_check_inf_per_device")
        state = self._per_optimizer_states[id(optimizer)]
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, None, True)
        return state["found_inf_per_device"]

    def _hand_over(self, optimizer, state, args, kwargs):
        """Step an optimizer that unscales by itself: from its attributes `grad_scale` and `found_inf`, or, the older
        way, from the scaler itself, which a `step` with an argument `grad_scaler` is given."""
        from inspect import signature
        if state["stage"] is OptState.READY:
            self._check_inf_per_device(optimizer)
        self._check_seen(state)
        unscaled = state["stage"] is OptState.UNSCALED
        if "grad_scaler" in signature(optimizer.step).parameters:
            warn("GradScaler is going to stop passing itself as a keyword argument to the passed optimizer. In the "
                 "near future GradScaler registers `grad_scale: Tensor` and `found_inf: Tensor` to the passed "
                 "optimizer and let the optimizer use them directly.", FutureWarning)
            made = optimizer.step(*args, **{**kwargs, "grad_scaler": self})
            state["stage"] = OptState.STEPPED
            return made
        found = [seen.to(self._scale.device) for seen in state["found_inf_per_device"].values()]
        optimizer.grad_scale = None if unscaled else self._scale
        optimizer.found_inf = sum(found[1:], found[0])
        try:
            made = optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale, optimizer.found_inf
        state["stage"] = OptState.STEPPED
        return made

    def _follow(self, found):
        """The scale and the count of finite steps, after a step of which `found` says whether it was not."""
        run = self._growth_tracker + 1
        grown = self._scale * self._growth_factor
        full = run == self._growth_interval
        up = grown.where(full & grown.isfinite(), self._scale)             # it does not grow past what float32 holds
        self._scale.copy_((self._scale * self._backoff_factor).where(found, up))
        self._growth_tracker.copy_(run.masked_fill(found | full, 0))

    def _set_scale(self, new_scale):
        if isinstance(new_scale, float):
            self._scale.fill_(new_scale)
            return
        if not isinstance(new_scale, Tensor) or new_scale.numel() != 1 or new_scale.requires_grad:
            raise AssertionError("new_scale should be a float or a 1-element torch.cuda.FloatTensor or "
                                 f"torch.FloatTensor with requires_grad=False. It is {new_scale!r}.")
        self._scale.copy_(new_scale)

    # --- what it is set to --------------------------------------------------------------------------------------------

    def get_scale(self):
        """The scale as a Python number."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()

    def _get_scale_async(self):
        return self._scale

    def _get_growth_tracker(self):
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else self._growth_tracker.item()

    def get_growth_factor(self):
        """What the scale is multiplied with after enough finite steps."""
        return self._growth_factor

    def set_growth_factor(self, new_factor):
        """Set what the scale is multiplied with after enough finite steps."""
        self._growth_factor = new_factor

    def get_backoff_factor(self):
        """What the scale is multiplied with after a step that was not finite."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor):
        """Set what the scale is multiplied with after a step that was not finite."""
        self._backoff_factor = new_factor

    def get_growth_interval(self):
        """After how many finite steps in a row the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval):
        """Set after how many finite steps in a row the scale grows."""
        self._growth_interval = new_interval

    def is_enabled(self):
        """Whether it does anything; a disabled one passes everything through."""
        return self._enabled

    def state_dict(self):
        """What a later run needs to go on: the scale, its factors and counts. Empty for a disabled one."""
        if not self._enabled:
            return {}
        return {"scale": self.get_scale(), "growth_factor": self._growth_factor,
                "backoff_factor": self._backoff_factor, "growth_interval": self._growth_interval,
                "_growth_tracker": self._get_growth_tracker()}

    def load_state_dict(self, state_dict):
        """Go on from what `state_dict` gave."""
        if not self._enabled:
            return
        if len(state_dict) == 0:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance "
                               "of GradScaler.")
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._growth_tracker is not None:
            self._growth_tracker.fill_(state_dict["_growth_tracker"])

    def _found_inf_per_device(self, optimizer):
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]

    def __getstate__(self):
        state = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError("A GradScaler instance may only be pickled at the beginning of an iteration, or "
                                     "at the end after scaler.update().")
            # The tensors are made anew, on whatever device the other process has.
            state["_init_scale"], state["_init_growth_tracker"] = self.get_scale(), self._get_growth_tracker()
            state["_scale"] = state["_growth_tracker"] = None
        return state


def _unscaled(optimizer, factor, allow_fp16):
    """Multiply the gradients by `factor`, if any; {device: for each whether it was finite}."""
    fine: dict = {}
    for group in optimizer.param_groups:
        for param in group["params"]:
            grad = param.grad
            if grad is None:
                continue
            if not allow_fp16 and grad.dtype is dtypes.float16:
                raise ValueError("Attempting to unscale FP16 gradients. Keep the parameters in float32 and let "
                                 "autocast use float16.")
            fine.setdefault(grad.device, []).append(grad.isfinite().all())
            if factor is not None:
                grad.mul_(factor.to(grad.device))
    return fine


def _any_false(flags):
    """1.0 if one of the flags is false, else 0.0, as a tensor."""
    all_fine = flags[0]
    for flag in flags[1:]:
        all_fine = all_fine & flag
    return (~all_fine).float()
