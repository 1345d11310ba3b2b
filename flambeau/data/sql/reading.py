"""One pass over a query: its connections, what happens when one is lost, and threads that read ahead.

    ReadingPass       the snapshot that all connections of a pass read, and the session that holds it
    Link          one connection of the pass, which is replaced when it is lost
    Maker         reads the nth part of the pass over a Link: a group of blocks, or the next rows of a stream
    ReadAhead     threads with a Maker each; hands their parts out strictly in order
    ReadAlong     the same, and the thread that asks for a part makes some itself
    DealtPieces   deals the rows of groups out to the pieces that are delivered; where rows wait for that is
                  WaitingInMemory or WaitingInFile
"""
import errno
import math
import mmap
import os
import shutil
import tempfile
import threading
import time
import warnings
from array import array
from typing import NamedTuple

import numpy as np

from ...backends.cpu.host import array_over
from ...base.locks import Flag, new_condition, new_lock
from .source import ConnectionLost, Order, SnapshotLost, TableChanged

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0      # seconds between attempts to connect again
STREAM_ROWS = 16_384                        # rows of a piece of a stream
WAITING_BYTES_IN_MEMORY = 16 << 20          # of rows that are to be mixed with others; more of them are in a file
PLACES_OF_PIECE = 64                        # in that file, about: the last one is half empty
MEMORIES_AT_ONCE = 512                      # that are read in one call; the system takes 1024
ARRANGED_ROWS = 4096                        # of a group that are put into the order of dealing at a time
OF_THIS_PROCESS = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


class Piece(NamedTuple):
    """Some rows, as the arrays of a RowLayout, and the order in which they are delivered (None: as they are)."""
    arrays: list
    order: np.ndarray | None


class FetchedGroup(NamedTuple):
    """The rows of a group, as the arrays of a RowLayout; the orders are those of its BlockGroup."""
    arrays: list
    dealt: np.ndarray | None
    delivered: np.ndarray | None
    lent: list | None = None            # what of SpareArrays the arrays lie in


class ReadingPass:
    """What the connections of one pass have in common."""

    def __init__(self, source, query, key, retry_seconds):
        self.source, self.query, self.key, self.retry_seconds = source, query, key, retry_seconds
        self.lock, self.stopped, self.pid = new_lock(), Flag(), os.getpid()
        self.boundaries = self.first = self.snapshot = None
        self.ask(lambda session: None)

    def begin(self):
        if self.first is None:
            self.first = self.source.connect()
        self.snapshot = self.first.snapshot()

    def ask(self, work):
        """`work(session)` over the first connection, before the pass is planned; once more when it is lost in it."""
        def attempt():
            if self.snapshot is None:
                self.begin()
            made = work(self.first)
            self.first.rest()
            self.check_unchanged()
            return made
        return patiently(attempt, self.end_first, self)

    def plan(self, step):
        """Find the boundaries in the state that this pass reads."""
        self.boundaries = self.ask(lambda session: session.boundaries(self.query, self.key, step))
        return self.boundaries

    def check_unchanged(self):
        if not self.snapshot.exact and self.snapshot.changed():
            raise TableChanged(f"{self.source.name} was written to while it was read, so that the rows of this epoch "
                               "would be of two states. Write between epochs; or read from a copy, a cache= file, or a "
                               "database that keeps a state for its readers (SQLite in WAL mode, PostgreSQL)")

    def connect(self):
        """A session that reads the state of this pass, as long as it is not over: it would not be closed then."""
        with self.lock:
            if self.stopped.is_set():
                raise ConnectionLost(f"the connections to {self.source.name} are closed")
            try:
                return self.source.connect(self.snapshot)
            except SnapshotLost:
                self.renew()
                return self.source.connect(self.snapshot)

    def renew(self):
        """The session that held the snapshot is gone: take another, if the rows are those that were planned with."""
        before = self.snapshot.mark
        self.end_first()
        self.begin()
        same = before == self.snapshot.mark or not before or not self.snapshot.mark
        if same and self.boundaries is not None and not (before and before == self.snapshot.mark):
            found = self.first.boundaries(self.query, self.key, self.boundaries.step)
            self.first.rest()
            same = found == self.boundaries
        if not same:
            raise TableChanged(f"{self.source.name} was written to while the connection was lost: its rows are not "
                               "those that this epoch began with. Begin a new one")

    def end_first(self):
        if self.snapshot is not None:
            self.snapshot.close()
        if self.first is not None:
            self.first.close()
        self.snapshot = self.first = None

    def pause(self):
        """Let go the state that is read. What is asked next is asked of the state that is there then."""
        with self.lock:
            if self.snapshot is not None:
                self.snapshot.close()
                self.snapshot = None
            try:
                ended = self.first is None or self.first.end_state()
            except ConnectionLost:                  # and its state with it
                ended = False
            if not ended:
                self.end_first()

    def close(self):
        self.stopped.set()
        if self.pid == os.getpid():
            with self.lock:
                self.end_first()


def patiently(attempt, after_loss, reading):
    """`attempt()`, until no connection is lost in it or the time for that is over; `after_loss()` comes in between."""
    began, pause = None, FIRST_PAUSE
    while True:
        try:
            return attempt()
        except ConnectionLost as error:
            after_loss()
            now = time.monotonic()
            began = now if began is None else began
            if reading.stopped.is_set() or now + pause > began + reading.retry_seconds:
                raise
            said = error
        if reading.stopped.wait(pause):
            raise said
        pause = min(2 * pause, LONGEST_PAUSE)


class Link:
    """One connection of a ReadingPass, for one thread."""

    def __init__(self, reading):
        self.reading, self.session = reading, None

    def open(self):
        """The session, which is connected if it is not."""
        if self.session is None:
            self.session = self.reading.connect()
        return self.session

    def ask(self, work):
        """`work(session)`; once more, over a new connection, when the connection is lost in it."""
        def attempt():
            try:
                made = work(self.open())
            except ConnectionLost:
                raise
            except Exception:
                self.reading.check_unchanged()      # then that is what is wrong
                raise
            self.reading.check_unchanged()
            return made
        return patiently(attempt, self.close, self.reading)

    def close(self):
        session, self.session = self.session, None
        if session is not None and session.pid == os.getpid():
            try:
                session.close()
            except ConnectionLost:                  # it is closed then
                pass

    def cancel(self):
        session = self.session
        if session is not None:
            session.cancel()


class FirstLink:
    """The first connection of a pass, where one is enough."""

    def __init__(self, reading):
        self.reading, self.ask = reading, reading.ask


# --- pieces ---------------------------------------------------------------------------------------------------------


class SpareArrays:
    """Arrays of `rows` rows, for the groups and the pieces of a pass: once one is dealt out or delivered, the next is
    written to where it was. So there are as many as there were groups and pieces at the same time, and no more.

    The allocator would not do. A group is made by one thread and let go by another, and between megabytes that are free
    lies what DuckDB remembers; so each thread's part of the heap grows for minutes, by more than is in use.
    """

    def __init__(self, layout, rows):
        self.layout, self.rows = layout, rows
        self.free: list = []                        # `append` and `pop` of a list are atomic

    def take(self):
        try:
            return self.free.pop()
        except IndexError:
            return untouched_arrays(self.layout, self.rows)

    def give(self, arrays):
        self.free.append(arrays)


class GroupMaker:
    """Part n is group n of an EpochOrder; its arrays are of `spare`, if that is given."""

    def __init__(self, link, order, layout, tee=None, spare=None):
        self.link, self.order, self.layout, self.tee, self.spare = link, order, layout, tee, spare

    def make(self, number):
        group = self.order.group(number)
        lent = None if self.spare is None else self.spare.take()
        arrays = self.rows_of(group.blocks, group.rows, lent)
        if self.tee is not None:
            self.tee.write(group.blocks, arrays)
        return FetchedGroup(arrays, group.dealt, group.delivered, lent)

    def rows_of(self, blocks, rows, lent=None):
        arrays = self.layout.empty(rows) if lent is None else [array[:rows] for array in lent]
        if not rows:                                # a round without a block of the last stratum may have such a group
            return arrays
        found = self.link.ask(lambda session: self.fill(arrays, session, blocks, rows))
        if found != rows:
            raise TableChanged(f"{self.link.reading.source.name} gave {found} rows where there were {rows} when the "
                               "epoch was planned: the table was written to. Begin a new epoch")
        return arrays

    def fill(self, arrays, session, blocks, rows):
        """Write the rows of the blocks into the arrays, chunk by chunk; gives how many there are, however many."""
        reading, at = self.link.reading, 0
        for chunk in session.fetch(reading.query, self.layout.wanted, reading.boundaries, blocks):
            if at + len(chunk) <= rows:
                self.layout.fill(arrays, at, chunk)
            at += len(chunk)
        return at

    def cancel(self):
        self.link.cancel()

    def close(self):
        self.link.close()


class StreamMaker:
    """Part n, a Piece, is the nth `STREAM_ROWS` rows of a stream, from row `begin` of `rows` in all to row `end`."""

    def __init__(self, link, layout, key, salt, begin, end, rows):
        self.link, self.layout, self.begin, self.end, self.rows = link, layout, begin, end, rows
        self.order = None if not key and salt is None else Order(key, salt)
        self.chunks, self.next = None, 0

    def make(self, number):
        return self.link.ask(lambda session: self.piece(session, number))

    def piece(self, session, number):
        at = self.begin + number * STREAM_ROWS
        rows = min(STREAM_ROWS, self.end - at)
        if self.chunks is None or self.next != at or self.chunks.session is not session:
            self.end_chunks()
            self.chunks = self.begun(session, at)
        arrays = self.layout.empty(rows)
        self.next = at + rows
        if self.chunks.fill(self.layout, arrays, rows) != rows:
            raise TableChanged(f"{self.link.reading.source.name} gave fewer rows than it counted: the table was "
                               "written to. Begin a new epoch")
        return Piece(arrays, None)

    def begun(self, session, at):
        """The rows from row `at` on."""
        # SQLite sorts several times as fast without a limit.
        limit = None if at == 0 and self.end == self.rows else self.end - at
        session.in_batches = True
        return RowStream(session, session.stream(self.link.reading.query, self.layout.wanted, STREAM_ROWS, self.order,
                                                 at, limit))

    def end_chunks(self):
        chunks, self.chunks = self.chunks, None
        if chunks is not None:
            chunks.close()

    def cancel(self):
        self.link.cancel()

    def close(self):
        self.end_chunks()
        self.link.close()


class RowStream:
    """Chunks of whatever length, taken so many rows at a time."""

    def __init__(self, session, iterator):
        self.session, self.iterator, self.left, self.used = session, iterator, None, 0

    def fill(self, layout, arrays, rows):
        """Write the next `rows` rows into the arrays; gives how many there were."""
        at = 0
        while at < rows:
            if self.left is None:
                self.left, self.used = next(self.iterator, None), 0
                if self.left is None:
                    break
            taken = self.left.part(self.used, min(self.used + rows - at, len(self.left)))
            layout.fill(arrays, at, taken)
            at += len(taken)
            self.used += len(taken)
            if self.used == len(self.left):
                self.left = None
        return at

    def close(self):
        self.iterator.close()


# --- ahead ----------------------------------------------------------------------------------------------------------


class ReadAhead:
    """Parts first … last - 1, made by threads, handed out in order. One for each maker, and one more, are ahead."""

    def __init__(self, makers, first, last):
        self.makers, self.last = makers, last
        self.given = self.claimed = first
        self.ready: dict = {}
        self.changed, self.stopped = new_condition(), False
        self.threads = [threading.Thread(target=self.work, args=(maker,), name=f"flambeau.data.sql {n}", daemon=True)
                        for n, maker in enumerate(makers)]

    def start(self):
        for thread in self.threads:
            thread.start()

    def claim(self):
        """The number of the next part that is not being made yet; None at the end. Waits while enough is ready."""
        with self.changed:
            self.changed.wait_for(lambda: self.stopped or self.claimed == self.last or not self.enough())
            if self.stopped or self.claimed == self.last:
                return None
            self.claimed += 1
            return self.claimed - 1

    def enough(self):
        return self.claimed - self.given > len(self.makers)

    def work(self, maker):
        """What a thread does."""
        try:
            self.make_parts(maker)
        finally:
            maker.close()

    def make_parts(self, maker):
        """A part after the other, up to the first that fails."""
        while (number := self.claim()) is not None:
            if not self.put(number, maker):
                break

    def put(self, number, maker):
        try:
            made, fine = maker.make(number), True
        except BaseException as error:          # raised where the part is asked for, not here
            made, fine = error, False
        with self.changed:
            self.ready[number] = made
            self.changed.notify_all()
        return fine

    def take(self):
        """The next part, or the error that came of making it."""
        with self.changed:
            self.changed.wait_for(lambda: self.given in self.ready)
            made = self.ready.pop(self.given)
            self.given += 1
            self.changed.notify_all()
        if isinstance(made, BaseException):
            raise made
        return made

    def close(self, wait=True):
        with self.changed:
            self.stopped = True
            self.ready.clear()
            self.changed.notify_all()
        if self.threads[0].ident is None:       # never started
            return
        for maker in self.makers:
            maker.cancel()
        for thread in self.threads if wait else ():
            thread.join(LONGEST_PAUSE)


class ReadAlong(ReadAhead):
    """The same, where the last of the makers works in the thread that asks for a part, while that part is not there.
    So none is ahead but those that are made."""

    def __init__(self, makers, first, last):
        super().__init__(makers, first, last)
        self.own = makers[-1]
        self.threads.pop()

    def take(self):
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.given in self.ready
                                      or self.claimed < self.last and not self.enough())
                if self.given in self.ready:
                    break
                number = self.claimed
                self.claimed += 1
            try:
                made = self.own.make(number)
            except Exception as error:              # of a part that is not asked for yet; an interrupt is of now
                made = error
            with self.changed:
                self.ready[number] = made
        return super().take()

    def enough(self):
        return self.claimed - self.given >= len(self.makers)

    def close(self, wait=True):
        super().close(wait)
        self.own.close()


class ReadWhenAsked:
    """The same without threads: a part is made when it is taken."""

    def __init__(self, maker, first):
        self.maker, self.given = maker, first

    def start(self):
        pass

    def take(self):
        self.given += 1
        return self.maker.make(self.given - 1)

    def close(self, wait=True):
        self.maker.close()


# --- mixed ----------------------------------------------------------------------------------------------------------


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


class Places:
    """Where the rows of a piece are in a file: in these places, of which all but the last are full, and written so many
    at a time. As objects of Python's these numbers would be megabytes."""
    __slots__ = ("numbers", "rows", "used")

    def __init__(self, most_rows):
        self.numbers, self.rows = array("i"), array("H" if most_rows < 1 << 16 else "i")
        self.used = most_rows                   # of the last place


class WaitingInFile:
    """The same in a temporary file without a name, so that memory stays bounded however many rows are mixed.

    It is made of places, each for as many rows as a share has, or for several shares if those are small: of hundreds of
    groups there would be hundreds of thousands of places to know, and to read one by one. The places of a piece that is
    taken are free for others, so that the file is as large as what waits. It is read and written, not mapped, which
    would be memory again.
    """

    def __init__(self, dealing, layout, most):
        self.sizes, self.layout = np.diff(dealing.starts), layout
        self.file = temporary_file(most)
        self.rows_of_place = max(int(dealing.rows.max()) // min(dealing.window, PLACES_OF_PIECE), 1)
        self.arranged = layout.empty(max(ARRANGED_ROWS, self.rows_of_place))
        self.places: dict = {}                  # of a piece that has some of its rows: Places
        self.free = array("i")
        self.made = 0

    def deal(self, fetched, shares):
        begin, end, some = 0, 0, []             # rows of the group, in the order of dealing, and their bytes
        for piece, first, last in shares:
            places = self.places.get(piece) or self.places.setdefault(piece, Places(self.rows_of_place))
            at = first
            while at < last:
                if places.used == self.rows_of_place:
                    places.numbers.append(self.free_place())
                    places.used = 0
                upto = min(at + self.rows_of_place - places.used, last)
                if at < begin or upto > end:
                    begin, end = at, min(at + len(self.arranged[0]), shares[-1][2])
                    some = [flat_bytes(rows) for rows in self.arrange(fetched, begin, end)]
                write_at(self.file, parts_of(some, end - begin, at - begin, upto - begin),
                         self.offset(places.numbers[-1], places.used))
                places.rows.append(upto - at)
                places.used += upto - at
                at = upto

    def arrange(self, fetched, begin, end):
        """Rows `begin` to `end` of a group, in the order in which they are dealt out. Those of many shares at a time:
        to gather those of one costs as much as to write them."""
        if fetched.dealt is None:
            return [rows[begin:end] for rows in fetched.arrays]
        return [np.take(rows, fetched.dealt[begin:end], 0, arranged[:end - begin], "clip")
                for rows, arranged in zip(fetched.arrays, self.arranged)]

    def free_place(self):
        if self.free:
            return self.free.pop()
        self.made += 1
        return self.made - 1

    def offset(self, place, used):
        return (place * self.rows_of_place + used) * self.layout.record_bytes

    def take(self, piece, spare):
        size, at, lent = int(self.sizes[piece]), 0, spare.take()
        arrays, places = [array[:size] for array in lent], self.places.pop(piece, Places(0))
        some, numbers, read, used, parts = [flat_bytes(rows) for rows in arrays], iter(places.numbers), 0, 0, []
        for rows in places.rows:                # as they were written, all of a place at a time
            parts += parts_of(some, size, at, at + rows)
            at, used = at + rows, used + rows
            if used == self.rows_of_place or at == size or len(parts) >= MEMORIES_AT_ONCE:
                if not read:
                    place = next(numbers)
                read_at(self.file, parts, self.offset(place, read))
                read, parts = used, []
                if used == self.rows_of_place:
                    read = used = 0
        self.free.extend(places.numbers)
        return arrays, lent

    def close(self):
        self.places.clear()
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


def untouched_arrays(layout, rows):
    """Arrays for so many rows over memory of their own, which is there when it is written to, and not before: a piece
    fills up bit by bit."""
    return [untouched(part.shape(rows), part.dtype.np) for part in layout.parts]


def untouched(shape, dtype):
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return array_over(mmap.mmap(-1, size, **OF_THIS_PROCESS), dtype).reshape(shape) if size else np.empty(shape, dtype)
