"""A tensor cut into several, and several joined into one: side by side, stacked, in blocks, on a grid."""
import itertools
from operator import index as as_int

from ..base import dtypes, shapes
from ..base.bounds import hull
from ..base.errors import argument_error, need
from ..base.op import Composite, Op, View, door
from ..base.spec import Size, Spec, default_device, spec
from .convert import zeros
from .create import _full
from .ranges import arange
from .shape import atleast_1d, atleast_2d, atleast_3d, flatten
from .slices import _slice
from .view import _expand, _reshape, _view, ints

# --- several parts ------------------------------------------------------------------------------------------


def pieces(input, sizes, d):
    """The geometries of consecutive parts of `sizes` along dimension `d`."""
    made, start = [], 0
    for n in sizes:
        made.append(((*input.shape[:d], n, *input.shape[d + 1:]), input.strides, start * input.strides[d]))
        start += n
    return made


def joined(g, input_spec, sizes, dim):
    """The gradients of consecutive parts put together again; zeros for those that have none."""
    d = shapes.wrap_dim(dim, input_spec.ndim)
    shape = input_spec.shape
    g = g if isinstance(g, (tuple, list)) else (g,)
    some = next(part for part in g if part is not None)
    return cat([part if part is not None else zeros(some, (*shape[:d], n, *shape[d + 1:]))
                for part, n in zip(g, sizes, strict=True)], d)


class split(Composite):
    """`tensor` cut along `dim` into parts of one size (the last may be smaller), or of several sizes."""

    def of(tensor, split_size_or_sections=None, dim=0, *, split_size=None):
        given = split_size_or_sections if split_size is None else split_size
        if isinstance(given, (tuple, list)):
            return _split_with_sizes(tensor, ints((given,), "split_sizes"), dim)
        if isinstance(given, door.tensor) or hasattr(given, "__index__"):
            return _split(tensor, as_int(given), dim)
        raise TypeError(f"split(): argument 'split_size' must be int or a list of ints, not {type(given).__name__}")


def equal_sizes(size, part):
    """The sizes that cutting `size` into parts of `part` gives."""
    return [min(part, size - start) for start in range(0, size, part)] if part and size else [size]


class _split(View):
    """`input` in parts of `split_size` along `dim`."""

    def view(input, split_size, dim):
        need(input.ndim, "split expects at least a 1-dimensional tensor")
        need(split_size >= 0, f"split expects split_size be non-negative, but got split_size={split_size}")
        d = shapes.wrap_dim(dim, input.ndim)
        need(split_size > 0 or input.shape[d] == 0, "split_size can only be 0 if dimension size is 0, but got "
                                                    f"dimension size of {input.shape[d]}")
        return pieces(input, equal_sizes(input.shape[d], split_size), d)

    def d_input(g, input_spec, split_size, dim):
        return joined(g, input_spec, equal_sizes(input_spec.shape[dim], split_size), dim)


class split_with_sizes(Composite):
    """`input` cut along `dim` into parts of the sizes `split_sizes`."""

    def of(input, split_sizes, dim=0):
        return _split_with_sizes(input, ints((split_sizes,), "split_sizes"), dim)


class _split_with_sizes(View):
    """`input` in parts of `split_sizes` along `dim`."""

    def view(input, split_sizes, dim):
        need(input.ndim, "split_with_sizes expects at least a 1-dimensional tensor")
        d = shapes.wrap_dim(dim, input.ndim)
        need(all(n >= 0 for n in split_sizes), "split_with_sizes expects split_sizes have only non-negative entries, "
                                               f"but got split_sizes={list(split_sizes)}")
        need(sum(split_sizes) == input.shape[d], "split_with_sizes expects split_sizes to sum exactly to "
                                                 f"{input.shape[d]} (input tensor's size at dimension {dim}), but got "
                                                 f"split_sizes={list(split_sizes)}")
        return pieces(input, split_sizes, d)

    def d_input(g, input_spec, split_sizes, dim): return joined(g, input_spec, split_sizes, dim)


class chunk(Composite):
    """`input` cut along `dim` into at most `chunks` parts of equal size, the last of which may be smaller."""

    def of(input, chunks, dim=0):
        need(input.ndim, "chunk expects at least a 1-dimensional tensor")
        if chunks <= 0:
            need(False, f"chunk expects `chunks` to be greater than 0, got: {chunks}")
        size = input._spec.shape[shapes.wrap_dim(dim, input.ndim)]
        part = (size + chunks - 1) // chunks
        if part == 0 and size == 0:                    # that number of parts is due, though all are empty
            return _split_with_sizes(input, (0,) * chunks, dim)
        return _split(input, part, dim)


class tensor_split(Composite):
    """`input` cut along `dim` into that many parts, or at those indices; parts may be empty."""

    def of(input, indices_or_sections=None, dim=0, *, sections=None, indices=None):
        given = next(x for x in (indices_or_sections, sections, indices) if x is not None)
        need(input.ndim, "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
        d = shapes.wrap_dim(dim, input.ndim)
        size = input._spec.shape[d]
        if isinstance(given, door.tensor):
            need(given.device.type == "cpu", "tensor_split expected tensor_indices_or_sections to be on cpu, but it's "
                                             f"on {given.device}")
            need(given.dtype is dtypes.int64, "tensor_split expected tensor_indices_or_sections to have dtype of long, "
                                              f"but got {given.dtype.cname}")
            need(given.ndim in (0, 1), "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or "
                                       f"one-dimensional tensor, but got a tensor with {given.ndim} dims")
            given = given.tolist()
        if isinstance(given, (tuple, list)):
            cuts = list(ints((given,), "indices"))
        else:
            sections = as_int(given)
            need(sections > 0, f"number of sections must be larger than 0, got {sections}")
            small, more = divmod(size, sections)
            cuts = [k * small + min(k, more) for k in range(1, sections)]
        return tuple([_slice(input, d, start, end, 1) for start, end in itertools.pairwise([0, *cuts, size])])


def numpy_split(input, given, d, name):
    if isinstance(given, (tuple, list)):
        return tensor_split(input, given, d)
    sections, size = as_int(given), input._spec.shape[d]
    need(sections and size % sections == 0, f"torch.{name} attempted to split along dimension {d}, but the size of the "
                                            f"dimension {size} is not divisible by the split_size {sections}!")
    return tensor_split(input, sections, d)


class hsplit(Composite):
    """`input` cut along its second dimension (its first if it has one) into equal parts, or at indices."""

    def of(input, indices_or_sections=None, *, sections=None, indices=None):
        given = next(x for x in (indices_or_sections, sections, indices) if x is not None)
        need(input.ndim >= 1, "torch.hsplit requires a tensor with at least 1 dimension, but got a tensor with 0 "
             "dimensions!")
        return numpy_split(input, given, 0 if input.ndim == 1 else 1, "hsplit")


class vsplit(Composite):
    """`input` cut along its first dimension into equal parts, or at indices."""

    def of(input, indices_or_sections=None, *, sections=None, indices=None):
        given = next(x for x in (indices_or_sections, sections, indices) if x is not None)
        need(input.ndim >= 2, "torch.vsplit requires a tensor with at least 2 dimension, but got a tensor with "
                              f"{input.ndim} dimensions!")
        return numpy_split(input, given, 0, "vsplit")


class dsplit(Composite):
    """`input` cut along its third dimension into equal parts, or at indices."""

    def of(input, indices_or_sections=None, *, sections=None, indices=None):
        given = next(x for x in (indices_or_sections, sections, indices) if x is not None)
        need(input.ndim >= 3, "torch.dsplit requires a tensor with at least 3 dimension, but got a tensor with "
                              f"{input.ndim} dimensions!")
        return numpy_split(input, given, 2, "dsplit")


class unbind(View):
    """All parts of `input` along `dim`, without that dimension."""

    def view(input, dim=0):
        need(input.ndim, f"Dimension specified as {dim} but tensor has no dimensions", IndexError)
        d = shapes.wrap_dim(dim, input.ndim)
        size, strides = (*input.shape[:d], *input.shape[d + 1:]), (*input.strides[:d], *input.strides[d + 1:])
        return [(size, strides, k * input.strides[d]) for k in range(input.shape[d])]

    def d_input(g, dim):
        g = g if isinstance(g, (tuple, list)) else (g,)
        some = next(part for part in g if part is not None)
        return stack([part if part is not None else zeros(some, some._spec.shape) for part in g], dim)


class broadcast_tensors(Composite):
    """`tensors` expanded to their common shape."""

    forms = "function"

    def of(*tensors):
        if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
            tensors = tensors[0]
        shape = shapes.broadcast(*[x._spec.shape for x in tensors]) if tensors else ()
        return tuple([x if x._spec.shape == shape else _expand(x, shape) for x in tensors])


class broadcast_shapes(Composite):
    """The common shape of `shapes`."""

    forms = "function"

    def of(*given):
        sizes = [ints((s if isinstance(s, (tuple, list)) else (s,),)) for s in given]
        for size in sizes:
            need(all(n >= 0 for n in size), "Attempting to broadcast a dimension with negative length! Got "
                 f"{list(size)}", ValueError)
        return Size(shapes.broadcast(*sizes)) if sizes else Size(())


# --- joining ------------------------------------------------------------------------------------------------


def promoted(specs):
    """The dtype that all of `specs`, Specs or arrays, become together."""
    def dtype_of(one): return one.dtype if one.dtype.__class__ is dtypes.dtype else dtypes.from_numpy(one.dtype)
    return dtypes.result_of([(dtype_of(one), 2 if one.ndim else 1) for one in specs])


def joined_spec(specs, dim):
    """The Spec of `specs` put one after the other along `dim`, or a refusal."""
    for at, k in enumerate(specs):
        need(k.ndim, f"zero-dimensional tensor (at position {at}) cannot be concatenated")
    real = [(at, k) for at, k in enumerate(specs) if k.shape != (0,)]    # PyTorch lets anything join a [0]
    first = real[0][1] if real else specs[0]
    d = shapes.wrap_dim(dim, first.ndim) if real else 0
    total = 0
    for at, k in real:
        need(k.ndim == first.ndim, f"Tensors must have same number of dimensions: got {first.ndim} and {k.ndim}")
        for i, (a, b) in enumerate(zip(first.shape, k.shape, strict=True)):
            need(i == d or a == b, f"Sizes of tensors must match except in dimension {d}. Expected size {a} but got "
                                   f"size {b} for tensor number {at} in the list.")
        total += k.shape[d]
    shape = (*first.shape[:d], total, *first.shape[d + 1:])
    lasts = all(shapes.suggests_channels_last(k.shape, k.strides) for k in specs)
    return spec(promoted(specs), shape, shapes.channels_last_strides(shape) if lasts else None, first.device)


def need_list(tensors, words, error_class=RuntimeError):
    """Refuse what is not a list of tensors, or an empty one."""
    if not isinstance(tensors, (tuple, list)):
        got = "Tensor" if isinstance(tensors, Spec) else type(tensors).__name__
        raise argument_error(f"argument 'tensors' (position 1) must be tuple of Tensors, not {got}")
    need(tensors, words, error_class)
    for at, x in enumerate(tensors):
        if not isinstance(x, (Spec, door.tensor)):
            raise TypeError(f"expected Tensor as element {at} in argument 0, but got {type(x).__name__}")


class cat(Op):
    """`tensors` one after the other along `dim`.

    >>> torch.cat([torch.zeros(1, 2), torch.ones(2, 2)])
    tensor([[0., 0.],
            [1., 1.],
            [1., 1.]])
    """

    names = "concat concatenate"
    forms = "function out"
    out_no_overlap = True
    out_error = TypeError
    lists = True
    exact = True

    def meta(tensors, dim=0):
        need_list(tensors, "torch.cat(): expected a non-empty list of Tensors", ValueError)
        return joined_spec(tensors, dim)

    def ref(xp, tensors, dim=0):
        dtype = promoted(tensors).np
        real = [a.astype(dtype, copy=False) for a in tensors if a.shape != (0,)]
        return xp.concatenate(real, dim) if real else xp.zeros(0, dtype)

    def d_tensors(g, tensors_spec, dim):
        made, start, d = [], 0, shapes.wrap_dim(dim, g.ndim)
        for k in tensors_spec:
            if k.shape == (0,):
                made.append(zeros(g, (0,)))
                continue
            made.append(_slice(g, d, start, start + k.shape[d], 1))
            start += k.shape[d]
        return made

    def bounds(tensors): return hull(*tensors)

    def body(k, tensors, dim=0):
        dtype = promoted(tensors)
        return k.concat([k.cast(a, dtype) for a in tensors], shapes.wrap_dim(dim, tensors[0].ndim))


class stack(Op):
    """`tensors` of one shape put side by side along a new dimension `dim`."""

    forms = "function out"
    out_no_overlap = True
    out_error = TypeError
    lists = True
    exact = True

    def meta(tensors, dim=0):
        need_list(tensors, "stack expects a non-empty TensorList")
        first = tensors[0]
        d = shapes.wrap_dim(dim, first.ndim + 1)
        for at, k in enumerate(tensors):
            need(k.shape == first.shape, f"stack expects each tensor to be equal size, but got {list(first.shape)} at "
                                         f"entry 0 and {list(k.shape)} at entry {at}")
        shape = (*first.shape[:d], len(tensors), *first.shape[d:])
        strides = None
        if d < first.ndim and first.shape != (0,):     # laid out as if joined, and then seen with one more
            whole = joined_spec(tensors, d)
            strides = shapes.view_strides(whole.shape, whole.strides, shape)
        return spec(promoted(tensors), shape, strides, first.device)

    def ref(xp, tensors, dim=0):
        dtype = promoted(tensors).np
        return xp.stack([a.astype(dtype, copy=False) for a in tensors], dim)

    def d_tensors(g, dim): return unbind(g, dim)
    def bounds(tensors): return hull(*tensors)

    def body(k, tensors, dim=0):
        d, dtype, shape = shapes.wrap_dim(dim, tensors[0].ndim + 1), promoted(tensors), tensors[0].shape
        return k.concat([k.reshape(k.cast(a, dtype), (*shape[:d], 1, *shape[d:])) for a in tensors], d)


class hstack(Composite):
    """`tensors` joined along their second dimension, vectors along their only one."""

    forms = "function out"
    out_error = TypeError
    out_no_overlap = True

    def of(tensors):
        need_list(tensors, "hstack expects a non-empty TensorList")
        tensors = atleast_1d(tensors)
        return cat(tensors, 0 if tensors[0].ndim == 1 else 1)


class vstack(Composite):
    """`tensors` joined along their first dimension, vectors as rows."""

    names = "row_stack"
    forms = "function out"
    out_error = TypeError
    out_no_overlap = True

    def of(tensors):
        need_list(tensors, "vstack expects a non-empty TensorList")
        return cat(atleast_2d(tensors), 0)


class dstack(Composite):
    """`tensors` joined along their third dimension."""

    forms = "function out"
    out_error = TypeError
    out_no_overlap = True

    def of(tensors):
        need_list(tensors, "dstack expects a non-empty TensorList")
        return cat(atleast_3d(tensors), 2)


class column_stack(Composite):
    """`tensors` joined along their second dimension, vectors as columns."""

    forms = "function out"
    out_error = TypeError
    out_no_overlap = True

    def of(tensors):
        need_list(tensors, "column_stack expects a non-empty TensorList")
        return hstack([_reshape(x, (x.numel(), 1)) if x.ndim <= 1 else x for x in tensors])


class block_diag(Composite):
    """The matrices `tensors` along the diagonal of one that is zero elsewhere; a vector is one row."""

    forms = "function"

    def of(*tensors):
        return _block_diag(tensors) if tensors else _full((1, 0), 0, dtypes.default, default_device())


def as_matrix(shape):
    """Rows and columns of a block: a vector is one row, a number one element."""
    return (1, 1) if not shape else (1, shape[0]) if len(shape) == 1 else shape


class _block_diag(Op):
    """`tensors` along the diagonal."""

    lists = True
    exact = True

    def meta(tensors):
        for at, k in enumerate(tensors):
            need(k.ndim <= 2, f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {at} has "
                              f"{k.ndim} dimensions")
        blocks = [as_matrix(k.shape) for k in tensors]
        shape = (sum(b[0] for b in blocks), sum(b[1] for b in blocks))
        return spec(promoted(tensors), shape, None, tensors[0].device)

    def ref(xp, tensors):
        blocks = [a.reshape(as_matrix(a.shape)) for a in tensors]
        shape = (sum(b.shape[0] for b in blocks), sum(b.shape[1] for b in blocks))
        out = xp.zeros(shape, promoted(tensors).np)
        row = column = 0
        for b in blocks:
            out[row:row + b.shape[0], column:column + b.shape[1]] = b
            row, column = row + b.shape[0], column + b.shape[1]
        return out

    def d_tensors(g, tensors_spec):
        made, row, column = [], 0, 0
        for k in tensors_spec:
            height, width = as_matrix(k.shape)
            block = _slice(_slice(g, 0, row, row + height, 1), 1, column, column + width, 1)
            made.append(_reshape(block, k.shape))
            row, column = row + height, column + width
        return made


class meshgrid(Composite):
    """The coordinates of a grid: each of `tensors` (vectors) spread over all the others.

    >>> x, y = torch.meshgrid(torch.tensor([1, 2]), torch.tensor([3, 4, 5]), indexing="ij")
    >>> y
    tensor([[3, 4, 5],
            [3, 4, 5]])
    """

    forms = "function"

    def of(*tensors, indexing="ij"):
        if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
            tensors = tensors[0]
        need(tensors, "meshgrid expects a non-empty TensorList")
        need(indexing in ("ij", "xy"), 'torch.meshgrid: indexing must be one of "xy" or "ij", but received: '
             f"{indexing}")
        first = tensors[0]
        for x in tensors:
            need(x.ndim <= 1, f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {x._spec}")
            need(x.dtype is first.dtype, "meshgrid expects all tensors to have the same dtype")
            need(x.device is first.device, "meshgrid expects all tensors to have the same device")
        n = len(tensors)
        axes = [1, 0, *range(2, n)] if indexing == "xy" and n > 1 else list(range(n))
        shape = [0] * n
        for axis, x in zip(axes, tensors, strict=True):
            shape[axis] = x.numel()
        return tuple([_expand(_view(x, (*[1] * axis, x.numel(), *[1] * (n - 1 - axis))), tuple(shape))
                      for axis, x in zip(axes, tensors, strict=True)])


class cartesian_prod(Composite):
    """All combinations of one element from each of the vectors `tensors`, one per row."""

    forms = "function"

    def of(*tensors):
        for x in tensors:
            need(x.ndim == 1, f"Expect a 1D vector, but got shape {list(x._spec.shape)}")
        if len(tensors) == 1:
            return tensors[0]
        return stack([flatten(x) for x in meshgrid(*tensors)], 1)


class combinations(Composite):
    """All choices of `r` elements of the vector `input` in order, one per row."""

    def of(input, r=2, with_replacement=False):
        need(input.ndim == 1, f"Expect a 1D vector, but got shape {list(input._spec.shape)}")
        need(r >= 0, f"Expect a non-negative number, but got {r}")
        if r == 0:
            return _full((0,), 0, input.dtype, input.device)
        n = input.numel()
        mask = _full((n,) * r, True, dtypes.bool, input.device)
        indices = meshgrid(*[arange(n, device=input.device)] * r)
        for a, b in itertools.pairwise(indices):
            mask = mask & (a <= b if with_replacement else a < b)
        return stack([x.masked_select(mask) for x in meshgrid(*[input] * r)], 1)
