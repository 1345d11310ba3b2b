"""The LLVM text of products of matrices, and the functions compiled from it. See gemm.py, which plans them.

A step's ints are the fields below, by name.
"""
import ctypes
import functools
import itertools
import platform
from contextlib import contextmanager

from ....loops.step import STEP_ARGUMENTS
from ....loops.target import pausing
from ..llvm_writer import LLVMWriter, Vectors, _list
from ..memory.allocator import CACHE_LINE_BYTES

X86 = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686", "x86")
LLVM_ELEMENT = {"float32": "float", "float64": "double"}
MAX_KERNEL_ROWS, MAX_KERNEL_VECTORS = 8, 8  # the innermost kernels' limits: rows, and vectors across
COPIED_TOGETHER = 8                         # rows of B that are copied together
COLUMNS_AHEAD = 2                           # how many columns of A on come nearer, while it is turned
STRIPS_TOGETHER = 128                       # strips of A: what lies side by side, of rows that may be pages apart
MICRO_KINDS = "micro", "micro_ahead", "micro_next"   # innermost kernels; those that ask for B, for the next matrices
MAX_AHEAD_VECTORS = 4                       # across, of those that ask
B_AHEAD_BYTES = 1024                        # how far on, where a vector is a line of the cache;
B_AHEAD_ROWS = 4                            # or how many rows, where they lie further apart than
NEAR_ROW_BYTES = 2560                       # this: that is the next one already, or the one after
APART_BYTES = 16 << 10                      # room in which sums of parts are put far from B, in the first cache
K_TOGETHER = 4                              # steps along k of a large block, likewise
SHORT_STRIPS = {False: 64, True: 128}       # of k: it comes near by itself; True: where a vector is a line of the cache
PANEL_WIDTHS = {32: (3, 2, 4, 1, 6, 8), 16: (3, 2, 1, 4)}   # registers → vectors across that are tried, in that order
MAX_TINY = 4                                # rows, columns and k of matrices that are multiplied number by number
DOT_COLUMNS = {1: 5, 2: 4, 4: 4, 8: 3}     # rows of a block of dot products → columns
DIRECT, COPY, TURN, GATHER = range(4)      # how an operand is packed: not, row by row, transposed, element by element

STEP_FIELDS = ("M N K tile_m tile_n tiles_m tiles_n block rows rest_rows width a_row a_col b_row b_col c_row c_col "
               "a_pack pack_a pack_b ahead a_room b_room group turned kernels size1 size2 a0 a1 a2 b0 b1 b2 c0 c1 c2 "
               "parts whole_k shares").split()


class GemmKernels:
    """The LLVM text of all functions for one element type."""

    word = "product"              # in the names of the functions
    drivers = ("gemm", "gemm_shared")          # steps that leave their work to others,
    inner = (*MICRO_KINDS, "pack_a", "pack_b")                # which are called by their address

    def __init__(self, element, target):
        self.v = Vectors(element, target)
        self.element, self.lanes = element, self.v.lanes
        self.whole_lines = target.vector_bytes == CACHE_LINE_BYTES
        self.short_strip = SHORT_STRIPS[self.whole_lines]

    def every(self, machine):
        """All functions that a plan may ask for: (a method, *its arguments) of each."""
        packs = [(pack, how) for pack in ("pack_a", "pack_b") for how in (COPY, TURN, GATHER)]
        return [("gemm",), ("gemm_shared",), ("clear_counts",), ("add_parts",), *packs,
                *[("tiny", cols) for cols in range(1, MAX_TINY + 1)],
                *[("dots", *block) for block in DOT_COLUMNS.items()], *machine.blocks(), *machine.blocks_ahead()]

    def micro_ahead(self, name, rows, width):
        """The innermost kernel for a B that is read once, from memory: it comes nearer beforehand."""
        return self.micro(name, rows, width, ahead=True)

    def micro_next(self, name, rows, width):
        """The innermost kernel for one of many small matrices: those that come after it come nearer meanwhile."""
        return self.micro(name, rows, width, following=True)

    def micro(self, name, rows, width, ahead=False, following=False):
        """The innermost kernel: a block of `rows` times `width` vectors of C, held in registers along k.

        %table tells for each k how far on A and B are from the k before (the first: from %a and %b), in elements. The
        next pair lies %step further in the table, so that with 0 one pair does for all of them; a pair beyond the last
        is read. %a.rows and %b.cols are offsets of rows and columns, as %c.rows and %c.cols are for the result, to
        whose contents the sums are added if %add is not 0. Rows or columns may be there several times: all is read
        before anything is written. %panels such blocks are done, %b.far and %c.far apart; and %strips times, from A and
        C on %a.down and %c.down further each time. What lies at %a.next and %b.next, as much of each as is read of A,
        is what `following` asks for.
        """
        v, elt = self.v, self.element
        w = LLVMWriter(f"define void @{name}(i64 %k, ptr %table, i64 %step, i64 %panels, ptr %a, ptr %a.rows, ptr %b, "
                       "ptr %b.cols, i64 %b.far, ptr %c, ptr %c.rows, ptr %c.cols, i64 %c.far, i64 %add, i64 %strips, "
                       "i64 %a.down, i64 %c.down, ptr %a.next, ptr %b.next)")

        def offsets(table, count):
            return [w.load("i64", w.at("i64", table, i)) for i in range(count)]

        def nearer(place, cache=3):
            w.do(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 {cache}, i32 1)")

        b_cols, c_cols = offsets("%b.cols", width), [w.mul(v.bytes, o) for o in offsets("%c.cols", width)]
        # the offsets are read one turn ahead: otherwise LLVM loads all of A first, and has no registers for it
        first = offsets("%table", 2)
        adds = w.is_("ne", "%add", 0)
        with w.loop(0, "%strips", 1, [("ptr", "%a"), ("ptr", "%c")]) as strip:
            top, to = strip.values
            starts = [w.at(elt, top, offset) for offset in offsets("%a.rows", rows)]
            strip.next = [w.at(elt, top, "%a.down"), w.at(elt, to, "%c.down")]
            with w.loop(0, "%panels", 1, [("ptr", "%b"), ("ptr", to)]) as panel:
                b, c = panel.values
                if not self.whole_lines:
                    with w.when(w.is_("sgt", "%k", self.short_strip)), w.loop(0, rows) as i:    # what will be written
                        row = w.at(elt, c, w.load("i64", w.at("i64", "%c.rows", i.i)))     # comes nearer
                        for col in c_cols:
                            nearer(w.at("i8", row, col), 2)
                across = [w.at(elt, b, col) for col in b_cols]

                def added(factors, for_a, sums):
                    made = []
                    for i in range(rows):
                        x = v.spread(w, w.load(elt, w.at(elt, starts[i], for_a)))
                        made += [v.fma(w, x, y, s) for y, s in zip(factors, sums[i * width:], strict=False)]
                    return made

                # Most of a product is steady: each step as far as the first, and vectors side by side. Then there is
                # nothing in the loop but what it needs, which shows where processors share a core; and a loop does
                # several steps where each is a few lines of the cache.
                together = K_TOGETHER if self.whole_lines and rows * width > MAX_KERNEL_ROWS else 1
                side_by_side = [w.is_("eq", col, j * self.lanes) for j, col in enumerate(b_cols)]
                even = functools.reduce(w.both, side_by_side, w.is_("eq", "%step", 0))
                steady = w.pick(even, w.down("%k", together), 0)
                on_a, on_b = first
                if ahead:
                    far_rows = w.is_("sgt", on_b, NEAR_ROW_BYTES // v.bytes)
                    far = w.pick(far_rows, w.mul(on_b, B_AHEAD_ROWS * v.bytes), B_AHEAD_BYTES)
                carry = [("i64", on_a), ("ptr", w.at(elt, b, on_b)), *[(v.type, "zeroinitializer")] * (rows * width)]
                asked = rows * v.bytes                       # of each of the next matrices, for a step along k
                with w.loop(0, steady, together, carry) as k:
                    for_a, place, *made = k.values
                    if following:
                        offset = w.mul(w.add(w.mul(strip.i, "%k"), k.i), asked)
                        lines = range(0, together * asked, CACHE_LINE_BYTES)
                        for matrix, line in itertools.product(("%a.next", "%b.next"), lines):
                            nearer(w.at("i8", matrix, w.add(offset, line)))
                    for _ in range(together):
                        for j in range(width if ahead else 0):
                            nearer(w.at("i8", place, w.add(far, j * CACHE_LINE_BYTES)))
                        made = added([v.load(w, w.at(elt, place, j * self.lanes)) for j in range(width)], for_a, made)
                        for_a, place = w.add(for_a, on_a), w.at(elt, place, on_b)
                    k.next = [for_a, place, *made]
                carry = [("ptr", "%table"), *[("i64", w.add(offset, w.mul(steady, offset))) for offset in first],
                         *[(v.type, one) for one in k.values[2:]]]
                with w.loop(steady, "%k", 1, carry) as k:
                    table, for_a, for_b, *sums = k.values
                    made = added([v.load(w, w.at(elt, p, for_b)) for p in across], for_a, sums)
                    later = w.at("i64", table, "%step")
                    on_a, on_b = offsets(later, 2)
                    k.next = [later, w.add(for_a, on_a), w.add(for_b, on_b), *made]
                lines = [w.at(elt, c, offset) for offset in offsets("%c.rows", rows)]

                def places():              # written where they are used, where LLVM makes them part of a load or store
                    return [w.at("i8", line, col) for line in lines for col in c_cols]

                sums = k.values[3:]
                more, done, before = w.name("more"), w.name("end"), w.block
                w.do(f"br i1 {adds}, label %{more}, label %{done}")
                w.label(more)
                added = [w(f"fadd {v.type} {v.load(w, place)}, {one}")
                         for place, one in zip(places(), sums, strict=True)]
                w.do(f"br label %{done}")
                w.label(done)
                sums = [w(f"phi {v.type} [ {one}, %{before} ], [ {total}, %{more} ]")
                        for one, total in zip(sums, added, strict=True)]
                for one, place in zip(sums, places(), strict=True):
                    v.store(w, one, place)
                panel.next = [w.at(elt, b, "%b.far"), w.at(elt, c, "%c.far")]
        return v.declarations() + w.text()

    def gather(self):
        """A matrix of any strides to rows of contiguous elements."""
        elt = self.element
        w = LLVMWriter("define internal void @gather(ptr %to, i64 %to.row, ptr %from, i64 %from.row, i64 %from.col, "
                       "i64 %rows, i64 %cols)")
        with w.loop(0, "%rows", 1, [("ptr", "%to"), ("ptr", "%from")]) as r:
            to, source = r.values
            with w.loop(0, "%cols", 1, [("ptr", source)]) as j:
                w.store(elt, w.load(elt, j.values[0]), w.at(elt, to, j.i))
                j.next = [w.at(elt, j.values[0], "%from.col")]
            r.next = [w.at(elt, to, "%to.row"), w.at(elt, source, "%from.row")]
        return w.text()

    def turn(self):
        """to[r, c] = from[c, r], both contiguous along their rows. Whole vectors of columns and whole groups of rows
        (as many as an element is in 16 bytes) are written."""
        v, elt, n = self.v, self.element, self.lanes
        group = 16 // v.bytes
        small = f"<{group} x {elt}>"
        w = LLVMWriter("define internal void @turn(ptr %to, i64 %to.row, ptr %from, i64 %from.row, i64 %rows, i64 "
                       "%cols)")
        whole, last = w.down("%rows", group), w.sub("%cols", 1)

        def put(loads, to):
            for i, one in enumerate(self.turned(w, loads)):
                v.store(w, one, w.at(elt, to, w.mul(i, "%to.row")))

        with w.loop(0, "%cols", n) as j:
            to = w.at(elt, "%to", j.i)
            # columns beyond the last are read from the last: what they give is never stored in C
            rows = [w.at(elt, "%from", w.mul(w.least(w.add(j.i, i), last), "%from.row")) for i in range(n)]
            with w.loop(0, whole, group) as r:
                put([w.load(small, w.at(elt, row, r.i), v.bytes) for row in rows],
                    w.at(elt, to, w.mul(r.i, "%to.row")))
            with w.loop(whole, "%rows") as r:
                to = w.at(elt, to, w.mul(r.i, "%to.row"))
                for i, row in enumerate(rows):
                    w.store(elt, w.load(elt, w.at(elt, row, r.i)), w.at(elt, to, i))
        return w.text()

    def turned(self, w, loads):
        """From `lanes` small vectors of 16 bytes, one of each row, the vectors of their columns."""
        n, group = self.lanes, 16 // self.v.bytes
        wide = []
        for i in range(group):                       # 16 bytes of each row i, i + group, i + 2 * group, ...
            parts, size = loads[i::group], group
            while len(parts) > 1:
                kind, size = f"<{size} x {self.element}>", 2 * size
                parts = [w(f"shufflevector {kind} {a}, {kind} {b}, <{size} x i32> <{_list(range(size))}>")
                         for a, b in zip(parts[::2], parts[1::2], strict=True)]
            wide += parts

        def interleave(a, b, each, high):
            """Of each 16 bytes the low or high half of `a` and of `b`, by turns `each` elements."""
            picked = []
            for lane in range(0, n, group):
                half = range(lane + group // 2 * high, lane + group // 2 * (1 + high))
                for start in half[::each]:
                    picked += [*range(start, start + each), *range(n + start, n + start + each)]
            t = self.v.type
            return w(f"shufflevector {t} {a}, {t} {b}, <{n} x i32> <{_list(picked)}>")

        if group == 2:
            return [interleave(*wide, 1, high) for high in (0, 1)]
        pairs = [interleave(wide[i], wide[i + 1], 1, high) for high in (0, 1) for i in (0, 2)]
        return [interleave(pairs[2 * i], pairs[2 * i + 1], 2, high) for i in (0, 1) for high in (0, 1)]

    def gemm(self, name):
        """The step: tiles one by one, their blocks of k, panels of columns, rows."""
        elt = self.element
        w, f = self.open_gemm(name)
        split = w.is_("sgt", f["parts"], 1)                # then sums of parts go to working memory, behind the result
        A, B, C = [w.load("ptr", w.at("ptr", "%buffers", i))
                   for i in (f["turned"], w.sub(1, f["turned"]), w.pick(split, 3, 2))]
        C = w.pick(split, self.apart(w, C, B), C, "ptr")
        room = self.gemm_room(w, f)
        with self.tiles(w, f) as (i, j, part, at):
            top, left = w.mul(i, f["tile_m"]), w.mul(j, f["tile_n"])
            m = w.least(f["tile_m"], w.sub(f["M"], top))
            cols = w.least(f["tile_n"], w.sub(f["N"], left))
            a = w.at(elt, w.at(elt, A, at["a"]), w.mul(top, f["a_row"]))
            b = w.at(elt, w.at(elt, B, at["b"]), w.mul(left, f["b_col"]))
            c = w.at(elt, w.at(elt, C, at["c"]), w.add(w.mul(top, f["c_row"]), left))
            f["until"] = w.least(f["K"], w.sub(f["whole_k"], w.pick(split, w.mul(part, f["K"]), 0)))
            with w.loop(0, w.most(f["until"], 1), f["block"]) as k:      # no k at all: once, with nothing to add
                following = w.at(elt, a, f["a2"]), w.at(elt, b, f["b2"])       # most often: a batch is one dimension
                self.block(w, f, k.i, m, cols, a, b, c, room, following)
        return "\n".join([self.v.declarations(), self.gather(), w.text()])

    def gemm_shared(self, name):
        """The step of one matrix whose tiles, of one block of k, threads take one by one; %begin to %end are threads.

        A thread packs a block of columns, and then takes tiles of its rows until there are no more; when all of k is
        done, it helps with the columns of others. Working memory, behind the result, counts: the tiles of each block
        of columns and of k that were taken, and the blocks of k that each tile has. All begin as 0 (`clear_counts`).
        """
        elt = self.element
        w, f = self.open_gemm(name)
        A, B, C, counts = [w.load("ptr", w.at("ptr", "%buffers", i))
                           for i in (f["turned"], w.sub(1, f["turned"]), 2, 3)]
        room, (pause, declared) = self.gemm_room(w, f), pausing(self.v.target.pause)
        f["until"] = f["K"]
        blocks = w.count_of(f["K"], f["block"])

        def count(number):
            """One count, in a cache line of its own."""
            return w.at("i8", counts, w.mul(number, CACHE_LINE_BYTES))

        with w.loop("%begin", "%end") as t:
            first = w.rem(t.i, f["tiles_n"])
            own = w.count_of(w.sub(f["tiles_n"], first), f["shares"])        # blocks of columns: this and every nth
            with w.loop(0, w.add(own, f["tiles_n"])) as turn:
                others = w.rem(w.add(first, w.sub(turn.i, own)), f["tiles_n"])
                j = w.pick(w.is_("slt", turn.i, own), w.add(first, w.mul(turn.i, f["shares"])), others)
                left = w.mul(j, f["tile_n"])
                cols = w.least(f["tile_n"], w.sub(f["N"], left))
                b, c = w.at(elt, B, w.mul(left, f["b_col"])), w.at(elt, C, left)
                with w.loop(0, blocks) as block:
                    taken = count(w.add(w.mul(j, blocks), block.i))

                    def each_tile(do, taken=taken, block=block, j=j):
                        with w.again() as leave:
                            i = w(f"atomicrmw add ptr {taken}, i64 1 monotonic, align 8")
                            leave(w.is_("sge", i, f["tiles_m"]))
                            done = count(w.add(w.mul(f["tiles_n"], blocks), w.add(w.mul(j, f["tiles_m"]), i)))
                            with w.again() as ready:                      # until the block of k before is finished
                                ready(w.is_("eq", w(f"load atomic i64, ptr {done} acquire, align 8"), block.i))
                                w.do(pause)
                            top = w.mul(i, f["tile_m"])
                            do(top, w.least(f["tile_m"], w.sub(f["M"], top)))
                            w.do(f"store atomic i64 {w.add(block.i, 1)}, ptr {done} release, align 8")

                    some = w.is_("slt", w(f"load atomic i64, ptr {taken} monotonic, align 8"), f["tiles_m"])
                    with w.when(some):
                        self.block(w, f, w.mul(block.i, f["block"]), f["tile_m"], cols, A, b, c, room,
                                   each_tile=each_tile)
        return "\n".join([self.v.declarations(), declared, self.gather(), w.text()])

    def clear_counts(self, name):
        """The step before `gemm_shared`."""
        w, f = self.open_gemm(name)
        counts = w.load("ptr", w.at("ptr", "%buffers", 3))
        each = w.add(w.count_of(f["K"], f["block"]), f["tiles_m"])
        with w.loop(0, w.mul(w.mul(f["tiles_n"], each), CACHE_LINE_BYTES), CACHE_LINE_BYTES) as i:
            w.store("i64", 0, w.at("i8", counts, i.i))
        return self.v.declarations() + w.text()

    def open_gemm(self, name):
        """A writer for a step of products, and its fields by name."""
        w = LLVMWriter(f"define void @{name}({STEP_ARGUMENTS})")
        return w, {field: w.load("i64", w.at("i64", "%ints", i)) for i, field in enumerate(STEP_FIELDS)}

    def gemm_room(self, w, f):
        """Where a step of products packs, and what else it needs."""
        elt, n = self.element, self.lanes
        a_pack, b_pack = w.rooms(*[(self.v.bytes, f[room]) for room in ("a_room", "b_room")])
        narrow = w.spare(f"[{MAX_KERNEL_ROWS * n} x {elt}]")  # C, where it is narrower than a vector
        tables = {word: w.spare(f"[{size} x i64]") for word, size in
                  (("step", 4), ("a_rows", MAX_KERNEL_ROWS), ("c_rows", MAX_KERNEL_ROWS),
                   ("cols", MAX_KERNEL_VECTORS), ("last", MAX_KERNEL_VECTORS))}
        for j in range(MAX_KERNEL_VECTORS):
            w.store("i64", j * n, w.at("i64", tables["cols"], j))
        return a_pack, b_pack, narrow, tables

    def apart(self, w, room, b):
        """Where in working memory sums of parts start: as far as can be from B, as the first cache sees it. Rows that
        lie a multiple of 16 KiB apart have four places in some, and one of B's, or of C's, would be pushed out."""
        room, b = [w(f"ptrtoint ptr {place} to i64") for place in (room, b)]
        on = w(f"and i64 {w.sub(w.add(b, APART_BYTES // 2), room)}, {APART_BYTES - CACHE_LINE_BYTES}")
        return w(f"inttoptr i64 {w.add(room, on)} to ptr")

    def add_parts(self, name):
        """The step after one that left sums of parts of k in working memory: C is the sum of them, in their order."""
        v, elt, n = self.v, self.element, self.lanes
        w, f = self.open_gemm(name)
        B, C, room = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in (w.sub(1, f["turned"]), 2, 3)]
        room, across = self.apart(w, room, B), w.div(f["c2"], f["M"])
        last = w.spare(v.type)
        with w.loop("%begin", "%end") as t:
            row, left = w.div(t.i, f["tiles_n"]), w.mul(w.rem(t.i, f["tiles_n"]), f["tile_n"])
            right = w.least(w.add(left, f["tile_n"]), f["N"])
            source, to = w.at(elt, room, w.mul(row, across)), w.at(elt, C, w.mul(row, f["c_row"]))
            with w.loop(left, right, n) as j:
                place = w.at(elt, source, j.i)
                with w.loop(1, f["parts"], 1, [("ptr", place), (v.type, v.load(w, place))]) as p:
                    further = w.at(elt, p.values[0], f["c2"])
                    p.next = [further, w(f"fadd {v.type} {p.values[1]}, {v.load(w, further)}")]
                total, rest = p.values[1], w.sub(right, j.i)

                def ragged(total=total, rest=rest, j=j):
                    v.store(w, total, last)
                    v.move_rest(w, w.at(elt, to, j.i), last, rest)

                w.either(w.is_("sge", rest, n), lambda total=total, j=j: v.store(w, total, w.at(elt, to, j.i)), ragged)
        return v.declarations() + w.text()

    @contextmanager
    def tiles(self, w, f):
        """For tiles %begin to %end: row and column among the tiles of a matrix, the place along the innermost dimension
        of the batch, and where the matrices of that batch start. They are counted on: divisions take longer than a
        small product."""
        limits = [f[size] for size in ("tiles_n", "tiles_m", "size2", "size1")]
        first, rest = [], "%begin"
        for limit in limits:
            first.append(w.rem(rest, limit))
            rest = w.div(rest, limit)
        with w.loop("%begin", "%end", 1, [("i64", at) for at in (*first, rest)]) as t:
            j, i, z, y, x = t.values
            yield i, j, z, {m: w.add(w.add(w.mul(x, f[m + "0"]), w.mul(y, f[m + "1"])), w.mul(z, f[m + "2"]))
                            for m in "abc"}
            t.next, on = [], 1
            for at, limit in zip((j, i, z, y), limits, strict=True):
                later = w.add(at, on)
                over = w.is_("eq", later, limit)
                t.next.append(w.pick(over, 0, later))
                on = w.one_if(over)
            t.next.append(w.add(x, on))

    def block(self, w, f, k, m, cols, a, b, c, room, following=("null", "null"), each_tile=None):
        """One block of k of a tile: later blocks add to what earlier ones left in C. With `each_tile`, of all tiles of
        these columns that it hands to a function (first row, rows). `following` are matrices that are read next."""
        elt, n = self.element, self.lanes
        a_pack, b_pack, narrow, tables = room
        size = w.least(f["block"], w.sub(f["until"], k))
        more = w.one_if(w.is_("ne", k, 0))
        a, b = w.at(elt, a, w.mul(k, f["a_col"])), w.at(elt, b, w.mul(k, f["b_row"]))
        vectors = w.count_of(cols, n)
        panels, strips = w.count_of(vectors, f["width"]), w.count_of(m, f["rows"])
        thin, wider = w.div(vectors, panels), w.rem(vectors, panels)     # so many panels are one vector wider
        # rows of the copy start at odd multiples of the vector, so that they do not meet in the cache
        far = w.add(w.up(size, 2 * n), n)
        upright, by_strips = w.is_("eq", f["a_pack"], TURN), w.is_("eq", f["a_pack"], COPY)
        at_once = w.both(w.is_("ne", f["a_pack"], DIRECT), w.is_("ne", f["a_pack"], COPY))

        def packed_a(source, row, rows):
            w.do(f"call void {w.function(f['pack_a'])}(ptr {a_pack}, i64 {far}, ptr {source}, i64 {row}, "
                 f"i64 {f['a_col']}, i64 {rows}, i64 {size}, i64 {f['rows']})")

        def packed_at_once(a, m):
            with w.when(at_once):
                packed_a(a, f["a_row"], m)
            return w.pick(at_once, a_pack, a, "ptr")

        if each_tile is None:
            a = packed_at_once(a, m)
        a_row = w.pick(at_once, w.pick(upright, 1, far), f["a_row"])
        a_col = w.pick(at_once, 1, f["a_col"])
        share = w.count_of(size, strips)
        line = 64 // self.v.bytes
        # The last vector of a tile that is not whole is moved to the left until it is: what is there twice is computed
        # twice. A tile that is narrower than a vector has its result elsewhere meanwhile, and B is copied for it.
        small = w.is_("slt", cols, n)
        as_is = w("and i1 " + w.is_("eq", f["pack_b"], 0) + ", " + w("xor i1 " + small + ", true"))
        ragged = w.one_if(w.is_("slt", cols, w.mul(vectors, n)))
        # a strip that is read as it lies comes nearer beforehand; a copy goes along it, which processors see coming
        near = w.both(w.both(w.is_("eq", a_col, 1), w.is_("eq", f["a_pack"], DIRECT)),
                      w.is_("sgt", size, self.short_strip))
        table = w(f"inttoptr i64 {f['kernels']} to ptr")

        def start(p):
            """Where panel `p` starts, in columns."""
            return w.mul(w.add(w.mul(p, thin), w.least(p, wider)), n)

        def nearer(place):
            w.do(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 2, i32 1)")

        def copy(to, to_row, source, row, rows, cols):
            w.do(f"call void @gather(ptr {to}, i64 {to_row}, ptr {source}, i64 {row}, i64 1, i64 {rows}, i64 {cols})")

        last_cols = w.most(w.sub(w.sub(cols, start(w.sub(panels, 1))), n), 0)        # of the last vector in its panel
        with w.loop(0, f["width"]) as j:
            w.store("i64", w.least(w.mul(j.i, n), last_cols), w.at("i64", tables["last"], j.i))
        with w.loop(0, panels, f["group"]) as g:
            until = w.least(w.add(g.i, f["group"]), panels)
            left = start(g.i)
            # What is not stored is computed all the same; and numbers too small to be normal, which may be what stood
            # here, take some processors a hundred times as long.
            with w.when(small), w.loop(0, w.mul(size, n), n) as i:
                self.v.store(w, "zeroinitializer", w.at(elt, b_pack, i.i))
            with w.when(w.is_("ne", f["pack_b"], 0)):
                w.do(f"call void {w.function(f['pack_b'])}(ptr {b_pack}, ptr {b}, i64 {f['b_row']}, i64 {f['b_col']}, "
                     f"i64 {size}, i64 {g.i}, i64 {until}, i64 {thin}, i64 {wider}, i64 {cols})")
            with w.when(w.both(small, w.is_("eq", f["pack_b"], 0))):
                copy(b_pack, n, b, f["b_row"], size, cols)
            middle = w.most(w.least(wider, until), g.i)                      # the wider panels of this group end here
            whole = w.sub(until, w.pick(w.is_("eq", until, panels), ragged, 0))
            ahead = w.pick(w.both(w.is_("ne", f["ahead"], 0), w.is_("slt", until, panels)), share, 0)
            right = start(until)
            further = w.least(start(w.least(w.add(until, f["group"]), panels)), cols)

            def strips(a, c, m, g=g, left=left, until=until, middle=middle, whole=whole, ahead=ahead, right=right,
                       further=further):
                # what is short and read as it lies goes to the kernels in one call, but for a strip that is not whole
                short = w.both(w.is_("eq", f["a_pack"], DIRECT), w.is_("sle", size, self.short_strip))
                whole_strips = w.div(m, f["rows"])
                first_call = w.pick(w.both(short, w.is_("sle", n, cols)), w.most(whole_strips, 1), 1)
                ragged_strip = w.one_if(w.is_("slt", w.mul(whole_strips, f["rows"]), m))
                calls = w.add(w.sub(w.add(whole_strips, ragged_strip), first_call), 1)
                with w.loop(0, calls, 1, [("i64", 0), ("i64", 0), ("i64", 0)]) as s:
                    (row, strip, before) = s.values
                    height = w.least(f["rows"], w.sub(m, row))
                    many = w.pick(w.is_("eq", s.i, 0), first_call, 1)
                    with w.loop(0, ahead) as q:    # the next panels come nearer, a few rows with each strip
                        place = w.at(elt, b, w.mul(w.add(w.mul(strip, share), q.i), f["b_row"]))
                        with w.loop(right, further, line) as j:
                            nearer(w.at(elt, place, j.i))
                    packed = w.add(w.mul(row, size), w.mul(strip, n))
                    lies = w.at(elt, a, w.pick(upright, packed, w.mul(row, a_row)))
                    with w.when(by_strips):
                        packed_a(lies, a_row, height)
                    a_s = w.pick(by_strips, a_pack, lies, "ptr")
                    next_a = w.at(elt, lies, w.mul(height, a_row))               # the next strip comes nearer
                    with w.loop(0, w.pick(near, w.least(f["rows"], w.sub(w.sub(m, row), height)), 0)) as r:
                        place = w.at(elt, next_a, w.mul(r.i, a_row))
                        with w.loop(0, size, line) as j:
                            nearer(w.at(elt, place, j.i))
                    along = w.pick(upright, height, a_col)
                    w.store("i64", along, tables["step"])
                    c_s = w.at(elt, c, w.mul(row, f["c_row"]))
                    a_next, b_next = [w.at(elt, place, w.mul(row, size)) for place in following]
                    computed = w.pick(w.is_("slt", height, f["rows"]), f["rest_rows"], f["rows"])
                    first_kernel = w.sub(w.mul(w.sub(computed, 1), MAX_KERNEL_VECTORS), 1)
                    c_row = w.pick(small, n, f["c_row"])
                    with w.when(w.is_("ne", height, before)), w.loop(0, f["rows"]) as r:
                        there = w.least(r.i, w.sub(height, 1))               # the last row stands for those not there
                        w.store("i64", w.mul(there, w.pick(by_strips, far, a_row)), w.at("i64", tables["a_rows"], r.i))
                        w.store("i64", w.mul(there, c_row), w.at("i64", tables["c_rows"], r.i))
                    with w.when(w.both(small, w.is_("ne", more, 0))):
                        copy(narrow, n, c_s, f["c_row"], height, cols)
                    # the wider panels, the others, and the last one if it is not whole
                    with w.loop(0, 3, 1, [("i64", g.i), ("i64", middle), ("i64", 1)]) as part:
                        first, end, extra = part.values
                        with w.when(w.is_("slt", first, end)):
                            width, column = w.add(thin, extra), start(first)
                            wide = w.mul(width, n)
                            kernel = w.load("ptr", w.at("ptr", table, w.add(first_kernel, width)))
                            copied = w.at(elt, b_pack, w.mul(w.sub(column, left), size))
                            panel = w.pick(as_is, w.at(elt, b, column), copied, "ptr")
                            b_row = w.pick(as_is, f["b_row"], wide)
                            w.store("i64", b_row, w.at("i64", tables["step"], 1))
                            col_table = w.pick(w.is_("eq", part.i, 2), tables["last"], tables["cols"], "ptr")
                            to = w.pick(small, narrow, w.at(elt, c_s, column), "ptr")
                            w.do(f"call void {kernel}(i64 {size}, ptr {tables['step']}, i64 0, "
                                 f"i64 {w.sub(end, first)}, ptr {w.at(elt, a_s, w.sub(0, along))}, "
                                 f"ptr {tables['a_rows']}, "
                                 f"ptr {w.at(elt, panel, w.sub(0, b_row))}, ptr {col_table}, "
                                 f"i64 {w.mul(wide, w.pick(as_is, 1, size))}, ptr {to}, ptr {tables['c_rows']}, "
                                 f"ptr {col_table}, i64 {wide}, i64 {more}, i64 {many}, "
                                 f"i64 {w.mul(f['rows'], a_row)}, i64 {w.mul(f['rows'], f['c_row'])}, "
                                 f"ptr {a_next}, ptr {b_next})")
                        part.next = [end, w.pick(w.is_("eq", part.i, 0), whole, until), 0]
                    with w.when(small):
                        copy(c_s, f["c_row"], narrow, n, height, cols)
                    s.next = [w.add(row, w.mul(many, height)), w.add(strip, 1), height]

            if each_tile is None:
                strips(a, c, m)
            else:
                each_tile(lambda top, m: strips(packed_at_once(w.at(elt, a, w.mul(top, f["a_row"])), m),
                                                w.at(elt, c, w.mul(top, f["c_row"])), m))

    def pack_a(self, name, how):
        """A block of A, `rows` by `cols`, to where it is read in order: by rows that lie `far` apart (GATHER, and COPY
        where they are contiguous), or by strips of `height` rows (TURN), each [column, row] and with room for a vector
        behind it."""
        v, elt, n = self.v, self.element, self.lanes
        w = LLVMWriter(f"define void @{name}(ptr %to, i64 %far, ptr %from, i64 %row, i64 %col, i64 %rows, i64 %cols, "
                       "i64 %height)")
        if how == GATHER:
            w.do("call void @gather(ptr %to, i64 %far, ptr %from, i64 %row, i64 %col, i64 %rows, i64 %cols)")
            return self.gather() + "\n" + w.text()
        if how == COPY:
            with w.loop(0, "%rows", 1, [("ptr", "%to"), ("ptr", "%from")]) as r:
                to, source = r.values
                v.move(w, to, source, "%cols")
                r.next = [w.at(elt, to, "%far"), w.at(elt, source, "%row")]
            return v.declarations() + w.text()
        room = w.add(w.mul("%height", "%cols"), n)
        together = w.mul(STRIPS_TOGETHER, "%height")

        def strip(to, source, count):
            """A strip of a number of rows that is known: one load and one store."""
            kind = f"<{count} x {elt}>"
            w.store(kind, w.load(kind, source, v.bytes), to, v.bytes)

        with w.loop(0, "%rows", together, [("ptr", "%to")]) as s:       # what lies side by side is read together
            until = w.least(w.add(s.i, together), "%rows")
            with w.loop(0, "%cols", 1, [("ptr", w.at(elt, "%from", s.i))]) as k:
                further = w.mul(w.least(COLUMNS_AHEAD, w.sub(w.sub("%cols", 1), k.i)), "%col")
                with w.loop(s.i, until, "%height", [("ptr", s.values[0]), ("ptr", k.values[0])]) as r:
                    to, source = r.values
                    height = w.least("%height", w.sub(until, r.i))
                    w.do(f"call void @llvm.prefetch.p0(ptr {w.at(elt, source, further)}, i32 0, i32 3, i32 1)")
                    to_k = w.at(elt, to, w.mul(k.i, height))
                    known = {rows: functools.partial(strip, to_k, source, rows) for rows in (4, 8)}
                    other = w.both(*[w.is_("ne", height, rows) for rows in known])
                    w.switch(height, known)
                    with w.when(other):
                        v.move(w, to_k, source, height)
                    r.next = [w.at(elt, to, room), w.at(elt, source, "%height")]
                k.next = [w.at(elt, k.values[0], "%col")]
            s.next = [w.at(elt, s.values[0], w.mul(STRIPS_TOGETHER, room))]
        return v.declarations() + w.text()

    def pack_b(self, name, how):
        """Panels `first` to `until` of B, each contiguous: [panel, row, column]. What is beyond the last column is left
        as it was."""
        v, elt, n = self.v, self.element, self.lanes
        w = LLVMWriter(f"define void @{name}(ptr %to, ptr %from, i64 %row, i64 %col, i64 %rows, i64 %first, i64 "
                       "%until, i64 %thin, i64 %wider, i64 %cols)")

        def start(p):
            return w.mul(w.add(w.mul(p, "%thin"), w.least(p, "%wider")), n)

        origin = start("%first")
        if how != COPY:
            with w.loop("%first", "%until") as p:
                left, after = start(p.i), start(w.add(p.i, 1))
                to = w.at(elt, "%to", w.mul(w.sub(left, origin), "%rows"))
                source, wide = w.at(elt, "%from", w.mul(left, "%col")), w.sub(after, left)
                cols = w.sub(w.least(after, "%cols"), left)
                if how == TURN:
                    w.do(f"call void @turn(ptr {to}, i64 {wide}, ptr {source}, i64 %col, i64 %rows, i64 {cols})")
                else:
                    w.do(f"call void @gather(ptr {to}, i64 {wide}, ptr {source}, i64 %row, i64 %col, i64 %rows, "
                         f"i64 {cols})")
            return v.declarations() + (self.turn() if how == TURN else self.gather()) + "\n" + w.text()
        # a few rows at a time through all panels: what lies side by side is read together
        with w.loop(0, "%rows", COPIED_TOGETHER, [("ptr", "%from")]) as r:
            count = w.least(COPIED_TOGETHER, w.sub("%rows", r.i))
            with w.loop("%first", "%until") as p:
                left, after = start(p.i), start(w.add(p.i, 1))
                wide, cols = w.sub(after, left), w.sub(w.least(after, "%cols"), left)
                to = w.at(elt, "%to", w.add(w.mul(w.sub(left, origin), "%rows"), w.mul(r.i, wide)))
                source = w.at(elt, r.values[0], left)
                with w.loop(0, cols, n) as j:
                    rest, ends = w.sub(cols, j.i), [w.at(elt, place, j.i) for place in (source, to)]

                    def rows(move, ends=ends, wide=wide, count=count):
                        with w.loop(0, count, 1, [("ptr", end) for end in ends]) as i:
                            old, new = i.values
                            move(new, old)
                            i.next = [w.at(elt, old, "%row"), w.at(elt, new, wide)]

                    w.either(w.is_("sge", rest, n),
                             lambda: rows(lambda to, source: v.store(w, v.load(w, source), to)),
                             lambda rest=rest: rows(lambda to, source: v.move_rest(w, to, source, rest)))
            r.next = [w.at(elt, r.values[0], w.mul(COPIED_TOGETHER, "%row"))]
        return v.declarations() + w.text()

    def tiny(self, name, cols):
        """The step for matrices with few numbers and `cols` columns: one matrix a tile, number by number."""
        v, elt = self.v, self.element
        w, f = self.open_gemm(name)
        A, B, C = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in (f["turned"], w.sub(1, f["turned"]), 2)]
        b_cols, c_cols = [[w.mul(j, f[step]) for j in range(cols)] for step in ("b_col", "c_col")]
        with self.tiles(w, f) as (_, _, _, at):
            a, b, c = [w.at(elt, base, at[which]) for base, which in ((A, "a"), (B, "b"), (C, "c"))]
            with w.loop(0, f["M"], 1, [("ptr", a), ("ptr", c)]) as i:
                row, to = i.values
                with w.loop(0, f["K"], 1, [("ptr", row), ("ptr", b), *[(elt, "0.0")] * cols]) as k:
                    left, right, *sums = k.values
                    x, ys = w.load(elt, left), [w.load(elt, w.at(elt, right, col)) for col in b_cols]
                    k.next = [w.at(elt, left, f["a_col"]), w.at(elt, right, f["b_row"]),
                              *[v.scalar_fma(w, x, y, one) for y, one in zip(ys, sums, strict=True)]]
                for one, col in zip(k.values[2:], c_cols, strict=True):
                    w.store(elt, one, w.at(elt, to, col))
                i.next = [w.at(elt, row, f["a_row"]), w.at(elt, to, f["c_row"])]
        return v.declarations() + v.scalar_declarations() + w.text()

    def dots(self, name, rows, cols):
        """The step for few rows: a block of `rows` times `cols` sums at a time, each by vectors along k."""
        v, elt, n = self.v, self.element, self.lanes
        w, f = self.open_gemm(name)
        A, B, C = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in (f["turned"], w.sub(1, f["turned"]), 2)]
        whole = w.down(f["K"], n)
        rest = w.sub(f["K"], whole)
        last_row, last_col = w.sub(f["M"], 1), w.sub(f["N"], 1)
        lines = w.spare(f"[{rows + cols} x ptr]")
        ends = w.spare(f"[{rows + cols} x {v.type}]")             # what is left of each at the end of k
        sums = w.spare(f"[{rows * cols} x {v.type}]")
        with w.loop(0, rows + cols) as i:
            v.store(w, "zeroinitializer", w.at(v.type, ends, i.i))
        with self.tiles(w, f) as (i, j, _, at):
            top, left = w.mul(i, f["tile_m"]), w.mul(j, f["tile_n"])
            bottom = w.least(w.add(top, f["tile_m"]), f["M"])
            right = w.least(w.add(left, f["tile_n"]), f["N"])
            a, b, c = [w.at(elt, base, at[which]) for base, which in ((A, "a"), (B, "b"), (C, "c"))]
            with w.loop(top, bottom, rows) as r, w.loop(left, right, cols) as q:
                # beyond the edge the last row or column is read again, and its sum is not stored
                left_of = [w.at(elt, a, w.mul(w.least(w.add(r.i, x), last_row), f["a_row"])) for x in range(rows)]
                right_of = [w.at(elt, b, w.mul(w.least(w.add(q.i, y), last_col), f["b_col"])) for y in range(cols)]
                for i, line in enumerate((*left_of, *right_of)):
                    w.store("ptr", line, w.at("ptr", lines, i))
                with w.loop(0, whole, n, [(v.type, "zeroinitializer")] * (rows * cols)) as k:
                    many = [v.load(w, w.at(elt, p, k.i)) for p in right_of]
                    k.next = []
                    for x, p in enumerate(left_of):
                        one = v.load(w, w.at(elt, p, k.i))
                        k.next += [v.fma(w, one, y, s) for y, s in zip(many, k.values[x * cols:], strict=False)]
                with w.when(w.is_("sgt", rest, 0)), w.loop(0, rows + cols) as i:
                    source = w.at(elt, w.load("ptr", w.at("ptr", lines, i.i)), whole)
                    v.move_rest(w, w.at(v.type, ends, i.i), source, rest)
                for i, total in enumerate(k.values):
                    v.store(w, total, w.at(v.type, sums, i))
                there = w.least(rows, w.sub(bottom, r.i)), w.least(cols, w.sub(right, q.i))
                with w.loop(0, there[0]) as x:
                    one = v.load(w, w.at(v.type, ends, x.i))
                    with w.loop(0, there[1]) as y:
                        other = v.load(w, w.at(v.type, ends, w.add(y.i, rows)))
                        total = v.load(w, w.at(v.type, sums, w.add(w.mul(x.i, cols), y.i)))
                        place = w.add(w.mul(w.add(r.i, x.i), f["c_row"]), w.mul(w.add(q.i, y.i), f["c_col"]))
                        w.store(elt, v.total(w, v.fma(w, one, other, total)), w.at(elt, c, place))
        return v.declarations() + w.text()


# --- the machine ------------------------------------------------------------------------------------------------------


class CompiledKernels:
    """The compiled functions of one kind of kernels and one element type."""

    def __init__(self, dtype, kind):
        from .. import machine_code
        self.size = {"float32": 4, "float64": 8}[dtype]
        target = machine_code.target()
        self.kernels = kind(LLVM_ELEMENT[dtype], target)
        self.tail = f"_{kind.word}_f{8 * self.size}"
        self.lanes, self.registers = self.kernels.lanes, 32 if target.vector_bytes == 64 or not X86 else 16
        # addresses of the innermost kernels that were made, of each kind
        self.tables = {kind: (ctypes.c_int64 * (MAX_KERNEL_ROWS * MAX_KERNEL_VECTORS))() for kind in MICRO_KINDS}
        self.compile, self.compile_beforehand = machine_code.functions, machine_code.make_ready
        self.packaged, self.made = machine_code.packaged_functions, {}
        self.texts_ahead = {}         # how a text is written → the text, of what was made ready and not asked for yet
        self.written = {}             # address → how its text is written: a method of the kernels, and its arguments

    def rows(self, width):
        """The most rows whose block fits in the registers, beside `width` vectors of B and one of A."""
        return max(1, min(MAX_KERNEL_ROWS, (self.registers - width - 1) // width))

    def blocks(self):
        """All innermost kernels that a plan may ask for."""
        return sorted({("micro", rows, vectors) for width in PANEL_WIDTHS[self.registers]
                       for rows in range(1, self.rows(width) + 1) for vectors in range(1, width + 1)})

    def blocks_ahead(self):
        """Those among them that come in kinds which ask for something beforehand: where a vector is a line of the
        cache."""
        few = [block for block in self.blocks() if block[2] <= MAX_AHEAD_VECTORS]
        return [(kind, *block[1:]) for kind in MICRO_KINDS[1:] for block in few
                if self.kernels.whole_lines]

    def every(self):
        """{name: text} of all functions that a plan may ask for."""
        return {self._name(how): self._text(self._name(how), how) for how in self.kernels.every(self)}

    def functions(self, wanted, blocks=(), hasty=False, kind="micro"):
        """The addresses of `wanted`, each (a method of the kernels, *its arguments), and then that of the table of the
        innermost kernels of a `kind`, with those for `blocks` (rows, width) in it. What is missing is compiled
        together; quickly at first where it leaves its work to others, or all of it if `hasty`."""
        inner = [(kind, *block) for block in blocks]
        missing = {self._name(how): how for how in (*wanted, *inner) if how not in self.made}
        made = self._packaged(missing) if missing else {}
        texts = {name: self.texts_ahead.pop(how, None) or self._text(name, how) for name, how in missing.items()
                 if name not in made}
        quickly = [name for name in texts if hasty or missing[name][0] in self.kernels.drivers]
        made |= self.compile(texts, quickly=quickly)
        for name, how in missing.items():
            self.made[how] = made[name]
            self.written[made[name]] = how[0], name, *how[1:]
        for how in inner:
            _, rows, width = how
            self.tables[kind][(rows - 1) * MAX_KERNEL_VECTORS + width - 1] = self.made[how]
        return [*[self.made[how] for how in wanted], ctypes.addressof(self.tables[kind])]

    def _name(self, how):
        what, *shape = how
        return f"{what}_{'x'.join(map(str, shape))}_f{8 * self.size}" if what in MICRO_KINDS else \
            "_".join(map(str, how)) + self.tail

    def _text(self, name, how):
        return getattr(self.kernels, how[0])(name, *how[1:])

    def words(self, name):
        """What the text of a function is written from: kinds that have one of the same name have the same text."""
        return f"{name} of the library, {self.registers} registers"

    def _packaged(self, names, asked=True):
        """{name: address} of those that came with the package."""
        found = self.packaged([self.words(name) for name in names], asked)
        return {name: found[self.words(name)] for name in names if self.words(name) in found}

    def make_ready(self, wanted, blocks):
        """Have what `functions` would ask for compiled beforehand."""
        named = {self._name(how): how for how in (*wanted, *[("micro", *block) for block in blocks])}
        ready = self._packaged(named, asked=False)
        texts = {name: self._text(name, how) for name, how in named.items() if name not in ready}
        self.texts_ahead = {how: texts[name] for name, how in named.items() if name in texts and how not in self.made}
        self.compile_beforehand(texts, [name for name, how in named.items() if how[0] in self.kernels.drivers])

    def function(self, what, *shape, hasty=False):
        """The address of the step `what`."""
        return self.functions([(what, *shape)], hasty=hasty)[0]

    def texts(self, address):
        """The text of the step at `address`; and, where it calls others by their address, those of all such that were
        made so far."""
        def text(how): return getattr(self.kernels, how[0])(*how[1:])
        own = text(self.written[address])
        inner = [how for how in self.written.values() if how[0] in self.kernels.inner] if "call void %" in own else []
        return [own, *map(text, inner)]


_hosts: dict = {}             # never emptied: steps that were planned have the addresses of the tables in them


def compiled_kernels(dtype, kind=GemmKernels):
    """The compiled functions of `kind` for `dtype`, and for the processor in use; made at first use."""
    from .. import machine_code
    key = dtype, kind, machine_code.processor()
    return _hosts.get(key) or _hosts.setdefault(key, CompiledKernels(dtype, kind))


def texts_of(address):
    """The LLVM texts behind a step of the library, for users who want to look."""
    return next(machine.texts(address) for machine in list(_hosts.values()) if address in machine.written)
