"""Edges: where the gradient of a tensor goes, and whether one is wanted.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""
from weakref import ref as weak

from ..trace.recording import new
from .base_node import LEAF_SEQUENCE_NUMBER, AccumulateGrad, refresh
from .slots import NodeBase


def accumulator(leaf):
    """The one AccumulateGrad node of a leaf: a graph needs one for each, and it ends with the graph."""
    while True:
        ref = leaf._accumulator
        node = ref() if ref is not None else None
        if node is not None:
            return node
        node = made = new.instance(NodeBase, AccumulateGrad)
        made.leaf = leaf
        made.seq = LEAF_SEQUENCE_NUMBER
        if leaf._leaf_hooks:
            node.tensor_hooks, node.hooked = {0: leaf._leaf_hooks}, True
        found = weak(node)
        if leaf._accumulator is ref:              # else another thread was first; there is no call before the store
            leaf._accumulator = found
            return node


def edge_of(tensor):
    """(node, output number) that a gradient for `tensor` flows into, or None."""
    if tensor._base is not None and tensor._seen != tensor._storage.version:
        refresh(tensor)
    node = tensor._node
    if node is not None:
        return (node, tensor._nr)
    if tensor._requires_grad:
        return (accumulator(tensor), 0)
    return None


def requires(tensor):
    """Whether a gradient is wanted for `tensor` (a view follows its base)."""
    if tensor._node is not None or tensor._requires_grad:
        return True
    base = tensor._base
    return base is not None and (base._node is not None or base._requires_grad)
