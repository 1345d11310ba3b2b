"""The accumulators of a kernel that reduces, and the stretch of a dimension that it goes through."""
from ..llvm import MOST_OF_TYPE
from .memory import MemoryWriter


class ReducingWriter(MemoryWriter):
    """A Writer of kernels with accumulators: each is (the name of its value,), or of an extreme and of its index.

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

    def _declared(self, number, j, reduction, e):
        """The names of a new accumulator: (its value, and for an extreme that of its index)."""
        type = type_of(reduction, e)
        name = f"a{number}_{j}_{next(self.names)}"
        self._line(self.d.variable(self.d.types[type], name, self.d.neutral(reduction, type)))
        if not reduction.startswith("arg"):
            return (name,)
        self._line(self.d.variable(self.d.types["i64"], f"{name}_at", self.d.literal(MOST_OF_TYPE["i64"], "i64")))
        return name, f"{name}_at"

    def _accumulate(self, reduction, e, accs, index_of):
        """Add the values of an expression to the accumulators of the neighbours; `index_of(v)` is where neighbour `v`
        is along the row."""
        values = self._value(e)
        for v, acc in enumerate(accs):
            value = self._simple(values[v] if len(values) > 1 else values[0], e.type)
            if reduction.startswith("arg"):
                at = self._as("i64", index_of(v))
                self._line(f"if ({self.d.better(reduction, e.type, acc, (value, at))}) "
                           f"{{ {acc[0]} = {value}; {acc[1]} = {at}; }}")
            else:
                self._line(f"{acc[0]} = {self.d.joined(reduction, e.type, acc[0], value)};")

    def _joined(self, reduction, type, a, b):
        """Two accumulators made one."""
        if not reduction.startswith("arg"):
            return (self._put(type, self.d.joined(reduction, type, a[0], b[0])),)
        take = self._put("b1", self.d.better(reduction, type, a, b))
        return (self._put(type, self.d.select(take, b[0], a[0])), self._put("i64", self.d.select(take, b[1], a[1])))

    def _hold(self, number, j, reduction, accs):
        """What an accumulator held is known from now on."""
        self.scopes[1].known["acc", number, j] = [acc[reduction.startswith("arg")] for acc in accs]

    def _written(self, e, scope):
        return self.scopes[1].known["acc", *e.attr] if e.op == "acc" else super()._written(e, scope)


def type_of(reduction, e):
    return "b1" if reduction in ("any", "all") else e.type
