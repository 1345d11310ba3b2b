"""SQLite, with Python's own module.

Connections are opened read-only from the path. Where the file is in WAL mode each holds a read transaction, and all
read one state; otherwise `PRAGMA data_version` tells whether there was a write meanwhile.

SQLite has no types of columns, only of cells: what a column is declared as is taken for its kind, and a cell that is
something else is refused with its value.

There are two ways to the cells, which give the same. Many rows of numbers go through a native loop over SQLite's own
functions (data/sql/sqlite_rows.py), without an object of Python's for each, beside other threads. Otherwise, or where
that is not to be had, rows come as tuples and become columns of machine numbers 256 at a time, while they are in the
processor's cache; `array` takes numbers alone, so that text, bytes and NULL are noticed for free.
"""
import os
import re
import sqlite3
import urllib.parse
from hashlib import blake2b

from ...base.locks import new_lock
from . import sqlite_rows
from .query import without_parameters
from .source import (
    BoundaryScan,
    ColumnFact,
    ConnectionLost,
    RowSession,
    RowSource,
    Snapshot,
    SnapshotLost,
    Wanted,
)
from .sqlite_cells import CursorRows, NativeRows, add_keys, all_added
from .sqlite_statements import SQLiteDialect, hash_of_values, kind_of, lost

NATIVE_ROWS = 4096              # from here on it pays to load what compiles
BUSY_SECONDS = 30               # how long another connection's writing is waited for


def source(con):
    """The RowSource of a path, an URI (`sqlite:///…`, `file:…`), a connection, or a function that connects."""
    if isinstance(con, sqlite3.Connection):
        return source_of_connection(con)
    if callable(con):
        return source_of_factory(con)
    text = os.fspath(con)
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    if text == ":memory:":
        raise ValueError("':memory:' is a database of its own for every connection, so there is nothing in it: give "
                         "the connection that made the tables")
    if text.startswith("sqlite:"):
        text = urllib.parse.unquote(text.removeprefix("sqlite:").removeprefix("//").removeprefix("/"))
    if text.startswith("file:"):
        return SQLiteSource(text, uri=True)
    if not os.path.isfile(text):
        raise FileNotFoundError(f"con={text!r}: there is no such file" if not os.path.exists(text) else
                                f"con={text!r} is no file of SQLite")
    return SQLiteSource(os.path.abspath(text))


def source_of_connection(con):
    """Connections are not shared: the file of this one is opened anew; a database in memory is copied."""
    if con.in_transaction:
        raise ValueError("con is in the middle of a transaction, which other connections do not see: commit() first, "
                         "or give the path of the file")
    path = next((row[2] for row in con.execute("PRAGMA database_list") if row[1] == "main"), "")
    return SQLiteSource(path) if path else SQLiteMemory(con.serialize())


def source_of_factory(make):
    made = make()
    if not isinstance(made, sqlite3.Connection):
        raise TypeError(f"con() gave {type(made).__module__}.{type(made).__name__}, which is no connection that is "
                        "known here")
    made.close()
    return SQLiteFactory(make)


# --- sources --------------------------------------------------------------------------------------------------------


class SQLiteSource(RowSource):
    """A file of SQLite."""

    def __init__(self, path, uri=False):
        self.path, self.uri = path, uri
        self.may_write = uri and "mode=rw" in path          # an address that SQLite does not open for reading alone
        self.name = f"SQLite, {path}"
        self.dialect = SQLiteDialect()

    @property
    def address(self):
        """The file, as SQLite itself opens it; None where connections are not opened by their address."""
        return self.path if self.uri else f"file:{urllib.parse.quote(self.path)}?mode=ro"

    def open(self):
        return opened(lambda: sqlite3.connect(self.address, uri=True, timeout=BUSY_SECONDS, isolation_level=None,
                                              check_same_thread=False))

    def connect(self, snapshot=None):
        return SQLiteSession(self, self.open(), snapshot)


class SQLiteFactory(SQLiteSource):
    """What a function of the user's connects to."""
    address = None

    def __init__(self, make):
        super().__init__("")
        self.make, self.name = make, f"SQLite, {getattr(make, '__qualname__', make)}()"

    def open(self):
        con = opened(self.make)
        con.isolation_level = None
        return con


class SQLiteMemory(SQLiteSource):
    """A database in memory, as it was when it was given: every connection gets a copy."""
    address = None

    def __init__(self, contents):
        super().__init__("")
        self.contents, self.name = contents, "SQLite, in memory"

    def open(self):
        con = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        con.deserialize(self.contents)
        return con

    def identity(self):
        return blake2b(self.contents, digest_size=16).hexdigest()


def opened(make):
    try:
        con = make()
        con.execute("PRAGMA query_only = ON")
        con.execute("PRAGMA reverse_unordered_selects = OFF")       # `fetch` relies on ranges being walked forwards
    except sqlite3.OperationalError as error:
        raise lost(error) from error
    return con


def chunks_of(answers, rows):
    """The answers, so many rows at a time, to the end."""
    while True:
        chunk = answers.take(rows)
        if len(chunk):
            yield chunk
        if len(chunk) < rows:
            return



# --- sessions -------------------------------------------------------------------------------------------------------


class SQLiteSession(RowSession):
    def __init__(self, source, con, snapshot=None):
        super().__init__()
        self.source, self.dialect, self.con = source, source.dialect, con
        self.sorted_already, self.must_sort = None, True    # of which query `must_sort` speaks
        self.snapshot_read, self.handle = snapshot, None
        self.counted: tuple = (None, 0)                     # the query that was counted last, and how many rows it has
        con.create_function(sqlite_rows.HASH_NAME, -1, hash_of_values, deterministic=True)
        if snapshot is not None and snapshot.exact:
            self.hold_state()
            if snapshot.changed():          # another connection has written since, and this transaction began behind it
                self.close()
                raise SnapshotLost("the database was written to before this connection could read the same state")

    def hold_state(self):
        """Read one state from now on (WAL alone: elsewhere a reader that stays would keep writers out)."""
        for text in HOLD_STATE:
            self.run(text).fetchall()

    def run(self, text, params=()):
        try:
            return self.con.execute(text, params)
        except sqlite3.OperationalError as error:
            raise lost(error) from error

    def describe(self, query):
        names = [name for name, *_ in self.run(f"SELECT * FROM (\n{query.text}\n) LIMIT 0", query.params).description]
        declared = self.declared(query)
        return [ColumnFact(name, word, kind_of(word)) for name, word in zip(names, declared or [""] * len(names))]

    def declared(self, query):
        """The declared types of the query's columns, which SQLite tells of a view; None if it can be no view."""
        self.con.execute("PRAGMA query_only = OFF")         # a temporary view is written beside the file, in memory
        try:
            self.con.execute("PRAGMA temp_store = MEMORY")
            self.con.execute(f"CREATE TEMP VIEW flambeau_view AS\n{without_parameters(query.text)}")
            told = [row[1:3] for row in self.con.execute("PRAGMA temp.table_info(flambeau_view)").fetchall()]
            return [self._declared_or_nothing(*column) for column in told]
        except sqlite3.OperationalError:
            return None
        finally:
            self.con.execute("DROP VIEW IF EXISTS temp.flambeau_view")
            self.con.execute("PRAGMA query_only = ON")

    def _declared_or_nothing(self, name, word):
        """The declared type of a column of the view; empty if there is none, of which SQLite says BLOB from 3.41 on: so
        the first cell is asked."""
        if word.upper() != "BLOB":
            return word
        column = '"' + name.replace('"', '""') + '"'
        first = self.con.execute(f"SELECT typeof({column}) FROM temp.flambeau_view WHERE {column} IS NOT NULL LIMIT 1")
        return word if first.fetchone() == ("blob",) else ""

    def count(self, query):
        self.counted = query, super().count(query)
        return self.counted[1]

    def native(self, wanted, params, rows):
        """The connection that reads through the native loop; None where these rows do not go through it."""
        values = params.values() if isinstance(params, dict) else params
        if rows < NATIVE_ROWS or self.source.address is None or self.source.may_write or sqlite_rows.library() is None \
                or any(each.form not in sqlite_rows.NUMBER_FORMS for each in wanted) \
                or any(type(value) not in (int, float, str, bytes, type(None)) for value in values):
            return None
        if self.handle is None:
            try:
                self.handle = sqlite_rows.SQLiteHandle(self.source.address, BUSY_SECONDS * 1000)
                if self.snapshot_read is not None and self.snapshot_read.exact:
                    for text in HOLD_STATE:
                        self.handle.execute(text)
            except sqlite_rows.SQLiteError as error:
                raise lost(error) from error
            self.same_state = self.snapshot_read is None or not self.snapshot_read.exact \
                or not self.snapshot_read.changed()
        return self.handle if self.same_state else None     # else it came too late to read what this session reads

    def answers(self, text, params, wanted, rows):
        """Something that gives the next so many rows of a statement as a Chunk, and is closed."""
        handle = self.native(wanted, params, rows)
        if handle is None:
            return CursorRows(self.run(text, params), wanted)
        return NativeRows(handle, text, params, wanted)

    def stream(self, query, wanted, rows, order=None, skip=0, limit=None):
        many = limit if limit is not None else self.counted[1] if self.counted[0] == query else 0
        answers = self.answers(self.dialect.stream(query, wanted, order, skip, limit), query.params, wanted, many)
        try:
            yield from chunks_of(answers, rows)
        except (sqlite3.OperationalError, sqlite_rows.SQLiteError) as error:
            raise lost(error) from error
        finally:
            answers.close()

    def boundaries(self, query, key, step):
        scan = BoundaryScan(key, step)
        cursor = self.run(self.dialect.boundaries(query, key, step), query.params)
        try:
            scan.add(cursor.fetchmany(NATIVE_ROWS))
            if scan.count == NATIVE_ROWS and (found := self.number_boundaries(query, key, step)) is not None:
                return found                                # there are more: the native loop begins anew, and is faster
            add_keys(scan, cursor)
        except sqlite3.OperationalError as error:
            raise lost(error) from error
        finally:
            cursor.close()
        return scan.done()

    def number_boundaries(self, query, key, step):
        """The same for a key of whole numbers, through the native loop; None where it is none, or that is not there."""
        wanted = [Wanted(key[0], "int", "int64")]
        handle = self.native(wanted, query.params, NATIVE_ROWS) if len(key) == 1 else None
        if handle is None:
            return None
        scan, statement = BoundaryScan(key, step), NativeRows(handle, self.dialect.boundaries(query, key, step),
                                                              query.params, wanted)
        try:
            return scan.done() if all_added(scan, statement) else None
        except (TypeError, OverflowError):                  # a key that is text, or a real number
            return None
        except sqlite_rows.SQLiteError as error:
            raise lost(error) from error
        finally:
            statement.close()

    def fetch(self, query, wanted, boundaries, blocks):
        ranges = boundaries.ranges(blocks)
        values = [value for low, high in ranges for value in (*low, *high)]
        if isinstance(query.params, dict):
            given = {f"flambeau_{i}": value for i, value in enumerate(values)}
            params, names = {**query.params, **given}, [f":{name}" for name in given]
        else:
            params, names = (*query.params, *values), ()
        text = self.dialect.fetch(query, wanted, boundaries.key, len(ranges), self.sorts(query, boundaries), names)
        rows = int(boundaries.rows_of(blocks).sum())
        answers = self.answers(text, params, wanted, rows)
        try:
            return [answers.take(rows + 1)]
        except (sqlite3.OperationalError, sqlite_rows.SQLiteError) as error:
            raise lost(error) from error
        finally:
            answers.close()

    def sorts(self, query, boundaries):
        """Whether `fetch` has to sort: not if one index of the key is walked for each range, which gives its order."""
        known = (query.text, boundaries.key)
        if self.sorted_already != known:
            loops = self.plan(query, (), boundaries).splitlines()
            self.sorted_already, self.must_sort = known, not (
                len(boundaries.key) == 1 and len(loops) == 2 and _INDEX_WALK.search(loops[1]))
        return self.must_sort

    def fetch_text(self, query, wanted, boundaries):
        return self.dialect.fetch(query, wanted, boundaries.key, 1, self.sorts(query, boundaries))

    def plan(self, query, wanted, boundaries):
        text = self.dialect.fetch(query, wanted or [Wanted(name, "int", "int64") for name in boundaries.key],
                                  boundaries.key, 1, ordered=False)
        if isinstance(query.params, dict):
            text = without_parameters(text)
            params = ()
        else:
            params = (*query.params, *[None] * (2 * len(boundaries.key)))
        steps = [row[3] for row in self.run(f"EXPLAIN QUERY PLAN {text}", params)]
        return "\n".join(step for step in steps if not step.startswith(("CO-ROUTINE", "SCAN CONSTANT", "SCAN 1 CONST")))

    def snapshot(self):
        made = SQLiteSnapshot(self.source, self.run("PRAGMA journal_mode").fetchone()[0])
        if made.exact:
            self.hold_state()
            if made.changed():
                made.close()
                raise ConnectionLost("the database was written to while a snapshot of it was taken")
        self.snapshot_read = made
        return made

    def cancel(self):
        self.con.interrupt()
        if self.handle is not None:
            self.handle.interrupt()

    def close(self):
        self.con.close()
        if self.handle is not None:
            self.handle.close()


HOLD_STATE = ("BEGIN", "SELECT count(*) FROM sqlite_master")        # a transaction begins with its first look


_INDEX_WALK = re.compile(r"^SEARCH .*\((?:\w+=\? AND )*(\w+)>\? AND \1<\?\)$")


class SQLiteSnapshot(Snapshot):
    """`data_version` of a connection of its own, which changes when another one has written to the file."""

    def __init__(self, source, journal_mode):
        self.exact = journal_mode == "wal"
        self.mark = mark_of(source) if isinstance(source, SQLiteSource) else ""
        self.lock, self.con = new_lock(), source.open()
        self.version = self.read_version()

    def read_version(self):
        try:
            return self.con.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.OperationalError as error:
            raise lost(error) from error

    def changed(self):
        with self.lock:
            return self.read_version() != self.version

    def close(self):
        with self.lock:
            self.con.close()


def mark_of(source):
    """How often the file was written to, as its header counts it. In WAL mode that is not counted: when, then."""
    path = source.path
    if isinstance(source, SQLiteMemory):
        return source.identity()
    if not path or source.uri:
        return ""
    with open(path, "rb") as file:
        header = file.read(100)
    count, pages, schema = (int.from_bytes(header[at:at + 4], "big") for at in (24, 28, 40))
    mark = f"written {count} pages {pages} schema {schema}"
    if header[18:20] == b"\2\2":
        for name in (path, f"{path}-wal"):
            try:
                about = os.stat(name)
            except FileNotFoundError:
                continue
            mark += f", {about.st_size} bytes at {about.st_mtime_ns}" if about.st_size else ""
    return mark
