"""Watch what a call does besides computing: which functions run without being followed, and what reaches outside.

While a call is recorded, Python tells us of every function that is called. Everything that a copy calls goes through
follow.py; what is seen here besides was called by C code or by the engine. The engine, NumPy and the standard library
may do so. A function of the user's that runs so has read things that were not noted, which is a reason not to replay;
and so is a call that does something a replay would not repeat (printing, reading a clock, drawing from a generator).
"""
import gc
import os
import sys
import sysconfig
import types
from types import ModuleType

import numpy as np

from ..backends.cpu.random.random_stream import RandomStream
from ..base import observers
from ..base.errors import PACKAGE, is_packaged, line_of
from ..base.op import known
from ..base.public_names import home
from ..tensor.generators import Generator
from .rewrite import copy_of, is_copy

REWRITE_FILE = copy_of.__code__.co_filename
OBSERVERS_FILE = observers.gathering.__code__.co_filename
STDLIB_FOLDERS = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
LIBRARY_NAMES = ("ml_dtypes", "llvmlite", "scipy", "cupy")
NUMPY_FOLDER = os.path.dirname(np.__file__) + os.sep
# Functions written in C that give the same for the same arguments, by the module they are in.
PURE_MODULES = frozenset("builtins math cmath operator _operator itertools functools _functools collections "
                         "_collections _struct _bisect _heapq _sre re _string _abc _weakref weakref _statistics _json "
                         "_typing typing types _stat stat binascii zlib _codecs unicodedata numpy ml_dtypes _decimal "
                         "decimal fractions numbers abc copyreg enum string _types dataclasses contextlib gc".split())
FOLLOWED_FOLDERS = ("nn", "optim", "distributions", "amp", "utils", "func")      # of this package: modules hold state
# What the engine calls of `func`, a rule of vmap's or a leaf of a tree, reads nothing but its arguments and the modes.
FUNC_FOLDER = os.path.join(PACKAGE, "func", "")
# What has effects, or gives something else every time. Of the standard library's modules in Python, all functions.
EFFECT_MODULES = frozenset("logging random secrets asyncio subprocess socket threading multiprocessing queue tempfile "
                           "shutil uuid concurrent select selectors sqlite3 urllib http time datetime warnings".split())
EFFECT_BUILTINS = frozenset("print input open breakpoint exit quit __import__".split())
HARMLESS_FUNCTIONS = frozenset("fspath get_ident RLock allocate_lock _getframe".split())
# The state of a generator is read or set: a replay only draws.
SEEDING_CODE = {id(getattr(cls, name).__code__): None for cls in (RandomStream, Generator)
                for name in ("manual_seed", "seed", "set_state", "get_state")}
_trusted: dict = {}           # file name → whether its functions are taken to read nothing but their arguments


def trusted(filename):
    """Whether code of this file is ours, that of a library we use, or the standard library's."""
    known = _trusted.get(filename)
    if known is None:
        inside = filename.startswith(STDLIB_FOLDERS) and not is_packaged(filename)
        known = inside or filename.startswith((PACKAGE, "<frozen", "<flambeau")) or trusted_numpy(filename)
        if len(_trusted) > 10_000:
            _trusted.clear()
        _trusted[filename] = known
    return known


def trusted_numpy(filename):
    """Whether code of this file belongs to NumPy or a library of its kind, which is not followed."""
    # wherever it was installed: a folder of `pip install --target` has no name to be known by
    return filename.startswith(NUMPY_FOLDER) \
        or any(filename.startswith(folder) for folder in map(library_folder, LIBRARY_NAMES) if folder)


def library_folder(name):
    """Where a library that was imported lies; None before."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return file and os.path.dirname(file) + os.sep


def is_followed_file(filename):
    """Whether the functions of a file are followed: all but the engine's and NumPy's."""
    if filename.startswith(PACKAGE):
        return filename[len(PACKAGE):].partition(os.sep)[0] in FOLLOWED_FOLDERS
    return not trusted_numpy(filename)


def is_engine_function(f):
    """Whether a function belongs to the engine, or to NumPy."""
    f = getattr(f, "__func__", f)
    code = getattr(f, "__code__", None)
    return code is not None and not is_followed_file(code.co_filename)


def is_ours(thing):
    """Whether a module, or a class, is one of this package."""
    name = home(thing) if isinstance(thing, type) else thing.__name__
    return name.partition(".")[0] == __name__.partition(".")[0]


def effect_of(function):
    """What a function or class written in C may do that a replay would not repeat, in words; None for nothing."""
    if isinstance(function, type):
        root = (function.__module__ or "").partition(".")[0]
        pure = root in PURE_MODULES and not function.__module__.startswith("numpy.random") or \
            isinstance(vars(function).get("__init__"), types.FunctionType) or issubclass(function, BaseException) or \
            is_ours(function) or issubclass(function, (tuple, list, dict, set, str, int, float)) or \
            "__dict__" in vars(function) or function.__flags__ & (1 << 9)    # made by a `class` statement
        return None if pure else f"{function.__module__}.{function.__qualname__}()"
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", type(function).__name__)
    if type(function).__name__ == "_lru_cache_wrapper":
        return f"{name}(), whose results are kept in a cache that may be cleared,"
    if owner.__class__ is ModuleType or owner is None:
        where = (owner.__name__ if owner is not None else getattr(function, "__module__", None)) or \
            getattr(getattr(function, "__objclass__", None), "__module__", None) or type(function).__module__
        if where == "builtins":
            return f"{name}()" if name in EFFECT_BUILTINS else None
        root = where.partition(".")[0]
        if root in PURE_MODULES and not where.startswith("numpy.random") or name in HARMLESS_FUNCTIONS:
            return None
        return f"{where}.{name}()"
    cls = owner if isinstance(owner, type) else type(owner)
    where = cls.__module__ or ""
    if where.startswith("numpy.random.mtrand") and owner is getattr(sys.modules.get("numpy.random.mtrand"), "_rand", 0):
        return None                                          # how far it was drawn is compared
    if where.partition(".")[0] in PURE_MODULES and not where.startswith("numpy.random") \
            or is_ours(cls) or name in HARMLESS_FUNCTIONS \
            or name.startswith("__"):
        return None
    for base in cls.__mro__:                                 # a class of the user's: a method that it inherits
        if base is not object and name in vars(base):
            return None if (base.__module__ or "").partition(".")[0] in PURE_MODULES else \
                f"{base.__module__}.{base.__qualname__}.{name}()"
    return f"{where}.{cls.__qualname__}.{name}()"


def is_profiled():
    """Whether a profiler wants to see the Python run; since Python 3.12 it may be one of sys.monitoring."""
    monitoring = getattr(sys, "monitoring", None)
    return sys.getprofile() is not None or \
        monitoring is not None and monitoring.get_tool(monitoring.PROFILER_ID) is not None


OWN_CODE = "ours"
UPDATE_RULES_FILE = os.path.join(PACKAGE, "optim", "_update.py")      # operations, which the engine calls
_kinds: dict = {}             # id of a code object → (it, kept alive; whose it is)


def kind_of(code):
    """Whose code this is: `ours` (the engine's, or a copy), `seed`, `library`, `user`, or `once` (an import)."""
    filename = code.co_filename
    if id(code) in SEEDING_CODE:
        category = "seed"
    elif is_copy(code) or filename == UPDATE_RULES_FILE \
            or filename.startswith(PACKAGE) and (filename.startswith(FUNC_FOLDER) or not is_followed_file(filename)):
        category = OWN_CODE
    elif code.co_name == "<module>" or filename == "<string>":          # an import; what a dataclass is made with
        category = "once"
    else:
        category = "library" if trusted(filename) and not filename.startswith(PACKAGE) else \
            OWN_CODE if is_declared(code) else "user"
    if len(_kinds) > 20_000:
        _kinds.clear()
    _kinds[id(code)] = code, category
    return category


def is_declared(code):
    """Whether a function stands in the declaration of an operation, wherever that was written: the engine calls it, and
    it reads nothing but its arguments. A composite is an ordinary function over tensors."""
    return any(getattr(getattr(heading, "__func__", None), "__code__", None) is code for op in known if not op.composite
               for cls in type(op).__mro__ for heading in vars(cls).values())


class Watch:
    """The first function that ran without being followed, and the first thing done that a replay could not repeat."""

    def __init__(self):
        self.unknown = None       # in words
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
            known = _kinds.get(id(code))
            category = known[1] if known is not None and known[0] is code else kind_of(code)
            if category is OWN_CODE or self._observes(frame):
                return
            if category == "seed" and self.reason is None:
                caller = frame
                while caller.f_back is not None and caller.f_code.co_filename.startswith(PACKAGE):
                    caller = caller.f_back
                self._say(f"{code.co_name}() of a random generator", caller)
            elif category == "user" and self.unknown is None:
                if not frame.f_globals.get("__name__", "").startswith("namedtuple_"):
                    self.unknown = f"{code.co_name} ran where it could not be followed: it was called by " \
                                   f"{self._caller(frame)}"
            elif category == "library" and self.reason is None \
                    and frame.f_globals.get("__name__", "").partition(".")[0] in EFFECT_MODULES:
                caller = self._user(frame)
                if caller is not None:
                    self._say(f"{frame.f_globals['__name__']}.{code.co_name}()", caller)
        elif event == "c_call" and self.reason is None:
            code = frame.f_code
            known = _kinds.get(id(code))
            category = known[1] if known is not None and known[0] is code else kind_of(code)
            if category is OWN_CODE or code.co_filename.startswith(NUMPY_FOLDER) or self._observes(frame):
                return
            what = effect_of(arg)
            if what is not None:
                caller = self._user(frame)
                if caller is not None:
                    self._say(what, caller)

    @staticmethod
    def _observes(frame):
        """Whether this is done by an observer, who was told what happens in the call and is no part of it."""
        while frame is not None and frame.f_code.co_filename != OBSERVERS_FILE:
            frame = frame.f_back
        return frame is not None

    @staticmethod
    def _caller(frame):
        last = frame.f_back
        return "C code" if last is None else f"{last.f_code.co_name} in {os.path.basename(last.f_code.co_filename)}"

    def _user(self, frame):
        """The innermost frame of the user's, or None if all of this is our own doing."""
        while frame is not None:
            filename = frame.f_code.co_filename
            if not trusted(filename):
                return frame
            if filename.startswith("<frozen importlib") or filename == REWRITE_FILE:      # it happens once
                return None
            if filename.startswith(PACKAGE) and os.sep + "compiler" + os.sep not in filename:
                return None
            frame = frame.f_back
        return None

    def _say(self, what, frame):
        self.reason = f"{what} at {line_of((frame.f_code, frame.f_lasti))}"
