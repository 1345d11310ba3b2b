"""New objects of the core, empty, to be filled in: new.pyx has these names in C.

See Note [One source, two speeds] in base/core.py.
"""
from ..value import Storage, TensorBase, Value
from .instructions import Instruction

value, storage, instruction = Value, Storage, Instruction     # value(), storage(), instruction()
tensor = TensorBase.__new__           # tensor(cls): one of class `cls`


def wrapper(cls):
    """wrap(storage, spec, offset=0): a tensor of class `cls` that looks at `storage`, without a history."""
    def wrap(storage, spec, offset=0):
        made = tensor(cls)
        made._storage = storage
        made._spec = spec
        made._offset = offset
        made._node = made._base = made._cut = None
        made._requires_grad = False
        return made
    return wrap


def instance(base, cls):
    """An object of class `cls`, which derives from the class `base` of the core."""
    return base.__new__(cls)
