"""SQLite over ADBC: rows come as Arrow's batches. No pyarrow is needed. (PostgreSQL over ADBC: adbc_postgres.py)

Python's own module opens the file as well, and tells what columns are declared as, which hash a key has, and whether
its vendor has written; the rows alone come through the driver.
"""
import contextlib

from .adbc_statements import batches
from .arrow import chunk_of
from .arrow_c import ArrowError, ArrowStream
from .source import ConnectionLost
from .sqlite import SQLiteSession, SQLiteSource
from .tables import parts

BATCH_ROWS_OPTION, BATCH_ROWS = "adbc.sqlite.query.batch_rows", "16384"


def source(con):
    """The RowSource of an open connection, whose copies are what reads."""
    return source_of_factory(con.adbc_clone)


def source_of_factory(make):
    """The RowSource of a function that connects."""
    with contextlib.closing(make()) as made:
        if is_of_sqlite(made):
            return AdbcSQLiteSource(path_of(made), make)
        version = version_of(made)
    if version.startswith("PostgreSQL"):
        from .adbc_postgres import AdbcPostgresSource
        return AdbcPostgresSource(make)
    raise NotImplementedError(f"con is a connection of ADBC to {version or 'an unknown database'}: over ADBC SQLite "
                              "and PostgreSQL are read. Of other databases give the rows themselves, "
                              "con=cursor.fetch_arrow() after cursor.execute(…)")


def is_of_sqlite(con):
    return any(cls.__module__.split(".")[0] == "adbc_driver_sqlite" for cls in type(con).__mro__)


def version_of(con):
    """What the database says that it is; "" where it does not know the question."""
    import adbc_driver_manager
    try:
        return next(str(column.plain().values[0]) for _, [column] in batches(con, "SELECT version() AS version", ()))
    except (ArrowError, adbc_driver_manager.Error):
        return ""


def path_of(con):
    with contextlib.closing(con.cursor()) as cursor:
        cursor.execute("SELECT file FROM pragma_database_list WHERE name = 'main'")
        with ArrowStream(cursor.fetch_arrow()) as stream:
            [path] = [value for _, [column] in stream for value in column.plain().values.tolist()]
    if not path:
        raise ValueError("a database in memory belongs to its connection: write it to a file, and connect to that")
    return path


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
        return [chunk_of(columns, wanted) for length, columns in found if length]

    def cancel(self):
        super().cancel()
        with contextlib.suppress(Exception):              # NotSupportedError, of a driver that cannot
            self.adbc.adbc_cancel()

    def close(self):
        super().close()
        with contextlib.suppress(Exception):              # closed already
            self.adbc.close()
