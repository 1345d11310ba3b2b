"""The LLVM text of elements and rows that go where an index says. See scatter.py, which plans them.

A step's ints are the fields below, by name. Index and values have a step along each of three dimensions, 0 where all
of them are one.
"""
from typing import NamedTuple

from ....loops.step import STEP_ARGUMENTS
from ..llvm_writer import LLVMWriter

SCATTER_FIELDS = ("size count inner wide blocks flat v_o v_c v_i x_o x_c x_i based fresh skip").split()
SCATTER_OPERATIONS = "set", "sum", "prod", "max", "min"
FORMS = "line", "rows", "each"       # inner dimensions of one element; of rows that go together; of single elements
MASKS_TOGETHER = 8                   # elements of a mask that are looked at in one word
SHORT_VECTOR_BYTES = 16              # the vectors that go over what whole ones leave of a row


class ScatteredType(NamedTuple):
    """Elements as LLVM has them: floats, whole numbers with or without a sign, or truth values of a byte."""
    llvm: str
    bytes: int
    category: str


SCATTERED_TYPES = {"float32": ScatteredType("float", 4, "float"), "float64": ScatteredType("double", 8, "float"),
                   "int8": ScatteredType("i8", 1, "signed"), "int16": ScatteredType("i16", 2, "signed"),
                   "int32": ScatteredType("i32", 4, "signed"), "int64": ScatteredType("i64", 8, "signed"),
                   "uint8": ScatteredType("i8", 1, "unsigned"), "bool": ScatteredType("i8", 1, "truth")}
MOVED_TYPES = {size: ScatteredType(f"i{8 * size}", size, "signed") for size in (1, 2, 4, 8)}
SCATTER_INSTRUCTIONS = {"float": {"sum": "fadd", "prod": "fmul"},
              "truth": {"sum": "or", "prod": "and", "max": "or", "min": "and"},
              "signed": {"sum": "add", "prod": "mul"}, "unsigned": {"sum": "add", "prod": "mul"}}


def neutral(how, kind):
    """What leaves the other operand as it is, as a constant of LLVM's."""
    if how in ("set", "sum"):
        return "0.0" if kind.category == "float" else 0
    if how == "prod":
        return "1.0" if kind.category == "float" else 1
    if kind.category == "float":
        return "0xFFF0000000000000" if how == "max" else "0x7FF0000000000000"
    bits = 8 * kind.bytes
    least, most = {"signed": (-1 << bits - 1, (1 << bits - 1) - 1), "unsigned": (0, (1 << bits) - 1),
                   "truth": (0, 1)}[kind.category]
    return least if how == "max" else most


class ScatterKernels:
    """The LLVM text of the steps. Their buffers are the values, the index, what the result begins with if it is
    `based`, and the result."""

    word = "scatter"
    drivers = inner = ()

    def every(self, machine):
        """All functions for float32 and indices of int64, and those that move 4 bytes; others are compiled when they
        are needed."""
        return [("scatter", how, "4" if how == "set" else "float32", 64, form)
                for how in SCATTER_OPERATIONS for form in FORMS] + [("spread", 4)]

    def __init__(self, element, target):
        self.target, self.lanes = target, target.vector_bytes // 4

    def scatter(self, name, how, dtype, bits, form):
        """The step: some columns of one of the tables a tile."""
        kind = MOVED_TYPES[int(dtype)] if how == "set" else SCATTERED_TYPES[dtype]
        elt = kind.llvm
        w = LLVMWriter(f"define void @{name}({STEP_ARGUMENTS})")
        f = {field: w.load("i64", w.at("i64", "%ints", i)) for i, field in enumerate(SCATTER_FIELDS)}
        V, X, B = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(3)]
        O = w.load("ptr", w.at("ptr", "%buffers", w.add(f["based"], 2)))
        with w.loop("%begin", "%end") as t:
            o, left = w.div(t.i, f["blocks"]), w.mul(w.rem(t.i, f["blocks"]), f["wide"])
            cols = w.least(f["wide"], w.sub(f["inner"], left))
            start = w.add(w.mul(w.mul(o, f["size"]), f["inner"]), left)
            out, base = w.at(elt, O, start), w.at(elt, B, start)
            values = w.at(elt, V, w.add(w.mul(o, f["v_o"]), w.mul(left, f["v_i"])))
            index = w.at(f"i{bits}", X, w.add(w.mul(o, f["x_o"]), w.mul(left, f["x_i"])))
            self.begin(w, f, kind, out, base, cols)
            nothing = neutral(how, kind)
            with w.when(w.is_("ne", f["fresh"], 0)):
                self.every_row(w, f, kind, bits, form, index, values, out, cols,
                               lambda old, new, lanes: self.filled(elt, nothing, lanes), reads=False)
            self.every_row(w, f, kind, bits, form, index, values, out, cols,
                           lambda old, new, lanes: self.joined(w, how, kind, old, new, lanes), reads=how != "set")
        return "declare i64 @llvm.smin.i64(i64, i64)\n" + w.text()

    @staticmethod
    def many(elt, lanes):
        return elt if lanes == 1 else f"<{lanes} x {elt}>"

    @staticmethod
    def filled(elt, number, lanes):
        return number if lanes == 1 else f"<{', '.join([f'{elt} {number}'] * lanes)}>"

    def steps_of(self, kind):
        """How many elements are taken together, from the most to one."""
        return sorted({self.target.vector_bytes // kind.bytes, SHORT_VECTOR_BYTES // kind.bytes, 1}, reverse=True)

    def along(self, w, kind, count, write):
        """Call `write(i, lanes)` for vectors of `count` elements, and for what is left of them."""
        done = 0
        for lanes in self.steps_of(kind):
            whole = count if lanes == 1 else w.down(count, lanes)
            with w.loop(done, whole, lanes) as i:
                write(i.i, lanes)
            done = whole

    def begin(self, w, f, kind, out, base, cols):
        """What the result holds before anything goes there: zeros, or what `base` has, where that is not its place."""
        elt, whole = kind.llvm, w.is_("ne", f["flat"], 0)
        rows, each = w.pick(whole, 1, f["size"]), w.pick(whole, w.mul(f["size"], f["inner"]), cols)

        def fill(source):
            with w.loop(0, rows) as r:
                at = w.mul(r.i, f["inner"])
                to = w.at(elt, out, at)
                row = None if source is None else w.at(elt, source, at)

                def put(i, lanes):
                    type = self.many(elt, lanes)
                    value = self.filled(elt, "0.0" if kind.category == "float" else 0, lanes) if row is None else \
                        w.load(type, w.at(elt, row, i), kind.bytes)
                    w.store(type, value, w.at(elt, to, i), kind.bytes)

                self.along(w, kind, each, put)

        def copy():
            with w.when(w(f"icmp ne ptr {out}, {base}")):
                fill(base)

        w.either(w.is_("ne", f["based"], 0), copy, lambda: fill(None))

    def every_row(self, w, f, kind, bits, form, index, values, out, cols, join, reads=True):
        """Write `join(what is there, what goes there, lanes)` to each place that the index names, one after the
        other."""
        elt = kind.llvm

        def place(at):
            """Where an element of the index points, counted from the end if it is less than 0."""
            found = w.load(f"i{bits}", at)
            found = found if bits == 64 else w(f"sext i{bits} {found} to i64")
            return w.pick(w.is_("slt", found, 0), w.add(found, f["size"]), found)

        def put(to, source, lanes=1):
            type = self.many(elt, lanes)
            new, old = w.load(type, source, kind.bytes), w.load(type, to, kind.bytes) if reads else None
            w.store(type, join(old, new, lanes), to, kind.bytes)

        with w.loop(0, f["count"]) as c:
            places, source = w.at(f"i{bits}", index, w.mul(c.i, f["x_c"])), w.at(elt, values, w.mul(c.i, f["v_c"]))
            if form == "each":
                with w.loop(0, cols) as i:
                    to = w.at(elt, out, w.add(w.mul(place(w.at(f"i{bits}", places, w.mul(i.i, f["x_i"]))), f["inner"]),
                                              i.i))
                    put(to, w.at(elt, source, w.mul(i.i, f["v_i"])))
            else:
                at = place(places)
                with w.when(w.is_("ne", at, f["skip"])):
                    if form == "line":
                        put(w.at(elt, out, at), source)
                    else:
                        to = w.at(elt, out, w.mul(at, f["inner"]))
                        self.along(w, kind, cols, lambda i, lanes: put(w.at(elt, to, i), w.at(elt, source, i), lanes))

    def spread(self, name, size):
        """The step, one tile: of each element the next of the values, if the mask holds, or what `base` has. Where the
        mask holds for none of several they are copied together."""
        elt, lanes = f"i{8 * size}", MASKS_TOGETHER
        w = LLVMWriter(f"define void @{name}({STEP_ARGUMENTS})")
        count, last = [w.load("i64", w.at("i64", "%ints", i)) for i in range(2)]
        V, M, B, O = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(4)]

        def single(i, at):
            """Element `i`; gives where the next value is."""
            held = w(f"icmp ne i8 {w.load('i8', w.at('i8', M, i))}, 0")
            value = w.load(elt, w.at(elt, V, w.least(at, last)))                   # read in any case
            w.store(elt, w.pick(held, value, w.load(elt, w.at(elt, B, i)), elt), w.at(elt, O, i))
            return w.add(at, w.one_if(held))

        whole = w.down(count, lanes)
        place = w.spare("i64")
        w.store("i64", 0, place)
        with w.loop(0, whole, lanes) as block:
            masks = w.load(f"i{8 * lanes}", w.at("i8", M, block.i), 1)

            def copy():
                type = f"<{lanes} x {elt}>"
                w.store(type, w.load(type, w.at(elt, B, block.i), size), w.at(elt, O, block.i), size)

            def each():
                at = w.load("i64", place)
                for i in range(lanes):
                    at = single(w.add(block.i, i), at)
                w.store("i64", at, place)

            w.either(w(f"icmp eq i{8 * lanes} {masks}, 0"), copy, each)
        with w.loop(whole, count, 1, [("i64", w.load("i64", place))]) as i:
            i.next = [single(i.i, i.values[0])]
        return "declare i64 @llvm.smin.i64(i64, i64)\n" + w.text()

    def joined(self, w, how, kind, old, new, lanes):
        """Two elements, or vectors of them, made one."""
        if how == "set":
            return new
        type = self.many(kind.llvm, lanes)
        plain = SCATTER_INSTRUCTIONS[kind.category].get(how)
        if plain:
            return w(f"{plain} {type} {old}, {new}")
        mask = self.many("i1", lanes)
        if kind.category == "float":                       # NaN if either is
            better = w(f"fcmp {'ogt' if how == 'max' else 'olt'} {type} {new}, {old}")
            better = w(f"or {mask} {better}, {w(f'fcmp uno {type} {new}, {new}')}")
        else:
            sign = "s" if kind.category == "signed" else "u"
            better = w(f"icmp {sign}{'gt' if how == 'max' else 'lt'} {type} {new}, {old}")
        return w(f"select {mask} {better}, {type} {new}, {type} {old}")
