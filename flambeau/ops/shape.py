"""Views with dimensions in another order, more of them or fewer."""
from operator import index as as_int

from ..base import shapes
from ..base.errors import need
from ..base.op import Composite, View
from .view import _alias, _reshape, _view, ints, several

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
