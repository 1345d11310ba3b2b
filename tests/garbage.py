"""Garbage in memory that nobody has written, other garbage in every process.

Fresh memory is mostly zeros, and what comes back to a pool is mostly what it was before, so a test that compares memory
nobody wrote passes until the machine is busy; and so does a kernel that reads what it should have written first. With
`FLAMBEAU_TEST_GARBAGE=1` every buffer starts with bytes of a kind that changes from one to the next, and both fail.
"""
import ctypes
import functools
import itertools
import os
import sys

import numpy as np


def spread():
    """From now on, in this process."""
    import flambeau  # noqa: F401  (every module that has taken one of these names is there)
    from flambeau.backends.cpu.memory import allocator
    from flambeau.base.spec import CPU
    kinds = itertools.cycle(os.urandom(251))

    def filled(array):
        if array.flags.owndata and array.nbytes and not array.dtype.hasobject:
            ctypes.memset(array.ctypes.data, next(kinds), array.nbytes)
        return array

    def block(make):
        @functools.wraps(make)
        def dirty(nbytes):
            made = make(nbytes)
            ctypes.memset(made.address, next(kinds), made.nbytes)
            return made
        return dirty

    def blank(make):
        @functools.wraps(make)
        def dirty(spec):
            array, address = make(spec)
            ctypes.memset(address, next(kinds), spec.nbytes)
            return array, address
        return dirty

    def empty(make):
        @functools.wraps(make)
        def dirty(*args, **kwargs):
            return filled(make(*args, **kwargs))
        return dirty

    for module, name, wrap in ((allocator, "block", block), (allocator, "blank", blank), (np, "empty", empty),
                               (np, "empty_like", empty)):
        clean, dirty = getattr(module, name), wrap(getattr(module, name))
        for other in [*sys.modules.values()]:
            if getattr(other, "__dict__", {}).get(name) is clean:
                setattr(other, name, dirty)
    CPU.backend.block, CPU.backend.blank = allocator.block, allocator.blank
