"""Nested containers as a flat list of leaves and the structure around them, as PyTorch's `torch.utils._pytree` has it.

Containers are lists, tuples, named tuples, dictionaries (ordered and with defaults too), deques, and what is
registered; everything else, None included, is a leaf. The way to a leaf is a tuple of keys.
"""
from collections import OrderedDict, defaultdict, deque
from types import UnionType

from .errors import warn
from .pytree_containers import BUILTIN_TYPES, STANDARD_DICT_TYPES, SUPPORTED_NODES, node_type

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
