"""How a processor with vectors and threads goes through a kernel's positions: the schedule that llvm.py renders.

    kept dims → tiles, cut into blocks where `blocked` → loops inside the tile → passes → reduced dims → the expressions

What is computed is the kernel's to say (see ir.py); nothing here shows in the results.
"""
from .ir import Access, Expr, Kernel, Pass, need


class Schedule:
    """How a kernel is gone through; `blocks`, `turned` and `cost` belong to one Launch, and all else to the code.

    `order` are the kept dimensions, outermost first, and `vector` is the one that is walked by vectors (the last of
    these, or the last reduced one), of which `vectors` at a time are worth taking at most; None where there is none.
    `blocked`: dimensions that a tile covers a block of, outermost first, and `blocks` the sizes of those. `scratch` is
    (number of a pass, expression): what it gives is kept for the passes after it, in a row of the thread's own or,
    where `scratch_in` is the number of an access, in the row of that result, which the last pass fills with its own.
    `streams` says that stores go past the cache; all must be contiguous and aligned. `asks` is "row" where the passes
    after the first ask for what the next row reads, in turn, "lanes" where the first one asks for what lies behind its
    lanes, or None. `index_type` is the type of the indices of extremes.

    `turned` is {access: dimensions}: before, the operand is to be copied so that it lies along these, in this order.
    `cost` is about how many nanoseconds a tile takes.
    """

    __slots__ = ("order", "vector", "vectors", "blocked", "blocks", "scratch", "scratch_in", "streams", "asks",
                 "index_type", "turned", "cost")

    def __init__(self, order, vector, vectors=4, blocked=(), blocks=()):
        self.order, self.vector, self.vectors = tuple(order), vector, vectors
        self.blocked, self.blocks = tuple(blocked), tuple(blocks)
        self.scratch, self.scratch_in, self.streams, self.asks = None, None, False, None
        self.index_type, self.turned, self.cost = "i64", {}, 1.0

    def dims(self, kernel):
        """All dimensions, outermost first."""
        return *self.order, *range(kernel.kept, kernel.kept + kernel.reduced)

    def counts(self, sizes):
        """How many tiles there are along each kept dimension, in order."""
        block = dict(zip(self.blocked, self.blocks, strict=True))
        return [-(-sizes[d] // block[d]) if d in block else sizes[d] for d in self.order]

    def words(self, printer):
        """The schedule in words that name what decides the code; `printer` has printed the kernel."""
        parts = ["no lanes" if self.vector is None else f"lanes along {printer.dim(self.vector)} by {self.vectors}"]
        if self.order != tuple(range(len(self.order))):
            parts.append(f"tiles over {' '.join(map(printer.dim, self.order))}")
        if self.blocked:
            parts.append(f"blocks of {', '.join(map(printer.dim, self.blocked))}")
        if self.scratch is not None:
            where = "scratch" if self.scratch_in is None else f"p{self.scratch_in}"
            parts.append(f"{printer.word(self.scratch[1])} of pass {self.scratch[0]} in {where}")
        if self.streams:
            parts.append("stores past the cache")
        if self.asks:
            parts.append(f"asks for the next {self.asks}")
        if self.index_type != "i64":
            parts.append(f"indices of {self.index_type}")
        return ", ".join(parts)


class Scratch(Access):
    """No buffer, but room for one walk along the last dimension, of the thread's own."""

    __slots__ = ()


def verify(kernel, schedule):
    """Refuse a schedule that does not fit the kernel, or would change what it computes."""
    rank, vector = kernel.kept + kernel.reduced, schedule.vector
    need(sorted(schedule.order) == list(range(kernel.kept)), f"an order {schedule.order} of {kernel.kept} dimensions")
    need(set(schedule.blocked) <= set(schedule.order), f"blocked dims {schedule.blocked} of {kernel.kept}")
    if kernel.rows:
        need(vector == rank - 1, f"lanes along {vector}, of rows along {rank - 1}")
    elif vector is not None:
        need(kernel.kept and vector == schedule.order[-1], f"lanes along {vector}, not along the last kept dimension")
        need(vector in schedule.blocked, "the dimension of the lanes must be blocked")
    if schedule.scratch_in is not None:
        number, kept = schedule.scratch_in, schedule.scratch[1]
        stores = [n for one in kernel.passes for n, _ in one.stores]
        need(stores.count(number) == 1 and stores[-1] == number, f"scratch in p{number}, which is not stored last")
        need(kernel.accesses[number].type == kept.type, f"scratch of {kept.type} in p{number}")
        need(not schedule.streams, "scratch in a result that goes past the cache")


def with_scratch(kernel, schedule):
    """The kernel with what its schedule keeps in scratch stored there, and loaded by the passes after that."""
    if schedule.scratch is None:
        return kernel
    (number, kept), access = schedule.scratch, schedule.scratch_in
    rank, out = kernel.kept + kernel.reduced, Kernel(kernel.kept, kernel.reduced, kernel.rows, kernel.cut)
    out.accesses, out.numbers, out.finals = list(kernel.accesses), kernel.numbers, kernel.finals
    if access is None:
        access = len(kernel.accesses)
        out.accesses.append(Scratch(kept.type, [0] * (rank - 1) + [1]))
    load = Expr("load", kept.type, (), access)
    for p, one in enumerate(kernel.passes):
        done = Pass()
        if p <= number:
            done.accs, done.stores = one.accs, list(one.stores)
        else:
            done.accs = [(reduction, _replaced(e, kept, load)) for reduction, e in one.accs]
            done.stores = [(n, _replaced(e, kept, load)) for n, e in one.stores]
        if p == number:
            done.stores.append((access, kept))
        out.passes.append(done)
    return out


def _replaced(root, old, new):
    """An expression with `new` in the place of `old`."""
    made, todo = {old: new}, [root]
    while todo:
        e = todo[-1]
        left = [a for a in e.args if a not in made] if e not in made else None
        if left:
            todo.extend(left)
            continue
        todo.pop()
        if e not in made:
            same = all(made[a] is a for a in e.args)
            made[e] = e if same else Expr(e.op, e.type, tuple(made[a] for a in e.args), e.attr)
    return made[root]
