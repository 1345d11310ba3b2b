"""Who may take a call over: classes with a `__torch_function__`, function modes, watchers; and how it is asked.

A plain call must not pay for these questions. `regions` is zero while no thread has anything to be asked; a class is
asked once, and is then in `tensor_types` if it takes no part.
"""
import functools
import threading

from ..autograd.modes import modes
from ..base import observers
from ..base.locks import new_lock
from .tensor import Tensor

tensor_types = {Tensor}       # and the subclasses that take no part in `__torch_function__`
regions = 0                   # how often autocast, or any function mode, is on in some thread; see count_region
calls_observed = False        # whether observers are told of calls; then it counts as an active mode
modes_active = 0              # how many function modes are active in all threads; see Note [Asking for modes]
_counting = new_lock()
one_of_ours: list = []        # classes whose instances are handled before one of them could be asked: see batched.py
_asks: dict = {}              # class → whether it takes part in `__torch_function__`


class _FunctionModes(threading.local):
    stack: tuple = ()         # those of this thread, the innermost last; see function_modes.py
    watchers: tuple = ()      # functions that are told of every operation that is recorded in this thread
    told = None               # the operation that is about to be called, where observers know of that call


function_modes = _FunctionModes()


def seen_by_modes():
    """Whether calls of this thread are shown to a mode or an observer."""
    return bool(function_modes.stack or function_modes.watchers)


def count_region(change):
    """Autocast was switched on in one more thread, or off."""
    global regions
    with _counting:
        regions += change


def has_override(c):
    """Whether class `c` takes part in `__torch_function__`: any subclass of Tensor does, unless it opted out."""
    found = _asks.get(c)
    if found is None:
        handler = getattr(c, "__torch_function__", None)
        found = _asks[c] = c is not Tensor and handler is not None and not getattr(handler, "opted_out", False)
        if not found and issubclass(c, Tensor):
            tensor_types.add(c)
    return found


def any_override(args, kwargs):
    """Whether the call goes to a `__torch_function__`."""
    if overrides_off():
        return False
    for some in (args, kwargs.values()) if kwargs else (args,):
        for a in some:
            if isinstance(a, (tuple, list)):
                if any(has_override(part.__class__) for part in a):
                    return True
            elif has_override(a.__class__):
                return True
    return False


def opened(args):
    for a in args:
        if isinstance(a, (tuple, list)):
            yield from a
        else:
            yield a


def overrides_off():
    return getattr(modes, "plain", False)


class DisableTorchFunctionSubclass:
    """Inside, subclasses are treated as plain tensors."""

    def __enter__(self):
        self.before, modes.plain = getattr(modes, "plain", False), True
        return self

    def __exit__(self, *exc):
        modes.plain = self.before


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """Inside, subclasses are treated as plain tensors, and no TorchFunctionMode is asked."""

    def __enter__(self):
        self.modes, function_modes.stack = function_modes.stack, ()
        return super().__enter__()

    def __exit__(self, *exc):
        super().__exit__(*exc)
        function_modes.stack = self.modes


# --- handing a call over ------------------------------------------------------------------------------------------


def overloaded(relevant_args):
    """The arguments whose classes override, subclasses before their bases, each class once."""
    found = []
    if overrides_off():
        return found
    for a in relevant_args:
        c = type(a)
        if has_override(c) and c not in one_of_ours and not any(type(b) is c for b in found):
            at = next((i for i, b in enumerate(found) if issubclass(c, type(b))), len(found))
            found.insert(at, a)
    return found


def handle_by_class(func, name, found, args, kwargs, mode=None):
    """Hand a call of `func`, called `name`, to the first of the arguments `found` that takes it.

    `mode`: the mode that would not have it.
    """
    types = tuple([type(a) for a in found])
    for c in types:
        made = c.__torch_function__(func, types, args, kwargs)
        if made is not NotImplemented:
            return made
    asked = [c.__name__ for c in types] if mode is None else [type(mode).__name__, *(c.__name__ for c in types)]
    raise TypeError(f"no implementation found for '{name}' on types that implement __torch_function__: {asked}")


def handle_by_mode(func, args, kwargs):
    """Hand a call to the innermost mode, which is set aside meanwhile."""
    stack = function_modes.stack
    found = overloaded((*opened(args), *opened(kwargs.values())))
    function_modes.stack = stack[:-1]
    try:
        made = stack[-1].__torch_function__(func, tuple([type(a) for a in found]), args, kwargs)
    finally:
        function_modes.stack = stack
    if made is not NotImplemented:
        return made
    return handle_by_class(func, getattr(func, "__name__", func), found, args, kwargs, stack[-1])


def observed(told, name, function, given, args, kwargs):
    """What `function(*given)` gives, of which observers are told as a call of `name` with the arguments of the user's.

    `told` is what that function asks for, to know that it was told of; see `call` in call.py.
    """
    if (tell := observers.calling) is not None:
        tell(name, args, kwargs)
    made, start = None, observers.clock()
    try:
        function_modes.told = told
        made = function(*given)
        return made
    finally:
        function_modes.told = None
        if (tell := observers.called) is not None:
            tell(name, args, kwargs, made, start, observers.clock())


def has_torch_function(relevant_args):
    """Whether any of the arguments, or a mode, overrides the call through `__torch_function__`."""
    return bool(function_modes.stack) or bool(overloaded(relevant_args))


def handle_torch_function(public_api, relevant_args, *args, **kwargs):
    """Hand a call of `public_api` to the innermost mode, else to the first override that takes it."""
    if function_modes.stack:
        return handle_by_mode(public_api, args, kwargs)
    name = f"{getattr(public_api, '__module__', 'torch')}.{getattr(public_api, '__name__', public_api)}"
    return handle_by_class(public_api, name, overloaded(relevant_args), args, kwargs)


def or_overridden(function):
    """A public function that goes by other things than tensors: where it refuses one that takes calls over (a Proxy of
    torch.fx), the call is handed to that."""
    @functools.wraps(function)
    def form(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except TypeError:
            if not any_override(args, kwargs):
                raise
        return handle_torch_function(form, (*opened(args), *opened(kwargs.values())), *args, **kwargs)
    return form


def is_tensor_like(inp):
    """Whether `inp` is a tensor or an object that overrides through `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")
