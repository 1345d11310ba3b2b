"""The LLVM text of products of matrices, and the functions compiled from it. See gemm.py, which plans them.

A step's ints are the fields below, by name.
"""
import ctypes
import platform
from itertools import product

from .writer import Vectors, Writer, _list

X86 = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686", "x86")
ELEMENTS = {"float32": "float", "float64": "double"}
ROWS, WIDTH = 16, 8           # the innermost kernels' limits: rows, and vectors across
PART = 384                    # k that is added up in one go: a longer sum is one of sums, which rounds less
TOGETHER = 8                  # rows of B, or strips of A, that are copied together
DIRECT, COPY, TURN, GATHER = range(4)      # how an operand is packed: not, row by row, transposed, element by element

FIELDS = ("M N K tile_m tile_n tiles_m tiles_n block rows width a_row a_col b_row b_col c_row c_col a_pack b_pack "
          "a_room b_room group turned kernels size1 size2 a0 a1 a2 b0 b1 b2 c0 c1 c2").split()


class Kernels:
    """The LLVM text of all functions for one element type."""

    word = "product"              # in the names of the functions

    def __init__(self, element, target):
        self.v = Vectors(element, target)
        self.element, self.lanes = element, self.v.lanes

    def micro(self, name, rows, width, plain):
        """The innermost kernel: a block of `rows` times `width` vectors of C, held in registers along k.

        It does %panels such blocks, side by side; the last vector of the last has %last elements. Of the rows only
        %height are there: the last is read again in the place of the others, and those are not stored. The sums are
        added to E, which is C after the first block of k, and zeros before. A `plain` one stores them as they are, and
        its k is at most PART."""
        v, elt = self.v, self.element
        w = Writer(f"define void @{name}(i64 %panels, i64 %height, i64 %k, ptr %a, i64 %a.row, i64 %a.col, ptr %b, "
                   "i64 %b.row, i64 %b.step, ptr %c, i64 %c.row, ptr %e, i64 %e.row, i64 %e.step, i64 %last)")
        spare = plain or w(f"alloca [{rows * width} x {v.type}], align 64")      # what earlier parts of k added up to
        lowest = w.sub("%height", 1)
        starts = [w.at(elt, "%a", w.mul(w.least(i, lowest), "%a.row")) for i in range(rows)]
        final = w.sub("%panels", 1)
        with w.loop(0, "%panels", 1, [("ptr", "%b"), ("ptr", "%c"), ("ptr", "%e")]) as panel:
            b, c, e = panel.values
            c_rows, e_rows = [[w.at(elt, p, w.mul(i, row)) for i in range(rows)]
                              for p, row in ((c, "%c.row"), (e, "%e.row"))]
            with w.when(w.is_("sgt", "%k", 64)):           # what will be written comes nearer while we compute
                for i, j in product(range(rows), range(width)):
                    place = w.at(elt, c_rows[i], j * self.lanes)
                    w.do(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 2, i32 1)")
            sums = self.along(w, rows, width, starts, 0, "%k", 0, b)[2:] if plain else \
                self.in_parts(w, rows, width, starts, b, spare)
            some = v.mask(w, w.pick(w.is_("eq", panel.i, final), "%last", self.lanes))
            for i in range(rows):
                with w.when(w.is_("sgt", "%height", i)):
                    for j in range(width):
                        to, old = w.at(elt, c_rows[i], j * self.lanes), w.at(elt, e_rows[i], j * self.lanes)
                        edge, total = j == width - 1, sums[i * width + j]
                        if not plain:
                            old = v.load_some(w, old, some) if edge else v.load(w, old)
                            total = w(f"fadd {v.type} {old}, {total}")
                        v.store_some(w, total, to, some) if edge else v.store(w, total, to)
            panel.next = [w.at(elt, b, "%b.step"), w.at(elt, c, width * self.lanes), w.at(elt, e, "%e.step")]
        return v.declarations() + w.text()

    def along(self, w, rows, width, starts, begin, end, offset, b):
        """The sums over k from `begin` to `end`, behind the offset in A's rows and the place in B that follow."""
        v, elt = self.v, self.element
        with w.loop(begin, end, 1, [("i64", offset), ("ptr", b), *[(v.type, "zeroinitializer")] * (rows * width)]) as k:
            offset, b, *sums = k.values
            across = [v.load(w, w.at(elt, b, j * self.lanes)) for j in range(width)]
            made = []
            for i in range(rows):
                x = v.spread(w, w.load(elt, w.at(elt, starts[i], offset)))
                made += [v.fma(w, x, y, s) for y, s in zip(across, sums[i * width:], strict=False)]
            k.next = [w.add(offset, "%a.col"), w.at(elt, b, "%b.row"), *made]
        return k.values

    def in_parts(self, w, rows, width, starts, b, spare):
        """The sums over all k, those over each PART added up in `spare`."""
        v, count = self.v, rows * width
        far = w.is_("sgt", "%k", PART)
        places = [w.at(v.type, spare, i) for i in range(count)]
        with w.when(far):
            for place in places:
                w.store(v.type, "zeroinitializer", place, 64)
        carry = [("i64", 0), ("ptr", b), *[(v.type, "zeroinitializer")] * count]
        with w.loop(0, "%k", PART, carry) as part:
            until = w.least(w.add(part.i, PART), "%k")
            part.next = self.along(w, rows, width, starts, part.i, until, *part.values[:2])
            with w.when(w.is_("slt", until, "%k")):
                for place, one in zip(places, part.next[2:], strict=True):
                    w.store(v.type, w(f"fadd {v.type} {w.load(v.type, place, 64)}, {one}"), place, 64)
        sums = part.values[2:]
        add, done, before = w.name("add"), w.name("end"), w.block
        w.do(f"br i1 {far}, label %{add}, label %{done}")
        w.label(add)
        more = [w(f"fadd {v.type} {w.load(v.type, place, 64)}, {one}") for place, one in zip(places, sums, strict=True)]
        w.do(f"br label %{done}")
        w.label(done)
        return [w(f"phi {v.type} [ {a}, %{before} ], [ {b}, %{add} ]") for a, b in zip(sums, more, strict=True)]

    def strips(self):
        """Strips of rows of a matrix that is contiguous along its columns, each strip contiguous: [strip, column, row].

        Behind each strip there is room for a vector."""
        v, elt, n = self.v, self.element, self.lanes
        w = Writer("define internal void @strips(ptr %to, ptr %from, i64 %from.col, i64 %strips, i64 %height, "
                   "i64 %cols)")
        some, room = v.mask(w, "%height"), w.add(w.mul("%height", "%cols"), n)

        def pack(count, to, source):
            """`count` strips side by side, along the columns: what lies side by side is read together."""
            def move(start, some):
                for i in range(count):
                    one = v.load_some(w, w.at(elt, w.at(elt, source, w.mul(i, "%height")), start), some)
                    v.store(w, one, w.at(elt, w.at(elt, to, w.mul(i, room)), start))   # the next writes over too much

            with w.loop(0, "%cols", 1, [("ptr", to), ("ptr", source)]) as k:
                to, source = k.values
                if n >= ROWS:                    # a strip is no higher than a vector
                    move(0, some)
                else:
                    with w.loop(0, "%height", n) as part:
                        move(part.i, v.mask(w, w.sub("%height", part.i)))
                k.next = [w.at(elt, to, "%height"), w.at(elt, source, "%from.col")]

        to, source, together = "%to", "%from", w.down("%strips", TOGETHER)
        for first, last, count in ((0, together, TOGETHER), (together, "%strips", 1)):
            with w.loop(first, last, count, [("ptr", to), ("ptr", source)]) as s:
                pack(count, *s.values)
                s.next = [w.at(elt, s.values[0], w.mul(count, room)), w.at(elt, s.values[1], w.mul(count, "%height"))]
            to, source = s.values
        return w.text()

    def gather(self):
        """A matrix of any strides to rows of contiguous elements."""
        elt = self.element
        w = Writer("define internal void @gather(ptr %to, i64 %to.row, ptr %from, i64 %from.row, i64 %from.col, "
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
        w = Writer("define internal void @turn(ptr %to, i64 %to.row, ptr %from, i64 %from.row, i64 %rows, i64 %cols)")
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
        elt, n = self.element, self.lanes
        w = Writer(f"define void @{name}(ptr %buffers, ptr %ints, ptr %scalars, i64 %begin, i64 %end)")
        f = {field: w.load("i64", w.at("i64", "%ints", i)) for i, field in enumerate(FIELDS)}
        A, B, C = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in (f["turned"], w.sub(1, f["turned"]), 2)]
        a_pack = w(f"alloca {elt}, i64 {f['a_room']}, align 64")
        b_pack = w(f"alloca {elt}, i64 {f['b_room']}, align 64")
        zeros = w(f"alloca {elt}, i64 {WIDTH * n}, align 64")            # what the first block of k is added to
        for j in range(WIDTH):
            self.v.store(w, "zeroinitializer", w.at(elt, zeros, j * n))
        with w.loop("%begin", "%end") as t:
            i, j, at = self.tile(w, f, t.i)
            top, left = w.mul(i, f["tile_m"]), w.mul(j, f["tile_n"])
            m = w.least(f["tile_m"], w.sub(f["M"], top))
            cols = w.least(f["tile_n"], w.sub(f["N"], left))
            a = w.at(elt, w.at(elt, A, at["a"]), w.mul(top, f["a_row"]))
            b = w.at(elt, w.at(elt, B, at["b"]), w.mul(left, f["b_col"]))
            c = w.at(elt, w.at(elt, C, at["c"]), w.add(w.mul(top, f["c_row"]), left))
            with w.loop(0, w.most(f["K"], 1), f["block"]) as k:          # no k at all: once, with nothing to add
                self.block(w, f, k.i, m, cols, a, b, c, a_pack, b_pack, zeros)
        texts = [self.v.declarations(), self.strips(), self.gather(), self.turn(), self.panels(), w.text()]
        return "\n".join(texts)

    def tile(self, w, f, t):
        """Tile `t`: its row and column among the tiles of a matrix, and where the matrices of that batch start."""
        each = w.mul(f["tiles_m"], f["tiles_n"])
        batch, rest = w.div(t, each), w.rem(t, each)
        outer, z = w.div(batch, f["size2"]), w.rem(batch, f["size2"])
        x, y = w.div(outer, f["size1"]), w.rem(outer, f["size1"])
        at = {m: w.add(w.add(w.mul(x, f[m + "0"]), w.mul(y, f[m + "1"])), w.mul(z, f[m + "2"])) for m in "abc"}
        return w.div(rest, f["tiles_n"]), w.rem(rest, f["tiles_n"]), at

    def block(self, w, f, k, m, cols, a, b, c, a_pack, b_pack, zeros):
        """One block of k of a tile: later blocks add to what earlier ones left in C."""
        elt, n = self.element, self.lanes
        size = w.least(f["block"], w.sub(f["K"], k))
        first = w.is_("eq", k, 0)
        e, e_row, e_col = w.pick(first, zeros, c, "ptr"), w.pick(first, 0, f["c_row"]), w.pick(first, 0, 1)
        a, b = w.at(elt, a, w.mul(k, f["a_col"])), w.at(elt, b, w.mul(k, f["b_row"]))
        vectors = w.count_of(cols, n)
        panels, strips = w.count_of(vectors, f["width"]), w.count_of(m, f["rows"])
        thin, wider = w.div(vectors, panels), w.rem(vectors, panels)     # so many panels are one vector wider
        full, rest = w.div(m, f["rows"]), w.rem(m, f["rows"])
        # rows of the copy start at odd multiples of the vector, so that they do not meet in the cache
        far = w.add(w.up(size, 2 * n), n)

        def turn():
            def pack(to, source, strips, rows):
                w.do(f"call void @strips(ptr {to}, ptr {source}, i64 {f['a_col']}, i64 {strips}, i64 {rows}, "
                     f"i64 {size})")

            pack(a_pack, a, full, f["rows"])
            with w.when(w.is_("sgt", rest, 0)):
                pack(w.at(elt, a_pack, w.mul(full, w.add(w.mul(f["rows"], size), n))),
                     w.at(elt, a, w.mul(full, f["rows"])), 1, rest)

        w.switch(f["a_pack"], {
            TURN: turn,
            GATHER: lambda: w.do(f"call void @gather(ptr {a_pack}, i64 {far}, ptr {a}, i64 {f['a_row']}, "
                                 f"i64 {f['a_col']}, i64 {m}, i64 {size})")})
        direct, upright = w.is_("eq", f["a_pack"], DIRECT), w.is_("eq", f["a_pack"], TURN)
        a = w.pick(direct, a, a_pack, "ptr")
        a_row = w.pick(direct, f["a_row"], w.pick(upright, 1, far))
        a_col = w.pick(direct, f["a_col"], 1)
        share = w.count_of(size, strips)
        line = 64 // self.v.bytes
        ragged = w.is_("slt", cols, w.mul(vectors, n))
        as_is = w.is_("eq", f["b_pack"], DIRECT)
        near = w.both(w.is_("eq", a_col, 1), w.is_("ne", f["a_pack"], TURN))
        table = w(f"inttoptr i64 {f['kernels']} to ptr")
        first_kernel = w.sub(w.mul(w.sub(f["rows"], 1), WIDTH), 1)

        def start(p):
            """Where panel `p` starts, in columns."""
            return w.mul(w.add(w.mul(p, thin), w.least(p, wider)), n)

        def nearer(place):
            w.do(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 2, i32 1)")

        with w.loop(0, panels, f["group"]) as g:
            until = w.least(w.add(g.i, f["group"]), panels)
            left = start(g.i)
            # nothing is read beyond the end of a row: a last vector that is not whole is always copied
            edge = w.both(w.both(ragged, w.is_("eq", until, panels)), as_is)
            copied = w.sub(until, w.one_if(edge))                            # panels before this one lie as they did
            w.do(f"call void @panels(i64 {w.pick(edge, COPY, f['b_pack'])}, ptr {b_pack}, ptr {b}, i64 {f['b_row']}, "
                 f"i64 {f['b_col']}, i64 {size}, i64 {w.pick(edge, copied, g.i)}, i64 {g.i}, i64 {until}, "
                 f"i64 {thin}, i64 {wider}, i64 {cols})")
            middle = w.most(w.least(wider, until), g.i)                      # the wider panels of this group end here
            ahead = w.pick(w.both(w.is_("eq", f["b_pack"], COPY), w.is_("slt", until, panels)), share, 0)
            right = start(until)
            further = w.least(start(w.least(w.add(until, f["group"]), panels)), cols)

            def part(first, end, more, packed, height, a_s, a_row, a_col, row, e_s):
                """The panels from `first` to `end` of one strip of rows, `more` (0 or 1) vectors wider than thin."""
                with w.when(w.is_("slt", first, end)):
                    width, column = w.add(thin, more), start(first)
                    wide = w.mul(width, n)
                    kernel = w.load("ptr", w.at("ptr", table, w.add(first_kernel, width)))
                    copy = w.at(elt, b_pack, w.mul(w.sub(column, left), size))
                    panel = w.pick(packed, copy, w.at(elt, b, w.mul(column, f["b_col"])), "ptr")
                    last = w.least(w.sub(cols, w.sub(start(end), n)), n)     # elements in the very last vector
                    w.do(f"call void {kernel}(i64 {w.sub(end, first)}, i64 {height}, i64 {size}, ptr {a_s}, "
                         f"i64 {a_row}, i64 {a_col}, ptr {panel}, i64 {w.pick(packed, wide, f['b_row'])}, "
                         f"i64 {w.mul(wide, w.pick(packed, size, 1))}, "
                         f"ptr {w.at(elt, w.at(elt, c, column), w.mul(row, f['c_row']))}, i64 {f['c_row']}, "
                         f"ptr {w.at(elt, e_s, w.mul(column, e_col))}, i64 {e_row}, i64 {w.mul(wide, e_col)}, "
                         f"i64 {last})")

            with w.loop(0, m, f["rows"], [("i64", 0)]) as s:
                row, strip, height = s.i, s.values[0], w.least(f["rows"], w.sub(m, s.i))
                with w.loop(0, ahead) as q:    # the next panels come nearer, a few rows with each strip
                    place = w.at(elt, b, w.mul(w.add(w.mul(strip, share), q.i), f["b_row"]))
                    with w.loop(right, further, line) as j:
                        nearer(w.at(elt, place, j.i))
                e_s = w.at(elt, e, w.mul(row, e_row))
                packed = w.add(w.mul(row, size), w.mul(strip, n))
                a_s = w.at(elt, a, w.pick(upright, packed, w.mul(row, a_row)))
                next_a = w.at(elt, a_s, w.mul(height, a_row))                # the next strip comes nearer
                with w.loop(0, w.pick(near, w.least(f["rows"], w.sub(w.sub(m, row), height)), 0)) as r:
                    place = w.at(elt, next_a, w.mul(r.i, a_row))
                    with w.loop(0, size, line) as j:
                        nearer(w.at(elt, place, j.i))
                given = height, a_s, a_row, w.pick(upright, height, a_col), row, e_s
                copies = w("xor i1 " + as_is + ", true")
                part(g.i, middle, 1, copies, *given)
                part(middle, copied, 0, copies, *given)
                part(copied, until, 0, "true", *given)
                s.next = [w.add(strip, 1)]

    def panels(self):
        """Panels `first` to `until` of a matrix, each contiguous: [panel, row, column]; `group` is the first there."""
        v, elt, n = self.v, self.element, self.lanes
        w = Writer("define internal void @panels(i64 %how, ptr %to, ptr %from, i64 %row, i64 %col, i64 %rows, "
                   "i64 %first, i64 %group, i64 %until, i64 %thin, i64 %wider, i64 %cols)")

        def start(p):
            return w.mul(w.add(w.mul(p, "%thin"), w.least(p, "%wider")), n)

        origin = start("%group")

        def each(write):
            def loop():
                with w.loop("%first", "%until") as p:
                    left, right = start(p.i), w.least(start(w.add(p.i, 1)), "%cols")
                    to = w.at(elt, "%to", w.mul(w.sub(left, origin), "%rows"))
                    wide = w.mul(w.add("%thin", w.one_if(w.is_("slt", p.i, "%wider"))), n)
                    write(to, wide, w.at(elt, "%from", w.mul(left, "%col")), w.sub(right, left))
            return loop

        def copy():                # a few rows at a time through all panels: what lies side by side is read together
            whole = w("and i64 %cols, " + str(-n))
            some = v.mask(w, w.sub("%cols", whole))
            bulk = w.down("%rows", TOGETHER)

            def go(row, count, source):
                with w.loop("%first", "%until") as p:
                    left, right = start(p.i), start(w.add(p.i, 1))
                    wide = w.sub(right, left)
                    to = w.at(elt, "%to", w.add(w.mul(w.sub(left, origin), "%rows"), w.mul(row, wide)))
                    here = w.at(elt, source, left)

                    def unrolled(width):
                        def write():
                            rows = [w.at(elt, here, w.mul(r, "%row")) for r in range(count)]
                            for r in range(count):
                                for j in range(width):
                                    v.store(w, v.load(w, w.at(elt, rows[r], j * n)), w.at(elt, to, (r * width + j) * n))
                        return write

                    def general():
                        inside = w.sub(w.least(right, whole), left)
                        with w.loop(0, count, 1, [("ptr", here), ("ptr", to)]) as r:
                            place, into = r.values
                            with w.loop(0, inside, n) as j:
                                v.store(w, v.load(w, w.at(elt, place, j.i)), w.at(elt, into, j.i))
                            with w.when(w.is_("sgt", right, "%cols")):
                                rest = v.load_some(w, w.at(elt, place, inside), some)
                                v.store(w, rest, w.at(elt, into, inside))
                            r.next = [w.at(elt, place, "%row"), w.at(elt, into, wide)]

                    kind = w.pick(w.is_("sgt", right, "%cols"), 0, w.div(wide, n))
                    quick = (2, 3) if count > 1 else ()
                    kind = w.pick(w(f"or i1 {w.is_('eq', kind, 2)}, {w.is_('eq', kind, 3)}"), kind, 0) if quick else 0
                    w.switch(kind, {0: general, **{k: unrolled(k) for k in quick}})

            with w.loop(0, bulk, TOGETHER, [("ptr", "%from")]) as r:
                go(r.i, TOGETHER, r.values[0])
                r.next = [w.at(elt, r.values[0], w.mul(TOGETHER, "%row"))]
            with w.loop(bulk, "%rows", 1, [("ptr", r.values[0])]) as r:
                go(r.i, 1, r.values[0])
                r.next = [w.at(elt, r.values[0], "%row")]

        w.switch("%how", {
            COPY: copy,
            TURN: each(lambda to, wide, source, cols: w.do(
                f"call void @turn(ptr {to}, i64 {wide}, ptr {source}, i64 %col, i64 %rows, i64 {cols})")),
            GATHER: each(lambda to, wide, source, cols: w.do(
                f"call void @gather(ptr {to}, i64 {wide}, ptr {source}, i64 %row, i64 %col, i64 %rows, i64 {cols})"))})
        return w.text()

    def dots(self, name, rows, cols):
        """The step for few rows: a block of `rows` times `cols` sums at a time, each by vectors along k."""
        v, elt, n = self.v, self.element, self.lanes
        w = Writer(f"define void @{name}(ptr %buffers, ptr %ints, ptr %scalars, i64 %begin, i64 %end)")
        f = {field: w.load("i64", w.at("i64", "%ints", i)) for i, field in enumerate(FIELDS)}
        A, B, C = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in (f["turned"], w.sub(1, f["turned"]), 2)]
        whole = w.down(f["K"], n)
        rest = v.mask(w, w.sub(f["K"], whole))
        last_row, last_col = w.sub(f["M"], 1), w.sub(f["N"], 1)
        with w.loop("%begin", "%end") as t:
            i, j, at = self.tile(w, f, t.i)
            top, left = w.mul(i, f["tile_m"]), w.mul(j, f["tile_n"])
            bottom = w.least(w.add(top, f["tile_m"]), f["M"])
            right = w.least(w.add(left, f["tile_n"]), f["N"])
            a, b, c = [w.at(elt, base, at[which]) for base, which in ((A, "a"), (B, "b"), (C, "c"))]
            with w.loop(top, bottom, rows) as r, w.loop(left, right, cols) as q:
                # beyond the edge the last row or column is read again, and its sum is not stored
                left_of = [w.at(elt, a, w.mul(w.least(w.add(r.i, x), last_row), f["a_row"])) for x in range(rows)]
                right_of = [w.at(elt, b, w.mul(w.least(w.add(q.i, y), last_col), f["b_col"])) for y in range(cols)]
                with w.loop(0, whole, n, [(v.type, "zeroinitializer")] * (rows * cols)) as k:
                    many = [v.load(w, w.at(elt, p, k.i)) for p in right_of]
                    k.next = []
                    for x, p in enumerate(left_of):
                        one = v.load(w, w.at(elt, p, k.i))
                        k.next += [v.fma(w, one, y, s) for y, s in zip(many, k.values[x * cols:], strict=False)]
                many = [v.load_some(w, w.at(elt, p, whole), rest) for p in right_of]
                for x, p in enumerate(left_of):
                    one = v.load_some(w, w.at(elt, p, whole), rest)
                    for y in range(cols):
                        total = v.total(w, v.fma(w, one, many[y], k.values[x * cols + y]))
                        row, col = w.add(r.i, x), w.add(q.i, y)
                        with w.when(w.both(w.is_("slt", row, bottom), w.is_("slt", col, right))):
                            w.store(elt, total, w.at(elt, c, w.add(w.mul(row, f["c_row"]), w.mul(col, f["c_col"]))))
        return v.declarations() + w.text()


# --- the machine ------------------------------------------------------------------------------------------------------


class Host:
    """The compiled functions of one kind of kernels and one element type."""

    def __init__(self, dtype, kind):
        from . import cpu
        self.size = {"float32": 4, "float64": 8}[dtype]
        target = cpu.target()
        self.kernels = kind(ELEMENTS[dtype], target)
        self.tail = f"_{kind.word}_f{8 * self.size}"
        self.lanes, self.registers = self.kernels.lanes, 32 if target.vector_bytes == 64 or not X86 else 16
        # addresses of the innermost kernels that were made, by variant
        self.tables = [(ctypes.c_int64 * (ROWS * WIDTH))() for _ in range(2)]
        self.compile, self.made = cpu.functions, {}
        self.written = {}             # address → how its text is written: a method of the kernels, and its arguments

    def rows(self, width):
        """The most rows whose block fits in the registers, beside `width` vectors of B and one of A."""
        return max(1, min(ROWS if width == 1 else 8, (self.registers - width - 1) // width))

    def micro(self, shapes, *variant):
        """The address of the table of the innermost kernels, with those of `shapes` [(rows, width)] in it."""
        table = self.tables[sum(variant)]
        missing = {f"micro_{r}x{n}_{sum(variant)}{self.tail}": (r, n)
                   for r, n in shapes if not table[(r - 1) * WIDTH + n - 1]}
        made = self.compile({name: self.kernels.micro(name, *shape, *variant) for name, shape in missing.items()})
        for name, (r, n) in missing.items():
            table[(r - 1) * WIDTH + n - 1] = made[name]
            self.written[made[name]] = ("micro", name, r, n, *variant)
        return ctypes.addressof(table)

    def function(self, what, *shape):
        """The address of the step `what`."""
        name = "_".join(map(str, (what, *shape))) + self.tail
        if name not in self.made:
            self.made[name] = self.compile({name: getattr(self.kernels, what)(name, *shape)})[name]
            self.written[self.made[name]] = (what, name, *shape)
        return self.made[name]

    def texts(self, address):
        """The text of the step at `address`; and, where it calls them, those of all innermost kernels made so far."""
        def text(how): return getattr(self.kernels, how[0])(*how[1:])
        own = text(self.written[address])
        inner = [how for how in self.written.values() if how[0] == "micro"] if "call void %" in own else []
        return [own, *map(text, inner)]


_hosts: dict = {}             # never emptied: steps that were planned have the addresses of the tables in them


def host(dtype, kind=Kernels):
    """The compiled functions of `kind` for `dtype`, and for the processor in use; made at first use."""
    from . import cpu
    key = dtype, kind, cpu.processor()
    return _hosts.get(key) or _hosts.setdefault(key, Host(dtype, kind))


def texts_of(address):
    """The LLVM texts behind a step of the library, for people who want to look."""
    return next(machine.texts(address) for machine in list(_hosts.values()) if address in machine.written)
