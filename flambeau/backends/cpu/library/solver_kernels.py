"""The LLVM text of the steps around LAPACK: matrices laid column by column, functions called for each matrix of a
batch, triangles cleared. See solvers.py, which makes programs of them.

Arrays are moved as whole numbers of their elements' size, so that a step is the same for all dtypes of a size.
"""
from ....loops.step import STEP_ARGUMENTS
from ..llvm_writer import LLVMWriter

LAY_FIELDS = "blocks rows cols from_matrix from_row from_col to_matrix to_col".split()
CLEAR_FIELDS = "rows cols matrix col upper".split()
LAY_COLUMNS = 64              # of a tile
LAY_BLOCK = 8                 # rows and columns that are moved together: a line of the cache each
HIDDEN_LENGTHS = 4            # of words, which Fortran is given behind all arguments; more than there are do no harm
WORD_TYPES = {4: "i32", 8: "i64", 16: "<2 x i64>"}
MAX_ARGUMENTS = 19


class SolverKernels:
    """The LLVM text of the steps."""

    word = "solver"
    drivers = inner = ()

    def __init__(self, element, target):
        self.lanes = 1

    def every(self, machine):
        """All functions that are asked for."""
        return [*[("call", count) for count in range(5, MAX_ARGUMENTS + 1)],
                *[(step, size) for step in ("lay", "clear") for size in WORD_TYPES]]

    def open(self, name, fields):
        w = LLVMWriter(f"define void @{name}({STEP_ARGUMENTS})")
        return w, {field: w.load("i64", w.at("i64", "%ints", i)) for i, field in enumerate(fields)}

    def text(self, w):
        return "declare i64 @llvm.smin.i64(i64, i64)\n" + w.text()

    def call(self, name, count):
        """The step: a function of `count` arguments for every matrix of a tile. All arguments are addresses, as Fortran
        wants them; the ints are the function, how many matrices, how many a tile, and for each argument how many bytes
        it is further for the next matrix, and for the next tile."""
        w, f = self.open(name, ("function", "matrices", "each"))
        function = w.function(f["function"])
        bases = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(count)]
        steps = [[w.load("i64", w.at("i64", "%ints", 3 + 2 * i + which)) for which in range(2)] for i in range(count)]
        with w.loop("%begin", "%end") as tile:
            first = w.mul(tile.i, f["each"])
            with w.loop(first, w.least(w.add(first, f["each"]), f["matrices"])) as one:
                given = [w.at("i8", base, w.add(w.mul(one.i, by), w.mul(tile.i, by_tile)))
                         for base, (by, by_tile) in zip(bases, steps, strict=True)]
                words = ", ".join([*[f"ptr {pointer}" for pointer in given], *["i64 1"] * HIDDEN_LENGTHS])
                w.do(f"call void {function}({words})")
        return self.text(w)

    def lay(self, name, size):
        """The step: matrices of any strides, copied so that they lie column by column. A tile is some columns of one;
        the buffers are the source and the copy."""
        w, f = self.open(name, LAY_FIELDS)
        source, copy = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(2)]
        type = WORD_TYPES[size]

        def move(i, j, block):
            """`block` rows and columns from (i, j) on."""
            there = w.add(w.mul(i, f["from_row"]), w.mul(j, f["from_col"]))
            here = w.add(i, w.mul(j, f["to_col"]))
            for col in range(block):
                read = [w.load(type, w.at(type, start, w.add(there, w.add(w.mul(f["from_row"], row),
                                                                          w.mul(f["from_col"], col)))), size)
                        for row in range(block)]
                for row, one in enumerate(read):
                    w.store(type, one, w.at(type, to, w.add(here, w.add(w.mul(f["to_col"], col), row))), size)

        with w.loop("%begin", "%end") as tile:
            matrix, left = w.div(tile.i, f["blocks"]), w.mul(w.rem(tile.i, f["blocks"]), LAY_COLUMNS)
            right = w.least(w.add(left, LAY_COLUMNS), f["cols"])
            start = w.at(type, source, w.mul(matrix, f["from_matrix"]))
            to = w.at(type, copy, w.mul(matrix, f["to_matrix"]))
            whole = w.add(left, w.down(w.sub(right, left), LAY_BLOCK))
            bottom = w.down(f["rows"], LAY_BLOCK)
            with w.loop(0, bottom, LAY_BLOCK) as i:
                with w.loop(left, whole, LAY_BLOCK) as j:
                    move(i.i, j.i, LAY_BLOCK)
            for rows, cols in (((0, bottom), (whole, right)), ((bottom, f["rows"]), (left, right))):
                with w.loop(*cols) as j, w.loop(*rows) as i:
                    move(i.i, j.i, 1)
        return self.text(w)

    def clear(self, name, size):
        """The step: one triangle of matrices that lie column by column set to zero, the upper one, or else the lower. A
        tile is a matrix."""
        w, f = self.open(name, CLEAR_FIELDS)
        type = WORD_TYPES[size]
        zero = "zeroinitializer" if size == 16 else 0
        base = w.load("ptr", "%buffers")
        upper = w.is_("ne", f["upper"], 0)
        with w.loop("%begin", "%end") as tile:
            start = w.at(type, base, w.mul(tile.i, f["matrix"]))
            with w.loop(0, f["cols"]) as j:
                top = w.pick(upper, 0, w.add(j.i, 1))
                bottom = w.pick(upper, w.least(j.i, f["rows"]), f["rows"])
                with w.loop(top, bottom) as i:
                    w.store(type, zero, w.at(type, start, w.add(i.i, w.mul(j.i, f["col"]))), size)
        return self.text(w)
