"""Write a group as a kernel of the loop language: its dimensions, what is read and written along them, and the passes.

What a kernel looks like depends on the structure only (which strides are 0 or 1, what is reduced); sizes and strides
themselves go with each use of it, its Launch. How it is gone through is the device's to decide.
"""
from ...backends.backend import Unschedulable
from ...base.spec import spec as make_spec
from ...loops.ir import Access, Expr, Kernel, Launch, Pass, steps_of
from .fuse import REDUCING_KINDS, axes_of, by_number, layout, memory, root
from .lower import LOOP_TYPE, TraceNode, Unfusable


class Read:
    """One way a buffer is walked: what stands there, its strides by dimension of the group, and where it starts."""

    __slots__ = ("node", "strides", "offset", "type", "store", "full", "at", "at_stride")

    def __init__(self, node, strides, offset, type, store, at=None, at_stride=0):
        self.node, self.strides, self.offset, self.type, self.store = node, strides, offset, type, store
        self.at, self.at_stride = at, at_stride
        self.full = False


class Nest:
    """A group as a kernel: its `launch`, and what the launch's accesses and numbers are, in order: `reads`, `numbers`.

    `turned` are copies that have to be made before: (node of the copy, node of what is copied).
    """

    def __init__(self, group):
        self.group, self.block = group, 0
        self.reads, self.known, self.loads, self.made = [], {}, {}, {}
        self.numbers, self.fixed, self.exprs = [], set(), {}
        self.passes, self.finals = [Pass()], []
        self._expressions()
        self._order()
        self._write()
        try:
            self.launch.schedule = group.device.backend.schedule(self.launch)
        except Unschedulable as why:
            raise Unfusable(str(why), group=group.nodes) from why
        self._turn()

    # --- expressions ------------------------------------------------------------------------------------------------

    def _expressions(self):
        """Every node as an expression; accumulators and stores go to the pass where all they need is there."""
        group = self.group
        nodes = sorted(group.nodes, key=by_number)
        need = {}
        for node in nodes:
            wait = 0
            for arg in node.args:
                base = root(arg)
                if base.group is group:
                    wait = max(wait, need[id(base)])
            if node.op == "partial" and group.column_walk is not None:
                self._carry(node, wait)
                continue
            if node.op in REDUCING_KINDS:
                one = self._pass(wait)
                one.accs.append((node.attr[0], self._seen(node.args[0], node.axes)))
                made = Expr("acc", LOOP_TYPE[node.dtype], (), (wait, len(one.accs) - 1))
                wait += 1
            else:
                made = self._expr(node)
            need[id(node)] = wait
            self.exprs[id(node)] = made
            if node.stored:
                self._put(node, made, wait)

    def _pass(self, number):
        while len(self.passes) <= number:
            self.passes.append(Pass())
        return self.passes[number]

    def _carry(self, node, wait):
        """A reduction down columns that rides along, in the pass that has what it adds up."""
        self.reads.append(Read(node, self._strides_of_parts(node), 0, LOOP_TYPE[node.dtype], True))
        self._pass(wait).columns.append((node.attr[0], len(self.reads) - 1, self._seen(node.args[0], node.axes)))

    def _put(self, node, made, wait):
        axes = axes_of(node, self.group)
        walked = {a for axis in axes for a in axis}
        strides = self._strides_of_parts(node) if node.op == "partial" else \
            self._strides(node.shape, layout(node)[0], axes)
        self.reads.append(Read(node, strides, 0, made.type, True))
        number = len(self.reads) - 1
        if self.group.reduced is not None and walked <= self.group.kept:
            self.finals.append((number, made))
        else:
            self._pass(wait).stores.append((number, made))

    def _strides_of_parts(self, node):
        """The strides of what the blocks of a reduction give, whose last dimension is the block's number."""
        *laid, cut = layout(node)[0]
        return {**self._strides(node.shape[:-1], laid, axes_of(node, self.group)), "cut": cut}

    def _expr(self, node):
        """A node's expression, its arguments read where they stand."""
        if node.op == "gather":
            return self._gather(node)
        args, axes = [], node.axes
        for arg in node.args:
            if arg.group is self.group and arg.axes == axes and arg.op not in REDUCING_KINDS:
                args.append(self.exprs[id(arg)])             # as it comes: what `_seen` would find
                continue
            lead = node.ndim - arg.ndim
            args.append(self._seen(arg, [() if n == 1 else axes[lead + d] for d, n in enumerate(arg.shape)]))
        if node.op in ("idiv", "irem", "shl", "shr") and root(node.args[1]).op == "const":
            args[1] = Expr("const", LOOP_TYPE[node.dtype], (), root(node.args[1]).attr)  # much quicker by a constant
        if node.op == "copy":
            return args[0]
        if node.op in ("re", "im") and args[0].op == "pair":
            return args[0].args[node.op == "im"]
        return self._unique(node.op, LOOP_TYPE[node.dtype], tuple(args))

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
                raise Unfusable("a value that is met in two ways", base, materialise=True)
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
            self.known[id(node)] = args[0] if node.op == "copy" else args[0].args[node.op == "im"] \
                if node.op in ("re", "im") and args[0].op == "pair" else \
                self._unique(node.op, LOOP_TYPE[node.dtype], args)
        return self.known[id(root_node)]

    def _leaf(self, node):
        found = self.known.get(id(node))
        if found is None:
            # Sizes come in as constants too: a kernel that knew them would be compiled anew for every batch size. So
            # would one that knew which of them are equal; constants of formulas are always equal, and shared.
            given = node.op == "number" or not _stays(node.attr)
            op, key = "number" if given else "const", ("const", LOOP_TYPE[node.dtype], repr(node.attr))
            shared = not given or node.op == "const" and isinstance(node.attr, float) and not node.attr.is_integer()
            found = self.made.get(key) if shared else None
            if found is None:
                if given:
                    self.numbers.append(node)
                found = Expr(op, LOOP_TYPE[node.dtype], (), len(self.numbers) - 1 if given else node.attr)
                if shared:
                    self.made[key] = found
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
        position = self._seen(index, [() if n == 1 else node.axes[d + node.ndim - index.ndim]
                                      for d, n in enumerate(index.shape)])
        moving = [() if d == at_dim or n == 1 else node.axes[d] for d, n in enumerate(source.shape)]
        return self._load(base, self._strides(source.shape, strides, moving), offset, position, strides[at_dim])

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
            type = LOOP_TYPE[node.dtype]
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
        if group.column_walk is not None:         # the rows of a block are consecutive ones
            rows = group.column_walk.pieces(self.sizes, [r.strides for r in self.reads], self.fixed)
            if len(rows) != 1 or set(rows[0]) != set(self.kept):
                raise Unfusable("columns of other rows than these", group.nodes[-1])
            self.kept, self.block = rows[0], group.column_walk.first_block(self.sizes, rows)
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
                raise Unfusable("a reduction in another order than its own", self._reductions()[0], materialise=True)
            if walk.blocks:
                self.block = walk.first_block(self.sizes, pieces)
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

    # --- the kernel -------------------------------------------------------------------------------------------------

    def _write(self):
        """The kernel, and this use of it."""
        kept, reduced, walk, cut = self.kept, self.reduced, self.group.walk, None
        if self.group.cut is not None:
            kept, cut = ["cut", *kept], 0
        if len(reduced) > 1 and any(reduction.startswith("arg") for one in self.passes for reduction, _ in one.accs):
            raise Unfusable("the place of an extreme over several dimensions", self.group.nodes[-1])
        self.dims = dims = [*kept, *reduced]
        index_of, moved = {d: i for i, d in enumerate(dims)}, {}
        kernel = Kernel(len(kept), len(reduced), walk.vectors if walk is not None and walk.along_rows else 0, cut)
        strides = []
        for read in self.reads:
            at = self._placed(read.at, index_of, moved) if read.at is not None else None
            strides.append([read.strides.get(d, 0) for d in dims])
            kernel.accesses.append(Access(read.type, steps_of(strides[-1]), at))
        kernel.numbers = [LOOP_TYPE[n.dtype] for n in self.numbers]
        for one in self.passes:
            done = Pass()
            done.accs = [(reduction, self._placed(e, index_of, moved)) for reduction, e in one.accs]
            done.stores = [(number, self._placed(e, index_of, moved)) for number, e in one.stores]
            done.columns = [(reduction, number, self._placed(e, index_of, moved))
                            for reduction, number, e in one.columns]
            kernel.passes.append(done)
        kernel.finals = [(number, self._placed(e, index_of, moved)) for number, e in self.finals]
        self.launch = Launch(kernel, [self.sizes[d] for d in dims], strides, [r.at_stride for r in self.reads],
                             self.block)

    def _turn(self):
        """Copy what the schedule wants to lie otherwise: `turned` lists (node of the copy, node of what is copied)."""
        self.turned = []
        for number, order in self.launch.schedule.turned.items():
            read, dims = self.reads[number], [self.dims[d] for d in order]
            shape, node = tuple(self.sizes[d] for d in dims), read.node
            base = node.args[0] if node.op == "view" else node
            seen = make_spec(node.dtype, shape, tuple(read.strides[d] for d in dims))
            source = TraceNode("view", node.dtype, shape, (base,), (seen, read.offset))
            read.node, read.offset = TraceNode("copy", node.dtype, shape, (source,)), 0
            read.node.group = self.group
            read.strides = dict(zip(dims, _row_major(shape), strict=True))
            self.launch.walk(number, [read.strides.get(d, 0) for d in self.dims])
            self.turned.append((read.node, source))

    def _placed(self, root_expr, index_of, moved):
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
                moved[e] = Expr(e.op, e.type, (), index_of[e.attr])
            elif all(moved[a] is a for a in e.args):
                moved[e] = e
            else:
                moved[e] = Expr(e.op, e.type, tuple(moved[a] for a in e.args), e.attr)
        return moved[root_expr]

    def sizes_of_walk(self):
        """The sizes of all dimensions that are walked."""
        return [self.sizes[d] for d in (*self.kept, *self.reduced)]


def _stays(value):
    """Whether a constant is written into the code."""
    return value.__class__ is bool or value in (0, 1, -1, 2, 0.5) or value != value or abs(value) == float("inf")


def _row_major(shape):
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return tuple(strides)
