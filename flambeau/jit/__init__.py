"""`torch.jit`: there is no TorchScript here. What it would compile runs as it is, and marks for it do nothing.

A scripted function means what the function means, so `script` and `trace` hand it back, and say so once. What needs the
compiled program itself (`save`, `load`, its code) is missing.
"""
import builtins
import contextlib
import threading
from typing import Final as Final

from ..base.errors import warn
from ..compat.missing import refusal, rest_of
from ..futures import Future
from ..nn import Module

__all__ = ["Attribute", "Future", "ScriptFunction", "ScriptModule", "annotate", "export", "fork", "freeze", "ignore",
           "interface", "isinstance", "optimize_for_inference", "script", "script_if_tracing", "trace", "trace_module",
           "unused", "wait"]

_said: set = set()
__getattr__ = rest_of("torch.jit", load="load a state_dict; a scripted module is a program of PyTorch's",
                      save="save the state_dict with torch.save")


def _as_it_is(name, thing):
    if name not in _said:
        _said.add(name)
        warn(f"torch.jit.{name}: there is no TorchScript in Flambeau, so this runs as it is. Operations fuse by "
             "themselves; torch.compile removes the Python around them.")
    return thing


def script(obj, optimize=None, _frames_up=0, _rcb=None, example_inputs=None):
    """`obj`, a function, module or class, as it is."""
    return _as_it_is("script", obj)


def trace(func, example_inputs=None, optimize=None, check_trace=True, check_inputs=None, check_tolerance=1e-5,
          strict=True, **kwargs):
    """`func`, a function or module, as it is: branches go on being taken by the data."""
    return _as_it_is("trace", func)


def script_if_tracing(fn):
    """`fn` as it is."""
    return fn


def freeze(mod, preserved_attrs=None, optimize_numerics=True):
    """`mod` as it is; it has to be in evaluation mode, as in PyTorch."""
    if mod.training:
        raise RuntimeError("Freezing is currently only implemented for modules in eval mode. Please call .eval() on "
                           "your module before freezing.")
    return _as_it_is("freeze", mod)


def optimize_for_inference(mod, other_methods=None):
    """`mod` as it is."""
    return _as_it_is("optimize_for_inference", mod)


def is_scripting():
    """Whether TorchScript compiles this: never."""
    return False


class _Tracing(threading.local):
    state = None              # the TracingState (graph.py) of the run whose calls are being listed


tracing = _Tracing()


def is_tracing():
    """Whether the graph of a run is being made, by `_get_trace_graph`."""
    return tracing.state is not None


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


def script_method(fn):
    """Mark a method of a ScriptModule that TorchScript compiles; here a decorator that changes nothing."""
    return fn


def trace_module(mod, inputs=None, *args, **kwargs):
    """`mod` as it is: branches go on being taken by the data."""
    return _as_it_is("trace_module", mod)


def fork(func, *args, **kwargs):
    """A Future of `func(*args, **kwargs)`, which is called at once: only TorchScript would go on meanwhile."""
    warn("`torch.jit.fork` is deprecated. Please use `torch.compile` instead.", DeprecationWarning)
    made = Future()
    made.set_result(func(*args, **kwargs))
    return made


def wait(future):
    """What the Future of a `fork` holds."""
    warn("`torch.jit.wait` is deprecated. Please use `torch.compile` instead.", DeprecationWarning)
    return future.wait()


_fork, _wait = fork, wait
_script_if_tracing = script_if_tracing        # torchvision, before it had a public name


def _overload_method(func):
    """torchvision: one of several signatures of a method; here a decorator that changes nothing."""
    return func


def _overload(func):
    """e3nn, torch_geometric: one of several signatures of a function; here a decorator that changes nothing."""
    return func


@contextlib.contextmanager
def optimized_execution(should_optimize):
    """A context in which TorchScript optimises, or does not; nothing here."""
    yield


def _get_trace_graph(f, args=(), kwargs=None, strict=True, _force_outplace=False, return_inputs=False,
                     _return_inputs_states=False):
    """fvcore, torchprofile: (the graph of the calls that `f(*args, **kwargs)` makes, what it gives)."""
    from .graph import trace_graph  # for those who count; few ask
    return trace_graph(f, args, kwargs or {}, return_inputs, tracing)


class TracerWarning(Warning):
    """What PyTorch warns with while it traces: a result that will be a constant."""


class ScriptModule(Module):
    """A module whose methods are marked for TorchScript (`script_method`); it runs as it is. What `script` gives is not
    one: it is the module that it was given."""


class RecursiveScriptModule(ScriptModule):
    """What PyTorch's `script` makes of a module: there are none here."""

    def __init__(self, cpp_module):
        raise refusal("torch.jit.RecursiveScriptModule")


class ScriptFunction:
    """What PyTorch's `script` makes of a function: there are none here."""

    def __init__(self, *args):
        raise refusal("torch.jit.ScriptFunction")


class Attribute:
    """A value and its type for TorchScript."""

    def __init__(self, value, type):
        self.value, self.type = value, type
