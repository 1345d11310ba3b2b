"""Images sampled at free positions, and the gradients of that, as native steps.

    out[n, c, p] = the corners of x[n, c] around at[n, :, p], each weighted by how near it is; outside is zero

Positions are numbers of pixels, one row for each dimension. Their corners and weights are found by vectors of positions
and used for all channels. What is sent back to one place of an image goes there in the order of the positions.
"""
import itertools
import math

from ....loops.step import STEP_ARGUMENTS
from ..llvm_writer import LLVMWriter, Vectors
from .gemm import PIECE_CYCLES, LibraryCall
from .gemm_kernels import LLVM_ELEMENT, compiled_kernels
from .pool_kernels import CHANNELS_DROPPED_TOGETHER

SAMPLE_FIELDS = "channels count size blocks wide size_0 size_1 size_2".split()
SAMPLE_STEPS = "sample", "sample_slopes", "sample_drop"
TILE_POSITIONS = 256


def sample(dtype, step, channels, at, sizes):
    """A LibraryCall for one of SAMPLE_STEPS; or None.

    x is [N, channels, *sizes] of two or three sizes, at [N, dims, P]; all are contiguous. The buffers are x, at and out
    [N, channels, P]; for slopes, which are those of a sum with the weights g [N, channels, P], g, x, at and out
    [N, dims, P]; and g, at, and out, as x is, for what is sent back.
    """
    dtype, (number, dims, count), size = getattr(dtype, "name", dtype), at[0], math.prod(sizes)
    if dtype not in LLVM_ELEMENT or dims not in (2, 3) or not number * channels * count * size or size >= 1 << 31:
        return None
    machine = compiled_kernels(dtype, SampleKernels)
    corners = 2 ** dims
    if step == "sample_drop":
        wide, blocks = CHANNELS_DROPPED_TOGETHER, -(-channels // CHANNELS_DROPPED_TOGETHER)
        each = (2 * corners * count + size // 8) * min(channels, wide) + 20
    else:
        wide, blocks = TILE_POSITIONS, -(-count // TILE_POSITIONS)
        each = min(count, wide) // machine.lanes * (40 * dims + 10 * corners * channels) + 20
    tiles = number * blocks
    return LibraryCall(machine.function(step, dims), tiles, min(tiles, max(1, PIECE_CYCLES // each)),
                       [channels, count, size, blocks, wide, *sizes, *[1] * (3 - dims)])


class SampleKernels:
    """The LLVM text of the steps for one element type."""

    word = "sample"
    drivers = inner = ()

    def every(self, machine):
        """The functions for images of two dimensions; others are compiled when they are needed."""
        return [(step, 2) for step in SAMPLE_STEPS]

    def __init__(self, element, target):
        self.v = Vectors(element, target)
        self.element, self.lanes = element, self.v.lanes
        self.bits, self.places = f"<{self.lanes} x i1>", f"<{self.lanes} x i32>"

    def open(self, name, buffers):
        """A writer of a step, its ints by name, and its buffers."""
        w = LLVMWriter(f"define void @{name}({STEP_ARGUMENTS})")
        return w, {field: w.load("i64", w.at("i64", "%ints", i)) for i, field in enumerate(SAMPLE_FIELDS)}, \
            [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(buffers)]

    def text(self, w):
        v, n = self.v, self.lanes
        floor, gather = f"@llvm.floor.{v.short}", f"@llvm.masked.gather.{v.short}.v{n}p0"
        return v.declarations() + f"declare {v.type} {floor}({v.type})\n" \
            f"declare {v.type} {gather}(<{n} x ptr>, i32, {self.bits}, {v.type})\n" + w.text()

    # --- positions ----------------------------------------------------------------------------------------------

    def axis(self, w, at, size, some):
        """What positions along one dimension read, before and after: (index, inside, weight) of each."""
        v = self.v
        place = v.load_some(w, at, some)
        before = w(f"call {v.type} @llvm.floor.{v.short}({v.type} {place})")
        share = w(f"fsub {v.type} {place}, {before}")
        one, zero = v.spread(w, "1.0"), "zeroinitializer"
        last = v.spread(w, w(f"sitofp i64 {w.sub(size, 1)} to {v.element}"))
        found = []
        rest, after = w(f"fsub {v.type} {one}, {share}"), w(f"fadd {v.type} {before}, {one}")
        for index, weight in ((before, rest), (after, share)):
            inside = w(f"and {self.bits} {w(f'fcmp oge {v.type} {index}, {zero}')}, "
                       f"{w(f'fcmp ole {v.type} {index}, {last}')}")
            index = w(f"select {self.bits} {inside}, {v.type} {index}, {v.type} {zero}")
            found.append((w(f"fptosi {v.type} {index} to {self.places}"), inside, weight))
        return found

    def spread_size(self, w, size):
        one = w(f"insertelement {self.places} poison, i32 {w(f'trunc i64 {size} to i32')}, i64 0")
        return w(f"shufflevector {self.places} {one}, {self.places} poison, {self.places} zeroinitializer")

    def corners(self, w, f, at, some, dims):
        """For each corner around a vector of positions: (flat index, inside, weight, weight of each slope)."""
        t, axes = self.v.type, []
        for d in range(dims):
            axes.append(self.axis(w, w.at(self.element, at, w.mul(f["count"], d)), f[f"size_{d}"], some))
        sizes = [None, *[self.spread_size(w, f[f"size_{d}"]) for d in range(1, dims)]]
        found = []
        for sides in itertools.product((0, 1), repeat=dims):
            flat = inside = None
            for axis, side, size in zip(axes, sides, sizes, strict=True):
                index, here, _ = axis[side]
                flat = index if flat is None else \
                    w(f"add {self.places} {w(f'mul {self.places} {flat}, {size}')}, {index}")
                inside = here if inside is None else w(f"and {self.bits} {inside}, {here}")
            weights = [axis[side][2] for axis, side in zip(axes, sides, strict=True)]
            slopes = []
            for d, side in enumerate(sides):
                slope = self.product(w, [x for e, x in enumerate(weights) if e != d])
                slopes.append(slope if side else w(f"fneg {t} {slope}"))
            found.append((flat, inside, self.product(w, weights), slopes))
        return found

    def product(self, w, factors):
        made = factors[0]
        for x in factors[1:]:
            made = w(f"fmul {self.v.type} {made}, {x}")
        return made

    def gather(self, w, image, flat, inside):
        """The elements of an image at a corner, zero outside."""
        v, n = self.v, self.lanes
        places = w(f"getelementptr {v.element}, ptr {image}, {self.places} {flat}")
        every = f"<{', '.join(['i1 true'] * n)}>"
        mask = inside if v.masks else every
        found = w(f"call {v.type} @llvm.masked.gather.{v.short}.v{n}p0(<{n} x ptr> {places}, i32 {v.bytes}, "
                  f"{self.bits} {mask}, {v.type} zeroinitializer)")
        return found if v.masks else w(f"select {self.bits} {inside}, {v.type} {found}, {v.type} zeroinitializer")

    # --- the steps ----------------------------------------------------------------------------------------------

    def tiles(self, w, f):
        """For each vector of positions of a tile: (number of the image, first position, which lanes there are)."""
        with w.loop("%begin", "%end") as t:
            number, first = w.div(t.i, f["blocks"]), w.mul(w.rem(t.i, f["blocks"]), f["wide"])
            last = w.least(w.add(first, f["wide"]), f["count"])
            with w.loop(first, last, self.lanes) as p:
                yield number, p.i, self.v.some(w, w.least(w.sub(last, p.i), self.lanes))

    def sample(self, name, dims):
        v, elt = self.v, self.element
        w, f, (X, A, O) = self.open(name, 3)
        for number, p, some in self.tiles(w, f):
            corners = self.corners(w, f, w.at(elt, A, w.add(w.mul(w.mul(number, f["count"]), dims), p)), some, dims)
            first = w.mul(number, f["channels"])
            with w.loop(0, f["channels"]) as c:
                row = w.add(first, c.i)
                image, total = w.at(elt, X, w.mul(row, f["size"])), None
                for flat, inside, weight, _ in corners:
                    found = self.gather(w, image, flat, inside)
                    total = w(f"fmul {v.type} {found}, {weight}") if total is None else v.fma(w, found, weight, total)
                v.store_some(w, total, w.at(elt, O, w.add(w.mul(row, f["count"]), p)), some)
        return self.text(w)

    def sample_slopes(self, name, dims):
        v, elt = self.v, self.element
        w, f, (G, X, A, O) = self.open(name, 4)
        for number, p, some in self.tiles(w, f):
            position = w.add(w.mul(w.mul(number, f["count"]), dims), p)
            corners = self.corners(w, f, w.at(elt, A, position), some, dims)
            first = w.mul(number, f["channels"])
            with w.loop(0, f["channels"], 1, [(v.type, "zeroinitializer")] * dims) as c:
                row = w.add(first, c.i)
                image, totals = w.at(elt, X, w.mul(row, f["size"])), list(c.values)
                weight = v.load_some(w, w.at(elt, G, w.add(w.mul(row, f["count"]), p)), some)
                for flat, inside, _, slopes in corners:
                    found = w(f"fmul {v.type} {self.gather(w, image, flat, inside)}, {weight}")
                    totals = [v.fma(w, found, slope, total) for slope, total in zip(slopes, totals, strict=True)]
                c.next = totals
            for d, total in enumerate(c.values):
                v.store_some(w, total, w.at(elt, O, w.add(position, w.mul(f["count"], d))), some)
        return self.text(w)

    def sample_drop(self, name, dims):
        """Some channels of one image a tile: `blocks` and `wide` count these here."""
        v, elt, n = self.v, self.element, self.lanes
        w, f, (G, A, O) = self.open(name, 3)
        rooms = [(w.spare(self.places), w.spare(v.type)) for _ in range(2 ** dims)]
        with w.loop("%begin", "%end") as t:
            number, first = w.div(t.i, f["blocks"]), w.mul(w.rem(t.i, f["blocks"]), f["wide"])
            channels = w.least(w.sub(f["channels"], first), f["wide"])
            row = w.add(w.mul(number, f["channels"]), first)
            g, out = w.at(elt, G, w.mul(row, f["count"])), w.at(elt, O, w.mul(row, f["size"]))
            with w.loop(0, w.mul(channels, f["size"])) as i:
                w.store(elt, "0.0", w.at(elt, out, i.i))
            at = w.at(elt, A, w.mul(w.mul(number, f["count"]), dims))
            with w.loop(0, f["count"], n) as p:
                many = w.least(w.sub(f["count"], p.i), n)
                nowhere = f"<{', '.join(['i32 -1'] * n)}>"
                for (indices, weights), (flat, inside, weight, _) in zip(
                        rooms, self.corners(w, f, w.at(elt, at, p.i), v.some(w, many), dims), strict=True):
                    flat = w(f"select {self.bits} {inside}, {self.places} {flat}, {self.places} {nowhere}")
                    w.store(self.places, flat, indices)
                    w.store(v.type, weight, weights)
                here = w.at(elt, g, p.i)

                def drop(start, count, here=here, many=many):
                    """Send so many channels back, position by position."""
                    sources, images = [[w.at(elt, base, w.mul(w.add(start, i), f[step])) for i in range(count)]
                                       for base, step in ((here, "count"), (out, "size"))]
                    with w.loop(0, many) as lane:
                        values = [w.load(elt, w.at(elt, one, lane.i)) for one in sources]
                        for indices, weights in rooms:
                            index = w(f"sext i32 {w.load('i32', w.at('i32', indices, lane.i))} to i64")
                            weight = w.load(elt, w.at(elt, weights, lane.i))
                            with w.when(w.is_("sge", index, 0)):
                                for value, image in zip(values, images, strict=True):
                                    to = w.at(elt, image, index)
                                    part = w(f"fmul {elt} {value}, {weight}")
                                    w.store(elt, w(f"fadd {elt} {w.load(elt, to)}, {part}"), to)

                def one_by_one():
                    with w.loop(0, channels) as c:
                        drop(c.i, 1)

                w.either(w.is_("eq", channels, CHANNELS_DROPPED_TOGETHER),
                         lambda: drop(0, CHANNELS_DROPPED_TOGETHER), one_by_one)
        return self.text(w)
