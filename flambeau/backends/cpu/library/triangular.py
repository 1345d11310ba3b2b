"""Triangular systems as native steps: X with A X = B, for float32 and float64 (the step's form: see cpu/threads.py).

The columns of B are independent of each other. So a tile is some columns for one matrix of the batch, by panels of a
few vectors: a panel is copied to the thread's room, row by row, solved there, and copied to the result. A few rows at a
time are held in registers, as in a product: what the rows before them give is taken off along k, and then each is
finished in turn. A stands anywhere, and its other triangle is not read. Which columns stand together shows in no
result, so these do not depend on the number of threads.

Where A has many rows it is cut: what the rows that are solved give to the next BLOCK_ROWS of them is a product, which
gemm.py has a plan for. It stands in working memory, and is taken off as the panel is fetched.
"""
import math

from ....base.shapes import merged_dims
from ....loops.step import in_room
from ..threads import get_num_threads
from . import gemm
from .blocking import up
from .gemm import HASTY_CYCLES, PIECE_CYCLES, PIECES_A_THREAD, LibraryCall
from .gemm_kernels import LLVM_ELEMENT, compiled_kernels
from .triangular_kernels import MAX_ROWS, TriangularKernels, rows_of

WIDTHS = 3, 4, 2, 1           # vectors of a panel, in the order in which they are tried
DIVIDED_ROWS = 16             # up to which numbers are divided by the diagonal, and not multiplied with 1 / it
BLOCK_ROWS = 256              # that are solved at a time, about,
NARROW_BLOCK_ROWS = 64        # and where all columns are one vector
A, B, X, ROOM = range(4)      # the buffers


def solve_triangular(dtype, a, b, x, upper, left, unit):
    """LibraryCalls for A X = B, or X A = B unless `left`, over (shape, strides) of A, B and X with the same batches;
    None where there are none."""
    dtype = getattr(dtype, "name", dtype)
    if not left:
        a, b, x = turned(a), turned(b), turned(x)
        upper = not upper
    batch = x[0][:-2]
    merged = merged_dims(batch, [one[1][:-2] for one in (a, b, x)])
    if dtype not in LLVM_ELEMENT or 0 in x[0] or len(merged) > 1:
        return None
    by = merged[0][1:] if merged else (0, 0, 0)
    laid = [(*one[1][-2:], matrix) for one, matrix in zip((a, b, x), by, strict=True)]
    return steps(dtype, *x[0][-2:], math.prod(batch), *laid, not upper, unit)


def turned(laid):
    """(shape, strides) with rows for columns."""
    return tuple([(*one[:-2], one[-1], one[-2]) for one in laid])


def steps(dtype, n, cols, count, a, b, x, lower, unit):
    """The LibraryCalls for `count` matrices, whose strides in elements are (row, column, matrix); their buffers are A,
    B, X and working memory. None where a product has no plan."""
    machine = compiled_kernels(dtype, TriangularKernels)
    size = machine.size
    most = NARROW_BLOCK_ROWS if cols <= machine.lanes else BLOCK_ROWS
    block = up(-(-n // max(1, round(n / most))), MAX_ROWS)
    if n <= block:
        return [substitute(machine, n, cols, count, 0, a, b, x, lower, unit, False)]
    made, extra = [], 0
    product = up(count * block * cols * size, 64)                 # bytes of working memory
    for done in range(0, n, block):
        rows = min(block, n - done)
        first, known = (done, 0) if lower else (n - done - rows, n - done)
        if done:
            calls = gemm.gemm(rows, cols, done, dtype, a, x, (cols, 1, rows * cols), (count,))
            if calls is None:
                return None
            places = ((A, (first * a[0] + known * a[1]) * size), (X, known * x[0] * size), (ROOM, 0), (ROOM, product))
            made += [call._replace(buffers=places[:3 + bool(call.scratch)], share=0.0) for call in calls]
            extra = max(extra, *[call.scratch for call in calls])
        made.append(substitute(machine, rows, cols, count, first, a, b, x, lower, unit, bool(done)))
    return [call._replace(scratch=product + extra) for call in made]


def substitute(machine, n, cols, count, first, a, b, x, lower, unit, less):
    """The LibraryCall for `n` rows from `first` on, `less` a product in working memory."""
    lanes, size = machine.lanes, machine.size
    vectors = -(-cols // lanes)
    width = min((width for width in WIDTHS if in_room(size, n * width * lanes, n)), key=lambda one: up(vectors, one))
    across = width * lanes
    panels = -(-cols // across)
    cycles = n * (n + 32) * width // (4 if width > 1 else 2) + 200          # of a panel, about
    most = max(1, min(PIECES_A_THREAD * get_num_threads(), cycles * panels * count // PIECE_CYCLES) // count)
    each = across * -(-panels // min(panels, most))
    blocks = -(-cols // each)
    tiles = count * blocks
    fn = machine.function("substitute", rows_of(machine, width), width, int(lower),
                          int(n <= DIVIDED_ROWS or width == 1), hasty=cycles * panels * count < HASTY_CYCLES)
    grain = max(1, PIECE_CYCLES * blocks // (cycles * panels), tiles // (PIECES_A_THREAD * get_num_threads()))
    rows = [(A, first * (a[0] + a[1]) * size), (B, first * b[0] * size), (X, first * x[0] * size)]
    return LibraryCall(fn, tiles, min(tiles, grain), [n, cols, blocks, each, int(unit), int(less), *a, *b, *x],
                       buffers=(*rows, *[(ROOM, 0)] * less))
