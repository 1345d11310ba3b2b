"""What the copies of the user's functions call instead of reading, writing and calling by themselves (rewrite.py).

Each method does what Python would have done, and lets the Journal know. Numbers that were found in a place are handed
to the copies as Traced ones (traced.py), and only to them: Traced numbers live in the copies' own local variables and
in containers that the call itself has made. Whatever leaves for somewhere else, because it is stored in an object, handed
to C code, or given back to the caller, is a plain number again. So nobody but a copy ever meets one.

What a copy calls is followed as well, if it is Python with a source: user code, modules, optimizers, the standard
library. The engine (tensors and their operations) is called as it is. C functions are called as they are where they are
known to give the same for the same arguments; others are a reason not to replay.
"""
import bisect
import builtins
import functools
import operator
import sys
import threading
import types
import weakref
from importlib import import_module

from ..autograd.function import Function
from ..base.errors import line_of, user_frame
from ..base.op import OpType
from ..tensor.protocol import OURS
from ..tensor.tensor import Tensor
from ..tensor.write import update
from .journal import MAPPINGS, MISSING, PLAIN, SEQUENCES, is_engine, short
from .rewrite import FOLLOW, NotFollowed, copy_of, is_copy
from .traced import MATH, NUMBERS, TRACED, keeps, plain as fixed
from .watch import effect_of, is_followed_file

MAXIMUM_DEPTH = 60            # calls inside each other that are followed
BINARY = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
          "%": operator.mod, "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_,
          "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift}
INPLACE = {"+": operator.iadd, "-": operator.isub, "*": operator.imul, "/": operator.itruediv, "//": operator.ifloordiv,
           "%": operator.imod, "**": operator.ipow, "@": operator.imatmul, "&": operator.iand, "|": operator.ior,
           "^": operator.ixor, "<<": operator.ilshift, ">>": operator.irshift}
COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
           "!=": operator.ne}
UNARY = {"-": operator.neg, "+": operator.pos, "~": operator.invert}
SPECIAL = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
           "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift", "<": "lt", "<=": "le", ">": "gt",
           ">=": "ge", "==": "eq", "!=": "ne"}
UNARY_SPECIAL = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
# Of C functions, those that ask an object for nothing but its identity or class.
BY_IDENTITY = frozenset((isinstance, issubclass, id, callable, type))
# Those that only hand on what they are given: what they give may hold Traced numbers.
HANDING_ON = frozenset((zip, enumerate, reversed, list, tuple, iter, next, min, max, sum, abs, sorted, divmod, pow, map,
                        filter, functools.reduce, any, all))
# Methods of containers that hand over, or hand on, what they are given, without looking at it.
KEEPING = frozenset("append appendleft insert setdefault get pop popleft items keys values clear copy reverse sort "
                    "popitem".split())
JOINABLE = (list, tuple, int, bool, *TRACED)
FUNCTION_TYPES = (types.FunctionType, types.MethodType)


class Follower:
    """One call that is followed, with its Journal and the Book of its numbers."""

    def __init__(self, journal, book, varying):
        self.journal, self.book, self.varying = journal, book, varying
        self.proxies = {}             # edge → the Traced, or tuple with some, that copies see there
        self.stored = {}              # edge → the Traced, or tuple with some, that the call has put there
        self.written = set()          # edges that the call has written to
        self.bare = set()             # edges of numbers that somebody else can see: guarded by value
        self.published = {}           # id → container that the call has made and put where others see it
        self.effect = None            # the first thing that a replay would not repeat, in words
        self.depth = 0
        self.thread, self.open = threading.get_ident(), True
        self._classes = {}            # class of an autograd Function → one whose methods are followed

    def live(self):
        return self.open and threading.get_ident() == self.thread

    def close(self):
        """From here on this is only what functions that were made inside go through: nothing is noted any more."""
        self.open = False

    def forget(self):
        """Let go of everything: copies that live on hold the Follower."""
        self.journal = self.book = None
        self.proxies, self.stored, self.published, self._classes = {}, {}, {}, {}
        self.bare, self.written = set(), set()

    def refuse(self, why):
        self.journal.refuse(why)

    def _line(self):
        frame = user_frame()
        return "an unknown line" if frame is None else line_of((frame.f_code, frame.f_lasti))

    # --- numbers -----------------------------------------------------------------------------------------------------

    def dress(self, edge, value):
        """What a copy sees of the value in a place."""
        if edge in self.written:                             # by the call itself, or by code that is not followed
            return self.stored.get(edge, value)
        mine = self.proxies.get(edge)
        if mine is not None:
            return mine
        kind = type(value)
        if value is edge.child and edge not in self.bare and not edge.blind and (
                kind is float or kind is int and edge.path in self.varying or kind is tuple and is_floats(value)):
            number = f"n{len(self.proxies)}"
            if kind is tuple:
                mine = tuple([self.book.leaf(f"{number}_{i}", x) if type(x) is float else x
                              for i, x in enumerate(value)])
            else:
                mine = self.book.leaf(number, value)
            self.proxies[edge] = mine
            return mine
        return value

    def plain(self, x):
        """`x` as somebody else may see it: Traced numbers in it, and in containers of the call's own, are fixed."""
        kind = type(x)
        if kind in TRACED:
            return fixed(x)
        if not self.open:
            return x
        if kind is tuple:
            if any(type(part) in TRACED or type(part) in (tuple, list, dict, slice) for part in x):
                parts = [self.plain(part) for part in x]
                return x if all(map(operator.is_, parts, x)) else tuple(parts)
        elif kind is slice:
            return slice(self.plain(x.start), self.plain(x.stop), self.plain(x.step))
        elif (kind is list or kind is dict) and id(x) not in self.journal.seen and id(x) not in self.published:
            self.published[id(x)] = x
            for key, part in list(enumerate(x) if kind is list else x.items()):
                now = self.plain(part)
                if now is not part:
                    x[key] = now
        return x

    def escape(self, x):
        """`x` as code that is not followed may see it: plain, with all that can be reached from it noted."""
        x = self.plain(x)
        if not isinstance(x, (*PLAIN, Tensor)):
            count = len(self.journal.edges)
            self.journal.walk(x)
            if count != len(self.journal.edges) or self.proxies or self.stored:
                self._lay_bare()
        return x

    def _lay_bare(self):
        """Numbers in what was walked are seen by others: they are guarded by value."""
        walked = self.journal._walked
        for edge in self.journal.edges:
            if edge not in self.bare and id(edge.holder) in walked:
                self.bare.add(edge)
                for x in (self.proxies.get(edge), self.stored.pop(edge, None)):
                    for part in x if type(x) is tuple else (x,):
                        fixed(part)
                self.written.add(edge)                       # whoever sees it may write to it

    # --- places ------------------------------------------------------------------------------------------------------

    def place(self, kind, holder, key, path, child=MISSING):
        """What a copy sees in a place of a seen object."""
        edge = self.journal.find(kind, holder, key)
        if edge is None:
            edge = self.journal.edge(kind, holder, key, child, path)
            if id(holder) in self.journal._walked:
                self.bare.add(edge)
        edge.asked = True
        return self.dress(edge, child)

    def _sees(self, thing):
        return id(thing) in self.journal.seen

    def attr(self, thing, name):
        """`thing.name`."""
        if not self.live() or type(thing) in TRACED:
            return getattr(thing, name)
        if isinstance(thing, Tensor):
            return self._tensor_attr(thing, name)
        if isinstance(thing, types.ModuleType):
            return self._module_attr(thing, name)
        if isinstance(thing, type):
            return self._class_attr(thing, name)
        cls = type(thing)
        if is_engine(cls) or cls.__module__ == "builtins" and cls not in (types.FunctionType, super):
            return getattr(thing, name)
        if cls is types.FunctionType:
            if not self._sees(thing) or is_engine_function(thing):
                return getattr(thing, name)
            path = f"{self.journal.path(thing)}.{name}"
            if name == "__dict__":
                self.journal.own(vars(thing), thing)
                return vars(thing)
            if name in vars(thing):
                return self.place("attribute", thing, name, path, vars(thing)[name])
            if hasattr(types.FunctionType, name):
                return self.place("slot", thing, name, path, getattr(thing, name))
            self.journal.missing(vars(thing), name, thing)
            return getattr(thing, name)
        return self._instance_attr(thing, cls, name)

    def _tensor_attr(self, tensor, name):
        journal = self.journal
        if name in ("grad", "_grad") and self._sees(tensor):
            journal.asks_grad = True
            return getattr(tensor, name)
        held = vars(tensor)
        if name in held and name not in OURS and self._sees(tensor):
            return self.place("attribute", tensor, name, f"{journal.path(tensor)}.{name}", held[name])
        cls = type(tensor)
        if not is_engine(cls) and cls.__module__.partition(".")[0] != __name__.partition(".")[0]:
            found = self._lookup(cls, name)
            if isinstance(found, property) and isinstance(found.fget, types.FunctionType):
                self._guard_lookup(cls, name)
                return self.call(found.fget, (tensor,))
            if found is not MISSING:
                self._guard_lookup(cls, name)
        if self._sees(tensor) and name not in held and not hasattr(cls, name):
            journal.missing(held, name, tensor)
        return getattr(tensor, name)

    def _module_attr(self, module, name):
        held = vars(module)
        if name in held:
            self.journal.see(module, module.__name__)
            return self.place("item", held, name, f"{self.journal.path(module)}.{name}", held[name])
        found = held.get("__getattr__")
        if isinstance(found, types.FunctionType) and is_followed_file(found.__code__.co_filename) \
                and not trusted_package(module):
            self.journal.missing(held, name)
            return self.call(found, (name,))
        return getattr(module, name)

    @staticmethod
    def _lookup(cls, name):
        """What a class, by itself or a base, holds under a name; MISSING for nothing."""
        for kind in cls.__mro__:
            if name in vars(kind):
                return vars(kind)[name]
        return MISSING

    def _guard_lookup(self, cls, name):
        if is_engine(cls):
            return
        if (cls, name) not in self.journal.lookups:
            found = getattr(cls, name)
            self.journal.lookups[cls, name] = getattr(found, "__func__", found)

    def _class_attr(self, cls, name):
        """An attribute of a class: numbers and tensors stand in a place, functions are looked up."""
        if is_engine(cls) or cls.__module__ == "builtins":
            return getattr(cls, name)
        self.journal.mros[cls] = None
        meta = type(cls)
        if name in vars(type):                               # __name__, __doc__, __dict__, ...
            found = getattr(cls, name)
            if getattr(cls, name) is not found and not isinstance(found, (types.MethodType, types.MethodWrapperType,
                                                                          types.BuiltinMethodType)):
                self.refuse(f"{cls.__name__}.{name} at {self._line()} shows all of a class")
            elif getattr(cls, name) is found:
                self.journal.see(cls, cls.__name__)
                return self.place("slot", cls, name, f"{cls.__name__}.{name}", found)
            return found
        found = MISSING if meta is type else self._lookup(meta, name)
        if isinstance(found, property) and isinstance(found.fget, types.FunctionType):
            self._guard_lookup(meta, name)
            return self.call(found.fget, (cls,))
        for kind in cls.__mro__:
            held = vars(kind)
            if name not in held:
                if not is_engine(kind) and kind.__module__ != "builtins":
                    self.journal.see(kind, kind.__name__)
                    self.journal.missing(held, name, kind)
                continue
            child = held[name]
            if hasattr(type(child), "__get__") and not isinstance(child, type):
                self._guard_lookup(cls, name)
                return getattr(cls, name)
            if is_engine(kind):
                return getattr(cls, name)
            self.journal.see(kind, kind.__name__)
            return self.place("attribute", kind, name, f"{kind.__name__}.{name}", child)
        if isinstance(found, types.FunctionType):
            self._guard_lookup(meta, name)
        elif found is not MISSING:
            return self._class_attr(meta, name)
        return getattr(cls, name)

    def _instance_attr(self, thing, cls, name):
        journal, seen = self.journal, self._sees(thing)
        if cls.__getattribute__ is not object.__getattribute__ and not isinstance(thing, super):
            if isinstance(cls.__getattribute__, types.FunctionType):
                return self.call(cls.__getattribute__, (thing, name))
            if not issubclass(cls, (types.SimpleNamespace, threading.local)):
                self.escape(thing)
                return getattr(thing, name)
        if isinstance(thing, super):
            found = getattr(thing, name)
            function = getattr(found, "__func__", None)
            for kind in type(thing.__self__).__mro__ if thing.__self__ is not None else ():
                if function is not None and vars(kind).get(name) is function:
                    self._guard_lookup(kind, name)
            return found
        if seen:
            journal.typed(thing)
            journal.mros[cls] = None
        found, path = self._lookup(cls, name), journal.path(thing)
        kind = type(found)
        if name == "__class__":
            return cls
        if name == "__dict__" and kind is types.GetSetDescriptorType or name == "__dict__" and found is MISSING:
            held = thing.__dict__
            if id(thing) in journal.loose:
                self.refuse(f"all attributes of {path} are asked for, and it is another object at every call")
            elif seen:
                journal.own(held, thing)
            return held
        if found is not MISSING and (hasattr(kind, "__set__") or hasattr(kind, "__delete__")):
            if kind is property and isinstance(found.fget, FUNCTION_TYPES):
                self._guard_lookup(cls, name)
                return self.call(found.fget, (thing,))
            if kind is types.MemberDescriptorType:
                child = getattr(thing, name, MISSING)
                if seen:
                    child = self.place("slot", thing, name, f"{path}.{name}", child)
                return getattr(thing, name) if child is MISSING else child
            if isinstance(getattr(kind, "__get__", None), types.FunctionType):
                self._guard_lookup_static(cls, name, found)
                return self.call(kind.__get__, (found, thing, cls))
            return getattr(thing, name)
        held = getattr(thing, "__dict__", None)
        if isinstance(held, dict):
            if name in held:
                return self.place("attribute", thing, name, f"{path}.{name}", held[name]) if seen else held[name]
            if seen:
                journal.missing(held, name, thing)
        if found is not MISSING:
            if isinstance(found, (types.FunctionType, staticmethod, classmethod)):
                self._guard_lookup(cls, name)
                return getattr(thing, name)
            get = getattr(kind, "__get__", None)
            if get is None or isinstance(found, type):
                return self._class_attr(cls, name)
            self._guard_lookup_static(cls, name, found)
            if isinstance(get, types.FunctionType):
                return self.call(get, (found, thing, cls))
            return getattr(thing, name)
        getter = self._lookup(cls, "__getattr__")
        if isinstance(getter, types.FunctionType):
            self._guard_lookup(cls, "__getattr__")
            return self.call(getter, (thing, name))
        return getattr(thing, name)

    def _guard_lookup_static(self, cls, name, found):
        """A descriptor, which `getattr` of the class would ask for something."""
        for kind in cls.__mro__:
            if vars(kind).get(name) is found and not is_engine(kind):
                self.journal.see(kind, kind.__name__)
                self.journal.edge("attribute", kind, name, found, f"{kind.__name__}.{name}")
                return

    def item(self, thing, key):
        """`thing[key]`."""
        if not self.live():
            return thing[key]
        if isinstance(thing, Tensor):
            return thing[self._index(key)]
        kind, journal = type(thing), self.journal
        if kind in SEQUENCES and type(key) in (int, bool, *TRACED):
            if not self._sees(thing):
                return thing[self.plain(key)]
            key = operator.index(self.plain(key))
            if key < 0:
                journal.size(thing, journal.path(thing))
                key += len(thing)
            if not 0 <= key < len(thing):
                journal.size(thing, journal.path(thing))
                return thing[key]
            return self._element(thing, key)
        if kind in (list, tuple) and type(key) is slice:
            if not self._sees(thing):
                return thing[key]
            journal.size(thing, journal.path(thing))
            return kind([self._element(thing, i) for i in range(*key.indices(len(thing)))])
        if kind in MAPPINGS:
            key = self.plain(key)
            if not self._sees(thing):
                return thing[key]
            if key in thing:
                return self._entry(thing, key)
            if kind is defaultdict_type:
                self.escape(thing)
            else:
                journal.missing(thing, key)
            return thing[key]
        getter = getattr(kind, "__getitem__", None)
        if isinstance(getter, types.FunctionType):
            self._guard_lookup(kind, "__getitem__")
            journal.typed(thing)
            return self.call(getter, (thing, key))
        if isinstance(thing, type):
            return thing[self.plain(key)]                    # list[int], Generic[T]
        return self.escape(thing)[self.escape(key)]

    def _index(self, key):
        """An index into a tensor; a list in it is looked into by the engine."""
        if type(key) is tuple:
            return tuple([self._index(part) for part in key])
        return key if isinstance(key, Tensor) or key is None or key is ... else self.escape(key)

    def _element(self, thing, index):
        """An element of a seen list or tuple."""
        path, child = f"{self.journal.path(thing)}[{index}]", thing[index]
        if isinstance(thing, tuple) and self.journal.find("item", thing, index) is None:
            self.journal.see(child, path)                    # a tuple holds the same for as long as it lives
            return child
        return self.place("item", thing, index, path, child)

    def _entry(self, thing, key):
        """What a seen dictionary holds under a key that it has."""
        return self.place("item", thing, key, f"{self.journal.path(thing)}[{short(key)}]", dict.__getitem__(thing, key))

    def slice(self, start, stop, step):
        return slice(self.plain(start), self.plain(stop), self.plain(step))

    # --- writing -----------------------------------------------------------------------------------------------------

    def _put(self, kind, holder, key, path, before, value, write):
        """Write `value` to a place of a seen object; what it came from is remembered."""
        edge = self.journal.find(kind, holder, key)
        if edge is None:
            edge = self.journal.edge(kind, holder, key, before, path, blind=before is not MISSING)
        self.stored.pop(edge, None)
        self.written.add(edge)
        if self._is_bare(edge):
            write(self.plain(value))
        elif type(value) in TRACED:
            write(value._value)
            self.stored[edge] = value
        elif type(value) is tuple and is_numbers(value) and any(type(x) in TRACED for x in value):
            write(tuple([x._value if type(x) in TRACED else x for x in value]))
            self.stored[edge] = value
        else:
            write(self.plain(value))

    def _is_bare(self, edge):
        return edge in self.bare or id(edge.holder) in self.journal._walked

    def store_attr(self, value, thing, name):
        """`thing.name = value`."""
        if not self.live():
            return setattr(thing, name, value)
        cls = type(thing)
        if isinstance(thing, Tensor):
            if name == "grad" and self._sees(thing):
                self.journal.asks_grad = True
            if name not in OURS and self._sees(thing) and not hasattr(cls, name):
                return self._put("attribute", thing, name, f"{self.journal.path(thing)}.{name}",
                                 vars(thing).get(name, MISSING), value, lambda v: setattr(thing, name, v))
            return setattr(thing, name, self.plain(value))
        if is_engine(cls):
            return setattr(thing, name, self.plain(value))
        setter = self._lookup(cls, "__setattr__")
        if isinstance(setter, types.FunctionType):
            self._guard_lookup(cls, "__setattr__")
            return self.call(setter, (thing, name, value))
        self._set(thing, name, value, setattr)

    def _set(self, thing, name, value, write):
        """What `object.__setattr__` does; `write` is that, or that of another class."""
        cls, path = type(thing), f"{self.journal.path(thing)}.{name}"
        if isinstance(thing, type):
            if not self._sees(thing):
                self.journal.see(thing, thing.__name__)
            return self._put("attribute", thing, name, path, vars(thing).get(name, MISSING), value,
                             lambda v: setattr(thing, name, v))
        found = self._lookup(cls, name)
        if isinstance(found, property) and isinstance(found.fset, FUNCTION_TYPES):
            self._guard_lookup(cls, name)
            return self.call(found.fset, (thing, value))
        if found is not MISSING and hasattr(type(found), "__set__"):
            if self._sees(thing) and isinstance(found, types.MemberDescriptorType):
                self.journal.edge("slot", thing, name, getattr(thing, name, MISSING), path)
            return setattr(thing, name, self.plain(value))
        if not self._sees(thing):
            return write(thing, name, self.plain(value))
        held = getattr(thing, "__dict__", None)
        if not isinstance(held, dict):
            return write(self.escape(thing), name, self.plain(value))
        if isinstance(thing, types.ModuleType):
            return self._put("item", held, name, path, held.get(name, MISSING), value,
                             lambda v: held.__setitem__(name, v))
        self._put("attribute", thing, name, path, held.get(name, MISSING), value,
                  lambda v: write(thing, name, v))

    def store_item(self, value, thing, key):
        """`thing[key] = value`."""
        if not self.live():
            thing[key] = value
            return
        kind, journal = type(thing), self.journal
        if isinstance(thing, Tensor):
            thing[self._index(key)] = self.escape(value)
        elif kind is list and type(key) in (int, bool, *TRACED) or kind in MAPPINGS:
            key = self.plain(key)
            if not self._sees(thing):
                thing[key] = self.plain(value) if id(thing) in self.published else value
                return
            if kind is list and key < 0:
                journal.size(thing, journal.path(thing))
                key += len(thing)
            if kind is list and not 0 <= key < len(thing):
                thing[key] = value                           # an IndexError
            before = thing[key] if kind is list else dict.get(thing, key, MISSING)
            self._put("item", thing, key, f"{journal.path(thing)}[{short(key)}]", before, value,
                      lambda v: thing.__setitem__(key, v))
        elif kind is list and type(key) is slice and self._sees(thing) and type(value) in (list, tuple) \
                and len(value) == len(range(*key.indices(len(thing)))):
            for index, part in zip(range(*key.indices(len(thing))), list(self.iterate(value)), strict=True):
                self.store_item(part, thing, index)
            journal.size(thing, journal.path(thing))
        elif isinstance(getattr(kind, "__setitem__", None), types.FunctionType):
            self._guard_lookup(kind, "__setitem__")
            self.call(kind.__setitem__, (thing, key, value))
        else:
            self.escape(thing)[self.escape(key)] = self.escape(value)

    def delete_attr(self, thing, name):
        if self.live() and self._sees(thing) and not isinstance(thing, Tensor):
            deleter = self._lookup(type(thing), "__delattr__")
            if isinstance(deleter, types.FunctionType):
                return self.call(deleter, (thing, name))
            self.escape(thing)
        delattr(thing, name)

    def delete_item(self, thing, key):
        if self.live():
            thing, key = self.escape(thing), self.escape(key)
        del thing[key]

    # --- expressions -------------------------------------------------------------------------------------------------

    def _simple(self, x):
        kind = type(x)
        return kind in NUMBERS or kind is str or isinstance(x, Tensor) or x is None

    def binary(self, sign, a, b):
        if not self.live() or self._simple(a) and self._simple(b):
            return BINARY[sign](a, b)
        if sign in "+*" and type(a) in JOINABLE and type(b) in JOINABLE:         # their elements are handed on
            return BINARY[sign](self._joined(a), self._joined(b))
        found = self._special(f"__{SPECIAL[sign]}__", a, b, f"__r{SPECIAL[sign]}__")
        return BINARY[sign](self.escape(a), self.escape(b)) if found is NotImplemented else found

    def _joined(self, x):
        if type(x) in (list, tuple):
            return type(x)(self.iterate(x)) if self._sees(x) else x
        return fixed(x)

    def inplace(self, sign, a, b):
        if not self.live() or self._simple(a) and self._simple(b):
            return INPLACE[sign](a, b)
        if sign in "+*" and type(a) is tuple and type(b) in JOINABLE:
            return BINARY[sign](self._joined(a), self._joined(b))
        if sign == "+" and type(a) is list and type(b) in (list, tuple) and not self._sees(a) \
                and id(a) not in self.published:
            return INPLACE[sign](a, self._joined(b))
        found = NotImplemented
        method = getattr(type(a), f"__i{SPECIAL[sign]}__", None)
        if isinstance(method, types.FunctionType) and not isinstance(a, Tensor):
            self._guard_lookup(type(a), f"__i{SPECIAL[sign]}__")
            found = self.call(method, (a, b))
        if found is NotImplemented:
            found = self._special(f"__{SPECIAL[sign]}__", a, b, f"__r{SPECIAL[sign]}__")
        return INPLACE[sign](self.escape(a), self.escape(b)) if found is NotImplemented else found

    def _special(self, name, a, b, reflected):
        """The result of a special method written in Python; NotImplemented where there is none."""
        pairs = [(a, b, name), (b, a, reflected)]
        if type(b) is not type(a) and isinstance(b, type(a)):
            pairs.reverse()
        for left, right, word in pairs:
            kind = type(left)
            method = getattr(kind, word, None)
            if isinstance(method, types.FunctionType) and not isinstance(left, Tensor) and not is_engine(kind):
                self._guard_lookup(kind, word)
                self.journal.typed(left)
                found = self.call(method, (left, right))
                if found is not NotImplemented:
                    return found
        return NotImplemented

    def unary(self, sign, a):
        if not self.live() or self._simple(a):
            return UNARY[sign](a)
        method = getattr(type(a), UNARY_SPECIAL[sign], None)
        if isinstance(method, types.FunctionType):
            self._guard_lookup(type(a), UNARY_SPECIAL[sign])
            return self.call(method, (a,))
        return UNARY[sign](self.escape(a))

    def compare(self, sign, a, b):
        if not self.live():
            return a in b if sign == "in" else a not in b if sign == "not in" else COMPARE[sign](a, b)
        if sign in ("in", "not in"):
            return self._contains(b, a) is (sign == "in")
        if self._simple(a) and self._simple(b):
            return COMPARE[sign](a, b)
        found = self._special(f"__{SPECIAL[sign]}__", a, b, f"__{SPECIAL[MIRRORED[sign]]}__")
        if found is not NotImplemented:
            return found
        if sign in ("==", "!=") and isinstance(a, type) and isinstance(b, type):
            return COMPARE[sign](a, b)
        return COMPARE[sign](self.escape(a), self.escape(b))

    def _contains(self, held, x):
        kind = type(held)
        if kind in MAPPINGS and self._sees(held):
            x = self.plain(x)
            found = x in held
            if found:
                self._entry(held, x)
            else:
                self.journal.missing(held, x)
            return found
        method = getattr(kind, "__contains__", None)
        if isinstance(method, types.FunctionType) and not isinstance(held, Tensor):
            self._guard_lookup(kind, "__contains__")
            return bool(self.call(method, (held, x)))
        if self._sees(held):
            return self.escape(x) in self.escape(held)
        return x in held

    def same(self, a, b):
        """`a is b`."""
        if type(a) in TRACED and type(b) in TRACED:
            return a._value is b._value and fixed(a) is fixed(b)
        if type(a) in TRACED or type(b) in TRACED:
            number, other = (a, b) if type(a) in TRACED else (b, a)
            return type(other) in (int, float) and fixed(number) is other
        return a is b

    def truth(self, x):
        """Something whose truth Python asks for."""
        if not self.live() or self._simple(x) or isinstance(x, (type, *FUNCTION_TYPES)):
            return x
        kind = type(x)
        for name in ("__bool__", "__len__"):
            method = getattr(kind, name, None)
            if isinstance(method, types.FunctionType) and not is_engine(kind):
                self._guard_lookup(kind, name)
                return bool(self.call(method, (x,)))
            if method is not None:
                break
        if self._sees(x) and isinstance(x, (*SEQUENCES, *MAPPINGS, set, frozenset)):
            self.journal.size(x, self.journal.path(x))
        return x

    def tested(self, x):
        """An operand of `and` or `or`, as it is."""
        if self.live() and self._sees(x) and isinstance(x, (*SEQUENCES, *MAPPINGS, set, frozenset)):
            self.journal.size(x, self.journal.path(x))
        return x

    def formatted(self, x):
        return self.escape(x) if self.live() else x

    # --- iterating ---------------------------------------------------------------------------------------------------

    def iterate(self, thing):
        """What a loop goes through."""
        if not self.live() or isinstance(thing, Tensor):
            return thing
        kind, journal = type(thing), self.journal
        if self._sees(thing) or kind in MAPPINGS:
            if kind in SEQUENCES:
                journal.size(thing, journal.path(thing))
                return self._elements(thing)
            if kind in MAPPINGS:
                if self._sees(thing):
                    journal.size(thing, journal.path(thing))
                    for key in thing:
                        journal.see(key, f"a key of {journal.path(thing)}")
                return thing
        method = getattr(kind, "__iter__", None)
        if isinstance(method, types.FunctionType) and not is_engine(kind):
            self._guard_lookup(kind, "__iter__")
            journal.typed(thing)
            thing = self.call(method, (thing,))
            kind = type(thing)
        if isinstance(getattr(kind, "__next__", None), types.FunctionType):
            return self._steps(thing, kind.__next__)
        if self._sees(thing) and not isinstance(thing, (str, range)):
            self.escape(thing)
        return thing

    def _elements(self, thing):
        index = 0
        while index < len(thing):
            yield self._element(thing, index) if self.live() else thing[index]
            index += 1

    def _steps(self, thing, step):
        while True:
            try:
                found = self.call(step, (thing,))
            except StopIteration:
                return
            yield found

    def pairs(self, thing):
        for part in thing:
            yield self.unpacked(part)

    def plained(self, thing):
        for part in thing:
            yield self.plain(part)

    def unpacked(self, thing):
        """What is unpacked into names."""
        if type(thing) is tuple and not self._sees(thing):
            return thing
        return self.iterate(thing)

    @staticmethod
    def tuple(*parts):
        return parts

    def mapping(self, thing):
        """What is unpacked by `**`."""
        if not self.live() or not self._sees(thing):
            return thing
        if type(thing) in MAPPINGS:
            self.journal.size(thing, self.journal.path(thing))
            return {key: self._entry(thing, key) for key in thing}
        return self.escape(thing)

    @staticmethod
    def keywords(*pairs):
        """The keyword arguments of a call, from pairs and, without a name, from mappings."""
        found = {}
        for name, value in pairs:
            new = {name: value} if name is not None else {key: value[key] for key in value.keys()}
            for key in new:
                if key in found:
                    raise TypeError(f"got multiple values for keyword argument '{key}'")
            found.update(new)
        return found

    # --- calling -----------------------------------------------------------------------------------------------------

    def method(self, thing, name, args, kwargs):
        """`thing.name(...)`."""
        kind = type(thing)
        if self.live() and kind in MAPPINGS and self._sees(thing) and not kwargs:
            if name == "get" and 1 <= len(args) <= 2:
                key = self.plain(args[0])
                if key in thing:
                    return self._entry(thing, key)
                self.journal.missing(thing, key)
                return args[1] if len(args) == 2 else None
            if name in ("items", "values", "keys") and not args:
                self.journal.size(thing, self.journal.path(thing))
                for key in thing:
                    self.journal.see(key, f"a key of {self.journal.path(thing)}")
                if name == "keys":
                    return thing.keys()
                return [(key, self._entry(thing, key)) if name == "items" else self._entry(thing, key)
                        for key in thing]
        return self.call(self.attr(thing, name), args, kwargs)

    def call(self, f, args, kwargs=None):
        """`f(*args, **kwargs)`."""
        kwargs = kwargs or {}
        if not self.live():
            return f(*args, **kwargs)
        kind = type(f)
        if kind is types.MethodType:
            if self._sees(f):
                self.journal.see(f.__self__, "self" if f is self.journal.fn else f"{self.journal.path(f)}.__self__")
            if isinstance(f.__self__, type) and issubclass(f.__self__, Function) and f.__func__ is APPLY:
                f = self._function_class(f.__self__).apply
                return self._engine(f, args, kwargs)
            return self.call(f.__func__, (f.__self__, *args), kwargs)
        if kind is types.FunctionType:
            return self._function(f, args, kwargs)
        if isinstance(f, OpType):
            return self._engine(f, args, kwargs)
        if isinstance(f, type):
            return self._construct(f, args, kwargs)
        if kind is functools.partial:
            for part, name in ((f.func, "func"), (f.args, "args"), (f.keywords, "keywords")):
                if self._sees(f):
                    self.journal.see(part, f"{self.journal.path(f)}.{name}")
            return self.call(f.func, (*self.unpacked(f.args), *args), {**self.mapping(f.keywords), **kwargs})
        if isinstance(f, weakref.ref) and kind is weakref.ref:
            found = f()
            if self._sees(f):
                if found is not None and not self._sees(found):      # a recording would keep it alive
                    self.refuse(f"{self.journal.path(f)}() leads to an object that is held by nothing else that was "
                                "read")
                return self.place("referent", f, None, f"{self.journal.path(f)}()", found)
            return found
        if getattr(kind, "_is_compiled", False):
            return self.call(f._compiles, args, kwargs)
        if is_engine(kind):
            return self._engine(f, args, kwargs)
        method = self._lookup(kind, "__call__")
        if isinstance(method, types.FunctionType):
            self._guard_lookup(kind, "__call__")
            self.journal.typed(f)
            return self.call(method, (f, *args), kwargs)
        return self._c_function(f, args, kwargs)

    def _function(self, f, args, kwargs):
        """A function written in Python."""
        code = f.__code__
        if is_copy(code):
            return f(*args, **kwargs)
        if not is_followed_file(code.co_filename) and not hasattr(f, "__wrapped__"):
            return self._engine(f, args, kwargs)
        return self._followed(f, args, kwargs)

    def _followed(self, f, args, kwargs):
        journal = self.journal
        if journal.refusal is None and self.depth >= MAXIMUM_DEPTH:
            self.refuse(f"{f.__qualname__} calls itself more than {MAXIMUM_DEPTH} times deep, which is not followed")
        try:
            code = copy_of(f) if journal.refusal is None else None
        except NotFollowed as why:
            self.refuse(str(why))
            code = None
        if code is None:
            return f(*[self.plain(a) for a in args], **{name: self.plain(a) for name, a in kwargs.items()})
        if id(f) not in journal.functions:
            journal.functions[id(f)] = f
            for i, default in enumerate(f.__defaults__ or ()):
                journal.see(default, f"{f.__name__}.__defaults__[{i}]")
            for name, default in (f.__kwdefaults__ or {}).items():
                journal.see(default, f"{f.__name__}.__kwdefaults__['{name}']")
        cells = dict(zip(f.__code__.co_freevars, f.__closure__ or (), strict=True))
        scope = Scope(self, f, cells)
        closure = tuple([types.CellType(scope) if name == FOLLOW else cells[name] for name in code.co_freevars])
        made = types.FunctionType(code, f.__globals__, f.__name__, f.__defaults__, closure)
        made.__kwdefaults__, made.__qualname__ = f.__kwdefaults__, f.__qualname__
        self.depth += 1
        try:
            return made(*args, **kwargs)
        finally:
            self.depth -= 1

    def _engine(self, f, args, kwargs):
        """A function of ours. Traced numbers stay where an operation takes a number at run time."""
        if f is update:                                      # an operation that writes to several tensors at once
            op, written, inputs = args
            return f(op, written, tuple([a if keeps(op, i, a) else fixed(a) for i, a in enumerate(inputs)]))
        op = f if isinstance(f, OpType) else getattr(f, "op", None)
        op = op if isinstance(op, OpType) else None

        def given(at, a):
            if type(a) in TRACED:
                return a if op is not None and keeps(op, at, a) else fixed(a)
            if isinstance(a, (*PLAIN, Tensor, type, *FUNCTION_TYPES)):
                return a
            if is_engine(type(a)):
                return a
            return self.escape(a)
        return f(*[given(i, a) for i, a in enumerate(args)], **{name: given(name, a) for name, a in kwargs.items()})

    def _function_class(self, cls):
        """An autograd Function whose methods are followed."""
        made = self._classes.get(cls)
        if made is None:
            inside = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
            for name in ("forward", "backward", "vjp", "jvp", "setup_context", "vmap"):
                found = self._lookup(cls, name)
                if isinstance(found, staticmethod) and not is_engine_function(found.__func__):
                    self._guard_lookup(cls, name)
                    inside[name] = staticmethod(self._handed(found.__func__))
            made = self._classes[cls] = type(cls)(cls.__name__, (cls,), inside)
        return made

    def _handed(self, f):
        """A function as others may call it: followed all the same, with a plain result."""
        def handed(*args, **kwargs):
            return self.plain(self.call(f, args, kwargs))
        return functools.wraps(f)(handed) if isinstance(f, types.FunctionType) else handed

    def _construct(self, cls, args, kwargs):
        """An object of a class."""
        known = MODELS.get(cls)
        if known is not None:
            return known(self, *args, **kwargs)
        if is_engine(cls) or isinstance(cls, OpType):
            return self._engine(cls, args, kwargs)
        if cls.__module__ == "builtins" or issubclass(cls, tuple) or type(cls).__call__ is not type.__call__:
            return self._c_function(cls, args, kwargs)
        if effect_of(cls) is not None:
            return self._c_function(cls, args, kwargs)
        new, init = self._lookup(cls, "__new__"), self._lookup(cls, "__init__")
        new = getattr(new, "__func__", new)
        python_new, python_init = isinstance(new, types.FunctionType), isinstance(init, types.FunctionType)
        if python_init and init.__code__.co_filename == "<string>" and not hasattr(cls, "__post_init__"):
            python_init = False                              # that of a dataclass: it only puts its arguments away
        if not python_new and not python_init:
            return self._c_function(cls, args, kwargs)
        if is_engine_function(new):
            return self._engine(cls, args, kwargs)
        if python_new:
            self._guard_lookup(cls, "__new__")
            made = self.call(new, (cls, *args), kwargs)
        else:
            made = cls.__new__(cls) if new is object.__new__ else \
                cls.__new__(cls, *[self.escape(a) for a in args], **{k: self.escape(a) for k, a in kwargs.items()})
        if isinstance(made, cls):
            if isinstance(init, types.FunctionType):
                self._guard_lookup(cls, "__init__")
                self.call(init, (made, *args), kwargs)
            else:
                made.__init__(*[self.escape(a) for a in args], **{k: self.escape(a) for k, a in kwargs.items()})
        return made

    def _c_function(self, f, args, kwargs):
        """A function, method or class written in C."""
        try:
            known, by_identity, hands_on = MODELS.get(f), f in BY_IDENTITY, f in HANDING_ON
        except TypeError:                                    # it cannot be a key
            known, by_identity, hands_on = None, False, False
        if known is not None:
            return known(self, *args, **kwargs)
        if f in MATH if isinstance(f, types.BuiltinFunctionType) else False:
            if not kwargs and any(type(a) in TRACED for a in args) and all(type(a) in NUMBERS for a in args):
                return MATH[f](*args)
        effect = effect_of(f)
        if effect is not None and self.effect is None:
            self.effect = f"{effect} at {self._line()}"
        if by_identity:
            for a in args:
                self.journal.typed(a)
            return f(*[a if type(a) not in TRACED else fixed(a) if f is id else a._value for a in args], **kwargs)
        if hands_on:
            return f(*[self._handed_on(a) for a in args], **{name: self._handed_on(a) for name, a in kwargs.items()})
        owner = getattr(f, "__self__", None)
        if type(owner) in (list, dict, tuple) and not self._sees(owner) and id(owner) not in self.published:
            return f(*[self._kept(f.__name__, a) for a in args],
                     **{name: self._kept(f.__name__, a) for name, a in kwargs.items()})
        if owner is not None and self._sees(owner):
            self.escape(owner)
        args = [self._callback(self.escape(a)) for a in args]
        return f(*args, **{name: self._callback(self.escape(a)) for name, a in kwargs.items()})

    def _kept(self, name, x):
        """An argument of a method of a container that the call has made: put there, gone through, or compared."""
        if isinstance(x, FUNCTION_TYPES):
            return self._callback(x) if name == "sort" else x
        if name in KEEPING or type(x) in TRACED:
            return x
        if name in ("update", "extend") and type(x) in (*MAPPINGS, *SEQUENCES):
            return self.mapping(x) if type(x) in MAPPINGS and name == "update" else list(self.iterate(x))
        return self.escape(x)

    def _handed_on(self, x):
        """An argument of a function that only hands on what it is given."""
        if isinstance(x, FUNCTION_TYPES) or isinstance(x, functools.partial):
            return self._callback(x)
        if isinstance(x, (*PLAIN, Tensor, type)) or type(x) in TRACED:
            return x
        return self.iterate(x)

    def _callback(self, x):
        """A function that C code will call."""
        if isinstance(x, (types.FunctionType, types.MethodType, functools.partial)) and not is_engine_function(x):
            return self._handed(x)
        return x

    def manager(self, thing):
        """What a `with` enters and leaves."""
        kind = type(thing)
        if not self.live() or is_engine(kind) or not isinstance(getattr(kind, "__enter__", None), types.FunctionType):
            return thing
        return Manager(self, thing)


class Manager:
    """A context manager written in Python, followed."""

    def __init__(self, follower, thing):
        self.follower, self.thing = follower, thing

    def __enter__(self):
        return self.follower.call(type(self.thing).__enter__, (self.thing,))

    def __exit__(self, *error):
        return self.follower.call(type(self.thing).__exit__, (self.thing, *error))


class Scope:
    """What `_follow` is in one copy: the Follower, with the globals and cells of the function that was copied."""

    def __init__(self, follower, function, cells):
        self._follower, self._function, self._cells = follower, function, cells

    def __getattr__(self, name):
        return getattr(self._follower, name)

    def name(self, name):
        """A global name."""
        held, follower = self._function.__globals__, self._follower
        if name in held:
            if not follower.live():
                return held[name]
            return follower.place("item", held, name, name, held[name])
        if follower.live():
            follower.journal.missing(held, name)
        try:
            inside = held.get("__builtins__", builtins)
            return vars(inside)[name] if isinstance(inside, types.ModuleType) else inside[name]
        except KeyError:
            raise NameError(f"name '{name}' is not defined", name=name) from None

    def free(self, name, value):
        """A name of a function around the copied one."""
        follower = self._follower
        return follower.place("cell", self._cells[name], None, name, value) if follower.live() else value

    def store_name(self, name, value):
        held, follower = self._function.__globals__, self._follower
        if not follower.live():
            held[name] = value
            return
        follower._put("item", held, name, name, held.get(name, MISSING), value, lambda v: held.__setitem__(name, v))

    def store_free(self, name, value):
        """The plain value that the copy will put into the cell."""
        follower, cell, made = self._follower, self._cells[name], []
        if not follower.live():
            return value
        try:
            before = cell.cell_contents
        except ValueError:
            before = MISSING
        follower._put("cell", cell, None, name, before, value, made.append)
        return made[0]

    def imported(self, name, leaf):
        """`import name`; the module itself if it is given another name, the outermost one otherwise."""
        top = __import__(name, self._function.__globals__, None, (), 0)
        wanted = name if leaf else name.partition(".")[0]
        return self._module(wanted) if self._follower.live() else sys.modules.get(wanted, top)

    def _module(self, name):
        return self._follower.place("item", sys.modules, name, f"sys.modules['{name}']", sys.modules[name])

    def imported_from(self, module, level, name):
        """`from module import name`."""
        full = "." * level + module
        package = self._function.__globals__.get("__package__")
        found = import_module(full, package) if level else import_module(module)
        if self._follower.live():
            self._module(found.__name__)
        try:
            return self._follower.attr(found, name)
        except AttributeError:
            try:
                return import_module(f"{found.__name__}.{name}")
            except ImportError:
                raise ImportError(f"cannot import name {name!r} from {found.__name__!r} "
                                  f"({getattr(found, '__file__', 'unknown location')})", name=found.__name__) from None


# --- what some functions written in C do -----------------------------------------------------------------------------


def _getattr(follower, thing, name, *default):
    name = follower.plain(name)
    if not default:
        return follower.attr(thing, name)
    try:
        return follower.attr(thing, name)
    except AttributeError:
        return default[0]


def _hasattr(follower, thing, name):
    try:
        follower.attr(thing, follower.plain(name))
    except AttributeError:
        return False
    return True


def _len(follower, thing):
    kind = type(thing)
    method = getattr(kind, "__len__", None)
    if isinstance(method, types.FunctionType) and not is_engine(kind) and not isinstance(thing, Tensor):
        follower._guard_lookup(kind, "__len__")
        follower.journal.typed(thing)
        return len(range(follower.call(method, (thing,))))
    if follower._sees(thing) and isinstance(thing, (*SEQUENCES, *MAPPINGS, set, frozenset)):
        follower.journal.size(thing, follower.journal.path(thing))
    elif follower._sees(thing):
        follower.escape(thing)
    return len(thing)


def _type(follower, thing, *more):
    if more:
        return type(thing, *[follower.escape(a) for a in more])
    if type(thing) in TRACED:
        return type(thing._value)
    follower.journal.typed(thing)
    return type(thing)


def _vars(follower, *thing):
    if not thing:
        return _unbounded("vars")(follower)
    return follower.attr(thing[0], "__dict__")


def _number(kind):
    """float() and int(): of a Traced of that kind, itself."""
    def model(follower, *args, **kwargs):
        if len(args) == 1 and not kwargs and type(args[0]) in TRACED and type(args[0]._value) is kind:
            return args[0]
        if len(args) == 1 and not kwargs:
            for name in (f"__{kind.__name__}__", "__index__"):
                method = getattr(type(args[0]), name, None)
                if isinstance(method, types.FunctionType) and not isinstance(args[0], Tensor) \
                        and type(args[0]) not in TRACED:
                    return kind(follower.plain(follower.call(method, (args[0],))))
        return kind(*[follower.escape(a) for a in args], **kwargs)
    return model


def _bool(follower, *args):
    return bool(*[follower.truth(a) for a in args])


def _bisect(function):
    """A search by comparisons, which Traced numbers answer by themselves."""
    def model(follower, held, *args, **kwargs):
        if type(held) not in (list, tuple) or kwargs:
            return function(follower.escape(held), *[follower.escape(a) for a in args],
                            **{name: follower.escape(a) for name, a in kwargs.items()})
        return function(list(follower.iterate(held)), *args)
    return model


def _dict(follower, *args, **kwargs):
    return dict(*[follower.mapping(a) if type(a) in MAPPINGS else
                  [tuple(follower.unpacked(pair)) for pair in follower.iterate(a)] for a in args], **kwargs)


def _unbounded(name):
    def model(follower, *args, **kwargs):
        follower.refuse(f"{name}() at {follower._line()} sees more than can be followed")
        raise_later = {"eval": eval, "exec": exec, "globals": globals, "locals": locals, "vars": vars, "dir": dir,
                       "compile": compile}[name]
        if args:
            frame = user_frame()
            if name in ("eval", "exec") and len(args) == 1:
                return raise_later(args[0], frame.f_globals, dict(frame.f_locals))
            return raise_later(*args, **kwargs)
        frame = user_frame()
        return frame.f_globals if name == "globals" else sorted(frame.f_locals) if name == "dir" else frame.f_locals
    return model


def _dir(follower, *thing):
    return dir(follower.escape(thing[0])) if thing else _unbounded("dir")(follower)


def _object_setattr(follower, thing, name, value):
    if isinstance(thing, type) or isinstance(thing, Tensor) or is_engine(type(thing)):
        return object.__setattr__(thing, name, follower.plain(value))
    follower._set(thing, follower.plain(name), value, object.__setattr__)


MODELS = {
    getattr: _getattr, hasattr: _hasattr, len: _len, type: _type, vars: _vars, dir: _dir, bool: _bool, dict: _dict,
    float: _number(float), int: _number(int),
    setattr: lambda follower, thing, name, value: follower.store_attr(value, thing, follower.plain(name)),
    delattr: lambda follower, thing, name: follower.delete_attr(thing, follower.plain(name)),
    object.__setattr__: _object_setattr,
    super: lambda follower, *args: super(*args),
    bisect.bisect_left: _bisect(bisect.bisect_left), bisect.bisect_right: _bisect(bisect.bisect_right),
    **{getattr(builtins, name): _unbounded(name) for name in ("eval", "exec", "globals", "locals", "compile")},
}
defaultdict_type = MAPPINGS[2]
APPLY = vars(Function)["apply"].__func__


def is_engine_function(f):
    """Whether a function belongs to the engine, or to NumPy."""
    f = getattr(f, "__func__", f)
    code = getattr(f, "__code__", None)
    return code is not None and not is_followed_file(code.co_filename)


def trusted_package(module):
    return module.__name__.partition(".")[0] == __name__.partition(".")[0]


def is_floats(x):
    """Whether a tuple holds numbers and nothing else, some of them floats: the decay rates of an optimizer."""
    return all(type(part) in (int, float) for part in x) and any(type(part) is float for part in x)


def is_numbers(x):
    return all(type(part) in NUMBERS for part in x)
