"""Memory of the CPU that several processes see: files without a name, mapped by each of them.

The system forgets such a file with the last process that has it open or mapped, however that one ends, so nothing is
ever left behind. It is handed on by its descriptor: inherited by a process that is forked, sent to any other.
"""
import mmap
import os
import sys

import numpy as np

from ....base.weakbag import WeakTable, at_end

WITHOUT_OWN_FILE = {"trackfd": False} if sys.version_info >= (3, 13) and os.name == "posix" else {}
BLOCK_ALIGNMENT_BYTES = 64    # of what lies in a block: vectors are read from there

_blocks = WeakTable()         # identity of a file → its block here


class SharedBlock:
    """A file in memory, mapped. `cells` holds what lies in it, by its offset, as long as that is held elsewhere."""

    def __init__(self, file, nbytes):
        self.file, self.nbytes = file, nbytes
        self.cells = WeakTable()
        try:
            self._map = mmap.mmap(file, nbytes, **WITHOUT_OWN_FILE)           # shared, to be read and written
        except BaseException:
            os.close(file)
            raise
        at_end(self, os.close, file)          # the mapping ends with the last array over it
        _blocks[identity(file)] = self

    @classmethod
    def made(cls, nbytes):
        """A new block of zeros."""
        file = nameless_file()
        try:
            os.ftruncate(file, nbytes)
        except BaseException:
            os.close(file)
            raise
        return cls(file, nbytes)

    @classmethod
    def over(cls, file, nbytes):
        """The block of an open file, which is taken over: the one that is known, or a new one."""
        found = _blocks.get(identity(file))
        if found is None:
            return cls(file, nbytes)
        os.close(file)
        return found

    def bytes_at(self, offset, nbytes):
        """A part of the memory as an array, which keeps it alive."""
        return np.frombuffer(self._map, np.uint8, nbytes, offset)

    def __reduce__(self):
        """For the pickler of `multiprocessing` alone: the other process gets the open file."""
        from multiprocessing import reduction
        return received, (reduction.DupFd(self.file), self.nbytes)


def received(file, nbytes):
    """The block of a file that another process has sent."""
    try:
        file = file.detach()
    except OSError as error:
        raise RuntimeError("the process that has sent a tensor ended before the tensor was received here; it has to "
                           "live until then, or to send a copy (tensor.numpy())") from error
    return SharedBlock.over(file, nbytes)


def identity(file):
    """What tells an open file from all others, in every process."""
    about = os.fstat(file)
    return about.st_dev, about.st_ino


def nameless_file():
    """The descriptor of a new file that has no name."""
    try:
        if hasattr(os, "memfd_create"):
            return os.memfd_create("flambeau shared memory", os.MFD_CLOEXEC)
        import tempfile
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())
    except OSError as error:
        error.add_note("shared memory needs an open file for each tensor that is shared by itself, and Module."
                       "share_memory() one for all; `ulimit -n` says how many a process may have")
        raise


def part_offsets(sizes):
    """(where parts of these sizes start in a block, how long the block is)"""
    starts, end = [], 0
    for size in sizes:
        starts.append(end)
        end += -(-size // BLOCK_ALIGNMENT_BYTES) * BLOCK_ALIGNMENT_BYTES
    return starts, end
