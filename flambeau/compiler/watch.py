"""Watch what a call does besides computing: which functions run, and what reaches outside.

While a call is recorded, Python tells us of every function that is called. A Python function of the user's that was not
found by looking (see.py) is noted, to be looked at before the next try; a call that does something a replay would not
repeat (printing, reading a clock, drawing from somebody else's generator) is a reason not to replay.
"""
import gc
import os
import sys
import sysconfig
from types import CellType, FunctionType, ModuleType

import numpy as np

from ..backends.random import Generator
from ..base.errors import PACKAGE, line_of
from ..tensor import random

STDLIB = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
SITES = tuple(os.sep + name + os.sep for name in ("site-packages", "dist-packages"))
LIBRARIES = ("ml_dtypes", "llvmlite", "scipy", "cupy")
NUMPY = os.path.dirname(np.__file__) + os.sep
# What has effects, or gives something else every time. Of the standard library's modules in Python, all functions.
MODULES = frozenset("logging random secrets subprocess socket threading multiprocessing queue tempfile shutil uuid "
                    "concurrent asyncio select selectors sqlite3 urllib http time datetime".split())
BUILTIN_MODULES = frozenset("time posix nt _random _io _socket _thread _signal select _ssl _sqlite3".split())
BUILTINS = frozenset("print input open breakpoint exit quit".split())
HARMLESS = frozenset("fspath get_ident RLock allocate_lock".split())
METHODS = frozenset("now utcnow today".split())                  # of datetime's classes
# The state of a generator is read or set: a replay only draws.
SEEDS = {id(getattr(kind, name).__code__): None for kind in (Generator, random.Generator)
         for name in ("manual_seed", "seed", "set_state", "get_state")}
EMPTY = CellType()
_trusted: dict = {}           # file name → whether its functions are taken to read nothing but their arguments


def trusted(filename):
    """Whether code of this file is ours, that of a library we use, or the standard library's: not looked into."""
    known = _trusted.get(filename)
    if known is None:
        inside = filename.startswith(STDLIB) and not any(site in filename for site in SITES)
        known = inside or filename.startswith((PACKAGE, NUMPY, "<frozen", "<flambeau")) \
            or any(site + name + os.sep in filename for site in SITES for name in LIBRARIES)
        if len(_trusted) > 10_000:
            _trusted.clear()
        _trusted[filename] = known
    return known


class Watch:
    """The functions that a call runs, and the first thing it does that a replay could not repeat."""

    def __init__(self, opaque):
        self.opaque = opaque      # id → (object, path) of reachable objects whose methods may do anything
        self.codes = {}           # id of a code object of the user's → the object
        self.closures = {}        # id of such a code object → [[globals, contents of cells...] of what ran it, ...]
        self.reason = None

    def start(self):
        self.collects = gc.isenabled()
        gc.disable()              # finalisers, and what is called when garbage is collected, are not the call's
        self.before = sys.getprofile()
        sys.setprofile(self._event)

    def stop(self):
        sys.setprofile(self.before)
        if self.collects:
            gc.enable()

    def _event(self, frame, event, arg):
        if event == "call":
            code = frame.f_code
            if id(code) in SEEDS and self.reason is None:
                caller = frame
                while caller.f_back is not None and caller.f_code.co_filename.startswith(PACKAGE):
                    caller = caller.f_back
                self._say(f"{code.co_name}() of a random generator", caller)
            if id(code) in self.codes:
                if code.co_freevars:
                    self._closure(frame)
                return
            if code.co_filename.startswith(PACKAGE) or code.co_name == "<module>":
                return
            if not trusted(code.co_filename):
                if not frame.f_globals.get("__name__", "").startswith("namedtuple_"):
                    self.codes[id(code)] = code
                    self._closure(frame)
            elif self.reason is None and frame.f_globals.get("__name__", "").partition(".")[0] in MODULES:
                caller = self._user(frame)
                if caller is not None:
                    self._say(f"{frame.f_globals['__name__']}.{code.co_name}()", caller)
        elif event == "c_call" and self.reason is None:
            caller = frame.f_code.co_filename
            if not caller.startswith((PACKAGE, NUMPY)):
                what = self._outside(arg)
                if what is not None:
                    caller = self._user(frame)
                    if caller is not None:
                        self._say(what, caller)

    def _closure(self, frame):
        """Note what the function that runs sees outside of itself: others may have the same code."""
        held, found = frame.f_locals, self.closures.setdefault(id(frame.f_code), [])
        outside = [frame.f_globals, *[held.get(name) for name in frame.f_code.co_freevars]]
        if not any(all(a is b for a, b in zip(outside, other)) for other in found):
            found.append(outside)

    def functions(self, code):
        """The functions with this code that ran; all that have it where none is left as it was."""
        every = [f for f in gc.get_referrers(code) if isinstance(f, FunctionType) and f.__code__ is code]
        return [f for f in every if any(_sees(f, outside) for outside in self.closures[id(code)])] or every

    def _outside(self, function):
        """What a function written in C does that a replay would not repeat, in words; None for nothing."""
        owner = getattr(function, "__self__", None)
        if owner is None:                                          # a method descriptor: `list.append(x, 1)`
            return None
        name = function.__name__
        if owner.__class__ is ModuleType:
            if owner.__name__ == "builtins":
                return f"{name}()" if name in BUILTINS else None
            return f"{owner.__name__}.{name}()" if owner.__name__ in BUILTIN_MODULES and name not in HARMLESS else None
        if id(owner) in self.opaque:
            return f"{self.opaque[id(owner)][1]}.{name}()"
        kind = owner if isinstance(owner, type) else type(owner)
        root = (kind.__module__ or "").partition(".")[0]
        if root in ("_io", "random", "_random") or root == "datetime" and name in METHODS:
            return f"{kind.__module__}.{kind.__qualname__}.{name}()"
        return None

    def _user(self, frame):
        """The innermost frame of the user's, or None if all of this is our own doing."""
        while frame is not None:
            filename = frame.f_code.co_filename
            if not trusted(filename):
                return frame
            if filename.startswith((PACKAGE, "<frozen importlib")):      # an import happens once
                return None
            frame = frame.f_back
        return None

    def _say(self, what, frame):
        self.reason = f"{what} at {line_of((frame.f_code, frame.f_lasti))}"



def _sees(function, outside):
    """Whether these are the globals of a function and what its cells hold; numbers may be others by now."""
    cells = [None if cell == EMPTY else cell.cell_contents for cell in function.__closure__ or ()]
    return all(a is b or isinstance(b, (int, float)) for a, b in zip([function.__globals__, *cells], outside))
