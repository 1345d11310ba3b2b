"""SQLDataset: the rows of a query, read whole or in batches, in bounded memory.

The order of an epoch, and so its nth batch, is a function of (query, seed, epoch): blocks.py computes it, reading.py
fetches it piece by piece, and a BatchIterator cuts the pieces into batches.
"""
import os
import threading
import weakref

import numpy as np

from ...backends.cpu.memory.allocator import blank
from ...base import dtypes
from ...base.spec import spec
from ...tensor.create import from_array
from ...utils.data import Dataset
from ...utils.data._utils.epochs import refuse_other_order
from ...utils.data.sampler import fresh_seed
from .blocks import ORDER_VERSION, EpochOrder, batches_in, share_of
from .cache import CacheMaker, CacheWriter, checked_path, open_cache
from .columns import NullFound, RowLayout, names_of
from .hash_order import HashOrderMaker
from .permute import key_from
from .query import checked
from .reading import (
    STREAM_ROWS,
    FirstLink,
    GroupMaker,
    Link,
    ReadAhead,
    ReadAlong,
    ReadingPass,
    ReadWhenAsked,
    SpareArrays,
    StreamMaker,
)
from .source import Boundaries, ConnectionLost, Order, TableChanged
from .waiting_rows import DealtPieces

READ_ROWS = 8192                  # rows that `read` decodes at a time
RETRY_SECONDS = 30.0              # for how long a lost connection is tried again
SALT_MASK = 2 ** 31 - 1
STATE_NAMES = {"seed", "epoch", "batch_size", "shuffle", "rank", "ranks", "drop_last", "batch", "rows", "order"}


class SQLDataset(Dataset):
    """The rows of a query: see `flambeau.data.sql`.

    A sample is what `read()` gives a row of: the features, with nulls="mask" their mask, and the label if there is one.
    """
    __batches__ = True                # a DataLoader asks for whole batches
    order_version = ORDER_VERSION     # it is a part of states, so that none is resumed in another order

    def __init__(self, query, source, *, params=None, key=None, features=None, label=None, dtype=None, nulls="raise",
                 codes=None, retry_seconds=RETRY_SECONDS):
        self.source, self.query = source, checked(query, params)
        self.key = tuple(names_of("key", key))
        self.retry_seconds = retry_seconds
        reading = self._reading()
        try:
            facts = reading.ask(lambda session: session.describe(self.query))
        finally:
            reading.close()
        self.layout = RowLayout(facts, self.key, features, label, dtype, nulls, codes, dtypes.get_default_dtype())
        self._plan: tuple[Boundaries, str] | None = None       # the boundaries, and the mark of the state they are of
        self._seed: int | None = None
        self._epochs = 0
        self._looks = threading.local()                         # the connection of a thread that asks for single rows

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "_looks"}

    def __setstate__(self, state):
        self.__dict__.update(state, _looks=threading.local())

    def __repr__(self):
        return f"SQLDataset({self.source.name}: {' '.join(self.query.text.split())})"

    def _reading(self):
        return ReadingPass(self.source, self.query, self.key, self.retry_seconds)

    # --- planning -------------------------------------------------------------------------------------------------

    def _planned(self, reading):
        """The boundaries in the state that `reading` reads: found once, and again when the tables may have changed."""
        mark = reading.snapshot.mark
        if reading.boundaries is None:
            if self._plan is None or not mark or self._plan[1] != mark:
                self._plan = reading.plan(self.source.dialect.rows_in_block), mark
            reading.boundaries = self._plan[0]
        return reading.boundaries

    @property
    def _in_blocks(self):
        return bool(self.key) or self.source.dialect.positional

    def __len__(self):
        if self._plan is None:
            reading = self._reading()
            try:
                if not self._in_blocks:
                    return reading.ask(lambda session: session.count(self.query))
                self._planned(reading)
            finally:
                reading.close()
        return self._plan[0].count

    def explain(self):
        """What will be read and in which order, with the SQL that is sent, as text."""
        dialect, step = self.source.dialect, self.source.dialect.rows_in_block
        lines = [f"{'reads':<11}{self.source.name}", str(self.layout)]
        lines += [f"{'rows':<11}{self._plan[0].count}"] if self._plan else []
        whole = dialect.stream(self.query, self.layout.wanted, Order(self.key) if self.key else None)
        lines += ["", "read():", indented(whole)]
        if self._in_blocks:
            boundaries = self._plan[0] if self._plan else \
                Boundaries(self.key, step, 0, [()] * len(self.key), [()] * len(self.key))
            reading = self._reading()
            try:
                fetch, plan = reading.ask(lambda session: [
                    tell(self.query, self.layout.wanted, boundaries) for tell in (session.fetch_text, session.plan)])
            finally:
                reading.close()
            lines += ["", f"once, for the bounds of blocks of {step} rows:",
                      indented(dialect.boundaries(self.query, self.key, step)),
                      "", f"for each group of {dialect.blocks_in_group} blocks (shown with one):", indented(fetch)]
            if plan:
                lines += ["which the database does by:", indented(plan)]
        return "\n".join(lines)

    # --- whole ----------------------------------------------------------------------------------------------------

    def read(self):
        """All rows, by key if there is one: the features; with a mask or a label, a tuple of tensors.

        The result is allocated once, and filled some thousand rows at a time.
        """
        reading = self._reading()
        try:
            arrays = reading.ask(self._read)
        except NullFound as found:
            raise self._null_error(found, reading) from None
        finally:
            reading.close()
        self.layout.say()
        return self._sample(arrays)

    def _read(self, session):
        rows = session.count(self.query)
        arrays = blanks(self.layout, rows)
        at = 0
        for chunk in session.stream(self.query, self.layout.wanted, READ_ROWS, Order(self.key) if self.key else None):
            if at + len(chunk) > rows:
                break
            self.layout.fill(arrays, at, chunk)
            at += len(chunk)
        if at != rows:
            raise changed_while_read(self.source, rows)
        return arrays

    def _sample(self, arrays):
        tensors = tuple([from_array(array) for array in arrays])
        return tensors if len(tensors) > 1 else tensors[0]

    def _null_error(self, found, reading):
        names = [column.fact.name for column in self.layout.columns if column.nulls == "raise"]
        counts = dict(zip(names, reading.ask(lambda session: session.null_counts(self.query, names))))
        some = [name for name in names if counts[name]] or [found.column]
        there = ", ".join(f"{name!r} ({counts[name]} of them)" if counts.get(name) else repr(name) for name in some)
        if {*some} <= {column.fact.name for column in self.layout.labels}:       # which has no mask
            say = f"Say which number they are, nulls={{{some[0]!r}: 0}}"
        else:
            say = ("Say what they are: nulls='nan', nulls='mask', a number, or one of these for a column, "
                   "nulls={'age': 0}")
        return ValueError(f"there are NULLs in {there}. {say}; or leave the rows out in the query")

    # --- batches --------------------------------------------------------------------------------------------------

    def batches(self, batch_size, shuffle=False, seed=None, epoch=None, workers=0, cache=None, *, start=0, rank=0,
                ranks=1, drop_last=False):
        """An iterator over the rows in batches of `batch_size`.

        `shuffle`: False, by key; "block" (or True), blocks of neighbours in random order and mixed in groups; "global",
        an exact permutation, by a hash of the key. `seed` and `epoch` decide the order. Without a seed the dataset
        draws one from the default generator, once; without an epoch it counts them. `workers` threads read ahead, with
        a connection each; what comes is the same for any number. `start` is the batch to begin with, `rank` of `ranks`
        the share of the rows. `cache` is the path of a file that is filled from the first epoch, and read instead of
        the database in later ones.
        """
        batch_size, workers, start, rank, ranks = (whole(name, value, least) for name, value, least in (
            ("batch_size", batch_size, 1), ("workers", workers, 0), ("start", start, 0), ("rank", rank, 0),
            ("ranks", ranks, 1)))
        if rank >= ranks:
            raise ValueError(f"rank={rank} of ranks={ranks}: ranks are counted from 0 to {ranks - 1}")
        shuffle = "block" if shuffle is True else False if shuffle is None else shuffle
        if shuffle is not False and shuffle not in ("block", "global"):
            raise ValueError(f"shuffle={shuffle!r}: give False, 'block' or 'global'")
        if not self._in_blocks and (shuffle or cache):
            raise ValueError(f"{'cache' if cache else 'shuffle'}= needs a key: columns of the query that are different "
                             "in every row, key='id' or key=['a', 'b']")
        epoch = self._next_epoch() if epoch is None else whole("epoch", epoch, 0)
        seed = self._own_seed() if seed is None else whole("seed", seed, 0)
        settings = dict(seed=seed, epoch=epoch, batch_size=batch_size, shuffle=shuffle, rank=rank, ranks=ranks,
                        drop_last=bool(drop_last))
        return BatchIterator(self, settings, start, workers, None if cache is None else checked_path(cache))

    def resume(self, state, workers=0, cache=None):
        """The iterator that goes on where another one was when it gave the state (`state_dict()`)."""
        if not isinstance(state, dict) or {*state} != STATE_NAMES:
            raise ValueError(f"state={state!r}: give what state_dict() of an iterator of batches has given, with "
                             f"{', '.join(sorted(STATE_NAMES))}")
        state = dict(state)
        refuse_other_order(state.pop("order"), self.order_version)
        rows, start = state.pop("rows"), state.pop("batch")
        made = self.batches(workers=workers, cache=cache, start=start, **state)
        if made.rows != rows:
            made.close()
            raise ValueError(f"the state is of {rows} rows, and the query gives {made.rows} now: other batches")
        return made

    def _next_epoch(self):
        self._epochs += 1
        return self._epochs - 1

    def _own_seed(self):
        if self._seed is None:
            self._seed = fresh_seed()
        return self._seed

    def __iter__(self):
        raise TypeError("a dataset of a query is not iterated over row by row: use batches(…), read(), or a DataLoader")

    # --- single rows ----------------------------------------------------------------------------------------------

    def __getitem__(self, index):
        if not hasattr(index, "__index__"):
            raise TypeError(f"dataset[{index!r}]: rows are counted, dataset[0]; for several of them see batches(…) and "
                            "read()")
        position = index.__index__()
        rows = len(self)
        if not -rows <= position < rows:
            raise IndexError(f"row {position} of a query that gives {rows}")
        return self.__getitems__([position % rows])[0]

    def __getitems__(self, indices):
        """The samples of these rows, by key. Whole blocks are fetched for them: `batches` is the way for many."""
        if not self._in_blocks:
            raise ValueError("single rows are found by key: give key='id', or read() the whole")
        reading = self._look()
        try:
            reading.ask(lambda session: None)
            if reading.snapshot.mark:             # which tells whether the boundaries are right; else the rows have to
                reading.boundaries = None
            arrays = self._gathered(np.asarray(indices, np.int64), reading, self._planned(reading))
        except NullFound as found:
            raise self._null_error(found, reading) from None
        except TableChanged:
            reading.boundaries = None
            raise
        finally:
            reading.pause()
        self.layout.say()
        tensors = [from_array(array).unbind() for array in arrays]
        return list(zip(*tensors)) if len(tensors) > 1 else list(tensors[0])

    def _gathered(self, indices, reading, boundaries):
        """The arrays of these rows."""
        if len(indices) and not (0 <= indices.min() and indices.max() < boundaries.count):
            raise IndexError(f"rows {indices.min()} to {indices.max()} of a query that gives {boundaries.count}")
        blocks, block_of = np.unique(indices // boundaries.step, return_inverse=True)
        arrays = [np.empty(part.shape(len(indices)), part.dtype.np) for part in self.layout.parts]
        size, maker = self.source.dialect.blocks_in_group, GroupMaker(FirstLink(reading), None, self.layout)
        for begin in range(0, len(blocks), size):
            some = blocks[begin:begin + size]
            fetched = maker.rows_of(some, int(boundaries.rows_of(some).sum()))
            mine = np.flatnonzero((block_of >= begin) & (block_of < begin + size))
            at = (block_of[mine] - begin) * boundaries.step + indices[mine] % boundaries.step
            for array, rows in zip(arrays, fetched):
                array[mine] = rows[at]
        return arrays

    def _look(self):
        """This thread's pass for single rows, between looks without a state. It ends with the dataset, or with the
        thread."""
        look = getattr(self._looks, "reading", None)
        if look is None or look.pid != os.getpid():
            self._looks.reading = look = self._reading()
            self._looks.ends = weakref.finalize(self._looks, look.close)
        return look


# --- iterators ------------------------------------------------------------------------------------------------------


class BatchIterator:
    """The batches of one epoch. `close()`, the end, an error and the end of the object close its connections."""

    def __init__(self, dataset, settings, start, workers, cache):
        self.dataset, self.layout = dataset, dataset.layout
        self.seed, self.epoch, self.batch_size = settings["seed"], settings["epoch"], settings["batch_size"]
        self.settings, self.pid = settings, os.getpid()
        self.reading = dataset._reading()
        self.pieces = self.tee = self.cached = None
        try:
            self._begin(start, workers, cache)
        except NullFound as found:
            error = dataset._null_error(found, self.reading)
            self.reading.close()
            raise error from None
        except BaseException:
            self.reading.close()
            raise
        self._end = weakref.finalize(self, end_pieces, self.pieces, self.reading, self.tee, self.cached)

    def _begin(self, start, workers, cache):
        dataset, settings, reading = self.dataset, self.settings, self.reading
        cached = self.cached = None if cache is None else open_cache(cache, dataset, reading)
        if cached is not None:
            self.rows = cached.rows
        elif dataset._in_blocks:
            self.rows = dataset._planned(reading).count
        else:
            self.rows = reading.ask(lambda session: session.count(dataset.query))
        begin, end = share_of(self.rows, settings["rank"], settings["ranks"])
        count = batches_in(end - begin, self.batch_size, settings["drop_last"])
        if start > count:
            raise ValueError(f"start={start}: the epoch has {count} batches")
        self.count, self.batch = count, start
        self.row = begin + start * self.batch_size
        self.end = min(end, begin + count * self.batch_size)
        if cache is not None and cached is None:
            self.tee = CacheWriter(cache, dataset, reading)
            if settings["shuffle"] == "global" or start or settings["ranks"] > 1:       # not every row will come by
                cached = self.cached = self._fill_cache(cache)
        makers, order, helpers, spare = self._makers(cached, workers)
        self.piece = None
        self.piece_number = max(int(np.searchsorted(self.starts, self.row, "right")) - 1, 0)
        first, last = self.piece_number, int(np.searchsorted(self.starts, self.end, "left"))
        if order is not None and self.row < self.end:
            first, last = order.dealing.groups_of(first)[0], order.dealing.groups_of(last - 1)[1]
        if self.row == self.end or not workers and not helpers:
            self.pieces = ReadWhenAsked(makers[0], first)
        else:
            self.pieces = (ReadAhead if workers else ReadAlong)(makers, first, last)
        if order is not None:
            self.pieces = DealtPieces(self.pieces, order, self.layout, self.piece_number, spare)
        self.started = False

    def _makers(self, cached, workers):
        """(what makes pieces, one for each worker; their EpochOrder, if it is not that of the rows; how many helpers
        read along; SpareArrays or None)"""
        dataset, reading, shuffle = self.dataset, self.reading, self.settings["shuffle"]
        dialect = dataset.source.dialect
        order, helpers, spare = None, 0, None
        if cached is None and (shuffle == "global" or not dataset._in_blocks):
            salt = key_from(self.seed, self.epoch) & SALT_MASK if shuffle else None
            self.starts = np.append(np.arange(self.row, self.end, STREAM_ROWS), self.end)
            maker = HashOrderMaker if shuffle and dataset.source.gives_hashes else StreamMaker
            makers = [maker(Link(reading), self.layout, dataset.key, salt, self.row, self.end, self.rows)]
        elif cached is not None and shuffle == "global":
            reading.close()
            self.starts = cached.permute(self.seed, self.epoch)
            makers = [CacheMaker(cached.permuted) for _ in range(workers or 1)]
        else:
            boundaries = reading.boundaries if cached is None else cached.boundaries
            size = dialect.blocks_in_group if shuffle else dialect.neighbours_in_group or dialect.blocks_in_group
            order = EpochOrder(boundaries, size, dialect.groups_mixed, bool(shuffle), self.seed, self.epoch)
            self.starts = order.starts
            if order.dealing.window > 1:                  # otherwise a group is a piece, and not gone by the next
                spare = SpareArrays(self.layout, order.most_rows)
            if cached is None:
                helpers = 0 if workers else dataset.source.helpers
                threads = workers or 1 + helpers
                makers = [GroupMaker(Link(reading), order, self.layout, self.tee, spare) for _ in range(threads)]
            else:
                reading.close()
                makers = [CacheMaker(cached.group, order) for _ in range(workers or 1)]
        return makers, order, helpers, spare

    def _fill_cache(self, cache):
        """Read everything into the cache before the epoch begins."""
        maker = GroupMaker(Link(self.reading), None, self.layout, self.tee)
        try:
            self.tee.complete(maker)
        except BaseException:
            self.tee.abandon()
            raise
        finally:
            maker.close()
        self.tee = None
        return open_cache(cache, self.dataset, self.reading)

    def __iter__(self):
        return self

    def __len__(self):
        """How many batches are left."""
        return self.count - self.batch

    def __next__(self):
        if self.pid != os.getpid():
            raise RuntimeError("this iterator was begun in another process, and its connections stay there: call "
                               "batches() in this one")
        if self.pieces is None or self.row >= self.end:
            self._finish()
            raise StopIteration
        try:
            if not self.started:
                self.started = True
                self.pieces.start()
            arrays = self._take(min(self.batch_size, self.end - self.row))
        except BaseException as error:
            self._fail(error)
        self.batch += 1
        if self.layout.lossy:
            self.layout.say()
        return self.dataset._sample(arrays)

    def _take(self, rows):
        """The arrays of the next `rows` rows."""
        made, at = blanks(self.layout, rows), 0
        while at < rows:
            begin, end = int(self.starts[self.piece_number]), int(self.starts[self.piece_number + 1])
            if self.piece is None:
                self.piece = self.pieces.take()
            some = min(end - self.row, rows - at)
            copy_rows(made, at, self.piece, self.row - begin, some)
            at += some
            self.row += some
            if self.row == end:
                self.piece, self.piece_number = None, self.piece_number + 1
        return made

    def _fail(self, error):
        where = f"batch {self.batch} of epoch {self.epoch} (seed={self.seed})"
        if isinstance(error, NullFound):
            error, cause = self.dataset._null_error(error, self.reading), None
        elif isinstance(error, ConnectionLost):
            error, cause = ConnectionError(
                f"the connection to {self.dataset.source.name} was lost before {where}, and could not be had again for "
                f"{self.dataset.retry_seconds:g} seconds: {error}. batches(…, seed={self.seed}, epoch={self.epoch}, "
                f"start={self.batch}) goes on there"), error
        else:
            cause = error.__cause__
            if isinstance(error, Exception):
                error.add_note(f"while {where} was read")
        self.close()
        raise error from cause

    def _finish(self):
        """The last batch is out: complete the cache, and close."""
        if self.tee is not None and self.pieces is not None:
            self.pieces.close()
            maker = GroupMaker(Link(self.reading), None, self.layout, self.tee)
            try:
                self.tee.complete(maker)
            finally:
                maker.close()
        self.close()

    def state_dict(self):
        """Where the iterator is: `dataset.resume(state)` gives the batches that are left."""
        return {**self.settings, "batch": self.batch, "rows": self.rows, "order": ORDER_VERSION}

    def close(self):
        """End the epoch here, and close its connections."""
        self.pieces = self.piece = None
        self._end()


def end_pieces(pieces, reading, tee, cached):
    """What there is to do when an iterator ends, however it does."""
    if reading.pid == os.getpid():
        reading.stopped.set()
        pieces.close()
        reading.close()
        if tee is not None:
            tee.abandon()
        if cached is not None:
            cached.close()


def copy_rows(made, at, piece, begin, rows):
    """Copy the rows that are delivered as `begin` … of a piece to row `at` … of the arrays `made`."""
    if piece.order is None:
        for target, source in zip(made, piece.arrays):
            target[at:at + rows] = source[begin:begin + rows]
    else:
        delivered = piece.order[begin:begin + rows]
        for target, source in zip(made, piece.arrays):
            np.take(source, delivered, 0, target[at:at + rows], "clip")     # `raise` would make another copy


def blanks(layout, rows):
    """Memory for so many rows of each part, as tensors have it."""
    return [blank(spec(part.dtype, part.shape(rows)))[0] for part in layout.parts]


def changed_while_read(source, rows):
    return TableChanged(f"{source.name} counted {rows} rows and gave another number: it was written to. Read again")


def whole(name, value, least):
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < least:
        raise ValueError(f"{name}={value!r}: give a whole number from {least} up")
    return value.__index__()


def indented(text):
    return "\n".join("    " + line for line in text.splitlines())
