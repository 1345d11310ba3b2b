"""Convolutions by 3 x 3 with fewer multiplications: Winograd's minimal filtering, F(2 x 2, 3 x 3).

A tile of 2 x 2 outputs takes 36 multiplications for each pair of channels. Lavin and Gray ("Fast Algorithms for
Convolutional Neural Networks", 2015, section 4.1) compute it with 16:

    Y = A^T [ (G g G^T) * (B^T d B) ] A          d: the 4 x 4 inputs of the tile, g: the filter, * : element by element

           1  0 -1  0           1    0    0
    B^T =  0  1  1  0      G =  1/2  1/2  1/2      A^T =  1  1  1  0
           0 -1  1  0           1/2 -1/2  1/2             0  1 -1 -1
           0  1  0 -1           0    0    1

Summed over input channels, each of the 16 elements of a tile is a product of matrices: filters [output, input channel]
by inputs [input channel, tile]. These steps (winograd_kernels.py has their text) make a convolution, or a gradient of
the input, which is one with the filters mirrored and the channels exchanged:

    filters     G g G^T of all filters, to working memory: [element, output channel, input channel]
    inputs      only where there are many filters: B^T d B of all tiles, to working memory
    tiles       for each block of tiles: B^T d B of its inputs, to the thread's room: [element, input channel, tile]; 16
                products by the kernels of gemm.py: [element, output channel, tile]; A^T m A, to the output
    direct      the convolution along taps (conv.py), where some output was not finite

The gradient of the filter, with h the gradient of Y, is G^T [ (A h A^T) * (B^T d B) ] G, and products sum over tiles:

    inputs, gradients       only where there are many channels: B^T d B and A h A^T of all tiles, to working memory
    products                for each share of the tiles: both, to its room, and their 16 products: [share, element,
                            input channel, output channel]
    weights                 G^T m G of the sum of all shares, to the weight's gradient
    direct                  as above

Vectors go along tiles, those of a row side by side, so that images are read and written as they lie; of the gradients
in `products`, along channels.

An infinity or a NaN of the input would spread over its tile, and a sum of large inputs may overflow where no product
of the convolution does. All of these leave an output that is not finite, since every element counts in some output; so
the steps look for such, and then everything is computed again as it is defined. Otherwise results differ from the sum
along taps by rounding alone. The order of sums is fixed by the shapes, and does not depend on the number of threads.
"""
from typing import NamedTuple

from ....base import settings
from ....loops.step import in_room
from ..threads import get_num_threads
from .blocking import even_part, kernels, last_part, up, widest
from .gemm import PIECE_CYCLES, PIECES_A_THREAD, LibraryCall, late_share
from .gemm_kernels import compiled_kernels
from .gemm_micro import MAX_KERNEL_ROWS
from .winograd_kernels import (
    CHANNELS_TOGETHER,
    FILTER_FIELDS,
    FILTERS_TOGETHER,
    FLAG_BYTES,
    FLAT_TAPS,
    MIRRORED_TAPS,
    STRIDED_TAPS,
    TILE_ELEMENTS,
    TILE_FIELDS,
    WEIGHT_FIELDS,
    WinogradKernels,
)

MAX_PRODUCT_K = 128           # input channels that are added up at a time: more is a sum of sums, for less rounding
MAX_TILE_COLS = 64            # tiles of a row, where rows are cut
MAX_INPUT_BYTES = 512 << 10   # of a block's transformed inputs, in the room, if that makes a block worth the while,
MAX_NEAR_BYTES = 1280 << 10   # in any case,
MAX_OUTPUT_BYTES = 512 << 10  # and of its products
MAX_NEAR_TILES = 1024         # of a block
NEAR_FILTER_BYTES = 3 << 19   # of filters, that stay in the second cache
FAR_FILTER_BYTES = 16 << 20   # of others, counted for each thread, that are too many to read again and again
MAX_APART_BYTES = 32 << 20    # of what is transformed beforehand,
MAX_APART_TILES = 48          # of a block then, so that what is multiplied at a time stays in the first cache,
MAX_PRODUCT_BYTES = 1 << 20   # and of its products
MAX_FILTER_BYTES = 64 << 20   # of transformed filters
MIN_CHANNEL_PART = 16         # channels, of either kind, that are worth a piece
SHARE_TILES = 32              # of a block of a weight's gradient
MAX_SHARES = 16               # of the tiles of a weight's gradient, each with sums of its own,
MAX_SHARE_BYTES = 8 << 20     # and so many bytes of them together
# cycles, about: to transform a vector of inputs, outputs or gradients, and a filter; for a panel of products; to gain
INPUT_CYCLES, OUTPUT_CYCLES, GRADIENT_CYCLES, FILTER_CYCLES, CALL_CYCLES, STEP_CYCLES = 40, 32, 50, 160, 30, 100_000


def winograd(job, cycles, direct):
    """The steps of a Convolution (see conv.py), which takes `cycles` along taps; None where that is the better way.

    `direct()` gives the step along taps.
    """
    filter_at = three_by_three(job)
    if filter_at is None:
        return None
    machine = compiled_kernels(job.dtype, WinogradKernels)
    f = cut(machine, job) if pays(machine, job, cycles) else None
    return f and steps(machine, job, f, filter_at, direct())


def three_by_three(job):
    """(offset of the first tap in the weight, steps to the next down and across) of a convolution of images by 3 x 3
    with steps of one; None where it is another."""
    down, across = [sorted({tap[i] for tap in job.taps}) for i in (2, 3)]
    if settings.convolutions == "direct" or job.dtype != "float32" or job.groups != 1 or job.stride != (1, 1, 1) \
            or len(job.taps) != 9 or {tap.d for tap in job.taps} != {0} or job.y.size[2] != 1 \
            or any(list(range(one[0], one[0] + 3)) != one for one in (down, across)):
        return None
    first, right, below = [next(tap.weight for tap in job.taps if (tap.h, tap.w) == at)
                           for at in ((down[0], across[0]), (down[0], across[1]), (down[1], across[0]))]
    return first, below - first, right - first


def cut(machine, job):
    """How the tiles are cut into blocks: the fields of `tiles`; None where they would take too much memory, which the
    number of threads must not decide, since results depend on it."""
    y, m, channels, lanes, size, threads = job.y, job.m, job.channels, machine.lanes, machine.size, get_num_threads()
    u_row = up(channels, lanes) + lanes                   # no power of two, where rows would meet in the cache
    filter_bytes, each = TILE_ELEMENTS * m * u_row * size, TILE_ELEMENTS * channels * size
    out_h, out_w = y.size[3:]
    tile_w, all_tiles = -(-out_w // 2), y.size[0] * -(-out_h // 2) * -(-out_w // 2)
    fitting = MAX_NEAR_BYTES // each - 2 * lanes          # tiles of a block at most, unless they are elsewhere
    may_be_apart, may_be_near = all_tiles * each <= MAX_APART_BYTES, fitting >= lanes
    if not may_be_apart and not may_be_near or filter_bytes > MAX_FILTER_BYTES:
        return None
    far = filter_bytes > NEAR_FILTER_BYTES and filter_bytes * threads > FAR_FILTER_BYTES
    apart = may_be_apart and (far or not may_be_near)
    near = min(fitting, max(3 * lanes, MAX_INPUT_BYTES // each - lanes), MAX_NEAR_TILES)
    most = MAX_APART_TILES if apart else near
    cols = even_part(tile_w, min(most, MAX_TILE_COLS))
    rows_of_tiles = all_tiles // tile_w * -(-tile_w // cols)
    rows = even_part(rows_of_tiles, max(1, most // cols))
    pieces = -(-rows_of_tiles // rows)
    if pieces < 4 * threads:                              # as many for each thread, unless they are small
        rows = min(rows, max(-(-rows_of_tiles // up(pieces, threads)), -(-3 * lanes // cols)))
    row_blocks, wide = -(-rows_of_tiles // rows), up(rows * cols, lanes)
    m_tile = up(-(-m // channel_parts(row_blocks, m, threads, apart)), MAX_KERNEL_ROWS)
    product_bytes = MAX_PRODUCT_BYTES if apart else MAX_OUTPUT_BYTES
    m_part = even_part(m_tile, max(MAX_KERNEL_ROWS, product_bytes // (TILE_ELEMENTS * wide * size)))
    m_part = up(m_part, MAX_KERNEL_ROWS)
    width = widest(machine, m_part, wide, min(channels, MAX_PRODUCT_K))
    f = dict.fromkeys(TILE_FIELDS, 0)
    f.update(input_fields(machine, job, channels, rows, cols, apart, channels, FLAG_BYTES + up(filter_bytes, 64)),
             block=even_part(channels, MAX_PRODUCT_K), m=m, m_tile=m_tile, m_tiles=-(-m // m_tile), m_part=m_part,
             y_0=job.start, y_n=y.step[0], y_m=y.step[1], y_h=y.step[3], y_w=y.step[4], out_h=out_h, out_w=out_w,
             u_row=u_row, u_element=m * u_row, p_room=TILE_ELEMENTS * m_part * wide + lanes, width=width,
             height=machine.rows(width))
    return f


def channel_parts(blocks, m, threads, apart):
    """In how many parts of the output channels each of so many blocks of tiles is done, so that no thread is idle for
    long. In the thread's room, each part transforms the inputs anew."""
    def cost(parts):
        rounds = -(-blocks * parts // threads) + late_share(threads)
        again = 0.01 if apart else INPUT_CYCLES / (TILE_ELEMENTS / 2 * m)
        return rounds * threads / (blocks * parts) * (1 + again * parts)
    return min(range(1, max(1, m // MIN_CHANNEL_PART) + 1), key=cost) if blocks < PIECES_A_THREAD * threads else 1


def input_fields(machine, job, channels, rows, cols, apart, kept, at):
    """The fields of `inputs`, which the steps that may do its work have too: blocks of `rows` of `cols` tiles, of which
    the thread's room has room for `kept` channels, or working memory from byte `at` on for all, if `apart`."""
    x, lanes, (images, _, _, out_h, out_w) = job.x, machine.lanes, job.y.size
    tile_h, col_blocks = -(-out_h // 2), -(-out_w // 2 // cols)
    pitch, part = up(2 * cols + 2, lanes), even_part(channels, 32)
    room = TILE_ELEMENTS * (channels if apart else kept) * (up(rows * cols, lanes) + lanes) + lanes
    low_h, low_w = [min(tap[i] for tap in job.taps) for i in (2, 3)]
    return dict(rows=rows, row_blocks=-(-images * col_blocks * tile_h // rows), all=images * col_blocks * tile_h,
                tile_h=tile_h, cols=cols, col_blocks=col_blocks, channels=channels, x_n=x.step[0], x_c=x.step[1],
                x_h=x.step[3], x_w=x.step[4], size_h=x.size[3], size_w=x.size[4], low_h=low_h, low_w=low_w, pitch=pitch,
                x_room=(2 * min(rows, tile_h) + 2) * pitch + 4 * lanes, v_room=1 if apart else room, v_at=at,
                v_block=up(room * machine.size, 64), parts=-(-channels // part), part=part, apart=int(apart))


def pays(machine, job, cycles):
    """Whether it takes less time than `cycles`, by count: products and the transforms. How it is cut does not count,
    since that depends on the number of threads, and results depend on the choice."""
    lanes, m, channels, (images, _, _, out_h, out_w) = machine.lanes, job.m, job.channels, job.y.size
    rows, tile_w = images * -(-out_h // 2), -(-out_w // 2)
    calls = 1 + CALL_CYCLES / (12 * min(channels, MAX_PRODUCT_K))
    products = TILE_ELEMENTS * m * channels * rows * tile_w / (2 * lanes) * calls
    transforms = rows * -(-tile_w // lanes) * (channels * INPUT_CYCLES + m * OUTPUT_CYCLES)
    filters = m * channels * (10 + FILTER_CYCLES / lanes)
    return products + transforms + filters + STEP_CYCLES < cycles


def steps(machine, job, f, filter_at, direct):
    """The LibraryCalls, each with working memory for the filters and, where they are transformed apart, the inputs."""
    first, below, right = filter_at
    how = FLAT_TAPS if (below, right) == (3, 1) else MIRRORED_TAPS if (below, right) == (-3, -1) else STRIDED_TAPS
    by_residue = int(f["x_w"] != 1)
    widths = {up(rows * f["cols"], machine.lanes) // machine.lanes for rows in
              (f["rows"], last_part(f["all"], f["rows"]))}
    heights = {part for tile in (f["m_tile"], last_part(f["m"], f["m_tile"]))
               for part in (min(tile, f["m_part"]), last_part(tile, f["m_part"]))}
    filters, *inputs, tiles, f["plane_of"], f["forth_of"], f["back_of"], filters_of, f["kernels"] = \
        machine.functions([("filters",), *[("inputs",)] * f["apart"], ("tiles",), ("plane", by_residue),
                           ("to_tiles",), ("from_tiles",), ("filter_block", how)],
                          kernels(heights, f["height"], widths, f["width"]))
    turned = dict(m=f["m"], channels=f["channels"], a_m=job.a_m, a_c=job.a_c, a_0=first, a_h=below, a_w=right,
                  u_row=f["u_row"], u_element=f["u_element"], filters_of=filters_of)
    scratch = f["v_at"] + (f["row_blocks"] * f["v_block"] if f["apart"] else 0)
    fields = [f[name] for name in TILE_FIELDS]

    def call(fn, tiles, each, ints, share=0.0):
        return LibraryCall(fn, tiles, grain(tiles, each), ints, scratch, share)

    return [call(filters, -(-f["m"] // FILTERS_TOGETHER), FILTERS_TOGETHER * f["channels"] * 20,
                 [turned[name] for name in FILTER_FIELDS]),
            *[call(fn, f["row_blocks"] * f["parts"], f["rows"] * f["cols"] * f["part"] * 10, fields) for fn in inputs],
            call(tiles, f["row_blocks"] * f["m_tiles"], PIECE_CYCLES, fields, TILE_ELEMENTS / 36),
            if_not_finite(direct, scratch)]


def grain(tiles, each):
    """How many tiles of `each` cycles are worth a thread."""
    return min(tiles, max(1, int(PIECE_CYCLES // max(each, 1))))


def if_not_finite(direct, scratch):
    """The step `direct`, if the flag at the head of working memory says so: see cpu/threads.py."""
    return LibraryCall(direct.fn, direct.tiles, -direct.grain, direct.ints, scratch, 0.0)


def winograd_weight(dtype, x, taps, g, weight, stride, groups, direct):
    """The steps of a weight's gradient (see plan_back in conv.py); None where `direct()` is the better way."""
    job = WeightGradient(dtype, x, taps, g, weight, stride, groups)
    if three_by_three(job) is None:
        return None
    machine = compiled_kernels(dtype, WinogradKernels)
    f = cut_weight(machine, job)
    return f and pays_for_weight(machine, f) and weight_steps(machine, f, direct()) or None


class WeightGradient(NamedTuple):
    """What is asked of the steps of a weight's gradient; `y` is the gradient of the output."""
    dtype: str
    x: tuple
    taps: list
    y: tuple
    weight: tuple
    stride: tuple
    groups: int


def cut_weight(machine, job):
    """How a weight's gradient is cut: the fields of `products`; None where it would take too much memory. Blocks of
    tiles and shares of them show in the order of sums, so they are cut by the shapes alone."""
    g, lanes, size, (m, channels) = job.y, machine.lanes, machine.size, job.weight.size[:2]
    images, _, _, out_h, out_w = g.size
    tile_w = -(-out_w // 2)
    cols = even_part(tile_w, SHARE_TILES)
    rows_of_tiles = images * -(-out_h // 2) * -(-tile_w // cols)
    rows = even_part(rows_of_tiles, max(1, SHARE_TILES // cols))
    row_blocks, p_row = -(-rows_of_tiles // rows), up(m, lanes)
    share_bytes = TILE_ELEMENTS * channels * p_row * size
    shares = max(1, min(MAX_SHARES, row_blocks // 4, MAX_SHARE_BYTES // share_bytes))
    share = -(-row_blocks // shares)
    shares = -(-row_blocks // share)
    c_tile, m_tile = even_part(channels, 64), up(even_part(m, 128), lanes)
    c_tiles, m_tiles = -(-channels // c_tile), -(-m // m_tile)
    apart_bytes = TILE_ELEMENTS * row_blocks * rows * cols * (channels + p_row) * size
    weight_rooms = 9 * CHANNELS_TOGETHER * p_row, (m + 4) * up(9 * CHANNELS_TOGETHER, lanes)
    if c_tiles * m_tiles > 2 and apart_bytes > MAX_APART_BYTES or share_bytes > MAX_FILTER_BYTES \
            or not in_room(size, *weight_rooms):
        return None
    # of more blocks of channels, what each of them needs would be transformed again and again
    while shares * c_tiles * m_tiles < get_num_threads() * (PIECES_A_THREAD if c_tiles * m_tiles > 2 else 1) \
            and c_tile > MIN_CHANNEL_PART:
        c_tile = -(-c_tile // 2)
        c_tiles = -(-channels // c_tile)
    apart = c_tiles * m_tiles > 2 and apart_bytes <= MAX_APART_BYTES
    g_row = p_row if apart else m_tile
    g_element = rows * cols * g_row
    width = widest(machine, c_tile, m_tile, rows * cols)
    f = dict.fromkeys(WEIGHT_FIELDS, 0)
    f.update(input_fields(machine, job, channels, rows, cols, apart, c_tile, FLAG_BYTES + shares * share_bytes))
    f.update(c_tile=c_tile, c_tiles=c_tiles, m=m, m_tile=m_tile, m_tiles=m_tiles, shares=shares, share=share,
             g_n=g.step[0], g_m=g.step[1], g_h=g.step[3], g_w=g.step[4], out_h=out_h, out_w=out_w, g_row=g_row,
             g_element=g_element, g_at=f["v_at"] + apart * row_blocks * f["v_block"],
             g_block=up(TILE_ELEMENTS * g_element * size, 64), g_room=1 if apart else TILE_ELEMENTS * g_element + lanes,
             t_row=m_tile, t_room=4 * cols * m_tile + 4 * lanes, p_at=FLAG_BYTES, p_row=p_row,
             p_element=channels * p_row, p_share=TILE_ELEMENTS * channels * p_row, w_m=9 * channels,
             w_lines=weight_rooms[1], height=machine.rows(width), width=width)
    return f


def pays_for_weight(machine, f):
    """Whether it takes less time than sums over positions, by count; see `pays`."""
    lanes, m, channels = machine.lanes, f["p_row"], f["channels"]
    tiles = f["all"] * f["cols"]
    positions = f["all"] // (f["tile_h"] * f["col_blocks"]) * f["out_h"] * f["out_w"]
    direct = m * channels * 9 * positions / (2 * lanes)
    products = TILE_ELEMENTS * m * channels * tiles / (2 * lanes) * (1 + CALL_CYCLES / (12 * SHARE_TILES))
    transforms = f["all"] * -(-f["cols"] // lanes) * channels * INPUT_CYCLES + tiles * m / lanes * GRADIENT_CYCLES
    weights = m * channels * (f["shares"] * TILE_ELEMENTS + 9 * lanes) / lanes
    return products + transforms + weights + STEP_CYCLES < direct


def weight_steps(machine, f, direct):
    """The LibraryCalls of a weight's gradient."""
    heights = {f["c_tile"], last_part(f["channels"], f["c_tile"])}
    widths = {-(-one // machine.lanes) for one in (f["m_tile"], last_part(f["m"], f["m_tile"]))}
    *apart, products, weights, f["plane_of"], f["forth_of"], f["gradients_of"], f["weights_of"], kernels_at = \
        machine.functions([*[("inputs",), ("gradients",)] * f["apart"], ("products",), ("weights",),
                           ("plane", int(f["x_w"] != 1)), ("to_tiles",), ("to_gradients",), ("to_weights",)],
                          kernels(heights, f["height"], widths, f["width"]))
    f["kernels"] = kernels_at
    scratch = f["g_at"] + (f["row_blocks"] * f["g_block"] if f["apart"] else 0)
    fields, each = [f[name] for name in WEIGHT_FIELDS], f["rows"] * f["cols"] * 10

    def call(fn, tiles, each, share=0.0):
        return LibraryCall(fn, tiles, grain(tiles, each), fields, scratch, share)

    beforehand = (f["row_blocks"] * f["parts"], each * f["part"]), (f["row_blocks"] * f["m_tiles"], each * f["m_tile"])
    return [*[call(fn, *how) for fn, how in zip(apart, beforehand, strict=False)],
            call(products, f["shares"] * f["c_tiles"] * f["m_tiles"], PIECE_CYCLES, TILE_ELEMENTS / 36),
            call(weights, -(-f["channels"] // CHANNELS_TOGETHER), CHANNELS_TOGETHER * f["m"] * 12),
            if_not_finite(direct, scratch)]
