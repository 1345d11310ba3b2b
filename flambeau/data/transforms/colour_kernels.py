"""The operations behind the functions of colour that are not made of others: blending, turning hues, tables of bytes.

Numbers come one for each sample, as tensors [N, 1, …], and every sample of a batch is computed in one pass. Roundings
are torchvision's: bytes are computed in float32 and cut off, `add` with a factor rounds once.
"""
import numpy as np

from ...base import dtypes
from ...base.op import Op
from ...base.shapes import preserved_strides

LUMA = (0.2989, 0.587, 0.114)          # what red, green and blue count in a grey image
# The largest values of integers, which mean 1.0; floats go up to 1.
MAX_VALUES = {dtypes.uint8: 255, dtypes.int8: 127, dtypes.int16: 32767, dtypes.uint16: 65535, dtypes.int32: 2**31 - 1,
              dtypes.int64: 2**63 - 1}
BYTE_SCALE = 255 + 1.0 - 0.001         # a float in [0, 1] times this, cut off, is a byte


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
        return within(k, made, max_value(image.dtype))


class added_product(Op):
    """`image` and the product of `other` and `factor`, rounded once."""

    forms = ""

    def meta(image, other, factor): return fresh(image)

    def ref(xp, image, other, factor):
        product = other.astype(xp.float64) * factor.astype(xp.float64)
        return (image.astype(xp.float64) + product).astype(image.dtype)

    def body(k, image, other, factor): return k.fma(other, factor, image)


def within(k, x, bound):
    """For a body: `x` between 0 and `bound`."""
    return k.minimum(k.maximum(x, 0), bound)


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
        byte = red.dtype is dtypes.uint8
        given = [k.cast(plane, turn.dtype) for plane in (red, green, blue)]
        made = hue_body(k, *[plane * (1 / 255) for plane in given] if byte else given, turn)
        return tuple(plane * BYTE_SCALE for plane in made) if byte else tuple(made)


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


def hue_body(k, r, g, b, turn):
    """For a body: `turned`, plane by plane."""
    one = k.const(1.0, turn.dtype)
    value, low = k.maximum(k.maximum(r, g), b), k.minimum(k.minimum(r, g), b)
    spread = value - low
    grey = spread == 0
    saturation = spread / k.where(grey, one, value)
    scale = k.where(grey, one, spread)
    red, green, blue = (value - r) / scale, (value - g) / scale, (value - b) / scale
    hue = k.where(value == r, blue - green, k.where(value == g, red + 2.0 - blue, green + 4.0 - red))
    hue = hue * (1 / 6) + 1.0
    hue = hue - k.floor(hue) + turn
    sixth = (hue - k.floor(hue)) * 6.0
    number = k.floor(sixth)
    product = saturation * (sixth - number)
    pale = one - saturation
    falling, rising, least = (within(k, x * value, 1) for x in (one - product, product + pale, pale))

    def pick(*levels):
        """The level of each sixth of the circle; what is rounded up to a whole turn is the first again."""
        made = levels[0]
        for i in range(1, 6):
            made = k.where(number == i, levels[i], made)
        return made

    return (pick(value, falling, least, least, rising, value), pick(rising, value, value, falling, least, least),
            pick(least, least, rising, value, value, falling))


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
    """`image` [N, C, P] of bytes with each element replaced by that element of its plane's row of `table` [N, C, 256]."""

    forms = ""
    exact = True

    def meta(image, table): return table.like(shape=image.shape)

    def ref(xp, image, table): return xp.take_along_axis(table, image.astype(xp.int64), 2)
    def body(k, image, table): return k.gather(table, 2, k.cast(image, dtypes.int64))


# --- colour jitter ----------------------------------------------------------------------------------------------------

# Note [Slots of a jitter]: every sample has its own order of brightness, contrast, saturation and hue, and all samples
# go through the same code. That is a row of slots,
#
#     blend blend hue blend blend  contrast  blend blend hue blend blend
#
# in which every order of the four has its places: of brightness and saturation, which are one formula, what comes before
# the hue stands before it, on its side of the contrast. A slot that is not used by a sample passes it on as it is.
# Contrast, which needs the mean of the whole image, stands there once: two passes over memory do all of it.

JITTER_BLENDS, JITTER_HUES = 8, 2
# columns of `slots`: for each blend (ratio, rest that counts for brightness, rest of the grey image, used); for each hue
# (turn, used); for the contrast (ratio, rest, used)
JITTER_COLUMNS = 3 * JITTER_BLENDS + 2 * JITTER_HUES + 3


def jitter_slots(order, brightness, contrast, saturation, hue):
    """The slots [N, columns] of samples, from the order [N, 4] of the four, and factors [N] or None for each."""
    n = len(order)
    slots = np.zeros((n, JITTER_COLUMNS))
    slots[:, :3 * JITTER_BLENDS:3] = 1
    place = np.argsort(order, 1)                            # when each of the four comes
    hue_first = 2 * JITTER_HUES + 3 * JITTER_BLENDS
    after_contrast = place > place[:, 1:2]
    same_side = after_contrast == after_contrast[:, 3:4]
    for factor, number, counts_grey, other in ((brightness, 0, 0.0, 2), (saturation, 2, 1.0, 0)):
        if factor is None:
            continue
        behind_hue = (place[:, number] > place[:, 3]) & same_side[:, number]
        second = (place[:, number] > place[:, other]) & (after_contrast[:, number] == after_contrast[:, other])
        at = 3 * (4 * after_contrast[:, number] + 2 * behind_hue + second)
        rows = np.arange(n)
        slots[rows, at], slots[rows, at + 1], slots[rows, at + 2] = factor, (1 - factor) * counts_grey, 1
    if hue is not None:
        at = 3 * JITTER_BLENDS + 2 * after_contrast[:, 3]
        slots[np.arange(n), at], slots[np.arange(n), at + 1] = hue, 1
    if contrast is not None:
        slots[:, hue_first], slots[:, hue_first + 1], slots[:, hue_first + 2] = contrast, 1 - contrast, 1
    return slots


class jittered(Op):
    """The planes `red`, `green` and `blue` [N, 1, P] through the `slots` [N, columns, 1]; see Note [Slots of a jitter]."""

    forms = ""

    def meta(red, green, blue, slots, used): return fresh(red), fresh(green), fresh(blue)

    def ref(xp, red, green, blue, slots, used):
        wide, byte = slots.dtype.type, red.dtype == xp.uint8
        bound = 255 if byte else 1
        rgb = xp.stack([red, green, blue]).astype(slots.dtype)

        def mixed(rgb, other, ratio, rest, on):
            made = xp.clip(((rgb * ratio).astype(float) + other.astype(float) * rest).astype(slots.dtype), 0, bound)
            return xp.where(on != 0, xp.floor(made) if byte else made, rgb)

        def grey(rgb):
            made = xp.zeros(rgb.shape[1:], float)
            for plane, share in zip(rgb, LUMA, strict=True):
                made = (made + plane.astype(float) * wide(share)).astype(slots.dtype).astype(float)
            return xp.floor(made).astype(slots.dtype) if byte else made.astype(slots.dtype)

        columns = [slots[:, i:i + 1] for i in range(slots.shape[1])]
        for side in (0, 1):
            for number in range(4):
                if number == 2:
                    turn, on = columns[3 * JITTER_BLENDS + 2 * side:][:2]
                    made = xp.stack(turned(xp, rgb * wide(1 / 255) if byte else rgb, turn))
                    rgb = xp.where(on != 0, xp.floor(made * wide(BYTE_SCALE)) if byte else made, rgb)
                ratio, rest, on = columns[3 * (4 * side + number):][:3]
                rgb = mixed(rgb, grey(rgb), ratio, rest, on)
            if side == 0:
                ratio, rest, on = columns[-3:]
                rgb = mixed(rgb, grey(rgb).mean(-1, keepdims=True), ratio, rest, on)
        return tuple(rgb.astype(red.dtype))

    def body(k, red, green, blue, slots, used):
        wide, byte = slots.dtype, red.dtype is dtypes.uint8
        bound = 255 if byte else 1
        rgb = [k.cast(plane, wide) for plane in (red, green, blue)]

        def column(i): return k.gather(slots, 1, k.const(i, dtypes.int64))

        def grey(rgb):
            made = k.fma(rgb[2], k.const(LUMA[2], wide), k.fma(rgb[1], k.const(LUMA[1], wide), rgb[0] * LUMA[0]))
            return k.floor(made) if byte else made

        def mixed(rgb, other, first):
            ratio, rest, on = column(first), column(first + 1), column(first + 2)
            made = [within(k, k.fma(other, rest, plane * ratio), bound) for plane in rgb]
            if byte:                            # a slot that is not used has a ratio of one, which changes no byte
                return [k.floor(plane) for plane in made]
            return [k.where(on != 0, new, plane) for new, plane in zip(made, rgb, strict=True)]

        for side in (0, 1):
            for number in range(4):
                if number == 2 and used[JITTER_BLENDS + side]:
                    first = 3 * JITTER_BLENDS + 2 * side
                    made = hue_body(k, *[plane * (1 / 255) for plane in rgb] if byte else rgb, column(first))
                    made = [k.floor(plane * BYTE_SCALE) for plane in made] if byte else made
                    rgb = [k.where(column(first + 1) != 0, new, plane) for new, plane in zip(made, rgb, strict=True)]
                if used[4 * side + number]:
                    rgb = mixed(rgb, grey(rgb), 3 * (4 * side + number))
            if side == 0 and used[JITTER_BLENDS + JITTER_HUES]:
                mean = k.sum(grey(rgb), (2,)) * (1 / red.shape[2])
                rgb = mixed(rgb, mean, JITTER_COLUMNS - 3)
        return tuple(rgb)
