"""The accumulators of a kernel that reduces, and the stretch of a dimension that it goes through."""
from ..llvm import MOST_OF_TYPE
from .memory import MemoryWriter


class ReducingWriter(MemoryWriter):
    """A Writer of kernels with accumulators: each is (the name of its value,), or of an extreme and of its place.

    What they hold at the end of a pass is known at the scope 1."""

    def _cut(self):
        """(first, last + 1) of the dimension that may be cut: all of it, or the block that a kept dimension numbers."""
        k = self.kernel
        if k.cut is None:
            return "0", self._int(f"size {k.kept}")
        size, block = self._int(f"size {k.cut_dim}"), self._int("block cut")
        first = self._put(self.index, f"{self.at[k.cut]} * {block}")
        # the last blocks may be empty
        first = self._put(self.index, self.d.select(f"{first} < {size}", first, size))
        return first, self._put(self.index, self.d.select(f"{size} - {first} < {block}", size, f"{first} + {block}"))

    def _declared(self, number, j, kind, e):
        """The names of a new accumulator: (its value, and for the place of an extreme that)."""
        type = type_of(kind, e)
        name = f"a{number}_{j}_{next(self.names)}"
        self._line(self.d.variable(self.d.types[type], name, self.d.neutral(kind, type)))
        if not kind.startswith("arg"):
            return (name,)
        self._line(self.d.variable(self.d.types["i64"], f"{name}_at", self.d.literal(MOST_OF_TYPE["i64"], "i64")))
        return name, f"{name}_at"

    def _accumulate(self, kind, e, accs, place):
        """Add the values of an expression to the accumulators of the neighbours; the first of these is at `place`."""
        values = self._value(e)
        for v, acc in enumerate(accs):
            value = self._simple(values[v] if len(values) > 1 else values[0], e.type)
            if kind.startswith("arg"):
                at = self._as("i64", place(v))
                self._line(f"if ({self.d.better(kind, e.type, acc, (value, at))}) "
                           f"{{ {acc[0]} = {value}; {acc[1]} = {at}; }}")
            else:
                self._line(f"{acc[0]} = {self.d.joined(kind, e.type, acc[0], value)};")

    def _joined(self, kind, type, a, b):
        """Two accumulators made one."""
        if not kind.startswith("arg"):
            return (self._put(type, self.d.joined(kind, type, a[0], b[0])),)
        take = self._put("b1", self.d.better(kind, type, a, b))
        return (self._put(type, self.d.select(take, b[0], a[0])), self._put("i64", self.d.select(take, b[1], a[1])))

    def _hold(self, number, j, kind, accs):
        """What an accumulator held is known from now on."""
        self.scopes[1].known["acc", number, j] = [acc[kind.startswith("arg")] for acc in accs]

    def _written(self, e, scope):
        return self.scopes[1].known["acc", *e.attr] if e.op == "acc" else super()._written(e, scope)


def type_of(kind, e):
    return "b1" if kind in ("any", "all") else e.type
