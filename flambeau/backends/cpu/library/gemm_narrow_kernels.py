"""The LLVM text of products of numbers of 16 or 8 bits: see gemm_narrow.py, which plans them, and gemm_units.py."""
from ..llvm_writer import LLVMWriter, Vectors
from .gemm_kernels import STEP_FIELDS, GemmKernels
from .gemm_micro import MAX_KERNEL_VECTORS
from .gemm_narrow_packing import NarrowPacking, first_lanes, transposed
from .gemm_packing import COPY, DIRECT, GATHER, TURN

MAX_BLOCKS = {1: 4, 2: 2}          # blocks of rows of an innermost kernel → of columns, at most
VECTOR_ROWS = 8                    # whose sums are held in registers, by kernels without tiles
TILES, TILE_ROW_BYTES = 8, 64
OUTS = {"narrow": None, "float": ("float", 4), "i32": ("i32", 4)}      # what a result is: as the operands, or this


class NarrowKernels(NarrowPacking, GemmKernels):
    """The LLVM text of all functions for one DotUnit."""

    word = "narrow_product"
    drivers = ("gemm",)
    inner = ("micro", "pack", "put")
    fields = (*STEP_FIELDS, "c_room", "c_bytes", "c_at", "put")
    pack_share = 0.1

    def __init__(self, unit, target):
        self.unit, self.element, self.lanes = unit, unit.element, unit.lanes
        self.memory = f"i{8 * unit.size}"                       # as numbers are copied
        self.v = Vectors("float", target)                       # of sums
        self.masks = unit.size in target.masked_bytes
        self.products_a_cycle = (self.lanes if unit.name == "amx" else 1) * unit.depth

    def every(self, machine):
        """All functions that a plan may ask for."""
        whole = [("pack", side, how) for side in "ab" for how in (COPY, TURN, GATHER)]
        outs = ["narrow", "float"] if self.unit.sums == "float" else ["i32"]
        puts = [("put", out, added, down) for out in outs for down in (0, 1)
                for added in (("none", "bias", "relu") if out == "narrow" else ("none",))]
        return [("gemm",), *whole, *puts, *[("micro", *block) for block in self.blocks()]]

    def blocks(self, rows=2, cols=MAX_BLOCKS[1]):
        """(rows, columns) of the innermost kernels for so many blocks."""
        return [(high, wide) for high in range(1, rows + 1) for wide in range(1, min(MAX_BLOCKS[high], cols) + 1)]

    # --- the step ---------------------------------------------------------------------------------------------------

    def gemm(self, name):
        """The step: tiles one by one, their blocks of k, groups of columns of B, strips of rows of A."""
        size, n, unit = self.unit.size, self.lanes, self.unit
        w, f = self.open_gemm(name)
        A, B, C = [w.load("ptr", w.at("ptr", "%buffers", i))
                   for i in (f["turned"], w.sub(1, f["turned"]), f["c_at"])]
        rooms = w.rooms(*[(1, f[room]) for room in ("a_room", "b_room", "c_room")])
        self.begin(w)
        with self.tiles(w, f) as (i, j, _, at):
            top, left = w.mul(i, f["tile_m"]), w.mul(j, f["tile_n"])
            t = dict(top=top, left=left, m=w.least(f["tile_m"], w.sub(f["M"], top)),
                     cols=w.least(f["tile_n"], w.sub(f["N"], left)),
                     a=w.at("i8", A, w.mul(w.add(at["a"], w.mul(top, f["a_row"])), size)),
                     b=w.at("i8", B, w.mul(w.add(at["b"], w.mul(left, f["b_col"])), size)),
                     c=w.at("i8", C, w.mul(w.add(at["c"], w.add(w.mul(top, f["c_row"]), w.mul(left, f["c_col"]))),
                                           f["c_bytes"])))
            with w.loop(0, w.most(f["K"], 1), f["block"]) as k:
                t.update(k=k.i, size=w.least(f["block"], w.sub(f["K"], k.i)))
                t.update(steps=w.count_of(t["size"], unit.depth), more=w.one_if(w.is_("ne", k.i, 0)),
                         last=w.is_("sge", w.add(k.i, t["size"]), f["K"]))
                with w.when(w.is_("eq", f["a_pack"], TURN)):             # all of its rows, once
                    self.call_pack(w, f, "pack_a", rooms[0], t, 0, t["m"])
                blocks = w.count_of(t["cols"], n)
                with w.loop(0, blocks, f["group"]) as g:
                    until = w.least(w.add(g.i, f["group"]), blocks)
                    columns = w.least(w.sub(t["cols"], w.mul(g.i, n)), w.mul(f["group"], n))
                    self.call_pack(w, f, "pack_b", rooms[1], t, w.mul(g.i, n), columns)
                    self.strips(w, f, t, rooms, g.i, until)
        self.finish(w)
        return self.v.declarations() + self.unit_declarations() + w.text()

    def call_pack(self, w, f, which, room, t, first, lines):
        """Pack `lines` lines from `first` on, of this block of k."""
        m, far, along = ("a", f["a_row"], f["a_col"]) if which == "pack_a" else ("b", f["b_col"], f["b_row"])
        source = w.at("i8", t[m], w.mul(w.add(w.mul(first, far), w.mul(t["k"], along)), self.unit.size))
        w.do(f"call void {w.function(f[which])}(ptr {room}, ptr {source}, i64 {far}, i64 {along}, i64 {lines}, "
             f"i64 {t['size']}, i64 {t['steps']})")

    def strips(self, w, f, t, rooms, first, until):
        """The rows of a tile, by strips of a few blocks, times blocks `first` to `until` of columns."""
        n, unit, (a_room, b_room, c_room) = self.lanes, self.unit, rooms
        several, table = w.is_("slt", f["block"], f["K"]), w(f"inttoptr i64 {f['kernels']} to ptr")
        across, along = w.count_of(f["tile_n"], n), w.mul(t["steps"], unit.block_bytes)
        at_once = w.is_("eq", f["a_pack"], TURN)
        with w.loop(0, t["m"], f["rows"]) as r:
            height = w.least(f["rows"], w.sub(t["m"], r.i))
            direct = w.both(w.is_("eq", f["a_pack"], DIRECT), w.is_("eq", w.rem(height, n), 0))
            with w.when(w(f"xor i1 {w(f'or i1 {direct}, {at_once}')}, true")):
                self.call_pack(w, f, "pack_a", a_room, t, r.i, height)
            lies = w.at("i8", t["a"], w.mul(w.add(w.mul(r.i, f["a_row"]), t["k"]), unit.size))
            block = w.div(r.i, n)
            packed = w.at("i8", a_room, w.pick(at_once, w.mul(block, along), 0))
            a, line = w.pick(direct, lies, packed, "ptr"), w.pick(direct, w.mul(f["a_row"], unit.size), 4 * n)
            a_step, a_block = w.pick(direct, 4 * n, unit.block_bytes), w.pick(direct, w.mul(line, n), along)
            down = w.count_of(height, n)
            most = w.pick(w.is_("eq", down, 1), MAX_BLOCKS[1], MAX_BLOCKS[2])
            with w.loop(first, until, most) as q:
                wide = w.least(most, w.sub(until, q.i))
                kernel = w.load("ptr", w.at("ptr", table, w.sub(w.add(w.mul(w.sub(down, 1), MAX_KERNEL_VECTORS), wide),
                                                                1)))
                kept = w.mul(w.add(w.mul(block, across), q.i), unit.block_bytes)
                sums = w.at("i8", c_room, w.pick(several, kept, 0))
                far = w.mul(w.pick(several, across, wide), unit.block_bytes)
                b = w.at("i8", b_room, w.mul(w.sub(q.i, first), along))
                w.do(f"call void {kernel}(i64 {t['steps']}, ptr {a}, i64 {line}, i64 {a_step}, i64 {a_block}, ptr {b}, "
                     f"i64 {along}, ptr {sums}, i64 {far}, i64 {t['more']})")
                with w.when(t["last"]), w.loop(0, down) as x, w.loop(0, wide) as y:
                    self.call_put(w, f, t, w.add(r.i, w.mul(x.i, n)), w.mul(w.add(q.i, y.i), n),
                                  w.at("i8", sums, w.add(w.mul(x.i, far), w.mul(y.i, unit.block_bytes))))

    def call_put(self, w, f, t, row, column, sums):
        """One block of sums to C."""
        c = w.at("i8", t["c"], w.mul(w.add(w.mul(row, f["c_row"]), w.mul(column, f["c_col"])), f["c_bytes"]))
        down = w.is_("ne", f["c_col"], 1)
        line = w.mul(w.pick(down, f["c_col"], f["c_row"]), f["c_bytes"])
        bias = w.load("ptr", w.at("ptr", "%buffers", 2))
        on = w.pick(down, w.add(t["top"], row), w.add(t["left"], column))
        w.do(f"call void {w.function(f['put'])}(ptr {c}, i64 {line}, ptr {sums}, i64 {w.sub(t['m'], row)}, "
             f"i64 {w.sub(t['cols'], column)}, ptr {w.at('i8', bias, w.mul(on, self.unit.size))})")

    # --- what becomes of the sums -----------------------------------------------------------------------------------

    def put(self, name, out, added, down):
        """A block of sums to C, of which %rows by %cols are there: rounded to its dtype (`out`), after the numbers at
        %bias were added (`added`; "relu": and what is below zero became zero). %line is from row to row of C, in bytes,
        or with `down` from column to column; the numbers of %bias go along those."""
        unit, n, sums = self.unit, self.lanes, self.unit.sums
        elt, size = OUTS[out] or (unit.element, unit.size)
        vector, given = f"<{n} x {sums}>", f"<{n} x {elt}>"
        w = LLVMWriter(f"define void @{name}(ptr %c, i64 %line, ptr %sums, i64 %rows, i64 %cols, ptr %bias)")
        source, (rows, cols) = "%sums", ("%cols", "%rows") if down else ("%rows", "%cols")
        if down:
            source = w.spare(f"[{n} x {vector}]")
            loaded = [w.load(vector, w.at(vector, "%sums", i), 4) for i in range(n)]
            for i, one in enumerate(transposed(w, loaded, vector, n)):
                w.store(vector, one, w.at(vector, source, i))
        mask = first_lanes(w, cols, n) if self.masks else None
        last = w.spare(given)
        if added != "none":
            narrow = f"<{n} x {unit.element}>"
            if self.masks:
                bits = self.load_some(w, "%bias", w.least(cols, n), n)
                bias = w(f"bitcast <{n} x {self.memory}> {bits} to {narrow}")
            else:
                there = w.spare(narrow)
                w.store(narrow, "zeroinitializer", there)
                with w.loop(0, w.least(cols, n)) as i:
                    w.store(unit.element, w.load(unit.element, w.at(unit.element, "%bias", i.i)),
                            w.at(unit.element, there, i.i))
                bias = w.load(narrow, there)
            bias = w(f"fpext {narrow} {bias} to {vector}")
        with w.loop(0, w.least(rows, n), 1, [("ptr", "%c")]) as r:
            value = w.load(vector, w.at(vector, source, r.i), 4)
            if added != "none":
                value = w(f"fadd {vector} {value}, {bias}")
            if added == "relu":                                          # NaN stays
                stays = w(f"fcmp ugt {vector} {value}, zeroinitializer")
                value = w(f"select <{n} x i1> {stays}, {vector} {value}, {vector} zeroinitializer")
            if elt != sums:
                value = w(f"fptrunc {vector} {value} to {given}")
            if mask:
                bits = w(f"bitcast {given} {value} to <{n} x i{8 * size}>")
                w.do(f"call void @llvm.masked.store.v{n}i{8 * size}.p0(<{n} x i{8 * size}> {bits}, ptr {r.values[0]}, "
                     f"i32 {size}, <{n} x i1> {mask})")
            else:
                w.store(given, value, last)
                with w.loop(0, w.least(cols, n)) as i:
                    w.store(elt, w.load(elt, w.at(elt, last, i.i)), w.at(elt, r.values[0], i.i))
            r.next = [w.at("i8", r.values[0], "%line")]
        more = f"declare void @llvm.masked.store.v{n}i32.p0(<{n} x i32>, ptr, i32, <{n} x i1>)\n"
        return self.pack_declarations() + (more if self.masks else "") + w.text()

    # --- the innermost kernels --------------------------------------------------------------------------------------

    def micro(self, name, rows, cols):
        """The innermost kernel: `rows` by `cols` blocks of sums over %steps blocks of k, stored at %c, where blocks of
        a row lie side by side and rows of them %far apart; added to what is there if %more is not 0.

        A's rows lie %line bytes apart, its blocks %a.step along k and %a.block down; those of B follow each other along
        k, and lie %b.block across.
        """
        w = LLVMWriter(f"define void @{name}(i64 %steps, ptr %a, i64 %line, i64 %a.step, i64 %a.block, ptr %b, "
                       "i64 %b.block, ptr %c, i64 %far, i64 %more)")
        if self.unit.name == "amx":
            self.tile_kernel(w, rows, cols)
        else:
            self.vector_kernel(w, rows, cols)
        return self.v.declarations() + self.unit_declarations() + w.text()

    def blocks_of_sums(self, w, rows, cols):
        return [w.at("i8", w.at("i8", "%c", w.mul("%far", i)), j * self.unit.block_bytes)
                for i in range(rows) for j in range(cols)]

    def tile_kernel(self, w, rows, cols):
        """With tiles: the sums, then the rows of A, and columns of B by turns."""
        sums, line = self.blocks_of_sums(w, rows, cols), TILE_ROW_BYTES
        first_b = rows * cols + rows

        def zero():
            for tile in range(len(sums)):
                w.do(f"call void @llvm.x86.tilezero(i8 {tile})")

        def add():
            for tile, pointer in enumerate(sums):
                w.do(f"call void @llvm.x86.tileloadd64(i8 {tile}, ptr {pointer}, i64 {line})")

        w.either(w.is_("ne", "%more", 0), add, zero)
        with w.loop(0, "%steps", 1, [("ptr", "%a"), ("ptr", "%b")]) as k:
            a, b = k.values
            for i in range(rows):
                w.do(f"call void @llvm.x86.tileloadd64(i8 {rows * cols + i}, ptr "
                     f"{w.at('i8', a, w.mul('%a.block', i))}, i64 %line)")
            for j in range(cols):
                tile = first_b + j % (TILES - first_b)
                w.do(f"call void @llvm.x86.tileloadd64(i8 {tile}, ptr {w.at('i8', b, w.mul('%b.block', j))}, "
                     f"i64 {line})")
                for i in range(rows):
                    w.do(f"call void @llvm.x86.{self.unit.instruction}(i8 {i * cols + j}, i8 {rows * cols + i}, "
                         f"i8 {tile})")
            k.next = [w.at("i8", a, "%a.step"), w.at("i8", b, self.unit.block_bytes)]
        for tile, pointer in enumerate(sums):
            w.do(f"call void @llvm.x86.tilestored64(i8 {tile}, ptr {pointer}, i64 {line})")

    def vector_kernel(self, w, rows, cols):
        """With vectors: some rows at a time, two columns of blocks."""
        n, unit = self.lanes, self.unit
        sums, sum_type, given = self.blocks_of_sums(w, rows, cols), f"<{n} x float>", f"<{2 * n} x {unit.element}>"
        height = min(VECTOR_ROWS, n)
        for i in range(rows):
            for top in range(0, n, height):
                for left in range(0, cols, 2):
                    blocks = range(left, min(left + 2, cols))
                    places = [w.at(sum_type, sums[i * cols + j], top + r) for r in range(height) for j in blocks]
                    many = w.is_("ne", "%more", 0)
                    there = [w.load(sum_type, place, 4) for place in places]     # the caller's room: may be read
                    before = [w.pick(many, one, "zeroinitializer", sum_type) for one in there]
                    source = w.at("i8", w.at("i8", "%a", w.mul("%a.block", i)), w.mul("%line", top))
                    with w.loop(0, "%steps", 1, [("ptr", source), ("ptr", "%b"),
                                                 *[(sum_type, one) for one in before]]) as k:
                        a, b, *totals = k.values
                        with w.loop(0, n, 1, [(sum_type, one) for one in totals]) as p:
                            made = list(p.values)
                            factors = [w.load(given, w.at("i8", w.at("i8", b, w.mul("%b.block", j)),
                                                          w.mul(p.i, 4 * n)), 4) for j in blocks]
                            for r in range(height):
                                pair = w.load("i32", w.at("i8", w.at("i8", a, w.mul("%line", r)), w.mul(p.i, 4)),
                                              unit.size)
                                spread = w(f"insertelement <{n} x i32> poison, i32 {pair}, i64 0")
                                spread = w(f"shufflevector <{n} x i32> {spread}, <{n} x i32> poison, <{n} x i32> "
                                           "zeroinitializer")
                                spread = w(f"bitcast <{n} x i32> {spread} to {given}")
                                for j, factor in enumerate(factors):
                                    number = r * len(blocks) + j
                                    made[number] = w(f"call {sum_type} @llvm.{self.family}.{unit.instruction}("
                                                     f"{sum_type} {made[number]}, {given} {spread}, {given} {factor})")
                            p.next = made
                        k.next = [w.at("i8", a, "%a.step"), w.at("i8", b, unit.block_bytes), *p.values]
                    for place, total in zip(places, k.values[2:], strict=True):
                        w.store(sum_type, total, place, 4)

    # --- what the unit needs ----------------------------------------------------------------------------------------

    @property
    def family(self):
        return "aarch64" if self.unit.name == "neon" else "x86"

    def begin(self, w):
        """Before the first tile: all of them have 16 rows of 64 bytes."""
        if self.unit.name != "amx":
            return
        config = w.spare("[64 x i8]")
        w.store("<64 x i8>", "zeroinitializer", config)
        w.store("i8", 1, config)
        for tile in range(TILES):
            w.store("i16", TILE_ROW_BYTES, w.at("i16", config, 8 + tile))
            w.store("i8", self.lanes, w.at("i8", config, 48 + tile))
        w.do(f"call void @llvm.x86.ldtilecfg(ptr {config})")

    def finish(self, w):
        """After the last: threads that are switched between have less to keep."""
        if self.unit.name == "amx":
            w.do("call void @llvm.x86.tilerelease()")

    def unit_declarations(self):
        n, unit = self.lanes, self.unit
        if unit.name == "amx":
            return "\n".join([
                "declare void @llvm.x86.ldtilecfg(ptr)", "declare void @llvm.x86.tilerelease()",
                "declare void @llvm.x86.tilezero(i8)", "declare void @llvm.x86.tileloadd64(i8, ptr, i64)",
                "declare void @llvm.x86.tilestored64(i8, ptr, i64)",
                f"declare void @llvm.x86.{unit.instruction}(i8, i8, i8)", ""])
        sums, given = f"<{n} x float>", f"<{2 * n} x {unit.element}>"
        return f"declare {sums} @llvm.{self.family}.{unit.instruction}({sums}, {given}, {given})\n"
