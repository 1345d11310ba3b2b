"""The LLVM text of convolutions: products along taps. See conv.py, which plans them.

A step's ints begin with the fields below, by name; tables follow where the fields that end in `_at` say.
"""
from contextlib import contextmanager

from ....loops.step import STEP_ARGUMENTS
from ..llvm_writer import LLVMWriter
from .gemm_kernels import GemmKernels
from .gemm_micro import MAX_KERNEL_ROWS, MAX_KERNEL_VECTORS

FORWARD_FIELDS = ("batch groups depth out_h out_w rows row_blocks cols col_blocks m m_tile m_tiles channels block "
                  "depths taps x_n x_c x_d x_h x_w size_d size_h size_w step_d step_h step_w low_h low_w span_w pitch "
                  "phase plane high y_0 y_n y_m y_d y_h y_w a_m a_c a_g exact even y_row x_room y_room height width "
                  "kernels plane_of depth_at table_at").split()
BACKWARD_FIELDS = ("batch depth out_h out_w rows row_blocks cols col_blocks m m_tile m_tiles channels block blocks "
                   "depths taps x_n x_c x_d x_h x_w size_d size_h size_w step_d step_h step_w low_h low_w span_w "
                   "pitch phase plane high g_n g_m g_d g_h g_w flat w_m m_wide x_room g_room y_room height width "
                   "kernels plane_of depth_at table_at rows_at").split()
POSITION_FIELDS = ("all pieces positions depth out_h out_w rows row_blocks cols col_blocks m m_tile m_tiles tiles "
                   "channels block depths taps x_n x_c x_d x_h x_w size_d size_h size_w step_d step_h step_w low_h "
                   "low_w span_w pitch phase plane high y_0 y_n y_m y_d y_h y_w a_m a_c a_g flat m_wide z_row x_room "
                   "a_room y_room z_room height width kernels plane_of depth_at table_at rows_at weights_at").split()


class TapKernels(GemmKernels):
    """The LLVM text of the functions for one element type."""

    word = "taps"
    drivers = ("forth", "back", "spots")
    inner = ("micro", "plane")

    def every(self, machine):
        """All functions that a plan may ask for; the innermost kernels are those of products."""
        return [*[(what,) for what in TapKernels.drivers], ("plane", 0), ("plane", 1)]

    def plane(self, name, by_residue):
        """One plane of the input with its zeros: rows from `low.h`, columns from `low.w`; 0 where there is no input.

        Residue r of the columns by `step` goes to to[r * phase + row * pitch + column]; where not `by_residue`,
        the step is one, and columns lie side by side. Whole vectors are written, so what lies behind a row has to be
        written later.
        """
        v, elt, n = self.v, self.element, self.lanes
        w = LLVMWriter(f"define void @{name}(ptr %to, i64 %pitch, i64 %phase, ptr %from, i64 %row, i64 %col, "
                       "i64 %size.h, i64 %size.w, i64 %low.h, i64 %rows, i64 %low.w, i64 %wide, i64 %step)")
        left = w.least(w.most(w.sub(0, "%low.w"), 0), "%wide")          # zeros on the left, input up to `right`
        right = w.most(w.least(w.sub("%size.w", "%low.w"), "%wide"), left)

        def empty(to, first, end):
            with w.loop(first, end, n) as u:
                v.store(w, "zeroinitializer", w.at(elt, to, u.i))

        def side_by_side(to, source, until):
            empty(to, 0, left)
            v.move(w, w.at(elt, to, left), w.at(elt, source, left), w.sub(until, left))
            empty(to, until, "%wide")

        with w.loop(0, "%rows") as r:
            h = w.add(r.i, "%low.h")
            there = w.both(w.both(w.is_("sge", h, 0), w.is_("slt", h, "%size.h")), w.is_("slt", left, right))
            source = w.at(elt, "%from", w.add(w.mul(h, "%row"), w.mul("%low.w", "%col")))
            until = w.pick(there, right, left)                           # a row outside is read nowhere
            to = w.at(elt, "%to", w.mul(r.i, "%pitch"))
            if by_residue:
                self.put_residues(w, to, source, left, until)
            else:
                side_by_side(to, source, until)
        return v.declarations() + f"@nothing = internal constant {elt} 0.0\n" + w.text()

    def put_residues(self, w, to, source, left, until):
        """A row of `plane` by residues, with input from column `left` to `until`."""
        v, elt, n = self.v, self.element, self.lanes
        # by two, whole vectors of columns are inside from `first` to `last`; others are taken one by one
        first = w("ashr i64 " + w.add(left, 1) + ", 1")
        inside = w.down(w.most(w("ashr i64 " + w.sub(until, w.mul(2, first)) + ", 1"), 0), n)
        pairs = w.both(w.is_("eq", "%col", 1), w.is_("eq", "%step", 2))
        last = w.add(first, w.pick(pairs, inside, 0))
        with w.loop(first, last, n) as u:
            at = w.at(elt, source, w.mul(u.i, 2))
            parts = [v.load(w, w.at(elt, at, half)) for half in (0, n)]
            for odd in (0, 1):
                picked = ", ".join(f"i32 {i}" for i in range(odd, 2 * n, 2))
                one = w(f"shufflevector {v.type} {parts[0]}, {v.type} {parts[1]}, <{n} x i32> <{picked}>")
                v.store(w, one, w.at(elt, w.at(elt, to, w.mul(odd, "%phase")), u.i))
        skipped = w.sub(last, first)
        with w.loop(0, "%step") as p:
            to = w.at(elt, to, w.mul(p.i, "%phase"))
            with w.loop(0, w.sub("%pitch", skipped)) as u:
                at = w.add(u.i, w.pick(w.is_("sge", u.i, first), skipped, 0))
                column = w.add(w.mul(at, "%step"), p.i)
                there = w.both(w.is_("sge", column, left), w.is_("slt", column, until))
                pointer = w.pick(there, w.at(elt, source, w.mul(column, "%col")), "@nothing", "ptr")
                w.store(elt, w.load(elt, pointer), w.at(elt, to, at))

    def open(self, name, fields):
        """A writer of a step, and its ints by name."""
        w = LLVMWriter(f"define void @{name}({STEP_ARGUMENTS})")
        return w, {field: w.load("i64", w.at("i64", "%ints", i)) for i, field in enumerate(fields)}

    def copy_input(self, w, f, x, channel, count, depth, row, rows, col, cols, room):
        """The planes of `count` channels from `channel` on that `rows` by `cols` outputs at (depth, row, col) read."""
        elt = self.element
        low = w.add(w.mul(row, f["step_h"]), f["low_h"])
        high = w.add(w.mul(w.sub(rows, 1), f["step_h"]), f["high"])
        left = w.add(w.mul(col, f["step_w"]), f["low_w"])
        wide = w.add(w.mul(w.sub(cols, 1), f["step_w"]), f["span_w"])
        depths, plane = w.at("i64", "%ints", f["depth_at"]), w.function(f["plane_of"])
        with w.loop(0, w.mul(count, f["depths"])) as p:
            c, j = w.div(p.i, f["depths"]), w.rem(p.i, f["depths"])
            d = w.add(w.mul(depth, f["step_d"]), w.load("i64", w.at("i64", depths, j)))
            there = w.both(w.is_("sge", d, 0), w.is_("slt", d, f["size_d"]))
            source = w.at(elt, x, w.add(w.mul(w.add(channel, c), f["x_c"]), w.mul(d, f["x_d"])))
            size_h = w.pick(there, f["size_h"], 0)                      # a plane outside has no rows
            to = w.at(elt, room, w.mul(p.i, f["plane"]))
            w.do(f"call void {plane}(ptr {to}, i64 {f['pitch']}, i64 {f['phase']}, ptr {source}, "
                 f"i64 {f['x_h']}, i64 {f['x_w']}, i64 {size_h}, i64 {f['size_w']}, i64 {low}, "
                 f"i64 {high}, i64 {left}, i64 {wide}, i64 {f['step_w']})")

    def rooms(self, w, *counts):
        return w.rooms(*[(self.v.bytes, count) for count in counts])

    def call(self, w, f, rows, width, k, table, a, a_rows, b, b_cols, c, c_rows, c_cols, more):
        """Call the innermost kernel of that shape, for one block."""
        kernels = w(f"inttoptr i64 {f['kernels']} to ptr")
        kernel = w.load("ptr", w.at("ptr", kernels, w.add(w.mul(w.sub(rows, 1), MAX_KERNEL_VECTORS), w.sub(width, 1))))
        w.do(f"call void {kernel}(i64 {k}, ptr {table}, i64 2, i64 1, ptr {a}, ptr {a_rows}, ptr {b}, ptr {b_cols}, "
             f"i64 0, ptr {c}, ptr {c_rows}, ptr {c_cols}, i64 0, i64 {more}, i64 1, i64 0, i64 0, "
             "ptr null, ptr null)")

    def forth(self, name):
        """The step of a convolution: buffers x, weight and y."""
        elt, n = self.element, self.lanes
        w, f = self.open(name, FORWARD_FIELDS)
        X, A, Y = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(3)]
        x_room, y_room = self.rooms(w, f["x_room"], f["y_room"])
        most = max(MAX_KERNEL_ROWS, MAX_KERNEL_VECTORS)
        a_rows, c_rows, b_cols, c_cols = [w.spare(f"[{most} x i64]") for _ in range(4)]
        table = w.at("i64", "%ints", f["table_at"])
        exact, even = w.is_("ne", f["exact"], 0), w.is_("ne", f["even"], 0)
        to_row = w.pick(exact, f["y_m"], f["y_row"])
        # the last vector of a row reads on behind it, and what stands there should not be slow to compute with: see
        # `pack_b` in gemm_block.py
        with w.loop(0, w.pick(exact, 0, w.sub(f["x_room"], n - 1)), n) as i:
            self.v.store(w, "zeroinitializer", w.at(elt, x_room, i.i))
        with w.loop(0, MAX_KERNEL_ROWS) as i:
            w.store("i64", w.mul(i.i, f["a_m"]), w.at("i64", a_rows, i.i))
            w.store("i64", w.mul(i.i, to_row), w.at("i64", c_rows, i.i))
        with w.loop("%begin", "%end") as t:
            batch, group, depth, row, rows, col, cols, first_m, m = self.output_tile(w, f, t.i)
            out_m = w.add(w.mul(group, f["m"]), first_m)
            x = w.at(elt, X, w.add(w.mul(batch, f["x_n"]), w.mul(w.mul(group, f["channels"]), f["x_c"])))
            a = w.at(elt, A, w.add(w.mul(group, f["a_g"]), w.mul(first_m, f["a_m"])))
            y = w.at(elt, Y, w.add(w.add(w.mul(batch, f["y_n"]), w.mul(out_m, f["y_m"])),
                                   w.add(w.mul(depth, f["y_d"]), w.add(w.mul(row, f["y_h"]), f["y_0"]))))
            y = w.at(elt, y, w.mul(col, f["y_w"]))
            # either whole rows of vectors, or one run of vectors over the rows as they lie in the copy
            run = w.count_of(w.add(w.mul(w.sub(rows, 1), f["pitch"]), cols), n)
            per_row = w.count_of(cols, n)
            vectors = w.pick(even, run, w.mul(rows, per_row))
            panels, strips = w.count_of(vectors, f["width"]), w.count_of(m, f["height"])
            thin, wider = w.div(vectors, panels), w.rem(vectors, panels)
            low, taller = w.div(m, strips), w.rem(m, strips)
            to = w.pick(exact, y, y_room, "ptr")
            with w.loop(0, f["channels"], f["block"]) as c:
                count = w.least(f["block"], w.sub(f["channels"], c.i))
                self.copy_input(w, f, x, c.i, count, depth, row, rows, col, cols, x_room)
                more = w.one_if(w.is_("ne", c.i, 0))
                weight = w.at(elt, a, w.mul(c.i, f["a_c"]))
                with self.pieces_of(w, panels, thin, wider) as (start, width):
                    self.place_columns(w, f, start, width, per_row, even, exact, b_cols, c_cols)
                    with self.pieces_of(w, strips, low, taller) as (strip, height):
                        c_s = w.at(elt, to, w.mul(strip, to_row))
                        k = w.mul(count, f["taps"])
                        self.call(w, f, height, width, k, table, w.at(elt, weight, w.mul(strip, f["a_m"])), a_rows,
                                  x_room, b_cols, c_s, c_rows, c_cols, more)
            with w.when(w(f"xor i1 {exact}, true")):
                step = w.pick(even, f["pitch"], w.mul(per_row, n))
                self.finish_rows(w, f, y, y_room, f["y_row"], step, m, rows, cols)
        return "\n".join([self.v.declarations(), self.finish(), w.text()])

    def output_tile(self, w, f, number):
        """Tile `number` of `forth`: (batch, group, depth, row, rows, column, columns, first channel, channels)."""
        rest, tile_m = w.div(number, f["m_tiles"]), w.rem(number, f["m_tiles"])
        rest, across = w.div(rest, f["col_blocks"]), w.rem(rest, f["col_blocks"])
        rest, down = w.div(rest, f["row_blocks"]), w.rem(rest, f["row_blocks"])
        rest, depth = w.div(rest, f["depth"]), w.rem(rest, f["depth"])
        batch, group = w.div(rest, f["groups"]), w.rem(rest, f["groups"])
        row, col, first_m = w.mul(down, f["rows"]), w.mul(across, f["cols"]), w.mul(tile_m, f["m_tile"])
        rows, cols = w.least(f["rows"], w.sub(f["out_h"], row)), w.least(f["cols"], w.sub(f["out_w"], col))
        return batch, group, depth, row, rows, col, cols, first_m, w.least(f["m_tile"], w.sub(f["m"], first_m))

    def place_columns(self, w, f, start, width, per_row, even, exact, b_cols, c_cols):
        """Tables of where `width` vectors from `start` on are read in the copy of the input, and where they go."""
        with w.loop(0, width) as j:
            at = w.add(start, j.i)
            line, part = w.div(at, per_row), w.mul(w.rem(at, per_row), self.lanes)
            by_row = w.add(w.mul(w.mul(line, f["step_h"]), f["pitch"]), part)
            w.store("i64", w.pick(even, w.mul(at, self.lanes), by_row), w.at("i64", b_cols, j.i))
            placed = w.add(w.mul(line, f["y_h"]), part)
            w.store("i64", w.pick(exact, placed, w.mul(at, self.lanes)), w.at("i64", c_cols, j.i))

    def finish_rows(self, w, f, y, room, far, step, m, rows, cols):
        """Sums of `m` channels that lie `far` apart, with rows `step` apart, to where they belong."""
        with w.loop(0, m) as i, w.loop(0, rows) as r:
            source = w.at(self.element, room, w.add(w.mul(i.i, far), w.mul(r.i, step)))
            into = w.at(self.element, y, w.add(w.mul(i.i, f["y_m"]), w.mul(r.i, f["y_h"])))
            w.do(f"call void @finish(ptr {into}, i64 {f['y_w']}, ptr {source}, i64 {cols})")

    def finish(self):
        """A row of sums to where it belongs."""
        elt = self.element
        w = LLVMWriter("define internal void @finish(ptr %to, i64 %col, ptr %from, i64 %count)")

        def one_by_one():
            with w.loop(0, "%count") as i:
                w.store(elt, w.load(elt, w.at(elt, "%from", i.i)), w.at(elt, "%to", w.mul(i.i, "%col")))

        w.either(w.is_("eq", "%col", 1), lambda: self.v.move(w, "%to", "%from", "%count"), one_by_one)
        return w.text()

    def back(self, name):
        """The step of a weight's gradient: buffers x, g and the weight's gradient."""
        elt, n = self.element, self.lanes
        w, f = self.open(name, BACKWARD_FIELDS)
        X, G, W = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(3)]
        x_room, g_room, y_room = self.rooms(w, *[f[r] for r in ("x_room", "g_room", "y_room")])
        steps, c_rows = self.steps(w, f)
        table, a_rows = w.at("i64", "%ints", f["table_at"]), w.at("i64", "%ints", f["rows_at"])
        with w.loop("%begin", "%end") as t:
            rest, block = w.div(t.i, f["blocks"]), w.rem(t.i, f["blocks"])
            group, tile_m = w.div(rest, f["m_tiles"]), w.rem(rest, f["m_tiles"])
            channel, first_m = w.mul(block, f["block"]), w.mul(tile_m, f["m_tile"])
            count = w.least(f["block"], w.sub(f["channels"], channel))
            m = w.least(f["m_tile"], w.sub(f["m"], first_m))
            out_m = w.add(w.mul(group, f["m"]), first_m)
            lines = w.mul(count, f["taps"])
            vectors = w.count_of(m, n)
            panels, strips = w.count_of(vectors, f["width"]), w.count_of(lines, f["height"])
            thin, wider = w.div(vectors, panels), w.rem(vectors, panels)
            low, taller = w.div(lines, strips), w.rem(lines, strips)
            pieces = w.mul(w.mul(f["batch"], f["depth"]), w.mul(f["row_blocks"], f["col_blocks"]))
            with w.loop(0, pieces) as q:
                batch, depth, row, rows, col, cols = self.piece(w, f, q.i)
                first_c = w.add(w.mul(group, f["channels"]), channel)
                x = w.at(elt, X, w.mul(batch, f["x_n"]))
                self.copy_input(w, f, x, first_c, count, depth, row, rows, col, cols, x_room)
                g = w.at(elt, G, w.add(w.add(w.mul(batch, f["g_n"]), w.mul(out_m, f["g_m"])),
                                       w.add(w.mul(depth, f["g_d"]), w.mul(row, f["g_h"]))))
                g = w.at(elt, g, w.mul(col, f["g_w"]))
                positions = w.mul(rows, cols)
                self.pack_gradients(w, f, g, g_room, rows, cols, positions, m, vectors)
                with self.pieces_of(w, panels, thin, wider) as (start, width):
                    with self.pieces_of(w, strips, low, taller) as (strip, height):
                        c = w.at(elt, y_room, w.add(w.mul(strip, f["m_wide"]), w.mul(start, n)))
                        self.call(w, f, height, width, positions, table, x_room, w.at("i64", a_rows, strip),
                                  w.at(elt, g_room, w.mul(start, n)), steps, c, c_rows, steps, w.least(q.i, 1))
            into = w.at(elt, W, w.add(w.mul(out_m, f["w_m"]), w.mul(channel, f["taps"])))
            w.do(f"call void @gather(ptr {into}, i64 {f['w_m']}, ptr {y_room}, i64 1, i64 {f['m_wide']}, i64 {m}, "
                 f"i64 {lines})")
        return "\n".join([self.v.declarations(), self.turn(), self.gather(), w.text()])

    def spots(self, name):
        """The step of a convolution whose rows are too short for vectors: channels are across, positions down."""
        elt, n = self.element, self.lanes
        w, f = self.open(name, POSITION_FIELDS)
        X, A, Y = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(3)]
        x_room, a_room, y_room, z_room = self.rooms(w, *[f[r] for r in ("x_room", "a_room", "y_room", "z_room")])
        steps, c_rows = self.steps(w, f)
        table, lines, weights = [w.at("i64", "%ints", f[at]) for at in ("table_at", "rows_at", "weights_at")]
        with w.loop("%begin", "%end") as t:
            rest, tile = w.div(t.i, f["tiles"]), w.rem(t.i, f["tiles"])
            group, tile_m = w.div(rest, f["m_tiles"]), w.rem(rest, f["m_tiles"])
            first_m, first_p = w.mul(tile_m, f["m_tile"]), w.mul(tile, f["pieces"])
            m = w.least(f["m_tile"], w.sub(f["m"], first_m))
            last_p = w.least(w.add(first_p, f["pieces"]), f["all"])
            out_m = w.add(w.mul(group, f["m"]), first_m)
            a = w.at(elt, A, w.add(w.mul(group, f["a_g"]), w.mul(first_m, f["a_m"])))
            vectors = w.count_of(m, n)
            panels = w.count_of(vectors, f["width"])
            thin, wider = w.div(vectors, panels), w.rem(vectors, panels)
            with w.loop(0, f["channels"], f["block"]) as c:
                count = w.least(f["block"], w.sub(f["channels"], c.i))
                k = w.mul(count, f["taps"])
                weight = w.at(elt, a, w.mul(c.i, f["a_c"]))
                self.pack_weights(w, f, weight, weights, a_room, k, m, vectors)
                more = w.one_if(w.is_("ne", c.i, 0))
                with w.loop(first_p, last_p) as q:
                    batch, depth, row, rows, col, cols = self.piece(w, f, q.i)
                    x = w.at(elt, X, w.add(w.mul(batch, f["x_n"]), w.mul(w.mul(group, f["channels"]), f["x_c"])))
                    self.copy_input(w, f, x, c.i, count, depth, row, rows, col, cols, x_room)
                    sums = w.at(elt, y_room, w.mul(w.mul(w.sub(q.i, first_p), f["positions"]), f["m_wide"]))
                    positions = w.mul(rows, cols)
                    strips = w.count_of(positions, f["height"])
                    low, taller = w.div(positions, strips), w.rem(positions, strips)
                    with self.pieces_of(w, panels, thin, wider) as (start, width):
                        with self.pieces_of(w, strips, low, taller) as (strip, height):
                            to = w.at(elt, sums, w.add(w.mul(strip, f["m_wide"]), w.mul(start, n)))
                            self.call(w, f, height, width, k, table, x_room, w.at("i64", lines, strip),
                                      w.at(elt, a_room, w.mul(start, n)), steps, to, c_rows, steps, more)
            with w.loop(first_p, last_p) as q:               # back to channels down and positions across
                batch, depth, row, rows, col, cols = self.piece(w, f, q.i)
                sums = w.at(elt, y_room, w.mul(w.mul(w.sub(q.i, first_p), f["positions"]), f["m_wide"]))
                w.do(f"call void @turn(ptr {z_room}, i64 {f['z_row']}, ptr {sums}, i64 {f['m_wide']}, i64 {m}, "
                     f"i64 {w.mul(rows, cols)})")
                y = w.at(elt, Y, w.add(w.add(w.mul(batch, f["y_n"]), w.mul(out_m, f["y_m"])), f["y_0"]))
                y = w.at(elt, y, w.add(w.mul(depth, f["y_d"]), w.add(w.mul(row, f["y_h"]), w.mul(col, f["y_w"]))))
                self.finish_rows(w, f, y, z_room, f["z_row"], cols, m, rows, cols)
        return "\n".join([self.v.declarations(), self.turn(), self.gather(), self.finish(), w.text()])

    def pack_gradients(self, w, f, g, room, rows, cols, positions, m, vectors):
        """Gradients at `g`, channels across and positions down."""
        elt = self.element

        def turn():
            w.do(f"call void @turn(ptr {room}, i64 {f['m_wide']}, ptr {g}, i64 {f['g_m']}, i64 {positions}, i64 {m})")

        def gather():
            with w.loop(0, rows) as r:
                to = w.at(elt, room, w.mul(w.mul(r.i, cols), f["m_wide"]))
                with w.loop(0, cols) as q:
                    self.clear_last(w, w.at(elt, to, w.mul(q.i, f["m_wide"])), vectors)
                source = w.at(elt, g, w.mul(r.i, f["g_h"]))
                w.do(f"call void @gather(ptr {to}, i64 {f['m_wide']}, ptr {source}, i64 {f['g_w']}, i64 {f['g_m']}, "
                     f"i64 {cols}, i64 {m})")

        w.switch(f["flat"], {1: turn, 0: gather})

    def pack_weights(self, w, f, weight, offsets, room, k, m, vectors):
        """Weights at `weight`, output channels across and `k` taps down, which `offsets` are a table of."""
        def turn():
            w.do(f"call void @turn(ptr {room}, i64 {f['m_wide']}, ptr {weight}, i64 {f['a_m']}, i64 {k}, i64 {m})")

        def gather():
            with w.loop(0, k) as q:
                source = w.at(self.element, weight, w.load("i64", w.at("i64", offsets, q.i)))
                to = w.at(self.element, room, w.mul(q.i, f["m_wide"]))
                self.clear_last(w, to, vectors)
                w.do(f"call void @gather(ptr {to}, i64 0, ptr {source}, i64 0, i64 {f['a_m']}, i64 1, i64 {m})")

        w.switch(f["flat"], {1: turn, 0: gather})

    @contextmanager
    def pieces_of(self, w, count, low, larger):
        """For each of `count` pieces in a row, where it starts and its size: `low`, of the first `larger` one more."""
        with w.loop(0, count, 1, [("i64", 0)]) as p:
            size = w.add(low, w.one_if(w.is_("slt", p.i, larger)))
            yield p.values[0], size
            p.next = [w.add(p.values[0], size)]

    def clear_last(self, w, row, vectors):
        """Make the last of the vectors of a row zeros, which may not all be written over."""
        self.v.store(w, "zeroinitializer", w.at(self.element, row, w.mul(w.sub(vectors, 1), self.lanes)))

    def steps(self, w, f):
        """Tables of columns, a vector each, and of rows that lie `m_wide` apart."""
        cols, rows = [w.spare(f"[{max(MAX_KERNEL_ROWS, MAX_KERNEL_VECTORS)} x i64]") for _ in range(2)]
        with w.loop(0, max(MAX_KERNEL_ROWS, MAX_KERNEL_VECTORS)) as i:
            w.store("i64", w.mul(i.i, self.lanes), w.at("i64", cols, i.i))
            w.store("i64", w.mul(i.i, f["m_wide"]), w.at("i64", rows, i.i))
        return cols, rows

    def piece(self, w, f, number):
        """Piece `number` of the positions: (batch, depth, row, rows, column, columns)."""
        rest, across = w.div(number, f["col_blocks"]), w.rem(number, f["col_blocks"])
        rest, down = w.div(rest, f["row_blocks"]), w.rem(rest, f["row_blocks"])
        row, col = w.mul(down, f["rows"]), w.mul(across, f["cols"])
        rows, cols = w.least(f["rows"], w.sub(f["out_h"], row)), w.least(f["cols"], w.sub(f["out_w"], col))
        return w.div(rest, f["depth"]), w.rem(rest, f["depth"]), row, rows, col, cols
