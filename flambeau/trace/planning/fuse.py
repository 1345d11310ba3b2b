"""Cut the graph into groups that run as one loop nest each.

A group has dimensions, of which some may be reduced. Its nodes vary over all of them, or over the kept ones only (what
a reduction gave, and what is made of it). A node joins the last of the groups that its arguments were made in, if it
walks the same positions; else it starts a group of its own and finds its arguments in memory. Groups run in the order
of their ranks, and read memory only of groups of lower rank.
"""
from operator import attrgetter

from ...base.shapes import contiguous_strides, view_strides
from ...base.spec import spec as make_spec
from ...loops.ir import FUNCTION_WORDS
from .lower import TraceNode, lies
from .reduction_order import order_of, walk_of

LEAF_KINDS = frozenset(("input", "number", "const", "index"))
RESHAPING_KINDS = frozenset(("reshape", "expand", "permute"))
MEMORY_KINDS = frozenset(("input", "view"))
REDUCING_KINDS = frozenset(("reduce", "partial"))  # their `axes` are those of what they reduce
# a step of its own, that reads and writes memory
OWN_STEP_KINDS = frozenset(("opaque", "gemm", "update", "concat", "library", "transfer"))
RESULT_KINDS = frozenset(("result", "output"))   # one of several things that such a step makes
MAX_GROUP_NODES = 600           # a group is closed when it has so many
MAX_RECOMPUTED_OPERATIONS = 16  # a single number made of no more operations than this is not kept but computed again


by_number = attrgetter("number")


class Group:
    """Nodes that run as one kernel on a device; or, with `opaque`, one operation that reads and writes memory."""

    __slots__ = ("rank", "dims", "reduced", "walk", "nodes", "deps", "users", "held", "opaque", "closed", "cut",
                 "column_walk", "device", "instructions")

    def __init__(self, rank, device, opaque=None):
        self.rank, self.device, self.opaque = rank, device, opaque
        self.dims = {}            # dimension → size; dimensions are numbered as they come
        self.reduced = None       # the set of dimensions reduced over, once there is a reduction
        self.walk = None          # in which order: see Note [One order] in reduction_order.py
        self.nodes = []
        self.deps, self.users = set(), set()
        self.held = set()         # groups whose results must stand in memory before this one starts
        self.closed = opaque is not None
        self.cut = None           # into how many blocks the reduction is cut, or those down columns that it carries
        self.column_walk = None   # the order of these: see carry.py
        self.instructions = None  # the numbers of those that its nodes belong to, once a step has asked

    def new_dim(self, size):
        at = max(self.dims, default=-1) + 1
        self.dims[at] = size
        return at

    def split(self, dim, outer):
        """Part a dimension in two, of `outer` times the rest."""
        inner = self.dims[dim] // outer
        a, b = self.new_dim(outer), self.new_dim(inner)
        del self.dims[dim]
        for node in self.nodes:
            node.axes = [_replaced(axis, dim, (a, b)) for axis in node.axes]
        if self.reduced is not None and dim in self.reduced:
            self.reduced = (self.reduced - {dim}) | {a, b}
            self.walk = self.walk.split(dim, (a, b))
        return a, b

    @property
    def kept(self):
        return self.dims.keys() - (self.reduced or set())


def _replaced(axis, dim, parts):
    if axis is None or dim not in axis:
        return axis
    at = axis.index(dim)
    return (*axis[:at], *parts, *axis[at + 1:])


class Fuser:
    """Groups for `nodes`, those that the wanted slots need (`needed`); `groups` in the order they run."""

    def __init__(self, graph, wanted, nodes, materialised=()):
        self.groups, self.device_of = [], graph.device_of
        self.materialised = {graph.start + number for number in materialised}  # nodes in memory, nothing after them
        self.rank = 0
        self.cuts = {}            # (shape, dimensions, blocks) of a reduction that was cut → its group and axes
        self.viewed = {id(node.args[0]) for node in nodes if node.op == "view"}
        for slot in wanted:
            node = graph.slots.get(slot)
            if node is not None:
                node.stored = True
        for node in nodes:
            self._place(node)
        self._inline_stores(graph)
        self.groups.sort(key=lambda g: g.rank)

    @staticmethod
    def needed(graph, wanted):
        """All nodes that the wanted slots come from, arguments first."""
        seen, todo = {}, [graph.slots[s] for s in wanted if s in graph.slots]
        while todo:
            node = todo.pop()
            if id(node) not in seen:
                seen[id(node)] = node
                todo.extend(node.args)
        return sorted(seen.values(), key=by_number)

    # --- one node after the other -----------------------------------------------------------------------------------

    def _place(self, node):
        op = node.op
        if op in LEAF_KINDS or op in RESHAPING_KINDS:
            return
        if op == "view":
            self._store(node.args[0])
        elif op in OWN_STEP_KINDS:
            node.args = tuple(self._store_seen(arg, node) for arg in node.args)
            group = node.group = self._open(self.device_of(node), node)
            for arg in node.args:
                self._read(group, root(arg))
            if op not in ("opaque", "library"):
                node.stored = True
        elif op in RESULT_KINDS:
            node.group, node.stored = node.args[0].group, True
        elif node.number in self.materialised:
            if op == "reduce":
                self._lay_down(node.args[0])
            self._start(node)
            node.stored = True
            if node.group is not None:
                node.group.closed = True
        elif id(node) in self.viewed or not self._can_inline(node):     # what a view looks at stands in memory
            self._join_or_open(node)

    def _open(self, device, opaque=None):
        group = Group(self.rank, device, opaque)
        self.rank += 1
        self.groups.append(group)
        return group

    def _store(self, node):
        """Have `node` kept in memory."""
        if node.op in RESHAPING_KINDS:
            self._store(root(node))
        elif node.op not in LEAF_KINDS and node.op != "view":
            node.stored = True

    def _lay_down(self, arg):
        """Have what a reduction reads kept in memory, in the order that it goes through it."""
        base = root(arg)
        if base.op not in LEAF_KINDS and base.op != "view" \
                and base.op not in OWN_STEP_KINDS and base.op not in RESULT_KINDS:
            base.stored = True
            if base.layout is None:
                base.layout = make_spec(base.dtype, base.shape, lies(base), self.device_of(base))

    def _store_seen(self, arg, reader):
        """An operand that must stand in memory; numbers are written there first."""
        arg = self._settled(arg, reader)
        base = root(arg)
        if base.inline or base.op in ("number", "const", "index"):
            return self._copied(arg, reader)
        self._store(base)
        return arg

    def _settled(self, arg, reader):
        """`arg`, with a copy on the way where no strides could say how its memory is seen."""
        if not out_of_stride(arg):
            return arg
        inner = arg.args[0]
        if out_of_stride(inner):
            inner = self._settled(inner, reader)
        else:
            inner = self._copied(inner, reader)
        return TraceNode(arg.op, arg.dtype, arg.shape, (inner,), arg.attr)

    def _copied(self, arg, reader):
        copy = TraceNode("copy", arg.dtype, arg.shape, (arg,))
        copy.number = reader.number - 0.5
        self._start(copy, reader.attr[0] if reader.op == "transfer" else None)
        copy.stored = True
        return copy

    def _read(self, group, base):
        """Note that `group` reads the memory of `base`."""
        if base.op == "view":
            base = base.args[0]
        if base.group is not None and base.group is not group:
            group.deps.add(base.group)
            base.group.users.add(group)

    @staticmethod
    def _can_inline(node):
        """Whether a node is a single number made of a few numbers: it is computed again wherever it is needed."""
        if node.numel != 1 or node.op in ("reduce", "gather"):
            return False
        weight = 1
        for arg in node.args:
            base = root(arg)
            if not (base.inline or base.op in LEAF_KINDS or base.op == "view"):
                return False
            weight += base.inline
        node.inline = weight if weight <= MAX_RECOMPUTED_OPERATIONS else 0
        return node.inline > 0

    def _inline_stores(self, graph):
        """Single numbers that are wanted themselves: a twin of each is kept, others go on computing their own."""
        for slot, node in graph.slots.items():
            if node.inline and node.stored:
                node.stored = False
                twin = graph.slots[slot] = TraceNode(node.op, node.dtype, node.shape, node.args, node.attr)
                twin.layout, twin.stored = node.layout, True
                group = twin.group = self._open(self.device_of(node))
                twin.axes = [()] * twin.ndim
                group.nodes.append(twin)
                self._note_reads(group, twin)
                self._settle_reads(group, twin)

    def _join_or_open(self, node):
        found = {}
        for arg in node.args:
            for base in bases(arg):
                if base.group is not None and not base.group.closed:
                    found[base.group.rank] = base.group
        # a group with a reduction first: what runs beside it saves a walk over the same memory
        groups = found.values() if len(found) < 2 else \
            sorted(found.values(), key=lambda g: (g.reduced is not None, g.rank), reverse=True)
        for group in groups:
            allowed = self._ranks_allow(node, group)
            if not allowed:
                if group.users:
                    continue
                group.rank = self.rank                   # nothing waits for it: it may as well run later
                self.rank += 1
                allowed = self._ranks_allow(node, group)
            if allowed and len(group.nodes) < MAX_GROUP_NODES and self._join(node, group):
                return
        self._start(node)

    def _ranks_allow(self, node, group):
        """Whether all the memory that `node` reads comes from groups that run before `group`."""
        for arg in node.args:
            for base in bases(arg):
                if base.op == "view":
                    base = base.args[0]
                    if base.group is group:
                        return False                       # it must be in memory before it is read
                if base.group is not None and base.group is not group and base.group.rank > group.rank:
                    return False
        if node.op == "gather" and root(node.args[0]).group is group:
            return False
        return True

    def _join(self, node, group):
        if node.op == "reduce":
            return self._join_reduction(node, group)
        axes = self._axes_in(node, group)
        if axes is None:
            return False
        for arg in node.args:
            if arg.op in RESHAPING_KINDS and root(arg).group is not group and out_of_stride(arg):
                return False
        if node.op == "gather" and memory(node.args[0]) is None:
            return False
        covered = {d for axis in axes for d in axis}
        if covered != group.dims.keys() and (group.reduced is None or covered != group.kept):
            return False
        if group.walk is not None and not _follow(group, group.walk, [(node, axes)]):
            return False
        node.axes, node.group = axes, group
        group.nodes.append(node)
        self._note_reads(group, node)
        for arg in node.args if node.op != "gather" else node.args[1:]:
            self._take_in(arg, node, group)
        self._settle_reads(group, node)
        return True

    def _axes_in(self, node, group):
        """Per dimension of `node`, the group's dimensions that walk it; None if it walks other positions."""
        args = node.args if node.op != "gather" else node.args[1:]
        for _ in range(8):
            dims = len(group.dims)
            merged = self._merged_axes(node, args, group)
            if len(group.dims) == dims:                      # else dimensions were split on the way: look again
                break
        if merged is None:
            return None
        free = [d for d, axis in enumerate(merged) if axis is None]
        if free:
            used = {a for axis in merged if axis for a in axis}
            rest = [a for a in sorted(group.dims) if a not in used]
            if group.reduced is not None and not any(a in group.reduced for a in rest):
                return None
            parts = regroup(group, rest, [node.shape[d] for d in free])
            if parts is None:
                return None
            for d, part in zip(free, parts, strict=True):
                merged[d] = part
        walked = [a for axis in merged for a in axis]
        return merged if len(set(walked)) == len(walked) else None

    @staticmethod
    def _merged_axes(node, args, group):
        """The axes that the arguments agree on, None where they leave it open; None in all if they do not agree."""
        merged = [None if n != 1 else () for n in node.shape]
        for arg in args:
            seen = axes_of(arg, group)
            if seen is None:
                return None
            for d, axis in enumerate(seen, node.ndim - len(seen)):
                if axis:
                    if merged[d] is not None and merged[d] != axis:
                        return None
                    merged[d] = axis
        return merged

    def _take_in(self, arg, node, group):
        """An argument made in another group: melt that group into this one if both walk the same positions."""
        for base in bases(arg):
            other = base.group
            if other is not None and other is not group and not other.closed and base.numel > 1 \
                    and base is arg and base.shape == node.shape:
                self._merge(base, node, other, group)

    def _merge(self, base, node, other, group):
        if len(other.nodes) + len(group.nodes) > MAX_GROUP_NODES or other in group.held or base.op in REDUCING_KINDS:
            return
        theirs = axes_of(base, other)
        if any(len(axis) > 1 for axis in theirs) or any(len(axis) > 1 for axis in node.axes):
            return
        late = all(user is group or user.rank > group.rank for user in other.users)
        early = all(dep is other or dep.rank < other.rank for dep in group.deps) and other.rank < group.rank
        if not late and not early:
            return
        if {a for axis in theirs for a in axis} != set(other.dims):
            return
        to = {axis[0]: mine[0] for axis, mine in zip(theirs, node.axes, strict=True) if axis}
        if other.reduced is not None:
            if group.reduced is None or other.walk.renamed(to) != group.walk:
                return
        for one in group.nodes:               # what was read from memory in its own way must be met in the same place
            for arg in one.args:
                if root(arg).group is other and not same_place(walk(one, arg), axes_of(arg, other), to):
                    return
        renamed = [(one, [tuple(to[a] for a in axis) for axis in one.axes]) for one in other.nodes]
        if group.walk is not None and not _follow(group, group.walk, renamed):
            return
        for one, axes in renamed:
            one.axes, one.group = axes, group
        group.nodes = other.nodes + group.nodes
        group.deps |= other.deps
        group.deps -= {other, group}
        group.held |= other.held
        for dep in other.deps:
            dep.users.discard(other)
            dep.users.add(group)
        for user in other.users:
            if user is not group:
                user.deps.discard(other)
                user.deps.add(group)
                group.users.add(user)
                if other in user.held:
                    user.held.add(group)
        group.users.discard(group)
        if not late:
            group.rank = other.rank
        self.groups.remove(other)

    def _note_reads(self, group, node):
        """Note whose memory the node reads, and what must stand there before its group starts."""
        for number, arg in enumerate(node.args):
            for base in bases(arg):
                fetched = base.op == "view" or node.op == "gather" and not number
                if base.op == "view":
                    base = base.args[0]
                if base.group is not None and base.group is not group:
                    self._read(group, base)
                    if fetched:
                        group.held.add(base.group)

    def _settle_reads(self, group, node):
        """Have what the node reads of other groups kept in memory, or computed here again where that is cheap."""
        for number, arg in enumerate(node.args):
            if arg.group is not None and arg.group is not group and not (node.op == "gather" and not number) \
                    and (kept := kept_for_again(arg, group.device.backend)) is not None:
                again = self._again(arg, walk(node, arg), group, node, kept)
                if again is not None:
                    node.args = (*node.args[:number], again, *node.args[number + 1:])
        for arg in node.args:
            for base in bases(arg):
                if base.op == "view":
                    base = base.args[0]
                if base.group is not None and base.group is not group:
                    base.stored = True

    def _again(self, base, axes, group, reader, kept=()):
        """The full-sized nodes that `base` is made of, once more, as members of `group`, but for those that are `kept`
        in memory; None where they do not fit."""
        made, todo, step, order = {}, [(base, axes)], 0, []
        while todo:
            node, walked = todo[-1]
            if id(node) in made:
                todo.pop()
                continue
            below = []
            for arg in node.args:
                lead = node.ndim - arg.ndim
                need = [() if n == 1 else walked[lead + d] for d, n in enumerate(arg.shape)]
                if root(arg).group is group and axes_of(arg, group) != need:
                    return None                          # it is there, but walked another way
                if not is_small(arg, base) and not arg.stored \
                        and arg.op not in LEAF_KINDS and arg.op not in MEMORY_KINDS \
                        and arg.op not in RESHAPING_KINDS and arg.group is not group and id(arg) not in made \
                        and all(arg is not one for one in kept):
                    below.append((arg, need))
            if below:
                todo.extend(below)
                continue
            todo.pop()
            step += 1
            copy = TraceNode(node.op, node.dtype, node.shape, tuple(made.get(id(a), a) for a in node.args), node.attr)
            copy.number = reader.number - 0.3 + 1e-5 * step
            copy.group, copy.axes = group, list(walked)
            made[id(node)] = copy
            order.append(copy)
        if group.walk is not None and not _follow(group, group.walk, [(copy, copy.axes) for copy in order]):
            return None
        for copy in order:
            group.nodes.append(copy)
            self._note_reads(group, copy)
            for arg in copy.args:
                for part in bases(arg):
                    part = part.args[0] if part.op == "view" else part
                    if part.group is not None and part.group is not group:
                        part.stored = True
        return made[id(base)]

    def _start(self, node, device=None):
        """A group for this node alone, for now."""
        if node.op == "copy" and not node.stored and (node.layout is None or node.layout.contiguous) \
                and id(node) not in self.viewed and node.args[0].op == "reshape" and out_of_stride(node.args[0]):
            # what will be copied to be seen in this shape need not be copied again
            seen = self._settled(node.args[0], node)
            node.op, node.args, node.attr = seen.op, seen.args, seen.attr
            return
        node.args = tuple(self._settled(arg, node) for arg in node.args)
        if node.op == "gather":
            node.args = (self._store_seen(node.args[0], node), node.args[1])
        group = self._open(device or self.device_of(node))
        if node.op == "reduce":
            arg = node.args[0]
            axes = [(group.new_dim(n),) if n != 1 else () for n in arg.shape]
            self._reduce(node, group, axes)
            return
        node.axes = [(group.new_dim(n),) if n != 1 else () for n in node.shape]
        node.group = group
        group.nodes.append(node)
        self._note_reads(group, node)
        self._settle_reads(group, node)

    # --- reductions -------------------------------------------------------------------------------------------------

    def _join_reduction(self, node, group):
        axes = axes_of(node.args[0], group)
        if axes is None or any(axis is None for axis in axes) or root(node.args[0]).group is not group:
            return False
        if {d for axis in axes for d in axis} != group.dims.keys():
            return False
        if group.reduced is not None and group.reduced != {d for at in node.attr[1] for d in axes[at]}:
            return False
        if group.reduced is None and any(n.stored and n.op == "reduce" for n in group.nodes):
            return False
        walk = walk_of(node.order, axes)
        if group.walk is not None and group.walk != walk \
                or group.walk is None and not _follow(group, walk, [(one, one.axes) for one in group.nodes]):
            return False
        self._reduce(node, group, axes)
        return True

    def _reduce(self, node, group, axes):
        """Put a reduction into the group whose dimensions `axes` its argument walks; cut it if it is long and few."""
        reduction, dims = node.attr
        blocks = node.order.blocks
        if blocks:
            twin = self.cuts.get((node.args[0].shape, dims, node.order))
            if twin is not None and not group.nodes and twin[0].device is group.device \
                    and self._ranks_allow(node, twin[0]) \
                    and _follow(twin[0], twin[0].walk, [(node, twin[1])]):
                self.groups.remove(group)                # another one over the same positions: walk them once
                group, axes = twin
            self.cuts[node.args[0].shape, dims, node.order] = group, axes
            part = TraceNode("partial", node.dtype, (*node.shape, blocks), node.args, (reduction, dims))
            last = TraceNode("reduce", node.dtype, (*node.shape, 1), (part,), (reduction, (node.ndim,)))
            seen = TraceNode("reshape", node.dtype, node.shape, (last,))
            part.number, last.number = node.number - 0.4, node.number - 0.2     # before all that reads the node
            last.order = order_of(part.shape, (node.ndim,), contiguous_strides(part.shape),
                                  group.device.backend.reductions)
            least = group.device.backend.reductions.min_columns_by_block
            if least and not node.order.along_rows and node.numel >= least:
                part.layout = make_spec(node.dtype, part.shape, (*contiguous_strides(node.shape), node.numel),
                                        group.device)
            node.op, node.args, node.attr = "copy", (seen,), None
            group.reduced, group.walk = {d for at in dims for d in axes[at]}, walk_of(node.order, axes)
            group.cut, group.closed = blocks, True
            part.axes = axes
            part.group, part.stored = group, True
            group.nodes.append(part)
            self._note_reads(group, part)
            self._settle_reads(group, part)
            self._start(last)
            self._join_or_open(node)
            return
        group.reduced, group.walk = {d for at in dims for d in axes[at]}, walk_of(node.order, axes)
        node.axes = axes
        node.group = group
        group.nodes.append(node)
        self._note_reads(group, node)
        self._settle_reads(group, node)


def _follow(group, walk, nodes):
    """Whether loops that go through memory as `nodes`, with their axes, read it can keep the order `walk`."""
    reads = []
    for node, axes in nodes:
        for number, arg in enumerate(node.args):
            base = root(arg)
            if base.op == "index":
                reads.append({d: 0.5 for axis in axes for d in axis})           # counted in every dimension by itself
                continue
            seen = memory(arg) if base.group is not group else None
            if seen is None:
                continue
            at = node.attr if node.op == "gather" and not number else None
            lead, strides = len(axes) - arg.ndim, {}
            for d, (n, stride) in enumerate(zip(arg.shape, seen[1], strict=True)):
                if n != 1 and d != at:
                    for dim in reversed(axes[lead + d]):
                        strides[dim] = stride
                        stride *= group.dims[dim]
            reads.append(strides)
    return walk.follows(group.dims, walk.pieces(group.dims, reads))


# --- how nodes are seen through shapes --------------------------------------------------------------------------------


def root(node):
    """What a node that only sees another one in another shape stands on."""
    while node.op in RESHAPING_KINDS:
        node = node.args[0]
    return node


def bases(arg):
    """The nodes in groups, or memory, that computing `arg` reads: through shapes, and through inlined numbers."""
    base = arg
    while base.op in RESHAPING_KINDS:         # `root`, without the call
        base = base.args[0]
    if not base.inline:
        return (base,)
    out, todo, seen = [], list(base.args), set()
    while todo:
        node = root(todo.pop())
        if id(node) not in seen:
            seen.add(id(node))
            if node.inline:
                todo.extend(node.args)
            else:
                out.append(node)
    return out


def walk(node, arg):
    """Per dimension of an argument, the dimensions of the node's group that walk it."""
    lead = len(node.axes) - arg.ndim
    return [() if n == 1 else node.axes[lead + d] for d, n in enumerate(arg.shape)]


def same_place(walked, axes, to):
    """Whether loops that walk an argument as `walked` meet what its own group makes at `axes`, renamed by `to`."""
    return axes is not None and all(axis is None or all(a in to for a in axis) and tuple(to[a] for a in axis) == mine
                                    for mine, axis in zip(walked, axes, strict=True))


def is_small(node, beside):
    """Whether a node is so much smaller than another that keeping it in memory costs next to nothing."""
    return node.numel * 16 <= beside.numel


def kept_for_again(base, backend):
    """The nodes to keep in memory so that `base` is computed again from them: () where it is cheap as it is; what was
    widened, in its own, smaller type; the complex numbers that it is a part of; None where `base` itself is better
    kept."""
    if base.op in ("re", "im") and not base.stored:
        return base.args
    if is_cheap(base, backend):
        return ()
    if base.op == "cast" and not base.stored and base.args[0].dtype.itemsize < base.dtype.itemsize:
        return base.args
    return None


def is_cheap(base, backend):
    """Whether computing a node again costs less than writing it to memory and reading it back, on a device."""
    if base.stored or base.numel < 1024 or base.op == "gather" or base.op in REDUCING_KINDS or base.op in RESULT_KINDS \
            or base.op in OWN_STEP_KINDS:
        return False
    work, full, seen, todo = 0, set(), set(), [base]
    while todo:
        node = todo.pop()
        if id(node) in seen or node.inline or is_small(node, base):
            continue
        seen.add(id(node))
        bottom = root(node)
        if bottom.op in ("const", "number", "index") or bottom.inline:
            continue
        if bottom.op in MEMORY_KINDS or bottom.stored:
            full.add(id(bottom))
        elif bottom is not node or node.op in REDUCING_KINDS or node.op == "gather" \
                or node.op in RESULT_KINDS or node.op in OWN_STEP_KINDS:
            return False
        else:
            work += backend.function_operations if node.op in FUNCTION_WORDS else 1
            todo.extend(node.args)
        if work > backend.recomputed_operations or len(full) > 2:
            return False
    return True


def axes_of(node, group):
    """Per dimension, the dimensions of `group` that walk it: () for a size of one, None where that is open.

    The whole is None where the node walks the group's positions in a way that no nest of loops over them can follow.
    """
    if node.op in RESHAPING_KINDS:
        inner = axes_of(node.args[0], group)
        if inner is None:
            return None
        if node.op == "permute":
            return [inner[d] for d in node.attr]
        if node.op == "expand":
            lead = node.ndim - len(inner)
            out = [None if n != 1 else () for n in node.shape]
            for d, axis in enumerate(inner):
                if node.args[0].shape[d] != 1:
                    out[lead + d] = axis
            return out
        if any(axis is None for axis in inner):
            return [None if n != 1 else () for n in node.shape] if all(not axis for axis in inner) else None
        return regroup(group, [a for axis in inner for a in axis], node.shape)
    if node.group is group and node.axes is not None:
        if node.op in REDUCING_KINDS:
            return [() if d in node.attr[1] else axis for d, axis in enumerate(node.axes)]
        return node.axes
    return [None if n != 1 else () for n in node.shape]


def regroup(group, flat, sizes):
    """The dimensions `flat`, in order, dealt out to `sizes`, and split where a size ends inside one; None if not so."""
    flat, out = list(flat), []
    for size in sizes:
        part = []
        while size != 1:
            if not flat:
                return None
            n = group.dims[flat[0]]
            if size % n == 0:
                part.append(flat.pop(0))
                size //= n
            elif n % size == 0:
                a, b = group.split(flat[0], size)
                out = [_replaced(p, flat[0], (a, b)) for p in out]
                part.append(a)
                flat[0] = b
                size = 1
            else:
                return None
        out.append(tuple(part))
    return out if not flat else None


def out_of_stride(node):
    """Whether a node sees memory in a way that no strides can say."""
    if node.op not in RESHAPING_KINDS:
        return False
    base = root(node)
    return not base.inline and base.op not in ("number", "const", "index") and memory(node) is None


def layout(node):
    """(strides, offset) of a node's memory."""
    if node.op == "input":
        return node.attr[1].strides, node.attr[2]
    if node.op == "view":
        return node.attr[0].strides, node.attr[1]
    if node.layout is not None:
        return node.layout.strides, 0
    return contiguous_strides(node.shape), 0


def memory(node):
    """(what is in memory, strides per dimension of `node`, offset): None where no strides can say it."""
    chain = []
    while node.op in RESHAPING_KINDS:
        chain.append(node)
        node = node.args[0]
    if node.op in ("number", "const", "index") or node.inline:
        return None
    strides, offset = layout(node)
    shape = node.shape
    for seen in reversed(chain):
        if seen.op == "permute":
            strides = tuple(strides[d] for d in seen.attr)
        elif seen.op == "expand":
            lead = seen.ndim - len(shape)
            strides = (0,) * lead + tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True))
        else:
            strides = view_strides(shape, strides, seen.shape)
            if strides is None:
                return None
        shape = seen.shape
    return node, strides, offset

