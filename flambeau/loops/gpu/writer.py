"""What all ways through a kernel have in common: the text as a whole, its scopes, and expressions."""
from contextlib import contextmanager
from itertools import count

from ..dialects.words import Unrenderable
from ..ir import FLOAT_TYPES, dependencies, innermost_level
from .arguments import arguments, field

PART_POSITION = "block", "x", "y"  # what a part of a kernel is told: the number of its block, and of its thread


class TextScope:
    """A part of the text: its lines, and what is known there."""

    def __init__(self, known=()):
        self.lines, self.known = [], dict(known)


class Writer:
    """Writes a kernel in a dialect, called `d` here.

    `self.lane` is the dimension whose neighbours a thread takes `self.width` of at once; a value that varies over it is
    a list of so many names, any other a list of one. `self.at` tells the position in each dimension now, of the first
    of these. Without a `name`, what is written is a part of a kernel.
    """

    def __init__(self, kernel, schedule, name, dialect):
        self.kernel, self.schedule, self.name, self.d = kernel, schedule, name, dialect
        self.block, self.x, self.y = (dialect.block, *dialect.thread) if name is not None else PART_POSITION
        self.names, self.helpers = count(), set()
        self.deps = dependencies(kernel)
        self.index = "i64" if schedule.wide else "i32"        # the type of positions
        self.entry, self.at, self.lane, self.width = TextScope(), {}, None, 1
        self.scopes = [self.entry]
        self.level_of = {}

    def text(self):
        """The whole text; what is inside of the function is written by the way's `_body`."""
        self._body()
        pointers = [(f"p{i}", access.type) for i, access in enumerate(self.kernel.accesses)]
        ints = [field(name) for name in arguments(self.kernel, self.schedule)]
        numbers = [(f"n{i}", "f64" if type in FLOAT_TYPES else "i64") for i, type in enumerate(self.kernel.numbers)]
        if (words := len(pointers) + len(ints) + len(numbers)) > self.d.max_given_words:
            raise Unrenderable(f"{words} arguments of a kernel")
        head = self.d.part_head(PART_POSITION) if self.name is None else \
            self.d.kernel_head(self.name, self.schedule.bounds)
        return "\n".join([*self.d.given(pointers, ints, numbers), *self.d.helpers(self.helpers),
                          f"{head} {{", *_indented(self.entry.lines), "}", ""])

    # --- lines

    def _line(self, text, scope=None):
        (scope or self.scopes[-1]).lines.append(text)

    def _new(self, prefix="t"):
        return f"{prefix}{next(self.names)}"

    def _put(self, type, text, scope=None):
        """A new constant, by its name."""
        name = self._new()
        self._line(self.d.constant(self.d.types[type], name, text), scope)
        return name

    def _as(self, type, text):
        """A value as one of a type."""
        return self.d.convert(self.d.types[type], text)

    def _simple(self, value, type):
        """A value by a name, where it is more than that."""
        return value if value.replace(".", "_").replace("[", "_").replace("]", "_").isidentifier() else \
            self._put(type, value)

    def _call(self, helper):
        self.helpers.add(helper)
        return helper

    def _block(self, head, scope):
        """The lines of a scope that is done, as a block of the one outside of it."""
        self.scopes[-1].lines += [f"{head} {{", *_indented(scope.lines), "}"]

    @contextmanager
    def _within(self, scope):
        """What is written meanwhile stands in `scope`, which is inside of the innermost."""
        self.scopes.append(scope)
        yield scope
        self.scopes.pop()

    # --- what the function is given

    def _int(self, name):
        """An integer argument, by a name that is known everywhere."""
        known = self.entry.known
        if ("integer", name) not in known:
            local = field(name)
            type = {"multiplier": "u32", "shift": "i32"}.get(name.split()[-2] if " " in name else name, self.index)
            self._line(self.d.constant(self.d.types[type], local, self._as(type, f"given.{local}")), self.entry)
            known["integer", name] = local
        return known["integer", name]

    def _pointer(self, number):
        known = self.entry.known
        if ("pointer", number) not in known:
            memory_type = self.d.memory_type(self.kernel.accesses[number].type)
            self._line(self.d.pointer(memory_type, f"p{number}", f"given.p{number}"), self.entry)
            known["pointer", number] = f"p{number}"
        return known["pointer", number]

    # --- positions

    def _over(self, dividend, multiplier, shift):
        """`dividend` over what a multiplication and a shift stand for."""
        return self._put(self.index, self._as(
            "i32", f"{self._call('over')}({self._as('u32', dividend)}, {self._int(multiplier)}, {self._int(shift)})"))

    def _positions_of(self, index, order):
        """`self.at` for the kept dimensions, of which `index` counts the positions, the last of `order` fastest."""
        for d in reversed(order[1:]):
            size = self._int(f"size {d}")
            rest = self._put(self.index, f"{index} / {size}") if self.schedule.wide else \
                self._over(index, f"multiplier {d}", f"shift {d}")
            self.at[d] = self._put(self.index, f"{index} - {rest} * {size}")
            index = rest
        if order:
            self.at[order[0]] = index

    def _tile_of(self, count, d):
        """(the rest of a count of tiles, the tile along dimension `d`, which is the fastest of them)."""
        tiles = self._int(f"tiles {d}")
        rest = self._over(count, f"tiles multiplier {d}", f"tiles shift {d}")
        return rest, self._put(self.index, f"{count} - {rest} * {tiles}")

    # --- expressions

    def _level(self, bits):
        """The innermost scope among those of the dimensions `bits`."""
        return innermost_level(bits, self.level_of)

    def _varies(self, e):
        """Whether the neighbours that a thread takes at once have values of their own."""
        return self.lane is not None and self.width > 1 and self.deps[e] >> self.lane & 1

    def _needs(self, e):
        """The expressions that one is made of."""
        at = self.kernel.accesses[e.attr].at if e.op == "load" else None
        return e.args if at is None else (at,)

    def _loads_of(self, roots):
        """The loads that expressions are made of, those first that others need."""
        out, seen, todo = [], set(), list(reversed(roots))
        while todo:
            e = todo[-1]
            left = [a for a in self._needs(e) if a not in seen] if e not in seen else ()
            if left:
                todo.extend(reversed(left))
                continue
            todo.pop()
            if e not in seen:
                seen.add(e)
                if e.op == "load":
                    out.append(e)
        return out

    def _value(self, root):
        """The names of an expression's values, written where all it depends on is known."""
        todo = [root]
        while todo:
            e = todo[-1]
            scope = self._scope_of(e)
            if e in scope.known:
                todo.pop()
                continue
            left = [a for a in self._needs(e) if a not in self._scope_of(a).known]
            if left:
                todo.extend(left)
                continue
            todo.pop()
            scope.known[e] = self._written(e, scope)
        return self._known(root)

    def _scope_of(self, e):
        return self.scopes[self._level(self.deps[e])]

    def _known(self, e):
        return self._scope_of(e).known[e]

    def _written(self, e, scope):
        if e.op == "const":
            return [self.d.literal(e.attr, e.type)]
        if e.op == "number":
            cell = "f64" if e.type in FLOAT_TYPES else "i64"
            return [self._named(e.type, *self.d.cast(f"given.n{e.attr}", cell, e.type), scope)]
        if e.op == "size":
            return [self._as("i64", self._int(f"size {e.attr}"))]
        if e.op == "index":
            position = self.at[e.attr]
            lanes = range(self.width) if e.attr == self.lane and self.width > 1 else (0,)
            return [self._as("i64", f"({position} + {v})" if v else position) for v in lanes]
        if e.op == "load":
            return self._load(e, scope)
        args = [self._known(a) for a in e.args]
        out = []
        for v in range(self.width if self._varies(e) else 1):
            given = [a[v] if len(a) > 1 else a[0] for a in args]
            out.append(self._named(e.type, *self.d.expression(e.op, e.type, given, e.args[0].type), scope))
        return out

    def _named(self, type, text, helpers, scope):
        self.helpers.update(helpers)
        return self._put(type, text, scope)


def _indented(lines):
    return ["  " + line for line in lines]
