"""What a call that is recorded has read: the places, what stood there, and what has to be so again for a replay.

A place is an Edge: a key of a dictionary, an attribute, a cell of a closure. The copies of the user's functions
(rewrite.py, follow.py) read places through the Journal, which notes each the first time. So what is guarded is what was
read, no more and no less; and a number that was read is known by its place from then on (traced.py).

Note [Seen and new]: an object that was found in a place was there before the call: it is *seen*, and what is read from
it is noted. Any other object was made by the call itself, and there is nothing to note. This holds because copies see
nothing except by places, and what is handed to code that we do not follow (C functions, the engine) is *walked* first:
everything that can be reached from it is noted as if it had been read.

Note [Loose]: what comes by the arguments is another object at every call, so it is known by where it stands and what it
looks like: a *loose* edge. Everything else is known by identity: the same object has to be there again.
"""
import enum
import functools
import re
import types
import weakref
from collections import OrderedDict, defaultdict, deque

import numpy as np

from ..backends.random import RandomStream
from ..base.dtypes import dtype as Dtype
from ..base.layout import layout as Layout, memory_format as MemoryFormat
from ..base.op import Op
from ..base.spec import Spec, device as Device
from ..tensor.forms import FORM_TYPE
from ..tensor.random import Generator
from ..tensor.tensor import Tensor

PLAIN_TYPES = (type(None), bool, int, float, complex, str, bytes)
IDENTITY_TYPES = (Dtype, Spec, Layout, MemoryFormat, RandomStream, Generator, enum.Enum, Op, FORM_TYPE,
                  type(...),
                  type(NotImplemented), range, slice, types.BuiltinFunctionType, types.MethodDescriptorType,
                  types.WrapperDescriptorType, types.MethodWrapperType, types.GetSetDescriptorType,
                  types.MemberDescriptorType, types.CodeType, types.GenericAlias, types.UnionType, re.Pattern, np.dtype,
                  np.ufunc, weakref.ref)
EQUALITY_TYPES = (Device, np.generic)
FUNCTION_TYPES = (types.FunctionType, types.MethodType)
SEQUENCE_TYPES = (list, tuple, deque)
MAPPING_TYPES = (dict, OrderedDict, defaultdict)
MAXIMUM_ARRAY_BYTES = 4096    # of a NumPy array whose contents are compared at every call
MISSING = object()


class Edge:
    """A place that holds `child`: `key` of `holder`, of one of the kinds below. `path` says it as the user would."""

    __slots__ = ("kind", "holder", "key", "child", "path", "loose", "blind", "asked")

    def __init__(self, kind, holder, key, child, path, loose=False):
        self.kind, self.holder, self.key, self.child, self.path = kind, holder, key, child, path
        self.loose = loose        # see Note [Loose]
        self.asked = True         # somebody has read it
        self.blind = False        # the call writes there without having read it: what stood there does not matter

    def read(self):
        """What it holds now."""
        kind, holder, key = self.kind, self.holder, self.key
        try:
            if kind == "item":
                return dict.__getitem__(holder, key) if isinstance(holder, dict) else holder[key]
            if kind == "attribute":
                return vars(holder)[key]
            if kind == "cell":
                return holder.cell_contents
            if kind == "grad":
                return holder._grad
            if kind == "referent":
                return holder()
            return getattr(holder, key)                      # slot
        except (LookupError, AttributeError, ValueError, TypeError):
            return MISSING

    def writable(self):
        return not isinstance(self.holder, tuple) and self.kind != "referent"


class Journal:
    """What has been read in one call of `fn`. `known(tensor, path)` is told of each tensor that was there before."""

    def __init__(self, fn, args, kwargs):
        self.fn, self.args, self.kwargs = fn, args, kwargs
        self.edges = []
        self.places = {}          # (id of the holder, kind, key) → Edge
        self.sizes = []           # (container, path, how many it holds, or its keys): what was asked as a whole
        self.functions = {}       # id → user function that was copied
        self.tensors = {}         # id → (tensor, path)
        self.things = {}          # id → (argument that is known by identity after all, path)
        self.seen = {}            # id → object: see Note [Seen and new]
        self.paths = {}           # id of a seen object → how it is called
        self.classes = {}         # id of a seen object → (it, its class)
        self.mros = {}            # classes that were asked for something: their bases matter
        self.lookups = {}         # (class, name) → what the class gives for the name
        self.absent = {}          # id → (a dictionary, or an object with attributes; which; path; names it lacks)
        self.owners = {}          # id of a dictionary of attributes → the object that it belongs to
        self.loose = set()        # ids of arguments, and of what they hold: see Note [Loose]
        self.refusal = None       # why the call cannot be replayed, in words
        self.asks_grad = False
        self._walked = set()
        self._sized = set()
        self.known = lambda tensor, path: None

    def refuse(self, why):
        self.refusal = self.refusal or why

    def path(self, thing):
        found = self.paths.get(id(thing))
        if found is None and isinstance(thing, (type, types.ModuleType, types.FunctionType)):
            found = thing.__name__
        return found or type(thing).__name__

    # --- what is seen ------------------------------------------------------------------------------------------------

    def see(self, thing, path):
        """`thing` was there before the call."""
        if isinstance(thing, PLAIN_TYPES) or id(thing) in self.seen or thing is MISSING:
            return
        self.seen[id(thing)] = thing
        self.paths[id(thing)] = path
        if isinstance(thing, Tensor):
            self.tensors[id(thing)] = (thing, path)
            self.known(thing, path)
            self.edge("grad", thing, None, thing._grad, path + ".grad")

    def edge(self, kind, holder, key, child, path, loose=False, blind=False):
        """The Edge of a place, noted if it is new."""
        if kind == "item" and id(holder) in self.owners:     # the same place by another way
            kind, holder = "attribute", self.owners[id(holder)]
            path = f"{self.path(holder)}.{key}"
        at = id(holder), kind, place_key(key)
        found = self.places.get(at)
        if found is None:
            found = self.places[at] = Edge(kind, holder, key, child, path, loose or kind == "grad")
            found.blind = blind
            self.edges.append(found)
            self.seen.setdefault(id(holder), holder)
            if not blind:
                self.see(child, path)
        found.asked = True
        return found

    def find(self, kind, holder, key):
        if kind == "item" and id(holder) in self.owners:
            kind, holder = "attribute", self.owners[id(holder)]
        return self.places.get((id(holder), kind, place_key(key)))

    def own(self, held, owner):
        """`held` is where the attributes of `owner` stand."""
        self.see(held, self.path(owner))
        self.owners[id(held)] = owner

    def missing(self, held, name, owner=None):
        """There is no `name` in the dictionary `held`, which is that of the attributes of `owner` if there is one."""
        owner = self.owners.get(id(held)) if owner is None else owner
        of = held if owner is None else owner
        self.absent.setdefault(id(of), (of, owner is not None, self.path(of), {}))[3][name] = None

    def typed(self, thing):
        """The class of a seen object matters."""
        if id(thing) in self.seen and id(thing) not in self.classes:
            self.classes[id(thing)] = thing, type(thing)

    # --- arguments ---------------------------------------------------------------------------------------------------

    def take_arguments(self):
        """Note the arguments: tensors and what holds others by what they look like, other objects by identity."""
        names = argument_names(self.fn)
        stack = [("item", self.kwargs, name, child, name) for name, child in self.kwargs.items()][::-1]
        stack += [("item", self.args, i, child, names[i] if i < len(names) else f"args[{i}]")
                  for i, child in enumerate(self.args)][::-1]
        while stack:
            kind, holder, key, child, path = stack.pop()
            again = isinstance(child, PLAIN_TYPES) or id(child) in self.seen
            edge = self.edge(kind, holder, key, child, path, loose=True)
            edge.asked = not isinstance(child, PLAIN_TYPES) or holder is self.args or holder is self.kwargs
            if again:
                continue
            self.loose.add(id(child))
            cls, parts = type(child), []
            if isinstance(child, Tensor):
                parts = [("attribute", child, name, part, f"{path}.{name}") for name, part in vars(child).items()]
            elif cls in (list, deque) or isinstance(child, tuple):
                self.size(child, path)
                parts = [("item", child, i, part, f"{path}[{i}]") for i, part in enumerate(child)]
            elif cls is dict:
                self.size(child, path)
                parts = [("item", child, name, part, f"{path}[{short(name)}]") for name, part in child.items()]
            elif is_record(cls):
                parts = [("attribute", child, name, part, f"{path}.{name}") for name, part in vars(child).items()]
            else:
                self.loose.discard(id(child))
                self.things[id(child)] = child, path
                continue
            stack.extend(reversed(parts))

    # --- everything in something -------------------------------------------------------------------------------------

    def size(self, held, path):
        """How many a container holds matters, and for a dictionary or set which keys."""
        if id(held) in self._sized:
            return
        self._sized.add(id(held))
        self.seen.setdefault(id(held), held)
        if isinstance(held, dict):
            size = keys_of(held)
        elif isinstance(held, (set, frozenset)):
            size = frozenset(held)
        else:
            size = len(held)
        self.sizes.append((held, path, size))

    def walk(self, thing):
        """Note everything that can be reached from a seen object; from a new one, what it holds that was seen."""
        stack = [(thing, self.path(thing))]
        while stack:
            thing, path = stack.pop()
            if isinstance(thing, (*PLAIN_TYPES, Tensor, *IDENTITY_TYPES, *EQUALITY_TYPES)) \
                    and not isinstance(thing, type) or id(thing) in self._walked:
                continue
            self._walked.add(id(thing))
            seen = id(thing) in self.seen
            inside = list(self._inside(thing, path))
            if not inside and seen:
                self._opaque(thing, path)
            for kind, holder, key, child, where in inside:
                if seen and kind is not None:
                    self.edge(kind, holder, key, child, where)
                elif seen:
                    self.see(child, where)
                stack.append((child, where))
            if seen and isinstance(thing, (*SEQUENCE_TYPES, *MAPPING_TYPES, set, frozenset)):
                self.size(thing, path)
            if seen and not isinstance(thing, (type, types.ModuleType, types.FunctionType)):
                self.typed(thing)

    def _inside(self, thing, path):
        """(kind, holder, key, child, path) of what a thing holds; without kind, what cannot be replaced there."""
        if isinstance(thing, dict):
            for key, child in dict.items(thing):
                yield None, thing, None, key, f"a key of {path}"
                yield "item", thing, key, child, f"{path}[{short(key)}]"
        elif isinstance(thing, (list, deque)):
            for i, child in enumerate(thing):
                yield "item", thing, i, child, f"{path}[{i}]"
        elif isinstance(thing, tuple):
            for i, child in enumerate(thing):
                yield None, thing, i, child, f"{path}[{i}]"
        elif isinstance(thing, (set, frozenset)):
            for child in thing:
                yield None, thing, None, child, f"an element of {path}"
        elif isinstance(thing, functools.partial):
            for child, name in ((thing.func, "func"), (thing.args, "args"), (thing.keywords, "keywords")):
                yield None, thing, None, child, f"{path}.{name}"
        elif isinstance(thing, types.MethodType):
            yield None, thing, None, thing.__self__, f"{path}.__self__"
        elif isinstance(thing, types.SimpleNamespace) or not isinstance(thing, (type, types.ModuleType,
                                                                                types.FunctionType)):
            held = attributes_of(thing)
            if isinstance(held, dict) and not is_engine(type(thing)):
                if id(thing) in self.loose:
                    self.refuse(f"{path} is handed to a function that is not followed, and may be asked for anything")
                elif id(thing) in self.seen:
                    self.size(held, path)
                for name, child in held.items():
                    yield "attribute", thing, name, child, f"{path}.{name}"
            for kind in type(thing).__mro__:
                for name in slots_of(kind):
                    child = getattr(thing, name, MISSING)
                    if child is not MISSING and not is_engine(kind):
                        yield "slot", thing, name, child, f"{path}.{name}"

    def _opaque(self, thing, path):
        """An object that we cannot look into: its contents are compared, or the call is refused."""
        cls = type(thing)
        if isinstance(thing, (*SEQUENCE_TYPES, *MAPPING_TYPES, set, frozenset, type, types.ModuleType,
                              types.FunctionType)) \
                or is_engine(cls):
            return
        if isinstance(thing, np.ndarray):
            if thing.nbytes <= MAXIMUM_ARRAY_BYTES and not thing.dtype.hasobject:
                self.sizes.append((thing, path, thing.tobytes()))
            else:
                self.refuse(f"{path} is a NumPy array, and nobody would notice if its contents changed; pass a tensor")
        elif cls.__module__.startswith("numpy.random"):
            self.refuse(f"{path} draws random numbers from NumPy; draw them with flambeau, or outside")
        elif hasattr(cls, "__next__"):
            self.refuse(f"{path} is an iterator, which gives something else every time; take from it outside")
        elif hasattr(cls, "__getitem__") or hasattr(cls, "__iter__"):
            self.refuse(f"{path} is a {cls.__name__}, and nobody would notice if its contents changed")


def attributes_of(thing):
    """The dictionary of an object's attributes; None if it has none. Asked so that no code of its class runs."""
    get = type(thing).__getattribute__
    if isinstance(get, types.FunctionType):
        get = object.__getattribute__
    try:
        return get(thing, "__dict__")
    except AttributeError:
        return None


def place_key(key):
    """A key as places are told apart by it: 1, True and 1.0 are one key, and a tensor is one by identity."""
    return key if isinstance(key, (str, int, float, bytes, tuple, type(None))) else ("object", id(key))


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


# The parts of this package whose functions read nothing but their arguments and the modes that a recording guards.
ENGINE_FOLDERS = frozenset("base loops backends trace ops autograd tensor".split())


def is_engine(kind):
    """Whether a class is one of the engine's: tensors, dtypes, contexts."""
    parts = (getattr(kind, "__module__", None) or "").split(".")
    return parts[0] == __name__.partition(".")[0] and len(parts) > 1 and parts[1] in ENGINE_FOLDERS


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
    text = repr(key) if isinstance(key, PLAIN_TYPES) else type(key).__name__
    return text if len(text) < 40 else text[:37] + "..."


def content(cell):
    try:
        return cell.cell_contents
    except ValueError:                                       # not assigned yet
        return MISSING
