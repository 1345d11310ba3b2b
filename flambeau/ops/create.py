"""New tensors from sizes and numbers."""
from ..base import dtypes
from ..base.op import Composite, Op
from ..base.spec import place, spec


class _full(Op):
    """A tensor of `size` filled with `fill_value`."""

    scalars = ("fill_value",)
    exact = True
    forms = "function"

    def meta(size, fill_value, dtype, device, strides=None): return spec(dtype, size, strides, device)
    def ref(xp, size, fill_value, dtype, device, strides=None): return xp.full(size, fill_value, dtype.np)


class zeros_like(Composite):
    """Zeros of the shape and dtype of `input`."""

    forms = "function"

    def of(input, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, memory_format=None):
        return _full(input.spec.shape, 0, dtype or input.dtype, input.device if device is None else place(device))


class ones_like(Composite):
    """Ones of the shape and dtype of `input`."""

    forms = "function"

    def of(input, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, memory_format=None):
        return _full(input.spec.shape, 1, dtype or input.dtype, input.device if device is None else place(device))


DEFAULT = dtypes.get_default_dtype
