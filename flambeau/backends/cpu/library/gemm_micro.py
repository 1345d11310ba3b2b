"""The LLVM text of the innermost kernels of products: a block of C, held in registers along k."""
import functools
import itertools

from ..llvm_writer import LLVMWriter
from ..memory.allocator import CACHE_LINE_BYTES

MAX_KERNEL_ROWS, MAX_KERNEL_VECTORS = 8, 8  # the innermost kernels' limits: rows, and vectors across
B_AHEAD_BYTES = 1024                        # how far on, where a vector is a line of the cache;
B_AHEAD_ROWS = 4                            # or how many rows, where they lie further apart than
NEAR_ROW_BYTES = 2560                       # this: that is the next one already, or the one after
K_TOGETHER = 4                              # steps along k of a large block, where a vector is a line of the cache
SHORT_STRIPS = {False: 64, True: 128}       # of k: it comes near by itself; True: where a vector is a line of the cache


class MicroKernel:
    """One of them, for blocks of `rows` times `width` vectors; see GemmKernels.micro."""

    def __init__(self, kernels, rows, width, ahead, following):
        self.v, self.whole_lines, self.rows, self.width = kernels.v, kernels.whole_lines, rows, width
        self.ahead, self.following = ahead, following
        # several steps together, where each is a few lines of the cache
        self.together = K_TOGETHER if self.whole_lines and rows * width > MAX_KERNEL_ROWS else 1

    def text(self, name):
        v, elt = self.v, self.v.element
        w = self.w = LLVMWriter(f"define void @{name}(i64 %k, ptr %table, i64 %step, i64 %panels, ptr %a, ptr %a.rows, "
                                "ptr %b, ptr %b.cols, i64 %b.far, ptr %c, ptr %c.rows, ptr %c.cols, i64 %c.far, "
                                "i64 %add, i64 %strips, i64 %a.down, i64 %c.down, ptr %a.next, ptr %b.next)")
        self.b_cols = self.offsets("%b.cols", self.width)
        self.c_cols = [w.mul(v.bytes, o) for o in self.offsets("%c.cols", self.width)]
        # the offsets are read one turn ahead: otherwise LLVM loads all of A first, and has no registers for it
        self.first = self.offsets("%table", 2)
        adds = w.is_("ne", "%add", 0)
        with w.loop(0, "%strips", 1, [("ptr", "%a"), ("ptr", "%c")]) as strip:
            top, to = strip.values
            self.starts = [w.at(elt, top, offset) for offset in self.offsets("%a.rows", self.rows)]
            strip.next = [w.at(elt, top, "%a.down"), w.at(elt, to, "%c.down")]
            with w.loop(0, "%panels", 1, [("ptr", "%b"), ("ptr", to)]) as panel:
                b, c = panel.values
                if not self.whole_lines:
                    self.prefetch_result(c)
                across = [w.at(elt, b, col) for col in self.b_cols]
                self.put(c, self.summed(b, across, strip.i), adds)
                panel.next = [w.at(elt, b, "%b.far"), w.at(elt, c, "%c.far")]
        return v.declarations() + w.text()

    def offsets(self, table, count):
        return [self.w.load("i64", self.w.at("i64", table, i)) for i in range(count)]

    def prefetch(self, pointer, cache=3):
        self.w.do(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 {cache}, i32 1)")

    def prefetch_result(self, c):
        w = self.w
        with w.when(w.is_("sgt", "%k", SHORT_STRIPS[False])), w.loop(0, self.rows) as i:
            row = w.at(self.v.element, c, w.load("i64", w.at("i64", "%c.rows", i.i)))
            for col in self.c_cols:
                self.prefetch(w.at("i8", row, col), 2)

    def summed(self, b, across, strip):
        """The sums of the block along k, whose rows of B start at `b`, its columns at `across`."""
        w, v = self.w, self.v
        # Most of a product is steady: each step as far as the first, and vectors side by side. Then there is nothing
        # in the loop but what it needs, which shows where processors share a core.
        side_by_side = [w.is_("eq", col, j * v.lanes) for j, col in enumerate(self.b_cols)]
        even = functools.reduce(w.both, side_by_side, w.is_("eq", "%step", 0))
        steady = w.pick(even, w.down("%k", self.together), 0)
        carry = [("ptr", "%table"), *self.steady_steps(b, strip, steady)]
        with w.loop(steady, "%k", 1, carry) as k:
            table, for_a, for_b, *sums = k.values
            made = self.added([v.load(w, w.at(v.element, p, for_b)) for p in across], for_a, sums)
            later = w.at("i64", table, "%step")
            on_a, on_b = self.offsets(later, 2)
            k.next = [later, w.add(for_a, on_a), w.add(for_b, on_b), *made]
        return k.values[3:]

    def steady_steps(self, b, strip, steady):
        """The first `steady` steps; gives (type, value) of the offsets and sums with which the others begin."""
        w, v, elt = self.w, self.v, self.v.element
        on_a, on_b = self.first
        if self.ahead:
            far_rows = w.is_("sgt", on_b, NEAR_ROW_BYTES // v.bytes)
            far = w.pick(far_rows, w.mul(on_b, B_AHEAD_ROWS * v.bytes), B_AHEAD_BYTES)
        carry = [("i64", on_a), ("ptr", w.at(elt, b, on_b)), *[(v.type, "zeroinitializer")] * (self.rows * self.width)]
        with w.loop(0, steady, self.together, carry) as k:
            for_a, pointer, *made = k.values
            if self.following:
                self.prefetch_following(strip, k.i)
            for _ in range(self.together):
                for j in range(self.width if self.ahead else 0):
                    self.prefetch(w.at("i8", pointer, w.add(far, j * CACHE_LINE_BYTES)))
                made = self.added([v.load(w, w.at(elt, pointer, j * v.lanes)) for j in range(self.width)], for_a, made)
                for_a, pointer = w.add(for_a, on_a), w.at(elt, pointer, on_b)
            k.next = [for_a, pointer, *made]
        return [*[("i64", w.add(offset, w.mul(steady, offset))) for offset in self.first],
                *[(v.type, one) for one in k.values[2:]]]

    def prefetch_following(self, strip, k):
        """Of each of the next matrices, as much as is read of A in these steps along k."""
        w, asked = self.w, self.rows * self.v.bytes
        offset = w.mul(w.add(w.mul(strip, "%k"), k), asked)
        lines = range(0, self.together * asked, CACHE_LINE_BYTES)
        for matrix, line in itertools.product(("%a.next", "%b.next"), lines):
            self.prefetch(w.at("i8", matrix, w.add(offset, line)))

    def added(self, factors, for_a, sums):
        """The sums with one step along k more."""
        w, v, made = self.w, self.v, []
        for i in range(self.rows):
            x = v.spread(w, w.load(v.element, w.at(v.element, self.starts[i], for_a)))
            made += [v.fma(w, x, y, s) for y, s in zip(factors, sums[i * self.width:], strict=False)]
        return made

    def put(self, c, sums, adds):
        """Write the block to C, where `adds` holds added to what is there."""
        w, v = self.w, self.v
        lines = [w.at(v.element, c, offset) for offset in self.offsets("%c.rows", self.rows)]

        def pointers():              # written where they are used, where LLVM makes them part of a load or store
            return [w.at("i8", line, col) for line in lines for col in self.c_cols]

        more, done, before = w.name("more"), w.name("end"), w.block
        w.do(f"br i1 {adds}, label %{more}, label %{done}")
        w.label(more)
        added = [w(f"fadd {v.type} {v.load(w, pointer)}, {one}") for pointer, one in zip(pointers(), sums, strict=True)]
        w.do(f"br label %{done}")
        w.label(done)
        sums = [w(f"phi {v.type} [ {one}, %{before} ], [ {total}, %{more} ]")
                for one, total in zip(sums, added, strict=True)]
        for one, pointer in zip(sums, pointers(), strict=True):
            v.store(w, one, pointer)
