"""`torch.utils._pytree` in both libraries: every public name, on trees of every container."""
import enum
import pickle
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings, strategies as st

import flambeau
import flambeau.utils._pytree as ours

theirs = pytest.importorskip("torch.utils._pytree")
Pair = namedtuple("Pair", "first second")
keys = st.sampled_from(["a", "b", 3])
leaves = st.sampled_from([0, 1.5, "x", None, True])
TREES = st.recursive(leaves, lambda inner: st.one_of(
    st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple), st.dictionaries(keys, inner, max_size=3),
    st.dictionaries(keys, inner, max_size=3).map(OrderedDict),
    st.dictionaries(keys, inner, max_size=3).map(lambda d: defaultdict(list, d)),
    st.lists(inner, max_size=3).map(lambda parts: deque(parts, 4)), st.tuples(inner, inner).map(lambda p: Pair(*p))),
    max_leaves=8)


def outcome(do):
    """What `do()` gives, or how it fails."""
    try:
        return do()
    except (ValueError, TypeError, NotImplementedError) as error:
        return type(error), str(error)


@settings(max_examples=150, deadline=None)
@given(TREES)
def test_trees(tree):
    for is_leaf in (None, lambda held: isinstance(held, tuple)):
        (mine, spec), (other, form) = (lib.tree_flatten(tree, is_leaf) for lib in (ours, theirs))
        assert mine == other and repr(spec) == repr(form)
        assert (spec.num_leaves, spec.num_nodes, spec.num_children) == (form.num_leaves, form.num_nodes,
                                                                       form.num_children)
        assert spec.unflatten(mine) == tree and spec == ours.tree_structure(tree, is_leaf)
        assert hash(spec) == hash(ours.tree_structure(tree, is_leaf)) and pickle.loads(pickle.dumps(spec)) == spec
    assert ours.treespec_pprint(ours.tree_structure(tree)) == theirs.treespec_pprint(theirs.tree_structure(tree))
    text = outcome(lambda: ours.treespec_dumps(ours.tree_structure(tree)))
    assert text == outcome(lambda: theirs.treespec_dumps(theirs.tree_structure(tree)))
    if isinstance(text, str):
        assert ours.treespec_loads(text) == ours.tree_structure(tree)
    mine, other = (lib.tree_leaves_with_path(tree) for lib in (ours, theirs))
    assert [(ours.keystr(path), repr(path), leaf) for path, leaf in mine] == \
        [(theirs.keystr(path), repr(path), leaf) for path, leaf in other]
    assert all(ours.key_get(tree, path) is leaf for path, leaf in mine)
    assert ours.tree_map_with_path(lambda path, leaf: (ours.keystr(path), leaf), tree) == \
        theirs.tree_map_with_path(lambda path, leaf: (theirs.keystr(path), leaf), tree)
    assert ours.tree_map_only(int, lambda n: n + 1, tree) == theirs.tree_map_only(int, lambda n: n + 1, tree)
    assert ours.tree_any_only(int, bool, tree) == theirs.tree_any_only(int, bool, tree)


@settings(max_examples=150, deadline=None)
@given(TREES, TREES)
def test_two_trees(first, second):
    together = [outcome(lambda lib=lib: lib.tree_map(lambda a, b: (a, b), first, second)) for lib in (ours, theirs)]
    assert together[0] == together[1]
    assert ours._broadcast_to_and_flatten(first, ours.tree_structure(second)) == \
        theirs._broadcast_to_and_flatten(first, theirs.tree_structure(second))
    assert (ours.tree_structure(first) == ours.tree_structure(second)) == \
        (theirs.tree_structure(first) == theirs.tree_structure(second))


class Colour(enum.Enum):
    RED = 1


def test_registering():
    @dataclass
    class Point:
        x: object
        y: object = None

    @dataclass(frozen=True)
    class Setting:
        name: str

    class Box:
        def __init__(self, held, colour):
            self.held, self.colour = held, colour

    for lib in (ours, theirs):
        lib.register_dataclass(Point)
        lib.register_constant(Setting)
        lib.register_pytree_node(Box, lambda box: ([box.held], box.colour), Box, serialized_type_name="tests.Box")
        lib._register_namedtuple(Pair, serialized_type_name="tests.Pair")
    tree = [Point(1, [2]), Setting("l2"), Pair(3, 4)]
    for held in ([Point(1)], tree):
        assert repr(ours.tree_structure(held)) == repr(theirs.tree_structure(held))
    assert ours.tree_map(lambda n: n + 1, tree) == theirs.tree_map(lambda n: n + 1, tree)
    assert ours.tree_leaves_with_path(tree[0])[1][0] == (ours.GetAttrKey("y"), ours.SequenceKey(0))
    hashless = type("Hashless", (), {"__eq__": lambda a, b: True, "__hash__": None})
    for wrong in (lambda lib: lib.register_pytree_node(Box, None, None), lambda lib: lib.register_dataclass(int),
                  lambda lib: lib.tree_leaves_with_path(Box(1, 2)), lambda lib: lib.tree_map_only(3, abs, []),
                  lambda lib: lib.tree_unflatten([1], lib.tree_structure([1, 2])),
                  lambda lib: lib.tree_unflatten([], 3), lambda lib: lib.register_constant(hashless),
                  lambda lib: lib.register_dataclass(Point, field_names=["x"])):
        assert outcome(lambda wrong=wrong: wrong(ours)) == outcome(lambda wrong=wrong: wrong(theirs))
    spec = ours.tree_structure(Box([1], Colour.RED))
    text = ours.treespec_dumps(spec)
    assert text == theirs.treespec_dumps(theirs.tree_structure(Box([1], Colour.RED)))
    assert ours.treespec_loads(text) == spec and ours.treespec_loads(text).context is Colour.RED
    pairs = ours.treespec_dumps(ours.tree_structure([Pair(1, 2)]))
    assert pairs == theirs.treespec_dumps(theirs.tree_structure([Pair(1, 2)]))
    assert ours.treespec_loads(pairs) == ours.tree_structure([Pair(1, 2)])
    for lib in (ours, theirs):
        lib._deregister_pytree_node(Box)
        lib._deregister_pytree_node(Pair)
        assert lib.tree_is_leaf(Box(1, 2)) and not lib.tree_is_leaf(Pair(1, 2))


def test_names():
    assert set(theirs.__all__) == set(ours.__all__) and all(hasattr(ours, name) for name in ours.__all__)
    assert ours.tree_leaves(flambeau.Size([2, 3])) == theirs.tree_leaves(torch.Size([2, 3]))
    assert type(ours.tree_map(lambda n: n, flambeau.Size([2]))) is flambeau.Size
    import os
    import time
    for held in (time.localtime(), os.stat("."), Pair(1, 2), Pair, (1,), time.struct_time):
        for ask in ("is_structseq", "is_namedtuple", "is_structseq_instance", "is_namedtuple_instance"):
            assert getattr(ours, ask)(held) == getattr(theirs, ask)(held)
