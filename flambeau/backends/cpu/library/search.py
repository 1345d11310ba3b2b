"""Where numbers would go in a row that is in order, as a native step.

The range that a number may go to is halved, as often as the row is long, of several numbers at a time: each of them
waits for its own element only.
"""
from ....loops.step import STEP_ARGUMENTS
from ..llvm_writer import LLVMWriter
from .gemm import PIECE_CYCLES, LibraryCall
from .gemm_kernels import compiled_kernels
from .scatter_kernels import SCATTERED_TYPES

SEARCH_FIELDS = "count n times row each".split()
SEARCHES = "left", "right", "below"    # behind what is less or is NaN; behind equals, too; behind what is less
NUMBERS_TOGETHER = 8
NUMBERS_OF_A_TILE = 1024


def search(dtype, rows, values, how, bits):
    """A LibraryCall for the positions of values [count, many] in rows [count or 1, n], or None.

    All are shapes of contiguous operands. `how` is one of SEARCHES. The buffers are the rows, the values, and the
    positions, of so many `bits`.
    """
    dtype = getattr(dtype, "name", dtype)
    if dtype not in SCATTERED_TYPES or how not in SEARCHES or 0 in values or not rows[1]:
        return None
    (count, many), n = values, rows[1]
    if rows[0] == 1:
        count, many = 1, count * many
    tiles, times = -(-many // NUMBERS_OF_A_TILE), n.bit_length()
    each = min(many, NUMBERS_OF_A_TILE) * (6 * times + 10)
    fn = compiled_kernels("float32", SearchKernels).function("search", dtype, how, bits)
    return LibraryCall(fn, count * tiles, min(count * tiles, max(1, PIECE_CYCLES // each)),
                       [many, n, times, 0 if rows[0] == 1 else n, tiles])


class SearchKernels:
    """The LLVM text of the steps."""

    word = "search"
    drivers = inner = ()

    def every(self, machine):
        """The functions for float32, and for int64; others are compiled when they are needed."""
        return [("search", dtype, how, 64) for dtype in ("float32", "int64") for how in SEARCHES]

    def __init__(self, element, target):
        self.lanes = target.vector_bytes // 4

    def search(self, name, dtype, how, bits):
        """The step: some numbers for one row a tile."""
        elt, _, category = SCATTERED_TYPES[dtype]
        w = LLVMWriter(f"define void @{name}({STEP_ARGUMENTS})")
        f = {field: w.load("i64", w.at("i64", "%ints", i)) for i, field in enumerate(SEARCH_FIELDS)}
        R, V, P = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(3)]
        last = w.sub(f["n"], 1)
        if category == "float":
            word = {"left": "fcmp ult", "right": "fcmp ule", "below": "fcmp olt"}[how]
        else:
            word = f"icmp {'s' if category == 'signed' else 'u'}{'le' if how == 'right' else 'lt'}"

        def some(row, values, places, i, together):
            """So many numbers from `i` on."""
            wanted = [w.load(elt, w.at(elt, values, w.add(i, number))) for number in range(together)]
            start = [("i64", 0)] * together + [("i64", f["n"])] * together
            with w.loop(0, f["times"], 1, start) as step:
                lows, highs = step.values[:together], step.values[together:]
                next_lows, next_highs = [], []
                for number, low, high in zip(wanted, lows, highs, strict=True):
                    middle = w(f"lshr i64 {w.add(low, high)}, 1")
                    element = w.load(elt, w.at(elt, row, w.least(middle, last)))
                    behind = w(f"{word} {elt} {element}, {number}")
                    behind = w.both(behind, w.is_("slt", low, high))
                    next_lows.append(w.pick(behind, w.add(middle, 1), low))
                    next_highs.append(w.pick(behind, high, w.most(low, middle)))
                step.next = [*next_lows, *next_highs]
            for number, low in enumerate(step.values[:together]):
                made = low if bits == 64 else w(f"trunc i64 {low} to i{bits}")
                w.store(f"i{bits}", made, w.at(f"i{bits}", places, w.add(i, number)))

        with w.loop("%begin", "%end") as t:
            r, begin = w.div(t.i, f["each"]), w.mul(w.rem(t.i, f["each"]), NUMBERS_OF_A_TILE)
            end = w.least(w.add(begin, NUMBERS_OF_A_TILE), f["count"])
            row, at = w.at(elt, R, w.mul(r, f["row"])), w.mul(r, f["count"])
            values, places = w.at(elt, V, at), w.at(f"i{bits}", P, at)
            whole = w.add(begin, w.down(w.sub(end, begin), NUMBERS_TOGETHER))
            with w.loop(begin, whole, NUMBERS_TOGETHER) as i:
                some(row, values, places, i.i, NUMBERS_TOGETHER)
            with w.loop(whole, end) as i:
                some(row, values, places, i.i, 1)
        return ("declare i64 @llvm.smin.i64(i64, i64)\ndeclare i64 @llvm.smax.i64(i64, i64)\n" + w.text())
