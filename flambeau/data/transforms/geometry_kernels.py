"""The operations behind the functions that move pixels: images read at other places, each sample of a batch at its own.

    warped         along the lines of an affine or a perspective map, with its numbers for each sample
    sampled        at places that a grid says
    resampled      along one dimension by a table: resizing, and crops that are resized, with a table for each sample
    boxes_resized  along both, as one step of the library
    picked         along one dimension by an index: what is nearest, and borders made of the image itself
    cropped        boxes of one size, each sample's from a corner of its own
    flipped        mirrored, those of the samples that are chosen; by rows as one step of the library (mirrored_rows)

Positions are computed as torchvision and PyTorch compute them, rounding for rounding: which of two neighbours is the
nearest pixel is a matter of the last digit.
"""
from ...base import dtypes
from ...base.op import Op
from ...base.shapes import contiguous_strides

MOST_UNROLLED_TAPS = 24       # more neighbours than this are added up in a loop of their own


def column(k, table, i):
    """For a body: column `i` of a table [N, columns, 1, 1]."""
    return k.gather(table, 1, k.const(i, dtypes.int64))


# --- places -----------------------------------------------------------------------------------------------------------


class warped(Op):
    """`image` [N, C, 1, H * W] of `size` (H, W), read for each place of an image of size `out` where a map sends it.

    `table` [N, 6, 1, 1] (an affine map: places counted from the centre) or [N, 8, 1, 1] (a perspective one) gives
    places from -1 to 1. Outside is zero, or `fill` [.., C, 1, 1], mixed in by how much of a place is outside.
    """

    forms = ""

    def meta(image, table, fill, size, out, nearest):
        return image.like(shape=(*image.shape[:2], *out))

    def ref(xp, image, table, fill, size, out, nearest):
        wide = table.dtype
        t = [table[:, i] for i in range(table.shape[1])]               # [N, 1, 1] each
        perspective = len(t) == 8
        shift = [0.5, 0.5] if perspective else [(1 - n) / 2 for n in out]
        y, x = (xp.arange(n, dtype=wide) + wide.type(s) for n, s in zip(out, shift, strict=True))
        y = y[:, None]
        at = [fused(xp, y, t[i + 1], x * t[i]) + t[i + 2] for i in (0, 3)]
        if perspective:
            below = fused(xp, y, t[7], x * t[6]) + wide.type(1)
            at = [coordinate / below - wide.type(1) for coordinate in at]
        return read_at(xp, image, at[0][:, None], at[1][:, None], fill, size, nearest)

    def body(k, image, table, fill, size, out, nearest):
        if table.dtype is dtypes.float32:
            made = k.library("warp_places", (image, table, table if fill is None else fill),
                             [(image.dtype, (*image.shape[:2], *out))], (size, nearest, fill is not None))
            if made is not None:
                return made[0]
        wide, perspective = table.dtype, table.shape[1] == 8
        shift = [0.5, 0.5] if perspective else [(1 - n) / 2 for n in out]
        y = k.cast(k.index(2, (1, 1, out[0], 1)), wide) + shift[0]
        x = k.cast(k.index(3, (1, 1, 1, out[1])), wide) + shift[1]
        at = [k.fma(y, column(k, table, i + 1), x * column(k, table, i)) + column(k, table, i + 2) for i in (0, 3)]
        if perspective:
            below = k.fma(y, column(k, table, 7), x * column(k, table, 6)) + 1.0
            at = [coordinate / below - 1.0 for coordinate in at]
        return read_body(k, image, *at, fill, size, nearest)


class sampled(Op):
    """`image` [N, C, 1, H * W] of `size` (H, W) at the places (`x`, `y`) [N or 1, 1, H', W'], each from -1 to 1."""

    forms = ""

    def meta(image, x, y, fill, size, nearest): return image.like(shape=(*image.shape[:2], *x.shape[2:]))

    def ref(xp, image, x, y, fill, size, nearest):
        shape = (len(image), *x.shape[1:])
        return read_at(xp, image, xp.broadcast_to(x, shape), xp.broadcast_to(y, shape), fill, size, nearest)

    def body(k, image, x, y, fill, size, nearest): return read_body(k, image, x, y, fill, size, nearest)


def fused(xp, a, b, c):
    """`a * b + c`, rounded once (where they are in single precision)."""
    return (a.astype(xp.float64) * b.astype(xp.float64) + c.astype(xp.float64)).astype(c.dtype)


def read_at(xp, image, x, y, fill, size, nearest):
    """`image` [N, C, 1, H * W] at the places `x`, `y` [N, 1, H', W'] from -1 to 1."""
    wide, (height, width) = x.dtype, size
    x, y = (fused(xp, at + wide.type(1), wide.type(n / 2), wide.type(-0.5)) for at, n in ((x, width), (y, height)))
    flat = image[:, :, 0].astype(wide)

    def pixel(row, col):
        inside = (row > -1) & (row < height) & (col > -1) & (col < width)
        at = xp.where(inside, row * width + col, 0).astype(xp.int64)
        found = xp.take_along_axis(flat, at.reshape(len(at), 1, -1), 2).reshape(len(at), flat.shape[1], *at.shape[2:])
        return xp.where(inside, found, 0), inside

    if nearest:
        made, inside = pixel(xp.rint(y), xp.rint(x))
        made = made if fill is None else xp.where(inside, made, fill)
    else:
        top, left = xp.floor(y), xp.floor(x)
        down, right = y - top, x - left
        made, covered = 0, 0
        for row, vertical in ((top, 1 - down), (top + 1, down)):
            for col, level in ((left + 1, right), (left, 1 - right))[::1 if row is top else -1]:
                found, inside = pixel(row, col)
                share = level * vertical
                made, covered = fused(xp, found, share, wide.type(0) + made), covered + inside * share
        made = made if fill is None else (made - fill) * covered + fill
    return (made if image.dtype.kind == "f" else xp.rint(made)).astype(image.dtype)


def read_body(k, image, x, y, fill, size, nearest):
    """For a body: `read_at`."""
    wide, (height, width) = x.dtype, size
    x, y = (k.fma(at + 1.0, k.const(n / 2, wide), k.const(-0.5, wide)) for at, n in ((x, width), (y, height)))
    zero = k.const(0.0, wide)

    def pixel(row, col):
        inside = (row > -1) & (row < height) & (col > -1) & (col < width)
        at = k.cast(k.where(inside, row, zero), dtypes.int32) * width + k.cast(k.where(inside, col, zero), dtypes.int32)
        return k.where(inside, k.cast(k.gather(image, 3, k.cast(at, dtypes.int64)), wide), zero), inside

    if nearest:
        made, inside = pixel(k.rint(y), k.rint(x))
        made = made if fill is None else k.where(inside, made, fill)
    else:
        top, left = k.floor(y), k.floor(x)
        down, right = y - top, x - left
        made = covered = zero
        for row, vertical in ((top, 1.0 - down), (top + 1.0, down)):
            # the top right first, then the others as one reads: the order in which PyTorch's compiler adds them up
            for col, level in ((left + 1.0, right), (left, 1.0 - right))[::1 if row is top else -1]:
                found, inside = pixel(row, col)
                share = level * vertical
                made, covered = k.fma(found, share, made), covered + k.where(inside, share, zero)
        made = made if fill is None else (made - fill) * covered + fill
    return made if image.dtype.category == 2 else k.rint(made)


# --- tables -----------------------------------------------------------------------------------------------------------


class resampled(Op):
    """`image` [N, C, H, W] along its dimension `dim` (2 or 3) by a table for each sample, or for all.

    Output o adds up the elements from `first` [N, …, out, …] on, each times its `weight` [taps, N, …, out, …]. With
    `bits`, the weights are whole numbers that mean so many times 2 ** -bits (bytes, as Pillow and PyTorch do it).
    """

    forms = ""

    def meta(image, first, weight, bits, dim):
        shape = list(image.shape)
        shape[dim] = first.shape[dim]
        return image.like(shape=tuple(shape))

    def ref(xp, image, first, weight, bits, dim): return summed_taps(xp, image, first, weight, bits, dim)

    def body(k, image, first, weight, bits, dim):
        taps, wide = weight.shape[0], weight.dtype
        if taps > MOST_UNROLLED_TAPS:
            return NotImplemented
        made = None if bits is None else k.const(1, wide) << (bits - 1)
        shape = weight.shape[1:]
        for tap in range(taps):
            one = k.reshape(k.gather(weight, 0, k.const(tap, dtypes.int64)), shape)
            part = k.cast(k.gather(image, dim, first + tap), wide)
            if made is None:
                made = part * one
            else:
                made = made + part * one if bits is not None else k.fma(part, one, made)
        if bits is not None:
            made = k.minimum(k.maximum(made >> bits, 0), 255)
        return made


def summed_taps(xp, image, first, weight, bits, dim):
    """`resampled`, tap by tap."""
    wide = weight.dtype
    made = 0 if bits is None else xp.left_shift(1, bits - 1)
    shape = tuple(n if d in (0, dim) else 1 for d, n in enumerate((len(image), 1, *first.shape[2:])))
    for tap in range(len(weight)):
        at = xp.broadcast_to(first + tap, shape)
        made = made + xp.take_along_axis(image, at, dim).astype(wide) * weight[tap]
    if bits is not None:
        made = xp.clip(xp.right_shift(made, bits), 0, 255)
    return made.astype(image.dtype)


class boxes_resized(Op):
    """`image` [N, C, H, W] by tables along x and y: `first` [N or 1, out] and `weight` [N or 1, out, taps].

    Bytes have weights that are whole numbers, of which `bits` [N or 1] are behind the point, and are bytes in between.
    """

    forms = ""

    def meta(image, first_x, weight_x, bits_x, first_y, weight_y, bits_y):
        return image.like(shape=(*image.shape[:2], first_y.shape[1], first_x.shape[1]))

    def ref(xp, image, first_x, weight_x, bits_x, first_y, weight_y, bits_y):
        for dim, first, weight, bits in ((3, first_x, weight_x, bits_x), (2, first_y, weight_y, bits_y)):
            side = (first.shape[1], 1) if dim == 2 else (1, first.shape[1])
            weight = weight.transpose(2, 0, 1).reshape(weight.shape[2], len(weight), 1, *side)
            bits = bits[:, None, None, None] if image.dtype == xp.uint8 else None
            image = summed_taps(xp, image, first.reshape(len(first), 1, *side).astype(xp.int64), weight, bits, dim)
        return image

    def body(k, image, first_x, weight_x, bits_x, first_y, weight_y, bits_y):
        shape = (*image.shape[:2], first_y.shape[1], first_x.shape[1])
        made = k.library("resize_boxes", (image, first_x, weight_x, bits_x, first_y, weight_y, bits_y),
                         [(image.dtype, shape)], ())
        return NotImplemented if made is None else made[0]


class picked(Op):
    """`image` [N, C, H, W] at the positions `index` [N or 1, 1, …] along its dimension `dim` (2 or 3), in range."""

    forms = ""
    exact = True

    def meta(image, index, dim):
        shape = list(image.shape)
        shape[dim] = index.shape[dim]
        return image.like(shape=tuple(shape))

    def ref(xp, image, index, dim):
        if len(index) == 1:
            return xp.take(image, index.reshape(-1), dim)
        return xp.take_along_axis(image, index, dim)

    def body(k, image, index, dim): return k.gather(image, dim, index)


class cropped(Op):
    """Of `image` [N, C, H, W], boxes of `size` (h, w) that begin at `corner` [N, 2, 1, 1]; outside of it, zero.

    With `outside`, boxes may reach beyond the image.
    """

    forms = ""
    exact = True

    def meta(image, corner, size, outside): return image.like(shape=(*image.shape[:2], *size))

    def ref(xp, image, corner, size, outside):
        made = xp.zeros((*image.shape[:2], *size), image.dtype)
        for n, (top, left) in enumerate(corner[:, :, 0, 0].tolist()):
            low, high = [max(top, 0), max(left, 0)], [min(top + size[0], image.shape[2]),
                                                      min(left + size[1], image.shape[3])]
            if low[0] < high[0] and low[1] < high[1]:
                made[n, :, low[0] - top:high[0] - top, low[1] - left:high[1] - left] = \
                    image[n, :, low[0]:high[0], low[1]:high[1]]
        return made

    def body(k, image, corner, size, outside):
        height, width = image.shape[2:]
        row = column(k, corner, 0) + k.index(2, (1, 1, size[0], 1))
        col = column(k, corner, 1) + k.index(3, (1, 1, 1, size[1]))
        flat = k.reshape(image, (*image.shape[:2], 1, height * width))
        if not outside:
            return k.gather(flat, 3, row * width + col)
        inside = (row >= 0) & (row < height) & (col >= 0) & (col < width)
        return k.where(inside, k.gather(flat, 3, k.where(inside, row * width + col, 0)), k.const(0, image.dtype))


class flipped(Op):
    """`image` [N, …] mirrored along `dim`, those of its samples that `chosen` [N, 1, …] says."""

    forms = ""
    exact = True

    def meta(image, chosen, dim): return image.like(strides=contiguous_strides(image.shape))

    def ref(xp, image, chosen, dim): return xp.where(chosen, xp.flip(image, dim), image)

    def body(k, image, chosen, dim):
        at = k.index(dim, [n if d == dim else 1 for d, n in enumerate(image.shape)])
        return k.gather(image, dim, k.where(chosen, image.shape[dim] - 1 - at, at))


class mirrored_rows(Op):
    """`image` [N, rows, columns] with the rows of the samples mirrored that `chosen` [N] (bytes) says."""

    forms = ""
    exact = True

    def meta(image, chosen): return image.like(shape=image.shape)

    def ref(xp, image, chosen): return xp.where(chosen[:, None, None] != 0, image[:, :, ::-1], image)

    def body(k, image, chosen):
        made = k.library("mirror_rows", (image, chosen), [(image.dtype, image.shape)], ())
        return NotImplemented if made is None else made[0]
