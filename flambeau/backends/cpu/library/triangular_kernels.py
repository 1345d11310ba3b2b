"""The LLVM text of the step that solves with triangular matrices. See triangular.py, which plans it."""
from ....loops.step import STEP_ARGUMENTS
from ..llvm_writer import LLVMWriter, Vectors

TRIANGULAR_FIELDS = ("n cols blocks each unit less a_row a_col a_matrix b_row b_col b_matrix "
                     "x_row x_col x_matrix").split()
MAX_ROWS = 8


class TriangularKernels:
    """The LLVM text of the steps for one element type."""

    word = "triangular"
    drivers = inner = ()

    def __init__(self, element, target):
        self.element, self.v = element, Vectors(element, target)
        self.lanes = self.v.lanes

    def every(self, machine):
        """All functions that a plan may ask for."""
        widths = sorted({(rows_of(machine, width), width) for width in (1, 2, 3, 4)})
        return [("substitute", rows, width, lower, divides)
                for rows, width in widths for lower in (0, 1) for divides in (0, 1) if divides or width > 1]

    def substitute(self, name, rows, width, lower, divides):
        """The step: X with A X = B; see SubstitutionWriter."""
        return SubstitutionWriter(self.element, self.v).substitute(name, rows, width, lower, divides)


class SubstitutionWriter:
    """Writes the text of one step. Kernels are shared by threads, each of which writes with one of these."""

    def __init__(self, element, v):
        self.element, self.v = element, v

    def substitute(self, name, rows, width, lower, divides):
        """The step: X with A X = B, columns by panels of `width` vectors, each of which stands in the thread's room
        while it is worked on. `rows` rows at a time are held in registers: what those before give is taken off, and
        then each is finished in turn. With `divides` by division, else by multiplication with 1 / the diagonal.
        """
        v, elt = self.v, self.element
        w = self.w = LLVMWriter(f"define void @{name}({STEP_ARGUMENTS})")
        f = self.f = {field: w.load("i64", w.at("i64", "%ints", i)) for i, field in enumerate(TRIANGULAR_FIELDS)}
        A, B, X = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(3)]
        less = w.is_("ne", f["less"], 0)
        product = w.load("ptr", w.at("ptr", "%buffers", w.pick(less, 3, 2)))
        self.across = width * v.lanes
        self.panel, self.diagonal = w.rooms((v.bytes, w.mul(f["n"], self.across)), (v.bytes, f["n"]))
        with w.loop("%begin", "%end") as tile:
            matrix, left = w.div(tile.i, f["blocks"]), w.mul(w.rem(tile.i, f["blocks"]), f["each"])
            right = w.least(w.add(left, f["each"]), f["cols"])
            self.a = w.at(elt, A, w.mul(matrix, f["a_matrix"]))
            b, x = [w.at(elt, base, w.mul(matrix, f[f"{one}_matrix"])) for one, base in (("b", B), ("x", X))]
            self.read_diagonal(divides)
            with w.loop(left, right, self.across) as c:
                cols = w.least(self.across, w.sub(right, c.i))
                self.move_panel(w.at(elt, b, w.mul(c.i, f["b_col"])), f["b_row"], f["b_col"], cols, False)
                with w.when(less):
                    start = w.add(w.mul(w.mul(matrix, f["n"]), f["cols"]), c.i)
                    self.take_off(w.at(elt, product, start), cols)
                self.solve_panel(rows, width, lower, divides)
                self.move_panel(w.at(elt, x, w.mul(c.i, f["x_col"])), f["x_row"], f["x_col"], cols, True)
        return v.declarations() + w.text()

    def read_diagonal(self, divides):
        """Note the diagonal, or what to multiply with instead."""
        w, f, elt = self.w, self.f, self.element
        step, unit = w.add(f["a_row"], f["a_col"]), w.is_("ne", f["unit"], 0)
        with w.loop(0, f["n"]) as i:
            one = w.load(elt, w.at(elt, self.a, w.mul(i.i, step)))
            if not divides:
                one = w(f"fdiv {elt} 1.0, {one}")
            w.store(elt, w.pick(unit, "1.0", one, elt), w.at(elt, self.diagonal, i.i))

    def row(self, i):
        """A row of the panel."""
        return self.w.at(self.element, self.panel, self.w.mul(i, self.across))

    def solve_panel(self, rows, width, lower, divides):
        w, n = self.w, self.f["n"]
        whole = w.mul(w.div(n, rows), rows)
        with w.loop(0, whole, rows) as step:
            self.solve_rows(step.i if lower else w.sub(w.sub(n, step.i), rows), rows, width, lower, divides)
        with w.loop(whole, n) as step:
            self.solve_rows(step.i if lower else w.sub(w.sub(n, step.i), 1), 1, width, lower, divides)

    def solve_rows(self, i, rows, width, lower, divides):
        """Finish `rows` rows from `i` on; those above, or those below, are."""
        w, v, f, elt = self.w, self.v, self.f, self.element
        lines = [w.at(elt, self.a, w.mul(w.add(i, r), f["a_row"])) for r in range(rows)]
        targets = [[w.at(elt, self.row(w.add(i, r)), j * v.lanes) for j in range(width)] for r in range(rows)]
        start, end = (0, i) if lower else (w.add(i, rows), f["n"])
        sums = [v.load(w, pointer) for line in targets for pointer in line]
        with w.loop(start, end, 1, [(v.type, one) for one in sums]) as k:
            known = [v.load(w, w.at(elt, self.row(k.i), j * v.lanes)) for j in range(width)]
            at = w.mul(k.i, f["a_col"])
            k.next = []
            for r in range(rows):
                k.next += self.less(k.values[r * width:(r + 1) * width], w.at(elt, lines[r], at), known)
        sums = [k.values[r * width:(r + 1) * width] for r in range(rows)]
        turns = list(range(rows)) if lower else list(range(rows - 1, -1, -1))
        for place, r in enumerate(turns):
            by = v.spread(w, w.load(elt, w.at(elt, self.diagonal, w.add(i, r))))
            sums[r] = [w(f"{'fdiv' if divides else 'fmul'} {v.type} {one}, {by}") for one in sums[r]]
            for one, pointer in zip(sums[r], targets[r], strict=True):
                v.store(w, one, pointer)
            for later in turns[place + 1:]:
                at = w.at(elt, lines[later], w.mul(w.add(i, r), f["a_col"]))
                sums[later] = self.less(sums[later], at, sums[r])

    def less(self, sums, factor_at, known):
        """Sums from which a number times what is known is taken off."""
        w, v = self.w, self.v
        factor = v.spread(w, w(f"fneg {self.element} {w.load(self.element, factor_at)}"))
        return [v.fma(w, factor, one, total) for one, total in zip(known, sums, strict=True)]

    # --- the panel --------------------------------------------------------------------------------------------------

    def move_panel(self, base, row, col, cols, back):
        """Fetch the panel from the matrix at `base`, or put it `back`: `cols` columns, behind which zeros follow."""
        w, v, n = self.w, self.v, self.f["n"]
        across = w.is_("eq", col, 1)

        def by_rows():
            with w.loop(0, n) as k:
                line = w.at(self.element, base, w.mul(k.i, row))
                with w.loop(0, self.across, v.lanes) as j:
                    some = v.some(w, w.most(0, w.least(v.lanes, w.sub(cols, j.i))))
                    here, there = w.at(self.element, self.row(k.i), j.i), w.at(self.element, line, j.i)
                    if back:
                        v.store_some(w, v.load(w, here), there, some)
                    else:
                        v.store(w, v.load_some(w, there, some), here)

        def by_columns():
            """Squares of as many rows and columns as lanes are turned in registers, if columns lie well."""
            turns = w.is_("eq", row, 1)
            whole = w.pick(turns, w.down(cols, v.lanes), 0)
            bottom = w.down(n, v.lanes)
            with w.loop(0, whole, v.lanes) as j:
                column = w.at(self.element, base, w.mul(j.i, col))
                with w.loop(0, bottom, v.lanes) as k:
                    here = [w.at(self.element, self.row(w.add(k.i, t)), j.i) for t in range(v.lanes)]
                    there = [w.at(self.element, column, w.add(k.i, w.mul(t, col))) for t in range(v.lanes)]
                    source, target = (here, there) if back else (there, here)
                    for one, pointer in zip(v.turned(w, [v.load(w, one) for one in source]), target, strict=True):
                        v.store(w, one, pointer)
                self.move_singly(base, row, col, j.i, w.add(j.i, v.lanes), bottom, n, back)
            self.move_singly(base, row, col, whole, cols, 0, n, back)
            if not back:
                with w.loop(cols, self.across) as j, w.loop(0, n) as k:
                    w.store(self.element, "0.0", w.at(self.element, self.row(k.i), j.i))

        w.either(across, by_rows, by_columns)

    def take_off(self, base, cols):
        """Take the rows at `base`, which have all columns, off those of the panel."""
        w, v, elt = self.w, self.v, self.element
        with w.loop(0, self.f["n"]) as k:
            line = w.at(elt, base, w.mul(k.i, self.f["cols"]))
            with w.loop(0, self.across, v.lanes) as j:
                some = v.some(w, w.most(0, w.least(v.lanes, w.sub(cols, j.i))))
                here = w.at(elt, self.row(k.i), j.i)
                other = v.load_some(w, w.at(elt, line, j.i), some)
                v.store(w, w(f"fsub {v.type} {v.load(w, here)}, {other}"), here)

    def move_singly(self, base, row, col, left, right, top, bottom, back):
        w, elt = self.w, self.element
        with w.loop(left, right) as j, w.loop(top, bottom) as k:
            here = w.at(elt, self.row(k.i), j.i)
            there = w.at(elt, base, w.add(w.mul(k.i, row), w.mul(j.i, col)))
            source, target = (here, there) if back else (there, here)
            w.store(elt, w.load(elt, source), target)


def rows_of(machine, width):
    """How many rows of a panel of so many vectors are held in registers."""
    return min(MAX_ROWS, machine.rows(width))
