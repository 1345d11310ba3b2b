"""How products are cut into the blocks that the innermost kernels take: see gemm_kernels.py."""

from .gemm_kernels import PANEL_WIDTHS


def even_part(n, most):
    """The size of parts of at most `most` (or of one), of which as few as possible make up `n`, all about as large."""
    return -(-n // -(-n // max(1, most)))


def last_part(n, part):
    """The size of the last of the parts of `n`."""
    return n - (n - 1) // part * part


def split(n, most):
    """`n` in equal parts of at most `most`: [(size, how many)]."""
    parts = -(-n // most)
    low, more = divmod(n, parts)
    return [(size, many) for size, many in ((low + 1, more), (low, parts - more)) if many]


def widest(machine, M, N, K):
    """How many vectors wide the panels are at most: what takes the fewest cycles, by count."""
    vectors, best = -(-N // machine.lanes), None
    call = 60 / max(K, 1)                  # what a call of the innermost kernel costs beside its work, for each k
    for width in PANEL_WIDTHS[machine.registers]:
        rows = machine.rows(width)
        cost = 0
        for n, panels in split(vectors, width):
            for m, strips in split(M, rows):
                cost += panels * strips * (max(m * n / 2, (m + n) / 2, 4) + call)
        if best is None or cost < best[0] * 0.98:
            best = cost, width
    return best[1]


def kernels(counts, height, widths, width):
    """The shapes of the innermost kernels for so many rows and vectors."""
    return [(h, v) for h in sorted({h for one in counts for h, _ in split(one, height)})
            for v in sorted({v for one in widths for v, _ in split(one, width)})]


def up(n, to):
    """`n`, or the next multiple of `to`."""
    return -(-n // to) * to
