"""The loop language: a kernel is a loop nest over tiles, with passes inside that load, compute, accumulate and store.

A kernel's positions have `kept` dimensions, over which results vary, and `reduced` ones, which every tile walks in
full, once per pass. A pass may add to accumulators; what they hold when the pass is over is a value like any other in
the passes after it and in the stores at the end of the tile. So a softmax over rows is one kernel of three passes.

    kept dims → tiles, cut into blocks where `blocked` → loops inside the tile → passes → reduced dims → the expressions

One dimension is walked by vectors (`lanes`): the last kept one, or the last reduced one. Sizes, strides and numbers are
arguments of the compiled code; the kernel itself says only what decides its form. It prints as lines a person can
check, and the text is also its key.
"""

FLOAT_TYPES = ("f16", "bf16", "f32", "f64")
INT_TYPES = ("i8", "u8", "i16", "i32", "i64")
SCALAR_TYPES = (*FLOAT_TYPES, *INT_TYPES, "b1")
BYTES_OF_TYPE = {"b1": 1, "i8": 1, "u8": 1, "i16": 2, "f16": 2, "bf16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8}

# What an expression may do: name → (kinds of operands accepted, type of the result: "same" as the operands, or "b1").
ARITHMETIC_WORDS = {"add", "sub", "mul", "div", "neg", "fma", "fma_exact", "abs", "min", "max", "fmin", "fmax"}
ROUNDING_WORDS = {"sqrt", "floor", "ceil", "trunc", "rint", "copysign"}
COMPARISON_WORDS = {"lt", "le", "gt", "ge", "eq", "ne"}
BIT_WORDS = {"and", "or", "xor", "not", "shl", "shr", "idiv", "irem"}
FUNCTION_WORDS = {"exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
                  "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "sigmoid", "pow",
                  "rsqrt", "lgamma", "digamma"}
SELECT_WORDS = {"where", "isnan", "cast", "bits", "from_bits"}
LEAF_WORDS = {"load", "number", "const", "acc", "index", "size"}
ALL_WORDS = (ARITHMETIC_WORDS | ROUNDING_WORDS | COMPARISON_WORDS | BIT_WORDS | FUNCTION_WORDS | SELECT_WORDS
             | LEAF_WORDS)
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

    __slots__ = ("type", "steps", "at", "scratch")

    def __init__(self, type, steps, at=None, scratch=False):
        self.type, self.steps, self.at = type, tuple(steps), at
        self.scratch = scratch    # no buffer, but room for one walk along the last dimension, of the thread's own


class Pass:
    """One walk over the reduced dimensions: accumulators (kind, expression) and stores (access, expression)."""

    __slots__ = ("accs", "stores")

    def __init__(self):
        self.accs, self.stores = [], []


class Kernel:
    """A loop nest; see the top of this file.

    `blocked`: kept dimensions that a tile covers a block of, outermost first (the last kept one when lanes are "kept").
    `cut`: the kept dimension that numbers the blocks of the first reduced one, or None where a tile walks all of it.
    """

    def __init__(self, kept, reduced, lanes, blocked=(), cut=None, vectors=4):
        self.kept, self.reduced, self.lanes = kept, reduced, lanes
        self.blocked, self.cut = tuple(blocked), cut
        self.vectors = vectors    # how many machine vectors are worth taking at once
        self.streams = False      # whether stores go past the cache; all must be contiguous and aligned
        self.accesses, self.numbers, self.passes, self.finals = [], [], [], []

    def ints(self):
        """The names of the integer arguments, in order; `plan` fills them, the renderer reads them."""
        names = [f"size {d}" for d in range(self.kept + self.reduced)]
        names += [f"tiles {d}" for d in range(self.kept)]
        names += [f"block {d}" for d in self.blocked]
        if self.cut is not None:
            names.append("block cut")
        for i, access in enumerate(self.accesses):
            names += [f"stride {i} {d}" for d, step in enumerate(access.steps) if step == "s"]
            if access.at is not None:
                names.append(f"stride {i} at")
        return names

    def vector_dim(self):
        """The dimension walked by vectors; None where there is none."""
        if self.lanes == "kept":
            return self.kept - 1
        return self.kept + self.reduced - 1 if self.lanes == "reduced" else None

    def __str__(self):
        return "\n".join(_Printer(self).lines())


class _Printer:
    """The kernel as text. Every expression that is not a leaf gets a name, by its line."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.named, self.out = {}, []

    def lines(self):
        k, out = self.kernel, self.out
        blocks = f" blocks of {', '.join(f'd{d}' for d in k.blocked)}" if k.blocked else ""
        cut = f" r{k.kept} cut by d{k.cut}" if k.cut is not None else ""
        past = " stores past the cache" if k.streams else ""
        few = f" by {k.vectors}" if k.vectors != 4 else ""
        dims = " ".join([f"d{d}" for d in range(k.kept)] + [f"r{d}" for d in range(k.kept, k.kept + k.reduced)])
        out.append(f"kernel over {dims or 'one position'}, lanes {k.lanes}{few}{blocks}{cut}{past}")
        for i, a in enumerate(k.accesses):
            steps = ", ".join(map(str, a.steps))
            at = f" at {self.word(a.at)}" if a.at is not None else ""
            own = " scratch" if a.scratch else ""
            out.append(f"  p{i}: {a.type}[{steps}]{at}{own}")
        out.extend(f"  n{i}: {t}" for i, t in enumerate(k.numbers))
        for p, one in enumerate(k.passes):
            out.append(f"  pass {p}")
            for kind, e in one.accs:
                word = self.word(e)
                out.append(f"    {kind} {word}")
            self._stores(one.stores, "    ")
        self._stores(k.finals, "  ")
        return out

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
                name = {"load": "p", "number": "n", "index": "i", "size": "size"}.get(e.op)
                if e.op == "const":
                    self.named[e] = f"{e.attr!r}:{e.type}"
                elif e.op == "acc":
                    self.named[e] = "acc{}.{}".format(*e.attr)
                else:
                    self.named[e] = f"{name}{e.attr}"
            else:
                self.named[e] = name = f"t{len(self.out)}"
                self.out.append(f"    {name} = {e.op}.{e.type} {' '.join(self.named[a] for a in e.args)}")
        return self.named[root]


class Malformed(Exception):
    """A kernel that breaks the rules of the language: a mistake of ours, never of the user's."""


def verify(kernel):
    """Refuse a kernel whose types, accesses or order of passes do not fit together."""
    rank = kernel.kept + kernel.reduced
    _need(kernel.lanes in ("kept", "reduced", "none"), f"lanes {kernel.lanes!r}")
    _need(kernel.lanes != "reduced" or kernel.reduced, "lanes along a reduced dimension that is not there")
    _need(kernel.lanes != "kept" or kernel.kept, "lanes along a kept dimension that is not there")
    _need(all(0 <= d < kernel.kept for d in kernel.blocked), f"blocked dims {kernel.blocked} of {kernel.kept}")
    _need(kernel.lanes != "kept" or kernel.kept - 1 in kernel.blocked, "the dimension of the lanes must be blocked")
    for i, a in enumerate(kernel.accesses):
        _need(a.type in SCALAR_TYPES, f"p{i}: type {a.type}")
        _need(len(a.steps) == rank, f"p{i}: {len(a.steps)} steps for {rank} dimensions")
        _need(all(s in (0, 1, "s") for s in a.steps), f"p{i}: steps {a.steps}")
    seen = set()
    for p, one in enumerate(kernel.passes):
        for kind, e in one.accs:
            _need(kind in REDUCTION_WORDS, f"reduction {kind!r}")
            _check(kernel, e, p, seen)
        for access, e in one.stores:
            _check(kernel, e, p, seen)
            _need(kernel.accesses[access].type == e.type, f"p{access} holds {kernel.accesses[access].type}, given "
                  f"{e.type}")
    for access, e in kernel.finals:
        _check(kernel, e, len(kernel.passes), seen)
        _need(kernel.accesses[access].type == e.type, f"p{access} holds {kernel.accesses[access].type}, given {e.type}")
        _need(not any(kernel.accesses[access].steps[kernel.kept:]), f"p{access} moves inside the tile")


def _need(ok, words):
    if not ok:
        raise Malformed(words)


def _check(kernel, root, number, seen):
    todo = [root]
    while todo:
        e = todo.pop()
        if e.op == "acc":
            p, j = e.attr
            _need(p < number and j < len(kernel.passes[p].accs), f"acc{p}.{j} is not there yet in pass {number}")
        if e in seen:
            continue
        seen.add(e)
        _need(e.op in ALL_WORDS and e.type in SCALAR_TYPES, f"{e.op}.{e.type}")
        types = [a.type for a in e.args]
        if e.op == "load":
            _need(e.type == kernel.accesses[e.attr].type, f"load of p{e.attr} as {e.type}")
        elif e.op in COMPARISON_WORDS:
            _need(types[0] == types[1] and e.type == "b1", f"{e.op} of {types}")
        elif e.op == "where":
            _need(types == ["b1", e.type, e.type], f"where of {types} as {e.type}")
        elif e.op in ARITHMETIC_WORDS | ROUNDING_WORDS | FUNCTION_WORDS | BIT_WORDS:
            _need(all(t == e.type for t in types), f"{e.op}.{e.type} of {types}")
            _need(e.op not in ROUNDING_WORDS | FUNCTION_WORDS | {"div"} or e.type in ("f32", "f64"), f"{e.op}.{e.type}")
        todo.extend(e.args)
