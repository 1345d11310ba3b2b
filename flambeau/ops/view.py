"""Views of all of a tensor: its elements under another shape, strides or dtype.

Each public name that PyTorch overloads (`view(*shape)`, `view(dtype)`) is a front that reads its arguments and
calls a private `View`, which is what autograd sees.
"""
from operator import index as as_int

from ..base import dtypes, shapes
from ..base.errors import argument_error, need
from ..base.op import Composite, Op, View
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


class as_strided(Composite):
    """A look at `input`'s storage with that size and those strides, `storage_offset` elements into it."""

    by_specs = False          # but by where the tensor starts

    def of(input, size, stride, storage_offset=None):
        size, stride = ints((size,)), ints((stride,), "stride")
        start = input._offset if storage_offset is None else as_int(storage_offset)
        if len(size) != len(stride) or min((0, start, *size, *stride)) < 0:
            refuse_strided(size, stride, start)
        extent, itemsize = shapes.extent(size, stride), input._spec.dtype.itemsize
        end = (start + extent) * itemsize
        if extent and end > input._storage.nbytes:
            need(False, f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {start}, and itemsize "
                 f"{itemsize} requiring a storage size of {end} are out of bounds for storage of size "
                 f"{input._storage.nbytes}")
        return _as_strided(input, size, stride, start - input._offset)


def refuse_strided(size, stride, start):
    """Say what is wrong with a look of this size and strides, whose words are not made for one that is right."""
    need(len(size) == len(stride), f"mismatch in length of strides and shape: size={list(size)}, "
         f"stride={list(stride)}")
    need(all(s >= 0 for s in stride), "as_strided: Negative strides are not supported at the moment, got strides: "
                                      f"{list(stride)}")
    need(all(n >= 0 for n in size), f"Trying to create tensor with negative dimension {min(size, default=0)}: "
                                    f"{list(size)}")
    need(start >= 0, f"Tensor: invalid storage offset {start}")


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
