"""The LLVM text of Fourier transforms of lines. See fft.py, which plans them.

A step transforms as many lines at once as a vector has lanes. An element of all of them is two vectors in the thread's
room, the real parts and the imaginary ones, so that every radix goes by whole vectors, with twiddles that are the same
in all lanes. Passes follow Stockham's scheme: each goes from one half of the room to the other, and the last leaves the
spectrum in order. An inverse transform swaps the parts of what it reads, and of what it writes.

A real line of even length is read as half as many complex numbers, whose spectrum says that of the line (PACKED). One
of odd length is transformed with imaginary parts of zero. The other way round, half a spectrum is made what such a
transform gives (UNPACKED, MIRRORED).
"""
import math
import struct

from ....loops.step import STEP_ARGUMENTS
from ..llvm_writer import LLVMWriter, Vectors

RADICES = (8, 4, 2, 3, 5, 7, 11, 13)
SETS_OF_RADICES = (5, len(RADICES))           # how many of them a function has, which takes as long to compile
MAX_PASSES = 16
# What numbers in memory are: complex ones, or real ones alone. What is done with a line before the passes, and after.
COMPLEX, REAL = range(2)
PLAIN_LINES, UNPACKED, MIRRORED = range(3)
PACKED, TWIDDLED = range(1, 3)
FFT_FIELDS = ("n", "passes", "lines", "blocks", "outer", "read", "before", "after", "write", "inverse",
              "count_in", "in_step", "in_im", "in_line", "in_outer", "in_outer_2",
              "count_out", "out_step", "out_im", "out_line", "out_outer", "out_outer_2",
              "scale", "extra", "source", "target", *[f"radix_{i}" for i in range(MAX_PASSES)])
TWIDDLES_AT = len(FFT_FIELDS)       # where the ints end and the twiddles begin, a word for each part


def bits(number, element):
    """The bits of a number, as a word has them."""
    return struct.unpack("q", struct.pack("d", number) if element == "double" else struct.pack("ff", number, 0.0))[0]


class FFTKernels:
    """The LLVM text of the step `lines`. Its buffers are what it reads and what it writes, its ints are FFT_FIELDS and
    then twiddles: those of all passes, of the radix less one for each turn, and from `extra` on those of what is done
    before or after."""

    word = "fft"
    drivers = ("lines",)          # long: code that is there soon runs first
    inner = ()

    def __init__(self, element, target):
        self.v = Vectors(element, target)
        self.element, self.size, self.lanes, self.type = element, self.v.bytes, self.v.lanes, self.v.type
        self.pair = 2 * self.lanes            # numbers of an element of all lines

    def every(self, machine):
        """All functions."""
        return [("lines", known) for known in SETS_OF_RADICES]

    # --- complex vectors --------------------------------------------------------------------------------------------

    def do(self, w, how, a, b):
        return w(f"{how} {self.type} {a}, {b}")

    def minus(self, w, a):       return w(f"fneg {self.type} {a}")
    def add(self, w, a, b):      return tuple([self.do(w, "fadd", x, y) for x, y in zip(a, b, strict=True)])
    def sub(self, w, a, b):      return tuple([self.do(w, "fsub", x, y) for x, y in zip(a, b, strict=True)])
    def times(self, w, a, c):    return tuple([self.do(w, "fmul", x, c) for x in a])
    def turned(self, w, a):      return a[1], self.minus(w, a[0])          # times -i

    def constant(self, number):
        single = struct.unpack("f", struct.pack("f", number))[0] if self.element == "float" else number
        return f"splat ({self.element} 0x{struct.unpack('Q', struct.pack('d', single))[0]:016X})"

    def product(self, w, a, b):
        """Two complex numbers multiplied."""
        return self.v.fma(w, a[0], b[0], self.minus(w, self.do(w, "fmul", a[1], b[1]))), \
            self.v.fma(w, a[0], b[1], self.do(w, "fmul", a[1], b[0]))

    def load(self, w, base, index):
        """An element of all lines."""
        at = w.at(self.element, base, w.mul(index, self.pair))
        return self.v.load(w, at), self.v.load(w, w.at(self.element, at, self.lanes))

    def store(self, w, value, base, index):
        at = w.at(self.element, base, w.mul(index, self.pair))
        self.v.store(w, value[0], at)
        self.v.store(w, value[1], w.at(self.element, at, self.lanes))

    def twiddle(self, w, table, index):
        """A twiddle, in all lanes."""
        at = w.at("i64", table, w.mul(index, 2))
        return tuple([self.v.spread(w, w.load(self.element, w.at("i64", at, i))) for i in (0, 1)])

    # --- one pass ---------------------------------------------------------------------------------------------------

    def points(self, w, radix, a):
        """The transform of `radix` points."""
        if radix % 2:
            return self.odd_points(w, radix, a)
        if radix == 2:
            return [self.add(w, *a), self.sub(w, *a)]
        even, odd = self.points(w, radix // 2, a[0::2]), self.points(w, radix // 2, a[1::2])
        odd[radix // 4] = self.turned(w, odd[radix // 4])
        if radix == 8:
            root = self.constant(math.sqrt(0.5))
            re, im = odd[1]                                        # times (1 - i) / sqrt 2
            odd[1] = self.times(w, (self.do(w, "fadd", re, im), self.do(w, "fsub", im, re)), root)
            re, im = odd[3]                                        # times (-1 - i) / sqrt 2
            odd[3] = self.times(w, (self.do(w, "fsub", im, re), self.minus(w, self.do(w, "fadd", re, im))), root)
        return [*[self.add(w, *both) for both in zip(even, odd, strict=True)],
                *[self.sub(w, *both) for both in zip(even, odd, strict=True)]]

    def odd_points(self, w, radix, a):
        """Of an odd number of points: sums and differences of opposite ones, by cosines and sines."""
        half = radix // 2
        sums = [self.add(w, a[j], a[radix - j]) for j in range(1, half + 1)]
        differences = [self.sub(w, a[j], a[radix - j]) for j in range(1, half + 1)]
        out = [a[0]] + [None] * (radix - 1)
        for one in sums:
            out[0] = self.add(w, out[0], one)
        for k in range(1, half + 1):
            even, odd = a[0], None
            for j in range(1, half + 1):
                turn = 2 * math.pi * (j * k % radix) / radix
                cosine, sine = self.constant(math.cos(turn)), self.constant(math.sin(turn))
                even = tuple([self.v.fma(w, x, cosine, y) for x, y in zip(sums[j - 1], even, strict=True)])
                odd = self.times(w, differences[j - 1], sine) if odd is None else \
                    tuple([self.v.fma(w, x, sine, y) for x, y in zip(differences[j - 1], odd, strict=True)])
            odd = self.turned(w, odd)
            out[k], out[radix - k] = self.add(w, even, odd), self.sub(w, even, odd)
        return out

    def one_pass(self, radix, last):
        """A function of a pass over `m` times `s` butterflies, with twiddles for each of the `m`; the `last` pass, in
        which there is one, has none."""
        w = LLVMWriter(f"define internal void @{_pass_name(radix, last)}(ptr %x, ptr %y, i64 %m, i64 %s, ptr %table)")
        apart = w.mul("%m", "%s")
        with w.loop(0, "%m") as p:
            start, first = w.mul(p.i, "%s"), w.mul(p.i, radix - 1)
            twiddles = [] if last else [self.twiddle(w, "%table", w.add(first, k)) for k in range(radix - 1)]
            with w.loop(0, "%s") as q:
                at, made = w.add(start, q.i), w.add(w.mul(start, radix), q.i)
                out = self.points(w, radix, [self.load(w, "%x", w.add(at, w.mul(apart, j))) for j in range(radix)])
                for k, one in enumerate(out):
                    value = self.product(w, one, twiddles[k - 1]) if k and twiddles else one
                    self.store(w, value, "%y", w.add(made, w.mul("%s", k)))
        return w.text()

    # --- memory -----------------------------------------------------------------------------------------------------

    def read_lines(self, w, f, count, base, to):
        """Bring `count_in` elements of each of `count` lines from `base` on to `to`; lanes beyond repeat the last."""
        whole = w.both(w.is_("eq", count, self.lanes), w.is_("eq", f["in_im"], 1))
        beside, along = w.both(whole, w.is_("eq", f["in_line"], 2)), w.both(whole, w.is_("eq", f["in_step"], 2))
        w.switch(w.pick(beside, 1, w.pick(along, 2, 0)), {
            0: lambda: self.read_singly(w, f, count, base, to, 0),
            1: lambda: self.read_beside(w, f, base, to),
            2: lambda: self.read_turned(w, f, count, base, to)})

    def read_singly(self, w, f, count, base, to, first):
        """Number by number, from element `first` on."""
        e, real = self.element, w.is_("eq", f["read"], REAL)
        with w.loop(0, self.lanes) as lane:
            source = w.at(e, base, w.mul(w.least(lane.i, w.sub(count, 1)), f["in_line"]))
            target = w.at(e, to, lane.i)
            with w.loop(first, f["count_in"]) as i:
                at, into = w.at(e, source, w.mul(i.i, f["in_step"])), w.at(e, target, w.mul(i.i, self.pair))
                im = w.load(e, w.at(e, at, f["in_im"]))
                w.store(e, w.load(e, at), w.at(e, into, f["re_at"]))
                w.store(e, w(f"select i1 {real}, {e} 0.0, {e} {im}"), w.at(e, into, f["im_at"]))

    def read_beside(self, w, f, base, to):
        """Lines that lie side by side: their elements are parted."""
        e, wide = self.element, f"<{self.pair} x {self.element}>"
        with w.loop(0, f["count_in"]) as i:
            got = w.load(wide, w.at(e, base, w.mul(i.i, f["in_step"])), self.size)
            into = w.at(e, to, w.mul(i.i, self.pair))
            for which, at in enumerate((f["re_at"], f["im_at"])):
                part = w(f"shufflevector {wide} {got}, {wide} poison, {_places(range(which, self.pair, 2))}")
                self.v.store(w, part, w.at(e, into, at))

    def read_turned(self, w, f, count, base, to):
        """Lines whose elements lie side by side: as many numbers of each as there are lanes are turned together."""
        e, n = self.element, self.lanes
        whole = w.down(f["count_in"], n // 2)
        with w.loop(0, whole, n // 2) as i:
            at, into = w.at(e, base, w.mul(i.i, 2)), w.at(e, to, w.mul(i.i, self.pair))
            rows = [self.v.load(w, w.at(e, at, w.mul(f["in_line"], line))) for line in range(n)]
            for number, column in enumerate(self.transposed(w, rows)):
                place = w.at(e, into, number // 2 * self.pair)
                self.v.store(w, column, w.at(e, place, f["im_at"] if number % 2 else f["re_at"]))
        self.read_singly(w, f, count, base, to, whole)

    def write_lines(self, w, f, count, source, base):
        """Bring `count_out` elements of each line to where they go, scaled."""
        scale = w.load(self.element, w.at("i64", "%ints", FFT_FIELDS.index("scale")))
        complex_ = w.both(w.is_("eq", f["out_im"], 1), w.is_("eq", f["write"], COMPLEX))
        whole = w.both(w.is_("eq", count, self.lanes), complex_)
        beside, along = w.both(whole, w.is_("eq", f["out_line"], 2)), w.both(whole, w.is_("eq", f["out_step"], 2))
        w.switch(w.pick(beside, 1, w.pick(along, 2, 0)), {
            0: lambda: self.write_singly(w, f, count, source, base, scale, 0),
            1: lambda: self.write_beside(w, f, source, base, scale),
            2: lambda: self.write_turned(w, f, count, source, base, scale)})

    def write_singly(self, w, f, count, source, base, scale, first):
        e, both = self.element, w.is_("eq", f["write"], COMPLEX)
        with w.loop(0, count) as lane:
            target, come = w.at(e, base, w.mul(lane.i, f["out_line"])), w.at(e, source, lane.i)
            with w.loop(first, f["count_out"]) as i:
                at, into = w.at(e, come, w.mul(i.i, self.pair)), w.at(e, target, w.mul(i.i, f["out_step"]))
                w.store(e, w(f"fmul {e} {w.load(e, w.at(e, at, f['re_at']))}, {scale}"), into)
                with w.when(both):
                    im = w(f"fmul {e} {w.load(e, w.at(e, at, f['im_at']))}, {scale}")
                    w.store(e, im, w.at(e, into, f["out_im"]))

    def write_beside(self, w, f, source, base, scale):
        e, n, wide = self.element, self.lanes, f"<{self.pair} x {self.element}>"
        many, mixed = self.v.spread(w, scale), _places([place for i in range(n) for place in (i, n + i)])
        with w.loop(0, f["count_out"]) as i:
            at = w.at(e, source, w.mul(i.i, self.pair))
            re, im = [self.do(w, "fmul", self.v.load(w, w.at(e, at, f[part])), many) for part in ("re_at", "im_at")]
            made = w(f"shufflevector {self.type} {re}, {self.type} {im}, {mixed}")
            w.store(wide, made, w.at(e, base, w.mul(i.i, f["out_step"])), self.size)

    def write_turned(self, w, f, count, source, base, scale):
        e, n, many = self.element, self.lanes, self.v.spread(w, scale)
        whole = w.down(f["count_out"], n // 2)
        with w.loop(0, whole, n // 2) as i:
            place, columns = w.at(e, source, w.mul(i.i, self.pair)), []
            for number in range(n):
                at = w.at(e, w.at(e, place, number // 2 * self.pair), f["im_at"] if number % 2 else f["re_at"])
                columns.append(self.do(w, "fmul", self.v.load(w, at), many))
            target = w.at(e, base, w.mul(i.i, 2))
            for line, row in enumerate(self.transposed(w, columns)):
                self.v.store(w, row, w.at(e, target, w.mul(f["out_line"], line)))
        self.write_singly(w, f, count, source, base, scale, whole)

    def transposed(self, w, rows):
        """As many vectors as each has lanes, rows for columns: halves are interleaved, as often as a half can be."""
        n, t, half = self.lanes, self.type, self.lanes // 2
        ways = [_places([place for i in part for place in (i, n + i)]) for part in (range(half), range(half, n))]
        for _ in range(n.bit_length() - 1):
            rows = [w(f"shufflevector {t} {rows[i]}, {t} {rows[i + half]}, {places}")
                    for i in range(half) for places in ways]
        return rows

    # --- before and after the passes --------------------------------------------------------------------------------

    def unpack(self, w, f, x, y, table):
        """From the first half X of the spectrum of n real numbers, h + 1 of them, what gives these as pairs:
        X[k] + conj X[h-k] + i conj(w^k) (X[k] - conj X[h-k]). The parts come swapped, as the inverse wants them; of the
        first and the last of X only the real ones count."""
        h = f["n"]
        for index in (0, h):
            at = w.at(self.element, x, w.mul(index, self.pair))
            self.v.store(w, "zeroinitializer", at)                 # where the imaginary part is
        with w.loop(0, h) as k:
            im, re = self.load(w, x, k.i)
            im_2, re_2 = self.load(w, x, w.sub(h, k.i))
            a = self.do(w, "fadd", re, re_2), self.do(w, "fsub", im, im_2)
            b = self.do(w, "fsub", re, re_2), self.do(w, "fadd", im, im_2)
            c, s = self.twiddle(w, table, k.i)                     # w^k = c + i s
            b = self.product(w, b, (c, self.minus(w, s)))
            self.store(w, (self.do(w, "fadd", a[1], b[0]), self.do(w, "fsub", a[0], b[1])), y, k.i)

    def mirror(self, w, f, x, y):
        """From half a spectrum of an odd number of real ones, swapped as above, all of it."""
        n = f["n"]
        self.v.store(w, "zeroinitializer", x)
        self.store(w, self.load(w, x, 0), y, 0)
        with w.loop(1, f["count_in"]) as k:
            im, re = self.load(w, x, k.i)
            self.store(w, (im, re), y, k.i)
            self.store(w, (self.minus(w, im), re), y, w.sub(n, k.i))

    def pack(self, w, f, x, y, table):
        """From the spectrum Z of h pairs of real numbers the first half of that of all of them: half of
        Z[k] + conj Z[h-k] - i w^k (Z[k] - conj Z[h-k]), for k up to h."""
        h, half = f["n"], self.constant(0.5)
        with w.loop(0, w.add(h, 1)) as k:
            first, second = w.pick(w.is_("eq", k.i, h), 0, k.i), w.pick(w.is_("eq", k.i, 0), 0, w.sub(h, k.i))
            (re, im), (re_2, im_2) = self.load(w, x, first), self.load(w, x, second)
            a = self.do(w, "fadd", re, re_2), self.do(w, "fsub", im, im_2)
            b = self.do(w, "fsub", re, re_2), self.do(w, "fadd", im, im_2)
            b = self.turned(w, self.product(w, b, self.twiddle(w, table, k.i)))
            self.store(w, self.times(w, self.add(w, a, b), half), y, k.i)

    def complete(self, w, f, x):
        """The other half of a spectrum of real numbers, behind the first one."""
        first = w.add(w.div(f["count_out"], 2), 1)
        with w.loop(first, f["count_out"]) as k:
            re, im = self.load(w, x, w.sub(f["count_out"], k.i))
            self.store(w, (re, self.minus(w, im)), x, k.i)

    def multiply(self, w, f, x, y, first):
        """Each element times a twiddle of its own line, from `first` on, in a table at the address `extra`: for each
        element the real parts of all lines, and then the imaginary ones."""
        e, row = self.element, w.most(f["lines"], self.lanes)
        mine = w.at(e, w(f"inttoptr i64 {f['extra']} to ptr"), first)
        with w.loop(0, f["n"]) as k:
            by = w.at(e, mine, w.mul(w.mul(k.i, row), 2))
            factor = self.v.load(w, by), self.v.load(w, w.at(e, by, row))
            self.store(w, self.product(w, self.load(w, x, k.i), factor), y, k.i)

    # --- the step ---------------------------------------------------------------------------------------------------

    def lines(self, name, known):
        """The step, with the first `known` radices: its tiles are blocks of as many lines as a vector has lanes."""
        radices = RADICES[:known]
        w = LLVMWriter(f"define void @{name}({STEP_ARGUMENTS})")
        f = {field: w.load("i64", w.at("i64", "%ints", i)) for i, field in enumerate(FFT_FIELDS)}
        source, target = [w.load("ptr", w.at("ptr", "%buffers", f[way])) for way in ("source", "target")]
        e, swapped = self.element, w.is_("ne", f["inverse"], 0)
        f["re_at"], f["im_at"] = w.pick(swapped, self.lanes, 0), w.pick(swapped, 0, self.lanes)
        room = w.mul(w.add(w.most(w.most(f["count_in"], f["count_out"]), f["n"]), 1), self.pair)
        one, other = w.rooms((self.size, room), (self.size, room))
        extra = w.at("i64", "%ints", f["extra"])
        with w.loop("%begin", "%end") as t:
            rest, block = w.div(t.i, f["blocks"]), w.rem(t.i, f["blocks"])
            far, near = w.div(rest, f["outer"]), w.rem(rest, f["outer"])
            # the last block goes over some lines again, to be whole; they come out the same
            first = w.most(w.least(w.mul(block, self.lanes), w.sub(f["lines"], self.lanes)), 0)
            count = w.least(f["lines"], self.lanes)

            def place(way, base):
                at = w.at(e, base, w.mul(first, f[f"{way}_line"]))
                return w.at(e, w.at(e, at, w.mul(near, f[f"{way}_outer"])), w.mul(far, f[f"{way}_outer_2"]))

            self.read_lines(w, f, count, place("in", source), one)
            w.switch(f["before"], {UNPACKED: lambda: self.unpack(w, f, one, other, extra),
                                   MIRRORED: lambda: self.mirror(w, f, one, other)})
            plain = w.is_("eq", f["before"], PLAIN_LINES)
            x, y = w.pick(plain, one, other, "ptr"), w.pick(plain, other, one, "ptr")
            x, y = self.passes(w, f, x, y, radices)
            w.switch(f["after"], {PACKED: lambda: self.pack(w, f, x, y, extra),
                                  TWIDDLED: lambda: self.multiply(w, f, x, y, first)})
            made, packed = w.pick(w.is_("ne", f["after"], PLAIN_LINES), y, x, "ptr"), w.is_("eq", f["after"], PACKED)
            with w.when(w.both(packed, w.is_("sgt", f["count_out"], w.add(f["n"], 1)))):
                self.complete(w, f, made)
            self.write_lines(w, f, count, made, place("out", target))
        return self.v.declarations() + w.text() + "\n" + "\n".join(
            self.one_pass(radix, last) for radix in radices for last in (False, True))

    def passes(self, w, f, x, y, radices):
        """All passes; gives (where the spectrum is, the other half of the room)."""
        table = w.at("i64", "%ints", TWIDDLES_AT)
        carried = [("ptr", x), ("ptr", y), ("i64", f["n"]), ("i64", 1), ("ptr", table)]
        with w.loop(0, f["passes"], 1, carried) as number:
            x, y, left, s, table = number.values
            radix = w.load("i64", w.at("i64", "%ints", w.add(number.i, FFT_FIELDS.index("radix_0"))))
            m = w.div(left, radix)
            last = w.one_if(w.is_("eq", m, 1))
            w.switch(w.add(w.mul(radix, 2), last), {
                2 * one + is_last: lambda one=one, is_last=is_last: w.do(
                    f"call void @{_pass_name(one, is_last)}(ptr {x}, ptr {y}, i64 {m}, i64 {s}, ptr {table})")
                for one in radices for is_last in (0, 1)})
            words = w.mul(w.mul(w.sub(radix, 1), m), 2)
            number.next = [y, x, m, w.mul(s, radix), w.at("i64", table, words)]
        return number.values[0], number.values[1]


def _pass_name(radix, last):
    return f"pass_{radix}{'_last' if last else ''}"


def _places(places):
    """Lanes, as a shuffle lists them."""
    places = list(places)
    return f"<{len(places)} x i32> <{', '.join(f'i32 {place}' for place in places)}>"
