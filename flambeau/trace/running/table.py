"""What native code reads and writes while a program runs: a table of addresses, cells of numbers, working memory.

table.pyx has these names in C, where words are stored without Python's numbers, and the call is the machine's own; see
Note [One source, two speeds] in base/core.py. What is put into them, and when, stands in bound.py alone.
"""
from ..value import Value


class AddressTable:
    """The words of one run: `addresses` and `numbers` are arrays of them, to be handed to a device. `words`, `cells`
    and `reals` are what is written to: the same addresses, and the same numbers as integers or as floats.

    `call()`, of a program that is one call of the CPU's, runs it: no interrupt comes between its beginning and its end.
    `keeps_turn`: no other thread is let in meanwhile. `again`: runs another device's once more over the same words.
    """

    __slots__ = ("addresses", "numbers", "words", "cells", "reals", "call", "again", "keeps_turn")

    def __init__(self, addresses, numbers, stretch, direct):
        self.addresses = self.words = addresses
        self.numbers = self.cells = numbers
        self.reals = memoryview(numbers).cast("B").cast("d")
        self.again = stretch.bound(addresses, numbers) if stretch is not None and stretch.lasts else None
        self.call = self.again if direct else None


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
            table.words[index] = block.address
        return taken

    def give(self, taken):
        """Keep what was taken, which nothing reads any more, for the next run."""


def taken_spare(spec, size_class):
    """(array, address) of `spec`, from the spare arrays, which are kept where the core is compiled."""
    return spec.device.backend.blank(spec)


def fill(value, made, whole_block):
    """Make a pending Value ready with `made`, (array, address); `whole_block`: the array may be a spare one when the
    Value is gone."""
    value.array, value._address = made
    value._memory = value.trace = None


def new_value(spec, made, whole_block):
    """A ready Value of `made`; see `fill`."""
    value = Value()
    value.spec = spec
    fill(value, made, whole_block)
    return value
