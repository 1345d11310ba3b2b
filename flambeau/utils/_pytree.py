"""`torch.utils._pytree`: nested containers as leaves and structure; see base/pytree.py."""
from ..base.pytree import (
    LEAF,
    TreeSpec,
    register_pytree_node,
    tree_all,
    tree_any,
    tree_flatten,
    tree_is_leaf,
    tree_iter,
    tree_leaves,
    tree_map,
    tree_map_,
    tree_map_only,
    tree_map_only_,
    tree_structure,
    tree_unflatten,
)

__all__ = ["LeafSpec", "PyTree", "TreeSpec", "register_pytree_node", "tree_all", "tree_any", "tree_flatten",
           "tree_is_leaf", "tree_iter", "tree_leaves", "tree_map", "tree_map_", "tree_map_only", "tree_map_only_",
           "tree_structure", "tree_unflatten"]

PyTree = object
_register_pytree_node = register_pytree_node


def LeafSpec():
    """The structure of a leaf."""
    return LEAF
