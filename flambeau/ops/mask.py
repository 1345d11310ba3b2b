"""By mask: filling, replacing and picking the elements where a boolean tensor is true."""
import numpy as np

from ..base import dtypes, shapes
from ..base.arguments import as_scalar, fitting
from ..base.bounds import hull, number
from ..base.errors import need
from ..base.op import NUMBER_CLASSES, Composite, Op
from ..base.spec import spec
from .convert import converted
from .index import MASK_DTYPE_MESSAGE, tensor_given, zeros
from .pieces import cat


def mask_given(input, mask, words):
    """Refuse what is no boolean mask; the common shape."""
    tensor_given(mask, "mask", 2)
    said = "unsigned char" if mask.dtype is dtypes.uint8 else mask.dtype.cname
    need(mask.dtype is dtypes.bool, words.replace("{dtype}", said))
    return shapes.broadcast(input.shape, mask.shape)


class masked_fill(Composite):
    """`input` with `value` (a number or zero-dimensional tensor) where `mask` is true.

    >>> torch.arange(4).masked_fill(torch.tensor([True, False, False, True]), -1)
    tensor([-1,  1,  2, -1])
    """

    forms = "function method inplace"
    overlap_ok = "deprecated"
    no_overlap = True

    def of(input, mask, value):
        return (_masked_fill if isinstance(value, NUMBER_CLASSES) else _masked_fill_tensor)(input, mask, value)


class _masked_fill(Op):
    """`masked_fill` with a number."""

    exact = True
    scalars = ("value",)

    def meta(input, mask, value):    return input.like(shape=mask_given(input, mask, MASK_DTYPE_MESSAGE))
    def verify(input_spec, value):   fitting(value, input_spec.dtype)

    def ref(xp, input, mask, value):
        return xp.where(mask, as_scalar(value, dtypes.from_numpy(input.dtype)), input)

    def d_input(g, mask):            return _masked_fill(g, mask, 0)
    def bounds(input, value): return hull(input, number(value))
    def body(k, input, mask, value): return k.where(mask, k.cast(value, input.dtype), input)


class _masked_fill_tensor(Op):
    """`masked_fill` with a zero-dimensional tensor."""

    called = "masked_fill"
    exact = True
    node = "MaskedFillBackward1"

    def meta(input, mask, value):
        tensor_given(value, "value", 3)
        need(value.ndim == 0, "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
             f"{value.ndim} dimension(s).")
        return input.like(shape=mask_given(input, mask, MASK_DTYPE_MESSAGE))

    def verify(input_spec, value): fitting(value.item(), input_spec.dtype)

    def ref(xp, input, mask, value):
        return xp.where(mask, as_scalar(value.item(), dtypes.from_numpy(input.dtype)), input)

    def d_input(g, mask):            return _masked_fill(g, mask, 0)
    def d_value(g, mask):            return _masked_fill(g, ~mask, 0).sum()
    def bounds(input, value): return hull(input, value)
    def body(k, input, mask, value): return k.where(mask, converted(k, value, input.dtype), input)


class masked_scatter(Op):
    """`input` with the elements where `mask` is true replaced by those of `source`, in order."""

    forms = "function method inplace"
    exact = True

    def meta(input, mask, source):
        tensor_given(source, "source", 3)
        need(source.dtype is input.dtype, f"expected self and source to have same dtypes but got {input.dtype.cname} "
                                          f"and {source.dtype.cname}")
        words = "masked_scatter_ only supports boolean masks, but got mask with dtype {dtype}"
        return spec(input.dtype, mask_given(input, mask, words), None, input.device)

    def verify(input_spec, mask, source_spec):
        shape = shapes.broadcast(input_spec.shape, mask.shape)
        wanted = int(np.count_nonzero(mask)) * (shapes.numel(shape) // max(mask.size, 1))
        need(source_spec.numel >= wanted, f"Number of elements of source < number of ones in mask: {source_spec.numel} "
                                          f"< {wanted}")

    def ref(xp, input, mask, source):
        shape = xp.broadcast_shapes(input.shape, mask.shape)
        out, mask = xp.array(xp.broadcast_to(input, shape), order="C"), xp.broadcast_to(mask, shape)
        out[mask] = source.reshape(-1)[:int(mask.sum())]
        return out

    def body(k, input, mask, source):
        shape = shapes.broadcast(input.shape, mask.shape)
        given = k.reshape(source, (source.numel,)), k.expand(mask, shape), k.expand(input, shape)
        made = k.library("spread", given, [(input.dtype, shape)], ())
        return NotImplemented if made is None else made[0]

    def d_input(g, mask): return _masked_fill(g, mask, 0)

    def d_source(g, mask, source_spec):
        used = g.masked_select(mask)
        rest = zeros(g, (source_spec.numel - used.numel(),))
        return cat((used, rest)).reshape(source_spec.shape)


class masked_select(Op):
    """The elements of `input` where `mask` is true, as a vector."""

    forms = "function method out"
    strict_out = True
    out_no_overlap = True
    exact = True

    def meta(input, mask):
        mask_given(input, mask, "expected BoolTensor for mask, got {dtype}")
        return None

    def ref(xp, input, mask):
        if input.shape != mask.shape:
            shape = xp.broadcast_shapes(input.shape, mask.shape)
            input, mask = xp.broadcast_to(input, shape), xp.broadcast_to(mask, shape)
        return input[mask].reshape(-1)

    def d_input(g, input_spec, mask):
        return zeros(g, shapes.broadcast(input_spec.shape, mask._spec.shape)).masked_scatter(mask, g)
