"""Trees of containers are walked and forgotten: nothing of a walk keeps a leaf alive."""
import gc
import weakref

import pytest

from flambeau.base import pytree

pytestmark = pytest.mark.pinned


class Leaf:
    pass


@pytest.mark.parametrize("walk", [
    pytree.tree_flatten, pytree.tree_leaves, pytree.tree_leaves_with_path, pytree.tree_structure,
    lambda tree: pytree.tree_unflatten(*pytree.tree_flatten(tree)), lambda tree: pytree.tree_map(lambda x: x, tree)])
def test_no_cycle_holds_the_leaves(walk):
    leaf = Leaf()
    gone = weakref.ref(leaf)
    gc.disable()
    try:
        walk({"a": [leaf, (leaf, 3)]})
        del leaf
        assert gone() is None
    finally:
        gc.enable()
