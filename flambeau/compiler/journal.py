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

Note [Used whole]: a copy reads an argument's parts one by one, and only those are guarded. Any other code that sees an
argument (C functions, operations, a hash, a comparison) may use all of it, so it is *walked*: every part counts as
read, however deep, and the recording is guarded by the argument's value. A use by identity (`is`, `id()`, a hash that
is the address) is a guard too, or a reason not to replay. There is no third way for a seen object to leave a copy.

Note [Recorded ahead]: where a result leaves with its graph, its backward is recorded right after the call
(gradient.py). Code of the program's in that backward, that of an autograd Function, is followed as well, but what it
reads or does belongs to a later time. So it may compute with what it is given, and find functions, classes and modules,
which the node asks for again when it runs; anything else ends in TooEarly before it has happened, and the call is not
replayed.
"""
import builtins
import enum
import functools
import re
import types
import weakref
from collections import OrderedDict, defaultdict, deque

import numpy as np

from ..backends.cpu.random.random_stream import RandomStream
from ..base.dtypes import dtype as Dtype
from ..base.layout import layout as Layout, memory_format as MemoryFormat
from ..base.op import Op
from ..base.public_names import home
from ..base.spec import Spec, device as Device
from ..tensor.forms import FORM_TYPE
from ..tensor.generators import Generator
from ..tensor.tensor import Tensor
from .guards import MISSING

PLAIN_TYPES = frozenset((type(None), bool, int, float, complex, str, bytes))     # not their subclasses, which hold more
IMMUTABLE_TYPES = (int, float, complex, str, bytes, tuple, frozenset)
IDENTITY_TYPES = (Dtype, Spec, Layout, MemoryFormat, RandomStream, Generator, enum.Enum, Op, FORM_TYPE,
                  type(...),
                  type(NotImplemented), range, slice, types.BuiltinFunctionType, types.MethodDescriptorType,
                  types.WrapperDescriptorType, types.MethodWrapperType, types.GetSetDescriptorType,
                  types.MemberDescriptorType, types.CodeType, types.GenericAlias, types.UnionType, re.Pattern, np.dtype,
                  np.ufunc, weakref.ref)
EQUALITY_TYPES = (Device, np.generic)
VALUE_TYPES = (range, slice, frozenset)       # arguments of these classes are guarded by value, if they hold plain ones
FUNCTION_TYPES = (types.FunctionType, types.MethodType)
SEQUENCE_TYPES = (list, tuple, deque)
MAPPING_TYPES = (dict, OrderedDict, defaultdict)
MAXIMUM_ARRAY_BYTES = 4096    # of a NumPy array whose contents are compared at every call
CODE_TYPES = (type, types.ModuleType, *FUNCTION_TYPES,               # what a program computes with, and no state
              *[cls for cls in IDENTITY_TYPES if cls not in (RandomStream, Generator, weakref.ref)])


class TooEarly(BaseException):
    """What a backward asks for or does may be another thing when it runs: see Note [Recorded ahead]."""


class Edge:
    """A place that holds `child`: `key` of `holder`, of one of the kinds below. `path` says it as the user would."""

    __slots__ = ("kind", "holder", "key", "child", "path", "loose", "blind", "asked")

    def __init__(self, kind, holder, key, child, path, loose=False):
        self.kind, self.holder, self.key, self.child, self.path = kind, holder, key, child, path
        self.loose = loose        # see Note [Loose]
        self.asked = True         # it was read
        self.blind = False        # the call writes there without having read it: what stood there does not matter

    def read(self):
        """What it holds now."""
        kind, holder, key = self.kind, self.holder, self.key
        try:
            if kind == "item":
                return dict.get(holder, key, MISSING) if isinstance(holder, dict) else holder[key]
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
        self.edge_of = {}          # (id of the holder, kind, key) → Edge
        self.sizes = []           # (container, path, how many it holds, or its keys): what was asked as a whole
        self.functions = {}       # id → user function that was copied
        self.tensors = {}         # id → (tensor, path)
        self.taken = []           # what was taken from the `iterator`: see Note [Taken first] in taking.py
        self.iterator = None
        self.slices = []          # a MovingSlice each: see Note [Moving slices] in moving.py
        self.things = {}          # id → (argument that is known by identity after all, path)
        self.seen = {}            # id → object: see Note [Seen and new]
        self.paths = {}           # id of a seen object → how it is called
        self.classes = {}         # id of a seen object → (it, its class)
        self.mros = {}            # classes that were asked for something: their bases matter
        self.lookups = {}         # (class, name) → what the class gives for the name
        self.absent = {}          # id → (a dictionary, or an object with attributes; which; path; names it lacks)
        self.owners = {}          # id of a dictionary of attributes → the object that it belongs to
        self.loose = set()        # ids of arguments, and of what they hold: see Note [Loose]
        self.identities = []      # (a, b, whether they are one object): asked by `is` of what is loose
        self.refusal = None       # why the call cannot be replayed, in words
        self.asks_grad = False
        self.fixed = set()        # Storages of tensors that were asked where they begin: see Note [Moving arguments]
        self.ahead = None         # while a backward is recorded ahead of its time: the Edges that it has read
        self.too_early = None     # why it may not be, in words
        self._walked = set()
        self._sized = set()
        self.known = lambda tensor, path: None

    def refuse(self, why):
        self.now_or_never(why)
        self.refusal = self.refusal or why

    def now_or_never(self, what):
        """`what` happens at this time and no other, in words. See Note [Recorded ahead]."""
        if self.ahead is not None:
            self.too_early = self.too_early or what
            raise TooEarly(what)

    def read(self, edge):
        """A place is read, be it for the first time or not."""
        edge.asked = True
        if self.ahead is not None:
            if not isinstance(edge.child, CODE_TYPES):
                self.now_or_never(f"{edge.path} is read")
            self.ahead.append(edge)

    def path(self, thing):
        found = self.paths.get(id(thing))
        if found is None and isinstance(thing, (type, types.ModuleType, types.FunctionType)):
            found = thing.__name__
        return found or type(thing).__name__

    # --- what is seen ------------------------------------------------------------------------------------------------

    def see(self, thing, path):
        """`thing` was there before the call."""
        if type(thing) in PLAIN_TYPES or id(thing) in self.seen or thing is MISSING:
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
        at = id(holder), kind, comparable(key)
        found = self.edge_of.get(at)
        if found is None:
            found = self.edge_of[at] = Edge(kind, holder, key, child, path, loose or kind == "grad")
            found.blind = blind
            self.edges.append(found)
            self.seen.setdefault(id(holder), holder)
            if not blind:
                self.see(child, path)
        self.read(found)
        return found

    def find(self, kind, holder, key):
        if kind == "item" and id(holder) in self.owners:
            kind, holder = "attribute", self.owners[id(holder)]
        return self.edge_of.get((id(holder), kind, comparable(key)))

    def own(self, attributes, owner):
        """`attributes` is where those of `owner` stand."""
        self.see(attributes, self.path(owner))
        self.owners[id(attributes)] = owner

    def missing(self, dictionary, name, owner=None):
        """There is no `name` in `dictionary`, which is that of the attributes of `owner` if there is one."""
        owner = self.owners.get(id(dictionary)) if owner is None else owner
        if not isinstance(owner, type) and not (type(name) is str and hasattr(builtins, name)):
            self.now_or_never(f"{short(name)} is looked for in {self.path(dictionary if owner is None else owner)}")
        of = dictionary if owner is None else owner
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
        self._loosen(stack)

    def take(self, iterator, item, path):
        """Note what an iterator gave, as an argument; gives its Edge."""
        self.iterator = iterator
        self.taken.append(item)
        known = len(self.things)
        self._loosen([("item", self.taken, 0, item, path)])
        if len(self.things) != known:
            thing, where = list(self.things.values())[-1]
            self.refuse(f"{where} is a {type(thing).__name__}, and another one at every call")
        return self.find("item", self.taken, 0)

    def _loosen(self, stack):
        while stack:
            kind, holder, key, child, path = stack.pop()
            plain = type(child) in PLAIN_TYPES
            again = plain or id(child) in self.seen
            edge = self.edge(kind, holder, key, child, path, loose=True)
            edge.asked = not plain or holder is self.args or holder is self.kwargs or holder is self.taken
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
            elif not is_value(child):
                self.loose.discard(id(child))
                self.things[id(child)] = child, path
                continue
            stack.extend(reversed(parts))

    # --- everything in something -------------------------------------------------------------------------------------

    def size(self, container, path):
        """How many a container holds matters, and for a dictionary or set which keys."""
        if not isinstance(container, (tuple, frozenset)):
            self.now_or_never(f"{path} is gone through")
        if id(container) in self._sized:
            return
        self._sized.add(id(container))
        self.seen.setdefault(id(container), container)
        self.sizes.append((container, path, size_of(container)))

    def walk(self, thing):
        """Note everything that can be reached from a seen object; from a new one, what it holds that was seen."""
        stack = [(thing, self.path(thing))]
        while stack:
            thing, path = stack.pop()
            if type(thing) in PLAIN_TYPES or isinstance(thing, (Tensor, *IDENTITY_TYPES, *EQUALITY_TYPES)) \
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
            kind = "item" if id(thing) in self.loose else None
            for i, child in enumerate(tuple.__iter__(thing)):
                yield kind, thing, i, child, f"{path}[{i}]"
        elif isinstance(thing, (set, frozenset)):
            for child in thing:
                yield None, thing, None, child, f"an element of {path}"
        elif isinstance(thing, functools.partial):
            for child, name in ((thing.func, "func"), (thing.args, "args"), (thing.keywords, "keywords")):
                yield None, thing, None, child, f"{path}.{name}"
        elif isinstance(thing, types.MethodType):
            yield None, thing, None, thing.__self__, f"{path}.__self__"
        if not isinstance(thing, (type, types.ModuleType, types.FunctionType)):
            attributes = attributes_of(thing)
            if isinstance(attributes, dict) and not is_engine(type(thing)):
                if id(thing) in self.loose and type(thing).__hash__ is object.__hash__:
                    self.refuse(f"{path} is handed to a function that is not followed and may tell it by its identity, "
                                "and it is another object at every call")
                elif id(thing) in self.seen:
                    self.own(attributes, thing)
                    self.size(attributes, path)
                for name, child in attributes.items():
                    yield "attribute", thing, name, child, f"{path}.{name}"
            for cls in type(thing).__mro__:
                for name in slots_of(cls):
                    child = getattr(thing, name, MISSING)
                    if child is not MISSING and not is_engine(cls):
                        yield "slot", thing, name, child, f"{path}.{name}"

    def _opaque(self, thing, path):
        """An object that we cannot look into: its contents are compared, or the call is refused."""
        cls = type(thing)
        if isinstance(thing, (*SEQUENCE_TYPES, *MAPPING_TYPES, *IMMUTABLE_TYPES, set, type, types.ModuleType,
                              types.FunctionType)) \
                or is_engine(cls):
            return
        if isinstance(thing, np.ndarray):
            if thing.nbytes <= MAXIMUM_ARRAY_BYTES and not thing.dtype.hasobject:
                self.sizes.append((thing, path, size_of(thing)))
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


def comparable(key):
    """A key as edges are told apart by it: 1, True and 1.0 are one key, and a tensor is one by identity."""
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


def is_engine(cls):
    """Whether a class is one of the engine's: tensors, dtypes, contexts."""
    parts = home(cls).split(".")
    return parts[0] == __name__.partition(".")[0] and len(parts) > 1 and parts[1] in ENGINE_FOLDERS


def is_record(cls):
    """Whether objects of this class are only there to hold their fields together."""
    return hasattr(cls, "__dataclass_fields__") and not hasattr(cls, "__slots__") or cls is types.SimpleNamespace


def slots_of(cls):
    slots = vars(cls).get("__slots__", ())
    slots = (slots,) if isinstance(slots, str) else slots
    return [s for s in slots if not s.startswith("__")]


def size_of(container):
    """What is compared of a container as a whole: how many it holds, or which keys or elements, in order; and the bytes
    and the look of an array."""
    if isinstance(container, np.ndarray):
        return container.tobytes(), container.shape, container.dtype, container.strides
    return list(dict.keys(container)) if isinstance(container, dict) else \
        list(container) if isinstance(container, (set, frozenset)) else len(container)


def is_value(thing):
    """Whether an argument is guarded by its value: immutable, of plain values alone."""
    if type(thing) is slice:
        return all(type(part) in PLAIN_TYPES for part in (thing.start, thing.stop, thing.step))
    return type(thing) in VALUE_TYPES and all(type(part) in PLAIN_TYPES for part in thing) if type(thing) is frozenset \
        else type(thing) is range


def is_sequence(cls):
    """Whether objects of a class give their elements as a list, tuple or deque does: also named tuples."""
    return cls in SEQUENCE_TYPES or issubclass(cls, tuple) and cls.__getitem__ is tuple.__getitem__ \
        and cls.__iter__ is tuple.__iter__ and cls.__len__ is tuple.__len__


def by_identity(thing):
    """Whether a thing is told from others, as a key or by `==`, by where it is and not by what it holds."""
    cls = type(thing)
    return cls.__eq__ is object.__eq__ and cls.__hash__ is object.__hash__


def short(key):
    text = repr(key) if type(key) in PLAIN_TYPES else type(key).__name__
    return text if len(text) < 40 else text[:37] + "..."


def content(cell):
    try:
        return cell.cell_contents
    except ValueError:                                       # not assigned yet
        return MISSING
