"""The bodies of reductions, row-wise operations and data movement mean what their `ref` means.

A body is written out by the `k` of trace/planning/lower.py, and the graph that it gives is computed with the arrays of
test_bodies.py, which are strict about dtypes, ranges and positions.
"""
import math
import operator

import numpy as np
import pytest

import flambeau as torch
from flambeau.backends.reference import execute
from flambeau.base import dtypes, settings
from flambeau.trace.planning import lower
from flambeau.trace.recording.record import current

from ..test_ops import OPS
from ..thorough import sample
from .test_bodies import Numbers, NumpyKernel, number

pytestmark = pytest.mark.pinned

# --- computing a graph with arrays ----------------------------------------------------------------------------------

OPERATORS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
             "neg": operator.neg, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
             "eq": operator.eq, "ne": operator.ne, "and": operator.and_, "or": operator.or_, "not": operator.invert}
CALLED = {"min": "minimum", "max": "maximum"}
REDUCTIONS = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "top": np.max, "any": np.any, "all": np.all}
JOINS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def sent(node, values, at, *base):
    """The library's `scatter` and `spread`; they are tested by themselves, in tests/backends, as its others are."""
    if node.attr[0] == "spread":
        out = np.broadcast_to(base[0].array, at.shape).copy()
        out[at.array] = values.array[:at.array.sum()]
        return Numbers(out, values.dtype)
    name, (how, fresh, _, skip, size), (part,) = node.attr
    assert name == "scatter"
    out = (base[0].array.copy() if base else np.zeros(part.shape, part.dtype.np)).reshape(size)
    shape = (size[0], max(values.shape[1], at.shape[1]), size[2])
    values, at = [np.broadcast_to(x.array, shape) for x in (values, at)]
    places = np.arange(shape[0])[:, None, None], at, np.arange(shape[2])
    if fresh:
        out[places] = {"sum": 0, "prod": 1, "set": 0}.get(how, -np.inf if how == "max" else np.inf)
    used = (at != skip) | (skip < 0)
    places = [np.broadcast_to(x, shape)[used] for x in places]
    if how == "set":
        out[tuple(places)] = values[used]
    else:
        JOINS[how].at(out, tuple(places), values[used])
    return Numbers(out.reshape(part.shape), part.dtype)


ATTRIBUTES = {
    "library": sent, "output": lambda node, made: made,
              "gather": lambda n, x, index: NumpyKernel.gather(x, n.attr, index),
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
            assert made.dtype is node.dtype and (made.shape == node.shape or node.op == "library"), (node.op, made.shape, node.shape)
            known[node] = made
    return known[root]


def run_body(entry, arrays, params):
    """The arrays that an instruction's body gives, or NotImplemented."""
    op, known = entry.op, {}

    def leaf(array, dtype):
        node = lower.TraceNode("input", dtype, array.shape)
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


# --- running both ---------------------------------------------------------------------------------------------------


def compiled(made, entry):
    """The results of a call as the native executor computes them."""
    return [one._storage.value.ready().look(one._spec, one._offset) for one in (made if entry.many else [made])]


def check(name, args, native=False):
    """Compare body (or the compiled body) and reference; False where the body leaves the case to the reference."""
    op = OPS[name]
    n = op.n_positional
    given = [t for a in args for t in (a if isinstance(a, (tuple, list)) else [a]) if isinstance(t, torch.Tensor)]
    arrays = [t._storage.value.ready().look(t._spec, t._offset).copy() for t in given]
    current().run()                           # or the trace might be full, and run, with this call
    kept = op(*args[:n], **dict(zip(op.kwonly, args[n:])))
    last = current().code[-1]
    entry, params = last.entry, last.params
    assert entry.op is op and kept is not None
    with np.errstate(all="ignore"):
        mine = compiled(kept, entry) if native else run_body(entry, arrays, params)
        theirs = execute(entry, arrays, params)
    if mine is NotImplemented:
        return False
    for one, other, spec in zip(mine, theirs, entry.outs, strict=True):
        if spec.dtype.is_floating_point:
            wide = np.float32 if spec.dtype.itemsize == 2 else spec.dtype.np
            scale = {2: 1e-2, 4: 3e-6, 8: 1e-14}[spec.dtype.itemsize]
            np.testing.assert_allclose(one.astype(wide), other.astype(wide), scale, scale, err_msg=str((name, *args)))
        else:
            np.testing.assert_array_equal(one, other, err_msg=str((name, *args)))
    return True


def made(*shape, dtype=torch.float32, low=-3, high=4):
    """Few different numbers, so that some are equal."""
    rng = np.random.default_rng(len(shape))
    whole = rng.integers(low, high, shape)
    return torch.tensor(whole + (rng.integers(0, 3, shape) / 4 if dtype.is_floating_point else 0)).to(dtype)


def laid(x):
    """`x` in memory that is not contiguous."""
    return x.transpose(0, -1).contiguous().transpose(0, -1) if x.ndim > 1 else x


WITH_NAN = made(3, 4)
WITH_NAN[0, 1], WITH_NAN[1, 0], WITH_NAN[1, 2], WITH_NAN[2] = math.nan, math.inf, math.nan, -math.inf
FLOATS = [made(3, 4, 2), laid(made(3, 4, 2)), made(3, 4, dtype=torch.float64), made(5, dtype=torch.float16),
          made(2, 3, dtype=torch.bfloat16), torch.tensor(2.5), made(1, 3), WITH_NAN, made(3, 4)[:, 1:3], made(3, 1).expand(3, 4)]
INTS = [made(3, 4, 2, dtype=torch.int64), made(3, 4, dtype=torch.uint8, low=0), made(4, dtype=torch.int8), torch.tensor(7),
        torch.tensor([2 ** 31 - 1] * 3, dtype=torch.int32), made(3, 4, dtype=torch.int64) > 0]
ALL = FLOATS + INTS


def dims(x, several=True):
    """None, and every dimension counted from both ends; pairs of them, all of them, where `several` may be given."""
    one = [None, *range(-max(x.ndim, 1), max(x.ndim, 1))]
    return one + [(0, -1), tuple(range(x.ndim)), ()] * (several and x.ndim > 1)


def single(x):
    return [d for d in dims(x, False) if d is not None]


def over(name, inputs, *rest, dims=dims):
    """Calls of a reduction over each dimension, kept and not."""
    return [(name, x, d, keep, *rest) for x in inputs for d in dims(x) for keep in (False, True)]


# --- reductions -----------------------------------------------------------------------------------------------------

SOME = [made(3, 4), made(3, 4, dtype=torch.int32)]
WANTED = [torch.float64, torch.float16, torch.int8, torch.bool, torch.int64]
PICK = torch.tensor([[2], [0], [3]])
WINDOWS = [((3, 3), (1, 1), (1, 1), (1, 1)), ((2, 2), (1, 1), (0, 0), (2, 2)), ((3, 2), (2, 1), (1, 0), (1, 2)), ((2, 5), (3, 2), (3, 4), (4, 1)),
           ((2, 2), (1, 1), (0, 0), (3, 3))]                           # size, dilation, padding, stride
BLOCKS = [(7, 8), (3, 4), (5, 4), (3, 8), (2, 3)]
LONG_PADS = [("_reflection_pad1d", ("reflect", 40000, 40012, 5)), ("_reflection_pad1d", ("reflect", 40000, 39990, -3)),
             ("_replication_pad1d", ("replicate", 40000, 50000, 9000)), ("_pad_circular", ("circular", 40000, 79000, 39000, 0)),
             ("_pad_circular", ("circular", 40000, 40003, -5, 8))]
REDUCE = [
    *over("_sum", ALL, None), *[("_sum_dim", x, 1, False, d) for x in SOME for d in WANTED], *over("nansum", ALL, None),
    *over("_mean", FLOATS, None), *[("_mean_dim", x, 0, True, d) for x in SOME for d in WANTED[:2]],
    *[("_prod", x, None) for x in ALL], *over("_prod_dim", ALL, None, dims=single), *[("_prod", x, d) for x in SOME for d in WANTED],
    *over("amax", ALL), *over("amin", ALL), *over("aminmax", ALL, dims=lambda x: dims(x, False)),
    *[("_max", x) for x in ALL], *[("_min", x) for x in ALL], *over("_max_dim", ALL, dims=single), *over("_min_dim", ALL, dims=single),
    *over("argmax", ALL[:-1], dims=lambda x: dims(x, False)), *over("argmin", ALL[:-1], dims=lambda x: dims(x, False)),
    *over("all_", ALL), *over("any_", ALL), *[("count_nonzero", x, d) for x in ALL for d in dims(x)],
    *[(name, x, d, c, keep) for name in ("_var", "_std", "_var_mean", "_std_mean") for x in FLOATS for d in dims(x)
      for c in (0, 1, 2.5, 50) for keep in (False, True)],
    *over("logsumexp", FLOATS), *over("logsumexp", INTS[:1]),
    *[(name, x, d) for name in ("_softmax", "_log_softmax") for x in FLOATS for d in single(x)],
    *[(name, x, x * 0.5, d) for name in ("_softmax_backward", "_log_softmax_backward") for x in FLOATS[:6] for d in single(x)],
    ("_put_along", made(3, 1), PICK, 1, (3, 4)), ("_put_along", made(1, 3), PICK.T, 0, (4, 3)), ("_put_along", made(3, 1).half(), PICK, 1, (3, 4)),
    ("_put_along", made(3, 2), torch.cat([PICK, PICK - 1], 1) % 4, 1, (3, 4)), ("_put_along", made(3, 4), PICK.expand(3, 4) % 3, 0, (3, 4), True),
    ("_put_along", made(2, 3, 2).double(), PICK.expand(2, 3, 2) % 3, 1, (2, 3, 2), True), ("_put_along", made(1, 4), PICK.t()[:, :1].expand(1, 4), 0, (3, 4), True),
    ("_take_along", made(3, 4), PICK, 1), ("_take_along", laid(made(3, 4)).half(), PICK.expand(3, 2), 1),
    *[("_vector_norm", x, p, d, keep, None) for x in FLOATS for p in (0, 1, 2, 3.5, -1, math.inf, -math.inf) for d in dims(x) for keep in (False, True)],
    ("_vector_norm", made(3), 2, None, False, torch.float64), ("_norm_of_rows", made(3, 4).bfloat16(), 2, 1, True, None),
    ("index_add", made(5, 3), 0, torch.tensor([4, 0, 4]), made(3, 3)), ("index_add", made(4), 0, torch.tensor([1, 1]), made(2), 3),
    ("_embedding_backward", made(2, 3, 20), torch.tensor([[1, 0, 1], [4, 4, 3]]), 6, 3, False), ("_embedding_backward", made(70, 9), torch.arange(70) % 4, 4, -1, False),
    *[("_im2col", x, *how) for x in (made(2, 3, 7, 8), laid(made(3, 7, 8)).half(), made(1, 7, 8).double()) for how in WINDOWS],
    *[("_col2im", made(2, 3 * math.prod(how[0]), math.prod(counts)).to(dtype), (7, 8), *how) for how, counts in zip(WINDOWS, BLOCKS)
      for dtype in (torch.float32, torch.bfloat16)],
    *[("_unfold_backward", made(2, n, 4, w), (2, 9, 4), 1, w, step) for n, w, step in [(7, 3, 1), (4, 3, 2), (1, 9, 5), (2, 2, 4), (9, 1, 1)]],
    ("_unfold_backward", made(4, 3, dtype=torch.int32), (9,), -1, 3, 2), ("_unfold_backward", made(4, 3).half(), (9,), 0, 3, 2),
    *[(name, made(2, 40000), (m,)) for name, m in LONG_PADS],
    ("_resized_back", made(2, 40012), (("reflect", 40000, 40012, 5),)), ("_resized_back", made(39999), (("reflect", 40000, 39999, -3),)),
    *[("_fractional_max_pool2d_largest", made(*lead, 9, 11).to(dtype), torch.rand(*(1, 1, *lead)[-2:], 2).to(dtype), kernel, size)
      for lead in ((2, 3), (2,)) for dtype in (torch.float32, torch.float64) for kernel, size in [((2, 3), (4, 5)), ((1, 1), (9, 1)), ((2, 2), (8, 10))]],
    ("_fractional_max_pool3d_largest", made(2, 3, 5, 7, 9), torch.rand(2, 3, 3), (2, 1, 3), (2, 5, 4)),
    *[("pdist", made(7, 3), p) for p in (0.0, 1.0, 2.0, 2.5, math.inf)], ("pdist", laid(made(5, 2)).double(), 2.0), ("pdist", made(2, 3), 1.0),
    ("_matrix_of_pairs", made(6), 4), ("_matrix_of_pairs", made(1).half(), 2), ("_pairs_of_matrix", made(5, 5)), ("_pairs_of_matrix", laid(made(4, 4)).bfloat16()),
    *[("_cdist", made(2, 5, 3), made(1, 4, 3) + 0.1, p) for p in (0.0, 1.0, 2.0, 2.5, math.inf)], ("_cdist", laid(made(3, 2)), made(4, 2), 2.0),
    ("_class_rows", torch.arange(6).reshape(2, 3), 7), ("_class_rows", torch.tensor(2), 3), ("_class_rows", laid(torch.arange(8).reshape(2, 4)), 8),
    ("_counts_below", torch.arange(70) % 4, None, 6), ("_counts_below", (torch.arange(70) % 4).int(), made(70).double(), 4),
]

# --- normalisation and losses -------------------------------------------------------------------------------------------------

IMAGE, SCALE, SHIFT = made(2, 4, 3, 2), made(4, low=1), made(4)
BATCH, GROUP, ROW = (2, 4, 3, 2), ((2, 2, 2, 3, 2), (2, 3, 4), (1, 2, 2, 1, 1)), ((3, 4), (1,), (1, 4))
LASTS = IMAGE.contiguous(memory_format=torch.channels_last)
MEANS = (made(1, 4, 1, 1), made(1, 4, 1, 1, low=1))
LOGS, WIDE_LOGS, LABELS, DEEP = made(5, 4), made(2, 4, 3), torch.tensor([3, 0, 1, 2, 2]), torch.tensor([[0, 1, 3], [2, 2, 1]])
LOSSES = [(x, t, w, how, i) for x, t in ((LOGS, LABELS), (WIDE_LOGS, DEEP), (made(4), torch.tensor(2)), (LOGS.half(), LABELS), (laid(LOGS), LABELS),
                                         (LOGS, LABELS.to(torch.uint8)), (WIDE_LOGS.double(), DEEP))
          for w in (None, torch.tensor([0.5, 2, 0, math.inf], dtype=x.dtype)) for how in ("none", "mean", "sum") for i in (-100, 2)]


def backward_calls():
    for x, t, w, how, i in LOSSES:
        g = torch.ones(t.shape, dtype=x.dtype) * 1.5 if how == "none" else torch.tensor(0.5, dtype=x.dtype)
        total = torch.tensor(3.5, dtype=torch.float64 if x.dtype is torch.float64 else torch.float32) if how == "mean" else None
        yield "_nll_backward", g, t, w, total, x._spec.shape, i
        rest = torch.logsumexp(x.to((g if total is None else total).dtype).float(), min(x.ndim, 2) - 1, True).to(
            torch.float64 if x.dtype is torch.float64 else torch.float32)
        yield "_class_entropy_backward", g, x, rest * 0 + 1, rest, t, w, total, i


def beside(x, n, parameter):
    """A parameter of a layer norm over the last n dimensions; that of a float16 input may be float32."""
    return parameter if parameter is None else parameter.to(torch.promote_types(x.dtype, torch.float32)).expand(x.shape[-n:])


NORMS = [
    *[("_layer_norm", x, x._spec.shape[-n:], beside(x, n, w), beside(x, n, b), 1e-3)
      for x in (made(3, 4), made(2, 3, 4), laid(made(2, 3, 4)), made(3, 4).half(), made(3, 4).double()) for n in range(1, x.ndim + 1)
      for w in (None, SCALE[:1]) for b in (None, SHIFT[:1])],
    *[("_batch_norm", x, w, b, 1e-3) for x in (IMAGE, LASTS, made(5, 4), IMAGE.bfloat16(), IMAGE.double()) for w in (None, SCALE) for b in (None, SHIFT)],
    *[("_fixed_norm", x, w, b, SHIFT, SCALE, 1e-3) for x in (IMAGE, LASTS, made(5, 4), IMAGE.bfloat16())
      for w in (None, SCALE) for b in (None, SHIFT)],
    *[("_group_norm", x, groups, w, b, 1e-3) for x in (IMAGE, LASTS, made(3, 4), IMAGE.half()) for groups in (1, 2, 4) for w in (None, SCALE)
      for b in (None, SHIFT)],
    *[("_norm_backward", x * 0.3, x, w, *MEANS, 1e-3, (BATCH, (0, 2, 3), (1, 4, 1, 1))) for x in (IMAGE, LASTS, IMAGE.half()) for w in (None, SCALE)],
    *[("_norm_backward", IMAGE * 0.3, IMAGE, w, made(2, 2, 1, 1, 1), made(2, 2, 1, 1, 1, low=1), 1e-3, GROUP) for w in (None, SCALE)],
    ("_norm_weight_backward", IMAGE * 0.3, IMAGE, *MEANS, 1e-3, (BATCH, (0, 2, 3), (1, 4, 1, 1)), (4,)),
    ("_norm_weight_backward", made(3, 4), made(3, 4) + 1, made(3, 1), made(3, 1, low=1), 1e-3, ROW, (4,)),
    ("_norm_weight_backward", IMAGE * 0.3, IMAGE, made(2, 2, 1, 1, 1), made(2, 2, 1, 1, 1, low=1), 1e-3, GROUP, (4,)),
    ("_fixed_norm", IMAGE.double(), SCALE, None, SHIFT.double(), SCALE.double(), 1e-3),
    *[(name, *call) for name in ("_nll", "_class_entropy") for call in LOSSES], ("_nll2d", *LOSSES[6]), ("_class_entropy2d", *LOSSES[6]),
    *backward_calls(),
]

# --- data movement ------------------------------------------------------------------------------------------------------------

HALF, MASK, CUBE = made(3, 4).half(), made(3, 4) > 0, made(3, 4, 2)
PLACES = torch.tensor([[1, -1], [0, -3]])
MOVES = [
    *[("index", x, (PLACES,)) for x in (CUBE, HALF, MASK, laid(CUBE))], ("index", CUBE, (None, PLACES.to(torch.int32))),
    ("index", CUBE, (None, None, PLACES[:, 0] % 2)), ("index_select", CUBE, -2, torch.tensor([3, 0, 0])), ("index_select", torch.tensor(2.0), 0, torch.tensor([0])),
    ("index_select", HALF, 0, torch.tensor(1)), ("take", made(6), PLACES), ("embedding", made(6, 3), PLACES % 6, 2, False, False),
    ("embedding", made(6, 3).bfloat16(), torch.tensor(4, dtype=torch.int32), -1, False, False),
    ("gather", made(3, 4), 1, PICK, False), ("gather", made(3, 4), 0, torch.tensor([[0, 2, 1, 1]] * 5, dtype=torch.int32), False), ("gather", MASK, -1, PICK, False),
    *[("_scatter_value", x, 1, PICK, 5) for x in (made(3, 4), HALF, MASK, made(3, 4, dtype=torch.uint8, low=0))], ("_scatter_value", made(3, 4), -2, PICK.T[:, [0, 1, 0, 1]] % 3, 0.5),
    ("_scatter", HALF, 1, PICK, made(3, 1).half()), ("scatter_add", made(3, 4), 1, PICK, made(3, 1)), ("scatter_add", made(3, 4, dtype=torch.int64), -1, PICK, PICK),
    ("_scatter_value", made(3, 4), 1, PICK.expand(3, 2), 5), ("_scatter", made(3, 4), 1, PICK, made(3, 4)), ("_scatter", made(3, 4), 1, PICK[:2], made(3, 4)),
    ("index", CUBE, (PLACES, PLACES)), ("index", CUBE, (PLACES, None, PLACES % 2)), ("take", CUBE, PLACES),
    *[("_index_put_add", CUBE, where, torch.tensor(0.5)) for where in ((PLACES, PLACES), (PLACES, None, PLACES % 2), (None, PLACES))],
    *[("_index_put", CUBE, where, torch.tensor(0.5)) for where in ((PLACES,), (PLACES, None, PLACES[0] % 2), (CUBE > 0,), (None, CUBE[0] > 0))],
    ("_index_put", CUBE, (CUBE > 0,), made(int((CUBE > 0).sum()))), ("_index_put", CUBE, (CUBE[:, :, 0] > 0,), made(int((CUBE[:, :, 0] > 0).sum()), 2)),
    ("_index_backward", made(int((CUBE > 0).sum())), (3, 4, 2), (CUBE > 0,)),
    *[("scatter_reduce", made(3, 4), 1, PICK.expand(3, 2), made(3, 2), how, own) for how in ("sum", "prod", "mean", "amax", "amin") for own in (True, False)],
    *[("index_reduce", made(3, 4), 1, torch.tensor([1, 1, 3]), made(3, 3), how, own) for how in ("prod", "mean", "amax") for own in (True, False)],
    ("index_copy", CUBE, 1, torch.tensor([2, 0]), made(3, 2, 2)), ("_index_fill", CUBE, 1, torch.tensor([2, -1]), 0.5), ("_index_fill_tensor", CUBE, 1, torch.tensor([2, -1]), torch.tensor(2)),
    ("_put", CUBE, PLACES, made(2, 2)), ("_put_add", CUBE, PLACES, made(2, 2)),
    *[("_select_backward", made(3, 2), (3, 4, 2), d, i) for d, i in ((1, 0), (1, -1), (-2, 2))], ("_select_backward", torch.tensor(1.5).half(), (4,), 0, 2),
    *[("_slice_backward", made(3, n, 2), (3, 9, 2), 1, *cut) for n, *cut in ((9, None, None, 1), (4, 2, 6, 1), (3, 1, -1, 3), (2, -3, None, 2))],
    *[("_diagonal_backward", made(2, n), size, o, a, b) for n, size, o, a, b in ((3, (2, 3, 4), 0, 1, 2), (2, (2, 3, 4), 2, 1, -1), (2, (2, 3, 4), -1, 1, 2), (3, (4, 2, 3), -1, 0, 2),
                                                                                 (3, (3, 2, 4), 1, 0, 2), (3, (4, 2, 3), 0, 2, 0))],
    *[("diag_embed", made(2, 3), *where) for where in ((0, -2, -1), (2, 0, 1), (-1, 2, 0), (1, -1, 0))],
    ("_unsafe_view", laid(CUBE), (6, 4)), *[("_repeat", made(2, 3), n) for n in ((2, 3), (4, 1, 2), (1, 1))], ("_repeat", torch.tensor(True), (3, 2)),
    *[("_roll", x, (n,), (d,)) for x in (CUBE, laid(CUBE), HALF) for n, d in ((1, 0), (-2, 1), (7, -1), (0, 1))], ("_roll", made(5), (2,), ()),
    *[("_flip", x, (d,)) for x in (CUBE, HALF, MASK) for d in range(x.ndim)], *[("tril", x, d) for x in (CUBE, HALF, MASK, made(4, 3)) for d in (-2, 0, 1)],
    *[("triu", x, d) for x in (CUBE, HALF, MASK, made(4, 3)) for d in (-2, 0, 1)],
    ("select_scatter", CUBE, made(3, 2), 1, -1), ("select_scatter", HALF, made(4), 0, 1), ("slice_scatter", CUBE, made(3, 2, 2), 1, 1, None, 2),
    ("diagonal_scatter", CUBE, made(2, 3), 1, 0, 1), ("diagonal_scatter", HALF, made(3).half(), 0, 1, 0),
    *[("constant_pad_nd", x, p, 0.5) for x in (CUBE, HALF) for p in ((1, 2), (0, 0, 3, 0), (-1, 2), (0, 0, -1, -1), (0, 0))],
    ("constant_pad_nd", made(3, 4, dtype=torch.int64), (2, 0), -7), ("constant_pad_nd", MASK, (1, 1), True),
    ("pixel_shuffle", IMAGE, 2), ("pixel_shuffle", IMAGE[0].half(), 2), ("pixel_unshuffle", IMAGE[:, :, :2], 2), ("channel_shuffle", IMAGE, 2), ("channel_shuffle", LASTS, 4),
]

CALLS = REDUCE + NORMS + MOVES
NAMES = list(dict.fromkeys(name for name, *_ in CALLS))


@pytest.mark.parametrize("name", NAMES)
def test_body_means_what_the_reference_means(name):
    for call in CALLS:
        if call[0] == name:
            assert check(name, call[1:]), call


@pytest.mark.parametrize("name", sample(NAMES, 4))
def test_compiled_body_means_what_the_reference_means(name, monkeypatch):
    monkeypatch.setattr(settings, "executor", "native")
    for call in CALLS:
        if call[0] == name:
            check(name, call[1:], native=True)


def test_integers_wrap_around():
    big = torch.full((3,), 2 ** 62)
    assert check("_sum", (big, None, False, None)) and check("_prod", (big, None))


# --- what is left to the reference ------------------------------------------------------------------------------------------------

LEFT = [
    ("_put_along", made(3, 2), PICK[:1].expand(1, 2), 1, (3, 4)),
    ("gather", made(3, 4), 1, PICK[:2], False), ("gather", torch.tensor(1.0), 0, torch.tensor(0), False),            # fewer rows
    ("_flip", CUBE, (0, 1)), ("_roll", CUBE, (1, 2), (0, 1)), ("_roll", CUBE, (1,), ()), ("constant_pad_nd", CUBE, (1, 1, 1, 1), 0),
]


@pytest.mark.parametrize("call", LEFT, ids=lambda call: call[0])
def test_what_a_body_leaves(call):
    assert not check(call[0], call[1:])
