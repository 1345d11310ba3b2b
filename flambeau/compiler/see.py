"""See what a function can see: the tensors, numbers and objects it reaches by its arguments, its closure and globals.

From the function we go on through functions it names, objects it holds, and of each object through the attributes whose
names occur in the code that was found; so nothing is looked at that the code cannot ask for. What is found is a list of
Edges: places that hold something and could hold something else at the next call. The guards of a recording are made from
them, and so is the comparison that shows what the call itself has changed.

Note [Loose]: what comes by the arguments is another object at every call, so it is known by where it stands and what it
looks like: a *loose* edge. Everything else is known by identity: the same object has to be there again.
"""
import dis
import enum
import functools
import re
import sys
import types
import weakref
from collections import deque

import numpy as np

from ..backends.random import Generator
from ..base.dtypes import dtype as Dtype
from ..base.layout import layout as Layout, memory_format as MemoryFormat
from ..base.op import OpType
from ..base.spec import Spec, device as Device
from ..tensor.protocol import OURS
from ..tensor.tensor import Tensor
from .watch import trusted

PLAIN = (type(None), bool, int, float, complex, str, bytes)
SAME = (Dtype, Spec, Layout, MemoryFormat, Generator, enum.Enum, OpType, type(...), type(NotImplemented), range, slice,
        types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
        types.GetSetDescriptorType, types.MemberDescriptorType, types.CodeType, types.GenericAlias, types.UnionType,
        re.Pattern, np.dtype, np.ufunc, weakref.ref)
EQUAL = (Device, np.generic)
ANYTHING = frozenset("getattr setattr delattr hasattr vars attrgetter methodcaller __dict__".split())
UNBOUNDED = frozenset("eval exec globals locals".split())
MISSING = object()


class Refused(Exception):
    """Why the function cannot be replayed, in words."""


class Edge:
    """A place that holds `child`: `key` of `holder`, of one of the kinds below. `path` says it as the user would."""

    __slots__ = ("kind", "holder", "key", "child", "path", "loose")

    def __init__(self, kind, holder, key, child, path, loose=False):
        self.kind, self.holder, self.key, self.child, self.path = kind, holder, key, child, path
        self.loose = loose        # see Note [Loose]

    def read(self):
        """What it holds now."""
        kind, holder, key = self.kind, self.holder, self.key
        try:
            if kind == "item":
                return holder[key]
            if kind == "attribute":
                return holder.__dict__[key]
            if kind == "cell":
                return holder.cell_contents
            if kind == "grad":
                return holder._grad
            return getattr(holder, key)                      # slot
        except (LookupError, AttributeError, ValueError):
            return MISSING

    def write(self, child):
        """Put `child` there."""
        kind, holder, key = self.kind, self.holder, self.key
        if kind == "item":
            holder[key] = child
        elif kind == "attribute" and isinstance(holder, type):
            setattr(holder, key, child)
        elif kind == "attribute":
            holder.__dict__[key] = child
        elif kind == "cell":
            holder.cell_contents = child
        elif kind == "grad":
            holder._grad = child
        else:
            setattr(holder, key, child)

    def writable(self):
        return not isinstance(self.holder, tuple) and self.kind != "slot"


class Scene:
    """What can be seen from a function and the arguments of one call, here a list and a dictionary of our own.

    `others` are functions that were seen running though nobody names them.
    """

    def __init__(self, fn, args, kwargs, others=()):
        self.fn, self.args, self.kwargs, self.others = fn, args, kwargs, others
        self.codes = {}           # id → code object whose names are known
        self.names = set()        # attributes that the code found so far asks for
        self.full = False         # whether attributes are asked for by names that are computed
        self._globals_of = {}     # id of a code object → global names it reads
        before = None
        while before != (len(self.codes), len(self.names), self.full):       # new code asks for more
            before = len(self.codes), len(self.names), self.full
            self._look()
        if self.refusal is not None:
            raise Refused(self.refusal)

    def _look(self):
        self.edges = []
        self.sizes = []           # (container, path, how many it holds, or its keys)
        self.spaces = []          # (attributes of a module, class or function, path, how many): compared, not guarded
        self.functions = []       # user functions, with their code
        self.tensors = {}         # id → (tensor, path)
        self.things = []          # arguments that are known by identity after all
        self.opaque = {}          # id → (object, path)
        self.seen = {}            # id → object
        self.refusal = None
        self.stack = []
        self._arguments()
        stack = [(function, name_of(function)) for function in reversed(self.others)]
        stack.append((self.fn, name_of(self.fn)))
        stack += self.things
        while stack:
            thing, path = stack.pop()
            if id(thing) not in self.seen and not isinstance(thing, PLAIN):
                self.seen[id(thing)] = thing
                self.stack = []
                self._open(thing, path)
                stack.extend(reversed(self.stack))           # in the order in which they stand in the thing

    # --- arguments ---------------------------------------------------------------------------------------------------

    def _arguments(self):
        names = argument_names(self.fn)
        stack = [("item", self.kwargs, name, child, name) for name, child in self.kwargs.items()][::-1]
        stack += [("item", self.args, i, child, names[i] if i < len(names) else f"args[{i}]")
                  for i, child in enumerate(self.args)][::-1]
        while stack:
            kind, holder, key, child, path = stack.pop()
            self.edges.append(Edge(kind, holder, key, child, path, loose=True))
            if isinstance(child, PLAIN) or id(child) in self.seen:
                continue
            cls, parts = type(child), []
            if isinstance(child, Tensor):
                self.tensors[id(child)] = (child, path)
                parts = [("grad", child, None, child._grad, path + ".grad")]
            elif cls in (list, deque) or isinstance(child, tuple):
                self.sizes.append((child, path, len(child)))
                parts = [("item", child, i, part, f"{path}[{i}]") for i, part in enumerate(child)]
            elif cls is dict:
                self.sizes.append((child, path, keys_of(child)))
                parts = [("item", child, name, part, f"{path}[{short(name)}]") for name, part in child.items()]
            elif is_record(cls):
                parts = [("attribute", child, name, part, f"{path}.{name}") for name, part in vars(child).items()]
            else:
                self.things.append((child, path))
                continue
            self.seen[id(child)] = child
            stack.extend(reversed(parts))

    # --- one thing ---------------------------------------------------------------------------------------------------

    def _hold(self, kind, holder, key, child, path):
        """`holder` holds `child`, and could hold something else."""
        self.edges.append(Edge(kind, holder, key, child, path, loose=kind == "grad"))
        self.stack.append((child, path))

    def _open(self, thing, path):
        if isinstance(thing, Tensor):
            self._tensor(thing, path)
        elif thing is MISSING or isinstance(thing, (*SAME, *EQUAL)) and not isinstance(thing, type):
            return
        elif isinstance(thing, types.FunctionType):
            self._function(thing, path)
        elif isinstance(thing, types.MethodType):
            self.stack += [(thing.__func__, path), (thing.__self__, "self")]
        elif isinstance(thing, (staticmethod, classmethod)):
            self.stack.append((thing.__func__, path))
        elif isinstance(thing, property):
            self.stack += [(f, path) for f in (thing.fget, thing.fset) if f is not None]
        elif isinstance(thing, functools.partial):
            self.stack += [(thing.func, path), (thing.args, path + ".args"), (thing.keywords, path + ".keywords")]
        elif isinstance(thing, types.ModuleType):
            if not is_trusted(thing):
                self._attributes(thing, path, vars(thing), False)
        elif isinstance(thing, type):
            self._class(thing)
        elif isinstance(thing, (tuple, frozenset)):
            self.stack += [(part, f"{path}[{i}]") for i, part in enumerate(thing)]
        elif isinstance(thing, dict):
            self.sizes.append((thing, path, keys_of(thing)))
            for key, child in thing.items():
                self.stack.append((key, f"a key of {path}"))
                self._hold("item", thing, key, child, f"{path}[{short(key)}]")
            self._instance(thing, path)
        elif isinstance(thing, (list, deque)):
            self.sizes.append((thing, path, len(thing)))
            for i, child in enumerate(thing):
                self._hold("item", thing, i, child, f"{path}[{i}]")
            self._instance(thing, path)
        elif isinstance(thing, set):
            self.sizes.append((thing, path, frozenset(thing)))
            self.stack += [(part, f"an element of {path}") for part in thing]
        elif getattr(type(thing), "_is_compiled", False):
            self.stack.append((thing._compiles, path))
        else:
            self._instance(thing, path)

    def _tensor(self, tensor, path):
        self.tensors[id(tensor)] = (tensor, path)
        self._hold("grad", tensor, None, tensor._grad, path + ".grad")
        for name, child in vars(tensor).items():
            if name not in OURS and (self.full or name in self.names):
                self._hold("attribute", tensor, name, child, f"{path}.{name}")

    def _function(self, function, path):
        code, cells = function.__code__, function.__closure__ or ()
        if trusted(code.co_filename):                        # a decorator of somebody's, with a function inside
            self.stack += [(held, path) for held in map(content, cells)
                           if isinstance(held, (types.FunctionType, types.MethodType))]
            return
        self.functions.append(function)
        self._code(code)
        for name, cell in zip(code.co_freevars, cells, strict=True):
            self._hold("cell", cell, None, content(cell), name)
        scope = function.__globals__
        for name, stored in self._globals(code, scope).items():
            if name in scope or stored:
                self._hold("item", scope, name, scope.get(name, MISSING), name)
        self.stack += [(function.__defaults__ or (), path + ".__defaults__"),
                       (function.__kwdefaults__ or (), path + ".__kwdefaults__")]
        self._attributes(function, path, vars(function), False)

    def _class(self, cls):
        """A class of the user's: of it and its bases, what the code names, and what operators call."""
        for kind in cls.__mro__:
            if is_trusted(sys.modules.get(kind.__module__)) or issubclass(kind, enum.Enum):
                continue
            self.spaces.append((vars(kind), kind.__name__, len(vars(kind))))
            for name, child in list(vars(kind).items()):
                special = name.startswith("__") and name.endswith("__")
                if special and isinstance(child, types.FunctionType):
                    self.stack.append((child, f"{kind.__name__}.{name}"))
                elif not special and (self.full or name in self.names) and not isinstance(child, SAME):
                    self._hold("attribute", kind, name, child, f"{kind.__name__}.{name}")

    def _instance(self, thing, path):
        """An object of any other class: its attributes, where it has some; what we know nothing about is refused."""
        cls = type(thing)
        if cls in (dict, list, deque):
            return
        self.stack.append((cls, cls.__name__))
        held = getattr(thing, "__dict__", None)
        bases = [kind for kind in cls.__mro__ if kind is not object]
        computed = any(is_ours(kind) or "__getattr__" in vars(kind) or "__getattribute__" in vars(kind)
                       for kind in bases)
        if isinstance(held, dict):
            self._attributes(thing, path, held, computed)
        slots = [name for kind in bases if not is_ours(kind) for name in slots_of(kind)]
        for name in slots:
            child = getattr(thing, name, MISSING)
            if child is not MISSING and (name in self.names or computed or self.full):
                self._hold("slot", thing, name, child, f"{path}.{name}")
        if isinstance(held, dict) or slots or isinstance(thing, (dict, list, deque)):
            return
        self.opaque[id(thing)] = (thing, path)
        if isinstance(thing, np.ndarray):
            self._refuse(f"{path} is a NumPy array, and nobody would notice if its contents changed; pass a tensor")
        elif cls.__module__.startswith("numpy.random"):
            self._refuse(f"{path} draws random numbers from NumPy; draw them with flambeau, or outside")
        elif hasattr(cls, "__next__"):
            self._refuse(f"{path} is an iterator, which gives something else every time; take from it outside")
        elif hasattr(cls, "__getitem__") or hasattr(cls, "__iter__"):
            self._refuse(f"{path} is a {cls.__name__}, and nobody would notice if its contents changed")

    def _attributes(self, thing, path, held, everything):
        alone = isinstance(thing, (types.ModuleType, types.FunctionType))
        (self.spaces if alone else self.sizes).append((held, path, len(held)))
        for name, child in list(held.items()):
            if everything or self.full or name in self.names:
                self._hold("attribute", thing, name, child, f"{path}.{name}")

    # --- code --------------------------------------------------------------------------------------------------------

    def _code(self, code):
        """Learn the names that `code` and the functions defined in it ask for."""
        stack = [code]
        while stack:
            code = stack.pop()
            if id(code) in self.codes:
                continue
            self.codes[id(code)] = code
            self.names.update(code.co_names)
            for constant in code.co_consts:
                if isinstance(constant, types.CodeType):
                    stack.append(constant)
                elif isinstance(constant, str) and constant.isidentifier():
                    self.names.add(constant)                 # getattr(x, "name")
            self.full = self.full or not ANYTHING.isdisjoint(code.co_names)

    def _globals(self, code, scope):
        """The global names that `code` and the functions defined in it read, and whether they write them."""
        known, imported = self._globals_of.get(id(code), (None, ()))
        if known is None:
            known, imported, stack = {}, [], [code]
            while stack:
                inner = stack.pop()
                for i in dis.get_instructions(inner):
                    if i.opname in ("LOAD_GLOBAL", "STORE_GLOBAL", "LOAD_NAME"):
                        known[i.argval] = known.get(i.argval) or i.opname == "STORE_GLOBAL"
                    elif i.opname == "IMPORT_NAME":
                        imported.append(i.argval)
                stack += [c for c in inner.co_consts if isinstance(c, types.CodeType)]
            self._globals_of[id(code)] = known, imported
        for name in imported:
            self.stack.append((sys.modules.get(name) or sys.modules.get(f"{scope.get('__package__')}.{name}"), name))
        wild = sorted(UNBOUNDED.intersection(known))
        if wild:
            self._refuse(f"{code.co_name} uses {', '.join(wild)}(), so what it reads cannot be known")
        return known

    def _refuse(self, why):
        self.refusal = self.refusal or why


def content(cell):
    try:
        return cell.cell_contents
    except ValueError:                                       # not assigned yet
        return MISSING


def name_of(function):
    """What a function is called in reports; an object with a call is `self`."""
    return getattr(function, "__qualname__", "self").rpartition("<locals>.")[2]


def argument_names(fn):
    """The names of the arguments that `fn` takes by position."""
    function = getattr(fn, "__func__", fn)
    if not isinstance(function, types.FunctionType):
        function = getattr(type(fn), "__call__", None)
        function = getattr(fn, "forward", function)
        fn, function = function, getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType):
        return ()
    code = function.__code__
    return code.co_varnames[isinstance(fn, types.MethodType) or fn is not function:code.co_argcount]


def is_ours(kind):
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


def is_trusted(module):
    """Whether a module is ours, NumPy's or the standard library's."""
    if module is None:
        return False
    file = getattr(module, "__file__", None)
    return module.__name__ != "__main__" if file is None else trusted(file)


def is_record(cls):
    """Whether objects of this class are only there to hold their fields together."""
    return hasattr(cls, "__dataclass_fields__") and not hasattr(cls, "__slots__") or cls is types.SimpleNamespace


def slots_of(kind):
    slots = vars(kind).get("__slots__", ())
    slots = (slots,) if isinstance(slots, str) else slots
    return [s for s in slots if not s.startswith("__")]


def keys_of(held):
    """The keys of a dictionary in order; by identity where comparing them could run somebody's code."""
    keys = tuple(held)
    return keys if all(type(k) in (str, int, float, bool, type(None)) for k in keys) else tuple(map(id, keys))


def short(key):
    text = repr(key) if isinstance(key, PLAIN) else type(key).__name__
    return text if len(text) < 40 else text[:37] + "..."
