"""What has to be as it was for a recording to be replayed, as far as it is about things that are known beforehand.

A part of the compiled core: see Note [One source, two speeds] in base/core.py. A small training step asks some two
hundred questions, and most of them are whether a dictionary still holds the same thing, or a tensor still looks at the
same memory. Compiled, they are rows of one table (`Guards`), gone through before a replay does anything else. Python's
interpreter is quicker with a line of source for each, so interpreted, `source.py` writes those instead; `TensorLook`
says the same as its `_looks`.
"""
from ..autograd.edges import requires


class TensorLook:
    """What a tensor looked like: its spec, where in memory it begins, and what of autograd's hangs on it.

    `bare`: it had no grad; `needs`: it required one, with a node (`has_node`) or as a leaf (`leaf`), and with so many
    hooks. `storage` is None where another one may have taken its place.
    """

    __slots__ = ("spec", "storage", "offset", "bare", "needs", "leaf", "has_node", "leaf_hooks", "post_hooks")

    def __init__(self, tensor, bare, storage):
        self.spec, self.storage, self.offset, self.bare = tensor._spec, storage, tensor._offset, bare
        self.needs, self.leaf, self.has_node = requires(tensor), tensor._requires_grad, tensor._node is not None
        self.leaf_hooks, self.post_hooks = len(tensor._leaf_hooks or ()), len(tensor._post_hooks or ())

    def is_off(self, tensor):
        """Whether `tensor` looks otherwise."""
        if tensor._spec is not self.spec or tensor._offset != self.offset or self.bare and tensor._grad is not None \
                or self.storage is not None and tensor._storage is not self.storage:
            return True
        if not self.needs:
            return tensor._node is not None or tensor._requires_grad or tensor._base is not None and requires(tensor)
        if tensor._requires_grad != self.leaf or (tensor._node is not None) != self.has_node:
            return True
        return len(tensor._leaf_hooks or ()) != self.leaf_hooks or len(tensor._post_hooks or ()) != self.post_hooks


class Guards:
    """Rows of questions, each with the number of its guard. `first_unmet()` asks them all.

    `items`: (number, container, key, what it holds); `entries`: (number, object, name, what its `__dict__` holds);
    `attributes`: (number, object, name, what is had under it); `kinds`: (number, object, its type);
    `tensors`: (number, tensor, TensorLook); `missing`: (number, container or object, whether its `__dict__` is meant,
    names that it does not hold); `keys`: (number, container, its keys in order).
    """

    __slots__ = ("items", "entries", "attributes", "kinds", "tensors", "missing", "keys")

    def __init__(self):
        self.items, self.entries, self.attributes, self.kinds = [], [], [], []
        self.tensors, self.missing, self.keys = [], [], []

    def first_unmet(self):
        """The number of a guard that does not hold any more; -1 where all of them do."""
        for row in self.items:
            if row[1][row[2]] is not row[3]:
                return row[0]
        for row in self.entries:
            if row[1].__dict__[row[2]] is not row[3]:
                return row[0]
        for row in self.attributes:
            if getattr(row[1], row[2]) is not row[3]:
                return row[0]
        for row in self.kinds:
            if type(row[1]) is not row[2]:
                return row[0]
        for row in self.tensors:
            look, tensor = row[2], row[1]
            if look.is_off(tensor):
                return row[0]
        for row in self.missing:
            held, names = row[1], row[3]
            if row[2]:
                held = held.__dict__
            for name in names:
                if name in held:
                    return row[0]
        for row in self.keys:
            held, names = row[1], row[2]
            if len(held) != len(names) or names and tuple(held) != names:
                return row[0]
        return -1
