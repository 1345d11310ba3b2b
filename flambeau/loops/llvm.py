"""Render a kernel as LLVM text: a step function over a range of tiles (see loops/ir.py for the language).

    void step(ptr buffers, ptr ints, ptr scalars, i64 begin, i64 end, ptr room)        (see step.py)

Vectors are explicit. Every expression is written at the outermost loop that it depends on, so nothing is left to an
optimiser but instruction selection. What a loop by vectors leaves over is done by vectors whose surplus lanes are
masked, or element by element on a processor that has no masks.
"""
from itertools import count

from .emit import Emit, Term, literal, mangled, shape
from .ir import BYTES_OF_TYPE, FUNCTION_WORDS, PART_OF_COMPLEX, dependencies, innermost_level
from .scalar import WORD_FUNCTIONS
from .schedule import Scratch, with_scratch
from .step import PROBED, STEP_ARGUMENTS
from .target import CACHE_LINE_BYTES

EMIT_METHODS = {"add": "arith", "sub": "arith", "mul": "arith", "div": "arith", "and": "arith", "or": "arith",
                "xor": "arith", "shl": "arith", "shr": "arith", "lt": "compare", "le": "compare", "gt": "compare",
                "ge": "compare", "eq": "compare", "ne": "compare"}
DIRECT_METHODS = {"neg": "neg", "fma": "fma", "fma_exact": "fma_exact", "abs": "abs", "min": "minimum",
                  "max": "maximum", "fmin": "fmin", "fmax": "fmax", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil",
                  "trunc": "trunc", "rint": "rint", "copysign": "copysign", "where": "where", "isnan": "isnan",
                  "idiv": "idiv", "irem": "irem", "bits": "bits", "re": "re", "im": "im"}
TRUTH_REDUCTIONS = ("any", "all")         # held as integers: machines have few vectors of single bits
LEAST_OF_TYPE = {"i8": -128, "u8": 0, "i16": -(1 << 15), "i32": -(1 << 31), "i64": -(1 << 63), "b1": 0}
MOST_OF_TYPE = {"i8": 127, "u8": 255, "i16": (1 << 15) - 1, "i32": (1 << 31) - 1, "i64": (1 << 63) - 1, "b1": 1}


def render(kernel, schedule, name, target):
    """The LLVM text of `kernel` as a function called `name`, for a processor (see loops/target.py)."""
    return _Writer(kernel, schedule, name, target).text()


def arguments(kernel, schedule):
    """The names of the function's integers, in order: those of a launch's sizes, tiles, blocks and strides."""
    dims = schedule.dims(kernel)
    names = [f"size {d}" for d in dims]
    names += [f"tiles {d}" for d in schedule.order]
    names += [f"block {d}" for d in schedule.blocked]
    if kernel.cut is not None:
        names.append("block cut")
    for i, access in enumerate(kernel.accesses):
        names += [f"stride {i} {d}" for d in dims if access.steps[d] == "s"]
        if access.at is not None:
            names.append(f"stride {i} at")
    return names


def _in(e, x):
    """The same value, for arithmetic that is written elsewhere."""
    return Term(e, x.type, x.lanes, x.text, x.value)


class _Scope:
    """The inside of a loop while it is being written: its lines, the block they end in, and what is known there."""

    def __init__(self, writer, label):
        self.lines, self.known = [], {}
        self.emit = Emit(self.lines, writer.names, writer.declared, writer.defined, label, writer.target)


class _Writer:
    def __init__(self, kernel, schedule, name, target):
        self.kernel, self.schedule, self.name, self.target = with_scratch(kernel, schedule), schedule, name, target
        self.names, self.declared, self.defined = count(), set(), {}
        k = kernel = self.kernel
        self.dims, self.vector = schedule.dims(kernel), schedule.vector
        self.along_rows = self.vector is not None and self.vector >= k.kept
        # the loops, from outside in: level 0 is the entry, 1 the tile, then the blocked dims, then the reduced ones
        self.level_of = dict.fromkeys(range(k.kept), 1)
        inner = [*schedule.blocked, *range(k.kept, k.kept + k.reduced)]
        self.level_of.update({d: 2 + i for i, d in enumerate(inner)})
        self.acc_level = self.level_of[k.kept + k.reduced] = 1 + len(schedule.blocked)      # what an accumulator held
        self.deps = dependencies(kernel)
        found = {bits: self._level(bits) for bits in set(self.deps.values())}
        self.levels = {e: found[bits] for e, bits in self.deps.items()}          # of the loop that it belongs into
        # along a reduced dimension every pass has lanes of its own; else all are inside one loop over the lanes
        self.widths = [self._width([one] if self.along_rows else kernel.passes) for one in kernel.passes]
        self.wide = max(self.widths, default=1)
        self.masks = self._has_masks()
        self.lanes = 1
        self.mask = None                          # which lanes count, in the vector that has more than there is left
        self.at = {}                              # dimension → the Term of its position, in the loops now open
        self.scopes = []

    # --- what depends on what ---------------------------------------------------------------------------------------

    def _width(self, passes):
        """How many lanes: several machine vectors at once where the work is light, to hide latencies."""
        self.single = 1                           # the lanes of one machine vector
        if self.vector is None:
            return 1
        inside, todo = set(), [e for one in passes for _, e in (*one.accs, *one.stores)]
        while todo:
            e = todo.pop()
            if self.deps[e] >> self.vector & 1 and e not in inside:
                inside.add(e)
                todo.extend(e.args)
        accumulated = [e for one in passes for _, e in one.accs] if self.along_rows else []
        size = max([BYTES_OF_TYPE[e.type] for e in (*inside, *accumulated) if e.op != "index"], default=4)
        cost = sum(20 if e.op in FUNCTION_WORDS else 1 for e in inside)
        arg = self.schedule.index_type == "i64" and any(
            reduction.startswith("arg") for one in passes for reduction, _ in one.accs)
        many = 1 if cost > 40 or arg else 2 if cost > 14 else 4
        if not self.along_rows and cost <= 10 and self._reads_rows():
            many = 16 if cost <= 3 else 8             # down the columns: the wider, the more of each row at once
        self.single = self.target.vector_bytes // size
        return self.single * min(self.schedule.vectors, many)

    def _reads_rows(self):
        """Whether what is reduced lies along the lanes, so that a reduction down the columns reads parts of rows."""
        return any(access.steps[self.vector] == 1 and any(access.steps[self.kernel.kept:])
                   for access in self.kernel.accesses)

    def _has_masks(self):
        """Whether the processor can load and store some lanes of everything that lies along the lanes."""
        if self.vector is None:
            return False
        stored = {number for stores in (*(one.stores for one in self.kernel.passes), self.kernel.finals)
                  for number, _ in stores}
        return all(BYTES_OF_TYPE[PART_OF_COMPLEX.get(a.type, a.type)] in self.target.masked_bytes
                   and (number not in stored or a.steps[self.vector] == 1)
                   for number, a in enumerate(self.kernel.accesses) if a.steps[self.vector])

    def _rounds(self):
        """How a block of the lanes' dimension is gone through: (lanes, whether surplus ones are masked), in order."""
        if self.masks:                            # down columns one wide walk reads each row once
            return (self.wide, False), (self.wide if self.kernel.reduced else self.single, True)
        if self.wide == self.single or self.kernel.kept == 1 and not self.kernel.reduced:
            return (self.wide, False), (1, False)
        return (self.wide, False), (self.single, False), (1, False)

    def _level(self, bits):
        """The innermost loop among those that walk the dimensions `bits`."""
        return innermost_level(bits, self.level_of)

    # --- the function -----------------------------------------------------------------------------------------------

    def text(self):
        k = self.kernel
        entry = _Scope(self, "entry")
        self.scopes.append(entry)
        out = entry.lines
        self.pointers = []
        buffers = count()
        for i, access in enumerate(k.accesses):
            self.pointers.append(f"%p{i}")
            if not isinstance(access, Scratch):
                out.append(f"  %b{i} = getelementptr ptr, ptr %buffers, i64 {next(buffers)}")
                out.append(f"  %p{i} = load ptr, ptr %b{i}")
        self.ints = {}
        for i, name in enumerate(arguments(k, self.schedule)):
            out.append(f"  %ia{i} = getelementptr i64, ptr %ints, i64 {i}")
            out.append(f"  %i{i} = load i64, ptr %ia{i}")
            self.ints[name] = Term(entry.emit, "i64", 1, f"%i{i}")
        for i, access in enumerate(k.accesses):
            if isinstance(access, Scratch):
                out.append(f"  %p{i} = getelementptr i8, ptr %room, i64 0")        # the only one: all of the room
        self.numbers = [self._number(entry, i, type) for i, type in enumerate(k.numbers)]
        self._tiles(entry)
        self.scopes.pop()
        if self.schedule.streams:                 # what went past the cache must be there before any thread is told
            out.append("  fence seq_cst")
        body = "\n".join(out)
        attributes = f'nounwind "prefer-vector-width"="512" {PROBED}'
        return "\n".join([
            f"define void @{self.name}({STEP_ARGUMENTS}) #0 {{",
            "entry:", body, "  ret void", "}", *self.defined.values(), *sorted(self.declared),
            f"attributes #0 = {{ {attributes} }}", *(["!0 = !{i32 1}"] if self.schedule.streams else []), ""])

    def _number(self, entry, i, type):
        entry.lines.append(f"  %na{i} = getelementptr i64, ptr %scalars, i64 {i}")
        cell = "f64" if type in ("f32", "f64") else "i64"
        loaded = entry.emit.put(cell, 1, f"load {shape(cell, 1)}, ptr %na{i}")
        return entry.emit.cast(loaded, type)

    def _tiles(self, entry):
        """The loop over tiles, with the position in every kept dimension carried along like an odometer."""
        order, e = self.schedule.order, entry.emit
        left, start = Term(e, "i64", 1, "%begin"), []
        for i in range(len(order) - 1, -1, -1):
            if i == 0:
                start.insert(0, left)
            else:
                n = self.ints[f"tiles {order[i]}"]
                start.insert(0, e.irem(left, n))
                left = e.idiv(left, n)
        begin, end = Term(e, "i64", 1, "%begin"), Term(e, "i64", 1, "%end")

        def tile(_, positions):
            inner = self.scopes[-1].emit
            for d, position in zip(order, positions, strict=True):
                self.at[d] = _in(inner, position)
            self._inside(list(self.schedule.blocked))
            e = self.scopes[-1].emit
            out, carry = [None] * len(order), None
            for i in range(len(order) - 1, -1, -1):
                position = _in(e, positions[i])
                step = position + 1 if carry is None else e.where(carry, position + 1, position)
                if i == 0:
                    out[i] = step
                else:
                    full = step == self.ints[f"tiles {order[i]}"]
                    out[i] = e.where(full, 0, step)
                    carry = full
            return out

        self._loop(begin, end, 1, start, tile)

    def _loop(self, start, stop, step, carried, body):
        """A loop; `body(position, carried)` writes the inside and gives what is carried on. Gives the last carried."""
        outer = self.scopes[-1]
        mark = next(self.names)
        inner = _Scope(self, f"L{mark}")
        position = Term(inner.emit, "i64", 1, f"%x{mark}")
        phis = [Term(inner.emit, c.type, c.lanes, f"%c{mark}.{i}") for i, c in enumerate(carried)]
        self.scopes.append(inner)
        after = body(position, phis)
        self.scopes.pop()
        lines = outer.lines
        lines.append(f"  br label %H{mark}")
        lines.append(f"H{mark}:")
        lines.append(f"  %x{mark} = phi i64 [ {start.text}, %{outer.emit.label} ], [ %n{mark}, %{inner.emit.label} ]")
        for i, (first, last) in enumerate(zip(carried, after, strict=True)):
            lines.append(f"  %c{mark}.{i} = phi {shape(first.type, first.lanes)} "
                         f"[ {first.text}, %{outer.emit.label} ], [ {last.text}, %{inner.emit.label} ]")
        lines.append(f"  %g{mark} = icmp slt i64 %x{mark}, {stop.text}")
        lines.append(f"  br i1 %g{mark}, label %L{mark}, label %E{mark}")
        lines.append(f"L{mark}:")
        lines.extend(inner.lines)
        lines.append(f"  %n{mark} = add nsw i64 %x{mark}, {step}")
        lines.append(f"  br label %H{mark}")
        lines.append(f"E{mark}:")
        outer.emit.label = f"E{mark}"
        return [_in(outer.emit, p) for p in phis]

    def _inside(self, blocked):
        """The loops over the tile's blocks, and in them the passes."""
        if not blocked:
            self._passes()
            return
        d, rest = blocked[0], blocked[1:]
        e = self.scopes[-1].emit
        block, number = self.ints[f"block {d}"], self.at[d]
        start = _in(e, number) * block
        stop = self._least(e, start + block, self.ints[f"size {d}"])
        if d == self.vector:
            low = start
            for lanes, masked in self._rounds():
                high = stop if masked or lanes == 1 else low + ((stop - low) & e.const(-lanes, "i64"))
                self._block(d, rest, lanes, low, high, masked)
                low = _in(e, high)
        else:
            self._block(d, rest, 1, start, stop)
        self.at[d] = number

    def _block(self, d, rest, lanes, low, high, masked=False):
        def inside(position, _):
            before, self.lanes = self.lanes, lanes
            self.at[d] = position
            self.mask = self._lanes_left(position, high) if masked else None
            self._inside(rest)
            self.lanes, self.mask = before, None
            return []

        self._loop(low, high, lanes, [], inside)

    def _lanes_left(self, position, stop):
        """Which lanes of the vector at `position` come before `stop`."""
        e = self.scopes[-1].emit
        return self._lane_positions(e, _in(e, position)) < stop

    @staticmethod
    def _least(e, a, b):
        return e.where(a < b, a, b)

    # --- passes -----------------------------------------------------------------------------------------------------

    def _passes(self):
        k = self.kernel
        for number, one in enumerate(k.passes):
            self.asks = self._asked_by(number)
            if self.along_rows:
                self.wide = self.lanes = self.widths[number]
            self.turns = [self._turns(reduction, e) for reduction, e in one.accs]
            self.parts = [1 + reduction.startswith("arg") for reduction, _ in one.accs]      # an index beside the value
            accs = [part for (reduction, e), turns in zip(one.accs, self.turns, strict=True)
                    for part in self._identity(reduction, e, self.lanes) * turns]
            if self.along_rows:
                self.lanes = 1
            accs = self._walk(list(range(k.kept, k.kept + k.reduced)), one, accs)
            if self.along_rows:
                accs = self._folded(one, accs)
            known, i = self.scopes[-1].known, 0
            for j, (reduction, _) in enumerate(one.accs):
                arg = reduction.startswith("arg")
                found = accs[i + arg]
                known["acc", number, j] = (found != 0 if reduction in TRUTH_REDUCTIONS else
                                           found.e.cast(found, "i64") if arg else found)
                i += 1 + arg
        self._stores(k.finals)

    def _turns(self, reduction, e):
        """How many vectors an accumulator has that take turns.

        The lanes of a reduction along rows are as many as its kernel's `rows` say, so that its order is the same in
        every kernel (see Note [One order] in trace/planning/reduction_order.py). Where the work allows fewer at a time,
        the vectors that make them up take turns: each step adds to the first and puts it at the end of the line.
        """
        if not self.along_rows or e.type not in ("f32", "f64") or reduction.startswith("arg"):
            return 1
        return self.target.vector_bytes // BYTES_OF_TYPE[e.type] * self.kernel.rows // self.wide

    def _identity(self, reduction, e, lanes):
        """What an accumulator starts with; for the index of an extreme also the first one, which is right where all are
        the same as it starts with."""
        emit, type = self.scopes[-1].emit, "i32" if reduction in TRUTH_REDUCTIONS else e.type
        if reduction in ("sum", "any"):
            value = 0
        elif reduction in ("prod", "all"):
            value = 1
        elif reduction in ("max", "top", "argmax"):
            value = float("-inf") if type in ("f32", "f64") else LEAST_OF_TYPE[type]
        else:
            value = float("inf") if type in ("f32", "f64") else MOST_OF_TYPE[type]
        values = [emit.const(value, type, lanes)]
        return [*values, emit.const(0, self.schedule.index_type, lanes)] if reduction.startswith("arg") else values

    def _walk(self, dims, one, accs):
        """The loops over the reduced dimensions `dims`, and in them the pass's expressions."""
        if not dims:
            return self._body(one, accs)
        d, rest = dims[0], dims[1:]
        k, e = self.kernel, self.scopes[-1].emit
        start, stop = e.const(0, "i64"), _in(e, self.ints[f"size {d}"])
        if d == k.kept and k.cut is not None:
            block = self.ints["block cut"]
            start = self._least(e, _in(e, self.at[k.cut]) * block, stop)        # the last blocks may be empty
            stop = self._least(e, start + block, stop)
        if d != self.vector:
            return self._reduced_loop(d, rest, one, accs, start, stop, 1)
        middle = start + ((stop - start) & e.const(-self.wide, "i64"))
        self.lanes = self.wide
        accs = self._reduced_loop(d, rest, one, accs, start, middle, self.wide)
        if self.masks:
            accs = self._reduced_loop(d, rest, one, accs, middle, stop, self.wide, masked=True)
        else:
            accs = self._rest_of_row(d, one, accs, middle, stop)
        self.lanes = 1
        return self._in_turn_again(accs, start, stop)

    def _rest_of_row(self, d, one, accs, start, stop):
        """What is left of a row, element by element.

        What accumulators are given is put side by side, in a vector of what they begin with, and added as one vector:
        every lane gets what it would get by masks. An empty rest adds what changes nothing.
        """
        e, rooms, lanes = self.scopes[-1].emit, [], self.lanes
        for j, (reduction, expr) in enumerate(one.accs):
            first = self._identity(reduction, expr, lanes)[0]
            if first.type == "b1":                # single bits do not lie side by side in memory
                first = e.cast(first, "u8")
            rooms.append((self._room(j, first.type, lanes), first.type))
            e.lines.append(f"  store {shape(first.type, lanes)} {first.text}, ptr {rooms[-1][0]}, align 64")
        self.lanes = 1

        def inside(position, _):
            self.at[d] = position
            for (_, expr), (room, type) in zip(one.accs, rooms, strict=True):
                value = self.value(expr)
                inner = self.scopes[-1].emit
                value, offset, where = inner.cast(_in(inner, value), type), _in(inner, position) - start, inner.new()
                inner.lines.append(f"  {where} = getelementptr {shape(type, 1)}, ptr {room}, i64 {offset.text}")
                inner.lines.append(f"  store {shape(type, 1)} {value.text}, ptr {where}, align {BYTES_OF_TYPE[type]}")
            self._stores(one.stores)
            return []

        self._loop(start, stop, 1, [], inside)
        self.lanes, self.at[d] = lanes, start
        values = []
        for (_, expr), (room, type) in zip(one.accs, rooms, strict=True):
            loaded = e.put(type, lanes, f"load {shape(type, lanes)}, ptr {room}, align 64")
            values.append(loaded != 0 if expr.type == "b1" and type == "u8" else loaded)
        return self._added(one, accs, values)

    def _room(self, j, type, lanes):
        """Memory for the vector that accumulator `j` of a pass is given last; the same in all passes."""
        outside = self.scopes[0]
        if ("room", j, type, lanes) not in outside.known:
            room = outside.known["room", j, type, lanes] = outside.emit.new()
            outside.lines.append(f"  {room} = alloca {shape(type, lanes)}, align 64")
        return outside.known["room", j, type, lanes]

    def _in_turn_again(self, accs, start, stop):
        """The accumulators after a row, the vector whose turn was first at the front again."""
        most = max(self.turns, default=1)
        if most == 1:
            return accs
        e = self.scopes[-1].emit
        # without masks the rest of a row takes a turn even if it is empty
        done = e.idiv(stop - start + (self.wide - 1 if self.masks else self.wide), e.const(self.wide, "i64"))
        back = (0 - done) & (most - 1)
        return self._loop(e.const(0, "i64"), back, 1, accs, lambda _, carried: self._turned(carried))

    def _turned(self, accs):
        """Every accumulator with the next vector's turn."""
        out, i = [], 0
        for turns, parts in zip(self.turns, self.parts, strict=True):
            out += [*accs[i + 1:i + turns], accs[i]] if turns > 1 else accs[i:i + parts]
            i += turns * parts
        return out

    def _folded(self, one, accs):
        """All lanes of every accumulator made one; its vectors side by side first."""
        i, out = 0, []
        for (reduction, _), turns, parts in zip(one.accs, self.turns, self.parts, strict=True):
            mine, i = accs[i:i + turns * parts], i + turns * parts
            while len(mine) > parts:
                half = len(mine) // 2
                mine = [x for a, b in zip(mine[:half], mine[half:], strict=True)
                        for x in self._combine(reduction, [a], [b])]
            out.extend(self._fold(reduction, mine))
        return out

    def _reduced_loop(self, d, rest, one, accs, start, stop, step, masked=False):
        def inside(position, carried):
            self.at[d] = position
            if not masked:
                return self._walk(rest, one, carried)
            self.mask = self._lanes_left(position, stop)
            out = self._walk(rest, one, carried)
            self.mask = None
            return out

        return self._loop(start, stop, step, accs, inside)

    def _body(self, one, accs):
        if self.asks and self.lanes > 1 and self.mask is None:
            self._ask(self.asks)
        values, i = [], 0
        for (reduction, e), turns, parts in zip(one.accs, self.turns, self.parts, strict=True):
            value = self.value(e)
            emit = self.scopes[-1].emit
            lanes = accs[i].lanes
            value = emit.spread(_in(emit, value), lanes)
            if reduction in TRUTH_REDUCTIONS:
                value = emit.cast(value, "i32")
            if self.mask is not None and self.along_rows:
                value = emit.where(self.mask, value, self._identity(reduction, e, lanes)[0])
            values.append(value)
            i += turns * parts
        out = self._added(one, accs, values)
        self._stores(one.stores)
        return out

    def _added(self, one, accs, values):
        """The accumulators with a vector of `values` added to each."""
        i, out, emit = 0, [], self.scopes[-1].emit
        for j, ((reduction, _), value) in enumerate(zip(one.accs, values, strict=True)):
            if reduction.startswith("arg"):
                d = self.kernel.kept + self.kernel.reduced - 1
                index = self._position(d, len(self.scopes) - 1)
                index = emit.spread(emit.cast(index, self.schedule.index_type), accs[i].lanes)
                out.extend(self._farther(reduction, accs[i:i + 2], value, index))
                i += 2
            else:
                turns = self.turns[j]
                out.extend([*accs[i + 1:i + turns], *self._combine(reduction, accs[i:i + 1], [value])])
                i += turns
        return out

    def _stores(self, stores):
        """Write the values; all are computed first, since a result may stand where an operand stood."""
        for _, e in stores:
            self.value(e)
        for access, e in stores:
            self._store(access, e)

    def _combine(self, reduction, a, b):
        """Two accumulated values (with their indices) made one."""
        e = self.scopes[-1].emit
        x, y = _in(e, a[0]), _in(e, b[0])
        if reduction == "sum":
            return [x | y if x.type == "b1" else x + y]
        if reduction == "prod":
            return [x & y if x.type == "b1" else x * y]
        if reduction in ("any", "all"):
            return [x | y if reduction == "any" else x & y]
        if reduction == "top":
            return [e.where(y > x, y, x)]
        if reduction in ("max", "min"):
            return [e.maximum(x, y) if reduction == "max" else e.minimum(x, y)]
        better, same = (y > x if reduction == "argmax" else y < x), x == y
        if x.type in ("f32", "f64"):
            bad_x, bad_y = e.isnan(x), e.isnan(y)
            better = better | (bad_y & ~bad_x)
            same = same | (bad_x & bad_y)
        here, there = _in(e, a[1]), _in(e, b[1])
        take = better | (same & (there < here))
        return [e.where(take, y, x), e.where(take, there, here)]

    def _farther(self, reduction, acc, value, index):
        """An extreme and its index after one more `value`, which stands behind all before it."""
        e = self.scopes[-1].emit
        best, where = _in(e, acc[0]), _in(e, acc[1])
        take = value > best if reduction == "argmax" else value < best
        if value.type in ("f32", "f64"):                  # NaN counts as more, and the first one stays
            kept = best >= value if reduction == "argmax" else best <= value
            take = ~kept & (best == best)
        return [e.where(take, value, best), e.where(take, index, where)]

    def _fold(self, reduction, parts):
        """All lanes of an accumulator made one: halves onto halves, always in the same order."""
        e = self.scopes[-1].emit
        lanes = parts[0].lanes
        while lanes > 1:
            half = lanes // 2
            low = [self._lanes(e, p, range(half)) for p in parts]
            high = [self._lanes(e, p, range(half, lanes)) for p in parts]
            parts, lanes = self._combine(reduction, low, high), half
        return parts

    @staticmethod
    def _lanes(e, x, which):
        which = list(which)
        if len(which) == 1:
            return e.put(x.type, 1, f"extractelement {shape(x.type, x.lanes)} {x.text}, i64 {which[0]}")
        mask = ", ".join(f"i32 {i}" for i in which)
        return e.put(x.type, len(which), f"shufflevector {shape(x.type, x.lanes)} {x.text}, "
                                         f"{shape(x.type, x.lanes)} poison, <{len(which)} x i32> <{mask}>")

    # --- expressions ------------------------------------------------------------------------------------------------

    def value(self, root):
        """The Term of an expression, written at the loop it depends on if it is not there yet."""
        todo = [root]
        while todo:
            e = todo[-1]
            known = self.scopes[self.levels[e]].known
            if e in known:
                todo.pop()
                continue
            args = e.args
            if e.op == "load" and self.kernel.accesses[e.attr].at is not None:
                args = (self.kernel.accesses[e.attr].at,)
            left = [a for a in args if a not in self.scopes[self.levels[a]].known]
            if left:
                todo.extend(left)
                continue
            todo.pop()
            known[e] = self._write(e)
        return self._known(root)

    def _known(self, e):
        return self.scopes[self.levels[e]].known[e]

    def _write(self, e):
        level = self.levels[e]
        emit = self.scopes[level].emit
        if e.op == "const":
            return emit.const(e.attr, e.type)
        if e.op == "number":
            return self.numbers[e.attr]
        if e.op == "size":
            return self.ints[f"size {e.attr}"]
        if e.op == "acc":
            return self.scopes[self.acc_level].known["acc", *e.attr]
        if e.op == "index":
            return self._position(e.attr, level)
        if e.op == "load":
            return self._load(e, level)
        args = [_in(emit, self._known(a)) for a in e.args]
        if e.op == "cast":
            return emit.cast(args[0], e.type)
        if e.op == "from_bits":
            return emit.from_bits(args[0], e.type)
        if e.op == "pair":
            return emit.complex(*args, e.type)
        if e.op == "not":
            return ~args[0]
        if e.op in EMIT_METHODS:
            return getattr(emit, EMIT_METHODS[e.op])(e.op, *args)
        if e.op in ("idiv", "irem") and self.mask is not None and args[1].lanes > 1:
            args[1] = emit.where(self.mask, args[1], 1)          # the surplus lanes hold zeros, which trap
        if e.op in DIRECT_METHODS:
            return getattr(emit, DIRECT_METHODS[e.op])(*args)
        return WORD_FUNCTIONS[e.op](emit, *args)

    def _position(self, d, level=None):
        """The position along a dimension: of every lane, where the lanes walk it."""
        level = self.level_of[d] if level is None else level
        e = self.scopes[level].emit
        here = _in(e, self.at[d])
        return self._lane_positions(e, here) if d == self.vector and self.lanes > 1 else here

    def _lane_positions(self, e, here):
        ramp = ", ".join(f"i64 {i}" for i in range(self.lanes))
        return e.spread(here, self.lanes) + Term(e, "i64", self.lanes, f"<{ramp}>")

    # --- memory -----------------------------------------------------------------------------------------------------

    def _address(self, number, level):
        """Where an access stands: (pointer or vector of pointers, whether its lanes lie side by side)."""
        access = self.kernel.accesses[number]
        memory = "i8" if access.type == "b1" else shape(access.type, 1)
        lanes_move = self.vector is not None and access.steps[self.vector] != 0 and self.lanes > 1
        if access.at is None:
            pointer = self._pointer(number, level)
        else:
            pointer = self.pointers[number]
        e = self.scopes[level].emit
        offset = None
        if access.at is not None:
            offset = self._reached(e, access.at) * self.ints[f"stride {number} at"]
            for d in self.dims:
                step = access.steps[d]
                if step:
                    move = _in(e, self.at[d])
                    offset = offset + (move * self.ints[f"stride {number} {d}"] if step == "s" else move)
            if offset.lanes > 1 and lanes_move and access.steps[self.vector] == 1:
                # every lane stands elsewhere: count them too
                ramp = ", ".join(f"i64 {i}" for i in range(self.lanes))
                offset = offset + Term(e, "i64", self.lanes, f"<{ramp}>")
        if lanes_move and access.steps[self.vector] == "s":
            move = _in(e, self._spread_lanes(number))
            offset = move if offset is None else offset + move
        if offset is not None:
            pointer_type = "ptr" if offset.lanes == 1 else f"<{offset.lanes} x ptr>"
            name = e.new()
            e.lines.append(f"  {name} = getelementptr {memory}, ptr {pointer}, {shape('i64', offset.lanes)} "
                           f"{offset.text}")
            return name, pointer_type
        return pointer, "ptr"

    def _spread_lanes(self, number):
        """How far each lane of an access with a stride stands from the first; written once, outside of all loops."""
        outside = self.scopes[0]
        if ("lanes", number, self.lanes) not in outside.known:
            e = outside.emit
            ramp = ", ".join(f"i64 {i}" for i in range(self.lanes))
            outside.known["lanes", number, self.lanes] = Term(e, "i64", self.lanes, f"<{ramp}>") \
                * self.ints[f"stride {number} {self.vector}"]
        return outside.known["lanes", number, self.lanes]

    def _reached(self, e, expr):
        return _in(e, self.value(expr))

    def _pointer(self, number, level):
        """The pointer of an access at a loop: from the pointer one loop further out. Known once per loop."""
        access = self.kernel.accesses[number]
        memory = "i8" if access.type == "b1" else shape(access.type, 1)
        known = level                             # the deepest loop where it is known already
        while known and ("pointer", number) not in self.scopes[known].known:
            known -= 1
        pointer = self.scopes[known].known["pointer", number] if known else self.pointers[number]
        for depth in range(known + 1, level + 1):
            e, offset = self.scopes[depth].emit, None
            for d in self.dims:
                step = access.steps[d]
                if step and self.level_of[d] == depth:
                    move = _in(e, self.at[d])
                    move = move * self.ints[f"stride {number} {d}"] if step == "s" else move
                    offset = move if offset is None else offset + move
            if offset is not None:
                name = e.new()
                e.lines.append(f"  {name} = getelementptr {memory}, ptr {pointer}, i64 {offset.text}")
                pointer = name
            self.scopes[depth].known["pointer", number] = pointer
        return pointer

    def _load(self, expr, level):
        access = self.kernel.accesses[expr.attr]
        pointer, pointer_type = self._address(expr.attr, level)
        e = self.scopes[level].emit
        type, lanes = access.type, 1
        if self.vector is not None and self.deps[expr] >> self.vector & 1:
            lanes = self.lanes
        memory = "i8" if type == "b1" else type
        align = 1 if type == "b1" else BYTES_OF_TYPE[PART_OF_COMPLEX.get(type, type)]
        if pointer_type == "ptr" and (lanes == 1 or self.mask is None):
            got = e.put(memory, lanes, f"load {shape(memory, lanes)}, ptr {pointer}, align {align}")
        else:
            pointer, pointer_type, parts, on = self._by_parts(e, type, pointer, pointer_type, lanes)
            over, vector = mangled(memory, lanes), shape(memory, lanes)
            name = f"llvm.masked.load.{over}.p0" if pointer_type == "ptr" else f"llvm.masked.gather.{over}.v{parts}p0"
            self.declared.add(f"declare {vector} @{name}({pointer_type}, i32, <{parts} x i1>, {vector})")
            got = e.put(memory, lanes, f"call {vector} @{name}({pointer_type} {pointer}, i32 {align}, <{parts} x i1> "
                                       f"{on}, {vector} zeroinitializer)")
        return got != 0 if type == "b1" else got

    def _asked_by(self, number):
        """The numbers of accesses that pass `number` asks for: all in the first where lanes are asked for; of rows, the
        passes after that take turns."""
        if self.schedule.asks is None:
            return []
        found, last = self._read_by_rows(), len(self.kernel.passes) - 1
        if self.schedule.asks == "lanes":
            return found if number == 0 else []
        return [access for i, access in enumerate(found) if number == 1 + i % last]

    def _ask(self, accesses):
        """Have what lies a row further on, or behind the lanes, come nearer."""
        level, d = len(self.scopes) - 1, self.schedule.order[-1]
        e = self.scopes[level].emit
        for number in accesses:
            pointer, size = self._pointer(number, level), BYTES_OF_TYPE[self.kernel.accesses[number].type]
            start, on = e.new(), self.lanes if self.schedule.asks == "lanes" else self.ints[f"stride {number} {d}"].text
            e.lines.append(f"  {start} = getelementptr {shape(self.kernel.accesses[number].type, 1)}, ptr {pointer}, "
                           f"i64 {on}")
            for line in range(0, self.lanes * size, CACHE_LINE_BYTES):
                address = e.new()
                e.lines.append(f"  {address} = getelementptr i8, ptr {start}, i64 {line}")
                e.lines.append(f"  call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 3, i32 1)")
        self.declared.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")

    def _read_by_rows(self):
        """The numbers of accesses that are read along the lanes, and differ from row to row."""
        stored = {number for one in self.kernel.passes for number, _ in one.stores}
        row = -1 if self.schedule.asks == "lanes" else self.schedule.order[-1]
        return [number for number, access in enumerate(self.kernel.accesses)
                if access.at is None and access.steps[self.vector] == 1 and access.type != "b1"
                and access.steps[row] == "s" and number not in stored]

    def _store(self, number, expr):
        access = self.kernel.accesses[number]
        value = self.value(expr)
        level = len(self.scopes) - 1
        pointer, pointer_type = self._address(number, level)
        e = self.scopes[level].emit
        lanes = self.lanes if self.vector is not None and access.steps[self.vector] else 1
        value = e.spread(_in(e, value), lanes)
        memory, align = access.type, BYTES_OF_TYPE[PART_OF_COMPLEX.get(access.type, access.type)]
        if memory == "b1":
            value = e.put("i8", lanes, f"zext {shape('b1', lanes)} {value.text} to {shape('i8', lanes)}")
            memory = "i8"
        if pointer_type == "ptr" and (lanes == 1 or self.mask is None):
            past = ""
            if self.schedule.streams and lanes > 1 and not isinstance(access, Scratch):
                align, past = min(64, lanes * BYTES_OF_TYPE[access.type]), ", !nontemporal !0"
            e.lines.append(f"  store {shape(memory, lanes)} {value.text}, ptr {pointer}, align {align}{past}")
        else:
            pointer, pointer_type, parts, on = self._by_parts(e, access.type, pointer, pointer_type, lanes)
            over, vector = mangled(memory, lanes), shape(memory, lanes)
            name = f"llvm.masked.store.{over}.p0" if pointer_type == "ptr" else f"llvm.masked.scatter.{over}.v{parts}p0"
            self.declared.add(f"declare void @{name}({vector}, {pointer_type}, i32, <{parts} x i1>)")
            e.lines.append(f"  call void @{name}({vector} {value.text}, {pointer_type} {pointer}, i32 {align}, "
                           f"<{parts} x i1> {on})")

    def _lanes_on(self, lanes):
        return literal(1, "b1", lanes) if self.mask is None else self.mask.text

    def _by_parts(self, e, type, pointer, pointer_type, lanes):
        """(pointer or pointers, their type, how many parts of elements there are, which of them are meant) of a masked
        access; a complex element has two parts, which have the pointers and masks of their own."""
        on = self._lanes_on(lanes)
        if type not in PART_OF_COMPLEX:
            return pointer, pointer_type, lanes, on
        parts, part = 2 * lanes, shape(PART_OF_COMPLEX[type], 1)
        twice = f"<{parts} x i32> <{', '.join(f'i32 {i // 2}' for i in range(parts))}>"
        on = e.put("b1", parts, f"shufflevector <{lanes} x i1> {on}, <{lanes} x i1> poison, {twice}").text
        if pointer_type != "ptr":
            given, firsts, pointer = f"{pointer_type} {pointer}", e.new(), e.new()
            e.lines.append(f"  {firsts} = shufflevector {given}, {pointer_type} poison, {twice}")
            pointer_type, places = f"<{parts} x ptr>", ", ".join(f"i64 {i % 2}" for i in range(parts))
            e.lines.append(f"  {pointer} = getelementptr {part}, {pointer_type} {firsts}, <{parts} x i64> <{places}>")
        return pointer, pointer_type, parts, on
