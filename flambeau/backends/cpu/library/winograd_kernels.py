"""The LLVM text of convolutions by 3 x 3 with fewer multiplications. See winograd.py, which plans them.

A step's ints are the fields below, by name. Working memory begins with a flag: whether something was not finite.
"""
from ..llvm_writer import LLVMWriter, _list
from .blocking import up
from .conv_kernels import TapKernels
from .gemm_micro import MAX_KERNEL_ROWS, MAX_KERNEL_VECTORS

TILE_ELEMENTS = 16              # of a transformed tile
FLAG_BYTES = 64               # at the head of working memory
FILTERS_TOGETHER = 16         # output channels of one tile of `filters`
CHANNELS_TOGETHER = 8         # input channels of one tile of `weights`
FLAT_TAPS, MIRRORED_TAPS, STRIDED_TAPS = range(3)     # how the taps of a filter lie: in order, backwards, in strides

FILTER_FIELDS = "m channels a_m a_c a_0 a_h a_w u_row u_element filters_of".split()
INPUT_FIELDS = ("rows row_blocks all tile_h cols col_blocks channels x_n x_c x_h x_w size_h size_w low_h low_w pitch "
                "x_room v_room v_at v_block parts part apart plane_of forth_of").split()
TILE_FIELDS = [*INPUT_FIELDS, *("block m m_tile m_tiles m_part y_0 y_n y_m y_h y_w out_h out_w u_row u_element p_room "
                                "height width kernels back_of").split()]
WEIGHT_FIELDS = [*INPUT_FIELDS, *("c_tile c_tiles m m_tile m_tiles shares share g_n g_m g_h g_w out_h out_w g_row "
                                  "g_element g_at g_block g_room t_row t_room p_at p_row p_element p_share w_m w_lines "
                                  "height width kernels gradients_of weights_of").split()]


class WinogradKernels(TapKernels):
    """The LLVM text of the functions for one element type."""

    word = "winograd"
    drivers = ("filters", "inputs", "tiles", "gradients", "products", "weights")
    inner = ("micro", "plane", "filter_block", "to_tiles", "from_tiles", "to_gradients", "to_weights")

    def every(self, machine):
        """All functions that a plan may ask for; the innermost kernels are those of products."""
        return [*[(what,) for what in self.drivers], ("plane", 0), ("plane", 1), ("to_tiles",), ("from_tiles",),
                ("to_gradients",), ("to_weights",),
                *[("filter_block", how) for how in (FLAT_TAPS, MIRRORED_TAPS, STRIDED_TAPS)]]

    # --- filters ----------------------------------------------------------------------------------------------------

    def filters(self, name):
        """The step of the filters; buffers x, weight, y and working memory."""
        elt = self.element
        w, f = self.open(name, FILTER_FIELDS)
        A, room = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in (1, 3)]
        U = w.at("i8", room, FLAG_BYTES)
        with w.when(w.is_("eq", "%begin", 0)):
            w.store("i64", 0, room)
        with w.loop("%begin", "%end") as t:
            first = w.mul(t.i, FILTERS_TOGETHER)
            count = w.least(FILTERS_TOGETHER, w.sub(f["m"], first))
            source = w.at(elt, A, w.add(f["a_0"], w.mul(first, f["a_m"])))
            to = w.at(elt, U, w.mul(first, f["u_row"]))
            w.do(f"call void {w.function(f['filters_of'])}(ptr {to}, i64 {f['u_row']}, i64 {f['u_element']}, "
                 f"ptr {source}, i64 {f['a_m']}, i64 {f['a_c']}, i64 {f['a_h']}, i64 {f['a_w']}, i64 {count}, "
                 f"i64 {f['channels']})")
        return self.v.declarations() + w.text()

    def filter_block(self, name, how):
        """G g G^T of `count` output channels; vectors go along input channels, the last of which stands for more."""
        v, elt, n = self.v, self.element, self.lanes
        w = LLVMWriter(f"define void @{name}(ptr %to, i64 %row, i64 %place, ptr %from, i64 %m, i64 %c, i64 %h, i64 %w, "
                       "i64 %count, i64 %channels)")
        group = 16 // v.bytes
        small, last = f"<{group} x {elt}>", w.sub("%channels", 1)
        starts = [*range(0, 9 - group, group), 9 - group]            # of the groups of taps that cover nine
        nine = w.spare(f"[{9 * n} x {elt}]") if how == STRIDED_TAPS else None
        half = v.spread(w, "0.5")

        def taps(lines):
            """The nine taps of `lanes` filters, each a vector."""
            loaded = {}
            for start in starts:
                loads = [w.load(small, w.at(elt, line, start), v.bytes) for line in lines]
                loaded.update(zip(range(start, start + group), self.turned(w, loads), strict=True))
            return [loaded[8 - i if how == MIRRORED_TAPS else i] for i in range(9)]

        def spread(a, b, c):
            """G times a column of three."""
            ends = w(f"fmul {v.type} {w(f'fadd {v.type} {a}, {c}')}, {half}")
            middle = w(f"fmul {v.type} {b}, {half}")
            return a, w(f"fadd {v.type} {ends}, {middle}"), w(f"fsub {v.type} {ends}, {middle}"), c

        with w.loop(0, "%channels", n) as c:
            offsets = [w.mul(w.least(w.add(c.i, i), last), "%c") for i in range(n)]
            with w.loop(0, "%count", 1, [("ptr", "%from"), ("ptr", w.at(elt, "%to", c.i))]) as k:
                source, to = k.values
                lines = [w.at(elt, source, offset) for offset in offsets]
                if how == STRIDED_TAPS:
                    with w.loop(0, 3) as r:
                        for i, line in enumerate(lines):
                            for s in range(3):
                                pointer = w.at(elt, line, w.add(w.mul(r.i, "%h"), w.mul(s, "%w")))
                                w.store(elt, w.load(elt, pointer), w.at(elt, nine, w.add(w.mul(r.i, 3), 9 * i + s)))
                    lines = [w.at(elt, nine, 9 * i) for i in range(n)]
                elif how == MIRRORED_TAPS:
                    lines = [w.at(elt, line, -8) for line in lines]
                g = taps(lines)
                columns = [spread(g[s], g[s + 3], g[s + 6]) for s in range(3)]
                pointer = to
                for r in range(4):
                    for one in spread(*[column[r] for column in columns]):
                        v.store(w, one, pointer)
                        pointer = w.at(elt, pointer, "%place")
                k.next = [w.at(elt, source, "%m"), w.at(elt, to, "%row")]
        return v.declarations() + w.text()

    # --- tiles ------------------------------------------------------------------------------------------------------

    def to_tiles(self, name):
        """B^T d B for `rows` rows of `cols` tiles of one channel, from a copy with rows `pitch` apart.

        Whole vectors are written, so what lies behind the tiles of a row has to be written later.
        """
        v, elt, n = self.v, self.element, self.lanes
        w = LLVMWriter(f"define void @{name}(ptr %to, i64 %place, i64 %rows, i64 %cols, ptr %from, i64 %pitch)")

        def minus(a, b): return w(f"fsub {v.type} {a}, {b}")
        def plus(a, b): return w(f"fadd {v.type} {a}, {b}")
        def spread(a, b, c, d): return [minus(a, c), plus(b, c), minus(c, b), minus(b, d)]

        def line(pointer):
            """d B for a row of inputs: vectors of every other one, from the first four on."""
            four = []
            for start in (0, 2):
                low, high = [v.load(w, w.at(elt, pointer, start + part)) for part in (0, n)]
                four += [w(f"shufflevector {v.type} {low}, {v.type} {high}, <{n} x i32> "
                           f"<{_list(range(odd, 2 * n, 2))}>") for odd in (0, 1)]
            return spread(*four)

        far = w.mul("%pitch", 2)
        last = w.sub(w.up("%cols", n), n)
        with w.loop(0, "%cols", n) as back:       # from the right: what a row writes beyond its end is written after it
            j = w.sub(last, back.i)
            source = w.at(elt, "%from", w.mul(j, 2))
            above = [*line(source), *line(w.at(elt, source, "%pitch"))]
            carry = [("ptr", w.at(elt, source, far)), ("ptr", w.at(elt, "%to", j)), *[(v.type, one) for one in above]]
            with w.loop(0, "%rows", 1, carry) as i:
                source, to, *above = i.values
                below = [*line(source), *line(w.at(elt, source, "%pitch"))]
                columns = [spread(above[s], above[s + 4], below[s], below[s + 4]) for s in range(4)]
                pointer = to
                for r in range(4):
                    for s in range(4):
                        v.store(w, columns[s][r], pointer)
                        pointer = w.at(elt, pointer, "%place")
                i.next = [w.at(elt, source, far), w.at(elt, to, "%cols"), *below]
        return v.declarations() + w.text()

    def from_tiles(self, name):
        """A^T m A for rows of `cols` tiles of one channel, that is `high` rows of `wide` outputs: to `to`, whose rows
        and columns lie %row and %col apart. To the vector %check a NaN is added where something is not finite."""
        v, elt, n = self.v, self.element, self.lanes
        w = LLVMWriter(f"define void @{name}(ptr %to, i64 %row, i64 %col, i64 %high, i64 %wide, ptr %from, i64 %place, "
                       "i64 %cols, ptr %line, ptr %check)")

        def minus(a, b): return w(f"fsub {v.type} {a}, {b}")
        def plus(a, b): return w(f"fadd {v.type} {a}, {b}")

        def gather(a, b, c, d):
            """A^T times a column of four."""
            return plus(a, plus(b, c)), minus(minus(b, c), d)

        whole = w.is_("eq", w("and i64 %wide, " + str(2 * n - 1)), 0)
        direct = w.both(w.is_("eq", "%col", 1), whole)
        line_row = w.up(w.mul("%cols", 2), 2 * n)
        zero, rows = "zeroinitializer", w.count_of("%high", 2)
        carry = [("ptr", "%to"), ("ptr", "%from"), (v.type, v.load(w, "%check"))]
        with w.loop(0, rows, 1, carry) as i:
            to, source, check = i.values
            both = w.is_("sgt", w.sub("%high", w.mul(i.i, 2)), 1)
            second = w.at(elt, to, "%row")
            lines = [w.pick(direct, to, "%line", "ptr"),
                     w.pick(w.both(direct, both), second, w.at(elt, "%line", line_row), "ptr")]
            with w.loop(0, "%cols", n, [(v.type, check)]) as j:
                pointer, m = w.at(elt, source, j.i), []
                for _ in range(16):
                    m.append(v.load(w, pointer))
                    pointer = w.at(elt, pointer, "%place")
                columns = [gather(*m[s::4]) for s in range(4)]
                check = j.values[0]
                for r in range(2):
                    pair = gather(*[column[r] for column in columns])
                    for one in pair:
                        check = v.fma(w, one, zero, check)
                    for part in range(2):
                        picked = [lane for at in range(part * n // 2, (part + 1) * n // 2) for lane in (at, n + at)]
                        one = w(f"shufflevector {v.type} {pair[0]}, {v.type} {pair[1]}, <{n} x i32> <{_list(picked)}>")
                        v.store(w, one, w.at(elt, lines[r], w.add(w.mul(j.i, 2), part * n)))
                j.next = [check]
            with w.when(w(f"xor i1 {direct}, true")):
                w.do(f"call void @finish(ptr {to}, i64 %col, ptr {lines[0]}, i64 %wide)")
                with w.when(both):
                    w.do(f"call void @finish(ptr {second}, i64 %col, ptr {lines[1]}, i64 %wide)")
            i.next = [w.at(elt, to, w.mul("%row", 2)), w.at(elt, source, "%cols"), j.values[0]]
        v.store(w, i.values[2], "%check")
        return "\n".join([v.declarations(), self.finish(), w.text()])

    def inputs(self, name):
        """The step of inputs that are transformed beforehand, a block of tiles and a part of the channels at a time;
        buffers x, weight, y and working memory."""
        w, f = self.open(name, INPUT_FIELDS)
        X, room = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in (0, 3)]
        x_room, = self.rooms(w, f["x_room"])
        self.clear(w, f, x_room)
        with w.loop("%begin", "%end") as t:
            number, part = w.div(t.i, f["parts"]), w.rem(t.i, f["parts"])
            channel = w.mul(part, f["part"])
            until = w.least(w.add(channel, f["part"]), f["channels"])
            V = w.at("i8", w.at("i8", room, f["v_at"]), w.mul(number, f["v_block"]))
            self.transform(w, f, self.block_of(w, f, number), X, channel, until, x_room, V, 0, f["channels"])
        return self.v.declarations() + w.text()

    def clear(self, w, f, x_room):
        """Make the room for copies of inputs zeros: vectors are read beyond the rows of a copy, and what stands there
        should not be slow to compute with, see `pack_b` in gemm_block.py."""
        with w.loop(0, f["x_room"], self.lanes) as i:
            self.v.store(w, "zeroinitializer", w.at(self.element, x_room, i.i))

    def block_of(self, w, f, number):
        """Block `number` of the rows of tiles: (the first, the end, how many tiles, in whole vectors)."""
        first = w.mul(number, f["rows"])
        end = w.least(w.add(first, f["rows"]), f["all"])
        count = w.mul(w.sub(end, first), f["cols"])
        return first, end, count, w.up(count, self.lanes)

    def pieces(self, w, f, block):
        """A loop over the pieces of images in a block of rows of tiles."""
        first, end = block[:2]
        return w.loop(w.div(first, f["tile_h"]), w.add(w.div(w.sub(end, 1), f["tile_h"]), 1))

    def piece(self, w, f, block, number):
        """(image, first output column, first row of tiles, rows of tiles, index of its first tile in the block)."""
        first, end = block[:2]
        start = w.mul(number, f["tile_h"])
        top, bottom = w.most(start, first), w.least(w.add(start, f["tile_h"]), end)
        image, part = w.div(number, f["col_blocks"]), w.rem(number, f["col_blocks"])
        return (image, w.mul(w.mul(part, f["cols"]), 2), w.sub(top, start), w.sub(bottom, top),
                w.mul(w.sub(top, first), f["cols"]))

    def transform(self, w, f, block, X, channel, until, x_room, V, first, kept):
        """B^T d B of the inputs of a block, some channels of it: [element, channel, tile], with rows that run over. V
        has room for `kept` channels from `first` on."""
        v, elt, n = self.v, self.element, self.lanes
        _, _, count, wide = block
        v_row = w.add(wide, n)
        v_element = w.mul(kept, v_row)
        wide_x = w.add(w.mul(f["cols"], 2), 2)
        V = w.at(elt, V, w.mul(w.sub(channel, first), v_row))
        with self.pieces(w, f, block) as p:
            image, col, row, rows, at = self.piece(w, f, block, p.i)
            x = w.at(elt, X, w.add(w.mul(image, f["x_n"]), w.mul(channel, f["x_c"])))
            low, left = w.add(w.mul(row, 2), f["low_h"]), w.add(col, f["low_w"])
            high = w.add(w.mul(rows, 2), 2)
            with w.loop(channel, until, 1, [("ptr", x), ("ptr", w.at(elt, V, at))]) as c:
                source, to = c.values
                w.do(f"call void {w.function(f['plane_of'])}(ptr {x_room}, i64 {f['pitch']}, i64 0, ptr {source}, "
                     f"i64 {f['x_h']}, i64 {f['x_w']}, i64 {f['size_h']}, i64 {f['size_w']}, i64 {low}, "
                     f"i64 {high}, i64 {left}, i64 {wide_x}, i64 1)")
                w.do(f"call void {w.function(f['forth_of'])}(ptr {to}, i64 {v_element}, i64 {rows}, i64 {f['cols']}, "
                     f"ptr {x_room}, i64 {f['pitch']})")
                c.next = [w.at(elt, source, f["x_c"]), w.at(elt, to, v_row)]
        # nothing is left behind the last tile: its products are looked at
        with w.loop(0, TILE_ELEMENTS, 1, [("ptr", w.at(elt, V, count))]) as q:
            with w.loop(channel, until, 1, [("ptr", q.values[0])]) as c:
                v.store(w, "zeroinitializer", c.values[0])
                c.next = [w.at(elt, c.values[0], v_row)]
            q.next = [w.at(elt, q.values[0], v_element)]

    def tiles(self, name):
        """The step of the convolution itself; buffers x, weight, y and working memory."""
        v, elt, n = self.v, self.element, self.lanes
        w, f = self.open(name, TILE_FIELDS)
        X, Y, room = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in (0, 2, 3)]
        U = w.at("i8", room, FLAG_BYTES)
        x_room, v_room, p_room, line = self.rooms(w, f["x_room"], f["v_room"], f["p_room"],
                                                  w.add(w.mul(f["cols"], 4), 4 * n))
        check = w.spare(v.type)
        step = w.spare("[4 x i64]")
        columns, a_rows, c_rows = [w.spare(f"[{max(MAX_KERNEL_ROWS, MAX_KERNEL_VECTORS)} x i64]") for _ in range(3)]
        kernels = w(f"inttoptr i64 {f['kernels']} to ptr")
        apart = w.is_("ne", f["apart"], 0)
        v.store(w, "zeroinitializer", check)
        self.clear(w, f, x_room)
        w.store("i64", 1, step)
        with w.loop(0, max(MAX_KERNEL_ROWS, MAX_KERNEL_VECTORS)) as i:
            w.store("i64", w.mul(i.i, n), w.at("i64", columns, i.i))
            w.store("i64", w.mul(i.i, f["u_row"]), w.at("i64", a_rows, i.i))
        with w.loop("%begin", "%end") as t:
            tile_m, number = w.div(t.i, f["row_blocks"]), w.rem(t.i, f["row_blocks"])
            first_m = w.mul(tile_m, f["m_tile"])
            end_m = w.least(w.add(first_m, f["m_tile"]), f["m"])
            block = self.block_of(w, f, number)
            wide = block[3]
            v_row = w.add(wide, n)
            v_element, p_element = w.mul(f["channels"], v_row), w.mul(f["m_part"], wide)
            with w.when(w(f"xor i1 {apart}, true")):
                self.transform(w, f, block, X, 0, f["channels"], x_room, v_room, 0, f["channels"])
            V = w.pick(apart, w.at("i8", w.at("i8", room, f["v_at"]), w.mul(number, f["v_block"])), v_room, "ptr")
            v.store(w, "zeroinitializer", w.at(elt, p_room, w.mul(TILE_ELEMENTS, p_element)))
            w.store("i64", v_row, w.at("i64", step, 1))
            with w.loop(0, MAX_KERNEL_ROWS) as i:
                w.store("i64", w.mul(i.i, wide), w.at("i64", c_rows, i.i))
            vectors = w.div(wide, n)
            panels = w.count_of(vectors, f["width"])
            thin, wider = w.div(vectors, panels), w.rem(vectors, panels)
            with w.loop(first_m, end_m, f["m_part"]) as part:
                m = w.least(f["m_part"], w.sub(end_m, part.i))
                strips = w.count_of(m, f["height"])
                low, taller = w.div(m, strips), w.rem(m, strips)
                with w.loop(0, TILE_ELEMENTS) as q, w.loop(0, f["channels"], f["block"]) as c:
                    k = w.least(f["block"], w.sub(f["channels"], c.i))
                    more = w.one_if(w.is_("ne", c.i, 0))
                    a = w.at(elt, U, w.add(w.add(w.mul(q.i, f["u_element"]), w.mul(part.i, f["u_row"])), w.sub(c.i, 1)))
                    b = w.at(elt, V, w.add(w.mul(q.i, v_element), w.mul(w.sub(c.i, 1), v_row)))
                    to = w.at(elt, p_room, w.mul(q.i, p_element))
                    self.products_of(w, kernels, strips, low, taller, wider, thin, panels, k, step, a, a_rows,
                                     f["u_row"], b, columns, to, c_rows, wide, more)
                # what is read behind the products of the last channel is looked at too
                with w.when(w.is_("slt", m, f["m_part"])), w.loop(0, TILE_ELEMENTS) as q:
                    v.store(w, "zeroinitializer", w.at(elt, p_room, w.add(w.mul(q.i, p_element), w.mul(m, wide))))
                self.put_tiles(w, f, block, Y, part.i, m, p_room, p_element, line, check)
        self.note(w, room, check)
        return v.declarations() + w.text()

    def put_tiles(self, w, f, block, Y, first_m, m, p_room, p_element, line, check):
        """The outputs of a block of tiles, `m` channels from `first_m` on."""
        elt, wide = self.element, block[3]
        with self.pieces(w, f, block) as p:
            image, col, row, rows, at = self.piece(w, f, block, p.i)
            down = w.mul(row, 2)
            y = w.at(elt, Y, w.add(w.add(w.add(w.mul(image, f["y_n"]), w.mul(first_m, f["y_m"])), f["y_0"]),
                                   w.add(w.mul(down, f["y_h"]), w.mul(col, f["y_w"]))))
            high = w.least(w.mul(rows, 2), w.sub(f["out_h"], down))
            across = w.least(w.mul(f["cols"], 2), w.sub(f["out_w"], col))
            with w.loop(0, m, 1, [("ptr", y), ("ptr", w.at(elt, p_room, at))]) as i:
                to, source = i.values
                w.do(f"call void {w.function(f['back_of'])}(ptr {to}, i64 {f['y_h']}, i64 {f['y_w']}, "
                     f"i64 {high}, i64 {across}, ptr {source}, i64 {p_element}, i64 {f['cols']}, ptr {line}, "
                     f"ptr {check})")
                i.next = [w.at(elt, to, f["y_m"]), w.at(elt, source, wide)]

    # --- the weight's gradient --------------------------------------------------------------------------------------

    def to_gradients(self, name):
        """A g A^T for `cols` tiles in a row, but for signs: vectors go along channels, positions lie `far` apart in the
        copy %from of two rows of gradients, and tiles `row` apart."""
        v, elt, n = self.v, self.element, self.lanes
        w = LLVMWriter(f"define void @{name}(ptr %to, i64 %place, i64 %row, ptr %from, i64 %far, i64 %cols, i64 %wide)")

        def spread(a, b):
            """A times a column of two, with its last row positive; `to_weights` makes up for it."""
            return a, w(f"fadd {v.type} {a}, {b}"), w(f"fsub {v.type} {a}, {b}"), b

        second = w.mul(w.mul("%cols", 2), "%far")
        with w.loop(0, "%cols", 1, [("ptr", "%from"), ("ptr", "%to")]) as j:
            source, to = j.values
            with w.loop(0, "%wide", n) as k:
                corner = w.at(elt, source, k.i)
                four = [v.load(w, w.at(elt, w.at(elt, corner, below), right)) for right in (0, "%far")
                        for below in (0, second)]
                columns, pointer = (spread(*four[:2]), spread(*four[2:])), w.at(elt, to, k.i)
                for r in range(4):
                    for one in spread(columns[0][r], columns[1][r]):
                        v.store(w, one, pointer)
                        pointer = w.at(elt, pointer, "%place")
            j.next = [w.at(elt, source, w.mul("%far", 2)), w.at(elt, to, "%row")]
        return v.declarations() + w.text()

    def turn_gradients(self, w, f, block, G, first_m, m, t_room, to):
        """A g A^T of a block of tiles, `m` channels from `first_m` on: [element, tile, channel]."""
        v, elt, n = self.v, self.element, self.lanes
        with self.pieces(w, f, block) as p:
            image, col, row, rows, at = self.piece(w, f, block, p.i)
            g = w.at(elt, G, w.add(w.add(w.mul(image, f["g_n"]), w.mul(first_m, f["g_m"])), w.mul(col, f["g_w"])))
            across = w.least(w.mul(f["cols"], 2), w.sub(f["out_w"], col))
            with w.loop(0, rows) as i:
                with w.loop(0, 2) as r:
                    h = w.add(w.mul(w.add(row, i.i), 2), r.i)
                    count = w.pick(w.is_("slt", h, f["out_h"]), across, 0)       # what is outside is zero
                    line = w.at(elt, t_room, w.mul(w.mul(w.mul(r.i, 2), f["cols"]), f["t_row"]))
                    source, whole = w.at(elt, g, w.mul(h, f["g_h"])), w.mul(w.mul(2, f["cols"]), f["t_row"])

                    def empty(first, line=line, whole=whole):
                        with w.loop(first, whole, n) as u:
                            v.store(w, "zeroinitializer", w.at(elt, line, u.i))

                    def turn(line=line, source=source, count=count):
                        w.do(f"call void @turn(ptr {line}, i64 {f['t_row']}, ptr {source}, i64 {f['g_m']}, "
                             f"i64 {count}, i64 {m})")
                        empty(w.mul(count, f["t_row"]))

                    def gather(line=line, source=source, count=count):
                        empty(0)
                        w.do(f"call void @gather(ptr {line}, i64 {f['t_row']}, ptr {source}, i64 {f['g_w']}, "
                             f"i64 {f['g_m']}, i64 {count}, i64 {m})")

                    w.either(w.is_("eq", f["g_w"], 1), turn, gather)
                tile = w.add(at, w.mul(i.i, f["cols"]))
                w.do(f"call void {w.function(f['gradients_of'])}(ptr {w.at(elt, to, w.mul(tile, f['g_row']))}, "
                     f"i64 {f['g_element']}, i64 {f['g_row']}, ptr {t_room}, i64 {f['t_row']}, i64 {f['cols']}, "
                     f"i64 {w.up(m, n)})")

    def gradients(self, name):
        """The step of gradients that are transformed beforehand; buffers as for `products`."""
        elt = self.element
        w, f = self.open(name, WEIGHT_FIELDS)
        G, room = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in (1, 3)]
        t_room, = self.rooms(w, f["t_room"])
        with w.loop("%begin", "%end") as t:
            number, tile_m = w.div(t.i, f["m_tiles"]), w.rem(t.i, f["m_tiles"])
            first_m = w.mul(tile_m, f["m_tile"])
            m = w.least(f["m_tile"], w.sub(f["m"], first_m))
            to = w.at("i8", w.at("i8", room, f["g_at"]), w.mul(number, f["g_block"]))
            self.turn_gradients(w, f, self.block_of(w, f, number), G, first_m, m, t_room, w.at(elt, to, first_m))
        return "\n".join([self.v.declarations(), self.turn(), self.gather(), w.text()])

    def products(self, name):
        """The step of the products: a share of the tiles, some channels of each kind; sums go to working memory, as
        [share, element, input channel, output channel]. Buffers x, g, the weight's gradient, working memory."""
        elt, n = self.element, self.lanes
        w, f = self.open(name, WEIGHT_FIELDS)
        X, G, room = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in (0, 1, 3)]
        x_room, v_room, g_room, t_room = \
            self.rooms(w, *[f[r] for r in ("x_room", "v_room", "g_room", "t_room")])
        step = w.spare("[4 x i64]")
        columns, a_rows, c_rows = [w.spare(f"[{max(MAX_KERNEL_ROWS, MAX_KERNEL_VECTORS)} x i64]") for _ in range(3)]
        kernels = w(f"inttoptr i64 {f['kernels']} to ptr")
        apart = w.is_("ne", f["apart"], 0)
        with w.when(w.is_("eq", "%begin", 0)):
            w.store("i64", 0, room)
        self.clear(w, f, x_room)
        w.store("i64", 1, step)
        w.store("i64", f["g_row"], w.at("i64", step, 1))
        with w.loop(0, max(MAX_KERNEL_ROWS, MAX_KERNEL_VECTORS)) as i:
            w.store("i64", w.mul(i.i, n), w.at("i64", columns, i.i))
            w.store("i64", w.mul(i.i, f["p_row"]), w.at("i64", c_rows, i.i))
        with w.loop("%begin", "%end") as t:
            rest, tile_m = w.div(t.i, f["m_tiles"]), w.rem(t.i, f["m_tiles"])
            share, tile_c = w.div(rest, f["c_tiles"]), w.rem(rest, f["c_tiles"])
            first_m, first_c = w.mul(tile_m, f["m_tile"]), w.mul(tile_c, f["c_tile"])
            m = w.least(f["m_tile"], w.sub(f["m"], first_m))
            end_c = w.least(w.add(first_c, f["c_tile"]), f["channels"])
            count_c = w.sub(end_c, first_c)
            first_block = w.mul(share, f["share"])
            last_block = w.least(w.add(first_block, f["share"]), f["row_blocks"])
            sums = w.at(elt, w.at("i8", room, f["p_at"]), w.add(w.mul(share, f["p_share"]), first_m))
            sums = w.at(elt, sums, w.mul(first_c, f["p_row"]))
            vectors = w.count_of(m, n)
            panels, strips = w.count_of(vectors, f["width"]), w.count_of(count_c, f["height"])
            thin, wider = w.div(vectors, panels), w.rem(vectors, panels)
            low, taller = w.div(count_c, strips), w.rem(count_c, strips)
            kept = w.pick(apart, f["channels"], f["c_tile"])
            with w.loop(first_block, last_block) as number:
                block = self.block_of(w, f, number.i)
                v_row = w.add(block[3], n)
                with w.when(w(f"xor i1 {apart}, true")):
                    self.transform(w, f, block, X, first_c, end_c, x_room, v_room, first_c, f["c_tile"])
                    self.turn_gradients(w, f, block, G, first_m, m, t_room, g_room)
                V, g = [w.at("i8", w.at("i8", room, f[at]), w.mul(number.i, f[each]))
                        for at, each in (("v_at", "v_block"), ("g_at", "g_block"))]
                V = w.pick(apart, w.at(elt, V, w.mul(first_c, v_row)), v_room, "ptr")
                g = w.pick(apart, w.at(elt, g, first_m), g_room, "ptr")
                more = w.one_if(w.is_("ne", number.i, first_block))
                with w.loop(0, MAX_KERNEL_ROWS) as i:
                    w.store("i64", w.mul(i.i, v_row), w.at("i64", a_rows, i.i))
                with w.loop(0, TILE_ELEMENTS) as q:
                    a = w.at(elt, V, w.sub(w.mul(w.mul(q.i, kept), v_row), 1))
                    b = w.at(elt, g, w.sub(w.mul(q.i, f["g_element"]), f["g_row"]))
                    to = w.at(elt, sums, w.mul(q.i, f["p_element"]))
                    self.products_of(w, kernels, strips, low, taller, wider, thin, panels, block[2], step, a, a_rows,
                                     v_row, b, columns, to, c_rows, f["p_row"], more)
        return "\n".join([self.v.declarations(), self.turn(), self.gather(), w.text()])

    def products_of(self, w, kernels, strips, low, taller, wider, thin, panels, k, step, a, a_rows, a_row, b, columns,
                    c, c_rows, c_row, more):
        """Call the innermost kernels: `taller` of the strips are of a row more than `low`, and `wider` of the panels of
        a vector more than `thin`. Rows of A and of C lie `a_row` and `c_row` apart."""
        elt, n = self.element, self.lanes
        with w.loop(0, 2, 1, [("i64", 0), ("i64", taller), ("i64", w.add(low, 1))]) as high:
            top, many, height = high.values
            high.next = [w.mul(many, height), w.sub(strips, taller), low]
            line = w.sub(w.mul(w.sub(height, 1), MAX_KERNEL_VECTORS), 1)
            above, below = w.at(elt, a, w.mul(top, a_row)), w.at(elt, c, w.mul(top, c_row))
            with w.loop(0, 2, 1, [("i64", 0), ("i64", wider), ("i64", w.add(thin, 1))]) as broad:
                left, number, width = broad.values
                with w.when(w.is_("sgt", w.mul(many, number), 0)):
                    kernel, far = w.load("ptr", w.at("ptr", kernels, w.add(line, width))), w.mul(width, n)
                    w.do(f"call void {kernel}(i64 {k}, ptr {step}, i64 0, i64 {number}, ptr {above}, ptr {a_rows}, "
                         f"ptr {w.at(elt, b, left)}, ptr {columns}, i64 {far}, ptr {w.at(elt, below, left)}, "
                         f"ptr {c_rows}, ptr {columns}, i64 {far}, i64 {more}, i64 {many}, i64 {w.mul(height, a_row)}, "
                         f"i64 {w.mul(height, c_row)})")
                broad.next = [w.mul(w.mul(number, width), n), w.sub(panels, wider), thin]

    def to_weights(self, name):
        """G^T m G of the sums of all shares, for one input channel: nine lines of `wide` output channels, %row apart.
        To the vector %check a NaN is added where something is not finite."""
        v, elt, n = self.v, self.element, self.lanes
        w = LLVMWriter(f"define void @{name}(ptr %to, i64 %row, ptr %from, i64 %place, i64 %share, i64 %shares, "
                       "i64 %wide, ptr %check)")
        half = v.spread(w, "0.5")

        def gather(a, b, c, d):
            """G^T times a column of four, of which the last has the other sign."""
            ends = w(f"fmul {v.type} {w(f'fadd {v.type} {b}, {c}')}, {half}")
            middle = w(f"fmul {v.type} {w(f'fsub {v.type} {b}, {c}')}, {half}")
            return w(f"fadd {v.type} {a}, {ends}"), middle, w(f"fsub {v.type} {ends}, {d}")

        with w.loop(0, "%wide", n, [(v.type, v.load(w, "%check"))]) as k:
            source = w.at(elt, "%from", k.i)
            carry = [("ptr", source), *[(v.type, "zeroinitializer")] * TILE_ELEMENTS]
            with w.loop(0, "%shares", 1, carry) as s:
                share, *sums = s.values
                pointer, made = share, []
                for one in sums:
                    made.append(w(f"fadd {v.type} {one}, {v.load(w, pointer)}"))
                    pointer = w.at(elt, pointer, "%place")
                s.next = [w.at(elt, share, "%share"), *made]
            m, check, pointer = s.values[1:], k.values[0], w.at(elt, "%to", k.i)
            columns = [gather(*m[i::4]) for i in range(4)]
            for r in range(3):
                for one in gather(*[column[r] for column in columns]):
                    check = v.fma(w, one, "zeroinitializer", check)
                    v.store(w, one, pointer)
                    pointer = w.at(elt, pointer, "%row")
            k.next = [check]
        v.store(w, k.values[0], "%check")
        return v.declarations() + w.text()

    def weights(self, name):
        """The step that makes the weight's gradient of the sums, some input channels at a time; buffers as for
        `products`."""
        v, elt = self.v, self.element
        w, f = self.open(name, WEIGHT_FIELDS)
        W, room = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in (2, 3)]
        lines, turned = self.rooms(w, w.mul(9 * CHANNELS_TOGETHER, f["p_row"]), f["w_lines"])
        check = w.spare(v.type)
        v.store(w, "zeroinitializer", check)
        line = up(9 * CHANNELS_TOGETHER, self.lanes)
        with w.loop("%begin", "%end") as t:
            first = w.mul(t.i, CHANNELS_TOGETHER)
            count = w.least(CHANNELS_TOGETHER, w.sub(f["channels"], first))
            with w.loop(0, count) as c:
                source = w.at(elt, w.at("i8", room, f["p_at"]), w.mul(w.add(first, c.i), f["p_row"]))
                nine = w.at(elt, lines, w.mul(w.mul(9, c.i), f["p_row"]))
                w.do(f"call void {w.function(f['weights_of'])}(ptr {nine}, "
                     f"i64 {f['p_row']}, ptr {source}, i64 {f['p_element']}, i64 {f['p_share']}, i64 {f['shares']}, "
                     f"i64 {f['p_row']}, ptr {check})")
            taps = w.mul(count, 9)
            w.do(f"call void @turn(ptr {turned}, i64 {line}, ptr {lines}, i64 {f['p_row']}, i64 {f['m']}, i64 {taps})")
            with w.loop(0, f["m"]) as k:
                to = w.at(elt, W, w.add(w.mul(k.i, f["w_m"]), w.mul(first, 9)))
                v.move(w, to, w.at(elt, turned, w.mul(k.i, line)), taps)
        self.note(w, room, check)
        return "\n".join([v.declarations(), self.turn(), w.text()])

    def note(self, w, room, check):
        """Set the flag at the head of working memory where the vector `check` is not zero."""
        total = self.v.total(w, self.v.load(w, check))
        with w.when(w(f"fcmp uno {self.element} {total}, {total}")):
            w.do(f"store atomic i64 1, ptr {room} monotonic, align 8")
