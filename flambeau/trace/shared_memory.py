"""Tensors whose memory several processes see: `share_memory_()`, and tensors on their way through `multiprocessing`.

Note [Shared storages]: a storage that is shared lies in a SharedBlock, and is exported for good (Note [Exported
storages] in trace/value.py): whatever reads or writes it runs at the call, in place, so that a write is there for all
processes when the call returns, and a read looks at the memory as it is then. Nothing of it is remembered, and what
autograd keeps of it is what is there when backward reads it, since only writes of this process are counted. Two
processes that write the same memory at the same time have no order between them, as in PyTorch.

Note [Moved beside a program]: `Queue.put` pickles in a thread of its own, so that a storage is moved while the program
goes on with it. Once it is marked as exported, writes that begin go to its memory, and one that finds the memory moved
when it is done is done again there. Those that had begun before may still put a new Value into the cell: they are
waited for, by looking whether another thread is inside of a module that writes.
"""
import sys
import threading
import time

from ..backends.cpu.memory.shared_blocks import SharedBlock, part_offsets
from ..base.spec import CPU
from .recording.record import run_all
from .value import Storage, Value

WRITING_MODULES = tuple(__name__.rpartition(".trace.")[0] + name for name in (".tensor.write", ".compiler"))
SECONDS_FOR_A_WRITE = 5.0     # what another thread gets to finish one


def share(cells):
    """Move the contents of storages where other processes see them, all into one block; views and versions stay."""
    cells = [cell for cell in dict.fromkeys(cells) if can_be_shared(cell) and cell.shared is None]
    if not cells:
        return
    starts, nbytes = part_offsets([cell.nbytes for cell in cells])
    block = SharedBlock.made(nbytes)
    run_all()                                 # what was recorded before must not see what others will write
    for cell in cells:
        cell.exported = cell._pinned = True
    wait_for_writers()
    for cell, start in zip(cells, starts):
        memory = block.bytes_at(start, cell.nbytes)
        memory[...] = cell.value.ready().memory
        settle(cell, block, start, memory)


def wait_for_writers():
    """Wait until no other thread is in the middle of a write; see Note [Moved beside a program]."""
    until = time.monotonic() + SECONDS_FOR_A_WRITE
    while writes_elsewhere() and time.monotonic() < until:
        time.sleep(0.0002)


def writes_elsewhere():
    frames = sys._current_frames()
    del frames[threading.get_ident()]         # a frame that holds itself would keep its callers' tensors alive
    for frame in frames.values():
        while frame is not None:
            if frame.f_globals.get("__name__", "").startswith(WRITING_MODULES):
                return True
            frame = frame.f_back
    return False


def can_be_shared(cell):
    return cell.device is CPU and cell.nbytes > 0


def settle(cell, block, start, memory):
    """Let a storage stand on its part of a block."""
    cell.value = Value.of_bytes(memory)
    cell.shared, block.cells[start] = (block, start), cell
    cell.exported = cell._pinned = True
    cell._keeper = cell._export = cell.fingerprint = None     # arrays that looked at the memory before stay with that
    cell.readonly = False


# --- on their way to other processes --------------------------------------------------


def shared_parts(cell):
    """What another process makes a storage from that it will share with this one: function and arguments."""
    share([cell])
    block, start = cell.shared
    return rebuild_storage, (block, start, cell.nbytes)


def rebuild_storage(block, start, nbytes):
    """The storage at a place of a block: the one that this process has already, or a new one."""
    cell = block.cells.get(start)
    if cell is None or cell.nbytes != nbytes:
        memory = block.bytes_at(start, nbytes)
        cell = Storage.of(Value.of_bytes(memory), nbytes, CPU)
        settle(cell, block, start, memory)
    return cell
