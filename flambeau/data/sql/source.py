"""What a database has to be able to do, so that SQLDataset can read from it: the protocol of all engines.

A RowSource opens RowSessions; a RowSession answers five questions about a Query with NumPy columns; a Dialect writes
the SQL that it sends, so that `explain()` shows the very text. Nothing below this line knows tensors, shuffling or
batches, and nothing above it knows a driver.

    RowSource.connect(snapshot)  →  RowSession.describe    which columns there are
                                    RowSession.stream      all rows, in some order
                                    RowSession.boundaries  the keys at which blocks of rows begin and end
                                    RowSession.fetch       the rows of some blocks
                                    RowSession.snapshot    the state that other sessions are to read, too
"""
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .keys import KeyColumn

# --- errors ---------------------------------------------------------------------------------------------------------


class ConnectionLost(ConnectionError):
    """The connection is gone (server ended, network, statement timeout), and a new one may do better.

    A RowSession raises it in place of its driver's own exception, `from` that one. SQLDataset then connects again and
    asks for the same group. Everything else that a driver raises goes through to the user as it is.
    """


class SnapshotLost(ConnectionLost):
    """`RowSource.connect(snapshot)` cannot give that state any more, since the session that held it is gone.

    SQLDataset then takes a new snapshot, and goes on if the boundaries are those that it has planned with.
    """


class TableChanged(RuntimeError):
    """The rows are not those that were planned with. Raised by SQLDataset, never by a RowSession."""


# --- what is asked --------------------------------------------------------------------------------------------------


class Query(NamedTuple):
    """One statement that gives rows, without a semicolon (`query.checked` has seen to that), and its parameters.

    `params` is what the user gave, in the style of the driver: a tuple (positions) or a dict (names). It is bound,
    never pasted into the text. A RowSession that needs parameters of its own (keys) adds them in the same style; names
    of ours begin with `flambeau_`.
    """
    text: str
    params: tuple | dict = ()


class ColumnFact(NamedTuple):
    """What the database says of a column of the query."""
    name: str                   # as the query names it
    declared: str               # the database's own word for its type, for messages; "" where it has none
    kind: str                   # one of COLUMN_KINDS
    bits: int = 64              # of "int", "uint" and "float": how wide it is there


# What columns can be. "unknown": the database does not tell before there are rows (an expression in SQLite); SQLDataset
# then asks for the form that it needs, and a RowSession that finds something else raises TypeError with the value.
COLUMN_KINDS = ("bool", "int", "uint", "float", "decimal", "text", "date", "timestamp", "unknown", "other")


class Wanted(NamedTuple):
    """One column that SQLDataset asks for, and the form that its array shall have.

    What each kind comes as is decided in one place (`columns.form_of`), so that all engines agree:

        kind of the column     form         what the array holds
        "bool"                 "bool"       bool
        "int", "uint"          "int8" … "int64", "uint8" … "uint64", as wide as the column
        "float"                "float32", "float64", as wide as the column
        "decimal"              "float64"    the nearest float64: cast in SQL
        "date"                 "int64"      days since 1970-01-01: cast in SQL
        "timestamp"            "float64"    seconds since 1970-01-01 00:00:00 UTC; without a time zone it is taken for
        UTC "text"                 "text"       object array of str (codes= makes numbers of them, above)
        "unknown"              whichever is needed

    A form is the NumPy dtype's name, but for "text", which is an object array. Narrowing (int64 to float32 and so on)
    is done above, by one rule; a RowSession never loses a bit in silence. What cannot be had exactly raises TypeError
    or OverflowError with the column's name and the value.
    """
    name: str
    kind: str
    form: str


class Order(NamedTuple):
    """The order of a stream: by `key`, or, with a `salt` (0 to 2**31 - 1), by a hash of (salt, key) and then by key.

    The hash has to depend on the key's value and the salt alone, and to look random: another salt, another order.
    """
    key: tuple
    salt: int | None = None


# --- what is answered -----------------------------------------------------------------------------------------------


class Chunk:
    """Some rows: for each Wanted column an array [n] (any stride), and bool [n], True at NULL (None: there is none).

    What a column holds at a NULL is anything that its dtype can hold. Arrays may be views of a driver's memory, and
    read-only; they stay as they are until the RowSession is asked for more. The reader copies.
    """
    __slots__ = ("columns", "nulls")

    def __init__(self, columns: list, nulls: list):
        self.columns, self.nulls = columns, nulls

    def __len__(self):
        return len(self.columns[0])

    def part(self, begin, end):
        """Rows `begin` to `end` of it."""
        if begin == 0 and end == len(self):
            return self
        return Chunk([column[begin:end] for column in self.columns],
                     [None if nulls is None else nulls[begin:end] for nulls in self.nulls])


class Boundaries:
    """Where blocks of `step` rows begin and end, in the order of the key: planned once for a dataset.

    Block b holds the rows whose key is between `first[b]` and `last[b]`, both included: `step` of them, in the last
    block what is left. `first` and `last` hold one KeyColumn for each column of the key, of whatever the driver gives,
    and takes as a parameter. `lies_in_order`: the rows of this state were seen to come by key without being sorted;
    `by_number` then has the same blocks by numbers that the engine itself has for rows, if it has such.
    """

    def __init__(self, key: Sequence[str], step: int, count: int, first: Sequence, last: Sequence, lies_in_order=False,
                 by_number: "Boundaries | None" = None):
        self.key, self.step, self.count, self.lies_in_order = tuple(key), step, count, lies_in_order
        self.by_number = by_number
        self.first, self.last = ([column if isinstance(column, KeyColumn) else KeyColumn(column) for column in side]
                                 for side in (first, last))
        self.blocks = -(-count // step)

    def rows_of(self, blocks) -> np.ndarray:
        """How many rows each of these blocks has."""
        rows = np.full(len(blocks), self.step, np.int64)
        if self.count % self.step:
            rows[np.asarray(blocks) == self.blocks - 1] = self.count % self.step
        return rows

    def ranges(self, blocks) -> list[tuple[tuple, tuple]]:
        """(first key, last key) of these blocks, in their order, as plain Python values; neighbours are one range."""
        blocks = np.asarray(blocks, np.int64)
        starts = np.flatnonzero(np.diff(blocks, prepend=-2) != 1)
        ends = np.append(starts[1:], len(blocks))[:len(starts)] - 1
        lows = zip(*(column.take(blocks[starts].tolist()) for column in self.first))
        highs = zip(*(column.take(blocks[ends].tolist()) for column in self.last))
        return list(zip(lows, highs))

    def __eq__(self, other):
        return (isinstance(other, Boundaries) and self.key == other.key and self.step == other.step
                and self.count == other.count and self.first == other.first and self.last == other.last
                and self.by_number == other.by_number)

    __hash__ = None


class BoundaryScan:
    """Makes Boundaries out of the keys in order, chunk by chunk; refuses NULL keys and keys that come twice.

    An engine that can find the boundaries in SQL makes Boundaries itself (and has to refuse the same with
    `refuse_null_key` and `refuse_duplicate_key`); one that cannot gives all keys to `add`, in order.
    """

    def __init__(self, key: Sequence[str], step: int):
        self.key, self.step, self.count = tuple(key), step, 0
        self.first = [KeyColumn() for _ in key]
        self.last = [KeyColumn() for _ in key]
        self.previous: tuple | None = None

    def add(self, rows: Iterable[tuple]) -> None:
        """Take the keys of the next rows: one tuple for each, with a value for each column of the key."""
        for row in rows:
            if None in row:
                refuse_null_key(self.key, row)
            if row == self.previous:
                refuse_duplicate_key(self.key, row)
            if self.count % self.step == 0:
                if self.previous is not None:
                    append_key(self.last, self.previous)
                append_key(self.first, row)
            self.previous = row
            self.count += 1

    def add_numbers(self, values: np.ndarray, nulls: np.ndarray | None = None) -> bool:
        """Take the keys of the next rows, of a key that is one column of whole numbers; False if not in order."""
        if nulls is not None and nulls.any():
            refuse_null_key(self.key, (None,))
        known = 0 if self.previous is None else 1
        keys = np.concatenate([self.previous, values]) if known else values
        if (twice := keys[1:] == keys[:-1]).any():
            refuse_duplicate_key(self.key, (int(keys[1:][twice][0]),))
        if (keys[1:] < keys[:-1]).any():
            return False
        starts = np.arange(-self.count % self.step, len(values), self.step) + known
        self.first[0].extend(keys[starts])
        self.last[0].extend(keys[starts[starts > 0] - 1])
        self.count += len(values)
        self.previous = tuple(keys[-1:].tolist()) or None
        return True

    def done(self, lies_in_order=False, by_number: Boundaries | None = None) -> Boundaries:
        if self.previous is not None:
            append_key(self.last, self.previous)
        return Boundaries(self.key, self.step, self.count, self.first, self.last, lies_in_order, by_number)


def append_key(columns, row):
    for column, value in zip(columns, row):
        column.append(value)


def refuse_null_key(key, row):
    name = key[list(row).index(None)] if None in row else key[0]
    raise ValueError(f"key={list(key)!r}: {name!r} is NULL in a row of the query; a key has a value in every row. Add "
                     f"WHERE {name} IS NOT NULL, or choose another key")


def refuse_duplicate_key(key, row):
    shown = row[0] if len(row) == 1 else tuple(row)
    raise ValueError(f"key={list(key)!r}: {shown!r} comes more than once; a key is different in every row. Choose "
                     "another column, or several: key=['a', 'b']")


class Snapshot:
    """One state of the database, which all sessions of an epoch are to read.

    `exact`: sessions that are connected with this snapshot read that very state, whatever is written meanwhile. Where
    the database has no such thing `exact` is False, and `changed()` is asked after every fetch instead.

    `mark` names the state beyond this process: the same text exactly if the tables are the same, as far as the database
    can tell; "" where it cannot. Caches and resumed runs are checked against it.

    This class is itself the snapshot of what cannot change (a frame in memory).
    """
    exact = True
    mark = ""

    def changed(self) -> bool:
        """Whether the tables may have changed since. May be called from any thread, at any time before `close`."""
        return False

    def close(self) -> None:
        """The snapshot is not needed any more. May be called twice."""


class UnmarkedSnapshot(Snapshot):
    """No database in general tells whether it changed; that rows came or went is noticed by their number."""
    exact = False


# --- who answers ----------------------------------------------------------------------------------------------------


class Dialect:
    """The SQL of an engine, as text. Pure functions: nothing here is connected to anything.

    This class writes standard SQL; an engine overrides what it has its own words for.
    """
    name = "sql"
    rows_in_block = 256                     # rows that lie side by side in a block: the step of `boundaries`
    blocks_in_group = 256                   # blocks of one fetch
    neighbours_in_group: int | None = None  # the same for an epoch by key, if it is another number
    groups_mixed = 4                        # groups whose rows are mixed with each other, half of them in memory
    positional = False                      # whether rows have positions without a key: see RowSession.boundaries

    def quote(self, name: str) -> str:
        """`name` as an identifier, whatever it holds."""
        if "\0" in name:
            raise ValueError(f"{name!r} cannot be the name of a column: it holds a zero character")
        return '"' + name.replace('"', '""') + '"'

    def cast(self, expression: str, wanted: Wanted) -> str:
        """`expression`, which is of `wanted.kind`, so that it arrives as `wanted.form`."""
        return expression

    def hash(self, key: Sequence[str], salt: int) -> str:
        """An expression that depends on the columns of `key` (quoted here) and the number `salt` alone: see Order."""
        raise NotImplementedError(f"shuffle='global' is not there for {self.name}; use shuffle='block'")

    def columns(self, wanted: Sequence[Wanted], table="q") -> str:
        return ", ".join(f"{self.cast(f'{table}.{self.quote(w.name)}', w)} AS {self.quote(w.name)}" for w in wanted)

    def order(self, order: Order | None, table="q") -> str:
        """The ORDER BY of a stream, with a blank before it; nothing without an order."""
        if order is None:
            return ""
        terms = [f"{table}.{self.quote(name)}" for name in order.key]
        if order.salt is not None:
            terms.insert(0, self.hash([f"{table}.{self.quote(name)}" for name in order.key], order.salt))
        return f" ORDER BY {', '.join(terms)}"

    def stream(self, query: Query, wanted: Sequence[Wanted], order: Order | None, skip=0,
               limit: int | None = None) -> str:
        """The statement of `RowSession.stream`. The parenthesis closes on a new line: `query` may end in a comment."""
        text = f"SELECT {self.columns(wanted)} FROM (\n{query.text}\n) AS q{self.order(order)}"
        if limit is not None:
            text += f" LIMIT {int(limit)}"
        return text + (f" OFFSET {int(skip)}" if skip else "")

    def boundaries(self, query: Query, key: Sequence[str], step: int) -> str:
        """The statement of `RowSession.boundaries`. This one gives all keys in order, for a BoundaryScan."""
        names = ", ".join(f"q.{self.quote(name)}" for name in key)
        return f"SELECT {names} FROM (\n{query.text}\n) AS q ORDER BY {names}"

    def fetch(self, query: Query, wanted: Sequence[Wanted], key: Sequence[str], ranges: int) -> str:
        """The statement of `RowSession.fetch` for so many key ranges, with placeholders for their bounds."""
        raise NotImplementedError

    def count(self, query: Query) -> str:
        """The statement of `RowSession.count`."""
        return f"SELECT count(*) AS n FROM (\n{query.text}\n) AS q"

    def null_counts(self, query: Query, names: Sequence[str]) -> str:
        """The statement of `RowSession.null_counts`."""
        counts = (f"count(*) - count(q.{self.quote(name)}) AS {self.quote(name)}" for name in names)
        return f"SELECT {', '.join(counts)} FROM (\n{query.text}\n) AS q"


class RowSession:
    """One connection, used by one thread at a time: that which asked `RowSource.connect` for it, or a later one.

    Every method that sends a statement raises ConnectionLost where a new connection may do better. A RowSession is
    never carried over a fork: SQLDataset opens a new one in the new process, and does not close the parent's.
    """
    dialect: Dialect
    in_batches = False          # whether streams are for batches, where memory counts more than the last bit of speed

    def __init__(self):
        self.pid = os.getpid()

    def describe(self, query: Query) -> list[ColumnFact]:
        """The columns of the query in their order, without reading rows. Two of the same name are both told."""
        raise NotImplementedError

    def stream(self, query: Query, wanted: Sequence[Wanted], rows: int, order: Order | None = None, skip=0,
               limit: int | None = None) -> Iterator[Chunk]:
        """All rows, or `limit` of them after the first `skip`, in `order` (None: as the query gives them).

        Chunks have about `rows` rows, never none; a result without rows gives no chunk. Memory stays bounded by a few
        chunks (a cursor on the server where there is one). Closing the iterator ends the statement.
        """
        raise NotImplementedError

    def count(self, query: Query) -> int:
        """How many rows the query gives."""
        return self._numbers(query, self.dialect.count(query), ["n"])[0]

    def null_counts(self, query: Query, names: Sequence[str]) -> list[int]:
        """How many NULLs each of these columns has: asked for the words of an error alone."""
        return self._numbers(query, self.dialect.null_counts(query, names), names)

    def _numbers(self, query, text, names):
        wanted = [Wanted(name, "int", "int64") for name in names]
        for chunk in self.stream(Query(text, query.params), wanted, 1):
            return [int(column[0]) for column in chunk.columns]
        raise RuntimeError(f"a statement that counts gave no row: {text}")

    def boundaries(self, query: Query, key: Sequence[str], step: int) -> Boundaries:
        """See Boundaries. Raises ValueError for NULL and duplicate keys, in the words of this module's functions.

        With a `positional` dialect the key may be (): rows are where they are, and `first` and `last` are one column
        each, of row numbers.
        """
        raise NotImplementedError

    def fetch(self, query: Query, wanted: Sequence[Wanted], boundaries: Boundaries,
              blocks: Sequence[int]) -> Iterable[Chunk]:
        """The rows of these blocks (each at most once), with one statement: in the order of the list, inside a block by
        key. They come as one Chunk or more, so that a driver which streams holds no group as a whole.

        `boundaries.ranges(blocks)` gives the key ranges. How many rows come is counted by the caller, who knows how
        many there have to be; so a fetch that finds more or fewer simply gives them.
        """
        raise NotImplementedError

    def hash_counts(self, query: Query, order: Order, bits: int) -> np.ndarray:
        """How many rows have a hash, of the 64 bits of an Order with a salt, that begins with each number of so many
        bits: 2 ** bits numbers."""
        raise NotImplementedError

    def hashed(self, query: Query, wanted: Sequence[Wanted], order: Order, which, take: Callable, sorts=False) -> Any:
        """What `take` makes of an iterator over (Chunk, hashes as uint64), of the rows whose hash lies between the two
        of a tuple, or is in a list; None: of all. They come in any order, or `sorts`, in that one.

        `take` may be called again, with all of them from the beginning, where the first attempt has failed.
        """
        raise NotImplementedError

    def snapshot(self) -> Snapshot:
        """The state that this session reads from now on, for others to read too. The caller keeps this session open as
        long as it uses the snapshot, and asks for one at a time: see `end_state`."""
        return Snapshot()

    def fetch_text(self, query: Query, wanted: Sequence[Wanted], boundaries: Boundaries) -> str:
        """The statement that `fetch` sends, for one range, for `explain()`."""
        return self.dialect.fetch(query, wanted, boundaries.key, 1)

    def plan(self, query: Query, wanted: Sequence[Wanted], boundaries: Boundaries) -> str:
        """What the database says of how it will run `fetch`, for `explain()`; "" where it says nothing."""
        return ""

    def end_state(self) -> bool:
        """Let go the state that `snapshot` keeps, so that another may be asked for; False where only `close` does."""
        return False

    def rest(self) -> None:
        """Nothing will be asked for a while: let go what is not needed for the snapshot, and can be had again."""

    def cancel(self) -> None:
        """End the statement that runs, if one does: it raises in its thread. This one is called from other threads."""

    def close(self) -> None:
        """Close the connection. May be called twice."""


class RowSource:
    """A way to open connections. Held by the dataset, pickled with it and carried over forks: it holds no connection.

    (One that was made from a live object which cannot be pickled, such as an open connection or a frame in memory, may
    refuse to be pickled, with a sentence that says what to give instead.)
    """
    dialect: Dialect
    name: str                               # for messages and explain(): what it reads from, without passwords
    helpers = 0                             # threads that read along where an epoch is asked for without workers
    gives_hashes = False                    # whether its sessions have `hash_counts` and `hashed`, and sort no stream

    def connect(self, snapshot: Snapshot | None = None) -> RowSession:
        """A new connection, which only reads. With a snapshot of this source: one that reads its state (if `exact`)."""
        raise NotImplementedError

    def identity(self) -> Any:
        """What tells this database from others, as text or numbers, for caches: a path, host and name; no passwords."""
        return self.name


def params_of(params) -> tuple | dict:
    """Parameters as they are kept: a tuple for positions, a dict for names."""
    if params is None:
        return ()
    if isinstance(params, Mapping):
        return dict(params)
    if isinstance(params, str | bytes) or not isinstance(params, Sequence):
        raise TypeError(f"params={params!r}: give a list or tuple of values, or a dict where they have names")
    return tuple(params)
