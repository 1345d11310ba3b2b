"""Which engine `con` belongs to. An engine's module is imported when a `con` is its, and not before.

A row of the table is a module of this package and a function that recognises its `con` by looks alone: no driver is
imported for that, and nothing is connected to. The module has `source(con)`, which gives the RowSource, or refuses with
a sentence. The first row that recognises `con` has it.
"""
import os
from importlib import import_module

from .source import RowSource


def source_of(con) -> RowSource:
    """The RowSource for `con`."""
    if isinstance(con, RowSource):
        return con
    for module, recognises in ENGINES:
        if recognises(con):
            return import_module(f".{module}", __package__).source(con)
    raise TypeError(f"con={con!r} is no database that is known here: give {ACCEPTED}")


def begins_with(*starts):
    return lambda con: isinstance(con, str) and con.startswith(starts)


def of_package(*packages):
    """`con` is an object of one of these packages, of a class that may be the user's own below theirs."""
    return lambda con: not isinstance(con, str | os.PathLike | type) and any(
        cls.__module__.split(".")[0] in packages for cls in type(con).__mro__)


def file_that_holds(magic, at=0):
    """`con` is the path of a file in which these bytes stand."""
    def recognises(con):
        if not isinstance(con, str | os.PathLike) or not os.path.isfile(con):
            return False
        with open(con, "rb") as file:
            file.seek(at)
            return file.read(len(magic)) == magic
    return recognises


def a_path(con):
    return isinstance(con, str | os.PathLike)


def with_methods(*names):
    return lambda con: not isinstance(con, type) and any(hasattr(con, name) for name in names)


def parquet_or_csv(con):
    """`con` is the path of such a file, a pattern of them, or a folder that holds some."""
    if not a_path(con):
        return False
    path = os.fspath(con)
    if isinstance(path, str) and path.removesuffix(".gz").removesuffix(".zst").lower().endswith(ROW_FILES):
        return True
    return os.path.isdir(path) and any(name.lower().endswith(ROW_FILES)
                                       for _, _, names in os.walk(path) for name in names)


ROW_FILES = (".parquet", ".csv", ".tsv")
ENGINES = [
    ("sqlite", begins_with("sqlite:", "file:")),
    ("sqlite", of_package("sqlite3")),
    ("sqlite", file_that_holds(b"SQLite format 3\0")),
    ("postgres", begins_with("postgresql:", "postgres:")),
    ("postgres", of_package("psycopg")),
    ("duckdb", begins_with("duckdb:")),
    ("duckdb", of_package("duckdb", "_duckdb")),
    ("duckdb", file_that_holds(b"DUCK", at=8)),
    ("duckdb", parquet_or_csv),
    ("frames", of_package("pandas")),
    ("adbc", with_methods("adbc_clone")),
    ("arrow", with_methods("__arrow_c_stream__", "__arrow_c_array__")),
    ("dbapi", of_package("sqlalchemy")),
    ("sqlite", a_path),             # no file yet, or an empty one: the engine says so. Behind all other paths
    ("dbapi", callable),            # a function that connects: the engine of its connections has it
    ("dbapi", with_methods("cursor")),                          # an open connection: refused, with what to give
]
ACCEPTED = ("the path of a SQLite or DuckDB file, of Parquet or CSV files, postgresql://…, a frame, an object with "
            "__arrow_c_stream__, an engine of SQLAlchemy, or a function without arguments that gives a new connection "
            "each time")
