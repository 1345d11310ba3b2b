"""The bodies of reductions, row-wise operations and data movement mean what their `ref` means.

A body is written out by the `k` of trace/lower.py, and the graph that it gives is computed with the arrays of
test_bodies.py, which are strict about dtypes, ranges and positions.
"""
import operator

import numpy as np

import flambeau as torch
from flambeau.base import dtypes
from flambeau.trace import lower

from .test_bodies import Numbers, NumpyKernel, number

OPERATORS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
             "neg": operator.neg, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
             "eq": operator.eq, "ne": operator.ne, "and": operator.and_, "or": operator.or_, "not": operator.invert}
CALLED = {"min": "minimum", "max": "maximum"}
REDUCTIONS = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "all": np.all}
ATTRIBUTES = {"gather": lambda n, x, index: NumpyKernel.gather(x, n.attr, index),
              "cast": lambda n, x: NumpyKernel.cast(x, n.dtype),
              "reshape": lambda n, x: NumpyKernel.reshape(x, n.shape),
              "expand": lambda n, x: NumpyKernel.expand(x, n.shape),
              "permute": lambda n, x: NumpyKernel.permute(x, n.attr),
              "index": lambda n: NumpyKernel.index(n.attr, n.shape),
              "const": lambda n: NumpyKernel.const(n.attr, n.dtype)}


def reduced(node, x):
    kind, dims = node.attr
    if kind.startswith("arg"):
        return Numbers(getattr(np, kind)(x.array, axis=dims[0], keepdims=True), dtypes.int64)
    assert x.dtype is dtypes.bool if kind in ("any", "all") else x.dtype is not dtypes.bool
    wide = {"dtype": x.dtype.np} if kind in ("sum", "prod") else {}
    return Numbers(REDUCTIONS[kind](x.array, axis=dims, keepdims=True, **wide), x.dtype)


def computed(root, known):
    """What the graph under `root` is, from the leaves in `known`."""
    todo = [root]
    while todo:
        node = todo[-1]
        left = [a for a in node.args if a not in known]
        if node in known or not left:
            todo.pop()
        todo.extend(left)
        if node not in known and not left:
            given = [known[a] for a in node.args]
            if node.op == "reduce":
                made = reduced(node, *given)
            elif node.op in ATTRIBUTES:
                made = ATTRIBUTES[node.op](node, *given)
            else:
                made = (OPERATORS.get(node.op) or getattr(NumpyKernel, CALLED.get(node.op, node.op)))(*given)
            assert made.dtype is node.dtype and made.shape == node.shape, (node.op, made.shape, node.shape)
            known[node] = made
    return known[root]


def run_body(entry, arrays, params):
    """The arrays that an instruction's body gives, or NotImplemented."""
    op, known = entry.op, {}

    def leaf(array, dtype):
        node = lower.Node("input", dtype, array.shape)
        known[node] = Numbers(array, dtype)
        return node
    casts = entry.casts or [a.dtype for a in arrays]
    given = [leaf(a.astype(c), dtypes.from_numpy(c)) for a, c in zip(arrays, casts, strict=True)]
    argv = list(entry.template)
    for at, param in zip(entry.param_at, params, strict=True):
        if op.scalar_at[at] and param.__class__ in (bool, int, float):
            held = number(param, given[0].dtype)
            param = leaf(held.array, held.dtype)
        argv[at] = param
    for at, slot in enumerate(entry.template):
        if slot.__class__ is int:
            argv[at] = given[slot]
        elif slot.__class__ is tuple:
            argv[at] = [None if s is None else given[s] for s in slot]
    n = op.n_positional
    made = op.body(lower.k, *argv[:n], **dict(zip(op.kwonly, argv[n:], strict=True)))
    if made is NotImplemented:
        return made
    outs = []
    for node, spec in zip(made if entry.many else (made,), entry.outs, strict=True):
        array = computed(lower.k.cast(node, spec.dtype), known).array
        outs.append(array.reshape(spec.shape) if array.size == spec.numel else np.broadcast_to(array, spec.shape))
    return outs
