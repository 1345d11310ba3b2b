"""What the core does in another way where it is compiled: quick.pyx has these names in C, and does the same.

See Note [One source, two speeds] in base/core.py.
"""
from ...base.errors import here as _here

here = _here


def remember_traces(local):
    """From now on the attribute `trace` of the thread-local `local` is a thread's trace."""
    global _local
    _local = local


def forget_trace():
    """To be called when this thread's trace is another."""


def this_trace():
    """This thread's trace."""
    return _local.trace


def class_version(cls):
    """A number that a class has for as long as it, and its bases, have the same attributes; 0: it has none now.
    Interpreted, that is not known."""
    return 0


def dict_version(dictionary):
    """A number that a dictionary has for as long as it holds the same, and none other ever; 0: this Python has none."""
    return 0


def is_function(function, code, defaults, named):
    """Whether a function has this code, these defaults, and these of names."""
    return function.__code__ is code and function.__defaults__ is defaults and function.__kwdefaults__ is named
