"""PostgreSQL over ADBC: columns come as Arrow's batches, out of the server's binary COPY. No pyarrow is needed.

What is asked, and of which state, is as with psycopg. The driver copies where a statement has no parameters, so bounds
that are whole numbers stand in the text; other keys travel as texts, which the server makes and reads itself, and are
bound.
"""
import contextlib
import re

import adbc_driver_manager
import numpy as np

from .adbc_statements import batches
from .arrow import chunk_of
from .arrow_c import ArrowError
from .postgres_dialect import BEGIN, BOUNDARIES_AT_A_TIME, ExportedSnapshot, PostgresDialect, boundaries_in, kind_of
from .source import (
    Chunk,
    ColumnFact,
    ConnectionLost,
    Dialect,
    Query,
    RowSession,
    RowSource,
    SnapshotLost,
    Wanted,
)
from .tables import gathered, parts

BATCH_BYTES_OPTION = "adbc.postgresql.batch_size_hint_bytes"
BATCH_BYTES = 2 << 20
BATCH_BYTES_OF_BOUNDARIES = 1 << 17            # of which the driver and the reader hold several
RANGE = Wanted("flambeau_range", "int", "int64")
LOST_STATES = ("08", "57014", "57P", "53")     # the beginnings of SQLSTATEs that a new connection may mend


class AdbcPostgresSource(RowSource):
    """What a function of the user's connects to over ADBC."""

    def __init__(self, make):
        self.make, self.dialect = make, AdbcPostgresDialect()
        self.name = f"PostgreSQL over ADBC, {getattr(make, '__qualname__', make)}()"

    def connect(self, snapshot=None):
        try:
            con = self.make()
        except adbc_driver_manager.Error as error:
            raise ConnectionLost(f"{type(error).__name__}: {error}") from error
        try:
            return AdbcPostgresSession(self, con, snapshot)
        except BaseException:
            con.close()
            raise


class AdbcPostgresDialect(PostgresDialect):
    stream = Dialect.stream                    # columns, where psycopg gets records

    def boundaries(self, query, key, step, whole=()):
        found = ", ".join(f"k{i}::{'int8' if name in whole else 'text'} AS k{i}" for i, name in enumerate(key))
        return f"SELECT n, twice::int4 AS twice, {found} FROM (\n{super().boundaries(query, key, step)}\n) AS found"

    def fetch(self, query, wanted, key, ranges, arrays=None):
        """The rows of the ranges in `arrays`, one for each column of the key and side, with the number of the range."""
        width = len(key)
        sides = [[f"{side}{i}" for i in range(width)] for side in ("low", "high")]
        arrays = ", ".join(arrays or [f"${i + 1}" for i in range(2 * width)])
        names = [f"q.{self.quote(name)}" for name in key]
        row = lambda terms: terms[0] if width == 1 else f"({', '.join(terms)})"
        low, high = (row([f"b.{name}" for name in side]) for side in sides)
        bounds = ", ".join([*sides[0], *sides[1], "n"])
        return f"SELECT r.*, b.n AS {RANGE.name} FROM unnest({arrays}) WITH ORDINALITY AS b({bounds}) " \
               f"CROSS JOIN LATERAL (SELECT {self.columns(wanted)} FROM (\n{query.text}\n) AS q " \
               f"WHERE {row(names)} >= {low} AND {row(names)} <= {high} " \
               f"ORDER BY {', '.join(names)} OFFSET 0) AS r"


def objects_of(column, begin, end):
    """Values `begin` to `end` of an ArrowColumn as Python's objects, NULL as None."""
    values = column.values[begin:end].tolist()
    if column.nulls is None:
        return values
    return [None if gone else one for one, gone in zip(values, column.nulls[begin:end])]


class AdbcPostgresSession(RowSession):
    def __init__(self, source, con, snapshot=None):
        super().__init__()
        self.source, self.dialect, self.con = source, source.dialect, con
        self.facts: dict = {}
        con.adbc_connection.set_autocommit(True)              # transactions are begun here, read-only
        self.run("SET default_transaction_read_only = on")
        if snapshot is not None:
            self.run(BEGIN)
            try:
                self.run(f"SET TRANSACTION SNAPSHOT '{snapshot.name}'")
            except adbc_driver_manager.Error as error:
                raise SnapshotLost(str(error)) from error

    def run(self, text):
        """Run a statement that gives no rows."""
        with self.losing(), contextlib.closing(self.con.cursor()) as cursor:
            cursor.execute(text)

    def batches(self, query, text, more=(), size=BATCH_BYTES):
        """The Arrow batches of a statement, (rows, columns)."""
        with self.losing():
            yield from batches(self.con, text, (*query.params, *more), [(BATCH_BYTES_OPTION, str(size))])

    @contextlib.contextmanager
    def losing(self):
        """The driver's error as ConnectionLost, where a new connection may do better."""
        try:
            yield
        except (ArrowError, adbc_driver_manager.Error) as error:
            found = re.search(r"SQLSTATE: (\w{5})", str(error))
            state = getattr(error, "sqlstate", None) or (found and found[1])
            if state.startswith(LOST_STATES) if state else not self.answers():
                raise ConnectionLost(f"{type(error).__name__}: {error}") from error
            raise

    def answers(self):
        try:
            return bool(list(batches(self.con, "SELECT 1", ())))
        except (ArrowError, adbc_driver_manager.Error):
            return False

    def describe(self, query):
        """The facts of the query's columns, and what the server calls their types."""
        if isinstance(query.params, dict):
            raise TypeError(f"params={query.params!r}: over ADBC PostgreSQL's parameters are $1, $2, …: give a list")
        if query.text not in self.facts:
            with self.losing(), contextlib.closing(self.con.cursor()) as cursor:
                cursor.execute(f"SELECT * FROM (\n{query.text}\n) AS q LIMIT 0", query.params or None)
                names = [column[0] for column in cursor.description]
            columns = ", ".join(f"c{i}" for i in range(len(names)))
            types = " UNION ALL ".join(f"SELECT {i} AS position, pg_typeof(q.c{i})::oid::int8 AS type FROM q"
                                       for i in range(len(names)))
            text = f"WITH q AS (SELECT q.* FROM (VALUES (1)) AS one LEFT JOIN (SELECT * FROM (\n{query.text}\n) " \
                   f"AS inside LIMIT 0) AS q({columns}) ON true) SELECT f.type, format_type(f.type::oid, NULL) AS " \
                   f"word, t.typcategory::text AS category FROM ({types}) AS f JOIN pg_type AS t ON t.oid = f.type " \
                   "ORDER BY f.position"
            self.facts[query.text] = [ColumnFact(name, word, *kind_of(oid, category))
                                      for name, (oid, word, category) in zip(names, self.rows(query, text))]
        return self.facts[query.text]

    def stream(self, query, wanted, rows, order=None, skip=0, limit=None):
        for length, columns in self.batches(query, self.dialect.stream(query, wanted, order, skip, limit)):
            if length:
                yield from parts(chunk_of(columns, wanted), rows)

    def boundaries(self, query, key, step):
        whole = [fact.name for fact in self.describe(query) if fact.kind == "int"]
        return boundaries_in(self.rows(query, self.dialect.boundaries(query, key, step, whole)), key, step)

    def rows(self, query, text):
        """The rows of a statement, NULL as None; a batch is turned into objects a part at a time."""
        for length, columns in self.batches(query, text, size=BATCH_BYTES_OF_BOUNDARIES):
            plain = [each.plain() for each in columns]
            for begin in range(0, length, BOUNDARIES_AT_A_TIME):
                yield from zip(*(objects_of(each, begin, begin + BOUNDARIES_AT_A_TIME) for each in plain))

    def fetch(self, query, wanted, boundaries, blocks):
        declared = {fact.name: fact.declared for fact in self.describe(query)}
        types = [declared[name] for name in boundaries.key]
        sides = [[bound[i] for bound in side] for side in zip(*boundaries.ranges(blocks)) for i in range(len(types))]
        arrays, bound = [], []
        for i, values in enumerate(sides):
            if all(type(value) is int for value in values):
                arrays.append(f"'{{{','.join(map(str, values))}}}'::{types[i % len(types)]}[]")
            else:
                bound.append(array_text(values))
                arrays.append(f"${len(query.params) + len(bound)}::text::{types[i % len(types)]}[]")
        text = self.dialect.fetch(query, wanted, boundaries.key, len(sides[0]), arrays)
        chunks = [chunk_of(columns, [*wanted, RANGE]) for length, columns in self.batches(query, text, bound) if length]
        if all((np.diff(chunk.columns[-1]) >= 0).all() for chunk in chunks) and all(
                before.columns[-1][-1] <= after.columns[-1][0] for before, after in zip(chunks, chunks[1:])):
            return [Chunk(chunk.columns[:-1], chunk.nulls[:-1]) for chunk in chunks]
        return [in_order_of_ranges(chunks)]       # not walked range by range

    def fetch_text(self, query, wanted, boundaries):
        return self.dialect.fetch(query, wanted, boundaries.key, 1)

    def plan(self, query, wanted, boundaries):
        declared = {fact.name: fact.declared for fact in self.describe(query)}
        text = self.dialect.fetch(query, wanted, boundaries.key, 1,
                                  [f"'{{NULL}}'::{declared[name]}[]" for name in boundaries.key * 2])
        with self.losing(), contextlib.closing(self.con.cursor()) as cursor:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
            cursor.execute(f"EXPLAIN {text}", query.params or None)
            return "\n".join(line for line, in cursor.fetchall())

    def snapshot(self):
        self.run(BEGIN)
        query = Query("SELECT pg_export_snapshot() AS name")
        [[name]] = [columns[0].plain().values.tolist() for _, columns in self.batches(query, query.text)]
        return ExportedSnapshot(name)

    def end_state(self):
        self.run("COMMIT")
        return True

    def cancel(self):
        with contextlib.suppress(adbc_driver_manager.Error):      # what is over needs no end
            self.con.adbc_cancel()

    def close(self):
        con, self.con = self.con, None
        if con is not None:
            with contextlib.suppress(adbc_driver_manager.Error):  # a connection that is gone says so
                con.close()


def array_text(values):
    """PostgreSQL's text of an array of these texts."""
    quoted = (str(value).replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join(f'"{text}"' for text in quoted) + "}"


def in_order_of_ranges(chunks):
    """Chunks with the number of their range in the last column, as one, by that number."""
    columns = [np.concatenate(values) for values in zip(*(chunk.columns for chunk in chunks))]
    nulls = [None if all(each is None for each in which) else np.concatenate(
        [np.zeros(len(chunk), bool) if each is None else each for chunk, each in zip(chunks, which)])
        for which in zip(*(chunk.nulls for chunk in chunks))]
    return gathered(Chunk(columns[:-1], nulls[:-1]), np.argsort(columns[-1], kind="stable"))
