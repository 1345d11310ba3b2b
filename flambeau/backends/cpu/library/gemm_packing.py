"""The LLVM text that packs operands of products: a block of A or B to where the innermost kernels read it in order."""
import functools

from ..llvm_writer import LLVMWriter, Vectors, _list

DIRECT, COPY, TURN, GATHER = range(4)      # how an operand is packed: not, row by row, transposed, element by element
COPIED_TOGETHER = 8                         # rows of B that are copied together
COLUMNS_AHEAD = 2                           # how many columns of A on come nearer, while it is turned
STRIPS_TOGETHER = 128                       # strips of A: what lies side by side, of rows that may be pages apart


class PackingKernels:
    """The text of the functions that pack, for one element type."""

    def __init__(self, element, target):
        self.v = Vectors(element, target)
        self.element, self.lanes = element, self.v.lanes

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
                type, size = f"<{size} x {self.element}>", 2 * size
                parts = [w(f"shufflevector {type} {a}, {type} {b}, <{size} x i32> <{_list(range(size))}>")
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
            type = f"<{count} x {elt}>"
            w.store(type, w.load(type, source, v.bytes), to, v.bytes)

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
                    rest, ends = w.sub(cols, j.i), [w.at(elt, base, j.i) for base in (source, to)]

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
