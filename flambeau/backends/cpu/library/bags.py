"""Bags of rows of a table as native steps: the sum of each, the mean, or the largest in every column.

A row of the result is made of the rows that its bag names, one after the other, in registers: a few vectors of columns
at a time. Which thread makes it does not show.
"""
from ....loops.step import STEP_ARGUMENTS
from ..llvm_writer import LLVMWriter, Vectors
from .gemm import PIECE_CYCLES, LibraryCall
from .gemm_kernels import LLVM_ELEMENT, compiled_kernels

BAG_FIELDS = "count cols last skip weighted".split()
VECTORS_TOGETHER = 4          # of a row
BAG_MODES = "sum", "mean", "max"


def bags(dtype, table, index, offsets, weight, out, mode, skip, bits):
    """A LibraryCall for bags of the rows of table [rows, cols], or None.

    Bag b has those that `index` names from offsets[b] on, up to the next offset, or the end where there is none; but
    not row `skip`. All are (shape, strides), contiguous, and every index is in range; those and the offsets have
    so many `bits`. Sums may have a `weight` for each of the index. The buffers are the table, the index, the offsets,
    the weights if there are any, the result, and for "max" which row each element is of (-1: the bag is empty).
    """
    dtype = getattr(dtype, "name", dtype)
    if dtype not in LLVM_ELEMENT or mode not in BAG_MODES or 0 in table[0] or 0 in out[0]:
        return None
    machine, (number, cols), count = compiled_kernels(dtype, BagKernels), out[0], index[0][0]
    each = -(-count // number) * (6 + 2 * -(-cols // machine.lanes)) + 20
    return LibraryCall(machine.function("bags", mode, int(weight is not None), *bits), number,
                       min(number, max(1, PIECE_CYCLES // each)),
                       [count, cols, offsets[0][0], skip, int(weight is not None)])


class BagKernels:
    """The LLVM text of the steps for one element type."""

    word = "bags"
    drivers = inner = ()

    def every(self, machine):
        """The functions for indices of int64; others are compiled when they are needed."""
        return [("bags", mode, weighted, 64, 64) for mode in BAG_MODES for weighted in (0, 1)[:1 + (mode == "sum")]]

    def __init__(self, element, target):
        self.v = Vectors(element, target)
        self.element, self.lanes = element, self.v.lanes

    def bags(self, name, mode, weighted, bits, offset_bits):
        """The step: one bag a tile."""
        v, elt, n = self.v, self.element, self.lanes
        w = LLVMWriter(f"define void @{name}({STEP_ARGUMENTS})")
        f = {field: w.load("i64", w.at("i64", "%ints", i)) for i, field in enumerate(BAG_FIELDS)}
        buffers = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(4 + (weighted or mode == "max"))]
        T, I, B, W = buffers[:4]
        O = buffers[3 + weighted]

        def whole_number(base, at, bits):
            found = w.load(f"i{bits}", w.at(f"i{bits}", base, at))
            return found if bits == 64 else w(f"sext i{bits} {found} to i64")

        def bag(begin, end, left, count, lanes, row, some=None):
            """Columns from `left` on, `count` times so many `lanes`; only `some` of them, where it says so."""
            type = v.type if lanes > 1 else elt
            nothing = "zeroinitializer" if lanes > 1 else "0.0"
            places, none = (f"<{n} x i64>", "zeroinitializer") if lanes > 1 else ("i64", 0)
            carried = [(type, nothing)] * count + ([(places, none)] * count if mode == "max" else [])
            with w.loop(begin, end, 1, [("i64", 0), *carried]) as e:
                seen, *old = e.values
                at = whole_number(I, e.i, bits)
                used = w.is_("ne", at, f["skip"])
                source = w.at(elt, T, w.add(w.mul(at, f["cols"]), left))
                new = [w.load(type, w.at(elt, source, i * lanes), v.bytes) for i in range(count)] if some is None else \
                    [v.load_some(w, source, some)]
                if weighted:
                    weight = w.load(elt, w.at(elt, W, e.i))
                    weight = weight if lanes == 1 else v.spread(w, weight)
                    new = [w(f"fmul {type} {x}, {weight}") for x in new]
                e.next = [w.add(seen, w.one_if(used))]
                if mode != "max":
                    new = [w.pick(used, x, nothing, type) for x in new]
                    e.next += [w(f"fadd {type} {a}, {b}") for a, b in zip(old, new, strict=True)]
                else:
                    e.next += self.larger(w, old, new, at, used, w.is_("eq", seen, 0), lanes)
            seen, *made = e.values
            if mode == "mean":
                size = w(f"sitofp i64 {w.most(seen, 1)} to {elt}")
                size = size if lanes == 1 else v.spread(w, size)
                made = [w(f"fdiv {type} {x}, {size}") for x in made]
            for i, x in enumerate(made[:count]):
                to = w.at(elt, O, w.add(row, w.add(left, i * lanes)))
                if some is None:
                    w.store(type, x, to, v.bytes)
                else:
                    v.store_some(w, x, to, some)
            for i, x in enumerate(made[count:]):
                empty = w.is_("eq", seen, 0)
                least = f"<{', '.join(['i64 -1'] * lanes)}>" if lanes > 1 else -1
                to = w.at("i64", buffers[4], w.add(row, w.add(left, i * lanes)))
                x = w.pick(empty, least, x, places)
                if some is None:
                    w.store(places, x, to, 8)
                else:
                    w.do(f"call void @llvm.masked.store.v{n}i64.p0({places} {x}, ptr {to}, i32 8, <{n} x i1> {some})")

        with w.loop("%begin", "%end") as t:
            begin, row = whole_number(B, t.i, offset_bits), w.mul(t.i, f["cols"])
            after = w.add(t.i, 1)
            there = w.is_("slt", after, f["last"])
            end = whole_number(B, w.pick(there, after, t.i), offset_bits)
            end = w.pick(there, end, f["count"])
            together = VECTORS_TOGETHER * n
            most, whole = w.down(f["cols"], together), w.down(f["cols"], n)
            with w.loop(0, most, together) as c:
                bag(begin, end, c.i, VECTORS_TOGETHER, n, row)
            with w.loop(most, whole, n) as c:
                bag(begin, end, c.i, 1, n, row)
            if v.masks:
                with w.when(w.is_("slt", whole, f["cols"])):
                    bag(begin, end, whole, 1, n, row, v.some(w, w.sub(f["cols"], whole)))
            else:
                with w.loop(whole, f["cols"]) as c:
                    bag(begin, end, c.i, 1, 1, row)
        return v.declarations() + w.text()

    def larger(self, w, old, new, at, used, first, lanes):
        """The larger of each, and whose it is: the first of equals; what a bag begins with stays, if it is NaN."""
        count = len(new)
        type, bit = (self.v.type, f"<{lanes} x i1>") if lanes > 1 else (self.element, "i1")
        places = f"<{lanes} x i64>" if lanes > 1 else "i64"
        if lanes > 1:
            one = w(f"insertelement {places} poison, i64 {at}, i64 0")
            at = w(f"shufflevector {places} {one}, {places} poison, <{lanes} x i32> zeroinitializer")
        made, where = [], []
        for value, place, x in zip(old[:count], old[count:], new, strict=True):
            better = w(f"fcmp ogt {type} {x}, {value}")
            better = w(f"select i1 {first}, {bit} {self.all(lanes)}, {bit} {better}")
            better = w(f"select i1 {used}, {bit} {better}, {bit} zeroinitializer")
            made.append(w(f"select {bit} {better}, {type} {x}, {type} {value}"))
            where.append(w(f"select {bit} {better}, {places} {at}, {places} {place}"))
        return [*made, *where]

    @staticmethod
    def all(lanes):
        return "true" if lanes == 1 else f"<{', '.join(['i1 true'] * lanes)}>"
