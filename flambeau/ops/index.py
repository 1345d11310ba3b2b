"""Indexing by tensors: reading, writing and adding at the positions that other tensors say.

`index` and `index_put` are what `x[i, :, mask]` and its assignment come down to once the plain parts (numbers,
slices, None) have been taken as views. Positions are checked at the call (`verify`): one that is out of bounds
never runs.
"""

import numpy as np

from ..base import dtypes, shapes
from ..base.arguments import as_scalar, fitting
from ..base.errors import need, warn
from ..base.op import NUMBER_CLASSES, Composite, Op, door
from ..base.spec import CPU, Spec, spec
from .create import _full

MASK_DTYPES = (dtypes.bool, dtypes.uint8)
INDEX_DTYPES = (dtypes.int64, dtypes.int32)
FEW_ELEMENTS = 32
MASK_DTYPE_MESSAGE = "masked_fill_ only supports boolean masks, but got mask with dtype {dtype}"


# --- positions ----------------------------------------------------------------------------------------------


def within(index, size, dim, wrap=True, error_class=IndexError, words=None):
    """Refuse the first of the `index` array's values that is no position along `dim`, which has `size`."""
    low = -size if wrap else 0
    if 0 < index.size <= FEW_ELEMENTS:                    # Python is done before NumPy has begun
        values = index.reshape(-1).tolist()
        inside = low <= min(values) and max(values) < size
    else:
        inside = not index.size or low <= index.min() and index.max() < size
    if not inside:
        bad = index[(index < low) | (index >= size)][0]
        words = words or f"index {bad} is out of bounds for dimension {dim} with size {size}"
        takes = f"it takes {low} to {size - 1}" if size else "it has no positions at all"
        need(False, words.replace("{bad}", str(bad)) + f": {takes}", error_class)


def are_within(index, size, wrap=True):
    """Whether all of the `index` tensor's values are positions along a dimension of `size`."""
    return ((index >= (-size if wrap else 0)) & (index < size)).all()


def tensor_given(given, name, position):
    """Refuse what stands where a tensor should."""
    kind = given.__name__ if given.__class__ is type else type(given).__name__
    need(given.__class__ is Spec, f"argument '{name}' (position {position}) must be Tensor, not {kind}",
         TypeError)


def zeros(like, shape=None, dtype=None):
    """Zeros where the tensor `like` is, of its dtype, contiguous."""
    return _full(like._spec.shape if shape is None else shape, 0, dtype or like.dtype, like.device)


def parts_of(input, indices):
    """Check what of `indices` needs no data; (Spec or None, dimensions it stands for) of each."""
    parts, at = [], 0
    for nth, i in enumerate(indices):
        if i is None:
            parts.append((None, 1))
        else:
            need(i.dtype in INDEX_DTYPES or i.dtype in MASK_DTYPES,
                 "tensors used as indices must be long, int, byte or bool "
                 f"tensors, got {i.dtype.name} at index {nth}", IndexError)
            parts.append((i, i.ndim if i.dtype in MASK_DTYPES else 1))
        at += parts[-1][1]
    need(at <= input.ndim, f"too many indices for tensor of dimension {input.ndim} (got {at})", IndexError)
    at = 0
    for i, width in parts:
        if i is not None and i.dtype in MASK_DTYPES:
            for d, size in enumerate(i.shape):
                need(size == input.shape[at + d], f"The shape of the mask {list(i.shape)} at index {d} does not match "
                                                  f"the shape of the indexed tensor {list(input.shape)} at index "
                                                  f"{at + d}", IndexError)
        at += width
    return parts


def landing(shape, parts):
    """(result shape, where in it the index positions start, their shape), from pairs (index shape or None, width)."""
    given, rest, at, first = [], [], 0, None
    blocks = []                                            # which runs of dimensions are indexed
    for positions, width in parts:
        if positions is None:
            rest.append(shape[at])
        else:
            if not blocks or blocks[-1] != at:
                first = len(rest) if first is None else first
                blocks.append(at)
            blocks[-1] = at + width
            given.append(positions)
        at += width
    rest += shape[at:]
    try:
        together = shapes.broadcast(*given)
    except RuntimeError:
        need(False, "shape mismatch: indexing tensors could not be broadcast together with shapes "
             + ", ".join(str(list(g)) for g in given), IndexError)
    start = first if len(blocks) == 1 else 0               # with a gap between them, positions go to the front
    return (*rest[:start], *together, *rest[start:]), start, together


def layout_of(shape, start, block, strides, indices):
    """The strides of a result that has `shape`, as `landing` gives it: from the strides of the input, and indices.

    PyTorch lays it out as its iterator walks: the input stands still along the indexed dimensions.
    """
    stay = [s for d, s in enumerate(strides) if d >= len(indices) or indices[d] is None]
    looks = [(shape, (*stay[:start], *(0,) * len(block), *stay[start:]))]
    for i in indices:
        if i is not None:
            steps = shapes.expand_strides(i.shape, i.strides, block)
            looks.append((shape, (*(0,) * start, *steps, *(0,) * (len(shape) - start - len(block)))))
    return shapes.elementwise_strides(shape, looks)


def is_mask(array):
    return array.dtype.kind in "bu" and array.dtype.itemsize == 1


def positions_of(indices):
    """For `landing`, from arrays: an index's own shape; of a mask, how many elements are true."""
    parts = []
    for i in indices:
        if i is None:
            parts.append((None, 1))
        elif is_mask(i):
            parts.append(((int(np.count_nonzero(i)),), i.ndim))
        else:
            parts.append((i.shape, 1))
    return parts


def verify_positions(shape, indices):
    """Check the data of `indices` against `shape`; the shape they select. Where nothing is, nothing is wrong."""
    parts, at = positions_of(indices), 0
    selected, _, block = landing(shape, parts)
    for i, (_, width) in zip(indices, parts, strict=True):
        if i is not None and not is_mask(i) and 0 not in (block if not shape[at] else selected):
            within(i, shape[at], at, words=None if shape[at] else "index is out of bounds for dimension with size 0")
        if i is not None and i.dtype == "u1":
            warn("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.")
        at += width
    return selected


def keys(indices):
    """The subscript for NumPy: None stands for all of a dimension, bytes are masks."""
    return tuple([slice(None) if i is None else i != 0 if i.dtype == "u1" else i for i in indices])


# --- positions in a kernel ----------------------------------------------------------------------------------


def wrapped(k, index, size):
    """For a body: positions of a dimension of `size`, those below zero counted from its end."""
    index = k.cast(index, dtypes.int64)
    return k.where(index < 0, index + size, index)


def rows_at(k, x, dim, index):
    """For a body: the slices of `x` along `dim` at the elements of `index`, whose dimensions stand in its place."""
    flat = k.reshape(index, (*[1] * dim, index.numel, *[1] * (x.ndim - dim - 1)))
    return k.reshape(k.gather(x, dim, flat), (*x.shape[:dim], *index.shape, *x.shape[dim + 1:]))


def matched(x, dim, index):
    """Whether an `index` along `dim` has an element for each place of `x` in the other dimensions."""
    return x.ndim and x.ndim == index.ndim and all(
        n == m for d, (n, m) in enumerate(zip(x.shape, index.shape, strict=True)) if d != dim % x.ndim)


def picked_along(k, x, dim, index):
    """For a body: the element of `x` that each element of `index` points to along `dim`."""
    return k.gather(x, dim, k.cast(index, dtypes.int64)) if matched(x, dim, index) else NotImplemented


# --- adding at positions ------------------------------------------------------------------------------------


def reduce_at(xp, way, table, rows, values):
    """Fold row i of `values` into row `rows[i]` of `table`, one after the other; `way` is xp.add, xp.maximum, …

    Several values for one row all count. One-dimensional `way.at` is NumPy's fast path, so rows are opened into
    elements, a block at a time.
    """
    width = table.shape[1]
    flat, rows = table.reshape(-1), rows.astype(xp.int64, copy=False)
    if width == 1:
        way.at(flat, rows, xp.ascontiguousarray(values.reshape(-1)))
        return
    columns, block = xp.arange(width), max(1, (1 << 16) // max(width, 1))
    for start in range(0, len(rows), block):
        at = rows[start:start + block, None] * width + columns
        way.at(flat, at.reshape(-1), xp.ascontiguousarray(values[start:start + block]).reshape(-1))


def add_at(xp, out, indices, values):
    """`out` with `values` added at `indices` (arrays and None, as in `index`); positions met twice get both."""
    opened = []                                            # one integer array or None per dimension
    for i in indices:
        if i is None or not is_mask(i):
            opened.append(i)
        elif i.ndim:
            opened += xp.nonzero(i)
        elif not i:                                        # a mask without dimensions takes all or nothing
            return out
    taken = [d for d, i in enumerate(opened) if i is not None]
    if not taken:
        return (out[None] + values)[0]
    rest = [d for d in range(out.ndim) if d not in taken]
    shape, start, block = landing(out.shape, [(None if i is None else i.shape, 1) for i in opened])
    if 0 in shape:
        return out
    values = xp.moveaxis(xp.broadcast_to(values, shape), range(start, start + len(block)), range(len(block)))
    rows = xp.zeros(block, xp.int64)
    for d in taken:
        rows = rows * out.shape[d] + xp.where(opened[d] < 0, opened[d] + out.shape[d], opened[d])
    turned = out.transpose(taken + rest)
    sizes = turned.shape
    width = shapes.numel(sizes[len(taken):])
    table = xp.ascontiguousarray(turned).reshape(shapes.numel(sizes[:len(taken)]), width)
    wide = half_widened(xp, table)
    values = values.reshape(rows.size, width).astype(wide.dtype, copy=False)
    reduce_at(xp, xp.add, wide, rows.reshape(-1), values)
    back = sorted(range(out.ndim), key=(taken + rest).__getitem__)
    return wide.reshape(sizes).transpose(back)


def summed_rows(k, input, d, block, at, size):
    """For a body: zeros of `size` with the slices of `input`, which `block` dimensions from `d` on number, added along
    `d` at the positions `at`; NotImplemented without a library."""
    if 0 in size or not input.numel:
        return NotImplemented
    count, rest = shapes.numel(at.shape), (*size[:d], *size[d + 1:])
    width = shapes.numel(rest)
    front = [*range(d, d + block), *range(d), *range(d + block, input.ndim)]
    x = input if not d else k.permute(input, front)
    made = k.library("sum_rows", (k.reshape(x, (count, width)), k.reshape(at, (count,))),
                     [(input.dtype, (size[d], width))], ())
    if made is None:
        return NotImplemented
    table = k.reshape(made[0], (size[d], *rest))
    return table if not d else k.permute(table, [*range(1, d + 1), 0, *range(d + 1, len(size))])


def half_widened(xp, array):
    """`array` in float32 if it is of a half type: sums are rounded once, at the end."""
    return array.astype(xp.float32) if array.dtype.itemsize == 2 and array.dtype.kind not in "iu" else array


# --- reading and writing ------------------------------------------------------------------------------------


class index(Op):
    """The elements of `input` at `indices`: for each dimension a tensor, or None for all of it, as in `x[i, :, j]`."""

    forms = "method"
    lists = True
    exact = True

    def meta(input, indices):
        parts = parts_of(input, indices)
        if any(i is not None and i.dtype in MASK_DTYPES for i, _ in parts):
            return None                                    # how many elements a mask picks is in its data
        shape, start, block = landing(input.shape, [(i and i.shape, width) for i, width in parts])
        if input.contiguous and all(i is None or i.contiguous for i in indices):
            return input.like(shape=shape)
        return input.like(shape=shape, strides=layout_of(shape, start, block, input.strides, indices))

    def verify(input_spec, indices):
        verify_positions(input_spec.shape, indices)

    def ref(xp, input, indices):
        shape, start, block = landing(input.shape, positions_of(indices))
        if 0 in shape:
            return xp.empty(shape, input.dtype)
        found = input[keys(indices)]
        if not any(i is not None and is_mask(i) for i in indices):
            return found                                       # `meta` has said how it is laid out
        opened = []                                            # a mask is positions in each of its dimensions
        for i in indices:
            opened += [i] if i is None or not is_mask(i) else xp.nonzero(i)
        if len(opened) != input.ndim and all(i is None for i in opened):
            return found                                       # masks without dimensions
        strides = [step // input.itemsize for step in input.strides]
        strides = layout_of(shape, start, block, strides, opened)
        order = sorted(range(len(shape)), key=lambda d: -strides[d])
        return xp.ascontiguousarray(found.transpose(order)).transpose([order.index(d) for d in range(len(shape))])

    def d_input(g, input_spec, indices): return _index_backward(g, input_spec.shape, indices)

    def body(k, input, indices):
        given = [d for d, i in enumerate(indices) if i is not None]
        if len(given) != 1 or indices[given[0]].dtype in MASK_DTYPES:
            return NotImplemented
        return rows_at(k, input, given[0], wrapped(k, indices[given[0]], input.shape[given[0]]))


class _index_backward(Op):
    """Zeros of `size` with `input` added at `indices`."""

    lists = True
    exact = True
    node = "IndexBackwardBackward0"

    def meta(input, size, indices): return input.like(shape=size)
    def ref(xp, input, size, indices): return add_at(xp, xp.zeros(size, input.dtype), indices, input)

    def body(k, input, size, indices):
        given = [d for d, i in enumerate(indices) if i is not None]
        if len(given) != 1 or indices[given[0]].dtype in MASK_DTYPES:
            return NotImplemented
        d, at = given[0], indices[given[0]]
        return summed_rows(k, input, d, at.ndim, wrapped(k, at, size[d]), size)

    def d_input(g, indices): return index(g, indices)


class index_put(Composite):
    """`input` with `values` written at `indices`; with `accumulate` added there, repeated positions several times.

    >>> torch.zeros(4).index_put((torch.tensor([1, 1, 3]),), torch.tensor([1., 2., 5.]), accumulate=True)
    tensor([0., 3., 0., 5.])
    """

    forms = "function method inplace"

    def overlap_ok(input, indices=(), values=None, accumulate=False):
        return not accumulate and "deprecated"             # of two sums into one cell one would be lost

    def no_overlap(input, indices, values, accumulate=False):
        fill = not accumulate and values.numel() == 1 and any(i is not None and i.dtype in MASK_DTYPES for i in indices)
        return "indices" if fill else "indices values"     # one number at a mask is read before anything is written

    def of(input, indices, values, accumulate=False):
        need(isinstance(indices, (tuple, list)), "argument 'indices' (position 2) must be tuple of Tensors, not "
                                                 f"{type(indices).__name__}", TypeError)
        for nth, i in enumerate(indices):
            need(i is None or isinstance(i, door.tensor), f"expected Tensor as element {nth} in argument 1, but got "
                                                          f"{type(i).__name__}", TypeError)
        if input._spec.device is not CPU:                   # positions may come from the CPU
            indices = [i if i is None or i._spec.device is not CPU else i.to(input._spec.device) for i in indices]
        return (_index_put_add if accumulate else _index_put)(input, indices, values)


class _index_put(Op):
    """`index_put` that replaces."""

    lists = True
    exact = True
    overwrites = True

    def meta(input, indices, values):
        given = put_given(input, indices, values)
        if values.numel == 1 and len(given) == 1 and given[0].dtype in MASK_DTYPES:
            # PyTorch takes one number at one mask for masked_fill, which converts the number
            need(given[0].dtype is dtypes.bool, MASK_DTYPE_MESSAGE.replace("{dtype}", "unsigned char"))
        else:
            put_dtypes(input, values)
        return input.like(strides=shapes.preserved_strides(input.shape, input.strides))

    def verify(input_spec, indices, values_spec):
        lands(values_spec, verify_positions(input_spec.shape, indices))

    def ref(xp, input, indices, values):
        if 0 not in landing(input.shape, positions_of(indices))[0]:
            real = values.dtype.kind == "c" and input.dtype.kind != "c"
            input[keys(indices)] = values.real if real else values
        return input

    def d_input(g, indices, values_spec): return _index_put(g, indices, zeros(g, values_spec.shape))
    def d_values(g, indices):             return index(g, indices)


class _index_put_add(Op):
    """`index_put` with `accumulate`."""

    called = "index_put"
    lists = True
    exact = True
    node = "IndexPutBackward0"

    def meta(input, indices, values):
        put_given(input, indices, values)
        put_dtypes(input, values)
        return input.like(strides=shapes.preserved_strides(input.shape, input.strides))

    def verify(input_spec, indices, values_spec):
        lands(values_spec, verify_positions(input_spec.shape, indices))

    def ref(xp, input, indices, values):  return add_at(xp, input.copy(order="K"), indices, values)
    def d_input(g):                       return g
    def d_values(g, indices):             return index(g, indices)


def put_given(input, indices, values):
    """Check all of a write's arguments but their data; the index tensors."""
    need(any(indices), "at least one of the indices must be a tensor")
    tensor_given(values, "values", 3)
    parts = parts_of(input, indices)
    given = [i for i in indices if i is not None]
    if not any(i.dtype in MASK_DTYPES for i in given):
        lands(values, landing(input.shape, [(i and i.shape, width) for i, width in parts])[0])
    return given


def put_dtypes(input, values):
    need(values.dtype is input.dtype, "Index put requires the source and destination dtypes match, got "
         f"{input.dtype.cname} for the destination and {values.dtype.cname} for the source.")


def lands(values, shape):
    """Refuse values that do not broadcast to the shape that the indices select."""
    fits = values.ndim <= len(shape) and all(v in (1, s) for v, s in zip(values.shape[::-1], shape[::-1]))
    need(fits, f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of "
               f"shape {list(shape)}")


# --- along one dimension ------------------------------------------------------------------------------------


def vector_index(input, dim, index, source=None, kinds=INDEX_DTYPES, wrong=RuntimeError):
    """Check the vector `index` for dimension `dim`, and the dtype of `source`; the wrapped `dim`."""
    tensor_given(index, "index", 3)
    d = shapes.wrap_dim(dim, input.ndim)
    need(index.dtype in kinds, f"Expected dtype {' or '.join(k.name for k in reversed(kinds))} for index, got "
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
        return summed_rows(k, input, dim % len(size), 1, k.cast(index, dtypes.int64), size) if size else NotImplemented

    def d_input(g, dim, index): return g.index_select(dim, index)


class index_add(Op):
    """`input` with the slices of `alpha * source` along `dim` added at the positions in `index`, repeated or not."""

    strict_out = True
    forms = "function method inplace out"
    no_overlap = "index source"
    scalars = ("alpha",)

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
        if not input.ndim or dim % input.ndim or not input.dtype.is_floating_point or input.ndim != source.ndim:
            return NotImplemented
        width = max(input.numel // max(input.shape[0], 1), 1)
        at = k.reshape(k.cast(index, dtypes.int64), (index.numel,))
        made = k.library("add_rows", (k.reshape(source * alpha, (index.numel, width)), at),
                         [(input.dtype, (input.shape[0], width))], (-1,))
        return NotImplemented if made is None else input + k.reshape(made[0], input.shape)

    def d_input(g): return g

    def d_source(g, dim, index, source_spec, alpha):
        g = g.index_select(dim, index).reshape(source_spec.shape)
        return g if alpha == 1 else g * (alpha.conjugate() if isinstance(alpha, complex) else alpha)


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

    def meta(input, dim, index, source):
        d = vector_index(input, dim, index, source, kinds=INDEX_DTYPES[:1])
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

    def d_input(g, dim, index): return _index_fill(g, dim, index, 0)

    def d_value(g, dim, index):
        filled = _index_fill(zeros(g, dtype=dtypes.bool), dim, index, True)     # once, however often it is named
        return g.masked_fill(~filled, 0).sum()


# --- by place in the flattened tensor -----------------------------------------------------------------------


def place_index(index):
    tensor_given(index, "index", 2)
    need(index.dtype is dtypes.int64, f"Expected a long tensor for index, but got {index.dtype.cname}")


def places_within(index, input):
    words = f"out of range: tried to access index {{bad}} on a tensor of {input.numel} elements"
    within(index, input.numel, 0, words=words)


class take(Op):
    """The elements of `input`, seen as a vector, at the places in `index`, in the shape of `index`."""

    forms = "function method out"
    strict_out = True
    out_no_overlap = True
    exact = True

    def meta(input, index):
        place_index(index)
        need(input.numel or not index.numel, "tried to take from an empty tensor", IndexError)
        return spec(input.dtype, index.shape, None, input.device)

    def verify(index, input_spec): places_within(index, input_spec)
    def ref(xp, input, index): return input.reshape(-1)[index]
    def d_input(g, input_spec, index): return _put_add(zeros(g, input_spec.shape), index, g)

    def body(k, input, index):
        return rows_at(k, input, 0, wrapped(k, index, input.numel)) if input.ndim == 1 else NotImplemented


class put(Composite):
    """`input` with `source` written (with `accumulate`: added) at the places in `index`, counted in a vector."""

    forms = "function method inplace"
    no_overlap = "index source"

    def of(input, index, source, accumulate=False):
        return (_put_add if accumulate else _put)(input, index, source)


class _put(Op):
    """`put` that replaces."""

    exact = True
    overwrites = True

    def meta(input, index, source):         return put_spec(input, index, source)
    def verify(index, input_spec):          places_within(index, input_spec)

    def ref(xp, input, index, source):
        out = xp.ascontiguousarray(input).reshape(-1)
        out[index.reshape(-1)] = source.reshape(-1)
        return out.reshape(input.shape)

    def d_input(g, index, source_spec):     return _put(g, index, zeros(g, source_spec.shape))
    def d_source(g, index, source_spec):    return g.take(index).reshape(source_spec.shape)


class _put_add(Op):
    """`put` with `accumulate`."""

    called = "put"
    exact = True
    node = "PutBackward0"

    def meta(input, index, source):         return put_spec(input, index, source)
    def verify(index, input_spec):          places_within(index, input_spec)

    def ref(xp, input, index, source):
        out = xp.array(input, order="C").reshape(-1)
        return add_at(xp, out, (index.reshape(-1),), source.reshape(-1)).reshape(input.shape)

    def d_input(g):                         return g
    def d_source(g, index, source_spec):    return g.take(index).reshape(source_spec.shape)


def put_spec(input, index, source):
    """Check what `put` is given; the result's Spec."""
    place_index(index)
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
