"""The way `rows`: some threads share a row."""
from contextlib import contextmanager

from ..ir import BYTES_OF_TYPE, FUNCTION_WORDS
from .fold import FoldingWriter
from .memory import as_values
from .writer import TextScope

MAX_ELEMENTS_AT_HAND = 64         # of a thread: so many loaded elements are kept in registers from pass to pass
STEPS_AT_ONCE = 4                 # of a row that is gone through in a loop, and stored to


class RowsWriter(FoldingWriter):
    """`group` threads share a row, each with `vector` neighbouring lanes of every `chunk` of them; `chunks` says how
    many a row has at most, where what was loaded is kept at hand; 0: they are gone through in a loop.

    Rows that lie `abreast` have their elements far apart, and those of the next row beside: the threads of a warp have
    a row each, and share it with threads of other warps.

    With columns to carry, they go through the rows of a block: each thread has its part of the columns to itself,
    whose accumulators are in registers all the while."""

    def _body(self):
        k, s = self.kernel, self.schedule
        self.last = k.kept + k.reduced - 1
        self.level_of = dict.fromkeys(range(k.kept), 1)
        self.level_of.update({d: 2 + d - k.kept for d in range(k.kept, self.last + 1)})
        self.level_of[self.last + 1] = 1                      # what an accumulator held
        self.lane, self.width, self.chunk = self.last, s.vector, s.group * s.vector
        with self._within(TextScope()) as inner:
            if k.columns:
                self._rows_of_block()
            else:
                self._row()
        self._shared_rooms()
        if s.vector > 1:
            self._line(self.d.constant(self.d.types["b1"], "aligned", self._alignment()))
        self.entry.lines.extend(inner.lines)

    def _load_pack(self, type_name, size, address):
        self._call("take")
        return self.d.take_pack(type_name, size, address, "aligned")

    def _store_pack(self, type_name, address, values):
        self._call("give")
        return self.d.give_pack(type_name, address, values, "aligned")

    # --- which rows

    def _row(self):
        k, s = self.kernel, self.schedule
        along, beside = (self.y, self.x) if s.abreast else (self.x, self.y)
        several = s.at_once > 1
        self.thread = self._put("i32", self._as("i32", along))
        row = self._put(self.index, self._as(self.index, self.block)
                        + (f" * {s.at_once} + {self._as('i32', beside)}" if several else ""))
        self.live = None
        if several:                                           # the last block may have more threads than rows
            total = self._int("count")
            self.live = self._put("b1", f"{row} < {total}")
            row = self._put(self.index, self.d.select(self.live, row, f"{total} - 1"))
        self._positions_of(row, s.order)
        self.bounds = self._cut() if k.reduced else ("0", "1")
        first, last = ("0", self._int(f"size {self.last}")) if k.reduced > 1 else self.bounds
        if several:
            last = self._put(self.index, self.d.select(self.live, last, first))
        self.lane_bounds = first, last
        self._take_singles()
        self._deal_out()
        self._passes()

    def _rows_of_block(self):
        """Rows one after the other, with what is the same in all of them before, and the columns' stores after."""
        k, s = self.kernel, self.schedule
        before = self.scopes[1]
        self.thread = self._put("i32", self._as("i32", self.x))
        self._positions_of(self._put(self.index, self._as(self.index, self.block)), s.order)
        first, last = self._cut()
        self.live, self.lane_bounds = None, ("0", self._int(f"size {self.last}"))
        self._deal_out()
        self.column_accs = {number: [[self._declared("c", number, reduction, e) for _ in range(self.width)]
                                     for _ in range(s.chunks)] for reduction, number, e in k.columns}
        moving = 1 << k.cut_dim | 1 << self.last + 1          # what these are part of is another in each row
        self._fetch([e for e in self._loads_of(self._roots()) if e in self.kept_at_hand and not self.deps[e] & moving
                     and k.accesses[e.attr].at is None])
        inner, row = TextScope(), self._new("i")
        self.scopes, self.at[k.cut_dim] = [self.entry, inner], row
        self._take_singles()
        self._passes()
        self.scopes = [self.entry, before]
        self._line(self.d.unroll(1))
        self._block(self.d.loop(self.d.types[self.index], row, first, f"{row} < {last}"), inner)
        for c in range(s.chunks):
            with self._chunk(c):
                for number, mine in self.column_accs.items():
                    self._store(number, [name for name, in mine[c]])

    def _roots(self):
        return [e for one in self.kernel.passes for e in one.expressions()] + [e for _, e in self.kernel.finals]

    def _take_singles(self):
        """Read what a row has one of, before any thread can have come to the results, which may stand there."""
        for load in self._loads_of(self._roots()):
            if self._level(self.deps[load]) <= 1 and not self.deps[load] >> self.last + 1:
                self._value(load)

    # --- passes

    def _passes(self):
        """All passes over the row that `self.at` says, and what is stored at its end."""
        k, s = self.kernel, self.schedule
        for number, one in enumerate(k.passes):
            accs = self._accumulators(number, one)
            if s.chunks and k.reduced == 1:
                self._unrolled(one, accs)
            else:
                self._walk(list(range(k.kept, self.last + 1)), one, accs)
            self._fold(number, one, accs)
        if k.finals:
            self._finals()

    def _finals(self):
        """What a row has one of is stored by one thread."""
        k, s = self.kernel, self.schedule
        late = any(self.deps[load] >> self.last + 1 and self._level(self.deps[load]) <= 1
                   for load in self._loads_of(self._roots()))
        for _, e in k.finals:
            self._value(e)
        if late or not any(one.accs for one in k.passes):
            self._line(self.d.barrier if s.group > self.d.warp or s.abreast else self.d.warp_barrier)
        scope = TextScope()
        for number, e in k.finals:
            value = self._in_memory(k.accesses[number].type, self._value(e)[0])
            address, = self._addresses(number, 1, 1)
            scope.lines.append(f"{self.d.element(address)} = {value};")
        self._block(f"if ({self.live + ' && ' if self.live else ''}{self.thread} == 0)", scope)

    # --- accumulators: one for each lane that a thread has

    def _lanes_of(self, reduction, e):
        """How many chunks have accumulators of their own: as many as the lanes of the order fill."""
        s = self.schedule
        if e.type not in ("f32", "f64") or reduction.startswith("arg"):
            return 1
        chunks = max(1, s.lane_bytes * self.kernel.rows // BYTES_OF_TYPE[e.type] // self.chunk)
        return min(chunks, s.chunks) if s.chunks else chunks

    def _accumulators(self, number, one):
        return [[[self._declared(number, j, reduction, e) for _ in range(self.width)]
                 for _ in range(self._lanes_of(reduction, e))] for j, (reduction, e) in enumerate(one.accs)]

    def _body_of(self, one, accs, turn):
        """The pass at the neighbours that `self.at` says, of a chunk with this `turn` among those of the lanes."""
        for (reduction, e), mine in zip(one.accs, accs, strict=True):
            self._accumulate(reduction, e, mine[turn % len(mine)], lambda v: f"({self.at[self.last]} + {v})")
        for reduction, number, e in one.columns:
            self._accumulate(reduction, e, self.column_accs[number][turn], None)
        self._stores(one.stores)

    # --- a row in a loop

    def _walk(self, dims, one, accs):
        """The loops over the reduced dimensions `dims`, the last of which is the row, and in them the pass."""
        d, rest = dims[0], dims[1:]
        if not rest and self.schedule.chunks:
            for c in range(self.schedule.chunks):
                with self._chunk(c):
                    self._body_of(one, accs, c)
            return
        if not rest:
            self._row_in_a_loop(d, one, accs)
            return
        first, last = self.bounds if d == self.kernel.kept else ("0", self._int(f"size {d}"))
        at = self.at[d] = self._new("i")
        with self._within(TextScope()) as scope:
            self._walk(rest, one, accs)
        if self.schedule.chunks and len(rest) == 1 and not one.stores:
            self._line(self.d.unroll(self.schedule.unroll))
        self._block(self.d.loop(self.d.types[self.index], at, first, f"{at} < {last}"), scope)

    def _row_in_a_loop(self, d, one, accs):
        turns = max((len(mine) for mine in accs), default=1)
        first, last = self.lane_bounds
        base = self._new("i")
        with self._within(TextScope()) as outer:
            if turns == 1:
                self.at[d] = base
                self._body_of(one, accs, 0)
            else:
                for turn in range(turns):
                    self._turn(d, base, turn, one, accs)
        step = f"{self.thread} * {self.width}" if self.width > 1 else self.thread
        self._line(self.d.variable(self.d.types[self.index], base, f"{first} + {step}"))
        if one.stores and turns == 1:
            self._several_steps(d, one, accs, base)
        elif not one.stores:
            self._line(self.d.unroll(self.schedule.unroll))
        self._block(self.d.loop(None, base, None, f"{base} < {last}", turns * self.chunk), outer)

    def _turn(self, d, base, turn, one, accs):
        """One of the chunks that a turn of the loop has, if the row is so long."""
        at = self.at[d] = self._put(self.index, f"{base} + {turn * self.chunk}")
        outer = self.scopes[-1]
        scope = self.scopes[-1] = TextScope()                     # of the same level
        self._body_of(one, accs, turn)
        self.scopes[-1] = outer
        self._block(f"if ({at} < {self.lane_bounds[1]})", scope)

    def _several_steps(self, d, one, accs, base):
        """Steps of a pass that stores, some at once: their loads first, which the compiler may not put before the
        stores of the steps before."""
        loads = [e for e in self._loads_of([e for _, e in (*one.accs, *one.stores)]) if self.deps[e] >> d & 1]
        outer, steps = TextScope(), []
        with self._within(outer):
            for i in range(STEPS_AT_ONCE):
                position = self._put(self.index, f"{base} + {i * self.chunk}", outer)
                scope = self.scopes[-1] = TextScope()
                self.at[d] = position
                for load in loads:
                    self._value(load)
                outer.lines.extend(scope.lines)
                scope.lines = []
                steps.append((scope, position))
            for i, (scope, self.at[d]) in enumerate(steps):
                self.scopes[-1] = scope
                self._body_of(one, accs, i)
                outer.lines.extend(scope.lines)
        step = STEPS_AT_ONCE * self.chunk
        self._block(self.d.loop(None, base, None, f"{base} + {step - self.chunk} < {self.lane_bounds[1]}", step), outer)

    # --- a row at hand

    def _deal_out(self):
        """Where each chunk of a row starts that is kept at hand, and what is."""
        s = self.schedule
        if s.chunks:
            start, thread = self.lane_bounds[0], self.thread
            self.starts = [self._put(self.index, f"{start} + {c * self.chunk} + {thread} * {s.vector}" if s.vector > 1
                                     else f"{start} + {c * self.chunk} + {thread}") for c in range(s.chunks)]
            again = self._again()
            room = MAX_ELEMENTS_AT_HAND // (s.chunks * s.vector)
            self.kept_at_hand = again if len(again) <= room else {e: None for e in again if e.op == "load"}
            self.at_hand = [{} for _ in range(s.chunks)]

    @contextmanager
    def _chunk(self, c, known=()):
        """A scope of what is done at a chunk of the row at hand, if the row is so long."""
        start = self.at[self.last] = self.starts[c]
        with self._within(TextScope(known)) as scope:
            yield scope
        self._block(f"if ({start} < {self.lane_bounds[1]})", scope)

    def _again(self):
        """Expressions along the row that a pass computes and a later one needs: what is loaded, and what is costly.

        They are the keys of a dict, whose order is the same in every process, and with it the text."""
        seen, out = set(), {}
        for one in self.kernel.passes:
            mine, todo = set(), one.expressions()
            while todo:
                e = todo.pop()
                if e in mine:
                    continue
                mine.add(e)
                if e in seen and self.deps[e] >> self.lane & 1 and (e.op == "load" or _is_costly(e)):
                    out[e] = None
                    if e.op != "load":                        # what it is made of is not computed again
                        continue
                todo.extend(e.args if e.op != "load" else self._needs(e))
            seen |= mine
        return out

    def _unrolled(self, one, accs):
        """All chunks of the row, written out: what is loaded first, as far as registers go, then what is made of it."""
        roots = one.expressions()
        for access, _ in one.stores:
            if self.kernel.accesses[access].at is not None:
                roots.append(self.kernel.accesses[access].at)
        loads = [e for e in self._loads_of(roots) if self.deps[e] >> self.last & 1
                 and not any(e in known for known in self.at_hand) and self.kernel.accesses[e.attr].at is None]
        at_once = len(loads) * self.schedule.chunks * self.width <= MAX_ELEMENTS_AT_HAND
        self._fetch([e for e in loads if at_once or e in self.kept_at_hand])
        for c in range(self.schedule.chunks):
            with self._chunk(c, self.at_hand[c]) as scope:
                self._body_of(one, accs, c)
                self._keep_computed(c, scope)

    def _keep_computed(self, c, scope):
        """What was computed at a chunk, and is needed later, is kept in variables outside of its scope."""
        for e in self.kept_at_hand:
            if e.op == "load" or e in self.at_hand[c] or e not in scope.known:
                continue
            names = [self._new("h") for _ in scope.known[e]]
            zero = self.d.literal(0, e.type)
            self._line(" ".join(self.d.variable(self.d.types[e.type], name, zero) for name in names), self.scopes[-2])
            scope.lines.extend(f"{name} = {value};" for name, value in zip(names, scope.known[e], strict=True))
            self.at_hand[c][e] = names

    def _fetch(self, loads):
        """Load what the row has of `loads`, so that it is known from now on."""
        packed, single = [], []       # (start of a chunk, what is loaded), by whether the boundaries of memory matter
        for c, start in enumerate(self.starts):
            self.at[self.last] = start
            by_pack, one_by_one = [], []
            with self._within(TextScope(self.at_hand[c])) as scope:
                for e in loads:
                    names = self._packs_at_hand(e, by_pack) if self._is_packed(e.attr) else \
                        self._elements_at_hand(e, one_by_one)
                    self.at_hand[c][e] = as_values(self.kernel.accesses[e.attr].type, names)
            self.scopes[1].lines.extend(scope.lines)          # where it is, within the row or not
            packed.append((start, by_pack))
            single.append((start, one_by_one))
        last = self.lane_bounds[1]
        for aligned in ("true", "false") if any(lines for _, lines in packed) else ():
            self._call("take")
            scope = TextScope()
            for start, lines in packed:
                if lines:
                    scope.lines += [f"if ({start} < {last}) {{", *(
                        f"  {name} = {self.d.take_pack(memory_type, size, address, aligned)};"
                        for name, memory_type, size, address in lines), "}"]
            self._block("if (aligned)" if aligned == "true" else "else", scope)
        for start, lines in single:
            if lines:
                self._line(f"if ({start} < {last}) {{ {' '.join(lines)} }}")

    def _packs_at_hand(self, e, lines):
        """The names of what is loaded by packs at a chunk, which `lines` tells: (name, memory type, size, address)."""
        memory_type, names = self.d.memory_type(self.kernel.accesses[e.attr].type), []
        for _, size, address in self._packs(e.attr, len(self.scopes) - 1):
            name = self._new("x")
            self._line(self.d.variable(self.d.pack(memory_type, size), name, "{}"), self.scopes[1])
            lines.append((name, memory_type, size, address))
            names += [self.d.in_pack(name, i) for i in range(size)]
        return names

    def _elements_at_hand(self, e, lines):
        """The names of what is loaded one by one at a chunk, by `lines`."""
        memory_type, names = self.d.memory_type(self.kernel.accesses[e.attr].type), []
        for address in self._addresses(e.attr, len(self.scopes) - 1, self.width):
            names.append(self._new("x"))
            self._line(self.d.variable(memory_type, names[-1], "0"), self.scopes[1])
            lines.append(f"{names[-1]} = {self.d.element(address)};")
        return names


def _is_costly(e):
    """Whether an expression is worth a register from one pass to the next."""
    return e.op in FUNCTION_WORDS
