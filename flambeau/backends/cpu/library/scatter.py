"""Elements and rows that go where an index says, as a native step: writes, sums, products and extremes.

    out[o, index[o, c, i], i] = how(out[o, index[o, c, i], i], values[o, c, i])           for each c in turn

Before that, `out` is a copy of `base` (nothing is copied where it lies in the same memory), or holds zeros. What goes
to one place goes there in the order of c, whatever the tiles are, so all numbers of threads give the same bits.
"""
from ..threads import get_num_threads
from .blocking import even_part, up
from .gemm import PIECE_CYCLES, LibraryCall
from .gemm_kernels import compiled_kernels
from .scatter_kernels import MOVED_TYPES, SCATTER_FIELDS, SCATTER_OPERATIONS, SCATTERED_TYPES, ScatterKernels

TILE_BYTES = 256 << 10        # of a table to whose single elements an index points, so that they are in a cache
MIN_TILE_BYTES = 256          # of a row of a tile, at least
MIN_ROW_BYTES = 32            # of rows that are worth going along by vectors


def spread(dtype, available, count):
    """A LibraryCall that puts elements of a vector that has so many `available`, in order, where a mask holds among
    `count`, and others of a base between them; or None. The buffers are the vector, the mask, the base and out."""
    size = dtype.itemsize
    if size not in MOVED_TYPES or not available or not count:
        return None
    machine = compiled_kernels("float32", ScatterKernels)
    return LibraryCall(machine.function("spread", size), 1, 1, [count, available - 1], over=2)


def scatter(dtype, values, index, based, size, how, fresh=False, bits=64, skip=-1):
    """A LibraryCall for values [O, C, I] that go where index [O, C, I] says in a table of `size` [O, N, I]; or None.

    Values and index are (shape, strides), and may have 1 in place of any size; the table, and what it begins with if it
    is `based` on something, are contiguous. `how` is one of SCATTER_OPERATIONS; with
    `fresh`, what the places that are named held before does not count. Elements of the index have so many `bits`; those
    less than 0 count from the end, all are in range. What goes to place `skip` is left out. The buffers are the values,
    the index, the base if there is one, and the table.
    """
    dtype, nbytes = getattr(dtype, "name", dtype), getattr(dtype, "itemsize", 0)
    O, N, I = size
    C = max(index[0][1], values[0][1])
    if how not in SCATTER_OPERATIONS or 0 in size or not C or \
            dtype not in SCATTERED_TYPES and (how != "set" or nbytes not in MOVED_TYPES):
        return None
    nbytes = nbytes or SCATTERED_TYPES[dtype].bytes
    v, x = [[0 if n == 1 else s for n, s in zip(*laid, strict=True)] for laid in (values, index)]
    if I == 1:
        form = "line"
    elif not x[2] and v[2] == 1 and (I * nbytes >= MIN_ROW_BYTES or skip >= 0):
        form = "rows"
    elif skip < 0:
        form = "each"
    else:
        return None
    wide = I
    if form == "each":
        wide = max(TILE_BYTES // (N * nbytes), MIN_TILE_BYTES // nbytes)
    elif get_num_threads() > 1 and 2 * get_num_threads() > O:
        wide = MIN_TILE_BYTES // nbytes
    wide = I if wide >= I else up(even_part(I, wide), MIN_TILE_BYTES // nbytes)
    blocks = -(-I // wide)
    machine = compiled_kernels("float32", ScatterKernels)
    each = wide // (16 if form == "rows" else 1) * C * (2 if fresh else 1) * 3 + N * wide * nbytes // 16 + 5 * C + 20
    f = dict(size=N, count=C, inner=I, wide=wide, blocks=blocks, flat=int(blocks == 1), v_o=v[0], v_c=v[1], v_i=v[2],
             x_o=x[0], x_c=x[1], x_i=x[2], based=int(based), fresh=int(fresh), skip=skip)
    fn = machine.function("scatter", how, str(nbytes) if how == "set" else dtype, bits, form)
    return LibraryCall(fn, O * blocks, min(O * blocks, max(1, PIECE_CYCLES // each)),
                       [f[name] for name in SCATTER_FIELDS], over=2 if based else -1)
