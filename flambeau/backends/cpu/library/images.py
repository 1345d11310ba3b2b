"""Images as native steps: the colours of each sample changed in its own order, boxes resized, samples mirrored.

What the loop language would compute for all samples alike, since its kernels have no branches, is decided here for each
of them: a sample of a batch costs what its own numbers ask for. Planes lie one after the other, [N, C, H, W].
"""
from .gemm import PIECE_CYCLES, LibraryCall
from .gemm_kernels import compiled_kernels
from .image_kernels import ImageKernels

MOST_UNROLLED = 8             # taps along a row that are written out one by one
MOST_ROOM = 64 << 10          # elements, of 4 bytes, of a row that were made and wait to be read, in the thread's room
IMAGE_ELEMENTS = {"uint8": "i8", "float32": "float"}


def jitter_colours(dtype, image, out):
    """A LibraryCall that changes the colours of samples [N, 3, pixels], or None. The buffers are image, order, factors
    and out."""
    elt = IMAGE_ELEMENTS.get(dtype.name)
    (count, channels, pixels), _ = image
    if elt is None or channels != 3 or not count * pixels:
        return None
    machine = compiled_kernels("float32", ImageKernels)
    return LibraryCall(machine.function("jitter", elt), count, grain(count, 40 * pixels), [pixels])


def resize_boxes(dtype, image, weight_x, weight_y, out):
    """A LibraryCall that resizes planes [N, C, H, W] by tables [N or 1, out, taps], or None."""
    elt = IMAGE_ELEMENTS.get(dtype.name)
    (count, channels, height, width), _ = image
    (tables, out_w, taps_x), _ = weight_x
    (_, out_h, taps_y), _ = weight_y
    machine = compiled_kernels("float32", ImageKernels)
    room = taps_y * -(-out_w // machine.kernels.count) * machine.kernels.count
    if elt is None or room > MOST_ROOM or not count * channels * out_h * out_w:
        return None
    fn = machine.function("resize", elt, taps_x if taps_x <= MOST_UNROLLED else 0)
    cycles = out_w * (min(height, out_h * taps_y) * (3 * taps_x + 8) + out_h * taps_y)
    return LibraryCall(fn, count * channels, grain(count * channels, cycles),
                       [channels, height, width, out_h, out_w, taps_x, taps_y, int(tables == 1), room])


def warp_places(dtype, image, table, fill, out, size, nearest, filled):
    """A LibraryCall that reads images [N, C, 1, H * W] where maps [N, 6 or 8, 1, 1] send those of `out`, or None."""
    elt = IMAGE_ELEMENTS.get(dtype.name)
    (count, channels, out_h, out_w), _ = out
    if elt is None or not count * channels * out_h * out_w or size[0] * size[1] >= 1 << 31:
        return None
    machine = compiled_kernels("float32", ImageKernels)
    fn = machine.function("warp", elt, table[0][1], int(nearest), int(filled))
    cycles = out_w * (20 + channels * (4 if nearest else 16))
    return LibraryCall(fn, count * out_h, grain(count * out_h, cycles),
                       [channels, *size, out_h, out_w, int(filled and fill[0][1] > 1)])


def mirror_rows(dtype, image):
    """A LibraryCall that mirrors the rows of chosen samples [N, rows, columns], or None."""
    (count, rows, columns), _ = image
    if not count * rows * columns or dtype.itemsize > 8:
        return None
    machine = compiled_kernels("float32", ImageKernels)
    return LibraryCall(machine.function("flip", f"i{8 * dtype.itemsize}"), count, grain(count, rows * columns // 4),
                       [rows, columns])


def grain(tiles, cycles):
    """How many tiles of so many cycles are worth a thread."""
    return min(tiles, max(1, PIECE_CYCLES // max(cycles, 1)))
