"""How fast do the rows of a query become batches, and in how much memory, beside the database's own driver?

    python bench/sql.py [--rows 2000000] [--rounds 3] [--folder DIR] [word ...]

One table of 20 real columns and a whole label, made once in the folder. A row is a ratio between two ways that are
timed one after the other in the same process, best of the rounds, by the clock and by processor time, which other
programs change less; memory is the peak of a fresh process that does that one thing, less what it had when it began
(Linux only). Words pick the rows that contain one of them.

What is asked for: the whole table in at most 1.05 times the time of `fetchmany` into a buffer, and in the memory of the
result and 64 MiB more; a shuffled epoch at 0.8 or more of the speed of the same driver read in order, in 64 MiB and 32
MiB for each worker, whatever the size of the table; a batch handed over in 100 µs.
"""
import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time

import numpy as np

import flambeau as torch

FEATURES, BATCH = 20, 1024
NAMES = [f"f{i}" for i in range(FEATURES)]
COLUMNS = ", ".join(NAMES)


# --- SQLite ---------------------------------------------------------------------------------------------------------


def sqlite_table(folder, rows):
    """The path of a database of so many rows, which is made if it is not there."""
    path = os.path.join(folder, f"bench-{rows}.db")
    if os.path.exists(path):
        return path
    con = sqlite3.connect(path + ".partial")
    con.execute("PRAGMA synchronous = OFF")
    columns = ", ".join(f"{name} REAL" for name in NAMES)
    con.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, {columns}, label INTEGER)")
    rng = np.random.default_rng(0)
    for begin in range(0, rows, 50_000):
        count = min(50_000, rows - begin)
        x, y = rng.standard_normal((count, FEATURES)).tolist(), rng.integers(0, 10, count).tolist()
        con.executemany(f"INSERT INTO t VALUES ({', '.join('?' * (FEATURES + 2))})",
                        ((begin + i, *row, label) for i, (row, label) in enumerate(zip(x, y))))
    con.commit()
    con.close()
    os.replace(path + ".partial", path)
    return path


def dataset(path):
    return torch.data.sql("SELECT * FROM t", path, key="id", label="label")


def fetchmany(path, size=4096):
    """The driver's rows into a buffer, so many at a time."""
    con = sqlite3.connect(path)
    rows = con.execute("SELECT count(*) FROM t").fetchone()[0]
    x, y, at = np.empty((rows, FEATURES), np.float32), np.empty(rows, np.int64), 0
    cursor = con.execute(f"SELECT {COLUMNS}, label FROM t ORDER BY id")
    while some := cursor.fetchmany(size):
        table = np.array(some)
        x[at:at + len(some)], y[at:at + len(some)] = table[:, :FEATURES], table[:, FEATURES]
        at += len(some)
    con.close()
    return at


def in_order(path, order="id"):
    """The driver's rows in batches, as they come."""
    con, rows = sqlite3.connect(path), 0
    cursor = con.execute(f"SELECT {COLUMNS}, label FROM t ORDER BY {order}")
    while some := cursor.fetchmany(BATCH):
        table = np.array(some)
        rows += len(torch.tensor(table[:, :FEATURES].astype(np.float32)))
        torch.tensor(table[:, FEATURES].astype(np.int64))
    con.close()
    return rows


def by_chance(path):
    """The driver's rows in batches, in an order by chance that the database makes, and nobody can repeat."""
    return in_order(path, "random()")


def offsets(path, batches=20):
    """The usual recipe: a statement with OFFSET for each batch; here the last ones of an epoch."""
    con = sqlite3.connect(path)
    rows = con.execute("SELECT count(*) FROM t").fetchone()[0]
    for number in range(batches):
        con.execute(f"SELECT {COLUMNS}, label FROM t ORDER BY id LIMIT {BATCH} OFFSET ?",
                    (int(rows * (number + 0.5) / batches),)).fetchall()
    con.close()
    return batches * BATCH


def row_by_row(path, rows=4096):
    """One statement for each row, as a Dataset with `__getitem__` has it."""
    con = sqlite3.connect(path)
    count = con.execute("SELECT count(*) FROM t").fetchone()[0]
    for key in np.random.default_rng(0).integers(0, count, rows).tolist():
        con.execute(f"SELECT {COLUMNS}, label FROM t WHERE id = ?", (key,)).fetchone()
    con.close()
    return rows


def epoch(shuffle, workers, cache=None, epoch=0):
    def run(path):
        return sum(len(y) for _, y in DATASETS[path].batches(BATCH, shuffle, 0, epoch, workers, cache))
    return run


def read(path):
    return len(DATASETS[path].read()[1])


class Datasets(dict):
    """Datasets by path; each has found its boundaries, which is done once."""

    def __missing__(self, path):
        self[path] = made = dataset(path)
        len(made)
        return made


DATASETS = Datasets()

# name, our way, the other way, how much of the other's speed is asked for
SPEEDS = [
    ("SQLite: read() beside fetchmany into a buffer", read, fetchmany, 1 / 1.05),
    ("SQLite: block shuffle beside the driver in order", epoch("block", 0), in_order, 0.8),
    ("SQLite: block shuffle, 1 worker", epoch("block", 1), in_order, 0.8),
    ("SQLite: block shuffle, 2 workers", epoch("block", 2), in_order, 0.8),
    ("SQLite: in order, 1 worker", epoch(False, 1), in_order, 0.8),
    ("SQLite: global shuffle beside the driver's ORDER BY random()", epoch("global", 0), by_chance, 1),
    ("SQLite: block shuffle beside OFFSET for each batch", epoch("block", 1), offsets, 1),
    ("SQLite: block shuffle beside a statement for each row", epoch("block", 1), row_by_row, 1),
]


def seconds_per_row(way, path):
    """By the clock, and of this process's time on processors: a server's is not in it."""
    began, used = time.perf_counter(), time.process_time()
    rows = way(path)
    return np.array([time.perf_counter() - began, time.process_time() - used]) / rows


def compare(name, ours, theirs, least, path, rounds):
    best = [np.full(2, np.inf), np.full(2, np.inf)]
    for _ in range(rounds):
        for i, way in enumerate((ours, theirs)):
            best[i] = np.minimum(best[i], seconds_per_row(way, path))
    speed, work = best[1] / best[0]
    print(f"{name:<56} {best[0][0] * 1e6:8.2f} µs a row  {best[1][0] * 1e6:8.2f}  {speed:7.2f} times the speed "
          f"({least:.2f} asked){'' if speed >= least else '  MISSED'}; by processor time {work:.2f}", flush=True)


# --- memory ---------------------------------------------------------------------------------------------------------

JOBS = {
    "read": "data.read()",
    "in order": "for _ in data.batches(1024): pass",
    "block, 1 worker": "for _ in data.batches(1024, 'block', 0, 0, 1): pass",
    "block, 4 workers": "for _ in data.batches(1024, 'block', 0, 0, 4): pass",
    "cached": "for epoch in (0, 1):\n    for _ in data.batches(1024, 'block', 0, epoch, 1, CACHE): pass",
}
CHILD = """
import sys
import flambeau as torch
CACHE = sys.argv[2]

def resident(what):
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(what))

torch.ones(3).add_(1).sum().item()                        # LLVM is there then
data = torch.data.sql("SELECT * FROM t", sys.argv[1], key="id", label="label")
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")                                       # forget the highest so far
before = resident("VmRSS")
{job}
print(resident("VmHWM") - before)
"""


def peak(job, path, folder):
    """By how many bytes the resident memory of a process grows at its highest while it does `job`."""
    cache = os.path.join(folder, "bench.cache")
    try:
        done = subprocess.run([sys.executable, "-c", CHILD.format(job=JOBS[job]), path, cache], check=True, text=True,
                              stdout=subprocess.PIPE)
    finally:
        if os.path.exists(cache):
            os.unlink(cache)
    return int(done.stdout)


def memory(path, rows, folder, words):
    result = rows * (FEATURES * 4 + 8)
    for job, most in [("read", result + (64 << 20)), ("in order", 64 << 20), ("block, 1 worker", 96 << 20),
                      ("block, 4 workers", 192 << 20), ("cached", 96 << 20)]:
        name = f"SQLite: memory, {job}"
        if wanted(name, words):
            used = peak(job, path, folder)
            print(f"{name:<56} {used / 2 ** 20:8.1f} MiB of {most / 2 ** 20:.1f}{'' if used <= most else '  MISSED'}",
                  flush=True)


def hand_over(path, words):
    """How long `next` takes when the rows are there already: what a step of training waits for."""
    name = "SQLite: a batch is handed over, 1 worker"
    if not wanted(name, words):
        return
    iterator = DATASETS[path].batches(BATCH, "block", 0, 0, 1)
    next(iterator)
    time.sleep(2)                                     # so that the next group is there, too
    times = []
    for _ in range(60):
        began = time.perf_counter()
        next(iterator)
        times.append(time.perf_counter() - began)
    iterator.close()
    middle = float(np.median(times)) * 1e6
    print(f"{name:<56} {middle:8.1f} µs, 100 asked{'' if middle <= 100 else '  MISSED'}", flush=True)


def wanted(name, words):
    return not words or any(word.lower() in name.lower() for word in words)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("words", nargs="*")
    args = parser.parse_args()
    path = sqlite_table(args.folder, args.rows)
    for name, ours, theirs, least in SPEEDS:
        if wanted(name, args.words):
            compare(name, ours, theirs, least, path, args.rounds)
    hand_over(path, args.words)
    memory(path, args.rows, args.folder, args.words)


if __name__ == "__main__":
    main()
