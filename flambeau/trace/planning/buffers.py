"""The memory of a plan: what each node stands in, from when to when, who takes over whose, and where it all lies.

Buffers of working memory share one block on each device: each has an offset in it, and two that never live at the same
time may have the same one. The others have a place of their own in the table of addresses that a program runs over.
"""
from heapq import heappop, heappush

from ...base.shapes import contiguous_strides
from ...base.spec import CPU, spec as make_spec
from ...loops.ir import BYTES_OF_TYPE
from .fuse import RESHAPING_KINDS, RESULT_KINDS, memory as seen_memory, root
from .moving import MovingOffset
from .steps import CopyStep, KernelStep, LibraryStep


class PlanBuffer:
    """Memory of a plan: an input, a result, working memory at an offset, or what a reference step gave."""

    __slots__ = ("kind", "slot", "spec", "nbytes", "index", "offset", "made", "last", "taken")

    def __init__(self, kind, nbytes, slot=None, spec=None):
        self.kind, self.nbytes, self.slot, self.spec = kind, nbytes, slot, spec
        self.index = self.offset = 0
        self.made = self.last = -1
        self.taken = None         # the buffer whose memory this one takes over

    @property
    def owner(self):
        """The buffer whose memory it is in the end."""
        buffer = self
        while buffer.taken is not None:
            buffer = buffer.taken
        return buffer


class Buffers:
    """All buffers of one plan. `free` are the slots of inputs that nothing else holds: they may be written over."""

    def __init__(self, graph, wanted, free):
        wanted = set(wanted)
        self.specs, self.free = graph.specs, set(free)
        self.slot_of = {id(node): slot for slot, node in graph.slots.items() if slot in wanted}
        self.all: list = []
        self._by_node: dict = {}
        self._given_up: set = set()          # those whose memory a result has taken over

    def of(self, node):
        """The buffer that a node in memory stands in."""
        while node.op in RESHAPING_KINDS:         # `root`, without the call
            node = node.args[0]
        if node.op == "view":
            node = root(node.args[0])             # a copy into another shape may have become that shape of a copy
        key = node.attr[0] if node.op == "input" else id(node)
        found = self._by_node.get(key)
        if found is None:
            if node.op == "input":
                found = PlanBuffer("input", 0, node.attr[0], self.specs[node.attr[0]])
            else:
                slot = self.slot_of.get(id(node))
                spec = node.layout or make_spec(node.dtype, node.shape, None, _device_of(node))
                category = "given" if node.op in ("result", "transfer") else "result" if slot is not None else "working"
                found = PlanBuffer(category, _span(spec), slot, spec)
            self._by_node[key] = found
            self.all.append(found)
        return found

    # --- from when to when ------------------------------------------------------------------------------------------

    def follow(self, steps, graph):
        """Note when each buffer is first written and last read."""
        first_of = {}
        for step in steps:
            first_of.setdefault(id(step.group), step)
            for buffer in map(self.of, step.touched()):
                if buffer.made < 0:
                    buffer.made = step.at
                buffer.last = step.at
        for node in graph.given:
            if node.group is not None:
                step = first_of[id(node.group)]
                if id(node) in self._by_node or id(node) in self.slot_of:
                    buffer = self.of(node)
                    buffer.made = step.at
                    buffer.last = max(buffer.last, step.at)
                    step.made.append((node.attr, buffer))

    # --- who takes over whose ---------------------------------------------------------------------------------------

    def share(self, steps):
        """Let results take over memory that is no longer read; the steps without copies that are needless then."""
        last_reference = last_to_fail(steps)
        kept = []
        for step in steps:
            if isinstance(step, CopyStep):
                old, made = self.of(step.old), self.of(step.group.opaque)
                no_overlap = self.of(step.source) is not old or _no_overlap(step.source, *step.group.opaque.attr)
                if no_overlap and old.last <= step.at + 1 and self._may_take(old, made, step.at, last_reference):
                    self._take_over(old, made)
                    continue
            elif isinstance(step, KernelStep):
                self._share_in(step, last_reference)
            elif isinstance(step, LibraryStep) and getattr(step.call, "over", -1) >= 0:
                self._share_operand(step, last_reference)
            kept.append(step)
        return kept

    def _take_over(self, old, made):
        made.taken = old
        self._given_up.add(id(old))

    def _may_take(self, old, made, at, last_reference):
        """Whether `made` may stand in the memory of `old`, which is read for the last time now."""
        if old is made or made.taken is not None or made.made < at or id(old) in self._given_up \
                or old.spec.device is not made.spec.device:
            return False
        if old.kind not in ("working", "input") or _span(old.spec) != made.nbytes:
            return False
        owner = old.owner
        if owner.kind == "input":
            return owner.slot in self.free and at > last_reference
        return made.kind == "working"

    def _share_in(self, step, last_reference):
        nest = step.nest
        ends, buffers = [*nest.passes[-1].stores, *nest.finals], [self.of(read.node) for read in nest.reads]
        pairs = [(number, other) for number, _ in ends for other in range(len(nest.reads))
                 if _fits(nest.reads, buffers, number, other)
                 and not (buffers[other].kind == "working" and _has_masked_rows(step, number))]
        if len(pairs) > 1 and len(ends) > 1:
            # Memory goes to what is computed from it before it goes to others: an optimizer's average of gradients to
            # the next average, not to the gradient. In a loop, each of them then stays where it is.
            used = {number: _loads(e) for number, e in ends}
            pairs.sort(key=lambda pair: pair[1] not in used[pair[0]])
        for number, other in pairs:
            old, made = buffers[other], buffers[number]
            if old.last == step.at and self._may_take(old, made, step.at, last_reference):
                self._take_over(old, made)

    def _share_operand(self, step, last_reference):
        """Let the result of a library function lie over the operand that it is a copy of, with changes."""
        source, result = step.operands[step.call.over], step.results[0]
        _, strides, offset = seen_memory(source)
        old, made = self.of(source), self.of(result)
        if old.last == step.at and not offset and tuple(strides) == contiguous_strides(source.shape) \
                and source.dtype is old.spec.dtype and made.spec.contiguous \
                and sum(self.of(operand) is old for operand in step.operands) == 1 \
                and self._may_take(old, made, step.at, last_reference):
            self._take_over(old, made)

    # --- where ------------------------------------------------------------------------------------------------------

    def lay_out(self):
        """Give every buffer its place: an index of the table, and for working memory an offset in the block.

        `blocks` are those, one for each device that needs one: (device, bytes, index of the table).
        """
        last = {}
        for b in self.all:                                   # memory taken over lives as long as the last who took it
            owner = b.owner
            last[id(owner)] = max(last.get(id(owner), -1), b.last)
        working: dict = {}
        for b in self.all:
            if b.kind == "working" and b.taken is None:
                working.setdefault(b.spec.device, []).append(b)
        self.blocks, index = [], 0
        for device, some in working.items():
            self.blocks.append((device, self._share_block(some, last), index))
            for b in some:
                b.index = index
            index += 1
        for b in self.all:
            if b.taken is None and b.kind != "working":
                b.index = index
                index += 1
        for b in self.all:
            owner = b.owner
            b.index, b.offset = owner.index, owner.offset
        self.table_size = index

    @staticmethod
    def _share_block(working, last):
        """Give buffers that are read until `last` their offsets in one block; gives its bytes."""
        free, top, ending = [], 0, []                        # ending: a heap of (last read, order, buffer)
        for order, b in enumerate(sorted(working, key=lambda b: b.made)):
            while ending and ending[0][0] < b.made:
                other = heappop(ending)[2]
                _give(free, other.offset, _aligned(other.nbytes))
            size = _aligned(b.nbytes)
            b.offset = _take(free, size)
            if b.offset is None:
                b.offset, top = top, top + size
            heappush(ending, (last[id(b)], order, b))
        return top

    # --- in words ---------------------------------------------------------------------------------------------------

    def names(self, graph):
        """A function: the names of some buffers, as they are shown."""
        names = {id(self._by_node[id(node)]): f"%{slot}" for slot, node in graph.slots.items()
                 if id(node) in self._by_node}
        names.update({id(b): f"%{b.slot}" for b in self.all if b.kind == "input"})
        names.update({id(b): f"w{i}" for i, b in enumerate(b for b in self.all if id(b) not in names)})

        def named(buffers):
            return [names[id(b)] + (f" in {names[id(b.owner)]}" if b.taken is not None else "") for b in buffers]
        return named


def last_to_fail(steps):
    """When the last step runs that may fail, or after which an interrupt may come: what follows is one native stretch.

    See Note [All or nothing] in plan.py.
    """
    for step in reversed(steps):
        if not step.native or step.device is not steps[-1].device:
            return step.at
    return -1


def _loads(root):
    """The numbers of the accesses that an expression reads."""
    found, todo, seen = set(), [root], {root}
    while todo:
        e = todo.pop()
        if e.op == "load":
            found.add(e.attr)
        for arg in e.args:
            if arg not in seen:
                seen.add(arg)
                todo.append(arg)
    return found


def _device_of(node):
    if node.group is None and node.op in RESULT_KINDS:       # it is not read, but the step that makes it writes it
        node = node.args[0]
    return CPU if node.group is None else node.attr[1] if node.op == "transfer" else node.group.device


def _no_overlap(source, view, offset):
    """Whether a source lies wholly before or behind the `view` at `offset` of the same memory."""
    _, strides, start = seen_memory(source)
    if source.dtype is not view.dtype or MovingOffset in (start.__class__, offset.__class__):
        return False
    end = start + sum(s * (n - 1) for s, n in zip(strides, source.shape, strict=True))
    stop = offset + sum(s * (n - 1) for s, n in zip(view.strides, view.shape, strict=True))
    return end < offset or stop < start


def _span(spec):
    """The bytes from the first to the last element: more than there are where rows are padded."""
    return spec.nbytes if spec.dense or not spec.numel else \
        (1 + sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True))) * spec.dtype.itemsize


def _aligned(nbytes):
    return nbytes + 63 & ~63


def _take(free, size):
    """An offset of `size` free bytes, the smallest hole that will do; None if there is none."""
    best = min((hole for hole in free if hole[1] >= size), key=lambda hole: hole[1], default=None)
    if best is None:
        return None
    free.remove(best)
    if best[1] > size:
        free.append((best[0] + size, best[1] - size))
    return best[0]


def _give(free, offset, size):
    """Put a hole back, melted with its neighbours."""
    for hole in list(free):
        if hole[0] + hole[1] == offset:
            free.remove(hole)
            offset, size = hole[0], size + hole[1]
        elif offset + size == hole[0]:
            free.remove(hole)
            size += hole[1]
    free.append((offset, size))


def _has_masked_rows(step, number):
    """Whether access `number` of a kernel goes along rows that are shorter than a vector.

    The rest of the vector is masked off, and lies over the beginning of the next row. A processor that meets a load
    there waits until the store is through. So rows that are written over their own operands come one after the other,
    and each takes all the time from its load to its store, where elsewhere in memory they would overlap.
    """
    kernel, launch = step.launch.kernel, step.launch
    return kernel.rows > 0 and launch.strides[number][-1] == 1 and \
        launch.sizes[-1] * BYTES_OF_TYPE[kernel.accesses[number].type] < step.device.backend.masked_row_bytes


def _fits(reads, buffers, number, other):
    """Whether store `number` among the walks of a nest goes over the cells of read `other` just as that does, and
    nothing else over them; `buffers` has that of each."""
    store, read, old = reads[number], reads[other], buffers[other]
    if read.store or read.at is not None or read.strides != store.strides or read.offset != store.offset \
            or BYTES_OF_TYPE[read.type] != BYTES_OF_TYPE[store.type]:
        return False
    for r, buffer in zip(reads, buffers, strict=True):
        if buffer is old and r is not read \
                and (r.strides != store.strides or r.offset != store.offset or r.at is not None):
            return False
    return True
