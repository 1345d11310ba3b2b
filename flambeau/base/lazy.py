"""Modules some of whose names are imported when they are asked for.

Note [Lazy modules]: what a program may never use is imported when it is asked for. Who walks such a module sees it
whole all the same: `dir(m)` lists these names as well, and `m.__dict__` (`vars(m)`) imports them before it is shown, as
programs that look for every class of `torch.distributions` expect. Of Flambeau's own code, what only wants to know
which names are there by now asks `names_held`.

The package itself is a plain module, because Python reads names several times as fast from one, and every `torch.…` of
a program is such a read: `dir(flambeau)` is whole, `vars(flambeau)` is not. `torch` of `install_as_torch` is.
"""
import sys
from importlib import import_module
from types import ModuleType

from .once import imported

names_held = vars(ModuleType)["__dict__"].__get__      # of a module: its names so far; nothing is imported for it


class LazyModule(ModuleType):
    """A module that imports some of its names when they are asked for: `_IMPORTED_WHEN_ASKED` lists them."""

    @property
    def __dict__(self):                                # type: ignore[override]
        namespace = names_held(self)
        for name in namespace["_IMPORTED_WHEN_ASKED"]:
            if name not in namespace:
                namespace[name] = getattr(self, name)
        return namespace

    def __dir__(self):
        namespace = names_held(self)
        return sorted({*namespace, *namespace["_IMPORTED_WHEN_ASKED"]})


def names_there(module):
    """The names in the module called `module`, with those that are imported when they are asked for."""
    return dir(sys.modules[module])


def import_when_asked(module, sources, refuse, cls=LazyModule):
    """Make the module called `module` a LazyModule, or of the class `cls`; returns its `__getattr__`.

    `sources` says where a name is: "utils.hooks" is a module of the package, "amp.grad_scaler:GradScaler" a name in
    one; a function makes the thing. Any other name gets the error `refuse(name)`.
    """
    lazy, package = import_module(module), module.partition(".")[0]
    names_held(lazy)["_IMPORTED_WHEN_ASKED"] = sources
    lazy.__class__ = cls

    def get(name):
        if name not in sources:
            raise refuse(name)
        if callable(sources[name]):
            found = sources[name]()
        else:
            path, _, member = sources[name].partition(":")
            found = imported(path, package)
            found = getattr(found, member) if member else found
        names_held(lazy)[name] = found
        return found
    return get
