"""An optimizer lent to other parameters for a while."""
from collections import defaultdict
from contextlib import contextmanager

from ..autograd.modes import no_grad

FUNCTION_NAME = "swap_in_optimizer_params_and_state"


@contextmanager
def swap_in_optimizer_params_and_state(optimizer, swapin_parameters, swapin_optim_state):
    """Inside, `optimizer` has other parameters, and the state and options of a `state_dict()`; its own again after.

    `swapin_parameters` maps names to tensors in the order of the optimizer's parameters. What a step writes into the
    tensors of `swapin_optim_state` is there afterwards.
    """
    groups, params = optimizer.param_groups, list(swapin_parameters.values())
    saved, state = swapin_optim_state.get("param_groups"), swapin_optim_state.get("state", {})
    if not optimizer.state:
        raise RuntimeError(f"{FUNCTION_NAME} requires initialized optimizer state.")
    if not isinstance(saved, list):
        raise RuntimeError(f"{FUNCTION_NAME} requires swapin_optim_state['param_groups'] to be a list of param-group "
                           f"dicts, got {type(saved).__name__}.")
    if len(saved) != len(groups):
        raise RuntimeError("swapin_optim_state has a different number of parameter groups than the live optimizer: "
                           f"{len(saved)}, and not {len(groups)}.")
    for i, (group, other) in enumerate(zip(groups, saved, strict=True)):
        if len(group["params"]) != len(other["params"]):
            raise RuntimeError(f"swapin_optim_state param group {i} has a different number of params than the live "
                               f"optimizer param group: {len(other['params'])}, and not {len(group['params'])}.")
    numbers = [number for group in saved for number in group["params"]]
    if len(params) < len(numbers):
        raise RuntimeError(f"{FUNCTION_NAME} requires the explicit parameter state to match optimizer.param_groups "
                           f"ordering: {len(params)} parameters were given for {len(numbers)}.")
    extra = [key for key in state if key not in numbers]
    if extra:
        raise RuntimeError(f"{FUNCTION_NAME} requires swapin_optim_state['state'] to be keyed only by packed "
                           f"parameter ids from param_groups[*]['params']; got extra keys {extra}.")
    param_of = dict(zip(numbers, params))
    own = {name: optimizer.__dict__[name] for name in ("param_groups", "state", "_clocks", "_turns")}
    copied = {number: dict(part) for number, part in state.items()}
    optimizer.param_groups = [{**group, "params": [param_of[n] for n in group["params"]]} for group in saved]
    optimizer.state = defaultdict(dict, {param_of[number]: part for number, part in copied.items()})
    optimizer._clocks, optimizer._turns = [], {}
    try:
        yield
    finally:
        optimizer.__dict__.update(own)
        with no_grad():                                  # the counts of steps were put into tensors of our own
            _put_counts_back(state, copied)


def _put_counts_back(state, copied):
    for number, part in state.items():
        step = copied[number].get("step")
        if "step" in part and step is not part["step"]:
            part["step"].copy_(step)
