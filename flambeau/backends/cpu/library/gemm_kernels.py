"""The LLVM text of products of matrices, and the functions compiled from it. See gemm.py, which plans them.

A step's ints are the fields below, by name.
"""
import ctypes
import platform
from contextlib import contextmanager

from ....loops.step import STEP_ARGUMENTS
from ....loops.target import pausing
from .. import machine_code
from ..llvm_writer import LLVMWriter
from ..memory.allocator import CACHE_LINE_BYTES
from .gemm_block import TileBlock
from .gemm_micro import MAX_KERNEL_ROWS, MAX_KERNEL_VECTORS, MicroKernel
from .gemm_packing import COPY, GATHER, TURN, PackingKernels

X86 = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686", "x86")
LLVM_ELEMENT = {"float32": "float", "float64": "double"}
MICRO_KERNELS = "micro", "micro_ahead", "micro_next"   # innermost kernels; those that ask for B, for the next matrices
MAX_AHEAD_VECTORS = 4                       # across, of those that ask
APART_BYTES = 16 << 10                      # room in which sums of parts are put far from B, in the first cache
PANEL_WIDTHS = {32: (3, 2, 4, 1, 6, 8), 16: (3, 2, 1, 4)}   # registers → vectors across that are tried, in that order
MAX_TINY = 4                                # rows, columns and k of matrices that are multiplied number by number
DOT_COLUMNS = {1: 5, 2: 4, 4: 4, 8: 3}     # rows of a block of dot products → columns

STEP_FIELDS = ("M N K tile_m tile_n tiles_m tiles_n block rows rest_rows width a_row a_col b_row b_col c_row c_col "
               "a_pack pack_a pack_b ahead a_room b_room group turned kernels size1 size2 a0 a1 a2 b0 b1 b2 c0 c1 c2 "
               "parts whole_k shares").split()


class GemmKernels(PackingKernels):
    """The LLVM text of all functions for one element type."""

    word = "product"              # in the names of the functions
    drivers = ("gemm", "gemm_shared")          # steps that leave their work to others,
    inner = (*MICRO_KERNELS, "pack_a", "pack_b")                # which are called by their address
    fields = tuple(STEP_FIELDS)                # of the ints of a step of products
    pack_share = 1.0                           # of the cycles that gemm.py says packing takes

    def __init__(self, element, target):
        super().__init__(element, target)
        self.whole_lines = target.vector_bytes == CACHE_LINE_BYTES
        self.products_a_cycle = 2 * self.lanes

    def every(self, machine):
        """All functions that a plan may ask for: (a method, *its arguments) of each."""
        packs = [(pack, how) for pack in ("pack_a", "pack_b") for how in (COPY, TURN, GATHER)]
        return [("gemm",), ("gemm_shared",), ("clear_counts",), ("add_parts",), *packs,
                *[("tiny", cols) for cols in range(1, MAX_TINY + 1)],
                *[("dots", *block) for block in DOT_COLUMNS.items()], *machine.blocks(), *machine.blocks_ahead()]

    def micro_ahead(self, name, rows, width):
        """The innermost kernel for a B that is read once, from memory: it comes nearer beforehand."""
        return self.micro(name, rows, width, ahead=True)

    def micro_next(self, name, rows, width):
        """The innermost kernel for one of many small matrices: those that come after it come nearer meanwhile."""
        return self.micro(name, rows, width, following=True)

    def micro(self, name, rows, width, ahead=False, following=False):
        """The innermost kernel: a block of `rows` times `width` vectors of C, held in registers along k.

        %table tells for each k how far on A and B are from the k before (the first: from %a and %b), in elements. The
        next pair lies %step further in the table, so that with 0 one pair does for all of them; a pair beyond the last
        is read. %a.rows and %b.cols are offsets of rows and columns, as %c.rows and %c.cols are for the result, to
        whose contents the sums are added if %add is not 0. Rows or columns may be there several times: all is read
        before anything is written. %panels such blocks are done, %b.far and %c.far apart; and %strips times, from A and
        C on %a.down and %c.down further each time. What lies at %a.next and %b.next, as much of each as is read of A,
        is what `following` asks for.
        """
        return MicroKernel(self, rows, width, ahead, following).text(name)

    def gemm(self, name):
        """The step: tiles one by one, their blocks of k, panels of columns, rows."""
        elt = self.element
        w, f = self.open_gemm(name)
        split = w.is_("sgt", f["parts"], 1)                # then sums of parts go to working memory, behind the result
        A, B, C = [w.load("ptr", w.at("ptr", "%buffers", i))
                   for i in (f["turned"], w.sub(1, f["turned"]), w.pick(split, 3, 2))]
        C = w.pick(split, self.apart(w, C, B), C, "ptr")
        room = self.gemm_room(w, f)
        with self.tiles(w, f) as (i, j, part, at):
            top, left = w.mul(i, f["tile_m"]), w.mul(j, f["tile_n"])
            m = w.least(f["tile_m"], w.sub(f["M"], top))
            cols = w.least(f["tile_n"], w.sub(f["N"], left))
            a = w.at(elt, w.at(elt, A, at["a"]), w.mul(top, f["a_row"]))
            b = w.at(elt, w.at(elt, B, at["b"]), w.mul(left, f["b_col"]))
            c = w.at(elt, w.at(elt, C, at["c"]), w.add(w.mul(top, f["c_row"]), left))
            f["until"] = w.least(f["K"], w.sub(f["whole_k"], w.pick(split, w.mul(part, f["K"]), 0)))
            with w.loop(0, w.most(f["until"], 1), f["block"]) as k:      # no k at all: once, with nothing to add
                following = w.at(elt, a, f["a2"]), w.at(elt, b, f["b2"])       # most often: a batch is one dimension
                self.block(w, f, k.i, m, cols, a, b, c, room, following)
        return "\n".join([self.v.declarations(), self.gather(), w.text()])

    def gemm_shared(self, name):
        """The step of one matrix whose tiles, of one block of k, threads take one by one; %begin to %end are threads.

        A thread packs a block of columns, and then takes tiles of its rows until there are no more; when all of k is
        done, it helps with the columns of others. Working memory, behind the result, counts: the tiles of each block
        of columns and of k that were taken, and the blocks of k that each tile has. All begin as 0 (`clear_counts`).
        """
        elt = self.element
        w, f = self.open_gemm(name)
        A, B, C, counts = [w.load("ptr", w.at("ptr", "%buffers", i))
                           for i in (f["turned"], w.sub(1, f["turned"]), 2, 3)]
        room, (pause, declared) = self.gemm_room(w, f), pausing(self.v.target.pause)
        f["until"] = f["K"]
        blocks = w.count_of(f["K"], f["block"])

        def count(number):
            """One count, in a cache line of its own."""
            return w.at("i8", counts, w.mul(number, CACHE_LINE_BYTES))

        with w.loop("%begin", "%end") as t:
            first = w.rem(t.i, f["tiles_n"])
            own = w.count_of(w.sub(f["tiles_n"], first), f["shares"])        # blocks of columns: this and every nth
            with w.loop(0, w.add(own, f["tiles_n"])) as turn:
                others = w.rem(w.add(first, w.sub(turn.i, own)), f["tiles_n"])
                j = w.pick(w.is_("slt", turn.i, own), w.add(first, w.mul(turn.i, f["shares"])), others)
                left = w.mul(j, f["tile_n"])
                cols = w.least(f["tile_n"], w.sub(f["N"], left))
                b, c = w.at(elt, B, w.mul(left, f["b_col"])), w.at(elt, C, left)
                with w.loop(0, blocks) as block:
                    taken = count(w.add(w.mul(j, blocks), block.i))

                    def each_tile(do, taken=taken, block=block, j=j):
                        with w.again() as leave:
                            i = w(f"atomicrmw add ptr {taken}, i64 1 monotonic, align 8")
                            leave(w.is_("sge", i, f["tiles_m"]))
                            done = count(w.add(w.mul(f["tiles_n"], blocks), w.add(w.mul(j, f["tiles_m"]), i)))
                            with w.again() as ready:                      # until the block of k before is finished
                                ready(w.is_("eq", w(f"load atomic i64, ptr {done} acquire, align 8"), block.i))
                                w.do(pause)
                            top = w.mul(i, f["tile_m"])
                            do(top, w.least(f["tile_m"], w.sub(f["M"], top)))
                            w.do(f"store atomic i64 {w.add(block.i, 1)}, ptr {done} release, align 8")

                    some = w.is_("slt", w(f"load atomic i64, ptr {taken} monotonic, align 8"), f["tiles_m"])
                    with w.when(some):
                        self.block(w, f, w.mul(block.i, f["block"]), f["tile_m"], cols, A, b, c, room,
                                   each_tile=each_tile)
        return "\n".join([self.v.declarations(), declared, self.gather(), w.text()])

    def clear_counts(self, name):
        """The step before `gemm_shared`."""
        w, f = self.open_gemm(name)
        counts = w.load("ptr", w.at("ptr", "%buffers", 3))
        each = w.add(w.count_of(f["K"], f["block"]), f["tiles_m"])
        with w.loop(0, w.mul(w.mul(f["tiles_n"], each), CACHE_LINE_BYTES), CACHE_LINE_BYTES) as i:
            w.store("i64", 0, w.at("i8", counts, i.i))
        return self.v.declarations() + w.text()

    def open_gemm(self, name):
        """A writer for a step of products, and its fields by name."""
        w = LLVMWriter(f"define void @{name}({STEP_ARGUMENTS})")
        return w, {field: w.load("i64", w.at("i64", "%ints", i)) for i, field in enumerate(self.fields)}

    def gemm_room(self, w, f):
        """Where a step of products packs, and what else it needs."""
        elt, n = self.element, self.lanes
        a_pack, b_pack = w.rooms(*[(self.v.bytes, f[room]) for room in ("a_room", "b_room")])
        narrow = w.spare(f"[{MAX_KERNEL_ROWS * n} x {elt}]")  # C, where it is narrower than a vector
        tables = {word: w.spare(f"[{size} x i64]") for word, size in
                  (("step", 4), ("a_rows", MAX_KERNEL_ROWS), ("c_rows", MAX_KERNEL_ROWS),
                   ("cols", MAX_KERNEL_VECTORS), ("last", MAX_KERNEL_VECTORS))}
        for j in range(MAX_KERNEL_VECTORS):
            w.store("i64", j * n, w.at("i64", tables["cols"], j))
        return a_pack, b_pack, narrow, tables

    def apart(self, w, room, b):
        """Where in working memory sums of parts start: as far as can be from B, as the first cache sees it. Rows that
        lie a multiple of 16 KiB apart have four lines in some, and one of B's, or of C's, would be pushed out."""
        room, b = [w(f"ptrtoint ptr {pointer} to i64") for pointer in (room, b)]
        on = w(f"and i64 {w.sub(w.add(b, APART_BYTES // 2), room)}, {APART_BYTES - CACHE_LINE_BYTES}")
        return w(f"inttoptr i64 {w.add(room, on)} to ptr")

    def add_parts(self, name):
        """The step after one that left sums of parts of k in working memory: C is the sum of them, in their order."""
        v, elt, n = self.v, self.element, self.lanes
        w, f = self.open_gemm(name)
        B, C, room = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in (w.sub(1, f["turned"]), 2, 3)]
        room, across = self.apart(w, room, B), w.div(f["c2"], f["M"])
        last = w.spare(v.type)
        with w.loop("%begin", "%end") as t:
            row, left = w.div(t.i, f["tiles_n"]), w.mul(w.rem(t.i, f["tiles_n"]), f["tile_n"])
            right = w.least(w.add(left, f["tile_n"]), f["N"])
            source, to = w.at(elt, room, w.mul(row, across)), w.at(elt, C, w.mul(row, f["c_row"]))
            with w.loop(left, right, n) as j:
                pointer = w.at(elt, source, j.i)
                with w.loop(1, f["parts"], 1, [("ptr", pointer), (v.type, v.load(w, pointer))]) as p:
                    further = w.at(elt, p.values[0], f["c2"])
                    p.next = [further, w(f"fadd {v.type} {p.values[1]}, {v.load(w, further)}")]
                total, rest = p.values[1], w.sub(right, j.i)

                def ragged(total=total, rest=rest, j=j):
                    v.store(w, total, last)
                    v.move_rest(w, w.at(elt, to, j.i), last, rest)

                w.either(w.is_("sge", rest, n), lambda total=total, j=j: v.store(w, total, w.at(elt, to, j.i)), ragged)
        return v.declarations() + w.text()

    @contextmanager
    def tiles(self, w, f):
        """For tiles %begin to %end: row and column among the tiles of a matrix, the index along the innermost dimension
        of the batch, and where the matrices of that batch start. They are counted on: divisions take longer than a
        small product."""
        limits = [f[size] for size in ("tiles_n", "tiles_m", "size2", "size1")]
        first, rest = [], "%begin"
        for limit in limits:
            first.append(w.rem(rest, limit))
            rest = w.div(rest, limit)
        with w.loop("%begin", "%end", 1, [("i64", at) for at in (*first, rest)]) as t:
            j, i, z, y, x = t.values
            yield i, j, z, {m: w.add(w.add(w.mul(x, f[m + "0"]), w.mul(y, f[m + "1"])), w.mul(z, f[m + "2"]))
                            for m in "abc"}
            t.next, on = [], 1
            for at, limit in zip((j, i, z, y), limits, strict=True):
                later = w.add(at, on)
                over = w.is_("eq", later, limit)
                t.next.append(w.pick(over, 0, later))
                on = w.one_if(over)
            t.next.append(w.add(x, on))

    def block(self, w, f, k, m, cols, a, b, c, room, following=("null", "null"), each_tile=None):
        """One block of k of a tile: later blocks add to what earlier ones left in C. With `each_tile`, of all tiles of
        these columns that it hands to a function (first row, rows). `following` are matrices that are read next."""
        TileBlock(self, w, f, k, m, cols, a, b, room, following, each_tile).write(c, m, each_tile)

    def tiny(self, name, cols):
        """The step for matrices with few numbers and `cols` columns: one matrix a tile, number by number."""
        v, elt = self.v, self.element
        w, f = self.open_gemm(name)
        A, B, C = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in (f["turned"], w.sub(1, f["turned"]), 2)]
        b_cols, c_cols = [[w.mul(j, f[step]) for j in range(cols)] for step in ("b_col", "c_col")]
        with self.tiles(w, f) as (_, _, _, at):
            a, b, c = [w.at(elt, base, at[which]) for base, which in ((A, "a"), (B, "b"), (C, "c"))]
            with w.loop(0, f["M"], 1, [("ptr", a), ("ptr", c)]) as i:
                row, to = i.values
                with w.loop(0, f["K"], 1, [("ptr", row), ("ptr", b), *[(elt, "0.0")] * cols]) as k:
                    left, right, *sums = k.values
                    x, ys = w.load(elt, left), [w.load(elt, w.at(elt, right, col)) for col in b_cols]
                    k.next = [w.at(elt, left, f["a_col"]), w.at(elt, right, f["b_row"]),
                              *[v.scalar_fma(w, x, y, one) for y, one in zip(ys, sums, strict=True)]]
                for one, col in zip(k.values[2:], c_cols, strict=True):
                    w.store(elt, one, w.at(elt, to, col))
                i.next = [w.at(elt, row, f["a_row"]), w.at(elt, to, f["c_row"])]
        return v.declarations() + v.scalar_declarations() + w.text()

    def dots(self, name, rows, cols):
        """The step for few rows: a block of `rows` times `cols` sums at a time, each by vectors along k."""
        v, elt, n = self.v, self.element, self.lanes
        w, f = self.open_gemm(name)
        A, B, C = [w.load("ptr", w.at("ptr", "%buffers", i)) for i in (f["turned"], w.sub(1, f["turned"]), 2)]
        whole = w.down(f["K"], n)
        rest = w.sub(f["K"], whole)
        last_row, last_col = w.sub(f["M"], 1), w.sub(f["N"], 1)
        lines = w.spare(f"[{rows + cols} x ptr]")
        ends = w.spare(f"[{rows + cols} x {v.type}]")             # what is left of each at the end of k
        sums = w.spare(f"[{rows * cols} x {v.type}]")
        with w.loop(0, rows + cols) as i:
            v.store(w, "zeroinitializer", w.at(v.type, ends, i.i))
        with self.tiles(w, f) as (i, j, _, at):
            top, left = w.mul(i, f["tile_m"]), w.mul(j, f["tile_n"])
            bottom = w.least(w.add(top, f["tile_m"]), f["M"])
            right = w.least(w.add(left, f["tile_n"]), f["N"])
            a, b, c = [w.at(elt, base, at[which]) for base, which in ((A, "a"), (B, "b"), (C, "c"))]
            with w.loop(top, bottom, rows) as r, w.loop(left, right, cols) as q:
                # beyond the edge the last row or column is read again, and its sum is not stored
                left_of = [w.at(elt, a, w.mul(w.least(w.add(r.i, x), last_row), f["a_row"])) for x in range(rows)]
                right_of = [w.at(elt, b, w.mul(w.least(w.add(q.i, y), last_col), f["b_col"])) for y in range(cols)]
                for i, line in enumerate((*left_of, *right_of)):
                    w.store("ptr", line, w.at("ptr", lines, i))
                with w.loop(0, whole, n, [(v.type, "zeroinitializer")] * (rows * cols)) as k:
                    many = [v.load(w, w.at(elt, p, k.i)) for p in right_of]
                    k.next = []
                    for x, p in enumerate(left_of):
                        one = v.load(w, w.at(elt, p, k.i))
                        k.next += [v.fma(w, one, y, s) for y, s in zip(many, k.values[x * cols:], strict=False)]
                with w.when(w.is_("sgt", rest, 0)), w.loop(0, rows + cols) as i:
                    source = w.at(elt, w.load("ptr", w.at("ptr", lines, i.i)), whole)
                    v.move_rest(w, w.at(v.type, ends, i.i), source, rest)
                for i, total in enumerate(k.values):
                    v.store(w, total, w.at(v.type, sums, i))
                there = w.least(rows, w.sub(bottom, r.i)), w.least(cols, w.sub(right, q.i))
                with w.loop(0, there[0]) as x:
                    one = v.load(w, w.at(v.type, ends, x.i))
                    with w.loop(0, there[1]) as y:
                        other = v.load(w, w.at(v.type, ends, w.add(y.i, rows)))
                        total = v.load(w, w.at(v.type, sums, w.add(w.mul(x.i, cols), y.i)))
                        offset = w.add(w.mul(w.add(r.i, x.i), f["c_row"]), w.mul(w.add(q.i, y.i), f["c_col"]))
                        w.store(elt, v.total(w, v.fma(w, one, other, total)), w.at(elt, c, offset))
        return v.declarations() + w.text()


# --- the machine ------------------------------------------------------------------------------------------------------


class CompiledKernels:
    """The compiled functions of one class of kernels and one element type (or DotUnit: gemm_units.py)."""

    def __init__(self, dtype, cls):
        target = machine_code.target()
        self.kernels = cls(LLVM_ELEMENT.get(dtype, dtype), target)
        self.size, self.suffix = {"float32": (4, "f32"), "float64": (8, "f64")}.get(dtype) or (dtype.size, dtype.suffix)
        self.tail = f"_{cls.word}_{self.suffix}"
        self.lanes, self.registers = self.kernels.lanes, 32 if target.vector_bytes == 64 or not X86 else 16
        # addresses of the innermost kernels that were made, by which of MICRO_KERNELS they are
        self.tables = {micro: (ctypes.c_int64 * (MAX_KERNEL_ROWS * MAX_KERNEL_VECTORS))() for micro in MICRO_KERNELS}
        self.compile, self.compile_beforehand = machine_code.functions, machine_code.make_ready
        self.packaged, self.made = machine_code.packaged_functions, {}
        self.texts_ahead = {}         # how a text is written → the text, of what was made ready and not asked for yet
        self.written = {}             # address → how its text is written: a method of the kernels, and its arguments

    def rows(self, width):
        """The most rows whose block fits in the registers, beside `width` vectors of B and one of A."""
        return max(1, min(MAX_KERNEL_ROWS, (self.registers - width - 1) // width))

    def blocks(self):
        """All innermost kernels that a plan may ask for."""
        return sorted({("micro", rows, vectors) for width in PANEL_WIDTHS[self.registers]
                       for rows in range(1, self.rows(width) + 1) for vectors in range(1, width + 1)})

    def blocks_ahead(self):
        """Those among them that ask for something beforehand: where a vector is a line of the cache."""
        few = [block for block in self.blocks() if block[2] <= MAX_AHEAD_VECTORS]
        return [(micro, *block[1:]) for micro in MICRO_KERNELS[1:] for block in few
                if self.kernels.whole_lines]

    def every(self):
        """{name: text} of all functions that a plan may ask for."""
        return {self._name(how): self._text(self._name(how), how) for how in self.kernels.every(self)}

    def functions(self, wanted, blocks=(), hasty=False, micro="micro"):
        """The addresses of `wanted`, each (a method of the kernels, *its arguments), and then that of the table of the
        innermost kernels `micro`, with those for `blocks` (rows, width) in it. What is missing is compiled
        together; quickly at first where it leaves its work to others, or all of it if `hasty`."""
        inner = [(micro, *block) for block in blocks]
        missing = {self._name(how): how for how in (*wanted, *inner) if how not in self.made}
        made = self._packaged(missing) if missing else {}
        texts = {name: self.texts_ahead.pop(how, None) or self._text(name, how) for name, how in missing.items()
                 if name not in made}
        quickly = [name for name in texts if hasty or missing[name][0] in self.kernels.drivers]
        made |= self.compile(texts, quickly=quickly)
        for name, how in missing.items():
            self.made[how] = made[name]
            self.written[made[name]] = how[0], name, *how[1:]
        for how in inner:
            _, rows, width = how
            self.tables[micro][(rows - 1) * MAX_KERNEL_VECTORS + width - 1] = self.made[how]
        return [*[self.made[how] for how in wanted], ctypes.addressof(self.tables[micro])]

    def _name(self, how):
        what, *shape = how
        return f"{what}_{'x'.join(map(str, shape))}_{self.suffix}" if what in MICRO_KERNELS else \
            "_".join(map(str, how)) + self.tail

    def _text(self, name, how):
        return getattr(self.kernels, how[0])(name, *how[1:])

    def words(self, name):
        """What the text of a function is written from: classes that have one of the same name have the same text."""
        return f"{name} of the library, {self.registers} registers"

    def _packaged(self, names, asked=True):
        """{name: address} of those that came with the package."""
        found = self.packaged([self.words(name) for name in names], asked)
        return {name: found[self.words(name)] for name in names if self.words(name) in found}

    def make_ready(self, wanted, blocks):
        """Have what `functions` would ask for compiled beforehand."""
        named = {self._name(how): how for how in (*wanted, *[("micro", *block) for block in blocks])}
        ready = self._packaged(named, asked=False)
        texts = {name: self._text(name, how) for name, how in named.items() if name not in ready}
        self.texts_ahead = {how: texts[name] for name, how in named.items() if name in texts and how not in self.made}
        self.compile_beforehand(texts, [name for name, how in named.items() if how[0] in self.kernels.drivers])

    def function(self, what, *shape, hasty=False):
        """The address of the step `what`."""
        return self.functions([(what, *shape)], hasty=hasty)[0]

    def texts(self, address):
        """The text of the step at `address`; and, where it calls others by their address, those of all such that were
        made so far."""
        def text(how): return getattr(self.kernels, how[0])(*how[1:])
        own = text(self.written[address])
        inner = [how for how in self.written.values() if how[0] in self.kernels.inner] if "call void %" in own else []
        return [own, *map(text, inner)]


_hosts: dict = {}             # never emptied: steps that were planned have the addresses of the tables in them


def compiled_kernels(dtype, cls=GemmKernels):
    """The compiled functions of `cls` for `dtype`, and for the processor in use; made at first use."""
    key = dtype, cls, machine_code.processor()
    return _hosts.get(key) or _hosts.setdefault(key, CompiledKernels(dtype, cls))


def texts_of(address):
    """The LLVM texts behind a step of the library, for users who want to look."""
    return next(machine.texts(address) for machine in list(_hosts.values()) if address in machine.written)
