"""What is a container of a tree: how each class of them is taken apart and put together, and the keys to a child."""
from collections import OrderedDict, defaultdict, deque, namedtuple

from .errors import warn
from .spec import Size

# How a container is taken apart and put together: flatten_fn(it) gives (children, context), flatten_with_keys_fn(it)
# ([(key, child)], context), and unflatten_fn(children, context) the container again.
NodeDef = namedtuple("NodeDef", "type flatten_fn unflatten_fn flatten_with_keys_fn")
# How its structure is written to a file.
SerializeNodeDef = namedtuple("SerializeNodeDef", "typ serialized_type_name to_dumpable_context from_dumpable_context")

SUPPORTED_NODES: dict = {}                    # type → NodeDef; all named tuples go by the function `namedtuple`
SUPPORTED_SERIALIZED_TYPES: dict = {}         # type → SerializeNodeDef
SERIALIZED_TYPE_TO_PYTHON_TYPE: dict = {}     # its name in a file → type
NO_SERIALIZED_TYPE_NAME_FOUND = "NO_SERIALIZED_TYPE_NAME_FOUND"


def register_pytree_node(cls, flatten_fn, unflatten_fn, *, serialized_type_name=None, to_dumpable_context=None,
                         from_dumpable_context=None, flatten_with_keys_fn=None):
    """Make `cls` a container: `flatten_fn(it)` gives (children, context), `unflatten_fn(children, context)` it back."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    put_node(cls, flatten_fn, unflatten_fn, serialized_type_name=serialized_type_name,
             to_dumpable_context=to_dumpable_context, from_dumpable_context=from_dumpable_context,
             flatten_with_keys_fn=flatten_with_keys_fn)


def put_node(cls, flatten_fn, unflatten_fn, *, serialized_type_name=None, to_dumpable_context=None,
             from_dumpable_context=None, flatten_with_keys_fn=None):
    """The same; a class that is a container already is one in the new way from now on."""
    if cls in SUPPORTED_NODES:
        warn(f"{cls} is already registered as pytree node. Overwriting the previous registration.")
    if (to_dumpable_context is None) != (from_dumpable_context is None):
        raise ValueError(f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or registered.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    name = NO_SERIALIZED_TYPE_NAME_FOUND if serialized_type_name is None else serialized_type_name
    SUPPORTED_SERIALIZED_TYPES[cls] = SerializeNodeDef(cls, name, to_dumpable_context, from_dumpable_context)
    SERIALIZED_TYPE_TO_PYTHON_TYPE[name] = cls


# --- keys -----------------------------------------------------------------------------------------------------------


class _Key:
    """One step on the way from a container to one of its children."""

    __slots__ = ("_held",)
    _name = "key"

    def __init__(self, value):
        object.__setattr__(self, "_held", value)

    def __setattr__(self, name, value):
        raise AttributeError(f"cannot assign to field {name!r}")

    def __eq__(self, other):
        return self._held == other._held if type(other) is type(self) else NotImplemented

    def __hash__(self):
        return hash((self._held,))

    def __repr__(self):
        return f"{type(self).__name__}({self._name}={self._held!r})"

    def __str__(self):
        return f"[{self._held!r}]"

    def __reduce__(self):
        return type(self), (self._held,)

    def get(self, parent):
        """The child of `parent` there."""
        return parent[self._held]


class SequenceKey(_Key):
    """The place in a list or tuple."""

    __slots__ = ()
    _name = "idx"

    def __init__(self, idx):
        super().__init__(idx)

    idx = property(lambda self: self._held)


class MappingKey(_Key):
    """The key in a dictionary."""

    __slots__ = ()

    def __init__(self, key):
        super().__init__(key)

    key = property(lambda self: self._held)


class GetAttrKey(_Key):
    """The name of an attribute."""

    __slots__ = ()
    _name = "name"

    def __init__(self, name):
        super().__init__(name)

    name = property(lambda self: self._held)

    def __str__(self):
        return f".{self._held}"

    def get(self, parent):
        """The attribute of `parent`."""
        return getattr(parent, self._held)


# --- the containers that are known ----------------------------------------------------------------------------------


def is_namedtuple_class(cls):
    """Whether a class was made by `namedtuple`, or derived from one."""
    return isinstance(cls, type) and issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple) \
        and all(type(field) is str for field in cls._fields) and callable(getattr(cls, "_make", None)) \
        and callable(getattr(cls, "_asdict", None))


def list_flatten(d): return d, None
def tuple_flatten(d): return list(d), None
def dict_flatten(d): return list(d.values()), list(d.keys())
def namedtuple_flatten(d): return list(d), type(d)
def defaultdict_flatten(d): return list(d.values()), [d.default_factory, list(d.keys())]
def deque_flatten(d): return list(d), d.maxlen


def list_unflatten(values, context): return list(values)
def tuple_unflatten(values, context): return tuple(values)
def dict_unflatten(values, context): return dict(zip(context, values))
def namedtuple_unflatten(values, context): return context(*values)
def ordereddict_unflatten(values, context): return OrderedDict(zip(context, values))
def defaultdict_unflatten(values, context): return defaultdict(context[0], zip(context[1], values))
def deque_unflatten(values, context): return deque(values, context)


def sequence_keys(d, flatten=tuple_flatten):
    values, context = flatten(d)
    return [(SequenceKey(i), value) for i, value in enumerate(values)], context


def deque_keys(d): return sequence_keys(d, deque_flatten)


def mapping_keys(d, flatten=dict_flatten):
    values, context = flatten(d)
    return [(MappingKey(key), value) for key, value in zip(d.keys(), values)], context


def defaultdict_keys(d): return mapping_keys(d, defaultdict_flatten)


def namedtuple_keys(d):
    return [(GetAttrKey(name), value) for name, value in zip(type(d)._fields, d)], type(d)


def namedtuple_to_name(context):
    """How a class of named tuples is called in a file."""
    found = SUPPORTED_SERIALIZED_TYPES.get(context)
    if found is None or found.serialized_type_name == NO_SERIALIZED_TYPE_NAME_FOUND:
        raise NotImplementedError(f"Can't serialize TreeSpec of namedtuple class {context} because we didn't register "
                                  "a serializated_type_name. Please register using `_register_namedtuple`.")
    return found.serialized_type_name


def namedtuple_of_name(name):
    """The class of named tuples that a file calls `name`."""
    if name not in SERIALIZED_TYPE_TO_PYTHON_TYPE:
        raise NotImplementedError(f"Can't deserialize TreeSpec of namedtuple class {name} because we couldn't find a "
                                  "serializated name.")
    return SERIALIZED_TYPE_TO_PYTHON_TYPE[name]


def defaultdict_to_names(context):
    factory, keys = context
    return {"default_factory_module": factory.__module__, "default_factory_name": factory.__qualname__,
            "dict_context": keys}


def defaultdict_of_names(names):
    from importlib import import_module
    factory = getattr(import_module(names["default_factory_module"]), names["default_factory_name"])
    return [factory, names["dict_context"]]


put_node(tuple, tuple_flatten, tuple_unflatten, serialized_type_name="builtins.tuple",
         flatten_with_keys_fn=sequence_keys)
put_node(list, list_flatten, list_unflatten, serialized_type_name="builtins.list", flatten_with_keys_fn=sequence_keys)
put_node(dict, dict_flatten, dict_unflatten, serialized_type_name="builtins.dict", flatten_with_keys_fn=mapping_keys)
put_node(namedtuple, namedtuple_flatten, namedtuple_unflatten, serialized_type_name="collections.namedtuple",
         to_dumpable_context=namedtuple_to_name, from_dumpable_context=namedtuple_of_name,
         flatten_with_keys_fn=namedtuple_keys)
put_node(OrderedDict, dict_flatten, ordereddict_unflatten, serialized_type_name="collections.OrderedDict",
         flatten_with_keys_fn=mapping_keys)
put_node(defaultdict, defaultdict_flatten, defaultdict_unflatten, serialized_type_name="collections.defaultdict",
         to_dumpable_context=defaultdict_to_names, from_dumpable_context=defaultdict_of_names,
         flatten_with_keys_fn=defaultdict_keys)
put_node(deque, deque_flatten, deque_unflatten, serialized_type_name="collections.deque",
         flatten_with_keys_fn=deque_keys)
put_node(Size, tuple_flatten, lambda values, context: Size(values), serialized_type_name="torch.Size",
         flatten_with_keys_fn=sequence_keys)
STANDARD_DICT_TYPES = frozenset({dict, OrderedDict, defaultdict})
BUILTIN_TYPES = frozenset({tuple, list, namedtuple, deque, *STANDARD_DICT_TYPES})


def node_type(tree):
    """The type that a container is registered by: its class, or `namedtuple` for all of those."""
    cls = type(tree)
    return namedtuple if cls not in BUILTIN_TYPES and is_namedtuple_class(cls) else cls
