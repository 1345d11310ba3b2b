"""The databases that the tests of `flambeau.data.sql` run on: each test takes `engine` or `connected`,
and runs on all that are there.

An Engine makes tables out of Python's values and gives what the user would give as `con`. `ENGINES` names them; one
that needs a driver or a server skips with its reason where that is not there.
"""
import contextlib
import hashlib
import sqlite3
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pytest

import flambeau as torch

# The types that the tests declare columns with, as SQLite and the standard write them.
INTEGER, REAL, DECIMAL, TEXT = "BIGINT", "DOUBLE PRECISION", "DECIMAL(18, 4)", "TEXT"
BOOLEAN, DATE, TIMESTAMP = "BOOLEAN", "DATE", "TIMESTAMP"


class Engine:
    """A database for one test, in the folder `tmp_path`."""
    name = ""
    places = ("?", "?")                 # the first and the second parameter in the text of a statement, by position
    one_state = False                   # whether an epoch reads one state, whatever is written meanwhile
    shuffles_globally = True

    def __init__(self, tmp_path):
        self.tmp_path = tmp_path

    @property
    def con(self):
        """What is given to `flambeau.data.sql`."""
        raise NotImplementedError

    def execute(self, text, params=()):
        """Run a statement over a connection of the test's own, and commit."""
        raise NotImplementedError

    def insert(self, table, rows):
        raise NotImplementedError

    def table(self, name, columns, rows, key=()):
        """Make a table of `columns` ({name: type}), with a primary key, and fill it."""
        parts = [f'"{column}" {kind}' for column, kind in columns.items()]
        if key:
            parts.append(f"PRIMARY KEY ({', '.join(key)})")
        self.execute(f'CREATE TABLE "{name}" ({", ".join(parts)})')
        self.insert(name, rows)
        return self

    def sql(self, query, **options):
        return torch.data.sql(query, self.con, **options)

    def close(self):
        pass


class SQLiteEngine(Engine):
    name = "sqlite"

    def __init__(self, tmp_path):
        super().__init__(tmp_path)
        self.path = tmp_path / "tables.db"
        with contextlib.closing(sqlite3.connect(self.path)) as con:
            con.execute("CREATE TABLE first_of_all (x)")
            self.prepare(con)

    def prepare(self, con):
        pass

    @property
    def con(self):
        return self.path

    def execute(self, text, params=()):
        with contextlib.closing(sqlite3.connect(self.path)) as con, con:
            con.execute(text, params)

    def insert(self, table, rows):
        rows = [[self.cell(value) for value in row] for row in rows]
        with contextlib.closing(sqlite3.connect(self.path)) as con, con:
            if rows:
                con.executemany(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(rows[0]))})', rows)

    @staticmethod
    def cell(value):
        if isinstance(value, datetime | date):
            return value.isoformat()
        return float(value) if isinstance(value, Decimal) else value


class SQLiteWalEngine(SQLiteEngine):
    name = "sqlite-wal"
    one_state = True

    def prepare(self, con):
        con.execute("PRAGMA journal_mode = WAL")


class SQLiteNativeEngine(SQLiteEngine):
    """SQLite with the native loop for the smallest tables, too."""
    name = "sqlite-native"

    def __init__(self, tmp_path):
        super().__init__(tmp_path)
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr("flambeau.data.sql.sqlite.NATIVE_ROWS", 0)

    def close(self):
        self.patched.undo()


class SQLiteFactoryEngine(SQLiteEngine):
    """SQLite over connections that a function of the user's makes."""
    name = "sqlite-factory"

    @property
    def con(self):
        return lambda: sqlite3.connect(self.path, check_same_thread=False)


ENGINES = {engine.name: engine for engine in (SQLiteEngine, SQLiteNativeEngine)}
# Other ways to reach some of them, for tests in which it matters how connections are opened.
WAYS = {engine.name: engine for engine in (SQLiteWalEngine, SQLiteFactoryEngine)}


# --- what the tests compare -----------------------------------------------------------------------------------------


def plain_table(engine, rows, name="t", gap=1, labels=10, seed=0):
    """A table (id, a, b, label), with ids that are `gap` apart; gives what is in it, by id."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal(rows), rng.integers(-1000, 1000, rows)
    ids, label = np.arange(rows) * gap, np.arange(rows) * labels // max(rows, 1)
    engine.table(name, {"id": INTEGER, "a": REAL, "b": INTEGER, "label": INTEGER},
                 zip(ids.tolist(), a.tolist(), b.tolist(), label.tolist()), key=["id"])
    return np.stack([a, b], 1).astype(np.float32), label


def digest(batches):
    """One word for everything that comes, batch by batch, bit by bit."""
    words = hashlib.blake2b()
    for batch in batches:
        for tensor in batch if isinstance(batch, tuple) else (batch,):
            words.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            words.update(tensor.numpy().tobytes())
    return words.hexdigest()


def together(batches):
    """All batches as one: the rows in the order in which they came."""
    batches = [batch if isinstance(batch, tuple) else (batch,) for batch in batches]
    return [np.concatenate([part.numpy() for part in parts]) for parts in zip(*batches)]
