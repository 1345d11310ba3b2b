"""`torch.overrides`: what a function needs to take part in `__torch_function__`, and modes that see every call.

A mode is a context: inside, every call of a torch function, method, property or factory goes to its
`__torch_function__` (tensor/function_modes.py tells how, and why nothing is slower without one).
"""
import contextlib
import functools
import types
from importlib import import_module

from .base.op import Op
from .tensor import function_modes
from .tensor.forms import FORM_TYPE, function_name, namespace
from .tensor.overrides import function_modes as _local, handle_torch_function, has_torch_function, is_tensor_like
from .tensor.subclass import UNASKED_ATTRIBUTES, nowrap, opted_out
from .tensor.tensor import Tensor

__all__ = ["enable_reentrant_dispatch", "get_ignored_functions", "get_overridable_functions", "get_testing_overrides",
           "handle_torch_function", "has_torch_function", "is_tensor_like", "is_tensor_method_or_property",
           "resolve_name", "wrap_torch_function"]


class TorchFunctionMode:
    """Derive from it and write `__torch_function__(self, func, types, args=(), kwargs=None)`; use it with `with`.

    Inside that method the mode is set aside: `func(*args, **kwargs)` goes to the mode around it, or is the call itself.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"{type(self).__name__} has no __torch_function__")

    def __enter__(self):
        function_modes.push(self)
        return self

    def __exit__(self, *exc):
        function_modes.pop()

    @classmethod
    def push(cls, *args, **kwargs):
        """A new mode, to be entered."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _len_torch_function_stack():
    """How many modes are active in this thread."""
    return len(_local.stack)


def _get_current_function_mode():
    """The innermost active mode."""
    return _local.stack[-1] if _local.stack else None


def _get_current_function_mode_stack():
    """The active modes, the innermost last."""
    return list(_local.stack)


_push_mode, _pop_mode = function_modes.push, function_modes.pop


@contextlib.contextmanager
def _pop_mode_temporarily():
    """The innermost mode is set aside inside."""
    mode = function_modes.pop()
    try:
        yield mode
    finally:
        function_modes.push(mode)


@contextlib.contextmanager
def enable_reentrant_dispatch():
    """Let operators be asked about again inside a mode's handler; they always are here."""
    yield


# --- what can be overridden --------------------------------------------------


@functools.cache
def _named():
    """(namespace, {name: function}) of all that modes and subclasses are asked about."""
    torch = import_module(__package__)
    plain = {function for function, asked in function_modes._asked() if function is asked}
    found = []
    for prefix, functions in namespace.items():
        if prefix in ("Tensor", "_C"):
            continue
        at = torch
        for part in prefix.split("."):
            at = getattr(at, part, None) if part else at
        public = {name: function for name, function in functions.items() if not name.startswith("_")}
        if not prefix:
            public.update({f.__name__: f for f in plain if getattr(torch, f.__name__, None) is f})
        if at is not None:
            found.append((at, public))
    methods = {}
    for name, attribute in vars(Tensor).items():
        if name in UNASKED_ATTRIBUTES or name.startswith("_") and not name.endswith("__"):
            continue
        if isinstance(attribute, property):
            methods[name] = attribute.__get__
        elif isinstance(attribute, (types.FunctionType, FORM_TYPE)):
            methods[name] = attribute
    found.append((Tensor, methods))
    return found


def get_overridable_functions():
    """{namespace: the functions in it} of all that `__torch_function__` may be called for."""
    return {where: list(functions.values()) for where, functions in _named()}


def get_ignored_functions():
    """The public functions that `__torch_function__` is never called for."""
    torch = import_module(__package__)
    return {getattr(torch, name) for name in (*function_modes.UNASKED_FUNCTIONS, "is_grad_enabled", "set_default_dtype",
                                              "get_default_dtype", "set_printoptions", "set_num_threads",
                                              "get_num_threads", "compile") if hasattr(torch, name)}


def get_testing_overrides():
    """{function: a function with its arguments that does nothing}, to try overrides with."""
    import inspect
    made = {}
    for _, functions in _named():
        for function in functions.values():
            try:
                given = ", ".join(str(p.replace(annotation=p.empty,
                                                default=None if p.default is not p.empty else p.empty))
                                  for p in inspect.signature(function).parameters.values())
            except (TypeError, ValueError):
                given = "*args, **kwargs"
            made[function] = eval(f"lambda {given}: -1")
    return made


def resolve_name(f):
    """The name of an overridable function, `torch.add` or `torch.Tensor.add`; None if it is none."""
    if isinstance(f, Op):
        return function_name(f)
    for where, functions in reversed(_named()):           # methods first: some are functions of torch, too
        for name, function in functions.items():
            if function is f or function == f:
                if where is not Tensor:
                    return f"{where.__name__.replace(__package__, 'torch', 1)}.{name}"
                return f"torch.Tensor.{name}" + (f".{f.__name__}" if isinstance(vars(Tensor)[name], property) else "")
    return str(f) if hasattr(f, "_overloadname") else None


def has_torch_function_unary(obj):
    """Whether `obj` overrides calls."""
    return has_torch_function((obj,))


def has_torch_function_variadic(*args):
    """Whether any of `args` overrides calls."""
    return has_torch_function(args)


def get_default_nowrap_functions():
    """The functions whose results keep their type on subclasses."""
    return nowrap


def wrap_torch_function(dispatcher):
    """A decorator: the function's arguments that `dispatcher` names may override its calls."""
    def decorate(func):
        @functools.wraps(func)
        def wrapped(*args, **kwargs):
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)
        return wrapped
    return decorate


def is_tensor_method_or_property(func):
    """Whether `func` belongs to the Tensor class."""
    return getattr(Tensor, getattr(func, "__name__", ""), None) is func or func.__class__.__name__ == "method-wrapper"


_disabled_torch_function_impl = opted_out
