"""The LLVM text of the steps for images. See images.py, which plans them."""
from ....loops import colour
from ....loops.step import STEP_ARGUMENTS
from ..llvm_writer import LLVMWriter, Vectors
from .lane_words import Lane, LaneWords, float_text

JITTER_FIELDS = ("pixels",)
RESIZE_FIELDS = "channels height width out_h out_w taps_x taps_y shared room".split()
FLIP_FIELDS = "rows columns".split()
WARP_FIELDS = "channels height width out_h out_w fill_step".split()
PIXELS_SUMMED = 1024          # of which the sum is kept apart, so that a mean stays exact


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

    def load(self, k, elt, pointer, rest):
        """A vector of pixels as floats; of the last, only `rest` are there and the others are zero."""
        w, type = k.w, f"<{self.count} x {elt}>"
        if rest is not None:
            spare = w.spare(type)
            w.store(type, "zeroinitializer", spare, 4)
            with w.loop(0, rest) as i:
                w.store(elt, w.load(elt, w.at(elt, pointer, i.i)), w.at(elt, spare, i.i))
            pointer = spare
        found = w.load(type, pointer, 1 if elt == "i8" else 4)
        return Lane(k, found if elt == "float" else w(f"uitofp {type} {found} to {k.type}"))

    def store(self, k, elt, value, pointer, rest):
        w, type = k.w, f"<{self.count} x {elt}>"
        made = value.name if elt == "float" else w(f"fptoui {k.type} {value.name} to {type}")
        self.put(w, elt, made, pointer, rest)

    def put(self, w, elt, made, pointer, rest):
        type = f"<{self.count} x {elt}>"
        if rest is None:
            w.store(type, made, pointer, 1 if elt == "i8" else 4)
            return
        spare = w.spare(type)
        w.store(type, made, spare, 4)
        with w.loop(0, rest) as i:
            w.store(elt, w.load(elt, w.at(elt, spare, i.i)), w.at(elt, pointer, i.i))

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
        summed = w.spare(k.type)
        with w.loop("%begin", "%end") as t:
            start = w.mul(w.mul(t.i, 3), f["pixels"])
            to = w.at(elt, out, start)
            with w.loop(0, 4, 1, [("ptr", w.at(elt, X, start))]) as turn:
                way = w.load("i64", w.at("i64", order, w.add(w.mul(t.i, 4), turn.i)))
                source = turn.values[0]
                self.change(k, elt, way, source, to, f["pixels"], summed, lambda i, t=t: k.spread(
                    w.load("float", w.at("float", factors, w.add(w.mul(t.i, 8), i)))))
                turn.next = [w.pick(w.is_("sge", way, 0), to, source, "ptr")]
        return k.declarations() + w.text()

    def change(self, k, elt, way, source, to, pixels, summed, factor):
        """Write the sample at `source`, changed in one `way`, to `to`."""
        w, byte = k.w, elt == "i8"

        def planes(at, rest):
            return [self.load(k, elt, w.at(elt, source, w.add(w.mul(c, pixels), at)), rest) for c in range(3)]

        def put(made, at, rest):
            for c, plane in enumerate(made):
                self.store(k, elt, plane, w.at(elt, to, w.add(w.mul(c, pixels), at)), rest)

        def brightness():
            ratio, zero = factor(0), k.const(0.0)
            self.over(w, pixels, lambda at, rest: put(
                [colour.mixed(k, plane, zero, ratio, zero, byte) for plane in planes(at, rest)], at, rest))

        def contrast():
            self.sum_grey(k, elt, planes, pixels, summed)
            total = k.spread(self.total(w, w.load(k.type, summed, 4)))
            mean = total / k.spread(w(f"sitofp i64 {pixels} to float"))
            ratio, rest_of = factor(2), factor(3)
            self.over(w, pixels, lambda at, rest: put(
                [colour.mixed(k, plane, mean, ratio, rest_of, byte) for plane in planes(at, rest)], at, rest))

        def saturation():
            ratio, rest_of = factor(4), factor(5)

            def write(at, rest):
                rgb = planes(at, rest)
                level = colour.grey(k, rgb, byte)
                put([colour.mixed(k, plane, level, ratio, rest_of, byte) for plane in rgb], at, rest)
            self.over(w, pixels, write)

        def hue():
            angle = factor(6)
            self.over(w, pixels, lambda at, rest: put(
                colour.turned(k, planes(at, rest), angle, byte), at, rest))

        w.switch(way, {0: brightness, 1: contrast, 2: saturation, 3: hue})

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
        return BoxResizing(self, name, elt).text(taps)

    # --- positions --------------------------------------------------------------------------------------------------

    def warp(self, name, elt, numbers, nearest, filled):
        """One row of a sample a tile; buffers image, table [N, numbers], fill, out. See `warped` in data/transforms.

        Where a pixel comes from is worked out once for all channels, by vectors; then each channel is read there.
        """
        return Warping(self, name, elt, numbers, nearest, filled).text()

    # --- mirrors ----------------------------------------------------------------------------------------------------

    def flip(self, name, elt):
        """One sample a tile; buffers image [N, rows, columns], chosen [N] (i8), out: rows mirrored, or copied."""
        w, k, f, (X, chosen, out) = self.open(name, FLIP_FIELDS, 3)
        n = 16 // (int(elt[1:]) // 8)
        type, backwards = f"<{n} x {elt}>", f"<{n} x i32> <{', '.join(f'i32 {i}' for i in reversed(range(n)))}>"
        with w.loop("%begin", "%end") as t:
            start = w.mul(w.mul(t.i, f["rows"]), f["columns"])
            source, to = w.at(elt, X, start), w.at(elt, out, start)

            def mirror(source=source, to=to):
                whole = w.down(f["columns"], n)
                with w.loop(0, f["rows"]) as r:
                    line, end = (w.at(elt, base, w.mul(r.i, f["columns"])) for base in (source, to))
                    with w.loop(0, whole, n) as c:
                        one = w.load(type, w.at(elt, line, c.i), 1)
                        one = w(f"shufflevector {type} {one}, {type} poison, {backwards}")
                        w.store(type, one, w.at(elt, end, w.sub(w.sub(f["columns"], n), c.i)), 1)
                    with w.loop(whole, f["columns"]) as c:
                        w.store(elt, w.load(elt, w.at(elt, line, c.i)),
                                w.at(elt, end, w.sub(w.sub(f["columns"], 1), c.i)))

            def copy(source=source, to=to):
                size = w.mul(w.mul(f["rows"], f["columns"]), int(elt[1:]) // 8)
                w.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {size}, i1 false)")

            on = w.load("i8", w.at("i8", chosen, t.i))
            w.switch(w(f"zext i8 {on} to i64"), {0: copy, 1: mirror})
        return k.declarations() + w.text()


class BoxResizing:
    """Writes `resize`."""

    def __init__(self, kernels, name, elt):
        self.kernels, self.elt, self.byte, self.count = kernels, elt, elt == "i8", kernels.count
        self.w, self.words, self.f, self.buffers = kernels.open(name, RESIZE_FIELDS, 8)
        w, f = self.w, self.f
        self.work = "i32" if self.byte else "float"
        self.many = f"<{self.count} x {self.work}>"
        self.ring, = w.rooms((4, f["room"]))
        self.shared = w.is_("ne", f["shared"], 0)
        self.wide = w.up(f["out_w"], self.count)                      # a row of the ring is whole vectors

    def text(self, taps):
        w, f, elt, work = self.w, self.f, self.elt, self.work
        X, first_x, weight_x, bits_x, first_y, weight_y, bits_y, out = self.buffers
        with w.loop("%begin", "%end") as t:
            n = w.pick(self.shared, 0, w.div(t.i, f["channels"]))
            plane = w.at(elt, X, w.mul(w.mul(t.i, f["height"]), f["width"]))
            to = w.at(elt, out, w.mul(w.mul(t.i, f["out_h"]), f["out_w"]))
            firsts_x, firsts_y = w.at("i32", first_x, w.mul(n, f["out_w"])), w.at("i32", first_y, w.mul(n, f["out_h"]))
            weights_x = w.at(work, weight_x, w.mul(w.mul(n, f["out_w"]), f["taps_x"]))
            weights_y = w.at(work, weight_y, w.mul(w.mul(n, f["out_h"]), f["taps_y"]))
            across = down = None
            if self.byte:
                b_x, b_y = w.load("i32", w.at("i32", bits_x, n)), w.load("i32", w.at("i32", bits_y, n))
                across = b_x, w(f"shl i32 1, {w(f'sub i32 {b_x}, 1')}")
                half = self.spread(w(f"shl i32 1, {w(f'sub i32 {b_y}, 1')}"))
                down = self.spread(b_y), half
            with w.loop(0, f["out_h"], 1, [("i64", 0)]) as y:
                top = w(f"sext i32 {w.load('i32', w.at('i32', firsts_y, y.i))} to i64")
                end = w.add(top, f["taps_y"])
                with w.loop(w.most(y.values[0], top), end) as row:
                    self.resize_row(row.i, plane, firsts_x, weights_x, taps, across)
                y.next = [w.most(end, y.values[0])]
                shares = w.at(work, weights_y, w.mul(y.i, f["taps_y"]))
                line = w.at(elt, to, w.mul(y.i, f["out_w"]))
                self.kernels.over(w, f["out_w"], lambda at, rest, top=top, shares=shares, line=line, down=down:
                                  self.put_column(at, rest, top, shares, line, down))
        return self.words.declarations() + w.text()

    def resize_row(self, row, plane, firsts, weights, taps, shift):
        """Row `row` of the image at `plane`, resized, to its place in the ring."""
        w, f, work = self.w, self.f, self.work
        source = w.at(self.elt, plane, w.mul(row, f["width"]))
        line = w.at(work, self.ring, w.mul(w.rem(row, f["taps_y"]), self.wide))
        with w.loop(0, f["out_w"]) as x:
            first = w(f"sext i32 {w.load('i32', w.at('i32', firsts, x.i))} to i64")
            at, weight = w.at(self.elt, source, first), w.at(work, weights, w.mul(x.i, f["taps_x"]))

            def more(made, tap):
                return self.fma(work, made, w.load(work, w.at(work, weight, tap)), self.pixel(w.at(self.elt, at, tap)))

            made = "0" if self.byte else "0.0"
            if taps:
                for tap in range(taps):
                    made = more(made, tap)
            else:
                with w.loop(0, f["taps_x"], 1, [(work, made)]) as tap:
                    tap.next = [more(tap.values[0], tap.i)]
                made = tap.values[0]
            w.store(work, self.rounded(made, *shift, "i32") if self.byte else made, w.at(work, line, x.i))

    def put_column(self, at, rest, top, shares, line, shift):
        """A vector of the result from column `at` on, of rows of the ring from `top` on; `rest` as in `over`."""
        w, f, work, many, count = self.w, self.f, self.work, self.many, self.count
        with w.loop(0, f["taps_y"], 1, [(many, "zeroinitializer")]) as tap:
            source = w.at(work, self.ring, w.add(w.mul(w.rem(w.add(top, tap.i), f["taps_y"]), self.wide), at))
            weight = self.spread(w.load(work, w.at(work, shares, tap.i)))
            tap.next = [self.fma(many, tap.values[0], weight, w.load(many, source, 4))]
        made = tap.values[0]
        if self.byte:
            made = w(f"trunc {many} {self.rounded(made, *shift, many)} to <{count} x i8>")
        self.kernels.put(w, self.elt, made, w.at(self.elt, line, at), rest)

    def rounded(self, value, bits, half, type):
        """A sum of bytes times whole weights, as a byte again."""
        w = self.w
        made = w(f"ashr {type} {w(f'add {type} {value}, {half}')}, {bits}")
        if type == "i32":
            return w(f"call i32 @llvm.smax.i32(i32 {w(f'call i32 @llvm.smin.i32(i32 {made}, i32 255)')}, i32 0)")
        for how, bound in (("slt", 255), ("sgt", 0)):
            limit = self.spread(bound)
            here = w(f"icmp {how} {type} {made}, {limit}")
            made = w(f"select <{self.count} x i1> {here}, {type} {made}, {type} {limit}")
        return made

    def spread(self, number):
        w, many = self.w, self.many
        one = w(f"insertelement {many} poison, {self.work} {number}, i64 0")
        return w(f"shufflevector {many} {one}, {many} poison, <{self.count} x i32> zeroinitializer")

    def fma(self, type, value, weight, pixel):
        """`weight * pixel + value`, of numbers or of vectors."""
        w, k = self.w, self.words
        if self.byte:
            return w(f"add {type} {value}, {w(f'mul {type} {weight}, {pixel}')}")
        if type == "float":
            return w(f"call float @llvm.fma.f32(float {weight}, float {pixel}, float {value})") \
                if k.has_fma else w(f"fadd float {value}, {w(f'fmul float {weight}, {pixel}')}")
        return k.fma(Lane(k, weight), Lane(k, pixel), Lane(k, value)).name

    def pixel(self, pointer):
        found = self.w.load(self.elt, pointer)
        return self.w(f"zext i8 {found} to i32") if self.byte else found


class Warping:
    """Writes `warp`."""

    def __init__(self, kernels, name, elt, numbers, nearest, filled):
        self.kernels, self.elt, self.numbers, self.nearest, self.filled = kernels, elt, numbers, nearest, filled
        self.w, self.words, self.f, self.buffers = kernels.open(name, WARP_FIELDS, 4)
        w, k, f, n = self.w, self.words, self.f, kernels.count
        self.half, self.bits = f"<{n} x i32>", f"<{n} x i1>"
        self.sides = [k.spread(w(f"sitofp i64 {f[side]} to float")) for side in ("height", "width")]
        self.zero, self.one, self.minus = k.const(0.0), k.const(1.0), k.const(-1.0)
        self.lanes = Lane(k, f"<{', '.join(f'float {float_text(i)}' for i in range(n))}>")
        sizes = {axis: k.spread(w(f"sitofp i64 {f[side]} to float")) for axis, side in (("y", "out_h"), ("x", "out_w"))}
        self.shifts = {axis: k.const(0.5) if numbers == 8 else (self.one - size) * 0.5 for axis, size in sizes.items()}
        across = w(f"trunc i64 {f['width']} to i32")
        across = w(f"insertelement {self.half} poison, i32 {across}, i64 0")
        self.across = w(f"shufflevector {self.half} {across}, {self.half} poison, {self.half} zeroinitializer")
        self.plane, self.out_plane = w.mul(f["height"], f["width"]), w.mul(f["out_h"], f["out_w"])

    def text(self):
        w, k, f, table = self.w, self.words, self.f, self.buffers[1]
        with w.loop("%begin", "%end") as t:
            sample, row = w.div(t.i, f["out_h"]), w.rem(t.i, f["out_h"])
            rule = [k.spread(w.load("float", w.at("float", table, w.add(w.mul(sample, self.numbers), i))))
                    for i in range(self.numbers)]
            y = k.spread(w(f"sitofp i64 {row} to float")) + self.shifts["y"]
            planes = w.mul(sample, f["channels"])
            self.kernels.over(w, f["out_w"], lambda at, rest, y=y, rule=rule, planes=planes, row=row:
                              self.put(at, rest, planes, row, self.corners(*self.source_position(at, y, rule))))
        return k.declarations() + w.text()

    def source_position(self, at, y, rule):
        """(column, row) in the image of the pixels from `at` on, of which `y` is the row."""
        k = self.words
        x = k.spread(self.w(f"sitofp i64 {at} to float")) + self.lanes + self.shifts["x"]
        positions = [k.fma(y, rule[i + 1], x * rule[i]) + rule[i + 2] for i in (0, 3)]
        if self.numbers == 8:
            below = k.fma(y, rule[7], x * rule[6]) + self.one
            positions = [position / below - self.one for position in positions]
        return [k.fma(position + self.one, size * 0.5, k.const(-0.5))
                for position, size in zip(positions, reversed(self.sides), strict=True)]

    def corners(self, px, py):
        """(index, which are inside, share) of each pixel that is read for one of the result."""
        k, one = self.words, self.one
        if self.nearest:
            return [(*self.corner(k.rint(py), k.rint(px)), None)]
        top, left = k.floor(py), k.floor(px)
        down, right = py - top, px - left
        corners = []
        # the top right first, then the others as one reads: as PyTorch's compiler adds them up
        for line, vertical, sides in ((top, one - down, (1, 0)), (top + one, down, (0, 1))):
            for side in sides:
                index, inside = self.corner(line, left + one if side else left)
                corners.append((index, inside, (right if side else one - right) * vertical))
        return corners

    def corner(self, row, col):
        """(the index of a pixel in each lane, 0 outside; which are inside)"""
        w, k, half, (height, width) = self.w, self.words, self.half, self.sides

        def compare(how, a, b): return w(f"fcmp {how} {k.type} {a.name}, {b.name}")

        inside = compare("ogt", row, self.minus)
        for test in (compare("olt", row, height), compare("ogt", col, self.minus), compare("olt", col, width)):
            inside = w(f"and {self.bits} {inside}, {test}")
        whole = [w(f"fptosi {k.type} {k.where(Lane(k, inside), index, self.zero).name} to {half}")
                 for index in (row, col)]
        index = w(f"add {half} {w(f'mul {half} {whole[0]}, {self.across}')}, {whole[1]}")
        return [w(f"sext i32 {w(f'extractelement {half} {index}, i64 {i}')} to i64")
                for i in range(self.kernels.count)], inside

    def pixels(self, source, index, inside):
        w, k, elt, type, found = self.w, self.words, self.elt, f"<{self.kernels.count} x {self.elt}>", "poison"
        for i, at in enumerate(index):
            found = w(f"insertelement {type} {found}, {elt} {w.load(elt, w.at(elt, source, at))}, i64 {i}")
        found = found if elt == "float" else w(f"uitofp {type} {found} to {k.type}")
        return k.where(Lane(k, inside), Lane(k, found), self.zero)

    def put(self, at, rest, planes, row, corners):
        """The pixels from `at` on of a row of the result, in each channel of the planes from `planes` on."""
        w, k, f, elt, (X, _, fill, out) = self.w, self.words, self.f, self.elt, self.buffers
        covered = self.zero
        for _, inside, share in () if self.nearest else corners:
            covered = covered + k.where(Lane(k, inside), share, self.zero)
        with w.loop(0, f["channels"]) as c:
            source = w.at(elt, X, w.mul(w.add(planes, c.i), self.plane))
            if self.filled:
                back = k.spread(w.load("float", w.at("float", fill, w.mul(c.i, f["fill_step"]))))
            made = self.zero
            for index, inside, share in corners:
                found = self.pixels(source, index, inside)
                made = found if self.nearest else k.fma(found, share, made)
            if self.filled:
                made = k.where(Lane(k, corners[0][1]), made, back) if self.nearest else \
                    (made - back) * covered + back
            if elt == "i8":
                made = k.rint(made)
            to = w.add(w.mul(w.add(planes, c.i), self.out_plane), w.add(w.mul(row, f["out_w"]), at))
            self.kernels.store(k, elt, made, w.at(elt, out, to), rest)
