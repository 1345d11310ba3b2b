"""Gather and scatter: along one dimension, an index for every single element; and folding, which they share.

Gather and scatter work on the flattened tensor: `flat_positions` turns an index along a dimension into positions in it.
"""

from ..base import dtypes, shapes
from ..base.arguments import as_scalar, fitting
from ..base.bounds import hull, number
from ..base.errors import need, warn
from ..base.op import NUMBER_CLASSES, Composite, Op, door
from ..base.spec import spec
from .create import _full
from .index import (
    INDEX_DTYPES,
    are_within,
    matched,
    picked_along,
    reduce_at,
    scattered,
    sizes_around,
    tensor_given,
    within,
    zeros,
)
from .index_along import rows_within, sent_along, slices, table_back, table_of, vector_index


def index_fits(input, dim, index, src=None, words="self"):
    """Check an index against `input` and, for a write, `src`, by their Specs; the wrapped `dim`."""
    tensor_given(index, "index", 3)
    d = shapes.wrap_dim(dim, input.ndim)
    need(index.dtype in INDEX_DTYPES or not index.numel,
         f"Expected dtype int32/int64 for index, got {index.dtype.name}")
    if src is not None:
        need(src.dtype is input.dtype, f"Expected self.dtype to be equal to src.dtype, got {input.dtype.name} and "
                                       f"{src.dtype.name}")
    if not index.numel:
        return d
    at = index.shape or (1,)
    for name, other in ((words, input), ("src", src)):
        need(other is None or len(other.shape or (1,)) == len(at), "Index tensor must have the same number "
             f"of dimensions as {name} tensor: {index.ndim} and {other.ndim if other else 0}")
    fits = all(a <= n for e, (a, n) in enumerate(zip(at, input.shape or (1,), strict=True)) if e != d)
    if src is None:
        need(fits, f"Size does not match at dimension {misfit(at, input.shape or (1,), d)} expected index "
             f"{list(index.shape)} to be no larger than self {list(input.shape)} apart from dimension {d}")
    else:
        fits &= all(a <= n for a, n in zip(at, src.shape or (1,), strict=True))
        need(fits, f"Expected index {list(index.shape)} to be no larger than self {list(input.shape)} apart from "
                   f"dimension {d} and to be no larger size than src {list(src.shape)}")
    return d


def misfit(at, shape, d):
    return next((e for e, (a, n) in enumerate(zip(at, shape, strict=True)) if e != d and a > n), d)


def index_within(index, input, dim):
    """Refuse the data of an index that points outside `input` (a Spec)."""
    d = shapes.wrap_dim(dim, input.ndim)
    within(index, input.shape[d] if input.ndim else 1, d, wrap=False, error_class=RuntimeError)


def holds_within(index, input, dim):
    """Whether `index_within` refuses nothing."""
    return are_within(index, input.shape[shapes.wrap_dim(dim, input.ndim)] if input.ndim else 1, wrap=False)


def flat_positions(xp, shape, dim, index):
    """For each element of `index`, which varies along `dim`, its position in a flattened array of `shape`."""
    if not index.size:
        return xp.zeros(0, xp.int64)
    shape, index = shape or (1,), index.reshape(index.shape or (1,))
    d, steps = dim % len(shape), shapes.contiguous_strides(shape)
    at = index * xp.int64(steps[d])
    for e, n in enumerate(index.shape):
        if e != d:
            at = at + (xp.arange(n) * steps[e]).reshape(-1, *(1,) * (index.ndim - e - 1))
    return at.reshape(-1)


def cut(src, index):
    """The part of `src` that `index` has elements for, as a vector in the order of `index`."""
    if not index.size:
        return src.reshape(-1)[:0]
    return src[tuple(map(slice, index.shape))].reshape(-1)


class gather(Op):
    """The element of `input` that each element of `index` points to along `dim`, in the shape of `index`.

    >>> torch.tensor([[1, 2], [3, 4]]).gather(1, torch.tensor([[0, 0], [1, 0]]))
    tensor([[1, 1],
            [4, 3]])
    """

    forms = "function method out"
    strict_out = True
    out_no_overlap = True
    exact = True
    by_bounds = "index"

    def meta(input, dim, index, *, sparse_grad=False):
        index_fits(input, dim, index, words="input")
        return spec(input.dtype, index.shape, None, input.device)

    def verify(index, input_spec, dim): index_within(index, input_spec, dim)
    def holds(index, input_spec, dim):  return holds_within(index, input_spec, dim)

    def ref(xp, input, dim, index, *, sparse_grad=False):
        return xp.take(input.reshape(-1), flat_positions(xp, input.shape, dim, index)).reshape(index.shape)

    def d_input(g, input_spec, dim, index): return _gather_backward(g, input_spec.shape, dim, index)
    def bounds(input): return input
    def body(k, input, dim, index, *, sparse_grad=False): return picked_along(k, input, dim, index)


class _gather_backward(Op):
    """Zeros of `size` with the elements of `input` added where `index` points along `dim`."""

    node = "GatherBackwardBackward0"

    def meta(input, size, dim, index): return input.like(shape=size)

    def ref(xp, input, size, dim, index):
        out = xp.zeros((shapes.numel(size), 1), input.dtype)
        reduce_at(xp, xp.add, out, flat_positions(xp, size, dim, index), input.reshape(-1, 1))
        return out.reshape(size)

    def body(k, input, size, dim, index):
        at = dim % len(size) if size else 0
        if not size or index.shape != (*size[:at], 1, *size[at + 1:]) or not input.dtype.is_floating_point:
            return sent_singly(k, "sum", input, index, size, dim)
        # One of each row was gathered, as by a distribution over classes: each place asks whether it was that one. With
        # zero added, since a sum has no -0.
        return k.where(k.index(at, size) == k.cast(index, dtypes.int64), input, 0) + 0

    def d_input(g, dim, index): return gather(g, dim, index)


def sent_singly(k, how, src, index, shape, dim, base=None, **options):
    """For a body: elements of `src` sent to where those of `index` point along `dim` of `base`, or of zeros of `shape`;
    see `scattered`. `src` may be one number, or larger than the index."""
    given, shape, at = shape, shape or (1,), index.shape or (1,)
    d, number = dim % len(shape), src.numel == 1
    if 0 in shape:
        return NotImplemented
    if not number and src.shape != index.shape:            # its part that the index has elements for
        src = part_of(k, src, index.shape)
    if all(n == m for e, (n, m) in enumerate(zip(at, shape, strict=True)) if e != d):
        size, sizes = sizes_around(shape, d), sizes_around(at, d)
    else:                                                  # the index leaves out places of other dimensions
        size, sizes, steps = (1, shapes.numel(shape), 1), (1, index.numel, 1), shapes.contiguous_strides(shape)
        places = k.cast(k.reshape(index, at), dtypes.int64) * steps[d]
        for e, step in enumerate(steps):
            if e != d and at[e] > 1:
                places = places + k.index(e, at) * step
        index = places
    return scattered(k, how, k.reshape(src, (1, 1, 1) if number else sizes), k.reshape(index, sizes), size, given, base,
                     **options)


def part_of(k, x, shape):
    """For a body: the first so many of `x` in each dimension."""
    places, steps = None, shapes.contiguous_strides(x.shape)
    for d, n in enumerate(shape):
        if n > 1:
            step = k.index(d, shape) * steps[d]
            places = step if places is None else places + step
    if places is None:
        places = k.const(0, dtypes.int64)
    count = shapes.numel(shape)
    return k.reshape(k.gather(k.reshape(x, (x.numel,)), 0, k.reshape(k.expand(places, shape), (count,))), shape)


def pointed(k, input, dim, index):
    """For a body: where an `index` of one element per row points; None where there are more of them.

    Then every place can tell by itself what is written to it.
    """
    if not matched(input, dim, index) or index.shape[dim] != 1:
        return None
    return k.index(dim, input.shape) == k.cast(index, dtypes.int64)


# --- writing ------------------------------------------------------------------------------------------------


class scatter(Composite):
    """`input` with the elements of `src` (or one number) written where `index` points along `dim`.

    With `reduce` "add" or "multiply" they are added to, or multiplied with, what is there.
    """

    strict_out = True
    forms = "function method inplace out"
    no_overlap = "index src"

    def of(input, dim, index, src=None, *, value=None, reduce=None):
        src = value if src is None else src
        if src is None:
            raise TypeError("scatter() received an invalid combination of arguments: it needs src (a tensor) or value "
                            "(a number)")
        need(reduce in (None, "add", "multiply"), f"reduce argument must be either add or multiply, got {reduce}")
        number = isinstance(src, NUMBER_CLASSES)
        if reduce is None:
            return (_scatter_value if number else _scatter)(input, dim, index, src)
        if number:
            fitting(src, input.dtype)
            src = _full(index._spec.shape, src, input.dtype, input.device)
        else:
            warn("The reduce argument of torch.scatter with Tensor src is deprecated and will be removed in a "
                 "future PyTorch release. Use torch.scatter_reduce instead for more reduction "
                 "options.")
        if reduce == "add":
            return scatter_add(input, dim, index, src)
        return scatter_reduce(input, dim, index, src, "prod")


class _scatter(Op):
    """`scatter` from a tensor."""

    exact = True
    overwrites = True
    by_bounds = "index"

    def meta(input, dim, index, src):
        tensor_given(src, "src", 4)
        index_fits(input, dim, index, src)
        return spec(input.dtype, input.shape, None, input.device)

    def verify(index, input_spec, dim): index_within(index, input_spec, dim)

    def ref(xp, input, dim, index, src):
        out = xp.ascontiguousarray(input).reshape(-1)
        out[flat_positions(xp, input.shape, dim, index)] = cut(src, index)
        return out.reshape(input.shape)

    def d_input(g, dim, index):          return _scatter_value(g, dim, index, 0)
    def d_src(g, dim, index, src_spec):  return spread(g.gather(dim, index), src_spec)
    def bounds(input, src): return hull(input, src)

    def body(k, input, dim, index, src):
        here = pointed(k, input, dim, index)
        if here is not None and src.shape == index.shape:
            return k.where(here, src, input)
        return sent_singly(k, "set", src, index, input.shape, dim, input)


class _scatter_value(Op):
    """`scatter` of a number."""

    called = "scatter"
    exact = True
    scalars = ("value",)
    node = "ScatterBackward1"
    overwrites = True
    by_bounds = "index"

    def meta(input, dim, index, value):
        index_fits(input, dim, index)
        return spec(input.dtype, input.shape, None, input.device)

    def verify(index, input_spec, dim, value):
        fitting(value, input_spec.dtype)
        index_within(index, input_spec, dim)

    def ref(xp, input, dim, index, value):
        out = xp.ascontiguousarray(input).reshape(-1)
        out[flat_positions(xp, input.shape, dim, index)] = as_scalar(value, dtypes.from_numpy(input.dtype))
        return out.reshape(input.shape)

    def d_input(g, dim, index): return _scatter_value(g, dim, index, 0)
    def bounds(input, value): return hull(input, number(value))

    def body(k, input, dim, index, value):
        here = pointed(k, input, dim, index)
        value = k.cast(value, input.dtype)
        return sent_singly(k, "set", value, index, input.shape, dim, input) if here is None else \
            k.where(here, value, input)


def spread(g, src):
    """`g`, the gradient for the part of `src` (a Spec) that an index had elements for, as one for the whole."""
    if g._spec.shape == src.shape:
        return g
    out = zeros(g, src.shape)
    if g.numel():
        out[tuple(map(slice, g._spec.shape))] = g
    return out


class scatter_add(Op):
    """`input` with the elements of `src` added where `index` points along `dim`; all that meet there count."""

    strict_out = True
    forms = "function method inplace out"
    no_overlap = "index src"
    by_bounds = "index"

    def meta(input, dim, index, src):
        tensor_given(src, "src", 4)
        index_fits(input, dim, index, src)
        return spec(input.dtype, input.shape, None, input.device)

    def verify(index, input_spec, dim): index_within(index, input_spec, dim)

    def ref(xp, input, dim, index, src):
        out = xp.array(input, order="C").reshape(-1, 1)
        reduce_at(xp, xp.add, out, flat_positions(xp, input.shape, dim, index), cut(src, index))
        return out.reshape(input.shape)

    def d_input(g):                      return g
    def d_src(g, dim, index, src_spec):  return spread(g.gather(dim, index), src_spec)

    def body(k, input, dim, index, src):
        here = pointed(k, input, dim, index)
        if here is not None and src.shape == index.shape and src.dtype is not dtypes.bool:
            return k.where(here, input + src, input)
        return sent_singly(k, "sum", src, index, input.shape, dim, input)


class scatter_reduce(Op):
    """`input` with `src` folded in where `index` points along `dim` by "sum", "prod", "mean", "amax" or "amin".

    Without `include_self`, what `input` held in those places does not count.

    >>> torch.zeros(3).scatter_reduce(0, torch.tensor([0, 0, 2]), torch.tensor([1., 4., 2.]), "amax")
    tensor([4., 0., 2.])
    """

    strict_out = True
    forms = "function method inplace out"
    no_overlap = "index src"
    by_bounds = "index"

    def meta(input, dim, index, src, reduce, *, include_self=True):
        need(reduce in ("sum", "prod", "mean", "amax", "amin"),
             f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
        tensor_given(src, "src", 4)
        index_fits(input, dim, index, src)
        complex_extreme = input.dtype.is_complex and reduce in ("amax", "amin")
        refused = complex_extreme or (input.dtype is dtypes.bool and reduce == "mean")
        need(not refused, f"\"scatter_gather_tensor_cpu_reduce_{reduce}\" not implemented for "
             f"'{input.dtype.cname}'", NotImplementedError)
        return spec(input.dtype, input.shape, None, input.device)

    def verify(index, input_spec, dim): index_within(index, input_spec, dim)

    def ref(xp, input, dim, index, src, reduce, *, include_self=True):
        out = xp.array(input, order="C").reshape(-1, 1)
        at, src = flat_positions(xp, input.shape, dim, index), cut(src, index).reshape(-1, 1)
        out = fold(xp, reduce, out, at, src, include_self)
        return out.reshape(input.shape)

    def body(k, input, dim, index, src, reduce, *, include_self=True):
        def send(how, src, base, **options): return sent_singly(k, how, src, index, input.shape, dim, base, **options)
        return folded(k, reduce, input, src, include_self, send)

    def grads(g, needs, input, dim, index, src, reduce, include_self, out):
        whole = src.shape == index.shape or not index.numel()
        used = src if whole else src[tuple(map(slice, index._spec.shape))]
        mine, _, theirs = fold_grads(
            g, needs, input, used, out, reduce, include_self,
            pick=lambda t: t.gather(dim, index),
            add=lambda t, s: t.scatter_add(dim, index, s),
            again=lambda t, s: scatter_reduce(t, dim, index, s, reduce, include_self=include_self),
            blank=lambda t: _scatter_value(t, dim, index, 0))
        return mine, None, None if theirs is None else spread(theirs, src._spec)


# --- folding slices ------------------------------------------------------------------------------------------


class index_reduce(Op):
    """`input` with the slices of `source` along `dim` folded in at `index` by "prod", "mean", "amax" or "amin".

    Without `include_self`, what `input` held at those positions does not count.
    """

    strict_out = True
    forms = "function method inplace out"
    no_overlap = "index source"
    by_bounds = "index"

    def meta(input, dim, index, source, reduce, *, include_self=True):
        need(reduce in ("prod", "mean", "amax", "amin"), "Expected reduce to be one of prod, mean, amax or amin but "
                                                         f"got {reduce}.")
        d = vector_index(input, dim, index, source)
        slices(input, d, index, source)
        need(input.dtype.category in (1, 2), f"\"index_func_\" not implemented for '{input.dtype.cname}'",
             NotImplementedError)
        return spec(input.dtype, input.shape, None, input.device)

    def verify(index, input_spec, dim): rows_within(index, input_spec, dim)

    def ref(xp, input, dim, index, source, reduce, *, include_self=True):
        d = dim % max(input.ndim, 1)
        table = table_of(xp, input, d, copy=True)
        table = fold(xp, reduce, table, index.reshape(-1), table_of(xp, source, d), include_self)
        return table_back(xp, table, input.shape, d)

    def body(k, input, dim, index, source, reduce, *, include_self=True):
        def send(how, source, base, **options):
            return sent_along(k, how, source, index, input.shape, dim, base, **options)
        return folded(k, reduce, input, source, include_self, send)

    def grads(g, needs, input, dim, index, source, reduce, include_self, out):
        return fold_grads(
            g, needs, input, source, out, reduce, include_self,
            pick=lambda t: t.index_select(dim, index).reshape(source.shape),
            add=lambda t, s: t.index_add(dim, index, s),
            again=lambda t, s: index_reduce(t, dim, index, s, reduce, include_self=include_self),
            blank=lambda t: t.index_fill(dim, index, 0))


def fold(xp, reduce, table, rows, values, include_self):
    """`table` with `values` folded into its `rows`."""
    way = {"sum": xp.add, "mean": xp.add, "prod": xp.multiply, "amax": xp.maximum, "amin": xp.minimum}[reduce]
    if not include_self:
        table[rows] = neutral(xp, reduce, table.dtype)
    reduce_at(xp, way, table, rows, values)
    if reduce == "mean":
        count = xp.bincount(rows, minlength=len(table)) + bool(include_self)
        count = xp.maximum(count, 1).reshape(-1, 1)
        return table // count.astype(table.dtype) if table.dtype.kind in "iu" else table / count
    return table


def folded(k, reduce, input, values, include_self, send):
    """For a body: `input` with `values` folded into the places that `send(how, values, base)` sends them to."""
    how = {"amax": "max", "amin": "min", "mean": "sum"}.get(reduce, reduce)
    made = send(how, values, input, fresh=not include_self)
    if made is NotImplemented or reduce != "mean":
        return made
    count = send("sum", k.const(1, dtypes.int32), None)
    if count is NotImplemented:
        return NotImplemented
    count = k.cast(count + 1 if include_self else k.maximum(count, k.const(1, dtypes.int32)), input.dtype)
    if input.dtype.is_floating_point:
        return made / count
    quotient = k.idiv(made, count)                         # which is rounded towards zero
    return quotient - k.cast(quotient * count > made, input.dtype)


def neutral(xp, reduce, dtype):
    """What leaves the other operand of a reduction as it is."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod" or dtype.kind == "b":
        return reduce != "amax"
    if dtype.kind in "iu":
        info = xp.iinfo(dtype)
        return info.min if reduce == "amax" else info.max
    return -xp.inf if reduce == "amax" else xp.inf


def fold_grads(g, needs, input, source, out, reduce, include_self, pick, add, again, blank):
    """Gradients of a folding write for `input` and `source`, as PyTorch has them.

    `pick` reads at the index, `add` adds there, `again` folds anew, `blank` zeroes what was written.
    """
    if reduce == "sum":
        mine, theirs = g, pick(g)
    elif reduce == "mean":
        count = add(zeros(g) + int(include_self), zeros(source, dtype=g.dtype) + 1)
        count = count.masked_fill(count == 0, 1)
        mine, theirs = g / count, pick(g) / pick(count)
    elif reduce == "prod":
        whole = input.masked_fill(input == 0, 1)           # the product of the others, without dividing by zero
        mine = g * again(whole, source) / whole
        zero = source == 0
        count = pick(add(zeros(input), zero.to(input.dtype)))
        need(not door.records() or bool((~zero | (count == 1)).all()), "scatter_reduce(), index_reduce(): Double "
             "backward of reduce=\"prod\" is unsupported for src when >1 zeros in src are scattered to the same "
             "position in self. Multiply with torch.prod, whose second derivative is exact, or leave "
             "create_graph=True away.")
        only = zero & (count == 1)
        others = again(input, source.masked_fill(only, 1))
        theirs = pick(g * others).where(only, pick(g * out) / source.masked_fill(zero, 1))
    else:                                                  # equal extremes share the gradient evenly
        at, kept = pick(out), input == out
        won = source == at
        share = g / add(kept.to(g.dtype), won.to(g.dtype))
        mine, theirs = kept * share, won * pick(share)
    if not include_self:
        mine = blank(mine)
    return (mine if needs[0] else None, None, theirs if needs[2] else None)
