"""The loop language: a kernel is a loop nest over positions, with passes inside that load, compute, add up and store.

A kernel's positions have `kept` dimensions, over which results vary, and `reduced` ones, which every kept position
walks in full, once per pass. A pass may add to accumulators; what they hold when the pass is over is a value like any
other in the passes after it and in the stores at its end. So a softmax over rows is one kernel of three passes.

    kept dims → passes → reduced dims → the expressions

That is what is computed, to the last bit: the order of a reduction is part of it. How the positions are dealt out to
tiles, lanes and threads is a schedule, which every device makes for itself (`Backend.schedule`). Sizes, strides and
numbers are arguments of the compiled code; the kernel itself says only what decides its form. A Launch is one use of
it, with sizes and strides. Complex numbers are loaded, taken apart, put together and stored; arithmetic is on reals.
Kernels print as lines a person can check; with the words of its schedule, the text is a launch's key.
"""

FLOAT_TYPES = ("f16", "bf16", "f32", "f64")
INT_TYPES = ("i8", "u8", "i16", "i32", "i64")
SCALAR_TYPES = (*FLOAT_TYPES, *INT_TYPES, "b1")
PART_OF_COMPLEX = {"c64": "f32", "c128": "f64"}          # complex type → the type of its two parts
BYTES_OF_TYPE = {"b1": 1, "i8": 1, "u8": 1, "i16": 2, "f16": 2, "bf16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8,
                 "c64": 8, "c128": 16}

# What an expression may do: name → (types of operands accepted, type of the result: "same" as the operands, or "b1").
ARITHMETIC_WORDS = {"add", "sub", "mul", "div", "neg", "fma", "fma_exact", "abs", "min", "max", "fmin", "fmax"}
ROUNDING_WORDS = {"sqrt", "floor", "ceil", "trunc", "rint", "copysign"}
COMPARISON_WORDS = {"lt", "le", "gt", "ge", "eq", "ne"}
BIT_WORDS = {"and", "or", "xor", "not", "shl", "shr", "idiv", "irem"}
FUNCTION_WORDS = {"exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
                  "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "sigmoid", "pow",
                  "rsqrt", "lgamma", "digamma", "erfcx", "ndtri", "i0", "i0e", "i1", "i1e"}
TWO_ARGUMENT_WORDS = {"pow", "atan2"}                        # of these functions
SELECT_WORDS = {"where", "isnan", "cast", "bits", "from_bits"}
COMPLEX_WORDS = {"re", "im", "pair"}
LEAF_WORDS = {"load", "number", "const", "acc", "index", "size"}
ALL_WORDS = (ARITHMETIC_WORDS | ROUNDING_WORDS | COMPARISON_WORDS | BIT_WORDS | FUNCTION_WORDS | SELECT_WORDS
             | COMPLEX_WORDS | LEAF_WORDS)
SAME_TYPE_WORDS = ARITHMETIC_WORDS | ROUNDING_WORDS | FUNCTION_WORDS | BIT_WORDS     # of operands and result
FLOAT_ONLY_WORDS = ROUNDING_WORDS | FUNCTION_WORDS | {"div"}
LEAF_PREFIX = {"load": "p", "number": "n", "index": "i", "size": "size"}
REDUCTION_WORDS = ("sum", "prod", "max", "min", "top", "any", "all", "argmax", "argmin")   # top: max that ignores NaN


class Expr:
    """A scalar expression: an operation on expressions, or a leaf. `attr` is what the leaf names."""

    __slots__ = ("op", "type", "args", "attr")

    def __init__(self, op, type, args=(), attr=None):
        self.op, self.type, self.args, self.attr = op, type, args, attr


class Access:
    """How a buffer is walked: per dimension (kept, then reduced) 0 (stays), 1 (next element) or "s" (a stride).

    `at`: an int64 expression that is multiplied by a stride of its own and added, for gathers; None mostly.
    """

    __slots__ = ("type", "steps", "at")

    def __init__(self, type, steps, at=None):
        self.type, self.steps, self.at = type, tuple(steps), at


class Pass:
    """One walk over the reduced dimensions: accumulators (reduction, expression) and stores (access, expression).

    `columns` are (reduction, access, expression): what is added up down the rows, see Kernel, and stored when that is
    done.
    """

    __slots__ = ("accs", "stores", "columns")

    def __init__(self):
        self.accs, self.stores, self.columns = [], [], []

    def expressions(self):
        """All that is computed in it."""
        return [e for *_, e in (*self.accs, *self.stores, *self.columns)]


class Kernel:
    """A loop nest; see the top of this file.

    `rows` and `cut` say in which order reductions go (see Note [One order] in trace/planning/reduction_order.py). Along
    rows, elements of the last reduced dimension are dealt out to the lanes of so many vectors of the device
    (`Backend.vector_bytes`), and the lanes folded, halves onto halves, at the end; 0: down columns, each result one
    element after the other. `cut` is the kept dimension that numbers the blocks of the first reduced one, or None where
    all of it is walked.

    A kernel along rows may carry reductions down columns (Pass.columns), on a device that says so
    (`Backend.carries_columns`): its kept dimensions are then the `cut` and the rows, whose blocks that numbers. Each
    position along the row adds up what it has in the rows of a block, one after the other, and stores that once a
    block.
    """

    def __init__(self, kept, reduced, rows=0, cut=None):
        self.kept, self.reduced, self.rows, self.cut = kept, reduced, rows, cut
        self.accesses, self.numbers, self.passes, self.finals = [], [], [], []

    @property
    def columns(self):
        """All reductions down columns that it carries."""
        return [column for one in self.passes for column in one.columns]

    @property
    def cut_dim(self):
        """The dimension whose blocks `cut` numbers."""
        return self.cut + 1 if self.columns else self.kept

    def __str__(self):
        return "\n".join(_Printer(self).lines())


class Launch:
    """One use of a kernel: the sizes of its dimensions, and the strides of its accesses along them.

    `at_strides` are those that an access's `at` is multiplied by, and `block` is how many positions of the first
    reduced dimension a block has, where it is cut. `fresh` tells the bytes of the memory behind an access, by its
    number, for stores that fill memory which has not been read yet, from its start; it is known when memory was laid
    out. `hasty` says that little is to be done: code that is there soon is better than code that is quick.
    """

    __slots__ = ("kernel", "sizes", "strides", "at_strides", "block", "fresh", "hasty", "schedule", "text")

    def __init__(self, kernel, sizes, strides, at_strides=None, block=0):
        self.kernel, self.sizes, self.strides, self.block = kernel, sizes, strides, block
        self.at_strides = at_strides or [0] * len(strides)
        self.fresh, self.hasty, self.schedule, self.text = {}, False, None, None

    def extent(self, number):
        """How many elements access `number` meets."""
        n = 1
        for size, stride in zip(self.sizes, self.strides[number], strict=True):
            if stride:
                n *= size
        return n

    def lay_last(self, dims):
        """Put that of the kept dimensions `dims` last along which most of what a reduction reads lies side by side."""
        full = [i for i, moves in enumerate(self.strides) if any(moves[self.kernel.kept:])]
        most = max(map(self.extent, full), default=0)
        full = [i for i in full if self.extent(i) == most]
        beside = [d for d in dims if any(self.strides[i][d] == 1 for i in full)] or dims[-1:]
        dims.remove(beside[-1])
        dims.append(beside[-1])

    def over(self, *sizes):
        """The same code over other sizes, with the same strides."""
        twin = Launch(self.kernel, sizes, self.strides, self.at_strides, self.block)
        twin.schedule, twin.text = self.schedule, self.text
        return twin

    def walk(self, number, strides):
        """Have access `number` walk other memory, by `strides`."""
        self.strides[number] = strides
        self.kernel.accesses[number].steps = steps_of(strides)

    def __str__(self):
        printer = _Printer(self.kernel)
        return "\n".join([*printer.lines(), f"  schedule {self.schedule.words(printer)}"])


def steps_of(strides):
    """Strides as far as they decide the form of the code."""
    return tuple([s if s == 0 or s == 1 else "s" for s in strides])


def subexpressions(roots):
    """All expressions that `roots` are made of, themselves too."""
    seen, todo = set(), list(roots)
    while todo:
        e = todo.pop()
        if e not in seen:
            seen.add(e)
            todo.extend(e.args)
    return seen


def innermost_level(bits, level_of):
    """The innermost level, of a loop or a scope, among those of the dimensions `bits`."""
    deepest, d = 0, 0
    while bits:
        if bits & 1 and level_of[d] > deepest:
            deepest = level_of[d]
        bits >>= 1
        d += 1
    return deepest


def dependencies(kernel):
    """Expression → the set of dimensions (as bits) that it varies over.

    What an accumulator held varies over the kept dimensions, and is there once its pass is over: a dimension of its
    own, behind the others.
    """
    deps, accesses = {}, kernel.accesses
    kept_bits = (1 << kernel.kept) - 1 | 1 << kernel.kept + kernel.reduced
    todo = [e for one in kernel.passes for e in one.expressions()] + [e for _, e in kernel.finals]
    todo += [access.at for access in accesses if access.at is not None]
    while todo:
        e = todo[-1]
        if e in deps:
            todo.pop()
            continue
        args = e.args
        if e.op == "load" and accesses[e.attr].at is not None:
            args = (accesses[e.attr].at,)
        left = [a for a in args if a not in deps]
        if left:
            todo.extend(left)
            continue
        todo.pop()
        bits = 0
        for a in args:
            bits |= deps[a]
        if e.op == "load":
            for d, step in enumerate(accesses[e.attr].steps):
                bits |= (step != 0) << d
        elif e.op == "index":
            bits = 1 << e.attr
        elif e.op == "acc":
            bits = kept_bits
        deps[e] = bits
    return deps


class _Printer:
    """The kernel as text. Every expression that is not a leaf gets a name, by its line."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.named, self.out = {}, []

    def lines(self):
        k, out = self.kernel, self.out
        rows = f", along rows by {k.rows}" if k.rows else ""
        cut = f", {self.dim(k.cut_dim)} cut by d{k.cut}" if k.cut is not None else ""
        dims = " ".join(map(self.dim, range(k.kept + k.reduced)))
        out.append(f"kernel over {dims or 'one position'}{rows}{cut}")
        for i, a in enumerate(k.accesses):
            steps = ", ".join(map(str, a.steps))
            at = f" at {self.word(a.at)}" if a.at is not None else ""
            out.append(f"  p{i}: {a.type}[{steps}]{at}")
        out.extend(f"  n{i}: {t}" for i, t in enumerate(k.numbers))
        for p, one in enumerate(k.passes):
            out.append(f"  pass {p}")
            for reduction, e in one.accs:
                word = self.word(e)
                out.append(f"    {reduction} {word}")
            for reduction, access, e in one.columns:
                word = self.word(e)
                out.append(f"    p{access} = {reduction} {word} down {self.dim(k.cut_dim)}")
            self._stores(one.stores, "    ")
        self._stores(k.finals, "  ")
        return out

    def dim(self, d):
        """The name of a dimension."""
        return f"d{d}" if d < self.kernel.kept else f"r{d}"

    def _stores(self, stores, indent):
        for access, e in stores:
            word = self.word(e)
            self.out.append(f"{indent}p{access} = {word}")

    def word(self, root):
        """The name of an expression, its definition written out before."""
        todo = [root]
        while todo:
            e = todo[-1]
            if e in self.named:
                todo.pop()
                continue
            left = [a for a in e.args if a not in self.named]
            if left:
                todo.extend(reversed(left))
                continue
            todo.pop()
            if e.op in LEAF_WORDS:
                if e.op == "const":
                    self.named[e] = f"{e.attr!r}:{e.type}"
                elif e.op == "acc":
                    self.named[e] = "acc{}.{}".format(*e.attr)
                else:
                    self.named[e] = f"{LEAF_PREFIX[e.op]}{e.attr}"
            else:
                self.named[e] = name = f"t{len(self.out)}"
                self.out.append(f"    {name} = {e.op}.{e.type} {' '.join(self.named[a] for a in e.args)}")
        return self.named[root]


class Malformed(Exception):
    """A kernel that breaks the rules of the language: a mistake of ours, never of the user's."""


def verify(kernel):
    """Refuse a kernel whose types, accesses or order of passes do not fit together."""
    rank = kernel.kept + kernel.reduced
    need(not kernel.rows or kernel.reduced, "along the rows of a reduced dimension that is not there")
    need(kernel.cut is None or kernel.reduced and 0 <= kernel.cut < kernel.kept, f"a cut by d{kernel.cut}")
    for i, a in enumerate(kernel.accesses):
        need(a.type in SCALAR_TYPES or a.type in PART_OF_COMPLEX, f"p{i}: type {a.type}")
        need(len(a.steps) == rank, f"p{i}: {len(a.steps)} steps for {rank} dimensions")
        need(all(s in (0, 1, "s") for s in a.steps), f"p{i}: steps {a.steps}")
    seen = set()
    for p, one in enumerate(kernel.passes):
        for reduction, e in one.accs:
            need(reduction in REDUCTION_WORDS, f"reduction {reduction!r}")
            _check(kernel, e, p, seen)
        for access, e in one.stores:
            _check(kernel, e, p, seen)
            need(kernel.accesses[access].type == e.type, f"p{access} holds {kernel.accesses[access].type}, given "
                  f"{e.type}")
        for reduction, access, e in one.columns:
            need(reduction in REDUCTION_WORDS and not reduction.startswith("arg"), f"{reduction!r} down columns")
            need((kernel.kept, kernel.reduced, kernel.cut) == (2, 1, 0), "columns beside other than rows")
            need(kernel.rows, "columns with no rows to be beside")
            _check(kernel, e, p, seen)
            need(kernel.accesses[access].type == e.type, f"p{access} holds {kernel.accesses[access].type}, given "
                  f"{e.type}")
            need(not kernel.accesses[access].steps[1], f"p{access} moves with the rows")
    for access, e in kernel.finals:
        _check(kernel, e, len(kernel.passes), seen)
        need(kernel.accesses[access].type == e.type, f"p{access} holds {kernel.accesses[access].type}, given {e.type}")
        need(not any(kernel.accesses[access].steps[kernel.kept:]), f"p{access} moves with a reduced dimension")


def need(ok, words):
    if not ok:
        raise Malformed(words)


def _check(kernel, root, number, seen):
    todo = [root]
    while todo:
        e = todo.pop()
        if e.op == "acc":
            p, j = e.attr
            need(p < number and j < len(kernel.passes[p].accs), f"acc{p}.{j} is not there yet in pass {number}")
        if e in seen:
            continue
        seen.add(e)
        need(e.op in ALL_WORDS and (e.type in SCALAR_TYPES or e.type in PART_OF_COMPLEX and e.op in ("load", "pair")),
             f"{e.op}.{e.type}")
        types = [a.type for a in e.args]
        need(e.op in ("re", "im") or not any(t in PART_OF_COMPLEX for t in types), f"{e.op} of {types}")
        if e.op == "load":
            need(e.type == kernel.accesses[e.attr].type, f"load of p{e.attr} as {e.type}")
        elif e.op in COMPARISON_WORDS:
            need(types[0] == types[1] and e.type == "b1", f"{e.op} of {types}")
        elif e.op == "pair":
            need(types == [PART_OF_COMPLEX.get(e.type)] * 2, f"pair of {types} as {e.type}")
        elif e.op in COMPLEX_WORDS:
            need(PART_OF_COMPLEX.get(*types) == e.type, f"{e.op} of {types} as {e.type}")
        elif e.op == "where":
            need(types == ["b1", e.type, e.type], f"where of {types} as {e.type}")
        elif e.op in SAME_TYPE_WORDS:
            need(types.count(e.type) == len(types), f"{e.op}.{e.type} of {types}")
            need(e.op not in FLOAT_ONLY_WORDS or e.type in ("f32", "f64"), f"{e.op}.{e.type}")
        todo.extend(e.args)
