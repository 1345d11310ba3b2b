"""The fields of autograd nodes that every call writes and every backward reads.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""
from ..base.core import give_defaults


class NodeBase:
    """The fields of every node (node.py), and those of one that a declared operation has made."""

    def __cinit__(self):              # compiled; interpreted, they stand with the other defaults, below
        self.edges = ()
        self.n_outputs = 1


give_defaults(
    NodeBase,
    edges=(),                 # (node, output number) or None for each differentiable input
    site=None,                # the line of the call
    released=None,            # the site of the backward that freed what was kept
    hooked=False,             # whether it has hooks, or a gradient is retained
    leaf=None,                # the leaf that an AccumulateGrad stands for
    n_outputs=1)


class RecipeBase:
    """The fields of a BackwardRecipe (node.py)."""

    __slots__ = ("op", "template", "live", "inputs", "input_specs", "asked", "only_kept", "keep_out", "steps",
                 "single_rule", "saves", "name", "fetched", "follows", "has_float_result")
