"""How a copy writes: to attributes, items and names. See follow.py."""
import types

from ..tensor.tensor import Tensor
from ..tensor.user_attributes import OWN_FIELDS
from .journal import FUNCTION_TYPES, MAPPING_TYPES, MISSING, attributes_of, is_engine, short
from .traced import NUMBER_TYPES, TRACED


class Writing:
    """The part of a Follower that writes."""

    def _put(self, kind, holder, key, path, before, value, write):
        """Write `value` to a place of a seen object; what it came from is remembered."""
        self.journal.now_or_never(f"{path} is written")
        edge = self.journal.find(kind, holder, key)
        if edge is None:
            edge = self.journal.edge(kind, holder, key, before, path, blind=before is not MISSING)
        elif not edge.asked:                                 # an argument's, which was not read
            edge.blind = edge.asked = True
        self.stored.pop(edge, None)
        self.written.add(edge)
        self.put.add(edge)
        if self._is_bare(edge):
            write(self.plain(value))
        elif type(value) in TRACED:
            write(value._value)
            self.stored[edge] = value
        elif type(value) is tuple and is_numbers(value) and any(type(x) in TRACED for x in value):
            write(tuple([x._value if type(x) in TRACED else x for x in value]))
            self.stored[edge] = value
        else:
            write(self.plain(value))

    def _is_bare(self, edge):
        return edge in self.bare or id(edge.holder) in self.journal._walked

    def store_attr(self, value, thing, name):
        """`thing.name = value`."""
        if not self.live():
            return setattr(thing, name, value)
        cls = type(thing)
        if isinstance(thing, Tensor):
            if self._sees(thing):
                self.journal.now_or_never(f"{self.journal.path(thing)}.{name} is set")
            if name == "grad" and self._sees(thing):
                self.journal.asks_grad = True
            if name not in OWN_FIELDS and self._sees(thing) and not hasattr(cls, name):
                return self._put("attribute", thing, name, f"{self.journal.path(thing)}.{name}",
                                 vars(thing).get(name, MISSING), value, lambda v: setattr(thing, name, v))
            return setattr(thing, name, self.plain(value))
        if is_engine(cls):
            return setattr(thing, name, self.plain(value))
        setter = self._lookup(cls, "__setattr__")
        if isinstance(setter, types.FunctionType):
            self._guard_lookup(cls, "__setattr__")
            return self.call(setter, (thing, name, value))
        self._set(thing, name, value, setattr)

    def _set(self, thing, name, value, write):
        """What `object.__setattr__` does; `write` is that, or that of another class."""
        cls, path = type(thing), f"{self.journal.path(thing)}.{name}"
        if isinstance(thing, type):
            if not self._sees(thing):
                self.journal.see(thing, thing.__name__)
            return self._put("attribute", thing, name, path, vars(thing).get(name, MISSING), value,
                             lambda v: setattr(thing, name, v))
        found = self._lookup(cls, name)
        if isinstance(found, property) and isinstance(found.fset, FUNCTION_TYPES):
            self._guard_lookup(cls, name)
            return self.call(found.fset, (thing, value))
        if found is not MISSING and hasattr(type(found), "__set__"):
            if self._sees(thing) and isinstance(found, types.MemberDescriptorType):
                return self._put("slot", thing, name, path, getattr(thing, name, MISSING), value,
                                 lambda v: write(thing, name, v))
            return write(thing, name, self.plain(value))
        if not self._sees(thing):
            return write(thing, name, self.plain(value))
        attributes = attributes_of(thing)
        if not isinstance(attributes, dict):
            return write(self.escape(thing), name, self.plain(value))
        if isinstance(thing, types.ModuleType):
            return self._put("item", attributes, name, path, attributes.get(name, MISSING), value,
                             lambda v: attributes.__setitem__(name, v))
        self._put("attribute", thing, name, path, attributes.get(name, MISSING), value,
                  lambda v: write(thing, name, v))

    def store_item(self, value, thing, key):
        """`thing[key] = value`."""
        if not self.live():
            thing[key] = value
            return
        cls, journal = type(thing), self.journal
        if isinstance(thing, Tensor):
            thing[self._index(key)] = self.escape(value)
        elif cls is list and type(key) in (int, bool, *TRACED) or cls in MAPPING_TYPES:
            key = self.key(key)
            if not self._sees(thing):
                thing[key] = self.plain(value) if id(thing) in self.published else value
                return
            if cls is list:                                 # the place is there
                journal.size(thing, journal.path(thing))
                key += len(thing) if key < 0 else 0
            if cls is list and not 0 <= key < len(thing):
                thing[key] = value                           # an IndexError
            before = thing[key] if cls is list else dict.get(thing, key, MISSING)
            self._put("item", thing, key, f"{journal.path(thing)}[{short(key)}]", before, value,
                      lambda v: thing.__setitem__(key, v))
        elif cls is list and type(key) is slice and self._sees(thing) and type(value) in (list, tuple) \
                and len(value) == len(range(*key.indices(len(thing)))):
            for index, part in zip(range(*key.indices(len(thing))), list(self.iterate(value)), strict=True):
                self.store_item(part, thing, index)
            journal.size(thing, journal.path(thing))
        elif isinstance(getattr(cls, "__setitem__", None), types.FunctionType):
            self._guard_lookup(cls, "__setitem__")
            self.call(cls.__setitem__, (thing, key, value))
        else:
            self.escape(thing)[self.escape(key)] = self.escape(value)

    def delete_attr(self, thing, name):
        if self.live() and self._sees(thing) and not isinstance(thing, Tensor):
            deleter = self._lookup(type(thing), "__delattr__")
            if isinstance(deleter, types.FunctionType):
                return self.call(deleter, (thing, name))
            self.escape(thing)
        delattr(thing, name)

    def delete_item(self, thing, key):
        if self.live():
            thing, key = self.escape(thing), self.escape(key)
        del thing[key]


def is_numbers(x):
    return all(type(part) in NUMBER_TYPES for part in x)
