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
import glob
import itertools
import json
import os
import re
import tempfile
import threading
from hashlib import blake2b

import duckdb

from .duckdb_instance import ROW_GROUP_ROWS, SharedInstance
from .duckdb_session import SORTING_MEMORY_MIB, DuckDBSession
from .duckdb_statements import DuckDBDialect, FilesDialect, gives_rows_of_files
from .source import ConnectionLost, RowSource, Snapshot, SnapshotLost, UnmarkedSnapshot
from .tables import TABLE_NAME

MEMORY_MIB, MEMORY_MIB_A_SESSION = 4, 9   # what an instance may keep of tables, if statements can be run with that
MEMORY_MIB_A_ROW_GROUP = 12               # of files, the same for each session
SHORTAGES_IN_A_ROW = 3                    # of a statement, after which it gets more than was enough for others
ROWS_OF_READ_FOOTERS = 64 * ROW_GROUP_ROWS    # of files that a statement looks into: of more the footers are kept
SETTINGS = ("SET enable_progress_bar = false",    # of a long statement it writes to the program's output
            "SET streaming_buffer_size = '1MiB'")         # what it makes of a result before it is asked for
OLDEST_VERSION = (1, 4, 5)                 # that was tried: those before keep files open, or crash
FILE_READERS = {".parquet": "read_parquet", ".csv": "read_csv", ".tsv": "read_csv"}
MANY_FILES = 4                             # of which a statement is told which ones it needs
FILE_NAME = "flambeau_file"                # the column of their names
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


class EngineSource(RowSource):
    """Where DuckDB reads: what its sessions ask besides what they ask of every source."""
    unordered = False                         # whether a fetch has found rows that do not lie in the order of their key
    opens_instances = False                   # for its sessions, which otherwise have a connection that was given
    stores_rows = False                       # in tables of DuckDB's, which number them

    def files_with(self, session, query, boundaries, ranges):
        """The files that keys in these ranges are in; None where there is no choice."""

    def snapshot_of(self, session):
        """What a session reads from now on."""
        raise NotImplementedError


class DuckDBSource(EngineSource):
    """A database file."""
    opens_instances = stores_rows = True
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

    def snapshot_of(self, session):
        session.hold_instance()
        return FilesSnapshot(self)

    def mark(self):
        """What the files look like: names, sizes, and when they were written."""
        about = [(path, os.stat(path)) for path in self.files()]
        text = "\n".join(f"{path} {found.st_size} {found.st_mtime_ns}" for path, found in about)
        return blake2b(text.encode(), digest_size=16).hexdigest()


class FilesSource(DuckDBSource):
    """Parquet or CSV files: one, a folder, or a pattern. The query calls their rows `data`."""
    stores_rows = False
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


class ConnectingSource(EngineSource):
    """What a function of the user's connects to. The connections read for themselves; of changes nothing is known."""

    def __init__(self, make):
        self.make, self.dialect = make, DuckDBDialect()
        self.name = f"DuckDB, {getattr(make, '__qualname__', make)}"

    def connect(self, snapshot=None):
        return DuckDBSession(self, self.make())

    def snapshot_of(self, session):
        return UnmarkedSnapshot()


class ConnectionSource(EngineSource):
    """A connection of the user's, in its process; its sessions are cursors of it."""

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

    def snapshot_of(self, session):
        session.hold_transaction()
        return TransactionSnapshot(session)

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
