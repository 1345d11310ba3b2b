"""`torch._jit_internal`: marks for TorchScript, under their private names. None of them changes anything here."""
from typing import Final

from ..jit import annotate, export, ignore, is_scripting, unused
from .annotations import BroadcastingList1, BroadcastingList2, BroadcastingList3, BroadcastingList4
from .missing import rest_of

__getattr__ = rest_of("torch._jit_internal")
__all__ = ["BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "BroadcastingList4", "Final", "annotate",
           "boolean_dispatch", "export", "ignore", "is_scripting", "unused"]


def _copy_to_script_wrapper(fn):
    """pyro: `fn`, a method that a scripted container would have too."""
    return fn


def _overload_method(func):
    """torchvision: `func`, one of several signatures of a method."""
    return func


def _overload(func):
    """`func`, one of several signatures of a function."""
    return func


def boolean_dispatch(arg_name, arg_index, default, if_true, if_false, module_name, func_name):
    """A function that calls `if_true` or `if_false` by the value of one of its arguments."""
    def fn(*args, **kwargs):
        chosen = kwargs[arg_name] if arg_name in kwargs else args[arg_index] if arg_index < len(args) else default
        return (if_true if chosen else if_false)(*args, **kwargs)
    fn.__name__, fn.__module__ = func_name or fn.__name__, module_name or fn.__module__
    fn.__doc__ = if_true.__doc__ or if_false.__doc__
    return fn
