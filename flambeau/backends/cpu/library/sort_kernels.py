"""The LLVM text of the steps that put rows in order. See sort.py, which says what each does, and chooses."""
from math import ceil

from ....loops.step import STEP_ARGUMENTS
from ..llvm_writer import LLVMWriter, Vectors
from ..memory.allocator import CACHE_LINE_BYTES
from .sort_keys import Keys

ORDER_FIELDS = "rows each n first count pick flip room_bytes".split()
AT_FIRST, AT_MEDIAN, AT_NANMEDIAN = range(3)      # which rank: `first`, or one that NaNs decide on
RANKED_VECTORS = 4            # of a row that are compared with an element together
SELECTED_RANKS = 64           # candidates that are ranked when one rank is looked for,
BEST_RANKS = 192              # and when several are; more are sorted by digits
BEST_AT = 64                  # bytes of working memory before the best of a row, with room for one that is above all
SHORT_DIGIT, LONG_DIGIT = 8, 11        # bits
VALUES_TOGETHER = 16          # of a digit, whose counts are added up where one of them is looked for


class OrderKernels:
    """The LLVM text of the steps. Their buffers are x, the values, the indices and working memory."""

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
        """Call `write(x, values, indices, room)`, which writes what is done with a row, for all rows of the tiles."""
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

        def row(x, values, indices, room):
            row_keys, ranks, seen, order = [w.at(keys.type, room, w.mul(apart, i)) for i in range(4)]
            keys.make(w, x, n, f["flip"], row_keys)
            with w.loop(0, asks, 1, [("i64", 0)]) as i:
                nan = w(f"icmp eq {keys.type} {w.load(keys.type, w.at(keys.type, row_keys, i.i))}, {keys.top}")
                i.next = [w.add(i.values[0], w.one_if(nan))]
            first = self.rank_asked(w, f, keys, i.values[0])
            self.put_in_order(w, keys, row_keys, n, ranks, seen, order)
            with w.loop(0, f["count"]) as i:
                at = self.wide(w, keys, w.load(keys.type, w.at(keys.type, order, w.add(first, i.i))))
                w.store("i64", at, w.at("i64", indices, i.i))
                w.store(keys.raw, w.load(keys.raw, w.at(keys.raw, x, at)), w.at(keys.raw, values, i.i))

        self.every_row(w, f, buffers, keys, row)
        return self.text(w)

    def wide(self, w, keys, number):
        """An index or a rank, of the type of the keys, as i64."""
        return number if keys.type == "i64" else w(f"zext i32 {number} to i64")

    def rank_asked(self, w, f, keys, nans):
        """Which rank a row is asked for, if so many of its elements are NaN."""
        if not keys.infinity:
            nans = 0
        numbers = w.sub(f["n"], nans)
        middle = w(f"ashr i64 {w.sub(f['n'], 1)}, 1")
        median = w.pick(w.is_("eq", nans, 0), middle, numbers)
        nanmedian = w(f"ashr i64 {w.most(w.sub(numbers, 1), 0)}, 1")
        asked = w.pick(w.is_("eq", f["pick"], AT_MEDIAN), median, nanmedian)
        return w.pick(w.is_("eq", f["pick"], AT_FIRST), f["first"], asked)

    def put_in_order(self, w, keys, keys_at, n, ranks, seen, order):
        """Write to `order` the indices that put the `n` keys at `keys_at` in order. All have room for whole vectors."""
        vector, lanes = keys.vector, keys.lanes
        masks = vector.replace(keys.type, "i1")
        with w.loop(0, n, RANKED_VECTORS * lanes) as i:
            offsets = [w.add(i.i, number * lanes) for number in range(RANKED_VECTORS)]
            own = [w.load(vector, w.at(keys.type, keys_at, at), keys.key_bytes) for at in offsets]
            with w.loop(0, n, 1, [(vector, "zeroinitializer")] * RANKED_VECTORS) as j:
                other = keys.spread(w, w.load(keys.type, w.at(keys.type, keys_at, j.i)))
                less = [w(f"icmp slt {vector} {other}, {one}") for one in own]
                j.next = [w(f"sub {vector} {count}, {w(f'sext {masks} {one} to {vector}')}")
                          for count, one in zip(j.values, less, strict=True)]
            for count, at in zip(j.values, offsets, strict=True):
                w.store(vector, count, w.at(keys.type, ranks, at), keys.key_bytes)
                w.store(vector, "zeroinitializer", w.at(keys.type, seen, at), keys.key_bytes)
        with w.loop(0, n) as i:
            rank = self.wide(w, keys, w.load(keys.type, w.at(keys.type, ranks, i.i)))
            count_at = w.at(keys.type, seen, rank)
            equals = w.load(keys.type, count_at)                                 # that came before
            w.store(keys.type, w(f"add {keys.type} {equals}, 1"), count_at)
            at = w.at(keys.type, order, w.add(rank, self.wide(w, keys, equals)))
            w.store(keys.type, i.i if keys.type == "i64" else w(f"trunc i64 {i.i} to i32"), at)

    # --- long rows --------------------------------------------------------------------------------------------------

    def clear(self, w, counts, size):
        with w.loop(0, size, self.counts) as i:
            w.store(self.count_vector, "zeroinitializer", w.at("i32", counts, i.i), 4)

    def count_up(self, w, counts, value):
        """One more of `value`; gives how many there were."""
        count_at = w.at("i32", counts, value)
        before = w.load("i32", count_at)
        w.store("i32", w(f"add i32 {before}, 1"), count_at)
        return before

    def digit(self, w, number, shift, bits):
        return w(f"and i64 {w(f'lshr i64 {number}, {shift}')}, {(1 << bits) - 1}")

    def digits(self, name, dtype, bits):
        """The step: the first `count` elements of each row in order, by digits of so many bits."""
        keys = Keys(dtype, self.target)
        w, f, buffers = self.open(name)
        n, flip = f["n"], f["flip"]

        def row(x, values, indices, room):
            other = w.at("i8", room, w.mul(n, keys.pair_bytes))
            if keys.paired:                        # the indices of all elements have room for as many pairs
                other = w.pick(w.is_("eq", n, f["count"]), indices, other, "ptr")
            self.put_by_digits(w, keys, bits, n, lambda at: (keys.at(w, w.at(keys.raw, x, at), flip), at), room, other,
                               lambda *given: self.give_element(w, f, keys, x, values, indices, *given))

        self.every_row(w, f, buffers, keys, row)
        return self.text(w)

    def give_element(self, w, f, keys, x, values, indices, at, key, index):
        """Write the element with `key`, which stood at `index`, as number `at` of a row of the results, if it is that
        long."""
        with w.when(w.is_("slt", at, f["count"])):
            element, shared = keys.element(w, key, f["flip"])
            w.store("i64", index, w.at("i64", indices, at))
            w.store(keys.raw, element, w.at(keys.raw, values, at))
            if shared is not None:
                with w.when(shared):
                    w.store(keys.raw, w.load(keys.raw, w.at(keys.raw, x, index)), w.at(keys.raw, values, at))

    def put_by_digits(self, w, keys, bits, n, first_get, room, other, give):
        """Put in order what `first_get(i)`, (key, index), finds for i up to `n`: `give(at, key, index)` says what
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
            index = w.add(self.digit(w, first, number * bits, bits), number * size)
            alike = w(f"zext i32 {w.load('i32', w.at('i32', all_counts, index))} to i64")
            used = w.add(used, w.one_if(w.is_("ne", alike, n)))
        last, high = w.sub(w.most(used, 1), 1), 32 if keys.paired else 0

        def deal(number, get, put, key_at=0):
            """Move all by one digit; its counts become how many go before."""
            which = w.load("i64", w.at("i64", differing, number))
            counts, shift = w.at("i32", all_counts, w.mul(which, size)), w.add(w.mul(which, bits), key_at)
            with w.loop(0, size, 1, [("i32", 0)]) as v:
                count_at = w.at("i32", counts, v.i)
                v.next = [w(f"add i32 {w.load('i32', count_at)}, {v.values[0]}")]
                w.store("i32", v.values[0], count_at)
            with w.loop(0, n) as i:
                key, index = get(i.i)
                at = self.count_up(w, counts, self.digit(w, key, shift, bits))
                put(w(f"zext i32 {at} to i64"), key, index)

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

        def row(x, values, indices, room):
            own = Leaders(w, keys, x, count, room, flip)
            with w.loop(w.pick(samples, 0, 1), 2) as turn:
                final, bound = w.is_("eq", turn.i, 1), w.load(keys.type, w.at(keys.type, own.keys_at, last))
                enough = w(f"icmp sgt {keys.type} {bound}, {keys.lowest + 2}")
                known = w.both(w.both(samples, final), enough)
                with w.loop(0, w.pick(known, count, 0)) as i:            # below the bound, be it by less than a zero is
                    w.store(keys.type, w(f"sub {keys.type} {bound}, 2"), w.at(keys.type, own.keys_at, i.i))
                begin = w.pick(known, 0, count)
                with w.loop(0, begin) as i:
                    own.insert(own.key(i.i), i.i, i.i)
                whole = w.add(begin, w.down(w.sub(n, begin), step))
                with w.loop(begin, whole, w.pick(final, step, f["first"])) as i:
                    with w.when(self.any_better(w, keys, x, i.i, w.at(keys.type, own.keys_at, last), by_element,
                                                flip)):
                        with w.loop(i.i, w.add(i.i, step)) as j:
                            own.consider(j.i, last)
                with w.loop(w.pick(final, whole, n), n) as i:
                    own.consider(i.i, last)
            with w.loop(0, count) as i:
                at = w.load("i64", w.at("i64", own.indices_at, i.i))
                w.store("i64", at, w.at("i64", indices, i.i))
                w.store(keys.raw, w.load(keys.raw, w.at(keys.raw, x, at)), w.at(keys.raw, values, i.i))

        self.every_row(w, f, buffers, keys, row)
        return self.text(w)

    def any_better(self, w, keys, x, at, bound, element, flip):
        """Whether some vectors from `at` on may have a key above the one at `bound`. Those that LLVM can compare, as
        `element`, are compared as they are; of NaNs it is not decided."""
        bound, better = w.load(keys.type, bound), "zeroinitializer"
        type = keys.vector.replace(keys.type, element or keys.type)
        if element:
            bound = w(f"xor {keys.type} {bound}, {flip}")
            sign = w(f"ashr {keys.type} {bound}, {keys.bits - 1}")
            bound = w(f"xor {keys.type} {bound}, {w(f'and {keys.type} {sign}, {keys.top}')}")
        bound = w(f"bitcast {keys.vector} {keys.spread(w, bound)} to {type}")
        for number in range(RANKED_VECTORS):
            pointer = w.at(keys.raw, x, w.add(at, number * keys.lanes))
            if element:
                one = w(f"fcmp {'ult' if flip else 'ugt'} {type} {w.load(type, pointer, keys.bytes)}, {bound}")
            else:
                key = keys.key(w, keys.load(w, pointer, type), type, flip and keys.constant(type, flip))
                one = w(f"icmp sgt {type} {key}, {bound}")
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

        def row(x, values, indices, room):
            own = Candidates(w, keys, x, n, room, f["flip"])
            self.clear(w, counts, size)
            with w.loop(0, n) as i:
                self.count_up(w, counts, self.digit(w, own.key_of(i.i)[1], shift, bits))
            value, _ = self.value_of(w, counts, size, w.sub(f["count"], 1))
            kept = own.keep(n, lambda at: at, lambda digits: w.is_("sle", self.digit(w, digits, shift, bits), value))

            def by_ranks():
                self.put_in_order(w, keys, own.keys_at, kept, *few)
                with w.loop(0, f["count"]) as i:
                    own.give(self.wide(w, keys, w.load(keys.type, w.at(keys.type, few[2], i.i))),
                             w.at(keys.raw, values, i.i), w.at("i64", indices, i.i))

            def by_digits():
                more = w.at("i8", room, own.nbytes)
                other = w.at("i8", more, w.mul(n, keys.pair_bytes))
                self.put_by_digits(w, keys, SHORT_DIGIT, kept, lambda at: (own.key_of(at)[1], own.index_of(at)),
                                   more, other,
                                   lambda *given: self.give_element(w, f, keys, x, values, indices, *given))

            w.either(w.is_("sle", kept, BEST_RANKS), by_ranks, by_digits)

        self.every_row(w, f, buffers, keys, row)
        return self.text(w)

    def value_of(self, w, counts, size, rank):
        """(which value of a digit has the element at `rank` of the order, how many are below) by `counts` of them."""
        def search(begin, end, step, start, count):
            """The last of every so many values with at most `rank` below it, from `start` below on."""
            with w.loop(begin, end, step, [("i64", start), ("i64", begin), ("i64", start)]) as v:
                total, value, below = v.values
                here = w.is_("sle", total, rank)
                v.next = [w.add(total, w(f"zext i32 {count(w.at('i32', counts, v.i))} to i64")),
                          w.pick(here, v.i, value), w.pick(here, total, below)]
            return v.values[1:]

        many = f"<{VALUES_TOGETHER} x i32>"
        block, below = search(0, size, VALUES_TOGETHER, 0, lambda at: w(
            f"call i32 @llvm.vector.reduce.add.v{VALUES_TOGETHER}i32({many} {w.load(many, at, 4)})"))
        return search(block, w.least(size, w.add(block, VALUES_TOGETHER)), 1, below, lambda at: w.load("i32", at))

    def select(self, name, dtype, bits):
        """The step: one element of each row, by its rank in ascending order; digits of so many bits are counted."""
        keys = Keys(dtype, self.target)
        levels, size = ceil(keys.bits / bits), 1 << bits
        w, f, buffers = self.open(name)
        n, counts = f["n"], w.spare(f"[{size} x i32]")
        few = [w.spare(f"[{SELECTED_RANKS} x {keys.type}]") for _ in range(3)]

        def row(x, values, indices, room):
            own = Candidates(w, keys, x, n, room, 0)
            shift = keys.bits - bits
            self.clear(w, counts, size)
            with w.loop(0, n, 1, [("i64", 0)]) as i:
                key, digits = own.key_of(i.i)
                self.count_up(w, counts, self.digit(w, digits, shift, bits))
                nan = w(f"icmp eq {keys.type} {key}, {keys.top}")
                i.next = [w.add(i.values[0], w.one_if(nan))]
            rank = self.rank_asked(w, f, keys, i.values[0])
            value, below = self.value_of(w, counts, size, rank)
            kept = own.keep(n, lambda at: at, lambda digits: w.is_("eq", self.digit(w, digits, shift, bits), value))
            with w.loop(1, levels, 1, [("i64", kept), ("i64", w.sub(rank, below))]) as level:
                count, rank = level.values
                many = w.is_("sgt", count, SELECTED_RANKS)
                looked, sizes = w.pick(many, count, 0), w.pick(many, size, 0)
                shift = w.most(w.sub(keys.bits - bits, w.mul(level.i, bits)), 0)
                self.clear(w, counts, sizes)
                with w.loop(0, looked) as i:
                    self.count_up(w, counts, self.digit(w, own.key_of(i.i)[1], shift, bits))
                value, below = self.value_of(w, counts, sizes, rank)
                kept = own.keep(looked, own.index_of,
                                lambda digits: w.is_("eq", self.digit(w, digits, shift, bits), value))
                level.next = [w.pick(many, kept, count), w.sub(rank, below)]
            count, rank = level.values

            def ranked():
                self.put_in_order(w, keys, own.keys_at, count, *few)
                own.give(self.wide(w, keys, w.load(keys.type, w.at(keys.type, few[2], rank))), values, indices)

            w.either(w.is_("sle", count, SELECTED_RANKS), ranked,
                     lambda: own.give(rank, values, indices))                              # or all are equal

        self.every_row(w, f, buffers, keys, row)
        return self.text(w)


class Candidates:
    """Elements of the row at `x` that are in question, all of them at first: their keys in working memory, and where
    they stand, once some were kept."""

    def __init__(self, w, keys, x, n, room, flip):
        self.w, self.keys, self.x, self.keys_at = w, keys, x, room
        keys.make(w, x, n, flip, room)
        at = w.up(w.mul(w.up(n, RANKED_VECTORS * keys.lanes), keys.key_bytes), CACHE_LINE_BYTES)
        self.indices_at, self.nbytes = w.at("i8", room, at), w.up(w.add(at, w.mul(n, 8)), CACHE_LINE_BYTES)

    def key_of(self, number):
        """(key, the same as `digits`) of a candidate."""
        key = self.w.load(self.keys.type, self.w.at(self.keys.type, self.keys_at, number))
        wide = key if self.keys.type == "i64" else self.w(f"sext i32 {key} to i64")
        return key, self.keys.digits(self.w, wide)

    def index_of(self, number):
        """Where a candidate stands in its row."""
        return self.w.load("i64", self.w.at("i64", self.indices_at, number))

    def keep(self, count, index_of, suits):
        """Of the first `count` keep those that `suits(digits)` says; gives how many. They move up, in their order."""
        w, keys = self.w, self.keys
        with w.loop(0, count, 1, [("i64", 0)]) as i:
            (key, digits), to = self.key_of(i.i), i.values[0]
            index = index_of(i.i)
            w.store(keys.type, key, w.at(keys.type, self.keys_at, to))
            w.store("i64", index, w.at("i64", self.indices_at, to))
            i.next = [w.add(to, w.one_if(suits(digits)))]
        return i.values[0]

    def give(self, number, value_to, index_to):
        """Write a candidate to the results."""
        w, at = self.w, self.index_of(number)
        w.store("i64", at, index_to)
        w.store(self.keys.raw, w.load(self.keys.raw, w.at(self.keys.raw, self.x, at)), value_to)


class Leaders:
    """The best `count` elements so far of the row at `x`: their keys in working memory, and where they stand."""

    def __init__(self, w, keys, x, count, room, flip):
        self.w, self.keys, self.x, self.flip = w, keys, x, flip
        self.keys_at = w.at("i8", room, BEST_AT)
        self.indices_at = w.at("i8", self.keys_at, w.up(w.mul(count, keys.key_bytes), CACHE_LINE_BYTES))
        w.store(keys.type, -1 - keys.lowest, w.at(keys.type, self.keys_at, -1))     # nothing is above it

    def key(self, index):
        w, keys = self.w, self.keys
        return keys.key(w, keys.load(w, w.at(keys.raw, self.x, index), keys.type), keys.type, self.flip)

    def consider(self, index, last):
        """Put in the element at `index`, if it is better than that at `last`."""
        w, keys = self.w, self.keys
        key, bound = self.key(index), w.load(keys.type, w.at(keys.type, self.keys_at, last))
        with w.when(w(f"icmp sgt {keys.type} {key}, {bound}")):
            self.insert(key, index, last)

    def insert(self, key, index, end):
        """Put a key in among those before `end`, after its equals; the last goes out."""
        w, keys = self.w, self.keys
        before, turn, move, done = w.block, w.name("turn"), w.name("move"), w.name("end")
        at = w.name("%at")
        w.do(f"br label %{turn}")
        w.label(turn)
        mark = len(w.lines)
        prior = w(f"add i64 {at}, -1")
        prior_key = w.load(keys.type, w.at(keys.type, self.keys_at, prior))
        w.do(f"br i1 {w(f'icmp slt {keys.type} {prior_key}, {key}')}, label %{move}, label %{done}")
        w.label(move)
        w.store(keys.type, prior_key, w.at(keys.type, self.keys_at, at))
        w.store("i64", w.load("i64", w.at("i64", self.indices_at, prior)), w.at("i64", self.indices_at, at))
        w.do(f"br label %{turn}")
        w.lines.insert(mark, f"  {at} = phi i64 [ {end}, %{before} ], [ {prior}, %{move} ]")
        w.label(done)
        w.store(keys.type, key, w.at(keys.type, self.keys_at, at))
        w.store("i64", index, w.at("i64", self.indices_at, at))
