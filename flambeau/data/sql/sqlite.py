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
import struct
import urllib.parse
from array import array
from hashlib import blake2b

import numpy as np

from ...base.locks import new_lock
from ...utils.data import sample_random
from . import sqlite_rows
from .query import without_parameters
from .source import (
    BoundaryScan,
    Chunk,
    ColumnFact,
    ConnectionLost,
    Dialect,
    RowSession,
    RowSource,
    Snapshot,
    SnapshotLost,
    Wanted,
)

ROWS_AT_ONCE = 256              # tuples that exist at a time
SCANNED_KEYS = 65_536           # keys that are scanned at a time
NATIVE_ROWS = 4096              # from here on it pays to load what compiles
BUSY_SECONDS = 30               # how long another connection's writing is waited for
EXACT_INTEGERS = 2 ** 53        # beyond them float64 has gaps


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


def lost(error):
    """What to raise for a driver's error: ConnectionLost where asking again may help, the error itself otherwise."""
    if isinstance(error, sqlite_rows.SQLiteError):
        code, error = error.code, sqlite3.OperationalError(str(error))
    else:
        code = getattr(error, "sqlite_errorcode", 0)
    return ConnectionLost(str(error)) if code & 0xFF in MAY_PASS else error


# what a second attempt may not meet again: BUSY, LOCKED, IOERR, CANTOPEN, PROTOCOL
MAY_PASS = (5, 6, 10, 14, 15)


# --- statements -----------------------------------------------------------------------------------------------------


class SQLiteDialect(Dialect):
    name = "SQLite"

    def cast(self, expression, wanted):
        if wanted.kind == "date":           # text in ISO's form, or whole days
            return f"CASE typeof({expression}) WHEN 'text' THEN strftime('%s', {expression}, 'start of day') / 86400 " \
                   f"ELSE {expression} END"
        if wanted.kind == "timestamp":      # text in ISO's form (strftime knows milliseconds), or seconds
            return f"CASE typeof({expression}) WHEN 'text' THEN strftime('%s', {expression}) + " \
                   f"(strftime('%f', {expression}) - strftime('%S', {expression})) ELSE {expression} END"
        return expression

    def hash(self, key, salt):
        return f"{sqlite_rows.HASH_NAME}({int(salt)}, {', '.join(key)})"

    def columns(self, wanted, table="q"):
        """Cells go by position, so columns need no names."""
        return ", ".join(self.cast(f"{table}.{self.quote(w.name)}", w) for w in wanted)

    def key_terms(self, key, table="q"):
        """Keys are compared byte by byte, whatever collation a column has: two keys that it takes for equal are two."""
        return [f"{table}.{self.quote(name)} COLLATE BINARY" for name in key]

    def order(self, order, table="q"):
        if order is None:
            return ""
        hashed = [] if order.salt is None else [self.hash([f"{table}.{self.quote(n)}" for n in order.key], order.salt)]
        return f" ORDER BY {', '.join([*hashed, *self.key_terms(order.key, table)])}"

    def stream(self, query, wanted, order, skip=0, limit=None):
        if skip and limit is None:
            limit = -1                      # SQLite has no OFFSET without a LIMIT
        return super().stream(query, wanted, order, skip, limit)

    def boundaries(self, query, key, step):
        names = ", ".join(f"q.{self.quote(name)}" for name in key)
        return f"SELECT {names} FROM (\n{query.text}\n) AS q ORDER BY {', '.join(self.key_terms(key))}"

    def fetch(self, query, wanted, key, ranges, ordered=True, names=()):
        """The ranges are the outer loop, since CROSS JOIN keeps the order in which it is written.

        Not `ordered`: nothing is sorted, where an index of the key is walked inside that loop.
        """
        placeholders = iter(names) if names else iter(lambda: "?", None)
        width = len(key)
        bounds = [", ".join(f"{side}{i}" for i in range(width)) for side in ("low", "high")]
        values = ", ".join(f"({n}, {', '.join(next(placeholders) for _ in range(2 * width))})" for n in range(ranges))
        terms = self.key_terms(key)
        if width == 1:
            condition = f"{terms[0]} BETWEEN b.low0 AND b.high0"
        else:
            low, high = (", ".join(f"b.{side}{i}" for i in range(width)) for side in ("low", "high"))
            condition = f"({', '.join(terms)}) BETWEEN ({low}) AND ({high})"
        text = f"WITH q AS (\n{query.text}\n), b(n, {', '.join(bounds)}) AS (VALUES {values}) " \
               f"SELECT {self.columns(wanted)} FROM b CROSS JOIN q ON {condition}"
        return text + (f" ORDER BY b.n, {', '.join(terms)}" if ordered else "")


def hash_of_values(*values):
    """A number of 63 bits: what the native function of data/sql/sqlite_rows.py gives, for Python's own connections."""
    made = 0
    for value in values:
        for word in words_of(value):
            made = sample_random.mixed_number(made + sample_random.GOLDEN_STEP * (word + 1))
    return made >> 1


def words_of(value):
    """A whole number, the bits of a real one; of text and bytes eight for each, and the length."""
    if value.__class__ is int:
        return (value,)
    if value.__class__ is float:
        return struct.unpack("<q", struct.pack("<d", value))
    if value is None:
        return (0,)
    content = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)
    return *struct.unpack(f"<{-(-len(content) // 8)}Q", content + bytes(-len(content) % 8)), len(content)


# --- kinds ----------------------------------------------------------------------------------------------------------

# By the first of these that the declared type contains, in capital letters: SQLite's own rule of affinity, with dates
# and truth values, which have none, before it.
KIND_OF_DECLARED = [("BOOL", "bool"), ("TIMESTAMP", "timestamp"), ("DATETIME", "timestamp"), ("DATE", "date"),
                    ("INT", "int"), ("CHAR", "text"), ("CLOB", "text"), ("TEXT", "text"), ("BLOB", "other"),
                    ("REAL", "float"), ("FLOA", "float"), ("DOUB", "float"), ("DEC", "decimal"), ("NUM", "decimal")]


def kind_of(declared):
    return next((kind for word, kind in KIND_OF_DECLARED if word in declared.upper()), "unknown")


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


# --- cells ----------------------------------------------------------------------------------------------------------


def add_keys(scan, cursor):
    while rows := cursor.fetchmany(ROWS_AT_ONCE):
        scan.add(rows)


def all_added(scan, rows):
    """Give the keys to the scan, to the last; False if it finds that they are not in order."""
    while len(chunk := rows.take(SCANNED_KEYS)):
        if not scan.add_numbers(chunk.columns[0], chunk.nulls[0]):
            return False
        if len(chunk) < SCANNED_KEYS:
            break
    return True


class NativeRows:
    """The rows of a statement through the native loop."""

    def __init__(self, handle, text, params, wanted):
        self.wanted = wanted
        try:
            self.statement = sqlite_rows.SQLiteStatement(handle, text, params)
        except sqlite_rows.SQLiteError as error:
            raise lost(error) from error

    def take(self, rows):
        try:
            columns, nulls, _ = self.statement.rows([each.form for each in self.wanted], rows)
        except sqlite_rows.WrongCell as wrong:
            refuse_cell(self.wanted[wrong.column], wrong.value)
        for i, each in enumerate(self.wanted):
            if each.form == "bool":
                columns[i] = truth_values(each, columns[i])
        return Chunk(columns, nulls)

    def close(self):
        self.statement.close()


class CursorRows:
    """The rows of a cursor of Python's module."""

    def __init__(self, cursor, wanted):
        self.cursor, self.wanted = cursor, wanted

    def take(self, rows):
        columns = [CellColumn(each, rows) for each in self.wanted]
        at = 0
        while at < rows and (taken := self.cursor.fetchmany(min(ROWS_AT_ONCE, rows - at))):
            for column, cells in zip(columns, zip(*taken)):
                column.take(cells, at)
            at += len(taken)
        return Chunk([column.values[:at] for column in columns],
                     [None if column.nulls is None else column.nulls[:at] for column in columns])

    def close(self):
        self.cursor.close()


class CellColumn:
    """A column that is being filled from cells."""

    def __init__(self, wanted, rows):
        self.wanted, self.rows = wanted, rows
        self.values = np.empty(rows, object if wanted.form == "text" else wanted.form)
        self.nulls = None
        self.code = "d" if self.values.dtype.kind == "f" else "q"

    def take(self, cells, at):
        if self.wanted.form == "text":
            return self.take_text(cells, at)
        try:
            numbers = np.asarray(array(self.code, cells))
        except TypeError:
            numbers = self.without_nulls(cells, at)
        if self.code == "d" and (abs(numbers) >= EXACT_INTEGERS).any():
            for cell in cells:
                if isinstance(cell, int) and int(float(cell)) != cell:
                    refuse_cell(self.wanted, cell)
        self.values[at:at + len(cells)] = truth_values(self.wanted, numbers) if self.wanted.form == "bool" else numbers

    def take_text(self, cells, at):
        for cell in {*cells}:
            if not isinstance(cell, str) and cell is not None:
                refuse_cell(self.wanted, cell)
        if None in cells:
            self.found_nulls(cells, at)
        self.values[at:at + len(cells)] = cells

    def found_nulls(self, cells, at):
        if self.nulls is None:
            self.nulls = np.zeros(self.rows, bool)
        self.nulls[at:at + len(cells)] = [cell is None for cell in cells]

    def without_nulls(self, cells, at):
        """The cells as numbers, with 0 for NULL; what is neither is refused."""
        self.found_nulls(cells, at)
        try:
            return np.asarray(array(self.code, [0 if cell is None else cell for cell in cells]))
        except TypeError:
            right = (int, float) if self.code == "d" else int
            refuse_cell(self.wanted, next(cell for cell in cells if cell is not None and not isinstance(cell, right)))


def truth_values(wanted, numbers):
    wrong = (numbers < 0) | (numbers > 1)
    if wrong.any():
        refuse_cell(wanted, int(numbers[wrong][0]))
    return numbers.astype(bool)


def refuse_cell(wanted, cell):
    name = wanted.name
    said = repr(cell) if len(repr(cell)) < 60 else repr(cell)[:57] + "…"
    if isinstance(cell, int) and wanted.form == "float64":
        raise OverflowError(f"column {name!r} holds {cell}, which no float64 is equal to; declare the column INTEGER, "
                            "or cast it in the query")
    if isinstance(cell, str) and wanted.form != "text":
        hint = f"text becomes numbers by codes={{{name!r}: {{{said}: 0, …}}}}"
    else:
        hint = f"cast it in the query, such as CAST({name} AS {'TEXT' if wanted.form == 'text' else 'REAL'}) AS {name}"
    raise TypeError(f"column {name!r} is taken for {wanted.kind} and holds {said}; {hint}")
