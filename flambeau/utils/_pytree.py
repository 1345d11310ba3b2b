"""`torch.utils._pytree`: nested containers as leaves and structure (base/pytree.py), and structures as text.

transformers and diffusers register their outputs and caches, lightning and tensordict their collections.
"""
from collections import namedtuple
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from ..base import pytree_containers as _core
from ..base.errors import warn as _warn
from ..base.pytree import (  # noqa: F401
    LEAF as _LEAF_SPEC,
    LeafSpec,
    TreeSpec,
    broadcast_prefix as _broadcast,
    map_only,
    tree_all,
    tree_all_only,
    tree_any,
    tree_any_only,
    tree_flatten,
    tree_flatten_with_path,
    tree_is_leaf,
    tree_iter,
    tree_leaves,
    tree_leaves_with_path,
    tree_map,
    tree_map_,
    tree_map_only,
    tree_map_only_,
    tree_map_with_path,
    tree_structure,
    tree_unflatten,
)
from ..base.pytree_containers import (  # noqa: F401
    BUILTIN_TYPES,
    NO_SERIALIZED_TYPE_NAME_FOUND,
    SERIALIZED_TYPE_TO_PYTHON_TYPE,
    STANDARD_DICT_TYPES,
    SUPPORTED_NODES,
    SUPPORTED_SERIALIZED_TYPES,
    GetAttrKey,
    MappingKey,
    NodeDef,
    SequenceKey,
    SerializeNodeDef as _SerializeNodeDef,
    is_namedtuple_class,
    put_node as _private_register_pytree_node,
    register_pytree_node,
)

__all__ = ["PyTree", "Context", "FlattenFn", "UnflattenFn", "DumpableContext", "ToDumpableContextFn",
           "FromDumpableContextFn", "PyTreeSpec", "TreeSpec", "LeafSpec", "keystr", "key_get", "register_pytree_node",
           "tree_is_leaf", "tree_flatten", "tree_flatten_with_path", "tree_unflatten", "tree_iter", "tree_leaves",
           "tree_leaves_with_path", "tree_structure", "tree_map", "tree_map_with_path", "tree_map_", "tree_map_only",
           "tree_map_only_", "tree_all", "tree_any", "tree_all_only", "tree_any_only", "treespec_dumps",
           "treespec_loads", "treespec_pprint", "is_namedtuple", "is_namedtuple_class", "is_namedtuple_instance",
           "is_structseq", "is_structseq_class", "is_structseq_instance"]

# Names for annotations.
PyTree: TypeAlias = Any
Context: TypeAlias = Any
DumpableContext: TypeAlias = Any
KeyEntry: TypeAlias = Any
KeyPath: TypeAlias = tuple[KeyEntry, ...]
PyTreeSpec: TypeAlias = TreeSpec
FlattenFn: TypeAlias = Callable[[PyTree], tuple[list, Context]]
UnflattenFn: TypeAlias = Callable[[Iterable, Context], PyTree]
FlattenWithKeysFn: TypeAlias = Callable[[PyTree], tuple[list[tuple[KeyEntry, Any]], Any]]
ToDumpableContextFn: TypeAlias = Callable[[Context], DumpableContext]
FromDumpableContextFn: TypeAlias = Callable[[DumpableContext], Context]
FlattenFunc, UnflattenFunc, FlattenWithKeysFunc = FlattenFn, UnflattenFn, FlattenWithKeysFn

# How the known containers are taken apart, by PyTorch's private names: diffusers, transformers and tensordict derive
# their own from them.
_list_flatten, _list_unflatten = _core.list_flatten, _core.list_unflatten
_tuple_flatten, _tuple_unflatten = _core.tuple_flatten, _core.tuple_unflatten
_dict_flatten, _dict_unflatten = _core.dict_flatten, _core.dict_unflatten
_namedtuple_flatten, _namedtuple_unflatten = _core.namedtuple_flatten, _core.namedtuple_unflatten
_ordereddict_flatten, _ordereddict_unflatten = _core.dict_flatten, _core.ordereddict_unflatten
_odict_flatten, _odict_unflatten = _ordereddict_flatten, _ordereddict_unflatten
_defaultdict_flatten, _defaultdict_unflatten = _core.defaultdict_flatten, _core.defaultdict_unflatten
_deque_flatten, _deque_unflatten = _core.deque_flatten, _core.deque_unflatten
_list_flatten_with_keys = _tuple_flatten_with_keys = _core.sequence_keys
_dict_flatten_with_keys = _ordereddict_flatten_with_keys = _core.mapping_keys
_defaultdict_flatten_with_keys, _deque_flatten_with_keys = _core.defaultdict_keys, _core.deque_keys
_namedtuple_flatten_with_keys = _core.namedtuple_keys
_get_node_type = _core.node_type


# --- registering ----------------------------------------------------------------------------------------------------


def _register_pytree_node(cls, flatten_fn, unflatten_fn, to_str_fn=None, maybe_from_str_fn=None, *,
                          serialized_type_name=None, to_dumpable_context=None, from_dumpable_context=None,
                          flatten_with_keys_fn=None):
    """`register_pytree_node` under its older name."""
    _warn("`torch.utils._pytree._register_pytree_node` is deprecated. Please use "
          "`torch.utils._pytree.register_pytree_node` instead.", FutureWarning)
    _private_register_pytree_node(cls, flatten_fn, unflatten_fn, serialized_type_name=serialized_type_name,
                                  to_dumpable_context=to_dumpable_context,
                                  from_dumpable_context=from_dumpable_context,
                                  flatten_with_keys_fn=flatten_with_keys_fn)


def _deregister_pytree_node(cls):
    """Let `cls` be a leaf again."""
    del SUPPORTED_NODES[cls]
    del SERIALIZED_TYPE_TO_PYTHON_TYPE[SUPPORTED_SERIALIZED_TYPES.pop(cls).serialized_type_name]


def _register_namedtuple(cls, *, serialized_type_name):
    """Give a class of named tuples, which are containers anyway, a name for `treespec_dumps`."""
    _private_register_pytree_node(cls, _namedtuple_flatten, _namedtuple_unflatten,
                                  serialized_type_name=serialized_type_name,
                                  to_dumpable_context=_core.namedtuple_to_name,
                                  from_dumpable_context=_core.namedtuple_of_name,
                                  flatten_with_keys_fn=_namedtuple_flatten_with_keys)


def register_dataclass(cls, *, field_names=None, drop_field_names=None, serialized_type_name=None):
    """Make a dataclass, or a class that is made by giving it its fields, a container of those that are not None."""
    import dataclasses
    dropped = set(drop_field_names or ())
    if dataclasses.is_dataclass(cls):
        own = [field.name for field in dataclasses.fields(cls) if field.init]
        if field_names is not None and set(own) - dropped != set(field_names):
            lacking, extra = set(own) - dropped - set(field_names), set(field_names) - (set(own) - dropped)
            raise ValueError("field_names does not include all dataclass fields.\n"
                             + (f"Missing fields in `field_names`: {lacking}. If you want to include these fields in "
                                "the pytree, please add them to `field_names`, otherwise please add them to "
                                "`drop_field_names`.\n" if lacking else "")
                             + (f"Unexpected fields in `field_names`: {extra}. Please remove these fields, or add them "
                                "to `drop_field_names`.\n" if extra else ""))
        names = own if field_names is None else list(field_names)
    elif field_names is None:
        raise ValueError("field_names must be specified with a list of all fields used to initialize "
                         f"{cls}, as it is not a dataclass.")
    else:
        names = list(field_names)

    def flatten(instance):
        there = [name for name in names if getattr(instance, name) is not None]
        return [getattr(instance, name) for name in there], [there, [name for name in names if name not in there]]

    def unflatten(values, context):
        there, none = context
        return cls(**dict(zip(there, values)), **dict.fromkeys(none))

    def with_keys(instance):
        values, context = flatten(instance)
        return [(GetAttrKey(name), value) for name, value in zip(context[0], values)], context
    _private_register_pytree_node(cls, flatten, unflatten, serialized_type_name=serialized_type_name,
                                  flatten_with_keys_fn=with_keys)


def register_constant(cls):
    """Make `cls` a container without leaves: its objects are part of the structure, and compared with it."""
    if cls.__eq__ is object.__eq__:
        raise TypeError("register_constant(cls) expects `cls` to have a non-default `__eq__` implementation.")
    if cls.__hash__ is None:
        raise TypeError("register_constant(cls) expects `cls` to have a non-default `__hash__` implementation.")
    _private_register_pytree_node(cls, lambda constant: ([], ConstantNode(constant)), lambda _, context: context.value,
                                  flatten_with_keys_fn=lambda constant: ([], ConstantNode(constant)))
    CONSTANT_NODES.add(cls)


CONSTANT_NODES: set = set()
ConstantNode = namedtuple("ConstantNode", "value")


def is_constant_class(cls):
    """Whether `register_constant` was called for a class."""
    return isinstance(cls, type) and cls in CONSTANT_NODES


# --- questions ------------------------------------------------------------------------------------------------------


def is_namedtuple(obj):
    """Whether something is a named tuple, or a class of them."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_namedtuple_instance(obj):
    """Whether something is a named tuple."""
    return is_namedtuple_class(type(obj))


def is_structseq_class(cls):
    """Whether a class is one of Python's own tuples with names, such as `os.stat_result`."""
    return isinstance(cls, type) and cls.__bases__ == (tuple,) and not cls.__flags__ & 1 << 10 and \
        all(isinstance(getattr(cls, name, None), int) for name in ("n_fields", "n_sequence_fields", "n_unnamed_fields"))


def is_structseq(obj):
    """Whether something is such a tuple, or a class of them."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_instance(obj):
    """Whether something is such a tuple."""
    return is_structseq_class(type(obj))


def keystr(kp):
    """The way to a leaf as text: `['a'][0].weight`."""
    return "".join(map(str, kp))


def key_get(obj, kp):
    """What is at the end of the way `kp` from `obj`."""
    for key in kp:
        obj = key.get(obj)
    return obj


def arg_tree_leaves(*args, **kwargs):
    """The leaves of all arguments."""
    return [leaf for tree in (*args, *kwargs.values()) for leaf in tree_leaves(tree)]


def _broadcast_to_and_flatten(tree, treespec, is_leaf=None):
    """A leaf of `tree` for each leaf of `treespec`; None if `tree` is no beginning of it."""
    return _broadcast(tree, treespec, is_leaf)


# --- structures -----------------------------------------------------------------------------------------------------


def treespec_leaf():
    """The structure of a leaf."""
    return _LEAF_SPEC


def treespec_tuple(iterable=(), /):
    """The structure of a tuple of the given ones."""
    children = list(iterable)
    if not all(isinstance(child, TreeSpec) for child in children):
        raise ValueError(f"Expected a tuple of TreeSpec values, got: {children!r}.")
    return TreeSpec(tuple, None, children)


def treespec_dict(mapping=(), /, **kwargs):
    """The structure of a dictionary of the given ones."""
    found = dict(mapping, **kwargs)
    if not all(isinstance(child, TreeSpec) for child in found.values()):
        raise ValueError(f"Expected a dictionary of TreeSpec values, got: {found!r}.")
    return TreeSpec(dict, list(found), list(found.values()))


def treespec_pprint(treespec):
    """The structure as its tree would print, with a star for each leaf."""
    class Star(str):
        __repr__ = str.__str__
    return repr(treespec.unflatten([Star("*")] * treespec.num_leaves))


DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL = 1


def treespec_dumps(treespec, protocol=None):
    """The structure as a line of JSON, in PyTorch's form."""
    import json
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"Expected `treespec` to be an instance of PyTreeSpec but got item of type {type(treespec)}.")
    if protocol not in (None, DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL):
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [1]")
    return json.dumps((1, _to_json(treespec)), default=_enum_to_json)


def _to_json(spec):
    import json
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    found = SUPPORTED_SERIALIZED_TYPES.get(spec.type)
    if found is None:
        raise NotImplementedError(f"Serializing {spec.type} in pytree is not registered.")
    if found.serialized_type_name == NO_SERIALIZED_TYPE_NAME_FOUND:
        raise NotImplementedError(f"No registered serialization name for {spec.type} found. Please update your "
                                  "_register_pytree_node call with a `serialized_type_name` kwarg.")
    if found.to_dumpable_context is not None:
        context = found.to_dumpable_context(spec.context)
    else:
        try:
            context = json.dumps(spec.context, default=_enum_to_json)
        except TypeError as error:
            raise TypeError("Unable to serialize context. Please make the context json dump-able, or register a custom "
                            "serializer using _register_pytree_node.") from error
    return {"type": found.serialized_type_name, "context": context,
            "children_spec": [_to_json(child) for child in spec.children()]}


def _enum_to_json(member):
    from enum import Enum
    if isinstance(member, Enum):
        cls = type(member)
        return {"__enum__": True, "fqn": f"{cls.__module__}:{cls.__qualname__}", "name": member.name}
    raise TypeError(f"Object of type {type(member).__name__} is not JSON serializable")


def treespec_loads(serialized):
    """The structure that `treespec_dumps` has written."""
    import json
    protocol, found = json.loads(serialized)
    if protocol != DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [1]")
    return _of_json(found)


def _of_json(found):
    import json
    if found["type"] is None and found["context"] is None and not found["children_spec"]:
        return _LEAF_SPEC
    if found["type"] not in SERIALIZED_TYPE_TO_PYTHON_TYPE:
        raise NotImplementedError(f"Deserializing {found['type']} in pytree is not registered.")
    cls = SERIALIZED_TYPE_TO_PYTHON_TYPE[found["type"]]
    read = SUPPORTED_SERIALIZED_TYPES[cls].from_dumpable_context
    context = json.loads(found["context"], object_hook=_enum_of_json) if read is None else read(found["context"])
    return TreeSpec(cls, context, [_of_json(child) for child in found["children_spec"]])


def _enum_of_json(found):
    if "__enum__" not in found:
        return found
    from importlib import import_module
    module, _, path = found["fqn"].partition(":")
    cls = import_module(module)
    for name in path.split("."):
        cls = getattr(cls, name)
    return cls[found["name"]]
