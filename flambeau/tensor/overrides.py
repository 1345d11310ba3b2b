"""Who may take a call over: classes with a `__torch_function__`, function modes, watchers; and how it is asked.

A plain call must not pay for these questions. `regions` is zero while nobody in any thread has to be asked; a class is
asked once, and is then in `tensor_types` if it takes no part.
"""
import threading
from typing import Any

from ..autograd.modes import modes
from ..base.locks import new_lock
from .tensor import Tensor

tensor_types = {Tensor}       # and the subclasses that take no part in `__torch_function__`
regions = 0                   # how often autocast, or any function mode, is on in some thread; see count_region
modes_active = 0              # how many function modes are active in all threads; see Note [Asking for modes]
_counting = new_lock()
_asks: dict = {}              # class → whether it takes part in `__torch_function__`


class _FunctionModes(threading.local):
    stack: tuple = ()         # those of this thread, the innermost last; see function_modes.py
    watchers: tuple = ()      # functions that are told of every operation that is recorded in this thread


function_modes = _FunctionModes()
handle_by_mode: Any = None    # handle_by_mode(func, args, kwargs), hung in here by function_modes.py
handle_watched: Any = None    # handle_watched(op, args, kwargs, public), too


def seen_by_modes():
    """Whether calls of this thread are shown to somebody."""
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
    """Whether the call goes to somebody's `__torch_function__`."""
    return not overrides_off() and any(has_override(a.__class__) for a in (*opened(args), *opened(kwargs.values())))


def opened(args):
    for a in args:
        if isinstance(a, (tuple, list)):
            yield from a
        else:
            yield a


def overrides_off():
    return getattr(modes, "plain", False)
