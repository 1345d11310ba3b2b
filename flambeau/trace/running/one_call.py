"""Run a program that is all native: one_call.pyx does in C what `Program.run` does, where there is no observer.

See Note [One source, two speeds] in base/core.py. What stands here in Python is for replays (compiler/bound.py).
"""
from ..value import Value


def one_call(program):
    """What runs the trace of `program`, and empties it; None: `Program.run` does."""


def bound_call(program, table, cells):
    """A function without arguments that runs a program of the CPU's over arrays of words, which it keeps."""
    return program.bound(table, cells)


def new_value(spec, made, whole_block):
    """A ready Value of `made`, (array, address); `whole_block`: the array may be a spare one when the Value is gone."""
    value = Value()
    value.array, value._address = made
    value.spec, value.trace, value._memory = spec, None, None
    return value


def taken_spare(spec, size_class):
    """(array, address) of `spec`, from the spare arrays, which are kept where the core is compiled."""
    return spec.device.backend.blank(spec)


class WorkingMemory:
    """The `blocks` of a program of the CPU's, (device, bytes, index of the table)."""

    def __init__(self, blocks):
        self.blocks = blocks

    def take(self, table):
        """Memory for one run, whose addresses stand in `table` from here on."""
        taken = []
        for device, nbytes, index in self.blocks:
            block = device.backend.block(nbytes)
            taken.append(block)
            table[index] = block.address
        return taken

    def give(self, taken):
        """Keep what was taken, which nothing reads any more, for the next run."""
