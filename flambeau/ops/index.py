"""Indexing by tensors: reading, writing and adding at the positions that other tensors say.

`index` and `index_put` are what `x[i, :, mask]` and its assignment come down to once the plain parts (numbers,
slices, None) have been taken as views. Positions are checked at the call (`verify`): one that is out of bounds
never runs.
"""

import numpy as np

from ..base import dtypes, shapes
from ..base.bounds import hull, outside
from ..base.errors import need, warn
from ..base.op import Composite, Op, door
from ..base.spec import CPU, Spec
from .create import _full

MASK_DTYPES = (dtypes.bool, dtypes.uint8)
INDEX_DTYPES = (dtypes.int64, dtypes.int32)
MASK_DTYPE_MESSAGE = "masked_fill_ only supports boolean masks, but got mask with dtype {dtype}"


# --- positions ----------------------------------------------------------------------------------------------


def within(index, size, dim, wrap=True, error_class=IndexError, words=None):
    """Refuse the first of the `index` array's values that is no position along `dim`, which has `size`."""
    low = -size if wrap else 0
    bad = outside(index, low, size - 1)
    if bad is not None:
        words = words or f"index {bad} is out of bounds for dimension {dim} with size {size}"
        takes = f"it takes {low} to {size - 1}" if size else "it has no positions at all"
        need(False, words.replace("{bad}", str(bad)) + f": {takes}", error_class)


def are_within(index, size, wrap=True):
    """Whether all of the `index` tensor's values are positions along a dimension of `size`."""
    return ((index >= (-size if wrap else 0)) & (index < size)).all()


def tensor_given(given, name, position):
    """Refuse what stands where a tensor should."""
    class_name = given.__name__ if given.__class__ is type else type(given).__name__
    need(given.__class__ is Spec, f"argument '{name}' (position {position}) must be Tensor, not {class_name}",
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


def one_mask(indices):
    """Whether a single boolean mask is all of `indices` but None."""
    given = [i for i in indices if i is not None]
    return len(given) == 1 and given[0].dtype == bool


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


def scattered(k, how, values, index, size, shape, base=None, fresh=False, skip=-1):
    """For a body: a table of `size` [O, N, I], given in its own `shape`, with `values` [O, C, I] sent to where `index`
    [O, C, I] says along N.

    Values and index may have 1 in place of any size. `how` is "set", and the last that goes to a place stays there, or
    "sum", "prod", "max" or "min". The table begins with the contents of `base`, or zeros; with `fresh`, what places
    that are named held does not count. What goes to place `skip` is left out. NotImplemented without a library.
    """
    index = index if index.dtype in INDEX_DTYPES else k.cast(index, dtypes.int64)
    given, outs = (values, index) if base is None else (values, index, base), [(values.dtype, tuple(shape))]
    made = k.library("scatter", given, outs, (how, fresh, 8 * index.dtype.itemsize, skip, size))
    if made is not None:
        return made[0]
    if how != "sum" or fresh:                              # a library that has sums of rows alone
        return NotImplemented
    (many, places, width), count = size, max(values.shape[1], index.shape[1])
    index, rows = wrapped(k, index, places), (1, places, width)
    if many > 1 or index.shape != (1, count, 1):
        index = (index + k.index(0, (many, 1, 1)) * places) * width + k.index(2, (1, 1, width))
        index, rows = k.reshape(k.expand(index, (many, count, width)), (1, many * count * width, 1)), \
            (1, many * places * width, 1)
        values = k.reshape(k.expand(values, (many, count, width)), (1, many * count * width, 1))
    made = k.library("scatter", (values, index), outs, ("sum", False, 64, skip, rows))
    if made is None:
        return NotImplemented
    return made[0] if base is None else base + made[0]


def sizes_around(shape, first, end=None):
    """(how many tables, rows, and columns) [O, N, I] there are where dimensions `first` to `end` say the row."""
    shape, end = shape or (1,), first + 1 if end is None else end
    return shapes.numel(shape[:first]), shapes.numel(shape[first:end]), shapes.numel(shape[end:])


def selection(k, input_shape, indices):
    """For a body: what integer `indices`, or None, into `input_shape` come down to: (sizes [O, N, I] of the input,
    positions [1, C, 1] along N, sizes [O, C, I] of what they select, the shape of that)."""
    given = [d for d, i in enumerate(indices) if i is not None]
    shape, start, block = landing(input_shape, [(i and i.shape, 1) for i in indices])
    count, first, end = shapes.numel(block), given[0], given[-1] + 1
    if len(given) == 1:
        at = indices[first]
    elif end - first == len(given):
        at = linear(k, [indices[d] for d in given], input_shape[first:end])
    else:                                                  # positions come first: every element has one of its own
        rest = [d for d in range(len(input_shape)) if d >= len(indices) or indices[d] is None]
        steps, at = shapes.contiguous_strides(input_shape), None
        for d in given:
            part = k.reshape(wrapped(k, indices[d], input_shape[d]) * steps[d],
                             (*indices[d].shape, *(1,) * len(rest)))
            at = part if at is None else at + part
        for number, d in enumerate(rest, len(block)):
            at = at + k.index(number, (*block, *(input_shape[e] for e in rest))) * steps[d]
        total = shapes.numel(shape)
        return (1, shapes.numel(input_shape), 1), k.reshape(k.expand(at, shape), (1, total, 1)), (1, total, 1), shape
    sizes = sizes_around(input_shape, first, end)
    return sizes, k.reshape(k.expand(at, block), (1, count, 1)), (sizes[0], count, sizes[2]), shape


def linear(k, indices, sizes):
    """For a body: positions in several dimensions as one in all of them."""
    at = None
    for i, n in zip(indices, sizes, strict=True):
        i = wrapped(k, i, n)
        at = i if at is None else at * n + i
    return at


def one_bool_mask(indices):
    """For a body: whether a single boolean mask is all of `indices` but None."""
    given = [i for i in indices if i is not None]
    return len(given) == 1 and given[0].dtype is dtypes.bool


def plain(indices):
    """Whether there are only positions, and no masks."""
    return all(i is None or i.dtype in INDEX_DTYPES for i in indices)


def half_widened(xp, array):
    """`array` in float32 if it is of a half type: sums are rounded once, at the end."""
    return array.astype(xp.float32) if array.dtype.itemsize == 2 and array.dtype.kind not in "iu" else array


# --- reading and writing ------------------------------------------------------------------------------------


class index(Op):
    """The elements of `input` at `indices`: for each dimension a tensor, or None for all of it, as in `x[i, :, j]`."""

    forms = "method"
    lists = True
    exact = True
    by_bounds = "indices"

    def meta(input, indices):
        parts = parts_of(input, indices)
        if any(i is not None and i.dtype in MASK_DTYPES for i, _ in parts):
            return None                                    # how many elements a mask picks is in its data
        shape, start, block = landing(input.shape, [(i and i.shape, width) for i, width in parts])
        if input.contiguous and all(i is None or i.contiguous for i in indices):
            return input.like(shape=shape)
        return input.like(shape=shape, strides=layout_of(shape, start, block, input.strides, indices))

    def verify(input_spec, indices):
        masks = any(i is not None and is_mask(i) for i in indices)
        if not masks and all(i is None or outside(i, -n, n - 1) is None for i, n in zip(indices, input_spec.shape)):
            return                                         # `meta` has seen to the rest
        if not one_mask(indices):                          # which is never wrong
            verify_positions(input_spec.shape, indices)

    def ref(xp, input, indices):
        if one_mask(indices) and indices[0] is not None and indices[0].ndim \
                and input.flags.c_contiguous and indices[0].flags.c_contiguous:
            return input[indices[0]]
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
    def bounds(input): return input

    def body(k, input, indices):
        given = [d for d, i in enumerate(indices) if i is not None]
        if not plain(indices):
            return NotImplemented
        if len(given) == 1:
            return rows_at(k, input, given[0], wrapped(k, indices[given[0]], input.shape[given[0]]))
        size, at, _, shape = selection(k, input.shape, indices)
        return k.reshape(k.gather(k.reshape(input, size), 1, at), shape)


def sent(k, how, shape, indices, values, base=None):
    """For a body: `values` sent to the places of `base`, or of zeros of `shape`, that integer `indices` name."""
    if one_bool_mask(indices):
        return spread_over(k, how, shape, indices, values, base)
    if not plain(indices) or 0 in shape:
        return NotImplemented
    size, at, sizes, selected = selection(k, shape, indices)
    values = k.reshape(k.expand(values, selected), sizes)
    values, base = widened(k, how, values, base)
    return scattered(k, how, values, at, size, shape, base)


def widened(k, how, values, base):
    """For a body: what is added up of 16 bits in float32, so that it is rounded once, at the end."""
    if how == "set" or not values.dtype.is_floating_point or values.dtype.itemsize > 2:
        return values, base
    return [None if x is None else k.cast(x, dtypes.float32) for x in (values, base)]


def spread_over(k, how, shape, indices, values, base):
    """For a body: `values` sent to where a mask holds in `base`, or in zeros of `shape`; NotImplemented without a
    library, unless they are the same wherever it holds."""
    first = next(d for d, i in enumerate(indices) if i is not None)
    rest = shape[first + indices[first].ndim:]
    mask = k.reshape(indices[first], (*(1,) * first, *indices[first].shape, *(1,) * len(rest)))
    values, base = widened(k, how, values, base)
    begun = k.cast(k.const(0, dtypes.int64), values.dtype) if base is None or how == "sum" else base
    if values.numel == 1 or values.ndim <= len(rest) or values.ndim == 1 + len(rest) and values.shape[0] == 1:
        made = k.reshape(values, () if values.numel == 1 else values.shape[values.ndim - len(rest):])
        made = k.cast(made, begun.dtype)
    elif first or not indices[0].ndim or values.shape[1:] != tuple(rest):
        return NotImplemented
    else:
        made = k.library("spread", (k.reshape(values, (values.numel,)), k.expand(mask, shape), k.expand(begun, shape)),
                         [(values.dtype, tuple(shape))], ())
        if made is None:
            return NotImplemented
        made = made[0]
        if base is None or how == "set":
            return made
    return k.where(mask, made if base is None or how == "set" else base + made, begun if base is None else base)


class _index_backward(Op):
    """Zeros of `size` with `input` added at `indices`."""

    lists = True
    exact = True
    node = "IndexBackwardBackward0"

    def meta(input, size, indices): return input.like(shape=size)
    def ref(xp, input, size, indices): return add_at(xp, xp.zeros(size, input.dtype), indices, input)

    def body(k, input, size, indices):
        return sent(k, "sum", size, indices, input)

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
    by_bounds = "indices"
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
        if not one_mask(indices) or values_spec.numel != 1 or values_spec.ndim:
            lands(values_spec, verify_positions(input_spec.shape, indices))

    def ref(xp, input, indices, values):
        if 0 not in landing(input.shape, positions_of(indices))[0]:
            real = values.dtype.kind == "c" and input.dtype.kind != "c"
            input[keys(indices)] = values.real if real else values
        return input

    def bounds(input, values): return hull(input, values)

    def body(k, input, indices, values):
        return sent(k, "set", input.shape, indices, values, input)

    def d_input(g, indices, values_spec): return _index_put(g, indices, zeros(g, values_spec.shape))
    def d_values(g, indices):             return index(g, indices)


class _index_put_add(Op):
    """`index_put` with `accumulate`."""

    called = "index_put"
    lists = True
    exact = True
    by_bounds = "indices"
    node = "IndexPutBackward0"

    def meta(input, indices, values):
        put_given(input, indices, values)
        put_dtypes(input, values)
        return input.like(strides=shapes.preserved_strides(input.shape, input.strides))

    def verify(input_spec, indices, values_spec):
        lands(values_spec, verify_positions(input_spec.shape, indices))

    def ref(xp, input, indices, values):  return add_at(xp, input.copy(order="K"), indices, values)
    def body(k, input, indices, values):  return sent(k, "sum", input.shape, indices, values, input)
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
