"""The databases beside SQLite, for `make data`: it installs their drivers, and starts the servers.

A test without them skips, with the reason. FLAMBEAU_TEST_DATABASES, which `make data` sets, is asked for as well, so
that the plain tests take no longer where drivers happen to be installed.
"""
import atexit
import contextlib
import functools
import itertools
import math
import os
import pickle
import re
import sqlite3
import subprocess
import sys
import types

import pytest

from tests.data import servers

from .sources import Engine, SQLiteEngine

ASKED_FOR = bool(os.environ.get("FLAMBEAU_TEST_DATABASES"))


def needs(*drivers):
    """Skip where `make data` is not what runs, or a driver is not installed."""
    if not ASKED_FOR:
        pytest.skip("databases beside SQLite are tried by `make data`")
    for driver in drivers:
        pytest.importorskip(driver)


@functools.cache
def postgres_server():
    """One server for all tests of this process, which ends with it."""
    if servers.postgres_programs() is None:
        pytest.skip("there is no PostgreSQL on this machine")
    return running(servers.PostgresServer())


@functools.cache
def mariadb_server():
    if servers.mariadb_programs() is None:
        pytest.skip("there is no MariaDB on this machine")
    return running(servers.MariaDBServer())


def running(server):
    atexit.register(server.__exit__)
    return server.start()


# --- PostgreSQL -----------------------------------------------------------------------------------------------------


class PostgresEngine(Engine):
    """A schema of its own in the one database of the server."""
    name = "postgres"
    places = ("%s", "%s")
    one_state = True
    numbers = itertools.count()

    def __init__(self, tmp_path):
        super().__init__(tmp_path)
        needs("psycopg")
        import psycopg
        self.server = postgres_server()
        self.schema = f"test{next(self.numbers)}"
        self.own = psycopg.connect(self.server.address, autocommit=True)
        self.own.execute(f"CREATE SCHEMA {self.schema}")
        self.own.execute(f"SET search_path = {self.schema}")

    @property
    def address(self):
        return f"{self.server.address}&options=-csearch_path%3D{self.schema}"

    @property
    def con(self):
        return self.address

    def execute(self, text, params=()):
        self.own.execute(text, params or None)

    def insert(self, table, rows):
        rows = [list(row) for row in rows]
        if rows:
            self.own.cursor().executemany(f'INSERT INTO "{table}" VALUES ({", ".join(["%s"] * len(rows[0]))})', rows)

    def close(self):
        if not self.own.closed:
            self.own.execute(f"DROP SCHEMA {self.schema} CASCADE")
            self.own.close()


class PostgresFactoryEngine(PostgresEngine):
    """PostgreSQL over connections that a function of the user's makes."""
    name = "postgres-factory"

    @property
    def con(self):
        import psycopg
        return functools.partial(psycopg.connect, self.address)


# --- DuckDB ---------------------------------------------------------------------------------------------------------


class ADBCPostgresEngine(PostgresEngine):
    """PostgreSQL over connections of ADBC's driver."""
    name = "adbc-postgres"
    places = ("$1", "$2")

    def __init__(self, tmp_path):
        needs("adbc_driver_postgresql")
        super().__init__(tmp_path)

    @property
    def con(self):
        import adbc_driver_postgresql.dbapi
        address = self.address
        return lambda: adbc_driver_postgresql.dbapi.connect(address)


class DuckDBEngine(Engine):
    """A connection to a file, which all sessions share."""
    name = "duckdb"
    one_state = True

    def __init__(self, tmp_path):
        super().__init__(tmp_path)
        needs("duckdb")
        import duckdb
        self.own = duckdb.connect(str(tmp_path / "tables.duckdb"))

    @property
    def con(self):
        return self.own

    def execute(self, text, params=()):
        self.own.cursor().execute(text, params or None)

    def insert(self, table, rows):
        rows = [list(row) for row in rows]
        if rows:
            self.own.cursor().executemany(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(rows[0]))})', rows)

    def close(self):
        self.own.close()


class DuckDBFileEngine(DuckDBEngine):
    """The same by the path of the file, which nobody else has open while it is read."""
    name = "duckdb-file"
    one_state = False

    def __init__(self, tmp_path):
        super().__init__(tmp_path)
        self.own.close()
        self.path = tmp_path / "tables.duckdb"

    @property
    def con(self):
        return self.path

    @contextlib.contextmanager
    def opened(self):
        import duckdb
        try:
            self.own = duckdb.connect(str(self.path))
        except duckdb.Error as error:
            assert "already attached" in str(error)
            pytest.skip("DuckDB lets nobody write to a file while it is read")
        with self.own:
            yield

    def execute(self, text, params=()):
        with self.opened():
            super().execute(text, params)

    def insert(self, table, rows):
        with self.opened():
            super().insert(table, rows)


# --- DB-API ---------------------------------------------------------------------------------------------------------


class MariaDBEngine(Engine):
    """MariaDB with PyMySQL, over a function that connects."""
    name = "mariadb"
    places = ("%s", "%s")
    one_state = True
    numbers = itertools.count()
    types = {"TEXT": "VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "TIMESTAMP": "DATETIME(6)"}

    def __init__(self, tmp_path):
        super().__init__(tmp_path)
        needs("pymysql")
        self.server, self.database = mariadb_server(), f"test{next(self.numbers)}"
        with self.connected("") as con:
            con.cursor().execute(f"CREATE DATABASE {self.database}")

    def connected(self, database=None):
        import pymysql
        return contextlib.closing(pymysql.connect(
            unix_socket=self.server.socket, user="root", database=self.database if database is None else None,
            autocommit=True, charset="utf8mb4", init_command="SET sql_mode = 'ANSI_QUOTES'"))

    @property
    def con(self):
        import pymysql
        return functools.partial(pymysql.connect, unix_socket=self.server.socket, user="root", database=self.database,
                                 autocommit=True, charset="utf8mb4")

    def table(self, name, columns, rows, key=()):
        return super().table(name, {column: self.types.get(kind, kind) for column, kind in columns.items()}, rows, key)

    def execute(self, text, params=()):
        with self.connected() as con:
            con.cursor().execute(text, params or None)

    def insert(self, table, rows):
        rows = [list(row) for row in rows]
        if any(value in (math.inf, -math.inf) for row in rows for value in row):
            pytest.skip("MySQL has no infinities")
        if rows:
            with self.connected() as con:
                con.cursor().executemany(f'INSERT INTO "{table}" VALUES ({", ".join(["%s"] * len(rows[0]))})', rows)

    def close(self):
        with self.connected() as con:
            con.cursor().execute(f"DROP DATABASE {self.database}")


class SQLAlchemyEngine(PostgresEngine):
    """SQLAlchemy's engine over psycopg 3."""
    name = "sqlalchemy"

    @property
    def con(self):
        sqlalchemy = pytest.importorskip("sqlalchemy")
        import psycopg
        return sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(self.address))


CHANGE = """
import pickle, sqlite3, sys
how, args = pickle.load(sys.stdin.buffer)
con = sqlite3.connect(sys.argv[1])
with con:
    getattr(con, how)(*args)
con.close()
"""


class ADBCEngine(SQLiteEngine):
    """SQLite over ADBC's driver. Tables are changed by another process: Python's SQLite and the driver's are two, and
    when one of them closes a file, the system drops the locks that the other one has on it, of which it knows nothing
    (`disk I/O error`)."""
    name = "adbc-sqlite"
    shuffles_globally = True

    def execute(self, text, params=()):
        self.change("execute", text, params)

    def insert(self, table, rows):
        rows = [[self.cell(value) for value in row] for row in rows]
        if rows:
            self.change("executemany", f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(rows[0]))})', rows)

    def change(self, how, *args):
        subprocess.run([sys.executable, "-c", CHANGE, str(self.path)], input=pickle.dumps((how, args)), check=True)

    def __init__(self, tmp_path):
        needs("adbc_driver_sqlite")
        super().__init__(tmp_path)

    @property
    def con(self):
        import adbc_driver_sqlite.dbapi
        return functools.partial(adbc_driver_sqlite.dbapi.connect, str(self.path))


# --- a driver of each paramstyle ------------------------------------------------------------------------------------


def foreign_driver(style):
    """A module like a driver's, over sqlite3, whose parameters are written in the `style` of PEP 249 that it says."""
    module = types.ModuleType(f"driver_of_{style}")
    module.paramstyle, module.apilevel = style, "2.0"
    module.OperationalError, module.InterfaceError = sqlite3.OperationalError, sqlite3.InterfaceError

    class Cursor:
        def __init__(self, cursor):
            self.cursor = cursor

        def execute(self, text, params=None):
            if params is None:
                return self.cursor.execute(text)
            if style in ("format", "pyformat"):
                text = re.sub(r"%\((\w+)\)s|%s|%%", lambda m: {"%s": "?", "%%": "%"}.get(m[0], f":{m[1]}"), text)
            elif style == "numeric":
                text = re.sub(r":(\d+)", r"?\1", text)
            assert isinstance(params, dict) if style == "named" else True
            assert "?" not in text or style != "named"
            return self.cursor.execute(text, params)

        def __getattr__(self, name):
            return getattr(self.cursor, name)

    class Connection:
        def __init__(self, path):
            self.inside = sqlite3.connect(path, check_same_thread=False)

        def cursor(self):
            return Cursor(self.inside.cursor())

        def commit(self):
            self.inside.commit()

        def close(self):
            self.inside.close()

    for cls in (Cursor, Connection):
        cls.__module__ = module.__name__
    module.connect = Connection
    sys.modules[module.__name__] = module
    return module


PLACES = {"qmark": "?", "format": "%s", "pyformat": "%(value)s", "numeric": ":1", "named": ":value"}



DRIVERS = (PostgresEngine, DuckDBEngine, MariaDBEngine, ADBCEngine, ADBCPostgresEngine)
DRIVER_WAYS = (PostgresFactoryEngine, DuckDBFileEngine, SQLAlchemyEngine)
