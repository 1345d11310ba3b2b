"""How fast do rows become batches from PostgreSQL, DuckDB, Parquet files and over ADBC, beside the driver itself?

    python bench/sql_engines.py [--rows 2000000] [--rounds 3] [--folder DIR] [word ...]

The table and the form of a row are those of bench/sql.py, which asks the same of SQLite; these need the drivers of the
extra `test-data`, and a row whose driver or server is not there says so. What is asked for: over ADBC at most 1.1 times
the time of ADBC with pyarrow, DuckDB 1.15 times that of `fetchnumpy`; a shuffled epoch at 0.7 (PostgreSQL, two workers)
and 0.4 (DuckDB) of the speed of the same driver read in order; and memory that stays as it is for ten times the rows.

Memory is the highest resident memory of a fresh process in a shuffled epoch, its planning included, less what it had
when the dataset was made: the driver and the compiler are loaded then, and nothing is read (Linux only). The tables of
SQLite and PostgreSQL that memory is measured with have one feature and a label, so that ten times the rows are soon
made; it is the number of rows, and of their keys, that might count.
"""
import argparse
import contextlib
import importlib.util
import os
import sqlite3
import subprocess
import sys
import tempfile

import numpy as np
from sql import BATCH, COLUMNS, FEATURES, NAMES, compare, sqlite_table, wanted

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import flambeau as torch
from tests.data import servers

# --- tables ---------------------------------------------------------------------------------------------------------


def duckdb_table(folder, rows):
    import duckdb
    path = os.path.join(folder, f"bench-{rows}.duckdb")
    if not os.path.exists(path):
        with duckdb.connect(path + ".partial") as con:
            con.execute(f"CREATE TABLE t AS SELECT range AS id, {', '.join(f'random() AS {name}' for name in NAMES)}, "
                        f"range % 10 AS label FROM range({rows})")
        os.replace(path + ".partial", path)
    return path


def parquet_folder(folder, rows, files=8):
    import duckdb
    path = os.path.join(folder, f"bench-{rows}.parquets")
    if not os.path.exists(path):
        os.makedirs(path + ".partial", exist_ok=True)
        with duckdb.connect() as con:
            for part in range(files):
                begin, end = rows * part // files, rows * (part + 1) // files
                con.execute(f"COPY (SELECT range AS id, {', '.join(f'random() AS {name}' for name in NAMES)}, "
                            f"range % 10 AS label FROM range({begin}, {end})) TO '{path}.partial/{part}.parquet'")
        os.rename(path + ".partial", path)
    return path


def postgres_table(server, rows):
    import psycopg
    with psycopg.connect(server.address, autocommit=True) as con:
        con.execute(f"CREATE TABLE t AS SELECT g::int8 AS id, {', '.join(f'random() AS {name}' for name in NAMES)}, "
                    f"g % 10 AS label FROM generate_series(0, {rows - 1}) AS g")
        con.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
        con.execute("VACUUM ANALYZE t")
    return server.address


def narrow_sqlite_table(folder, rows):
    path = os.path.join(folder, f"narrow-{rows}.db")
    if not os.path.exists(path):
        with contextlib.closing(sqlite3.connect(path + ".partial")) as con:
            con.execute("PRAGMA synchronous = OFF")
            con.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x REAL, label INTEGER)")
            con.execute("WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?) "
                        "INSERT INTO t SELECT 3 * i, i / 7.0, i % 10 FROM n", (rows,))
            con.commit()
        os.replace(path + ".partial", path)
    return path


def narrow_postgres_table(server, rows):
    import psycopg
    with psycopg.connect(server.address, autocommit=True) as con:
        con.execute(f"CREATE TABLE narrow{rows} AS SELECT 3 * g::int8 AS id, g / 7.0::float8 AS x, g % 10 AS label "
                    f"FROM generate_series(0, {rows - 1}) AS g")
        con.execute(f"ALTER TABLE narrow{rows} ADD PRIMARY KEY (id)")
        con.execute(f"VACUUM ANALYZE narrow{rows}")
    return server.address


# --- ours -----------------------------------------------------------------------------------------------------------


class Planned(dict):
    """Datasets by (con, table), which have found their boundaries."""

    def __missing__(self, which):
        con, table = which
        source = (lambda: over_adbc(con)) if con.startswith("adbc:") else con
        made = torch.data.sql(f"SELECT * FROM {table}", source, key="id", label="label")
        len(made)
        self[which] = made
        return made


PLANNED = Planned()


def over_adbc(con):
    """A new connection of ADBC's, to what stands behind `adbc:`: an address of PostgreSQL, or the path of a file."""
    address = con.removeprefix("adbc:")
    if address.startswith("postgresql:"):
        import adbc_driver_postgresql.dbapi
        return adbc_driver_postgresql.dbapi.connect(address)
    import adbc_driver_sqlite.dbapi
    return adbc_driver_sqlite.dbapi.connect(address)


def read(table="t"):
    return lambda con: len(PLANNED[con, table].read()[1])


def epoch(shuffle, workers, table="t"):
    return lambda con: sum(len(y) for _, y in PLANNED[con, table].batches(BATCH, shuffle, 0, 0, workers))


# --- theirs ---------------------------------------------------------------------------------------------------------


def filled(columns, rows):
    """The result that ours has: a matrix of float32, and a label."""
    x = np.empty((rows, FEATURES), np.float32)
    for i, name in enumerate(NAMES):
        x[:, i] = columns[name]
    return torch.from_numpy(x), torch.from_numpy(np.asarray(columns["label"], np.int64))


def fetchnumpy(con, table="t"):
    import duckdb
    if os.path.isdir(con):
        made, table = duckdb.connect(), f"'{con}/*.parquet'"
    else:
        made = duckdb.connect(con, read_only=True)
    with made:
        found = made.execute(f"SELECT {COLUMNS}, label FROM {table} ORDER BY id").fetchnumpy()
    return len(filled(found, len(found["label"]))[1])


def fetchnumpy_by_chance(con):
    """In an order by chance that the database makes, and nobody can repeat."""
    return fetchnumpy_batches(con, " ORDER BY random()")


def fetchnumpy_batches(con, order=""):
    """Without ORDER BY, as rows lie there: the fastest that the driver can, cut into batches."""
    import duckdb
    if os.path.isdir(con):
        made, table = duckdb.connect(), f"'{con}/*.parquet'"
    else:
        made, table = duckdb.connect(con, read_only=True), "t"
    with made:
        found = made.execute(f"SELECT {COLUMNS}, label FROM {table}{order}").fetchnumpy()
    x, y = filled(found, len(found["label"]))
    return sum(len(part) for part in y.split(BATCH) for _ in [x[:1].clone()])


def adbc_pyarrow(con):
    with over_adbc(con) as made, made.cursor() as cursor:
        if "postgresql:" not in con:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": "16384"})
        cursor.execute(f"SELECT {COLUMNS}, label FROM t ORDER BY id")
        table = cursor.fetch_arrow_table()
    return len(filled({name: table[name].to_numpy() for name in (*NAMES, "label")}, len(table))[1])


def psycopg_by_chance(con):
    return psycopg_rows(con, "random()")


def psycopg_rows(con, order="id"):
    """A cursor on the server with results in binary form, its rows into batches."""
    import psycopg
    rows = 0
    with psycopg.connect(con) as made, made.cursor("rows", binary=True) as cursor:
        cursor.execute(f"SELECT {COLUMNS}, label FROM t ORDER BY {order}")
        while some := cursor.fetchmany(BATCH * 16):
            table = np.array(some)
            for at in range(0, len(some), BATCH):
                part = table[at:at + BATCH]
                torch.tensor(part[:, :FEATURES].astype(np.float32)), torch.tensor(part[:, FEATURES].astype(np.int64))
            rows += len(some)
    return rows


SPEEDS = {
    "adbc": [("ADBC, SQLite: read() beside ADBC and pyarrow", read(), adbc_pyarrow, 1 / 1.1)],
    "duckdb": [
        ("DuckDB: read() beside fetchnumpy", read(), fetchnumpy, 1 / 1.15),
        ("DuckDB: block shuffle beside fetchnumpy in order", epoch("block", 0), fetchnumpy_batches, 0.4),
        ("DuckDB: block shuffle, 2 workers, beside fetchnumpy in order", epoch("block", 2), fetchnumpy_batches, 0.4),
        ("DuckDB: block shuffle beside our reader in order", epoch("block", 0), epoch(False, 0), 0.4),
        ("DuckDB: global shuffle beside fetchnumpy, ORDER BY random()", epoch("global", 0), fetchnumpy_by_chance, 1)],
    "parquet": [
        ("Parquet, 8 files: read() beside fetchnumpy", read("data"), fetchnumpy, 1 / 1.15),
        ("Parquet, 8 files: block shuffle beside ours in order", epoch("block", 0, "data"), epoch(False, 0, "data"),
         0.4),
        ("Parquet, 8 files: global shuffle beside ours in order", epoch("global", 0, "data"),
         epoch(False, 0, "data"), 0.4)],
    "postgres": [
        ("PostgreSQL: read() beside psycopg's rows", read(), psycopg_rows, 1),
        ("PostgreSQL: block shuffle, 2 workers, beside psycopg", epoch("block", 2), psycopg_rows, 0.7),
        ("PostgreSQL: block shuffle, 2 workers, beside ours in order", epoch("block", 2), epoch(False, 0), 0.7),
        ("PostgreSQL: global shuffle beside psycopg, ORDER BY random()", epoch("global", 0), psycopg_by_chance, 1)],
    "adbc-postgres": [
        ("ADBC, PostgreSQL: read() beside ADBC and pyarrow", read(), adbc_pyarrow, 1 / 1.1),
        ("ADBC, PostgreSQL: block shuffle, 2 workers, beside the same", epoch("block", 2), adbc_pyarrow, 0.7)],
}

# --- memory ---------------------------------------------------------------------------------------------------------

CHILD = """
import sys
import flambeau as torch

def over_adbc():
    address = sys.argv[1].removeprefix("adbc:")
    if address.startswith("postgresql:"):
        import adbc_driver_postgresql.dbapi as driver
    else:
        import adbc_driver_sqlite.dbapi as driver
    return driver.connect(address)

def resident(what):
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(what))

torch.ones(3).add_(1).sum().item()
key, workers = ("id", int(sys.argv[3])) if sys.argv[3] != "keyless" else (None, 0)
con = over_adbc if sys.argv[1].startswith("adbc:") else sys.argv[1]
data = torch.data.sql(f"SELECT * FROM {sys.argv[2]}", con, key=key, label="label")
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before, rows = resident("VmRSS"), 0
for _, y in data.batches(1024, sys.argv[4] if key else False, 0, 0, workers):
    rows += len(y)
print(resident("VmHWM") - before, rows)
"""


def memory(name, con, table, rows, workers, shuffle="block"):
    done = subprocess.run([sys.executable, "-c", CHILD, con, table, str(workers), shuffle], check=True, text=True,
                          stdout=subprocess.PIPE)
    used, given = map(int, done.stdout.split())
    assert given == rows, (given, rows)
    most = 64 << 20 if workers == "keyless" else (64 + 32 * workers) << 20
    how = "in order, without a key" if workers == "keyless" else f"{workers} workers"
    print(f"{f'{name}: memory of an epoch, {how}, {rows:,} rows':<70} {used / 2 ** 20:8.1f} MiB of "
          f"{most / 2 ** 20:.0f}{'' if used <= most else '  MISSED'}", flush=True)


# DuckDB by itself, without us: what it holds of a file beyond what it counts, once it has looked at every row group.
DUCKDB_ALONE = """
import sys
import duckdb

def resident():
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))

con = duckdb.connect(":memory:", config={"memory_limit": "24MiB", "threads": 1})
con.execute("SET enable_progress_bar = false")            # it would write to our output
con.execute("SELECT 1").fetchall()
before = resident()
con.execute(f"ATTACH '{sys.argv[1]}' AS f (READ_ONLY)")
con.execute("USE f")
columns = [name for name, *_ in con.execute("DESCRIBE t").fetchall()]
con.execute(f"SELECT {', '.join(f'max({name})' for name in columns)} FROM t WHERE id % 122880 < 2048").fetchall()
counted = con.execute("SELECT sum(memory_usage_bytes)::BIGINT FROM duckdb_memory()").fetchall()[0][0]
print(resident() - before, counted)
"""


def duckdb_alone(con, rows):
    done = subprocess.run([sys.executable, "-c", DUCKDB_ALONE, con], check=True, text=True, stdout=subprocess.PIPE)
    used, counted = (int(word) / 2 ** 20 for word in done.stdout.split())
    print(f"{f'DuckDB alone: memory of a scan, {rows:,} rows':<70} {used:8.1f} MiB, of which it counts {counted:.1f}",
          flush=True)


WORKERS = (0, 1, 2, 4, "keyless")


def memories(args, missing):
    """For each database, with ever more workers, and with ten times the rows."""
    asked = lambda name: wanted(f"{name}: memory", args.words)
    for rows in (args.rows, 10 * args.rows):
        for workers in WORKERS:
            if asked("SQLite"):
                memory("SQLite", narrow_sqlite_table(args.folder, rows), "t", rows, workers)
            if asked("ADBC, SQLite") and "adbc_driver_sqlite" not in missing:
                memory("ADBC, SQLite", "adbc:" + narrow_sqlite_table(args.folder, rows), "t", rows, workers)
    # Two million rows of DuckDB's are all read before one is delivered. Of more both go on at the same time.
    for rows in (args.rows, 4 * args.rows, 10 * args.rows) if "duckdb" not in missing else ():
        if asked("DuckDB alone"):
            duckdb_alone(duckdb_table(args.folder, rows), rows)
        for workers in WORKERS:
            if asked("DuckDB"):
                memory("DuckDB", duckdb_table(args.folder, rows), "t", rows, workers)
            if asked("Parquet"):
                memory("Parquet", parquet_folder(args.folder, rows), "data", rows, workers)
        for workers in WORKERS[:4]:
            if asked("DuckDB, global"):
                memory("DuckDB, global", duckdb_table(args.folder, rows), "t", rows, workers, "global")
            if asked("Parquet, global"):
                memory("Parquet, global", parquet_folder(args.folder, rows), "data", rows, workers, "global")
    if asked("PostgreSQL") and "psycopg" not in missing and servers.postgres_programs() is not None:
        with servers.PostgresServer() as server:
            for rows in (args.rows, 10 * args.rows):
                con = narrow_postgres_table(server, rows)
                for workers in WORKERS:
                    memory("PostgreSQL", con, f"narrow{rows}", rows, workers)
                    if "adbc_driver_postgresql" not in missing:
                        memory("ADBC, PostgreSQL", f"adbc:{con}", f"narrow{rows}", rows, workers)


# --- all ------------------------------------------------------------------------------------------------------------


def run(kind, con, args):
    for row in SPEEDS[kind]:
        if wanted(row[0], args.words):
            compare(*row, con, args.rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("words", nargs="*")
    args = parser.parse_args()
    some = lambda kind: any(wanted(name, args.words) for name, *_ in SPEEDS[kind])
    drivers = ("duckdb", "adbc_driver_sqlite", "adbc_driver_postgresql", "psycopg")
    missing = [driver for driver in drivers if importlib.util.find_spec(driver) is None]
    if missing:
        print(f"not installed: {', '.join(missing)}", flush=True)
    if "adbc_driver_sqlite" not in missing and some("adbc"):
        run("adbc", "adbc:" + sqlite_table(args.folder, args.rows), args)
    if "duckdb" not in missing:
        if some("duckdb"):
            run("duckdb", duckdb_table(args.folder, args.rows), args)
        if some("parquet"):
            run("parquet", parquet_folder(args.folder, args.rows), args)
    if "psycopg" not in missing and (some("postgres") or some("adbc-postgres")):
        if servers.postgres_programs() is None:
            print("there is no PostgreSQL on this machine")
        else:
            with servers.PostgresServer() as server:
                address = postgres_table(server, args.rows)
                run("postgres", address, args)
                if "adbc_driver_postgresql" not in missing:
                    run("adbc-postgres", f"adbc:{address}", args)
    memories(args, missing)


if __name__ == "__main__":
    main()
