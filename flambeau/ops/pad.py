"""Padding, and channels turned into places.

`_resized` is the operation behind everything that goes dimension by dimension by the tables of base/axis_maps.py:
padding with an input's own elements here, interpolation in resample.py. Its gradient is the same tables transposed.
"""
from ..base import dtypes, shapes
from ..base.arguments import as_scalar
from ..base.axis_maps import repeats, taps_of, weighted_sum
from ..base.errors import need
from ..base.op import Composite, Op
from ..base.spec import spec
from .convert import number_for
from .pool import SUMMED_DTYPES, added_up, kept_layout, mapped, need_dtype, repeated, weighed
from .view import ints


class _resized(Op):
    """`input` with the maps `maps` (see base/axis_maps.py) along its last dimensions."""

    def meta(input, maps): return mapped(input, maps)

    def ref(xp, input, maps):
        for axis, m in enumerate(maps, -len(maps)):
            input = weighted_sum(xp, input, axis, taps_of(m))
        return input

    def d_input(g, maps): return _resized_back(g, maps)

    def body(k, input, maps):
        times = [repeats(m) for m in maps]
        if None not in times:
            return repeated(k, input, times)
        made = weighed(k, input, [m[2] for m in maps], maps)
        if made is NotImplemented and len(maps) == 1 and maps[0][0] in SOURCES:            # lines that are very long
            made = k.gather(input, -1, SOURCES[maps[0][0]](k, k.index(input.ndim - 1, (*input.shape[:-1], maps[0][2])),
                                                           *maps[0][1:]))
        return made


def reflected(k, at, size, out, before):
    """In a body: what the places `at` of a line read, as `reflect` in base/axis_maps.py has it, and the two below."""
    at = k.abs(at - before)
    return k.where(at >= size, 2 * (size - 1) - at, at)


def replicated(k, at, size, out, before):
    return k.minimum(k.maximum(at - before, 0), size - 1)


def turned(k, at, size, out, before, after):
    start, end = max(-before, 0), size - max(-after, 0)
    at = at - max(before, 0)
    return start + k.where(at < 0, at + (end - start), k.where(at >= end - start, at - (end - start), at))


SOURCES = {"reflect": reflected, "replicate": replicated, "circular": turned}


class _resized_back(Op):
    """The transpose of `_resized`."""

    def meta(grad, maps):
        shape = (*grad.shape[:grad.ndim - len(maps)], *[m[1] for m in maps])
        return spec(grad.dtype, shape, kept_layout(grad, shape), grad.device)

    def ref(xp, grad, maps):
        for axis, m in enumerate(maps, -len(maps)):
            grad = weighted_sum(xp, grad, axis, taps_of(m).back)
        return grad

    def d_grad(g, maps): return _resized(g, maps)

    def body(k, grad, maps):
        if grad.dtype not in SUMMED_DTYPES:
            return NotImplemented
        times = [repeats(m) for m in maps]
        if None not in times:
            return added_up(k, grad, times)
        made = weighed(k, grad, [m[1] for m in maps], maps, back=True)
        if made is NotImplemented and len(maps) == 1 and maps[0][0] == "reflect":          # lines that are very long
            made = reflected_back(k, grad, *maps[0][1:])
        return made


def reflected_back(k, grad, size, out, before):
    """In a body: what reaches each element of a line that was mirrored: from its own place, and from two others."""
    at = k.index(grad.ndim - 1, (*grad.shape[:-1], size))
    total = None
    for place, there in ((at + before, None), (before - at, at > 0), (before + 2 * (size - 1) - at, at < size - 1)):
        inside = (place >= 0) & (place < out)
        inside = inside if there is None else inside & there
        part = k.where(inside, k.gather(grad, -1, k.where(inside, place, 0)), 0)
        total = part if total is None else total + part
    return total


# --- padding ----------------------------------------------------------------------------------------------------------


class constant_pad_nd(Op):
    """`input` with `value` around it: `pad` holds how much before and after, from the last dimension on; less cuts."""

    forms = "function"
    exact = True
    scalars = ("value",)
    must_fit = {"value": "dtype"}

    def meta(input, pad, value=0):
        pad = ints((pad,), "pad")
        need(len(pad) % 2 == 0, f"Length of pad must be even but instead it equals {len(pad)}")
        need(len(pad) <= 2 * input.ndim, "Length of pad should be no more than twice the number of dimensions of the "
             f"input. Pad length is {len(pad)} while the input has {input.ndim} dimensions.")
        shape = list(input.shape)
        for d in range(len(pad) // 2):
            cut = min(pad[2 * d], 0) + min(pad[2 * d + 1], 0)
            shape[-1 - d] += pad[2 * d] + pad[2 * d + 1]
            need(shape[-1 - d] >= 0, f"The input size {input.shape[-1 - d]}, plus negative padding {pad[2 * d]} and "
                                     f"{pad[2 * d + 1]} resulted in a negative output size, which is invalid. Check "
                                     f"dimension {input.ndim - 1 - d} of your input.")
            need(input.shape[-1 - d] + cut >= 0, f"narrow(): length must be non-negative: padding of {pad[2 * d]} and "
                 f"{pad[2 * d + 1]} cuts {-cut} from dimension {input.ndim - 1 - d} of size {input.shape[-1 - d]}.")
        if any(n > 0 for n in pad):
            strides = kept_layout(input, shape)
        else:                                        # what is left is a copy of a part, which keeps its layout
            strides = shapes.preserved_strides(tuple(shape), input.strides)
        return spec(input.dtype, tuple(shape), strides, input.device)

    def ref(xp, input, pad, value=0):
        shape, source, target = list(input.shape), [slice(None)] * input.ndim, [slice(None)] * input.ndim
        for d in range(len(pad) // 2):
            before, after = pad[2 * d:2 * d + 2]
            size, at = shape[-1 - d], -1 - d
            shape[at] = size + before + after
            source[at] = slice(max(-before, 0), max(size - max(-after, 0), 0))
            target[at] = slice(max(before, 0), max(shape[at] - max(after, 0), 0))
        out = xp.full(shape, as_scalar(value, dtypes.from_numpy(input.dtype)), input.dtype)
        if all(s.stop is None or s.start < s.stop for s in source):
            out[tuple(target)] = input[tuple(source)]
        return out

    def d_input(g, pad): return constant_pad_nd(g, [-p for p in pad], 0)

    def body(k, input, pad, value=0):
        padded = [d for d in range(len(pad) // 2) if pad[2 * d] or pad[2 * d + 1]]
        if len(padded) != 1:
            return input if not padded else NotImplemented
        before, after = pad[2 * padded[0]:2 * padded[0] + 2]
        d = input.ndim - 1 - padded[0]
        n = input.shape[d]
        shape = (*input.shape[:d], n + before + after, *input.shape[d + 1:])
        at = k.index(d, shape) - before
        inside = (at >= 0) & (at < n)
        return k.where(inside, k.gather(input, d, k.where(inside, at, 0)), k.cast(value, input.dtype))


class _reflection_pad1d(_resized):   node = "ReflectionPad1DBackward0"
class _reflection_pad2d(_resized):   node = "ReflectionPad2DBackward0"
class _reflection_pad3d(_resized):   node = "ReflectionPad3DBackward0"
class _replication_pad1d(_resized):  node = "ReplicationPad1DBackward0"
class _replication_pad2d(_resized):  node = "ReplicationPad2DBackward0"
class _replication_pad3d(_resized):  node = "ReplicationPad3DBackward0"


class _pad_circular(_resized):
    """Padding that goes on at the other end."""

    def meta(input, maps): return mapped(input, maps, layout=False)


MIRRORED_PADS = {"reflect": (_reflection_pad1d, _reflection_pad2d, _reflection_pad3d),
                 "replicate": (_replication_pad1d, _replication_pad2d, _replication_pad3d),
                 "circular": (_pad_circular, _pad_circular, _pad_circular)}


def mirrored(input, pad, mode):
    """`input` padded from its own elements."""
    n = len(pad) // 2
    need(n in (1, 2, 3) and input.dim() in (n + 1, n + 2), f"Padding size {len(pad)} is not supported for "
         f"{input.dim()}D input tensor.", NotImplementedError)
    if mode != "circular":
        need(0 not in input.shape[input.dim() - n - 1:], f"Expected {n + 1}D or {n + 2}D (batch mode) tensor with "
             f"possibly 0 batch size and other non-zero dimensions for input, but got: {list(input.shape)}")
        need_dtype(input.dtype, input.dtype is not dtypes.bool, MIRRORED_PADS[mode][n - 1].__name__.strip("_"))
    maps = []
    for d in range(n):
        before, after = pad[2 * d:2 * d + 2]
        size = input.shape[-1 - d]
        out = size + before + after
        if mode == "reflect":
            need(before < size and after < size, "Padding size should be less than the corresponding input dimension, "
                                                 f"but got: padding ({before}, {after}) at dimension "
                                                 f"{input.dim() - 1 - d} of input {list(input.shape)}")
        elif mode == "circular":
            need(before <= size and after <= size, "Padding value causes wrapping around more than once, got padding "
                 f"({before}, {after}) at dimension {input.dim() - 1 - d} of input {list(input.shape)}")
        need(out >= 0 and (mode != "circular" or out == 0 or size + min(before, 0) + min(after, 0) > 0),
             f"Negative padding value is resulting in an empty dimension: {size} plus {before} and {after}")
        need(out > 0 or n > 1 or mode == "circular", f"input (W: {size}) is too small. Calculated output W: {out}")
        maps.insert(0, (mode, size, out, before, *[after] * (mode == "circular")))
    return MIRRORED_PADS[mode][n - 1](input, tuple(maps))


class _pad(Composite):
    """`input` with more around it (or less): `pad` is (before, after) for the last dimension, then the one before, ….

    >>> torch.nn.functional.pad(torch.tensor([[1., 2., 3.]]), (1, 2), mode="reflect")
    tensor([[2., 1., 2., 3., 2., 1.]])
    """

    names = "nn.functional.pad"
    forms = "function"

    def of(input, pad, mode="constant", value=None):
        need(isinstance(pad, (tuple, list)), "argument 'pad' (position 2) must be tuple of ints, not "
             f"{type(pad).__name__}",
             TypeError)
        pad = tuple(ints((pad,), "pad"))
        need(len(pad) % 2 == 0, f"Padding length must be divisible by 2, got {list(pad)}")
        need(len(pad) <= 2 * input.dim(), "Padding length should be less than or equal to two times the input "
             f"dimension but got padding length {len(pad)} and input of dimension {input.dim()}")
        if mode == "constant":
            need(not isinstance(value, complex), "argument 'value' (position 4) must be float, not complex", TypeError)
            value = 0.0 if value is None else value if isinstance(value, float) else float(value)
            return constant_pad_nd(input, pad, number_for(value, input.dtype))
        need(value is None or value == 0, f"Padding mode \"{mode}\" doesn't take in value argument, got {value}")
        need(mode in MIRRORED_PADS, f"Unrecognised padding mode {mode}", NotImplementedError)
        return mirrored(input, pad, mode)


# --- channels to places -----------------------------------------------------------------------------------------------


class pixel_shuffle(Op):
    """`input` [*, C * r * r, H, W] as [*, C, H * r, W * r]: each channel in its place of an r by r tile."""

    names = "nn.functional.pixel_shuffle"
    forms = "function"
    exact = True

    def meta(input, upscale_factor):
        r = upscale_factor
        need(input.ndim >= 3, "pixel_shuffle expects input to have at least 3 dimensions, but got input with "
             f"{input.ndim} dimension(s)")
        need(r > 0, f"pixel_shuffle expects a positive upscale_factor, but got {r}")
        *lead, c, h, w = input.shape
        need(c % (r * r) == 0, "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
             f"upscale_factor, but input.size(-3)={c} is not divisible by {r * r}")
        shape = (*lead, c // (r * r), h * r, w * r)
        return spec(input.dtype, shape, kept_layout(input, shape), input.device)

    def ref(xp, input, upscale_factor):
        r = upscale_factor
        *lead, c, h, w = input.shape
        out = xp.moveaxis(input.reshape(*lead, c // (r * r), r, r, h, w), (-4, -3), (-3, -1))     # [*, c, h, r, w, r]
        return out.reshape(*lead, c // (r * r), h * r, w * r)

    def d_input(g, upscale_factor): return pixel_unshuffle(g, upscale_factor)

    def body(k, input, upscale_factor):
        r, n = upscale_factor, input.ndim - 3
        *lead, c, h, w = input.shape
        x = k.reshape(input, (*lead, c // (r * r), r, r, h, w))
        x = k.permute(x, (*range(n + 1), n + 3, n + 1, n + 4, n + 2))                             # [*, c, h, r, w, r]
        return k.reshape(x, (*lead, c // (r * r), h * r, w * r))


class pixel_unshuffle(Op):
    """`input` [*, C, H * r, W * r] as [*, C * r * r, H, W]: each place of an r by r tile in its channel."""

    names = "nn.functional.pixel_unshuffle"
    forms = "function"
    exact = True

    def meta(input, downscale_factor):
        r = downscale_factor
        need(input.ndim >= 3, "pixel_unshuffle expects input to have at least 3 dimensions, but got input with "
             f"{input.ndim} dimension(s)")
        need(r > 0, f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
        *lead, c, h, w = input.shape
        need(h % r == 0, f"pixel_unshuffle expects height to be divisible by downscale_factor, but input.size(-2)={h} "
             f"is not divisible by {r}")
        need(w % r == 0, f"pixel_unshuffle expects width to be divisible by downscale_factor, but input.size(-1)={w} "
             f"is not divisible by {r}")
        shape = (*lead, c * r * r, h // r, w // r) if input.numel else input.shape   # PyTorch: an empty one stays as is
        return spec(input.dtype, shape, kept_layout(input, shape), input.device)

    def ref(xp, input, downscale_factor):
        if not input.size:
            return input
        r = downscale_factor
        *lead, c, h, w = input.shape
        out = xp.moveaxis(input.reshape(*lead, c, h // r, r, w // r, r), (-3, -1), (-4, -3))      # [*, c, r, r, h, w]
        return out.reshape(*lead, c * r * r, h // r, w // r)

    def d_input(g, input_spec, downscale_factor): return pixel_shuffle(g, downscale_factor) if input_spec.numel else g

    def body(k, input, downscale_factor):
        r, n = downscale_factor, input.ndim - 3
        *lead, c, h, w = input.shape
        x = k.reshape(input, (*lead, c, h // r, r, w // r, r))
        x = k.permute(x, (*range(n + 1), n + 2, n + 4, n + 1, n + 3))                             # [*, c, r, r, h, w]
        return k.reshape(x, (*lead, c * r * r, h // r, w // r))


class channel_shuffle(Op):
    """`input` [N, C, *] with its channels dealt out: the first of each of `groups` groups, then the second, …."""

    names = "nn.functional.channel_shuffle native_channel_shuffle nn.functional.native_channel_shuffle"
    forms = "function"
    exact = True

    def meta(input, groups):
        need(input.ndim > 2, "channel_shuffle expects input with > 2 dims, but got input with sizes "
             f"{list(input.shape)}")
        need(groups > 0, f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
        need(input.shape[1] % groups == 0, f"Number of channels must be divisible by groups. Got {input.shape[1]} "
             f"channels and {groups} groups.")
        return spec(input.dtype, input.shape, kept_layout(input, input.shape), input.device)

    def ref(xp, input, groups):
        n, c, *rest = input.shape
        return input.reshape(n, groups, c // groups, *rest).swapaxes(1, 2).reshape(input.shape)

    def d_input(g, groups): return channel_shuffle(g, max(g.shape[1] // groups, 1))

    def body(k, input, groups):
        n, c, *rest = input.shape
        x = k.reshape(input, (n, groups, c // groups, *rest))
        return k.reshape(k.permute(x, (0, 2, 1, *range(3, x.ndim))), input.shape)
