"""DealtPieces: the rows of groups, dealt out to the pieces that are delivered.

Where rows wait for that is WaitingInMemory or WaitingInFile.
"""
import errno
import os
import shutil
import tempfile
import warnings
from array import array

import numpy as np

from .reading import Piece, untouched_arrays

WAITING_BYTES_IN_MEMORY = 16 << 20          # of rows that are to be mixed with others; more of them are in a file
SLOTS_OF_PIECE = 64                         # in that file, about: the last one is half empty
MEMORIES_AT_ONCE = 512                      # that are read in one call; the system takes 1024
ARRANGED_ROWS = 4096                        # of a group that are put into the order of dealing at a time


class DealtPieces:
    """The pieces of an EpochOrder, from `first` on, out of its groups, which `groups` hands out in their order. A piece
    is there until the next one is asked for."""

    def __init__(self, groups, order, layout, first, spare):
        self.groups, self.order, self.given, self.spare = groups, order, first, spare
        self.group = order.dealing.groups_of(first)[0]
        self.waiting = waiting_rows(order.dealing, layout)
        self.lent = None                                        # what of the SpareArrays the piece before lies in

    def start(self):
        self.groups.start()

    def take(self):
        """The next piece."""
        piece, dealing, delivered = self.given, self.order.dealing, None
        self.given += 1
        if dealing.window == 1:                                 # a group is a piece
            fetched = self.groups.take()
            return Piece(fetched.arrays, fetched.delivered)
        self.take_back(self.lent)
        self.lent = None
        while self.group < dealing.groups_of(piece)[1]:
            fetched, shares = self.groups.take(), dealing.shares(self.group)
            self.waiting.deal(fetched, [share for share in shares if share[0] >= piece])    # not those delivered before
            delivered = fetched.delivered if self.group - dealing.head == piece else None
            self.group += 1
            self.take_back(fetched.lent)
            del fetched                                         # or it would be there while the piece is made
        arrays, self.lent = self.waiting.take(piece, self.spare)
        return Piece(arrays, self.order.delivered(piece) if delivered is None else delivered)

    def take_back(self, arrays):
        if arrays is not None:
            self.spare.give(arrays)

    def close(self, wait=True):
        self.groups.close(wait)
        self.waiting.close()


def waiting_rows(dealing, layout):
    """Where rows wait for the piece that they are dealt to: in memory if they are few, otherwise in a file."""
    most = int((dealing.head + 2) * dealing.rows.max(initial=0)) * layout.record_bytes
    if dealing.window == 1 or most <= WAITING_BYTES_IN_MEMORY:
        return WaitingInMemory(dealing, layout)
    try:
        return WaitingInFile(dealing, layout, most)
    except OSError as error:
        warn_of_memory(most, "that wait to be mixed with others", error)
        return WaitingInMemory(dealing, layout)


def temporary_file(nbytes):
    """A file without a name, on a disk that has room for so many bytes; else an OSError says what there is."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < nbytes:
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {nbytes / 2 ** 20:.0f} MiB are needed and "
                      f"{free / 2 ** 20:.0f} are free", tempfile.gettempdir())
    return tempfile.TemporaryFile(buffering=0)


def warn_of_memory(nbytes, which, error):
    """Say that rows are held in memory, because of an error of `temporary_file`."""
    warnings.warn(f"{nbytes / 2 ** 20:.0f} MiB of rows {which} are held in memory, since no temporary file can be had "
                  f"for them: {error}. TMPDIR says where to make one", stacklevel=3)


class WaitingInMemory:
    """Rows by the piece that they are dealt to, side by side."""

    def __init__(self, dealing, layout):
        self.sizes, self.layout = np.diff(dealing.starts), layout
        self.pieces: dict = {}                  # of those that have some of their rows: (arrays, how many)

    def deal(self, fetched, shares):
        """Give each piece its share of a group."""
        for piece, begin, end in shares:
            arrays, at = self.pieces.get(piece) or self.begun(piece)
            for target, rows in zip(arrays, fetched.arrays):
                if fetched.dealt is None:
                    target[at:at + end - begin] = rows[begin:end]
                else:
                    np.take(rows, fetched.dealt[begin:end], 0, target[at:at + end - begin], "clip")
            self.pieces[piece] = arrays, at + end - begin

    def begun(self, piece):
        return untouched_arrays(self.layout, int(self.sizes[piece])), 0

    def take(self, piece, spare):
        """(the arrays of a piece that has all of its rows, what of `spare` they lie in)."""
        return (self.pieces.pop(piece, None) or self.begun(piece))[0], None

    def close(self):
        self.pieces.clear()


class SlotsOfPiece:
    """Where the rows of a piece are in a file: in these slots, of which all but the last are full, and written so many
    at a time. As objects of Python's these numbers would be megabytes."""
    __slots__ = ("numbers", "rows", "used")

    def __init__(self, most_rows):
        self.numbers, self.rows = array("i"), array("H" if most_rows < 1 << 16 else "i")
        self.used = most_rows                   # of the last slot


class WaitingInFile:
    """The same in a temporary file without a name, so that memory stays bounded however many rows are mixed.

    It is made of slots, each for as many rows as a share has, or for several shares if those are small: of hundreds of
    groups there would be hundreds of thousands of slots to know, and to read one by one. The slots of a piece that is
    taken are free for others, so that the file is as large as what waits. It is read and written, not mapped, which
    would be memory again.
    """

    def __init__(self, dealing, layout, most):
        self.sizes, self.layout = np.diff(dealing.starts), layout
        self.file = temporary_file(most)
        self.rows_per_slot = max(int(dealing.rows.max()) // min(dealing.window, SLOTS_OF_PIECE), 1)
        self.arranged = layout.empty(max(ARRANGED_ROWS, self.rows_per_slot))
        self.slots: dict = {}                   # of a piece that has some of its rows: SlotsOfPiece
        self.free = array("i")
        self.made = 0

    def deal(self, fetched, shares):
        begin, end, some = 0, 0, []             # rows of the group, in the order of dealing, and their bytes
        for piece, first, last in shares:
            slots = self.slots.get(piece) or self.slots.setdefault(piece, SlotsOfPiece(self.rows_per_slot))
            at = first
            while at < last:
                if slots.used == self.rows_per_slot:
                    slots.numbers.append(self.free_slot())
                    slots.used = 0
                upto = min(at + self.rows_per_slot - slots.used, last)
                if at < begin or upto > end:
                    begin, end = at, min(at + len(self.arranged[0]), shares[-1][2])
                    some = [flat_bytes(rows) for rows in self.arrange(fetched, begin, end)]
                write_at(self.file, parts_of(some, end - begin, at - begin, upto - begin),
                         self.offset(slots.numbers[-1], slots.used))
                slots.rows.append(upto - at)
                slots.used += upto - at
                at = upto

    def arrange(self, fetched, begin, end):
        """Rows `begin` to `end` of a group, in the order in which they are dealt out. Those of many shares at a time:
        to gather those of one costs as much as to write them."""
        if fetched.dealt is None:
            return [rows[begin:end] for rows in fetched.arrays]
        return [np.take(rows, fetched.dealt[begin:end], 0, arranged[:end - begin], "clip")
                for rows, arranged in zip(fetched.arrays, self.arranged)]

    def free_slot(self):
        if self.free:
            return self.free.pop()
        self.made += 1
        return self.made - 1

    def offset(self, slot, used):
        return (slot * self.rows_per_slot + used) * self.layout.record_bytes

    def take(self, piece, spare):
        size, at, lent = int(self.sizes[piece]), 0, spare.take()
        arrays, slots = [array[:size] for array in lent], self.slots.pop(piece, SlotsOfPiece(0))
        some, numbers, read, used, parts = [flat_bytes(rows) for rows in arrays], iter(slots.numbers), 0, 0, []
        for rows in slots.rows:                 # as they were written, all of a slot at a time
            parts += parts_of(some, size, at, at + rows)
            at, used = at + rows, used + rows
            if used == self.rows_per_slot or at == size or len(parts) >= MEMORIES_AT_ONCE:
                if not read:
                    slot = next(numbers)
                read_at(self.file, parts, self.offset(slot, read))
                read, parts = used, []
                if used == self.rows_per_slot:
                    read = used = 0
        self.free.extend(slots.numbers)
        return arrays, lent

    def close(self):
        self.slots.clear()
        self.file.close()


def flat_bytes(array):
    return memoryview(array.reshape(-1).view(np.uint8))


def parts_of(some, rows, begin, end):
    """Rows `begin` to `end` of the bytes of several arrays of `rows` rows."""
    return [memory[len(memory) // rows * begin:len(memory) // rows * end] for memory in some]


def write_at(file, some, at):
    """Write these memories to a file, one behind the other."""
    try:
        if hasattr(os, "pwritev"):
            done = os.pwritev(file.fileno(), some, at)
        else:
            file.seek(at)
            done = sum(file.write(memory) for memory in some)
        if done != sum(map(len, some)):         # which the system does when a disk is full
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        raise OSError(error.errno, f"{os.strerror(error.errno)}: rows that wait for their turn are in a "
                      "temporary file. TMPDIR says where to make one", tempfile.gettempdir()) from error


def read_at(file, some, at):
    if hasattr(os, "preadv"):
        done = os.preadv(file.fileno(), some, at)
    else:
        file.seek(at)
        done = sum(file.readinto(memory) for memory in some)
    if done != sum(map(len, some)):
        raise OSError(errno.EIO, "a temporary file ends before the rows that were written to it")
