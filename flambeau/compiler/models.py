"""What some functions written in C do, said in Python, so that it is known what they read. See follow.py."""
import bisect
import builtins
import types

from ..base.errors import user_frame
from ..tensor.tensor import Tensor
from .journal import MAPPING_TYPES, SEQUENCE_TYPES, is_engine, is_sequence
from .traced import TRACED


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
    cls = type(thing)
    method = getattr(cls, "__len__", None)
    if isinstance(method, types.FunctionType) and not is_engine(cls) and not isinstance(thing, Tensor):
        follower._guard_lookup(cls, "__len__")
        follower.journal.typed(thing)
        return len(range(follower.call(method, (thing,))))
    if follower._sees(thing) and isinstance(thing, (*SEQUENCE_TYPES, *MAPPING_TYPES, set, frozenset)):
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
    return follower.attr(thing[0], "__dict__") if hasattr(thing[0], "__dict__") else vars(thing[0])     # an error


def _number(cls):
    """float() and int(): of a Traced of the class `cls`, itself."""
    def model(follower, *args, **kwargs):
        if len(args) == 1 and not kwargs and type(args[0]) in TRACED and type(args[0]._value) is cls:
            return args[0]
        if len(args) == 1 and not kwargs:
            for name in (f"__{cls.__name__}__", "__index__"):
                method = getattr(type(args[0]), name, None)
                if isinstance(method, types.FunctionType) and not isinstance(args[0], Tensor) \
                        and type(args[0]) not in TRACED:
                    follower._guard_lookup(type(args[0]), name)
                    return cls(follower.plain(follower.call(method, (args[0],))))
        return cls(*[follower.escape(a) for a in args], **kwargs)
    return model


def _pow(follower, base, exponent, *modulus, **more):
    if modulus or more:
        return pow(*[follower.escape(a) for a in (base, exponent, *modulus)],
                   **{name: follower.escape(a) for name, a in more.items()})
    return follower.binary("**", base, exponent)


def _bool(follower, *args):
    return bool(*[follower.truth(a) for a in args])


def _bisect(function):
    """A search by comparisons, which Traced numbers answer by themselves."""
    def model(follower, sequence, *args, **kwargs):
        if type(sequence) not in (list, tuple) or kwargs:
            return function(follower.escape(sequence), *[follower.escape(a) for a in args],
                            **{name: follower.escape(a) for name, a in kwargs.items()})
        return function(list(follower.iterate(sequence)), *args)
    return model


def _dict(follower, *args, **kwargs):
    return dict(*[given_to_dict(follower, a) for a in args], **kwargs)


def given_to_dict(follower, a):
    """A mapping, or pairs, that a dictionary takes up."""
    if type(a) in MAPPING_TYPES:
        return follower.mapping(a)
    if hasattr(type(a), "keys") or not hasattr(type(a), "__iter__"):
        return follower.escape(a)

    def item(pair):
        if not is_sequence(type(pair)):
            return follower.escape(pair)
        key, *value = follower.unpacked(pair) if len(pair) else (None,)
        return (follower.key(key), *value) if len(pair) else pair
    return [item(pair) for pair in follower.iterate(a)]


def _reversed(follower, thing):
    cls = type(thing)
    method = getattr(cls, "__reversed__", None)
    if isinstance(method, types.FunctionType) and not is_engine(cls):
        follower._guard_lookup(cls, "__reversed__")
        follower.journal.typed(thing)
        return follower.call(method, (thing,))
    if is_sequence(cls):
        return reversed(list(follower.iterate(thing))) if follower._sees(thing) else reversed(thing)
    return reversed(follower.escape(thing))


def _unbounded(name):
    def model(follower, *args, **kwargs):
        follower.refuse(f"{name}() at {follower._line()} sees more than can be followed")
        function = {"eval": eval, "exec": exec, "globals": globals, "locals": locals, "vars": vars, "dir": dir,
                       "compile": compile}[name]
        if args:
            frame = user_frame()
            if name in ("eval", "exec") and len(args) == 1:
                return function(args[0], frame.f_globals, dict(frame.f_locals))
            return function(*args, **kwargs)
        frame = user_frame()
        if name == "globals":
            return frame.f_globals
        seen = dict(frame.f_locals)              # since Python 3.13 a frame gives a view, and `locals()` a dictionary
        return sorted(seen) if name == "dir" else seen
    return model


def _dir(follower, *thing):
    return dir(follower.escape(thing[0])) if thing else _unbounded("dir")(follower)


def _object_setattr(follower, thing, name, value):
    if isinstance(thing, type) or isinstance(thing, Tensor) or is_engine(type(thing)):
        return object.__setattr__(thing, name, follower.plain(value))
    follower._set(thing, follower.plain(name), value, object.__setattr__)


MODELS = {
    getattr: _getattr, hasattr: _hasattr, len: _len, type: _type, vars: _vars, dir: _dir, bool: _bool, dict: _dict,
    pow: _pow, float: _number(float), int: _number(int),
    setattr: lambda follower, thing, name, value: follower.store_attr(value, thing, follower.plain(name)),
    delattr: lambda follower, thing, name: follower.delete_attr(thing, follower.plain(name)),
    object.__setattr__: _object_setattr,
    super: lambda follower, *args: super(*args), reversed: _reversed,
    bisect.bisect_left: _bisect(bisect.bisect_left), bisect.bisect_right: _bisect(bisect.bisect_right),
    **{getattr(builtins, name): _unbounded(name) for name in ("eval", "exec", "globals", "locals", "compile")},
}
