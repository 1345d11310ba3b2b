"""Any DB-API 2.0 driver (PEP 249), by a function that connects, and SQLAlchemy's engines.

A function whose connections belong to a driver that has an engine of its own here (sqlite3, psycopg, DuckDB, ADBC) is
handed to that. For all others there is standard SQL, and rows come as Python's objects: slower, but every driver gives
them. What differs between databases is in a dialect (MySQL, PostgreSQL through other drivers), what differs between
drivers is how parameters are written, which PEP 249 has five ways for.
"""
import contextlib
import sys

import numpy as np

from ...base.locks import new_lock
from .arrow import chunk_of
from .arrow_c import ArrowColumn
from .objects import from_objects
from .ranges import range_condition, range_values
from .source import (
    BoundaryScan,
    ColumnFact,
    ConnectionLost,
    Dialect,
    RowSession,
    RowSource,
    Snapshot,
    SnapshotLost,
    UnmarkedSnapshot,
)
from .tables import empty_chunk, gathered

ROWS_FETCHED = 4096                       # tuples that exist at a time
MOST_PARAMETERS = 2000                    # of a statement: SQL Server takes 2100
OWN_ENGINES = {"sqlite3": "sqlite", "psycopg": "postgres", "duckdb": "duckdb", "_duckdb": "duckdb",
               "adbc_driver_manager": "adbc"}


def source(con):
    """The RowSource of a function that connects, or of SQLAlchemy's engine."""
    if callable(con) and not hasattr(con, "raw_connection"):
        return source_of_factory(con)
    if hasattr(con, "raw_connection"):
        return source_of_factory(EngineFactory(con))
    raise TypeError(f"con is {type(con).__module__}.{type(con).__name__}, an open connection: workers open their own, "
                    "so give a function without arguments that gives a new one each time")


def source_of_factory(make):
    """The RowSource for the kind of connection that `make()` gives."""
    from importlib import import_module
    made = make()
    packages = [cls.__module__.split(".")[0] for cls in type(made).__mro__]
    engine = next((OWN_ENGINES[package] for package in packages if package in OWN_ENGINES), None)
    if engine is None and not hasattr(made, "cursor"):
        raise TypeError(f"con() gave {type(made).__module__}.{type(made).__name__}, which is no connection: it has "
                        "no cursor()")
    try:
        style, dialect = paramstyle_of(made), dialect_of(packages)
    finally:
        made.close()
    if engine is not None:
        return import_module(f".{engine}", __package__).source_of_factory(make)
    return DbapiSource(make, dialect, style)


class EngineFactory:
    """A new connection of the driver below SQLAlchemy's engine, which its pool does not have any more."""

    def __init__(self, engine):
        self.engine = engine
        self.__qualname__ = f"SQLAlchemy's engine of {engine.url.render_as_string(hide_password=True)}"

    def __call__(self):
        pooled = self.engine.raw_connection()
        driver = pooled.driver_connection
        pooled.detach()
        return driver


# --- drivers --------------------------------------------------------------------------------------------------------


def modules_of(con):
    """The driver's modules, from that of the connection's class up to the package."""
    for cls in type(con).__mro__:
        name = cls.__module__
        while name:
            if name in sys.modules:
                yield sys.modules[name]
            name = name.rpartition(".")[0]


def paramstyle_of(con):
    return next((module.paramstyle for module in modules_of(con) if hasattr(module, "paramstyle")), "qmark")


def driver_errors(con):
    """The driver's exceptions for what a new connection may mend."""
    found = [getattr(module, name) for module in modules_of(con) for name in ("OperationalError", "InterfaceError")
             if hasattr(module, name)]
    return tuple(found) or (ConnectionError,)


def dialect_of(packages):
    if any(package in ("pymysql", "MySQLdb", "mysql", "mariadb") for package in packages):
        return MySQLDialect()
    if any(package in ("psycopg2", "pg8000") for package in packages):
        return OtherPostgresDialect()
    return StandardDialect()


class Placing:
    """A query with values of ours behind its own, in the driver's way of writing parameters."""

    def __init__(self, query, style, count=0):
        self.names = [f"flambeau_{i}" for i in range(count)]
        self.named = isinstance(query.params, dict) or (style == "named" and not query.params)
        percent = style in ("format", "pyformat")
        self.text = query.text.replace("%", "%%") if percent and not query.params and count else query.text
        self.params = query.params
        if self.named:
            self.placeholders = [f"%({name})s" if percent else f":{name}" for name in self.names]
        else:
            first = len(query.params) + 1
            self.placeholders = {"qmark": ["?"] * count, "numeric": [f":{first + i}" for i in range(count)]}.get(
                style, ["%s"] * count)

    def with_values(self, values):
        if not self.named:
            return (*self.params, *values)
        return {**dict(self.params), **dict(zip(self.names, values))}


# --- statements -----------------------------------------------------------------------------------------------------


class StandardDialect(Dialect):
    """SQL that every database knows: ranges are conditions, side by side."""
    name = "SQL"
    limits = False                        # whether LIMIT and OFFSET are known

    def fetch(self, query, wanted, key, ranges, placeholders=None):
        placeholders = iter(lambda: "?", None) if placeholders is None else iter(placeholders)
        names = [f"q.{self.quote(name)}" for name in key]
        conditions = " OR ".join(f"({range_condition(names, placeholders)})" for _ in range(ranges))
        return f"SELECT {self.columns(wanted)} FROM (\n{query.text}\n) AS q WHERE {conditions} " \
               f"ORDER BY {', '.join(names)}"

    def kind_of_code(self, code):
        """(kind, bits) of a driver's code for a type."""
        return "unknown", 64

    def begin(self, session):
        """A snapshot of what the session reads from now on."""
        return UnmarkedSnapshot()

    def streaming_cursor(self, con):
        """A cursor whose rows stay on the server until they are asked for, where the driver has one."""
        return con.cursor()


class MySQLDialect(StandardDialect):
    name = "MySQL"
    limits = True
    kinds = {0: ("decimal", 64), 246: ("decimal", 64), 1: ("int", 8), 2: ("int", 16), 3: ("int", 32), 8: ("int", 64),
             9: ("int", 32), 13: ("int", 32), 4: ("float", 32), 5: ("float", 64), 7: ("timestamp", 64),
             12: ("timestamp", 64), 10: ("date", 32), 15: ("text", 64), 247: ("text", 64), 253: ("text", 64),
             254: ("text", 64), 252: ("text", 64), 6: ("unknown", 64)}

    def quote(self, name):
        super().quote(name)               # refuses a zero character
        return "`" + name.replace("`", "``") + "`"

    def stream(self, query, wanted, order, skip=0, limit=None):
        if skip and limit is None:
            limit = 2 ** 63               # MySQL has no OFFSET without a LIMIT
        return super().stream(query, wanted, order, skip, limit)

    def cast(self, expression, wanted):
        # Single precision is sent as six digits, unless it is asked for as a double.
        return f"{expression} + 0e0" if wanted.form == "float32" else expression

    def hash(self, key, salt):
        return f"sha1(concat_ws('|', {int(salt)}, {', '.join(key)}))"

    def kind_of_code(self, code):
        return self.kinds.get(code, ("other", 64))

    def begin(self, session):
        session.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", ())
        session.run("START TRANSACTION WITH CONSISTENT SNAPSHOT", ())
        return HeldTransaction(session)

    def streaming_cursor(self, con):
        cursors = getattr(sys.modules.get(type(con).__module__.split(".")[0]), "cursors", None)
        return con.cursor(cursors.SSCursor) if hasattr(cursors, "SSCursor") else con.cursor()


class OtherPostgresDialect(StandardDialect):
    """PostgreSQL through another driver than psycopg 3."""
    name = "PostgreSQL"
    limits = True

    def hash(self, key, salt):
        return f"hashtextextended(ROW({', '.join(key)})::text, {int(salt)})"


class HeldTransaction(Snapshot):
    """A transaction of one session, which all others read in, taking turns."""

    def __init__(self, holder):
        self.holder = holder


# --- source and session ---------------------------------------------------------------------------------------------


class DbapiSource(RowSource):
    """What a function of the user's connects to."""

    def __init__(self, make, dialect, style):
        self.make, self.dialect, self.style = make, dialect, style
        self.name = f"{dialect.name}, {getattr(make, '__qualname__', make)}"

    def connect(self, snapshot=None):
        holder = getattr(snapshot, "holder", None)
        if holder is not None:
            if holder.con is None:
                raise SnapshotLost("the session that held the transaction is closed")
            return DbapiSession(self, holder.con, holder)
        try:
            con = self.make()
        except Exception as error:
            if type(error).__name__ in ("OperationalError", "InterfaceError"):
                raise ConnectionLost(f"{type(error).__name__}: {error}") from error
            raise
        return DbapiSession(self, con)


class DbapiSession(RowSession):
    """One connection; with a `holder`, that session's, in whose transaction it reads."""

    def __init__(self, source, con, holder=None):
        super().__init__()
        self.source, self.dialect, self.con, self.holder = source, source.dialect, con, holder
        self.lock = new_lock() if holder is None else holder.lock
        self.shared = holder is not None
        self.errors = driver_errors(con)

    def run(self, text, params, cursor=None):
        """A cursor that has run the statement."""
        cursor = self.con.cursor() if cursor is None else cursor
        with self.losing():
            if params:
                cursor.execute(text, params)
            else:
                cursor.execute(text)              # without parameters, % is % for drivers that read it
        return cursor

    @contextlib.contextmanager
    def losing(self):
        """The driver's error as ConnectionLost, if the connection does not answer any more."""
        try:
            yield
        except self.errors as error:
            if self.con is None or self.answers():
                raise
            raise ConnectionLost(f"{type(error).__name__}: {error}") from error

    def answers(self):
        try:
            with contextlib.closing(self.con.cursor()) as cursor:
                cursor.execute("SELECT 1")
                return bool(cursor.fetchall())
        except Exception:                         # whatever a broken connection says
            return False

    def tuples(self, text, params, rows=ROWS_FETCHED):
        """Lists of rows. In a shared transaction all at once: others use the connection meanwhile."""
        if not self.shared:
            return self.read(text, params, rows)
        with self.lock:
            return iter(list(self.read(text, params, rows)))

    def read(self, text, params, rows):
        with contextlib.closing(self.run(text, params, self.dialect.streaming_cursor(self.con))) as cursor:
            while True:
                with self.losing():
                    found = cursor.fetchmany(rows)
                if not found:
                    return
                yield found

    def describe(self, query):
        placing = Placing(query, self.source.style)
        with self.lock, contextlib.closing(self.run(f"SELECT * FROM (\n{placing.text}\n) AS q WHERE 1 = 0",
                                                    query.params)) as cursor:
            found = [(column[0], column[1]) for column in cursor.description]
            cursor.fetchall()
        return [ColumnFact(name, "", *self.dialect.kind_of_code(code)) for name, code in found]

    def stream(self, query, wanted, rows, order=None, skip=0, limit=None):
        if self.dialect.limits:
            text, drop, take = self.dialect.stream(query, wanted, order, skip, limit), 0, None
        else:
            text, drop, take = self.dialect.stream(query, wanted, order), skip, limit
        for found in self.tuples(text, query.params, rows):
            drop, found = max(drop - len(found), 0), found[drop:]
            if take is not None:
                found = found[:take]
                take -= len(found)
            if found:
                yield chunk_of_tuples(found, wanted)
            if take == 0:
                return

    def boundaries(self, query, key, step):
        scan = BoundaryScan(key, step)
        for found in self.tuples(self.dialect.boundaries(query, key, step), query.params):
            scan.add([tuple(row) for row in found])
        return scan.done()

    def fetch(self, query, wanted, boundaries, blocks):
        blocks = np.asarray(blocks)
        ranges = boundaries.ranges(np.sort(blocks))
        each = len(range_values(ranges[:1]))
        size = max(1, (MOST_PARAMETERS - len(query.params)) // each) if ranges else 1
        found = [row for begin in range(0, len(ranges), size)
                 for row in self.rows_in(query, wanted, boundaries.key, ranges[begin:begin + size])]
        return [in_listed_order(chunk_of_tuples(found, wanted), boundaries, blocks)]

    def rows_in(self, query, wanted, key, ranges):
        """The rows of these ranges, by key."""
        values = range_values(ranges)
        placing = Placing(query, self.source.style, len(values))
        text = self.dialect.fetch(query._replace(text=placing.text), wanted, key, len(ranges), placing.placeholders)
        return (row for rows in self.tuples(text, placing.with_values(values)) for row in rows)

    def snapshot(self):
        made = self.dialect.begin(self)
        self.shared = self.shared or isinstance(made, HeldTransaction)
        return made

    def cancel(self):
        """PEP 249 knows no way to end a statement; some connections do."""
        end = getattr(self.con, "interrupt", None) or getattr(self.con, "cancel", None)
        if callable(end):
            with contextlib.suppress(Exception):      # what is over needs no end
                end()

    def close(self):
        con, self.con = self.con, None
        if con is not None and self.holder is None:
            with contextlib.suppress(*self.errors):   # a connection that is gone says so
                con.close()


def in_listed_order(chunk, boundaries, blocks):
    """Rows that came in the order of their key, in the order in which blocks were asked for."""
    rows = boundaries.rows_of(np.sort(blocks))
    if len(chunk) != rows.sum():          # the table has changed, which the caller says
        return chunk
    starts = dict(zip(np.sort(blocks).tolist(), (np.cumsum(rows) - rows).tolist()))
    counts = boundaries.rows_of(blocks).tolist()
    at = [np.arange(starts[block], starts[block] + count) for block, count in zip(blocks.tolist(), counts)]
    return gathered(chunk, np.concatenate(at)) if at else chunk


def chunk_of_tuples(rows, wanted):
    """The Chunk of rows of Python's objects."""
    if not rows:
        return empty_chunk(wanted)
    columns = []
    for cells in zip(*rows):
        values = np.empty(len(cells), object)
        values[:] = cells
        missing = np.fromiter((cell is None for cell in cells), bool, len(cells))
        columns.append(ArrowColumn(*from_objects(values, missing)))
    return chunk_of(columns, wanted)
