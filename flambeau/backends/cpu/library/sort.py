"""Rows in order as native steps: sorted, the largest or smallest of each, and the one at a given place of the order.

An element's key is a signed whole number that compares as elements do: all NaNs are equal and above everything, both
zeros are equal, and for descending order its bits are turned over. So equal elements keep their order in both.

    ranks     short rows: each element is compared with all of its row, by vectors; as many are smaller, so far back it
              goes, and equal ones go there one after the other
    digits    long rows: keys with their places are dealt out by a few bits at a time, the lowest first, as often as the
              elements of the row differ in those bits
    leaders   the few best of a row: vectors are compared with the last of the best so far, and what is better goes in
              among them, which happens seldom
    best      more of them: of the highest bits it is counted how often each value comes, those that may be among the
              best by these are put aside, and they are ranked, or sorted by digits
    select    one place of the order: the same, but those are put aside that have the value in question, and so on with
              the next bits until few are left, which are ranked

What the results hold are the elements themselves: those of keys that stand for several are read again. A tile is a
number of rows, which have its part of the working memory by turns.
"""
from math import ceil, log
from typing import NamedTuple

from ....loops.step import STEP_ARGUMENTS
from ..llvm_writer import LLVMWriter, Vectors
from ..memory.allocator import CACHE_LINE_BYTES
from ..threads import get_num_threads
from .blocking import up
from .gemm import HASTY_CYCLES, PIECE_CYCLES, PIECES_A_THREAD, LibraryCall
from .gemm_kernels import compiled_kernels

ORDER_FIELDS = "rows each n first count pick flip room_bytes".split()
AT_FIRST, AT_MEDIAN, AT_NANMEDIAN = range(3)      # which place of the order: `first`, or one that NaNs decide on
RANKED_VECTORS = 4            # of a row that are compared with an element together
SELECTED_RANKS = 64           # candidates that are ranked when a place is looked for,
BEST_RANKS = 192              # and when several are; more are sorted by digits
MAX_LEADERS = 64
SAMPLED_ROW = 2048            # elements of a row of which some are looked at first, where a few are wanted
BEST_AT = 64                  # bytes of working memory before the best of a row, with room for one that is above all
SHORT_DIGIT, LONG_DIGIT = 8, 11        # bits
MAX_ORDER_ROOM_BYTES = 32 << 20        # of working memory, unless the threads need more
VALUES_TOGETHER = 16          # of a digit, whose counts are added up where one of them is looked for
LONG_DIGIT_ROW = 3000         # elements of a row that is worth as many counts as a longer digit has values,
LONG_COUNTED_ROW = 384        # where it is sorted, and where one digit is counted


class OrderedType(NamedTuple):
    """Elements that have an order: their size, the bits of infinity (0 for whole numbers), whether they have a sign."""
    bits: int
    infinity: int = 0
    signed: bool = True


ORDERED_TYPES = {"float64": OrderedType(64, 0x7FF << 52), "float32": OrderedType(32, 0xFF << 23),
                 "float16": OrderedType(16, 0x1F << 10), "bfloat16": OrderedType(16, 0xFF << 7),
                 "int64": OrderedType(64), "int32": OrderedType(32), "int16": OrderedType(16), "int8": OrderedType(8),
                 "uint8": OrderedType(8, signed=False), "bool": OrderedType(8, signed=False)}


class Keys:
    """Keys of elements of one type, for an LLVMWriter: numbers of `type`, alone or in vectors of `lanes`."""

    def __init__(self, dtype, target):
        self.bits, self.infinity, self.signed = ORDERED_TYPES[dtype]
        self.raw, self.bytes = f"i{self.bits}", self.bits // 8
        self.key_bytes = 8 if self.bits == 64 else 4
        self.type = f"i{8 * self.key_bytes}"
        self.lanes = target.vector_bytes // self.key_bytes
        self.vector = f"<{self.lanes} x {self.type}>"
        self.top = (1 << self.bits - 1) - 1                     # the largest, and NaN's
        self.low = -1 << self.bits - 1
        self.paired = self.bits <= 32        # a key and its place are one number, or else they stand side by side
        self.pair_bytes = 8 if self.paired else 16

    def constant(self, kind, number):
        """A number as a constant of `kind`, which may be a vector."""
        if not kind.startswith("<"):
            return number
        count, _, one = kind[1:-1].partition(" x ")
        return f"<{', '.join([f'{one} {number}'] * int(count))}>"

    def spread(self, w, number, kind=None):
        """A key in every lane."""
        kind = kind or self.vector
        first = w(f"insertelement {kind} poison, {self.type} {number}, i64 0")
        return w(f"shufflevector {kind} {first}, {kind} poison, <{self.lanes} x i32> zeroinitializer")

    def load(self, w, place, kind):
        """An element, or a vector of them, as whole numbers of `kind` that are its bits."""
        raw = kind.replace(kind.rpartition(" ")[2].rstrip(">"), self.raw)
        found = w.load(raw, place, self.bytes)
        if not self.signed:
            found = w(f"xor {raw} {found}, {self.constant(raw, self.low)}")
        return found if raw == kind else w(f"sext {raw} {found} to {kind}")

    def key(self, w, found, kind, flip=0):
        """The key of what `load` found; `flip` is 0, or -1 for descending order."""
        if self.infinity:
            mask = kind.replace(kind.rpartition(" ")[2].rstrip(">"), "i1")

            def const(number): return self.constant(kind, number)
            size = w(f"and {kind} {found}, {const(self.top)}")
            sign = w(f"ashr {kind} {found}, {const((64 if 'i64' in kind else 32) - 1)}")
            nan = w(f"icmp sgt {kind} {size}, {const(self.infinity)}")
            zero = w(f"icmp eq {kind} {size}, {const(0)}")
            sign = w(f"and {kind} {sign}, {const(self.top)}")
            turned = w(f"xor {kind} {found}, {sign}")
            turned = w(f"select {mask} {zero}, {kind} {const(0)}, {kind} {turned}")
            found = w(f"select {mask} {nan}, {kind} {const(self.top)}, {kind} {turned}")
        return found if flip == 0 else w(f"xor {kind} {found}, {flip}")

    def make(self, w, x, n, flip, to):
        """Write the keys of a row to `to`."""
        own = flip if flip == 0 or self.type == "i64" else w(f"trunc i64 {flip} to i32")
        many = own if flip == 0 else self.spread(w, own)
        whole = w.down(n, self.lanes)

        def some(begin, end, step, kind, flip):
            with w.loop(begin, end, step) as i:
                key = self.key(w, self.load(w, w.at(self.raw, x, i.i), kind), kind, flip)
                w.store(kind, key, w.at(self.type, to, i.i), self.key_bytes)

        some(0, whole, self.lanes, self.vector, many)
        some(whole, n, 1, self.type, own)

    def digits(self, w, key):
        """A key, of i64, as a number without a sign, of as many bits as the element has."""
        return w(f"add i64 {key}, {self.low if self.bits == 64 else -self.low}")          # which overflows there

    def at(self, w, place, flip):
        """The key of the element at `place`, as `digits`."""
        return self.digits(w, self.key(w, self.load(w, place, "i64"), "i64", flip))

    def element(self, w, digits, flip):
        """(the bits of the element that has such a key, whether others have the same)"""
        key, shared = w(f"xor i64 {w(f'add i64 {digits}, {self.low}')}, {flip}"), None
        if self.infinity:
            zero, nan = w.is_("eq", key, 0), w.is_("eq", key, self.top)
            shared = w(f"or i1 {zero}, {nan}")
            sign = w(f"ashr i64 {key}, 63")
            key = w(f"xor i64 {key}, {w(f'and i64 {sign}, {self.top}')}")
        made = key if self.bits == 64 else w(f"trunc i64 {key} to {self.raw}")
        return made if self.signed else w(f"xor {self.raw} {made}, {self.low}"), shared

    def put_pair(self, w, to, at, key, place):
        """Keep a key, as `digits`, and its place; or what `get_pair` gave."""
        if self.paired:
            pair = key if place is None else w(f"or i64 {w(f'shl i64 {key}, 32')}, {place}")
            w.store("i64", pair, w.at("i64", to, at))
            return
        to = w.at("i64", to, w.mul(at, 2))
        w.store("i64", key, to)
        w.store("i64", place, w.at("i64", to, 1))

    def get_pair(self, w, source, at):
        """(key, place) that `put_pair` has kept; (both in one number, None) if they are `paired`."""
        if self.paired:
            return w.load("i64", w.at("i64", source, at)), None
        source = w.at("i64", source, w.mul(at, 2))
        return w.load("i64", source), w.load("i64", w.at("i64", source, 1))

    def parts(self, w, key, place):
        """(key, place) of what `get_pair` gave."""
        return (key, place) if place is not None else (w(f"lshr i64 {key}, 32"), w(f"and i64 {key}, {(1 << 32) - 1}"))


class OrderKernels:
    """The LLVM text of the steps. Their buffers are x, the values, the places and working memory."""

    word = "order"
    drivers = inner = ()

    def every(self, machine):
        """All functions for float32 and int64; others are compiled when they are needed."""
        digits = SHORT_DIGIT, LONG_DIGIT
        return [how for dtype in ("float32", "int64")
                for how in (("ranks", dtype), *[("digits", dtype, bits) for bits in digits],
                            *[("leaders", dtype, largest) for largest in (0, 1)],
                            *[(one, dtype, bits) for one in ("best", "select") for bits in digits])]

    def __init__(self, element, target):
        self.target, self.lanes = target, Vectors(element, target).lanes
        self.counts = target.vector_bytes // 4
        self.count_vector = f"<{self.counts} x i32>"

    def open(self, name):
        """(a writer of a step, its ints by name, its buffers)"""
        w = LLVMWriter(f"define void @{name}({STEP_ARGUMENTS})")
        f = {field: w.load("i64", w.at("i64", "%ints", i)) for i, field in enumerate(ORDER_FIELDS)}
        return w, f, [w.load("ptr", w.at("ptr", "%buffers", i)) for i in range(4)]

    def text(self, w):
        return (f"declare i32 @llvm.vector.reduce.add.v{VALUES_TOGETHER}i32(<{VALUES_TOGETHER} x i32>)\n"
                "declare i64 @llvm.smin.i64(i64, i64)\ndeclare i64 @llvm.smax.i64(i64, i64)\n" + w.text())

    def every_row(self, w, f, buffers, keys, write):
        """Call `write(x, values, places, room)`, which writes what is done with a row, for all rows of the tiles."""
        X, V, P, R = buffers
        with w.loop("%begin", "%end") as t:
            room, start = w.at("i8", R, w.mul(t.i, f["room_bytes"])), w.mul(t.i, f["each"])
            with w.loop(start, w.least(w.add(start, f["each"]), f["rows"])) as r:
                made = w.mul(r.i, f["count"])
                write(w.at(keys.raw, X, w.mul(r.i, f["n"])), w.at(keys.raw, V, made), w.at("i64", P, made), room)

    # --- short rows -------------------------------------------------------------------------------------------------

    def ranks(self, name, dtype):
        """The step: `count` elements of each row, from `first` of the order on."""
        keys = Keys(dtype, self.target)
        w, f, buffers = self.open(name)
        n = f["n"]
        apart = w.up(n, RANKED_VECTORS * keys.lanes)
        asks = w.pick(w.is_("ne", f["pick"], AT_FIRST), n, 0)         # NaNs are counted where they matter

        def row(x, values, places, room):
            held, ranks, seen, order = [w.at(keys.type, room, w.mul(apart, i)) for i in range(4)]
            keys.make(w, x, n, f["flip"], held)
            with w.loop(0, asks, 1, [("i64", 0)]) as i:
                nan = w(f"icmp eq {keys.type} {w.load(keys.type, w.at(keys.type, held, i.i))}, {keys.top}")
                i.next = [w.add(i.values[0], w.one_if(nan))]
            first = self.place(w, f, keys, i.values[0])
            self.put_in_order(w, keys, held, n, ranks, seen, order)
            with w.loop(0, f["count"]) as i:
                at = self.wide(w, keys, w.load(keys.type, w.at(keys.type, order, w.add(first, i.i))))
                w.store("i64", at, w.at("i64", places, i.i))
                w.store(keys.raw, w.load(keys.raw, w.at(keys.raw, x, at)), w.at(keys.raw, values, i.i))

        self.every_row(w, f, buffers, keys, row)
        return self.text(w)

    def wide(self, w, keys, number):
        """A place, held as a key is, as i64."""
        return number if keys.type == "i64" else w(f"zext i32 {number} to i64")

    def place(self, w, f, keys, nans):
        """Which place of the order a row is asked for, if so many of its elements are NaN."""
        if not keys.infinity:
            nans = 0
        held = w.sub(f["n"], nans)
        middle = w(f"ashr i64 {w.sub(f['n'], 1)}, 1")
        median = w.pick(w.is_("eq", nans, 0), middle, held)
        nanmedian = w(f"ashr i64 {w.most(w.sub(held, 1), 0)}, 1")
        asked = w.pick(w.is_("eq", f["pick"], AT_MEDIAN), median, nanmedian)
        return w.pick(w.is_("eq", f["pick"], AT_FIRST), f["first"], asked)

    def put_in_order(self, w, keys, held, n, ranks, seen, order):
        """Write to `order` the places that put the `n` keys at `held` in order. All have room for whole vectors."""
        vector, lanes = keys.vector, keys.lanes
        masks = vector.replace(keys.type, "i1")
        with w.loop(0, n, RANKED_VECTORS * lanes) as i:
            offsets = [w.add(i.i, number * lanes) for number in range(RANKED_VECTORS)]
            own = [w.load(vector, w.at(keys.type, held, at), keys.key_bytes) for at in offsets]
            with w.loop(0, n, 1, [(vector, "zeroinitializer")] * RANKED_VECTORS) as j:
                other = keys.spread(w, w.load(keys.type, w.at(keys.type, held, j.i)))
                less = [w(f"icmp slt {vector} {other}, {one}") for one in own]
                j.next = [w(f"sub {vector} {count}, {w(f'sext {masks} {one} to {vector}')}")
                          for count, one in zip(j.values, less, strict=True)]
            for count, at in zip(j.values, offsets, strict=True):
                w.store(vector, count, w.at(keys.type, ranks, at), keys.key_bytes)
                w.store(vector, "zeroinitializer", w.at(keys.type, seen, at), keys.key_bytes)
        with w.loop(0, n) as i:
            rank = self.wide(w, keys, w.load(keys.type, w.at(keys.type, ranks, i.i)))
            place = w.at(keys.type, seen, rank)
            equals = w.load(keys.type, place)                                 # that came before
            w.store(keys.type, w(f"add {keys.type} {equals}, 1"), place)
            at = w.at(keys.type, order, w.add(rank, self.wide(w, keys, equals)))
            w.store(keys.type, i.i if keys.type == "i64" else w(f"trunc i64 {i.i} to i32"), at)

    # --- long rows --------------------------------------------------------------------------------------------------

    def clear(self, w, counts, size):
        with w.loop(0, size, self.counts) as i:
            w.store(self.count_vector, "zeroinitializer", w.at("i32", counts, i.i), 4)

    def count_up(self, w, counts, value):
        """One more of `value`; gives how many there were."""
        place = w.at("i32", counts, value)
        before = w.load("i32", place)
        w.store("i32", w(f"add i32 {before}, 1"), place)
        return before

    def digit(self, w, number, shift, bits):
        return w(f"and i64 {w(f'lshr i64 {number}, {shift}')}, {(1 << bits) - 1}")

    def digits(self, name, dtype, bits):
        """The step: the first `count` elements of each row in order, by digits of so many bits."""
        keys = Keys(dtype, self.target)
        w, f, buffers = self.open(name)
        n, flip = f["n"], f["flip"]

        def row(x, values, places, room):
            other = w.at("i8", room, w.mul(n, keys.pair_bytes))
            if keys.paired:                        # the places of all elements have room for as many pairs
                other = w.pick(w.is_("eq", n, f["count"]), places, other, "ptr")
            self.put_by_digits(w, keys, bits, n, lambda at: (keys.at(w, w.at(keys.raw, x, at), flip), at), room, other,
                               lambda *given: self.give_element(w, f, keys, x, values, places, *given))

        self.every_row(w, f, buffers, keys, row)
        return self.text(w)

    def give_element(self, w, f, keys, x, values, places, at, key, place):
        """Write the element with `key`, which stood at `place`, as number `at` of a row of the results, if it is that
        long."""
        with w.when(w.is_("slt", at, f["count"])):
            element, shared = keys.element(w, key, f["flip"])
            w.store("i64", place, w.at("i64", places, at))
            w.store(keys.raw, element, w.at(keys.raw, values, at))
            if shared is not None:
                with w.when(shared):
                    w.store(keys.raw, w.load(keys.raw, w.at(keys.raw, x, place)), w.at(keys.raw, values, at))

    def put_by_digits(self, w, keys, bits, n, first_get, room, other, give):
        """Put in order what `first_get(i)`, (key, place), finds for i up to `n`: `give(at, key, place)` says what
        becomes of each. At `room` and at `other` there is room for as many; what `give` writes may go to `other`."""
        passes, size = ceil(keys.bits / bits), 1 << bits
        all_counts, differing = w.spare(f"[{passes * size} x i32]"), w.spare(f"[{passes} x i64]")
        self.clear(w, all_counts, passes * size)
        with w.loop(0, n) as i:
            key, _ = first_get(i.i)
            for number in range(passes):
                self.count_up(w, w.at("i32", all_counts, number * size), self.digit(w, key, number * bits, bits))
        first, used = first_get(0)[0], 0
        for number in range(passes):               # those in which the elements differ
            w.store("i64", number, w.at("i64", differing, used))
            place = w.add(self.digit(w, first, number * bits, bits), number * size)
            alike = w(f"zext i32 {w.load('i32', w.at('i32', all_counts, place))} to i64")
            used = w.add(used, w.one_if(w.is_("ne", alike, n)))
        last, high = w.sub(w.most(used, 1), 1), 32 if keys.paired else 0

        def deal(number, get, put, key_at=0):
            """Move all by one digit; its counts become how many go before."""
            which = w.load("i64", w.at("i64", differing, number))
            counts, shift = w.at("i32", all_counts, w.mul(which, size)), w.add(w.mul(which, bits), key_at)
            with w.loop(0, size, 1, [("i32", 0)]) as v:
                place = w.at("i32", counts, v.i)
                v.next = [w(f"add i32 {w.load('i32', place)}, {v.values[0]}")]
                w.store("i32", v.values[0], place)
            with w.loop(0, n) as i:
                key, place = get(i.i)
                at = self.count_up(w, counts, self.digit(w, key, shift, bits))
                put(w(f"zext i32 {at} to i64"), key, place)

        def by_turns():
            odd = w.is_("ne", w(f"and i64 {last}, 1"), 0)             # what is dealt out last stands in `room`
            to, spare = w.pick(odd, room, other, "ptr"), w.pick(odd, other, room, "ptr")
            deal(0, first_get, lambda *given: keys.put_pair(w, to, *given))
            with w.loop(1, last, 1, [("ptr", to), ("ptr", spare)]) as p:
                source, goal = p.values
                deal(p.i, lambda at: keys.get_pair(w, source, at), lambda *given: keys.put_pair(w, goal, *given), high)
                p.next = [goal, source]
            deal(last, lambda at: keys.get_pair(w, room, at), lambda at, *pair: give(at, *keys.parts(w, *pair)), high)

        w.either(w.is_("eq", last, 0), lambda: deal(0, first_get, give), by_turns)

    # --- some of a row ----------------------------------------------------------------------------------------------

    def leaders(self, name, dtype, largest):
        """The step: the `count` largest or smallest of each row, the best first, and of equals the first.

        If `first` is not 0, it is done twice, at first for some elements every so many: as many as are asked for are at
        least as good as the last of those, so others need not go in. That keeps rows that were in order from going in
        one by one.
        """
        keys = Keys(dtype, self.target)
        w, f, buffers = self.open(name)
        n, count, last = f["n"], f["count"], w.sub(f["count"], 1)
        flip, step = 0 if largest else -1, RANKED_VECTORS * keys.lanes
        samples = w.is_("ne", f["first"], 0)
        by_element = {"float32": "float", "float64": "double"}.get(dtype)

        def row(x, values, places, room):
            best = w.at("i8", room, BEST_AT)
            at_best = w.at("i8", best, w.up(w.mul(count, keys.key_bytes), CACHE_LINE_BYTES))
            w.store(keys.type, -1 - self.lowest(keys), w.at(keys.type, best, -1))     # nothing is above it

            def insert(key, place, end):
                """Put a key in among those before `end`, after its equals; the last goes out."""
                before, turn, move, done = w.block, w.name("turn"), w.name("move"), w.name("end")
                at = w.name("%at")
                w.do(f"br label %{turn}")
                w.label(turn)
                mark = len(w.lines)
                prior = w(f"add i64 {at}, -1")
                held = w.load(keys.type, w.at(keys.type, best, prior))
                w.do(f"br i1 {w(f'icmp slt {keys.type} {held}, {key}')}, label %{move}, label %{done}")
                w.label(move)
                w.store(keys.type, held, w.at(keys.type, best, at))
                w.store("i64", w.load("i64", w.at("i64", at_best, prior)), w.at("i64", at_best, at))
                w.do(f"br label %{turn}")
                w.lines.insert(mark, f"  {at} = phi i64 [ {end}, %{before} ], [ {prior}, %{move} ]")
                w.label(done)
                w.store(keys.type, key, w.at(keys.type, best, at))
                w.store("i64", place, w.at("i64", at_best, at))

            def key_at(place):
                return keys.key(w, keys.load(w, w.at(keys.raw, x, place), keys.type), keys.type, flip)

            def consider(place):
                key, bound = key_at(place), w.load(keys.type, w.at(keys.type, best, last))
                with w.when(w(f"icmp sgt {keys.type} {key}, {bound}")):
                    insert(key, place, last)

            with w.loop(w.pick(samples, 0, 1), 2) as turn:
                final, bound = w.is_("eq", turn.i, 1), w.load(keys.type, w.at(keys.type, best, last))
                enough = w(f"icmp sgt {keys.type} {bound}, {self.lowest(keys) + 2}")
                known = w.both(w.both(samples, final), enough)
                with w.loop(0, w.pick(known, count, 0)) as i:            # below the bound, be it by less than a zero is
                    w.store(keys.type, w(f"sub {keys.type} {bound}, 2"), w.at(keys.type, best, i.i))
                begin = w.pick(known, 0, count)
                with w.loop(0, begin) as i:
                    insert(key_at(i.i), i.i, i.i)
                whole = w.add(begin, w.down(w.sub(n, begin), step))
                with w.loop(begin, whole, w.pick(final, step, f["first"])) as i:
                    with w.when(self.any_better(w, keys, x, i.i, w.at(keys.type, best, last), by_element, flip)):
                        with w.loop(i.i, w.add(i.i, step)) as j:
                            consider(j.i)
                with w.loop(w.pick(final, whole, n), n) as i:
                    consider(i.i)
            with w.loop(0, count) as i:
                at = w.load("i64", w.at("i64", at_best, i.i))
                w.store("i64", at, w.at("i64", places, i.i))
                w.store(keys.raw, w.load(keys.raw, w.at(keys.raw, x, at)), w.at(keys.raw, values, i.i))

        self.every_row(w, f, buffers, keys, row)
        return self.text(w)

    def lowest(self, keys):
        return -1 << 8 * keys.key_bytes - 1

    def any_better(self, w, keys, x, at, bound, element, flip):
        """Whether some vectors from `at` on may have a key above the one at `bound`. Those that LLVM can compare, as
        `element`, are compared as they are; of NaNs it is not decided."""
        bound, better = w.load(keys.type, bound), "zeroinitializer"
        kind = keys.vector.replace(keys.type, element or keys.type)
        if element:
            bound = w(f"xor {keys.type} {bound}, {flip}")
            sign = w(f"ashr {keys.type} {bound}, {keys.bits - 1}")
            bound = w(f"xor {keys.type} {bound}, {w(f'and {keys.type} {sign}, {keys.top}')}")
        bound = w(f"bitcast {keys.vector} {keys.spread(w, bound)} to {kind}")
        for number in range(RANKED_VECTORS):
            place = w.at(keys.raw, x, w.add(at, number * keys.lanes))
            if element:
                one = w(f"fcmp {'ult' if flip else 'ugt'} {kind} {w.load(kind, place, keys.bytes)}, {bound}")
            else:
                key = keys.key(w, keys.load(w, place, kind), kind, flip and keys.constant(kind, flip))
                one = w(f"icmp sgt {kind} {key}, {bound}")
            one = w(f"sext {keys.vector.replace(keys.type, 'i1')} {one} to {keys.vector}")
            better = w(f"or {keys.vector} {better}, {one}")
        bits = f"i{8 * self.target.vector_bytes}"
        return w(f"icmp ne {bits} {w(f'bitcast {keys.vector} {better} to {bits}')}, 0")

    def best(self, name, dtype, bits):
        """The step: the first `count` elements of each row in order. Those whose highest bits leave them a chance are
        put aside, in their order, and then ranked, or sorted by digits where they are many."""
        keys = Keys(dtype, self.target)
        size, shift = 1 << bits, keys.bits - bits
        w, f, buffers = self.open(name)
        n, counts = f["n"], w.spare(f"[{size} x i32]")
        few = [w.spare(f"[{BEST_RANKS} x {keys.type}]") for _ in range(3)]

        def row(x, values, places, room):
            own = Candidates(w, keys, x, n, room, f["flip"])
            self.clear(w, counts, size)
            with w.loop(0, n) as i:
                self.count_up(w, counts, self.digit(w, own.held(i.i)[1], shift, bits))
            value, _ = self.value_of(w, counts, size, w.sub(f["count"], 1))
            kept = own.keep(n, lambda at: at, lambda digits: w.is_("sle", self.digit(w, digits, shift, bits), value))

            def by_ranks():
                self.put_in_order(w, keys, own.keys_at, kept, *few)
                with w.loop(0, f["count"]) as i:
                    own.give(self.wide(w, keys, w.load(keys.type, w.at(keys.type, few[2], i.i))),
                             w.at(keys.raw, values, i.i), w.at("i64", places, i.i))

            def by_digits():
                more = w.at("i8", room, own.nbytes)
                other = w.at("i8", more, w.mul(n, keys.pair_bytes))
                self.put_by_digits(w, keys, SHORT_DIGIT, kept, lambda at: (own.held(at)[1], own.place(at)), more, other,
                                   lambda *given: self.give_element(w, f, keys, x, values, places, *given))

            w.either(w.is_("sle", kept, BEST_RANKS), by_ranks, by_digits)

        self.every_row(w, f, buffers, keys, row)
        return self.text(w)

    def value_of(self, w, counts, size, place):
        """(which value of a digit has the element at `place` of the order, how many are below) by `counts` of them."""
        def search(begin, end, step, start, count):
            """The last of every so many values with at most `place` below it, from `start` below on."""
            with w.loop(begin, end, step, [("i64", start), ("i64", begin), ("i64", start)]) as v:
                total, value, below = v.values
                here = w.is_("sle", total, place)
                v.next = [w.add(total, w(f"zext i32 {count(w.at('i32', counts, v.i))} to i64")),
                          w.pick(here, v.i, value), w.pick(here, total, below)]
            return v.values[1:]

        many = f"<{VALUES_TOGETHER} x i32>"
        block, below = search(0, size, VALUES_TOGETHER, 0, lambda at: w(
            f"call i32 @llvm.vector.reduce.add.v{VALUES_TOGETHER}i32({many} {w.load(many, at, 4)})"))
        return search(block, w.least(size, w.add(block, VALUES_TOGETHER)), 1, below, lambda at: w.load("i32", at))

    def select(self, name, dtype, bits):
        """The step: one element of each row, by its place in ascending order; digits of so many bits are counted."""
        keys = Keys(dtype, self.target)
        levels, size = ceil(keys.bits / bits), 1 << bits
        w, f, buffers = self.open(name)
        n, counts = f["n"], w.spare(f"[{size} x i32]")
        few = [w.spare(f"[{SELECTED_RANKS} x {keys.type}]") for _ in range(3)]

        def row(x, values, places, room):
            own = Candidates(w, keys, x, n, room, 0)
            shift = keys.bits - bits
            self.clear(w, counts, size)
            with w.loop(0, n, 1, [("i64", 0)]) as i:
                key, digits = own.held(i.i)
                self.count_up(w, counts, self.digit(w, digits, shift, bits))
                nan = w(f"icmp eq {keys.type} {key}, {keys.top}")
                i.next = [w.add(i.values[0], w.one_if(nan))]
            place = self.place(w, f, keys, i.values[0])
            value, below = self.value_of(w, counts, size, place)
            kept = own.keep(n, lambda at: at, lambda digits: w.is_("eq", self.digit(w, digits, shift, bits), value))
            with w.loop(1, levels, 1, [("i64", kept), ("i64", w.sub(place, below))]) as level:
                count, place = level.values
                many = w.is_("sgt", count, SELECTED_RANKS)
                looked, sizes = w.pick(many, count, 0), w.pick(many, size, 0)
                shift = w.most(w.sub(keys.bits - bits, w.mul(level.i, bits)), 0)
                self.clear(w, counts, sizes)
                with w.loop(0, looked) as i:
                    self.count_up(w, counts, self.digit(w, own.held(i.i)[1], shift, bits))
                value, below = self.value_of(w, counts, sizes, place)
                kept = own.keep(looked, own.place,
                                lambda digits: w.is_("eq", self.digit(w, digits, shift, bits), value))
                level.next = [w.pick(many, kept, count), w.sub(place, below)]
            count, place = level.values

            def ranked():
                self.put_in_order(w, keys, own.keys_at, count, *few)
                own.give(self.wide(w, keys, w.load(keys.type, w.at(keys.type, few[2], place))), values, places)

            w.either(w.is_("sle", count, SELECTED_RANKS), ranked,
                     lambda: own.give(place, values, places))                              # or all are equal

        self.every_row(w, f, buffers, keys, row)
        return self.text(w)


class Candidates:
    """Elements of the row at `x` that are in question, all of them at first: their keys in working memory, and where
    they stand, once some were kept."""

    def __init__(self, w, keys, x, n, room, flip):
        self.w, self.keys, self.x, self.keys_at = w, keys, x, room
        keys.make(w, x, n, flip, room)
        at = w.up(w.mul(w.up(n, RANKED_VECTORS * keys.lanes), keys.key_bytes), CACHE_LINE_BYTES)
        self.places_at, self.nbytes = w.at("i8", room, at), w.up(w.add(at, w.mul(n, 8)), CACHE_LINE_BYTES)

    def held(self, number):
        """(key, the same as `digits`) of a candidate."""
        key = self.w.load(self.keys.type, self.w.at(self.keys.type, self.keys_at, number))
        wide = key if self.keys.type == "i64" else self.w(f"sext i32 {key} to i64")
        return key, self.keys.digits(self.w, wide)

    def place(self, number):
        """Where a candidate stands in its row."""
        return self.w.load("i64", self.w.at("i64", self.places_at, number))

    def keep(self, count, place_of, suits):
        """Of the first `count` keep those that `suits(digits)` says; gives how many. They move up, in their order."""
        w, keys = self.w, self.keys
        with w.loop(0, count, 1, [("i64", 0)]) as i:
            (key, digits), to = self.held(i.i), i.values[0]
            place = place_of(i.i)
            w.store(keys.type, key, w.at(keys.type, self.keys_at, to))
            w.store("i64", place, w.at("i64", self.places_at, to))
            i.next = [w.add(to, w.one_if(suits(digits)))]
        return i.values[0]

    def give(self, number, value, place):
        """Write a candidate to the results."""
        w, at = self.w, self.place(number)
        w.store("i64", at, place)
        w.store(self.keys.raw, w.load(self.keys.raw, w.at(self.keys.raw, self.x, at)), value)


# --- the plan ---------------------------------------------------------------------------------------------------------


class Way(NamedTuple):
    """How rows are put in order: the function and what it is written for, cycles by estimate, bytes of working memory,
    and what goes into the field `first` if it has a meaning of its own there."""
    how: tuple
    cycles: float
    room_bytes: int
    first: int = 0


def sort(dtype, shape, descending):
    """A LibraryCall for the rows of a contiguous array in order, and where each element was; or None. The buffers are
    x, the values and the places."""
    return _call(dtype, shape, [_ranks, _digits], 0, shape[-1] if shape else 0, AT_FIRST, descending)


def topk(dtype, shape, count, largest):
    """A LibraryCall for the `count` largest or smallest elements of each row, the best first; or None."""
    return _call(dtype, shape, [_ranks, _leaders, _best, _digits], 0, count, AT_FIRST, largest)


def pick(dtype, shape, which, place):
    """A LibraryCall for one element of each row: the one at `place` of the order ("kthvalue"), the middle one, or NaN
    if there is any ("median"), or the middle one of the others ("nanmedian"); or None."""
    asked = {"kthvalue": AT_FIRST, "median": AT_MEDIAN, "nanmedian": AT_NANMEDIAN}[which]
    return _call(dtype, shape, [_ranks, _select], place, 1, asked, False)


def _call(dtype, shape, ways, first, count, asked, descending):
    dtype = getattr(dtype, "name", dtype)
    if dtype not in ORDERED_TYPES or not shape or 0 in shape or not count or shape[-1] >= 1 << 32:
        return None
    n, rows = shape[-1], 1
    for size in shape[:-1]:
        rows *= size
    machine = compiled_kernels("float32", OrderKernels)
    keys = Keys(dtype, machine.kernels.target)
    found = [way(dtype, keys, n, count, descending) for way in ways]
    way = min([one for one in found if one is not None], key=lambda one: one.cycles)
    threads, room = get_num_threads(), up(way.room_bytes, CACHE_LINE_BYTES)
    most = PIECES_A_THREAD * threads if threads > 1 else 1           # tiles, each of which has its working memory
    most = min(most, max(threads, MAX_ORDER_ROOM_BYTES // room))
    each = -(-rows // max(1, min(rows, most, int(rows * way.cycles // PIECE_CYCLES))))
    tiles = -(-rows // each)
    ints = [rows, each, n, way.first or first, count, asked, -1 if descending else 0, room]
    fn = machine.function(*way.how, hasty=rows * way.cycles < HASTY_CYCLES)
    return LibraryCall(fn, tiles, 1, ints, tiles * room)


def _ranks(dtype, keys, n, count, descending):
    step = RANKED_VECTORS * keys.lanes
    return Way(("ranks", dtype), -(-n // step) * n * 5 + 8 * n + 30, 4 * up(n, step) * keys.key_bytes)


def _digit_bits(keys, n, long_row):
    return LONG_DIGIT if n >= long_row and keys.bits > 16 else SHORT_DIGIT


def _digits(dtype, keys, n, count, descending):
    bits = _digit_bits(keys, n, LONG_DIGIT_ROW)
    passes = ceil(keys.bits / bits)
    return Way(("digits", dtype, bits), passes * (2.5 * (1 << bits) + 7 * n) + 6 * n,
               n * keys.pair_bytes * (1 if keys.paired and count == n else 2))


def _best(dtype, keys, n, count, descending):
    """None where most are asked for. A few more than are asked for are expected to be candidates."""
    kept = count + count // 4
    if kept > n:
        return None
    bits = _digit_bits(keys, n, LONG_COUNTED_ROW)
    way = _ranks(dtype, keys, kept, count, descending) if kept <= BEST_RANKS else \
        _digits(dtype, keys, kept, count, descending)
    return Way(("best", dtype, bits), 0.8 * (1 << bits) + 9 * n + 200 + way.cycles,
               _candidate_bytes(keys, n) + 2 * n * keys.pair_bytes)


def _candidate_bytes(keys, n):
    """Of working memory, for as many Candidates."""
    return up(up(up(n, RANKED_VECTORS * keys.lanes) * keys.key_bytes, CACHE_LINE_BYTES) + 8 * n, CACHE_LINE_BYTES)


def _leaders(dtype, keys, n, count, largest):
    """None if there are too many: those that are better are expected count * log(n / count) times, and each moves half
    of the best; the others of its vectors are looked at too."""
    if count > MAX_LEADERS:
        return None
    step = RANKED_VECTORS * keys.lanes
    times = count * (log(n / count) + 1)
    # as many that are looked at beforehand as go in later, if they were in order
    apart = int((n / count) ** 0.5) if n >= SAMPLED_ROW else 0
    cycles = times * (30 + 1.5 * count) + min(times, n / step) * step * 4 + n / step * 14
    return Way(("leaders", dtype, int(largest)), cycles,
               BEST_AT + up(count * keys.key_bytes, CACHE_LINE_BYTES) + 8 * count, apart * step)


def _select(dtype, keys, n, count, descending):
    bits = _digit_bits(keys, n, LONG_COUNTED_ROW)
    return Way(("select", dtype, bits), 0.8 * (1 << bits) + 10 * n + 200, _candidate_bytes(keys, n))
