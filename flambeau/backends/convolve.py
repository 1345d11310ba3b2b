"""Convolutions as native steps: forwards, backwards to the input (and so transposed), backwards to the weight.

`convolve` and `convolve_weight` plan them, for float32 and float64, one to three spatial dimensions, any stride, padding,
dilation and groups, and memory of any strides.

All of them are products along taps. A tap is one place of the kernel, and says how far from its output position the
input is that it reads. Per tile, the input rows that the tile needs are copied to the stack with their zeros around them
(and, under a stride, each residue of the columns on its own), so that there every tap reads whole vectors. No matrix
of columns is made: the innermost kernel has, for every k, an offset into the weight and one into that copy.

    forwards          rows are output channels, columns are positions, k goes over (input channel, tap)
    to the input      the same, with the taps mirrored and the channels exchanged; under a stride, the input positions of
                      each residue are a convolution of their own with the taps that reach them, and a step of their own
    to the weight     rows are (input channel, tap), columns are output channels, k goes over positions; the outer
                      gradient is turned, so that a position's channels are a vector

Each sum is taken in an order that the shapes alone fix.
"""
from collections import namedtuple
from itertools import product

from .gemm import ELEMENTS, PIECE, ROWS, WIDTH, Kernels, Step, host as host_of, split, up, widest
from .threads import get_num_threads
from .writer import Writer

Tap = namedtuple("Tap", "weight d h w")        # its offset in the weight, and where it reads from, by input elements
K_MOST = 512                                   # k of one block at most
PLACES = 512                                   # positions of one block at most, for the gradient of a weight
ROOM = 48 << 10                                # elements of the copied input, and of the gathered output, at most

FORTH = ("batch groups depth out_h out_w rows row_blocks cols col_blocks m m_tile m_tiles channels block depths taps "
         "x_n x_c x_d x_h x_w size_d size_h size_w step_d step_h step_w low_h low_w span_w pitch phase plane high "
         "y_0 y_n y_m y_d y_h y_w a_m a_c a_g exact even y_row x_room y_room height width relu has_bias "
         "kernels depth_at table_at").split()
BACK = ("batch depth out_h out_w rows row_blocks cols col_blocks m m_tile m_tiles channels block blocks depths taps "
        "x_n x_c x_d x_h x_w size_d size_h size_w step_d step_h step_w low_h low_w span_w pitch phase plane high "
        "g_n g_m g_d g_h g_w flat w_m m_wide x_room g_room y_room height width kernels depth_at table_at rows_at").split()


# --- the text ---------------------------------------------------------------------------------------------------------


class TapKernels(Kernels):
    """The LLVM text of the functions for one element type."""

    word = "taps"

    def micro(self, name, rows, width):
        """The innermost kernel: C[i, j] = E[i, j] + the sum over k of A[i, k] * B[k, j], where j is a vector.

        %table gives for each k its offset in A and in B, and a pair more; %a.rows, %b.cols, %c.cols and %e.cols give those
        of rows and columns.
        """
        v, elt = self.v, self.element
        w = Writer(f"define void @{name}(i64 %k, ptr %table, ptr %a, ptr %a.rows, ptr %b, ptr %b.cols, ptr %c, "
                   f"i64 %c.row, ptr %c.cols, ptr %e, i64 %e.row, ptr %e.cols, {elt} %floor)")
        to = [w.at(elt, "%c", w.load("i64", w.at("i64", "%c.cols", j))) for j in range(width)]
        place = to
        for i in range(rows):                      # what will be written comes nearer while we compute
            for p in place:
                w.do(f"call void @llvm.prefetch.p0(ptr {p}, i32 0, i32 2, i32 1)")
            place = [w.at(elt, p, "%c.row") for p in place] if i < rows - 1 else place
        a = [w.at(elt, "%a", w.load("i64", w.at("i64", "%a.rows", i))) for i in range(rows)]
        b = [w.at(elt, "%b", w.load("i64", w.at("i64", "%b.cols", j))) for j in range(width)]
        # the offsets are read one turn ahead: otherwise LLVM loads all of A first, and has no registers for it
        carry = [("ptr", "%table"), ("i64", w.load("i64", "%table")), ("i64", w.load("i64", w.at("i64", "%table", 1))),
                 *[(v.type, "zeroinitializer")] * (rows * width)]
        with w.loop(0, "%k", 1, carry) as k:
            table, for_a, for_b, *sums = k.values
            across = [v.load(w, w.at(elt, p, for_b)) for p in b]
            made = []
            for i in range(rows):
                x = v.spread(w, w.load(elt, w.at(elt, a[i], for_a)))
                made += [v.fma(w, x, y, s) for y, s in zip(across, sums[i * width:], strict=False)]
            later = w.at("i64", table, 2)
            k.next = [later, w.load("i64", later), w.load("i64", w.at("i64", later, 1)), *made]
        sums = k.values[3:]
        floor = v.spread(w, "%floor")
        old = [w.at(elt, "%e", w.load("i64", w.at("i64", "%e.cols", j))) for j in range(width)]
        for i in range(rows):
            for j in range(width):
                total = w(f"fadd {v.type} {v.load(w, old[j])}, {sums[i * width + j]}")
                v.store(w, v.at_least(w, total, floor), to[j])
            if i < rows - 1:
                to, old = [w.at(elt, p, "%c.row") for p in to], [w.at(elt, p, "%e.row") for p in old]
        return v.declarations() + w.text()

    def plane(self):
        """One plane of the input with its zeros: columns from `low.w`, rows from `low.h`; 0 where there is no input.

        Residue r of the columns by `step` goes to to[r * phase + row * pitch + column].
        """
        v, elt, n = self.v, self.element, self.lanes
        w = Writer("define internal void @plane(ptr %to, i64 %pitch, i64 %phase, ptr %from, i64 %row, i64 %col, "
                   "i64 %size.h, i64 %size.w, i64 %low.h, i64 %rows, i64 %low.w, i64 %wide, i64 %step)")
        left = w.least(w.most(w.sub(0, "%low.w"), 0), "%wide")          # zeros on the left, then `middle` elements
        right = w.most(w.least(w.sub("%size.w", "%low.w"), "%wide"), left)
        whole = w.add(left, w.down(w.sub(right, left), n))
        some = v.mask(w, w.sub(right, whole))
        simple = w.both(w.is_("eq", "%col", 1), w.is_("eq", "%step", 1))
        with w.loop(0, "%rows") as r:
            h = w.add(r.i, "%low.h")
            to = w.at(elt, "%to", w.mul(r.i, "%pitch"))
            there = w.both(w.is_("sge", h, 0), w.is_("slt", h, "%size.h"))
            source = w.at(elt, "%from", w.add(w.mul(h, "%row"), w.mul("%low.w", "%col")))

            def nothing(to=to):
                with w.loop(0, "%step") as p:
                    to = w.at(elt, to, w.mul(p.i, "%phase"))
                    with w.loop(0, "%pitch") as u:
                        w.store(elt, "0.0", w.at(elt, to, u.i))

            def straight(to=to, source=source):
                with w.loop(0, left) as u:
                    w.store(elt, "0.0", w.at(elt, to, u.i))
                with w.loop(left, whole, n) as u:
                    v.store(w, v.load(w, w.at(elt, source, u.i)), w.at(elt, to, u.i))
                with w.when(w.is_("slt", whole, right)):
                    v.store_some(w, v.load_some(w, w.at(elt, source, whole), some), w.at(elt, to, whole), some)
                with w.loop(right, "%wide") as u:
                    w.store(elt, "0.0", w.at(elt, to, u.i))

            def strided(to=to, source=source):
                with w.loop(0, "%step") as p:
                    to = w.at(elt, to, w.mul(p.i, "%phase"))
                    with w.loop(0, "%pitch", 1, [("i64", p.i)]) as u:
                        at = u.values[0]
                        inside = w.both(w.is_("sge", at, left), w.is_("slt", at, right))
                        # outside, the first element that is there is read, and not used
                        value = w.load(elt, w.at(elt, source, w.mul(w.pick(inside, at, left), "%col")))
                        w.store(elt, w.pick(inside, value, "0.0", elt), w.at(elt, to, u.i))
                        u.next = [w.add(at, "%step")]

            some_row = w.both(there, w.is_("slt", left, right))
            w.switch(w.pick(some_row, w.pick(simple, 1, 2), 0), {0: nothing, 1: straight, 2: strided})
        return w.text()

    def fields(self, names):
        """A writer of a step, with its ints by name."""
        def open_(name):
            w = Writer(f"define void @{name}(ptr %buffers, ptr %ints, ptr %scalars, i64 %begin, i64 %end)")
            return w, {field: w.load("i64", w.at("i64", "%ints", i)) for i, field in enumerate(names)}
        return open_

    def copy_input(self, w, f, x, channel, count, depth, row, rows, col, cols, room):
        """The planes of `count` channels from `channel` on that `rows` by `cols` outputs at (depth, row, col) read."""
        elt = self.element
        low = w.add(w.mul(row, f["step_h"]), f["low_h"])
        high = w.add(w.mul(w.sub(rows, 1), f["step_h"]), f["high"])
        left = w.add(w.mul(col, f["step_w"]), f["low_w"])
        wide = w.add(w.mul(w.sub(cols, 1), f["step_w"]), f["span_w"])
        depths = w.at("i64", "%ints", f["depth_at"])
        with w.loop(0, w.mul(count, f["depths"])) as p:
            c, j = w.div(p.i, f["depths"]), w.rem(p.i, f["depths"])
            d = w.add(w.mul(depth, f["step_d"]), w.load("i64", w.at("i64", depths, j)))
            there = w.both(w.is_("sge", d, 0), w.is_("slt", d, f["size_d"]))
            source = w.at(elt, x, w.add(w.mul(w.add(channel, c), f["x_c"]), w.mul(d, f["x_d"])))
            size_h = w.pick(there, f["size_h"], 0)                      # a plane outside has no rows
            w.do(f"call void @plane(ptr {w.at(elt, room, w.mul(p.i, f['plane']))}, i64 {f['pitch']}, i64 {f['phase']}, "
                 f"ptr {source}, i64 {f['x_h']}, i64 {f['x_w']}, i64 {size_h}, i64 {f['size_w']}, i64 {low}, "
                 f"i64 {high}, i64 {left}, i64 {wide}, i64 {f['step_w']})")

    def room(self, w, count):
        return w(f"alloca {self.element}, i64 {count}, align 64")

    def kernel(self, w, f, rows, width):
        """The innermost kernel of that shape."""
        table = w(f"inttoptr i64 {f['kernels']} to ptr")
        return w.load("ptr", w.at("ptr", table, w.add(w.mul(w.sub(rows, 1), WIDTH), w.sub(width, 1))))

    def forth(self, name):
        """The step of a convolution: buffers x, weight, y and, if there is one, bias."""
        elt, n = self.element, self.lanes
        w, f = self.fields(FORTH)(name)
        X, A, Y = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(3)]
        has_bias = w.is_("ne", f["has_bias"], 0)
        bias = w.load("ptr", w.at("ptr", "%buffers", w.pick(has_bias, 3, 2)))
        x_room, y_room = self.room(w, f["x_room"]), self.room(w, f["y_room"])
        ebuf = self.room(w, ROWS * n)
        a_rows, b_cols, c_cols, e_cols = [w(f"alloca i64, i64 {ROWS}") for _ in range(4)]
        with w.loop(0, ROWS) as i:
            self.v.store(w, "zeroinitializer", w.at(elt, ebuf, w.mul(i.i, n)))
            w.store("i64", w.mul(i.i, f["a_m"]), w.at("i64", a_rows, i.i))
            w.store("i64", 0, w.at("i64", e_cols, i.i))
        table = w.at("i64", "%ints", f["table_at"])
        exact, even = w.is_("ne", f["exact"], 0), w.is_("ne", f["even"], 0)
        relu = w.is_("ne", f["relu"], 0)
        least = "0xFFF0000000000000"
        with w.loop("%begin", "%end") as t:
            rest, tile_m = w.div(t.i, f["m_tiles"]), w.rem(t.i, f["m_tiles"])
            rest, across = w.div(rest, f["col_blocks"]), w.rem(rest, f["col_blocks"])
            rest, down = w.div(rest, f["row_blocks"]), w.rem(rest, f["row_blocks"])
            rest, depth = w.div(rest, f["depth"]), w.rem(rest, f["depth"])
            batch, group = w.div(rest, f["groups"]), w.rem(rest, f["groups"])
            row, col, first_m = w.mul(down, f["rows"]), w.mul(across, f["cols"]), w.mul(tile_m, f["m_tile"])
            rows, cols = w.least(f["rows"], w.sub(f["out_h"], row)), w.least(f["cols"], w.sub(f["out_w"], col))
            m = w.least(f["m_tile"], w.sub(f["m"], first_m))
            out_m = w.add(w.mul(group, f["m"]), first_m)
            x = w.at(elt, X, w.add(w.mul(batch, f["x_n"]), w.mul(w.mul(group, f["channels"]), f["x_c"])))
            a = w.at(elt, A, w.add(w.mul(group, f["a_g"]), w.mul(first_m, f["a_m"])))
            y = w.at(elt, Y, w.add(w.add(w.mul(batch, f["y_n"]), w.mul(out_m, f["y_m"])),
                                   w.add(w.mul(depth, f["y_d"]), w.add(w.mul(row, f["y_h"]), f["y_0"]))))
            y = w.at(elt, y, w.mul(col, f["y_w"]))
            e = w.at(elt, bias, out_m)
            # either whole rows of vectors, or one run of vectors over the rows as they lie in the copy
            run = w.count_of(w.add(w.mul(w.sub(rows, 1), f["pitch"]), cols), n)
            per_row = w.count_of(cols, n)
            vectors = w.pick(even, run, w.mul(rows, per_row))
            panels, strips = w.count_of(vectors, f["width"]), w.count_of(m, f["height"])
            thin, wider = w.div(vectors, panels), w.rem(vectors, panels)
            low, taller = w.div(m, strips), w.rem(m, strips)
            to, to_row = w.pick(exact, y, y_room, "ptr"), w.pick(exact, f["y_m"], f["y_row"])
            with w.loop(0, f["channels"], f["block"]) as c:
                count = w.least(f["block"], w.sub(f["channels"], c.i))
                self.copy_input(w, f, x, c.i, count, depth, row, rows, col, cols, x_room)
                first, final = w.is_("eq", c.i, 0), w.is_("eq", w.add(c.i, count), f["channels"])
                floor = w.pick(w.both(exact, w.both(relu, final)), "0.0", least, elt)
                weight = w.at(elt, a, w.mul(c.i, f["a_c"]))
                with w.loop(0, panels, 1, [("i64", 0)]) as p:
                    start = p.values[0]
                    width = w.add(thin, w.one_if(w.is_("slt", p.i, wider)))
                    with w.loop(0, width) as j:
                        at = w.add(start, j.i)
                        line, part = w.div(at, per_row), w.mul(w.rem(at, per_row), n)
                        by_row = w.add(w.mul(w.mul(line, f["step_h"]), f["pitch"]), part)
                        w.store("i64", w.pick(even, w.mul(at, n), by_row), w.at("i64", b_cols, j.i))
                        placed = w.add(w.mul(line, f["y_h"]), part)
                        w.store("i64", w.pick(exact, placed, w.mul(at, n)), w.at("i64", c_cols, j.i))
                    with w.loop(0, strips, 1, [("i64", 0)]) as s:
                        strip = s.values[0]
                        height = w.add(low, w.one_if(w.is_("slt", s.i, taller)))
                        c_s = w.at(elt, to, w.mul(strip, to_row))
                        with w.when(w.both(first, exact)):
                            with w.loop(0, height) as r:
                                place = w.pick(has_bias, w.at(elt, e, w.add(strip, r.i)), ebuf, "ptr")
                                one = w.pick(has_bias, w.load(elt, place), "0.0", elt)
                                self.v.store(w, self.v.spread(w, one), w.at(elt, ebuf, w.mul(r.i, n)))
                        e_s, e_row = w.pick(first, ebuf, c_s, "ptr"), w.pick(first, n, to_row)
                        e_c = w.pick(first, e_cols, c_cols, "ptr")
                        w.do(f"call void {self.kernel(w, f, height, width)}(i64 {w.mul(count, f['taps'])}, ptr {table}, "
                             f"ptr {w.at(elt, weight, w.mul(strip, f['a_m']))}, ptr {a_rows}, ptr {x_room}, "
                             f"ptr {b_cols}, ptr {c_s}, i64 {to_row}, ptr {c_cols}, ptr {e_s}, i64 {e_row}, ptr {e_c}, "
                             f"{elt} {floor})")
                        s.next = [w.add(strip, height)]
                    p.next = [w.add(start, width)]
            with w.when(w(f"xor i1 {exact}, true")):
                step = w.pick(even, f["pitch"], w.mul(per_row, n))
                floor = w.pick(relu, "0.0", least, elt)
                with w.loop(0, m) as i:
                    place = w.pick(has_bias, w.at(elt, e, i.i), ebuf, "ptr")
                    one = w.pick(has_bias, w.load(elt, place), "0.0", elt)
                    with w.loop(0, rows) as r:
                        source = w.at(elt, y_room, w.add(w.mul(i.i, f["y_row"]), w.mul(r.i, step)))
                        into = w.at(elt, y, w.add(w.mul(i.i, f["y_m"]), w.mul(r.i, f["y_h"])))
                        w.do(f"call void @finish(ptr {into}, i64 {f['y_w']}, ptr {source}, i64 {cols}, {elt} {one}, "
                             f"{elt} {floor})")
        return "\n".join([self.v.declarations(), self.plane(), self.finish(), w.text()])

    def finish(self):
        """A row of sums to where it belongs: plus the bias, at least `floor`."""
        v, elt, n = self.v, self.element, self.lanes
        w = Writer(f"define internal void @finish(ptr %to, i64 %col, ptr %from, i64 %count, {elt} %bias, {elt} %floor)")
        bias, floor = v.spread(w, "%bias"), v.spread(w, "%floor")

        def by_vectors():
            whole = w.down("%count", n)
            some = v.mask(w, w.sub("%count", whole))
            with w.loop(0, whole, n) as i:
                total = w(f"fadd {v.type} {bias}, {v.load(w, w.at(elt, '%from', i.i))}")
                v.store(w, v.at_least(w, total, floor), w.at(elt, "%to", i.i))
            with w.when(w.is_("slt", whole, "%count")):
                total = w(f"fadd {v.type} {bias}, {v.load_some(w, w.at(elt, '%from', whole), some)}")
                v.store_some(w, v.at_least(w, total, floor), w.at(elt, "%to", whole), some)

        def one_by_one():
            with w.loop(0, "%count") as i:
                total = w(f"fadd {elt} %bias, {w.load(elt, w.at(elt, '%from', i.i))}")
                below = w(f"fcmp ogt {elt} %floor, {total}")
                w.store(elt, w.pick(below, "%floor", total, elt), w.at(elt, "%to", w.mul(i.i, "%col")))

        w.switch(w.one_if(w.is_("eq", "%col", 1)), {1: by_vectors, 0: one_by_one})
        return w.text()

    def back(self, name):
        """The step of a weight's gradient: buffers x, g and the weight's gradient."""
        elt, n = self.element, self.lanes
        w, f = self.fields(BACK)(name)
        X, G, W = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(3)]
        x_room, g_room, y_room = [self.room(w, f[r]) for r in ("x_room", "g_room", "y_room")]
        steps = w(f"alloca i64, i64 {WIDTH}")
        for j in range(WIDTH):
            w.store("i64", j * n, w.at("i64", steps, j))
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
            with w.loop(0, w.mul(lines, f["m_wide"]), n) as i:
                self.v.store(w, "zeroinitializer", w.at(elt, y_room, i.i))
            pieces = w.mul(w.mul(f["batch"], f["depth"]), w.mul(f["row_blocks"], f["col_blocks"]))
            with w.loop(0, pieces) as q:
                rest, across = w.div(q.i, f["col_blocks"]), w.rem(q.i, f["col_blocks"])
                rest, down = w.div(rest, f["row_blocks"]), w.rem(rest, f["row_blocks"])
                batch, depth = w.div(rest, f["depth"]), w.rem(rest, f["depth"])
                row, col = w.mul(down, f["rows"]), w.mul(across, f["cols"])
                rows, cols = w.least(f["rows"], w.sub(f["out_h"], row)), w.least(f["cols"], w.sub(f["out_w"], col))
                first_c = w.add(w.mul(group, f["channels"]), channel)
                x = w.at(elt, X, w.mul(batch, f["x_n"]))
                self.copy_input(w, f, x, first_c, count, depth, row, rows, col, cols, x_room)
                g = w.at(elt, G, w.add(w.add(w.mul(batch, f["g_n"]), w.mul(out_m, f["g_m"])),
                                       w.add(w.mul(depth, f["g_d"]), w.mul(row, f["g_h"]))))
                g = w.at(elt, g, w.mul(col, f["g_w"]))
                places = w.mul(rows, cols)

                def turn(g=g, places=places, m=m):
                    w.do(f"call void @turn(ptr {g_room}, i64 {f['m_wide']}, ptr {g}, i64 {f['g_m']}, i64 {places}, "
                         f"i64 {m})")

                def gather(g=g, rows=rows, cols=cols, m=m):
                    with w.loop(0, rows) as r:
                        to = w.at(elt, g_room, w.mul(w.mul(r.i, cols), f["m_wide"]))
                        w.do(f"call void @gather(ptr {to}, i64 {f['m_wide']}, ptr {w.at(elt, g, w.mul(r.i, f['g_h']))}, "
                             f"i64 {f['g_w']}, i64 {f['g_m']}, i64 {cols}, i64 {m})")

                w.switch(f["flat"], {1: turn, 0: gather})
                with w.loop(0, panels, 1, [("i64", 0)]) as p:
                    start = p.values[0]
                    width = w.add(thin, w.one_if(w.is_("slt", p.i, wider)))
                    with w.loop(0, strips, 1, [("i64", 0)]) as s:
                        strip = s.values[0]
                        height = w.add(low, w.one_if(w.is_("slt", s.i, taller)))
                        c = w.at(elt, y_room, w.add(w.mul(strip, f["m_wide"]), w.mul(start, n)))
                        w.do(f"call void {self.kernel(w, f, height, width)}(i64 {places}, ptr {table}, ptr {x_room}, "
                             f"ptr {w.at('i64', a_rows, strip)}, ptr {w.at(elt, g_room, w.mul(start, n))}, ptr {steps}, "
                             f"ptr {c}, i64 {f['m_wide']}, ptr {steps}, ptr {c}, i64 {f['m_wide']}, ptr {steps}, "
                             f"{elt} 0xFFF0000000000000)")
                        s.next = [w.add(strip, height)]
                    p.next = [w.add(start, width)]
            into = w.at(elt, W, w.add(w.mul(out_m, f["w_m"]), w.mul(channel, f["taps"])))
            w.do(f"call void @gather(ptr {into}, i64 {f['w_m']}, ptr {y_room}, i64 1, i64 {f['m_wide']}, i64 {m}, "
                 f"i64 {lines})")
        return "\n".join([self.v.declarations(), self.plane(), self.turn(), self.gather(), w.text()])


def host(dtype):
    """The compiled functions for `dtype`."""
    return host_of(dtype, TapKernels)


# --- the plan ---------------------------------------------------------------------------------------------------------


def convolve(dtype, x, weight, y, stride, padding, dilation, groups=1, transposed=False, bias=False, relu=False):
    """Steps for y = the convolution of x with weight (or the transposed one), plus a bias per channel, and relu.

    `x`, `weight` and `y` are (shape, strides in elements), [N, C, *size], [O, C / groups, *kernel] (transposed: x has the
    O channels) and [N, O, *out]. The buffers are x, weight, y and bias if there is one; the bias is contiguous. The
    steps write disjoint parts of y. None where there is no native way.
    """
    dtype = getattr(dtype, "name", dtype)
    n = len(x[0]) - 2
    if dtype not in ELEMENTS or n > 3 or 0 in x[0] or 0 in weight[0] or 0 in y[0]:
        return None
    x, weight, y = [in_three(*one) for one in (x, weight, y)]
    stride, padding, dilation = [(fill,) * (3 - n) + tuple(given)
                                 for fill, given in ((1, stride), (0, padding), (1, dilation))]
    O, C = weight.size[0], weight.size[1]
    steps = []
    if not transposed:
        reach = [[(k, k * d - p) for k in range(size)]
                 for size, d, p in zip(weight.size[2:], dilation, padding, strict=True)]
        a = (weight.step[0], weight.step[1], O // groups * weight.step[0])
        steps.append(plan_forth(dtype, x, taps_of(reach, weight), y, 0, stride, O // groups, C, a, groups, bias, relu))
        return steps
    a = (weight.step[1], weight.step[0], O // groups * weight.step[0])
    for residue in product(*map(range, stride)):
        size = [-(-(n - r) // s) for n, r, s in zip(y.size[2:], residue, stride, strict=True)]
        if min(size) <= 0:
            continue
        reach = [[(k, (r + p - k * d) // s) for k in range(kernel) if (r + p - k * d) % s == 0]
                 for r, p, d, s, kernel in zip(residue, padding, dilation, stride, weight.size[2:], strict=True)]
        part = Layout((*y.size[:2], *size), (*y.step[:2], *[t * s for t, s in zip(y.step[2:], stride, strict=True)]))
        start = sum(r * t for r, t in zip(residue, y.step[2:], strict=True))
        steps.append(plan_forth(dtype, x, taps_of(reach, weight), part, start, (1, 1, 1), C, O // groups, a, groups,
                                bias, relu))
    return steps


def convolve_weight(dtype, x, g, weight, stride, padding, dilation, groups=1):
    """A list of one Step for the gradient of a convolution's weight, from its input x and its output's gradient g.

    (shape, strides) as for `convolve`; the weight's is contiguous. The buffers are x, g, weight.
    """
    dtype = getattr(dtype, "name", dtype)
    n = len(x[0]) - 2
    if dtype not in ELEMENTS or n > 3 or 0 in x[0] or 0 in weight[0] or 0 in g[0]:
        return None
    x, weight, g = [in_three(*one) for one in (x, weight, g)]
    stride, padding, dilation = [(fill,) * (3 - n) + tuple(given)
                                 for fill, given in ((1, stride), (0, padding), (1, dilation))]
    reach = [[(k, k * d - p) for k in range(size)]
             for size, d, p in zip(weight.size[2:], dilation, padding, strict=True)]
    return [plan_back(dtype, x, taps_of(reach, weight), g, weight, stride, groups)]


Layout = namedtuple("Layout", "size step")


def in_three(shape, strides):
    """A layout with three spatial dimensions, the missing ones of size one in front."""
    more = 5 - len(shape)
    return Layout((*shape[:2], *[1] * more, *shape[2:]), (*strides[:2], *[0] * more, *strides[2:]))


def taps_of(reach, weight):
    """The taps, from the places of the kernel and how far they reach along each dimension."""
    return [Tap(sum(k * t for (k, _), t in zip(at, weight.step[2:], strict=True)), *[far for _, far in at])
            for at in product(*reach)]


def window(f, x, taps, stride, rows, cols):
    """Fill in how the input of a tile of `rows` by `cols` outputs is copied; gives each tap's offset in one channel."""
    depths = sorted({t.d for t in taps})
    low_h, low_w = [min((t[i] for t in taps), default=0) for i in (2, 3)]
    span_h, span_w = [max((t[i] for t in taps), default=0) + 1 - low for i, low in ((2, low_h), (3, low_w))]
    pitch = -(-((cols - 1) * stride[2] + span_w) // stride[2])
    phase = ((rows - 1) * stride[1] + span_h) * pitch
    f.update(depths=len(depths), taps=len(taps), low_h=low_h, low_w=low_w, high=span_h, span_w=span_w, pitch=pitch,
             phase=phase, plane=phase * stride[2], step_d=stride[0], step_h=stride[1], step_w=stride[2],
             size_d=x.size[2], size_h=x.size[3], size_w=x.size[4],
             x_n=x.step[0], x_c=x.step[1], x_d=x.step[2], x_h=x.step[3], x_w=x.step[4])
    return depths, [depths.index(t.d) * f["plane"] + (t.w - low_w) % stride[2] * phase + (t.h - low_h) * pitch
                    + (t.w - low_w) // stride[2] for t in taps]


def plan_forth(dtype, x, taps, y, start, stride, m, channels, a, groups, bias, relu):
    """The step of one convolution along `taps`: `m` channels from `channels` in each group."""
    machine, lanes = host(dtype), host(dtype).lanes
    f = dict.fromkeys(FORTH, 0)
    _, _, depth, out_h, out_w = y.size
    work = m * channels * len(taps) * out_h * out_w / (2 * lanes)                  # cycles, of one image and depth
    images = x.size[0] * groups * depth
    cols = out_w if out_w <= 1024 else 512
    m_tile = up(-(-m // -(-m // 256)), 8) if m > 256 else m
    rows = max(1, min(out_h, 1024 // up(cols, lanes), ROOM // (m_tile * up(cols + 8, lanes))))
    wanted = max(1, min(16, int(work * images / PIECE)) // images)                 # tiles of one image
    rows = max(1, min(rows, -(-out_h // wanted)))
    rows = -(-out_h // -(-out_h // rows))
    depths, offsets = window(f, x, taps, stride, rows, cols)
    each = max(len(taps), 1)
    block = max(1, min(K_MOST // each, ROOM // max(f["plane"] * len(depths), 1)))
    block = -(-channels // -(-channels // block))
    exact = out_w % lanes == 0 and y.step[4] == 1
    even = not exact and stride[1] == 1 and run(rows, cols, f["pitch"], lanes) < rows * -(-cols // lanes)
    vectors = {run(r, c, f["pitch"], lanes) if even else r * -(-c // lanes)
               for r in {rows, out_h - (out_h - 1) // rows * rows} for c in {cols, out_w - (out_w - 1) // cols * cols}}
    width, height = best_shape(machine, m_tile, max(vectors), block * len(taps))
    f.update(batch=x.size[0], groups=groups, depth=depth, out_h=out_h, out_w=out_w, rows=rows,
             row_blocks=-(-out_h // rows), cols=cols, col_blocks=-(-out_w // cols), m=m, m_tile=m_tile,
             m_tiles=-(-m // m_tile), channels=channels, block=block, y_0=start, y_n=y.step[0], y_m=y.step[1],
             y_d=y.step[2], y_h=y.step[3], y_w=y.step[4], a_m=a[0], a_c=a[1], a_g=a[2], exact=int(exact), even=int(even),
             y_row=max(vectors) * lanes, x_room=block * len(depths) * f["plane"] + 2 * lanes,
             y_room=1 if exact else m_tile * max(vectors) * lanes, height=height, width=width, relu=int(relu),
             has_bias=int(bias), depth_at=len(FORTH), table_at=len(FORTH) + len(depths))
    table = [word for c in range(block) for t, at in zip(taps, offsets, strict=True)
             for word in (t.weight + c * a[1], c * len(depths) * f["plane"] + at)]
    heights = {h for one in {m_tile, m - (m - 1) // m_tile * m_tile} for h, _ in split(one, height)}
    widths = {v for one in vectors for v, _ in split(one, width)}
    f["kernels"] = machine.micro([(h, v) for h in sorted(heights) for v in sorted(widths)])
    tiles = images * f["row_blocks"] * f["col_blocks"] * f["m_tiles"]
    grain = max(1, int(PIECE // max(1, work * images / tiles)))
    return Step(machine.function("forth"), tiles, min(tiles, grain), [*[f[name] for name in FORTH], *depths, *table, 0, 0])


def plan_back(dtype, x, taps, g, weight, stride, groups):
    """The step of a weight's gradient along `taps`."""
    machine, lanes = host(dtype), host(dtype).lanes
    f = dict.fromkeys(BACK, 0)
    _, _, depth, out_h, out_w = g.size
    m, channels = weight.size[0] // groups, weight.size[1]
    work = m * channels * len(taps) * out_h * out_w * depth * x.size[0] * groups / (2 * lanes)
    cols = out_w if out_w <= PLACES else PLACES
    rows = max(1, PLACES // cols) if cols == out_w else 1
    rows = -(-out_h // -(-out_h // rows))
    m_tile = m if m <= 96 else up(-(-m // -(-m // 64)), lanes)
    m_wide = up(m_tile, lanes)
    depths, offsets = window(f, x, taps, stride, rows, cols)
    block = max(1, min(ROOM // (len(taps) * m_wide * 2), ROOM // (f["plane"] * len(depths)), channels))
    wanted = max(1, min(get_num_threads(), int(work / PIECE)))
    tiles = -(-m // m_tile) * groups
    block = max(1, min(block, -(-channels // -(-wanted // tiles))))
    block = -(-channels // -(-channels // block))
    width, height = best_shape(machine, block * len(taps), m_wide // lanes, rows * cols)
    f.update(batch=x.size[0], depth=depth, out_h=out_h, out_w=out_w, rows=rows, row_blocks=-(-out_h // rows), cols=cols,
             col_blocks=-(-out_w // cols), m=m, m_tile=m_tile, m_tiles=-(-m // m_tile), channels=channels, block=block,
             blocks=-(-channels // block), g_n=g.step[0], g_m=g.step[1], g_d=g.step[2], g_h=g.step[3], g_w=g.step[4],
             flat=int(g.step[4] == 1 and (g.step[3] == out_w or rows == 1)), w_m=channels * len(taps), m_wide=m_wide,
             x_room=block * len(depths) * f["plane"] + 2 * lanes, g_room=(rows * cols + lanes) * m_wide,
             y_room=block * len(taps) * m_wide, height=height, width=width,
             depth_at=len(BACK), table_at=len(BACK) + len(depths), rows_at=len(BACK) + len(depths) + 2 * rows * cols + 2)
    table = [word for r in range(rows) for c in range(cols)
             for word in (r * stride[1] * f["pitch"] + c, (r * cols + c) * m_wide)]
    lines = [c * len(depths) * f["plane"] + at for c in range(block) for at in offsets]
    heights = {h for one in {block, channels - (channels - 1) // block * block}
               for h, _ in split(one * len(taps), height)}
    widths = {v for one in {m_tile, m - (m - 1) // m_tile * m_tile} for v, _ in split(-(-one // lanes), width)}
    f["kernels"] = machine.micro([(h, v) for h in sorted(heights) for v in sorted(widths)])
    tiles = groups * f["m_tiles"] * f["blocks"]
    grain = max(1, int(PIECE // max(1, work / tiles)))
    return Step(machine.function("back"), tiles, min(tiles, grain), [*[f[name] for name in BACK], *depths, *table, 0, 0,
                                                                             *lines])


def run(rows, cols, pitch, lanes):
    """How many vectors cover `rows` of `cols` elements that lie `pitch` apart, what is between them included."""
    return -(-((rows - 1) * pitch + cols) // lanes)


def best_shape(machine, m, vectors, k):
    """(vectors, rows) of the innermost kernels."""
    width = widest(machine, m, vectors * machine.lanes, k)
    return width, machine.rows(width)
