"""Keys of elements, by which rows are put in order, and the LLVM text that makes them.

An element's key is a signed whole number that compares as elements do: all NaNs are equal and above everything, both
zeros are equal, and for descending order its bits are turned over. So equal elements keep their order in both.
"""
from typing import NamedTuple


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
        self.lowest = -1 << 8 * self.key_bytes - 1              # of `type`, which may be wider
        self.paired = self.bits <= 32        # a key and its index are one number, or else they stand side by side
        self.pair_bytes = 8 if self.paired else 16

    def constant(self, type, number):
        """A number as a constant of `type`, which may be a vector."""
        if not type.startswith("<"):
            return number
        count, _, one = type[1:-1].partition(" x ")
        return f"<{', '.join([f'{one} {number}'] * int(count))}>"

    def spread(self, w, number, type=None):
        """A key in every lane."""
        type = type or self.vector
        first = w(f"insertelement {type} poison, {self.type} {number}, i64 0")
        return w(f"shufflevector {type} {first}, {type} poison, <{self.lanes} x i32> zeroinitializer")

    def load(self, w, pointer, type):
        """An element, or a vector of them, as whole numbers of `type` that are its bits."""
        raw = type.replace(type.rpartition(" ")[2].rstrip(">"), self.raw)
        found = w.load(raw, pointer, self.bytes)
        if not self.signed:
            found = w(f"xor {raw} {found}, {self.constant(raw, self.low)}")
        return found if raw == type else w(f"sext {raw} {found} to {type}")

    def key(self, w, found, type, flip=0):
        """The key of what `load` found; `flip` is 0, or -1 for descending order."""
        if self.infinity:
            mask = type.replace(type.rpartition(" ")[2].rstrip(">"), "i1")

            def const(number): return self.constant(type, number)
            size = w(f"and {type} {found}, {const(self.top)}")
            sign = w(f"ashr {type} {found}, {const((64 if 'i64' in type else 32) - 1)}")
            nan = w(f"icmp sgt {type} {size}, {const(self.infinity)}")
            zero = w(f"icmp eq {type} {size}, {const(0)}")
            sign = w(f"and {type} {sign}, {const(self.top)}")
            turned = w(f"xor {type} {found}, {sign}")
            turned = w(f"select {mask} {zero}, {type} {const(0)}, {type} {turned}")
            found = w(f"select {mask} {nan}, {type} {const(self.top)}, {type} {turned}")
        return found if flip == 0 else w(f"xor {type} {found}, {flip}")

    def make(self, w, x, n, flip, to):
        """Write the keys of a row to `to`."""
        own = flip if flip == 0 or self.type == "i64" else w(f"trunc i64 {flip} to i32")
        many = own if flip == 0 else self.spread(w, own)
        whole = w.down(n, self.lanes)

        def some(begin, end, step, type, flip):
            with w.loop(begin, end, step) as i:
                key = self.key(w, self.load(w, w.at(self.raw, x, i.i), type), type, flip)
                w.store(type, key, w.at(self.type, to, i.i), self.key_bytes)

        some(0, whole, self.lanes, self.vector, many)
        some(whole, n, 1, self.type, own)

    def digits(self, w, key):
        """A key, of i64, as a number without a sign, of as many bits as the element has."""
        return w(f"add i64 {key}, {self.low if self.bits == 64 else -self.low}")          # which overflows there

    def at(self, w, pointer, flip):
        """The key of the element at `pointer`, as `digits`."""
        return self.digits(w, self.key(w, self.load(w, pointer, "i64"), "i64", flip))

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

    def put_pair(self, w, to, at, key, index):
        """Keep a key, as `digits`, and its index; or what `get_pair` gave."""
        if self.paired:
            pair = key if index is None else w(f"or i64 {w(f'shl i64 {key}, 32')}, {index}")
            w.store("i64", pair, w.at("i64", to, at))
            return
        to = w.at("i64", to, w.mul(at, 2))
        w.store("i64", key, to)
        w.store("i64", index, w.at("i64", to, 1))

    def get_pair(self, w, source, at):
        """(key, index) that `put_pair` has kept; (both in one number, None) if they are `paired`."""
        if self.paired:
            return w.load("i64", w.at("i64", source, at)), None
        source = w.at("i64", source, w.mul(at, 2))
        return w.load("i64", source), w.load("i64", w.at("i64", source, 1))

    def parts(self, w, key, index):
        """(key, index) of what `get_pair` gave."""
        return (key, index) if index is not None else (w(f"lshr i64 {key}, 32"), w(f"and i64 {key}, {(1 << 32) - 1}"))
