"""What tensors are called, and what keeps them alive: looked for in the program's frames, modules and containers.

    loss in main (train.py:40)          a variable of a function that runs
    model.fc.weight                     a parameter, by the variable that the outermost module is
    history[17] in train.py             an element of a list that is a global variable
    AddBackward0, made at train.py:12   what a backward waits for
"""
import gc
import os
import sys
import types

from ..autograd.base_node import AccumulateGrad, Node
from ..base.errors import PACKAGE, line_of
from ..nn import Module
from ..tensor.tensor import Tensor
from ..trace.value import Storage

DEPTH = 6                     # how far from a tensor something that holds it is looked for
OPTIMIZED_CODE = 1            # of code whose variables are no dictionary
KEEPERS = 4                   # how many of them are told


def frames():
    """The program's frames in all threads, the innermost of each first."""
    for frame in sys._current_frames().values():
        while frame is not None:
            if not frame.f_code.co_filename.startswith(PACKAGE):
                yield frame
            frame = frame.f_back


def _local_variables(frame):
    """A copy of a function's variables. Until Python 3.12 a frame that was asked keeps what it gave, and with it what
    the function drops later; so that is emptied here. It is filled anew when it is next asked for."""
    scope = frame.f_locals
    found = dict(scope)
    if type(scope) is dict and frame.f_code.co_flags & OPTIMIZED_CODE:
        scope.clear()
    return found


def variables():
    """{id of an object: what it is called} of the program's variables: of functions that run, then of its files."""
    found: dict = {}
    scopes = []
    for frame in frames():
        code = frame.f_code
        if code.co_name != "<module>":
            scopes.append((_local_variables(frame), f" in {code.co_name} ({os.path.basename(code.co_filename)}:"
                           f"{frame.f_lineno})"))
        scopes.append((frame.f_globals, f" in {os.path.basename(frame.f_globals.get('__file__') or 'the console')}"))
    for scope, where in scopes:
        for name, value in dict(scope).items():
            if not name.startswith("__") and name.isidentifier():
                found.setdefault(id(value), (name, where, value))
    return found


def module_names(known):
    """{id of a tensor: (name, path of its module)} of all parameters and buffers, by the variables in `known`."""
    modules = [one for one in gc.get_objects() if isinstance_quietly(one, Module)]
    inner = {id(child) for one in modules for child in one._modules.values() if child is not None}
    found: dict = {}
    for root in sorted((one for one in modules if id(one) not in inner), key=lambda one: id(one) not in known):
        named = known.get(id(root))
        top = named[0] if named is not None else type(root).__name__
        for path, module in root.named_modules():
            whole = f"{top}.{path}" if path else top
            for name, tensor in (*module._parameters.items(), *module._buffers.items()):
                if tensor is not None:
                    found.setdefault(id(tensor), (f"{whole}.{name}", whole))
    return found


def isinstance_quietly(thing, cls):
    """`isinstance` by the type itself: a proxy would be asked what it is."""
    return issubclass(type(thing), cls)


def keepers_of(tensor, known=None, named=None, ignored=()):
    """What keeps a tensor, a storage or a Value alive, the nearest first; in words, at most KEEPERS of them."""
    known = variables() if known is None else known
    named = module_names(known) if named is None else named
    found: dict = {}
    skipped = {id(known), id(named), id(ignored), *map(id, ignored)}
    seen = {id(tensor), *skipped}
    todo = [(tensor, "", 0)]
    while todo and len(found) < KEEPERS:
        thing, path, depth = todo.pop(0)
        if id(thing) in named and (thing is not tensor or not path):
            found[f"{named[id(thing)][0]}{path}"] = None
            if thing is not tensor:
                continue
        if id(thing) in known and known[id(thing)][2] is thing:
            name, where, _ = known[id(thing)]
            if "._parameters." not in path and "._buffers." not in path:      # it has the name that its module gives it
                found[f"{name}{path}{where}"] = None
            continue
        if depth >= DEPTH:
            continue
        seen.add(id(todo))
        for one in gc.get_referrers(thing):
            if id(one) in seen or one is todo:
                continue
            seen.add(id(one))
            step = _described(one, thing, path, named)
            if isinstance(step, tuple):
                todo.append((one, step[0], depth + 1))
            elif step:
                found[step] = None
    return list(found)[:KEEPERS]


def _described(holder, thing, path, named):
    """What holds something, in words; (path,) where it has to be asked who holds the holder; None: no holder of the
    program's."""
    if isinstance_quietly(holder, AccumulateGrad):
        return None                               # it is there for a tensor, which is found itself
    if isinstance_quietly(holder, Node):
        return f"{holder.name()}, made at {line_of(holder.site)}"
    if isinstance_quietly(holder, (Tensor, Storage)):
        return (f".grad{path}",) if getattr(holder, "_grad", None) is thing else (path,)
    if isinstance(holder, types.FrameType):
        return None                               # its variables are known
    if isinstance(holder, dict):
        key = next((key for key, one in list(holder.items()) if one is thing), None)
        if isinstance_quietly(key, Tensor):
            return (f"[{named.get(id(key), ('a tensor',))[0]}]{path}",)
        if not isinstance(key, str):
            return (f"[{key!r}]{path}",) if key is not None else None
        if key in ("_storage", "_base", "_grad"):                    # of a tensor's fields
            return (path if key != "_grad" else f".grad{path}",)
        return (f".{key}{path}",)
    if isinstance(holder, (list, tuple)):
        at = next((at for at, one in enumerate(holder) if one is thing), None)
        return (f"[{at}]{path}",) if at is not None else None
    if isinstance(holder, (set, types.CellType, types.MethodType)):
        return (path,)
    if isinstance(holder, types.FunctionType) or type(holder).__module__ in ("builtins", "types"):
        return None
    inside = getattr(holder, "__dict__", {})          # since Python 3.13 an object may hold its attributes itself
    name = next((name for name, one in list(inside.items()) if one is thing), None)
    return (f".{name}{path}" if name is not None else path,)


def storage_of(tensor):
    """The storage of a tensor, without asking a subclass."""
    return object.__getattribute__(tensor, "_storage")
