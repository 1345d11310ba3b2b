"""Send batches from one process to another.

A batch is pickled with the memory of its tensors and arrays left out. Much of it goes over in a file that lives in
memory only and has no name: a slot that is used again when the batch is gone (`slots.py`), or a file of its own. The
other side maps it, and the system forgets it with the last mapping, however the processes end. A little, or any where
there are no such files, follows in the pipe.
"""
import io
import mmap
import os
import pickle
import socket
from multiprocessing import reduction

import numpy as np

from ....autograd.edges import requires
from ....backends.cpu import host
from ....tensor.create import from_array
from ....tensor.protocol import reduce_cell
from ....tensor.reading import array_of
from ....tensor.tensor import Tensor
from ....trace.value import Storage

OWN_FILE = "file"             # how a batch comes over that has a file of its own
SHARED_FILE_BYTES = 128 << 10  # bytes from which on a file is worth its making
BUFFER_ALIGNMENT_BYTES = 64
MAP_POPULATE = getattr(mmap, "MAP_POPULATE", 0)


class BatchPickler(reduction.ForkingPickler):
    """Pickles tensors without the history, and without the parts of their storage that they do not look at."""

    def reducer_override(self, thing):
        if thing.__class__ is Storage:            # its contents: `multiprocessing` would have it moved and shared
            return reduce_cell(thing)
        if not isinstance(thing, Tensor):
            return NotImplemented
        if requires(thing) and not thing.is_leaf:
            raise RuntimeError("Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
                               "does not support crossing process boundaries. If you just want to transfer the data, "
                               "call detach() on the tensor before serializing (in the dataset, or in collate_fn).")
        if thing.__class__ is Tensor and thing._storage.nbytes > thing.nbytes:
            thing = from_array(np.array(array_of(thing), order="C")).requires_grad_(thing.requires_grad)
        return thing.__reduce_ex__(pickle.HIGHEST_PROTOCOL)


def pack(thing):
    """(pickle of `thing`, the memory that was left out)"""
    stream, buffers = io.BytesIO(), []
    BatchPickler(stream, pickle.HIGHEST_PROTOCOL, True, buffers.append).dump(thing)
    return stream.getvalue(), [buffer.raw() for buffer in buffers]


def send(pipe, number, packed, slots=None):
    """Send what `pack` gave, as the answer to task `number`; in one of `slots`, if one is free."""
    data, buffers = packed
    sizes = [buffer.nbytes for buffer in buffers]
    large = sum(sizes) >= SHARED_FILE_BYTES
    if large and slots is not None and send_in_slot(pipe, number, data, buffers, sizes, slots):
        return
    file = in_shared_file(buffers, sizes) if large else None
    pipe.send((number, data, sizes, None if file is None else OWN_FILE))
    if file is None:
        for buffer in buffers:
            if buffer.nbytes:
                pipe.send_bytes(buffer)
        return
    try:
        with socket_of(pipe) as way:
            socket.send_fds(way, [b"F"], [file])
    finally:
        os.close(file)


def send_in_slot(pipe, number, data, buffers, sizes, slots):
    """Send an answer in a slot; False if none is to be had."""
    offsets, total = buffer_offsets(sizes)
    try:
        found = slots.take(total)
    except OSError:                           # too many open files
        return False
    if found is None:
        return False
    slot, block, new = found
    for buffer, offset in zip(buffers, offsets):
        if buffer.nbytes:
            block.bytes_at(offset, buffer.nbytes)[...] = host.array_over(buffer)
    pipe.send((number, data, sizes, (slot, block.nbytes if new else None, slots.dropped())))
    if new:
        with socket_of(pipe) as way:
            socket.send_fds(way, [b"F"], [block.file])
    return True


def socket_of(pipe):
    """The socket that a pipe is. (multiprocessing's send_handle waits, from Python 3.14 on, for an answer on the same
    pipe, where the thread that listens for tasks would take it.)"""
    return socket.fromfd(pipe.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)


def in_shared_file(buffers, sizes):
    """A file in memory that holds `buffers`; None where it cannot be had."""
    if not hasattr(os, "memfd_create"):
        return None
    try:
        file = os.memfd_create("flambeau batch", os.MFD_CLOEXEC)
    except OSError:                           # too many open files, or a sandbox without them: by the pipe, then
        return None
    try:
        offsets, total = buffer_offsets(sizes)
        os.ftruncate(file, total)
        _write_all(file, buffers, offsets)
    except BaseException:
        os.close(file)
        raise
    return file


def _write_all(file, buffers, offsets):
    for buffer, offset in zip(buffers, offsets):
        while buffer.nbytes:
            done = os.pwrite(file, buffer, offset)
            buffer, offset = buffer[done:], offset + done


def buffer_offsets(sizes):
    """(where each of the buffers starts, how long the file is)"""
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end += -(-size // BUFFER_ALIGNMENT_BYTES) * BUFFER_ALIGNMENT_BYTES
    return offsets, end


def received_file(pipe):
    """The open file that has come by a pipe."""
    with socket_of(pipe) as way:
        found, files, *_ = socket.recv_fds(way, 1, 1)
    if not found:
        raise EOFError
    return files[0]


def receive(pipe, lender):
    """(number, what `pack` gave) that `send` has sent; the memory is ours now, or lent to us."""
    number, data, sizes, where = pipe.recv()
    offsets, total = buffer_offsets(sizes)
    if where.__class__ is tuple:
        slot, nbytes, dropped = where
        lender.drop(dropped)
        if nbytes is not None:
            lender.add(slot, received_file(pipe), nbytes)
        memory = lender.lend(slot, total)
        buffers = [memory[offset:offset + size] for offset, size in zip(offsets, sizes)]
    elif where == OWN_FILE:
        file = received_file(pipe)
        try:
            memory = memoryview(mmap.mmap(file, total, mmap.MAP_SHARED | MAP_POPULATE))
        finally:
            os.close(file)
        buffers = [memory[offset:offset + size] for offset, size in zip(offsets, sizes)]
    else:
        buffers = [np.empty(size, np.uint8) for size in sizes]
        for buffer in buffers:
            if buffer.nbytes:
                pipe.recv_bytes_into(buffer)
    return number, (data, buffers)


def unpack(packed):
    """The thing that was packed."""
    data, buffers = packed
    return pickle.loads(data, buffers=buffers)
