"""Write a function in LLVM's language with loops and branches: the hand-made kernels of gemm.py and convolve.py.

Values are their names in the text (`%v7`) or Python ints. Loops keep what changes in phis, with the test at the end, as
LLVM's optimiser would leave them: the text is compiled without passes over it (see cpu.py).
"""
from contextlib import contextmanager


class Loop:
    """An open loop: its counter `i`, what it carries (`values`), and what the next turn gets (`next`)."""

    __slots__ = ("i", "values", "next")


class Writer:
    """The lines of one function, opened by `head`."""

    def __init__(self, head):
        self.lines, self.block, self.count = [head + " {", "entry:"], "entry", 0

    def __call__(self, text):
        """One instruction; gives the name of its result."""
        name = self.name("%v")
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text):
        """One instruction without a result."""
        self.lines.append("  " + text)

    def name(self, word):
        self.count += 1
        return f"{word}{self.count}"

    def text(self):
        return "\n".join([*self.lines, "  ret void", "}"])

    # --- whole numbers ----------------------------------------------------------------------------------------------

    def add(self, a, b):
        return a + b if _numbers(a, b) else a if b == 0 else b if a == 0 else self(f"add nsw i64 {a}, {b}")

    def sub(self, a, b):
        return a - b if _numbers(a, b) else a if b == 0 else self(f"sub nsw i64 {a}, {b}")

    def mul(self, a, b):
        if _numbers(a, b):
            return a * b
        return 0 if 0 in (a, b) else a if b == 1 else b if a == 1 else self(f"mul nsw i64 {a}, {b}")

    def div(self, a, b):     return self(f"sdiv i64 {a}, {b}")
    def rem(self, a, b):     return self(f"srem i64 {a}, {b}")
    def least(self, a, b):   return self(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})")
    def most(self, a, b):    return self(f"call i64 @llvm.smax.i64(i64 {a}, i64 {b})")
    def down(self, a, b):    return self(f"and i64 {a}, {-b}")                       # to a multiple of a power of two
    def up(self, a, b):      return self.down(self.add(a, b - 1), b)
    def count_of(self, a, b):
        """How many pieces of `b` cover `a`."""
        return self.div(self.add(a, self.sub(b, 1)), b)

    def is_(self, how, a, b):                 return self(f"icmp {how} i64 {a}, {b}")
    def both(self, a, b):                     return self(f"and i1 {a}, {b}")
    def pick(self, c, a, b, type="i64"):      return self(f"select i1 {c}, {type} {a}, {type} {b}")
    def one_if(self, c):                      return self(f"zext i1 {c} to i64")

    # --- memory -----------------------------------------------------------------------------------------------------

    def at(self, type, base, index):
        return base if index == 0 else self(f"getelementptr {type}, ptr {base}, i64 {index}")

    def load(self, type, place, align=0):
        return self(f"load {type}, ptr {place}" + f", align {align}" * bool(align))

    def store(self, type, value, place, align=0):
        self.do(f"store {type} {value}, ptr {place}" + f", align {align}" * bool(align))

    # --- control ----------------------------------------------------------------------------------------------------

    def label(self, name):
        self.lines.append(f"{name}:")
        self.block = name

    @contextmanager
    def loop(self, start, end, step=1, carry=()):
        """`for i in range(start, end, step)`; `carry` lists (type, first value) of what else changes.

        Inside, `values` are this turn's and `next` is to be set; after it, `values` are the last.
        """
        loop, body, done, before = Loop(), self.name("loop"), self.name("end"), self.block
        self.do(f"br i1 {self.is_('slt', start, end)}, label %{body}, label %{done}")
        self.label(body)
        loop.i, loop.values = self.name("%i"), [self.name("%c") for _ in carry]
        loop.next, mark = list(loop.values), len(self.lines)
        yield loop
        after = self.add(loop.i, step)
        self.do(f"br i1 {self.is_('slt', after, end)}, label %{body}, label %{done}")
        ways = [(kind, f"[ {first}, %{before} ], [ {later}, %{self.block} ]")
                for (kind, first), later in zip([("i64", start), *carry], [after, *loop.next], strict=True)]
        self.lines[mark:mark] = [f"  {name} = phi {kind} {way}"
                                 for name, (kind, way) in zip([loop.i, *loop.values], ways, strict=True)]
        self.label(done)
        loop.values = [self(f"phi {kind} {way}") for kind, way in ways[1:]]

    @contextmanager
    def when(self, condition):
        """What is written inside runs where `condition` holds."""
        yes, done = self.name("yes"), self.name("end")
        self.do(f"br i1 {condition}, label %{yes}, label %{done}")
        self.label(yes)
        yield
        self.do(f"br label %{done}")
        self.label(done)

    def switch(self, value, cases):
        """Run the function in `cases` whose key `value` is; it writes what is to be done. No key, nothing done."""
        done, names = self.name("end"), {key: self.name("case") for key in cases}
        self.do(f"switch i64 {value}, label %{done} [ "
                + " ".join(f"i64 {key}, label %{name}" for key, name in names.items()) + " ]")
        for key, write in cases.items():
            self.label(names[key])
            write()
            self.do(f"br label %{done}")
        self.label(done)


def _numbers(a, b):
    return isinstance(a, int) and isinstance(b, int)


class Vectors:
    """Vectors of `element` ("float" or "double") of a Target, for a Writer: what the kernels do with them."""

    def __init__(self, element, target):
        self.element, self.bytes, self.target = element, {"float": 4, "double": 8}[element], target
        self.lanes = target.vector_bytes // self.bytes
        self.type = f"<{self.lanes} x {element}>"
        self.short = f"v{self.lanes}f{8 * self.bytes}"

    def declarations(self):
        v, m = self.type, f"<{self.lanes} x i1>"
        return "\n".join([
            f"declare {v} @llvm.fma.{self.short}({v}, {v}, {v})",
            f"declare {v} @llvm.masked.load.{self.short}.p0(ptr, i32, {m}, {v})",
            f"declare void @llvm.masked.store.{self.short}.p0({v}, ptr, i32, {m})",
            f"declare void @llvm.masked.store.v{self.lanes}i64.p0(<{self.lanes} x i64>, ptr, i32, {m})",
            "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
            "declare i64 @llvm.smin.i64(i64, i64)", "declare i64 @llvm.smax.i64(i64, i64)", ""])

    def load(self, w, place):                return w.load(self.type, place, self.bytes)
    def store(self, w, value, place):        w.store(self.type, value, place, self.bytes)

    def load_some(self, w, place, mask):
        """The lanes in `mask`, the others zero; only those are read."""
        return w(f"call {self.type} @llvm.masked.load.{self.short}.p0(ptr {place}, i32 {self.bytes}, "
                 f"<{self.lanes} x i1> {mask}, {self.type} zeroinitializer)")

    def store_some(self, w, value, place, mask):
        w.do(f"call void @llvm.masked.store.{self.short}.p0({self.type} {value}, ptr {place}, i32 {self.bytes}, "
             f"<{self.lanes} x i1> {mask})")

    def mask(self, w, count):
        """The first `count` lanes."""
        n = self.lanes
        many = w(f"insertelement <{n} x i64> poison, i64 {count}, i64 0")
        many = w(f"shufflevector <{n} x i64> {many}, <{n} x i64> poison, <{n} x i32> zeroinitializer")
        return w(f"icmp slt <{n} x i64> <{', '.join(f'i64 {i}' for i in range(n))}>, {many}")

    def between(self, w, first, end):
        """The lanes from `first` up to `end`, which may lie outside."""
        n, lanes = self.lanes, ", ".join(f"i32 {i}" for i in range(self.lanes))
        masks = []
        for how, bound in (("sge", first), ("slt", end)):
            bound = w(f"trunc i64 {bound} to i32")
            many = w(f"insertelement <{n} x i32> poison, i32 {bound}, i64 0")
            many = w(f"shufflevector <{n} x i32> {many}, <{n} x i32> poison, <{n} x i32> zeroinitializer")
            masks.append(w(f"icmp {how} <{n} x i32> <{lanes}>, {many}"))
        return w(f"and <{n} x i1> {masks[0]}, {masks[1]}")

    def spread(self, w, number):
        """A number in every lane."""
        one = w(f"insertelement {self.type} poison, {self.element} {number}, i64 0")
        return w(f"shufflevector {self.type} {one}, {self.type} poison, <{self.lanes} x i32> zeroinitializer")

    def fma(self, w, a, b, c):
        """`a * b + c`, rounded once where the processor has an instruction for it."""
        t = self.type
        if not self.target.fma:
            return w(f"fadd {t} {w(f'fmul {t} {a}, {b}')}, {c}")
        return w(f"call {t} @llvm.fma.{self.short}({t} {a}, {t} {b}, {t} {c})")

    def total(self, w, value):
        """The sum of the lanes, halves added to halves."""
        n = self.lanes
        while n > 1:
            t, half = f"<{n} x {self.element}>", f"<{n // 2} x i32>"
            low, high = [w(f"shufflevector {t} {value}, {t} poison, {half} <{_list(range(s, s + n // 2))}>")
                         for s in (0, n // 2)]
            n //= 2
            value = w(f"fadd <{n} x {self.element}> {low}, {high}")
        return w(f"extractelement <1 x {self.element}> {value}, i64 0")


def _list(indices):
    """Lanes, as a shuffle lists them."""
    return ", ".join(f"i32 {i}" for i in indices)
