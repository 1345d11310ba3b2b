"""The way `turned`: operands that lie across go through shared memory."""
from .memory import MemoryWriter, as_values
from .writer import TextScope

TILE_SIDE = 32                    # of the squares that go through shared memory
TILE_ROWS = 8                     # of them that the threads of a block take at once


class TurnedWriter(MemoryWriter):
    """A block has a square of the last two dimensions. What lies along the first of them is read along it, and put into
    shared memory; then the square is gone through along the second."""

    def _body(self):
        k, s = self.kernel, self.schedule
        self.level_of = dict.fromkeys(range(k.kept), 2)
        for d in s.order[:-2]:
            self.level_of[d] = 1
        self.level_of[k.kept] = 1
        across, along = s.order[-2:]
        with self._within(TextScope()) as outer:
            index = self._put(self.index, self._as("i32", self.block))
            corners = {}
            for d in (along, across):
                index, tile = self._tile_of(index, d)
                corners[d] = self._put(self.index, f"{tile} * {TILE_SIDE}")
            self._positions_of(index, s.order[:-2])
            self.tiles = {number: f"tile{number}" for number in s.across}
            for number, tile in self.tiles.items():
                memory_type = self.d.memory_type(k.accesses[number].type)
                self._line(self.d.shared_arrays(memory_type, (tile, TILE_SIDE, TILE_SIDE + 1)))
            x, y = (self._put("i32", self._as("i32", thread)) for thread in (self.x, self.y))
            self.filling, self.x, self.y = True, x, y
            self._square({across: f"{corners[across]} + {x}", along: f"{corners[along]} + {y}"}, along, self._fill)
            self._line(self.d.barrier)
            self.filling = False
            self._square({across: f"{corners[across]} + {y}", along: f"{corners[along]} + {x}"}, across,
                         lambda: self._stores([store for one in k.passes for store in one.stores]))
        self.entry.lines.extend(outer.lines)

    def _square(self, corners, by_rows, inside):
        """A loop over the square, some rows of it at once; `by_rows` is the dimension that the loop goes along."""
        self.row = self._new("i")
        with self._within(TextScope()) as scope:
            for d, corner in corners.items():
                self.at[d] = self._put(self.index, f"{corner} + {self.row}" if d == by_rows else corner)
            body = self.scopes[-1] = TextScope()                  # of the same level, so that the positions are known
            inside()
            self.scopes[-1] = scope
            self._block("if (" + " && ".join(f"{self.at[d]} < {self._int(f'size {d}')}" for d in corners) + ")", body)
        self._line(self.d.unroll())
        self._block(self.d.loop(self.d.types["i32"], self.row, "0", f"{self.row} < {TILE_SIDE}", TILE_ROWS), scope)

    def _fill(self):
        loads = [(number, *self._addresses(number, 2, 1)) for number in self.tiles]
        for number, address in loads:
            self._line(f"{self.tiles[number]}[{self.y} + {self.row}][{self.x}] = {self.d.element(address)};")

    def _load(self, e, scope):
        if e.attr in self.tiles and not self.filling:
            return as_values(e.type, [f"{self.tiles[e.attr]}[{self.x}][{self.y} + {self.row}]"])
        return super()._load(e, scope)
