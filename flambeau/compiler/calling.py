"""How a copy calls: functions and classes of Python are followed, the engine and C are called. See follow.py."""
import builtins
import functools
import sys
import types
import weakref
from importlib import import_module

from ..autograd.function import Function
from ..base.op import Op
from ..tensor.forms import FORM_TYPE
from ..tensor.tensor import Tensor
from ..tensor.write import update
from .journal import FUNCTION_TYPES, MAPPING_TYPES, MISSING, PLAIN_TYPES, SEQUENCE_TYPES, is_engine
from .models import MODELS
from .rewrite import FOLLOW, NotFollowed, copy_of, is_copy
from .traced import MATH_MODELS, NUMBER_TYPES, TRACED, keeps, plain as fixed
from .watch import effect_of, is_engine_function, is_followed_file

MAXIMUM_DEPTH = 60            # calls inside each other that are followed
# Of C functions, those that ask an object for nothing but its identity or class.
IDENTITY_FUNCTIONS = frozenset((isinstance, issubclass, id, callable, type))
# Those that only hand on what they are given: what they give may hold Traced numbers.
HANDING_ON_FUNCTIONS = frozenset((zip, enumerate, reversed, list, tuple, iter, next, min, max, sum, abs, sorted, divmod,
                                  map, filter, functools.reduce, any, all))
# Methods of containers that hand over, or hand on, what they are given, without looking at it.
KEEPING_METHODS = frozenset("append appendleft insert setdefault get pop popleft items keys values clear copy reverse "
                            "sort popitem".split())
APPLY = vars(Function)["apply"].__func__


class Calling:
    """The part of a Follower that calls."""

    def method(self, thing, name, args, kwargs):
        """`thing.name(...)`."""
        kind = type(thing)
        if self.live() and kind in MAPPING_TYPES and self._sees(thing) and not kwargs:
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
        if isinstance(f, (Op, FORM_TYPE)):
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
        if not is_followed_file(code.co_filename) and (hasattr(f, "op") or not hasattr(f, "__wrapped__")):
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
            op, tensors, numbers = args
            return f(op, tensors, tuple([a if keeps(op, i, a) else fixed(a)
                                         for i, a in enumerate(numbers, len(tensors))]))
        op = f if isinstance(f, Op) else getattr(f, "op", None)
        op = op if isinstance(op, Op) else None

        def given(at, a):
            if type(a) in TRACED:
                return a if op is not None and keeps(op, at, a) else fixed(a)
            if isinstance(a, (*PLAIN_TYPES, Tensor, type, *FUNCTION_TYPES)):
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
        if is_engine(cls):
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
            known, by_identity, hands_on = MODELS.get(f), f in IDENTITY_FUNCTIONS, f in HANDING_ON_FUNCTIONS
        except TypeError:                                    # it cannot be a key
            known, by_identity, hands_on = None, False, False
        if known is not None:
            return known(self, *args, **kwargs)
        if f in MATH_MODELS if isinstance(f, types.BuiltinFunctionType) else False:
            if not kwargs and any(type(a) in TRACED for a in args) and all(type(a) in NUMBER_TYPES for a in args):
                return MATH_MODELS[f](*args)
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
        if name in KEEPING_METHODS or type(x) in TRACED:
            return x
        if name in ("update", "extend") and type(x) in (*MAPPING_TYPES, *SEQUENCE_TYPES):
            return self.mapping(x) if type(x) in MAPPING_TYPES and name == "update" else list(self.iterate(x))
        return self.escape(x)

    def _handed_on(self, x):
        """An argument of a function that only hands on what it is given."""
        if isinstance(x, FUNCTION_TYPES) or isinstance(x, functools.partial):
            return self._callback(x)
        if isinstance(x, (*PLAIN_TYPES, Tensor, type)) or type(x) in TRACED:
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
        self.journal.typed(thing)
        for name in ("__enter__", "__exit__"):
            self._guard_lookup(kind, name)
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
