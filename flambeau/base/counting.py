"""Count references, for ownership.py alone; counting.pyx has these names in C.

See Note [One source, two speeds] in core.py.
"""
import sys

count = getattr(sys, "getrefcount", None)


def counts(values):
    """For each thing in the list `values` a number that grows with how many hold it; ownership.py says from where."""
    return list(map(count, values))


def count_in(values, at):
    """The same of one thing in the list."""
    return count(values[at])


def count_at(get, owner):
    """The same of what `get(owner)` gives: C code takes it from where it stands to the counter."""
    return next(map(count, map(get, (owner,))))
