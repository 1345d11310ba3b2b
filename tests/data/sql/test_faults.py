"""What goes wrong during an epoch: each fault ends in the right stream, or in an error that says where it stopped."""
import contextlib
import multiprocessing
import os
import shutil
import sqlite3
import tempfile
import threading
import time

import numpy as np
import pytest

import flambeau as torch
from flambeau.data.sql import reading, waiting_rows
from flambeau.data.sql.engines import source_of
from flambeau.data.sql.source import ConnectionLost, RowSource, SnapshotLost, TableChanged
from tests.patience import PATIENCE

from .sources import SQLiteEngine, SQLiteWalEngine, digest, plain_table, together

pytestmark = [pytest.mark.pinned, pytest.mark.usefixtures("small_blocks")]


class FaultySource(RowSource):
    """A source whose nth statement that brings rows fails, for the n in `failing`, and which counts open sessions."""

    def __init__(self, con, failing=(), error=ConnectionLost, snapshot_is_lost=False):
        self.inner = source_of(con)
        self.dialect, self.name = self.inner.dialect, self.inner.name
        self.failing, self.error, self.snapshot_is_lost = failing, error, snapshot_is_lost
        self.asked, self.opened, self.open_now, self.lock = 0, 0, set(), threading.Lock()
        self.plans_that_fail = 0

    def connect(self, snapshot=None):
        if snapshot is not None and self.snapshot_is_lost and self.asked:
            self.snapshot_is_lost = False
            raise SnapshotLost("the server has started anew")
        session = self.inner.connect(snapshot)
        self.opened += 1
        self.open_now.add(session)
        fetch, close, stream, boundaries = session.fetch, session.close, session.stream, session.boundaries

        def faulty_boundaries(*args):
            found = boundaries(*args)
            if self.plans_that_fail:
                self.plans_that_fail -= 1
                raise ConnectionLost("the line is dead while keys are read")
            return found

        def faulty_fetch(*args):
            self.count()
            return fetch(*args)

        def faulty_stream(*args):
            for chunk in stream(*args):
                self.count()
                yield chunk

        def counted_close():
            self.open_now.discard(session)
            close()
        session.fetch, session.stream, session.close = faulty_fetch, faulty_stream, counted_close
        session.boundaries = faulty_boundaries
        return session

    def count(self):
        with self.lock:
            self.asked += 1
            nth = self.asked
        if nth in self.failing:
            raise self.error(f"the line is dead at statement {nth}")


@pytest.fixture
def engine(tmp_path):
    made = SQLiteEngine(tmp_path)
    plain_table(made, 200)
    return made


@pytest.fixture(autouse=True)
def quick_pauses(monkeypatch):
    monkeypatch.setattr(reading, "FIRST_PAUSE", 0.001)


def dataset(source, **options):
    return torch.data.SQLDataset("SELECT * FROM t", source, key="id", label="label", **options)


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("shuffle", [False, "block", "global"])
@pytest.mark.parametrize("failing", [{1}, {2, 3, 4}, {3, 6}])
def test_a_lost_connection_is_tried_again(engine, failing, shuffle, workers, monkeypatch):
    monkeypatch.setattr("flambeau.data.sql.dataset.STREAM_ROWS", 20)
    monkeypatch.setattr(reading, "STREAM_ROWS", 20)
    expected = digest(dataset(engine.path and source_of(engine.path)).batches(9, shuffle, seed=1, epoch=1))
    source = FaultySource(engine.path, failing)
    assert digest(dataset(source).batches(9, shuffle, seed=1, epoch=1, workers=workers)) == expected
    assert source.asked > max(failing) and not source.open_now


def test_a_connection_that_is_lost_while_an_epoch_is_planned_or_a_table_read(engine):
    source = FaultySource(engine.path, {2})
    source.plans_that_fail = 2
    data = dataset(source)
    assert sum(len(y) for _, y in data.batches(9, "block")) == 200 and source.plans_that_fail == 0
    source = FaultySource(engine.path, {1, 3})
    assert len(dataset(source).read()[0]) == 200 and source.asked == 5 and not source.open_now


@pytest.mark.parametrize("workers", [0, 2])
def test_a_connection_that_stays_lost_says_where_it_stopped(engine, workers):
    source = FaultySource(engine.path, range(3, 10_000))
    iterator = dataset(source, retry_seconds=0.05).batches(10, "block", seed=4, epoch=2, workers=workers)
    given = []
    with pytest.raises(ConnectionError, match=r"was lost before batch \d+ of epoch 2 \(seed=4\), .* for 0.05 seconds: "
                       r"the line is dead at statement \d+. batches\(…, seed=4, epoch=2, start=\d+\) goes on there"):
        for batch in iterator:
            given.append(batch)
    # What two groups make: a piece, and no half of a batch. A quick worker may have read two while the other had not
    # begun with the first.
    assert len(given) in [iterator.starts[n] // 10 for n in ((0, 1) if workers else (1,))] and not source.open_now
    rest = dataset(source_of(engine.path)).batches(10, "block", seed=4, epoch=2, start=len(given))
    assert digest(given + list(rest)) == digest(dataset(source_of(engine.path)).batches(10, "block", seed=4, epoch=2))


def test_other_errors_go_through_as_they_are(engine):
    source = FaultySource(engine.path, {3}, error=ZeroDivisionError)
    iterator = dataset(source).batches(10, "block", seed=4, epoch=2, workers=1)
    with pytest.raises(ZeroDivisionError) as told:
        list(iterator)
    where = f"batch {iterator.starts[1] // 10} of epoch 2 (seed=4)"
    assert told.value.__notes__ == [f"while {where} was read"] and not source.open_now


def test_a_snapshot_that_is_lost_is_taken_anew(tmp_path):
    engine = SQLiteWalEngine(tmp_path)
    plain_table(engine, 200)
    expected = digest(dataset(source_of(engine.path)).batches(9, "block", seed=1, epoch=1))
    source = FaultySource(engine.path, {3}, snapshot_is_lost=True)
    assert digest(dataset(source).batches(9, "block", seed=1, epoch=1, workers=1)) == expected
    assert not source.snapshot_is_lost                             # it happened
    source = FaultySource(engine.path, {3}, snapshot_is_lost=True)
    iterator = dataset(source).batches(9, "block", seed=1, epoch=1)
    next(iterator)
    engine.execute("DELETE FROM t WHERE id = 150")
    with pytest.raises(TableChanged, match="was written to while the connection was lost"):
        list(iterator)


def test_somebody_who_holds_the_database_is_waited_for(engine):
    iterator = dataset(source_of(engine.path)).batches(50, "block", seed=0, epoch=0, workers=1)
    with contextlib.closing(sqlite3.connect(engine.path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN EXCLUSIVE")
        threading.Timer(0.1, lambda: other.execute("ROLLBACK")).start()
        assert sum(len(y) for _, y in iterator) == 200


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ending", ["end", "close", "break", "never begun", "resumed"])
def test_connections_are_closed(engine, ending, workers):
    source = FaultySource(engine.path)
    data = dataset(source)
    iterator = data.batches(10, "block", seed=0, workers=workers)
    match ending:
        case "end": list(iterator)
        case "close":
            next(iterator)
            iterator.close()
            assert list(iterator) == []
            iterator.close()
        case "break": next(iterator)
        case "resumed":
            iterator.close()
            iterator = data.resume(iterator.state_dict(), workers=workers)
            list(iterator)
    del iterator
    assert source.opened and not source.open_now
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("flambeau.data.sql")]


def test_nobody_connects_after_the_end(tmp_path):
    """A worker that is slow to connect finds the snapshot gone, and takes no other that nobody would close."""
    engine = SQLiteWalEngine(tmp_path)
    plain_table(engine, 20)
    source = FaultySource(engine.path, snapshot_is_lost=True)
    reading = dataset(source)._reading()
    source.asked = 1                                               # from now on the snapshot is lost
    reading.close()
    with pytest.raises(ConnectionLost, match="are closed"):
        reading.connect()
    assert not source.open_now


def test_workers_read_no_further_ahead_than_they_should(engine):
    source = FaultySource(engine.path)
    iterator = dataset(source).batches(1, workers=2)
    next(iterator)
    deadline = time.monotonic() + PATIENCE
    while source.asked < 4 and time.monotonic() < deadline:       # the one in use, one for each worker and one more
        time.sleep(0.01)
    time.sleep(0.1)
    assert source.asked == 4
    iterator.close()


def test_an_iterator_stays_in_its_process_and_a_dataset_goes_over(engine):
    data = dataset(source_of(engine.path))
    data[3]                                                        # opens a connection of this process
    iterator = data.batches(10, "block", seed=1, epoch=0, workers=1)
    first = next(iterator)

    def child(pipe):
        try:
            next(iterator)
        except RuntimeError as error:
            pipe.send(str(error))
        pipe.send((digest(data.batches(10, "block", seed=1, epoch=0, workers=2)), data[3][0].tolist()))
        pipe.close()
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=child, args=(there,))
    process.start()
    there.close()
    assert here.poll(PATIENCE) and "was begun in another process" in here.recv()
    assert here.poll(PATIENCE)
    given, row = here.recv()
    process.join(PATIENCE)
    assert process.exitcode == 0 and row == data[3][0].tolist()
    assert given == digest([first, *iterator])


def test_a_table_that_is_gone(engine):
    data = dataset(source_of(engine.path))
    len(data)
    engine.execute("DROP TABLE t")
    with pytest.raises(sqlite3.OperationalError, match="no such table: t"):
        data.batches(10)
    os.unlink(engine.path)
    data.retry_seconds = 0.01
    with pytest.raises(ConnectionLost, match="unable to open database file"):
        data.batches(10)


# --- the cache ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, "block"])
def test_a_cache_gives_what_the_database_gives(engine, tmp_path, shuffle, workers):
    path, source = tmp_path / "rows.cache", FaultySource(engine.path)
    data, plain = dataset(source), dataset(source_of(engine.path))
    for epoch in range(3):
        before = source.asked
        assert digest(data.batches(9, shuffle, 5, epoch, workers, path)) == digest(plain.batches(9, shuffle, 5, epoch))
        assert (source.asked > before) is (epoch == 0)
    given = data.batches(9, shuffle, 5, 0, workers, path, start=3, rank=1, ranks=2)
    assert digest(given) == digest(plain.batches(9, shuffle, 5, 0, start=3, rank=1, ranks=2))
    assert [name for name in os.listdir(tmp_path) if "cache" in name] == ["rows.cache"]


def test_a_cache_of_everything_is_there_before_an_epoch_that_does_not_see_everything(engine, tmp_path):
    x, _ = plain_table(engine, 90, name="other")
    partly = [dict(shuffle="global"), dict(start=2), dict(rank=1, ranks=3), dict(drop_last=True)]
    for number, options in enumerate(partly):
        path = tmp_path / f"{number}.cache"
        data = torch.data.sql("SELECT * FROM other", engine.path, key="id", label="label")
        first = list(data.batches(20, seed=1, epoch=0, cache=path, **options))
        again = data.batches(20, seed=1, epoch=0, cache=path, workers=1, **options)
        assert path.exists() and digest(first) == digest(again)
        if options.get("shuffle"):
            rows = together(first)[0].tolist()
            assert sorted(rows) == sorted(x.tolist()) and rows != x.tolist()
            assert rows != together(data.batches(20, "global", 1, 1, cache=path))[0].tolist()


def test_masks_and_odd_types_in_a_cache(engine, tmp_path):
    engine.execute("UPDATE t SET a = NULL WHERE id % 7 = 0")
    data = torch.data.sql("SELECT * FROM t", engine.path, key="id", label=["label", "b"], features=["a"], nulls="mask",
                          dtype=torch.bfloat16)
    first, again = (list(data.batches(16, "block", 1, 0, cache=tmp_path / "c")) for _ in range(2))
    assert first[0][0].dtype is torch.bfloat16 and first[0][1].dtype is torch.bool and first[0][2].shape == (16, 2)
    for one, other in zip(first, again, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_an_epoch_that_is_broken_off_leaves_no_cache(engine, tmp_path):
    path = tmp_path / "rows.cache"
    iterator = dataset(source_of(engine.path)).batches(9, "block", 0, 0, 1, path)
    next(iterator)
    iterator.close()
    with pytest.raises(ConnectionError):
        faulty = dataset(FaultySource(engine.path, range(3, 100)), retry_seconds=0.01)
        list(faulty.batches(9, "block", 0, 0, cache=path))
    assert not [name for name in os.listdir(tmp_path) if "cache" in name]


@pytest.mark.parametrize("change, words", [
    (dict(query="SELECT * FROM t WHERE id > 0"), "is of another query: 'SELECT . FROM t', where this is"),
    (dict(params=[1], query="SELECT * FROM t WHERE ? = 1"), "is of another query"),
    (dict(dtype=torch.float64), "is of another columns"), (dict(nulls="mask"), "is of another columns"),
    (dict(features=["b", "a"]), "is of another columns"), (dict(written=True), "is of another state of the tables"),
    (dict(cut=True), "bytes, and should have"), (dict(other_file=True), "is no cache of rows"),
])
def test_a_cache_of_something_else_is_refused(engine, tmp_path, change, words):
    path = tmp_path / "rows.cache"
    options = dict(key="id", label="label", features=["a", "b"])
    list(torch.data.sql("SELECT * FROM t", engine.path, **options).batches(50, cache=path))
    if change.pop("written", None):
        engine.execute("UPDATE t SET a = 0 WHERE id = 0")
    if change.pop("cut", None):
        os.truncate(path, path.stat().st_size - 1)
    if change.pop("other_file", None):
        path.write_text("my notes")
    data = torch.data.sql(change.pop("query", "SELECT * FROM t"), engine.path, **{**options, **change})
    with pytest.raises(ValueError, match=words):
        data.batches(50, cache=path)


@pytest.mark.parametrize("failing", ["posix_fallocate", "pwrite"])
def test_a_full_disk(engine, tmp_path, monkeypatch, failing):
    data, calls = dataset(source_of(engine.path)), []

    def full(*args):
        calls.append(args)
        raise OSError(28, "No space left on device")
    with monkeypatch.context() as patched:
        patched.setattr(os, failing, full)
        with pytest.raises(OSError, match="No space left on device: the cache needs 0.0 MiB; the rows are there "
                           "without cache=.*rows.cache") as told:
            list(data.batches(9, cache=tmp_path / "rows.cache", workers=1))
    assert told.value.errno == 28 and calls and not [name for name in os.listdir(tmp_path) if "cache" in name]
    assert sum(len(y) for _, y in data.batches(9)) == 200


@pytest.mark.parametrize("fault", [
    lambda patched, folder: patched.setattr("tempfile.tempdir", str(folder / "nowhere")),
    lambda patched, folder: patched.setattr("shutil.disk_usage", lambda folder: shutil._ntuple_diskusage(1, 1, 0)),
], ids=["no folder", "no space"])
def test_rows_wait_in_memory_where_there_is_no_file_for_them(engine, tmp_path, monkeypatch, fault):
    data = dataset(source_of(engine.path))
    expected = digest(data.batches(9, "block", 0, 0))
    monkeypatch.setattr(waiting_rows, "WAITING_BYTES_IN_MEMORY", 0)
    fault(monkeypatch, tmp_path)
    with pytest.warns(UserWarning, match="held in memory.*TMPDIR says where"):
        assert digest(data.batches(9, "block", 0, 0)) == expected


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full is Linux's")
def test_the_disk_is_full_where_rows_wait(engine, monkeypatch):
    monkeypatch.setattr(waiting_rows, "WAITING_BYTES_IN_MEMORY", 0)
    monkeypatch.setattr("tempfile.TemporaryFile", lambda buffering: open("/dev/full", "r+b", buffering))
    data = dataset(source_of(engine.path))
    with pytest.raises(OSError, match="No space left on device: rows that wait.*TMPDIR says where") as told:
        list(data.batches(9, "block", 0, 0))
    assert told.value.errno == 28 and told.value.__notes__ == ["while batch 0 of epoch 0 (seed=0) was read"]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_file_that_rows_wait_in_ends_with_the_iterator(engine, monkeypatch, workers):
    made, real = [], tempfile.TemporaryFile
    monkeypatch.setattr(waiting_rows, "WAITING_BYTES_IN_MEMORY", 0)
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **options: made.append(real(**options)) or made[-1])
    data = dataset(source_of(engine.path))
    iterator = data.batches(9, "block", 0, 0, workers)
    next(iterator)
    assert len(made) == 1 and not made[0].closed
    iterator.close()
    assert made[0].closed
    list(data.batches(9, "block", 0, 0, workers))
    assert len(made) == 2 and made[1].closed


def test_the_order_of_an_epoch_is_written_down():
    """A run that is resumed elsewhere, with another version, has to find the same order: here, in plain numbers."""
    from flambeau.data.sql.blocks import Dealing, drawn_groups, drawn_rounds
    from flambeau.data.sql.permute import permutation, shuffled_positions

    def mixed(word):
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & 2 ** 64 - 1
        word = (word ^ word >> 27) * 0x94D049BB133111EB & 2 ** 64 - 1
        return word ^ word >> 31

    def key(*numbers):
        made = 0
        for number in numbers:
            made = mixed(made + 0x9E3779B97F4A7C15 * (number + 1) & 2 ** 64 - 1)
        return made
    start = key(3, 4)
    hashes = [(mixed(i * 0x9E3779B97F4A7C15 + start & 2 ** 64 - 1) << 4 & 2 ** 64 - 1) | i for i in range(13)]
    assert permutation(13, 3, 4).tolist() == [h & 15 for h in sorted(hashes)]
    start = key(3, 4, -2)
    hashes = [mixed(i * 0x9E3779B97F4A7C15 + start & 2 ** 64 - 1) for i in range(9)]
    strata = [[sorted(hashes[begin:begin + 3]).index(h) for h in hashes[begin:begin + 3]] for begin in (0, 3, 6)]
    rounds = [*sum(strata, []), *permutation(3, 3, 4, -3).tolist()[:2]]
    assert drawn_rounds(11, 3, 3, 4).tolist() == rounds
    turns = [i * 0x9E3779B97F4A7C15 + key(3, 4, -5) & 2 ** 64 - 1 for i in range(4)]
    order = sorted(range(4), key=turns.__getitem__)
    groups, count, window = drawn_groups(11, 2, 2, 3, 4)
    assert (count, window) == (6, 2) and groups.tolist() == [2 * n + order[i // 3] // 2 for i, n in enumerate(rounds)]
    dealing = Dealing(np.full(6, 10), window=4, head=1)
    assert [dealing.shares(group) for group in range(6)] == [
        [(0, 0, 5), (1, 5, 8), (2, 8, 10)], [(0, 0, 2), (1, 2, 5), (2, 5, 7), (3, 7, 10)],
        [(1, 0, 2), (2, 2, 5), (3, 5, 7), (4, 7, 10)], [(2, 0, 2), (3, 2, 5), (4, 5, 7), (5, 7, 10)],
        [(3, 0, 3), (4, 3, 6), (5, 6, 10)], [(4, 0, 5), (5, 5, 10)]]
    dealing = Dealing(np.full(4, 12), window=4, head=1)      # the first gives 3/4 and 5/12, what the others do not
    assert [dealing.shares(group) for group in range(4)] == [
        [(0, 0, 7), (1, 7, 12), (2, 12, 12), (3, 12, 12)], [(0, 0, 3), (1, 3, 6), (2, 6, 9), (3, 9, 12)],
        [(1, 0, 4), (2, 4, 8), (3, 8, 12)], [(2, 0, 6), (3, 6, 12)]]
    assert len({*shuffled_positions(np.arange(13), 13, 3, 4).tolist()}) == 13
