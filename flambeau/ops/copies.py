"""Views with memory of their own: `permute_copy(x, dims)` is `x.permute(dims)`, copied."""
from ..base.op import Composite
from .complex import view_as_complex, view_as_real


def copied(view):
    """A view in memory of its own."""
    return view.clone().contiguous()


class Copy(Composite):
    """A view that is copied."""

    forms = "function out"
    strict_out = True


class alias_copy(Copy):
    """A copy of `input`."""

    def of(input): return copied(input)


class detach_copy(Copy):
    """A copy of `input`. It has the history of a copy: only the view is without one."""

    def of(input): return copied(input)


class view_copy(Copy):
    """A copy of `input` in the shape `size`, or read as another `dtype`."""

    def of(input, size=None, *, dtype=None):
        return copied(input.reshape(size) if dtype is None else input.view(dtype))


class expand_copy(Copy):
    """A copy of `input` repeated to `size`. `implicit` says nothing here."""

    def of(input, size, *, implicit=False): return copied(input.expand(size))


class permute_copy(Copy):
    """A copy of `input` with its dimensions in the order `dims`."""

    def of(input, dims): return copied(input.permute(dims))


class transpose_copy(Copy):
    """A copy of `input` with the dimensions `dim0` and `dim1` exchanged."""

    def of(input, dim0, dim1): return copied(input.transpose(dim0, dim1))


class t_copy(Copy):
    """A copy of the matrix `input` transposed."""

    def of(input): return copied(input.t())


class squeeze_copy(Copy):
    """A copy of `input` without the dimensions `dim` (none: all) of size one."""

    def of(input, dim=None): return copied(input.squeeze() if dim is None else input.squeeze(dim))


class unsqueeze_copy(Copy):
    """A copy of `input` with a dimension of size one before `dim`."""

    def of(input, dim): return copied(input.unsqueeze(dim))


class select_copy(Copy):
    """A copy of the slice at `index` along `dim` of `input`."""

    def of(input, dim, index): return copied(input.select(dim, index))


class narrow_copy(Copy):
    """A copy of `length` slices of `input` from `start` on, along `dim`."""

    forms = "function method out"

    def of(input, dim, start, length): return copied(input.narrow(dim, start, length))


class slice_copy(Copy):
    """A copy of every `step`th slice of `input` from `start` to `end`, along `dim`."""

    def of(input, dim=0, start=None, end=None, step=1):
        return copied(input[(slice(None),) * (dim % max(input.dim(), 1)) + (slice(start, end, step),)])


class diagonal_copy(Copy):
    """A copy of the diagonal of `input`, `offset` above the main one, between `dim1` and `dim2`."""

    def of(input, offset=0, dim1=0, dim2=1): return copied(input.diagonal(offset, dim1, dim2))


class as_strided_copy(Copy):
    """A copy of what `size`, `stride` and `storage_offset` say of the memory of `input`."""

    by_specs = False          # but by where the tensor starts

    def of(input, size, stride, storage_offset=None): return copied(input.as_strided(size, stride, storage_offset))


class unfold_copy(Copy):
    """A copy of the windows of `size`, `step` apart, along `dimension` of `input`."""

    def of(input, dimension, size, step): return copied(input.unfold(dimension, size, step))


class view_as_real_copy(Copy):
    """A copy of the complex `input` as pairs of real numbers."""

    def of(input): return copied(view_as_real(input))


class view_as_complex_copy(Copy):
    """A copy of the pairs of real numbers `input` as complex ones."""

    def of(input): return copied(view_as_complex(input))


class Copies(Composite):
    """Several views that are copied."""

    forms = "function out"
    out_each = "resized"


class split_copy(Copies):
    """Copies of the parts of `input` along `dim`, each of `split_size`; the last may be smaller."""

    out_each = "copied"

    def of(input, split_size, dim=0):
        if not hasattr(split_size, "__index__"):
            raise TypeError("split_copy(): argument 'split_size' (position 2) must be int, not "
                            f"{type(split_size).__name__}")
        return tuple(map(copied, input.split(split_size, dim)))


class split_with_sizes_copy(Copies):
    """Copies of the parts of `input` along `dim`, of the sizes `split_sizes`."""

    def of(input, split_sizes, dim=0): return tuple(map(copied, input.split_with_sizes(split_sizes, dim)))


class unbind_copy(Copies):
    """Copies of all parts of `input` along `dim`, without that dimension."""

    def of(input, dim=0): return tuple(map(copied, input.unbind(dim)))
