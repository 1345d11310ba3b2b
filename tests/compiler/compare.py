"""Whether two runs of the same Python code left the same behind: one plain, one compiled.

`compare` walks two structures side by side: results, arguments, and everything that can be reached from a module's
names. Types are compared exactly, so that nothing may stand in the place of a number; tensors by contents, strides,
offset, version, gradient and graph; and whatever is one object, or one memory, on the one side has to be so on the
other.
"""
import array
import collections
import contextvars
import functools
import re
import threading
import types
import weakref

import numpy as np

import flambeau as torch

ATOMS = (int, float, complex, bool, str, bytes, type(None), type(...), range, slice, types.CodeType, torch.dtype,
         torch.device)
TAGS = ("n", "note")          # attributes that the tests put on tensors
ADDRESS = re.compile(r"\b0x[0-9a-f]+")
OWN_MODULES = "random_"       # modules of this prefix are looked into


class Different(AssertionError):
    """The compiled run left something else behind than the plain one."""


class Walk:
    """One comparison of two worlds; `units` says by how many units in the last place floats may differ."""

    def __init__(self, units=0):
        self.units = units
        self.left, self.right = {}, {}           # id of an object → the id of the other side's
        self.memory_left, self.memory_right = {}, {}
        self.held = []                           # what was made on the way, so that no id is used again
        self.stack = []

    def compare(self, a, b, path):
        self.stack.append((a, b, path))
        while self.stack:
            self._one(*self.stack.pop())

    def need(self, condition, path, words, a, b):
        if not condition:
            raise Different(f"{path}: {words} {shown(b)}, plain {shown(a)}")

    def _later(self, pairs):
        self.stack += reversed(pairs)

    def _one(self, a, b, path):
        kind = type(a)
        self.need(same_type(kind, type(b)), path, "is a", kind, type(b))
        if isinstance(a, ATOMS) or isinstance(a, np.generic):
            self.need(same_atom(a, b), path, "is", a, b)
            return
        if kind is tuple or isinstance(a, (torch.Size, frozenset)):      # immutable: may be made anew
            self._parts(a, b, path)
            return
        known = self.left.get(id(a)), self.right.get(id(b))
        self.need((known == (None, None)) or known == (id(b), id(a)), path, "is (or is not) another object:", a, b)
        if known != (None, None):
            return
        self.left[id(a)], self.right[id(b)] = id(b), id(a)
        self.held.append((a, b))
        if isinstance(a, torch.Tensor):
            self._tensor(a, b, path)
        else:
            self._parts(a, b, path)

    def _tensor(self, a, b, path):
        for words, look in (("has the dtype", lambda t: t.dtype), ("has the shape", lambda t: tuple(t.shape)),
                            ("has the strides", lambda t: t.stride()), ("has the offset", lambda t: t.storage_offset()),
                            ("requires grad:", lambda t: t.requires_grad), ("is a leaf:", lambda t: t.is_leaf),
                            ("has no graph:", lambda t: t.grad_fn is None), ("has the version", lambda t: t._version)):
            self.need(look(a) == look(b), path, words, look(a), look(b))
        cells = self.memory_left.setdefault(id(a._storage), id(b._storage)), \
            self.memory_right.setdefault(id(b._storage), id(a._storage))
        self.need(cells == (id(b._storage), id(a._storage)), path, "shares memory with others:", a, b)
        self.held.append((a._storage, b._storage))
        x = a.detach().clone().contiguous().numpy()
        try:
            y = b.detach().clone().contiguous().numpy()
        except Exception as error:
            raise Different(f"{path}: cannot be looked at, {type(error).__name__}: {error}") from error
        if x.tobytes() != y.tobytes() and not (self.units and near(x, y, self.units)):
            raise Different(f"{path}: holds {y.tolist()}, plain {x.tolist()}")
        pairs = [(getattr(a, name, None), getattr(b, name, None), f"{path}.{name}") for name in TAGS]
        if a.is_leaf:
            pairs.append((a.grad, b.grad, f"{path}.grad"))
        self._later(pairs)

    def _parts(self, a, b, path):
        mine, others = parts(a), parts(b)
        self.need([p[0] for p in mine] == [p[0] for p in others], path, "has the parts", Named(mine), Named(others))
        self._later([(x, y, path + name) for (name, x), (_, y) in zip(mine, others)])


def same_type(a, b):
    """One type; or, of the classes that each of the two worlds has made for itself, one name."""
    return a is b or (a.__module__.startswith(OWN_MODULES) and (a.__module__, a.__qualname__) ==
                      (b.__module__, b.__qualname__))


def same_atom(a, b):
    if isinstance(a, (float, np.floating)):
        return np.float64(a).tobytes() == np.float64(b).tobytes() or (a != a and b != b)
    if isinstance(a, str) and a != b:                        # the two worlds' objects have addresses of their own
        return ADDRESS.sub("", a) == ADDRESS.sub("", b)
    return a == b


def near(x, y, units):
    """Whether floats differ by no more than `units` in the last place of the largest."""
    if x.dtype.kind != "f":
        return False
    with np.errstate(all="ignore"):
        finite = np.isfinite(x)
        if not np.array_equal(finite, np.isfinite(y)) or not np.array_equal(x[~finite], y[~finite], equal_nan=True):
            return False
        scale = max(1.0, float(np.abs(x[finite]).max(initial=0.0)))
        return bool(np.all(np.abs(x[finite] - y[finite]) <= units * np.finfo(x.dtype).eps * scale))


def shown(x):
    text = repr(x)
    return text if len(text) < 300 else text[:300] + "…"


def parts(x):
    """[(name, part), ...] of whatever has parts; what holds none that we know of has none."""
    if isinstance(x, (dict, types.MappingProxyType)):
        made = []
        for i, (key, value) in enumerate(x.items()):
            if not isinstance(key, ATOMS):
                made += [(f".keys()[{i}]", key), (f"[key {i}]", value)]
            elif key not in ("__builtins__", "__warningregistry__"):
                made.append((f"[{key!r}]", value))
        return made if type(x) in (dict, types.MappingProxyType) else made + attributes(x)
    if isinstance(x, (list, tuple, collections.deque, array.array)):
        return [(f"[{i}]", part) for i, part in enumerate(x)] + attributes(x)
    if isinstance(x, (set, frozenset)):
        return [(f"[{i}]", part) for i, part in enumerate(sorted(x, key=repr))]
    if isinstance(x, types.FunctionType):
        return [(".__code__", x.__code__), (".__defaults__", x.__defaults__),
                (".__kwdefaults__", x.__kwdefaults__),
                *[(f".{name}", contents(cell)) for name, cell in zip(x.__code__.co_freevars, x.__closure__ or ())],
                *attributes(x)]
    if isinstance(x, types.MethodType):
        return [(".__self__", x.__self__), (".__func__", x.__func__)]
    if isinstance(x, (classmethod, staticmethod)):
        return [(".__func__", x.__func__)]
    if isinstance(x, property):
        return [(".fget", x.fget), (".fset", x.fset)]
    if isinstance(x, functools.partial):
        return [(".func", x.func), (".args", x.args), (".keywords", x.keywords)]
    if isinstance(x, functools._lru_cache_wrapper):
        return [(".__wrapped__", x.__wrapped__)]
    if isinstance(x, weakref.ref):
        return [("()", x())]
    if isinstance(x, contextvars.ContextVar):
        return [(".get()", x.get())]
    if isinstance(x, types.ModuleType):
        return parts(vars(x)) if x.__name__.startswith(OWN_MODULES) else [("", Same(x))]
    if isinstance(x, type):
        if not x.__module__.startswith(OWN_MODULES):
            return [("", Same(x))]
        return [(f".{name}", part) for name, part in vars(x).items() if name not in SKIPPED_OF_CLASS] + \
            [(".__bases__", x.__bases__)]
    if isinstance(x, threading.local):
        return [(f".{name}", part) for name, part in vars(x).items()]
    if isinstance(x, Same):
        return [(str(x.id), None)]
    return attributes(x)


SKIPPED_OF_CLASS = {"__dict__", "__weakref__", "__doc__", "__module__", "__dataclass_params__", "__dataclass_fields__",
                    "__match_args__", "_field_defaults", "_abc_impl", "__static_attributes__", "__firstlineno__",
                    "__annotations__", "__annotate_func__", "__annotations_cache__"}


class Named:
    """Parts with their names, to be shown."""

    def __init__(self, parts):
        self.parts = parts

    def __repr__(self):
        return ", ".join(f"{name}: {part!r}" for name, part in self.parts)


class Same:
    """Something that both sides have to share: a module, a class of a library."""

    def __init__(self, x):
        self.id = id(x)


def contents(cell):
    try:
        return cell.cell_contents
    except ValueError:
        return "<empty>"


def own(x, name, default=None):
    """An attribute, whatever the class has to say about it."""
    try:
        return object.__getattribute__(x, name)
    except AttributeError:
        return default


def attributes(x):
    """What an object keeps in its dictionary and its slots."""
    made = [(f".{name}", list(part.values()) if name.endswith("_hooks") and isinstance(part, dict) else part)
            for name, part in own(x, "__dict__", {}).items()      # hooks, and optimizers to watch, have their numbers
            if name not in ("__wrapped__", "_turns", "_clocks", "_watched")]
    for kind in type(x).__mro__:
        for name in [names] if isinstance(names := vars(kind).get("__slots__", ()), str) else names:
            if kind.__module__.startswith(OWN_MODULES) and not name.startswith("__") and own(x, name) is not None:
                made.append((f".{name}", own(x, name)))
    return made


def tensors_in(x):
    """The tensors of a result, each once, in order."""
    found, stack, seen = [], [x], set()
    while stack:
        item = stack.pop()
        if isinstance(item, ATOMS) or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, (list, tuple, dict)) or type(item).__module__.startswith(OWN_MODULES):
            stack += [part for _, part in reversed(parts(item))]
    return found
