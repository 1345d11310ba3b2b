"""ADBC's connections: rows come as Arrow's batches. No pyarrow is needed.

SQLite over ADBC is SQLite: Python's module opens the file as well, and tells what columns are declared as, which hash a
key has, and whether somebody has written; the rows alone come through the driver. Other databases are asked in standard
SQL, PostgreSQL with its casts.
"""
import contextlib

import numpy as np

from ...backends.arrow import ArrowError, ArrowStream
from .arrow import chunk_of, facts_of, in_form, joined
from .dbapi import (
    DbapiSession,
    DbapiSource,
    OtherPostgresDialect,
    Placing,
    StandardDialect,
    in_listed_order,
    paramstyle_of,
)
from .oids import KIND_OF_OID
from .ranges import range_values
from .source import BoundaryScan, ColumnFact, ConnectionLost, Wanted
from .sqlite import SQLiteSession, SQLiteSource
from .tables import empty_chunk, parts

BATCH_ROWS_OPTION, BATCH_ROWS = "adbc.sqlite.query.batch_rows", "16384"


def source(con):
    """The RowSource of an open connection, whose copies are what reads."""
    return source_of_factory(con.adbc_clone)


def source_of_factory(make):
    """The RowSource of a function that connects."""
    with contextlib.closing(make()) as made:
        packages = {cls.__module__.split(".")[0] for cls in type(made).__mro__}
        if "adbc_driver_sqlite" in packages or "sqlite" in str(made.adbc_connection.__class__):
            return AdbcSQLiteSource(path_of(made), make)
        dialect = AdbcPostgresDialect() if "adbc_driver_postgresql" in packages else StandardDialect()
        return AdbcSource(make, dialect, "numeric_dollar" if dialect.limits else paramstyle_of(made))


def path_of(con):
    with contextlib.closing(con.cursor()) as cursor:
        cursor.execute("SELECT file FROM pragma_database_list WHERE name = 'main'")
        with ArrowStream(cursor.fetch_arrow()) as stream:
            [path] = [value for _, [column] in stream for value in column.plain().values.tolist()]
    if not path:
        raise ValueError("a database in memory belongs to its connection: write it to a file, and connect to that")
    return path


def batches(con, text, params, options=()):
    """The Arrow batches of a statement, (rows, columns)."""
    with contextlib.closing(con.cursor()) as cursor:
        cursor.adbc_statement.set_options(**dict(options))
        cursor.execute(text, params or None)
        with ArrowStream(cursor.fetch_arrow()) as stream:
            yield from stream


# --- SQLite ---------------------------------------------------------------------------------------------------------


class AdbcSQLiteSource(SQLiteSource):
    def __init__(self, path, make):
        super().__init__(path)
        self.make, self.name = make, f"SQLite over ADBC, {path}"

    def connect(self, snapshot=None):
        return AdbcSQLiteSession(self, self.open(), snapshot)


class AdbcSQLiteSession(SQLiteSession):
    def __init__(self, source, con, snapshot=None):
        self.adbc = source.make()
        self.adbc.adbc_connection.set_autocommit(True)        # a transaction that stays keeps writers out
        try:
            super().__init__(source, con, snapshot)
        except BaseException:
            self.adbc.close()
            raise

    def hold_state(self):
        super().hold_state()
        self.adbc.adbc_connection.set_autocommit(False)
        for _ in batches(self.adbc, "SELECT count(*) FROM sqlite_master", ()):
            pass

    def stream(self, query, wanted, rows, order=None, skip=0, limit=None):
        if order is not None and order.salt is not None or isinstance(query.params, dict):
            yield from super().stream(query, wanted, rows, order, skip, limit)      # a hash is a function of Python's
            return
        given = 0
        try:
            for length, columns in batches(self.adbc, self.dialect.stream(query, wanted, order, skip, limit),
                                           query.params, {BATCH_ROWS_OPTION: BATCH_ROWS}.items()):
                if length:
                    chunk = chunk_of(columns, wanted)
                    given += length
                    yield from parts(chunk, rows)
        except ArrowError as error:
            # The driver takes a column for what its first rows hold, and gives up at a row that holds something else.
            if "Type mismatch" not in str(error):
                raise ConnectionLost(str(error)) from error
            left = None if limit is None else limit - given
            yield from super().stream(query, wanted, rows, order, skip + given, left)

    def fetch(self, query, wanted, boundaries, blocks):
        if isinstance(query.params, dict):
            return super().fetch(query, wanted, boundaries, blocks)
        ranges = boundaries.ranges(blocks)
        values = [value for low, high in ranges for value in (*low, *high)]
        text = self.dialect.fetch(query, wanted, boundaries.key, len(ranges), self.sorts(query, boundaries))
        try:
            found = list(batches(self.adbc, text, (*query.params, *values), {BATCH_ROWS_OPTION: BATCH_ROWS}.items()))
        except ArrowError:
            return super().fetch(query, wanted, boundaries, blocks)       # as above; or it says what is wrong
        return joined([chunk_of(columns, wanted) for length, columns in found if length]) or empty_chunk(wanted)

    def cancel(self):
        super().cancel()
        with contextlib.suppress(Exception):              # NotSupportedError, of a driver that cannot
            self.adbc.adbc_cancel()

    def close(self):
        super().close()
        with contextlib.suppress(Exception):              # closed already
            self.adbc.close()


# --- others ---------------------------------------------------------------------------------------------------------


class AdbcPostgresDialect(OtherPostgresDialect):
    """PostgreSQL over ADBC, which sends decimals as text."""

    def cast(self, expression, wanted):
        if wanted.kind == "date":
            return f"({expression} - DATE '1970-01-01')::int8"
        if wanted.kind == "timestamp":
            return f"extract(epoch FROM {expression})::float8"
        types = {"text": "text", "float32": "float4", "float64": "float8", "int16": "int2", "int32": "int4",
                 "int64": "int8", "bool": "bool"}
        return f"{expression}::{types[wanted.form]}"

    def kinds(self, query, names):
        """A statement that gives one row: the number of each column's type."""
        types = ", ".join(f"pg_typeof(q.{self.quote(name)})::oid::int8" for name in names)
        return f"SELECT {types} FROM (VALUES (1)) AS one LEFT JOIN (\n{query.text}\n) AS q ON false"


class AdbcSource(DbapiSource):
    def connect(self, snapshot=None):
        made = super().connect(snapshot)
        return AdbcSession(self, made.con)


class AdbcSession(DbapiSession):
    def arrow(self, text, params):
        with self.losing():
            try:
                yield from batches(self.con, text, params)
            except ArrowError as error:
                raise ConnectionLost(str(error)) from error

    def answers(self):
        try:
            return bool(list(batches(self.con, "SELECT 1", ())))
        except Exception:                             # whatever a broken connection says
            return False

    def describe(self, query):
        with contextlib.closing(self.con.cursor()) as cursor:
            with self.losing():
                cursor.execute(f"SELECT * FROM (\n{query.text}\n) AS q WHERE 1 = 0", query.params or None)
            with ArrowStream(cursor.fetch_arrow()) as stream:
                facts = facts_of(stream.fields)
        if not isinstance(self.dialect, AdbcPostgresDialect) or not facts:
            return facts
        names = [fact.name for fact in facts]
        [(_, columns)] = self.arrow(self.dialect.kinds(query, names), query.params)
        kinds = [KIND_OF_OID.get(int(column.values[0]), ("other", 64)) for column in columns]
        return [ColumnFact(fact.name, fact.declared, *kind) for fact, kind in zip(facts, kinds)]

    def stream(self, query, wanted, rows, order=None, skip=0, limit=None):
        if self.dialect.limits:
            text, drop, take = self.dialect.stream(query, wanted, order, skip, limit), 0, None
        else:
            text, drop, take = self.dialect.stream(query, wanted, order), skip, limit
        for length, columns in self.arrow(text, query.params):
            if not length:
                continue
            chunk = chunk_of(columns, wanted)
            start, drop = min(drop, length), max(drop - length, 0)
            end = length if take is None else min(length, start + take)
            take = None if take is None else take - (end - start)
            if end > start:
                yield from parts(chunk.part(start, end), rows)
            if take == 0:
                return

    def boundaries(self, query, key, step):
        scan = BoundaryScan(key, step)
        for length, columns in self.arrow(self.dialect.boundaries(query, key, step), query.params):
            plain = [column.plain() for column in columns]
            if len(key) == 1 and plain[0].values.dtype.kind == "i":
                if length:
                    scan.add_numbers(*in_form(columns[0], Wanted(key[0], "int", "int64")))
                continue
            cells = [values.tolist() if nulls is None else np.where(nulls, None, values.astype(object)).tolist()
                     for values, nulls, _ in ((column.values, column.nulls, None) for column in plain)]
            scan.add(list(zip(*cells)))
        return scan.done()

    def fetch(self, query, wanted, boundaries, blocks):
        blocks = np.asarray(blocks)
        ranges = boundaries.ranges(np.sort(blocks))
        values = range_values(ranges)
        placing = Placing(query, self.source.style, len(values))
        text = self.dialect.fetch(query._replace(text=placing.text), wanted, boundaries.key, len(ranges),
                                  placing.places)
        found = [chunk_of(columns, wanted)
                 for length, columns in self.arrow(text, placing.with_values(values)) if length]
        return in_listed_order(joined(found) or empty_chunk(wanted), boundaries, blocks)

    def cancel(self):
        with contextlib.suppress(Exception):              # what is over needs no end
            self.con.adbc_cancel()
