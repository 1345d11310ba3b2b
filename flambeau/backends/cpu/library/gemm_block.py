"""The LLVM text of one block of k of a tile: B is packed by groups of panels, and A passes each group by strips."""
from ..memory.allocator import CACHE_LINE_BYTES
from .gemm_micro import MAX_KERNEL_VECTORS, SHORT_STRIPS
from .gemm_packing import COPY, DIRECT, TURN


class TileBlock:
    """Writes it. `room` is what GemmKernels.gemm_room gives, `f` the fields of the step; A and B start at this k.

    Panels are counted in vectors of columns, strips in rows; the last of each may be smaller than the others.
    """

    def __init__(self, kernels, w, f, k, m, cols, a, b, room, following, each_tile):
        self.v, self.w, self.f, self.cols, self.following = kernels.v, w, f, cols, following
        self.a_pack, self.b_pack, self.narrow, self.tables = room
        v, n = self.v, self.v.lanes
        self.size = w.least(f["block"], w.sub(f["until"], k))
        self.more = w.one_if(w.is_("ne", k, 0))
        self.a, self.b = w.at(v.element, a, w.mul(k, f["a_col"])), w.at(v.element, b, w.mul(k, f["b_row"]))
        vectors = w.count_of(cols, n)
        self.panels, strips = w.count_of(vectors, f["width"]), w.count_of(m, f["rows"])
        # so many panels are one vector wider
        self.thin, self.wider = w.div(vectors, self.panels), w.rem(vectors, self.panels)
        # rows of the copy start at odd multiples of the vector, so that they do not meet in the cache
        self.far = w.add(w.up(self.size, 2 * n), n)
        self.upright, self.by_strips = w.is_("eq", f["a_pack"], TURN), w.is_("eq", f["a_pack"], COPY)
        self.at_once = w.both(w.is_("ne", f["a_pack"], DIRECT), w.is_("ne", f["a_pack"], COPY))
        if each_tile is None:
            self.a = self.packed_at_once(self.a, m)
        self.a_row = w.pick(self.at_once, w.pick(self.upright, 1, self.far), f["a_row"])
        self.a_col = w.pick(self.at_once, 1, f["a_col"])
        self.share = w.count_of(self.size, strips)
        self.line = CACHE_LINE_BYTES // v.bytes
        # The last vector of a tile that is not whole is moved to the left until it is: what is there twice is computed
        # twice. A tile that is narrower than a vector has its result elsewhere meanwhile, and B is copied for it.
        self.small = w.is_("slt", cols, n)
        self.as_is = w("and i1 " + w.is_("eq", f["pack_b"], 0) + ", " + w("xor i1 " + self.small + ", true"))
        self.ragged = w.one_if(w.is_("slt", cols, w.mul(vectors, n)))
        # a strip that is read as it lies comes nearer beforehand; a copy goes along it, which processors see coming
        self.short_strip = SHORT_STRIPS[kernels.whole_lines]
        self.near = w.both(w.both(w.is_("eq", self.a_col, 1), w.is_("eq", f["a_pack"], DIRECT)),
                           w.is_("sgt", self.size, self.short_strip))
        self.table = w(f"inttoptr i64 {f['kernels']} to ptr")
        # of the last vector in its panel
        last_cols = w.most(w.sub(w.sub(cols, self.start(w.sub(self.panels, 1))), n), 0)
        with w.loop(0, f["width"]) as j:
            w.store("i64", w.least(w.mul(j.i, n), last_cols), w.at("i64", self.tables["last"], j.i))

    def start(self, p):
        """Where panel `p` starts, in columns."""
        w = self.w
        return w.mul(w.add(w.mul(p, self.thin), w.least(p, self.wider)), self.v.lanes)

    def prefetch(self, pointer):
        self.w.do(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 2, i32 1)")

    def copy(self, to, to_row, source, row, rows):
        self.w.do(f"call void @gather(ptr {to}, i64 {to_row}, ptr {source}, i64 {row}, i64 1, i64 {rows}, "
                  f"i64 {self.cols})")

    def pack_a(self, source, row, rows):
        w, f = self.w, self.f
        w.do(f"call void {w.function(f['pack_a'])}(ptr {self.a_pack}, i64 {self.far}, ptr {source}, i64 {row}, "
             f"i64 {f['a_col']}, i64 {rows}, i64 {self.size}, i64 {f['rows']})")

    def packed_at_once(self, a, m):
        """Where A is, whose `m` rows are packed first where that is done for all strips at once."""
        w = self.w
        with w.when(self.at_once):
            self.pack_a(a, self.f["a_row"], m)
        return w.pick(self.at_once, self.a_pack, a, "ptr")

    def pack_b(self, first, until):
        """Panels `first` to `until` of B, where they are packed or narrower than a vector."""
        w, f, n = self.w, self.f, self.v.lanes
        # What is not stored is computed all the same; and numbers too small to be normal, which may be what stood
        # here, take some processors a hundred times as long.
        with w.when(self.small), w.loop(0, w.mul(self.size, n), n) as i:
            self.v.store(w, "zeroinitializer", w.at(self.v.element, self.b_pack, i.i))
        with w.when(w.is_("ne", f["pack_b"], 0)):
            w.do(f"call void {w.function(f['pack_b'])}(ptr {self.b_pack}, ptr {self.b}, i64 {f['b_row']}, "
                 f"i64 {f['b_col']}, i64 {self.size}, i64 {first}, i64 {until}, i64 {self.thin}, i64 {self.wider}, "
                 f"i64 {self.cols})")
        with w.when(w.both(self.small, w.is_("eq", f["pack_b"], 0))):
            self.copy(self.b_pack, n, self.b, f["b_row"], self.size)

    def write(self, c, m, each_tile):
        """All groups of panels, of the `m` rows of one tile, or of all tiles that `each_tile` hands out."""
        w, f = self.w, self.f
        with w.loop(0, self.panels, f["group"]) as g:
            group = PanelGroup(self, g.i)
            if each_tile is None:
                group.strips(self.a, c, m)
            else:
                each_tile(lambda top, m: group.strips(
                    self.packed_at_once(w.at(self.v.element, self.a, w.mul(top, f["a_row"])), m),
                    w.at(self.v.element, c, w.mul(top, f["c_row"])), m))


class PanelGroup:
    """Some panels of a TileBlock that are packed together, and the strips of A that pass them."""

    def __init__(self, block, first):
        self.block, self.first, w, f = block, first, block.w, block.f
        self.until = w.least(w.add(first, f["group"]), block.panels)
        self.left = block.start(first)
        block.pack_b(first, self.until)
        self.middle = w.most(w.least(block.wider, self.until), first)          # the wider panels of this group end here
        self.whole = w.sub(self.until, w.pick(w.is_("eq", self.until, block.panels), block.ragged, 0))
        there = w.both(w.is_("ne", f["ahead"], 0), w.is_("slt", self.until, block.panels))
        self.ahead = w.pick(there, block.share, 0)
        self.right = block.start(self.until)
        self.further = w.least(block.start(w.least(w.add(self.until, f["group"]), block.panels)), block.cols)

    def strips(self, a, c, m):
        """The strips of `m` rows of A, at `a`, to those of C at `c`."""
        block, w, f = self.block, self.block.w, self.block.f
        # what is short and read as it lies goes to the kernels in one call, but for a strip that is not whole
        short = w.both(w.is_("eq", f["a_pack"], DIRECT), w.is_("sle", block.size, block.short_strip))
        whole_strips = w.div(m, f["rows"])
        first_call = w.pick(w.both(short, w.is_("sle", block.v.lanes, block.cols)), w.most(whole_strips, 1), 1)
        ragged_strip = w.one_if(w.is_("slt", w.mul(whole_strips, f["rows"]), m))
        calls = w.add(w.sub(w.add(whole_strips, ragged_strip), first_call), 1)
        with w.loop(0, calls, 1, [("i64", 0), ("i64", 0), ("i64", 0)]) as s:
            row, strip, before = s.values
            height = w.least(f["rows"], w.sub(m, row))
            many = w.pick(w.is_("eq", s.i, 0), first_call, 1)
            self.prefetch_panels(strip)
            self.strip(a, c, m, row, strip, height, before, many)
            s.next = [w.add(row, w.mul(many, height)), w.add(strip, 1), height]

    def prefetch_panels(self, strip):
        """The next panels come nearer, a few rows with each strip."""
        block, w, f = self.block, self.block.w, self.block.f
        with w.loop(0, self.ahead) as q:
            pointer = w.at(block.v.element, block.b, w.mul(w.add(w.mul(strip, block.share), q.i), f["b_row"]))
            with w.loop(self.right, self.further, block.line) as j:
                block.prefetch(w.at(block.v.element, pointer, j.i))

    def strip(self, a, c, m, row, strip, height, before, many):
        """`many` strips of `height` rows each, from `row` on; the tables are those of a strip of `before` rows."""
        block, w, f = self.block, self.block.w, self.block.f
        elt, n, tables = block.v.element, block.v.lanes, block.tables
        packed = w.add(w.mul(row, block.size), w.mul(strip, n))
        lies = w.at(elt, a, w.pick(block.upright, packed, w.mul(row, block.a_row)))
        with w.when(block.by_strips):
            block.pack_a(lies, block.a_row, height)
        a_s = w.pick(block.by_strips, block.a_pack, lies, "ptr")
        next_a = w.at(elt, lies, w.mul(height, block.a_row))               # the next strip comes nearer
        with w.loop(0, w.pick(block.near, w.least(f["rows"], w.sub(w.sub(m, row), height)), 0)) as r:
            pointer = w.at(elt, next_a, w.mul(r.i, block.a_row))
            with w.loop(0, block.size, block.line) as j:
                block.prefetch(w.at(elt, pointer, j.i))
        along = w.pick(block.upright, height, block.a_col)
        w.store("i64", along, tables["step"])
        c_s = w.at(elt, c, w.mul(row, f["c_row"]))
        following = [w.at(elt, pointer, w.mul(row, block.size)) for pointer in block.following]
        computed = w.pick(w.is_("slt", height, f["rows"]), f["rest_rows"], f["rows"])
        first_kernel = w.sub(w.mul(w.sub(computed, 1), MAX_KERNEL_VECTORS), 1)
        c_row = w.pick(block.small, n, f["c_row"])
        with w.when(w.is_("ne", height, before)), w.loop(0, f["rows"]) as r:
            there = w.least(r.i, w.sub(height, 1))               # the last row stands for those not there
            w.store("i64", w.mul(there, w.pick(block.by_strips, block.far, block.a_row)),
                    w.at("i64", tables["a_rows"], r.i))
            w.store("i64", w.mul(there, c_row), w.at("i64", tables["c_rows"], r.i))
        with w.when(w.both(block.small, w.is_("ne", block.more, 0))):
            block.copy(block.narrow, n, c_s, f["c_row"], height)
        self.call_kernels(first_kernel, a_s, along, c_s, many, following)
        with w.when(block.small):
            block.copy(c_s, f["c_row"], block.narrow, n, height)

    def call_kernels(self, first_kernel, a, along, c, many, following):
        """The innermost kernels, for the wider panels, the others, and the last one if it is not whole."""
        block, w, f = self.block, self.block.w, self.block.f
        elt, tables = block.v.element, block.tables
        carry = [("i64", self.first), ("i64", self.middle), ("i64", 1)]
        with w.loop(0, 3, 1, carry) as part:
            first, end, extra = part.values
            with w.when(w.is_("slt", first, end)):
                width, column = w.add(block.thin, extra), block.start(first)
                wide = w.mul(width, block.v.lanes)
                kernel = w.load("ptr", w.at("ptr", block.table, w.add(first_kernel, width)))
                copied = w.at(elt, block.b_pack, w.mul(w.sub(column, self.left), block.size))
                panel = w.pick(block.as_is, w.at(elt, block.b, column), copied, "ptr")
                b_row = w.pick(block.as_is, f["b_row"], wide)
                w.store("i64", b_row, w.at("i64", tables["step"], 1))
                col_table = w.pick(w.is_("eq", part.i, 2), tables["last"], tables["cols"], "ptr")
                to = w.pick(block.small, block.narrow, w.at(elt, c, column), "ptr")
                w.do(f"call void {kernel}(i64 {block.size}, ptr {tables['step']}, i64 0, "
                     f"i64 {w.sub(end, first)}, ptr {w.at(elt, a, w.sub(0, along))}, ptr {tables['a_rows']}, "
                     f"ptr {w.at(elt, panel, w.sub(0, b_row))}, ptr {col_table}, "
                     f"i64 {w.mul(wide, w.pick(block.as_is, 1, block.size))}, ptr {to}, ptr {tables['c_rows']}, "
                     f"ptr {col_table}, i64 {wide}, i64 {block.more}, i64 {many}, "
                     f"i64 {w.mul(f['rows'], block.a_row)}, i64 {w.mul(f['rows'], f['c_row'])}, "
                     f"ptr {following[0]}, ptr {following[1]})")
            part.next = [end, w.pick(w.is_("eq", part.i, 0), self.whole, self.until), 0]
