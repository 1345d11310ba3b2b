"""Complex numbers, element by element: their parts, angles and conjugates."""
import math

from ..base import dtypes
from ..base.errors import need
from ..base.op import Composite, Pointwise, View
from ..base.spec import spec
from .arith import conj, conjugate
from .math import zeros


class angle(Pointwise):
    """The angle of `input` in the complex plane, elementwise: 0 or pi for real numbers."""

    forms = "function method out"

    @classmethod
    def infer(op, args):
        out, casts, common = super().infer(args)
        wanted = dtypes.default if common.category < 2 else common.to_real()
        return spec(wanted, out.shape, None if common.is_complex else out.strides, out.device), casts, common

    def ref(xp, input):
        if input.dtype.kind == "c":
            return xp.angle(input)
        turned = xp.where(input < 0, math.pi, 0.0)
        return xp.where(xp.isnan(input), input, turned.astype(input.dtype)) if input.dtype.kind == "f" else turned

    def d_input(g, input):
        if not input.is_complex():
            return zeros(g)
        return (g * input / (input.abs() ** 2) * 1j).where(input != 0, 0)

    def body(k, input):
        if input.dtype.is_complex:
            return k.atan2(k.imag(input), k.real(input))
        dtype = input.dtype if input.dtype.is_floating_point else dtypes.float64
        turned = k.where(input < 0, math.pi, k.const(0.0, dtype))
        return k.where(k.isnan(input), input, turned) if input.dtype.is_floating_point else turned


class conj_(Composite):
    """The complex conjugate of `input`, elementwise: a copy for complex tensors, `input` itself for real ones."""

    def of(input): return _conj(input) if input.is_complex() else input


class _conj(Pointwise):
    """The conjugate of a complex tensor."""

    def ref(xp, input):  return xp.conjugate(input)
    def d_input(g):      return conj(g)
    def body(k, input):  return conjugate(k, input)


class conj_physical(Composite):
    """The complex conjugate of `input`, elementwise: a copy for complex tensors, `input` itself for real ones."""

    forms = "function method inplace out"
    strict_out = True
    no_overlap = True

    def of(input): return _conj_physical(input) if input.is_complex() else input


class _conj_physical(Pointwise):
    """The conjugate of a complex tensor."""

    def ref(xp, input):  return xp.conjugate(input)
    def d_input(g):      return conj(g)
    def body(k, input):  return conjugate(k, input)


class resolve_conj(Composite):
    """`input` itself: a conjugate is always in memory here."""

    def of(input): return input


class resolve_neg(Composite):
    """`input` itself: a negative is always in memory here."""

    def of(input): return input


class is_conj(Composite):
    """False: a conjugate is always in memory here."""

    def of(input): return False


class is_neg(Composite):
    """False: a negative is always in memory here."""

    def of(input): return False


class real(Composite):
    """A view of the real parts of `input`; a real `input` itself."""

    forms = "function property"

    def of(input): return _real(input) if input.is_complex() else input


class imag(Composite):
    """A view of the imaginary parts of `input`."""

    forms = "function property"

    def of(input):
        need(input.is_complex(), "imag is not implemented for tensors with non-complex dtypes.")
        return _imag(input)


class _real(View):
    """The real parts of a complex tensor."""

    node = "SelectBackward0"

    def view(input): return input.shape, [2 * s for s in input.strides], 0, input.dtype.to_real()
    def d_input(g):  return g


class _imag(View):
    """The imaginary parts of a complex tensor."""

    node = "SelectBackward0"

    def view(input): return input.shape, [2 * s for s in input.strides], 1, input.dtype.to_real()
    def d_input(g):  return g * 1j


class view_as_real(View):
    """A view of complex `input` as pairs of real and imaginary part, along a new last dimension."""

    def view(input):
        need(input.dtype.is_complex, "view_as_real is only supported for complex tensors")
        return (*input.shape, 2), (*[2 * s for s in input.strides], 1), 0, input.dtype.to_real()

    def d_input(g): return g.contiguous().view_as_complex()


class view_as_complex(Composite):
    """A view of `input`, whose last dimension holds pairs of real and imaginary part, as complex numbers."""

    by_specs = False          # but by where the tensor starts

    def of(input):
        need(input.storage_offset() % 2 == 0, "Tensor must have a storage_offset divisible by 2")
        return _view_as_complex(input)


class _view_as_complex(View):
    """Pairs of numbers seen as complex numbers."""

    node = "ViewAsComplexBackward0"

    def view(input):
        need(input.dtype in (dtypes.float32, dtypes.float64), "view_as_complex is only supported for half, float and "
             f"double tensors, but got a tensor of scalar type: {input.dtype.cname}")
        need(input.ndim, "Input tensor must have one or more dimensions")
        need(input.shape[-1] == 2, f"Tensor must have a last dimension of size 2, and it is {input.shape[-1]}")
        need(input.strides[-1] == 1, "Tensor must have a last dimension with stride 1")
        need(all(s % 2 == 0 for s in input.strides[:-1]),
             "Tensor must have a stride divisible by 2 for all but last dimension")
        return input.shape[:-1], [s // 2 for s in input.strides[:-1]], 0, input.dtype.to_complex()

    def d_input(g): return g.contiguous().view_as_real()


class _Parts(Pointwise):
    """What `complex` and `polar` share: two real tensors of one dtype give a complex one."""

    @classmethod
    def infer(op, args):
        out, casts, common = super().infer(args)
        return out.like(dtype=out.dtype.to_complex()), casts, common

    def check(dtype, first, second):
        for given in (first, second):
            need(given.dtype in (dtypes.float16, dtypes.float32, dtypes.float64), "Expected both inputs to be Half, "
                 f"Float or Double tensors but got {first.dtype.cname} and {second.dtype.cname}")
        need(first.dtype is second.dtype, f"Expected object of scalar type {first.dtype.cname} but got scalar type "
             f"{second.dtype.cname} for second argument")
        need(dtype is not dtypes.float16, "complex32 is not there: NumPy has no such dtype; convert both to float32",
             NotImplementedError)


def joined(xp, real, imag):
    """The complex array with these parts; not a sum, which would make nan of an infinite part."""
    out = xp.empty(xp.broadcast_shapes(real.shape, imag.shape), xp.result_type(real, xp.complex64))
    out.real[...], out.imag[...] = real, imag
    return out


class complex_(_Parts):
    """The complex numbers with parts `real` and `imag`, elementwise."""

    forms = "function out"
    numbers = ""
    strict_out = True

    def ref(xp, real, imag): return joined(xp, real, imag)
    def d_real(g): return g.real
    def d_imag(g): return g.imag
    def body(k, real, imag): return k.complex(real, imag)


class polar(_Parts):
    """The complex numbers with absolute value `abs` and angle `angle`, elementwise."""

    forms = "function out"
    numbers = ""
    strict_out = True

    def ref(xp, abs, angle): return joined(xp, abs * xp.cos(angle), abs * xp.sin(angle))
    def d_abs(g, out): return (conj(g) * out.sgn()).real
    def d_angle(g, out): return (conj(g) * (out * 1j)).real
    def body(k, abs, angle): return k.complex(abs * k.cos(angle), abs * k.sin(angle))
