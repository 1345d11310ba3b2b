"""See what a function can see: the tensors, numbers and objects it reaches by its arguments, its closure and globals.

From the function we go on through functions it names, objects it holds, and of each object through the attributes that
the code found so far asks for (names.py); so nothing is looked at that the code cannot see. What is found is a list of
Edges: places that hold something and could hold something else at the next call. The guards of a recording are made
from them, and so is the comparison that shows what the call itself has changed.

Note [Loose]: what comes by the arguments is another object at every call, so it is known by where it stands and what it
looks like: a *loose* edge. Everything else is known by identity: the same object has to be there again.
"""
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
from ..base.op import Op
from ..base.spec import Spec, device as Device
from ..tensor.protocol import OURS
from ..tensor.tensor import Tensor
from .names import names_of
from .watch import trusted

PLAIN = (type(None), bool, int, float, complex, str, bytes)
SAME = (Dtype, Spec, Layout, MemoryFormat, Generator, enum.Enum, Op, type(...), type(NotImplemented), range, slice,
        types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
        types.GetSetDescriptorType, types.MemberDescriptorType, types.CodeType, types.GenericAlias, types.UnionType,
        re.Pattern, np.dtype, np.ufunc, weakref.ref)
EQUAL = (Device, np.generic)
DRAWING = frozenset(("default_rng", "RandomState"))
LITTLE = 4096                 # bytes of a NumPy array that are compared at every call
# What Python calls only where an object is made or shown: seen when it runs, not looked at before.
RARE = frozenset("__init__ __new__ __post_init__ __repr__ __str__ __del__ __init_subclass__ __getstate__ __setstate__ "
                 "__reduce__ __reduce_ex__ __copy__ __deepcopy__ __class_getitem__ __eq__ __hash__ __lt__ __le__ "
                 "__gt__ __ge__ __replace__".split())
MAKING = frozenset("__init__ __new__ __post_init__".split())
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
        self.codes = {}           # id → code object that is known
        self.full = False         # whether attributes are asked for by names that are computed
        self._read = {}           # id of a code object → its Names
        self._loose = set()       # attributes that are asked of any object
        self._asked = {}          # id of an object → attributes that are asked of it
        self._called = set()      # ids of classes that are named, and so may be called
        before, now = None, (0, 0, 0, False)
        while before != now:                                 # new code asks for more
            self._look()
            before, now = now, (len(self.codes), len(self._loose), sum(map(len, self._asked.values())), self.full,
                                len(self._called))
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
        self.asks_grad = "grad" in self._loose or any("grad" in names for names in self._asked.values())
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
        if isinstance(child, type):
            self._called.add(id(child))
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
            code = getattr(thing.__func__, "__code__", None)
            if code is not None and not trusted(code.co_filename):
                self._chains(thing.__self__, self._names(code).of("self", None))
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
            if name not in OURS and self._asks(tensor, name):
                self._hold("attribute", tensor, name, child, f"{path}.{name}")

    def _function(self, function, path):
        code, cells = function.__code__, function.__closure__ or ()
        if trusted(code.co_filename):                        # a decorator of somebody's, with a function inside
            self.stack += [(held, path) for held in map(content, cells)
                           if isinstance(held, (types.FunctionType, types.MethodType))]
            return
        self.functions.append(function)
        names, scope = self._names(code), function.__globals__
        for name, cell in zip(code.co_freevars, cells, strict=True):
            self._hold("cell", cell, None, content(cell), name)
            self._chains(content(cell), names.of("cell", name))
        for name, stored in names.globals.items():
            if name in scope or stored:
                self._hold("item", scope, name, scope.get(name, MISSING), name)
                self._chains(scope.get(name), names.of("global", name))
        for name in names.modules:
            self.stack.append((sys.modules.get(name) or sys.modules.get(f"{scope.get('__package__')}.{name}"), name))
        drawing = sorted(DRAWING.intersection(code.co_names))
        if drawing:
            self._refuse(f"{code.co_name} uses numpy.random.{drawing[0]}: draw random numbers with flambeau, or "
                         "outside")
        if names.unbounded:
            self._refuse(f"{code.co_name} uses {', '.join(names.unbounded)}(), so what it reads cannot be known")
        self.stack += [(function.__defaults__ or (), path + ".__defaults__"),
                       (function.__kwdefaults__ or (), path + ".__kwdefaults__")]
        self._attributes(function, path, vars(function), False)

    def _names(self, code):
        """What `code` asks for. What a function that is no method asks of its first argument, is asked of anything."""
        names = self._read.get(id(code))
        if names is None:
            names = self._read[id(code)] = names_of(code)
            self.codes.update({id(inner): inner for inner in names.codes})
            self._loose |= names.loose
            self.full = self.full or names.full
            if code.co_varnames[:1] not in (("self",), ("cls",)):
                self._loose.update(n for chain in names.of("self", None) for n in chain)
        return names

    def _chains(self, thing, chains):
        """Follow chains of attributes from `thing`."""
        for chain in chains:
            held = thing
            for i, name in enumerate(chain):
                self._asked.setdefault(id(held), set()).add(name)
                inside = getattr(held, "__dict__", None)
                if not isinstance(inside, (dict, types.MappingProxyType)) or name not in inside:
                    self._loose.update(chain[i + 1:])        # what a method or a class gives: anything
                    break
                held = inside[name]

    def _asks(self, thing, name):
        return self.full or name in self._loose or name in self._asked.get(id(thing), ())

    def _class(self, cls):
        """A class of the user's: of it and its bases, what is asked for, and what operators call."""
        for kind in cls.__mro__:
            if is_trusted(sys.modules.get(kind.__module__)) or issubclass(kind, enum.Enum):
                continue
            self.spaces.append((vars(kind), kind.__name__, len(vars(kind))))
            self._asked.setdefault(id(kind), set()).update(self._asked.get(id(cls), ()))
            for name, child in list(vars(kind).items()):
                special = name.startswith("__") and name.endswith("__")
                if isinstance(child, types.FunctionType) and special and (
                        name not in RARE or name in MAKING and id(cls) in self._called):
                    self.stack.append((child, f"{kind.__name__}.{name}"))
                elif not special and self._asks(kind, name) and not isinstance(child, SAME):
                    self._hold("attribute", kind, name, child, f"{kind.__name__}.{name}")

    def _own(self, thing, cls):
        """What the methods of a class ask of their first argument, they ask of `thing`."""
        for kind in cls.__mro__:
            for child in vars(kind).values():
                for code in codes_of(child):
                    if id(code) in self.codes:
                        self._chains(thing, self._names(code).of("self", None))
        self._asked.setdefault(id(cls), set()).update(self._asked.get(id(thing), ()))

    def _instance(self, thing, path):
        """An object of any other class: its attributes, where it has some; what we know nothing about is refused."""
        cls = type(thing)
        if cls in (dict, list, deque):
            return
        self._own(thing, cls)
        self.stack.append((cls, cls.__name__))
        self.asks_grad = self.asks_grad or any(map(is_ours, cls.__mro__))
        held = getattr(thing, "__dict__", None)
        bases = [kind for kind in cls.__mro__ if kind is not object]
        computed = any(is_ours(kind) or "__getattr__" in vars(kind) or "__getattribute__" in vars(kind)
                       for kind in bases)
        if isinstance(held, dict):
            self._attributes(thing, path, held, computed)
        slots = [name for kind in bases if not is_ours(kind) for name in slots_of(kind)]
        for name in slots:
            child = getattr(thing, name, MISSING)
            if child is not MISSING and (computed or self._asks(thing, name)):
                self._hold("slot", thing, name, child, f"{path}.{name}")
        if isinstance(held, dict) or slots or isinstance(thing, (dict, list, deque)):
            return
        self.opaque[id(thing)] = (thing, path)
        if isinstance(thing, np.ndarray) and thing.nbytes <= LITTLE and not thing.dtype.hasobject:
            self.sizes.append((thing, path, thing.tobytes()))
        elif isinstance(thing, np.ndarray):
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
            if everything or self._asks(thing, name):
                self._hold("attribute", thing, name, child, f"{path}.{name}")

    def _refuse(self, why):
        self.refusal = self.refusal or why


def codes_of(child):
    """The code objects of a method or property, those inside decorators included."""
    stack, found = [child], []
    while stack:
        thing = stack.pop()
        if isinstance(thing, property):
            stack += [thing.fget, thing.fset]
        elif isinstance(thing, (staticmethod, classmethod)):
            stack.append(thing.__func__)
        elif isinstance(thing, types.FunctionType) and thing.__code__ not in found:
            found.append(thing.__code__)
            stack += map(content, thing.__closure__ or ())
        elif getattr(type(thing), "_is_compiled", False):
            stack.append(thing._compiles)
    return found


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
        function = type(fn).__call__
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
    return tuple(held) if has_plain_keys(held) else tuple(map(id, held))


def has_plain_keys(held):
    return all(type(key) in (str, int, float, bool, type(None)) for key in held)


def short(key):
    text = repr(key) if isinstance(key, PLAIN) else type(key).__name__
    return text if len(text) < 40 else text[:37] + "..."
