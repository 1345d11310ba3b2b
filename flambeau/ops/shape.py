"""Views and joins: other looks at the same memory, and tensors put together.

The first half are views. Each public name that PyTorch overloads (`view(*shape)`, `view(dtype)`) is a front that reads
its arguments and calls a private `View`, which is what autograd sees. The second half makes new tensors out of old.
"""
import itertools
from operator import index as as_int

from ..base import dtypes, layout, shapes
from ..base.errors import need
from ..base.op import Composite, Op, View, door
from ..base.spec import Size, default_device, spec
from .convert import cast, clone, zeros
from .create import _full, arange


def ints(given, what="size"):
    """A tuple of ints from `*sizes` as users write them: `2, 3`, `(2, 3)`, `[2, 3]`, a Size."""
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        given = given[0]
    for at, n in enumerate(given):
        if n.__class__ is not int:
            break
    else:
        return tuple(given)
    try:
        return tuple([as_int(n) for n in given])
    except TypeError:
        raise TypeError(f"argument '{what}' must be tuple of ints, but found element of type {type(given[at]).__name__} "
                        f"at pos {at}") from None


def several(given, named, what):
    """The tuple of ints that came as `*given` or by its keyword `named`."""
    if named is not None:
        if given:
            raise TypeError(f"got multiple values for argument '{what}'")
        given = (named if isinstance(named, (tuple, list)) else (named,),)
    elif not given:
        raise TypeError(f"missing 1 required positional arguments: \"{what}\"")
    return ints(given, what)


# --- the geometry of one view ---------------------------------------------------------------------------------------


class as_strided(Composite):
    """A look at `input`'s storage with the given size and strides, starting `storage_offset` elements into it."""

    names = "as_strided"

    def of(input, size, stride, storage_offset=None):
        size, stride = ints((size,)), ints((stride,), "stride")
        need(len(size) == len(stride), f"mismatch in length of strides and shape: size={list(size)}, stride={list(stride)}")
        need(all(s >= 0 for s in stride), "as_strided: Negative strides are not supported at the moment, got strides: "
             f"{list(stride)}")
        need(all(n >= 0 for n in size), f"Trying to create tensor with negative dimension {min(size, default=0)}: "
             f"{list(size)}")
        start = input.offset if storage_offset is None else as_int(storage_offset)
        need(start >= 0, f"Tensor: invalid storage offset {start}")
        extent, itemsize = shapes.extent(size, stride), input.dtype.itemsize
        need(not extent or (start + extent) * itemsize <= input.storage.nbytes,
             f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {start}, and itemsize {itemsize} "
             f"requiring a storage size of {(start + extent) * itemsize} are out of bounds for storage of size "
             f"{input.storage.nbytes}")
        return _as_strided(input, size, stride, start - input.offset)


class _as_strided(View):
    """A look with the given size and strides, starting `delta` elements after `input` does."""

    def view(input, size, stride, delta): return size, stride, delta

    def d_input(g, input_spec, size, stride, delta):
        # Both looks as parts of one stretch of memory: add the gradient up there, then read it where the input was.
        n, low = stretch(input_spec.shape, input_spec.strides, size, stride, delta)
        total = _scatter_strided(g, n, stride, delta - low)
        if shapes.may_overlap(input_spec.shape, input_spec.strides):
            # Elements of the input that share a cell share its gradient in equal parts, as in PyTorch.
            ones = _full(input_spec.shape, 1, g.dtype, g.device)
            total = total / _scatter_strided(ones, n, input_spec.strides, -low).clamp(min=1)
        return _as_strided(total, input_spec.shape, input_spec.strides, -low)


def stretch(shape, strides, size, stride, delta):
    """The memory that a look and another one, `delta` elements further on, span together: its length, and its start."""
    low = min(0, delta)
    return max(shapes.extent(shape, strides), shapes.extent(size, stride) + delta) - low, low


class _scatter_strided(Op):
    """`n` zeros, with each element of `input` added at the place that `stride` and `start` give it."""

    node = "AsStridedBackward0Backward0"

    def meta(input, n, stride, start):          return input.like(shape=(n,))
    def d_input(g, input_spec, stride, start):  return _as_strided(g, input_spec.shape, stride, start)

    def ref(xp, input, n, stride, start):
        out = xp.zeros(n, input.dtype)
        if input.size:
            xp.add.at(out, strided_positions(xp, input.shape, stride, start), input)
        return out


def strided_positions(xp, shape, stride, start):
    """Where each element of a look lies in its memory: an integer array of `shape`."""
    at = xp.full(shape, start, xp.int64)
    for d, (size, step) in enumerate(zip(shape, stride, strict=True)):
        at += (step * xp.arange(size)).reshape(size, *[1] * (len(shape) - 1 - d))
    return at


class _alias(View):
    """All of `input`, as a view."""

    def view(input):  return input.shape, input.strides, 0
    def d_input(g):   return g


class view(Composite):
    """The same memory seen with another shape, or read as another dtype: `x.view(2, -1)`, `x.view(torch.int32)`.

    >>> torch.arange(6).view(2, -1)
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """

    forms = "method"

    def of(input, *shape, size=None, dtype=None):
        if dtype is None and len(shape) == 1 and isinstance(shape[0], dtypes.dtype):
            shape, dtype = (), shape[0]
        if dtype is not None:
            if dtype is input.dtype:
                return _alias(input)
            return _view_dtype(input, dtype, input.offset % max(1, dtype.itemsize // input.dtype.itemsize))
        return _view(input, several(shape, size, "size"))


class _view(View):
    """The same memory seen with the shape `size`."""

    def view(input, size):
        size = shapes.fill_in(size, input.numel)
        strides = shapes.view_strides(input.shape, input.strides, size)
        if strides is None:
            need(False, "view size is not compatible with input tensor's size and stride (at least one dimension spans across "
                 "two contiguous subspaces). Use .reshape(...) instead." + unmergeable_words(input, size))
        return size, strides, 0

    def d_input(g, input_spec): return g.reshape(input_spec.shape)


def unmergeable_words(input, size):
    """Which two neighbouring axes stand in the way of seeing `input` as `size`, and why."""
    sizes, strides = input.shape, input.strides
    for a in range(input.ndim - 1):
        # Cut before axis b: if the view fails with only this pair apart, the pair is the reason.
        b = a + 1
        while b < input.ndim - 1 and sizes[b] == 1:
            b += 1
        if sizes[a] == 1 or sizes[b] == 1 or strides[a] == strides[b] * sizes[b]:
            continue
        apart = [1] * input.ndim
        step = 1
        for d in range(input.ndim - 1, -1, -1):
            apart[d] = step
            step *= sizes[d] if d != b else sizes[d] + 1
        if shapes.view_strides(sizes, apart, size) is None:
            return (f"\n  {list(size)} merges dimensions {a} and {b}, which do not lie one after the other in memory: dimension "
                    f"{a} steps {strides[a]} elements, and {sizes[b]} (size) * {strides[b]} (stride) = {sizes[b] * strides[b]} "
                    f"would be needed (sizes {list(sizes)}, strides {list(strides)}).")
    return ""


class _view_dtype(View):
    """The same bytes read as `dtype`; `odd` is by how many elements the start misses the new dtype's steps."""

    def view(input, dtype, odd):
        have, want = input.dtype.itemsize, dtype.itemsize
        sizes, strides = list(input.shape), list(input.strides)
        if have == want:
            return sizes, strides, 0, dtype
        need(input.ndim, f"self.dim() cannot be 0 to view {input.dtype.cname} as {dtype.cname} (different element sizes)")
        if have > want:
            ratio = have // want
            need(strides[-1] == 1, f"self.stride(-1) must be 1 to view {input.dtype.cname} as {dtype.cname} (different element "
                 f"sizes), but got {strides[-1]}")
            sizes[-1] *= ratio
            return sizes, [s * ratio for s in strides[:-1]] + [1], 0, dtype
        ratio = want // have
        said = f"to view {input.dtype.cname} as {dtype.cname} (different element sizes)"
        need(sizes[-1] % ratio == 0, f"self.size(-1) must be divisible by {ratio} {said}, but got {sizes[-1]}")
        need(odd == 0, f"self.storage_offset() must be divisible by {ratio} {said}")
        need(strides[-1] == 1, f"self.stride(-1) must be 1 {said}, but got {strides[-1]}")
        for d, step in enumerate(strides[:-1]):
            need(step % ratio == 0, f"self.stride({d}) must be divisible by {ratio} {said}, but got {step}")
        sizes[-1] //= ratio
        return sizes, [s // ratio for s in strides[:-1]] + [1], 0, dtype


class view_as(Composite):
    """`input` seen with the shape of `other`."""

    forms = "method"

    def of(input, other): return _view(input, other.spec.shape)


class reshape(Composite):
    """`input` with another shape: a view where its strides allow one, else a copy."""

    def of(input, *sizes, shape=None):
        return _reshape(input, several(sizes, shape, "shape"))


def _reshape(input, size):
    kind = input.spec
    wanted = shapes.fill_in(size, kind.numel)
    if shapes.view_strides(kind.shape, kind.strides, wanted) is not None:
        return _view(input, wanted)
    return _unsafe_view(input, wanted)


class _unsafe_view(Op):
    """The elements of `input` in row-major order, copied into the shape `size`."""

    exact = True

    def meta(input, size):        return input.like(shape=size)
    def ref(xp, input, size):     return input.reshape(size)
    def d_input(g, input_spec):   return g.reshape(input_spec.shape)


class reshape_as(Composite):
    """`input` with the shape of `other`: a view where its strides allow one, else a copy."""

    forms = "method"

    def of(input, other): return _reshape(input, other.spec.shape)


class expand(Composite):
    """`input` seen as if repeated along dimensions of size one; -1 leaves a size as it is.

    >>> torch.tensor([[1], [2]]).expand(2, 3)
    tensor([[1, 1, 1],
            [2, 2, 2]])
    """

    forms = "method"

    def of(input, *sizes, size=None, implicit=False): return _expand(input, several(sizes, size, "size"))


class _expand(View):
    """`input` seen as if repeated up to `size`."""

    def view(input, size):
        lead = len(size) - input.ndim
        need(lead >= 0, f"expand(torch.{input.dtype.cname}Tensor{{{list(input.shape)}}}, size={list(size)}): the number of sizes "
             f"provided ({len(size)}) must be greater or equal to the number of dimensions in the tensor ({input.ndim})")
        wanted, strides = list(size), [0] * len(size)
        for d in range(len(size) - 1, -1, -1):
            if d >= lead:
                have, stride = input.shape[d - lead], input.strides[d - lead]
            else:
                have, stride = 1, wanted[d + 1] * strides[d + 1] if d + 1 < len(size) else 1
            if size[d] == -1:
                need(d >= lead, f"The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension {d}")
                wanted[d] = have
            if wanted[d] != have:
                need(have == 1 and wanted[d] >= 0, f"The expanded size of the tensor ({size[d]}) must match the existing size ({have}) at "
                     f"non-singleton dimension {d}.  Target sizes: {list(size)}.  Tensor sizes: {list(input.shape)}")
                stride = 0
            strides[d] = stride
        return wanted, strides, 0

    def d_input(g, input_spec): return g.sum_to_size(input_spec.shape)


class expand_as(Composite):
    """`input` expanded to the shape of `other`."""

    forms = "method"

    def of(input, other): return _expand(input, other.spec.shape)


class broadcast_to(Composite):
    """`input` expanded to `size`."""

    def of(input, size): return _expand(input, ints((size,)))


class sum_to_size(Composite):
    """`input` summed down to `size`, the opposite of broadcasting from it."""

    forms = "method"

    def of(input, *sizes, size=None):
        shape, wanted = input.spec.shape, several(sizes, size, "size")
        lead = len(shape) - len(wanted)
        need(lead >= 0 and all(w == s or w == 1 for w, s in zip(wanted, shape[lead:], strict=True)),
             f"size {{{list(wanted)}}} is not expandable to size {{{list(shape)}}}.")
        dims = [d for d in range(len(shape)) if d < lead or (wanted[d - lead] == 1 and shape[d] != 1)]
        if dims:
            input = input.sum(dims, keepdim=True)
        return _view(input, wanted) if lead else input


# --- reordering dimensions ------------------------------------------------------------------------------------------


class permute(Composite):
    """`input` with its dimensions in the order `dims`."""

    def of(input, *order, dims=None): return _permute(input, several(order, dims, "dims"))


class _permute(View):
    """`input` with its dimensions in the order `dims`."""

    def view(input, dims):
        need(len(dims) == input.ndim, "permute(sparse_coo): number of dimensions in the tensor input does not match the length "
             f"of the desired ordering of dimensions i.e. input.dim() = {input.ndim} is not equal to len(dims) = {len(dims)}")
        order = [shapes.wrap_dim(d, input.ndim) for d in dims]
        need(len(set(order)) == len(order), f"permute(): duplicate dims are not allowed. Got {list(dims)}.")
        return [input.shape[d] for d in order], [input.strides[d] for d in order], 0

    def d_input(g, dims):
        back = [0] * len(dims)
        for at, d in enumerate(dims):
            back[d] = at
        return _permute(g, tuple(back))


class transpose(View):
    """`input` with dimensions `dim0` and `dim1` exchanged."""

    def view(input, dim0, dim1):
        a, b = shapes.wrap_dim(dim0, input.ndim), shapes.wrap_dim(dim1, input.ndim)
        order = list(range(input.ndim))
        if order:
            order[a], order[b] = order[b], order[a]
        return [input.shape[d] for d in order], [input.strides[d] for d in order], 0

    def d_input(g, dim0, dim1): return g.transpose(dim0, dim1)


class swapdims(Composite):
    """Another name of `transpose`."""

    def of(input, dim0, dim1): return transpose(input, dim0, dim1)


class swapaxes(Composite):
    """Another name of `transpose`, with NumPy's argument names."""

    def of(input, axis0, axis1): return transpose(input, axis0, axis1)


class t(View):
    """The matrix `input` transposed; a vector or number as it is."""

    def view(input):
        need(input.ndim <= 2, f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
        return input.shape[::-1], input.strides[::-1], 0

    def d_input(g): return g.t()


class adjoint(Composite):
    """`input` with its last two dimensions exchanged, conjugated."""

    def of(input):
        need(input.ndim != 1, "tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor.")
        out = input.transpose(-2, -1) if input.ndim else input
        return out.conj() if out.is_complex() else out


class movedim(Composite):
    """`input` with the dimensions `source` moved to the places `destination`, the others in their order."""

    names = "moveaxis"

    def of(input, source, destination):
        source, destination = ints((source,) if isinstance(source, (tuple, list)) else (source,), "source"), \
            ints((destination,) if isinstance(destination, (tuple, list)) else (destination,), "destination")
        need(len(source) == len(destination), "movedim: Invalid source or destination dims: source "
             f"({list(source)} dims) should contain the same number of dims as destination ({list(destination)} dims)")
        ndim = input.spec.ndim
        source = [shapes.wrap_dim(d, ndim) for d in source]
        destination = [shapes.wrap_dim(d, ndim) for d in destination]
        need(len(set(source)) == len(source), f"movedim: repeated dim in `source` ({source})")
        need(len(set(destination)) == len(destination), f"movedim: repeated dim in `destination` ({destination})")
        if not ndim:
            return _alias(input)
        order = [None] * ndim
        for s, d in zip(source, destination, strict=True):
            order[d] = s
        rest = iter([d for d in range(ndim) if d not in source])
        return _permute(input, tuple([next(rest) if d is None else d for d in order]))


# --- adding and removing dimensions ---------------------------------------------------------------------------------


class unsqueeze(View):
    """`input` with a dimension of size one inserted at `dim`."""

    def view(input, dim):
        d = shapes.wrap_dim(dim, input.ndim + 1)
        step = input.shape[d] * input.strides[d] if d < input.ndim else 1
        return (*input.shape[:d], 1, *input.shape[d:]), (*input.strides[:d], step, *input.strides[d:]), 0

    def d_input(g, dim, input_spec): return _squeeze_dim(g, shapes.wrap_dim(dim, input_spec.ndim + 1))


class squeeze(Composite):
    """`input` without its dimensions of size one, or without those among `dim` that have size one."""

    def of(input, dim=None):
        if dim is None:
            return _squeeze(input)
        if isinstance(dim, (tuple, list)):
            return _squeeze_dims(input, ints((dim,), "dim"))
        return _squeeze_dim(input, as_int(dim))


def _without(input, dims):
    """The geometry of `input` without those of `dims` that have size one."""
    kept = [d for d in range(input.ndim) if d not in dims or input.shape[d] != 1]
    return [input.shape[d] for d in kept], [input.strides[d] for d in kept], 0


class _squeeze(View):
    """`input` without its dimensions of size one."""

    def view(input):             return _without(input, range(input.ndim))
    def d_input(g, input_spec):  return _view(g, input_spec.shape)


class _squeeze_dim(View):
    """`input` without dimension `dim` if its size is one."""

    node = "SqueezeBackward1"

    def view(input, dim):        return _without(input, (shapes.wrap_dim(dim, input.ndim),))
    def d_input(g, input_spec):  return _view(g, input_spec.shape)


class _squeeze_dims(View):
    """`input` without those dimensions `dim` whose size is one."""

    node = "SqueezeBackward2"

    def view(input, dim):        return _without(input, shapes.wrap_dims(dim, input.ndim) if dim else ())
    def d_input(g, input_spec):  return _view(g, input_spec.shape)


class flatten(Composite):
    """`input` with the dimensions from `start_dim` to `end_dim` merged into one."""

    def of(input, start_dim=0, end_dim=-1):
        shape = input.spec.shape
        start, end = shapes.wrap_dim(start_dim, len(shape)), shapes.wrap_dim(end_dim, len(shape))
        need(start <= end, f"flatten() has invalid args: start_dim cannot come after end_dim, got {start_dim} and {end_dim}")
        if not shape:
            return _view(input, (1,))
        if start == end:
            return input
        return _reshape(input, (*shape[:start], shapes.numel(shape[start:end + 1]), *shape[end + 1:]))


class ravel(Composite):
    """`input` as one dimension: a view of it, or of a contiguous copy."""

    def of(input): return _view(input.contiguous(), (-1,))


class unflatten(Composite):
    """`input` with dimension `dim` split into `sizes`, of which one may be -1."""

    def of(input, dim, sizes):
        if not isinstance(sizes, (tuple, list)):
            raise TypeError(f"unflatten(): argument 'sizes' (position 2) must be tuple of ints, not {type(sizes).__name__}")
        shape, sizes = input.spec.shape, ints((sizes,), "sizes")
        need(shape, f"unflatten: Dimension specified as {dim} but tensor has no dimensions")
        d = shapes.wrap_dim(dim, len(shape))
        need(sizes, "unflatten: sizes must be non-empty")
        known = shapes.numel([n for n in sizes if n != -1])
        fits = shape[d] == known if -1 not in sizes else known and shape[d] % known == 0
        need(fits, f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {d} ({shape[d]}) in the input "
             "tensor")
        sizes = shapes.fill_in(sizes, shape[d])
        return _view(input, (*shape[:d], *sizes, *shape[d + 1:]))


class atleast_1d(Composite):
    """`tensors` (one, several, or a list) with at least one dimension each."""

    forms = "function"

    def of(*tensors): return each(tensors, lambda x: _view(x, (1,)) if x.ndim == 0 else x)


class atleast_2d(Composite):
    """`tensors` (one, several, or a list) with at least two dimensions each, new ones in front."""

    forms = "function"

    def of(*tensors):
        return each(tensors, lambda x: _view(x, (1, 1)) if x.ndim == 0 else unsqueeze(x, 0) if x.ndim == 1 else x)


class atleast_3d(Composite):
    """`tensors` (one, several, or a list) with at least three dimensions each."""

    forms = "function"

    def of(*tensors):
        return each(tensors, lambda x: _view(x, (1, 1, 1)) if x.ndim == 0 else unsqueeze(unsqueeze(x, 0), -1) if x.ndim == 1
                    else unsqueeze(x, -1) if x.ndim == 2 else x)


def each(tensors, change):
    """`change` of the one tensor, or a tuple of those of several."""
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        return tuple([change(x) for x in tensors[0]])
    return change(tensors[0]) if len(tensors) == 1 else tuple([change(x) for x in tensors])


# --- parts ----------------------------------------------------------------------------------------------------------


class select(View):
    """The part of `input` at `index` of dimension `dim`, without that dimension."""

    def view(input, dim, index):
        need(input.ndim, "select() cannot be applied to a 0-dim tensor.", IndexError)
        d = shapes.wrap_dim(dim, input.ndim)
        size = input.shape[d]
        need(-size <= index < size, f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension "
             f"{d}", IndexError)
        at = index + size if index < 0 else index
        return (*input.shape[:d], *input.shape[d + 1:]), (*input.strides[:d], *input.strides[d + 1:]), at * input.strides[d]

    def d_input(g, input_spec, dim, index): return _select_backward(g, input_spec.shape, dim, index)


class _select_backward(Op):
    """Zeros of `size` with `input` at `index` of dimension `dim`."""

    exact = True
    node = "SelectBackwardBackward0"

    def meta(input, size, dim, index):  return input.like(shape=size)
    def d_input(g, dim, index):         return select(g, dim, index)

    def ref(xp, input, size, dim, index):
        out = xp.zeros(size, input.dtype)
        out[(slice(None),) * (dim % len(size)) + (index,)] = input
        return out


class _slice(View):
    """Every `step`-th element of dimension `dim` from `start` up to `end`, clamped to what is there."""

    def view(input, dim, start, end, step):
        need(input.ndim, "slice() cannot be applied to a 0-dim tensor.")
        d = shapes.wrap_dim(dim, input.ndim)
        need(step > 0, f"slice step must be positive, got {step}", ValueError)
        low, high = clamped(input.shape[d], start, end)
        size, strides = list(input.shape), list(input.strides)
        size[d] = (high - low + step - 1) // step
        strides[d] *= step
        return size, strides, low * input.strides[d]

    def d_input(g, input_spec, dim, start, end, step): return _slice_backward(g, input_spec.shape, dim, start, end, step)


def clamped(size, start, end):
    """`start` and `end` of a slice (None: all) as 0 <= start <= end <= size."""
    start, end = 0 if start is None else start, size if end is None else end
    low = min(max(start + size if start < 0 else start, 0), size)
    return low, min(max(end + size if end < 0 else end, low), size)


class _slice_backward(Op):
    """Zeros of `size` with `input` in the places of that slice."""

    exact = True
    node = "SliceBackwardBackward0"

    def meta(input, size, dim, start, end, step):  return input.like(shape=size)
    def d_input(g, dim, start, end, step):         return _slice(g, dim, start, end, step)

    def ref(xp, input, size, dim, start, end, step):
        out, d = xp.zeros(size, input.dtype), dim % len(size)
        low, high = clamped(size[d], start, end)
        out[(slice(None),) * d + (slice(low, high, step),)] = input
        return out


class narrow(Composite):
    """`length` elements of dimension `dim`, from `start` on."""

    def of(input, dim, start, length):
        shape = input.spec.shape
        need(shape, "narrow() cannot be applied to a 0-dim tensor.")
        need(length >= 0, f"narrow(): length must be non-negative. Got {length}.")
        if isinstance(start, door.tensor):
            need(start.ndim == 0 and start.dtype.category == 1, "start must be an 0-dim integral Tensor.")
        d, start = shapes.wrap_dim(dim, len(shape)), as_int(start)
        size = shape[d]
        need(-size <= start <= size, f"start out of range (expected to be in range of [{-size}, {size}], but got {start})",
             IndexError)
        start = start + size if start < 0 else start
        need(start + length <= size, f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
        return _slice(input, d, start, start + as_int(length), 1)


class diagonal(View):
    """The diagonal `offset` above the main one of dimensions `dim1` and `dim2`, as the last dimension."""

    def view(input, offset=0, dim1=0, dim2=1):
        a, b = shapes.wrap_dim(dim1, input.ndim), shapes.wrap_dim(dim2, input.ndim)
        need(a != b, f"diagonal dimensions cannot be identical {dim1}, {dim2}")
        rows, columns = input.shape[a], input.shape[b]
        n = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
        start = 0 if not n else offset * input.strides[b] if offset >= 0 else -offset * input.strides[a]
        rest = [d for d in range(input.ndim) if d not in (a, b)]
        return ([*[input.shape[d] for d in rest], n],
                [*[input.strides[d] for d in rest], input.strides[a] + input.strides[b]], start)

    def d_input(g, input_spec, offset, dim1, dim2): return _diagonal_backward(g, input_spec.shape, offset, dim1, dim2)


class _diagonal_backward(Op):
    """Zeros of `size` with `input` on that diagonal."""

    exact = True
    node = "DiagonalBackwardBackward0"

    def meta(input, size, offset, dim1, dim2):  return input.like(shape=size)
    def d_input(g, offset, dim1, dim2):         return diagonal(g, offset, dim1, dim2)

    def ref(xp, input, size, offset, dim1, dim2):
        out = xp.zeros(size, input.dtype)
        write_diagonal(xp, out, input, offset, dim1, dim2)
        return out


def write_diagonal(xp, out, input, offset, dim1, dim2):
    """Write `input` on a diagonal of `out`."""
    n = input.shape[-1]
    rows, columns = xp.arange(n) + max(-offset, 0), xp.arange(n) + max(offset, 0)
    xp.moveaxis(out, (dim1, dim2), (-2, -1))[..., rows, columns] = input


class unfold(View):
    """All windows of `size` elements of `dimension`, `step` apart; the window's own dimension comes last."""

    forms = "method"

    def view(input, dimension, size, step):
        d = shapes.wrap_dim(dimension, input.ndim)
        have, stride = (input.shape[d], input.strides[d]) if input.ndim else (1, 1)
        need(size >= 0, f"size is {size} but must be >= 0")
        need(size <= have, f"maximum size for tensor at dimension {d} is {have} but size is {size}")
        need(step > 0, f"step is {step} but must be > 0")
        if not input.ndim:
            return (size,), (1,), 0
        shape, strides = list(input.shape), list(input.strides)
        shape[d], strides[d] = (have - size) // step + 1, step * stride
        return (*shape, size), (*strides, stride), 0

    def d_input(g, input_spec, dimension, size, step):
        return _unfold_backward(g, input_spec.shape, dimension, size, step)


class _unfold_backward(Op):
    """Zeros of `size` with every window of `input` added where it was taken from."""

    node = "UnfoldBackwardBackward0"

    def meta(input, size, dimension, window, step):  return input.like(shape=size)
    def d_input(g, dimension, window, step):         return unfold(g, dimension, window, step)

    def ref(xp, input, size, dimension, window, step):
        out = xp.zeros(size, input.dtype)
        if not size:
            return out + input.sum()
        d = dimension % len(size)
        for k in range(window):
            out[(slice(None),) * d + (slice(k, k + step * (input.shape[d] - 1) + 1, step),)] += input[..., k]
        return out


# --- several parts --------------------------------------------------------------------------------------------------


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
    some = next(part for part in g if part is not None)
    return cat([part if part is not None else zeros(some, (*shape[:d], n, *shape[d + 1:]))
                for part, n in zip(g, sizes, strict=True)], d)


class split(Composite):
    """`tensor` cut along `dim` into parts of one size (the last may be smaller), or of the sizes in a list."""

    def of(tensor, split_size_or_sections=None, dim=0, *, split_size=None):
        given = split_size_or_sections if split_size is None else split_size
        if isinstance(given, (tuple, list)):
            return _split_with_sizes(tensor, ints((given,), "split_sizes"), dim)
        if isinstance(given, door.tensor) or hasattr(given, "__index__"):
            return _split(tensor, as_int(given), dim)
        raise TypeError(f"split(): argument 'split_size' must be int or a list of ints, not {type(given).__name__}")


def equal_sizes(size, part):
    """The sizes that cutting `size` into parts of `part` gives."""
    return [min(part, size - start) for start in range(0, size, part)] if part and size else [0 if not size else size]


class _split(View):
    """`input` in parts of `split_size` along `dim`."""

    def view(input, split_size, dim):
        need(input.ndim, "split expects at least a 1-dimensional tensor")
        need(split_size >= 0, f"split expects split_size be non-negative, but got split_size={split_size}")
        d = shapes.wrap_dim(dim, input.ndim)
        need(split_size > 0 or input.shape[d] == 0, f"split_size can only be 0 if dimension size is 0, but got dimension size of "
             f"{input.shape[d]}")
        return pieces(input, equal_sizes(input.shape[d], split_size), d)

    def d_input(g, input_spec, split_size, dim):
        return joined(g, input_spec, equal_sizes(input_spec.shape[dim], split_size), dim)


class split_with_sizes(Composite):
    """`input` cut along `dim` into parts of the sizes `split_sizes`."""

    def of(input, split_sizes, dim=0): return _split_with_sizes(input, ints((split_sizes,), "split_sizes"), dim)


class _split_with_sizes(View):
    """`input` in parts of `split_sizes` along `dim`."""

    def view(input, split_sizes, dim):
        need(input.ndim, "split_with_sizes expects at least a 1-dimensional tensor")
        d = shapes.wrap_dim(dim, input.ndim)
        need(all(n >= 0 for n in split_sizes), "split_with_sizes expects split_sizes have only non-negative entries, but got "
             f"split_sizes={list(split_sizes)}")
        need(sum(split_sizes) == input.shape[d], f"split_with_sizes expects split_sizes to sum exactly to {input.shape[d]} "
             f"(input tensor's size at dimension {dim}), but got split_sizes={list(split_sizes)}")
        return pieces(input, split_sizes, d)

    def d_input(g, input_spec, split_sizes, dim): return joined(g, input_spec, split_sizes, dim)


class chunk(Composite):
    """`input` cut along `dim` into at most `chunks` parts of equal size, the last of which may be smaller."""

    def of(input, chunks, dim=0):
        need(input.ndim, "chunk expects at least a 1-dimensional tensor")
        need(chunks > 0, f"chunk expects `chunks` to be greater than 0, got: {chunks}")
        size = input.spec.shape[shapes.wrap_dim(dim, input.ndim)]
        part = (size + chunks - 1) // chunks
        if part == 0 and size == 0:                    # the number of parts is asked for, though all are empty
            return _split_with_sizes(input, (0,) * chunks, dim)
        return _split(input, part, dim)


class tensor_split(Composite):
    """`input` cut along `dim` into that many parts, or at those indices; parts may be empty."""

    def of(input, indices_or_sections=None, dim=0, *, sections=None, indices=None):
        given = next(x for x in (indices_or_sections, sections, indices) if x is not None)
        need(input.ndim, "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
        d = shapes.wrap_dim(dim, input.ndim)
        size = input.spec.shape[d]
        if isinstance(given, door.tensor):
            need(given.device.type == "cpu", f"tensor_split expected tensor_indices_or_sections to be on cpu, but it's on "
                 f"{given.device}")
            need(given.dtype is dtypes.int64, "tensor_split expected tensor_indices_or_sections to have dtype of long, but got "
                 f"{given.dtype.cname}")
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
        return tuple([_slice(input, d, start, end, 1) for start, end in zip([0, *cuts], [*cuts, size], strict=True)])


def numpy_split(input, given, d, name):
    if isinstance(given, (tuple, list)):
        return tensor_split(input, given, d)
    sections, size = as_int(given), input.spec.shape[d]
    need(sections and size % sections == 0, f"torch.{name} attempted to split along dimension {d}, but the size of the dimension "
         f"{size} is not divisible by the split_size {sections}!")
    return tensor_split(input, sections, d)


class hsplit(Composite):
    """`input` cut along its second dimension (its first if it has one) into equal parts, or at indices."""

    def of(input, indices_or_sections=None, *, sections=None, indices=None):
        given = next(x for x in (indices_or_sections, sections, indices) if x is not None)
        need(input.ndim >= 1, "torch.hsplit requires a tensor with at least 1 dimension, but got a tensor with 0 dimensions!")
        return numpy_split(input, given, 0 if input.ndim == 1 else 1, "hsplit")


class vsplit(Composite):
    """`input` cut along its first dimension into equal parts, or at indices."""

    def of(input, indices_or_sections=None, *, sections=None, indices=None):
        given = next(x for x in (indices_or_sections, sections, indices) if x is not None)
        need(input.ndim >= 2, f"torch.vsplit requires a tensor with at least 2 dimension, but got a tensor with {input.ndim} "
             "dimensions!")
        return numpy_split(input, given, 0, "vsplit")


class dsplit(Composite):
    """`input` cut along its third dimension into equal parts, or at indices."""

    def of(input, indices_or_sections=None, *, sections=None, indices=None):
        given = next(x for x in (indices_or_sections, sections, indices) if x is not None)
        need(input.ndim >= 3, f"torch.dsplit requires a tensor with at least 3 dimension, but got a tensor with {input.ndim} "
             "dimensions!")
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
        return stack([part if part is not None else zeros(some, some.spec.shape) for part in g], dim)


class broadcast_tensors(Composite):
    """`tensors` expanded to their common shape."""

    forms = "function"

    def of(*tensors):
        if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
            tensors = tensors[0]
        shape = shapes.broadcast(*[x.spec.shape for x in tensors]) if tensors else ()
        return tuple([x if x.spec.shape == shape else _expand(x, shape) for x in tensors])


class broadcast_shapes(Composite):
    """The common shape of `shapes`."""

    forms = "function"

    def of(*given):
        sizes = [ints((s if isinstance(s, (tuple, list)) else (s,),)) for s in given]
        for size in sizes:
            need(all(n >= 0 for n in size), f"Attempting to broadcast a dimension with negative length! Got {list(size)}",
                 ValueError)
        return Size(shapes.broadcast(*sizes)) if sizes else Size(())


# --- joining --------------------------------------------------------------------------------------------------------


def promoted(kinds):
    """The dtype that all of `kinds` (Specs or arrays) become together."""
    return dtypes.result_of([(k.dtype if k.dtype.__class__ is dtypes.dtype else dtypes.from_numpy(k.dtype), 2 if k.ndim else 1)
                             for k in kinds])


def joined_spec(kinds, dim):
    """The Spec of `kinds` put one after the other along `dim`, or a refusal."""
    for at, k in enumerate(kinds):
        need(k.ndim, f"zero-dimensional tensor (at position {at}) cannot be concatenated")
    real = [(at, k) for at, k in enumerate(kinds) if k.shape != (0,)]        # PyTorch lets anything join a [0]
    first = real[0][1] if real else kinds[0]
    d = shapes.wrap_dim(dim, first.ndim) if real else 0
    total = 0
    for at, k in real:
        need(k.ndim == first.ndim, f"Tensors must have same number of dimensions: got {first.ndim} and {k.ndim}")
        for i, (a, b) in enumerate(zip(first.shape, k.shape, strict=True)):
            need(i == d or a == b, f"Sizes of tensors must match except in dimension {d}. Expected size {a} but got size {b} for "
                 f"tensor number {at} in the list.")
        total += k.shape[d]
    shape = (*first.shape[:d], total, *first.shape[d + 1:])
    lasts = all(shapes.suggests_channels_last(k.shape, k.strides) for k in kinds)
    return spec(promoted(kinds), shape, shapes.channels_last_strides(shape) if lasts else None, first.device)


def need_list(tensors, words, kind=RuntimeError):
    """Refuse what is not a list of tensors, or an empty one."""
    if not isinstance(tensors, (tuple, list)):
        raise TypeError(f"argument 'tensors' (position 1) must be tuple of Tensors, not {type(tensors).__name__}")
    need(tensors, words, kind)


class cat(Op):
    """`tensors` one after the other along `dim`.

    >>> torch.cat([torch.zeros(1, 2), torch.ones(2, 2)])
    tensor([[0., 0.],
            [1., 1.],
            [1., 1.]])
    """

    names = "concat concatenate"
    forms = "function"
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


class stack(Op):
    """`tensors` of one shape put side by side along a new dimension `dim`."""

    forms = "function"
    lists = True
    exact = True

    def meta(tensors, dim=0):
        need_list(tensors, "stack expects a non-empty TensorList")
        first = tensors[0]
        d = shapes.wrap_dim(dim, first.ndim + 1)
        for at, k in enumerate(tensors):
            need(k.shape == first.shape, f"stack expects each tensor to be equal size, but got {list(first.shape)} at entry 0 and "
                 f"{list(k.shape)} at entry {at}")
        shape = (*first.shape[:d], len(tensors), *first.shape[d:])
        strides = None
        if d < first.ndim and first.shape != (0,):                    # laid out as if joined, then seen with one more dimension
            whole = joined_spec(tensors, d)
            strides = shapes.view_strides(whole.shape, whole.strides, shape)
        return spec(promoted(tensors), shape, strides, first.device)

    def ref(xp, tensors, dim=0):
        dtype = promoted(tensors).np
        return xp.stack([a.astype(dtype, copy=False) for a in tensors], dim)

    def d_tensors(g, dim): return unbind(g, dim)


class hstack(Composite):
    """`tensors` joined along their second dimension, vectors along their only one."""

    forms = "function"

    def of(tensors):
        need_list(tensors, "hstack expects a non-empty TensorList")
        tensors = atleast_1d(tensors)
        return cat(tensors, 0 if tensors[0].ndim == 1 else 1)


class vstack(Composite):
    """`tensors` joined along their first dimension, vectors as rows."""

    names = "row_stack"
    forms = "function"

    def of(tensors):
        need_list(tensors, "vstack expects a non-empty TensorList")
        return cat(atleast_2d(tensors), 0)


class dstack(Composite):
    """`tensors` joined along their third dimension."""

    forms = "function"

    def of(tensors):
        need_list(tensors, "dstack expects a non-empty TensorList")
        return cat(atleast_3d(tensors), 2)


class column_stack(Composite):
    """`tensors` joined along their second dimension, vectors as columns."""

    forms = "function"

    def of(tensors):
        need_list(tensors, "column_stack expects a non-empty TensorList")
        return hstack([_reshape(x, (x.numel(), 1)) if x.ndim <= 1 else x for x in tensors])


class block_diag(Composite):
    """The matrices `tensors` along the diagonal of one that is zero elsewhere; a vector is one row."""

    forms = "function"

    def of(*tensors): return _block_diag(tensors) if tensors else _full((1, 0), 0, dtypes.default, default_device())


def as_matrix(shape):
    """Rows and columns of a block: a vector is one row, a number one element."""
    return (1, 1) if not shape else (1, shape[0]) if len(shape) == 1 else shape


class _block_diag(Op):
    """`tensors` along the diagonal."""

    lists = True
    exact = True

    def meta(tensors):
        for at, k in enumerate(tensors):
            need(k.ndim <= 2, f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {at} has {k.ndim} dimensions")
        blocks = [as_matrix(k.shape) for k in tensors]
        return spec(promoted(tensors), (sum(b[0] for b in blocks), sum(b[1] for b in blocks)), None, tensors[0].device)

    def ref(xp, tensors):
        blocks = [a.reshape(as_matrix(a.shape)) for a in tensors]
        out = xp.zeros((sum(b.shape[0] for b in blocks), sum(b.shape[1] for b in blocks)), promoted(tensors).np)
        row = column = 0
        for b in blocks:
            out[row:row + b.shape[0], column:column + b.shape[1]] = b
            row, column = row + b.shape[0], column + b.shape[1]
        return out

    def d_tensors(g, tensors_spec):
        made, row, column = [], 0, 0
        for k in tensors_spec:
            height, width = as_matrix(k.shape)
            made.append(_reshape(_slice(_slice(g, 0, row, row + height, 1), 1, column, column + width, 1), k.shape))
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
        need(indexing in ("ij", "xy"), f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
        first = tensors[0]
        for x in tensors:
            need(x.ndim <= 1, f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {x.spec}")
            need(x.dtype is first.dtype, "meshgrid expects all tensors to have the same dtype")
            need(x.device is first.device, "meshgrid expects all tensors to have the same device")
        n = len(tensors)
        places = [1, 0, *range(2, n)] if indexing == "xy" and n > 1 else list(range(n))
        shape = [0] * n
        for place, x in zip(places, tensors, strict=True):
            shape[place] = x.numel()
        return tuple([_expand(_view(x, (*[1] * place, -1 if x.numel() else 0, *[1] * (n - 1 - place))), tuple(shape))
                      for place, x in zip(places, tensors, strict=True)])


class cartesian_prod(Composite):
    """All combinations of one element from each of the vectors `tensors`, one per row."""

    forms = "function"

    def of(*tensors):
        for x in tensors:
            need(x.ndim == 1, f"Expect a 1D vector, but got shape {list(x.spec.shape)}")
        if len(tensors) == 1:
            return tensors[0]
        return stack([flatten(x) for x in meshgrid(*tensors)], 1)


class combinations(Composite):
    """All choices of `r` elements of the vector `input` in order, one per row."""

    def of(input, r=2, with_replacement=False):
        need(input.ndim == 1, f"Expect a 1D vector, but got shape {list(input.spec.shape)}")
        need(r >= 0, f"Expect a non-negative number, but got {r}")
        if r == 0:
            return _full((0,), 0, input.dtype, input.device)
        n = input.numel()
        mask = _full((n,) * r, True, dtypes.bool, input.device)
        places = meshgrid(*[arange(n, device=input.device)] * r)
        for a, b in itertools.pairwise(places):
            mask = mask & (a <= b if with_replacement else a < b)
        return stack([x.masked_select(mask) for x in meshgrid(*[input] * r)], 1)


# --- repeating ------------------------------------------------------------------------------------------------------


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
        need(lead >= 0, "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor, got "
             f"{len(repeats)} and {input.ndim}")
        shape = tuple([n * r for n, r in zip((1,) * lead + input.shape, repeats, strict=True)])
        need(all(n >= 0 for n in shape), f"Trying to create tensor with negative dimension {min(shape, default=0)}: {list(shape)}")
        return input.like(shape=shape)

    def ref(xp, input, repeats): return xp.tile(input, repeats)

    def d_input(g, input_spec, repeats):
        shape = (1,) * (len(repeats) - input_spec.ndim) + input_spec.shape
        if not shape:
            return g
        apart = tuple([n for pair in zip(repeats, shape, strict=True) for n in pair])
        return _view(_reshape(g, apart).sum(tuple(range(0, len(apart), 2))), input_spec.shape)


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
        if repeats is None:                            # repeat_interleave(counts): each index, that many times
            return _repeated_index(input, output_size)
        if dim is None:
            input, dim = flatten(input), 0
        d = shapes.wrap_dim(dim, input.ndim)
        size = input.spec.shape[d] if input.ndim else 1
        if isinstance(repeats, door.tensor):
            need(repeats.ndim <= 1, "repeats must be 0-dim or 1-dim tensor")
            if repeats.ndim == 0 or repeats.numel() == 1:
                repeats = _expand(_reshape(repeats, (1,)), (size,))
            need(repeats.numel() == size, "repeats must have the same size as input along dim, but got repeats.size(0) = "
                 f"{repeats.numel()} and input.size({d}) = {size}")
            return input.index_select(d, _repeated_index(repeats, output_size))
        repeats = as_int(repeats)
        need(repeats >= 0, f"Repeats must be non-negative, got {repeats}")
        need(output_size is None or output_size == size * repeats, "repeat_interleave: Invalid output_size, expected "
             f"{size * repeats} but got {output_size}")
        spread = unsqueeze(input, d + 1)
        shape = spread.spec.shape
        spread = clone(_expand(spread, (*shape[:d + 1], repeats, *shape[d + 2:])), memory_format=layout.contiguous_format)
        return flatten(spread, d, d + 1)


class _repeated_index(Op):
    """Each position of `repeats`, as many times as its element says."""

    exact = True
    eager = True

    def meta(repeats, output_size=None):
        need(repeats.ndim == 1, "repeat_interleave only accept 1D vector as repeat")
        need(repeats.dtype in (dtypes.int32, dtypes.int64), f"\"repeat_interleave_cpu\" not implemented for "
             f"'{repeats.dtype.cname}'", NotImplementedError)
        return None

    def ref(xp, repeats, output_size=None):
        need(not (repeats < 0).any(), "repeats can not be negative")
        out = xp.repeat(xp.arange(len(repeats), dtype=repeats.dtype), repeats)
        need(output_size is None or output_size == len(out), f"allocated size does not match required size: output_size is "
             f"{output_size}, the repeats add up to {len(out)}")
        return out


# --- moving elements ------------------------------------------------------------------------------------------------


class roll(Composite):
    """`input` shifted by `shifts` along `dims`, what leaves at one end coming in at the other; without dims, flattened."""

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
            shapes.wrap_dim(d, input.ndim)
        if not input.numel:
            return input.like(strides=shapes.preserved_strides(input.shape, input.strides))
        lasts = dims and shapes.suggests_channels_last(input.shape, input.strides)
        return input.like(shape=input.shape, strides=shapes.channels_last_strides(input.shape) if lasts else None)

    def ref(xp, input, shifts, dims):
        if not dims or not input.ndim:
            return xp.roll(input, shifts[0]) if input.ndim else input
        return xp.roll(input, shifts, dims)

    def d_input(g, shifts, dims): return _roll(g, tuple([-s for s in shifts]), dims)


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


class tril(Op):
    """The part of the matrices `input` on and below the `diagonal`-th diagonal, zero above."""

    forms = "function method inplace out"
    exact = True

    def meta(input, diagonal=0):
        need(input.ndim >= 2, f"tril: input tensor must have at least 2 dimensions, got {input.ndim}")
        return input.like(shape=input.shape)

    def ref(xp, input, diagonal=0):  return xp.tril(input, diagonal)
    def d_input(g, diagonal):        return tril(g, diagonal)


class triu(Op):
    """The part of the matrices `input` on and above the `diagonal`-th diagonal, zero below."""

    forms = "function method inplace out"
    exact = True

    def meta(input, diagonal=0):
        need(input.ndim >= 2, f"triu: input tensor must have at least 2 dimensions, got {input.ndim}")
        return input.like(shape=input.shape)

    def ref(xp, input, diagonal=0):  return xp.triu(input, diagonal)
    def d_input(g, diagonal):        return triu(g, diagonal)


class channel_shuffle(Op):
    """`input` with its channels (dimension 1) dealt out: of `groups` groups, the first of each, the second of each, …"""

    names = "native_channel_shuffle nn.functional.channel_shuffle"
    forms = "function"
    exact = True

    def meta(input, groups):
        need(input.ndim > 2, f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(input.shape)}")
        need(groups > 0, f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
        need(input.shape[1] % groups == 0, f"Number of channels must be divisible by groups. Got {input.shape[1]} channels and "
             f"{groups} groups.")
        lasts = shapes.suggests_channels_last(input.shape, input.strides)
        return input.like(shape=input.shape, strides=shapes.channels_last_strides(input.shape) if lasts else None)

    def ref(xp, input, groups):
        n, c, *rest = input.shape
        return input.reshape(n, groups, c // groups, *rest).swapaxes(1, 2).reshape(input.shape)

    def d_input(g, input_spec, groups):
        return channel_shuffle(g, input_spec.shape[1] // groups) if input_spec.numel else g


# --- diagonals ------------------------------------------------------------------------------------------------------


class diag(Composite):
    """The diagonal of a matrix, or the matrix with the vector `input` on its diagonal."""

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
    """Zeros with the last dimension of `input` on the diagonal `offset` above the main one of `dim1` and `dim2`."""

    exact = True

    def meta(input, offset=0, dim1=-2, dim2=-1):      return input.like(shape=embedded(input.shape, offset, dim1, dim2))
    def d_input(g, offset, dim1, dim2):               return diagonal(g, offset, dim1, dim2)

    def ref(xp, input, offset=0, dim1=-2, dim2=-1):
        out = xp.zeros(embedded(input.shape, offset, dim1, dim2), input.dtype)
        write_diagonal(xp, out, input, offset, dim1, dim2)
        return out


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


# --- a copy with one part replaced ----------------------------------------------------------------------------------


def replaced_spec(input, src, part):
    """The Spec of a copy of `input` with a part of the shape `part` replaced by `src`."""
    need(src.shape == tuple(part), "expected src to have a size equal to the slice of self. src size = "
         f"{list(src.shape)}, slice size = {list(part)}")
    return input.like(strides=shapes.preserved_strides(input.shape, input.strides))


class select_scatter(Op):
    """A copy of `input` with `src` at `index` of dimension `dim`."""

    exact = True

    def meta(input, src, dim, index):   return replaced_spec(input, src, select.view(input, dim, index)[0])
    def d_input(g, src_spec, dim, index):  return select_scatter(g, zeros(g, src_spec.shape), dim, index)
    def d_src(g, dim, index):           return select(g, dim, index)

    def ref(xp, input, src, dim, index):
        out = input.copy()
        out[(slice(None),) * (dim % input.ndim) + (index,)] = cast(xp, src, dtypes.from_numpy(input.dtype))
        return out


class slice_scatter(Op):
    """A copy of `input` with `src` in the places `start` to `end` by `step` of dimension `dim`."""

    exact = True

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


class as_strided_scatter(Composite):
    """A copy of `input` with `src` in the places that `as_strided(size, stride, storage_offset)` would look at."""

    def of(input, src, size, stride, storage_offset=None):
        seen = as_strided(input.detach(), size, stride, storage_offset)
        return _as_strided_scatter(input, src, seen.spec.shape, seen.spec.strides, seen.offset - input.offset)


class _as_strided_scatter(Op):
    """A copy of `input` with `src` where a look of `size` and `stride`, `delta` elements further on, would be."""

    exact = True

    def meta(input, src, size, stride, delta):
        need(not shapes.may_overlap(size, stride), "unsupported operation: more than one element of the written-to tensor refers "
             f"to a single memory location: size {list(size)}, stride {list(stride)}")
        return replaced_spec(input, src, size)

    def ref(xp, input, src, size, stride, delta):
        own = [step // input.itemsize for step in input.strides]
        n, low = stretch(input.shape, own, size, stride, delta)
        memory = xp.zeros(n, input.dtype)
        mine = strided_positions(xp, input.shape, own, -low)
        memory[mine] = input
        memory[strided_positions(xp, size, stride, delta - low)] = cast(xp, src, dtypes.from_numpy(input.dtype))
        return memory[mine]

    def grads(g, needs, input_spec, src_spec, size, stride, delta):
        n, low = stretch(input_spec.shape, input_spec.strides, size, stride, delta)
        memory = _scatter_strided(g, n, input_spec.strides, -low)
        part = zeros(g, size)
        return (_as_strided(_as_strided_scatter(memory, part, size, stride, delta - low), input_spec.shape, input_spec.strides,
                            -low) if needs[0] else None,
                _as_strided(memory, size, stride, delta - low) if needs[1] else None)
