"""Views and joins: other looks at the same memory, and tensors put together."""
from ..base import shapes
from ..base.errors import need
from ..base.op import View


class as_strided(View):
    """A look at `input`'s storage with the given size, strides and start."""

    def view(input, size, stride, delta=0): return size, stride, delta


class expand(View):
    """`input` seen as if repeated along dimensions of size one."""

    def view(input, size):
        lead = len(size) - input.ndim
        need(lead >= 0, f"expand({input.dtype.cname}Tensor{{{list(input.shape)}}}, size={list(size)}): the number of sizes "
             f"provided ({len(size)}) must be greater or equal to the number of dimensions in the tensor ({input.ndim})")
        wanted = []
        for d, n in enumerate(size):
            have = input.shape[d - lead] if d >= lead else None
            need(n >= 0 or (n == -1 and have is not None), f"The expanded size of the tensor ({n}) isn't allowed in a leading, "
                 f"non-existing dimension {d}")
            n = have if n == -1 else n
            need(have in (None, 1, n), f"The expanded size of the tensor ({n}) must match the existing size ({have}) at "
                 f"non-singleton dimension {d}.  Target sizes: {list(size)}.  Tensor sizes: {list(input.shape)}")
            wanted.append(n)
        return wanted, shapes.expand_strides(input.shape, input.strides, wanted), 0

    def d_input(g, input_spec): return g.sum_to_size(input_spec.shape)


class transpose(View):
    """`input` with dimensions `dim0` and `dim1` exchanged."""

    names = "swapaxes swapdims"

    def view(input, dim0, dim1):
        a, b = shapes.wrap_dim(dim0, input.ndim), shapes.wrap_dim(dim1, input.ndim)
        if not input.ndim:
            return (), (), 0
        order = list(range(input.ndim))
        order[a], order[b] = order[b], order[a]
        return [input.shape[d] for d in order], [input.strides[d] for d in order], 0

    def d_input(g, dim0, dim1): return g.transpose(dim0, dim1)
