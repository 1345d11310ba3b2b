"""The LLVM text of `weigh`: sums of weighted rows and columns, which averages and interpolations are.

See pool.py, which has its plan; the tables follow where the fields that end in `_at` say.
"""
WEIGH_FIELDS = ("x_p x_h y_p y_h wide inner out_h out_w rows row_blocks mean runs down_at across_at runs_at "
                "down_weights across_weights down_counts across_counts").split()
SUMMED, SCATTERED = -1, -2    # columns that are sums, and single elements of which too few lie side by side for that


class WeighedRows:
    """Writes `weigh`: for each row of the result, the rows that it reads are summed up, and then their columns."""

    def __init__(self, kernels, name):
        self.v, v = kernels.v, kernels.v
        w, f = self.w, self.f = kernels.open(name, WEIGH_FIELDS)
        self.buffers = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(2)]
        self.made, = w.rooms((v.bytes, w.add(f["wide"], 2 * v.lanes)))
        self.whole = w.down(f["wide"], v.lanes)
        self.single = w.is_("eq", f["inner"], 1)
        self.inner_whole = w.down(f["inner"], v.lanes)
        # nothing is read behind a row
        self.no_rest = w("or i1 " + self.single + ", " + w.is_("eq", self.inner_whole, f["inner"]))
        self.inner_some = v.some(w, w.sub(f["inner"], self.inner_whole))

    def text(self):
        w, f, elt, (X, Y) = self.w, self.f, self.v.element, self.buffers
        with w.loop("%begin", "%end") as t:
            plane, block = w.div(t.i, f["row_blocks"]), w.rem(t.i, f["row_blocks"])
            x, y = w.at(elt, X, w.mul(plane, f["x_p"])), w.at(elt, Y, w.mul(plane, f["y_p"]))
            top = w.mul(block, f["rows"])
            with w.loop(top, w.least(w.add(top, f["rows"]), f["out_h"])) as o:
                row = self.row_of(x, o.i)
                to, count = w.at(elt, y, w.mul(o.i, f["y_h"])), self.number(f["down_counts"], o.i)
                weights = w.add(f["across_at"], w.add(f["out_w"], 1)), f["across_weights"]
                w.either(w.is_("ne", f["mean"], 0), lambda row=row, to=to, weights=weights, count=count:
                         self.put_means(row, to, weights, count),
                         lambda row=row, to=to, weights=weights: self.put_sums(row, to, weights))
        return self.v.declarations() + w.text()

    # --- the tables -------------------------------------------------------------------------------------------------

    def word(self, at, index):
        return self.w.load("i64", self.w.at("i64", "%ints", self.w.add(at, index)))

    def number(self, at, index):
        """A number of the tables, which are in double precision."""
        found = self.w.load("double", self.w.at("i64", "%ints", self.w.add(at, index)))
        return found if self.v.element == "double" else self.w(f"fptrunc double {found} to float")

    def taps_of(self, at, index):
        return self.word(at, index), self.word(at, self.w.add(index, 1))

    def summed(self, type, taps, weights, part):
        """The sum of what `part(index)` gives, each times its weight; -0.0 changes nothing that is added to it."""
        w, v = self.w, self.v
        zero = "-0.0" if type == v.element else v.spread(w, "-0.0")
        with w.loop(*taps, 1, [(type, zero)]) as t:
            index, weight = self.word(weights[0], t.i), self.number(weights[1], t.i)
            weight = weight if type == v.element else v.spread(w, weight)
            product = w(f"fmul {type} {part(index)}, {weight}")
            t.next = [w(f"fadd {type} {t.values[0]}, {product}")]
        nothing = "0.0" if type == v.element else "zeroinitializer"
        return w.pick(w.is_("slt", *taps), t.values[0], nothing, type)

    # --- rows, and columns of one -----------------------------------------------------------------------------------

    def row_of(self, x, o):
        """Where the weighed sum of the rows that row `o` of the result reads is."""
        w, v, f, elt = self.w, self.v, self.f, self.v.element
        down = self.taps_of(f["down_at"], o)
        weights = w.add(f["down_at"], w.add(f["out_h"], 1)), f["down_weights"]
        # a row that is one of the input's is read there
        alone = w.is_("eq", w.sub(down[1], down[0]), 1)
        unweighed = w(f"fcmp oeq {elt} {self.number(weights[1], down[0])}, 1.0")
        as_it_is = w.both(self.no_rest, w.both(alone, unweighed))
        found = w.at(elt, x, w.mul(self.word(weights[0], down[0]), f["x_h"]))
        with w.loop(0, w.pick(as_it_is, 0, self.whole), v.lanes) as j:
            many = w.at(elt, x, j.i)
            v.store(w, self.summed(v.type, down, weights, lambda r: v.load(w, w.at(elt, many, w.mul(r, f["x_h"])))),
                    w.at(elt, self.made, j.i))
        with w.loop(self.whole, w.pick(as_it_is, 0, f["wide"])) as j:
            one = w.at(elt, x, j.i)
            w.store(elt, self.summed(elt, down, weights, lambda r: w.load(elt, w.at(elt, one, w.mul(r, f["x_h"])))),
                    w.at(elt, self.made, j.i))
        return w.pick(as_it_is, found, self.made, "ptr")

    def put_column(self, row, to, weights, c, count=None):
        """Column `c` of the result, of one element or of all channels; a mean where there is a `count`."""
        w, v, f, elt = self.w, self.v, self.f, self.v.element
        across = self.taps_of(f["across_at"], c)
        size = None if count is None else w(f"fmul {elt} {count}, {self.number(f['across_counts'], c)}")

        def mean(type, total):
            if size is None:
                return total
            return w(f"fdiv {type} {total}, {size if type == elt else v.spread(w, size)}")

        def one():
            total = self.summed(elt, across, weights, lambda at: w.load(elt, w.at(elt, row, at)))
            w.store(elt, mean(elt, total), w.at(elt, to, c))

        def vector(i):
            total = self.summed(v.type, across, weights, lambda at: v.load(w, w.at(elt, row, w.add(at, i))))
            return mean(v.type, total)

        def channels():
            first = w.at(elt, to, w.mul(c, f["inner"]))
            with w.loop(0, self.inner_whole, v.lanes) as i:
                v.store(w, vector(i.i), w.at(elt, first, i.i))
            with w.when(w.is_("slt", self.inner_whole, f["inner"])):       # there is room behind the row
                v.store_some(w, vector(self.inner_whole), w.at(elt, first, self.inner_whole), self.inner_some)

        w.either(self.single, one, channels)

    def put_means(self, row, to, weights, count):
        with self.w.loop(0, self.f["out_w"]) as c:
            self.put_column(row, to, weights, c.i, count)

    def put_sums(self, row, to, weights):
        w, v, f, elt = self.w, self.v, self.f, self.v.element

        def read(c):
            """Where the first tap of column `c` reads."""
            return self.word(weights[0], self.word(f["across_at"], c))

        with w.loop(0, f["runs"]) as r:
            first, end, source = [self.word(f["runs_at"], w.add(w.mul(r.i, 3), i)) for i in range(3)]
            first_result = w.at(elt, to, w.mul(first, f["inner"]))

            def beside():
                v.move(w, first_result, w.at(elt, row, source), w.mul(w.sub(end, first), f["inner"]))

            def summed_up():
                with w.loop(first, end) as c:
                    self.put_column(row, to, weights, c.i)

            def scattered():
                with w.loop(w.pick(self.single, first, end), end) as c:
                    w.store(elt, w.load(elt, w.at(elt, row, read(c.i))), w.at(elt, to, c.i))
                with w.loop(w.pick(self.single, end, first), end) as c:
                    v.move(w, w.at(elt, to, w.mul(c.i, f["inner"])), w.at(elt, row, read(c.i)), f["inner"])

            w.switch(w.least(source, 0), {0: beside, SUMMED: summed_up, SCATTERED: scattered})
