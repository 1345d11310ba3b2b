"""Write a group as a kernel of the loop language: which dimensions are walked in which order, and by vectors or not.

What a kernel looks like depends on the structure only (which strides are 0 or 1, what is reduced); sizes and strides
themselves are the integers that go with each use of it.
"""
from ..base.spec import spec as make_spec
from ..loops.ir import BYTES_OF_TYPE, FUNCTION_WORDS, Access, Expr, Kernel, Pass
from .fuse import REDUCING_KINDS, axes_of, memory, root
from .lower import TYPE, Node, Unfusable

MAP_TILE_ELEMENTS = 8192          # of a map
TILE_LANES = 256                  # of a tile whose reduction walks rows
MAX_SCRATCH_ROW_ELEMENTS = 16384  # of scratch memory
TRANSPOSED_TILE = (32, 64)        # a tile of a map that reads across memory
MIN_READS_TO_TRANSPOSE = 8        # of an operand, to be worth turning it so that it lies along the lanes
MAX_TRANSPOSED_BYTES = 1 << 20    # of such an operand: it stays in the second cache


class Read:
    """One way a buffer is walked: what stands there, its strides by dimension of the group, and where it starts."""

    __slots__ = ("node", "strides", "offset", "type", "store", "full", "at", "at_stride")

    def __init__(self, node, strides, offset, type, store, at=None, at_stride=0):
        self.node, self.strides, self.offset, self.type, self.store = node, strides, offset, type, store
        self.at, self.at_stride = at, at_stride
        self.full = False


class Nest:
    """A group as a kernel: `kernel`, the `ints` it is called with, its `reads` in order, its tiles and their cost."""

    def __init__(self, group):
        self.group = group
        self.reads, self.known, self.loads, self.made = [], {}, {}, {}
        self.numbers, self.fixed, self.exprs = [], set(), {}
        self.passes, self.finals = [Pass()], []
        self._expressions()
        self._order()
        self._choose_lanes()
        self._turn()
        self._spill()
        self._write()

    # --- expressions ------------------------------------------------------------------------------------------------

    def _expressions(self):
        """Every node as an expression; accumulators and stores go to the pass where all they need is there."""
        group = self.group
        nodes = sorted(group.nodes, key=lambda n: n.number)
        need = {}
        for node in nodes:
            wait = 0
            for arg in node.args:
                base = root(arg)
                if base.group is group:
                    wait = max(wait, need[id(base)])
            if node.op in REDUCING_KINDS:
                while len(self.passes) <= wait:
                    self.passes.append(Pass())
                one = self.passes[wait]
                one.accs.append((node.attr[0], self._seen(node.args[0], node.axes)))
                made = Expr("acc", TYPE[node.dtype], (), (wait, len(one.accs) - 1))
                wait += 1
            else:
                made = self._expr(node)
            need[id(node)] = wait
            self.exprs[id(node)] = made
            if node.stored:
                self._put(node, made, wait)

    def _spill(self):
        """Keep costly values that a later pass needs again in a row of scratch memory."""
        if len(self.reduced) != 1 or self.lanes != "reduced" or self.sizes[self.reduced[0]] > MAX_SCRATCH_ROW_ELEMENTS:
            return
        for p, one in enumerate(self.passes[:-1]):
            after = self.passes[p + 1:]
            now = _parts(e for _, e in one.accs)
            again = _tops((e for late in after for _, e in (*late.accs, *late.stores)), now)
            costly = [e for e in again if any(x.op in FUNCTION_WORDS for x in _parts([e]))]
            if costly:
                held = costly[0]
                self.reads.append(Read(None, {self.reduced[0]: 1}, 0, held.type, True))
                one.stores.append((len(self.reads) - 1, held))
                load = Expr("load", held.type, (), len(self.reads) - 1)
                for late in after:
                    late.accs = [(kind, _replaced(e, held, load)) for kind, e in late.accs]
                    late.stores = [(n, _replaced(e, held, load)) for n, e in late.stores]
                return

    def _put(self, node, made, wait):
        axes = axes_of(node, self.group)
        walked = {a for axis in axes for a in axis}
        if node.op == "partial":
            strides = self._strides(node.shape[:-1], _row_major(node.shape)[:-1], axes)
            strides["cut"] = 1
        else:
            laid = node.layout.strides if node.layout is not None else _row_major(node.shape)
            strides = self._strides(node.shape, laid, axes)
        self.reads.append(Read(node, strides, 0, made.type, True))
        number = len(self.reads) - 1
        if self.group.reduced is not None and walked <= self.group.kept:
            self.finals.append((number, made))
        else:
            while len(self.passes) <= wait:
                self.passes.append(Pass())
            self.passes[wait].stores.append((number, made))

    def _expr(self, node):
        """A node's expression, its arguments read where they stand."""
        if node.op == "gather":
            return self._gather(node)
        args = []
        for arg in node.args:
            lead = node.ndim - arg.ndim
            args.append(self._seen(arg, [() if n == 1 else node.axes[lead + d] for d, n in enumerate(arg.shape)]))
        if node.op in ("idiv", "irem", "shl", "shr") and root(node.args[1]).op == "const":
            args[1] = Expr("const", TYPE[node.dtype], (), root(node.args[1]).attr)      # much quicker by a constant
        if node.op == "copy":
            return args[0]
        return self._unique(node.op, TYPE[node.dtype], tuple(args))

    def _unique(self, op, type, args):
        """The expression, the same one for the same parts."""
        found = self.made.get((op, type, args))
        if found is None:
            found = self.made[op, type, args] = Expr(op, type, args)
        return found

    def _seen(self, arg, axes):
        """The expression of an argument whose dimensions the loops walk as `axes` say."""
        base = root(arg)
        if base.group is self.group:
            if axes_of(arg, self.group) != list(axes):
                raise Unfusable("a value that is met in two ways", base, apart=True)
            return self.exprs[id(base)]
        if base.inline:
            return self._inlined(base)
        if base.op in ("const", "number"):
            return self._leaf(base)
        if base.op == "index":
            return self._position(arg, base, axes)
        node, strides, offset = memory(arg)
        return self._load(node, self._strides(arg.shape, strides, axes), offset)

    def _inlined(self, root_node):
        """A number made of numbers, computed here once more."""
        todo = [root_node]
        while todo:
            node = todo[-1]
            if id(node) in self.known:
                todo.pop()
                continue
            parts = [root(a) for a in node.args]
            left = [p for p in parts if p.inline and id(p) not in self.known]
            if left:
                todo.extend(left)
                continue
            todo.pop()
            args = tuple(self.known[id(p)] if p.inline else self._seen(a, [()] * a.ndim)
                         for a, p in zip(node.args, parts, strict=True))
            self.known[id(node)] = args[0] if node.op == "copy" else self._unique(node.op, TYPE[node.dtype], args)
        return self.known[id(root_node)]

    def _leaf(self, node):
        found = self.known.get(id(node))
        if found is None:
            # Sizes come in as constants too: a kernel that knew them would be compiled anew for every batch size.
            if node.op == "number" or not _stays(node.attr):
                self.numbers.append(node)
                found = Expr("number", TYPE[node.dtype], (), len(self.numbers) - 1)
            else:
                key = ("const", TYPE[node.dtype], repr(node.attr))
                found = self.made.get(key)
                if found is None:
                    found = self.made[key] = Expr("const", TYPE[node.dtype], (), node.attr)
            self.known[id(node)] = found
        return found

    def _position(self, arg, base, axes):
        """The index along a dimension, counted over all the loops that walk it."""
        if base.numel == 1:
            return Expr("const", "i64", (), 0)
        dims = [axis for axis, n in zip(axes, arg.shape, strict=True) if n == base.numel and axis]
        if arg is not base and (len(dims) != 1 or sum(n != 1 for n in arg.shape) != 1):
            dims = [axes[d + arg.ndim - base.ndim] for d in (base.attr,)] if arg.op == "expand" \
                and arg.args[0] is base else []
        if len(dims) != 1:
            raise Unfusable("a position seen in another shape", self.group.nodes[-1])
        out = None
        for d in dims[0]:
            self.fixed.add(d)
            step = self.made.setdefault(("index", d), Expr("index", "i64", (), d))
            if out is not None:
                size = Expr("size", "i64", (), d)
                step = Expr("add", "i64", (Expr("mul", "i64", (out, size)), step))
            out = step
        return out

    def _gather(self, node):
        source, index = node.args
        at_dim = node.attr
        base, strides, offset = memory(source)
        place = self._seen(index, [() if n == 1 else node.axes[d + node.ndim - index.ndim]
                                   for d, n in enumerate(index.shape)])
        moving = [() if d == at_dim or n == 1 else node.axes[d] for d, n in enumerate(source.shape)]
        return self._load(base, self._strides(source.shape, strides, moving), offset, place, strides[at_dim])

    def _strides(self, shape, strides, axes):
        """Strides by dimension of the group, from strides by dimension of a node."""
        out = {}
        for n, stride, axis in zip(shape, strides, axes, strict=True):
            if n == 1 or not axis:
                continue
            for d in reversed(axis):
                out[d] = out.get(d, 0) + stride
                stride *= self.group.dims[d]
        return out

    def _load(self, node, strides, offset, at=None, at_stride=0):
        strides = {d: s for d, s in strides.items() if s}
        key = (id(node), tuple(sorted(strides.items())), offset, at)
        found = self.loads.get(key)
        if found is None:
            type = TYPE[node.dtype]
            self.reads.append(Read(node, strides, offset, type, False, at, at_stride))
            found = self.loads[key] = Expr("load", type, (), len(self.reads) - 1)
        return found

    # --- the order of the loops -------------------------------------------------------------------------------------

    def _order(self):
        """Kept and reduced dimensions, outermost first, with those melted that are walked as one."""
        group, reduced, walk = self.group, self.group.reduced or set(), self.group.walk
        for read in self.reads:
            read.full = not reduced or any(d in reduced for d in read.strides)
        by_weight = sorted(self.reads, key=lambda r: (not r.store, not r.full))
        self.kept = sorted(group.dims.keys() - reduced, key=lambda d: tuple(-r.strides.get(d, 0) for r in by_weight))
        self.sizes = dict(group.dims)
        if group.cut is not None:
            self.sizes["cut"] = group.cut
        at = 0
        while at + 1 < len(self.kept):
            outer, inner = self.kept[at], self.kept[at + 1]
            if outer in self.fixed or inner in self.fixed or any(
                    r.strides.get(outer, 0) != r.strides.get(inner, 0) * self.sizes[inner] for r in self.reads):
                at += 1
                continue
            self._melt(outer, inner)
            self.kept.pop(at)
            at = max(at - 1, 0)
        self.reduced = []
        if walk is not None:                      # in an order that is not ours to choose: see Note [One order]
            pieces = walk.pieces(self.sizes, [r.strides for r in self.reads], self.fixed)
            if not walk.follows(self.sizes, pieces):
                raise Unfusable("a reduction in another order than its own", self._reductions()[0], apart=True)
            self.block = walk.blocks and walk.first_block(self.sizes, pieces)
            for *outer, inner in pieces:
                for d in reversed(outer):
                    self._melt(d, inner)
                self.reduced.append(inner)

    def _melt(self, outer, inner):
        """Have two dimensions walked as one, the inner."""
        self.sizes[inner] *= self.sizes[outer]
        for r in self.reads:
            r.strides.pop(outer, None)

    def _reductions(self):
        return [n for n in self.group.nodes if n.op in REDUCING_KINDS]

    def _choose_lanes(self):
        kept, reduced = self.kept, self.reduced
        full = [r for r in self.reads if r.full]
        self.square = False
        if not reduced:
            self.lanes = "kept" if kept else "none"
            if len(kept) > 1:
                v = kept[-1]
                across = [d for r in full if r.strides.get(v, 0) > 1 and r.at is None
                          for d in kept[:-1] if r.strides.get(d) == 1]
                if across:
                    self.square = True
                    kept.remove(across[0])
                    kept.insert(len(kept) - 1, across[0])
            return
        args = any(kind.startswith("arg") for one in self.passes for kind, _ in one.accs)
        if args and len(reduced) != 1:
            raise Unfusable("the place of an extreme over several dimensions", self.group.nodes[-1])
        if self.group.walk.along_rows:
            self.lanes = "reduced"
            return
        # memory runs along the dimension where most of what is read lies side by side
        most = max((self._extent(r) for r in full), default=0)
        full = [r for r in full if self._extent(r) == most]
        beside = [d for d in kept if any(r.strides.get(d) == 1 for r in full)] or kept[-1:]
        self.lanes = "kept"
        kept.remove(beside[-1])
        kept.append(beside[-1])

    def _is_small(self, read):
        """Whether an operand is small, and read again and again."""
        positions = 1
        for n in self.sizes_of_walk():
            positions *= n
        extent = self._extent(read)
        return read.at is None and extent * BYTES_OF_TYPE[read.type] <= MAX_TRANSPOSED_BYTES \
            and extent * MIN_READS_TO_TRANSPOSE <= positions

    def _turn(self):
        """Copy small operands that lie across the lanes: `turned` lists (node of the copy, node of what is copied).

        To fetch one lane after the other from places far apart takes as many instructions as there are lanes, at every
        position; the copy is made once, and then read by vectors.
        """
        self.turned = []
        if not self.reduced or self.lanes == "none":
            return
        lane = (self.kept if self.lanes == "kept" else self.reduced)[-1]
        for read in self.reads:
            if read.store or read.strides.get(lane, 0) in (0, 1) or not self._is_small(read):
                continue
            dims = [d for d in (*self.kept, *self.reduced) if d in read.strides and d != lane] + [lane]
            shape, node = tuple(self.sizes[d] for d in dims), read.node
            held = node.args[0] if node.op == "view" else node
            seen = make_spec(node.dtype, shape, tuple(read.strides[d] for d in dims))
            source = Node("view", node.dtype, shape, (held,), (seen, read.offset))
            read.node, read.offset = Node("copy", node.dtype, shape, (source,)), 0
            read.strides = dict(zip(dims, _row_major(shape), strict=True))
            self.turned.append((read.node, source))

    def _extent(self, read):
        """How many elements an access meets."""
        n = 1
        for d in read.strides:
            n *= self.sizes[d]
        return n

    # --- the kernel -------------------------------------------------------------------------------------------------

    def _write(self):
        kept, reduced, sizes = self.kept, self.reduced, self.sizes
        cut = None
        if self.group.cut is not None:
            kept = ["cut", *kept]
            cut = 0
        dims = [*kept, *reduced]
        place = {d: i for i, d in enumerate(dims)}
        blocked, blocks = (), []
        if self.lanes == "kept":
            last = len(kept) - 1
            if self.square:
                blocked = (last - 1, last)
                blocks = list(TRANSPOSED_TILE)
            else:
                blocked = (last,)
                blocks = [TILE_LANES if reduced else MAP_TILE_ELEMENTS]
        along = sizes[kept[-1]] if self.lanes == "kept" else sizes[reduced[-1]] if self.lanes == "reduced" else 1
        vectors = 1 if along <= 16 else 2 if along <= 32 else 16 if along >= TILE_LANES and reduced else 4
        if self.turned:                           # what is in the cache need not be fetched so much at a time
            vectors = min(vectors, 8)
        if self.lanes == "reduced":
            vectors = self.group.walk.vectors
        self.kernel = kernel = Kernel(len(kept), len(reduced), self.lanes, blocked, cut, vectors)
        strides = []
        moved = {}
        for read in self.reads:
            steps = [read.strides.get(d, 0) for d in dims]
            at = self._placed(read.at, place, moved) if read.at is not None else None
            kernel.accesses.append(Access(read.type, [s if s in (0, 1) else "s" for s in steps], at, read.node is None))
            strides.extend(s for s in steps if s not in (0, 1))
            if at is not None:
                strides.append(read.at_stride)
        kernel.numbers = [TYPE[n.dtype] for n in self.numbers]
        for one in self.passes:
            done = Pass()
            done.accs = [(kind, self._placed(e, place, moved)) for kind, e in one.accs]
            done.stores = [(number, self._placed(e, place, moved)) for number, e in one.stores]
            kernel.passes.append(done)
        kernel.finals = [(number, self._placed(e, place, moved)) for number, e in self.finals]
        self.ints = [sizes[d] for d in dims]
        counts = [sizes[d] for d in kept]
        for d, block in zip(blocked, blocks, strict=True):
            counts[d] = -(-counts[d] // block)
        self.ints += counts + blocks
        if cut is not None:
            self.ints.append(self.block)
        self.ints += strides
        self.tiles = 1
        for n in counts:
            self.tiles *= n
        self._weigh()

    def _placed(self, root_expr, place, moved):
        """The expression with the group's dimensions replaced by the kernel's."""
        if not self.fixed:
            return root_expr
        todo = [root_expr]
        while todo:
            e = todo[-1]
            if e in moved:
                todo.pop()
                continue
            left = [a for a in e.args if a not in moved]
            if left:
                todo.extend(left)
                continue
            todo.pop()
            if e.op in ("index", "size"):
                moved[e] = Expr(e.op, e.type, (), place[e.attr])
            elif all(moved[a] is a for a in e.args):
                moved[e] = e
            else:
                moved[e] = Expr(e.op, e.type, tuple(moved[a] for a in e.args), e.attr)
        return moved[root_expr]

    def finals_by_lane(self):
        """Whether what is stored at the end of a tile is stored by vectors."""
        return bool(self.finals) and self.lanes == "kept"

    def buffers(self):
        """The accesses that stand in buffers, in order."""
        return [r for r in self.reads if r.node is not None]

    def _weigh(self):
        """About how many nanoseconds a tile takes, to decide what is worth several threads."""
        work = 1
        for n in self.sizes_of_walk():
            work *= n
        seen, todo, cost = set(), [], 0
        for one in self.passes:
            todo.extend(e for _, e in (*one.accs, *one.stores))
        while todo:
            e = todo.pop()
            if e not in seen:
                seen.add(e)
                cost += 12 if e.op in FUNCTION_WORDS else 1
                todo.extend(e.args)
        self.cost = max(1.0, work * (0.03 * cost + 0.05 * len(self.reads)) / max(self.tiles, 1))

    def sizes_of_walk(self):
        """The sizes of all dimensions that are walked."""
        return [self.sizes[d] for d in (*self.kept, *self.reduced)]


def _parts(roots):
    """All expressions that `roots` are made of."""
    seen, todo = set(), list(roots)
    while todo:
        e = todo.pop()
        if e not in seen:
            seen.add(e)
            todo.extend(e.args)
    return seen


def _tops(roots, among):
    """The outermost expressions of `roots` that are in `among`, in the order they are met."""
    out, seen, todo = [], set(), list(roots)
    while todo:
        e = todo.pop()
        if e in seen:
            continue
        seen.add(e)
        if e in among:
            out.append(e)
        else:
            todo.extend(e.args)
    return out


def _replaced(root_expr, old, new):
    """An expression with `new` in the place of `old`."""
    made, todo = {old: new}, [root_expr]
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
    return made[root_expr]


def _stays(value):
    """Whether a constant is written into the code."""
    return value.__class__ is bool or value in (0, 1, -1, 2, 0.5) or value != value or abs(value) == float("inf")


def _row_major(shape):
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return tuple(strides)
