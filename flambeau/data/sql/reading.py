"""One pass over a query: its connections, what happens when one is lost, and threads that read ahead.

    ReadingPass       the snapshot that all connections of a pass read, and the session that holds it
    Link          one connection of the pass, which is replaced when it is lost
    Maker         reads the nth part of the pass over a Link: a group of blocks, or the next rows of a stream
    ReadAhead     threads with a Maker each; hands their parts out strictly in order
    ReadAlong     the same, and the thread that asks for a part makes some itself

What groups give is dealt out to the pieces that are delivered in waiting_rows.py.
"""
import math
import mmap
import os
import threading
import time
from typing import NamedTuple

import numpy as np

from ...backends.cpu.host import array_over
from ...base.locks import Flag, new_condition, new_lock
from .source import ConnectionLost, Order, SnapshotLost, TableChanged

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0      # seconds between attempts to connect again
STREAM_ROWS = 16_384                        # rows of a piece of a stream
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


def untouched_arrays(layout, rows):
    """Arrays for so many rows over memory of their own, which is there when it is written to, and not before: a piece
    fills up bit by bit."""
    return [untouched(part.shape(rows), part.dtype.np) for part in layout.parts]


def untouched(shape, dtype):
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return array_over(mmap.mmap(-1, size, **OF_THIS_PROCESS), dtype).reshape(shape) if size else np.empty(shape, dtype)
