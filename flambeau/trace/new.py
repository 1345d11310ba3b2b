"""New objects of the core, empty, to be filled in: new.pyx has these names in C.

See Note [One source, two speeds] in base/core.py.
"""
from .value import Storage, TensorBase, Value

value, storage = Value, Storage       # value(), storage()
tensor = TensorBase.__new__           # tensor(kind): one of class `kind`


def instance(base, kind):
    """An object of class `kind`, which derives from the class `base` of the core."""
    return base.__new__(kind)
