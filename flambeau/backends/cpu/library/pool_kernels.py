"""The LLVM text of pooling, of sums by taps, of rows that are added up, and of running results. See pool.py, which has
their plans.

A step's ints are the fields below, by name.
"""
import contextlib
from typing import NamedTuple

from ....loops.step import STEP_ARGUMENTS
from ..llvm_writer import LLVMWriter, Vectors
from .weighed_rows import WeighedRows

WINDOW_FIELDS = [*"x_p x_d x_h x_w size_d size_h size_w y_p y_d y_h y_w out_d out_h out_w".split(),
                 *[f"{what}_{axis}" for axis in "dhw" for what in ("pace", "reach", "shift", "pad", "dil")],
                 *"first last step_w k_w".split()]
DROP_WEIGHTED_FIELDS = "channels blocks taps count size".split()
WEIGHTED_ROWS_FIELDS = "count size cols wide taps".split()
SUMMED_ROWS_FIELDS = "cols taps".split()
SCAN_FIELDS = "count inner".split()
VECTORS_SUMMED_TOGETHER = 4   # of a row, where rows are weighted and summed
CHANNELS_DROPPED_TOGETHER = 4 # so that an index is read once for all of them
LEAST = "0xFFF0000000000000"  # minus infinity,
MOST = "0x7FF0000000000000"   # and infinity
RUNNING_OPERATIONS = "sum", "prod", "max", "min", "recur"


class Window(NamedTuple):
    """What an output reads along one dimension: taps `low` to `high`, which are inside, of those that begin at `start`
    and are `dil` apart."""
    start: int | str
    low: int | str
    high: int | str
    dil: int | str

    def position(self, w, tap): return w.add(self.start, w.mul(tap, self.dil))
    def count(self, w):         return w.sub(self.high, self.low)


class PoolKernels:
    """The LLVM text of the steps for one element type."""

    word = "pool"
    drivers = inner = ()

    def every(self, machine):
        """All functions that a plan may ask for."""
        return [("max_pool", 0), ("max_pool", 1), *[(what,) for what in (
            "weigh", "drop_weighted", "add_weighted_rows", "sum_weighted_rows")],
                *[("scan", operation) for operation in RUNNING_OPERATIONS]]

    def __init__(self, element, target):
        self.v = Vectors(element, target)
        self.element, self.lanes = element, self.v.lanes

    def open(self, name, fields):
        """A writer of a step, and its ints by name."""
        w = LLVMWriter(f"define void @{name}({STEP_ARGUMENTS})")
        return w, {field: w.load("i64", w.at("i64", "%ints", i)) for i, field in enumerate(fields)}

    def max_pool(self, name, dilated):
        """The step: one plane a tile; buffers x, values, indices. See `max_pool` in pool.py for the fields."""
        elt, n = self.element, self.lanes
        w, f = self.open(name, WINDOW_FIELDS)
        if not dilated:                                       # then there is nothing to divide by
            f |= dict(dil_d=1, dil_h=1, dil_w=1)
        X, Y, P = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(3)]
        side_by_side = w.both(w.is_("eq", f["x_w"], 1), w.is_("eq", f["dil_w"], 1))
        with w.loop("%begin", "%end") as t, w.loop(0, f["out_d"]) as d, w.loop(0, f["out_h"]) as o:
            x, at = w.at(elt, X, w.mul(t.i, f["x_p"])), w.mul(t.i, f["y_p"])
            at = w.add(w.add(at, w.mul(d.i, f["y_d"])), w.mul(o.i, f["y_h"]))
            rows = self.window(w, f, "d", d.i), self.window(w, f, "h", o.i)

            def single(c, x=x, at=at, rows=rows):
                left = self.window(w, f, "w", c)
                to = w.add(at, w.mul(c, f["y_w"]))

                def put(best, position):
                    w.store(elt, best, w.at(elt, Y, to))
                    w.store("i64", position, w.at("i64", P, to))

                def look(row, column):
                    return w.load(elt, w.at(elt, row, w.mul(column, f["x_w"])))

                broad = w.both(side_by_side, w.is_("sge", left.count(w), n // 4 if self.v.masks else n))
                w.either(broad, lambda: put(*self.search_by_lanes(w, f, x, rows, left)),
                         lambda: put(*self.search(w, f, x, rows, left, look, elt, "i64", lambda position: position)))

            inner = w.sub(f["last"], f["first"])
            with w.loop(0, w.sub(f["out_w"], inner)) as c:
                single(w.add(c.i, w.pick(w.is_("slt", c.i, f["first"]), 0, inner)))
            with w.loop(f["first"], f["last"], n) as c:
                self.many(w, f, c.i, x, w.add(at, c.i), rows, Y, P)
        return self.v.declarations() + w.text()

    def window(self, w, f, axis, o):
        """What output `o` reads along `axis`."""
        size, pace, reach, shift, pad, dil = [f[f"{what}_{axis}"] for what in
                                              ("size", "pace", "reach", "shift", "pad", "dil")]
        begin = w.mul(o, pace)
        start, end = [w.sub(w(f"ashr i64 {edge}, {shift}"), pad) for edge in (begin, w.add(begin, reach))]
        low = w.most(w.div(w.sub(w.add(dil, -1), start), dil), 0)
        return Window(start, low, w.div(w.add(w.sub(w.least(end, size), start), w.sub(dil, 1)), dil), dil)

    @contextlib.contextmanager
    def rows_of(self, w, f, x, rows, carry):
        """For each row of a window: where it is, the position of its first element, and a Loop that carries `carry`."""
        deep, high = rows
        with w.loop(deep.low, deep.high, 1, carry) as i:
            d = deep.position(w, i.i)
            with w.loop(high.low, high.high, 1, [(type, value) for (type, _), value in
                                                 zip(carry, i.values, strict=True)]) as j:
                h = high.position(w, j.i)
                yield (w.at(self.element, x, w.add(w.mul(d, f["x_d"]), w.mul(h, f["x_h"]))),
                       w.mul(w.add(w.mul(d, f["size_h"]), h), f["size_w"]), j)
            i.next = j.values
        j.values = i.values

    def search(self, w, f, x, rows, left, look, value_type, index_type, spread):
        """The largest element of a window and its position: of equals the first, of nans the last."""
        mask = value_type.replace(self.element, "i1")
        start = [(value_type, LEAST if value_type == self.element else self.v.spread(w, LEAST)),
                 (index_type, spread(self.first_position(w, f, rows, left)))]
        with self.rows_of(w, f, x, rows, start) as (row, before, i):
            with w.loop(left.low, left.high, 1, list(zip((value_type, index_type), i.values, strict=True))) as j:
                best, position = j.values
                column = left.position(w, j.i)
                value = look(row, column)
                larger, nan = w(f"fcmp ogt {value_type} {value}, {best}"), w(f"fcmp uno {value_type} {value}, {value}")
                better = w(f"or {mask} {larger}, {nan}")
                here = spread(w.add(before, column))
                j.next = [w(f"select {mask} {better}, {value_type} {value}, {value_type} {best}"),
                          w(f"select {mask} {better}, {index_type} {here}, {index_type} {position}")]
            i.next = j.values
        return i.values

    def first_position(self, w, f, rows, left):
        """The position of a window's first element, which is that of its largest where all are minus infinity."""
        deep, high, column = [window.position(w, window.low) for window in (*rows, left)]
        return w.add(w.mul(w.add(w.mul(deep, f["size_h"]), high), f["size_w"]), column)

    def search_by_lanes(self, w, f, x, rows, left):
        """The same of one broad window: the elements of a row are dealt out to the lanes, and those are compared in the
        end. Without masks a row's last vector ends where the row does, and looks at some elements twice."""
        v, elt, n = self.v, self.element, self.lanes
        index, bits = f"<{n} x i64>", f"<{n} x i1>"
        lanes = f"<{', '.join(f'i64 {i}' for i in range(n))}>"
        count = left.count(w)
        start = [(v.type, v.spread(w, LEAST)), (index, self.fill(w, self.first_position(w, f, rows, left)))]
        with self.rows_of(w, f, x, rows, start) as (row, before, i):
            begin = left.position(w, left.low)
            row, before = w.at(elt, row, begin), w.add(before, begin)
            with w.loop(0, count, n, [(type, value) for (type, _), value in zip(start, i.values, strict=True)]) as j:
                best, position = j.values
                if v.masks:
                    ahead, some = j.i, v.mask(w, w.least(w.sub(count, j.i), n))
                    value = v.load_some(w, w.at(elt, row, ahead), some)
                else:
                    ahead = w.least(j.i, w.sub(count, n))
                    value = v.load(w, w.at(elt, row, ahead))
                larger, nan = w(f"fcmp ogt {v.type} {value}, {best}"), w(f"fcmp uno {v.type} {value}, {value}")
                better = w(f"or {bits} {larger}, {nan}")
                if v.masks:
                    better = w(f"and {bits} {better}, {some}")
                here = w(f"add {index} {lanes}, {self.fill(w, w.add(before, ahead))}")
                j.next = [w(f"select {bits} {better}, {v.type} {value}, {v.type} {best}"),
                          w(f"select {bits} {better}, {index} {here}, {index} {position}")]
            i.next = j.values
        return self.largest_lane(w, *i.values)

    def largest_lane(self, w, best, position):
        """The largest of the lanes and its position; of equals that with the first, of nans that with the last."""
        n = self.lanes
        while n > 1:
            whole, n = n, n // 2
            parts = [(f"<{whole} x {type}>", value) for type, value in ((self.element, best), ("i64", position))]
            (a, at), (b, other) = [[w(f"shufflevector {type} {value}, {type} poison, <{n} x i32> "
                                      f"<{', '.join(f'i32 {i}' for i in range(first, first + n))}>")
                                    for type, value in parts] for first in (0, n)]
            values, indices, bits = f"<{n} x {self.element}>", f"<{n} x i64>", f"<{n} x i1>"
            sooner = w(f"icmp slt {indices} {other}, {at}")
            equal = w(f"and {bits} {w(f'fcmp oeq {values} {b}, {a}')}, {sooner}")
            better = w(f"or {bits} {w(f'fcmp ogt {values} {b}, {a}')}, {equal}")
            last = w(f"or {bits} {w(f'fcmp ord {values} {a}, {a}')}, {w(f'icmp sgt {indices} {other}, {at}')}")
            nan = w(f"and {bits} {w(f'fcmp uno {values} {b}, {b}')}, {last}")
            better = w(f"or {bits} {better}, {nan}")
            best = w(f"select {bits} {better}, {values} {b}, {values} {a}")
            position = w(f"select {bits} {better}, {indices} {other}, {indices} {at}")
        return (w(f"extractelement <1 x {self.element}> {best}, i64 0"),
                w(f"extractelement <1 x i64> {position}, i64 0"))

    def many(self, w, f, c, x, at, rows, Y, P):
        """A vector of outputs of a row, whose windows are all inside its columns."""
        v, elt, n = self.v, self.element, self.lanes
        left = Window(w.sub(w.mul(c, f["step_w"]), f["pad_w"]), 0, f["k_w"], f["dil_w"])
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

        def look(row, column):
            source = w.at(elt, row, column)
            if v.masks:
                a, b = v.load_some(w, source, some), v.load_some(w, w.at(elt, source, n), more)
            else:
                a, b = v.load(w, source), v.load(w, w.at(elt, source, w.pick(one, 0, n)))
            both = w(f"shufflevector {v.type} {a}, {v.type} {b}, <{n} x i32> <{evens}>")
            return w(f"select i1 {one}, {v.type} {a}, {v.type} {both}")

        def spread(position):
            return w(f"add {index} {ahead}, {self.fill(w, position)}")

        best, position = self.search(w, f, x, rows, left, look, v.type, index, spread)
        if not v.masks:
            v.store(w, best, w.at(elt, Y, at))
            w.store(index, position, w.at("i64", P, at), 8)
            return
        v.store_some(w, best, w.at(elt, Y, at), v.mask(w, count))
        self.store_indices(w, position, w.at("i64", P, at), count)

    def weigh(self, name):
        """The step: some rows of the result of one plane a tile; buffers x and y. See `weigh` in pool.py for the
        tables."""
        return WeighedRows(self, name).text()

    def fill(self, w, number):
        """A whole number in every lane."""
        n = self.lanes
        first = w(f"insertelement <{n} x i64> poison, i64 {number}, i64 0")
        return w(f"shufflevector <{n} x i64> {first}, <{n} x i64> poison, <{n} x i32> zeroinitializer")

    def drop_weighted(self, name):
        """The step: some channels of one sample a tile; buffers g, index, weight, out."""
        v, elt, together = self.v, self.element, CHANNELS_DROPPED_TOGETHER
        w, f = self.open(name, DROP_WEIGHTED_FIELDS)
        G, I, W, O = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(4)]
        with w.loop("%begin", "%end") as t:
            sample, first = w.div(t.i, f["blocks"]), w.mul(w.rem(t.i, f["blocks"]), together)
            channels, row = w.least(w.sub(f["channels"], first), together), w.add(w.mul(sample, f["channels"]), first)
            g, out = w.at(elt, G, w.mul(row, f["count"])), w.at(elt, O, w.mul(row, f["size"]))
            elements = w.mul(channels, f["size"])
            whole = w.down(elements, v.lanes)
            with w.loop(0, whole, v.lanes) as i:
                v.store(w, "zeroinitializer", w.at(elt, out, i.i))
            with w.loop(whole, elements) as i:
                w.store(elt, "0.0", w.at(elt, out, i.i))

            def drop(start, number):
                """Add those of so many channels from `start` on."""
                sources, sums = [[w.at(elt, base, w.mul(w.add(start, i), f[step])) for i in range(number)]
                                 for base, step in ((g, "count"), (out, "size"))]
                with w.loop(0, f["taps"]) as k:
                    table = w.mul(w.add(w.mul(sample, f["taps"]), k.i), f["count"])
                    index, weights = w.at("i64", I, table), w.at(elt, W, table)
                    with w.loop(0, f["count"]) as i:
                        target = w.load("i64", w.at("i64", index, i.i))
                        with w.when(w.is_("sge", target, 0)):
                            weight, to = w.load(elt, w.at(elt, weights, i.i)), [w.at(elt, one, target) for one in sums]
                            parts = [w(f"fmul {elt} {w.load(elt, w.at(elt, one, i.i))}, {weight}") for one in sources]
                            made = [w(f"fadd {elt} {w.load(elt, at)}, {part}")
                                    for at, part in zip(to, parts, strict=True)]
                            for at, value in zip(to, made, strict=True):
                                w.store(elt, value, at)

            def one_by_one():
                with w.loop(0, channels) as c:
                    drop(c.i, 1)

            w.either(w.is_("eq", channels, together), lambda: drop(0, together), one_by_one)
        return v.declarations() + w.text()

    def add_weighted_rows(self, name):
        """The step: a few columns of the table a tile; buffers g, index, weight, out."""
        w, f = self.open(name, WEIGHTED_ROWS_FIELDS)
        G, I, W, O = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(4)]
        with self.columns(w, f, G, O) as (g, add):
            with w.loop(0, f["count"]) as i:
                row, first = w.at(self.element, g, w.mul(i.i, f["cols"])), w.mul(i.i, f["taps"])
                with w.loop(0, f["taps"]) as j:
                    offset = w.add(first, j.i)
                    weight = w.load(self.element, w.at(self.element, W, offset))
                    add(w.load("i64", w.at("i64", I, offset)), row, self.v.spread(w, weight))
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
                offset = w.add(first, j.i)
                weight = v.spread(w, w.load(elt, w.at(elt, W, offset)))
                source = w.at(elt, T, w.add(w.mul(w.load("i64", w.at("i64", I, offset)), f["cols"]), left))
                j.next = [v.fma(w, load(w.at(elt, source, i * n)), weight, total) for i, total in enumerate(j.values)]
            return [(made, w.at(elt, row, w.add(left, i * n))) for i, made in enumerate(j.values)]

        with w.loop("%begin", "%end") as t:
            first, row = w.mul(t.i, f["taps"]), w.at(elt, O, w.mul(t.i, f["cols"]))
            with w.loop(0, most, together) as c:
                for made, to in summed(first, row, c.i, lambda pointer: v.load(w, pointer), VECTORS_SUMMED_TOGETHER):
                    v.store(w, made, to)
            with w.loop(most, whole, n) as c:
                for made, to in summed(first, row, c.i, lambda pointer: v.load(w, pointer), 1):
                    v.store(w, made, to)
            with w.when(w.is_("slt", whole, f["cols"])):
                for made, to in summed(first, row, whole, lambda pointer: v.load_some(w, pointer, some), 1):
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

            def added(more, total, weight):
                return w(f"fadd {v.type} {total}, {more}") if weight is None else v.fma(w, more, weight, total)

            def add(at, more, weight=None):
                row = w.at(elt, out, w.mul(at, f["cols"]))
                with w.loop(0, whole, n) as j:
                    to = w.at(elt, row, j.i)
                    v.store(w, added(v.load(w, w.at(elt, more, j.i)), v.load(w, to), weight), to)
                with w.when(ragged):
                    to, rest = w.at(elt, row, whole), v.load_some(w, w.at(elt, more, whole), some)
                    v.store_some(w, added(rest, v.load_some(w, to, some), weight), to, some)

            yield w.at(elt, G, left), add

    def scan(self, name, operation):
        """The step: running results of an `operation` of one [count, inner] a tile; buffers x, for "recur" the factors,
        out, and for extremes their indices.

        Sums and products are computed in double precision. Of equal extremes the last is taken, and a nan stays until
        the next.
        """
        v, elt, n = self.v, self.element, self.lanes
        w, f = self.open(name, SCAN_FIELDS)
        types = {"recur": [elt] * 3, "max": [elt, elt, "i64"], "min": [elt, elt, "i64"]}.get(operation, [elt] * 2)
        buffers = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(len(types))]
        single = w.is_("eq", f["inner"], 1)

        def along(pointers, many, spread, load, store):
            """One row, or some columns side by side, where `many` gives the type of so many."""
            wide = many("double" if operation in ("sum", "prod") else elt)

            def widened(value): return value if wide == many(elt) else w(f"fpext {many(elt)} {value} to {wide}")
            def narrowed(value): return value if wide == many(elt) else w(f"fptrunc {wide} {value} to {many(elt)}")

            first = {"prod": "1.0", "max": LEAST, "min": MOST}.get(operation, "0.0")
            carry = [(wide, spread("double" if wide != many(elt) else elt, first))]
            if operation in ("max", "min"):
                carry.append((many("i64"), spread("i64", 0)))
            with w.loop(0, f["count"], 1, carry) as i:
                at = w.mul(i.i, f["inner"])
                x, *factor, out = [w.at(elt, pointer, at) for pointer in pointers[:2 + (operation == "recur")]]
                value, last = widened(load(x)), i.values[0]
                if operation == "sum":
                    i.next = [w(f"fadd {wide} {last}, {value}")]
                elif operation == "prod":
                    i.next = [w(f"fmul {wide} {last}, {value}")]
                elif operation == "recur":
                    i.next = [w(f"fadd {wide} {value}, {w(f'fmul {wide} {load(factor[0])}, {last}')}")]
                else:
                    test, bits = "oge" if operation == "max" else "ole", many("i1")
                    better = w(f"fcmp {test} {wide} {value}, {last}")
                    better = w(f"or {bits} {better}, {w(f'fcmp uno {wide} {value}, {value}')}")
                    i.next = [w(f"select {bits} {better}, {t} {new}, {t} {old}")
                              for (t, _), new, old in zip(carry, (value, spread("i64", i.i)), i.values, strict=True)]
                    store("i64", i.next[1], w.at("i64", pointers[2], at))
                store(elt, narrowed(i.next[0]), out)

        with w.loop("%begin", "%end") as t:
            start = w.mul(t.i, w.mul(f["count"], f["inner"]))
            pointers = [w.at(one, base, start) for one, base in zip(types, buffers, strict=True)]
            with w.when(single):
                along(pointers, lambda one: one, lambda _, number: number, lambda pointer: w.load(elt, pointer),
                      lambda one, value, pointer: w.store(one, value, pointer))
            with w.loop(0, w.pick(single, 0, f["inner"]), n) as j:
                count = w.least(w.sub(f["inner"], j.i), n)
                some = v.some(w, count)

                def spread(one, number):
                    first = w(f"insertelement <{n} x {one}> poison, {one} {number}, i64 0")
                    return w(f"shufflevector <{n} x {one}> {first}, <{n} x {one}> poison, <{n} x i32> zeroinitializer")

                def store(one, value, pointer, some=some, count=count):
                    if one == elt:
                        v.store_some(w, value, pointer, some)
                    else:
                        self.store_indices(w, value, pointer, count)

                along([w.at(one, pointer, j.i) for one, pointer in zip(types, pointers, strict=True)],
                      lambda one: f"<{n} x {one}>", spread,
                      lambda pointer, some=some: v.load_some(w, pointer, some), store)
        return v.declarations() + w.text()

    def store_indices(self, w, value, pointer, count):
        """The first `count` lanes of a vector of whole numbers."""
        n = self.lanes
        if self.v.masks:
            w.do(f"call void @llvm.masked.store.v{n}i64.p0(<{n} x i64> {value}, ptr {pointer}, i32 8, "
                 f"<{n} x i1> {self.v.mask(w, count)})")
            return
        spare = w.spare(f"<{n} x i64>")
        w.store(f"<{n} x i64>", value, spare, 8)
        with w.loop(0, count) as i:
            w.store("i64", w.load("i64", w.at("i64", spare, i.i)), w.at("i64", pointer, i.i))
