"""Convolutions as native steps: forwards, backwards to the input (and so transposed), backwards to the weight.

`convolve` and `convolve_weight` plan them, for float32 and float64, one to three spatial dimensions, any stride,
padding, dilation and groups, and memory of any strides.

All of them are products along taps. A tap is one position of the kernel, and says how far from its output position the
input is that it reads. Per tile, the input rows that the tile needs are copied to the thread's room with their zeros
around them (and, under a stride, each residue of the columns on its own), so that there every tap reads whole vectors.
No matrix of columns is made: the innermost kernel has, for every k, an offset into one operand and one into the other.

    forwards        output channels down, positions across, k over (input channel, tap); or, where rows are short or the
                    weight is large, positions down and output channels across, with the weight turned
    to the input    the same, with the taps mirrored and the channels exchanged; under a stride, the positions of each
                    residue are a convolution of their own, with the taps that reach them, and a step of their own
    to the weight   (input channel, tap) down, output channels across, k over positions, with the gradient turned so
                    that the channels of a position are a vector

Each sum is taken in an order that the shapes alone fix. Convolutions by 3 x 3 may go another way: see winograd.py.
"""
import math
from collections import namedtuple
from itertools import product

import numpy as np

from ....loops.step import in_room
from ..threads import get_num_threads
from . import gemm_narrow
from .blocking import even_part, kernels, last_part, up, widest
from .conv_kernels import BACKWARD_FIELDS, FORWARD_FIELDS, POSITION_FIELDS, TapKernels
from .gemm import PIECE_CYCLES, LibraryCall, evenly, gemm
from .gemm_kernels import LLVM_ELEMENT, STEP_FIELDS, compiled_kernels
from .winograd import winograd, winograd_weight

Tap = namedtuple("Tap", "weight d h w")        # its offset in the weight, and where it reads from, by input elements
Layout = namedtuple("Layout", "size step")
MAX_CONVOLUTION_K = 512                        # of one block
MAX_BLOCK_POSITIONS = 512                      # of one block, where they are not across
MAX_COPIED_ELEMENTS = 48 << 10                 # of the copied input, and of the gathered output


def tap_kernels(dtype):
    """The compiled functions for `dtype`."""
    return compiled_kernels(dtype, TapKernels)


def convolve(dtype, x, weight, y, stride, padding, dilation, groups=1, transposed=False):
    """Steps for y = the convolution of x with weight (or the transposed one).

    `x`, `weight` and `y` are (shape, strides in elements): [N, C, *size], [O, C / groups, *kernel] and [N, O, *out];
    transposed, x has the O channels and y the C. The buffers are x, weight and y. The steps write disjoint parts of y.
    None where there is no native way.
    """
    dtype = getattr(dtype, "name", dtype)
    n = len(x[0]) - 2
    if n > 3 or 0 in x[0] or 0 in weight[0] or 0 in y[0]:
        return None
    x, weight, y = [in_three(*one) for one in (x, weight, y)]
    stride, padding, dilation = [(fill,) * (3 - n) + tuple(given)
                                 for fill, given in ((1, stride), (0, padding), (1, dilation))]
    O, C = weight.size[0] // groups, weight.size[1]
    if weight.size[2:] == stride == (1, 1, 1) and not any(padding) and x.size[2:] == y.size[2:]:
        found = pointwise(dtype, x, weight, y, groups, transposed)
        if found:
            return found
    if dtype not in LLVM_ELEMENT:
        return None
    if not transposed:
        reach = [[(k, k * d - p) for k in range(size)]
                 for size, d, p in zip(weight.size[2:], dilation, padding, strict=True)]
        job = Convolution(dtype, x, taps_of(reach, weight), y, 0, stride, O, C, weight.step[0], weight.step[1],
                          O * weight.step[0], groups)
        return plan(job)
    steps = []
    for residue in product(*map(range, stride)):
        size = [-(-(n - r) // s) for n, r, s in zip(y.size[2:], residue, stride, strict=True)]
        if min(size) <= 0:
            continue
        reach = [[(k, (r + p - k * d) // s) for k in range(kernel) if (r + p - k * d) % s == 0]
                 for r, p, d, s, kernel in zip(residue, padding, dilation, stride, weight.size[2:], strict=True)]
        part = Layout((*y.size[:2], *size), (*y.step[:2], *[t * s for t, s in zip(y.step[2:], stride, strict=True)]))
        start = sum(r * t for r, t in zip(residue, y.step[2:], strict=True))
        steps.append(plan(Convolution(dtype, x, taps_of(reach, weight), part, start, (1, 1, 1), C, O, weight.step[1],
                                      weight.step[0], O * weight.step[0], groups)))
    return None if None in steps else sum(steps, [])


def pointwise(dtype, x, weight, y, groups, transposed):
    """The steps of a convolution of one tap: a product of matrices. None where positions do not lie evenly."""
    m, k = weight.size[0] // groups, weight.size[1]
    a, each = (weight.step[0], weight.step[1]), m * weight.step[0]
    if transposed:
        m, k, a = k, m, a[::-1]
    across = [evenly(one.size[2:], one.step[2:]) for one in (x, y)]
    if None in across:
        return None
    multiply = gemm if dtype in LLVM_ELEMENT else gemm_narrow.gemm
    found = multiply(m, math.prod(y.size[2:]), k, dtype, (*a, 0, each),
                     (x.step[1], across[0], x.step[0], k * x.step[1]),
                     (y.step[1], across[1], y.step[0], m * y.step[1]), (x.size[0], groups))
    for call in found or ():
        call.ints[STEP_FIELDS.index("turned")] ^= 1          # here the weight is the second buffer, and the left factor
    return found


# What is asked of one step: y at `start`, of `m` channels from `channels` in each group, along `taps`; the weight's
# strides by output channel, input channel and group.
Convolution = namedtuple("Convolution", "dtype x taps y start stride m channels a_m a_c a_g groups")


def plan(job):
    """The steps of one convolution: positions across, or channels across, whichever takes less time by count; or with
    fewer multiplications, where that pays. None where there is no way."""
    machine = tap_kernels(job.dtype)
    ways = [way for way in (plan_forth(machine, job), plan_spots(machine, job)) if way is not None]
    if not ways:
        return None
    cycles, make = min(ways, key=lambda way: way[0])
    return winograd(job, cycles, make) or [make()]


def convolve_weight(dtype, x, g, weight, stride, padding, dilation, groups=1):
    """A list of one LibraryCall for the gradient of a convolution's weight, from input x and its output's gradient g.

    (shape, strides) as for `convolve`. The buffers are x, g, weight. None where there is no native way: the weight's
    gradient has to be contiguous.
    """
    dtype = getattr(dtype, "name", dtype)
    n = len(x[0]) - 2
    if dtype not in LLVM_ELEMENT or n > 3 or 0 in x[0] or 0 in weight[0] or 0 in g[0] or evenly(*weight) != 1:
        return None
    x, weight, g = [in_three(*one) for one in (x, weight, g)]
    stride, padding, dilation = [(fill,) * (3 - n) + tuple(given)
                                 for fill, given in ((1, stride), (0, padding), (1, dilation))]
    reach = [[(k, k * d - p) for k in range(size)]
             for size, d, p in zip(weight.size[2:], dilation, padding, strict=True)]
    job = dtype, x, taps_of(reach, weight), g, weight, stride, groups
    direct = plan_back(*job)
    return direct and (winograd_weight(*job, lambda: direct) or [direct])


def in_three(shape, strides):
    """A layout with three spatial dimensions, the missing ones of size one in front."""
    more = 5 - len(shape)
    return Layout((*shape[:2], *[1] * more, *shape[2:]), (*strides[:2], *[0] * more, *strides[2:]))


def taps_of(reach, weight):
    """The taps, from the positions in the kernel and how far they reach along each dimension."""
    return [Tap(sum(k * t for (k, _), t in zip(at, weight.step[2:], strict=True)), *[far for _, far in at])
            for at in product(*reach)]


def window(f, x, taps, stride, rows, cols):
    """Fill in how the input of a tile of `rows` by `cols` outputs is copied; gives each tap's offset in one channel."""
    depths = sorted({t.d for t in taps})
    low_h, low_w = [min((t[i] for t in taps), default=0) for i in (2, 3)]
    span_h, span_w = [max((t[i] for t in taps), default=0) + 1 - low for i, low in ((2, low_h), (3, low_w))]
    pitch = -(-((cols - 1) * stride[2] + span_w) // stride[2])
    phase = ((rows - 1) * stride[1] + span_h) * pitch
    f.update(depths=len(depths), taps=len(taps), low_h=low_h, low_w=low_w, high=span_h, span_w=span_w, pitch=pitch,
             phase=phase, plane=phase * stride[2], step_d=stride[0], step_h=stride[1], step_w=stride[2],
             size_d=x.size[2], size_h=x.size[3], size_w=x.size[4],
             x_n=x.step[0], x_c=x.step[1], x_d=x.step[2], x_h=x.step[3], x_w=x.step[4])
    return depths, [depths.index(t.d) * f["plane"] + (t.w - low_w) % stride[2] * phase + (t.h - low_h) * pitch
                    + (t.w - low_w) // stride[2] for t in taps]


def plan_forth(machine, job):
    """(cycles, a function that gives the step): output channels down, positions across."""
    x, taps, y, stride, m, channels, lanes = job.x, job.taps, job.y, job.stride, job.m, job.channels, machine.lanes
    f = dict.fromkeys(FORWARD_FIELDS, 0)
    _, _, depth, out_h, out_w = y.size
    images = x.size[0] * job.groups * depth
    work = m * channels * len(taps) * out_h * out_w * images / (2 * lanes)         # cycles, if all lanes are used
    cols = out_w if out_w <= 1024 else 512
    m_tile = up(-(-m // -(-m // 256)), 8) if m > 256 else m
    rows = max(1, min(out_h, 1024 // up(cols, lanes), MAX_COPIED_ELEMENTS // (m_tile * up(cols + 8, lanes))))
    wanted = max(1, min(16, int(work / PIECE_CYCLES)) // images)                   # tiles of one image
    rows = even_part(out_h, min(rows, -(-out_h // wanted)))
    depths, offsets = window(f, x, taps, stride, rows, cols)
    block = even_part(channels, min(MAX_CONVOLUTION_K // max(len(taps), 1),
                                    MAX_COPIED_ELEMENTS // max(f["plane"] * len(depths), 1)))
    exact = out_w % lanes == 0 and y.step[4] == 1
    even = not exact and stride[1] == 1 and run(rows, cols, f["pitch"], lanes) < rows * -(-cols // lanes)
    vectors = {run(r, c, f["pitch"], lanes) if even else r * -(-c // lanes)
               for r in (rows, last_part(out_h, rows)) for c in (cols, last_part(out_w, cols))}
    width = widest(machine, m_tile, max(vectors) * lanes, block * len(taps))
    height = machine.rows(width)
    f.update(batch=x.size[0], groups=job.groups, depth=depth, out_h=out_h, out_w=out_w, rows=rows,
             row_blocks=-(-out_h // rows), cols=cols, col_blocks=-(-out_w // cols), m=m, m_tile=m_tile,
             m_tiles=-(-m // m_tile), channels=channels, block=block, a_m=job.a_m, a_c=job.a_c, a_g=job.a_g,
             exact=int(exact), even=int(even), y_row=max(vectors) * lanes,
             x_room=block * len(depths) * f["plane"] + 2 * lanes, y_room=1 if exact else m_tile * max(vectors) * lanes,
             height=height, width=width, depth_at=len(FORWARD_FIELDS), table_at=len(FORWARD_FIELDS) + len(depths),
             **target(job))
    if not in_room(machine.size, f["x_room"], f["y_room"]):
        return None
    tiles = images * f["row_blocks"] * f["col_blocks"] * f["m_tiles"]
    used = out_h * out_w / (max(vectors) * lanes * f["row_blocks"] * f["col_blocks"])
    weight = m * channels * len(taps) * images * f["row_blocks"] * f["col_blocks"]       # times an element is read
    far = m * channels * len(taps) * machine.size > 1 << 20                              # from beyond the second cache

    def make():
        table = ways(sums(block, job.a_c, [t.weight for t in taps]), sums(block, len(depths) * f["plane"], offsets))
        blocks = kernels([m_tile, last_part(m, m_tile)], height, vectors, width)
        return step(machine, "forth", blocks, f, FORWARD_FIELDS, tiles, work, [*depths, *table])

    return work / used + weight * (2.0 if far else 0.2), make


def plan_spots(machine, job):
    """(cycles, a function that gives the step): positions down, output channels across."""
    x, taps, y, stride, m, channels, lanes = job.x, job.taps, job.y, job.stride, job.m, job.channels, machine.lanes
    f = dict.fromkeys(POSITION_FIELDS, 0)
    _, _, depth, out_h, out_w = y.size
    work = m * channels * len(taps) * out_h * out_w * x.size[0] * depth * job.groups / (2 * lanes)
    rows, cols = block_of(out_h, out_w)
    m_tile = m if m <= 160 else up(-(-m // -(-m // 128)), lanes)
    m_wide = up(m_tile, lanes)
    depths, offsets = window(f, x, taps, stride, rows, cols)
    block = even_part(channels, min(MAX_CONVOLUTION_K // max(len(taps), 1),
                                    MAX_COPIED_ELEMENTS // max(f["plane"] * len(depths), 1)))
    row_blocks, col_blocks, m_tiles = -(-out_h // rows), -(-out_w // cols), -(-m // m_tile)
    all_pieces = x.size[0] * depth * row_blocks * col_blocks
    share = -(-all_pieces // -(-min(4 * get_num_threads(), int(work / PIECE_CYCLES) + 1) // (m_tiles * job.groups)))
    most = max(1, MAX_COPIED_ELEMENTS // (rows * cols * m_wide))
    pieces = max(1, min(share, most))
    tiles = job.groups * m_tiles * -(-all_pieces // pieces)
    width = widest(machine, rows * cols, m_wide, block * len(taps))
    height = machine.rows(width)
    flat = job.a_c == len(taps) and all(t.weight == i for i, t in enumerate(taps))
    f.update(all=all_pieces, pieces=pieces, positions=rows * cols, depth=depth, out_h=out_h, out_w=out_w, rows=rows,
             row_blocks=row_blocks, cols=cols, col_blocks=col_blocks, m=m, m_tile=m_tile, m_tiles=m_tiles,
             tiles=-(-all_pieces // pieces), channels=channels, block=block, a_m=job.a_m, a_c=job.a_c, a_g=job.a_g,
             flat=int(flat), m_wide=m_wide, z_row=up(rows * cols, lanes),
             x_room=block * len(depths) * f["plane"] + 2 * lanes, a_room=(block * len(taps) + lanes) * m_wide,
             y_room=pieces * rows * cols * m_wide, z_room=m_wide * up(rows * cols, lanes), height=height, width=width,
             depth_at=len(POSITION_FIELDS), table_at=len(POSITION_FIELDS) + len(depths),
             rows_at=len(POSITION_FIELDS) + len(depths) + 2 * block * len(taps) + 2,
             weights_at=len(POSITION_FIELDS) + len(depths) + 2 * block * len(taps) + 2 + rows * cols, **target(job))
    if not in_room(machine.size, f["x_room"], f["a_room"], f["y_room"], f["z_room"]):
        return None
    # by count of the largest tiles, not of these: the way of summing must not depend on the number of threads
    turned = job.groups * -(-all_pieces // most) * m * channels * len(taps) * (0.3 if flat else 2.0)
    copied = x.size[0] * channels * job.groups * m_tiles * depth * row_blocks * col_blocks * len(depths) * f["plane"]

    def make():
        table = ways(sums(block, len(depths) * f["plane"], offsets), sums(block * len(taps), m_wide))
        lines = sums(rows, stride[1] * f["pitch"], range(cols)).tolist()
        weights = sums(block, job.a_c, [t.weight for t in taps]).tolist()
        counts = {r * c for r in (rows, last_part(out_h, rows)) for c in (cols, last_part(out_w, cols))}
        wide = {-(-one // lanes) for one in (m_tile, last_part(m, m_tile))}
        blocks = kernels(counts, height, wide, width)
        return step(machine, "spots", blocks, f, POSITION_FIELDS, tiles, work,
                    [*depths, *table, *lines, *weights])

    return work * m_wide * m_tiles / m + turned + 0.5 * copied + 2 * m * out_h * out_w * x.size[0] * depth, make


def plan_back(dtype, x, taps, g, weight, stride, groups):
    """The step of a weight's gradient: input channels and taps down, output channels across."""
    machine, lanes = tap_kernels(dtype), tap_kernels(dtype).lanes
    f = dict.fromkeys(BACKWARD_FIELDS, 0)
    _, _, depth, out_h, out_w = g.size
    m, channels = weight.size[0] // groups, weight.size[1]
    work = m * channels * len(taps) * out_h * out_w * depth * x.size[0] * groups / (2 * lanes)
    rows, cols = block_of(out_h, out_w)
    wanted = max(1, min(get_num_threads(), int(work / PIECE_CYCLES)))
    m_tile = m if m <= 96 else up(-(-m // -(-m // 64)), lanes)
    if channels < 8 and groups * -(-m // m_tile) < wanted:          # too few channels to share: share these
        m_tile = min(m_tile, up(-(-m // wanted), lanes))
    m_wide, m_tiles = up(m_tile, lanes), -(-m // m_tile)
    depths, offsets = window(f, x, taps, stride, rows, cols)
    block = min(MAX_COPIED_ELEMENTS // (len(taps) * m_wide * 2), MAX_COPIED_ELEMENTS // (f["plane"] * len(depths)))
    block = even_part(channels, min(block, -(-channels // -(-wanted // (m_tiles * groups)))))
    width = widest(machine, block * len(taps), m_wide, rows * cols)
    height = machine.rows(width)
    f.update(batch=x.size[0], depth=depth, out_h=out_h, out_w=out_w, rows=rows, row_blocks=-(-out_h // rows), cols=cols,
             col_blocks=-(-out_w // cols), m=m, m_tile=m_tile, m_tiles=m_tiles, channels=channels, block=block,
             blocks=-(-channels // block), g_n=g.step[0], g_m=g.step[1], g_d=g.step[2], g_h=g.step[3], g_w=g.step[4],
             flat=int(g.step[4] == 1 and (g.step[3] == out_w or rows == 1)), w_m=channels * len(taps), m_wide=m_wide,
             x_room=block * len(depths) * f["plane"] + 2 * lanes, g_room=(rows * cols + lanes) * m_wide,
             y_room=block * len(taps) * m_wide, height=height, width=width, depth_at=len(BACKWARD_FIELDS),
             table_at=len(BACKWARD_FIELDS) + len(depths),
             rows_at=len(BACKWARD_FIELDS) + len(depths) + 2 * rows * cols + 2)
    if not in_room(machine.size, f["x_room"], f["g_room"], f["y_room"]):
        return None
    table = ways(sums(rows, stride[1] * f["pitch"], range(cols)), sums(rows * cols, m_wide))
    lines = sums(block, len(depths) * f["plane"], offsets).tolist()
    counts = {one * len(taps) for one in (block, last_part(channels, block))}
    wide = {-(-one // lanes) for one in (m_tile, last_part(m, m_tile))}
    blocks = kernels(counts, height, wide, width)
    return step(machine, "back", blocks, f, BACKWARD_FIELDS, groups * m_tiles * f["blocks"], work,
                [*depths, *table, *lines])


def step(machine, what, blocks, f, fields, tiles, work, tables):
    """The LibraryCall of a plan, which calls innermost kernels for `blocks`."""
    grain = max(1, int(PIECE_CYCLES // max(1, work / tiles)))
    by_residue = int(f["step_w"] != 1 or f["x_w"] != 1)
    fn, f["plane_of"], f["kernels"] = machine.functions([(what,), ("plane", by_residue)], blocks)
    return LibraryCall(fn, tiles, min(tiles, grain), [*[f[name] for name in fields], *tables])


def sums(count, far, offsets=(0,)):
    """The offsets, for each of `count` things that lie `far` apart."""
    return np.add.outer(far * np.arange(count, dtype=np.int64), np.array(offsets, np.int64)).ravel()


def ways(first, second):
    """How far it is from each pair of offsets to the next, from (0, 0) on, and a pair more: see GemmKernels.micro."""
    table = np.zeros((len(first) + 1, 2), np.int64)
    table[:-1, 0], table[:-1, 1] = np.diff(first, prepend=0), np.diff(second, prepend=0)
    return table.ravel().tolist()


def target(job):
    """Where y is."""
    n, m, d, h, w = job.y.step
    return dict(y_0=job.start, y_n=n, y_m=m, y_d=d, y_h=h, y_w=w)


def block_of(out_h, out_w):
    """(rows, columns) of the blocks of positions, where positions are not across."""
    cols = min(out_w, MAX_BLOCK_POSITIONS)
    return even_part(out_h, MAX_BLOCK_POSITIONS // cols if cols == out_w else 1), cols


def run(rows, cols, pitch, lanes):
    """How many vectors cover `rows` of `cols` elements that lie `pitch` apart, what is between them included."""
    return -(-((rows - 1) * pitch + cols) // lanes)
