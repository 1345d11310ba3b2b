"""`Module`: a tree of layers with their parameters, buffers and hooks.

Parameters, buffers and submodules stand in three dictionaries of the module, and are found from there when they are
asked for as attributes. What concerns hooks is in hooks.py, saving and loading in state.py.
"""
from collections import OrderedDict
from importlib import import_module

from ...autograd.modes import no_grad
from ...base import dtypes
from ...base.errors import warn
from ...base.names import near
from ...base.op import door
from ...base.spec import device as device_type
from ...tensor.about import typename
from ...tensor.functions import empty_like
from ...tensor.overrides import is_tensor_like
from ...tensor.tensor import Tensor
from ...trace.shared_memory import share
from ..parameter import Buffer, Parameter, is_lazy
from .hooks import (  # noqa: F401 (programs look for all of them here)
    CALL_TABLES,
    BackwardHook,
    Hooked,
    RemovableHandle,
    Table,
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_buffer_registration_hooks,
    _global_forward_hooks,
    _global_forward_hooks_always_called,
    _global_forward_hooks_with_kwargs,
    _global_forward_pre_hooks,
    _global_module_registration_hooks,
    _global_parameter_registration_hooks,
    _WrappedHook,
    call_hooked,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
    registered,
)
from .state import _EXTRA_STATE_KEY_SUFFIX, Stateful, _IncompatibleKeys  # noqa: F401

__all__ = ["Module", "register_module_backward_hook", "register_module_buffer_registration_hook",
           "register_module_forward_hook", "register_module_forward_pre_hook", "register_module_full_backward_hook",
           "register_module_full_backward_pre_hook", "register_module_module_registration_hook",
           "register_module_parameter_registration_hook"]


def note_module(error, module):
    """Say with an error in which module it was raised: on its way out each module adds its own name to the path."""
    door.noticed("error_raised", error)
    inner = getattr(error, "_in_module", None)
    name = type(module).__name__
    if inner is None:
        path, words = "", f"{module._get_name()}({module.extra_repr()})" if not module._modules else name
    else:
        child, path, words, note = inner
        found = next((key for key, part in module._modules.items() if part is child), None)
        if found is None:                                    # called through a reference that is not kept
            return
        path = f".{found}{path}"
        error.__notes__ = [other for other in getattr(error, "__notes__", ()) if other is not note]
    note = f"in {name}{path}: {words}" if path else f"in {words}"
    error._in_module = module, path, words, note
    error.add_note(note)


class Module(Hooked, Stateful):
    """The base of all layers and networks: subclass it, make the parts in `__init__`, and write `forward`.

    >>> class Net(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.inner = torch.nn.Linear(3, 4)
    ...         self.scale = torch.nn.Parameter(torch.ones(4))
    ...     def forward(self, x):
    ...         return self.inner(x) * self.scale
    >>> net = Net()
    >>> net
    Net(
      (inner): Linear(in_features=3, out_features=4, bias=True)
    )
    >>> [name for name, _ in net.named_parameters()]
    ['scale', 'inner.weight', 'inner.bias']
    """

    # With types, as PyTorch has them: fastai asks a loss function, which is a module, for its type hints.
    dump_patches: bool = False
    training: bool
    call_super_init: bool = False    # whether __init__ hands its arguments on to the next class
    _compiled_call_impl = None
    _added: dict = {}                # attributes that came in later versions of PyTorch: old files of modules lack them

    def __init__(self, *args, **kwargs):
        if not self.call_super_init:
            if kwargs:
                raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument "
                                f"'{next(iter(kwargs))}'")
            if args:
                raise TypeError(f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} "
                                "were given")
        own = self.__dict__
        own["training"] = True
        own["_parameters"], own["_buffers"], own["_modules"] = {}, {}, {}
        own["_non_persistent_buffers_set"] = set()
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # --- being called ---

    def forward(self, *input):
        """What a call of the module does; every subclass has its own."""
        meant = near("forward", [name for name in vars(type(self)) if callable(getattr(self, name))])
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function'
                                  + (f"; it has `{meant}`, which is near" if meant else ""))

    def _call_impl(self, *args, **kwargs):
        if "_has_hooks" in self.__dict__ and self._hooks_left() or _global_forward_hooks or _global_forward_pre_hooks \
                or _global_backward_hooks or _global_backward_pre_hooks:
            return call_hooked(self, args, kwargs)
        return self.forward(*args, **kwargs)

    def __call__(self, *args, **kwargs):
        # The common case of _call_impl, short: a further Python call would cost as much as all the rest of it.
        try:
            if "_has_hooks" in self.__dict__ or self._compiled_call_impl is not None or _global_forward_hooks \
                    or _global_forward_pre_hooks or _global_backward_hooks or _global_backward_pre_hooks:
                return (self._compiled_call_impl or self._call_impl)(*args, **kwargs)
            return self.forward(*args, **kwargs)
        except Exception as error:
            note_module(error, self)
            raise

    _wrapped_call_impl = __call__

    def compile(self, *args, **kwargs):
        """Compile the module's call in place, with the arguments of `torch.compile`."""
        # The compiler stands above the modules, so it is looked up only here.
        found = import_module(".compiler", __name__.partition(".")[0])
        self._compiled_call_impl = found.compile(self._call_impl, *args, **kwargs)

    # --- attributes ---

    def __getattr__(self, name):
        own = self.__dict__
        if "_modules" in own:                # else Module.__init__() has not run yet
            group = own["_parameters"]
            if name in group:
                return group[name]
            group = own["_modules"]
            if name in group:
                return group[name]
            group = own["_buffers"]
            if name in group:
                return group[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self)

    def __setattr__(self, name, value):
        own = self.__dict__
        params, modules, buffers = own.get("_parameters"), own.get("_modules"), own.get("_buffers")
        tensor = isinstance(value, Tensor)        # first, as it is much quicker to ask
        if tensor and isinstance(value, Parameter):
            if params is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._take_out(name, own, buffers, modules)
            self.register_parameter(name, value)
        elif params is not None and name in params:
            if value is not None:
                raise TypeError(f"cannot assign '{typename(value)}' as parameter '{name}' (torch.nn.Parameter or None "
                                "expected)")
            self.register_parameter(name, None)
        elif isinstance(value, Module):
            if modules is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._take_out(name, own, params, buffers)
            modules[name] = registered(_global_module_registration_hooks, self, name, value)
        elif modules is not None and name in modules:
            if value is not None:
                raise TypeError(f"cannot assign '{typename(value)}' as child module '{name}' (torch.nn.Module or None "
                                "expected)")
            modules[name] = registered(_global_module_registration_hooks, self, name, None)
        elif buffers is not None and name in buffers or tensor and isinstance(value, Buffer):
            self._set_buffer(name, value)
        else:
            object.__setattr__(self, name, value)

    def _take_out(self, name, *groups):
        for group in groups:
            group.pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def _set_buffer(self, name, value):
        if value is not None and not is_tensor_like(value):
            raise TypeError(f"cannot assign '{typename(value)}' as buffer '{name}' (torch.nn.Buffer, torch.Tensor or "
                            "None expected)")
        persistent = value.persistent if isinstance(value, Buffer) else name not in self._non_persistent_buffers_set
        if type(self).register_buffer is not Module.register_buffer:
            from inspect import signature
            if "persistent" not in signature(self.register_buffer).parameters:
                if not persistent:
                    raise RuntimeError("Registering a non-persistent buffer on a Module subclass that implements "
                                       "register_buffer() without the persistent argument is not allowed.")
                return self.register_buffer(name, value)
        self.register_buffer(name, value, persistent)

    def __delattr__(self, name):
        if name in self._parameters:
            del self._parameters[name]
        elif name in self._buffers:
            del self._buffers[name]
            self._non_persistent_buffers_set.discard(name)
        elif name in self._modules:
            del self._modules[name]
        else:
            object.__delattr__(self, name)

    def __dir__(self):
        names = (*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers)
        return sorted(name for name in names if not name[0].isdigit())        # "0" cannot be written as an attribute

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "_compiled_call_impl"}

    def _state_for_files(self, state):
        """`state` with all tables of hooks, which PyTorch's modules hold even if they are empty."""
        tables = {name: OrderedDict() for cls in (Hooked, Stateful) for name, value in vars(cls).items()
                  if isinstance(value, Table)}
        made = {**tables, "_is_full_backward_hook": None, **state}
        made.pop("_has_hooks", None)
        return made

    def __setstate__(self, state):
        own = self.__dict__
        own.update(state)
        own.setdefault("_non_persistent_buffers_set", set())
        for name, default in self._added.items():
            own.setdefault(name, default)
        own.pop("_has_hooks", None)
        for name in CALL_TABLES:             # a module out of a file of PyTorch's holds all tables, empty as they are
            if name in own:
                if own[name]:
                    own["_has_hooks"] = True
                else:
                    del own[name]

    # --- registering ---

    def register_parameter(self, name, param):
        """Make `param` a parameter of the module under `name`; None keeps the place."""
        self._check_name(name, "parameter", "_parameters")
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(f"cannot assign '{typename(param)}' object to parameter '{name}' (torch.nn.Parameter "
                                "or None required)")
            if param.grad_fn is not None:
                raise ValueError(f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                                 f"created explicitly. To express '{name}' as a function of another Tensor, compute "
                                 "the value in the forward() method.")
            param = registered(_global_parameter_registration_hooks, self, name, param)
        self._parameters[name] = param

    def register_buffer(self, name, tensor, persistent=True):
        """Make `tensor` state of the module that is not trained; one that is not `persistent` is not saved."""
        self._check_name(name, "buffer", "_buffers")
        if tensor is not None and not is_tensor_like(tensor):
            raise TypeError(f"cannot assign '{typename(tensor)}' object to buffer '{name}' (torch Tensor or None "
                            "required)")
        self._buffers[name] = registered(_global_buffer_registration_hooks, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name, module):
        """Make `module` a submodule under `name`; None keeps the place."""
        if module is not None and not isinstance(module, Module):
            fix = (f"; make one: {module.__name__}(…)" if isinstance(module, type) and issubclass(module, Module) else
                   "; a function is called in forward(), or there is a Module for it, as nn.ReLU() is for relu"
                   if callable(module) else "")
            raise TypeError(f"{typename(module)} is not a Module subclass{fix}")
        self._check_name(name, "module", "_modules")
        self._modules[name] = registered(_global_module_registration_hooks, self, name, module)

    def register_module(self, name, module):
        """The same as `add_module`."""
        self.add_module(name, module)

    def _check_name(self, name, what, group):
        if group not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {typename(name)}")
        if "." in name:
            raise KeyError(f"{what} name can't contain \".\", got: {name}")
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')
        if name not in self.__dict__[group] and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    # --- looking up by path ---

    def get_submodule(self, target):
        """The submodule at the dotted path `target`; the module itself for ""."""
        found = self
        for name in target.split(".") if target else ():
            found = _part(found, name)
            if not isinstance(found, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return found

    def set_submodule(self, target, module, strict=False):
        """Put `module` at the dotted path `target`; with `strict`, only where there is one already."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if (strict or hasattr(parent, name)) and not isinstance(_part(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target):
        """The parameter at the dotted path `target`."""
        path, _, name = target.rpartition(".")
        found = _part(self.get_submodule(path), name)
        if not isinstance(found, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return found

    def get_buffer(self, target):
        """The buffer at the dotted path `target`."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        found = _part(module, name)
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return found

    # --- walking the tree ---

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """(path, module) of the module itself and of all below it, each module once unless told otherwise."""
        memo = set() if memo is None else memo
        walks = [("", iter([(prefix, self)]))]
        while walks:
            path, walk = walks[-1]
            for name, module in walk:
                if module is None or module in memo:
                    continue
                if remove_duplicate:
                    memo.add(module)
                name = path + name
                yield name, module
                walks.append((f"{name}." if name else "", iter(module._modules.items())))
                break
            else:
                walks.pop()

    def modules(self, remove_duplicate=True):
        """The module itself and all below it."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self):
        """(name, module) of the modules directly below, each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self):
        """The modules directly below."""
        for _, module in self.named_children():
            yield module

    def _named_members(self, get_members_fn, prefix="", recurse=True, remove_duplicate=True):
        """(path, member) of what `get_members_fn(module)` lists for the module and all below it."""
        seen = set()
        walk = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in walk:
            for name, member in get_members_fn(module):
                if member is None or member in seen:
                    continue
                if remove_duplicate:
                    seen.add(member)
                yield f"{path}.{name}" if path else name, member

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        """(path, parameter) of the module's own parameters and those of all below it."""
        return self._named_members(lambda module: module._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse=True):
        """The module's own parameters and those of all below it."""
        if recurse and _is_walked_as_usual(self):
            yield from _parameters_below(self)               # without names, which take most of the time
        else:
            for _, param in self.named_parameters(recurse=recurse):
                yield param

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        """(path, buffer) of the module's own buffers and those of all below it."""
        return self._named_members(lambda module: module._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        """The module's own buffers and those of all below it."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def apply(self, fn):
        """Call `fn` with every module below and then with this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # --- changing all tensors ---

    def _apply(self, fn, recurse=True):
        """Replace every parameter, gradient and buffer by `fn` of it; parameters stay the same objects."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, param in self._parameters.items():
            if param is None:
                continue
            grad = param.grad
            with no_grad():
                made = fn(param)
                made_grad = None if grad is None else fn(grad)
            if made.is_meta == param.is_meta:
                param.data = made
            else:                            # contents that come or go make another tensor, as in PyTorch
                param = self._parameters[name] = Parameter(made, param.requires_grad)
                grad = None
            if grad is not None:
                grad.data = made_grad
            elif made_grad is not None:
                param.grad = made_grad.requires_grad_(False)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self, *args, **kwargs):
        """Move to a device, convert floating parameters and buffers to a dtype, or change the memory format.

        Written `to(device)`, `to(dtype)`, `to(device, dtype)`, `to(tensor)` or `to(memory_format=...)`.

        >>> torch.nn.Linear(1, 1).to(torch.float64).weight.dtype
        torch.float64
        """
        device, dtype, non_blocking, memory_format = _to_arguments(*args, **kwargs)
        if dtype is not None:
            if not (dtype.is_floating_point or dtype.is_complex):
                raise TypeError("nn.Module.to only accepts floating point or complex dtypes, but got desired "
                                f"dtype={dtype}")
            if dtype.is_complex:
                warn("Complex modules are a new feature under active development whose design may change, and some "
                     "modules might not work as expected when using complex tensors as parameters or buffers.")

        def convert(t):
            if t.is_meta and device is not None and device.type != "meta":
                raise NotImplementedError("Cannot copy out of meta tensor; no data! Please use "
                                          "torch.nn.Module.to_empty() instead of torch.nn.Module.to() when moving "
                                          "module from meta to a different device.")
            dtype_wanted = dtype if t.is_floating_point() or t.is_complex() else None
            if memory_format is not None and t.dim() in (4, 5):
                return t.to(device, dtype_wanted, non_blocking, memory_format=memory_format)
            return t.to(device, dtype_wanted, non_blocking)
        return self._apply(convert)

    def _to_floating(self, dtype):
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self):
        """Convert floating parameters and buffers to float32."""
        return self._to_floating(dtypes.float32)

    def double(self):
        """Convert floating parameters and buffers to float64."""
        return self._to_floating(dtypes.float64)

    def half(self):
        """Convert floating parameters and buffers to float16."""
        return self._to_floating(dtypes.float16)

    def bfloat16(self):
        """Convert floating parameters and buffers to bfloat16."""
        return self._to_floating(dtypes.bfloat16)

    def type(self, dst_type):
        """Convert all parameters and buffers to `dst_type`."""
        return self._apply(lambda t: t.type(dst_type))

    def cpu(self):
        """Move to the CPU."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device=None):
        """Move to a CUDA device."""
        return self._apply(lambda t: t.cuda(device))

    def to_empty(self, *, device, recurse=True):
        """Move to `device` without the contents: parameters and buffers are there uninitialised."""
        return self._apply(lambda t: empty_like(t, device=device), recurse=recurse)

    def share_memory(self):
        """Put parameters and buffers where other processes see them: all of them in one piece of memory."""
        tensors = [t for p in self.parameters() for t in (p, p.grad) if t is not None] + list(self.buffers())
        for t in tensors:
            if is_lazy(t):
                t.share_memory_()                 # which refuses it, before anything is shared
        share([t._storage for t in tensors])
        return self

    def requires_grad_(self, requires_grad=True):
        """Ask, or no longer ask, for gradients of all parameters."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        """Forget the gradients of all parameters; without `set_to_none`, fill them with zeros."""
        for param in self.parameters():
            if set_to_none:
                param._grad = None
            elif param.grad is not None:
                if param.grad.grad_fn is not None:
                    param.grad.detach_()
                else:
                    param.grad.requires_grad_(False)
                param.grad.zero_()

    def train(self, mode=True):
        """Set training mode, or evaluation mode, here and below: it matters to dropout, batch norm and the like."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self):
        """Set evaluation mode here and below."""
        return self.train(False)

    # --- text ---

    def _get_name(self):
        return type(self).__name__

    def extra_repr(self):
        """What stands between the parentheses when the module is printed."""
        return ""

    def __repr__(self):
        own = self.extra_repr()
        lines = own.split("\n") if own else []
        if len(lines) < 2 and not self._modules:
            return f"{self._get_name()}({own})"
        lines += [f"({name}): {_addindent(repr(module), 2)}" for name, module in self._modules.items()]
        return "\n  ".join([f"{self._get_name()}(", *lines]) + "\n)"


def _addindent(s_, numSpaces):
    """`s_` with all lines but the first moved to the right."""
    first, *rest = s_.split("\n")
    return "\n".join([first, *(" " * numSpaces + line if line.strip() else "" for line in rest)])


def _is_walked_as_usual(module):
    """Whether a module has none of its own of the methods by which parameters are found."""
    cls, own = type(module), module.__dict__
    return (cls.named_parameters is Module.named_parameters and cls._named_members is Module._named_members
            and cls.named_modules is Module.named_modules and "named_parameters" not in own
            and "_named_members" not in own and "named_modules" not in own)


def _parameters_below(module):
    """The parameters of a module and of all below it, each once, in the order of `named_parameters`."""
    known, seen, stack = set(), set(), [module]
    while stack:
        one = stack.pop()
        if one is None or one in known:
            continue
        known.add(one)
        for parameter in one._parameters.values():
            if parameter is not None and parameter not in seen:
                seen.add(parameter)
                yield parameter
        if one._modules:
            stack += list(one._modules.values())[::-1]


def _part(module, name):
    if not hasattr(module, name):
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    return getattr(module, name)


def _to_arguments(*args, device=None, dtype=None, tensor=None, non_blocking=False, copy=False, memory_format=None,
                  **unknown):
    """(device, dtype, non_blocking, memory_format) of a call of `to`."""
    rest = ()
    if args:
        first, *rest = args
        if isinstance(first, Tensor):
            tensor = first
        elif isinstance(first, (dtypes.dtype, type)):
            dtype = first
        else:
            device = first
            if rest:
                dtype, *rest = rest
    if unknown or len(rest) > 2 or not all(isinstance(flag, bool) for flag in rest):
        given = ", ".join([*(type(a).__name__ for a in args), *unknown])
        raise TypeError(f"to() received an invalid combination of arguments - got ({given}), but expected one of: "
                        "(device, dtype, non_blocking, copy), (dtype, non_blocking, copy), (tensor, non_blocking, "
                        "copy)")
    if tensor is not None:
        device, dtype = tensor.device, tensor.dtype
    device = None if device is None else device_type(device)
    return device, dtypes.given(dtype), rest[0] if rest else non_blocking, memory_format
