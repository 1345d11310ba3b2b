"""PostgreSQL, with psycopg 3 and results in binary form.

A driver that gives a Python object for each cell would be what takes the time. So the server packs: a fetch asks for an
array of each column for each range of keys, a stream for one record for each row; both arrive as bytes, and NumPy reads
the numbers out of them where they lie side by side.

    SELECT b.n, r.* FROM unnest(lows, highs) WITH ORDINALITY AS b(low0, high0, n)
    CROSS JOIN LATERAL (SELECT array_agg(s.c0), … FROM (
        SELECT … FROM (query) AS q WHERE q.key >= b.low0 AND q.key <= b.high0 ORDER BY q.key OFFSET 0) AS s) AS r

`OFFSET 0` keeps the planner from dissolving the inner query: it is run once for each range, by the key's index, and its
rows reach the aggregates in order. All sessions of an epoch read one exported snapshot.
"""
import contextlib

import numpy as np
import psycopg
from psycopg import conninfo
from psycopg.pq import TransactionStatus
from psycopg.types.string import ByteaBinaryLoader

from ...backends.cpu.host import array_over
from .postgres_arrays import element_starts
from .postgres_dialect import (
    BEGIN,
    BOUNDARIES_AT_A_TIME,
    WIRE_TYPE,
    ExportedSnapshot,
    PostgresDialect,
    boundaries_in,
    kind_of,
)
from .source import (
    Chunk,
    ColumnFact,
    ConnectionLost,
    RowSession,
    RowSource,
    SnapshotLost,
)

RECORD_OID = 2249
NUMBER_ARRAY_OIDS = (1007, 1016, 1021, 1022)              # int4[], int8[], float4[], float8[]
ARRAY_HEADER_BYTES = 20                                   # dimensions, flags, type, length, first index
ROWS_A_TRIP = 16384                                       # of a stream, for one answer of the server

NUMPY_OF_WIRE = {"int4": ">i4", "int8": ">i8", "float4": ">f4", "float8": ">f8"}


def source(con):
    """The RowSource of `postgresql://…`, or of a connection of psycopg."""
    if isinstance(con, psycopg.Connection):
        if con.info.transaction_status != TransactionStatus.IDLE:
            raise ValueError("con is in the middle of a transaction, which other connections do not see: commit() "
                             "first, or give postgresql://…")
        return PostgresSource(conninfo.make_conninfo(con.info.dsn, password=con.info.password or None))
    if isinstance(con, psycopg.AsyncConnection):
        raise TypeError("con is an asynchronous connection: give postgresql://…, or psycopg.connect")
    return PostgresSource(con)


def source_of_factory(make):
    """The RowSource of a function that connects."""
    return PostgresFactory(make)


# --- sources --------------------------------------------------------------------------------------------------------


class PostgresSource(RowSource):
    """A database by its address."""

    def __init__(self, address):
        self.address = address
        parts = conninfo.conninfo_to_dict(address)
        self.name = f"PostgreSQL, {parts.get('host') or 'localhost'}/{parts.get('dbname') or parts.get('user') or ''}"
        self.dialect = PostgresDialect()

    def open(self):
        return psycopg.connect(self.address, autocommit=True)

    def connect(self, snapshot=None):
        with connection_lost():
            con = self.open()
        try:
            return PostgresSession(self, con, snapshot)
        except BaseException:
            con.close()
            raise


class PostgresFactory(PostgresSource):
    """What a function of the user's connects to."""

    def __init__(self, make):
        self.make, self.name = make, f"PostgreSQL, {getattr(make, '__qualname__', make)}()"
        self.dialect = PostgresDialect()

    def open(self):
        con = self.make()
        con.autocommit = True
        return con


@contextlib.contextmanager
def connection_lost():
    """What psycopg raises when the server, the network or a time limit ends a statement, as ConnectionLost."""
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise ConnectionLost(f"{type(error).__name__}: {error}") from error


# --- sessions -------------------------------------------------------------------------------------------------------


def rows_in(cursor, rows):
    """The rows that a cursor gives, fetched `rows` at a time."""
    while found := cursor.fetchmany(rows):
        yield from found


def chunks_in(cursor, rows, wanted):
    """The chunks that a cursor gives, `rows` at a time."""
    while records := cursor.fetchmany(rows):
        yield chunk_of_records([record for record, in records], wanted)


class PostgresSession(RowSession):
    def __init__(self, source, con, snapshot=None):
        super().__init__()
        self.source, self.dialect, self.con = source, source.dialect, con
        self.key_types: dict = {}
        for oid in (RECORD_OID, *NUMBER_ARRAY_OIDS):
            con.adapters.register_loader(oid, ByteaBinaryLoader)       # as they come
        with connection_lost():
            con.execute("SET default_transaction_read_only = on")
            if snapshot is not None:
                con.execute(BEGIN)
                try:
                    con.execute(f"SET TRANSACTION SNAPSHOT '{snapshot.name}'")
                except (psycopg.errors.InvalidParameterValue, psycopg.errors.UndefinedObject) as error:
                    raise SnapshotLost(str(error)) from error

    def run(self, text, params):
        return self.con.cursor(binary=True).execute(text, params)

    def describe(self, query):
        with connection_lost():
            found = self.run(f"SELECT * FROM (\n{escaped(query)}\n) AS q LIMIT 0", query.params).description
            oids = sorted({column.type_code for column in found})
            told = self.run("SELECT oid::int8, format_type(oid, NULL), typcategory::text FROM pg_type "
                            "WHERE oid = ANY(%s)", (oids,))
            about = {oid: (word, category) for oid, word, category in told}
        return [ColumnFact(column.name, about[oid][0], *kind_of(oid, about[oid][1]))
                for column, oid in ((column, column.type_code) for column in found)]

    def stream(self, query, wanted, rows, order=None, skip=0, limit=None):
        text = self.dialect.stream(query._replace(text=escaped(query)), wanted, order, skip, limit)
        with connection_lost(), self.transaction(), self.con.cursor("flambeau_rows", binary=True) as cursor:
            cursor.execute(text, query.params)
            yield from chunks_in(cursor, min(rows, ROWS_A_TRIP), wanted)

    @contextlib.contextmanager
    def transaction(self):
        """A cursor on the server needs one: this session's, or a short one."""
        if self.con.info.transaction_status != TransactionStatus.IDLE:
            yield
        else:
            with self.con.transaction():
                yield

    def boundaries(self, query, key, step):
        text = self.dialect.boundaries(query._replace(text=escaped(query)), key, step)
        with connection_lost(), self.transaction(), self.con.cursor("flambeau_keys", binary=True) as cursor:
            cursor.execute(text, query.params)
            return boundaries_in(rows_in(cursor, BOUNDARIES_AT_A_TIME), key, step)

    def fetch(self, query, wanted, boundaries, blocks):
        text, params = self.fetch_statement(query, wanted, boundaries.key, boundaries.ranges(blocks))
        with connection_lost():
            rows = self.run(text, params).fetchall()
        rows.sort(key=lambda row: row[0])         # they come like that: a nested loop walks the ranges in their order
        columns = list(zip(*rows))[1:] if rows else [()] * len(wanted)
        pairs = [column_of_arrays(cells, each) for cells, each in zip(columns, wanted)]
        return [Chunk([values for values, _ in pairs], [nulls for _, nulls in pairs])]

    def fetch_statement(self, query, wanted, key, ranges):
        """(text, parameters): the bounds of all ranges are one array for each column of the key and side."""
        sides = [[bound[i] for bound in side] for side in zip(*ranges) for i in range(len(key))]
        if isinstance(query.params, dict):
            names = [f"flambeau_{i}" for i in range(len(sides))]
            params, placeholders = {**query.params, **dict(zip(names, sides))}, [f"%({name})s" for name in names]
        else:
            params, placeholders = (*sides, *query.params), None  # ours stand before the query in the text
        text = self.dialect.fetch(query._replace(text=escaped(query)), wanted, key, len(ranges),
                                  self.types_of(query, key), placeholders)
        return text, params

    def types_of(self, query, key):
        if (query.text, key) not in self.key_types:
            declared = {fact.name: fact.declared for fact in self.describe(query)}
            self.key_types[query.text, key] = [declared[name] for name in key]
        return self.key_types[query.text, key]

    def plan(self, query, wanted, boundaries):
        nothing = (None,) * len(boundaries.key)
        text, params = self.fetch_statement(query, wanted, boundaries.key, [(nothing, nothing)])
        with connection_lost():
            return "\n".join(line for line, in self.run(f"EXPLAIN {text}", params))

    def snapshot(self):
        with connection_lost():
            self.con.execute(BEGIN)
            return ExportedSnapshot(self.con.execute("SELECT pg_export_snapshot()").fetchone()[0])

    def end_state(self):
        with connection_lost():
            self.con.execute("COMMIT")
        return True

    def cancel(self):
        with contextlib.suppress(psycopg.Error):  # what is over, or gone, needs no end
            self.con.cancel()

    def close(self):
        self.con.close()


def escaped(query):
    """The text as psycopg reads it, for which % stands before a parameter: it is doubled where there is none."""
    return query.text if query.params else query.text.replace("%", "%%")


# --- bytes ----------------------------------------------------------------------------------------------------------


def native(values, wanted):
    """Numbers as they travelled, in the form that is wanted."""
    return values.astype(wanted.form)


def column_of_arrays(cells, wanted):
    """(array, nulls) of a column that came as an array for each range, None for a range without rows."""
    if wanted.form == "text":
        texts = [text for cell in cells if cell is not None for text in cell]
        out = np.empty(len(texts), object)
        out[:] = texts
        nulls = np.fromiter((text is None for text in texts), bool, len(texts))
        return out, nulls if nulls.any() else None
    cells = [cell for cell in cells if cell is not None]
    number = np.dtype(NUMPY_OF_WIRE[WIRE_TYPE[wanted.form]])
    packed = b"".join([memoryview(cell)[ARRAY_HEADER_BYTES:] for cell in cells])
    if not any(cell[7] for cell in cells):        # the flag of each that there are NULLs in it
        return native(array_over(packed, [("length", ">i4"), ("value", number)])["value"], wanted), None
    words = array_over(packed, ">i4").astype(np.int32)
    starts = element_starts(words, number.itemsize // 4)
    nulls = words[starts] == -1
    at = np.where(nulls, 0, starts + 1)[:, None] + np.arange(number.itemsize // 4)
    bits = words[np.minimum(at, len(words) - 1)].astype(">i4").view(number).reshape(-1)
    return native(bits, wanted), nulls


def chunk_of_records(records, wanted):
    """The rows of a stream, each a record: the number of its fields, and of each its type, its length, its bytes."""
    sizes = [0 if each.form == "text" else np.dtype(NUMPY_OF_WIRE[WIRE_TYPE[each.form]]).itemsize for each in wanted]
    packed = b"".join(records)
    if all(sizes) and len(packed) == len(records) * (4 + sum(8 + size for size in sizes)):     # as long as without NULL
        fields = [("count", ">i4")]
        for i, each in enumerate(wanted):
            fields += [(f"type{i}", ">i4"), (f"length{i}", ">i4"), (f"value{i}", NUMPY_OF_WIRE[WIRE_TYPE[each.form]])]
        rows = array_over(packed, fields)
        return Chunk([native(rows[f"value{i}"], each) for i, each in enumerate(wanted)], [None] * len(wanted))
    content = array_over(packed, np.uint8)
    at = np.cumsum([0, *map(len, records[:-1])]) + 4
    columns, nulls = [], []
    for each, size in zip(wanted, sizes):
        lengths = content[(at + 4)[:, None] + np.arange(4)].view(">i4").reshape(-1).astype(np.int64)
        missing = lengths < 0
        if size:
            where = np.where(missing, 0, at + 8)[:, None] + np.arange(size)
            values = content[where].view(NUMPY_OF_WIRE[WIRE_TYPE[each.form]]).reshape(-1)
            columns.append(native(np.where(missing, 0, values), each))
        else:
            texts = np.empty(len(records), object)
            texts[:] = [None if gone else packed[start:start + length].decode()
                        for start, length, gone in zip((at + 8).tolist(), lengths.tolist(), missing.tolist())]
            columns.append(texts)
        nulls.append(missing if missing.any() else None)
        at = at + 8 + np.maximum(lengths, 0)
    return Chunk(columns, nulls)
