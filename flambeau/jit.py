"""`torch.jit`: there is no TorchScript here. Marks for its compiler do nothing; the compiler itself is missing."""
import builtins
from typing import Final

from .missing import rest_of

__all__ = ["Attribute", "Final", "annotate", "export", "ignore", "interface", "is_scripting", "is_tracing",
           "isinstance", "unused"]

_INSTEAD = "leave it out, since operations fuse by themselves; torch.compile removes the Python around them"
__path__: list = []
__getattr__ = rest_of("torch.jit", script=_INSTEAD, trace=_INSTEAD, trace_module=_INSTEAD, freeze=_INSTEAD,
                      optimize_for_inference=_INSTEAD, script_if_tracing=_INSTEAD,
                      load="load a state_dict; a scripted module is a program of PyTorch's",
                      save="save the state_dict with torch.save")


def is_scripting():
    """Whether TorchScript compiles this: never."""
    return False


def is_tracing():
    """Whether a TorchScript trace is being made: never."""
    return False


def ignore(drop=False, **kwargs):
    """Mark a method that TorchScript is to leave alone; here a decorator that changes nothing."""
    return drop if callable(drop) else lambda fn: fn


def unused(fn):
    """Mark a method that TorchScript is to leave out; here a decorator that changes nothing."""
    return fn


def export(fn):
    """Mark a method as an entry point of TorchScript; here a decorator that changes nothing."""
    return fn


def interface(obj):
    """Mark a class as an interface of TorchScript; here a decorator that changes nothing."""
    return obj


def annotate(the_type, the_value):
    """`the_value`, which TorchScript is told to be of `the_type`."""
    return the_value


isinstance = builtins.isinstance


class Attribute:
    """A value and its type for TorchScript."""

    def __init__(self, value, type):
        self.value, self.type = value, type
