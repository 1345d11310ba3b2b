"""What all optimizers share: parameter groups, state, hooks, saving and loading, and how steps are counted."""
import functools
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from ..autograd.modes import modes
from ..base import dtypes
from ..base.errors import warn
from ..nn import Module, Parameter
from ..nn.modules.hooks import RemovableHandle
from ..tensor import out_of_memory
from ..tensor.functions import view_as_real
from ..tensor.tensor import Tensor
from ..trace.recording.record import milestone
from ..utils._foreach_utils import _group_tensors_by_device_and_dtype
from ..watch import steps as watched

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]

ParamsT = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]     # what `params` may be
INSTRUCTIONS_WORTH_A_RUN = 8  # instructions that are worth a run of their own at the end of a step
_global_optimizer_pre_hooks: dict = OrderedDict()
_global_optimizer_post_hooks: dict = OrderedDict()
HOOK_TABLES = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks",
               "_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks",
               "_optimizer_load_state_dict_post_hooks")


class _RequiredParameter:
    """Stands for the value of an option that every group has to give."""

    def __repr__(self):
        return "<required parameter>"


required = _RequiredParameter()


# --- what it is given ------------------------------------------------------------------------------------------------


def _module_of(params):
    """The module whose `parameters()` this is, bare or inside of a generator expression, if it has not been
    iterated."""
    while getattr(params, "gi_frame", None) is not None:
        names = params.gi_frame.f_locals
        if hasattr(names.get("self"), "named_modules"):
            return names["self"]
        params = names.get(".0")
    return None


def _why_empty(used_up, module):
    """Why an optimizer was given no parameters, and what to do, as the rest of a sentence."""
    if used_up:
        return ": the iterator over them was used up before. Call parameters() again, or keep a list of them."
    if module is None:
        return ""
    own, count = type(module).__name__, sum(1 for _ in module.parameters())
    if count:
        return f": {own} has {count} parameters, and none of them was let through"
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            found = _unseen(value)
            if found and not name.startswith("_"):
                return f": {own} {found.format(name=f'{path}.{name}'.lstrip('.'))}"
    return f": {own} has no parameters"


def _unseen(value):
    """What is wrong with an attribute of a module that holds layers, or parameters, where the module does not look."""
    if isinstance(value, Tensor) and value.requires_grad:
        return "holds `{name}` as a plain tensor; make it an nn.Parameter"
    container = "Dict" if isinstance(value, dict) else "List"
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple, set)) else ()
    for one in inside:
        if isinstance(one, (Module, Parameter)):
            what = "layers" if isinstance(one, Module) else "parameters"
            better = f"nn.{'Module' if isinstance(one, Module) else 'Parameter'}{container}"
            return f"holds {what} in a plain Python {type(value).__name__}, `{{name}}`; use {better}"
    return None


def _unseen_of(module):
    """(words, weak references to parameters) of what a module and its parts hold where they do not look."""
    found = []
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            words = _unseen(value) if not name.startswith("_") else None
            if words:
                inside = value.values() if isinstance(value, dict) else [value] if isinstance(value, Tensor) else value
                inner = [p for one in inside for p in (one.parameters() if hasattr(one, "parameters") else [one])
                         if isinstance(p, Tensor)]
                found.append((f"{type(module).__name__} {words.format(name=f'{path}.{name}'.lstrip('.'))}",
                              [weakref.ref(p) for p in inner]))
    return found


# --- hooks -----------------------------------------------------------------------------------------------------------


def _registered(hooks, hook, prepend=False):
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook):
    """Call `hook(optimizer, args, kwargs)` before every step of every optimizer."""
    return _registered(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook):
    """Call `hook(optimizer, args, kwargs)` after every step of every optimizer."""
    return _registered(_global_optimizer_post_hooks, hook)


def _use_grad_for_differentiable(step):
    """`step`, run without gradients, or with them where the optimizer is differentiable."""
    @functools.wraps(step)
    def form(self, *args, **kwargs):
        before, modes.grad = modes.grad, bool(self.defaults.get("differentiable", False))
        try:
            return step(self, *args, **kwargs)
        finally:
            modes.grad = before
    return form


# --- the optimizer ---------------------------------------------------------------------------------------------------


def _get_capturable_supported_devices(supports_xla=True):
    """The devices whose graphs can hold an optimizer's step, none of which is here. timm asks."""
    return ["cuda", "xpu", "hpu", "privateuseone", *(["xla"] if supports_xla else [])]


class Optimizer:
    """The base of all optimizers: parameters in groups, each with options, and a state for each parameter.

    `params` are tensors, (name, tensor) pairs, or dictionaries with `params` and the options of one group; `defaults`
    are the options for groups that do not say otherwise. A subclass defines `step`.
    """

    passes_per_step = None    # what `accumulate` declared
    _added = {}               # options that were added in later versions: old checkpoints lack them

    def __init__(self, params, defaults):
        self.defaults = defaults
        self._make_hooks()
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                            f"{params.type()}: put it into a list")
        self.state = defaultdict(dict)
        self.param_groups = []
        if hasattr(params, "parameters") and not isinstance(params, Iterable):
            raise TypeError(f"{type(params).__name__!r} object is not iterable: give the optimizer its parameters()")
        used_up, source = getattr(params, "gi_frame", params) is None, _module_of(params)
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list" + _why_empty(used_up, source))
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)
        if source is not None:
            watched.made(self._watched, source, _unseen_of(source))
        milestone(INSTRUCTIONS_WORTH_A_RUN)       # see Note [First steps]

    def _make_hooks(self):
        for name in HOOK_TABLES:
            self.__dict__.setdefault(name, OrderedDict())
        # Held here as well, so that a recording of a step sees when one of them is registered later.
        self._global_hooks = _global_optimizer_pre_hooks, _global_optimizer_post_hooks
        self._clocks, self._turns = [], {}
        self._watched = watched.number_of(self)
        self._patch_step_function()

    def _patch_step_function(self):
        """Let the class's `step`, the library's or a program's, call the hooks."""
        cls = self.__class__
        if not getattr(cls.step, "hooked", False):
            cls.step = self.profile_hook_step(cls.step)
            cls.step.hooked = True

    _group_tensors_by_device_and_dtype = staticmethod(_group_tensors_by_device_and_dtype)        # timm

    @staticmethod
    def profile_hook_step(func):
        """`func`, a step, with the hooks called before and after it."""
        @functools.wraps(func)
        def wrapper(self, *args, **kwargs):
            for hook in (*_global_optimizer_pre_hooks.values(), *self._optimizer_step_pre_hooks.values()):
                result = hook(self, (self, *args), kwargs)
                if result is not None:
                    if not (isinstance(result, tuple) and len(result) == 2):
                        raise RuntimeError(f"{func} must return None or a tuple of (new_args, new_kwargs), but got "
                                           f"{result}: that is what a hook before a step gives")
                    (self, *args), kwargs = result
            watched.before_step(self._watched)
            out = func(self, *args, **kwargs)
            milestone(INSTRUCTIONS_WORTH_A_RUN, trains=True)
            watched.after_step(self._watched)
            for hook in (*self._optimizer_step_post_hooks.values(), *_global_optimizer_post_hooks.values()):
                hook(self, (self, *args), kwargs)
            return out
        return wrapper

    def register_step_pre_hook(self, hook):
        """Call `hook(optimizer, args, kwargs)` before every step; it may return other (args, kwargs)."""
        return _registered(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook):
        """Call `hook(optimizer, args, kwargs)` after every step."""
        return _registered(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook, prepend=False):
        """Call `hook(optimizer)` before `state_dict`."""
        return _registered(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook, prepend=False):
        """Call `hook(optimizer, state_dict)` after `state_dict`; what it returns takes the place of the result."""
        return _registered(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook, prepend=False):
        """Call `hook(optimizer, state_dict)` before `load_state_dict`; what it returns is loaded instead."""
        return _registered(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook, prepend=False):
        """Call `hook(optimizer)` after `load_state_dict`."""
        return _registered(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    # --- groups ------------------------------------------------------------------------------------------------------

    def add_param_group(self, param_group):
        """Take in one more group: a dictionary with `params`, and options where they differ from the defaults.

        >>> optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)
        >>> optimizer.add_param_group({"params": [torch.ones(3, requires_grad=True)], "lr": 0.01})
        >>> [group["lr"] for group in optimizer.param_groups]
        [0.1, 0.01]
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but the ordering of "
                            "tensors in sets will change between runs. Please use a list instead.")
        params = [params] if isinstance(params, Tensor) else list(params)
        named = [p for p in params if isinstance(p, tuple)]
        if named and len(named) < len(params):
            raise ValueError("all optimizer params should be with/without names. Some param names are missing: "
                             f"{len(named)} of {len(params)} have one")
        if named:
            param_group["params"] = [p for _, p in params]
            param_group["param_names"] = [name for name, _ in params]
        else:
            param_group["params"] = params
        params = param_group["params"]
        self._check_params(params)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError("parameter group didn't specify a value of required optimization parameter "
                                 f"{name}: give it in the group or to the optimizer")
            param_group.setdefault(name, default)
        if len(params) != len({id(p) for p in params}):
            warn("optimizer contains a parameter group with duplicate parameters; in future, this will cause an error; "
                 "see github.com/pytorch/pytorch/issues/40967 for more information")
        known = {id(p) for group in self.param_groups for p in group["params"]}
        if not known.isdisjoint(map(id, params)):
            raise ValueError("some parameters appear in more than one parameter group: parameter "
                             f"{next(i for i, p in enumerate(params) if id(p) in known)} of group "
                             f"{len(self.param_groups)} is in an earlier one")
        if self.param_groups and ("param_names" in param_group) != ("param_names" in self.param_groups[0]):
            raise ValueError("all optimizer param groups should be with/without names. cannot add param group "
                             f"{'with' if named else 'without'} names to the optimizer")
        self.param_groups.append(param_group)

    def _check_params(self, params):
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not self.defaults.get("differentiable") and not (p.is_leaf or p.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor: pass the tensor that it was computed from, or "
                                 "detach() it and ask for gradients with requires_grad_()")

    def zero_grad(self, set_to_none=True):
        """Forget the gradients of all parameters, or fill them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                g = p._grad
                if g is None:
                    continue
                if set_to_none:
                    p.grad = None
                else:
                    if g.grad_fn is not None:
                        g.detach_()
                    else:
                        g.requires_grad_(False)
                    g.zero_()

    def accumulate(self, n):
        """Declare that gradients are meant to add up over `n` backward passes, with steps in between or without.

        Nothing is computed in another way: `flambeau.watch` is silent about gradients that a step has already used, for
        as long as they are sums over at most `n` passes. PyTorch's optimizers have no such method.

        >>> optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)
        >>> optimizer.accumulate(4)
        """
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise ValueError(f"accumulate({n!r}): must be how many backward passes add up, at least 1")
        self.passes_per_step = n

    def step(self, closure=None):
        """Take one step: each optimizer defines its own. `closure` computes the loss anew and returns it."""
        raise NotImplementedError(f"{type(self).__name__} defines no step()")

    # --- saving and loading ------------------------------------------------------------------------------------------

    def state_dict(self):
        """The states and the groups as a dictionary in which parameters are numbers: PyTorch's form."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        numbers, groups = {}, []
        for group in self.param_groups:
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            groups.append({name: value for name, value in group.items() if name != "params"})
            groups[-1]["params"] = [numbers[id(p)] for p in group["params"]]
        state = {numbers[id(key)] if isinstance(key, Tensor) else key: value for key, value in self.state.items()}
        out = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            result = hook(self, out)
            out = out if result is None else result
        return out

    def load_state_dict(self, state_dict):
        """Take over states and groups from `state_dict()` of an optimizer with groups of the same sizes.

        Tensors take the dtype and device of their parameter, the count of steps excepted.
        """
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            result = hook(self, state_dict)
            state_dict = state_dict if result is None else result
        groups, saved = self.param_groups, deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups: "
                             f"{len(saved)}, and the optimizer has {len(groups)}")
        for number, (group, other) in enumerate(zip(groups, saved, strict=True)):
            if len(group["params"]) != len(other["params"]):
                raise ValueError("loaded state dict contains a parameter group that doesn't match the size of "
                                 f"optimizer's group: group {number} has {len(other['params'])} parameters there, and "
                                 f"{len(group['params'])} here")
        params, exact = {}, set()
        for group, other in zip(groups, saved, strict=True):
            params.update(zip(other["params"], group["params"], strict=True))
            if other.get("fused") or other.get("capturable"):
                exact.update(other["params"])
            other["params"] = group["params"]
            if "param_names" in group:
                other.setdefault("param_names", group["param_names"])
        state = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in params:
                state[params[key]] = fitted(params[key], value, key in exact)
            else:
                state[key] = value
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def __getstate__(self):
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._make_hooks()
        for group in self.param_groups:
            for name, default in self._added.items():
                group.setdefault(name, default)

    def __repr__(self):
        lines = [f"{self.__class__.__name__} ("]
        for number, group in enumerate(self.param_groups):
            lines += [""] * (number > 0) + [f"Parameter Group {number}"]
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return "\n".join([*lines, ")"])


def fitted(p, value, exact, name=None):
    """`value`, part of a state, with its tensors as those of parameter `p` have to be."""
    if isinstance(value, Tensor):
        if name == "step":
            return value.to(dtype=dtypes.float32, device=p.device) if exact else value
        return value.to(dtype=p.dtype, device=p.device) if p.is_floating_point() else value.to(device=p.device)
    if isinstance(value, dict):
        return {key: fitted(p, part, exact, key) for key, part in value.items()}
    if isinstance(value, (list, tuple, set)):
        return type(value)(fitted(p, part, exact, name) for part in value)
    return value


# --- for optimizers that are written elsewhere ----------------------------------------------------------------------


def _get_value(x):
    return x.item() if isinstance(x, Tensor) else x


def _default_to_fused_or_foreach(params, differentiable, use_fused=False):
    """Whether to take the (fused, foreach) copy of a rule: there is one rule, so neither."""
    return False, False


def _kept_by(optimizer):
    """The tensors that an optimizer keeps for its parameters."""
    return [value for state in list(optimizer.state.values()) for value in list(state.values())
            if isinstance(value, Tensor)]


out_of_memory.keepers[Optimizer] = _kept_by


StateDict = dict[str, Any]                            # torchao (annotation)
DeviceDict = dict                                     # deepspeed: device → a tensor


def _disable_dynamo_if_unsupported(single_tensor_fn=None):
    """A decorator for functions that may not be compiled, which changes nothing. deepspeed."""
    return lambda function: function


def _view_as_real(params, *state_and_grads):
    """Take views of two real numbers in the place of complex tensors, in these lists. deepspeed."""
    for i, p in enumerate(params):
        if p.is_complex():
            for tensors in (params, *state_and_grads):
                tensors[i] = view_as_real(tensors[i])


def _stack_if_compiling(x):
    """`x`: a compiled function takes it as it is. deepspeed."""
    return x
