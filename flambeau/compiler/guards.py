# cython: boundscheck=False
"""What has to be as it was for a recording to be replayed, as far as it is about things that are known beforehand.

A part of the compiled core: see Note [One source, two speeds] in base/core.py. A small training step asks some two
hundred questions, and most of them are whether a dictionary still holds the same thing, or a tensor still looks at the
same memory. They are rows of one table (`Guards`), gone through before a replay does anything else. What has to be read
from the arguments of a call is asked by lines of its source (source.py).
"""
from math import copysign
from types import ModuleType

from ..autograd.edges import requires
from ..tensor.user_attributes import OWN_FIELDS, fields
from ..trace.running import quick
from ..trace.value import TensorBase

MISSING = object()
HEAP_TYPE = 1 << 9            # among a class's flags: it was made by a program


class TensorLook:
    """What a tensor looked like: its spec, where in memory it begins (`offset`; -1: that is not asked), and what of
    autograd's hangs on it.

    `bare`: it had no grad; `needs`: it required one, with a node (`has_node`) or as a leaf (`leaf`), and with so many
    hooks. `storage` is None where another one may have taken its place. Where it is guarded by a table of `Guards`,
    `number` is the guard's; `tensor` is the one that is looked at, or that whose gradient is, which is of class `kind`.
    """

    __slots__ = ("number", "tensor", "kind", "spec", "storage", "offset", "bare", "needs", "leaf", "has_node",
                 "leaf_hooks", "post_hooks")

    def __init__(self, tensor, bare, storage):
        self.spec, self.storage, self.offset, self.bare = tensor._spec, storage, tensor._offset, bare
        self.needs, self.leaf, self.has_node = requires(tensor), tensor._requires_grad, tensor._node is not None
        self.leaf_hooks, self.post_hooks = len(tensor._leaf_hooks or ()), len(tensor._post_hooks or ())

    def is_off(self, tensor):
        """Whether `tensor` looks otherwise."""
        if tensor._spec is not self.spec or self.offset >= 0 and tensor._offset != self.offset \
                or self.bare and tensor._grad is not None \
                or self.storage is not None and tensor._storage is not self.storage:
            return True
        if not self.needs:
            return tensor._node is not None or tensor._requires_grad or tensor._base is not None and requires(tensor)
        if tensor._requires_grad != self.leaf or (tensor._node is not None) != self.has_node:
            return True
        if tensor._leaf_hooks is None and tensor._post_hooks is None:
            return self.leaf_hooks + self.post_hooks > 0
        return len(tensor._leaf_hooks or ()) != self.leaf_hooks or len(tensor._post_hooks or ()) != self.post_hooks


class ModesLook:
    """The modes (autograd/modes.py) that a replay needs: grad mode and inference mode as they were, no others.

    A thread's modes stand in a dictionary of its own. As long as that has the `version` for which they were gone
    through, none has changed.
    """

    __slots__ = ("number", "modes", "grad", "inference", "held", "version")

    def __init__(self, number, modes):
        self.number, self.modes, self.grad, self.inference = number, modes, modes.grad, modes.inference
        self.held, self.version = None, 0

    def are_off(self):
        """Whether this thread's are others."""
        modes, attributes = self.modes, self.modes.__dict__
        if self.version != 0 and attributes is self.held and quick.dict_version(attributes) == self.version:
            return False
        if modes.grad is not self.grad or modes.inference is not self.inference or modes.level >= 0 or modes.anomaly \
                or modes.saved_hooks or modes.autocast is not None:
            return True
        self.held, self.version = attributes, quick.dict_version(attributes)
        return False


class ClassLook:
    """What a class has, or has not: `rows` (number, whether it is an attribute, name, what is had under it, whether
    something equal will do), of its `__dict__` where it is no attribute, and `missing` (number, names).

    As long as the class has the `version` for which they were gone through, none of that has changed: Python gives a
    class another one when an attribute is set, of it or of a base. What is not `lasting` is asked every time: a
    metaclass or a descriptor of the program's has a say in it.
    """

    __slots__ = ("cls", "lasting", "version", "rows", "missing")

    def __init__(self, cls, lasting):
        self.cls, self.lasting, self.version, self.rows, self.missing = cls, lasting, 0, [], []

    def add(self, number, table, facts):
        """Take up guard `number` of a table of `Guards`."""
        if table == "missing":
            self.missing.append((number, facts[1]))
        else:
            name, expected, *may_be_equal = facts
            self.rows.append((number, table == "attributes", name, expected, bool(may_be_equal)))

    def first_unmet(self):
        """The number of a guard that does not hold any more; -1 where all of them do."""
        version, cls = quick.class_version(self.cls) if self.lasting else 0, self.cls
        for row in self.rows:
            found = getattr(cls, row[2]) if row[1] else cls.__dict__[row[2]]
            if found is not row[3] and not (row[4] and same_value(found, row[3])):
                return row[0]
        for row in self.missing:
            if not cls.__dict__.keys().isdisjoint(row[1]):
                return row[0]
        self.version = version
        return -1


class DictLook:
    """What a dictionary holds, and what not: rows of `Guards`, in the tables `items`, `missing` and `keys`.

    Where dictionaries have versions (quick.py), one that has the `version` for which they were gone through holds what
    it held. Nothing of a subclass is asked, which may have methods of its own, or make what is missing.
    """

    __slots__ = ("held", "version", "items", "missing", "keys")

    def __init__(self, dictionary):
        self.held, self.version = dictionary, 0
        self.items, self.missing, self.keys = [], [], []

    def first_unmet(self):
        """The number of a guard that does not hold any more; -1 where all of them do."""
        dictionary, version = self.held, quick.dict_version(self.held)
        for row in self.items:
            found = dict.get(dictionary, row[1], MISSING)
            if found is not row[2] and (len(row) == 3 or not same_value(found, row[2])):
                return row[0]
        for row in self.missing:
            names = row[1]
            for name in names:
                if dict.__contains__(dictionary, name):
                    return row[0]
        for row in self.keys:
            if not same_values(dict.keys(dictionary), row[1]):
                return row[0]
        self.version = version
        return -1


class Guards:
    """Rows of questions, each with the number of its guard. `first_unmet()` asks them all.

    `items`: (number, container, key, what it holds), with True behind it where something equal will do; `missing`:
    (number, container, names that it does not hold); `keys`: (number, container, its keys or elements in order). All of
    these are for dictionaries in `dicts`, a DictLook each. `owners`: (number, object, its `__dict__`); `attributes`:
    (number, object, name, what is had under it), and True as above; `kinds`: (number, object, its type); `sizes`:
    (number, container, how much it holds); `functions`: (number, function, its code,
    defaults, defaults of names). `modes`: a ModesLook; `classes`: a ClassLook each; `tensors`, `grads`: a TensorLook
    each, of a tensor or of its gradient; `outside`: storages that may not be held outside, by guard `outside_number`.
    """

    __slots__ = ("modes", "classes", "owners", "dicts", "items", "attributes", "functions", "kinds", "tensors", "grads",
                 "outside", "outside_number", "sizes", "missing", "keys", "looks")

    def __init__(self):
        self.classes, self.owners, self.dicts, self.items, self.attributes = [], [], [], [], []
        self.functions, self.kinds, self.tensors, self.missing, self.keys = [], [], [], [], []
        self.grads, self.outside, self.sizes = [], [], []
        self.modes, self.outside_number = None, -1
        self.looks = {}               # what is guarded, as something that can be a key → what looks at it

    def add(self, table, number, thing, *facts):
        """Take up guard `number`. The tables "entries" (object, name, what its `__dict__` holds) and "missing" (object
        or container, whether its `__dict__` is meant, names) come to others here."""
        if isinstance(thing, type) and (table in ("entries", "attributes") or table == "missing" and facts[0]):
            lasting = type(thing) is type and (table == "missing" or is_constant(facts[1]))
            look = self.looks.get((id(thing), lasting))
            if look is None:
                look = self.looks[id(thing), lasting] = ClassLook(thing, lasting)
                self.classes.append(look)
            look.add(number, table, facts)
            return
        if table in ("tensors", "grads"):
            look = facts[-1]
            look.number, look.tensor, look.kind = number, thing, facts[0] if table == "grads" else None
            getattr(self, table).append(look)
            return
        if table == "outside":
            self.outside_number = number
            self.outside.append(thing)
            return
        if table == "missing" and isinstance(thing, TensorBase):       # where our own fields are never seen
            facts = facts[0], tuple([name for name in facts[1] if name not in OWN_FIELDS])
        if table == "entries" or table == "missing" and facts[0]:
            thing = self._dict_of(number, thing)
        if table == "entries":
            table = "items"
        elif table == "missing":
            facts = facts[1:]
        elif table == "kinds" and not facts[0].__flags__ & HEAP_TYPE and not issubclass(facts[0], ModuleType):
            return                                           # it cannot be given another class
        if isinstance(thing, dict) and table in ("items", "missing", "keys"):
            look = self.looks.get(id(thing))
            if look is None:
                look = self.looks[id(thing)] = DictLook(thing)
                self.dicts.append(look)
            getattr(look, table).append((number, *facts))
        else:
            getattr(self, table).append((number, thing, *facts))

    def _dict_of(self, number, thing):
        """The dictionary of an object's attributes, which another may be put in the place of; not of a tensor's, whose
        `__dict__` is made at every look."""
        if isinstance(thing, TensorBase):
            return fields(thing)
        found = self.looks.get((id(thing), None))
        if found is None:
            found = self.looks[id(thing), None] = thing.__dict__
            self.owners.append((number, thing, found))
        return found

    def first_unmet(self):
        """The number of a guard that does not hold any more; -1 where all of them do."""
        modes = self.modes
        if modes is not None and modes.are_off():
            return modes.number
        for look in self.classes:
            if look.version == 0 or quick.class_version(look.cls) != look.version:
                number = look.first_unmet()
                if number >= 0:
                    return number
        for row in self.owners:
            if row[1].__dict__ is not row[2]:
                return row[0]
        for seen in self.dicts:
            if seen.version == 0 or quick.dict_version(seen.held) != seen.version:
                number = seen.first_unmet()
                if number >= 0:
                    return number
        for row in self.items:
            found = row[1][row[2]]
            if found is not row[3] and (len(row) == 4 or not same_value(found, row[3])):
                return row[0]
        for row in self.attributes:
            found = getattr(row[1], row[2])
            if found is not row[3] and (len(row) == 4 or not same_value(found, row[3])):
                return row[0]
        for row in self.functions:
            if not quick.is_function(row[1], row[2], row[3], row[4]):
                return row[0]
        for row in self.kinds:
            if type(row[1]) is not row[2]:
                return row[0]
        for look_of in self.tensors:
            if look_of.is_off(look_of.tensor):
                return look_of.number
        for look_of in self.grads:
            grad = look_of.tensor._grad
            if type(grad) is not look_of.kind or look_of.is_off(grad):
                return look_of.number
        grad = None                                          # the write counts the references to it
        for storage in self.outside:
            if storage.exported and storage.still_exported():
                return self.outside_number
        for row in self.sizes:
            if len(row[1]) != row[2]:
                return row[0]
        for row in self.missing:
            names = row[2]
            for name in names:
                if name in row[1]:
                    return row[0]
        for row in self.keys:
            if not same_values(row[1], row[2]):
                return row[0]
        return -1


def same_value(found, expected):
    """Whether a value cannot be told from another by what it holds: of the same types, however deep, with the same
    elements in the same order, minus zero apart from zero. What is not known here to be immutable is itself alone."""
    if found is expected:
        return True
    cls = type(expected)
    if type(found) is not cls:
        return False
    if cls is int or cls is str or cls is bytes:
        return found == expected
    if cls is float:
        return found == expected and copysign(1.0, found) == copysign(1.0, expected) or \
            found != found and expected != expected
    if cls is complex:
        return same_value(found.real, expected.real) and same_value(found.imag, expected.imag)
    if cls is tuple or cls is frozenset:
        return same_values(tuple(found), tuple(expected))
    if cls is range or cls is slice:
        return same_values((found.start, found.stop, found.step), (expected.start, expected.stop, expected.step))
    return False


def same_values(found, expected):
    """Whether the elements of a container, in order, cannot be told from those of the list or tuple `expected`."""
    if len(found) != len(expected):
        return False
    at = 0
    for one in found:
        if not same_value(one, expected[at]):
            return False
        at += 1
    return True


def is_constant(found):
    """Whether a class that has `found` gives it as it is, every time: no function of a program's is asked."""
    cls = type(found)
    return not cls.__flags__ & HEAP_TYPE or not hasattr(cls, "__get__")
