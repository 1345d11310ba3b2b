"""The operations behind the functions of colour that are not made of others: blending, turning hues, tables of bytes.

Numbers come one for each sample, as tensors [N, 1, …], and every sample of a batch is computed in one pass. Roundings
are torchvision's: bytes are computed in float32 and cut off, `add` with a factor rounds once.
"""
import numpy as np

from ...base import dtypes
from ...base.op import Op
from ...base.shapes import preserved_strides
from ...loops import colour
from ...loops.colour import BYTE_SCALE, LUMA

# The largest values of integers, which mean 1.0; floats go up to 1.
MAX_VALUES = {dtypes.uint8: 255, dtypes.int8: 127, dtypes.int16: 32767, dtypes.uint16: 65535, dtypes.int32: 2**31 - 1,
              dtypes.int64: 2**63 - 1}


def max_value(dtype):
    """What means full brightness in `dtype`."""
    return MAX_VALUES.get(dtype, 1)


def fresh(image):
    """The Spec of a new image like `image`, in its order of dimensions."""
    return image.like(strides=preserved_strides(image.shape, image.strides))


def computed_in(dtype):
    """The dtype that images of `dtype` are computed in."""
    return dtype if dtype.category == 2 else dtypes.float32


class blended(Op):
    """`ratio` of `image` and `rest` of `other`, kept within what `image`'s dtype can say; nothing is `image` itself.

    The product with `rest` is added with one rounding.
    """

    forms = ""

    def meta(image, other, ratio, rest): return fresh(image)

    def ref(xp, image, other, ratio, rest):
        wide, bound = ratio.dtype, image.dtype.type(1) if image.dtype.kind == "f" else np.iinfo(image.dtype).max
        first = (image.astype(wide) * ratio).astype(xp.float64)
        made = (first + other.astype(xp.float64) * rest.astype(xp.float64)).astype(wide)
        return xp.clip(made, 0, bound).astype(image.dtype)

    def body(k, image, other, ratio, rest):
        made = k.fma(k.cast(other, ratio.dtype), rest, k.cast(image, ratio.dtype) * ratio)
        return colour.within(k, made, max_value(image.dtype))


class added_product(Op):
    """`image` and the product of `other` and `factor`, rounded once."""

    forms = ""

    def meta(image, other, factor): return fresh(image)

    def ref(xp, image, other, factor):
        product = other.astype(xp.float64) * factor.astype(xp.float64)
        return (image.astype(xp.float64) + product).astype(image.dtype)

    def body(k, image, other, factor): return k.fma(other, factor, image)


class hue_turned(Op):
    """The planes `red`, `green` and `blue` with their hues turned by `turn`, one being the whole circle."""

    forms = ""

    def meta(red, green, blue, turn): return fresh(red), fresh(green), fresh(blue)

    def ref(xp, red, green, blue, turn):
        byte = red.dtype == xp.uint8
        given = xp.stack([red, green, blue]).astype(turn.dtype)
        made = xp.stack(turned(xp, given * turn.dtype.type(1 / 255) if byte else given, turn))
        return tuple((made * turn.dtype.type(BYTE_SCALE)).astype(xp.uint8) if byte else made.astype(red.dtype))

    def body(k, red, green, blue, turn):
        given = [k.cast(plane, turn.dtype) for plane in (red, green, blue)]
        return tuple(colour.turned(k, given, turn, red.dtype is dtypes.uint8))


def turned(xp, rgb, turn):
    """`hue_turned` of planes [3, …] in [0, 1], by way of hue, saturation and value."""
    low, value = rgb.min(0), rgb.max(0)
    spread = value - low
    grey = spread == 0
    saturation = spread / xp.where(grey, 1, value)
    red, green, blue = (value - rgb) / xp.where(grey, 1, spread)
    hue = xp.where(value == rgb[0], blue - green, xp.where(value == rgb[1], 2 + red - blue, 4 + green - red))
    hue = hue * rgb.dtype.type(1 / 6) + 1
    hue = hue - xp.floor(hue) + turn
    sixth = (hue - xp.floor(hue)) * 6
    part = sixth - xp.floor(sixth)
    number = xp.floor(sixth).astype(xp.int64) % 6
    falling = xp.clip((1 - saturation * part) * value, 0, 1)
    rising = xp.clip((saturation * part + (1 - saturation)) * value, 0, 1)
    least = xp.clip((1 - saturation) * value, 0, 1)
    return [xp.choose(number, [level[i] for i in order]) for level in [(value, least, falling, rising)]
            for order in ((0, 2, 1, 1, 3, 0), (3, 0, 0, 2, 1, 1), (1, 1, 3, 0, 0, 2))]


class equalizing_tables(Op):
    """For each plane of bytes of `image` [..., H, W], the table [..., 256] that spreads its values evenly."""

    forms = ""

    def meta(image): return image.like(shape=(*image.shape[:-2], 256))

    def ref(xp, image):
        planes = image.reshape(-1, image.shape[-2] * image.shape[-1])
        counts = xp.stack([xp.bincount(plane, minlength=256) for plane in planes])
        # the last value that occurs is left out: it goes to 255 by itself
        last = 255 - xp.argmax(counts[:, ::-1] > 0, 1)
        step = (planes.shape[1] - xp.take_along_axis(counts, last[:, None], 1)) // 255
        below = xp.cumsum(counts, 1) - counts
        table = xp.clip((below + step // 2) // xp.maximum(step, 1), 0, 255)
        table[:, 0] = 0
        return xp.where(step == 0, xp.arange(256), table).astype(xp.uint8).reshape(*image.shape[:-2], 256)


class looked_up(Op):
    """`image` [N, C, P] of bytes, each element replaced by that element of its plane's row of `table` [N, C, 256]."""

    forms = ""
    exact = True

    def meta(image, table): return table.like(shape=image.shape)

    def ref(xp, image, table): return xp.take_along_axis(table, image.astype(xp.int64), 2)
    def body(k, image, table): return k.gather(table, 2, k.cast(image, dtypes.int64))


# --- colour jitter ----------------------------------------------------------------------------------------------------


class jittered(Op):
    """`image` [N, 3, P] with brightness, contrast, saturation and hue (0 to 3) changed in each sample's own `order`
    [N, 4]; less than 0 is nothing. `factors` [N, 8] has the ratio and the rest of the first three, and the turn.
    """

    forms = ""

    def meta(image, order, factors): return image.like(shape=image.shape)

    def ref(xp, image, order, factors):
        byte, made = image.dtype == xp.uint8, image.astype(factors.dtype)
        for turn in range(order.shape[1]):
            for number in range(4):
                rows = xp.flatnonzero(order[:, turn] == number)
                if len(rows):
                    made[rows] = jitter_step(xp, made[rows], number, factors[rows], byte)
        return made.astype(image.dtype)

    def body(k, image, order, factors):
        made = k.library("jitter_colours", (image, order, factors), [(image.dtype, image.shape)], ())
        return NotImplemented if made is None else made[0]


def jitter_step(xp, rgb, number, factors, byte):
    """Samples [n, 3, P] after one of the four; bytes are whole numbers from 0 to 255."""
    wide = rgb.dtype.type
    if number == 3:
        planes = rgb.transpose(1, 0, 2)
        made = xp.stack(turned(xp, planes * wide(1 / 255) if byte else planes, factors[:, 6:7])).transpose(1, 0, 2)
        return xp.floor(made * wide(BYTE_SCALE)) if byte else made
    other = 0 * rgb[:, :1].astype(float)
    if number:
        for c, share in enumerate(LUMA):
            other = (other + rgb[:, c:c + 1].astype(float) * wide(share)).astype(wide).astype(float)
        other = xp.floor(other) if byte else other
        other = other if number == 2 else other.mean((1, 2), keepdims=True).astype(wide)
    ratio, rest = (factors[:, 2 * number + i, None, None] for i in (0, 1))
    made = ((rgb * ratio).astype(float) + other.astype(float) * rest.astype(float)).astype(wide)
    made = xp.clip(made, 0, 255 if byte else 1)
    return xp.floor(made) if byte else made
