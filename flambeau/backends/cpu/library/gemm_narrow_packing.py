"""The LLVM text that packs operands of 16 or 8 bits into the blocks that a DotUnit takes: see gemm_units.py.

A block has `lanes` lines, which are rows of A or columns of B, by `depth` of k; blocks of the same lines follow each
other along k. A block of A is [line, k]; one of B is [k // together, line, k % together], so that what a sum adds at a
time is 32 bits. What is beyond the last line or the end of k is zero.
"""
from ..llvm_writer import LLVMWriter, _list
from .gemm_packing import GATHER, TURN


class NarrowPacking:
    """Writes the functions; a base of NarrowKernels, which has the unit."""

    def pack(self, name, side, how):
        """Lines of A or B (`side`) to blocks. %far is from line to line, %along from k to k, in elements: %along is 1
        where `how` is COPY, %far where it is TURN."""
        unit = self.unit
        elt, size = self.memory, unit.size
        w = LLVMWriter(f"define void @{name}(ptr %to, ptr %from, i64 %far, i64 %along, i64 %lines, i64 %k, i64 %steps)")
        raw = w.spare(f"[{unit.depth * unit.lanes * size} x i8]")
        # a row of what is loaded: a line, `depth` long; or one k of all lines
        rows, across = (unit.depth, unit.lanes) if how == TURN else (unit.lanes, unit.depth)
        step = "%along" if how == TURN else "%far"
        across_k = w.mul("%steps", unit.block_bytes)

        def block(line, s):
            k = w.mul(s, unit.depth)
            lines_left, k_left = w.sub("%lines", line), w.sub("%k", k)
            source = w.at(elt, "%from", w.add(w.mul(line, "%far"), w.mul(k, "%along")))
            ends = (k_left, lines_left) if how == TURN else (lines_left, k_left)
            whole = "false" if how == GATHER else w.both(w.is_("sge", ends[0], rows), w.is_("sge", ends[1], across))
            with w.when(w(f"xor i1 {whole}, true")):
                self.fill(w, raw, source, ends, (rows, across), step, how)
            base = w.pick(whole, source, raw, "ptr")
            to = w.at("i8", "%to", w.add(w.mul(w.div(line, unit.lanes), across_k), w.mul(s, unit.block_bytes)))
            self.put_block(w, to, base, w.pick(whole, w.mul(step, size), across * size), side, how)

        # what lies side by side is read together
        if how == TURN:
            with w.loop(0, "%steps") as s, w.loop(0, "%lines", unit.lanes) as line:
                block(line.i, s.i)
        else:
            with w.loop(0, "%lines", unit.lanes) as line, w.loop(0, "%steps") as s:
                block(line.i, s.i)
        return self.pack_declarations() + w.text()

    def fill(self, w, raw, source, ends, shape, step, how):
        """Rows of a block that is not whole, one after the other at `raw`, zero beyond the `ends` (rows, across)."""
        elt, (rows, across) = self.memory, shape
        if self.masks and how != GATHER:
            with w.loop(0, rows) as i:
                count = w.pick(w.is_("slt", i.i, ends[0]), w.least(ends[1], across), 0)
                self.store_vector(w, self.load_some(w, w.at(elt, source, w.mul(i.i, step)), count, across),
                                  w.at(elt, raw, w.mul(i.i, across)), across)
            return
        along = "%far" if how == TURN else "%along"
        with w.loop(0, rows * across) as i:
            w.store(elt, 0, w.at(elt, raw, i.i))
        with w.loop(0, w.least(ends[0], rows)) as i:
            row, to = w.at(elt, source, w.mul(i.i, step)), w.at(elt, raw, w.mul(i.i, across))
            with w.loop(0, w.least(ends[1], across)) as j:
                w.store(elt, w.load(elt, w.at(elt, row, w.mul(j.i, along))), w.at(elt, to, j.i))

    def put_block(self, w, to, base, step, side, how):
        """A block, from rows that lie `step` bytes apart."""
        unit, words = self.unit, f"<{self.unit.lanes} x i32>"

        def row(i):
            return w.at("i8", base, w.mul(step, i))

        if how == TURN:
            together = unit.together
            made = [self.interleaved(w, [row(together * p + i) for i in range(together)]) for p in range(unit.lanes)]
        else:
            made = [w.load(words, row(i), unit.size) for i in range(unit.lanes)]
        if (side == "a") == (how == TURN):
            made = transposed(w, made, words, unit.lanes)
        for i, one in enumerate(made):
            w.store(words, one, w.at("i8", to, 4 * unit.lanes * i), 4)

    def interleaved(self, w, pointers):
        """The first numbers of all lines at these k, then the second ones, ...: as 32-bit words."""
        n, bits = self.unit.lanes, 8 * self.unit.size
        parts = [w.load(f"<{n} x i{bits}>", pointer, self.unit.size) for pointer in pointers]
        while len(parts) > 1:                        # neighbours become one number of twice the bits
            both = _list(lane for i in range(n) for lane in (i, n + i))
            type, wide = f"<{n} x i{bits}>", f"<{2 * n} x i{bits}>"
            joined = [w(f"shufflevector {type} {a}, {type} {b}, <{2 * n} x i32> <{both}>")
                      for a, b in zip(parts[::2], parts[1::2], strict=True)]
            parts = [w(f"bitcast {wide} {one} to <{n} x i{2 * bits}>") for one in joined]
            bits *= 2
        return parts[0]

    # --- vectors of memory's elements -------------------------------------------------------------------------------

    def store_vector(self, w, value, pointer, count):
        w.store(f"<{count} x {self.memory}>", value, pointer, self.unit.size)

    def load_some(self, w, pointer, some, count):
        """A vector of `count`, of which the first `some` are read, the others zero."""
        type = f"<{count} x {self.memory}>"
        return w(f"call {type} @llvm.masked.load.v{count}{self.memory}.p0(ptr {pointer}, i32 {self.unit.size}, "
                 f"<{count} x i1> {first_lanes(w, some, count)}, {type} zeroinitializer)")

    def pack_declarations(self):
        """What a text of packing calls."""
        lines = ["declare i64 @llvm.smin.i64(i64, i64)", "declare i64 @llvm.smax.i64(i64, i64)"]
        for count in {self.unit.lanes, self.unit.depth} if self.masks else ():
            type, mask = f"<{count} x {self.memory}>", f"<{count} x i1>"
            lines += [f"declare {type} @llvm.masked.load.v{count}{self.memory}.p0(ptr, i32, {mask}, {type})",
                      f"declare void @llvm.masked.store.v{count}{self.memory}.p0({type}, ptr, i32, {mask})"]
        return "\n".join([*lines, ""])


def first_lanes(w, some, count):
    """The first `some` of `count` lanes, as one bit each."""
    type = f"<{count} x i8>"
    narrow = w(f"trunc i64 {w.least(some, count)} to i8")
    spread = w(f"insertelement {type} poison, i8 {narrow}, i64 0")
    spread = w(f"shufflevector {type} {spread}, {type} poison, <{count} x i32> zeroinitializer")
    return w(f"icmp slt {type} <{', '.join(f'i8 {i}' for i in range(count))}>, {spread}")


def transposed(w, vectors, type, lanes):
    """The columns of the square of `lanes` vectors, as vectors."""
    half, distance = lanes // 2, 1
    low, high = [_list(lane for i in range(start, start + half) for lane in (i, lanes + i)) for start in (0, half)]
    while distance < lanes:                          # each time every vector is spread over twice the distance
        vectors = [w(f"shufflevector {type} {vectors[i]}, {type} {vectors[i + half]}, <{lanes} x i32> <{part}>")
                   for i in range(half) for part in (low, high)]
        distance *= 2
    return vectors
