"""Images as native steps: the colours of each sample changed in its own order, boxes resized, samples mirrored.

What the loop language would compute for all samples alike, since its kernels have no branches, is decided here for each
of them: a sample of a batch costs what its own numbers ask for. Planes lie one after the other, [N, C, H, W].
"""
import struct

from ....loops import colour
from ....loops.step import STEP_ARGUMENTS
from ..llvm_writer import LLVMWriter, Vectors
from .gemm import PIECE_CYCLES, LibraryCall
from .gemm_kernels import compiled_kernels

JITTER_FIELDS = ("pixels",)
RESIZE_FIELDS = "channels height width out_h out_w taps_x taps_y shared room".split()
FLIP_FIELDS = "rows columns".split()
WARP_FIELDS = "channels height width out_h out_w fill_step".split()
MOST_UNROLLED = 8             # taps along a row that are written out one by one
MOST_ROOM = 64 << 10          # elements, of 4 bytes, of a row that were made and wait to be read, in the thread's room
PIXELS_SUMMED = 1024          # of which the sum is kept apart, so that a mean stays exact
IMAGE_ELEMENTS = {"uint8": "i8", "float32": "float"}


class Lane:
    """A vector of floats by its name in the text, with operators: an expression for loops/colour.py."""

    __slots__ = ("words", "name")
    dtype = None

    def __init__(self, words, name):
        self.words, self.name = words, name

    def _with(self, how, other):
        return self.words.call(how, self, other if isinstance(other, Lane) else self.words.const(other))

    def __add__(self, other):      return self._with("fadd", other)
    def __sub__(self, other):      return self._with("fsub", other)
    def __mul__(self, other):      return self._with("fmul", other)
    def __truediv__(self, other):  return self._with("fdiv", other)
    def __eq__(self, other):       return self._with("fcmp oeq", other)

    __hash__ = None


class LaneWords:
    """The words of bodies that loops/colour.py says, written as LLVM's instructions on vectors of `count` floats."""

    def __init__(self, w, count, target):
        self.w, self.count, self.has_fma, self.has_rounding = w, count, target.fma, target.rounding
        self.type, self.short = f"<{count} x float>", f"v{count}f32"

    def declarations(self):
        t = self.type
        return "\n".join([f"declare {t} @llvm.{name}.{self.short}({', '.join([t] * n)})"
                          for name, n in (("fma", 3), ("floor", 1), ("rint", 1), ("fabs", 1), ("copysign", 2),
                                          ("minnum", 2), ("maxnum", 2))]
                         + ["declare i64 @llvm.smin.i64(i64, i64)", "declare i64 @llvm.smax.i64(i64, i64)",
                            "declare i32 @llvm.smin.i32(i32, i32)", "declare i32 @llvm.smax.i32(i32, i32)",
                            "declare float @llvm.fma.f32(float, float, float)",
                            "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)", ""])

    def call(self, how, *args):
        return Lane(self, self.w(f"{how} {self.type} {', '.join(arg.name for arg in args)}"))

    def _intrinsic(self, name, *args):
        given = ", ".join(f"{self.type} {arg.name}" for arg in args)
        return Lane(self, self.w(f"call {self.type} @llvm.{name}.{self.short}({given})"))

    def const(self, value, dtype=None):
        return Lane(self, f"<{', '.join([f'float {float_text(value)}'] * self.count)}>")

    def spread(self, number):
        one = self.w(f"insertelement {self.type} poison, float {number}, i64 0")
        return Lane(self, self.w(f"shufflevector {self.type} {one}, {self.type} poison, "
                                 f"<{self.count} x i32> zeroinitializer"))

    def fma(self, a, b, c):     return self._intrinsic("fma", a, b, c) if self.has_fma else a * b + c
    def floor(self, x):
        if self.has_rounding:
            return self._intrinsic("floor", x)
        near = self.rint(x)
        return self.where(self.call("fcmp ogt", near, x), near - 1.0, near)

    def rint(self, x):
        """The nearest whole number, of two the even one. Where the processor cannot: what 2 ** 23 pushes out."""
        if self.has_rounding:
            return self._intrinsic("rint", x)
        far = self._intrinsic("copysign", self.const(float(1 << 23)), x)
        small = self.call("fcmp olt", self._intrinsic("fabs", x), self.const(float(1 << 23)))
        return self.where(small, x + far - far, x)

    def minimum(self, a, b):    return self._intrinsic("minnum", a, b)
    def maximum(self, a, b):    return self._intrinsic("maxnum", a, b)

    def where(self, c, a, b):
        return Lane(self, self.w(f"select <{self.count} x i1> {c.name}, {self.type} {a.name}, {self.type} {b.name}"))


def float_text(value):
    """A number of single precision as LLVM writes it: the bits of the double of the same value."""
    single = struct.unpack("f", struct.pack("f", value))[0]
    return f"0x{struct.unpack('Q', struct.pack('d', single))[0]:016X}"


class ImageKernels:
    """The LLVM text of the steps. They compute in float32, or in int32 for bytes that are resized."""

    word = "image"
    drivers = inner = ()

    def __init__(self, element, target):
        self.target = target
        self.lanes = Vectors(element, target).lanes
        self.count = 2 * self.lanes

    def open(self, name, fields, buffers):
        """(a writer of a step, its words, its ints by name, its buffers)"""
        w = LLVMWriter(f"define void @{name}({STEP_ARGUMENTS})")
        ints = {field: w.load("i64", w.at("i64", "%ints", i)) for i, field in enumerate(fields)}
        return w, LaneWords(w, self.count, self.target), ints, [w.load("ptr", w.at("ptr", "%buffers", i))
                                                                   for i in range(buffers)]

    # --- vectors of pixels ------------------------------------------------------------------------------------------

    def load(self, k, elt, place, rest):
        """A vector of pixels as floats; of the last, only `rest` are there and the others are zero."""
        w, held = k.w, f"<{self.count} x {elt}>"
        if rest is not None:
            spare = w.spare(held)
            w.store(held, "zeroinitializer", spare, 4)
            with w.loop(0, rest) as i:
                w.store(elt, w.load(elt, w.at(elt, place, i.i)), w.at(elt, spare, i.i))
            place = spare
        found = w.load(held, place, 1 if elt == "i8" else 4)
        return Lane(k, found if elt == "float" else w(f"uitofp {held} {found} to {k.type}"))

    def store(self, k, elt, value, place, rest):
        w, held = k.w, f"<{self.count} x {elt}>"
        made = value.name if elt == "float" else w(f"fptoui {k.type} {value.name} to {held}")
        if rest is None:
            w.store(held, made, place, 1 if elt == "i8" else 4)
            return
        spare = w.spare(held)
        w.store(held, made, spare, 4)
        with w.loop(0, rest) as i:
            w.store(elt, w.load(elt, w.at(elt, spare, i.i)), w.at(elt, place, i.i))

    def over(self, w, count, write):
        """`write(where, rest)` for each vector of `count` pixels, and for what is left of them."""
        whole = w.down(count, self.count)
        with w.loop(0, whole, self.count) as i:
            write(i.i, None)
        with w.when(w.is_("slt", whole, count)):
            write(whole, w.sub(count, whole))

    # --- colours ----------------------------------------------------------------------------------------------------

    def jitter(self, name, elt):
        """One sample a tile; buffers image, order [N, 4] (i64, less than 0: nothing), factors [N, 8], out.

        Factors 2 i and 2 i + 1 are the ratio and the rest of brightness, contrast and saturation (i = 0, 1, 2), and
        factor 6 is the turn of the hue (3).
        """
        w, k, f, (X, order, factors, out) = self.open(name, JITTER_FIELDS, 4)
        pixels, byte = f["pixels"], elt == "i8"
        summed = w.spare(k.type)

        def planes(base, at, rest):
            return [self.load(k, elt, w.at(elt, base, w.add(w.mul(c, pixels), at)), rest) for c in range(3)]

        def put(made, to, at, rest):
            for c, plane in enumerate(made):
                self.store(k, elt, plane, w.at(elt, to, w.add(w.mul(c, pixels), at)), rest)

        with w.loop("%begin", "%end") as t:
            start = w.mul(w.mul(t.i, 3), pixels)
            to = w.at(elt, out, start)
            with w.loop(0, 4, 1, [("ptr", w.at(elt, X, start))]) as turn:
                kind = w.load("i64", w.at("i64", order, w.add(w.mul(t.i, 4), turn.i)))
                source = turn.values[0]

                def factor(i, t=t):
                    return k.spread(w.load("float", w.at("float", factors, w.add(w.mul(t.i, 8), i))))

                def brightness(source=source, to=to, factor=factor):
                    ratio, zero = factor(0), k.const(0.0)
                    self.over(w, pixels, lambda at, rest: put(
                        [colour.mixed(k, plane, zero, ratio, zero, byte) for plane in planes(source, at, rest)],
                        to, at, rest))

                def contrast(source=source, to=to, factor=factor):
                    self.sum_grey(k, elt, lambda at, rest: planes(source, at, rest), pixels, summed)
                    total = k.spread(self.total(w, w.load(k.type, summed, 4)))
                    mean = total / k.spread(w(f"sitofp i64 {pixels} to float"))
                    ratio, rest_of = factor(2), factor(3)
                    self.over(w, pixels, lambda at, rest: put(
                        [colour.mixed(k, plane, mean, ratio, rest_of, byte) for plane in planes(source, at, rest)],
                        to, at, rest))

                def saturation(source=source, to=to, factor=factor):
                    ratio, rest_of = factor(4), factor(5)

                    def write(at, rest):
                        rgb = planes(source, at, rest)
                        level = colour.grey(k, rgb, byte)
                        put([colour.mixed(k, plane, level, ratio, rest_of, byte) for plane in rgb], to, at, rest)
                    self.over(w, pixels, write)

                def hue(source=source, to=to, factor=factor):
                    angle = factor(6)
                    self.over(w, pixels, lambda at, rest: put(
                        colour.turned(k, planes(source, at, rest), angle, byte), to, at, rest))

                w.switch(kind, {0: brightness, 1: contrast, 2: saturation, 3: hue})
                turn.next = [w.pick(w.is_("sge", kind, 0), to, source, "ptr")]
        return k.declarations() + w.text()

    def sum_grey(self, k, elt, planes, pixels, summed):
        """The greys of a sample, added up in the lanes of the vector at `summed`, thousand by thousand."""
        w, byte = k.w, elt == "i8"
        w.store(k.type, "zeroinitializer", summed, 4)

        def more(value):
            w.store(k.type, (Lane(k, w.load(k.type, summed, 4)) + value).name, summed, 4)

        whole = w.down(pixels, self.count)
        with w.loop(0, whole, PIXELS_SUMMED) as block:
            end = w.least(w.add(block.i, PIXELS_SUMMED), whole)
            with w.loop(block.i, end, self.count, [(k.type, "zeroinitializer")]) as i:
                i.next = [(Lane(k, i.values[0]) + colour.grey(k, planes(i.i, None), byte)).name]
            more(Lane(k, i.values[0]))
        with w.when(w.is_("slt", whole, pixels)):
            more(colour.grey(k, planes(whole, w.sub(pixels, whole)), byte))

    def total(self, w, value):
        """The sum of the lanes, halves added to halves."""
        n = self.count
        while n > 1:
            t, n = f"<{n} x float>", n // 2
            parts = [w(f"shufflevector {t} {value}, {t} poison, <{n} x i32> "
                       f"<{', '.join(f'i32 {i}' for i in range(first, first + n))}>") for first in (0, n)]
            value = w(f"fadd <{n} x float> {parts[0]}, {parts[1]}")
        return w(f"extractelement <1 x float> {value}, i64 0")

    # --- sizes ------------------------------------------------------------------------------------------------------

    def resize(self, name, elt, taps):
        """One plane a tile; buffers image, first_x [N, out_w], weight_x [N, out_w, taps], bits_x [N], first_y,
        weight_y, bits_y, out; the tables are of int32 (weights of floats: float32), [1, …] where `shared`.

        Rows are resized as the columns ask for them, and wait in a ring of as many rows as an output reads. So many
        `taps` along a row are written out; 0 is any number.
        """
        byte = elt == "i8"
        w, k, f, (X, first_x, weight_x, bits_x, first_y, weight_y, bits_y, out) = self.open(name, RESIZE_FIELDS, 8)
        work = "i32" if byte else "float"
        many = f"<{self.count} x {work}>"
        ring, = w.rooms((4, f["room"]))
        shared = w.is_("ne", f["shared"], 0)
        wide = w.up(f["out_w"], self.count)                      # a row of the ring is whole vectors

        def rounded(value, bits, half, kind, spread):
            """A sum of bytes times whole weights, as a byte again."""
            made = w(f"ashr {kind} {w(f'add {kind} {value}, {half}')}, {bits}")
            if kind == "i32":
                return w(f"call i32 @llvm.smax.i32(i32 {w(f'call i32 @llvm.smin.i32(i32 {made}, i32 255)')}, i32 0)")
            for how, bound in (("slt", 255), ("sgt", 0)):
                limit = spread(bound)
                here = w(f"icmp {how} {kind} {made}, {limit}")
                made = w(f"select <{self.count} x i1> {here}, {kind} {made}, {kind} {limit}")
            return made

        def spread(number):
            one = w(f"insertelement {many} poison, {work} {number}, i64 0")
            return w(f"shufflevector {many} {one}, {many} poison, <{self.count} x i32> zeroinitializer")

        def step(kind, value, weight, pixel):
            if byte:
                return w(f"add {kind} {value}, {w(f'mul {kind} {weight}, {pixel}')}")
            if kind == "float":
                return w(f"call float @llvm.fma.f32(float {weight}, float {pixel}, float {value})") \
                    if self.target.fma else w(f"fadd float {value}, {w(f'fmul float {weight}, {pixel}')}")
            return k.fma(Lane(k, weight), Lane(k, pixel), Lane(k, value)).name

        def pixel(place):
            found = w.load(elt, place)
            return w(f"zext i8 {found} to i32") if byte else found

        with w.loop("%begin", "%end") as t:
            n = w.pick(shared, 0, w.div(t.i, f["channels"]))
            plane = w.at(elt, X, w.mul(w.mul(t.i, f["height"]), f["width"]))
            to = w.at(elt, out, w.mul(w.mul(t.i, f["out_h"]), f["out_w"]))
            firsts_x, firsts_y = w.at("i32", first_x, w.mul(n, f["out_w"])), w.at("i32", first_y, w.mul(n, f["out_h"]))
            weights_x = w.at(work, weight_x, w.mul(w.mul(n, f["out_w"]), f["taps_x"]))
            weights_y = w.at(work, weight_y, w.mul(w.mul(n, f["out_h"]), f["taps_y"]))
            if byte:
                b_x, b_y = w.load("i32", w.at("i32", bits_x, n)), w.load("i32", w.at("i32", bits_y, n))
                half_x = w(f"shl i32 1, {w(f'sub i32 {b_x}, 1')}")
                half_y, b_y = spread(w(f"shl i32 1, {w(f'sub i32 {b_y}, 1')}")), spread(b_y)

            def resize_row(row, plane=plane, firsts_x=firsts_x, weights_x=weights_x):
                source = w.at(elt, plane, w.mul(row, f["width"]))
                line = w.at(work, ring, w.mul(w.rem(row, f["taps_y"]), wide))
                with w.loop(0, f["out_w"]) as x:
                    first = w(f"sext i32 {w.load('i32', w.at('i32', firsts_x, x.i))} to i64")
                    at, weight = w.at(elt, source, first), w.at(work, weights_x, w.mul(x.i, f["taps_x"]))
                    nothing = "0" if byte else "0.0"
                    if taps:
                        made = nothing
                        for tap in range(taps):
                            made = step(work, made, w.load(work, w.at(work, weight, tap)), pixel(w.at(elt, at, tap)))
                    else:
                        with w.loop(0, f["taps_x"], 1, [(work, nothing)]) as tap:
                            tap.next = [step(work, tap.values[0], w.load(work, w.at(work, weight, tap.i)),
                                             pixel(w.at(elt, at, tap.i)))]
                        made = tap.values[0]
                    made = rounded(made, b_x, half_x, "i32", None) if byte else made
                    w.store(work, made, w.at(work, line, x.i))

            with w.loop(0, f["out_h"], 1, [("i64", 0)]) as y:
                top = w(f"sext i32 {w.load('i32', w.at('i32', firsts_y, y.i))} to i64")
                end = w.add(top, f["taps_y"])
                with w.loop(w.most(y.values[0], top), end) as row:
                    resize_row(row.i)
                y.next = [w.most(end, y.values[0])]
                shares = w.at(work, weights_y, w.mul(y.i, f["taps_y"]))
                line_out = w.at(elt, to, w.mul(y.i, f["out_w"]))

                def column(at, rest, top=top, shares=shares, line_out=line_out):
                    with w.loop(0, f["taps_y"], 1, [(many, "zeroinitializer")]) as tap:
                        line = w.at(work, ring, w.add(w.mul(w.rem(w.add(top, tap.i), f["taps_y"]), wide), at))
                        weight = spread(w.load(work, w.at(work, shares, tap.i)))
                        tap.next = [step(many, tap.values[0], weight, w.load(many, line, 4))]
                    made = tap.values[0]
                    if byte:
                        made = w(f"trunc {many} {rounded(made, b_y, half_y, many, spread)} to <{self.count} x i8>")
                    place, held = w.at(elt, line_out, at), f"<{self.count} x {elt}>"
                    if rest is None:
                        w.store(held, made, place, 1 if byte else 4)
                        return
                    spare = w.spare(held)
                    w.store(held, made, spare, 4)
                    with w.loop(0, rest) as i:
                        w.store(elt, w.load(elt, w.at(elt, spare, i.i)), w.at(elt, place, i.i))

                self.over(w, f["out_w"], column)
        return k.declarations() + w.text()

    # --- places -----------------------------------------------------------------------------------------------------

    def warp(self, name, elt, numbers, nearest, filled):
        """One row of a sample a tile; buffers image, table [N, numbers], fill, out. See `warped` in data/transforms.

        Where a pixel comes from is worked out once for all channels, by vectors; then each channel is read there.
        """
        w, k, f, (X, table, fill, out) = self.open(name, WARP_FIELDS, 4)
        n, half = self.count, f"<{self.count} x i32>"
        bits = f"<{self.count} x i1>"
        height, width = (k.spread(w(f"sitofp i64 {f[side]} to float")) for side in ("height", "width"))
        zero, one, minus = k.const(0.0), k.const(1.0), k.const(-1.0)
        lanes = Lane(k, f"<{', '.join(f'float {float_text(i)}' for i in range(n))}>")
        sizes = {axis: k.spread(w(f"sitofp i64 {f[side]} to float")) for axis, side in (("y", "out_h"), ("x", "out_w"))}
        shifts = {axis: k.const(0.5) if numbers == 8 else (one - size) * 0.5 for axis, size in sizes.items()}
        across = w(f"trunc i64 {f['width']} to i32")
        across = w(f"insertelement {half} poison, i32 {across}, i64 0")
        across = w(f"shufflevector {half} {across}, {half} poison, {half} zeroinitializer")
        plane, out_plane = w.mul(f["height"], f["width"]), w.mul(f["out_h"], f["out_w"])

        def compare(how, a, b): return w(f"fcmp {how} {k.type} {a.name}, {b.name}")

        def corner(row, col):
            """(the index of a pixel in each lane, 0 outside; which are inside)"""
            inside = compare("ogt", row, minus)
            for test in (compare("olt", row, height), compare("ogt", col, minus), compare("olt", col, width)):
                inside = w(f"and {bits} {inside}, {test}")
            whole = [w(f"fptosi {k.type} {k.where(Lane(k, inside), place, zero).name} to {half}")
                     for place in (row, col)]
            index = w(f"add {half} {w(f'mul {half} {whole[0]}, {across}')}, {whole[1]}")
            return [w(f"sext i32 {w(f'extractelement {half} {index}, i64 {i}')} to i64") for i in range(n)], inside

        def pixels(source, index, inside):
            held = f"<{n} x {elt}>"
            found = "poison"
            for i, at in enumerate(index):
                found = w(f"insertelement {held} {found}, {elt} {w.load(elt, w.at(elt, source, at))}, i64 {i}")
            found = found if elt == "float" else w(f"uitofp {held} {found} to {k.type}")
            return k.where(Lane(k, inside), Lane(k, found), zero)

        with w.loop("%begin", "%end") as t:
            sample, row = w.div(t.i, f["out_h"]), w.rem(t.i, f["out_h"])
            rule = [k.spread(w.load("float", w.at("float", table, w.add(w.mul(sample, numbers), i))))
                    for i in range(numbers)]
            y = k.spread(w(f"sitofp i64 {row} to float")) + shifts["y"]
            planes = w.mul(sample, f["channels"])

            def write(at, rest, y=y, rule=rule, planes=planes, row=row):
                x = k.spread(w(f"sitofp i64 {at} to float")) + lanes + shifts["x"]
                places = [k.fma(y, rule[i + 1], x * rule[i]) + rule[i + 2] for i in (0, 3)]
                if numbers == 8:
                    below = k.fma(y, rule[7], x * rule[6]) + one
                    places = [place / below - one for place in places]
                px, py = (k.fma(place + one, size * 0.5, k.const(-0.5))
                          for place, size in zip(places, (width, height), strict=True))
                if nearest:
                    corners = [(*corner(k.rint(py), k.rint(px)), None)]
                else:
                    top, left = k.floor(py), k.floor(px)
                    down, right = py - top, px - left
                    corners = []
                    # the top right first, then the others as one reads: as PyTorch's compiler adds them up
                    for line, vertical, sides in ((top, one - down, (1, 0)), (top + one, down, (0, 1))):
                        for side in sides:
                            index, inside = corner(line, left + one if side else left)
                            corners.append((index, inside, (right if side else one - right) * vertical))
                    covered = zero
                    for _, inside, share in corners:
                        covered = covered + k.where(Lane(k, inside), share, zero)
                with w.loop(0, f["channels"]) as c:
                    source = w.at(elt, X, w.mul(w.add(planes, c.i), plane))
                    if filled:
                        back = k.spread(w.load("float", w.at("float", fill, w.mul(c.i, f["fill_step"]))))
                    made = zero
                    for index, inside, share in corners:
                        found = pixels(source, index, inside)
                        made = found if nearest else k.fma(found, share, made)
                    if filled:
                        made = k.where(Lane(k, corners[0][1]), made, back) if nearest else \
                            (made - back) * covered + back
                    if elt == "i8":
                        made = k.rint(made)
                    to = w.add(w.mul(w.add(planes, c.i), out_plane), w.add(w.mul(row, f["out_w"]), at))
                    self.store(k, elt, made, w.at(elt, out, to), rest)

            self.over(w, f["out_w"], write)
        return k.declarations() + w.text()

    # --- mirrors ----------------------------------------------------------------------------------------------------

    def flip(self, name, elt):
        """One sample a tile; buffers image [N, rows, columns], chosen [N] (i8), out: rows mirrored, or copied."""
        w, k, f, (X, chosen, out) = self.open(name, FLIP_FIELDS, 3)
        n = 16 // (int(elt[1:]) // 8)
        held, backwards = f"<{n} x {elt}>", f"<{n} x i32> <{', '.join(f'i32 {i}' for i in reversed(range(n)))}>"
        with w.loop("%begin", "%end") as t:
            start = w.mul(w.mul(t.i, f["rows"]), f["columns"])
            source, to = w.at(elt, X, start), w.at(elt, out, start)

            def mirror(source=source, to=to):
                whole = w.down(f["columns"], n)
                with w.loop(0, f["rows"]) as r:
                    line, end = (w.at(elt, base, w.mul(r.i, f["columns"])) for base in (source, to))
                    with w.loop(0, whole, n) as c:
                        one = w.load(held, w.at(elt, line, c.i), 1)
                        one = w(f"shufflevector {held} {one}, {held} poison, {backwards}")
                        w.store(held, one, w.at(elt, end, w.sub(w.sub(f["columns"], n), c.i)), 1)
                    with w.loop(whole, f["columns"]) as c:
                        w.store(elt, w.load(elt, w.at(elt, line, c.i)),
                                w.at(elt, end, w.sub(w.sub(f["columns"], 1), c.i)))

            def copy(source=source, to=to):
                size = w.mul(w.mul(f["rows"], f["columns"]), int(elt[1:]) // 8)
                w.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {size}, i1 false)")

            on = w.load("i8", w.at("i8", chosen, t.i))
            w.switch(w(f"zext i8 {on} to i64"), {0: copy, 1: mirror})
        return k.declarations() + w.text()


# --- the calls --------------------------------------------------------------------------------------------------------


def jitter_colours(dtype, image, out):
    """A LibraryCall that changes the colours of samples [N, 3, pixels], or None. The buffers are image, order, factors
    and out."""
    elt = IMAGE_ELEMENTS.get(dtype.name)
    (count, channels, pixels), _ = image
    if elt is None or channels != 3 or not count * pixels:
        return None
    machine = compiled_kernels("float32", ImageKernels)
    return LibraryCall(machine.function("jitter", elt), count, grain(count, 40 * pixels), [pixels])


def resize_boxes(dtype, image, weight_x, weight_y, out):
    """A LibraryCall that resizes planes [N, C, H, W] by tables [N or 1, out, taps], or None."""
    elt = IMAGE_ELEMENTS.get(dtype.name)
    (count, channels, height, width), _ = image
    (tables, out_w, taps_x), _ = weight_x
    (_, out_h, taps_y), _ = weight_y
    machine = compiled_kernels("float32", ImageKernels)
    room = taps_y * -(-out_w // machine.kernels.count) * machine.kernels.count
    if elt is None or room > MOST_ROOM or not count * channels * out_h * out_w:
        return None
    fn = machine.function("resize", elt, taps_x if taps_x <= MOST_UNROLLED else 0)
    cycles = out_w * (min(height, out_h * taps_y) * (3 * taps_x + 8) + out_h * taps_y)
    return LibraryCall(fn, count * channels, grain(count * channels, cycles),
                       [channels, height, width, out_h, out_w, taps_x, taps_y, int(tables == 1), room])


def warp_places(dtype, image, table, fill, out, size, nearest, filled):
    """A LibraryCall that reads images [N, C, 1, H * W] where maps [N, 6 or 8, 1, 1] send places of `out`, or None."""
    elt = IMAGE_ELEMENTS.get(dtype.name)
    (count, channels, out_h, out_w), _ = out
    if elt is None or not count * channels * out_h * out_w or size[0] * size[1] >= 1 << 31:
        return None
    machine = compiled_kernels("float32", ImageKernels)
    fn = machine.function("warp", elt, table[0][1], int(nearest), int(filled))
    cycles = out_w * (20 + channels * (4 if nearest else 16))
    return LibraryCall(fn, count * out_h, grain(count * out_h, cycles),
                       [channels, *size, out_h, out_w, int(filled and fill[0][1] > 1)])


def mirror_rows(dtype, image):
    """A LibraryCall that mirrors the rows of chosen samples [N, rows, columns], or None."""
    (count, rows, columns), _ = image
    if not count * rows * columns or dtype.itemsize > 8:
        return None
    machine = compiled_kernels("float32", ImageKernels)
    return LibraryCall(machine.function("flip", f"i{8 * dtype.itemsize}"), count, grain(count, rows * columns // 4),
                       [rows, columns])


def grain(tiles, cycles):
    """How many tiles of so many cycles are worth a thread."""
    return min(tiles, max(1, PIECE_CYCLES // max(cycles, 1)))
