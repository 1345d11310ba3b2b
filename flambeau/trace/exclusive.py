"""Whether memory may be written over: who else sees it, ownership.py knows.

exclusive.pyx has these names in C, and counts references in the places where they stand; see Note [One source, two
speeds] in base/core.py.
"""
from ..base import ownership


def owns_memory(value):
    """Whether nobody but the Value holds its array, or the bytes behind it, and they may be written."""
    return ownership.owns_memory(value)


def are_sole(values, places):
    """Whether nobody sees the memory of the Values in these places of the tuple `values` but their storages and it."""
    return ownership.may_donate([values[at] for at in places])


def is_sole_grad(tensor):
    """Whether a tensor's gradient is there, and nobody sees its memory but through that tensor."""
    return tensor._grad._storage.value.trace is None and ownership.may_recycle_grad(tensor)
