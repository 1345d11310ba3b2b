"""A tensor's `__dict__`: the attributes that a program hung on it. Flambeau's fields lie beside them, hidden.

`nn.Parameter(t, **p.__dict__)`, as accelerate and diffusers write it, asks for what the program knows of.

Every field of ours starts with an underscore. Any other name that PyTorch's tensors do not have is the program's to
use: `t.spec`, `t.offset`, `t.site` are attributes like any other.
"""
from types import GetSetDescriptorType

from ..base.core import COMPILED
from ..trace.value import TensorBase

if COMPILED:
    class TensorFields(TensorBase):
        """A compiled TensorBase has room for its own fields, and no dictionary: here is one, for all others."""
else:
    TensorFields = TensorBase                         # type: ignore[misc]  # its dictionary holds the common fields, too


fields = vars(TensorFields)["__dict__"].__get__       # of a tensor: its dictionary, with ours and the program's
OWN_FIELDS: set = set()                               # the names that are ours; tensor.py fills it
_PLACES = tuple(name for name, attribute in vars(TensorBase).items()      # the fields that a compiled one has room for
                if isinstance(attribute, GetSetDescriptorType) and not name.startswith("__"))


def has_storage(tensor):
    """Whether a tensor is one already, and not still being made; a subclass is not asked."""
    try:
        return object.__getattribute__(tensor, "_storage") is not None
    except AttributeError:
        return False


def swap_fields(one, two):
    """Give each of two tensors all that the other holds."""
    first, second = ({name: getattr(tensor, name) for name in _PLACES} for tensor in (one, two))
    own, other = dict(fields(one)), dict(fields(two))
    for tensor, slots, attributes in ((one, second, other), (two, first, own)):
        for name, thing in slots.items():
            setattr(tensor, name, thing)
        fields(tensor).clear()
        fields(tensor).update(attributes)


class UserAttributes(dict):
    """The program's attributes of a tensor as they are now. A change of this dictionary is one of the tensor."""

    __slots__ = ("_fields",)

    def __init__(self, namespace):
        super().__init__({name: found for name, found in namespace.items() if name not in OWN_FIELDS})
        self._fields = namespace

    def __setitem__(self, name, value):
        if name in OWN_FIELDS:
            raise AttributeError(f"{name!r} is a field of Flambeau's own tensors; call the attribute something else",
                                 name=name)
        self._fields[name] = value
        dict.__setitem__(self, name, value)

    def __delitem__(self, name):
        dict.__delitem__(self, name)
        self._fields.pop(name, None)

    def update(self, *args, **kwargs):
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def __ior__(self, other):  # type: ignore[misc]  # dict's `|` gives a dict, and this is written through
        self.update(other)
        return self

    def setdefault(self, name, default=None):
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name, *default):
        found = dict.pop(self, name, *default)
        if name not in OWN_FIELDS:
            self._fields.pop(name, None)
        return found

    def popitem(self):
        name, found = dict.popitem(self)
        self._fields.pop(name, None)
        return name, found

    def clear(self):
        for name in list(self):
            del self[name]

    def copy(self):
        return dict(self)

    __copy__ = copy

    def __deepcopy__(self, memo):
        from copy import deepcopy
        return deepcopy(dict(self), memo)

    def __reduce__(self):
        return dict, (dict(self),)


def attributes(tensor):
    """`tensor.__dict__`."""
    return UserAttributes(fields(tensor))


def replace_attributes(tensor, new):
    """`tensor.__dict__ = new`: other attributes in the place of the program's."""
    old = attributes(tensor)
    new = dict(new)                                   # it may be the same
    old.clear()
    old.update(new)


USER_ATTRIBUTES = property(attributes, replace_attributes)                # what `__dict__` is in a class of tensors


def hides_attributes(bases):
    """Whether a class of tensors with these bases would take Python's own `__dict__` from one before the tensor.

    A plain class has one, so `class Named(Mixin, Tensor)` would show our fields, and lose them where a method of the
    mixin sets `self.__dict__`. monai's MetaTensor is made that way.
    """
    for base in bases:
        for cls in base.__mro__:
            found = vars(cls).get("__dict__")
            if found is not None:
                return isinstance(found, GetSetDescriptorType) and cls is not TensorFields
    return False
