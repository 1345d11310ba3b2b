"""Let reductions down columns ride along with kernels along rows, which have what they add up at hand.

The gradients of a layer norm's weight and bias are sums down columns of what the gradient of its input goes through row
by row. As kernels of their own they read all of that again. On a device that `carries_columns`, the blocks that such a
reduction is cut into (`partial`) become part of the other kernel: some threads go through the rows of a block, one
after the other, and each adds up its own columns. That is the order which the reduction has anyway, so the bits are the
same; see Note [One order] in reduction_order.py. What is made of the blocks is a kernel of its own as before.

    kernel along rows ─┐                      kernel along rows, with sums down columns
    sums down columns ─┴→ sums of blocks      └→ sums of blocks

Whether it is worth it is for the device to say: its `schedule` refuses a kernel that it would rather have in two.
"""
from math import prod

from ...loops.ir import REDUCTION_WORDS
from .fuse import REDUCING_KINDS, RESHAPING_KINDS, bases, root
from .lower import TraceNode, Unfusable
from .nest import Nest

CARRIED_WORDS = frozenset(REDUCTION_WORDS) - {"any", "all", "argmax", "argmin"}


def carried(groups):
    """The groups, in the order they run, with reductions down columns put into others where devices take them."""
    columns = [g for g in groups if g.cut is not None and not g.walk.along_rows and g.device.backend.carries_columns]
    if not columns:
        return groups
    hosts = _by_memory(g for g in groups if g.opaque is None and g.reduced is not None and g.walk.along_rows
                       and g.cut is None)
    gone = set()
    for group in columns:
        parts = [node for node in group.nodes if node.op == "partial"]
        if all(node.op == "partial" or not node.stored for node in group.nodes):     # else it has more to do anyway
            rode = [_Ride(part, group).find(hosts) for part in parts]
            if any(rode):
                _leave_rest(group)
            if all(rode):
                gone.add(group)
    for group in gone:
        for other in group.deps:
            other.users.discard(group)
        for other in group.users:
            other.deps.discard(group)
    return sorted((g for g in groups if g not in gone), key=lambda g: g.rank)


def _by_memory(groups):
    """Where something stands in memory of the size of all its positions → the groups that read it there or make it."""
    found = {}
    for group in groups:
        size, met = prod(group.dims.values()), set()
        for node in group.nodes:
            for base in (node, *(base for arg in node.args for base in bases(arg))):
                if base.numel == size:
                    met.add(_place(base))
        for location in met:
            found.setdefault(location, []).append(group)
    return found


def _place(node):
    """What stands for the memory of a node."""
    node = node.args[0] if node.op == "view" else node
    return ("input", node.attr[0]) if node.op == "input" else id(node)


class _Ride:
    """A reduction down columns, `part` of `group`, that looks for a group along rows to ride with."""

    def __init__(self, part, group):
        self.part, self.group = part, group
        self.cone, self.reads = [], []            # the group's nodes that it is made of, and what these read elsewhere
        todo, seen = [part], set()
        while todo:
            node = todo.pop()
            self.cone.append(node)
            for arg in node.args:
                for base in bases(arg):
                    if id(base) not in seen:
                        seen.add(id(base))
                        (todo if base.group is group else self.reads).append(base)
        self.cone.sort(key=lambda node: node.number)
        self.users = {user for user in group.users for node in user.nodes for arg in node.args if root(arg) is part}

    def find(self, hosts):
        """Ride with the first group that will do; whether there is one."""
        part, size = self.part, prod(self.group.dims.values())
        full = [_place(base) for base in self.reads if base.numel == size]
        if not full or part.attr[0] not in CARRIED_WORDS or part.dtype is not part.args[0].dtype:
            return False
        for host in hosts.get(full[0], ()):
            if host.device is self.group.device and all(host in hosts.get(location, ()) for location in full[1:]):
                rank, to = self._rank_with(host), self._dims_in(host)
                if rank is not None and to is not None and self._join(host, rank, to):
                    return True
        return False

    def _rank_with(self, host):
        """When both could run as one: after all that either reads, before all who read either; None if never."""
        if any(base.op == "view" and base.args[0].group is host for base in self.reads) \
                or any(node.op == "gather" and root(node.args[0]).group is host for node in self.cone):
            return None                           # it must be in memory before it is read
        before = (set(map(_maker, self.reads)) | host.deps) - {None, host}
        after = (self.users | host.users) - {host, self.group}
        for rank in (host.rank, self.group.rank - 0.5):
            if all(g.rank < rank for g in before) and all(g.rank > rank for g in after):
                return rank
        return None

    def _dims_in(self, host):
        """The dimensions of the host by those of the group; None where they do not walk the same positions."""
        mine, shape = self.part.axes, self.part.args[0].shape
        for node in host.nodes:
            if (node.args[0] if node.op in REDUCING_KINDS else node).shape != shape \
                    or [len(axis) for axis in node.axes] != [len(axis) for axis in mine]:
                continue
            to = {a: b for own, theirs in zip(mine, node.axes, strict=True) for a, b in zip(own, theirs, strict=True)}
            if set(to.values()) == host.dims.keys() and {to[d] for d in self.group.reduced} == host.kept \
                    and all(self.group.dims[a] == host.dims[b] for a, b in to.items()):
                return to
        return None

    def _join(self, host, rank, to):
        """Become part of `host`, which then runs at `rank`; False where its device does not take it, and all is left
        as it was."""
        part, walk, made = self.part, self.group.walk.renamed(to), {}
        if host.column_walk not in (None, walk):
            return False
        was = host.nodes, host.cut, host.column_walk, part.args, part.axes
        for node in self.cone[:-1]:
            copy = TraceNode(node.op, node.dtype, node.shape, tuple(_on(arg, made) for arg in node.args), node.attr)
            copy.number, copy.group, copy.axes = node.number, host, _renamed(node.axes, to)
            made[id(node)] = copy
        part.args, part.axes, part.group = (_on(part.args[0], made),), _renamed(part.axes, to), host
        host.nodes, host.cut, host.column_walk = [*host.nodes, *made.values(), part], walk.blocks, walk
        try:
            Nest(host)
        except Unfusable:
            host.nodes, host.cut, host.column_walk, part.args, part.axes = was
            part.group = self.group
            return False
        host.rank = rank
        for other in set(map(_maker, self.reads)) - {None, host}:
            host.deps.add(other)
            other.users.add(host)
        for user in self.users:
            user.deps.add(host)
            host.users.add(user)
        return True


def _maker(base):
    """The group that makes what `base` sees in memory."""
    return (base.args[0] if base.op == "view" else base).group


def _on(arg, made):
    """`arg`, with the copies `made` in the place of nodes, by their id."""
    chain = []
    while arg.op in RESHAPING_KINDS and id(arg) not in made:
        chain.append(arg)
        arg = arg.args[0]
    if id(arg) not in made:
        return chain[0] if chain else arg
    out = made[id(arg)]
    for seen in reversed(chain):
        out = TraceNode(seen.op, seen.dtype, seen.shape, (out,), seen.attr)
    return out


def _renamed(axes, to):
    return [tuple(to[d] for d in axis) for axis in axes]


def _leave_rest(group):
    """Leave a group the nodes of those reductions that are still its own."""
    needed = {id(node) for part in group.nodes if part.op == "partial" and part.group is group
              for node in _Ride(part, group).cone}
    group.nodes = [node for node in group.nodes if id(node) in needed]
