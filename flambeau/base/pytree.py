"""Nested containers as a flat list of leaves and the structure around them.

Containers are lists, tuples, named tuples, dictionaries (ordered and with defaults too), deques, and what is
registered; everything else, None included, is a leaf.
"""
from collections import OrderedDict, defaultdict, deque

# type → (taking it apart: (children, context), putting it together: (children, context) → container)
_nodes: dict = {}


def register_pytree_node(cls, flatten_fn, unflatten_fn, **more):
    """Make `cls` a container: `flatten_fn(it)` gives (children, context), `unflatten_fn(children, context)` it back."""
    if cls in _nodes:
        raise ValueError(f"{cls} is already registered as pytree node.")
    _nodes[cls] = flatten_fn, unflatten_fn


register_pytree_node(list, lambda it: (it, None), lambda parts, _: list(parts))
register_pytree_node(tuple, lambda it: (list(it), None), lambda parts, _: tuple(parts))
register_pytree_node(dict, lambda it: (list(it.values()), list(it)), lambda parts, keys: dict(zip(keys, parts)))
register_pytree_node(OrderedDict, lambda it: (list(it.values()), list(it)),
                     lambda parts, keys: OrderedDict(zip(keys, parts)))
register_pytree_node(defaultdict, lambda it: (list(it.values()), [it.default_factory, list(it)]),
                     lambda parts, context: defaultdict(context[0], zip(context[1], parts)))
register_pytree_node(deque, lambda it: (list(it), it.maxlen), lambda parts, maxlen: deque(parts, maxlen))
_NAMED = (lambda it: (list(it), type(it)), lambda parts, cls: cls(*parts))


def _node(held):
    """(type as it stands in a TreeSpec, how to take it apart) of a container; None for a leaf."""
    cls = type(held)
    found = _nodes.get(cls)
    if found is not None:
        return cls, found[0]
    if isinstance(held, tuple) and hasattr(cls, "_fields"):
        return "namedtuple", _NAMED[0]
    return None


class TreeSpec:
    """The structure of a tree without its leaves."""

    __slots__ = ("type", "context", "children", "num_leaves")

    def __init__(self, type, context, children):
        self.type, self.context, self.children = type, context, children
        self.num_leaves = 1 if type is None else sum(child.num_leaves for child in children)

    def is_leaf(self):
        """Whether it is the structure of a leaf."""
        return self.type is None

    @property
    def num_children(self):
        """How many parts the outermost container has."""
        return len(self.children)

    @property
    def num_nodes(self):
        """How many containers and leaves there are."""
        return 1 + sum(child.num_nodes for child in self.children)

    def __eq__(self, other):
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (self.type, self.context, self.children) == (other.type, other.context, other.children)

    def __hash__(self):
        return hash((self.type, self.num_leaves))

    def __repr__(self):
        if self.type is None:
            return "*"
        name = getattr(self.type, "__name__", self.type)
        return f"TreeSpec({name}, {self.context}, [{', '.join(map(repr, self.children))}])"


LEAF = TreeSpec(None, None, [])


def tree_flatten(tree, is_leaf=None):
    """(the leaves of `tree` in order, its structure)."""
    leaves: list = []

    def walk(held):
        node = None if is_leaf is not None and is_leaf(held) else _node(held)
        if node is None:
            leaves.append(held)
            return LEAF
        kind, apart = node
        children, context = apart(held)
        return TreeSpec(kind, context, [walk(child) for child in children])
    return leaves, walk(tree)


def tree_unflatten(leaves, treespec):
    """The tree of structure `treespec` with `leaves` in order."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError("tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec but got item "
                        f"of type {type(treespec)}.")
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten(leaves, treespec): `leaves` has length {len(leaves)} but the spec refers to "
                         f"a pytree that holds {treespec.num_leaves} items ({treespec}).")
    found = iter(leaves)

    def build(spec):
        if spec.type is None:
            return next(found)
        together = _NAMED[1] if spec.type == "namedtuple" else _nodes[spec.type][1]
        return together([build(child) for child in spec.children], spec.context)
    return build(treespec)


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
    return _node(tree) is None or is_leaf is not None and is_leaf(tree)


def tree_map(func, tree, *rests, is_leaf=None):
    """The tree of `func(leaf, …)` over the leaves of `tree` and what stands in their places in `rests`."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [_parts(rest, spec) for rest in rests]
    return tree_unflatten([func(*parts) for parts in zip(leaves, *others)], spec)


def tree_map_(func, tree, *rests, is_leaf=None):
    """Call `func` as `tree_map` does, for what it does to the leaves; `tree` itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(type_or_types_or_pred, /, func, tree, is_leaf=None):
    """`tree_map` over the leaves of some types; the others stay."""
    return tree_map(_only(type_or_types_or_pred, func), tree, is_leaf=is_leaf)


def tree_map_only_(type_or_types_or_pred, /, func, tree, is_leaf=None):
    """`tree_map_` over the leaves of some types."""
    return tree_map_(_only(type_or_types_or_pred, func), tree, is_leaf=is_leaf)


def tree_all(pred, tree, is_leaf=None):
    """Whether `pred` holds for all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred, tree, is_leaf=None):
    """Whether `pred` holds for some leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def _only(which, func):
    wanted = which if callable(which) and not isinstance(which, type) else lambda leaf: isinstance(leaf, which)
    return lambda leaf: func(leaf) if wanted(leaf) else leaf


def _parts(tree, spec):
    """What stands in `tree` at the places of the leaves of `spec`."""
    if spec.type is None:
        return [tree]
    node = _node(tree)
    if node is None or node[0] != spec.type:
        raise ValueError(f"Node type mismatch; expected {spec.type!r}, but got {type(tree)!r}.")
    children, context = node[1](tree)
    if spec.type in (dict, OrderedDict) and len(children) == len(spec.children):     # by key, whatever their order
        if set(context) != set(spec.context):
            raise ValueError(f"Node keys mismatch; expected {spec.context}, but got {context}.")
        children = [tree[key] for key in spec.context]
    if len(children) != len(spec.children):
        raise ValueError(f"Node arity mismatch; expected {len(spec.children)}, but got {len(children)}.")
    return [part for child, inner in zip(children, spec.children) for part in _parts(child, inner)]


def broadcast_prefix(prefix, spec):
    """A leaf of `prefix` for each leaf of `spec`: one of `prefix` stands for all below it. None if it does not fit."""
    if spec.type is None:
        return [prefix] if _node(prefix) is None else None
    node = _node(prefix)
    if node is None:
        return [prefix] * spec.num_leaves
    children, context = node[1](prefix)
    if node[0] != spec.type or len(children) != len(spec.children) or context != spec.context:
        return None
    found = []
    for child, inner in zip(children, spec.children):
        part = broadcast_prefix(child, inner)
        if part is None:
            return None
        found += part
    return found
