"""Write a function in LLVM's language with loops and branches: the hand-made kernels of library/.

Values are their names in the text (`%v7`) or Python ints. Loops keep what changes in phis, with the test at the end, as
LLVM's optimiser would leave them: the text is compiled without passes over it (see machine_code.py).
"""
from contextlib import contextmanager

from ...loops.step import MAX_ROOM_BYTES, PROBED, ROOM_ALIGNMENT


class Loop:
    """An open loop: its counter `i`, what it carries (`values`), and what the next turn gets (`next`)."""

    __slots__ = ("i", "values", "next")


class LLVMWriter:
    """The lines of one function, opened by `head`."""

    def __init__(self, head):
        self.lines, self.block, self.count = [], "entry", 0
        self.head = [f"{head} {PROBED} {{", "entry:"]

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
        return "\n".join([*self.head, *self.lines, "  ret void", "}"])

    # --- whole numbers ----------------------------------------------------------------------------------------------

    def add(self, a, b):
        return a + b if _numbers(a, b) else a if b == 0 else b if a == 0 else self(f"add nsw i64 {a}, {b}")

    def sub(self, a, b):
        return a - b if _numbers(a, b) else a if b == 0 else self(f"sub nsw i64 {a}, {b}")

    def mul(self, a, b):
        if _numbers(a, b):
            return a * b
        return 0 if 0 in (a, b) else a if b == 1 else b if a == 1 else self(f"mul nsw i64 {a}, {b}")

    def div(self, a, b):     return a if b == 1 else self(f"sdiv i64 {a}, {b}")
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

    def spare(self, type):
        """Room for one, in the function's frame."""
        name = self.name("%room")
        self.head.append(f"  {name} = alloca {type}, align 64")
        return name

    def rooms(self, *wanted):
        """Parts of the thread's room, one after the other, for each (bytes of an element, how many) of a step, which
        asks once; see Note [A thread's room] in loops/step.py."""
        parts, end = [], 0
        for size, count in wanted:
            parts.append(self.at("i8", "%room", end))
            end = self.add(end, self.up(self.mul(count, size), ROOM_ALIGNMENT))
        too_much, none = self.is_("ugt", end, MAX_ROOM_BYTES), self("icmp eq ptr %room, null")
        with self.when(self(f"or i1 {too_much}, {none}")):
            self.do("call void @llvm.trap()")
        self.head.insert(0, "declare void @llvm.trap()")
        return parts

    def function(self, address):
        """A function whose address is a number."""
        return self(f"inttoptr i64 {address} to ptr")

    def at(self, type, base, index):
        return base if index == 0 else self(f"getelementptr {type}, ptr {base}, i64 {index}")

    def load(self, type, pointer, align=0):
        return self(f"load {type}, ptr {pointer}" + f", align {align}" * bool(align))

    def store(self, type, value, pointer, align=0):
        self.do(f"store {type} {value}, ptr {pointer}" + f", align {align}" * bool(align))

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
        ways = [(type, f"[ {first}, %{before} ], [ {later}, %{self.block} ]")
                for (type, first), later in zip([("i64", start), *carry], [after, *loop.next], strict=True)]
        self.lines[mark:mark] = [f"  {name} = phi {type} {way}"
                                 for name, (type, way) in zip([loop.i, *loop.values], ways, strict=True)]
        self.label(done)
        loop.values = [self(f"phi {type} {way}") for type, way in ways[1:]]

    @contextmanager
    def again(self):
        """What is written inside runs over and over, until it meets a `leave(condition)` whose condition holds."""
        body, done = self.name("again"), self.name("end")

        def leave(condition):
            on = self.name("on")
            self.do(f"br i1 {condition}, label %{done}, label %{on}")
            self.label(on)

        self.do(f"br label %{body}")
        self.label(body)
        yield leave
        self.do(f"br label %{body}")
        self.label(done)

    @contextmanager
    def when(self, condition):
        """What is written inside runs where `condition` holds."""
        yes, done = self.name("yes"), self.name("end")
        self.do(f"br i1 {condition}, label %{yes}, label %{done}")
        self.label(yes)
        yield
        self.do(f"br label %{done}")
        self.label(done)

    def either(self, condition, yes, no):
        """Run one of two functions, each of which writes what is to be done."""
        self.switch(self.one_if(condition), {1: yes, 0: no})

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
    """Vectors of `element` ("float" or "double") of a Target, for an LLVMWriter: what the kernels do with them."""

    def __init__(self, element, target):
        self.element, self.bytes, self.target = element, {"float": 4, "double": 8}[element], target
        self.lanes = target.vector_bytes // self.bytes
        self.type = f"<{self.lanes} x {element}>"
        self.short = f"v{self.lanes}f{8 * self.bytes}"
        self.masks = self.bytes in target.masked_bytes

    def declarations(self):
        v, m = self.type, f"<{self.lanes} x i1>"
        return "\n".join([
            f"declare {v} @llvm.fma.{self.short}({v}, {v}, {v})",
            f"declare {v} @llvm.masked.load.{self.short}.p0(ptr, i32, {m}, {v})",
            f"declare void @llvm.masked.store.{self.short}.p0({v}, ptr, i32, {m})",
            f"declare void @llvm.masked.store.v{self.lanes}i64.p0(<{self.lanes} x i64>, ptr, i32, {m})",
            "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
            "declare i64 @llvm.smin.i64(i64, i64)", "declare i64 @llvm.smax.i64(i64, i64)", ""])

    def load(self, w, pointer):              return w.load(self.type, pointer, self.bytes)
    def store(self, w, value, pointer):      w.store(self.type, value, pointer, self.bytes)

    # Where the processor has no masks LLVM would write a branch for every lane, which takes long to compile and is slow
    # to run: there the first lanes go through memory, one by one.

    def some(self, w, count):
        """The first `count` lanes, for `load_some` and `store_some`."""
        return self.mask(w, count) if self.masks else count

    def load_some(self, w, pointer, some):
        """The lanes in `some`, the others zero; only those are read."""
        if self.masks:
            return w(f"call {self.type} @llvm.masked.load.{self.short}.p0(ptr {pointer}, i32 {self.bytes}, "
                     f"<{self.lanes} x i1> {some}, {self.type} zeroinitializer)")
        spare = w.spare(self.type)
        self.store(w, "zeroinitializer", spare)
        self.move_rest(w, spare, pointer, some)
        return self.load(w, spare)

    def store_some(self, w, value, pointer, some):
        if self.masks:
            w.do(f"call void @llvm.masked.store.{self.short}.p0({self.type} {value}, ptr {pointer}, i32 {self.bytes}, "
                 f"<{self.lanes} x i1> {some})")
            return
        spare = w.spare(self.type)
        self.store(w, value, spare)
        self.move_rest(w, pointer, spare, some)

    def move(self, w, to, source, count):
        """Copy `count` elements that lie side by side. What lies beyond them is neither read nor written."""
        whole = w.down(count, self.lanes)
        with w.loop(0, whole, self.lanes) as i:
            self.store(w, self.load(w, w.at(self.element, source, i.i)), w.at(self.element, to, i.i))
        with w.when(w.is_("slt", whole, count)):
            to, source = [w.at(self.element, pointer, whole) for pointer in (to, source)]
            self.move_rest(w, to, source, w.sub(count, whole))

    def move_rest(self, w, to, source, count):
        """Copy `count` elements, at most as many as a vector has."""
        if self.masks:
            some = self.mask(w, count)
            self.store_some(w, self.load_some(w, source, some), to, some)
            return
        with w.loop(0, count) as i:
            w.store(self.element, w.load(self.element, w.at(self.element, source, i.i)), w.at(self.element, to, i.i))

    def mask(self, w, count):
        """The first `count` lanes, as one bit each."""
        n = self.lanes
        many = w(f"insertelement <{n} x i64> poison, i64 {count}, i64 0")
        many = w(f"shufflevector <{n} x i64> {many}, <{n} x i64> poison, <{n} x i32> zeroinitializer")
        return w(f"icmp slt <{n} x i64> <{', '.join(f'i64 {i}' for i in range(n))}>, {many}")

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

    def scalar_fma(self, w, a, b, c):
        """The same of single numbers; see `scalar_declarations`."""
        t = self.element
        if not self.target.fma:
            return w(f"fadd {t} {w(f'fmul {t} {a}, {b}')}, {c}")
        return w(f"call {t} @llvm.fma.f{8 * self.bytes}({t} {a}, {t} {b}, {t} {c})")

    def scalar_declarations(self):
        t = self.element
        return f"declare {t} @llvm.fma.f{8 * self.bytes}({t}, {t}, {t})\n"

    def turned(self, w, rows):
        """As many vectors as lanes, as a square of numbers, turned: what was a vector is a lane of each."""
        half, rows = self.lanes // 2, list(rows)
        while half:
            for i in [i for i in range(self.lanes) if not i & half]:
                pair = rows[i], rows[i + half]
                for place, moved in ((i, 0), (i + half, half)):
                    lanes = [lane + moved if not lane & half else self.lanes + lane - half + moved
                             for lane in range(self.lanes)]
                    rows[place] = w(f"shufflevector {self.type} {pair[0]}, {self.type} {pair[1]}, "
                                    f"<{self.lanes} x i32> <{_list(lanes)}>")
            half //= 2
        return rows

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
