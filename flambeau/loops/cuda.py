"""Render a kernel as CUDA C++: one `__global__` function, for the way through its positions that its schedule says.

    extern "C" __global__ void name(const Given given)

`Given` has fields of eight bytes: an address for each access, the integers of `arguments`, then the numbers. There are
three ways through a kernel's positions (`GridSchedule.way`, in backends/cuda/schedule.py):

    positions   a thread has the passes of some positions to itself: maps, and reductions down columns. Neighbours along
                the last kept dimension are read and written by up to 16 bytes at a time.
    rows        some threads share a row, lanes round robin; what they have added up is folded, halves onto halves.
                Where the kernel carries reductions down columns, they go through a block of rows, one after the other.
    turned      a map some of whose operands lie across: a square of them goes through shared memory.

An expression is written where all it depends on is known: once for a row, not for every element of it. `_CppScope`s are
these places, from outside in. What is side by side in a thread is written out, a variable each, so that nothing is left
to the compiler but what compilers are good at.
"""
from itertools import count

from .cuda_words import (
    CPP_TYPE,
    HALF_TYPES,
    HELPERS,
    HELPERS_CALLED,
    Unrenderable,
    better,
    cast,
    digamma,
    expression,
    joined,
    literal,
    neutral,
)
from .ir import BYTES_OF_TYPE, FLOAT_TYPES, FUNCTION_WORDS, LEAF_WORDS, dependencies
from .llvm import MOST_OF_TYPE

VECTOR_BYTES = 16                 # of one load or store
MAX_ELEMENTS_AT_HAND = 64         # of a thread: so many loaded elements are kept in registers from pass to pass
STEPS_AT_ONCE = 4                 # of a row that is gone through in a loop, and stored to
MAX_STEPS_AT_ONCE = 16            # of a column that is gone through in a loop, and stored to,
ELEMENTS_UNDER_WAY = 32           # with so many loaded elements of them all
TILE_SIDE = 32                    # of the squares that go through shared memory
TILE_ROWS = 8                     # of them that the threads of a block take at once
MAX_GIVEN_WORDS = 512             # CUDA's bound: 4096 bytes of arguments
PART_POSITION = "block", "x", "y"  # what a part of a kernel is told: the number of its block, and of its thread


def render(kernel, schedule, name):
    """The CUDA C++ of `kernel` as a function called `name`."""
    return {"positions": _Positions, "rows": _Rows, "turned": _Turned}[schedule.way](kernel, schedule, name).text()


def render_part(kernel, schedule):
    """The same as a function `part(given, block, x, y)`, told which thread it is, for kernels made of several."""
    return render(kernel, schedule, None)


def check(kernel):
    """Refuse a kernel that there is no CUDA C++ for: one that does more with 16-bit floats than convert them."""
    for e in dependencies(kernel):
        if e.op not in LEAF_WORDS and e.op not in ("cast", "where") and any(
                type in HALF_TYPES for type in (e.type, *(a.type for a in e.args))):
            raise Unrenderable(f"{e.op} of {e.args[0].type}")
    for one in kernel.passes:
        for kind, *_, e in (*one.accs, *one.columns):
            if e.type in HALF_TYPES:
                raise Unrenderable(f"{kind} of {e.type}")


def arguments(kernel, schedule):
    """The names of the function's integers, in order."""
    names = ["count", *(f"size {d}" for d in range(kernel.kept + kernel.reduced))]
    if not schedule.wide:
        names += [f"{what} {d}" for d in schedule.divided for what in ("multiplier", "shift")]
    names += [f"{what} {d}" for d in schedule.tiled for what in ("tiles", "tiles multiplier", "tiles shift")]
    if kernel.cut is not None:
        names.append("block cut")
    for i, access in enumerate(kernel.accesses):
        names += [f"stride {i} {d}" for d, step in enumerate(access.steps) if step == "s"]
        if access.at is not None:
            names.append(f"stride {i} at")
    return names


# --- the writer -------------------------------------------------------------------------------------------------------

class _CppScope:
    """A place in the text: its lines, and what is known there."""

    def __init__(self, known=()):
        self.lines, self.known = [], dict(known)


class _CppWriter:
    """What the three ways have in common: scopes, expressions, memory.

    `self.lane` is the dimension whose neighbours a thread takes `self.width` of at once; a value that varies over it is
    a list of so many names, any other a list of one. `self.at` tells the position in each dimension now, of the first
    of these. Without a `name`, what is written is a part of a kernel.
    """

    def __init__(self, kernel, schedule, name):
        self.kernel, self.schedule, self.name = kernel, schedule, name
        self.block, self.x, self.y = ("blockIdx.x", "threadIdx.x", "threadIdx.y") if name is not None else PART_POSITION
        self.names, self.helpers = count(), set()
        self.deps = dependencies(kernel)
        self.index = "long long" if schedule.wide else "int"
        self.entry, self.at, self.lane, self.width = _CppScope(), {}, None, 1
        self.scopes = [self.entry]
        self.level_of = {}

    def text(self):
        self._body()
        fields = [f"p{i}" for i in range(len(self.kernel.accesses))]
        ints = [_field(name) for name in arguments(self.kernel, self.schedule)]
        numbers = [f"  {'double' if type in FLOAT_TYPES else 'long long'} n{i};"
                   for i, type in enumerate(self.kernel.numbers)]
        if len(fields) + len(ints) + len(numbers) > MAX_GIVEN_WORDS:
            raise Unrenderable(f"{len(fields) + len(ints) + len(numbers)} arguments of a kernel")
        struct = ["struct Given {", f"  unsigned long long {', '.join(fields)};" if fields else None,
                  f"  long long {', '.join(ints)};" if ints else None, *numbers, "};"]
        helpers = dict.fromkeys(h for name in sorted(self.helpers) for h in (*HELPERS_CALLED.get(name, ()), name))
        return "\n".join([*(line for line in struct if line is not None),
                          *(HELPERS[name] if name != "digamma" else digamma() for name in helpers),
                          f"{self._head()} {{", *_indented(self.entry.lines), "}", ""])

    def _head(self):
        if self.name is None:
            given = ", ".join(f"const int {name}" for name in PART_POSITION)
            return f"static __device__ __forceinline__ void part(const Given &given, {given})"
        bounds = ", ".join(map(str, self.schedule.bounds))
        return f'extern "C" __global__ void __launch_bounds__({bounds}) {self.name}(const Given given)'

    def _line(self, text, scope=None):
        (scope or self.scopes[-1]).lines.append(text)

    def _new(self, prefix="t"):
        return f"{prefix}{next(self.names)}"

    def _put(self, type, text, scope=None):
        """A new constant, by its name."""
        name = self._new()
        self._line(f"const {type} {name} = {text};", scope)
        return name

    def _call(self, helper):
        self.helpers.add(helper)
        return helper

    def _int(self, name):
        """An integer argument, by a name that is known everywhere."""
        known = self.entry.known
        if ("int", name) not in known:
            local = _field(name)
            kind = {"multiplier": "unsigned", "shift": "int"}.get(name.split()[-2] if " " in name else name, self.index)
            self._line(f"const {kind} {local} = ({kind})given.{local};", self.entry)
            known["int", name] = local
        return known["int", name]

    def _pointer(self, number):
        known = self.entry.known
        if ("pointer", number) not in known:
            kind = _memory_type(self.kernel.accesses[number].type)
            self._line(f"{kind} *const p{number} = ({kind} *)given.p{number};", self.entry)
            known["pointer", number] = f"p{number}"
        return known["pointer", number]

    def _block(self, head, scope, tail="}"):
        """The lines of a scope that is done, as a block of the one outside of it."""
        outer = self.scopes[-1].lines
        outer.append(f"{head} {{")
        outer.extend(_indented(scope.lines))
        outer.append(tail)

    def _positions_of(self, place, order):
        """`self.at` for the kept dimensions, of which `place` counts the positions, the last of `order` fastest."""
        for d in reversed(order[1:]):
            size = self._int(f"size {d}")
            if self.schedule.wide:
                rest = self._put(self.index, f"{place} / {size}")
            else:
                multiplier, shift = self._int(f"multiplier {d}"), self._int(f"shift {d}")
                rest = self._put(self.index, f"(int){self._call('over')}((unsigned){place}, {multiplier}, {shift})")
            self.at[d] = self._put(self.index, f"{place} - {rest} * {size}")
            place = rest
        if order:
            self.at[order[0]] = place

    def _tile_of(self, place, d):
        """(the rest of a count of tiles, the tile along dimension `d`, which is the fastest of them)."""
        tiles = self._int(f"tiles {d}")
        rest = self._put(self.index, f"(int){self._call('over')}((unsigned){place}, "
                                     f"{self._int(f'tiles multiplier {d}')}, {self._int(f'tiles shift {d}')})")
        return rest, self._put(self.index, f"{place} - {rest} * {tiles}")

    # --- expressions

    def _level(self, bits):
        """The innermost scope among those of the dimensions `bits`."""
        deepest, d = 0, 0
        while bits:
            if bits & 1 and self.level_of[d] > deepest:
                deepest = self.level_of[d]
            bits >>= 1
            d += 1
        return deepest

    def _varies(self, e):
        """Whether the neighbours that a thread takes at once have values of their own."""
        return self.lane is not None and self.width > 1 and self.deps[e] >> self.lane & 1

    def value(self, root):
        """The names of an expression's values, written where all it depends on is known."""
        todo = [root]
        while todo:
            e = todo[-1]
            known = self.scopes[self._level(self.deps[e])].known
            if e in known:
                todo.pop()
                continue
            args = e.args
            if e.op == "load" and self.kernel.accesses[e.attr].at is not None:
                args = (self.kernel.accesses[e.attr].at,)
            left = [a for a in args if a not in self.scopes[self._level(self.deps[a])].known]
            if left:
                todo.extend(left)
                continue
            todo.pop()
            known[e] = self._written(e, self.scopes[self._level(self.deps[e])])
        return self._known(root)

    def _known(self, e):
        return self.scopes[self._level(self.deps[e])].known[e]

    def _written(self, e, scope):
        if e.op == "const":
            return [literal(e.attr, e.type)]
        if e.op == "number":
            cell = "f64" if e.type in FLOAT_TYPES else "i64"
            return [self._named(e.type, *cast(f"given.n{e.attr}", cell, e.type), scope)]
        if e.op == "size":
            return [f"(long long){self._int(f'size {e.attr}')}"]
        if e.op == "index":
            place = self.at[e.attr]
            lanes = range(self.width) if e.attr == self.lane and self.width > 1 else (0,)
            return [f"(long long)({place} + {v})" if v else f"(long long){place}" for v in lanes]
        if e.op == "load":
            return self._load(e, scope)
        args = [self._known(a) for a in e.args]
        out = []
        for v in range(self.width if self._varies(e) else 1):
            given = [a[v] if len(a) > 1 else a[0] for a in args]
            out.append(self._named(e.type, *expression(e.op, e.type, given, e.args[0].type), scope))
        return out

    def _named(self, type, text, helpers, scope):
        self.helpers.update(helpers)
        return self._put(CPP_TYPE[type], text, scope)

    # --- memory

    def _offset(self, number, level):
        """How far the position is from the start of an access, known at the scope `level`; 0 where it is there."""
        access, known = self.kernel.accesses[number], level
        while known and ("offset", number) not in self.scopes[known].known:
            known -= 1
        text = self.scopes[known].known.get(("offset", number), "0")
        for depth in range(known + 1, level + 1):
            parts = [] if text == "0" else [text]
            for d, step in enumerate(access.steps):
                if step and self.level_of[d] == depth:
                    parts.append(self.at[d] if step == 1 else f"{self.at[d]} * {self._int(f'stride {number} {d}')}")
            if len(parts) > (text != "0"):
                text = parts[0] if len(parts) == 1 and parts[0].isidentifier() else \
                    self._put(self.index, " + ".join(parts), self.scopes[depth])
            self.scopes[depth].known["offset", number] = text
        return text

    def _addresses(self, number, level, lanes):
        """The C++ of the pointers of an access, for each of the `lanes` neighbours."""
        access, pointer, offset = self.kernel.accesses[number], self._pointer(number), self._offset(number, level)
        base = pointer if offset == "0" else f"{pointer} + {offset}"
        out = []
        places = self.value(access.at) if access.at is not None else None
        for v in range(lanes):
            parts = [base]
            if places is not None:
                parts.append(f"{places[v] if len(places) > 1 else places[0]} * given.{_field(f'stride {number} at')}")
            if v and access.steps[self.lane]:
                parts.append(str(v) if access.steps[self.lane] == 1 else
                             f"{v} * {self._int(f'stride {number} {self.lane}')}")
            out.append(" + ".join(parts))
        return out

    def _is_packed(self, number):
        """Whether the neighbours that a thread takes at once lie side by side in memory, on a boundary of 16 bytes."""
        access = self.kernel.accesses[number]
        return self.lane is not None and self.width > 1 and access.steps[self.lane] == 1 \
            and (access.at is None or not self._varies(access.at))

    def _load(self, e, scope):
        access, level = self.kernel.accesses[e.attr], self._level(self.deps[e])
        kind = _memory_type(access.type)
        if self._varies(e) and self._is_packed(e.attr):
            size = _pack_size(access.type, self.width)
            address, = self._addresses(e.attr, level, 1)
            names = []
            for first in range(0, self.width, size):
                name = self._new("x")
                place = f"{address} + {first}" if first else address
                self._line(f"const {self._call('Pack')}<{kind}, {size}> {name} = {self._taken(place, kind, size)};",
                           scope)
                names += [f"{name}.x[{i}]" for i in range(size)]
        else:
            names = [self._put(kind, f"*({address})", scope) for address in
                     self._addresses(e.attr, level, self.width if self._varies(e) else 1)]
        return [f"({name} != 0)" for name in names] if access.type == "b1" else names

    def _taken(self, place, kind, size):
        return f"*(const Pack<{kind}, {size}> *)({place})"

    def _given(self, place, kind, size, values):
        return f"*(Pack<{kind}, {size}> *)({place}) = Pack<{kind}, {size}>{{{{{', '.join(values)}}}}};"

    def _stores(self, stores):
        """Write the values; all are computed first, since a result may stand where an operand stood."""
        for _, e in stores:
            self.value(e)
        for number, e in stores:
            self._store(number, self.value(e))

    def _store(self, number, values):
        """Write what the neighbours have, or what is the same for all of them, to an access."""
        access = self.kernel.accesses[number]
        kind, level = _memory_type(access.type), len(self.scopes) - 1
        moves = self.lane is not None and access.steps[self.lane] != 0 and self.width > 1
        values = values * self.width if moves and len(values) == 1 else values
        if access.type == "b1":
            values = [f"(unsigned char){v}" for v in values]
        if moves and self._is_packed(number):
            size = _pack_size(access.type, self.width)
            address, = self._addresses(number, level, 1)
            self._call("Pack")
            for first in range(0, self.width, size):
                place = f"{address} + {first}" if first else address
                self._line(self._given(place, kind, size, values[first:first + size]))
        else:
            for address, value in zip(self._addresses(number, level, self.width if moves else 1), values,
                                      strict=False):
                self._line(f"*({address}) = {value};")

    def _alignment(self):
        """The C++ of whether all that is loaded and stored by several elements starts on a boundary of so many."""
        packed = [i for i in range(len(self.kernel.accesses)) if self._is_packed(i)]
        types = [self.kernel.accesses[i].type for i in packed]
        most = max((BYTES_OF_TYPE[type] * _pack_size(type, self.width) for type in types), default=1)
        return f"(({' | '.join(f'given.p{i}' for i in packed)}) & {most - 1}) == 0" if packed else "true"

    def _loads_of(self, roots):
        """The loads that expressions are made of, those first that others need."""
        out, seen, todo = [], set(), list(reversed(roots))
        while todo:
            e = todo[-1]
            args = (self.kernel.accesses[e.attr].at,) if e.op == "load" and \
                self.kernel.accesses[e.attr].at is not None else e.args
            left = [a for a in args if a not in seen] if e not in seen else ()
            if left:
                todo.extend(reversed(left))
                continue
            todo.pop()
            if e not in seen:
                seen.add(e)
                if e.op == "load":
                    out.append(e)
        return out

    # --- reductions one element after the other

    def _cut(self):
        """(first, last + 1) of the dimension that may be cut: all of it, or the block that a kept dimension numbers."""
        k = self.kernel
        if k.cut is None:
            return "0", self._int(f"size {k.kept}")
        size, block = self._int(f"size {k.cut_dim}"), self._int("block cut")
        first = self._put(self.index, f"{self.at[k.cut]} * {block}")
        first = self._put(self.index, f"{first} < {size} ? {first} : {size}")     # the last blocks may be empty
        return first, self._put(self.index, f"{size} - {first} < {block} ? {size} : {first} + {block}")

    def _declared(self, number, j, kind, e, suffix=""):
        """The names of a new accumulator: (its value, and for the place of an extreme that)."""
        type = "b1" if kind in ("any", "all") else e.type
        name = f"a{number}_{j}{suffix}"
        self._line(f"{CPP_TYPE[type]} {name} = {neutral(kind, type)};")
        if not kind.startswith("arg"):
            return (name,)
        self._line(f"long long {name}_at = {literal(MOST_OF_TYPE['i64'], 'i64')};")
        return name, f"{name}_at"

    def _accumulate(self, kind, type, acc, value, place):
        """Add a value, and its place, to an accumulator."""
        if kind.startswith("arg"):
            self._line(f"if ({better(kind, type, acc, (value, place))}) {{ {acc[0]} = {value}; {acc[1]} = {place}; }}")
        else:
            self._line(f"{acc[0]} = {joined(kind, type, acc[0], value)};")


def _field(name):
    return name.replace(" ", "_")


def _indented(lines):
    return ["  " + line for line in lines]


def _memory_type(type):
    return "unsigned char" if type == "b1" else CPP_TYPE[type]


def _pack_size(type, width):
    """How many of `width` neighbours go with one load or store."""
    return min(width, VECTOR_BYTES // BYTES_OF_TYPE[type])


# --- positions --------------------------------------------------------------------------------------------------------

class _Positions(_CppWriter):
    """A block has a tile of consecutive positions. Where it is whole, and memory is aligned, a thread takes `vector`
    neighbours at once, `units` times; else one after the other. Where the last dimension is long, a tile is of one row
    of it: what the row has one of is then written once, a scope further out."""

    def _body(self):
        k, s = self.kernel, self.schedule
        self.inner = 1 + bool(s.tiled)                        # the scope of a thread's own positions
        self.level_of = dict.fromkeys(range(k.kept), 1)
        self.level_of.update({d: 2 + d - k.kept for d in range(k.kept, k.kept + k.reduced)})
        self.level_of[k.kept + k.reduced] = 1                 # what an accumulator held
        threads, self.lane = s.block[0], s.order[-1] if s.order else None
        tile = s.tile
        if s.tiled:
            self.level_of[self.lane] = 2
            self.scopes = [self.entry, _CppScope()]
            place = self._put(self.index, f"({self.index}){self.block}")
            row, piece = self._tile_of(place, self.lane)
            self._positions_of(row, s.order[:-1])
            first, total = self._put(self.index, f"{piece} * {tile}"), self._int(f"size {self.lane}")
        else:
            first = self._put(self.index, f"({self.index}){self.block} * {tile}")
            total = self._int("count")
        self._tile(first, total, tile, threads)
        if s.tiled:
            self.entry.lines.extend(self.scopes.pop().lines)

    def _tile(self, first, total, tile, threads):
        """The positions from `first` on, of `total`."""
        s = self.schedule
        if s.units * s.vector == 1:
            place = self._put(self.index, f"{first} + (int){self.x}")
            if not s.order:               # of one position, all is read here; the only thread that has one may write
                self._line(f"if ({place} >= {total}) return;")     # its results over that before others look
            self._block(f"if ({place} < {total})", self._unit(place))
            return
        self.width = s.vector
        places = [f"{first} + {(u * threads) * s.vector} + (int){self.x} * {s.vector}" for u in range(s.units)]
        whole, rest = _CppScope(), _CppScope()
        self._several(whole, places)
        ready = f"{self._alignment()} && {total} - {first} >= {tile}"
        self.width = 1
        place, last = self._new("i"), self._new("i")
        inner = self._unit(place)
        self._block(f"if ({ready})", whole)
        self.scopes.append(rest)
        self._line(f"const {self.index} {last} = {total} - {first} < {tile} ? {total} : {first} + {tile};")
        if not self.kernel.reduced:                           # seldom gone through, so that it had better be short
            self._line("#pragma unroll 1")
        self._block(f"for ({self.index} {place} = {first} + (int){self.x}; {place} < {last}; {place} += {threads})",
                    inner)
        self.scopes.pop()
        self._block("else", rest)

    def _unit(self, place):
        """A scope with all passes of the position, or of the neighbours from there on."""
        scope = _CppScope()
        outer, self.scopes = self.scopes, [*self.scopes[:self.inner], scope]
        self._place(place)
        self._passes()
        self.scopes = outer
        return scope

    def _place(self, place):
        if self.schedule.tiled:
            self.at[self.lane] = place
        else:
            self._positions_of(place, self.schedule.order)

    def _several(self, whole, places):
        """Some units of neighbours: all of their loads first, then what is made of them."""
        outer, units = self.scopes, []
        stores = [e for one in self.kernel.passes for _, e in one.stores]
        for text in places:
            scope = _CppScope()
            self.scopes, self.at = [*outer[:self.inner], scope], dict(self.at)
            self._place(self._put(self.index, text))
            if not self.kernel.reduced:
                for load in self._loads_of(stores):
                    if self._level(self.deps[load]) == self.inner:
                        self.value(load)
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
            lanes = self.width
            accs = [[self._declared(number, j, kind, e, f"_{next(self.names)}") for _ in range(lanes)]
                    for j, (kind, e) in enumerate(one.accs)]
            if k.reduced:
                self._walk(list(range(k.kept, k.kept + k.reduced)), one, accs)
            else:
                self._stores(one.stores)
            for j, (kind, _) in enumerate(one.accs):
                self.scopes[1].known["acc", number, j] = [acc[kind.startswith("arg")] for acc in accs[j]]
        self._stores(k.finals)

    def _written(self, e, scope):
        if e.op == "acc":
            return self.scopes[1].known["acc", *e.attr]
        return super()._written(e, scope)

    def _walk(self, dims, one, accs):
        """The loops over the reduced dimensions `dims`, and in them the pass."""
        if not dims:
            for (kind, e), mine in zip(one.accs, accs, strict=True):
                values = self.value(e)
                for v, acc in enumerate(mine):
                    value = values[v] if len(values) > 1 else values[0]
                    place = f"(long long){self.at[self.kernel.kept + self.kernel.reduced - 1]}"
                    self._accumulate(kind, e.type, acc, self._simple(value, e.type), place)
            self._stores(one.stores)
            return
        d, rest = dims[0], dims[1:]
        first, last = self._cut() if d == self.kernel.kept else ("0", self._int(f"size {d}"))
        at = self._new("i")
        scope = _CppScope()
        self.scopes.append(scope)
        self.at[d] = at
        self._walk(rest, one, accs)
        self.scopes.pop()
        steps = self._steps_at_once(one) if not rest and one.stores else 1
        if steps > 1:
            self._line(f"{self.index} {at} = {first};")
            self._block(f"for (; {last} - {at} >= {steps}; {at} += {steps})", self._steps(d, at, steps, one, accs))
            self._block(f"for (; {at} < {last}; ++{at})", scope)
            return
        if not rest and not one.stores:                       # loads of several steps can be under way at once
            self._line(f"#pragma unroll {self.schedule.unroll}")
        self._block(f"for ({self.index} {at} = {first}; {at} < {last}; ++{at})", scope)

    def _steps_at_once(self, one):
        """How many steps of a loop that stores have their loads under way at once. What a step stores stands at most
        where it has loaded from itself; the compiler cannot know that."""
        innermost = self.kernel.kept + self.kernel.reduced - 1
        loads = [load for load in self._loads_of(one.expressions()) if self.deps[load] >> innermost & 1]
        return min(MAX_STEPS_AT_ONCE, ELEMENTS_UNDER_WAY // (self.width * max(1, len(loads))))

    def _steps(self, d, at, steps, one, accs):
        """A scope with so many steps from `at` on along dimension `d`: all of their loads, then one after the other."""
        outer, several, scopes = self.scopes, _CppScope(), []
        loads = self._loads_of(one.expressions())
        for step in range(steps):
            scope = _CppScope()
            self.scopes = [*outer, scope]
            self.at[d] = self._put(self.index, f"{at} + {step}") if step else at
            for load in loads:
                if self._level(self.deps[load]) == len(outer):
                    self.value(load)
            scopes.append((scope, self.at[d]))
            several.lines.extend(scope.lines)
            scope.lines = []
        for scope, self.at[d] in scopes:
            self.scopes = [*outer, scope]
            self._walk([], one, accs)
            several.lines.extend(scope.lines)
        self.scopes = outer
        return several

    def _simple(self, value, type):
        """A value by a name, where it is more than that."""
        return value if value.replace(".", "_").replace("[", "_").replace("]", "_").isidentifier() else \
            self._put(CPP_TYPE[type], value)


# --- rows -------------------------------------------------------------------------------------------------------------

class _Rows(_CppWriter):
    """`group` threads share a row, each with `vector` neighbouring lanes of every `chunk` of them; `chunks` says how
    many a row has at most, where what was loaded is kept at hand; 0: they are gone through in a loop.

    Rows that lie `abreast` have their elements far apart, and those of the next row beside: the threads of a warp have
    a row each, and share it with threads of other warps.

    With columns to carry, they go through the rows of a block: each thread has its places of the columns to itself,
    whose accumulators are in registers all the while."""

    def _body(self):
        k, s = self.kernel, self.schedule
        self.last = k.kept + k.reduced - 1
        self.level_of = dict.fromkeys(range(k.kept), 1)
        self.level_of.update({d: 2 + d - k.kept for d in range(k.kept, self.last + 1)})
        self.level_of[self.last + 1] = 1                      # what an accumulator held
        self.lane, self.width, self.chunk = self.last, s.vector, s.group * s.vector
        self.room = self.boxes = 0
        inner = _CppScope()
        self.scopes = [self.entry, inner]
        if k.columns:
            self._rows_of_block()
        else:
            self._row()
        self.scopes = [self.entry]
        if self.room:
            self._line(f"__shared__ double room[{-(-self.room // 8)}], box[{self.boxes}];")
        if s.vector > 1:
            self._line(f"const bool aligned = {self._alignment()};")
        self.entry.lines.extend(inner.lines)

    def _taken(self, place, kind, size):
        return f"{self._call('take')}<{kind}, {size}>({place}, aligned)"

    def _given(self, place, kind, size, values):
        return f"{self._call('give')}({place}, Pack<{kind}, {size}>{{{{{', '.join(values)}}}}}, aligned);"

    def _row(self):
        k, s = self.kernel, self.schedule
        along, beside = (self.y, self.x) if s.abreast else (self.x, self.y)
        several = s.at_once > 1
        self.thread = self._put("int", f"(int){along}")
        row = self._put(self.index, f"({self.index}){self.block}" + (f" * {s.at_once} + (int){beside}" if several
                                                                       else ""))
        self.live = None
        if several:                                           # the last block may have more threads than rows
            total = self._int("count")
            self.live = self._put("bool", f"{row} < {total}")
            row = self._put(self.index, f"{self.live} ? {row} : {total} - 1")
        self._positions_of(row, s.order)
        self.bounds = self._cut() if k.reduced else ("0", "1")
        if k.reduced > 1:
            self.lane_bounds = "0", self._int(f"size {self.last}")
        else:
            self.lane_bounds = self.bounds
        if several:
            self.lane_bounds = (self.lane_bounds[0],
                                self._put(self.index, f"{self.live} ? {self.lane_bounds[1]} : {self.lane_bounds[0]}"))
        self._take_singles()
        self._deal_out()
        self._passes()

    def _rows_of_block(self):
        """Rows one after the other, with what is the same in all of them before, and the columns' stores after."""
        k, s = self.kernel, self.schedule
        before = self.scopes[1]
        self.thread = self._put("int", f"(int){self.x}")
        self._positions_of(self._put(self.index, f"({self.index}){self.block}"), s.order)
        first, last = self._cut()
        self.live, self.lane_bounds = None, ("0", self._int(f"size {self.last}"))
        self._deal_out()
        self.column_accs = {number: [[self._declared("c", number, kind, e, f"_{next(self.names)}")
                                      for _ in range(self.width)] for _ in range(s.chunks)]
                            for kind, number, e in k.columns}
        moving = 1 << k.cut_dim | 1 << self.last + 1          # what these are part of is another in each row
        self._fetch([e for e in self._loads_of(self._roots()) if e in self.kept_at_hand and not self.deps[e] & moving
                     and k.accesses[e.attr].at is None], self.lane_bounds[1])
        inner, row = _CppScope(), self._new("i")
        self.scopes, self.at[k.cut_dim] = [self.entry, inner], row
        self._take_singles()
        self._passes()
        self.scopes = [self.entry, before]
        self._line("#pragma unroll 1")
        self._block(f"for ({self.index} {row} = {first}; {row} < {last}; ++{row})", inner)
        for c, start in enumerate(self.starts):
            self.at[self.last] = start
            scope = _CppScope()
            self.scopes.append(scope)
            for number, mine in self.column_accs.items():
                self._store(number, [name for name, in mine[c]])
            self.scopes.pop()
            self._block(f"if ({start} < {self.lane_bounds[1]})", scope)

    def _roots(self):
        return [e for one in self.kernel.passes for e in one.expressions()] + [e for _, e in self.kernel.finals]

    def _take_singles(self):
        """Read what a row has one of, before any thread can have come to the results, which may stand there."""
        for load in self._loads_of(self._roots()):
            if self._level(self.deps[load]) <= 1 and not self.deps[load] >> self.last + 1:
                self.value(load)

    def _deal_out(self):
        """Where each chunk of a row starts that is kept at hand, and what is."""
        s = self.schedule
        self.starts = None
        if s.chunks:
            start, thread = self.lane_bounds[0], self.thread
            self.starts = [self._put(self.index, f"{start} + {c * self.chunk} + {thread} * {s.vector}" if s.vector > 1
                                     else f"{start} + {c * self.chunk} + {thread}") for c in range(s.chunks)]
            again = self._again()
            room = MAX_ELEMENTS_AT_HAND // (s.chunks * s.vector)
            self.kept_at_hand = again if len(again) <= room else {e for e in again if e.op == "load"}
            self.at_hand = [{} for _ in range(s.chunks)]

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
            late = any(self.deps[load] >> self.last + 1 and self._level(self.deps[load]) <= 1
                       for load in self._loads_of(self._roots()))
            for _, e in k.finals:
                self.value(e)
            if late or not any(one.accs for one in k.passes):
                self._line("__syncthreads();" if s.group > 32 or s.abreast else "__syncwarp();")
            scope = _CppScope()
            for number, e in k.finals:
                kind = self.kernel.accesses[number].type
                value = self.value(e)[0]
                address, = self._addresses(number, 1, 1)
                scope.lines.append(f"*({address}) = {'(unsigned char)' if kind == 'b1' else ''}{value};")
            self._block(f"if ({self.live + ' && ' if self.live else ''}{self.thread} == 0)", scope)

    def _again(self):
        """Expressions along the row that a pass computes and a later one needs: what is loaded, and what is costly."""
        seen, out = set(), set()
        for one in self.kernel.passes:
            mine, todo = set(), one.expressions()
            while todo:
                e = todo.pop()
                if e in mine:
                    continue
                mine.add(e)
                if e in seen and self.deps[e] >> self.lane & 1 and (e.op == "load" or _is_costly(e)):
                    out.add(e)
                    if e.op != "load":                        # what it is made of is not computed again
                        continue
                todo.extend(e.args)
                if e.op == "load" and self.kernel.accesses[e.attr].at is not None:
                    todo.append(self.kernel.accesses[e.attr].at)
            seen |= mine
        return out

    # --- accumulators: one for each lane that a thread has

    def _lanes_of(self, kind, e):
        """How many chunks have accumulators of their own: as many as the lanes of the order fill."""
        s = self.schedule
        if e.type not in ("f32", "f64") or kind.startswith("arg"):
            return 1
        chunks = max(1, s.lane_bytes * self.kernel.rows // BYTES_OF_TYPE[e.type] // self.chunk)
        return min(chunks, s.chunks) if s.chunks else chunks

    def _accumulators(self, number, one):
        return [[[self._declared(number, j, kind, e, f"_{next(self.names)}") for _ in range(self.width)]
                 for _ in range(self._lanes_of(kind, e))] for j, (kind, e) in enumerate(one.accs)]

    def _body_of(self, one, accs, turn):
        """The pass at the neighbours that `self.at` says, of a chunk with this `turn` among those of the lanes."""
        for (kind, e), mine in zip(one.accs, accs, strict=True):
            values = self.value(e)
            for v in range(self.width):
                value = self._simple(values[v] if len(values) > 1 else values[0], e.type)
                place = f"(long long)({self.at[self.last]} + {v})"
                self._accumulate(kind, e.type, mine[turn % len(mine)][v], value, place)
        for kind, number, e in one.columns:
            values = self.value(e)
            for v, acc in enumerate(self.column_accs[number][turn]):
                self._accumulate(kind, e.type, acc, self._simple(values[v] if len(values) > 1 else values[0], e.type),
                                 None)
        self._stores(one.stores)

    _simple = _Positions._simple

    def _written(self, e, scope):
        if e.op == "acc":
            return self.scopes[1].known["acc", *e.attr]
        return super()._written(e, scope)

    # --- a row in a loop

    def _walk(self, dims, one, accs):
        d, rest = dims[0], dims[1:]
        if rest:
            first, last = self.bounds if d == self.kernel.kept else ("0", self._int(f"size {d}"))
            self.at[d] = self._new("i")
            scope = _CppScope()
            self.scopes.append(scope)
            self._walk(rest, one, accs)
            self.scopes.pop()
            if self.schedule.chunks and len(rest) == 1 and not one.stores:
                self._line(f"#pragma unroll {self.schedule.unroll}")
            self._block(f"for ({self.index} {self.at[d]} = {first}; {self.at[d]} < {last}; ++{self.at[d]})", scope)
            return
        if self.schedule.chunks:
            for c, start in enumerate(self.starts):
                self.at[d] = start
                scope = _CppScope()
                self.scopes.append(scope)
                self._body_of(one, accs, c)
                self.scopes.pop()
                self._block(f"if ({start} < {self.lane_bounds[1]})", scope)
            return
        turns = max((len(mine) for mine in accs), default=1)
        first, last = self.lane_bounds
        base = self._new("i")
        outer = _CppScope()
        self.scopes.append(outer)
        depth = len(self.scopes)
        for turn in range(turns):
            scope = _CppScope() if turns > 1 else outer
            if turns > 1:
                self.at[d] = self._put(self.index, f"{base} + {turn * self.chunk}")
                self.scopes[depth - 1] = scope
            else:
                self.at[d] = base
            self._body_of(one, accs, turn)
            if turns > 1:
                self.scopes[depth - 1] = outer
                self._block(f"if ({self.at[d]} < {last})", scope)
        self.scopes.pop()
        step = f"{self.thread} * {self.width}" if self.width > 1 else self.thread
        self._line(f"{self.index} {base} = {first} + {step};")
        if one.stores and turns == 1:
            self._several_steps(d, one, accs, base, last)
        elif not one.stores:
            self._line(f"#pragma unroll {self.schedule.unroll}")
        self._block(f"for (; {base} < {last}; {base} += {turns * self.chunk})", outer)

    def _several_steps(self, d, one, accs, base, last):
        """Steps of a pass that stores, some at once: their loads first, which the compiler may not put before the
        stores of the steps before."""
        loads = [e for e in self._loads_of([e for _, e in (*one.accs, *one.stores)]) if self.deps[e] >> d & 1]
        outer, steps = _CppScope(), []
        self.scopes.append(outer)
        for i in range(STEPS_AT_ONCE):
            place = self._put(self.index, f"{base} + {i * self.chunk}", outer)
            scope = self.scopes[-1] = _CppScope()
            self.at[d] = place
            for load in loads:
                self.value(load)
            outer.lines.extend(scope.lines)
            scope.lines = []
            steps.append((scope, place))
        for i, (scope, self.at[d]) in enumerate(steps):
            self.scopes[-1] = scope
            self._body_of(one, accs, i)
            outer.lines.extend(scope.lines)
        self.scopes.pop()
        step = STEPS_AT_ONCE * self.chunk
        self._block(f"for (; {base} + {step - self.chunk} < {last}; {base} += {step})", outer)

    # --- a row at hand

    def _unrolled(self, one, accs):
        """All chunks of the row, written out: what is loaded first, as far as registers go, then what is made of it."""
        d, last = self.last, self.lane_bounds[1]
        roots = one.expressions()
        for access, _ in one.stores:
            if self.kernel.accesses[access].at is not None:
                roots.append(self.kernel.accesses[access].at)
        loads = [e for e in self._loads_of(roots) if self.deps[e] >> d & 1 and not any(e in k for k in self.at_hand)
                 and self.kernel.accesses[e.attr].at is None]
        at_once = len(loads) * self.schedule.chunks * self.width <= MAX_ELEMENTS_AT_HAND
        early = [e for e in loads if at_once or e in self.kept_at_hand]
        self._fetch(early, last)
        for c, start in enumerate(self.starts):
            self.at[d] = start
            scope = _CppScope(self.at_hand[c])
            self.scopes.append(scope)
            self._body_of(one, accs, c)
            self.scopes.pop()
            for e in self.kept_at_hand:
                if e.op == "load" or e in self.at_hand[c] or e not in scope.known:
                    continue
                names = [self._new("h") for _ in scope.known[e]]
                self._line(" ".join(f"{CPP_TYPE[e.type]} {name} = {literal(0, e.type)};" for name in names))
                scope.lines.extend(f"{name} = {value};" for name, value in zip(names, scope.known[e], strict=True))
                self.at_hand[c][e] = names
            self._block(f"if ({start} < {last})", scope)

    def _fetch(self, loads, last):
        """Load what the row has of `loads`, so that it is known from now on."""
        packed, single = [], []                   # lines, by whether the boundaries of memory matter
        for c, start in enumerate(self.starts):
            self.at[self.last] = start
            scope, by_pack, one_by_one = _CppScope(self.at_hand[c]), [], []
            self.scopes.append(scope)
            for e in loads:
                access = self.kernel.accesses[e.attr]
                kind, names = _memory_type(access.type), []
                if self._is_packed(e.attr):
                    size = _pack_size(access.type, self.width)
                    address, = self._addresses(e.attr, len(self.scopes) - 1, 1)
                    self._call("Pack")
                    for first in range(0, self.width, size):
                        name = self._new("x")
                        self._line(f"Pack<{kind}, {size}> {name} = {{}};", self.scopes[1])
                        by_pack.append((name, f"{address} + {first}" if first else address, kind, size))
                        names += [f"{name}.x[{i}]" for i in range(size)]
                else:
                    for address in self._addresses(e.attr, len(self.scopes) - 1, self.width):
                        name = self._new("x")
                        self._line(f"{kind} {name} = 0;", self.scopes[1])
                        one_by_one.append(f"{name} = *({address});")
                        names.append(name)
                self.at_hand[c][e] = [f"({name} != 0)" for name in names] if access.type == "b1" else names
            self.scopes.pop()
            self.scopes[1].lines.extend(scope.lines)          # where it is, within the row or not
            packed.append((start, by_pack))
            single.append((start, one_by_one))
        for aligned in (True, False) if any(lines for _, lines in packed) else ():
            scope = _CppScope()
            for start, lines in packed:
                if lines:
                    scope.lines.append(f"if ({start} < {last}) {{")
                    scope.lines += [f"  {name} = {self._call('take')}<{kind}, {size}>({place}, {str(aligned).lower()});"
                                    for name, place, kind, size in lines]
                    scope.lines.append("}")
            self._block("if (aligned)" if aligned else "else", scope)
        for start, lines in single:
            if lines:
                self._line(f"if ({start} < {last}) {{ {' '.join(lines)} }}")

    # --- halves onto halves

    def _fold(self, number, one, accs):
        """All lanes of every accumulator made one, which all threads of the row then know."""
        s = self.schedule
        if not one.accs:
            return
        folded = []
        for (kind, e), mine in zip(one.accs, accs, strict=True):
            type = "b1" if kind in ("any", "all") else e.type
            lanes = 1 << (len(mine) - 1).bit_length()
            mine = [*mine, *[None] * (lanes - len(mine))]     # of a short row the last are empty
            while lanes > 1:
                lanes //= 2
                mine = [[self._joined(kind, type, a, b) for a, b in zip(low, high, strict=True)] if high else low
                        for low, high in zip(mine[:lanes], mine[lanes:], strict=True)]
            folded.append((kind, type, mine[0]))
        if s.abreast:
            folded = self._fold_abreast(folded)
        elif s.group > 32:
            folded = self._fold_through_shared_memory(folded)
        else:
            folded = [(kind, type, self._fold_group(kind, type, mine, s.group)) for kind, type, mine in folded]
            if s.group > 1:
                folded = [(kind, type, tuple(self._shuffled("__shfl_sync", part_type, part, 0, s.group)
                                             for part, part_type in zip(acc, (type, "i64"), strict=False)))
                          for kind, type, acc in folded]
        for j, (kind, _, acc) in enumerate(folded):
            self.scopes[1].known["acc", number, j] = [acc[kind.startswith("arg")]]

    def _joined(self, kind, type, a, b):
        """Two accumulators made one."""
        if not kind.startswith("arg"):
            return (self._put(CPP_TYPE[type], joined(kind, type, a[0], b[0])),)
        take = self._put("bool", better(kind, type, a, b))
        return (self._put(CPP_TYPE[type], f"{take} ? {b[0]} : {a[0]}"),
                self._put("long long", f"{take} ? {b[1]} : {a[1]}"))

    def _shuffled(self, how, type, name, by, width):
        cast = type in ("b1", "i8", "u8", "i16")
        text = f"{how}(0xffffffffu, {'(int)' if cast else ''}{name}, {by}, {width})"
        return self._put(CPP_TYPE[type], f"({CPP_TYPE[type]}){text}" if cast else text)

    def _fold_group(self, kind, type, lanes, width):
        """The accumulators of `width` threads of a warp, and their lanes, in the first of them.

        At every step a thread gives half of its lanes to the other one, and takes half of that one's: so they have
        fewer and fewer of them, until each has one; in the end the lanes are folded from thread to thread.
        """
        half, given = width // 2, []
        if kind.startswith("arg"):                            # two values each: seldom enough
            return self._fold_lanes(kind, type, self._fold_warp(kind, type, lanes, width))
        while half and len(lanes) > 1:
            many = len(lanes) // 2
            upper = self._put("bool", f"({self.thread} & {half}) != 0")
            made = []
            for (low,), (high,) in zip(lanes[:many], lanes[many:], strict=True):
                theirs = self._put(CPP_TYPE[type], f"{upper} ? {low} : {high}")
                mine = self._put(CPP_TYPE[type], f"{upper} ? {high} : {low}")
                theirs = self._shuffled("__shfl_xor_sync", type, theirs, half, width)
                if kind in ("max", "min", "top"):             # where it matters which comes first
                    mine, theirs = (self._put(CPP_TYPE[type], f"{upper} ? {theirs} : {mine}"),
                                    self._put(CPP_TYPE[type], f"{upper} ? {mine} : {theirs}"))
                made.append(self._joined(kind, type, (mine,), (theirs,)))
            lanes = made
            given.append(half)
            half //= 2
        lanes = self._fold_warp(kind, type, lanes, 2 * half) if half else lanes
        for half in given:
            lanes = [self._joined(kind, type, acc, (self._shuffled("__shfl_down_sync", type, acc[0], half, width),))
                     for acc in lanes]
        return self._fold_lanes(kind, type, lanes)

    def _fold_warp(self, kind, type, lanes, width):
        """The accumulators of `width` threads, in the first of them."""
        half = width // 2
        while half:
            lanes = [self._joined(kind, type, acc, tuple(
                self._shuffled("__shfl_down_sync", part_type, part, half, width)
                for part, part_type in zip(acc, (type, "i64"), strict=False))) for acc in lanes]
            half //= 2
        return lanes

    def _fold_lanes(self, kind, type, lanes):
        """The neighbouring lanes of a thread."""
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [self._joined(kind, type, a, b) for a, b in zip(lanes[:half], lanes[half:], strict=True)]
        return lanes[0]

    def _fold_abreast(self, folded):
        """The accumulators of threads that are in different warps, each of which has a part of the same rows."""
        group, width, at, out = self.schedule.group, self.schedule.at_once, 0, []
        place = self._put("int", f"{self.thread} * {width} + (int){self.x}")
        rooms = []
        for _, type, ((acc,),) in folded:
            kind = _memory_type(type)
            rooms.append(self._new("r"))
            self._line(f"{kind} *const {rooms[-1]} = ({kind} *)((char *)room + {at});")
            self._line(f"{rooms[-1]}[{place}] = {acc};")
            at += -(-group * width * BYTES_OF_TYPE[type] // 8) * 8
        self._line("__syncthreads();")
        for (kind, type, _), room in zip(folded, rooms, strict=True):
            end = " != 0" if type == "b1" else ""
            parts = [(self._put(CPP_TYPE[type], f"{room}[{i * width} + (int){self.x}]{end}"),) for i in range(group)]
            out.append((kind, type, self._fold_lanes(kind, type, parts)))
        self._line("__syncthreads();")                        # before others write there again
        self.room, self.boxes = max(self.room, at), max(self.boxes, 1)
        return out

    def _fold_through_shared_memory(self, folded):
        """The accumulators of all threads of the block. Warps share the lanes: one that has a lane folds what all
        threads have in it, and tells the others, who fold the lanes."""
        group, width = self.schedule.group, self.width
        warps, at, rooms = group // 32, 0, []
        for _, type, lanes in folded:
            mine = []
            for part, part_type in enumerate((type, "i64")[:len(lanes[0])]):
                kind = _memory_type(part_type)
                room = self._new("r")
                self._line(f"{kind} *const {room} = ({kind} *)((char *)room + {at});")
                at += -(-group * width * BYTES_OF_TYPE[part_type] // 8) * 8
                for v, acc in enumerate(lanes):
                    self._line(f"{room}[{v * group} + {self.thread}] = {acc[part]};")
                mine.append((room, part_type))
            rooms.append(mine)
        self._line("__syncthreads();")
        scope, box = _CppScope(), 0
        self.scopes.append(scope)
        for (kind, type, _), mine in zip(folded, rooms, strict=True):
            for first in range(0, width, warps):
                lane = self._put("int", f"{self.thread} / 32" + (f" + {first}" if first else ""))
                start = self._put("int", f"{lane} * {group} + {self.thread} % 32")
                parts = [tuple(self._put(CPP_TYPE[part_type], f"{room}[{start} + {32 * w}]"
                                         + (" != 0" if part_type == "b1" else ""))
                               for room, part_type in mine) for w in range(warps)]
                while len(parts) > 1:
                    half = len(parts) // 2
                    parts = [self._joined(kind, type, a, b) for a, b in zip(parts[:half], parts[half:], strict=True)]
                done, = self._fold_warp(kind, type, parts, 32)
                for number, (part, part_type) in enumerate(zip(done, (type, "i64"), strict=False)):
                    memory = _memory_type(part_type)
                    self._line(f"if ({self.thread} % 32 == 0) *({memory} *)(box + {box + number * width} + {lane}) = "
                               f"{part};")
            box += width * len(mine)
        self.scopes.pop()
        if width < warps:
            self._block(f"if ({self.thread} < {32 * width})", scope)
        else:
            self.scopes[-1].lines.extend(scope.lines)
        self._line("__syncthreads();")
        self.room, self.boxes = max(self.room, at), max(self.boxes, box)
        out, box = [], 0
        for (kind, type, _), mine in zip(folded, rooms, strict=True):
            lanes = [tuple(self._put(CPP_TYPE[part_type], f"*({_memory_type(part_type)} *)(box + {box + at})"
                                     + (" != 0" if part_type == "b1" else ""))
                           for at, (_, part_type) in zip(range(v, width * len(mine), width), mine, strict=True))
                     for v in range(width)]
            box += width * len(mine)
            out.append((kind, type, self._fold_lanes(kind, type, lanes)))
        return out


def _is_costly(e):
    """Whether an expression is worth a register from one pass to the next."""
    return e.op in FUNCTION_WORDS


# --- operands that lie across -----------------------------------------------------------------------------------------

class _Turned(_CppWriter):
    """A block has a square of the last two dimensions. What lies along the first of them is read along it, and put into
    shared memory; then the square is gone through along the second."""

    def _body(self):
        k, s = self.kernel, self.schedule
        self.level_of = dict.fromkeys(range(k.kept), 2)
        for d in s.order[:-2]:
            self.level_of[d] = 1
        self.level_of[k.kept] = 1
        across, along = s.order[-2:]
        outer = _CppScope()
        self.scopes = [self.entry, outer]
        place = self._put(self.index, f"(int){self.block}")
        corners = {}
        for d in (along, across):
            place, tile = self._tile_of(place, d)
            corners[d] = self._put(self.index, f"{tile} * {TILE_SIDE}")
        self._positions_of(place, s.order[:-2])
        self.tiles = {}
        for number in s.across:
            kind = _memory_type(k.accesses[number].type)
            self.tiles[number] = f"tile{number}"
            self._line(f"__shared__ {kind} tile{number}[{TILE_SIDE}][{TILE_SIDE + 1}];")
        x, y = self._put("int", f"(int){self.x}"), self._put("int", f"(int){self.y}")
        self.filling, self.x, self.y = True, x, y
        self._square({across: f"{corners[across]} + {x}", along: f"{corners[along]} + {y}"}, along, self._fill)
        self._line("__syncthreads();")
        self.filling = False
        self._square({across: f"{corners[across]} + {y}", along: f"{corners[along]} + {x}"}, across,
                     lambda: self._stores([store for one in k.passes for store in one.stores]))
        self.scopes = [self.entry]
        self.entry.lines.extend(outer.lines)

    def _square(self, places, by_rows, inside):
        """A loop over the square, some rows of it at once; `by_rows` is the dimension that the loop goes along."""
        self.row = self._new("i")
        scope = _CppScope()
        self.scopes.append(scope)
        for d, place in places.items():
            self.at[d] = self._put(self.index, f"{place} + {self.row}" if d == by_rows else place)
        body = _CppScope()
        self.scopes[-1] = body
        inside()
        self.scopes[-1] = scope
        self._block("if (" + " && ".join(f"{self.at[d]} < {self._int(f'size {d}')}" for d in places) + ")", body)
        self.scopes.pop()
        self._line("#pragma unroll")
        self._block(f"for (int {self.row} = 0; {self.row} < {TILE_SIDE}; {self.row} += {TILE_ROWS})", scope)

    def _fill(self):
        loads = [(number, *self._addresses(number, 2, 1)) for number in self.tiles]
        for number, address in loads:
            self._line(f"{self.tiles[number]}[{self.y} + {self.row}][{self.x}] = *({address});")

    def _load(self, e, scope):
        if e.attr in self.tiles and not self.filling:
            text = f"{self.tiles[e.attr]}[{self.x}][{self.y} + {self.row}]"
            return [f"({text} != 0)" if e.type == "b1" else text]
        return super()._load(e, scope)
