"""How a copy reads: attributes, items, and what a loop goes through. See follow.py."""
import operator
import threading
import types
from collections import OrderedDict, deque, namedtuple
from functools import partial

from ..base.lazy import names_held
from ..tensor.tensor import Tensor
from .journal import FUNCTION_TYPES, MAPPING_TYPES, MISSING, PLAIN_TYPES, attributes_of, is_engine, is_sequence, short
from .moving import ASK_OFFSET, slice_of
from .traced import TRACED, plain as fixed
from .watch import is_engine_function, is_followed_file, is_ours

LOOKED_UP = (types.FunctionType, staticmethod, classmethod, property)
# Attributes of these are looked up in one way: the class's descriptors, the dictionary, the class. Each type has a
# wrapper of its own around the same function.
GENERIC_LOOKUPS = frozenset(cls.__getattribute__ for cls in (
    object, tuple, list, dict, set, frozenset, int, float, complex, str, bytes, deque, OrderedDict, BaseException,
    partial))
# how a named tuple's class finds a field, by its number
FIELD_GETTER = type(vars(namedtuple("One", "field"))["field"])


class Reading:
    """The part of a Follower that reads."""

    def attr(self, thing, name):
        """`thing.name`."""
        if type(thing) in TRACED:
            return thing if name == "real" else getattr(fixed(thing), name)
        if not self.live():
            return getattr(thing, name)
        if isinstance(thing, Tensor):
            return self._tensor_attr(thing, name)
        if isinstance(thing, types.ModuleType):
            return self._module_attr(thing, name)
        if isinstance(thing, type):
            return self._class_attr(thing, name)
        cls = type(thing)
        if is_engine(cls) or cls.__module__ == "builtins" and cls not in (types.FunctionType, super):
            return getattr(thing, name)
        if cls is types.FunctionType:
            if not self._sees(thing) or is_engine_function(thing):
                return getattr(thing, name)
            path = f"{self.journal.path(thing)}.{name}"
            if name == "__dict__":
                self.journal.own(vars(thing), thing)
                return vars(thing)
            if name in vars(thing):
                return self.place("attribute", thing, name, path, vars(thing)[name])
            if hasattr(types.FunctionType, name):
                return self.place("slot", thing, name, path, getattr(thing, name))
            self.journal.missing(vars(thing), name, thing)
            return getattr(thing, name)
        return self._instance_attr(thing, cls, name)

    def _tensor_attr(self, tensor, name):
        journal = self.journal
        if name in ASK_OFFSET:
            journal.fixed.add(tensor._storage)
        if name in ("grad", "_grad", "_version", "backward") and self._sees(tensor):
            journal.now_or_never(f"{journal.path(tensor)}.{name} is read")
        if name in ("grad", "_grad") and self._sees(tensor):
            journal.asks_grad = True
            return getattr(tensor, name)
        attributes = vars(tensor)
        if name in attributes and self._sees(tensor):
            return self.place("attribute", tensor, name, f"{journal.path(tensor)}.{name}", attributes[name])
        cls = type(tensor)
        if not is_engine(cls) and not is_ours(cls):
            found = self._lookup(cls, name)
            if isinstance(found, property) and isinstance(found.fget, types.FunctionType):
                self._guard_lookup(cls, name)
                return self.call(found.fget, (tensor,))
            if found is not MISSING:
                self._guard_lookup(cls, name)
        if self._sees(tensor) and name not in attributes and not hasattr(cls, name):
            journal.missing(attributes, name, tensor)
        return getattr(tensor, name)

    def _module_attr(self, module, name):
        namespace = names_held(module)
        if name in namespace:
            self.journal.see(module, module.__name__)
            return self.place("item", namespace, name, f"{self.journal.path(module)}.{name}", namespace[name])
        found = namespace.get("__getattr__")
        if isinstance(found, types.FunctionType) and is_followed_file(found.__code__.co_filename) \
                and not is_ours(module):
            self.journal.missing(namespace, name)
            return self.call(found, (name,))
        return getattr(module, name)

    @staticmethod
    def _lookup(cls, name):
        """What a class, by itself or a base, holds under a name; MISSING for nothing."""
        for base in cls.__mro__:
            if name in vars(base):
                return vars(base)[name]
        return MISSING

    def _guard_lookup(self, cls, name):
        if is_engine(cls):
            return
        if (cls, name) not in self.journal.lookups:
            found = self._lookup(cls, name)
            if not isinstance(found, LOOKED_UP):             # a descriptor, which getattr() of the class would ask
                self._guard_lookup_static(cls, name, found)
                return
            found = getattr(cls, name)
            self.journal.lookups[cls, name] = getattr(found, "__func__", found)

    def _class_attr(self, cls, name):
        """An attribute of a class: numbers and tensors stand in a place, functions are looked up."""
        if is_engine(cls) or cls.__module__ == "builtins":
            return getattr(cls, name)
        self.journal.mros[cls] = None
        meta = type(cls)
        if name in vars(type):                               # __name__, __doc__, __dict__, ...
            found = getattr(cls, name)
            if getattr(cls, name) is not found and not isinstance(found, (types.MethodType, types.MethodWrapperType,
                                                                          types.BuiltinMethodType)):
                self.refuse(f"{cls.__name__}.{name} at {self._line()} shows all of a class")
            elif getattr(cls, name) is found:
                self.journal.see(cls, cls.__name__)
                return self.place("slot", cls, name, f"{cls.__name__}.{name}", found)
            return found
        found = MISSING if meta is type else self._lookup(meta, name)
        if isinstance(found, property) and isinstance(found.fget, types.FunctionType):
            self._guard_lookup(meta, name)
            return self.call(found.fget, (cls,))
        for base in cls.__mro__:
            namespace = vars(base)
            if name not in namespace:
                if not is_engine(base) and base.__module__ != "builtins":
                    self.journal.see(base, base.__name__)
                    self.journal.missing(namespace, name, base)
                continue
            child = namespace[name]
            if hasattr(type(child), "__get__") and not isinstance(child, type):
                if isinstance(type(child).__get__, types.FunctionType):        # a descriptor written in Python
                    self._guard_lookup_static(cls, name, child)
                    return self.call(type(child).__get__, (child, None, cls))
                self._guard_lookup(cls, name)
                return getattr(cls, name)
            if is_engine(base):
                return getattr(cls, name)
            self.journal.see(base, base.__name__)
            return self.place("attribute", base, name, f"{base.__name__}.{name}", child)
        if isinstance(found, types.FunctionType):
            self._guard_lookup(meta, name)
        elif found is not MISSING:
            return self._class_attr(meta, name)
        return getattr(cls, name)

    def _instance_attr(self, thing, cls, name):
        journal, seen = self.journal, self._sees(thing)
        if cls.__getattribute__ not in GENERIC_LOOKUPS and not isinstance(thing, super):
            if isinstance(cls.__getattribute__, types.FunctionType):
                return self.call(cls.__getattribute__, (thing, name))
            if not issubclass(cls, (types.SimpleNamespace, threading.local)):
                self.escape(thing)
                return getattr(thing, name)
        if isinstance(thing, super):
            return self._super_attr(thing, name)
        if seen:
            journal.typed(thing)
            journal.mros[cls] = None
        found, path = self._lookup(cls, name), journal.path(thing)
        found_cls = type(found)
        if name == "__class__":
            return cls
        attributes = attributes_of(thing) if name == "__dict__" and found_cls is not property else None
        if isinstance(attributes, dict):
            if id(thing) in journal.loose:
                self.refuse(f"all attributes of {path} are asked for, and it is another object at every call")
            elif seen:
                journal.own(attributes, thing)
            return attributes
        if found is not MISSING and (hasattr(found_cls, "__set__") or hasattr(found_cls, "__delete__")):
            return self._descriptor(thing, cls, name, found, seen)
        attributes = attributes_of(thing)
        if isinstance(attributes, dict):
            if name in attributes:
                return self.place("attribute", thing, name, f"{path}.{name}", attributes[name]) if seen \
                    else attributes[name]
            if seen:
                journal.missing(attributes, name, thing)
        if found is not MISSING:
            if isinstance(found, (types.FunctionType, staticmethod, classmethod)):
                self._guard_lookup(cls, name)
                return getattr(thing, name)
            get = getattr(found_cls, "__get__", None)
            if get is None or isinstance(found, type):
                return self._class_attr(cls, name)
            self._guard_lookup_static(cls, name, found)
            if isinstance(get, types.FunctionType):
                return self.call(get, (found, thing, cls))
            return getattr(thing, name)
        return self._by_getattr(thing, cls, name, seen)

    def _super_attr(self, thing, name):
        found = getattr(thing, name)
        function = getattr(found, "__func__", None)
        for base in type(thing.__self__).__mro__ if thing.__self__ is not None else ():
            if function is not None and vars(base).get(name) is function:
                self._guard_lookup(base, name)
        return found

    def _descriptor(self, thing, cls, name, found, seen):
        """What a descriptor that comes before the attributes of `thing` gives."""
        path, found_cls = self.journal.path(thing), type(found)
        if isinstance(found, property) and found_cls.__get__ is property.__get__ \
                and isinstance(found.fget, FUNCTION_TYPES):
            self._guard_lookup_static(cls, name, found)
            return self.call(found.fget, (thing,))
        if found_cls is types.MemberDescriptorType:
            child = getattr(thing, name, MISSING)
            if seen:
                child = self.place("slot", thing, name, f"{path}.{name}", child)
            return getattr(thing, name) if child is MISSING else child
        if isinstance(getattr(found_cls, "__get__", None), types.FunctionType):
            self._guard_lookup_static(cls, name, found)
            return self.call(found_cls.__get__, (found, thing, cls))
        if found_cls is FIELD_GETTER and is_sequence(cls):
            at = found.__reduce__()[1][0]
            return self._element(thing, at) if seen else tuple.__getitem__(thing, at)
        child = getattr(thing, name)                     # what C code computes
        return self.place("slot", thing, name, f"{path}.{name}", child) if seen and type(child) in PLAIN_TYPES \
            else child

    def _by_getattr(self, thing, cls, name, seen):
        """What is neither among the attributes of `thing` nor of its class."""
        journal = self.journal
        if seen:
            for base in cls.__mro__:                         # one of these may get it later
                if base.__module__ != "builtins" and not is_ours(base):
                    journal.see(base, base.__name__)
                    journal.missing(vars(base), name, base)
        getter = self._lookup(cls, "__getattr__")
        if isinstance(getter, types.FunctionType):
            self._guard_lookup(cls, "__getattr__")
            return self.call(getter, (thing, name))
        child = getattr(thing, name)
        if seen:
            self.refuse(f"where {journal.path(thing)}.{name} stands cannot be seen")
        return child

    def _guard_lookup_static(self, cls, name, found):
        """A descriptor, which `getattr` of the class would ask for something."""
        for base in cls.__mro__:
            if vars(base).get(name) is found and not is_engine(base):
                self.journal.see(base, base.__name__)
                self.journal.edge("attribute", base, name, found, f"{base.__name__}.{name}")
                return

    def item(self, thing, key):
        """`thing[key]`."""
        if not self.live():
            return thing[key]
        if isinstance(thing, Tensor):
            found = slice_of(self, thing, key)
            return thing[self._index(key)] if found is None else found
        cls, journal = type(thing), self.journal
        if is_sequence(cls) and type(key) in (int, bool, *TRACED):
            if not self._sees(thing):
                return thing[self.plain(key)]
            key = operator.index(self.plain(key))
            if key < 0:
                journal.size(thing, journal.path(thing))
                key += len(thing)
            if not 0 <= key < len(thing):
                journal.size(thing, journal.path(thing))
                return thing[key]
            return self._element(thing, key)
        if cls in (list, tuple) and type(key) is slice:
            if not self._sees(thing):
                return thing[key]
            journal.size(thing, journal.path(thing))
            return cls([self._element(thing, i) for i in range(*key.indices(len(thing)))])
        if cls in MAPPING_TYPES:
            key = self.key(key)
            if not self._sees(thing):
                return thing[key]
            if key in thing:
                return self._entry(thing, key)
            if cls is MAPPING_TYPES[2]:
                self.escape(thing)
            else:
                journal.missing(thing, key)
            return thing[key]
        getter = getattr(cls, "__getitem__", None)
        if isinstance(getter, types.FunctionType):
            self._guard_lookup(cls, "__getitem__")
            journal.typed(thing)
            return self.call(getter, (thing, key))
        if isinstance(thing, type):
            return thing[self.plain(key)]                    # list[int], Generic[T]
        return self.escape(thing)[self.escape(key)]

    def _index(self, key):
        """An index into a tensor; a list in it is looked into by the engine."""
        if type(key) is tuple:
            return tuple([self._index(part) for part in self.unpacked(key)])
        return key if isinstance(key, Tensor) or key is None or key is ... else self.escape(key)

    def _element(self, thing, index):
        """An element of a seen list or tuple."""
        path, child = f"{self.journal.path(thing)}[{index}]", thing[index]
        if isinstance(thing, tuple) and self.journal.find("item", thing, index) is None:
            self.journal.see(child, path)                    # a tuple holds the same for as long as it lives
            return child
        return self.place("item", thing, index, path, child)

    def _entry(self, thing, key):
        """What a seen dictionary holds under a key that it has."""
        return self.place("item", thing, key, f"{self.journal.path(thing)}[{short(key)}]", dict.__getitem__(thing, key))

    def slice(self, start, stop, step):
        return slice(*[part if type(part) in TRACED else self.plain(part) for part in (start, stop, step)])

    # --- going through -----------------------------------------------------------------------------------------------

    def iterate(self, thing):
        """What a loop goes through."""
        if not self.live() or isinstance(thing, Tensor):
            return thing
        cls, journal = type(thing), self.journal
        if self._sees(thing) or cls in MAPPING_TYPES:
            if is_sequence(cls):
                journal.size(thing, journal.path(thing))
                return self._elements(thing)
            if cls in MAPPING_TYPES:
                if self._sees(thing):
                    journal.size(thing, journal.path(thing))
                    for key in thing:
                        journal.see(key, f"a key of {journal.path(thing)}")
                return thing
        method = getattr(cls, "__iter__", None)
        if isinstance(method, types.FunctionType) and not is_engine(cls):
            self._guard_lookup(cls, "__iter__")
            journal.typed(thing)
            thing = self.call(method, (thing,))
            cls = type(thing)
        if isinstance(getattr(cls, "__next__", None), types.FunctionType):
            self._guard_lookup(cls, "__next__")
            return self._steps(thing, cls.__next__)
        if self._sees(thing) and not isinstance(thing, (str, range)):
            self.escape(thing)
        return thing

    def _elements(self, thing):
        index = 0
        while index < len(thing):
            yield self._element(thing, index) if self.live() else thing[index]
            index += 1

    def _steps(self, thing, step):
        while True:
            try:
                found = self.call(step, (thing,))
            except StopIteration:
                return
            yield found

    def pairs(self, thing):
        for part in thing:
            yield self.unpacked(part)

    def keys(self, thing):
        for part in thing:
            yield self.key(part)

    def plained(self, thing):
        for part in thing:
            yield self.plain(part)

    def unpacked(self, thing):
        """What is unpacked into names."""
        if not self.live() or type(thing) is tuple and not self._sees(thing):
            return thing
        return self.iterate(thing)

    @staticmethod
    def tuple(*parts):
        return parts

    def mapping(self, thing):
        """What is unpacked by `**`."""
        if not self.live() or not self._sees(thing):
            return thing
        if type(thing) in MAPPING_TYPES:
            self.journal.size(thing, self.journal.path(thing))
            return {key: self._entry(thing, key) for key in thing}
        return self.escape(thing)

    @staticmethod
    def keywords(*pairs):
        """The keyword arguments of a call, from pairs and, without a name, from mappings."""
        found = {}
        for name, value in pairs:
            if name is None and not hasattr(value, "keys"):
                raise TypeError(f"argument after ** must be a mapping, not {type(value).__name__}")
            new = {name: value} if name is not None else {key: value[key] for key in value.keys()}
            for key in new:
                if key in found:
                    raise TypeError(f"got multiple values for keyword argument '{key}'")
            found.update(new)
        return found
