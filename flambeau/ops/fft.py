"""Fourier transforms: `torch.fft`.

Three operations do all of it: complex to complex (`_c2c`), real to complex (`_r2c`) and, by half a spectrum, complex to
real (`_c2r`). Each is linear, so its derivative is its adjoint, one of the other directions with the same scaling. The
public functions bring their input to the right length and dtype, and choose.
"""
import math

from ..base import dtypes, shapes
from ..base.errors import need
from ..base.op import Composite, Op
from ..base.spec import spec
from .arith import conj
from .arrange import roll
from .create import zeros
from .pad import constant_pad_nd
from .ranges import arange
from .view import ints

# How a transform is scaled → NumPy's word for that, forward and backward.
FORWARD_NORMS = {"none": "backward", "by_n": "forward", "by_root_n": "ortho"}
BACKWARD_NORMS = {"none": "forward", "by_n": "backward", "by_root_n": "ortho"}


def spectrum_spec(input, dtype, shape, dim):
    """The Spec of a transform of `input` along `dim`, `shape` in all: as PyTorch's library leaves it, with the
    dimensions of `dim` innermost and the others around them, in the order in which they lay."""
    if len(shape) < 2:
        return spec(dtype, shape, None, input.device)
    around = sorted([d for d in range(len(shape)) if d not in dim], key=lambda d: -input.strides[d])
    strides, step = [0] * len(shape), 1
    for d in reversed((*around, *dim)):
        strides[d] = step
        step *= max(shape[d], 1)
    return spec(dtype, shape, tuple(strides), input.device)


def by_stride(input, dim):
    """`dim` with the outermost in memory first."""
    return tuple(sorted(dim, key=lambda d: -input.strides[d]))


def factor(scale, *sizes):
    """What a transform over so many points is multiplied by."""
    n = math.prod(sizes)
    return 1.0 if scale == "none" else 1.0 / n if scale == "by_n" else 1.0 / math.sqrt(n)


def native(k, input, kind, dim, inverse, scale, dtype, size):
    """For a body: the transform along one dimension, `size` elements of `dtype` of it, by the device's library."""
    shape = tuple([size if d == dim else n for d, n in enumerate(input.shape)])
    made = k.library("fft", (input,), [(dtype, shape)], (kind, dim, inverse, scale))
    return NotImplemented if made is None else made[0]


class _c2c(Op):
    """The transform of a complex `input` along `dim`, or its inverse. `inner`: a dimension that was transformed before,
    as a part of the same transform of a real tensor."""

    node = "FftC2CBackward0"

    def meta(input, dim, scale, forward, inner=()):
        return spectrum_spec(input, input.dtype, input.shape, (*by_stride(input, dim), *inner))

    def ref(xp, input, dim, scale, forward, inner=()):
        made = xp.fft.fftn(input, axes=dim, norm=FORWARD_NORMS[scale]) if forward else \
            xp.fft.ifftn(input, axes=dim, norm=BACKWARD_NORMS[scale])
        return made.astype(input.dtype, copy=False)

    def d_input(g, dim, scale, forward): return _c2c(g, dim, scale, not forward)

    def body(k, input, dim, scale, forward, inner=()):
        dim = sorted({d % input.ndim for d in dim}, reverse=True)
        scales = [1.0] * (len(dim) - 1) + [factor(scale, *[input.shape[d] for d in dim])]
        for d, by in zip(dim, scales, strict=True):
            input = native(k, input, "c2c", d, not forward, by, input.dtype, input.shape[d])
            if input is NotImplemented:
                break
        return input


class _r2c(Op):
    """The transform of a real `input` along one dimension: all of it, or the half that says all."""

    node = "FftR2CBackward0"

    def meta(input, dim, scale, onesided):
        shape = list(input.shape)
        if onesided:
            shape[dim] = shape[dim] // 2 + 1
        return spectrum_spec(input, input.dtype.to_complex(), tuple(shape), (dim,))

    def ref(xp, input, dim, scale, onesided):
        made = (xp.fft.rfft if onesided else xp.fft.fft)(input, axis=dim, norm=FORWARD_NORMS[scale])
        return made.astype(xp.result_type(input.dtype, xp.complex64), copy=False)

    def d_input(g, input_spec, dim, scale, onesided):
        if onesided:                      # what the other half would say is not asked for
            g = resized(g, dim, input_spec.shape[dim])
        return _c2c(g, (dim,), scale, False).real

    def body(k, input, dim, scale, onesided):
        n = input.shape[dim]
        return native(k, input, "r2c", dim % input.ndim, False, factor(scale, n), input.dtype.to_complex(),
                      n // 2 + 1 if onesided else n)


class _c2r(Op):
    """The inverse of `_r2c` on half a spectrum: `size` real numbers along `dim`."""

    node = "FftC2RBackward0"

    def meta(input, dim, scale, size):
        shape = list(input.shape)
        shape[dim] = size
        return spectrum_spec(input, input.dtype.to_real(), tuple(shape), (dim,))

    def ref(xp, input, dim, scale, size):
        made = xp.fft.irfft(input, size, axis=dim, norm=BACKWARD_NORMS[scale])
        return made.astype(input.real.dtype, copy=False)

    def d_input(g, dim, scale, size):
        half = _r2c(g, dim, scale, True)
        twice = size - half.shape[dim]    # all but the first, and for an even size the last, stand for two
        weights = zeros((half.shape[dim],), dtype=g.dtype, device=g.device) + 1
        weights[1:1 + twice] = 2
        return half * weights.reshape([-1 if d == dim else 1 for d in range(half.dim())])

    def body(k, input, dim, scale, size):
        return native(k, input, "c2r", dim % input.ndim, True, factor(scale, size), input.dtype.to_real(), size)


# --- arguments --------------------------------------------------------------------------------------------------------


def resized(input, dim, size):
    """`input` cut, or filled up with zeros, to `size` along `dim`."""
    have = input.shape[dim]
    if have == size:
        return input
    if have > size:
        return input.narrow(dim, 0, size)
    return constant_pad_nd(input, (0, 0) * (input.dim() - 1 - dim) + (0, size - have))


def promoted(input, what, complex=False, real=False):
    """`input` in a dtype that can be transformed."""
    dtype = input.dtype
    need(not real or not dtype.is_complex, f"{what} expects a real input tensor, but got {dtype.cname}")
    if dtype.category < 2:
        dtype = dtypes.default
    if dtype is dtypes.float16 and input.device.type == "cuda":
        raise NotImplementedError(f"{what} of float16 on a GPU gives complex32, which has no tensors here (see "
                                  "docs/dtypes.md); use input.float()")
    need(dtype.to_real().itemsize >= 4, f"Unsupported dtype {dtype.cname}")
    if complex:
        dtype = dtype.to_complex()
    return input if dtype is input.dtype else input.to(dtype)


def scaling(norm, forward):
    """How a transform in that direction is scaled where the caller says `norm`."""
    norm = "backward" if norm is None else norm
    need(norm in FORWARD_NORMS.values(), f'Invalid normalization mode: "{norm}"')
    if norm == "ortho":
        return "by_root_n"
    return "by_n" if (norm == "forward") == forward else "none"


def one(input, n, dim):
    """(dimension, size) of a transform along one dimension."""
    dim = shapes.wrap_dim(dim, input.dim(), scalar_ok=False)
    n = input.shape[dim] if n is None else n
    need(n >= 1, f"Invalid number of data points ({n}) specified")
    return dim, n


def several(input, s, dim, last=None):
    """(dimensions, sizes) of a transform along several; `last` makes the size of the last from that of the input."""
    s = None if s is None else ints((s,), "s")
    if dim is not None:
        dim = tuple(shapes.wrap_dim(d, input.dim(), scalar_ok=False) for d in ints((dim,), "dim"))
        need(len(set(dim)) == len(dim), "FFT dims must be unique")
    if s is not None:
        need(dim is None or len(dim) == len(s), "When given, dim and shape arguments must have the same length")
        need(len(s) <= input.dim(), f"Got shape with {len(s)} values but input tensor only has {input.dim()} "
                                    "dimensions.")
    if dim is None:
        dim = tuple(range(input.dim() - (len(s) if s is not None else input.dim()), input.dim()))
    sizes = [input.shape[d] if s is None or s[i] == -1 else s[i] for i, d in enumerate(dim)]
    if last is not None and dim and (s is None or s[-1] == -1):
        sizes[-1] = last(input.shape[dim[-1]])
    for n in sizes:
        need(n >= 1, f"Invalid number of data points ({n}) specified")
    return dim, sizes


def fitted(input, dim, sizes):
    """`input` with these sizes along these dimensions."""
    for d, n in zip(dim, sizes, strict=True):
        input = resized(input, d, n)
    return input


def transformed(input, n, dim, norm, forward, what):
    """A complex spectrum of any `input` along one dimension."""
    input = promoted(input, what)
    dim, n = one(input, n, dim)
    return whole_spectrum(resized(input, dim, n), dim, scaling(norm, forward), forward)


def whole_spectrum(input, dim, scale, forward):
    if input.is_complex():
        return _c2c(input, (dim,), scale, forward)
    made = _r2c(input, dim, scale, False)
    return made if forward else conj(made)


def n_transformed(input, s, dim, norm, forward, what):
    """A complex spectrum of any `input` along several dimensions."""
    input = promoted(input, what, complex=True)
    dim, sizes = several(input, s, dim)
    if not dim:
        return input.clone()
    return _c2c(fitted(input, dim, sizes), dim, scaling(norm, forward), forward)


def half_spectrum(input, s, dim, norm, forward, what):
    """Half the spectrum of a real `input` along several dimensions, the last of which is halved."""
    input = promoted(input, what, real=True)
    dim, sizes = several(input, s, dim)
    need(dim, f"{what} must transform at least one axis")
    scale = scaling(norm, forward)
    made = _r2c(fitted(input, dim, sizes), dim[-1], scale, True)
    made = made if forward else conj(made)
    if len(dim) == 1:
        return made
    return _c2c(made, dim[:-1], scale, forward, dim[-1:] if forward else ())     # in PyTorch too, the inverse is two


def from_half(input, s, dim, norm, forward, what):
    """What half a spectrum along several dimensions came from, a real tensor."""
    input = promoted(input, what, complex=True)
    dim, sizes = several(input, s, dim, last=lambda n: 2 * (n - 1))
    need(dim, f"{what} must transform at least one axis")
    scale = scaling(norm, forward)
    input = fitted(input, dim, [*sizes[:-1], sizes[-1] // 2 + 1])
    if len(dim) > 1:
        input = _c2c(input, dim[:-1], scale, forward)
    return _c2r(conj(input) if forward else input, dim[-1], scale, sizes[-1])


# --- along one dimension ----------------------------------------------------------------------------------------------


class _fft_fft(Composite):
    """The discrete Fourier transform of `input` along `dim`, over `n` points.

    `input` is cut or filled up with zeros to `n`. `norm` says how results are divided: "backward" (the default) not
    at all, "ortho" by the root of `n`, "forward" by `n`.

    >>> torch.fft.fft(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor([10.+0.j, -2.+2.j, -2.+0.j, -2.-2.j])
    """

    names = "fft.fft"
    forms = "function out"

    def of(input, n=None, dim=-1, norm=None):
        return transformed(input, n, dim, norm, True, "fft")


class _fft_ifft(Composite):
    """The inverse of `fft`: divided by `n`, unless `norm` says otherwise."""

    names = "fft.ifft"
    forms = "function out"

    def of(input, n=None, dim=-1, norm=None):
        return transformed(input, n, dim, norm, False, "ifft")


class _fft_rfft(Composite):
    """The first half of `fft` of a real `input`: the other half is its conjugate, backwards.

    >>> torch.fft.rfft(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor([10.+0.j, -2.+2.j, -2.+0.j])
    """

    names = "fft.rfft"
    forms = "function out"

    def of(input, n=None, dim=-1, norm=None):
        return half_spectrum(input, None if n is None else (n,), (dim,), norm, True, "rfft")


class _fft_irfft(Composite):
    """The inverse of `rfft`: `n` real numbers, by default twice what `input` has less two."""

    names = "fft.irfft"
    real_out = True
    forms = "function out"

    def of(input, n=None, dim=-1, norm=None):
        return from_half(input, None if n is None else (n,), (dim,), norm, False, "irfft")


class _fft_hfft(Composite):
    """The transform of what is Hermitian in time, by its first half: a real spectrum of `n` points."""

    names = "fft.hfft"
    real_out = True
    forms = "function out"

    def of(input, n=None, dim=-1, norm=None):
        return from_half(input, None if n is None else (n,), (dim,), norm, True, "hfft")


class _fft_ihfft(Composite):
    """The inverse of `hfft`."""

    names = "fft.ihfft"
    forms = "function out"

    def of(input, n=None, dim=-1, norm=None):
        return half_spectrum(input, None if n is None else (n,), (dim,), norm, False, "ihfft")


# --- along several ----------------------------------------------------------------------------------------------------

class _fft_fftn(Composite):
    """The transform of `input` along the dimensions `dim` (by default all, or the last that `s` has sizes for)."""

    names = "fft.fftn"
    forms = "function out"

    def of(input, s=None, dim=None, norm=None):
        return n_transformed(input, s, dim, norm, True, "fftn")


class _fft_ifftn(Composite):
    """The inverse of `fftn`."""

    names = "fft.ifftn"
    forms = "function out"

    def of(input, s=None, dim=None, norm=None):
        return n_transformed(input, s, dim, norm, False, "ifftn")


class _fft_rfftn(Composite):
    """The first half, along the last of `dim`, of `fftn` of a real `input`."""

    names = "fft.rfftn"
    forms = "function out"

    def of(input, s=None, dim=None, norm=None):
        return half_spectrum(input, s, dim, norm, True, "rfftn")


class _fft_irfftn(Composite):
    """The inverse of `rfftn`: a real tensor."""

    names = "fft.irfftn"
    real_out = True
    forms = "function out"

    def of(input, s=None, dim=None, norm=None):
        return from_half(input, s, dim, norm, False, "irfftn")


class _fft_hfftn(Composite):
    """The transform of what is Hermitian in time, by its first half along the last of `dim`."""

    names = "fft.hfftn"
    real_out = True
    forms = "function out"

    def of(input, s=None, dim=None, norm=None):
        return from_half(input, s, dim, norm, True, "hfftn")


class _fft_ihfftn(Composite):
    """The inverse of `hfftn`."""

    names = "fft.ihfftn"
    forms = "function out"

    def of(input, s=None, dim=None, norm=None):
        return half_spectrum(input, s, dim, norm, False, "ihfftn")


class _fft_fft2(Composite):
    """`fftn` along two dimensions, the last two by default."""

    names = "fft.fft2"
    forms = "function out"

    def of(input, s=None, dim=(-2, -1), norm=None):
        return _fft_fftn(input, s, dim, norm)


class _fft_ifft2(Composite):
    """`ifftn` along two dimensions, the last two by default."""

    names = "fft.ifft2"
    forms = "function out"

    def of(input, s=None, dim=(-2, -1), norm=None):
        return _fft_ifftn(input, s, dim, norm)


class _fft_rfft2(Composite):
    """`rfftn` along two dimensions, the last two by default."""

    names = "fft.rfft2"
    forms = "function out"

    def of(input, s=None, dim=(-2, -1), norm=None):
        return _fft_rfftn(input, s, dim, norm)


class _fft_irfft2(Composite):
    """`irfftn` along two dimensions, the last two by default."""

    names = "fft.irfft2"
    real_out = True
    forms = "function out"

    def of(input, s=None, dim=(-2, -1), norm=None):
        return _fft_irfftn(input, s, dim, norm)


class _fft_hfft2(Composite):
    """`hfftn` along two dimensions, the last two by default."""

    names = "fft.hfft2"
    real_out = True
    forms = "function out"

    def of(input, s=None, dim=(-2, -1), norm=None):
        return _fft_hfftn(input, s, dim, norm)


class _fft_ihfft2(Composite):
    """`ihfftn` along two dimensions, the last two by default."""

    names = "fft.ihfft2"
    forms = "function out"

    def of(input, s=None, dim=(-2, -1), norm=None):
        return _fft_ihfftn(input, s, dim, norm)


# --- frequencies ------------------------------------------------------------------------------------------------------


class _fft_fftfreq(Composite):
    """The frequencies that `fft` of `n` points, `d` apart, speaks of: the positive ones first.

    >>> torch.fft.fftfreq(4)
    tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """

    names = "fft.fftfreq"
    forms = "function out"
    creates = True

    def of(n, d=1.0, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
        made = arange(n, dtype=dtype or dtypes.get_default_dtype(), layout=layout, device=device, pin_memory=pin_memory)
        made[n - n // 2:] -= n
        made = made * (1.0 / (n * d))
        return made.requires_grad_() if requires_grad else made


class _fft_rfftfreq(Composite):
    """The frequencies that `rfft` of `n` points, `d` apart, speaks of."""

    names = "fft.rfftfreq"
    forms = "function out"
    creates = True

    def of(n, d=1.0, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
        made = arange(n // 2 + 1, dtype=dtype or dtypes.get_default_dtype(), layout=layout, device=device,
                      pin_memory=pin_memory) * (1.0 / (n * d))
        return made.requires_grad_() if requires_grad else made


class _fft_fftshift(Composite):
    """`input` with the zero frequency brought to the middle of the dimensions `dim` (by default all).

    >>> torch.fft.fftshift(torch.fft.fftfreq(4))
    tensor([-0.5000, -0.2500,  0.0000,  0.2500])
    """

    names = "fft.fftshift"

    def of(input, dim=None):
        dim = tuple(range(input.dim())) if dim is None else ints((dim,), "dim")
        return roll(input, [input.shape[d] // 2 for d in dim], dim)


class _fft_ifftshift(Composite):
    """The inverse of `fftshift`."""

    names = "fft.ifftshift"

    def of(input, dim=None):
        dim = tuple(range(input.dim())) if dim is None else ints((dim,), "dim")
        return roll(input, [(input.shape[d] + 1) // 2 for d in dim], dim)
