"""shuffle="global" of DuckDB and files: the order that the database would sort, to the row, without its sort."""
import gc
import os
import shutil
import tempfile

import numpy as np
import pytest

import flambeau as torch
from flambeau.data.sql import hash_order
from flambeau.data.sql.dataset import SALT_MASK
from flambeau.data.sql.hash_order import sorted_positions
from flambeau.data.sql.permute import key_from
from flambeau.data.sql.source import ConnectionLost, TableChanged

from .drivers import ASKED_FOR
from .sources import digest, together
from .test_drivers import wide_file

duckdb = pytest.importorskip("duckdb")
engine = pytest.importorskip("flambeau.data.sql.duckdb", exc_type=ImportError)
duckdb_session = pytest.importorskip("flambeau.data.sql.duckdb_session", exc_type=ImportError)

pytestmark = [pytest.mark.pinned,
              pytest.mark.skipif(not ASKED_FOR, reason="databases beside SQLite are tried by `make data`")]

ROWS = 20_000
SELECT = ("SELECT (range * 7919) % 20011 AS id, 'k' || id AS name, id // 100 AS a, id % 100 AS b, range::DOUBLE AS x, "
          f"range / 3 AS y, range % 7 AS label FROM range({ROWS})")


@pytest.fixture
def small_bins(monkeypatch):
    """Bins of some hundred rows, and so a file."""
    monkeypatch.setattr(hash_order, "BIN_BYTES", 1 << 14)
    monkeypatch.setattr(hash_order, "DEALT_BYTES", 1 << 15)


@pytest.fixture(params=["duckdb", "parquet"])
def con(request, tmp_path):
    if request.param == "duckdb":
        path = tmp_path / "t.duckdb"
        with duckdb.connect(str(path)) as made:
            made.execute(f"CREATE TABLE data AS {SELECT}")
        return path
    (tmp_path / "files").mkdir()
    with duckdb.connect() as made:
        for part in range(3):
            made.execute(f"COPY (SELECT * FROM ({SELECT}) WHERE x % 3 = {part}) TO '{tmp_path}/files/{part}.parquet'")
    return tmp_path / "files"


@pytest.fixture
def opened(monkeypatch):
    """(MiB, threads) of the instances that are opened."""
    made, open_instance = [], engine.DuckDBSource.open
    monkeypatch.setattr(engine.DuckDBSource, "open",
                        lambda self, mib, threads: made.append((mib, threads)) or open_instance(self, mib, threads))
    return made


def dataset(con, key="id", **options):
    return torch.data.sql("SELECT * FROM data", con, key=key, features=["x", "y"], label="label", **options)


def sorted_by_database(order):
    """The column x as DuckDB sorts it by these terms."""
    with duckdb.connect() as made:
        return made.execute(f"SELECT x FROM ({SELECT}) AS q ORDER BY {order}").fetchnumpy()["x"]


def given(batches):
    return together(batches)[0][:, 0]


@pytest.mark.parametrize("key", ["id", "name", ["a", "b"]])
def test_the_order_is_that_of_the_databases_own_sort(con, small_bins, key):
    data, names = dataset(con, key), key if isinstance(key, list) else [key]
    for seed, epoch in [(3, 1), (3, 2)]:
        salt = key_from(seed, epoch) & SALT_MASK
        expected = sorted_by_database(f"hash({salt}, {', '.join(names)}), {', '.join(names)}")
        np.testing.assert_array_equal(given(data.batches(999, "global", seed, epoch)), expected)


def test_many_keys_of_the_same_hash_come_by_key(con, small_bins, monkeypatch):
    monkeypatch.setattr(engine.DuckDBDialect, "hash",
                        lambda self, key, salt: f"((hash({salt}, {', '.join(key)}) >> 52) << 52)")
    salt = key_from(3, 1) & SALT_MASK
    expected = sorted_by_database(f"(hash({salt}, name) >> 52) << 52, name")
    np.testing.assert_array_equal(given(dataset(con, "name").batches(999, "global", 3, 1)), expected)


def test_the_same_rows_for_any_workers_and_after_resuming_anywhere(con, small_bins):
    data = dataset(con)
    first = list(data.batches(300, "global", 3, 1))
    for workers in (1, 2, 4):
        assert digest(data.batches(300, "global", 3, 1, workers)) == digest(first)
    for start in (1, 30, len(first) - 1, len(first)):
        assert digest(data.batches(300, "global", 3, 1, start % 2, start=start)) == digest(first[start:])
    shares = [given(data.batches(300, "global", 3, 1, rank=rank, ranks=3)) for rank in range(3)]
    np.testing.assert_array_equal(np.concatenate(shares), given(first))


def test_a_large_table_is_read_in_stretches(tmp_path, monkeypatch, opened):
    with duckdb.connect(str(tmp_path / "t.duckdb")) as made:
        made.execute(f"CREATE TABLE data AS {SELECT}")
    data = dataset(tmp_path / "t.duckdb")
    expected = digest(data.batches(300, "global", 3, 1))
    opened.clear()
    monkeypatch.setattr(duckdb_session, "ROWS_OF_INSTANCE", 3000)
    assert digest(data.batches(300, "global", 3, 1)) == expected and len(opened) > ROWS // 3000


def test_the_database_has_no_memory_to_sort_rows(con, small_bins, opened):
    list(dataset(con).batches(300, "global", 3, 1))
    assert max(opened)[0] <= duckdb_session.SORTING_KEYS_MIB and {threads for _, threads in opened} == {1}


@pytest.mark.parametrize("workers", [0, 1])
def test_memory_is_doubled_where_it_is_too_little(tmp_path, monkeypatch, opened, workers):
    data = torch.data.sql("SELECT * FROM t", wide_file(tmp_path / "t.duckdb"), key="id")
    expected = digest(data.batches(1000, "global", 3, 1))
    opened.clear()
    monkeypatch.setattr(duckdb_session, "STREAM_MEMORY_MIB", 1)
    data.source.memory_mib = 1
    assert digest(data.batches(1000, "global", 3, 1, workers)) == expected and {(1, 1), (2, 1)} <= {*opened}
    for module in (engine, duckdb_session):
        monkeypatch.setattr(module, "SORTING_MEMORY_MIB", 1)            # there is no more
    data.source.memory_mib = 1
    with pytest.raises(Exception, match="Out of Memory Error"):
        list(data.batches(1000, "global", 3, 1, workers))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("fault", [duckdb_session.ShortOfMemory, ConnectionLost])
def test_memory_or_a_connection_lost_midway_loses_and_repeats_nothing(con, small_bins, monkeypatch, fault, workers):
    expected, read, asked = digest(dataset(con).batches(300, "global", 3, 1)), engine.DuckDBSession.batches, []

    def short(self, text, params=(), rows=None):
        if "flambeau_hash" not in text:
            yield from read(self, text, params, rows)
            return
        asked.append(text)
        for n, batch in enumerate(read(self, text, params, rows)):
            if len(asked) < 3 and n == 1:
                raise fault from duckdb.OutOfMemoryException("Out of Memory Error: for this test")
            yield batch
    monkeypatch.setattr(engine.DuckDBSession, "batches", short)
    monkeypatch.setattr(duckdb_session, "HASHED_ROWS", 4096)
    assert digest(dataset(con).batches(300, "global", 3, 1, workers)) == expected and len(asked) == 3


def test_nulls_and_wrong_codes_are_said_and_everything_is_closed(con, small_bins, monkeypatch):
    made, real = [], tempfile.TemporaryFile
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **options: made.append(real(**options)) or made[-1])
    data = torch.data.sql("SELECT id, name, nullif(x, 77) AS x FROM data", con, key="id", features=["x"])
    for workers in (0, 1):
        with pytest.raises(ValueError, match=r"there are NULLs in 'x' \(1 of them\)"):
            list(data.batches(300, "global", 0, 0, workers))
    nan = torch.data.sql("SELECT id, nullif(x, 77) AS x FROM data", con, key="id", features=["x"], nulls="nan")
    assert np.isnan(given(nan.batches(300, "global", 0, 0))).sum() == 1
    masked = torch.data.sql("SELECT id, nullif(x, 77) AS x FROM data", con, key="id", features=["x"], nulls="mask")
    x, mask = together(masked.batches(300, "global", 0, 0))
    assert x[mask].tolist() == [0] and sorted(x[~mask].tolist()) == [i for i in range(ROWS) if i != 77]
    assert len(made) == 4 and all(file.closed for file in made)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_an_epoch_that_is_ended_closes_its_file_and_its_instances(con, small_bins, monkeypatch, workers):
    made, real, opened, open_instance = [], tempfile.TemporaryFile, [], engine.DuckDBSource.open
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **options: made.append(real(**options)) or made[-1])
    monkeypatch.setattr(engine.DuckDBSource, "open", lambda *args: opened.append(open_instance(*args)) or opened[-1])
    for module in ("dataset", "reading"):                 # or a quick worker would be at the end by then
        monkeypatch.setattr(f"flambeau.data.sql.{module}.STREAM_ROWS", 500)
    data = dataset(con)
    iterator = data.batches(300, "global", 3, 1, workers)
    next(iterator)
    assert len(made) == 1 and not made[0].closed
    iterator.close()
    del iterator
    assert made[0].closed
    for _ in data.batches(300, "global", 3, 1, workers):
        break                                             # and the iterator is gone
    gc.collect()
    assert len(made) == 2 and made[1].closed
    for instance in opened:
        with pytest.raises(duckdb.ConnectionException):
            instance.execute("SELECT 1")
    if con.suffix == ".duckdb":
        duckdb.connect(str(con)).close()                  # nobody holds the file


@pytest.mark.parametrize("fault", [
    lambda patched, folder: patched.setattr("tempfile.tempdir", str(folder / "nowhere")),
    lambda patched, folder: patched.setattr("shutil.disk_usage", lambda folder: shutil._ntuple_diskusage(1, 1, 0)),
], ids=["no folder", "no space"])
def test_rows_are_in_memory_where_there_is_no_file_for_them(con, small_bins, tmp_path, monkeypatch, fault):
    data = dataset(con)
    expected = digest(data.batches(300, "global", 3, 1))
    fault(monkeypatch, tmp_path)
    with pytest.warns(UserWarning, match="MiB of rows that are sorted are held in memory.*TMPDIR says where"):
        assert digest(data.batches(300, "global", 3, 1)) == expected


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full is Linux's")
@pytest.mark.parametrize("workers", [0, 1])
def test_the_disk_is_full(con, small_bins, monkeypatch, workers):
    monkeypatch.setattr("tempfile.TemporaryFile", lambda buffering: open("/dev/full", "r+b", buffering))
    with pytest.raises(OSError, match="No space left on device: rows that wait.*TMPDIR says where") as told:
        list(dataset(con).batches(300, "global", 3, 1, workers))
    assert told.value.errno == 28


@pytest.mark.parametrize("more", [1, -1])
def test_rows_that_come_or_go_while_they_are_counted_and_read_are_an_error(con, small_bins, monkeypatch, more):
    count = engine.DuckDBSession.hash_counts

    def other(self, *args):
        counts = count(self, *args)
        counts[[3, 9]] += more, -more
        return counts
    monkeypatch.setattr(engine.DuckDBSession, "hash_counts", other)
    with pytest.raises(TableChanged, match="the table was written to"):
        list(dataset(con).batches(300, "global", 3, 1))
    monkeypatch.setattr(engine.DuckDBSession, "hash_counts", lambda *args: count(*args) * 2)
    with pytest.raises(TableChanged, match=f"gave {2 * ROWS} rows where it had counted {ROWS}"):
        list(dataset(con).batches(300, "global", 3, 1))


def test_places_are_sorted_by_all_bits_of_hashes():
    draw = np.random.default_rng(0).integers(0, 1 << 64, 1000, np.uint64, endpoint=False)
    cases = [(draw, 0), (draw >> np.uint64(8), 8), (draw[:1], 0), (draw[:0], 0),
             (np.arange(1000, 0, -1).astype(np.uint64), 0),                 # which the lowest bits alone tell apart
             (draw // np.uint64(1 << 60), 0)]                               # equal ones: as they lie
    for hashes, known in cases:
        assert sorted_positions(hashes, known).tolist() == sorted(range(len(hashes)), key=hashes.tolist().__getitem__)
