"""Formulas of colour, in the words of bodies: what the loop language and the library's own kernels both compute.

Planes are expressions in float32 or wider, from 0 to 1, or whole numbers from 0 to 255 where `byte` says so.
"""

LUMA = (0.2989, 0.587, 0.114)          # what red, green and blue count in a grey image
BYTE_SCALE = 255 + 1.0 - 0.001         # a float in [0, 1] times this, cut off, is a byte


def within(k, x, bound):
    """`x` between 0 and `bound`."""
    return k.minimum(k.maximum(x, k.const(0.0, x.dtype)), k.const(bound, x.dtype))


def grey(k, rgb, byte):
    """The grey of three planes; bytes are cut off."""
    red, green, blue = rgb
    made = k.fma(green, k.const(LUMA[1], red.dtype), red * LUMA[0])
    made = k.fma(blue, k.const(LUMA[2], red.dtype), made)
    return k.floor(made) if byte else made


def mixed(k, plane, other, ratio, rest, byte):
    """`ratio` of `plane` and `rest` of `other`, the second added with one rounding; nothing beyond what there is."""
    made = within(k, k.fma(other, rest, plane * ratio), 255.0 if byte else 1.0)
    return k.floor(made) if byte else made


def turned(k, rgb, turn, byte):
    """Three planes with their hues turned by `turn`, one being the whole circle; bytes are cut off."""
    if byte:
        made = turned(k, [plane * (1 / 255) for plane in rgb], turn, False)
        return [k.floor(plane * BYTE_SCALE) for plane in made]
    r, g, b = rgb
    one = k.const(1.0, r.dtype)
    value, low = k.maximum(k.maximum(r, g), b), k.minimum(k.minimum(r, g), b)
    spread = value - low
    none = spread == k.const(0.0, r.dtype)
    saturation = spread / k.where(none, one, value)
    scale = k.where(none, one, spread)
    red, green, blue = (value - r) / scale, (value - g) / scale, (value - b) / scale
    hue = k.where(value == r, blue - green, k.where(value == g, red + 2.0 - blue, green + 4.0 - red))
    hue = hue * (1 / 6) + 1.0
    hue = hue - k.floor(hue) + turn
    sixth = (hue - k.floor(hue)) * 6.0
    number = k.floor(sixth)
    product = saturation * (sixth - number)
    pale = one - saturation
    falling, rising, least = (within(k, x * value, 1.0) for x in (one - product, product + pale, pale))
    # which sixth of the circle it is; what is rounded up to a whole turn is the first again
    is_sixth = [number == k.const(float(i), r.dtype) for i in range(1, 6)]

    def pick(*levels):
        made = levels[0]
        for here, level in zip(is_sixth, levels[1:], strict=True):
            made = k.where(here, level, made)
        return made

    return [pick(value, falling, least, least, rising, value), pick(rising, value, value, falling, least, least),
            pick(least, least, rising, value, value, falling)]
