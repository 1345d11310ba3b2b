"""Reading, writing and adding by a vector of positions along one dimension, or by position in the flattened tensor."""
from ..base import dtypes, shapes
from ..base.arguments import as_scalar, fitting
from ..base.bounds import hull
from ..base.errors import need
from ..base.op import NUMBER_CLASSES, Composite, Op
from ..base.spec import spec
from .convert import converted
from .index import (
    INDEX_DTYPES,
    add_at,
    are_within,
    reduce_at,
    rows_at,
    scattered,
    sizes_around,
    tensor_given,
    widened,
    within,
    wrapped,
    zeros,
)

# --- along one dimension ------------------------------------------------------------------------------------


def vector_index(input, dim, index, source=None, allowed=INDEX_DTYPES, wrong=RuntimeError):
    """Check the vector `index` for dimension `dim`, and the dtype of `source`; the wrapped `dim`."""
    tensor_given(index, "index", 3)
    d = shapes.wrap_dim(dim, input.ndim)
    need(index.dtype in allowed, f"Expected dtype {' or '.join(k.name for k in reversed(allowed))} for index, got "
                                 f"{index.dtype.name}", wrong)
    need(index.ndim <= 1, f"Index is supposed to be a vector, but got dim: {index.ndim} with type: {index.dtype.cname} "
                          f"and size: {list(index.shape)}", IndexError)
    if source is not None:
        tensor_given(source, "source", 4)
        need(source.dtype is input.dtype, f"self ({input.dtype.cname}) and source ({source.dtype.cname}) must have the "
                                          "same scalar type")
    return d


def table_of(xp, array, dim, copy=None):
    """`array` as contiguous rows, one per position along `dim`; a view where that can be, unless `copy`."""
    moved = xp.moveaxis(array.reshape(array.shape or (1,)), dim, 0)
    return xp.array(moved, order="C", copy=copy).reshape(moved.shape[0], shapes.numel(moved.shape[1:]))


def table_back(xp, table, shape, dim):
    """The array of `shape` that `table_of` made a table of."""
    full = shape or (1,)
    rest = (*full[:dim], *full[dim + 1:])
    return xp.moveaxis(table.reshape(full[dim], *rest), 0, dim).reshape(shape)


def slot(array, dim, index):
    """(array with at least one dimension, subscript for `index` along `dim`)"""
    return array.reshape(array.shape or (1,)), (slice(None),) * dim + (index.reshape(-1),)


class index_select(Op):
    """The slices of `input` along `dim` at the positions in the vector `index`, in that order."""

    forms = "function method out"
    strict_out = True
    exact = True
    out_no_overlap = True
    by_bounds = "index"

    def meta(input, dim, index):
        d = vector_index(input, dim, index)
        if not input.ndim:
            need(index.numel == 1, f"Index to scalar can have only 1 value, got {index.numel} value(s)")
            return input
        need(input.shape[d] or not index.numel, f"self indexing axis dim should be positive, but dimension {d} has "
                                                "size 0")
        return input.like(shape=(*input.shape[:d], index.numel, *input.shape[d + 1:]))

    def verify(index, input_spec, dim):
        d = shapes.wrap_dim(dim, input_spec.ndim)
        size = input_spec.shape[d] if input_spec.ndim else 1
        within(index, size, d, False, words=f"index out of range in self: index {{bad}} for dimension {d} with size "
                                            f"{size}")

    def holds(index, input_spec, dim):
        size = input_spec.shape[shapes.wrap_dim(dim, input_spec.ndim)] if input_spec.ndim else 1
        return are_within(index, size, False)

    def ref(xp, input, dim, index):
        return xp.take(input, index.reshape(-1), axis=dim) if input.ndim else input

    def d_input(g, input_spec, dim, index): return _index_select_backward(g, input_spec.shape, dim, index)
    def bounds(input): return input

    def body(k, input, dim, index):
        at = k.reshape(k.cast(index, dtypes.int64), (index.numel,))
        return rows_at(k, input, dim % input.ndim, at) if input.ndim else input


class _index_select_backward(Op):
    """Zeros of `size` with the slices of `input` added along `dim` at `index`."""

    node = "IndexSelectBackwardBackward0"

    def meta(input, size, dim, index): return input.like(shape=size)

    def ref(xp, input, size, dim, index):
        d, shape = dim % max(len(size), 1), size or (1,)
        table = xp.zeros((shape[d], shapes.numel((*shape[:d], *shape[d + 1:]))), input.dtype)
        reduce_at(xp, xp.add, table, index.reshape(-1), table_of(xp, input, d))
        return table_back(xp, table, size, d)

    def body(k, input, size, dim, index):
        return sent_along(k, "sum", input, index, size, dim)

    def d_input(g, dim, index): return g.index_select(dim, index)


class index_add(Op):
    """`input` with the slices of `alpha * source` along `dim` added at the positions in `index`, repeated or not."""

    strict_out = True
    forms = "function method inplace out"
    no_overlap = "index source"
    scalars = ("alpha",)
    by_bounds = "index"

    def meta(input, dim, index, source, *, alpha=1):
        d = vector_index(input, dim, index, source)
        slices(input, d, index, source)
        return spec(input.dtype, input.shape, None, input.device)

    def verify(index, input_spec, dim, alpha):
        fitting(alpha, input_spec.dtype)
        rows_within(index, input_spec, dim, RuntimeError)

    def ref(xp, input, dim, index, source, *, alpha=1):
        d = dim % max(input.ndim, 1)
        if alpha != 1:
            source = source * as_scalar(alpha, dtypes.from_numpy(source.dtype))
        table = table_of(xp, input, d, copy=True)
        reduce_at(xp, xp.add, table, index.reshape(-1), table_of(xp, source, d))
        return table_back(xp, table, input.shape, d)

    def body(k, input, dim, index, source, *, alpha=1):
        source = source * alpha
        return sent_along(k, "sum", source, index, input.shape, dim, input)

    def d_input(g): return g

    def d_source(g, dim, index, source_spec, alpha):
        g = g.index_select(dim, index).reshape(source_spec.shape)
        return g if alpha == 1 else g * (alpha.conjugate() if isinstance(alpha, complex) else alpha)


def sent_along(k, how, source, index, shape, dim, base=None, **options):
    """For a body: slices of `source` along `dim` sent to those of `base`, or of zeros of `shape`, that the vector
    `index` names; see `scattered`."""
    if 0 in shape:
        return NotImplemented
    size, count = sizes_around(shape, dim % max(len(shape), 1)), index.numel
    many, _, width = size
    source = k.reshape(source, (1, 1, 1) if source.numel == 1 else (many, count, width))
    return scattered(k, how, source, k.reshape(index, (1, count, 1)), size, shape, base, **options)


def slices(input, d, index, source, wrong=RuntimeError):
    """Refuse a source whose slices along `d` do not match those of `input`, one for each index."""
    count = source.shape[d] if source.ndim > d else 1
    need(not source.ndim or source.ndim == max(input.ndim, 1) or not input.ndim, "source tensor shape must "
         f"match self tensor shape, excluding the specified dimension. Got self.shape = {list(input.shape)} "
         f"source.shape = {list(source.shape)}", wrong)
    need(index.numel == count, f"Number of indices ({index.numel}) should be equal to source.size(dim): ({count}), for "
                               f"dim: {d}", wrong)
    mine = (*input.shape[:d], *input.shape[d + 1:])
    need(mine == (*source.shape[:d], *source.shape[d + 1:]) and (input.ndim or count == 1),
         "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
         f"{list(input.shape)} source.shape = {list(source.shape)}")


def rows_within(index, input, dim, error_class=IndexError, wrap=False):
    """Refuse positions that `input` (a Spec) does not have along `dim`."""
    d = shapes.wrap_dim(dim, input.ndim)
    within(index, input.shape[d] if input.ndim else 1, d, wrap, error_class)


class index_copy(Op):
    """`input` with its slices along `dim` at the positions in `index` replaced by those of `source`."""

    strict_out = True
    forms = "function method inplace out"
    no_overlap = "index source"
    exact = True
    overwrites = True
    by_bounds = "index"

    def meta(input, dim, index, source):
        d = vector_index(input, dim, index, source, allowed=INDEX_DTYPES[:1])
        need(source.ndim == input.ndim or not source.ndim or not input.ndim, "When source and destination "
             f"are not scalars, their dimensionality must match. Source dimensionality ({source.ndim}), "
             f"destination dimensionality ({input.ndim})", IndexError)
        if source.ndim or index.ndim:
            count = source.shape[d] if source.ndim else 1
            need(index.numel == count, f"Number of indices ({index.numel}) should be equal to source.size(dim) "
                                       f"({count})", IndexError)
        mine, theirs = [(*s[:d], *s[d + 1:]) for s in (input.shape, source.shape)]
        need(mine == theirs, "Source/destination tensor must have same slice shapes. Destination slice shape: "
                             f"{' '.join(map(str, mine))} at dimension {d} and source slice shape: "
                             f"{' '.join(map(str, theirs))} at dimension {d}.")
        return spec(input.dtype, input.shape, None, input.device)

    def verify(index, input_spec, dim): rows_within(index, input_spec, dim)

    def ref(xp, input, dim, index, source):
        d = dim % max(input.ndim, 1)
        out, at = slot(input, d, index)
        out[at] = source.reshape(source.shape or (1,))
        return out.reshape(input.shape)

    def bounds(input, source): return hull(input, source)

    def body(k, input, dim, index, source): return sent_along(k, "set", source, index, input.shape, dim, input)

    def d_input(g, dim, index):                return g.index_fill(dim, index, 0)
    def d_source(g, dim, index, source_spec):  return g.index_select(dim, index).reshape(source_spec.shape)


class index_fill(Composite):
    """`input` with its slices along `dim` at `index` filled with `value`, a number or zero-dimensional tensor."""

    forms = "function method inplace"
    overlap_ok = "deprecated"
    no_overlap = "index"

    def of(input, dim, index, value):
        return (_index_fill if isinstance(value, NUMBER_CLASSES) else _index_fill_tensor)(input, dim, index, value)


def fill_spec(input, dim, index):
    need(index.dtype is dtypes.int64, f"Expected dtype int64 for index, got {index.dtype.name}", IndexError)
    need(index.ndim <= 1, f"Index has to be a vector/scalar, got {index.ndim} dimensions")
    shapes.wrap_dim(dim, input.ndim)
    return input.like(strides=shapes.preserved_strides(input.shape, input.strides))


class _index_fill(Op):
    """`index_fill` with a number."""

    exact = True
    scalars = ("value",)
    overwrites = True
    by_bounds = "index"

    def meta(input, dim, index, value):
        tensor_given(index, "index", 3)
        need(value is not complex or input.dtype.is_complex, "Converting complex Scalar to non-complex type is not "
                                                             "supported")
        return fill_spec(input, dim, index)

    def verify(index, input_spec, dim, value):
        fitting(value, input_spec.dtype)
        rows_within(index, input_spec, dim, wrap=True)

    def ref(xp, input, dim, index, value):
        out, at = slot(input, dim % max(input.ndim, 1), index)
        out[at] = as_scalar(value, dtypes.from_numpy(input.dtype))
        return out.reshape(input.shape)

    def body(k, input, dim, index, value):
        return sent_along(k, "set", k.cast(value, input.dtype), index, input.shape, dim, input)

    def d_input(g, dim, index): return _index_fill(g, dim, index, 0)


class _index_fill_tensor(Op):
    """`index_fill` with a zero-dimensional tensor."""

    called = "index_fill"
    exact = True
    node = "IndexFillBackward1"
    overwrites = True

    def meta(input, dim, index, value):
        tensor_given(index, "index", 3)
        tensor_given(value, "value", 4)
        need(value.ndim == 0, "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
             f"{value.ndim} dimension(s).")
        need(not value.dtype.is_complex or input.dtype.is_complex,
             "Converting complex Scalar to non-complex type is not supported")
        return fill_spec(input, dim, index)

    def verify(index, input_spec, dim, value):
        fitting(value.item(), input_spec.dtype)
        rows_within(index, input_spec, dim, wrap=True)

    def ref(xp, input, dim, index, value):
        out, at = slot(input, dim % max(input.ndim, 1), index)
        out[at] = as_scalar(value.item(), dtypes.from_numpy(input.dtype))
        return out.reshape(input.shape)

    def body(k, input, dim, index, value):
        return sent_along(k, "set", converted(k, value, input.dtype), index, input.shape, dim, input)

    def d_input(g, dim, index): return _index_fill(g, dim, index, 0)

    def d_value(g, dim, index):
        filled = _index_fill(zeros(g, dtype=dtypes.bool), dim, index, True)     # once, however often it is named
        return g.masked_fill(~filled, 0).sum()


# --- by position in the flattened tensor --------------------------------------------------------------------


def need_flat_index(index):
    tensor_given(index, "index", 2)
    need(index.dtype is dtypes.int64, f"Expected a long tensor for index, but got {index.dtype.cname}")


def flat_index_within(index, input):
    words = f"out of range: tried to access index {{bad}} on a tensor of {input.numel} elements"
    within(index, input.numel, 0, words=words)


class take(Op):
    """The elements of `input`, seen as a vector, at the positions in `index`, in the shape of `index`."""

    forms = "function method out"
    strict_out = True
    out_no_overlap = True
    exact = True
    by_bounds = "index"

    def meta(input, index):
        need_flat_index(index)
        need(input.numel or not index.numel, "tried to take from an empty tensor", IndexError)
        return spec(input.dtype, index.shape, None, input.device)

    def verify(index, input_spec): flat_index_within(index, input_spec)
    def ref(xp, input, index): return input.reshape(-1)[index]
    def d_input(g, input_spec, index): return _put_add(zeros(g, input_spec.shape), index, g)
    def bounds(input): return input

    def body(k, input, index):
        return rows_at(k, k.reshape(input, (input.numel,)), 0, wrapped(k, index, input.numel))


class put(Composite):
    """`input` with `source` written (with `accumulate`: added) at the positions in `index`, counted in a vector."""

    forms = "function method inplace"
    no_overlap = "index source"

    def of(input, index, source, accumulate=False):
        return (_put_add if accumulate else _put)(input, index, source)


class _put(Op):
    """`put` that replaces."""

    exact = True
    overwrites = True
    by_bounds = "index"

    def meta(input, index, source):         return put_spec(input, index, source)
    def verify(index, input_spec):          flat_index_within(index, input_spec)

    def ref(xp, input, index, source):
        out = xp.ascontiguousarray(input).reshape(-1)
        out[index.reshape(-1)] = source.reshape(-1)
        return out.reshape(input.shape)

    def bounds(input, source): return hull(input, source)

    def body(k, input, index, source):      return put_at(k, "set", input, index, source)

    def d_input(g, index, source_spec):     return _put(g, index, zeros(g, source_spec.shape))
    def d_source(g, index, source_spec):    return g.take(index).reshape(source_spec.shape)


class _put_add(Op):
    """`put` with `accumulate`."""

    called = "put"
    exact = True
    node = "PutBackward0"
    by_bounds = "index"

    def meta(input, index, source):         return put_spec(input, index, source)
    def verify(index, input_spec):          flat_index_within(index, input_spec)

    def ref(xp, input, index, source):
        out = xp.array(input, order="C").reshape(-1)
        return add_at(xp, out, (index.reshape(-1),), source.reshape(-1)).reshape(input.shape)

    def body(k, input, index, source):      return put_at(k, "sum", input, index, source)

    def d_input(g):                         return g
    def d_source(g, index, source_spec):    return g.take(index).reshape(source_spec.shape)


def put_at(k, how, input, index, source):
    """For a body: the elements of `source` sent to positions in the flattened `input`."""
    source, base = widened(k, how, k.reshape(source, (1, source.numel, 1)), input)
    index = k.reshape(index, (1, index.numel, 1))
    return scattered(k, how, source, index, (1, input.numel, 1), input.shape, base)


def put_spec(input, index, source):
    """Check what `put` is given; the result's Spec."""
    need_flat_index(index)
    tensor_given(source, "source", 3)
    need(source.dtype is input.dtype, "self and source expected to have the same dtype, but got self.dtype = "
         f"{input.dtype.cname} and source.dtype = {source.dtype.cname}")
    need(source.numel == index.numel, "Expected source and index to have the same number of elements, but got "
                                      f"source.numel() = {source.numel}, index.numel() = {index.numel}", IndexError)
    need(input.numel or not index.numel, "tried to put elements into an empty tensor", IndexError)
    return input.like(strides=shapes.preserved_strides(input.shape, input.strides))


class take_along_dim(Composite):
    """The elements of `input` at `indices` along `dim`, the rest broadcast; without `dim`, of the flattened input."""

    forms = "function method out"
    strict_out = True

    def of(input, indices, dim=None):
        need(indices.dtype is dtypes.int64, f"dtype of indices should be Long but got {indices.dtype.cname}")
        if dim is None:
            input, indices, dim = input.view(-1), indices.view(-1), 0
        else:
            need(input.ndim == indices.ndim, "input and indices should have the same number of dimensions, "
                 f"but got {input.ndim} dimensions for input, and {indices.ndim} dimensions for indices")
            dim = shapes.wrap_dim(dim, input.ndim)
        if not input.ndim:
            return input.gather(0, indices)
        rest = [(*t._spec.shape[:dim], 1, *t._spec.shape[dim + 1:]) for t in (input, indices)]
        both = shapes.broadcast(*rest)
        size, count = input._spec.shape[dim], indices._spec.shape[dim]
        input = input.broadcast_to((*both[:dim], size, *both[dim + 1:]))
        indices = indices.broadcast_to((*both[:dim], count, *both[dim + 1:]))
        return input.gather(dim, indices.remainder(size) if size else indices)
