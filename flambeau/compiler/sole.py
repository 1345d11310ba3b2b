"""Whether a replay may write over memory: who else sees it, ownership.py knows.

sole.pyx has these names in C, and counts references in the places where they stand.

See Note [One source, two speeds] in base/core.py.
"""
from ..base.ownership import may_donate, may_recycle_grad


def are_sole(values, places):
    """Whether nobody sees the memory of the Values in these places of the tuple `values` but their storages and it."""
    return may_donate([values[at] for at in places])


def is_sole_grad(tensor):
    """Whether nobody sees the memory of a tensor's gradient but through that tensor."""
    return may_recycle_grad(tensor)
