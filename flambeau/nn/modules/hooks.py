"""Hooks of modules: registering them, and a call of a module that has some.

A module's own hooks stand in its tables, those for all modules in the tables of this file. Most modules never have a
hook: a table is made when it is first used, and until then a call does not come here (see `Module.__call__`).
"""
import functools
import weakref
from collections import OrderedDict

from ...autograd.function import Function
from ...autograd.modes import modes
from ...base import observers
from ...base.errors import warn
from ...tensor.tensor import Tensor

__all__ = ["BackwardHook", "RemovableHandle", "register_module_backward_hook",
           "register_module_buffer_registration_hook", "register_module_forward_hook",
           "register_module_forward_pre_hook", "register_module_full_backward_hook",
           "register_module_full_backward_pre_hook", "register_module_module_registration_hook",
           "register_module_parameter_registration_hook"]

_global_buffer_registration_hooks: dict = OrderedDict()
_global_module_registration_hooks: dict = OrderedDict()
_global_parameter_registration_hooks: dict = OrderedDict()
_global_backward_pre_hooks: dict = OrderedDict()
_global_backward_hooks: dict = OrderedDict()
_global_is_full_backward_hook = None          # of which kind the hooks for all modules are; None before there is one
_global_forward_pre_hooks: dict = OrderedDict()
_global_forward_hooks: dict = OrderedDict()
_global_forward_hooks_always_called: dict = OrderedDict()
_global_forward_hooks_with_kwargs: dict = OrderedDict()


class RemovableHandle:
    """What registering a hook returns: `remove()` takes the hook out again; as a context, it does so at the end.

    A copy of a module holds copies of its handles, which remove the hooks of the copy.
    """

    next_id = 0

    def __init__(self, hooks_dict, *, extra_dict=None):
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        extra = () if extra_dict is None else extra_dict if isinstance(extra_dict, (list, tuple)) else (extra_dict,)
        self.tables = tuple(weakref.ref(table) for table in (hooks_dict, *extra))

    def remove(self):
        """Take the hook out."""
        for table in self.tables:
            hooks = table()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __getstate__(self):
        first, *others = (table() for table in self.tables)
        return first, self.id, tuple(others)                 # as in PyTorch's files

    def __setstate__(self, state):
        first, self.id, *others = state                      # files from before PyTorch 2.0 have no others
        tables = (first, *(others[0] or () if others else ()))
        self.tables = tuple(weakref.ref(table) for table in tables if table is not None)
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.remove()


def add_hook(table, hook, prepend=False, marks=()):
    """Put `hook` into `table`, first if it is to be; `marks` are (table, whether it is marked there)."""
    handle = RemovableHandle(table, extra_dict=[other for other, _ in marks])
    table[handle.id] = hook
    for other, wanted in marks:
        if wanted:
            other[handle.id] = True
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle


class Table:
    """A table of hooks of a module, made when it is first asked for; `of_call`: whether calls have to look at it."""

    def __init__(self, of_call):
        self.of_call = of_call

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, module, owner=None):
        if module is None:
            return self
        own = module.__dict__
        own[self.name] = made = OrderedDict()
        if self.of_call:
            own["_has_hooks"] = True
        return made


def hooks_in(module, name):
    """The hooks that a module has in one of its tables, which is not made for that."""
    return module.__dict__.get(name, _NONE).values()


_NONE: dict = {}


class _WrappedHook:
    """A hook that is handed its module first, which it does not keep alive."""

    def __init__(self, hook, module=None):
        self.hook = hook
        functools.update_wrapper(self, hook)
        self.with_module = module is not None
        if self.with_module:
            self.module = weakref.ref(module)

    def __call__(self, *args, **kwargs):
        if not self.with_module:
            return self.hook(*args, **kwargs)
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self):
        return {"hook": self.hook, "with_module": self.with_module,
                "module": self.module() if self.with_module else None}

    def __setstate__(self, state):
        self.hook, self.with_module = state["hook"], state["with_module"]
        if self.with_module:
            if state["module"] is None:
                raise RuntimeError("You are trying to revive the hook of a dead Module!")
            self.module = weakref.ref(state["module"])


# --- for all modules ------------------------------------------------------------------------------------------------


def register_module_parameter_registration_hook(hook):
    """Call `hook(module, name, parameter)` whenever a parameter is registered; what it returns is registered."""
    return add_hook(_global_parameter_registration_hooks, hook)


def register_module_buffer_registration_hook(hook):
    """Call `hook(module, name, buffer)` whenever a buffer is registered; what it returns is registered."""
    return add_hook(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook):
    """Call `hook(module, name, submodule)` whenever a submodule is registered; what it returns is registered."""
    return add_hook(_global_module_registration_hooks, hook)


def register_module_forward_pre_hook(hook):
    """Call `hook(module, args)` before the forward of every module."""
    return add_hook(_global_forward_pre_hooks, hook)


def register_module_forward_hook(hook, *, with_kwargs=False, always_call=False):
    """Call `hook(module, args, output)` after the forward of every module."""
    return add_hook(_global_forward_hooks, hook, marks=[(_global_forward_hooks_with_kwargs, with_kwargs),
                                                        (_global_forward_hooks_always_called, always_call)])


def register_module_backward_hook(hook):
    """Call `hook(module, grad_input, grad_output)` at the last node of every module. Prefer the full hook."""
    return _add_global_backward(hook, False)


def register_module_full_backward_pre_hook(hook):
    """Call `hook(module, grad_output)` before the backward of every module."""
    return add_hook(_global_backward_pre_hooks, hook)


def register_module_full_backward_hook(hook):
    """Call `hook(module, grad_input, grad_output)` after the backward of every module."""
    return _add_global_backward(hook, True)


def _add_global_backward(hook, full):
    global _global_is_full_backward_hook
    if _global_is_full_backward_hook is (not full):
        raise RuntimeError("Cannot use both regular backward hooks and full backward hooks as a global Module hook. "
                           "Please use only one of them.")
    _global_is_full_backward_hook = full
    return add_hook(_global_backward_hooks, hook)


def registered(hooks, module, name, thing):
    """What is to be registered once the `hooks` of registration have seen it."""
    for hook in hooks.values():
        made = hook(module, name, thing)
        if made is not None:
            thing = made
    return thing


# --- backward hooks -------------------------------------------------------------------------------------------------


class BackwardHookFunction(Function):
    """Tensors as they are, by way of one node, so that their gradients are seen together."""

    own_backward = False

    @staticmethod
    def forward(ctx, *args):
        ctx.mark_non_differentiable(*[a for a in args if not a.requires_grad])
        return args

    @staticmethod
    def backward(ctx, *args):
        return args


class BackwardHook:
    """Calls the full backward hooks of one call of a module, between the gradients of its outputs and its inputs."""

    def __init__(self, module, user_hooks, user_pre_hooks):
        self.module, self.user_hooks, self.user_pre_hooks = module, user_hooks, user_pre_hooks
        self.grad_outputs = None        # while a backward is between the outputs and the inputs

    def setup_input_hook(self, args):
        """`args` so that the hooks are called when the gradients of the tensors among them are complete."""
        self.n_inputs = len(args)
        args, self.inputs = _watched(args, self._at_inputs)
        return args

    def setup_output_hook(self, result):
        """`result` so that the gradients that come to its tensors are noted."""
        several = isinstance(result, tuple)
        result = result if several else (result,)
        self.n_outputs = len(result)
        result, self.outputs = _watched(result, self._at_outputs)
        return result if several else result[0]

    def _at_outputs(self, _, grads):
        grads = _spread(grads, self.outputs, self.n_outputs)
        for hook in self.user_pre_hooks:
            made = hook(self.module, grads)
            if made is not None:
                if len(made) != len(grads):
                    raise RuntimeError("Backward pre hook returned an invalid number of grad_output, got "
                                       f"{len(made)}, but expected {len(grads)}")
                grads = made
        if self.inputs is not None:
            self.grad_outputs = grads
        else:
            self._without_inputs(grads)
        return tuple(grads[at] for at in self.outputs)

    def _without_inputs(self, grads):
        """No input wants a gradient, so nothing comes after the outputs."""
        warn("Full backward hook is firing when gradients are computed with respect to module outputs since no inputs "
             "require gradients. See "
             "https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module.register_full_backward_hook"
             " for more details.")
        for hook in self.user_hooks:
            made = hook(self.module, (None,) * self.n_inputs, grads)
            if made is not None and not (isinstance(made, tuple) and all(g is None for g in made)):
                raise RuntimeError("Backward hook for Modules where no input requires gradient should always return "
                                   "None or None for all gradients.")

    def _at_inputs(self, grads, _):
        if self.grad_outputs is None:           # the gradient came by another way than the outputs: a double backward
            return None
        grads = _spread(grads, self.inputs, self.n_inputs)
        for hook in self.user_hooks:
            made = hook(self.module, grads, self.grad_outputs)
            if made is not None:
                if len(made) != len(grads):
                    raise RuntimeError("Backward hook returned an invalid number of grad_input, got "
                                       f"{len(made)}, but expected {len(grads)}")
                grads = made
        self.grad_outputs = None
        return tuple(grads[at] for at in self.inputs)


def _watched(args, hook):
    """`args` with its tensors led through a node that calls `hook`, and where they stand; None if none is tracked."""
    at = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
    if not modes.grad or not any(args[i].requires_grad for i in at):
        return args, None
    made = BackwardHookFunction.apply(*[args[i] for i in at])
    next(t.grad_fn for t in made if t.grad_fn is not None).register_hook(hook)
    parts = list(args)
    for i, tensor in zip(at, made, strict=True):
        parts[i] = tensor
    return type(args)._make(parts) if hasattr(args, "_fields") else tuple(parts), at


def _spread(grads, at, n):
    """`grads` at the positions `at` of `n`, None elsewhere."""
    out = [None] * n
    for i, g in zip(at, grads, strict=True):
        out[i] = g
    return tuple(out)


def _add_legacy(module, hooks, args, result):
    """Hang `hooks` on the node of the first tensor in `result`: the gradients of that node are all they see."""
    found = result
    while not isinstance(found, Tensor):
        found = next(v for v in found.values() if isinstance(v, Tensor)) if isinstance(found, dict) else found[0]
    node = found.grad_fn
    if node is not None:
        for hook in hooks:
            node.register_hook(_WrappedHook(hook, module))
        why = _what_it_misses(args, result, node)
        if why is not None:
            warn(f"Using {'a non-full backward hook' if why.startswith('when') else 'non-full backward hooks'} {why} "
                 "Please use register_full_backward_hook to get the documented behavior.", FutureWarning)


def _what_it_misses(args, result, node):
    """Why a hook on `node` sees other gradients than those of the module; None if it sees them all."""
    over = "is deprecated and will be removed in future versions. This hook will be missing some"
    outs = (result,) if isinstance(result, Tensor) else result
    ins = (args,) if isinstance(args, Tensor) else args
    if not (isinstance(outs, tuple) and all(isinstance(out, Tensor) for out in outs)):
        return f"on a Module that does not return a single Tensor or a tuple of Tensors {over} of the grad_output."
    if not (isinstance(ins, tuple) and all(isinstance(a, Tensor) for a in ins)):
        return (f"on a Module that does not take as input a single Tensor or a tuple of Tensors {over} of the "
                "grad_input.")
    made_by = {out.grad_fn for out in outs if out.grad_fn is not None}
    if len(made_by) > 1:
        return f"when outputs are generated by different autograd Nodes {over} grad_output."
    if made_by != {node}:
        return f"when outputs are nested in python data structure {over} grad_output."
    if {a.grad_fn for a in ins if a.grad_fn is not None} != {parent for parent, _ in node.next_functions}:
        return f"when the forward contains multiple autograd Nodes {over} grad_input."
    return None


# --- a module's own, and its call -----------------------------------------------------------------------------------


CALL_TABLES = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


class Hooked:
    """The part of a module that is about hooks of its call."""

    _forward_pre_hooks, _forward_hooks, _backward_pre_hooks, _backward_hooks = (Table(True) for _ in range(4))
    _forward_pre_hooks_with_kwargs, _forward_hooks_with_kwargs, _forward_hooks_always_called = (
        Table(False) for _ in range(3))
    _is_full_backward_hook = None        # of which kind its backward hooks are; None before there is one

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """Call `hook(module, args)` before each forward; what it returns replaces the arguments.

        With `with_kwargs` it is `hook(module, args, kwargs)`, and may return both.
        """
        return add_hook(self._forward_pre_hooks, hook, prepend, [(self._forward_pre_hooks_with_kwargs, with_kwargs)])

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """Call `hook(module, args, output)` after each forward; what it returns replaces the output.

        With `with_kwargs` it is `hook(module, args, kwargs, output)`; with `always_call` it is called even if the
        forward raises.

        >>> layer = torch.nn.Linear(2, 3)
        >>> with layer.register_forward_hook(lambda module, args, out: out.shape):
        ...     layer(torch.ones(1, 2))
        torch.Size([1, 3])
        """
        return add_hook(self._forward_hooks, hook, prepend, [(self._forward_hooks_with_kwargs, with_kwargs),
                                                             (self._forward_hooks_always_called, always_call)])

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """Call `hook(module, grad_output)` when the gradients of the outputs are there; it may return others."""
        return add_hook(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook, prepend=False):
        """Call `hook(module, grad_input, grad_output)` when the gradients of the inputs are there too.

        What it returns replaces `grad_input`.
        """
        return self._add_backward(hook, True, prepend)

    def register_backward_hook(self, hook):
        """Call `hook(module, grad_input, grad_output)` at the node that made the output. Prefer the full hook."""
        return self._add_backward(hook, False, False)

    def _add_backward(self, hook, full, prepend):
        if self._is_full_backward_hook is (not full):
            raise RuntimeError("Cannot use both regular backward hooks and full backward hooks on a single Module. "
                               "Please use only one of them.")
        self._is_full_backward_hook = full
        return add_hook(self._backward_hooks, hook, prepend)

    def _hooks_left(self):
        """Whether there is still a hook in a table that calls look at."""
        return self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks

    def _get_backward_hooks(self):
        """The backward hooks: (full ones, others), those for all modules first."""
        hooks_if_full = {True: [], False: [], None: []}
        hooks_if_full[_global_is_full_backward_hook] += _global_backward_hooks.values()
        hooks_if_full[self._is_full_backward_hook] += self._backward_hooks.values()
        return hooks_if_full[True], hooks_if_full[False]

    def _get_backward_pre_hooks(self):
        return [*_global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]


def call_hooked(module, args, kwargs):
    """Call the forward of a module with all its hooks and those for all modules."""
    result, told = None, set()
    try:
        pre_hooks = module._get_backward_pre_hooks()
        full_hooks, legacy_hooks = module._get_backward_hooks()
        for at, hook in (*_global_forward_pre_hooks.items(), *module._forward_pre_hooks.items()):
            args, kwargs = _before(module, at, hook, args, kwargs)
        watch = BackwardHook(module, full_hooks, pre_hooks) if full_hooks or pre_hooks else None
        if watch is not None:
            args = watch.setup_input_hook(args)
        result = module.forward(*args, **kwargs)
        for at, hook in (*_global_forward_hooks.items(), *module._forward_hooks.items()):
            told.add(at)
            made = _after(module, at, hook, args, kwargs, result)
            if made is not None:
                result = made
        if watch is not None:
            if not isinstance(result, (Tensor, tuple)):
                warn("For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but "
                     f"received {type(result)}")
            result = watch.setup_output_hook(result)
        if legacy_hooks:
            _add_legacy(module, legacy_hooks, args, result)
        return result
    except Exception:
        _tell_of_failure(module, args, kwargs, result, told)
        raise


def _before(module, at, hook, args, kwargs):
    """The arguments after a pre-hook has seen them."""
    if at not in module._forward_pre_hooks_with_kwargs:
        made = hook(module, args)
        return args if made is None else made if isinstance(made, tuple) else (made,), kwargs
    made = hook(module, args, kwargs)
    if made is None:
        return args, kwargs
    if not isinstance(made, tuple) or len(made) != 2:
        raise RuntimeError("forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got "
                           f"{made}.")
    return made


def _after(module, at, hook, args, kwargs, result):
    if at in module._forward_hooks_with_kwargs or at in _global_forward_hooks_with_kwargs:
        return hook(module, args, kwargs, result)
    return hook(module, args, result)


def _tell_of_failure(module, args, kwargs, result, told):
    """Call the hooks that are always called and were not yet. What they raise must not hide the first error."""
    for where, hooks, always in (("global module", _global_forward_hooks, _global_forward_hooks_always_called),
                                ("module", module._forward_hooks, module._forward_hooks_always_called)):
        for at, hook in hooks.items():
            if at in always and at not in told:
                try:
                    made = _after(module, at, hook, args, kwargs, result)
                    result = result if made is None else made
                except Exception as error:
                    warn(f"{where} forward hook with ``always_call=True`` raised an exception that was silenced as "
                         f"another error was raised in forward: {error}")


# --- observers --------------------------------------------------------------------------------------------------------

_observing: list = []         # the handles of the hooks that tell observers, while there is an observer


def _observe():
    """The first observer of modules came, or the last has gone."""
    if observers.module_began is None and observers.module_ended is None:
        while _observing:
            _observing.pop().remove()
    elif not _observing:
        _observing.append(register_module_forward_pre_hook(observers.tell_module_began))
        _observing.append(register_module_forward_hook(observers.tell_module_ended, always_call=True))


observers.on_change.append(_observe)
