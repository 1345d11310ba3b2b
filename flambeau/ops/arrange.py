"""New arrangements of old elements: repeated, turned, on a diagonal, or with one part replaced."""
from operator import index as as_int

from ..base import dtypes, layout, shapes
from ..base.bounds import hull
from ..base.errors import need
from ..base.op import Composite, Op, door
from .convert import cast, clone, converted, zeros
from .shape import flatten, ravel, unsqueeze
from .slices import (
    _diagonal_backward,
    _slice,
    at_diagonal,
    at_select,
    at_slice,
    clamped,
    diagonal,
    select,
    write_diagonal,
)
from .view import (
    _as_strided,
    _expand,
    _reshape,
    _scatter_strided,
    _view,
    as_strided,
    ints,
    several,
    stretch,
    strided_positions,
)

# --- repeating ----------------------------------------------------------------------------------------------


class repeat(Composite):
    """`input` repeated that many times along each dimension, copied.

    >>> torch.tensor([1, 2]).repeat(2, 2)
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """

    forms = "method"

    def of(input, *sizes, repeats=None): return _repeat(input, several(sizes, repeats, "repeats"))


class _repeat(Op):
    """`input` repeated `repeats` times."""

    exact = True

    def meta(input, repeats):
        lead = len(repeats) - input.ndim
        need(lead >= 0, "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor, "
                        f"got {len(repeats)} and {input.ndim}")
        shape = tuple([n * r for n, r in zip((1,) * lead + input.shape, repeats, strict=True)])
        for n in shape:
            need(n >= 0, f"Trying to create tensor with negative dimension {n}: {list(shape)}")
        return input.like(shape=shape)

    def ref(xp, input, repeats): return xp.tile(input, repeats)

    def d_input(g, input_spec, repeats):
        shape = (1,) * (len(repeats) - input_spec.ndim) + input_spec.shape
        if not shape:
            return g
        interleaved = tuple([n for pair in zip(repeats, shape, strict=True) for n in pair])
        return _view(_reshape(g, interleaved).sum(tuple(range(0, len(interleaved), 2))), input_spec.shape)

    def bounds(input): return input

    def body(k, input, repeats):
        shape = (1,) * (len(repeats) - input.ndim) + input.shape
        one = k.reshape(input, tuple([n for size in shape for n in (1, size)]))
        many = k.expand(one, tuple([n for pair in zip(repeats, shape, strict=True) for n in pair]))
        return k.reshape(many, tuple([n * r for n, r in zip(shape, repeats, strict=True)]))


class tile(Composite):
    """`input` repeated `dims` times along each dimension; missing counts are one."""

    def of(input, *counts, dims=None):
        counts = several(counts, dims, "dims")
        return _repeat(input, (1,) * (input.ndim - len(counts)) + counts)


class repeat_interleave(Composite):
    """`input` with each element (or part along `dim`) repeated `repeats` times in a row.

    >>> torch.tensor([1, 2]).repeat_interleave(2)
    tensor([1, 1, 2, 2])
    """

    def of(input, repeats=None, dim=None, *, output_size=None):
        if repeats is None:                    # repeat_interleave(counts): each index, that many times
            return _repeated_index(input, output_size)
        if dim is None:
            input, dim = flatten(input), 0
        d = shapes.wrap_dim(dim, input.ndim)
        size = input._spec.shape[d] if input.ndim else 1
        if isinstance(repeats, door.tensor):
            need(repeats.ndim <= 1, "repeats must be 0-dim or 1-dim tensor")
            if repeats.ndim == 0 or repeats.numel() == 1:
                repeats = _expand(_reshape(repeats, (1,)), (size,))
            need(repeats.numel() == size, "repeats must have the same size as input along dim, but got repeats.size(0) "
                                          f"= {repeats.numel()} and input.size({d}) = {size}")
            return input.index_select(d, _repeated_index(repeats, output_size))
        repeats = as_int(repeats)
        need(repeats >= 0, f"Repeats must be non-negative, got {repeats}")
        need(output_size is None or output_size == size * repeats, "repeat_interleave: Invalid output_size, expected "
                                                                   f"{size * repeats} but got {output_size}")
        spread = unsqueeze(input, d + 1)
        shape = spread._spec.shape
        spread = _expand(spread, (*shape[:d + 1], repeats, *shape[d + 2:]))
        return flatten(clone(spread, memory_format=layout.contiguous_format), d, d + 1)


class _repeated_index(Op):
    """Each position of `repeats`, as many times as its element says."""

    exact = True
    eager = True

    def meta(repeats, output_size=None):
        need(repeats.ndim == 1, "repeat_interleave only accept 1D vector as repeat")
        need(repeats.dtype in (dtypes.int32, dtypes.int64), "\"repeat_interleave_cpu\" not implemented for "
                                                            f"'{repeats.dtype.cname}'", NotImplementedError)
        return None

    def ref(xp, repeats, output_size=None):
        need(not (repeats < 0).any(), "repeats can not be negative")
        out = xp.repeat(xp.arange(len(repeats), dtype=repeats.dtype), repeats)
        need(output_size is None or not len(repeats) or output_size == len(out), f"allocated size does not "
             f"match required size: output_size is {output_size}, the repeats add up to {len(out)}")
        return out


# --- moving elements ----------------------------------------------------------------------------------------


def suggested_spec(input):
    """The Spec of a fresh tensor like `input`: channels-last if it is, else contiguous."""
    lasts = shapes.suggests_channels_last(input.shape, input.strides)
    return input.like(shape=input.shape, strides=shapes.channels_last_strides(input.shape) if lasts else None)


def rolled(k, x, dim, shift):
    """For a body: `x` shifted cyclically along `dim`."""
    size = x.shape[dim]
    at = k.index(dim, x.shape) + -shift % size
    return k.gather(x, dim, k.where(at >= size, at - size, at))


class roll(Composite):
    """`input` shifted by `shifts` along `dims` (flat without any), what leaves coming in at the other end."""

    def of(input, shifts, dims=()):
        shifts = ints((shifts if isinstance(shifts, (tuple, list)) else (shifts,),), "shifts")
        return _roll(input, shifts, ints((dims if isinstance(dims, (tuple, list)) else (dims,),), "dims"))


class _roll(Op):
    """`input` shifted cyclically."""

    exact = True

    def meta(input, shifts, dims):
        need(shifts, "`shifts` required")
        need(len(shifts) == len(dims) or (not dims and len(shifts) == 1),
             f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
        for d in dims:
            shapes.wrap_dim(d, input.ndim, scalar_ok=False)
        if not input.numel:
            return input.like(strides=shapes.preserved_strides(input.shape, input.strides))
        # PyTorch joins two parts along each dimension. Where one is empty, and has no layout, the result is row-major.
        parted = dims and all(shift % input.shape[d] for shift, d in zip(shifts, dims, strict=True))
        return suggested_spec(input) if parted else input.like(shape=input.shape)

    def ref(xp, input, shifts, dims):
        if not dims or not input.ndim:
            return xp.roll(input, shifts[0]) if input.ndim else input
        return xp.roll(input, shifts, dims)

    def d_input(g, shifts, dims): return _roll(g, tuple([-s for s in shifts]), dims)
    def bounds(input): return input

    def body(k, input, shifts, dims):
        if len(dims) > 1 or (not dims and input.ndim != 1):
            return NotImplemented
        return rolled(k, input, dims[0] % input.ndim if dims else 0, shifts[0])


class flip(Composite):
    """`input` with the order along `dims` reversed, copied."""

    def of(input, *order, dims=None): return _flip(input, several(order, dims, "dims"))


class _flip(Op):
    """`input` reversed along `dims`."""

    exact = True

    def meta(input, dims):
        dims and shapes.wrap_dims(dims, input.ndim)
        return input.like(strides=shapes.preserved_strides(input.shape, input.strides))

    def ref(xp, input, dims):  return xp.flip(input, dims) if input.ndim else input
    def d_input(g, dims):      return _flip(g, dims)
    def bounds(input): return input

    def body(k, input, dims):
        if len(dims) != 1 or not input.ndim:
            return NotImplemented
        d = dims[0] % input.ndim
        return k.gather(input, d, input.shape[d] - 1 - k.index(d, input.shape))


class fliplr(Composite):
    """`input` with its second dimension reversed."""

    def of(input):
        need(input.ndim >= 2, f"Input must be >= 2-d. Got {input.ndim}-d.")
        return _flip(input, (1,))


class flipud(Composite):
    """`input` with its first dimension reversed."""

    def of(input):
        need(input.ndim >= 1, "Input must be >= 1-d. Got 0-d.")
        return _flip(input, (0,))


class rot90(Op):
    """`input` turned `k` times by 90 degrees in the plane of `dims`, from the first towards the second."""

    exact = True

    def meta(input, k=1, dims=(0, 1)):
        need(len(dims) == 2, f"expected total rotation dims == 2, but got dims = {len(dims)}")
        need(input.ndim >= 2, f"expected total dims >= 2, but got total dims = {input.ndim}")
        a, b = shapes.wrap_dim(dims[0], input.ndim), shapes.wrap_dim(dims[1], input.ndim)
        need(a != b, f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
        if k % 4 == 0:
            return input.like(shape=input.shape)
        shape, strides = list(input.shape), list(shapes.preserved_strides(input.shape, input.strides))
        if k % 2:
            shape[a], shape[b], strides[a], strides[b] = shape[b], shape[a], strides[b], strides[a]
        return input.like(shape=tuple(shape), strides=tuple(strides))

    def ref(xp, input, k=1, dims=(0, 1)):  return xp.rot90(input, k, dims)
    def d_input(g, k, dims):               return rot90(g, -k, dims)
    def bounds(input): return input


class tril(Op):
    """The part of the matrices `input` on and below the `diagonal`-th diagonal, zero above."""

    forms = "function method inplace out"
    strict_out = True
    exact = True

    def meta(input, diagonal=0):
        need(input.ndim >= 2, f"tril: input tensor must have at least 2 dimensions, got {input.ndim}")
        return input.like(shape=input.shape)

    def ref(xp, input, diagonal=0):  return xp.tril(input, diagonal)
    def d_input(g, diagonal):        return tril(g, diagonal)
    def bounds(input): return hull(input, (0, 0))
    def body(k, input, diagonal=0):  return k.where(diagonal_of(k, input) <= diagonal, input, 0)


class triu(Op):
    """The part of the matrices `input` on and above the `diagonal`-th diagonal, zero below."""

    forms = "function method inplace out"
    strict_out = True
    exact = True

    def meta(input, diagonal=0):
        need(input.ndim >= 2, f"triu: input tensor must have at least 2 dimensions, got {input.ndim}")
        return input.like(shape=input.shape)

    def ref(xp, input, diagonal=0):  return xp.triu(input, diagonal)
    def d_input(g, diagonal):        return triu(g, diagonal)
    def bounds(input): return hull(input, (0, 0))
    def body(k, input, diagonal=0):  return k.where(diagonal_of(k, input) >= diagonal, input, 0)


def diagonal_of(k, x):
    """For a body: which diagonal of its matrix each element of `x` lies on."""
    return k.index(x.ndim - 1, x.shape) - k.index(x.ndim - 2, x.shape)


# --- diagonals ----------------------------------------------------------------------------------------------


class diag(Composite):
    """The diagonal of a matrix, or the matrix with the vector `input` on its diagonal."""

    forms = "function method out"
    strict_out = True

    def of(input, diagonal=0):
        need(input.ndim in (1, 2), f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")
        return diag_embed(input, diagonal) if input.ndim == 1 else _diagonal_copy(input, diagonal)


class _diagonal_copy(Op):
    """A copy of a diagonal of the matrix `input`."""

    exact = True
    node = "DiagonalBackward0_copy"

    def meta(input, offset):            return input.like(shape=tuple(diagonal.view(input, offset, 0, 1)[0]))
    def ref(xp, input, offset):         return xp.diagonal(input, offset)
    def d_input(g, input_spec, offset): return _diagonal_backward(g, input_spec.shape, offset, 0, 1)


class diag_embed(Op):
    """Zeros with the last dimension of `input` on the `offset`-th diagonal of dimensions `dim1` and `dim2`."""

    exact = True

    def meta(input, offset=0, dim1=-2, dim2=-1):
        return input.like(shape=embedded(input.shape, offset, dim1, dim2))

    def ref(xp, input, offset=0, dim1=-2, dim2=-1):
        out = xp.zeros(embedded(input.shape, offset, dim1, dim2), input.dtype)
        write_diagonal(xp, out, input, offset, dim1, dim2)
        return out

    def d_input(g, offset, dim1, dim2): return diagonal(g, offset, dim1, dim2)

    def body(k, input, offset=0, dim1=-2, dim2=-1):
        return at_diagonal(k, input, embedded(input.shape, offset, dim1, dim2), offset, dim1, dim2, 0)


def embedded(shape, offset, dim1, dim2):
    """The shape after the last dimension of `shape` became a diagonal of `dim1` and `dim2`."""
    a, b = shapes.wrap_dim(dim1, len(shape) + 1), shapes.wrap_dim(dim2, len(shape) + 1)
    need(a != b, f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    rest = iter(shape[:-1])
    n = shape[-1] + abs(offset)
    return tuple([n if d in (a, b) else next(rest) for d in range(len(shape) + 1)])


class diagflat(Composite):
    """The matrix with the elements of `input` on the diagonal `offset` above the main one."""

    def of(input, offset=0): return diag_embed(ravel(input), offset)


# --- a copy with one part replaced --------------------------------------------------------------------------


def replaced_spec(input, src, part):
    """The Spec of a copy of `input` with a part of the shape `part` replaced by `src`."""
    need(src.shape == tuple(part), "expected src to have a size equal to the slice of self. src size = "
         f"{list(src.shape)}, slice size = {list(part)}")
    return input.like(strides=shapes.preserved_strides(input.shape, input.strides))


class select_scatter(Op):
    """A copy of `input` with `src` at `index` of dimension `dim`."""

    exact = True

    def meta(input, src, dim, index): return replaced_spec(input, src, select.view(input, dim, index)[0])

    def ref(xp, input, src, dim, index):
        out = input.copy()
        out[(slice(None),) * (dim % input.ndim) + (index,)] = cast(xp, src, dtypes.from_numpy(input.dtype))
        return out

    def d_input(g, src_spec, dim, index):  return select_scatter(g, zeros(g, src_spec.shape), dim, index)
    def d_src(g, dim, index):              return select(g, dim, index)

    def body(k, input, src, dim, index):
        return at_select(k, converted(k, src, input.dtype), input.shape, dim, index, input)


class slice_scatter(Op):
    """A copy of `input` with `src` in the places `start` to `end` by `step` of dimension `dim`."""

    forms = "function method out"
    exact = True
    strict_out = True

    def meta(input, src, dim=0, start=None, end=None, step=1):
        return replaced_spec(input, src, _slice.view(input, dim, start, end, step)[0])

    def ref(xp, input, src, dim=0, start=None, end=None, step=1):
        out, d = input.copy(), dim % input.ndim
        low, high = clamped(input.shape[d], start, end)
        out[(slice(None),) * d + (slice(low, high, step),)] = cast(xp, src, dtypes.from_numpy(input.dtype))
        return out

    def d_input(g, src_spec, dim, start, end, step):
        return slice_scatter(g, zeros(g, src_spec.shape), dim, start, end, step)

    def d_src(g, dim, start, end, step): return _slice(g, dim, start, end, step)

    def body(k, input, src, dim=0, start=None, end=None, step=1):
        if src.dtype is not input.dtype:
            return NotImplemented
        return at_slice(k, src, input.shape, dim, start, end, step, input)


class diagonal_scatter(Op):
    """A copy of `input` with `src` on a diagonal of dimensions `dim1` and `dim2`."""

    exact = True

    def meta(input, src, offset=0, dim1=0, dim2=1):
        return replaced_spec(input, src, diagonal.view(input, offset, dim1, dim2)[0])

    def ref(xp, input, src, offset=0, dim1=0, dim2=1):
        out = input.copy()
        write_diagonal(xp, out, cast(xp, src, dtypes.from_numpy(input.dtype)), offset, dim1, dim2)
        return out

    def d_input(g, src_spec, offset, dim1, dim2):
        return diagonal_scatter(g, zeros(g, src_spec.shape), offset, dim1, dim2)

    def d_src(g, offset, dim1, dim2): return diagonal(g, offset, dim1, dim2)

    def body(k, input, src, offset=0, dim1=0, dim2=1):
        if src.dtype is not input.dtype:
            return NotImplemented
        return at_diagonal(k, src, input.shape, offset, dim1, dim2, input)


class as_strided_scatter(Composite):
    """A copy of `input` with `src` where `as_strided(size, stride, storage_offset)` would look."""

    by_specs = False          # but by where the tensor starts

    def of(input, src, size, stride, storage_offset=None):
        if shapes.may_overlap(input._spec.shape, input._spec.strides):
            input = clone(input)
        seen = as_strided(input.detach(), size, stride, storage_offset)
        return _as_strided_scatter(input, src, seen._spec.shape, seen._spec.strides, seen._offset - input._offset)


class _as_strided_scatter(Op):
    """A copy of `input` with `src` in a look of `size` and `stride`, `delta` elements further on."""

    exact = True

    def meta(input, src, size, stride, delta):
        need(not shapes.may_overlap(size, stride), "unsupported operation: more than one element of the "
             f"written-to tensor refers to a single memory location: size {list(size)}, stride {list(stride)}")
        return replaced_spec(input, src, size)

    def ref(xp, input, src, size, stride, delta):
        own = [step // input.itemsize for step in input.strides]
        n, low = stretch(input.shape, own, size, stride, delta)
        memory = xp.zeros(n, input.dtype)
        mine = strided_positions(xp, input.shape, own, -low)
        memory[mine] = input
        theirs = strided_positions(xp, size, stride, delta - low)
        memory[theirs] = cast(xp, src, dtypes.from_numpy(input.dtype))
        return memory[mine]

    def grads(g, needs, input_spec, src_spec, size, stride, delta):
        n, low = stretch(input_spec.shape, input_spec.strides, size, stride, delta)
        memory = _scatter_strided(g, n, input_spec.strides, -low)
        d_input = d_src = None
        if needs[0]:
            rest = _as_strided_scatter(memory, zeros(g, size), size, stride, delta - low)
            d_input = _as_strided(rest, input_spec.shape, input_spec.strides, -low)
        if needs[1]:
            d_src = _as_strided(memory, size, stride, delta - low)
        return d_input, d_src


class _fill_diagonal(Composite):
    """What `fill_diagonal_` writes: `input` with its main diagonal set, going on below it where `wrap` says so."""

    names = "fill_diagonal"
    forms = "inplace"

    def of(input, fill_value, wrap=False):
        n = input.dim()
        need(n >= 2, f"dimensions must larger than 1: got {list(input.shape)}")
        need(n == 2 or len(set(input.shape)) == 1, "all dimensions of input must be of equal length: got "
             f"{list(input.shape)}")
        out = input.clone(memory_format=layout.contiguous_format)
        step = sum(out.stride())
        if n == 2 and wrap:                      # a tall matrix starts again one row below the last of its square
            count = (out.numel() + step - 1) // step
        else:
            count = min(out.shape)
        out.as_strided((count,), (step,)).fill_(fill_value)
        return out
