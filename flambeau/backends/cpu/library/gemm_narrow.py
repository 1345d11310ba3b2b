"""Products of matrices of 16 or 8 bits as native steps, by the processor's unit for them: see gemm_units.py.

They are cut as those of float32 are (gemm.py): tiles, blocks of k, groups of columns of B that are packed together, and
strips of rows of A that pass them. What differs is that both operands are packed into the unit's blocks, so that no
kernel sees an edge, and that sums are in 32 bits until they are stored: those of several blocks of k stand in the
thread's room meanwhile. A is read as it lies where its rows are contiguous and whole; since blocks of B may have to be
transposed, which takes longer, few rows are better made B: the product is then computed turned around, and the blocks
of the result are transposed.
"""
import math

from .blocking import up
from .gemm import PIECES_A_THREAD, cut, merge, product, tidy
from .gemm_kernels import compiled_kernels
from .gemm_narrow_kernels import OUTS, NarrowKernels
from .gemm_packing import COPY, DIRECT, GATHER, TURN
from .gemm_units import unit_of

MAX_BLOCK_BYTES = 4096             # of k of one block, at most;
MAX_TURNED_BLOCK_BYTES = 2048      # the same where A is packed at once, so that there are many rows of it
A_ROOM_BYTES = 512 << 10           # of a thread's room
B_ROOM_BYTES = 1 << 20
C_ROOM_BYTES = 448 << 10
MAX_DIRECT_COLUMNS = 128           # of B, up to which a copy of A does not pay


def gemm(M, N, K, dtype, a, b, c, batch=(), out="narrow", added="none"):
    """LibraryCalls for C = A @ B of [*batch] matrices, as gemm.gemm has them; None where there is no unit.

    `out` is what C holds: numbers like A's and B's, "float" or "i32". With `added` a row is added to each of C's before
    it is rounded, "bias", and then negative numbers become zero, "relu"; it is the third of four buffers.
    """
    unit = unit_of(getattr(dtype, "name", dtype))
    if unit is None or not M or not N or 0 in batch or (unit.sums == "i32") != (out == "i32"):
        return None
    merged = merge(batch, [a[2:], b[2:], c[2:]])
    if merged is None:
        return None
    batch, strides = merged
    a, b, c = tidy(a[:2], M, K), tidy(b[:2], K, N), tidy(c[:2], M, N)
    if added != "none" and N == 1:
        c = c[0], 1
    if 1 not in c or added != "none" and c[1] != 1:
        return None
    machine = compiled_kernels(unit, NarrowKernels)
    turned = turns(M, N, K, a, b, c)
    if turned:
        M, N, a, b, c = N, M, b[::-1], a[::-1], c[::-1]
        strides = [strides[1], strides[0], strides[2]]
    f = dict.fromkeys(machine.kernels.fields, 0)
    f.update(M=M, N=N, K=K, a_row=a[0], a_col=a[1], b_row=b[0], b_col=b[1], c_row=c[0], c_col=c[1], turned=int(turned),
             size1=batch[1], size2=batch[2], parts=1, whole_k=K, c_at=2 if added == "none" else 3)
    for name, steps in zip("abc", strides, strict=True):
        f.update({f"{name}{d}": s for d, s in enumerate(steps)})
    f["c_bytes"] = (OUTS[out] or ("", unit.size))[1]
    return plan(machine, f, math.prod(batch), (out, added, int(c[1] != 1)))


def turns(M, N, K, a, b, c):
    """Whether to compute the transposed product: whichever takes less packing, by count."""
    def cost(rows, cols, left, right, result):
        packed = 0.5 if left[1] == 1 else 1.5 if left[0] == 1 else 10
        copied = 1 if right[1] == 1 else 2 if right[0] == 1 else 10
        return packed * rows * K * (cols > MAX_DIRECT_COLUMNS or left[1] != 1) + copied * cols * K \
            + (2 if result[1] != 1 else 0) * rows * cols
    return cost(N, M, b[::-1], a[::-1], c[::-1]) < cost(M, N, a, b, c)


def plan(machine, f, count, put):
    """The steps of the product that `f` tells of, of `count` matrices."""
    unit, n = machine.kernels.unit, machine.lanes
    M, N, K = f["M"], f["N"], f["K"]
    if f["a_col"] == 1:
        direct = N <= MAX_DIRECT_COLUMNS and K % unit.depth == 0
        f["a_pack"], how_a = DIRECT if direct else COPY, COPY
    else:
        f["a_pack"] = TURN                                               # that is, packed at once
        how_a = TURN if f["a_row"] == 1 else GATHER
    how_b = TURN if f["b_col"] == 1 else COPY if f["b_row"] == 1 else GATHER
    f["rows"] = n if M <= n else 2 * n
    most = (MAX_TURNED_BLOCK_BYTES if f["a_pack"] == TURN else MAX_BLOCK_BYTES) // unit.size
    f["block"] = block = max(K, 1) if K <= most else up(-(-K // -(-K // most)), unit.depth)
    depth = up(block, unit.depth) * unit.size                  # bytes of a line of a block
    f["width"] = 1
    cut(machine, f, count, GATHER if how_b == GATHER else COPY, PIECES_A_THREAD)
    fit(f, n, depth)
    f["b_room"] = up(min(f["group"] * n, f["tile_n"]), n) * depth
    f["a_room"] = up(f["tile_m"] if f["a_pack"] == TURN else min(f["rows"], f["tile_m"]), n) * depth
    f["c_room"] = up(f["tile_m"], n) * up(f["tile_n"], n) * 4 if K > block else 4 * unit.block_bytes
    fn, f["pack_a"], f["pack_b"], f["put"], f["kernels"] = machine.functions(
        [("gemm",), ("pack", "a", how_a), ("pack", "b", how_b), ("put", *put)],
        machine.kernels.blocks(f["rows"] // n, -(-N // n)))
    return [product(machine, fn, f, count)]


def fit(f, n, depth):
    """Make tiles as small as the thread's room has them."""
    rows = f["rows"]
    if f["a_pack"] == TURN:
        f["tile_m"] = min(f["tile_m"], max(rows, A_ROOM_BYTES // depth // rows * rows))
    if f["K"] > f["block"]:
        most = C_ROOM_BYTES // 4
        f["tile_m"] = min(f["tile_m"], max(rows, int(most ** 0.5) // rows * rows))
        f["tile_n"] = min(f["tile_n"], most // up(f["tile_m"], n) // (2 * n) * (2 * n))
    f["group"] = max(2, B_ROOM_BYTES // depth // n // 2 * 2)
    f["tiles_m"], f["tiles_n"] = -(-f["M"] // f["tile_m"]), -(-f["N"] // f["tile_n"])
