"""Reductions: sums, means, extremes over some or all dimensions."""
from ..base import dtypes, shapes
from ..base.op import Op
from ..base.spec import spec


class sum_(Op):
    """The sum of the elements of `input` over `dim` (all of them without one)."""

    node = "SumBackward1"

    def meta(input, dim=None, keepdim=False, *, dtype=None):
        kept = shapes.reduced(input.shape, shapes.wrap_dims(dim, input.ndim), keepdim)
        out = dtype or (dtypes.int64 if input.dtype.is_integral else input.dtype)
        return spec(out, kept, None, input.device)

    def ref(xp, input, dim=None, keepdim=False, *, dtype=None):
        dims = shapes.wrap_dims(dim, input.ndim)
        return input.sum(axis=dims, keepdims=keepdim)

    def d_input(g, input_spec, dim, keepdim):
        if not keepdim:
            for d in sorted(shapes.wrap_dims(dim, input_spec.ndim)):
                g = g.unsqueeze(d)
        return g.expand(input_spec.shape)
