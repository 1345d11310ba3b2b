"""DuckDB, and with it Parquet and CSV files and folders of them.

A database file is attached, read-only, to one instance of DuckDB for all sessions of a source in a process, which keeps
little of the tables in memory and has no threads but theirs; a forked process opens its own. A whole result is read by
an instance for itself, of several threads. A connection that was given belongs to its process: all sessions share one
transaction of it, and take turns.

DuckDB stores columns in row groups of 122880 rows, and some 32000 to 40000 numbers of one in a piece, which is loaded
whole. A block here is a fifteenth of a row group: a range of rows costs three milliseconds to load, and small blocks
would spend the time on that. A range of keys costs half as much again, since keys have to be looked at, and each range
needs a scan of its own, which has to be planned. So where the query gives rows of a table that lie in the order of
their key, ranges are of the numbers that DuckDB has for rows (`rowid`), and a group is one scan.
"""
import contextlib
import glob
import importlib.util
import itertools
import json
import os
import re
import tempfile
import threading
from hashlib import blake2b

import duckdb
import numpy as np

from ...base.locks import new_condition, new_lock
from .arrow import chunk_of, in_form
from .arrow_c import ArrowError, ArrowStream
from .duckdb_statements import (
    ROW_NUMBER,
    DuckDBDialect,
    FilesDialect,
    gives_rows_of_a_table,
    gives_rows_of_files,
    kind_of_type,
    with_numbers,
)
from .ranges import range_values
from .source import (
    BoundaryScan,
    ColumnFact,
    ConnectionLost,
    RowSession,
    RowSource,
    Snapshot,
    SnapshotLost,
    UnmarkedSnapshot,
    Wanted,
)
from .tables import TABLE_NAME, parts

MEMORY_MIB, MEMORY_MIB_A_SESSION = 4, 9   # what an instance may keep of tables, if statements can be run with that
MEMORY_MIB_A_ROW_GROUP = 12               # of files, the same for each session
SHORTAGES_IN_A_ROW = 3                    # of a statement, after which it gets more than was enough for others
SECONDS_TO_LEAVE = 2.0                    # an instance that is given up, for sessions that read from it
RANGES_OF_INSTANCE = 16                   # of keys, each in a row group or two, that are fetched from an instance
ROW_GROUP_ROWS = 122880
ROWS_OF_READ_FOOTERS = 64 * ROW_GROUP_ROWS    # of files that a statement looks into: of more the footers are kept
ROWS_OF_INSTANCE = RANGES_OF_INSTANCE * ROW_GROUP_ROWS       # of a larger table it is given up after so many ranges
SETTINGS = ("SET enable_progress_bar = false",    # of a long statement it writes to the program's output
            "SET streaming_buffer_size = '1MiB'")         # what it makes of a result before it is asked for
OLDEST_VERSION = (1, 4, 5)                 # that was tried: those before keep files open, or crash
SUBMITS_STREAMS = duckdb.__version__.startswith("2.0.")   # see arrow_result
DUCKDB_BATCH_ROWS = 131072                        # of a batch of which nothing is said, there
STREAM_THREADS = 4                        # of an instance that gives a whole result, at most;
STREAM_MEMORY_MIB = 16                    # what it may keep,
SORTING_MEMORY_MIB = 1024                 # and what it may take to sort rows, before it writes to disk
SORTING_KEYS_MIB = 40                     # and keys alone, if that will do: it takes a third longer than with all of it
FILE_READERS = {".parquet": "read_parquet", ".csv": "read_csv", ".tsv": "read_csv"}
MANY_FILES = 4                             # of which a statement is told which ones it needs
FILE_NAME = "flambeau_file"                # the column of their names
KEYS_AT_ONCE = 65536
FETCHED_AT_ONCE = 4096                     # rows of a group
HASHED_ROWS = 16384                        # rows with their hashes
_numbers = itertools.count()               # of folders to sort in


def source(con):
    """The RowSource of a database file, of Parquet or CSV files, or of a connection."""
    refuse_older(duckdb.__version__)
    if isinstance(con, duckdb.DuckDBPyConnection):
        return ConnectionSource(con)
    if isinstance(con, duckdb.DuckDBPyRelation):
        raise TypeError("con is one of DuckDB's relations: give its connection as con, and the relation's SQL as the "
                        "query (relation.sql_query() shows it)")
    path = os.fspath(con).removeprefix("duckdb:").removeprefix("//") if isinstance(con, str) else os.fspath(con)
    reader = reader_of(path)
    if reader is not None:
        return FilesSource(path, reader)
    if not path or path == ":memory:":
        return FilesSource("", None)              # for queries that name their files: FROM 'folder/*.parquet'
    if not os.path.isfile(path):
        raise FileNotFoundError(f"con={con!r}: there is no such file")
    return DuckDBSource(os.path.abspath(path))


def source_of_factory(make):
    """The RowSource of a function that connects."""
    refuse_older(duckdb.__version__)
    return ConnectingSource(make)


def refuse_older(version):
    if tuple(int(number) for number in re.findall(r"\d+", version)[:3]) < OLDEST_VERSION:
        raise ImportError(f"DuckDB {'.'.join(map(str, OLDEST_VERSION))} or later is needed, and {version} is "
                          "installed: pip install --upgrade duckdb")


def reader_of(path):
    """DuckDB's function that reads these files, None if no reader is known for them."""
    suffix = os.path.splitext(path.removesuffix(".gz").removesuffix(".zst"))[1].lower()
    if suffix in FILE_READERS:
        return FILE_READERS[suffix]
    if os.path.isdir(path):
        return next((reader for suffix, reader in FILE_READERS.items() if files_of(path, suffix)), None)
    return None


def files_of(path, suffix=None):
    """The files that a path, a folder or a pattern stands for, in the order of their names."""
    if os.path.isdir(path):
        suffixes = [suffix] if suffix else [known for known in FILE_READERS if files_of(path, known)][:1]
        return sorted(found for known in suffixes for found in glob.glob(
            os.path.join(glob.escape(path), "**", f"*{known}"), recursive=True))
    return sorted(glob.glob(path, recursive=True)) if glob.has_magic(path) else [path]


def literal(text):
    return "'" + text.replace("'", "''") + "'"


# --- sources --------------------------------------------------------------------------------------------------------


class Instance:
    """An instance of DuckDB, with how many connections sessions have to it, those of them that no session has just now,
    and how many ranges of keys were fetched from it."""

    def __init__(self, con):
        self.con, self.sessions, self.ranges = con, 0, 0
        self.idle: list = []

    def close_idle(self):
        while self.idle:
            self.idle.pop().close()
            self.sessions -= 1

    def limit_memory(self, source):
        """Let it keep as much as its sessions need."""
        self.con.execute(f"SET memory_limit = '{source.memory_mib_of(self.sessions)}MiB'")


class SharedInstance:
    """The instance of a source in this process: opened for the first session, closed with the last, or when the last
    pass is over that holds it, so that the file is not written to meanwhile.

    DuckDB keeps a description of every row group that it has looked at, beside what `memory_limit` counts. So of a
    large table an instance is given up after some ranges. When all sessions have left it, the file is attached to it
    anew, or it is closed, and another is opened: two at a time would take twice the memory. Those that have nothing to
    read just then have laid their connections aside; the others are waited for, though not for ever.
    """

    def __init__(self, source):
        self.source, self.changed = source, new_condition()
        self.now, self.given_up, self.holders, self.pid = None, None, 0, 0
        self.of_parents: list = []            # instances whose threads did not come along: not even closed

    def cursor(self):
        """(a connection for one session, the Instance it is to)."""
        with self.changed:
            self.enter_process()
            if self.now is None and self.given_up is not None:
                self.changed.wait_for(lambda: self.now or not self.given_up.sessions, SECONDS_TO_LEAVE)
            if self.now is None:
                self.now = Instance(self.source.open(self.source.memory_mib, 1))    # each session's own thread works
            instance = self.now
            if instance.idle:
                return instance.idle.pop(), instance
            made = instance.con.cursor()
            made.execute(";".join(self.source.settings))
            self.source.enter(made)
            instance.sessions += 1
            instance.limit_memory(self.source)
        return made, instance

    def enter_process(self):
        if self.pid != os.getpid():
            self.of_parents.append(self.now)
            self.now, self.given_up, self.holders, self.pid = None, None, 0, os.getpid()

    def lay_aside(self, cursor, instance):
        """A session has nothing to read just now: it leaves, and any session may take its connection up."""
        with self.changed:
            if self.now is instance and self.holders:
                instance.idle.append(cursor)
                return
        self.leave(cursor, instance)

    def leave(self, cursor, instance):
        cursor.close()
        with self.changed:
            instance.sessions -= 1
            self.changed.notify_all()
            if instance.sessions and self.now is instance:        # one that is given up has to serve for a moment
                with contextlib.suppress(duckdb.OutOfMemoryException):        # others use it right now
                    instance.limit_memory(self.source)
            self.end_unused(instance)

    def hold(self, more):
        """So many more passes hold the instance, or fewer."""
        with self.changed:
            self.enter_process()
            self.holders += more
            if self.now is not None:
                self.end_unused(self.now)

    def end_unused(self, instance):
        if instance.sessions > len(instance.idle) or self.now is instance and self.holders:
            return
        instance.close_idle()
        if self.holders and self.now is None and self.given_up is instance and self.source.forget(instance.con):
            self.now, self.given_up = Instance(instance.con), None
            return
        instance.con.close()
        if self.now is instance:
            self.now = None

    def fetched(self, instance, ranges):
        """So many more ranges of a large table were fetched."""
        with self.changed:
            instance.ranges += ranges
            if instance.ranges > RANGES_OF_INSTANCE and self.now is instance:
                self.now, self.given_up = None, instance
                instance.close_idle()


class DuckDBSource(RowSource):
    """A database file."""
    unordered = False                         # whether a fetch has found rows that do not lie in the order of their key
    memory_mib = MEMORY_MIB
    was_enough = False                        # whether a group was fetched with that
    helpers = 1                               # DuckDB itself would use all cores, but not for a few ranges of rows
    settings = SETTINGS
    gives_hashes = True
    remembers = True                          # whether an instance remembers the row groups that it has looked at

    def __init__(self, path):
        self.path, self.name = path, f"DuckDB, {path}"
        self.dialect = DuckDBDialect()
        self.shortages: dict = {}             # how often in a row a thread's statement was short of memory
        self.instance = SharedInstance(self)

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "instance"}

    def __setstate__(self, state):
        self.__dict__.update(state, instance=SharedInstance(self))

    def files(self):
        return [self.path]

    def open(self, memory_mib, threads):
        """A new instance, with what is to be read in it."""
        spill = os.path.join(tempfile.gettempdir(), f"flambeau-duckdb-{os.getpid()}-{next(_numbers)}")
        con = duckdb.connect(":memory:", config={"memory_limit": f"{memory_mib}MiB", "temp_directory": spill,
                                                 "threads": min(threads, os.cpu_count() or 1)})
        try:
            con.execute(";".join(self.settings))
            self.prepare(con)
            self.enter(con)
        except BaseException:
            con.close()
            raise
        return con

    def memory_mib_of(self, sessions):
        """What an instance may keep that so many sessions use."""
        return self.memory_mib + sessions * MEMORY_MIB_A_SESSION

    def more_memory(self, had_mib):
        """A statement was short of memory where instances keep `had_mib`: let those that are opened from now on keep
        twice as much. False if that was enough for anything.

        Not where another session has done so meanwhile. And not at once where it was enough before: of a large table it
        happens now and then that all need much at the same moment, and they would keep more ever after.
        """
        with self.instance.changed:
            if self.memory_mib == had_mib:
                thread = threading.get_ident()
                self.shortages[thread] = self.shortages.get(thread, 0) + 1
                if not self.was_enough or self.shortages[thread] == SHORTAGES_IN_A_ROW:
                    self.memory_mib *= 2
                    self.was_enough, self.shortages = False, {}
            return self.memory_mib <= SORTING_MEMORY_MIB

    def had_enough(self):
        """This thread has fetched a group."""
        with self.instance.changed:
            self.was_enough = True
            self.shortages.pop(threading.get_ident(), None)

    def prepare(self, con):
        try:
            con.execute(f"ATTACH {literal(self.path)} AS flambeau_file (READ_ONLY)")
        except duckdb.Error as error:
            if "already attached" in str(error) or "different configuration" in str(error):
                raise ValueError(f"{self.path} is open in this process already: give that connection as con, or close "
                                 "it first") from error
            if "lock" in str(error):
                raise ConnectionLost(f"{self.path} is being written to by another process: {error}") from error
            raise

    def enter(self, con):
        """Let the query's tables be found from a new connection."""
        con.execute("USE flambeau_file")

    def forget(self, con):
        """Let an instance that is not in use forget what it knows of the tables; gives whether it can be used again."""
        try:
            con.execute("USE memory; DETACH flambeau_file")
            self.prepare(con)
            self.enter(con)
        except (duckdb.Error, ConnectionLost, ValueError):        # raised again where the file is opened next
            return False
        return True

    def connect(self, snapshot=None):
        return DuckDBSession(self)

    def mark(self):
        """What the files look like: names, sizes, and when they were written."""
        about = [(path, os.stat(path)) for path in self.files()]
        text = "\n".join(f"{path} {found.st_size} {found.st_mtime_ns}" for path, found in about)
        return blake2b(text.encode(), digest_size=16).hexdigest()


class FilesSource(DuckDBSource):
    """Parquet or CSV files: one, a folder, or a pattern. The query calls their rows `data`."""
    helpers = 0                               # a row group of each that reads would be in memory
    memory_mib = MEMORY_MIB_A_ROW_GROUP
    remembers = False
    keeps_footers = False                     # what files say of their row groups, once that was read

    def __init__(self, path, reader):
        super().__init__(os.path.abspath(path) if path else "")
        self.reader, self.dialect = reader, FilesDialect()
        self.keys_of_files = None             # (what for, what `find_keys` has found)
        self.name = f"DuckDB, files {path}" if path else "DuckDB, in memory"
        if path and not any(os.path.isfile(found) for found in self.files()):
            raise FileNotFoundError(f"con={path!r}: there are no such files")

    def __getstate__(self):
        return {**super().__getstate__(), "keys_of_files": None}

    def memory_mib_of(self, sessions):
        """Each has a row group, and nothing is kept of what it has read: once this is enough it stays so, whichever
        sessions need it at the same moment."""
        return self.memory_mib * max(sessions, 1)

    @property
    def settings(self):
        keeps = ["SET GLOBAL parquet_metadata_cache = true"] if self.keeps_footers else []     # of all sessions
        return (*SETTINGS, *keeps, "SET disable_parquet_prefetching = true")      # which reads one, and then decodes it

    def files(self):
        return files_of(self.path) if self.path else []

    def prepare(self, con):
        if self.path:
            con.execute(f"CREATE VIEW {TABLE_NAME} AS {self.rows_of(self.files())}")

    def rows_of(self, files, more=""):
        return f"SELECT * FROM {self.reader}([{', '.join(map(literal, files))}]{more})"

    def files_with(self, session, query, boundaries, ranges):
        """The files that keys in these ranges are in, after the first, which says what columns are; None: all of them.

        DuckDB looks into every file for every statement, which takes a quarter of a millisecond for each, and reads
        again what it says of its row groups: of twenty columns, a sixteenth of a millisecond for each. To keep that is
        25 KiB for each, of the whole table in the end; so it is kept only where it would be much to read.
        """
        if self.keys_of_files is None or self.keys_of_files[0] is not boundaries:
            self.keys_of_files = boundaries, self.find_keys(session, query, boundaries)
        found = self.keys_of_files[1]
        asked = None if found is None else [file for i, (file, bounds) in enumerate(found) if i == 0 or (
            bounds is not None and any(first <= bounds[1] and bounds[0] <= last for [first], [last] in ranges))]
        rows = boundaries.count if asked is None else boundaries.count * len(asked) // len(found)
        if rows > ROWS_OF_READ_FOOTERS and not self.keeps_footers:
            self.keeps_footers = True
            session.apply_settings()
        return asked

    def find_keys(self, session, query, boundaries):
        """For each file, in their order, the least and the greatest key that it has, None if it has none; None for all
        where that says nothing of the rows of the query."""
        files = self.files()
        if self.reader != "read_parquet" or len(files) <= MANY_FILES or any("=" in file for file in files):
            return None                       # a folder "day=7" is a column, and of a type that all of them decide
        if len(boundaries.key) != 1 or not boundaries.first[0].whole:
            return None
        [key], [tree] = boundaries.key, session.tuples("SELECT json_serialize_sql(?)", (query.text,))
        if not gives_rows_of_files(json.loads(*tree), key):
            return None
        name, named = self.dialect.quote(key), f", filename = {literal(FILE_NAME)}"
        text = f"SELECT {FILE_NAME}, min({name}), max({name}) FROM ({self.rows_of(files, named)}) GROUP BY {FILE_NAME}"
        keys = {file: None if None in bounds else bounds for file, *bounds in session.tuples(text)}
        return [(file, keys.get(file)) for file in files] if {*keys} <= {*files} else None

    def enter(self, con):
        """A view is found by all."""


class ConnectingSource(RowSource):
    """What a function of the user's connects to. The connections read for themselves; of changes nothing is known."""
    unordered = False

    def __init__(self, make):
        self.make, self.dialect = make, DuckDBDialect()
        self.name = f"DuckDB, {getattr(make, '__qualname__', make)}"

    def connect(self, snapshot=None):
        return DuckDBSession(self, self.make())


class ConnectionSource(RowSource):
    """A connection of the user's, in its process; its sessions are cursors of it."""
    unordered = False

    def __init__(self, con):
        self.con, self.pid = con, os.getpid()
        self.name, self.dialect = "DuckDB, a connection", DuckDBDialect()

    def connect(self, snapshot=None):
        if self.pid != os.getpid():
            raise RuntimeError("a connection of DuckDB cannot be used in another process than the one that opened it: "
                               "give the path of the file, or use worker threads")
        if snapshot is None:
            return DuckDBSession(self, self.con.cursor())
        if snapshot.holder.given is None:
            raise SnapshotLost("the session that held the transaction is closed")
        return DuckDBSession(self, snapshot.holder.given, snapshot.holder)

    def __reduce__(self):
        raise TypeError("a connection of DuckDB cannot be sent to another process: give the path of the file, or use "
                        "worker threads")

    def identity(self):
        return f"{self.name} {id(self.con)}"


class FilesSnapshot(Snapshot):
    """Files, which may be replaced at any time: what they look like tells."""
    exact = False

    def __init__(self, source):
        self.source, self.mark = source, source.mark()

    def changed(self):
        try:
            return self.source.mark() != self.mark
        except FileNotFoundError:
            return True


class TransactionSnapshot(Snapshot):
    """A transaction of the user's connection, which all sessions read in."""

    def __init__(self, holder):
        self.holder = holder


# --- sessions -------------------------------------------------------------------------------------------------------


def rows_in(result):
    """The rows of a result as Python's objects."""
    while rows := result.fetchmany(KEYS_AT_ONCE):
        yield from rows


def arrow_result(con, text, params, rows):
    """The result of a statement, as what gives Arrow's batches of `rows` rows; None: of as many as DuckDB likes.

    DuckDB's public ways plan a statement twice; and the one that can be told how many rows loads pyarrow for its reader
    alone, which takes forty MiB. Where it is known what they call below, this calls it.
    """
    if SUBMITS_STREAMS:
        values = params if isinstance(params, dict) else list(params)
        return con._submit(text, values or None, "stream", rows or DUCKDB_BATCH_ROWS).arrow_capsule()
    relation = con.sql(text, params=params or None)
    if rows is None or importlib.util.find_spec("pyarrow") is None:
        return relation
    give = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader      # the latter until 1.4
    return give(rows)


class ShortOfMemory(Exception):
    """An instance cannot run a statement with what it was given."""


class DuckDBSession(RowSession):
    """One connection: one that was given, or one of its source's instance, which it has from the first statement on
    until it rests; with a `holder`, that session's, in whose transaction it reads."""

    def __init__(self, source, con=None, holder=None):
        super().__init__()
        self.source, self.dialect, self.given, self.holder = source, source.dialect, con, holder
        self.lock = new_lock() if holder is None else holder.lock
        self.shared, self.streamer, self.lent, self.holds = holder is not None, None, None, False
        self.says_short = False                   # ShortOfMemory, where it is
        self.had_mib = getattr(source, "memory_mib", None)        # what the instance kept when it was lent

    @property
    def con(self):
        if self.given is not None:
            return self.given
        if self.lent is None:
            self.had_mib = self.source.memory_mib
            self.lent = self.source.instance.cursor()
        return self.lent[0]

    def apply_settings(self):
        """Those of the source have changed."""
        self.con.execute(";".join(self.source.settings))

    def batches(self, text, params=(), rows=None):
        """The Arrow batches of a statement, (rows, columns). In a shared transaction all at once: another session's
        statement would end a result that is under way."""
        if not self.shared:
            return self.read(text, params, rows)
        with self.lock:
            return iter(list(self.read(text, params, rows)))

    def read(self, text, params, rows):
        with self.losing(), ArrowStream(arrow_result(self.con, text, params, rows)) as stream:
            yield from stream

    def tuples(self, text, params=()):
        """The rows of a statement as Python's objects."""
        with self.lock, self.losing():
            yield from rows_in(self.con.execute(text, params or None))

    @contextlib.contextmanager
    def losing(self):
        """DuckDB's errors, as ConnectionLost where asking again may help: with more memory, for one."""
        try:
            yield
        except (ArrowError, duckdb.Error) as error:
            said = str(error)
            if isinstance(error, duckdb.IOException) or "IO Error" in said[:40]:
                raise ConnectionLost(said) from error
            if isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory Error" in said[:60]:
                if self.says_short:
                    raise ShortOfMemory(said) from error
                if isinstance(self.source, DuckDBSource) and self.source.more_memory(self.had_mib):
                    raise ConnectionLost(said) from error
            raise

    def describe(self, query):
        rows = list(self.tuples(f"DESCRIBE\n{query.text}", query.params))
        return [ColumnFact(name, declared, *kind_of_type(declared)) for name, declared, *_ in rows]

    def stream(self, query, wanted, rows, order=None, skip=0, limit=None):
        if order is not None and order.salt is None and not skip and limit is None and self.lies_in_order(query, order):
            order = None                          # to sort all columns costs many times what it costs to look at one
        texts = [self.dialect.stream(query, wanted, order, skip, limit)]
        if self.in_batches and order is None and not skip and limit is None:
            stretches = self.stretches(query)
            texts = [self.dialect.fetch_numbered(query, wanted, [stretch]) for stretch in stretches] or texts
        for text in texts:
            with self.with_threads(order is not None) as session:
                yield from session.chunks(text, query.params, wanted, rows)

    def stretches(self, query):
        """The numbers of rows, from and to, of as many row groups of a large table as one instance may look at, see
        SharedInstance; none of anything else."""
        if type(self.source) is not DuckDBSource or not self.has_numbers(query):
            return []
        text = f"SELECT max(q.{ROW_NUMBER}) FROM (\n{with_numbers(query).text}\n) AS q"
        with self.with_threads(sorts=False) as session:
            [[last]] = session.tuples(text, query.params)
        if last is None or last < ROWS_OF_INSTANCE:
            return []
        return [((low,), (low + ROWS_OF_INSTANCE - 1,)) for low in range(0, last + 1, ROWS_OF_INSTANCE)]

    def chunks(self, text, params, wanted, rows):
        for length, columns in self.batches(text, params, rows):
            if length:
                yield from parts(chunk_of(columns, wanted), rows)
            del columns                           # or the next batch would be made while this one is there

    @contextlib.contextmanager
    def with_threads(self, sorts):
        """The session that a whole result is asked of: one with an instance of its own, of several threads where memory
        is not what counts."""
        if not isinstance(self.source, DuckDBSource):
            yield self
            return
        memory_mib = SORTING_MEMORY_MIB if sorts else max(STREAM_MEMORY_MIB, self.source.memory_mib)
        threads = 1 if self.in_batches and not sorts else STREAM_THREADS      # each holds some of the result
        with self.with_instance(memory_mib, threads) as session:
            yield session

    @contextlib.contextmanager
    def with_instance(self, memory_mib, threads):
        """A session with an instance of its own."""
        self.streamer = DuckDBSession(self.source, self.source.open(memory_mib, threads))
        try:
            yield self.streamer
        finally:
            self.streamer.close()
            self.streamer = None

    def boundaries(self, query, key, step):
        found = self.find_boundaries(query, key, step)
        self.looked_at(RANGES_OF_INSTANCE + 1, found)             # at every row group
        return found

    def looked_at(self, ranges, boundaries):
        """The instance has looked at so many ranges of the table: of a large one it is given up in time, and has no
        sessions but those that read."""
        if self.lent and self.source.remembers and boundaries.count > ROWS_OF_INSTANCE:
            self.source.instance.fetched(self.lent[1], ranges)
            lent, self.lent = self.lent, None
            self.source.instance.lay_aside(*lent)

    def find_boundaries(self, query, key, step):
        facts = {fact.name: fact for fact in self.describe(query)}
        text = self.dialect.boundaries(query, key, step)
        if len(key) == 1 and key[0] in facts and facts[key[0]].kind == "int":
            # Rows are mostly stored in the order of their key, and then there is no need to sort.
            found = self.numbered_scan(query, key, step) or self.scan(query, key, step, unsorted(text))
            if found is not None:
                scan, *numbers = found
                return scan.done(True, *(number.done(True) for number in numbers))
            return self.with_little_memory(lambda session: session.scan(query, key, step, text)[0].done())

        def scanned(session):
            scan = BoundaryScan(key, step)
            scan.add(session.tuples(text, query.params))
            return scan.done()

        return self.with_little_memory(scanned)

    def with_little_memory(self, ask):
        """What `ask` gives, a function of a session that may sort keys: of one with little memory, and of one with
        twice as much where that was too little."""
        memory_mib = SORTING_KEYS_MIB
        while isinstance(self.source, DuckDBSource) and memory_mib < SORTING_MEMORY_MIB:
            with contextlib.suppress(ShortOfMemory), self.with_instance(memory_mib, 1) as session:
                session.says_short = True
                return ask(session)
            memory_mib *= 2
        with self.with_threads(sorts=True) as session:
            return ask(session)

    def hash_counts(self, query, order, bits):
        counts = np.zeros(1 << bits, np.int64)
        text = self.dialect.hash_counts(query, order, bits)
        for begins, rows in self.with_little_memory(lambda session: list(session.tuples(text, query.params))):
            counts[begins] = rows
        return counts

    def hashed(self, query, wanted, order, which, take, sorts=False):
        stretches = [] if sorts else self.stretches(query)
        texts = [self.dialect.hashed(query, wanted, order, which, sorts, stretch) for stretch in stretches or [None]]
        memory_mib = max(STREAM_MEMORY_MIB, self.source.memory_mib)
        while True:
            try:
                with contextlib.closing(self.hashed_chunks(texts, query.params, wanted, memory_mib)) as chunks:
                    return take(chunks)
            except ShortOfMemory as error:
                memory_mib *= 2
                if memory_mib > SORTING_MEMORY_MIB:
                    raise error.__cause__ from None

    def hashed_chunks(self, texts, params, wanted, memory_mib):
        for text in texts:
            with self.with_instance(memory_mib, 1) as session:
                session.says_short = True
                for length, columns in session.batches(text, params, HASHED_ROWS):
                    if length:
                        yield chunk_of(columns[:-1], wanted), columns[-1].plain().values
                    del columns

    def lies_in_order(self, query, order):
        """Whether rows come by their key, without being sorted: of one that is whole numbers."""
        facts = {fact.name: fact for fact in self.describe(query)}
        if len(order.key) != 1 or facts[order.key[0]].kind != "int":
            return False
        text = self.dialect.boundaries(query, order.key, KEYS_AT_ONCE)
        try:
            return self.scan(query, order.key, KEYS_AT_ONCE, unsorted(text)) is not None
        except ValueError:                        # NULL, or twice: as it may be in a table that is only read
            return False

    def scan(self, query, columns, step, text):
        """A BoundaryScan for each of these columns of whole numbers, None if one does not come in order."""
        scans = [BoundaryScan([column], step) for column in columns]
        for length, found in self.batches(text, query.params):
            for scan, column in zip(scans, found):
                if length and not scan.add_numbers(*in_form(column, Wanted(*scan.key, "int", "int64"))):
                    return None
        return scans

    def numbered_scan(self, query, key, step):
        """The same of the key and of the numbers of rows; None also where rows have none."""
        if not self.has_numbers(query):
            return None
        numbered, columns = with_numbers(query), (*key, ROW_NUMBER)
        try:
            return self.scan(numbered, columns, step, unsorted(self.dialect.boundaries(numbered, columns, step)))
        except (duckdb.ProgrammingError, ValueError):     # what is wrong with a key is said soon
            return None

    def has_numbers(self, query):
        """Whether the query gives rows of a table, which have numbers."""
        numbered = with_numbers(query)
        if numbered is None:
            return False
        try:
            [tree] = self.tuples("SELECT json_serialize_sql(?)", (query.text,))
            if not gives_rows_of_a_table(json.loads(*tree)):
                return False
            with self.lock:                               # not run: an error would end the transaction
                self.con.sql(f"SELECT q.{ROW_NUMBER} FROM (\n{numbered.text}\n) AS q", params=numbered.params or None)
            return True
        except duckdb.ProgrammingError:                   # a view has none
            return False

    def fetch(self, query, wanted, boundaries, blocks):
        if boundaries.by_number is not None and (np.diff(blocks) > 0).all():
            ranges = boundaries.by_number.ranges(blocks)
            chunks = self.asked(self.dialect.fetch_numbered(query, wanted, ranges), query.params, wanted)
        else:
            ranges = boundaries.ranges(blocks)
            chunks = self.fetch_by_key(query, wanted, boundaries, ranges)
        yield from chunks
        if self.lent:
            self.source.had_enough()
        self.looked_at(len(ranges), boundaries)

    def asked(self, text, params, wanted):
        for length, columns in self.batches(text, params, FETCHED_AT_ONCE if SUBMITS_STREAMS else None):
            if length:
                yield chunk_of(columns, wanted)
            del columns

    def fetch_by_key(self, query, wanted, boundaries, ranges):
        whole = all(column.whole for column in boundaries.first)
        sorts = not boundaries.lies_in_order and (self.source.unordered or not whole)
        looks = not boundaries.lies_in_order and not sorts
        if whole:                                 # numbers may stand in the text, which costs less than to bind them
            params, placeholders = query.params, [str(int(value)) for value in range_values(ranges)]
        else:
            params, placeholders = with_values(query, range_values(ranges))
        data, before = self.rows_asked(query, boundaries, ranges), None
        text = self.dialect.fetch(query, wanted, boundaries.key, len(ranges), sorts, placeholders, looks, data)
        for length, columns in self.batches(text, params, FETCHED_AT_ONCE if SUBMITS_STREAMS else None):
            if not length:
                continue
            if looks:
                *key, number = (column.values for column in columns[len(wanted):])
                if not ascending(before, [number, *key]):
                    self.source.unordered = True
                    raise ConnectionLost("rows do not lie in the order of their key: asked again, they are sorted")
                before = [number[-1:], *(column[-1:] for column in key)]
            yield chunk_of(columns, wanted)

    def rows_asked(self, query, boundaries, ranges):
        """The statement that gives the rows of the files that these keys are in; None: of all."""
        if not isinstance(self.source, FilesSource):
            return None
        files = self.source.files_with(self, query, boundaries, ranges)
        return None if files is None else self.source.rows_of(files)

    def fetch_text(self, query, wanted, boundaries):
        if boundaries.by_number is None or not boundaries.blocks:
            data = self.rows_asked(query, boundaries, boundaries.ranges([0])) if boundaries.blocks else None
            return self.dialect.fetch(query, wanted, boundaries.key, 1, data=data)
        return self.dialect.fetch_numbered(query, wanted, boundaries.by_number.ranges([0]))

    def plan(self, query, wanted, boundaries):
        if boundaries.by_number is None or not boundaries.blocks:
            nothing = (None,) * len(boundaries.key)
            params, placeholders = with_values(query, range_values([(nothing, nothing)]))
            text = self.dialect.fetch(query, wanted, boundaries.key, 1, True, placeholders)
        else:
            params, text = query.params, self.fetch_text(query, wanted, boundaries)
        return "\n".join(row[-1] for row in self.tuples(f"EXPLAIN {text}", params))

    def snapshot(self):
        if isinstance(self.source, DuckDBSource):
            self.source.instance.hold(1)
            self.holds = True
            return FilesSnapshot(self.source)
        if isinstance(self.source, ConnectingSource):
            return UnmarkedSnapshot()
        self.con.execute("BEGIN")
        self.con.execute("SELECT 1 FROM duckdb_tables() LIMIT 1").fetchall()
        self.shared = True
        return TransactionSnapshot(self)

    def cancel(self):
        for session in (self, self.streamer):
            if session is not None and (session.given or session.lent):
                session.con.interrupt()

    def rest(self):
        lent, self.lent = self.lent, None
        if lent is not None:
            self.source.instance.leave(*lent)

    def close(self):
        self.rest()
        if self.holds:
            self.source.instance.hold(-1)
            self.holds = False
        con, self.given = self.given, None
        if con is not None and self.holder is None:
            con.close()


def with_values(query, values):
    """(parameters, placeholders in the text) of a query with values of ours behind its own."""
    if isinstance(query.params, dict):
        names = [f"flambeau_{i}" for i in range(len(values))]
        return {**query.params, **dict(zip(names, values))}, [f"${name}" for name in names]
    numbered = re.search(r"\$\d", query.text)     # DuckDB takes one style in a statement
    count = len(query.params)
    placeholders = [f"${count + i + 1}" for i in range(len(values))] if numbered else ["?"] * len(values)
    return (*query.params, *values), placeholders


def unsorted(text):
    """A statement without the ORDER BY at its end."""
    return text.rpartition(" ORDER BY ")[0]


def ascending(before, columns):
    """Whether rows come strictly by these columns, the first of them first; `before` is the row ahead of them."""
    same = None
    for i, values in enumerate(columns):
        values = values if before is None else np.concatenate([before[i], values])
        more, equal = values[1:] > values[:-1], values[1:] == values[:-1]
        right = more if i == len(columns) - 1 else more | equal
        if not (right if same is None else right | ~same).all():
            return False
        same = equal if same is None else same & equal
    return True
