"""Nested containers as a flat list of leaves and the structure around them, as PyTorch's `torch.utils._pytree` has it.

Containers are lists, tuples, named tuples, dictionaries (ordered and with defaults too), deques, and what is
registered; everything else, None included, is a leaf. The way to a leaf is a tuple of keys.
"""
from collections import OrderedDict, defaultdict, deque, namedtuple
from types import UnionType

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


# --- structure ------------------------------------------------------------------------------------------------------


class TreeSpec:
    """The structure of a tree without its leaves: the type of the outermost container, what else is needed to put it
    together (`context`), and the structures of its children."""

    __slots__ = ("type", "_context", "_children", "num_nodes", "num_leaves", "num_children")

    def __init__(self, type, context, children_specs):
        self.type, self._context, self._children = type, context, children_specs
        self.num_children = len(children_specs)
        self.num_nodes = 1 + sum(child.num_nodes for child in children_specs)
        self.num_leaves = 1 if type is None else sum(child.num_leaves for child in children_specs)

    @property
    def context(self):
        """What besides the children is needed to put the container together."""
        return self._context

    @property
    def children_specs(self):
        """The structures of the children; `children()` in newer programs."""
        warn("`treespec.children_specs` is deprecated. Use `treespec.child(index)` to access a single child, or "
             "`treespec.children()` to get all children.", FutureWarning)
        return self._children

    def children(self):
        """The structures of the children."""
        return list(self._children)

    def child(self, index):
        """The structure of one child."""
        return self._children[index]

    def is_leaf(self):
        """Whether it is the structure of a leaf."""
        return self.type is None

    def flatten_up_to(self, tree):
        """What stands in `tree` at the places of the leaves of this structure."""
        found: list = []
        _parts(self, tree, found)
        return found

    def unflatten(self, leaves):
        """The tree of this structure with `leaves` in order."""
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec refers to a "
                             f"pytree that holds {self.num_leaves} items ({self}).")
        return _built(self, iter(leaves))

    def __eq__(self, other):
        if self is other:
            return True
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return str(self.type) == str(other.type) and self._context == other._context and \
            self._children == other._children

    def __hash__(self):
        context = None                        # one of the user's may have no hash
        if self.type is defaultdict:
            context = (self._context[0], tuple(self._context[1]))
        elif self.type in (dict, OrderedDict):
            context = tuple(self._context)
        elif self.type in BUILTIN_TYPES:
            context = self._context
        return hash((self.type, context, tuple(self._children)))

    def __repr__(self, indent=0):
        if self.type is None:
            return "*"
        children = f",\n{' ' * (indent + 2)}".join(child.__repr__(indent + 2) for child in self._children)
        return f"TreeSpec({self.type.__name__}, {self._context}, [{children}])"


class LeafSpec(TreeSpec):
    """The structure of a leaf. All leaves have one: `LEAF`."""

    __slots__ = ()

    def __init__(self):
        warn("`isinstance(treespec, LeafSpec)` is deprecated, use `isinstance(treespec, TreeSpec) and "
             "treespec.is_leaf()` instead.", FutureWarning)
        super().__init__(None, None, [])


LEAF = LeafSpec.__new__(LeafSpec)
TreeSpec.__init__(LEAF, None, None, [])


def _parts(spec, tree, found):
    """Append what stands in `tree` at the places of the leaves of `spec`; refused where `tree` is another."""
    if spec.type is None:
        found.append(tree)
        return
    node_class = node_type(tree)
    dicts = spec.type in STANDARD_DICT_TYPES and node_class in STANDARD_DICT_TYPES
    if node_class != spec.type and not dicts:
        what = "Node type" if spec.type in BUILTIN_TYPES else "Type"
        raise ValueError(f"{what} mismatch; expected {spec.type!r}, but got {node_class!r}.")
    children, context = SUPPORTED_NODES[node_class].flatten_fn(tree)
    if len(children) != spec.num_children:
        raise ValueError(f"Node arity mismatch; expected {spec.num_children}, but got {len(children)}.")
    if dicts:                                 # by key, whatever their order, and whatever makes defaults
        keys = spec._context[1] if spec.type is defaultdict else spec._context
        if set(tree) != set(keys):
            lacking, extra = set(keys) - set(tree), set(tree) - set(keys)
            raise ValueError("Node keys mismatch" + (f"; missing key(s): {lacking}" if lacking else "")
                             + (f"; extra key(s): {extra}" if extra else "") + ".")
        children = [tree[key] for key in keys]
    elif node_class is not deque and context != spec._context:
        raise ValueError(f"Node context mismatch for node type {spec.type!r}; expected {spec._context!r}, but got "
                         f"{context!r}." if spec.type in BUILTIN_TYPES else
                         f"Node context mismatch for custom node type {spec.type!r}.")
    for child, inner in zip(children, spec._children):
        _parts(inner, child, found)


# --- functions ------------------------------------------------------------------------------------------------------


def tree_flatten(tree, is_leaf=None):
    """(the leaves of `tree` in order, its structure)."""
    leaves: list = []
    return leaves, _walked(tree, is_leaf, leaves)


# A function inside of another that calls itself is a cycle, which would hold the leaves until Python collects garbage:
# tensors keep their memory, and a trace computes what is not asked for. So the walks stand on their own.


def _walked(tree, is_leaf, leaves):
    """The structure of `tree`, whose leaves are added to `leaves`."""
    node_class = node_type(tree)
    node = None if is_leaf is not None and is_leaf(tree) else SUPPORTED_NODES.get(node_class)
    if node is None:
        leaves.append(tree)
        return LEAF
    children, context = node.flatten_fn(tree)
    return TreeSpec(node_class, context, [_walked(child, is_leaf, leaves) for child in children])


def _built(spec, leaves):
    """The tree of a structure, with the next of the iterator `leaves` in order."""
    if spec.type is None:
        return next(leaves)
    return SUPPORTED_NODES[spec.type].unflatten_fn([_built(child, leaves) for child in spec._children], spec._context)


def tree_flatten_with_path(tree, is_leaf=None):
    """([(keys on the way to a leaf, leaf)] in order, the structure of `tree`)."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_leaves_with_path(tree, is_leaf=None):
    """[(keys on the way to a leaf, leaf)] in order."""
    found: list = []
    _walked_with_path(tree, (), is_leaf, found)
    return found


def _walked_with_path(tree, path, is_leaf, found):
    node_class = node_type(tree)
    node = None if is_leaf is not None and is_leaf(tree) else SUPPORTED_NODES.get(node_class)
    if node is None:
        found.append((path, tree))
        return
    if node.flatten_with_keys_fn is None:
        raise ValueError(f"Did not find a flatten_with_keys_fn for type: {node_class}. Please pass a "
                         "flatten_with_keys_fn argument to register_pytree_node.")
    for key, child in node.flatten_with_keys_fn(tree)[0]:
        _walked_with_path(child, (*path, key), is_leaf, found)


def tree_unflatten(leaves, treespec):
    """The tree of structure `treespec` with `leaves` in order."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError("Expected `treespec` to be an instance of PyTreeSpec but got item of type "
                        f"{type(treespec)}.")
    return treespec.unflatten(leaves)


def tree_leaves(tree, is_leaf=None):
    """The leaves of `tree` in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree, is_leaf=None):
    """The leaves of `tree`, one after the other."""
    yield from tree_leaves(tree, is_leaf)


def tree_structure(tree, is_leaf=None):
    """The structure of `tree`."""
    return tree_flatten(tree, is_leaf)[1]


def tree_is_leaf(tree, is_leaf=None):
    """Whether `tree` is no container."""
    return is_leaf is not None and is_leaf(tree) or node_type(tree) not in SUPPORTED_NODES


def tree_map(func, tree, *rests, is_leaf=None):
    """The tree of `func(leaf, …)` over the leaves of `tree` and what stands in their places in `rests`."""
    leaves, spec = tree_flatten(tree, is_leaf)
    return spec.unflatten(map(func, leaves, *map(spec.flatten_up_to, rests)))


def tree_map_with_path(func, tree, *rests, is_leaf=None):
    """The tree of `func(keys, leaf, …)`; see `tree_map`."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    paths, leaves = [path for path, _ in found], [leaf for _, leaf in found]
    return spec.unflatten(map(func, paths, leaves, *map(spec.flatten_up_to, rests)))


def tree_map_(func, tree, *rests, is_leaf=None):
    """Call `func` as `tree_map` does, for what it does to the leaves; `tree` itself."""
    leaves, spec = tree_flatten(tree, is_leaf)
    for parts in zip(leaves, *map(spec.flatten_up_to, rests)):
        func(*parts)
    return tree


def map_only(type_or_types_or_pred, /):
    """A decorator: the function is called for some types, or where it is said; anything else stays as it is."""
    which = type_or_types_or_pred
    if isinstance(which, type | tuple | UnionType):
        def wanted(leaf): return isinstance(leaf, which)
    elif callable(which):
        wanted = which
    else:
        raise TypeError("Argument must be a type, a tuple of types, or a callable.")
    return lambda func: lambda leaf: func(leaf) if wanted(leaf) else leaf


def tree_map_only(type_or_types_or_pred, /, func, tree, is_leaf=None):
    """`tree_map` over the leaves of some types; the others stay."""
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(type_or_types_or_pred, /, func, tree, is_leaf=None):
    """`tree_map_` over the leaves of some types."""
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred, tree, is_leaf=None):
    """Whether `pred` holds for all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred, tree, is_leaf=None):
    """Whether `pred` holds for some leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(type_or_types, /, pred, tree, is_leaf=None):
    """Whether `pred` holds for all leaves of some types."""
    return all(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if isinstance(leaf, type_or_types))


def tree_any_only(type_or_types, /, pred, tree, is_leaf=None):
    """Whether `pred` holds for some leaf of some types."""
    return any(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if isinstance(leaf, type_or_types))


def broadcast_prefix(prefix, spec, is_leaf=None):
    """A leaf of `prefix` for each leaf of `spec`: one of `prefix` stands for all below it. None if it does not fit."""
    leaves, outer = tree_flatten(prefix, is_leaf)
    try:
        below = outer.flatten_up_to(spec.unflatten([0] * spec.num_leaves))
    except ValueError:
        return None
    return [leaf for leaf, tree in zip(leaves, below) for _ in tree_leaves(tree, is_leaf)]
