"""Views: other looks at the same memory; and joining parts again, the way views of parts are differentiated.

Each public name that PyTorch overloads (`view(*shape)`, `view(dtype)`) is a front that reads its arguments and
calls a private `View`, which is what autograd sees.
"""
import itertools
from operator import index as as_int

from ..base import dtypes, shapes
from ..base.errors import argument_error, need
from ..base.op import Composite, Op, View, door
from ..base.spec import Size, Spec, spec
from .convert import zeros
from .create import _full


def ints(given, what="size"):
    """A tuple of ints from `*sizes` as users write them: `2, 3`, `(2, 3)`, `[2, 3]`, a Size."""
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        given = given[0]
    for n in given:
        if n.__class__ is not int:
            break
    else:
        return tuple(given)
    for at, n in enumerate(given):
        if not hasattr(n, "__index__") or isinstance(n, bool):
            raise argument_error(f"argument '{what}' must be tuple of ints, but found element of type "
                                 f"{type(n).__name__} at pos {at}")
    return tuple([as_int(n) for n in given])


def several(given, named, what):
    """The tuple of ints that came as `*given` or by its keyword `named`."""
    if named is not None:
        if given:
            raise TypeError(f"got multiple values for argument '{what}'")
        given = (named if isinstance(named, (tuple, list)) else (named,),)
    elif not given:
        raise TypeError(f"missing 1 required positional arguments: \"{what}\"")
    return ints(given, what)


# --- the geometry of one view -------------------------------------------------------------------------------


class as_strided(Composite):
    """A look at `input`'s storage with that size and those strides, `storage_offset` elements into it."""

    by_specs = False          # but by where the tensor starts

    def of(input, size, stride, storage_offset=None):
        size, stride = ints((size,)), ints((stride,), "stride")
        need(len(size) == len(stride), f"mismatch in length of strides and shape: size={list(size)}, "
             f"stride={list(stride)}")
        need(all(s >= 0 for s in stride), "as_strided: Negative strides are not supported at the moment, got strides: "
                                          f"{list(stride)}")
        need(all(n >= 0 for n in size), f"Trying to create tensor with negative dimension {min(size, default=0)}: "
                                        f"{list(size)}")
        start = input._offset if storage_offset is None else as_int(storage_offset)
        need(start >= 0, f"Tensor: invalid storage offset {start}")
        extent, itemsize = shapes.extent(size, stride), input.dtype.itemsize
        need(not extent or (start + extent) * itemsize <= input._storage.nbytes,
             f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {start}, and itemsize {itemsize} "
             f"requiring a storage size of {(start + extent) * itemsize} are out of bounds for storage of size "
             f"{input._storage.nbytes}")
        return _as_strided(input, size, stride, start - input._offset)


class _as_strided(View):
    """A look with the given size and strides, starting `delta` elements after `input` does."""

    def view(input, size, stride, delta): return size, stride, delta

    def d_input(g, input_spec, size, stride, delta):
        # Both looks are parts of one stretch of memory: add the gradient up there, read it where the input was.
        n, low = stretch(input_spec.shape, input_spec.strides, size, stride, delta)
        total = _scatter_strided(g, n, stride, delta - low)
        if shapes.may_overlap(input_spec.shape, input_spec.strides):
            # Elements of the input that share a cell share its gradient in equal parts, as in PyTorch.
            ones = _full(input_spec.shape, 1, g.dtype.to_real(), g.device)
            total = total / _scatter_strided(ones, n, input_spec.strides, -low).clamp(min=1)
        return _as_strided(total, input_spec.shape, input_spec.strides, -low)


def stretch(shape, strides, size, stride, delta):
    """The memory that a look and another, `delta` elements further on, span together: its length and start."""
    low = min(0, delta)
    return max(shapes.extent(shape, strides), shapes.extent(size, stride) + delta) - low, low


class _scatter_strided(Op):
    """`n` zeros, with each element of `input` added at the place that `stride` and `start` give it."""

    node = "AsStridedBackward0Backward0"

    def meta(input, n, stride, start):          return input.like(shape=(n,))
    def d_input(g, input_spec, stride, start):  return _as_strided(g, input_spec.shape, stride, start)

    def ref(xp, input, n, stride, start):
        out = xp.zeros(n, input.dtype)
        if not input.size:
            return out
        if shapes.may_overlap(input.shape, stride):
            xp.add.at(out, strided_positions(xp, input.shape, stride, start), input)
        else:
            steps = [step * input.itemsize for step in stride]
            xp.lib.stride_tricks.as_strided(out[start:], input.shape, steps)[...] = input
        return out


def strided_positions(xp, shape, stride, start):
    """Where each element of a look lies in its memory: an integer array of `shape`."""
    at = xp.full(shape, start, xp.int64)
    for d, (size, step) in enumerate(zip(shape, stride, strict=True)):
        at += (step * xp.arange(size)).reshape(size, *[1] * (len(shape) - 1 - d))
    return at


class _alias(View):
    """All of `input`, as a view."""

    node = "AliasBackward0"

    def view(input):  return input.shape, input.strides, 0
    def d_input(g):   return g


class view(Composite):
    """The same memory with another shape, or read as another dtype: `x.view(2, -1)`, `x.view(torch.int32)`.

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
                return input.detach()                      # which is what PyTorch makes of it: no view, no history
            return _view_as(input, dtype)
        return _view(input, several(shape, size, "size"))


class _view_as(Composite):
    """The same memory read as `dtype`."""

    by_specs = False          # but by where the tensor starts

    def of(input, dtype):
        return _view_dtype(input, dtype, input._offset % max(1, dtype.itemsize // input.dtype.itemsize))


class _view(View):
    """The same memory seen with the shape `size`."""

    def view(input, size):
        size = shapes.fill_in(size, input.numel)
        strides = shapes.view_strides(input.shape, input.strides, size)
        if strides is None:
            need(False, "view size is not compatible with input tensor's size and stride (at least one dimension spans "
                        "across two contiguous subspaces). Use .reshape(...) instead."
                 + unmergeable_words(input, size))
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
        cut_strides = [1] * input.ndim
        step = 1
        for d in range(input.ndim - 1, -1, -1):
            cut_strides[d] = step
            step *= sizes[d] if d != b else sizes[d] + 1
        if shapes.view_strides(sizes, cut_strides, size) is None:
            return (f"\n  {list(size)} merges dimensions {a} and {b}, which do not lie one after the other in memory: "
                    f"dimension {a} steps {strides[a]} elements, and {sizes[b]} (size) * {strides[b]} (stride) = "
                    f"{sizes[b] * strides[b]} would be needed (sizes {list(sizes)}, strides {list(strides)}).")
    return ""


class _view_dtype(View):
    """The same bytes read as `dtype`; `odd` is how far the start misses the new dtype's steps."""

    def view(input, dtype, odd):
        have, want = input.dtype.itemsize, dtype.itemsize
        sizes, strides = list(input.shape), list(input.strides)
        if have == want:
            return sizes, strides, 0, dtype
        said = f"to view {input.dtype.cname} as {dtype.cname} (different element sizes)"
        need(input.ndim, f"self.dim() cannot be 0 {said}")
        if have > want:
            ratio = have // want
            need(strides[-1] == 1, f"self.stride(-1) must be 1 to view {input.dtype.cname} as {dtype.cname} (different "
                                   f"element sizes), but got {strides[-1]}")
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
    """`input` seen with the shape of `other`.

    >>> torch.arange(4).view_as(torch.ones(2, 2))
    tensor([[0, 1],
            [2, 3]])
    """

    forms = "method"

    def of(input, other): return _view(input, other._spec.shape)


class reshape(Composite):
    """`input` with another shape: a view where its strides allow one, else a copy."""

    def of(input, *sizes, shape=None):
        return _reshape(input, several(sizes, shape, "shape"))


def _reshape(input, size):
    spec = input._spec
    wanted = shapes.fill_in(size, spec.numel)
    if spec.contiguous:
        return _view(input, wanted)
    if shapes.view_strides(spec.shape, spec.strides, wanted) is not None:
        return _reshape_alias(input, wanted)
    return _unsafe_view(input, wanted)


class _reshape_alias(_view):
    """`_view`, of a tensor that is not contiguous."""

    node = "ReshapeAliasBackward0"


class _unsafe_view(Op):
    """The elements of `input` in row-major order, copied into the shape `size`."""

    exact = True

    def meta(input, size):        return input.like(shape=size)
    def ref(xp, input, size):     return input.reshape(size)
    def d_input(g, input_spec):   return g.reshape(input_spec.shape)
    def body(k, input, size):     return k.reshape(input, size)


class reshape_as(Composite):
    """`input` with the shape of `other`: a view where its strides allow one, else a copy.

    >>> torch.arange(4).reshape_as(torch.ones(2, 2))
    tensor([[0, 1],
            [2, 3]])
    """

    forms = "method"

    def of(input, other): return _reshape(input, other._spec.shape)


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
        need(lead >= 0, f"expand(torch.{input.dtype.cname}Tensor{{{list(input.shape)}}}, size={list(size)}): the "
                        f"number of sizes provided ({len(size)}) must be greater or equal to the number of dimensions "
                        f"in the tensor ({input.ndim})")
        wanted, strides = list(size), [0] * len(size)
        for d in range(len(size) - 1, -1, -1):
            if d >= lead:
                have, stride = input.shape[d - lead], input.strides[d - lead]
            else:
                have, stride = 1, wanted[d + 1] * strides[d + 1] if input.ndim else 0
            if size[d] == -1:
                need(d >= lead, "The expanded size of the tensor (-1) isn't allowed in a leading, non-existing "
                     f"dimension {d}")
                wanted[d] = have
            if wanted[d] != have:
                need(have == 1 and wanted[d] >= 0, f"The expanded size of the tensor ({size[d]}) must match the "
                                                   f"existing size ({have}) at non-singleton dimension {d}.  Target "
                                                   f"sizes: {list(size)}.  Tensor sizes: {list(input.shape)}")
                stride = 0
            strides[d] = stride
        return wanted, strides, 0

    def d_input(g, input_spec): return g.sum_to_size(input_spec.shape)


class expand_as(Composite):
    """`input` expanded to the shape of `other`.

    >>> torch.tensor([1, 2]).expand_as(torch.ones(2, 2))
    tensor([[1, 2],
            [1, 2]])
    """

    forms = "method"

    def of(input, other): return _expand(input, other._spec.shape)


class broadcast_to(Composite):
    """`input` expanded to `size`."""

    def of(input, *sizes, size=None): return _expand(input, several(sizes, size, "size"))


class sum_to_size(Composite):
    """`input` summed down to `size`, the opposite of broadcasting from it.

    >>> torch.ones(3, 2).sum_to_size(1, 2)
    tensor([[3., 3.]])
    """

    forms = "method"

    def of(input, *sizes, size=None):
        shape, wanted = input._spec.shape, several(sizes, size, "size")
        if not wanted:
            return input.sum()
        lead = len(shape) - len(wanted)
        need(lead >= 0 and all(w == s or w == 1 for w, s in zip(wanted, shape[lead:], strict=True)),
             f"size {{{list(wanted)}}} is not expandable to size {{{list(shape)}}}.")
        dims = [d for d in range(len(shape)) if d < lead or (wanted[d - lead] == 1 and shape[d] != 1)]
        if dims:
            input = input.sum(dims, keepdim=True)
        return _view(input, wanted) if lead else input


# --- reordering dimensions ----------------------------------------------------------------------------------


class permute(Composite):
    """`input` with its dimensions in the order `dims`."""

    def of(input, *order, dims=None): return _permute(input, several(order, dims, "dims"))


class _permute(View):
    """`input` with its dimensions in the order `dims`."""

    def view(input, dims):
        need(len(dims) == input.ndim, "permute(sparse_coo): number of dimensions in the tensor input does not match "
                                      "the length of the desired ordering of dimensions i.e. input.dim() = "
                                      f"{input.ndim} is not equal to len(dims) = {len(dims)}")
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
        need(len(source) == len(destination), f"movedim: Invalid source or destination dims: source ({list(source)} "
                                              "dims) should contain the same number of dims as destination "
                                              f"({list(destination)} dims)")
        ndim = input._spec.ndim
        source = [shapes.wrap_dim(d, ndim) for d in source]
        destination = [shapes.wrap_dim(d, ndim) for d in destination]
        for name, given in (("source", source), ("destination", destination)):
            need(len(set(given)) == len(given), f"movedim: repeated dim in `{name}` ({given})")
        if not ndim:
            return _alias(input)
        order = [None] * ndim
        for s, d in zip(source, destination, strict=True):
            order[d] = s
        rest = iter([d for d in range(ndim) if d not in source])
        return _permute(input, tuple([next(rest) if d is None else d for d in order]))


# --- adding and removing dimensions -------------------------------------------------------------------------


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
        shape = input._spec.shape
        start, end = shapes.wrap_dim(start_dim, len(shape)), shapes.wrap_dim(end_dim, len(shape))
        if start > end:
            need(False, f"flatten() has invalid args: start_dim cannot come after end_dim, got {start_dim} and "
                        f"{end_dim}")
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
            raise TypeError("unflatten(): argument 'sizes' (position 2) must be tuple of ints, not "
                            f"{type(sizes).__name__}")
        shape, sizes = input._spec.shape, ints((sizes,), "sizes")
        need(shape, f"unflatten: Dimension specified as {dim} but tensor has no dimensions")
        d = shapes.wrap_dim(dim, len(shape))
        need(sizes, "unflatten: sizes must be non-empty")
        known = shapes.numel([n for n in sizes if n != -1])
        fits = shape[d] == known if -1 not in sizes else known and shape[d] % known == 0
        need(fits, f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {d} ({shape[d]}) in "
                   "the input tensor")
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
        def change(x): return _view(x, (1, 1)) if x.ndim == 0 else unsqueeze(x, 0) if x.ndim == 1 else x
        return each(tensors, change)


class atleast_3d(Composite):
    """`tensors` (one, several, or a list) with at least three dimensions each."""

    forms = "function"

    def of(*tensors):
        def change(x):
            if x.ndim == 0:
                return _view(x, (1, 1, 1))
            return unsqueeze(unsqueeze(x, 0) if x.ndim == 1 else x, -1) if x.ndim < 3 else x
        return each(tensors, change)


def each(tensors, change):
    """`change` of the one tensor, or a tuple of those of several."""
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        return tuple([change(x) for x in tensors[0]])
    return change(tensors[0]) if len(tensors) == 1 else tuple([change(x) for x in tensors])


# --- parts --------------------------------------------------------------------------------------------------


class select(View):
    """The part of `input` at `index` of dimension `dim`, without that dimension."""

    def view(input, dim, index):
        need(input.ndim, "select() cannot be applied to a 0-dim tensor.", IndexError)
        d = shapes.wrap_dim(dim, input.ndim)
        size = input.shape[d]
        need(-size <= index < size, f"select(): index {index} out of range for tensor of size {list(input.shape)} at "
                                    f"dimension {d}", IndexError)
        at = index + size if index < 0 else index
        return without(input.shape, d), without(input.strides, d), at * input.strides[d]

    def d_input(g, input_spec, dim, index): return _select_backward(g, input_spec.shape, dim, index)


def without(entries, d):
    """All but the `d`-th of `entries`."""
    return (*entries[:d], *entries[d + 1:])


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

    def body(k, input, size, dim, index): return at_select(k, input, size, dim, index, 0)


def at_select(k, part, size, dim, index, rest):
    """For a body: `part` at `index` of dimension `dim`, and `rest` in the other places of `size`."""
    d = dim % len(size)
    part = k.reshape(part, (*size[:d], 1, *size[d + 1:]))
    return k.where(k.index(d, size) == index % size[d], part, rest)


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

    def d_input(g, input_spec, dim, start, end, step):
        return _slice_backward(g, input_spec.shape, dim, start, end, step)


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

    def body(k, input, size, dim, start, end, step): return at_slice(k, input, size, dim, start, end, step, 0)


def at_slice(k, part, size, dim, start, end, step, rest):
    """For a body: `part` in the places of a slice of dimension `dim`, and `rest` in the others of `size`."""
    d = dim % len(size)
    low, high = clamped(size[d], start, end)
    at = k.index(d, size) - low
    inside = (at >= 0) & (at < high - low)
    nth = k.where(inside, at, 0)
    if step != 1:
        inside = inside & (k.irem(nth, step) == 0)
        nth = k.idiv(nth, step)
    return k.where(inside, k.gather(part, d, nth), rest)


class narrow(Composite):
    """`length` elements of dimension `dim`, from `start` on."""

    def of(input, dim, start, length):
        shape = input._spec.shape
        need(shape, "narrow() cannot be applied to a 0-dim tensor.")
        if length < 0:
            need(False, f"narrow(): length must be non-negative. Got {length}.")
        if isinstance(start, door.tensor):
            need(start.ndim == 0 and start.dtype.category == 1, "start must be an 0-dim integral Tensor.")
        d, start = shapes.wrap_dim(dim, len(shape)), as_int(start)
        size = shape[d]
        if not -size <= start <= size:
            need(False, f"start out of range (expected to be in range of [{-size}, {size}], but got {start})",
                 IndexError)
        start = start + size if start < 0 else start
        if start + length > size:
            need(False, f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
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

    def d_input(g, input_spec, offset, dim1, dim2):
        return _diagonal_backward(g, input_spec.shape, offset, dim1, dim2)


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

    def body(k, input, size, offset, dim1, dim2): return at_diagonal(k, input, size, offset, dim1, dim2, 0)


def at_diagonal(k, part, size, offset, dim1, dim2, rest):
    """For a body: `part` on a diagonal, and `rest` in the other places of `size`."""
    a, b, last = dim1 % len(size), dim2 % len(size), part.ndim - 1
    row, column = k.index(a, size), k.index(b, size)
    nth = k.index(last, (*part.shape[:-1], size[a])) - max(-offset, 0)         # which element stands in each row
    part = k.gather(part, last, k.where((nth >= 0) & (nth < part.shape[-1]), nth, 0))
    back = iter(range(last))
    order = [last if d == a else last + 1 if d == b else next(back) for d in range(len(size))]
    part = k.permute(k.reshape(part, (*part.shape, 1)), order)
    return k.where(column - row == offset, part, rest)


def write_diagonal(xp, out, input, offset, dim1, dim2):
    """Write `input` on a diagonal of `out`."""
    n = input.shape[-1]
    rows, columns = xp.arange(n) + max(-offset, 0), xp.arange(n) + max(offset, 0)
    xp.moveaxis(out, (dim1, dim2), (-2, -1))[..., rows, columns] = input


class unfold(View):
    """All windows of `size` elements of `dimension`, `step` apart; the window's own dimension comes last.

    >>> torch.arange(5).unfold(0, 3, 1)
    tensor([[0, 1, 2],
            [1, 2, 3],
            [2, 3, 4]])
    """

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


def promoted(parts):
    """The dtype that all of `parts` (Specs or arrays) become together."""
    def dtype_of(k): return k.dtype if k.dtype.__class__ is dtypes.dtype else dtypes.from_numpy(k.dtype)
    return dtypes.result_of([(dtype_of(k), 2 if k.ndim else 1) for k in parts])


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

    def body(k, tensors, dim=0):
        d, dtype, shape = shapes.wrap_dim(dim, tensors[0].ndim + 1), promoted(tensors), tensors[0].shape
        return k.concat([k.reshape(k.cast(a, dtype), (*shape[:d], 1, *shape[d:])) for a in tensors], d)
