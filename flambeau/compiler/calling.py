"""How a copy calls: functions and classes of Python are followed, the engine and C are called. See follow.py."""
import builtins
import functools
import sys
import types
import weakref
from collections import deque
from importlib import import_module

from ..autograd.function import Function, once_differentiable
from ..base.dtypes import dtype as Dtype
from ..base.op import Op
from ..tensor.forms import FORM_TYPE
from ..tensor.tensor import Tensor
from ..tensor.write import update
from .gradient import FOLLOWED_BACKWARD, tensors_in
from .journal import FUNCTION_TYPES, MAPPING_TYPES, MISSING, PLAIN_TYPES, is_engine, is_sequence
from .models import MODELS, given_to_dict
from .moving import ASK_OFFSET
from .rewrite import FOLLOW, NotFollowed, copy_of, is_copy
from .taking import may_take, taken_first
from .traced import MATH_MODELS, NUMBER_TYPES, TRACED, keeps, plain as fixed
from .watch import effect_of, is_engine_function, is_followed_file

MAXIMUM_DEPTH = 60            # calls inside each other that are followed
# Of C functions, those that ask an object for nothing but its identity or class.
IDENTITY_FUNCTIONS = frozenset((isinstance, issubclass, id, callable, type))
# Those that only hand on what they are given: what they give may hold Traced numbers.
HANDING_ON_FUNCTIONS = frozenset((zip, enumerate, list, tuple, iter, next, map, filter, functools.reduce))
CALLING_FUNCTIONS = frozenset((map, filter, functools.reduce))         # those of them that call their first argument
# Those that compute with the elements of what they are given: Traced numbers answer for themselves, others are seen
# whole.
COMPUTING_FUNCTIONS = frozenset((min, max, sum, abs, sorted, divmod, any, all))
# Methods of containers that hand over, or hand on, what they are given, without looking at it.
KEEPING_METHODS = frozenset("append appendleft insert popleft items keys values clear copy reverse popitem".split())
# Those whose first argument is a key, and whose second is handed on.
KEY_METHODS = frozenset("get pop setdefault".split())
KEEPING_CONTAINERS = (list, dict, set, deque, tuple)
ITERATORS = (types.GeneratorType, map, filter, zip, enumerate, reversed, type(iter([])), type(iter(())))
APPLY = vars(Function)["apply"].__func__
ONCE_CODE = once_differentiable(lambda ctx: None).__code__


class Calling:
    """The part of a Follower that calls."""

    def method(self, thing, name, args, kwargs):
        """`thing.name(...)`."""
        cls = type(thing)
        if self.live() and cls in MAPPING_TYPES and self._sees(thing) and not kwargs:
            if name == "get" and 1 <= len(args) <= 2:
                key = self.key(args[0])
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
        cls = type(f)
        if cls is types.MethodType:
            if self._sees(f):
                self.journal.see(f.__self__, "self" if f is self.journal.fn else f"{self.journal.path(f)}.__self__")
            if isinstance(f.__self__, type) and issubclass(f.__self__, Function) and f.__func__ is APPLY:
                f = self._function_class(f.__self__).apply
                return self._engine(f, args, kwargs)
            return self.call(f.__func__, (f.__self__, *args), kwargs)
        if cls is types.FunctionType:
            return self._function(f, args, kwargs)
        if isinstance(f, (Op, FORM_TYPE)):
            return self._engine(f, args, kwargs)
        if isinstance(f, type):
            return self._construct(f, args, kwargs)
        if cls is functools.partial:
            for part, name in ((f.func, "func"), (f.args, "args"), (f.keywords, "keywords")):
                if self._sees(f):
                    self.journal.see(part, f"{self.journal.path(f)}.{name}")
            return self.call(f.func, (*self.unpacked(f.args), *args), {**self.mapping(f.keywords), **kwargs})
        if isinstance(f, weakref.ref) and cls is weakref.ref:
            found = f()
            if self._sees(f):
                if found is not None and not self._sees(found):      # a recording would keep it alive
                    self.refuse(f"{self.journal.path(f)}() leads to an object that is held by nothing else that was "
                                "read")
                return self.place("referent", f, None, f"{self.journal.path(f)}()", found)
            return found
        if getattr(cls, "_is_compiled", False):
            return self.call(f._compiles, args, kwargs)
        if is_engine(cls):
            return self._engine(f, args, kwargs)
        method = self._lookup(cls, "__call__")
        if isinstance(method, types.FunctionType):
            self._guard_lookup(cls, "__call__")
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
            if f.__kwdefaults__:                             # a dictionary, whose contents may change where it stands
                path, ahead = f"{f.__name__}.__kwdefaults__", journal.ahead
                journal.ahead = None                         # they are of the function's code
                journal.see(f.__kwdefaults__, path)
                journal.size(f.__kwdefaults__, path)
                self.bare.update(journal.edge("item", f.__kwdefaults__, name, default, f"{path}['{name}']")
                                 for name, default in f.__kwdefaults__.items())
                journal.ahead = ahead
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
        name = getattr(f, "__name__", "")
        if name in ASK_OFFSET or name == "view" and any(isinstance(a, Dtype) for a in (*args, *kwargs.values())):
            self.journal.fixed.update(t._storage for t in tensors_in((args, kwargs)))

        def given(at, a):
            if type(a) in TRACED:
                return a if op is not None and keeps(op, at, a) else fixed(a)
            if type(a) in PLAIN_TYPES or isinstance(a, (Tensor, type, *FUNCTION_TYPES)):
                return a
            if is_engine(type(a)) and not isinstance(a, tuple):
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
                function = found.__func__ if isinstance(found, staticmethod) else None
                once = getattr(function, "__code__", None) is ONCE_CODE
                if function is not None and (once or not is_engine_function(function)):
                    self._guard_lookup(cls, name)
                    handed = self._handed(function.__wrapped__ if once else function)
                    inside[name] = staticmethod(once_differentiable(handed) if once else handed)
            inside["own_backward"] = not {"backward", "vjp"}.isdisjoint(inside) and FOLLOWED_BACKWARD
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
            computes = f in COMPUTING_FUNCTIONS
        except TypeError:                                    # it cannot be a key
            known, by_identity, hands_on, computes = None, False, False, False
        if known is not None:
            return known(self, *args, **kwargs)
        if f in MATH_MODELS if isinstance(f, types.BuiltinFunctionType) else False:
            if not kwargs and any(type(a) in TRACED for a in args) and all(type(a) in NUMBER_TYPES for a in args):
                return MATH_MODELS[f](*args)
        if f is next and len(args) == 1 and not kwargs and self._sees(args[0]) \
                and (self.capture.pending or may_take(self)):
            return taken_first(self, args[0])
        effect = effect_of(f)
        if effect is not None:
            self.journal.now_or_never(f"{effect} is called")
            self.effect = self.effect or f"{effect} at {self._line()}"
        if by_identity:
            for a in args:
                self.journal.typed(a)
                if f is id and id(a) in self.journal.loose:
                    self.refuse(f"id() at {self._line()} tells {self.journal.path(a)} by its identity, and it is "
                                "another object at every call")
            return f(*[a if type(a) not in TRACED else fixed(a) if f is id else a._value for a in args], **kwargs)
        if hands_on:
            if f in CALLING_FUNCTIONS and args and args[0] is not None:
                args = (self._callback(args[0], True), *args[1:])
            return f(*[self._handed_on(a) for a in args], **{name: self._handed_on(a) for name, a in kwargs.items()})
        if computes:
            return f(*[self._elements_of(f, a) if at == 0 and (f not in (min, max) or len(args) == 1) else
                       self._whole(self._callback(a)) for at, a in enumerate(args)],
                     **{name: self._whole(self._callback(a, name == "key")) for name, a in kwargs.items()})
        owner = getattr(f, "__self__", None)
        if type(owner) in (list, dict, tuple) and not self._sees(owner) and id(owner) not in self.published:
            if f.__name__ in ("sort", "index", "count", "remove") or f.__name__.startswith("__"):
                f = getattr(self._compared(owner), f.__name__)
            if f.__name__ in KEY_METHODS and type(owner) is dict and args:
                args = (self.key(args[0]), *args[1:])
            named = kwargs if f.__name__ == "update" else \
                {name: self._kept(f.__name__, a) for name, a in kwargs.items()}      # entries, which are handed on
            return f(*[self._kept(f.__name__, a) for a in args], **named)
        if owner is not None and self._sees(owner):
            self.escape(owner)
        keeps = isinstance(owner, KEEPING_CONTAINERS) and f.__name__ != "sort" or \
            isinstance(f, type) and f.__module__ not in ("itertools", "builtins")

        def given(a):
            a = self._plain_elements(a) if isinstance(a, ITERATORS) else self.escape(a)
            return a if keeps else self._callback(a)
        return f(*[given(a) for a in args], **{name: given(a) for name, a in kwargs.items()})

    def _plain_elements(self, iterator):
        """What an iterator of the call's own will give, for code that is not followed."""
        self.escape(iterator)
        return (self.escape(x) for x in iterator)

    def _kept(self, name, x):
        """An argument of a method of a container that the call has made: put there, gone through, or compared."""
        if isinstance(x, FUNCTION_TYPES):
            return self._callback(x) if name == "sort" else x
        if name in KEEPING_METHODS or name in KEY_METHODS or type(x) in TRACED:
            return x
        if name == "update":
            return given_to_dict(self, x)
        if name == "extend" and (type(x) in MAPPING_TYPES or is_sequence(type(x))):
            return list(self.iterate(x))
        return self.escape(x)

    def _handed_on(self, x):
        """An argument of a function that only hands on what it is given."""
        if isinstance(x, FUNCTION_TYPES) or isinstance(x, functools.partial):
            return self._callback(x)
        if type(x) in PLAIN_TYPES or isinstance(x, (Tensor, type)) or type(x) in TRACED:
            return x
        return self.iterate(x)

    def _elements_of(self, f, x):
        """The first argument of a function that computes with the elements of it."""
        if f in (abs, divmod) or type(x) in PLAIN_TYPES or isinstance(x, (Tensor, type)) or type(x) in TRACED:
            return self._whole(x)
        use, found = self.truth if f in (any, all) else self._whole, iter(self.iterate(x))
        return (use(part) for part in found)

    def _compared(self, container):
        """A container of the call's own, whose elements will be compared: with containers among them, all are plain."""
        parts = list(container.values() if type(container) is dict else container)
        for part in parts:
            self._whole(part)
            if type(part) in TRACED and part._value != part._value:
                self.refuse(f"nan is looked for at {self._line()}, and it is told from others by its identity")
        return self.plain(container) if any(type(part) is tuple for part in parts) else container

    def _whole(self, x):
        """`x` as it is, all of which may be used by C code; a Traced number answers for itself."""
        return x if type(x) in TRACED or type(x) in PLAIN_TYPES or isinstance(x, Tensor) else self.escape(x)

    def _callback(self, x, sure=False):
        """What C code may call, and is `sure` to do no more than that: then one in C has its arguments noted, too."""
        if type(x) is functools.partial:
            return functools.partial(self._callback(x.func), *x.args, **x.keywords)
        if isinstance(x, FUNCTION_TYPES) and not is_engine_function(x):
            handed = self._handed(getattr(x, "__func__", x))
            return types.MethodType(handed, x.__self__) if isinstance(x, types.MethodType) else handed
        return self._handed(x) if sure and callable(x) else x

    def manager(self, thing):
        """What a `with` enters and leaves."""
        cls = type(thing)
        if not self.live() or is_engine(cls) or not isinstance(getattr(cls, "__enter__", None), types.FunctionType):
            return thing
        self.journal.typed(thing)
        for name in ("__enter__", "__exit__"):
            self._guard_lookup(cls, name)
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
        namespace, follower = self._function.__globals__, self._follower
        if name in namespace:
            if not follower.live():
                return namespace[name]
            return follower.place("item", namespace, name, name, namespace[name])
        if follower.live():
            follower.journal.missing(namespace, name)
        try:
            inside = namespace.get("__builtins__", builtins)
            return vars(inside)[name] if isinstance(inside, types.ModuleType) else inside[name]
        except KeyError:
            raise NameError(f"name '{name}' is not defined", name=name) from None

    def free(self, name, value):
        """A name of a function around the copied one."""
        follower = self._follower
        return follower.place("cell", self._cells[name], None, name, value) if follower.live() else value

    def store_name(self, name, value):
        namespace, follower = self._function.__globals__, self._follower
        if not follower.live():
            namespace[name] = value
            return
        follower._put("item", namespace, name, name, namespace.get(name, MISSING), value,
                      lambda v: namespace.__setitem__(name, v))

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
