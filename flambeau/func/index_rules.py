"""Rules of what reads and writes by index; see Note [Rules] in batching.py.

Where an index is another one in each slice, the number of the slice becomes an index too.
"""
from ..base import dtypes, shapes
from ..tensor.batched import Unbatchable, batched, over
from ..tensor.forms import declared, namespace
from .batching import DYNAMIC, Slices, slice_by_slice
from .rules import by, fitted, shifted

arange, where = namespace[""]["arange"], namespace[""]["where"]


def in_parts(function):
    """The rule of an operation that is the same as `function` of its arguments, in other operations over the slices."""
    def rule(sliced):
        args = [tuple([batched(b, sliced.level) if own else b for b, own in zip(a, has, strict=True)])
                if has.__class__ is tuple else batched(a, sliced.level) if has else a
                for a, has in zip(sliced.args, sliced.has, strict=True)]
        made = function(*args)
        level = (Slices(sliced.level, sliced.size),)
        if made.__class__ in (tuple, list):
            return [over(one, level)._value for one in made]
        return over(made, level)._value
    return rule


# --- x[i, j] ----------------------------------------------------------------------------------------------------------


class Places:
    """Where the positions of an index land: `start` in the result of a slice, `count` dimensions; `apart`, in front,
    where the index has gaps. `indices` are those over all slices, and `own` says that they have slices themselves."""

    __slots__ = ("apart", "count", "indices", "own", "start")

    def __init__(self, sliced, at, with_number):
        indices, has = sliced.args[at], sliced.has[at]
        if has.__class__ is not tuple:
            indices, has = (indices,), (has,)
        given = [nth for nth, i in enumerate(indices) if i is not None]
        self.own = any(has)
        self.start = given[0]
        self.apart = given[-1] - given[0] + 1 != len(given)
        self.count = max(len(indices[nth]._spec.shape) - bool(has[nth]) for nth in given)
        if any(indices[nth].dtype.name in ("bool", "uint8") for nth in given):
            if self.own:
                raise Unbatchable(DYNAMIC.format("nonzero"))
            self.count = 1 + max([len(indices[nth]._spec.shape) - 1 for nth in given
                                  if indices[nth].dtype.name not in ("bool", "uint8")], default=0)
        if not self.own:
            self.indices = (None, *indices) if with_number else indices
            return
        wide = [i if i is None or not own else i.reshape((sliced.size, *(1,) * (self.count + 1 - i.dim()),
                                                          *i._spec.shape[1:]))
                for i, own in zip(indices, has, strict=True)]
        number = arange(sliced.size, device=indices[given[0]].device).view(sliced.size, *(1,) * self.count)
        self.indices = (number, *wide) if with_number else tuple(wide)

    def order(self, ndim):
        """Which dimension of what all slices give at once is which of (slices, *result of a slice)."""
        count, start = self.count, self.start
        if not self.own:                                  # the index stands for what it stood for
            return (count, *range(count), *range(count + 1, ndim)) if self.apart else tuple(range(ndim))
        if self.apart or not start:
            return tuple(range(ndim))
        return (0, *range(count + 1, count + 1 + start), *range(1, count + 1), *range(count + 1 + start, ndim))


def back(order):
    """The order that undoes another one."""
    made = [0] * len(order)
    for at, d in enumerate(order):
        made[d] = at
    return tuple(made)


def plainly(order):
    return order == tuple(range(len(order)))


def indexed(sliced):
    if not sliced.has[0]:                                 # the index alone has slices
        places = Places(sliced, 1, False)
        made = sliced.run((sliced.args[0], places.indices))
        return made if places.apart or not places.start else made.movedim(places.start, 0)
    places = Places(sliced, 1, True)
    made = sliced.run((sliced.args[0], places.indices))
    order = places.order(made.dim())
    return made if plainly(order) else made.permute(order)


def put(sliced):
    """Values written, or added, at an index: laid out as that lands."""
    places = Places(sliced, 1, True)
    value = sliced.whole(0)
    ndim = places.count + value.dim() - sum([max(1, len(i._spec.shape) if i.dtype.name in ("bool", "uint8") else 1)
                                             for i in places.indices[1:] if i is not None])
    values = sliced.wide(2, ndim - 1)
    order = places.order(ndim)
    if not plainly(order):
        lacking = ndim - values.dim()
        values = values.reshape((*(1,) * lacking, *values.shape)) if lacking else values
        values = values.permute(back(order))
    return sliced.run((value, places.indices, values))


def put_back(sliced):
    places = Places(sliced, 2, True)
    g = sliced.whole(0)
    order = places.order(g.dim())
    g = g if plainly(order) else g.permute(back(order))
    return sliced.run((g, (sliced.size, *sliced.args[1]), places.indices))


by("index", indexed)
by("_index_put _index_put_add", put)
by("_index_backward", put_back)


# --- along a dimension ------------------------------------------------------------------------------------------------


def at_dim(dim, ndim, index):
    """The index that `index` along `dim` is."""
    return (*[None] * shapes.wrap_dim(dim, ndim), index.reshape(-1))


def along_unless_own(index_at, function):
    """The rule of what goes along a dimension by an index that is the same for all slices; else `function`."""
    parts = in_parts(function)

    def rule(sliced):
        size = sliced.args[1] if "size" in sliced.op.arg_names else None
        ndim = len(sliced.shapes[0] if size is None else size)
        if not ndim:
            return slice_by_slice(sliced)
        if sliced.has[index_at]:
            return parts(sliced)
        args = [sliced.whole(at) if shape is not None and at != index_at and (at == 0 or shape or ndim == 1) else a
                for at, (a, shape) in enumerate(zip(sliced.args, sliced.shapes, strict=True))]
        args[sliced.op.arg_names.index("dim")] = shifted(args[sliced.op.arg_names.index("dim")], ndim)
        if size is not None:
            args[1] = (sliced.size, *size)
        return fitted(sliced, sliced.run(args))
    return rule


by("index_select", along_unless_own(2, lambda input, dim, index: declared["index"](
    input, at_dim(dim, input.dim(), index))))
by("_index_select_backward", along_unless_own(3, lambda input, size, dim, index: declared["_index_backward"](
    input, size, at_dim(dim, len(size), index))))
by("index_add", along_unless_own(2, lambda input, dim, index, source, alpha: declared["_index_put_add"](
    input, at_dim(dim, input.dim(), index), (source if alpha == 1 else source * alpha).to(input.dtype))))
by("index_copy", along_unless_own(2, lambda input, dim, index, source: declared["_index_put"](
    input, at_dim(dim, input.dim(), index), source)))


def filled(input, dim, index, value):
    """`input` with `value` at an index, which may name a place twice: what stands there has one gradient."""
    there = declared["_index_put"](input.new_zeros(input.shape, dtype=dtypes.bool), at_dim(dim, input.dim(), index),
                                   input.new_ones((), dtype=dtypes.bool))
    return where(there, value, input)


def filled_along(sliced):
    if not sliced.shapes[0]:
        return slice_by_slice(sliced)
    if sliced.has[2] or sliced.has[3]:
        return in_parts(filled)(sliced)
    return sliced.run((sliced.args[0], shifted(sliced.args[1], len(sliced.shapes[0])), *sliced.args[2:]))


by("_index_fill _index_fill_tensor", filled_along)
by("take", in_parts(lambda input, index: declared["index"](input.reshape(-1), (index,))))
by("_put", in_parts(lambda input, index, source: declared["_index_put"](
    input.reshape(-1), (index.reshape(-1),), source.reshape(-1)).view(input.shape)))
by("_put_add", in_parts(lambda input, index, source: declared["_index_put_add"](
    input.reshape(-1), (index.reshape(-1),), source.reshape(-1)).view(input.shape)))


def reduced_at(sliced):
    return slice_by_slice(sliced) if sliced.has[2] or not sliced.shapes[0] else along_unless_own(2, None)(sliced)


by("index_reduce", reduced_at)


# --- tables of rows ---------------------------------------------------------------------------------------------------


def rows_of(weight, indices, padding_idx, scale_grad_by_freq, sparse):
    rows = declared["index"](weight, (indices,))
    if padding_idx < 0:
        return rows
    return where((indices == padding_idx).unsqueeze(-1), rows.detach(), rows)


def looked_up(sliced):
    if not sliced.has[0]:
        return sliced.run(sliced.args)
    return slice_by_slice(sliced) if sliced.args[3] else in_parts(rows_of)(sliced)


def rows_back(grad, indices, rows, padding_idx, scale_grad_by_freq):
    if padding_idx >= 0:
        grad = where((indices == padding_idx).unsqueeze(-1), 0, grad)
    return declared["_index_backward"](grad, (rows, grad.shape[-1]), (indices,))


by("embedding", looked_up)
by("_embedding_backward", lambda sliced: slice_by_slice(sliced) if sliced.args[4] else in_parts(rows_back)(sliced))


def searched(sliced):
    """Places in sorted rows: one row for all, or one for each."""
    rows, own = sliced.args[0], sliced.has[0]
    ndim = len(sliced.shapes[0])
    if not own and ndim == 1:
        return sliced.run(sliced.args)
    if ndim == 1:
        flat = sliced.whole(1).reshape(sliced.size, -1)
        return sliced.run((rows, flat, *sliced.args[2:])).reshape(sliced.shape())
    return sliced.run((sliced.whole(0), sliced.whole(1), *sliced.args[2:]))


by("_searchsorted", searched)
by("_isin", lambda sliced: sliced.run(sliced.args) if not sliced.has[1] else slice_by_slice(sliced))


def spread(sliced):
    """One number of each slice, everywhere in it."""
    value, dtype, size, _ = sliced.args
    return value.to(dtype).reshape(sliced.size, *(1,) * len(size)).expand(sliced.size, *size).clone()


by("_spread", spread)
