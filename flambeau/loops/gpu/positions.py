"""The way `positions`: a thread has the passes of some positions to itself."""
from .reductions import ReducingWriter
from .writer import TextScope

MAX_STEPS_AT_ONCE = 16            # of a column that is gone through in a loop, and stored to,
ELEMENTS_UNDER_WAY = 32           # with so many loaded elements of them all


class PositionsWriter(ReducingWriter):
    """A block has a tile of consecutive positions. Where it is whole, and memory is aligned, a thread takes `vector`
    neighbours at once, `units` times; else one after the other. Where the last dimension is long, a tile is of one row
    of it: what the row has one of is then written once, a scope further out."""

    def _body(self):
        k, s = self.kernel, self.schedule
        self.inner = 1 + bool(s.tiled)                        # the scope of a thread's own positions
        self.level_of = dict.fromkeys(range(k.kept), 1)
        self.level_of.update({d: 2 + d - k.kept for d in range(k.kept, k.kept + k.reduced)})
        self.level_of[k.kept + k.reduced] = 1                 # what an accumulator held
        self.lane = s.order[-1] if s.order else None
        if s.tiled:
            self.level_of[self.lane] = 2
            self.scopes = [self.entry, TextScope()]
            index = self._put(self.index, self._as(self.index, self.block))
            row, piece = self._tile_of(index, self.lane)
            self._positions_of(row, s.order[:-1])
            first, total = self._put(self.index, f"{piece} * {s.tile}"), self._int(f"size {self.lane}")
        else:
            first = self._put(self.index, f"{self._as(self.index, self.block)} * {s.tile}")
            total = self._int("count")
        if s.units * s.vector == 1:
            self._one(first, total)
        else:
            self._tile(first, total)
        if s.tiled:
            self.entry.lines.extend(self.scopes.pop().lines)

    def _one(self, first, total):
        """The only position of a thread, of those from `first` on of `total`."""
        index = self._put(self.index, f"{first} + {self._as('i32', self.x)}")
        if not self.schedule.order:   # of one position, all is read here; the only thread that has one may write its
            self._line(f"if ({index} >= {total}) return;")    # results over that before others look
        self._block(f"if ({index} < {total})", self._unit(index))

    def _tile(self, first, total):
        """The positions from `first` on, of `total`."""
        s, thread = self.schedule, self._as("i32", self.x)
        threads, tile = s.block[0], s.tile
        self.width = s.vector
        starts = [f"{first} + {(u * threads) * s.vector} + {thread} * {s.vector}" for u in range(s.units)]
        whole, rest = TextScope(), TextScope()
        self._several(whole, starts)
        ready = f"{self._alignment()} && {total} - {first} >= {tile}"
        self.width = 1
        position, last = self._new("i"), self._new("i")
        inner = self._unit(position)
        self._block(f"if ({ready})", whole)
        index_type = self.d.types[self.index]
        with self._within(rest):
            self._line(self.d.constant(index_type, last, self.d.select(f"{total} - {first} < {tile}", total,
                                                                       f"{first} + {tile}")))
            if not self.kernel.reduced:                       # seldom gone through, so that it had better be short
                self._line(self.d.unroll(1))
            self._block(
                self.d.loop(index_type, position, f"{first} + {thread}", f"{position} < {last}", threads), inner)
        self._block("else", rest)

    def _unit(self, index):
        """A scope with all passes of the position, or of the neighbours from there on."""
        scope = TextScope()
        outer, self.scopes = self.scopes, [*self.scopes[:self.inner], scope]
        self._set_position(index)
        self._passes()
        self.scopes = outer
        return scope

    def _set_position(self, index):
        if self.schedule.tiled:
            self.at[self.lane] = index
        else:
            self._positions_of(index, self.schedule.order)

    def _several(self, whole, starts):
        """Some units of neighbours: all of their loads first, then what is made of them."""
        outer, units = self.scopes, []
        stores = [e for one in self.kernel.passes for _, e in one.stores]
        for text in starts:
            scope = TextScope()
            self.scopes, self.at = [*outer[:self.inner], scope], dict(self.at)
            self._set_position(self._put(self.index, text))
            if not self.kernel.reduced:
                for load in self._loads_of(stores):
                    if self._level(self.deps[load]) == self.inner:
                        self._value(load)
            units.append((scope, self.at))
            whole.lines.extend(scope.lines)
            scope.lines = []
        for scope, self.at in units:
            self.scopes = [*outer[:self.inner], scope]
            self._passes()
            whole.lines.extend(scope.lines)
        self.scopes = outer

    def _passes(self):
        k = self.kernel
        for number, one in enumerate(k.passes):
            accs = [[self._declared(number, j, reduction, e) for _ in range(self.width)]
                    for j, (reduction, e) in enumerate(one.accs)]
            if k.reduced:
                self._walk(list(range(k.kept, k.kept + k.reduced)), one, accs)
            else:
                self._stores(one.stores)
            for j, (reduction, _) in enumerate(one.accs):
                self._hold(number, j, reduction, accs[j])
        self._stores(k.finals)

    # --- reductions one element after the other

    def _walk(self, dims, one, accs):
        """The loops over the reduced dimensions `dims`, and in them the pass."""
        if not dims:
            self._element(one, accs)
            return
        d, rest = dims[0], dims[1:]
        first, last = self._cut() if d == self.kernel.kept else ("0", self._int(f"size {d}"))
        index_type, at = self.d.types[self.index], self._new("i")
        self.at[d] = at
        with self._within(TextScope()) as scope:
            self._walk(rest, one, accs)
        steps = self._steps_at_once(one) if not rest and one.stores else 1
        if steps > 1:
            self._line(self.d.variable(index_type, at, first))
            self._block(self.d.loop(None, at, None, f"{last} - {at} >= {steps}", steps),
                        self._steps(d, at, steps, one, accs))
            self._block(self.d.loop(None, at, None, f"{at} < {last}"), scope)
            return
        if not rest and not one.stores:                       # loads of several steps can be under way at once
            self._line(self.d.unroll(self.schedule.unroll))
        self._block(self.d.loop(index_type, at, first, f"{at} < {last}"), scope)

    def _element(self, one, accs):
        """The pass at the position that `self.at` says."""
        for (reduction, e), mine in zip(one.accs, accs, strict=True):
            self._accumulate(reduction, e, mine, lambda v: self.at[self.kernel.kept + self.kernel.reduced - 1])
        self._stores(one.stores)

    def _steps_at_once(self, one):
        """How many steps of a loop that stores have their loads under way at once. What a step stores stands at most
        where it has loaded from itself; the compiler cannot know that."""
        innermost = self.kernel.kept + self.kernel.reduced - 1
        loads = [load for load in self._loads_of(one.expressions()) if self.deps[load] >> innermost & 1]
        return min(MAX_STEPS_AT_ONCE, ELEMENTS_UNDER_WAY // (self.width * max(1, len(loads))))

    def _steps(self, d, at, steps, one, accs):
        """A scope with so many steps from `at` on along dimension `d`: all of their loads, then one after the other."""
        outer, several, scopes = self.scopes, TextScope(), []
        loads = self._loads_of(one.expressions())
        for step in range(steps):
            scope = TextScope()
            self.scopes = [*outer, scope]
            self.at[d] = self._put(self.index, f"{at} + {step}") if step else at
            for load in loads:
                if self._level(self.deps[load]) == len(outer):
                    self._value(load)
            scopes.append((scope, self.at[d]))
            several.lines.extend(scope.lines)
            scope.lines = []
        for scope, self.at[d] in scopes:
            self.scopes = [*outer, scope]
            self._element(one, accs)
            several.lines.extend(scope.lines)
        self.scopes = outer
        return several
