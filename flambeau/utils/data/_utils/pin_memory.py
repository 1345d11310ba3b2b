"""Batches in page-locked memory, and on a device: every tensor in a structure of batches, and what knows how itself."""
import copy
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence

from ....tensor.tensor import Tensor


def mapped(data, change, method):
    """`data` with `change(x)` in the place of every tensor x in it, and of what else has a method of that name.

    Containers keep their types, where one can be made like it; as in PyTorch, a copy that is written to where it may
    have more than its elements.
    """
    if isinstance(data, Tensor) or hasattr(data, method):
        return change(data)
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, Mapping):
        made = {key: mapped(value, change, method) for key, value in data.items()}
        try:
            if not isinstance(data, MutableMapping):
                return type(data)(made)
            twin = copy.copy(data)
            twin.update(made)
            return twin
        except TypeError:                     # a mapping that cannot be copied, or made from another
            return made
    if isinstance(data, tuple):
        made = [mapped(value, change, method) for value in data]
        return type(data)(*made) if hasattr(data, "_fields") else type(data)(made)
    if isinstance(data, Sequence):
        made = [mapped(value, change, method) for value in data]
        try:
            if not isinstance(data, MutableSequence):
                return type(data)(made)
            twin = copy.copy(data)
            for i, value in enumerate(made):
                twin[i] = value
            return twin
        except TypeError:                     # a range, say
            return made
    return data


def pin_memory(data, device=None):
    """A batch with its tensors in page-locked memory; an object of another kind says how itself, by `pin_memory()`."""
    return mapped(data, lambda one: one.pin_memory(), "pin_memory")
