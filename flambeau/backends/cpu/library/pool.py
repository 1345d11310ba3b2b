"""Pooling as native steps: the largest of each window with its place, and gradients sent back to such places; sums by
taps (means over windows, interpolation, padding); rows added up where an index says; and running sums.

`max_pool` goes over the outputs of a row by vectors where their windows lie inside the input, and one by one at its
borders. Of equals the first is taken, of nans the last, as in PyTorch. `drop` adds elements where an index says, one
after the other, so the sums are the same on any number of threads.

`weigh` carries out maps by taps (base/axis_maps.py) along one or two dimensions. For each row of the result, the rows
that it reads are weighted and summed to the thread's room, by vectors, and from there along the columns: one by one, or
by vectors where channels are last. The tables of both maps are the step's ints; a tap of weight zero is not in them.
"""
import contextlib
import itertools
import math
from typing import NamedTuple

import numpy as np

from ....base.axis_maps import taps_of
from ....loops.step import STEP_ARGUMENTS, in_room
from ..llvm_writer import LLVMWriter, Vectors
from .blocking import even_part, up
from .gemm import PIECE_CYCLES, LibraryCall, evenly
from .gemm_kernels import LLVM_ELEMENT, compiled_kernels

WINDOW_FIELDS = ("x_p x_h x_w size_h size_w y_p y_h y_w out_h out_w k_h step_h pad_h dil_h k_w step_w pad_w dil_w "
                 "first last planes").split()
DROP_FIELDS = "count size g_row index_row".split()
ROWS_FIELDS = "count size cols wide skip".split()
WEIGHTED_ROWS_FIELDS = "count size cols wide taps".split()
SUMMED_ROWS_FIELDS = "cols taps".split()
SCAN_FIELDS = "count inner".split()
WEIGH_FIELDS = ("x_p x_h y_p y_h wide inner out_h out_w rows row_blocks mean runs down_at across_at runs_at "
                "down_weights across_weights down_counts across_counts").split()
MIN_RUN = 8                   # columns that are copied together
SUMMED, SCATTERED = -1, -2    # columns that are sums, and single elements of which too few lie side by side for that
MAX_WEIGH_TABLE = 1 << 16     # words of the tables of a step,
MAX_WEIGH_WIDE = 1 << 15      # and elements of a row of its input
TILE_COLUMNS = 64             # where rows are added up
VECTORS_SUMMED_TOGETHER = 4   # of a row, where rows are weighted and summed


class PoolKernels:
    """The LLVM text of the steps for one element type."""

    word = "pool"
    drivers = inner = ()

    def every(self, machine):
        """All functions that a plan may ask for."""
        return [(what,) for what in ("max_pool", "weigh", "drop", "add_rows", "add_weighted_rows", "sum_weighted_rows",
                                     "scan")]

    def __init__(self, element, target):
        self.v = Vectors(element, target)
        self.element, self.lanes = element, self.v.lanes

    def open(self, name, fields):
        """A writer of a step, and its ints by name."""
        w = LLVMWriter(f"define void @{name}({STEP_ARGUMENTS})")
        return w, {field: w.load("i64", w.at("i64", "%ints", i)) for i, field in enumerate(fields)}

    def max_pool(self, name):
        """The step: one plane a tile; buffers x, values, places."""
        elt, n = self.element, self.lanes
        w, f = self.open(name, WINDOW_FIELDS)
        X, Y, P = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(3)]
        with w.loop("%begin", "%end") as t, w.loop(0, f["out_h"]) as o:
            x, at = w.at(elt, X, w.mul(t.i, f["x_p"])), w.add(w.mul(t.i, f["y_p"]), w.mul(o.i, f["y_h"]))
            top = w.sub(w.mul(o.i, f["step_h"]), f["pad_h"])
            high = self.inside(w, top, f["k_h"], f["dil_h"], f["size_h"])

            def single(c, x=x, at=at, top=top, high=high):
                left = w.sub(w.mul(c, f["step_w"]), f["pad_w"])
                wide = self.inside(w, left, f["k_w"], f["dil_w"], f["size_w"])

                def look(place, _):
                    return w.load(elt, w.at(elt, x, w.add(w.mul(place[0], f["x_h"]), w.mul(place[1], f["x_w"]))))

                best, place = self.search(w, f, top, left, high, wide, look, elt, "i64", lambda p: p)
                to = w.add(at, w.mul(c, f["y_w"]))
                w.store(elt, best, w.at(elt, Y, to))
                w.store("i64", place, w.at("i64", P, to))

            inner = w.sub(f["last"], f["first"])
            with w.loop(0, w.sub(f["out_w"], inner)) as c:
                single(w.add(c.i, w.pick(w.is_("slt", c.i, f["first"]), 0, inner)))
            with w.loop(f["first"], f["last"], n) as c:
                self.many(w, f, c.i, x, w.add(at, c.i), top, high, Y, P)
        return self.v.declarations() + w.text()

    def inside(self, w, start, count, step, size):
        """Which taps (from, to) of a window that starts at `start` are inside."""
        low = w.most(w.div(w.sub(w.add(step, -1), start), step), 0)
        return low, w.least(w.div(w.sub(w.add(size, w.sub(step, 1)), start), step), count)

    def search(self, w, f, top, left, high, wide, look, kind, index_kind, spread):
        """The largest element of a window and its place: of equals the first, of nans the last."""
        mask = kind.replace(self.element, "i1")
        first = w.add(w.mul(w.add(top, w.mul(high[0], f["dil_h"])), f["size_w"]),
                      w.add(left, w.mul(wide[0], f["dil_w"])))
        least = "0xFFF0000000000000"                             # minus infinity
        if kind != self.element:
            least = "<" + ", ".join([f"{self.element} {least}"] * self.lanes) + ">"
        start = [(kind, least), (index_kind, spread(first))]
        with w.loop(high[0], high[1], 1, start) as i:
            h = w.add(top, w.mul(i.i, f["dil_h"]))
            with w.loop(wide[0], wide[1], 1, list(zip((kind, index_kind), i.values, strict=True))) as j:
                best, place = j.values
                column = w.add(left, w.mul(j.i, f["dil_w"]))
                value = look((h, column), j.i)
                larger, nan = w(f"fcmp ogt {kind} {value}, {best}"), w(f"fcmp uno {kind} {value}, {value}")
                better = w(f"or {mask} {larger}, {nan}")
                here = spread(w.add(w.mul(h, f["size_w"]), column))
                j.next = [w(f"select {mask} {better}, {kind} {value}, {kind} {best}"),
                          w(f"select {mask} {better}, {index_kind} {here}, {index_kind} {place}")]
            i.next = j.values
        return i.values

    def many(self, w, f, c, x, at, top, high, Y, P):
        """A vector of outputs of a row, whose windows are all inside its columns."""
        v, elt, n = self.v, self.element, self.lanes
        left = w.sub(w.mul(c, f["step_w"]), f["pad_w"])
        one = w.is_("eq", f["step_w"], 1)
        if v.masks:
            count = w.least(w.sub(f["last"], c), n)
            two = w.sub(w.mul(count, 2), 1)
            # by steps of two the elements of two vectors are needed, every other one of them
            some, more = v.mask(w, w.pick(one, count, w.least(two, n))), v.mask(w, w.pick(one, 0, w.sub(two, n)))
        index = f"<{n} x i64>"
        lanes = f"<{', '.join(f'i64 {i}' for i in range(n))}>"
        ahead = w(f"mul {index} {lanes}, {self.fill(w, f['step_w'])}")
        evens = ", ".join(f"i32 {i}" for i in range(0, 2 * n, 2))

        def look(place, _):
            source = w.at(elt, x, w.add(w.mul(place[0], f["x_h"]), place[1]))
            if v.masks:
                a, b = v.load_some(w, source, some), v.load_some(w, w.at(elt, source, n), more)
            else:
                a, b = v.load(w, source), v.load(w, w.at(elt, source, w.pick(one, 0, n)))
            both = w(f"shufflevector {v.type} {a}, {v.type} {b}, <{n} x i32> <{evens}>")
            return w(f"select i1 {one}, {v.type} {a}, {v.type} {both}")

        def spread(place):
            return w(f"add {index} {ahead}, {self.fill(w, place)}")

        best, place = self.search(w, f, top, left, high, (0, f["k_w"]), look, v.type, index, spread)
        if not v.masks:
            v.store(w, best, w.at(elt, Y, at))
            w.store(index, place, w.at("i64", P, at), 8)
            return
        some = v.mask(w, count)
        v.store_some(w, best, w.at(elt, Y, at), some)
        w.do(f"call void @llvm.masked.store.v{n}i64.p0({index} {place}, ptr {w.at('i64', P, at)}, i32 8, "
             f"<{n} x i1> {some})")

    def weigh(self, name):
        """The step: some rows of the result of one plane a tile; buffers x and y. See `weigh` below for the tables."""
        v, elt, n = self.v, self.element, self.lanes
        w, f = self.open(name, WEIGH_FIELDS)
        X, Y = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(2)]
        made, = w.rooms((v.bytes, w.add(f["wide"], 2 * n)))
        whole = w.down(f["wide"], n)
        many, single = v.type, w.is_("eq", f["inner"], 1)
        inner_whole = w.down(f["inner"], n)
        no_rest = w("or i1 " + single + ", " + w.is_("eq", inner_whole, f["inner"]))      # nothing is read behind a row
        inner_some = v.some(w, w.sub(f["inner"], inner_whole))

        def word(at, index):
            return w.load("i64", w.at("i64", "%ints", w.add(at, index)))

        def number(at, index):
            """A number of the tables, which are in double precision."""
            found = w.load("double", w.at("i64", "%ints", w.add(at, index)))
            return found if elt == "double" else w(f"fptrunc double {found} to float")

        def summed(kind, taps, weights, part):
            """The sum of what `part(place)` gives, each times its weight; -0.0 changes nothing that is added to it."""
            zero = "-0.0" if kind == elt else v.spread(w, "-0.0")
            with w.loop(*taps, 1, [(kind, zero)]) as t:
                place, weight = word(weights[0], t.i), number(weights[1], t.i)
                weight = weight if kind == elt else v.spread(w, weight)
                product = w(f"fmul {kind} {part(place)}, {weight}")
                t.next = [w(f"fadd {kind} {t.values[0]}, {product}")]
            nothing = "0.0" if kind == elt else "zeroinitializer"
            return w.pick(w.is_("slt", *taps), t.values[0], nothing, kind)

        def taps_of(at, index):
            return word(at, index), word(at, w.add(index, 1))

        with w.loop("%begin", "%end") as t:
            plane, block = w.div(t.i, f["row_blocks"]), w.rem(t.i, f["row_blocks"])
            x, y = w.at(elt, X, w.mul(plane, f["x_p"])), w.at(elt, Y, w.mul(plane, f["y_p"]))
            top = w.mul(block, f["rows"])
            with w.loop(top, w.least(w.add(top, f["rows"]), f["out_h"])) as o:
                down = taps_of(f["down_at"], o.i)
                down_weights = w.add(f["down_at"], w.add(f["out_h"], 1)), f["down_weights"]
                # a row that is one of the input's is read there
                alone = w.is_("eq", w.sub(down[1], down[0]), 1)
                unweighed = w(f"fcmp oeq {elt} {number(down_weights[1], down[0])}, 1.0")
                as_it_is = w.both(no_rest, w.both(alone, unweighed))
                found = w.at(elt, x, w.mul(word(down_weights[0], down[0]), f["x_h"]))
                with w.loop(0, w.pick(as_it_is, 0, whole), n) as j:
                    source = w.at(elt, x, j.i)
                    v.store(w, summed(many, down, down_weights, lambda r, source=source: v.load(
                        w, w.at(elt, source, w.mul(r, f["x_h"])))), w.at(elt, made, j.i))
                with w.loop(whole, w.pick(as_it_is, 0, f["wide"])) as j:
                    source = w.at(elt, x, j.i)
                    w.store(elt, summed(elt, down, down_weights, lambda r, source=source: w.load(
                        elt, w.at(elt, source, w.mul(r, f["x_h"])))), w.at(elt, made, j.i))
                row = w.pick(as_it_is, found, made, "ptr")
                to, count = w.at(elt, y, w.mul(o.i, f["y_h"])), number(f["down_counts"], o.i)
                across_weights = w.add(f["across_at"], w.add(f["out_w"], 1)), f["across_weights"]

                def read(c, places=across_weights[0]):
                    """Where the first tap of column `c` reads."""
                    return word(places, word(f["across_at"], c))

                def column(c, means, to=to, count=count, row=row):
                    """Column `c` of the result, of one element or of all channels."""
                    across = taps_of(f["across_at"], c)
                    size = w(f"fmul {elt} {count}, {number(f['across_counts'], c)}") if means else None

                    def mean(kind, total):
                        if not means:
                            return total
                        return w(f"fdiv {kind} {total}, {size if kind == elt else v.spread(w, size)}")

                    def one():
                        total = summed(elt, across, across_weights, lambda at: w.load(elt, w.at(elt, row, at)))
                        w.store(elt, mean(elt, total), w.at(elt, to, c))

                    def channels():
                        place = w.at(elt, to, w.mul(c, f["inner"]))
                        with w.loop(0, inner_whole, n) as i:
                            total = summed(many, across, across_weights, lambda at: v.load(
                                w, w.at(elt, row, w.add(at, i.i))))
                            v.store(w, mean(many, total), w.at(elt, place, i.i))
                        with w.when(w.is_("slt", inner_whole, f["inner"])):       # there is room behind the row
                            total = summed(many, across, across_weights, lambda at: v.load(
                                w, w.at(elt, row, w.add(at, inner_whole))))
                            v.store_some(w, mean(many, total), w.at(elt, place, inner_whole), inner_some)

                    w.either(single, one, channels)

                def means(column=column):
                    with w.loop(0, f["out_w"]) as c:
                        column(c.i, True)

                def sums(column=column, to=to, row=row):
                    with w.loop(0, f["runs"]) as r:
                        first, end, source = [word(f["runs_at"], w.add(w.mul(r.i, 3), i)) for i in range(3)]
                        place = w.at(elt, to, w.mul(first, f["inner"]))

                        def beside():
                            v.move(w, place, w.at(elt, row, source), w.mul(w.sub(end, first), f["inner"]))

                        def summed_up():
                            with w.loop(first, end) as c:
                                column(c.i, False)

                        def scattered():
                            with w.loop(w.pick(single, first, end), end) as c:
                                w.store(elt, w.load(elt, w.at(elt, row, read(c.i))), w.at(elt, to, c.i))
                            with w.loop(w.pick(single, end, first), end) as c:
                                v.move(w, w.at(elt, to, w.mul(c.i, f["inner"])), w.at(elt, row, read(c.i)), f["inner"])

                        w.switch(w.least(source, 0), {0: beside, SUMMED: summed_up, SCATTERED: scattered})

                w.either(w.is_("ne", f["mean"], 0), means, sums)
        return v.declarations() + w.text()

    def fill(self, w, number):
        """A whole number in every lane."""
        n = self.lanes
        first = w(f"insertelement <{n} x i64> poison, i64 {number}, i64 0")
        return w(f"shufflevector <{n} x i64> {first}, <{n} x i64> poison, <{n} x i32> zeroinitializer")

    def drop(self, name):
        """The step: one row a tile; buffers g, index, out."""
        v, elt, n = self.v, self.element, self.lanes
        w, f = self.open(name, DROP_FIELDS)
        G, I, O = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(3)]
        whole = w.down(f["size"], n)
        with w.loop("%begin", "%end") as t:
            g, index = w.at(elt, G, w.mul(t.i, f["g_row"])), w.at("i64", I, w.mul(t.i, f["index_row"]))
            out = w.at(elt, O, w.mul(t.i, f["size"]))
            with w.loop(0, whole, n) as i:
                v.store(w, "zeroinitializer", w.at(elt, out, i.i))
            with w.loop(whole, f["size"]) as i:
                w.store(elt, "0.0", w.at(elt, out, i.i))
            with w.loop(0, f["count"]) as i:
                to = w.at(elt, out, w.load("i64", w.at("i64", index, i.i)))
                w.store(elt, w(f"fadd {elt} {w.load(elt, to)}, {w.load(elt, w.at(elt, g, i.i))}"), to)
        return v.declarations() + w.text()

    def add_rows(self, name):
        """The step: a few columns of the table a tile; buffers g, index, out."""
        w, f = self.open(name, ROWS_FIELDS)
        G, I, O = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(3)]
        with self.columns(w, f, G, O) as (g, add):
            with w.loop(0, f["count"]) as i:
                at = w.load("i64", w.at("i64", I, i.i))
                with w.when(w.is_("ne", at, f["skip"])):
                    add(at, w.at(self.element, g, w.mul(i.i, f["cols"])))
        return self.v.declarations() + w.text()

    def add_weighted_rows(self, name):
        """The step: a few columns of the table a tile; buffers g, index, weight, out."""
        w, f = self.open(name, WEIGHTED_ROWS_FIELDS)
        G, I, W, O = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(4)]
        with self.columns(w, f, G, O) as (g, add):
            with w.loop(0, f["count"]) as i:
                row, first = w.at(self.element, g, w.mul(i.i, f["cols"])), w.mul(i.i, f["taps"])
                with w.loop(0, f["taps"]) as j:
                    place = w.add(first, j.i)
                    weight = w.load(self.element, w.at(self.element, W, place))
                    add(w.load("i64", w.at("i64", I, place)), row, self.v.spread(w, weight))
        return self.v.declarations() + w.text()

    def sum_weighted_rows(self, name):
        """The step: one row of the result a tile; buffers table, index, weight, out."""
        v, elt, n = self.v, self.element, self.lanes
        w, f = self.open(name, SUMMED_ROWS_FIELDS)
        T, I, W, O = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(4)]
        together = VECTORS_SUMMED_TOGETHER * n
        most, whole = w.down(f["cols"], together), w.down(f["cols"], n)
        some = v.some(w, w.sub(f["cols"], whole))

        def summed(first, row, left, load, count):
            """The sums of so many vectors from column `left` on."""
            with w.loop(0, f["taps"], 1, [(v.type, "zeroinitializer")] * count) as j:
                place = w.add(first, j.i)
                weight = v.spread(w, w.load(elt, w.at(elt, W, place)))
                source = w.at(elt, T, w.add(w.mul(w.load("i64", w.at("i64", I, place)), f["cols"]), left))
                j.next = [v.fma(w, load(w.at(elt, source, i * n)), weight, held) for i, held in enumerate(j.values)]
            return [(made, w.at(elt, row, w.add(left, i * n))) for i, made in enumerate(j.values)]

        with w.loop("%begin", "%end") as t:
            first, row = w.mul(t.i, f["taps"]), w.at(elt, O, w.mul(t.i, f["cols"]))
            with w.loop(0, most, together) as c:
                for made, to in summed(first, row, c.i, lambda place: v.load(w, place), VECTORS_SUMMED_TOGETHER):
                    v.store(w, made, to)
            with w.loop(most, whole, n) as c:
                for made, to in summed(first, row, c.i, lambda place: v.load(w, place), 1):
                    v.store(w, made, to)
            with w.when(w.is_("slt", whole, f["cols"])):
                for made, to in summed(first, row, whole, lambda place: v.load_some(w, place, some), 1):
                    v.store_some(w, made, to, some)
        return v.declarations() + w.text()

    @contextlib.contextmanager
    def columns(self, w, f, G, O):
        """For each tile, where its columns of `G` begin and how to add to those of a row of `O`; all are zero first."""
        v, elt, n = self.v, self.element, self.lanes
        with w.loop("%begin", "%end") as t:
            left = w.mul(t.i, f["wide"])
            cols = w.least(f["wide"], w.sub(f["cols"], left))
            whole = w.down(cols, n)
            some, ragged = v.some(w, w.sub(cols, whole)), w.is_("slt", whole, cols)
            out = w.at(elt, O, left)
            with w.loop(0, f["size"]) as r:
                row = w.at(elt, out, w.mul(r.i, f["cols"]))
                with w.loop(0, whole, n) as j:
                    v.store(w, "zeroinitializer", w.at(elt, row, j.i))
                with w.when(ragged):
                    v.store_some(w, "zeroinitializer", w.at(elt, row, whole), some)

            def added(more, held, weight):
                return w(f"fadd {v.type} {held}, {more}") if weight is None else v.fma(w, more, weight, held)

            def add(at, more, weight=None):
                row = w.at(elt, out, w.mul(at, f["cols"]))
                with w.loop(0, whole, n) as j:
                    to = w.at(elt, row, j.i)
                    v.store(w, added(v.load(w, w.at(elt, more, j.i)), v.load(w, to), weight), to)
                with w.when(ragged):
                    to, rest = w.at(elt, row, whole), v.load_some(w, w.at(elt, more, whole), some)
                    v.store_some(w, added(rest, v.load_some(w, to, some), weight), to, some)

            yield w.at(elt, G, left), add

    def scan(self, name):
        """The step: running sums of one [count, inner] a tile, added up in double precision; buffers x, out."""
        v, elt, n = self.v, self.element, self.lanes
        w, f = self.open(name, SCAN_FIELDS)
        X, O = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(2)]
        single = w.is_("eq", f["inner"], 1)

        def along(x, out, kind, wide, load, store):
            with w.loop(0, f["count"], 1, [(wide, "zeroinitializer" if kind != elt else "0.0")]) as i:
                at = w.mul(i.i, f["inner"])
                value = load(w.at(elt, x, at))
                value = value if kind == wide else w(f"fpext {kind} {value} to {wide}")
                total = w(f"fadd {wide} {i.values[0]}, {value}")
                store(total if kind == wide else w(f"fptrunc {wide} {total} to {kind}"), w.at(elt, out, at))
                i.next = [total]

        with w.loop("%begin", "%end") as t:
            start = w.mul(t.i, w.mul(f["count"], f["inner"]))
            x, out = w.at(elt, X, start), w.at(elt, O, start)
            with w.when(single):
                along(x, out, elt, "double", lambda place: w.load(elt, place),
                      lambda value, place: w.store(elt, value, place))
            with w.loop(0, w.pick(single, 0, f["inner"]), n) as j:
                some = v.some(w, w.least(w.sub(f["inner"], j.i), n))
                along(w.at(elt, x, j.i), w.at(elt, out, j.i), v.type, f"<{n} x double>",
                      lambda place, some=some: v.load_some(w, place, some),
                      lambda value, place, some=some: v.store_some(w, value, place, some))
        return v.declarations() + w.text()


# --- the plan ---------------------------------------------------------------------------------------------------------


def max_pool(dtype, x, y, maps):
    """A LibraryCall for the largest element of each window and its place in the flattened spatial dimensions; or None.

    `x` and `y` are (shape, strides in elements), [*lead, H, W] to [*lead, out_h, out_w]; `maps` are two windows (see
    base/axis_maps.py). The buffers are x, the values and the places, which are laid out alike.
    """
    dtype = getattr(dtype, "name", dtype)
    if dtype not in LLVM_ELEMENT or len(maps) != 2 or any(m[0] != "window" for m in maps) or 0 in x[0] or 0 in y[0]:
        return None
    (_, size_h, out_h, k_h, step_h, pad_h, dil_h, _), (_, size_w, out_w, k_w, step_w, pad_w, dil_w, _) = maps
    if not (reaches(maps[0]) and reaches(maps[1])):
        return None
    planes = evenly(x[0][:-2], x[1][:-2]), evenly(y[0][:-2], y[1][:-2])
    if None in planes:
        return None
    machine = compiled_kernels(dtype, PoolKernels)
    # outputs from `first` to `last` have windows inside the columns
    first = min(out_w, -(-pad_w // step_w))
    last = max(first, min(out_w, (size_w - 1 - dil_w * (k_w - 1) + pad_w) // step_w + 1))
    if x[1][-1] != 1 or y[1][-1] != 1 or step_w > 2:
        first = last = 0
    elif not machine.kernels.v.masks:      # whole vectors; by steps of two they end with an element that is not needed
        end = min(last, (size_w - 1 - dil_w * (k_w - 1) + pad_w - (step_w - 1)) // step_w + 1)
        last = first + max(0, end - first) // machine.lanes * machine.lanes
    count = math.prod(x[0][:-2])
    f = dict(x_p=planes[0], x_h=x[1][-2], x_w=x[1][-1], size_h=size_h, size_w=size_w, y_p=planes[1], y_h=y[1][-2],
             y_w=y[1][-1], out_h=out_h, out_w=out_w, k_h=k_h, step_h=step_h, pad_h=pad_h, dil_h=dil_h, k_w=k_w,
             step_w=step_w, pad_w=pad_w, dil_w=dil_w, first=first, last=last, planes=count)
    vectors = -(-(last - first) // machine.lanes)
    each = out_h * k_h * k_w * (4 * vectors + 4 * (out_w - last + first)) + 100         # cycles, about
    return LibraryCall(machine.function("max_pool"), count, min(count, max(1, PIECE_CYCLES // each)),
                       [f[name] for name in WINDOW_FIELDS])


def weigh(dtype, x, y, maps, back, mean):
    """A LibraryCall for the maps `maps`, one or two, along the last dimensions of x; or None.

    With `back` they are transposed. With `mean` each sum is divided by the sizes of its windows, or, transposed, each
    element beforehand. `x` and `y` are (shape, strides in elements), contiguous or with channels last.
    """
    dtype = getattr(dtype, "name", dtype)
    if dtype not in LLVM_ELEMENT or len(maps) > 2 or 0 in x[0] or 0 in y[0]:
        return None
    planes = whole_planes(x, len(maps)), whole_planes(y, len(maps))
    if None in planes or planes[0].inner != planes[1].inner:
        return None
    source, result = planes
    tables = [taps_of(m) for m in maps]
    counts = [table.counts if mean else np.ones(table.index.shape[1]) for table in tables]
    if back:
        tables, divided = [table.back for table in tables], counts if mean else [None] * len(maps)
        counts = [np.ones(table.index.shape[1]) for table in tables]
    else:
        divided = [None] * len(maps)
    lists = [listed(table, by) for table, by in zip(tables, divided, strict=True)]
    if len(maps) == 1:                              # one row
        lists, counts = [([0, 1], [0], [1.0]), *lists], [[1.0], *counts]
    machine = compiled_kernels(dtype, PoolKernels)
    (down, rows_read, down_weights), (across, cols_read, across_weights) = lists
    wide, out_h, out_w = source.width * source.inner, len(down) - 1, len(across) - 1
    runs = [(first, end, how if how < 0 else how * source.inner) for first, end, how in runs_of(*lists[1])]
    words = [*down, *rows_read, *across, *[at * source.inner for at in cols_read], *itertools.chain(*runs)]
    numbers = [*down_weights, *across_weights, *counts[0], *counts[1]]
    if len(words) + len(numbers) > MAX_WEIGH_TABLE or wide > MAX_WEIGH_WIDE \
            or not in_room(machine.size, wide + 2 * machine.lanes):
        return None
    column = 6 if source.inner == 1 else up(source.inner, machine.lanes) / machine.lanes         # cycles, about
    taps = sum(end - first for first, end, how in runs if how == SUMMED) * len(cols_read) / out_w
    each = len(rows_read) * wide / machine.lanes / out_h + taps * column + 2 * out_w + 20        # of a row
    rows = even_part(out_h, max(1, int(PIECE_CYCLES // each)))
    f = dict(x_p=source.step, x_h=source.row, y_p=result.step, y_h=result.row, wide=wide, inner=source.inner,
             out_h=out_h, out_w=out_w, rows=rows, row_blocks=-(-out_h // rows), mean=int(mean and not back),
             runs=len(runs))
    at = len(WEIGH_FIELDS)
    for field, size in (("down_at", len(down) + len(rows_read)), ("across_at", len(across) + len(cols_read)),
                        ("runs_at", 3 * len(runs)), ("down_weights", len(down_weights)),
                        ("across_weights", len(across_weights)), ("down_counts", out_h), ("across_counts", out_w)):
        f[field], at = at, at + size
    tiles = source.count * f["row_blocks"]
    ints = [*[f[name] for name in WEIGH_FIELDS], *map(int, words),
            *np.array(numbers, np.float64).view(np.int64).tolist()]
    return LibraryCall(machine.function("weigh"), tiles, min(tiles, max(1, int(PIECE_CYCLES // (each * rows)))), ints)


def runs_of(begins, read, weights):
    """Columns of the result in order, as (first, end, what the first reads) of those that are copied side by side, and
    (first, end, SCATTERED) and (first, end, SUMMED) of those between that are copied one by one, and of the others."""
    counts = np.diff(begins)
    alone = (counts == 1) & (np.array(weights + [0.0])[begins[:-1]] == 1)
    at = np.where(alone, np.array(read + [0])[begins[:-1]], -1)
    goes_on = (alone[1:] & alone[:-1] & (np.diff(at) == 1)) | ~(alone[1:] | alone[:-1])
    edges = [0, *(np.flatnonzero(~goes_on) + 1).tolist(), len(at)]
    runs: list = []
    for first, end in itertools.pairwise(edges):
        how = SUMMED if not alone[first] else int(at[first]) if end - first >= MIN_RUN else SCATTERED
        if how == SCATTERED and runs and runs[-1][2] == SCATTERED:
            first = runs.pop()[0]
        runs.append((first, end, how))
    return runs


class Planes(NamedTuple):
    """How an array of images, or of rows, lies: `count` planes, `step` apart, of rows that lie `row` apart and have
    `width` positions of `inner` elements side by side."""
    count: int
    step: int
    row: int
    width: int
    inner: int


def whole_planes(laid, dims):
    """The Planes of (shape, strides), of which the last `dims` dimensions are a plane; None if they lie otherwise."""
    shape, strides = laid
    width, row = shape[-1], strides[-2] if dims == 2 else 0
    if strides[-1] == 1 or width == 1 and dims == 1:
        step = evenly(shape[:-dims], strides[:-dims])
        return None if step is None else Planes(math.prod(shape[:-dims]), step, row, width, 1)
    channels = shape[1] if len(shape) == 4 else 0
    if dims == 2 and channels and strides[1] == 1 and strides[3] == channels:
        return Planes(shape[0], strides[0], row, width, channels)
    return None


def listed(table, divided=None):
    """A table of taps as lists: where those of each output begin, what they read, and their weights, each divided by
    what is read there where `divided` says so."""
    index, weight = table.index.T, table.weight.T
    used = weight != 0
    read, weights = index[used], weight[used]
    if divided is not None:
        weights = weights / np.asarray(divided, float)[read]
    return [0, *np.cumsum(used.sum(1)).tolist()], read.tolist(), weights.tolist()


def drop(dtype, rows, count, size, shared=False):
    """A LibraryCall that adds the elements of g [rows, count] at index [rows, count] of zeros [rows, size]; or None.

    All are contiguous and every index is in range; a `shared` index has one row. The buffers are g, index, out.
    """
    dtype = getattr(dtype, "name", dtype)
    if dtype not in LLVM_ELEMENT or not rows:
        return None
    machine = compiled_kernels(dtype, PoolKernels)
    each = 3 * count + size // 8 + 20
    return LibraryCall(machine.function("drop"), rows, min(rows, max(1, PIECE_CYCLES // each)),
                       [count, size, count, 0 if shared else count])


def add_rows(dtype, count, cols, size, skip):
    """A LibraryCall that adds the rows of g [count, cols] at index [count] of zeros [size, cols]; or None.

    What is sent to row `skip` is left out. All are contiguous and every index is in range. The buffers are g, index,
    out.
    """
    dtype = getattr(dtype, "name", dtype)
    if dtype not in LLVM_ELEMENT or not count or not cols or not size:
        return None
    machine = compiled_kernels(dtype, PoolKernels)
    tiles = -(-cols // TILE_COLUMNS)
    each = (2 * count + size) * min(cols, TILE_COLUMNS) // machine.lanes + 5 * count
    return LibraryCall(machine.function("add_rows"), tiles, min(tiles, max(1, PIECE_CYCLES // each)),
                       [count, size, cols, TILE_COLUMNS, skip])


def add_weighted_rows(dtype, count, cols, size, taps):
    """A LibraryCall that adds each row of g [count, cols], times the `taps` numbers of its row of weight, at those of
    its row of index, to zeros [size, cols]; or None.

    All are contiguous and every index is in range. The buffers are g, index, weight, out.
    """
    dtype = getattr(dtype, "name", dtype)
    if dtype not in LLVM_ELEMENT or not count or not cols or not size or not taps:
        return None
    machine = compiled_kernels(dtype, PoolKernels)
    tiles = -(-cols // TILE_COLUMNS)
    each = (2 * count * taps + size) * min(cols, TILE_COLUMNS) // machine.lanes + 5 * count * taps
    return LibraryCall(machine.function("add_weighted_rows"), tiles, min(tiles, max(1, PIECE_CYCLES // each)),
                       [count, size, cols, TILE_COLUMNS, taps])


def sum_weighted_rows(dtype, count, cols, taps):
    """A LibraryCall for the sums [count, cols] of rows of a table: for each, those that its row of index says, each
    times a number of its row of weight [count, taps]; or None.

    All are contiguous and every index is in range. The buffers are table, index, weight, out.
    """
    dtype = getattr(dtype, "name", dtype)
    if dtype not in LLVM_ELEMENT or not count or not cols or not taps:
        return None
    machine = compiled_kernels(dtype, PoolKernels)
    each = taps * (-(-cols // machine.lanes) + 4) + 10
    return LibraryCall(machine.function("sum_weighted_rows"), count, min(count, max(1, PIECE_CYCLES // each)),
                       [cols, taps])


def scan(dtype, shape, dim):
    """A LibraryCall for the running sums along `dim` of a contiguous array; or None. The buffers are x and out."""
    dtype = getattr(dtype, "name", dtype)
    if dtype not in LLVM_ELEMENT or 0 in shape:
        return None
    machine = compiled_kernels(dtype, PoolKernels)
    outer, count, inner = math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1:])
    each = 4 * count * max(1, 2 * inner // machine.lanes) + 20
    return LibraryCall(machine.function("scan"), outer, min(outer, max(1, PIECE_CYCLES // each)), [count, inner])


def reaches(window):
    """Whether every window has an element of the input."""
    _, size, out, kernel, stride, padding, dilation, _ = window
    starts = [o * stride - padding for o in range(out)]
    return all(any(0 <= start + k * dilation < size for k in range(kernel)) for start in starts)
