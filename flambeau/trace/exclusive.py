"""Whether memory may be written over: who else sees it, ownership.py knows.

exclusive.pyx has these names in C, and counts references in the places where they stand; see Note [One source, two
speeds] in base/core.py.
"""
from ..base import ownership


def owns_memory(value):
    """Whether nothing but the Value holds its array, or the bytes behind it, and they may be written."""
    return ownership.owns_memory(value)


def are_sole(values, positions):
    """Whether only their storages and the tuple `values` see the memory of the Values at these positions in it."""
    return ownership.may_donate([values[at] for at in positions])


def is_sole_grad(tensor):
    """Whether a tensor's gradient is there, and its memory is seen through that tensor alone."""
    return tensor._grad._storage.value.trace is None and ownership.may_recycle_grad(tensor)
